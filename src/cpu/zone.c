// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Zones: the regions of one thread, or the common ones; there is seldom more than one. Memory goes back in
// three steps: blocks are taken out of the bins under the lock, the system is called without it, and they are
// put back as blocks without memory.
#include "base/error.h"
#include "base/sys.h"
#include "cpu/cache.h"
#include "cpu/region_blocks.h"

enum { ZONE_BATCH = 64 };  // blocks whose memory goes back at once

#define ZONE_LARGE_ADDRESSES ((uint64_t)16 << 30)
#define ZONE_SOURCE_BYTES ((uint64_t)8 << 20)

void tide__zone_init(tide__zone* zone, tide_cpu_cache* cache, tide__cpu_tcache* tcache) {
  const bool has_limit = tide__load_relaxed(&cache->max_cached_bytes) != TIDE_NO_LIMIT;
  *zone = (tide__zone){ .cache = cache, .tcache = tcache, .allowance = has_limit ? 0 : UINT64_MAX };
}

void tide__zone_lock(tide__zone* zone) TIDE_UNCHECKED_LOCKING {
  if (zone->tcache != NULL) tide__thread_cache_take(&zone->tcache->base);
  else tide__mutex_lock(&zone->cache->zone_lock);
}

void tide__zone_unlock(tide__zone* zone) TIDE_UNCHECKED_LOCKING {
  if (zone->tcache != NULL) tide__thread_cache_give(&zone->tcache->base);
  else tide__mutex_unlock(&zone->cache->zone_lock);
}

static uint32_t zone_stamp(const tide__zone* zone) { return tide__load_relaxed(&zone->cache->stamp); }

// ---------------------------------------------------------------------------------------------------
// Pages of the system, counted against max_bytes and in the statistics

static void pages_count(tide_cpu_cache* cache, int64_t pages) {
  const int64_t bytes = pages * (int64_t)TIDE__PAGE_BYTES;
  tide_stat* const stat = &cache->reserved_bytes;
  tide__mutex_lock(&cache->totals_lock);
  stat->current += bytes;
  if (bytes > 0) stat->allocated += bytes;
  else stat->freed -= bytes;
  if (stat->current > stat->peak) stat->peak = stat->current;
  tide__mutex_unlock(&cache->totals_lock);
}

static bool pages_charge(void* user, uint64_t pages) {
  tide_cpu_cache* const cache = user;
  const uint64_t most = tide__load_relaxed(&cache->max_bytes) >> TIDE__PAGE_SHIFT;
  uint64_t before = tide__load_relaxed(&cache->system_pages);
  do {
    if (pages > most || before > most - pages) return false;
  } while (!atomic_compare_exchange_weak_explicit(&cache->system_pages, &before, before + pages,
                                                  memory_order_acquire, memory_order_relaxed));
  pages_count(cache, (int64_t)pages);
  return true;
}

static void pages_uncharge(tide_cpu_cache* cache, uint64_t pages) {
  if (pages == 0) return;
  pages_count(cache, -(int64_t)pages);  // first, so that the statistic never exceeds max_bytes
  (void)atomic_fetch_sub_explicit(&cache->system_pages, pages, memory_order_release);
}

// ---------------------------------------------------------------------------------------------------
// Idle pages

// The idle pages of a region that could go back.
static uint64_t region_cached(const tide__region* region) {
  if (!region->has_purge) return region->used_pages == 0 ? region->page_count : 0;
  return region->resident_pages - region->used_pages;
}

// These enclose a change of a region.
static void zone_before(tide__zone* zone, const tide__region* region) {
  zone->idle_pages -= region_cached(region);
}

static void zone_after(tide__zone* zone, const tide__region* region) {
  zone->idle_pages += region_cached(region);
}

// ---------------------------------------------------------------------------------------------------
// Blocks

