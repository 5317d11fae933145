#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Tests command lines: help, errors, options, and what the manual and the completion say about them."""
import os
import pathlib
import pickle
import re
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import harness
from harness import SOURCE, Skip, check, equal, names_no_call, run
from verbs import LINES, PLAIN, PLANNED, answer_of, keys_in_manual, keys_of, line_of, manual, section_of, snapshot, text_of, write

HIDDEN = {"view": ["patience"]}  # options that the help does not show


def options_of(verb):
    return re.findall(r"^  (?:-(\w), |    )--([a-z-]+)(?: (\S+))?", run(verb, "--help").works().out, re.M)


# ---------------------------------------------------------------------------------------------------
# Command lines




def test_every_verb_is_tried_here() -> None:
    names = re.findall(r"^  ([a-z]+) +\S", run("--help").works().out, re.M)
    equal([name for name in names if name not in ("exit", "help")], list(LINES), "the verbs in the help")


def test_help_lists_the_verbs_and_the_statuses() -> None:
    answer = run("--help").works()
    for line in (["-h"], ["help"], ["help", "help"]):
        equal(run(*line).works().out, answer.out, f"what {line} prints")
    check("usage: tidemark VERB" in answer.out and "exit status: 0 success" in answer.out, answer.out)


def test_help_of_every_verb() -> None:
    for verb in LINES:
        answer = run(verb, "--help").works()
        check(answer.out.startswith(f"usage: tidemark {verb}"), answer.out)
        for word in ("--json", "--color WHEN", "--max-unpacked SIZE", "--help"):
            check(word in answer.out, f"the help of {verb} has no {word}")
        equal(run(verb, "-h").works().out, answer.out)
        equal(run("help", verb).works().out, answer.out, f"what help {verb} prints")
        check(all(len(line) <= 100 for line in answer.out.split("\n")), f"the help of {verb} has long lines")


def test_no_message_names_a_call_of_the_library() -> None:
    calls = harness.library_calls()
    check({"trace_read", "device_options_parse"} <= set(calls), f"{calls}")
    run("info", "-", stdin=b"").fails("standard input: the file is empty")
    run("info", "-", stdin=b"hello").fails("standard input: ")
    said = "--policy torch:max_split_size_mb:1: max_split_size_mb: found"
    run("replay", "-", "--policy", "torch:max_split_size_mb:1", stdin=PLAIN).fails(said)
    for line in ("machines",), ("machines", "--json"):
        names_no_call(run(*line).works().out)


def test_version() -> None:
    header = text_of(os.path.join(SOURCE, "include", "tidemark", "base.h"))
    parts = re.findall(r"^#define TIDE_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", header, re.M)
    for option in ("--version", "-V"):
        equal(run(option).works().out, f"tidemark {'.'.join(parts)}\n")


def test_no_verb_prints_the_help_as_an_error() -> None:
    answer = run()
    equal((answer.status, answer.out), (2, ""))
    check("usage: tidemark VERB" in answer.err, answer.err)


def test_help_of_what_is_no_verb() -> None:
    run("help", "machnes").fails("did you mean 'machines'?")
    run("help", "frobnicate").fails("unknown verb 'frobnicate'")
    run("help", "info", "report").fails("help takes one verb")


def test_unknown_verb() -> None:
    run("frobnicate").fails("unknown verb 'frobnicate'")
    run("--frobnicate").fails("unknown option '--frobnicate'")
    run("").fails("unknown verb ''")
    run("a\033[2J\nb\xff").fails("unknown verb 'a\\x1b[2J\\x0ab")


def test_a_typo_is_answered_with_the_nearest_verb() -> None:
    typos = {"machnes": "machines", "machinse": "machines", "covert": "convert", "convertt": "convert"}
    for typo, verb in typos.items():
        run(typo).fails(f"did you mean '{verb}'?")


def test_bad_options() -> None:
    for verb in LINES:
        run(verb, "--frobnicate").fails("unknown option '--frobnicate'")
        run(verb, "-Z").fails("unknown option '-Z'")
        run(verb, "--json=1").fails("takes no value")
        run(verb, "--color").fails("needs a value")
        run(verb, "--color", "blue").fails("auto, always or never")
        run(verb, "--max-unpacked", "much").fails("must be a size")
        run(verb, "--max-unpacked", "64").fails("--max-unpacked 64 has no unit: write 64GiB, or 64B")


def test_wrong_count_of_operands() -> None:
    for verb in LINES:
        count = len(LINES[verb]) - (2 if "-o" in LINES[verb] else 0)
        if verb not in ("plot", "view", "survey", "top", "ledger"):  # they take any number, or operands may be left out
            run(verb, *["x"] * (count + 1)).fails("too many operands")
        if any(word.isupper() for word in LINES[verb]):
            run(verb, *["x"] * (count - 1)).fails("missing operand")
    run("report").fails("missing operand: expected FILE; see tidemark report --help")
    run("ledger", "show", "x", "y").fails("too many operands")
    run("diff", "x", "y", "z").fails("too many operands: expected A B; see tidemark diff --help")
    run("replay", "--scale-all", "x").fails("--scale-all needs --scale")
    run("replay", "--reserve", "much", "x").fails("--reserve must be a size such as 14GiB, not 'much'")
    run("replay", "--reserve", "14", "x").fails("--reserve 14 has no unit: write 14GiB, or 14B")
    run("replay", "--reserve", "1GiB", "--check", "x").fails("cannot be combined with --reserve")


