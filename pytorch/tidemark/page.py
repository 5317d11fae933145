# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Recordings in a notebook: the page of `tidemark view`, and a small picture of `tidemark plot`."""
from __future__ import annotations

import base64
import html
import os
from typing import Union

from . import abi, command, files
from .sizes import size_text
from .stacks import Trace

INLINE_MOST = 50_000_000  # bytes of a page in a notebook, which keeps it twice: in its file and in the browser
THEMES = ("auto", "light", "dark")
PICTURE_WIDTH, PICTURE_HEIGHT = 720, 240


class Page:
    """The page of a recording. It is shown if it is the last value of a notebook's cell, and save() writes it to a file.

    data     the HTML file, as bytes
    height   of the frame in a notebook, in pixels
    theme    "light" or "dark"; "auto" follows the notebook, or the browser if the notebook does not say
    """

    def __init__(self, data: bytes, name: str, height: int = 760, theme: str = "auto") -> None:
        if theme not in THEMES:
            raise ValueError(f'theme must be "auto", "light" or "dark", not {theme!r}')
        if height <= 0:
            raise ValueError(f"height must be above 0, not {height}")
        self.data = data
        self.name = name
        self.height = height
        self.theme = theme

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes the page to a file, which a browser opens without network. An old file is replaced whole, or stays."""
        with files.saved(path) as file:
            file.write(self.data)

    def __repr__(self) -> str:
        return f"<Page of {self.name}: {size_text(len(self.data))}>"

    def _repr_html_(self) -> str:
        """A frame with the whole page in it. It may run the page's scripts, and has no access to the notebook."""
        if len(self.data) > INLINE_MOST:
            return (f"<p>The page of {html.escape(self.name)} has {size_text(len(self.data))}, which is too much for a "
                    "notebook. <code>.save(\"page.html\")</code> writes it to a file, and "
                    "<code>view(page_size=50_000_000)</code> makes a smaller one.</p>")
        scheme = "" if self.theme == "auto" else f"color-scheme:{self.theme};"
        # In ASCII, because the page allows its own script by a hash, which must not depend on the encoding around it.
        text = html.escape(self.data.decode("utf-8", errors="replace")).encode("ascii", "xmlcharrefreplace").decode()
        return (f'<iframe title="{html.escape(self.name)}" sandbox="allow-scripts" allow="clipboard-write" loading="lazy" '
                f'style="width:100%;height:{self.height}px;border:0;{scheme}" srcdoc="{text}"></iframe>')


def page_of(trace: Trace, name: str, page_size: int, height: int, theme: str) -> Page:
    """The page that the command makes."""
    empty = Page(b"", name, height, theme)
    empty.data = command.ask(trace, name, "view", "--output", "-", "--page-size", str(page_size))
    return empty


def picture_of(trace: Trace, name: str, device: int, words: str) -> str:
    """A small picture of memory over time under a sentence, as HTML. As an image, its styles and texts stay apart."""
    picture = command.ask(trace, name, "plot", "--svg", "--device", str(device), "--width", str(PICTURE_WIDTH), "--height",
                          str(PICTURE_HEIGHT))
    if not picture.lstrip().startswith((b"<svg", b"<?xml")):
        raise abi.TidemarkError("tidemark plot printed no picture")
    coded = base64.b64encode(picture).decode()
    return (f'<div style="max-width:{PICTURE_WIDTH}px"><p>{html.escape(words)}</p><img style="width:100%" '
            f'alt="memory over time" src="data:image/svg+xml;base64,{coded}"></div>')
