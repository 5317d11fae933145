#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Tests `tidemark plan` and `tidemark verify` on planning problems and on recordings."""
import json
import os
import pathlib
import pickle
import re
import signal
import sys
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import harness
from harness import DATA, Terminal, check, equal, run, scaled
from verbs import HEAD, PLAIN, PLANNED, problem, random_problem, said_about, said_of, snapshot, text_of, write

HARD = (5000, 1, 1000, 100, 10**6)  # a random problem that no search ends for
FEW_NODES = ("--seconds", "0", "--nodes", "20000")  # a search that ends at the same place everywhere


def rows_of(text):
    """The rows of a CSV as dicts, with numbers in numeric columns."""
    lines = [line.split(",") for line in text.split("\n") if line]
    return [{k: v if k in ("id", "gaps") else int(v) for k, v in zip(lines[0], line)} for line in lines[1:]]


def peak_of(rows):
    """The peak of a plan without gaps, computed in the simplest way; overlapping buffers are a failure."""
    rows = [row for row in rows if row["size"] > 0 and row["lower"] < row["upper"]]
    live = []
    for row in sorted(rows, key=lambda row: row["lower"]):
        live = [other for other in live if other["upper"] > row["lower"]]
        for other in live:
            if row["offset"] + row["size"] > other["offset"] and other["offset"] + other["size"] > row["offset"]:
                raise AssertionError(f"{row} and {other} overlap")
        live.append(row)
    return max((row["offset"] + row["size"] for row in rows), default=0)


def load_of(rows):
    return max((sum(r["size"] for r in rows if r["lower"] <= at["lower"] < r["upper"]) for at in rows), default=0)


def plan(data, *arguments, folder=None):
    """The answer of `plan`, which must find one, and its rows, which are checked."""
    target = f"{folder}/planned.csv"
    said = said_about("plan", data, "-o", target, *arguments)
    rows = rows_of(text_of(target))
    equal(said["peak"], peak_of(rows), "the peak")
    check(said["lower_bound"] <= said["peak"], f"{said}")
    run("verify", target).works()
    return said, rows


def test_plan_finds_the_smallest_arena(folder: str) -> None:
    data = random_problem(60)
    said, rows = plan(problem(data), "--seconds", "0", folder=folder)
    equal((said["buffers"], said["status"]), (60, "optimal"))
    equal([(r["id"], r["lower"], r["upper"], r["size"]) for r in rows], data, "the rows")
    load = load_of(rows)
    check(said["lower_bound"] >= load, f"the bound is {said['lower_bound']}, the load {load}")
    if said["proof"]["reason"] == "load":
        at = said["proof"]["instant"]
        live = [row["size"] for row in rows if row["lower"] <= at < row["upper"]]
        equal((len(live), sum(live)), (said["proof"]["live"], said["peak"]), "what lives at the instant")
    equal((said["gap"], said["capacity"], said["smallest_found"]), (0, None, None))
    check(0 <= said["seconds"] and said["stage"] != "none", f"{said}")


def test_plan_keeps_the_columns_and_their_order() -> None:
    head = "id,lower,upper,size,alignment,hint,gaps"
    rows = [("x", 0, 9, 64, 16, -7, "1-2 4-6@8:24"), ("", 3, 4, 5, 1, 48, ""), ("x", 3, 4, 0, 3, -1, "")]
    text = problem(rows, head)
    out = run("plan", "-", "-o", "-", stdin=text).works().out
    check(out.startswith(head + ",offset\n"), out)
    without = "".join(line.rpartition(",")[0] + "\n" for line in out.strip().split("\n"))
    equal(without, text.decode(), "the plan without its last column")
    equal(run("plan", "-", "-o", "-", stdin=out.encode()).works().out, out, "a plan that is planned again")
    swapped = b"size,offset,end,start,buffer\n7,70,2,1,a\n"
    equal(run("plan", "-", "-o", "-", stdin=swapped).works().out, HEAD + ",offset\na,1,3,7,70\n")


