// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The CPU cache, one promise of its header at a time: what sizes become, where blocks lie, what is kept and
// what goes back, what is at an address, limits, orphans, statistics.
#define T_THREADS
#include "blocks.h"

// ---------------------------------------------------------------------------------------------------
// Sizes and addresses

static void expect_size_of(tide_cpu_cache* cache, size_t asked) {
  const block b = block_take(cache, asked, asked);
  const tide_cpu_info info = tide_cpu_find(b.address);
  const uint64_t got = info.bytes;
  T_PTR_EQ(info.address, b.address);
  T_LE(asked, got);
  T_EQ(got % 64, 0);
  if (asked <= KIB) T_EQ(got, (asked + 63) / 64 * 64);
  else if (asked <= 64 * KIB) T_LE(8 * (got - asked), asked);
  else T_EQ(got, (asked + 4095) / 4096 * 4096);
  if (asked > 64 * KIB) T_EQ((uintptr_t)b.address % 4096, 0);
  block_give(&b);
}

T_TEST(test_cpu__sizes_are_rounded_as_promised) {
  tide_cpu_cache* const cache = cache_open(NULL);

  for (size_t bytes = 1; bytes <= 2 * KIB; bytes++) expect_size_of(cache, bytes);
  for (size_t bytes = 2 * KIB; bytes <= 64 * KIB; bytes += 61) expect_size_of(cache, bytes);
  for (size_t power = 2 * KIB; power <= 8 * MIB; power *= 2) {
    expect_size_of(cache, power - 1);
    expect_size_of(cache, power);
    expect_size_of(cache, power + 1);
    expect_size_of(cache, power + power / 8 + 1);
    expect_size_of(cache, power + power / 3);
  }

  cache_close(cache);
}

T_TEST(test_cpu__the_largest_alignment) {
  tide_cpu_cache* const cache = cache_open(NULL);

  uint8_t* const address = cache_take_aligned(cache, 100000, TIDE_CPU_MAX_ALIGNMENT);
  pattern_write(address, 1, 100000);

  pattern_expect(address, 1, 100000);
  T_LE(cache_stats(cache).reserved_bytes.current, 256 * MIB);
  T_OK(tide_cpu_release(address));
  cache_close(cache);
}

// ---------------------------------------------------------------------------------------------------
// Reuse

T_TEST(test_cpu__memory_is_reused_and_not_written) {
  static const size_t sizes[] = { 64, 1000, 30000, 100000, 5000000 };
  tide_cpu_cache* const cache = cache_open(NULL);

  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const block first = block_take(cache, sizes[i], i);
    block_give(&first);
    const int64_t system_bytes = cache_stats(cache).reserved_bytes.current;

    uint8_t* const second = cache_take(cache, sizes[i]);

    T_PTR_EQ(second, first.address);
    pattern_expect(second, i, sizes[i]);
    T_EQ(cache_stats(cache).reserved_bytes.current, system_bytes);
    T_OK(tide_cpu_release(second));
  }

  cache_close(cache);
}

// Once warm, a program that repeats itself takes nothing more from the system.
T_TEST(test_cpu__the_second_run_takes_nothing_new) {
  enum { COUNT = 60 };
  block blocks[COUNT];
  tide_cpu_cache* const cache = cache_open(NULL);
  int64_t peak = 0;
  int64_t misses = 0;

  for (size_t run = 0; run < 5; run++) {
    t_rng rng = t_rng_new(2);
    for (size_t i = 0; i < COUNT; i++) blocks[i] = block_take(cache, 1 + random_bytes(&rng, 20), i);
    for (size_t i = 0; i < COUNT; i++) block_give(&blocks[i]);
    if (run == 0) peak = cache_stats(cache).reserved_bytes.peak;
    if (run == 1) misses = cache_stats(cache).num_misses;
  }

  T_EQ(cache_stats(cache).reserved_bytes.peak, peak);
  T_EQ(cache_stats(cache).num_misses, misses);
  cache_close(cache);
}

// ---------------------------------------------------------------------------------------------------
// Forget

T_TEST(test_cpu__what_was_forgotten_cannot_be_released) {
  tide_cpu_cache* const cache = cache_open(NULL);
  void* const small = cache_take(cache, 1000);
  void* const neighbour = cache_take(cache, 1000);
  void* const large = cache_take(cache, MIB);

  T_OK(tide_cpu_forget(small));
  T_OK(tide_cpu_forget(large));

  T_STATUS(tide_cpu_forget(small), TIDE_ERR_STATE);
  T_STATUS(tide_cpu_release(small), TIDE_ERR_STATE);
  T_CHECK(tide_cpu_release(large) != TIDE_OK);
  T_CHECK(tide_cpu_forget(large) != TIDE_OK);
  T_OK(tide_cpu_release(neighbour));
  cache_close(cache);
}

