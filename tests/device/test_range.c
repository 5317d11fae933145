// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Ranges that grow: what commit and decommit do to memory, contents, statistics and the history, where the
// memory comes from and goes to, and that no fault changes or loses anything.
#define T_THREADS
#include <sys/wait.h>

#include "device/devices.h"

#define UNIT ((uint64_t)2 << 20)
#define TIDE_TEST(function) DEVICE_TEST_OVER(function, device_tide)
#define EMULATED_DEVICE_TEST(function) DEVICE_TEST_OVER(function, device_emulated)

static tide_range* range_new(tide_machine* m, tide_device_cache* d, uint64_t bytes) {
  tide_range* range = NULL;
  need_virtual(m);
  T_OK(tide_device_range_new(d, bytes, &range));
  T_CHECK(range != NULL);
  return range;
}

static void commit(tide_device_cache* d, tide_range* range, uint64_t offset, uint64_t bytes) {
  T_OK(tide_device_range_commit(d, range, NULL, offset, bytes));
}

static void decommit(tide_device_cache* d, tide_range* range, uint64_t offset, uint64_t bytes) {
  T_OK(tide_device_range_decommit(d, range, offset, bytes));
}

static uint8_t* at(const tide_range* range, uint64_t offset) {
  return (uint8_t*)tide_range_address(range) + offset;
}

static uint64_t made(const tide_machine* m) { return calls(m, TIDE_CALL_PHYSICAL_NEW); }

// ---------------------------------------------------------------------------------------------------
// Addresses and sizes

DEVICE_TEST(test_range__has_addresses_and_no_memory_at_first) {
  tide_range* const range = range_new(m, d, 100 * MIB + 1);
  T_CHECK(tide_range_address(range) != NULL);
  T_EQ(tide_range_unit(range), UNIT);
  T_EQ(tide_range_bytes(range), 102 * MIB);
  T_EQ(tide_range_committed(range), 0);
  T_EQ(current(d, reserved_bytes), 0);
  T_OK(tide_device_range_free(d, range));
}

DEVICE_TEST(test_range__commits_outwards_and_decommits_inwards) {
  tide_range* const range = range_new(m, d, 64 * MIB);
  commit(d, range, 3 * MIB, 2 * MIB);
  T_EQ(tide_range_committed(range), 4 * MIB);  // from 2 to 6 MiB, in one handle

  decommit(d, range, 2 * MIB, 3 * MIB);
  T_EQ(tide_range_committed(range), 4 * MIB);
  decommit(d, range, 2 * MIB, 4 * MIB);
  T_EQ(tide_range_committed(range), 0);
  T_OK(tide_device_range_free(d, range));
}

DEVICE_TEST(test_range__commits_only_what_has_no_memory) {
  tide_range* const range = range_new(m, d, 64 * MIB);
  commit(d, range, 8 * MIB, 4 * MIB);
  commit(d, range, 16 * MIB, 4 * MIB);
  device_fill(m, 0, at(range, 8 * MIB), 5, 4 * MIB);

  commit(d, range, 0, 64 * MIB);

  T_EQ(tide_range_committed(range), 64 * MIB);
  T_EQ(current(d, reserved_bytes), (int64_t)(64 * MIB));
  expect_filled(m, 0, at(range, 8 * MIB), 5, 4 * MIB);
  device_fill(m, 0, at(range, 0), 6, 64 * MIB);  // all of it has memory
  expect_filled(m, 0, at(range, 0), 6, 64 * MIB);
  commit(d, range, 0, 64 * MIB);
  T_EQ(tide_range_committed(range), 64 * MIB);
}

// Parts that came one by one go one by one, from the end or from anywhere.
DEVICE_TEST(test_range__shrinks_by_the_parts_it_grew_by) {
  tide_range* const range = range_new(m, d, 64 * MIB);
  for (uint64_t i = 0; i < 8; ++i) commit(d, range, i * 6 * MIB, 6 * MIB);
  for (uint64_t i = 8; i-- > 4;) {
    decommit(d, range, i * 6 * MIB, 6 * MIB);
    T_EQ(tide_range_committed(range), i * 6 * MIB);
  }
  decommit(d, range, 6 * MIB, 6 * MIB);
  T_EQ(tide_range_committed(range), 18 * MIB);
  device_expect_valid(d);
}