def test_plan_keeps_fixed_offsets(folder: str) -> None:
    data = problem([("low", 0, 5, 10, 5), ("high", 0, 5, 10, 40)], HEAD + ",offset")
    said, rows = plan(data, folder=folder)
    equal([row["offset"] for row in rows], [5, 40])
    equal(said["peak"], 50)


def test_plan_aligns(folder: str) -> None:
    data = problem([(i, 0, 5, 10 + i, 1 + 5 * (i % 2)) for i in range(8)], HEAD + ",alignment")
    said, rows = plan(data, "--align", "4", folder=folder)
    for row in rows:
        unit = 12 if row["alignment"] == 6 else 4
        equal(row["offset"] % unit, 0, f"the offset of {row}")
    equal([row["alignment"] for row in rows], [1, 6] * 4, "the alignments that are written")
    run("plan", "-", "--align", "2MiB", *FEW_NODES, stdin=data).works()
    for word in ("0", "x", ""):
        run("plan", "-", "--align", word, stdin=data).fails("--align")
    huge = problem([("a", 0, 1, 1, 9223372036854775807)], HEAD + ",alignment")
    run("plan", "-", "--align", "1000", stdin=huge).fails("'a'")


def test_plan_within_a_capacity(folder: str) -> None:
    rows = random_problem(40)
    least = plan(problem(rows), "--seconds", "0", folder=folder)[0]["peak"]
    said, _ = plan(problem(rows), "--capacity", str(2 * least), folder=folder)
    check(said["status"] in ("feasible", "optimal") and said["peak"] <= 2 * least, f"{said}")
    equal(said["capacity"], 2 * least)
    said, _ = plan(problem(rows), "--capacity", str(least), folder=folder)
    equal(said["peak"], least)


def none_is_written(folder, status, data, *arguments, part=""):
    """There is no plan: checks the status, the answer, and that existing files are unchanged."""
    target = write(f"{folder}/old.csv", b"before")
    line = ("plan", "-", "-o", target, "--svg", f"{folder}/new.svg", *arguments)
    said = run(*line, "--json", stdin=data).works(status).json()
    equal(said["status"], {1: "infeasible", 3: "unknown"}[status])
    equal((said["peak"], said["gap"], said["output"], said["svg"]), (None, None, None, None))
    equal((text_of(target), os.path.exists(f"{folder}/new.svg")), ("before", False))
    answer = run(*line, stdin=data)
    equal(answer.status, status)
    check(part in " ".join(answer.out.split()), f"{answer.out!r} does not say {part!r}")
    answer = run("plan", "-", "-o", "-", *arguments, stdin=data)
    equal((answer.status, answer.out), (status, ""))
    check(part in answer.err and answer.err.count("\n") == 1, answer.err)
    return said


def test_plan_says_why_there_is_none(folder: str) -> None:
    two = [("first", 0, 5, 600), ("second", 2, 5, 500)]
    part = "the 2 buffers live at time 2 need 1100"
    said = none_is_written(folder, 1, problem(two), "--capacity", "1000", part=part)
    equal(said["proof"], {"reason": "load", "instant": 2, "live": 2, "buffer": None, "other": None})
    equal((said["lower_bound"], said["capacity"]), (1100, 1000))
    clash = problem([("first", 0, 5, 600, 0), ("second", 2, 5, 500, 599)], HEAD + ",offset")
    said = none_is_written(folder, 1, clash, part="'first' and 'second' are fixed where they overlap")
    equal([said["proof"][key] for key in ("reason", "buffer", "other")], ["pair", "first", "second"])
    odd = problem([("fine", 0, 5, 8, 16), ("odd", 6, 7, 8, 17)], HEAD + ",offset")
    part = "'odd', 8 bytes, is fixed at 17, which is not a multiple of 16"
    said = none_is_written(folder, 1, odd, "--align", "16", part=part)
    equal((said["proof"]["reason"], said["proof"]["buffer"]), ("buffer", "odd"))
    high = problem([("fine", 0, 5, 8, 16), ("high", 6, 7, 8, 93)], HEAD + ",offset")
    part = "'high', 8 bytes, is fixed at 93 and ends beyond 100"
    none_is_written(folder, 1, high, "--capacity", "100", part=part)