def test_options_may_stand_anywhere_and_end_with_two_dashes(folder: str) -> None:
    file = write(f"{folder}/x.pickle", PLAIN)
    run("convert", "--to", "json", file, f"{folder}/a").works()
    run("convert", file, "-tjson", f"{folder}/b").works()
    run("convert", file, "--to=json", "--", f"{folder}/-c").works()
    run("convert", file, "--", f"{folder}/d", "--to").fails("too many operands")
    written = {text_of(f"{folder}/{name}") for name in ("a", "b", "-c")}
    equal(len(written), 1, "how many texts were written")


def test_sizes() -> None:
    limited = [verb for verb in LINES if "--limit SIZE" in run(verb, "--help").out and verb != "ledger"]  # see test_ledger.py
    check(len(limited) > 3, f"only {limited} have --limit")
    for verb in limited:
        for size in ("1073741824", "1GiB", "1G", "1024M", "1.5GB", "0.5TiB"):
            run(verb, "-", "--limit", size, stdin=PLAIN).works()
        for size in ("", "x", "-1", "1.5", "1X", "99999999999T", "1e9"):
            run(verb, "-", "--limit", size, stdin=PLAIN).fails(size)
        for size in ("14", "1048575", "80 "):
            unit = "GiB" if len(size) < 4 else "MiB"
            question = "{0} has no unit: write {0}{1}, or {0}B for bytes".format(size.strip(), unit)
            run(verb, "-", "--limit", size, stdin=PLAIN).fails(question)
        for size in ("14B", "14 b", "0.5K"):
            judged = 0 if verb == "plot" else 1  # it only draws the limit
            equal(run(verb, "-", "--limit", size, stdin=PLAIN).status, judged, f"the status with --limit {size}")
    run("plan", "-", "--capacity", "14", stdin=PLAIN).fails("14 has no unit: write 14GiB, or 14B")
    equal(run("plan", "-", "--capacity", "14B", stdin=PLAIN).status, 1)
    for verb in ("plan", "verify"):
        for size in ("3072", "3KiB", "3K", "0.0031MB", "1T"):
            run(verb, "-", "--capacity", size, stdin=PLANNED).works()
        for size in ("", "x", "-1", "1.5", "9223372036854775808"):
            run(verb, "-", "--capacity", size, stdin=PLANNED).fails(f"'{size}'")


# ---------------------------------------------------------------------------------------------------
# Manual and completion


def test_the_manual_has_every_verb_and_option() -> None:
    page = manual()
    for verb in LINES:
        check(f".Ss {verb}\n" in page and f".Cm {verb}\n" in page, f"tidemark(1) has no {verb}")
        for letter, name, _ in options_of(verb):
            check(f"Fl Fl {name}" in page, f"tidemark(1) has no --{name} of {verb}")
            has_letter = not letter or f"Fl {letter} , Fl Fl {name}" in page
            check(has_letter, f"tidemark(1) has no -{letter} of {verb}")


def test_a_hidden_option_is_in_the_manual_alone() -> None:
    """The manual describes what the help shows, and what it hides."""
    scripts = [run("--completion", shell).works().out for shell in ("bash", "zsh")]
    for verb in LINES:
        hidden, named = HIDDEN.get(verb, []), re.findall(r"^\.It (?:Fl \w , )?Fl Fl ([a-z-]+)", section_of(verb), re.M)
        equal(sorted(set(named) - {name for _, name, _ in options_of(verb)}), hidden, f"options of {verb} that the help hides")
        for name in hidden:
            run(verb, f"--{name}").fails("needs a value")
            check(all(f"--{name}" not in text for text in (*scripts, run(verb, "--help").out)), f"--{name} is not hidden")


def test_every_synopsis_has_every_option() -> None:
    """In the first lines of the help, and in the manual; without the shared options."""
    synopsis = manual().split(".Sh SYNOPSIS\n")[1].split(".Sh ")[0]
    for verb in LINES:
        usage = " ".join(run(verb, "--help").works().out.split("\n\n")[0].split())
        line = synopsis.split(f".Nm\n.Cm {verb}\n")[1].split(".Nm\n")[0]
        for _, name, value in options_of(verb):
            if name in ("json", "color", "max-unpacked", "help"):
                continue
            check(f"[--{name}{' ' if value else ''}{value}]" in usage, f"{usage!r} has no --{name}")
            check(f".Op Fl Fl {name}" in line, f"the synopsis of {verb} in tidemark(1) has no --{name}")


