// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Blocks of pages in one region: bins, splitting and joining, and which pages have memory.
#include "cpu/region.h"

#include "base/arith.h"

enum { REGION_LOOKS = 16 };  // blocks of one size class that are looked at

static uint64_t region_top(const tide__region* region) { return tide__load_relaxed(&region->top); }

// ---------------------------------------------------------------------------------------------------
// Which pages have memory

// The bits of one word that belong to a range, and how many pages that is.
static uint64_t resident_mask(uint64_t page, uint64_t end, uint64_t* out_count) {
  const uint64_t first = page % 64;
  const uint64_t count = end - page < 64 - first ? end - page : 64 - first;
  *out_count = count;
  return (count == 64 ? ~(uint64_t)0 : (((uint64_t)1 << count) - 1)) << first;
}

uint64_t tide__region_resident(const tide__region* region, uint64_t page, uint64_t pages) {
  const uint64_t end = page + pages;
  uint64_t found = 0;
  for (uint64_t count = 0; page < end; page += count) {
    const uint64_t mask = resident_mask(page, end, &count);
    found += (uint64_t)__builtin_popcountll(region->resident[page / 64] & mask);
  }
  return found;
}

static void resident_set(tide__region* region, uint64_t page, uint64_t pages, bool has_memory) {
  const uint64_t end = page + pages;
  for (uint64_t count = 0; page < end; page += count) {
    const uint64_t mask = resident_mask(page, end, &count);
    if (has_memory) region->resident[page / 64] |= mask;
    else region->resident[page / 64] &= ~mask;
  }
}

// How many pages of a range have no memory. Most often all below the top have some.
static uint64_t resident_missing(const tide__region* region, uint64_t page, uint64_t pages) {
  if (region->resident_pages >= region_top(region) && page + pages <= region_top(region)) return 0;
  return pages - tide__region_resident(region, page, pages);
}

// ---------------------------------------------------------------------------------------------------
// Bins

static uint64_t page_tag(const tide__region* region, uint64_t page) {
  return tide__load_relaxed(&region->pages[page].tag);
}

static void page_set(tide__region* region, uint64_t page, uint64_t tag) {
  tide__store_release(&region->pages[page].tag, tag);  // pairs with who releases from another thread
}

static void bin_put(tide__region* region, uint64_t page, uint64_t pages) {
  const uint32_t bin = tide__class_of(pages);
  const uint32_t first = region->bins[bin];
  region->pages[page].next = first;
  region->pages[page].previous = 0;
  if (first != 0) region->pages[first - 1].previous = (uint32_t)(page + 1);
  region->bins[bin] = (uint32_t)(page + 1);
  region->words[bin / 64] |= (uint64_t)1 << bin % 64;
}

