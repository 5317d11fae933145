# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Reads a pickle the way PyTorch's viewer of memory snapshots does: with the instructions it knows and no others, at
most 1000 items given to a list or dict at once (a JavaScript engine puts them on its stack), and integers that a
floating-point number holds exactly. What is not so is an error that names the byte.

usage: viewer.py FILE ...      says for each file that it can be viewed, or ends with status 1
"""
import struct
import sys

BATCH = 1000
EXACT = 1 << 53


class Refused(Exception):
    pass


class Machine:
    """The stack machine. A mark is an entry of `marks`, the depth of the stack below it."""

    def __init__(self, data, allows_large):
        self.data = data
        self.at = 0
        self.stack = []
        self.marks = []
        self.memo = []
        self.allows_large = allows_large

    def refuse(self, words):
        raise Refused(f"byte {self.at}: {words}")

    def take(self, count):
        piece = self.data[self.at:self.at + count]
        if len(piece) != count:
            self.refuse("the file ends here")
        self.at += count
        return piece

    def number(self, count, signed=False):
        return int.from_bytes(self.take(count), "little", signed=signed)

    def push(self, value):
        self.stack.append(value)

    def push_int(self, value):
        if abs(value) >= EXACT and not self.allows_large:
            self.refuse(f"{value} is not exact")
        self.stack.append(value)

    def push_long(self):
        count = self.number(1)
        if count > 8 and not self.allows_large:
            self.refuse(f"an integer of {count} bytes")
        self.push_int(self.number(count, signed=True))

    def push_text(self, count):
        self.push(self.take(self.number(count)).decode("utf-8", "surrogatepass"))

    def popped_to_mark(self):
        if not self.marks:
            self.refuse("there is no mark")
        begin = self.marks.pop()
        items = self.stack[begin:]
        del self.stack[begin:]
        return items

    def top(self, kind):
        if not self.stack or type(self.stack[-1]) is not kind:
            self.refuse(f"no {kind.__name__} lies below")
        return self.stack[-1]

    def append(self, items):
        if len(items) > BATCH:
            self.refuse(f"{len(items)} items at once")
        self.top(list).extend(items)

    def set_items(self, items):
        if len(items) > 2 * BATCH or len(items) % 2 != 0:
            self.refuse(f"{len(items)} keys and values at once")
        into = self.top(dict)
        wanted = len(into) + len(items) // 2
        into.update(zip(items[::2], items[1::2]))
        if len(into) != wanted or not all(type(key) is str for key in items[::2]):
            self.refuse("a key that is no text, or comes twice")

    def tuple_of(self, count):
        if count > 0:
            self.stack[-count:] = [tuple(self.stack[-count:])]
        else:
            self.push(())

    def get(self, number):
        if number >= len(self.memo):
            self.refuse(f"number {number} is not remembered")
        self.push(self.memo[number])

    def put(self, number):
        if number > len(self.memo):
            self.refuse(f"number {number} is remembered after {len(self.memo)}")
        self.memo[number:number + 1] = [self.stack[-1]]

    def step(self, code):
        step = STEPS.get(code)
        if step is None:
            self.at -= 1
            self.refuse(f"instruction 0x{code:02x}")
        step(self)

    def run(self):
        if self.take(1) != b"\x80" or self.number(1) not in (2, 3, 4):
            self.refuse("a protocol that is not 2, 3 or 4")
        data, stack, memo = self.data, self.stack, self.memo
        while self.at < len(data) and data[self.at] != STOP:
            code = data[self.at]
            self.at += 1
            if code == BINGET and self.at < len(data) and data[self.at] < len(memo):  # the most frequent ones here
                stack.append(memo[data[self.at]])
                self.at += 1
            elif code == MARK:
                self.marks.append(len(stack))
            else:
                self.step(code)
        self.take(1)
        if len(stack) != 1 or self.marks:
            self.refuse("more than one part is left")
        return stack[0]


STOP, MARK, BINGET = 0x2E, 0x28, 0x68
STEPS = {
    0x95: lambda m: m.take(8),
    0x28: lambda m: m.marks.append(len(m.stack)),
    0x7D: lambda m: m.push({}),
    0x75: lambda m: m.set_items(m.popped_to_mark()),
    0x73: lambda m: m.set_items([m.stack.pop(), m.stack.pop()][::-1]),
    0x5D: lambda m: m.push([]),
    0x65: lambda m: m.append(m.popped_to_mark()),
    0x61: lambda m: m.append([m.stack.pop()]),
    0x58: lambda m: m.push_text(4),
    0x8C: lambda m: m.push_text(1),
    0x71: lambda m: m.put(m.number(1)),
    0x72: lambda m: m.put(m.number(4)),
    0x94: lambda m: m.put(len(m.memo)),
    0x68: lambda m: m.get(m.number(1)),
    0x6A: lambda m: m.get(m.number(4)),
    0x4B: lambda m: m.push(m.number(1)),
    0x4D: lambda m: m.push(m.number(2)),
    0x4A: lambda m: m.push(m.number(4, signed=True)),
    0x8A: lambda m: m.push_long(),
    0x47: lambda m: m.push(struct.unpack(">d", m.take(8))[0]),
    0x88: lambda m: m.push(True),
    0x89: lambda m: m.push(False),
    0x4E: lambda m: m.push(None),
    0x29: lambda m: m.tuple_of(0),
    0x85: lambda m: m.tuple_of(1),
    0x86: lambda m: m.tuple_of(2),
    0x87: lambda m: m.tuple_of(3),
    0x74: lambda m: m.push(tuple(m.popped_to_mark())),
    0x6C: lambda m: m.push(m.popped_to_mark()),
    0x64: lambda m: m.push(dict(zip(*[iter(m.popped_to_mark())] * 2))),
}


def load(data, allows_large=False):
    """What the viewer sees. With `allows_large`, integers that a file has anyhow are let through."""
    return Machine(data, allows_large).run()


def main(paths):
    for path in paths:
        with open(path, "rb") as file:
            data = file.read()
        try:
            load(data)
        except Refused as refused:
            sys.exit(f"{path}: {refused}")
        print(f"{path}: can be viewed")


if __name__ == "__main__":
    main(sys.argv[1:])
