# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Tags, parking and ranges from Python, on the host machine with real memory."""
import ctypes
import threading
import unittest

import host_cache
from tidemark import TidemarkError
from tidemark.device import Backup, Parked
from tidemark.torch.regions import Regions

MIB = 1 << 20
KINDS = (Backup.PINNED, Backup.PAGEABLE, Backup.FILE)


class WithCache(unittest.TestCase):
    def setUp(self):
        self.cache = host_cache.HostCache()
        self.addCleanup(self.cache.close)
        self.regions = Regions(self.cache)

    def fill(self, tag, backup, value, size=3 * MIB):
        with self.regions.open(tag, backup):
            return self.cache.alloc(size, value)


class Parking(WithCache):
    def test_contents_come_back_at_the_same_addresses(self):
        for value, kind in enumerate(KINDS, 1):
            with self.subTest(kind.name):
                tag = f"t/{kind.name.lower()}"
                address = self.fill(tag, kind, value)
                parked = self.cache.park(tag)
                self.assertEqual((parked.pools, parked.block_bytes, parked.lost), (1, 3 * MIB, ()))
                self.assertGreaterEqual(parked.physical_bytes, 3 * MIB)
                stats = self.cache.tag_stats(tag)
                self.assertEqual((stats["parked_pool_count"], stats["reserved_bytes"], stats["allocated_bytes"]),
                                 (1, 0, 3 * MIB))
                self.assertEqual(stats["parked_bytes"], parked.physical_bytes)
                self.cache.unpark(tag, wait=True)
                self.assertEqual(ctypes.string_at(address, 3 * MIB), bytes([value]) * (3 * MIB))
                self.assertEqual(self.cache.tag_stats(tag)["parked_bytes"], 0)

    def test_each_pool_of_a_tag_has_the_backup_of_its_region(self):
        kept, lost = self.fill("w", Backup.PINNED, 7), self.fill("w", Backup.NONE, 8)
        parked = self.cache.park("w")
        self.assertEqual((parked.pools, parked.block_bytes, parked.copied_bytes), (2, 6 * MIB, 3 * MIB))
        with self.assertRaises(TidemarkError):
            self.cache.read_parked(lost, 1, None)
        data = self.cache.read_parked(kept, 3 * MIB, None)
        self.assertEqual(ctypes.string_at(data, 3 * MIB), bytes([7]) * (3 * MIB))
        self.cache.unpark("w", wait=True)
        self.assertEqual(ctypes.string_at(kept, 3 * MIB), bytes([7]) * (3 * MIB))
        ctypes.memset(lost, 1, 3 * MIB)  # it has memory again

    def test_tags_are_paths(self):
        for tag in ("w/a", "w/b", "words", "w"):
            self.fill(tag, Backup.PINNED, 1)
        self.assertEqual(self.cache.tags(), ["w", "w/a", "w/b", "words"])
        self.assertEqual(self.cache.park("w").pools, 3)
        self.assertEqual(self.cache.park("w"), Parked())
        self.assertEqual(self.cache.tag_stats("words")["parked_pool_count"], 0)
        self.assertEqual(self.cache.unpark("w/b", wait=True).pools, 1)
        self.assertEqual(self.cache.unpark(None, wait=True).pools, 2)
        self.assertTrue(self.regions.has("w/a") and not self.regions.has("w/c") and not self.regions.has("wor"))

    def test_a_kept_backup_is_read_and_used_again(self):
        address = self.fill("w", Backup.PAGEABLE, 5)
        self.cache.park("w")
        before = self.cache.read_parked(address, 3 * MIB, None)
        self.cache.unpark("w", wait=True, keep_backup=True)
        self.assertEqual(self.cache.read_parked(address, 3 * MIB, None), before)
        ctypes.memset(address, 6, 3 * MIB)
        self.cache.park("w")
        self.assertEqual(self.cache.read_parked(address, 3 * MIB, None), before)
        self.assertEqual(ctypes.string_at(before, 3 * MIB), bytes([6]) * (3 * MIB))
        self.cache.unpark("w", wait=True)
        with self.assertRaises(TidemarkError):
            self.cache.read_parked(address, 3 * MIB, None)
        self.assertEqual(ctypes.string_at(address, 3 * MIB), bytes([6]) * (3 * MIB))

    def test_prepared_backups_can_be_given_back(self):
        self.fill("w", Backup.PAGEABLE, 5)
        self.cache.prepare_backup("w")
        self.assertGreaterEqual(self.cache.tag_stats("w")["backup_bytes"], 3 * MIB)
        self.cache.trim_backups("w")
        self.assertEqual(self.cache.tag_stats("w")["backup_bytes"], 0)

    def test_a_request_in_a_parked_pool(self):
        address = self.fill("w", Backup.PINNED, 5)
        self.cache.park("w", unparks_on_request=False)
        with self.regions.open("w", Backup.PINNED), self.assertRaises(AssertionError):
            self.cache.alloc(512, 1)
        self.cache.unpark("w")
        self.cache.park("w")
        self.fill("w", Backup.PINNED, 1, 512)
        self.assertEqual(self.cache.tag_stats("w")["parked_pool_count"], 0)
        self.assertEqual(ctypes.string_at(address, 3 * MIB), bytes([5]) * (3 * MIB))