static void bin_take(tide__region* region, uint64_t page, uint64_t pages) {
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
static uint32_t bin_look(const tide__region* region, uint32_t bin, uint64_t pages) {
  uint32_t best = 0;
  uint64_t best_pages = UINT64_MAX;
  uint32_t at = region->bins[bin];
  for (int i = 0; at != 0 && i < REGION_LOOKS; i++, at = region->pages[at - 1].next) {
    const uint64_t found = tide__tag_pages(page_tag(region, at - 1));
    if (found < pages || found >= best_pages) continue;
    best = at;
    best_pages = found;
    if (found == pages) break;
  }
  return best;
}

// The first bin from `bin` on that is not empty, or TIDE__REGION_BINS.
static uint32_t bin_next(const tide__region* region, uint32_t bin) {
  const uint32_t words = sizeof region->words / sizeof *region->words;
  uint64_t bits = bin / 64 < words ? region->words[bin / 64] & (~(uint64_t)0 << bin % 64) : 0;
  for (uint32_t word = bin / 64; word < words;) {
    if (bits != 0) return word * 64 + (uint32_t)__builtin_ctzll(bits);
    if (++word < words) bits = region->words[word];
  }
  return TIDE__REGION_BINS;
}

// An idle block of at least `pages`: its page + 1, or 0.
static uint32_t bins_find(const tide__region* region, uint64_t pages) {
  const uint32_t own = tide__class_of(pages);
  for (uint32_t bin = bin_next(region, own); bin < TIDE__REGION_BINS; bin = bin_next(region, bin + 1)) {
    const uint32_t found = bin_look(region, bin, pages);
    if (found != 0) return found;
  }
  return 0;
}

// ---------------------------------------------------------------------------------------------------
// Blocks

// Writes the records of an idle block and puts it into its bin.
static void block_make_idle(tide__region* region, uint64_t page, uint64_t pages, uint32_t stamp) {
  page_set(region, page, tide__tag(TIDE__PAGE_IDLE, pages, stamp));
  if (pages > 1) page_set(region, page + pages - 1, tide__tag(TIDE__PAGE_TAIL, pages, stamp));
  bin_put(region, page, pages);
}

// Takes an idle block out of its bin and wipes its records.
static uint64_t block_remove_idle(tide__region* region, uint64_t page) {
  const uint64_t pages = tide__tag_pages(page_tag(region, page));
  bin_take(region, page, pages);
  page_set(region, page, 0);
  if (pages > 1) page_set(region, page + pages - 1, 0);
  return pages;
}

static bool page_is_idle(const tide__region* region, uint64_t page) {
  return page < region_top(region) && tide__tag_kind(page_tag(region, page)) == TIDE__PAGE_IDLE;
}

// The idle block that ends before a page: how many pages it has; 0: none.
static uint64_t block_idle_before(const tide__region* region, uint64_t page) {
  if (page == 0) return 0;
  const uint64_t tag = page_tag(region, page - 1);
  const uint64_t pages = tide__tag_pages(tag);
  const bool is_one = tide__tag_kind(tag) == TIDE__PAGE_IDLE && pages == 1;
  return is_one || tide__tag_kind(tag) == TIDE__PAGE_TAIL ? pages : 0;
}

// Where a block of `pages` would lie: in an idle block (`from`, `room`), or at the top, with what is idle
// just below it.
typedef struct region_room {
  uint64_t from;
  uint64_t room;
  uint64_t page;   // in it
  bool is_at_top;  // room is what must be there, not what is
} region_room;

static bool room_find(const tide__region* region, uint64_t pages, uint64_t alignment, region_room* out) {
  const uint64_t wide = pages + alignment - 1;
  const uint32_t found = bins_find(region, wide);
  const uint64_t below = found == 0 ? block_idle_before(region, region_top(region)) : 0;
  out->is_at_top = found == 0;
  out->from = found != 0 ? found - 1 : region_top(region) - below;
  const uint64_t first = region->address >> TIDE__PAGE_SHIFT;
  out->page = ((first + out->from + alignment - 1) & ~(alignment - 1)) - first;
  out->room = found != 0 ? tide__tag_pages(page_tag(region, out->from))
                         : tide__max(below, out->page + pages - out->from);
  return out->from + out->room <= region->page_count;
}

static void room_use(tide__region* region, const region_room* room, uint64_t pages, uint32_t stamp) {
  const uint64_t end = room->page + pages;
  const uint64_t room_end = room->from + room->room;
  if (page_is_idle(region, room->from)) (void)block_remove_idle(region, room->from);
  if (room->is_at_top) tide__store_relaxed(&region->top, room_end);
  if (room->page > room->from) block_make_idle(region, room->from, room->page - room->from, stamp);
  if (room_end > end) block_make_idle(region, end, room_end - end, stamp);
  page_set(region, room->page, tide__tag(TIDE__PAGE_LIVE, pages, 0));
  region->used_pages += pages;
}

bool tide__region_take(tide__region* region, uint64_t pages, uint64_t alignment, tide__region_charge charge,
                       void* user, tide__region_place* out) {
  region_room room;
  *out = (tide__region_place){ 0 };
  if (pages > region->page_count || alignment > region->page_count) return false;
  if (!room_find(region, pages, alignment, &room)) return false;
  const uint64_t missing = region->has_purge ? resident_missing(region, room.page, pages) : 0;
  out->page = room.page;
  out->new_pages = missing;
  out->is_refused = missing > 0 && !charge(user, missing);
  if (out->is_refused) return false;
  const uint32_t stamp = room.is_at_top ? 0 : tide__tag_stamp(page_tag(region, room.from));
  room_use(region, &room, pages, stamp);
  if (missing > 0) {
    resident_set(region, room.page, pages, true);
    region->resident_pages += missing;
  }
  return true;
}

uint64_t tide__region_put(tide__region* region, uint64_t page, uint32_t stamp) {
  const uint64_t tag = page_tag(region, page);
  const uint64_t own = tide__tag_pages(tag);
  uint64_t pages = own;
  uint64_t widest = own;
  if (tide__tag_kind(tag) == TIDE__PAGE_BUSY) region->busy_blocks--;
  else region->used_pages -= own;
  const uint64_t has_memory = own - (region->has_purge ? resident_missing(region, page, own) : 0);
  page_set(region, page, 0);
  if (page_is_idle(region, page + own)) {
    const uint32_t behind = tide__tag_stamp(page_tag(region, page + own));
    const uint64_t joined = block_remove_idle(region, page + own);
    if (joined > widest) stamp = behind;
    if (joined > widest) widest = joined;
    pages += joined;
  }
  const uint64_t before = block_idle_before(region, page);
  if (before > 0) {
    if (before > widest) stamp = tide__tag_stamp(page_tag(region, page - before));
    page -= before;
    pages += block_remove_idle(region, page);
  }
  block_make_idle(region, page, pages, stamp);
  return has_memory;
}

bool tide__region_resize(tide__region* region, uint64_t page, uint64_t pages, uint32_t stamp,
                         tide__region_charge charge, void* user) {
  const uint64_t own = tide__tag_pages(page_tag(region, page));
  const uint64_t end = page + own;
  if (pages == own) return true;
  if (pages < own) {
    page_set(region, page, tide__tag(TIDE__PAGE_LIVE, pages, 0));
    page_set(region, page + pages, tide__tag(TIDE__PAGE_LIVE, own - pages, 0));
    (void)tide__region_put(region, page + pages, stamp);
    return true;
  }
  const uint64_t more = pages - own;
  const uint64_t behind = page_is_idle(region, end) ? tide__tag_pages(page_tag(region, end)) : 0;
  const bool is_at_top = end + behind == region_top(region);
  if (behind < more && (!is_at_top || page + pages > region->page_count)) return false;
  const uint64_t missing = region->has_purge ? resident_missing(region, end, more) : 0;
  if (missing > 0 && !charge(user, missing)) return false;
  const uint32_t behind_stamp = behind > 0 ? tide__tag_stamp(page_tag(region, end)) : stamp;
  if (behind > 0) (void)block_remove_idle(region, end);
  if (behind > more) block_make_idle(region, end + more, behind - more, behind_stamp);
  if (end + more > region_top(region)) tide__store_relaxed(&region->top, end + more);
  if (missing > 0) resident_set(region, end, more, true);
  region->resident_pages += missing;
  page_set(region, page, tide__tag(TIDE__PAGE_LIVE, pages, 0));
  region->used_pages += more;
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Giving memory back

void tide__region_make_busy(tide__region* region, uint64_t page) {
  const uint64_t pages = tide__tag_pages(page_tag(region, page));
  page_set(region, page, tide__tag(TIDE__PAGE_BUSY, pages, 0));
  region->used_pages -= pages;
  region->busy_blocks++;
}

bool tide__region_detach(tide__region* region, uint32_t stamp, uint64_t* out_page) {
  for (uint32_t bin = bin_next(region, 0); bin < TIDE__REGION_BINS; bin = bin_next(region, bin + 1)) {
    for (uint32_t at = region->bins[bin]; at != 0; at = region->pages[at - 1].next) {
      const uint64_t tag = page_tag(region, at - 1);
      const uint64_t pages = tide__tag_pages(tag);
      if (tide__tag_stamp(tag) != stamp || tide__region_resident(region, at - 1, pages) == 0) continue;
      (void)block_remove_idle(region, at - 1);
      page_set(region, at - 1, tide__tag(TIDE__PAGE_BUSY, pages, stamp));
      region->busy_blocks++;
      *out_page = at - 1;
      return true;
    }
  }
  return false;
}

uint64_t tide__region_forget_memory(tide__region* region, uint64_t page, uint64_t pages) {
  const uint64_t had = tide__region_resident(region, page, pages);
  resident_set(region, page, pages, false);
  region->resident_pages -= had;
  return had;
}
