# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Builds the shim against the installed PyTorch, once for each version, or finds one that came with the package.

The result is kept in the cache (cache.py), under a name that depends on everything it was built from.
"""
from __future__ import annotations

import glob
import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
from typing import Any, Optional

from .. import library
from . import cache, headers

NAME = "tidemark_shim.so"
_TEXT = 4000  # of a compiler's output that is kept
# What compilers print if the system ended one of their parts, or had no room for the result.
_TRANSIENT = ("terminated program", "unable to execute command: Killed", "No space left on device")


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


def torch_includes(torch: Any) -> list[pathlib.Path]:
    """The folders of PyTorch's headers."""
    root = pathlib.Path(torch.__file__).parent
    return [root / "include", root / "include" / "torch" / "csrc" / "api" / "include"]


def standard(torch: Any) -> str:
    """The C++ standard of PyTorch's headers."""
    version = [int(number) for number in re.findall(r"\d+", torch.__version__)[:2]]
    return "c++20" if version >= [2, 13] else "c++17"


def command_line(torch: Any, cxx: str, tidemark: pathlib.Path, out: str) -> list[str]:
    """The command that compiles the shim, with the ABI of the installed PyTorch."""
    root = pathlib.Path(torch.__file__).parent
    folders = [*torch_includes(torch), cuda_include()]
    sources = library.shim_sources()
    runtime = loaded_file("libcudart.so")
    # The C++ library that is already loaded: the locales of a second, static one would not be initialised.
    cxx_library = loaded_file("libstdc++.so")
    return [
        cxx, "-O2", f"-std={standard(torch)}", "-fPIC", "-shared", "-fvisibility=hidden", "-o", out,
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        *[part for folder in folders for part in ("-isystem", str(folder))],
        f"-I{library.include_folder()}", f"-I{sources[0].parent}",
        # All sources as one unit, because PyTorch's headers take most of the time.
        *[part for source in sources for part in ("-include", str(source))], "-x", "c++", os.devnull, "-x", "none",
        f"-L{root / 'lib'}", f"-Wl,-rpath,{root / 'lib'}", f"-Wl,-rpath,{tidemark.parent}",
        "-Wl,--no-as-needed", "-lc10", "-lc10_cuda", "-ltorch_cpu", "-ltorch_cuda", str(tidemark),
        *([runtime] if runtime else ["-lcudart"]), *([cxx_library] if cxx_library else []), "-lpthread",
    ]


# ---------------------------------------------------------------------------------------------------
# Names that depend on the inputs

def _hash(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def portable_fingerprint(torch: Any, version: str) -> str:
    """A hash of what a shim depends on wherever it was built: the sources, PyTorch's headers, all versions."""
    sources = library.shim_sources()
    folders = [sources[0].parent, library.include_folder(), *reversed(torch_includes(torch))]
    try:
        found = headers.contents(sources, [library.include_folder(), *torch_includes(torch)])
    except OSError as error:
        raise library.NotFound(f"a header cannot be read: {error}") from error
    return _hash(torch.__version__, str(torch.version.git_version), str(torch.version.cuda), version,
                 str(int(torch._C._GLIBCXX_USE_CXX11_ABI)), standard(torch), platform.machine(),
                 headers.digest(found, folders))


def fingerprint(torch: Any, cxx: str, command: list[str], version: str) -> str:
    """A hash of everything that the shim depends on here: also the compiler, its arguments, and CUDA's version."""
    try:
        compiler_version = subprocess.run([cxx, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError as error:
        raise library.NotFound(f"the C++ compiler does not run: {error}") from error
    # These two headers have the version of CUDA.
    cuda = [hashlib.sha256(path.read_bytes()).hexdigest()
            for path in (cuda_include() / "cuda.h", cuda_include() / "cuda_runtime_api.h") if path.exists()]
    return _hash(portable_fingerprint(torch, version), compiler_version, *cuda, *command)


def shim_folder(torch: Any, cxx: str, tidemark: pathlib.Path, version: str) -> pathlib.Path:
    """The folder of the shim in the cache."""
    name = fingerprint(torch, cxx, command_line(torch, cxx, tidemark, "OUT"), version)
    return cache.cache_folder() / f"torch-{torch.__version__}-{name}"


# ---------------------------------------------------------------------------------------------------
# Building

def prebuilt_path(torch: Any, version: str) -> pathlib.Path:
    """Where the package has the shim for this PyTorch, if it has one."""
    return library.PACKAGE / "shim" / "prebuilt" / f"torch-{torch.__version__}-{portable_fingerprint(torch, version)}.so"


def prebuilt(torch: Any, version: str) -> Optional[pathlib.Path]:
    """The shim for this PyTorch that came with the package; None if there is none, or TIDEMARK_REBUILD is set."""
    has_any = not cache.is_rebuild() and (library.PACKAGE / "shim" / "prebuilt").is_dir()
    path = prebuilt_path(torch, version) if has_any else None
    return path if path is not None and path.exists() else None


def shim(torch: Any, tidemark: pathlib.Path, version: str = "") -> pathlib.Path:
    """The shim for this PyTorch in the cache, built if it does not exist yet. `version` is that of the library.

    Raises library.NotFound, with the compiler's output, if it cannot be built, or if others can write to its folder.
    """
    cxx = compiler()
    if cxx is None:
        raise library.NotFound("no C++ compiler was found")
    folder = shim_folder(torch, cxx, tidemark, version)
    return cache.obtain(folder / NAME, lambda out: compile_to(out, torch, cxx, tidemark))


def compile_to(out: str, torch: Any, cxx: str, tidemark: pathlib.Path) -> None:
    """Compiles the shim to a file. Raises library.NotFound with the compiler's output if that fails."""
    done = subprocess.run(command_line(torch, cxx, tidemark, out), stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, errors="replace", check=False)
    if done.returncode == 0:
        return
    is_transient = done.returncode < 0 or any(words in done.stderr for words in _TRANSIENT)
    kind = cache.Transient if is_transient else library.NotFound
    raise kind(f"the shim does not compile against torch {torch.__version__} (status {done.returncode}):\n"
               + done.stderr[:_TEXT])
