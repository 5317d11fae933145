// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Conformance of machines: devices, raw and pinned memory, capacity, copies, pointer_info.
#include "machine/machines.h"

// ---------------------------------------------------------------------------------------------------
// Devices

MACHINE_TEST(test_machine__tells_its_name) { T_STR_EQ(tide_machine_name(m), t_variant()); }

MACHINE_TEST(test_machine__has_the_devices_it_was_given) {
  if (is_cuda(m)) T_LT(0, tide_machine_device_count(m));
  else T_EQ(tide_machine_device_count(m), 2);
}

MACHINE_TEST(test_machine__free_of_null_does_nothing) {
  tide_machine_free(NULL);

  T_LT(0, tide_machine_device_count(m));
}

MACHINE_TEST(test_device_info__describes_every_device) {
  for (int device = 0; device < tide_machine_device_count(m); ++device) {
    const tide_device_info info = device_info(m, device);

    T_EQ(info.size, sizeof(tide_device_info));
    T_CHECK(info.name[0] != '\0' && memchr(info.name, '\0', sizeof info.name) != NULL);
    T_LT(0, info.total_bytes);
    T_CHECK(info.greatest_priority <= info.least_priority);
    T_EQ(info.granularity & (info.granularity - 1), 0);
  }
}

MACHINE_TEST(test_device_info__agrees_with_memory_info) {
  size_t free_now = 0;
  size_t total = 0;

  T_OK(tide_machine_memory_info(m, 0, &free_now, &total));

  T_EQ(total, device_info(m, 0).total_bytes);
  T_LE(free_now, total);
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

MACHINE_TEST(test_clock__never_goes_back) {
  uint64_t last = clock_ns(m);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t now = clock_ns(m);
    T_LE(last, now);
    last = now;
  }
}

REAL_TEST(test_clock__goes_with_time) {
  const uint64_t before = clock_ns(m);

  t_sleep_us(5000);

  T_LE(before + 4000000, clock_ns(m));
}

// ---------------------------------------------------------------------------------------------------
// Raw memory

MACHINE_TEST(test_raw_alloc__aligns_to_512) {
  static const size_t sizes[] = { 1, 7, 511, 512, 513, 4095, 4097, 65537, 1048576, 1048577, 3145729 };
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    T_EQ((uintptr_t)raw_new(m, 0, sizes[i]) % 512, 0);
  }
}

MACHINE_TEST(test_raw_alloc__blocks_do_not_overlap) {
  enum { COUNT = 32, BYTES = 10007 };
  uint8_t* blocks[COUNT];

  for (size_t i = 0; i < COUNT; ++i)
    blocks[i] = raw_new(m, (int)(i % 2) % tide_machine_device_count(m), BYTES);

  for (size_t i = 0; i < COUNT; ++i) {
    for (size_t k = 0; k < i; ++k) {
      T_CHECK(blocks[i] + BYTES <= blocks[k] || blocks[k] + BYTES <= blocks[i]);
    }
  }
}

MACHINE_TEST(test_raw_alloc__memory_keeps_what_is_written) {
  uint8_t* const a = raw_new(m, 0, 100003);
  uint8_t* const b = raw_new(m, 0, 100003);

  device_fill(m, 0, a, 0x11, 100003);
  device_fill(m, 0, b, 0x22, 100003);

  expect_filled(m, 0, a, 0x11, 100003);
  expect_filled(m, 0, b, 0x22, 100003);
}

EMULATED_TEST(test_raw_alloc__takes_from_its_device_alone) {
  const size_t before = free_bytes(m, 0);

  uint8_t* const block = raw_new(m, 0, 10 * MIB);

  T_LE(free_bytes(m, 0), before - 10 * MIB);
  T_LE(before - 12 * MIB, free_bytes(m, 0));
  T_EQ(free_bytes(m, 1), MACHINE_CAPACITY);
  T_OK(tide_machine_raw_release(m, 0, block));
  T_EQ(free_bytes(m, 0), before);
}

MACHINE_TEST(test_raw_alloc__more_than_the_device_is_no_memory) {
  void* block = &block;

  T_STATUS(tide_machine_raw_alloc(m, 0, (size_t)device_info(m, 0).total_bytes + 1, &block),
           TIDE_ERR_NO_MEMORY);

  T_PTR_EQ(block, NULL);
  T_STR_HAS(tide_last_error()->text, "raw_alloc");
  (void)raw_new(m, 0, MIB);
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

REAL_TEST(test_pinned_alloc__can_be_used_by_the_host) {
  uint8_t* const memory = pinned_new(m, 100001);

  memset(memory, 0x5a, 100001);

  T_FILLED(memory, 0x5a, 100001);
}

EMULATED_TEST(test_pinned_alloc__takes_nothing_from_a_device) {
  (void)pinned_new(m, 8 * MIB);

  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY);
  T_EQ(free_bytes(m, 1), MACHINE_CAPACITY);
}

