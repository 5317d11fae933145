// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Names of allocators, several allocators in one trace, and where a block lies, with both policies.
#define T_THREADS
#include "device/devices.h"

// ---------------------------------------------------------------------------------------------------
// Names

DEVICE_TEST(test_all_devices__an_allocator_is_named_after_its_policy) {
  T_STR_EQ(tide_device_name(d), is_tide() ? "tide" : "torch");
  T_PTR_EQ(tide_device_machine(d), m);
  T_EQ(tide_device_index(d), 0);
}

// ---------------------------------------------------------------------------------------------------
// Several in one trace

DEVICE_TEST_OVER(test_all_devices__one_trace_has_all, device_emulated) {
  need_two_devices(m);
  tide_device_cache* const other = device_new(m, 1, NULL);
  tide_device_cache* const all[2] = { d, other };
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  for (int i = 0; i < 2; ++i) {
    history_on(all[i]);
    (void)take(all[i], NULL, (size_t)(i + 1) * 4096);
  }

  for (int i = 0; i < 2; ++i) T_OK(tide_device_snapshot(all[i], NULL, trace));

  size_t count = 0;
  T_EQ(tide_trace_device_count(trace), 2);
  for (size_t i = 0; i < 2; ++i) {
    const tide_trace_entry* const entries = tide_trace_entries(trace, i, &count);
    T_EQ(count, 2);
    T_EQ(entries[1].action, TIDE_ACTION_ALLOC);
    T_EQ(entries[1].bytes, (i + 1) * 4096);
    T_EQ(entries[1].device, i);
  }
  const tide_trace_segment* const segments = tide_trace_segments(trace, &count);
  T_EQ(count, 2);
  T_EQ(segments[0].device + segments[1].device, 1);
  tide_trace_free(trace);
  tide_device_free(other);
}

// ---------------------------------------------------------------------------------------------------
// Where a block lies

static void expect_base_around(tide_machine* m, tide_device_cache* d, tide_block block, size_t bytes) {
  void* base = NULL;
  size_t length = 0;
  T_OK(tide_device_base(d, block.address, &base, &length));
  T_LE((uintptr_t)base, (uintptr_t)block.address);
  T_LE((uintptr_t)block.address + bytes, (uintptr_t)base + length);
  if (is_tide()) T_EQ(length % granularity(m), 0);
  // All of it is there: the machine copies from its first and its last byte.
  uint8_t ends[2];
  T_OK(tide_machine_copy(m, 0, NULL, &ends[0], base, 1));
  T_OK(tide_machine_copy(m, 0, NULL, &ends[1], (uint8_t*)base + length - 1, 1));
  stream_finish(m, 0, NULL);
}

// With the policy tide it was refused.
DEVICE_TEST(test_all_devices__the_base_lies_around_a_block) {
  const size_t sizes[] = { 1, 700, 300 * KIB, MIB, 3 * MIB, 21 * MIB, 70 * MIB };
  tide_block blocks[7];
  for (size_t i = 0; i < 7; ++i) blocks[i] = take(d, NULL, sizes[i]);

  for (size_t i = 0; i < 7; ++i) expect_base_around(m, d, blocks[i], sizes[i]);

  void* base = NULL;
  T_STATUS(tide_device_base(d, bytes_of(blocks[2]) + 512, &base, NULL), TIDE_ERR_HANDLE);
  for (size_t i = 0; i < 7; ++i) give(d, blocks[i]);
  T_STATUS(tide_device_base(d, blocks[3].address, &base, NULL), TIDE_ERR_HANDLE);
  T_PTR_EQ(base, NULL);
}

// Idle handles of another stream are stitched: the block lies in a view, and its base there.
DEVICE_TEST(test_all_devices__the_base_lies_around_a_stitched_block) {
  const tide_stream side = side_new(m);
  tide_block comb[8];
  for (size_t i = 0; i < 8; ++i) comb[i] = take(d, NULL, 4 * MIB);
  for (size_t i = 0; i < 8; i += 2) give(d, comb[i]);
  stream_finish(m, 0, NULL);
  const tide_block here = take(d, NULL, 14 * MIB);
  expect_base_around(m, d, here, 14 * MIB);
  give(d, here);
  const tide_block there = take(d, side, 10 * MIB);

  expect_base_around(m, d, there, 10 * MIB);
}

DEVICE_TEST(test_all_devices__the_base_of_uncached_memory_is_its_own) {
  void* base = NULL;
  size_t bytes = 0;
  tide_device_set_caching(d, false);
  const tide_block block = take(d, NULL, 3000);

  T_OK(tide_device_base(d, block.address, &base, &bytes));

  T_PTR_EQ(base, block.address);
  T_EQ(bytes, 3000);
  give(d, block);
}

// What is shared begins at the base.
DEVICE_TEST_OVER(test_all_devices__a_share_begins_at_the_base, device_emulated) {
  if (!device_info(m, 0).has_physical_sharing) t_skip("no physical sharing");
  enum { PARTS = 64 };
  tide_physical_share parts[PARTS];
  tide_share share = TIDE_SHARE_INIT;
  void* base = NULL;
  (void)take(d, NULL, 5000);
  const tide_block block = take(d, NULL, 5000);

  T_OK(tide_device_base(d, block.address, &base, NULL));
  T_OK(tide_device_share(d, block.address, &share, parts, PARTS));

  T_EQ(share.offset, (uintptr_t)block.address - (uintptr_t)base);
  for (uint32_t i = 0; i < share.part_count; ++i) T_EQ(close(parts[i].descriptor), 0);
}
