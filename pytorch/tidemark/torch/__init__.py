# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Runs PyTorch on Tidemark's memory.

    import tidemark.torch
    tidemark.torch.install()          # before CUDA is used

Nothing else changes: statistics, snapshots, graphs, pools and exceptions are PyTorch's own.
`python -m tidemark.torch script.py` does the same for an unmodified script.
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
    """The result of install()."""
    policy: str
    settings: str  # the options in force, as text
    way: str  # "class": PyTorch's allocator class is replaced; "pluggable": see `missing`
    library: pathlib.Path
    has_host: bool  # pinned memory comes from Tidemark, too
    missing: tuple[str, ...] = ()  # features that PyTorch refuses this way
    reason: str = ""  # why the class is not used


_installed: Optional[Installation] = None
_library: Optional[ctypes.CDLL] = None
_shim: Optional[ctypes.CDLL] = None
_kept: list[Any] = []  # objects that PyTorch borrows


def settings_text(policy: str, options: dict[str, Option], environment: Optional[str]) -> str:
    """The options as one text in PyTorch's grammar; options of the call override the environment."""
    parts = [environment] if environment else []
    parts.append(f"policy:{policy}")
    parts += [f"{key}:{value}" for key, value in options.items()]
    return ",".join(parts)


def environment_settings() -> Optional[str]:
    """The settings of PyTorch's allocator, or ours, in the environment."""
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
    """Passes settings that change at run time on to the shim; PyTorch does not."""
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
    """Makes Tidemark PyTorch's allocator for CUDA memory, and for pinned memory unless `host` is false.

    policy    "tide" reserves little more memory than it hands out; "torch" decides as PyTorch does
    way       "class", "pluggable", or "auto": the class if it can be built, otherwise the pluggable interface, with
              a warning that lists the missing features
    options   any option of the allocator under its name in PYTORCH_CUDA_ALLOC_CONF, such as
              max_split_size_mb=64, or tide_slack=0.01

    Must be called before CUDA is initialised. A second call returns the result of the first.
    Raises RuntimeError if CUDA is already in use, and ValueError for invalid options.
    """
    global _installed, _library
    import torch

    if _installed is not None:
        return _installed
    if way not in ("auto", "class", "pluggable"):
        raise ValueError(f'way must be "class", "pluggable" or "auto", not {way!r}')
    if torch.version.cuda is None:
        raise RuntimeError("this PyTorch is built without CUDA")
    if torch.cuda.is_initialized():
        raise RuntimeError("CUDA is already initialised: call install() before the first use of CUDA")
    settings = settings_text(policy, options, environment_settings())
    path = library.find()
    _library = library.load(path)
    try:
        if way == "pluggable":
            raise library.NotFound("as requested")
        _installed = _install_class(torch, path, policy, settings, host)
    except library.NotFound as reason:
        if way == "class":
            raise
        _installed = _install_pluggable(torch, policy, settings, str(reason))
    return _installed


def installation() -> Optional[Installation]:
    """The result of install(); None before it was called."""
    return _installed


def _needed_shim() -> ctypes.CDLL:
    if _shim is None:
        raise RuntimeError("tidemark.torch.install() was not called, or only the pluggable interface is in use")
    return _shim


def stats(device: Any = None) -> dict[str, Any]:
    """PyTorch's statistics of a device and of pinned memory, the utilisation, and counts of driver calls.

    "utilisation" is the peak of allocated memory divided by the peak of reserved memory.
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
    """Writes a memory snapshot for PyTorch's viewer and the tidemark command: a pickle, or JSON for a .json path.

    It includes the history and its stacks, if torch.cuda.memory._record_memory_history() was called before.
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
        text=oom.text.decode(errors="replace"))


def explain_oom() -> Optional[OutOfMemoryReport]:
    """Why the last request of any thread ran out of memory; None if none did."""
    oom = library.Oom()
    _needed_shim().tidemark_torch_last_oom(ctypes.byref(oom))
    return report_of(oom)
