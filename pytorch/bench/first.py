# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""How much longer the first steps of workloads take than with PyTorch's own allocator, with and without reserved memory.

    first.py [--workloads W,W] [--repeats N] [--steps N] [--out FILE]

Each variant has a process, and the processes take turns. A process runs a workload once, so that the GPU's code is loaded,
and gives all memory back; then it builds the workload again and times each step, with a wait after each. The variant
`reserve` reserves the peak of the run before, and then builds. A step counts with the fastest of its repeats. The table has the
first step, and the step that is longest in comparison with native's same step.
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from typing import Any

from work import Worker
from workloads import WORKLOADS

VARIANTS = ("native", "tide", "reserve")
ANSWER = "first: "


def repeat(worker: Worker, workload: str, steps: int, reserved: int) -> list[float]:
    """The times of the steps of one run, in milliseconds."""
    worker.clear()
    worker.torch.cuda.reset_peak_memory_stats()
    if reserved:
        worker.ours.reserve(reserved)
    worker.run = WORKLOADS[workload](worker.torch, 0)
    return [worker.step(number)["ms"] for number in range(steps)]


def serve(variant: str) -> None:
    """Answers lines, each a workload and the number of its steps."""
    worker = Worker("native" if variant == "native" else "tide")
    peaks: dict[str, int] = {}
    for line in sys.stdin:
        workload, steps = json.loads(line)
        answer = repeat(worker, workload, steps, peaks.get(workload, 0))
        if variant == "reserve":
            peaks[workload] = worker.torch.cuda.max_memory_allocated()
        worker.clear()
        print(ANSWER + json.dumps(answer), flush=True)


def start(variant: str) -> subprocess.Popen[str]:
    environment = dict(os.environ, CUBLAS_WORKSPACE_CONFIG=":4096:8")
    return subprocess.Popen([sys.executable, os.path.abspath(__file__), "--variant", variant], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True, env=environment)


def ask(process: subprocess.Popen[str], call: list[Any]) -> list[float]:
    assert process.stdin is not None and process.stdout is not None
    print(json.dumps(call), file=process.stdin, flush=True)
    for line in process.stdout:
        if line.startswith(ANSWER):
            found: list[float] = json.loads(line[len(ANSWER):])
            return found
    raise SystemExit("a process has ended")


def fastest(runs: list[list[float]]) -> list[float]:
    return [min(times) for times in zip(*runs)]


def report(workload: str, runs: dict[str, list[list[float]]]) -> None:
    native = fastest(runs["native"])
    for variant in VARIANTS:
        steps = fastest(runs[variant])
        longer = [own - theirs for own, theirs in zip(steps, native)]
        worst = max(range(len(longer)), key=longer.__getitem__)
        print(f"{workload:18} {variant:8} first {steps[0]:9.1f} ms, {longer[0]:+8.1f}; longest in comparison: "
              f"step {worst}, {longer[worst]:+8.1f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--out", help="a file that gets all times, as JSON")
    parser.add_argument("--variant", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.variant:
        serve(given.variant)
        return
    processes = {variant: start(variant) for variant in VARIANTS}
    for workload in given.workloads.split(","):
        runs: dict[str, list[list[float]]] = {variant: [] for variant in VARIANTS}
        for turn in range(given.repeats + 1):
            for variant, process in processes.items():
                times = ask(process, [workload, given.steps])
                if turn > 0:  # before, code is loaded
                    runs[variant].append(times)
        report(workload, runs)
        if given.out:
            with open(given.out, "a", encoding="utf-8") as file:
                print(json.dumps({"workload": workload, "runs": runs}), file=file)
    for process in processes.values():
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


if __name__ == "__main__":
    main()
