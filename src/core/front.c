// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Which thread has which fronts. A thread has a list of its fronts, one for each object it works with; one
// lock for all lists is taken when a thread meets an object for the first time, when it ends, and when an
// object goes.
#include "core/front.h"

#include <pthread.h>

#include "base/sys.h"

struct tide__front_thread {
  tide__front* first;  // borrowed; shared under fronts_lock
  bool has_key;        // its end will be noticed
};

_Thread_local tide__front_recent tide__front_recents[TIDE__FRONT_RECENT];
static _Thread_local struct tide__front_thread front_thread;
static bool fronts_need_barriers;  // set before the first front is made

static tide__mutex fronts_lock;
static pthread_once_t fronts_once = PTHREAD_ONCE_INIT;
static pthread_key_t fronts_key;
static bool fronts_has_key;
static tide__atomic_u64 fronts_ids;

// ---------------------------------------------------------------------------------------------------
// Threads

// A thread ends: its fronts are free for others, with what is in them.
static void thread_end(void* thread) {
  struct tide__front_thread* const self = thread;
  tide__mutex_lock(&fronts_lock);
  for (tide__front* front = self->first; front != NULL; front = front->thread_next) front->thread = NULL;
  self->first = NULL;
  self->has_key = false;
  for (int i = 0; i < TIDE__FRONT_RECENT; i++) tide__front_recents[i].id = 0;
  tide__mutex_unlock(&fronts_lock);
}

static void fronts_start(void) {
  tide__mutex_init(&fronts_lock, TIDE__RANK_FRONTS);
  fronts_need_barriers = !tide__sys_can_fence_all();
  fronts_has_key = pthread_key_create(&fronts_key, thread_end) == 0;
}

static void thread_own(tide__front* front) TIDE_REQUIRES(&fronts_lock) {
  front->thread = &front_thread;
  front->thread_next = front_thread.first;
  front_thread.first = front;
}

static void thread_disown(tide__front* front) TIDE_REQUIRES(&fronts_lock) {
  if (front->thread == NULL) return;
  tide__front** link = &front->thread->first;
  while (*link != front) link = &(*link)->thread_next;
  *link = front->thread_next;
  front->thread = NULL;
}

// The newest takes the place of the one before, which goes among the others.
static void thread_remember(tide__front* front) {
  tide__front_recent* const newest = &tide__front_recents[0];
  if (newest->id == front->id) return;
  tide__front_recents[1 + newest->id % TIDE__FRONT_OTHERS] = *newest;
  *newest = (tide__front_recent){ front->id, front };
}

// ---------------------------------------------------------------------------------------------------
// Fronts of an object

static tide__front* fronts_make(tide__fronts* fronts) {
  tide__front* const front = tide__heap_alloc(fronts->heap, 1, fronts->front_bytes);
  if (front == NULL) return NULL;
  front->id = fronts->id;
  front->hurdles = fronts_need_barriers ? TIDE__FRONT_SLOW : 0;
  fronts->front_init(front, fronts->owner);
  return front;
}

static void fronts_link(tide__fronts* fronts, tide__front* front) TIDE_REQUIRES(&fronts_lock) {
  front->next = tide__load_relaxed(&fronts->first);
  tide__store_release(&fronts->first, front);  // pairs with tide__fronts_first
}

bool tide__fronts_init(tide__fronts* fronts, const tide_heap* heap, size_t front_bytes,
                       void (*front_init)(void*, void*), void* owner) {
  (void)pthread_once(&fronts_once, fronts_start);
  *fronts = (tide__fronts){ .id = tide__add_relaxed(&fronts_ids, 1) + 1,
                            .heap = heap,
                            .front_bytes = front_bytes,
                            .front_init = front_init,
                            .owner = owner };
  tide__front* const common = fronts_make(fronts);
  if (common == NULL) return false;
  common->is_common = true;
  common->hurdles = TIDE__FRONT_SLOW;
  fronts->common = common;
  tide__mutex_lock(&fronts_lock);
  fronts_link(fronts, common);
  tide__mutex_unlock(&fronts_lock);
  return true;
}

void tide__fronts_close(tide__fronts* fronts) {
  tide__mutex_lock(&fronts_lock);
  tide__store_relaxed(&fronts->is_closed, 1);
  tide__mutex_unlock(&fronts_lock);
}

void tide__fronts_fini(tide__fronts* fronts) {
  tide__mutex_lock(&fronts_lock);
  for (tide__front* front = tide__fronts_first(fronts); front != NULL; front = front->next) {
    thread_disown(front);
  }
  tide__mutex_unlock(&fronts_lock);
  for (tide__front* front = tide__fronts_first(fronts); front != NULL;) {
    tide__front* const next = front->next;
    tide__heap_release(fronts->heap, front, 1, fronts->front_bytes);
    front = next;
  }
}

// The thread's own front, or one that nobody has, or NULL.
static tide__front* fronts_claim(tide__fronts* fronts) TIDE_REQUIRES(&fronts_lock) {
  for (tide__front* front = front_thread.first; front != NULL; front = front->thread_next) {
    if (front->id == fronts->id) return front;
  }
  for (tide__front* front = tide__fronts_first(fronts); front != NULL; front = front->next) {
    if (front->thread != NULL || front->is_common) continue;
    thread_own(front);
    return front;
  }
  return NULL;
}

// Asks to be told when the thread ends.
static bool thread_watch(void) {
  if (front_thread.has_key) return true;
  front_thread.has_key = fronts_has_key && pthread_setspecific(fronts_key, &front_thread) == 0;
  return front_thread.has_key;
}

