// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A process with several threads in the cache forks. The child has one thread and can use everything: its own
// blocks, those of threads that do not exist there, idle memory, limits and helpers.
#define T_THREADS
#include "blocks.h"

#define FORK_THREADS 3

typedef struct crowd {
  tide_cpu_cache* cache;
  atomic_bool is_over;
  atomic_size_t calls;
} crowd;

static void* crowd_work(void* user) {
  crowd* const c = user;
  block blocks[8] = { { 0 } };
  t_rng rng = t_rng_new(7);
  for (size_t i = 0; !atomic_load(&c->is_over); i++) {
    block* const b = &blocks[i % 8];
    if (b->address != NULL) block_give(b);
    *b = block_take(c->cache, 1 + random_bytes(&rng, 18), i);
    if (i % 100 == 0) T_OK(tide_cpu_trim(c->cache, 100000));
    atomic_fetch_add(&c->calls, 1);
  }
  for (size_t i = 0; i < 8; i++) {
    if (blocks[i].address != NULL) block_give(&blocks[i]);
  }
  return NULL;
}

// The work of a child, which must end without the threads of its parent.
static void child_work(tide_cpu_cache* cache, const block* mine) {
  (void)alarm(300);
  t_rng rng = t_rng_new(8);
  pattern_expect(mine->address, mine->seed, mine->bytes);
  for (size_t i = 0; i < 200; i++) {
    const block b = block_take(cache, 1 + random_bytes(&rng, 19), i);
    block_give(&b);
  }
  block_give(mine);
  T_STATUS(tide_cpu_release(mine->address), TIDE_ERR_STATE);
  T_OK(tide_cpu_poll(cache));
  T_OK(tide_cpu_trim(cache, 0));
  tide_cpu_cache* const fresh = cache_open(NULL);
  cache_leave_idle(fresh, 100000, 5);
  T_OK(tide_cpu_trim(fresh, 0));
  cache_close(fresh);
  _exit(0);
}

static void fork_once(tide_cpu_cache* cache, const block* mine) {
  int status = 0;
  const pid_t child = fork();
  T_LE(0, child);
  if (child == 0) child_work(cache, mine);
  T_EQ(waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) T_FAIL("the child was killed by %s", t_signal_name(WTERMSIG(status)));
  T_EQ(WEXITSTATUS(status), 0);
}

static const char* const fork_helpers[] = { "alone", "helper", NULL };

T_TEST_OVER(test_cpu_fork__a_child_of_many_threads_goes_on, fork_helpers) {
  if (T_HAS_THREAD_SANITIZER) t_skip("the thread sanitizer does not follow a fork of several threads");
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.has_helper = strcmp(t_variant(), "helper") == 0;
  options.idle_ns = 1000000;
  crowd c = { .cache = cache_open(&options) };
  pthread_t threads[FORK_THREADS];
  const block mine = block_take(c.cache, 50000, 3);
  for (size_t i = 0; i < FORK_THREADS; i++) t_thread_start(&threads[i], crowd_work, &c);

  for (size_t i = 0; i < t_scaled(T_HAS_SANITIZER ? 10 : 30); i++) {
    const size_t calls = atomic_load(&c.calls);
    fork_once(c.cache, &mine);
    while (atomic_load(&c.calls) == calls) t_sleep_us(100);
  }

  atomic_store(&c.is_over, true);
  for (size_t i = 0; i < FORK_THREADS; i++) t_thread_join(threads[i]);
  block_give(&mine);
  cache_expect_live(c.cache, 0);
  cache_close(c.cache);
}

// The child frees its cache, with a helper or without; the parent's is unchanged.
T_TEST_OVER(test_cpu_fork__a_child_can_free_the_cache, fork_helpers) {
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.has_helper = strcmp(t_variant(), "helper") == 0;
  if (T_HAS_THREAD_SANITIZER && options.has_helper) t_skip("the thread sanitizer does not follow that fork");
  tide_cpu_cache* const cache = cache_open(&options);
  const block mine = block_take(cache, 50000, 3);
  int status = 0;

  const pid_t child = fork();
  T_LE(0, child);
  if (child == 0) {
    (void)alarm(300);
    cache_close_with(cache, 1);
    block_give(&mine);
    _exit(0);
  }
  T_EQ(waitpid(child, &status, 0), child);

  T_EQ(status, 0);
  block_give(&mine);
  cache_close(cache);
}
