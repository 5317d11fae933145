// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A CPU cache, and the order of its files. Each may use what stands before it:
//
//   region.c regions.c   ranges of addresses, their pages, and the map from an address to its region
//   charge.c             pages of the system, counted against max_bytes
//   zone.c               the regions of one thread, or the common ones
//   slab.c               objects of one size, and the magazines of threads
//   caches.c             all caches of the process, and what a fork does with them
//   limits.c             allowances, age, and want of memory
//   cpu_stats.c          totals and what is told of them
//   cpu_find.c           what is at an address
//   cpu_release.c        a release without the thread's thread cache, and one that is refused
//   upkeep.c ending.c    the helper thread; the end of a cache and blocks that outlive it
//   cpu.c                requests and releases
//   cpu_resize.c cpu_new.c cpu_check.c
//
// Blocks of up to 64 KiB are objects of slabs (slab.h): each thread has a magazine of
// idle ones for every size class, and behind the magazines stand the slabs, with a lock for each class.
// Larger blocks are whole pages of regions (region.h): each thread has regions of its own, its zone. Who
// releases a block of another thread's zone leaves it for that thread, which takes it back at its next call.
// One more zone, the common one, has a lock instead of a thread: slabs are cut from it, and blocks that are
// not to be kept.
//
// The thread cache of a thread (core/thread_cache.h) guards its zone and its magazines. Whoever gives memory
// back takes the blocks out under the guard, calls the system without, and then puts them back.
#ifndef TIDEMARK_SRC_CPU_CACHE_H
#define TIDEMARK_SRC_CPU_CACHE_H

#include <pthread.h>

#include "base/lock.h"
#include "core/thread_cache.h"
#include "cpu/slab.h"
#include "tidemark/cpu.h"

#define TIDE__CHANGES_PER_TELLING 256  // of the statistics, to the totals
#define TIDE__MANY_IN_A_TICK 16        // looks of a thread at the clock: from then on it looks
#define TIDE__CHANGES_PER_CLOCK 128    // once in so many changes
#define TIDE__TELLINGS_PER_LOOK 4      // for what has been idle for too long
#define TIDE__TAKES_PER_TELLING 1024u  // of small blocks of one class
#define TIDE__TICKS_PER_IDLE 8         // an idle time is this many ticks
#define TIDE__CPU_ALIGNMENT 64

typedef enum tide__cpu_counter {
#define TIDE__CPU_COUNTER_ENUM(name) TIDE__CPU_##name,
  TIDE_CPU_COUNTER_MAP(TIDE__CPU_COUNTER_ENUM)
#undef TIDE__CPU_COUNTER_ENUM
      TIDE__CPU_COUNTERS
} tide__cpu_counter;

struct tide_cpu_cache {
  tide__thread_caches tcaches;  // first: every call reads it
  uint64_t fast_bytes;          // requests up to this size are small and not filled
  uint64_t tick_ns;             // an eighth of idle_ns; 0: time does not pass
  uint64_t fast_pages_bytes;    // and up to this size are pages that are kept and not filled
  uint64_t most_pages;          // that the computer has; no block is larger
  tide__atomic_u32 is_ending;   // its owner has freed it; blocks of it live on
  tide__atomic_u32 holds;       // threads that still use it
  tide__atomic_u32 stamp;       // ticks of the clock, as far as somebody looked
  tide_cpu_options options;
  const tide_heap* heap;
  tide__atomic_u64 max_bytes;
  tide__atomic_u64 max_cached_bytes;
  tide__atomic_u64 system_pages;
  tide__atomic_u64 address_bytes;
  tide__atomic_u64 allowance_left;  // of max_cached_bytes, what no zone has
  tide__atomic_u64 last_rebalance_ns;
  tide__atomic_u64 last_sweep;  // stamp
  tide__mutex zone_lock;        // of the common zone
  tide__zone zone;
  tide__slab_class classes[TIDE__SMALL_CLASSES];
  tide__mutex totals_lock;
  tide_stat active;  // without `freed`, which is what was allocated and is live no longer
  tide_stat active_bytes;
  int64_t active_before;  // blocks and bytes that were live at the last reset
  int64_t active_bytes_before;
  tide_stat reserved_bytes;
  tide__atomic_u64 counters[TIDE__CPU_COUNTERS];
  tide__atomic_u64 orphans;     // blocks that outlive the cache, when it is ending
  tide__atomic_u32 is_counted;  // how many they are is known
  pthread_t helper;
  tide__atomic_u32 helper_stop;
  bool has_helper;
  struct tide_cpu_cache* next;  // in the list of all caches, the oldest first; shared under its lock
};

static inline void tide__cpu_count(tide_cpu_cache* cache, tide__cpu_counter counter, uint64_t n) {
  (void)tide__add_relaxed(&cache->counters[counter], n);
}

// Keeps a cache from going, for a thread that is inside a thread cache of it or holds it already; and ends
// that.
static inline void tide__cpu_hold(tide_cpu_cache* cache) { (void)tide__add_seq(&cache->holds, 1); }
static inline void tide__cpu_drop(tide_cpu_cache* cache) { (void)tide__sub_seq(&cache->holds, 1); }

#endif
