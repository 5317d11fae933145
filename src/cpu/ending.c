// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The end of a cache, and blocks that outlive it. A cache that is freed while blocks are handed out is
// ending: only releases of these blocks still use it, and the last one destroys it.
#include "base/error.h"
#include "base/sys.h"
#include "cpu/cpu_release.h"

static void ending_destroy(tide_cpu_cache* cache) {
  const tide_heap* const heap = cache->heap;
  tide__caches_remove(cache);
  for (tide__zone* zone = NULL; (zone = tide__zones_next(cache, zone)) != NULL;) tide__zone_fini(zone);
  tide__slabs_fini(cache);  // after the regions, through which slabs are found
  tide__thread_caches_fini(&cache->tcaches);
  tide__heap_release(heap, cache, 1, sizeof *cache);
}

// When this returns, no thread works in the cache any more.
static void ending_wait(tide_cpu_cache* cache) {
  tide__store_seq(&cache->is_ending, 1);
  tide__thread_caches_close(&cache->tcaches);
  for (tide__thread_cache* at = tide__thread_caches_first(&cache->tcaches); at != NULL; at = at->next) {
    tide__thread_cache_take(at);
    tide__thread_cache_make_slow(at);
    tide__thread_cache_give(at);
  }
  while (tide__load_seq(&cache->holds) != 0) tide__sys_sleep_ns(20000);
}

// Drops one reference to an ending cache; the last one destroys it.
static void ending_release(tide_cpu_cache* cache) {
  if (atomic_fetch_sub_explicit(&cache->orphans, 1, memory_order_acq_rel) == 1) ending_destroy(cache);
}

// Counts the live blocks of a zone by its regions. Statistics may be wrong in a program that released a block
// twice at the same moment. No thread works in the zone.
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

void tide_cpu_free(tide_cpu_cache* cache, uint64_t* out_orphans) {
  if (out_orphans != NULL) *out_orphans = 0;
  if (cache == NULL) return;
  tide__monitored_remove(&cache->monitored);
  tide__cpu_stop_helper(cache);
  ending_wait(cache);
  uint64_t orphans = 0;
  for (tide__zone* zone = NULL; (zone = tide__zones_next(cache, zone)) != NULL;) {
    orphans += ending_count_live(zone);
  }
  if (out_orphans != NULL) *out_orphans = orphans;
  tide__store_relaxed(&cache->orphans, orphans + 1);  // one for this call
  tide__store_seq(&cache->is_counted, 1);
  tide__cpu_trim(cache, 0);
  ending_release(cache);
}

// The memory goes back before the reference is dropped, because the last one destroys the cache.
tide_status tide__orphan_release(tide__region* region, uint64_t address) {
  tide_cpu_cache* const cache = region->zone->cache;
  while (tide__load_seq(&cache->is_counted) == 0) tide__sys_sleep_ns(20000);
  TIDE_TRY(tide__cpu_release_slowly(region, address, TIDE__RELEASE_ORPHAN));
  tide__cpu_trim(cache, 0);
  ending_release(cache);
  return TIDE_OK;
}
