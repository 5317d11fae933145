# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Programs without a fixed pattern of sizes: time and memory of each allocator, and of `tide` over tide_most_slack.

    chaos.py [--loads L,L] [--requests N] [--slacks S,S] [--repeats R] [--out FILE]

Two loads on one GPU. They compute next to nothing, so that the time is that of Python and of the allocator:
    sizes    tensors of 512 B to 512 MiB on three streams, a fifth of them also used on a second stream; 12 to 20 GiB
             are live
    server   sessions of 32 to 8192 tokens come, grow by 64 tokens at a time, and go, beside weights of 4 GiB; prompts
             on one stream, growth on another

Each run is a process of its own, one after the other: PyTorch's allocator first and last, expandable segments,
Tidemark's policy `torch`, the default of `tide`, and `tide` with each slack. A line for each: the time of an allocation
from the 50,000th on, the peaks of allocated and reserved memory, their ratio, and the resident memory of the process at
the 50,000th allocation and at the end. With --out, the runs are also written to FILE as lines of JSON, those of Tidemark
with its driver calls for an allocation, from the 50,000th on.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import time
from typing import Any, Callable, Iterator

HERE = pathlib.Path(__file__).resolve().parent
MIB, GIB = 1 << 20, 1 << 30
WARM = 50_000  # allocations before the time counts
FILLED = 0.05  # the part of tensors that are written to
SLACKS = (0.05, 0.08, 0.1, 0.12, 0.14, 0.16, 0.2, 0.3)

Result = dict[str, Any]
Load = Callable[[Any, random.Random], Iterator[None]]


# ---------------------------------------------------------------------------------------------------
# Loads: each is a generator that allocates once for each value it yields


def sizes(memory: Any, draw: random.Random) -> Iterator[None]:
    """Random tensors on three streams, released in random order."""
    live: list[Any] = []
    held = 0
    while True:
        stream = draw.randrange(3)
        block = memory.take(int(2 ** draw.uniform(9, 29)), stream, draw.random() < FILLED)
        if draw.random() < 0.2:
            memory.use(block, (stream + 1) % 3)
        live.append(block)
        held += memory.bytes_of(block)
        del block
        yield
        while held > 20 * GIB * (0.6 + 0.4 * draw.random()):
            index = draw.randrange(len(live))
            live[index], live[-1] = live[-1], live[index]
            held -= memory.bytes_of(live.pop())


TOKEN_BYTES = 8 << 10  # of a token in each of the tensors of a session
SESSION_TENSORS = 8
SERVED_TOKENS = 1 << 17  # of all sessions


def server(memory: Any, draw: random.Random) -> Iterator[None]:
    """Sessions of a server: prompts take work memory for a moment, caches grow by copies into larger ones."""
    weights = [memory.take(128 * MIB, 0, False) for _ in range(32)]
    sessions: list[tuple[int, list[Any]]] = []
    served = 0
    while weights:
        tokens = int(2 ** draw.uniform(5, 13))
        if served + tokens <= SERVED_TOKENS:
            work = []
            for part in (3, 4, 0.5):
                work.append(memory.take(int(part * tokens * TOKEN_BYTES), 0, draw.random() < FILLED))
                yield
            cache = []
            for _ in range(SESSION_TENSORS):
                cache.append(memory.take(tokens * TOKEN_BYTES, 0, False))
                memory.use(cache[-1], 1)
                yield
            sessions.append((tokens, cache))
            served += tokens
            del work, cache
        index = draw.randrange(len(sessions))
        tokens, cache = sessions[index]
        if draw.random() < 1 / 16 or served + 64 > SERVED_TOKENS:
            sessions[index] = sessions[-1]
            sessions.pop()
            served -= tokens
        else:
            for i in range(SESSION_TENSORS):
                cache[i] = memory.take((tokens + 64) * TOKEN_BYTES, 1, False)
                yield
            sessions[index] = tokens + 64, cache
            served += 64
        del cache


LOADS: dict[str, Load] = {"sizes": sizes, "server": server}


