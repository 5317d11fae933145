// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Virtual memory of our machines, beyond the conformance suite: what is refused, and access.
#include "machine/machines.h"

// ---------------------------------------------------------------------------------------------------
// Addresses

EMULATED_TEST(test_address_reserve__begins_at_a_free_hint) {
  const size_t unit = granularity(m);
  uint8_t* const hint = reserve(m, 0, 8 * unit);
  T_OK(tide_machine_address_release(m, hint, 8 * unit));
  void* range = NULL;

  T_OK(tide_machine_address_reserve(m, 0, 4 * unit, 0, hint + 2 * unit, &range));

  T_PTR_EQ(range, hint + 2 * unit);
}

EMULATED_TEST(test_address_release__takes_the_whole_reservation_only) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, 4 * unit);

  T_STATUS(tide_machine_address_release(m, range, 2 * unit), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_address_release(m, range, 8 * unit), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_address_release(m, range + unit, 3 * unit), TIDE_ERR_ARGUMENT);

  T_OK(tide_machine_address_release(m, range, 4 * unit));
}

EMULATED_TEST(test_address_release__refuses_what_is_free_already) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, unit);
  T_OK(tide_machine_address_release(m, range, unit));

  T_STATUS(tide_machine_address_release(m, range, unit), TIDE_ERR_ARGUMENT);
}

EMULATED_TEST(test_address_release__waits_for_the_last_unmap) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, 4 * unit);
  map_new(m, 0, range + 3 * unit, unit);

  T_STATUS(tide_machine_address_release(m, range, 4 * unit), TIDE_ERR_STATE);
  T_OK(tide_machine_unmap(m, range + 3 * unit, unit));

  T_OK(tide_machine_address_release(m, range, 4 * unit));
}

// ---------------------------------------------------------------------------------------------------
// Physical memory

EMULATED_TEST(test_physical_new__takes_from_its_device_alone) {
  const size_t unit = granularity(m);

  const tide_physical physical = physical_new(m, 1, 5 * unit);

  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY);
  T_EQ(free_bytes(m, 1), MACHINE_CAPACITY - 5 * unit);
  T_OK(tide_machine_physical_free(m, physical));
  T_EQ(free_bytes(m, 1), MACHINE_CAPACITY);
}

EMULATED_TEST(test_physical_new__can_use_the_whole_device) {
  const size_t unit = granularity(m);
  tide_physical pages[MACHINE_CAPACITY / (2 * MIB)];
  const size_t count = sizeof pages / sizeof *pages;

  for (size_t i = 0; i < count; ++i) pages[i] = physical_new(m, 0, unit);
  tide_physical more = NULL;
  T_STATUS(tide_machine_physical_new(m, 0, unit, 0, &more), TIDE_ERR_NO_MEMORY);
  T_EQ(free_bytes(m, 0), 0);
  for (size_t i = 0; i < count; ++i) T_OK(tide_machine_physical_free(m, pages[i]));

  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY);
}

EMULATED_TEST(test_physical_new__refuses_a_part_of_the_granularity) {
  const size_t unit = granularity(m);
  tide_physical physical = NULL;

  T_STATUS(tide_machine_physical_new(m, 0, unit / 2, 0, &physical), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_physical_new(m, 0, unit + 1, 0, &physical), TIDE_ERR_ARGUMENT);

  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY);
}

EMULATED_TEST(test_physical_free__keeps_the_memory_until_the_last_of_two_mappings) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, 2 * unit);
  const tide_physical physical = physical_new(m, 0, unit);
  T_OK(tide_machine_map(m, range, physical));
  T_OK(tide_machine_map(m, range + unit, physical));

  T_OK(tide_machine_physical_free(m, physical));
  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY - unit);
  T_OK(tide_machine_unmap(m, range, unit));
  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY - unit);
  T_OK(tide_machine_unmap(m, range + unit, unit));

  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY);
}

