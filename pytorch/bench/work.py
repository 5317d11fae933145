# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""A process that runs workloads under one allocator, one after the other, controlled by its standard input.

A line is a call of a method of Worker as JSON, {"do": NAME, ...}; the answer is a line that begins with ANSWER.
Between two runs all memory goes back, so that every run begins with an empty cache.
"""
from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import pathlib
import sys
import time
import traceback
from typing import Any, Iterable, Optional, Sequence

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from tidemark.torch import build  # noqa: E402  (in the folder above)
from loops import LOOPS  # noqa: E402  (beside this file)
from workloads import WORKLOADS, Step  # noqa: E402

WITNESS = "witness"  # PyTorch's own a second time: records requests, and shows whether two runs agree
OURS = ("torch", "tide")
TIMED_CORES = 4  # the same for all processes, because other work may load cores differently
MODULES = ("torch_geometric.nn", "torchvision.models.detection", "transformers.models.llama")


def demand(entries: Iterable[dict[str, Any]]) -> int:
    """The peak of all requests in a history, each rounded to 512."""
    live = peak = 0
    sizes: dict[int, int] = {}
    for entry in entries:
        if entry["action"] == "alloc":
            sizes[entry["addr"]] = (entry["size"] + 511) // 512 * 512
            live += sizes[entry["addr"]]
            peak = max(peak, live)
        elif entry["action"] == "free_requested":
            live -= sizes.pop(entry["addr"], 0)
    return peak


class Worker:
    """The requests that this process answers."""

    def __init__(self, allocator: str) -> None:
        self.ours: Any = None
        if allocator in OURS:
            import tidemark.torch
            tidemark.torch.install(allocator)
            self.ours = tidemark.torch
        import torch
        self.torch = torch
        for module in MODULES:
            importlib.import_module(module)
        self.runtime = ctypes.CDLL(build.loaded_file("libcudart.so"))
        self.taken = ctypes.c_void_p()  # memory that is occupied to enforce a limit
        self.cores = sorted(os.sched_getaffinity(0))
        self.is_witness = allocator == WITNESS
        self.run: Optional[Step] = None
        self.calls: dict[str, int] = {}

    def begin(self, workload: str, seed: int, is_exact: bool, is_timed: bool, limit: Optional[int]) -> dict[str, Any]:
        """Prepares a workload, deterministically if its losses are compared. Returns what earlier runs left reserved."""
        self.clear()
        set_cores(self.cores[-TIMED_CORES:] if is_timed else self.cores)
        self.torch.use_deterministic_algorithms(is_exact)
        self.torch.backends.cuda.enable_cudnn_sdp(not is_exact)  # its attention adds in no fixed order
        if self.is_witness:
            self.torch.cuda.memory._record_memory_history(context=None, max_entries=4_000_000)
        left = self.torch.cuda.memory_reserved()
        self.run = {**WORKLOADS, **LOOPS}[workload](self.torch, seed)
        if limit is not None:
            self.take_memory(limit)
        self.new_calls()  # calls of the first step are counted from here
        return {"left": left}

    def step(self, number: int) -> dict[str, Any]:
        """A step, its time and its loss."""
        assert self.run is not None
        self.torch.cuda.synchronize()
        began = time.perf_counter()
        loss = self.run(number)
        self.torch.cuda.synchronize()
        took = time.perf_counter() - began
        return {"ms": took * 1e3, "loss": float(loss).hex(), "calls": self.new_calls()}

    def steps(self, first: int, count: int) -> dict[str, Any]:
        """Several steps with one wait at their end, their time, and the last loss."""
        assert self.run is not None
        self.torch.cuda.synchronize()
        began = time.perf_counter()
        for number in range(first, first + count):
            loss = self.run(number)
        self.torch.cuda.synchronize()
        took = time.perf_counter() - began
        return {"ms": took * 1e3, "loss": float(loss).hex(), "calls": self.new_calls()}

    def end(self) -> dict[str, Any]:
        """The memory and calls of the run."""
        cuda = self.torch.cuda
        stats = cuda.memory_stats()
        allocated = stats["allocated_bytes.all.peak"]
        answer = {"allocated": allocated, "active": max(allocated, stats.get("active_bytes.all.peak", 0)),
                  "reserved": stats["reserved_bytes.all.peak"],
                  "torch": self.torch.__version__, "gpu": cuda.get_device_name()}
        if self.ours is not None:
            answer["views"] = self.ours.stats()["views"]  # since the process began
        if self.is_witness:
            answer["demand"] = demand(cuda.memory._snapshot()["device_traces"][0])
            cuda.memory._record_memory_history(enabled=None)
        self.clear()
        return answer

    def clear(self) -> None:
        """Frees everything that a run left, even a failed one."""
        self.run = None
        self.forget_graphs()
        gc.collect()
        self.torch.cuda.synchronize()
        self.runtime.cudaFree(self.taken)
        self.taken = ctypes.c_void_p()
        self.torch._C._cuda_clearCublasWorkspaces()
        self.torch.cuda.empty_cache()
        self.torch.cuda.reset_peak_memory_stats()

    def forget_graphs(self) -> None:
        """Drops compiled code and its graph trees: their pools would count as memory of every later run."""
        trees = sys.modules.get("torch._inductor.cudagraph_trees")
        if trees is not None:
            self.torch.compiler.reset()
            trees.reset_cudagraph_trees()

    def take_memory(self, limit: int) -> None:
        """Occupies so much of the GPU that PyTorch's allocator can reserve at most `limit` bytes.

        PyTorch's own limit does not help: with cudaMallocAsync it counts allocated memory, not reserved memory.
        """
        cuda = self.torch.cuda
        cuda.empty_cache()
        surplus = cuda.mem_get_info()[0] + cuda.memory_reserved() - limit
        if self.runtime.cudaMalloc(ctypes.byref(self.taken), ctypes.c_size_t(surplus)) != 0:
            self.taken = ctypes.c_void_p()
            raise self.torch.OutOfMemoryError("the workload holds more than the limit before its first step")

    def new_calls(self) -> dict[str, int]:
        """The driver calls of our allocator since the last call of this function."""
        if self.ours is None:
            return {}
        before = self.calls
        self.calls = {name: found["calls"] for name, found in self.ours.stats()["driver_calls"].items()}
        news = {name: count - before.get(name, 0) for name, count in self.calls.items()}
        return {name: count for name, count in news.items() if count}


def set_cores(cores: Sequence[int]) -> None:
    """Keeps all threads of this process on some cores."""
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread), cores)


def serve(worker: Any) -> None:
    """Answers the lines of the standard input. A RuntimeError may mean out of memory, which libraries report in many
    ways. After an error no memory is kept that others may need."""
    for line in sys.stdin:
        call = json.loads(line)
        try:
            answer = getattr(worker, call.pop("do"))(**call)
        except Exception as error:
            answer = {"error": traceback.format_exc()[-2000:], "is_runtime": isinstance(error, RuntimeError)}
        if "error" in answer:
            worker.clear()  # here, where the exception holds no references any more
        print("ANSWER " + json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(Worker(sys.argv[1]))
