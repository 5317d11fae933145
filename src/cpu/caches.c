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
static _Atomic(tide_cpu*) caches_default;  // owned, never freed

// ---------------------------------------------------------------------------------------------------
// Forks: a child has only the thread that forked, and finds every cache as if nobody else had been at work

static void fork_lock_cache(tide_cpu* cache) {
  tide__thread_caches_before_fork(&cache->tcaches);
  for (int i = 0; i < TIDE__SMALL_CLASSES; i++) tide__mutex_lock_many(&cache->classes[i].lock);
  tide__mutex_lock_many(&cache->zone_lock);
  tide__mutex_lock_many(&cache->totals_lock);
}

static void fork_unlock_cache(tide_cpu* cache, bool is_child) {
  tide__mutex_unlock_many(&cache->totals_lock);
  tide__mutex_unlock_many(&cache->zone_lock);
  for (int i = TIDE__SMALL_CLASSES; i-- > 0;) tide__mutex_unlock_many(&cache->classes[i].lock);
  tide__thread_caches_after_fork(&cache->tcaches, is_child);
  if (!is_child) return;
  cache->has_helper = false;
  tide__store_relaxed(&cache->holds, 0);
}

static void fork_prepare(void) {
  tide__mutex_lock_many(&caches_lock);
  tide__thread_caches_lock_all();
  tide__regions_lock();
  for (tide_cpu* cache = caches_first; cache != NULL; cache = cache->next) fork_lock_cache(cache);
}

static void fork_end(bool is_child) {
  for (tide_cpu* cache = caches_first; cache != NULL; cache = cache->next) {
    fork_unlock_cache(cache, is_child);
  }
  tide__regions_unlock();
  tide__thread_caches_unlock_all();
  tide__mutex_unlock_many(&caches_lock);
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

// Of several threads that make one at the same time, one is first; so no lock is held, and a fork finds none.
tide_status tide_cpu_default(tide_cpu** out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "cpu_default: the result is NULL");
  *out = tide__load_acquire(&caches_default);  // pairs with the exchange below
  if (*out != NULL) return TIDE_OK;
  tide_cpu* made = NULL;
  TIDE_TRY(tide_cpu_new(NULL, &made));
  if (atomic_compare_exchange_strong_explicit(&caches_default, out, made, memory_order_acq_rel,
                                              memory_order_acquire)) {
    *out = made;
    return TIDE_OK;
  }
  tide_cpu_free(made, NULL);
  return TIDE_OK;
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
  for (tide__thread_cache* tcache = tide__thread_caches_first(&cache->tcaches); tcache != NULL;
       tcache = tcache->next) {
    tide__zone_fini(&((tide__cpu_tcache*)tcache)->zone);
  }
  tide__zone_fini(&cache->zone);  // nobody finds a slab by an address any more
  tide__slabs_fini(cache);
  tide__thread_caches_fini(&cache->tcaches);
  tide__heap_release(cache->heap, cache, 1, sizeof *cache);
}

// No thread is at work in the cache any more when this returns.
static void ending_wait(tide_cpu* cache) {
  tide__store_seq(&cache->is_ending, 1);
  tide__thread_caches_close(&cache->tcaches);
  for (tide__thread_cache* tcache = tide__thread_caches_first(&cache->tcaches); tcache != NULL;
       tcache = tcache->next) {
    tide__thread_cache_take(tcache);
    tide__thread_cache_make_slow(tcache);
    tide__thread_cache_give(tcache);
  }
  while (tide__load_seq(&cache->holds) != 0) tide__sys_sleep_ns(20000);
}

// Ends one of what keeps an ending cache; with the last the cache goes.
static void ending_release(tide_cpu* cache) {
  if (atomic_fetch_sub_explicit(&cache->orphans, 1, memory_order_acq_rel) == 1) ending_destroy(cache);
}

// Blocks that are handed out, by what the regions of a zone say: statistics may have been misled by a program
// that released a block twice at once. Nobody is at work in the zone.
static uint64_t ending_count_live(const tide__zone* zone) {
  uint64_t live = 0;
  for (const tide__region* region = zone->regions; region != NULL; region = region->next) {
    const uint64_t top = tide__load_relaxed(&region->top);
    for (uint64_t page = 0; page < top; page++) {
      live += tide__tag_kind(tide__load_relaxed(&region->pages[page].tag)) == TIDE__PAGE_LIVE ? 1 : 0;
    }
    const uint64_t marks = region->marks != NULL ? top << TIDE__PAGE_SHIFT >> TIDE__MARK_SHIFT : 0;
    for (uint64_t i = 0; i < marks; i++)
      live += tide__load_relaxed(&region->marks[i]) >= TIDE__MARK_LIVE ? 1 : 0;
  }
  return live;
}

static uint64_t ending_count_orphans(tide_cpu* cache) {
  uint64_t live = ending_count_live(&cache->zone);
  for (tide__thread_cache* tcache = tide__thread_caches_first(&cache->tcaches); tcache != NULL;
       tcache = tcache->next) {
    live += ending_count_live(&((const tide__cpu_tcache*)tcache)->zone);
  }
  return live;
}

void tide_cpu_free(tide_cpu* cache, uint64_t* out_orphans) {
  if (out_orphans != NULL) *out_orphans = 0;
  if (cache == NULL || cache == tide__load_relaxed(&caches_default)) return;
  tide__cpu_stop_helper(cache);
  ending_wait(cache);
  const uint64_t orphans = ending_count_orphans(cache);
  if (out_orphans != NULL) *out_orphans = orphans;
  tide__store_relaxed(&cache->orphans, orphans + 1);  // the cache stays until this is done
  tide__store_seq(&cache->is_counted, 1);
  tide__cpu_trim(cache, 0);
  ending_release(cache);
}

// The memory of an orphan goes back before it is counted as gone, because with the last one the cache goes.
tide_status tide__orphan_release(tide__region* region, uint64_t address) {
  tide_cpu* const cache = region->zone->cache;
  while (tide__load_seq(&cache->is_counted) == 0) tide__sys_sleep_ns(20000);
  TIDE_TRY(tide__cpu_release_slowly(region, address, TIDE__RELEASE_ORPHAN));
  tide__cpu_trim(cache, 0);
  ending_release(cache);
  return TIDE_OK;
}
