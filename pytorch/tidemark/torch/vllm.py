# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""vLLM's sleep mode on Tidemark.

vLLM finds register() by the entry point `vllm.general_plugins` of this package. Run it with TIDEMARK_TORCH=tide in the
environment, --enable-sleep-mode and --sleep-mode-backend tidemark. Where Tidemark does not serve the process, nothing changes.

vLLM puts weights and the key-value cache into memory pools by tag. With this plugin the pools are regions, so that both share
the memory of the process, and sleeping parks them. vLLM's own allocator of these pools does the same from then on: the backend
`cumem`, and releases of vLLM without backends, work as well.
"""
from __future__ import annotations

import contextlib
import importlib
from typing import Any, Iterator, Optional, Sequence, Union

from . import installation, regions

NAME = "tidemark"
TAG = "vllm"  # all tags of vLLM are below it
_DEFAULT = "default"  # vLLM's name for memory without a tag


def _serves() -> bool:
    """Does Tidemark's policy `tide` serve this process?"""
    found = installation()
    return found is not None and found.way == "class" and found.policy == "tide"


def _tag(name: str) -> str:
    return f"{TAG}/{name}"


# ---------------------------------------------------------------------------------------------------
# The interface of vLLM's allocator


@contextlib.contextmanager
def _use_memory_pool(_allocator: Any, tag: Optional[str] = None) -> Iterator[None]:
    with regions.region(_tag(tag or _DEFAULT)):
        yield


def _sleep(_allocator: Any, offload_tags: Union[Sequence[str], str, None] = None) -> None:
    """Keeps the contents of some tags in host memory, and discards the others."""
    kept = (_DEFAULT,) if offload_tags is None else (offload_tags,) if isinstance(offload_tags, str) else offload_tags
    for name in sorted(_names(), key=lambda each: each not in kept):  # what can fail comes first
        regions.park(_tag(name), backup="pinned" if name in kept else None)


def _wake_up(_allocator: Any, tags: Optional[Sequence[str]] = None) -> None:
    """Brings everything back, or some tags. vLLM has streams of its own, so this waits for the contents."""
    for name in _names():
        if tags is None or name in tags:
            regions.unpark(_tag(name), wait=True)


def _current_usage(_allocator: Any) -> int:
    return sum(each.cache.tag_stats(TAG)["allocated_bytes"] for each in regions.served() if each.has(TAG))


def _names() -> list[str]:
    """The tags of vLLM on all devices, without the part that all share."""
    found = {tag for each in regions.served() for tag in each.cache.tags() if tag.startswith(TAG + "/")}
    return sorted(tag[len(TAG) + 1:] for tag in found)


def _is_parked() -> bool:
    return any(each.cache.tag_stats(TAG)["parked_pool_count"] for each in regions.served() if each.has(TAG))


# ---------------------------------------------------------------------------------------------------
# The backend


class _Backend:
    """The mechanism of sleeping. vLLM's base class is added when vLLM is there."""

    _state = "RUNNING"

    def suspend(self, level: int = 1) -> None:
        """Level 1 keeps the weights in host memory; level 2 discards everything."""
        try:
            _sleep(self, ("weights",) if level == 1 else ())
        except BaseException:
            self._state = "SUSPENDED" if _is_parked() else "RUNNING"
            raise
        self._state = "SUSPENDED"

    def resume(self, tags: Optional[Sequence[str]] = None) -> None:
        """Brings everything back, or some tags. The state is RUNNING when nothing is parked any more."""
        self._state = "RESUMING"
        try:
            _wake_up(self, tags)
        finally:
            self._state = "SUSPENDED" if _is_parked() else "RUNNING"

    def state(self) -> str:
        """RUNNING, SUSPENDED or RESUMING."""
        return self._state

    @classmethod
    def is_supported(cls) -> bool:
        """Does Tidemark serve this process?"""
        return _serves()

    @classmethod
    def preserves_communicators(cls) -> bool:
        """Their memory is not parked."""
        return True

    @classmethod
    def preserves_compiled_artifacts(cls) -> bool:
        """Addresses do not change, so that compiled code stays valid."""
        return True

    @classmethod
    def preserves_graphs_with_communicators(cls) -> bool:
        """Buffers that NCCL registered for a graph go stale when their memory changes: see docs/park.md."""
        return False

    @classmethod
    def supports_durable_storage(cls) -> bool:
        """Backups end with the process."""
        return False


def __getattr__(name: str) -> Any:
    """TidemarkBackend, with vLLM's base class, when vLLM asks for it."""
    if name != "TidemarkBackend":
        raise AttributeError(name)
    base = importlib.import_module("vllm.device_allocator.sleep_mode_backend").SleepModeBackend
    made = type("TidemarkBackend", (_Backend, base), {"__module__": __name__, "__doc__": "vLLM's memory on Tidemark."})
    globals()[name] = made
    return made


def _replace_pools() -> None:
    """Lets vLLM's memory pools be regions."""
    allocator = importlib.import_module("vllm.device_allocator.cumem").CuMemAllocator
    allocator.use_memory_pool = _use_memory_pool
    allocator.sleep = _sleep
    allocator.wake_up = _wake_up
    allocator.get_current_usage = _current_usage


def register() -> None:
    """Registers the backend, and lets vLLM's memory pools be regions. Called by vLLM; a second call changes nothing."""
    with contextlib.suppress(ModuleNotFoundError):  # an older vLLM has no backends
        factory = importlib.import_module("vllm.device_allocator.sleep_mode_backend").SleepModeBackendFactory
        if NAME not in factory._registry:
            factory.register_backend(NAME, __name__, "TidemarkBackend")
    if _serves():
        _replace_pools()
