# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""A model that is larger than its share of the card: 6 GiB of weights compute within 2 GiB, and the answers are the same.

Each layer has a tag below "model", which yields. A layer that needs room makes others step aside, and the next one comes while
the present one computes. The code of the model does not change.
"""
import time

import tidemark.torch

tidemark.torch.install(policy="tide")  # before CUDA is used

import torch  # noqa: E402

GIB = 1 << 30
LAYERS, WIDTH = 48, 8192  # 128 MiB each


def make():
    """The model, whose layers have a tag each. Those that do not fit are parked while the others are made."""
    torch.manual_seed(0)
    layers = []
    for number in range(LAYERS):
        with tidemark.torch.region(f"model/{number}"):
            layer = torch.nn.Linear(WIDTH, WIDTH, bias=False, device="cuda", dtype=torch.float16)
        tidemark.torch.use_in(layer, f"model/{number}")
        layers += [layer, torch.nn.LayerNorm(WIDTH, elementwise_affine=False)]
    return torch.nn.Sequential(*layers)


def answer(model, given):
    """What the model computes, and the seconds that it takes."""
    begin = time.perf_counter()
    with torch.no_grad():
        got = model(given)
    torch.cuda.synchronize()
    return got, time.perf_counter() - begin


def main():
    tidemark.torch.budget({"model": {"limit": "2GiB", "yields": True, "constant": True}})
    model = make()
    given = torch.randn(8, WIDTH, device="cuda", dtype=torch.float16)
    answers = []
    for turn in range(6):
        before = tidemark.torch.tags()["model"]
        got, seconds = answer(model, given)
        after = tidemark.torch.tags()["model"]
        answers.append(got)
        came, went = ((after[name] - before[name]) / GIB for name in ("fetched_bytes", "sent_bytes"))
        print(f"turn {turn}: {1e3 * seconds:.0f} ms, {came:.1f} GiB came and {went:.1f} GiB went, "
              f"{after['reserved_bytes'] / GIB:.1f} of {after['allocated_bytes'] / GIB:.1f} GiB are in place")
    tidemark.torch.budget({"model": {"limit": None}})
    with tidemark.torch.use("model"):
        pass  # all of it comes back
    got, seconds = answer(model, given)
    print(f"without a limit: {1e3 * seconds:.0f} ms")
    assert all(torch.equal(got, each) for each in answers), "an answer changed because layers were away"


if __name__ == "__main__":
    main()
