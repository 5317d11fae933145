#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Tests the data in pages of `tidemark view`.

view_page.py reads a page as docs/view.md describes it. The truth is tests/oracle/snapshot.py, which computes it from pickles
without Tidemark, and what other verbs say. Recordings come from tests/data, from traces/ of TIDEMARK_DATA where that is, and
from tests/oracle/generate.py with fixed seeds.
"""
from __future__ import annotations

import os
import pathlib
import random
import re
import sys

sys.path.extend(str(pathlib.Path(__file__).resolve().parents[1] / part) for part in ("", "oracle"))
import command
import generate
import harness
import snapshot as reference
import view_page
from command import ask, dumped
from harness import check, equal, run, scaled, some
from hostile import bytes_of, damaged, hostile_recordings, page_is_safe
from lives import Lives, rows_of
from verbs import recording, write

MIB = 1 << 20
CURVES = {"reserved": "reserved", "allocated": "allocated_blocks", "active": "active", "requested": "requested"}
LEVELS = 21


def saved(folder: str, name: str, data: bytes) -> str:
    return write(os.path.join(folder, name), data)


def view(folder: str, *words: str, warns: bool = False) -> view_page.Page:
    path = os.path.join(folder, "page.html")
    answer = run("view", *words, "-o", path, "--json")
    check(answer.status == 0 and (answer.err != "") == warns, f"view {words}: {answer.status}, {answer.err!r}")
    said = answer.json()
    data = bytes_of(path)
    equal((said["bytes"], said["page"]), (len(data), path), f"view {words}")
    page = view_page.Page(data)
    equal((said["devices"], said["files"]), (len(page.devices), len(page.facts["files"])), f"view {words}: counts")
    return page


# ---------------------------------------------------------------------------------------------------
# The truth


def blocks_are_right(device: view_page.Device, want: Lives, name: str) -> None:
    rows, truth = sorted(rows_of(device, device.blocks)), sorted(want.rows(device.entries + 1))
    odd = next((pair for pair in zip(rows, truth) if pair[0] != pair[1]), None)
    check(rows == truth, f"{name}: {len(rows)} lives, not {len(truth)}, or others: {odd}")


def levels_are_right(device: view_page.Device, name: str) -> None:
    behind = device.entries + 1
    order = [block.level for block in device.blocks]
    equal(order, sorted(order, reverse=True), f"{name}: levels, the longest lives first")
    for block in device.blocks:
        length, is_last = block.ended(behind) - block.begin, block.ended(behind) == behind
        level = LEVELS - 1 if is_last else min(LEVELS - 1, length.bit_length() - 1)
        equal(block.level, level, f"{name}: the level of {block}")


def lanes_are_right(device: view_page.Device, name: str) -> None:
    """Ranges in a lane do not overlap at any time, and every block is in the ranges of its lane."""
    behind = device.entries + 1
    equal(len(device.lanes), device.facts["lanes"], f"{name}: lanes")
    for (_, end), (begin, _) in zip(device.lanes, device.lanes[1:]):
        check(end <= begin, f"{name}: lanes overlap at {begin:#x}")
    for block in device.blocks:
        low, high = device.lanes[block.lane]
        check(low <= device.address(block) and device.address(block) + block.bytes <= high, f"{name}: {block} in no lane")
    for segment in device.segments:
        check(0 <= segment.begin < segment.ended(behind) <= behind, f"{name}: {segment}")


def curves_are_right(device: view_page.Device, want: reference.Run, name: str) -> None:
    series = device.series()
    for mine, theirs in CURVES.items():
        if mine in ("allocated", "active") and not want.are_sizes_known:
            continue
        truth = [getattr(want.before, theirs), *want.series[theirs]]
        check(series[mine] == truth, f"{name}: {mine} differs first at position "
              f"{next((at for at, pair in enumerate(zip(series[mine], truth)) if pair[0] != pair[1]), -1)}")
    overview_is_right(device, series, name)
    for key in ("reserved", "allocated", "requested", "active"):
        peak = device.facts["peaks"][key]
        at = series[key].index(max(series[key])) - 1
        equal((peak["bytes"], peak["at"]), (max(series[key]), None if at < 0 else at), f"{name}: peak {key}")


def overview_is_right(device: view_page.Device, series: dict[str, list[int]], name: str) -> None:
    overview, count = device.facts["overview"], device.facts["overview"]["buckets"]
    equal(count, max(1, min(2000, device.entries)), f"{name}: buckets")
    equal(overview["entry"], [device.entries * at // count for at in range(count + 1)], f"{name}: entries of buckets")
    for curve in ("reserved", "allocated", "requested"):
        for bucket in range(count):
            first, end = overview["entry"][bucket], overview["entry"][bucket + 1]
            part = series[curve][first + (bucket > 0) : end + 1]
            got = tuple(overview[curve][key][bucket] for key in ("least", "most", "last"))
            if got != (min(part), max(part), part[-1]):
                equal(got, (min(part), max(part), part[-1]), f"{name}: bucket {bucket} of {curve}")


def others_are_right(device: view_page.Device, entries: list[reference.Entry], name: str) -> None:
    names = {"snapshot": 7, "oom": 8, "user_defined": 9}
    at, action, size, *_ = device.columns("others")
    truth = [(number, names[entry["action"]], entry["size"]) for number, entry in enumerate(entries) if entry["action"] in names]
    equal(list(zip(view_page.sums(at), action, size)), truth, f"{name}: other entries")
    marks = [(mark["at"], mark["bytes"]) for mark in device.facts["marks"] if mark["kind"] == "oom"]
    equal(marks, [(number, size) for number, kind, size in truth if kind == 8][:1000], f"{name}: marks of refusals")


def times_are_right(device: view_page.Device, entries: list[reference.Entry], name: str) -> None:
    times = [entry.get("time_us") for entry in entries]
    equal(device.facts["has_times"], any(time is not None for time in times), f"{name}: has_times")
    if not times or times[0] is None:
        return
    equal(device.times_us(), [time - times[0] for time in times], f"{name}: times")
    overview = device.facts["overview"]
    want = [(times[min(entry, len(times) - 1)] - times[0]) / 1000 for entry in overview["entry"]]
    equal(overview["ms"], [max(0, value) for value in want], f"{name}: times of buckets")
    equal(device.facts["first_ns"], str(times[0] * 1000), f"{name}: first_ns")


def report_is_right(device: view_page.Device, path: str, name: str) -> None:
    report = ask("report", path, "--device", str(device.facts["device"]))
    for key, value in device.facts["report"].items():
        equal(value, report[key], f"{name}: {key} of the report")
    equal(device.facts["steps"], report["steps"]["rows"], f"{name}: steps")
    equal(device.facts["leaks"], report["leaks"], f"{name}: leaks")
    equal(device.facts["ooms"], report.get("oom_requests", device.facts["ooms"]), f"{name}: refusals")
    peaks = device.facts["peaks"]
    equal((peaks["allocated"]["bytes"], peaks["requested"]["bytes"], peaks["live"]["bytes"]),
          (report["peak_allocated_blocks"], report["peak_requested"], report["peak_allocated"]), f"{name}: peaks")
    if peaks["reserved"] is not None:
        equal((peaks["reserved"]["bytes"], peaks["reserved"]["at"]),
              (report["peak_reserved"], report["peak_reserved_entry"]), f"{name}: peak reserved")


def device_is_right(device: view_page.Device, snapshot: command.Snapshot, path: str, name: str) -> None:
    want = Lives(snapshot, device.facts["device"])
    equal(device.entries, len(want.entries), f"{name}: entries")
    equal(device.facts["is_from_start"], want.is_from_start, f"{name}: is_from_start")
    equal(device.facts["left_out"], None, f"{name}: left_out")
    if want.are_sizes_known:
        blocks_are_right(device, want, name)
    levels_are_right(device, name)
    lanes_are_right(device, name)
    curves_are_right(device, want, name)
    others_are_right(device, want.entries, name)
    times_are_right(device, want.entries, name)
    report_is_right(device, path, name)


def page_is_right(folder: str, path: str, snapshot: command.Snapshot) -> view_page.Page:
    name = os.path.basename(path)
    page = view(folder, path)
    for device in page.devices:
        device_is_right(device, snapshot, path, f"{name}, device {device.facts['device']}")
    finding = " ".join(page.facts["files"][0]["report"]["finding"])
    said = ask("report", path)
    check(finding.startswith(said["finding"]), f"{name}: the finding is {finding}")
    equal([row["line"] for row in page.facts["files"][0]["report"]["advice"]],
          [said["environment"]] if said["advice"] else [], f"{name}: line to paste")
    return page


# ---------------------------------------------------------------------------------------------------
# Recordings


def test_own_recordings(folder: str) -> None:
    for path, snapshot in command.own_recordings(folder, 5):
        page_is_right(folder, path, snapshot)


def test_shared_recordings(folder: str) -> None:
    most = 40 << 10 if harness.SCALE < 10 else 1 << 30
    for path in some(path for path in command.shared_files() if os.path.getsize(path) <= most):
        page_is_right(folder, path, reference.load(path))


def test_generated_recordings(folder: str) -> None:
    """Several devices, streams and pools; every third begins in the middle."""
    for seed in command.numbers(12):
        snapshot = command.generated(seed)
        page = page_is_right(folder, saved(folder, f"seed{seed}.pickle", dumped(snapshot)), snapshot)
        data = sum(1 for device, entries in enumerate(snapshot["device_traces"])
                   if entries or reference.segments_of(snapshot, device))
        equal(len(page.devices), data, f"seed {seed}: devices")


def test_segments_have_their_pools_and_causes(folder: str) -> None:
    causes = ("needed", "hole", "split", "event", "stream", "pool", "class", "passed", "unknown", "before", "unparked")
    for name in ("graphs", "events", "pools", "tags/turns"):
        path = recording(name)
        device = view(folder, path).devices[0]
        report = ask("report", path)
        at = report["peak_reserved_entry"] + 1
        sums: dict[str, int] = {}
        for segment in device.segments:
            if segment.begin <= at < segment.ended(device.entries + 1):
                cause = causes[segment.cause]
                sums[cause] = sums.get(cause, 0) + segment.bytes
        said = {row["cause"]: row["bytes"] for row in report["why_causes"] if row["bytes"] > 0}
        equal(sums, said, f"{name}: bytes by cause at the peak")


def parked_bytes(entries: list[reference.Entry]) -> list[int]:
    """Before the first entry and after each: memory that was unmapped with blocks in use, until it is mapped again."""
    page, live, parked, found = 2 << 20, dict[int, int](), set[int](), [0]
    for entry in entries:
        begin, end = entry["addr"], entry["addr"] + entry["size"]
        if entry["action"] == "alloc":
            live[begin] = end
        elif entry["action"] == "free_completed":
            live.pop(begin)
        elif entry["action"] in ("segment_map", "segment_unmap"):
            pages = set(range(begin // page, end // page))
            parked -= pages
            if entry["action"] == "segment_unmap" and any(at < end and begin < to for at, to in live.items()):
                parked |= pages
        found.append(len(parked) * page)
    return found


def test_parked_memory_and_tags(folder: str) -> None:
    path, pickled = recording("tags/turns"), os.path.join(folder, "turns.pickle")
    run("convert", path, pickled).works()
    snapshot = reference.load(pickled)
    device = view(folder, path).devices[0]
    behind = device.entries + 1
    sums = [sum(one.bytes for one in device.parked if one.begin <= at < one.ended(behind)) for at in range(behind)]
    equal(sums, parked_bytes(snapshot["device_traces"][0]), "parked bytes")
    check(max(sums) > 0 and sums[-1] > 0, "something is parked at the end")
    marks = {mark["at"] for mark in device.facts["marks"]}
    parked = [at for at in range(device.entries) if sums[at + 1] > sums[at]]
    calls = [at for at, entry in enumerate(snapshot["device_traces"][0]) if entry["action"] in ("alloc", "free_requested")]
    for at in parked:
        before = max(call for call in calls if call < at)
        check(not marks & set(range(before, at + 1)), f"parking before entry {at + 1} is marked as empty_cache or a flush")
    tags = {segment.get("tag", "") for segment in snapshot["segments"]} - {""}
    equal({name for name in device.facts["pools"] if not name.startswith("(")}, tags, "names of pools")
    end = {device.facts["pools"][one.pool] for one in device.parked if one.life == 0}
    equal(end, {segment["tag"] for segment in snapshot["segments"] if segment.get("is_parked")}, "parked at the end")


def test_a_file_without_entries_shows_its_final_state(folder: str) -> None:
    snapshot = generate.recording(random.Random(5), generate.Kind(steps=60))
    final = {**snapshot, "device_traces": []}
    device = view(folder, saved(folder, "final.pickle", dumped(final))).devices[0]
    want = reference.Run(snapshot).totals
    series = device.series()
    equal({key: values for key, values in series.items()},
          {key: [getattr(want, theirs)] for key, theirs in CURVES.items()}, "the final state")
    equal(device.facts["overview"]["buckets"], 1, "buckets")


def test_only_requests(folder: str) -> None:
    """Reserved memory is unknown; blocks are shown all the same."""
    snapshot = generate.recording(random.Random(6), generate.Kind(steps=60))
    entries = [entry for entry in snapshot["device_traces"][0] if not entry["action"].startswith("segment_")]
    path = saved(folder, "requests.pickle", dumped({**snapshot, "device_traces": [entries], "segments": []}))
    device = view(folder, path).devices[0]
    equal((device.facts["has_segments"], device.facts["peaks"]["reserved"]), (False, None), "reserved memory")
    check(all(segment.flags & 8 for segment in device.segments), "all segments are invented")
    requested = [0]
    live: dict[int, int] = {}
    for entry in entries:
        if entry["action"] == "alloc":
            live[entry["addr"]] = entry["size"]
        elif entry["action"] == "free_completed":
            live.pop(entry["addr"])
        requested.append(sum(live.values()))
    equal(device.series()["requested"], requested, "requested bytes")


def test_the_end_of_a_file_may_be_missing(folder: str) -> None:
    data = bytes_of(recording("resnet_stacks"))
    for share in (0.7, 0.9, 0.99):
        cut = saved(folder, "cut.tide", data[: int(len(data) * share)])
        device = view(folder, cut, warns=True).devices[0]
        info = run("info", cut, "--json").json()
        equal((device.facts["is_cut"], device.entries), (True, info["devices"][0]["entries"]), f"cut at {share}")
        peaks_are_sums(device, f"cut at {share}")


def test_entries_of_all_files_and_devices(folder: str) -> None:
    seeds = (1, 4, 7)
    paths = [saved(folder, f"rank{seed}.pickle", dumped(command.generated(seed))) for seed in seeds]
    page = view(folder, *paths)
    equal([file["name"] for file in page.facts["files"]], paths, "names of files")
    device = 0
    for file, path in zip(page.facts["files"], paths):
        alone = view(folder, path)
        equal(file["report"], alone.facts["files"][0]["report"], f"{path}: report")
        for one in alone.devices:
            both = page.devices[device]
            equal((both.segments, both.blocks), (one.segments, one.blocks), f"{path}: segments and blocks")
            equal(both.stacks, one.stacks, f"{path}: stacks")
            device += 1
    equal(device, len(page.devices), "devices")


# ---------------------------------------------------------------------------------------------------
# What the page adds


def test_settings_are_replayed(folder: str) -> None:
    for name in ("gnn_retry", "resnet_stacks", "expand"):
        path = recording(name)
        device = view(folder, path).devices[0]
        rows, report = device.facts["whatif"], device.facts["report"]
        check(2 <= len(rows) <= 6 and rows[0]["is_recorded"], f"{name}: {len(rows)} settings")
        check(report["environment"] in [None, *(row["line"] for row in rows)], f"{name}: the advised setting is there")
        for row in rows:
            setting = row["name"]
            policy = setting if setting.startswith("tide") else "torch" if setting == "(defaults)" else f"torch:{setting}"
            limit = [] if report["limit"] is None else ["--limit", f"{report['limit']}B"]
            said = ask("replay", path, "--policy", policy, *limit)
            equal((row["reserved_peak"], row["fits"]), (said["peak_reserved"], said["ooms"] == 0), f"{name}: {setting}")
            (curve,) = view_page.columns_of(device.page.part(row["part"]))
            equal(len(curve), device.facts["overview"]["buckets"], f"{name}: buckets of {setting}")
            equal(max(curve) * 512, row["reserved_peak"], f"{name}: the most of the curve of {setting}")
        settings_repeat_the_recording(device, name)


def settings_repeat_the_recording(device: view_page.Device, name: str) -> None:
    """The recorded setting reserves what was recorded, if a request comes in the bucket of its segment."""
    (curve,) = view_page.columns_of(device.page.part(device.facts["whatif"][0]["part"]))
    most = device.facts["overview"]["reserved"]["most"]
    same = sum(mine * 512 == theirs for mine, theirs in zip(curve, most))
    check(same > 0.85 * len(most), f"{name}: {same} of {len(most)} buckets are those of the recording")


def test_marks_say_why_memory_was_given_back(folder: str) -> None:
    kinds = {"gnn_retry": {"flush"}, "graphs": {"empty_cache"}}
    for name, want in kinds.items():
        device = view(folder, recording(name)).devices[0]
        marks = [mark for mark in device.facts["marks"] if mark["kind"] != "snapshot"]
        check(want <= {mark["kind"] for mark in marks}, f"{name}: {marks}")
        behind, ends = device.entries + 1, dict[int, int]()
        for segment in device.segments:
            if segment.ended(behind) != behind:
                ends[segment.ended(behind) - 1] = ends.get(segment.ended(behind) - 1, 0) + segment.bytes
        equal(sum(mark["bytes"] for mark in marks), sum(ends.values()), f"{name}: bytes that were given back")


def test_bands_are_annotations_and_steps(folder: str) -> None:
    snapshot = generate.recording(random.Random(8), generate.Kind(steps=120))
    times = [entry["time_us"] for entry in snapshot["device_traces"][0]]
    marks = [("outer", 3, 90), ("inner", 10, 20), ("inner", 30, 40), ("open", 50, None)]
    notes = sorted([(times[begin], "START", name) for name, begin, _ in marks] +
                   [(times[end], "END", name) for name, _, end in marks if end is not None])
    snapshot["external_annotations"] = [{"name": name, "stage": stage, "time_us": time, "device": 0}
                                        for time, stage, name in notes]
    device = view(folder, saved(folder, "bands.pickle", dumped(snapshot)), "--step", "50").devices[0]
    bands = device.facts["bands"]
    want = [(name, sum(time < times[begin] for time in times),
             len(times) if end is None else sum(time < times[end] for time in times)) for name, begin, end in marks]
    got = [(band["name"], band["from"], band["to"]) for band in bands if band["kind"] == "annotation"]
    equal(sorted(got), sorted(want), "annotations")
    rows = [(row["first_entry"], row["first_entry"] + row["entries"]) for row in device.facts["steps"] if row["is_whole"]]
    equal([(band["from"], band["to"]) for band in bands if band["kind"] == "step"], rows, "steps")


def test_annotations_of_every_device(folder: str) -> None:
    """Those without a device, or with a negative one, are of every device."""
    snapshot = generate.recording(random.Random(9), generate.Kind(steps=60, devices=2))
    times = sorted(entry["time_us"] for entries in snapshot["device_traces"] for entry in entries)
    devices: dict[str, dict[str, int]] = {"none": {}, "negative": {"device": -1}, "first": {"device": 0}, "second": {"device": 1}}
    snapshot["external_annotations"] = [{"name": name, "stage": stage, "time_us": times[at], **on} for stage, at in
                                        (("START", 2), ("END", -3)) for name, on in devices.items()]
    page = view(folder, saved(folder, "devices.pickle", dumped(snapshot)))
    for device, own in zip(page.devices, ("first", "second")):
        got = [band["name"] for band in device.facts["bands"] if band["kind"] == "annotation"]
        equal(sorted(got), sorted(("none", "negative", own)), f"annotations of device {device.facts['device']}")


# ---------------------------------------------------------------------------------------------------
# Size


def loop(rng: random.Random, count: int, kind: generate.Kind) -> command.Snapshot:
    """A loop whose steps need no new memory after the first."""
    program = generate.Program(rng, kind, 0)
    for block in list(program.layout.live.values()):
        program.release(block)
    again = [entry for entry in program.entries if not entry["action"].startswith("segment_")]
    entries = list(program.entries)
    while len(entries) < count:
        entries += [{**entry, "time_us": entry["time_us"] + 37 * len(entries) + rng.randrange(40)} for entry in again]
    segments = reference.segments_list(program.layout, program.homes)
    return {"device_traces": [entries], "segments": segments, "allocator_settings": generate.settings_of(kind)}


def noise(rng: random.Random, count: int) -> command.Snapshot:
    """One large segment with blocks at random places, which hardly compress."""
    base, slot, live = 0x7F0000000000, MIB, dict[int, int]()
    entries = [{"action": "segment_alloc", "addr": base, "size": 4096 * slot, "stream": 0}]
    while len(entries) < count:
        address, size = base + slot * rng.randrange(4096), rng.randrange(1, slot)
        if address not in live:
            live[address] = size
            entries.append({"action": "alloc", "addr": address, "size": size, "stream": 0})
        elif rng.random() < 0.9:
            entries += [{"action": action, "addr": address, "size": live[address], "stream": 0}
                        for action in ("free_requested", "free_completed")]
            del live[address]
    return {"device_traces": [entries], "segments": []}


def test_a_small_page_leaves_out_short_lives(folder: str) -> None:
    path = saved(folder, "long.pickle", dumped(noise(random.Random(9), 20_000)))
    whole = view(folder, path)
    series = whole.devices[0].series()
    letters = sum(len(letters) for name, (_, _, letters) in whole.parts.items() if "-blocks-" in name)
    for share in some((0.3, 0.5, 0.7), 3):
        most = len(whole.data) - int(share * letters)
        said = ask("view", path, "-o", os.path.join(folder, "small.html"), "--page-size", f"{most}B")
        data = bytes_of(os.path.join(folder, "small.html"))
        device = view_page.Page(data).devices[0]
        left_out = device.facts["left_out"]
        check(len(data) <= most, f"{len(data)} bytes, not {most}")
        limit = left_out["below_entries"]
        equal((said["left_out_blocks"], said["left_out_below_entries"]), (left_out["blocks"], limit), "what is said")
        kept = [block for block in whole.devices[0].blocks if 1 << block.level >= limit]
        equal(device.blocks, kept, "blocks that are left")
        equal(left_out["blocks"], len(whole.devices[0].blocks) - len(kept), "blocks that are left out")
        fine_curves_are_right(device, series)


def fine_curves_are_right(device: view_page.Device, series: dict[str, list[int]]) -> None:
    columns = [view_page.sums(view_page.unzigzag(column)) for column in device.columns("curves")]
    equal(len(columns), 9, "columns of the curves")
    for place, curve in enumerate(("reserved", "allocated", "requested")):
        least, most, last = columns[3 * place : 3 * place + 3]
        for bucket in range(len(least)):
            part = series[curve][64 * bucket + (bucket > 0) : 64 * bucket + 65]
            if part:
                equal((least[bucket], most[bucket], last[bucket]), (min(part), max(part), part[-1]), f"{curve}: {bucket}")


def test_a_page_that_cannot_be_small_is_refused(folder: str) -> None:
    path, out = recording("gnn_retry"), os.path.join(folder, "page.html")
    run("view", path, "-o", out, "--page-size", "2KiB").fails("even without blocks")
    check(not os.path.exists(out), "no page is written")


def test_a_hundred_thousand_entries_need_less_than_3_MB(folder: str) -> None:
    snapshot = loop(random.Random(10), 100_000, generate.Kind(steps=1500, has_stacks=True, streams=2))
    entries = snapshot["device_traces"][0]
    path = saved(folder, "many.pickle", dumped(snapshot))
    page = view(folder, path)
    equal((page.devices[0].facts["left_out"], page.devices[0].entries), (None, len(entries)), "all is there")
    check(len(page.data) < 3_000_000, f"{len(page.data)} bytes")


def test_the_same_input_gives_the_same_bytes(folder: str) -> None:
    paths = [recording(name) for name in ("gnn_retry", "resnet_stacks")]
    page = view(folder, *paths).data
    check(view(folder, *paths).data == page, "two pages of the same files differ")
    check(run("view", *paths, "-o", "-").works().bytes == page, "the page on standard output differs")


# ---------------------------------------------------------------------------------------------------
# Hostile recordings

def test_texts_of_a_file_are_never_markup(folder: str) -> None:
    for number, (text, data) in enumerate(some(hostile_recordings(), 3)):
        path = saved(folder, f"hostile{number}.pickle", data)
        page = view(folder, path)
        page_is_safe(page, repr(text))
        device = page.devices[0]
        texts = device.stacks["texts"]
        check(any(len(name) > len("main") and name.startswith("main") for name in texts), f"{text!r} is among the names")
        for block in device.blocks:
            device.frames(block.stack)


def test_names_of_files_are_never_markup(folder: str) -> None:
    for text in ("<img src=x onerror=alert(1)>", "a&b<script>.pickle", "\u2028\u202e\x1b[1m", '"\'`'):
        path = saved(folder, text.replace("/", "_"), bytes_of(recording("expand")))
        page = view(folder, path)
        page_is_safe(page, repr(text))
        equal(page.facts["files"][0]["name"], path, "the name of the file")


def test_pages_of_recordings_are_safe(folder: str) -> None:
    for name in ("gnn_retry", "resnet_stacks", "graphs"):
        page_is_safe(view(folder, recording(name)), name)


def peaks_are_sums(device: view_page.Device, name: str) -> None:
    """Also if entries contradict each other, what exists adds up to the figures of the ledger."""
    series = device.series()
    for key in ("reserved", "allocated", "requested", "active"):
        if device.facts["peaks"][key] is not None:
            equal(device.facts["peaks"][key]["bytes"], max(series[key]), f"{name}: peak {key}")
        check(min(series[key]) >= 0, f"{name}: {key} below 0")
    if max(series["reserved"]) < 1 << 53:
        overview_is_right(device, series, name)
    lanes_are_right(device, name)
    levels_are_right(device, name)


def test_contradictions_make_a_page(folder: str) -> None:
    for seed in command.numbers(20):
        snapshot = damaged(random.Random(seed), command.generated(seed))
        page = view(folder, saved(folder, "odd.pickle", dumped(snapshot)))
        page_is_safe(page, f"seed {seed}")
        for device in page.devices:
            peaks_are_sums(device, f"seed {seed}, device {device.facts['device']}")


def test_damaged_bytes_make_a_page_or_an_error(folder: str) -> None:
    rng, pages = random.Random(12), 0
    for seed in range(scaled(20, 12)):
        data = bytearray(dumped(command.generated(seed), 2 + seed % 3))
        for _ in range(rng.randrange(1, 12)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path = saved(folder, "damaged.pickle", bytes(data))
        out = os.path.join(folder, "damaged.html")
        answer = run("view", path, "-o", out)
        check(answer.status in (0, 2), f"seed {seed}: status {answer.status}: {answer.err}")
        equal(os.path.exists(out), answer.status == 0, f"seed {seed}: there is a page")
        if answer.status == 0:
            pages += 1
            page = view_page.Page(bytes_of(out))
            page_is_safe(page, f"damaged {seed}")
            for device in page.devices:
                peaks_are_sums(device, f"damaged {seed}")
            os.remove(out)
    check(pages > 0, "some pages are made")


# ---------------------------------------------------------------------------------------------------
# Command lines


def test_errors(folder: str) -> None:
    path = recording("expand")
    copy = saved(folder, "copy.tide", bytes_of(path))
    empty = saved(folder, "empty.pickle", dumped({"segments": [], "device_traces": [[]]}))
    out = os.path.join(folder, "page.html")
    cases = [
        (("view", path), "-o names the page"),
        (("view", path, "-o", ""), "name of a file"),
        (("view", copy, "-o", copy), "would replace a recording"),
        (("view", path, "-o", os.path.join(folder, "nowhere", "page.html")), "No such file"),
        (("view", path, "-o", folder), "Is a directory"),
        (("view", path, "-o", "/dev/full"), "No space left"),
        (("view", empty, "-o", out), "neither entries nor segments"),
        (("view", os.path.join(folder, "missing"), "-o", out), "missing"),
        (("view", path, "-o", out, "--page-size", "many"), "--page-size"),
        (("view", path, "-o", out, "--step", ""), "--step"),
        (("view", "-o", out), "missing operand"),
    ]
    for words, text in cases:
        run(*words).fails(text)
        check(not os.path.exists(out), f"{words}: writes something")
    equal(bytes_of(copy), bytes_of(path), "the recording")


def test_text_of_the_command(folder: str) -> None:
    out = os.path.join(folder, "page.html")
    said = run("view", recording("expand"), "-o", out).works().out
    check(re.fullmatch(r"\S+page\.html: [0-9.]+ KiB, with [0-9]+ entries of 1\s+recording\.\n", said), f"it says {said!r}")


if __name__ == "__main__":
    harness.main()
