# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""An installed package and a PyTorch that is not one, for tests of loading: a copy of tidemark with a small shim of its
own, a module `torch` that remembers what is done to it, empty libraries to link with, and a compiler that counts.

The shim is built, kept and loaded as the real one is. Its functions obey macros of a header of that PyTorch.
"""
import functools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

from tidemark.torch import build, library

SHIM = r"""
#include <c10/fake.h>
#include "tidemark/base.h"
#include <stdlib.h>
FAKE_BROKEN
extern "C" {
TIDE_API const char* tidemark_torch_install(const char*, int) {
  const char* wrong = getenv("FAKE_WRONG");
  return wrong != nullptr ? wrong : FAKE_REFUSAL;
}
TIDE_API const char* tidemark_torch_configure(const char* text) { return text[0] == '!' ? "refused" : nullptr; }
TIDE_API void* tidemark_torch_machine() { return nullptr; }
TIDE_API void tidemark_torch_last_oom(void*) {}
TIDE_API void tidemark_torch_name_holders(void*) {}
TIDE_API const char* tidemark_torch_replaced_by() { return getenv("FAKE_REPLACED"); }
TIDE_API const char* tidemark_torch_slots() { return "all slots are equal"; }
}
"""
HEADER = """
#define FAKE_BROKEN
#define FAKE_REFUSAL nullptr
"""

TORCH = '''
import ctypes, glob, os, types
libraries = [ctypes.CDLL(path) for path in glob.glob(os.path.join(os.path.dirname(__file__), "lib", "*.so"))]
__version__ = "2.11.0"
version = types.SimpleNamespace(cuda=os.environ.get("FAKE_CUDA") or "13.0", git_version="abc")
if version.cuda == "none":
    version.cuda = None
_C = types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=True, _accelerator_setAllocatorSettings=lambda text: None)
done = []  # what was done to it


class CUDAPluggableAllocator:
    def __init__(self, path, alloc, free):
        done.append(("pluggable", path))

    def allocator(self):
        class Setters:
            def __getattr__(self, name):
                return lambda address: done.append(name)
        return Setters()


class cuda:
    is_initialized = staticmethod(lambda: False)
    _lazy_call = staticmethod(lambda function: done.append("queued"))
    device_count = staticmethod(lambda: 0)
    get_allocator_backend = staticmethod(lambda: os.environ.get("FAKE_BACKEND", "native"))
    memory_stats = staticmethod(lambda device=None: {"allocated_bytes.all.peak": 3, "reserved_bytes.all.peak": 4})

    class memory:
        CUDAPluggableAllocator = CUDAPluggableAllocator
        change_current_allocator = staticmethod(lambda allocator: done.append("changed"))
'''

# Counts compilations, not other calls. FAKE_CXX is a shell command to run instead.
COMPILER = """#!/bin/sh
case "$*" in *-shared*) echo "$$" >>'{log}'; if [ -n "$FAKE_CXX" ]; then eval "$FAKE_CXX"; exit; fi ;; esac
exec '{cxx}' "$@"
"""


@functools.lru_cache(maxsize=None)
def empty_libraries():
    """A folder with the libraries that the shim is linked with; PyTorch has them loaded."""
    keeper = tempfile.TemporaryDirectory()
    source = pathlib.Path(keeper.name) / "empty.cpp"
    source.touch()
    for name in ("c10", "c10_cuda", "torch_cpu", "torch_cuda", "cudart"):
        subprocess.run([build.compiler(), "-shared", "-fPIC", f"-Wl,-soname,lib{name}.so", "-o",
                        source.with_name(f"lib{name}.so"), source], check=True)
    return keeper


class Site:
    """A folder for PYTHONPATH with all of it."""

    def __init__(self, folder, python=sys.executable):
        if build.compiler() is None:
            raise unittest.SkipTest("no C++ compiler")
        self.python = python
        self.folder = pathlib.Path(folder).resolve()
        self.cache = self.folder / "cache"
        self.log = self.folder / "compiled"
        self.header = self.folder / "torch" / "include" / "c10" / "fake.h"
        package = self.folder / "tidemark"
        shutil.copytree(library.PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(library.include_folder() / "tidemark", package / "include" / "tidemark")
        self._write("tidemark/shim/shim.cpp", SHIM)
        self._write("torch/__init__.py", TORCH)
        self._write("torch/include/c10/fake.h", HEADER)
        self._write("cuda/include/cuda_runtime_api.h", "#define CUDART_VERSION 13000\n")
        self._write("c++", COMPILER.format(log=self.log, cxx=build.compiler())).chmod(0o755)
        shutil.copytree(empty_libraries().name, self.folder / "torch" / "lib")

    def _write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def environment(self, **more):
        """The environment of a process of this site, with nothing of ours but what is given."""
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("TIDEMARK_", "PYTORCH_", "FAKE_")) and name not in ("LOCAL_RANK", "PYTHONPATH")}
        return {**kept, "PYTHONPATH": str(self.folder), "TIDEMARK_LIB": str(library.find()), "CXX": str(self.folder / "c++"),
                "CUDA_HOME": str(self.folder / "cuda"), "TIDEMARK_CACHE": str(self.cache), **more}

    def start(self, code, *arguments, options=(), **more):
        """A Python process that runs this code."""
        return subprocess.Popen([self.python, "-B", *options, "-c", textwrap.dedent(code), *arguments],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment(**more),
                                cwd=self.folder)

    def run(self, code, *arguments, options=(), **more):
        """Runs code to its end; returns its status, output and errors."""
        process = self.start(code, *arguments, options=options, **more)
        out, errors = process.communicate(timeout=300)
        return process.returncode, out.strip(), errors

    def compilations(self):
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0
