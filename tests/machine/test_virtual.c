// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Virtual memory of our machines, beyond the conformance suite and prop_machine, which compares mappings and
// access on one device with a model.
#define T_THREADS
#include "machine/machines.h"

EMULATED_TEST(test_address_reserve__begins_at_a_free_hint) {
  const size_t unit = granularity(m);
  uint8_t* const hint = reserve(m, 0, 8 * unit);
  T_OK(tide_machine_address_release(m, hint, 8 * unit));
  void* range = NULL;

  T_OK(tide_machine_address_reserve(m, 0, 4 * unit, 0, hint + 2 * unit, &range));

  T_PTR_EQ(range, hint + 2 * unit);
}

EMULATED_TEST(test_virtual_memory__refuses_misaligned_and_free_addresses) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, 4 * unit);
  const tide_physical physical = physical_new(m, 0, unit);
  tide_physical other = NULL;

  T_STATUS(tide_machine_physical_new(m, 0, unit / 2, 0, &other), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_physical_new(m, 0, unit + 1, 0, &other), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_map(m, range + unit / 2, physical), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_map(m, range + 1, physical), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_address_release(m, range, 8 * unit), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_address_release(m, range + unit, 3 * unit), TIDE_ERR_ARGUMENT);
  T_OK(tide_machine_address_release(m, range, 4 * unit));

  T_STATUS(tide_machine_address_release(m, range, 4 * unit), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_map(m, range, physical), TIDE_ERR_ARGUMENT);
  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY - unit);
}

EMULATED_TEST(test_virtual_memory__is_of_one_device) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, unit);
  map_new(m, 1, range, unit);

  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY);
  T_EQ(free_bytes(m, 1), MACHINE_CAPACITY - unit);
  T_STATUS(tide_machine_fill(m, 0, NULL, range, 1, 4096), TIDE_ERR_ACCESS);
  T_OK(tide_machine_fill(m, 1, NULL, range, 1, 4096));
  T_OK(tide_machine_device_synchronize(m, 1));
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

// Can this process read, or write, the byte at an address? A pipe asks the system, so nothing can crash.
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