def test_plan_says_that_none_was_found(folder: str) -> None:
    data = problem(random_problem(*HARD))
    bound = said_about("plan", data, *FEW_NODES)["lower_bound"]
    part = "No plan was found before a limit was reached"
    said = none_is_written(folder, 3, data, "--capacity", str(bound), *FEW_NODES, part=part)
    check(said["smallest_found"] > bound, f"{said}")


def test_plan_of_nothing(folder: str) -> None:
    for rows in ([], [("a", 3, 3, 100)], [("a", 0, 3, 0)]):
        said, _ = plan(problem(rows), folder=folder)
        equal((said["peak"], said["lower_bound"], said["status"]), (0, 0, "optimal"))
        said, _ = plan(problem(rows), "--capacity", "0", folder=folder)
        equal(said["peak"], 0)


def test_plan_is_the_same_for_a_seed_and_a_number_of_nodes() -> None:
    data = problem(random_problem(150, steps=100))
    line = ("plan", "-", "-o", "-", "--seconds", "0", "--nodes", "20000")
    plans = {run(*line, "--seed", "7", "--threads", threads, stdin=data).works().out for threads in ("1", "2", "0")}
    equal(len(plans), 1, "how many plans there are")


def test_plan_refuses_bad_options(folder: str) -> None:
    bad = {"seconds": "x -1 nan inf 1s", "nodes": "-1 1.5 x", "threads": "-1 x 4294967296",
           "seed": "-1 x 18446744073709551616", "device": "1 x"}
    for name, words in bad.items():
        for word in ["", *words.split()]:
            run("plan", "-", f"--{name}", word, stdin=PLANNED).fails(f"'{word}'")
    run("plan", "-", "-o", "-", "--json", stdin=PLANNED).fails("standard output")
    run("plan", "-", "--svg", "-", stdin=PLANNED).fails("--svg")
    run("plan", "-", "-o", f"{folder}/none/x.csv", stdin=PLANNED).fails("No such file")


def test_a_plan_and_its_picture_do_not_replace_each_other(folder: str) -> None:
    os.mkdir(f"{folder}/sub")
    os.symlink(folder, f"{folder}/sub/up")
    os.symlink("later.csv", f"{folder}/soon")
    os.symlink("sub/up/soon", f"{folder}/sooner")
    later = f"{folder}/later.csv"
    others = (later, f"{folder}/./later.csv", f"{folder}/sub/../later.csv", f"{folder}/sub/up/later.csv",
              f"{folder}/soon", f"{folder}/sooner")
    for is_there in (False, True):
        if is_there:
            write(later, b"before")
        for other in others:
            for plan_file, picture in ((later, other), (other, later)):
                line = ("plan", "-", "-o", plan_file, "--svg", picture)
                run(*line, stdin=PLANNED).fails("would overwrite the plan")
        equal(os.path.exists(later), is_there, "there is a file")
    equal(text_of(later), "before")
    run("plan", "-", "-o", "/dev/null", "--svg", "/dev/null", stdin=PLANNED).works()
    run("plan", "-", "-o", "-", "--svg", later, stdin=PLANNED).works()


def test_a_plan_does_not_replace_its_problem(folder: str) -> None:
    file = write(f"{folder}/x.csv", PLANNED)
    os.symlink("x.csv", f"{folder}/link")
    for name in (file, f"{folder}/link", f"{folder}/./x.csv"):
        for option in ("-o", "--svg"):
            run("plan", file, option, name).fails("would overwrite the input")
            with open(file, "rb") as same:
                run("plan", "-", option, name, stdin=same).fails("would overwrite the input")
    equal(pathlib.Path(file).read_bytes(), PLANNED, "the problem")


