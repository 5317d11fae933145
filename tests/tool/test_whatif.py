#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Tests `tidemark whatif`, and the advice that it and `report` give by one rule."""
import pathlib
import pickle
import random
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import harness
from harness import check, equal, run, scaled, some
from verbs import as_pickle, part_of, problem, random_problem, recording, recordings, said_about, said_of


def test_whatif_has_a_row_for_each_setting() -> None:
    said = said_of("whatif", "gnn_retry", "--limit", "14GiB")
    rows = said["rows"]
    check(len(rows) >= 12 and all(row["smallest_memory"] for row in rows), f"{rows}")
    equal(sum(row["is_recorded"] for row in rows), 1)
    check(any("garbage_collection_threshold" in row["settings"] for row in rows), f"{rows}")
    want = ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", 14 << 30, True)
    equal((said["environment"], said["limit"], said["is_repeated"]), want)
    peaks = [row["peak_reserved"] for row in said_of("whatif", "resnet_stacks")["rows"]]
    equal(peaks, sorted(peaks), "the peaks")


def test_whatif_prints_the_line_to_paste() -> None:
    shown = run("whatif", recording("graphs"), "--quick").works().out
    for part in ("repeated in every row: 5.", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n",
                 "when it was recorded", "(as recorded)"):
        check(part in shown, f"{part!r} is not in {shown}")
    check("smallest" not in shown, shown)


def test_whatif_says_no_when_nothing_fits() -> None:
    answer = run("whatif", recording("gnn_retry"), "--limit", "5GiB")
    equal(answer.status, 1)
    said = "No setting that was tried runs in 5.00 GiB. The smallest that fits is (.*?) GiB, with tide"
    found, peak = float(part_of(said, answer.out)), float(part_of("peak allocated +(.*?) GiB", answer.out))
    check(peak <= found <= 1.01 * peak, answer.out)
    columns = [float(cell) for cell in re.findall(r" no +\d+ +(\S+) GiB", answer.out)]
    check(len(columns) > 5 and found == min(columns), answer.out)
    check("PYTORCH_CUDA_ALLOC_CONF" not in answer.out, answer.out)
    answer = run("whatif", recording("resnet_stacks"), "-q", "--limit", "1GiB")
    equal((answer.status, re.search(r"  no +\d+\n", answer.out) is not None), (1, True))


def test_whatif_takes_more_policies() -> None:
    rows = said_of("whatif", "resnet_stacks", "-q", "-p", "torch:max_split_size_mb:777  torch:fixes=on")["rows"]
    settings = [row["settings"] for row in rows]
    equal((settings.count("max_split_size_mb:777"), settings.count("fixes:True")), (1, 1), f"{settings}")


def test_whatif_finds_the_same_twice() -> None:
    """The results of a thread do not depend on the others."""
    equal(said_of("whatif", "gnn_retry"), said_of("whatif", "gnn_retry"))


# ---------------------------------------------------------------------------------------------------
# Advice


def better_rows(said):
    """The rows that may be suggested, and what the recorded setting needs; None if it does not run."""
    recorded, = (row for row in said["rows"] if row["is_recorded"])
    runs = [row for row in said["rows"] if row["is_pytorch"] and row["fits"] and not row["is_recorded"]]
    if not recorded["fits"]:
        return runs, None
    need = min(said["recorded_reserved"] or recorded["peak_reserved"], recorded["peak_reserved"])
    return [row for row in runs if 50 * (need - row["peak_reserved"]) > need], need


def advice_is_checked(file, is_proof=True, data=b"", quick="--quick"):
    """whatif and report suggest the same, as the rows of whatif justify."""
    said = run("whatif", file, quick, "--json", stdin=data).works().json()
    told = run("report", file, "--json", stdin=data).works().json()
    shown = run("whatif", file, quick, stdin=data).works().out
    for key in ("environment", "advised", "saved_bytes"):
        equal(told[key], said[key], f"{file}: {key} of report")
    better, need = better_rows(said) if is_proof else ([], None)
    lines = re.findall(r"^(?:unset )?PYTORCH_CUDA_ALLOC_CONF.*$", shown, re.M)
    equal(lines, [said["environment"]] if better else [], f"{file}: lines to paste")
    claim = "No PyTorch setting that was tried lowers the peak" in shown
    equal(claim, is_proof and not better and need is not None, f"{file}: it is said that nothing helps")
    equal(claim or not better, "PYTORCH_CUDA_ALLOC_CONF" not in (told["advice"] or ""), f"{file}: {told}")
    if not better:
        equal((said["environment"], said["advised"], said["saved_bytes"]), (None, None, None), file)
        return said
    row, = (row for row in better if f"torch:{row['settings']}".rstrip(":") == said["advised"])
    name, value = "PYTORCH_CUDA_ALLOC_CONF", row["settings"]
    equal(said["environment"], f"{name}={value}" if value else f"unset {name}", f"{file}: the line to paste")
    least = min(other["peak_reserved"] for other in better)
    check(50 * (row["peak_reserved"] - least) <= row["peak_reserved"], f"{file}: {row} is not the best")
    equal(said["saved_bytes"], 0 if need is None else need - row["peak_reserved"], f"{file}: saved_bytes")
    limit = [] if said["limit"] is None else ["--limit", f"{said['limit']}B"]
    again = run("replay", file, "--policy", said["advised"], "--json", *limit, stdin=data).works().json()
    equal((again["peak_reserved"], again["ooms"]), (row["peak_reserved"], 0), f"{file}: replayed")
    return said


