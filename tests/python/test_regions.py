# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Regions, parking and tensors that grow, as PyTorch programs call them, with real memory on host machines."""
import tempfile
import unittest
from unittest import mock

import host_torch
import tidemark.torch
from tidemark import TidemarkError
from tidemark.device import Parked
from tidemark.torch import regions

MIB = 1 << 20


class WithTorch(unittest.TestCase):
    def setUp(self):
        self.torch = host_torch.put_in_place(self)

    def make(self, tag, value, size=3 * MIB, **options):
        with regions.region(tag, **options):
            return self.torch.make(size, value, options.get("device"))

    def cache(self, index=0):
        return self.torch.shim.caches[index]


class Parking(WithTorch):
    def test_contents_come_back_at_the_same_addresses(self):
        for value, kind in enumerate(("pinned", "pageable", "file"), 1):
            with self.subTest(kind), tempfile.TemporaryDirectory() as folder:
                tensor = self.make(f"t/{kind}", value, backup=kind)
                parked = regions.park(f"t/{kind}", folder=folder)
                self.assertEqual((parked.pools, parked.block_bytes, parked.copied_bytes), (1, 3 * MIB, 3 * MIB))
                self.assertEqual(regions.tags()[f"t/{kind}"]["reserved_bytes"], 0)
                self.assertEqual(regions.unpark(f"t/{kind}", wait=True).lost, ())
                self.assertTrue(tensor.has(value))

    def test_without_a_backup_the_memory_is_usable(self):
        tensor = self.make("t", 7, backup=None)
        self.assertEqual(regions.park("t").copied_bytes, 0)
        regions.unpark("t")
        tensor.fill(8)
        self.assertTrue(tensor.has(8))

    def test_park_can_choose_another_backup(self):
        tensor = self.make("t", 7, backup=None)
        self.assertEqual(regions.park("t", backup="pageable").copied_bytes, 3 * MIB)
        regions.unpark("t", wait=True)
        self.assertTrue(tensor.has(7))
        self.assertEqual(regions.park("t", backup=None).copied_bytes, 0)

    def test_a_wrong_name(self):
        with self.assertRaisesRegex(KeyError, "no memory has the tag 'w'"):
            regions.park("w")
        for call in (regions.park, regions.unpark, regions.trim_backups, regions.prepare_backup):
            call()  # there is no tag at all
        with self.assertRaisesRegex(ValueError, "backup must be"), regions.region("w", backup="pined"):
            pass
        self.make("w", 1)
        with self.assertRaisesRegex(ValueError, "backup must be"):
            regions.park("w", backup="disk")
        self.assertEqual(regions.tags()["w"]["parked_pool_count"], 0)

    def test_a_tensor_in_a_parked_region(self):
        self.make("t", 7)
        regions.park("t", unpark_on_request=False)
        with self.assertRaises(AssertionError):
            self.make("t", 8)
        regions.unpark("t")
        regions.park("t")
        self.make("t", 8)
        self.assertEqual(regions.tags()["t"]["parked_pool_count"], 0)

    def test_backups_ahead_and_kept(self):
        tensor = self.make("t", 7, backup="pageable")
        regions.prepare_backup("t")
        self.assertEqual(regions.tags()["t"]["backup_bytes"], 3 * MIB)
        regions.park("t")
        regions.unpark("t", keep_backup=True)
        self.assertEqual(regions.tags()["t"]["backup_bytes"], 3 * MIB)
        regions.trim_backups("t")
        self.assertEqual(regions.tags()["t"]["backup_bytes"], 0)
        self.assertTrue(tensor.has(7))

    def test_several_devices(self):
        here, there = self.make("t", 1), self.make("t", 2, device=1)
        self.assertEqual(regions.park("t").pools, 2)
        self.assertEqual(regions.unpark("t", device=1, wait=True).pools, 1)
        self.assertTrue(there.has(2))
        self.assertEqual((regions.tags(0)["t"]["parked_pool_count"], regions.tags(1)["t"]["parked_pool_count"]), (1, 0))
        self.assertEqual(regions.unpark(wait=True).pools, 1)
        self.assertTrue(here.has(1))

    def test_a_device_that_is_not_in_use_gets_no_allocator(self):
        self.make("t", 1)
        regions.park()
        self.assertEqual(list(self.torch.shim.caches), [0])

    def test_without_tidemark(self):
        with mock.patch.object(tidemark.torch, "_shim", None):
            for call in (regions.park, regions.tags, lambda: regions.growable((1,))):
                with self.assertRaisesRegex(RuntimeError, "install"):
                    call()
        with self.assertRaisesRegex(RuntimeError, "no allocator for device 7"):
            regions.tags(7)


