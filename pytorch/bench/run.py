# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Workloads of PyTorch under five allocators, side by side.

    run.py VERB ... [--workloads W,W] [--out FILE] [--repeats N] [--seconds S]
        measure   time and memory of eight workloads, with a wait after each step
        loops     time and memory of five loops, with a wait after every tenth step
        losses    are they equal, bit by bit?
        limits    the least memory that is enough
    run.py table FILE ...   merges files into tables

Each allocator has a process (work.py), which runs one workload after the other, each from an empty cache. Where
time counts, the processes take turns step by step, so that a computer that becomes slower is slower for all of
them. Before a workload is timed or limited it runs once otherwise, all processes at the same time, so that the
GPU's code is loaded and the libraries have seen all shapes. Every run is one line of JSON in FILE. What is in the
file is not run again, so that an interrupted command goes on where it stopped; nothing begins when little is left
of S seconds.

A step counts with the fastest of its repeats: other work of the computer makes it slower and never faster. The time
of an allocator is the median of the steps. Two allocators are compared step by step, because steps differ in size:
by the median of the ratios. In loops, the time is the sum of all late steps of all repeats: those after the first twenty.
There the memory in use includes released memory that queued work still uses.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time
from typing import Any, Dict, Iterator, Optional, Sequence

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]
from loops import LOOPS  # noqa: E402  (beside this file)
from work import WITNESS  # noqa: E402
from workloads import WORKLOADS  # noqa: E402

MIB = 1 << 20
ALLOCATORS = ("native", "expandable", "async", "torch", "tide")  # the last two are ours
EVERYBODY = (*ALLOCATORS, WITNESS)
CONFIGURATION = {"expandable": "expandable_segments:True", "async": "backend:cudaMallocAsync"}
THREE_SEEDS = LIMITED = ("train_varlen", "graph_network")
PAGE = 2 * MIB  # the page size of the GPU
ANSWER_SECONDS = 90.0  # a process that does not answer for longer is killed
BEGIN_SECONDS = 30.0  # nothing is started with less time left
STEPS = 20
WARM = STEPS // 4  # steps that are not counted
LOOP_STEPS = 40
LOOP_WAITS = 10  # steps between two waits
LOOP_WARM = 2  # waits whose steps are not counted

Result = Dict[str, Any]


# ---------------------------------------------------------------------------------------------------
# The processes


class Process:
    """The process of an allocator."""

    def __init__(self, allocator: str) -> None:
        environment = dict(os.environ, CUBLAS_WORKSPACE_CONFIG=":4096:8")
        if allocator in CONFIGURATION:
            environment["PYTORCH_CUDA_ALLOC_CONF"] = CONFIGURATION[allocator]
        command = [sys.executable, str(HERE / "work.py"), allocator]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=environment)

    def send(self, call: Result) -> None:
        """Sends a request; the answer comes later."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(call) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # there will be no answer

    def receive(self) -> Result:
        """Waits for the answer; an error if there is none in time."""
        assert self.process.stdout is not None
        timer = threading.Timer(ANSWER_SECONDS, self.process.kill)
        timer.start()
        try:
            for line in self.process.stdout:
                if line.startswith("ANSWER "):
                    found: Result = json.loads(line[7:])
                    return found
        finally:
            timer.cancel()
        return {"error": f"the process ended with status {self.process.wait()}", "is_runtime": False}

    def stop(self) -> None:
        """Ends the process, and waits for its end."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass


class Workers:
    """The processes of all allocators, started on demand."""

    def __init__(self) -> None:
        self.processes: dict[str, Process] = {}

    def start(self, names: Sequence[str]) -> None:
        """Starts the missing processes in parallel."""
        for name in names:
            if name not in self.processes:
                self.processes[name] = Process(name)

    def ask(self, names: Sequence[str], call: Result) -> dict[str, Result]:
        """Sends a request to several processes at once."""
        for name in names:
            self.processes[name].send(call)
        return {name: self.processes[name].receive() for name in names}

    def stop(self, names: Sequence[str]) -> None:
        """Ends some processes."""
        for name in names:
            self.processes.pop(name).stop()


