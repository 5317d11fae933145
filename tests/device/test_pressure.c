// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Running out of memory: limits, giving memory back, callbacks, observers, and the out-of-memory report.
#define T_THREADS
#include "device/devices.h"

#include <math.h>

// ---------------------------------------------------------------------------------------------------
// Limits

DEVICE_TEST(test_device__limit_holds_to_the_last_byte) {
  limit_to(d, 40 * MIB);
  (void)take(d, NULL, 20 * MIB);
  (void)take(d, NULL, 18 * MIB);
  (void)take(d, NULL, 512);

  T_EQ(current(d, reserved_bytes), 40 * MIB);
  expect_oom(d, NULL, 20 * MIB);
  T_EQ(tide_device_limit(d), 40 * MIB);
}

DEVICE_TEST(test_device__the_limit_can_be_a_fraction) {
  static const double wrong[] = { -0.1, 1.1, -1e-9, 1.0000001, (double)NAN };
  t_rng rng = t_rng_new(0);
  T_EQ(tide_device_limit(d), TIDE_NO_LIMIT);
  T_CHECK(tide_device_fraction(d) == 1.0);

  for (int i = 0; i < 100; ++i) {
    const double wanted = (double)t_rng_below(&rng, 1000000) / 1e6;
    T_OK(tide_device_set_fraction(d, wanted));
    T_STATUS(tide_device_set_fraction(d, wrong[i % 5]), TIDE_ERR_ARGUMENT);
    T_CHECK(fabs(tide_device_fraction(d) - wanted) < 1e-7);
  }

  T_OK(tide_device_set_fraction(d, 0.0));
  T_CHECK(tide_device_fraction(d) == 0.0);
  expect_oom(d, NULL, 1);
  expect_oom(d, NULL, 20 * MIB);
  T_OK(tide_device_set_fraction(d, 1.0));
  T_EQ(tide_device_limit(d), TIDE_NO_LIMIT);
  (void)take(d, NULL, 20 * MIB);
}

DEVICE_TEST(test_device__a_little_below_the_fraction_fits_and_all_of_it_does_not) {
  const double share = is_cuda(m) ? 0.02 : 0.5;
  const double total = (double)device_info(m, 0).total_bytes;
  T_OK(tide_device_set_fraction(d, share));
  T_EQ(tide_device_limit(d), (uint64_t)(share * total));

  const tide_block block = take(d, NULL, (size_t)(share * 0.998 * total));
  expect_oom(d, NULL, (size_t)(share * total));
  give(d, block);

  give(d, take(d, NULL, (size_t)(share * 0.998 * total)));
}

MACHINE_TEST_OVER(test_device__fraction_can_be_an_option, device_names) {
  tide_device_options options = device_defaults();
  tide_device_cache* d = NULL;
  options.memory_fraction = 0.5;

  T_OK(tide_device_new(m, 0, &options, &d));

  T_EQ(tide_device_limit(d), device_info(m, 0).total_bytes / 2);
  tide_device_free(d);
}

DEVICE_TEST(test_device__a_lowered_limit_takes_nothing_away) {
  const tide_block block = take(d, NULL, 20 * MIB);
  give(d, block);

  limit_to(d, 10 * MIB);

  T_EQ(current(d, reserved_bytes), 20 * MIB);
  T_PTR_EQ(take(d, NULL, 20 * MIB).address, block.address);
}

// ---------------------------------------------------------------------------------------------------
// Out of memory

DEVICE_TEST(test_device__oom_text_has_the_tokens_of_torch) {
  const bool is_cuda = strcmp(tide_machine_name(m), "cuda") == 0;
  expect_oom(d, NULL, 800000000 * GIB);

  const char* const text = tide_device_last_oom()->text;
  T_STR_HAS(text, is_cuda ? "CUDA out of memory." : "Out of memory on the machine \"");
  T_STR_HAS(text, "Tried to allocate 800000000.00 GiB.");
  T_STR_HAS(text, is_cuda ? "GPU 0 has a total capacity of " : "Device 0 has a total capacity of ");
  T_STR_HAS(text, " of which ");
  T_STR_HAS(text, " is free.");
  T_STR_HAS(tide_last_error()->text, "Tried to allocate 800000000.00 GiB");
}

