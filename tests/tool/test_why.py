#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Tests what `tidemark report` says about why memory is reserved, what settings cost, and what makes room.

Recordings are written here, so their answers are known by construction or by trying everything. The causes in recordings
of TIDEMARK_DATA are found a second time by following them with the oracle; without that folder those tests are skipped.
"""
import itertools
import pathlib
import pickle
import random
import resource
import sys

sys.path.extend(str(pathlib.Path(__file__).resolve().parents[1] / part) for part in ("", "oracle"))
import harness
import recording
import snapshot as reference
from harness import Skip, check, equal, scaled, some
from recording import BASE, segment_of

MIB, GIB = 1 << 20, 1 << 30
HANDLE = 20 * MIB


def report(data, *more):
    """What report says of a snapshot (a dict, or the path of a file)."""
    is_file = isinstance(data, str)
    return harness.run("report", data if is_file else "-", *more, stdin=b"" if is_file else pickle.dumps(data, 4)).works()


def answer(data):
    return report(data, "--json").json()


# -----------------------------------------------------------------------------------------------------------------------
# Recordings by hand


class Recording:
    """One that chooses its addresses, which are offsets from BASE."""

    def __init__(self, **settings):
        self.recording = recording.Recording(**settings)
        self.snapshot = self.recording.snapshot

    def add(self, action, offset, size, stream=0, stack=()):
        self.recording.add(action, BASE + offset, size, stream, stack)
        return self

    def segment(self, offset, size, stream=0):
        return self.add("segment_alloc", offset, size, stream)

    def map(self, offset, size, stream=0):
        return self.add("segment_map", offset, size, stream)

    def alloc(self, offset, size, stream=0, site=None):
        return self.add("alloc", offset, size, stream, ((f"{site}.py", 7, site),) if site else ())

    def request(self, offset, size, stream=0):
        return self.add("free_requested", offset, size, stream)

    def free(self, offset, size, stream=0):
        return self.request(offset, size, stream).add("free_completed", offset, size, stream)

    def oom(self, size, left):
        self.recording.oom(size, left)
        return self


def last(recording):
    """The youngest segment of the peak."""
    said = answer(recording.snapshot())
    equal(sum(row["bytes"] for row in said["why_segments"]), said["peak_reserved"], "the sum of all segments")
    equal(sum(row["bytes"] for row in said["why_causes"]), said["peak_reserved"], "the sum of all causes")
    return max(said["why_segments"], key=lambda row: -1 if row["entry"] is None else row["entry"])


def test_too_little_was_free() -> None:
    row = last(Recording().segment(0, 30 * MIB).alloc(0, 20 * MIB).segment(64 * MIB, 12 * MIB).alloc(64 * MIB, 11 * MIB))
    equal((row["cause"], row["entry"], row["request_entry"], row["requested"]), ("needed", 2, 3, 11 * MIB))
    equal((row["place_free"], row["place_largest"], row["request_ms"]), (10 * MIB, 10 * MIB, 3.0))


def test_no_hole_was_large_enough() -> None:
    made = Recording().segment(0, 30 * MIB)
    for i in range(3):
        made.alloc(i * 10 * MIB, 10 * MIB)
    made.free(0, 10 * MIB).free(20 * MIB, 10 * MIB).segment(64 * MIB, 12 * MIB).alloc(64 * MIB, 12 * MIB, site="here")
    row = last(made)
    equal((row["cause"], row["place_free"], row["place_largest"]), ("hole", 20 * MIB, 10 * MIB))
    equal(row["call_site"], "here.py:7 here")
    said = report(made.snapshot()).out
    check("12.00 MiB of the 42.00 MiB were reserved although enough was free" in " ".join(said.split()), said)
    check("because no free block was large enough" in " ".join(said.split()), said)


def test_a_release_still_waits() -> None:
    row = last(Recording().segment(0, 30 * MIB).alloc(0, 30 * MIB).request(0, 30 * MIB)
               .segment(64 * MIB, 12 * MIB).alloc(64 * MIB, 12 * MIB))
    equal((row["cause"], row["place_waiting"], row["place_free"]), ("event", 30 * MIB, 0))


def split_limited(limit):
    return (Recording(max_split_size=limit).segment(0, 60 * MIB).alloc(0, 60 * MIB).free(0, 60 * MIB)
            .segment(64 * MIB, 12 * MIB).alloc(64 * MIB, 12 * MIB))


def test_a_larger_block_is_kept_whole() -> None:
    row = last(split_limited(40 * MIB))
    equal((row["cause"], row["place_fitting"]), ("split", 60 * MIB))
    equal(last(split_limited(61 * MIB))["cause"], "passed")  # that limit forbids nothing


def test_only_other_streams_had_enough() -> None:
    row = last(Recording().segment(0, 30 * MIB).alloc(0, 30 * MIB).free(0, 30 * MIB)
               .segment(64 * MIB, 12 * MIB, 7).alloc(64 * MIB, 12 * MIB, 7))
    equal((row["cause"], row["stream"], row["other_streams"]), ("stream", 7, 30 * MIB))


def test_only_other_pools_had_enough() -> None:
    made = (Recording().segment(0, 30 * MIB).alloc(0, 30 * MIB).free(0, 30 * MIB)
            .segment(64 * MIB, 12 * MIB).alloc(64 * MIB, 12 * MIB))
    made.recording.segments = [segment_of(BASE, 30 * MIB, "inactive"),
                          segment_of(BASE + 64 * MIB, 12 * MIB, "active_allocated", (0, 1))]
    row = last(made)
    equal((row["cause"], row["pool"], row["other_pools"]), ("pool", "(0, 1)", 30 * MIB))


def test_only_the_other_class_had_enough() -> None:
    row = last(Recording().segment(0, 20 * MIB).alloc(0, 2 * MIB).free(0, 2 * MIB)
               .segment(64 * MIB, 2 * MIB).alloc(64 * MIB, 1000))
    equal((row["cause"], row["kind"], row["rounded"], row["other_class"]), ("class", "small", 1024, 20 * MIB))


def test_what_is_older_than_the_recording_says_so() -> None:
    made = Recording().free(0, 30 * MIB).segment(64 * MIB, 40 * MIB).alloc(64 * MIB, 40 * MIB)
    made.recording.segments = [segment_of(BASE, 30 * MIB, "inactive"),
                          segment_of(BASE + 64 * MIB, 40 * MIB, "active_allocated")]
    said = answer(made.snapshot())
    rows = {row["cause"]: row["bytes"] for row in said["why_causes"]}
    equal(rows, {"before": 30 * MIB, "needed": 40 * MIB}, "the causes")
    check("30.00 MiB had been reserved before the recording began." in said["why"], said["why"])


def test_free_memory_is_listed_by_place() -> None:
    said = answer(Recording().segment(0, 30 * MIB).alloc(0, 30 * MIB).free(0, 30 * MIB)
                  .segment(64 * MIB, 12 * MIB, 7).alloc(64 * MIB, 12 * MIB, 7).snapshot())
    rows = [row for row in said["why_free"] if row["entry"] == 4]
    equal(rows, [{"entry": 4, "pool": "(0, 0)", "stream": 0, "kind": "large", "free": 30 * MIB, "pieces": 1,
                  "largest": 30 * MIB, "waiting": 0}], "what was free")


# -----------------------------------------------------------------------------------------------------------------------
# What settings and choices of the program cost


def test_fewer_streams_are_advised_if_a_replay_confirms_it() -> None:
    made = Recording()
    for i, stream in enumerate((0, 7, 8)):
        offset = i * 128 * MIB
        made.segment(offset, 100 * MIB, stream).alloc(offset, 100 * MIB, stream).free(offset, 100 * MIB, stream)
    said = answer(made.snapshot())
    rows = {row["change"]: (row["with"], row["without"], row["is_better"]) for row in said["changes"]}
    equal(rows, {"one_stream": (300 * MIB, 100 * MIB, True)}, "the changes")
    check("Allocate on one stream." in said["advice"], said["advice"])


def test_waits_are_named_if_a_replay_confirms_it() -> None:
    made = Recording().segment(0, 100 * MIB).alloc(0, 100 * MIB).request(0, 100 * MIB)
    made.segment(128 * MIB, 100 * MIB).alloc(128 * MIB, 100 * MIB).free(128 * MIB, 100 * MIB)
    made.add("free_completed", 0, 100 * MIB)
    said = answer(made.snapshot())
    rows = {row["change"]: (row["with"], row["without"], row["is_better"]) for row in said["changes"]}
    equal(rows, {"no_waits": (200 * MIB, 100 * MIB, True)}, "the changes")
    check("Instead of record_stream" in said["advice"], said["advice"])


def test_a_setting_that_does_harm_is_named() -> None:
    made = split_limited(40 * MIB)
    made.recording.settings["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:40"
    said = answer(made.snapshot())
    rows = [(row["setting"], row["with"], row["without"], row["does_harm"]) for row in said["setting_costs"]]
    equal(rows, [("max_split_size_mb:40", 72 * MIB, 60 * MIB, True)], "the costs")
    check("The recorded setting max_split_size_mb:40 does harm" in said["advice"], said["advice"])


def trace(name):
    path = harness.more("traces", f"{name}.pickle.xz")
    if harness.SANITIZER:
        raise Skip("a build that is slow")
    return path


def test_one_stream_is_no_advice_where_it_reserves_more() -> None:
    said = answer(trace("multistream_prefetch"))
    rows = {row["change"]: row for row in said["changes"]}
    equal(round(rows["one_stream"]["with"] / GIB, 2), 5.85)
    equal(round(rows["one_stream"]["without"] / GIB, 2), 6.22)
    check("stream" not in said["advice"], said["advice"])


def test_a_split_limit_costs_what_the_run_without_it_saves() -> None:
    said = answer(trace("varlen_split"))
    row, = said["setting_costs"]
    equal((row["setting"], row["with"]), ("max_split_size_mb:100", 70107791360))
    equal(row["without"], 28485615616, "the peak without it, which is that of the recorded run without it")
    check("max_split_size_mb:100 does harm" in said["advice"], said["advice"])


# -----------------------------------------------------------------------------------------------------------------------
# Causes in real recordings, from a ledger of our own


class Causes(reference.Run):
    """Follows a recording without expandable segments, and notes why each segment was made."""

    def begin(self, before):
        super().begin(before)
        self.causes, self.at_peak = {}, []  # by address: (entry, bytes, cause); and those when reserved memory is at its peak

    def follow(self, at, entry):
        if entry["action"] == "segment_alloc":
            self.causes[entry["addr"]] = (at, entry["size"], self.cause(at, entry, self.entries[at + 1]["size"]))
        elif entry["action"] == "segment_free":
            del self.causes[entry["addr"]]
        super().follow(at, entry)

    def look(self, at):
        super().look(at)
        if self.peaks["reserved"].entry == at:
            self.at_peak = sorted(self.causes.values())

    def cause(self, at, entry, size):
        """Of the segment that the entry makes for a request of `size`."""
        need, is_large = self.layout.settings.rounded(size), entry["size"] > 2 * MIB
        own = free = waits = streams = pools = classes = 0
        fitting, longest = [], 0
        for segment in reference.segments_list(self.layout, self.homes):
            blocks = [block["size"] for block in segment["blocks"] if block["state"] == "inactive"]
            if (segment["segment_type"] == "large") != is_large:
                classes += sum(blocks)
            elif segment["segment_pool_id"] != self.pool_of(at, entry["addr"]):
                pools += sum(blocks)
            elif segment["stream"] != entry["stream"]:
                streams += sum(blocks)
            else:
                own += sum(blocks)
                waits += sum(block["size"] for block in segment["blocks"] if block["state"] == "active_pending_free")
                fitting += [size for size in blocks if size >= need]
                for is_live, run in itertools.groupby(segment["blocks"], lambda block: block["state"] == "active_allocated"):
                    longest = max(longest, 0 if is_live else sum(block["size"] for block in run))
        if fitting:
            most = self.layout.settings.max_split
            return "split" if most is not None and min(fitting) >= most else "passed"
        if longest >= need:
            return "event"
        for name, size in (("hole", own), ("event", waits), ("stream", streams), ("pool", pools), ("class", classes)):
            free += size
            if free >= need:
                return name
        return "needed"


def causes_agree(name):
    path = trace(name)
    want = Causes(reference.load(path)).at_peak
    got = sorted((row["entry"], row["bytes"], row["cause"]) for row in answer(path)["why_segments"])
    equal(len(got), len(want), f"{name}: the number of segments")
    for one, other in zip(got, want):
        equal(one, other, f"{name}: a segment")


def test_causes_of_recordings() -> None:
    for name in some(("gnn_varsize", "gnn_retry", "gnn_empty", "gnn_gc_split", "graphs", "multistream_prefetch",
                      "resnet_stacks", "varlen_split", "varlen_round", "varlen_oom")):
        causes_agree(name)


# -----------------------------------------------------------------------------------------------------------------------
# What makes room, by trying all sets of live blocks


def random_layout(rng):
    """Segments (offset, bytes, stream, is_expandable, blocks) with at most 11 live blocks (offset, bytes, is_live)."""
    segments, live = [], 0
    is_expandable = rng.random() < 0.4
    for number in range(rng.randint(1, 4)):
        size = rng.randint(1, 4) * HANDLE if is_expandable else 2 * MIB * rng.randint(6, 40)
        offset, at, blocks = number * GIB, 0, []
        while at < size:
            bytes_ = min(size - at, rng.choice((rng.randint(2, 24), rng.randint(2, 60))) * MIB)
            if size - at - bytes_ <= MIB:  # no rest that PyTorch would not split off
                bytes_ = size - at
            is_live = live < 11 and rng.random() < 0.6
            live += is_live
            blocks.append((offset + at, bytes_, is_live))
            at += bytes_
        segments.append((offset, size, rng.choice((0, 0, 7)), is_expandable, blocks))
    return segments


def record(segments, need, left, **settings):
    made = Recording(**settings)
    for offset, size, stream, is_expandable, blocks in segments:
        (made.map if is_expandable else made.segment)(offset, size, stream)
        for at, bytes_, _ in blocks:
            made.alloc(at, bytes_, stream, site=f"site{at // MIB % 3}")
        for at, bytes_, is_live in blocks:
            if not is_live:
                made.free(at, bytes_, stream)
    return made.oom(need, left)


def free_runs(blocks, released):
    """(begin, end) of the free ranges of a segment."""
    runs = []
    for is_free, group in itertools.groupby(blocks, lambda block: not block[2] or block[0] in released):
        run = list(group)
        if is_free:
            runs.append((run[0][0], run[-1][0] + run[-1][1]))
    return runs


def makes_room(segments, need, missing, released, max_split):
    """By a hole of `need` bytes, or by `missing` bytes given back; either may be None."""
    given = 0
    for offset, size, stream, is_expandable, blocks in segments:
        for begin, end in free_runs(blocks, released):
            hole = end - begin
            is_kept = need is not None and hole >= (max_split if need < max_split else need + 20 * MIB)
            if need is not None and stream == 0 and hole >= need and not is_kept:
                return True
            if is_expandable:
                given += max(0, (end - offset) // HANDLE - -(-(begin - offset) // HANDLE)) * HANDLE
            elif hole == size:
                given += size
    return missing is not None and given >= missing


def least_bytes(segments, need, missing, max_split):
    live = [(at, bytes_) for *_, blocks in segments for at, bytes_, is_live in blocks if is_live]
    best = None
    for chosen in itertools.product((False, True), repeat=len(live)):
        released = {block[0] for block, is_chosen in zip(live, chosen) if is_chosen}
        cost = sum(block[1] for block, is_chosen in zip(live, chosen) if is_chosen)
        if (best is None or cost < best) and makes_room(segments, need, missing, released, max_split):
            best = cost
    return best


def room_is_right(rng, max_split):
    segments = random_layout(rng)
    need, left = rng.randint(11, 70) * MIB, rng.randint(0, 5) * 2 * MIB
    settings = {} if max_split > GIB else {"max_split_size": max_split}
    said = answer(record(segments, need, left, **settings).snapshot())
    row, = said["oom_requests"]
    reserved, segment = sum(segment[1] for segment in segments), -(-need // (2 * MIB)) * 2 * MIB
    equal((row["reserved"], row["segment_bytes"], row["missing"]), (reserved, segment, segment - left))
    blocks = said["oom_blockers"]
    released = {int(block["address"], 16) - BASE for block in blocks}
    got = sum(block["bytes"] for block in blocks) if row["way"] else None
    where = f"for {need} in {segments}"
    hole, given = least_bytes(segments, need, None, max_split), least_bytes(segments, None, segment - left, max_split)
    equal(row["hole_bytes"], hole, f"the cheapest hole {where}")
    equal(row["segments_bytes"], given, f"the cheapest segments {where}")
    equal(got, min((cost for cost in (hole, given) if cost is not None), default=None), f"the least {where}")
    if row["way"]:
        check(makes_room(segments, need, segment - left, released, max_split), f"{released} make no room")
    equal(sum(site["bytes"] for site in said["oom_room"]), got or 0, "the sum by call sites")


def test_the_cheapest_room_of_all() -> None:
    rng = random.Random(22)
    for _ in range(scaled(60, 20)):
        room_is_right(rng, 1 << 62)


def test_the_cheapest_room_under_a_split_limit() -> None:
    rng = random.Random(23)
    for _ in range(scaled(30, 10)):
        room_is_right(rng, rng.choice((30, 60)) * MIB)


def test_a_refusal_says_by_how_much_it_missed() -> None:
    made = Recording().segment(0, 11992 * MIB).alloc(0, 11992 * MIB).oom(378 * MIB, 296 * MIB)
    said = answer(made.snapshot())
    check("It missed by 82.00 MiB: 11.71 GiB reserved + 378.00 MiB for a new segment = 12.08 GiB; the limit was 12.00 GiB."
          in said["finding"], said["finding"])


def test_segments_of_many_terabytes_take_little_memory() -> None:
    """Each of the segments would have 2^20 handles. A sanitizer needs more memory than the limit."""
    r, size = Recording(max_split_size=-1, expandable_segments=True), 1 << 41
    for i in range(100):
        r.map(2 * i * size, size, stream=i).alloc(2 * i * size, size, stream=i)
    r.oom(500 * MIB, 0)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    try:
        if not harness.SANITIZER:
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, limits[1]))
        said = answer(r.snapshot())
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    equal((said["oom_requests"][0]["is_least"], said["oom_requests"][0]["reserved"]), (False, 100 * size))


if __name__ == "__main__":
    harness.main()