// In a region with has_purge, idle pages change by the pages taken; otherwise they are computed anew.
bool tide__zone_take(tide__zone* zone, uint64_t pages, uint64_t alignment, tide__page_block* out) {
  tide__region_place place = { 0 };
  *out = (tide__page_block){ 0 };
  for (tide__region* region = zone->regions; region != NULL; region = region->next) {
    if (region->is_single) continue;
    const bool has_purge = region->has_purge;
    if (!has_purge) zone_before(zone, region);
    const bool is_taken = tide__region_take(region, pages, alignment, pages_charge, zone->cache, &place);
    if (!has_purge) zone_after(zone, region);
    if (is_taken) {
      if (has_purge) zone->idle_pages -= pages - place.new_pages;
      if (place.new_pages > 0) tide__cpu_count(zone->cache, TIDE__CPU_num_misses, 1);
      out->address = tide__region_address(region, place.page);
      out->is_fresh = place.new_pages == pages;
      return true;
    }
    out->is_refused = place.is_refused;
    if (place.is_refused) return false;
  }
  return false;
}

void tide__zone_put(tide__zone* zone, tide__region* region, uint64_t page, uint32_t stamp) {
  if (!region->has_purge) zone_before(zone, region);
  const uint64_t has_memory = tide__region_put(region, page, stamp);
  if (region->has_purge) zone->idle_pages += has_memory;
  else zone_after(zone, region);
}

bool tide__zone_resize(tide__zone* zone, tide__region* region, uint64_t page, uint64_t pages) {
  zone_before(zone, region);
  const bool is_done = tide__region_resize(region, page, pages, zone_stamp(zone), pages_charge, zone->cache);
  zone_after(zone, region);
  return is_done;
}

void tide__zone_free_remote(tide__zone* zone, tide__region* region, uint64_t page) {
  uint32_t first = tide__load_relaxed(&region->remote_frees);
  do {
    region->pages[page].next = first;
  } while (!atomic_compare_exchange_weak_explicit(&region->remote_frees, &first, (uint32_t)page + 1,
                                                  memory_order_release, memory_order_relaxed));
  tide__store_release(&zone->has_remote_frees, 1);  // pairs with tide__zone_take_remote
}

void tide__zone_take_remote(tide__zone* zone) {
  (void)atomic_exchange_explicit(&zone->has_remote_frees, 0, memory_order_acquire);
  tide__store_relaxed(&zone->remote_bytes, 0);
  for (tide__region* region = zone->regions; region != NULL; region = region->next) {
    // pairs with tide__zone_free_remote
    uint32_t at = atomic_exchange_explicit(&region->remote_frees, 0, memory_order_acquire);
    while (at != 0) {
      const uint64_t page = at - 1;
      at = region->pages[page].next;
      tide__zone_put(zone, region, page, zone_stamp(zone));
    }
  }
}

// ---------------------------------------------------------------------------------------------------
// Regions

static void zone_link(tide__zone* zone, tide__region* region) {
  tide__region** link = &zone->regions;
  while (*link != NULL) link = &(*link)->next;
  *link = region;
  zone_after(zone, region);
}

static tide__region_need zone_need(const tide__zone* zone, uint64_t pages, bool is_single) {
  const tide_cpu_options* const options = &zone->cache->options;
  const bool is_system = options->memory.alloc == NULL;
  uint64_t bytes = options->region_bytes;
  if (bytes == 0) {
    bytes = !is_system             ? ZONE_SOURCE_BYTES
            : zone->tcache != NULL ? ZONE_LARGE_ADDRESSES
                                   : TIDE__WINDOW_SLOT_BYTES;
  }
  return (tide__region_need){ .pages = pages,
                              .bytes = is_single ? 0 : bytes,
                              .caches_id = zone->tcache == NULL && !is_single ? zone->cache->tcaches.id : 0,
                              .is_single = is_single,
                              .has_huge_pages = options->huge_pages && (zone->tcache != NULL || is_single) };
}

// Makes a region, which is in no list yet.
static tide_status zone_make_region(tide__zone* zone, uint64_t pages, bool is_single, tide__region** out) {
  tide_cpu_cache* const cache = zone->cache;
  const tide__region_need need = zone_need(zone, pages, is_single);
  TIDE_TRY(tide__region_new(&cache->options.memory, cache->heap, &need, zone, out));
  const uint64_t count = (*out)->page_count;
  if (!(*out)->has_purge && !pages_charge(cache, count)) {
    tide__region_free(*out, &cache->options.memory, cache->heap);
    *out = NULL;
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "%llu more pages are above max_bytes", (unsigned long long)count);
  }
  (void)tide__add_relaxed(&cache->address_bytes, count << TIDE__PAGE_SHIFT);
  return TIDE_OK;
}

