# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""A transformer that is larger than its share of the card: 60 GiB of weights under a budget of 24 GiB.

    offload.py [--layers N] [--budget GIB] [--tokens N]

Two jobs: `generate` makes tokens one by one, and the bus is what takes time; `read` passes 8192 tokens at once, and the
layers compute about as long as the bus copies. Both run in these ways:

    in place    PyTorch's allocator, without a budget: the answers that `tide` must give bit for bit
    hooks       each layer is copied from pinned memory before it computes, and dropped after it, as offloading tools do
    split       the same, but as many layers as fit stay in place
    pageable    hooks, and memory that is not pinned; one pass only
    tide        Tidemark: the layers yield, with a budget for all of them

The bound of a pass is the longer of two times: that of the layers in place, and that of copying what does not fit at the
rate of a plain pinned copy. The allocators have a process each; what a way takes is the median of its last passes.
"""
from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import mmap
import os
import pathlib
import statistics
import subprocess
import sys
import time

GIB = 1 << 30
WIDTH, INNER, HEADS, VOCABULARY = 5120, 27648, 40, 32000
BATCH, PROMPT = 4, 64  # of the job `generate`
READ = (4, 2048)  # batch and length of the job `read`
READ_PASSES = 7
WARM = 4  # passes that are not counted: the order of the layers is learnt from the first ones


def layer_of(torch, seed):
    """A layer of 0.99 GiB: attention, with what it keeps of earlier tokens, and a gated linear unit."""
    functional = torch.nn.functional

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            made = {"device": "cuda", "dtype": torch.bfloat16}
            self.mixed = torch.nn.Parameter(torch.empty(3 * WIDTH, WIDTH, **made), requires_grad=False)
            self.joined = torch.nn.Parameter(torch.empty(WIDTH, WIDTH, **made), requires_grad=False)
            self.wide = torch.nn.Parameter(torch.empty(2 * INNER, WIDTH, **made), requires_grad=False)
            self.narrow = torch.nn.Parameter(torch.empty(WIDTH, INNER, **made), requires_grad=False)
            generator = torch.Generator("cuda").manual_seed(seed)
            for weight in self.parameters():
                weight.data.normal_(std=weight.shape[1] ** -0.5, generator=generator)

        def forward(self, tokens, kept):
            batch, length, _ = tokens.shape
            heads = functional.linear(functional.rms_norm(tokens, (WIDTH,)), self.mixed)
            query, key, value = heads.view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
            if kept is not None:
                kept.append((key, value))
                key, value = (torch.cat(each, dim=2) for each in zip(*kept))
            found = functional.scaled_dot_product_attention(query, key, value, is_causal=length > 1)
            tokens = tokens + functional.linear(found.transpose(1, 2).reshape(batch, length, WIDTH), self.joined)
            inner, gate = functional.linear(functional.rms_norm(tokens, (WIDTH,)), self.wide).chunk(2, dim=-1)
            return tokens + functional.linear(inner * functional.silu(gate), self.narrow)

    return Layer()


class Model:
    """Layers between words and words."""

    def __init__(self, torch, layers):
        self.torch, self.layers = torch, layers
        generator = torch.Generator("cuda").manual_seed(1000)
        self.words = torch.randn(VOCABULARY, WIDTH, device="cuda", dtype=torch.bfloat16, generator=generator)

    def passed(self, words, kept=None):
        """The scores of the next word, for each sequence."""
        functional = self.torch.nn.functional
        tokens = functional.embedding(words, self.words)
        for number, layer in enumerate(self.layers):
            tokens = layer(tokens, kept[number] if kept else None)
        return functional.linear(functional.rms_norm(tokens[:, -1], (WIDTH,)), self.words)

    def prompt(self, shape):
        return self.torch.randint(VOCABULARY, shape, device="cuda", generator=self.torch.Generator("cuda").manual_seed(7))


def timed(torch, digest, function):
    """What `function` returns, and its seconds; its scores are added to the digest."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    scores = function()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    copy = scores.contiguous().view(torch.uint8).cpu()
    digest.update(ctypes.string_at(copy.data_ptr(), copy.nbytes))
    return scores, seconds


def generate(torch, model, passes):
    digest, seconds, kept = hashlib.sha256(), [], [[] for _ in model.layers]
    words = model.prompt((BATCH, PROMPT))
    for _ in range(passes):
        given = words
        scores, took = timed(torch, digest, lambda: model.passed(given, kept))
        words = scores.argmax(dim=-1, keepdim=True)
        seconds.append(took)
    return seconds, digest.hexdigest()


def read(torch, model, passes):
    digest, seconds = hashlib.sha256(), []
    words = model.prompt(READ)
    for number in range(passes):
        _, took = timed(torch, digest, lambda: model.passed((words + number) % VOCABULARY))
        seconds.append(took)
    return seconds, digest.hexdigest()


def run(torch, model, asked, way, passes=None):
    """Both jobs, each in a line of JSON."""
    with torch.no_grad():
        for job, function, count in (("generate", generate, asked.tokens), ("read", read, READ_PASSES)):
            seconds, digest = function(torch, model, passes or count)
            print(json.dumps({"way": way, "job": job, "seconds": seconds, "digest": digest,
                              "passes": passes or count}), flush=True)


def host_memory(torch, size):
    """Memory of the host, in huge pages that are touched."""
    memory = mmap.mmap(-1, size)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8).fill_(1)


