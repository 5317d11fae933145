// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The tables that arenas get their memory from: the computer's own, a machine's device and pinned memory, and
// the cache of a stream; and a profile on each of them.
#define T_THREADS
#include "device/devices.h"
#include "tidemark/memory.h"
#include "tidemark/profile.h"

static void* memory_take(const tide_memory* memory, size_t bytes, size_t alignment) {
  void* address = NULL;
  T_OK(memory->alloc(memory, bytes, alignment, &address));
  T_CHECK(address != NULL);
  T_EQ((uintptr_t)address % alignment, 0);
  return address;
}

static void memory_give(const tide_memory* memory, void* address) { T_OK(memory->release(memory, address)); }

static void expect_refused(const tide_memory* memory, size_t bytes, size_t alignment, tide_status status) {
  void* address = &address;
  T_STATUS(memory->alloc(memory, bytes, alignment, &address), status);
  T_PTR_EQ(address, NULL);
}

// ---------------------------------------------------------------------------------------------------
// The computer's own

T_TEST(test_memory_table__cpu_memory_is_aligned_and_apart) {
  const tide_memory memory = tide_memory_cpu();
  void* addresses[21];
  T_CHECK(memory.is_host);
  for (size_t i = 0; i <= 20; i++) {
    addresses[i] = memory_take(&memory, 1000 + i, (size_t)1 << i);
    memset(addresses[i], (int)i, 1000 + i);
  }
  for (size_t i = 0; i <= 20; i++) {
    T_FILLED(addresses[i], (uint8_t)i, 1000 + i);
    memory_give(&memory, addresses[i]);
  }
}

T_TEST(test_memory_table__cpu_refuses_what_makes_no_sense) {
  const tide_memory memory = tide_memory_cpu();

  expect_refused(&memory, (size_t)PTRDIFF_MAX + 1, 64, TIDE_ERR_ARGUMENT);
  expect_refused(&memory, SIZE_MAX, 64, TIDE_ERR_ARGUMENT);
  expect_refused(&memory, 0, 64, TIDE_ERR_ARGUMENT);
  expect_refused(&memory, 64, 48, TIDE_ERR_ARGUMENT);
}

T_TEST(test_memory_table__cpu_says_how_many_bytes_there_are_not) {
  const tide_memory memory = tide_memory_cpu();
  if (T_HAS_SANITIZER) t_skip("a sanitizer ends the program there");

  expect_refused(&memory, (size_t)PTRDIFF_MAX - 4096, 64, TIDE_ERR_NO_MEMORY);

  T_STR_HAS(tide_last_error()->text, "9223372036854771711");
}

// ---------------------------------------------------------------------------------------------------
// Of a machine

MACHINE_TEST(test_memory_table__device_memory_comes_from_the_machine) {
  const tide_memory memory = tide_machine_memory(m, 0);
  const size_t before = free_bytes(m, 0);

  void* const address = memory_take(&memory, 100000, 512);

  T_EQ(pointer_info(m, address).kind, TIDE_MEMORY_RAW);
  if (!is_cuda(m)) T_LT(free_bytes(m, 0), before);
  device_fill(m, 0, address, 0x5a, 100000);
  expect_filled(m, 0, address, 0x5a, 100000);
  memory_give(&memory, address);
  if (!is_cuda(m)) T_EQ(free_bytes(m, 0), before);
}

MACHINE_TEST(test_memory_table__pinned_memory_comes_from_the_machine) {
  const tide_memory memory = tide_machine_pinned_memory(m, 0);

  void* const address = memory_take(&memory, 100000, 64);

  T_EQ(pointer_info(m, address).kind, TIDE_MEMORY_PINNED);
  if (machine_has_memory(m)) memset(address, 0x5a, 100000);
  memory_give(&memory, address);
  T_EQ(pointer_info(m, address).kind, TIDE_MEMORY_UNKNOWN);
}

MACHINE_TEST(test_memory_table__each_device_has_its_own) {
  need_two_devices(m);
  const tide_memory memory = tide_machine_memory(m, 1);

  void* const address = memory_take(&memory, 4096, 64);

  T_EQ(pointer_info(m, address).device, 1);
  memory_give(&memory, address);
}

EMULATED_TEST(test_memory_table__what_the_machine_cannot_give_is_refused) {
  const tide_memory memory = tide_machine_memory(m, 0);
  const tide_memory nowhere = tide_machine_memory(m, 7);
  const tide_memory negative = tide_machine_memory(m, -1);
  const size_t before = free_bytes(m, 0);

  expect_refused(&memory, 2 * MACHINE_CAPACITY, 64, TIDE_ERR_NO_MEMORY);
  expect_refused(&nowhere, 4096, 64, TIDE_ERR_DEVICE);
  expect_refused(&negative, 4096, 64, TIDE_ERR_DEVICE);

  T_EQ(free_bytes(m, 0), before);
}

