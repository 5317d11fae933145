# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""What a PyTorch memory snapshot says, computed a second time and from its meaning alone.

Nothing here uses Tidemark. A snapshot is a dictionary of plain values: `device_traces` has the entries of each device,
`segments` the memory at the end. Entries name addresses and requested sizes. The size of the block that serves a request
follows from the free range at that address and from PyTorch's rule for splitting it.
"""
from __future__ import annotations

import bisect
import gzip
import lzma
import pickle
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

MIB = 1 << 20
SMALL_MOST = MIB  # larger requests come from segments of the large pool
UNIT = 512
SMALL_SEGMENT, LARGE_HANDLE = 2 * MIB, 20 * MIB
Entry = dict[str, Any]
Stack = tuple[tuple[str, int, str], ...]  # file, line, function; innermost first


def load(path: str) -> dict[str, Any]:
    """Reads a pickle, which may be compressed. Only for files that this project made itself."""
    opener: Any = lzma.open if path.endswith(".xz") else gzip.open if path.endswith(".gz") else open
    with opener(path, "rb") as file:
        snapshot = pickle.load(file)
    return {"segments": snapshot, "device_traces": []} if isinstance(snapshot, list) else snapshot


def round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


@dataclass(frozen=True)
class Settings:
    """The settings of PyTorch's allocator that decide the size of a block."""

    max_split: int | None = None
    is_expandable: bool = False
    divisions: tuple[int, ...] = (0,) * 16  # of the powers of two from 1 MiB on

    @staticmethod
    def of(snapshot: dict[str, Any]) -> Settings:
        recorded = snapshot.get("allocator_settings") or {}
        most = recorded.get("max_split_size", -1)
        divisions = recorded.get("roundup_power2_divisions") or {}
        return Settings(None if most < 0 else most, bool(recorded.get("expandable_segments")),
                        tuple(divisions.get(str(1 << slot), 0) for slot in range(16)))

    def rounded(self, size: int) -> int:
        """The size of a block for a request: a multiple of 512, or of a division of a power of two."""
        if size < UNIT:
            return UNIT
        power = size.bit_length() - 1
        parts = self.divisions[min(max(power - 20, 0), 15)]
        if parts > 1 and size > UNIT * parts:
            return round_up(size, (1 << power) // parts)
        return round_up(size, UNIT)

    def splits(self, size: int, rest: int) -> bool:
        if size <= SMALL_MOST or self.is_expandable:
            return rest >= UNIT
        return (self.max_split is None or size < self.max_split) and rest > MIB


@dataclass
class Block:
    address: int
    requested: int
    size: int
    made: int | None  # the entry; None: before the first
    stack: Stack
    stream: int
    is_pending: bool = False


@dataclass(frozen=True)
class Home:
    """What blocks can only be used for."""

    device: int
    stream: int
    pool: tuple[int, int]
    is_small: bool
    is_expandable: bool


class Layout:
    """The segments of a device, which are full of blocks and free ranges."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.free: list[int] = []  # addresses of free ranges, ascending
        self.free_size: dict[int, int] = {}
        self.live: dict[int, Block] = {}
        self.walls: Counter[int] = Counter()  # ends of segments that are no part of an address range that grows
        self.reserved = 0

    def add_free(self, address: int, size: int) -> None:
        """Joins the range with its free neighbours in the segment."""
        at = bisect.bisect_left(self.free, address)
        if at < len(self.free) and self.free[at] == address + size and not self.walls[address + size]:
            size += self.free_size.pop(self.free.pop(at))
        if at > 0 and not self.walls[address]:
            before = self.free[at - 1]
            if before + self.free_size[before] == address:
                self.free_size[before] += size
                return
        self.free.insert(at, address)
        self.free_size[address] = size

    def cut_free(self, address: int, size: int) -> int:
        """Takes the range out of the free one that holds it. Returns what was free from the address on; 0: not free."""
        at = bisect.bisect_right(self.free, address) - 1
        begin = self.free[at] if at >= 0 else 0
        end = begin + self.free_size[begin] if at >= 0 else 0
        if address + size > end:
            return 0
        del self.free[at], self.free_size[begin]
        for low, high in ((begin, address), (address + size, end)):
            if low < high:
                bisect.insort(self.free, low)
                self.free_size[low] = high - low
        return end - address

    def add_segment(self, address: int, size: int, is_whole: bool) -> None:
        if is_whole:
            self.walls.update((address, address + size))
        self.add_free(address, size)
        self.reserved += size

    def drop_segment(self, address: int, size: int, is_whole: bool) -> None:
        if self.cut_free(address, size) == 0:
            raise ValueError(f"{size} bytes at {address:#x} are given back, but not free")
        if is_whole:
            self.walls.subtract((address, address + size))
        self.reserved -= size

    def allocate(self, block: Block) -> None:
        block.size = self.settings.rounded(block.requested)
        room = self.cut_free(block.address, block.size)
        if room == 0:
            raise ValueError(f"{block.size} bytes at {block.address:#x} are allocated, but not free")
        rest = room - block.size
        if rest > 0 and not self.settings.splits(block.size, rest):
            self.cut_free(block.address + block.size, rest)
            block.size = room
        self.live[block.address] = block

    def place(self, block: Block) -> None:
        """A block whose size is known."""
        if self.cut_free(block.address, block.size) == 0:
            raise ValueError(f"{block.size} bytes at {block.address:#x} existed before, but not in a segment")
        self.live[block.address] = block

    def release(self, address: int) -> Block:
        block = self.live.pop(address)
        self.add_free(address, block.size)
        return block


@dataclass
class Peak:
    bytes: int = 0
    entry: int | None = None  # None: before the first, or never above 0

    def see(self, bytes: int, entry: int | None) -> None:
        if bytes > self.bytes:
            self.bytes, self.entry = bytes, entry


@dataclass
class Totals:
    """Sums of the live blocks. Names as in Tidemark's JSON."""

    allocated: int = 0  # requests rounded up to 512, until the release is complete
    requested: int = 0  # requests, until the release is complete
    active: int = 0  # blocks, until the release is complete
    allocated_blocks: int = 0  # blocks, until the release
    reserved: int = 0

    def count(self, block: Block, sign: int) -> None:
        self.allocated += sign * max(round_up(block.requested, UNIT), UNIT)
        self.requested += sign * block.requested
        self.active += sign * block.size
        if not block.is_pending:
            self.allocated_blocks += sign * block.size


NAMES = ("allocated", "requested", "active", "allocated_blocks", "reserved")


def stack_of(entry: dict[str, Any]) -> Stack:
    return tuple((frame.get("filename", ""), frame.get("line", 0), frame.get("name", ""))
                 for frame in entry.get("frames") or ())


def frames_of(stack: Stack) -> list[dict[str, Any]]:
    return [{"filename": file, "line": line, "name": name} for file, line, name in stack]


def segments_of(snapshot: dict[str, Any], device: int) -> list[dict[str, Any]]:
    return [segment for segment in snapshot["segments"] if segment.get("device", 0) == device]


class Before:
    """What existed before the first entry: the final state, with the entries undone from the last to the first."""

    def __init__(self, entries: list[Entry], segments: list[dict[str, Any]], settings: Settings) -> None:
        self.blocks: dict[int, Block] = {}
        self.segments: dict[int, int] = {}  # whole ones, by address
        self.ranges: list[tuple[int, int]] = []  # mapped ones: begin and end, ascending and apart
        self.unknown: set[int] = set()  # addresses of blocks whose size is not known
        for segment in segments:
            self.give_segment(segment["address"], segment["total_size"], segment["is_expandable"])
            for block in segment["blocks"]:
                if block["state"] != "inactive":
                    self.blocks[block["address"]] = Block(
                        block["address"], block.get("requested_size", block["size"]), block["size"], None,
                        stack_of(block), segment["stream"], block["state"] != "active_allocated")
        for entry in reversed(entries):
            self.undo(entry, settings)

    def undo(self, entry: Entry, settings: Settings) -> None:
        action = entry["action"]
        if action == "alloc":
            self.blocks.pop(entry["addr"], None)
            self.unknown.discard(entry["addr"])
        elif action == "free_completed":
            size = settings.rounded(entry["size"])
            self.blocks[entry["addr"]] = Block(entry["addr"], entry["size"], size, None, (), entry["stream"], True)
            self.unknown.add(entry["addr"])
        elif action == "free_requested" and entry["addr"] in self.blocks:
            self.blocks[entry["addr"]].is_pending = False
        elif action in ("segment_free", "segment_unmap"):
            self.give_segment(entry["addr"], entry["size"], action == "segment_unmap")
        elif action in ("segment_alloc", "segment_map"):
            self.take_segment(entry["addr"], entry["size"], action == "segment_map")

    def give_segment(self, address: int, size: int, is_mapped: bool) -> None:
        if not is_mapped:
            self.segments[address] = size
            return
        bisect.insort(self.ranges, (address, address + size))
        joined: list[tuple[int, int]] = []
        for begin, end in self.ranges:
            if joined and joined[-1][1] == begin:
                joined[-1] = (joined[-1][0], end)
            else:
                joined.append((begin, end))
        self.ranges = joined

    def take_segment(self, address: int, size: int, is_mapped: bool) -> None:
        if not is_mapped:
            self.segments.pop(address, None)
            return
        left: list[tuple[int, int]] = []
        for begin, end in self.ranges:
            low, high = max(begin, address), min(end, address + size)
            left += [(begin, end)] if low >= high else [part for part in ((begin, low), (high, end)) if part[0] < part[1]]
        self.ranges = left


class Run:
    """Follows the entries of one device, first to last."""

    def __init__(self, snapshot: dict[str, Any], device: int = 0, last: int | None = None) -> None:
        """With `last`, the run ends after that entry; -1: before the first."""
        traces = snapshot["device_traces"]
        self.entries: list[Entry] = traces[device] if device < len(traces) else []
        self.actions = Counter(entry["action"] for entry in self.entries)
        self.ooms = [at for at, entry in enumerate(self.entries) if entry["action"] == "oom"]
        self.layout = Layout(Settings.of(snapshot))
        self.totals = Totals()
        self.peaks = {name: Peak() for name in NAMES}
        self.series: dict[str, list[int]] = {name: [] for name in NAMES}  # after each entry
        self.homes: dict[int, Home] = {}  # made during the run, by address
        self.listed = segments_of(snapshot, device)
        self.finals = [(segment["address"], segment["address"] + segment["total_size"],
                        tuple(segment["segment_pool_id"])) for segment in self.listed]
        self.made_last = {entry["addr"]: at for at, entry in enumerate(self.entries)
                          if entry["action"] == "segment_alloc"}
        self.device = device
        self.begin(Before(self.entries, self.listed, self.layout.settings))
        for at, entry in enumerate(self.entries[: None if last is None else last + 1]):
            self.follow(at, entry)
            self.look(at)

    @property
    def live(self) -> list[Block]:
        return list(self.layout.live.values())

    @property
    def has_segments(self) -> bool:
        """Segments were recorded, or are known from the end."""
        return bool(self.finals) or any(action.startswith("segment_") for action in self.actions)

    @property
    def is_from_start(self) -> bool:
        return self.segments_before == 0 and self.blocks_before == 0

    def begin(self, before: Before) -> None:
        self.segments_before = len(before.segments) + len(before.ranges)
        self.blocks_before = len(before.blocks)
        self.requested_before = sum(block.requested for block in before.blocks.values())
        self.bytes_before = sum(block.size for block in before.blocks.values())
        self.are_sizes_known = not before.unknown  # otherwise peaks of blocks may be too small
        for address, size in before.segments.items():
            self.layout.add_segment(address, size, True)
        for begin, end in before.ranges:
            self.layout.add_segment(begin, end - begin, False)
        for block in before.blocks.values():
            self.layout.place(block)
            self.totals.count(block, 1)
        self.totals.reserved = self.layout.reserved
        self.before = replace(self.totals)
        for name in NAMES:
            self.peaks[name].see(getattr(self.totals, name), None)

    def follow(self, at: int, entry: Entry) -> None:
        action = entry["action"]
        if action == "alloc":
            block = Block(entry["addr"], entry["size"], 0, at, stack_of(entry), entry["stream"])
            self.layout.allocate(block)
            self.totals.count(block, 1)
        elif action == "free_requested":
            block = self.layout.live[entry["addr"]]
            self.totals.allocated_blocks -= block.size
            block.is_pending = True
        elif action == "free_completed":
            self.totals.count(self.layout.release(entry["addr"]), -1)
        elif action in ("segment_alloc", "segment_map"):
            self.layout.add_segment(entry["addr"], entry["size"], action == "segment_alloc")
            is_small = entry["size"] == SMALL_SEGMENT or action == "segment_map" and entry["size"] % LARGE_HANDLE != 0
            self.homes[entry["addr"]] = Home(self.device, entry["stream"], self.pool_of(at, entry["addr"]), is_small,
                                             action == "segment_map")
        elif action in ("segment_free", "segment_unmap"):
            self.layout.drop_segment(entry["addr"], entry["size"], action == "segment_free")

    def pool_of(self, at: int, address: int) -> tuple[int, int]:
        """Only the final list names pools. What is not in it, or was made again later, was of the default one."""
        if self.made_last.get(address, at) != at:
            return (0, 0)
        return next((pool for begin, end, pool in self.finals if begin <= address < end), (0, 0))

    def look(self, at: int) -> None:
        self.totals.reserved = self.layout.reserved
        for name in NAMES:
            value = getattr(self.totals, name)
            self.series[name].append(value)
            self.peaks[name].see(value, at)

    def differences_at_end(self) -> list[str]:
        """Where the entries lead to another state than the one that the snapshot lists."""
        want = {(block["address"], block["size"], block["state"]) for segment in self.listed
                for block in segment["blocks"]}
        got = {(block.address, block.size, "active_pending_free" if block.is_pending else "active_allocated")
               for block in self.live}
        got |= {(address, size, "inactive") for address, size in self.layout.free_size.items()}
        return [f"{'missing' if block in want else 'too much'}: {block}" for block in sorted(want ^ got)]

    def step_peak(self, name: str, first: int, last: int) -> Peak:
        """The peak after the entries from first to last, both included."""
        series = self.series[name][first : last + 1]
        return Peak(max(series), first + series.index(max(series))) if series else Peak()


def blocks_at(snapshot: dict[str, Any], device: int, entry: int | None) -> list[Block]:
    """The live blocks after an entry; with None before the first."""
    return Run(snapshot, device, -1 if entry is None else entry).live


def settled(entries: list[Entry], at: int) -> int:
    """The allocation for which the memory of entry `at` was taken from the device; or `at` itself."""
    for number in range(at + 1, len(entries)):
        if entries[number]["action"] == "alloc":
            return number
        if entries[number]["action"] not in ("segment_alloc", "segment_map"):
            break
    return at


def losses(snapshot: dict[str, Any], device: int, at: int) -> dict[str, int]:
    """Where reserved memory was at the peak of entry `at`. Only for recordings from the start."""
    last = settled(snapshot["device_traces"][device], at)
    run = Run(snapshot, device, last)
    sums = dict.fromkeys(("rounding", "waiting_for_events", "private_pools", "held_by_a_live_neighbour",
                          "cached_but_free"), 0)
    requested = 0
    for segment in segments_list(run.layout, run.homes):
        for block in segment["blocks"]:
            size = block["size"]
            if block["state"] == "active_allocated":
                requested += block["requested_size"]
                sums["rounding"] += size - block["requested_size"]
            elif block["state"] == "active_pending_free":
                sums["waiting_for_events"] += size
            elif tuple(segment["segment_pool_id"]) != (0, 0):
                sums["private_pools"] += size
            else:
                whole = loose_bytes(segment, block)
                sums["cached_but_free"] += whole
                sums["held_by_a_live_neighbour"] += size - whole
    return {"entry": last, "reserved": run.totals.reserved, "requested": requested,
            "total": run.totals.reserved - requested, **sums}


def loose_bytes(segment: dict[str, Any], block: dict[str, Any]) -> int:
    """What the device could have back: an unused segment, or the handles that a free range covers."""
    if segment["active_size"] == 0:
        return int(block["size"])
    if not segment["is_expandable"]:
        return 0
    handle = SMALL_SEGMENT if segment["segment_type"] == "small" else LARGE_HANDLE
    begin: int = block["address"] - segment["address"]
    end: int = (begin + block["size"]) // handle * handle
    return max(0, end - round_up(begin, handle))


def waits(entries: list[Entry]) -> bool:
    """Some releases are not complete at once."""
    return any(entry["action"] == "free_requested" and
               (at + 1 == len(entries) or entries[at + 1]["action"] != "free_completed")
               for at, entry in enumerate(entries))


def segments_list(layout: Layout, homes: dict[int, Home]) -> list[dict[str, Any]]:
    """The list of segments as PyTorch writes it. A home is what was made at an address."""
    bases = sorted(homes)
    pieces = sorted([(block.address, block.size, block) for block in layout.live.values()] +
                    [(address, size, None) for address, size in layout.free_size.items()], key=lambda piece: piece[0])
    segments: list[tuple[Home, list[dict[str, Any]]]] = []
    behind = -1
    for address, size, block in pieces:
        if behind != address or layout.walls[address] > 0:
            segments.append((homes[bases[bisect.bisect_right(bases, address) - 1]], []))
        behind = address + size
        state = "inactive" if block is None else "active_pending_free" if block.is_pending else "active_allocated"
        segments[-1][1].append({"address": address, "size": size, "requested_size": 0 if block is None else block.requested,
                                "state": state, "frames": [] if block is None else frames_of(block.stack)})
    return [segment_of(*segment) for segment in segments]


def segment_of(home: Home, blocks: list[dict[str, Any]]) -> dict[str, Any]:
    """A segment as PyTorch lists it, which is full of these blocks and free ranges."""
    def sum_of(key: str, *states: str) -> int:
        return sum(block[key] for block in blocks if block["state"] in states)

    live = ("active_allocated", "active_pending_free")
    return {"device": home.device, "address": blocks[0]["address"], "total_size": sum_of("size", "inactive", *live),
            "allocated_size": sum_of("size", live[0]), "active_size": sum_of("size", *live),
            "requested_size": sum_of("requested_size", *live), "stream": home.stream,
            "segment_type": "small" if home.is_small else "large", "segment_pool_id": home.pool,
            "is_expandable": home.is_expandable, "frames": [], "blocks": blocks}


def prefix(snapshot: dict[str, Any], count: int) -> dict[str, Any]:
    """The snapshot that a program of one device would have written after `count` entries."""
    run = Run(snapshot, 0, count - 1)
    return {**snapshot, "device_traces": [run.entries[:count]], "segments": segments_list(run.layout, run.homes)}


def suffix(snapshot: dict[str, Any], first: int) -> dict[str, Any]:
    """The snapshot of a program that kept only the entries from `first` on."""
    return {**snapshot, "device_traces": [entries[first:] for entries in snapshot["device_traces"]]}
