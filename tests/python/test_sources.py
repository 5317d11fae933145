# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Where recordings come from: paths, open files, bytes, compressed ones; and what happens to wrong ones."""
import bz2
import contextlib
import doctest
import gzip
import io
import itertools
import lzma
import os
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile
import threading
import types
import unittest
from unittest import mock

import harness
import recordings
import tidemark
from tidemark import sources

PLAIN = pathlib.Path(recordings.as_pickle("pools")).read_bytes()
WANTED = list(tidemark.read(PLAIN).devices[0].entries)


def xz_of(data):
    return lzma.compress(data, preset=0)


class Kinds(unittest.TestCase):
    def expect(self, source, **more):
        with tidemark.read(source, **more) as recording:
            self.assertEqual(list(recording.devices[0].entries), WANTED)
            return recording

    def test_paths_files_and_bytes(self):
        path = recordings.as_pickle("pools")
        for source in (path, pathlib.Path(path), PLAIN, bytearray(PLAIN), memoryview(PLAIN), io.BytesIO(PLAIN)):
            self.expect(source)
        with open(path, "rb") as file:
            self.assertEqual(self.expect(file).name, path)
            self.assertFalse(file.closed)
        self.assertEqual(self.expect(pathlib.Path(path)).name, path)

    def test_a_pipe(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "pipe")
            os.mkfifo(path)
            writer = threading.Thread(target=lambda: pathlib.Path(path).write_bytes(xz_of(PLAIN)))
            writer.start()
            self.expect(path)
            writer.join()

    def test_a_file_that_gives_one_byte_at_a_time(self):
        class Slow(io.BytesIO):
            def read(self, size=-1):
                return super().read(min(size, 1) if size > 0 else 1)

        for data in (PLAIN, gzip.compress(PLAIN), xz_of(PLAIN)):
            self.expect(Slow(data))

    def test_compressed(self):
        half = len(PLAIN) // 2
        parts = PLAIN[:half], PLAIN[half:]
        for data in (gzip.compress(PLAIN), xz_of(PLAIN), b"".join(map(gzip.compress, parts)), b"".join(map(xz_of, parts)),
                     xz_of(PLAIN) + bytes(8), xz_of(parts[0]) + bytes(70000) + xz_of(parts[1]), xz_of(b"") + xz_of(PLAIN),
                     lzma.compress(PLAIN, check=lzma.CHECK_NONE)):
            self.expect(data)

    def test_zstd_by_whichever_module_there_is(self):
        """With modules that decode nothing."""
        magic = b"\x28\xb5\x2f\xfd"
        for name in ("compression.zstd", "zstandard"):
            with self.subTest(name):
                made = types.ModuleType(name)
                opener = lambda file, **_: io.BytesIO(file.read()[len(magic):])  # noqa: E731
                made.ZstdFile = opener
                made.ZstdDecompressor = lambda: types.SimpleNamespace(stream_reader=opener)
                absent = {"compression": None, "compression.zstd": None, "zstandard": None}
                with mock.patch.dict(sys.modules, {**absent, **({"compression": types.ModuleType("compression")}
                                                                if "." in name else {}), name: made}):
                    self.expect(magic + PLAIN)
        with mock.patch.dict(sys.modules, absent), self.assertRaisesRegex(tidemark.TidemarkError, "install.*zstandard"):
            tidemark.read(magic + PLAIN)

    def test_real_zstd(self):
        for name in ("compression.zstd", "zstandard"):
            try:
                module = __import__(name, fromlist=["compress"])
            except ImportError:
                continue
            for data in (module.compress(PLAIN), module.compress(PLAIN[:100]) + module.compress(PLAIN[100:])):
                self.expect(data)
            with self.assertRaises(tidemark.TidemarkError):
                tidemark.read(module.compress(PLAIN)[:-9])
            return
        self.skipTest("neither compression.zstd nor zstandard can be imported")