DEVICE_TEST(test_device__oom_text_names_limit_and_amounts) {
  limit_to(d, 100 * MIB);
  (void)take(d, NULL, 30 * MIB);

  expect_oom(d, NULL, 200 * MIB);

  const char* const text = tide_device_last_oom()->text;
  T_STR_HAS(text, "Tried to allocate 200.00 MiB.");
  T_STR_HAS(text, "100.00 MiB allowed");
  T_STR_HAS(text, "Of the allocated memory 30.00 MiB is allocated by ");
  T_STR_HAS(text, "0 bytes is reserved");
  T_STR_HAS(text, "but unallocated");
}

DEVICE_TEST(test_device__oom_says_what_was_tried_and_what_keeps_idle_memory) {
  limit_to(d, 100 * MIB);
  const tide_block before = take(d, NULL, 5 * MIB);
  const tide_block kept = take(d, NULL, 5 * MIB);
  give(d, before);
  give(d, take(d, NULL, 40 * MIB));

  expect_oom(d, NULL, 200 * MIB);

  const tide_oom* const oom = tide_device_last_oom();
  uint64_t yielded = 0;
  T_LT(0, oom->rung_count);
  for (uint32_t i = 0; i < oom->rung_count; ++i) {
    yielded += oom->rungs[i].yielded_bytes;
    T_STR_HAS(oom->text, oom->rungs[i].name);
  }
  T_LE(34 * MIB, yielded);  // at least what lies apart of the kept block
  T_EQ(oom->pin_count, 1);
  T_EQ(oom->pins[0].address, (uint64_t)(uintptr_t)kept.address);
  T_EQ(oom->pins[0].block_count, 1);
  T_LT(0, oom->pins[0].idle_bytes);
  T_EQ(current(d, reserved_bytes), oom->reserved_bytes);
}

TORCH_TEST(test_device__oom_text_names_the_segment_not_the_request) {
  limit_to(d, 10 * MIB);

  expect_oom(d, NULL, 3 * MIB);

  T_STR_HAS(tide_device_last_oom()->text, "Tried to allocate 20.00 MiB.");
}

DEVICE_TEST(test_device__oom_text_counts_idle_memory_of_private_pools) {
  const tide_pool pool = pool_new(d, NULL);
  limit_to(d, 50 * MIB);
  give(d, take_in(d, pool, NULL, 12 * MIB));
  (void)take(d, NULL, 10 * MIB);

  expect_oom(d, NULL, 40 * MIB);

  const char* const text = tide_device_last_oom()->text;
  T_STR_HAS(text, "22.00 MiB is allocated by");
  T_STR_HAS(text, "12.00 MiB allocated in private pools");
  T_EQ(tide_device_last_oom()->private_idle_bytes, 12 * MIB);
}

DEVICE_TEST(test_device__oom_record_has_the_numbers) {
  const tide_stream side = side_new(m);
  gate g;
  limit_to(d, 64 * MIB);
  (void)take(d, side, 16 * MIB);
  const tide_block waiting = take(d, side, 512);
  hold_up(&g, m, NULL);
  announce(d, waiting, NULL);
  const tide_pool pool = pool_new(d, NULL);
  scope_open(d, pool);  // so that nothing is waited for
  give(d, waiting);

  expect_oom(d, side, 60 * MIB + 1);
  const tide_oom* const oom = tide_device_last_oom();
  scope_close(d, pool);
  let_go(&g);

  T_EQ(oom->size, sizeof *oom);
  T_EQ(oom->device, 0);
  T_PTR_EQ(oom->stream, side);
  T_EQ(oom->requested_bytes, 60 * MIB + 1);
  T_EQ(oom->rounded_bytes, 60 * MIB + 512);
  T_EQ(oom->segment_bytes, 62 * MIB);
  T_EQ(oom->device_total, device_info(m, 0).total_bytes);
  T_EQ(oom->limit, 64 * MIB);
  T_EQ(oom->allocated_bytes, 16 * MIB);
  T_EQ(oom->reserved_bytes, 18 * MIB);
  T_EQ(oom->pending_bytes, 512);
}

