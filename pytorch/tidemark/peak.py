# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Who holds memory at a peak."""
from __future__ import annotations

import dataclasses
from typing import NamedTuple, Optional

from . import abi
from .ledger import Ledger
from .sizes import size_text
from .stacks import Frame, Trace

# The peaks by the names of `tidemark report --json`: the field of tide_ledger_peaks
PEAKS = {"allocated": "live", "requested": "requested", "allocated_blocks": "allocated", "active": "active",
         "reserved": "reserved"}
SHOWN = 10


class Block(NamedTuple):
    """A block that was in use."""
    address: int
    size: int
    requested: int
    made_at: Optional[int]  # the number of the ALLOC entry; None: before the recording
    stack: int
    state: abi.BlockState
    stream: int
    pool: int


@dataclasses.dataclass(frozen=True)
class Site:
    """A line of the program, and the blocks that it had asked for."""
    frame: Optional[Frame]  # None: no stack was recorded
    bytes: int  # as requested
    blocks: int

    def __str__(self) -> str:
        return str(self.frame) if self.frame else "(no stack)"


@dataclasses.dataclass(frozen=True)
class Peak:
    """The moment at which a quantity first reached its peak. Sums are in bytes, and have the names of
    `tidemark report --json`."""
    device: int
    of: str  # the quantity
    bytes: int
    entry: Optional[int]  # the number of the entry; None: before the first
    time: Optional[int]  # of the entry, in ns
    allocated: int
    requested: int
    allocated_blocks: int
    active: int
    reserved: int
    blocks: tuple[Block, ...]  # in use, the largest first
    sites: tuple[Site, ...]  # that hold them, the largest first

    def __str__(self) -> str:
        when = "before the first entry" if self.entry is None else f"after entry {self.entry}"
        lines = [f"device {self.device}: the peak of {self.of} memory is {size_text(self.bytes)}, {when}"]
        lines += [f"{size_text(site.bytes):>12}  {site.blocks:>6}  {site}" for site in self.sites[:SHOWN]]
        if len(self.sites) > SHOWN:
            rest = sum(site.bytes for site in self.sites[SHOWN:])
            lines.append(f"{size_text(rest):>12}  {sum(site.blocks for site in self.sites[SHOWN:]):>6}  "
                         f"in {len(self.sites) - SHOWN} more call sites")
        return "\n".join(lines)

    __repr__ = __str__


def _blocks(ledger: Ledger) -> tuple[Block, ...]:
    """The blocks in use at the ledger's point."""
    blocks: list[Block] = []
    home = [0, 0]  # stream and pool of the segment that is visited

    def on_segment(segment: abi.LedgerSegment) -> None:
        home[:] = segment.stream, segment.pool

    def on_block(block: abi.LedgerBlock) -> None:
        if block.state != abi.BlockState.INACTIVE:
            blocks.append(Block(block.address, block.bytes, block.requested_bytes,
                                None if block.made_at == abi.BEFORE else block.made_at, block.stack,
                                abi.BlockState(block.state), home[0], home[1]))

    ledger.visit(on_segment, on_block)
    return tuple(sorted(blocks, key=lambda block: (-block.requested, block.address)))


def _sites(trace: Trace, blocks: tuple[Block, ...]) -> tuple[Site, ...]:
    of_stack = {stack: trace.site(stack) for stack in {block.stack for block in blocks}}
    sums: dict[Optional[Frame], tuple[int, int]] = {}
    for block in blocks:
        count, held = sums.get(of_stack[block.stack], (0, 0))
        sums[of_stack[block.stack]] = count + 1, held + block.requested
    return tuple(sorted((Site(frame, held, count) for frame, (count, held) in sums.items()),
                        key=lambda site: (-site.bytes, str(site))))


def peak_of(trace: Trace, device: int, of: str, times: memoryview) -> Peak:
    """The peak of a quantity on a device whose entries have these times."""
    if of not in PEAKS:
        raise ValueError(f"there is a peak of {', '.join(PEAKS)}, but not of {of!r}")
    with Ledger(trace, device) as ledger:
        peak = getattr(ledger.peaks(), PEAKS[of])
        totals = ledger.totals(peak.at)
        blocks = _blocks(ledger)
    is_before = peak.at == abi.BEFORE
    return Peak(device, of, peak.bytes, None if is_before else peak.at, None if is_before else times[peak.at],
                totals.live_bytes, totals.requested_bytes, totals.allocated_bytes, totals.active_bytes,
                totals.reserved_bytes, blocks, _sites(trace, blocks))
