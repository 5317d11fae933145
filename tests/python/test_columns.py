# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Columns: what Python's own pickle reads, without copies, and alive as long as anybody uses them."""
import ctypes
import functools
import gc
import os
import pickle
import subprocess
import sys
import unittest
import weakref

import recordings
import tidemark
from tidemark import abi

NAMES = ("action", "address", "size", "stream", "time", "stack", "note", "pool", "device", "absent")
WITH_NUMPY = """
import sys, gc
import numpy, tidemark
recording = tidemark.read(sys.argv[1])
entries = recording.devices[0].entries
for name in %r:
    column = getattr(entries, name)
    array = numpy.asarray(column)
    assert array.tolist() == column.tolist(), name
    assert array.strides == (48,) and not array.flags.owndata and not array.flags.writeable, name
    assert array.__array_interface__["data"][0] == numpy.asarray(getattr(entries, name)).__array_interface__["data"][0], name
addresses = {name: numpy.asarray(getattr(entries, name)).__array_interface__["data"][0] for name in ("time", "address")}
assert addresses["address"] - addresses["time"] == 8
sizes = numpy.asarray(entries.size)
wanted = entries.size.tolist()
taken = numpy.asarray(entries.action) == tidemark.Action.ALLOC
assert int(sizes[taken].sum()) == sum(e.size for e in entries if e.action == tidemark.Action.ALLOC)
assert recording.stack(numpy.asarray(entries.stack)[0]) == recording.stack(int(entries.stack[0]))
timeline = recording.timeline(100)
most = numpy.asarray(timeline.reserved.most)
assert most.max() == recording.peak("reserved").bytes
recording.close()
del recording, entries, column, array, timeline
gc.collect()
noise = [bytes(len(wanted) * 48) for _ in range(8)]
assert sizes.tolist() == wanted
assert most.shape == (100,)
""" % (NAMES,)


class PyBuffer(ctypes.Structure):
    """Py_buffer"""
    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
                ("readonly", ctypes.c_int), ("ndim", ctypes.c_int), ("format", ctypes.c_char_p),
                ("shape", ctypes.POINTER(ctypes.c_ssize_t)), ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
                ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]


def buffer_of(column):
    """The address, stride and format that whoever takes the buffer of a column gets."""
    buffer = PyBuffer()
    full_ro = 0x011C  # PyBUF_FULL_RO
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(column), ctypes.byref(buffer), full_ro)
    got = buffer.buf, buffer.strides[0], buffer.format.decode(), bool(buffer.readonly)
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    return got


@functools.lru_cache(maxsize=None)
def with_numpy():
    """An interpreter that has NumPy; None if there is none."""
    for path in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(path) and subprocess.run([path, "-c", "import numpy"], capture_output=True, check=False).returncode == 0:
            return path
    return None


def freed(recording):
    """A list that is no longer empty when the memory of a recording is freed."""
    seen = []
    weakref.finalize(recording._trace, seen.append, True)
    return seen


