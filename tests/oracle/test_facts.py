# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""What info and report say of each device, beside what the pickle says."""
from __future__ import annotations

import os
import re
from typing import Any

import snapshot as reference
from command import Snapshot, ask, dumped, generated, numbers, own_recordings, shared_files
from harness import check, equal, run, some

ACTIONS = {"alloc": "allocs", "free_requested": "free_requests", "free_completed": "free_completions",
           "segment_alloc": "segment_allocs", "segment_free": "segment_frees", "segment_map": "segment_maps",
           "segment_unmap": "segment_unmaps", "snapshot": "snapshots", "oom": "ooms"}


def blocks_agree_in_size(got: int, want: int, truth: reference.Run, text: str) -> None:
    """A block from before that was released has at least the size of its request; more cannot be known."""
    if truth.are_sizes_known:
        equal(got, want, text)
    else:
        check(got >= want, f"{text}: the command says {got}, and it is at least {want}")


def peaks_agree(said: dict[str, Any], truth: reference.Run, keys: tuple[str, ...], name: str) -> None:
    for key in keys:
        if key in ("active", "allocated_blocks"):
            blocks_agree_in_size(said[f"peak_{key}"], truth.peaks[key].bytes, truth, f"{name}: peak_{key}")
        elif key == "reserved" and not truth.has_segments:
            check(said["peak_reserved"] in (None, 0), f"{name}: peak_reserved is {said['peak_reserved']}")
        else:
            equal(said[f"peak_{key}"], truth.peaks[key].bytes, f"{name}: peak_{key}")


def info_agrees(said: dict[str, Any], truth: reference.Run, name: str) -> None:
    for action, key in ACTIONS.items():
        equal(said[key], truth.actions[action], f"{name}: {key}")
    equal(said["entries"], len(truth.entries), f"{name}: entries")
    for key in ("segments_before", "blocks_before", "is_from_start"):
        equal(said[key], getattr(truth, key), f"{name}: {key}")
    blocks_agree_in_size(said["block_bytes_before"], truth.bytes_before, truth, f"{name}: block_bytes_before")
    for key in ("unknown_frees", "homeless_allocs", "overlaps", "odd_segments", "differences"):
        equal(said[key], 0, f"{name}: {key}")
    peaks_agree(said, truth, reference.NAMES, name)
    streams = {entry["stream"] for entry in truth.entries if entry["action"] == "alloc"}
    equal(said["streams"], len(streams), f"{name}: streams")
    equal(said["blocks_in_use"], len(truth.live), f"{name}: blocks_in_use")
    stacks = sum(bool(entry.get("frames")) for entry in truth.entries)
    equal(said["entries_with_stack"], stacks, f"{name}: entries_with_stack")
    if truth.peaks["reserved"].bytes >= truth.peaks["allocated"].bytes > 0:
        share = truth.peaks["allocated"].bytes / truth.peaks["reserved"].bytes
        check(abs(said["utilisation"] - share) <= 0.00005001, f"{name}: utilisation {said['utilisation']}, not {share}")


def moment_agrees(said: dict[str, Any], truth: reference.Run, key: str, name: str) -> None:
    at = truth.peaks[key].entry
    equal(said[f"peak_{key}_entry"], at, f"{name}: peak_{key}_entry")
    if at is not None and "time_us" in truth.entries[at]:
        ms = (truth.entries[at]["time_us"] - truth.entries[0]["time_us"]) / 1000
        equal(said[f"peak_{key}_ms"], ms, f"{name}: peak_{key}_ms")
    else:
        equal(said[f"peak_{key}_ms"], None, f"{name}: peak_{key}_ms")


