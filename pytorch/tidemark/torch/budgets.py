# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Who may have how much of a device, and who gives way.

    tidemark.torch.budget({"model": {"limit": "24GiB", "yields": True, "constant": True}})
    for number, layer in enumerate(model.layers):
        with tidemark.torch.region(f"model/{number}"):
            layer.cuda()                                     # what does not fit is parked
        tidemark.torch.use_in(layer, f"model/{number}")      # comes back when the layer computes

See docs/budget.md. Limits hold with both policies; memory gives way with the policy `tide`.
"""
from __future__ import annotations

import contextlib
import threading
from typing import Any, Callable, Iterator, Mapping, Optional

from ..device import PressureObserver
from .regions import Regions, of_device

__all__ = ["ModuleUse", "PressureObserver", "budget", "on_pressure", "use", "use_in"]


def budget(budgets: Mapping[str, Optional[Mapping[str, Any]]], *, device: Any = None) -> None:
    """Changes what tags of a device may have: budget({"model": {"limit": "24GiB", "yields": True}, "old": None}).

    limit        no request makes the tag, with those below it, exceed it; a request beyond it raises torch.OutOfMemoryError
    soft_limit   above it, memory of the tag gives way before that of others
    guarantee    what others never take, and leave free for the tag
    priority     among tags that yield, the lowest goes first
    yields       its tensors may be parked while they are not in use: see use()
    constant     its tensors do not change once they are filled, so they are copied away only once

    Sizes are bytes or texts. What is not given stays as it is, and a limit of None ends it. None instead of a budget takes
    it away. A tag without a budget has priority, yields and constant from the nearest tag above it that has one. If a
    limit is below what is there, memory gives way at once as far as it can. Raises ValueError, and then nothing has changed.
    """
    of_device(device).change_budgets(budgets)


class _Uses:
    """Uses of one tag. Each begins and ends on the stream that is current then."""

    def __init__(self, regions: Regions, tag: str) -> None:
        self._regions, self._tag = regions, tag

    def _stream(self) -> int:
        import torch

        stream: int = torch.cuda.current_stream(self._regions.index).cuda_stream
        return stream

    def begin(self) -> None:
        self._regions.cache.use(self._tag, self._stream())

    def end(self) -> None:
        self._regions.cache.done(self._tag, self._stream())


@contextlib.contextmanager
def use(tag: str, *, device: Any = None) -> Iterator[None]:
    """Work that is queued inside may use tensors of a tag that yields, or of tags below it.

    If they are away, they come back, and others give way for them. Only the current stream waits, on the device. Nothing
    of the tag gives way inside. Raises TidemarkError if there is no room.
    """
    uses = _Uses(of_device(device), tag)
    uses.begin()
    try:
        yield
    finally:
        uses.end()


class ModuleUse:
    """Made by use_in()."""

    def __init__(self, module: Any, uses: _Uses) -> None:
        self._uses = uses
        self._open = threading.local()  # the number of uses that this thread has begun
        self._hooks = (module.register_forward_pre_hook(self._before, prepend=True),
                       module.register_forward_hook(self._after, always_call=True))

    def _before(self, _module: Any, _inputs: Any) -> None:
        self._uses.begin()
        self._open.count = getattr(self._open, "count", 0) + 1

    def _after(self, _module: Any, _inputs: Any, _output: Any) -> None:
        if getattr(self._open, "count", 0) > 0:  # PyTorch also calls it if _before() has failed
            self._open.count -= 1
            self._uses.end()

    def remove(self) -> None:
        """Ends it. Not to be called while the module computes."""
        for hook in self._hooks:
            hook.remove()


def use_in(module: Any, tag: str, *, device: Any = None) -> ModuleUse:
    """From now on each forward of a module is a use() of a tag. remove() of the result ends that.

    Hooks that the module has already run inside the use. Those that are registered later may run after it. A backward needs a
    use() of its own around it. Raises KeyError if no memory has the tag.
    """
    regions = of_device(device)
    if not regions.has(tag):
        raise KeyError(f"no memory has the tag {tag!r}")
    return ModuleUse(module, _Uses(regions, tag))


def on_pressure(function: Callable[[int, str, str], Any], *, device: Any = None) -> PressureObserver:
    """Calls function(wanted_bytes, tag, limited_tag) before a request fails for lack of memory; it is tried again afterwards.

    tag           of the tensor that is made, or of the tensors that come back; "" without one
    limited_tag   the tag whose limit is in the way; "" if the device has no memory left

    The function runs on the thread of the request. It may free tensors, park tags, change budgets and make tensors. If it
    raises, that is a warning. remove() of the result ends the calls.
    """
    return of_device(device).cache.observe_pressure(function)
