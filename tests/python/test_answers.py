# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Memory over time, peaks and reports, compared with tests/oracle and with what the command prints."""
import html.parser
import json
import os
import pathlib
import stat
import tempfile
import unittest
from unittest import mock

import command  # of tests/oracle
import recordings
import snapshot as reference
import tidemark
from tidemark import command as runner
from tidemark import sizes

QUANTITIES = reference.NAMES
HOSTILE = "</script><img src=x onerror=alert(1)>&\"'"


def whole(values):
    """The least, the most and the last of a list."""
    return min(values), max(values), values[-1]


def hostile_recording():
    """Every text is markup."""
    frames = [{"filename": HOSTILE, "line": 3, "name": HOSTILE}]
    entries = [{"action": "segment_alloc", "addr": 1 << 30, "size": 2 << 20, "stream": 0, "time_us": 1, "frames": frames},
               {"action": "alloc", "addr": 1 << 30, "size": 4096, "stream": 0, "time_us": 2, "frames": frames}]
    return json.dumps({"device_traces": [entries], "segments": [], "allocator_settings": {HOSTILE: HOSTILE},
                       "external_annotations": [HOSTILE]}).encode()


class Timelines(unittest.TestCase):
    def expect(self, got, bucket, values):
        for name in QUANTITIES:
            column = getattr(got, name)
            self.assertEqual((column.least[bucket], column.most[bucket], column.last[bucket]), whole(values[name]),
                             f"{name} in bucket {bucket}")

    def test_by_entry_has_the_values_after_each_entry(self):
        for path, snapshot in recordings.everything():
            run = reference.Run(snapshot)
            if not run.are_sizes_known or not run.entries or not run.is_from_start:
                continue
            with self.subTest(path), tidemark.read(path) as recording:
                count = len(run.entries)
                for points in (1, 13, 200):
                    got = recording.timeline(points, "entry", device=0)
                    for bucket in range(points):
                        first, end = count * bucket // points, count * (bucket + 1) // points
                        self.assertEqual((got.begin[bucket], got.first[bucket], got.count[bucket]), (first, first, end - first))
                        before = [getattr(run.before, name) for name in QUANTITIES]
                        values = {name: ([start] if bucket == 0 or first == end else []) for name, start in zip(QUANTITIES, before)}
                        if first == end and first > 0:
                            values = {name: [run.series[name][first - 1]] for name in QUANTITIES}
                        self.expect(got, bucket, {name: values[name] + run.series[name][first:end] for name in QUANTITIES})

    def test_by_time_has_the_values_at_each_time(self):
        for path, snapshot in recordings.small():
            run = reference.Run(snapshot)
            times = [1000 * entry.get("time_us", 0) for entry in run.entries]
            if not run.are_sizes_known or not run.entries or not run.is_from_start or times != sorted(times):
                continue
            with self.subTest(path), tidemark.read(path) as recording:
                got, points = recording.timeline(37, "time", device=0), 37
                at = 0
                for bucket in range(points):
                    begin = times[0] + (times[-1] - times[0]) * bucket // points
                    end = times[0] + (times[-1] - times[0]) * (bucket + 1) // points
                    self.assertEqual(got.begin[bucket], begin)
                    last = at
                    while last < len(times) and (times[last] < end or bucket + 1 == points):
                        last += 1
                    starts_late = bucket == 0 or at == last or times[at] > begin
                    values = {name: ([run.series[name][at - 1] if at else getattr(run.before, name)] if starts_late else [])
                              + run.series[name][at:last] for name in QUANTITIES}
                    self.assertEqual(got.count[bucket], last - at)
                    self.expect(got, bucket, values)
                    at = last

    def test_wrong_arguments(self):
        recording = tidemark.read(recordings.native("pools"))
        for arguments in ({"points": 0}, {"points": -1}, {"points": 1 << 32}, {"x": "step"}):
            with self.subTest(arguments), self.assertRaises(ValueError):
                recording.timeline(**arguments)
        with self.assertRaises(TypeError):
            recording.timeline(points=1.5)
        for device in (-1, 1):
            with self.assertRaises(IndexError):
                recording.timeline(device=device)
        with self.assertRaises(ValueError):
            recording.peak("largest")