def blocks_agree(said: dict[str, Any], truth: reference.Run, live: list[reference.Block], name: str) -> None:
    """The largest blocks at the peak."""
    live = sorted(live, key=lambda block: (-block.requested, block.address))
    rows = said["largest_blocks"]
    equal(len(rows), min(len(live), 1000), f"{name}: number of largest_blocks")
    now = truth.peaks["allocated"].entry
    for row, block in zip(rows, live):
        state = "active_pending_free" if block.is_pending else "active_allocated"
        got = (int(row["address"], 16), row["requested"], row["stream"], row["state"])
        equal(got, (block.address, block.requested, block.stream, state), f"{name}: a largest block")
        blocks_agree_in_size(row["bytes"], block.size, truth, f"{name}: size of {row}")
        age = None
        if now is not None and block.made is not None and "time_us" in truth.entries[now]:
            age = (truth.entries[now]["time_us"] - truth.entries[block.made]["time_us"]) / 1000
        equal(row["age_ms"], age, f"{name}: age of {row}")


def site_outside_torch(stack: reference.Stack) -> tuple[str, int, str] | None:
    """The innermost line outside of PyTorch; of PyTorch if there is no other."""
    lines = [frame for frame in stack if frame[0].endswith(".py")]
    others = [frame for frame in lines if not re.search(r"/(site|dist)-packages/torch/", frame[0])]
    return next(iter(others or lines or stack), None)


def site_of_program(stack: reference.Stack) -> tuple[str, int, str] | None:
    """The innermost line of the program itself, outside of all packages."""
    own = [frame for frame in stack if frame[0].endswith(".py") and not re.search(r"/(site|dist)-packages/", frame[0])]
    return own[0] if own else site_outside_torch(stack)


def sites_agree(said: dict[str, Any], live: list[reference.Block], name: str) -> None:
    """Sums by call site at the peak, by one of the two usual meanings of a call site."""
    got = {(row["file"] or "", int(row["line"]), row["function"] or ""): (row["bytes"], row["blocks"])
           for row in said["call_sites"]}
    sums: list[dict[tuple[str, int, str], tuple[int, int]]] = []
    for site_of in (site_outside_torch, site_of_program):
        wanted: dict[tuple[str, int, str], tuple[int, int]] = {}
        for block in live:
            site = site_of(block.stack) or ("", 0, "")
            size, number = wanted.get(site, (0, 0))
            wanted[site] = (size + block.requested, number + 1)
        sums.append(wanted if set(wanted) - {("", 0, "")} else {})
    check(got in sums, f"{name}: call_sites are {got}, not {sums}")
    sizes = [row["bytes"] for row in said["call_sites"]]
    equal(sizes, sorted(sizes, reverse=True), f"{name}: the order of call_sites")


def ooms_agree(said: dict[str, Any], truth: reference.Run, name: str) -> None:
    equal(said["ooms"], len(truth.ooms), f"{name}: ooms")
    for row, at in zip(said.get("oom_requests") or [], truth.ooms):
        entry = truth.entries[at]
        got = (row["entry"], row["bytes"], row["stream"], row["device_free"], row["reserved"])
        want = (at, entry["size"], entry["stream"], entry["device_free"], truth.series["reserved"][at])
        equal(got, want, f"{name}: refusal at entry {at}")
        allocated = truth.series["allocated_blocks"][at]
        blocks_agree_in_size(row["allocated"], allocated, truth, f"{name}: allocated at entry {at}")


def steps_agree(steps: dict[str, Any], truth: reference.Run, name: str) -> None:
    """The peaks of each step, given where it begins and ends."""
    allocated, before = truth.series["allocated"], truth.before.allocated
    for row in steps["rows"]:
        first, last = row["first_entry"], row["first_entry"] + row["entries"] - 1
        peak = truth.step_peak("allocated", first, last)
        begin = allocated[first - 1] if first > 0 else before
        got = tuple(row[key] for key in ("peak_allocated", "peak_entry", "peak_reserved", "live", "growth"))
        want = (peak.bytes, peak.entry, truth.step_peak("reserved", first, last).bytes, allocated[last],
                allocated[last] - begin)
        equal(got, want, f"{name}: step from entry {first} to {last}")
    ends = [row["first_entry"] + row["entries"] for row in steps["rows"]]
    equal([row["first_entry"] for row in steps["rows"][1:]], ends[:-1], f"{name}: steps follow each other")


