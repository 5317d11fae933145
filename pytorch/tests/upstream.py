# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Runs PyTorch's own allocator tests natively and on Tidemark, and compares the results.

    upstream.py PATH/test_cuda.py [--policies tide,torch] [--out FILE] [--seconds S] [--jobs N] [PATTERN ...]

The file is PyTorch's, of the version that is installed; it is not part of Tidemark. A pattern is a part of
Class.test; without any, the tests below. Each class runs in a process of its own, several at once; a test that
crashes or hangs ends its process, and the others go on in a new one. Many tests depend on what those before
them left: one that fails is run once more alone, and that counts. Results are kept in files: what is there is
not run again, so PyTorch's own results are taken once, and used for every policy.
"""
from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import glob
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import types
import unittest
from typing import Any, Iterator, Optional

HERE = pathlib.Path(__file__).resolve().parent
TEST_SECONDS = 120  # the time limit of one test
CLASSES = ("TestCuda", "TestCudaMallocAsync", "TestBlockStateAbsorption", "TestMemPool",
           "TestCachingHostAllocatorCudaGraph", "TestFXMemoryProfiler")
# The tests of TestCuda that are about memory, and all of TestCudaMallocAsync but those about other things.
ABOUT_MEMORY = ("memory", "record_stream", "graph", "cublas_workspace", "host_memory", "pinned", "non_blocking", "mempool")
OTHER_THINGS = ("nvml", "temperature", "device_memory_used", "power_draw", "clock_speed", "amdsmi", "uuid",
                "direct_traceback", "cycles")
# Tests that look at the whole GPU or use half of it, and so must run alone.
GREEDY = ("cublas_workspace_memory", "out_of_memory_retry", "per_process_memory_fraction")
# Intended differences of a policy, and the tests that notice them; see docs/pytorch.md.
OTHERWISE = {
    "tide": {
        "TestCuda.test_graph_memory_stats_and_use_result_after_destroy_graph": "counts segments of cudaMalloc",
        "TestBlockStateAbsorption.test_allocate_in_thread_to_pool": "counts segments of cudaMalloc",
        "TestCuda.test_host_memory_stats": "expects pinned memory in powers of two",
        "TestMemPool.test_nested_mempool": "counts segments of cudaMalloc",
        "TestMemPool.test_mempool_no_split": "expects idle memory behind a block in a segment of 20 MiB",
    },
}


def is_ours(name: str) -> bool:
    """Is a test, as Class.test, about the allocator?"""
    kind, test = name.split(".", 1)
    if kind == "TestCuda":
        return any(part in test for part in ABOUT_MEMORY)
    return kind in CLASSES and not any(part in test for part in OTHER_THINGS)


# ---------------------------------------------------------------------------------------------------
# The process that runs the tests


def stand_in_for_packages() -> None:
    """PyTorch's test classes import these modules, but only tests that are not run here need them."""
    for name in ("expecttest", "psutil"):
        if importlib.util.find_spec(name) is None:
            module = types.ModuleType(name)
            module.TestCase = unittest.TestCase  # type: ignore[attr-defined]
            sys.modules[name] = module


def each_test(suite: Any) -> Iterator[unittest.TestCase]:
    """The tests of a suite of suites."""
    for test in suite:
        if isinstance(test, unittest.TestCase):
            yield test
        else:
            yield from each_test(test)


def name_of(test: unittest.TestCase) -> str:
    """The name of a test, as Class.test."""
    return ".".join(test.id().split(".")[-2:])


