# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Recordings for the tests, each with what Python's own pickle reads from it."""
from __future__ import annotations

import functools
import os
import pathlib
import pickle
import tempfile
from typing import Any, Iterator

import command  # of tests/oracle
import harness
import snapshot as reference

DATA = pathlib.Path(command.DATA)
TREE = DATA.parents[1]
_folder = tempfile.TemporaryDirectory()


@functools.lru_cache(maxsize=None)
def own() -> list[tuple[str, dict[str, Any]]]:
    """The recordings of tests/data as pickles: paths, and what is in them."""
    return list(command.own_recordings(_folder.name))


def shared() -> Iterator[tuple[str, dict[str, Any]]]:
    """More recordings, where they are. Raises command.Skip otherwise."""
    for path in harness.some(command.shared_files(), 20):
        yield path, reference.load(path)


def small() -> Iterator[tuple[str, dict[str, Any]]]:
    """The recordings of tests/data, and generated ones, a third of which have lost their beginning."""
    yield from harness.some(own(), 3)
    for seed in range(harness.scaled(3 if harness.SANITIZER else 15, 3)):
        snapshot = command.generated(seed)
        path = os.path.join(_folder.name, f"generated-{seed}.pickle")
        pathlib.Path(path).write_bytes(pickle.dumps(snapshot, 4))
        yield path, snapshot


def everything() -> Iterator[tuple[str, dict[str, Any]]]:
    """All recordings at hand."""
    yield from small()
    try:
        yield from shared()
    except command.Skip:
        return


def native(name: str) -> str:
    """A recording of tests/data in the native format."""
    return str(DATA / f"{name}.tide")


@functools.lru_cache(maxsize=None)
def as_pickle(name: str) -> str:
    """The same as a pickle."""
    path = os.path.join(_folder.name, f"{name.replace('/', '-')}-alone.pickle")
    done = command.run("convert", native(name), path)
    command.equal(done.returncode, 0, f"converting {name} ({done.stderr})")
    return path
