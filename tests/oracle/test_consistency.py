# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""No verb contradicts another one on the same file, and every text can be shown.

Recordings are generated ones, and those of the tests that are short. Limits are chosen around the figures that the
command gave before, because there a wrong answer would be believed.
"""
from __future__ import annotations

import json
import os
import pickle
import random
import re
from collections.abc import Iterator
from typing import Any

import generate
import snapshot as reference
from command import IS_SLOW, Snapshot, ask, dumped, generated, numbers, own_recordings
from harness import check, equal, run

COLUMNS = 100
NO_NUMBER = re.compile(r"(?<![\w/.-])(-?nan|-?inf|-0(\.0+)?)(?![\w/.:-])", re.I)
PEAKS = ("peak_allocated", "peak_allocated_blocks", "peak_requested", "peak_reserved")


def as_policy(row: dict[str, Any]) -> str:
    return f"{row['policy']}:{row['settings']}".rstrip(":")


def torch_made(seed: int) -> Snapshot:
    """Requests as a program makes them, step by step: what lives long, what a step needs, and what grows."""
    rng = random.Random(seed)
    kind = generate.Kind(steps=0, streams=1)
    program = generate.Program(rng, kind, 0)
    for _ in range(rng.randrange(3, 12)):
        program.allocate()
    for _ in range(rng.randrange(2, 8)):
        first = len(program.layout.live)
        for _ in range(rng.randrange(5, 30)):
            program.allocate()
        for block in list(program.layout.live.values())[first:]:
            if rng.random() < 0.95:
                program.release(block)
    return {"segments": reference.segments_list(program.layout, program.homes),
            "device_traces": [program.entries], "allocator_settings": generate.settings_of(kind)}


def cases(folder: str, most: int) -> Iterator[tuple[str, bytes]]:
    for seed in numbers(most):
        yield f"seed {seed}", dumped(generated(seed))
        yield f"program {seed}", dumped(torch_made(seed))
    for path, snapshot in own_recordings(folder, 5):
        if os.path.getsize(path) < 100 << 10:
            yield os.path.basename(path), dumped(snapshot)


def devices_of(data: bytes) -> list[int]:
    """Those with entries."""
    return [row["device"] for row in ask("info", "-", data=data)["devices"] if row["entries"] > 0]


def text_is_fit(text: str, name: str) -> None:
    check(NO_NUMBER.search(text) is None, f"{name}: {NO_NUMBER.search(text)} in {text}")
    wide = [line for line in text.splitlines() if len(line) > COLUMNS]
    check(not wide, f"{name}: over {COLUMNS} columns: {wide[:1]}")


def test_texts_can_be_shown(folder: str) -> None:
    for name, data in cases(folder, 5):
        path = os.path.join(folder, "x.pickle")
        with open(path, "wb") as file:
            file.write(data)
        lines = [("info", path), ("diff", path, path), ("diff", path, os.path.join(folder, "before.pickle"))]
        for device in devices_of(data):
            at = ("--device", str(device))
            lines += [("report", path, *at), ("replay", path, *at), ("whatif", path, "--quick", *at),
                      ("replay", path, *at, "--policy", "tide", "--limit", "100MiB"),
                      ("whatif", path, "--quick", *at, "--limit", "100MiB")]
        if not os.path.exists(os.path.join(folder, "before.pickle")):
            lines = [line for line in lines if "before.pickle" not in line[-1]]
        for line in lines:
            text_is_fit(run(*line).works(0, 1).out, f"{name} {line}")
            if not IS_SLOW:
                ask(*line)
        os.replace(path, os.path.join(folder, "before.pickle"))


def test_peaks_are_the_same_in_all_verbs(folder: str) -> None:
    for name, data in cases(folder, 5):
        path = os.path.join(folder, "x.pickle")
        with open(path, "wb") as file:
            file.write(data)
        devices = {row["device"]: row for row in ask("info", path)["devices"]}
        for device in devices_of(data):
            at = ("--device", str(device))
            want = {key: devices[device][key] for key in PEAKS}
            report = ask("report", path, *at)
            equal({key: report[key] for key in PEAKS}, want, f"{name}, device {device}: report")
            same = ask("diff", path, path, *at)
            equal((same["is_same"], same["status"]), (True, 0), f"{name}, device {device}: diff with itself")
            sides = {row["name"]: (row["a"], row["b"], row["change"]) for row in same["peaks"]}
            for key in PEAKS:
                zero = None if want[key] is None else 0
                equal(sides[key], (want[key], want[key], zero), f"{name}, device {device}: {key} of diff")
            equal(same["call_sites"] + same["sizes"], [], f"{name}, device {device}: what differs from itself")
            if devices[device]["is_from_start"] and devices[device]["ooms"] == 0:
                played = ask("replay", path, *at, "--limit", "512GiB")
                what = ask("whatif", path, *at, "--quick")
                equal((played["peak_allocated"], what["peak_allocated"]), (want["peak_allocated"],) * 2,
                      f"{name}, device {device}: peak_allocated of replay and whatif")
                equal(what["recorded_reserved"], want["peak_reserved"], f"{name}, device {device}: recorded_reserved")


def row_is_replayed(row: dict[str, Any], name: str, words: list[str], data: bytes) -> None:
    played = ask("replay", "-", "--policy", as_policy(row), *words, data=data)
    for key in ("peak_reserved", "driver_calls", "first_oom", "utilisation"):
        equal(played[key], row[key], f"{name}: {key} of {row} replayed")
    equal((played["ooms"] == 0, played["status"] == 0), (row["fits"],) * 2, f"{name}: {row} fits")


def whatif_is_replayed(name: str, data: bytes, device: int, limit: int | None) -> dict[str, Any]:
    """Every row is what a replay says under the same limit. The status and the text say whether something fits."""
    at = ["--device", str(device)]
    words = at if limit is None else [*at, "--limit", f"{limit}B"]
    said = ask("whatif", "-", "--quick", "--all", *words, data=data)
    limit = said["limit"]
    for row in said["rows"] if not IS_SLOW else random.Random(name).sample(said["rows"], 3):
        if row["error"] is None and row["peak_reserved"] is None:
            equal(said["is_repeated"], False, f"{name}: is_repeated, with no figures in {row}")
        elif row["error"] is None:
            row_is_replayed(row, name, at if limit is None else [*at, "--limit", f"{limit}B"], data)
    fits = any(row["fits"] for row in said["rows"])
    if len(words) > 2:
        equal(said["status"], int(not fits), f"{name}: the status of whatif under {limit}")
        text = run("whatif", "-", "--quick", *words, stdin=data).works(0, 1).out
        nothing = re.search(r"(Nothing|No setting)( that was tried)?\s+runs\s+in", text) is not None
        equal(nothing, not fits, f"{name}: whether something runs in {limit}, in {text}")
    return said


def test_whatif_says_what_replay_says(folder: str) -> None:
    for name, data in cases(folder, 2):
        for device in devices_of(data):
            said = whatif_is_replayed(name, data, device, None)
            peaks = [row["peak_reserved"] for row in said["rows"] if row["peak_reserved"] is not None]
            rng = random.Random(name)
            for limit in {min(peaks), int(rng.choice(peaks) * rng.uniform(0.6, 1))} if peaks else ():
                whatif_is_replayed(name, data, device, max(limit, 1))


def smallest_of(data: bytes, *words: str) -> dict[str, dict[str, Any]]:
    """The rows for which it was found, by setting, with the calls of empty_cache that all replays repeat."""
    said = ask("whatif", "-", "--all", *words, data=data)
    return {as_policy(row): {**row, "calls": said["inferred_empty_cache"]} for row in said["rows"]
            if row["smallest_memory"]}


def smallest_is_enough(data: bytes, at: list[str], row: dict[str, Any], is_exact: bool, name: str) -> None:
    least = row["smallest_memory"]
    for limit, serves in [(least, True)] + ([(least - 1, False)] if is_exact else []):
        played = ask("replay", "-", *at, "--policy", as_policy(row), "--limit", f"{limit}B", data=data)
        if played["inferred_empty_cache"] == row["calls"]:
            equal((played["ooms"] == 0, played["status"] == 0), (serves,) * 2, f"{name}: {row} runs in {limit}")


def test_the_smallest_memory_is_enough(folder: str) -> None:
    """A replay succeeds in it, and not in less if it is exact. Under any limit, it agrees with what fits."""
    for name, data in cases(folder, 2):
        for device in devices_of(data)[:1]:
            at = ["--device", str(device)]
            rows = smallest_of(data, *at)
            is_exact = not reference.waits(pickle.loads(data)["device_traces"][device])
            for row in list(rows.values())[::4 if IS_SLOW else 1]:
                smallest_is_enough(data, at, row, is_exact, name)
            for limit in sorted({row["smallest_memory"] for row in rows.values()})[::16 if IS_SLOW else 4]:
                again = smallest_of(data, *at, "--limit", f"{limit}B")
                for setting, row in again.items():
                    # A setting may run in less and fail in more; the other way round would be a contradiction.
                    check(not row["fits"] or row["smallest_memory"] <= limit, f"{name}: {row} under {limit}")
                    before = rows.get(setting)
                    if is_exact and before and before["calls"] == row["calls"] and before["smallest_memory"] <= limit:
                        equal(row["smallest_memory"], before["smallest_memory"], f"{name}: {row} under {limit}")


def test_json_is_the_same_twice(folder: str) -> None:
    """Nothing depends on threads or on addresses in memory."""
    for name, data in cases(folder, 2):
        for line in (("info", "-"), ("report", "-"), ("whatif", "-", "--quick")):
            if devices_of(data) or line[0] == "info":
                first, second = (json.dumps(ask(*line, data=data)) for _ in range(2))
                equal(first, second, f"{name}: {line[0]}")
