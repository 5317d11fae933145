// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Conformance: virtual memory.
#include "conformance/check.h"

CHECK_FILE(check_virtual);

// Far more addresses than a device has memory; the thread sanitizer leaves a program little room.
#define LARGE (T_HAS_THREAD_SANITIZER ? GIB : 1024 * GIB)

CHECK(address_reserve__is_aligned_to_the_granularity) {
  const size_t unit = granularity(m);

  uint8_t* const a = reserve(m, 0, 3 * unit);
  uint8_t* const b = reserve(m, 0, unit);

  T_EQ((uintptr_t)a % unit, 0);
  T_EQ((uintptr_t)b % unit, 0);
  T_CHECK(a + 3 * unit <= b || b + unit <= a);
}

CHECK(address_reserve__respects_a_larger_alignment) {
  const size_t unit = granularity(m);
  for (size_t alignment = unit; alignment <= 64 * unit; alignment *= 4) {
    void* range = NULL;

    T_OK(tide_machine_address_reserve(m, 0, unit, alignment, NULL, &range));

    T_EQ((uintptr_t)range % alignment, 0);
  }
}

CHECK(address_reserve__takes_a_smaller_alignment) {
  const size_t unit = granularity(m);
  void* range = NULL;

  T_OK(tide_machine_address_reserve(m, 0, unit, 512, NULL, &range));

  T_EQ((uintptr_t)range % unit, 0);
}

CHECK(address_reserve__goes_elsewhere_when_the_hint_is_taken) {
  const size_t unit = granularity(m);
  uint8_t* const taken = reserve(m, 0, 4 * unit);
  void* range = NULL;

  T_OK(tide_machine_address_reserve(m, 0, 2 * unit, 0, taken + unit, &range));

  T_CHECK((uint8_t*)range + 2 * unit <= taken || taken + 4 * unit <= (uint8_t*)range);
}

CHECK(address_reserve__costs_no_memory) {
  const size_t before = free_bytes(m, 0);

  (void)reserve(m, 0, LARGE);

  if (is_emulated(m)) T_EQ(free_bytes(m, 0), before);
}

CHECK(physical_new__more_than_the_device_is_no_memory) {
  const size_t unit = granularity(m);
  const size_t total = (size_t)device_info(m, 0).total_bytes;
  tide_physical physical = (tide_physical)(uintptr_t)1;

  T_STATUS(tide_machine_physical_new(m, 0, (total / unit + 1) * unit, 0, &physical), TIDE_ERR_NO_MEMORY);

  T_PTR_EQ(physical, NULL);
  T_STR_HAS(tide_last_error()->text, "physical_new");
}

CHECK(physical_free__keeps_the_memory_while_it_is_mapped) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, unit);
  const size_t before = free_bytes(m, 0);

  map_new(m, 0, range, unit);
  device_fill(m, 0, range, 0x66, unit);

  expect_filled(m, 0, range, 0x66, unit);
  if (is_emulated(m)) T_EQ(free_bytes(m, 0), before - unit);
  T_OK(tide_machine_unmap(m, range, unit));
  if (is_emulated(m)) T_EQ(free_bytes(m, 0), before);
}

CHECK(map__two_addresses_are_one_memory) {
  const size_t unit = granularity(m);
  uint8_t* const a = reserve(m, 0, 2 * unit);
  uint8_t* const b = reserve(m, 0, unit);
  const tide_physical physical = physical_new(m, 0, unit);
  T_OK(tide_machine_map(m, a + unit, physical));
  T_OK(tide_machine_map(m, b, physical));
  T_OK(tide_machine_set_access(m, a + unit, unit, 0, TIDE_ACCESS_READ_WRITE));
  T_OK(tide_machine_set_access(m, b, unit, 0, TIDE_ACCESS_READ_WRITE));

  device_fill(m, 0, a + unit, 0x10, unit);
  expect_filled(m, 0, b, 0x10, unit);
  device_fill(m, 0, b + 100, 0x20, 1000);

  expect_filled(m, 0, a + unit, 0x10, 100);
  expect_filled(m, 0, a + unit + 100, 0x20, 1000);
  expect_filled(m, 0, a + unit + 1100, 0x10, unit - 1100);
}

CHECK(map__different_memory_stays_apart) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, 2 * unit);
  map_new(m, 0, range, unit);
  map_new(m, 0, range + unit, unit);

  device_fill(m, 0, range, 1, unit);
  device_fill(m, 0, range + unit, 2, unit);

  expect_filled(m, 0, range, 1, unit);
  expect_filled(m, 0, range + unit, 2, unit);
}

