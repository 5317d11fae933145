# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""The harness of tests in Python, as tests/t.h is for those in C. A script defines functions test_... and ends with
`if __name__ == "__main__": harness.main()`.

    script [--list] [part of a name ...]

TIDE_TEST_TIER     quick (default) or thorough, which is for what takes long: see scaled(), some() and slow()
TIDE_TEST_SCALE    a factor for scaled(); default 1
TIDE_TEST_SEED     what seed() returns; default 1; always printed
TIDE_TEST_TIMEOUT  a factor for both limits below; default 1
TIDEMARK_BIN       the program under test (build/tidemark otherwise)
TIDEMARK_SOURCE    the folder of sources, TIDEMARK_DATA that of optional recordings (../shared otherwise)
TIDEMARK_SANITIZE  the sanitizer that the program was built with

A command may use 300 s of processor time, so a busy computer does not matter. A test that hangs ends after 1800 s by the
clock. Each passed test prints its processor time, with that of its commands, and its elapsed time.
"""
from __future__ import annotations

import codecs
import contextlib
import fcntl
import functools
import inspect
import json
import os
import pathlib
import pty
import re
import resource
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from types import FrameType, ModuleType
from typing import Any, NoReturn, TypeVar

Case = TypeVar("Case")
Test = Callable[..., None]
Fixture = Callable[[], contextlib.AbstractContextManager[Any]]

SOURCE = os.path.realpath(os.environ.get("TIDEMARK_SOURCE") or os.path.join(os.path.dirname(__file__), ".."))
DATA = os.path.join(SOURCE, "tests", "data")
MORE = os.path.abspath(os.environ.get("TIDEMARK_DATA") or os.path.join(SOURCE, "..", "shared"))
PROGRAM = os.path.abspath(os.environ.get("TIDEMARK_BIN") or os.path.join(SOURCE, "build", "tidemark"))
SANITIZER = (os.environ.get("TIDEMARK_SANITIZE") or "").replace("OFF", "")
if os.uname().machine == "aarch64":  # there the search for leaks takes seconds for each process
    os.environ.setdefault("ASAN_OPTIONS", "detect_leaks=0")


class Skip(Exception):
    """Ends a test as skipped, with a reason."""


class NotDone(Exception):
    """A limit ended a command or the test."""

    def __init__(self, text: str) -> None:
        super().__init__(f"not done after {text}")  # ./dev looks for these words, and runs such a script again, alone


def check(condition: object, text: str) -> None:
    if not condition:
        raise AssertionError(text)


def equal(got: object, want: object, text: str = "it") -> None:
    check(got == want, f"{text} is {got!r}, not {want!r}")


# ---------------------------------------------------------------------------------------------------
# Settings


def setting(name: str, default: str, pattern: str) -> str:
    text = os.environ.get(name) or default
    if not re.fullmatch(pattern, text):
        sys.exit(f"{name}={text} is wrong; the default is {default}")
    return text


POSITIVE = r"(?=.*[1-9])[0-9]{0,11}\.?[0-9]*"
TIER = setting("TIDE_TEST_TIER", "quick", "quick|thorough")
SEED = int(setting("TIDE_TEST_SEED", "1", "0x[0-9a-fA-F]+|[1-9][0-9]*|0"), 0)
SCALE = float(setting("TIDE_TEST_SCALE", "1", POSITIVE))
PATIENCE = float(setting("TIDE_TEST_TIMEOUT", "1", POSITIVE))
PROCESSOR_S = max(1, round(300 * PATIENCE))  # that one command may take
HANGS_S = 1800 * PATIENCE  # by the clock: a test that takes longer takes for ever
SLOW: set[Test] = set()
VARIANTS: dict[Test, Iterable[str]] = {}


def is_thorough() -> bool:
    return TIER == "thorough"


def seed() -> int:
    return SEED


def scaled(count: int, least: int = 1) -> int:
    """How often a test does something: a tenth in the quick tier, and no less than `least`, unless `count` is."""
    return max(int(count * SCALE / (1 if is_thorough() else 10)), min(least, count))


def some(cases: Iterable[Case], step: int = 5) -> list[Case]:
    """Of many similar cases the quick tier takes each `step`th; `step` consecutive seeds take all."""
    cases = list(cases)
    return cases if is_thorough() else cases[SEED % min(step, len(cases) or 1)::step]


def slow(test: Test) -> Test:
    """Marks a test whose price is fixed: only the thorough tier runs it."""
    SLOW.add(test)
    return test


def over(variants: Iterable[str]) -> Callable[[Test], Test]:
    """Marks a test that runs once for each variant, which it takes as the parameter `variant`."""

    def mark(test: Test) -> Test:
        VARIANTS[test] = variants
        return test

    return mark


def more(*parts: str) -> str:
    """The path of an optional recording."""
    path = os.path.join(MORE, *parts)
    if not os.path.exists(path):
        raise Skip(f"TIDEMARK_DATA has no {os.path.join(*parts)}")
    return path


# ---------------------------------------------------------------------------------------------------
# Commands


@functools.cache
def library_calls() -> list[str]:
    """The functions of the library, without their prefix."""
    headers = pathlib.Path(SOURCE, "include", "tidemark").glob("*.h")
    return [name for header in headers for name in re.findall(r"\btide_(\w+)\(", header.read_text(encoding="utf-8"))]


def names_no_call(text: str) -> None:
    for word in re.findall(r"\b(?:tide_+)?([a-z0-9]+(?:_[a-z0-9]+)+): ", text):
        is_call = any(call == word or call.endswith(f"_{word}") for call in library_calls())
        check(not is_call, f"{text!r} names the call {word!r}")


class Answer:
    """What a command said: its exit status, and standard output (as bytes and as text) and error."""

    def __init__(self, words: tuple[str, ...], status: int, out: bytes | None, err: bytes | None) -> None:
        self.words, self.status, self.bytes = words, status, out or b""
        self.out = self.bytes.decode("utf-8", "strict" if self.bytes[:1].isascii() else "replace")
        self.err = (err or b"").decode()

    def works(self, *statuses: int) -> Answer:
        """The status is 0, or one of `statuses`, and there is no message."""
        check(self.status in (statuses or (0,)), f"the status of {self.words} is {self.status} ({self.err!r})")
        equal(self.err, "", f"standard error of {self.words}")
        return self

    def fails(self, part: str = "") -> None:
        """A bad command line or file: status 2, nothing on standard output, and a message of one line. It does not begin
        with the name of a library function, which means nothing to users."""
        equal(self.status, 2, f"the status of {self.words} ({self.err!r})")
        equal(self.out, "", "standard output")
        check(self.err.startswith("tidemark") and self.err.count("\n") == 1, f"the message is {self.err!r}")
        check(part in self.err, f"{self.err!r} does not say {part!r}")
        names_no_call(self.err)

    def json(self) -> Any:
        def refuse(text: str) -> NoReturn:
            raise AssertionError(f"{text} in JSON")

        return json.loads(self.out, parse_constant=refuse)


def start(*words: str, program: str = PROGRAM, env: dict[str, str] | None = None, **popen: Any) -> subprocess.Popen[bytes]:
    """Starts a command, with a limit of processor time, as on a terminal with colours."""
    plain = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    child = subprocess.Popen([program, *words], env={**plain, "TERM": "xterm", **(env or {})}, **popen)
    # From here, because code between fork and exec is unsafe where threads start commands.
    most = resource.prlimit(child.pid, resource.RLIMIT_CPU)[1]
    least = PROCESSOR_S if most == resource.RLIM_INFINITY else min(PROCESSOR_S, most)
    resource.prlimit(child.pid, resource.RLIMIT_CPU, (least, most))
    return child


def run(*words: str, stdin: Any = b"", **popen: Any) -> Answer:
    """Runs a command to its end. `stdin` is what it reads from a pipe, or what Popen takes; the others are those of start()."""
    data = stdin if isinstance(stdin, bytes) else None
    streams = {"stdin": stdin if data is None else subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start(*words, **{**streams, **popen}) as child:
        try:
            out, err = child.communicate(data, HANGS_S)
        except subprocess.TimeoutExpired:  # in a thread, where the alarm of the test does not ring
            raise NotDone(f"{HANGS_S:g} s: {words}") from None
        finally:
            child.kill()
    if child.returncode == -signal.SIGXCPU:
        raise NotDone(f"{PROCESSOR_S} s of processor time: {words}")
    return Answer(words, child.returncode, out, err)


class Terminal:
    """A command with some of its streams on a terminal, which controls it if all are, and the others in pipes."""

    def __init__(self, *words: str, streams: Iterable[str] = ("stdin", "stdout", "stderr"), columns: int = 80, rows: int = 24,
                 **popen: Any) -> None:
        self.screen, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.seen, self.decoder = "", codecs.getincrementaldecoder("utf-8")()
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        on_terminal = dict.fromkeys(streams, other)
        if len(on_terminal) == len(pipes):
            popen.update(start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.child = start(*words, **{**pipes, **on_terminal, **popen})
        os.close(other)
        at_end(self.close)

    def write(self, data: bytes) -> None:
        """Types on the terminal."""
        os.write(self.screen, data)

    def read(self) -> bool:
        """Reads more of what was written to the terminal; False at the end."""
        try:
            got = os.read(self.screen, 65536)
        except OSError:  # the other end is closed
            got = b""
        self.seen += self.decoder.decode(got)
        return got != b""

    def wait_for(self, pattern: str) -> None:
        while not re.search(pattern, self.seen):
            check(self.read(), f"it ended without {pattern!r}: {self.seen!r}")

    def end(self, status: int = 0) -> str:
        """Reads to the end. Returns what came through pipes."""
        if self.child.stdin:
            self.child.stdin.close()
        while self.read():
            pass
        text = "".join(pipe.read().decode() for pipe in (self.child.stdout, self.child.stderr) if pipe)
        equal(self.child.wait(), status, f"the status ({self.seen!r})")
        return text

    def close(self) -> None:
        os.close(self.screen)
        with self.child:  # waits, and closes the pipes
            self.child.kill()


# ---------------------------------------------------------------------------------------------------
# The runner

endings = contextlib.ExitStack()


def at_end(function: Callable[[], object]) -> None:
    """Calls a function when the test has ended, however it did. The last one is called first."""
    endings.callback(function)


def processor_s() -> float:
    """Processor time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def ring(_number: int, _frame: FrameType | None) -> NoReturn:
    raise NotDone(f"{HANGS_S:g} s")