// ---------------------------------------------------------------------------------------------------
// Resize

T_TEST(test_cpu__resize_of_nothing_allocates_and_to_nothing_releases) {
  tide_cpu_cache* const cache = cache_open(NULL);
  void* address = NULL;

  T_OK(tide_cpu_resize(cache, NULL, 5000, &address));
  T_CHECK(address != NULL);
  cache_expect_live(cache, 1);
  T_OK(tide_cpu_resize(cache, address, 0, &address));
  T_PTR_EQ(address, NULL);
  cache_expect_live(cache, 0);
  T_OK(tide_cpu_resize(cache, NULL, 0, &address));
  T_PTR_EQ(address, NULL);

  cache_close(cache);
}

T_TEST(test_cpu__what_was_released_cannot_be_resized) {
  tide_cpu_cache* const cache = cache_open(NULL);
  void* const address = cache_take(cache, 1000);
  void* moved = NULL;
  int own = 0;
  T_OK(tide_cpu_release(address));

  EXPECT_REFUSED(tide_cpu_resize(cache, address, 2000, &moved), moved, TIDE_ERR_STATE);
  EXPECT_REFUSED(tide_cpu_resize(cache, address, 0, &moved), moved, TIDE_ERR_STATE);
  EXPECT_REFUSED(tide_cpu_resize(cache, &own, 2000, &moved), moved, TIDE_ERR_ARGUMENT);

  cache_expect_live(cache, 0);
  cache_close(cache);
}

// ---------------------------------------------------------------------------------------------------
// Find

static void expect_foreign(const void* address) {
  T_CHECK(!tide_cpu_owns(address));
  const tide_cpu_info info = tide_cpu_find(address);
  T_PTR_EQ(info.cache, NULL);
  T_CHECK(!info.is_live);
  T_CHECK(!info.is_ours);
}

T_TEST(test_cpu__find_reads_through_no_address) {
  tide_cpu_cache* const cache = cache_open(NULL);
  static int fixed;
  int own = 0;
  void* const heap = malloc(100);
  T_CHECK(heap != NULL);

  expect_foreign(NULL);
  expect_foreign(&fixed);
  expect_foreign(&own);
  expect_foreign(heap);
  expect_foreign((const void*)(uintptr_t)1);
  expect_foreign((const void*)(uintptr_t)64);
  expect_foreign((const void*)(UINTPTR_MAX - 63));
  expect_foreign((const void*)UINTPTR_MAX);
  for (unsigned bit = 30; bit < 64; bit++)
    T_CHECK(!tide_cpu_find((const void*)((uintptr_t)1 << bit)).is_live);

  free(heap);
  cache_close(cache);
}

// A cache owns memory that is live or idle. Of a freed cache, live memory stays owned.
T_TEST(test_cpu__owning_is_more_than_being_live) {
  tide_cpu_cache* const cache = cache_open(NULL);
  uint8_t* const idle = cache_take(cache, 5000);
  uint8_t* const live = cache_take(cache, 500000);

  T_OK(tide_cpu_release(idle));
  T_CHECK(tide_cpu_owns(idle));
  T_CHECK(tide_cpu_owns(live + 499999));
  cache_close_with(cache, 1);
  T_CHECK(tide_cpu_owns(live));

  T_OK(tide_cpu_release(live));
  T_CHECK(!tide_cpu_owns(live));
}

// ---------------------------------------------------------------------------------------------------
// Wrong addresses

T_TEST(test_cpu__wrong_addresses_are_told_apart) {
  tide_cpu_cache* const cache = cache_open(NULL);
  const block b = block_take(cache, 5000, 1);
  const block large = block_take(cache, 5 * MIB, 2);
  int own = 0;

  T_STATUS(tide_cpu_release(&own), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_cpu_forget(&own), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_cpu_release(b.address + 1), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_cpu_release(b.address + 64), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_cpu_forget(b.address + 64), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_cpu_release(large.address + 4096), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_cpu_release(large.address + 2 * MIB), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_cpu_release((void*)(uintptr_t)64), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_cpu_release((void*)UINTPTR_MAX), TIDE_ERR_ARGUMENT);

  cache_expect_live(cache, 2);
  block_give(&b);
  T_STATUS(tide_cpu_release(b.address), TIDE_ERR_STATE);
  T_STR_HAS(tide_last_error()->text, "released");
  T_STATUS(tide_cpu_release(b.address + 1), TIDE_ERR_ARGUMENT);
  block_give(&large);
  T_STATUS(tide_cpu_release(large.address), TIDE_ERR_STATE);
  T_EQ(cache_stats(cache).num_double_releases, 2);
  cache_close(cache);
}

