// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Strays: raw memory that could not be used, for want of records, and that the machine refused to take back.
// What they cost: a try for each when idle memory is given back, and nothing else.
#include "device/allocator.h"
#include "device/devices.h"

enum { STRAYS = 3, POOLS = 4, TRIES = 2000 };

typedef struct yard {
  tide_machine* m;
  tide_device_cache* d;
  counting_heap records;
  size_t free_bytes;  // before it
} yard;

// How often the machine was asked to take raw memory back.
static uint64_t tries(const yard* y) { return tide_machine_call_stats(y->m, TIDE_CALL_RAW_RELEASE).calls; }

#define expect_tries(y, count, ...)    \
  do {                                 \
    const uint64_t before_ = tries(y); \
    __VA_ARGS__;                       \
    T_EQ(tries(y) - before_, (count)); \
  } while (0)

// Requests fail, one after the other, at each request for a record, until there are so many strays. Nothing
// is cached then that the machine could be asked to take.
static void yard_open(yard* y, tide_machine* m) {
  y->m = m;
  y->free_bytes = free_bytes(m, 0);
  counting_heap_init(&y->records, SIZE_MAX, false);
  y->d = device_new(m, 0, &y->records.heap);
  tide_device_set_caching(y->d, false);
  break_calls(m, TIDE_CALL_RAW_RELEASE, TIDE_ERR_MACHINE, UINT64_MAX);
  for (size_t i = 0; i < TRIES && tries(y) < STRAYS; ++i) {
    atomic_store(&y->records.fail_at, atomic_load(&y->records.allocs) + i % 4);
    T_ANY(try_take(y->d, TIDE_STREAM_LEGACY, 512));
  }
  atomic_store(&y->records.fail_at, SIZE_MAX);
  tide_device_set_caching(y->d, true);
  T_EQ(tries(y), STRAYS);
}

static void yard_close(yard* y) {
  device_expect_valid(y->d);
  tide_device_free(y->d);
  T_EQ(atomic_load(&y->records.outstanding), 0);
  T_EQ(free_bytes(y->m, 0), y->free_bytes);
}

MACHINE_TEST_OVER(test_strays__are_tried_once_for_all_pools, machine_emulated) {
  yard y;
  yard_open(&y, m);
  for (size_t i = 0; i < POOLS; ++i) {
    tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
    expect_tries(&y, STRAYS, trim(y.d));
    options.tag = "open";  // a trim gives its idle memory back, too
    (void)pool_new(y.d, &options);
  }
  limit_to(y.d, MIB);
  expect_tries(&y, STRAYS, T_STATUS(try_take(y.d, TIDE_STREAM_LEGACY, 8 * MIB), TIDE_ERR_NO_MEMORY));
  tide_machine_fault_clear(m);
  yard_close(&y);
}

MACHINE_TEST_OVER(test_strays__cost_nothing_while_memory_is_at_hand, machine_emulated) {
  yard y;
  yard_open(&y, m);
  const size_t allocs = atomic_load(&y.records.allocs);
  expect_tries(&y, 0, {
    for (size_t i = 0; i < 100; ++i) give(y.d, take(y.d, TIDE_STREAM_LEGACY, i % 2 == 0 ? 512 : 8 * MIB));
    T_OK(tide_device_poll(y.d));
  });
  T_LT(atomic_load(&y.records.allocs), allocs + 100);
  tide_machine_fault_clear(m);
  yard_close(&y);
}

MACHINE_TEST_OVER(test_strays__that_are_gone_are_forgotten, machine_emulated) {
  yard y;
  yard_open(&y, m);
  trim(y.d);
  const size_t records = atomic_load(&y.records.outstanding);
  T_LT(free_bytes(m, 0), y.free_bytes);
  tide_machine_fault_clear(m);
  expect_tries(&y, STRAYS, trim(y.d));
  T_EQ(free_bytes(m, 0), y.free_bytes);
  T_EQ(atomic_load(&y.records.outstanding), records - STRAYS * sizeof(tide__stray));
  expect_tries(&y, 0, trim(y.d));
  yard_close(&y);
}
