# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Reads recordings: PyTorch's memory snapshots, and every other format that the C library reads."""
from __future__ import annotations

import ctypes
import operator
from typing import Any, Iterable, Iterator, NamedTuple, Optional, Union, overload

from . import abi, page, report, sources
from .abi import Action, TidemarkError
from .columns import Column, Table
from .page import Page
from .peak import Peak, peak_of
from .report import Report
from .stacks import Frame, Note, Trace, checked
from .timeline import Timeline

SHOWN_ENTRIES = 1_000_000  # of a recording that a notebook shows by itself


class Entry(NamedTuple):
    """One event; see the columns of Entries."""
    action: Action
    address: int
    size: int
    stream: int
    time: int
    stack: int
    note: int
    pool: int
    device: int


def _entry(row: Iterable[int]) -> Entry:
    action, *rest = row
    return Entry(Action(action), *rest)


class Entries(Table):
    """The entries of a device, oldest first: a sequence of Entry, with a column for each field."""
    struct = abi.TraceEntry
    action = Column("action", "What happened: numbers of tidemark.Action.")
    address = Column("address", "Of the block or segment. OOM: the free bytes of the device.")
    size = Column("bytes", "Bytes. ALLOC and FREE_*: as requested; SEGMENT_*: of the range; OOM: rounded.")
    stream = Column("stream", "The stream's handle.")
    time = Column("time_ns", "The time in nanoseconds; 0 if the file has none.")
    stack = Column("stack", "The call stack, for recording.stack(); 0: none.")
    note = Column("note", "The note, for recording.note(); 0: none.")
    pool = Column("pool", "The pool, for recording.pool(); 0: the default one.")
    device = Column("device", "The number of the device, the same in all rows.")
    absent = Column("absent", "Keys that the file does not have: bits TIDE_ENTRY_* of tidemark/trace.h.")

    def _columns(self) -> tuple[memoryview, ...]:
        return (self.action, self.address, self.size, self.stream, self.time, self.stack, self.note, self.pool, self.device)

    @overload
    def __getitem__(self, index: int) -> Entry: ...

    @overload
    def __getitem__(self, index: slice) -> list[Entry]: ...

    def __getitem__(self, index: Union[int, slice]) -> Union[Entry, list[Entry]]:
        if isinstance(index, slice):
            return [_entry(row) for row in zip(*(column[index] for column in self._columns()))]
        number = operator.index(index)
        return _entry(column[number] for column in self._columns())

    def __iter__(self) -> Iterator[Entry]:
        return map(_entry, zip(*self._columns()))

    def __repr__(self) -> str:
        return f"<Entries: {len(self)}>"


class Segments(Table):
    """The segments after the last entry, as the file lists them."""
    struct = abi.TraceSegment
    device = Column("device", "The number of the device.")
    address = Column("address", "Where it begins.")
    size = Column("bytes", "Bytes of this range; of an expandable segment, one range of mapped memory.")
    stream = Column("stream", "The stream's handle.")
    pool = Column("pool", "The pool, for recording.pool(); 0: the default one.")
    stack = Column("stack", "The call stack of the request that created it; 0: none.")
    allocated = Column("allocated_bytes", "Bytes of allocated blocks, as the file states them.")
    active = Column("active_bytes", "Bytes of blocks in use, as the file states them.")
    requested = Column("requested_bytes", "Bytes that were requested, as the file states them.")
    first_block = Column("first_block", "The first of its rows in recording.blocks.")
    block_count = Column("block_count", "The number of its rows in recording.blocks.")
    is_large = Column("is_large", "Is it for large requests?")
    is_expandable = Column("is_expandable", "Is it a range of an expandable segment?")

    def __init__(self, trace: Trace, address: Optional[int], count: int) -> None:
        super().__init__(trace, address, count)
        self._trace = trace
        self._first = ctypes.cast(address, ctypes.POINTER(abi.TraceSegment))

    def _each(self, function: Any) -> Iterator[Any]:
        return (function(self._trace.pointer, ctypes.byref(self._first[i])) for i in range(len(self)))

    @property
    def tag(self) -> tuple[str, ...]:
        """The tags of their pools, as docs/park.md describes them; "" if a pool has none."""
        return tuple(tag.decode(errors="replace") for tag in self._each(self._trace.library.tide_trace_segment_tag))

    @property
    def is_parked(self) -> tuple[bool, ...]:
        """Is it parked? Then its memory was given back, its addresses stay, and its bytes are not reserved."""
        return tuple(self._each(self._trace.library.tide_trace_segment_is_parked))

    def __repr__(self) -> str:
        return f"<Segments: {len(self)}>"


class Blocks(Table):
    """The blocks after the last entry, as the file lists them; those of a segment are adjacent."""
    struct = abi.TraceBlock
    address = Column("address", "Where it begins.")
    size = Column("bytes", "Bytes of the block.")
    requested = Column("requested_bytes", "Bytes of the last request that used it.")
    stack = Column("stack", "The call stack of that request; 0: none.")
    state = Column("state", "Numbers of tidemark.BlockState.")

    def __repr__(self) -> str:
        return f"<Blocks: {len(self)}>"


