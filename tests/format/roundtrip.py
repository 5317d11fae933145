# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Converts memory snapshots by the command and compares with what Python itself reads.

usage: roundtrip.py PROGRAM file SNAPSHOT[.xz] LIMIT
       roundtrip.py PROGRAM random SEED COUNT

A snapshot is converted to pickle, to JSON, and from there to pickle again; each is loaded by Python's own modules and
must equal the original, except that JSON has lists for tuples. A written pickle must be one that PyTorch's viewer
opens (viewer.py). That and the way back from JSON are left out for pickles of more than LIMIT bytes, as they are slow.
Random snapshots hold all that files may hold, are encoded in any way that means the same (encode.py), and also come
as JSON.
"""
import json
import math
import os
import pickle
import random
import subprocess
import sys
import tempfile

import encode
import viewer


class Different(Exception):
    pass


def convert(program, source, target):
    done = subprocess.run([program, "convert", source, target], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise Different(f"{source}: {done.stderr.decode(errors='replace').strip()}")


def as_json(data):
    """The data as JSON can hold it."""
    return json.loads(json.dumps(data))


def is_same(a, b):
    """Equal, in value and in kind: 1 is not True, and NaN is NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(is_same(value, b[key]) for key, value in a.items())
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(is_same(x, y) for x, y in zip(a, b))
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return a == b


def find_difference(a, b, path=""):
    """Where the first difference is, and what stands there."""
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        parts = [(f"{path}.{key}", a[key], b[key]) for key in a]
    elif type(a) is type(b) and isinstance(a, (list, tuple)) and len(a) == len(b):
        parts = [(f"{path}[{i}]", x, y) for i, (x, y) in enumerate(zip(a, b))]
    else:
        return f"{path}: {a!r:.500} and {b!r:.500}"
    return next((find_difference(x, y, where) for where, x, y in parts if not is_same(x, y)), path)


def expect_same(what, got, wanted, compare):
    if not compare(got, wanted):
        raise Different(f"{what}: {find_difference(got, wanted)}")


def load_pickle(path):
    with open(path, "rb") as file:
        return pickle.load(file)


def load_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def check(program, source, wanted, folder, limit, compare, allows_large):
    """Compares what the source becomes with what it is."""
    first, text, second = (os.path.join(folder, name) for name in ("first.pickle", "text.json", "second.pickle"))
    convert(program, source, first)
    got = load_pickle(first)
    expect_same("pickle", got, wanted, compare)
    del got
    is_small = os.path.getsize(first) <= limit
    if is_small:
        with open(first, "rb") as file:
            expect_same("viewer", viewer.load(file.read(), allows_large), wanted, compare)
    convert(program, first, text)
    plain = as_json(wanted)
    expect_same("json", load_json(text), plain, compare)
    if is_small:
        convert(program, text, second)
        expect_same("pickle of json", as_json(load_pickle(second)), plain, compare)


def run_file(program, path, limit):
    with tempfile.TemporaryDirectory() as folder:
        wanted = encode.load(path)
        check(program, path, wanted, folder, limit, lambda a, b: a == b, False)
        print(f"{path}: {sum(len(track) for track in wanted['device_traces'])} entries come back")


# ---------------------------------------------------------------------------------------------------
# Random snapshots

TEXTS = ["", "a", "N/A", "frames", "action", "f\u00e9", "\u20ac", "\U0001f600", "x" * 300, "a\0b", "\ud800", "\udfff",
         "?"]
ACTIONS = ["alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map",
           "segment_unmap", "snapshot", "oom", "user_defined", "other", "annotate", ""]


