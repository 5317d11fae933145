# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""PyTorch on Tidemark, on a GPU: the cases of cases.py under both policies, each process with a time limit."""
import functools
import json
import os
import pathlib
import subprocess
import sys
import unittest

import cases

HERE = pathlib.Path(__file__).resolve().parent
POLICIES = os.environ.get("TIDEMARK_TEST_POLICIES", "tide,torch").split(",")


@functools.lru_cache(maxsize=None)
def why_not():
    """Why nothing here can run; empty: it can."""
    try:
        import torch
    except ImportError:
        return "there is no PyTorch"
    if torch.version.cuda is None:
        return "this PyTorch has no CUDA"
    return "" if torch.cuda.device_count() > 0 else "there is no GPU"


@functools.lru_cache(maxsize=None)
def run(policy, *names):
    """Runs cases in a process; their answers, the status, and what was printed."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, str(HERE / "cases.py"), policy, *names]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    except subprocess.TimeoutExpired as late:
        return {}, -1, f"no end after {late.timeout} s: {late.stdout}"
    lines = [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("CASE ")]
    return {line["case"]: line for line in lines}, done.returncode, done.stdout + done.stderr


class OnGpu(unittest.TestCase):
    def setUp(self):
        if why_not():
            self.skipTest(why_not())

    def check_case(self, policy, name, names):
        answers, status, text = run(policy, *names)
        self.assertIn(name, answers, f"status {status}: {text}")
        self.assertTrue(answers[name]["ok"], answers[name].get("text"))
        return answers[name].get("value")

    def test_losses_are_those_of_the_native_allocator(self):
        first = self.check_case("native", "losses", ["losses"])
        run.cache_clear()
        if self.check_case("native", "losses", ["losses"]) != first:
            self.skipTest("two native runs differ")
        for policy in POLICIES:
            self.assertEqual(self.check_case(policy, "losses", ["losses"]), first, policy)

    def test_process_ends_well_with_everything_alive(self):
        for policy in POLICIES:
            self.check_case(policy, "live_at_exit", ["live_at_exit"])
            _, status, text = run(policy, "live_at_exit")
            self.assertEqual(status, 0, text)


def add(policy, case, names):
    def test(self):
        self.check_case(policy, case.__name__, names)
    test.__doc__ = case.__doc__
    setattr(OnGpu, f"test_{policy}_{case.__name__}", test)


for each_policy in POLICIES:
    for each_case in cases.TOGETHER:
        add(each_policy, each_case, tuple(case.__name__ for case in cases.TOGETHER))
    for each_case in cases.ALONE[:-1]:
        add(each_policy, each_case, (each_case.__name__,))
