#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Builds the shim with the headers and libraries of PyTorch's wheels, installs it in a process, and looks at its vtables.

wheels.py fetches parts of the wheels. A version that cannot be fetched is skipped, with the reason. Two functions of the
largest library have a stand-in, and its real table of symbols is compared; all else is PyTorch's own. No GPU is needed.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import types

HERE = pathlib.Path(__file__).resolve().parent
SHIM = HERE.parent.parent
sys.path[:0] = [str(HERE), str(SHIM), str(SHIM.parent / "tests")]
sys.dont_write_bytecode = True
import harness  # noqa: E402
import wheels  # noqa: E402
from harness import check, equal, over, slow  # noqa: E402
from tidemark.torch import build  # noqa: E402

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"]
GXX = shutil.which("g++")  # which alone prints vtables

STAND_IN = """
namespace c10 { enum class DeviceType : signed char; }
namespace at {
struct HostAllocator;
HostAllocator* kept;
void setHostAllocator(c10::DeviceType, HostAllocator* wanted, unsigned char) { kept = wanted; }
HostAllocator* getHostAllocator(c10::DeviceType) { return kept; }
}
"""

# What stays PyTorch's: see shim_methods.h; recordStream calls the form that is ours. Snapshots have no pinned memory.
INHERITED = {
    "tidemark::{anonymous}::Allocator": {"c10::Allocator::is_simple_data_ptr",
                                         "c10::cuda::CUDACachingAllocator::CUDAAllocator::recordStream",
                                         "c10::cuda::CUDACachingAllocator::CUDAAllocator::getMemoryInfo"},
    "tidemark::host::{anonymous}::HostAllocator": {
        "c10::Allocator::is_simple_data_ptr",
        *(f"at::HostAllocator::{name}" for name in ("record_history", "is_history_enabled", "get_segments", "get_traces",
                                                    "record_external_register", "record_external_unregister"))},
}

INSTALL = """
import ctypes, sys
cudart = ctypes.CDLL(sys.argv[2], ctypes.RTLD_GLOBAL)  # as PyTorch has loaded it
shim = ctypes.CDLL(sys.argv[1])
for name in "tidemark_torch_install", "tidemark_torch_replaced_by", "tidemark_torch_slots":
    getattr(shim, name).restype = ctypes.c_char_p
print(shim.tidemark_torch_install(b"policy:tide", 1))
print(shim.tidemark_torch_replaced_by())
print(shim.tidemark_torch_slots().decode())
"""


def site(folder: pathlib.Path, parts: pathlib.Path) -> pathlib.Path:
    """An installation of the parts, with stand-ins for the largest libraries."""
    lib = folder / "torch" / "lib"
    lib.mkdir(parents=True)
    (folder / "nvidia").symlink_to(parts / "nvidia")
    (folder / "torch" / "include").symlink_to(parts / "torch" / "include")
    for path in parts.glob("torch/lib/*.so"):
        (lib / path.name).symlink_to(path)
    (lib / "libcudart.so").symlink_to(next(parts.glob("nvidia/*/lib/libcudart.so.*")))
    (folder / "stand_in.cpp").write_text(STAND_IN, encoding="utf-8")
    for name, source in ("libtorch_cpu.so", str(folder / "stand_in.cpp")), ("libtorch_cuda.so", "/dev/null"):
        harness.run("-shared", "-fPIC", "-x", "c++", source, "-o", str(lib / name), program=str(GXX)).works()
    return folder


def compiled(folder: pathlib.Path, version: str) -> pathlib.Path:
    """The shim, by the command that the package uses. Nothing is left undefined."""
    torch = types.SimpleNamespace(__file__=str(folder / "torch" / "__init__.py"), __version__=version,
                                  _C=types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=True))
    os.environ["CUDA_HOME"] = str(next(folder.glob("nvidia/*/include/cuda_runtime_api.h")).parent.parent)
    library = pathlib.Path(harness.PROGRAM).with_name("libtidemark.so")
    command = build.command_line(torch, str(GXX), library, str(folder / "shim.so"))
    harness.run(*command[1:], *WARNINGS, "-Wl,-z,defs", f"-fdump-lang-class={folder / 'classes'}", program=str(GXX)).works()
    return folder / "shim.so"


def names(path: pathlib.Path, kind: str) -> set[str]:
    """Symbols of a library: --undefined-only or --defined-only."""
    lines = subprocess.run(["nm", "-D", kind, path], capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[-1].partition("@")[0] for line in lines}


def check_symbols(shim: pathlib.Path, parts: pathlib.Path) -> None:
    """The real library defines what the stand-in did."""
    asked = names(shim, "--undefined-only") & names(shim.parent / "torch" / "lib" / "libtorch_cpu.so", "--defined-only")
    asked = {name for name in asked if name.startswith("_ZN2at")}
    equal(len(asked), 2, "the number of functions of the largest library")
    if (parts / wheels.SYMBOLS).exists():
        equal(asked - set((parts / wheels.SYMBOLS).read_text(encoding="utf-8").split()), set(), "what the library lacks")


def check_vtables(text: str) -> None:
    """Every method is ours or inherited on purpose, and none is without a body."""
    for name, inherited in INHERITED.items():
        table = re.search(rf"^Vtable for {re.escape(name)}\n.*\n((?:\d+ .*\n)+)", text, re.MULTILINE)
        check(table, f"there is no vtable of {name}")
        slots = re.findall(r"^\d+ +\(int \(\*\)\(\.\.\.\)\)([\w:{}<>*, ]+)$", table[1] if table else "", re.MULTILINE)
        methods = [slot for slot in slots if "::" in slot]
        check(len(methods) >= 9, f"the vtable of {name} has only {methods}")
        check("__cxa_pure_virtual" not in slots, f"{name} has methods without a body")
        equal({slot for slot in methods if not slot.startswith("tidemark::")} - inherited, set(), f"what {name} inherits")


def check_install(shim: pathlib.Path) -> None:
    """The allocators take their places in PyTorch's libraries."""
    runtime = str(next(shim.parent.glob("nvidia/*/lib/libcudart.so.*")))
    answer = harness.run("-c", INSTALL, str(shim), runtime, program=sys.executable).works()
    failure, replaced, slots = answer.out.splitlines()
    equal((failure, replaced), ("None", "None"), "what installing says")
    check("does not know" not in slots, slots)


@slow
@over(wheels.VERSIONS)
def test_wheel(variant: str, folder: str) -> None:
    try:
        parts = wheels.obtain(variant)
    except wheels.Missing as reason:
        raise harness.Skip(f"no parts of the wheel of torch {variant}: {reason}") from reason
    here = site(pathlib.Path(folder), parts)
    shim = compiled(here, variant)
    check_symbols(shim, parts)
    check_vtables((here / "classes").read_text(encoding="utf-8"))
    check_install(shim)


if __name__ == "__main__":
    if GXX is None or shutil.which("nm") is None or os.uname().machine != "x86_64":
        harness.skip_all("g++ or nm was not found, or this is no x86-64")
    if harness.SANITIZER:
        harness.skip_all("the library has a sanitizer")
    harness.main()