class Runs:
    """Runs of one workload under several allocators at the same time."""

    def __init__(self, workers: Workers, names: Sequence[str]) -> None:
        self.workers = workers
        self.names = list(names)  # without those that have failed
        self.answers: dict[str, list[Result]] = {name: [] for name in names}
        workers.start(names)

    def ask(self, names: Sequence[str], do: str, **arguments: Any) -> None:
        """Sends a request to some of them; one that fails is left out from then on."""
        names = [name for name in names if name in self.names]
        for name, answer in self.workers.ask(names, {"do": do, **arguments}).items():
            self.answers[name].append(answer)
            if "error" in answer:
                self.names.remove(name)

    def run(self, job: Result, in_turn: bool) -> dict[str, Result]:
        """Runs all steps, in turn or in parallel; returns the result of each run."""
        self.ask(self.names, "begin", workload=job["workload"], seed=job["seed"], is_exact=job["mode"] == "losses",
                 is_timed=in_turn, limit=job.get("limit"))
        for number, (do, arguments) in enumerate(turns(job["mode"])):
            first = number % max(1, len(self.names))
            order = self.names[first:] + self.names[:first]
            for names in [[name] for name in order] if in_turn else [order]:
                self.ask(names, do, **arguments)
        self.ask(self.names, "end")
        return {name: summary(answers, in_turn) for name, answers in self.answers.items()}


def turns(mode: str) -> list[tuple[str, Result]]:
    """The requests of a run: a step each, or several steps of a loop."""
    if mode == "loops":
        return [("steps", {"first": first, "count": LOOP_WAITS}) for first in range(0, LOOP_STEPS, LOOP_WAITS)]
    return [("step", {"number": number}) for number in range(STEPS)]


def summary(answers: Sequence[Result], is_timed: bool) -> Result:
    """The result of a run, from the answers to "begin", each step and "end", or an error."""
    if "error" in answers[-1]:
        return answers[-1]
    begin, *steps, end = answers
    result = {**begin, **end, "losses": [step["loss"] for step in steps], "calls": [step["calls"] for step in steps]}
    if is_timed:
        result["steps_ms"] = [round(step["ms"], 3) for step in steps]
        result["median_ms"] = statistics.median(result["steps_ms"][WARM if len(steps) == STEPS else LOOP_WARM:])
    return result


# ---------------------------------------------------------------------------------------------------
# Which runs


def key(job: Result) -> tuple[Any, ...]:
    """The key that identifies equal runs."""
    return tuple(job.get(name) for name in ("mode", "workload", "seed", "allocator", "repeat", "limit"))


def read(paths: Sequence[str]) -> dict[tuple[Any, ...], Result]:
    """All runs in some files; the last of equal ones."""
    results = {}
    for path in paths:
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                for line in file:
                    result = json.loads(line)
                    results[key(result)] = result
    return results


class Bench:
    """Makes the runs that are not in the file yet, while there is time."""

    def __init__(self, workers: Workers, path: str, seconds: float, commit: str) -> None:
        self.workers = workers
        self.path = path
        self.deadline = time.monotonic() + seconds
        self.commit = commit
        self.results = read([path])
        self.warm: set[tuple[str, int]] = set()  # workloads and seeds that all processes have run
        self.is_late = False

    def known(self, job: Result, names: Sequence[str]) -> Optional[dict[str, Result]]:
        """The results in the file, if they are complete."""
        found = {name: self.results.get(key({**job, "allocator": name}), {"error": "not run"}) for name in names}
        return found if all("error" not in result for result in found.values()) else None

    def run(self, job: Result, names: Sequence[str], in_turn: bool = False) -> Optional[dict[str, Result]]:
        """The results of a job under some allocators; None if there was no time for it."""
        found = self.known(job, names)
        if found is not None:
            return found
        if in_turn or "limit" in job:
            self.warm_up(job)
        return self.run_now(job, names, in_turn)

    def warm_up(self, job: Result) -> None:
        """Runs a workload with all processes, if they have not run it yet. This is repeat 0."""
        workload, seed = job["workload"], job["seed"]
        if (workload, seed) not in self.warm:
            self.warm.add((workload, seed))
            is_loop = job["mode"] == "loops"  # for which nobody asks how much is requested
            again = {"mode": "loops" if is_loop else "measure", "workload": workload, "seed": seed, "repeat": 0}
            self.run_now(again, ALLOCATORS if is_loop else EVERYBODY, False)

    def run_now(self, job: Result, names: Sequence[str], in_turn: bool) -> Optional[dict[str, Result]]:
        """Like run(), even if there are results."""
        if self.is_late or time.monotonic() + BEGIN_SECONDS > self.deadline:
            self.is_late = True
            return None
        began = time.monotonic()
        found = Runs(self.workers, names).run(job, in_turn)
        self.workers.stop([name for name, result in found.items() if "error" in result and not result["is_runtime"]])
        about = {"wall_s": round(time.monotonic() - began, 1), "commit": self.commit, "date": time.strftime("%Y-%m-%d")}
        return {name: self.keep({**job, "allocator": name, **result, **about}) for name, result in found.items()}

    def keep(self, result: Result) -> Result:
        """Adds a result to the file. With a limit, an error that may mean out of memory is a result."""
        if result.get("limit") is not None:
            result["is_out_of_memory"] = bool(result.pop("is_runtime", False))
            if result["is_out_of_memory"]:
                result["text"] = result.pop("error")[-300:]
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
        self.results[key(result)] = result
        say(result)
        return result


