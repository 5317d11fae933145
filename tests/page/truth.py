# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Segments and blocks of a pickled recording, followed entry by entry, without any code of Tidemark.

An instant is the state after that many entries. A block exists from `begin` to `gone`, and is allocated until `end`.
"""
import lzma
import pickle


class Block:
    def __init__(self, address, size, begin, stream, frames):
        self.address, self.size, self.begin, self.stream, self.frames = address, size, begin, stream, frames
        self.end = self.gone = None

    def is_there(self, instant):
        return self.begin <= instant and (self.gone is None or instant < self.gone)


class Segment:
    def __init__(self, address, size, begin, stream, is_expandable):
        self.address, self.size, self.begin, self.stream = address, size, begin, stream
        self.is_expandable, self.end = is_expandable, None

    def is_there(self, instant):
        return self.begin <= instant and (self.end is None or instant < self.end)


def load(path):
    opened = lzma.open(path) if path.endswith(".xz") else open(path, "rb")
    with opened as file:
        return pickle.load(file)


def follow(entries):
    """Blocks and segments of a recording that begins with an empty cache."""
    blocks, segments, live, waiting, mapped = [], [], {}, {}, {}
    for at, entry in enumerate(entries):
        action, address, size = entry["action"], entry["addr"], entry["size"]
        if action == "alloc":
            live[address] = Block(address, size, at + 1, entry["stream"], entry.get("frames") or [])
            blocks.append(live[address])
        elif action == "free_requested" and address in live:
            waiting[address] = live.pop(address)
            waiting[address].end = at + 1
        elif action == "free_completed" and address in waiting:
            waiting.pop(address).gone = at + 1
        elif action in ("segment_alloc", "segment_map"):
            mapped[address] = Segment(address, size, at + 1, entry["stream"], action == "segment_map")
            segments.append(mapped[address])
        elif action in ("segment_free", "segment_unmap") and address in mapped:
            mapped.pop(address).end = at + 1
    return blocks, segments