DEVICE_TEST(test_range__keeps_its_contents_while_it_grows) {
  tide_range* const range = range_new(m, d, 96 * MIB);
  for (uint64_t i = 0; i < 12; ++i) {
    commit(d, range, i * 8 * MIB, 8 * MIB);
    device_fill(m, 0, at(range, i * 8 * MIB), (uint8_t)(i + 1), 8 * MIB);
  }
  for (uint64_t i = 0; i < 12; ++i) expect_filled(m, 0, at(range, i * 8 * MIB), (uint8_t)(i + 1), 8 * MIB);
}

DEVICE_TEST(test_range__wrong_arguments_are_refused) {
  need_virtual(m);
  tide_range* range = NULL;
  T_STATUS(tide_device_range_new(NULL, MIB, &range), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_range_new(d, MIB, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_range_new(d, 0, &range), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_range_new(d, UINT64_MAX, &range), TIDE_ERR_ARGUMENT);
  T_OK(tide_device_range_new(d, 16 * MIB, &range));
  T_STATUS(tide_device_range_commit(NULL, range, NULL, 0, MIB), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_range_commit(d, NULL, NULL, 0, MIB), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_range_commit(d, range, NULL, 0, 16 * MIB + 1), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_range_commit(d, range, NULL, 17 * MIB, 0), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_range_commit(d, range, NULL, MIB, UINT64_MAX), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_range_decommit(d, range, 16 * MIB, 1), TIDE_ERR_ARGUMENT);
  tide_device_cache* const other = device_new(m, 0, NULL);
  T_STATUS(tide_device_range_commit(other, range, NULL, 0, MIB), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_range_free(other, range), TIDE_ERR_ARGUMENT);
  tide_device_free(other);
  T_OK(tide_device_range_commit(d, range, NULL, 16 * MIB, 0));
  T_OK(tide_device_range_free(d, NULL));
  T_PTR_EQ(tide_range_address(NULL), NULL);
  T_EQ(tide_range_bytes(NULL) + tide_range_unit(NULL) + tide_range_committed(NULL), 0);
}

TORCH_TEST(test_range__needs_virtual_memory) {
  if (is_cuda(m)) t_skip("virtual memory works there");
  tide_range* range = NULL;
  break_calls(m, TIDE_CALL_MAP, TIDE_ERR_MACHINE, UINT64_MAX);
  T_STATUS(tide_device_range_new(d, MIB, &range), TIDE_ERR_UNSUPPORTED);
  T_PTR_EQ(range, NULL);
  tide_machine_fault_clear(m);
}

// ---------------------------------------------------------------------------------------------------
// Where memory comes from and goes to

TIDE_TEST(test_range__takes_idle_memory_of_any_stream) {
  const tide_stream side = side_new(m);
  const tide_block mine = take(d, NULL, 32 * MIB);
  const tide_block theirs = take(d, side, 32 * MIB);
  give(d, mine);
  give(d, theirs);
  stream_finish(m, 0, side);
  const uint64_t before = made(m);
  tide_range* const range = range_new(m, d, 256 * MIB);

  commit(d, range, 0, 64 * MIB);

  T_EQ(made(m), before);
  T_EQ(current(d, reserved_bytes), (int64_t)(64 * MIB));
  T_EQ(calls(m, TIDE_CALL_UNMAP), 0);  // where the memory lies it stays mapped
}

TIDE_TEST(test_range__its_memory_serves_requests_of_its_stream) {
  const tide_stream side = side_new(m);
  tide_range* const range = range_new(m, d, 256 * MIB);
  T_OK(tide_device_range_commit(d, range, side, 0, 64 * MIB));
  const uint64_t before = made(m);
  decommit(d, range, 0, 64 * MIB);
  T_EQ(current(d, reserved_bytes), (int64_t)(64 * MIB));

  const tide_block one = take(d, side, 40 * MIB);
  const tide_block two = take(d, side, 24 * MIB);
  device_fill(m, 0, one.address, 1, 40 * MIB);
  device_fill(m, 0, two.address, 2, 24 * MIB);

  expect_filled(m, 0, one.address, 1, 40 * MIB);
  T_EQ(made(m), before);
  T_EQ(current(d, reserved_bytes), (int64_t)(64 * MIB));
}

// Without slack, memory is stitched from wherever it is idle before any is made.
TIDE_TEST(test_range__its_memory_serves_requests_of_other_streams) {
  const tide_stream side = side_new(m);
  configure(d, "tide_slack:0,tide_wait_slack:0");
  tide_range* const range = range_new(m, d, 256 * MIB);
  T_OK(tide_device_range_commit(d, range, side, 0, 64 * MIB));
  const uint64_t before = made(m);
  decommit(d, range, 16 * MIB, 48 * MIB);
  T_EQ(tide_range_committed(range), 64 * MIB);  // one handle
  decommit(d, range, 0, 64 * MIB);

  const tide_block block = take(d, NULL, 50 * MIB);
  device_fill(m, 0, block.address, 1, 50 * MIB);

  T_EQ(made(m), before);
}

// With the policy torch, memory that was decommitted serves ranges, and goes before a request fails.
EMULATED_DEVICE_TEST(test_range__memory_goes_back_before_a_request_fails) {
  tide_range* const range = range_new(m, d, 256 * MIB);
  limit_to(d, 128 * MIB);
  commit(d, range, 0, 64 * MIB);
  decommit(d, range, 0, 64 * MIB);
  T_EQ(current(d, reserved_bytes), (int64_t)(64 * MIB));
  const uint64_t before = made(m);
  commit(d, range, 64 * MIB, 64 * MIB);
  T_EQ(made(m), before);
  decommit(d, range, 64 * MIB, 64 * MIB);

  give(d, take(d, NULL, 128 * MIB));

  T_LE(current(d, reserved_bytes), (int64_t)(128 * MIB));
  trim(d);
  T_EQ(current(d, reserved_bytes), 0);
}

// Idle segments of the policy torch are given back first, idle handles of tide change their place.
EMULATED_DEVICE_TEST(test_range__other_idle_memory_makes_room_for_it) {
  limit_to(d, 100 * MIB);
  tide_range* const range = range_new(m, d, 256 * MIB);
  give(d, take(d, NULL, 90 * MIB));
  commit(d, range, 0, 60 * MIB);
  T_LE(current(d, reserved_bytes), (int64_t)(100 * MIB));
  T_EQ(tide_range_committed(range), 60 * MIB);
}

// A page is smaller than the handles that are idle: only as many of these go as are needed.
EMULATED_DEVICE_TEST(test_range__a_page_sends_little_idle_memory_back) {
  tide_range* const big = range_new(m, d, 256 * MIB);
  tide_range* const range = range_new(m, d, 256 * MIB);
  for (uint64_t i = 0; i < 8; ++i) commit(d, big, i * 16 * MIB, 16 * MIB);
  decommit(d, big, 0, 128 * MIB);
  limit_to(d, 128 * MIB);
  for (uint64_t i = 0; i < 8; ++i) commit(d, range, i * 2 * MIB, 2 * MIB);
  T_EQ(tide_range_committed(range), 16 * MIB);
  T_EQ(current(d, reserved_bytes), (int64_t)(128 * MIB));
}

EMULATED_DEVICE_TEST(test_range__a_full_device_gives_its_idle_memory) {
  tide_range* const range = range_new(m, d, 1024 * MIB);
  give(d, take(d, NULL, 200 * MIB));
  commit(d, range, 0, 250 * MIB);
  T_EQ(tide_range_committed(range), 250 * MIB);
  T_STATUS(tide_device_range_commit(d, range, NULL, 250 * MIB, 20 * MIB), TIDE_ERR_NO_MEMORY);
  T_EQ(tide_range_committed(range), 250 * MIB);
}

DEVICE_TEST(test_range__the_limit_holds_for_ranges_and_requests_together) {
  tide_range* const range = range_new(m, d, 256 * MIB);
  limit_to(d, 64 * MIB);
  commit(d, range, 0, 40 * MIB);
  const tide_block block = take(d, NULL, 20 * MIB);
  T_STATUS(tide_device_range_commit(d, range, NULL, 40 * MIB, 6 * MIB), TIDE_ERR_NO_MEMORY);
  T_EQ(tide_range_committed(range), 40 * MIB);
  T_EQ(counter(d, num_ooms), 1);

  const tide_oom* const oom = tide_device_last_oom();
  T_EQ(oom->requested_bytes, 6 * MIB);
  T_EQ(oom->allocated_bytes, 60 * MIB);
  T_EQ(oom->limit, 64 * MIB);
  expect_oom(d, NULL, 30 * MIB);
  give(d, block);
  commit(d, range, 40 * MIB, 24 * MIB);
}

TIDE_TEST(test_range__uses_few_handles) {
  tide_range* const range = range_new(m, d, 256 * MIB);
  const uint64_t before = made(m);
  commit(d, range, 0, 200 * MIB);
  T_EQ(made(m) - before, 2);  // of 128 and 72 MiB
  T_EQ(calls(m, TIDE_CALL_MAP), 2);
  T_EQ(calls(m, TIDE_CALL_SET_ACCESS), 1);
  configure(d, "tide_most_handle_mb:16");
  commit(d, range, 200 * MIB, 40 * MIB);
  T_EQ(made(m) - before, 5);
}

// The costs of the dry machine are those of an H200.
static uint64_t dry_ns(tide_machine* m, tide_device_cache* d, tide_range* range) {
  const uint64_t begin_ns = clock_ns(m);
  commit(d, range, 0, 1024 * MIB);
  return clock_ns(m) - begin_ns;
}

T_TEST(test_range__a_gibibyte_from_idle_memory_takes_less_than_2_ms) {
  tide_machine* m = NULL;
  T_OK(tide_machine_new_dry(NULL, &m));
  tide_device_cache* const d = device_with(m, "policy:tide");
  tide_block blocks[32];
  for (int i = 0; i < 32; ++i) blocks[i] = take(d, NULL, 1024 * MIB);
  for (int i = 0; i < 32; ++i) give(d, blocks[i]);
  tide_range* const range = range_new(m, d, (uint64_t)16 << 30);
  const uint64_t before = made(m);

  T_LT(dry_ns(m, d, range), 2000000);  // from requests
  T_EQ(made(m), before);
  trim(d);
  decommit(d, range, 0, 1024 * MIB);
  T_LT(dry_ns(m, d, range), 2000000);  // from decommitted memory

  T_EQ(made(m), before);
  tide_device_free(d);
  tide_machine_free(m);
}

// ---------------------------------------------------------------------------------------------------
// Streams and captures

// The work of one stream still fills the memory when another takes it into a range.
static void expect_order(tide_machine* m, tide_device_cache* d, tide_stream before, tide_stream after) {
  const tide_block block = take(d, before, 32 * MIB);
  work_slowly(m, before);
  paint(m, before, block, 1, 32 * MIB);
  give(d, block);
  limit_to(d, (uint64_t)current(d, reserved_bytes));
  const uint64_t made_before = made(m);
  tide_range* const range = range_new(m, d, 32 * MIB);

  T_OK(tide_device_range_commit(d, range, after, 0, 32 * MIB));
  T_OK(tide_machine_fill(m, 0, after, at(range, 0), 2, 32 * MIB));

  T_EQ(made(m), made_before);
  stream_finish(m, 0, after);
  stream_finish(m, 0, before);
  expect_filled(m, 0, at(range, 0), 2, 32 * MIB);
}

// Both streams had memory, so that releases are marked, and the host does not wait.
TIDE_TEST(test_range__its_stream_waits_for_earlier_work_on_the_memory) {
  const tide_stream a = side_new(m);
  const tide_stream b = side_new(m);
  give(d, take(d, a, 2 * MIB));
  give(d, take(d, b, 2 * MIB));
  expect_order(m, d, a, b);
  T_LE(1, counter(d, num_stream_waits));
}

// Where no stream may wait for the work, the host does.
TIDE_TEST(test_range__waits_for_work_without_a_mark) { expect_order(m, d, side_new(m), side_new(m)); }

TIDE_TEST(test_range__same_stream_needs_no_wait) {
  const tide_stream a = side_new(m);
  expect_order(m, d, a, a);
  T_EQ(counter(d, num_stream_waits), 0);
}

DEVICE_TEST(test_range__decommit_waits_for_all_work) {
  const tide_stream side = side_new(m);
  tide_range* const range = range_new(m, d, 64 * MIB);
  T_OK(tide_device_range_commit(d, range, side, 0, 32 * MIB));
  work_slowly(m, side);
  T_OK(tide_machine_fill(m, 0, side, at(range, 0), 1, 32 * MIB));

  decommit(d, range, 0, 32 * MIB);

  T_CHECK(stream_is_idle(m, 0, side));
  T_OK(tide_machine_device_synchronize(m, 0));  // and nothing was skipped
}

DEVICE_TEST(test_range__captured_work_replays_after_growth) {
  const tide_stream side = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  tide_range* const range = range_new(m, d, 64 * MIB);
  commit(d, range, 0, 8 * MIB);
  stream_finish(m, 0, NULL);
  capture_open(m, d, side, pool);
  T_OK(tide_machine_fill(m, 0, side, at(range, 0), 7, 8 * MIB));
  const tide_launch graph = capture_close(m, d, side, pool);

  commit(d, range, 8 * MIB, 40 * MIB);
  device_fill(m, 0, at(range, 0), 3, 48 * MIB);
  T_OK(tide_machine_launch(m, 0, graph, side));
  stream_finish(m, 0, side);

  expect_filled(m, 0, at(range, 0), 7, 8 * MIB);
  expect_filled(m, 0, at(range, 8 * MIB), 3, 40 * MIB);
  T_OK(tide_machine_launch_free(m, graph));
}

// A commit makes memory in a capture, and breaks nothing; taking memory away is refused.
DEVICE_TEST(test_range__grows_in_a_capture) {
  const tide_stream side = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  tide_range* const range = range_new(m, d, 64 * MIB);
  give(d, take(d, side, 16 * MIB));
  capture_open(m, d, side, pool);
  T_OK(tide_device_range_commit(d, range, side, 0, 8 * MIB));
  T_OK(tide_machine_fill(m, 0, side, at(range, 0), 7, 8 * MIB));
  T_STATUS(tide_device_range_decommit(d, range, 0, 8 * MIB), TIDE_ERR_CAPTURE);
  T_STATUS(tide_device_range_free(d, range), TIDE_ERR_CAPTURE);
  limit_to(d, (uint64_t)current(d, reserved_bytes));
  T_STATUS(tide_device_range_commit(d, range, side, 8 * MIB, 8 * MIB), TIDE_ERR_NO_MEMORY);
  const tide_launch graph = capture_close(m, d, side, pool);
  T_EQ(tide_range_committed(range), 8 * MIB);

  device_fill(m, 0, at(range, 0), 3, 8 * MIB);
  T_OK(tide_machine_launch(m, 0, graph, side));
  stream_finish(m, 0, side);
  expect_filled(m, 0, at(range, 0), 7, 8 * MIB);
  T_OK(tide_machine_launch_free(m, graph));
  T_OK(tide_device_range_free(d, range));
}

// ---------------------------------------------------------------------------------------------------
// Statistics, snapshots, the history

DEVICE_TEST(test_range__counts_as_handed_out) {
  tide_range* const range = range_new(m, d, 64 * MIB);
  commit(d, range, 0, 8 * MIB);
  commit(d, range, 8 * MIB, 24 * MIB);
  const tide_device_stats stats = stats_of(d);
  T_EQ(stats.allocation[TIDE_STAT_LARGE].current, 2);
  T_EQ(stats.active[TIDE_STAT_ALL].current, 2);
  T_EQ(stats.allocated_bytes[TIDE_STAT_LARGE].current, (int64_t)(32 * MIB));
  T_EQ(stats.active_bytes[TIDE_STAT_ALL].current, (int64_t)(32 * MIB));
  T_EQ(stats.requested_bytes[TIDE_STAT_ALL].current, (int64_t)(32 * MIB));
  T_EQ(stats.reserved_bytes[TIDE_STAT_ALL].current, (int64_t)(32 * MIB));
  device_expect_valid(d);

  decommit(d, range, 8 * MIB, 24 * MIB);
  T_EQ(current(d, allocated_bytes), (int64_t)(8 * MIB));
  T_EQ(current(d, reserved_bytes), (int64_t)(32 * MIB));
  T_EQ(stats_of(d).allocated_bytes[TIDE_STAT_ALL].peak, (int64_t)(32 * MIB));
  device_expect_valid(d);
}

DEVICE_TEST(test_range__a_visit_shows_its_parts) {
  static seen s;
  tide_range* const range = range_new(m, d, 64 * MIB);
  commit(d, range, 0, 8 * MIB);
  commit(d, range, 8 * MIB, 4 * MIB);
  commit(d, range, 32 * MIB, 8 * MIB);
  const tide_device_visitor visitor = { seen_segment, seen_block, &s };
  T_OK(tide_device_visit(d, &visitor));

  T_EQ(s.segment_count, 2);
  T_EQ(s.block_count, 3);
  T_EQ(s.segments[0].address, (uint64_t)(uintptr_t)at(range, 0));
  T_EQ(s.segments[0].bytes, 12 * MIB);
  T_EQ(s.segments[0].allocated_bytes, 12 * MIB);
  T_EQ(s.segments[0].pool, TIDE_POOL_DEFAULT);
  T_CHECK(s.segments[0].is_expandable && s.segments[0].is_large);
  T_EQ(s.segments[1].address, (uint64_t)(uintptr_t)at(range, 32 * MIB));
  T_EQ(s.blocks[1].bytes, 4 * MIB);
  for (size_t i = 0; i < 3; ++i) T_EQ(s.blocks[i].state, TIDE_BLOCK_ALLOCATED);
}

// What entries say: bytes that are mapped and handed out.
typedef struct account {
  int64_t reserved;
  int64_t allocated;
  uint64_t entries;
} account;

static void account_add(account* a, const tide_trace_entry* entry) {
  const int64_t bytes = (int64_t)entry->bytes;
  a->entries++;
  switch (entry->action) {
    case TIDE_ACTION_SEGMENT_ALLOC:
    case TIDE_ACTION_SEGMENT_MAP: a->reserved += bytes; break;
    case TIDE_ACTION_SEGMENT_FREE:
    case TIDE_ACTION_SEGMENT_UNMAP: a->reserved -= bytes; break;
    case TIDE_ACTION_ALLOC: a->allocated += bytes; break;
    case TIDE_ACTION_FREE_COMPLETED: a->allocated -= bytes; break;
    default: break;
  }
}

static bool account_visit(void* user, const tide_trace_entry* entries, size_t count) {
  for (size_t i = 0; i < count; ++i) account_add(user, &entries[i]);
  return true;
}

static void account_observe(void* user, const tide_trace_entry* entry) { account_add(user, entry); }

static void expect_account(const account* a, tide_device_cache* d) {
  T_EQ(a->reserved, current(d, reserved_bytes));
  T_EQ(a->allocated, current(d, allocated_bytes));
}

DEVICE_TEST(test_range__the_history_adds_up) {
  account told = { 0 };
  account kept = { 0 };
  tide_observer observer = 0;
  history_on(d);
  T_OK(tide_device_observe_trace(d, account_observe, &told, &observer));
  tide_range* const range = range_new(m, d, 256 * MIB);
  give(d, take(d, NULL, 32 * MIB));
  commit(d, range, 16 * MIB, 8 * MIB);
  commit(d, range, 0, 48 * MIB);
  expect_account(&told, d);
  decommit(d, range, 8 * MIB, 24 * MIB);
  const tide_block block = take(d, NULL, 20 * MIB);
  trim(d);
  expect_account(&told, d);
  give(d, block);
  break_calls(m, TIDE_CALL_UNMAP, TIDE_ERR_MACHINE, 1);
  T_STATUS(tide_device_range_decommit(d, range, 0, 256 * MIB), TIDE_ERR_MACHINE);
  tide_machine_fault_clear(m);
  expect_account(&told, d);
  T_OK(tide_device_range_free(d, range));
  expect_account(&told, d);
  T_OK(tide_device_history_visit(d, account_visit, &kept));
  expect_account(&kept, d);
  T_LE(10, kept.entries);
}

// Notes how many mappings had gone when an observer heard that a range loses memory.
typedef struct witness {
  const tide_machine* m;
  uint64_t address;
  uint64_t unmaps;
  uint64_t unmaps_then;
  uint64_t bytes;
} witness;

static void witness_observe(void* user, const tide_trace_entry* entry) {
  witness* const w = user;
  if (entry->action != TIDE_ACTION_SEGMENT_UNMAP || entry->address != w->address) return;
  w->unmaps_then = calls(w->m, TIDE_CALL_UNMAP);
  w->bytes += entry->bytes;
}

// A library that has registered a part can end that before the memory goes.
DEVICE_TEST(test_range__observers_hear_of_the_end_before_it) {
  tide_range* const range = range_new(m, d, 64 * MIB);
  witness w = { m, (uint64_t)(uintptr_t)at(range, 8 * MIB), 0, 0, 0 };
  tide_observer observer = 0;
  commit(d, range, 0, 8 * MIB);
  commit(d, range, 8 * MIB, 8 * MIB);
  w.unmaps = calls(m, TIDE_CALL_UNMAP);
  T_OK(tide_device_observe_trace(d, witness_observe, &w, &observer));

  decommit(d, range, 8 * MIB, 8 * MIB);

  T_EQ(w.bytes, 8 * MIB);
  T_EQ(w.unmaps_then, w.unmaps);
  T_EQ(calls(m, TIDE_CALL_UNMAP), w.unmaps + 1);
}

// ---------------------------------------------------------------------------------------------------
// Beside others

DEVICE_TEST(test_range__is_no_block) {
  tide_block block = block_none;
  tide_share share = TIDE_SHARE_INIT;
  tide_range* const range = range_new(m, d, 64 * MIB);
  commit(d, range, 0, 8 * MIB);
  T_STATUS(tide_device_release_address(d, at(range, 0)), TIDE_ERR_HANDLE);
  T_STATUS(tide_device_find(d, at(range, 0), &block), TIDE_ERR_HANDLE);
  T_STATUS(tide_device_share(d, at(range, 0), &share, NULL, 0), TIDE_ERR_HANDLE);
  T_EQ(tide_device_bytes(d, at(range, 0)), 0);
}

static tide_status fill_from_peer(tide_machine* m, uint8_t* address, uint8_t value, size_t bytes) {
  const tide_stream stream = stream_new(m, 1, TIDE_STREAM_NON_BLOCKING);
  const tide_status status = tide_machine_fill(m, 1, stream, address, value, bytes);
  if (status == TIDE_OK) stream_finish(m, 1, stream);
  return status;
}

EMULATED_DEVICE_TEST(test_range__peers_use_parts_old_and_new) {
  tide_range* const range = range_new(m, d, 64 * MIB);
  commit(d, range, 8 * MIB, 8 * MIB);
  T_STATUS(fill_from_peer(m, at(range, 8 * MIB), 1, 8 * MIB), TIDE_ERR_ACCESS);
  T_OK(tide_device_enable_peer(d, 1));
  commit(d, range, 0, 32 * MIB);
  T_OK(fill_from_peer(m, at(range, 0), 2, 32 * MIB));
  expect_filled(m, 0, at(range, 0), 2, 32 * MIB);
}

static void leave_ranges(tide_machine* m, tide_device_cache* d) {
  for (int i = 0; i < 3; ++i) {
    tide_range* const range = range_new(m, d, 64 * MIB);
    commit(d, range, 0, 16 * MIB);
    commit(d, range, 32 * MIB, 16 * MIB);
    decommit(d, range, 32 * MIB, 16 * MIB);
  }
}

// Ranges that are left, and memory of theirs that is idle, end with the allocator.
DEVICE_TEST(test_range__ends_with_its_allocator) { leave_ranges(m, d); }

DEVICE_TEST(test_range__addresses_go_with_the_allocator) {
  const uint64_t before = reservations(m);
  tide_device_cache* const other = device_new(m, 0, NULL);
  leave_ranges(m, other);
  tide_device_free(other);
  T_EQ(reservations(m), before);
}

DEVICE_TEST(test_range__addresses_go_with_the_range) {
  range_new(m, d, 64 * MIB);
  const uint64_t before = reservations(m);
  tide_range* const range = range_new(m, d, 64 * MIB);
  commit(d, range, 0, 64 * MIB);
  T_OK(tide_device_range_free(d, range));
  trim(d);
  T_EQ(reservations(m), before);
}

static int child_run(tide_device_cache* d, tide_range* range) {
  tide_range* other = NULL;
  (void)alarm(20);
  if (tide_device_range_new(d, MIB, &other) != TIDE_ERR_STATE) return 1;
  if (tide_device_range_commit(d, range, NULL, 0, MIB) != TIDE_ERR_STATE) return 2;
  if (tide_device_range_decommit(d, range, 0, MIB) != TIDE_ERR_STATE) return 3;
  if (tide_device_range_free(d, range) != TIDE_ERR_STATE) return 4;
  return tide_range_committed(range) == UNIT ? 0 : 5;
}

EMULATED_DEVICE_TEST(test_range__belongs_to_the_parent_of_a_fork) {
  int status = 0;
  tide_range* const range = range_new(m, d, 64 * MIB);
  commit(d, range, 0, UNIT);
  const pid_t child = fork();
  if (child == 0) _exit(child_run(d, range));
  T_LT(0, child);
  T_EQ(waitpid(child, &status, 0), child);
  T_EQ(status, 0);
}

// What a commit could not undo lies in the addresses of the range, which the end of the allocator then lost.
DEVICE_TEST_OVER(test_range__addresses_go_after_what_could_not_be_undone, device_emulated) {
  const tide_call_stats before = tide_machine_call_stats(m, TIDE_CALL_ADDRESS_RELEASE);
  tide_device_cache* const own = device_new(m, 0, NULL);
  tide_range* range = NULL;
  T_OK(tide_device_range_new(own, 64 * MIB, &range));
  break_calls(m, TIDE_CALL_SET_ACCESS, TIDE_ERR_MACHINE, UINT64_MAX);
  break_calls(m, TIDE_CALL_UNMAP, TIDE_ERR_MACHINE, UINT64_MAX);
  T_STATUS(tide_device_range_commit(own, range, NULL, 0, 4 * MIB), TIDE_ERR_MACHINE);
  tide_machine_fault_clear(m);
  tide_device_free(own);
  const tide_call_stats after = tide_machine_call_stats(m, TIDE_CALL_ADDRESS_RELEASE);
  T_EQ(after.failures, before.failures);
}