class Maker:
    """Makes snapshots that may be read: what is required is right, all else may be anything."""

    def __init__(self, rng):
        self.rng = rng
        self.stacks = []
        self.plain = []

    def chance(self, most):
        return self.rng.randrange(most) == 0

    def integer(self):
        edges = [0, 1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1]
        return self.rng.choice(edges + [self.rng.getrandbits(self.rng.randint(1, 64))])

    def anything(self, depth=4):
        if self.plain and self.chance(8):
            return self.rng.choice(self.plain)
        if self.stacks and self.chance(10):
            return self.rng.choice(self.stacks)
        kind = self.rng.randrange(9 if depth > 0 else 6)
        if kind < 6:
            numbers = [0.0, -0.0, 0.1, 1e300, 5e-324, math.inf, -math.inf, math.nan, self.rng.random()]
            return [None, True, False, self.rng.choice([self.integer(), -self.rng.getrandbits(63)]),
                    self.rng.choice(numbers), self.rng.choice(TEXTS)][kind]
        count = self.rng.choice([0, 1, 2, 3, 5])
        if kind == 6:
            part = [self.anything(depth - 1) for _ in range(count)]
        elif kind == 7:
            part = tuple(self.anything(depth - 1) for _ in range(count))
        else:
            part = {self.rng.choice(TEXTS) + str(i): self.anything(depth - 1) for i in range(count)}
        self.plain.append(part)
        return part

    def record(self, keys):
        """Some of the keys, in some order, some with another value than usual, and some more."""
        pairs = []
        for key, make in keys:
            if make is None or self.chance(6):
                continue
            pairs.append((key, self.anything() if self.chance(8) else make()))
        for _ in range(self.rng.choice([0, 0, 0, 1, 3])):
            pairs.append((self.rng.choice(TEXTS), self.anything()))
        self.rng.shuffle(pairs)
        return dict(pairs)

    def possible(self, record, place, sizes):
        """What the record says was memory could have been: no size of 2^57 bytes or more, no end above 2^64."""
        for key in sizes:
            if type(record.get(key)) is int and record[key] >= 2**57:
                record[key] %= 2**57
        if type(record.get(place)) is int and record[place] > 2**64 - 2**57:
            record[place] %= 2**63
        return record

    def frame(self):
        return self.record([("name", lambda: self.rng.choice(TEXTS)), ("filename", lambda: self.rng.choice(TEXTS)),
                            ("line", lambda: self.rng.randint(-1, 9))])

    def stack(self):
        if self.stacks and self.chance(2):
            return self.rng.choice(self.stacks)
        frames = [frame for stack in self.stacks for frame in stack]
        count = self.rng.randrange(4)
        stack = [self.rng.choice(frames) if frames and self.chance(3) else self.frame() for _ in range(count)]
        self.stacks.append(stack)
        return stack

    def pool(self):
        pair = (self.rng.choice([0, 0, 1, 2**64 - 1]), self.rng.randrange(3))
        return list(pair) if self.chance(5) else pair

    def entry(self):
        entry = self.record([
            ("addr", self.integer), ("stream", self.integer),
            ("time_us", lambda: self.rng.choice([0, 2**50, 2**60, 0.5])),
            ("compile_context", lambda: self.rng.choice(TEXTS)), ("user_metadata", lambda: self.rng.choice(TEXTS)),
            ("frames", self.stack), ("pool_id", self.pool),
            ("device_free", self.integer if self.chance(4) else None)])
        entry["action"] = self.rng.choice(ACTIONS)
        if not self.chance(5):
            entry["size"] = self.integer()
        return self.possible(entry, "addr", ["size", "device_free"])

    def block(self):
        block = self.record([("address", self.integer), ("requested_size", self.integer), ("frames", self.stack),
                             ("state", lambda: self.rng.choice(["inactive", "active_allocated", "active_pending_free",
                                                                "active_awaiting_free", "lost"]))])
        if not self.chance(5):
            block["size"] = self.integer()
        return self.possible(block, "address", ["size", "requested_size"])

    def segment(self):
        segment = self.record([
            ("device", lambda: self.rng.choice([0, 255, 256])), ("stream", self.integer),
            ("allocated_size", self.integer), ("active_size", self.integer), ("requested_size", self.integer),
            ("is_expandable", lambda: self.chance(2)),
            ("segment_type", lambda: self.rng.choice(["small", "large", "huge"])), ("segment_pool_id", self.pool),
            ("frames", self.stack)])
        segment["address"] = self.integer()
        segment["total_size"] = self.integer()
        if not self.chance(5):
            segment["blocks"] = [self.block() for _ in range(self.rng.randrange(4))]
        sizes = ["total_size", "allocated_size", "active_size", "requested_size"]
        return self.possible(segment, "address", sizes)

    def snapshot(self):
        segments = [self.segment() for _ in range(self.rng.randrange(4))]
        if self.chance(10):
            return segments
        pairs = [("segments", segments)]
        traces = [[self.entry() for _ in range(self.rng.choice([0, 1, 8, 40]))] for _ in range(self.rng.randrange(4))]
        for track in traces:
            if track and self.chance(3):
                track.append(track[0])  # an entry that is shared
        pairs.append(("device_traces", traces))
        for key in ("allocator_settings", "external_annotations", "host_traces", ""):
            if self.chance(2):
                pairs.append((key, self.anything()))
        if self.chance(5):
            del pairs[self.rng.randrange(2)]
        self.rng.shuffle(pairs)
        return dict(pairs)


def wide_snapshot():
    """More of everything than is written at once, or has a short form."""
    entries = [{"action": "alloc", "addr": 512 * i, "size": i, "user_metadata": f"step {i}"} for i in range(2501)]
    return {"segments": [{"address": i, "total_size": 1, "blocks": [{"size": i}] * 0} for i in range(1001)],
            "device_traces": [entries, []], "x": {str(i): i for i in range(2000)}, "y": list(range(3000)),
            "z": tuple(range(1500)), "w": {"k" * i: "v" * i for i in range(250, 260)}}


def encodings(data, rng):
    yield "pickle", pickle.dumps(data, rng.randint(2, 5))
    yield "pickle", encode.torch_style(data)
    yield "pickle", encode.odd_style(data, rng)
    yield "json", json.dumps(data, ensure_ascii=rng.randrange(2) == 0, indent=rng.choice([None, 0, 3])).encode(
        "utf-8", "surrogatepass")


def run_random(program, seed, count):
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            rng = random.Random(seed * 1000003 + number)
            data = wide_snapshot() if number == 0 else Maker(rng).snapshot()
            for kind, encoded in encodings(data, rng):
                path = os.path.join(folder, "source." + kind)
                with open(path, "wb") as file:
                    file.write(encoded)
                text = encoded.decode("utf-8", "surrogatepass") if kind == "json" else ""
                wanted = json.loads(text) if kind == "json" else pickle.loads(encoded)
                try:
                    check_random(program, path, kind, wanted, folder)
                except (Different, viewer.Refused) as error:
                    keep = os.path.join(tempfile.gettempdir(), f"tidemark-roundtrip-{seed}-{number}.{kind}")
                    with open(keep, "wb") as file:
                        file.write(encoded)
                    sys.exit(f"seed {seed}, number {number}, kept as {keep}: {error}")
        print(f"{count} snapshots come back")


def check_random(program, path, kind, wanted, folder):
    if kind == "pickle":
        check(program, path, wanted, folder, 1 << 20, is_same, True)
        return
    target = os.path.join(folder, "text.json")
    convert(program, path, target)
    expect_same("json of json", load_json(target), wanted, is_same)


def main(arguments):
    program, what, first, second = arguments
    if what == "random":
        run_random(program, int(first), int(second))
        return
    try:
        run_file(program, first, int(second))
    except (Different, viewer.Refused) as error:
        sys.exit(f"{first}: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
