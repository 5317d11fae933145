#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Tests `tidemark top` with real processes that publish their statistics.

They are those of tests/monitor/publisher.c. The truth comes from what these print about their own caches.
"""
import fcntl
import os
import pathlib
import pty
import re
import resource
import signal
import struct
import sys
import termios
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import harness
from harness import check, equal
from peers import Peer
from verbs import keys_in_manual, keys_of, manual, part_of

FIELDS = ("kind", "device", "reserved", "reserved_peak", "active", "active_peak", "allocated", "allocated_peak",
          "requested", "requested_peak", "blocks", "allocations", "ooms")
os.environ.pop("TIDEMARK_MONITOR", None)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # of SIGQUIT


def top(*words, status=0, **more):
    return harness.run("top", *words, **more).works(status).out


def json_of(*words, status=0, **more):
    return harness.run("top", *words, "--json", **more).works(status).json()


class Publisher(Peer):
    """A process with caches, which publishes them in a folder."""

    def __init__(self, folder, label="run", devices=2):
        super().__init__("monitor_publisher", label, devices, env={"TIDEMARK_MONITOR": folder})
        self.label = label
        self.hear()

    def hear(self):
        """What the process says about its caches, in the order in which it made them."""
        self.caches: list[dict[str, Any]] = []
        while (line := self.line()) != ".":
            words = line.removeprefix("full ").split()
            self.caches.append(dict(zip(FIELDS, [words[0], *map(int, words[1:])])))

    def alloc(self, device, size):
        self.tell(f"alloc {device} {size}")
        self.hear()


# Places in a page, as docs/monitor.md and monitor.h have them.
STATE_AT, ROWS_AT, ROW_STRIDE = 512, 1024, 2560
HEAD_PID_NAMESPACE, HEAD_COMMAND = 32, 48
STATE_UPDATED = 8
ROW_LABEL, ROW_RESERVED = 56, 88  # each behind the number of the slot
INT64_MOST = (1 << 63) - 1


def page_of(folder, process):
    """The path of the page of a process."""
    return next(str(path) for path in pathlib.Path(folder).glob(f"{process.pid}-*"))


def compare(got, want, text):
    """A cache of the JSON output with what the process said."""
    is_device = want["kind"] == "device"
    equal(got["kind"], want["kind"], f"{text}: the kind")
    equal(got["device"], want["device"] if is_device else None, f"{text}: the device")
    for name in ("reserved", "active", "allocated", "requested"):
        for tail in ("", "_peak"):
            value = want[name + tail] if is_device or name != "requested" else None
            equal(got[f"{name}{tail}_bytes"], value, f"{text}: {name}{tail}")
    for name in ("blocks", "allocations", "ooms"):
        equal(got[name], want[name], f"{text}: {name}")


# ---------------------------------------------------------------------------------------------------
# Once


def test_json_says_what_the_process_says(folder):
    with Publisher(folder, "rank 0") as one, Publisher(folder, "rank 1", 4) as other:
        other.alloc(3, 77_000_001)
        one.alloc(0, 1 << 58)  # fails
        said = json_of("--once", "--folder", folder)
        equal(sorted(each["pid"] for each in said["processes"]), sorted([one.pid, other.pid]), "the processes")
        for process in one, other:
            caches = sorted((c for c in said["caches"] if c["pid"] == process.pid), key=lambda c: c["cache"])
            equal(len(caches), len(process.caches), "the number of caches")
            for got, want in zip(caches, process.caches):
                compare(got, want, f"process {process.pid}, cache {got['cache']}")
            equal(caches[0]["label"], process.label)
            equal([c["policy"] for c in caches[:2]], ["torch", "tide"])
        equal(one.caches[0]["ooms"], 1, "requests that failed")
        sizes = [cache["reserved_bytes"] for cache in said["caches"]]
        equal(sizes, sorted(sizes, reverse=True), "the order")
        again = json_of("--folder", folder)  # without --once
        equal([list(cache) for cache in again["caches"]], [list(cache) for cache in said["caches"]], "the keys")


def test_the_environment_names_the_folder(folder):
    with Publisher(folder) as process:
        said = json_of(env={"TIDEMARK_MONITOR": folder})
        equal({cache["pid"] for cache in said["caches"]}, {process.pid})


def test_text_fits_and_has_a_line_for_each_cache(folder):
    with Publisher(folder, "a label") as process:
        for line in ("--once", "--folder", folder), ("--folder", folder):  # it is not a terminal
            lines = top(*line).splitlines()
            check(all(len(each) <= 100 for each in lines), f"long lines: {lines}")
            lines = [each for each in lines if not each.startswith(" " * 20)]  # without the rest of long names
            equal(len(lines), 1 + 5, f"the lines of {lines}")
            check(all(re.match(rf" *{process.pid}  ", each) for each in lines[1:]), f"{lines}")
            check("device 1 tide" in lines[1] and "a label" in lines[2], f"{lines}")
            check("\033" not in "".join(lines), f"{lines}")


def test_the_headings_are_those_of_the_manual(folder):
    shown = [line.split() for line in manual().split("\n") if line.lstrip().startswith("pid  cache")]
    with Publisher(folder):
        equal([top("--once", "--folder", folder).splitlines()[0].split()], shown, "the headings")


def test_processes_by_number(folder):
    with Publisher(folder) as one, Publisher(folder) as other:
        said = json_of(str(one.pid), "--folder", folder)
        equal({cache["pid"] for cache in said["caches"]}, {one.pid})
        both = json_of(str(one.pid), str(other.pid), "--folder", folder)
        equal(len(both["processes"]), 2, "the number of processes")
        said = json_of(str(one.pid), "1", "--folder", folder, status=1)
        equal(len(said["processes"]), 1)
        top("1", "--folder", folder, status=1)
        top("1", "--prometheus", "--folder", folder, status=1)


def test_nothing_to_show(folder):
    check("No process publishes" in top("--once", "--folder", folder), "no words")
    equal(json_of("--folder", folder), {"processes": [], "caches": [], "ledgers": [], "members": []})
    check("\ntidemark_" not in top("--prometheus", "--folder", folder), "there are samples")
    top("--once", "--folder", os.path.join(folder, "missing"))


def test_bad_command_lines(folder):
    for line, part in (
        (["x"], "'x' is not a process id"),
        (["0"], "'0' is not a process id"),
        (["-n", "0"], "--interval must be"),
        (["-n", "nan"], "--interval must be"),
        (["-n", "1x"], "--interval must be"),
        (["--json", "--prometheus"], "cannot be combined"),
        (["--folder", "relative", "--once"], "does not begin with '/'"),
    ):
        answer = harness.run("top", *line)
        answer.fails(part)
        check(answer.err.startswith("tidemark top: "), answer.err)


def test_a_folder_that_is_open_to_others_is_refused(folder):
    os.chmod(folder, 0o755)
    harness.run("top", "--once", "--folder", folder).fails("closed to others")


def test_killed_processes_vanish(folder):
    with Publisher(folder) as one, Publisher(folder) as other:
        one.kill()
        equal(len(os.listdir(folder)), 2, "the pages before anybody looked")
        said = json_of("--folder", folder)
        equal({cache["pid"] for cache in said["caches"]}, {other.pid})
        equal(len(os.listdir(folder)), 1, "the pages")
    equal(os.listdir(folder), [], "the pages after the end")


def test_a_stopped_process_is_said_to_be_silent(folder):
    with Publisher(folder) as process:
        process.stop()
        with open(page_of(folder, process), "r+b") as page:  # as if a minute had passed since
            updated, = struct.unpack_from("=Q", page.read(), STATE_AT + STATE_UPDATED)
            page.seek(STATE_AT + STATE_UPDATED)
            page.write(struct.pack("=Q", updated - 60 * 10**9))
        shown = " ".join(top("--once", "--folder", folder).split())
        check(int(part_of(rf"Process {process.pid} has published nothing for (\d+) s", shown)) >= 60, shown)


def test_the_manual_has_the_keys_of_json(folder):
    with Publisher(folder):
        equal(keys_in_manual("top"), keys_of(json_of("--folder", folder)), "the keys in the manual")


# ---------------------------------------------------------------------------------------------------
# Prometheus: a parser of the text format, by its published grammar


def label_values(text):
    """The labels between the braces of a sample."""
    labels, at = {}, 0
    while at < len(text):
        name = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="').match(text, at)
        assert name, f"no label at {text[at:]!r}"
        at, value = name.end(), ""
        while text[at] != '"':
            check(text[at] != "\n", f"a line feed in {text!r}")
            if text[at] == "\\":
                value += {"\\": "\\", '"': '"', "n": "\n"}[text[at + 1]]
                at += 2
            else:
                value += text[at]
                at += 1
        check(name[1] not in labels, f"{name[1]} twice in {text!r}")
        labels[name[1]] = value
        at += 1
        if at < len(text):
            equal(text[at], ",", "what follows a label")
            at += 1
    return labels


def parsed(text):
    """{metric: (type, {labels: value})}, with every rule of the format checked."""
    check(text.endswith("\n"), "the last line has no end")
    metrics, current = {}, None
    for line in text.split("\n")[:-1]:
        comment = re.fullmatch(r"# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)", line)
        if comment and comment[1] == "HELP":
            check(comment[2] not in metrics, f"{comment[2]} twice")
            current = comment[2]
            metrics[current] = [None, {}]
            continue
        if comment:
            equal(comment[2], current, "the metric of TYPE")
            check(comment[3] in ("gauge", "counter") and metrics[current][0] is None, line)
            metrics[current][0] = comment[3]
            continue
        sample = re.fullmatch(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{(.*)\} (-?[0-9.]+)", line)
        assert sample and sample[1] == current and metrics[current][0], f"{line!r} is no sample of {current}"
        labels = frozenset(label_values(sample[2]).items())
        check(labels not in metrics[current][1], f"{line!r} is there twice")
        metrics[current][1][labels] = float(sample[3])
    return metrics


def test_the_parser_finds_faults(folder):
    for text in ("a 1", 'a{b="c} 1\n', '# HELP a x\n# TYPE a gauge\na{b="1"} 1\na{b="1"} 2\n', "# TYPE a gauge\n",
                 '# HELP a x\n# TYPE a gauge\nb{c="1"} 1\n'):
        try:
            parsed(text)
        except (AssertionError, IndexError, KeyError):
            continue
        raise AssertionError(f"{text!r} was accepted")


def test_prometheus(folder):
    label = 'say "7"\\ \n ümlaut\\n'
    names = {"reserved_bytes": "reserved", "reserved_peak_bytes": "reserved_peak", "active_bytes": "active",
             "allocated_bytes": "allocated", "requested_bytes": "requested", "blocks": "blocks",
             "allocations_total": "allocations", "ooms_total": "ooms"}
    with Publisher(folder, label) as one, Publisher(folder, devices=1) as other:
        metrics = parsed(top("--prometheus", "--folder", folder))
        for name, (kind, _) in metrics.items():
            equal(kind, "counter" if name.endswith("_total") else "gauge", f"the type of {name}")
        for name, field in names.items():
            samples = metrics[f"tidemark_{name}"][1]
            want = {}
            for process in one, other:
                for number, cache in enumerate(process.caches, 1):
                    if cache["kind"] != "device" and field == "requested":
                        continue
                    is_device = cache["kind"] == "device"
                    labels = {
                        "pid": str(process.pid), "cache": str(number), "kind": cache["kind"],
                        "device": str(cache["device"]) if is_device else "",
                        "policy": ("torch", "tide")[cache["device"]] if is_device else "",
                        "label": process.label if number == 1 else "",
                    }
                    want[frozenset(labels.items())] = float(cache[field])
            equal(samples, want, f"tidemark_{name}")


# ---------------------------------------------------------------------------------------------------
# Terminals


def fresh_terminal():
    """The settings of a new one."""
    screen, other = pty.openpty()
    settings = termios.tcgetattr(other)
    os.close(screen)
    os.close(other)
    return settings


class Terminal(harness.Terminal):
    """`tidemark top` on a terminal of its own."""

    def __init__(self, *words, rows=30):
        super().__init__("top", *words, columns=100, rows=rows)

    def is_raw(self):
        return not termios.tcgetattr(self.screen)[3] & termios.ICANON

    def end(self, status=0):
        """The program has the exit status, and the terminal is as it was."""
        super().end(status)
        equal(termios.tcgetattr(self.screen), fresh_terminal(), "the terminal afterwards")
        check(self.seen.rstrip().endswith("\033[?1049l"), f"the screen was not left: {self.seen[-80:]!r}")
        check("\033[?25h" in self.seen and "\033[?7h" in self.seen, "cursor and lines")


def test_a_live_table(folder):
    with Publisher(folder, "the label") as process:
        terminal = Terminal("--folder", folder, "-n", "0.1")
        terminal.wait_for(rf"{process.pid}  device 0 torch .*the label")
        check(terminal.is_raw() and "\033[?1049h" in terminal.seen, f"{terminal.seen!r}")
        process.alloc(0, 3 << 30)
        terminal.seen = ""
        terminal.wait_for(r"device 0 torch +3\.0\d GiB")
        process.kill()
        terminal.wait_for("No process publishes")
        terminal.write(b"xq")
        terminal.end()


def test_a_live_table_is_cut_to_the_screen(folder):
    with Publisher(folder, "the label", 4):
        terminal = Terminal("--folder", folder, "-n", "0.1", rows=5)
        terminal.wait_for(r"q ends(?s:.*)q ends")
        picture = re.sub(r"\033\[[?0-9]*[a-zA-Z]", "", terminal.seen.split("q ends")[1])
        check(picture.count("\r\n") == 4, f"{picture!r}")
        fcntl.ioctl(terminal.screen, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        terminal.wait_for(r"cpu(?s:.*)cpu")
        terminal.write(b"q")
        terminal.end()


def forged(folder, process, change):
    """A copy of the page of a process, changed, and locked by this process as long as the file is open."""
    page = bytearray(pathlib.Path(page_of(folder, process)).read_bytes())
    struct.pack_into("=Q", page, HEAD_PID_NAMESPACE, 1)  # of another computer: the lock alone counts
    change(page)
    file = open(os.path.join(folder, "1-1-1-0"), "wb+", buffering=0)
    os.chmod(file.name, 0o600)
    fcntl.lockf(file, fcntl.LOCK_EX)
    file.write(page)
    return file


def test_pages_of_nonsense(folder):
    def change(page):
        struct.pack_into("=Q", page, STATE_AT + STATE_UPDATED, (1 << 64) - 1)
        page[HEAD_COMMAND:HEAD_COMMAND + 128] = b"\033]0;c" * 25 + b"ccc"
        for row, reserved in enumerate([-INT64_MOST - 1, INT64_MOST, -1, 5]):
            at = ROWS_AT + row * ROW_STRIDE
            struct.pack_into("=qqqq", page, at + ROW_RESERVED, reserved, INT64_MOST, INT64_MOST, 0)
            page[at + ROW_LABEL:at + ROW_LABEL + 32] = b"\033[2J" * 8

    with Publisher(folder) as process, forged(folder, process, change):
        said = json_of("--folder", folder)
        equal(len(said["processes"]), 2, "the processes")
        sizes = [cache["reserved_bytes"] for cache in said["caches"]]
        equal(sizes, sorted(sizes, reverse=True), "the order")
        check(INT64_MOST in sizes, f"the forged row is missing: {sizes}")
        text = top("--once", "--folder", folder)
        check("\033" not in text and "\\x1b[2J" in text, f"{text!r}")
        check("has published nothing" not in text, f"a page of the future is silent: {text}")
        check("\033" not in top("--prometheus", "--folder", folder), "an escape sequence")
        terminal = Terminal("--folder", folder, "-n", "0.1")
        terminal.wait_for(r"x1b\[2J")
        check("\033]0;" not in terminal.seen and "silent" not in terminal.seen, f"{terminal.seen!r}")
        equal(terminal.seen.count("\033[2J"), 1, "how often the screen is cleared")
        terminal.write(b"q")
        terminal.end()


def test_a_live_table_without_colours(folder):
    with Publisher(folder) as process:
        terminal = Terminal("--folder", folder, "-n", "0.1", "--color", "never")
        terminal.wait_for(rf"{process.pid}  device 0")
        equal(re.findall(r"\033\[[0-9;]*m", terminal.seen), [], "the colours")
        terminal.write(b"q")
        terminal.end()


def test_signals_restore_the_terminal(folder):
    for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT:
        terminal = Terminal("--folder", folder, "-n", "3600")
        terminal.wait_for("No process publishes")
        terminal.child.send_signal(number)
        terminal.end(-number)


def test_control_c_and_control_z(folder):
    terminal = Terminal("--folder", folder, "-n", "3600")
    terminal.wait_for("No process publishes")
    terminal.child.send_signal(signal.SIGTSTP)
    terminal.wait_for(re.escape("\033[?1049l"))
    os.waitid(os.P_PID, terminal.child.pid, os.WSTOPPED)
    check(not terminal.is_raw(), "the terminal is raw while the program is stopped")
    terminal.seen = ""
    terminal.child.send_signal(signal.SIGCONT)
    terminal.wait_for(r"1049h(?s:.*)No process publishes")
    while not terminal.is_raw():  # SIGCONT may be caught once more
        os.sched_yield()
    terminal.write(b"\x03")
    terminal.end(-signal.SIGINT)


if __name__ == "__main__":
    harness.main()