class Peaks(unittest.TestCase):
    def test_blocks_at_each_peak(self):
        for path, snapshot in recordings.everything():
            run = reference.Run(snapshot)
            if not run.are_sizes_known or not run.entries:
                continue
            with self.subTest(path), tidemark.read(path) as recording:
                for name in QUANTITIES:
                    peak, wanted = recording.peak(name, device=0), run.peaks[name]
                    self.assertEqual((peak.bytes, peak.entry, getattr(peak, name)), (wanted.bytes, wanted.entry, wanted.bytes), name)
                peak = recording.peak(device=0)
                blocks = reference.blocks_at(snapshot, 0, peak.entry)
                self.assertEqual(sorted((block.address, block.size, block.requested, block.made_at) for block in peak.blocks),
                                 sorted((block.address, block.size, block.requested, block.made) for block in blocks))
                self.assertEqual(sum(site.bytes for site in peak.sites), peak.requested)
                self.assertEqual(sum(site.blocks for site in peak.sites), len(blocks))
                for block in peak.blocks:
                    if block.made_at is not None:
                        self.assertEqual(recording.stack(block.stack), reference.stack_of(run.entries[block.made_at]))

    def test_call_sites_are_those_of_the_command(self):
        for path in (recordings.native("resnet_stacks"), recordings.as_pickle("resnet_stacks")):
            peak, said = tidemark.read(path).peak(), command.ask("report", path)
            self.assertEqual([(str(site), site.bytes, site.blocks) for site in peak.sites],
                             [(row["call_site"], row["bytes"], row["blocks"]) for row in said["call_sites"]])
            self.assertEqual([(hex(block.address), block.requested) for block in peak.blocks[:10]],
                             [(row["address"], row["requested"]) for row in said["largest_blocks"]])

    def test_text(self):
        text = str(tidemark.read(recordings.native("resnet_stacks")).peak())
        self.assertRegex(text, r"^device 0: the peak of allocated memory is 2\.31 GiB, after entry 1277\n +2\.22 GiB +7  workloads")


class Reports(unittest.TestCase):
    def test_are_what_the_command_prints(self):
        for path, snapshot in recordings.small():
            with self.subTest(path), tidemark.read(path) as recording:
                said = command.ask("report", path)
                del said["status"]
                self.assertEqual(recording.report(), said)

    def test_of_a_device_that_is_chosen(self):
        snapshot = command.generated(1)
        snapshot["device_traces"] = [[], snapshot["device_traces"][0]]
        for segment in snapshot["segments"]:
            segment["device"] = 1
        recording = tidemark.read(command.dumped(snapshot))
        self.assertEqual(recording.report(), recording.report(1))
        self.assertEqual(recording.report()["device"], 1)
        self.assertEqual(recording.peak().device, 1)
        self.assertEqual(recording.timeline(5).device, 1)
        self.assertEqual(recording.devices[0].report()["device"], 0)
        with self.assertRaises(IndexError):
            recording.report(2)

    def test_the_device_that_ran_out_first_is_the_usual_one(self):
        oom = {"action": "oom", "device_free": 0, "size": 512, "stream": 0, "frames": []}
        alloc = {"action": "alloc", "addr": 1 << 30, "size": 512, "stream": 0, "time_us": 1, "frames": []}
        traces = [[alloc], [alloc, {**oom, "time_us": 9}], [alloc, {**oom, "time_us": 5}], [alloc]]
        for lists, wanted in ((traces, 2), (traces[:2], 1), ([[], [alloc]], 1), ([[]], 0), ([[alloc], [alloc]], 0)):
            data = json.dumps({"device_traces": lists, "segments": []}).encode()
            recording = tidemark.read(data)
            self.assertEqual(recording.peak().device, wanted)
            self.assertEqual(recording.report()["device"], wanted)

    def test_text_has_the_finding_and_the_sites(self):
        said = tidemark.read(recordings.native("resnet_stacks")).report()
        text = str(said)
        for words in (said["finding"], said["advice"], "peak reserved            3.29 GiB", "2.22 GiB  workloads.py:121"):
            self.assertIn(words, text)

    def test_html_escapes_what_the_file_says(self):
        said = tidemark.read(hostile_recording()).report()
        said["finding"] = HOSTILE
        self.assertIn(HOSTILE, str(said))
        tags = []
        parser = html.parser.HTMLParser()
        parser.handle_starttag = lambda tag, attributes: tags.append((tag, *attributes))
        parser.feed(said._repr_html_())
        self.assertEqual(set(tags), {("p",), ("table",), ("tr",), ("td",), ("td", ("style", "text-align:left"))})
        self.assertNotIn("onerror=alert(1)>&\"", said._repr_html_())

    def test_without_the_command_says_how_to_get_it(self):
        with tempfile.TemporaryDirectory() as folder:
            link = pathlib.Path(folder) / "inside" / "lib" / "libtidemark.so"
            link.parent.mkdir(parents=True)
            link.write_bytes(b"")
            with mock.patch.dict(os.environ, TIDEMARK_LIB=str(link)):
                with self.assertRaisesRegex(tidemark.TidemarkError, "needs the tidemark command.*dev install"):
                    runner.find()
                program = link.parents[1] / "bin" / "tidemark"
                program.parent.mkdir()
                program.touch(mode=stat.S_IRWXU)
                self.assertEqual(runner.find(), program)

    def test_the_command_s_own_error_is_passed_on(self):
        recording = tidemark.read(recordings.native("pools"))
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "tidemark"
            program.write_text("#!/bin/sh\necho out of patience >&2\nexit 2\n")
            program.chmod(0o755)
            with mock.patch.object(runner, "find", lambda: program):
                with self.assertRaisesRegex(tidemark.TidemarkError, "out of patience"):
                    recording.report()


class Sizes(unittest.TestCase):
    def test_are_those_of_the_command(self):
        for count, text in ((0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (34232, "33.43 KiB"), (2**20 - 1, "1.00 MiB"),
                            (1046518272, "998.04 MiB"), (2480891392, "2.31 GiB"), (2**50, "1024.00 TiB")):
            self.assertEqual(sizes.size_text(count), text)


if __name__ == "__main__":
    unittest.main()
