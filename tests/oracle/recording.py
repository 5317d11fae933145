# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Recordings that a test writes entry by entry."""
from __future__ import annotations

import collections
import functools
import os
import pickle
from typing import Any

import snapshot as reference

MIB = 1 << 20
BASE = 0x7F0000000000
EPOCH_US = 1_794_700_000_000_000  # in November 2026
STEP_US = 1000
TORCH = "/usr/lib/python3/site-packages/torch/nn/functional.py"


@functools.cache
def frames_of(stack: reference.Stack | str) -> list[dict[str, Any]]:
    """Of a stack of the oracle, or of a line of the program as `function:line`; `function:line/library function` also names
    what it calls in PyTorch."""
    if isinstance(stack, str):
        own, _, library = stack.partition("/")
        name, _, line = own.partition(":")
        stack = (TORCH, 7, library or "linear"), ("train.py", int(line), name), ("train.py", 900, "main")
    return reference.frames_of(stack)


class Recording:
    """One device. Blocks lie one behind the other, each in whole units; if it `reuses`, a block takes the place of a
    released one of its size and stream."""

    def __init__(self, unit: int = 512, reuses: bool = False, has_stacks: bool = True, begins_us: int = EPOCH_US,
                 **settings: Any) -> None:
        self.unit, self.reuses, self.has_stacks, self.settings = unit, reuses, has_stacks, settings
        self.entries: list[reference.Entry] = []
        self.segments: list[dict[str, Any]] = []  # at the end
        self.annotations: list[dict[str, Any]] = []
        self.live: dict[int, tuple[int, int]] = {}  # by address: size and stream
        self.pending: set[int] = set()  # those of them that were requested to be free
        self.spare = collections.defaultdict[tuple[int, int], list[int]](list)
        self.end, self.time_us = BASE, begins_us

    def add(self, action: str, address: int | None, size: int, stream: int = 0, stack: reference.Stack | str = (),
            **more: Any) -> None:
        entry = {"action": action, "size": size, "stream": stream, "time_us": self.time_us, **more}
        if address is not None:
            entry["addr"] = address
        if stack and self.has_stacks:
            entry["frames"] = frames_of(stack)
        self.entries.append(entry)
        self.time_us += STEP_US

    def oom(self, size: int, left: int = 0) -> None:
        self.add("oom", None, size, device_free=left)

    def alloc(self, size: int, stack: reference.Stack | str = (), stream: int = 0) -> int:
        spare = self.spare[reference.round_up(size, self.unit), stream]
        address = spare.pop() if spare else self.end
        if address == self.end:
            self.end += reference.round_up(size, self.unit)
        self.live[address] = size, stream
        self.add("alloc", address, size, stream, stack)
        return address

    def request(self, address: int) -> None:
        self.pending.add(address)
        self.add("free_requested", address, *self.live[address])

    def complete(self, address: int) -> None:
        self.pending.discard(address)
        size, stream = self.live.pop(address)
        self.add("free_completed", address, size, stream)
        if self.reuses:
            self.spare[reference.round_up(size, self.unit), stream].append(address)

    def free(self, address: int) -> None:
        self.request(address)
        self.complete(address)

    def free_all(self, addresses: list[int]) -> None:
        while addresses:
            self.free(addresses.pop())

    def annotate(self, name: str, stage: str) -> None:
        self.annotations.append({"name": name, "stage": stage, "device": 0, "time_us": self.time_us})
        self.time_us += STEP_US

    def snapshot(self) -> dict[str, Any]:
        return {"segments": self.segments, "device_traces": [self.entries], "external_annotations": self.annotations,
                "allocator_settings": self.settings}

    def mapped(self) -> dict[str, Any]:
        """The same with one expandable segment around all blocks."""
        blocks, at, end = list[dict[str, Any]](), BASE, self.end + 2 * MIB
        for address, (size, _) in [*sorted(self.live.items()), (end, (0, 0))]:
            if address > at:
                blocks.append(block_of(at, address - at, "inactive"))
            if address < end:
                state = "active_pending_free" if address in self.pending else "active_allocated"
                blocks.append(block_of(address, reference.round_up(size, self.unit), state, size))
            at = address + reference.round_up(size, self.unit)
        first = {"action": "segment_map", "addr": BASE, "size": end - BASE, "stream": 0,
                 "time_us": self.entries[0]["time_us"] - 1}
        home = reference.Home(0, 0, (0, 0), False, True)
        return {**self.snapshot(), "segments": [reference.segment_of(home, blocks)],
                "device_traces": [[first, *self.entries]], "allocator_settings": {"expandable_segments": True}}

    def save(self, folder: str, name: str = "planted.pickle") -> str:
        path = os.path.join(folder, name)
        with open(path, "wb") as file:
            pickle.dump(self.snapshot(), file)
        return path


def block_of(address: int, size: int, state: str, requested: int | None = None,
             stack: reference.Stack = ()) -> dict[str, Any]:
    """A block, or a free range, as PyTorch lists it."""
    if requested is None:
        requested = 0 if state == "inactive" else size
    return {"address": address, "size": size, "requested_size": requested, "state": state,
            "frames": reference.frames_of(stack)}


def segment_of(address: int, size: int, state: str, pool: tuple[int, int] = (0, 0), device: int = 0) -> dict[str, Any]:
    """A segment of the default stream that is one block."""
    return reference.segment_of(reference.Home(device, 0, pool, False, False), [block_of(address, size, state)])
