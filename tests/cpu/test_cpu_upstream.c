// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What PyTorch's tests require of its CPU caching allocator, and a fork's tests of a variant with a cap.
#define T_THREADS
#include "blocks.h"
#include "tidemark/tensor.h"

static void* tensor_take(size_t bytes) {
  void* address = NULL;
  T_OK(tide_tensor_alloc(bytes, &address));
  T_CHECK(address != NULL);
  return address;
}

T_TEST(test_cpu_upstream__the_same_size_in_one_scope_is_the_same_memory) {
  tide_cpu_cache* const cache = cache_open(NULL);
  T_OK(tide_tensor_enter(cache));

  void* const first = tensor_take(23 * 23 * 4);
  T_OK(tide_tensor_release(first));
  void* const second = tensor_take(23 * 23 * 4);

  T_PTR_EQ(second, first);
  T_OK(tide_tensor_release(second));
  T_OK(tide_tensor_leave(cache));
  cache_close(cache);
}

T_TEST(test_cpu_upstream__allocated_outside_and_released_inside) {
  tide_cpu_cache* const cache = cache_open(NULL);
  void* const outside = tensor_take(23 * 23 * 4);

  T_OK(tide_tensor_enter(cache));
  T_OK(tide_tensor_release(outside));
  T_OK(tide_tensor_leave(cache));

  T_EQ(cache_stats(cache).cached_bytes, 0);
  T_EQ(cache_stats(cache).active.allocated, 0);
  cache_close(cache);
}

T_TEST(test_cpu_upstream__allocated_inside_and_released_outside) {
  tide_cpu_cache* const cache = cache_open(NULL);
  T_OK(tide_tensor_enter(cache));
  void* const inside = tensor_take(23 * 23 * 4);
  T_OK(tide_tensor_leave(cache));

  T_OK(tide_tensor_release(inside));

  cache_expect_live(cache, 0);
  cache_close(cache);
}

T_TEST(test_cpu_upstream__a_disabled_cache_hands_out_other_memory) {
  tide_cpu_cache* const cache = cache_open(NULL);
  T_OK(tide_tensor_enter(cache));
  void* const first = tensor_take(23 * 23 * 4);
  T_OK(tide_tensor_release(first));

  T_OK(tide_tensor_enter(NULL));
  void* const second = tensor_take(23 * 23 * 4);
  T_CHECK(second != first);
  T_CHECK(!tide_cpu_find(second).is_ours);
  T_OK(tide_tensor_release(second));
  T_OK(tide_tensor_leave(NULL));

  void* const third = tensor_take(23 * 23 * 4);
  T_PTR_EQ(third, first);
  T_OK(tide_tensor_release(third));
  T_OK(tide_tensor_leave(cache));
  cache_close(cache);
}

// ---------------------------------------------------------------------------------------------------
// The variant with a cap

T_TEST(test_cpu_upstream__a_block_above_the_cap_is_not_kept) {
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.max_cached_bytes = MIB;
  tide_cpu_cache* const cache = cache_open(&options);
  void* const address = cache_take(cache, 2 * MIB);
  memset(address, 1, 2 * MIB);

  T_OK(tide_cpu_release(address));

  T_LE(cache_stats(cache).cached_bytes, MIB);
  T_LE(resident_bytes(address, 2 * MIB), MIB);
  cache_close(cache);
}

T_TEST(test_cpu_upstream__a_cap_of_nothing_keeps_nothing) {
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.max_cached_bytes = 0;
  tide_cpu_cache* const cache = cache_open(&options);

  for (size_t i = 1; i < 20; i++) {
    void* const address = cache_take(cache, i * 65 * KIB);
    memset(address, 1, i * 65 * KIB);
    T_EQ(cache_stats(cache).cached_bytes, 0);
    T_OK(tide_cpu_release(address));
    T_EQ(cache_stats(cache).cached_bytes, 0);
    T_EQ(resident_bytes(address, i * 65 * KIB), 0);
  }

  cache_close(cache);
}

typedef struct churn {
  tide_cpu_cache* cache;
  uint64_t index;
} churn;

static void* churn_run(void* user) {
  const churn* const c = user;
  block blocks[8] = { { 0 } };
  t_rng rng = t_rng_new(c->index);
  for (size_t i = 0; i < t_scaled(T_HAS_SANITIZER ? 300 : 2000); i++) {
    block* const b = &blocks[i % 8];
    if (b->address != NULL) block_give(b);
    *b = block_take(c->cache, 1 + random_bytes(&rng, 19), i);
  }
  for (size_t i = 0; i < 8; i++) block_give(&blocks[i]);
  return NULL;
}

// Threads share a cap. Remote frees may exceed it by a sixteenth.
T_TEST(test_cpu_upstream__threads_share_the_cap) {
  enum { THREADS = 3 };
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.max_cached_bytes = 2 * MIB;
  tide_cpu_cache* const cache = cache_open(&options);
  churn churns[THREADS];
  for (size_t i = 0; i < THREADS; i++) churns[i] = (churn){ cache, i };

  on_threads(THREADS, churn_run, churns, sizeof *churns);

  T_LE(cache_stats(cache).cached_bytes, 2 * MIB + 2 * MIB / 16);
  cache_close(cache);
}
