// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Conformance: devices, raw and pinned memory, pointer_info.
#include "conformance/check.h"

CHECK_FILE(check_memory);

CHECK(machine__free_of_null_does_nothing) {
  tide_machine_free(NULL);

  T_LT(0, tide_machine_device_count(m));
}

CHECK(device_info__describes_every_device) {
  for (int device = 0; device < tide_machine_device_count(m); ++device) {
    const tide_device_info info = device_info(m, device);

    T_EQ(info.size, sizeof(tide_device_info));
    T_CHECK(info.name[0] != '\0' && memchr(info.name, '\0', sizeof info.name) != NULL);
    T_LT(0, info.total_bytes);
    T_CHECK(info.greatest_priority <= info.least_priority);
    T_EQ(info.granularity & (info.granularity - 1), 0);
  }
}

CHECK(device_info__agrees_with_memory_info) {
  size_t free_now = 0;
  size_t total = 0;

  T_OK(tide_machine_memory_info(m, 0, &free_now, &total));

  T_EQ(total, device_info(m, 0).total_bytes);
  T_LE(free_now, total);
}

CHECK(clock__never_goes_back) {
  uint64_t last = clock_ns(m);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t now = clock_ns(m);
    T_LE(last, now);
    last = now;
  }
}

CHECK_REAL(clock__goes_with_time) {
  const uint64_t before = clock_ns(m);

  t_sleep_us(5000);

  T_LE(before + 4000000, clock_ns(m));
}

CHECK(raw_alloc__aligns_to_512) {
  static const size_t sizes[] = { 1, 7, 511, 512, 513, 4095, 4097, 65537, 1048576, 1048577, 3145729 };
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    T_EQ((uintptr_t)raw_new(m, 0, sizes[i]) % 512, 0);
  }
}

CHECK(raw_alloc__blocks_do_not_overlap) {
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

CHECK(raw_alloc__memory_keeps_what_is_written) {
  uint8_t* const a = raw_new(m, 0, 100003);
  uint8_t* const b = raw_new(m, 0, 100003);

  device_fill(m, 0, a, 0x11, 100003);
  device_fill(m, 0, b, 0x22, 100003);

  expect_filled(m, 0, a, 0x11, 100003);
  expect_filled(m, 0, b, 0x22, 100003);
}

CHECK(raw_alloc__more_than_the_device_is_no_memory) {
  void* block = &block;

  T_STATUS(tide_machine_raw_alloc(m, 0, (size_t)device_info(m, 0).total_bytes + 1, &block),
           TIDE_ERR_NO_MEMORY);

  T_PTR_EQ(block, NULL);
  T_STR_HAS(tide_last_error()->text, "raw_alloc");
  (void)raw_new(m, 0, MIB);
}

CHECK_REAL(pinned_alloc__can_be_used_by_the_host) {
  uint8_t* const memory = pinned_new(m, 100001);

  memset(memory, 0x5a, 100001);

  T_FILLED(memory, 0x5a, 100001);
}

CHECK(pinned_alloc__is_usable_by_all_devices) {
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

CHECK(pinned_register__makes_memory_pinned_until_unregistered) {
  uint8_t* const buffer = buffer_new(256 * KIB);

  T_OK(tide_machine_pinned_register(m, buffer, 256 * KIB));
  T_EQ(pointer_info(m, buffer + 100).kind, TIDE_MEMORY_PINNED);
  T_OK(tide_machine_pinned_unregister(m, buffer));
  T_EQ(pointer_info(m, buffer + 100).kind, TIDE_MEMORY_UNKNOWN);

  free(buffer);
}

CHECK(pinned_register__keeps_and_carries_the_data) {
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

CHECK(pinned_register__refuses_what_is_registered) {
  uint8_t* const buffer = buffer_new(256 * KIB);
  T_OK(tide_machine_pinned_register(m, buffer, 128 * KIB));

  T_STATUS(tide_machine_pinned_register(m, buffer, 128 * KIB), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_pinned_register(m, buffer + 64 * KIB, 128 * KIB), TIDE_ERR_ARGUMENT);

  T_OK(tide_machine_pinned_register(m, buffer + 128 * KIB, 128 * KIB));
  T_OK(tide_machine_pinned_unregister(m, buffer + 128 * KIB));
  T_OK(tide_machine_pinned_unregister(m, buffer));
  free(buffer);
}

CHECK(pointer_info__knows_raw_memory) {
  uint8_t* const block = raw_new(m, 0, 4 * MIB);

  expect_pointer(m, block, TIDE_MEMORY_RAW, 0, block, 4 * MIB);
  expect_pointer(m, block + MIB + 1, TIDE_MEMORY_RAW, 0, block, 4 * MIB);
  expect_pointer(m, block + 4 * MIB - 1, TIDE_MEMORY_RAW, 0, block, 4 * MIB);
}

CHECK(pointer_info__tells_devices_apart) {
  need_two_devices(m);
  uint8_t* const block = raw_new(m, 1, 4 * MIB);

  expect_pointer(m, block + 5, TIDE_MEMORY_RAW, 1, block, 4 * MIB);
}

CHECK(pointer_info__knows_pinned_memory) {
  uint8_t* const pinned = pinned_new(m, 64 * KIB);

  expect_pointer(m, pinned, TIDE_MEMORY_PINNED, -1, pinned, 64 * KIB);
  expect_pointer(m, pinned + 64 * KIB - 1, TIDE_MEMORY_PINNED, -1, pinned, 64 * KIB);
}

CHECK(pointer_info__knows_registered_memory) {
  uint8_t* const buffer = buffer_new(128 * KIB);
  T_OK(tide_machine_pinned_register(m, buffer, 128 * KIB));

  expect_pointer(m, buffer + 77, TIDE_MEMORY_PINNED, -1, buffer, 128 * KIB);

  T_OK(tide_machine_pinned_unregister(m, buffer));
  free(buffer);
}

CHECK(pointer_info__takes_any_value) {
  const uint8_t local = 0;
  const uintptr_t values[] = {
    0, 1, 4095, (uintptr_t)&local, UINTPTR_MAX, UINTPTR_MAX / 2, (uintptr_t)1 << 47
  };

  for (size_t i = 0; i < sizeof values / sizeof *values; ++i) {
    expect_pointer(m, (const uint8_t*)values[i], TIDE_MEMORY_UNKNOWN, -1, NULL, 0);
  }
}