class Contents(unittest.TestCase):
    def expect_entries(self, got, wanted):
        self.assertEqual(len(got), len(wanted))
        self.assertEqual([tidemark.Action(action).name.lower() for action in got.action], [entry["action"] for entry in wanted])
        for column, key in ((got.size, "size"), (got.stream, "stream")):
            self.assertEqual(column.tolist(), [entry[key] for entry in wanted])
        self.assertEqual(got.address.tolist(), [entry.get("device_free", entry.get("addr")) for entry in wanted])
        self.assertEqual(got.time.tolist(), [1000 * entry.get("time_us", 0) for entry in wanted])

    def expect_stacks(self, recording, numbers, wanted):
        for number in set(numbers):
            got = recording.stack(number)
            first = wanted[numbers.index(number)]
            self.assertEqual([tuple(frame) for frame in got],
                             [(frame["filename"], frame["line"], frame["name"]) for frame in first.get("frames") or ()])
        same = {}
        for number, entry in zip(numbers, wanted):
            frames = tuple(map(str, entry.get("frames") or ()))
            self.assertEqual(same.setdefault(frames, number), number)

    def test_entries_and_stacks_are_those_of_the_pickle(self):
        for path, snapshot in recordings.everything():
            with self.subTest(path), tidemark.read(path) as recording:
                for device, wanted in enumerate(snapshot["device_traces"]):
                    entries = recording.devices[device].entries
                    self.expect_entries(entries, wanted)
                    self.expect_stacks(recording, entries.stack.tolist(), wanted)
                    self.assertEqual(set(entries.device.tolist()), {device} if wanted else set())

    def test_segments_and_blocks_are_those_of_the_pickle(self):
        states = {"inactive": 0, "active_allocated": 1, "active_pending_free": 2}
        for path, snapshot in recordings.small():
            with self.subTest(path), tidemark.read(path) as recording:
                segments, listed = recording.segments, snapshot["segments"]
                for column, key in ((segments.address, "address"), (segments.size, "total_size"), (segments.stream, "stream"),
                                    (segments.allocated, "allocated_size"), (segments.active, "active_size"),
                                    (segments.device, "device"), (segments.is_expandable, "is_expandable")):
                    self.assertEqual(column.tolist(), [segment[key] for segment in listed], key)
                self.assertEqual(segments.is_large.tolist(), [segment["segment_type"] == "large" for segment in listed])
                self.assertEqual([recording.pool(pool) for pool in segments.pool],
                                 [tuple(segment["segment_pool_id"]) for segment in listed])
                blocks = [block for segment in listed for block in segment["blocks"]]
                self.assertEqual(recording.blocks.address.tolist(), [block["address"] for block in blocks])
                self.assertEqual(recording.blocks.size.tolist(), [block["size"] for block in blocks])
                self.assertEqual(recording.blocks.state.tolist(), [states[block["state"]] for block in blocks])
                self.assertEqual(segments.block_count.tolist(), [len(segment["blocks"]) for segment in listed])

    def test_tags_are_those_of_the_pickle(self):
        with open(recordings.as_pickle("tags/turns"), "rb") as file:
            listed = pickle.load(file)["segments"]
        with tidemark.read(recordings.native("tags/turns")) as recording:
            segments = recording.segments
        self.assertEqual(segments.tag, tuple(segment.get("tag", "") for segment in listed))  # closed, but in use
        self.assertEqual(segments.is_parked, tuple(segment.get("is_parked", False) for segment in listed))
        self.assertEqual({tag for tag, is_parked in zip(segments.tag, segments.is_parked) if is_parked}, {"weights/critic"})
        with tidemark.read(recordings.native("graphs")) as recording:
            self.assertEqual(set(recording.segments.tag), {""})
            self.assertFalse(any(recording.segments.is_parked))

    def test_settings_and_annotations_are_those_of_the_pickle(self):
        for path, snapshot in recordings.small():
            with self.subTest(path), tidemark.read(path) as recording:
                self.assertEqual(recording.settings, snapshot.get("allocator_settings"))
                self.assertEqual(recording.annotations, snapshot.get("external_annotations"))

    def test_formats_agree(self):
        for name in ("graphs", "resnet_stacks", "pools", "events"):
            with self.subTest(name):
                one, other = tidemark.read(recordings.native(name)), tidemark.read(recordings.as_pickle(name))
                for left, right in zip(one.devices, other.devices):
                    self.assertEqual(list(left.entries), list(right.entries))
                self.assertEqual(one.settings, other.settings)

    def test_rows(self):
        entries = tidemark.read(recordings.native("graphs")).devices[0].entries
        rows = list(entries)
        self.assertEqual(len(rows), len(entries))
        self.assertEqual(rows[3:9:2], entries[3:9:2])
        self.assertEqual(rows[-1], entries[-1])
        self.assertEqual(rows[5].size, entries.size[5])
        self.assertIs(type(rows[5].action), tidemark.Action)
        for index in (len(entries), -len(entries) - 1):
            with self.assertRaises(IndexError):
                entries[index]

    def test_unknown_numbers_are_index_errors(self):
        recording = tidemark.read(recordings.native("graphs"))
        for ask in (recording.stack, recording.note, recording.pool):
            for number in (-1, 1 << 31, 1 << 64):
                with self.assertRaises(IndexError):
                    ask(number)
        self.assertEqual(recording.stack(0), ())
        self.assertEqual(recording.note(0), ("", "", None))
        self.assertEqual(recording.pool(0), (0, 0))


class Memory(unittest.TestCase):
    def test_columns_are_the_library_s_own_memory(self):
        recording = tidemark.read(recordings.native("graphs"))
        trace, count = recording._trace, ctypes.c_size_t()
        first = ctypes.cast(trace.library.tide_trace_entries(trace.pointer, 0, ctypes.byref(count)), ctypes.c_void_p).value
        formats = {1: "B", 2: "H", 4: "I", 8: "Q"}
        fields = {"size": "bytes", "time": "time_ns"}
        for name in NAMES:
            with self.subTest(name):
                field = getattr(abi.TraceEntry, fields.get(name, name))
                self.assertEqual(buffer_of(getattr(recording.devices[0].entries, name)),
                                 (first + field.offset, 48, formats[field.size], True))

    def test_columns_cannot_be_written(self):
        entries = tidemark.read(recordings.native("graphs")).devices[0].entries
        for name in NAMES:
            with self.assertRaises(TypeError):
                getattr(entries, name)[0] = 1

    def test_close_frees_at_once_if_nobody_uses_it(self):
        with tidemark.read(recordings.native("graphs")) as recording:
            recording.peak()
            recording.timeline(10)
            seen = freed(recording)
            self.assertEqual(seen, [])
        self.assertEqual(seen, [True])
        recording.close()
        for use in (lambda: recording.devices, lambda: recording.stack(0), recording.peak, recording.report):
            with self.assertRaisesRegex(ValueError, "closed"):
                use()

    def test_whoever_has_a_column_keeps_it_alive(self):
        recording = tidemark.read(recordings.native("graphs"))
        seen, wanted = freed(recording), recording.devices[0].entries.size.tolist()
        part = recording.devices[0].entries.size[10:20]
        whole = memoryview(part)  # as another library takes it
        recording.close()
        del part, recording
        gc.collect()
        self.assertEqual(seen, [])
        self.assertEqual(whole.tolist(), wanted[10:20])
        whole.release()
        del whole
        self.assertEqual(seen, [True])

    def test_a_recording_without_entries_has_empty_columns(self):
        data = b'{"segments": [], "device_traces": [[]]}'
        entries = tidemark.read(data).devices[0].entries
        self.assertEqual([getattr(entries, name).tolist() for name in NAMES], [[]] * len(NAMES))
        self.assertEqual(list(entries), [])

    def test_numpy_takes_columns_without_copies(self):
        if with_numpy() is None:
            self.skipTest("NumPy is missing (python3-numpy)")
        if os.environ.get("LD_PRELOAD"):
            self.skipTest("NumPy is not loaded under a sanitizer")
        done = subprocess.run([with_numpy(), "-c", WITH_NUMPY, recordings.native("graphs")], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(recordings.TREE / "pytorch")}, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
