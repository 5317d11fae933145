# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""A memo of the last run, so that the first step of the next one need not wait for the driver.

    tidemark.torch.install(memo="~/.cache/my_training.memo")

or, for unmodified programs, TIDEMARK_MEMO=PATH in the environment. The memo is loaded when CUDA is initialised, for the
device that is current then, and written at exit. `{device}` in the path stands for the index of the device. A path that
does not exist yet is the first run. A file that is no memo is left out with a warning. See docs/tide.md.
"""
from __future__ import annotations

import atexit
import os
from typing import Any, Optional

from ..abi import TidemarkError
from . import notice
from .regions import Regions, of_device

__all__ = ["load_memo", "save_memo"]

VARIABLE = "TIDEMARK_MEMO"


def _is_off() -> bool:
    from . import _is_off as is_off

    return is_off()


def load_memo(path: str, device: Any = None) -> None:
    """Lets a device make the memory ahead that a memo says, when it needs memory for the first time.

    Raises FileNotFoundError, or TidemarkError if the file cannot be read, or is no memo. Does nothing if Tidemark is
    switched off.
    """
    if not _is_off():
        regions = of_device(device)
        _load(regions, path)


def save_memo(path: str, device: Any = None) -> None:
    """Writes what a device has needed so far. An old file is replaced. Raises TidemarkError if that fails."""
    if not _is_off():
        regions = of_device(device)
        regions.cache.memo_save(_filled(path, regions.index))


def _filled(path: str, index: int) -> str:
    return os.path.expanduser(path.replace("{device}", str(index)))


def _load(regions: Regions, path: str) -> None:
    filled = _filled(path, regions.index)
    if not os.path.exists(filled):
        raise FileNotFoundError(filled)
    regions.cache.memo_load(filled)


def from_environment() -> Optional[str]:
    """What TIDEMARK_MEMO says; None if it says nothing."""
    return os.environ.get(VARIABLE, "").strip() or None


def _load_or_warn(regions: Regions, path: str) -> None:
    try:
        _load(regions, path)
    except FileNotFoundError:
        pass  # the first run
    except TidemarkError as error:
        notice.warn("memo", f"tidemark: the memo has no effect: {error}")


def _save_or_warn(regions: Regions, path: str) -> None:
    try:
        regions.cache.memo_save(_filled(path, regions.index))
    except TidemarkError as error:
        notice.warn("memo", f"tidemark: the memo was not written: {error}")


def keep(torch: Any, path: str) -> None:
    """Loads the memo when CUDA is initialised, and writes it at exit, in the process that loaded it."""
    process = os.getpid()

    def begin() -> None:
        regions = of_device(torch.cuda.current_device())
        _load_or_warn(regions, path)
        atexit.register(end, regions)

    def end(regions: Regions) -> None:
        if os.getpid() == process:
            _save_or_warn(regions, path)

    torch.cuda._lazy_call(begin)
