# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Sizes in words."""
from __future__ import annotations

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
