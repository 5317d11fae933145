# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""The structs and functions of the C library that read recordings. A test compares them with the headers."""
from __future__ import annotations

import ctypes
import enum
import functools
from ctypes import POINTER, c_bool, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any

from . import __version__, library

BEFORE = 2**64 - 1  # TIDE_LEDGER_BEFORE
STATE = 12  # TIDE_ERR_STATE
FORMAT_COUNT = 8  # TIDE_FORMAT_COUNT: the format is detected
NATIVE = 2  # TIDE_FORMAT_NATIVE


class TidemarkError(RuntimeError):
    """A call of the C library failed, or the library is missing. `status` is the name of the error, such as
    TIDE_ERR_FORMAT."""

    def __init__(self, text: str, status: str = "") -> None:
        super().__init__(text)
        self.status = status


class Action(enum.IntEnum):
    """What an entry is about; tide_action."""
    ALLOC = 0
    FREE_REQUESTED = 1
    FREE_COMPLETED = 2
    SEGMENT_ALLOC = 3
    SEGMENT_FREE = 4
    SEGMENT_MAP = 5
    SEGMENT_UNMAP = 6
    SNAPSHOT = 7
    OOM = 8
    USER_DEFINED = 9
    OTHER = 10


class BlockState(enum.IntEnum):
    """The state of a block; tide_block_state."""
    INACTIVE = 0
    ALLOCATED = 1
    PENDING = 2


class ValueKind(enum.IntEnum):
    """The kind of plain data; tide_value_kind."""
    NONE = 0
    BOOL = 1
    INT = 2
    UINT = 3
    FLOAT = 4
    TEXT = 5
    LIST = 6
    TUPLE = 7
    DICT = 8


# ---------------------------------------------------------------------------------------------------
# Structs: the documentation of each is the name of the C struct

class TraceEntry(ctypes.Structure):
    """tide_trace_entry"""
    _fields_ = [("time_ns", c_uint64), ("address", c_uint64), ("bytes", c_uint64), ("stream", c_uint64),
                ("stack", c_uint32), ("note", c_uint32), ("pool", c_uint32), ("action", c_uint8), ("device", c_uint8),
                ("absent", c_uint16)]


class TraceSegment(ctypes.Structure):
    """tide_trace_segment"""
    _fields_ = [("address", c_uint64), ("bytes", c_uint64), ("stream", c_uint64), ("allocated_bytes", c_uint64),
                ("active_bytes", c_uint64), ("requested_bytes", c_uint64), ("first_block", c_uint64),
                ("block_count", c_uint32), ("stack", c_uint32), ("pool", c_uint32), ("extra", c_uint32),
                ("absent", c_uint16), ("device", c_uint8), ("is_large", c_bool), ("is_expandable", c_bool)]


class TraceBlock(ctypes.Structure):
    """tide_trace_block"""
    _fields_ = [("address", c_uint64), ("bytes", c_uint64), ("requested_bytes", c_uint64), ("stack", c_uint32),
                ("extra", c_uint32), ("absent", c_uint16), ("state", c_uint8)]


class TraceAbout(ctypes.Structure):
    """tide_trace_about"""
    _fields_ = [("settings", c_uint32), ("annotations", c_uint32), ("extra", c_uint32), ("has_segments", c_bool),
                ("has_entries", c_bool), ("is_segments_only", c_bool), ("is_cut", c_bool), ("has_steps", c_bool)]


class TraceTag(ctypes.Structure):
    """tide_trace_tag"""
    _fields_ = [("size", c_uint32), ("device", c_uint32), ("tag", c_char_p), ("has_budget", c_bool), ("yields", c_bool),
                ("is_constant", c_bool), ("priority", c_int32)]
    _fields_ += [(name, c_uint64) for name in (
        "limit", "soft_limit", "guarantee", "reserved_bytes", "claimed_bytes", "peak_reserved_bytes", "parked_count",
        "fetched_count", "ahead_count", "sent_bytes", "fetched_bytes", "idle_bytes", "refused_count")]


class InternCounts(ctypes.Structure):
    """tide_intern_counts"""
    _fields_ = [(name, c_uint32) for name in ("texts", "stacks", "notes", "frames", "values")]


