# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Two models take turns on one card: while one computes, the other is parked in host memory.

The process may have 3 GiB of the card, and each model has 2 GiB of weights. Addresses stay, so nothing is captured again.
"""
import time

import tidemark.torch

tidemark.torch.install(policy="tide")  # before CUDA is used

import torch  # noqa: E402

GIB = 1 << 30
NAMES = ("actor", "critic")


def make(name, width=8192, layers=16):
    """A model whose weights have a tag, what is given to it, a graph of it, and what that computes."""
    with tidemark.torch.region(name):
        model = torch.nn.Sequential(*[torch.nn.Linear(width, width, bias=False, device="cuda", dtype=torch.float16)
                                      for _ in range(layers)])
    given = torch.randn(8, width, device="cuda", dtype=torch.float16)
    with torch.no_grad():
        model(given)  # cuBLAS gets its memory before the capture
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = model(given)
    return model, given, graph, got


def main():
    torch.cuda.set_per_process_memory_fraction(3 * GIB / torch.cuda.mem_get_info()[1])
    made, answers = {}, {}
    for name in NAMES:
        made[name] = make(name)
        done = tidemark.torch.park(name)
        print(f"{name}: {done.block_bytes / GIB:.1f} GiB are parked, {torch.cuda.memory_reserved() / GIB:.1f} GiB are reserved")
    for turn in range(6):
        name = NAMES[turn % 2]
        begin = time.perf_counter()
        tidemark.torch.unpark(name, keep_backup=True)  # the next park() needs no new host memory
        _, _, graph, got = made[name]
        graph.replay()  # behind the copies: the host does not wait
        torch.cuda.synchronize()
        there = time.perf_counter()
        answer = answers.setdefault(name, got.clone())
        assert torch.equal(answer, got), "the answer of a graph changed while its model was away"
        tidemark.torch.park(name)
        away = time.perf_counter()
        print(f"turn {turn}: {name} came and answered in {1e3 * (there - begin):.0f} ms, and left in {1e3 * (away - there):.0f} ms")


if __name__ == "__main__":
    main()