def test_whatif_and_report_advise_by_one_rule() -> None:
    advised = [advice_is_checked(file)["advised"] for file in some(recordings())]
    check(not harness.is_thorough() or {None, "torch", "torch:expandable_segments:True"} <= set(advised), f"{advised}")


def test_whatif_that_looks_for_the_smallest_memory_advises_the_same() -> None:
    for name in some(("after_oom", "events", "expand", "oversize", "pools")):
        advice_is_checked(recording(name), quick="--color=never")


def random_requests(rng):
    """A log of requests only: sizes of a few magnitudes, some long-lived, on one or two streams."""
    live, lines, streams = [], ["Thread,Time,Action,Pointer,Size,Stream"], rng.choice(("0", "01"))
    for at in range(rng.randrange(20, 200)):
        action, pointer = "allocate", (at + 1) << 32
        if live and rng.random() < 0.45:
            action = "free"
            pointer, size, stream = live.pop(rng.randrange(max(len(live) - 8, 0), len(live)))
        else:
            size, stream = rng.randrange(1, 4 << rng.choice((9, 20, 22, 24))), rng.choice(streams)
            live.append((pointer, size, stream))
        lines.append(f"0,00:00:{at // 1000:02}.{at % 1000:03},{action},{pointer:#x},{size},{stream}")
    return "\n".join(lines).encode() + b"\n"


def random_snapshot(rng):
    """A run in which each request has a segment, which may outlive it. Some requests are refused, and some runs
    have settings."""
    live, kept, entries = [], [], []
    refuses = rng.random() < 0.5

    def add(action, address, size, where="addr"):
        entries.append({"action": action, where: address, "size": size, "stream": 0, "time_us": len(entries), "frames": []})

    for at in range(rng.randrange(10, 80)):
        if live and rng.random() < 0.45:
            address, size, whole = live.pop(rng.randrange(len(live)))
            add("free_requested", address, size)
            add("free_completed", address, size)
            if rng.random() < 0.3:
                add("segment_free", address, whole)
            else:
                kept.append((address, whole))
            continue
        address, size = 0x7F0000000000 + (at << 32), rng.randrange(1, 40) * (512 << rng.choice((0, 8, 12)))
        if refuses and rng.random() < 0.1:
            add("oom", rng.choice((1 << 20, 1 << 40)), size, where="device_free")
            continue
        whole = 2 << 20 if size <= 1 << 20 else -(-size >> 21) << 21
        add("segment_alloc", address, whole)
        add("alloc", address, size)
        live.append((address, size, whole))

    def segment(address, whole, size):
        parts = ((address, size, size, "active_allocated"), (address + size, whole - size, 0, "inactive"))
        blocks = [{"address": at, "size": part, "requested_size": requested, "state": state, "frames": []}
                  for at, part, requested, state in parts if part > 0]
        return {"device": 0, "address": address, "total_size": whole, "allocated_size": size, "active_size": size,
                "requested_size": size, "stream": 0, "segment_pool_id": (0, 0), "frames": [], "blocks": blocks,
                "segment_type": "small" if whole <= 2 << 20 else "large", "is_expandable": False}

    segments = [segment(address, whole, size) for address, size, whole in live]
    segments += [segment(address, whole, 0) for address, whole in kept]
    settings = rng.choice(("", "expandable_segments:True", "max_split_size_mb:64"))
    return pickle.dumps({"segments": sorted(segments, key=lambda s: s["address"]), "device_traces": [entries],
                         "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": settings}}, 4)


def test_whatif_and_report_advise_the_same_of_random_runs() -> None:
    rng = random.Random(11)
    seen = set()
    for _ in range(scaled(30, 8)):
        said = advice_is_checked("-", data=random_snapshot(rng))
        seen.add((said["is_limit_inferred"], said["advised"] is not None))
    equal(len(seen), 4, f"kinds of runs ({seen})")


def test_whatif_and_report_advise_the_same_of_random_requests() -> None:
    rng = random.Random(7)
    advised = set()
    for _ in range(scaled(15, 8)):
        advised.add(advice_is_checked("-", data=random_requests(rng))["advised"] is not None)
    equal(advised, {True, False}, "whether something was advised")


def test_nothing_is_advised_of_a_recording_that_begins_in_the_middle(folder: str) -> None:
    data = as_pickle("resnet_stacks", folder)
    del data["device_traces"][0][:1390]
    advice_is_checked("-", is_proof=False, data=pickle.dumps(data, 4))
    advice_is_checked("-", is_proof=False, data=problem(random_problem(30)))


def test_a_run_that_ran_out_of_memory_is_replayed_in_what_it_had() -> None:
    file = recording("after_oom")
    said = run("whatif", file, "--quick", "--json").works().json()
    told = run("report", file, "--json").works().json()
    equal((said["is_limit_inferred"], said["limit"]), (True, told["limit_at_least"]))
    check(not any(row["fits"] for row in said["rows"]), "something fits")
    check("No setting that was tried runs in" in run("whatif", file, "--quick").works().out, "it is not said that nothing runs")
    said = run("whatif", file, "--quick", "--json", "--limit", "4GiB").works().json()
    equal((said["is_limit_inferred"], said["limit"]), (False, 4 << 30))


def test_what_requests_alone_are_compared_with_is_said() -> None:
    rng = random.Random(3)
    data = random_requests(rng)
    said = said_about("report", data)
    check(said["saved_bytes"] > 0, f"{said}")
    check(" less than with the defaults (" in said["advice"], said["advice"])
    shown = " ".join(run("whatif", "-", "-q", stdin=data).works().out.split())
    check(" with the defaults (-" in shown, shown)


if __name__ == "__main__":
    harness.main()
