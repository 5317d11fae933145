# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Runs PyTorch on Tidemark's memory.

    import tidemark.torch
    tidemark.torch.install()          # before CUDA is used

Nothing else changes: statistics, snapshots, graphs, pools and exceptions are PyTorch's own.
`python -m tidemark.torch script.py` does the same for an unmodified script, and TIDEMARK_TORCH=tide in the environment for
all processes of a job. TIDEMARK_TORCH=off switches everything off.
"""
from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import pathlib
import pickle
import threading
from typing import Any, Optional, Union

from .. import files, hook, library, sizes
from . import build, cache, fallback, ledgers, notice, reserves, sites
from . import settings as settings_
from .settings import Option
from .budgets import ModuleUse, PressureObserver, budget, on_pressure, use, use_in
from .ledgers import join_ledger, leave_ledger
from .regions import Growable, Parked, graph, growable, park, prepare_backup, region, served, tags, trim_backups, unpark
from .reserves import reserve
from .sites import MemoryGrowthWarning, Watch

__all__ = ["Growable", "Installation", "MemoryGrowthWarning", "ModuleUse", "OutOfMemoryReport", "Parked",
           "PressureObserver", "Watch", "budget", "explain_oom", "graph", "growable", "install", "installation",
           "join_ledger", "leave_ledger", "on_pressure", "park", "prepare_backup", "region", "reserve", "snapshot", "stats",
           "tags", "trim_backups", "unpark", "use", "use_in", "watch"]


@dataclasses.dataclass(frozen=True)
class Installation:
    """The result of install()."""
    policy: str
    settings: str  # the options in force, as text
    way: str  # "class": PyTorch's allocator class is replaced; "pluggable": see `missing`; "off": PyTorch's own is used
    library: Optional[pathlib.Path]
    has_host: bool  # pinned memory comes from Tidemark, too
    missing: tuple[str, ...] = ()  # features that PyTorch refuses this way
    reason: str = ""  # why the class is not used
    shim: Optional[pathlib.Path] = None  # the library that replaced the class
    replaced_by: str = ""  # the allocator that another part of the program installed later


# Words of the shim's errors that are about the process, not about the shim: another shim would not help.
_NOT_THE_SHIM = ("another allocator", "already", "priority")

_lock = threading.Lock()  # of the first call of install()
_installed: Optional[Installation] = None
_library: Optional[ctypes.CDLL] = None
_shim: Optional[ctypes.CDLL] = None
_kept: list[Any] = []  # objects that PyTorch borrows


def _declare(shim: ctypes.CDLL) -> ctypes.CDLL:
    """Declares the functions of the shim."""
    for name in ("tidemark_torch_install", "tidemark_torch_configure"):
        getattr(shim, name).restype = ctypes.c_char_p
    shim.tidemark_torch_install.argtypes = [ctypes.c_char_p, ctypes.c_int]
    shim.tidemark_torch_configure.argtypes = [ctypes.c_char_p]
    shim.tidemark_torch_machine.restype = ctypes.c_void_p
    shim.tidemark_torch_last_oom.argtypes = [ctypes.POINTER(library.Oom)]
    shim.tidemark_torch_last_oom.restype = None
    for name in ("tidemark_torch_device", "tidemark_torch_make_device"):
        if hasattr(shim, name):
            getattr(shim, name).restype = ctypes.c_void_p
    for name in ("tidemark_torch_replaced_by", "tidemark_torch_slots", "tidemark_torch_tag_all", "tidemark_torch_join"):
        if hasattr(shim, name):
            getattr(shim, name).restype = ctypes.c_char_p
    return shim


def _load_shim(torch: Any, path: pathlib.Path, version: str) -> tuple[ctypes.CDLL, pathlib.Path]:
    """The shim that came with the package, or the one in the cache. Raises library.NotFound if neither loads."""
    ready = build.prebuilt(torch, version)
    if ready is not None:
        try:
            return _declare(ctypes.CDLL(str(ready))), ready
        except (OSError, AttributeError):
            pass  # it was built on another system, such as one with a newer C library
    kept = build.shim(torch, path, version)
    try:
        return _declare(ctypes.CDLL(str(kept))), kept
    except (OSError, AttributeError) as error:
        reason = f"the shim cannot be loaded: {error}"
        cache.remember(kept, reason)
        raise library.NotFound(reason) from error


def _follow_settings(torch: Any, shim: ctypes.CDLL) -> None:
    """Passes settings that change at run time on to the shim; PyTorch does not."""
    def follow(original: Any) -> Any:
        def set_allocator_settings(text: str) -> None:
            original(text)
            assert _library is not None
            known = settings_.joined(settings_.known(_library, text, "the text"))
            wrong = shim.tidemark_torch_configure(known.encode())
            if wrong is not None:
                raise RuntimeError(wrong.decode())
        return set_allocator_settings

    for name in ("_accelerator_setAllocatorSettings", "_cuda_cudaCachingAllocator_set_allocator_settings"):
        if hasattr(torch._C, name):
            setattr(torch._C, name, follow(getattr(torch._C, name)))


_HolderWriter = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)


def _name_holders(torch: Any, shim: ctypes.CDLL) -> None:
    """Lets out-of-memory errors name the largest holders of memory, while stacks are recorded."""
    def write(device: int, out: int, capacity: int) -> None:
        try:
            text = sites.holders_text(sites.take(torch), device).encode()[:capacity - 1]
        except Exception as error:  # it must not hide the error that it explains
            text = f"(the holders of memory are unknown: {error!r})".encode()[:capacity - 1]
        ctypes.memmove(out, text + b"\0", len(text) + 1)

    writer = _HolderWriter(write)
    _kept.append(writer)
    shim.tidemark_torch_name_holders(writer)


def _other_allocator(torch: Any) -> str:
    """The name of the allocator in place; empty if it is PyTorch's own, or if PyTorch does not tell."""
    try:
        name = str(torch.cuda.get_allocator_backend())
    except Exception:
        return ""
    return "" if name == "native" else name