MACHINE_TEST(test_pinned_alloc__is_usable_by_all_devices) {
  need_two_devices(m);
  uint8_t* const pinned = pinned_new(m, 4096);
  uint8_t* const blocks[2] = { raw_new(m, 0, 4096), raw_new(m, 1, 4096) };

  for (int device = 0; device < 2; ++device) {
    if (machine_has_memory(m)) memset(pinned, 0x30 + device, 4096);
    T_OK(tide_machine_copy(m, device, NULL, blocks[device], pinned, 4096));
    T_OK(tide_machine_device_synchronize(m, device));
  }

  expect_filled(m, 0, blocks[0], 0x30, 4096);
  expect_filled(m, 1, blocks[1], 0x31, 4096);
}

EMULATED_TEST(test_pinned_release__refuses_what_it_did_not_make) {
  uint8_t* const pinned = pinned_new(m, MIB);
  uint8_t* const raw = raw_new(m, 0, MIB);

  T_STATUS(tide_machine_pinned_release(m, pinned + 4096), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_pinned_release(m, raw), TIDE_ERR_ARGUMENT);
  T_OK(tide_machine_pinned_release(m, pinned));
  T_STATUS(tide_machine_pinned_release(m, pinned), TIDE_ERR_ARGUMENT);
}

// Page-aligned memory of the process that is written to, so that locking finds pages.
static uint8_t* buffer_new(size_t bytes) {
  void* buffer = NULL;
  T_EQ(posix_memalign(&buffer, 65536, bytes), 0);
  memset(buffer, 0, bytes);
  return buffer;
}

MACHINE_TEST(test_pinned_register__makes_memory_pinned_until_unregistered) {
  uint8_t* const buffer = buffer_new(256 * KIB);

  T_OK(tide_machine_pinned_register(m, buffer, 256 * KIB));
  T_EQ(pointer_info(m, buffer + 100).kind, TIDE_MEMORY_PINNED);
  T_OK(tide_machine_pinned_unregister(m, buffer));
  T_EQ(pointer_info(m, buffer + 100).kind, TIDE_MEMORY_UNKNOWN);

  free(buffer);
}

MACHINE_TEST(test_pinned_register__keeps_and_carries_the_data) {
  uint8_t* const buffer = buffer_new(256 * KIB);
  uint8_t* const raw = raw_new(m, 0, 256 * KIB);
  memset(buffer, 0x77, 256 * KIB);

  T_OK(tide_machine_pinned_register(m, buffer, 256 * KIB));
  T_OK(tide_machine_copy(m, 0, NULL, raw, buffer, 256 * KIB));
  T_OK(tide_machine_device_synchronize(m, 0));

  expect_filled(m, 0, raw, 0x77, 256 * KIB);
  T_OK(tide_machine_pinned_unregister(m, buffer));
  T_FILLED(buffer, 0x77, 256 * KIB);
  free(buffer);
}