class Memory:
    """Tensors of bytes on the streams of a GPU."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]

    def take(self, count: int, stream: int, is_filled: bool) -> Any:
        """A tensor of a stream."""
        with self.torch.cuda.stream(self.streams[stream]):
            block = self.torch.empty(count, dtype=self.torch.uint8, device="cuda")
            if is_filled:
                block.zero_()
        return block

    def use(self, block: Any, stream: int) -> None:
        """Announces the use on another stream."""
        block.record_stream(self.streams[stream])

    def bytes_of(self, block: Any) -> int:
        """The size of a tensor."""
        return int(block.numel())


# ---------------------------------------------------------------------------------------------------
# Runs


def resident_mib() -> int:
    """The resident memory of this process."""
    with open("/proc/self/status", encoding="utf-8") as file:
        return int(next(line for line in file if line.startswith("VmRSS")).split()[1]) >> 10


def measure(load: Iterator[None], requests: int, synchronize: Callable[[], None],
            count_calls: Callable[[], dict[str, int]]) -> Result:
    """Runs a load; times and driver calls count from the WARM-th allocation on."""
    warm = min(WARM, requests // 2)
    for _ in range(warm):
        next(load)
    synchronize()
    result: Result = {"warm_mib": resident_mib()}
    before = count_calls()
    begin = time.perf_counter()
    for _ in range(requests - warm):
        next(load)
    synchronize()
    result["us"] = round((time.perf_counter() - begin) / (requests - warm) * 1e6, 2)
    result["end_mib"] = resident_mib()
    result["calls"] = {name: round((count - before.get(name, 0)) / (requests - warm), 3)
                       for name, count in count_calls().items()}
    return result


def run_here(job: Result) -> Result:
    """A run in this process."""
    ours: Any = None
    if job["allocator"] in ("torch", "tide"):
        sys.path[:0] = [str(HERE.parent)]
        import tidemark.torch as ours
        options = {} if job["slack"] is None else {"tide_most_slack": job["slack"]}
        ours.install(job["allocator"], way="class", **options)
    import torch
    torch.cuda.init()
    load = LOADS[job["load"]](Memory(torch), random.Random(job["seed"]))

    def count_calls() -> dict[str, int]:
        calls = ours.stats()["driver_calls"] if ours is not None else {}
        return {name: found["calls"] for name, found in calls.items()}

    result = measure(load, job["requests"], torch.cuda.synchronize, count_calls)
    stats = torch.cuda.memory_stats()
    for name in ("allocated", "active", "reserved"):
        result[name] = stats[f"{name}_bytes.all.peak"]
    return {**job, **result, "torch": torch.__version__, "gpu": torch.cuda.get_device_name()}


def run_apart(job: Result) -> Result:
    """A run in a process of its own."""
    environment = dict(os.environ)
    if job["allocator"] == "expandable":
        environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    command = [sys.executable, str(HERE / "chaos.py"), "--job", json.dumps(job)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return json.loads(lines[-1][7:]) if lines else {**job, "error": f"status {done.returncode}"}


def jobs_of(load: str, slacks: list[float], requests: int, seed: int) -> list[Result]:
    """The runs of a load."""
    runs = [("native", None), ("expandable", None), ("torch", None), ("tide", None),
            *[("tide", slack) for slack in slacks], ("native", None)]
    return [{"load": load, "allocator": allocator, "slack": slack, "requests": requests, "seed": seed}
            for allocator, slack in runs]


def row(result: Result, native: float) -> str:
    """A line about a run."""
    slack = "" if result["slack"] is None else f" {result['slack']:g}"
    name = f"{result['load']:<7} {result['allocator'] + slack:<11}"
    if "error" in result:
        return f"{name} {result['error']}"
    return (f"{name} {result['us']:8.1f} us {result['us'] / native:6.2f} x  in use "
            f"{result['allocated'] / result['reserved']:.3f}  allocated {result['allocated'] // MIB:6} MiB  reserved "
            f"{result['reserved'] // MIB:6} MiB  resident {result['warm_mib']} to {result['end_mib']} MiB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", default=",".join(LOADS))
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--slacks", default=",".join(map(str, SLACKS)))
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--out")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.job is not None:
        print("RESULT " + json.dumps(run_here(json.loads(words.job))), flush=True)
        return 0
    slacks = [float(word) for word in words.slacks.split(",") if word]
    failures = 0
    for load in words.loads.split(","):
        for seed in range(words.repeats):
            native = None
            for job in jobs_of(load, slacks, words.requests, seed):
                result = run_apart(job)
                failures += "error" in result
                native = native or result.get("us")
                print(row(result, native or 1.0), flush=True)
                if words.out:
                    with open(words.out, "a", encoding="utf-8") as file:
                        file.write(json.dumps(result) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
