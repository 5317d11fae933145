// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Former bugs of the device allocator that need only one thread; test_races.c has the others. Each test is
// named after what must hold.
#define T_THREADS
#include "device/devices.h"

#define BYTES (64 * KIB)

// ---------------------------------------------------------------------------------------------------
// Records and faults

static counting_heap* records_of(tide_device_cache* d) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  tide_device_get_options(d, &options);
  return options.heap->user;
}

// From the n-th on, counted from 0, all records that are asked for are refused.
static void records_fail_from(counting_heap* records, size_t n) {
  records->is_exhausted = true;
  atomic_store(&records->fail_at, atomic_load(&records->allocs) + n);
}

static void records_recover(counting_heap* records) { atomic_store(&records->fail_at, SIZE_MAX); }

// ---------------------------------------------------------------------------------------------------
// Restoring

#define SMALL_MAX 64
#define BIG_COUNT 20

typedef struct restore_case {
  tide_pool pool;
  tide_checkpoint* checkpoint;  // of small blocks, which are idle now
  const void* bigs[BIG_COUNT];  // what is out instead; their records are those that a restore lacks
} restore_case;

static restore_case restore_case_new(tide_device_cache* d, size_t small_count) {
  restore_case c = { pool_new(d, NULL), NULL, { NULL } };
  tide_block smalls[SMALL_MAX];
  scope_open(d, c.pool);
  for (size_t i = 0; i < small_count; ++i) smalls[i] = take(d, NULL, 512);
  T_OK(tide_device_checkpoint(d, c.pool, &c.checkpoint));
  for (size_t i = 0; i < small_count; ++i) give(d, smalls[i]);
  for (size_t i = 0; i < BIG_COUNT; ++i) c.bigs[i] = take(d, NULL, 12 * MIB).address;
  scope_close(d, c.pool);
  return c;
}

// Ends the case: all is taken back, and the pool goes.
static void restore_case_end(tide_device_cache* d, restore_case* c, tide_restore_delta* delta) {
  for (size_t i = 0; i < delta->created_count; ++i) give(d, delta->created[i]);
  tide_restore_delta_clear(delta);
  tide_checkpoint_free(c->checkpoint);
  T_OK(tide_device_pool_drop(d, c->pool));
  expect_trimmed(d, 0);
}

static void expect_only_bigs(tide_device_cache* d, const restore_case* c) {
  bool is_so = false;
  T_EQ(current(d, allocation), BIG_COUNT);
  T_OK(tide_device_pool_check(d, c->pool, c->bigs, BIG_COUNT, &is_so));
  T_CHECK(is_so);
  device_expect_valid(d);
}

DEVICE_TEST_OVER(test_device__a_restore_without_records_changes_nothing, device_emulated) {
  counting_heap* const records = records_of(d);
  for (size_t count = 40; count <= SMALL_MAX; ++count) {
    restore_case c = restore_case_new(d, count);
    tide_restore_delta delta = TIDE_RESTORE_DELTA_INIT;
    tide_status status = TIDE_ERR_NO_MEMORY;
    size_t n = 0;
    for (; status != TIDE_OK; ++n) {
      records_fail_from(records, n);
      status = tide_device_restore(d, c.checkpoint, &delta);
      records_recover(records);
      if (status != TIDE_OK) T_EQ(status, TIDE_ERR_NO_MEMORY);
      if (status != TIDE_OK) expect_only_bigs(d, &c);
    }
    T_LT(1, n);  // some did fail
    T_EQ(delta.created_count, count);
    restore_case_end(d, &c, &delta);
  }
}

DEVICE_TEST(test_device__repeated_restores_take_no_more_memory) {
  counting_heap* const records = records_of(d);
  const tide_pool pool = pool_new(d, NULL);
  tide_checkpoint* checkpoint = NULL;
  size_t first = 0;
  scope_open(d, pool);
  for (int i = 0; i < 100; ++i) (void)take(d, NULL, 512);
  scope_close(d, pool);
  T_OK(tide_device_checkpoint(d, pool, &checkpoint));

  for (int i = 0; i < 50; ++i) {
    tide_restore_delta delta = TIDE_RESTORE_DELTA_INIT;
    T_OK(tide_device_restore(d, checkpoint, &delta));
    tide_restore_delta_clear(&delta);
    if (i == 0) first = atomic_load(&records->outstanding);
  }

  T_EQ(atomic_load(&records->outstanding), first);
  tide_checkpoint_free(checkpoint);
}

