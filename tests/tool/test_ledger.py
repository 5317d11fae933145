#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Tests `tidemark ledger`, and what `tidemark top` shows of ledgers, with real processes that are members.

They are those of tests/quota/member.c. The truth comes from what the tests tell them to take.
"""
import os
import pathlib
import re
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import harness
from harness import check, equal
from peers import Peer, wait_until
from verbs import section_of

GIB = 1 << 30


def run(*words, **more):
    return harness.run(*words, **more).works().out


def refused(*words, part=""):
    answer = harness.run("ledger", *words)
    answer.fails(part)
    check(answer.err.startswith("tidemark ledger: ") and "quota_" not in answer.err, answer.err)


def look(ledger):
    return harness.run("ledger", "show", ledger, "--json").works().json()


class Member(Peer):
    def __init__(self, ledger, total=64 * GIB, guarantee=0, limit="none", priority=0, wait_ms=0, name="job"):
        super().__init__("quota_member", ledger, total, guarantee, limit, priority, wait_ms, name)
        equal(self.hear(), ("TIDE_OK", 0), "the answer to joining")

    def hear(self):
        status, held = self.line().split()
        return status, int(held)

    def say(self, line):
        self.tell(line)
        return self.hear()


def row_of(said, pid):
    found = [row for row in said["members"] if row["pid"] == pid]
    equal(len(found), 1, f"the number of members with pid {pid}")
    return found[0]


# ---------------------------------------------------------------------------------------------------


def test_json_says_what_the_members_hold(folder):
    ledger = f"{folder}/gpu0"
    with Member(ledger, guarantee=4 * GIB, priority=-3, name="a") as one, Member(ledger, limit=8 * GIB) as other:
        equal(one.say(f"take {10 * GIB}"), ("TIDE_OK", 10 * GIB))
        equal(one.say(f"give {3 * GIB}"), ("TIDE_OK", 7 * GIB))
        equal(other.say(f"take {9 * GIB}"), ("TIDE_ERR_LIMIT", 0))
        equal(other.say(f"take {8 * GIB}"), ("TIDE_OK", 8 * GIB))
        said = look(ledger)
        equal([(row["ledger"], row["path"], row["total_bytes"], row["held_bytes"], row["free_bytes"],
                row["guarantee_bytes"], row["members"], row["is_damaged"]) for row in said["ledgers"]],
              [("gpu0", ledger, 64 * GIB, 15 * GIB, 49 * GIB, 4 * GIB, 2, False)])
        row = row_of(said, one.pid)
        want = {"ledger": "gpu0", "name": "a", "priority": -3, "held_bytes": 7 * GIB, "peak_bytes": 10 * GIB,
                "guarantee_bytes": 4 * GIB, "limit_bytes": None, "wanted_bytes": 0, "has_helper": True}
        equal({key: row[key] for key in want}, want)
        equal(row_of(said, other.pid)["limit_bytes"], 8 * GIB)
        equal(row_of(said, other.pid)["failures"], 1)
    equal(look(ledger)["members"], [])


def test_text_has_a_line_for_each(folder):
    ledger = f"{folder}/gpu0"
    with Member(ledger, name="trains") as one, Member(ledger, name="generates"):
        one.say(f"take {GIB}")
        lines = run("ledger", "show", ledger).splitlines()
        check(all(len(line) <= 100 for line in lines), f"long lines: {lines}")
        check(re.match(r"gpu0 +64.00 GiB +1.00 GiB +63.00 GiB +0 B +2$", lines[1]), lines[1])
        check(any(re.match(rf"gpu0 +{one.pid} .* 1.00 GiB .*trains$", line) for line in lines), f"{lines}")
        check(any(line.endswith("generates") for line in lines), f"{lines}")


def test_shares_are_set_at_run_time(folder):
    ledger = f"{folder}/gpu0"
    with Member(ledger) as one, Member(ledger) as other:
        equal(one.say(f"take {20 * GIB}"), ("TIDE_OK", 20 * GIB))
        run("ledger", "set", ledger, "--pid", str(one.pid), "--guarantee", "8GiB", "--priority", "-5")
        row = row_of(look(ledger), one.pid)
        equal((row["guarantee_bytes"], row["limit_bytes"], row["priority"]), (8 * GIB, None, -5))
        run("ledger", "set", ledger, "--pid", str(one.pid), "--limit", "10GiB")
        wait_until(lambda: row_of(look(ledger), one.pid)["held_bytes"] == 10 * GIB)
        run("ledger", "set", ledger, "--pid", str(one.pid), "--limit", "none")
        equal(one.say(f"take {20 * GIB}"), ("TIDE_OK", 30 * GIB))
        run("ledger", "set", ledger, "--total", "24GiB")
        wait_until(lambda: row_of(look(ledger), one.pid)["held_bytes"] == 24 * GIB)
        equal(other.say("take 4096")[0], "TIDE_ERR_NO_MEMORY")


def test_one_that_waits_is_shown_and_served(folder):
    ledger = f"{folder}/gpu0"
    with Member(ledger, name="a") as one, Member(ledger, wait_ms=120000, name="b") as other:
        equal(one.say(f"take {60 * GIB}"), ("TIDE_OK", 60 * GIB))
        one.stop()
        other.tell(f"take {10 * GIB}")
        wait_until(lambda: row_of(look(ledger), other.pid)["wanted_bytes"] == 10 * GIB)
        os.kill(one.pid, signal.SIGCONT)
        equal(other.hear(), ("TIDE_OK", 10 * GIB))
        equal(row_of(look(ledger), one.pid)["held_bytes"], 54 * GIB)
        wait_until(lambda: row_of(look(ledger), one.pid)["given_bytes"] == 6 * GIB)


def test_a_killed_member_is_gone(folder):
    ledger = f"{folder}/gpu0"
    with Member(ledger) as one, Member(ledger) as other:
        one.say(f"take {64 * GIB}")
        equal(other.say("take 4096")[0], "TIDE_ERR_NO_MEMORY")
        one.kill()
        equal([row["pid"] for row in look(ledger)["members"]], [other.pid])
        equal(other.say(f"take {64 * GIB}"), ("TIDE_OK", 64 * GIB))


def test_ledgers_are_made_and_removed(folder):
    ledger = f"{folder}/gpu0"
    run("ledger", "make", ledger, "--total", "64GiB")
    refused("make", ledger, "--total", "64GiB", part="exists")
    with Member(ledger, total=GIB):
        equal(look(ledger)["ledgers"][0]["total_bytes"], 64 * GIB)
        refused("remove", ledger, part="has members")
    equal(harness.run("ledger", "remove", ledger, "--json").works().json(), {"removed": ledger})
    refused("show", ledger, part="there is no ledger")


def test_relative_paths(folder):
    said = harness.run("ledger", "make", "./x", "--total", "1GiB", "--json", cwd=folder).works().json()
    equal(said["ledgers"][0]["path"], f"{os.path.realpath(folder)}/x")


def test_wrong_lines_are_refused_and_change_nothing(folder):
    ledger = f"{folder}/gpu0"
    with Member(ledger, guarantee=4 * GIB) as one:
        before = look(ledger)
        pid = str(one.pid)
        for line in (["foo"], ["make", ledger], ["make", "--total", "1GiB"], ["set", ledger], ["remove"],
                     ["set", ledger, "--pid", pid], ["set", ledger, "--limit", "1GiB"], ["set", ledger, "--total", "x"],
                     ["set", ledger, "--pid", "0", "--limit", "1GiB"], ["set", ledger, "--pid", "1", "--limit", "9GiB"],
                     ["set", ledger, "--pid", pid, "--limit", "5"], ["set", ledger, "--pid", pid, "--priority", "1001"],
                     ["set", ledger, "--pid", pid, "--guarantee", "65GiB"], ["set", ledger, "--total", "3GiB"],
                     ["set", ledger, "--pid", pid, "--limit", "3GiB"], ["show", ledger, "--total", "1GiB"],
                     ["set", ledger, "--total", "9GiB", "--pid", pid, "--limit", "9GiB"], ["show", "a b"],
                     ["show", ledger, "x"], ["show", "./nothing/x"]):
            refused(*line)
        equal(look(ledger), before)


def test_top_shows_ledgers(folder):
    with Member(f"{folder}/ledger-gpu7", name="trains") as one:
        one.say(f"take {2 * GIB}")
        said = harness.run("top", "--json", "--folder", folder).works().json()
        equal([(row["ledger"], row["held_bytes"]) for row in said["ledgers"]], [("gpu7", 2 * GIB)])
        equal(row_of(said, one.pid)["name"], "trains")
        text = run("top", "--once", "--folder", folder)
        check("gpu7" in text and "trains" in text, text)


def test_prometheus_has_ledgers(folder):
    with Member(f"{folder}/ledger-gpu7", guarantee=GIB, limit=8 * GIB, name='a "b"') as one:
        one.say(f"take {2 * GIB}")
        lines = run("top", "--prometheus", "--folder", folder).splitlines()
        labels = f'{{ledger="gpu7",pid="{one.pid}",member="0",name="a \\\"b\\\""}}'
        for name, value in (("held_bytes", 2 * GIB), ("guarantee_bytes", GIB), ("limit_bytes", 8 * GIB), ("waits_total", 0)):
            check(f"tidemark_ledger_{name}{labels} {value}" in lines, f"{name}: {lines[-24:]}")
            check(any(line.startswith(f"# TYPE tidemark_ledger_{name} ") for line in lines), f"no type of {name}")
        check(f'tidemark_ledger_total_bytes{{ledger="gpu7"}} {64 * GIB}' in lines, f"{lines[-24:]}")


def test_the_live_picture_shows_ledgers(folder):
    with Member(f"{folder}/ledger-gpu7", name="trains") as one:
        one.say(f"take {2 * GIB}")
        terminal = harness.Terminal("top", "--folder", folder)
        terminal.wait_for("trains")
        terminal.write(b"q")
        terminal.end()
        check("gpu7" in terminal.seen and "2.00 GiB" in terminal.seen, terminal.seen)


def test_the_manual_names_all_keys(folder):
    named = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"^\.(?:It )?Li (.*)", section_of("ledger"), re.M))))
    with Member(f"{folder}/gpu0"):
        said = look(f"{folder}/gpu0")
        keys = set(said) | set(said["ledgers"][0]) | set(said["members"][0])
        equal(sorted(keys - named), [], "keys that the manual lacks")
        equal(sorted(word for word in named - keys if "_" in word), [], "keys that only the manual has")


if __name__ == "__main__":
    harness.main()
