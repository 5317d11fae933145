#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Runs the test programs of torch_memory_saver with tidemark.torch.memory_saver in its place, on a GPU.

    pytorch/tests/saver.py CHECKOUT [part of a name ...]

CHECKOUT has the peer's folder test/ and its files torch_memory_saver/{utils,testing_utils}.py. Prints for each program and mode
whether it passed, failed, or does not apply, and why. Lines of a program that ask for a state which only the peer's own library
has are left out of a copy of it; the rest of the program runs unchanged. Programs that are not known here fail.
"""
from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from typing import Any, Iterator, Optional

HERE = pathlib.Path(__file__).resolve().parent
BOTH = ("preload", "torch")
ALL = {"TMS_INIT_ENABLE": "1", "TMS_INIT_ENABLE_CPU_BACKUP": "1"}
LIMIT_S = 240


@dataclasses.dataclass(frozen=True)
class Program:
    """A function of one of the peer's modules in test/examples, as its test_examples.py calls it."""
    module: str
    function: str = "run"
    modes: tuple[str, ...] = BOTH
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    without: tuple[str, ...] = ()  # lines with one of these texts are left out
    reason: str = ""  # why
    devices: int = 1

    @property
    def name(self) -> str:
        return f"{self.module}.{self.function}"


PRIVATE: dict[str, Any] = dict(without=("cdll", "_ensure_initialized()"), reason="they read variables of the peer's C library")
PROGRAMS = [
    Program("simple"),
    Program("cuda_graph"),
    Program("cpu_backup", without=("_assert_cpu_backup_released_on_allocation_free(device=device_id",),
            reason="they remove pools from the peer's private table, and ask CUDA whether a backup is from cudaMallocHost"),
    Program("cpu_backup", "run_multi_device_mmap_restore", devices=2),
    Program("cpu_backup", "run_rss", ("torch",)),
    Program("cpu_backup", "run_backend_from_env", environment={"TMS_INIT_CPU_BACKUP_BACKEND": "mmap"}, **PRIVATE),
    Program("cpu_backup", "run_preload_backend_from_env", ("preload",), {**ALL, "TMS_INIT_CPU_BACKUP_BACKEND": "mmap"}, **PRIVATE),
    Program("disk_backup", without=("assert len(files) >= 2", "assert total >= big.numel() * 4"),
            reason="they list the peer's files; those of Tidemark have no names"),
    Program("cpu_backup", "run_retain_from_env", environment={"TMS_RETAIN_CPU_BACKUP": "1"}),
    Program("multi_device", devices=2),
    Program("multi_device_torch_mode", modes=("torch",), devices=2),
    Program("rl_example"),
    Program("training_engine", modes=("preload",), environment=ALL,
            without=("assert delta_expect - 50", "assert mem_after_resume - 1024"),
            reason="they expect that idle memory comes back to the card; here only memory in use does"),
    Program("nested_region", modes=("preload",), environment=ALL, **PRIVATE),
]
NOT_OURS = {
    "cuda_vmm_granularity.run": "it calls cudaMalloc and functions of the peer's C library, which replaces cudaMalloc",
    "xpu_scenarios": "it needs another kind of device",
    "test_configure_subprocess.py": "it is about LD_PRELOAD, which is not used here",
    "test_merge_cuda_wheels.py": "it is about the peer's packages",
    "test_utils.py": "it is about the peer's binaries and other kinds of devices",
}

PACKAGE = """
from tidemark.torch.memory_saver import TorchMemorySaver, configure_subprocess, torch_memory_saver
"""
# Runs a program, and makes sure that the peer's own library has no part in it.
DRIVER = """
import importlib, sys
import torch, torch_memory_saver
from tidemark.torch import installation, memory_saver
assert torch_memory_saver.__file__.startswith(sys.argv[4]), torch_memory_saver.__file__
assert torch_memory_saver.torch_memory_saver is memory_saver.torch_memory_saver
try:
    torch.cuda.device_memory_used(0)
except Exception:  # it needs NVML and its Python package
    def used(device=None):
        free, total = torch.cuda.mem_get_info(device)
        return total - free
    torch.cuda.device_memory_used = used
getattr(importlib.import_module("examples." + sys.argv[1]), sys.argv[2])(hook_mode=sys.argv[3])
assert installation().way == "class" and installation().policy == "tide", installation()
with open("/proc/self/maps", encoding="utf-8") as maps:
    assert "torch_memory_saver_" not in maps.read(), "the peer's library is loaded"
print("THE END", flush=True)
"""


