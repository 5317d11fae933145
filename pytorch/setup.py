# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Adds what the package needs at run time: the library, the command, headers, the sources of the shim, shims that are ready
for use, and the .pth file that makes TIDEMARK_TORCH work.

TIDEMARK_LIB        take libtidemark.so, and libtidemark_torch.so and the command beside it, instead of building them
TIDEMARK_PREBUILD   build shims for these: interpreters that have PyTorch, or folders that contain it, separated by ":".
                    Without it the shim for the PyTorch of this interpreter is built, if it has one
"""
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import setuptools
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel

HERE = pathlib.Path(__file__).resolve().parent
IN_SDIST = HERE / "library"  # the C sources, in a source distribution
TREE = IN_SDIST if IN_SDIST.exists() else HERE.parent
# The command gets decoded data from Python, so it needs no library for compressed files.
OPTIONS = ["-DCMAKE_BUILD_TYPE=Release", "-DTIDEMARK_CHECK=0", "-DTIDEMARK_TESTS=OFF", "-DTIDEMARK_TOOL=ON",
           "-DTIDEMARK_LZMA=OFF", "-DTIDEMARK_ZLIB=OFF", "-DTIDEMARK_ZSTD=OFF", "-DTIDEMARK_MICROHTTPD=OFF", "-DTIDEMARK_MPI=OFF",
           "-DTIDEMARK_BENCH=OFF", "-DTIDEMARK_EXAMPLES=OFF", "-DTIDEMARK_PRELOAD=OFF", "-DTIDEMARK_INSTALL=OFF",
           "-DTIDEMARK_PYTORCH=ON"]
BUILT = ("libtidemark.so", "libtidemark_torch.so", "tidemark")


def build_library(build: pathlib.Path) -> pathlib.Path:
    """Builds the C library and the command with CMake; returns the folder they are in."""
    if os.environ.get("TIDEMARK_LIB"):
        return pathlib.Path(os.environ["TIDEMARK_LIB"]).resolve().parent
    build.mkdir(parents=True, exist_ok=True)
    generator = ["-GNinja"] if shutil.which("ninja") and not (build / "CMakeCache.txt").exists() else []
    subprocess.run(["cmake", "-S", TREE, "-B", build, *generator, *OPTIONS], check=True)
    subprocess.run(["cmake", "--build", build, "--parallel"], check=True)
    return build


def torches() -> list:
    """The interpreter and the additional module folders for every PyTorch to build a shim for."""
    given = os.environ.get("TIDEMARK_PREBUILD")
    if given is None:
        return [(sys.executable, "")] if importlib.util.find_spec("torch") else []
    return [(sys.executable, path) if os.path.isdir(path) else (path, "") for path in given.split(os.pathsep) if path]


def build_shims(root: pathlib.Path) -> None:
    """Builds shims with the package that was just put together. A failure only means that the user compiles."""
    for interpreter, modules in torches():
        environment = dict(os.environ, TIDEMARK_LIB=str(root / "tidemark" / "lib" / "libtidemark.so"),
                           PYTHONPATH=os.pathsep.join(filter(None, [str(root), modules])),
                           PYTHONDONTWRITEBYTECODE="1", TIDEMARK_TORCH="off")
        command = [interpreter, "-m", "tidemark.torch.prebuilt", str(root / "tidemark" / "shim" / "prebuilt")]
        if subprocess.run(command, env=environment, check=False, cwd=HERE.anchor).returncode != 0:
            print(f"no shim was built for the PyTorch of {modules or interpreter}", file=sys.stderr)


class BuildWithLibrary(build_py):
    """Builds the C library and the command, and copies them into the package."""

    def run(self) -> None:
        root = pathlib.Path(self.build_lib).resolve()
        package = root / "tidemark"
        if getattr(self, "editable_mode", False):  # the package is used in its source tree
            super().run()
            return
        shutil.rmtree(package, ignore_errors=True)
        super().run()
        built = build_library(pathlib.Path(self.get_finalized_command("build").build_temp).resolve() / "library")
        for folder in ("lib", "include/tidemark", "shim"):
            (package / folder).mkdir(parents=True, exist_ok=True)
        for name in BUILT:
            if (built / name).exists():
                shutil.copy2((built / name).resolve(), package / "lib" / name)
        for header in (TREE / "include" / "tidemark").glob("*.h"):
            shutil.copy2(header, package / "include" / "tidemark")
        for source in (*HERE.glob("shim*.cpp"), *HERE.glob("shim*.h")):
            shutil.copy2(source, package / "shim")
        shutil.copy2(HERE / "tidemark.pth", root)
        build_shims(root)


class SdistWithLibrary(sdist):
    """Adds the C sources, which are beside this folder in a checkout."""

    def make_release_tree(self, base_dir, files) -> None:
        super().make_release_tree(base_dir, files)
        base = pathlib.Path(base_dir)
        for source in (*HERE.glob("shim*.cpp"), *HERE.glob("shim*.h"), HERE / "hooks.cpp", HERE / "tidemark.pth",
                       HERE / "backend.py"):
            shutil.copy2(source, base)
        for name in ("src", "include", "cmake", "tool", "page"):
            shutil.copytree(TREE / name, base / "library" / name, dirs_exist_ok=True)
        (base / "library" / "pytorch").mkdir(exist_ok=True)
        for name in ("CMakeLists.txt", "LICENSE", "pytorch/hooks.cpp"):
            shutil.copy2(TREE / name, base / "library" / name)
        shutil.copy2(TREE / "LICENSE", base)


class WheelForAllPythons(bdist_wheel):
    """The library needs this platform, but no particular version of Python."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class WithLibrary(setuptools.Distribution):
    """A platform-specific package, because it contains the library."""

    def has_ext_modules(self) -> bool:
        return True


setuptools.setup(cmdclass={"build_py": BuildWithLibrary, "sdist": SdistWithLibrary, "bdist_wheel": WheelForAllPythons},
                 distclass=WithLibrary)
