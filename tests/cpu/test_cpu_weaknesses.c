// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The weaknesses of PyTorch's CPU caching allocator, each by a counter-example that does no harm here.
#define T_THREADS
#include "blocks.h"
#include "tidemark/profile.h"
#include "tidemark/tensor.h"

// ---------------------------------------------------------------------------------------------------
// B-W1: a cache is freed while others work

typedef struct life {
  atomic_bool is_over;
  atomic_size_t calls;
} life;

static void* life_live(void* user) {
  life* const l = user;
  tide_cpu_cache* const cache = cache_open(NULL);
  for (size_t i = 0; !atomic_load(&l->is_over); i++) {
    const block one = block_take(cache, 100 + i % 7 * 5000, i);
    const block two = block_take(cache, 70000 + i % 3 * 4096, i);
    block_give(&one);
    block_give(&two);
    atomic_fetch_add(&l->calls, 1);
  }
  cache_close(cache);
  return NULL;
}

T_TEST(test_cpu_weaknesses__b_w1_freeing_a_cache_disturbs_no_other) {
  life l = { false, 0 };
  pthread_t threads[2];
  for (size_t i = 0; i < 2; i++) t_thread_start(&threads[i], life_live, &l);

  for (size_t i = 0; i < t_scaled(300) || atomic_load(&l.calls) < 100; i++) {
    tide_cpu_cache* const cache = cache_open(NULL);
    const block orphan = block_take(cache, 1000 + i, i);
    cache_leave_idle(cache, 3000, 10);
    cache_close_with(cache, 1);
    block_give(&orphan);
  }

  atomic_store(&l.is_over, true);
  for (size_t i = 0; i < 2; i++) t_thread_join(threads[i]);
}

// ---------------------------------------------------------------------------------------------------
// B-W2: memory is handed out again before its release has been recorded

typedef struct relay {
  tide_cpu_cache* cache;
  size_t rounds;
  uint64_t seed;
} relay;

// Blocks are forgotten or released, and taken by the other thread at once.
static void* relay_run(void* user) {
  const relay* const r = user;
  for (size_t i = 0; i < r->rounds; i++) {
    const block b = block_take(r->cache, i % 4 < 2 ? 40000 : 80000, r->seed + i);
    T_PTR_EQ(tide_cpu_find(b.address).cache, r->cache);
    T_CHECK(tide_cpu_find(b.address).is_live);
    pattern_expect(b.address, b.seed, b.bytes);
    T_OK(i % 2 == 0 ? tide_cpu_forget(b.address) : tide_cpu_release(b.address));
  }
  return NULL;
}

T_TEST(test_cpu_weaknesses__b_w2_a_release_erases_no_entry_of_its_successor) {
  tide_cpu_cache* const cache = cache_open(NULL);
  relay r[2];
  for (size_t i = 0; i < 2; i++) r[i] = (relay){ cache, t_scaled(T_HAS_SANITIZER ? 300 : 2000), i << 32 };

  on_threads(2, relay_run, r, sizeof *r);

  cache_expect_live(cache, 0);
  T_EQ(cache_stats(cache).num_double_releases, 0);
  cache_close(cache);
}

// ---------------------------------------------------------------------------------------------------
// B-W3

T_TEST(test_cpu_weaknesses__b_w3_double_free_is_refused) {
  static const size_t sizes[] = { 64, 1000, 20000, 100000, 3 * MIB };
  tide_cpu_cache* const cache = cache_open(NULL);

  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    void* const address = cache_take(cache, sizes[i]);
    T_OK(tide_cpu_release(address));
    T_STATUS(tide_cpu_release(address), TIDE_ERR_STATE);

    void* const one = cache_take(cache, sizes[i]);
    void* const two = cache_take(cache, sizes[i]);

    T_CHECK(one != two);
    T_OK(tide_cpu_release(one));
    T_OK(tide_cpu_release(two));
  }

  T_EQ(cache_stats(cache).num_double_releases, sizeof sizes / sizeof *sizes);
  cache_close(cache);
}

// ---------------------------------------------------------------------------------------------------
// B-W4

// Sizes 1000, 1001, 1002 ...: all but the first of each class are hits, and the cache stays small.
T_TEST(test_cpu_weaknesses__b_w4_sizes_that_never_repeat_hit) {
  tide_cpu_cache* const cache = cache_open(NULL);

  for (size_t bytes = 1000; bytes < 21000; bytes++) {
    void* const address = cache_take(cache, bytes);
    T_OK(tide_cpu_release(address));
  }

  const tide_cpu_stats stats = cache_stats(cache);
  T_EQ(stats.num_hits + stats.num_misses, 20000);
  T_LT(19900, stats.num_hits);
  T_LE(stats.reserved_bytes.peak, 16 * MIB);
  cache_close(cache);
}

