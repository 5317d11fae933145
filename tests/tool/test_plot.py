#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Tests tidemark plot, and the timeline of tidemark report.

The curves are computed a second time by tests/oracle/snapshot.py, from pickles and without Tidemark. They are compared
with the points of --json, with the paths of the SVG picture, and with the dots of the drawing for terminals. Recordings
come from tests/data, from traces/ of TIDEMARK_DATA where that is, and from tests/oracle/generate.py with fixed seeds.
"""
from __future__ import annotations

import json
import os
import pathlib
import random
import re
import struct
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from typing import Any

sys.path.extend(str(pathlib.Path(__file__).resolve().parents[1] / part) for part in ("", "oracle"))
import command
import generate
import harness
import snapshot as reference
from command import dumped
from harness import DATA, check, equal, scaled, some
from recording import Recording, segment_of

SVG = "{http://www.w3.org/2000/svg}"
CURVES = ("reserved", "allocated", "requested")
MARGIN = 12  # columns to the left of a drawing
MIB = 1 << 20
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
STEP_PLACES = 1 << 20


def works(*words: str, data: bytes = b"") -> str:
    return harness.run(*words, stdin=data).works().out


def fails(part: str, *words: str, data: bytes = b"") -> None:
    harness.run(*words, stdin=data).fails(part)


def answer(*words: str, data: bytes = b"") -> dict[str, Any]:
    return dict(harness.run(*words, "--json", stdin=data).works().json())


def file_of(name: str) -> str:
    return os.path.join(DATA, f"{name}.tide")


def plot(path: str, *options: str, data: bytes = b"") -> dict[str, Any]:
    return answer("plot", path, *options, data=data)


# ---------------------------------------------------------------------------------------------------
# The truth


class Truth:
    """The curves of a device after each entry, and before the first."""

    def __init__(self, snapshot: command.Snapshot, device: int = 0) -> None:
        self.run = run = reference.Run(snapshot, device)
        self.entries = run.entries
        names = CURVES if run.are_sizes_known else CURVES[:1]
        self.series = {name: [getattr(run.before, name), *run.series[name]] for name in names}
        if not run.has_segments and self.entries:
            self.series.pop("reserved")

    def places(self, kind: str, steps: list[dict[str, Any]] | None = None) -> tuple[list[int], int]:
        """Where each entry lies on the x axis, and the length of the axis."""
        if kind == "entry":
            return list(range(len(self.entries))), max(1, len(self.entries))
        if kind == "time":
            first, latest, places = self.entries[0]["time_us"], 0, []
            for entry in self.entries:
                latest = max(latest, 1000 * (entry["time_us"] - first))
                places.append(latest)
            return places, latest + 1
        assert steps is not None
        return [number * STEP_PLACES + at * STEP_PLACES // step["entries"] for number, step in enumerate(steps)
                for at in range(step["entries"])], len(steps) * STEP_PLACES

    def buckets(self, name: str, places: list[int], length: int, count: int) -> list[tuple[int, int, int]]:
        """Least, most and last in each bucket, with the value that it begins with."""
        values = self.series[name]
        result, at = [], 0
        for bucket in range(count):
            inside = [values[at]]
            while at < len(places) and places[at] * count // length == bucket:
                at += 1
                inside.append(values[at])
            result.append((min(inside), max(inside), inside[-1]))
        return result


def has_times(snapshot: command.Snapshot, device: int = 0) -> bool:
    return all("time_us" in entry for entry in snapshot["device_traces"][device])


def recordings(folder: str) -> Iterator[tuple[str, command.Snapshot]]:
    """Files that the oracle can follow."""
    yield from command.own_recordings(folder, 5)
    for seed in command.numbers(12):
        snapshot = command.generated(seed)
        yield saved(dumped(snapshot), folder, f"made{seed}.pickle"), snapshot


def saved(data: bytes, folder: str, name: str) -> str:
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(data)
    return path


def points_of(said: dict[str, Any], name: str, file: int = 0) -> list[tuple[int, int, int]]:
    return [(point[f"{name}_least"], point[f"{name}_most"], point[f"{name}_last"]) for point in said["points"]
            if point["file"] == file]


def points_are_right(path: str, truth: Truth, kind: str, *options: str,
                     steps: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    said = plot(path, "--x", kind, *options)
    places, length = truth.places(kind, steps)
    count = said["buckets"]
    for name in truth.series:
        equal(points_of(said, name), truth.buckets(name, places, length, count), f"{name} of {path}, {kind} {options}")
    held = [0] * count
    for place in places:
        held[place * count // length] += 1
    equal([point["entries"] for point in said["points"]], held, f"entries in the buckets of {path}")
    return said


# ---------------------------------------------------------------------------------------------------
# Points


def test_all_points_equal_an_independent_computation(folder: str) -> None:
    seen = 0
    for path, snapshot in recordings(folder):
        device = next((at for at, entries in enumerate(snapshot["device_traces"]) if entries), None)
        if device is None:
            continue
        truth = Truth(snapshot, device)
        for kind in ("entry", "time") if has_times(snapshot, device) else ("entry",):
            points_are_right(path, truth, kind, "--device", str(device))
        points_are_right(path, truth, "entry", "--device", str(device), "--width", "337")
        seen += 1
    check(seen >= (6 if harness.is_thorough() else 3), f"only {seen} recordings were compared")


def test_all_points_of_real_runs() -> None:
    paths = [path for path in command.shared_files() if "corners" not in path]
    for number, path in some(enumerate(paths), 10):
        if os.path.getsize(path) < 1 << 20:  # a longer one has a test of its own
            points_are_right(path, Truth(reference.load(path)), ("time", "entry")[number % 2])


def test_points_by_step() -> None:
    path = file_of("gnn_retry")
    steps = answer("report", path)["steps"]["rows"]
    said = points_are_right(path, Truth(command.read(path)), "step", steps=steps)
    whole = [at for at, step in enumerate(steps) if step["is_whole"]]
    bands = [band for band in said["bands"] if band["step"]]
    equal([(band["step"], band["from"], band["to"]) for band in bands],
          [(number + 1, number, number + 1) for number in range(len(whole))], "the bands of steps")
    equal(said["points"][0]["x"], -float(not steps[0]["is_whole"]), "where the axis begins")


def spiky(count: int, at: int) -> command.Snapshot:
    """A small block comes and goes; once a large one is there, for one entry."""
    made, base = Recording(), 1 << 44
    made.add("segment_alloc", base, 64 * MIB, time_us=5)
    for number in range(count):
        for action in ("alloc", "free_requested", "free_completed"):
            made.add(action, base, 48 * MIB if number == at else 4096 + 512 * (number % 7), time_us=5 + 3 * number)
    made.segments = [segment_of(base, 64 * MIB, "inactive")]
    return made.snapshot()


def test_no_peak_is_lost_at_any_width() -> None:
    rng = random.Random(7)
    for at in some((0, 1, 400, 998, 999), 2):
        data = dumped(spiky(1000, at))
        for width in [320, 321, 960, 4000, *(rng.randrange(320, 1500) for _ in range(scaled(4)))]:
            said = plot("-", "--width", str(width), data=data)
            equal(max(most for _, most, _ in points_of(said, "allocated")), 48 * MIB, f"the peak {at} at {width}")
            equal(said["files"][0]["peak_allocated_entry"], 1 + 3 * at, "the entry of the peak")
        for width in (40, 41, 100, 333):
            drawn = Drawing(works("plot", "-", "--width", str(width), "--height", "8", data=data))
            top = max(drawn.column_tops())
            equal(top, 32, f"the highest dot at {width} columns")
            check("48.00 MiB allocated" in drawn.text, drawn.text)


# ---------------------------------------------------------------------------------------------------
# The picture


class Picture:
    def __init__(self, text: str) -> None:
        self.text = text
        self.root = ElementTree.fromstring(text)
        names = {element.tag for element in self.root.iter()}
        known = {SVG + name for name in ("svg", "title", "style", "rect", "text", "path", "circle", "g", "tspan")}
        check(names <= known, f"elements {names - known}")
        for word in ("script", "href", "url(", "@import", "@font-face", "foreignObject"):
            check(word not in re.sub(r">[^<]*<", "><", text), f"the markup has {word!r}")
        for element in self.root.iter():
            check(not any(name.startswith("on") for name in element.attrib), f"{element.attrib}")
        self.width, self.height = int(self.root.get("width", "0")), int(self.root.get("height", "0"))

    def paths(self, style: str) -> list[list[tuple[float, float]]]:
        """The points of curves, for each panel; a legend's line is not one."""
        found = [element.get("d", "") for element in self.root.iter(SVG + "path") if element.get("class") == style]
        lists = [[float(word) for word in re.split(r"[M ]", path) if word] for path in found if "h" not in path]
        return [list(zip(numbers[::2], numbers[1::2])) for numbers in lists]

    def labels(self, style: str) -> list[tuple[float, float, str]]:
        return [(float(text.get("x", "0")), float(text.get("y", "0")), "".join(text.itertext()))
                for text in self.root.iter(SVG + "text") if text.get("class") == style]

    def scale(self) -> tuple[float, float]:
        """From the labels of the y axis: where 0 is, and the bytes of a point."""
        ticks = [(y - 4, float(text.split()[0]) * UNITS[text.split()[1]] if " " in text else 0.0)
                 for _, y, text in self.labels("soft end")]
        (zero, low), (upper, high) = min(ticks, key=lambda tick: tick[1]), max(ticks, key=lambda tick: tick[1])
        equal(low, 0.0, "the lowest tick")
        return zero, high / (zero - upper)