// A second release is refused on any thread.
static void release_refused(void* address) { T_STATUS(tide_cpu_release(address), TIDE_ERR_STATE); }
static void release_taken(void* address) { T_OK(tide_cpu_release(address)); }

T_TEST(test_cpu__a_double_release_is_seen_across_threads) {
  static const size_t sizes[] = { 100, 20000, 200000 };
  tide_cpu_cache* const cache = cache_open(NULL);

  for (size_t i = 0; i < 3; i++) {
    void* const one = cache_take(cache, sizes[i]);
    void* const two = cache_take(cache, sizes[i]);
    on_other_thread(release_taken, one);
    T_STATUS(tide_cpu_release(one), TIDE_ERR_STATE);
    T_OK(tide_cpu_release(two));
    on_other_thread(release_refused, two);
  }

  T_EQ(cache_stats(cache).num_double_releases, 6);
  cache_expect_live(cache, 0);
  cache_close(cache);
}

// ---------------------------------------------------------------------------------------------------
// Trimming and limits

T_TEST(test_cpu__trim_to_nothing_leaves_nothing) {
  tide_cpu_cache* const cache = cache_open(NULL);
  t_rng rng = t_rng_new(4);
  for (size_t i = 0; i < 50; i++) cache_leave_idle(cache, 1 + random_bytes(&rng, 21), 1 + i % 3);
  T_LT(0, cache_stats(cache).cached_bytes);

  T_OK(tide_cpu_trim(cache, 0));

  T_EQ(cache_stats(cache).cached_bytes, 0);
  T_EQ(cache_stats(cache).reserved_bytes.current, 0);
  T_LT(0, cache_stats(cache).num_evictions);
  T_LT(0, cache_stats(cache).evicted_bytes);
  cache_close(cache);
}

T_TEST(test_cpu__trim_leaves_so_many_bytes_at_most) {
  tide_cpu_cache* const cache = cache_open(NULL);
  cache_leave_idle(cache, MIB, 16);

  T_OK(tide_cpu_trim(cache, TIDE_NO_LIMIT));
  T_EQ(cache_stats(cache).cached_bytes, 16 * MIB);
  for (uint64_t bytes = 16 * MIB; bytes > 0; bytes -= MIB) {
    T_OK(tide_cpu_trim(cache, bytes));
    T_LE(cache_stats(cache).cached_bytes, bytes);
  }

  cache_close(cache);
}

// Ages are known to an eighth of the idle time. Adjacent idle blocks are joined and have one age.
T_TEST(test_cpu__trim_takes_the_longest_idle_first) {
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.idle_ns = 1000000000;
  tide_cpu_cache* const cache = cache_open(&options);
  void* const newer = cache_take(cache, 4 * MIB);
  void* const between = cache_take(cache, MIB);
  void* const older = cache_take(cache, 4 * MIB);
  memset(older, 1, 4 * MIB);
  memset(newer, 1, 4 * MIB);
  T_OK(tide_cpu_release(older));
  t_sleep_us(300000);
  T_OK(tide_cpu_poll(cache));
  T_OK(tide_cpu_release(newer));

  T_OK(tide_cpu_trim(cache, 4 * MIB));

  T_EQ(resident_bytes(older, 4 * MIB), 0);
  T_EQ(resident_bytes(newer, 4 * MIB), 4 * MIB);
  T_OK(tide_cpu_release(between));
  cache_close(cache);
}

static void leave_idle_there(void* cache) { cache_leave_idle(cache, 4 * MIB, 2); }

T_TEST(test_cpu__trim_reaches_the_memory_of_ended_threads) {
  tide_cpu_cache* const cache = cache_open(NULL);
  for (size_t i = 0; i < 3; i++) on_other_thread(leave_idle_there, cache);
  T_LE(8 * MIB, cache_stats(cache).cached_bytes);

  T_OK(tide_cpu_trim(cache, 0));

  T_EQ(cache_stats(cache).cached_bytes, 0);
  cache_close(cache);
}

