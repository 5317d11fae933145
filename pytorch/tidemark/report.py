# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""The diagnosis, made by the tidemark command."""
from __future__ import annotations

import html
import json
from typing import Any, Optional

from . import command
from .sizes import size_text
from .stacks import Trace

SHOWN = 10
FIGURES = (("peak allocated", "peak_allocated"), ("peak reserved", "peak_reserved"),
           ("fragmentation cost", "fragmentation_cost"))


class Report(dict):  # type: ignore[type-arg]
    """What `tidemark report --json` prints, as a dict; tidemark(1) lists the keys. Readable when it is printed or shown in a
    notebook."""

    def words(self) -> str:
        """The finding and the advice."""
        return " ".join(str(self[key]) for key in ("finding", "advice") if self.get(key))

    def figures(self) -> list[tuple[str, str]]:
        """The main figures: a name and a size each."""
        return [(name, size_text(self[key])) for name, key in FIGURES if isinstance(self.get(key), int)]

    def sites(self) -> list[tuple[str, str]]:
        """The call sites that hold the most memory at the peak, each after its size."""
        return [(size_text(row["bytes"]), str(row["call_site"])) for row in self.get("call_sites", [])[:SHOWN]]

    def __str__(self) -> str:
        lines = [self.words(), "", *(f"{name:<20} {size:>12}" for name, size in self.figures())]
        if self.sites():
            lines += ["", "at the peak of allocated memory:", *(f"{size:>12}  {site}" for size, site in self.sites())]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """For notebooks. Texts come from the file, so all are escaped."""
        rows = [*self.figures(), *((site, size) for size, site in self.sites())]
        cells = "".join(f'<tr><td style="text-align:left">{html.escape(name)}</td><td>{html.escape(size)}</td></tr>'
                        for name, size in rows)
        return f"<p>{html.escape(self.words())}</p><table>{cells}</table>"


def of(trace: Trace, name: str, device: Optional[int]) -> Report:
    """Runs the command on the trace."""
    words = [] if device is None else ["--device", str(device)]
    answer: dict[str, Any] = json.loads(command.ask(trace, name, "report", "--json", *words))
    return Report(answer)
