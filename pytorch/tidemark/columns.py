# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Columns of structs in C memory, without copies.

A column is a memoryview: a sequence of numbers that NumPy takes as it is (`numpy.asarray(column)`). It cannot be written
to, and keeps the memory alive.
"""
from __future__ import annotations

import ctypes
from typing import Any, Optional, Type

_FORMATS = {ctypes.c_uint8: "B", ctypes.c_uint16: "H", ctypes.c_uint32: "I", ctypes.c_uint64: "Q", ctypes.c_int64: "q",
            ctypes.c_bool: "?"}


def _whole(owner: object, address: Optional[int], size: int) -> memoryview:
    """Memory as bytes."""
    if not address or not size:
        return memoryview(b"")
    raw = (ctypes.c_ubyte * size).from_address(address)
    raw.owner = owner  # type: ignore[attr-defined]  # views and arrays refer to `raw`, and so to the owner
    return memoryview(raw).cast("B").toreadonly()


class Table:
    """An array of structs. A subclass names the struct, and has a Column for each field."""
    struct: Type[ctypes.Structure]

    def __init__(self, owner: object, address: Optional[int], count: int) -> None:
        """The owner keeps the memory alive."""
        self._count = count
        self._memory = _whole(owner, address, count * ctypes.sizeof(self.struct))

    def __len__(self) -> int:
        return self._count

    def _column(self, kind: Any, offset: int) -> memoryview:
        step, rest = divmod(ctypes.sizeof(self.struct), ctypes.sizeof(kind))
        first, beside = divmod(offset, ctypes.sizeof(kind))
        assert rest == beside == 0, "C aligns fields"
        return self._memory.cast(_FORMATS[kind])[first::step]


class Column:
    """A field of all rows of a Table."""

    def __init__(self, field: str, text: str) -> None:
        self._field = field
        self.__doc__ = text

    def __get__(self, table: Optional[Table], kind: Optional[type] = None) -> memoryview:
        if table is None:
            return self  # type: ignore[return-value]  # for documentation
        return table._column(dict(table.struct._fields_)[self._field], getattr(table.struct, self._field).offset)