def test_plan_of_hostile_problems(folder: str) -> None:
    largest = 2**62
    run("plan", "-", stdin=problem([("a", 5, 4, 1)])).fails("ends before it begins")
    run("plan", "-", stdin=problem([("a", 0, 9, 8, "7-5")], HEAD + ",gaps")).fails("gap")
    run("plan", "-", stdin=problem([("a", 0, 9, 8, "5-11")], HEAD + ",gaps")).fails("gap")
    run("plan", "-", stdin=problem([("a", 0, 9, 8, "1-5 4-6")], HEAD + ",gaps")).fails("gap")
    run("plan", "-", stdin=problem([("a", 0, 9, 8, "1-5@6:9")], HEAD + ",gaps")).fails("gap")
    run("plan", "-", stdin=problem([("a", 0, 9, 2**63)])).fails("not a size")
    run("plan", "-", stdin=problem([("a", 0, 9, 2**63 - 4096)])).fails("9223372036854771712 bytes")
    run("plan", "-", stdin=problem([("a", 0, 9, 2**63 - 1)] * 2)).fails("9223372036854775807 bytes")
    said, rows = plan(problem([("a", 0, 9, 2**61), ("a", 0, 9, 2**61), ("a", 9, 10, largest)]), folder=folder)
    equal((said["peak"], said["status"], [row["id"] for row in rows]), (largest, "optimal", ["a"] * 3))
    none_is_written(folder, 1, problem([("a", 0, 9, largest), ("b", 0, 9, 1)]), part="a")


def test_plan_of_many_identical_buffers_keeps_its_time(folder: str) -> None:
    count = 1000000 if harness.SCALE >= 10 else 50000
    data = b"id,lower,upper,size\n" + b"".join(b"%d,0,9,512\n" % i for i in range(count))
    target = f"{folder}/planned.csv"
    before = harness.processor_s()
    said = said_about("plan", data, "-o", target, "--seconds", "300")
    took = harness.processor_s() - before
    check(took < 60, f"it took {took} s of the processor")
    equal((said["buffers"], said["peak"], said["status"]), (count, 512 * count, "optimal"))
    run("verify", target).works()


BAR = r"planning, \d+\.\d\d % above the bound  \[#*\.*\] +\d+ %"


def test_an_interrupt_ends_the_search_with_a_plan(folder: str) -> None:
    """Interrupts a search without a time limit, once its progress bar is shown."""
    file = write(f"{folder}/x.csv", problem(random_problem(*HARD)))
    target = f"{folder}/planned.csv"
    terminal = Terminal("plan", file, "-o", target, "--seconds", "0", "--json", streams=["stderr"])
    terminal.wait_for("planning, .* above the bound")
    equal(terminal.child.poll(), None, "the status before the interrupt")
    terminal.child.send_signal(signal.SIGINT)
    said = json.loads(terminal.end())
    equal(said["is_interrupted"], True)
    equal(said["peak"], peak_of(rows_of(text_of(target))), "the peak")
    check(terminal.seen.endswith("\r\033[K"), f"the bar stays: {terminal.seen!r}")


def test_plan_of_a_recording(folder: str) -> None:
    said, rows = plan(PLAIN, folder=folder)
    equal([(r["lower"], r["upper"], r["size"]) for r in rows], [(1, 5, 1024), (2, 4, 512)])
    keys = ("peak", "peak_allocated", "recorded_reserved", "status", "blocks_before")
    equal([said[key] for key in keys], [1536, 1536, 2097152, "optimal", 0])
    answer = run("plan", "-", stdin=PLAIN).works()
    check("would have served the run" in answer.out and "2097152 bytes (2.00 MiB)" in answer.out, answer.out)
    middle = snapshot()
    del middle["device_traces"][0][:2]  # the first allocation is known from the end alone
    said, rows = plan(pickle.dumps(middle, 4), folder=folder)
    equal(sorted((r["lower"], r["upper"], r["size"]) for r in rows), [(0, 4, 1024), (1, 3, 512)])
    equal([said[k] for k in ("peak", "peak_allocated", "blocks_before")], [1536, 1536, 1])


