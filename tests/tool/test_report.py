#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Tests answers of verbs as text and as JSON: what `report` and `info` show of tags, what is unknown, cut or contradictory."""
import os
import pathlib
import pickle
import random
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import harness
from harness import DATA, SOURCE, check, equal, run, some
from verbs import LINES, PLAIN, answer_of, as_pickle, line_of, recording, recordings, said_about, said_of, snapshot, write

# ---------------------------------------------------------------------------------------------------
# Tags




def tags_of(snapshot):
    """By tag, and by every tag above several: blocks, allocated, reserved and parked bytes."""
    sums = {}
    for segment in snapshot["segments"]:
        blocks = [block["size"] for block in segment["blocks"] if block["state"] == "active_allocated"]
        is_parked = segment.get("is_parked", False)
        more = len(blocks), sum(blocks), 0 if is_parked else segment["total_size"], segment["total_size"] if is_parked else 0
        parts = segment["tag"].split("/") if "tag" in segment else []
        for end in range(1, len(parts) + 1):
            tag = "/".join(parts[:end])
            sums[tag] = tuple(a + b for a, b in zip(sums.get(tag, (0, 0, 0, 0)), more))
    own = {segment["tag"] for segment in snapshot["segments"] if "tag" in segment}

    def joins(tag):
        return len({name[len(tag) + 1:].split("/")[0] for name in own if name.startswith(tag + "/")}) > 1

    return {tag: sum_ for tag, sum_ in sums.items() if tag in own or joins(tag)}


def test_report_and_info_show_tags(folder: str) -> None:
    snapshot = as_pickle("tags/turns", folder)
    want = tags_of(snapshot)
    equal(sorted(want), ["kv cache", "weights", "weights/actor", "weights/critic"], "tags")
    said = said_of("report", "tags/turns")
    rows = {row["tag"]: (row["blocks"], row["allocated"], row["reserved"], row["parked"]) for row in said["tags"]}
    equal(rows, want, "sums by tag")
    equal(list(rows), sorted(want), "a tag is behind its parent")
    whole = sum(block["size"] for segment in snapshot["segments"] for block in segment["blocks"]
                if block["state"] == "active_allocated")
    for row in said["tags"]:
        check(abs(row["share"] - row["allocated"] / whole) < 1e-4, f"{row} of {whole}")
    check("60.00 MiB came back when parked memory was unparked" in said["why"], said["why"])
    shown = run("report", recording("tags/turns")).works().out
    check("Memory by tag at the end" in shown and "weights/critic" in shown, shown)
    pools = {row["tag"]: row["parked"] for row in said_of("info", "tags/turns")["pools"]}
    equal({tag: parked for tag, parked in pools.items() if tag}, {tag: sums[3] for tag, sums in want.items()
                                                                  if tag != "weights"}, "parked bytes by pool")
    equal(said_of("report", "gnn_retry")["tags"], [], "tags of a recording without any")
    check("Memory by tag" not in run("report", recording("gnn_retry")).out, "a table without rows")


