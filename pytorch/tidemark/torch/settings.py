# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""The settings of the allocator: which variables of the environment name them, and which of them win.

From the weakest to the strongest, key by key: PYTORCH_ALLOC_CONF, PYTORCH_CUDA_ALLOC_CONF, TIDEMARK_CONF, TIDEMARK_TORCH,
the arguments of install().
"""
from __future__ import annotations

import ctypes
import dataclasses
import os
from typing import Optional, Union

from . import notice

Option = Union[str, int, float, bool]

OF_TORCH = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
OURS = "TIDEMARK_CONF"
SWITCH = "TIDEMARK_TORCH"
POLICIES = ("tide", "torch")
_OFF = ("off", "0", "no", "false")
_ON = ("on", "1", "yes", "true")


@dataclasses.dataclass(frozen=True)
class Switch:
    """What TIDEMARK_TORCH says."""
    is_off: bool = False
    policy: str = ""  # empty: not given
    options: dict[str, str] = dataclasses.field(default_factory=dict)


def entries(text: str) -> dict[str, str]:
    """The keys and values of a text such as "a:1,b=[2:3,4:5]"; the last of equal keys counts.

    What has no value keeps an empty one, which the library refuses by name.
    """
    parts, depth = [""], 0
    for letter in "".join(text.split()):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    found: dict[str, str] = {}
    for part in filter(None, parts):
        end = min((part.index(mark) for mark in ":=" if mark in part), default=len(part))
        found.pop(part[:end], None)
        found[part[:end]] = part[end + 1:]
    return found


def joined(given: dict[str, str]) -> str:
    """The text of keys and values."""
    return ",".join(f"{key}:{value}" for key, value in given.items())


def switch() -> Switch:
    """Reads TIDEMARK_TORCH: "off", or a policy with settings behind it, as in "tide:tide_slack=0.01,host=off".

    Raises ValueError for anything else.
    """
    text = os.environ.get(SWITCH, "").strip()
    policy, _, options = text.partition(":")
    policy = policy.strip().lower()
    if policy in _OFF:
        return Switch(is_off=True)
    if policy in ("", *_ON):
        policy = "tide" if policy else ""
    elif policy not in POLICIES:
        raise ValueError(f'{SWITCH} is {text!r}; it takes "off", or "tide" or "torch" with settings behind it, '
                         'as in "tide:tide_slack=0.01"')
    return Switch(policy=policy, options=entries(options))


def truth(name: str, value: Option) -> bool:
    """A switch as a truth value. Raises ValueError for other words."""
    word = str(value).strip().lower()
    if word not in (*_ON, *_OFF):
        raise ValueError(f'{name} must be "on" or "off", not {value!r}')
    return word in _ON


# ---------------------------------------------------------------------------------------------------
# What the library makes of a text

class _Head(ctypes.Structure):
    """The beginning of tide_device_options; the library accepts shorter structs."""
    _fields_ = [("size", ctypes.c_uint32), ("policy", ctypes.c_uint32), ("max_split_bytes", ctypes.c_uint64)]


_UNKNOWN = "there is no option"
_TOO_SHORT = "bytes does not have"  # the text is valid, but the head has no room for what it sets


def fault(tidemark: ctypes.CDLL, text: str) -> str:
    """What is wrong with a text of settings; empty if nothing is."""
    head = _Head(ctypes.sizeof(_Head), 0, 2**64 - 1)
    if tidemark.tide_device_options_parse(text.encode(), ctypes.byref(head)) == 0:
        return ""
    said = tidemark.tide_last_error().contents.text.decode(errors="replace")
    return "" if _TOO_SHORT in said else said.replace("options_parse: ", "", 1)


def known(tidemark: ctypes.CDLL, text: str, source: str) -> dict[str, str]:
    """The settings of a text that was written for PyTorch. A warning names those that only PyTorch knows."""
    given = entries(text)
    strange = [key for key, value in given.items() if _UNKNOWN in fault(tidemark, f"{key}:{value}")]
    if strange:
        notice.warn("settings-" + "+".join(strange),
                    f"tidemark: {source} has settings that have no effect here: {', '.join(strange)}", stacklevel=3)
    return {key: value for key, value in given.items() if key not in strange}


def text_in_force(tidemark: ctypes.CDLL, policy: Optional[str], options: dict[str, Option], wish: Switch) -> str:
    """All layers as one text, the policy included. Raises ValueError if a value is refused, or a key of ours."""
    layers: dict[str, str] = {}
    for name in OF_TORCH:
        layers.update(known(tidemark, os.environ.get(name, ""), name))
    layers.update(entries(os.environ.get(OURS, "")))
    layers.update(wish.options)
    layers.update({key: str(value) for key, value in options.items()})
    layers["policy"] = policy or wish.policy or layers.get("policy", "tide")
    text = joined(layers)
    wrong = fault(tidemark, text)
    if wrong:
        raise ValueError(f"{wrong} (in the settings {text!r})")
    return text
