# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""The interface of torch_memory_saver on Tidemark: programs written for it change one import.

    from tidemark.torch.memory_saver import torch_memory_saver

Import it before CUDA is used. Only memory in use is copied and comes back; idle memory of the cache goes. Neither LD_PRELOAD nor
a special mode is needed: `hook_mode` is accepted and has no effect, and graphs can be paused in both modes. Environment
variables: with TMS_INIT_ENABLE all memory of the process has the tag "default", and TMS_INIT_ENABLE_CPU_BACKUP or
TMS_INIT_ENABLE_DISK_BACKUP says where its contents go. TMS_INIT_CPU_BACKUP_BACKEND, TMS_RETAIN_CPU_BACKUP and
TMS_DISK_BACKUP_DIR give defaults.
"""
from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from typing import Any, Iterator, Optional

from ..abi import TidemarkError
from ..device import Backup, ScopeKind
from . import _needed_shim, install, regions

__all__ = ["TorchMemorySaver", "configure_subprocess", "torch_memory_saver"]

_DEFAULT_TAG = "default"
_BACKENDS = {"pinned": Backup.PINNED, "mmap": Backup.PAGEABLE}


def _is_set(name: str) -> bool:
    value = os.environ.get(name, "0")
    if value.lower() not in ("0", "1", "false", "true", "no", "yes"):
        raise ValueError(f"{name} must be 1 or 0, not {value!r}")
    return value.lower() in ("1", "true", "yes")


def _tag(name: str) -> str:
    """The peer's tags are not paths, and may be empty."""
    return name.replace("%", "%25").replace("/", "%2F") or "%"


def _tags(name: Optional[str]) -> list[str]:
    """One tag, or all. Each is parked alone, so that the next time finds the backup that was retained for it."""
    return [_tag(name)] if name else sorted({tag for each in regions.served() for tag in each.cache.tags()})


class _Config(threading.local):
    """What holds for a thread now."""

    def __init__(self) -> None:
        self.is_inside = _is_set("TMS_INIT_ENABLE")  # in a region
        self.backend = os.environ.get("TMS_INIT_CPU_BACKUP_BACKEND") or "pinned"

    @contextlib.contextmanager
    def change(self, **values: Any) -> Iterator[None]:
        """Other values for a while."""
        before = {name: getattr(self, name) for name in values}
        vars(self).update(values)
        try:
            yield
        finally:
            vars(self).update(before)


