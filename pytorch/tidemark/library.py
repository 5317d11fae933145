# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Finds the C library, and describes the few structs that Python reads."""
from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import pathlib
import re
import shutil
import subprocess
from typing import Iterator, Optional

from . import files

PACKAGE = pathlib.Path(__file__).resolve().parent
TREE = PACKAGE.parent.parent
CMAKE_OPTIONS = ["-DCMAKE_BUILD_TYPE=Release", "-DTIDEMARK_CHECK=0", "-DTIDEMARK_TESTS=OFF", "-DTIDEMARK_EXAMPLES=OFF"]


class NotFound(RuntimeError):
    """Something required is missing; the text says what, and where it was expected."""


def source_tree() -> Optional[pathlib.Path]:
    """The source tree of Tidemark, if the package is in it."""
    return TREE if (TREE / "include" / "tidemark" / "device.h").exists() else None


def include_folder() -> pathlib.Path:
    """The folder of Tidemark's headers, for the shim."""
    for folder in (PACKAGE / "include", TREE / "include"):
        if (folder / "tidemark" / "device.h").exists():
            return folder
    raise NotFound(f"Tidemark's headers are neither in {PACKAGE / 'include'} nor in {TREE / 'include'}")


def shim_sources() -> list[pathlib.Path]:
    """The C++ files of the shim."""
    for folder in (PACKAGE / "shim", PACKAGE.parent):
        sources = sorted(folder.glob("shim*.cpp"))
        if sources:
            return sources
    raise NotFound(f"the sources of the shim are neither in {PACKAGE / 'shim'} nor in {PACKAGE.parent}")


def cmake(build: pathlib.Path, configure: list[str], compile_: list[str]) -> None:
    """Configures a build folder and builds in it.

    CMake caches that there was no C++ compiler. It is told to look again, because one may have been installed.
    """
    if shutil.which("cmake") is None:
        raise NotFound(f"cmake was not found, which is needed to build Tidemark in {build}")
    cache = build / "CMakeCache.txt"
    said = cache.read_text(errors="replace") if cache.is_file() else ""
    again = ["-UCMAKE_CXX_COMPILER"] if re.search("^CMAKE_CXX_COMPILER:.*NOTFOUND$", said, re.MULTILINE) else []
    for command in (["cmake", "-B", str(build), *again, *configure], ["cmake", "--build", str(build), *compile_]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NotFound(f"Tidemark could not be built in {build}: {done.stderr or done.stdout}")


@contextlib.contextmanager
def _turn(build: pathlib.Path) -> Iterator[None]:
    """One process at a time uses a build folder, where the file system has locks."""
    try:
        build.mkdir(parents=True, exist_ok=True)
        lock = files.open_own(build / "tidemark.lock", os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise NotFound(f"Tidemark cannot be built in {build}: {error}") from error
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def build_with_cmake(tree: pathlib.Path, name: str) -> pathlib.Path:
    """The library from its sources, built as ./dev bench does if no other process has done it meanwhile."""
    build = tree / "build" / "release"
    with _turn(build):
        if not (build / name).exists():
            generator = ["-GNinja"] if shutil.which("ninja") and not (build / "CMakeCache.txt").exists() else []
            cmake(build, ["-S", str(tree), *generator, *CMAKE_OPTIONS], ["--parallel"])
    return build / name


def find(name: str = "libtidemark.so") -> pathlib.Path:
    """The library: from TIDEMARK_LIB, in the package, or built from the source tree.

    TIDEMARK_LIB is the path of libtidemark.so; other libraries are expected in the same folder.
    """
    wanted = os.environ.get("TIDEMARK_LIB")
    if wanted:
        path = pathlib.Path(wanted).resolve().parent / name if name != "libtidemark.so" else pathlib.Path(wanted)
        if path.exists():
            return path.resolve()
        raise NotFound(f"TIDEMARK_LIB is {wanted}, but {path} does not exist")
    packaged = PACKAGE / "lib" / name
    if packaged.exists():
        return packaged
    tree = source_tree()
    if tree is None:
        raise NotFound(f"{packaged} does not exist, there is no source tree around the package, and TIDEMARK_LIB is not set")
    built = tree / "build" / "release" / name
    built = built if built.exists() else build_with_cmake(tree, name)
    if not built.exists():
        raise NotFound(f"{built} was not built")
    return built.resolve()


# ---------------------------------------------------------------------------------------------------
# Structs: see tidemark/device.h and tidemark/machine.h

RUNGS = 8
PINS = 8
ERROR_TEXT = 1536


class Rung(ctypes.Structure):
    """tide_oom_rung"""
    _fields_ = [("name", ctypes.c_char_p), ("yielded_bytes", ctypes.c_uint64)]


class Pin(ctypes.Structure):
    """tide_oom_pin"""
    _fields_ = [(name, ctypes.c_uint64) for name in ("address", "block_count", "block_bytes", "idle_bytes")]


class Oom(ctypes.Structure):
    """tide_oom"""
    _fields_ = [
        ("size", ctypes.c_uint32), ("device", ctypes.c_int32), ("stream", ctypes.c_void_p),
        *[(name, ctypes.c_uint64) for name in (
            "requested_bytes", "rounded_bytes", "segment_bytes", "device_free", "device_total", "limit",
            "allocated_bytes", "reserved_bytes", "pending_bytes", "private_idle_bytes", "largest_idle_bytes")],
        ("pool", ctypes.c_uint32), ("is_rejected", ctypes.c_bool),
        ("text", ctypes.c_char * 1536), ("rung_count", ctypes.c_uint32), ("pin_count", ctypes.c_uint32),
        ("rungs", Rung * RUNGS), ("pins", Pin * PINS), ("parked_bytes", ctypes.c_uint64),
        *[(name, ctypes.c_uint64) for name in ("tag_limit", "tag_reserved_bytes", "guaranteed_bytes")],
        ("tag", ctypes.c_char * 256),
    ]


class CallStats(ctypes.Structure):
    """tide_call_stats"""
    _fields_ = [("calls", ctypes.c_uint64), ("failures", ctypes.c_uint64), ("ns", ctypes.c_uint64)]


class Error(ctypes.Structure):
    """tide_error"""
    _fields_ = [("status", ctypes.c_int), ("native", ctypes.c_int64), ("file", ctypes.c_char_p), ("line", ctypes.c_int),
                ("text", ctypes.c_char * ERROR_TEXT)]


def load(path: pathlib.Path) -> ctypes.CDLL:
    """Opens the C library and declares its functions. Raises NotFound if it cannot be loaded."""
    try:
        library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise NotFound(f"{path} cannot be loaded: {error}") from error
    library.tide_last_error.restype = ctypes.POINTER(Error)
    library.tide_device_options_parse.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    library.tide_version.restype = ctypes.c_char_p
    library.tide_call_name.restype = ctypes.c_char_p
    library.tide_call_name.argtypes = [ctypes.c_int]
    library.tide_machine_call_stats.restype = CallStats
    library.tide_machine_call_stats.argtypes = [ctypes.c_void_p, ctypes.c_int]
    return library


def driver_calls(library: ctypes.CDLL, machine: int) -> dict[str, dict[str, int]]:
    """The number of calls and failures of each machine call that was made."""
    calls: dict[str, dict[str, int]] = {}
    number = 0
    while True:
        name = (library.tide_call_name(number) or b"").decode()
        if name in ("any", "", "unknown"):
            return calls
        stats = library.tide_machine_call_stats(machine, number)
        if stats.calls:
            calls[name] = {"calls": stats.calls, "failures": stats.failures}
        number += 1
