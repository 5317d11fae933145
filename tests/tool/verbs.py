# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""What tests of the whole command share: a command line for every verb, a small recording, and small planning problems."""
from __future__ import annotations

import json
import lzma
import os
import pathlib
import pickle
import random
import re
from collections.abc import Iterable
from typing import Any

import harness
from harness import DATA, MORE, SANITIZER, SOURCE, check, run

# What a verb is called with, in the order of the help; FILE, RANK (a file that may be unreadable), RUN (a recording with
# steps), OUT and PLAN are replaced.
LINES = {
    "info": ["FILE"],
    "report": ["FILE"],
    "plot": ["FILE"],
    "leaks": ["RUN"],
    "view": ["FILE", "-o", "OUT"],
    "replay": ["FILE"],
    "whatif": ["FILE"],
    "diff": ["FILE", "FILE"],
    "survey": ["RANK"],
    "plan": ["FILE"],
    "verify": ["PLAN"],
    "convert": ["FILE", "OUT"],
    "machines": [],
    "top": ["--once"],
    "ledger": [],
}
READERS = [verb for verb, line in LINES.items() if "FILE" in line]


def snapshot() -> dict[str, Any]:
    """Two allocations, one of them released, in one segment."""
    base = 0x7F0000000000
    frame = {"name": "forward", "filename": "model.py", "line": 12}

    def entry(action: str, address: int, size: int, time_us: int) -> dict[str, Any]:
        return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time_us, "frames": [frame]}

    def block(address: int, size: int, requested: int, state: str) -> dict[str, Any]:
        return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": [frame]}

    segment = {
        "device": 0, "address": base, "total_size": 2097152, "allocated_size": 1024, "active_size": 1024,
        "requested_size": 1000, "stream": 0, "segment_type": "small", "segment_pool_id": (0, 0),
        "is_expandable": False, "frames": [frame],
        "blocks": [block(base, 1024, 1000, "active_allocated"), block(base + 1024, 2096128, 512, "inactive")],
    }
    entries = [
        entry("segment_alloc", base, 2097152, 1),
        entry("alloc", base, 1000, 2), entry("alloc", base + 1024, 512, 3),
        entry("free_requested", base + 1024, 512, 4), entry("free_completed", base + 1024, 512, 5),
    ]
    return {"segments": [segment], "device_traces": [entries]}


PLAIN = pickle.dumps(snapshot(), 4)
HEAD = "id,lower,upper,size"
PLANNED = f"{HEAD},offset\na,0,3,1024,0\nb,2,5,2048,1024\n".encode()


def problem(rows: Iterable[Iterable[object]], head: str = HEAD) -> bytes:
    return (head + "\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)).encode()


def random_problem(count: int, seed: int = 1, steps: int = 200, longest: int = 40,
                   largest: int = 100) -> list[tuple[str, int, int, int]]:
    rng = random.Random(seed)
    rows = []
    for i in range(count):
        lower = rng.randrange(steps)
        rows.append((f"b{i}", lower, lower + 1 + rng.randrange(longest), 1 + rng.randrange(largest)))
    return rows


def write(path: str, data: bytes) -> str:
    pathlib.Path(path).write_bytes(data)
    return path


def text_of(path: str) -> str:
    return pathlib.Path(path).read_text(encoding="utf-8")


def recording(name: str) -> str:
    """The path of a recording of the tests."""
    return os.path.join(DATA, f"{name}.tide")


def recordings() -> list[str]:
    """All recordings of the tests and of TIDEMARK_DATA: long ones only at full scale, and only short ones under a sanitizer."""
    files = sorted(pathlib.Path(DATA).glob("*.tide"))
    own = {file.stem for file in files}
    if "built without" not in run("info", "-", stdin=lzma.compress(PLAIN)).err:
        others = sorted(pathlib.Path(MORE, "traces").glob("*.pickle.xz"))
        files += [file for file in others if file.name.removesuffix(".pickle.xz") not in own]
    most = 1 << 30 if harness.SCALE >= 10 else 20 << 10 if SANITIZER else 100 << 10
    found = [str(file) for file in files if file.stat().st_size <= most]
    check(len(found) > 5, f"only {found}")
    return found


def as_pickle(name: str, folder: str) -> Any:
    """A recording of the tests, as Python reads it."""
    path = os.path.join(folder, "x.pickle")
    run("convert", recording(name), path).works()
    return pickle.loads(pathlib.Path(path).read_bytes())


def line_of(verb: str, file: str, out: str) -> list[str]:
    words = {"FILE": file, "RANK": file, "OUT": out, "RUN": recording("gnn_retry")}
    if "PLAN" in LINES[verb]:
        words["PLAN"] = write(os.path.join(os.path.dirname(out), "plan.csv"), PLANNED)
    return [verb, *(words.get(word, word) for word in LINES[verb])]


def said_of(verb: str, name: str, *options: str, status: int = 0) -> Any:
    """What a verb says about a recording of the tests, as JSON."""
    return run(verb, recording(name), *options, "--json").works(status).json()


def said_about(verb: str, data: object, *options: str) -> Any:
    """What a verb says about a snapshot, or about the bytes of a file."""
    return run(verb, "-", *options, "--json", stdin=data if isinstance(data, bytes) else pickle.dumps(data, 4)).works().json()


def answer_of(verb: str, folder: str) -> Any:
    """What a verb says about the small recording, as JSON in which no key comes twice."""
    answer = run(*line_of(verb, write(f"{folder}/x.pickle", PLAIN), f"{folder}/y.json"), "--json").works()

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        check(len(keys) == len(set(keys)), f"a key comes twice in {keys}")
        return dict(pairs)

    json.loads(answer.out, object_pairs_hook=unique)
    said = answer.json()
    check(isinstance(said, dict) and answer.out.endswith("}\n"), f"{verb} printed {answer.out!r}")
    return said


def part_of(pattern: str, text: str) -> str:
    """What the first group of a pattern is in a text."""
    found = re.search(pattern, text)
    check(found, f"there is no {pattern!r} in {text!r}")
    return str(found and found[1])


def keys_of(value: object) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(keys_of, value.values()))
    return set().union(*map(keys_of, value)) if isinstance(value, list) else set()


def manual() -> str:
    return text_of(os.path.join(SOURCE, "docs", "man", "tidemark.1"))


def section_of(verb: str) -> str:
    """The section of a verb in the manual."""
    return re.split(r"\n\.S[sh] ", manual().split(f"\n.Ss {verb}\n")[1])[0]


def keys_in_manual(verb: str) -> set[str]:
    keys = section_of(verb).split("Keys of\n")[1]
    return set(re.findall(r"\b[a-z]\w+", " ".join(re.findall(r"^(?:\.It )?\.?Li (.*)", keys, re.M))))
