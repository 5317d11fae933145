# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Reads a page of `tidemark view`, written from docs/view.md alone.

    page = view_page.Page(open("page.html", "rb").read())
    device = page.devices[0]
    device.series()["reserved"][position]
"""
from __future__ import annotations

import base64
import functools
import itertools
import json
import zlib
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

Facts = dict[str, Any]
PARKED = 16  # a flag of a range


class Reader(HTMLParser):
    """All elements of a page in order, with their attributes and their text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[list[str]] = []
        self.others: list[str] = []  # comments, declarations, references
        self.is_open = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        self.texts.append([])
        self.is_open = True

    def handle_endtag(self, tag: str) -> None:
        self.is_open = False  # what follows is no text of the last element

    def handle_data(self, data: str) -> None:
        if self.is_open:
            self.texts[-1].append(data)

    def handle_comment(self, data: str) -> None:
        self.others.append(data)

    handle_entityref = handle_charref = handle_pi = unknown_decl = handle_comment  # type: ignore[assignment]


def columns_of(data: bytes) -> list[list[int]]:
    """All columns of a part: each has its count before its values."""
    at, columns = 0, list[list[int]]()

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        columns.append([number() for _ in range(number())])
    return columns


def unzigzag(values: list[int]) -> list[int]:
    return [value >> 1 ^ -(value & 1) for value in values]


def sums(values: list[int]) -> list[int]:
    return list(itertools.accumulate(values))


@dataclass(frozen=True)
class Block:
    begin: int
    life: int
    wait: int
    lane: int
    offset: int  # in bytes, like all sizes here
    bytes: int
    slack: int
    stack: int
    stream: int
    pool: int
    level: int

    def released(self, behind: int) -> int:
        """The position from which it is not allocated any more; `behind` is the one after the last."""
        return behind if self.life == self.wait == 0 else self.begin + self.life

    def ended(self, behind: int) -> int:
        return behind if self.life == self.wait == 0 else self.begin + self.life + self.wait


@dataclass(frozen=True)
class Segment:
    address: int
    bytes: int
    begin: int
    life: int
    stream: int
    pool: int
    lane: int
    flags: int
    stack: int
    cause: int

    def ended(self, behind: int) -> int:
        return behind if self.life == 0 else self.begin + self.life


class Device:
    def __init__(self, page: Page, facts: Facts) -> None:
        self.page, self.facts = page, facts
        self.entries: int = facts["entries"]
        self.unit: int = facts["unit"]

    def columns(self, name: str) -> list[list[int]]:
        return columns_of(self.page.part(self.facts["parts"][name]))

    @functools.cached_property
    def segments(self) -> list[Segment]:
        """Reserved ranges."""
        return [one for one in self.ranges if not one.flags & PARKED]

    @functools.cached_property
    def parked(self) -> list[Segment]:
        return [one for one in self.ranges if one.flags & PARKED]

    @functools.cached_property
    def ranges(self) -> list[Segment]:
        address, size, begin, *rest = self.columns("segments")
        places = [value * self.unit for value in sums(unzigzag(address))]
        return [Segment(*row) for row in zip(places, [value * self.unit for value in size], sums(begin), *rest)]

    @functools.cached_property
    def blocks(self) -> list[Block]:
        result: list[Block] = []
        for name in self.facts["parts"]["blocks"]:
            result += self.blocks_of(columns_of(self.page.part(name)), int(name.split("-")[2]))
        return result

    def blocks_of(self, columns: list[list[int]], level: int = -1) -> list[Block]:
        begin, life, wait, lane, offset, size, *rest = columns
        return [Block(*row) for row in zip(sums(begin), life, wait, lane, [value * self.unit for value in offset],
                                           [value * self.unit for value in size], *rest, itertools.repeat(level))]

    def left_out_of(self, answer: bytes) -> tuple[int, list[Block] | None]:
        """How many left-out blocks an answer of --serve is about, and the blocks unless they are too many."""
        (count,), *columns = columns_of(answer)
        return count, self.blocks_of(columns) if columns else None

    @functools.cached_property
    def lanes(self) -> list[tuple[int, int]]:
        """The lowest and highest address of each."""
        found: dict[int, tuple[int, int]] = {}
        for segment in self.ranges:
            low, high = found.get(segment.lane, (segment.address, 0))
            found[segment.lane] = min(low, segment.address), max(high, segment.address + segment.bytes)
        return [found[lane] for lane in sorted(found)]

    def address(self, block: Block) -> int:
        return self.lanes[block.lane][0] + block.offset

    @functools.cached_property
    def stacks(self) -> Facts:
        found: Facts = json.loads(self.page.part(self.facts["parts"]["stacks"]))
        return found

    def frames(self, stack: int) -> list[tuple[str, int, str]]:
        """File, line and function, innermost first."""
        frames, texts = self.stacks["frames"], self.stacks["texts"]
        return [(texts[frames[number][1]], frames[number][2], texts[frames[number][0]])
                for number in self.stacks["stacks"][stack]]

    def times_us(self) -> list[int]:
        """Since the first entry with a time."""
        (times,) = self.columns("times")
        return sums(unzigzag(times))

    def series(self) -> dict[str, list[int]]:
        """The curves at every position: before the first entry, and after each."""
        behind = self.entries + 1
        changes = {name: [0] * (behind + 1) for name in ("reserved", "allocated", "active", "requested")}

        def add(name: str, begin: int, end: int, value: int) -> None:
            changes[name][begin] += value
            changes[name][end] -= value

        for segment in self.segments:
            add("reserved", segment.begin, segment.ended(behind), segment.bytes)
        for block in self.blocks:
            add("allocated", block.begin, block.released(behind), block.bytes)
            add("active", block.begin, block.ended(behind), block.bytes)
            add("requested", block.begin, block.ended(behind), block.bytes - block.slack)
        return {name: sums(values)[:behind] for name, values in changes.items()}


class Page:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reader = Reader(data.decode("utf-8", errors="strict"))
        self.parts: dict[str, tuple[str, int, str]] = {}  # codec, bytes, letters
        self.facts: Facts = {}
        for (tag, attributes), text in zip(self.reader.elements, self.reader.texts):
            if attributes.get("id") == "facts":
                self.facts = json.loads("".join(text))
            name = attributes.get("data-part")
            if name is not None:
                codec, size = attributes["data-codec"], attributes["data-bytes"]
                assert tag == "script" and codec is not None and size is not None and name not in self.parts
                self.parts[name] = codec, int(size), "".join(text)
        self.devices = [Device(self, facts) for file in self.facts["files"] for facts in file["devices"]]

    def part(self, name: str) -> bytes:
        codec, size, letters = self.parts[name]
        data = base64.b64decode(letters, validate=True)
        assert codec in ("deflate", "none"), (name, codec)
        data = zlib.decompress(data) if codec == "deflate" else data
        assert len(data) == size, (name, len(data), size)
        return data