// An idle remainder below 1 MiB between two large blocks begins in the same MiB as its neighbour.
DEVICE_TEST(test_device__restore_beside_small_remainders_keeps_blocks_findable) {
  expand(m, d);
  const tide_pool pool = pool_new(d, NULL);
  tide_checkpoint* checkpoint = NULL;
  tide_restore_delta delta = TIDE_RESTORE_DELTA_INIT;
  scope_open(d, pool);
  const tide_block first = take(d, NULL, MIB + MIB / 2 + 512);
  (void)take(d, NULL, 2 * MIB);
  give(d, first);
  (void)take(d, NULL, MIB + MIB / 2);  // 512 bytes stay
  scope_close(d, pool);
  T_OK(tide_device_checkpoint(d, pool, &checkpoint));

  T_OK(tide_device_restore(d, checkpoint, &delta));

  device_expect_valid(d);
  T_EQ(delta.created_count, 2);
  for (size_t i = 0; i < 2; ++i) T_OK(tide_device_release_address(d, delta.created[i].address));
  tide_restore_delta_clear(&delta);
  tide_checkpoint_free(checkpoint);
}

DEVICE_TEST(test_device__pool_check_takes_repeated_addresses_as_one) {
  const tide_pool pool = pool_new(d, NULL);
  const tide_block a = take_in(d, pool, NULL, 512);
  const tide_block b = take_in(d, pool, NULL, 512);
  const void* const addresses[] = { a.address, b.address, a.address, a.address };
  bool is_so = false;

  T_OK(tide_device_pool_check(d, pool, addresses, 4, &is_so));

  T_CHECK(is_so);
  const void* const only_one[] = { a.address, a.address };
  T_OK(tide_device_pool_check(d, pool, only_one, 2, &is_so));
  T_CHECK(!is_so);
}

// ---------------------------------------------------------------------------------------------------
// Announced work

static tide_launch capture_nothing(tide_machine* m, tide_device_cache* d, tide_stream stream,
                                   tide_block used) {
  tide_launch graph = NULL;
  T_OK(tide_machine_capture_begin(m, 0, stream, TIDE_CAPTURE_THREAD_LOCAL));
  announce(d, used, stream);
  T_OK(tide_machine_capture_end(m, 0, stream, &graph));
  return graph;
}

DEVICE_TEST(test_device__work_announced_before_a_capture_and_in_it_is_waited_for) {
  const tide_stream own = side_new(m);
  const tide_stream side = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  const tide_block block = take(d, own, BYTES);
  gate g;
  hold_up(&g, m, side);
  announce(d, block, side);

  scope_open(d, pool);
  (void)capture_nothing(m, d, side, block);
  give(d, block);
  scope_close(d, pool);
  const tide_block next = take(d, own, BYTES);

  T_CHECK(next.address != block.address);
  T_EQ(current(d, active), 2);
  let_go(&g);
  T_PTR_EQ(take(d, own, BYTES).address, block.address);
}

static void release_after_its_stream(tide_machine* m, tide_device_cache* d) {
  const tide_stream side = side_new(m);
  const tide_block block = take(d, NULL, 200 * MIB);
  announce(d, block, side);
  T_OK(tide_machine_stream_free(m, 0, side));
  give(d, block);
}

DEVICE_TEST_OVER(test_device__a_recorded_stream_that_was_freed_blocks_nothing, device_emulated) {
  release_after_its_stream(m, d);
  expect_trimmed(d, 0);
  T_EQ(current(d, active), 0);
  release_after_its_stream(m, d);
  (void)take(d, side_new(m), 210 * MIB);  // needs the memory of the first
  T_EQ(counter(d, num_ooms), 0);
}

DEVICE_TEST(test_device__a_failed_event_does_not_forget_what_a_capture_announced) {
  const tide_stream side = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  const tide_block block = take(d, NULL, BYTES);
  gate g;
  scope_open(d, pool);
  (void)capture_nothing(m, d, side, block);
  scope_close(d, pool);
  hold_up(&g, m, side);

  break_calls(m, TIDE_CALL_EVENT_RECORD, TIDE_ERR_MACHINE, 1);
  give(d, block);
  tide_machine_fault_clear(m);

  expect_polled(d, 1);
  let_go(&g);
  expect_polled(d, 0);
}