class Tag(NamedTuple):
    """What a tag may have, in bytes, and what was counted for it and the tags below it: see docs/budget.md."""
    tag: str
    has_budget: bool
    limit: Optional[int]  # None: none
    soft_limit: Optional[int]
    guarantee: int
    priority: int
    yields: bool
    constant: bool
    reserved_bytes: int  # after the last entry
    claimed_bytes: int  # with guarantees that are not used
    peak_reserved_bytes: int
    parked_count: int  # pools that were parked to give way
    fetched_count: int  # pools that came back
    ahead_count: int  # of these, before they were asked for
    sent_bytes: int  # copied away
    fetched_bytes: int  # copied back
    idle_bytes: int  # idle memory that was given back to give way
    refused_count: int


def _tag(trace: Trace, number: int) -> tuple[int, Tag]:
    """The device of a tag, and the tag."""
    found = abi.TraceTag(size=ctypes.sizeof(abi.TraceTag))
    trace.library.tide_trace_get_tag(trace.pointer, number, ctypes.byref(found))
    values = {name: getattr(found, "is_constant" if name == "constant" else name) for name in Tag._fields}
    limits = {name: None if values[name] == 2**64 - 1 else values[name] for name in ("limit", "soft_limit")}
    return found.device, Tag(**{**values, **limits, "tag": found.tag.decode(errors="replace")})


class Device:
    """One device of a recording."""

    def __init__(self, trace: Trace, index: int, name: str = "recording") -> None:
        self._trace = trace
        self._name = name
        self.index = index

    @property
    def entries(self) -> Entries:
        """What happened on the device."""
        count = ctypes.c_size_t()
        first = self._trace.library.tide_trace_entries(self._trace.pointer, self.index, ctypes.byref(count))
        return Entries(self._trace, ctypes.cast(first, ctypes.c_void_p).value, count.value)

    @property
    def tags(self) -> dict[str, Tag]:
        """The tags that a snapshot of Tidemark lists, by their path, with what each may have and has had."""
        count = self._trace.library.tide_trace_tag_count(self._trace.pointer)
        found = (_tag(self._trace, number) for number in range(count))
        return {tag.tag: tag for device, tag in sorted(found) if device == self.index}

    def timeline(self, points: int = 1000, x: str = "time") -> Timeline:
        """Memory over time in `points` buckets of equal width, by "time" or by "entry"."""
        return Timeline(self._trace, self.index, operator.index(points), x)

    def peak(self, of: str = "allocated") -> Peak:
        """The moment of a peak, and who held memory then. `of` is allocated, requested, allocated_blocks, active or
        reserved."""
        return peak_of(self._trace, self.index, of, self.entries.time)

    def report(self) -> Report:
        """The diagnosis of the tidemark command, as `tidemark report --json` prints it."""
        return report.of(self._trace, self._name, self.index)

    def __repr__(self) -> str:
        return f"<Device {self.index}: {len(self.entries)} entries>"