def _install_class(torch: Any, path: pathlib.Path, policy: str, settings: str, host: bool) -> Installation:
    """Replaces PyTorch's class. Raises library.NotFound if nothing was replaced and the pluggable interface may serve,
    and RuntimeError if another allocator is in place."""
    global _shim
    assert _library is not None
    shim, where = _load_shim(torch, path, _library.tide_version().decode())
    wrong = shim.tidemark_torch_install(settings.encode(), int(host))
    if wrong is not None:
        reason = wrong.decode(errors="replace")
        if _other_allocator(torch) or any(word in reason for word in _NOT_THE_SHIM):
            raise RuntimeError(reason)
        reason = f"the shim refuses this PyTorch: {reason}"
        if where.name == build.NAME:  # not one that came with the package
            cache.remember(where, reason)
        raise library.NotFound(reason)
    _shim = shim
    _follow_settings(torch, shim)
    _name_holders(torch, shim)
    return Installation(policy, settings, "class", path, host, shim=where)


def _install_pluggable(torch: Any, policy: str, settings: str, reason: str) -> Installation:
    other = _other_allocator(torch)
    if other:
        raise RuntimeError(f"another allocator is already in place: {other}")
    path = library.find("libtidemark_torch.so")
    # First, because a warning may be an exception, and nothing is replaced then.
    notice.warn("fallback", "tidemark: only PyTorch's pluggable interface is in use (" + reason + "), without: "
                + "; ".join(fallback.MISSING), stacklevel=4)
    _kept.append(fallback.install(torch, path, settings))
    return Installation(policy, settings, "pluggable", path, False, fallback.MISSING, reason)


def _check_torch(torch: Any) -> None:
    """Raises RuntimeError if this PyTorch, or this process, cannot take another allocator."""
    if torch.version.cuda is None:
        raise RuntimeError("this PyTorch is built without CUDA")
    if torch.cuda.is_initialized():
        raise RuntimeError("CUDA is already initialised: call install() before the first use of CUDA")


