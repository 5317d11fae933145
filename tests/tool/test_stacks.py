#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Tests the stacks in `tidemark report` and in the exports: pprof, folded stacks and Chrome's timeline.

Every figure is computed here a second time, from the pickle alone: who holds memory at the peak, the tree of stacks,
the names of functions, the times of events. The profile is decoded by a few lines of this file.
"""
import collections
import contextlib
import json
import lzma
import os
import pathlib
import pickle
import random
import re
import subprocess
import sys
from typing import Any

sys.path.extend(str(pathlib.Path(__file__).resolve().parents[1] / part) for part in ("", "oracle"))
import harness
import recording
from harness import SOURCE, Skip, check, equal, run

PERIOD_NS = 7889238 * 10**9  # of the base times of PyTorch's profiler
PACKAGES = "/opt/venv/lib/python3.12/site-packages/"


# ------------------------------------------------------------------------------------------------------------------
# Recordings

Frame = collections.namedtuple("Frame", "name file line")
Node = tuple[Any, ...]  # of a tree: the kind, and the line of some kinds


class Recording(recording.Recording):
    def alloc(self, size, stack=(), stream=0):
        return super().alloc(size, tuple((frame.file, frame.line, frame.name) for frame in stack or ()), stream)


def stack_of(entry):
    """The frames of an entry, innermost first."""
    return tuple(Frame(f["name"], f["filename"], f["line"]) for f in entry.get("frames") or [])


def live_at_peak(entries, rounding):
    """The requests (size, stack) that are live when their sum, each rounded up, is first at its most."""
    live, total, most, peak = {}, 0, -1, {}
    for entry in entries:
        rounded = -(-entry["size"] // rounding) * rounding
        if entry["action"] == "alloc":
            live[entry["addr"]] = (entry["size"], stack_of(entry))
            total += rounded
        elif entry["action"] == "free_completed":
            del live[entry["addr"]]
            total -= rounded
        if total > most:
            most, peak = total, dict(live)
    return list(peak.values())


# The program's own files, an installed package, PyTorch, and what is below Python.
OWN = ["/home/me/job/train.py", "/home/me/job/nets/a/net.py", "/home/me/job/nets/b/net.py"]
HIDDEN = [Frame("torch::unwind::unwind()", "??", 0), Frame("PyEval_EvalCode", "??", 0)]
NATIVE = [Frame("at::native::empty<long, std::vector<int> >(c10::ArrayRef<long>)", "??", 0),
          Frame("c10::cuda::malloc(unsigned long)", "/pytorch/c10/cuda.cpp", 77)]
LIBRARY = [Frame("forward", PACKAGES + "torch/nn/modules/conv.py", 553),
           Frame("forward", PACKAGES + "torch/nn/modules/linear.py", 125),
           Frame("_call_impl", PACKAGES + "torch/nn/modules/module.py", 1790),
           Frame("forward", PACKAGES + "torchvision/models/resnet.py", 158),
           Frame("forward", PACKAGES + "torchvision/models/resnet.py", 155),
           Frame("run", "/usr/lib/python3.12/threading.py", 1012),
           Frame("_call_with_frames_removed", "<frozen importlib._bootstrap>", 488)]


def random_stack(chance):
    """Like those of programs: lines of the program with lines of libraries between them; innermost first."""
    frames = [Frame("<module>", OWN[0], 90), Frame("main", OWN[0], chance.choice([50, 60]))]
    if chance.random() < 0.2:
        frames = []
    for _ in range(chance.randrange(4)):
        frames += chance.choices(LIBRARY, k=chance.randrange(3))
        if frames and chance.random() < 0.7:
            frames.append(Frame("forward", chance.choice(OWN[1:]), chance.randrange(10, 14)))
    frames += chance.choices(LIBRARY + NATIVE, k=chance.randrange(4))
    frames += chance.choices(HIDDEN, k=chance.randrange(2))
    return tuple(reversed(frames)) or None


def random_recording(seed):
    chance, made = random.Random(seed), Recording()
    stacks = [random_stack(chance) for _ in range(60)]
    live = []
    for step in range(800):
        if live and chance.random() < (0.3 if step < 400 else 0.7):
            made.free(live.pop(chance.randrange(len(live))))
        else:
            live.append(made.alloc(int(2 ** chance.uniform(0, 24)), chance.choice(stacks)))
    return made


def recordings(folder):
    """Pickles with stacks: random ones, and a real one."""
    for seed in range(4):
        yield random_recording(seed).save(folder, f"random_{seed}.pickle")
    real = os.path.join(folder, "real.pickle")
    run("convert", os.path.join(SOURCE, "tests", "data", "resnet_stacks.tide"), real).works()
    yield real
    with contextlib.suppress(Skip):
        with lzma.open(harness.more("traces", "resnet_stacks.pickle.xz")) as file, open(real, "wb") as out:
            out.write(file.read())
        yield real


def entries_of(path):
    with open(path, "rb") as file:
        return pickle.load(file)["device_traces"][0]


# ------------------------------------------------------------------------------------------------------------------
# Frames, as the manual describes them

def is_hidden(frame):
    return "unwind::unwind" in frame.name or "PyEval_" in frame.name


def is_native(frame):
    return frame.file == "??" or frame.file.endswith(".cpp")


def is_own(frame):
    library = "/site-packages/" in frame.file or "/lib/python3" in frame.file or frame.file.startswith("<frozen")
    return not is_native(frame) and not library


def is_package(frame):
    return "/site-packages/" in frame.file and "/site-packages/torch/" not in frame.file


def is_torch(frame):
    return "/site-packages/torch/" in frame.file


def shown(stack):
    return tuple(frame for frame in stack if not is_hidden(frame))


def own_folder(entries):
    files = {frame.file for entry in entries for frame in stack_of(entry) if is_own(frame)}
    prefix = os.path.commonprefix([file[:file.rfind("/") + 1] for file in files])
    return prefix[:prefix.rfind("/") + 1]


def path_of(frame, folder):
    if frame.file == "??":
        return ""
    if is_native(frame):
        return os.path.basename(frame.file)
    if "/site-packages/" in frame.file:
        return frame.file.split("/site-packages/")[1]
    if "/lib/python3" in frame.file:
        return frame.file.split("/lib/python3")[1].split("/", 1)[1]
    return frame.file[len(folder):] if frame.file.startswith(folder) else frame.file


def line_text(frame, folder):
    path = path_of(frame, folder)
    return f"{path}:{frame.line}:{frame.name}" if path else frame.name


# ------------------------------------------------------------------------------------------------------------------
# pprof

def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7f) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def message(data):
    """The fields of a message: by number, a list of numbers or bytes."""
    fields, at = collections.defaultdict(list), 0
    while at < len(data):
        tag, at = varint(data, at)
        value, at = varint(data, at)
        check(tag & 7 in (0, 2), f"wire type {tag & 7}")
        if tag & 7 == 2:
            value, at = data[at:at + value], at + value
        fields[tag >> 3].append(value)
    return fields


def packed(data):
    numbers, at = [], 0
    while at < len(data):
        number, at = varint(data, at)
        numbers.append(number)
    return numbers


def one(fields, number, otherwise=0):
    return fields[number][-1] if fields[number] else otherwise


def profile_of(path, folder):
    """The samples of a profile: from its stack of (name, system name, file, line) to its four values."""
    out = os.path.join(folder, "x.pb")
    run("convert", path, out).works()
    with open(out, "rb") as file:
        whole = message(file.read())
    strings = [text.decode() for text in whole[6]]
    functions = {one(f, 1): tuple(strings[one(f, k)] for k in (2, 3, 4)) for f in map(message, whole[5])}
    places = {}
    for place in map(message, whole[4]):
        line = message(one(place, 4))
        places[one(place, 1)] = functions[one(line, 1)] + (one(line, 2),)
    samples = collections.Counter()
    for sample in map(message, whole[2]):
        stack = tuple(places[number] for number in packed(one(sample, 1)))
        for index, value in enumerate(packed(one(sample, 2))):
            samples[stack, index] += value
    return samples, whole


def pprof_frame(frame, folder):
    is_whole = "::" in frame.name or "(" in frame.name or frame.file == "??"
    name = frame.name if is_whole else f"{path_of(frame, folder)}:{frame.name}"
    return (name, frame.name, frame.file, frame.line)


def test_pprof_has_what_the_pickle_has(folder: str) -> None:
    for path in recordings(folder):
        entries = entries_of(path)
        own, want = own_folder(entries), collections.Counter()
        nothing = (("<no-context>", "", "", 0),)

        def add(size, stack, first):
            stack = tuple(pprof_frame(f, own) for f in shown(stack)) or nothing
            want[stack, first] += 1
            want[stack, first + 1] += size

        for entry in entries:
            if entry["action"] == "alloc":
                add(entry["size"], stack_of(entry), 0)
        for size, stack in live_at_peak(entries, 1):
            add(size, stack, 2)
        samples, whole = profile_of(path, folder)
        equal(+samples, +want, f"the profile of {path}")
        equal(one(whole, 9), entries[0]["time_us"] * 1000, "the time")


def test_pprof_keeps_functions_of_one_name_apart(folder: str) -> None:
    made = Recording()
    frames = [Frame("forward", OWN[1], 5), Frame("forward", OWN[2], 5), Frame("<module>", OWN[0], 1), LIBRARY[3]]
    for frame in frames:
        made.alloc(512, [frame])
    samples, _ = profile_of(made.save(folder), folder)
    names = {stack[0][0] for stack, _ in samples}
    equal(names, {"nets/a/net.py:forward", "nets/b/net.py:forward", "train.py:<module>",
                  "torchvision/models/resnet.py:forward"}, "the names")
    check(all(stack[0][0] != stack[0][1] for stack, _ in samples), "pprof would take a name for one of C++")


# ------------------------------------------------------------------------------------------------------------------
# Folded stacks and the timeline

def test_folded_has_what_the_pickle_has(folder: str) -> None:
    for path in recordings(folder):
        entries = entries_of(path)
        own, want = own_folder(entries), collections.Counter()
        for size, stack in live_at_peak(entries, 1):
            lines = [line_text(frame, own).replace(";", ":") for frame in reversed(shown(stack))]
            want[";".join(["device_0"] + (lines or ["<no-context>"]))] += size
        run("convert", path, os.path.join(folder, "x.folded")).works()
        with open(os.path.join(folder, "x.folded")) as file:
            got = [line.rstrip("\n").rsplit(" ", 1) for line in file]
        equal({text: int(size) for text, size in got}, dict(+want), f"the stacks of {path}")
        sizes = [int(size) for _, size in got]
        equal(sizes, sorted(sizes, reverse=True), "the order")


def timeline_of(path, folder):
    run("convert", path, os.path.join(folder, "x.trace.json")).works()
    with open(os.path.join(folder, "x.trace.json")) as file:
        return json.load(file)


def stack_in(timeline, number):
    lines = []
    while number is not None:
        frame = timeline["stackFrames"][str(number)]
        lines.append(frame["name"])
        number = frame.get("parent")
    return tuple(lines)


def test_timeline_has_stacks_and_absolute_times(folder: str) -> None:
    for path in recordings(folder):
        entries = entries_of(path)
        own, want = own_folder(entries), collections.Counter()
        for entry in entries:
            if entry["action"] == "alloc":
                stack = tuple(line_text(frame, own) for frame in shown(stack_of(entry)))
                want[entry["time_us"], entry["size"], stack] += 1
        timeline = timeline_of(path, folder)
        base_ns = timeline["baseTimeNanoseconds"]
        equal(base_ns % PERIOD_NS, 0, "the rest of the base time")
        check(0 <= entries[0]["time_us"] * 1000 - base_ns < PERIOD_NS, f"the base time is {base_ns}")
        got = collections.Counter()
        for event in timeline["traceEvents"]:
            if event.get("cat") == "alloc" and event["ph"] == "b":
                time_us = base_ns // 1000 + event["ts"]
                got[time_us, event["args"]["bytes"], stack_in(timeline, event.get("sf"))] += 1
        equal(got, want, f"the timeline of {path}")


def test_timeline_names_lines_of_the_program(folder: str) -> None:
    made = Recording()
    inner = [HIDDEN[0], LIBRARY[0], LIBRARY[2]]
    main = Frame("main", OWN[0], 60)
    made.alloc(512, inner + [LIBRARY[3], LIBRARY[2], main])
    made.alloc(512, inner + [main])
    made.alloc(512, inner)
    events = [e for e in timeline_of(made.save(folder), folder)["traceEvents"] if e["ph"] == "b"]
    equal([(e["name"], e["args"].get("from")) for e in events],
          [("torchvision/models/resnet.py:158:forward", "train.py:60:main"), ("train.py:60:main", None),
           ("torch/nn/modules/conv.py:553:forward", None)], "the names")


def test_timeline_joins_that_of_a_profiler(folder: str) -> None:
    """The lines of the manual that join the two files; the profiler's is as Kineto writes it."""
    made = random_recording(9)
    path, start_us = made.save(folder), made.entries[0]["time_us"]
    with open(os.path.join(SOURCE, "docs", "formats.md")) as file:
        code = re.findall(r"```python\n(.*?)```", file.read(), re.S)[0]
    for base_ns in (start_us * 1000 // PERIOD_NS * PERIOD_NS, (start_us * 1000 // PERIOD_NS - 1) * PERIOD_NS):
        events = [{"ph": "X", "cat": "cpu_op", "name": "aten::empty", "pid": 1234, "tid": 1234, "dur": 1.5,
                   "ts": e["time_us"] - base_ns // 1000} for e in made.entries if e["action"] == "alloc"]
        with open(os.path.join(folder, "profile.json"), "w") as file:
            json.dump({"schemaVersion": 1, "baseTimeNanoseconds": base_ns, "traceEvents": events}, file)
        run("convert", path, os.path.join(folder, "memory.trace.json")).works()
        subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
        with open(os.path.join(folder, "both.json")) as file:
            both = json.load(file)
        calls = [e["ts"] for e in both["traceEvents"] if e.get("cat") == "cpu_op"]
        slices = [e["ts"] for e in both["traceEvents"] if e.get("cat") == "alloc" and e["ph"] == "b"]
        equal(slices, calls, "the times of requests")
        check(not {e["pid"] for e in both["traceEvents"] if e.get("cat") == "alloc"} & {1234, 0, 1}, "a process is shared")


# ------------------------------------------------------------------------------------------------------------------
# The tree

def best_line(frames):
    """Which line of libraries says most: of a package the innermost, of PyTorch the outermost."""
    packages = [f for f in frames if is_package(f)]
    torch = [f for f in frames if is_torch(f) and f.name != "_call_impl"]
    wrappers = [f for f in frames if is_torch(f) and f.name == "_call_impl"]
    python = [f for f in frames if not is_native(f) and not is_torch(f) and not is_package(f)]
    operators = [f for f in frames if f.name.startswith("at::")]
    for lines in (packages, torch[::-1], wrappers, python, operators[::-1], frames):
        if lines:
            return lines[0]
    return None


def tree_path(stack):
    """The nodes of a stack, outermost first: ("own", line), ("folded",), ("library", line)."""
    path: list[Node] = []
    run_of: list[Frame] = []
    for frame in reversed(shown(stack)):
        if not is_own(frame):
            run_of.insert(0, frame)
            continue
        path += [("folded",)] if run_of else []
        path.append(("own", frame))
        run_of = []
    return path + ([("library", best_line(run_of))] if run_of else []) or [("unknown",)]


def unfolded_path(stack):
    path: list[Node] = [("own" if is_own(frame) else "library", frame) for frame in reversed(shown(stack))]
    return path or [("unknown",)]


def tree_of(blocks, path_of_stack):
    """From the path of each node to its bytes and blocks."""
    sums, ends = collections.defaultdict(lambda: [0, 0]), collections.defaultdict(lambda: [0, 0])
    for size, stack in blocks:
        path = path_of_stack(stack)
        ends[tuple(path)][0] += size
        ends[tuple(path)][1] += 1
        for depth in range(1, len(path) + 1):
            sums[tuple(path[:depth])][0] += size
            sums[tuple(path[:depth])][1] += 1
    for path, end in ends.items():
        if end != sums[path]:
            sums[path + (("self",),)] = end
    return {path: tuple(sum) for path, sum in sums.items()}


def tree_in(rows):
    """The same from the rows of the answer, which are in the order of a walk; children are sorted by bytes."""
    tree, path, last = {}, [], {}
    for row in rows:
        node: Node = (row["kind"],)
        if row["kind"] in ("own", "library"):
            node += (Frame(row["function"], row["file"], row["line"]),)
        path = path[:row["depth"]] + [node]
        parent = tuple(path[:-1])
        check(row["kind"] == "others" or row["bytes"] <= last.get(parent, row["bytes"]), f"{row} comes after a smaller one")
        last[parent] = row["bytes"]
        check(tuple(path) not in tree, f"{row} is there twice")
        tree[tuple(path)] = (row["bytes"], row["blocks"])
    return tree


def rows_of(path, *options):
    return run("report", "--stacks", "--json", *options, path).works().json()["stacks"]


def test_tree_has_what_the_pickle_has(folder: str) -> None:
    for path in recordings(folder):
        blocks = live_at_peak(entries_of(path), 512)
        everything = ("--min-share", "0", "--depth", "1000")
        equal(tree_in(rows_of(path, *everything)), tree_of(blocks, tree_path), f"the tree of {path}")
        equal(tree_in(rows_of(path, "--unfold", *everything)), tree_of(blocks, unfolded_path), f"all lines of {path}")
        for row in rows_of(path):
            equal(row["share"], round(row["bytes"] / sum(size for size, _ in blocks), 4), "the share")


def test_tree_sums_up_small_branches(folder: str) -> None:
    for path in recordings(folder):
        whole = tree_of(live_at_peak(entries_of(path), 512), tree_path)
        total = sum(sum[0] for node, sum in whole.items() if len(node) == 1)
        for percent in ("0.5", "5", "100"):
            tree = tree_in(rows_of(path, "--min-share", percent, "--depth", "1000"))
            for node, sum_of in tree.items():
                children = [child for child in whole if child[:-1] == node[:-1]]
                kept = [child for child in children if child in tree]
                if node[-1] == ("others",):
                    check(len(children) - len(kept) >= 2, f"{node} stands for one line")
                    check(kept or len(node) == 1, f"{node} says the same as the line above it")
                    rest = [whole[child] for child in children if child not in kept]
                    equal(sum_of, tuple(map(sum, zip(*rest))), f"{node}")
                    check(all(100 * size < float(percent) * total for size, _ in rest), f"{node} is large")
                else:
                    equal(sum_of, whole[node], f"{node}")


def test_tree_is_cut_at_a_depth(folder: str) -> None:
    path = next(recordings(folder))
    whole = rows_of(path, "--min-share", "0", "--depth", "1000")
    for depth in (1, 3):
        want = [row for row in whole if row["depth"] < depth]
        equal(rows_of(path, "--min-share", "0", "--depth", str(depth)), want, f"the rows above depth {depth}")


def test_call_sites_are_lines_of_the_program(folder: str) -> None:
    for path in recordings(folder):
        want = collections.Counter()
        for size, stack in live_at_peak(entries_of(path), 512):
            mine = [frame for frame in stack if is_own(frame)]
            best = mine[0] if mine else best_line(shown(stack)) or (stack[0] if stack else None)
            want[best] += size
        rows = run("report", "--json", "--top", "1000", path).works().json()["call_sites"]
        got = {Frame(r["function"], r["file"], r["line"]) if r["function"] else None: r["bytes"] for r in rows}
        equal(got, dict(want), f"the call sites of {path}")


def test_the_stack_of_a_leak_has_all_its_frames(folder: str) -> None:
    r, kept = Recording(), [Frame(f"level_{i}", f"/home/me/job/{'long_' * 30}{i}.py", i) for i in range(300)]
    for _ in range(40):
        for size in (1000, 70_000, 3_000_000):
            r.free(r.alloc(size, [Frame("step", "/home/me/job/train.py", size)]))
        r.alloc(4096, kept)
    leaks = run("report", r.save(folder), "--json", "--step", "12").works().json()["leaks"]
    equal(len(leaks), 1, "the number of leaks")
    got = [frame.split(" ")[-1] for frame in leaks[0]["stack"].split(";")]
    equal(got, [frame.name for frame in reversed(kept)], "the stack")


def test_text_fits_the_columns(folder: str) -> None:
    made = Recording()
    deep = "/".join(["a_folder_with_a_long_name"] * 8)
    for line in range(30):
        made.alloc((line + 1) << 20, [Frame(f"function_with_a_long_name_{'x' * line}", f"/home/me/{deep}/{line}.py", line),
                                      LIBRARY[3], LIBRARY[2], Frame("main", f"/home/me/{deep}/other.py", 7)])
    name = "void at::native::kernel<" + "std::vector<int, std::allocator<int> >, " * 9 + "int>(at::Tensor const&)"
    made.alloc(40 << 20, [Frame(name, "??", 0), Frame("main", "/home/me/train.py", 1)])
    path = made.save(folder)
    for color in ("never", "always"):
        text = run("report", "--stacks", "--color", color, path).works().out
        plain = re.sub("\033\\[[0-9;]*m", "", text)
        equal(color == "always", plain != text, "whether there is colour")
        tree = plain[plain.index("\nCall sites"):]
        wide = [line for line in tree.splitlines() if len(line) > 100]
        equal(wide, [], "the lines over 100 columns")
        check("…/0.py" in tree or "…/29.py" in tree, "a long path has no file")
        check("at::native::kernel<…>(…)" in tree, "the arguments of a template are shown")


def test_the_manual_has_every_key(folder: str) -> None:
    with open(os.path.join(SOURCE, "docs", "man", "tidemark.1")) as file:
        section = file.read().split(".Ss Stacks\n")[1].split("\n.Ss ")[0]
    words = set(re.findall(r"\w+", section))
    rows = rows_of(list(recordings(folder))[1], "--min-share", "2")
    missing = {key for row in rows for key in row}.union(row["kind"] for row in rows) - words
    equal(missing, set(), "what the manual does not have")


def test_options_are_checked(folder: str) -> None:
    path = next(recordings(folder))
    for options, words in ((["--stacks", "--depth", "0"], "--depth"), (["--stacks", "--depth", "1001"], "--depth"),
                           (["--stacks", "--min-share", "x"], "--min-share"),
                           (["--stacks", "--min-share", "101"], "--min-share"),
                           (["--stacks", "--min-share", "nan"], "--min-share"), (["--unfold"], "--stacks"),
                           (["--depth", "3"], "--stacks")):
        run("report", *options, path).fails(words)


def test_recordings_without_stacks(folder: str) -> None:
    made = Recording()
    made.alloc(1 << 20, None)
    path = made.save(folder)
    equal([(r["kind"], r["bytes"], r["frame"]) for r in rows_of(path)], [("unknown", 1 << 20, "(no stack)")], "the tree")
    check("No stacks were recorded" in run("report", "--stacks", path).works().out, "nothing is said")


if __name__ == "__main__":
    harness.main()