tide_status tide__zone_open(tide__zone* zone, tide__region* region, uint64_t from, uint64_t pages) {
  uint64_t open = from;
  const tide_status status = pages > from ? tide__region_open(region, from, pages, &open) : TIDE_OK;
  tide__zone_lock(zone);
  region->busy_blocks--;
  region->open_pages = region->open_pages > open ? region->open_pages : open;
  tide__zone_unlock(zone);
  return status;
}

// Finds a region with addresses for `pages` at its top, and keeps it until they are open; NULL: none.
static tide__region* zone_hold_roomy(tide__zone* zone, uint64_t pages, uint64_t* out_from,
                                     uint64_t* out_end) {
  tide__zone_lock(zone);
  tide__region* region = zone->regions;
  for (; region != NULL; region = region->next) {
    const uint64_t top = tide__load_relaxed(&region->top);
    *out_from = region->open_pages;
    *out_end = top + pages;
    if (!region->is_single && *out_from < region->page_count && pages <= region->page_count - top) break;
  }
  if (region != NULL) region->busy_blocks++;
  tide__zone_unlock(zone);
  return region;
}

tide_status tide__zone_grow(tide__zone* zone, uint64_t pages) {
  uint64_t from = 0;
  uint64_t end = 0;
  tide__region* region = zone_hold_roomy(zone, pages, &from, &end);
  if (region != NULL) return tide__zone_open(zone, region, from, end);
  TIDE_TRY(zone_make_region(zone, pages, false, &region));
  tide__zone_lock(zone);
  zone_link(zone, region);
  tide__zone_unlock(zone);
  return TIDE_OK;
}

static void zone_free_region(tide_cpu_cache* cache, tide__region* region) {
  (void)tide__sub_seq(&cache->address_bytes, region->page_count << TIDE__PAGE_SHIFT);
  pages_uncharge(cache, region->resident_pages);
  tide__region_free(region, &cache->options.memory, cache->heap);
}

// How many ticks ago a block became idle. Its stamp may be newer than the cache's.
static uint32_t zone_age(const tide__zone* zone, uint32_t stamp) {
  const uint32_t age = (zone_stamp(zone) - stamp) & TIDE__STAMP_MASK;
  return age <= TIDE__STAMP_MASK / 2 ? age : 0;
}

// Can a region be freed? All of it has been idle for `age` ticks, and it was made for one block, or cannot
// give back a part of its memory, or is not the first.
static bool zone_is_unused(const tide__zone* zone, const tide__region* region, uint32_t age) {
  if (region->used_pages != 0 || region->busy_blocks != 0) return false;
  if (region->is_single) return true;
  if (tide__load_relaxed(&region->top) == 0) return age == 0;
  const bool is_extra = !region->has_purge || region != zone->regions;
  return is_extra && zone_age(zone, tide__tag_stamp(tide__load_relaxed(&region->pages[0].tag))) >= age;
}

static tide__region* zone_unlink_unused(tide__zone* zone, uint32_t age) {
  tide__region* unused = NULL;
  for (tide__region** link = &zone->regions; *link != NULL;) {
    tide__region* const region = *link;
    if (!zone_is_unused(zone, region, age)) {
      link = &region->next;
      continue;
    }
    zone_before(zone, region);
    *link = region->next;
    region->next = unused;
    unused = region;
  }
  return unused;
}

static void zone_free_unused(tide__zone* zone, tide__region* unused) {
  while (unused != NULL) {
    tide__region* const next = unused->next;
    tide__cpu_count(zone->cache, TIDE__CPU_num_evictions, 1);
    tide__cpu_count(zone->cache, TIDE__CPU_evicted_bytes, unused->resident_pages << TIDE__PAGE_SHIFT);
    zone_free_region(zone->cache, unused);
    unused = next;
  }
}