DEVICE_TEST(test_device__oom_record_has_the_largest_idle_block_of_the_stream) {
  limit_to(d, 40 * MIB);
  (void)take(d, NULL, 6 * MIB);
  const tide_block idle = take(d, NULL, 8 * MIB);
  (void)take(d, NULL, 6 * MIB);
  give(d, idle);

  expect_oom(d, NULL, 30 * MIB);

  // The segment around it is in use; the policy tide gave back what lies in it.
  T_EQ(tide_device_last_oom()->largest_idle_bytes, is_tide() ? 0 : 8 * MIB);
}

static void* look_at_last_oom(void* user) {
  *(uint32_t*)user = tide_device_last_oom()->size;
  return NULL;
}

DEVICE_TEST(test_device__oom_record_is_of_the_thread) {
  uint32_t size = 1;
  limit_to(d, MIB);
  T_EQ(tide_device_last_oom()->size, 0);

  expect_oom(d, NULL, 1);
  run_threads(1, look_at_last_oom, &size);

  T_EQ(size, 0);
  T_EQ(tide_device_last_oom()->size, sizeof(tide_oom));
}

static void expect_recovery_from_oom(tide_machine* m, tide_device_cache* d) {
  limit_to(d, 60 * MIB);
  const tide_block small = take(d, NULL, 3 * MIB);
  const tide_block block = take(d, NULL, 36 * MIB);
  expect_oom(d, NULL, 30 * MIB);
  expect_oom(d, NULL, 800000000 * GIB);

  device_fill(m, 0, bytes_of(small), 5, 3 * MIB);
  expect_filled(m, 0, bytes_of(small), 5, 3 * MIB);
  give(d, block);

  (void)take(d, NULL, 30 * MIB);
  T_EQ(counter(d, num_ooms), 2);
}

DEVICE_TEST(test_device__after_an_oom_work_goes_on) { expect_recovery_from_oom(m, d); }

DEVICE_TEST(test_device__after_an_oom_with_max_split_size_work_goes_on) {
  configure(d, "max_split_size_mb:20");
  expect_recovery_from_oom(m, d);
}

DEVICE_TEST_OVER(test_device__a_full_machine_is_out_of_memory, device_emulated) {
  const tide_block block = take(d, NULL, 200 * MIB);
  expect_oom(d, NULL, 100 * MIB);
  T_EQ(tide_device_last_oom()->device_free, MACHINE_CAPACITY - 200 * MIB);
  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY - 200 * MIB);

  give(d, block);

  (void)take(d, NULL, 220 * MIB);
  T_EQ(counter(d, num_ooms), 1);
}

DEVICE_TEST(test_device__other_errors_of_the_machine_are_reported_as_they_are) {
  configure(d, "virtual_fallback:False");
  break_calls(m, growth_call(), TIDE_ERR_MACHINE, 1);

  T_STATUS(try_take(d, NULL, 4096), TIDE_ERR_MACHINE);

  T_EQ(counter(d, num_ooms), 0);
  (void)take(d, NULL, 4096);
}

// ---------------------------------------------------------------------------------------------------
// Giving back to find memory

DEVICE_TEST(test_device__everything_idle_is_given_back_before_an_oom) {
  const tide_stream side = side_new(m);
  limit_to(d, 60 * MIB);
  const tide_pool pool = pool_new(d, NULL);  // whose memory nobody else can use
  scope_open(d, pool);
  const tide_block blocks[3] = { take(d, NULL, 20 * MIB), take(d, side, 20 * MIB), take(d, NULL, 512) };
  scope_close(d, pool);
  T_OK(tide_device_pool_drop(d, pool));
  for (size_t i = 0; i < 3; ++i) give(d, blocks[i]);

  (void)take(d, NULL, 40 * MIB);

  T_EQ(current(d, reserved_bytes), 40 * MIB);
  T_EQ(counter(d, num_device_free), 3);
  T_EQ(counter(d, num_alloc_retries), 1);
  T_EQ(counter(d, num_sync_all_streams), 1);
}

TORCH_TEST(test_device__max_split_size_gives_back_one_large_block_only) {
  configure(d, "max_split_size_mb:20");
  limit_to(d, 120 * MIB);
  const tide_block a = take(d, NULL, 50 * MIB);
  const tide_block b = take(d, NULL, 70 * MIB);
  give(d, a);
  give(d, b);

  (void)take(d, NULL, 24 * MIB);  // both are 20 MiB too large; the smaller one goes

  T_EQ(counter(d, num_device_free), 1);
  T_EQ(current(d, reserved_bytes), 94 * MIB);
  T_EQ(counter(d, num_alloc_retries), 0);
}