EMULATED_TEST(test_physical_free__makes_the_handle_stale) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, 2 * unit);
  const tide_physical physical = physical_new(m, 0, unit);
  T_OK(tide_machine_map(m, range, physical));
  T_OK(tide_machine_physical_free(m, physical));

  T_STATUS(tide_machine_map(m, range + unit, physical), TIDE_ERR_HANDLE);
  T_STATUS(tide_machine_physical_free(m, physical), TIDE_ERR_HANDLE);

  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY - unit);
}

// ---------------------------------------------------------------------------------------------------
// Mappings

EMULATED_TEST(test_map__refuses_a_range_where_something_is_mapped) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, 4 * unit);
  const tide_physical large = physical_new(m, 0, 2 * unit);
  map_new(m, 0, range + unit, unit);

  T_STATUS(tide_machine_map(m, range, large), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_map(m, range + unit, large), TIDE_ERR_ARGUMENT);

  T_OK(tide_machine_map(m, range + 2 * unit, large));
}

EMULATED_TEST(test_map__refuses_an_address_that_is_not_reserved) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, 2 * unit);
  const tide_physical physical = physical_new(m, 0, unit);
  T_OK(tide_machine_address_release(m, range, 2 * unit));

  T_STATUS(tide_machine_map(m, range, physical), TIDE_ERR_ARGUMENT);
}

EMULATED_TEST(test_map__refuses_to_leave_the_reservation) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, 2 * unit);
  const tide_physical physical = physical_new(m, 0, 2 * unit);

  T_STATUS(tide_machine_map(m, range + unit, physical), TIDE_ERR_ARGUMENT);

  T_EQ(pointer_info(m, range + unit).kind, TIDE_MEMORY_RESERVED);
}

EMULATED_TEST(test_map__refuses_to_cross_into_another_reservation) {
  const size_t unit = granularity(m);
  uint8_t* const both = reserve(m, 0, 2 * unit);
  const tide_physical physical = physical_new(m, 0, 2 * unit);
  void* first = NULL;
  void* second = NULL;
  T_OK(tide_machine_address_release(m, both, 2 * unit));
  T_OK(tide_machine_address_reserve(m, 0, unit, 0, both, &first));
  T_OK(tide_machine_address_reserve(m, 0, unit, 0, both + unit, &second));
  T_PTR_EQ((uint8_t*)first + unit, second);

  T_STATUS(tide_machine_map(m, first, physical), TIDE_ERR_ARGUMENT);
}

EMULATED_TEST(test_map__refuses_a_misaligned_address) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, 2 * unit);
  const tide_physical physical = physical_new(m, 0, unit);

  T_STATUS(tide_machine_map(m, range + unit / 2, physical), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_map(m, range + 1, physical), TIDE_ERR_ARGUMENT);

  T_OK(tide_machine_map(m, range, physical));
}

EMULATED_TEST(test_unmap__ends_several_mappings_at_once) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, 4 * unit);
  for (size_t i = 0; i < 4; ++i) map_new(m, 0, range + i * unit, unit);

  T_OK(tide_machine_unmap(m, range + unit, 2 * unit));

  T_EQ(pointer_info(m, range).kind, TIDE_MEMORY_MAPPED);
  T_EQ(pointer_info(m, range + unit).kind, TIDE_MEMORY_RESERVED);
  T_EQ(pointer_info(m, range + 2 * unit).kind, TIDE_MEMORY_RESERVED);
  T_EQ(pointer_info(m, range + 3 * unit).kind, TIDE_MEMORY_MAPPED);
  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY - 2 * unit);
}

EMULATED_TEST(test_unmap__refuses_a_part_of_a_mapping) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, 4 * unit);
  map_new(m, 0, range, 2 * unit);
  map_new(m, 0, range + 2 * unit, unit);

  T_STATUS(tide_machine_unmap(m, range, unit), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_unmap(m, range + unit, unit), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_unmap(m, range + unit, 2 * unit), TIDE_ERR_ARGUMENT);

  T_OK(tide_machine_unmap(m, range, 3 * unit));
}

