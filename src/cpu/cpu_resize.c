// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Resizing of blocks.
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "cpu/cache.h"
#include "memory/fill.h"

typedef enum resize_result { RESIZE_DONE, RESIZE_REFUSED, RESIZE_OPENED } resize_result;

// Opens the pages behind a block, if it cannot grow because they are not open. Leaves the thread cache.
static resize_result resize_open(tide__cpu_tcache* tcache, tide__region* region, uint64_t page,
                                 uint64_t pages) {
  const bool is_shut = region->zone == &tcache->zone && tide__region_needs_open(region, page, pages);
  const uint64_t from = is_shut ? region->open_pages : 0;
  if (is_shut) region->busy_blocks++;
  tide__thread_caches_leave(tcache);
  if (!is_shut) return RESIZE_REFUSED;
  return tide__zone_open(&tcache->zone, region, from, page + pages) == TIDE_OK ? RESIZE_OPENED
                                                                               : RESIZE_REFUSED;
}

// Tries to resize a block of pages in place, which only the owner of its zone can.
static resize_result resize_pages(tide_cpu_cache* cache, uint64_t address, uint64_t bytes) {
  tide__region* const region = tide__region_at(address);
  const uint64_t page = tide__region_page(region, address);
  const uint64_t pages = (bytes + TIDE__PAGE_BYTES - 1) >> TIDE__PAGE_SHIFT;
  tide__cpu_tcache* const tcache = tide__thread_caches_enter(&cache->tcaches);
  bool is_done = false;
  if (region->zone == &tcache->zone) {
    const uint64_t before = tide__tag_pages(tide__load_relaxed(&region->pages[page].tag));
    tide__zone_drain(&tcache->zone);
    is_done = tide__zone_resize(&tcache->zone, region, page, pages);
    if (is_done) {
      tide__cpu_note_pages(tcache, 0, ((int64_t)pages - (int64_t)before) * (int64_t)TIDE__PAGE_BYTES);
    }
  }
  if (!is_done) return resize_open(tcache, region, page, pages);
  const bool enforces = tide__zone_cached(&tcache->zone) > tcache->zone.allowance;
  tide__thread_caches_leave(tcache);
  if (enforces) tide__cpu_enforce(cache, &tcache->zone);
  return RESIZE_DONE;
}

static bool resize_in_place(tide_cpu_cache* cache, uint64_t address, uint64_t bytes) {
  resize_result result = resize_pages(cache, address, bytes);
  if (result == RESIZE_OPENED) result = resize_pages(cache, address, bytes);
  return result == RESIZE_DONE;
}

// Is a block of `room` bytes as large as a new one for `bytes` would be?
static bool resize_fits(uint64_t room, uint64_t bytes) {
  if (bytes > room) return false;
  const bool is_small = room <= TIDE__SMALL_MAX_BYTES;
  return is_small ? bytes > room - room / 8 || room <= TIDE__CPU_ALIGNMENT : bytes > room - TIDE__PAGE_BYTES;
}

static void resize_fill(const tide_cpu_cache* cache, void* address, uint64_t from, uint64_t bytes) {
  if (bytes > from) tide__memory_fill(cache->options.fill, (uint8_t*)address + from, bytes - from);
}

static tide_status resize_by_copy(tide_cpu_cache* cache, const tide_cpu_info* info, uint64_t bytes,
                                  void** out) {
  void* moved = NULL;
  const tide_status status = tide_cpu_alloc(cache, bytes, &moved);
  if (status != TIDE_OK) return status;
  memcpy(moved, info->address, tide__min(info->bytes, bytes));
  resize_fill(cache, moved, info->bytes, bytes);
  *out = moved;
  return tide_cpu_release(info->address);
}

tide_status tide_cpu_resize(tide_cpu_cache* cache, void* address, size_t bytes, void** out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "resize: the result is NULL");
  *out = NULL;
  TIDE_REQUIRE(cache != NULL, TIDE_ERR_ARGUMENT, "resize: the cache is NULL");
  if (address == NULL) return tide_cpu_alloc(cache, bytes, out);
  const tide_cpu_info info = tide_cpu_find(address);
  const bool is_block = info.is_ours && info.address == address;
  if (bytes == 0 || !is_block || !info.is_live) {  // the release refuses what is not a block
    return tide_cpu_release(address);
  }
  if (resize_fits(info.bytes, bytes)) {
    *out = address;
    return TIDE_OK;
  }
  const bool are_pages = info.bytes > TIDE__SMALL_MAX_BYTES && bytes > TIDE__SMALL_MAX_BYTES;
  if (are_pages && bytes <= TIDE_CPU_MAX_BYTES && info.cache == cache &&
      resize_in_place(cache, tide__address(address), bytes)) {
    resize_fill(cache, address, info.bytes, bytes);
    *out = address;
    return TIDE_OK;
  }
  return resize_by_copy(cache, &info, bytes, out);
}