def report_agrees(said: dict[str, Any], snapshot: Snapshot, truth: reference.Run, name: str) -> None:
    device = truth.device
    equal((said["device"], said["entries"]), (device, len(truth.entries)), f"{name}: device and entries")
    peaks_agree(said, truth, ("allocated", "allocated_blocks", "requested", "reserved"), name)
    for key in ("allocated", "reserved"):
        moment_agrees(said, truth, key, name)
    made = truth.actions["segment_alloc"] + truth.actions["segment_map"]
    freed = truth.actions["segment_free"] + truth.actions["segment_unmap"]
    calls = (made, freed) if truth.has_segments else (None, None)
    equal((said["driver_allocs"], said["driver_frees"]), calls, f"{name}: driver calls")
    live = reference.blocks_at(snapshot, device, truth.peaks["allocated"].entry)
    blocks_agree(said, truth, live, name)
    sites_agree(said, live, name)
    ooms_agree(said, truth, name)
    steps_agree(said["steps"], truth, name)
    at = truth.peaks["reserved"].entry
    pools = {segment["segment_pool_id"] for segment in reference.segments_of(snapshot, device)}
    are_pools_known = len(pools) < 2 or truth.actions["segment_unmap"] == 0  # of all segments that there ever were
    if truth.is_from_start and are_pools_known and at is not None:
        want = reference.losses(snapshot, device, at)
        got = said["fragmentation"]
        equal({key: got[key] for key in want}, want, f"{name}: fragmentation")


def agrees(path: str, snapshot: Snapshot, data: bytes = b"", name: str = "") -> None:
    """The oracle ends in the recorded state, and info and report say what it says."""
    name = name or os.path.basename(path)
    devices = {row["device"]: row for row in ask("info", path, data=data)["devices"]}
    for device, entries in enumerate(snapshot["device_traces"]):
        truth = reference.Run(snapshot, device)
        check(not truth.differences_at_end(), f"the oracle itself, {name}: {truth.differences_at_end()[:1]}")
        info_agrees(devices[device], truth, f"info {name}, device {device}")
        if entries:
            said = ask("report", path, "--device", str(device), "--top", "1000", data=data)
            report_agrees(said, snapshot, truth, f"report {name}, device {device}")


def test_recordings_of_the_tests(folder: str) -> None:
    for path, snapshot in own_recordings(folder, 5):
        agrees(path, snapshot)


def test_shared_recordings() -> None:
    for file in some(shared_files()):
        agrees(file, reference.load(file))


def test_pickle_protocols(folder: str) -> None:
    """The same facts in protocols 2 to 5. Older ones are text in part; PyTorch never wrote them, and they are refused."""
    keys = ("devices", "streams", "pools", "settings", "stacks", "frames")
    for path, snapshot in own_recordings(folder, 5):
        if os.path.getsize(path) > 300 << 10:
            continue
        facts = [ask("info", "-", data=dumped(snapshot, protocol)) for protocol in range(2, 6)]
        said = [{key: fact[key] for key in keys} for fact in facts]
        equal(said, said[:1] * 4, os.path.basename(path))
    for protocol in range(2, 6):
        for seed in numbers(4):
            agrees("-", generated(seed), dumped(generated(seed), protocol), f"seed {seed}, protocol {protocol}")
    for protocol in (0, 1):
        run("info", "-", stdin=dumped(generated(0), protocol)).fails("the format of the file is unknown")


def test_steps_of_a_number_of_entries() -> None:
    """Steps that are given, not found."""
    for seed in numbers(10):
        snapshot = generated(seed)
        for device, entries in enumerate(snapshot["device_traces"]):
            if len(entries) < 20:
                continue
            said = ask("report", "-", "--device", str(device), "--step", "20", data=dumped(snapshot))
            check(len(said["steps"]["rows"]) >= len(entries) // 20, f"seed {seed}: {said['steps']}")
            steps_agree(said["steps"], reference.Run(snapshot, device), f"seed {seed}, device {device}")


def test_generated_recordings() -> None:
    for seed in numbers(60):
        agrees("-", generated(seed), dumped(generated(seed)), f"seed {seed}")
