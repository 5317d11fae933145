# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Runs the tidemark command on a recording in memory."""
from __future__ import annotations

import ctypes
import os
import pathlib
import re
import subprocess
import tempfile

from . import abi, files, library
from .stacks import Trace

NAME_MOST = 100  # letters of a name


def find() -> pathlib.Path:
    """The tidemark command: beside the library, or where it is installed. Raises TidemarkError if there is none."""
    try:
        beside = library.find().parent
    except library.NotFound as error:
        raise abi.TidemarkError(f"Tidemark's C library cannot be used: {error}") from error
    for path in (beside / "tidemark", beside.parent / "bin" / "tidemark", beside.parent.parent / "bin" / "tidemark"):
        if path.is_file() and os.access(path, os.X_OK):
            return path
    raise abi.TidemarkError(f"this needs the tidemark command, which is not in {beside}. `./dev install` in Tidemark's "
                            "source tree installs both; TIDEMARK_LIB then names the libtidemark.so to use")


def ask(trace: Trace, name: str, verb: str, *words: str) -> bytes:
    """What a verb prints about a recording. It gets the recording as a temporary file; `name` is how it calls it."""
    program = str(find())
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, _file_name(name))
        with open(files.open_own(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb", buffering=0) as file:
            sink = trace.library.tide_sink_file(file.fileno())
            trace.library.tide_trace_write(trace.pointer, abi.NATIVE, ctypes.byref(sink))
        done = subprocess.run([program, verb, os.path.basename(path), *words], cwd=folder, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode not in (0, 1) or not done.stdout:
        raise abi.TidemarkError(f"tidemark {verb} failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def _file_name(name: str) -> str:
    """The last part of a path, as a name that is no option and that every file system takes."""
    last = re.sub(r"[^\w.,()+@= -]", "_", os.path.basename(name), flags=re.ASCII)[-NAME_MOST:]
    return last if last.strip(".") and last[0] != "-" else f"_{last}"
