// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Blocks of pages in one region: the slow path, and which pages have memory.
#include "cpu/region_blocks.h"

#include "base/arith.h"

// ---------------------------------------------------------------------------------------------------
// Which pages have memory

// The bits of one word that belong to a range, and their number.
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

// ---------------------------------------------------------------------------------------------------
// Blocks

// Where a new block would lie: in an idle block, or at the top together with the idle block just below it.
typedef struct region_room {
  uint64_t from;  // the first page of the room
  uint64_t room;  // its pages; at the top, those that are needed
  uint64_t page;  // the first page of the block
  bool is_at_top;
} region_room;

static bool room_find(const tide__region* region, uint64_t pages, uint64_t alignment, region_room* out) {
  const uint64_t wide = pages + alignment - 1;
  const uint32_t found = tide__region_find(region, wide);
  const uint64_t below = found == 0 ? tide__region_idle_before(region, tide__region_top(region)) : 0;
  out->is_at_top = found == 0;
  out->from = found != 0 ? found - 1 : tide__region_top(region) - below;
  const uint64_t first = region->address >> TIDE__PAGE_SHIFT;
  out->page = ((first + out->from + alignment - 1) & ~(alignment - 1)) - first;
  out->room = found != 0 ? tide__tag_pages(tide__page_tag(region, out->from))
                         : tide__max(below, out->page + pages - out->from);
  return out->from + out->room <= region->open_pages;
}

static void room_use(tide__region* region, const region_room* room, uint64_t pages, uint32_t stamp) {
  const uint64_t end = room->page + pages;
  const uint64_t room_end = room->from + room->room;
  if (tide__page_is_idle(region, room->from)) (void)tide__region_remove_idle(region, room->from);
  if (room->is_at_top) tide__store_relaxed(&region->top, room_end);
  if (room->page > room->from) tide__region_make_idle(region, room->from, room->page - room->from, stamp);
  if (room_end > end) tide__region_make_idle(region, end, room_end - end, stamp);
  tide__page_set(region, room->page, tide__tag(TIDE__PAGE_LIVE, pages, 0));
  region->used_pages += pages;
}

bool tide__region_take(tide__region* region, uint64_t pages, uint64_t alignment, tide__region_charge charge,
                       void* user, tide__region_place* out) {
  region_room room;
  *out = (tide__region_place){ 0 };
  const bool is_full = region->resident_pages >= tide__region_top(region);
  if (alignment == 1 && is_full && tide__region_take_simply(region, pages, out)) return true;
  if (pages > region->open_pages || alignment > region->page_count) return false;
  if (!room_find(region, pages, alignment, &room)) return false;
  const uint64_t missing = region->has_purge ? tide__region_missing(region, room.page, pages) : 0;
  out->page = room.page;
  out->new_pages = missing;
  out->is_refused = missing > 0 && !charge(user, missing);
  if (out->is_refused) return false;
  const uint32_t stamp = room.is_at_top ? 0 : tide__tag_stamp(tide__page_tag(region, room.from));
  room_use(region, &room, pages, stamp);
  if (missing > 0) {
    resident_set(region, room.page, pages, true);
    region->resident_pages += missing;
  }
  return true;
}

// The idle pages behind a block that ends at a page.
static uint64_t region_idle_at(const tide__region* region, uint64_t page) {
  return tide__page_is_idle(region, page) ? tide__tag_pages(tide__page_tag(region, page)) : 0;
}

bool tide__region_resize(tide__region* region, uint64_t page, uint64_t pages, uint32_t stamp,
                         tide__region_charge charge, void* user) {
  const uint64_t own = tide__tag_pages(tide__page_tag(region, page));
  const uint64_t end = page + own;
  if (pages == own) return true;
  if (pages < own) {
    tide__page_set(region, page, tide__tag(TIDE__PAGE_LIVE, pages, 0));
    tide__page_set(region, page + pages, tide__tag(TIDE__PAGE_LIVE, own - pages, 0));
    (void)tide__region_put(region, page + pages, stamp);
    return true;
  }
  const uint64_t more = pages - own;
  const uint64_t behind = region_idle_at(region, end);
  const bool is_at_top = end + behind == tide__region_top(region);
  if (behind < more && (!is_at_top || page + pages > region->open_pages)) return false;
  const uint64_t missing = region->has_purge ? tide__region_missing(region, end, more) : 0;
  if (missing > 0 && !charge(user, missing)) return false;
  const uint32_t behind_stamp = behind > 0 ? tide__tag_stamp(tide__page_tag(region, end)) : stamp;
  if (behind > 0) (void)tide__region_remove_idle(region, end);
  if (behind > more) tide__region_make_idle(region, end + more, behind - more, behind_stamp);
  if (end + more > tide__region_top(region)) tide__store_relaxed(&region->top, end + more);
  if (missing > 0) resident_set(region, end, more, true);
  region->resident_pages += missing;
  tide__page_set(region, page, tide__tag(TIDE__PAGE_LIVE, pages, 0));
  region->used_pages += more;
  return true;
}

bool tide__region_needs_open(const tide__region* region, uint64_t page, uint64_t pages) {
  const uint64_t end = page + tide__tag_pages(tide__page_tag(region, page));
  const bool is_at_top = end + region_idle_at(region, end) == tide__region_top(region);
  return is_at_top && page + pages > region->open_pages && page + pages <= region->page_count;
}

// ---------------------------------------------------------------------------------------------------
// Giving memory back

void tide__region_make_busy(tide__region* region, uint64_t page) {
  const uint64_t pages = tide__tag_pages(tide__page_tag(region, page));
  tide__page_set(region, page, tide__tag(TIDE__PAGE_BUSY, pages, 0));
  region->used_pages -= pages;
  region->busy_blocks++;
}

void tide__region_detach(tide__region* region, uint64_t page) {
  const uint32_t stamp = tide__tag_stamp(tide__page_tag(region, page));
  const uint64_t pages = tide__region_remove_idle(region, page);
  tide__page_set(region, page, tide__tag(TIDE__PAGE_BUSY, pages, stamp));
  region->busy_blocks++;
}

uint64_t tide__region_forget_memory(tide__region* region, uint64_t page, uint64_t pages) {
  const uint64_t had = tide__region_resident(region, page, pages);
  resident_set(region, page, pages, false);
  region->resident_pages -= had;
  return had;
}
