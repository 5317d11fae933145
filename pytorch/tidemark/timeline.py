# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Memory over time, in buckets of equal width."""
from __future__ import annotations

import ctypes
from typing import NamedTuple

from . import abi
from .columns import Column, Table
from .ledger import Ledger
from .stacks import Trace

AXES = {"entry": 0, "time": 1}  # tide_timeline_axis


class Range(NamedTuple):
    """The values of one quantity: a column each."""
    least: memoryview
    most: memoryview  # the largest of all is the peak
    last: memoryview  # with which a bucket ends


class Timeline(Table):
    """Memory over time. The names of quantities are those of `tidemark report --json`."""
    struct = abi.TimelineBucket
    begin = Column("begin", "Where each bucket begins: in ns, or as the number of an entry. It ends where the next one begins.")
    first = Column("first", "The number of the first entry in each bucket; if it has none, of the next entry.")
    count = Column("entry_count", "The number of entries in each bucket.")

    def __init__(self, trace: Trace, device: int, points: int, x: str) -> None:
        if x not in AXES:
            raise ValueError(f'x must be "time" or "entry", not {x!r}')
        if not 0 < points < 2**32:
            raise ValueError(f"points must be between 1 and 2**32 - 1, not {points}")
        buckets = (abi.TimelineBucket * points)()
        with Ledger(trace, device) as ledger:
            ledger.timeline(AXES[x], buckets)
        super().__init__(buckets, ctypes.addressof(buckets), points)
        self.x = x
        self.device = device

    def _range(self, field: str) -> Range:
        offset = getattr(abi.TimelineBucket, field).offset
        return Range(*(self._column(kind, offset + getattr(abi.TimelineRange, name).offset)
                       for name, kind in abi.TimelineRange._fields_))

    @property
    def allocated(self) -> Range:
        """Bytes of live requests, each rounded up to 512."""
        return self._range("live")

    @property
    def requested(self) -> Range:
        """Bytes of live requests, as they were asked for."""
        return self._range("requested")

    @property
    def allocated_blocks(self) -> Range:
        """Bytes of blocks that are handed out; PyTorch's allocated_bytes."""
        return self._range("allocated")

    @property
    def active(self) -> Range:
        """Bytes of these blocks, and of released ones that wait for other streams; PyTorch's active_bytes."""
        return self._range("active")

    @property
    def reserved(self) -> Range:
        """Bytes of segments."""
        return self._range("reserved")

    def __repr__(self) -> str:
        return f"<Timeline of device {self.device}: {len(self)} buckets by {self.x}>"