def at_x(points: list[tuple[float, float]], x: float) -> tuple[float, float]:
    """The highest and the lowest place of a line at some x."""
    here = [y for place, y in points if abs(place - x) < 0.11]
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if x0 < x < x1 and abs(y0 - y1) < 0.01:
            here.append(y0)
    return (min(here), max(here)) if here else (-1.0, -1.0)


def picture_is_right(picture: Picture, said: dict[str, Any]) -> None:
    zero, bytes_each = picture.scale()
    left, right = 74.0, picture.width - 22.0
    count = said["buckets"]
    for name in CURVES:
        (points,) = picture.paths(name)
        check(len(points) <= 2002, f"{name} has {len(points)} points")
        for bucket, (least, most, _) in enumerate(points_of(said, name)):
            upper, lower = at_x(points, round(left + (bucket + 0.5) * (right - left) / count, 1))
            for got, want in ((upper, most), (lower, least)):
                check(abs(got - (zero - want / bytes_each)) <= 0.3,
                      f"{name} in bucket {bucket}: at {got}, {want} bytes are at {zero - want / bytes_each}")


def test_the_picture_has_all_points(folder: str) -> None:
    names = ("gnn_retry", "graphs", "resnet_stacks", "expand", "pools")
    for name in names[:2] if command.IS_SLOW else some(names, 2):
        path, file = file_of(name), os.path.join(folder, "x.svg")
        for options in ((), ("--x", "entry", "--width", "500"), ("--width", "1500", "--height", "300")):
            said = plot(path, "-o", file, *options)
            with open(file, encoding="utf-8") as text:
                picture = Picture(text.read())
            equal((said["output"], said["bytes"]), (file, os.path.getsize(file)), "what is said of the file")
            check(len(picture.text) < 150_000, f"{name} has {len(picture.text)} bytes")
            picture_is_right(picture, said)
            equal(works("plot", path, "--svg", *options), picture.text, "the picture on standard output")


