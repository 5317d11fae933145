# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Predictions of another setting, beside recordings of the same program with that setting.

Two recordings of one program have the same requests until the shorter one ends, or is refused one. The longer one is cut
there, so that what a replay of one predicts is what the other recorded, to the byte.
"""
from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import generate
import policy
import recording
import snapshot as reference
from command import IS_SLOW, Snapshot, ask, dumped, load_shared, numbers
from harness import Skip, check, equal, is_thorough, some

GIB = 1 << 30
DEVICE_GIB = 139.8  # where the recordings were made


@dataclass(frozen=True)
class Pair:
    default: str  # recorded with PyTorch's defaults
    other: str
    conf: str
    limit: float | None = None  # in GiB
    calls_empty_cache: bool = False  # the program, which no setting does


PAIRS = (
    Pair("gnn_varsize", "gnn_gc_split", "garbage_collection_threshold:0.7,max_split_size_mb:256", 20),
    Pair("gnn_varsize", "gnn_retry", "", 14),
    Pair("gnn_varsize", "gnn_empty", "", None, True),
    Pair("llama_train_varlen", "varlen_expand", "expandable_segments:True"),
    Pair("llama_train_varlen", "varlen_oom", "", 16.5),
    Pair("llama_train_varlen", "varlen_round", "roundup_power2_divisions:8"),
    Pair("llama_train_varlen", "varlen_split", "max_split_size_mb:100"),
    Pair("multistream_prefetch", "multistream_expand", "expandable_segments:True"),
)


def requests(entries: list[reference.Entry]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """What a program asked for, without addresses: the number of an entry, and what it asks. Requests and streams are
    numbered in the order of their first appearance."""
    number, streams, asked = dict[int, int](), dict[int, int](), 0
    for at, entry in enumerate(entries):
        action = entry["action"]
        if action in ("alloc", "oom"):
            if action == "alloc":
                number[entry["addr"]] = asked
            asked += 1
            yield at, ("request", entry["size"], streams.setdefault(entry["stream"], len(streams)))
        elif action in ("free_requested", "free_completed"):
            yield at, (action, number[entry["addr"]])


@dataclass(frozen=True)
class Common:
    """The part of two recordings in which the requests are the same."""

    requests: int  # allocations, releases and their completions
    first: int  # entries of the first recording
    second: int
    difference: str  # what comes next in each
    requests_left: int  # in the second recording, after that part


def common_part(first: list[reference.Entry], second: list[reference.Entry]) -> Common:
    left, right = list(requests(first)), list(requests(second))
    same = next((at for at, (a, b) in enumerate(zip(left, right)) if a[1] != b[1]), min(len(left), len(right)))
    what = [str(side[same][1]) if same < len(side) else "the end" for side in (left, right)]
    # An oom has its rounded size; what follows a refusal is another program.
    refused = next((at for at in range(same) if "oom" in (first[left[at][0]]["action"],
                                                           second[right[at][0]]["action"])), None)
    if refused is not None:
        same, what = refused + 1, ["served", "refused"]
    requests_left = sum(asked[0] == "request" for _, asked in right[same:])
    return Common(same, left[same - 1][0] + 1, right[same - 1][0] + 1, f"{what[0]} / {what[1]}", requests_left)


def replayed(snapshot: Snapshot, conf: str, limit: float | None) -> dict[str, Any]:
    words = ["--policy", f"torch:{conf}" if conf else "torch"]
    if limit is not None:
        words += ["--limit", f"{int(limit * GIB)}B"]
    return ask("replay", "-", *words, data=dumped(snapshot))


@dataclass(frozen=True)
class Prediction:
    pair: Pair
    common: Common
    is_back: bool
    recorded: int
    predicted: int
    model: int  # a second opinion


def predictions(pair: Pair) -> list[Prediction]:
    """There and back. The second recording ends with the common part, but for releases."""
    default, other = load_shared(pair.default), load_shared(pair.other)
    common = common_part(default["device_traces"][0], other["device_traces"][0])
    default = reference.prefix(default, common.first)
    first, second = (reference.Run(side).peaks["reserved"].bytes for side in (default, other))
    limit = None if pair.limit is None else int(pair.limit * GIB)
    there = replayed(default, pair.conf, pair.limit)["peak_reserved"]
    back = replayed(other, "", DEVICE_GIB)
    return [Prediction(pair, common, False, second, there,
                       policy.predict(default["device_traces"][0], pair.conf, limit).peak_reserved),
            Prediction(pair, common, True, first, back["peak_reserved"],
                       policy.predict(other["device_traces"][0], "", None).peak_reserved)]


def test_predictions_of_other_settings() -> None:
    if IS_SLOW:
        raise Skip("a build that is slow")
    for pair in some(PAIRS, 8):
        for made in predictions(pair):
            text = f"{pair.default} {'from' if made.is_back else 'to'} {pair.other}"
            check(made.common.requests > 8000, f"{text}: only {made.common.requests} requests are the same")
            equal(made.common.requests_left, 0, f"{text}: requests that only one recording has")
            if pair.calls_empty_cache:  # a replay keeps the calls of the program, and adds none
                check(made.predicted != made.recorded, f"{text}: the calls of empty_cache made no difference")
            else:
                equal((made.predicted, made.model), (made.recorded, made.recorded), text)


# ---------------------------------------------------------------------------------------------------
# The second opinion, on requests that no GPU ever served

SETTINGS = ("", "expandable_segments:True", "max_split_size_mb:64", "roundup_power2_divisions:4",
            "garbage_collection_threshold:0.6", "max_split_size_mb:128,garbage_collection_threshold:0.8",
            "max_split_size_mb:100,expandable_segments:True", "roundup_power2_divisions:8,expandable_segments:True")
REQUESTS = ("alloc", "free_requested", "free_completed")


def widened(entries: list[reference.Entry], factor: float) -> Snapshot:
    """Only requests, with other sizes. Without segments a replay has no calls of empty_cache to infer."""
    kept = [{**entry, "size": max(1, int(entry["size"] * factor))} for entry in entries if entry["action"] in REQUESTS]
    return {"segments": [], "device_traces": [kept], "allocator_settings": policy.settings_of("")}


def request_logs() -> Iterator[tuple[str, Snapshot]]:
    for seed in numbers(8):
        rng = random.Random(1000 + seed)
        kind = generate.Kind(steps=rng.choice((100, 400, 900)), streams=rng.choice((1, 3)),
                             is_deferred=rng.random() < 0.5)
        yield f"seed {seed}", widened(generate.recording(rng, kind)["device_traces"][0], 1)
    for name in some(("gnn_varsize", "resnet_stacks", "multistream_prefetch"), 3):
        for factor in (0.83, 1.22):
            entries = load_shared(name)["device_traces"][0]
            yield f"{name} x {factor}", widened(entries[:6000], factor)


def test_replays_agree_with_the_model() -> None:
    """Peak, retries and refusals for settings and limits below what the requests need."""
    policy.load_model()
    kinds = {"retries": 0, "ooms": 0}
    for number, (name, log) in enumerate(request_logs()):
        entries, rng = log["device_traces"][0], random.Random(number)
        for conf in rng.sample(SETTINGS, 3):
            free = policy.predict(entries, conf, None)
            for limit in (None, free.peak_reserved, int(free.peak_reserved * rng.uniform(0.5, 0.999))):
                said = ask("replay", "-", "--policy", f"torch:{conf}" if conf else "torch",
                           *(() if limit is None else ("--limit", f"{limit}B")), data=dumped(log))
                want = policy.predict(entries, conf, limit)
                if want.retries > 0 and reference.waits(entries):
                    continue  # how long a retry waits for releases, no recording says
                got = policy.Outcome(said["peak_reserved"], said["retries"], said["ooms"], said["first_oom"])
                equal(got, want, f"{name}, {conf or 'defaults'}, limit {limit}")
                equal(said["status"], int(want.ooms > 0), f"{name}, {conf}, limit {limit}: status")
                kinds["retries"] += want.retries > 0
                kinds["ooms"] += want.ooms > 0
    if is_thorough():
        check(min(kinds.values()) > (3 if IS_SLOW else 10), f"too few limits had an effect: {kinds}")


def test_an_expandable_segment_never_runs_out_of_addresses() -> None:
    """Each round leaves a hole that is too small for the next, and that smaller requests may not split, and a free end
    that grows. Little of 33 GiB is ever live."""
    unit, made, reserved, end = 20 << 20, recording.Recording(1 << 36, **policy.settings_of("")), 0, 0
    for number in range(30):
        hole, _, last = (made.alloc(size) for size in ((40 + number) * unit, unit, 20 * unit))
        made.free_all([last, hole])
        reserved += (40 + number) * unit - end + unit + 20 * unit
        end = 20 * unit
    said = replayed(made.snapshot(), "max_split_size_mb:100,expandable_segments:True", None)
    equal(said["peak_reserved"], reserved, "peak_reserved")
    check(reserved > 10 * said["peak_allocated"], "too much is live")