MACHINE_TEST(test_pinned_register__refuses_what_is_registered) {
  uint8_t* const buffer = buffer_new(256 * KIB);
  T_OK(tide_machine_pinned_register(m, buffer, 128 * KIB));

  T_STATUS(tide_machine_pinned_register(m, buffer, 128 * KIB), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_pinned_register(m, buffer + 64 * KIB, 128 * KIB), TIDE_ERR_ARGUMENT);

  T_OK(tide_machine_pinned_register(m, buffer + 128 * KIB, 128 * KIB));
  T_OK(tide_machine_pinned_unregister(m, buffer + 128 * KIB));
  T_OK(tide_machine_pinned_unregister(m, buffer));
  free(buffer);
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

MACHINE_TEST(test_copy__carries_bytes_there_and_back) {
  enum { BYTES = 300001 };
  t_rng rng = t_rng_new(1);
  uint8_t* const there = malloc(BYTES);
  uint8_t* const back = calloc(1, BYTES);
  for (size_t i = 0; i < BYTES; ++i) there[i] = (uint8_t)t_rng_next(&rng);
  uint8_t* const a = raw_new(m, 0, BYTES);
  uint8_t* const b = raw_new(m, 0, BYTES);

  device_write(m, 0, a, there, BYTES);
  T_OK(tide_machine_copy(m, 0, NULL, b, a, BYTES));
  stream_finish(m, 0, NULL);
  device_read(m, 0, b, back, BYTES);

  if (machine_has_memory(m)) T_EQ(memcmp(there, back, BYTES), 0);
  free(there);
  free(back);
}

MACHINE_TEST(test_copy__takes_ordinary_memory) {
  uint8_t* const there = malloc(5000);
  uint8_t* const back = calloc(1, 5000);
  memset(there, 0x42, 5000);
  uint8_t* const raw = raw_new(m, 0, 5000);

  T_OK(tide_machine_copy(m, 0, NULL, raw, there, 5000));
  T_OK(tide_machine_copy(m, 0, NULL, back, raw, 5000));
  stream_finish(m, 0, NULL);

  if (machine_has_memory(m)) T_FILLED(back, 0x42, 5000);
  free(there);
  free(back);
}

MACHINE_TEST(test_copy__touches_no_byte_beside_its_range) {
  uint8_t* const a = raw_new(m, 0, 4096);
  uint8_t* const b = raw_new(m, 0, 4096);
  device_fill(m, 0, a, 0xaa, 4096);
  device_fill(m, 0, b, 0xbb, 4096);

  T_OK(tide_machine_copy(m, 0, NULL, b + 101, a + 3, 999));
  stream_finish(m, 0, NULL);

  expect_filled(m, 0, b, 0xbb, 101);
  expect_filled(m, 0, b + 101, 0xaa, 999);
  expect_filled(m, 0, b + 1100, 0xbb, 4096 - 1100);
}

MACHINE_TEST(test_fill__touches_no_byte_beside_its_range) {
  uint8_t* const a = raw_new(m, 0, 4096);
  device_fill(m, 0, a, 0x01, 4096);

  device_fill(m, 0, a + 13, 0xff, 1001);

  expect_filled(m, 0, a, 0x01, 13);
  expect_filled(m, 0, a + 13, 0xff, 1001);
  expect_filled(m, 0, a + 1014, 0x01, 4096 - 1014);
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

// ---------------------------------------------------------------------------------------------------
// Peers

REAL_TEST(test_copy__reaches_another_device) {
  need_two_devices(m);
  uint8_t* const a = raw_new(m, 0, 70001);
  uint8_t* const b = raw_new(m, 1, 70001);
  device_fill(m, 0, a, 0x19, 70001);

  T_OK(tide_machine_copy(m, 0, NULL, b, a, 70001));
  stream_finish(m, 0, NULL);

  expect_filled(m, 1, b, 0x19, 70001);
}

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

MACHINE_TEST(test_peer_enable__twice_is_fine) {
  need_two_devices(m);
  bool is_possible = false;
  T_OK(tide_machine_peer_query(m, 0, 1, &is_possible));
  if (!is_possible) t_skip("no peer access between devices 0 and 1");

  T_OK(tide_machine_peer_enable(m, 0, 1));
  T_OK(tide_machine_peer_enable(m, 0, 1));

  T_OK(tide_machine_peer_disable(m, 0, 1));
}

// ---------------------------------------------------------------------------------------------------
// Pointers

static void expect_pointer(tide_machine* m, const uint8_t* pointer, tide_memory_kind kind, int device,
                           const uint8_t* base, size_t bytes) {
  const tide_pointer_info info = pointer_info(m, pointer);
  T_EQ(info.size, sizeof info);
  T_EQ(info.kind, kind);
  T_EQ(info.device, device);
  T_PTR_EQ(info.base, base);
  T_EQ(info.bytes, bytes);
}

MACHINE_TEST(test_pointer_info__knows_raw_memory) {
  uint8_t* const block = raw_new(m, 0, 4 * MIB);

  expect_pointer(m, block, TIDE_MEMORY_RAW, 0, block, 4 * MIB);
  expect_pointer(m, block + MIB + 1, TIDE_MEMORY_RAW, 0, block, 4 * MIB);
  expect_pointer(m, block + 4 * MIB - 1, TIDE_MEMORY_RAW, 0, block, 4 * MIB);
}

MACHINE_TEST(test_pointer_info__tells_devices_apart) {
  need_two_devices(m);
  uint8_t* const block = raw_new(m, 1, 4 * MIB);

  expect_pointer(m, block + 5, TIDE_MEMORY_RAW, 1, block, 4 * MIB);
}

EMULATED_TEST(test_pointer_info__ends_where_the_block_ends) {
  uint8_t* const block = raw_new(m, 0, 1000);

  expect_pointer(m, block + 999, TIDE_MEMORY_RAW, 0, block, 1000);
  T_CHECK(pointer_info(m, block + 1000).base != block);
  T_CHECK(pointer_info(m, block - 1).base != block);
}

MACHINE_TEST(test_pointer_info__knows_pinned_memory) {
  uint8_t* const pinned = pinned_new(m, 64 * KIB);

  expect_pointer(m, pinned, TIDE_MEMORY_PINNED, -1, pinned, 64 * KIB);
  expect_pointer(m, pinned + 64 * KIB - 1, TIDE_MEMORY_PINNED, -1, pinned, 64 * KIB);
}

MACHINE_TEST(test_pointer_info__knows_registered_memory) {
  uint8_t* const buffer = buffer_new(128 * KIB);
  T_OK(tide_machine_pinned_register(m, buffer, 128 * KIB));

  expect_pointer(m, buffer + 77, TIDE_MEMORY_PINNED, -1, buffer, 128 * KIB);

  T_OK(tide_machine_pinned_unregister(m, buffer));
  free(buffer);
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

MACHINE_TEST(test_pointer_info__takes_any_value) {
  const uint8_t local = 0;
  const uintptr_t values[] = {
    0, 1, 4095, (uintptr_t)&local, UINTPTR_MAX, UINTPTR_MAX / 2, (uintptr_t)1 << 47
  };

  for (size_t i = 0; i < sizeof values / sizeof *values; ++i) {
    expect_pointer(m, (const uint8_t*)values[i], TIDE_MEMORY_UNKNOWN, -1, NULL, 0);
  }
}