class Regional(WithCache):
    def test_nested_regions_of_one_tag_use_two_pools_and_use_them_again(self):
        for _ in range(3):
            with self.regions.open("w", Backup.PINNED), self.regions.open("w", Backup.PINNED):
                self.cache.alloc(512, 1)
        self.assertEqual(self.cache.tag_stats("w")["pool_count"], 2)
        self.assertEqual(self.cache.tag_stats("w")["allocation_count"], 3)

    def test_another_thread_is_not_in_the_region(self):
        with self.regions.open("w", Backup.PINNED):
            other = threading.Thread(target=self.cache.alloc, args=(512, 1))
            other.start()
            other.join()
            self.cache.alloc(512, 1)
        self.assertEqual(self.cache.tag_stats("w")["allocation_count"], 1)

    def test_an_error_inside_closes_the_region(self):
        with self.assertRaises(KeyError), self.regions.open("w", Backup.PINNED):
            raise KeyError
        self.cache.alloc(512, 1)
        self.assertEqual(self.cache.tag_stats("w")["allocation_count"], 0)

    def test_outside_of_all_regions(self):
        with self.regions.open("w", Backup.PINNED):
            with self.regions.outside():
                self.cache.release(self.cache.alloc(3 * MIB, 1))
            self.assertEqual(self.cache.tag_stats("w")["allocation_count"], 0)


class Ranges(WithCache):
    def test_a_range_grows_and_shrinks_at_its_address(self):
        grown = self.cache.range_new(64 * MIB)
        self.assertGreaterEqual(grown.bytes, 64 * MIB)
        grown.commit(None, 0, 4 * MIB)
        ctypes.memset(grown.address, 3, 4 * MIB)
        grown.commit(None, 4 * MIB, 8 * MIB)
        ctypes.memset(grown.address + 4 * MIB, 4, 8 * MIB)
        self.assertEqual(ctypes.string_at(grown.address, 4 * MIB), bytes([3]) * (4 * MIB))
        self.assertGreaterEqual(grown.committed, 12 * MIB)
        grown.decommit(4 * MIB, grown.bytes - 4 * MIB)
        self.assertLess(grown.committed, 12 * MIB)
        self.assertEqual(ctypes.string_at(grown.address, 4 * MIB), bytes([3]) * (4 * MIB))
        with self.assertRaises(TidemarkError):
            grown.commit(None, grown.bytes, 1)
        grown.free()
        grown.free()


class Files(WithCache):
    def test_pinned_memory_has_the_keys_of_torch(self):
        data = self.cache.host_snapshot()
        segment, = data["host_segments"]
        block, = segment["blocks"]
        self.assertEqual(list(segment), ["device", "address", "total_size", "allocated_size", "active_size", "requested_size",
                                         "stream", "segment_type", "segment_pool_id", "is_expandable", "frames", "blocks"])
        self.assertEqual((segment["device"], segment["stream"], segment["allocated_size"]), (-1, 0, 0))
        self.assertEqual((segment["segment_pool_id"], segment["is_expandable"]), ((0, 0), False))
        self.assertEqual((block["state"], block["address"]), ("inactive", segment["address"]))
        self.assertEqual([entry["action"] for entry in data["host_traces"]],
                         ["segment_alloc", "alloc", "free_requested", "free_completed"])
        self.assertEqual(data["host_traces"][1]["size"], 100000)


if __name__ == "__main__":
    unittest.main()
