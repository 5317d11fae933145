// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tide_device_reserve(): memory is idle afterwards, requests are served from it without a call of the
// machine, and limits, budgets, ledgers and the device bound it. The truth about memory is the machine's.
#define T_THREADS
#include "device/budget.h"
#include "quota/ledgers.h"

static const char* const reserve_plain[] = { "host", "dry", "cuda", NULL };

enum { STEP_MOST = 8 };  // handles that are made in one turn

// Calls that make memory.
static uint64_t calls_for_memory(tide_machine* m) {
  return calls(m, TIDE_CALL_RAW_ALLOC) + calls(m, TIDE_CALL_PHYSICAL_NEW) + calls(m, TIDE_CALL_MAP) +
         calls(m, TIDE_CALL_SET_ACCESS);
}

static void reserve_all(tide_device_cache* d, tide_stream stream, uint64_t bytes) {
  T_OK(tide_device_reserve(d, stream, bytes));
}

// All of it is reserved, and nothing else has changed.
static void expect_idle(tide_device_cache* d, int64_t bytes) {
  T_EQ(current(d, reserved_bytes), bytes);
  T_EQ(current(d, active_bytes), 0);
  T_EQ(stats_of(d).active_bytes[TIDE_STAT_ALL].peak, 0);
  T_EQ(count_idle_blocks(d), 1);
  device_expect_valid(d);
}

// ---------------------------------------------------------------------------------------------------
// What it leaves

DEVICE_TEST(test_reserve__leaves_one_idle_block) {
  reserve_all(d, NULL, 60 * MIB);
  expect_idle(d, 60 * MIB);
}

DEVICE_TEST(test_reserve__rounds_up_to_two_mebibytes) {
  static const uint64_t sizes[] = { 1, 600 * KIB, 2 * MIB, 5 * MIB + 1, 33 * MIB };
  reserve_all(d, NULL, 0);
  T_EQ(current(d, reserved_bytes), 0);
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    reserve_all(d, NULL, sizes[i]);
    expect_idle(d, (int64_t)((sizes[i] + 2 * MIB - 1) / (2 * MIB) * 2 * MIB));
    trim(d);
  }
}

DEVICE_TEST(test_reserve__requests_need_no_machine) {
  tide_block blocks[30];
  reserve_all(d, NULL, 90 * MIB);
  const uint64_t before = calls_for_memory(m);
  for (int turn = 0; turn < 3; turn++) {
    for (int i = 0; i < 30; i++) blocks[i] = take(d, NULL, (size_t)(2 + i % 3) * MIB);
    for (int i = 0; i < 30; i++) give(d, blocks[i]);
  }
  give(d, take(d, NULL, 90 * MIB));
  T_EQ(calls_for_memory(m), before);
  T_EQ(current(d, reserved_bytes), 90 * MIB);
}

// Its contents are the program's: nothing of it is shared with what was there before.
DEVICE_TEST(test_reserve__memory_can_be_written) {
  const tide_block before = take(d, NULL, 4 * MIB);
  reserve_all(d, NULL, 20 * MIB);
  const tide_block block = take(d, NULL, 20 * MIB);
  paint(m, NULL, before, 1, 4 * MIB);
  paint(m, NULL, block, 2, 20 * MIB);
  stream_finish(m, 0, NULL);
  expect_filled(m, 0, bytes_of(before), 1, 4 * MIB);
  expect_filled(m, 0, bytes_of(block), 2, 20 * MIB);
  give(d, before);
  give(d, block);
}

// Each call adds as much; with `tide`, and with segments that cannot grow.
DEVICE_TEST(test_reserve__twice_is_twice_as_much) {
  reserve_all(d, NULL, 30 * MIB);
  reserve_all(d, NULL, 30 * MIB);
  T_EQ(current(d, reserved_bytes), 60 * MIB);
  T_EQ(count_idle_blocks(d), is_tide() ? 1 : 2);
}

DEVICE_TEST(test_reserve__is_of_its_stream) {
  const tide_stream side = side_new(m);
  reserve_all(d, side, 40 * MIB);
  const uint64_t before = calls_for_memory(m);
  const tide_block block = take(d, side, 40 * MIB);
  T_EQ(calls_for_memory(m), before);
  give(d, block);
  stream_finish(m, 0, side);
}

