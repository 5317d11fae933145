# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""The trace in C memory, and what it stores once: texts, stacks, notes and plain data."""
from __future__ import annotations

import ctypes
import operator
import threading
import weakref
from typing import Any, NamedTuple, Optional

from . import abi

PARTS = 1 << 24  # the most parts of a value that is written out


class Frame(NamedTuple):
    """A line of a call stack."""
    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}" if self.file else self.function


class Note(NamedTuple):
    """What a thread said about its entries."""
    metadata: str
    compile_context: str
    extra: Any  # further keys of the entry in the file; None: none


def decoded(address: Optional[int], count: int) -> str:
    """A text of a file, which may have any bytes; wrong ones are escaped."""
    return ctypes.string_at(address, count).decode("utf-8", "backslashreplace") if address else ""


class Trace:
    """A trace in C memory, freed when nothing refers to it any more. It does not change, so all threads may use it."""

    def __init__(self, pointer: ctypes.c_void_p) -> None:
        """Takes the trace."""
        self.library = abi.load()
        self.pointer = pointer
        self._owned = [(self.library.tide_trace_free, pointer)]
        # At the end of the process others may still use it, so it is left to the system.
        weakref.finalize(self, _free_all, self._owned).atexit = False
        self.names = self.library.tide_trace_names(pointer)
        self.counts = self.library.tide_intern_counts_of(self.names)
        self._lock = threading.Lock()
        self._frames: Optional[ctypes.c_void_p] = None

    def text(self, number: int) -> str:
        """The text with a number; empty for 0."""
        count = ctypes.c_size_t()
        address = self.library.tide_intern_text(self.names, number, ctypes.byref(count))
        return decoded(address, count.value)

    def stack(self, number: int) -> tuple[Any, int]:
        """The numbers of the frames of a stack in C memory, innermost first, and their count."""
        count = ctypes.c_size_t()
        frames = self.library.tide_intern_stack(self.names, checked(number, self.counts.stacks, "stack"),
                                                ctypes.byref(count))
        return frames, count.value

    def frame(self, number: int) -> Frame:
        """The frame with a number. In a trace that was read, every frame of a stack has one."""
        frame = self.library.tide_intern_frame(self.names, number)
        return Frame(self.text(frame.file), frame.line, self.text(frame.name))

    def note(self, number: int) -> Note:
        """The note with a number; an empty one for 0."""
        note = self.library.tide_intern_note(self.names, checked(number, self.counts.notes, "note"))
        return Note(self.text(note.metadata), self.text(note.compile_context), self.value(note.extra))

    def value(self, number: int) -> Any:
        """Plain data; None for 0. Raises TidemarkError if it is too large to be written out."""
        weight = self.library.tide_intern_value_weight(self.names, number)
        if weight > PARTS:
            raise abi.TidemarkError(f"the data has more than {PARTS} parts", "TIDE_ERR_LIMIT")
        return self._value(number, {})

    def _value(self, number: int, known: dict[int, Any]) -> Any:
        """Data that occurs several times is made once. The library limits how deep it is nested."""
        if number not in known:
            known[number] = self._made(self.library.tide_intern_value(self.names, number), known)
        return known[number]

    def _made(self, value: abi.InternValue, known: dict[int, Any]) -> Any:
        kind = abi.ValueKind(value.kind)
        if kind in (abi.ValueKind.LIST, abi.ValueKind.TUPLE):
            items = [self._value(item, known) for item in value.items[: value.count]]
            return tuple(items) if kind is abi.ValueKind.TUPLE else items
        if kind is abi.ValueKind.DICT:
            return {self.text(item >> 32): self._value(item & 0xFFFFFFFF, known) for item in value.items[: value.count]}
        if kind is abi.ValueKind.TEXT:
            return self.text(value.text)
        plain = {abi.ValueKind.NONE: None, abi.ValueKind.BOOL: bool(value.integer), abi.ValueKind.INT: value.integer,
                 abi.ValueKind.UINT: value.integer % 2**64, abi.ValueKind.FLOAT: value.number}
        return plain[kind]

    def frames(self) -> ctypes.c_void_p:
        """What is known about every frame, found on the first call."""
        with self._lock:
            if self._frames is None:
                found = ctypes.c_void_p()
                self.library.tide_frames_new(self.pointer, None, ctypes.byref(found))
                self._owned.append((self.library.tide_frames_free, found))
                self._frames = found
            return self._frames

    def site(self, stack: int) -> Optional[Frame]:
        """The line of the program that a stack leads to, with a short path; None without a stack."""
        numbers, length = self.stack(stack)
        if length == 0:
            return None
        frames = self.frames()
        place = self.library.tide_frames_find_site(frames, numbers, length)
        if place.own >= length:
            return None
        frame = self.library.tide_intern_frame(self.names, numbers[place.own])
        count = ctypes.c_size_t()
        path = self.library.tide_frames_path(frames, frame.file, ctypes.byref(count))
        return Frame(decoded(path, count.value), frame.line, self.text(frame.name))


def checked(number: int, most: int, kind: str) -> int:
    """A number from a column, which may be NumPy's. Raises IndexError if nothing has it."""
    index = operator.index(number)
    if not 0 <= index <= most:
        raise IndexError(f"there is no {kind} {index}; the last one is {most}")
    return index


def _free_all(owned: list[tuple[Any, ctypes.c_void_p]]) -> None:
    """Frees what was made last first."""
    for free, pointer in reversed(owned):
        free(pointer)
