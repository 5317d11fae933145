# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Memos as PyTorch programs load and save them, with real memory on host machines."""
import os
import pathlib
import tempfile
import unittest
import warnings
from unittest import mock

import host_torch
import tidemark.torch
from tidemark import TidemarkError
from tidemark.torch import memos

MIB = 1 << 20


class Memos(unittest.TestCase):
    def setUp(self):
        self.torch = host_torch.put_in_place(self)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "memo-{device}")

    def written(self, index=0):
        return pathlib.Path(self.path.format(device=index))

    def keep(self):
        """What install(memo=...) does, up to the end of the program; returns what runs then."""
        ends = []
        with mock.patch("atexit.register", lambda function, *given: ends.append((function, given))):
            memos.keep(self.torch, self.path)
            self.torch.cuda.init()
        return lambda: [function(*given) for function, given in ends]

    def test_a_memo_lists_what_a_run_had(self):
        kept = self.torch.make(60 * MIB, 1)
        tidemark.torch.save_memo(self.path)
        lines = self.written().read_text().splitlines()
        self.assertEqual(lines[0], "tidemark memo 2")
        self.assertEqual(lines[1], f"peak {60 * MIB}")
        handles = [line.split() for line in lines if line.startswith("handles ")]
        self.assertEqual(sum(int(count) * int(size) for _, count, size in handles), 60 * MIB)
        self.assertEqual(lines[-1], "end")
        tidemark.torch.load_memo(self.path)
        del kept

    def test_a_first_run_writes_a_memo_and_a_second_one_loads_it(self):
        end = self.keep()
        kept = self.torch.make(60 * MIB, 1)
        self.assertFalse(self.written().exists())
        end()
        self.assertTrue(self.written().read_text().endswith("end\n"))
        tidemark.torch.load_memo(self.path)
        del kept

    def test_a_damaged_memo_is_a_warning_and_is_replaced(self):
        self.written().write_text("something else\n")
        with warnings.catch_warnings(record=True) as said, mock.patch.dict(os.environ, {"TIDEMARK_WARNED": ""}):
            warnings.simplefilter("always")
            end = self.keep()
        self.assertTrue(any("is not a memo" in str(each.message) for each in said), said)
        kept = self.torch.make(60 * MIB, 1)
        end()
        self.assertIn("handles", self.written().read_text())
        del kept

    def test_errors_have_a_name(self):
        with self.assertRaises(FileNotFoundError):
            tidemark.torch.load_memo(self.path)
        self.written().write_text("something else\n")
        with self.assertRaisesRegex(TidemarkError, "is not a memo"):
            tidemark.torch.load_memo(self.path)
        with self.assertRaises(TidemarkError):
            tidemark.torch.save_memo("/nowhere/at/all")

    def test_the_environment_names_a_memo(self):
        for text, meant in (("", None), (" ", None), ("/tmp/memo", "/tmp/memo")):
            with mock.patch.dict(os.environ, {"TIDEMARK_MEMO": text}):
                self.assertEqual(memos.from_environment(), meant)

    def test_nothing_happens_if_tidemark_is_off(self):
        off = tidemark.torch.Installation("", "", "off", None, False)
        with mock.patch.object(tidemark.torch, "_installed", off):
            tidemark.torch.load_memo(self.path)
            tidemark.torch.save_memo(self.path)
        self.assertFalse(self.written().exists())