// Another stream's request is served from it, too, by a view.
DEVICE_TEST_OVER(test_reserve__serves_other_streams, device_tide) {
  const tide_stream side = side_new(m);
  reserve_all(d, NULL, 60 * MIB);
  const tide_block block = take(d, side, 40 * MIB);
  T_EQ(current(d, reserved_bytes), 60 * MIB);
  give(d, block);
  stream_finish(m, 0, side);
}

DEVICE_TEST_OVER(test_reserve__an_expandable_segment_grows, reserve_plain) {
  expand(m, d);
  reserve_all(d, NULL, 100 * MIB);
  expect_idle(d, 100 * MIB);
  T_EQ(count_segments(d), 1);
  reserve_all(d, NULL, 60 * MIB);  // its end has as much
  T_EQ(current(d, reserved_bytes), 100 * MIB);
  reserve_all(d, NULL, 120 * MIB);
  expect_idle(d, 120 * MIB);
}

// The square root of 8 GiB x 8 KiB is 8 MiB, and that of 128 MiB x 8 KiB less than the smallest handle.
T_TEST(test_reserve__handles_are_of_one_size) {
  static const struct {
    const char* text;
    uint64_t bytes, handles;
  } rows[] = { { "policy:tide", (uint64_t)8 << 30, 1024 },
               { "policy:tide", 128 * MIB, 64 },
               { "policy:tide,tide_most_handle_mb:4", (uint64_t)8 << 30, 2048 },
               { "policy:tide,tide_least_handle_mb:16", (uint64_t)8 << 30, 512 } };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    tide_machine* const m = dry_of((uint64_t)16 << 30);
    tide_device_cache* const d = device_with(m, rows[i].text);
    const uint64_t before = calls(m, TIDE_CALL_PHYSICAL_NEW);
    reserve_all(d, NULL, rows[i].bytes);
    T_EQ(calls(m, TIDE_CALL_PHYSICAL_NEW) - before, rows[i].handles);
    expect_idle(d, (int64_t)rows[i].bytes);
    tide_device_free(d);
    tide_machine_free(m);
  }
}

// A program that needs less than was reserved reserves no more; one that needs more has as much as without.
DEVICE_TEST_OVER(test_reserve__is_no_peak, device_tide) {
  tide_block blocks[20];
  reserve_all(d, NULL, 50 * MIB);
  for (int i = 0; i < 20; i++) blocks[i] = take(d, NULL, 6 * MIB);
  T_EQ(current(d, reserved_bytes), 120 * MIB);
  for (int i = 0; i < 20; i += 2) give(d, blocks[i]);
  for (int i = 0; i < 20; i += 2) blocks[i] = take(d, NULL, 5 * MIB);
  T_EQ(current(d, reserved_bytes), 120 * MIB);
  for (int i = 0; i < 20; i++) give(d, blocks[i]);
}

// ---------------------------------------------------------------------------------------------------
// What gives it back

DEVICE_TEST(test_reserve__goes_at_a_trim) {
  const size_t before = free_bytes(m, 0);
  reserve_all(d, NULL, 60 * MIB);
  if (!is_cuda(m)) T_EQ(free_bytes(m, 0), before - 60 * MIB);
  expect_trimmed(d, 0);
  if (!is_cuda(m)) T_EQ(free_bytes(m, 0), before);
}

DEVICE_TEST_OVER(test_reserve__a_floor_keeps_it, device_tide) {
  configure(d, "tide_floor_mb:24");
  reserve_all(d, NULL, 60 * MIB);
  expect_trimmed(d, 24 * MIB);
  configure(d, "");
}

// ---------------------------------------------------------------------------------------------------
// What bounds it

// It fails and has reserved so much, of which the error tells.
static void expect_stopped(tide_device_cache* d, uint64_t bytes, int64_t reserved) {
  char text[64];
  T_STATUS(tide_device_reserve(d, NULL, bytes), TIDE_ERR_NO_MEMORY);
  (void)snprintf(text, sizeof text, "%lld of %llu bytes", (long long)reserved, (unsigned long long)bytes);
  T_STR_HAS(tide_last_error()->text, text);
  T_EQ(current(d, reserved_bytes), reserved);
  device_expect_valid(d);
}

DEVICE_TEST(test_reserve__keeps_to_the_limit) {
  limit_to(d, 41 * MIB);
  expect_stopped(d, 60 * MIB, is_tide() ? 40 * MIB : 0);
  trim(d);
  reserve_all(d, NULL, 40 * MIB);
  limit_to(d, TIDE_NO_LIMIT);
  reserve_all(d, NULL, 20 * MIB);
  T_EQ(current(d, reserved_bytes), 60 * MIB);
}