def tests_of(modules: Iterable[ModuleType], parts: list[str]) -> Iterator[tuple[str, Test, dict[str, str]]]:
    for module in modules:
        for key, test in vars(module).items():
            if not key.startswith("test_") or getattr(test, "__module__", "") != module.__name__:
                continue
            variants = [(f"[{each}]", {"variant": each}) for each in VARIANTS[test]] if test in VARIANTS else [("", {})]
            for tail, arguments in variants:
                name = key.removeprefix("test_") + tail
                if not parts or any(part in name for part in parts):
                    yield name, test, arguments


def call(test: Test, arguments: dict[str, str], fixtures: dict[str, Fixture]) -> None:
    if test in SLOW and not is_thorough():
        raise Skip("only in the thorough tier")
    signal.setitimer(signal.ITIMER_REAL, HANGS_S)
    try:
        with contextlib.ExitStack() as stack, endings:
            names = [name for name in inspect.signature(test).parameters if name in fixtures]
            test(**arguments, **{name: stack.enter_context(fixtures[name]()) for name in names})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def explain(error: BaseException) -> str:
    """Where a test failed, and why: first the innermost line of a test, then those that called it."""
    frames = [(os.path.realpath(frame.filename), frame.lineno) for frame in reversed(traceback.extract_tb(error.__traceback__))]
    places = [f"{os.path.relpath(file, SOURCE)}:{line}" for file, line in frames
              if file.startswith(SOURCE) and file != os.path.realpath(__file__)]
    kind = "" if isinstance(error, (AssertionError, NotDone)) else f"{type(error).__name__}: "
    callers = f"\n  called from {', '.join(places[1:])}" if places[1:] else ""
    return f"{places[0] if places else 'harness'}: {kind}{str(error)[:2000]}{callers}"