def test_report_shows_budgets(folder: str) -> None:
    """test_budget_recording.c has made the recording, and knows its limits and counts."""
    listed = {tag["tag"]: tag for tag in as_pickle("tags/budgets", folder)["tags"]}
    viewer = os.path.join(SOURCE, "tests", "format", "viewer.py")
    equal(run(viewer, os.path.join(folder, "x.pickle"), program=sys.executable).status, 0, "PyTorch's viewer opens it")
    rows = {row["tag"]: row for row in said_of("report", "tags/budgets")["tags"]}
    equal(list(rows), ["cache", "model", *(f"model/{i}" for i in range(8)), "spare", "train", "train/state"], "tags")
    equal((rows["model"]["limit"], rows["model"]["peak_reserved"], rows["model"]["limit_share"]), (20 << 20, 20 << 20, 1))
    equal((rows["model"]["priority"], rows["model"]["yields"], rows["model"]["is_constant"]), (-3, True, True))
    equal((rows["model"]["sent_bytes"], rows["cache"]["soft_limit"]), (32 << 20, 4 << 20))
    equal((rows["train"]["guarantee"], rows["train"]["limit"], rows["train"]["refused_count"]), (12 << 20, 24 << 20, 2))
    equal((rows["model/3"]["limit"], rows["model/3"]["limit_share"], rows["model/3"]["soft_limit"]), (None, None, None))
    equal((rows["spare"]["reserved"], rows["spare"]["limit"]), (0, 6 << 20), "a budget without memory")
    counts = ("parked_count", "fetched_count", "ahead_count", "sent_bytes", "fetched_bytes", "idle_bytes", "refused_count")
    for tag, row in rows.items():
        equal({key: row[key] for key in counts}, {key: listed[tag].get(key, 0) for key in counts}, f"counts of {tag}")
        equal(row["peak_reserved"], listed[tag].get("peak_reserved_bytes", 0), f"peak of {tag}")
        equal(row["reserved"], listed[tag].get("reserved_bytes", 0), f"segments of {tag}, and what the allocator says")
    said = said_of("report", "tags/budgets")
    entries = as_pickle("tags/budgets", folder)["device_traces"][0]
    refused = [number for number, entry in enumerate(entries) if entry["action"] == "oom"]
    want = {"count": 2, "entry": refused[0], "requested": 18 << 20, "tag": "train", "limit": 24 << 20,
            "reserved": rows["train"]["reserved"]}
    equal(said["tag_refusal"], want, "refused by a tag; nothing happens between them and the end")
    equal((said["ooms"], said.get("oom_requests", []), said["limit"]), (2, [], None), "the device refused nothing")
    check('the tag "train" had 8.00 MiB of 24.00 MiB, and 18.00 MiB were requested' in said["finding"], said["finding"])
    equal(said_of("report", "gnn_retry")["tag_refusal"], None, "without budgets")
    shown = run("report", recording("tags/budgets")).works().out
    check(re.search(r"^train +1 .* 22.00 MiB  24.00 MiB +91.7 %$", shown, re.MULTILINE), shown)
    check(re.search(r"^train  +-  12.00 MiB +0  no +0 +0 B +0 B +\S+ MiB +2$", shown, re.MULTILINE), shown)
    rows = said_of("report", "tags/turns")["tags"]
    equal({row[key] for row in rows for key in ("peak_reserved", "limit", *counts)}, {None}, "an older snapshot")
    shown = run("report", recording("tags/turns")).works().out
    check("peak  " not in shown.split("Memory by tag at the end")[1] and "Who gave way" not in shown, shown)


def test_hostile_lists_of_tags_take_little() -> None:
    """Dicts may be shared, so a file can have many tags with many keys each."""
    whole = tagged(["a"])
    large = {"tag": "b", "has_budget": True, **{f"key {i}": i for i in range(100_000)}}
    for extra in ({"tags": [large] * 100_000}, {"tags": [{"tag": "c", "limit": 1, "has_budget": True}] * 100_000, **large}):
        said = said_about("report", {**whole, **extra})
        equal([row["tag"] for row in said["tags"]], ["a"], "tags")
    texts = [{"tag": "a/" * 200 + "a", "has_budget": True}, {"tag": "", "has_budget": True}, {"tag": "d", "device": 3,
             "has_budget": True}, {"tag": "a", "limit": 0, "peak_reserved_bytes": 2**63, "has_budget": True}, None, "a"]
    said = said_about("report", {**whole, "tags": texts})
    equal([(row["tag"], row["limit"], row["peak_reserved"]) for row in said["tags"]], [("a", 0, 2**63)], "tags")


def test_requests_that_the_device_refused_are_not_those_of_tags() -> None:
    """One request is refused in a tag that has room for it, one in a tag that has not, and one elsewhere."""
    whole = tagged(["a/b", "c"])
    oom = {"action": "oom", "addr": 5 << 20, "size": 3 << 20, "stream": 0, "frames": [], "time_us": 1}
    whole["device_traces"] = [[{**oom, "pool_id": (0, 2)}, {**oom, "pool_id": (0, 2), "size": 1 << 20},
                               {**oom, "pool_id": (0, 0)}]]
    whole["tags"] = [{"tag": "c", "limit": 4 << 20}, {"tag": "a", "limit": 0}, {"tag": "c", "device": 1, "limit": 0}]
    said = said_about("report", whole)
    equal((said["ooms"], said["tag_refusal"]["count"], said["tag_refusal"]["entry"], said["tag_refusal"]["tag"]), (3, 1, 0, "c"))
    equal([row["entry"] for row in said["oom_requests"]], [1, 2], "those of the device")
    whole["device_traces"] = [[{**oom, "pool_id": (0, 2)}] * 20_000]
    run("report", "-", "--json", stdin=pickle.dumps(whole, 4)).works()


def tagged(tags):
    """A snapshot with a segment for each tag."""
    whole = snapshot()
    parts = ((0, 4096, 4000, "active_allocated"), (4096, (2 << 20) - 4096, 0, "inactive"))
    whole["device_traces"] = []
    whole["segments"] = [{**whole["segments"][0], "address": (i + 1) << 30, "total_size": 2 << 20, "tag": tag,
                          "is_parked": i % 3 == 0, "segment_pool_id": (0, i + 1),
                          "blocks": [{"address": at + ((i + 1) << 30), "size": size, "requested_size": requested,
                                      "state": state, "frames": []} for at, size, requested, state in parts]}
                         for i, tag in enumerate(tags)]
    return whole


