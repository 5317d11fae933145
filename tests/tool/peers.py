# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Processes of the tests that use the library, and are told by lines what to do; and waiting for what they do."""
from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from typing import Self

import harness
from harness import check


def wait_until(condition: Callable[[], object]) -> None:
    """Asks until it is so. The limit of the test by the clock ends it if that never happens."""
    while not condition():
        os.sched_yield()


class Peer:
    """One of the programs that are built beside the tests in C."""

    def __init__(self, name: str, *words: object, env: dict[str, str] | None = None) -> None:
        program = os.path.join(os.path.dirname(harness.PROGRAM), "tests", name)
        self.child = harness.start(*map(str, words), program=program, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self.child.pid
        harness.at_end(self.end)

    def tell(self, line: str) -> None:
        assert self.child.stdin
        self.child.stdin.write(f"{line}\n".encode())
        self.child.stdin.flush()

    def line(self) -> str:
        assert self.child.stdout
        line = self.child.stdout.readline().decode()
        check(line, "the process ended")
        return line.rstrip("\n")

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)  # all its threads have stopped

    def kill(self) -> None:
        self.child.kill()
        self.child.wait()

    def end(self) -> None:
        """It goes on, and ends as its standard input does. May be called twice."""
        self.child.send_signal(signal.SIGCONT)
        self.child.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