class Report:
    """Prints what became of each test, and counts. `command` runs one again, with its name behind, or `again`."""

    def __init__(self, *command: str) -> None:
        self.command = command
        self.counts = {"ok": 0, "FAIL": 0, "skip": 0}
        self.begin()
        print(f"seed {SEED}, scale {SCALE:g}, tier {TIER}", flush=True)

    def begin(self) -> None:
        self.processor, self.clock = processor_s(), time.monotonic()

    def add(self, result: str, name: str, text: str) -> None:
        self.counts[result] += 1
        print(f"{result:<4} {name}{text}", flush=True)

    def ok(self, name: str) -> None:
        processor, clock = processor_s() - self.processor, time.monotonic() - self.clock
        self.add("ok", name, f" ({1000 * processor:.0f} ms of {1000 * clock:.0f} ms)")

    def skip(self, name: str, reason: object) -> None:
        self.add("skip", name, f": {reason}")

    def fail(self, name: str, error: BaseException, again: str = "") -> None:
        ours = {"TIDE_TEST_SEED": SEED} | {k: v for k, v in os.environ.items() if re.match("TIDE_TEST_|TIDEMARK_", k)}
        settings = " ".join(f"{k}={shlex.quote(str(v))}" for k, v in ours.items())
        self.add("FAIL", name, f": {explain(error)}\nto repeat: {settings} {shlex.join((*self.command, again or name))}")

    def end(self) -> NoReturn:
        print(f"{self.counts['ok']} passed, {self.counts['FAIL']} failed, {self.counts['skip']} skipped")
        sys.exit(1 if self.counts["FAIL"] else 0 if self.counts["ok"] else 77)