EMULATED_TEST(test_unmap__refuses_a_gap) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, 4 * unit);
  map_new(m, 0, range, unit);
  map_new(m, 0, range + 2 * unit, unit);

  T_STATUS(tide_machine_unmap(m, range, 3 * unit), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_unmap(m, range, 2 * unit), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_unmap(m, range + unit, 2 * unit), TIDE_ERR_ARGUMENT);

  T_EQ(pointer_info(m, range).kind, TIDE_MEMORY_MAPPED);
  T_EQ(pointer_info(m, range + 2 * unit).kind, TIDE_MEMORY_MAPPED);
}

EMULATED_TEST(test_unmap__refuses_what_is_unmapped_already) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, unit);
  map_new(m, 0, range, unit);
  T_OK(tide_machine_unmap(m, range, unit));

  T_STATUS(tide_machine_unmap(m, range, unit), TIDE_ERR_ARGUMENT);

  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY);
}

EMULATED_TEST(test_unmap__makes_room_for_another_mapping) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, 4 * unit);
  map_new(m, 0, range, unit);
  map_new(m, 0, range + unit, unit);

  T_OK(tide_machine_unmap(m, range, 2 * unit));
  map_new(m, 0, range, 3 * unit);

  T_EQ(pointer_info(m, range + unit).bytes, 3 * unit);
}

// ---------------------------------------------------------------------------------------------------
// Access

EMULATED_TEST(test_set_access__is_needed_to_use_a_mapping) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, unit);
  uint8_t* const raw = raw_new(m, 0, 4096);
  const tide_physical physical = physical_new(m, 0, unit);
  T_OK(tide_machine_map(m, range, physical));

  T_STATUS(tide_machine_fill(m, 0, NULL, range, 1, 4096), TIDE_ERR_ACCESS);
  T_STATUS(tide_machine_copy(m, 0, NULL, raw, range, 4096), TIDE_ERR_ACCESS);
  T_OK(tide_machine_set_access(m, range, unit, 0, TIDE_ACCESS_READ_WRITE));

  T_OK(tide_machine_fill(m, 0, NULL, range, 1, 4096));
  T_OK(tide_machine_device_synchronize(m, 0));
}

EMULATED_TEST(test_set_access__read_only_can_not_be_written) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, unit);
  uint8_t* const raw = raw_new(m, 0, 4096);
  map_new(m, 0, range, unit);
  device_fill(m, 0, range, 0x2a, 4096);

  T_OK(tide_machine_set_access(m, range, unit, 0, TIDE_ACCESS_READ));
  T_STATUS(tide_machine_fill(m, 0, NULL, range, 1, 4096), TIDE_ERR_ACCESS);
  T_STATUS(tide_machine_copy(m, 0, NULL, range, raw, 4096), TIDE_ERR_ACCESS);

  expect_filled(m, 0, range, 0x2a, 4096);
}

EMULATED_TEST(test_set_access__none_takes_it_back) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, unit);
  map_new(m, 0, range, unit);
  device_fill(m, 0, range, 0x2b, unit);

  T_OK(tide_machine_set_access(m, range, unit, 0, TIDE_ACCESS_NONE));
  T_STATUS(tide_machine_fill(m, 0, NULL, range, 1, 4096), TIDE_ERR_ACCESS);
  T_OK(tide_machine_set_access(m, range, unit, 0, TIDE_ACCESS_READ_WRITE));

  expect_filled(m, 0, range, 0x2b, unit);
}

EMULATED_TEST(test_set_access__differs_for_two_addresses_of_one_memory) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, 2 * unit);
  const tide_physical physical = physical_new(m, 0, unit);
  T_OK(tide_machine_map(m, range, physical));
  T_OK(tide_machine_map(m, range + unit, physical));
  T_OK(tide_machine_set_access(m, range, unit, 0, TIDE_ACCESS_READ_WRITE));
  T_OK(tide_machine_set_access(m, range + unit, unit, 0, TIDE_ACCESS_READ));

  device_fill(m, 0, range, 0x45, unit);

  expect_filled(m, 0, range + unit, 0x45, unit);
  T_STATUS(tide_machine_fill(m, 0, NULL, range + unit, 1, 1), TIDE_ERR_ACCESS);
}

