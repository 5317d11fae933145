// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What is at an address.
#include "base/arith.h"
#include "cpu/cache.h"

// Beyond the top of a region there is no memory.
bool tide_cpu_owns(const void* pointer) {
  const uint64_t address = tide__address(pointer);
  const tide__region* const region = tide__region_at(address);
  return region != NULL && tide__region_page(region, address) < tide__load_relaxed(&region->top);
}

static void find_object(const tide__slab* slab, uint64_t address, tide_cpu_info* out) {
  const uint64_t bytes = slab->object_bytes;
  const uint64_t begin = tide__load_relaxed(&slab->address);
  const uint64_t index = (address - begin) / bytes;
  if (index >= slab->capacity) return;  // the unused end of the slab
  out->address = tide__pointer(begin + index * bytes);
  out->bytes = bytes;
  out->is_live = tide__load_relaxed(tide__slab_mark(slab, (uint32_t)index)) >= TIDE__MARK_LIVE;
}

// Finds the block around a page. Pages inside a block have no record, so this walks back to the first one.
static void find_pages(const tide__region* region, uint64_t page, tide_cpu_info* out) {
  uint64_t tag = tide__load_acquire(&region->pages[page].tag);  // pairs with page_set
  uint64_t first = page;
  if (page >= tide__load_relaxed(&region->top)) return;
  while (tide__tag_kind(tag) == TIDE__PAGE_INSIDE && first > 0) {
    tag = tide__load_acquire(&region->pages[--first].tag);
  }
  const tide__page_kind kind = tide__tag_kind(tag);
  const uint64_t pages = tide__tag_pages(tag);
  if (kind == TIDE__PAGE_TAIL && first == page) first = page + 1 - pages;
  if (kind == TIDE__PAGE_INSIDE || page - first >= pages) return;
  out->address = tide__pointer(tide__region_address(region, first));
  out->bytes = pages << TIDE__PAGE_SHIFT;
  out->is_live = kind == TIDE__PAGE_LIVE;
}

static void find_in(const tide__region* region, uint64_t address, tide_cpu_info* out) {
  const uint64_t page = tide__region_page(region, address);
  const uint64_t tag = tide__load_acquire(&region->pages[page].tag);  // pairs with slab_mark_pages
  out->is_ours = true;
  if (tide__load_relaxed(&region->zone->cache->is_ending) == 0) out->cache = region->zone->cache;
  const tide__slab* const slab = tide__tag_slab(tag);
  if (slab == NULL) {
    find_pages(region, page, out);
    return;
  }
  tide_cpu_info found = *out;
  find_object(slab, address, &found);
  // A slab that ended meanwhile may have been used again elsewhere.
  if (tide__load_acquire(&region->pages[page].tag) == tag) *out = found;
}

tide_cpu_info tide_cpu_find(const void* pointer) {
  tide_cpu_info info = { 0 };
  const uint64_t address = tide__address(pointer);
  if (tide__region_at(address) == NULL) return info;
  tide__regions_lock();
  const tide__region* const region = tide__region_at(address);
  if (region != NULL) find_in(region, address, &info);
  tide__regions_unlock();
  return info;
}
