// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Locks with ranks. A thread may only take a lock whose rank is above all it holds; with TIDE_CHECK >= 1 that
// is checked at every lock, so that an order which could deadlock fails in the first test that runs it.
// This enum is the one place where the order of all locks stands.
#ifndef TIDEMARK_SRC_BASE_LOCK_H
#define TIDEMARK_SRC_BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"

typedef enum tide__rank {
  TIDE__RANK_REGISTRY,  // which machines exist (for streams of threads that end), the default allocators
  // Inside the device allocator, in the order they are taken.
  TIDE__RANK_GATE,      // who may grow and shrink; held for moments only, never while waiting for the machine
  TIDE__RANK_POOLS,     // pools, scopes, observers, options
  TIDE__RANK_LANE,      // blocks of one pool and stream
  TIDE__RANK_TIMELINE,  // blocks that wait for work, idle events
  TIDE__RANK_MAP,       // growth of the map from addresses to blocks, spare records
  TIDE__RANK_TOTALS,    // statistics of the whole allocator
  TIDE__RANK_HISTORY,   // the ring of entries
  TIDE__RANK_INTERN,    // interned texts and stacks
  // Inside a machine. No lock of an allocator is held during a machine call.
  TIDE__RANK_CAPTURE,  // captures and graphs
  TIDE__RANK_STREAMS,  // the list of a device's streams
  TIDE__RANK_STREAM,   // the queue of one stream
  TIDE__RANK_EVENT,    // the record of one event
  TIDE__RANK_MEMORY,   // ranges, mappings, physical memory
  TIDE__RANK_LEAF      // nothing is taken behind it
} tide__rank;

#if defined(__clang__)
#define TIDE_CAPABILITY(name) __attribute__((capability(name)))
#define TIDE_ACQUIRES(lock) __attribute__((acquire_capability(lock)))
#define TIDE_RELEASES(lock) __attribute__((release_capability(lock)))
#define TIDE_REQUIRES(lock) __attribute__((requires_capability(lock)))
// For the few functions that take a lock which another gives back, or are called with one held.
#define TIDE_UNCHECKED_LOCKING __attribute__((no_thread_safety_analysis))
#else
#define TIDE_CAPABILITY(name)
#define TIDE_ACQUIRES(lock)
#define TIDE_RELEASES(lock)
#define TIDE_REQUIRES(lock)
#define TIDE_UNCHECKED_LOCKING
#endif

typedef struct TIDE_CAPABILITY("mutex") tide__mutex {
  pthread_mutex_t native;
  uint32_t rank;
} tide__mutex;

void tide__mutex_init(tide__mutex* mutex, tide__rank rank);
void tide__mutex_fini(tide__mutex* mutex);
void tide__mutex_lock(tide__mutex* mutex) TIDE_ACQUIRES(mutex);
void tide__mutex_unlock(tide__mutex* mutex) TIDE_RELEASES(mutex);

// Something to wait for under a mutex. Waits may end early: test the condition again.
typedef struct tide__signal {
  pthread_cond_t native;
} tide__signal;

void tide__signal_init(tide__signal* signal);
void tide__signal_fini(tide__signal* signal);
void tide__signal_wait(tide__signal* signal, tide__mutex* mutex) TIDE_REQUIRES(mutex);
void tide__signal_all(tide__signal* signal);

// Does the calling thread hold no lock? Always true when checks are off.
bool tide__holds_no_lock(void);
#define TIDE_ASSERT_UNLOCKED() TIDE_ASSERT(tide__holds_no_lock())

#endif
