# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Tensors that step aside: regions with a tag, parking, and tensors that grow.

    with tidemark.torch.region("weights"):
        model = Model().cuda()
    tidemark.torch.park("weights")      # the memory is free for others; addresses, tensors and graphs stay valid
    tidemark.torch.unpark("weights")    # the contents are back

See docs/park.md. Needs the policy `tide`.
"""
from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import math
import threading
from typing import Any, Iterable, Iterator, Mapping, Optional, Sequence, Union

from ..abi import TidemarkError
from ..device import Backup, Budget, Cache, Parked, Range, ScopeKind, TagStats
from ..sizes import size_bytes

__all__ = ["Growable", "Parked", "graph", "growable", "park", "prepare_backup", "region", "tags", "trim_backups", "unpark"]

_KINDS = {None: Backup.NONE, "pinned": Backup.PINNED, "pageable": Backup.PAGEABLE, "file": Backup.FILE}


def backup_of(name: Optional[str]) -> Backup:
    """The kind of a backup by its name; None means that contents are discarded."""
    if name not in _KINDS:
        raise ValueError(f'backup must be "pinned", "pageable", "file" or None, not {name!r}')
    return _KINDS[name]


def _value(name: str, given: Any) -> Any:
    """A value of a budget as the library takes it."""
    if name in ("yields", "constant"):
        if not isinstance(given, bool):
            raise ValueError(f"{name} must be True or False, not {given!r}")
        return given
    if name == "priority":
        if isinstance(given, bool) or not isinstance(given, int) or not -2**31 <= given < 2**31:
            raise ValueError(f"priority must be a number of 32 bits, not {given!r}")
        return given
    return None if given is None and name != "guarantee" else size_bytes(given)


def changed(budget: Budget, wishes: Mapping[str, Any]) -> Budget:
    """A budget with other values, whose sizes may be texts. Raises ValueError."""
    known = [field.name for field in dataclasses.fields(Budget)]
    for name in wishes:
        if name not in known:
            raise ValueError(f"a budget has no {name!r}, but {', '.join(known)}")
    result = dataclasses.replace(budget, **{name: _value(name, given) for name, given in wishes.items()})
    if result.limit is not None and result.guarantee > result.limit:
        raise ValueError(f"a guarantee of {result.guarantee} bytes is above the limit of {result.limit} bytes")
    return result


class Regions:
    """The regions of one device. Two regions of a tag may be open at once, so a tag may have several pools."""

    def __init__(self, cache: Cache, index: int = 0) -> None:
        self.cache = cache
        self.index = index  # of the device
        self._lock = threading.Lock()
        self._idle: dict[tuple[str, Backup], list[int]] = {}  # pools without an open scope
        self._budget_lock = threading.Lock()
        self._budgets: set[str] = set()  # tags that have one

    def _take(self, tag: str, backup: Backup) -> int:
        with self._lock:
            idle = self._idle.setdefault((tag, backup), [])
            if idle:
                return idle.pop()
        return self.cache.pool_new(tag, backup)

    def _give(self, tag: str, backup: Backup, pool: int) -> None:
        with self._lock:
            self._idle[tag, backup].append(pool)

    def has(self, tag: Optional[str]) -> bool:
        """Does a pool have the tag, or one below it; or any?"""
        return any(tag is None or (known + "/").startswith(tag + "/") for known in self.cache.tags())

    def change_budgets(self, wishes: Mapping[str, Optional[Mapping[str, Any]]]) -> None:
        """Changes the budgets of tags; None takes one away. If a value is wrong, none changes."""
        with self._budget_lock:
            budgets = {tag: (self.cache.budget_get(tag), wish) for tag, wish in wishes.items()}
            after = {tag: None if wish is None else changed(before, wish) for tag, (before, wish) in budgets.items()}
            for tag, budget in after.items():
                self.cache.budget_set(tag, budget)
            self._budgets |= after.keys()
            self._budgets -= {tag for tag, budget in after.items() if budget is None}

    def _figures_of(self, tag: str, has_memory: bool) -> dict[str, Any]:
        nothing = dict.fromkeys((name for name, _ in TagStats._fields_[1:]), 0)
        return {**(self.cache.tag_stats(tag) if has_memory else nothing), **dataclasses.asdict(self.cache.budget_get(tag)),
                **self.cache.budget_stats(tag)}

    def figures(self) -> dict[str, dict[str, Any]]:
        """What each tag that has memory or a budget holds, may have, and has given."""
        having = self.cache.tags()
        with self._budget_lock:
            listed = sorted({*having, *self._budgets})
        return {tag: self._figures_of(tag, any((known + "/").startswith(tag + "/") for known in having)) for tag in listed}

    def _listed(self, tag: str, has_budget: bool) -> dict[str, Any]:
        budget, stats = self.cache.budget_get(tag), self.cache.budget_stats(tag)
        del stats["use_count"]
        limits = {"limit": budget.limit, "soft_limit": budget.soft_limit}
        values = {"has_budget": has_budget, "yields": budget.yields, "is_constant": budget.constant,
                  "priority": budget.priority, "guarantee": budget.guarantee, **stats}
        return {"tag": tag, "device": self.index, **{name: value for name, value in limits.items() if value is not None},
                **{name: value for name, value in values.items() if value}}

    def listed(self) -> list[dict[str, Any]]:
        """All tags and those above them, as snapshots have them: see tide_trace_tag. What has its default is left out."""
        with self._budget_lock:
            having = set(self._budgets)
        parts = [tag.split("/") for tag in {*self.cache.tags(), *having}]
        paths = {"/".join(each[:end]) for each in parts for end in range(1, len(each) + 1)}
        return [self._listed(tag, tag in having) for tag in sorted(paths)]

    def mark(self, segments: Iterable[dict[str, Any]]) -> None:
        """Adds the tag to segments of a snapshot, and whether they are parked."""
        tagged = self.cache.tagged_segments()
        for segment in segments:
            tag, is_parked = tagged.get(segment["address"], ("", False))
            if tag and segment["device"] == self.index:
                segment.update({"tag": tag, "is_parked": True} if is_parked else {"tag": tag})

    @contextlib.contextmanager
    def open(self, tag: str, backup: Backup, kind: ScopeKind = ScopeKind.THREAD) -> Iterator[None]:
        """A region on this device."""
        pool = self._take(tag, backup)
        try:
            self.cache.begin(pool, kind)
            try:
                yield
            finally:
                self.cache.end(pool)
        finally:
            self._give(tag, backup, pool)

    @contextlib.contextmanager
    def outside(self) -> Iterator[None]:
        """Memory of this thread comes from no tag, and goes back to the device at the end, as far as it is released."""
        pool = self.cache.pool_new()
        try:
            self.cache.begin(pool)
            try:
                yield
            finally:
                self.cache.end(pool)
        finally:
            self.cache.pool_drop(pool)


_all: dict[int, Regions] = {}
_all_lock = threading.Lock()


def _known(index: int, address: int) -> Regions:
    with _all_lock:
        if index not in _all:
            _all[index] = Regions(Cache(address), index)
        return _all[index]


def of_device(device: Any = None) -> Regions:
    """The regions of a device; raises RuntimeError if Tidemark does not serve it."""
    import torch

    from . import _needed_shim

    shim = _needed_shim()
    torch.cuda.init()
    index = torch.cuda._utils._get_device_index(device, optional=True)
    reason = ctypes.c_char_p()
    address = shim.tidemark_torch_make_device(index, ctypes.byref(reason))
    if not address:
        raise RuntimeError(f"Tidemark has no allocator for device {index}: {(reason.value or b'').decode(errors='replace')}")
    return _known(index, address)


def served() -> list[Regions]:
    """The regions of all devices that are in use."""
    import torch

    from . import _needed_shim

    shim = _needed_shim()
    found = [(index, shim.tidemark_torch_device(index)) for index in range(torch.cuda.device_count())]
    return [_known(index, address) for index, address in found if address]


def _devices(device: Any) -> list[Regions]:
    """The regions of one device, or of all that are in use."""
    return served() if device is None else [of_device(device)]


def _with_tag(device: Any, tag: Optional[str]) -> list[Regions]:
    """The regions of devices that have a tag, or any. Raises KeyError if none has it."""
    having = [each for each in _devices(device) if each.has(tag)]
    if not having and tag is not None:
        raise KeyError(f"no memory has the tag {tag!r}")
    return having


# ---------------------------------------------------------------------------------------------------
# The interface


@contextlib.contextmanager
def region(tag: str, *, backup: Optional[str] = "pinned", limit: Union[int, str, None] = None,
           soft_limit: Union[int, str, None] = None, guarantee: Union[int, str, None] = None, priority: Optional[int] = None,
           yields: Optional[bool] = None, constant: Optional[bool] = None, device: Any = None) -> Iterator[None]:
    """Tensors that this thread makes inside belong to a tag, such as "weights/actor".

    backup   where their contents go while they are parked: "pinned" (the fastest), "pageable" or "file"; None discards
             them: after unpark() they are undefined

    The others change the budget of the tag, as budget() does; it stays after the region.
    """
    kind, regions = backup_of(backup), of_device(device)
    wishes = {"limit": limit, "soft_limit": soft_limit, "guarantee": guarantee, "priority": priority, "yields": yields,
              "constant": constant}
    given = {name: value for name, value in wishes.items() if value is not None}
    if given:
        regions.change_budgets({tag: given})
    with regions.open(tag, kind):
        yield


@contextlib.contextmanager
def graph_of(cuda_graph: Any, tag: str, backup: Backup, **options: Any) -> Iterator[None]:
    """graph() with the kind of the backup."""
    import torch

    cache = of_device().cache
    with torch.cuda.graph(cuda_graph, **options):
        yield
    cache.pool_set_tag(cache.pool_find(cuda_graph.pool()), tag, backup)  # PyTorch tells the pool after the capture


@contextlib.contextmanager
def graph(cuda_graph: Any, *, tag: str, backup: Optional[str] = None, **options: Any) -> Iterator[None]:
    """The same as torch.cuda.graph(cuda_graph, **options), and the memory of the graph belongs to a tag.

    Without a backup, what the graph computed last is undefined after unpark(); replaying it is not affected.
    """
    with graph_of(cuda_graph, tag, backup_of(backup), **options):
        yield


def park(tag: Optional[str] = None, *, backup: Union[str, None, Backup] = Backup.OF_POOL,
         folder: Optional[str] = None, unpark_on_request: bool = True, device: Any = None) -> Parked:
    """Gives the memory of a tag and of all tags below it back to the device, and keeps its addresses; of all tags without one.

    backup              where contents go; what region() said unless given here
    folder              where a file is made; the default is $TMPDIR or /tmp
    unpark_on_request   making a tensor in a region of the tag unparks it; otherwise that is an error

    Using a parked tensor before unpark() is an error of the program, which CUDA reports as an illegal address.
    """
    kind = backup if isinstance(backup, Backup) else backup_of(backup)
    return sum((each.cache.park(tag, kind, folder=folder, unparks_on_request=unpark_on_request)
                for each in _with_tag(device, tag)), Parked())


def unpark(tag: Optional[str] = None, *, wait: bool = False, keep_backup: bool = False, device: Any = None) -> Parked:
    """Brings the memory of a tag back to its addresses, with its contents.

    wait          return when the contents are there. Otherwise the streams on which tensors were made, and the current one,
                  wait for them on the device. Streams of other libraries may need `wait`
    keep_backup   the memory of the backup stays, with what it has, so that the next park() is faster

    `lost` of the result names tensors whose backup could not be read.
    """
    import torch

    result = Parked()
    for regions in _with_tag(device, tag):
        stream = torch.cuda.current_stream(regions.index).cuda_stream
        result += regions.cache.unpark(tag, wait=wait, keep_backup=keep_backup, streams=[stream] if stream else [])
    return result


def prepare_backup(tag: Optional[str] = None, *, backup: Union[str, Backup] = Backup.OF_POOL, folder: Optional[str] = None,
                   device: Any = None) -> None:
    """Makes the backup for a tag ahead, in another thread, so that the first park() is as fast as the next."""
    kind = backup if isinstance(backup, Backup) else backup_of(backup)
    for each in _with_tag(device, tag):
        each.cache.prepare_backup(tag, kind, folder)


def trim_backups(tag: Optional[str] = None, *, device: Any = None) -> None:
    """Gives the memory of backups back that hold nothing now: those that were kept, or made ahead."""
    for each in _with_tag(device, tag):
        each.cache.trim_backups(tag)


def tags(device: Any = None) -> dict[str, dict[str, Any]]:
    """What each tag holds, with the tags below it: tensors, and bytes that are allocated, reserved, parked, and in backups.

    Also its budget (see budget()), and since the beginning: the most that was reserved at once, how often and how much of
    it gave way and came back, and how many requests were refused.
    """
    return of_device(device).figures()


# ---------------------------------------------------------------------------------------------------
# Tensors that grow


class _Memory:
    """Device memory as PyTorch takes it without a copy."""

    def __init__(self, owner: Any, address: int, size: int) -> None:
        self.owner = owner
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}


_left: list[Range] = []  # ranges that could not be freed yet, because something was being captured


def _free(range_: Range) -> None:
    try:
        range_.free()
    except TidemarkError:
        _left.append(range_)


class _Freed:
    """Frees a range when nobody has a tensor of it any more."""

    def __init__(self, range_: Range) -> None:
        self._range = range_

    def __del__(self) -> None:
        _free(self._range)


class Growable:
    """A tensor whose first dimension grows and shrinks at a fixed address. Made by growable()."""

    def __init__(self, range_: Range, whole: Any, rows: int, row_bytes: int, stream: int) -> None:
        self._range = range_
        self._whole = whole
        self._row_bytes = row_bytes
        self.rows = 0
        self.resize(rows, stream=stream)

    @property
    def tensor(self) -> Any:
        """The rows that have memory, without a copy. Do not use it after resize() has made them fewer."""
        return self._whole[:self.rows]

    @property
    def committed_bytes(self) -> int:
        """The bytes that have memory; at least those of the rows."""
        return self._range.committed

    def resize(self, rows: int, *, stream: Optional[int] = None) -> Any:
        """Changes the number of rows, and returns the tensor. New rows are undefined, the others keep their contents."""
        import torch

        if not 0 <= rows <= self._whole.shape[0]:
            raise ValueError(f"{rows} rows, but there are addresses for {self._whole.shape[0]}")
        before, after = self.rows * self._row_bytes, rows * self._row_bytes
        if after > before:
            stream = torch.cuda.current_stream(self._whole.device).cuda_stream if stream is None else stream
            self._range.commit(stream, before, after - before)
        elif after < before:
            least = max(after, self._range.unit)  # the first unit stays, as growable() says
            if least < self._range.committed:
                self._range.decommit(least, self._range.bytes - least)
        self.rows = rows
        return self.tensor


def growable(shape: Sequence[int], dtype: Any = None, *, rows: int = 0, device: Any = None) -> Growable:
    """A tensor with addresses for `shape`, of which the first `rows` rows have memory. For key-value caches.

    The memory comes from idle memory of the allocator where there is some, and returns to it: one limit holds for both.
    """
    import torch

    dtype = dtype or torch.get_default_dtype()
    shape = tuple(int(each) for each in shape)
    row_bytes = math.prod(shape[1:]) * torch.empty(0, dtype=dtype).element_size()
    if not shape or shape[0] < 1 or row_bytes < 1:
        raise ValueError(f"the shape {shape} has no bytes")
    for _ in range(len(_left)):
        _free(_left.pop(0))
    regions = of_device(device)
    stream = torch.cuda.current_stream(regions.index).cuda_stream
    made = regions.cache.range_new(shape[0] * row_bytes)
    owner = _Freed(made)
    made.commit(stream, 0, made.unit)  # PyTorch reads attributes of the first address
    memory = _Memory(owner, made.address, shape[0] * row_bytes)
    whole = torch.as_tensor(memory, device=torch.device("cuda", regions.index)).view(dtype).view(shape)
    return Growable(made, whole, rows, row_bytes, stream)
