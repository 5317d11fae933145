# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Runs files of unittest as tests/harness.py runs tests: each with a line and its time, skips with a reason, in both tiers."""
from __future__ import annotations

import sys
import unittest
from types import TracebackType
from typing import Any, NoReturn

import harness

Error = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]

# Marks a test whose price is fixed: only the thorough tier runs it.
slow = unittest.skipUnless(harness.is_thorough(), "only in the thorough tier")


class Result(unittest.TestResult):
    def __init__(self, report: harness.Report) -> None:
        super().__init__()
        self.report = report

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.report.begin()

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.report.ok(test.id())

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.report.skip(test.id(), reason)

    def addError(self, test: unittest.TestCase, err: Error) -> None:
        self.report.fail(test.id(), err[1] or Exception())

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Error | None) -> None:
        if err is not None:
            self.report.fail(subtest.id(), err[1] or Exception(), again=test.id())

    addFailure = addError


def main(folder: str, parts: list[str], *command: str) -> NoReturn:
    """Runs the tests of a folder whose name has one of the parts; see harness.Report for the command."""
    loader = unittest.TestLoader()
    loader.testNamePatterns = [f"*{part}*" for part in parts] or None
    suite: Any = loader.discover(folder, top_level_dir=folder)
    if not suite.countTestCases():
        sys.exit(f"no test has a name with {parts}")
    result = Result(harness.Report(*command))
    suite.run(result)
    result.report.end()
