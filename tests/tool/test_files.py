#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Tests files and pipes of the command: what can be read and written, compression, failures, and formats of `convert`."""
import bz2
import gzip
import json
import lzma
import os
import pathlib
import pickle
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import harness
from harness import SANITIZER, Skip, check, equal, over, run
from verbs import PLAIN, READERS, line_of, snapshot, text_of, write

CODECS = {"xz": ".xz", "gzip": ".gz", "zstd": ".zst"}  # by the name of the command


def packed_zstd(data):
    if not shutil.which("zstd"):
        raise Skip("there is no zstd command")
    return subprocess.run(["zstd", "-q", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout


PACKERS: dict[str, Callable[[bytes], bytes]] = {"xz": lzma.compress, "gzip": gzip.compress, "zstd": packed_zstd}


def packed(codec):
    """The recording, compressed; the test is skipped if the program was built without the library."""
    data = PACKERS[codec](PLAIN)
    answer = run("convert", "-", "-", "--to", "json", stdin=data)
    if "built without" in answer.err:
        answer.fails("built without")
        raise Skip(answer.err.strip())
    return data





def test_every_verb_reads_a_file_and_standard_input(folder: str) -> None:
    file = write(f"{folder}/x.pickle", PLAIN)
    for verb in READERS:
        line = line_of(verb, file, f"{folder}/y.json")
        run(*line).works()
        if line.count(file) == 1:
            run(*line_of(verb, "-", f"{folder}/y.json"), stdin=PLAIN).works()


def test_one_operand_of_two_can_be_standard_input(folder: str) -> None:
    file = write(f"{folder}/x.pickle", PLAIN)
    run("diff", "-", file, stdin=PLAIN).works()
    run("diff", file, "-", stdin=PLAIN).works()


def test_input_that_comes_in_single_bytes(folder: str) -> None:
    data = lzma.compress(PLAIN)
    packed("xz")
    with harness.start("convert", "-", f"{folder}/y.json", stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, bufsize=0) as child:
        assert child.stdin
        for at in range(len(data)):
            child.stdin.write(data[at:at + 1])
    equal(child.returncode, 0)
    run("convert", "-", f"{folder}/z.json", stdin=PLAIN).works()
    equal(text_of(f"{folder}/y.json"), text_of(f"{folder}/z.json"))


@over(CODECS)
def test_compressed_input(folder: str, variant: str) -> None:
    data = packed(variant)
    want = run("convert", "-", "-", "--to", "pickle", stdin=PLAIN).works().bytes
    for verb in READERS:
        run(*line_of(verb, write(f"{folder}/x", data), f"{folder}/y.json")).works()
    equal(run("convert", "-", "-", "--to", "pickle", stdin=data).works().bytes, want)
    half = len(PLAIN) // 2
    twice = PACKERS[variant](PLAIN[:half]) + PACKERS[variant](PLAIN[half:])
    got = run("convert", "-", "-", "--to", "pickle", stdin=twice).works().bytes
    equal(got, want, "what two streams make")


@over(CODECS)
def test_truncated_input(folder: str, variant: str) -> None:
    data = packed(variant)
    for keep in sorted({8, 20, len(data) // 2, len(data) - 9, len(data) - 1}):
        run("convert", "-", f"{folder}/y.json", stdin=data[:keep]).fails(f"truncated at byte {keep}")
    check(not os.path.exists(f"{folder}/y.json"), "something was written")


@over(CODECS)
def test_damaged_input(folder: str, variant: str) -> None:
    data = bytearray(packed(variant))
    data[len(data) // 2] ^= 0x55
    run("convert", "-", f"{folder}/y.json", stdin=bytes(data)).fails("standard input: ")
    run("convert", "-", f"{folder}/y.json", stdin=packed(variant) + b"garbage garbage").fails("standard input: ")


@over(CODECS)
def test_compressed_output(folder: str, variant: str) -> None:
    packed(variant)
    want = run("convert", "-", "-", "--to", "json", stdin=PLAIN).works().bytes
    file = f"{folder}/y.json{CODECS[variant]}"
    answer = run("convert", "-", file, "--json", stdin=PLAIN).works()
    equal(answer.json()["bytes"], os.path.getsize(file), "bytes")
    if not shutil.which(variant):
        raise Skip(f"there is no {variant} command")
    equal(run("-dc", file, program=variant).works().bytes, want)


def test_files_that_cannot_be_read(folder: str) -> None:
    for verb in READERS:
        run(*line_of(verb, f"{folder}/none", f"{folder}/y.json")).fails(f"{folder}/none: No such file")
        run(*line_of(verb, folder, f"{folder}/y.json")).fails("directory")
        run(*line_of(verb, write(f"{folder}/empty", b""), f"{folder}/y.json")).fails(f"{folder}/empty: ")
        run(*line_of(verb, write(f"{folder}/bz2", bz2.compress(PLAIN)), f"{folder}/y.json")).fails(f"{folder}/bz2: ")
        run(*line_of(verb, write(f"{folder}/cut", PLAIN[:-9]), f"{folder}/y.json")).fails(f"{folder}/cut: ")
    check(not os.path.exists(f"{folder}/y.json"), "something was written")
    if os.geteuid() != 0:
        os.chmod(write(f"{folder}/secret", PLAIN), 0)
        run("convert", f"{folder}/secret", "-", "--to", "json").fails("Permission denied")


def test_standard_input_that_is_closed(folder: str) -> None:
    run("convert", "-", f"{folder}/y.json", stdin=None, preexec_fn=lambda: os.close(0)).fails("standard input: ")


def test_outputs_that_cannot_be_written(folder: str) -> None:
    file = write(f"{folder}/x.pickle", PLAIN)
    run("convert", file, f"{folder}/none/y.json").fails("No such file")
    run("convert", file, folder, "--to", "json").fails("Is a directory")
    run("convert", file, f"{file}/y.json").fails("Not a directory")
    if os.path.exists("/dev/full"):
        run("convert", file, "/dev/full", "--to", "json").fails("No space left")
    equal(sorted(os.listdir(folder)), ["x.pickle"], "what lies there")


def test_a_failed_write_leaves_what_was_there(folder: str) -> None:
    if SANITIZER == "thread":
        raise Skip("the thread sanitizer does not survive a limit on files")

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    target = write(f"{folder}/y.json", b"before")
    run("convert", "-", target, stdin=PLAIN, preexec_fn=limit).fails("File too large")
    equal(text_of(target), "before")
    equal(os.listdir(folder), ["y.json"], "what lies there")


def test_a_signal_leaves_what_was_there(folder: str) -> None:
    """Sends the signal while the temporary file is written; tries a longer file if it came too late."""
    packed("xz")
    long = snapshot()
    first, release = long["device_traces"][0][2], long["device_traces"][0][4]
    target = write(f"{folder}/y.pickle.xz", b"before")
    for doubled in range(8):
        for i in range(40000 << max(doubled - 1, 0)):
            long["device_traces"][0] += [{**first, "time_us": i * i}, {**release, "time_us": i * i + 1}]
        file = write(f"{folder}/x.pickle", pickle.dumps(long, 4))
        with harness.start("convert", file, target, stdout=subprocess.DEVNULL) as child:
            while child.poll() is None and len(os.listdir(folder)) == 2:
                os.sched_yield()
            child.send_signal(signal.SIGTERM)
        if child.returncode != 0:
            break
        write(target, b"before")
    equal(child.returncode, -signal.SIGTERM, "the status")
    equal(text_of(target), "before")
    equal(sorted(os.listdir(folder)), ["x.pickle", "y.pickle.xz"], "what lies there")


def test_a_file_keeps_its_rights_and_links_stay_links(folder: str) -> None:
    target = write(f"{folder}/y.json", b"before")
    os.chmod(target, 0o640)
    os.symlink("y.json", f"{folder}/link.json")
    run("convert", "-", f"{folder}/link.json", stdin=PLAIN).works()
    check(os.path.islink(f"{folder}/link.json"), "the link is gone")
    equal(os.stat(target).st_mode & 0o777, 0o640, "the mode")
    json.loads(text_of(target))
    old = os.umask(0o027)
    try:
        run("convert", "-", f"{folder}/new.json", stdin=PLAIN).works()
    finally:
        os.umask(old)
    equal(os.stat(f"{folder}/new.json").st_mode & 0o777, 0o640, "the mode of a new file")


def test_a_device_is_written_to_and_not_replaced() -> None:
    run("convert", "-", "/dev/null", "--to", "json", stdin=PLAIN).works()
    check(not os.path.isfile("/dev/null"), "/dev/null was replaced")


def test_input_and_output_may_be_the_same_file(folder: str) -> None:
    file = write(f"{folder}/x.pickle", PLAIN)
    run("convert", file, file, "--to", "json").works()
    json.loads(text_of(file))


def test_a_part_of_a_recording_does_not_replace_it(folder: str) -> None:
    file = write(f"{folder}/x.pickle", PLAIN)
    os.symlink("x.pickle", f"{folder}/link")
    for name in (file, f"{folder}/link", f"{folder}/../{os.path.basename(folder)}/x.pickle"):
        for form in ("rmm", "minimalloc", "chrome", "folded", "pprof"):
            run("convert", file, name, "--to", form).fails("would overwrite the recording")
        with open(file, "rb") as same:
            run("convert", "-", name, "--to", "folded", stdin=same).fails("would overwrite the recording")
    equal(pathlib.Path(file).read_bytes(), PLAIN, "the recording")
    log = f"{folder}/x.rmm.csv"
    run("convert", file, log).works()
    cut = pathlib.Path(log).read_bytes()[:-5]
    answer = run("convert", write(log, cut), log, "--to", "json")
    equal((answer.status, pathlib.Path(log).read_bytes()), (2, cut))
    check("whose end is damaged" in answer.err, answer.err)


# ---------------------------------------------------------------------------------------------------
# convert


def test_convert_round_trip(folder: str) -> None:
    run("convert", "-", f"{folder}/a.json", stdin=PLAIN).works()
    run("convert", f"{folder}/a.json", f"{folder}/b.pickle").works()
    equal(pickle.loads(pathlib.Path(folder, "b.pickle").read_bytes()), snapshot(), "what came back")


def test_convert_finds_the_format_from_the_ending(folder: str) -> None:
    endings = {
        "x.pickle": "pickle", "x.json": "json", "x.tide": "tide", "x.rmm.csv": "rmm", "x.csv": "minimalloc",
        "x.trace.json": "chrome", "x.folded": "folded", "x.pb": "pprof", "x.y.json": "json",
        "a.json/x.csv": "minimalloc",
    }
    os.mkdir(f"{folder}/a.json")
    for name, form in endings.items():
        said = run("convert", "-", f"{folder}/{name}", "--json", stdin=PLAIN).works().json()
        equal(said["format"], form, f"the format of {name}")
    for ending in CODECS.values():
        answer = run("convert", "-", f"{folder}/x.trace.json{ending}", "--json", stdin=PLAIN)
        if "built without" not in answer.err:
            equal(answer.works().json()["format"], "chrome", f"the format of x.trace.json{ending}")


def test_convert_by_name(folder: str) -> None:
    said = run("convert", "-", f"{folder}/x.json", "--to", "pickle", "--json", stdin=PLAIN).works().json()
    equal(said["format"], "pickle")
    equal(pickle.loads(pathlib.Path(folder, "x.json").read_bytes()), snapshot(), "what was written")


def test_convert_needs_a_format(folder: str) -> None:
    for name in ("x", "x.txt", "json", ".json", "x.xz", "-"):
        run("convert", "-", f"{folder}/{name}" if name != "-" else name, stdin=PLAIN).fails("--to")
    run("convert", "-", f"{folder}/x.json", "--to", "docx", stdin=PLAIN).fails("unknown format 'docx'")


def test_convert_counts(folder: str) -> None:
    said = run("convert", "-", f"{folder}/x.json", "--json", stdin=PLAIN).works().json()
    equal([said[key] for key in ("input", "output", "entries", "segments", "blocks", "bytes", "is_cut")],
          ["-", f"{folder}/x.json", 5, 1, 2, os.path.getsize(f"{folder}/x.json"), False])


def test_convert_to_standard_output_prints_the_trace_alone() -> None:
    run("convert", "-", "-", "--to", "json", stdin=PLAIN).works().json()
    run("convert", "-", "-", "--to", "json", "--json", stdin=PLAIN).fails("standard output")


if __name__ == "__main__":
    harness.main()