def copy_program(checkout: pathlib.Path, folder: pathlib.Path, program: Program) -> int:
    """Copies a module of the peer's examples. Returns how many lines were left out; raises ValueError if there are none of a kind."""
    source = checkout / "test" / "examples" / f"{program.module}.py"
    lines = source.read_text(encoding="utf-8").splitlines(keepends=True)
    for text in program.without:
        if not any(text in line for line in lines):
            raise ValueError(f"{source.name} has no line with {text!r}: the program has changed")
    kept = [line for line in lines if not any(text in line for text in program.without)]
    (folder / "examples" / source.name).write_text("".join(kept), encoding="utf-8")
    return len(lines) - len(kept)


def make_folder(checkout: pathlib.Path, folder: pathlib.Path) -> None:
    """A package torch_memory_saver that is ours, with the helpers of the peer's tests, and a package for its examples."""
    package = folder / "torch_memory_saver"
    package.mkdir()
    (package / "__init__.py").write_text(PACKAGE, encoding="utf-8")
    for name in ("testing_utils.py", "utils.py"):
        (package / name).write_bytes((checkout / "torch_memory_saver" / name).read_bytes())
    (folder / "examples").mkdir()
    (folder / "examples" / "__init__.py").touch()


def run(folder: pathlib.Path, program: Program, mode: str) -> str:
    """Runs a program; returns what went wrong, or nothing."""
    paths = [str(folder), str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TMS_") and name != "LD_PRELOAD"}
    if mode == "preload":
        kept["TIDEMARK_TORCH"] = "tide"  # as configure_subprocess() does
    environment = {**kept, **program.environment, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", DRIVER, program.module, program.function, mode, str(folder)]
    try:
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"no end after {LIMIT_S} s"
    text = (done.stdout + done.stderr)[-3000:]
    return "" if done.returncode == 0 and "THE END" in done.stdout else f"status {done.returncode}: {text}"


def device_count() -> int:
    import torch
    return torch.cuda.device_count()


def unknown(checkout: pathlib.Path) -> Iterator[str]:
    """Programs of the checkout that this file does not name."""
    known = {program.name for program in PROGRAMS} | set(NOT_OURS)
    for path in sorted((checkout / "test" / "examples").glob("*.py")):
        functions = re.findall(r"^def (run\w*)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
        yield from (f"{path.stem}.{name}" for name in functions if not {path.stem, f"{path.stem}.{name}"} & known)
    yield from (path.name for path in sorted((checkout / "test").glob("test_*.py"))
                if path.name not in known and path.name != "test_examples.py")


class Report:
    """Prints results, and counts them."""

    def __init__(self) -> None:
        self.counts = {"passed": 0, "failed": 0, "does not apply": 0}

    def tell(self, result: str, name: str, text: str = "") -> None:
        self.counts[result] += 1
        print(f"{result:14}  {name}" + (f": {text}" if text else ""), flush=True)


def run_modes(checkout: pathlib.Path, folder: pathlib.Path, program: Program, report: Report, parts: list[str]) -> None:
    for mode in program.modes:
        name = f"{program.name} [{mode}]"
        if parts and not any(part in name for part in parts):
            continue
        if program.devices > 1 and device_count() < program.devices:
            report.tell("does not apply", name, f"it needs {program.devices} devices")
            continue
        begin = time.monotonic()
        left_out = 0
        wrong: Optional[str] = None
        try:
            left_out = copy_program(checkout, folder, program)
        except (OSError, ValueError) as error:
            wrong = str(error)
        wrong = run(folder, program, mode) if wrong is None else wrong
        note = f"without {left_out} lines, because {program.reason}" if left_out else ""
        report.tell("failed" if wrong else "passed", f"{name} ({time.monotonic() - begin:.0f} s)", wrong or note)


def main() -> None:
    if len(sys.argv) < 2 or not (pathlib.Path(sys.argv[1]) / "test" / "examples").is_dir():
        sys.exit(__doc__)
    checkout, parts = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    report = Report()
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made).resolve()
        make_folder(checkout, folder)
        for program in PROGRAMS:
            run_modes(checkout, folder, program, report, parts)
    for name, reason in NOT_OURS.items():
        report.tell("does not apply", name, reason)
    for name in unknown(checkout):
        report.tell("failed", name, "this file does not know it")
    print(", ".join(f"{count} {result}" for result, count in report.counts.items()))
    sys.exit(1 if report.counts["failed"] or not (report.counts["passed"] or parts) else 0)


if __name__ == "__main__":
    main()
