#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Tests `tidemark replay` and `tidemark whatif` with --tag, --budget and --uses.

Programs are written here, so what each tag holds at any entry is known from plain sums over the entries. Blocks are whole
handles, so reserved memory can follow live memory to the byte.
"""
import fnmatch
import os
import pathlib
import pickle
import random
import sys

sys.path.extend(str(pathlib.Path(__file__).resolve().parents[1] / part) for part in ("", "oracle"))
import command
import harness
import recording
from harness import DATA, check, equal, processor_s
from recording import BASE, MIB, block_of
from snapshot import Home, segment_of

COPY_MS = 19531e-6  # what the dry machine takes for a MiB, as machine.h says


def ask(verb, data, *more):
    """About a snapshot (a dict, or the path of a file)."""
    is_file = isinstance(data, str)
    return harness.run(verb, data if is_file else "-", *more, stdin=b"" if is_file else pickle.dumps(data, 4))


def run(*words, status=0):
    return ask(*words).works(status).out


def answer(*words, status=0):
    return ask(*words, "--json").works(status).json()


def tags_of(said):
    return {row["tag"]: row for row in said["budgets"]["tags"]}


# -----------------------------------------------------------------------------------------------------------------------
# Programs


def stack_of(*texts):
    return tuple((place.split(":")[0], int(place.split(":")[1]), name) for place, name in map(str.split, texts))


class Program(recording.Recording):
    """Each block has addresses of its own. Sizes are in MiB."""

    def __init__(self):
        super().__init__(2 * MIB)

    def take(self, mib, *stack):
        return self.alloc(mib * MIB, stack_of(*stack))


def fits(pattern, entry):
    """Does a pattern describe a frame? By the rules of Python's own matching, which has brackets besides."""
    check("[" not in pattern, "brackets are not ours")
    for line in entry.get("frames", ()):
        folders = line["filename"].split("/")
        for i in range(len(folders)):
            place = f"{'/'.join(folders[i:])}:{line['line']}"
            if any(fnmatch.fnmatchcase(text, pattern) for text in (place, f"{place} {line['name']}")):
                return True
    return False


def tag_of(rules, entry):
    return next((tag for tag, pattern in rules if fits(pattern, entry)), None)


