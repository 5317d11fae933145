// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The end of a cache, and blocks that outlive it. A cache that was freed while blocks of it were handed out
// is ending: only releases of these blocks still use it, and it goes with the last of them.
#include "cpu/ending.h"

#include "base/error.h"
#include "base/sys.h"
#include "cpu/caches.h"
#include "cpu/cpu_release.h"
#include "cpu/upkeep.h"
#include "cpu/limits.h"

static void ending_destroy(tide_cpu_cache* cache) {
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
static void ending_wait(tide_cpu_cache* cache) {
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
static void ending_release(tide_cpu_cache* cache) {
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

static uint64_t ending_count_orphans(tide_cpu_cache* cache) {
  uint64_t live = ending_count_live(&cache->zone);
  for (tide__thread_cache* tcache = tide__thread_caches_first(&cache->tcaches); tcache != NULL;
       tcache = tcache->next) {
    live += ending_count_live(&((const tide__cpu_tcache*)tcache)->zone);
  }
  return live;
}

void tide_cpu_free(tide_cpu_cache* cache, uint64_t* out_orphans) {
  if (out_orphans != NULL) *out_orphans = 0;
  if (cache == NULL) return;
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
  tide_cpu_cache* const cache = region->zone->cache;
  while (tide__load_seq(&cache->is_counted) == 0) tide__sys_sleep_ns(20000);
  TIDE_TRY(tide__cpu_release_slowly(region, address, TIDE__RELEASE_ORPHAN));
  tide__cpu_trim(cache, 0);
  ending_release(cache);
  return TIDE_OK;
}
