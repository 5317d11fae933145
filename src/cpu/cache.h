// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A CPU cache. Each of its files may use the ones before it:
//
//   region.c regions.c   ranges of addresses, their pages, and the map from an address to its region
//   zone.c               the regions of one thread, or the common ones
//   slab.c               objects of one size class, and the magazines of threads
//   caches.c             all caches of the process, and forks
//   limits.c             allowances, age, recovery when memory runs out, and the helper thread
//   cpu_stats.c          statistics
//   monitor_row.c        what people who watch the cache see
//   cpu_find.c           what is at an address
//   cpu_release.c        slow and refused releases
//   ending.c             the end of a cache, and blocks that outlive it
//   cpu.c                requests and releases
//   cpu_resize.c cpu_new.c cpu_check.c
//
// Blocks of up to 64 KiB are objects of slabs (slab.h). Each thread has a magazine of idle objects for every
// size class; magazines are refilled from the slabs, which have a lock for each class. Larger blocks are
// whole pages of regions (region.h). Each thread has a zone, which is its own regions. A thread that releases
// a block of another thread's zone puts it on a list there, which the owner takes in at its next call. The
// common zone has a lock instead of an owner. Slabs are cut from it, and blocks whose memory is not kept.
//
// A thread cache (core/thread_cache.h) guards the zone and the magazines of its thread. To give memory back,
// blocks are taken out under the guard, the system is called without it, and then they are put back.
#ifndef TIDEMARK_SRC_CPU_CACHE_H
#define TIDEMARK_SRC_CPU_CACHE_H

#include <pthread.h>

#include "base/lock.h"
#include "core/thread_cache.h"
#include "cpu/slab.h"
#include "monitor/monitored.h"
#include "tidemark/cpu.h"

#define TIDE__CHANGES_PER_FLUSH 256  // changes of a tally before it is added to the totals
#define TIDE__TAKES_PER_FLUSH 1024u  // the same for small blocks of one class
#define TIDE__FLUSHES_PER_SWEEP 4    // flushes of a thread before it looks for old memory
#define TIDE__READS_IN_A_TICK 16     // clock reads in one tick after which a thread reads it less often:
#define TIDE__CHANGES_PER_CLOCK 128  // once in so many changes
#define TIDE__TICKS_PER_IDLE 8       // ticks in idle_ns
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
  uint64_t tick_ns;             // 0: memory does not age
  uint64_t fast_pages_bytes;    // requests below this size are kept as pages and not filled
  uint64_t most_pages;          // the computer's memory; no block is larger
  tide__atomic_u32 is_ending;   // its owner has freed it; blocks of it live on
  tide__atomic_u32 holds;       // threads that still use it
  tide__atomic_u32 stamp;       // the tick at the last read of the clock
  tide_cpu_options options;
  const tide_heap* heap;
  tide__atomic_u64 max_bytes;
  tide__atomic_u64 max_cached_bytes;
  tide__atomic_u64 system_pages;
  tide__atomic_u64 address_bytes;
  tide__atomic_u64 allowance_left;  // the part of max_cached_bytes that no zone has
  tide__atomic_u64 last_rebalance_ns;
  tide__atomic_u64 last_sweep;  // stamp
  tide__mutex zone_lock;        // of the common zone
  tide__zone zone;
  tide__slab_class classes[TIDE__SMALL_CLASSES];
  tide__mutex totals_lock;
  tide_stat active;  // without `freed`, which follows from the other fields
  tide_stat active_bytes;
  int64_t active_before;  // blocks and bytes that were live at the last reset
  int64_t active_bytes_before;
  tide_stat reserved_bytes;
  tide__atomic_u64 counters[TIDE__CPU_COUNTERS];
  tide__atomic_u64 orphans;     // blocks that outlive the cache, when it is ending
  tide__atomic_u32 is_counted;  // `orphans` is valid
  pthread_t helper;
  tide__atomic_u32 helper_stop;
  bool has_helper;
  struct tide_cpu_cache* next;  // in the list of all caches, the oldest first; shared under its lock
  tide__monitored monitored;
};

static inline void tide__cpu_count(tide_cpu_cache* cache, tide__cpu_counter counter, uint64_t n) {
  (void)tide__add_relaxed(&cache->counters[counter], n);
}

// Keeps a cache from being destroyed, and ends that. The caller is inside a thread cache of it, or holds it.
static inline void tide__cpu_hold(tide_cpu_cache* cache) { (void)tide__add_seq(&cache->holds, 1); }
static inline void tide__cpu_drop(tide_cpu_cache* cache) { (void)tide__sub_seq(&cache->holds, 1); }

// Walks the zones of the threads, then the common one: the one after `zone`, the first for NULL; NULL: none.
static inline tide__zone* tide__zones_next(tide_cpu_cache* cache, const tide__zone* zone) {
  if (zone != NULL && zone->tcache == NULL) return NULL;
  tide__thread_cache* const tcache = zone == NULL ? tide__thread_caches_first(&cache->tcaches)
                                                  : zone->tcache->base.next;
  return tcache != NULL ? &((tide__cpu_tcache*)tcache)->zone : &cache->zone;
}

// ---------------------------------------------------------------------------------------------------
// monitor_row.c: a tide__monitored_fill

bool tide__cpu_row_fill(void* cache, tide_monitor_row* row);

// ---------------------------------------------------------------------------------------------------
// caches.c

void tide__caches_add(tide_cpu_cache* cache);
void tide__caches_remove(tide_cpu_cache* cache);
// Returns the oldest cache (for NULL), or the one after `cache`, which is dropped; NULL if there is none. The
// result is held until the caller drops it.
tide_cpu_cache* tide__caches_hold_next(tide_cpu_cache* cache);

// ---------------------------------------------------------------------------------------------------
// limits.c: called with no lock held

// Brings a zone that received memory back within its allowance.
void tide__cpu_enforce(tide_cpu_cache* cache, tide__zone* zone);
// Reads the clock, and gives old memory back if it is time to.
void tide__cpu_sweep_if_due(tide_cpu_cache* cache);
// Gives back memory that has been idle for idle_ns.
void tide__cpu_sweep(tide_cpu_cache* cache);
// Reads the clock into the stamp of the cache, and returns it.
uint32_t tide__cpu_read_clock(tide_cpu_cache* cache);
void tide__cpu_trim(tide_cpu_cache* cache, uint64_t keep_bytes);
// A tide__recover_fn: gives back idle memory of the thread, then of the cache, calls on_pressure, and empties
// the other caches.
bool tide__cpu_recover(tide_cpu_cache* cache, uint64_t bytes, uint32_t* step);
tide_status tide__cpu_start_helper(tide_cpu_cache* cache);
void tide__cpu_stop_helper(tide_cpu_cache* cache);

// ---------------------------------------------------------------------------------------------------
// cpu_stats.c, ending.c

// Counts the release of a block that is in no thread's tally.
void tide__cpu_count_release(tide_cpu_cache* cache, uint64_t bytes);
// Adds the tally of a thread cache, which the caller has entered, to the totals.
void tide__cpu_flush_tally(tide_cpu_cache* cache, tide__cpu_tcache* tcache);
// Releases a block whose cache is ending.
tide_status tide__orphan_release(tide__region* region, uint64_t address);

#endif
