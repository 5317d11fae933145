#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Tests `tidemark replay`: what it repeats, settings and limits, parking, sizes that are multiplied."""
import pathlib
import pickle
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import harness
from harness import check, equal, run
from verbs import PLAIN, as_pickle, recording, said_about, said_of, snapshot

MIB = 1 << 20
COPY_MS, REGISTER_MS = 19531e-6, 63000e-6  # what the dry machine takes for a MiB, as machine.h says




def test_replay_repeats_a_recording() -> None:
    said = said_of("replay", "gnn_retry", "--policy", "torch", "--check", "--limit", "14GiB")
    want = {"mismatched_addresses": 0, "mismatched_segments": 0, "mismatch": None, "allocations": 2936,
            "peak_allocated": 9226588160, "peak_allocated_blocks": 9229527040, "peak_reserved": 14115930112,
            "utilisation": 0.6536, "driver_allocs": 39, "driver_frees": 27, "retries": 2, "ooms": 0,
            "inferred_empty_cache": 0}
    equal({key: said[key] for key in want}, want)
    shown = run("replay", recording("graphs"), "--check").works().out
    check("identical to the recording" in shown and "2.17 GiB" in shown, shown)


def test_replay_says_no_when_it_differs_or_memory_is_short() -> None:
    said = said_of("replay", "gnn_retry", "--check", "--policy", "torch:max_split_size_mb=64", status=1)
    check(said["mismatch"].startswith("entry ") and said["allocations"] == 2936, f"{said}")
    said = said_of("replay", "gnn_retry", "--limit", "8G", status=1)
    check(said["ooms"] > 0 and said["limit"] == 8 << 30, f"{said}")
    said_of("replay", "gnn_retry", "--limit", "10G")


def test_replay_uses_the_recorded_settings_and_calls_empty_cache() -> None:
    equal(said_of("replay", "expand")["settings"], "expandable_segments:True")
    equal(said_of("replay", "expand", "--policy", "torch")["settings"], "")
    said = said_of("replay", "graphs")
    equal((said["inferred_empty_cache"], said["peak_reserved"]), (5, 2334130176))


def test_replay_and_whatif_refuse_bad_options() -> None:
    for option, words in (("--policy", "nobodys torch:max_split_size_mb:1"), ("--limit", "much 0"), ("--device", "7 x")):
        for word in words.split():
            run("replay", recording("graphs"), option, word).fails(word)
    run("whatif", recording("resnet_stacks"), "-p", "torch nobodys").fails("nobodys")


# ---------------------------------------------------------------------------------------------------
# Parking


def live_before(entries, number):
    """What the program holds before an entry, each request rounded up to 512 bytes."""
    live = {}
    for entry in entries[:number]:
        if entry["action"] == "alloc":
            live[entry["addr"]] = -(-entry["size"] // 512) * 512
        elif entry["action"] == "free_requested":
            live.pop(entry["addr"], None)
    return sum(live.values())


def test_replay_prices_parking(folder: str) -> None:
    entries = as_pickle("resnet_stacks", folder)["device_traces"][0]
    count = len(entries)
    said = said_of("replay", "resnet_stacks", "-p", "tide", "--park", "100%,7,25%,50%,7")["parking"]
    parks = said["parks"]
    equal([park["entry"] for park in parks], [7, count // 4, count // 2, count], "entries")
    equal((said["backup"], said["count"]), ("pinned", 4), "backup and count")
    for park in parks:
        equal(park["live"], live_before(entries, park["entry"]), f"live bytes at entry {park['entry']}")
        check(park["live"] <= park["copied"] <= park["taken_again"] <= park["given_back"], f"{park}")
        for key in ("park_ms", "unpark_ms"):
            check(park[key] >= park["copied"] / MIB * COPY_MS * 0.9999, f"{key} of {park}")
    check(parks[1]["park_ms"] > parks[1]["copied"] / MIB * (COPY_MS + REGISTER_MS) / 2, "a larger backup is made")
    equal((said["first_park_ms"], said["first_unpark_ms"]), (parks[0]["park_ms"], parks[0]["unpark_ms"]), "the first")
    mean = sum(park["unpark_ms"] for park in parks[1:]) / 3
    check(abs(said["later_unpark_ms"] - mean) < 1e-5, f"the mean {mean} is {said['later_unpark_ms']}")
    none = said_of("replay", "resnet_stacks", "-p", "tide", "--park", "50%", "--park-backup", "none")["parking"]
    equal(none["parks"][0]["live"], parks[2]["live"], "live bytes")
    equal((none["parks"][0]["copied"], none["parks"][0]["backup_bytes"], none["later_park_ms"]), (0, 0, None))
    check(none["first_park_ms"] < parks[2]["park_ms"], "discarding costs less")


def test_replay_parks_at_the_ends_of_steps() -> None:
    steps = [row for row in said_of("report", "gnn_retry", "--steps")["steps"]["rows"] if row["is_whole"]]
    said = said_of("replay", "gnn_retry", "-p", "tide", "--park", "steps")["parking"]
    equal([park["entry"] for park in said["parks"]], [row["first_entry"] + row["entries"] for row in steps], "ends")
    shown = run("replay", recording("gnn_retry"), "-p", "tide", "--park", "steps", "--park-backup", "file").works().out
    for words in ("What parking costs", f"times parked  {len(steps)}", f"{len(steps) - 1} later, mean", "are not priced"):
        check(words in shown, f"{words!r} is not in {shown}")
    equal(said_of("replay", "gnn_retry")["parking"], None, "without --park")


def test_replay_refuses_bad_places_to_park() -> None:
    path = recording("resnet_stacks")
    for word in ("x", "101%", "-1", "5,", "50 %", "1e1%", "steps,y"):
        run("replay", path, "-p", "tide", "--park", word).fails("--park")
    run("replay", path, "-p", "tide", "--park", "99999999").fails("no entry 99999999")
    run("replay", path, "--park", "50%").fails("--policy tide")
    run("replay", path, "-p", "tide", "--park", "1", "--check").fails("--check")
    run("replay", path, "-p", "tide", "--park", "1", "--park-backup", "tape").fails("tape")
    run("replay", path, "-p", "tide", "--park-backup", "none").fails("--park")


# ---------------------------------------------------------------------------------------------------
# Small recordings


def test_replay_says_no_when_a_request_is_refused() -> None:
    data = snapshot()
    data["device_traces"][0].insert(0, {**data["device_traces"][0][1], "addr": 1 << 40, "size": 1 << 46})
    answer = run("replay", "-", "--json", stdin=pickle.dumps(data, 4))
    equal((answer.status, answer.json()["ooms"]), (1, 1), "the status without a limit, and refusals")


def test_replay_multiplies_sizes() -> None:
    once, twice = (said_about("replay", PLAIN, "--scale", scale) for scale in ("1", "1024"))
    check(twice["peak_allocated"] > once["peak_allocated"], "the peak does not rise with the sizes")
    equal((once["scale"], twice["scale"]), (1, 1024))
    for words in (["0"], ["-1"], ["nan"], ["2x"], [""], ["1025"], ["2", "--check"]):
        run("replay", "-", "--scale", *words, stdin=PLAIN).fails()


if __name__ == "__main__":
    harness.main()