def follow(entries, rules):
    """After each entry: the live bytes of each tag, with those below it."""
    live, sums, course = {}, {}, []
    for entry in entries:
        if entry["action"] == "alloc":
            tag = tag_of(rules, entry)
            live[entry["addr"]] = (tag, -(-entry["size"] // 512) * 512)
            sign = 1
        elif entry["action"] == "free_completed":
            sign = -1
        if entry["action"] in ("alloc", "free_completed"):
            tag, size = live[entry["addr"]]
            parts = tag.split("/") if tag else []
            for end in range(1, len(parts) + 1):
                name = "/".join(parts[:end])
                sums[name] = sums.get(name, 0) + sign * size
        course.append(dict(sums))
    return course


def options(rules, budgets=()):
    return [word for tag, pattern in rules for word in ("--tag", f"{tag}={pattern}")] + \
           [word for budget in budgets for word in ("--budget", budget)]


LINES = ["src/model.py:10 forward", "src/model.py:20 backward", "src/nn/layer.py:7 forward", "data/load.py:3 __next__",
         "optim/adam.py:99 step", "train.py:1 main"]


def random_program(rng, size_of, count=400):
    program, held = Program(), []
    for _ in range(count):
        if held and rng.random() < 0.48:
            program.free(held.pop(rng.randrange(len(held))))
        else:
            held.append(program.take(size_of(rng), *rng.sample(LINES[:5], rng.randrange(3)), LINES[5]))
    return program


# -----------------------------------------------------------------------------------------------------------------------
# Tags


RULES = [
    [("a", "model.py:*"), ("b", "*")],
    [("a/b", "* forward"), ("a/c", "nn/layer.py:7"), ("a", "*adam*"), ("d", "load.p?:3")],
    [("x/y/z", "src/model.py:10 forward"), ("x", "model.py:20"), ("x/y", "layer.py:7 *")],
    [("none", "el.py:10"), ("none", "model.py"), ("all", "train.py:1 main"), ("late", "*")],
]


def test_peaks_of_tags_are_sums_over_the_entries() -> None:
    rng = random.Random(5)
    for rules in RULES:
        program = random_program(rng, lambda rng: rng.randrange(1, 9))
        course = follow(program.entries, rules)
        said = answer("replay", program.snapshot(), *options(rules))
        rows = tags_of(said)
        for tag in {tag for tag, _ in rules}:
            peak = max(sums.get(tag, 0) for sums in course)
            equal(rows[tag]["peak_allocated"], peak, f"the peak of {tag} by {rules}")
            check(rows[tag]["peak_reserved"] >= peak, f"{rows[tag]}")
        counts = [sum(entry["action"] == "alloc" and next((i for i, rule in enumerate(rules) if fits(rule[1], entry)), None)
                      == number for entry in program.entries) for number in range(len(rules))]
        equal([row["requests"] for row in said["budgets"]["patterns"]], counts, "requests by pattern")
        equal(said["budgets"]["fits"], True)


def test_recorded_tags_hold_where_no_pattern_fits() -> None:
    turns = os.path.join(DATA, "tags", "turns.tide")
    whole = command.read(turns)
    pools = {segment["segment_pool_id"]: segment["tag"] for segment in whole["segments"] if "tag" in segment}
    live, peak, at = {}, {}, {}
    for entry in whole["device_traces"][0]:
        tag = pools.get(entry.get("pool_id") or entry.get("segment_pool_id"))
        if entry["action"] == "alloc":
            at[entry["addr"]] = (tag, -(-entry["size"] // 512) * 512)
            live[tag] = live.get(tag, 0) + at[entry["addr"]][1]
            peak[tag] = max(peak.get(tag, 0), live[tag])
        elif entry["action"] == "free_completed":
            tag, size = at.pop(entry["addr"])
            live[tag] -= size
    check(len(peak) > 3, f"entries name no pools: {peak}")
    said = tags_of(answer("replay", turns, "--tag", "weights=model.py:*"))
    equal({tag: said[tag]["peak_allocated"] for tag in pools.values()}, {tag: peak[tag] for tag in pools.values()})
    equal(list(said), ["kv cache", "weights", "weights/actor", "weights/critic"], "the order of tags")


def test_what_has_no_effect_is_said() -> None:
    program = random_program(random.Random(1), lambda rng: 2, 20)
    shown = run("replay", program.snapshot(), *options([("a", "nobody.py:*")], ["b:limit=1G"]))
    check("No request gets the tag \"a\" by the pattern 'nobody.py:*'." in shown, shown)
    check("No request has the tag \"b\"." in shown and "The run fits these budgets." in shown, shown)


# -----------------------------------------------------------------------------------------------------------------------
# Limits


def test_a_limit_refuses_the_first_request_that_exceeds_it() -> None:
    """All blocks have one size, so each can be where another was, and live memory alone decides."""
    rules = [("a/b", "* forward"), ("a", "*adam*"), ("c", "*")]
    for seed in range(8):
        program = random_program(random.Random(seed), lambda rng: 4)
        course = follow(program.entries, rules)
        peak = max(sums.get("a", 0) for sums in course)
        for limit in (peak, peak - 4 * MIB, peak // 2 // (4 * MIB) * 4 * MIB):
            first = next((i for i, sums in enumerate(course) if sums.get("a", 0) > limit), None)
            said = answer("replay", program.snapshot(), *options(rules, [f"a:limit={limit}B"]), status=int(first is not None))
            equal(said["first_oom"], first, f"the first refusal under {limit} of {peak}")
            equal(said["budgets"]["fits"], first is None)
            row = tags_of(said)["a"]
            check(row["peak_reserved"] <= limit and row["refused"] == said["ooms"], f"{row}")
            if first is not None:
                equal(said["budgets"]["limited_tag"], "a")
                equal(said["budgets"]["refused_tag"], tag_of(rules, program.entries[first]))


def test_the_total_is_not_a_tag() -> None:
    program = Program()
    program.take(8, "model.py:1 f")
    program.take(8, "other.py:1 g")
    said = answer("replay", program.snapshot(), *options([("a", "model.py:*")], ["a:guarantee=12M"]), "-l", "16M", status=1)
    equal((said["first_oom"], said["budgets"]["limited_tag"], said["budgets"]["refused_tag"]), (1, None, None))
    equal(said["budgets"]["guaranteed_bytes"], 4 * MIB)
    shown = run("replay", program.snapshot(), *options([("a", "model.py:*")], ["a:guarantee=12M"]), "-l", "16M", status=1)
    for words in ("does not fit: at entry 1, a request of 8.00 MiB without a tag exceeds the limit of the device",
                  "4.00 MiB stay free"):
        check(words in " ".join(shown.split()), f"{words} is not in {shown}")


# -----------------------------------------------------------------------------------------------------------------------
# Giving way


def layers(count, mib, rounds):
    """Layers that are made one after another; then each in turn gets a small block and gives it back."""
    program = Program()
    for i in range(count):
        program.take(mib, f"layer{i}.py:1 make", "train.py:1 main")
    for _ in range(rounds):
        for i in range(count):
            program.free(program.take(2, f"layer{i}.py:2 work", "train.py:1 main"))
    return program, [(f"model/{i}", f"layer{i}.py:*") for i in range(count)]


def test_layers_that_yield_run_in_less_than_they_hold() -> None:
    """What is away at the end of the beginning is at least what is above the limit; each round moves that much again."""
    for count, mib, limit, rounds in ((6, 8, 20, 3), (5, 16, 18, 2), (4, 4, 14, 4)):
        program, rules = layers(count, mib, rounds)
        peak = max(sums["model"] for sums in follow(program.entries, rules))
        run("replay", program.snapshot(), *options(rules, [f"model:limit={limit}M"]), status=1)
        for word, is_constant in (("yields", False), ("yields,constant", True)):
            more = options(rules, [f"model:limit={limit}M,{word}"])
            said = answer("replay", program.snapshot(), *more, "--uses", "requests")
            above = peak - limit * MIB
            row = tags_of(said)["model"]
            check(row["peak_reserved"] <= limit * MIB and row["peak_allocated"] == peak, f"{row}")
            check(row["sent_bytes"] >= above and row["fetched_bytes"] >= rounds * above, f"{row}, {above} above")
            check(row["sent_bytes"] <= (count + (0 if is_constant else count * rounds)) * (mib + 2) * MIB or not is_constant,
                  f"constant contents go once: {row}")
            equal(row["sent_bytes"] + row["fetched_bytes"],
                  sum(other["sent_bytes"] + other["fetched_bytes"] for tag, other in tags_of(said).items() if "/" in tag))
            moved = (row["sent_bytes"] + row["fetched_bytes"]) / MIB * COPY_MS
            check(abs(said["budgets"]["bus_ms"] - moved) < 1e-3, f"{said['budgets']['bus_ms']} ms of {moved}")
            equal(said["budgets"]["uses"], "requests")


def training(steps):
    """Weights that nobody requests again, and steps whose activations need the memory of the weights."""
    program = Program()
    program.take(16, "model.py:5 __init__")
    for _ in range(steps):
        blocks = [program.take(4, f"model.py:{10 + i} forward", "train.py:8 step") for i in range(4)]
        for block in reversed(blocks):
            program.free(block)
    return program, [("weights", "* __init__"), ("activations", "* forward")]


def test_each_step_uses_the_tags_that_yield() -> None:
    """24 MiB hold the weights, or the activations and half of the weights, which go away as a whole."""
    program, rules = training(12)
    more = options(rules, ["weights:yields,constant"]) + ["-l", "24M"]
    steps = [row for row in answer("report", program.snapshot(), "--steps")["steps"]["rows"] if row["is_whole"]]
    check(len(steps) > 8, f"there are {len(steps)} steps")
    said = answer("replay", program.snapshot(), *more)
    equal((said["budgets"]["fits"], said["budgets"]["uses"]), (True, "steps"))
    row = tags_of(said)["weights"]
    away = [i for i, sums in enumerate(follow(program.entries, rules)) if sums.get("activations", 0) > 8 * MIB]
    returns, is_away = 0, False
    for i in range(len(program.entries)):
        returns += is_away and any(step["first_entry"] == i for step in steps)
        is_away = i in away or (is_away and not any(step["first_entry"] == i for step in steps))
    equal(row["fetched_count"], returns, "returns of the weights")
    equal((row["sent_bytes"], row["fetched_bytes"]), (16 * MIB, returns * 16 * MIB), "what moves")
    alone = tags_of(answer("replay", program.snapshot(), *more, "--uses", "requests"))["weights"]
    equal((alone["parked_count"], alone["fetched_count"]), (1, 0), "without uses in steps")
    often = tags_of(answer("replay", program.snapshot(), *more, "--step", str(len(program.entries) // 4)))["weights"]
    check(often["fetched_count"] in (3, 4), f"four steps: {often}")
    run("replay", program.snapshot(), *options(rules), "-l", "24M", status=1)
    shown = run("replay", program.snapshot(), *more)
    check("and at the beginning of each step." in " ".join(shown.split()) and "The utilisation is unknown" not in shown, shown)


def test_memory_that_came_back_in_the_recording_was_used() -> None:
    """The critic goes away when more than the limit is live, and comes back where it came back in the recording."""
    turns = os.path.join(DATA, "tags", "turns.tide")
    whole = command.read(turns)
    pool = next(s["segment_pool_id"] for s in whole["segments"] if s.get("tag") == "weights/critic")
    live, is_parked, is_away, returns = 0, False, False, 0
    for entry in whole["device_traces"][0]:
        live += {"alloc": 1, "free_completed": -1}.get(entry["action"], 0) * (-(-entry["size"] // 512) * 512)
        is_away |= live > 150 * MIB
        if entry["action"] == "segment_map" and entry["pool_id"] == pool and is_parked:
            returns += is_away
            is_away = False
        is_parked = (is_parked or entry["action"] == "segment_unmap") if entry.get("pool_id") == pool else is_parked
    more = ("--budget", "weights/critic:yields,constant", "-l", "150M", "--uses", "requests")
    row = tags_of(answer("replay", turns, *more))["weights/critic"]
    check(returns > 3, f"{returns} returns")
    equal((row["fetched_count"], row["fetched_bytes"]), (returns, returns * row["sent_bytes"]), "returns")
    check("where it came back in the recording." in " ".join(run("replay", turns, *more).split()), "the words")


def test_memory_that_cannot_come_back_is_named() -> None:
    program, rules = training(12)
    keep = program.take(20, "cache.py:1 keep")
    later, _ = training(12)
    for entry in later.entries[1:]:
        program.entries.append({**entry, "addr": entry["addr"] + (1 << 36)})
    rules = rules + [("cache", "cache.py:*")]
    more = options(rules, ["weights:yields"]) + ["-l", "34M"]
    said = answer("replay", program.snapshot(), *more, status=1)
    equal((said["budgets"]["refused_tag"], said["budgets"]["limited_tag"], said["budgets"]["is_return"]), ("weights", None, True))
    check(program.entries[said["first_oom"]]["addr"] > keep and said["oom_bytes"] == 16 * MIB, f"{said}")
    shown = run("replay", program.snapshot(), *more, status=1)
    check("parked memory of 16.00 MiB with the tag \"weights\" comes back, and would exceed" in " ".join(shown.split()), shown)


# -----------------------------------------------------------------------------------------------------------------------
# What if


def test_whatif_has_a_row_under_the_budgets() -> None:
    program, rules = layers(6, 8, 3)
    more = options(rules, ["model:yields"])
    said = answer("whatif", program.snapshot(), *more)
    rows = [row for row in said["rows"] if row["has_budgets"]]
    plain = next(row for row in said["rows"] if row["policy"] == "tide" and not row["has_budgets"])
    equal((len(rows), rows[0]["policy"], rows[0]["fits"]), (1, "tide", True))
    smallest = rows[0]["smallest_memory"]
    check(smallest < 50 * MIB <= plain["smallest_memory"], f"{smallest} of {plain}")
    at_least = answer("replay", program.snapshot(), *more, "-l", f"{smallest}B")
    check(abs(at_least["budgets"]["bus_ms"] - rows[0]["smallest_bus_ms"]) < 1e-3, "what the smallest memory costs")
    run("replay", program.snapshot(), *more, "-l", f"{smallest - 2 * MIB}B", status=1)
    equal((rows[0]["bus_ms"], plain["bus_ms"]), (0, None), "time on the bus without a limit")
    equal(tags_of(said), tags_of(answer("replay", program.snapshot(), *more)), "the figures of tags")


def test_whatif_says_whether_the_budgets_fit() -> None:
    program, rules = layers(6, 8, 3)
    under = answer("whatif", program.snapshot(), *options(rules, ["model:yields"]), "-l", "20M")
    equal((under["budgets"]["fits"], [row["has_budgets"] for row in under["rows"] if row["fits"]]), (True, [True]))
    check(under["budgets"]["sent_bytes"] >= 30 * MIB, f"{under['budgets']}")
    said = answer("whatif", program.snapshot(), *options(rules, ["model:limit=20M"]), status=1)
    equal((said["budgets"]["fits"], said["budgets"]["limited_tag"]), (False, "model"))
    row = next(row for row in said["rows"] if row["has_budgets"])
    equal((row["fits"], row["smallest_memory"]), (False, None))
    shown = run("whatif", program.snapshot(), *options(rules, ["model:yields"]), "-l", "20M")
    for words in ("tide *, with the budgets", "bus ms", "The run fits these budgets.", "Without the budgets: No setting"):
        check(words in shown, f"{words} is not in {shown}")
    equal(answer("whatif", program.snapshot())["budgets"], None)
    check("has_budgets" not in answer("whatif", program.snapshot())["rows"][0], "a column without budgets")


def test_a_recording_from_the_middle_has_the_tags_of_its_old_blocks() -> None:
    program = Program()
    program.end = BASE + 8 * MIB
    program.free(program.take(4, "model.py:9 forward"))
    whole = program.snapshot()
    old = block_of(BASE, 8 * MIB, "active_allocated", stack=stack_of("model.py:5 __init__"))
    whole["segments"] = [segment_of(Home(0, 0, (0, 0), False, False), [old, block_of(BASE + 8 * MIB, 12 * MIB, "inactive")])]
    rules = [("weights", "* __init__"), ("rest", "*")]
    rows = tags_of(answer("replay", whole, *options(rules)))
    equal([rows[tag]["peak_allocated"] for tag in ("weights", "rest")], [8 * MIB, 4 * MIB])
    ask("whatif", whole, *options(rules)).fails("begins in the middle")


# -----------------------------------------------------------------------------------------------------------------------
# Command lines


WRONG = [
    ("--tag x", "NAME=PATTERN"), ("--tag x=", "NAME=PATTERN"), ("--tag =x", "''"), ("--tag a//b=x", "'a//b'"),
    ("--tag /a=x", "'/a'"), ("--tag a/=x", "'a/'"), ("--tag a\x01b=x", "is not a tag"), (f"--tag {'a' * 256}=x", "255 bytes"),
    ("--budget x", "TAG:RULES"), ("--budget x:", "TAG:RULES"), ("--budget :limit=1G", "''"),
    ("--budget x:limit", "limit needs a value"), ("--budget x:limit=", "''"), ("--budget x:limit=much", "'much'"),
    ("--budget x:limit=-1G", "'-1G'"), ("--budget x:limit=8", "8GiB"), ("--budget x:soft=99999999999999999999G", "soft"),
    ("--budget x:yields=1", "yields takes no value"), ("--budget x:size=1G", "'size'"), ("--budget x:LIMIT=1G", "'LIMIT'"),
    ("--budget x:limit=1G,", "there is no ''"), ("--budget x:limit=1G,guarantee=2G", "above its limit"),
    ("--budget x:priority=1.5", "'1.5'"), ("--budget x:priority=3000000000", "priority"), ("--budget x:priority=--1", "priority"),
    ("--budget x:yields --budget x:constant", "twice"), ("--uses steps", "--uses needs"),
    ("--budget x:yields --uses never", "'never'"), ("--step 5", "--step needs"),
    ("--budget x:yields --uses requests --step 5", "no --step"),
]


def test_wrong_options_are_refused() -> None:
    for verb in ("replay", "whatif"):
        for words, part in WRONG:
            said = harness.run(verb, "no such file", *words.split(" "))
            said.fails(part)
            check(said.err.startswith(f"tidemark {verb}: --"), f"{words}: {said.err}")
    program = random_program(random.Random(1), lambda rng: 2, 3).snapshot()
    ask("replay", program, "--budget", "x:yields", "--step", "nobody").fails("shows no steps")
    ask("replay", program, "--budget", "x:yields", "--uses", "steps").fails("shows no steps")
    for more in (["--check"], ["--park", "1", "-p", "tide"]):
        ask("replay", program, "--budget", "x:yields", *more).fails(more[0])


def test_what_is_right_is_taken() -> None:
    program = random_program(random.Random(1), lambda rng: 2, 30).snapshot()
    given = ["a:b:limit=1.5GiB,soft=0,guarantee=512MiB,priority=-2147483647,yields,constant", "ü/2:limit=0,priority=7"]
    rows = tags_of(answer("replay", program, *options([("a:b", "=*")], given)))
    row = rows["a:b"]
    equal([row[key] for key in ("limit", "soft_limit", "guarantee", "priority", "yields", "constant")],
          [3 << 29, 0, 1 << 29, -2147483647, True, True])
    equal((rows["ü/2"]["limit"], rows["ü/2"]["priority"], rows["ü/2"]["soft_limit"]), (0, 7, None))
    said = answer("replay", program, "--tag", "a=*", "--budget", "a:limit=0", "-p", "torch", status=1)
    equal((said["policy"], said["allocations"]), ("torch", 0), "the policy torch")


def test_answers_are_the_same_each_time() -> None:
    program, rules = layers(6, 8, 3)
    for verb in ("replay", "whatif"):
        first, again = (answer(verb, program.snapshot(), *options(rules, ["model:limit=20M,yields"])) for _ in range(2))
        for said in first, again:
            said.pop("ns_per_entry", None)
        equal(first, again, verb)


def test_patterns_of_many_stars_take_no_time() -> None:
    program = Program()
    for i in range(200):
        program.free(program.take(2, f"{'a' * 400}{i}.py:1 {'a' * 80}"))
    before = processor_s()
    rows = tags_of(answer("replay", program.snapshot(), "--tag", f"x={'*a' * 60}*b"))
    equal(rows["x"]["peak_allocated"], 0)
    check(processor_s() - before < 60, f"it took {processor_s() - before} s of processor time")


if __name__ == "__main__":
    harness.main()
