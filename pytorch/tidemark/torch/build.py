# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Builds the shim against the installed PyTorch, once for each version.

The result is kept in a cache, under a name that depends on all its inputs. The cache must be closed to others: see
trust.py.
"""
from __future__ import annotations

import atexit
import functools
import glob
import hashlib
import os
import pathlib
import pwd
import shutil
import subprocess
import sys
import tempfile
from typing import Any, Optional

from . import library, trust


def home_folder() -> Optional[str]:
    """The home folder: HOME, or that of the user database; None if neither is an absolute path."""
    home = os.environ.get("HOME", "")
    if not os.path.isabs(home):
        try:
            home = pwd.getpwuid(os.geteuid()).pw_dir
        except KeyError:
            return None
    return home if os.path.isabs(home) else None


@functools.lru_cache(maxsize=None)
def private_folder() -> str:
    """A folder for this process alone, which is removed at its exit."""
    folder = tempfile.mkdtemp(prefix="tidemark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def cache_folder() -> pathlib.Path:
    """Where shims are kept: TIDEMARK_CACHE, or the user's cache, or a folder for this process alone."""
    wanted = os.environ.get("TIDEMARK_CACHE")
    if wanted:
        return pathlib.Path(os.path.abspath(wanted))
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        home = home_folder()
        base = os.path.join(home, ".cache") if home else private_folder()
    return pathlib.Path(base) / "tidemark"


def compiler() -> Optional[str]:
    """The C++ compiler: CXX, or the first that is installed."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "c++", "clang++"]
    return next((path for path in map(shutil.which, names) if path), None)


def cuda_include() -> pathlib.Path:
    """The folder of CUDA's headers: of a toolkit, or of NVIDIA's packages for Python."""
    nvcc = shutil.which("nvcc")
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"),
             str(pathlib.Path(nvcc).resolve().parent.parent) if nvcc else None, "/usr/local/cuda"]
    folders = [os.path.join(root, "include") for root in roots if root]
    for entry in sys.path:
        folders += sorted(glob.glob(os.path.join(entry, "nvidia", "*", "include")))
    for folder in folders:
        if os.path.exists(os.path.join(folder, "cuda_runtime_api.h")):
            return pathlib.Path(folder)
    raise library.NotFound("cuda_runtime_api.h was not found; set CUDA_HOME to the folder of the CUDA toolkit")


def loaded_file(part: str) -> Optional[str]:
    """A library that this process has loaded and whose name contains `part`."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            path = line.rstrip("\n").split(" ")[-1]
            if part in os.path.basename(path) and os.path.exists(path):
                return path
    return None


def command_line(torch: Any, cxx: str, tidemark: pathlib.Path, out: str) -> list[str]:
    """The command that compiles the shim, with the ABI of the installed PyTorch."""
    root = pathlib.Path(torch.__file__).parent
    headers = [root / "include", root / "include" / "torch" / "csrc" / "api" / "include", cuda_include()]
    sources = library.shim_sources()
    runtime = loaded_file("libcudart.so")
    # The C++ library that is already loaded: the locales of a second, static one would not be initialised.
    cxx_library = loaded_file("libstdc++.so")
    return [
        cxx, "-O2", "-std=c++17", "-fPIC", "-shared", "-fvisibility=hidden", "-o", out,
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        *[part for folder in headers for part in ("-isystem", str(folder))],
        f"-I{library.include_folder()}", f"-I{sources[0].parent}", *map(str, sources),
        f"-L{root / 'lib'}", f"-Wl,-rpath,{root / 'lib'}", f"-Wl,-rpath,{tidemark.parent}",
        "-Wl,--no-as-needed", "-lc10", "-lc10_cuda", "-ltorch_cpu", "-ltorch_cuda", str(tidemark),
        *([runtime] if runtime else ["-lcudart"]), *([cxx_library] if cxx_library else []), "-lpthread",
    ]


def fingerprint(torch: Any, cxx: str, command: list[str]) -> str:
    """A hash of everything that the shim depends on."""
    digest = hashlib.sha256()
    version = subprocess.run([cxx, "--version"], capture_output=True, text=True, check=False).stdout
    for text in (torch.__version__, str(torch.version.git_version), version, *command):
        digest.update(text.encode() + b"\0")
    folder = library.shim_sources()[0].parent
    files = [*sorted(folder.glob("shim*")), *sorted((library.include_folder() / "tidemark").glob("*.h"))]
    for path in files:
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def shim(torch: Any, tidemark: pathlib.Path) -> pathlib.Path:
    """The shim for this PyTorch, built if it does not exist yet.

    Raises library.NotFound, with the compiler's output, if it cannot be built, or if others can write to its folder.
    """
    cxx = compiler()
    if cxx is None:
        raise library.NotFound("no C++ compiler was found")
    name = fingerprint(torch, cxx, command_line(torch, cxx, tidemark, "OUT"))
    path = cache_folder() / f"torch-{torch.__version__}-{name}" / "tidemark_shim.so"
    folder = trust.open_folder(str(path.parent), own=2)
    try:
        if not trust.has_file(folder, path.name):
            compile_to(path, torch, cxx, tidemark)
    finally:
        os.close(folder)
    return path


def compile_to(path: pathlib.Path, torch: Any, cxx: str, tidemark: pathlib.Path) -> None:
    """Compiles the shim, and moves it into place when it is complete."""
    handle, built = tempfile.mkstemp(suffix=".so", dir=path.parent)
    os.close(handle)
    try:
        done = subprocess.run(command_line(torch, cxx, tidemark, built), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise library.NotFound(f"the shim does not compile against torch {torch.__version__}:\n{done.stderr}")
        os.chmod(built, 0o700)  # the linker created a new file with the mode of the umask
        os.replace(built, path)  # a concurrent build produces the same file
    finally:
        if os.path.exists(built):
            os.unlink(built)
