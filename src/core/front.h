// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Fronts: a part of an object that each thread has for itself, so that threads do not meet. A front belongs
// to one thread until that ends, and then to the next one that comes without one, with what is in it.
//
// A front has a lock that is biased to its thread: entering is a plain store and a plain load, leaving a
// plain store. Another thread can still take it, to look into it or to empty it: it says that it wants the
// front and waits until the owner is outside. All ordering is on its side: before it asks, before it looks
// and before it leaves, it makes every processor that runs the process pass a barrier, by a system call.
// Where the system has no such call, the owner has the barriers.
//
// One front belongs to no thread. It is for threads that could not have their own for want of memory, and for
// those that come after tide__fronts_close(); all take it as another's.
#ifndef TIDEMARK_SRC_CORE_FRONT_H
#define TIDEMARK_SRC_CORE_FRONT_H

#include "base/atomic.h"
#include "base/heap.h"
#include "base/lock.h"

struct tide__front_thread;

#define TIDE__FRONT_WANTED 1u  // another thread is inside, or waits to be
#define TIDE__FRONT_SLOW 2u    // it is common, or its thread has the barriers, or is to come the slow way

// The first field of an object's own front.
typedef struct tide__front {
  _Alignas(64) tide__atomic_u32 is_busy;  // its thread is inside
  tide__atomic_u32 hurdles;  // what keeps its thread from just entering: TIDE__FRONT_WANTED, TIDE__FRONT_SLOW
  bool is_common;            // it belongs to no thread
  struct tide__front* next;  // in the list of the object's fronts; never changes
  uint64_t id;               // of the object
  struct tide__front_thread* thread;  // whose it is, or NULL; shared under the lock of all fronts
  struct tide__front* thread_next;    // in the list of that thread; likewise
} tide__front;

typedef struct tide__fronts {
  uint64_t id;            // no other in this process has or had it
  const tide_heap* heap;  // borrowed until fini
  size_t front_bytes;
  void (*front_init)(void* front, void* owner);  // once for each, when its memory (all 0) is made
  void* owner;
  _Atomic(tide__front*) first;  // owned; only grows
  tide__front* common;          // one of them
  tide__atomic_u32 is_closed;
} tide__fronts;

// False without memory.
bool tide__fronts_init(tide__fronts* fronts, const tide_heap* heap, size_t front_bytes,
                       void (*front_init)(void*, void*), void* owner);
// Frees all fronts. No thread may be inside or come.
void tide__fronts_fini(tide__fronts* fronts);

// No thread gets a front of its own any more; those that have one keep it. What was written before is seen by
// whoever gets one from now on, and the fronts that were made before are in the list from now on.
void tide__fronts_close(tide__fronts* fronts);

// The first front; the others follow by `next`.
static inline tide__front* tide__fronts_first(tide__fronts* fronts) {
  return tide__load_acquire(&fronts->first);  // pairs with fronts_link
}

// Its thread comes the slow way from now on; the front is taken.
static inline void tide__front_make_slow(tide__front* front) {
  tide__store_relaxed(&front->hurdles, TIDE__FRONT_WANTED | TIDE__FRONT_SLOW);
}

// Takes any front, for a thread that is inside none, and gives it back.
void tide__front_take(tide__front* front);
void tide__front_give(tide__front* front);
// The same for all fronts of an object that there are now; returns the first. Costs no more barriers than one
// does.
tide__front* tide__fronts_take_all(tide__fronts* fronts);
void tide__fronts_give_all(tide__front* first);

// Around a fork: nobody is inside any front of the object, and in the child the fronts of other threads are
// free for new ones.
void tide__fronts_before_fork(tide__fronts* fronts);
void tide__fronts_after_fork(tide__fronts* fronts, bool is_child);
// The lock of all lists of fronts; taken before and given back after the above for all objects.
void tide__fronts_lock_all(void);
void tide__fronts_unlock_all(void);

// ---------------------------------------------------------------------------------------------------
// What every call does, inline

enum { TIDE__FRONT_OTHERS = 4, TIDE__FRONT_RECENT = 1 + TIDE__FRONT_OTHERS };

// The fronts a thread used last. The one it found last has the first place, so that no call has to wait for
// an id to know where its front is; behind it others, by the id of their objects.
typedef struct tide__front_recent {
  uint64_t id;
  tide__front* front;
} tide__front_recent;

extern _Thread_local tide__front_recent tide__front_recents[TIDE__FRONT_RECENT];

// The slow halves: finding the thread's front and entering it when nobody wants it; leaving with a barrier.
void* tide__fronts_enter_slow(tide__fronts* fronts);
void tide__front_leave_slow(tide__front* front);

// Enters the calling thread's front of an object, by its id, if that is as cheap as it can be; it is left by
// tide__front_leave_fast(). Else NULL, and tide__fronts_enter_slow() must follow.
static inline void* tide__fronts_enter_fast(uint64_t fronts_id) {
  const tide__front_recent* recent = &tide__front_recents[0];
  if (__builtin_expect(recent->id != fronts_id, 0)) {
    recent = &tide__front_recents[1 + fronts_id % TIDE__FRONT_OTHERS];
    if (recent->id != fronts_id) return NULL;
  }
  tide__front* const front = recent->front;
  tide__store_relaxed(&front->is_busy, 1);
  atomic_signal_fence(memory_order_seq_cst);
  const bool is_free = tide__load_ordered(&front->hurdles) == 0;
  atomic_signal_fence(memory_order_seq_cst);
  if (!is_free) {
    tide__store_release(&front->is_busy, 0);  // pairs with tide__front_take
    return NULL;
  }
  tide__rank_push(TIDE__RANK_FRONT);
  return front;
}

static inline void tide__front_leave_fast(void* entered) {
  tide__front* const front = entered;
  atomic_signal_fence(memory_order_seq_cst);
  tide__store_ordered(&front->is_busy, 0);
  tide__rank_pop(TIDE__RANK_FRONT);
}

// Enters the calling thread's front, and leaves it.
static inline void* tide__fronts_enter(tide__fronts* fronts) {
  void* const front = tide__fronts_enter_fast(fronts->id);
  return front != NULL ? front : tide__fronts_enter_slow(fronts);
}

static inline void tide__fronts_leave(void* entered) {
  tide__front* const front = entered;
  if (tide__load_relaxed(&front->hurdles) != 0) tide__front_leave_slow(front);
  else tide__front_leave_fast(front);
}

#endif
