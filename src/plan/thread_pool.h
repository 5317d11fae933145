// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A thread pool. The caller and the threads of the pool run a list of independent tasks together.
#ifndef TIDEMARK_SRC_PLAN_THREAD_POOL_H
#define TIDEMARK_SRC_PLAN_THREAD_POOL_H

#include <pthread.h>

#include "base/atomic.h"
#include "tidemark/base.h"

typedef void (*tide__thread_task)(void* user, uint32_t index);

typedef struct tide__thread_pool {
  const tide_heap* heap;   // borrowed until fini
  pthread_t* threads;      // owned
  uint32_t asked;          // threads asked for, without the caller
  uint32_t count;          // threads that were started
  tide__thread_task task;  // the threads read it after `round` has risen
  void* user;
  uint32_t tasks;
  tide__atomic_u32 round;  // rises with each list of tasks
  tide__atomic_u32 next;   // the next task to take
  tide__atomic_u32 busy;   // threads that still work on the list
  tide__atomic_u32 is_ending;
} tide__thread_pool;

// `threads` counts the caller. The pool has fewer if the system starts no more.
void tide__thread_pool_init(tide__thread_pool* pool, uint32_t threads, const tide_heap* heap);
void tide__thread_pool_fini(tide__thread_pool* pool);

// Runs tasks 0 to count - 1 once each, started in this order, and returns when all have ended.
void tide__thread_pool_run(tide__thread_pool* pool, uint32_t count, tide__thread_task task, void* user);

#endif
