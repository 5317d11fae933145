#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Tests tidemark survey, and tidemark-mpi if it was built.

TIDEMARK_MPI_BIN is the program for MPI, and TIDEMARK_MPIRUN what starts it. Without them, the tests of MPI are skipped. The
recordings are made here, so that their figures are known. Where TIDEMARK_DATA has recordings of real runs, copies of them
with other sizes are surveyed, and their peaks are computed here from the pickles.
"""
import lzma
import os
import pathlib
import pickle
import shutil
import statistics
import sys

sys.path.extend(str(pathlib.Path(__file__).resolve().parents[1] / part) for part in ("", "oracle"))
import harness
from harness import PROGRAM, Skip, check, equal, processor_s
from recording import EPOCH_US, MIB, segment_of
from recording import Recording as Base

MPI_PROGRAM = os.environ.get("TIDEMARK_MPI_BIN", "")
MPIRUN = os.environ.get("TIDEMARK_MPIRUN", "")
IS_PLAIN = not harness.SANITIZER
PROCESSOR_S = 120  # that a survey of 64 recordings may take


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
    return path


# ---------------------------------------------------------------------------------------------------
# Recordings. Every request is larger than all before it, so PyTorch's defaults make a new segment for each,
# and none is ever used again: the figures follow from the sizes.

SETTINGS = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0,
            "expandable_segments": False, "roundup_power2_divisions": {"1": 0, "2": 0}}


class Recording(Base):
    """Weights that stay, and one block a step, which is larger every time."""

    def __init__(self, steps=6, scale=1, begins_us=EPOCH_US, oom_us=None, device=0, settings=SETTINGS):
        super().__init__(16 << 30, begins_us=begins_us, **settings)
        self.device, self.begins_us, self.ooms = device, begins_us, 0
        self.weights = 100 * MIB * scale
        self.sizes = [(20 + 2 * step) * MIB * scale for step in range(steps)]
        self.take(self.weights)
        for size in self.sizes:
            self.free(self.take(size))
        if oom_us is not None:
            self.time_us, self.ooms = oom_us, 1
            self.oom(4 * self.reserved)

    # What is true, by construction.
    allocated = property(lambda self: self.weights + max(self.sizes))
    reserved = property(lambda self: self.weights + sum(self.sizes))
    waste = property(lambda self: sum(self.sizes[:-1]))
    peak_entry = property(lambda self: 2 + 4 * (len(self.sizes) - 1))

    def take(self, size):
        self.segments.append(segment_of(self.end, size, "active_allocated", device=self.device))
        self.add("segment_alloc", self.end, size)
        return self.alloc(size)

    def free(self, address):
        super().free(address)
        self.segments[-1] = segment_of(address, self.segments[-1]["total_size"], "inactive", device=self.device)


def snapshot(*recordings):
    """One file with the recordings of some devices."""
    traces = [[] for _ in range(1 + max(recording.device for recording in recordings))]
    for each in recordings:
        traces[each.device] = each.entries
    segments = [segment for each in recordings for segment in each.segments]
    return pickle.dumps({**recordings[0].snapshot(), "segments": segments, "device_traces": traces}, 4)


def job(folder, count=8, name="rank{}.pickle", **odd):
    """Ranks that are alike, but for those in `odd`: {"rank3": {"scale": 2}}."""
    ranks = [Recording(**{"begins_us": EPOCH_US + 7 * rank, **odd.get(f"rank{rank}", {})}) for rank in range(count)]
    for rank, recording in enumerate(ranks):
        write(os.path.join(folder, name.format(rank)), snapshot(recording))
    return ranks


def example(folder):
    """One rank is larger, and two ran out of memory."""
    return job(folder, rank3={"scale": 2}, rank5={"oom_us": EPOCH_US + 60_000, "begins_us": EPOCH_US - 900_000},
               rank6={"oom_us": EPOCH_US + 90_000})


# ---------------------------------------------------------------------------------------------------
# The program


def ask(*words, program=(PROGRAM,), **more):
    return harness.run(*program[1:], "survey", *words, program=program[0], **more)


def run(*words, status=0):
    answer = ask(*words)
    equal(answer.status, status, f"the status of {words} ({answer.err})")
    return answer


def survey(*words, status=0):
    """The answer as JSON, and the ranks in it by (rank, device)."""
    said = ask(*words, "--json").works(status).json()
    return said, {(row["rank"], row["device"]): row for row in said["ranks"]}


def text_of(*words, status=0):
    """The answer in words, on one line."""
    return " ".join(run(*words, status=status).out.split())


def replayed(path, settings):
    return harness.run("replay", path, "--policy", f"torch:{settings}".rstrip(":"), "--json").works(0, 1).json()["peak_reserved"]


# ---------------------------------------------------------------------------------------------------
# One process


def test_every_rank_has_its_figures(folder: str) -> None:
    ranks = example(folder)
    said, rows = survey(folder)
    equal((said["recordings"], said["unreadable"]), (8, 0))
    equal(said["recorded_settings"], "")
    for rank, recording in enumerate(ranks):
        row = rows[rank, 0]
        equal(os.path.basename(row["file"]), f"rank{rank}.pickle")
        equal(row["peak_allocated"], recording.allocated, "allocated")
        equal(row["peak_requested"], recording.allocated, "requested")
        equal(row["peak_reserved"], recording.reserved, "reserved")
        equal(row["waste"], recording.waste, "waste")
        equal(row["peak_reserved_entry"], recording.peak_entry)
        equal(row["peak_reserved_us"], recording.begins_us + 1000 * recording.peak_entry)
        equal(row["peak_reserved_ms"], recording.peak_entry)
        equal((row["ooms"], row["entries"]), (recording.ooms, len(recording.entries)))
        equal((row["error"], row["settings"], row["is_from_start"]), (None, "", True))


def test_outliers_come_first_by_median_and_mad(folder: str) -> None:
    ranks = example(folder)
    said, _ = survey(folder)
    equal([row["rank"] for row in said["ranks"]], [3, 0, 1, 2, 4, 5, 6, 7], "the order")
    equal((said["outliers"], said["ranks"][0]["outlier_of"]), (1, "peak_reserved"))
    values = {"peak_allocated": [r.allocated for r in ranks], "peak_reserved": [r.reserved for r in ranks],
              "waste": [r.waste for r in ranks]}
    floor = statistics.median(values["peak_reserved"]) / 100
    deviations = []
    for figure in said["figures"]:
        every = values[figure["figure"]]
        middle = int(statistics.median(every))
        mad = int(statistics.median(abs(value - middle) for value in every))
        equal((figure["least"], figure["median"], figure["mad"], figure["most"]),
              (min(every), middle, mad, max(every)), figure["figure"])
        equal((figure["most_rank"], figure["most_over_median"]), (3, round(max(every) / middle, 3)))
        deviations.append((every[3] - middle) / max(1.4826 * mad, floor))
    equal(said["ranks"][0]["deviation"], round(max(deviations), 2))
    text = run(folder).out
    check("outlier: reserved 100.0 % above median" in text, text)


def test_a_low_rank_is_an_outlier_and_small_differences_are_none(folder: str) -> None:
    job(folder, count=9, rank4={"steps": 2})
    said, _ = survey(folder)
    equal([row["rank"] for row in said["ranks"] if row["outlier_of"]], [4])
    check(said["ranks"][0]["deviation"] < -3.5, f"{said['ranks'][0]['deviation']}")
    text = text_of(folder)
    check("below median" in text, text)
    job(folder, count=2, rank1={"scale": 4})
    for rank in range(2, 9):
        os.remove(f"{folder}/rank{rank}.pickle")
    equal(survey(folder)[0]["outliers"], 0, "of two ranks")


def test_the_first_out_of_memory_is_the_earliest_by_the_clock(folder: str) -> None:
    example(folder)  # rank 6 runs out of memory sooner after its start, but later than rank 5
    said, rows = survey(folder)
    equal((said["ooms"], said["first_oom_rank"]), (2, 5))
    check(rows[6, 0]["first_oom_ms"] < rows[5, 0]["first_oom_ms"], "rank 6 is later in its recording")
    equal(rows[5, 0]["first_oom_us"], EPOCH_US + 60_000)
    words = text_of(folder)
    check("Out of memory first: rank 5" in words and "next was rank 6, 0.030000 s later" in words, words)


def test_without_absolute_times_the_first_is_not_known(folder: str) -> None:
    job(folder, count=4, rank1={"begins_us": 1, "oom_us": 90_000}, rank2={"begins_us": 1, "oom_us": 80_000})
    said, _ = survey(folder)
    equal((said["ooms"], said["first_oom_rank"], said["first_oom_file"]), (2, None, None))
    text = text_of(folder)
    check("Which was first is unknown" in text, text)
    os.remove(f"{folder}/rank2.pickle")
    equal(survey(folder)[0]["first_oom_rank"], 1, "the only one")


def test_one_setting_serves_all_ranks(folder: str) -> None:
    ranks = job(folder, rank3={"scale": 2})
    said, rows = survey(folder)
    equal((said["verdict"], said["advised"]), ("set", "expandable_segments:True"))
    equal(said["environment"], "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
    for rank in range(8):
        needs = replayed(f"{folder}/rank{rank}.pickle", said["advised"])
        equal(rows[rank, 0]["needs"], needs, f"what rank {rank} needs")
        check(needs < ranks[rank].reserved, f"rank {rank} saves nothing")
    equal(said["advised_needs"], max(row["needs"] for row in said["ranks"]))
    equal(said["recorded_needs"], max(recording.reserved for recording in ranks))
    for setting in said["settings"]:
        needs = [replayed(f"{folder}/rank{rank}.pickle", setting["settings"]) for rank in (0, 3)]
        equal((setting["needs"], setting["median"]), (max(needs), needs[0]), setting["settings"])
    order = [setting["needs"] for setting in said["settings"]]
    equal(order, sorted(order), "the order of settings")
    equal([s["settings"] for s in said["settings"] if s["is_recorded"]], [""])


def test_the_setting_must_fit_on_every_rank(folder: str) -> None:
    ranks = job(folder, count=4, rank3={"scale": 2})
    limit = ranks[3].allocated + 40 * MIB  # less than the defaults need, enough for expandable segments
    said, _ = survey(folder, "--limit", f"{limit}B")
    equal((said["verdict"], said["settings"][0]["short_ranks"]), ("set", 0))
    check(said["advised_needs"] <= limit, f"{said['advised_needs']}")
    said, _ = survey(folder, "--limit", f"{ranks[3].allocated - 64 * MIB}B", status=1)
    equal((said["verdict"], said["advised"]), ("short", None))
    check(all(setting["short_ranks"] == 1 for setting in said["settings"]), f"{said['settings']}")


def test_a_recording_from_the_middle_proves_nothing(folder: str) -> None:
    job(folder, count=4)
    middle = Recording()
    del middle.entries[:6]
    write(f"{folder}/rank2.pickle", snapshot(middle))
    said, rows = survey(folder)
    if rows[2, 0]["is_from_start"]:
        raise AssertionError("rank 2 begins in the middle")
    if said["verdict"] == "unknown":
        equal((said["advised"], said["settings"], rows[0, 0]["needs"]), (None, [], None))


def test_a_file_that_cannot_be_read_is_a_row(folder: str) -> None:
    ranks = job(folder, count=4)
    write(f"{folder}/rank1.pickle", b"not a recording")
    said, rows = survey(folder, status=2)
    equal((said["unreadable"], said["ranks"][0]["rank"]), (1, 1), "the first row")
    check(said["ranks"][0]["error"] and said["ranks"][0]["peak_reserved"] is None, f"{said['ranks'][0]}")
    equal(rows[2, 0]["peak_reserved"], ranks[2].reserved, "another rank")
    text = text_of(f"{folder}/rank0.pickle", f"{folder}/none.pickle", status=2)
    check("No such file or directory" in text, text)
    os.makedirs(f"{folder}/empty")
    said, _ = survey(f"{folder}/empty", status=2)
    equal(said["ranks"][0]["error"], "the folder contains no recordings")


def test_nothing_that_can_be_read_has_no_figures(folder: str) -> None:
    text = run(f"{folder}/missing.pickle", status=2).out
    check("No recording could be read." in text and "No such file" in text, text)
    check("Imbalance" not in text and "ran out of memory" not in text, text)


def test_a_folder_is_read_in_natural_order(folder: str) -> None:
    job(folder, count=12, name="part{}.pkl")
    for name in ("notes.txt", "x.trace.json", ".part3.pkl", "part3.pkl.txt"):
        write(f"{folder}/{name}", b"?")
    write(f"{folder}/below/part99.pkl", b"?")
    said, _ = survey(folder)
    equal([os.path.basename(row["file"]) for row in said["ranks"]], [f"part{i}.pkl" for i in range(12)])
    equal([row["rank"] for row in said["ranks"]], list(range(12)), "the ranks by order")
    equal(run(folder + "/").out, run(folder).out.replace(folder + "//", folder + "/"))


def test_ranks_are_in_the_names(folder: str) -> None:
    data = snapshot(Recording())
    names = {"rank0.pickle": 0, "job_Rank-12_a.pickle.xz": 12, "snap.rank=7.pickle": 7, "rank_003/a.pickle": 3}
    for name in names:
        write(f"{folder}/{name}", lzma.compress(data) if name.endswith(".xz") else data)
    said, _ = survey(*(f"{folder}/{name}" for name in names))
    equal({row["file"][len(folder) + 1:]: row["rank"] for row in said["ranks"]}, names)
    equal([row["rank"] for row in said["ranks"]], [0, 3, 7, 12], "the order")


def test_every_device_has_a_row(folder: str) -> None:
    one, other = Recording(), Recording(scale=3, device=2, oom_us=EPOCH_US + 90_000)
    write(f"{folder}/rank0.pickle", snapshot(one, other))
    said, rows = survey(folder)
    equal(sorted(rows), [(0, 0), (0, 2)])
    equal((rows[0, 0]["peak_reserved"], rows[0, 2]["peak_reserved"]), (one.reserved, other.reserved))
    text = run(folder).out
    check("rank 0 (device 2)" in text, text)


def test_settings_that_differ_are_shown(folder: str) -> None:
    job(folder, count=3, rank1={"settings": {**SETTINGS, "max_split_size": 256 * MIB}})
    said, rows = survey(folder)
    equal((said["recorded_settings"], rows[1, 0]["settings"]), (None, "max_split_size_mb:256"))
    text = run(folder).out
    check("max_split_size_mb:256" in text, text)


def test_top_limits_the_rows(folder: str) -> None:
    example(folder)
    said, _ = survey(folder, "--top", "2")
    equal([row["rank"] for row in said["ranks"]], [3, 0])
    check("Ranks not shown: 6" in run(folder, "-n2").out, "the text does not say it")


def test_the_memory_does_not_change_the_answer(folder: str) -> None:
    example(folder)
    equal(run(folder, "--memory", "1MiB").out, run(folder).out)
    equal(run(folder, "--memory", "64GiB", "--json").out, run(folder, "--json").out)
    run(folder, "--memory", "x", status=2)


# ---------------------------------------------------------------------------------------------------
# Copies of real recordings with other sizes


def scaled(data, factor):
    """All sizes and addresses, times a factor."""
    for entries in data["device_traces"]:
        for entry in entries:
            entry["size"] *= factor
            if "addr" in entry:
                entry["addr"] *= factor
    for segment in data["segments"]:
        for key in ("address", "total_size", "allocated_size", "active_size", "requested_size"):
            segment[key] *= factor
        for block in segment["blocks"]:
            for key in ("address", "size", "requested_size"):
                block[key] *= factor
    return data


def peaks_of(entries):
    """Peaks of live requests, rounded and not, and of reserved memory; and the entry of the latter."""
    live, asked, reserved, sizes, peaks = 0, 0, 0, {}, [0, 0, 0, 0]
    for number, entry in enumerate(entries):
        action, size = entry["action"], entry["size"]
        if action == "alloc":
            sizes[entry["addr"]] = size
            live, asked = live + -(-size // 512) * 512, asked + size
        elif action == "free_completed":
            size = sizes.pop(entry["addr"])
            live, asked = live - -(-size // 512) * 512, asked - size
        elif action in ("segment_alloc", "segment_map"):
            reserved += size
        elif action in ("segment_free", "segment_unmap"):
            reserved -= size
        if reserved > peaks[2]:
            peaks[3] = number
        peaks[:3] = max(peaks[0], live), max(peaks[1], asked), max(peaks[2], reserved)
    return peaks


def real_job(folder, count):
    """Writes the job, and returns the peaks and refusals of each rank. Long recordings come once, short ones often."""
    data = harness.more("traces")
    names = sorted(name for name in os.listdir(data) if name.endswith(".pickle.xz"))
    names.remove("llama_generate.pickle.xz")  # alone it is as long as all others
    brief = [name for name in names if os.path.getsize(os.path.join(data, name)) < 100 << 10]
    names = ((names if count > 6 else []) + brief * count)[:count]  # by rank
    truth = {}
    for name in sorted(set(names)):
        with lzma.open(os.path.join(data, name)) as file:
            plain = file.read()
        for number, rank in enumerate(rank for rank in range(count) if names[rank] == name):
            copy = scaled(pickle.loads(plain), 1 + number)
            entries = copy["device_traces"][0]
            truth[rank] = (*peaks_of(entries), sum(entry["action"] == "oom" for entry in entries))
            write(f"{folder}/rank_{rank}.pickle", pickle.dumps(copy, 4))
    return truth


def test_sixty_four_real_recordings(folder: str) -> None:
    """Six in the quick tier, and with a sanitizer."""
    truth = real_job(folder, 64 if IS_PLAIN and harness.is_thorough() else 6)
    before = processor_s()
    _, rows = survey(folder)
    taken = processor_s() - before
    for rank, (allocated, requested, reserved, at, ooms) in truth.items():
        row = rows[rank, 0]
        got = (row["peak_allocated"], row["peak_requested"], row["peak_reserved"], row["peak_reserved_entry"],
               row["ooms"])
        equal(got, (allocated, requested, reserved, at, ooms), f"rank {rank}")
    equal(len(rows), len(truth))
    check(not IS_PLAIN or taken < PROCESSOR_S, f"it takes {taken:.1f} s of processor time")
    if MPI_PROGRAM and MPIRUN:
        processes_agree(4, folder, "--json")


# ---------------------------------------------------------------------------------------------------
# Many processes


def mpi(count, more=()):
    if not MPI_PROGRAM or not MPIRUN:
        raise Skip("tidemark-mpi was not built; ./dev setup mpi installs what it needs" if harness.is_thorough()
                   else "only in the thorough tier")
    return [MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", str(count), *more, MPI_PROGRAM]


def processes_agree(count, *words):
    """Returns the status."""
    got, alone = ask(*words, program=mpi(count)), ask(*words)
    equal((got.status, got.bytes), (alone.status, alone.bytes), f"the answer of {count} processes to {words}")
    return alone.status


def test_processes_agree_byte_for_byte(folder: str) -> None:
    example(folder)
    for count in (1, 2, 4):
        for options in ((), ("--json",), ("--top", "3"), ("--limit", "300MiB", "--json")):
            processes_agree(count, folder, *options)


def test_more_processes_than_recordings(folder: str) -> None:
    job(folder, count=2)
    processes_agree(5, folder)


def test_processes_agree_on_what_cannot_be_read(folder: str) -> None:
    job(folder, count=5)
    write(f"{folder}/rank1.pickle", b"not a recording")
    equal(processes_agree(4, folder, f"{folder}/none.pickle", "--json"), 2, "the status")


def test_processes_see_different_files(folder: str) -> None:
    """Two pairs of processes with folders of their own; together they see what one process sees in another."""
    mpi(4)
    job(f"{folder}/all/ranks", count=6, rank4={"scale": 2})
    shutil.copytree(f"{folder}/all", f"{folder}/a")
    shutil.copytree(f"{folder}/all", f"{folder}/b")
    for rank in (0, 1, 4):
        os.remove(f"{folder}/a/ranks/rank{rank}.pickle")
    for rank in (2, 3):
        os.remove(f"{folder}/b/ranks/rank{rank}.pickle")
    shutil.rmtree(f"{folder}/c", ignore_errors=True)
    os.makedirs(f"{folder}/c")
    alone = ask("ranks", "ranks/rank4.pickle", "--json", cwd=f"{folder}/all")
    parts = [[part, "-n", "2"] for part in "abc"]
    line = ["--allow-run-as-root", "--oversubscribe"]
    for part in parts:
        line += [*(":" if part[0] != "a" else ()), *part[1:], "-wdir", f"{folder}/{part[0]}", MPI_PROGRAM, "survey",
                 "ranks", "ranks/rank4.pickle", "--json"]
    together = harness.run(*line, program=MPIRUN)
    equal(together.out, alone.out, f"the answer ({together.err})")


def test_a_wrong_command_line_is_said_once(folder: str) -> None:
    wrong = ask("--limit", "much", folder, program=mpi(4))
    equal((wrong.status, wrong.out, wrong.err.count("--limit must be a size")), (2, "", 1), wrong.err)
    usage = ask("--help", program=mpi(3))
    equal((usage.status, usage.out.count("usage: tidemark survey")), (0, 1), usage.err)
    stdin = ask("-", program=mpi(2))
    check(stdin.status == 2 and "standard input" in stdin.err, stdin.err)


def test_a_process_that_fails_ends_the_others(folder: str) -> None:
    """One of four processes has a mistake in its command line and takes no part."""
    job(folder, count=4)
    failed = ask(folder, ":", "-n", "1", MPI_PROGRAM, "survey", folder, "--limit", "much", program=mpi(3))
    check(failed.status != 0, failed.out)


if __name__ == "__main__":
    harness.main()
