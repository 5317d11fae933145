#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Tests the numbers and words that the tidemark command prints, on recordings of real runs.

What is expected is computed here from the entries, or found by other runs of the program.
"""
import copy
import functools
import json
import lzma
import os
import pathlib
import pickle
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import harness
from harness import DATA, MORE, SANITIZER, Skip, check, equal

MIB = 1 << 20
GRAIN = 2 * MIB

once = functools.cache(harness.run)


def run(*words):
    """Files of the data never change, so the same question about them is asked once."""
    is_kept = all(word.startswith((DATA, MORE)) for word in words if word.startswith("/"))
    return (once if is_kept else harness.run)(*words)


def text_of(*words, status=0):
    return run(*words).works(status).out


def json_of(*words, status=0):
    return run(*words, "--json").works(status).json()


def small(name):
    return os.path.join(DATA, f"{name}.tide")


def large(name):
    return harness.more("traces", f"{name}.pickle.xz")


def entries_of(path, device=0):
    """The entries of a recording: from a pickle, or by way of JSON."""
    if path.endswith(".pickle.xz"):
        return pickle.load(lzma.open(path))["device_traces"][device]
    return snapshot_of(path)["device_traces"][device]


def snapshot_of(path):
    return run("convert", path, "-", "--to", "json").works().json()


def rounded(size):
    return max(512, -(-size // 512) * 512)


def needs_of(entries):
    """The peak of live requests, and the largest sum of these and a refused one."""
    live, now, peak, needed = {}, 0, 0, 0
    for entry in entries:
        if entry["action"] == "alloc":
            now -= live.pop(entry["addr"], 0)
            live[entry["addr"]] = rounded(entry["size"])
            now += live[entry["addr"]]
            peak = max(peak, now)
        elif entry["action"] == "free_completed":
            now -= live.pop(entry["addr"], 0)
        elif entry["action"] == "oom":
            needed = max(needed, now + rounded(entry["size"]))
    return peak, max(peak, needed)


def policy_of(row):
    return row["policy"] + (":" + row["settings"] if row["settings"] else "")


# ---------------------------------------------------------------------------------------------------
# What is needed at once


def check_needed(path):
    peak, needed = needs_of(entries_of(path))
    check(needed > peak, "no refused request raises the need")
    for verb in ("report", "whatif"):
        said = json_of(verb, path, *(["--quick"] if verb == "whatif" else []))
        equal((said["peak_allocated"], said["peak_needed"]), (peak, needed), f"the needs by {verb}")
    for row in json_of("whatif", path, "--quick")["rows"]:
        if row["fits"]:
            equal(row["peak_allocated"], needed, f"what was live at once with {policy_of(row)}")
            equal(row["utilisation"], round(needed / row["peak_reserved"], 4), f"utilisation of {policy_of(row)}")


def test_needed_at_once_includes_the_refused_request(folder: str) -> None:
    check_needed(small("after_oom"))


def test_needed_at_once_of_a_training_run(folder: str) -> None:
    check_needed(large("varlen_oom"))


def test_without_refusals_the_peak_is_needed(folder: str) -> None:
    said = json_of("report", small("resnet_stacks"))
    equal(said["peak_needed"], said["peak_allocated"])
    check("needed at once" not in text_of("report", small("resnet_stacks")), "it is printed twice")


# ---------------------------------------------------------------------------------------------------
# The smallest memory


def smallest_of(path, *options):
    return run("whatif", path, "--json", *options).works(0, 1).json()["rows"]


def check_smallest(path, limits):
    """It does not depend on the limit, and a setting fits exactly if it is not above."""
    first = {}
    for limit in limits:
        size = int(limit[:-1])
        for row in smallest_of(path, "--limit", limit):
            name = policy_of(row)
            first.setdefault(name, row["smallest_memory"])
            if "garbage_collection" in name:  # depends on the limit
                check(not row["fits"] or row["smallest_memory"] <= size, f"{name} fits {limit}, but not in less")
                continue
            equal(row["smallest_memory"], first[name], f"the smallest memory of {name} under {limit}")
            equal(row["fits"], row["smallest_memory"] <= size, f"whether {name} fits {limit}")
            equal(row["smallest_memory"] % GRAIN, 0, "what is over in a grain")
    return first


def test_the_smallest_memory_is_the_same_for_every_limit(folder: str) -> None:
    check_smallest(small("resnet_stacks"), ["2200000000B", "2600000000B", "8000000000B"])


def test_the_smallest_memory_of_a_training_run(folder: str) -> None:
    path = large("varlen_oom")
    if SANITIZER:
        raise Skip("it takes minutes with a sanitizer")
    first = check_smallest(path, [f"{int(15.3 * 2**30)}B"])
    check(15.2 * 2**30 < first["tide"] <= 15.3 * 2**30, f"{first}")


def test_a_limit_in_which_only_tide_runs_has_one_answer(folder: str) -> None:
    said = text_of("whatif", large("varlen_oom"), "--limit", "15.3GiB", "--quick")
    check(re.search(r"^tide \*.* yes ", said, re.M), said)
    check("Nothing runs" not in said and "No setting that was tried" not in said, said)
    check("No PyTorch setting that was tried runs in 15.30 GiB." in said.replace("\n", " "), said)
    check("\npython -m tidemark.torch script.py\n" in said, said)


def test_the_smallest_memory_is_exact(folder: str) -> None:
    """A replay runs in it, and not in 2 MiB less."""
    for name in ("resnet_stacks", "gnn_retry", "after_oom"):
        for row in smallest_of(small(name)):
            if "fixes" in row["settings"]:
                continue
            for limit, status in ((row["smallest_memory"], 0), (row["smallest_memory"] - GRAIN, 1)):
                done = run("replay", small(name), "--policy", policy_of(row), "--limit", f"{limit}B", "--json")
                equal(done.status, status, f"the status of {name} with {policy_of(row)} in {limit}")


# ---------------------------------------------------------------------------------------------------
# whatif


def test_whatif_shows_what_is_better(folder: str) -> None:
    path = small("gnn_retry")
    rows = {policy_of(row): row for row in json_of("whatif", path, "--quick")["rows"]}
    recorded = next(row for row in rows.values() if row["is_recorded"])
    better = {row["settings"] or row["policy"] for row in rows.values()
              if row["peak_reserved"] < recorded["peak_reserved"]}
    text = text_of("whatif", path, "--quick").split("\nsetting")[1].split("\n\n")[0]
    text = re.sub(r"\n(\S+,)(  .*)\n +(\S+)", r"\n\1\3\2", text)  # settings on two lines
    equal({line.split()[0] for line in text.split("\n")[1:]} - {"(defaults)"}, better, "the settings shown")
    more = text_of("whatif", path, "--quick", "--all").split("\nsetting")[1].split("\n\n")[0].split("\n")[1:]
    equal(len([line for line in more if not line.startswith(" ")]), len(rows), "the number of rows with --all")
    asked = text_of("whatif", path, "--quick", "--policy", "torch:max_split_size_mb:77")
    check("max_split_size_mb:77" in asked, "a policy that was asked for is not shown")


def test_whatif_names_the_command_for_tide(folder: str) -> None:
    said = json_of("whatif", small("gnn_retry"), "--quick")
    equal(said["tide_command"], "python -m tidemark.torch script.py")
    check("\npython -m tidemark.torch script.py\n" in text_of("whatif", small("gnn_retry"), "--quick"), "the text")


# ---------------------------------------------------------------------------------------------------
# Devices


def two_devices(folder):
    """A run of device 0 that is fine, and one of device 1 that runs out of memory."""
    fine, refused = snapshot_of(small("resnet_stacks")), snapshot_of(small("after_oom"))
    fine["device_traces"] = [fine["device_traces"][0], refused["device_traces"][0]]
    for segment in refused["segments"]:
        segment["device"] = 1
    fine["segments"] += refused["segments"]
    path = os.path.join(folder, "two.json")
    with open(path, "w") as file:
        json.dump(fine, file)
    return path


def test_the_device_that_ran_out_of_memory_comes_first(folder: str) -> None:
    path = two_devices(folder)
    alone = json_of("report", small("after_oom"))
    said = json_of("report", path)
    for key in ("peak_allocated", "peak_reserved", "peak_needed", "ooms", "entries"):
        equal(said[key], alone[key], key)
    equal((said["device"], [row["device"] for row in said["devices"]]), (1, [1, 0]))
    equal(said["devices"][1]["peak_reserved"], json_of("report", small("resnet_stacks"))["peak_reserved"])
    shown = " ".join(text_of("report", path).split())
    check("device 1, which ran out of memory first; --device chooses another" in shown, shown)
    equal(json_of("report", path, "--device", "0")["device"], 0)
    equal(json_of("whatif", path, "--quick")["device"], 1)
    equal([row["device"] for row in json_of("info", path)["devices"]], [1, 0])
    check("Devices" not in text_of("report", small("after_oom")), "one device has a table of devices")


# ---------------------------------------------------------------------------------------------------
# Reserved memory


def test_a_replay_that_reserves_its_peak_first_hardly_calls_the_driver(folder: str) -> None:
    for policy in ("torch", "tide"):
        line = ("replay", small("resnet_stacks"), "--policy", policy)
        plain = json_of(*line)
        equal(plain["reserve_ms"], 0)
        ready = json_of(*line, "--reserve", f"{plain['peak_reserved']}B")
        check(0 < ready["reserve_ms"] and ready["driver_ms"] < 0.5 * plain["driver_ms"], f"{policy}: {ready['driver_ms']}")
        check("to reserve memory before (ms)" in text_of(*line, "--reserve", "1GiB"), policy)


# ---------------------------------------------------------------------------------------------------
# A scale


def long_lived(entries):
    """The requests that live for more than half of the entries."""
    born, found = {}, []
    for number, entry in enumerate(entries):
        if entry["action"] == "alloc":
            born[entry["addr"]] = (number, entry["size"])
        elif entry["action"] == "free_requested" and entry["addr"] in born:
            at, size = born.pop(entry["addr"])
            if number - at > len(entries) // 2:
                found.append(size)
    return found + [size for at, size in born.values() if at < len(entries) // 2]


def check_scale(path, *parts):
    """Weights (parts of a file's sizes that are known) keep their size."""
    kept = long_lived(entries_of(path))
    plain, twice = json_of("replay", path), json_of("replay", path, "--scale", "2")
    equal((twice["unscaled_blocks"], twice["unscaled_bytes"]), (len(kept), sum(kept)))
    whole = json_of("replay", path, "--scale", "2", "--scale-all")
    check(plain["peak_allocated"] < twice["peak_allocated"] < whole["peak_allocated"], "the peaks do not rise")
    check(whole["peak_allocated"] - twice["peak_allocated"] >= 0.9 * sum(kept), "what stays is in the peak")
    shown = " ".join(text_of("replay", path, "--scale", "2").split())
    check(f"All requests are multiplied by 2, except for {len(kept)} blocks" in shown, shown)


def test_a_scale_leaves_weights_alone(folder: str) -> None:
    """ResNet-50 has 320 parameters and buffers of 97.7 MiB, and a workspace of 33 MiB."""
    check_scale(small("resnet_stacks"))
    said = json_of("replay", small("resnet_stacks"), "--scale", "2")
    equal((said["unscaled_blocks"], said["unscaled_bytes"] // MIB), (322, 130))


def test_a_scale_leaves_optimizer_states_alone(folder: str) -> None:
    check_scale(large("llama_train_fixed"))


# ---------------------------------------------------------------------------------------------------
# What was not recorded


def changed(folder, name, change):
    data = copy.deepcopy(snapshot_of(small("resnet_stacks")))
    change(data)
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        json.dump(data, file)
    return path


def test_no_times_are_invented(folder: str) -> None:
    def change(data):
        for entry in data["device_traces"][0]:
            entry.pop("time_us")
    path = changed(folder, "timeless.json", change)
    device = json_of("info", path)["devices"][0]
    equal((device["first_us"], device["span_ms"]), (None, None))
    said = json_of("report", path)
    equal((said["peak_allocated_ms"], {block["age_ms"] for block in said["largest_blocks"]}), (None, {None}))
    equal(json_of("replay", path)["span_ms"], None)
    for verb in ("info", "report", "replay"):
        shown = text_of(verb, path)
        for word in ("00:00:00", "0.000 s", "duration", "into the recording", "recorded time", "age (ms)"):
            check(word not in shown, f"{verb} prints {word!r}")
    check("No times were recorded." in text_of("info", path), "it is not said")


def test_blocks_without_addresses_contradict_nothing(folder: str) -> None:
    def change(data):
        for segment in data["segments"]:
            for block in segment["blocks"]:
                block.pop("address")
    path = changed(folder, "nowhere.json", change)
    equal(json_of("info", path)["devices"][0]["differences"], 0)
    check("contradict" not in text_of("report", path), "report says that entries contradict others")
    del_entries = changed(folder, "end.json", lambda data: (change(data), data.pop("device_traces")))
    whole = changed(folder, "whole.json", lambda data: data.pop("device_traces"))
    said, want = (json_of("report", file)["peak_allocated"] for file in (del_entries, whole))
    equal(said, want, "what is live at the end")


def test_a_wrong_list_still_contradicts(folder: str) -> None:
    def change(data):
        for segment in data["segments"]:
            for block in segment["blocks"]:
                block.pop("address")
        data["segments"][0]["blocks"][0]["size"] += 512
    path = changed(folder, "wrong.json", change)
    check(json_of("info", path)["devices"][0]["differences"] > 0, "a wrong list is not noticed")


def test_a_forgotten_unit_is_asked_about(folder: str) -> None:
    for verb, option in (("whatif", "--limit"), ("replay", "--limit"), ("info", "--max-unpacked")):
        run(verb, small("resnet_stacks"), option, "14").fails(f"{option} 14 has no unit: write 14GiB, or 14B for bytes")
    equal(run("replay", small("resnet_stacks"), "--limit", "14B").status, 1, "the status with 14B")


# ---------------------------------------------------------------------------------------------------
# diff


def verdict_of(a, b):
    shown = json_of("diff", a, b, status=1)
    paragraph = " ".join(text_of("diff", a, b, status=1).split("\n\n")[0].split())
    equal(paragraph, shown["verdict"], "the first paragraph")
    return shown


def test_the_verdict_names_waste_and_settings(folder: str) -> None:
    said = verdict_of(small("gnn_gc_split"), small("gnn_retry"))
    check("A reserves 1.47 GiB more at the peak than B: 14.62 GiB instead of 13.15 GiB." in said["verdict"],
          said["verdict"])
    check("more is wasted" in said["verdict"] and "All 2936 requests are the same" in said["verdict"],
          said["verdict"])
    check("A has garbage_collection_threshold:0.7,max_split_size_mb:256, B has the defaults" in said["verdict"],
          said["verdict"])
    equal((said["needs_more"], said["requests_a"], said["requests_same"]), ("a", 2936, 2936))
    names = {row["name"]: (row["a"], row["b"]) for row in said["settings"]}
    equal(names["max_split_size"], ("268435456", "-1"))
    equal(names["garbage_collection_threshold"], ("0.7", "0"))


def test_the_verdict_names_live_memory_and_requests(folder: str) -> None:
    """The same run with every request of the second half twice as large."""
    def change(data):
        entries = data["device_traces"][0]
        for entry in entries[len(entries) // 2:]:
            entry["size"] *= 2
        data.pop("segments")
    larger = changed(folder, "larger.json", change)
    plain = changed(folder, "plain.json", lambda data: data.pop("segments"))
    said = verdict_of(plain, larger)
    requests = [entry["size"] for entry in entries_of(plain) if entry["action"] == "alloc"]
    others = [entry["size"] for entry in entries_of(larger) if entry["action"] == "alloc"]
    same = next(i for i, (a, b) in enumerate(zip(requests, others)) if a != b)
    equal(said["requests_same"], same)
    check(f"The requests differ from request {same + 1} on." in said["verdict"], said["verdict"])
    check("The settings are the same." in said["verdict"], said["verdict"])


def test_settings_alone_are_a_difference(folder: str) -> None:
    def change(data):
        data["allocator_settings"]["expandable_segments"] = True
    said = verdict_of(small("resnet_stacks"), changed(folder, "other.json", change))
    check("expandable_segments is False in A and True in B" in said["verdict"], said["verdict"])
    check(said["verdict"].startswith("Both runs reserve 3.29 GiB at the peak."), said["verdict"])


def test_both_runs_are_compared_on_one_device(folder: str) -> None:
    path = two_devices(folder)
    equal(json_of("diff", path, path)["is_same"], True)
    said = json_of("diff", small("resnet_stacks"), path)
    equal(said["is_same"], True, "device 0 of both")


# ---------------------------------------------------------------------------------------------------
# Words and widths


def answers(path):
    for line in (["info"], ["report"], ["replay"], ["replay", "--scale", "2"], ["whatif", "--quick"],
                 ["whatif", "--quick", "--all"], ["diff", small("research")]):
        yield line, run(line[0], path, *line[1:]).works(0, 1).out


def all_recordings():
    """With a sanitizer the short ones."""
    paths = [os.path.join(DATA, name) for name in sorted(os.listdir(DATA)) if name.endswith(".tide")]
    return [path for path in paths if not SANITIZER or os.path.getsize(path) < 20 << 10]


def test_no_line_has_more_than_100_columns(folder: str) -> None:
    for path in all_recordings():
        for line, shown in answers(path):
            longest = max(shown.split("\n"), key=len)
            check(len(longest) <= 100, f"{line} of {path}: {longest!r}")


def test_words_and_units(folder: str) -> None:
    """A share is percent, pinned means page-locked, an event is a CUDA event, and no size looks like none."""
    for path in all_recordings():
        for line, shown in answers(path):
            check(not re.search(r"\b0\.00 [KMGT]iB", shown), f"{line} of {path}: {shown}")
            check(" pinned " not in shown and "<0.01" not in shown, f"{line} of {path}: {shown}")
            shares = re.findall(r"^utilisation +(.*)$", shown, re.M)
            check(all("%" in share or share.startswith("-") for share in shares), f"{line} of {path}: {shares}")
            for words in re.findall(r"^.*\bevents?\b.*$", shown, re.M):
                check(words.startswith(("waiting for events", "file ")), f"{line} of {path}: {words!r}")


if __name__ == "__main__":
    harness.main()