def say(result: Result) -> None:
    """Prints a line about a run."""
    parts = [str(result[name]) for name in ("mode", "workload", "seed", "allocator", "repeat")]
    if "median_ms" in result:
        parts.append(f"{result['median_ms']:.1f} ms")
    if "reserved" in result:
        parts.append(f"{result['reserved'] // MIB} MiB")
    if result.get("limit") is not None:
        parts.append(f"limit {result['limit'] // MIB} MiB{', out of memory' if result['is_out_of_memory'] else ''}")
    print(" ".join(parts + [result.get("error", "")]), flush=True)


def do_measure(bench: Bench, workloads: Sequence[str], repeats: int) -> None:
    """Measures every workload in turns; everything runs once before anything runs again."""
    for repeat in range(1, repeats + 1):
        for workload in workloads:
            for seed in range(3 if workload in THREE_SEEDS else 1):
                job = {"mode": "measure", "workload": workload, "seed": seed, "repeat": repeat}
                bench.run(job, ALLOCATORS, in_turn=True)


def do_loops(bench: Bench, loops: Sequence[str], repeats: int) -> None:
    """The same for the loops."""
    for repeat in range(1, repeats + 1):
        for workload in loops:
            bench.run({"mode": "loops", "workload": workload, "seed": 0, "repeat": repeat}, ALLOCATORS, in_turn=True)


def do_losses(bench: Bench, workloads: Sequence[str]) -> None:
    """Two runs of PyTorch's own allocator, and ours."""
    for workload in workloads:
        job = {"mode": "losses", "workload": workload, "seed": 0, "repeat": 0}
        bench.run(job, ["native", WITNESS, "torch", "tide"])