tide_status tide__zone_take_single(tide__zone* zone, uint64_t pages, uint64_t alignment,
                                   tide__page_block* out) {
  tide__region* region = NULL;
  tide__region_place place = { 0 };
  *out = (tide__page_block){ 0 };
  TIDE_TRY(zone_make_region(zone, pages + alignment - 1, true, &region));
  if (!tide__region_take(region, pages, alignment, pages_charge, zone->cache, &place)) {
    zone_free_region(zone->cache, region);
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "%llu more pages are above max_bytes", (unsigned long long)pages);
  }
  *out = (tide__page_block){ .address = tide__region_address(region, place.page),
                             .is_fresh = place.new_pages == pages };
  tide__zone_lock(zone);
  zone_link(zone, region);
  tide__zone_unlock(zone);
  return TIDE_OK;
}

void tide__zone_put_back(tide__zone* zone, tide__region* region, uint64_t page) {
  const bool is_single = region->is_single;
  tide__zone_lock(zone);
  tide__zone_put(zone, region, page, zone_stamp(zone));
  tide__region* const unused = is_single ? zone_unlink_unused(zone, UINT32_MAX) : NULL;
  tide__zone_unlock(zone);
  zone_free_unused(zone, unused);
}

void tide__zone_fini(tide__zone* zone) {
  while (zone->regions != NULL) {
    tide__region* const next = zone->regions->next;
    zone_free_region(zone->cache, zone->regions);
    zone->regions = next;
  }
}

// ---------------------------------------------------------------------------------------------------
// Giving memory back

typedef struct zone_purge {
  tide__region* region;
  uint64_t page;   // of the block
  uint64_t first;  // page that goes back, with all after it
  uint64_t end;
  bool is_done;
} zone_purge;

// The age of the oldest idle block with memory; UINT32_MAX: there is none.
static uint32_t zone_oldest(const tide__zone* zone) {
  uint32_t oldest = UINT32_MAX;
  for (const tide__region* region = zone->regions; region != NULL; region = region->next) {
    if (!region->has_purge || region->resident_pages == region->used_pages) continue;
    for (uint32_t bin = 0; bin < TIDE__REGION_BINS; bin++) {
      for (uint32_t at = region->bins[bin]; at != 0; at = region->pages[at - 1].next) {
        const uint64_t tag = tide__load_relaxed(&region->pages[at - 1].tag);
        const uint32_t age = zone_age(zone, tide__tag_stamp(tag));
        const bool is_older = oldest == UINT32_MAX || age > oldest;
        if (is_older && tide__region_resident(region, at - 1, tide__tag_pages(tag)) > 0) oldest = age;
      }
    }
  }
  return oldest;
}

// If a block has more memory than must go, its high end goes.
static zone_purge purge_plan(tide__region* region, uint64_t page, uint64_t wanted) {
  const uint64_t pages = tide__tag_pages(tide__load_relaxed(&region->pages[page].tag));
  const bool is_whole = wanted >= pages || tide__region_resident(region, page, pages) != pages;
  return (zone_purge){ region, page, is_whole ? page : page + pages - wanted, page + pages, false };
}

// Takes an idle block with memory, of at least `age` ticks, out of the bins; false if there is none.
static bool region_detach_old(const tide__zone* zone, tide__region* region, uint32_t age,
                              uint64_t* out_page) {
  for (uint32_t bin = tide__bin_next(region, 0); bin < TIDE__REGION_BINS;
       bin = tide__bin_next(region, bin + 1)) {
    for (uint32_t at = region->bins[bin]; at != 0; at = region->pages[at - 1].next) {
      const uint64_t tag = tide__load_relaxed(&region->pages[at - 1].tag);
      if (zone_age(zone, tide__tag_stamp(tag)) < age) continue;
      if (tide__region_resident(region, at - 1, tide__tag_pages(tag)) == 0) continue;
      tide__region_detach(region, at - 1);
      *out_page = at - 1;
      return true;
    }
  }
  return false;
}

