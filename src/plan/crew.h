// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Threads that do a list of independent works together with the caller.
#ifndef TIDEMARK_SRC_PLAN_CREW_H
#define TIDEMARK_SRC_PLAN_CREW_H

#include <pthread.h>

#include "base/atomic.h"
#include "tidemark/base.h"

typedef void (*tide__crew_work)(void* user, uint32_t index);

typedef struct tide__crew {
  const tide_heap* heap;  // borrowed until fini
  pthread_t* threads;     // owned
  uint32_t asked;         // for, without the caller
  uint32_t count;         // that have started
  tide__crew_work work;   // read by the threads after `round` has risen
  void* user;
  uint32_t works;
  tide__atomic_u32 round;  // rises with each list
  tide__atomic_u32 next;   // work to be taken
  tide__atomic_u32 busy;   // threads that have not finished the list
  tide__atomic_u32 is_ending;
} tide__crew;

// `threads` with the caller; fewer if the system gives no more.
void tide__crew_init(tide__crew* crew, uint32_t threads, const tide_heap* heap);
void tide__crew_fini(tide__crew* crew);

// Does work 0 to count - 1, each once, begun in this order, and returns when all are done.
void tide__crew_run(tide__crew* crew, uint32_t count, tide__crew_work work, void* user);

#endif
