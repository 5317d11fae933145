# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Adds what the package needs at run time: the library, its headers and the sources of the shim.

The shim itself is built at the first install(), against the headers of the installed PyTorch.
"""
import pathlib
import shutil
import subprocess

import setuptools
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parent
OPTIONS = ["-DCMAKE_BUILD_TYPE=Release", "-DTIDEMARK_CHECK=0", "-DTIDEMARK_TESTS=OFF", "-DTIDEMARK_TOOL=OFF",
           "-DTIDEMARK_BENCH=OFF", "-DTIDEMARK_EXAMPLES=OFF", "-DTIDEMARK_PRELOAD=OFF"]


class BuildWithLibrary(build_py):
    """Builds the C library with CMake and copies it into the package."""

    def run(self) -> None:
        super().run()
        package = pathlib.Path(self.build_lib) / "tidemark"
        build = HERE / "build" / "library"
        subprocess.run(["cmake", "-S", TREE, "-B", build, *OPTIONS], check=True)
        subprocess.run(["cmake", "--build", build, "--parallel"], check=True)
        for folder in ("lib", "include/tidemark", "shim"):
            (package / folder).mkdir(parents=True, exist_ok=True)
        for name in ("libtidemark.so", "libtidemark_torch.so"):
            if (build / name).exists():
                shutil.copy2((build / name).resolve(), package / "lib" / name)
        for header in (TREE / "include" / "tidemark").glob("*.h"):
            shutil.copy2(header, package / "include" / "tidemark")
        for source in (*HERE.glob("shim*.cpp"), *HERE.glob("shim*.h")):
            shutil.copy2(source, package / "shim")


class WithLibrary(setuptools.Distribution):
    """A platform-specific package, because it contains the library."""

    def has_ext_modules(self) -> bool:
        return True


setuptools.setup(cmdclass={"build_py": BuildWithLibrary}, distclass=WithLibrary)
