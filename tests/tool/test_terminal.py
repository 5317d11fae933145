#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Tests what the command writes to terminals and to pipes: colours, a progress bar, readers that go away, full outputs."""
import os
import pathlib
import select
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import Skip, Terminal, check, equal, main, run
from verbs import LINES, PLAIN, line_of, write

ESCAPE = "\033"


def shown(*words, **more):
    """What is written to a terminal."""
    terminal = Terminal(*words, streams=["stdout"], **more)
    terminal.end()
    return terminal.seen


def begin_reading(folder):
    """A command whose bar is on a terminal, and what it reads."""
    terminal = Terminal("convert", "-", f"{folder}/y.json", streams=["stderr"], bufsize=0)
    return terminal, terminal.child.stdin




def test_text_for_people_is_not_coloured_in_a_pipe(folder: str) -> None:
    for verb in LINES:
        line = line_of(verb, write(f"{folder}/x.pickle", PLAIN), f"{folder}/y.json")
        check(ESCAPE not in run(*line).works().out, f"{verb} is coloured in a pipe")
        check(ESCAPE not in run(verb, "--help").works().out, f"{verb} --help is coloured in a pipe")


def test_colour_on_a_terminal() -> None:
    check(ESCAPE in shown("machines"), "machines is not coloured on a terminal")
    check(ESCAPE in run("machines", "--color", "always").works().out, "--color always does nothing")
    check(ESCAPE not in shown("machines", "--color=never"), "--color never does nothing")
    check(ESCAPE not in shown("machines", env={"NO_COLOR": "1"}), "NO_COLOR does nothing")
    check(ESCAPE not in shown("machines", env={"TERM": "dumb"}), "TERM=dumb does nothing")
    check(ESCAPE in shown("machines", env={"NO_COLOR": ""}), "an empty NO_COLOR does something")


def test_a_bar_on_a_terminal_after_a_second(folder: str) -> None:
    """Writes single bytes until the bar appears; then whole files, until a run took less than a second."""
    terminal, pipe = begin_reading(folder)
    at = 0
    while "reading" not in terminal.seen and at < len(PLAIN) - 1:
        pipe.write(PLAIN[at:at + 1])
        at += 1
        if select.select([terminal.screen], [], [], 0.02)[0]:
            terminal.read()
    pipe.write(PLAIN[at:])
    terminal.end()
    check("reading" in terminal.seen and terminal.seen.endswith("\r\033[K"), f"the bar is {terminal.seen!r}")
    for _ in range(20):
        began = time.monotonic()
        terminal, pipe = begin_reading(folder)
        pipe.write(PLAIN)
        terminal.end()
        if time.monotonic() - began < 1:
            return equal(terminal.seen, "", "what a quick run shows")
    raise Skip("no run took less than a second")


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    for line in (["--help"], ["machines"], ["convert", "-", "-", "--to", "json"]):
        reading, writing = os.pipe()
        os.close(reading)
        answer = run(*line, stdin=PLAIN, stdout=writing, preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN))
        os.close(writing)
        equal((answer.status, answer.err), (-signal.SIGPIPE, ""), f"{line[0]}: status and standard error")


def test_standard_output_that_is_full_or_closed(folder: str) -> None:
    if not os.path.exists("/dev/full"):
        raise Skip("there is no /dev/full")
    file = write(f"{folder}/x.pickle", PLAIN)
    lines = [["--help"], ["--version"], ["--completion", "bash"], ["convert", file, "-", "--to", "json"]]
    for line in [*lines, *(line_of(verb, file, f"{folder}/y.json") for verb in LINES)]:
        with open("/dev/full", "wb") as full:
            run(*line, stdout=full).fails("No space left")
        run(*line, stdout=None, preexec_fn=lambda: os.close(1)).fails("Bad file descriptor")


if __name__ == "__main__":
    main()