CHECK(map__a_range_grows_and_keeps_its_data) {
  enum { COUNT = 16 };
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, LARGE);

  for (uint8_t i = 0; i < COUNT; ++i) {
    map_new(m, 0, range + i * unit, unit);
    device_fill(m, 0, range + i * unit, (uint8_t)(i + 1), unit);
    for (uint8_t k = 0; k <= i; ++k) expect_filled(m, 0, range + k * unit, (uint8_t)(k + 1), 4096);
  }

  for (uint8_t k = 0; k < COUNT; ++k) expect_filled(m, 0, range + k * unit, (uint8_t)(k + 1), unit);
}

CHECK(map__work_may_cross_neighbouring_mappings) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, 3 * unit);
  uint8_t* const raw = raw_new(m, 0, 2 * unit);
  for (size_t i = 0; i < 3; ++i) map_new(m, 0, range + i * unit, unit);

  device_fill(m, 0, range + unit / 2, 0x7e, 2 * unit);
  T_OK(tide_machine_copy(m, 0, NULL, raw, range + unit / 2, 2 * unit));
  stream_finish(m, 0, NULL);

  expect_filled(m, 0, raw, 0x7e, 2 * unit);
}

CHECK(map__memory_moves_to_another_address_with_its_data) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, 2 * unit);
  const tide_physical physical = physical_new(m, 0, unit);
  T_OK(tide_machine_map(m, range, physical));
  T_OK(tide_machine_set_access(m, range, unit, 0, TIDE_ACCESS_READ_WRITE));
  device_fill(m, 0, range, 0x99, unit);

  T_OK(tide_machine_unmap(m, range, unit));
  T_OK(tide_machine_map(m, range + unit, physical));
  T_OK(tide_machine_set_access(m, range + unit, unit, 0, TIDE_ACCESS_READ_WRITE));

  expect_filled(m, 0, range + unit, 0x99, unit);
}

CHECK(map__while_work_runs_elsewhere) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, 2 * unit);
  const tide_physical physical = physical_new(m, 0, unit);
  const tide_stream stream = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  uint8_t* const raw = raw_new(m, 0, 4096);
  gate held;
  gate_close(&held, m, 0, stream);
  T_OK(tide_machine_fill(m, 0, stream, raw, 1, 4096));

  T_OK(tide_machine_map(m, range, physical));
  T_OK(tide_machine_set_access(m, range, unit, 0, TIDE_ACCESS_READ_WRITE));

  T_CHECK(!stream_is_idle(m, 0, stream));
  gate_open(&held);
  stream_finish(m, 0, stream);
}

CHECK(map__takes_memory_of_another_device) {
  need_two_devices(m);
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, unit);

  map_new(m, 1, range, unit);
  device_fill(m, 1, range, 0x31, unit);

  expect_filled(m, 1, range, 0x31, unit);
  T_EQ(pointer_info(m, range).device, 1);
}

CHECK(map__large_memory_at_once) {
  const size_t unit = granularity(m);
  const size_t bytes = 64 * MIB / unit * unit;
  uint8_t* const range = reserve(m, 0, bytes);

  map_new(m, 0, range, bytes);
  device_fill(m, 0, range + bytes - 4096, 0x12, 4096);

  expect_filled(m, 0, range + bytes - 4096, 0x12, 4096);
}

CHECK(set_access__lets_a_second_device_in) {
  need_two_devices(m);
  bool is_possible = false;
  T_OK(tide_machine_peer_query(m, 1, 0, &is_possible));
  if (!is_possible) t_skip("no peer access between devices 1 and 0");
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, unit);
  map_new(m, 0, range, unit);

  T_OK(tide_machine_set_access(m, range, unit, 1, TIDE_ACCESS_READ_WRITE));
  device_fill(m, 1, range, 0x5d, unit);

  expect_filled(m, 0, range, 0x5d, unit);
  expect_filled(m, 1, range, 0x5d, unit);
}

CHECK_REAL(set_access__taken_away_while_work_runs_does_no_harm) {
  const size_t bytes = 32 * granularity(m);
  const tide_stream stream = stream_new(m, 0, 0);
  if (!device_info(m, 0).is_host_readable) t_skip("the driver reports an illegal access, for good");
  uint8_t* const range = reserve(m, 0, bytes);
  map_new(m, 0, range, bytes);

  for (int i = 0; i < 10; ++i) {
    T_OK(tide_machine_set_access(m, range, bytes, 0, TIDE_ACCESS_READ_WRITE));
    T_OK(tide_machine_fill(m, 0, stream, range, 1, bytes));
    t_sleep_us((uint64_t)i * 100);
    T_OK(tide_machine_set_access(m, range, bytes, 0, TIDE_ACCESS_NONE));
    T_ANY(tide_machine_stream_synchronize(m, 0, stream));
  }
}
