#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Compares what the tidemark command says with an independent computation from the same recordings.

snapshot.py computes the truth from pickles, with Python's own pickle and without Tidemark. Recordings come from
tests/data (converted to pickles), from traces/ of TIDEMARK_DATA where that is, and from generate.py with fixed seeds. At
a scale of 10 and more, the longest recordings are compared as well. Nothing here depends on the speed of the computer.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import harness
import test_consistency
import test_facts
import test_predictions

if __name__ == "__main__":
    harness.main(test_facts, test_predictions, test_consistency)