def bus_rate(torch):
    """Bytes in a second of a plain copy from pinned memory."""
    host = torch.empty(2 * GIB, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(2 * GIB, dtype=torch.uint8, device="cuda")
    rates = []
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        there.copy_(host, non_blocking=True)
        torch.cuda.synchronize()
        rates.append(host.nbytes / (time.perf_counter() - begin))
    return statistics.median(rates)


def drop_after(layer, host):
    """Makes hooks that copy the weights of a layer before it computes, and drop them after it."""
    def come(_module, _given):
        for weight, copy in zip(layer.parameters(), host):
            weight.data = copy.cuda()

    def go(_module, _given, _answer):
        for weight, copy in zip(layer.parameters(), host):
            weight.data = copy
    go(None, None, None)
    return [layer.register_forward_pre_hook(come), layer.register_forward_hook(go)]


def others(asked):
    """The ways without Tidemark, in one process."""
    import torch
    layers = [layer_of(torch, number) for number in range(asked.layers)]
    model = Model(torch, layers)
    size = sum(weight.nbytes for weight in layers[0].parameters())
    print(json.dumps({"bus": bus_rate(torch), "bytes": size * asked.layers}), flush=True)
    run(torch, model, asked, "in place")
    begin = time.perf_counter()
    memory = host_memory(torch, size * asked.layers)
    check = torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), memory.nbytes, 0)
    assert int(check) == 0, f"cudaHostRegister: {check}"
    hosts = []
    for number, layer in enumerate(layers):
        at, host = number * size, []
        for weight in layer.parameters():
            host.append(memory[at:at + weight.nbytes].view(torch.bfloat16).view(weight.shape).copy_(weight.data))
            at += weight.nbytes
        hosts.append(host)
    print(f"the host's memory took {time.perf_counter() - begin:.1f} s", file=sys.stderr)
    staying = (int(asked.budget * GIB) - size) // size  # beside the layer that computes
    coming = sorted({(number * asked.layers) // (asked.layers - staying) for number in range(asked.layers - staying)})
    hooks = {number: drop_after(layers[number], hosts[number]) for number in coming}
    run(torch, model, asked, "split", WARM + 2)
    for number in set(range(asked.layers)) - set(coming):
        hooks[number] = drop_after(layers[number], hosts[number])
    torch.cuda.empty_cache()
    run(torch, model, asked, "hooks", WARM + 2)
    torch.cuda.cudart().cudaHostUnregister(memory.data_ptr())
    run(torch, model, asked, "pageable", 1)


def tide(asked):
    """Layers with a tag each, and a budget for all."""
    import tidemark.torch
    tidemark.torch.install(policy="tide")
    import torch
    tidemark.torch.budget({"model": {"limit": int(asked.budget * GIB), "yields": True, "constant": True}})
    begin, layers = time.perf_counter(), []
    for number in range(asked.layers):
        with tidemark.torch.region(f"model/{number}"):
            layers.append(layer_of(torch, number))
        tidemark.torch.use_in(layers[-1], f"model/{number}")
    torch.cuda.synchronize()
    print(f"making the layers took {time.perf_counter() - begin:.1f} s", file=sys.stderr)
    model = Model(torch, layers)
    before = tidemark.torch.tags()["model"]
    run(torch, model, asked, "tide")
    after = tidemark.torch.tags()["model"]
    moved = {name: after[name] - before[name] for name in ("fetched_bytes", "sent_bytes", "fetched_count", "ahead_count")}
    assert after["peak_reserved_bytes"] <= asked.budget * GIB, "the budget was exceeded"
    print(json.dumps({"tide": moved, "peak": after["peak_reserved_bytes"]}), flush=True)


def lines_of(way, asked):
    """What the process of a way printed."""
    command = [sys.executable, __file__, "--way", way, "--layers", str(asked.layers), "--budget", str(asked.budget),
               "--tokens", str(asked.tokens)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False,
                          env=dict(os.environ, CUBLAS_WORKSPACE_CONFIG=":4096:8"))
    if done.returncode:
        print(f"{way}: status {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def table(results, facts, asked):
    """Prints a row for each way and job; True if all answers are equal."""
    missing = facts["bytes"] - asked.budget * GIB
    are_equal = True
    for job in ("generate", "read"):
        rows = {each["way"]: each for each in results if each["job"] == job}
        whole = rows["in place"]
        work = statistics.median(whole["seconds"][WARM:])
        bound = max(work, missing / facts["bus"])
        print(f"{job}: {facts['bytes'] / GIB:.1f} GiB, in place {1e3 * work:.0f} ms a pass, "
              f"bus {facts['bus'] / GIB:.1f} GiB/s, bound {1e3 * bound:.0f} ms")
        for way, row in rows.items():
            took = statistics.median(row["seconds"][WARM:] or row["seconds"][-1:])
            same = row["digest"] == whole["digest"] if row["passes"] == whole["passes"] else None
            are_equal = are_equal and same is not False
            print(f"  {way:10} {1e3 * took:8.0f} ms a pass, {took / bound:6.2f} of the bound, first passes "
                  f"{' '.join(f'{1e3 * each:.0f}' for each in row['seconds'][:WARM])} ms, "
                  f"{ {True: 'same answers', False: 'OTHER ANSWERS', None: 'fewer passes'}[same]}")
    return are_equal


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=61)
    parser.add_argument("--budget", type=float, default=24.0)
    parser.add_argument("--tokens", type=int, default=12)
    parser.add_argument("--way", choices=("others", "tide"))
    asked = parser.parse_args()
    if asked.way:
        return {"others": others, "tide": tide}[asked.way](asked)
    lines = lines_of("others", asked) + lines_of("tide", asked)
    facts = {name: value for line in lines if "job" not in line for name, value in line.items()}
    print(json.dumps(facts))
    return 0 if table([line for line in lines if "job" in line], facts, asked) else 1


if __name__ == "__main__":
    sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent)]
    sys.exit(main())
