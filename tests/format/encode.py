# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Writes plain data as pickles that Python's own pickler does not write.

  torch_style(data)      as the C++ pickler of PyTorch does: protocol 2, one mark for a whole list or dict, texts
                         remembered at their first use, what is shared remembered after it is complete, integers
                         beyond 32 bits with 8 bytes, an empty list as `] ( e`
  odd_style(data, rng)   any way that means the same: items one by one or in batches, gathered by LIST, DICT and
                         TUPLE, all forms of integers and texts, keys that come twice, parts that are dropped again

usage: encode.py FOLDER SNAPSHOT[.xz] ...      writes small pieces of snapshots, in every style, for the fuzzer
"""
import json
import lzma
import os
import pickle
import random
import struct
import sys


def shared_ids(data):
    """The ids of the lists, dicts and tuples that stand in more than one place."""
    seen, shared, todo = set(), set(), [data]
    while todo:
        part = todo.pop()
        if not isinstance(part, (list, dict, tuple)):
            continue
        if id(part) in seen:
            shared.add(id(part))
            continue
        seen.add(id(part))
        todo.extend(part.values() if isinstance(part, dict) else part)
    return shared


class Writer:
    def __init__(self, data, protocol):
        self.out = bytearray([0x80, protocol])
        self.memo = {}  # of texts by themselves, of other parts by id
        self.shared = shared_ids(data)
        self.keep = []  # so that no id is used again

    def put(self, *pieces):
        for piece in pieces:
            self.out += piece

    def remember(self, key):
        number = len(self.memo)
        self.memo[key] = number
        self.put(b"q" + bytes([number]) if number < 256 else b"r" + struct.pack("<I", number))

    def recall(self, key):
        number = self.memo.get(key)
        if number is None:
            return False
        self.put(b"h" + bytes([number]) if number < 256 else b"j" + struct.pack("<I", number))
        return True

    def text(self, text):
        if not self.recall(text):
            data = text.encode("utf-8", "surrogatepass")
            self.put(b"X", struct.pack("<I", len(data)), data)
            self.remember(text)

    def integer(self, number):
        if 0 <= number < 256:
            self.put(b"K", bytes([number]))
        elif 0 <= number < 65536:
            self.put(b"M", struct.pack("<H", number))
        elif -(1 << 31) <= number < 1 << 31:
            self.put(b"J", struct.pack("<i", number))
        elif number < 1 << 63:
            self.put(b"\x8a\x08", struct.pack("<q", number))
        else:
            self.put(b"\x8a\x09", struct.pack("<Q", number), b"\0")

    def scalar(self, part):
        if part is None or isinstance(part, bool):
            self.put({None: b"N", True: b"\x88", False: b"\x89"}[part])
        elif isinstance(part, int):
            self.integer(part)
        elif isinstance(part, float):
            self.put(b"G", struct.pack(">d", part))
        else:
            self.text(part)

    def tuple(self, part):
        if 0 < len(part) <= 3:
            self.parts(part)
            self.put(bytes([0x84 + len(part)]))
        else:
            self.put(b"(")
            self.parts(part)
            self.put(b"t")

    def parts(self, parts):
        for part in parts:
            self.part(part)

    def list(self, part):
        self.put(b"](")
        self.parts(part)
        self.put(b"e")

    def dict(self, part):
        self.put(b"}(")
        for key, value in part.items():
            self.text(key)
            self.part(value)
        self.put(b"u")

    def part(self, part):
        if not isinstance(part, (list, dict, tuple)):
            self.scalar(part)
        elif not self.recall(id(part)):
            {list: self.list, dict: self.dict, tuple: self.tuple}[type(part)](part)
            if id(part) in self.shared:
                self.remember(id(part))


class OddWriter(Writer):
    def __init__(self, data, rng):
        super().__init__(data, rng.randint(2, 5))
        self.rng = rng
        self.gathers = rng.randrange(4) == 0  # all lists and dicts: who mixes them with others may be refused

    def chance(self, most):
        return self.rng.randrange(most) == 0

    def remember(self, key):
        number = len(self.memo)
        if self.chance(2):
            self.memo[key] = number
            self.put(b"\x94")
        elif self.chance(3):
            self.memo[key] = number
            self.put(b"r", struct.pack("<I", number))
        else:
            super().remember(key)

    def text(self, text):
        if self.recall(text):
            return
        data = text.encode("utf-8", "surrogatepass")
        form = self.rng.randrange(3)
        if form == 0 and len(data) < 256:
            self.put(b"\x8c", bytes([len(data)]), data)
        elif form == 1:
            self.put(b"\x8d", struct.pack("<Q", len(data)), data)
        else:
            self.put(b"X", struct.pack("<I", len(data)), data)
        if self.chance(2):
            self.remember(text)

    def integer(self, number):
        if not self.chance(3):
            super().integer(number)
            return
        count = self.rng.randint((number.bit_length() + 8) // 8, 9 if number >= 0 else 8)
        data = number.to_bytes(count, "little", signed=True)
        self.put(b"\x8a" + bytes([count]) if self.chance(2) else b"\x8b" + struct.pack("<I", count), data)

    def dropped(self):
        """Something that is not there in the end."""
        if self.chance(40):
            self.put(b"N0")
        elif self.chance(40):
            self.put(b"(K\x01\x8c\x01a\x891")

    def list(self, part):
        if self.gathers:
            self.put(b"(")
            self.parts(part)
            self.put(b"l")
            return
        self.put(b"]")
        if id(part) in self.shared and self.chance(2):
            self.remember(id(part))
        rest = list(part)
        while rest or self.chance(4):
            count = min(len(rest), self.rng.choice([0, 1, 1, 2, 5, 100]))
            if count == 1 and self.chance(2):
                self.part(rest[0])
                self.put(b"a")
            else:
                self.put(b"(")
                for item in rest[:count]:
                    self.dropped()
                    self.part(item)
                self.put(b"e")
            del rest[:count]

    def pair(self, key, value):
        self.text(key)
        self.dropped()
        self.part(value)

    def dict(self, part):
        pairs = list(part.items())
        is_record = any(key in part for key in ("segments", "device_traces", "blocks"))
        if pairs and not is_record and self.chance(6):  # of a key that comes twice the last one counts
            at = self.rng.randrange(len(pairs))
            pairs.insert(self.rng.randint(0, at), (pairs[at][0], self.rng.choice([None, 1, "x", 2.5, pairs[at][1]])))
            if pairs[at + 1][0] in ("action", "size"):
                del pairs[at + 1 - (pairs[at][0] == pairs[at + 1][0])]
                pairs = list(part.items())
        if self.gathers:
            self.put(b"(")
            for key, value in pairs:
                self.pair(key, value)
            self.put(b"d")
            return
        self.put(b"}")
        if id(part) in self.shared and self.chance(2):
            self.remember(id(part))
        while pairs or self.chance(4):
            count = min(len(pairs), self.rng.choice([0, 1, 2, 5, 100]))
            if count == 1:
                self.pair(*pairs[0])
                self.put(b"s")
            else:
                self.put(b"(")
                for key, value in pairs[:count]:
                    self.pair(key, value)
                self.put(b"u")
            del pairs[:count]

    def part(self, part):
        if not isinstance(part, (list, dict, tuple)):
            self.scalar(part)
        elif not self.recall(id(part)):
            {list: self.list, dict: self.dict, tuple: self.tuple}[type(part)](part)
            if id(part) in self.shared and id(part) not in self.memo:
                self.remember(id(part))


def torch_style(data):
    writer = Writer(data, 2)
    writer.part(data)
    return bytes(writer.out) + b"."


def odd_style(data, rng):
    writer = OddWriter(data, rng)
    writer.part(data)
    return bytes(writer.out) + b"."


def load(path):
    with lzma.open(path) if path.endswith(".xz") else open(path, "rb") as file:
        return pickle.load(file)


def cut(snapshot, rng):
    """A few entries of each kind of action, few segments with few blocks, and stacks of few frames, without folders."""
    stacks = {}

    def shortened(record):
        if "frames" not in record:
            return dict(record)
        frames = [dict(frame, filename=os.path.basename(frame["filename"])) for frame in record["frames"][:3]]
        return dict(record, frames=stacks.setdefault(id(record["frames"]), frames))

    small = dict(snapshot, device_traces=[], segments=[])
    for segment in snapshot["segments"][:2]:
        small["segments"].append(shortened(dict(segment, blocks=[shortened(b) for b in segment["blocks"][:2]])))
    for track in snapshot["device_traces"]:
        begin = rng.randrange(max(1, len(track) - 3))
        rare = [e for e in track if e["action"] in ("oom", "segment_map", "segment_unmap", "snapshot")][:1]
        small["device_traces"].append([shortened(e) for e in track[begin:begin + 2] + rare])
    return small


def main(folder, paths):
    rng = random.Random(1)
    for name in ("fuzz_pickle", "fuzz_json"):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
    for number, path in enumerate(paths):
        small = cut(load(path), rng)
        stem = os.path.basename(path).split(".")[0]
        protocol = 2 + number % 4
        pieces = {f"fuzz_pickle/{stem}_{protocol}": pickle.dumps(small, protocol)}
        if number % 2 == 0:
            pieces[f"fuzz_pickle/{stem}_torch"] = torch_style(small)
            pieces[f"fuzz_json/{stem}"] = json.dumps(small).encode()
        else:
            pieces[f"fuzz_pickle/{stem}_odd"] = odd_style(small, rng)
        for piece, data in pieces.items():
            with open(os.path.join(folder, piece), "wb") as file:
                file.write(data)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
