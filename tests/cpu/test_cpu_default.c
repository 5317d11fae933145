// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The cache of the process: one for all threads, there from the first call on, and never gone.
#include "cpu/blocks.h"
#include "tidemark/tensor.h"

#define DEFAULT_THREADS 8

static tide_cpu_cache* default_cache(void) {
  tide_cpu_cache* cache = NULL;
  T_OK(tide_cpu_default(&cache));
  T_CHECK(cache != NULL);
  return cache;
}

typedef struct starter {
  pthread_barrier_t* start;
  tide_cpu_cache* cache;
} starter;

static void* starter_run(void* user) {
  starter* const s = user;
  (void)pthread_barrier_wait(s->start);
  s->cache = default_cache();
  const block b = block_take(s->cache, 100000, 1);
  block_give(&b);
  return NULL;
}

T_TEST(test_cpu_default__is_one_for_threads_that_ask_at_once) {
  pthread_barrier_t start;
  pthread_t threads[DEFAULT_THREADS];
  starter starters[DEFAULT_THREADS];
  T_EQ(pthread_barrier_init(&start, NULL, DEFAULT_THREADS), 0);
  for (size_t i = 0; i < DEFAULT_THREADS; i++) {
    starters[i] = (starter){ &start, NULL };
    t_thread_start(&threads[i], starter_run, &starters[i]);
  }
  for (size_t i = 0; i < DEFAULT_THREADS; i++) t_thread_join(threads[i]);

  for (size_t i = 0; i < DEFAULT_THREADS; i++) T_PTR_EQ(starters[i].cache, default_cache());

  T_EQ(cache_stats(default_cache()).live.allocated, DEFAULT_THREADS);
  cache_expect_live(default_cache(), 0);
  cache_expect_sound(default_cache());
  T_EQ(pthread_barrier_destroy(&start), 0);
}

T_TEST(test_cpu_default__is_never_freed) {
  uint64_t orphans = 7;
  const block before = block_take(default_cache(), 1000, 1);

  tide_cpu_free(default_cache(), &orphans);

  T_EQ(orphans, 0);
  const block after = block_take(default_cache(), 5 * MIB, 2);
  T_PTR_EQ(tide_cpu_find(before.address).cache, default_cache());
  block_give(&before);
  block_give(&after);
  cache_expect_live(default_cache(), 0);
}

T_TEST(test_cpu_default__is_a_cache_as_others_are) {
  tide_cpu_cache* const other = cache_open(NULL);
  T_CHECK(other != default_cache());
  void* tensor = NULL;
  T_OK(tide_tensor_enter(default_cache()));
  T_OK(tide_tensor_alloc(1000, &tensor));
  T_OK(tide_tensor_leave(default_cache()));
  T_PTR_EQ(tide_cpu_find(tensor).cache, default_cache());
  T_OK(tide_tensor_release(tensor));
  T_OK(tide_cpu_set_limits(default_cache(), 0, TIDE_NO_LIMIT));
  T_EQ(cache_stats(default_cache()).cached_bytes, 0);
  cache_close(other);
  T_STATUS(tide_cpu_default(NULL), TIDE_ERR_ARGUMENT);
}

// A child that was forked before goes on with a copy, and one that was forked too early makes its own.
T_TEST(test_cpu_default__is_there_in_a_child) {
  for (int round = 0; round < 2; round++) {
    const block mine = round == 1 ? block_take(default_cache(), 100000, 3) : (block){ 0 };
    int status = 0;
    const pid_t child = fork();
    T_LE(0, child);
    if (child == 0) {
      if (round == 1) block_give(&mine);
      const block b = block_take(default_cache(), 200000, 4);
      block_give(&b);
      cache_expect_live(default_cache(), 0);
      _exit(0);
    }
    T_EQ(waitpid(child, &status, 0), child);
    T_EQ(status, 0);
    if (round == 1) block_give(&mine);
  }
}