def test_tags_above_several_are_summed() -> None:
    rng = random.Random(3)
    for size in (1, 2, 5, 40):
        names = ["/".join(rng.choice(["a", "b", "a-b", "aa", "ab"]) for _ in range(rng.randrange(1, 5))) for _ in range(size)]
        whole = tagged(names)
        said = said_about("report", whole)
        rows = {row["tag"]: (row["blocks"], row["allocated"], row["reserved"], row["parked"]) for row in said["tags"]}
        equal(rows, tags_of(whole), f"sums by tag of {names}")
        order = list(rows)
        equal(order, sorted(order, key=lambda tag: tag.split("/")), "the order of tags")


def test_many_and_long_tags_take_little() -> None:
    """The time is that of a file without tags, and texts that are no tags are ignored."""
    deep = ["/".join("ab"[i >> k & 1] for k in range(100)) for i in range(3000)]
    said = said_about("report", tagged(deep))
    check(len(deep) <= len(said["tags"]) < 2 * len(deep), f"{len(said['tags'])} rows")
    said = said_about("report", tagged(["a/" * 99999 + "a", "b"]))
    equal([row["tag"] for row in said["tags"]], ["b"], "tags")
    run("info", "-", stdin=pickle.dumps(tagged(deep), 4)).works()


# ---------------------------------------------------------------------------------------------------
# Answers


def test_report_says_nothing_about_nothing() -> None:
    """Does not print that 0 B were free, or "(no stack)" if there are no stacks at all."""
    shown = run("report", recording("limit_edge")).works().out
    check("All of the 246.00 MiB reserved were in use." in " ".join(shown.split()), shown)
    check("0 B were free" not in shown and "(no stack)" not in shown, shown)
    shown = run("report", recording("resnet_stacks")).works().out
    check("pool    call site\n" in shown, shown)


def test_json_is_one_object(folder: str) -> None:
    for verb in LINES:
        answer_of(verb, folder)
        line = line_of(verb, f"{folder}/x.pickle", f"{folder}/y.json")
        check("\033" not in run(*line, "--json", "--color", "always").works().out, f"{verb} --json is coloured")


def test_json_of_names_that_are_no_text(folder: str) -> None:
    name = os.fsdecode(os.fsencode(folder) + b"/a\"\\\n\x01\xff\xc3\xbc.json")
    said = run("convert", "-", name, "--json", stdin=PLAIN).works().json()
    equal(said["output"], f"{folder}/a\"\\\n\x01\ufffd\u00fc.json")
    answer = run("convert", "-", name, stdin=PLAIN).works()
    check("a\"\\\\x0a\\x01\ufffd\u00fc.json\n" in answer.out, answer.out)


def test_what_is_not_recorded_is_null(folder: str) -> None:
    requests = f"{folder}/x.rmm.csv"
    run("convert", "-", requests, stdin=PLAIN).works()
    info = run("info", requests, "--json").works().json()
    device = info["devices"][0]
    equal((info["has_entries"], device["entries"] > 0, device["peak_allocated"]), (True, True, 1536), "info")
    equal((device["peak_reserved"], device["utilisation"]), (None, None), "info")
    report = run("report", requests, "--json").works().json()
    unknown = ("peak_reserved", "peak_reserved_entry", "utilisation", "fragmentation_cost", "fragmentation", "driver_allocs")
    equal([report[key] for key in unknown], [None] * len(unknown), "report")
    answer = run("diff", requests, "-", "--json", stdin=PLAIN).works()  # what is not known is no difference
    rows = {row["name"]: (row["a"], row["b"], row["change"]) for row in answer.json()["peaks"]}
    equal(rows["peak_reserved"], (None, 2097152, None), "diff: peak_reserved")
    equal(rows["utilisation"], (None, 0.0007, None), "diff: utilisation")
    equal(rows["driver_allocs"], (None, 1, None), "diff: driver_allocs")
    equal(rows["allocations"], (2, 2, 0), "diff: allocations")


def test_a_setting_for_each_size_is_one_line() -> None:
    data = {**snapshot(), "allocator_settings": {"roundup_power2_divisions": {"256": 1, "512": 8}}}
    answer = run("info", "-", stdin=pickle.dumps(data, 4)).works()
    check(re.search(r"^roundup_power2_divisions +\[256:1,512:8\]$", answer.out, re.M), answer.out)
    said = said_about("info", data)
    equal(said["settings"], data["allocator_settings"], "settings")