def test_the_picture_is_for_light_and_dark_pages() -> None:
    picture = Picture(works("plot", file_of("graphs"), "--svg"))
    style = picture.root.find(SVG + "style")
    check(style is not None and "prefers-color-scheme:dark" in (style.text or ""), "the style")


def test_peaks_and_the_limit_are_labelled() -> None:
    picture = Picture(works("plot", file_of("gnn_retry"), "--svg"))
    equal(sorted(text for _, _, text in picture.labels("halo")), ["13.15 GiB reserved", "8.59 GiB allocated"], "labels")
    equal([text for _, _, text in picture.labels("limit-text halo")],
          ["limit, if there is one: at least 13.15 GiB, less than 14.38 GiB"], "the limit")
    given = Picture(works("plot", file_of("gnn_retry"), "--svg", "--limit", "15GiB"))
    equal([text for _, _, text in given.labels("limit-text halo")], ["limit 15.00 GiB"], "the limit")
    far = Picture(works("plot", file_of("gnn_retry"), "--svg", "--limit", "1TiB"))
    equal(far.labels("limit-text halo"), [], "a limit far above")


def test_several_files_share_their_axes() -> None:
    names = ("gnn_retry", "graphs", "gnn_gc_split", "resnet_stacks", "pools")
    for count in (2, 3, 5):
        files = [file_of(name) for name in names[:count]]
        picture, said = Picture(works("plot", *files, "--svg")), answer("plot", *files)
        for curve in CURVES:
            equal(len(picture.paths(curve)), count, f"panels with {curve}")
        equal([text for _, _, text in picture.labels("panel")], [f"{name}.tide device 0" for name in names[:count]],
              "the titles")
        zero, bytes_each = picture.scale()
        top = max(most for file in range(count) for _, most, _ in points_of(said, "reserved", file))
        for file, points in enumerate(picture.paths("reserved")):
            most = max(most for _, most, _ in points_of(said, "reserved", file))
            high = max(y for _, y in points) - min(y for _, y in points)
            check(abs(high - most / bytes_each) < 0.3, f"panel {file} has another scale: {high}, {most / bytes_each}")
        check(top > 0 and zero > 0, "nothing is drawn")
        lengths = [file["length"] for file in said["files"]]
        widths = [points[-1][0] - points[0][0] for points in picture.paths("reserved")]
        for length, width in zip(lengths, widths):
            check(abs(length / max(lengths) - width / max(widths)) < 0.01, f"{lengths} are drawn as {widths}")