EMULATED_TEST(test_set_access__takes_several_mappings_at_once) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, 3 * unit);
  for (size_t i = 0; i < 3; ++i) {
    const tide_physical physical = physical_new(m, 0, unit);
    T_OK(tide_machine_map(m, range + i * unit, physical));
  }

  T_OK(tide_machine_set_access(m, range, 2 * unit, 0, TIDE_ACCESS_READ_WRITE));

  device_fill(m, 0, range, 3, 2 * unit);
  T_STATUS(tide_machine_fill(m, 0, NULL, range + 2 * unit, 1, 1), TIDE_ERR_ACCESS);
  T_STATUS(tide_machine_fill(m, 0, NULL, range + 2 * unit - 1, 1, 2), TIDE_ERR_ACCESS);
}

EMULATED_TEST(test_set_access__refuses_a_part_and_a_gap) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, 4 * unit);
  map_new(m, 0, range, 2 * unit);
  map_new(m, 0, range + 3 * unit, unit);

  T_STATUS(tide_machine_set_access(m, range, unit, 0, TIDE_ACCESS_READ), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_set_access(m, range + unit, unit, 0, TIDE_ACCESS_READ), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_set_access(m, range, 4 * unit, 0, TIDE_ACCESS_READ), TIDE_ERR_ARGUMENT);

  device_fill(m, 0, range, 1, 2 * unit);
}

EMULATED_TEST(test_set_access__is_for_each_device) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, unit);
  map_new(m, 0, range, unit);

  T_STATUS(tide_machine_fill(m, 1, NULL, range, 1, 4096), TIDE_ERR_ACCESS);

  T_OK(tide_machine_fill(m, 0, NULL, range, 1, 4096));
  T_OK(tide_machine_device_synchronize(m, 0));
}

EMULATED_TEST(test_fill__refuses_an_address_where_nothing_is_mapped) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, 2 * unit);
  map_new(m, 0, range, unit);

  const tide_status behind = tide_machine_fill(m, 0, NULL, range + unit, 1, 1);
  const tide_status across = tide_machine_fill(m, 0, NULL, range + unit - 1, 1, 2);

  T_CHECK(behind == TIDE_ERR_ARGUMENT || behind == TIDE_ERR_ACCESS);
  T_CHECK(across == TIDE_ERR_ARGUMENT || across == TIDE_ERR_ACCESS);
}

// Does the system let this process read or write a byte there? The system is asked instead of touching it.
static bool host_can_read(const uint8_t* address, int pipe_in, int pipe_out) {
  uint8_t byte = 0;
  if (write(pipe_in, address, 1) != 1) return false;
  T_EQ(read(pipe_out, &byte, 1), 1);
  return true;
}

static bool host_can_write(uint8_t* address, int pipe_in, int pipe_out) {
  uint8_t byte = 0x6b;
  T_EQ(write(pipe_in, &byte, 1), 1);
  const bool can_write = read(pipe_out, address, 1) == 1;
  if (!can_write) T_EQ(read(pipe_out, &byte, 1), 1);
  return can_write;
}

HOST_TEST(test_set_access__rules_what_the_host_can_touch) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, 4 * unit);
  int ends[2];
  T_EQ(pipe(ends), 0);
  T_CHECK(!host_can_read(range, ends[1], ends[0]));
  T_CHECK(!host_can_write(range, ends[1], ends[0]));
  map_new(m, 0, range, unit);

  T_CHECK(host_can_read(range, ends[1], ends[0]));
  T_CHECK(host_can_write(range, ends[1], ends[0]));
  T_OK(tide_machine_set_access(m, range, unit, 0, TIDE_ACCESS_READ));
  T_CHECK(!host_can_write(range, ends[1], ends[0]));
  T_OK(tide_machine_set_access(m, range, unit, 0, TIDE_ACCESS_NONE));
  T_CHECK(!host_can_read(range, ends[1], ends[0]));
  T_OK(tide_machine_unmap(m, range, unit));
  T_CHECK(!host_can_read(range, ends[1], ends[0]));

  (void)close(ends[0]);
  (void)close(ends[1]);
}
