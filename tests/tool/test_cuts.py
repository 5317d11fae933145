#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Tests what the tidemark command says about limits, and about recordings whose beginning is missing.

Recordings are cut here, as PyTorch's ring does it: the first entries go, the final list of segments stays. The truth is the
whole recording: what is live and reserved is computed here from its entries, limits are those under which the runs were made,
and other settings are replayed on the whole recording.
"""
import functools
import os
import pathlib
import pickle
import sys

sys.path.extend(str(pathlib.Path(__file__).resolve().parents[1] / part) for part in ("", "oracle"))
import command
import harness
import snapshot as reference
from harness import DATA, Skip, check, equal

MIB, GIB = 1 << 20, 1 << 30
NO_LIMIT = "900GiB"  # more than any of the runs needs

# Recordings with the limit that the run had, in MiB; None: none. Those with a slash are among the optional data.
LIMITS = {
    "gnn_retry": 14336,
    "resnet_stacks": None,
    "after_oom": 700,
    "expand_limit": 600,
    "graphs": None,
    "traces/varlen_oom": 16896,
    "traces/gnn_empty": None,
    "traces/gnn_gc_split": 20480,
    "traces/multistream_prefetch": None,
}
PLACES = (0.07, 0.31, 0.5, 0.74, 0.96)
COLLECTS = ("traces/gnn_gc_split",)  # the ages of old blocks are unknown, so such a part is not repeated


def run(*words):
    return harness.run(*words).works(0, 1).out


def said_of(verb, file, *options):
    return harness.run(verb, file, "--json", *options).works(0, 1).json()


@functools.cache
def data_of(name):
    """A recording as Python data: one of the tests, or of the optional data."""
    if "/" in name:
        path = harness.more(name + ".pickle.xz")
        if harness.SANITIZER:
            raise Skip("with a sanitizer, the recordings of the tests are enough")
        return reference.load(path)
    return command.read(os.path.join(DATA, name + ".tide"))


def device_of(data):
    return max(range(len(data["device_traces"])), key=lambda i: len(data["device_traces"][i]))


def write_cut(name, first, file):
    """Writes a recording without its first entries."""
    data = dict(data_of(name))
    device = device_of(data)
    traces = list(data["device_traces"])
    traces[device] = traces[device][first:]
    data["device_traces"] = traces
    with open(file, "wb") as out:
        pickle.dump(data, out, 4)
    return file


# ---------------------------------------------------------------------------------------------------
# The truth


def rounded(size):
    return max(512, (size + 511) // 512 * 512)


def history(entries):
    """Before the first entry and after each: the bytes that the program holds, with those that are refused just
    then, and the bytes that are reserved."""
    live, held, reserved, states = {}, 0, 0, [(0, 0)]
    for entry in entries:
        action, size, address = entry["action"], entry.get("size", 0), entry.get("addr")
        refused = 0
        if action == "alloc":
            live[address] = rounded(size)
            held += rounded(size)
        elif action == "free_requested":
            held -= live.pop(address)
        elif action == "oom":
            refused = rounded(size)
        elif action in ("segment_alloc", "segment_map"):
            reserved += size
        elif action in ("segment_free", "segment_unmap"):
            reserved -= size
        states.append((held + refused, reserved))
    return states


def key_of(row):
    return row["policy"], row["settings"]


def truth_of(name, folder):
    """What the whole recording says: states, and the rows of whatif without a limit."""
    whole = write_cut(name, 0, f"{folder}/whole.pickle")
    entries = data_of(name)["device_traces"][device_of(data_of(name))]
    rows = said_of("whatif", whole, "--quick", "--limit", NO_LIMIT)["rows"]
    return whole, history(entries), {key_of(row): row for row in rows}


def limit_is_right(said, name):
    """The bounds contain the limit of the run. An uncertain upper one may be wrong, and says so."""
    low, high, limit = said["limit_at_least"], said["limit_less_than"], LIMITS[name]
    if low is None:
        return
    check(limit is None or low <= limit * MIB, f"the limit is below {low}")
    if said["is_limit_certain"]:
        check(limit is not None and limit * MIB < high, f"the limit is not below {high}")


# ---------------------------------------------------------------------------------------------------
# Cut recordings


def cut_is_right(name, first, folder, truth):
    whole, states, rows = truth
    file = write_cut(name, first, f"{folder}/cut.pickle")
    said = said_of("whatif", file)
    equal(said["is_from_start"], False, "is_from_start")
    held = max(state[0] for state in states[first:])
    reserved = max(state[1] for state in states[first:])
    equal(said["recorded_reserved"], reserved, "recorded_reserved")
    equal((said["environment"], said["advised"]), (None, None), "the advice")
    limit_is_right(said, name)
    repeats = name not in COLLECTS
    if repeats:
        equal(said["is_repeated"], True, "is_repeated")
    for row in said["rows"]:
        check(row["fits"] is not True, f"{key_of(row)} fits")
        check(row["needs_at_least"] <= held, f"{key_of(row)}: {row['needs_at_least']} are not needed")
        check(row["needs_at_least"] >= 0.9 * held, f"{key_of(row)}: {row['needs_at_least']} is a poor bound")
        if key_of(row) in rows and rows[key_of(row)]["fits"]:
            check(row["needs_at_least"] <= rows[key_of(row)]["peak_reserved"], f"{row}: the whole run needs less")
        if row["peak_reserved"] is not None:
            check(row["is_recorded"], f"{key_of(row)} was not recorded")
            equal(row["peak_reserved"], reserved, "the peak of the recorded setting")
    equal(any(row["peak_reserved"] is not None for row in said["rows"]), said["is_repeated"])
    return file, said


def words_are_right(file, said):
    """report and whatif say the same, and nothing that is not known."""
    told = said_of("report", file)
    equal((told["environment"], told["advised"]), (None, None), "the advice of report")
    for key in ("limit", "limit_at_least", "limit_less_than", "is_limit_certain", "is_from_start"):
        equal(told[key], said[key], key)
    equal(told["peak_reserved"], said["recorded_reserved"])
    for verb in ("whatif", "report"):
        text = " ".join(run(verb, file).split())
        for words in ("(as recorded", "No PyTorch setting", "No setting of PyTorch", "lowers the peak", "In a replay"):
            check(words not in text, f"{verb} says: {words}")
        check("begins in the middle of the run" in text, f"{verb} does not say that the beginning is missing")


def fits_are_right(name, file, whole, held, reserved):
    """No setting is said to fit that fails on the whole recording, or to fail that fits."""
    for limit in {max(held // 2, MIB), held + (reserved - held) // 2 + MIB}:
        said = said_of("whatif", file, "--limit", f"{limit}B")
        rows = {key_of(row): row for row in said_of("whatif", whole, "--quick", "--limit", f"{limit}B")["rows"]}
        for row in said["rows"]:
            check(row["fits"] is not True, f"{key_of(row)} fits {limit}")
            if row["fits"] is False:
                equal(rows[key_of(row)]["fits"], False, f"{key_of(row)} in {limit}: fits")
        if limit < held // 2 + MIB:
            check(all(row["fits"] is False for row in said["rows"]), f"{limit} are said to be enough, perhaps")


def cuts_are_right(name, folder):
    truth = truth_of(name, folder)
    whole, states, _ = truth
    for i, place in enumerate(PLACES):
        first = int(place * (len(states) - 1)) + i
        file, said = cut_is_right(name, first, folder, truth)
        if i % 2 == 0:
            words_are_right(file, said)
        if i == 2:
            held, reserved = (max(state[k] for state in states[first:]) for k in (0, 1))
            fits_are_right(name, file, whole, held, reserved)


def test_cuts_of_gnn_retry(folder: str) -> None:
    cuts_are_right("gnn_retry", folder)


def test_cuts_of_resnet_stacks(folder: str) -> None:
    cuts_are_right("resnet_stacks", folder)


def test_cuts_of_after_oom(folder: str) -> None:
    cuts_are_right("after_oom", folder)


def test_cuts_of_expand_limit(folder: str) -> None:
    cuts_are_right("expand_limit", folder)


def test_cuts_of_graphs(folder: str) -> None:
    cuts_are_right("graphs", folder)


def test_cuts_of_varlen_oom(folder: str) -> None:
    cuts_are_right("traces/varlen_oom", folder)


def test_cuts_of_gnn_empty(folder: str) -> None:
    cuts_are_right("traces/gnn_empty", folder)


def test_cuts_of_gnn_gc_split(folder: str) -> None:
    cuts_are_right("traces/gnn_gc_split", folder)


def test_cuts_of_multistream_prefetch(folder: str) -> None:
    cuts_are_right("traces/multistream_prefetch", folder)


def test_the_second_half_of_resnet_stacks(folder: str) -> None:
    """The whole run shows what expandable segments save. The half shows what was reserved, and no more."""
    whole = said_of("whatif", write_cut("resnet_stacks", 0, f"{folder}/whole.pickle"), "--quick")
    equal(whole["advised"], "torch:expandable_segments:True")
    file = write_cut("resnet_stacks", 1390, f"{folder}/half.pickle")
    said = said_of("replay", file)
    equal((said["peak_reserved"], said["mismatch"]), (3527409664, None))
    equal(said_of("replay", file, "--check")["mismatch"], None)
    check("3.29 GiB" in run("whatif", file) and "1.86 GiB" not in run("whatif", file), "whatif of the half")


def test_an_out_of_memory_of_20000_entries(folder: str) -> None:
    entries = data_of("traces/varlen_oom")["device_traces"][0]
    file = write_cut("traces/varlen_oom", len(entries) - 20000, f"{folder}/x.pickle")
    said = said_of("whatif", file)
    equal({row["fits"] for row in said["rows"]}, {None})
    words_are_right(file, said)
    check("Whether a setting fits 16.49 GiB is not known" in " ".join(run("whatif", file).split()), "whatif")
    advice = said_of("report", file)["advice"]
    check("Whether another setting would have served it is not known" in advice, advice)


# ---------------------------------------------------------------------------------------------------
# Limits of whole recordings


def test_limits_lie_within_their_bounds(folder: str) -> None:
    for name, limit in LIMITS.items():
        try:
            file = write_cut(name, 0, f"{folder}/x.pickle")
        except Skip:
            continue
        said = said_of("replay", file)
        equal((said["mismatch"], said["is_from_start"]), (None, True), name)
        equal(said["limit_at_least"] is not None, limit is not None, f"{name}: whether a limit shows")
        equal(said["is_limit_inferred"], limit is not None, f"{name}: is_limit_inferred")
        limit_is_right(said, name)
        if limit is not None:
            check(said["limit_at_least"] <= limit * MIB < said["limit_less_than"], f"{name}: {said}")
        for verb in ("whatif", "report"):
            told = said_of(verb, file, *(["--quick"] if verb == "whatif" else []))
            for key in ("limit", "limit_at_least", "limit_less_than", "is_limit_certain"):
                equal(told[key], said[key], f"{name}: {key} of {verb}")


def test_info_shows_the_limit_of_the_run(folder: str) -> None:
    for name, limit in {**LIMITS, "gnn_gc_split": 20480}.items():
        try:
            file = write_cut(name, 0, f"{folder}/x.pickle")
        except Skip:
            continue
        said, text = said_of("info", file)["devices"][0], " ".join(run("info", file).split())
        low, high = said["limit_at_least"], said["limit_less_than"]
        equal("limit (inferred)" in text, limit is not None, f"{name}: whether the text has a limit")
        equal("The recorded run had a limit of at least" in text, limit is not None, f"{name}: whether it has bounds")
        if limit is None:
            equal((said["limit"], low, high, said["is_limit_certain"]), (None, None, None, False), name)
            continue
        check(low <= limit * MIB < high and low <= said["limit"] < high, f"{name}: {said}")
        told = said_of("report", file)
        for key in ("limit", "limit_at_least", "limit_less_than", "is_limit_certain"):
            equal(said[key], told[key], f"{name}: {key} of info and report")


def test_retries_are_not_calls_to_empty_cache(folder: str) -> None:
    """The run made two retries under 14 GiB. Without a limit the same program reserved 25.24 GiB."""
    file = write_cut("gnn_retry", 0, f"{folder}/x.pickle")
    said = said_of("replay", file)
    equal((said["retries"], said["inferred_empty_cache"], said["peak_reserved"]), (2, 0, 14115930112))
    for options in ([], ["--policy", "torch"]):
        said = said_of("replay", file, "--limit", "139GiB", *options)
        equal((said["retries"], said["inferred_empty_cache"], said["peak_reserved"]), (0, 0, 27097300992))
    equal(said_of("whatif", file, "--quick")["inferred_empty_cache"], 0)
    check("empty_cache found" not in run("whatif", file, "--quick"), "whatif found calls to empty_cache")


def test_report_promises_what_the_true_limit_gives(folder: str) -> None:
    file = write_cut("gnn_retry", 0, f"{folder}/x.pickle")
    told = said_of("report", file)
    rows = said_of("whatif", file, "--quick", "--limit", "14GiB")["rows"]
    settings = told["environment"].partition("=")[2]
    equal(settings, "expandable_segments:True")
    needs = next(row["peak_reserved"] for row in rows if key_of(row) == ("torch", settings))
    equal(told["saved_bytes"], 14115930112 - needs)
    check("8.97 GiB" in told["advice"], told["advice"])


def test_the_recorded_row_is_the_recording_or_does_not_say_so(folder: str) -> None:
    file = write_cut("gnn_retry", 0, f"{folder}/x.pickle")
    for options, words in (([], "(as recorded)"), (["--limit", "14GiB"], "(as recorded)"),
                           (["--limit", "12GiB"], "(recorded setting)"), (["--limit", NO_LIMIT], "(recorded setting)")):
        said = said_of("whatif", file, "--quick", *options)
        row = next(row for row in said["rows"] if row["is_recorded"])
        equal(row["peak_reserved"] == 14115930112, words == "(as recorded)", f"{options}: whether it is repeated")
        shown = run("whatif", file, "--quick", *options)
        check(words in shown, f"{options}: {words} is not said")
        equal("(as recorded)" in shown, words == "(as recorded)")


def test_a_limit_of_the_user_is_used(folder: str) -> None:
    file = write_cut("gnn_retry", 0, f"{folder}/x.pickle")
    said = said_of("replay", file, "--limit", "10GiB")
    equal((said["limit"], said["is_limit_inferred"]), (10 * GIB, False))
    check(said["peak_reserved"] <= 10 * GIB, f"{said['peak_reserved']} are reserved")


if __name__ == "__main__":
    harness.main()
