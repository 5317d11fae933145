# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Writes long recordings of training loops with stacks, as pickles of any length."""
from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

import generate
import snapshot as reference

STEP = 3000  # calls of a step of the loop
STACKS = 400
BATCH = 1000  # items that are appended to a list at a time, as Python's pickler does; some readers cannot do more
BEGIN_US = 1_700_000_000_000_000
# On a single stream; and on four, where 7 % of the releases wait for other streams, as in a recorded run.
KINDS = {
    "one stream": generate.Kind(steps=STEP),
    "four streams": generate.Kind(steps=STEP, streams=4, is_deferred=True, deferred=0.07),
}


class Pickle:
    """Writes a pickle piece by piece, because the objects of so many entries would not fit into memory."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.memo = file, dict[str, bytes]()
        file.write(b"\x80\x02")

    def text(self, text: str) -> bytes:
        """A string; after its first use, a reference to it."""
        if text in self.memo:
            return self.memo[text]
        data, number = text.encode(), len(self.memo)
        self.memo[text] = b"j" + struct.pack("<I", number)
        return b"X" + struct.pack("<I", len(data)) + data + b"r" + struct.pack("<I", number)

    def value(self, value: Any) -> bytes:
        if isinstance(value, bool):
            return b"\x88" if value else b"\x89"
        if isinstance(value, int):
            return b"J" + struct.pack("<i", value) if abs(value) < 1 << 31 else b"\x8a\x08" + struct.pack("<q", value)
        if isinstance(value, float):
            return b"G" + struct.pack(">d", value)
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            items = b"".join(self.value(key) + self.value(item) for key, item in value.items())
            return b"}(" + items + b"u"
        if isinstance(value, tuple):
            return b"(" + b"".join(map(self.value, value)) + b"t"
        return b"](" + b"".join(map(self.value, value)) + b"e"

    def shared(self, name: str, value: Any) -> bytes:
        """Like text, for a value that is used many times."""
        if name not in self.memo:
            data, number = self.value(value), len(self.memo)
            self.memo[name] = b"j" + struct.pack("<I", number)
            return data + b"r" + struct.pack("<I", number)
        return self.memo[name]


def stacks() -> list[reference.Stack]:
    def stack(rng: random.Random) -> reference.Stack:
        frames = [(f"/home/someone/model/part{rng.randrange(8)}.py", rng.randrange(1, 500), f"layer{rng.randrange(20)}")
                  for _ in range(rng.randrange(6, 20))]
        return (*frames, ("/home/someone/train.py", 42, "main"))

    rng = random.Random(5)
    return [stack(rng) for _ in range(STACKS)]


def steps(kind: generate.Kind) -> tuple[generate.Program, list[reference.Entry], list[reference.Entry]]:
    """The program at the end, its first step, and those after, which need no new memory."""
    program = generate.Program(random.Random(3), kind, 0)
    while program.layout.live:  # a release that waits is completed in the next round
        for block in list(program.layout.live.values()):
            program.release(block)
    again = [entry for entry in program.entries if not entry["action"].startswith("segment_")]
    return program, program.entries, again


def loop(first: list[reference.Entry], again: list[reference.Entry], count: int) -> Iterator[reference.Entry]:
    yield from first
    left = count - len(first)
    while left > 0:  # whole steps, so that nothing is live at the end
        yield from again
        left -= len(again)


class Noise:
    """Makes every step a little different, as those of a real run are: how long a call takes, and of how many bytes a block
    has how many are asked for. Otherwise a long recording would be as simple as a short one."""

    def __init__(self) -> None:
        rng = random.Random(6)
        self.gaps = itertools.cycle([rng.choice((1, 2, 3, 5, 8, 40)) for _ in range(65_537)])
        self.less = itertools.cycle([4 * rng.randrange(100) for _ in range(65_539)])
        self.sizes: dict[int, int] = {}  # by address

    def size(self, entry: reference.Entry) -> int:
        action, address = entry["action"], entry["addr"]
        if action == "alloc":
            self.sizes[address] = max((entry["size"] + 511) // 512 * 512 - next(self.less), 1)
        return self.sizes[address] if action in ("alloc", "free_requested", "free_completed") else entry["size"]


def parts(out: Pickle, entry: reference.Entry) -> tuple[bytes, bytes, bytes]:
    """An entry, without its size, time and stack."""
    first = b"}(" + out.text("action") + out.text(entry["action"]) + out.text("addr") + out.value(entry["addr"])
    return (first + out.text("size"), out.text("stream") + out.value(entry["stream"]) + out.text("time_us"), out.text("frames"))


def write_entries(out: Pickle, entries: Iterator[reference.Entry], count: int, is_noisy: bool) -> int:
    """Writes them as items of a list; returns how many."""
    traces, kinds, noise = [reference.frames_of(stack) for stack in stacks()], random.Random(4), Noise()
    numbers = itertools.cycle([kinds.randrange(STACKS) for _ in range(count)])
    known: dict[tuple[int, bool], tuple[bytes, bytes, bytes]] = {}
    written, time_us = 0, BEGIN_US
    for entry in entries:
        number, key = next(numbers), (id(entry), written >= count)  # later than all first uses of texts
        if key not in known:
            known[key] = parts(out, entry)
        before, middle, behind = known[key]
        size = noise.size(entry) if is_noisy else entry["size"]
        out.file.write(b"".join((before, out.value(size), middle, out.value(time_us), behind,
                                 out.shared(f"stack {number}", traces[number]), b"u")))
        written += 1
        if written % BATCH == 0:
            out.file.write(b"e(")
        time_us += next(noise.gaps) if is_noisy else 7
    return written


def write_recording(path: str, kind: generate.Kind, count: int, is_noisy: bool = False) -> int:
    """Writes about so many entries; returns how many."""
    program, first, again = steps(kind)
    with open(path, "wb", buffering=1 << 20) as file:
        out = Pickle(file)
        file.write(b"}(" + out.text("device_traces") + b"](](")
        written = write_entries(out, loop(first, again, count), len(first), is_noisy)
        file.write(b"ee" + out.value("segments"))
        file.write(out.value(reference.segments_list(program.layout, program.homes)))
        file.write(out.value("allocator_settings") + out.value(generate.settings_of(program.kind)) + b"u.")
    return written
