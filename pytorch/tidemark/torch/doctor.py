# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Prints what Tidemark finds on this computer, which way install() takes, and why.

Every line stands alone: what cannot be found out is replaced by the reason. The last line is a trial: install() itself,
which builds the shim if it is not there yet, and, where there is a GPU, one tensor.
"""
from __future__ import annotations

import ctypes
import os
import pathlib
import platform
import re
import sys
from typing import Any, Callable, Iterator, Optional

import tidemark
import tidemark.torch
from .. import library, sizes
from . import build, cache, ledgers, settings, trust

VARIABLES = ("TIDEMARK_TORCH", "TIDEMARK_CONF", "TIDEMARK_LEDGER", "TIDEMARK_RESERVE", "PYTORCH_CUDA_ALLOC_CONF",
             "PYTORCH_ALLOC_CONF", "TIDEMARK_LIB", "TIDEMARK_CACHE", "TIDEMARK_REBUILD", "TIDEMARK_FALLBACK", "TIDEMARK_WARNED",
             "PYTORCH_NO_CUDA_MEMORY_CACHING", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CXX")


class Probe(ctypes.Structure):
    """tide_probe"""
    _fields_ = [("size", ctypes.c_uint32), ("works", ctypes.c_bool), ("call_count", ctypes.c_uint32),
                ("reason", ctypes.c_char * 256)]


def _driver() -> str:
    """The version of the driver, and of the CUDA that it serves."""
    cuda = ctypes.CDLL("libcuda.so.1")
    number = ctypes.c_int()
    if cuda.cuDriverGetVersion(ctypes.byref(number)) != 0:
        return "libcuda.so.1 does not tell its version"
    kernel = pathlib.Path("/proc/driver/nvidia/version")
    said = re.search(r"\d+\.\d+(\.\d+)?", kernel.read_text(errors="replace") if kernel.exists() else "")
    return f"{said.group(0) if said else 'unknown'}, for CUDA {number.value // 1000}.{number.value % 1000 // 10}"


def _torch() -> Any:
    import torch
    return torch


def _torch_version() -> str:
    torch = _torch()
    return f"{torch.__version__}, CUDA {torch.version.cuda or 'none'}, {pathlib.Path(torch.__file__).parent}"


def _gpus() -> str:
    count = _torch().cuda.device_count()  # does not initialise CUDA
    return f"{count}" if count else "none that PyTorch can use"


def _library() -> str:
    path = library.find()
    return f"{library.load(path).tide_version().decode()}, {path}"


def _compiler() -> str:
    return build.compiler() or "none: set CXX, or install one; a shim that came with the package needs none"


def _cache() -> str:
    folder = cache.cache_folder()
    os.close(trust.open_folder(str(folder)))
    access = "can be written" if os.access(folder, os.W_OK) else "cannot be written"
    return f"{folder}, closed to others, {access}"


def _shim() -> str:
    torch, path = _torch(), library.find()
    version = library.load(path).tide_version().decode()
    ready = build.prebuilt(torch, version)
    if ready is not None:
        return f"came with the package: {ready}"
    cxx = build.compiler()
    if cxx is None:
        return "none came with the package, and there is no compiler"
    folder = build.shim_folder(torch, cxx, path, version)
    failed = folder / cache.FAILED
    if failed.exists():
        return f"failed before: {failed} has the reason"
    return f"{folder / build.NAME}, {'built' if (folder / build.NAME).exists() else 'to be built at the first use'}"


def _in_place() -> str:
    return str(_torch().cuda.get_allocator_backend())


def _conf() -> str:
    return settings.text_in_force(library.load(library.find()), None, {}, settings.switch())


def _ledger() -> str:
    """The ledger that devices join at their first use."""
    quota = ledgers.from_environment()
    if quota is None:
        return "none"
    total = sizes.size_text(quota.total) if quota.total else "that of the ledger, which must exist"
    limit = "the total" if quota.limit is None else sizes.size_text(quota.limit)
    return (f"{quota.ledger}; total: {total}; guarantee: {sizes.size_text(quota.guarantee)}; limit: {limit}; "
            f"priority: {quota.priority}; requests wait {quota.wait_ns / 1e9:g} s at most")


def _probe() -> str:
    """What works on the first device, as far as the library can find it out."""
    loaded = library.load(library.find())
    machine = ctypes.c_void_p()
    if loaded.tide_machine_new_cuda(None, ctypes.byref(machine)) != 0:
        return _last_error(loaded)
    try:
        if not hasattr(loaded, "tide_machine_probe"):
            return "the CUDA driver answers; this library cannot probe its features"
        return "\n".join(_features(loaded, machine))
    finally:
        loaded.tide_machine_free(machine)


def _last_error(loaded: ctypes.CDLL) -> str:
    return str(loaded.tide_last_error().contents.text.decode(errors="replace"))


def _features(loaded: ctypes.CDLL, machine: ctypes.c_void_p) -> Iterator[str]:
    loaded.tide_feature_name.restype = ctypes.c_char_p
    for number in range(64):
        name = loaded.tide_feature_name(number).decode()
        if name == "unknown":
            return
        probe = Probe(ctypes.sizeof(Probe))
        if loaded.tide_machine_probe(machine, 0, number, ctypes.byref(probe)) != 0:
            yield f"{name}: {_last_error(loaded)}"
        else:
            yield f"{name}: {'works' if probe.works else probe.reason.decode(errors='replace')}"


# In the order in which they are printed: before the trial, because install() changes some of them.
LINES: tuple[tuple[str, Callable[[], str]], ...] = (
    ("python", lambda: f"{platform.python_version()}, {sys.executable}"),
    ("package", lambda: f"{tidemark.__version__}, {library.PACKAGE}"),
    ("library", _library),
    ("torch", _torch_version),
    ("driver", _driver),
    ("GPUs", _gpus),
    ("features", _probe),
    ("compiler", _compiler),
    ("CUDA headers", lambda: str(build.cuda_include())),
    ("cache", _cache),
    ("shim", _shim),
    ("in place", _in_place),
    ("settings", _conf),
    ("ledger", _ledger),
)


def _answer(line: Callable[[], str]) -> str:
    try:
        return line()
    except Exception as error:  # a reason instead of an answer
        return f"unknown: {type(error).__name__}: {error}"


def _print(name: str, text: str) -> None:
    lines = text.splitlines() or [""]
    print(f"{name + ':':<14}{lines[0]}")
    for line in lines[1:]:
        print(f"{'':<14}{line}")


def _try(policy: Optional[str], options: dict[str, str]) -> tuple[bool, str]:
    """Installs, and allocates a tensor where there is a GPU. Returns whether the class is in use, and what to say."""
    try:
        installed = tidemark.torch.install(policy, **options)
        if installed.way != "class":
            return False, f"{installed.way}, because {installed.reason}"
        torch = _torch()
        if torch.cuda.device_count() == 0:
            return True, f"class, policy {installed.policy}, with {installed.shim}; not used, as there is no GPU"
        kept = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
        return True, f"class, policy {installed.policy}, with {installed.shim}; a tensor of {kept.numel()} bytes was made"
    except Exception as error:
        return False, f"none: {type(error).__name__}: {error}"


def main(policy: Optional[str] = None, options: Optional[dict[str, str]] = None) -> int:
    """Prints all lines. Returns 0 if PyTorch's class was replaced, otherwise 1."""
    tidemark.hook.disarm()
    for name, line in LINES:
        _print(name, _answer(line))
    for name in VARIABLES:
        if os.environ.get(name):
            _print("environment", f"{name}={os.environ[name]}")
    works, text = _try(policy, options or {})
    if tidemark.torch.vtable_text():
        _print("vtable", tidemark.torch.vtable_text())
    _print("way", text)
    return 0 if works else 1
