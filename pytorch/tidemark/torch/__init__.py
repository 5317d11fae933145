# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""PyTorch's CUDA memory from Tidemark.

    import tidemark.torch
    tidemark.torch.install()          # before CUDA is used

and nothing else changes: statistics, snapshots, graphs, pools and exceptions are PyTorch's own.
`python -m tidemark.torch script.py` does the same for a script that knows nothing of it.
"""
from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import pathlib
import pickle
import warnings
from typing import Any, Optional, Union

from . import build, fallback, library

__all__ = ["Installation", "OutOfMemoryReport", "explain_oom", "install", "installation", "snapshot", "stats"]

Option = Union[str, int, float, bool]


@dataclasses.dataclass(frozen=True)
class Installation:
    """What install() did."""
    policy: str
    settings: str  # the options in force, as text
    way: str  # "class": every method of PyTorch's allocator is ours; "pluggable": see `missing`
    library: pathlib.Path
    has_host: bool  # pinned memory is ours, too
    missing: tuple[str, ...] = ()  # what PyTorch refuses this way
    reason: str = ""  # why it is not the class


_installed: Optional[Installation] = None
_library: Optional[ctypes.CDLL] = None
_shim: Optional[ctypes.CDLL] = None
_kept: list[Any] = []  # what PyTorch borrows


def settings_text(policy: str, options: dict[str, Option], environment: Optional[str]) -> str:
    """The options as one text in PyTorch's grammar; what is said in the call counts more than the environment."""
    parts = [environment] if environment else []
    parts.append(f"policy:{policy}")
    parts += [f"{key}:{value}" for key, value in options.items()]
    return ",".join(parts)


def environment_settings() -> Optional[str]:
    """What the environment says about PyTorch's allocator, or ours."""
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "TIDEMARK_CONF"):
        if os.environ.get(name):
            return os.environ[name]
    return None


def _load_shim(torch: Any, path: pathlib.Path) -> ctypes.CDLL:
    shim = ctypes.CDLL(str(build.shim(torch, path)))
    for name in ("tidemark_torch_install", "tidemark_torch_configure"):
        getattr(shim, name).restype = ctypes.c_char_p
    shim.tidemark_torch_install.argtypes = [ctypes.c_char_p, ctypes.c_int]
    shim.tidemark_torch_configure.argtypes = [ctypes.c_char_p]
    shim.tidemark_torch_machine.restype = ctypes.c_void_p
    shim.tidemark_torch_last_oom.argtypes = [ctypes.POINTER(library.Oom)]
    shim.tidemark_torch_last_oom.restype = None
    return shim


def _follow_settings(torch: Any, shim: ctypes.CDLL) -> None:
    """PyTorch keeps settings that are changed at run time to itself; they are passed on."""
    def follow(original: Any) -> Any:
        def set_allocator_settings(text: str) -> None:
            original(text)
            wrong = shim.tidemark_torch_configure(text.encode())
            if wrong is not None:
                raise RuntimeError(wrong.decode())
        return set_allocator_settings

    for name in ("_accelerator_setAllocatorSettings", "_cuda_cudaCachingAllocator_set_allocator_settings"):
        if hasattr(torch._C, name):
            setattr(torch._C, name, follow(getattr(torch._C, name)))


def _install_class(torch: Any, path: pathlib.Path, policy: str, settings: str, host: bool) -> Installation:
    global _shim
    _shim = _load_shim(torch, path)
    wrong = _shim.tidemark_torch_install(settings.encode(), int(host))
    if wrong is not None:
        raise RuntimeError(wrong.decode())
    _follow_settings(torch, _shim)
    return Installation(policy, settings, "class", path, host)


def _install_pluggable(torch: Any, policy: str, settings: str, reason: str) -> Installation:
    path = library.find("libtidemark_torch.so")
    _kept.append(fallback.install(torch, path, settings))
    warnings.warn("tidemark: only PyTorch's pluggable interface is in use (" + reason + "), without: "
                  + "; ".join(fallback.MISSING), RuntimeWarning, stacklevel=3)
    return Installation(policy, settings, "pluggable", path, False, fallback.MISSING, reason)


