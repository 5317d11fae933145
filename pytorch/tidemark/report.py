# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""The diagnosis, made by the tidemark command."""
from __future__ import annotations

import ctypes
import html
import json
import os
import pathlib
import subprocess
import tempfile
from typing import Any, Optional

from . import abi, library
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


def command() -> pathlib.Path:
    """The tidemark command: beside the library, or where it is installed. Raises TidemarkError if there is none."""
    try:
        beside = library.find().parent
    except library.NotFound as error:
        raise abi.TidemarkError(f"Tidemark's C library cannot be used: {error}") from error
    for path in (beside / "tidemark", beside.parent / "bin" / "tidemark", beside.parent.parent / "bin" / "tidemark"):
        if path.is_file() and os.access(path, os.X_OK):
            return path
    raise abi.TidemarkError(f"report() needs the tidemark command, which is not in {beside}. `./dev install` in Tidemark's "
                            "source tree installs both; TIDEMARK_LIB then names the libtidemark.so to use")


def of(trace: Trace, device: Optional[int]) -> Report:
    """Runs the command on the trace, which it gets as a file without a name."""
    words = [str(command()), "report", "-", "--json"]
    words += [] if device is None else ["--device", str(device)]
    with tempfile.TemporaryFile() as file:
        sink = trace.library.tide_sink_file(file.fileno())
        trace.library.tide_trace_write(trace.pointer, abi.NATIVE, ctypes.byref(sink))
        file.seek(0)
        done = subprocess.run(words, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode not in (0, 1) or not done.stdout:
        raise abi.TidemarkError(f"tidemark report failed: {done.stderr.decode(errors='replace').strip()}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return Report(answer)