// What is guaranteed to a tag is not there for the default pool.
DEVICE_TEST_OVER(test_reserve__keeps_to_budgets, device_emulated) {
  budget_to(d, "w", guaranteed(MACHINE_CAPACITY - 50 * MIB));
  expect_stopped(d, 60 * MIB, is_tide() ? 50 * MIB : 0);
}

DEVICE_TEST_OVER(test_reserve__keeps_to_the_ledger, device_emulated) {
  tide_quota_options options = member_options(ledger_path());
  options.total_bytes = 64 * MIB;
  T_OK(tide_device_join(d, &options));
  expect_stopped(d, 100 * MIB, is_tide() ? 64 * MIB : 0);
  T_EQ(ledger_look(ledger_path()).ledger.held_bytes, (uint64_t)current(d, reserved_bytes));
  tide_device_leave(d);
  ledger_end();
}

// What was reserved until then serves requests.
DEVICE_TEST_OVER(test_reserve__keeps_to_the_device, device_emulated) {
  const int64_t all = MACHINE_CAPACITY / (STEP_MOST * 2 * MIB) * (STEP_MOST * 2 * MIB);
  expect_stopped(d, MACHINE_CAPACITY + 2 * MIB, is_tide() ? all : 0);
  give(d, take(d, NULL, (size_t)all / 2));
}

// ---------------------------------------------------------------------------------------------------
// Errors

DEVICE_TEST(test_reserve__refuses_wrong_arguments) {
  T_STATUS(tide_device_reserve(NULL, NULL, MIB), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_reserve(d, NULL, UINT64_MAX), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_reserve(d, NULL, (uint64_t)1 << 60), TIDE_ERR_ARGUMENT);
  T_EQ(current(d, reserved_bytes), 0);
}

static void fail_at(tide_machine* m, tide_device_cache* d, uint64_t skip, tide_status wanted, bool* out_hit) {
  const uint64_t before = tide_machine_call_stats(m, TIDE_CALL_ANY).failures;
  fault_after(m, TIDE_CALL_ANY, wanted, skip);
  const tide_status status = tide_device_reserve(d, NULL, 50 * MIB);
  tide_machine_fault_clear(m);
  *out_hit = tide_machine_call_stats(m, TIDE_CALL_ANY).failures > before;
  if (!*out_hit) T_STATUS(status, TIDE_OK);
  if (status == TIDE_OK) T_EQ(current(d, reserved_bytes), 50 * MIB);
  device_expect_valid(d);
}

// Any call of the machine fails. Nothing is lost, and the next call goes on.
DEVICE_TEST_OVER(test_reserve__a_fault_at_any_call_loses_nothing, device_emulated) {
  static const tide_status statuses[] = { TIDE_ERR_NO_MEMORY, TIDE_ERR_MACHINE };
  const size_t before = free_bytes(m, 0);
  give(d, take(d, NULL, 3 * MIB));  // virtual memory works
  for (size_t i = 0; i < 2; i++) {
    bool is_hit = true;
    for (uint64_t skip = t_sample_first(); is_hit; skip += t_sample_step()) {
      trim(d);
      fail_at(m, d, skip, statuses[i], &is_hit);
      T_EQ(before - free_bytes(m, 0), (uint64_t)current(d, reserved_bytes));
    }
  }
  expect_trimmed(d, 0);
  reserve_all(d, NULL, 50 * MIB);
  T_EQ(before - free_bytes(m, 0), 50 * MIB);
}

// Any piece of memory for records is missing.
DEVICE_TEST_OVER(test_reserve__a_heap_that_fails_loses_nothing, device_emulated) {
  const size_t before = free_bytes(m, 0);
  bool has_failed = true;
  for (size_t at = t_sample_first(); has_failed; at += t_sample_step()) {
    counting_heap records;
    counting_heap_init(&records, SIZE_MAX, false);
    tide_device_cache* const own = device_new(m, 0, &records.heap);
    atomic_store(&records.fail_at, atomic_load(&records.allocs) + at);
    const tide_status status = tide_device_reserve(own, NULL, 50 * MIB);
    atomic_store(&records.fail_at, SIZE_MAX);
    has_failed = atomic_load(&records.has_failed);
    if (!has_failed) T_STATUS(status, TIDE_OK);
    T_CHECK(status == TIDE_OK || status == TIDE_ERR_NO_MEMORY);
    device_expect_valid(own);
    expect_trimmed(own, 0);
    tide_device_free(own);
    T_EQ(atomic_load(&records.outstanding), 0);
    T_EQ(free_bytes(m, 0), before);
  }
}