T_TEST(test_cpu__larger_blocks_than_the_limit_are_not_kept) {
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.max_block_bytes = MIB;
  tide_cpu_cache* const cache = cache_open(&options);
  uint8_t* const kept = cache_take(cache, MIB);
  uint8_t* const gone = cache_take(cache, MIB + 1);
  memset(kept, 1, MIB);
  memset(gone, 1, MIB + 1);

  T_OK(tide_cpu_release(kept));
  T_OK(tide_cpu_release(gone));

  T_EQ(resident_bytes(gone, MIB + 1), 0);
  T_EQ(resident_bytes(kept, MIB), MIB);
  T_EQ(cache_stats(cache).num_uncached, 1);
  T_LE(cache_stats(cache).cached_bytes, MIB);
  cache_close(cache);
}

T_TEST(test_cpu__limits_can_be_changed) {
  tide_cpu_cache* const cache = cache_open(NULL);
  cache_leave_idle(cache, MIB, 16);

  T_OK(tide_cpu_set_limits(cache, 4 * MIB, TIDE_NO_LIMIT));
  T_LE(cache_stats(cache).cached_bytes, 4 * MIB);
  T_OK(tide_cpu_set_limits(cache, 4 * MIB, 8 * MIB));
  cache_expect_refused(cache, 9 * MIB, TIDE_ERR_NO_MEMORY);
  T_OK(tide_cpu_set_limits(cache, TIDE_NO_LIMIT, TIDE_NO_LIMIT));
  cache_leave_idle(cache, MIB, 32);
  T_EQ(cache_stats(cache).cached_bytes, 32 * MIB);

  cache_close(cache);
}

// Lowering max_bytes gives idle memory back.
T_TEST(test_cpu__a_lower_limit_takes_idle_memory) {
  tide_cpu_cache* const cache = cache_open(NULL);
  const block b = block_take(cache, 4 * MIB, 1);
  cache_leave_idle(cache, MIB, 16);

  T_OK(tide_cpu_set_limits(cache, TIDE_NO_LIMIT, 8 * MIB));

  T_LE(cache_stats(cache).reserved_bytes.current, 8 * MIB);
  block_give(&b);
  cache_close(cache);
}

// ---------------------------------------------------------------------------------------------------
// Orphans and several caches

T_TEST(test_cpu__the_memory_of_an_orphan_goes_back_with_it) {
  tide_cpu_cache* const cache = cache_open(NULL);
  uint8_t* const one = cache_take(cache, 2 * MIB);
  uint8_t* const two = cache_take(cache, 2 * MIB);
  memset(one, 1, 2 * MIB);
  memset(two, 2, 2 * MIB);
  cache_close_with(cache, 2);

  T_OK(tide_cpu_release(one));

  T_EQ(resident_bytes(one, 2 * MIB), 0);
  T_FILLED(two, 2, 2 * MIB);
  T_OK(tide_cpu_release(two));
  T_EQ(resident_bytes(two, 2 * MIB), 0);
}

// A cache leaves no mapping behind, with orphans or without.
T_TEST(test_cpu__a_thousand_caches_leave_nothing) {
  const size_t mappings = t_count_mappings();
  for (size_t i = 0; i < 1000; i++) {
    tide_cpu_cache* const cache = cache_open(NULL);
    const block small = block_take(cache, 100, i);
    const block large = block_take(cache, 100000, i);
    if (i % 2 == 0) {
      block_give(&small);
      block_give(&large);
    }
    cache_close_with(cache, i % 2 == 0 ? 0 : 2);
    if (i % 2 == 0) continue;
    block_give(&large);
    block_give(&small);
  }
  if (!T_HAS_SANITIZER) T_LE(t_count_mappings(), mappings + 40);
}

// ---------------------------------------------------------------------------------------------------
// The cache as a source

T_TEST(test_cpu__memory_is_a_table) {
  tide_cpu_cache* const cache = cache_open(NULL);
  const tide_memory memory = tide_cpu_memory(cache);
  void* address = NULL;
  T_CHECK(memory.is_host);

  T_OK(memory.alloc(&memory, 10000, 4096, &address));
  T_EQ((uintptr_t)address % 4096, 0);
  T_PTR_EQ(tide_cpu_find(address).cache, cache);
  pattern_write(address, 1, 10000);
  pattern_expect(address, 1, 10000);
  T_OK(memory.release(&memory, address));

  T_STATUS(memory.release(&memory, address), TIDE_ERR_STATE);
  T_STATUS(memory.alloc(&memory, TIDE_CPU_MAX_BYTES + 1, 64, &address), TIDE_ERR_ARGUMENT);
  T_PTR_EQ(address, NULL);
  cache_expect_live(cache, 0);
  cache_close(cache);
}

