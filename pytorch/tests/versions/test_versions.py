#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Compiles the shim against the model of every version, with every C++ compiler here, as C++17 and C++20.

Nothing is linked, and no warning is allowed. A version that asks for an unknown method must be refused, with its number
and the method in the compiler's text.
"""
import os
import pathlib
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent
SHIM = HERE.parent.parent
sys.path[:0] = [str(HERE), str(SHIM.parent / "tests")]
sys.dont_write_bytecode = True
import facts  # noqa: E402
import harness  # noqa: E402
import make_models  # noqa: E402
from harness import check, equal, over, slow  # noqa: E402

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Woverloaded-virtual", "-Wsuggest-override", "-Werror"]
SOURCES = sorted(SHIM.glob("shim*.cpp"))
KNOWN = [name for name in ("g++", "clang++") if shutil.which(name)]
COMPILERS = KNOWN or [name for name in (os.environ.get("CXX"), "c++") if name and shutil.which(name)]


def compiled(folder, model, cxx, standard, source):
    """Checks one file against a model."""
    make_models.write(pathlib.Path(folder), model)
    folders = [part for each in (folder, str(HERE / "model")) for part in ("-isystem", each)]
    return harness.run(f"-std={standard}", "-fsyntax-only", *WARNINGS, *folders, f"-I{SHIM.parent / 'include'}", f"-I{SHIM}",
                       str(source), program=cxx)


def whole(folder):
    """The shim as one file."""
    path = pathlib.Path(folder, "whole.cpp")
    path.write_text("".join(f'#include "{source.name}"\n' for source in SOURCES), encoding="utf-8")
    return path


def matrix():
    for version in facts.VERSIONS:
        is_new = make_models.holds(version, facts.NEEDS_CXX20)
        for cxx in COMPILERS:
            for standard in ["c++20"] if is_new else ["c++17", "c++20"]:
                yield f"{version} {cxx} {standard}"


@slow
@over(matrix())
def test_version(variant: str, folder: str) -> None:
    version, cxx, standard = variant.split()
    compiled(folder, make_models.Model(version), cxx, standard, whole(folder)).works()


@slow
@over(source.name for source in SOURCES)
def test_file_alone(variant: str, folder: str) -> None:
    """It includes what it needs."""
    compiled(folder, make_models.Model(facts.VERSIONS[-1]), COMPILERS[0], "c++20", SHIM / variant).works()


@slow
@over(KNOWN)
def test_refusal(variant: str, folder: str) -> None:
    """A version with an unknown method is refused by name."""
    model = make_models.Model(facts.VERSIONS[-1], "void newFangled(int number)")
    refused = compiled(folder, model, variant, "c++20", whole(folder))
    equal(refused.status, 1, "the status of the compiler")
    for part in f"PyTorch {facts.VERSIONS[-1]}.0+unknown has methods that Tidemark does not know", "newFangled":
        check(part in refused.err, f"the compiler does not say {part!r}: {refused.err}")


if __name__ == "__main__":
    if not COMPILERS:
        harness.skip_all("no C++ compiler was found")
    harness.main()