TORCH_TEST(test_device__max_split_size_gives_back_several_from_the_largest_down) {
  configure(d, "max_split_size_mb:20");
  limit_to(d, 100 * MIB);
  give(d, take(d, NULL, 10 * MIB));
  tide_block blocks[3];
  for (size_t i = 0; i < 3; ++i) blocks[i] = take(d, NULL, (24 + 4 * i) * MIB);  // 24, 28, 32
  for (size_t i = 0; i < 3; ++i) give(d, blocks[i]);

  (void)take(d, NULL, 60 * MIB);

  T_EQ(counter(d, num_device_free), 2);  // 32 and 28
  T_EQ(current(d, reserved_bytes), (10 + 24 + 60) * MIB);
}

DEVICE_TEST(test_device__trim_gives_idle_segments_back_and_keeps_those_in_use) {
  const size_t before = free_bytes(m, 0);
  const tide_block used = take(d, NULL, 3 * MIB);
  const int64_t reserved = current(d, reserved_bytes);
  static const size_t sizes[] = { 4096, 3 * MIB, 30 * MIB };
  for (size_t i = 0; i < 3; ++i) give(d, take(d, NULL, sizes[i]));
  device_fill(m, 0, bytes_of(used), 9, 3 * MIB);

  expect_trimmed(d, reserved);
  expect_filled(m, 0, bytes_of(used), 9, 3 * MIB);
  give(d, used);

  expect_trimmed(d, 0);
  T_EQ(current(d, segment), 0);
  if (!is_cuda(m)) T_EQ(free_bytes(m, 0), before);
}

DEVICE_TEST(test_device__what_a_trim_could_not_give_back_stays_cached) {
  const tide_block block = take(d, NULL, 20 * MIB);
  give(d, block);
  break_calls(m, shrink_call(), TIDE_ERR_MACHINE, 1);

  T_STATUS(tide_device_trim(d, 0), TIDE_ERR_MACHINE);

  T_EQ(current(d, reserved_bytes), 20 * MIB);
  T_PTR_EQ(take(d, NULL, 20 * MIB).address, block.address);
}

// ---------------------------------------------------------------------------------------------------
// Collection by age

// An old idle segment of 30 MiB, a younger one of 40 MiB, and a request for 44 MiB: what is collected.
static const struct {
  const char* options;
  uint64_t limit;
  int64_t freed;
  int64_t reserved;
} collections[] = {
  { "garbage_collection_threshold:0.5", 120 * MIB, 1, (40 + 44) * MIB },  // the oldest first
  { "garbage_collection_threshold:0.1", 120 * MIB, 2, 44 * MIB },         // until there is enough
  { "garbage_collection_threshold:0.6", 120 * MIB, 0, (30 + 40 + 44) * MIB },
  { "garbage_collection_threshold:0.01", TIDE_NO_LIMIT, 0, (30 + 40 + 44) * MIB },
};

TORCH_TEST(test_device__collection_takes_the_oldest_above_its_threshold_of_the_limit) {
  for (size_t i = 0; i < sizeof collections / sizeof collections[0]; ++i) {
    configure(d, collections[i].options);
    limit_to(d, collections[i].limit);
    give(d, take(d, NULL, 30 * MIB));
    give(d, take(d, NULL, 40 * MIB));

    give(d, take(d, NULL, 44 * MIB));

    T_EQ(counter(d, num_device_free), collections[i].freed);
    T_EQ(current(d, reserved_bytes), collections[i].reserved);
    trim(d);
    tide_device_reset_accumulated(d);
  }
}

TORCH_TEST(test_device__collection_leaves_split_and_small_segments_alone) {
  configure(d, "garbage_collection_threshold:0.1");
  limit_to(d, 120 * MIB);
  give(d, take(d, NULL, 512));
  const tide_block split = take(d, NULL, 3 * MIB);
  give(d, take(d, NULL, 3 * MIB));

  (void)take(d, NULL, 44 * MIB);

  T_EQ(counter(d, num_device_free), 0);
  give(d, split);
}