// An alignment far above the machine's: memory that happens to lie there is good, anything else is refused.
EMULATED_TEST(test_memory_table__alignments_that_the_machine_does_not_give) {
  const tide_memory memories[] = { tide_machine_memory(m, 0), tide_machine_pinned_memory(m, 0) };
  const size_t before = free_bytes(m, 0);
  for (size_t i = 0; i < 2; i++) {
    void* address = NULL;
    const tide_status status = memories[i].alloc(&memories[i], 4096, (size_t)1 << 40, &address);
    T_STATUS(status, address != NULL ? TIDE_OK : TIDE_ERR_UNSUPPORTED);
    if (address != NULL) memory_give(&memories[i], address);
  }
  T_EQ(free_bytes(m, 0), before);
}

EMULATED_TEST(test_memory_table__what_is_not_its_own_is_refused) {
  const tide_memory raw = tide_machine_memory(m, 0);
  const tide_memory pinned = tide_machine_pinned_memory(m, 0);
  uint8_t foreign = 0;

  T_STATUS(raw.release(&raw, &foreign), TIDE_ERR_ARGUMENT);
  T_STATUS(pinned.release(&pinned, &foreign), TIDE_ERR_ARGUMENT);
}

// Work that is still queued finds its memory: giving back waits for it.
HOST_TEST(test_memory_table__giving_back_waits_for_the_device) {
  const tide_memory memories[] = { tide_machine_memory(m, 0), tide_machine_pinned_memory(m, 0) };
  const tide_stream stream = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  for (size_t i = 0; i < 2; i++) {
    void* const address = memory_take(&memories[i], 65536, 64);
    for (int k = 0; k < 20; k++) {
      T_OK(tide_machine_call(m, 0, stream, call_slow, NULL));
      T_OK(tide_machine_fill(m, 0, stream, address, (uint8_t)k, 65536));
    }

    memory_give(&memories[i], address);

    T_CHECK(stream_is_idle(m, 0, stream));
    T_OK(tide_machine_device_synchronize(m, 0));  // which would tell of work that came too late
  }
}

// ---------------------------------------------------------------------------------------------------
// Of a cache

DEVICE_TEST_OVER(test_memory_table__a_cache_is_a_source, machine_names) {
  const tide_stream stream = side_new(m);
  const tide_memory memory = tide_device_memory(d, stream);

  void* const first = memory_take(&memory, 100000, 512);
  memory_give(&memory, first);
  void* const second = memory_take(&memory, 100000, 512);

  T_PTR_EQ(first, second);
  memory_give(&memory, second);
}

DEVICE_TEST_OVER(test_memory_table__a_cache_refuses_what_it_cannot_give, machine_emulated) {
  const tide_memory memory = tide_device_memory(d, NULL);
  uint8_t foreign = 0;

  expect_refused(&memory, 2 * MACHINE_CAPACITY, 64, TIDE_ERR_NO_MEMORY);
  expect_refused(&memory, 4096, (size_t)1 << 46, TIDE_ERR_UNSUPPORTED);
  T_CHECK(memory.release(&memory, &foreign) != TIDE_OK);
  (void)m;
}

// ---------------------------------------------------------------------------------------------------
// Profiles on them

// Records and replays on the addresses alone, so that it works on a machine without memory too.
static void expect_profile_on(const tide_memory* memory) {
  tide_profile_options options = TIDE_PROFILE_OPTIONS_INIT;
  tide_profile* profile = NULL;
  tide_profile_report report = TIDE_PROFILE_REPORT_INIT;
  options.memory = options.fallback = *memory;
  T_OK(tide_profile_new(&options, &profile));
  for (int run = 0; run < 4; run++) {
    void* addresses[5] = { NULL };
    T_OK(tide_profile_begin(profile, TIDE_PROFILE_AUTO, 0));
    for (size_t i = 0; i < 5; i++) {
      T_OK(tide_profile_alloc(profile, 1000 * (i + 1), 0, &addresses[i]));
      T_EQ(tide_profile_owns(profile, addresses[i]), run > 0);
      if (i > 0) T_OK(tide_profile_release(profile, addresses[i - 1]));
    }
    T_OK(tide_profile_end(profile, &report));
    T_OK(tide_profile_release(profile, addresses[4]));
  }
  T_EQ(report.hits, 5);
  T_CHECK(report.is_same);
  tide_profile_free(profile);
}

T_TEST(test_memory_table__a_profile_on_cpu_memory) {
  const tide_memory memory = tide_memory_cpu();
  expect_profile_on(&memory);
}

MACHINE_TEST(test_memory_table__a_profile_on_device_memory) {
  const tide_memory memory = tide_machine_memory(m, 0);
  const size_t before = free_bytes(m, 0);
  expect_profile_on(&memory);
  if (!is_cuda(m)) T_EQ(free_bytes(m, 0), before);
}

MACHINE_TEST(test_memory_table__a_profile_on_pinned_memory) {
  const tide_memory memory = tide_machine_pinned_memory(m, 0);
  expect_profile_on(&memory);
}

DEVICE_TEST_OVER(test_memory_table__a_profile_on_a_cache, machine_names) {
  const tide_memory memory = tide_device_memory(d, side_new(m));
  expect_profile_on(&memory);
}