class Recording:
    """A recording in memory. It does not change, and several threads may use it.

    Can be used as a context manager. close() gives the memory back, or the last column does that is still in use.
    """

    def __init__(self, trace: Trace, name: str) -> None:
        self._held: Optional[Trace] = trace
        self.name = name

    @property
    def _trace(self) -> Trace:
        trace = self._held
        if trace is None:
            raise ValueError(f"the recording of {self.name} is closed")
        return trace

    def close(self) -> None:
        """Ends the use of the recording. May be called again."""
        self._held = None

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._held is None:
            return f"<Recording of {self.name}, closed>"
        return f"<Recording of {self.name}: {', '.join(repr(device)[1:-1] for device in self.devices) or 'no device'}>"

    # ---------------------------------------------------------------------------------------------------
    # What it has

    @property
    def segments(self) -> Segments:
        """The segments of all devices after the last entry."""
        trace, count = self._trace, ctypes.c_size_t()
        first = trace.library.tide_trace_segments(trace.pointer, ctypes.byref(count))
        return Segments(trace, ctypes.cast(first, ctypes.c_void_p).value, count.value)

    @property
    def blocks(self) -> Blocks:
        """The blocks of all devices after the last entry."""
        trace, count = self._trace, ctypes.c_size_t()
        first = trace.library.tide_trace_blocks(trace.pointer, ctypes.byref(count))
        return Blocks(trace, ctypes.cast(first, ctypes.c_void_p).value, count.value)

    @property
    def devices(self) -> tuple[Device, ...]:
        """All devices up to the last one with entries or segments."""
        trace = self._trace
        count = max([trace.library.tide_trace_device_count(trace.pointer), *(n + 1 for n in set(self.segments.device))])
        return tuple(Device(trace, index, self.name) for index in range(count))

    @property
    def is_cut(self) -> bool:
        """Is the end of the file missing or damaged? The recording has what precedes it."""
        return bool(self._about.is_cut)

    @property
    def has_steps(self) -> bool:
        """Are times numbers of steps, 1000 ns each, and not times of a clock?"""
        return bool(self._about.has_steps)

    @property
    def settings(self) -> Any:
        """The allocator's settings, as the file has them; None: none."""
        return self._trace.value(self._about.settings)

    @property
    def annotations(self) -> Any:
        """The external annotations, as the file has them; None: none."""
        return self._trace.value(self._about.annotations)

    @property
    def extra(self) -> Any:
        """Other keys of the file; None: none."""
        return self._trace.value(self._about.extra)

    @property
    def _about(self) -> abi.TraceAbout:
        trace = self._trace
        about: abi.TraceAbout = trace.library.tide_trace_get_about(trace.pointer)
        return about

    def stack(self, number: int) -> tuple[Frame, ...]:
        """The frames of a stack, innermost first. Raises IndexError for an unknown number."""
        trace = self._trace
        frames, count = trace.stack(number)
        return tuple(trace.frame(frame) for frame in frames[:count])

    def note(self, number: int) -> Note:
        """The note with a number from a column. Raises IndexError for an unknown number."""
        return self._trace.note(number)

    def pool(self, number: int) -> tuple[int, int]:
        """The two numbers that the file has for a pool. Raises IndexError for an unknown number."""
        trace = self._trace
        most = trace.library.tide_trace_pool_count(trace.pointer) - 1
        label = trace.library.tide_trace_pool(trace.pointer, checked(number, most, "pool"))
        return label.first, label.second

    # ---------------------------------------------------------------------------------------------------
    # What it says, of one device. By default it is the one that ran out of memory first, or the first with entries.

    def timeline(self, points: int = 1000, x: str = "time", device: Optional[int] = None) -> Timeline:
        """See Device.timeline()."""
        return self._device(device).timeline(points, x)

    def peak(self, of: str = "allocated", device: Optional[int] = None) -> Peak:
        """See Device.peak()."""
        return self._device(device).peak(of)

    def report(self, device: Optional[int] = None) -> Report:
        """See Device.report()."""
        return report.of(self._trace, self.name, device if device is None else self._device(device).index)

    def view(self, *, height: int = 760, theme: str = "auto", page_size: int = 48 << 20) -> Page:
        """The page of `tidemark view` for all devices: the last value of a notebook's cell is shown, save() writes a file.

        height      of the frame in a notebook, in pixels
        theme       "light", "dark", or "auto": as the notebook
        page_size   the most bytes of the page. If it needs more, blocks with short lives are left out, and it says so
        """
        return page.page_of(self._trace, self.name, operator.index(page_size), operator.index(height), theme)

    def _repr_html_(self) -> Optional[str]:
        """For notebooks: the finding, and memory over time. None, where the text is shown instead: without the command, and
        for a recording that is closed or so long that it would take seconds."""
        if self._held is None or sum(len(device.entries) for device in self.devices) > SHOWN_ENTRIES:
            return None
        try:
            said = self.report()
            return page.picture_of(self._trace, self.name, said["device"], said.words())
        except TidemarkError:
            return None

    def _device(self, index: Optional[int]) -> Device:
        devices = self.devices
        if index is not None:
            if not 0 <= index < len(devices):
                raise IndexError(f"there is no device {index}; the recording has {len(devices)}")
            return devices[index]
        refusals = []
        for device in devices:
            at = device.entries.action.tobytes().find(bytes([Action.OOM]))
            if at >= 0:
                refusals.append((device.entries.time[at], device.index))
        if refusals:
            return devices[min(refusals)[1]]
        listed = sorted(set(self.segments.device))
        with_entries = [device.index for device in devices if len(device.entries) > 0]
        return Device(self._trace, [*with_entries, *listed, 0][0], self.name)


def read(source: sources.Readable, *, memory: Optional[int] = None, max_unpacked: Optional[int] = None) -> Recording:
    """Reads a recording in any format of the C library; the format and gzip, xz or zstd are found from the first bytes.

    source         a path, an open binary file, or bytes
    memory         the most bytes of memory that the recording and its reader may take (default: 16 GiB)
    max_unpacked   a limit on the decompressed size (default: 256 times the file, between 64 MiB and 16 GiB)

    Safe on files that you do not trust: nothing in a file is executed. Raises TidemarkError if the file is damaged, of no
    known format, or too large, and OSError if it cannot be read.
    """
    for limit in (memory, max_unpacked):
        if limit is not None and not 0 < limit < 2**64:
            raise ValueError(f"a limit must be between 1 and 2**64 - 1, not {limit}")
    file, is_ours, name = sources.opened(source)
    try:
        return Recording(sources.read_trace(file, memory, max_unpacked), name)
    except TidemarkError as error:
        raise TidemarkError(f"{name}: {error}", error.status) from error.__cause__
    finally:
        if is_ours:
            file.close()
