// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The inline part of requests for pages and their release: bins, splitting and joining.
#ifndef TIDEMARK_SRC_CPU_REGION_BLOCKS_H
#define TIDEMARK_SRC_CPU_REGION_BLOCKS_H

#include "cpu/region.h"

enum { TIDE__REGION_LOOKS = 4 };  // blocks of one size class that are looked at

static inline uint64_t tide__region_top(const tide__region* region) {
  return tide__load_relaxed(&region->top);
}

// The number of pages of a range that have no memory. Usually all pages below the top have some.
static inline uint64_t tide__region_missing(const tide__region* region, uint64_t page, uint64_t pages) {
  if (region->resident_pages >= tide__region_top(region) && page + pages <= tide__region_top(region))
    return 0;
  return pages - tide__region_resident(region, page, pages);
}

// ---------------------------------------------------------------------------------------------------
// Bins

static inline uint64_t tide__page_tag(const tide__region* region, uint64_t page) {
  return tide__load_relaxed(&region->pages[page].tag);
}

// Relaxed, because a thread that releases a block got its address from the program after this store.
static inline void tide__page_set(tide__region* region, uint64_t page, uint64_t tag) {
  tide__store_relaxed(&region->pages[page].tag, tag);
}

static inline void tide__bin_put(tide__region* region, uint64_t page, uint64_t pages) {
  const uint32_t bin = tide__class_of(pages);
  const uint32_t first = region->bins[bin];
  region->pages[page].next = first;
  region->pages[page].previous = 0;
  if (first != 0) region->pages[first - 1].previous = (uint32_t)(page + 1);
  region->bins[bin] = (uint32_t)(page + 1);
  region->words[bin / 64] |= (uint64_t)1 << bin % 64;
}

static inline void tide__bin_take(tide__region* region, uint64_t page, uint64_t pages) {
  const tide__page* const record = &region->pages[page];
  const uint32_t bin = tide__class_of(pages);
  if (record->next != 0) region->pages[record->next - 1].previous = record->previous;
  if (record->previous != 0) {
    region->pages[record->previous - 1].next = record->next;
    return;
  }
  region->bins[bin] = record->next;
  if (record->next == 0) region->words[bin / 64] &= ~((uint64_t)1 << bin % 64);
}

// The smallest block of at least `pages` among the first of a bin: its page + 1, or 0.
static inline uint32_t tide__bin_look(const tide__region* region, uint32_t bin, uint64_t pages) {
  uint32_t best = 0;
  uint64_t best_pages = UINT64_MAX;
  uint32_t at = region->bins[bin];
  for (int i = 0; at != 0 && i < TIDE__REGION_LOOKS; i++, at = region->pages[at - 1].next) {
    const uint64_t found = tide__tag_pages(tide__page_tag(region, at - 1));
    if (found < pages || found >= best_pages) continue;
    best = at;
    best_pages = found;
    if (found == pages) break;
  }
  return best;
}

// The first bin from `bin` on that is not empty, or TIDE__REGION_BINS.
static inline uint32_t tide__bin_next(const tide__region* region, uint32_t bin) {
  const uint32_t words = sizeof region->words / sizeof *region->words;
  uint64_t bits = bin / 64 < words ? region->words[bin / 64] & (~(uint64_t)0 << bin % 64) : 0;
  for (uint32_t word = bin / 64; word < words;) {
    if (bits != 0) return word * 64 + (uint32_t)__builtin_ctzll(bits);
    if (++word < words) bits = region->words[word];
  }
  return TIDE__REGION_BINS;
}

// An idle block of at least `pages`: its page + 1, or 0. Any block of a larger class fits.
static inline uint32_t tide__region_find(const tide__region* region, uint64_t pages) {
  const uint32_t own = tide__class_of(pages);
  const uint32_t found = tide__bin_look(region, own, pages);
  if (found != 0) return found;
  const uint32_t larger = tide__bin_next(region, own + 1);
  return larger < TIDE__REGION_BINS ? region->bins[larger] : 0;
}

// ---------------------------------------------------------------------------------------------------
// Blocks