// The same with large shapes, each of another size.
T_TEST(test_cpu_weaknesses__b_w4_large_shapes_that_never_repeat_hit) {
  tide_cpu_cache* const cache = cache_open(NULL);

  for (size_t rows = 2000; rows > 1000; rows--) {
    void* const address = cache_take(cache, rows * 4096);
    T_OK(tide_cpu_release(address));
  }

  const tide_cpu_stats stats = cache_stats(cache);
  T_LE(990, stats.num_hits);
  T_LE(stats.reserved_bytes.peak, 24 * MIB);
  cache_close(cache);
}

// ---------------------------------------------------------------------------------------------------
// B-W5

T_TEST(test_cpu_weaknesses__b_w5_memory_idle_in_another_cache_is_found) {
  source s;
  source_init(&s);
  source_set_budget(&s, 32 * MIB);
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.memory = s.memory;
  options.region_bytes = 2 * MIB;
  tide_cpu_cache* const other = cache_open(&options);
  tide_cpu_cache* const cache = cache_open(&options);
  cache_leave_idle(other, 12 * MIB, 2);
  T_LE(24 * MIB, source_bytes(&s));

  void* const address = cache_take(cache, 12 * MIB);

  T_LE(1, cache_stats(cache).num_alloc_retries);
  T_EQ(cache_stats(cache).num_ooms, 0);
  T_OK(tide_cpu_release(address));
  cache_close(other);
  cache_close(cache);
  source_fini(&s);
}

// ---------------------------------------------------------------------------------------------------
// B-W6: a thread that waits for the system does not block others

typedef struct waiter {
  tide_cpu_cache* cache;
  size_t bytes;
} waiter;

static void* waiter_run(void* user) {
  const waiter* const w = user;
  const block b = block_take(w->cache, w->bytes, 9);
  block_give(&b);
  return NULL;
}

T_TEST(test_cpu_weaknesses__b_w6_a_source_that_blocks_keeps_nobody_from_idle_memory) {
  static const size_t sizes[] = { 100, 5000, 100000, 3 * MIB };
  source s;
  source_init(&s);
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.memory = s.memory;
  tide_cpu_cache* const cache = cache_open(&options);
  tide_cpu_cache* const other = cache_open(NULL);
  for (size_t i = 0; i < 4; i++) cache_leave_idle(cache, sizes[i], 2);
  waiter w = { cache, 300 * MIB };
  pthread_t thread;
  source_set_gate(&s, true);
  t_thread_start(&thread, waiter_run, &w);
  source_await_callers(&s, 1);

  // The other thread is inside the source now, and stays there.
  for (size_t i = 0; i < 400; i++) {
    const block mine = block_take(cache, sizes[i % 4], i);
    const block theirs = block_take(other, sizes[i % 4], i);
    T_CHECK(tide_cpu_find(mine.address).is_live);
    block_give(&mine);
    block_give(&theirs);
  }
  T_OK(tide_cpu_trim(other, 0));
  T_LE(1, cache_stats(cache).num_hits);

  source_set_gate(&s, false);
  t_thread_join(thread);
  cache_close(cache);
  cache_close(other);
  source_fini(&s);
}

// ---------------------------------------------------------------------------------------------------
// B-W7

T_TEST(test_cpu_weaknesses__b_w7_zeros_are_zeros_on_reuse) {
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.fill = TIDE_FILL_ZEROS;
  tide_cpu_cache* const cache = cache_open(&options);
  uint8_t* const first = cache_take(cache, 4096);
  memset(first, 0x77, 4096);
  T_OK(tide_cpu_release(first));

  uint8_t* const second = cache_take(cache, 4096);

  T_PTR_EQ(second, first);
  expect_zeros(second, 4096);
  T_OK(tide_cpu_release(second));
  cache_close(cache);
}

// ---------------------------------------------------------------------------------------------------
// B-W8

T_TEST(test_cpu_weaknesses__b_w8_nothing_leaves_no_entry) {
  tide_cpu_cache* const cache = cache_open(NULL);
  void* address = NULL;

  for (size_t i = 0; i < 1000; i++) {
    address = &address;
    if (i % 3 == 0) T_OK(tide_cpu_alloc(cache, 0, &address));
    if (i % 3 == 1) T_OK(tide_cpu_alloc_zeros(cache, 0, &address));
    if (i % 3 == 2) T_OK(tide_cpu_alloc_aligned(cache, 0, 4096, &address));
    T_PTR_EQ(address, NULL);
    T_OK(i % 2 == 0 ? tide_cpu_release(address) : tide_cpu_forget(address));
  }

  const tide_cpu_stats stats = cache_stats(cache);
  T_EQ(stats.num_hits + stats.num_misses + stats.num_uncached + stats.num_double_releases, 0);
  T_EQ(stats.active.allocated, 0);
  T_EQ(stats.active.freed, 0);
  T_EQ(stats.reserved_bytes.current, 0);
  cache_close(cache);
}

