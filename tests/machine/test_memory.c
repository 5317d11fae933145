// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory of our machines, beyond the conformance suite and prop_machine, which compares raw memory and its
// capacity with a model: what is refused, peers, pointers.
#define T_THREADS
#include "machine/machines.h"

MACHINE_TEST(test_machine__tells_its_name) { T_STR_EQ(tide_machine_name(m), t_variant()); }

EMULATED_TEST(test_device_info__has_the_options_of_the_machine) {
  const tide_device_info info = device_info(m, 1);

  T_EQ(tide_machine_device_count(m), 2);
  T_EQ(info.total_bytes, MACHINE_CAPACITY);
  T_EQ(info.granularity, 2 * MIB);
  T_EQ(info.is_host_readable, is_host(m));
}

EMULATED_TEST(test_raw_alloc__takes_from_its_device_alone) {
  uint8_t* const most = raw_new(m, 0, MACHINE_CAPACITY - 8 * MIB);
  (void)pinned_new(m, 8 * MIB);
  void* more = NULL;

  T_EQ(free_bytes(m, 0), 8 * MIB);
  T_STATUS(tide_machine_raw_alloc(m, 0, 9 * MIB, &more), TIDE_ERR_NO_MEMORY);
  T_EQ(free_bytes(m, 1), MACHINE_CAPACITY);
  T_OK(tide_machine_raw_release(m, 0, most));
  T_OK(tide_machine_raw_alloc(m, 0, 9 * MIB, &more));
}

// Each kind of memory ends by its own call, at its first byte, once.
EMULATED_TEST(test_memory__ends_by_its_own_call_alone) {
  const size_t unit = granularity(m);
  uint8_t* const raw = raw_new(m, 0, MIB);
  uint8_t* const pinned = pinned_new(m, 256 * KIB);
  uint8_t* const range = reserve(m, 0, unit);
  uint8_t* const buffer = buffer_new(256 * KIB);
  map_new(m, 0, range, unit);
  T_OK(tide_machine_pinned_register(m, buffer, 256 * KIB));
  uint8_t* const all[] = { raw, raw + 512, pinned, pinned + 4096, range, buffer, buffer + 4096 };

  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    const tide_memory_kind kind = pointer_info(m, all[i]).kind;
    if (all[i] != raw) T_STATUS(tide_machine_raw_release(m, 0, all[i]), TIDE_ERR_ARGUMENT);
    if (all[i] != pinned) T_STATUS(tide_machine_pinned_release(m, all[i]), TIDE_ERR_ARGUMENT);
    if (all[i] != buffer) T_STATUS(tide_machine_pinned_unregister(m, all[i]), TIDE_ERR_ARGUMENT);
    T_EQ(pointer_info(m, all[i]).kind, kind);
  }
  T_STATUS(tide_machine_pinned_register(m, pinned + 64 * KIB, 64 * KIB), TIDE_ERR_ARGUMENT);

  T_OK(tide_machine_raw_release(m, 0, raw));
  T_OK(tide_machine_pinned_release(m, pinned));
  T_OK(tide_machine_pinned_unregister(m, buffer));
  T_STATUS(tide_machine_raw_release(m, 0, raw), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_pinned_release(m, pinned), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_pinned_unregister(m, buffer), TIDE_ERR_ARGUMENT);
  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY - unit);
  free(buffer);
}

HOST_TEST(test_raw_alloc__can_be_read_and_written_by_the_host) {
  uint8_t* const block = raw_new(m, 0, 4096);

  memset(block, 0x3c, 4096);
  expect_filled(m, 0, block, 0x3c, 4096);
  device_fill(m, 0, block, 0x4d, 4096);

  T_FILLED(block, 0x4d, 4096);
}

EMULATED_TEST(test_copy__refuses_a_range_that_leaves_its_allocation) {
  uint8_t* const a = raw_new(m, 0, 4096);
  uint8_t* const b = raw_new(m, 0, 8192);
  uint8_t* const pinned = pinned_new(m, 4096);

  T_STATUS(tide_machine_copy(m, 0, NULL, a, b, 4097), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_copy(m, 0, NULL, b, a, 4097), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_copy(m, 0, NULL, b, pinned + 1, 4096), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_fill(m, 0, NULL, a + 4095, 1, 2), TIDE_ERR_ARGUMENT);

  T_OK(tide_machine_copy(m, 0, NULL, b + 4096, a, 4096));
  T_OK(tide_machine_device_synchronize(m, 0));
}

// Copies work without peer access: they are staged. A fill needs it, in the direction of the fill.
EMULATED_TEST(test_peer_access__is_for_one_direction) {
  uint8_t* const a = raw_new(m, 0, 4096);
  uint8_t* const b = raw_new(m, 1, 4096);
  device_fill(m, 0, a, 7, 4096);

  T_OK(tide_machine_peer_enable(m, 0, 1));
  T_OK(tide_machine_fill(m, 0, NULL, b, 5, 4096));
  T_STATUS(tide_machine_fill(m, 1, NULL, a, 5, 4096), TIDE_ERR_ACCESS);
  T_OK(tide_machine_device_synchronize(m, 0));
  expect_filled(m, 1, b, 5, 4096);

  T_OK(tide_machine_peer_disable(m, 0, 1));
  T_STATUS(tide_machine_fill(m, 0, NULL, b, 6, 4096), TIDE_ERR_ACCESS);
  T_OK(tide_machine_copy(m, 0, NULL, b, a, 4096));
  T_OK(tide_machine_device_synchronize(m, 0));
  expect_filled(m, 1, b, 7, 4096);
}

EMULATED_TEST(test_pointer_info__ends_where_the_block_ends) {
  uint8_t* const block = raw_new(m, 0, 1000);

  expect_pointer(m, block + 999, TIDE_MEMORY_RAW, 0, block, 1000);
  T_CHECK(pointer_info(m, block + 1000).base != block);
  T_CHECK(pointer_info(m, block - 1).base != block);
}

EMULATED_TEST(test_pointer_info__forgets_what_was_given_back) {
  const size_t unit = granularity(m);
  uint8_t* const block = raw_new(m, 0, MIB);
  uint8_t* const pinned = pinned_new(m, MIB);
  uint8_t* const range = reserve(m, 0, unit);

  T_OK(tide_machine_raw_release(m, 0, block));
  T_OK(tide_machine_pinned_release(m, pinned));
  T_OK(tide_machine_address_release(m, range, unit));

  expect_pointer(m, block, TIDE_MEMORY_UNKNOWN, -1, NULL, 0);
  expect_pointer(m, pinned, TIDE_MEMORY_UNKNOWN, -1, NULL, 0);
  expect_pointer(m, range, TIDE_MEMORY_UNKNOWN, -1, NULL, 0);
}