def install(policy: Optional[str] = None, *, host: Optional[bool] = None, way: Optional[str] = None,
            reserve: Union[int, str, None] = None, **options: Option) -> Installation:
    """Makes Tidemark PyTorch's allocator for CUDA memory, and for pinned memory unless `host` is false.

    policy    "tide" (default) reserves little more memory than it hands out; "torch" decides as PyTorch does
    way       "class", "pluggable", or "auto" (default): the class if it can be built, otherwise the pluggable interface,
              with a warning that lists the missing features
    reserve   how much memory a thread reserves when CUDA is initialised, such as "14GiB", so that the first steps need not
              wait for the driver. See reserves.py; TIDEMARK_RESERVE in the environment does the same
    options   any option of the allocator under its name in PYTORCH_CUDA_ALLOC_CONF, such as
              max_split_size_mb=64, or tide_slack=0.01

    What is not given comes from the environment: see settings.py. With TIDEMARK_TORCH=off nothing is done. With
    TIDEMARK_LEDGER each device joins a ledger at its first use: see ledgers.py.
    Must be called before CUDA is initialised. A second call returns the result of the first.
    Raises RuntimeError if CUDA is already in use, or another allocator in place, and ValueError for invalid options.
    """
    global _installed
    hook.disarm()
    if _installed is not None:
        return _installed
    wish = settings_.switch()
    if wish.is_off:
        _installed = Installation("", "", "off", None, False, reason=f"{settings_.SWITCH} is off")
        return _installed
    import torch  # before the lock: the thread that has it may be importing torch

    with _lock:
        if _installed is None:
            size = reserves.from_environment() if reserve is None else sizes.size_bytes(reserve)
            _installed = _install(torch, policy, host, way, size, options, wish)
        return _installed


def _install(torch: Any, policy: Optional[str], host: Optional[bool], way: Optional[str], size: Optional[int],
             options: dict[str, Option], wish: settings_.Switch) -> Installation:
    """install() for the first time, with what the environment says."""
    global _library
    wished_host, wished_way = wish.options.pop("host", "on"), wish.options.pop("way", "auto")
    has_host = settings_.truth("host", wished_host) if host is None else host
    way = way or wished_way
    if way not in ("auto", "class", "pluggable"):
        raise ValueError(f'way must be "class", "pluggable" or "auto", not {way!r}')
    quota = ledgers.from_environment()
    _check_torch(torch)
    path = library.find()
    _library = library.load(path)
    settings = settings_.text_in_force(_library, policy, options, wish)
    policy = settings_.entries(settings)["policy"]
    try:
        if way == "pluggable":
            raise library.NotFound("as requested")
        done = _install_class(torch, path, policy, settings, has_host)
    except library.NotFound as reason:
        if way == "class":
            raise
        if quota is not None:
            raise RuntimeError(f"{ledgers.VARIABLE} needs PyTorch's allocator class, but: {reason}") from reason
        if size is not None:
            raise RuntimeError(f"memory can be reserved only with PyTorch's allocator class, but: {reason}") from reason
        return _install_pluggable(torch, policy, settings, str(reason))
    if quota is not None:
        ledgers.join_when_used(torch, _needed_shim(), quota)
    if size is not None:
        reserves.begin(torch, _needed_shim(), size)
    return done


def _replaced_by() -> str:
    """The allocator that was installed after ours; empty if there is none. Warns the first time that there is one."""
    if _shim is None or not hasattr(_shim, "tidemark_torch_replaced_by"):
        return ""
    name = (_shim.tidemark_torch_replaced_by() or b"").decode(errors="replace")
    if name:
        notice.warn("replaced", f"tidemark: another allocator has replaced Tidemark's: {name}", stacklevel=4)
    return name


def installation() -> Optional[Installation]:
    """The result of install(), with what has happened since then; None before it was called."""
    return dataclasses.replace(_installed, replaced_by=_replaced_by()) if _installed is not None else None


def vtable_text() -> str:
    """How far the shim could compare PyTorch's vtable with that of its headers; empty without a shim that can."""
    if _shim is None or not hasattr(_shim, "tidemark_torch_slots"):
        return ""
    return (_shim.tidemark_torch_slots() or b"").decode(errors="replace")


def _is_off() -> bool:
    return _installed is not None and _installed.way == "off"


def _needed_shim() -> ctypes.CDLL:
    if _shim is None:
        raise RuntimeError("tidemark.torch.install() was not called, or only the pluggable interface is in use")
    return _shim


