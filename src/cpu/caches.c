// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// All caches of the process, in the order they were made; what happens to them in a fork; and blocks that
// outlive their cache.
//
// A cache that was freed while blocks of it were handed out is ending: it has no users but those who release
// the blocks, and goes with the last of them.
#include <pthread.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/sys.h"
#include "cpu/cache.h"

static tide__mutex caches_lock = TIDE__MUTEX_INIT(TIDE__RANK_CACHES);
static tide_cpu* caches_first;  // borrowed; shared under caches_lock, like the links
static pthread_once_t caches_once = PTHREAD_ONCE_INIT;

// ---------------------------------------------------------------------------------------------------
// Forks: a child has only the thread that forked, and finds every cache as if nobody else had been at work

static void fork_lock_cache(tide_cpu* cache) {
  tide__fronts_before_fork(&cache->fronts);
  for (int i = 0; i < TIDE__SMALL_CLASSES; i++) tide__mutex_lock_for_fork(&cache->classes[i].lock);
  tide__mutex_lock_for_fork(&cache->zone_lock);
  tide__mutex_lock_for_fork(&cache->totals_lock);
}

static void fork_unlock_cache(tide_cpu* cache, bool is_child) {
  tide__mutex_unlock_for_fork(&cache->totals_lock);
  tide__mutex_unlock_for_fork(&cache->zone_lock);
  for (int i = TIDE__SMALL_CLASSES; i-- > 0;) tide__mutex_unlock_for_fork(&cache->classes[i].lock);
  tide__fronts_after_fork(&cache->fronts, is_child);
  if (!is_child) return;
  cache->has_helper = false;
  tide__store_relaxed(&cache->holds, 0);
}

static void fork_prepare(void) {
  tide__mutex_lock_for_fork(&caches_lock);
  tide__fronts_lock_all();
  tide__regions_lock();
  for (tide_cpu* cache = caches_first; cache != NULL; cache = cache->next) fork_lock_cache(cache);
}

static void fork_end(bool is_child) {
  for (tide_cpu* cache = caches_first; cache != NULL; cache = cache->next) {
    fork_unlock_cache(cache, is_child);
  }
  tide__regions_unlock();
  tide__fronts_unlock_all();
  tide__mutex_unlock_for_fork(&caches_lock);
}

static void fork_parent(void) { fork_end(false); }
static void fork_child(void) { fork_end(true); }

static void caches_start(void) { (void)pthread_atfork(fork_prepare, fork_parent, fork_child); }

// ---------------------------------------------------------------------------------------------------
// The list

void tide__caches_add(tide_cpu* cache) {
  (void)pthread_once(&caches_once, caches_start);
  tide__mutex_lock(&caches_lock);
  tide_cpu** link = &caches_first;
  while (*link != NULL) link = &(*link)->next;
  *link = cache;
  tide__mutex_unlock(&caches_lock);
}

void tide__caches_remove(tide_cpu* cache) {
  tide__mutex_lock(&caches_lock);
  tide_cpu** link = &caches_first;
  while (*link != cache) link = &(*link)->next;
  *link = cache->next;
  tide__mutex_unlock(&caches_lock);
}

tide_cpu* tide__caches_hold_next(tide_cpu* cache) {
  tide__mutex_lock(&caches_lock);
  tide_cpu* next = cache != NULL ? cache->next : caches_first;
  while (next != NULL && tide__load_relaxed(&next->is_ending) != 0) next = next->next;
  if (next != NULL) tide__cpu_hold(next);
  tide__mutex_unlock(&caches_lock);
  if (cache != NULL) tide__cpu_drop(cache);
  return next;
}

tide_status tide_cpu_trim_all(uint64_t bytes) {
  uint64_t all = 0;
  for (tide_cpu* cache = NULL; (cache = tide__caches_hold_next(cache)) != NULL;)
    all += tide__cpu_cached(cache);
  for (tide_cpu* cache = NULL; (cache = tide__caches_hold_next(cache)) != NULL;) {
    const uint64_t others = all - tide__min(all, tide__cpu_cached(cache));
    tide__cpu_trim(cache, bytes - tide__min(bytes, others));
    all = others + tide__cpu_cached(cache);
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The end of a cache

static void ending_destroy(tide_cpu* cache) {
  tide__caches_remove(cache);
  for (tide__front* front = tide__fronts_first(&cache->fronts); front != NULL; front = front->next) {
    tide__zone_fini(&((tide__cpu_front*)front)->zone);
  }
  tide__slabs_fini(cache);
  tide__zone_fini(&cache->zone);
  tide__fronts_fini(&cache->fronts);
  tide__heap_release(cache->heap, cache, 1, sizeof *cache);
}

// No thread is at work in the cache any more when this returns.
static void ending_wait(tide_cpu* cache) {
  tide__store_seq(&cache->is_ending, 1);
  tide__fronts_close(&cache->fronts);
  for (tide__front* front = tide__fronts_first(&cache->fronts); front != NULL; front = front->next) {
    tide__front_take(front);
    tide__front_make_slow(front);
    tide__front_give(front);
  }
  while (tide__load_seq(&cache->holds) != 0) tide__sys_sleep_ns(20000);
}

// Ends `count` of what keeps an ending cache; with the last the cache goes.
static void ending_release(tide_cpu* cache, uint64_t count) {
  const uint64_t before = atomic_fetch_sub_explicit(&cache->orphans, count, memory_order_acq_rel);
  if (before == count) ending_destroy(cache);
}

// The count of orphans begins with more than there can be, so that the cache stays until it is known.
void tide_cpu_free(tide_cpu* cache, uint64_t* out_orphans) {
  const uint64_t unknown = (uint64_t)1 << 62;
  tide_cpu_stats stats = TIDE_CPU_STATS_INIT;
  if (out_orphans != NULL) *out_orphans = 0;
  if (cache == NULL) return;
  tide__cpu_stop_helper(cache);
  tide__store_relaxed(&cache->orphans, unknown);
  ending_wait(cache);
  tide__ignore(tide_cpu_get_stats(cache, &stats));
  const uint64_t orphans = (uint64_t)stats.live.current;  // it stays: see tide__cpu_release_slowly
  tide__cpu_trim(cache, 0);
  if (out_orphans != NULL) *out_orphans = orphans;
  ending_release(cache, unknown - orphans);
}

// The memory of an orphan goes back before it is counted as gone, because with the last one the cache goes.
tide_status tide__orphan_release(tide__region* region, uint64_t address) {
  tide_cpu* const cache = region->zone->cache;
  TIDE_TRY(tide__cpu_release_slowly(region, address, TIDE__RELEASE_ORPHAN));
  tide__cpu_trim(cache, 0);
  ending_release(cache, 1);
  return TIDE_OK;
}
