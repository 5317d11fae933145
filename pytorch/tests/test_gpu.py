# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""PyTorch on Tidemark, on a GPU: the cases of cases.py under both policies, each process with a time limit.

TIDEMARK_TEST_POLICIES names the policies. With TIDEMARK_TEST_JOBS all processes begin at once, so many at a time; cases of
parking and budgets need the device for themselves and do not run then. TIDEMARK_TEST_PAIR_SECONDS (20) is how long two
processes share a ledger.
"""
import concurrent.futures
import functools
import json
import os
import pathlib
import subprocess
import sys
import unittest

import budget_cases
import cases
import park_cases

HERE = pathlib.Path(__file__).resolve().parent
POLICIES = os.environ.get("TIDEMARK_TEST_POLICIES", "tide,torch").split(",")
JOBS = int(os.environ.get("TIDEMARK_TEST_JOBS", "1"))
pool = concurrent.futures.ThreadPoolExecutor(JOBS)


@functools.lru_cache(maxsize=None)
def why_not():
    """Why these tests cannot run; empty if they can."""
    try:
        import torch
    except ImportError:
        return "there is no PyTorch"
    if torch.version.cuda is None:
        return "this PyTorch has no CUDA"
    return "" if torch.cuda.device_count() > 0 else "there is no GPU"


def run(policy, *names):
    """Runs cases in a process; returns their answers, the status, and the output.

    After a crash the rest goes on, unless not even the first case began.
    """
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, str(HERE / "cases.py"), policy, *names]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    except subprocess.TimeoutExpired as late:
        return {}, -1, f"no end after {late.timeout} s: {late.stdout}"
    lines = [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("CASE ")]
    answers = {line["case"]: line for line in lines}
    text = done.stdout + done.stderr
    left = [name for name in names if name not in answers]
    if len(left) > 1 and "BEGIN " in done.stdout:
        answers[left[0]] = {"case": left[0], "ok": False, "text": f"status {done.returncode}: {text[-4000:]}"}
        answers.update(run(policy, *left[1:])[0])
    return answers, done.returncode, text


@functools.lru_cache(maxsize=None)
def begun(policy, *names, turn=0):
    """Cases that run in a process of their own, now or later."""
    return pool.submit(run, policy, *names)


class OnGpu(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for policy in POLICIES if JOBS > 1 and not why_not() else []:
            for group in groups(policy):
                begun(policy, *group)
            begun(policy, "losses")

    def setUp(self):
        if why_not():
            self.skipTest(why_not())

    def check_case(self, policy, name, names, turn=0):
        answers, status, text = begun(policy, *names, turn=turn).result()
        self.assertIn(name, answers, f"status {status}: {text}")
        self.assertTrue(answers[name]["ok"], answers[name].get("text"))
        if "skip" in answers[name]:
            self.skipTest(answers[name]["skip"])
        return answers[name].get("value")

    def test_losses_are_those_of_the_native_allocator(self):
        first = self.check_case("native", "losses", ["losses"])
        if self.check_case("native", "losses", ["losses"], turn=1) != first:
            self.skipTest("two native runs differ")
        for policy in POLICIES:
            self.assertEqual(self.check_case(policy, "losses", ["losses"]), first, policy)

    def test_process_ends_well_with_everything_alive(self):
        for policy in POLICIES:
            self.check_case(policy, "live_at_exit", ["live_at_exit"])
            _, status, text = begun(policy, "live_at_exit").result()
            self.assertEqual(status, 0, text)


def groups(policy):
    """The names of cases that run in one process, for each process."""
    together, alone = [cases.TOGETHER], cases.ALONE[:-1]
    if policy == "tide" and JOBS == 1:
        together += [park_cases.TOGETHER, budget_cases.TOGETHER]
        alone = alone + park_cases.ALONE + budget_cases.ALONE
    return [tuple(case.__name__ for case in group) for group in together + [[case] for case in alone]]


def add(policy, name, names):
    def test(self):
        self.check_case(policy, name, names)
    test.__doc__ = cases.CASES[name].__doc__
    setattr(OnGpu, f"test_{policy}_{name}", test)


for each_policy in POLICIES:
    for each_group in groups(each_policy):
        for each_name in each_group:
            add(each_policy, each_name, each_group)
