# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""What the command says as JSON, and the recordings that it is asked about."""
from __future__ import annotations

import functools
import json  # noqa: F401
import lzma
import os
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import generate
import harness
import snapshot as reference
from harness import DATA, MORE, PROGRAM, SCALE, SOURCE, Skip, check, equal  # noqa: F401

IS_SLOW = bool(harness.SANITIZER)
Snapshot = dict[str, Any]


def ask(*words: str, data: bytes = b"") -> dict[str, Any]:
    """The answer of a verb. The status says whether the answer is yes."""
    answer = harness.run(*words, "--json", stdin=data).works(0, 1)
    return {**answer.json(), "status": answer.status}


def dumped(snapshot: Snapshot, protocol: int = 4) -> bytes:
    return pickle.dumps(snapshot, protocol)


# For scripts that are not on the harness.
def run(*words: str, data: bytes = b"") -> subprocess.CompletedProcess[str]:
    answer = harness.run(*words, stdin=data)
    return subprocess.CompletedProcess(words, answer.status, answer.out, answer.err)


# ---------------------------------------------------------------------------------------------------
# Recordings


def traces() -> str:
    """The folder of optional recordings."""
    folder = harness.more("traces")
    if "built without" in harness.run("info", "-", stdin=lzma.compress(b"x")).err:
        raise Skip("the program was built without xz")
    return folder


def shared_files() -> list[str]:
    most = 20 << 10 if IS_SLOW else 1 << 30 if SCALE >= 10 else 300 << 10
    files = [os.path.join(folder, name) for folder, _, names in os.walk(traces()) for name in sorted(names)
             if name.endswith(".pickle.xz")]
    return sorted(file for file in files if os.path.getsize(file) <= most)


@functools.lru_cache(maxsize=2)
def load_shared(name: str) -> Snapshot:
    return reference.load(os.path.join(traces(), f"{name}.pickle.xz"))


def read(path: str) -> Snapshot:
    """A recording in any format, by way of a pickle."""
    with tempfile.TemporaryDirectory() as folder:
        harness.run("convert", path, f"{folder}/x.pickle").works()
        return reference.load(f"{folder}/x.pickle")


def own_recordings(folder: str, step: int = 1) -> Iterator[tuple[str, Snapshot]]:
    """The recordings of the tests, as pickles; with a step see harness.some()."""
    files = [file for file in sorted(pathlib.Path(DATA).glob("*.tide")) if not IS_SLOW or file.stat().st_size <= 20 << 10]
    for file in harness.some(files, step):
        path = os.path.join(folder, f"{file.stem}.pickle")
        harness.run("convert", str(file), path).works()
        yield path, reference.load(path)


def count(most: int) -> int:
    return max(3, int(most * min(SCALE, 20) * (0.2 if IS_SLOW else 1)))


def numbers(most: int) -> list[int]:
    """Which generated recordings a test looks at."""
    return harness.some(range(count(most)), 10)


def generated(seed: int) -> Snapshot:
    """Every third recording has lost its first entries."""
    rng = random.Random(seed)
    snapshot = generate.recording(rng, generate.Kind.random(rng))
    return reference.suffix(snapshot, rng.randrange(1, 80)) if seed % 3 == 2 else snapshot