// A pool without users holds 14 idle MiB, above the threshold.
static int64_t reserved_after_collecting_beside_a_pool(tide_device_cache* d, const char* options) {
  configure(d, options);
  limit_to(d, 100 * MIB);
  const tide_pool pool = pool_new(d, NULL);
  give(d, take_in(d, pool, NULL, 14 * MIB));
  T_OK(tide_device_pool_drop(d, pool));
  give(d, take(d, NULL, 12 * MIB));
  const int64_t reserved = current(d, reserved_bytes);
  trim(d);
  return reserved;
}

TORCH_TEST(test_device__collection_looks_at_all_pools_only_with_fixes) {
  T_EQ(reserved_after_collecting_beside_a_pool(d, "garbage_collection_threshold:0.1"), 26 * MIB);
  T_EQ(reserved_after_collecting_beside_a_pool(d, "garbage_collection_threshold:0.1,fixes:True"), 12 * MIB);
}

// ---------------------------------------------------------------------------------------------------
// What a wait made free

// Is the thread that runs the test waiting for something?
static bool is_main_thread_asleep(void) {
  char path[64];
  char line[512] = "";
  (void)snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)getpid());
  FILE* const file = fopen(path, "r");
  if (file == NULL || fgets(line, sizeof line, file) == NULL) line[0] = '\0';
  if (file != NULL) (void)fclose(file);
  const char* const state = strrchr(line, ')');
  return state != NULL && state[1] == ' ' && state[2] == 'S';
}

// Until the test has waited for it for a while, however slow the computer is; no longer than the given number
// of milliseconds, because who waits for a GPU may not sleep.
static void call_nap(void* user) {
  int asleep = 0;
  for (uintptr_t ms = (uintptr_t)user; ms > 0 && asleep < 20; --ms) {
    t_sleep_us(1000);
    asleep = is_main_thread_asleep() ? asleep + 1 : 0;
  }
}

// Queues work that is still under way when the next calls are made, and ends when it is waited for.
static void work_long(tide_machine* m, tide_stream stream) {
  if (is_dry(m)) T_OK(tide_dry_work(m, 0, stream, 1000000000));
  else T_OK(tide_machine_call(m, 0, stream, call_nap, (void*)(uintptr_t)(is_host(m) ? 60000 : 100)));
}

// Of a segment of 20 MiB, 5 MiB are in use and the rest waits for a side stream. No more is allowed.
static void fill_with_waiting(tide_machine* m, tide_device_cache* d, tide_stream side) {
  limit_to(d, (uint64_t)current(d, reserved_bytes) + 20 * MIB);
  (void)take(d, NULL, 5 * MIB);
  const tide_block block = take(d, NULL, 14 * MIB);
  work_long(m, side);
  give_announced(d, block, side);
}

TORCH_TEST(test_device__as_in_torch_memory_found_by_waiting_is_not_looked_for) {
  const tide_stream side = side_new(m);
  fill_with_waiting(m, d, side);

  expect_oom(d, NULL, 14 * MIB);

  (void)take(d, NULL, 14 * MIB);  // the same request, at once
}

DEVICE_TEST(test_device__with_fixes_memory_found_by_waiting_is_used) {
  const tide_stream side = side_new(m);
  configure(d, "fixes:True");
  fill_with_waiting(m, d, side);

  (void)take(d, NULL, 14 * MIB);

  T_EQ(counter(d, num_ooms), 0);
  T_EQ(current(d, reserved_bytes), 20 * MIB);
}

DEVICE_TEST(test_device__with_fixes_waits_end_at_the_first_block_that_fits) {
  const tide_stream side = side_new(m);
  const tide_stream other = side_new(m);
  gate g;
  configure(d, "fixes:True");
  const tide_block never = take(d, NULL, 512);
  (void)take(d, NULL, 512);
  fill_with_waiting(m, d, side);
  hold_up(&g, m, other);
  give_announced(d, never, other);

  (void)take(d, NULL, 14 * MIB);  // would wait for ever for the other stream

  T_EQ(current(d, active), 4);
  let_go(&g);
}