class Wrong(unittest.TestCase):
    def refused(self, data, words, status):
        with self.assertRaisesRegex(tidemark.TidemarkError, words) as caught:
            tidemark.read(data)
        self.assertEqual(caught.exception.status, status)

    def test_missing_files_are_python_s_own_errors(self):
        with self.assertRaises(FileNotFoundError):
            tidemark.read("/no/such/file")
        with self.assertRaises(OSError):
            tidemark.read("/")

    def test_damaged_data_has_the_library_s_text(self):
        self.refused(b"", "the data: ", "TIDE_ERR_FORMAT")
        self.refused(b"no recording", "the data: ", "TIDE_ERR_FORMAT")
        self.refused(PLAIN[:-20], r"byte \d+", "TIDE_ERR_FORMAT")
        self.refused(bz2.compress(PLAIN), "the data: ", "TIDE_ERR_FORMAT")
        with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
            file.write(PLAIN[:100])
            file.flush()
            with self.assertRaisesRegex(tidemark.TidemarkError, f"^{file.name}: "):
                tidemark.read(file.name)

    def test_a_pickle_that_calls_functions_is_refused(self):
        class Calls:
            def __reduce__(self):
                return os.mkdir, ("/never-made",)

        self.refused(pickle.dumps({"segments": [], "device_traces": [], "other": Calls()}, 4), r"byte \d+", "TIDE_ERR_FORMAT")
        self.assertFalse(os.path.exists("/never-made"))

    def test_a_cut_native_file_says_so(self):
        data = pathlib.Path(recordings.native("graphs")).read_bytes()
        cut = tidemark.read(data[: len(data) * 2 // 3])
        self.assertTrue(cut.is_cut)
        self.assertFalse(tidemark.read(data).is_cut)
        self.assertTrue(cut.report()["is_cut"])

    def test_compressed_data_that_is_cut_or_damaged(self):
        for pack, name in ((gzip.compress, "gzip"), (xz_of, "xz")):
            data = pack(PLAIN)
            self.refused(data[:-12], f"the {name} data cannot be decoded", "TIDE_ERR_FORMAT")
            self.refused(data[:40] + bytes(40) + data[80:], f"the {name} data cannot be decoded", "TIDE_ERR_FORMAT")
        self.refused(gzip.compress(PLAIN) + b"garbage", "the gzip data cannot be decoded", "TIDE_ERR_FORMAT")
        self.refused(xz_of(PLAIN) + b"garbage", "the xz data cannot be decoded", "TIDE_ERR_FORMAT")

    def test_what_expands_too_much_is_refused(self):
        blanks = b"[" + b" " * (80 << 20)
        packed = gzip.compress(blanks, 9)
        for data in (packed, xz_of(blanks)):
            self.refused(data, "decompress to more than 67108864; max_unpacked", "TIDE_ERR_LIMIT")
        with self.assertRaisesRegex(tidemark.TidemarkError, "more than 100;"):
            tidemark.read(gzip.compress(PLAIN), max_unpacked=100)
        with self.assertRaises(tidemark.TidemarkError) as caught:
            tidemark.read(packed, max_unpacked=1 << 30)
        self.assertEqual(caught.exception.status, "TIDE_ERR_FORMAT")

    def test_a_limit_on_memory(self):
        with self.assertRaises(tidemark.TidemarkError) as caught:
            tidemark.read(recordings.native("graphs"), memory=10000)
        self.assertEqual(caught.exception.status, "TIDE_ERR_LIMIT")
        for limits in ({"memory": 0}, {"memory": -1}, {"memory": 1 << 64}, {"max_unpacked": 0}):
            with self.assertRaises(ValueError):
                tidemark.read(PLAIN, **limits)

    def test_a_decoder_that_needs_too_much_memory_is_refused(self):
        with mock.patch.object(sources, "XZ_MEMORY", 1 << 16):
            self.refused(lzma.compress(PLAIN, preset=6), "the xz data cannot be decoded.*[Mm]emory", "TIDE_ERR_FORMAT")

    def test_exceptions_of_a_file_are_passed_on(self):
        class Broken(io.BytesIO):
            reads = 0

            def __init__(self, data, error):
                super().__init__(data)
                self.error = error

            def read(self, size=-1):
                self.reads += 1
                if self.reads > 1:
                    raise self.error
                return super().read(100)

        for error in (OSError(5, "Input/output error"), KeyboardInterrupt(), ValueError("odd"), MemoryError()):
            for data in (PLAIN, gzip.compress(PLAIN), xz_of(PLAIN)):
                with self.subTest(error=error), self.assertRaises(type(error)) as caught:
                    tidemark.read(Broken(data, error))
                self.assertIs(caught.exception, error)

    def test_a_file_that_reads_wrongly(self):
        for answer in ("text", None, 5, b"x" * (8 << 20)):
            answers = itertools.chain([b"\x80\x04" + b"}" * 100], itertools.repeat(answer))
            file = types.SimpleNamespace(read=lambda size, answers=answers: next(answers))
            with self.subTest(type(answer)), self.assertRaises((TypeError, ValueError)):
                tidemark.read(file)


def look(recording):
    """Asks a recording for everything but a report."""
    str(recording)
    for name in ("settings", "annotations", "extra"):
        with contextlib.suppress(tidemark.TidemarkError):  # it may be too large
            getattr(recording, name)
    for device in recording.devices[:4]:
        entries = device.entries
        for number in set(entries.stack.tolist()):
            recording.stack(number)
        for number in set(entries.note.tolist()):
            recording.note(number)
        str(device.peak()), device.peak("reserved"), device.timeline(50), device.timeline(50, "entry"), list(entries)
    [recording.pool(number) for number in recording.segments.pool], recording.blocks.state.tolist()


class Hostile(unittest.TestCase):
    def survives(self, data):
        """Is the data a recording? Nothing but an error may come of it otherwise."""
        try:
            recording = tidemark.read(data, memory=1 << 30)
        except tidemark.TidemarkError:
            return False
        look(recording)
        return True

    def test_inputs_that_fuzzing_found(self):
        count = 0
        for name in ("fuzz_pickle", "fuzz_json", "fuzz_native", "fuzz_rmm", "fuzz_minimalloc", "fuzz_codec"):
            for path in sorted((recordings.TREE / "fuzz" / "corpus" / name).iterdir()):
                count += self.survives(path.read_bytes())
        self.assertGreater(count, 20)

    def test_damaged_recordings(self):
        rng = random.Random(7)
        counts = [0, 0]
        for path in (recordings.as_pickle("pools"), recordings.native("pools"), recordings.as_pickle("events")):
            data = pathlib.Path(path).read_bytes()
            for _ in range(harness.scaled(100, 40)):
                wrong = bytearray(data)
                for _ in range(rng.randrange(1, 4)):
                    wrong[rng.randrange(len(wrong))] = rng.randrange(256)
                counts[self.survives(bytes(wrong))] += 1
        self.assertTrue(min(counts) > 10, counts)

    def test_data_that_shares_too_much_is_refused(self):
        nested = []
        for _ in range(40):
            nested = [nested, nested]  # 2**40 parts when it is written out
        recording = tidemark.read(pickle.dumps({"segments": [], "device_traces": [], "other": nested}, 4))
        with self.assertRaisesRegex(tidemark.TidemarkError, "parts"):
            recording.extra


PROCESS = {
    "nothing is imported before it is used": """
import sys, tidemark
assert not {"torch", "numpy", "ctypes", "tidemark.abi"} & set(sys.modules)
assert "read" in dir(tidemark)
tidemark.read
assert "tidemark.torch" not in sys.modules and "torch" not in sys.modules
try: tidemark.no_such_name
except AttributeError: pass
else: sys.exit("no error")
""",
    "a recording may be open at the end of the process": """
import atexit, sys, threading, tidemark
recording = tidemark.read(sys.argv[1])
column = recording.devices[0].entries.size
atexit.register(lambda: column.tolist() == sizes or sys.exit("the memory is gone"))
sizes = column.tolist()
sys.modules["kept"] = recording
threading.Thread(target=recording.peak, daemon=True).start()
""",
    "several threads use one recording": """
import sys, threading, tidemark
recording = tidemark.read(sys.argv[1])
wanted = recording.peak(), recording.timeline(50).reserved.most.tolist()
wrong = []
def work():
    for _ in range(5):
        got = recording.peak(), recording.timeline(50).reserved.most.tolist()
        wrong.extend([] if got == wanted else [got])
        for number in recording.devices[0].entries.stack[:200]: recording.stack(number)
threads = [threading.Thread(target=work) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert not wrong
""",
    "one thread closes what others use": """
import sys, threading, tidemark
for _ in range(20):
    recording = tidemark.read(sys.argv[1])
    wrong = []
    def work():
        try:
            while True: recording.peak()
        except ValueError: pass
        except BaseException as error: wrong.append(error)
    threads = [threading.Thread(target=work) for _ in range(3)]
    [thread.start() for thread in threads]
    recording.close()
    [thread.join() for thread in threads]
    assert not wrong, wrong
""",
    "a forked child has the recording too": """
import os, sys, tidemark
recording = tidemark.read(sys.argv[1])
wanted = recording.peak()
child = os.fork()
if child == 0:
    is_same = recording.peak() == wanted
    recording.close()
    os._exit(0 if is_same else 1)
assert os.waitpid(child, 0)[1] == 0 and recording.peak() == wanted
""",
    "memory is given back": """
import resource, sys, tidemark
def most(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
def use(count):
    for _ in range(count):
        recording = tidemark.read(sys.argv[1])
        recording.peak(), recording.timeline(100)
        try: tidemark.read(b"damaged")
        except tidemark.TidemarkError: pass
use(20)
before = most()
use(100)
assert "libasan" in __import__("os").environ.get("LD_PRELOAD", "") or most() - before < 8192, most() - before
""",
}


class Processes(unittest.TestCase):
    def test_processes(self):
        environment = {**os.environ, "PYTHONPATH": str(recordings.TREE / "pytorch")}
        for name, code in harness.some(PROCESS.items(), 3):
            with self.subTest(name):
                done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, recordings.native("resnet_stacks")],
                                      capture_output=True, text=True, env=environment, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_library_that_is_missing_old_or_another(self):
        with tempfile.TemporaryDirectory() as folder:
            wrong = os.path.join(folder, "libtidemark.so")
            pathlib.Path(wrong).write_bytes(b"not a library")
            code = "import tidemark\ntry: tidemark.read(b'')\nexcept tidemark.TidemarkError as error: print(error)"
            for path, words in (("/no/library.so", "does not exist"), (wrong, "cannot be used"),
                                (None, "is version 0.1.0, but the Python package is version 7.0.0")):
                change = "" if path else "import tidemark; tidemark.__version__ = '7.0.0'\n"
                environment = {**os.environ, "PYTHONPATH": str(recordings.TREE / "pytorch"),
                               "TIDEMARK_LIB": path or os.environ["TIDEMARK_LIB"]}
                done = subprocess.run([sys.executable, "-c", change + code], capture_output=True, text=True, env=environment,
                                      check=False)
                self.assertIn(words, done.stdout, done.stderr)


class Documentation(unittest.TestCase):
    def test_the_example_prints_what_the_page_says(self):
        before = os.getcwd()
        os.chdir(recordings.TREE)
        self.addCleanup(os.chdir, before)
        result = doctest.testfile(str(recordings.TREE / "docs" / "python.md"), module_relative=False,
                                  optionflags=doctest.NORMALIZE_WHITESPACE)
        self.assertGreater(result.attempted, 10)
        self.assertEqual(result.failed, 0)


if __name__ == "__main__":
    unittest.main()
