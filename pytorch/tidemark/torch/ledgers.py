# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Processes that share a device by a ledger.

    tidemark.torch.join_ledger("gpu0", total="64GiB", guarantee="16GiB")

or, for unmodified programs, TIDEMARK_LEDGER="gpu{device},total=64GiB,guarantee=16GiB" in the environment. See docs/ledger.md.
"""
from __future__ import annotations

import ctypes
import dataclasses
import math
import os
import re
from typing import Any, Callable, Optional, Union

from ..abi import TidemarkError
from ..device import Quota
from ..sizes import size_bytes
from .regions import of_device

__all__ = ["join_ledger", "leave_ledger"]

VARIABLE = "TIDEMARK_LEDGER"
_MOST_PRIORITY = 1000  # TIDE_QUOTA_PRIORITY


def _is_off() -> bool:
    from . import _is_off as is_off

    return is_off()


def join_ledger(name: str, *, total: Union[int, str, None] = None, guarantee: Union[int, str] = 0,
                limit: Union[int, str, None] = None, priority: int = 0, wait: float = 1.0, member: Optional[str] = None,
                device: Any = None) -> None:
    """Lets a device share its memory with other processes of this user that join the same ledger.

    name        of the ledger: a word, such as "gpu0", or an absolute path
    total       what all members together may have. It counts if the ledger is made now; without it, the ledger must exist
    guarantee   what this process can always have
    limit       what it may have at most; None: the total
    priority    members with a lower one are asked first to give memory back
    wait        the seconds that a request waits for others at most, before it runs out of memory
    member      a name for people, as `tidemark ledger` shows it

    Sizes are bytes or texts. What the process has already counts, and must fit. Raises ValueError for a wrong value, and
    RuntimeError if the ledger cannot be joined. Does nothing if Tidemark is switched off.
    """
    quota = _quota(name, {"total": total, "guarantee": guarantee, "limit": limit, "priority": priority, "wait": wait,
                          "member": member})
    if _is_off():
        return
    try:
        of_device(device).cache.join_ledger(quota)
    except TidemarkError as error:
        if error.status == "TIDE_ERR_ARGUMENT":
            raise ValueError(str(error)) from error
        raise


def leave_ledger(device: Any = None) -> None:
    """Leaves the ledger of a device, also one of TIDEMARK_LEDGER. Without one nothing happens."""
    if not _is_off():
        of_device(device).cache.leave_ledger()


# ---------------------------------------------------------------------------------------------------
# Values


def _size(given: Any) -> int:
    return 0 if given is None else size_bytes(given)


def _priority(given: Any) -> int:
    number = int(given) if isinstance(given, str) and re.fullmatch("-?[0-9]+", given) else given
    if isinstance(number, bool) or not isinstance(number, int) or abs(number) > _MOST_PRIORITY:
        raise ValueError(f"{given!r} is not a number between -{_MOST_PRIORITY} and {_MOST_PRIORITY}")
    return number


def _wait_ns(given: Any) -> int:
    try:
        seconds = float(given)
    except (TypeError, ValueError):
        seconds = math.nan
    if not 0 <= seconds < 2**33:
        raise ValueError(f"{given!r} is not a number of seconds")
    return round(seconds * 1e9)


def _member(given: Any) -> Optional[str]:
    if given is not None and (not isinstance(given, str) or given == "" or "\0" in given):
        raise ValueError(f"{given!r} is not a name")
    return given


_VALUES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "total": ("total", _size),
    "guarantee": ("guarantee", size_bytes),
    "limit": ("limit", lambda given: None if given is None else size_bytes(given)),
    "priority": ("priority", _priority),
    "wait": ("wait_ns", _wait_ns),
    "member": ("member", _member),
}


def _value(name: str, given: Any) -> Any:
    """A value as the library takes it. Raises ValueError that names it."""
    try:
        return _VALUES[name][1](given)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _check_name(name: Any) -> None:
    is_path = isinstance(name, str) and name.startswith("/") and not name.endswith("/") and "\0" not in name
    if not is_path and not (isinstance(name, str) and re.fullmatch("[A-Za-z0-9._-]{1,64}", name)):
        raise ValueError(f"{name!r} is no name of a ledger: up to 64 letters, digits, '-', '_' and '.', or an absolute path")


def _quota(name: str, given: dict[str, Any]) -> Quota:
    """The arguments of join_ledger() as the library takes them. Raises ValueError."""
    _check_name(name)
    quota = Quota(name, **{_VALUES[each][0]: _value(each, value) for each, value in given.items()})
    if quota.limit is not None and quota.guarantee > quota.limit:
        raise ValueError(f"a guarantee of {quota.guarantee} bytes is above the limit of {quota.limit} bytes")
    return quota


# ---------------------------------------------------------------------------------------------------
# The environment

_DEVICE, _UUID = "{device}", "{uuid}"
_SOME_UUID = "00000000-0000-0000-0000-000000000000"


def _filled(name: str, index: object, uuid: str) -> str:
    return name.replace(_DEVICE, str(index)).replace(_UUID, uuid)


def _parsed(text: str) -> Quota:
    """The quota of a text such as "gpu{device},total=64GiB,wait=0.5", whose name has its places still. Raises ValueError."""
    name, *parts = (part.strip() for part in text.split(","))
    given: dict[str, Any] = {}
    for part in parts:
        key, mark, value = (each.strip() for each in part.partition("="))
        if not mark or key not in _VALUES:
            raise ValueError(f"{part!r} is not one of {', '.join(_VALUES)} with a value, as in total=64GiB")
        if key in given:
            raise ValueError(f"{part!r} is the second {key}")
        given[key] = value
    return dataclasses.replace(_quota(_filled(name, 0, _SOME_UUID), given), ledger=name)


def from_environment() -> Optional[Quota]:
    """What TIDEMARK_LEDGER says; None if it says nothing. Raises ValueError that names the variable and the part."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return None
    try:
        return _parsed(text)
    except ValueError as error:
        raise ValueError(f"{VARIABLE} is {text!r}: {error}") from error


def _uuid(torch: Any, index: int) -> str:
    found = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    if found is None:
        raise ValueError(f"{VARIABLE} has {_UUID}, but this PyTorch does not tell the uuid of a device; use {_DEVICE}")
    return str(found)


def _of_devices(torch: Any, quota: Quota) -> list[Quota]:
    """The quota of each visible device."""
    count: int = torch.cuda.device_count()
    if count > 1 and _filled(quota.ledger, "", "") == quota.ledger:
        raise ValueError(f"{VARIABLE} names one ledger, {quota.ledger!r}, but {count} devices are visible: "
                         f"write {_DEVICE} or {_UUID} into the name")
    uuids = [_uuid(torch, index) if _UUID in quota.ledger else "" for index in range(count)]
    return [dataclasses.replace(quota, ledger=_filled(quota.ledger, index, uuid)) for index, uuid in enumerate(uuids)]


def join_when_used(torch: Any, shim: Any, quota: Quota) -> None:
    """Each device joins when it is used for the first time, and its requests fail until it has joined.

    PyTorch calls queued functions when it initialises CUDA, and again at the next attempt if one of them has raised.
    """
    announced: set[int] = set()

    def announce() -> None:
        for index, own in enumerate(_of_devices(torch, quota)):
            if index not in announced:
                wrong: Optional[bytes] = shim.tidemark_torch_join(index, ctypes.byref(own.options()))
                if wrong is not None:
                    raise RuntimeError(f"{VARIABLE}: {wrong.decode(errors='replace')}")
                announced.add(index)

    torch.cuda._lazy_call(announce)
