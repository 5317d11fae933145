# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Turns a memory snapshot of PyTorch into the text that replay.h reads: what was asked, what happened, what was left.

usage: recording.py SNAPSHOT[.xz|.gz] [LIMIT IN BYTES]      writes to standard output

First the settings, one a line: `options TEXT`, `total BYTES`, `limit BYTES`, and for each stream and each private pool
`stream VALUE` (ascending, the first is 0) and `pool ID ID`; they are named by their number, the default pool is 0 and
the private ones count from 1. Then the entries, with numbers in base 16; what is missing at the end of a line is 0:

  a ADDRESS BYTES STREAM POOL   allocated             s ADDRESS BYTES STREAM   segment made
  o 0 BYTES STREAM POOL         out of memory         r ADDRESS BYTES STREAM   segment given back
  d ADDRESS                     released, at once     n ADDRESS BYTES STREAM   mapped, as first memory of a reserve
  f ADDRESS                     released, to wait     m ADDRESS BYTES STREAM   mapped
  c ADDRESS                     done with waiting     u ADDRESS BYTES STREAM   unmapped

Decisions that a snapshot does not have are in the recordings of model_case.py alone: `e` the cache is emptied, `p` what
was waiting and is done was looked for here, `x 0 0 0 POOL` the pool has no user any more.