// The first use of virtual memory fails: then the policy that replaces `tide` reserves a segment.
DEVICE_TEST_OVER(test_reserve__falls_back_with_the_policy, device_tide_emulated) {
  fault_after(m, TIDE_CALL_SET_ACCESS, TIDE_ERR_MACHINE, 0);
  reserve_all(d, NULL, 30 * MIB);
  tide_machine_fault_clear(m);
  T_STR_EQ(tide_device_name(d), "torch");
  expect_idle(d, 30 * MIB);
}

// ---------------------------------------------------------------------------------------------------
// Other threads

typedef struct other {
  tide_device_cache* d;
  tide_stream stream;
  pthread_t thread;
  int heard;
  int64_t reserved;  // when the other thread had its memory
} other;

static void* other_take(void* user) {
  const other* const o = user;
  give(o->d, take(o->d, o->stream, 3 * MIB));
  return NULL;
}

// The thread that reserves tells its entries between two turns. The other one waits for that to tell its own.
static void other_hear(void* user, const tide_trace_entry* entry) {
  other* const o = user;
  if (entry->action != TIDE_ACTION_SEGMENT_MAP || o->heard++ > 0) return;
  t_thread_start(&o->thread, other_take, o);
  T_WAIT(current(o->d, active_bytes) > 0);
  o->reserved = current(o->d, reserved_bytes);
}

// A request of another thread that finds nothing at hand is served before all is reserved.
DEVICE_TEST_OVER(test_reserve__others_get_the_gate_between, device_tide) {
  other o = { .d = d, .stream = side_new(m) };
  const tide_observer observer = observe_trace(d, other_hear, &o);
  reserve_all(d, NULL, 100 * MIB);
  t_thread_join(o.thread);
  T_OK(tide_device_detach(d, observer));
  T_LT(o.reserved, 40 * MIB);
  T_LE(100 * MIB, current(d, reserved_bytes));
}

// Threads that take, give and trim beside two that reserve.
static void* crowd_run(void* user) {
  tide_device_cache* const d = user;
  static atomic_uint numbers;
  const unsigned number = atomic_fetch_add(&numbers, 1);
  t_rng rng = t_rng_new(number);
  for (size_t i = 0; i < t_scaled(100); i++) {
    tide_block block = block_none;
    T_ANY(tide_device_alloc(d, NULL, (size_t)(1 + t_rng_below(&rng, 20)) * MIB, &block));
    if (number % 2 == 0) T_ANY(tide_device_reserve(d, NULL, t_rng_below(&rng, 40 * MIB)));
    if (i % 4 == 0) trim(d);
    if (block.handle != 0) give(d, block);
  }
  return NULL;
}

DEVICE_TEST_OVER(test_reserve__threads_reserve_and_trim, device_emulated) {
  run_threads(4, crowd_run, d);
  expect_trimmed(d, 0);
}

// A capture of another thread forbids calls that are unsafe in it to all threads but those that are relaxed.
static void* reserve_run(void* user) {
  reserve_all(user, NULL, 20 * MIB);
  return NULL;
}

DEVICE_TEST_OVER(test_reserve__beside_a_capture, device_emulated) {
  const tide_stream side = side_new(m);
  tide_launch graph = NULL;
  T_OK(tide_machine_capture_begin(m, 0, side, TIDE_CAPTURE_GLOBAL));
  run_threads(1, reserve_run, d);
  T_OK(tide_machine_capture_end(m, 0, side, &graph));
  T_OK(tide_machine_launch_free(m, graph));
  T_EQ(current(d, reserved_bytes), 20 * MIB);
}

// ---------------------------------------------------------------------------------------------------
// What is recorded

DEVICE_TEST(test_reserve__history_and_snapshots_have_it) {
  history_on(d);
  reserve_all(d, NULL, 50 * MIB);
  const story s = read_story(d);
  int64_t mapped = 0;
  for (size_t i = 0; i < s.count; i++) {
    if (s.entries[i].action == growth_action()) mapped += (int64_t)s.entries[i].bytes;
    else T_NE(s.entries[i].action, TIDE_ACTION_ALLOC);
  }
  T_EQ(mapped, 50 * MIB);
  const seen all = look(d);
  T_EQ(all.segment_count, 1);
  T_EQ(all.segments[0].bytes, 50 * MIB);
}
