// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Checks the invariants of a cache. Numbers 1 to 4 are R1 to R4 of region.h (1 includes R5), 5 is Z1 of
// zone.h, 6 is about slabs, 7 about magazines, 8 about the sums over all regions.
#include "base/error.h"
#include "cpu/cache.h"

enum {
  CHECK_BLOCKS = 1,
  CHECK_BINS,
  CHECK_RESIDENT,
  CHECK_USED,
  CHECK_IDLE,
  CHECK_SLABS,
  CHECK_MAGAZINES,
  CHECK_SUMS
};

// Sums over all regions.
typedef struct check_sums {
  uint64_t resident_pages;
  uint64_t page_blocks;  // live blocks of pages
  uint64_t slab_pages;
} check_sums;

static int check_fail(int invariant, const char* text, uint64_t found, uint64_t wanted) {
  (void)TIDE_FAIL(TIDE_ERR_STATE, "invariant %d: %s: %llu, not %llu", invariant, text,
                  (unsigned long long)found, (unsigned long long)wanted);
  return invariant;
}

// Returns how many pages a block has; 0: it is broken.
static uint64_t check_block(const tide__region* region, uint64_t page, bool was_idle, uint64_t* idle,
                            check_sums* sums) {
  const uint64_t tag = tide__load_relaxed(&region->pages[page].tag);
  const tide__page_kind kind = tide__tag_kind(tag);
  const uint64_t pages = tide__tag_pages(tag);
  if (kind == TIDE__PAGE_SLAB) {
    sums->slab_pages++;
    return 1;
  }
  if (kind == TIDE__PAGE_IDLE) {
    const uint64_t tail = tide__load_relaxed(&region->pages[page + pages - 1].tag);
    *idle += pages;
    if (was_idle || (pages > 1 && tide__tag_kind(tail) != TIDE__PAGE_TAIL)) return 0;
    return pages > 1 && tide__tag_pages(tail) != pages ? 0 : pages;
  }
  sums->page_blocks += kind == TIDE__PAGE_LIVE;
  return kind == TIDE__PAGE_LIVE || kind == TIDE__PAGE_RELEASED ? pages : 0;
}

static uint64_t check_bins(const tide__region* region) {
  uint64_t pages = 0;
  for (uint32_t bin = 0; bin < TIDE__REGION_BINS; bin++) {
    const bool has_bit = (region->words[bin / 64] >> bin % 64 & 1u) != 0;
    if (has_bit != (region->bins[bin] != 0)) return UINT64_MAX;
    for (uint32_t at = region->bins[bin]; at != 0; at = region->pages[at - 1].next) {
      const uint64_t tag = tide__load_relaxed(&region->pages[at - 1].tag);
      if (tide__tag_kind(tag) != TIDE__PAGE_IDLE || tide__class_of(tide__tag_pages(tag)) != bin) {
        return UINT64_MAX;
      }
      pages += tide__tag_pages(tag);
    }
  }
  return pages;
}

static int check_region(const tide__region* region, check_sums* sums) {
  const uint64_t top = tide__load_relaxed(&region->top);
  uint64_t idle = 0;
  bool was_idle = false;
  for (uint64_t page = 0; page < top;) {
    const uint64_t before = idle;
    const uint64_t pages = check_block(region, page, was_idle, &idle, sums);
    if (pages == 0 || page + pages > top) return check_fail(CHECK_BLOCKS, "a block at page", page, top);
    was_idle = idle != before;
    page += pages;
  }
  if (top > region->open_pages || region->open_pages > region->page_count) {
    return check_fail(CHECK_BLOCKS, "pages that are open", region->open_pages, top);
  }
  const uint64_t in_bins = check_bins(region);
  if (in_bins != idle) return check_fail(CHECK_BINS, "pages in the bins", in_bins, idle);
  const uint64_t resident = tide__region_resident(region, 0, region->has_purge ? top : region->page_count);
  if (resident != region->resident_pages) {
    return check_fail(CHECK_RESIDENT, "pages with memory", region->resident_pages, resident);
  }
  if (region->used_pages + idle != top)
    return check_fail(CHECK_USED, "used pages", region->used_pages, top - idle);
  sums->resident_pages += resident;
  return 0;
}