Last, what was left: `S ADDRESS BYTES STREAM POOL l|s x|r` is a segment, large or small, expandable or raw, and
`B ADDRESS BYTES REQUESTED a|p|i` a block of it, allocated, pending or inactive. The line `end` is the end.
"""
import bisect
import gzip
import lzma
import os
import pickle
import sys

MIB = 1 << 20
TOTAL = 150109880320  # of the device that all our recordings were made on

# The limit is not in a snapshot: bytes by the name of the file.
LIMITS = {
    "gnn_gc_split": 20480 * MIB, "gnn_retry": 14336 * MIB, "varlen_oom": 16896 * MIB, "release_available": 1024 * MIB,
    "limit_edge": 256 * MIB, "research": 400 * MIB, "expand_limit": 600 * MIB, "gc_mix": 2048 * MIB,
    "after_oom": 700 * MIB,
}
KINDS = {
    "alloc": "a", "oom": "o", "free_requested": "f", "free_completed": "c",
    "segment_alloc": "s", "segment_free": "r", "segment_map": "m", "segment_unmap": "u",
}
STATES = {"active_allocated": "a", "active_pending_free": "p", "active_awaiting_free": "p", "inactive": "i"}


class Entry:
    """One line: kind, address, bytes, stream; and the range that an allocation lies in."""
    __slots__ = "kind address bytes stream range".split()

    def __init__(self, kind, address=0, nbytes=0, stream=0):
        self.kind, self.address, self.bytes, self.stream, self.range = kind, address, nbytes, stream, None


class Range:
    """A segment, or the reserve of an expandable one; it belongs to one pool for life."""

    def __init__(self, begin, nbytes):
        self.begin, self.end, self.used, self.pool = begin, begin + nbytes, 0, (0, 0)


class Ranges:
    """Those that are there, by address."""

    def __init__(self):
        self.begins, self.ranges = [], []

    def find(self, address):
        at = bisect.bisect_right(self.begins, address) - 1
        return self.ranges[at] if at >= 0 and address < self.ranges[at].end else None

    def grow(self, entry, whole):
        """Memory is there from now on, in a range that is there or in a new one of `whole` bytes: then true."""
        found = self.find(entry.address)
        is_new = found is None
        if is_new:
            found = Range(entry.address, whole)
            at = bisect.bisect_left(self.begins, entry.address)
            self.begins.insert(at, entry.address)
            self.ranges.insert(at, found)
        found.used += entry.bytes
        return is_new

    def shrink(self, entry):
        """Memory is gone, and with its last byte the range."""
        found = self.find(entry.address)
        found.used -= entry.bytes
        if found.used == 0:
            at = bisect.bisect_left(self.begins, found.begin)
            del self.begins[at], self.ranges[at]


def reserve_bytes(mapped, total):
    """A reserve is 9/8 of the device in whole handles: of 2 MiB for small requests, of 20 MiB for large ones."""
    handle = 2 * MIB if mapped % (20 * MIB) else 20 * MIB
    return -(-(total + total // 8) // handle) * handle


def follow_ranges(entries, total):
    """Marks maps that begin a reserve, and finds the range of each allocation. Returns those left at the end."""
    ranges = Ranges()
    for entry in entries:
        if entry.kind == "a":
            entry.range = ranges.find(entry.address)
        elif entry.kind == "s":
            ranges.grow(entry, entry.bytes)
        elif entry.kind == "m":
            if ranges.grow(entry, reserve_bytes(entry.bytes, total)):
                entry.kind = "n"
        elif entry.kind in "ru":
            ranges.shrink(entry)
    return ranges


def join_releases(entries):
    """A release that is completed at once, and is followed by the next request, is one entry `d`. Where anything else
    follows, it may as well have waited for what happened then."""
    out = []
    at, count = 0, len(entries)
    while at < count:
        entry = entries[at]
        at += 1
        if entry.kind == "f" and at < count and entries[at].kind == "c" and entries[at].address == entry.address:
            if at + 1 < count and entries[at + 1].kind in "fa":
                entry.kind = "d"
                at += 1
        out.append(entry)
    return out


def write_header(out, options, total, limit, streams, pools):
    out.write(f"options {options}\ntotal {total}\n" + (f"limit {limit}\n" if limit else ""))
    out.writelines(f"stream {stream}\n" for stream in streams)
    out.writelines(f"pool {pool[0]} {pool[1]}\n" for pool in pools)


def entry_line(entry, stream, pool):
    fields = [entry.address, entry.bytes, stream, pool] if entry.kind not in "dfcep" else [entry.address]
    while fields and fields[-1] == 0:
        fields.pop()
    return " ".join([entry.kind, *(f"{field:x}" for field in fields)]) + "\n"


def write_segment(out, address, nbytes, stream, pool, is_large, is_expandable, blocks):
    """`blocks` are (address, bytes, requested bytes, state)."""
    out.write(f"S {address:x} {nbytes:x} {stream:x} {pool:x} {'ls'[not is_large]} {'xr'[not is_expandable]}\n")
    out.writelines(f"B {b[0]:x} {b[1]:x} {b[2]:x} {b[3]}\n" for b in blocks)


def write_snapshot(out, snapshot, limit):
    trace = snapshot["device_traces"][0]
    entries = join_releases([Entry(KINDS[e["action"]], e.get("addr", 0), e["size"], e["stream"]) for e in trace])
    segments = snapshot["segments"]
    ranges = follow_ranges(entries, TOTAL)
    for segment in segments:
        ranges.find(segment["address"]).pool = tuple(segment["segment_pool_id"])
    streams = sorted({0} | {entry.stream for entry in entries})
    pools = sorted({(0, 0)} | {tuple(segment["segment_pool_id"]) for segment in segments})
    stream_number = {stream: number for number, stream in enumerate(streams)}
    pool_number = {pool: number for number, pool in enumerate(pools)}

    write_header(out, snapshot["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"], TOTAL, limit, streams, pools[1:])
    for entry in entries:
        pool = pool_number[entry.range.pool] if entry.range else 0
        out.write(entry_line(entry, stream_number[entry.stream], pool))
    for segment in segments:
        blocks = [(b["address"], b["size"], b["requested_size"], STATES[b["state"]]) for b in segment["blocks"]]
        write_segment(out, segment["address"], segment["total_size"], stream_number[segment["stream"]],
                      pool_number[tuple(segment["segment_pool_id"])], segment["segment_type"] == "large",
                      segment["is_expandable"], blocks)
    out.write("end\n")


def main(path, limit=None):
    name = os.path.basename(path).split(".")[0]
    opener = lzma.open if path.endswith(".xz") else gzip.open if path.endswith(".gz") else open
    with opener(path, "rb") as file:
        snapshot = pickle.load(file)
    write_snapshot(sys.stdout, snapshot, int(limit) if limit else LIMITS.get(name))


if __name__ == "__main__":
    main(*sys.argv[1:])