def skip_all(reason: str) -> NoReturn:
    """Ends a script whose tests all need something that is not there."""
    print(f"skip all: {reason}\n0 passed, 0 failed, 1 skipped")
    sys.exit(77)


def main(*modules: ModuleType, **fixtures: Fixture) -> NoReturn:
    """Runs the tests of the modules (of the script otherwise) in the order of their definition. A parameter of a test is the
    name of a fixture, whose context manager is entered for that test; `folder` is an empty folder."""
    parts = [word for word in sys.argv[1:] if word != "--list"]
    if any(part.startswith("-") for part in parts):
        sys.exit(f"usage: {sys.argv[0]} [--list] [part of a name ...]")
    tests = list(tests_of(modules or [sys.modules["__main__"]], parts))
    if "--list" in sys.argv:
        print(*(name for name, _, _ in tests), sep="\n")
        sys.exit(0)
    if not tests:
        sys.exit(f"no test has a name with {parts}")
    signal.signal(signal.SIGALRM, ring)
    for number in signal.SIGQUIT, signal.SIGHUP, signal.SIGINT:  # ignored where this runs in the background
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    all_fixtures: dict[str, Fixture] = {"folder": tempfile.TemporaryDirectory, **fixtures}
    report = Report(sys.argv[0])
    for name, test, arguments in tests:
        report.begin()
        try:
            call(test, arguments, all_fixtures)
            report.ok(name)
        except Skip as reason:
            report.skip(name, reason)
        except Exception as error:  # whatever it is, the next test is run
            report.fail(name, error)
    report.end()