DEVICE_TEST(test_device__a_stream_of_another_device_is_waited_for) {
  need_two_devices(m);
  const tide_stream far = stream_new(m, 1, TIDE_STREAM_NON_BLOCKING);
  const tide_block block = take(d, NULL, BYTES);
  gate g;
  T_OK(tide_device_record_on(d, block, 1, far));
  gate_close(&g, m, 1, far);
  if (is_dry(m)) T_OK(tide_dry_work(m, 1, far, 1));

  give(d, block);
  expect_polled(d, 1);
  let_go(&g);

  expect_polled(d, 0);
  expect_trimmed(d, 0);
}

static tide_block released_in_between;
static tide_device_cache* released_from;

// A heap on which the block that is being announced is released just before its record is made.
static void* alloc_and_release(void* user, size_t bytes, size_t alignment) {
  counting_heap* const records = user;
  records->heap.alloc = counting_alloc;
  give(released_from, released_in_between);
  return counting_alloc(user, bytes, alignment);
}

DEVICE_TEST(test_device__a_block_released_while_it_is_announced_leaves_no_record) {
  const tide_stream side = side_new(m);
  counting_heap* const records = records_of(d);
  const tide_block block = take(d, NULL, 512);
  released_in_between = block;
  released_from = d;
  records->heap.alloc = alloc_and_release;

  T_STATUS(tide_device_record(d, block, side), TIDE_ERR_HANDLE);

  T_CHECK(records->heap.alloc == counting_alloc);
  T_EQ(current(d, active), 0);
}

// ---------------------------------------------------------------------------------------------------
// Captures without records

static void expect_capture_intact(tide_machine* m, tide_stream stream) {
  tide_capture_state state = TIDE_CAPTURE_NONE;
  tide_launch graph = NULL;
  uint64_t id = 0;
  T_OK(tide_machine_capture_info(m, 0, stream, &state, &id));
  T_EQ(state, TIDE_CAPTURE_ACTIVE);
  T_OK(tide_machine_capture_end(m, 0, stream, &graph));
}

static void run_captures_without_records(tide_machine* m, tide_device_cache* d) {
  counting_heap* const records = records_of(d);
  const tide_stream stream = side_new(m);
  const size_t before = free_bytes(m, 0);
  tide_status status = TIDE_ERR_NO_MEMORY;
  size_t n = 0;
  for (; status != TIDE_OK; ++n) {
    const tide_pool pool = pool_new(d, NULL);
    T_OK(tide_machine_capture_begin(m, 0, stream, TIDE_CAPTURE_GLOBAL));
    scope_open(d, pool);
    records_fail_from(records, n);
    status = try_take(d, stream, 512);
    records_recover(records);
    if (status != TIDE_OK) T_EQ(status, TIDE_ERR_NO_MEMORY);
    expect_capture_intact(m, stream);
    scope_close(d, pool);
    T_EQ(free_bytes(m, 0) + (size_t)current(d, reserved_bytes), before);
    device_expect_valid(d);
    if (status != TIDE_OK) T_OK(tide_device_pool_drop(d, pool));
    trim(d);
    if (status != TIDE_OK) T_EQ(free_bytes(m, 0), before);
  }
  T_LT(1, n);
}

DEVICE_TEST_OVER(test_device__a_capture_without_records_is_not_broken, device_emulated) {
  run_captures_without_records(m, d);
}

DEVICE_TEST_OVER(test_device__a_capture_without_records_in_expandable_segments_is_not_broken,
                 device_emulated) {
  expand(m, d);
  run_captures_without_records(m, d);
}

// ---------------------------------------------------------------------------------------------------
// Faults while mapping

DEVICE_TEST_OVER(test_device__two_faults_in_a_row_while_mapping_lose_nothing, device_emulated) {
  expand(m, d);
  const size_t before = free_bytes(m, 0);
  const tide_block first = take(d, NULL, 20 * MIB);
  break_calls(m, TIDE_CALL_SET_ACCESS, TIDE_ERR_MACHINE, 1);
  break_calls(m, TIDE_CALL_UNMAP, TIDE_ERR_MACHINE, 1);
  T_STATUS(try_take(d, NULL, 20 * MIB), TIDE_ERR_MACHINE);
  T_EQ(tide_machine_call_stats(m, TIDE_CALL_UNMAP).calls, 1);
  tide_machine_fault_clear(m);
  device_expect_valid(d);

  const tide_block second = take(d, NULL, 20 * MIB);

  device_fill(m, 0, second.address, 7, 20 * MIB);
  give(d, first);
  give(d, second);
  expect_trimmed(d, 0);
  T_EQ(free_bytes(m, 0), before);
}

