# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""The logic of the benchmark: the order of runs, continuing after a stop, bisection, tables, and processes."""
import importlib.util
import json
import os
import pathlib
import random
import sys
import tempfile
import textwrap
import unittest
from unittest import mock

BENCH = pathlib.Path(__file__).resolve().parent.parent / "bench"


def load(name):
    spec = importlib.util.spec_from_file_location("torch_bench_" + name, BENCH / (name + ".py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


bench = load("run")
work = load("work")
chaos = load("chaos")


class FakeWorkers:
    """Fake processes. They note each request; `answer(name, call)` may replace the answer."""

    def __init__(self, answer=None):
        self.asked, self.begun, self.stopped = [], [], []
        self.answer = answer or (lambda name, call: None)

    def start(self, names):
        self.begun += [name for name in names if name not in self.begun]

    def stop(self, names):
        self.stopped += names

    def ask(self, names, call):
        self.asked.append((tuple(names), call))
        answers = {"begin": {"left": 0}, "step": {"ms": 2.0, "loss": "0x1", "calls": {"map": 1}},
                   "steps": {"ms": 20.0, "loss": "0x1", "calls": {}},
                   "end": {"allocated": 90 * bench.MIB, "reserved": 200 * bench.MIB, "demand": 100 * bench.MIB}}
        return {name: self.answer(name, call) or answers[call["do"]] for name in names}

    def steps(self):
        """Which process was asked for which step."""
        return [(names, call["number"]) for names, call in self.asked if call["do"] == "step"]

    def runs(self):
        """What was begun, and by which process."""
        return [(call["workload"], call["seed"], names) for names, call in self.asked if call["do"] == "begin"]


class Block:
    """Memory that counts as long as it is referenced."""

    def __init__(self, memory, count):
        self.memory, self.count = memory, count
        memory.live += count
        memory.peak = max(memory.peak, memory.live)

    def __del__(self):
        self.memory.live -= self.count


class CountedMemory:
    """Stands for the memory of a GPU."""

    def __init__(self):
        self.live = self.peak = 0
        self.taken = []

    def take(self, count, stream, is_filled):
        self.taken.append((count, stream, is_filled))
        return Block(self, count)

    def use(self, block, stream):
        pass

    def bytes_of(self, block):
        return block.count


class Chaos(unittest.TestCase):
    def run_load(self, name, seed):
        memory = CountedMemory()
        load = chaos.LOADS[name](memory, random.Random(seed))
        for _ in range(3000):
            next(load)
        load.close()
        return memory

    def test_a_load_is_the_same_for_every_allocator(self):
        for name in chaos.LOADS:
            self.assertEqual(self.run_load(name, 1).taken, self.run_load(name, 1).taken)
            self.assertNotEqual(self.run_load(name, 1).taken, self.run_load(name, 2).taken)

    def test_loads_hold_what_they_say(self):
        self.assertTrue(12 * chaos.GIB < self.run_load("sizes", 1).peak < 21 * chaos.GIB)
        tokens = chaos.SERVED_TOKENS * chaos.TOKEN_BYTES * chaos.SESSION_TENSORS
        self.assertTrue(tokens < self.run_load("server", 1).peak < 4 * chaos.GIB + 1.2 * tokens)

    def test_nothing_is_kept_at_the_end(self):
        for name in chaos.LOADS:
            self.assertEqual(self.run_load(name, 1).live, 0)

    def test_native_comes_first_and_last(self):
        jobs = chaos.jobs_of("sizes", [0.1, 0.2], 1000, 0)
        self.assertEqual([job["allocator"] for job in jobs],
                         ["native", "expandable", "torch", "tide", "tide", "tide", "native"])
        self.assertEqual([job["slack"] for job in jobs], [None, None, None, None, 0.1, 0.2, None])

    def test_driver_calls_count_after_the_warm_part(self):
        made = []

        def load():
            while True:
                made.append(None)
                yield

        found = chaos.measure(load(), 1000, lambda: None, lambda: {"map": 10 + 2 * len(made)})
        self.assertEqual(found["calls"], {"map": 2.0})

    def test_a_row_compares_with_native(self):
        job = chaos.jobs_of("sizes", [0.1], 1000, 0)[4]
        found = chaos.row({**job, "us": 30.0, "allocated": 85 * chaos.MIB, "reserved": 100 * chaos.MIB, "warm_mib": 5,
                           "end_mib": 6}, 20.0)
        self.assertRegex(found, r"^sizes +tide 0.1 +30.0 us +1.50 x +in use 0.850 .* resident 5 to 6 MiB$")
        self.assertIn("status 1", chaos.row({**job, "error": "status 1"}, 20.0))


class Logic(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = str(pathlib.Path(folder.name) / "out.jsonl")
        silence = mock.patch("builtins.print")
        silence.start()
        self.addCleanup(silence.stop)

    def make(self, answer=None):
        workers = FakeWorkers(answer)
        return bench.Bench(workers, self.path, 1e6, "abc"), workers

    def lines(self):
        return [json.loads(line) for line in pathlib.Path(self.path).read_text().splitlines()]


class Turns(Logic):
    job = {"mode": "measure", "workload": "streams", "seed": 0, "repeat": 1}

    def make(self, answer=None):
        runner, workers = super().make(answer)
        runner.warm = {("streams", 0), ("streams", 1)}
        return runner, workers

    def test_every_step_is_made_by_all_before_the_next(self):
        runner, workers = self.make()
        runner.run(self.job, ["a", "b", "c"], in_turn=True)
        self.assertEqual([names for names, number in workers.steps() if number < 3],
                         [("a",), ("b",), ("c",), ("b",), ("c",), ("a",), ("c",), ("a",), ("b",)])
        self.assertEqual([number for _, number in workers.steps()], [n for n in range(bench.STEPS) for _ in "abc"])

    def test_what_is_not_timed_is_made_at_once(self):
        runner, workers = self.make()
        found = runner.run(self.job, ["a", "b"])
        self.assertEqual({frozenset(names) for names, _ in workers.steps()}, {frozenset("ab")})
        self.assertNotIn("median_ms", found["a"])

    def test_the_first_steps_do_not_count(self):
        def answer(_, call):
            is_warm = call["do"] == "step" and call["number"] < bench.WARM
            return {"ms": 100.0, "loss": "0x1", "calls": {"map": 50}} if is_warm else None
        found = self.make(answer)[0].run(self.job, ["a"], in_turn=True)["a"]
        self.assertEqual(found["median_ms"], 2.0)
        self.assertEqual((found["steps_ms"][0], found["calls"][0]), (100.0, {"map": 50}))
        self.assertEqual(len(found["steps_ms"]), bench.STEPS)

    def test_who_fails_does_not_stop_the_others(self):
        for is_runtime in (True, False):
            def answer(name, call):
                is_bad = name == "b" and call.get("number") == 3
                return {"error": "no", "is_runtime": is_runtime} if is_bad else None
            runner, workers = self.make(answer)
            found = runner.run({**self.job, "seed": int(is_runtime)}, ["a", "b"], in_turn=True)
            self.assertEqual(found["b"]["error"], "no")
            self.assertIn("median_ms", found["a"])
            self.assertEqual(len(workers.steps()), bench.STEPS + 4)
            self.assertEqual(workers.stopped, [] if is_runtime else ["b"])

    def test_failed_runs_are_made_again(self):
        runner, _ = self.make(lambda name, call: {"error": "no", "is_runtime": True} if name == "b" else None)
        runner.run(self.job, ["a", "b"])
        again, workers = self.make()
        self.assertNotIn("error", again.run(self.job, ["a", "b"])["b"])
        self.assertEqual(len(workers.runs()), 1)


class LoopTurns(Logic):
    def test_loops_wait_after_ten_steps_and_take_turns(self):
        runner, workers = self.make()
        bench.do_loops(runner, ["fsdp"], 1)
        asked = [(names, call["first"], call["count"]) for names, call in workers.asked if call["do"] == "steps"]
        self.assertEqual([(first, count) for names, first, count in asked if names == ("tide",)],
                         [(first, 10) for first in range(0, 40, 10)])
        self.assertEqual(len(asked), 4 + 4 * len(bench.ALLOCATORS))  # first the untimed run of all at once
        self.assertEqual(workers.steps(), [])
        self.assertEqual([len(names) for _, _, names in workers.runs()], [5, 5])
        self.assertEqual({line["mode"] for line in self.lines()}, {"loops"})


class Order(Logic):
    def test_all_are_warmed_up_at_once_before_turns(self):
        runner, workers = self.make()
        bench.do_measure(runner, ["streams"], 2)
        self.assertEqual([names for _, _, names in workers.runs()],
                         [bench.EVERYBODY, bench.ALLOCATORS, bench.ALLOCATORS])

    def test_everything_comes_once_before_anything_comes_again(self):
        runner, _ = self.make()
        bench.do_measure(runner, list(bench.WORKLOADS), 3)
        repeats = [line["repeat"] for line in self.lines() if line["repeat"] > 0]
        self.assertEqual(repeats, sorted(repeats))
        self.assertEqual(len(repeats), 3 * 12 * 5)
        self.assertEqual(len(self.lines()), len(repeats) + 12 * 6)

    def test_two_workloads_have_three_seeds(self):
        runner, workers = self.make()
        bench.do_measure(runner, list(bench.WORKLOADS), 1)
        seeds = {name: {seed for workload, seed, _ in workers.runs() if workload == name} for name in bench.WORKLOADS}
        self.assertEqual({name for name, found in seeds.items() if found == {0, 1, 2}}, set(bench.THREE_SEEDS))
        self.assertEqual(len(seeds), 8)

    def test_goes_on_where_it_stopped_and_warms_up_again(self):
        runner, _ = self.make()
        bench.do_measure(runner, ["streams", "mixture"], 1)
        again, workers = self.make()
        bench.do_measure(again, ["streams", "mixture", "generate"], 1)
        self.assertEqual([workload for workload, _, _ in workers.runs()], ["generate", "generate"])
        once_more, workers = self.make()
        bench.do_measure(once_more, ["streams"], 2)
        self.assertEqual([len(names) for _, _, names in workers.runs()], [6, 5])

    def test_nothing_begins_late(self):
        runner, workers = self.make()
        runner.deadline = 0
        bench.do_measure(runner, ["streams"], 1)
        bench.do_losses(runner, ["streams"])
        bench.do_limits(runner, ["streams"])
        self.assertEqual((workers.asked, workers.begun), ([], []))
        self.assertTrue(runner.is_late)

    def test_a_workload_is_warmed_up_before_it_is_limited(self):
        runner, _ = self.make()
        bench.do_measure(runner, ["train_varlen"], 1)
        again, workers = self.make()
        bench.do_limits(again, ["train_varlen"])
        self.assertEqual([len(names) for _, _, names in workers.runs()[:3]], [6, 1, 1])
        self.assertNotIn(bench.EVERYBODY, [names for _, _, names in workers.runs()[1:]])

    def test_losses_are_of_two_of_pytorchs_own_and_of_ours(self):
        runner, workers = self.make()
        bench.do_losses(runner, ["streams"])
        self.assertEqual(workers.runs(), [("streams", 0, ("native", bench.WITNESS, "torch", "tide"))])
        self.assertTrue(workers.asked[0][1]["is_exact"])


class Limits(Logic):
    def make_limited(self, needed):
        """Runs that fail with a limit below `needed` bytes."""
        limits = []

        def answer(_, call):
            if call["do"] == "begin" and call["limit"] is not None:
                limits.append(call["limit"])
            is_short = call.get("number") == 2 and limits and limits[-1] < needed
            return {"error": "CUDA out of memory", "is_runtime": True} if is_short else None
        return (*self.make(answer), limits)

    def test_limit_is_found_to_half_a_percent(self):
        needed = 13 * 1037 * bench.MIB
        runner, _, _ = self.make_limited(needed)
        found = bench.least_limit(runner, "train_varlen", "tide", 10000 * bench.MIB, 30000 * bench.MIB)
        self.assertGreaterEqual(found, needed)
        self.assertLessEqual(found, needed * 1.005)

    def test_a_first_limit_that_is_too_little_is_raised(self):
        needed = 13 * 1037 * bench.MIB
        runner, _, limits = self.make_limited(needed)
        found = bench.least_limit(runner, "train_varlen", "async", 5000 * bench.MIB, 8000 * bench.MIB)
        self.assertGreaterEqual(found, needed)
        self.assertLessEqual(found, needed * 1.005)
        self.assertEqual(limits[0], 8000 * bench.MIB)

    def test_no_limit_is_tried_above_twice_the_first(self):
        runner, _, limits = self.make_limited(50000 * bench.MIB)
        self.assertIsNone(bench.least_limit(runner, "train_varlen", "async", 5000 * bench.MIB, 8000 * bench.MIB))
        self.assertLessEqual(max(limits), 16000 * bench.MIB)

    def test_other_errors_are_no_answer(self):
        runner, _ = self.make(lambda _, call: {"error": "a bug", "is_runtime": False} if call["do"] == "end" else None)
        self.assertIsNone(bench.least_limit(runner, "train_varlen", "tide", 100 * bench.MIB, 300 * bench.MIB))

    def test_limits_of_all_begin_at_what_each_reserves(self):
        runner, workers, limits = self.make_limited(0)
        bench.do_limits(runner, ["train_varlen"])
        self.assertEqual(limits.count(200 * bench.MIB), len(bench.ALLOCATORS))
        self.assertEqual(list(bench.limits_rows(self.lines())), [["train_varlen"] + ["102"] * 5])
        self.assertEqual({names for workload, _, names in workers.runs()[1:]}, {(name,) for name in bench.ALLOCATORS})


class Processes(unittest.TestCase):
    """The communication with a real process, which needs no PyTorch."""

    PROGRAM = """
        import os, sys, time
        sys.path.insert(0, {bench!r})
        import work

        class Worker:
            cleared = 0
            def say(self, text):
                print("noise")
                return {{"text": text, "setting": os.environ.get("PYTORCH_CUDA_ALLOC_CONF"), "name": sys.argv[1],
                         "cleared": self.cleared}}
            def fail(self, kind):
                raise {{"runtime": RuntimeError, "other": ValueError}}[kind]("no")
            def crash(self):
                os._exit(3)
            def hang(self):
                time.sleep(60)

            def clear(self):
                self.cleared += 1

        work.serve(Worker())
    """

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        pathlib.Path(folder.name, "work.py").write_text(textwrap.dedent(self.PROGRAM).format(bench=str(BENCH)))
        patch = mock.patch.object(bench, "HERE", pathlib.Path(folder.name))
        patch.start()
        self.addCleanup(patch.stop)
        self.workers = bench.Workers()
        self.addCleanup(lambda: self.workers.stop(list(self.workers.processes)))

    def ask(self, names, **call):
        self.workers.start(names)
        return self.workers.ask(names, call)

    def test_each_has_its_setting(self):
        answers = self.ask(["native", "async", "expandable"], do="say", text="x" * 200000)
        self.assertEqual({name: found["setting"] for name, found in answers.items()},
                         {"native": None, "async": "backend:cudaMallocAsync", "expandable": "expandable_segments:True"})
        self.assertEqual(answers["async"]["name"], "async")
        self.assertEqual(len(answers["native"]["text"]), 200000)

    def test_an_exception_is_an_error_and_the_process_goes_on_with_nothing_held(self):
        self.assertTrue(self.ask(["native"], do="fail", kind="runtime")["native"]["is_runtime"])
        answer = self.ask(["native"], do="fail", kind="other")["native"]
        self.assertIn("ValueError: no", answer["error"])
        self.assertFalse(answer["is_runtime"])
        answer = self.ask(["native"], do="say", text="on")["native"]
        self.assertEqual((answer["text"], answer["cleared"]), ("on", 2))

    def test_a_crash_is_an_error_and_a_new_process_can_be_begun(self):
        self.assertIn("status 3", self.ask(["native"], do="crash")["native"]["error"])
        self.assertIn("status 3", self.ask(["native"], do="say", text="")["native"]["error"])
        self.workers.stop(["native"])
        self.assertEqual(self.ask(["native"], do="say", text="on")["native"]["text"], "on")

    def test_a_hang_is_an_error(self):
        self.ask(["native"], do="say", text="")
        with mock.patch.object(bench, "ANSWER_SECONDS", 0.2):
            self.assertIn("status -9", self.ask(["native"], do="hang")["native"]["error"])


class Work(unittest.TestCase):
    """The process of an allocator, with a fake PyTorch."""

    def make(self, allocator):
        torch = mock.MagicMock(__version__="2.11")
        torch.cuda.memory_reserved.return_value = 30 * bench.MIB
        torch.cuda.mem_get_info.return_value = (100 * bench.MIB, 200 * bench.MIB)
        torch.OutOfMemoryError = RuntimeError
        torch.cuda.get_device_name.return_value = "GPU"
        torch.cuda.memory_stats.return_value = {"allocated_bytes.all.peak": 1, "reserved_bytes.all.peak": 2}
        torch.cuda.memory._snapshot.return_value = {"device_traces": [[{"action": "alloc", "addr": 1, "size": 1}]]}
        self.runtime = mock.MagicMock()
        self.runtime.cudaMalloc.return_value = 0
        modules = {"torch": torch, **{name: mock.MagicMock() for name in work.MODULES}}
        with mock.patch.dict(sys.modules, modules), mock.patch.object(work.ctypes, "CDLL", lambda _: self.runtime), \
                mock.patch.object(work.build, "loaded_file", lambda _: "/lib/libcudart.so.13"), \
                mock.patch.object(work.importlib, "import_module"):
            worker = work.Worker(allocator)
        patch = mock.patch.dict(work.WORKLOADS, {"streams": lambda torch, seed: lambda number: seed + number})
        patch.start()
        self.addCleanup(patch.stop)
        return worker, torch

    def test_a_run_with_a_limit(self):
        worker, _ = self.make("native")
        worker.begin("streams", 5, False, False, 90 * bench.MIB)
        (_, surplus), = [call.args for call in self.runtime.cudaMalloc.call_args_list]
        self.assertEqual(surplus.value, 40 * bench.MIB)
        self.assertEqual([worker.step(number)["loss"] for number in range(3)], [float(5 + n).hex() for n in range(3)])
        self.assertEqual(worker.end(), {"allocated": 1, "active": 1, "reserved": 2, "torch": "2.11", "gpu": "GPU"})
        self.assertIsNone(worker.run)

    def test_a_limit_below_what_is_there_is_want_of_memory(self):
        worker, _ = self.make("native")
        self.runtime.cudaMalloc.return_value = 2
        self.assertRaises(RuntimeError, worker.begin, "streams", 5, False, False, 90 * bench.MIB)

    def test_timed_runs_are_on_few_cores(self):
        worker, _ = self.make("native")
        cores = os.sched_getaffinity(0)
        with mock.patch.object(work, "TIMED_CORES", 1):
            worker.begin("streams", 5, False, True, None)
        self.addCleanup(os.sched_setaffinity, 0, cores)
        self.assertEqual(os.sched_getaffinity(0), {max(cores)})
        worker.begin("streams", 5, False, False, None)
        self.assertEqual(os.sched_getaffinity(0), cores)

    def test_only_a_witness_records(self):
        worker, torch = self.make("native")
        worker.begin("streams", 5, True, False, None)
        torch.use_deterministic_algorithms.assert_called_with(True)
        torch.backends.cuda.enable_cudnn_sdp.assert_called_with(False)
        worker.end()
        torch.cuda.memory._record_memory_history.assert_not_called()
        worker, torch = self.make(bench.WITNESS)
        worker.begin("streams", 5, False, False, None)
        self.assertEqual(worker.end()["demand"], 512)
        self.assertEqual(torch.cuda.memory._record_memory_history.call_args.kwargs, {"enabled": None})

    def test_compiled_graphs_do_not_outlive_a_run(self):
        worker, torch = self.make("native")
        trees = mock.MagicMock()
        worker.clear()
        torch.compiler.reset.assert_not_called()
        with mock.patch.dict(sys.modules, {"torch._inductor.cudagraph_trees": trees}):
            worker.clear()
        torch.compiler.reset.assert_called_once_with()
        trees.reset_cudagraph_trees.assert_called_once_with()

    def test_calls_of_the_driver_are_those_of_a_step(self):
        worker, _ = self.make("native")
        self.assertEqual(worker.new_calls(), {})
        worker.ours = mock.MagicMock()
        worker.ours.stats.side_effect = [{"driver_calls": {"map": {"calls": 3}, "free": {"calls": 1}}},
                                         {"driver_calls": {"map": {"calls": 5}, "free": {"calls": 1}}}]
        worker.begin("streams", 5, False, False, None)
        self.assertEqual(worker.new_calls(), {"map": 2})

    def test_demand_is_the_peak_of_rounded_requests(self):
        entries = [{"action": "alloc", "addr": 1, "size": 1}, {"action": "alloc", "addr": 2, "size": 513},
                   {"action": "free_requested", "addr": 1}, {"action": "free_completed", "addr": 1},
                   {"action": "alloc", "addr": 1, "size": 600}]
        self.assertEqual(work.demand(entries), 2048)


def timed(ms):
    """A run whose counted steps take the same time; the first creates handles, and the last maps some."""
    count = bench.STEPS - bench.WARM
    return {"median_ms": ms, "steps_ms": [100.0] * bench.WARM + [ms] * count,
            "calls": [{"physical_new": 7, "map": 9}] * bench.WARM + [{}] * (count - 1) + [{"map": 1}]}


class Tables(unittest.TestCase):
    def test_a_step_counts_with_the_fastest_of_the_runs(self):
        steps = [9.0] * bench.WARM + [1.0, 2.0, 3.0]
        runs = [{"steps_ms": steps[:-2] + [50.0, 3.0]}, {"steps_ms": steps[:-1] + [70.0]}, {}]
        self.assertEqual(bench.steps_ms(runs), [1.0, 2.0, 3.0])
        self.assertEqual(bench.steps_ms([{}]), [])

    def test_allocators_are_compared_step_by_step(self):
        ours, theirs = ([{"steps_ms": [9.0] * bench.WARM + steps}] for steps in ([11.0, 21.0, 30.3], [10.0, 20.0, 30.0]))
        self.assertAlmostEqual(bench.slower(ours, theirs), 0.05)

    def test_loops_are_compared_by_the_sum_of_late_steps(self):
        def runs(name, late, count=2, active=99):
            return [{"mode": "loops", "workload": "ddp", "seed": 0, "repeat": repeat, "allocator": name,
                     "allocated": 98 * bench.MIB, "active": active * bench.MIB, "reserved": 100 * bench.MIB,
                     "steps_ms": [9000.0, 8000.0, late, 1000.0]}
                    for repeat in range(1, 1 + count)]
        timed_runs = runs("native", 1000.0) + runs("torch", 990.0, active=50) + runs("tide", 1200.0)
        part = runs("async", 1.0, count=1)  # fewer repeats than the others: not compared
        warm = [{**run, "repeat": 0, "reserved": 500 * bench.MIB} for run in runs("tide", 0.0, count=1)]
        failed = [{"mode": "loops", "workload": "ddp", "seed": 0, "repeat": 1, "allocator": "expandable", "error": "no"}]
        row, = bench.loops_rows(timed_runs + part + warm + failed)
        self.assertEqual(row, ["ddp", "98", "100 / 0.990 / 4.00 s", "-", "-", "100 / 0.500 / 3.98 s",
                               "100 / 0.990 / 4.40 s", "+10.6%", "2"])
        self.assertEqual(list(bench.loops_rows(runs("native", 1.0))), [])

    def test_merged_rows(self):
        base = {"workload": "streams", "seed": 0, "repeat": 0}
        run = {**base, "mode": "measure", "reserved": 196 * bench.MIB}
        results = [
            {**run, "allocator": "witness", "demand": 98 * bench.MIB},
            {**run, "allocator": "tide", **timed(10.1), "reserved": 100 * bench.MIB},
            {**run, "allocator": "tide", **timed(10.3), "reserved": 99 * bench.MIB, "repeat": 1},
            {**run, "allocator": "native", **timed(10.0)},
            {**run, "allocator": "native", **timed(10.4), "repeat": 1},
            *[{**run, "allocator": name, **timed(12.0)} for name in ("expandable", "torch")],
            {**run, "allocator": "async", "error": "it did not fit"},
            {**base, "mode": "losses", "allocator": "native", "losses": ["0x1"]},
            {**base, "mode": "losses", "allocator": "witness", "losses": ["0x1"]},
            {**base, "mode": "losses", "allocator": "tide", "losses": ["0x1"]},
            {**base, "mode": "losses", "allocator": "torch", "losses": ["0x2"]},
        ]
        with tempfile.TemporaryDirectory() as folder:
            paths = [str(pathlib.Path(folder) / name) for name in "ab"]
            for path, part in zip(paths, (results[:4], results[4:])):
                pathlib.Path(path).write_text("".join(json.dumps(result) + "\n" for result in part))
            merged = list(bench.read(paths).values())
        row, = bench.measure_rows(merged)
        other = "196 / 0.500 / 12.0 ms (+20.0%)"
        self.assertEqual(row, ["streams", "0", "98", "196 / 0.500 / 10.0 ms (+0.0%)", other, "-", other,
                               "100 / 0.980 / 10.1 ms (+1.0%)", "+1.0%", "4.0%"])
        calls, = bench.calls_rows(merged)
        self.assertEqual(calls, ["streams", "0", "100", "100", "7", "14 of 15"])
        self.assertEqual(list(bench.losses_rows(merged)), [["streams", "equal", "different", "equal"]])
        self.assertEqual(list(bench.limits_rows(merged)), [])
        self.assertEqual(list(bench.measure_rows(merged[:3])), [])