class Graphs(WithTorch):
    def test_the_memory_of_a_graph_has_a_tag(self):
        captured = self.torch.cuda.CUDAGraph()
        regions.of_device()
        with regions.graph(captured, tag="graphs", backup="pinned", capture_error_mode="thread_local"):
            tensor = self.torch.make(3 * MIB, 7)
        self.assertEqual(regions.tags()["graphs"]["allocation_count"], 1)
        self.assertEqual(regions.park("graphs").copied_bytes, 3 * MIB)
        regions.unpark("graphs", wait=True)
        self.assertTrue(tensor.has(7))

    def test_nothing_is_parked_while_a_graph_is_captured(self):
        self.make("t", 1)
        with self.assertRaises(TidemarkError), regions.graph(self.torch.cuda.CUDAGraph(), tag="graphs"):
            regions.park("t")
        self.assertEqual(list(regions.tags()), ["t"])
        self.assertEqual(regions.park("t").pools, 1)


class Growing(WithTorch):
    def grown(self, rows, **options):
        return regions.growable((64, 1024, 256), self.torch.float32, rows=rows, **options)  # 1 MiB for each row

    def test_it_grows_and_shrinks_at_its_address(self):
        cache = self.grown(3)
        first = cache.tensor
        self.assertEqual((first.shape, cache.rows), ((3, 1024, 256), 3))
        first.fill(5)
        address = first.data_ptr()
        for rows in (10, 64, 7, 64, 3):
            tensor = cache.resize(rows)
            self.assertEqual((tensor.data_ptr(), tensor.shape), (address, (rows, 1024, 256)))
            tensor[3:].fill(rows)
            self.assertTrue(first.has(5))
            self.assertGreaterEqual(cache.committed_bytes, rows * MIB)
        self.assertLess(cache.committed_bytes, 16 * MIB)

    def test_no_rows(self):
        cache = self.grown(0)
        self.assertEqual(cache.tensor.shape, (0, 1024, 256))
        cache.resize(9).fill(3)
        self.assertEqual(cache.resize(0).shape[0], 0)
        self.assertEqual(cache.committed_bytes, cache._range.unit)

    def test_wrong_numbers(self):
        cache = self.grown(1)
        for rows in (-1, 65):
            with self.assertRaisesRegex(ValueError, "there are addresses for 64"):
                cache.resize(rows)
        for shape in ((), (0, 3), (3, 0)):
            with self.assertRaisesRegex(ValueError, "has no bytes"):
                regions.growable(shape)

    def test_the_limit_holds_for_it(self):
        cache = self.grown(2)
        self.cache().set_limit(16 * MIB)
        with self.assertRaises(TidemarkError) as caught:
            cache.resize(64)
        self.assertEqual((caught.exception.status, cache.rows), ("TIDE_ERR_NO_MEMORY", 2))
        cache.resize(8)
        cache.resize(2)
        self.torch.make(6 * MIB, 1)  # what the range gave back

    def test_memory_goes_with_the_last_tensor(self):
        cache = self.grown(64)
        left = cache.tensor[:2]
        left.fill(4)
        del cache
        self.assertTrue(left.has(4))
        del left
        self.cache().set_limit(64 * MIB)
        self.torch.make(60 * MIB, 1)  # the memory of the range serves it

    def test_a_range_that_ends_during_a_capture_is_freed_later(self):
        cache = self.grown(2)
        with self.torch.cuda.graph(self.torch.cuda.CUDAGraph()):
            del cache
        self.assertEqual(len(regions._left), 1)
        self.grown(1)
        self.assertEqual(regions._left, [])


class Result(unittest.TestCase):
    def test_results_add_up(self):
        first, second = Parked(1, 2, 3, 4, ((5, 6),)), Parked(10, 20, 30, 40, ((50, 60),))
        self.assertEqual(first + second, Parked(11, 22, 33, 44, ((5, 6), (50, 60))))


if __name__ == "__main__":
    unittest.main()