class TorchMemorySaver:
    """Regions whose memory can be paused and resumed, by tag."""

    def __init__(self) -> None:
        self._config = _Config()
        self._retains = _is_set("TMS_RETAIN_CPU_BACKUP")
        self._folder = os.environ.get("TMS_DISK_BACKUP_DIR", "/tmp")
        self._mode = "preload"

    # Regions

    def _backup(self, has_cpu: bool, has_disk: bool, backend: Optional[str]) -> Backup:
        if backend is not None and not has_cpu:
            raise ValueError("cpu_backup_backend requires enable_cpu_backup=True")
        if has_cpu and has_disk:
            raise AssertionError("enable_cpu_backup and enable_disk_backup are mutually exclusive")
        if has_disk:
            os.makedirs(self._folder, exist_ok=True)
            return Backup.FILE
        backend = backend or self._config.backend
        if backend not in _BACKENDS:
            raise ValueError(f'cpu_backup_backend must be "pinned" or "mmap", not {backend!r}')
        return _BACKENDS[backend] if has_cpu else Backup.NONE

    @contextlib.contextmanager
    def region(self, tag: str = _DEFAULT_TAG, enable_cpu_backup: bool = False, enable_disk_backup: bool = False,
               cpu_backup_backend: Optional[str] = None) -> Iterator[None]:
        """Memory that this thread requests inside can be paused."""
        backup = self._backup(enable_cpu_backup, enable_disk_backup, cpu_backup_backend)
        backend = cpu_backup_backend or self._config.backend
        with self._config.change(is_inside=True, backend=backend), regions.of_device().open(_tag(tag), backup):
            yield

    @contextlib.contextmanager
    def cuda_graph(self, cuda_graph: Any, pool: Any = None, stream: Any = None, capture_error_mode: str = "global",
                   tag: str = _DEFAULT_TAG, enable_cpu_backup: bool = False,
                   cpu_backup_backend: Optional[str] = None) -> Iterator[None]:
        """torch.cuda.graph(), with the graph's memory pausable."""
        backup = self._backup(enable_cpu_backup, False, cpu_backup_backend)
        with regions.graph_of(cuda_graph, _tag(tag), backup, pool=pool, stream=stream, capture_error_mode=capture_error_mode):
            yield

    @contextlib.contextmanager
    def disable(self) -> Iterator[None]:
        """Inside a region: memory that this thread requests is not paused, and goes back to the device at the end."""
        if not self._config.is_inside:
            raise AssertionError("disable() should be called only inside a region")
        with self._config.change(is_inside=False), regions.of_device().outside():
            yield

    def _tag_all(self) -> None:
        """All memory of the process has the tag "default" from now on."""
        backup = self._backup(_is_set("TMS_INIT_ENABLE_CPU_BACKUP"), _is_set("TMS_INIT_ENABLE_DISK_BACKUP"), None)
        wrong = _needed_shim().tidemark_torch_tag_all(_tag(_DEFAULT_TAG).encode(), ctypes.c_uint32(backup))
        if wrong is not None:
            raise RuntimeError(wrong.decode(errors="replace"))

    # Pausing

    def pause(self, tag: Optional[str] = None) -> None:
        """Gives the memory of a tag, or of all tags, back to the device. A tensor that is made in a paused region resumes it."""
        for name in _tags(tag):
            with contextlib.suppress(KeyError):  # nothing has this tag
                regions.park(name, folder=self._folder)

    def resume(self, tag: Optional[str] = None) -> None:
        """Takes the memory again, at the same addresses."""
        for name in _tags(tag):
            with contextlib.suppress(KeyError):
                regions.unpark(name, wait=True, keep_backup=self._retains)

    def get_cpu_backup(self, x: Any, zero_copy: bool = False) -> Any:
        """What a tensor had when it was paused, in host memory; None if there is no such backup.

        With zero_copy it is the backup itself, which ends with the next pause() or resume().
        """
        import torch

        if not x.is_cuda or not x.is_contiguous():
            raise AssertionError("the tensor must be contiguous, and on a GPU")
        try:
            address = regions.of_device(x.device).cache.read_parked(x.data_ptr(), x.nbytes, None)
        except TidemarkError as error:
            if error.status not in ("TIDE_ERR_ARGUMENT", "TIDE_ERR_HANDLE", "TIDE_ERR_STATE"):
                raise
            address = None
        if address is None:
            return None
        data = (ctypes.c_uint8 * x.nbytes).from_address(address)
        tensor = torch.frombuffer(data, dtype=torch.uint8).view(x.dtype).view(x.shape)
        return tensor if zero_copy else tensor.clone()

    # Settings

    @property
    def enabled(self) -> bool:
        """For compatibility: always true."""
        return True

    @property
    def hook_mode(self) -> str:
        """Accepted, without an effect."""
        return self._mode

    @hook_mode.setter
    def hook_mode(self, mode: str) -> None:
        if mode not in ("preload", "torch"):
            raise ValueError(f'hook_mode must be "preload" or "torch", not {mode!r}')
        self._mode = mode

    @property
    def retain_cpu_backup(self) -> bool:
        """Do backups stay in host memory after resume()?"""
        return self._retains

    @retain_cpu_backup.setter
    def retain_cpu_backup(self, value: bool) -> None:
        self._retains = bool(value)

    @property
    def memory_margin_bytes(self) -> int:
        """How much of the current device, and of those in use, this process leaves free."""
        raise NotImplementedError("memory_margin_bytes can only be set")

    @memory_margin_bytes.setter
    def memory_margin_bytes(self, value: int) -> None:
        import torch

        for index in {torch.cuda.current_device(), *(each.index for each in regions.served())}:
            total = torch.cuda.mem_get_info(index)[1]
            torch.cuda.set_per_process_memory_fraction(max(0.0, 1 - value / total), index)

    def set_disk_backup_dir(self, path: str) -> None:
        """Where files for enable_disk_backup are made. They have no name, so that nothing is left behind."""
        os.makedirs(path, exist_ok=True)
        self._folder = path


@contextlib.contextmanager
def configure_subprocess() -> Iterator[None]:
    """Processes that are started inside use Tidemark's memory."""
    before = os.environ.get("TIDEMARK_TORCH")
    os.environ["TIDEMARK_TORCH"] = "tide"
    try:
        yield
    finally:
        if before is None:
            del os.environ["TIDEMARK_TORCH"]
        else:
            os.environ["TIDEMARK_TORCH"] = before


install("tide")
torch_memory_saver = TorchMemorySaver()
if _is_set("TMS_INIT_ENABLE"):
    torch_memory_saver._tag_all()
