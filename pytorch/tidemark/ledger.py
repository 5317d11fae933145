# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""The ledger of the C library: the segments and blocks at a point of a trace."""
from __future__ import annotations

import ctypes
from typing import Any, Callable, Optional, Type

from . import abi
from .stacks import Trace


class Ledger:
    """The ledger of one device, for one thread, freed at the end of a `with`."""

    def __init__(self, trace: Trace, device: int) -> None:
        self._trace = trace  # borrowed by the ledger
        self._library = trace.library
        self._pointer = ctypes.c_void_p()
        self._library.tide_ledger_new(trace.pointer, device, ctypes.byref(self._pointer))

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: Any) -> None:
        self._library.tide_ledger_free(self._pointer)
        self._pointer = ctypes.c_void_p()

    def peaks(self) -> abi.LedgerPeaks:
        """Of the whole trace."""
        peaks: abi.LedgerPeaks = self._library.tide_ledger_get_peaks(self._pointer)
        return peaks

    def totals(self, at: int) -> abi.LedgerTotals:
        """Moves to the point after an entry, and returns the sums there."""
        self._library.tide_ledger_seek(self._pointer, at)
        totals: abi.LedgerTotals = self._library.tide_ledger_get_totals(self._pointer)
        return totals

    def timeline(self, axis: int, buckets: Any) -> None:
        """Fills an array of buckets."""
        self._library.tide_ledger_timeline(self._pointer, axis, len(buckets), buckets)

    def visit(self, on_segment: Callable[[abi.LedgerSegment], None], on_block: Callable[[abi.LedgerBlock], None]) -> None:
        """Calls on_segment for each segment at this point, and then on_block for each of its blocks."""
        noted: list[BaseException] = []
        self._library.tide_ledger_visit(self._pointer, _calls(abi.OnSegment, on_segment, noted),
                                        _calls(abi.OnBlock, on_block, noted), None)
        if noted:
            raise noted[0]


def _calls(kind: Type[Any], function: Callable[[Any], None], noted: list[BaseException]) -> Any:
    """A function for the C library. It notes an exception, which C cannot pass on, and ends the visit."""
    def called(_user: Optional[int], item: Any) -> bool:
        try:
            function(item.contents)
            return True
        except BaseException as error:
            noted.append(error)
            return False

    return kind(called)
