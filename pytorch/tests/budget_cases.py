# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""What must hold on a GPU for budgets: cases of cases.py. Only with the policy `tide` memory gives way."""
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile

import pair
from claims import Skip, check, equal, raises
from park_cases import GIB, MIB, host_bytes, needed_tide, spoken

LAYERS = 16
WIDTH = 4096
LAYER = 2 * WIDTH * WIDTH  # 32 MiB of weights


def _stack(torch, tide, tag):
    """Layers whose weights have a tag each."""
    layers = []
    for number in range(LAYERS):
        with tide.region(f"{tag}/{number}"):
            layers.append(torch.nn.Linear(WIDTH, WIDTH, bias=False, device="cuda", dtype=torch.float16))
    return layers


def _answers(torch, layers, given):
    """What each layer computes from the answer of the one before."""
    answers = []
    for layer in layers:
        given = torch.tanh(2 * layer(given))  # of the same magnitude after many layers
        answers.append(given)
    return answers


def budget_layers(torch):
    """Layers of 512 MiB compute in turn with 160 MiB, on two streams: their answers are bit for bit those without a budget."""
    tide = needed_tide()
    torch.manual_seed(0)
    layers = _stack(torch, tide, "model")
    given = torch.randn(64, WIDTH, device="cuda", dtype=torch.float16)
    limit, other = 5 * LAYER, torch.cuda.Stream()
    with torch.no_grad():
        wanted = _answers(torch, layers, given)
        check(len({float(answer.float().sum()) for answer in wanted}) > LAYERS // 2, "the layers compute nothing")
        tide.budget({"model": {"limit": "160MiB", "yields": True, "constant": True}})
        check(tide.tags()["model"]["reserved_bytes"] <= limit, "what was there did not give way")
        uses = [tide.use_in(layer, f"model/{number}") for number, layer in enumerate(layers)]
        for turn in range(8):
            stream = other if turn == 6 else torch.cuda.current_stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                got = _answers(torch, layers, given)
            torch.cuda.current_stream().wait_stream(stream)
            equal([torch.equal(*pair) for pair in zip(got, wanted)], [True] * LAYERS, f"answers are the same in turn {turn}")
            check(tide.tags()["model"]["reserved_bytes"] <= limit, f"the limit is exceeded in turn {turn}")
        torch.cuda.synchronize()
    found = tide.tags()["model"]
    check(found["parked_count"] >= 8 * 10, f"only {found['parked_count']} times a layer was parked")
    check(found["ahead_count"] > 0, "no layer came ahead")
    check(found["sent_bytes"] <= LAYERS * LAYER, f"{found['sent_bytes']} bytes were copied away, so layers more than once")
    equal(found["use_count"], 0, "uses that are not done")
    for use in uses:
        use.remove()
    tide.budget({"model": None})
    del layers, uses
    tide.trim_backups()


def budget_changing(torch):
    """Layers that change while others give way for them keep what was written."""
    tide = needed_tide()
    tide.budget({"state": {"limit": 3 * LAYER, "yields": True}})
    parts = []
    for number in range(8):
        with tide.region(f"state/{number}"):
            parts.append(torch.full((LAYER // 4,), number, dtype=torch.int32, device="cuda"))
    for _ in range(5):
        for number, part in enumerate(parts):
            with tide.use(f"state/{number}"):
                torch.cuda._sleep(200_000)
                part += 100
    for number, part in enumerate(parts):
        with tide.use(f"state/{number}"):
            check(bool((part == number + 500).all()), f"a wrong number in part {number}")
    check(tide.tags()["state"]["parked_count"] >= 25, "parts did not give way")
    tide.budget({"state": None})
    del parts, part
    tide.trim_backups()


def budget_limit(torch):
    """A tensor beyond a limit is refused with an error that names the tag, unless a callback frees something."""
    tide = needed_tide()
    calls, kept = [], []

    def make(size):
        return torch.full((size,), 7, dtype=torch.uint8, device="cuda")

    def free(wanted, tag, limited):
        calls.append((wanted >= 40 * MIB, tag, limited))
        kept.clear()

    with tide.region("capped/a"):
        kept.append(make(40 * MIB))
    tide.budget({"capped": {"limit": "64MiB"}})
    with tide.region("capped/b"), raises(torch.OutOfMemoryError, "capped"):
        make(40 * MIB)
    check(bool((kept[0] == 7).all()), "a tensor changed")
    observer = tide.on_pressure(free)
    try:
        with tide.region("capped/b"):
            made = make(40 * MIB)
    finally:
        observer.remove()
    equal(calls, [(True, "capped/b", "capped")], "the calls")
    check(bool((made == 7).all()) and not kept, "the new tensor is wrong")
    with tide.region("capped/b"), raises(torch.OutOfMemoryError, "capped"):
        make(40 * MIB)
    equal(len(calls), 1, "the number of calls after the end")
    tide.budget({"capped": None})


def budget_figures(torch):
    """stats() and snapshots say what a tag may have, the most that it had, and what was refused."""
    tide = needed_tide()
    tide.budget({"figures": {"limit": "64MiB", "priority": -2}})
    with tide.region("figures/a"):
        kept = torch.full((40 * MIB,), 7, dtype=torch.uint8, device="cuda")
        with raises(torch.OutOfMemoryError, "figures"):
            torch.full((40 * MIB,), 7, dtype=torch.uint8, device="cuda")
    found = tide.stats()["tags"]["figures"]
    equal((found["limit"], found["priority"], found["refused_count"]), (64 * MIB, -2, 1), "the budget, and what was refused")
    check(40 * MIB <= found["reserved_bytes"] <= found["peak_reserved_bytes"] <= 64 * MIB, f"the peak is wrong: {found}")
    with tempfile.TemporaryDirectory() as folder:
        with open(tide.snapshot(f"{folder}/run.pickle"), "rb") as file:
            snapshot = pickle.load(file)
    listed = {tag["tag"]: tag for tag in snapshot["tags"]}
    equal({name: listed["figures"][name] for name in ("limit", "priority", "refused_count", "peak_reserved_bytes")},
          {name: found[name] for name in ("limit", "priority", "refused_count", "peak_reserved_bytes")}, "the snapshot")
    segments = [segment for segment in snapshot["segments"] if segment.get("tag") == "figures/a"]
    equal(sum(segment["total_size"] for segment in segments), found["reserved_bytes"], "segments with the tag")
    check(all(tuple(segment["segment_pool_id"]) > (0, 2**32) for segment in segments), "the pool of the region")
    del kept
    tide.budget({"figures": None})


def _job(stack, *arguments, **variables):
    """A process of pair.py that has made everything it needs and waits."""
    kept = {name: value for name, value in os.environ.items() if name != "TIDEMARK_LEDGER"}
    command = [sys.executable, str(pathlib.Path(__file__).with_name("pair.py")), *arguments]
    job = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                               stderr=subprocess.STDOUT, text=True, env={**kept, **variables}))
    stack.callback(job.kill)
    spoken(job, "READY")
    return job


def _go(job):
    job.stdin.write("\n")
    job.stdin.flush()


def _result(job):
    """What a process says at its end."""
    text = job.stdout.read()
    job.wait()
    results = [line for line in text.splitlines() if line.startswith("RESULT ")]
    check(job.returncode == 0 and len(results) == 1, f"a process failed with {job.returncode}: {text[-4000:]}")
    return json.loads(results[0][len("RESULT "):])


def _used(torch):
    """The memory of the device that all processes have, as the driver says."""
    free, total = torch.cuda.mem_get_info()
    return total - free


def _run_pair(torch, stack, folder, seconds):
    """Trains and generates in one ledger. Returns both results, and the most memory that the device lacked meanwhile."""
    before, most = _used(torch), 0
    ledger = os.path.join(folder, "ledger")
    trainer = _job(stack, "train", seconds, TIDEMARK_LEDGER=(
        f"{ledger}-{{device}},total={pair.TOTAL},wait={pair.WAIT},priority=1,member=train"))
    generator = _job(stack, "generate", seconds, ledger + "-0")
    for job in (trainer, generator):
        _go(job)
    while trainer.poll() is None:
        most = max(most, _used(torch) - before)
        with contextlib.suppress(subprocess.TimeoutExpired):
            trainer.wait(0.05)
    return _result(trainer), _result(generator), most


def ledger_pair(torch):
    """Training and generating, each with more than half of a ledger at its peak, run beside each other without an out of memory.

    The answers are bit for bit those of a run alone. TIDEMARK_TEST_PAIR_SECONDS says how long.
    """
    needed_tide()
    if torch.cuda.mem_get_info()[0] < pair.TOTAL + 4 * GIB or host_bytes() < 16 * GIB:
        raise Skip("the device needs 12 GiB, and the host 16 GiB")
    seconds = os.environ.get("TIDEMARK_TEST_PAIR_SECONDS", "20")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        trained, generated, most = _run_pair(torch, stack, folder, seconds)
        single = _job(stack, "generate", "0")
        _go(single)
        alone = _result(single)
    equal((trained["ooms"], generated["ooms"]), (0, 0), "requests that ran out of memory")
    check(min(trained["peak"], generated["peak"]) > pair.TOTAL // 2, "halves of the total would have been enough")
    check(most <= pair.TOTAL + 2 * GIB, f"the device lacked {most} bytes, more than the total and two contexts")
    check(min(trained["counts"]) > 0 and trained["is_finite"], f"training failed: {trained}")
    check(generated["parked_count"] > 0, "the model never gave way")
    equal([len(each) for each in alone["digests"]], [1] * pair.PROMPTS, "different answers to a prompt alone")
    equal(len(set(map(str, alone["digests"]))), pair.PROMPTS, "the number of different answers")
    equal(generated["digests"], alone["digests"], "the digests of the answers")
    return {"trained": trained, "generated": generated, "most": most}


TOGETHER = [budget_layers, budget_changing, budget_limit, budget_figures]
ALONE = [ledger_pair]