def _counts(shim: ctypes.CDLL, index: int) -> tuple[dict[str, int], dict[str, int]]:
    """What streams of a device waited for, and what its views cost."""
    counts = (ctypes.c_int64 * 6)()
    shim.tidemark_torch_counts(ctypes.c_int(index), counts)
    waits = dict(zip(("stream_waits", "stream_wait_bytes", "avoided", "host_ns"), counts))
    return waits, dict(zip(("ns", "hurries"), counts[4:]))


def _fallback(shim: ctypes.CDLL, index: int) -> Optional[str]:
    """Why a device has no virtual memory although the settings ask for it."""
    shim.tidemark_torch_fallback.restype = ctypes.c_char_p
    reason: Optional[bytes] = shim.tidemark_torch_fallback(ctypes.c_int(index))
    return reason.decode() if reason else None


def _figures(index: int) -> dict[str, dict[str, Any]]:
    """What each tag of a device has, if the device is in use."""
    return next((each.figures() for each in served() if each.index == index), {})


def stats(device: Any = None) -> dict[str, Any]:
    """PyTorch's statistics of a device and of pinned memory, the utilisation, what tags have, and counts of driver calls.

    "tags" is what tags() returns: for each tag its tensors and bytes now, its peak, its budget, what gave way and came
    back, and what was refused.

    "waits" has how often streams waited on the device for memory of each other, the bytes of the blocks, how often new
    memory was reserved instead ("avoided"), and the nanoseconds that the host waited for work ("host_ns"). How long
    streams waited on the device is not measured.

    "views" has the nanoseconds that `tide` spent on making views of idle memory ("ns"), and how often that was more
    than its share of the time, so that more memory was reserved ("hurries").

    "utilisation" is the peak of allocated memory divided by the peak of reserved memory. "replaced_by" names the
    allocator that another part of the program installed later. "fallback" is the reason if virtual memory does not work
    and policy `torch` took over. If Tidemark is switched off, PyTorch's part remains.
    """
    import torch

    shim = None if _is_off() else _needed_shim()
    flat = torch.cuda.memory_stats(device)
    reserved = flat.get("reserved_bytes.all.peak", 0)
    is_running = shim is not None and torch.cuda.is_initialized()
    machine = shim.tidemark_torch_machine() if shim is not None and is_running else None
    index = torch.cuda._utils._get_device_index(device, optional=True) if is_running else 0
    waits, views = _counts(shim, index) if shim is not None and machine else ({}, {})
    return {
        "device": flat,
        "host": torch.cuda.host_memory_stats() if hasattr(torch.cuda, "host_memory_stats") else {},
        "utilisation": flat.get("allocated_bytes.all.peak", 0) / reserved if reserved else 1.0,
        "tags": _figures(index) if is_running else {},
        "waits": waits,
        "views": views,
        "fallback": _fallback(shim, index) if shim is not None and machine else None,
        "driver_calls": library.driver_calls(_library, machine) if _library is not None and machine else {},
        "version": _library.tide_version().decode() if _library is not None else "",
        "replaced_by": _replaced_by(),
    }


def _add_tags(data: dict[str, Any]) -> None:
    """Adds what Tidemark knows of tags to a snapshot of PyTorch."""
    listed: list[dict[str, Any]] = []
    for each in served():
        each.mark(data["segments"])
        listed += each.listed()
    if listed:
        data["tags"] = listed


def _keep_pool(data: dict[str, Any], wanted: tuple[int, int]) -> None:
    """Leaves in a snapshot of PyTorch what concerns one pool, and entries about no memory. Entries of a PyTorch before 2.8
    do not name their pool; those are left out."""
    data["segments"] = [each for each in data["segments"] if tuple(each["segment_pool_id"]) == wanted]
    data["device_traces"] = [
        [entry for entry in entries
         if entry["action"] in ("snapshot", "user_defined") or tuple(entry.get("pool_id", ())) == wanted]
        for entries in data["device_traces"]]


