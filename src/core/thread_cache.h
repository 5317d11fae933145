// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Thread caches: each thread has a part of an object for itself, so that threads do not share memory or wait
// for each other. A cache belongs to one thread until that thread ends. The next thread without one gets it,
// with its contents.
//
// The lock of a cache is biased to its owner: entering is a plain store and a plain load, leaving a plain
// store. Another thread can take the cache as well, to read or to empty it. It announces that it wants the
// cache and waits until the owner is outside. It also does all the ordering: before it waits, before it reads
// and before it leaves, it makes every processor that runs the process execute a barrier, by a system call.
// Where the system has no such call, the owner executes barriers.
//
// One cache, the common one, has no owner. It serves threads that got no cache for lack of memory, and
// threads that first call after tide__thread_caches_close(). They take it like a cache of another thread.
#ifndef TIDEMARK_SRC_CORE_THREAD_CACHE_H
#define TIDEMARK_SRC_CORE_THREAD_CACHE_H

#include "base/atomic.h"
#include "base/heap.h"
#include "base/lock.h"

struct tide__thread_cache_thread;

#define TIDE__CACHE_WANTED 1u  // another thread is inside, or waits for it
// Its owner takes the slow path: the cache is common, or its owner executes barriers, or was told to.
#define TIDE__CACHE_SLOW 2u

// The first field of an object's own cache.
typedef struct tide__thread_cache {
  _Alignas(64) tide__atomic_u32 is_busy;  // its thread is inside
  tide__atomic_u32 hurdles;  // TIDE__CACHE_WANTED, TIDE__CACHE_SLOW: not 0 keeps the owner off the fast path
  bool is_common;            // it belongs to no thread
  struct tide__thread_cache* next;           // in the list of the object's caches; never changes
  uint64_t id;                               // of the object
  struct tide__thread_cache_thread* thread;  // whose it is, or NULL; shared under the lock of all caches
  struct tide__thread_cache* thread_next;    // in the list of that thread; likewise
} tide__thread_cache;

typedef struct tide__thread_caches {
  uint64_t id;            // unique in this process, never reused
  const tide_heap* heap;  // borrowed until fini
  size_t cache_bytes;
  void (*cache_init)(void* cache, void* owner);  // once for each, when its memory (all 0) is made
  void* owner;
  _Atomic(tide__thread_cache*) first;  // owned; only grows
  tide__thread_cache* common;          // one of them
  tide__atomic_u32 is_closed;
} tide__thread_caches;

// Returns false if there is no memory.
bool tide__thread_caches_init(tide__thread_caches* caches, const tide_heap* heap, size_t cache_bytes,
                              void (*cache_init)(void*, void*), void* owner);
// Frees all caches. No thread may be inside one or enter one later.
void tide__thread_caches_fini(tide__thread_caches* caches);

// No thread gets a cache of its own any more; those that have one keep it. Threads that get the common cache
// from now on see what was written before this call. All caches made before it are in the list afterwards.
void tide__thread_caches_close(tide__thread_caches* caches);

// The first cache; the others follow by `next`.
static inline tide__thread_cache* tide__thread_caches_first(tide__thread_caches* caches) {
  return tide__load_acquire(&caches->first);  // pairs with caches_link
}

// Its thread takes the slow path from now on. The caller must have taken the cache.
static inline void tide__thread_cache_make_slow(tide__thread_cache* cache) {
  tide__store_relaxed(&cache->hurdles, TIDE__CACHE_WANTED | TIDE__CACHE_SLOW);
}

// Takes any cache, for a thread that is inside none, and gives it back.
void tide__thread_cache_take(tide__thread_cache* cache);
void tide__thread_cache_give(tide__thread_cache* cache);
// The same for all present caches of an object; returns the first. It costs no more barriers than one cache.
tide__thread_cache* tide__thread_caches_take_all(tide__thread_caches* caches);
void tide__thread_caches_give_all(tide__thread_cache* first);

// Around a fork: no thread is inside any cache of the object, and in the child the caches of other threads
// are free for new threads.
void tide__thread_caches_before_fork(tide__thread_caches* caches);
void tide__thread_caches_after_fork(tide__thread_caches* caches, bool is_child);
// The lock of all lists of caches; taken before and given back after the above for all objects.
void tide__thread_caches_lock_all(void);
void tide__thread_caches_unlock_all(void);

// ---------------------------------------------------------------------------------------------------
// What every call does, inline

enum { TIDE__CACHE_OTHERS = 4, TIDE__CACHE_RECENT = 1 + TIDE__CACHE_OTHERS };

// The caches a thread used last. The one it found last has the first place, so that a call can read it before
// the id is known; the others follow, by the id of their objects.
typedef struct tide__thread_cache_recent {
  uint64_t id;
  tide__thread_cache* cache;
} tide__thread_cache_recent;

extern _Thread_local tide__thread_cache_recent tide__thread_cache_recents[TIDE__CACHE_RECENT];

// The slow paths: finding the thread's cache and entering it when no other thread wants it; leaving with a
// barrier.
void* tide__thread_caches_enter_slow(tide__thread_caches* caches);
void tide__thread_cache_leave_slow(tide__thread_cache* cache);

// The fast path: enters the calling thread's cache of an object, by its id; tide__thread_cache_leave_fast()
// leaves it. If it returns NULL, tide__thread_caches_enter_slow() must follow.
static inline void* tide__thread_caches_enter_fast(uint64_t caches_id) {
  const tide__thread_cache_recent* recent = &tide__thread_cache_recents[0];
  if (__builtin_expect(recent->id != caches_id, 0)) {
    recent = &tide__thread_cache_recents[1 + caches_id % TIDE__CACHE_OTHERS];
    if (recent->id != caches_id) return NULL;
  }
  tide__thread_cache* const cache = recent->cache;
  tide__store_relaxed(&cache->is_busy, 1);
  atomic_signal_fence(memory_order_seq_cst);
  const bool is_free = tide__load_ordered(&cache->hurdles) == 0;
  atomic_signal_fence(memory_order_seq_cst);
  if (!is_free) {
    tide__store_release(&cache->is_busy, 0);  // pairs with tide__thread_cache_take
    return NULL;
  }
  tide__rank_push(TIDE__RANK_THREAD_CACHE);
  return cache;
}

static inline void tide__thread_cache_leave_fast(void* entered) {
  tide__thread_cache* const cache = entered;
  atomic_signal_fence(memory_order_seq_cst);
  tide__store_ordered(&cache->is_busy, 0);
  tide__rank_pop(TIDE__RANK_THREAD_CACHE);
}

// Enters the calling thread's cache, and leaves it.
static inline void* tide__thread_caches_enter(tide__thread_caches* caches) {
  void* const cache = tide__thread_caches_enter_fast(caches->id);
  return cache != NULL ? cache : tide__thread_caches_enter_slow(caches);
}

static inline void tide__thread_caches_leave(void* entered) {
  tide__thread_cache* const cache = entered;
  if (tide__load_relaxed(&cache->hurdles) != 0) tide__thread_cache_leave_slow(cache);
  else tide__thread_cache_leave_fast(cache);
}

#endif
