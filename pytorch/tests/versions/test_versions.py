#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Compiles the shim against models of headers that no PyTorch has yet, and each of its files alone.

Nothing is linked, and no warning is allowed. Methods that the shim would have to override, and does not, are refused: the
compiler's text has the version and the method.
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
from make_models import name_of  # noqa: E402

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


@slow
@over(source.name for source in SOURCES)
def test_file_alone(variant: str, folder: str) -> None:
    """It includes what it needs."""
    compiled(folder, make_models.Model(facts.VERSIONS[-1]), COMPILERS[0], "c++20", SHIM / variant).works()


# Methods of a version to come, and what the compiler says of them.
ABSTRACT = "has methods that Tidemark does not know"
OTHER = "has a method {} with other parameters than Tidemark knows, or several of that name"
REFUSED = {
    "new": ([("void newFangled(int number)", facts.PURE)], ABSTRACT),
    "changed": ([("void setNoSplit(DeviceIndex device, MempoolId_t pool, bool is_on)", facts.REFUSE)],
                OTHER.format("setNoSplit")),
    "second": ([("void setNoSplit(DeviceIndex device, MempoolId_t pool)", facts.REFUSE),
                ("void setNoSplit(DeviceIndex device)", facts.REFUSE)], OTHER.format("setNoSplit")),
    "constant": ([("bool supportsUserMetadata() const", facts.EMPTY)], OTHER.format("supportsUserMetadata")),
    "pool": ([("void createOrIncrefPool(DeviceIndex device, MempoolId_t pool, int source)", facts.REFUSE)],
             OTHER.format("createOrIncrefPool")),
}


@slow
@over(f"{name} {cxx}" for name in REFUSED for cxx in KNOWN)
def test_refusal(variant: str, folder: str) -> None:
    name, cxx = variant.split()
    methods, text = REFUSED[name]
    refused = compiled(folder, make_models.Model(facts.VERSIONS[-1], *methods), cxx, "c++20", whole(folder))
    equal(refused.status, 1, "the status of the compiler")
    check(f"PyTorch {facts.VERSIONS[-1]}.0+unknown {text}" in refused.err, f"the compiler does not say so: {refused.err}")
    check(name_of(methods[0][0]) in refused.err, f"the compiler does not name the method: {refused.err}")


if __name__ == "__main__":
    if not COMPILERS:
        harness.skip_all("no C++ compiler was found")
    harness.main()
