# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Eight workloads of PyTorch under five allocators, side by side.

    run.py measure [--workloads W,W] [--out FILE] [--repeats N] [--seconds S]   time and memory, interleaved
    run.py losses  [...]                                                        are the losses equal, bit by bit?
    run.py limits  [...]                                                        the least memory that is enough
    run.py table FILE ...                                                       merges files into tables

Every run is a process of its own and one line of JSON in FILE. A run that is in the file is not made again, so
that an interrupted command goes on where it stopped; no run begins when little is left of S seconds. Importing
takes longer than many a run: the processes are forked from one that has imported everything and has not touched
CUDA, one for each setting that PyTorch reads when it is imported.
"""
from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import os
import pathlib
import select
import signal
import statistics
import subprocess
import sys
import time
import traceback
from typing import Any, Callable, Dict, Iterator, Optional, Sequence

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from workloads import WORKLOADS  # noqa: E402  (beside this file)

MIB = 1 << 20
ALLOCATORS = ("native", "expandable", "async", "torch", "tide")  # the last two are ours
CONFIGURATION = {"expandable": "expandable_segments:True", "async": "backend:cudaMallocAsync"}
THREE_SEEDS = ("train_varlen", "graph_network")
LIMITED = ("train_varlen", "graph_network")
RUN_SECONDS = 60.0  # a run that takes longer is ended
STEPS = 16

Result = Dict[str, Any]


# ---------------------------------------------------------------------------------------------------
# One run, in its own process


def demand(torch: Any) -> int:
    """The peak of all requests, each rounded to 512, from PyTorch's own history."""
    live = peak = 0
    sizes: dict[int, int] = {}
    for entry in torch.cuda.memory._snapshot()["device_traces"][0]:
        if entry["action"] == "alloc":
            sizes[entry["addr"]] = (entry["size"] + 511) // 512 * 512
            live += sizes[entry["addr"]]
            peak = max(peak, live)
        elif entry["action"] == "free_requested":
            live -= sizes.pop(entry["addr"], 0)
    return peak


def take_memory(torch: Any, limit: int) -> None:
    """Takes so much of the GPU that PyTorch's allocator can reserve `limit` bytes in all, and no more.

    PyTorch's own limit would not do: with cudaMallocAsync it counts what is handed out, not what is reserved.
    """
    from tidemark.torch import build
    torch.cuda.empty_cache()
    surplus = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - limit
    address = ctypes.c_void_p()
    runtime = ctypes.CDLL(build.loaded_file("libcudart.so"))
    if runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(surplus)) != 0:
        raise torch.OutOfMemoryError("the first step left more reserved than the limit")


