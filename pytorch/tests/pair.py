# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Two jobs that share a GPU: the processes of the case ledger_pair in budget_cases.py.

    python pair.py train SECONDS                joins the ledger of TIDEMARK_LEDGER
    python pair.py generate SECONDS [LEDGER]    without a ledger it is alone, and its model never yields

Each prints READY, waits for a line, works for so many seconds, and prints RESULT and a line of JSON.
"""
from __future__ import annotations

import ctypes
import hashlib
import json
import math
import os
import sys
import time

GIB = 1 << 30
TOTAL = 8 * GIB  # of the ledger
WAIT = 60  # seconds that a request waits for the other process at most

# Training: a model of 0.5 GiB, as much for gradients, and 256 KiB of activations for each sample.
TRAIN_WIDTH, TRAIN_LAYERS = 4096, 8
BATCHES = [2048 * part for part in range(1, 9)]  # the last one needs 4 GiB for activations
BATCH_SECONDS = 0.25  # that each size is trained at least: the generator gets its turn with the small ones

# Generating: a model of 4 GiB, and a cache of 1.5 GiB for each answer.
WIDTH, LAYERS, ROWS, STEPS = 8192, 32, 2048, 24
PROMPTS = 4


def started():
    """Tells that everything is made, and waits for the other process."""
    print("READY now", flush=True)
    sys.stdin.readline()
    return time.monotonic()


def train(torch, _tide, seconds):
    """Trains with batches that grow, again and again."""
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(1)
    layers = []
    for _ in range(TRAIN_LAYERS):
        layers += [torch.nn.Linear(TRAIN_WIDTH, TRAIN_WIDTH, bias=False), torch.nn.GELU()]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    counts, losses = dict.fromkeys(BATCHES, 0), []

    def step(batch):
        given = torch.randn(batch, TRAIN_WIDTH, device="cuda")
        loss = (model(given) - 1).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        counts[batch] += 1

    step(BATCHES[0])
    begin = started()
    while time.monotonic() - begin < seconds:
        for batch in BATCHES:
            of_batch = time.monotonic()
            while True:
                step(batch)
                if time.monotonic() - of_batch >= BATCH_SECONDS:
                    break
    return {"counts": [counts[batch] for batch in BATCHES], "is_finite": all(map(math.isfinite, losses)),
            "first": losses[0], "last": losses[-1]}


def made_model(torch, tide):
    """Layers in regions of their own. While a region is open, its memory stays."""
    layers = []
    for number in range(LAYERS):
        with tide.region(f"model/{number}"):
            layers.append(torch.nn.Linear(WIDTH, WIDTH, bias=False, device="cuda", dtype=torch.float16))
        tide.use_in(layers[-1], f"model/{number}")
    return layers


def content(tensor):
    """The bytes of a tensor."""
    copy = tensor.contiguous().cpu()
    return ctypes.string_at(copy.data_ptr(), copy.nbytes)


def answer(torch, layers, prompt):
    """The digest of an answer, whose steps depend on all before. Only the model yields."""
    generator = torch.Generator("cuda").manual_seed(prompt)
    given = torch.randn(ROWS, WIDTH, generator=generator, device="cuda", dtype=torch.float16)
    cache = torch.empty(STEPS, ROWS, WIDTH, device="cuda", dtype=torch.float32)
    digest = hashlib.sha256()
    for number in range(STEPS):
        cache[number] = given
        for layer in layers:
            given = torch.tanh(2 * layer(given))  # of the same magnitude after many layers
        given = given + cache[:number + 1].mean(dim=0).half()
        digest.update(content(given[number]))
    digest.update(content(given))
    return digest.hexdigest()


def generate(torch, tide, seconds):
    """Answers the prompts in turn, each at least once."""
    torch.manual_seed(2)
    layers = made_model(torch, tide)
    if len(sys.argv) > 3:
        tide.prepare_backup("model")
        tide.budget({"model": {"yields": True, "constant": True}})
    digests = [set() for _ in range(PROMPTS)]
    begin, count = started(), 0
    with torch.no_grad():
        while count < PROMPTS or time.monotonic() - begin < seconds:
            digests[count % PROMPTS].add(answer(torch, layers, count % PROMPTS))
            count += 1
    return {"answers": count, "digests": [sorted(each) for each in digests],
            "parked_count": tide.tags().get("model", {}).get("parked_count", 0)}


def main():
    import torch
    import tidemark.torch as tide

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    tide.install("tide", way="class")
    role, seconds = sys.argv[1], float(sys.argv[2])
    if role == "generate" and len(sys.argv) > 3:
        # Its memory can be moved away and that of the other cannot, so the other goes first.
        tide.join_ledger(sys.argv[3], total=TOTAL, wait=WAIT, priority=0, member="generate")
    result = {"train": train, "generate": generate}[role](torch, tide, seconds)
    torch.cuda.synchronize()
    result.update(peak=torch.cuda.max_memory_reserved(), ooms=torch.cuda.memory_stats()["num_ooms"])
    print("RESULT", json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
