# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Memory that PyTorch programs reserve, with real memory on host machines. What is reserved is what the machines have given."""
import os
import unittest
import warnings
from unittest import mock

import host_torch
import tidemark.torch
from tidemark import TidemarkError
from tidemark.torch import doctor, reserves

MIB = 1 << 20


class Reserves(unittest.TestCase):
    def setUp(self):
        self.torch = host_torch.put_in_place(self)

    def used(self, index=0):
        return self.torch.shim.cache(index).used()

    def begin(self, size):
        """What install(reserve=...) does. The thread ends with the test, as it does with the process."""
        with mock.patch("atexit.register"):
            start = reserves.begin(self.torch, self.torch.shim, size)
            self.addCleanup(lambda: start.thread.ident is None or start.end())
            self.torch.cuda.init()
        return start

    def test_a_call_reserves_what_tensors_need_later(self):
        tidemark.torch.reserve("60MiB")
        self.assertEqual(self.used(), 60 * MIB)
        kept = [self.torch.make(10 * MIB, number) for number in range(6)]
        self.assertEqual(self.used(), 60 * MIB)
        self.assertTrue(all(each.has(number) for number, each in enumerate(kept)))

    def test_a_device_can_be_named(self):
        tidemark.torch.reserve(30 * MIB, device=1)
        self.assertEqual((self.used(0), self.used(1)), (0, 30 * MIB))

    def test_the_only_device_is_reserved_from_when_cuda_begins(self):
        with mock.patch.object(self.torch.cuda, "device_count", lambda: 1):
            start = self.begin(40 * MIB)
            start.thread.join()
        self.assertEqual(self.used(), 40 * MIB)

    def test_of_several_devices_it_is_the_first_that_is_used(self):
        start = self.begin(40 * MIB)
        self.assertTrue(start.thread.is_alive())
        kept = self.torch.make(2 * MIB, 1, device=1)
        start.thread.join()
        self.assertEqual((self.used(0), self.used(1)), (0, 42 * MIB))
        del kept

    def test_a_process_that_uses_none_ends(self):
        start = self.begin(40 * MIB)
        start.end()
        self.assertEqual(self.torch.shim.caches, {})

    def test_a_limit_is_a_warning(self):
        self.torch.shim.cache(0).set_limit(20 * MIB)
        with warnings.catch_warnings(record=True) as said, mock.patch.dict(os.environ, {"TIDEMARK_WARNED": ""}):
            warnings.simplefilter("always")
            self.begin(40 * MIB).thread.join()
        self.assertEqual(self.used(), 20 * MIB)
        self.assertTrue(any(f"{20 * MIB} of {40 * MIB} bytes" in str(each.message) for each in said), said)
        with self.assertRaisesRegex(TidemarkError, "a limit"):
            tidemark.torch.reserve("1GiB")

    def test_cuda_that_begins_twice_reserves_once(self):
        start = self.begin(40 * MIB)
        start.begin()
        self.torch.make(2 * MIB, 1)
        start.thread.join()
        self.assertEqual(self.used(), 42 * MIB)

    def test_the_environment_names_a_size(self):
        for text, meant in (("", None), (" ", None), ("4096", 4096), ("1.5 GiB", 3 << 29)):
            with mock.patch.dict(os.environ, {"TIDEMARK_RESERVE": text}):
                self.assertEqual(reserves.from_environment(), meant)
        with mock.patch.dict(os.environ, {"TIDEMARK_RESERVE": "much"}):
            with self.assertRaisesRegex(ValueError, "TIDEMARK_RESERVE: 'much' is not a size"):
                reserves.from_environment()
        self.assertIn("TIDEMARK_RESERVE", doctor.VARIABLES)

    def test_a_memo_is_one_warning(self):
        with warnings.catch_warnings(record=True) as said, \
                mock.patch.dict(os.environ, {"TIDEMARK_WARNED": "", "TIDEMARK_MEMO": "/tmp/memo"}):
            warnings.simplefilter("always")
            for _ in range(2):
                self.assertIsNone(reserves.from_environment())
        self.assertEqual(["TIDEMARK_RESERVE" in str(each.message) for each in said], [True])

    def test_nothing_happens_if_tidemark_is_off(self):
        off = tidemark.torch.Installation("", "", "off", None, False)
        with mock.patch.object(tidemark.torch, "_installed", off):
            tidemark.torch.reserve("60MiB")
        self.assertEqual(self.torch.shim.caches, {})