// Takes blocks of at least `age` out of the bins while more than `bytes` would stay cached.
static int zone_detach(tide__zone* zone, uint32_t age, uint64_t bytes, zone_purge* batch) {
  uint64_t going = 0;
  int count = 0;
  for (tide__region* region = zone->regions; region != NULL; region = region->next) {
    if (!region->has_purge) continue;
    while (count < ZONE_BATCH && tide__zone_cached(zone) > bytes + (going << TIDE__PAGE_SHIFT)) {
      uint64_t page = 0;
      if (!region_detach_old(zone, region, age, &page)) break;
      const uint64_t excess = tide__zone_cached(zone) - bytes - (going << TIDE__PAGE_SHIFT);
      batch[count] = purge_plan(region, page, (excess + TIDE__PAGE_BYTES - 1) >> TIDE__PAGE_SHIFT);
      going += tide__region_resident(region, batch[count].first, batch[count].end - batch[count].first);
      count++;
    }
  }
  return count;
}

// Puts blocks back after the attempt to give their memory back.
static void zone_attach(tide__zone* zone, const zone_purge* batch, int count) {
  for (int i = 0; i < count; i++) {
    tide__region* const region = batch[i].region;
    uint64_t had = 0;
    zone_before(zone, region);
    if (batch[i].is_done) {
      had = tide__region_forget_memory(region, batch[i].first, batch[i].end - batch[i].first);
    }
    (void)tide__region_put(region, batch[i].page, zone_stamp(zone));
    zone_after(zone, region);
    pages_uncharge(zone->cache, had);
    tide__cpu_count(zone->cache, TIDE__CPU_num_evictions, had > 0 ? 1 : 0);
    tide__cpu_count(zone->cache, TIDE__CPU_evicted_bytes, had << TIDE__PAGE_SHIFT);
  }
}

void tide__zone_forget(tide__zone* zone, tide__region* region, uint64_t page) {
  if (!region->has_purge || region->is_single) {
    tide__zone_put_back(zone, region, page);
    return;
  }
  tide__zone_lock(zone);
  zone_before(zone, region);
  tide__region_make_busy(region, page);
  zone_after(zone, region);
  tide__zone_unlock(zone);
  const uint64_t pages = tide__tag_pages(tide__load_relaxed(&region->pages[page].tag));
  const uint64_t address = tide__region_address(region, page);
  const bool is_done = tide__sys_purge(address, pages << TIDE__PAGE_SHIFT) == 0;
  const zone_purge one = { region, page, page, page + pages, is_done };
  tide__zone_lock(zone);
  zone_attach(zone, &one, 1);
  tide__zone_unlock(zone);
}

// Gives one batch back. Returns false when there is nothing more to give back.
static bool zone_trim_turn(tide__zone* zone, uint64_t bytes, uint32_t age) {
  zone_purge batch[ZONE_BATCH];
  tide__zone_lock(zone);
  tide__zone_drain(zone);
  tide__region* unused = tide__zone_cached(zone) > bytes ? zone_unlink_unused(zone, age) : NULL;
  const uint32_t oldest = zone_oldest(zone);
  const bool is_due = oldest != UINT32_MAX && oldest >= age && tide__zone_cached(zone) > bytes;
  const int count = is_due ? zone_detach(zone, oldest, bytes, batch) : 0;
  tide__zone_unlock(zone);
  bool has_done = false;
  for (int i = 0; i < count; i++) {
    const uint64_t address = tide__region_address(batch[i].region, batch[i].first);
    const uint64_t pages = batch[i].end - batch[i].first;
    batch[i].is_done = tide__sys_purge(address, pages << TIDE__PAGE_SHIFT) == 0;
    has_done |= batch[i].is_done;
  }
  if (count > 0) {
    tide__zone_lock(zone);
    zone_attach(zone, batch, count);
    tide__zone_unlock(zone);
  }
  zone_free_unused(zone, unused);
  return has_done;
}

void tide__zone_trim(tide__zone* zone, uint64_t bytes, uint32_t age) {
  while (zone_trim_turn(zone, bytes, age)) {}
}
