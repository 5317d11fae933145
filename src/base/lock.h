// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Locks with ranks. A thread may only take a lock whose rank is higher than all ranks it holds. With
// TIDE_CHECK >= 1 every lock checks this, so an order that could deadlock fails in the first test that runs
// it. The enum below defines the order of all locks.
#ifndef TIDEMARK_SRC_BASE_LOCK_H
#define TIDEMARK_SRC_BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/check.h"

typedef enum tide__rank {
  TIDE__RANK_REGISTRY,  // the list of machines (for streams of threads that end), the default allocators
  // Inside all caches; the device cache enters a thread cache before it locks a lane.
  TIDE__RANK_CACHES,         // the list of caches
  TIDE__RANK_THREAD_CACHES,  // the assignment of thread caches to threads
  TIDE__RANK_THREAD_CACHE,   // one thread cache: see core/thread_cache.h
  TIDE__RANK_DEPOT,          // free blocks of one size class
  TIDE__RANK_CHUNKS,         // memory that blocks are cut from
  TIDE__RANK_WAITS,          // blocks that wait for streams: see core/stream_waits.h
  // Inside the device allocator.
  TIDE__RANK_GATE,     // guards the turn to grow and shrink; the turn is no lock: its owner calls the machine
  TIDE__RANK_POOLS,    // pools, scopes, observers, options
  TIDE__RANK_LANE,     // blocks of one pool and stream
  TIDE__RANK_MARKS,    // guards the turn to record events of one stream, which is no lock either
  TIDE__RANK_MAP,      // growth of the map from addresses to blocks
  TIDE__RANK_TOTALS,   // statistics of the whole allocator
  TIDE__RANK_HISTORY,  // reading and resizing the ring of entries
  TIDE__RANK_INTERN,   // interned texts and stacks
  // Inside a profile.
  TIDE__RANK_PROFILE,   // plans, arenas, open runs
  TIDE__RANK_RECORDER,  // what one run has recorded
  // Inside a machine. No lock of an allocator is held during a machine call.
  TIDE__RANK_CAPTURE,  // captures and graphs
  TIDE__RANK_STREAMS,  // the list of a device's streams
  TIDE__RANK_STREAM,   // the queue of one stream
  TIDE__RANK_EVENT,    // the record of one event
  TIDE__RANK_MEMORY,   // ranges, mappings, physical memory
  TIDE__RANK_LEAF      // no lock is taken while it is held
} tide__rank;

#if defined(__clang__)
#define TIDE_CAPABILITY(name) __attribute__((capability(name)))
#define TIDE_ACQUIRES(lock) __attribute__((acquire_capability(lock)))
#define TIDE_TRY_ACQUIRES(value, lock) __attribute__((try_acquire_capability(value, lock)))
#define TIDE_RELEASES(lock) __attribute__((release_capability(lock)))
#define TIDE_REQUIRES(lock) __attribute__((requires_capability(lock)))
// For functions that take a lock which another function releases, or that are called with a lock held.
#define TIDE_UNCHECKED_LOCKING __attribute__((no_thread_safety_analysis))
#else
#define TIDE_CAPABILITY(name)
#define TIDE_ACQUIRES(lock)
#define TIDE_TRY_ACQUIRES(value, lock)
#define TIDE_RELEASES(lock)
#define TIDE_REQUIRES(lock)
#define TIDE_UNCHECKED_LOCKING
#endif

// One step of a loop that waits for another thread: spins at first. After 100 steps it sleeps, because the
// other thread may not be running.
void tide__wait_a_moment(uint32_t times_before);

// A mutex in one word: 0 is free, 1 is taken. Taking a free mutex is one atomic instruction, and unlocking is
// a plain store. A contended lock spins 100 times, then sleeps in 20 µs steps. Nobody is woken: locks are
// held for less time than waking takes, so unlocking does not have to look for sleepers.
typedef struct TIDE_CAPABILITY("mutex") tide__mutex {
  tide__atomic_u32 state;
  uint32_t rank;
#ifdef TIDE_LOCK_TIMES
  uint64_t since_ns;  // CPU time of the holder when it took the lock
#endif
} tide__mutex;

void tide__mutex_init(tide__mutex* mutex, tide__rank rank);
void tide__mutex_fini(tide__mutex* mutex);
// The slow path of tide__mutex_lock().
void tide__mutex_wait(tide__mutex* mutex);

#if TIDE_CHECK >= 1
void tide__rank_push(uint32_t rank);
void tide__rank_pop(uint32_t rank);
#else
#define tide__rank_push(rank) ((void)(rank))
#define tide__rank_pop(rank) ((void)(rank))
#endif

// With TIDE_LOCK_TIMES: the longest time that a lock was held, in CPU time of the holder.
#ifdef TIDE_LOCK_TIMES
void tide__lock_time_begin(tide__mutex* mutex);
void tide__lock_time_end(const tide__mutex* mutex);
#else
static inline void tide__lock_time_begin(tide__mutex* mutex) { (void)mutex; }
static inline void tide__lock_time_end(const tide__mutex* mutex) { (void)mutex; }
#endif
// The longest time since the last call of this function; UINT64_MAX in a build that does not measure it.
uint64_t tide__lock_longest_ns(void);

static inline void tide__mutex_lock(tide__mutex* mutex) TIDE_ACQUIRES(mutex) TIDE_UNCHECKED_LOCKING {
  tide__rank_push(mutex->rank);
  uint32_t is_free = 0;
  // pairs with the release in tide__mutex_unlock
  const bool is_mine = atomic_compare_exchange_strong_explicit(&mutex->state, &is_free, 1,
                                                               memory_order_acquire, memory_order_relaxed);
  if (!is_mine) tide__mutex_wait(mutex);
  tide__lock_time_begin(mutex);
}

static inline void tide__mutex_unlock(tide__mutex* mutex) TIDE_RELEASES(mutex) TIDE_UNCHECKED_LOCKING {
  tide__lock_time_end(mutex);
  tide__store_release(&mutex->state, 0);  // pairs with the acquire in tide__mutex_lock
  tide__rank_pop(mutex->rank);
}

// For code that takes several locks of one rank: fork handlers, which unlock in both processes, and the
// holder of the gate of a device allocator. The rank is not checked.
void tide__mutex_lock_many(tide__mutex* mutex);
void tide__mutex_unlock_many(tide__mutex* mutex);

// A mutex that needs no tide__mutex_init().
#define TIDE__MUTEX_INIT(lock_rank) \
  { .rank = (lock_rank) }

// A condition variable. A wait may end early, so test the condition again.
typedef struct tide__signal {
  tide__atomic_u32 count;    // of signals so far
  tide__atomic_u32 waiting;  // threads that wait, or are about to
} tide__signal;

void tide__signal_init(tide__signal* signal);
void tide__signal_fini(tide__signal* signal);
void tide__signal_wait(tide__signal* signal, tide__mutex* mutex) TIDE_REQUIRES(mutex);
void tide__signal_all(tide__signal* signal);

// True if the calling thread holds no lock. Always true without TIDE_CHECK.
bool tide__holds_no_lock(void);
#define TIDE_ASSERT_UNLOCKED() TIDE_ASSERT(tide__holds_no_lock())

#endif
