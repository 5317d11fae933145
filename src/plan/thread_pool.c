// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The threads sleep on a futex until the round changes. Each takes the next task from an atomic counter.
#include "plan/thread_pool.h"

#include "base/heap.h"
#include "base/sys.h"

static void pool_take_tasks(tide__thread_pool* pool) {
  for (;;) {
    const uint32_t index = tide__add_relaxed(&pool->next, 1);
    if (index >= pool->tasks) return;
    pool->task(pool->user, index);
  }
}

static void* pool_thread(void* argument) {
  tide__thread_pool* const pool = argument;
  uint32_t seen = 0;
  for (;;) {
    // Pairs with the store in tide__thread_pool_run and tide__thread_pool_fini.
    while (tide__load_acquire(&pool->round) == seen) tide__sys_futex_wait(&pool->round, seen);
    seen = tide__load_acquire(&pool->round);
    if (tide__load_acquire(&pool->is_ending) != 0) return NULL;
    pool_take_tasks(pool);
    if (tide__sub_seq(&pool->busy, 1) == 1) tide__sys_futex_wake(&pool->busy);
  }
}

void tide__thread_pool_init(tide__thread_pool* pool, uint32_t threads, const tide_heap* heap) {
  *pool = (tide__thread_pool){ .heap = heap, .asked = threads > 1 ? threads - 1 : 0 };
  if (pool->asked == 0) return;
  pool->threads = tide__heap_alloc(heap, pool->asked, sizeof *pool->threads);
  if (pool->threads == NULL) return;
  while (pool->count < pool->asked) {
    if (tide__sys_thread_start(&pool->threads[pool->count], pool_thread, pool) != 0) break;
    pool->count++;
  }
}

void tide__thread_pool_fini(tide__thread_pool* pool) {
  tide__store_release(&pool->is_ending, 1);
  tide__add_seq(&pool->round, 1);
  tide__sys_futex_wake(&pool->round);
  for (uint32_t i = 0; i < pool->count; i++) pthread_join(pool->threads[i], NULL);
  tide__heap_release(pool->heap, pool->threads, pool->asked, sizeof *pool->threads);
}

void tide__thread_pool_run(tide__thread_pool* pool, uint32_t count, tide__thread_task task, void* user) {
  pool->task = task;
  pool->user = user;
  pool->tasks = count;
  tide__store_relaxed(&pool->next, 0);
  if (pool->count > 0 && count > 1) {
    tide__store_relaxed(&pool->busy, pool->count);
    tide__add_seq(&pool->round, 1);  // pairs with the load in pool_thread
    tide__sys_futex_wake(&pool->round);
    pool_take_tasks(pool);
    for (uint32_t busy = tide__load_seq(&pool->busy); busy > 0; busy = tide__load_seq(&pool->busy)) {
      tide__sys_futex_wait(&pool->busy, busy);
    }
    return;
  }
  pool_take_tasks(pool);
}