static int check_zone(const tide__zone* zone, check_sums* sums) {
  uint64_t idle = 0;
  for (const tide__region* region = zone->regions; region != NULL; region = region->next) {
    const int broken = check_region(region, sums);
    if (broken != 0) return broken;
    if (region->has_purge) idle += region->resident_pages - region->used_pages;
    else if (region->used_pages == 0) idle += region->page_count;
  }
  return idle == zone->idle_pages ? 0 : check_fail(CHECK_IDLE, "idle pages", zone->idle_pages, idle);
}

static int check_magazines(const tide__cpu_tcache* tcache) {
  for (uint32_t i = 0; i < TIDE__SMALL_CLASSES; i++) {
    const uint32_t count = tide__cpu_magazine_count(tcache, i);
    if (tcache->magazines[i].top > tcache->magazines[i].end ||
        tcache->objects[i][0].mark != &tcache->no_mark) {
      return check_fail(CHECK_MAGAZINES, "objects in a magazine", count, TIDE__MAGAZINE_ITEMS);
    }
    for (uint32_t k = 1; k <= count; k++) {
      const uint8_t mark = tide__load_relaxed(tcache->objects[i][k].mark);
      if (mark != tide__mark_idle(i))
        return check_fail(CHECK_MAGAZINES, "the mark of an idle object", mark, i + 1);
    }
  }
  return 0;
}

static int check_slab(const tide__slab* slab) {
  uint32_t free_count = 0;
  for (uint32_t i = 0; i < slab->capacity; i++) {
    const bool is_free = (slab->free_words[i / 64] >> i % 64 & 1u) != 0;
    free_count += is_free;
    if (is_free && tide__load_relaxed(tide__slab_mark(slab, i)) != TIDE__MARK_NONE) {
      return check_fail(CHECK_SLABS, "a free object is in use", i, 0);
    }
  }
  return free_count == slab->free_count && free_count > 0
             ? 0
             : check_fail(CHECK_SLABS, "free objects of a slab", slab->free_count, free_count);
}

static int check_slabs(tide_cpu_cache* cache, const check_sums* sums) {
  uint64_t pages = 0;
  for (uint32_t i = 0; i < TIDE__SMALL_CLASSES; i++) {
    for (const tide__slab* slab = cache->classes[i].listed; slab != NULL; slab = slab->next) {
      const int broken = check_slab(slab);
      if (broken != 0) return broken;
    }
    pages += cache->classes[i].slab_count * cache->classes[i].slab_pages;
  }
  return pages == sums->slab_pages ? 0 : check_fail(CHECK_SLABS, "pages of slabs", sums->slab_pages, pages);
}

static int check_sums_agree(tide_cpu_cache* cache, const check_sums* sums) {
  const uint64_t system_pages = tide__load_relaxed(&cache->system_pages);
  const uint64_t live = (uint64_t)cache->active.current;
  if (system_pages != sums->resident_pages) {
    return check_fail(CHECK_SUMS, "pages of the system", system_pages, sums->resident_pages);
  }
  return live >= sums->page_blocks ? 0 : check_fail(CHECK_SUMS, "live blocks", live, sums->page_blocks);
}

static int check_all(tide_cpu_cache* cache) {
  check_sums sums = { 0 };
  tide_cpu_stats stats = TIDE_CPU_STATS_INIT;
  int broken = 0;
  tide__ignore(tide_cpu_get_stats(cache, &stats));
  for (tide__zone* zone = NULL; broken == 0 && (zone = tide__zones_next(cache, zone)) != NULL;) {
    tide__zone_lock(zone);
    if (zone->tcache != NULL) broken = check_magazines(zone->tcache);
    if (broken == 0) broken = check_zone(zone, &sums);
    tide__zone_unlock(zone);
  }
  if (broken == 0) broken = check_slabs(cache, &sums);
  return broken != 0 ? broken : check_sums_agree(cache, &sums);
}

// The helper is stopped meanwhile.
int tide_cpu_check(tide_cpu_cache* cache) {
  if (cache == NULL) return check_fail(CHECK_SUMS, "caches", 0, 1);
  const bool had_helper = cache->has_helper;
  tide__cpu_stop_helper(cache);
  const int broken = check_all(cache);
  if (had_helper) tide__ignore(tide__cpu_start_helper(cache));
  return broken;
}
