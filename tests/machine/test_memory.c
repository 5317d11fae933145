// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory of our machines, beyond the conformance suite: capacity, wrong addresses, staged copies.
#include "machine/machines.h"

// ---------------------------------------------------------------------------------------------------
// Devices

MACHINE_TEST(test_machine__tells_its_name) { T_STR_EQ(tide_machine_name(m), t_variant()); }

MACHINE_TEST(test_machine__has_the_devices_it_was_given) {
  if (is_cuda(m)) T_LT(0, tide_machine_device_count(m));
  else T_EQ(tide_machine_device_count(m), 2);
}

EMULATED_TEST(test_device_info__has_the_options_of_the_machine) {
  const tide_device_info info = device_info(m, 1);

  T_EQ(info.total_bytes, MACHINE_CAPACITY);
  T_EQ(info.granularity, 2 * MIB);
  T_EQ(info.is_host_readable, is_host(m));
}

EMULATED_TEST(test_memory_info__starts_all_free) {
  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY);
  T_EQ(free_bytes(m, 1), MACHINE_CAPACITY);
}

// ---------------------------------------------------------------------------------------------------
// Raw memory

EMULATED_TEST(test_raw_alloc__takes_from_its_device_alone) {
  const size_t before = free_bytes(m, 0);

  uint8_t* const block = raw_new(m, 0, 10 * MIB);

  T_LE(free_bytes(m, 0), before - 10 * MIB);
  T_LE(before - 12 * MIB, free_bytes(m, 0));
  T_EQ(free_bytes(m, 1), MACHINE_CAPACITY);
  T_OK(tide_machine_raw_release(m, 0, block));
  T_EQ(free_bytes(m, 0), before);
}

EMULATED_TEST(test_raw_alloc__full_device_is_no_memory_and_recovers) {
  uint8_t* const most = raw_new(m, 0, MACHINE_CAPACITY - 8 * MIB);
  void* more = NULL;

  T_STATUS(tide_machine_raw_alloc(m, 0, 9 * MIB, &more), TIDE_ERR_NO_MEMORY);
  uint8_t* const other = raw_new(m, 1, 9 * MIB);
  T_OK(tide_machine_raw_release(m, 0, most));
  T_OK(tide_machine_raw_alloc(m, 0, 9 * MIB, &more));

  T_OK(tide_machine_raw_release(m, 1, other));
  T_OK(tide_machine_raw_release(m, 0, more));
  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY);
}

EMULATED_TEST(test_raw_alloc__can_use_the_whole_device) {
  uint8_t* blocks[64];

  for (size_t i = 0; i < 64; ++i) blocks[i] = raw_new(m, 0, 4 * MIB);
  T_EQ(free_bytes(m, 0), 0);
  for (size_t i = 0; i < 64; ++i) T_OK(tide_machine_raw_release(m, 0, blocks[i * 29 % 64]));

  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY);
}

EMULATED_TEST(test_raw_alloc__and_physical_memory_share_the_capacity) {
  uint8_t* const block = raw_new(m, 0, 128 * MIB);
  const tide_physical half = physical_new(m, 0, 128 * MIB);
  tide_physical more = NULL;

  T_STATUS(tide_machine_physical_new(m, 0, 2 * MIB, 0, &more), TIDE_ERR_NO_MEMORY);

  T_EQ(free_bytes(m, 0), 0);
  T_OK(tide_machine_raw_release(m, 0, block));
  T_OK(tide_machine_physical_free(m, half));
  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY);
}

EMULATED_TEST(test_raw_release__refuses_what_is_free_already) {
  uint8_t* const block = raw_new(m, 0, MIB);
  T_OK(tide_machine_raw_release(m, 0, block));

  T_STATUS(tide_machine_raw_release(m, 0, block), TIDE_ERR_ARGUMENT);

  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY);
}

EMULATED_TEST(test_raw_release__refuses_the_inside_of_a_block) {
  uint8_t* const block = raw_new(m, 0, MIB);

  T_STATUS(tide_machine_raw_release(m, 0, block + 512), TIDE_ERR_ARGUMENT);

  T_EQ(pointer_info(m, block).kind, TIDE_MEMORY_RAW);
}

EMULATED_TEST(test_raw_release__refuses_memory_of_another_kind) {
  const size_t unit = granularity(m);
  uint8_t* const pinned = pinned_new(m, MIB);
  uint8_t* const range = reserve(m, 0, unit);
  map_new(m, 0, range, unit);

  T_STATUS(tide_machine_raw_release(m, 0, pinned), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_raw_release(m, 0, range), TIDE_ERR_ARGUMENT);

  T_EQ(pointer_info(m, pinned).kind, TIDE_MEMORY_PINNED);
  T_EQ(pointer_info(m, range).kind, TIDE_MEMORY_MAPPED);
}

// ---------------------------------------------------------------------------------------------------
// Pinned memory