class Lines(unittest.TestResult):
    """Writes a line when a test begins, and one when it ends."""

    def __init__(self, path: str, is_alone: bool) -> None:
        super().__init__()
        self.path = path
        self.is_alone = is_alone
        self.began = 0.0

    def say(self, test: unittest.TestCase, state: str, text: str = "") -> None:
        line = {"test": name_of(test), "state": state, "text": text[-1500:], "alone": self.is_alone,
                "s": round(time.monotonic() - self.began, 2)}
        write(self.path, line)

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.began = time.monotonic()
        self.say(test, "began")

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.say(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.say(test, "skipped", reason)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.say(test, "failed", self._exc_info_to_string(err, test))  # type: ignore[attr-defined]

    addError = addFailure

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.say(test, "passed")

    def addSubTest(self, test: unittest.TestCase, subtest: Any, err: Any) -> None:
        if err is not None:
            self.addFailure(test, err)


def write(path: str, line: dict[str, Any]) -> None:
    """Adds a line to a file of results."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def run_here(path: str, policy: str, out: str, kind: str, alone: str, done: list[str], patterns: list[str]) -> None:
    """Runs the tests of a class that are not done, or one alone."""
    sys.path[:0] = [str(HERE.parent), str(pathlib.Path(path).parent)]
    stand_in_for_packages()
    if policy != "native":
        import tidemark.torch
        tidemark.torch.install(policy, way="class")
    spec = importlib.util.spec_from_file_location("test_cuda", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["test_cuda"] = module
    spec.loader.exec_module(module)
    result = Lines(out, bool(alone))
    for test in each_test(unittest.defaultTestLoader.loadTestsFromTestCase(getattr(module, kind))):
        name = name_of(test)
        wanted = any(part in name for part in patterns) if patterns else is_ours(name)
        if name == alone or (not alone and wanted and name not in done):
            test.run(result)
    if not alone:
        write(out, {"test": kind, "state": "end"})


# ---------------------------------------------------------------------------------------------------
# The process that controls it


@dataclasses.dataclass
class Job:
    """The tests under one policy; results are in OUT-POLICY.jsonl or, for a class, in OUT-POLICY.CLASS.jsonl."""
    path: str
    policy: str
    out: str
    patterns: list[str]
    deadline: float
    workers: int

    def file(self, kind: str) -> str:
        return f"{self.out}-{self.policy}.{kind}.jsonl"

    def lines(self) -> Iterator[dict[str, Any]]:
        base = glob.escape(f"{self.out}-{self.policy}")
        for path in sorted(glob.glob(base + ".jsonl") + glob.glob(base + ".*.jsonl")):
            with open(path, encoding="utf-8") as file:
                yield from map(json.loads, file)

    def results(self) -> dict[str, dict[str, Any]]:
        """The result of each test. The result of a run alone wins; otherwise a failure wins."""
        states: dict[str, dict[str, Any]] = {}
        for line in self.lines():
            old = states.get(line["test"], {})
            is_mended = line["state"] == "passed" and old.get("state") == "failed"
            if line["state"] in ("passed", "failed", "skipped") and (line.get("alone") or not is_mended):
                states[line["test"]] = line
        return states

    def stuck(self, kind: str, alone: str) -> list[str]:
        """The tests that a process began and did not end."""
        last = {line["test"]: line["state"] for line in self.lines()}
        return [name for name, state in last.items()
                if state == "began" and (name == alone if alone else name.startswith(kind + "."))]

    def is_ended(self, kind: str) -> bool:
        return any(line["state"] == "end" and line["test"] in ("", kind) for line in self.lines())

    def has_time(self) -> bool:
        return time.monotonic() < self.deadline


def wait(process: subprocess.Popen[bytes], out: str, deadline: float) -> Optional[str]:
    """Waits for the end of a process; returns why it was killed, or None."""
    seen, since = -1, time.monotonic()
    while process.poll() is None:
        size = os.path.getsize(out) if os.path.exists(out) else 0
        if size != seen:
            seen, since = size, time.monotonic()
        why = "no time left" if time.monotonic() > deadline else "hung" if time.monotonic() - since > TEST_SECONDS else None
        if why is not None:
            process.kill()
            process.wait()
            return why
        time.sleep(0.2)
    return None


def run_process(job: Job, kind: str, alone: str) -> bool:
    """Runs a process of tests, and notes the test in which it died. False if it did nothing."""
    done = [] if alone else list(job.results())
    out = job.file(kind)
    arguments = [job.path, job.policy, out, kind, alone, done, job.patterns]
    command = [sys.executable, __file__, "--here", json.dumps(arguments)]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as log:
        # Tests build extensions with equal names and different contents, and tests that run alone run in parallel.
        environment = dict(os.environ, TORCH_EXTENSIONS_DIR=folder) if alone else None
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=pathlib.Path(job.path).parent, env=environment)
        why = wait(process, out, job.deadline)
        log.seek(0)
        text = log.read().decode(errors="replace")[-1500:]
    text = f"{why or f'status {process.returncode}'}: {text}"
    stuck = job.stuck(kind, alone)
    for name in stuck:
        state = "not run" if why == "no time left" else "failed"
        write(out, {"test": name, "state": state, "alone": bool(alone), "text": text})
    is_done = bool(stuck) or bool(alone) or job.is_ended(kind)
    if not is_done:
        print(f"{job.policy}: {kind}: no test ran to its end: {text}")
    return is_done


def run_class(job: Job, kind: str) -> None:
    """Runs the tests of a class, in as many processes as it takes."""
    while not job.is_ended(kind) and job.has_time():
        if not run_process(job, kind, ""):
            break


def run_alone(job: Job, name: str) -> None:
    """Runs a test in a process of its own, if there is time."""
    if job.has_time():
        run_process(job, name.split(".")[0], name)


def run_all(job: Job) -> dict[str, dict[str, Any]]:
    """Runs all tests under a policy: the classes, and then alone what failed."""
    with concurrent.futures.ThreadPoolExecutor(job.workers) as pool:
        list(pool.map(lambda kind: run_class(job, kind), CLASSES))
        failed = [name for name, line in job.results().items() if line["state"] == "failed" and not line.get("alone")]
        modest = [name for name in failed if not any(part in name for part in GREEDY)]
        list(pool.map(lambda name: run_alone(job, name), modest))
    for name in failed:
        if name not in modest:
            run_alone(job, name)
    return job.results()


def why_failed(text: str) -> str:
    """The message of the last exception in a text, or its last line."""
    found = re.findall(r"^[\w.]*(?:Error|Exception)\b.*?(?=\n\nTo execute|\Z)", text.strip(), re.MULTILINE | re.DOTALL)
    words = found[-1] if found else text.strip().splitlines()[-1] if text.strip() else ""
    return " ".join(words.split())[:200]


def compare(native: dict[str, dict[str, Any]], ours: dict[str, dict[str, Any]], policy: str) -> int:
    """Prints what passes natively and fails here; returns how many fail unexpectedly or were not run."""
    passed = sorted(name for name, line in native.items() if line["state"] == "passed")
    failed = [name for name in passed if ours.get(name, {}).get("state") not in (None, "passed")]
    good = [name for name in passed if ours.get(name, {}).get("state") == "passed"]
    known = OTHERWISE.get(policy, {})
    missing = len(passed) - len(good) - len(failed)
    print(f"{policy}: of {len(passed)} tests that pass natively {len(good)} pass, {len(failed)} fail, "
          f"{missing} were not run")
    for name in failed:
        remark = f" (on purpose: {known[name]})" if name in known else ""
        how = "" if ours[name].get("alone") else ", not repeated alone"
        print(f"  {name}: {ours[name]['state']}{how}: {why_failed(ours[name]['text'])}{remark}")
    others = sorted(name for name, line in native.items() if line["state"] == "failed")
    print(f"  {len(others)} fail natively, and of these pass here: "
          f"{', '.join(name for name in others if ours.get(name, {}).get('state') == 'passed') or 'none'}")
    return missing + len([name for name in failed if name not in known])


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="?")
    parser.add_argument("patterns", nargs="*")
    parser.add_argument("--policies", default="tide,torch")
    parser.add_argument("--out", default="upstream", help="where results are kept; what is there is not run again")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--jobs", type=int, default=5, help="how many processes at once")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    parsed = parser.parse_intermixed_args()
    if parsed.here:
        run_here(*json.loads(parsed.here))
        return
    if parsed.path is None:
        parser.error("no test_cuda.py is given")
    path, deadline = str(pathlib.Path(parsed.path).resolve()), time.monotonic() + parsed.seconds
    policies = parsed.policies.split(",")
    jobs = {policy: Job(path, policy, os.path.abspath(parsed.out), parsed.patterns, deadline, parsed.jobs)
            for policy in ["native", *policies]}
    # If there are native results, most of them exist already: then ours come first.
    for policy in [*policies, "native"] if jobs["native"].results() else ["native", *policies]:
        run_all(jobs[policy])
    sys.exit(1 if sum(compare(jobs["native"].results(), jobs[each].results(), each) for each in policies) else 0)


if __name__ == "__main__":
    main()
