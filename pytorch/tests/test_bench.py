# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""The benchmark's own logic: the order of runs, going on where it stopped, bisection, tables."""
import importlib.util
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

BENCH = pathlib.Path(__file__).resolve().parent.parent / "bench"


def load():
    spec = importlib.util.spec_from_file_location("torch_bench", BENCH / "run.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["torch_bench"] = module
    spec.loader.exec_module(module)
    return module


bench = load()


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = str(pathlib.Path(folder.name) / "out.jsonl")
        silence = mock.patch("builtins.print")
        silence.start()
        self.addCleanup(silence.stop)

    def make(self, needed=0):
        """A bench whose runs are made up: out of memory below `needed` bytes."""
        made = []

        def execute(job):
            made.append(job)
            is_short = job.get("limit") is not None and job["limit"] < needed
            return {**job, "is_out_of_memory": is_short, "median_ms": 1.0, "reserved": 200 * bench.MIB,
                    "demand": 100 * bench.MIB, "losses": ["0x1"]}
        patch = mock.patch.object(bench, "execute", execute)
        patch.start()
        self.addCleanup(patch.stop)
        return bench.Bench(self.path, 1e6, "abc"), made

    def test_allocators_take_turns(self):
        jobs = list(bench.measure_jobs(["streams"], 2))
        self.assertEqual([job["allocator"] for job in jobs], ["demand", *bench.ALLOCATORS, *bench.ALLOCATORS])
        self.assertEqual(len({bench.key(job) for job in jobs}), len(jobs))

    def test_two_workloads_have_three_seeds(self):
        seeds = {workload: {job["seed"] for job in bench.measure_jobs([workload], 1)} for workload in bench.WORKLOADS}
        self.assertEqual(sorted(name for name, found in seeds.items() if found == {0, 1, 2}), sorted(bench.THREE_SEEDS))
        self.assertEqual(len(seeds), 8)

    def test_goes_on_where_it_stopped(self):
        runner, made = self.make()
        jobs = list(bench.measure_jobs(["streams"], 1))
        for job in jobs[:3]:
            runner.run(job)
        again, _ = self.make()
        for job in jobs:
            again.run(job)
        self.assertEqual(len(made), 3)
        self.assertEqual(len(again.results), len(jobs))
        self.assertEqual(len(pathlib.Path(self.path).read_text().splitlines()), len(jobs))

    def test_failed_runs_are_made_again(self):
        runner, _ = self.make()
        job = next(bench.measure_jobs(["streams"], 1))
        runner.results[bench.key(job)] = {**job, "error": "no end"}
        self.assertNotIn("error", runner.run(job))

    def test_nothing_begins_late(self):
        runner, made = self.make()
        runner.deadline = 0
        self.assertIsNone(runner.run(next(bench.measure_jobs(["streams"], 1))))
        self.assertEqual(made, [])
        self.assertTrue(runner.is_late)

    def test_limit_is_found_to_two_percent(self):
        needed = 137 * bench.MIB
        runner, _ = self.make(needed)
        found = bench.least_limit(runner, "train_varlen", "tide", 100 * bench.MIB, 300 * bench.MIB)
        self.assertGreaterEqual(found, needed)
        self.assertLessEqual(found, needed * 1.03)


class Tables(unittest.TestCase):
    def test_merged_rows(self):
        base = {"workload": "streams", "seed": 0, "repeat": 0}
        ours = {**base, "mode": "measure", "allocator": "tide"}
        results = [
            {**base, "mode": "measure", "allocator": "demand", "median_ms": 9.0, "demand": 98 * bench.MIB},
            {**ours, "median_ms": 10.0, "reserved": 100 * bench.MIB},
            {**ours, "median_ms": 10.2, "reserved": 99 * bench.MIB, "repeat": 1},
            {**base, "mode": "losses", "allocator": "native", "losses": ["0x1"]},
            {**base, "mode": "losses", "allocator": "native", "losses": ["0x1"], "repeat": 1},
            {**base, "mode": "losses", "allocator": "tide", "losses": ["0x1"]},
            {**base, "mode": "losses", "allocator": "torch", "losses": ["0x2"]},
        ]
        with tempfile.TemporaryDirectory() as folder:
            paths = [str(pathlib.Path(folder) / name) for name in "ab"]
            for path, part in zip(paths, (results[:3], results[3:])):
                pathlib.Path(path).write_text("".join(json.dumps(result) + "\n" for result in part))
            merged = list(bench.read(paths).values())
        row, = bench.measure_rows(merged)
        self.assertEqual(row, ["streams", "0", "98", "-", "-", "-", "-", "100 / 0.980 / 10.1 ms (2.0%)"])
        self.assertEqual(list(bench.losses_rows(merged)), [["streams", "equal", "different", "equal"]])
        self.assertEqual(list(bench.limits_rows(merged)), [])

    def test_demand_is_the_peak_of_rounded_requests(self):
        entries = [{"action": "alloc", "addr": 1, "size": 1}, {"action": "alloc", "addr": 2, "size": 513},
                   {"action": "free_requested", "addr": 1}, {"action": "free_completed", "addr": 1},
                   {"action": "alloc", "addr": 1, "size": 600}]
        torch = mock.Mock()
        torch.cuda.memory._snapshot.return_value = {"device_traces": [entries]}
        self.assertEqual(bench.demand(torch), 2048)