class InternNote(ctypes.Structure):
    """tide_note"""
    _fields_ = [("metadata", c_uint32), ("compile_context", c_uint32), ("extra", c_uint32)]


class InternFrame(ctypes.Structure):
    """tide_frame"""
    _fields_ = [("name", c_uint32), ("file", c_uint32), ("extra", c_uint32), ("absent", c_uint32), ("line", c_int64)]


class InternValue(ctypes.Structure):
    """tide_value"""
    _fields_ = [("kind", c_uint32), ("text", c_uint32), ("integer", c_int64), ("number", c_double),
                ("items", POINTER(c_uint64)), ("count", c_size_t)]


class PoolLabel(ctypes.Structure):
    """tide_pool_label"""
    _fields_ = [("first", c_uint64), ("second", c_uint64)]


class FramesSite(ctypes.Structure):
    """tide_frames_site"""
    _fields_ = [("own", c_size_t), ("called", c_size_t)]


class LedgerTotals(ctypes.Structure):
    """tide_ledger_totals"""
    _fields_ = [(name, c_uint64) for name in (
        "at", "live_bytes", "requested_bytes", "allocated_bytes", "active_bytes", "reserved_bytes", "live_count",
        "segment_count")]


class LedgerPeak(ctypes.Structure):
    """tide_ledger_peak"""
    _fields_ = [("bytes", c_uint64), ("at", c_uint64)]


class LedgerPeaks(ctypes.Structure):
    """tide_ledger_peaks"""
    _fields_ = [(name, LedgerPeak) for name in ("live", "requested", "allocated", "active", "reserved", "held")]


class LedgerSegment(ctypes.Structure):
    """tide_ledger_segment"""
    _fields_ = [(name, c_uint64) for name in ("address", "bytes", "stream", "made_at", "active_bytes", "block_count")]
    _fields_ += [("pool", c_uint32), ("stack", c_uint32)]
    _fields_ += [(name, c_bool) for name in ("is_large", "is_expandable", "is_parked")]


class LedgerBlock(ctypes.Structure):
    """tide_ledger_block"""
    _fields_ = [("address", c_uint64), ("bytes", c_uint64), ("requested_bytes", c_uint64), ("made_at", c_uint64),
                ("stack", c_uint32), ("state", c_uint32)]


class TimelineRange(ctypes.Structure):
    """tide_timeline_range"""
    _fields_ = [("least", c_uint64), ("most", c_uint64), ("last", c_uint64)]


class TimelineBucket(ctypes.Structure):
    """tide_timeline_bucket"""
    _fields_ = [("begin", c_uint64), ("first", c_uint64), ("entry_count", c_uint64)]
    _fields_ += [(name, TimelineRange) for name in ("live", "requested", "allocated", "active", "reserved")]


SourceRead = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, POINTER(c_size_t))
OnProgress = ctypes.CFUNCTYPE(c_bool, c_void_p, c_uint64)
OnSegment = ctypes.CFUNCTYPE(c_bool, c_void_p, POINTER(LedgerSegment))
OnBlock = ctypes.CFUNCTYPE(c_bool, c_void_p, POINTER(LedgerBlock))


class Source(ctypes.Structure):
    """tide_source"""
    _fields_ = [("read", SourceRead), ("user", c_void_p)]


class Sink(ctypes.Structure):
    """tide_sink"""
    _fields_ = [("write", c_void_p), ("user", c_void_p)]


class ReadOptions(ctypes.Structure):
    """tide_read_options"""
    _fields_ = [("size", c_uint32), ("format", c_uint32), ("memory", c_uint64), ("heap", c_void_p),
                ("on_progress", OnProgress), ("user", c_void_p)]


STRUCTS = (TraceEntry, TraceSegment, TraceBlock, TraceAbout, TraceTag, InternCounts, InternNote, InternFrame, InternValue,
           PoolLabel, FramesSite, LedgerTotals, LedgerPeak, LedgerPeaks, LedgerSegment, LedgerBlock, TimelineRange,
           TimelineBucket, Source, Sink, ReadOptions, library.Error)

# ---------------------------------------------------------------------------------------------------
# Functions: the result and the parameters. Handles are c_void_p; Status is a number that raises if it is not 0.


class Status(c_int):
    """tide_status"""


FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "tide_version": (c_char_p, []),
    "tide_last_error": (POINTER(library.Error), []),
    "tide_status_name": (c_char_p, [c_int]),
    "tide_sink_file": (Sink, [c_int]),
    "tide_trace_read": (Status, [POINTER(Source), POINTER(ReadOptions), POINTER(c_void_p)]),
    "tide_trace_write": (Status, [c_void_p, c_uint32, POINTER(Sink)]),
    "tide_trace_free": (None, [c_void_p]),
    "tide_trace_names": (c_void_p, [c_void_p]),
    "tide_trace_get_about": (TraceAbout, [c_void_p]),
    "tide_trace_device_count": (c_size_t, [c_void_p]),
    "tide_trace_entries": (POINTER(TraceEntry), [c_void_p, c_size_t, POINTER(c_size_t)]),
    "tide_trace_segments": (POINTER(TraceSegment), [c_void_p, POINTER(c_size_t)]),
    "tide_trace_segment_tag": (c_char_p, [c_void_p, POINTER(TraceSegment)]),
    "tide_trace_segment_is_parked": (c_bool, [c_void_p, POINTER(TraceSegment)]),
    "tide_trace_tag_count": (c_size_t, [c_void_p]),
    "tide_trace_get_tag": (Status, [c_void_p, c_size_t, POINTER(TraceTag)]),
    "tide_trace_blocks": (POINTER(TraceBlock), [c_void_p, POINTER(c_size_t)]),
    "tide_trace_pool": (PoolLabel, [c_void_p, c_uint32]),
    "tide_trace_pool_count": (c_size_t, [c_void_p]),
    "tide_intern_text": (c_void_p, [c_void_p, c_uint32, POINTER(c_size_t)]),
    "tide_intern_stack": (POINTER(c_uint64), [c_void_p, c_uint32, POINTER(c_size_t)]),
    "tide_intern_note": (InternNote, [c_void_p, c_uint32]),
    "tide_intern_frame": (InternFrame, [c_void_p, c_uint32]),
    "tide_intern_value": (InternValue, [c_void_p, c_uint32]),
    "tide_intern_value_weight": (c_uint64, [c_void_p, c_uint32]),
    "tide_intern_counts_of": (InternCounts, [c_void_p]),
    "tide_frames_new": (Status, [c_void_p, c_void_p, POINTER(c_void_p)]),
    "tide_frames_free": (None, [c_void_p]),
    "tide_frames_find_site": (FramesSite, [c_void_p, POINTER(c_uint64), c_size_t]),
    "tide_frames_path": (c_void_p, [c_void_p, c_uint32, POINTER(c_size_t)]),
    "tide_ledger_new": (Status, [c_void_p, c_size_t, POINTER(c_void_p)]),
    "tide_ledger_free": (None, [c_void_p]),
    "tide_ledger_seek": (Status, [c_void_p, c_uint64]),
    "tide_ledger_get_totals": (LedgerTotals, [c_void_p]),
    "tide_ledger_get_peaks": (LedgerPeaks, [c_void_p]),
    "tide_ledger_visit": (None, [c_void_p, OnSegment, OnBlock, c_void_p]),
    "tide_ledger_timeline": (Status, [c_void_p, c_uint32, c_size_t, POINTER(TimelineBucket)]),
}


def check(status: Status, _function: Any, _arguments: Any) -> None:
    """Raises the error that the thread's last call left, if it failed."""
    if status.value != 0:
        loaded = load()
        error = loaded.tide_last_error().contents
        raise TidemarkError(error.text.decode(errors="replace"), loaded.tide_status_name(status.value).decode())


@functools.lru_cache(maxsize=None)
def load() -> ctypes.CDLL:
    """The C library with its functions declared. Raises TidemarkError if there is none, or one of another version."""
    try:
        path = library.find()
        loaded = ctypes.CDLL(str(path))
        for name, (result, parameters) in FUNCTIONS.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, parameters
            if result is Status:
                function.errcheck = check
    except (OSError, AttributeError, library.NotFound) as error:
        raise TidemarkError(f"Tidemark's C library cannot be used: {error}") from error
    version = loaded.tide_version().decode()
    if version.split(".")[:2] != __version__.split(".")[:2]:
        raise TidemarkError(f"{path} is version {version}, but the Python package is version {__version__}")
    return loaded