def least_limit(bench: Bench, workload: str, allocator: str, low: int, high: int) -> Optional[int]:
    """The smallest sufficient limit, to 0.5 %, if `low` is too small and twice `high` is enough; otherwise, or if there
    was no time for all runs, None."""
    job = {"mode": "limits", "workload": workload, "seed": 0, "repeat": 0}
    limit, most = high // PAGE * PAGE, 2 * high
    is_found = False  # `high` is enough
    while limit <= most and (not is_found or high - low > max(PAGE, low // 200)):
        found = bench.run({**job, "limit": limit}, [allocator])
        if found is None or "error" in found[allocator]:
            return None
        if found[allocator]["is_out_of_memory"]:
            low = limit
        else:
            high, is_found = limit, True
        limit = ((low + high) // 2 if is_found else int(low * 1.1)) // PAGE * PAGE
    return high if is_found else None


def do_limits(bench: Bench, workloads: Sequence[str]) -> None:
    """Bisects between what is requested and what an allocator reserves without a limit."""
    for workload in workloads:
        job = {"mode": "measure", "workload": workload, "seed": 0, "repeat": 0}
        if bench.known(job, EVERYBODY) is None:
            bench.warm_up(job)
        free = bench.known(job, EVERYBODY)
        for allocator in ALLOCATORS if free is not None else []:
            found = least_limit(bench, workload, allocator, free[WITNESS]["demand"], free[allocator]["reserved"])
            print(f"{workload} {allocator}: {'not found' if found is None else f'{found // MIB} MiB'}", flush=True)


# ---------------------------------------------------------------------------------------------------
# Tables


def measured(results: Sequence[Result], workload: str, seed: int, allocator: str) -> list[Result]:
    """The successful runs of one allocator."""
    return [r for r in results if r["mode"] == "measure" and r["workload"] == workload and r["seed"] == seed
            and r["allocator"] == allocator and "error" not in r]


def steps_ms(runs: Sequence[Result]) -> list[float]:
    """The fastest run of each step; empty if none was timed."""
    return [min(step) for step in zip(*[run["steps_ms"][WARM:] for run in runs if "steps_ms" in run])]


def spread(runs: Sequence[Result]) -> float:
    """The spread of the times of runs."""
    times = [run["median_ms"] for run in runs if "median_ms" in run]
    return max(times) / min(times) - 1


def slower(runs: Sequence[Result], others: Sequence[Result]) -> float:
    """How much slower some runs are than others, as the median over all steps."""
    return statistics.median(ours / theirs for ours, theirs in zip(steps_ms(runs), steps_ms(others))) - 1


def rows(results: Sequence[Result]) -> Iterator[tuple[list[str], int, dict[str, list[Result]]]]:
    """Workload, seed, requested memory and the runs of each allocator, if native and `tide` were timed."""
    for workload in WORKLOADS:
        for seed in range(3):
            wanted = [run["demand"] for run in measured(results, workload, seed, WITNESS)]
            runs = {name: measured(results, workload, seed, name) for name in ALLOCATORS}
            if wanted and steps_ms(runs["native"]) and steps_ms(runs["tide"]):
                yield [workload, str(seed)], wanted[0], runs


def cell(runs: Sequence[Result], native: Sequence[Result], wanted: int) -> str:
    """Reserved MiB, utilisation (requested over reserved memory), time, and how much slower than native."""
    if not steps_ms(runs):
        return "-"
    reserved = max(run["reserved"] for run in runs)
    median = statistics.median(steps_ms(runs))
    return f"{reserved // MIB} / {wanted / reserved:.3f} / {median:.1f} ms ({slower(runs, native):+.1%})"


def measure_rows(results: Sequence[Result]) -> Iterator[list[str]]:
    """One row for each workload and seed; at its end how much slower `tide` is than the fastest of the others."""
    for name, wanted, runs in rows(results):
        cells = [cell(runs[allocator], runs["native"], wanted) for allocator in ALLOCATORS]
        others = [found for allocator, found in runs.items() if allocator != "tide" and steps_ms(found)]
        behind = max(slower(runs["tide"], found) for found in others)
        yield [*name, str(wanted // MIB), *cells, f"{behind:+.1%}", f"{spread(runs['native']):.1%}"]


def calls_rows(results: Sequence[Result]) -> Iterator[list[str]]:
    """One row for each workload and seed: what the first step costs, and how many of the counted steps map nothing."""
    for name, _, runs in rows(results):
        timed = {each: [run for run in found if "steps_ms" in run] for each, found in runs.items()}
        first = [f"{min(run['steps_ms'][0] for run in timed[each]):.0f}" for each in ("native", "tide")]
        made = max(run["calls"][0].get("physical_new", 0) for run in timed["tide"])
        still = [sum("map" not in calls for calls in run["calls"][WARM:]) for run in timed["tide"]]
        yield [*name, *first, str(made), f"{min(still)} of {STEPS - WARM}"]


def late_ms(runs: Sequence[Result]) -> float:
    """The sum of the late steps of all timed runs; 0 without any."""
    return sum(sum(run["steps_ms"][LOOP_WARM:]) for run in runs if "steps_ms" in run)


def loops_rows(results: Sequence[Result]) -> Iterator[list[str]]:
    """One row for each loop: reserved MiB, utilisation and late time; at its end `tide` against the fastest other."""
    for loop in LOOPS:
        runs = {name: [r for r in results if r["mode"] == "loops" and r["workload"] == loop and r["repeat"] > 0
                       and r["allocator"] == name and "error" not in r] for name in ALLOCATORS}
        most = max(map(len, runs.values()))
        timed = {name: found for name, found in runs.items() if found and len(found) == most}
        others = [late_ms(found) for name, found in timed.items() if name != "tide"]
        if "tide" not in timed or not others:
            continue
        cells = ["-" if name not in timed else
                 f"{max(r['reserved'] for r in timed[name]) // MIB} / "
                 f"{min(r['active'] / r['reserved'] for r in timed[name]):.3f} / {late_ms(timed[name]) / 1e3:.2f} s"
                 for name in ALLOCATORS]
        yield [loop, str(max(r["allocated"] for r in timed["tide"]) // MIB), *cells,
               f"{late_ms(timed['tide']) / min(others) - 1:+.1%}", str(most)]


def losses_rows(results: Sequence[Result]) -> Iterator[list[str]]:
    """One row for each workload: do two native runs agree, and do ours with them?"""
    words = {True: "equal", False: "different"}
    for workload in WORKLOADS:
        runs = {r["allocator"]: r.get("losses") for r in results
                if r["mode"] == "losses" and r["workload"] == workload}
        native = runs.get("native")
        if native is not None:
            yield [workload, *[words[runs.get(other) == native] for other in (WITNESS, "torch", "tide")]]


def limits_rows(results: Sequence[Result]) -> Iterator[list[str]]:
    """One row for each workload: the smallest limit under which it ran."""
    for workload in LIMITED:
        row = [workload]
        for allocator in ALLOCATORS:
            good = [r["limit"] for r in results if r["mode"] == "limits" and r["workload"] == workload
                    and r["allocator"] == allocator and not r.get("is_out_of_memory", True)]
            row.append(str(min(good) // MIB) if good else "-")
        if any(value != "-" for value in row[1:]):
            yield row


def table(head: Sequence[str], rows: Iterator[list[str]]) -> str:
    """A table in Markdown; empty without rows."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *lines, ""]) if lines else ""


def print_tables(paths: Sequence[str]) -> None:
    """All tables of some files."""
    results = list(read(paths).values())
    print(table(["workload", "seed", "requested, MiB", *ALLOCATORS, "tide over the fastest", "native runs apart"],
                measure_rows(results)))
    print(table(["workload", "seed", "first step, native, ms", "tide", "handles made", "later steps that map nothing"],
                calls_rows(results)))
    print(table(["loop", "allocated, MiB", *ALLOCATORS, "tide over the fastest", "repeats"], loops_rows(results)))
    print(table(["workload", "native again", "torch", "tide"], losses_rows(results)))
    print(table(["least limit, MiB", *ALLOCATORS], limits_rows(results)))


# ---------------------------------------------------------------------------------------------------
# The command


def parse(arguments: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="+", metavar="VERB", help="measure, loops, losses, limits; or table and files")
    parser.add_argument("--workloads", default="", help="some of " + ", ".join([*WORKLOADS, *LOOPS]))
    parser.add_argument("--out", default="torch-bench.jsonl")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--commit", default="unknown", help="noted with each run")
    parsed = parser.parse_args(arguments)
    if parsed.words[0] != "table" and not set(parsed.words) <= {"measure", "loops", "losses", "limits"}:
        parser.error(f"there is no verb {' '.join(parsed.words)}")
    return parsed


def main() -> None:
    """The command."""
    parsed = parse()
    if parsed.words[0] == "table":
        print_tables(parsed.words[1:])
        return
    named = [name for name in parsed.workloads.split(",") if name in WORKLOADS]
    loops = [name for name in parsed.workloads.split(",") if name in LOOPS]
    workers = Workers()
    bench = Bench(workers, parsed.out, parsed.seconds, parsed.commit)
    verbs = {"measure": lambda: do_measure(bench, named or list(WORKLOADS), parsed.repeats),
             "loops": lambda: do_loops(bench, loops or list(LOOPS), parsed.repeats),
             "losses": lambda: do_losses(bench, named or list(WORKLOADS)),
             "limits": lambda: do_limits(bench, named or LIMITED)}
    for word in parsed.words:
        verbs[word]()
    workers.stop(list(workers.processes))
    if bench.is_late:
        print("there was no time for all runs: the same command goes on")
    print_tables([parsed.out])


if __name__ == "__main__":
    main()