def test_plan_of_recordings_is_bounded_by_what_was_live() -> None:
    names = sorted(file.stem for file in pathlib.Path(DATA).glob("*.tide"))
    check(len(names) > 5, f"only {names}")
    for name in names:
        said = said_of("plan", name, *FEW_NODES)
        check(said["peak_allocated"] <= said["lower_bound"] <= said["peak"], f"{name}: {said}")
        check(said["peak"] <= said["recorded_reserved"], f"{name}: {said}")


def test_plan_shows_how_far_it_is(folder: str) -> None:
    file = write(f"{folder}/x.csv", problem(random_problem(*HARD)))
    terminal = Terminal("plan", file, "--seconds", str(harness.HANGS_S), streams=["stderr"])
    terminal.wait_for(BAR)
    terminal.child.send_signal(signal.SIGINT)
    terminal.end()
    check(terminal.seen.endswith("\r\033[K"), f"the bar stays: {terminal.seen!r}")


def test_plan_of_a_device(folder: str) -> None:
    both = snapshot()
    both["device_traces"].append([{**entry, "size": 4096} for entry in both["device_traces"][0][1:2]])
    data = pickle.dumps(both, 4)
    equal(plan(data, folder=folder)[0]["peak"], 1536)
    equal(plan(data, "--device", "1", folder=folder)[0]["peak"], 4096)


def test_plan_moves_few_buffers_away_from_their_hints(folder: str) -> None:
    rows = random_problem(30)
    least = plan(problem(rows), folder=folder)[1]
    keys = ("id", "lower", "upper", "size", "offset")
    hinted = problem([[row[key] for key in keys] for row in least], HEAD + ",hint")
    said, again = plan(hinted, "--keep-hints", folder=folder)
    equal((said["moved"], [r["offset"] for r in again]), (0, [r["offset"] for r in least]))
    equal(plan(hinted, folder=folder)[0]["moved"], None)


def shapes(path):
    """The picture as XML, and its rectangles by title, as lists of (x, y, width, height)."""
    root = xml.etree.ElementTree.parse(path).getroot()
    found = {}
    for shape in root.iter("{http://www.w3.org/2000/svg}path"):
        title, drawn = shape.findtext("{http://www.w3.org/2000/svg}title"), shape.get("d", "")
        if title is None or "too small" in title:
            continue
        parts = re.findall(r"M(\d+) (\d+)h(\d+)v(\d+)h-\3z", drawn)
        equal("".join("M{} {}h{}v{}h-{}z".format(*part, part[2]) for part in parts), drawn, "the path")
        found[title] = [tuple(map(int, part)) for part in parts]
    return root, found


