# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Tags, parking, budgets, ledgers and ranges that grow, of a device cache: see device.h, budget.h and quota.h.

Needs no PyTorch, because the cache is a pointer.
"""
from __future__ import annotations

import ctypes
import dataclasses
import enum
import functools
import os
import warnings
from ctypes import POINTER, byref, c_bool, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Callable, Optional, Sequence

from . import abi
from .abi import Status, TidemarkError


class Backup(enum.IntEnum):
    """Where the contents of parked memory go; tide_backup."""
    NONE = 0
    PINNED = 1
    PAGEABLE = 2
    FILE = 3
    OF_POOL = 4


class ScopeKind(enum.IntEnum):
    """Which requests a scope sends to its pool; tide_scope_kind."""
    ALL = 0
    THREAD = 1


class PoolOptions(ctypes.Structure):
    """tide_pool_options"""
    _fields_ = [("size", c_uint32), ("no_split", c_bool), ("use_on_oom", c_bool), ("label", c_uint64 * 2),
                ("segment_alloc", c_void_p), ("segment_release", c_void_p), ("user", c_void_p), ("closed", c_void_p),
                ("is_plain", c_bool), ("tag", c_char_p), ("backup", c_uint32)]


class Scope(ctypes.Structure):
    """tide_scope"""
    _fields_ = [("size", c_uint32), ("kind", c_uint32), ("stream", c_void_p), ("filter", c_void_p), ("user", c_void_p),
                ("is_region", c_bool)]


class ParkOptions(ctypes.Structure):
    """tide_park_options"""
    _fields_ = [("size", c_uint32), ("backup", c_uint32), ("unparks_on_request", c_bool), ("folder", c_char_p)]


OnLost = ctypes.CFUNCTYPE(None, c_void_p, c_uint64, c_uint64)


class UnparkOptions(ctypes.Structure):
    """tide_unpark_options"""
    _fields_ = [("size", c_uint32), ("waits", c_bool), ("keeps_backup", c_bool), ("streams", POINTER(c_void_p)),
                ("stream_count", c_size_t), ("lost", OnLost), ("user", c_void_p)]


class ParkResult(ctypes.Structure):
    """tide_park_result"""
    _fields_ = [("size", c_uint32), ("pool_count", c_uint32), ("physical_bytes", c_uint64), ("block_bytes", c_uint64),
                ("copied_bytes", c_uint64), ("lost_bytes", c_uint64), ("backup", c_uint32)]


class TagStats(ctypes.Structure):
    """tide_tag_stats"""
    _fields_ = [("size", c_uint32), ("pool_count", c_uint32), ("parked_pool_count", c_uint32)]
    _fields_ += [(name, c_uint64) for name in ("allocation_count", "allocated_bytes", "reserved_bytes", "parked_bytes",
                                               "backup_bytes")]


class SegmentInfo(ctypes.Structure):
    """tide_segment_info"""
    _fields_ = [(name, c_uint64) for name in ("address", "bytes", "allocated_bytes", "active_bytes", "requested_bytes")]
    _fields_ += [("pool_label", c_uint64 * 2), ("stream", c_void_p), ("pool", c_uint32), ("stack", c_uint32),
                 ("device", c_int32), ("is_large", c_bool), ("is_expandable", c_bool), ("ordinal", c_uint64),
                 ("tag", c_char_p), ("is_parked", c_bool)]


OnSegment = ctypes.CFUNCTYPE(c_bool, c_void_p, POINTER(SegmentInfo))


class DeviceVisitor(ctypes.Structure):
    """tide_device_visitor"""
    _fields_ = [("segment", OnSegment), ("block", c_void_p), ("user", c_void_p)]


OnTag = ctypes.CFUNCTYPE(c_bool, c_void_p, c_char_p)
NO_LIMIT = 2**64 - 1


class BudgetFields(ctypes.Structure):
    """tide_budget"""
    _fields_ = [("size", c_uint32), ("priority", c_int32), ("limit", c_uint64), ("soft_limit", c_uint64),
                ("guarantee", c_uint64), ("yields", c_bool), ("is_constant", c_bool)]


class BudgetStats(ctypes.Structure):
    """tide_budget_stats"""
    _fields_ = [("size", c_uint32), ("use_count", c_uint32)]
    _fields_ += [(name, c_uint64) for name in ("reserved_bytes", "claimed_bytes", "parked_count", "fetched_count",
                                               "ahead_count", "sent_bytes", "fetched_bytes", "idle_bytes", "refused_count",
                                               "peak_reserved_bytes")]


class Pressure(ctypes.Structure):
    """tide_pressure"""
    _fields_ = [("size", c_uint32), ("wanted_bytes", c_uint64), ("tag", c_char_p), ("limited_tag", c_char_p)]


OnPressure = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, POINTER(Pressure))


class QuotaOptions(ctypes.Structure):
    """tide_quota_options"""
    _fields_ = [("size", c_uint32), ("priority", c_int32), ("ledger", c_char_p), ("name", c_char_p)]
    _fields_ += [(name, c_uint64) for name in ("total_bytes", "guarantee_bytes", "limit_bytes", "wait_ns")]
    _fields_ += [("on_ask", c_void_p), ("user", c_void_p), ("heap", c_void_p), ("has_helper", c_bool)]


STRUCTS = (PoolOptions, Scope, ParkOptions, UnparkOptions, ParkResult, TagStats, SegmentInfo, DeviceVisitor, BudgetFields,
           BudgetStats, Pressure, QuotaOptions)
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "tide_device_pool_new": (Status, [c_void_p, POINTER(PoolOptions), POINTER(c_uint32)]),
    "tide_device_pool_drop": (Status, [c_void_p, c_uint32]),
    "tide_device_pool_begin": (Status, [c_void_p, c_uint32, POINTER(Scope)]),
    "tide_device_pool_end": (Status, [c_void_p, c_uint32]),
    "tide_device_pool_find": (Status, [c_void_p, POINTER(c_uint64), POINTER(c_uint32)]),
    "tide_device_pool_set_tag": (Status, [c_void_p, c_uint32, c_char_p]),
    "tide_device_pool_set_backup": (Status, [c_void_p, c_uint32, c_uint32]),
    "tide_device_trim_pool": (Status, [c_void_p, c_uint32]),
    "tide_device_tag_stats": (Status, [c_void_p, c_char_p, POINTER(TagStats)]),
    "tide_device_visit": (Status, [c_void_p, POINTER(DeviceVisitor)]),
    "tide_device_visit_tags": (Status, [c_void_p, OnTag, c_void_p]),
    "tide_device_park": (Status, [c_void_p, c_char_p, POINTER(ParkOptions), POINTER(ParkResult)]),
    "tide_device_unpark": (Status, [c_void_p, c_char_p, POINTER(UnparkOptions), POINTER(ParkResult)]),
    "tide_device_prepare_backup": (Status, [c_void_p, c_char_p, POINTER(ParkOptions)]),
    "tide_device_trim_backups": (Status, [c_void_p, c_char_p]),
    "tide_device_read_parked": (Status, [c_void_p, c_void_p, c_size_t, c_void_p, POINTER(c_void_p)]),
    "tide_device_budget_set": (Status, [c_void_p, c_char_p, POINTER(BudgetFields)]),
    "tide_device_budget_get": (Status, [c_void_p, c_char_p, POINTER(BudgetFields)]),
    "tide_device_budget_stats": (Status, [c_void_p, c_char_p, POINTER(BudgetStats)]),
    "tide_device_use": (Status, [c_void_p, c_char_p, c_void_p]),
    "tide_device_done": (Status, [c_void_p, c_char_p, c_void_p]),
    "tide_device_observe_pressure": (Status, [c_void_p, OnPressure, c_void_p, POINTER(c_uint64)]),
    "tide_device_detach": (Status, [c_void_p, c_uint64]),
    "tide_device_reserve": (Status, [c_void_p, c_void_p, c_uint64]),
    "tide_device_join": (Status, [c_void_p, POINTER(QuotaOptions)]),
    "tide_device_leave": (None, [c_void_p]),
    "tide_device_range_new": (Status, [c_void_p, c_uint64, POINTER(c_void_p)]),
    "tide_device_range_commit": (Status, [c_void_p, c_void_p, c_void_p, c_uint64, c_uint64]),
    "tide_device_range_decommit": (Status, [c_void_p, c_void_p, c_uint64, c_uint64]),
    "tide_device_range_free": (Status, [c_void_p, c_void_p]),
    "tide_range_address": (c_void_p, [c_void_p]),
    "tide_range_bytes": (c_uint64, [c_void_p]),
    "tide_range_unit": (c_uint64, [c_void_p]),
    "tide_range_committed": (c_uint64, [c_void_p]),
}


@functools.lru_cache(maxsize=None)
def _library() -> ctypes.CDLL:
    """The C library with these functions declared."""
    loaded = abi.load()
    for name, (result, parameters) in FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, parameters
        if result is Status:
            function.errcheck = abi.check
    return loaded


@dataclasses.dataclass(frozen=True)
class Parked:
    """What parking or unparking did: numbers of pools and bytes."""
    pools: int = 0
    physical_bytes: int = 0  # given back, or taken
    block_bytes: int = 0  # of tensors
    copied_bytes: int = 0  # over the bus
    lost: tuple[tuple[int, int], ...] = ()  # address and bytes of tensors whose backup could not be read

    def __add__(self, other: Parked) -> Parked:
        return Parked(*(getattr(self, each.name) + getattr(other, each.name) for each in dataclasses.fields(self)))


def _parked(result: ParkResult, lost: Sequence[tuple[int, int]] = ()) -> Parked:
    return Parked(result.pool_count, result.physical_bytes, result.block_bytes, result.copied_bytes, tuple(lost))


@dataclasses.dataclass(frozen=True)
class Budget:
    """What a tag may have, in bytes; None is no limit. See tide_budget."""
    limit: Optional[int] = None
    soft_limit: Optional[int] = None
    guarantee: int = 0
    priority: int = 0
    yields: bool = False
    constant: bool = False


@dataclasses.dataclass(frozen=True)
class Quota:
    """What a process may have of a ledger, in bytes; None is no limit. See tide_quota_options."""
    ledger: str  # its name or path
    total: int = 0  # of the ledger if it does not exist yet; 0: it must exist
    guarantee: int = 0
    limit: Optional[int] = None
    priority: int = 0
    wait_ns: int = 1_000_000_000
    member: Optional[str] = None  # for people; None: how the process was started

    def options(self) -> QuotaOptions:
        """As the library takes it."""
        return QuotaOptions(size=ctypes.sizeof(QuotaOptions), priority=self.priority, ledger=os.fsencode(self.ledger),
                            name=_name(self.member), total_bytes=self.total, guarantee_bytes=self.guarantee,
                            limit_bytes=NO_LIMIT if self.limit is None else self.limit, wait_ns=self.wait_ns)


class PressureObserver:
    """A function that is called when a request lacks memory. The callback of C is never freed: a thread may be inside."""
    _callbacks: list[Any] = []

    def __init__(self, cache: Cache, function: Callable[[int, str, str], Any]) -> None:
        self._cache = cache
        self._function: Optional[Callable[[int, str, str], Any]] = function
        callback = OnPressure(self._press)
        self._callbacks.append(callback)
        number = c_uint64()
        cache._call("tide_device_observe_pressure", callback, None, byref(number))
        self._number = number.value

    def _press(self, _user: Any, _device: Any, pressure: Any) -> None:
        function, given = self._function, pressure.contents
        if function is None:
            return
        try:
            function(given.wanted_bytes, given.tag.decode(errors="replace"), given.limited_tag.decode(errors="replace"))
        except Exception as error:  # there is no way through C
            warnings.warn(f"tidemark: a callback of memory pressure failed: {error!r}", RuntimeWarning, stacklevel=1)

    def remove(self) -> None:
        """Ends the calls. Waits for those of other threads, unless this is one."""
        if self._function is not None:
            self._function = None
            self._cache._call("tide_device_detach", self._number)


def _name(tag: Optional[str]) -> Optional[bytes]:
    return None if tag is None else tag.encode()


class Cache:
    """The device cache at an address. Its functions raise TidemarkError."""

    def __init__(self, address: int) -> None:
        self._address = c_void_p(address)

    def _call(self, name: str, *arguments: Any) -> Any:
        return getattr(_library(), name)(self._address, *arguments)

    # Pools and scopes

    def pool_new(self, tag: Optional[str] = None, backup: Backup = Backup.PINNED) -> int:
        """A new private pool."""
        options = PoolOptions(size=ctypes.sizeof(PoolOptions), tag=_name(tag), backup=backup)
        pool = c_uint32()
        self._call("tide_device_pool_new", byref(options), byref(pool))
        return pool.value

    def pool_drop(self, pool: int) -> None:
        """Ends the use of a pool: its idle memory goes back, and the rest when it is released."""
        self._call("tide_device_pool_drop", pool)
        try:
            self._call("tide_device_trim_pool", pool)
        except TidemarkError as error:
            if error.status != "TIDE_ERR_HANDLE":  # another thread has trimmed it
                raise

    def pool_find(self, label: Sequence[int]) -> int:
        """The pool with a label, such as the id of a graph's pool."""
        pool = c_uint32()
        self._call("tide_device_pool_find", (c_uint64 * 2)(*label), byref(pool))
        return pool.value

    def pool_set_tag(self, pool: int, tag: str, backup: Backup) -> None:
        """Gives a pool a tag."""
        self._call("tide_device_pool_set_tag", pool, tag.encode())
        self._call("tide_device_pool_set_backup", pool, backup)

    def begin(self, pool: int, kind: ScopeKind = ScopeKind.THREAD) -> None:
        """From now on the requests of this thread, or all requests, go to the pool."""
        scope = Scope(size=ctypes.sizeof(Scope), kind=kind, is_region=True)
        self._call("tide_device_pool_begin", pool, byref(scope))

    def end(self, pool: int) -> None:
        """Ends that."""
        self._call("tide_device_pool_end", pool)

    # Tags

    def tags(self) -> list[str]:
        """All tags, sorted."""
        found: list[str] = []

        def take(_user: Any, tag: bytes) -> bool:
            found.append(tag.decode(errors="replace"))
            return True

        self._call("tide_device_visit_tags", OnTag(take), None)
        return found

    def tag_stats(self, tag: Optional[str]) -> dict[str, int]:
        """What the pools of a tag hold."""
        stats = TagStats(size=ctypes.sizeof(TagStats))
        self._call("tide_device_tag_stats", _name(tag), byref(stats))
        return {name: getattr(stats, name) for name, _ in TagStats._fields_[1:]}

    def tagged_segments(self) -> dict[int, tuple[str, bool]]:
        """The segments of pools with a tag, by their address: the tag, and whether they are parked."""
        found: dict[int, tuple[str, bool]] = {}

        def take(_user: Any, segment: Any) -> bool:
            info = segment.contents
            if info.tag:
                found[info.address] = info.tag.decode(errors="replace"), info.is_parked
            return True

        self._call("tide_device_visit", byref(DeviceVisitor(segment=OnSegment(take))))
        return found

    # Parking

    @staticmethod
    def _park_options(backup: Backup, folder: Optional[str], unparks_on_request: bool = True) -> ParkOptions:
        return ParkOptions(size=ctypes.sizeof(ParkOptions), backup=backup, unparks_on_request=unparks_on_request,
                           folder=None if folder is None else folder.encode())

    def park(self, tag: Optional[str], backup: Backup = Backup.OF_POOL, *, folder: Optional[str] = None,
             unparks_on_request: bool = True) -> Parked:
        """Parks the pools of a tag."""
        options = self._park_options(backup, folder, unparks_on_request)
        result = ParkResult(size=ctypes.sizeof(ParkResult))
        self._call("tide_device_park", _name(tag), byref(options), byref(result))
        return _parked(result)

    def unpark(self, tag: Optional[str], *, wait: bool = False, keep_backup: bool = False,
               streams: Sequence[int] = ()) -> Parked:
        """Unparks the pools of a tag."""
        lost: list[tuple[int, int]] = []
        note = OnLost(lambda _user, address, size: lost.append((address, size)))
        options = UnparkOptions(size=ctypes.sizeof(UnparkOptions), waits=wait, keeps_backup=keep_backup,
                                stream_count=len(streams), lost=note, streams=(c_void_p * max(len(streams), 1))(*streams))
        result = ParkResult(size=ctypes.sizeof(ParkResult))
        self._call("tide_device_unpark", _name(tag), byref(options), byref(result))
        return _parked(result, lost)

    def prepare_backup(self, tag: Optional[str], backup: Backup = Backup.OF_POOL, folder: Optional[str] = None) -> None:
        """Makes backups ahead, in another thread."""
        self._call("tide_device_prepare_backup", _name(tag), byref(self._park_options(backup, folder)))

    def trim_backups(self, tag: Optional[str]) -> None:
        """Gives backups back that hold nothing."""
        self._call("tide_device_trim_backups", _name(tag))

    def read_parked(self, address: int, size: int, destination: Optional[int]) -> Optional[int]:
        """Copies parked contents to host memory; returns where they are in host memory, or None."""
        data = c_void_p()
        self._call("tide_device_read_parked", c_void_p(address), size, destination, byref(data))
        return data.value

    # Budgets

    def budget_set(self, tag: str, budget: Optional[Budget]) -> None:
        """Gives a tag a budget; None takes it away."""
        if budget is None:
            self._call("tide_device_budget_set", tag.encode(), None)
            return
        limit, soft_limit = (NO_LIMIT if each is None else each for each in (budget.limit, budget.soft_limit))
        fields = BudgetFields(ctypes.sizeof(BudgetFields), budget.priority, limit, soft_limit, budget.guarantee,
                              budget.yields, budget.constant)
        self._call("tide_device_budget_set", tag.encode(), byref(fields))

    def budget_get(self, tag: str) -> Budget:
        """The budget of a tag; one without limits if it has none."""
        fields = BudgetFields(size=ctypes.sizeof(BudgetFields))
        self._call("tide_device_budget_get", tag.encode(), byref(fields))
        limit, soft_limit = (None if each == NO_LIMIT else each for each in (fields.limit, fields.soft_limit))
        return Budget(limit, soft_limit, fields.guarantee, fields.priority, fields.yields, fields.is_constant)

    def budget_stats(self, tag: str) -> dict[str, int]:
        """What a tag has, and what giving way has cost it."""
        stats = BudgetStats(size=ctypes.sizeof(BudgetStats))
        self._call("tide_device_budget_stats", tag.encode(), byref(stats))
        return {name: getattr(stats, name) for name, _ in BudgetStats._fields_[1:]}

    def use(self, tag: str, stream: Optional[int]) -> None:
        """Brings a tag back if it is away, and keeps it in place until done()."""
        self._call("tide_device_use", tag.encode(), stream)

    def done(self, tag: str, stream: Optional[int]) -> None:
        """Ends a use, whose work is on the stream."""
        self._call("tide_device_done", tag.encode(), stream)

    def observe_pressure(self, function: Callable[[int, str, str], Any]) -> PressureObserver:
        """Calls a function with the wanted bytes, the tag that wants them, and the tag whose limit is in the way."""
        return PressureObserver(self, function)

    def reserve(self, stream: Optional[int], size: int) -> None:
        """Reserves so much more memory for a stream, which stays idle."""
        self._call("tide_device_reserve", stream, size)

    # Ledgers

    def join_ledger(self, quota: Quota) -> None:
        """From now on all that is reserved counts in a ledger of processes, and others are asked for what is missing."""
        self._call("tide_device_join", byref(quota.options()))

    def leave_ledger(self) -> None:
        """Ends that. Without a ledger nothing happens."""
        self._call("tide_device_leave")

    # Ranges

    def range_new(self, most_bytes: int) -> Range:
        """A range that grows."""
        made = c_void_p()
        self._call("tide_device_range_new", most_bytes, byref(made))
        return Range(self, made)


class Range:
    """Addresses for the most that may ever be needed, with memory for the part that is committed."""

    def __init__(self, cache: Cache, handle: c_void_p) -> None:
        self._cache = cache
        self._handle: Optional[c_void_p] = handle
        self.address: int = _library().tide_range_address(handle)
        self.bytes: int = _library().tide_range_bytes(handle)
        self.unit: int = _library().tide_range_unit(handle)

    @property
    def committed(self) -> int:
        """The bytes that have memory."""
        return _library().tide_range_committed(self._handle) if self._handle else 0

    def commit(self, stream: Optional[int], offset: int, size: int) -> None:
        """Gives memory to a part of it."""
        self._cache._call("tide_device_range_commit", self._handle, stream, offset, size)

    def decommit(self, offset: int, size: int) -> None:
        """Takes memory away from a part of it."""
        self._cache._call("tide_device_range_decommit", self._handle, offset, size)

    def free(self) -> None:
        """Ends the range. After an error it still exists."""
        if self._handle:
            self._cache._call("tide_device_range_free", self._handle)
        self._handle = None