EMULATED_TEST(test_pinned_alloc__takes_nothing_from_a_device) {
  (void)pinned_new(m, 8 * MIB);

  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY);
  T_EQ(free_bytes(m, 1), MACHINE_CAPACITY);
}

EMULATED_TEST(test_pinned_release__refuses_what_it_did_not_make) {
  uint8_t* const pinned = pinned_new(m, MIB);
  uint8_t* const raw = raw_new(m, 0, MIB);

  T_STATUS(tide_machine_pinned_release(m, pinned + 4096), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_pinned_release(m, raw), TIDE_ERR_ARGUMENT);
  T_OK(tide_machine_pinned_release(m, pinned));
  T_STATUS(tide_machine_pinned_release(m, pinned), TIDE_ERR_ARGUMENT);
}

EMULATED_TEST(test_pinned_register__refuses_pinned_memory) {
  uint8_t* const pinned = pinned_new(m, 256 * KIB);

  T_STATUS(tide_machine_pinned_register(m, pinned + 64 * KIB, 64 * KIB), TIDE_ERR_ARGUMENT);
}

EMULATED_TEST(test_pinned_unregister__refuses_all_but_the_beginning) {
  uint8_t* const buffer = buffer_new(256 * KIB);
  uint8_t* const pinned = pinned_new(m, 4096);
  T_OK(tide_machine_pinned_register(m, buffer, 256 * KIB));

  T_STATUS(tide_machine_pinned_unregister(m, buffer + 4096), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_pinned_unregister(m, pinned), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_pinned_release(m, buffer), TIDE_ERR_ARGUMENT);
  T_OK(tide_machine_pinned_unregister(m, buffer));
  T_STATUS(tide_machine_pinned_unregister(m, buffer), TIDE_ERR_ARGUMENT);

  free(buffer);
}

// ---------------------------------------------------------------------------------------------------
// Copies

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

// ---------------------------------------------------------------------------------------------------
// Peers

EMULATED_TEST(test_copy__is_staged_without_peer_access_only) {
  uint8_t* const a = raw_new(m, 0, 4096);
  uint8_t* const b = raw_new(m, 1, 4096);

  T_OK(tide_machine_copy(m, 0, NULL, b, a, 4096));
  T_OK(tide_machine_device_synchronize(m, 0));
  T_EQ(tide_machine_staged_copies(m), 1);
  T_OK(tide_machine_peer_enable(m, 0, 1));
  T_OK(tide_machine_copy(m, 0, NULL, b, a, 4096));
  T_OK(tide_machine_device_synchronize(m, 0));
  T_EQ(tide_machine_staged_copies(m), 1);
  T_OK(tide_machine_peer_disable(m, 0, 1));
  T_OK(tide_machine_copy(m, 0, NULL, b, a, 4096));
  T_OK(tide_machine_device_synchronize(m, 0));

  T_EQ(tide_machine_staged_copies(m), 2);
}

EMULATED_TEST(test_copy__inside_a_device_or_with_the_host_is_never_staged) {
  uint8_t* const a = raw_new(m, 0, 4096);
  uint8_t* const pinned = pinned_new(m, 4096);

  T_OK(tide_machine_copy(m, 0, NULL, a, a + 2048, 1024));
  T_OK(tide_machine_copy(m, 0, NULL, pinned, a, 4096));
  T_OK(tide_machine_device_synchronize(m, 0));

  T_EQ(tide_machine_staged_copies(m), 0);
}

EMULATED_TEST(test_peer_access__is_for_one_direction) {
  uint8_t* const a = raw_new(m, 0, 4096);
  uint8_t* const b = raw_new(m, 1, 4096);

  T_OK(tide_machine_peer_enable(m, 0, 1));
  T_OK(tide_machine_copy(m, 1, NULL, b, a, 4096));
  T_OK(tide_machine_device_synchronize(m, 1));

  T_EQ(tide_machine_staged_copies(m), 1);
}

// ---------------------------------------------------------------------------------------------------
// Pointers

EMULATED_TEST(test_pointer_info__ends_where_the_block_ends) {
  uint8_t* const block = raw_new(m, 0, 1000);

  expect_pointer(m, block + 999, TIDE_MEMORY_RAW, 0, block, 1000);
  T_CHECK(pointer_info(m, block + 1000).base != block);
  T_CHECK(pointer_info(m, block - 1).base != block);
}

EMULATED_TEST(test_pointer_info__tells_mapped_from_reserved) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, 4 * unit);
  map_new(m, 0, range + unit, unit);

  expect_pointer(m, range, TIDE_MEMORY_RESERVED, -1, range, 4 * unit);
  expect_pointer(m, range + unit, TIDE_MEMORY_MAPPED, 0, range + unit, unit);
  expect_pointer(m, range + 2 * unit - 1, TIDE_MEMORY_MAPPED, 0, range + unit, unit);
  expect_pointer(m, range + 2 * unit, TIDE_MEMORY_RESERVED, -1, range, 4 * unit);
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