# ---------------------------------------------------------------------------------------------------
# Marks and bands


def given_back(entries: list[reference.Entry]) -> list[tuple[int, int]]:
    """The first entry and the bytes of memory that was given back between two calls of the program."""
    result, is_open = [], False
    for at, entry in enumerate(entries):
        if entry["action"] in ("segment_free", "segment_unmap"):
            first, size = result.pop() if is_open else (at, 0)
            result.append((first, size + entry["size"]))
            is_open = True
        elif entry["action"] in ("alloc", "oom", "free_requested"):
            is_open = False
    return result


def marks_are(path: str, kind: str, is_certain: bool) -> None:
    marks = [mark for mark in plot(path, "--x", "entry")["marks"] if mark["kind"] != "oom"]
    wanted = given_back(command.read(path)["device_traces"][0])
    check(wanted != [], f"{path} gives nothing back")
    equal([(mark["entry"], mark["bytes"]) for mark in marks], wanted, f"the marks of {path}")
    equal({(mark["kind"], mark["is_certain"]) for mark in marks}, {(kind, is_certain)}, f"the kinds in {path}")
    equal([mark["x"] for mark in marks], [first for first, _ in wanted], "the places")


def test_flushes_and_calls_of_empty_cache_are_told_apart() -> None:
    marks_are(file_of("graphs"), "empty_cache", True)
    marks_are(file_of("gnn_retry"), "flush", False)
    marks_are(file_of("gnn_gc_split"), "flush", True)


def test_marks_of_real_runs() -> None:
    marks_are(os.path.join(command.traces(), "gnn_empty.pickle.xz"), "empty_cache", True)
    path = os.path.join(command.traces(), "varlen_oom.pickle.xz")
    marks_are(path, "flush", True)
    truth = reference.Run(reference.load(path))
    ooms = [mark for mark in plot(path)["marks"] if mark["kind"] == "oom"]
    equal([(mark["entry"], mark["bytes"]) for mark in ooms],
          [(at, truth.entries[at]["size"]) for at in truth.ooms], "refusals")


def test_marks_are_drawn() -> None:
    picture = Picture(works("plot", file_of("after_oom"), "--svg"))
    titles = [title.text or "" for title in picture.root.iter(SVG + "title")]
    check(any(text.startswith("out of memory at entry") for text in titles), f"{titles}")
    many = Picture(works("plot", "-", "--svg", data=dumped(emptied(3000))))
    signs = [circle for circle in many.root.iter(SVG + "circle") if circle.get("class") == "empty_cache"]
    check(50 < len(signs) < 110, f"{len(signs)} signs")
    check(len(many.text) < 150_000, f"{len(many.text)} bytes")


def emptied(count: int) -> command.Snapshot:
    """A program that often empties its cache."""
    made = Recording()
    for number in range(count):
        for action in ("segment_alloc", "alloc", "free_requested", "free_completed", "segment_free"):
            made.add(action, 1 << 44, 20 * MIB, time_us=9 + number)
    return made.snapshot()


