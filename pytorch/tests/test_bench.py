# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""The benchmark's own logic: the order of runs, going on where it stopped, bisection, tables."""
import importlib.util
import json
import os
import pathlib
import signal
import sys
import tempfile
import time
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
        patch = mock.patch.object(bench.servers, "execute", execute)
        patch.start()
        self.addCleanup(patch.stop)
        return bench.Bench(self.path, 1e6, "abc"), made

    def test_allocators_take_turns(self):
        jobs = list(bench.measure_jobs(["streams"], 2))
        self.assertEqual([job["allocator"] for job in jobs], ["demand", *bench.ALLOCATORS, *bench.ALLOCATORS])
        self.assertEqual(len({bench.key(job) for job in jobs}), len(jobs))

    def test_everything_comes_once_before_anything_comes_again(self):
        repeats = [job["repeat"] for job in bench.measure_jobs(list(bench.WORKLOADS), 3)]
        self.assertEqual(repeats, sorted(repeats))
        self.assertEqual(len(repeats), 12 * 6 + 2 * 8 * 5)

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

    def test_a_first_limit_that_is_too_little_is_raised(self):
        needed = 137 * bench.MIB
        runner, made = self.make(needed)
        found = bench.least_limit(runner, "train_varlen", "async", 50 * bench.MIB, 80 * bench.MIB)
        self.assertGreaterEqual(found, needed)
        self.assertLessEqual(found, needed * 1.03)
        self.assertEqual(made[0]["limit"], 80 * bench.MIB)


class Forks(unittest.TestCase):
    """Runs in forks: what they answer, and what becomes of those that do not."""

    def answer(self, run, seconds=30.0):
        return bench.run_forked(run, seconds)

    def test_the_answer_comes_back(self):
        self.assertEqual(self.answer(lambda: {"seen": "streams" * 20000})["seen"], "streams" * 20000)

    def test_an_exception_is_an_error(self):
        self.assertIn("ZeroDivisionError", self.answer(lambda: {"seen": 1 // 0})["error"])

    def test_a_crash_is_an_error(self):
        self.assertIn("status 9", self.answer(lambda: os.kill(os.getpid(), signal.SIGKILL))["error"])

    def test_a_hang_is_an_error(self):
        self.assertIn("no answer within 0 s", self.answer(lambda: time.sleep(60), 0.2)["error"])


class Serving(unittest.TestCase):
    """The whole way to a run and back, with a module in the place of PyTorch that says its setting."""

    def serve(self, init, names):
        """What is answered for each of these allocators; `init` is what asking for CUDA does."""
        servers = bench.Servers()
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"PYTHONPATH": folder}):
            pathlib.Path(folder, "torch.py").write_text(
                f"import os\nclass cuda:\n  def init(): {init}\n"
                "def use_deterministic_algorithms(on): raise ValueError(os.environ.get('PYTORCH_CUDA_ALLOC_CONF'))\n")
            job = {"mode": "losses", "workload": "streams", "seed": 0, "repeat": 0}
            found = [servers.execute({**job, "allocator": name}) for name in names]
        self.assertEqual(len(servers.processes), len(set(names)))
        for process in servers.processes.values():
            process.stdin.close()
            process.stdout.close()
            self.assertEqual(process.wait(), 0)
        return [answer["error"] for answer in found]

    def test_runs_are_served_by_setting(self):
        native, other, segments, again = self.serve("pass", ["native", "async", "expandable", "native"])
        self.assertIn("ValueError: None", native)
        self.assertIn("ValueError: None", again)
        self.assertIn("ValueError: backend:cudaMallocAsync", other)
        self.assertIn("ValueError: expandable_segments:True", segments)

    def test_without_forks_runs_begin_anew(self):
        native, = self.serve("raise RuntimeError('forked')", ["native"])
        self.assertIn("ValueError: None", native)


class Tables(unittest.TestCase):
    def test_merged_rows(self):
        base = {"workload": "streams", "seed": 0, "repeat": 0}
        ours = {**base, "mode": "measure", "allocator": "tide"}
        results = [
            {**base, "mode": "measure", "allocator": "demand", "median_ms": 9.0, "demand": 98 * bench.MIB},
            {**ours, "median_ms": 10.0, "reserved": 100 * bench.MIB},
            {**ours, "median_ms": 10.2, "reserved": 99 * bench.MIB, "repeat": 1},
            {**ours, "allocator": "native", "median_ms": 10.0, "reserved": 196 * bench.MIB},
            {**ours, "allocator": "native", "median_ms": 10.4, "reserved": 196 * bench.MIB, "repeat": 1},
            {**base, "mode": "losses", "allocator": "native", "losses": ["0x1"]},
            {**base, "mode": "losses", "allocator": "native", "losses": ["0x1"], "repeat": 1},
            {**base, "mode": "losses", "allocator": "tide", "losses": ["0x1"]},
            {**base, "mode": "losses", "allocator": "torch", "losses": ["0x2"]},
        ]
        with tempfile.TemporaryDirectory() as folder:
            paths = [str(pathlib.Path(folder) / name) for name in "ab"]
            for path, part in zip(paths, (results[:5], results[5:])):
                pathlib.Path(path).write_text("".join(json.dumps(result) + "\n" for result in part))
            merged = list(bench.read(paths).values())
        row, = bench.measure_rows(merged)
        self.assertEqual(row, ["streams", "0", "98", "196 / 0.500 / 10.2 ms (4.0%)", "-", "-", "-",
                               "100 / 0.980 / 10.1 ms (2.0%)", "-1.0% (4.0%)"])
        self.assertEqual(list(bench.losses_rows(merged)), [["streams", "equal", "different", "equal"]])
        self.assertEqual(list(bench.limits_rows(merged)), [])

    def test_demand_is_the_peak_of_rounded_requests(self):
        entries = [{"action": "alloc", "addr": 1, "size": 1}, {"action": "alloc", "addr": 2, "size": 513},
                   {"action": "free_requested", "addr": 1}, {"action": "free_completed", "addr": 1},
                   {"action": "alloc", "addr": 1, "size": 600}]
        torch = mock.Mock()
        torch.cuda.memory._snapshot.return_value = {"device_traces": [entries]}
        self.assertEqual(bench.demand(torch), 2048)
