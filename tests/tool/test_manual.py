#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Runs the examples of the manual pages and compares what they print.

    tests/tool/test_manual.py --show COMMAND [COLUMNS]     what an example prints, to write it down

An example is a display of docs/man/*.1 with a line that begins with "$ ". Its lines up to the next such line must be what the
command prints on a terminal; "..." stands for any number of lines. The comment '.\\" columns: N' before a display is the width
of the terminal, and '.\\" not run' marks an example that needs more than this computer has. The recordings are those of
tests/data, a job that test_survey.py makes, and a leak that is made here.
"""
import functools
import glob
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.extend(str(pathlib.Path(__file__).resolve().parents[1] / part) for part in ("", "oracle"))
import harness
import test_survey
from harness import DATA, PROGRAM, SOURCE, Skip, check
from recording import BASE, MIB, Recording

COLUMNS = 72  # a manual page on a terminal with 80 columns has this much room
RECORDINGS = {"oom.pickle": "varlen_oom.tide.xz", "run.pickle": "gnn_retry.tide", "new.pickle": "gnn_gc_split.tide",
              "stacks.pickle": "resnet_stacks.tide"}
PROBLEM = "id,lower,upper,size\nweights,0,9,4096\nlayer1,0,3,8192\nlayer2,2,6,6144\nlayer3,5,9,8192\n"


# ---------------------------------------------------------------------------------------------------------------------
# Files

def leak():
    """50 steps of a training loop that keeps the output of each step, and releases everything else."""
    made, main = Recording(64 * MIB, reuses=True), ("train.py", 40, "main")
    made.add("segment_alloc", BASE, 4096 * MIB, stack=(main,))
    for _ in range(50):
        blocks = [made.alloc((24 + 8 * i) * MIB, (("model.py", 12, "forward"), ("train.py", 31, "step"), main)) for i in range(4)]
        made.alloc(42 * MIB, (("train.py", 33, "step"), main))
        blocks.append(made.alloc(MIB, (("site-packages/torch/optim/sgd.py", 90, "step"), ("train.py", 35, "step"), main)))
        made.free_all(blocks)
    return made


@functools.cache
def files():
    """A folder with what the examples need."""
    made = tempfile.TemporaryDirectory()
    folder = made.name
    for name, recording in RECORDINGS.items():
        done = harness.run("convert", os.path.join(DATA, recording), os.path.join(folder, name))
        if "built without" in done.err:
            raise Skip(done.err.strip())
        done.works()
    leak().save(folder, "leak.pickle")
    pathlib.Path(folder, "problem.csv").write_text(PROBLEM)
    test_survey.job(os.path.join(folder, "snapshots"), **{f"rank{rank}": {"scale": 96 if rank == 3 else 64} for rank in range(8)})
    os.mkdir(os.path.join(folder, "bin"))
    os.symlink(PROGRAM, os.path.join(folder, "bin", "tidemark"))
    return made


# ---------------------------------------------------------------------------------------------------------------------
# Commands

def printed(command, columns, folder):
    """What `command` prints on a terminal with so many columns."""
    command = re.sub(r"^(mpirun|srun)\b.*?\btidemark-mpi\b", "tidemark", command)  # which prints the same
    path = os.path.join(folder, "bin") + ":" + os.environ["PATH"]
    terminal = harness.Terminal("-c", command, streams=["stdout"], columns=columns, rows=50, program="/bin/sh", cwd=folder,
                                stdin=subprocess.DEVNULL, env={"TERM": "dumb", "PATH": path, "LC_ALL": "C.UTF-8"})
    while terminal.read():
        pass
    errors = terminal.child.stderr.read().decode() if terminal.child.stderr else ""
    return (errors + terminal.seen).replace("\r\n", "\n").rstrip("\n").split("\n")


def matches(want, got):
    """`want` is `got`; "..." in it stands for any number of lines."""
    if not want:
        return not got
    if want[0] == "...":
        return any(matches(want[1:], got[i:]) for i in range(len(got) + 1))
    return bool(got) and want[0] == got[0] and matches(want[1:], got[1:])


# ---------------------------------------------------------------------------------------------------------------------
# Pages

def plain(line):
    line = re.sub(r"\\\[u([0-9A-F]+)\]", lambda match: chr(int(match[1], 16)), line)
    return line.replace("\\&", "").replace("\\-", "-").replace("\\e", "\\").rstrip()


def examples_of(page):
    """(title, columns, [(command, lines)]) of each display with commands."""
    title, columns, is_run = "", COLUMNS, True
    display: list[str] | None = None
    for line in open(page, encoding="utf-8").read().split("\n"):
        if line.startswith((".Sh ", ".Ss ")):
            title = line[4:]
        elif line.startswith('.\\" columns: '):
            columns = int(line.split()[-1])
        elif line == '.\\" not run':
            is_run = False
        elif line.startswith(".Bd "):
            display = []
        elif line == ".Ed":
            if is_run and display and any(words.startswith("$ ") for words in display):
                yield title, columns, commands_of(display)
            columns, is_run, display = COLUMNS, True, None
        elif display is not None:
            display.append(plain(line))


def commands_of(display):
    commands = []
    for line in display:
        if line.startswith("$ "):
            commands.append((line[2:], []))
        else:
            commands[-1][1].append(line)
    return [(command, trimmed(lines)) for command, lines in commands]


def trimmed(lines):
    while lines and not lines[-1]:
        lines = lines[:-1]
    return lines


@functools.cache
def pages():
    """The examples by page and title."""
    found = {}
    for page in sorted(glob.glob(os.path.join(SOURCE, "docs", "man", "*.1"))):
        for title, columns, commands in examples_of(page):
            found.setdefault(f"{os.path.basename(page)}: {title}", []).extend((columns, *command) for command in commands)
    return found


@harness.over(pages())
def test_example(variant: str) -> None:
    for columns, command, want in pages()[variant]:
        got = [line.rstrip() for line in printed(command, columns, files().name)]
        is_right = matches(want, got) and all(len(line) <= columns for line in want)
        check(is_right, "\n".join([command, "--- the manual", *want, "--- the program", *got]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--show"]:
        print(*printed(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else COLUMNS, files().name), sep="\n")
    else:
        harness.main()