def test_the_manual_has_every_key_of_json(folder: str) -> None:
    words = set(re.findall(r"\w+", manual()))
    for verb in LINES:
        missing = sorted(keys_of(answer_of(verb, folder)) - words)
        check(not missing, f"tidemark(1) has not these keys of {verb} --json: {' '.join(missing)}")


def words_of(value):
    """All keys, and texts, which may be names of rows."""
    if isinstance(value, dict):
        return set(value).union(*map(words_of, value.values()))
    if isinstance(value, list):
        return set().union(*map(words_of, value))
    return {value} if isinstance(value, str) else set()


def test_every_key_of_the_manual_is_in_an_answer(folder: str) -> None:
    """Checks a recording with a refused request and a tag, parking, budgets, and a diff with differences."""
    refused = snapshot()
    for entry in refused["device_traces"][0][2:]:
        entry["size"] *= 2
    refusal = {"action": "oom", "device_free": 0, "size": 2097152, "stream": 0, "time_us": 6, "frames": []}
    refused["device_traces"][0].append(refusal)
    refused["segments"][0]["tag"] = "weights"
    file = write(f"{folder}/x.pickle", pickle.dumps(refused, 4))
    other = write(f"{folder}/y.pickle", PLAIN)
    leaking = {"device_traces": [[{"action": "alloc", "addr": 4096 * i, "size": 512, "stream": 0, "time_us": i}
                                  for i in range(1, 21)]]}
    leak = write(f"{folder}/z.pickle", pickle.dumps(leaking, 4))
    lines = {"diff": ["diff", file, other], "report": ["report", file, "--step", "2"],
             "plot": ["plot", file, "--step", "2"], "replay": ["replay", file, "--policy", "tide", "--park", "100%"],
             "leaks": ["leaks", leak, "--step", "1"], "whatif": ["whatif", file, "--tag", "a=*"]}
    others = {"replay": ["replay", file, "--tag", "a=*"]}  # what cannot be asked at once
    for verb in LINES:
        if verb in ("top", "ledger"):
            continue  # need a process to show: see test_top.py and test_ledger.py
        line = lines.get(verb) or line_of(verb, file, f"{folder}/y.json")
        words = [words_of(run(*words, "--json").json()) for words in (line, others.get(verb, line))]
        missing = sorted(keys_in_manual(verb) - set().union(*words))
        check(not missing, f"{verb} --json has not these keys of tidemark(1): {' '.join(missing)}")


def test_the_manual_is_well_formed() -> None:
    if not shutil.which("mandoc"):
        raise Skip("there is no mandoc")
    equal(run("-Tlint", os.path.join(SOURCE, "docs", "man", "tidemark.1"), program="mandoc").out, "", "what mandoc says")


def test_bash_completion(folder: str) -> None:
    bash = shutil.which("bash")
    if not bash:
        raise Skip("there is no bash")
    script = write(f"{folder}/tidemark.bash", run("--completion", "bash").works().bytes)

    def completed(*words, program="tidemark"):
        line = f'. {script}; COMP_WORDS=({program} "$@"); COMP_CWORD=$#; _tidemark; printf "%s\\n" "${{COMPREPLY[@]}}"'
        return run("-c", line, "bash", *words, program=bash).works().out.split()

    equal(completed(""), [*LINES, "help", "--help", "--version"])
    equal(completed("help", ""), list(LINES))
    equal(completed("machi"), ["machines"])
    equal(completed("", program="bin/tidemark-mpi"), ["survey", "--help", "--version"])
    equal(completed("survey", "--mem", program="tidemark-mpi"), ["--memory"])
    for verb in LINES:
        equal(completed(verb, "--"), [f"--{name}" for _, name, _ in options_of(verb)], f"options of {verb}")
        equal(completed(verb, "--color", "a"), ["auto", "always"])
    equal(completed("convert", "--to", "p"), ["pickle", "pprof"])
    equal(completed("convert", "--to", "=", "rm"), ["rmm"])
    equal(completed("convert", "--to", "="), "pickle json tide rmm minimalloc chrome folded pprof".split())
    equal(completed("convert", "x"), [])


def test_zsh_completion(folder: str) -> None:
    text = run("--completion", "zsh").works().out
    check(text.startswith("#compdef tidemark tidemark-mpi\n"), text[:40])
    for verb in LINES:
        check(f"\n    {verb})\n" in text and f"\n  '{verb}:" in text, f"there is no {verb}")
        for _, name, _ in options_of(verb):
            check(f"--{name}" in text, f"there is no --{name} of {verb}")
    zsh = shutil.which("zsh")
    if not zsh:
        raise Skip("there is no zsh")
    run("-f", "-n", write(f"{folder}/_tidemark", text.encode()), program=zsh).works()


def test_there_is_no_completion_for_other_shells() -> None:
    run("--completion", "fish").fails("bash and zsh")
    run("--completion").fails("unknown option '--completion'")


if __name__ == "__main__":
    harness.main()