// Tags an idle block and puts it into its bin.
static inline void tide__region_make_idle(tide__region* region, uint64_t page, uint64_t pages,
                                          uint32_t stamp) {
  tide__page_set(region, page, tide__tag(TIDE__PAGE_IDLE, pages, stamp));
  if (pages > 1) tide__page_set(region, page + pages - 1, tide__tag(TIDE__PAGE_TAIL, pages, stamp));
  tide__bin_put(region, page, pages);
}

// Takes an idle block out of its bin and clears its tags.
static inline uint64_t tide__region_remove_idle(tide__region* region, uint64_t page) {
  const uint64_t pages = tide__tag_pages(tide__page_tag(region, page));
  tide__bin_take(region, page, pages);
  tide__page_set(region, page, 0);
  if (pages > 1) tide__page_set(region, page + pages - 1, 0);
  return pages;
}

static inline bool tide__page_is_idle(const tide__region* region, uint64_t page) {
  return page < tide__region_top(region) && tide__tag_kind(tide__page_tag(region, page)) == TIDE__PAGE_IDLE;
}

// The number of pages of the idle block that ends before a page; 0: there is none.
static inline uint64_t tide__region_idle_before(const tide__region* region, uint64_t page) {
  if (page == 0) return 0;
  const uint64_t tag = tide__page_tag(region, page - 1);
  const uint64_t pages = tide__tag_pages(tag);
  const bool is_one = tide__tag_kind(tag) == TIDE__PAGE_IDLE && pages == 1;
  return is_one || tide__tag_kind(tag) == TIDE__PAGE_TAIL ? pages : 0;
}

// ---------------------------------------------------------------------------------------------------
// Taking and putting back

// The fast path: an idle block serves the request, and every page has memory.
static inline bool tide__region_take_simply(tide__region* region, uint64_t pages, tide__region_place* out) {
  const uint32_t found = tide__region_find(region, pages);
  if (found == 0) return false;
  const uint64_t page = found - 1;
  const uint64_t tag = tide__page_tag(region, page);
  const uint64_t have = tide__tag_pages(tag);
  tide__bin_take(region, page, have);
  tide__page_set(region, page, tide__tag(TIDE__PAGE_LIVE, pages, 0));
  if (have > pages) tide__region_make_idle(region, page + pages, have - pages, tide__tag_stamp(tag));
  else if (pages > 1) tide__page_set(region, page + pages - 1, 0);
  region->used_pages += pages;
  out->page = page;
  return true;
}

// Does no page of an idle block have memory? Then its age does not matter.
static inline bool tide__region_is_bare(const tide__region* region, uint64_t page, uint64_t pages) {
  return region->has_purge && tide__region_missing(region, page, pages) == pages;
}

// A block that is being joined has the stamp of its widest part with memory.
typedef struct tide__region_join {
  uint32_t stamp;
  uint64_t widest;
} tide__region_join;

static inline uint64_t tide__region_join_with(tide__region* region, uint64_t page, tide__region_join* join) {
  const uint64_t tag = tide__page_tag(region, page);
  const uint64_t pages = tide__tag_pages(tag);
  if (pages > join->widest && !tide__region_is_bare(region, page, pages)) {
    *join = (tide__region_join){ tide__tag_stamp(tag), pages };
  }
  return tide__region_remove_idle(region, page);
}

// Makes a LIVE, RELEASED or BUSY block idle, and joins it with its neighbours. Returns how many of its pages
// have memory.
static inline uint64_t tide__region_put(tide__region* region, uint64_t page, uint32_t stamp) {
  const uint64_t tag = tide__page_tag(region, page);
  const uint64_t own = tide__tag_pages(tag);
  uint64_t pages = own;
  if (tide__tag_kind(tag) == TIDE__PAGE_BUSY) region->busy_blocks--;
  else region->used_pages -= own;
  const uint64_t has_memory = own - (region->has_purge ? tide__region_missing(region, page, own) : 0);
  tide__region_join join = { stamp, has_memory > 0 ? own : 0 };
  tide__page_set(region, page, 0);
  if (tide__page_is_idle(region, page + own)) pages += tide__region_join_with(region, page + own, &join);
  const uint64_t before = tide__region_idle_before(region, page);
  if (before > 0) {
    page -= before;
    pages += tide__region_join_with(region, page, &join);
  }
  tide__region_make_idle(region, page, pages, join.stamp);
  return has_memory;
}

#endif
