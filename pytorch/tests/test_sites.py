# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Live memory by call site: whose line it is, the text of an error, and warnings about growth."""
import os
import pathlib
import sys
import unittest
import warnings
from unittest import mock

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent)]
from tidemark.torch import sites

MIB = 1 << 20
LIBRARY = os.path.dirname(os.__file__)


def frame(filename, line=1, name="f"):
    return {"filename": filename, "line": line, "name": name}


def block(mib, *frames, state="active_allocated"):
    return {"state": state, "requested_size": mib * MIB, "size": 2 * mib * MIB, "frames": list(frames)}


def snapshot(*blocks, device=0):
    return {"segments": [{"device": device, "blocks": list(blocks)}]}


class FakeTorch(unittest.TestCase):
    def setUp(self):
        self.torch = mock.MagicMock(__version__="2.11.0+cu130", __file__="/opt/site-packages/torch/__init__.py")
        self.torch._C._cuda_isHistoryEnabled.return_value = False
        patch = mock.patch.dict(sys.modules, torch=self.torch)
        patch.start()
        self.addCleanup(patch.stop)


class Sites(FakeTorch):
    def test_the_innermost_line_of_the_user(self):
        rows = [
            ([frame("/opt/site-packages/torch/nn/linear.py"), frame("/home/me/train.py", 7, "step"),
              frame("/home/me/main.py")], "/home/me/train.py:7 in step"),
            ([frame("??", 0, "at::empty"), frame("/home/me/train.py", 8, "step")], "/home/me/train.py:8 in step"),
            ([frame("/opt/site-packages/transformers/llama.py", 9, "forward"), frame("/home/me/train.py")],
             "/opt/site-packages/transformers/llama.py:9 in forward"),
            ([frame(LIBRARY + "/contextlib.py"), frame("/home/me/train.py", 5)], "/home/me/train.py:5 in f"),
            ([frame(LIBRARY + "/site-packages/other/x.py", 4), frame("/home/me/train.py")],
             LIBRARY + "/site-packages/other/x.py:4 in f"),
            ([frame("/opt/site-packages/torch/a.py", 3), frame(LIBRARY + "/b.py")], "/opt/site-packages/torch/a.py:3 in f"),
            ([frame("??", 0, "main")], sites.UNKNOWN),
            ([], sites.UNKNOWN),
        ]
        for frames, expected in rows:
            with self.subTest(expected):
                self.assertEqual(sites.site_of(frames, sites.machinery()), expected)

    def test_only_live_blocks_of_the_device_count(self):
        mine = frame("/home/me/a.py")
        taken = {"segments": snapshot(block(1, mine), block(2, mine), block(4, mine, state="inactive"),
                                      block(8, mine, state="active_pending_free"))["segments"]
                 + snapshot(block(16, mine), device=1)["segments"]}
        self.assertEqual(sites.live(taken, 0), {"/home/me/a.py:1 in f": sites.Holding(3 * MIB, 2)})
        self.assertEqual(sites.live(taken), {"/home/me/a.py:1 in f": sites.Holding(19 * MIB, 3)})


class Text(FakeTorch):
    def test_nothing_without_stacks(self):
        self.assertEqual(sites.holders_text(snapshot(block(5)), 0), "")
        self.assertEqual(sites.holders_text(snapshot(), 0), "")

    def test_the_largest_first_and_the_rest_summed(self):
        blocks = [block(10 - n, frame(f"/home/me/{n}.py")) for n in range(8)] + [block(7, frame("/home/me/7.py")), block(50)]
        lines = sites.holders_text(snapshot(*blocks), 0).splitlines()
        self.assertEqual(lines[1:], [
            "  10.0 MiB in 1 block(s): /home/me/0.py:1 in f", "  10.0 MiB in 2 block(s): /home/me/7.py:1 in f",
            "  9.0 MiB in 1 block(s): /home/me/1.py:1 in f", "  8.0 MiB in 1 block(s): /home/me/2.py:1 in f",
            "  7.0 MiB in 1 block(s): /home/me/3.py:1 in f", "  15.0 MiB in 3 block(s): 3 other lines",
            "  50.0 MiB in 1 block(s): allocated before stacks were recorded"])


class Watching(FakeTorch):
    def watch(self, **options):
        return sites.Watch(self.torch, **{"steps": 3, "every": 1, "least_bytes": MIB, **options})

    def run_steps(self, watch, sizes):
        """Live MiB of each site after each step; returns the warnings."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for step in sizes:
                blocks = [block(mib, frame(f"/home/me/{name}.py")) for name, mib in step.items()]
                self.torch._C._cuda_memorySnapshot.return_value = snapshot(*blocks)
                watch.step()
        self.assertTrue(all(each.category is sites.MemoryGrowthWarning for each in caught))
        return [str(each.message) for each in caught]

    def test_steady_growth_is_reported_with_its_slope(self):
        said = self.run_steps(self.watch(), [{"a": 10 + 2 * n, "b": 5, "c": 9 - n} for n in range(4)])
        self.assertEqual(len(said), 1)
        for part in ("/home/me/a.py:1 in f", "last 3 steps", "+2.00 MiB a step", "now 16.0 MiB"):
            self.assertIn(part, said[0])

    def test_growth_that_pauses_or_returns_is_not(self):
        for series in ([1, 2, 3, 3, 4, 5], [1, 2, 3, 1, 2, 3], [5, 5, 5, 5, 5, 5]):
            with self.subTest(series):
                self.assertEqual(self.run_steps(self.watch(), [{"a": n} for n in series]), [])

    def test_a_site_that_vanishes_begins_anew(self):
        self.assertEqual(self.run_steps(self.watch(), [{"a": 1}, {"a": 2}, {}, {"a": 3}, {"a": 4}, {"a": 5}]), [])

    def test_it_warns_again_only_when_the_memory_has_doubled(self):
        said = self.run_steps(self.watch(), [{"a": 10 + n} for n in range(20)])
        self.assertEqual([text.split("now ")[1] for text in said], ["13.0 MiB", "26.0 MiB"])

    def test_little_growth_does_not_count(self):
        self.assertEqual(self.run_steps(self.watch(least_bytes=4 * MIB), [{"a": n} for n in range(1, 5)]), [])
        self.assertEqual(len(self.run_steps(self.watch(least_bytes=4 * MIB), [{"a": 2 * n} for n in range(1, 5)])), 1)

    def test_every_second_step_is_looked_at(self):
        said = self.run_steps(self.watch(every=2), [{"a": n} for n in range(1, 9)])
        self.assertEqual(self.torch._C._cuda_memorySnapshot.call_count, 4)
        self.assertIn("last 6 steps", said[0])
        self.assertIn("+1.00 MiB a step", said[0])

    def test_stacks_are_recorded_only_if_nobody_records_them(self):
        record = self.torch.cuda.memory._record_memory_history
        with self.watch():
            self.assertEqual(record.call_args.kwargs["enabled"], "state")
        self.assertEqual(record.call_args.kwargs, {"enabled": None})
        record.reset_mock()
        self.torch._C._cuda_isHistoryEnabled.return_value = True
        with self.watch():
            pass
        record.assert_not_called()

    def test_wrong_arguments(self):
        for wrong in ({"steps": 1}, {"every": 0}, {"least_bytes": 0}):
            with self.assertRaises(ValueError):
                self.watch(**wrong)


if __name__ == "__main__":
    unittest.main()
