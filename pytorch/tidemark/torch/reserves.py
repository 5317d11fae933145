# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Memory that is reserved when a program begins, so that its first steps need not wait for the driver.

    tidemark.torch.install(reserve="14GiB")

or, for unmodified programs, TIDEMARK_RESERVE=14GiB in the environment. A thread reserves so much on one device: the only one
that is visible, or else the first one that the process uses. See docs/tide.md.
"""
from __future__ import annotations

import atexit
import os
import threading
from typing import Any, Optional, Union

from ..sizes import size_bytes
from . import notice
from .regions import of_device

__all__ = ["reserve"]

VARIABLE = "TIDEMARK_RESERVE"
_REPLACED = "TIDEMARK_MEMO"
_PAUSE = 0.005  # seconds between two looks at which device is used


def _is_off() -> bool:
    from . import _is_off as is_off

    return is_off()


def reserve(size: Union[int, str], device: Any = None) -> None:
    """Reserves so much more memory of a device, which is idle until tensors need it. Returns when it is there.

    It is for the current stream, and for others where views can use it: with the policy "tide". Raises ValueError for a wrong
    size, and TidemarkError if the device, or a limit, has less; what was reserved until then stays. Does nothing if Tidemark
    is switched off.
    """
    wanted = size_bytes(size)
    if _is_off():
        return
    import torch

    regions = of_device(device)
    regions.cache.reserve(torch.cuda.current_stream(regions.index).cuda_stream, wanted)


def from_environment() -> Optional[int]:
    """What TIDEMARK_RESERVE says, in bytes; None if it says nothing. Raises ValueError that names the variable."""
    if os.environ.get(_REPLACED, "").strip():
        notice.warn("memo", f"tidemark: {_REPLACED} has no effect any more: {VARIABLE}=14GiB, with the peak of the program, "
                    "makes its first steps as fast")
    text = os.environ.get(VARIABLE, "").strip()
    try:
        return size_bytes(text) if text else None
    except ValueError as error:
        raise ValueError(f"{VARIABLE}: {error}") from error


class _Start:
    """A thread that reserves memory, and ends before the process does: it calls the driver."""

    def __init__(self, torch: Any, shim: Any, size: int) -> None:
        self._torch, self._shim, self._size = torch, shim, size
        self._is_over = threading.Event()
        self.thread = threading.Thread(target=self._run, name="tidemark-reserve", daemon=True)

    def begin(self) -> None:
        """PyTorch calls this again if another queued call has raised."""
        if self.thread.ident is None:
            self.thread.start()
            atexit.register(self.end)

    def end(self) -> None:
        self._is_over.set()
        self.thread.join()

    def _device(self) -> Optional[int]:
        """The only device, or else the first one with memory; None if the process ends before."""
        count: int = self._torch.cuda.device_count()
        while count > 1:
            for index in range(count):
                if self._shim.tidemark_torch_device(index):
                    return index
            if self._is_over.wait(_PAUSE):
                return None
        return 0

    def _run(self) -> None:
        try:
            index = self._device()
            if index is not None:
                of_device(index).cache.reserve(None, self._size)
        except RuntimeError as error:  # TidemarkError is one
            notice.warn("reserve", f"tidemark: not all memory was reserved: {error}")


def begin(torch: Any, shim: Any, size: int) -> _Start:
    """Reserves so much in a thread, once CUDA is initialised."""
    start = _Start(torch, shim, size)
    torch.cuda._lazy_call(start.begin)
    return start