def test_plan_draws_a_picture(folder: str) -> None:
    rows = [("a<&>\"'", 0, 10, 1024, "2-4 6-8@0:512"), ("b\xff\x01", 2, 4, 1024, ""), ("none", 3, 3, 7, "")]
    text = (HEAD + ",gaps\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)).encode("latin-1")
    picture = f"{folder}/p.svg"
    said = said_about("plan", text, "--svg", picture, "--capacity", "1024")
    equal((said["svg"], said["peak"]), (picture, 1024))
    root, found = shapes(picture)
    titles = ["a<&>\"': 1024 bytes at 0, from 0 to 10", "b\ufffd\\x01: 1024 bytes at 0, from 2 to 4"]
    equal(sorted(found), titles)
    first, second = found[min(found)], found[max(found)]
    left, top, width, height = first[0]
    equal(len(first), 4, "pieces of a buffer with two gaps, one of them with a window")
    equal(second, [(left + width, top, width, height)], "what lies in the gap")
    equal(first[1], (left + 2 * width, top, width, height))
    equal(first[2], (left + 3 * width, top + height // 2, width, height // 2), "the window")
    equal(first[3], (left + 4 * width, top, width, height))
    words = "".join(root.itertext())
    for part in ("lower bound 1.00 KiB", "capacity 1.00 KiB", "1024 B", "3 buffers in 1.00 KiB"):
        check(part in words, f"{part!r} is not in the picture: {words}")


def test_plan_draws_few_bytes_for_many_buffers(folder: str) -> None:
    """One plan whose buffers are all large enough to see, and one whose buffers are not."""
    for columns, lines, seen in ((300, 100, True), (30, scaled(10000, 2000), False)):
        rows = [(f"n{x}_{y}", x, x + 1, 64) for x in range(columns) for y in range(lines)]
        picture = f"{folder}/p.svg"
        run("plan", "-", "--svg", picture, *FEW_NODES, stdin=problem(rows)).works()
        _, found = shapes(picture)
        equal(len(found), columns * lines if seen else 0, "rectangles")
        check(os.path.getsize(picture) < 4 << 20, f"the picture has {os.path.getsize(picture)} bytes")
        check(seen or f"{columns * lines} pieces too small" in text_of(picture), "small pieces are not mentioned")


def test_plan_draws_extremes(folder: str) -> None:
    late = 9 * 10**15
    for rows in ([], [("a", 0, 3, 0)], [("a", late, late + 1, 2**62)], [("a", 0, late, 1)]):
        picture = f"{folder}/p.svg"
        run("plan", "-", "--svg", picture, stdin=problem(rows)).works()
        shapes(picture)


# ---------------------------------------------------------------------------------------------------
# verify


def test_verify_names_what_is_wrong() -> None:
    def said(rows, *more, head=HEAD + ",offset"):
        answer = run("verify", "-", "--json", *more, stdin=problem(rows, head)).works(0, 1)
        says = answer.json()
        equal(answer.status, 0 if says["valid"] else 1)
        shown = run("verify", "-", *more, stdin=problem(rows, head)).out
        check(says["valid"] or says["fault"] in shown, shown)
        return says

    good = said([("a", 0, 5, 64, 0), ("b", 5, 9, 64, 0), ("c", 0, 9, 8, 64)], "--capacity", "72")
    equal((good["valid"], good["peak"], good["buffers"], good["capacity"]), (True, 72, 3, 72))
    equal((good["fault"], good["buffer"], good["other"], good["instant"]), (None,) * 4)
    bad = said([("a", 0, 5, 64, 0), ("b", 3, 9, 64, 63)])
    equal(({bad["buffer"], bad["other"]}, bad["instant"], bad["peak"]), ({"a", "b"}, 3, None))
    check("overlap at time 3" in bad["fault"], bad["fault"])
    bad = said([("a", 0, 5, 64, 0), ("b", 5, 9, 64, 9)], "--capacity", "72")
    equal((bad["buffer"], bad["other"]), ("b", None))
    equal(bad["fault"], "'b', 64 bytes at offset 9, ends beyond the capacity of 72")
    bad = said([("a", 0, 5, 64, 8, 12)], head=HEAD + ",alignment,offset")
    equal((bad["buffer"], bad["fault"]), ("a", "'a' is at offset 12, which is not a multiple of 8"))
    good = said([("a", 0, 9, 64, "3-5", 0), ("b", 3, 5, 64, "", 0)], head=HEAD + ",gaps,offset")
    equal(good["valid"], True)


def test_verify_wants_a_plan(folder: str) -> None:
    run("verify", "-", stdin=problem([("a", 0, 5, 64)])).fails("'a' has no offset")
    run("verify", "-", stdin=PLAIN).fails("has no offset")
    run("verify", "-", stdin=problem([("a", 6, 5, 64, 0)], HEAD + ",offset")).fails("ends before it begins")
    run("verify", "-", stdin=problem([("a", 0, 5, 64, "x")], HEAD + ",offset")).fails("not a number")
    run("verify", f"{folder}/none").fails("No such file")
    run("verify", "-", stdin=PLANNED).works()


if __name__ == "__main__":
    harness.main()