// A new front for the calling thread; the common one if the object was closed meanwhile; NULL without memory.
static tide__front* fronts_add(tide__fronts* fronts) {
  tide__front* const front = fronts_make(fronts);
  if (front == NULL) return NULL;
  tide__mutex_lock(&fronts_lock);
  fronts_link(fronts, front);
  const bool is_closed = tide__load_relaxed(&fronts->is_closed) != 0;
  if (!is_closed) thread_own(front);
  tide__mutex_unlock(&fronts_lock);
  return is_closed ? fronts->common : front;
}

// The calling thread's front, or the common one.
static tide__front* fronts_find(tide__fronts* fronts) {
  if (!thread_watch()) return fronts->common;
  tide__mutex_lock(&fronts_lock);
  const bool is_closed = tide__load_relaxed(&fronts->is_closed) != 0;
  tide__front* front = is_closed ? fronts->common : fronts_claim(fronts);
  tide__mutex_unlock(&fronts_lock);
  if (front == NULL) front = fronts_add(fronts);
  if (front == NULL || front->is_common) return fronts->common;
  thread_remember(front);
  return front;
}

// ---------------------------------------------------------------------------------------------------
// The biased lock

// Waits with growing patience until bits of a word are 0.
static void front_wait_for_zero(tide__atomic_u32* word, uint32_t bits) {
  for (uint32_t turn = 0; (tide__load_seq(word) & bits) != 0; turn++) {  // pairs with who leaves
    if (turn < 64) tide__cpu_relax();
    else tide__sys_sleep_ns(turn < 256 ? 1000 : 50000);
  }
}

static void front_enter(tide__front* front) {
  for (;;) {
    tide__store_seq(&front->is_busy, 1);
    if ((tide__load_seq(&front->hurdles) & TIDE__FRONT_WANTED) == 0) return;  // pairs with front_give
    tide__store_release(&front->is_busy, 0);                                  // pairs with front_take
    front_wait_for_zero(&front->hurdles, TIDE__FRONT_WANTED);
  }
}

void* tide__fronts_enter_slow(tide__fronts* fronts) {
  tide__front* const front = fronts_find(fronts);
  if (front->is_common) {
    tide__front_take(front);
    return front;
  }
  tide__rank_push(TIDE__RANK_FRONT);
  front_enter(front);
  return front;
}

void tide__front_leave_slow(tide__front* front) {
  if (front->is_common) {
    tide__front_give(front);
    return;
  }
  tide__store_release(&front->is_busy, 0);  // pairs with front_take
  tide__rank_pop(TIDE__RANK_FRONT);
}

// Every processor that runs this process passes a barrier, unless the owners have barriers of their own.
static void front_fence(void) {
  if (!fronts_need_barriers) tide__sys_fence_all();
}

// Says that a front is wanted; nobody else can take it from then on.
static void front_want(tide__front* front) {
  while ((atomic_fetch_or(&front->hurdles, TIDE__FRONT_WANTED) & TIDE__FRONT_WANTED) != 0) {
    front_wait_for_zero(&front->hurdles, TIDE__FRONT_WANTED);
  }
}

// Pairs with the entry of its thread, and with the next taker.
static void front_unwant(tide__front* front) {
  (void)atomic_fetch_and_explicit(&front->hurdles, ~TIDE__FRONT_WANTED, memory_order_release);
}

static void front_take(tide__front* front) {
  front_want(front);
  if (front->is_common) return;
  front_fence();
  front_wait_for_zero(&front->is_busy, 1);
  front_fence();
}

static void front_give(tide__front* front) {
  if (!front->is_common) front_fence();
  front_unwant(front);
}

void tide__front_take(tide__front* front) {
  tide__rank_push(TIDE__RANK_FRONT);
  front_take(front);
}

void tide__front_give(tide__front* front) {
  front_give(front);
  tide__rank_pop(TIDE__RANK_FRONT);
}

// All who take several go along the list, and its order never changes: nobody waits in a circle. The common
// front is never entered as a thread's own, so it is never busy.
tide__front* tide__fronts_take_all(tide__fronts* fronts) {
  tide__front* const first = tide__fronts_first(fronts);
  tide__rank_push(TIDE__RANK_FRONT);
  for (tide__front* front = first; front != NULL; front = front->next) front_want(front);
  front_fence();
  for (tide__front* front = first; front != NULL; front = front->next) {
    front_wait_for_zero(&front->is_busy, 1);
  }
  front_fence();
  return first;
}

void tide__fronts_give_all(tide__front* first) {
  front_fence();
  for (tide__front* front = first; front != NULL; front = front->next) front_unwant(front);
  tide__rank_pop(TIDE__RANK_FRONT);
}

// ---------------------------------------------------------------------------------------------------
// Forks

void tide__fronts_lock_all(void) TIDE_UNCHECKED_LOCKING {
  (void)pthread_once(&fronts_once, fronts_start);
  tide__mutex_lock(&fronts_lock);
}

void tide__fronts_unlock_all(void) TIDE_UNCHECKED_LOCKING { tide__mutex_unlock(&fronts_lock); }

void tide__fronts_before_fork(tide__fronts* fronts) {
  for (tide__front* front = tide__fronts_first(fronts); front != NULL; front = front->next) front_take(front);
}

void tide__fronts_after_fork(tide__fronts* fronts, bool is_child) {
  for (tide__front* front = tide__fronts_first(fronts); front != NULL; front = front->next) {
    if (is_child && front->thread != &front_thread) front->thread = NULL;
    front_give(front);
  }
}
