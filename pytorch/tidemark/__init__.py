# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Tidemark, the memory system of a deep-learning runtime. For PyTorch: see tidemark.torch.

    import tidemark
    recording = tidemark.read("snapshot.pickle")     # needs no PyTorch
    print(recording.report())

docs/python.md in the source tree has a worked example. What reads recordings is imported on first use, because this
module is imported at the start of every process whose environment has TIDEMARK_TORCH.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .abi import Action, BlockState, TidemarkError
    from .page import Page
    from .peak import Block, Peak, Site
    from .recording import Device, Entries, Entry, Recording, Tag, read
    from .report import Report
    from .stacks import Frame, Note
    from .timeline import Timeline

__version__ = "0.1.0"
__all__ = ["Action", "Block", "BlockState", "Device", "Entries", "Entry", "Frame", "Note", "Page", "Peak", "Recording", "Report",
           "Site", "Tag", "TidemarkError", "Timeline", "read"]

_HOMES = {"Action": "abi", "BlockState": "abi", "TidemarkError": "abi", "Block": "peak", "Peak": "peak", "Site": "peak",
          "Page": "page", "Device": "recording", "Entries": "recording", "Entry": "recording", "Recording": "recording",
          "read": "recording", "Tag": "recording", "Report": "report", "Frame": "stacks", "Note": "stacks", "Timeline": "timeline"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