def test_ranges_are_those_of_the_annotations() -> None:
    snapshot = spiky(100, 50)
    times = (("outer", "START", 5), ("inner", "START", 35), ("inner", "END", 95), ("inner", "START", 125),
             ("inner", "END", 155), ("outer", "END", 205), ("open", "START", 250))
    snapshot["external_annotations"] = [{"name": name, "stage": stage, "time_us": time, "device": 0}
                                        for name, stage, time in times]
    data = dumped(snapshot)
    bands = [band for band in plot("-", "--x", "time", data=data)["bands"] if band["range"]]
    equal([(band["range"], band["depth"], band["from"], band["to"]) for band in bands],
          [("inner", 1, 0.03, 0.09), ("inner", 1, 0.12, 0.15), ("outer", 0, 0.0, 0.2),
           ("open", 0, 0.245, 0.297001)], "ranges by time")
    bands = [band for band in plot("-", "--x", "entry", data=data)["bands"] if band["range"]]
    firsts = {5 + 3 * number: 1 + 3 * number for number in range(100)}  # the first entry at a time
    equal([(band["range"], band["from"], band["to"]) for band in bands[:2]],
          [("inner", firsts[35], firsts[95]), ("inner", firsts[125], firsts[155])], "ranges by entry")
    picture = Picture(works("plot", "-", "--svg", data=data))
    titles = [title.text for title in picture.root.iter(SVG + "title")]
    equal((titles.count("outer"), titles.count("inner"), titles.count("open")), (1, 2, 1), "titles")


# ---------------------------------------------------------------------------------------------------
# Names that try to be something else

HOSTILE = ["</text><script>alert(1)</script>", "\x1b[2J\x00\x07", "]]>", "<!--", "&lt;&#x41;\"'", "\u202e\ufeff\uffff",
           "x" * 5000, "%s%n%d", "]]><![CDATA["]


def test_no_text_of_a_file_is_markup(folder: str) -> None:
    snapshot = spiky(300, 5)
    for number, name in enumerate([*HOSTILE, "INVALIDBYTES"]):
        for stage, time in (("START", 5 + 90 * number), ("END", 80 + 90 * number)):
            snapshot["external_annotations"] = snapshot.get("external_annotations", []) + [
                {"name": name, "stage": stage, "time_us": time, "device": 0}]
    data = dumped(snapshot).replace(b"INVALIDBYTES", b"ab\xff\xfe\xc3(\xed\xa0\x80<b>")
    path = saved(data, folder, "<script>&\"'\x1b[31m.pickle")
    for files in ((path,), (path, path)):
        picture = Picture(works("plot", *files, "--svg"))
        words = "".join(picture.root.itertext())
        check("<script>&\"'\\x1b[31m.pickle" in words, words[:500])
        check("\x1b" not in picture.text and "\x00" not in picture.text, "a control character is in the picture")
    words = "".join(Picture(works("plot", path, "--svg")).root.itertext())
    for part in ("</text><script>alert(1)</script>", "]]>", "<!--", "&lt;&#x41;\"'", "%s%n%d"):
        check(part in words, f"{part!r} is not in the picture")
    drawn = works("plot", path)
    check("\x1b" not in drawn and "<script>&\"'\\x1b[31m.pickle" in drawn, drawn[:300])
    names = {band["range"] for band in plot(path)["bands"]}
    check("</text><script>alert(1)</script>" in names, f"{names}")


# ---------------------------------------------------------------------------------------------------
# The drawing for terminals


class Drawing:
    """Dots, decoded from braille characters: sets of (column, row from the bottom)."""

    BITS = {0x40: (0, 0), 0x80: (1, 0), 0x04: (0, 1), 0x20: (1, 1), 0x02: (0, 2), 0x10: (1, 2), 0x01: (0, 3), 0x08: (1, 3)}

    def __init__(self, text: str) -> None:
        self.text = text
        rows = [line[MARGIN:] for line in text.split("\n") if line[MARGIN - 1 : MARGIN] in ("\u2502", "\u2524")]
        self.dots: set[tuple[int, int]] = set()
        for height, row in enumerate(reversed(rows)):
            for column, letter in enumerate(row):
                bits = ord(letter) - 0x2800 if letter != " " else 0
                check(0 <= bits < 256, f"{letter!r} is no braille character")
                self.dots |= {(2 * column + x, 4 * height + y) for bit, (x, y) in self.BITS.items() if bits & bit}
        self.rows = len(rows)

    def column_tops(self) -> list[int]:
        return [max((row + 1 for x, row in self.dots if x == column), default=0)
                for column in range(1 + max(x for x, _ in self.dots))]


