# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""How cases say what must hold."""
from __future__ import annotations

import contextlib


def equal(got, want, what="it"):
    if got != want:
        raise AssertionError(f"{what} is {got!r}, not {want!r}")


def check(condition, text):
    if not condition:
        raise AssertionError(text)


@contextlib.contextmanager
def raises(kind, part=""):
    caught = []
    try:
        yield caught
    except kind as error:
        caught.append(str(error))
        check(part in str(error), f"the text is {error}")
    else:
        raise AssertionError(f"no {kind.__name__}")


class Skip(Exception):
    """A case cannot run on this computer; the text says why."""
