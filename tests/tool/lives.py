# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""The life of every block of a recording, by the oracle."""
from __future__ import annotations

from typing import Any

import snapshot as reference
import view_page


class Lives(reference.Run):
    """Also notes the life of every block: begin, release and end as positions, address, size and so on."""

    def begin(self, before: reference.Before) -> None:
        super().begin(before)
        self.lives: list[list[Any]] = []
        self.open: dict[int, list[Any]] = {}
        for block in self.layout.live.values():
            self.start(block, 0, 0 if block.is_pending else None)

    def start(self, block: reference.Block, begin: int, released: int | None) -> None:
        life = [begin, released, None, block.address, block.size, block.requested, block.stream, block.stack]
        self.lives.append(life)
        self.open[block.address] = life

    def follow(self, at: int, entry: reference.Entry) -> None:
        super().follow(at, entry)
        action = entry["action"]
        if action == "alloc":
            self.start(self.layout.live[entry["addr"]], at + 1, None)
        elif action == "free_requested":
            self.open[entry["addr"]][1] = at + 1
        elif action == "free_completed":
            life = self.open.pop(entry["addr"])
            life[2] = at + 1
            life[1] = at + 1 if life[1] is None else life[1]

    def rows(self, behind: int) -> list[tuple[Any, ...]]:
        """Begin, release and end of each block; address, bytes, requested bytes, stream, frames; `behind` is the
        position after the last."""
        return [(life[0], behind if life[1] is None else life[1], behind if life[2] is None else life[2], *life[3:7],
                 list(life[7])) for life in self.lives]


def rows_of(device: view_page.Device, blocks: list[view_page.Block]) -> list[tuple[Any, ...]]:
    """The same about blocks of a page."""
    behind = device.entries + 1
    return [(block.begin, block.released(behind), block.ended(behind), device.address(block), block.bytes,
             block.bytes - block.slack, int(device.facts["streams"][block.stream]), device.frames(block.stack))
            for block in blocks]
