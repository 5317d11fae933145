# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""A `tidemark view --serve` that runs, and a recording with many short lives for it.

    with Server(program, "run.pickle", "--page-size", "600KiB") as server:
        status, headers, body = server.get("blocks?device=0&from=10&to=20")
"""
from __future__ import annotations

import http.client
import os
import pathlib
import pickle
import random
import re
import signal
import subprocess
import sys
import urllib.parse
from typing import Any, Self

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import harness

BASE = 0x7F0000000000
SEGMENT = 64 << 20
FRAMES = [[{"filename": f"/home/u/{file}.py", "line": line, "name": name}, {"filename": "/home/u/train.py", "line": 9,
                                                                         "name": "main"}]
          for file, line, name in (("model", 11, "forward"), ("model", 40, "attend"), ("loss", 7, "loss"),
                                   ("train", 20, "step"), ("optim", 3, "update"))]


class Server:
    def __init__(self, program: str, *words: str) -> None:
        self.words = words
        self.process = harness.start("view", *words, "--serve", program=program, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().decode().strip()
        parts = urllib.parse.urlsplit(self.address)
        self.host, self.path, self.port = parts.netloc, parts.path, parts.port or 0
        self.output = ""
        if self.port == 0:
            raise AssertionError(f"no address: {self.address!r}, {self.stop()}, {self.output!r}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ends it, and gives its exit status; `output` gets everything else that it printed."""
        if self.process.returncode is None:
            self.process.send_signal(number)
            self.output = b"".join(self.process.communicate()).decode()
        return self.process.returncode

    def get(self, path: str = "", method: str = "GET", headers: dict[str, str | None] | None = None,
            is_whole: bool = False) -> tuple[int, dict[str, str], bytes]:
        """The answer about a path behind the token, or about a whole path. A header of None is not sent."""
        sent: dict[str, str | None] = {"Host": self.host, **(headers or {})}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.putrequest(method, path if is_whole else self.path + path, skip_host=True, skip_accept_encoding=True)
        for name, value in sent.items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        result = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        connection.close()
        return result


def short_lives(seed: int, count: int) -> list[dict[str, Any]]:
    """Entries of a run in which most blocks live for few entries. It begins and ends with nothing."""
    chance, entries = random.Random(seed), list[dict[str, Any]]()
    free, live, waiting = [(0, SEGMENT)], list[tuple[int, int, int]](), list[tuple[int, int, int]]()

    def enter(action: str, offset: int, size: int, stack: int) -> None:
        entries.append({"action": action, "addr": BASE + offset, "size": size, "stream": 0, "frames": FRAMES[stack],
                        "time_us": 1_700_000_000_000_000 + 7 * len(entries)})

    def give_back(offset: int, room: int) -> None:
        nonlocal free
        pieces = sorted([*free, (offset, room)])
        free = pieces[:1]
        for low, length in pieces[1:]:
            if free[-1][0] + free[-1][1] == low:
                free[-1] = free[-1][0], free[-1][1] + length
            else:
                free.append((low, length))

    def allocate() -> None:
        size, stack = chance.randint(1, 400_000), chance.randrange(len(FRAMES))
        room = (size + 511) // 512 * 512
        at = next(i for i, (_, length) in enumerate(free) if length >= room)
        offset, length = free[at]
        free[at:at + 1] = [(offset + room, length - room)] if length > room else []
        enter("alloc", offset, size, stack)
        live.append((offset, size, stack))

    def release(at: int) -> None:
        enter("free_requested", *live[at])
        waiting.append(live.pop(at))

    def complete(at: int) -> None:
        offset, size, stack = waiting.pop(at)
        enter("free_completed", offset, size, stack)
        give_back(offset, (size + 511) // 512 * 512)

    enter("segment_alloc", 0, SEGMENT, 3)
    while len(entries) < count:
        kind = chance.random()
        if waiting and (kind < 0.5 or len(waiting) > 3):
            complete(0)
        elif live and (kind < 0.7 or len(live) > 60):
            release(len(live) - 1 if chance.random() < 0.9 else chance.randrange(len(live)))
        else:
            allocate()
    while live:
        release(0)
    while waiting:
        complete(0)
    enter("segment_free", 0, SEGMENT, 3)
    return entries


def save(path: str, *traces: list[dict[str, Any]]) -> str:
    with open(path, "wb") as file:
        pickle.dump({"segments": [], "device_traces": list(traces), "allocator_settings": {}}, file)
    return path


def least_size(program: str, *words: str) -> int:
    """The bytes, rounded up to KiB, of a page without any block."""
    answer = harness.run("view", *words, "-o", os.devnull, "--page-size", "1KiB", program=program)
    found = re.search(r"needs ([\d.]+) ([KM])iB", answer.err)
    assert found is not None, answer.err
    return round(float(found[1]) * (1 if found[2] == "K" else 1024)) + 1