// The memory of a cache may come from another cache.
T_TEST(test_cpu__a_cache_can_stand_on_another) {
  tide_cpu_cache* const below = cache_open(NULL);
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.memory = tide_cpu_memory(below);
  tide_cpu_cache* const above = cache_open(&options);
  block blocks[20];

  for (size_t i = 0; i < 20; i++) blocks[i] = block_take(above, 1 + i * i * 1000, i);
  T_LE(1, cache_stats(below).active.current);
  for (size_t i = 0; i < 20; i++) T_PTR_EQ(tide_cpu_find(blocks[i].address).cache, above);
  for (size_t i = 0; i < 20; i++) block_give(&blocks[i]);

  cache_close(above);
  cache_close(below);
}

// ---------------------------------------------------------------------------------------------------
// Statistics

T_TEST(test_cpu__statistics_follow_every_call) {
  tide_cpu_cache* const cache = cache_open(NULL);
  void* const one = cache_take(cache, 70000);
  void* const two = cache_take(cache, 100000);
  void* const three = cache_take(cache, 70000);
  const int64_t bytes[] = { (int64_t)tide_cpu_find(one).bytes, (int64_t)tide_cpu_find(two).bytes };
  T_OK(tide_cpu_release(two));
  T_OK(tide_cpu_release(one));

  tide_cpu_stats stats = cache_stats(cache);
  T_EQ(stats.active.current, 1);
  T_LE(stats.active.peak, 3);  // it may be short
  T_EQ(stats.active.allocated, 3);
  T_EQ(stats.active.freed, 2);
  T_EQ(stats.active_bytes.current, bytes[0]);
  T_EQ(stats.active_bytes.peak, 2 * bytes[0] + bytes[1]);
  T_EQ(stats.active_bytes.allocated, 2 * bytes[0] + bytes[1]);
  T_EQ(stats.active_bytes.freed, bytes[0] + bytes[1]);
  T_EQ(stats.num_hits + stats.num_misses, 3);
  T_LE(1, stats.num_misses);
  T_EQ(stats.threads, 1);
  T_LE(stats.reserved_bytes.current, stats.address_bytes);

  tide_cpu_reset_accumulated(cache);
  tide_cpu_reset_peaks(cache);
  stats = cache_stats(cache);
  T_EQ(stats.active.current, 1);
  T_EQ(stats.active.peak, 1);
  T_EQ(stats.active.allocated, 0);
  T_EQ(stats.active.freed, 0);
  T_EQ(stats.active_bytes.peak, bytes[0]);
  T_EQ(stats.num_hits + stats.num_misses + stats.num_evictions, 0);
  T_EQ(stats.reserved_bytes.peak, stats.reserved_bytes.current);
  T_OK(tide_cpu_release(three));
  T_EQ(cache_stats(cache).active.freed, 1);
  cache_close(cache);
}

// The peak of small blocks may be too low, but is never too high.
T_TEST(test_cpu__statistics_of_small_blocks_follow_every_call) {
  tide_cpu_cache* const cache = cache_open(NULL);
  void* blocks[100];
  for (size_t i = 0; i < 100; i++) blocks[i] = cache_take(cache, 1000);
  const int64_t bytes = (int64_t)tide_cpu_find(blocks[0]).bytes;
  T_EQ(cache_stats(cache).active.current, 100);
  T_EQ(cache_stats(cache).active_bytes.current, 100 * bytes);
  for (size_t i = 0; i < 60; i++) T_OK(tide_cpu_release(blocks[i]));

  tide_cpu_stats stats = cache_stats(cache);
  T_EQ(stats.active.current, 40);
  T_EQ(stats.active_bytes.current, 40 * bytes);
  T_EQ(stats.active.allocated, 100);
  T_EQ(stats.active.freed, 60);
  T_EQ(stats.active_bytes.allocated, 100 * bytes);
  T_EQ(stats.active.peak, 100);  // it was seen above
  T_EQ(stats.num_hits + stats.num_misses, 100);

  tide_cpu_reset_accumulated(cache);
  tide_cpu_reset_peaks(cache);
  for (size_t i = 60; i < 100; i++) T_OK(tide_cpu_release(blocks[i]));
  stats = cache_stats(cache);
  T_EQ(stats.active.current, 0);
  T_EQ(stats.active.peak, 40);
  T_EQ(stats.active.allocated, 0);
  T_EQ(stats.active.freed, 40);
  cache_close(cache);
}

T_TEST(test_cpu__ended_threads_are_taken_over) {
  tide_cpu_cache* const cache = cache_open(NULL);

  for (size_t i = 0; i < 50; i++) on_other_thread(leave_idle_there, cache);

  T_LE(cache_stats(cache).threads, 4);
  T_LE(cache_stats(cache).reserved_bytes.peak, 16 * MIB);
  cache_expect_live(cache, 0);
  cache_close(cache);
}