def dots_of(truth: Truth, kind: str, columns: int, rows: int) -> set[tuple[int, int]]:
    places, length = truth.places(kind)
    count, high = 2 * (columns - MARGIN), 4 * rows
    curves = {name: truth.buckets(name, places, length, count) for name in truth.series}
    top = max(most for curve in curves.values() for _, most, _ in curve)
    wanted = {(x, y) for x, (_, most, _) in enumerate(curves["allocated"]) for y in range(-(-most * high // top))}
    for x, (least, most, _) in enumerate(curves.get("reserved", [])):
        wanted |= {(x, y) for y in range(max(0, -(-least * high // top) - 1), -(-most * high // top))}
    return wanted


def test_the_dots_are_the_curves(folder: str) -> None:
    for path, snapshot in recordings(folder):
        device = next((at for at, entries in enumerate(snapshot["device_traces"]) if entries), None)
        truth = Truth(snapshot, device) if device is not None else None
        if truth is None or "allocated" not in truth.series or "requested" not in truth.series:
            continue
        kind = "time" if has_times(snapshot, device or 0) else "entry"
        for columns, rows in ((100, 16), (40, 3), (173, 40)):
            text = works("plot", path, "--width", str(columns), "--height", str(rows), "--x", kind, "-d", str(device))
            drawing = Drawing(text)
            equal(drawing.rows, rows, "the number of rows")
            check(max(len(line) for line in text.split("\n\n")[0].split("\n")[1:]) <= columns, text)
            wanted = dots_of(truth, kind, columns, rows)
            equal(sorted(drawing.dots - wanted)[:5], [], f"too many dots in {path} {columns} {rows}")
            equal(sorted(wanted - drawing.dots)[:5], [], f"dots missing in {path} {columns} {rows}")


def on_terminal(*words: str, columns: int = 90, **environment: str) -> str:
    """What the program writes to a terminal."""
    plain = dict.fromkeys(("LC_ALL", "LC_CTYPE", "LANG"), "")
    terminal = harness.Terminal(*words, streams=["stdout"], columns=columns, rows=40, env={**plain, **environment})
    equal(terminal.end(), "", "standard error")
    return terminal.seen.replace("\r\n", "\n")


def has_braille(text: str) -> bool:
    return any(0x2800 <= ord(letter) < 0x2900 for letter in text)


def test_the_drawing_fits_the_terminal() -> None:
    path = file_of("graphs")
    for columns in (60, 90, 200):
        seen = on_terminal("plot", path, columns=columns, LANG="C.UTF-8", NO_COLOR="1")
        check(has_braille(seen) and "\x1b" not in seen, seen)
        axis = next(line for line in seen.split("\n") if "\u2514" in line)
        equal(len(axis), columns, "the columns of the axis")
    colored = on_terminal("plot", path, LANG="C.UTF-8")
    check("\x1b[" in colored, colored)
    equal(Drawing(re.sub(r"\x1b\[\d*m", "", colored)).dots,
          Drawing(on_terminal("plot", path, LANG="C.UTF-8", NO_COLOR="1")).dots, "dots with colour")
    plain = on_terminal("plot", path, LANG="C", NO_COLOR="1")
    check(plain.isascii() and "out of memory" not in plain and ":" in plain, plain)


def test_the_report_has_a_timeline_on_a_terminal() -> None:
    path = file_of("gnn_retry")
    seen = on_terminal("report", path, LC_ALL="en_US.UTF-8", LANG="C")
    drawing = Drawing(re.sub(r"\x1b\[\d*m", "", seen))
    equal(drawing.rows, 6, "rows")
    check("13.15 GiB reserved" in drawing.text and "8.59 GiB allocated" in drawing.text, drawing.text)
    equal(drawing.dots, dots_of(Truth(command.read(path)), "time", 90, 6), "the dots")
    check("\x1b" not in on_terminal("report", path, LANG="en_US.utf8", NO_COLOR="1"), "colours")
    cases: list[tuple[list[str], dict[str, Any]]] = [
        ([], {"LANG": "C"}), ([], {}), ([], {"LANG": "C.UTF-8", "LC_ALL": "POSIX"}), ([], {"LANG": "C.UTF-8", "TERM": "dumb"}),
        (["--timeline", "never"], {"LANG": "C.UTF-8"}), (["--timeline", "always", "--json"], {"LANG": "C.UTF-8"})]
    for options, environment in cases:
        check(not has_braille(on_terminal("report", path, *options, **environment)), f"a timeline: {options} and {environment}")


def test_the_report_has_a_timeline_elsewhere_only_on_request() -> None:
    path = file_of("gnn_retry")
    plain = works("report", path)
    check(not has_braille(plain), plain)
    equal(works("report", path, "--timeline", "auto"), plain, "auto")
    equal(works("report", path, "--timeline", "never"), plain, "never")
    asked = works("report", path, "--timeline", "always")
    check(has_braille(asked) and "\x1b" not in asked, asked)
    equal(works("report", path, "--timeline", "always", "--json"), works("report", path, "--json"), "JSON")
    fails("--timeline must be auto, always or never", "report", path, "--timeline", "maybe")
    works("report", "-", "--timeline", "always", data=dumped({"segments": [], "device_traces": [[]]}))


# ---------------------------------------------------------------------------------------------------
# Recordings with little in them


def all_forms(data: bytes, *options: str) -> dict[str, Any]:
    Picture(works("plot", "-", "--svg", *options, data=data))
    works("plot", "-", *options, data=data)
    return plot("-", *options, data=data)


def test_recordings_with_no_entries() -> None:
    said = all_forms(dumped({"segments": [], "device_traces": []}))
    equal({point["allocated_most"] for point in said["points"]}, {0}, "what is allocated")
    said = all_forms(dumped({**spiky(0, 1), "device_traces": [[]]}))
    equal({point["reserved_most"] for point in said["points"]}, {64 * MIB}, "what is reserved at the end")


def test_a_recording_with_one_entry() -> None:
    entry = {"action": "alloc", "addr": 1 << 44, "size": 3 * MIB, "stream": 0, "time_us": 77}
    for x in ("time", "entry"):
        said = all_forms(dumped({"segments": [], "device_traces": [[entry]]}), "--x", x)
        equal(points_of(said, "allocated")[0], (0, 3 * MIB, 3 * MIB), f"the first bucket, {x}")
        equal(set(points_of(said, "allocated")[1:]), {(3 * MIB, 3 * MIB, 3 * MIB)}, "the others")
        equal(points_of(said, "reserved")[0], (None, None, None), "reserved memory")


def test_a_recording_without_times() -> None:
    snapshot = spiky(50, 3)
    for entry in snapshot["device_traces"][0]:
        del entry["time_us"]
    data = dumped(snapshot)
    equal(all_forms(data)["x"], "entry", "the axis")
    fails("it has no times; use --x entry", "plot", "-", "--x", "time", data=data)


def test_times_that_stand_still_or_go_back(folder: str) -> None:
    still, back = spiky(50, 3), spiky(50, 3)
    for number, entry in enumerate(still["device_traces"][0]):
        entry["time_us"] = 42
        back["device_traces"][0][number]["time_us"] = random.Random(number).choice((0, 100, 1 << 53, 1 << 30))
    equal(points_of(all_forms(dumped(still)), "allocated")[0][1], 48 * MIB, "the peak")
    path = saved(dumped(back), folder, "back.pickle")
    all_forms(dumped(back))
    said = plot(path, "--x", "time")
    equal(max(point["allocated_most"] for point in said["points"]), 48 * MIB, "the peak")
    equal(sum(point["entries"] for point in said["points"]), len(back["device_traces"][0]), "entries")


def test_each_device(folder: str) -> None:
    rng = random.Random(11)
    snapshot = generate.recording(rng, generate.Kind(steps=150, devices=3, streams=2))
    path = saved(dumped(snapshot), folder, "three.pickle")
    for device in range(3):
        said = points_are_right(path, Truth(snapshot, device), "entry", "--device", str(device))
        equal(said["files"][0]["device"], device, "the device")
        check(f"device {device} of 3" in works("plot", path, "--svg", "-d", str(device)), "the title")
    fails("no device '3'", "plot", path, "--device", "3")


def test_a_recording_that_begins_in_the_middle(folder: str) -> None:
    snapshot = reference.suffix(command.generated(1), 60)
    path = saved(dumped(snapshot), folder, "late.pickle")
    points_are_right(path, Truth(snapshot), "entry", "--device", "0")
    check("begins in the middle of the run" in works("plot", path, "--svg"), "the summary")


def test_bad_command_lines(folder: str) -> None:
    path = file_of("graphs")
    fails("--x must be time, entry or step, not 'day'", "plot", path, "--x", "day")
    fails("--width must be a whole number from 320 to 4000", "plot", path, "--svg", "--width", "5")
    fails("--width must be a whole number from 40 to 1000", "plot", path, "--width", "12")
    fails("--height must be a whole number", "plot", path, "--height", "x")
    fails("cannot both go to standard output", "plot", path, "--svg", "--json")
    fails("cannot both go to standard output", "plot", path, "-o", "-", "--json")
    copy = saved(pathlib.Path(path).read_bytes(), folder, "x.tide")
    fails("would overwrite the input", "plot", copy, "-o", copy)
    fails("would overwrite the input", "plot", path, copy, "-o", copy)
    fails("no steps were found", "plot", file_of("limit_edge"), "--x", "step")


# ---------------------------------------------------------------------------------------------------
# A long recording


def write_long(path: str, steps: int) -> int:
    """Twenty entries for each step, and once a block that no other step has. Returns the number of entries."""

    def text(word: str) -> bytes:
        return b"\x8c" + bytes([len(word)]) + word.encode()

    def entry(action: str, place: int, size: int) -> bytes:
        numbers = {"addr": (1 << 44) + place, "size": size, "stream": 0}
        items = b"".join(text(key) + b"\x8a\x08" + struct.pack("<q", value) for key, value in numbers.items())
        return b"}(" + text("action") + text(action) + items + b"u"

    def pair(number: int, size: int) -> bytes:
        words = ("alloc", "free_requested", "free_completed")
        return b"".join(entry(word, number * 4 * MIB, size) for word in words)

    step = b"".join(pair(number, (number + 1) << 19) for number in range(6)) + pair(6, 512)[: -len(entry("free_completed", 0, 0))]
    step += entry("free_completed", 6 * 4 * MIB, 512)
    with open(path, "wb") as file:
        file.write(b"\x80\x04}(" + text("segments") + b"]" + text("device_traces") + b"](](")
        file.write(entry("segment_alloc", 0, 64 * MIB))
        for number in range(0, steps, 1000):
            file.write(step * 1000)
            if number == steps // 2 // 1000 * 1000:
                file.write(pair(0, 33 * MIB))
        file.write(b"eeu.")
    return 1 + 21 * -(-steps // 1000) * 1000 + 3


def test_a_million_entries_take_little_time_and_memory(folder: str) -> None:
    """A hundred thousand in the quick tier."""
    path, picture = os.path.join(folder, "long.pickle"), os.path.join(folder, "long.svg")
    count = write_long(path, scaled(5_000 if command.IS_SLOW else 48_000, 2_000))
    with tempfile.TemporaryFile() as out, harness.start("plot", path, "-o", picture, "--json", stdout=out) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        said = json.load(out)
    equal(child.returncode, 0, "the status")
    equal(said["files"][0]["entries"], count, "entries")
    equal(max(most for _, most, _ in points_of(said, "allocated")), 33 * MIB, "the peak")
    with open(picture, encoding="utf-8") as file:
        drawn = Picture(file.read())
    check(len(drawn.text) < 150_000, f"the picture has {len(drawn.text)} bytes")
    picture_is_right(drawn, said)
    took_s = usage.ru_utime + usage.ru_stime
    check(took_s < (900 if command.IS_SLOW else 60), f"it took {took_s} s")
    if not command.IS_SLOW:
        check(usage.ru_maxrss < 400 << 10, f"it took {usage.ru_maxrss >> 10} MB")


if __name__ == "__main__":
    harness.main()