def snapshot(path: Union[str, os.PathLike[str]], pool: Any = None) -> pathlib.Path:
    """Writes a memory snapshot for PyTorch's viewer and the tidemark command: a pickle, or JSON for a .json path.

    An old file is replaced whole, or stays.

    It includes the history and its stacks, if torch.cuda.memory._record_memory_history() was called before. Segments have
    their tags, and the key "tags" has the budgets of tags and what was counted for them; PyTorch's viewer ignores both.
    With a torch.cuda.MemPool, or its id, the file has the memory of that pool alone; (0, 0) is the default pool.
    """
    import torch

    if not _is_off():
        _needed_shim()
    target = pathlib.Path(path)
    data = torch.cuda.memory._snapshot()
    if pool is not None:
        _keep_pool(data, tuple(getattr(pool, "id", pool)))
    if not _is_off() and torch.cuda.is_initialized():
        _add_tags(data)
    with files.saved(target) as file:
        if target.suffix == ".json":
            file.write(json.dumps(data).encode())
        else:
            pickle.dump(data, file, protocol=4)  # the highest that PyTorch's viewer reads
    return target


def watch(steps: int = 5, *, every: int = 1, least_bytes: int = 1 << 20) -> Watch:
    """Watches for call sites whose live memory grows step by step, as that of a leak does.

        watch = tidemark.torch.watch()
        for batch in batches:
            train(batch)
            watch.step()

    steps         how many steps in a row a call site must have grown, at least 2
    every         looks only after every so many steps, which then count as one; a look takes a snapshot
    least_bytes   growth over these steps that is too little to matter

    Warns with MemoryGrowthWarning, once for a call site until its memory has doubled. Works with any allocator of PyTorch
    that has snapshots. Records Python stacks of live memory while it is open, unless a history is recorded already. Can be
    used as a context manager; otherwise close() ends it.
    """
    import torch

    return Watch(torch, steps, every, least_bytes)


@dataclasses.dataclass(frozen=True)
class OutOfMemoryReport:
    """Why the last request ran out of memory: sizes in bytes, and a `text`."""
    device: int
    requested: int
    rounded: int
    allocated: int
    reserved: int
    waiting: int  # released, but waiting for work on other streams
    largest_idle: int
    device_free: int
    device_total: int
    limit: Optional[int]
    tried: tuple[tuple[str, int], ...]  # each step, and the bytes that it found
    held_by: tuple[dict[str, int], ...]  # blocks that keep memory idle, the worst first
    text: str
    tag: str = ""  # whose limit is in the way; "" if none is
    tag_limit: Optional[int] = None
    tag_reserved: int = 0
    guaranteed: int = 0  # kept free for other tags

    def __str__(self) -> str:
        lines = [self.text]
        lines += [f"  tried {name}: {found / 2**20:.1f} MiB" for name, found in self.tried]
        lines += [f"  {pin['block_count']} block(s) at {pin['address']:#x} with {pin['block_bytes'] / 2**20:.1f} MiB "
                  f"keep {pin['idle_bytes'] / 2**20:.1f} MiB idle" for pin in self.held_by]
        return "\n".join(lines)


def report_of(oom: library.Oom) -> Optional[OutOfMemoryReport]:
    """The report as a Python object; None if there is none."""
    if oom.size == 0:
        return None
    fields = [name for name, _ in library.Pin._fields_]
    return OutOfMemoryReport(
        device=oom.device, requested=oom.requested_bytes, rounded=oom.rounded_bytes, allocated=oom.allocated_bytes,
        reserved=oom.reserved_bytes, waiting=oom.pending_bytes, largest_idle=oom.largest_idle_bytes,
        device_free=oom.device_free, device_total=oom.device_total,
        limit=oom.limit if oom.limit != 2**64 - 1 else None,
        tried=tuple((rung.name.decode(), rung.yielded_bytes) for rung in oom.rungs[: oom.rung_count]),
        held_by=tuple({name: getattr(pin, name) for name in fields} for pin in oom.pins[: oom.pin_count]),
        text=oom.text.decode(errors="replace"), tag=oom.tag.decode(errors="replace"),
        tag_limit=oom.tag_limit if oom.tag and oom.tag_limit != 2**64 - 1 else None,
        tag_reserved=oom.tag_reserved_bytes, guaranteed=oom.guaranteed_bytes)


def explain_oom() -> Optional[OutOfMemoryReport]:
    """Why the last request of any thread ran out of memory; None if none did, or if Tidemark is switched off."""
    if _is_off():
        return None
    oom = library.Oom()
    _needed_shim().tidemark_torch_last_oom(ctypes.byref(oom))
    return report_of(oom)