def install(policy: str = "tide", *, host: bool = True, way: str = "auto", **options: Option) -> Installation:
    """Makes Tidemark PyTorch's allocator of CUDA memory, and of pinned memory unless `host` is false.

    policy    "tide": hardly more memory is reserved than is handed out; "torch": decides as PyTorch does
    way       "class", "pluggable", or "auto": the class if it can be built, else the pluggable interface, with
              a warning that says what is then missing
    options   any option of the allocator under its name in PYTORCH_CUDA_ALLOC_CONF, such as
              max_split_size_mb=64, or tide_slack=0.01

    Must come before CUDA is initialised. A second call returns what the first did.
    Raises RuntimeError if CUDA is in use already, ValueError for options that are none.
    """
    global _installed, _library
    import torch

    if _installed is not None:
        return _installed
    if way not in ("auto", "class", "pluggable"):
        raise ValueError(f'way is "class", "pluggable" or "auto", not {way!r}')
    if torch.version.cuda is None:
        raise RuntimeError("this PyTorch is built without CUDA")
    if torch.cuda.is_initialized():
        raise RuntimeError("CUDA is initialised already: install() comes before the first use of it")
    settings = settings_text(policy, options, environment_settings())
    path = library.find()
    _library = library.load(path)
    try:
        if way == "pluggable":
            raise library.NotFound("asked for")
        _installed = _install_class(torch, path, policy, settings, host)
    except library.NotFound as reason:
        if way == "class":
            raise
        _installed = _install_pluggable(torch, policy, settings, str(reason))
    return _installed


def installation() -> Optional[Installation]:
    """What install() did; None before it."""
    return _installed


def _needed_shim() -> ctypes.CDLL:
    if _shim is None:
        raise RuntimeError("tidemark.torch.install() was not called, or only the pluggable interface is in use")
    return _shim


def stats(device: Any = None) -> dict[str, Any]:
    """PyTorch's statistics of a device and of pinned memory, ours beside them, and the calls of the driver.

    "utilisation" is the highest that was handed out over the highest that was reserved.
    """
    import torch

    shim = _needed_shim()
    flat = torch.cuda.memory_stats(device)
    reserved = flat.get("reserved_bytes.all.peak", 0)
    assert _library is not None
    machine = shim.tidemark_torch_machine() if torch.cuda.is_initialized() else None
    return {
        "device": flat,
        "host": torch.cuda.host_memory_stats() if hasattr(torch.cuda, "host_memory_stats") else {},
        "utilisation": flat.get("allocated_bytes.all.peak", 0) / reserved if reserved else 1.0,
        "driver_calls": library.driver_calls(_library, machine) if machine else {},
        "version": _library.tide_version().decode(),
    }


def snapshot(path: Union[str, os.PathLike[str]]) -> pathlib.Path:
    """Writes a memory snapshot: a pickle for PyTorch's viewer and the tidemark command, or JSON by the ending.

    With torch.cuda.memory._record_memory_history() before, the history and its stacks go along.
    """
    import torch

    _needed_shim()
    target = pathlib.Path(path)
    data = torch.cuda.memory._snapshot()
    if target.suffix == ".json":
        target.write_text(json.dumps(data), encoding="utf-8")
    else:
        with open(target, "wb") as file:
            pickle.dump(data, file, protocol=4)  # the highest that PyTorch's viewer reads
    return target


@dataclasses.dataclass(frozen=True)
class OutOfMemoryReport:
    """Why the last request failed for want of memory: numbers in bytes, and `text` for people."""
    device: int
    requested: int
    rounded: int
    allocated: int
    reserved: int
    waiting: int  # for work on other streams
    largest_idle: int
    device_free: int
    device_total: int
    limit: Optional[int]
    tried: tuple[tuple[str, int], ...]  # each step, and the bytes it found
    held_by: tuple[dict[str, int], ...]  # blocks that keep idle memory from use, the worst first
    text: str

    def __str__(self) -> str:
        lines = [self.text]
        lines += [f"  tried {name}: {found / 2**20:.1f} MiB" for name, found in self.tried]
        lines += [f"  {pin['block_count']} block(s) at {pin['address']:#x} with {pin['block_bytes'] / 2**20:.1f} MiB "
                  f"keep {pin['idle_bytes'] / 2**20:.1f} MiB idle" for pin in self.held_by]
        return "\n".join(lines)


def report_of(oom: library.Oom) -> Optional[OutOfMemoryReport]:
    """The report as Python's; None if there was none."""
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
        text=oom.text.decode(errors="replace"))


def explain_oom() -> Optional[OutOfMemoryReport]:
    """Why the last request of any thread failed for want of memory; None if none did."""
    oom = library.Oom()
    _needed_shim().tidemark_torch_last_oom(ctypes.byref(oom))
    return report_of(oom)
