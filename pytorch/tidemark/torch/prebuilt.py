# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Builds the shim for the installed PyTorch into a folder, for a wheel that carries it.

    python -m tidemark.torch.prebuilt FOLDER

setup.py calls it for every PyTorch that is at hand. The shim gets no path of this computer: PyTorch and the C library
are loaded before it, and the loader knows them by name.
"""
from __future__ import annotations

import pathlib
import subprocess
import sys

from .. import library
from . import build


def build_into(folder: pathlib.Path) -> pathlib.Path:
    """Builds the shim; returns its path. Raises library.NotFound if that fails."""
    import torch

    tidemark, cxx = library.find(), build.compiler()
    if cxx is None:
        raise library.NotFound("no C++ compiler was found")
    path = folder / build.prebuilt_path(torch, library.load(tidemark).tide_version().decode()).name
    folder.mkdir(parents=True, exist_ok=True)
    command = [part for part in build.command_line(torch, cxx, tidemark, str(path)) if not part.startswith("-Wl,-rpath,")]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise library.NotFound(f"the shim does not compile against torch {torch.__version__}:\n{done.stderr}")
    return path


if __name__ == "__main__":
    print(build_into(pathlib.Path(sys.argv[1])))
