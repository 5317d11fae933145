// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Wrong arguments to every call of the pinned-host cache: each is refused, changes nothing, and leaves its
// results empty.
#define T_THREADS
#include "pinned/pinneds.h"

static const tide_block some_block = { (void*)4096, 0x100000005 };

// ---------------------------------------------------------------------------------------------------
// No cache

T_TEST(test_pinned_badinput__no_cache) {
  tide_block block = some_block;
  tide_pool pool = 7;
  uint32_t users = 7;
  T_STATUS(tide_pinned_alloc(NULL, 512, &block), TIDE_ERR_ARGUMENT);
  T_PTR_EQ(block.address, NULL);
  T_STATUS(tide_pinned_alloc_on(NULL, 0, NULL, 512, &block), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_release(NULL, some_block), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_release_address(NULL, some_block.address), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_record(NULL, some_block, 0, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_record_now(NULL, some_block, 0, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_copy(NULL, some_block, 0, NULL, (void*)1, (void*)2, 1), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_poll(NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_trim(NULL, 0), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_empty(NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_pool_new(NULL, &pool), TIDE_ERR_ARGUMENT);
  T_EQ(pool, 0);
  T_STATUS(tide_pinned_pool_retain(NULL, 1), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_pool_drop(NULL, 1), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_pool_users(NULL, 1, &users), TIDE_ERR_ARGUMENT);
  T_EQ(users, 0);
  T_STATUS(tide_pinned_pool_begin(NULL, 1, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_pool_end(NULL, 1), TIDE_ERR_ARGUMENT);
}

static bool see_nothing(void* user, const tide_segment_info* segment) {
  (void)user;
  (void)segment;
  return true;
}

static bool hear_nothing(void* user, const tide_trace_entry* entries, size_t count) {
  (void)user;
  (void)entries;
  (void)count;
  return true;
}

T_TEST(test_pinned_badinput__no_cache_to_look_into) {
  const tide_device_visitor visitor = { see_nothing, NULL, NULL };
  const tide_history_options history = TIDE_HISTORY_OPTIONS_INIT;
  tide_pinned_stats stats = TIDE_PINNED_STATS_INIT;
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  T_STATUS(tide_pinned_get_stats(NULL, &stats), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_visit(NULL, &visitor), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_history(NULL, &history), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_history_visit(NULL, hear_nothing, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_snapshot(NULL, NULL, 0, trace), TIDE_ERR_ARGUMENT);
  T_PTR_EQ(tide_pinned_names(NULL), NULL);
  T_PTR_EQ(tide_pinned_machine(NULL), NULL);
  T_EQ(tide_pinned_round(NULL, 512), 0);
  tide_trace_free(trace);
}

T_TEST(test_pinned_badinput__no_cache_to_free_or_reset) {
  tide_pinned_leaks leaks = { sizeof leaks, 1, 2, 3, 4 };
  tide_pinned_options options = TIDE_PINNED_OPTIONS_INIT;
  tide_pinned_free(NULL, NULL);
  tide_pinned_free(NULL, &leaks);
  T_EQ(leaks.blocks, 0);
  T_EQ(leaks.refused_bytes, 0);
  tide_pinned_reset_accumulated(NULL);
  tide_pinned_reset_peaks(NULL);
  tide_pinned_get_options(NULL, &options);
}

// ---------------------------------------------------------------------------------------------------
// No place for the result

PINNED_TEST(test_pinned_badinput__no_place_for_results) {
  (void)m;
  const tide_pool pool = pool_new(p);
  (void)take(p, SINGLE);
  T_STATUS(tide_pinned_alloc(p, 512, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_alloc_on(p, 0, NULL, 512, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_pool_new(p, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_pool_users(p, pool, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_get_stats(p, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_visit(p, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_history(p, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_history_visit(p, NULL, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_snapshot(p, NULL, 0, NULL), TIDE_ERR_ARGUMENT);
  T_EQ(current(p, active_requests), 1);
}

// ---------------------------------------------------------------------------------------------------
// Options

static void expect_refused(tide_machine* m, const tide_pinned_options* options, tide_status status) {
  tide_pinned_cache* p = (tide_pinned_cache*)(uintptr_t)8;
  T_STATUS(tide_pinned_new(m, options, &p), status);
  T_PTR_EQ(p, NULL);
}

MACHINE_TEST(test_pinned_badinput__options_out_of_range) {
  static const uint32_t threads[] = { 3, 6, 127, 129, 256, UINT32_MAX };
  const tide_pinned_options defaults = TIDE_PINNED_OPTIONS_INIT;
  const tide_heap half = { NULL, NULL, NULL };
  tide_pinned_options options = defaults;
  tide_pinned_cache* p = NULL;
  T_STATUS(tide_pinned_new(NULL, NULL, &p), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_new(m, NULL, NULL), TIDE_ERR_ARGUMENT);
  options.size = 4;
  expect_refused(m, &options, TIDE_ERR_ARGUMENT);
  options = defaults;
  options.numa = 3;
  expect_refused(m, &options, TIDE_ERR_ARGUMENT);
  options = defaults;
  options.heap = &half;
  expect_refused(m, &options, TIDE_ERR_ARGUMENT);
  for (size_t i = 0; i < sizeof threads / sizeof *threads; ++i) {
    options = defaults;
    options.register_threads = threads[i];
    expect_refused(m, &options, TIDE_ERR_ARGUMENT);
  }
  options = defaults;
  options.uses_register = options.uses_machine = true;
  expect_refused(m, &options, TIDE_ERR_ARGUMENT);
  options = defaults;
  options.numa = TIDE_NUMA_DEVICE;
  options.numa_device = tide_machine_device_count(m);
  expect_refused(m, &options, TIDE_ERR_DEVICE);
  options.numa_device = -1;
  expect_refused(m, &options, TIDE_ERR_DEVICE);
}

MACHINE_TEST(test_pinned_badinput__options_at_the_ends_of_their_range) {
  tide_pinned_options options = TIDE_PINNED_OPTIONS_INIT;
  tide_pinned_options got = TIDE_PINNED_OPTIONS_INIT;
  for (uint32_t threads = 1; threads <= 128; threads *= 2) {
    options.register_threads = threads;
    options.max_round_bytes = threads - 1;
    options.max_block_bytes = threads == 1 ? 0 : TIDE_NO_LIMIT;
    options.max_cached_bytes = threads - 1;
    options.idle_ns = threads == 1 ? UINT64_MAX : threads;
    tide_pinned_cache* const p = pinned_open(m, &options);
    give(p, take(p, 1000));
    poll_all(p);
    tide_pinned_get_options(p, &got);
    T_EQ(got.register_threads, threads);
    T_EQ(got.idle_ns, options.idle_ns);
    T_PTR_EQ(tide_pinned_machine(p), m);
    pinned_expect_valid(p);
    tide_pinned_free(p, NULL);
  }
}

// A reserve that no machine has does not keep requests from being served.
EMULATED_TEST(test_pinned_badinput__a_reserve_that_cannot_be) {
  tide_pinned_options options = TIDE_PINNED_OPTIONS_INIT;
  static const uint64_t sizes[] = { UINT64_MAX, (uint64_t)1 << 63, (uint64_t)1 << 60, 1 };
  for (size_t i = 0; i < 4; ++i) {
    tide_pinned_cache* p = NULL;
    options.reserve_bytes = sizes[i];
    const tide_status status = tide_pinned_new(m, &options, &p);
    if (status != TIDE_OK) {
      T_STATUS(status, TIDE_ERR_ARGUMENT);
      continue;
    }
    (void)take(p, 512);
    (void)take(p, SINGLE);
    tide_pinned_free(p, NULL);
  }
}

T_TEST(test_pinned_badinput__options_from_a_device) {
  tide_device_options from = TIDE_DEVICE_OPTIONS_INIT;
  tide_pinned_options to = TIDE_PINNED_OPTIONS_INIT;
  to.max_cached_bytes = 77;
  T_OK(tide_device_options_parse("pinned_use_cuda_host_register:True,pinned_num_register_threads:8,"
                                 "pinned_use_background_threads:True,pinned_reserve_segment_size_mb:16",
                                 &from));

  T_OK(tide_pinned_options_from_device(&from, &to));

  T_CHECK(to.uses_register && to.has_helper);
  T_EQ(to.register_threads, 8);
  T_EQ(to.reserve_bytes, 16 * MIB);
  T_EQ(to.max_cached_bytes, 77);
  T_EQ(to.max_round_bytes, TIDE_NO_LIMIT);
  T_EQ(to.max_block_bytes, TIDE_NO_LIMIT);
  T_OK(tide_device_options_parse("pinned_max_round_threshold_mb:64,pinned_max_cached_size_mb:0", &from));
  T_OK(tide_pinned_options_from_device(&from, &to));
  T_EQ(to.max_round_bytes, 64 * MIB);
  T_EQ(to.max_block_bytes, 0);
  T_STATUS(tide_pinned_options_from_device(NULL, &to), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_options_from_device(&from, NULL), TIDE_ERR_ARGUMENT);
  from.size = 8;
  T_STATUS(tide_pinned_options_from_device(&from, &to), TIDE_ERR_ARGUMENT);
  from.size = sizeof from;
  to.size = 8;
  T_STATUS(tide_pinned_options_from_device(&from, &to), TIDE_ERR_ARGUMENT);
}

// 1 thread is PyTorch's default, which registers nothing. It must not slow down what we register.
T_TEST(test_pinned_badinput__threads_from_a_device_that_does_not_register) {
  tide_device_options from = TIDE_DEVICE_OPTIONS_INIT;
  tide_pinned_options to = TIDE_PINNED_OPTIONS_INIT;
  T_OK(tide_pinned_options_from_device(&from, &to));
  T_EQ(to.register_threads, 0);
  T_CHECK(!to.uses_register && !to.uses_machine);

  T_OK(tide_device_options_parse("pinned_pages:off", &from));
  T_OK(tide_pinned_options_from_device(&from, &to));
  T_CHECK(to.uses_machine);

  T_OK(tide_device_options_parse("pinned_num_register_threads:4", &from));
  T_OK(tide_pinned_options_from_device(&from, &to));
  T_EQ(to.register_threads, 4);

  T_OK(tide_device_options_parse("pinned_use_cuda_host_register:True,pinned_num_register_threads:1", &from));
  T_OK(tide_pinned_options_from_device(&from, &to));
  T_EQ(to.register_threads, 1);
  T_CHECK(to.uses_register && !to.uses_machine);
}

// ---------------------------------------------------------------------------------------------------
// Structs of another size, numbers out of range

PINNED_TEST(test_pinned_badinput__structs_of_another_size) {
  (void)m;
  const tide_pool pool = pool_new(p);
  tide_pinned_stats stats = TIDE_PINNED_STATS_INIT;
  tide_pinned_scope scope = TIDE_PINNED_SCOPE_INIT;
  tide_history_options history = TIDE_HISTORY_OPTIONS_INIT;
  stats.size = 8;
  T_STATUS(tide_pinned_get_stats(p, &stats), TIDE_ERR_ARGUMENT);
  scope.size = 4;
  T_STATUS(tide_pinned_pool_begin(p, pool, &scope), TIDE_ERR_ARGUMENT);
  history.size = 4;
  T_STATUS(tide_pinned_history(p, &history), TIDE_ERR_ARGUMENT);
  T_EQ(pool_users(p, pool), 1);
}

// Options were once written beyond the end of a shorter struct.
PINNED_TEST(test_pinned_badinput__structs_of_an_older_header) {
  (void)m;
  tide_pinned_stats stats = TIDE_PINNED_STATS_INIT;
  tide_history_options history = TIDE_HISTORY_OPTIONS_INIT;
  struct {
    tide_pinned_options options;
    uint8_t guard[sizeof(tide_pinned_options)];
  } longer;
  memset(&longer, 0xaa, sizeof longer);
  longer.options.size = sizeof longer.options + 8;
  tide_pinned_get_options(p, &longer.options);  // not ours
  T_EQ(longer.options.register_threads, 0xaaaaaaaa);
  longer.options.size = sizeof longer.options;
  tide_pinned_get_options(p, &longer.options);
  T_EQ(longer.options.register_threads, 0);
  for (size_t i = 0; i < sizeof longer.guard; ++i) T_EQ(longer.guard[i], 0xaa);

  stats.size = offsetof(tide_pinned_stats, num_capped);
  stats.num_capped = 77;
  T_OK(tide_pinned_get_stats(p, &stats));
  T_EQ(stats.num_capped, 77);
  history.size = offsetof(tide_history_options, number);
  T_OK(tide_pinned_history(p, &history));
}

PINNED_TEST(test_pinned_badinput__numbers_of_nothing) {
  const tide_stream stream = side_new(m);
  const tide_pool pool = pool_new(p);
  const tide_block block = take(p, SINGLE);
  tide_block out = some_block;
  tide_pinned_scope scope = TIDE_PINNED_SCOPE_INIT;
  const int devices[] = { -1, -2, tide_machine_device_count(m), TIDE_DEVICE_MAX, INT32_MAX };
  for (size_t i = 0; i < sizeof devices / sizeof *devices; ++i) {
    T_STATUS(tide_pinned_record(p, block, devices[i], stream), TIDE_ERR_DEVICE);
    T_STATUS(tide_pinned_record_now(p, block, devices[i], stream), TIDE_ERR_DEVICE);
    T_STATUS(tide_pinned_copy(p, block, devices[i], stream, block.address, bytes_of(block) + 512, 512),
             TIDE_ERR_DEVICE);
    T_STATUS(tide_pinned_alloc_on(p, devices[i], stream, 512, &out), TIDE_ERR_DEVICE);
  }
  scope.kind = 5;
  T_STATUS(tide_pinned_pool_begin(p, pool, &scope), TIDE_ERR_ARGUMENT);
  scope.kind = TIDE_SCOPE_FILTER;  // without a filter
  T_STATUS(tide_pinned_pool_begin(p, pool, &scope), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_pool_retain(p, pool + 1), TIDE_ERR_HANDLE);
  T_STATUS(tide_pinned_pool_retain(p, UINT32_MAX), TIDE_ERR_HANDLE);
  give(p, block);
  T_EQ(current(p, waiting), 0);
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  T_STATUS(tide_pinned_snapshot(p, NULL, -1, trace), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_snapshot(p, NULL, 256, trace), TIDE_ERR_ARGUMENT);
  tide_trace_free(trace);
}

PINNED_TEST(test_pinned_badinput__a_history_needs_a_way_to_gather) {
  (void)m;
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  options.level = TIDE_HISTORY_ALLOC;
  T_STATUS(tide_pinned_history(p, &options), TIDE_ERR_ARGUMENT);
  options.level = 9;
  T_STATUS(tide_pinned_history(p, &options), TIDE_ERR_ARGUMENT);
}

// ---------------------------------------------------------------------------------------------------
// Addresses and handles of every kind

// Any handle with any address: nothing crashes, and no block that is handed out is taken.
PINNED_TEST_OVER(test_pinned_badinput__handles_at_random, machine_emulated) {
  t_rng rng = t_rng_new(8);
  tide_block blocks[16];
  (void)m;
  for (size_t i = 0; i < 16; ++i) blocks[i] = take(p, i % 2 == 0 ? 512 : SINGLE);
  for (size_t i = 0; i < t_scaled(20000); ++i) {
    const tide_block* const real = &blocks[t_rng_below(&rng, 16)];
    tide_block wrong = { bytes_of(*real) + t_rng_below(&rng, 3) * 512 - 512, real->handle };
    wrong.handle ^= (uint64_t)1 << t_rng_below(&rng, 64);
    if (t_rng_below(&rng, 4) == 0) wrong.handle = t_rng_next(&rng);
    bool is_real = false;
    for (size_t n = 0; n < 16; ++n) is_real |= wrong.handle == blocks[n].handle;
    if (!is_real) T_NE(tide_pinned_release(p, wrong), TIDE_OK);
  }
  T_EQ(current(p, active_requests), 16);
  for (size_t i = 0; i < 16; ++i) give(p, blocks[i]);
}

PINNED_TEST_OVER(test_pinned_badinput__addresses_at_random, machine_emulated) {
  t_rng rng = t_rng_new(9);
  (void)m;
  (void)take(p, 512);
  (void)take(p, SINGLE);
  for (size_t i = 0; i < t_scaled(20000); ++i) {
    void* const address = (void*)(uintptr_t)(t_rng_next(&rng) >> t_rng_below(&rng, 56) | 1);
    T_STATUS(tide_pinned_release_address(p, address), TIDE_ERR_ARGUMENT);
  }
  T_EQ(current(p, active_requests), 2);
}

PINNED_TEST(test_pinned_badinput__no_address_is_nothing) {
  const tide_stream stream = side_new(m);
  T_OK(tide_pinned_release(p, block_none));
  T_OK(tide_pinned_release(p, (tide_block){ NULL, 77 }));
  T_OK(tide_pinned_release_address(p, NULL));
  T_ANY(tide_pinned_record(p, block_none, 0, stream));
  expect_nothing_left(p);
}

PINNED_TEST(test_pinned_badinput__memory_as_a_source_refuses_what_it_cannot_do) {
  const tide_memory memory = tide_pinned_memory(p);
  void* address = (void*)1;
  (void)m;
  T_NE(memory.alloc(&memory, SIZE_MAX, 64, &address), TIDE_OK);
  T_PTR_EQ(address, NULL);
  T_NE(memory.release(&memory, (void*)4096), TIDE_OK);
  T_STATUS(memory.alloc(&memory, 100, (size_t)1 << 46, &address), TIDE_ERR_UNSUPPORTED);
  T_OK(memory.alloc(&memory, 100, 512, &address));
  T_EQ((uintptr_t)address % 512, 0);
  T_OK(memory.release(&memory, address));
}
