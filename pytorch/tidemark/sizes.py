# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Sizes in words."""
from __future__ import annotations

import decimal
import re
from typing import Union

UNITS = ("KiB", "MiB", "GiB", "TiB")


def size_text(count: int) -> str:
    """A number of bytes as the tidemark command prints it, such as 2.31 GiB. What would be 1024.00 of a unit is 1.00 of the
    next."""
    if count < 1024:
        return f"{count} B"
    scale = 1024
    for unit in UNITS:
        if unit == UNITS[-1] or count < 1024 * scale - scale // 200:
            break
        scale *= 1024
    return f"{count / scale:.2f} {unit}"


def size_bytes(size: Union[int, str]) -> int:
    """The bytes of a size such as 4096, "24GiB", "1.5 GiB" or "800MB", with the units of the tidemark command."""
    if isinstance(size, int) and not isinstance(size, bool):
        count = size
    else:
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *(?:([kmgt])(i?b)?|b)?", size.lower()) if isinstance(size, str) else None
        if found is None or ("." in found[1] and not found[2]):
            raise ValueError(f"{size!r} is not a size, such as 4096, \"24GiB\" or \"800MB\"")
        power = "kmgt".index(found[2]) + 1 if found[2] else 0
        count = int((decimal.Decimal(found[1]) * (1000 if found[3] == "b" else 1024) ** power).to_integral_value())
    if not 0 <= count < 2**63:
        raise ValueError(f"{size!r} is not a size in bytes")
    return count
