# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Live memory by call site: who holds the memory, and who holds more of it step by step.

A call site is the innermost line of the user's code in the stack of an allocation. Stacks exist only while PyTorch records
them (torch.cuda.memory._record_memory_history()); memory that was allocated before has none.
"""
from __future__ import annotations

import dataclasses
import os
import sys
import warnings
from typing import Any, Iterable, Optional, Sequence

MIB = 1 << 20
UNKNOWN = "(no stack)"
_TEXT_SITES = 5  # in the text of an error


@dataclasses.dataclass(frozen=True)
class Holding:
    """The live memory of a call site."""
    bytes: int
    blocks: int


class MemoryGrowthWarning(RuntimeWarning):
    """Live memory of a call site grew step by step."""


def machinery() -> tuple[str, ...]:
    """Folders whose frames are not the user's: PyTorch's, this package's, and Python's own library."""
    torch = sys.modules.get("torch")
    files = [getattr(torch, "__file__", None), os.path.dirname(__file__), os.__file__]
    return tuple(os.path.dirname(os.path.abspath(file)) + os.sep for file in files if file)


def site_of(frames: Sequence[dict[str, Any]], folders: Sequence[str]) -> str:
    """The innermost frame of the user, or the innermost Python frame if all are machinery."""
    python = [frame for frame in frames if frame["filename"].endswith(".py")]
    for frame in python:
        # The standard library's folder contains installed packages, which are the user's choice.
        is_installed = "site-packages" in frame["filename"] or "dist-packages" in frame["filename"]
        is_theirs = any(frame["filename"].startswith(folder) for folder in (folders[:-1] if is_installed else folders))
        if not is_theirs:
            return f"{frame['filename']}:{frame['line']} in {frame['name']}"
    return f"{python[0]['filename']}:{python[0]['line']} in {python[0]['name']}" if python else UNKNOWN


def live(snapshot: dict[str, Any], device: Optional[int] = None) -> dict[str, Holding]:
    """Allocated memory by call site, of one device or of all."""
    folders = machinery()
    found: dict[str, Holding] = {}
    for segment in snapshot["segments"]:
        if device is not None and segment["device"] != device:
            continue
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                site = site_of(block.get("frames") or [], folders)
                before = found.get(site, Holding(0, 0))
                found[site] = Holding(before.bytes + block["requested_size"], before.blocks + 1)
    return found


def take(torch: Any) -> dict[str, Any]:
    """A snapshot, without the history where PyTorch can leave it out. PyTorch drops references that it does not own to
    the numbers it gets here, so they must be immortal, as they are since Python 3.12."""
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2] if part.isdigit())
    if version >= (2, 11) and sys.version_info >= (3, 12):
        found: dict[str, Any] = torch._C._cuda_memorySnapshot((0, 0, False))
        return found
    found = torch._C._cuda_memorySnapshot(None)
    return found


def holders_text(snapshot: dict[str, Any], device: int) -> str:
    """The largest holders, for the text of an out-of-memory error; empty if no block has a stack."""
    found = live(snapshot, device)
    unknown = found.pop(UNKNOWN, None)
    if not found:
        return ""
    ranked = sorted(found.items(), key=lambda item: (-item[1].bytes, item[0]))
    lines = ["Largest holders of live memory, by Python line:"]
    lines += [_holder_line(site, holding) for site, holding in ranked[:_TEXT_SITES]]
    rest = [holding for _, holding in ranked[_TEXT_SITES:]]
    if rest:
        total = Holding(sum(each.bytes for each in rest), sum(each.blocks for each in rest))
        lines.append(_holder_line(f"{len(rest)} other lines", total))
    if unknown is not None:
        lines.append(_holder_line("allocated before stacks were recorded", unknown))
    return "\n".join(lines)


def _holder_line(site: str, holding: Holding) -> str:
    return f"  {holding.bytes / MIB:,.1f} MiB in {holding.blocks} block(s): {site}"


class Watch:
    """Warns when the live memory of a call site grew in each of the last steps. See tidemark.torch.watch()."""

    def __init__(self, torch: Any, steps: int, every: int, least_bytes: int) -> None:
        if steps < 2 or every < 1 or least_bytes < 1:
            raise ValueError("steps must be at least 2, every and least_bytes at least 1")
        self._torch = torch
        self._steps, self._every, self._least = steps, every, least_bytes
        self._count = 0
        self._series: dict[str, list[int]] = {}  # the live bytes of a site at the last looks
        self._warned: dict[str, int] = {}  # the live bytes when a site was warned of
        self._is_recording = False
        self._start()

    def _start(self) -> None:
        if not self._torch._C._cuda_isHistoryEnabled():
            record = self._torch.cuda.memory._record_memory_history
            record(enabled="state", context="state", stacks="python", max_entries=1)
            self._is_recording = True

    def step(self) -> list[str]:
        """To be called after each step. Returns the call sites that it warned of."""
        self._count += 1
        if self._count % self._every != 0:
            return []
        return self._look(live(take(self._torch)))

    def _look(self, found: dict[str, Holding]) -> list[str]:
        found.pop(UNKNOWN, None)
        self._series = {site: self._series.get(site, [])[-self._steps:] + [holding.bytes]
                        for site, holding in found.items()}
        suspects = [site for site, series in self._series.items() if self._is_growing(site, series)]
        for site in suspects:
            self._warn(site, self._series[site])
        return suspects

    def _is_growing(self, site: str, series: Sequence[int]) -> bool:
        is_rising = len(series) > self._steps and all(a < b for a, b in zip(series, series[1:]))
        return (is_rising and series[-1] - series[0] >= self._least
                and series[-1] >= 2 * self._warned.get(site, 0))

    def _warn(self, site: str, series: Sequence[int]) -> None:
        self._warned[site] = series[-1]
        looks = len(series) - 1
        slope = (series[-1] - series[0]) / looks / self._every
        warnings.warn(f"tidemark: live memory grew in each of the last {looks * self._every} steps at {site}: "
                      f"{slope / MIB:+.2f} MiB a step, now {series[-1] / MIB:,.1f} MiB", MemoryGrowthWarning, stacklevel=4)

    def close(self) -> None:
        """Stops recording stacks, if this watch began it."""
        if self._is_recording:
            self._is_recording = False
            self._torch.cuda.memory._record_memory_history(enabled=None)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