// ---------------------------------------------------------------------------------------------------
// B-W9: memory of a cache that is released in a replayed run

static void* tensor_take(size_t bytes) {
  void* address = NULL;
  T_OK(tide_tensor_alloc(bytes, &address));
  return address;
}

static void record_empty_run(tide_profile* profile) {
  T_OK(tide_profile_begin(profile, TIDE_PROFILE_RECORD, 0));
  void* const address = tensor_take(64);
  T_OK(tide_tensor_release(address));
  T_OK(tide_profile_end(profile, NULL));
}

T_TEST(test_cpu_weaknesses__b_w9_no_stale_size_is_left_by_a_replay) {
  tide_profile* profile = NULL;
  tide_cpu_cache* const cache = cache_open(NULL);
  T_OK(tide_profile_new(NULL, &profile));
  record_empty_run(profile);
  T_OK(tide_tensor_enter(cache));
  void* const p = tensor_take(4096);
  T_OK(tide_tensor_leave(cache));

  T_OK(tide_profile_begin(profile, TIDE_PROFILE_REPLAY, 0));
  T_OK(tide_tensor_release(p));
  T_OK(tide_profile_end(profile, NULL));
  cache_expect_live(cache, 0);
  uint8_t* const small = tensor_take(64);
  memset(small, 1, 64);
  T_OK(tide_tensor_enter(cache));
  T_OK(tide_tensor_release(small));
  uint8_t* const large = tensor_take(4096);
  T_LE(4096, tide_cpu_find(large).bytes);
  memset(large, 2, 4096);

  T_OK(tide_tensor_release(large));
  T_OK(tide_tensor_leave(cache));
  cache_close(cache);
  tide_profile_free(profile);
}

// ---------------------------------------------------------------------------------------------------
// B-W10: weights that are not needed again

static const char* const giant_ends[] = { "forgotten", "too large", "too old", NULL };

T_TEST_OVER(test_cpu_weaknesses__b_w10_giants_go, giant_ends) {
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  const bool is_forgotten = strcmp(t_variant(), "forgotten") == 0;
  if (strcmp(t_variant(), "too large") == 0) options.max_block_bytes = 8 * MIB;
  if (strcmp(t_variant(), "too old") == 0) options.idle_ns = 10000000;
  tide_cpu_cache* const cache = cache_open(&options);
  uint8_t* const weights = cache_take(cache, 40 * MIB);
  memset(weights, 1, 40 * MIB);

  T_OK(is_forgotten ? tide_cpu_forget(weights) : tide_cpu_release(weights));
  if (strcmp(t_variant(), "too old") == 0) {
    t_sleep_us(50000);
    T_OK(tide_cpu_poll(cache));
  }

  T_EQ(cache_stats(cache).reserved_bytes.current, 0);
  T_EQ(resident_bytes(weights, 40 * MIB), 0);
  cache_close(cache);
}

// ---------------------------------------------------------------------------------------------------
// B-W11

T_TEST(test_cpu_weaknesses__b_w11_statistics_tell_everything) {
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.max_block_bytes = 8 * MIB;
  options.max_bytes = 64 * MIB;
  tide_cpu_cache* const cache = cache_open(&options);
  void* const hit = cache_take(cache, MIB);
  T_OK(tide_cpu_release(hit));
  T_PTR_EQ(cache_take(cache, MIB), hit);
  T_OK(tide_cpu_release(hit));
  T_STATUS(tide_cpu_release(hit), TIDE_ERR_STATE);
  void* const large = cache_take(cache, 9 * MIB);
  T_OK(tide_cpu_release(large));
  T_OK(tide_cpu_trim(cache, 0));
  cache_expect_refused(cache, 65 * MIB, TIDE_ERR_NO_MEMORY);

  const tide_cpu_stats stats = cache_stats(cache);

  T_EQ(stats.num_hits, 1);
  T_EQ(stats.num_misses, 1);
  T_EQ(stats.num_uncached, 1);
  T_LE(1, stats.num_evictions);
  T_LE(MIB, stats.evicted_bytes);
  T_EQ(stats.num_double_releases, 1);
  T_EQ(stats.num_ooms, 1);
  T_EQ(stats.active.allocated, 3);
  T_LE(stats.active.peak, 1);
  T_EQ(stats.active_bytes.peak, 9 * MIB);
  T_LE(9 * MIB, stats.reserved_bytes.peak);
  T_EQ(stats.reserved_bytes.current, 0);
  T_EQ(stats.cached_bytes, 0);
  cache_close(cache);
}
