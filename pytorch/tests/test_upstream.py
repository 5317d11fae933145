# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""How PyTorch's own tests are run, with a fake test file that passes, fails, skips and crashes."""
import contextlib
import io
import pathlib
import tempfile
import time
import unittest

import unit
import upstream

TESTS = """
import os, unittest
class TestCuda(unittest.TestCase):
    def test_memory_fine(self): pass
    def test_memory_bad(self): self.assertEqual(1, 2)
    def test_memory_fine_alone(self): self.assertNotIn("left", globals())
    def test_memory_before(self): globals()["left"] = 1
    def test_memory_skipped(self): self.skipTest("why not")
    def test_streams(self): self.fail("not about memory")
class TestCudaMallocAsync(unittest.TestCase):
    def test_crash(self): os._exit(7)
    def test_temperature(self): self.fail("not about memory")
class TestBlockStateAbsorption(unittest.TestCase): pass
class TestMemPool(unittest.TestCase):
    def test_after(self): pass
class TestCachingHostAllocatorCudaGraph(unittest.TestCase): pass
class TestFXMemoryProfiler(unittest.TestCase): pass
"""


def job(folder, seconds=100.0):
    path = pathlib.Path(folder) / "test_cuda.py"
    path.write_text(TESTS)
    return upstream.Job(str(path), "native", folder + "/out", [], time.monotonic() + seconds, 5)


class Upstream(unittest.TestCase):
    @unit.slow
    def test_every_test_comes_to_something(self):
        with tempfile.TemporaryDirectory() as folder:
            states = upstream.run_all(job(folder))
        self.assertEqual({name: line["state"] for name, line in states.items()}, {
            "TestCuda.test_memory_fine": "passed", "TestCuda.test_memory_bad": "failed",
            "TestCuda.test_memory_before": "passed", "TestCuda.test_memory_fine_alone": "passed",
            "TestCuda.test_memory_skipped": "skipped", "TestCudaMallocAsync.test_crash": "failed",
            "TestMemPool.test_after": "passed"})
        self.assertIn("status 7", states["TestCudaMallocAsync.test_crash"]["text"])
        self.assertTrue(states["TestCuda.test_memory_fine_alone"]["alone"])

    def test_what_is_in_the_files_is_not_run_again(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("TestCuda.test_memory_bad", "TestCudaMallocAsync.test_crash"):
                upstream.write(folder + "/out-native.jsonl", {"test": name, "state": "passed", "text": ""})
            upstream.write(folder + "/out-native.jsonl", {"test": "", "state": "end"})
            states = upstream.run_all(job(folder))
        self.assertEqual({line["state"] for line in states.values()}, {"passed"})
        self.assertEqual(len(states), 2)

    def test_nothing_is_run_without_time(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(upstream.run_all(job(folder, seconds=-1.0)), {})

    def test_only_what_passes_natively_counts(self):
        known = "TestCuda.test_host_memory_stats"
        native = {name: {"state": "passed", "text": ""} for name in ("a", "c", "d", known)}
        native["b"] = {"state": "failed", "text": ""}
        bad = {"state": "failed", "alone": True, "text": "x\nAssertionError: not\n\nequal\n\nTo execute this test\nmore"}
        ours = {"a": {"state": "passed", "text": ""}, "b": bad, "c": bad, known: {"state": "failed", "text": "last\n"}}
        words = io.StringIO()
        with contextlib.redirect_stdout(words):
            self.assertEqual(upstream.compare(native, ours, "tide"), 2)
        self.assertIn("of 4 tests that pass natively 1 pass, 2 fail, 1 were not run", words.getvalue())
        self.assertIn("c: failed: AssertionError: not equal\n", words.getvalue())
        self.assertIn("failed, not repeated alone: last (on purpose: expects pinned memory in powers of two)", words.getvalue())
