# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""The program under test, and the recordings that it is asked about."""
from __future__ import annotations

import functools
import json
import lzma
import os
import pickle
import random
import subprocess
from typing import Any, Iterator

import generate
import snapshot as reference

SOURCE = os.environ.get("TIDEMARK_SOURCE") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
DATA = os.path.join(SOURCE, "tests", "data")
MORE = os.environ.get("TIDEMARK_DATA") or os.path.join(SOURCE, "..", "shared")
PROGRAM = os.path.abspath(os.environ.get("TIDEMARK_BIN") or os.path.join(SOURCE, "build", "tidemark"))
SCALE = float(os.environ.get("TIDE_TEST_SCALE") or 1)
IS_SLOW = bool(os.environ.get("TIDEMARK_SANITIZE"))  # a build with a sanitizer
HANGS_S = 1800
Snapshot = dict[str, Any]


class Skip(Exception):
    pass


def check(condition: bool, text: str) -> None:
    if not condition:
        raise AssertionError(text)


def equal(got: Any, want: Any, text: str) -> None:
    check(got == want, f"{text}: the command says {got!r}, the oracle {want!r}")


def run(*words: str, data: bytes = b"") -> subprocess.CompletedProcess[str]:
    done = subprocess.run([PROGRAM, *words], input=data, capture_output=True, timeout=HANGS_S)
    return subprocess.CompletedProcess(words, done.returncode, done.stdout.decode(), done.stderr.decode())


def ask(*words: str, data: bytes = b"") -> dict[str, Any]:
    """The answer of a verb as JSON. The status says whether the answer is yes."""
    done = run(*words, "--json", data=data)
    check(done.returncode in (0, 1) and done.stderr == "", f"{words}: status {done.returncode}, {done.stderr!r}")
    return {**json.loads(done.stdout, parse_constant=not_a_number), "status": done.returncode}


def not_a_number(text: str) -> None:
    raise AssertionError(f"{text} in JSON")


def dumped(snapshot: Snapshot, protocol: int = 4) -> bytes:
    return pickle.dumps(snapshot, protocol)


def count(most: int) -> int:
    """How many generated recordings a test looks at."""
    return max(3, int(most * min(SCALE, 20) * (0.2 if IS_SLOW else 1)))


# ---------------------------------------------------------------------------------------------------
# Recordings


def traces() -> str:
    folder = os.path.join(MORE, "traces")
    if not os.path.isdir(folder):
        raise Skip("there are no recordings in TIDEMARK_DATA")
    if "built without" in run("info", "-", data=lzma.compress(b"x")).stderr:
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


def own_recordings(folder: str) -> Iterator[tuple[str, Snapshot]]:
    """The recordings of the tests, as pickles."""
    for name in sorted(os.listdir(DATA)):
        if not name.endswith(".tide") or (IS_SLOW and os.path.getsize(os.path.join(DATA, name)) > 20 << 10):
            continue
        path = os.path.join(folder, name.replace(".tide", ".pickle"))
        done = run("convert", os.path.join(DATA, name), path)
        equal(done.returncode, 0, f"converting {name} ({done.stderr})")
        yield path, reference.load(path)


def generated(seed: int) -> Snapshot:
    """Every third recording has lost its first entries."""
    rng = random.Random(seed)
    snapshot = generate.recording(rng, generate.Kind.random(rng))
    return reference.suffix(snapshot, rng.randrange(1, 80)) if seed % 3 == 2 else snapshot
