// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The threads sleep until the number of the round changes, and take works by counting up.
#include "plan/crew.h"

#include "base/heap.h"
#include "base/sys.h"

static void crew_take_works(tide__crew* crew) {
  for (;;) {
    const uint32_t index = tide__add_relaxed(&crew->next, 1);
    if (index >= crew->works) return;
    crew->work(crew->user, index);
  }
}

static void* crew_thread(void* argument) {
  tide__crew* const crew = argument;
  uint32_t seen = 0;
  for (;;) {
    // Pairs with the store in tide__crew_run and tide__crew_fini.
    while (tide__load_acquire(&crew->round) == seen) tide__sys_futex_wait(&crew->round, seen);
    seen = tide__load_acquire(&crew->round);
    if (tide__load_acquire(&crew->is_ending) != 0) return NULL;
    crew_take_works(crew);
    if (tide__sub_seq(&crew->busy, 1) == 1) tide__sys_futex_wake(&crew->busy);
  }
}

void tide__crew_init(tide__crew* crew, uint32_t threads, const tide_heap* heap) {
  *crew = (tide__crew){ .heap = heap, .asked = threads > 1 ? threads - 1 : 0 };
  if (crew->asked == 0) return;
  crew->threads = tide__heap_alloc(heap, crew->asked, sizeof *crew->threads);
  if (crew->threads == NULL) return;
  while (crew->count < crew->asked) {
    if (tide__sys_thread_start(&crew->threads[crew->count], crew_thread, crew) != 0) break;
    crew->count++;
  }
}

void tide__crew_fini(tide__crew* crew) {
  tide__store_release(&crew->is_ending, 1);
  tide__add_seq(&crew->round, 1);
  tide__sys_futex_wake(&crew->round);
  for (uint32_t i = 0; i < crew->count; i++) pthread_join(crew->threads[i], NULL);
  tide__heap_release(crew->heap, crew->threads, crew->asked, sizeof *crew->threads);
}

void tide__crew_run(tide__crew* crew, uint32_t count, tide__crew_work work, void* user) {
  crew->work = work;
  crew->user = user;
  crew->works = count;
  tide__store_relaxed(&crew->next, 0);
  if (crew->count > 0 && count > 1) {
    tide__store_relaxed(&crew->busy, crew->count);
    tide__add_seq(&crew->round, 1);  // pairs with the load in crew_thread
    tide__sys_futex_wake(&crew->round);
    crew_take_works(crew);
    for (uint32_t busy = tide__load_seq(&crew->busy); busy > 0; busy = tide__load_seq(&crew->busy)) {
      tide__sys_futex_wait(&crew->busy, busy);
    }
    return;
  }
  crew_take_works(crew);
}