DEVICE_TEST_OVER(test_device__a_mapping_that_could_not_be_undone_goes_with_a_trim, device_emulated) {
  configure(d, "expandable_segments:True,virtual_fallback:False");
  const size_t before = free_bytes(m, 0);
  break_calls(m, TIDE_CALL_SET_ACCESS, TIDE_ERR_MACHINE, 1);
  break_calls(m, TIDE_CALL_UNMAP, TIDE_ERR_MACHINE, 1);
  T_STATUS(try_take(d, NULL, 20 * MIB), TIDE_ERR_MACHINE);
  tide_machine_fault_clear(m);

  trim(d);

  T_EQ(free_bytes(m, 0), before);
}

DEVICE_TEST_OVER(test_device__a_late_mapping_that_could_not_be_undone_is_tried_again, device_emulated) {
  const tide_block a = take(d, NULL, 8 * MIB);
  (void)take(d, NULL, 2 * MIB);
  give(d, a);
  give(d, take(d, NULL, 12 * MIB));  // tide: of the first and of 4 MiB that have no mapping of their own yet
  break_calls(m, TIDE_CALL_SET_ACCESS, TIDE_ERR_MACHINE, 1);
  break_calls(m, TIDE_CALL_UNMAP, TIDE_ERR_MACHINE, 1);
  T_STATUS(try_take(d, NULL, 4 * MIB), is_tide() ? TIDE_ERR_MACHINE : TIDE_OK);
  tide_machine_fault_clear(m);
  device_expect_valid(d);

  const tide_block block = take(d, NULL, 4 * MIB);

  device_fill(m, 0, block.address, 7, 4 * MIB);
}

DEVICE_TEST(test_device__a_pool_goes_with_the_trim_after_its_addresses_could_not_be_given_back) {
  expand(m, d);
  const tide_pool pool = pool_new(d, NULL);
  uint32_t users = 0;
  const tide_block block = take_in(d, pool, NULL, 12 * MIB);
  T_OK(tide_device_pool_drop(d, pool));
  give(d, block);
  break_calls(m, TIDE_CALL_ADDRESS_RELEASE, TIDE_ERR_MACHINE, 1);
  T_ANY(tide_device_trim_pool(d, pool));
  tide_machine_fault_clear(m);
  T_OK(tide_device_pool_users(d, pool, &users));  // still there: the fault was met

  trim(d);

  T_STATUS(tide_device_pool_users(d, pool, &users), TIDE_ERR_HANDLE);
}

// ---------------------------------------------------------------------------------------------------
// Pools

DEVICE_TEST(test_device__a_chosen_address_does_not_split_blocks_of_a_no_split_pool) {
  (void)m;
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.no_split = true;
  const tide_pool pool = pool_new(d, &options);
  const tide_block block = take_in(d, pool, NULL, 12 * MIB);
  tide_block again = { NULL, 0 };
  give(d, block);
  scope_open(d, pool);

  T_STATUS(tide_device_alloc_at(d, NULL, 4 * MIB, block.address, &again), TIDE_ERR_NO_MEMORY);
  T_STATUS(tide_device_alloc_at(d, NULL, 11 * MIB, bytes_of(block) + MIB, &again), TIDE_ERR_NO_MEMORY);
  T_OK(tide_device_alloc_at(d, NULL, 12 * MIB, block.address, &again));

  scope_close(d, pool);
  T_EQ(current(d, inactive_split), 0);
}

typedef struct dropper {
  tide_device_cache* device;
  tide_pool pool;
} dropper;

static bool drop_and_accept(void* user, tide_stream stream) {
  const dropper* const r = user;
  (void)stream;
  scope_close(r->device, r->pool);
  T_OK(tide_device_pool_drop(r->device, r->pool));
  trim(r->device);
  return true;
}

DEVICE_TEST(test_device__a_pool_dropped_while_its_filter_decides_gets_no_memory) {
  dropper r = { d, pool_new(d, NULL) };
  filter_open(d, r.pool, drop_and_accept, &r);

  const tide_block block = take(d, NULL, 512);

  device_expect_valid(d);
  T_EQ(pool_reserved(d, pool_new(d, NULL)), 0);
  give(d, block);
  expect_trimmed(d, 0);
}
