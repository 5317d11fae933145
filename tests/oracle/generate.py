# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Makes recordings of programs that never ran: random requests on several devices, streams and pools.

The allocator here reuses any free range that fits, not the one that PyTorch would take, so no figure of such a
recording can be right because a replay repeats it. Blocks are rounded and split by PyTorch's rules.
"""
from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import snapshot as reference

MIB = 1 << 20
PROGRAM = "/home/someone/train.py"
PACKAGES = "/usr/lib/python3/dist-packages/"


@dataclass(frozen=True)
class Kind:
    """What a recording has."""

    steps: int = 100
    devices: int = 1
    streams: int = 1
    pools: int = 1
    is_expandable: bool = False
    max_split_mb: int = 0
    divisions: int = 0
    has_times: bool = True
    has_stacks: bool = False
    is_deferred: bool = False  # some releases wait for events
    is_emptied: bool = False  # free segments are given back now and then
    is_refused: bool = False  # some requests are
    deferred: float = 0.4  # with is_deferred: the share of releases that wait

    @staticmethod
    def random(rng: random.Random) -> Kind:
        def sometimes(share: float = 0.5) -> bool:
            return rng.random() < share

        return Kind(rng.choice((5, 40, 150, 400)), rng.choice((1, 1, 2, 3)), rng.choice((1, 2, 4)),
                    rng.choice((1, 1, 3)), sometimes(0.4), rng.choice((0, 0, 32, 128)), rng.choice((0, 0, 2, 8)),
                    sometimes(0.8), sometimes(), sometimes(), sometimes(), sometimes(0.3))


def conf_of(kind: Kind) -> str:
    words = [f"max_split_size_mb:{kind.max_split_mb}" if kind.max_split_mb else "",
             f"roundup_power2_divisions:{kind.divisions}" if kind.divisions else "",
             "expandable_segments:True" if kind.is_expandable else ""]
    return ",".join(word for word in words if word)


def settings_of(kind: Kind) -> dict[str, Any]:
    return {"PYTORCH_CUDA_ALLOC_CONF": conf_of(kind), "garbage_collection_threshold": 0.0,
            "max_split_size": kind.max_split_mb * MIB if kind.max_split_mb else -1,
            "expandable_segments": kind.is_expandable,
            "roundup_power2_divisions": {str(1 << slot): kind.divisions for slot in range(16)}}


def random_stack(rng: random.Random) -> reference.Stack:
    """A few lines of a program, which calls a package, which calls PyTorch."""
    main = (PROGRAM, rng.randrange(1, 4), "main")
    model = (PACKAGES + "models/net.py", rng.randrange(10, 14), "forward")
    inner = (PACKAGES + "torch/nn/functional.py", rng.randrange(100, 110), "linear")
    return rng.choice(((main,), (model, main), (inner, model, main), (inner, main), ()))


def random_size(rng: random.Random) -> int:
    return rng.randrange(1, 4 << rng.choice((6, 10, 16, 20, 22, 24, 26)))


class Program:
    """One device of a run."""

    def __init__(self, rng: random.Random, kind: Kind, device: int) -> None:
        self.rng, self.kind, self.device = rng, kind, device
        self.layout = reference.Layout(reference.Settings.of({"allocator_settings": settings_of(kind)}))
        self.homes: dict[int, reference.Home] = {}
        self.tops: dict[reference.Home, int] = {}  # of expandable segments: where the next handle goes
        self.next_address = 0x7F0000000000
        self.entries: list[reference.Entry] = []
        self.clock = 1_700_000_000_000_000
        for _ in range(kind.steps):
            self.step()

    def note(self, action: str, address: int, size: int, stream: int, stack: reference.Stack = ()) -> None:
        self.clock += self.rng.randrange(3) * self.rng.randrange(1000)
        entry: reference.Entry = {"action": action, "device_free" if action == "oom" else "addr": address,
                                  "size": size, "stream": stream}
        if self.kind.has_times:
            entry["time_us"] = self.clock
        if self.kind.has_stacks:
            entry["frames"] = reference.frames_of(stack)
        self.entries.append(entry)

    def step(self) -> None:
        live, chance = list(self.layout.live.values()), self.rng.random()
        if live and chance < 0.42:
            self.release(self.rng.choice(live[-12:]))
        elif chance < 0.46 and self.kind.is_emptied:
            self.empty()
        elif chance < 0.49 and self.kind.is_refused:
            self.note("oom", self.rng.randrange(64 * MIB), self.layout.settings.rounded(random_size(self.rng)), 0)
        else:
            self.allocate()

    def allocate(self) -> None:
        requested = random_size(self.rng)
        size = self.layout.settings.rounded(requested)
        home = reference.Home(self.device, self.rng.randrange(self.kind.streams) * 0x1000,
                              (0, self.rng.randrange(self.kind.pools)), size <= MIB, self.kind.is_expandable)
        fits = [address for address in self.layout.free
                if self.layout.free_size[address] >= size and self.home_at(address) == home]
        if fits and self.rng.random() < 0.9:
            address = self.rng.choice(fits)
        else:
            address = self.grow(home, size)
        block = reference.Block(address, requested, 0, len(self.entries),
                                random_stack(self.rng) if self.kind.has_stacks else (), home.stream)
        self.layout.allocate(block)
        self.note("alloc", address, requested, home.stream, block.stack)

    def home_at(self, address: int) -> reference.Home:
        return self.homes[max(base for base in self.homes if base <= address)]

    def grow(self, home: reference.Home, size: int) -> int:
        """More memory from the device; returns where a block of this size fits."""
        if home.is_expandable:
            whole = reference.round_up(size, 2 * MIB if home.is_small else 20 * MIB)
            address = self.tops.get(home) or self.reserve(home, 1 << 40)
            self.tops[home] = address + whole
        else:
            whole = 2 * MIB if home.is_small else 20 * MIB if size < 10 * MIB else reference.round_up(size, 2 * MIB)
            address = self.reserve(home, whole)
        self.note("segment_map" if home.is_expandable else "segment_alloc", address, whole, home.stream)
        self.layout.add_segment(address, whole, not home.is_expandable)
        return max(base for base in self.layout.free if base <= address)

    def reserve(self, home: reference.Home, bytes: int) -> int:
        address = self.next_address
        self.next_address += reference.round_up(bytes, 2 * MIB) + self.rng.randrange(2) * 2 * MIB
        self.homes[address] = home
        return address

    def release(self, block: reference.Block) -> None:
        if not block.is_pending:
            self.note("free_requested", block.address, block.requested, block.stream, block.stack)
            block.is_pending = True
            if self.kind.is_deferred and self.rng.random() < self.kind.deferred:
                return
        self.layout.release(block.address)
        self.note("free_completed", block.address, block.requested, block.stream, block.stack)

    def empty(self) -> None:
        """Gives back segments and handles that are free."""
        for address in list(self.layout.free):
            size, home = self.layout.free_size[address], self.home_at(address)
            begin, end = address, address + size
            if home.is_expandable:
                handle = 2 * MIB if home.is_small else 20 * MIB
                base = max(base for base in self.homes if base <= address)
                begin = base + reference.round_up(address - base, handle)
                end = base + (end - base) // handle * handle
            elif not (self.layout.walls[begin] > 0 and self.layout.walls[end] > 0):
                continue
            if begin < end:
                self.note("segment_unmap" if home.is_expandable else "segment_free", begin, end - begin, home.stream)
                self.layout.drop_segment(begin, end - begin, not home.is_expandable)


def recording(rng: random.Random, kind: Kind) -> dict[str, Any]:
    programs = [Program(rng, kind, device) for device in range(kind.devices)]
    segments = [segment for program in programs for segment in
                reference.segments_list(program.layout, program.homes)]
    return {"segments": segments, "device_traces": [program.entries for program in programs],
            "allocator_settings": settings_of(kind)}