DEVICE_TEST(test_device__with_fixes_nothing_is_given_back_where_waiting_is_enough) {
  const tide_stream side = side_new(m);
  configure(d, "fixes:True");
  limit_to(d, 40 * MIB);
  const tide_block block = take(d, NULL, 30 * MIB);
  work_long(m, side);
  give_announced(d, block, side);

  T_PTR_EQ(take(d, NULL, 24 * MIB).address, block.address);

  T_EQ(counter(d, num_device_free), 0);
}

// ---------------------------------------------------------------------------------------------------
// Who is told and who is asked

typedef struct witness {
  tide_device_cache* device;
  int calls;
  tide_oom oom;
  tide_status status;
  tide_block held;  // what a reclaim callback can release
} witness;

static void note_oom(void* user, const tide_oom* oom) {
  witness* const w = user;
  ++w->calls;
  w->oom = *oom;
}

DEVICE_TEST(test_device__oom_observers_are_called_before_the_call_returns) {
  witness w = { .device = d };
  tide_observer observer = 0;
  limit_to(d, 10 * MIB);
  for (int i = 0; i < 32; ++i) observer = observe_oom(d, note_oom, &w);
  tide_observer one_more = 7;
  T_STATUS(tide_device_observe_oom(d, note_oom, &w, &one_more), TIDE_ERR_LIMIT);
  T_EQ(one_more, 0);

  expect_oom(d, NULL, 12 * MIB);
  T_EQ(w.calls, 32);
  T_EQ(w.oom.requested_bytes, 12 * MIB);
  T_EQ(w.oom.limit, 10 * MIB);
  T_STR_HAS(w.oom.text, "ut of memory");
  T_OK(tide_device_detach(d, observer));
  expect_oom(d, NULL, 12 * MIB);

  T_EQ(w.calls, 32 + 31);
  T_STATUS(tide_device_detach(d, observer), TIDE_ERR_HANDLE);
}

static void use_allocator_on_oom(void* user, const tide_oom* oom) {
  witness* const w = user;
  (void)oom;
  ++w->calls;
  give(w->device, take(w->device, NULL, 4096));
  (void)stats_of(w->device);
  trim(w->device);
}

DEVICE_TEST(test_device__oom_observer_may_call_the_allocator) {
  witness w = { .device = d };
  limit_to(d, 10 * MIB);
  observe_oom(d, use_allocator_on_oom, &w);

  expect_oom(d, NULL, 12 * MIB);

  T_EQ(w.calls, 1);
  T_EQ(current(d, reserved_bytes), 0);
}

static bool release_held(void* user, tide_device_cache* device) {
  witness* const w = user;
  ++w->calls;
  if (w->held.address == NULL) return false;
  give(device, w->held);
  w->held = (tide_block){ NULL, 0 };
  return true;
}

DEVICE_TEST(test_device__reclaim_callbacks_are_all_asked_at_a_miss_before_the_machine) {
  witness first = { .device = d, .held = take(d, NULL, 12 * MIB) };
  witness second = { .device = d };
  void* const address = first.held.address;
  const tide_observer observers[2] = { observe_reclaim(d, release_held, &first),
                                       observe_reclaim(d, release_held, &second) };

  const tide_block block = take(d, NULL, 12 * MIB);
  T_PTR_EQ(block.address, address);
  T_EQ(counter(d, num_device_alloc), 1);
  give(d, block);
  (void)take(d, NULL, 12 * MIB);  // a hit
  T_EQ(first.calls, 1);
  T_EQ(second.calls, 1);
  T_OK(tide_device_detach(d, observers[0]));
  (void)take(d, NULL, 12 * MIB);

  T_EQ(first.calls, 1);
  T_EQ(second.calls, 2);
}

DEVICE_TEST(test_device__with_fixes_a_callback_may_release_what_still_has_to_wait) {
  const tide_stream side = side_new(m);
  configure(d, "fixes:True");
  limit_to(d, 20 * MIB);
  (void)take(d, NULL, 6 * MIB);
  witness w = { .device = d, .held = take(d, NULL, 14 * MIB) };
  void* const address = w.held.address;
  announce(d, w.held, side);
  work_long(m, side);
  observe_reclaim(d, release_held, &w);

  T_PTR_EQ(take(d, NULL, 14 * MIB).address, address);

  T_EQ(counter(d, num_ooms), 0);
}