def test_every_verb_says_that_a_file_is_cut(folder: str) -> None:
    log = f"{folder}/x.rmm.csv"
    run("convert", "-", log, stdin=PLAIN).works()
    cut = write(f"{folder}/cut.rmm.csv", pathlib.Path(log).read_bytes()[:-5])
    for verb in ("info", "report", "replay", "diff", "plan"):
        answer = run(*line_of(verb, cut, ""), "--json")
        equal(answer.json()["is_cut"], True, f"is_cut of {verb}")
        check("missing or damaged" in answer.err, f"{verb} does not say that the end is missing")


def test_a_refusal_among_requests_alone_is_not_explained() -> None:
    log = (b"Thread,Time,Action,Pointer,Size,Stream\n"
           b"0,00:00:01.0,allocate,0x1000,512,0\n0,00:00:02.0,allocate failure,0x0,4096,0\n")
    answer = said_about("report", log)
    equal((answer["ooms"], "oom_requests" in answer), (1, False))
    check("Out of memory once, at entry 1" in answer["finding"], answer["finding"])


def test_a_file_without_entries_tells_its_end() -> None:
    for data in (snapshot()["segments"], {**snapshot(), "device_traces": []}):
        answer = run("report", "-", stdin=pickle.dumps(data, 4)).works()
        check(answer.out.startswith("Only the final state is known"), answer.out)
        for word in ("peak", "grew", "whatif", "before the first entry"):
            check(word not in answer.out, f"{word!r} stands in {answer.out}")
        said = said_about("report", data)
        keys = ("peak_reserved", "peak_allocated", "driver_allocs", "ooms")
        equal([said[key] for key in keys], [2097152, 1024, None, None])
        said = said_about("info", data)
        equal((said["has_entries"], said["has_segments"]), (False, True))


def test_steps_are_no_time() -> None:
    plan = b"id,lower,upper,size\n7,0,3,1024\n8,2,5,2048\n"
    said = said_about("info", plan)["devices"][0]
    equal([said[key] for key in ("first_us", "span_ms", "steps")], [None, None, 5])
    equal(said_about("report", plan)["peak_allocated_during"], None)
    equal(said_about("replay", plan)["span_ms"], None)
    said = run("replay", "-", stdin=plan).works().out
    check("recorded time" not in said, f"replay says how long steps took: {said}")


def test_a_recording_that_contradicts_itself_is_said_to() -> None:
    path = os.path.join(DATA, "contradicts.pickle")
    for verb in ("info", "report", "replay", "whatif"):
        options = ["--quick"] if verb == "whatif" else []
        text, found = run(verb, path, *options), run(verb, path, "--json", *options)
        check("contradict" in text.out + text.err, f"{verb} does not say that the recording contradicts itself")
        shares = [float(share) for share in re.findall(r'"utilisation": ([0-9.]+)', found.out)]
        check(all(share <= 1 for share in shares), f"{verb} has a utilisation above 1: {shares}")
    check("The utilisation is unknown" in run("replay", path).out, "replay does not say why there is none")


def test_a_change_has_a_sign(folder: str) -> None:
    for shift, change in ((0, "0 B"), (1, "+1.50 KiB"), (13, "+11.81 MiB")):
        data = {"device_traces": snapshot()["device_traces"]}
        for entry in data["device_traces"][0]:
            entry["size"] <<= shift
            entry["addr"] += (entry["addr"] - 0x7F0000000000) * ((1 << shift) - 1)
        answer = run("diff", "-", write(f"{folder}/y.pickle", pickle.dumps(data, 4)), stdin=PLAIN)
        rows = {row[0]: row[-1] for row in (re.split("  +", line.strip()) for line in answer.out.split("\n"))}
        equal((answer.status, rows["peak allocated"], rows["allocations"]), (int(shift > 0), change, "0"))


def test_no_size_is_printed_as_none_of_a_unit() -> None:
    other = recording("research")
    for file in some(file for file in recordings() if file.endswith(".tide")):
        for line in (["info", file], ["report", file], ["replay", file], ["whatif", "-q", file], ["diff", file, other]):
            zeros = re.findall(r"^.*\b0\.00 [KMGT]iB.*$", run(*line).works(0, 1).out, re.M)
            check(not zeros, f"{line}: {zeros}")
    shown = run("report", "-", stdin=PLAIN).works().out
    check("peak reserved        2.00 MiB" in shown and "peak allocated       1.50 KiB" in shown, shown)


if __name__ == "__main__":
    harness.main()