def run_steps(torch: Any, job: Result) -> Result:
    """The steps of a workload, each with its time and loss; a limit holds from the second on, because the first
    loads the GPU's code."""
    times, losses = [], []
    step = WORKLOADS[job["workload"]](torch, job["seed"])
    for number in range(STEPS):
        if number == 1 and job.get("limit") is not None:
            take_memory(torch, job["limit"])
        torch.cuda.synchronize()
        began = time.perf_counter()
        loss = step(number)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
        losses.append(None if loss is None else float(loss).hex())
    return {"median_ms": statistics.median(times[STEPS // 4:]) * 1e3, "losses": losses}


def run_here(job: Result) -> Result:
    """Makes a run in this process and says what it took."""
    if job["allocator"] in ("torch", "tide"):
        import tidemark.torch
        tidemark.torch.install(job["allocator"])
    import torch
    if job["mode"] == "losses":
        torch.use_deterministic_algorithms(True)
    if job["allocator"] == "demand":
        torch.cuda.memory._record_memory_history(context=None, max_entries=4_000_000)
    try:
        result = run_steps(torch, job)
    except RuntimeError as error:  # libraries have other words for want of memory than PyTorch
        if job.get("limit") is None:
            raise
        return {"is_out_of_memory": True, "text": str(error)[:300]}
    stats = torch.cuda.memory_stats()
    result.update(is_out_of_memory=False, allocated=stats["allocated_bytes.all.peak"],
                  reserved=stats["reserved_bytes.all.peak"], torch=torch.__version__, gpu=torch.cuda.get_device_name())
    if job["allocator"] == "demand":
        result["demand"] = demand(torch)
    return result


# ---------------------------------------------------------------------------------------------------
# Runs in other processes


def key(job: Result) -> tuple[Any, ...]:
    """What makes a run the same as another."""
    return tuple(job.get(name) for name in ("mode", "workload", "seed", "allocator", "repeat", "limit"))


def read(paths: Sequence[str]) -> dict[tuple[Any, ...], Result]:
    """All runs in some files; of equal ones the last."""
    results = {}
    for path in paths:
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                for line in file:
                    result = json.loads(line)
                    results[key(result)] = result
    return results


def answer_of(reader: int, seconds: float) -> str:
    """All that comes out of a pipe until it is closed; empty if that takes too long."""
    text, deadline = b"", time.monotonic() + seconds
    while select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(reader, 1 << 16)
        if not part:
            return text.decode()
        text += part
    return ""


def run_forked(run: Callable[[], Result], seconds: float = RUN_SECONDS) -> Result:
    """The answer of a function that is called in a fork of this process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = run()
        except BaseException:
            answer = {"error": traceback.format_exc()[-2000:]}
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)  # what is still there is the driver's to clean up
    os.close(writer)
    text = answer_of(reader, seconds)
    os.close(reader)
    if not text:
        os.kill(child, signal.SIGKILL)  # it may be hung, or gone
    status = os.waitpid(child, 0)[1]
    return json.loads(text) if text else {"error": f"no answer within {seconds:.0f} s, status {status}"}


def run_apart(job: Result) -> Result:
    """Makes a run in a process that begins anew."""
    command = [sys.executable, str(HERE / "run.py"), "here", json.dumps(job)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"no end after {RUN_SECONDS:.0f} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return json.loads(lines[-1][7:]) if lines else {"error": done.stderr[-2000:]}


def serve() -> None:
    """Imports what the runs need, and makes those it reads. If an import touches CUDA, forks are of no use."""
    import torch
    for module in ("torch_geometric.nn", "torchvision.models.detection", "transformers.models.llama"):
        try:
            importlib.import_module(module)
        except ImportError as error:
            print(f"{module} is not there: {error}", file=sys.stderr)
    probe = run_forked(lambda: {"error": torch.cuda.init()})
    if probe["error"]:
        print(f"CUDA cannot be used in forks, runs begin anew: {probe['error']}", file=sys.stderr)
    for line in sys.stdin:
        job = json.loads(line)
        answer = run_apart(job) if probe["error"] else run_forked(lambda: run_here(job))
        print("RESULT " + json.dumps(answer), flush=True)


class Servers:
    """A serving process for each setting of PyTorch."""

    def __init__(self) -> None:
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def start(self, setting: str) -> subprocess.Popen[str]:
        """One that is told the setting; asking whether there is a GPU must not initialise CUDA in it."""
        environment = dict(os.environ, CUBLAS_WORKSPACE_CONFIG=":4096:8", PYTORCH_NVML_BASED_CUDA_CHECK="1")
        if setting:
            environment["PYTORCH_CUDA_ALLOC_CONF"] = setting
        command = [sys.executable, str(HERE / "run.py"), "serve"]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def execute(self, job: Result) -> Result:
        """Has a run made, and waits for it."""
        setting = CONFIGURATION.get(job["allocator"], "")
        if setting not in self.processes:
            self.processes[setting] = self.start(setting)
        process = self.processes[setting]
        assert process.stdin is not None and process.stdout is not None
        began = time.monotonic()
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        for line in process.stdout:
            if line.startswith("RESULT "):
                return {**job, **json.loads(line[7:]), "wall_s": round(time.monotonic() - began, 1)}
        raise RuntimeError(f"the process that makes the runs ended with status {process.wait()}")


servers = Servers()


class Bench:
    """Makes runs that are not in the file yet, while there is time."""

    def __init__(self, path: str, seconds: float, commit: str) -> None:
        self.path = path
        self.deadline = time.monotonic() + seconds
        self.commit = commit
        self.results = read([path])
        self.is_late = False

    def run(self, job: Result) -> Optional[Result]:
        """The result of a run; None if there was no time for it."""
        known = self.results.get(key(job))
        if known is not None and "error" not in known:
            return known
        if self.is_late or time.monotonic() + RUN_SECONDS / 3 > self.deadline:
            self.is_late = True
            return None
        result = {**servers.execute(job), "commit": self.commit, "date": time.strftime("%Y-%m-%d")}
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
        self.results[key(job)] = result
        numbers = f"{result.get('median_ms', 0):.1f} ms, {result.get('reserved', 0) // MIB} MiB"
        print(f"{job['mode']} {job['workload']} {job['seed']} {job['allocator']}: {result.get('error') or numbers}",
              flush=True)
        return result


def measure_jobs(workloads: Sequence[str], repeats: int) -> Iterator[Result]:
    """Allocators take turns, so that a computer that becomes slower is slower for all of them. Everything comes
    once before anything comes again; further seeds are not repeated."""
    for repeat in range(repeats):
        for workload in workloads:
            for seed in range(3 if workload in THREE_SEEDS and repeat == 0 else 1):
                job = {"mode": "measure", "workload": workload, "seed": seed, "repeat": repeat}
                if repeat == 0:
                    yield {**job, "allocator": "demand"}
                for allocator in ALLOCATORS:
                    yield {**job, "allocator": allocator}


def losses_jobs(workloads: Sequence[str]) -> Iterator[Result]:
    """Two native runs, and ours."""
    for workload in workloads:
        for allocator, repeat in (("native", 0), ("native", 1), ("torch", 0), ("tide", 0)):
            yield {"mode": "losses", "workload": workload, "seed": 0, "allocator": allocator, "repeat": repeat}


def least_limit(bench: Bench, workload: str, allocator: str, low: int, high: int) -> Optional[int]:
    """The least limit that is enough, to 2 %, if `low` is too little; None if there was no time for all runs."""
    job = {"mode": "limits", "workload": workload, "seed": 0, "allocator": allocator, "repeat": 0}
    limit = high = high // (2 * MIB) * (2 * MIB)
    is_found = False  # a limit that is enough
    while not is_found or high > low * 1.02:
        result = bench.run({**job, "limit": limit})
        if result is None:
            return None
        if result.get("is_out_of_memory", True):
            low = limit
            high = high if is_found else int(high * 1.25)
        else:
            high, is_found = limit, True
        limit = ((low + high) // 2 if is_found else high) // (2 * MIB) * (2 * MIB)
    return high


# ---------------------------------------------------------------------------------------------------
# Tables


def measured(results: Sequence[Result], workload: str, seed: int, allocator: str) -> list[Result]:
    """The good runs of one allocator."""
    return [r for r in results if r["mode"] == "measure" and r["workload"] == workload and r["seed"] == seed
            and r["allocator"] == allocator and "median_ms" in r]


def cell(runs: Sequence[Result], wanted: int) -> str:
    """Reserved MiB, utilisation (what was asked for over what was reserved), time and its spread."""
    if not runs:
        return "-"
    times = [run["median_ms"] for run in runs]
    spread = max(times) / min(times) - 1
    reserved = max(run["reserved"] for run in runs)
    return f"{reserved // MIB} / {wanted / reserved:.3f} / {statistics.median(times):.1f} ms ({spread:.1%})"


def comparison(runs: dict[str, list[Result]]) -> str:
    """How much slower `tide` is than the fastest of the others, and how far apart native runs are."""
    times = {name: [run["median_ms"] for run in found] for name, found in runs.items() if found}
    if "tide" not in times or "native" not in times or len(times) < 2:
        return "-"
    fastest = min(statistics.median(found) for name, found in times.items() if name != "tide")
    spread = max(times["native"]) / min(times["native"]) - 1
    return f"{statistics.median(times['tide']) / fastest - 1:+.1%} ({spread:.1%})"


def measure_rows(results: Sequence[Result]) -> Iterator[list[str]]:
    """One row for each workload and seed."""
    for workload in WORKLOADS:
        for seed in range(3):
            wanted = [r["demand"] for r in measured(results, workload, seed, "demand")]
            if wanted:
                runs = {name: measured(results, workload, seed, name) for name in ALLOCATORS}
                cells = [cell(runs[name], wanted[0]) for name in ALLOCATORS]
                yield [workload, str(seed), str(wanted[0] // MIB), *cells, comparison(runs)]


def losses_rows(results: Sequence[Result]) -> Iterator[list[str]]:
    """One row for each workload: do two native runs agree, and do ours with them?"""
    words = {True: "equal", False: "different"}
    for workload in WORKLOADS:
        runs = {(r["allocator"], r["repeat"]): r.get("losses") for r in results
                if r["mode"] == "losses" and r["workload"] == workload}
        native = runs.get(("native", 0))
        if native is not None:
            others = [("native", 1), ("torch", 0), ("tide", 0)]
            yield [workload, *[words[runs.get(other) == native] for other in others]]


def limits_rows(results: Sequence[Result]) -> Iterator[list[str]]:
    """One row for each workload: the least limit at which it ran."""
    for workload in LIMITED:
        row = [workload]
        for allocator in ALLOCATORS:
            good = [r["limit"] for r in results if r["mode"] == "limits" and r["workload"] == workload
                    and r["allocator"] == allocator and not r.get("is_out_of_memory", True)]
            row.append(str(min(good) // MIB) if good else "-")
        if any(value != "-" for value in row[1:]):
            yield row


def table(head: Sequence[str], rows: Iterator[list[str]]) -> str:
    """In Markdown; empty without rows."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *lines, ""]) if lines else ""


def print_tables(paths: Sequence[str]) -> None:
    """All tables of some files."""
    results = list(read(paths).values())
    print(table(["workload", "seed", "asked for, MiB", *ALLOCATORS, "tide over the fastest (native spread)"], measure_rows(results)))
    print(table(["workload", "native again", "torch", "tide"], losses_rows(results)))
    print(table(["least limit, MiB", *ALLOCATORS], limits_rows(results)))


# ---------------------------------------------------------------------------------------------------
# The command


def do_limits(bench: Bench, workloads: Sequence[str]) -> None:
    """Bisects between what is asked for and what PyTorch's own allocator reserves."""
    for workload in workloads:
        job = {"mode": "measure", "workload": workload, "seed": 0, "repeat": 0}
        wanted = bench.run({**job, "allocator": "demand"})
        native = bench.run({**job, "allocator": "native"})
        if wanted is None or native is None or "demand" not in wanted or "reserved" not in native:
            continue
        for allocator in ALLOCATORS:
            found = least_limit(bench, workload, allocator, wanted["demand"], int(native["reserved"] * 1.05))
            print(f"{workload} {allocator}: {'no time left' if found is None else f'{found // MIB} MiB'}", flush=True)


def parse(arguments: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """Takes the command line apart."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["measure", "losses", "limits", "table", "serve", "here"])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--workloads", default="", help="some of " + ", ".join(WORKLOADS))
    parser.add_argument("--out", default="torch-bench.jsonl")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--commit", default="unknown", help="noted with each run")
    return parser.parse_args(arguments)


def main() -> None:
    """The command."""
    parsed = parse()
    if parsed.verb == "here":
        print("RESULT " + json.dumps(run_here(json.loads(parsed.files[0]))))
        return
    if parsed.verb == "serve":
        serve()
        return
    if parsed.verb == "table":
        print_tables(parsed.files)
        return
    names = [name for name in parsed.workloads.split(",") if name]
    bench = Bench(parsed.out, parsed.seconds, parsed.commit)
    if parsed.verb == "limits":
        do_limits(bench, names or LIMITED)
    elif parsed.verb == "measure":
        for job in measure_jobs(names or list(WORKLOADS), parsed.repeats):
            bench.run(job)
    else:
        for job in losses_jobs(names or list(WORKLOADS)):
            bench.run(job)
    if bench.is_late:
        print("there was no time for all runs: the same command goes on")
    print_tables([parsed.out])


if __name__ == "__main__":
    main()
