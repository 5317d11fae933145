#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Tests tidemark leaks and the steps of tidemark report on recordings whose truth is known.

A small generator writes snapshots of training loops with Python's own pickle: variable lengths, jitter, several
streams, frees that wait, evaluation, with or without stacks and annotations. Leaks, and growth that is none, are
planted in them, and in the recordings of TIDEMARK_DATA if it is there.
"""
import lzma
import os
import pathlib
import pickle
import random
import sys

sys.path.extend(str(pathlib.Path(__file__).resolve().parents[1] / part) for part in ("", "oracle"))
import harness
from harness import SANITIZER, SCALE, Skip, check, equal, run, some
from recording import MIB, Recording
from snapshot import round_up

SEEDS = max(1, round(3 * SCALE / (4 if SANITIZER else 1)))


def leaks_of(snapshot, *options):
    """Exit status and JSON of tidemark leaks; or 2 and the reason why it cannot judge."""
    said = run("leaks", "-", "--json", *options, stdin=pickle.dumps(snapshot, 4))
    if said.status == 2:
        said.fails("cannot judge")
        return 2, said.err
    return said.status, said.works(0, 1).json()


class Recorder(Recording):
    """An allocator that reuses ranges of the same size, and some of whose releases wait."""

    def __init__(self, rng, has_stacks=True, waits=0):
        super().__init__(reuses=True, has_stacks=has_stacks)
        self.rng, self.waits, self.waiting, self.metadata = rng, waits, [], ""

    def add(self, *words, **more):
        super().add(*words, user_metadata=self.metadata, **more)

    def alloc(self, size, stack="forward:10", stream=0):
        for item in self.waiting:
            item[0] -= 1
        for item in [item for item in self.waiting if item[0] <= 0]:
            self.waiting.remove(item)
            self.complete(item[1])
        return super().alloc(size, stack, stream)

    def free_later(self, address):
        if not self.waits:
            return self.free(address)
        self.request(address)
        self.waiting.append([self.rng.randint(1, self.waits), address])


# ---------------------------------------------------------------------------------------------------
# A training loop, with what a step does beside its work in `plant`


OPTIMIZER = (("/x/site-packages/torch/optim/adamw.py", 500, "_multi_tensor_adamw"),
             ("/x/site-packages/torch/optim/adamw.py", 200, "step"), ("train.py", 907, "main"))


class Noise:
    def __init__(self, rng, marks=None):
        self.stacks = rng.random() < 0.5
        self.marks = marks or rng.choice(["optimizer", "profiler", "range", "metadata", "nothing", "nothing"])
        self.lengths = rng.random() < 0.6
        self.jitter = rng.choice([0, 0, 0.1, 0.3])
        self.waits = rng.choice([0, 0, 20])
        self.streams = rng.choice([1, 1, 2, 3])
        self.evaluation = rng.choice([0, 0, 7])
        self.ends = rng.random() < 0.5
        self.layers = rng.randint(3, 8)

    def hides_steps(self):
        """Nothing marks them; then a short loop may show no pattern."""
        return self.marks == "nothing" and not self.stacks

    def __str__(self):
        return ", ".join(f"{key}={value}" for key, value in vars(self).items())


class Loop:
    def __init__(self, seed, steps, plant=None, marks=None, layers=0):
        self.rng = random.Random(seed)
        self.noise = Noise(self.rng, marks)
        self.noise.layers = layers or self.noise.layers
        self.record = Recorder(self.rng, self.noise.stacks, self.noise.waits)
        self.steps, self.plant = steps, plant
        self.weights = [self.record.alloc(MIB * (i + 1), "model:1") for i in range(self.noise.layers)]
        self.state, self.grads, self.loss, self.keep = [], [], None, []

    def scratch(self, length):
        if self.rng.random() < self.noise.jitter:
            self.record.free(self.record.alloc(self.rng.randint(1, 9 * length), "noise:30"))

    def forward(self, length):
        r, kept = self.record, []
        for layer in range(self.noise.layers):
            temporary = r.alloc(length * 300 * (layer + 1), "forward:11")
            kept.append(r.alloc(length * 700 * (layer + 1), "forward:12"))
            self.scratch(length)
            r.free(temporary)
        return kept

    def backward(self, length, kept):
        r, grads = self.record, []
        for layer in reversed(range(self.noise.layers)):
            temporary = r.alloc(length * 500 * (layer + 1), "backward:21")
            grads.append(r.alloc(MIB * (layer + 1), "backward:22"))
            r.free(kept.pop())
            r.free(temporary)
            self.scratch(length)
        return grads

    def optimize(self):
        r = self.record
        if not self.state:
            self.state = [r.alloc(2 * MIB * (i + 1), OPTIMIZER) for i in range(self.noise.layers)]
        for layer in range(self.noise.layers):
            r.free(r.alloc(MIB * (layer + 1), OPTIMIZER))

    def batch(self, length):
        stream = self.rng.randrange(self.noise.streams)
        return self.record.alloc(length * 4096, "load:3", stream)

    def step(self, number):
        r, n = self.record, self.noise
        length = self.rng.randint(20, 400) if n.lengths else 100
        if n.marks == "profiler":
            r.annotate(f"ProfilerStep#{number}", "START")
        if n.marks == "range":
            r.annotate("train_step", "START")
        if n.marks == "metadata":
            r.metadata = f"step {number}"
        batch = self.batch(length)
        for grad in self.grads:
            r.free(grad)
        kept = self.forward(length)
        loss = r.alloc(4, "loss:14")
        if self.plant:
            self.plant(self, number)
        self.grads = self.backward(length, kept)
        if n.marks == "optimizer":
            r.annotate("Optimizer.step#AdamW.step", "START")
        self.optimize()
        if n.marks == "optimizer":
            r.annotate("Optimizer.step#AdamW.step", "END")
        r.free_later(batch)
        if self.loss:
            r.free(self.loss)
        self.loss = loss
        if n.evaluation and number % n.evaluation == n.evaluation - 1:
            for block in self.forward(length):
                r.free(block)
        if n.marks == "profiler":
            r.annotate(f"ProfilerStep#{number}", "END")
        if n.marks == "range":
            r.annotate("train_step", "END")

    def snapshot(self):
        r = self.record
        for number in range(self.steps):
            self.step(number)
        if self.noise.ends:
            for address in [address for address in r.live if address not in r.pending]:
                r.free(address)
        return r.mapped()


# ---------------------------------------------------------------------------------------------------
# What is planted. Each returns the function that a step calls.


def leak_every(period, size=42 * MIB, first=0):
    def plant(loop, number):
        if number >= first and number % period == first % period:
            loop.record.alloc(size, "leak:77")
    return plant


def leak_of_any_size(loop, number):
    loop.record.alloc(loop.rng.randint(MIB, 9 * MIB), "leak:77")


def leak_in_one_of_a_hundred(loop, number):
    """At a random step of each hundred."""
    if number % 100 == 0:
        loop.when = number + loop.rng.randrange(100)
    if number == loop.when:
        loop.record.alloc(3 * MIB, "leak:77")


def leak_of_a_graph(loop, number):
    """A sum of losses that keeps what led to each."""
    for line in range(3):
        loop.record.alloc(1000 * (line + 1), f"loss:{60 + line}")


def leak_beside_temporaries(loop, number):
    """A call site whose blocks are freed in the same step, but for one."""
    loop.record.free(loop.record.alloc(8 * MIB, "leak:77"))
    loop.record.alloc(8 * MIB, "leak:77")


LEAKS = {
    "every step": (16, leak_every(1)),
    "every step of many": (60, leak_every(1, 700_000)),
    "every third step": (24, leak_every(3)),
    "every third step of many": (90, leak_every(3, 5000)),
    "from the middle on": (60, leak_every(1, first=30)),
    "any size": (40, leak_of_any_size),
    "one in a hundred": (800, leak_in_one_of_a_hundred),
    "a graph": (20, leak_of_a_graph),
    "beside temporaries": (20, leak_beside_temporaries),
}


def cache(bound, choose, size=2 * MIB, one_in=1):
    def plant(loop, number):
        if loop.rng.random() * one_in > 1:
            return
        if len(loop.keep) >= bound:
            loop.record.free(loop.keep.pop(choose(loop, len(loop.keep))))
        loop.keep.append(loop.record.alloc(size, "cache:88"))
    return plant


def oldest(loop, count):
    return 0


def any_one(loop, count):
    return loop.rng.randrange(count)


def filled(bound, one_in=1):
    """Grows and stops."""
    def plant(loop, number):
        if len(loop.keep) < bound and loop.rng.random() * one_in <= 1:
            loop.keep.append(loop.record.alloc(2 * MIB, "cache:88"))
    return plant


def shapes(count):
    """A buffer for each shape, made when it first comes."""
    def plant(loop, number):
        shape = loop.rng.randrange(count)
        if shape not in loop.keep:
            loop.keep.append(shape)
            loop.record.alloc(MIB + 4096 * shape, "cache:88")
    return plant


def cleared(period):
    """A list that is emptied from time to time."""
    def plant(loop, number):
        if number % period == period - 1:
            while loop.keep:
                loop.record.free(loop.keep.pop())
        loop.keep.append(loop.record.alloc(4096, "list:88"))
    return plant


def collected(loop, number):
    """Cycles that the collector frees some steps later, all at once."""
    loop.keep.append(loop.record.alloc(3 * MIB, "cycle:88"))
    if loop.rng.random() < 0.25:
        while loop.keep:
            loop.record.free(loop.keep.pop())


def best_so_far(loop, number):
    """A copy that is replaced at random times, less and less often."""
    if loop.rng.random() < 3 / (number + 3):
        if loop.keep:
            loop.record.free(loop.keep.pop())
        loop.keep.append(loop.record.alloc(30 * MIB, "copy:88"))


def warm_up(loop, number):
    """Workspaces of the first steps."""
    if number < 3:
        loop.record.alloc((number + 1) * 8 * MIB, "workspace:88")


GROWTH = {
    "nothing": (20, None),
    "nothing in many steps": (120, None),
    "warm-up": (20, warm_up),
    "a queue": (40, cache(8, oldest)),
    "a queue that is just full": (40, cache(36, oldest)),
    "random replacement": (120, cache(6, any_one)),
    "rare replacement": (200, cache(6, any_one, one_in=4)),
    "a cache that is full early": (40, filled(12)),
    "a cache that is full late": (60, filled(36)),
    "a cache that fills slowly": (200, filled(20, one_in=4)),
    "shapes": (200, shapes(16)),
    "a list that is emptied": (45, cleared(10)),
    "cycles": (60, collected),
    "a best copy": (60, best_so_far),
}


def cases(table):
    """Every entry with several seeds, and with all kinds of marks among them."""
    for number, (name, (steps, plant)) in enumerate(table.items()):
        for seed in range(SEEDS if steps <= 200 else max(1, SEEDS // 4)):
            layers = 2 if steps > 200 else 0
            loop = Loop(1000 * number + seed, steps, plant, layers=layers)
            yield f"{name}, seed {1000 * number + seed}: {loop.noise}", loop


# ---------------------------------------------------------------------------------------------------
# Tests


def judge(table, want):
    """Most runs without marks are judged as well, and none of them wrongly."""
    hidden = unknown = 0
    for name, loop in cases(table):
        status, said = leaks_of(loop.snapshot())
        hidden += loop.noise.hides_steps()
        if status == 2 and loop.noise.hides_steps():
            unknown += 1
            continue
        equal(status, want, f"the status of {name} ({said})")
        yield name, loop, said
    check(hidden < 4 or unknown < hidden / 2, f"of {hidden} runs without marks, {unknown} have no steps")


def test_planted_leaks_are_found() -> None:
    for name, loop, said in judge(LEAKS, 1):
        check(all(0.8 < leak["certainty"] < 1 for leak in said["leaks"]), f"{name}: {said}")
        for leak in said["leaks"] if loop.noise.stacks else []:
            check(any(f"train.py:{line} {site}" in leak["site"] for site, line in
                      [("leak", 77), ("loss", 60), ("loss", 61), ("loss", 62)]), f"{name}: {leak}")
            check(leak["stack"].startswith("train.py:900 main;train.py:"), f"{name}: {leak}")


def test_growth_that_is_no_leak_is_not_reported() -> None:
    for _ in judge(GROWTH, 0):
        pass


def test_the_slope_is_what_was_planted() -> None:
    for period in (1, 3):
        for marks in ("optimizer", "profiler", "range"):
            loop = Loop(7, 61, leak_every(period, 3000), marks)
            status, said = leaks_of(loop.snapshot())
            equal((status, len(said["leaks"])), (1, 1), f"{marks}: {said}")
            leak, = said["leaks"]
            check(abs(leak["blocks_per_step"] - 1 / period) < 0.02, f"{leak}")
            check(abs(leak["bytes_per_step"] - 3072 / period) < 60, f"{leak}")
            equal((leak["smallest"], leak["largest"]), (3000, 3000))
            equal((leak["first_step"], leak["last_step"]), (1, 58 if period == 3 else 60))
            equal(leak["bytes"], leak["blocks"] * 3072)


def test_small_leaks_can_be_ignored() -> None:
    snapshot = Loop(3, 30, leak_every(1, 512), "range").snapshot()
    for least, status in (("0", 1), ("512", 1), ("513", 0), ("64KiB", 0)):
        equal(leaks_of(snapshot, "--min", least)[0], status, f"the status with --min {least}")


def test_what_cannot_be_judged() -> None:
    equal(leaks_of(Loop(1, 7, leak_every(1), "range").snapshot())[0], 2, "the status of 7 steps")
    equal(leaks_of(Loop(1, 8, None, "range").snapshot())[0], 0, "the status of 8 steps")
    few = leaks_of(Loop(1, 7, leak_every(1), "range").snapshot())[1]
    check('7 steps are too few, at least 8 are needed; steps were found by the annotation "train_step"' in few, few)
    nothing = leaks_of({"device_traces": [[]], "segments": []})[1]
    check("the file has no entries" in nothing, nothing)
    rng = random.Random(5)
    recorder, live = Recorder(rng, has_stacks=False), []
    for _ in range(4000):  # no program at all
        if live and rng.random() < 0.49:
            recorder.free(live.pop(rng.randrange(len(live))))
        else:
            live.append(recorder.alloc(rng.randint(1, MIB)))
    status, said = leaks_of(recorder.mapped())
    equal(status, 2, f"the status of random requests ({said})")
    check("nothing repeats regularly" in said, said)


# ---------------------------------------------------------------------------------------------------
# Steps


def found(snapshot, *options):
    return run("report", "-", "--json", *options, stdin=pickle.dumps(snapshot, 4)).works().json()["steps"]


def test_steps_are_those_of_the_program() -> None:
    """However they are marked. A pattern knows the beginning of a step, but not the end of the last one."""
    for seed in range(4 * SEEDS):
        loop = Loop(seed, 12 + seed % 20)
        steps = found(loop.snapshot())
        by = {"nothing": None, "metadata": "metadata"}.get(loop.noise.marks, "annotation")
        by = by or ("optimizer" if loop.noise.stacks else None)
        name = f"{seed}: {loop.noise}"
        if by is None and steps["found_by"] == "none":
            continue
        if by:
            equal(steps["found_by"], by, f"how the steps of {name} were found")
        missing = loop.steps - steps["count"]
        check(0 <= missing <= (by in (None, "metadata")), f"{steps['count']} of {loop.steps} steps in {name}")


def figures(entries, rows):
    """The same figures by hand."""
    live = reserved = 0
    sizes = {}
    for row in rows:
        before, peak, at, most = live, 0, row["first_entry"], 0
        for number in range(row["first_entry"], row["first_entry"] + row["entries"]):
            entry = entries[number]
            if entry["action"] == "alloc":
                sizes[entry["addr"]] = round_up(entry["size"], 512)
                live += sizes[entry["addr"]]
            elif entry["action"] == "free_completed":
                live -= sizes.pop(entry["addr"])
            elif entry["action"] in ("segment_alloc", "segment_map"):
                reserved += entry["size"]
            elif entry["action"] in ("segment_free", "segment_unmap"):
                reserved -= entry["size"]
            if live > peak:
                peak, at = live, number
            most = max(most, reserved)
        yield {"peak_allocated": peak, "peak_entry": at, "live": live, "growth": live - before, "peak_reserved": most,
               "peak_share": round((at - row["first_entry"]) / row["entries"], 4)}


def figures_agree(snapshot, name, *options):
    rows = found(snapshot, *options)["rows"]
    entries = snapshot["device_traces"][0]
    equal(sum(row["entries"] for row in rows), len(entries) if rows else 0, f"the entries of {name}")
    equal([row["step"] for row in rows if row["is_whole"]], list(range(1, 1 + sum(r["is_whole"] for r in rows))))
    for row, truth in zip(rows, figures(entries, rows)):
        equal({key: row[key] for key in truth}, truth, f"step {row['step']} of {name}")
    return len(rows)


def test_figures_of_steps() -> None:
    for seed in range(SEEDS):
        loop = Loop(seed, 12)
        figures_agree(loop.snapshot(), str(loop.noise))
        check(figures_agree(loop.record.mapped(), str(loop.noise), "--step", "100") > 5, "few steps")


def test_steps_by_name() -> None:
    loop = Loop(11, 12, marks="range")
    loop.noise.stacks = loop.record.has_stacks = True
    snapshot = loop.snapshot()
    for name, by, count in (("train_", "annotation", 12), ("load", "frame", 11), ("train.py:3 load", "frame", 11),
                            ("adamw.py:200 step", "frame", 11), ("no such", "none", 0)):
        steps = found(snapshot, "--step", name)
        equal((steps["found_by"], steps["count"]), (by, count), f"the steps by {name!r}")
    length = len(snapshot["device_traces"][0])
    steps = found(snapshot, "--step", "50")
    equal((steps["found_by"], steps["count"]), ("entries", length // 50))
    equal(found(snapshot, "--step", str(length + 1))["count"], 0)
    for bad in ("", "0", "99999999999"):
        run("leaks", "-", "--step", bad, stdin=pickle.dumps(snapshot, 4)).fails("--step")
    none = run("leaks", "-", "--step", "no such", stdin=pickle.dumps(snapshot, 4))
    none.fails("frame that contains 'no such' occurs in two steps")


def test_text() -> None:
    snapshot = Loop(2, 40, leak_every(1), "range")
    snapshot.noise.stacks = snapshot.record.has_stacks = True
    data = pickle.dumps(snapshot.snapshot(), 4)
    out = run("leaks", "-", stdin=data).works(1).out
    for part in ("1 call site probably leaks", 'by the annotation "train_step"', "42", "train.py:77 leak",
                 "Stack of train.py:77 leak", "torch/nn/functional.py:7 linear", "train.py:900 main"):
        check(part in out, f"{out} has no {part!r}")
    plain = run("report", "-", stdin=data).works().out
    check("Memory probably leaks: each step adds 42" in " ".join(plain.split()), plain)
    check("\nSteps\n" not in plain, plain)
    table = run("report", "-", "--steps", stdin=data).works().out.split("\nSteps\n")[1]
    check("40 steps, found by the annotation" in table and "--json has all" in table, table)
    check(len(table.splitlines()) < 20, table)


def test_every_device_is_looked_at() -> None:
    clean, leaking = Loop(1, 12, None, "optimizer").snapshot(), Loop(2, 12, leak_every(1), "optimizer").snapshot()
    both = {**clean, "segments": [], "device_traces": [clean["device_traces"][0], leaking["device_traces"][0]]}
    both["external_annotations"] = clean["external_annotations"] + [
        {**item, "device": 1} for item in leaking["external_annotations"]]
    status, said = leaks_of(both)
    equal((status, {leak["device"] for leak in said["leaks"]}), (1, {1}))
    equal(leaks_of(both, "--device", "0")[0], 0)
    equal(leaks_of(both, "--device", "1")[0], 1)


# ---------------------------------------------------------------------------------------------------
# Recordings of PyTorch


def paths(most, step=5):
    """The recordings of the data, up to a size."""
    data, found = harness.more("traces"), []
    for place in (data, os.path.join(data, "corners")):
        for name in sorted(os.listdir(place)):
            path = os.path.join(place, name)
            if name.endswith(".pickle.xz") and os.path.getsize(path) <= most * max(SCALE / (4 if SANITIZER else 1), 0.25):
                found.append((name, path))
    return some(found, step)


def recordings(most, step=5):
    for name, path in paths(most, step):
        with lzma.open(path) as file:
            yield name, pickle.load(file)


def test_no_recording_leaks() -> None:
    said = run("leaks", "-", stdin=lzma.compress(pickle.dumps(Loop(1, 9, None, "range").snapshot(), 4)))
    if "built without" in said.err:
        raise Skip(said.err.strip())
    for name, path in paths(600 << 10):  # the longest at a scale of 10
        said = run("leaks", path)
        check(said.status == 0 or (said.status == 2 and "cannot judge" in said.err), f"{name}: {said.status} {said.err}")


def test_no_recording_leaks_without_annotations() -> None:
    for name, snapshot in recordings(165 << 10):
        status, said = leaks_of({**snapshot, "external_annotations": []})
        check(status in (0, 2), f"{name}: {said}")


def test_patterns_are_the_annotated_steps() -> None:
    for name, snapshot in recordings(165 << 10):
        marked = found(snapshot)
        if marked["found_by"] != "annotation":
            continue
        steps = found({**snapshot, "external_annotations": []})
        check(0 <= marked["count"] - steps["count"] <= 2, f"{name}: {steps['count']} of {marked['count']} steps")


def test_figures_of_recordings() -> None:
    for name, snapshot in recordings(60 << 10):
        figures_agree(snapshot, name)


def planted(snapshot, steps, period, size):
    """With one more allocation in each `period`th step, and the steps repeated to so many."""
    ends = [item["time_us"] for item in snapshot["external_annotations"]
            if item["stage"] == "END" and item["name"].startswith("Optimizer.step")]
    entries = snapshot["device_traces"][0]
    parts, last = [], 0
    for end in ends:
        at = next(i for i in range(last, len(entries)) if entries[i]["time_us"] > end)
        parts.append(entries[last:at])
        last = at
    result, annotations, time_us = [], [], 1_000_000
    at, base, live = 0, 1 << 50, {}
    for step in range(steps):
        if step % period == period - 1:
            leak = {"action": "alloc", "addr": base + step * size, "size": size, "stream": 0}
            parts_of_step = [leak] + parts[at]
        else:
            parts_of_step = parts[at]
        for entry in parts_of_step:
            time_us += 1
            if entry["action"] == "alloc":
                if entry["addr"] in live:  # of the time before the steps were repeated
                    for action in ("free_requested", "free_completed"):
                        result.append({**live[entry["addr"]], "action": action, "time_us": time_us})
                live[entry["addr"]] = entry
            elif entry["action"] in ("free_requested", "free_completed"):
                if entry["addr"] not in live:
                    continue
                if entry["action"] == "free_completed":
                    del live[entry["addr"]]
            elif entry["action"] != "alloc":
                continue
            result.append({**entry, "time_us": time_us})
        for stage in ("START", "END"):
            time_us += 1
            annotations.append({"name": "Optimizer.step#X", "stage": stage, "device": 0, "time_us": time_us})
        at = at + 1 if at + 1 < len(parts) else 2
    return {"device_traces": [result], "external_annotations": annotations}


def test_leaks_in_recordings() -> None:
    """In steps of real programs, repeated where they are too few."""
    tried = 0
    for name, snapshot in recordings(40 << 10, 1):
        if not snapshot.get("external_annotations"):
            continue
        tried += 1
        for steps, period, want in ((14, 1, 1), (30, 3, 1), (60, 10**9, 0)):
            for marks in (True, False):
                widened = planted(snapshot, steps, period, 42 * MIB)
                if not marks:
                    widened["external_annotations"] = []
                status, said = leaks_of(widened)
                equal(status, want, f"the status of {name}, {steps} steps, every {period} ({said})")
                for leak in said["leaks"]:
                    check(leak["site"].startswith("(no stack) blocks of") and leak["largest"] == 42 * MIB, f"{name}: {leak}")
    if tried == 0:
        raise Skip("all are too large for this scale")


def test_a_rare_leak_in_a_recording() -> None:
    if SCALE < 1 or SANITIZER:
        raise Skip("takes too long here")
    for name, snapshot in recordings(40 << 10, 1):
        if snapshot.get("external_annotations"):
            equal(leaks_of(planted(snapshot, 700, 100, 3 * MIB))[0], 1, f"the status of {name}")
            return


if __name__ == "__main__":
    harness.main()
