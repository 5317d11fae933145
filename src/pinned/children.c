// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What a child of fork() gets of the cache's own pages. Programs fork to save memory to a file, for example,
// so children get the blocks that are handed out, as they were at the fork. They do not get idle segments:
// the system copies locked pages for each child. Memory of the machine is not changed.
#include "machine/pages.h"
#include "pinned/calls.h"
#include "pinned/segment/segment.h"

// Is a block of the segment handed out?
static bool segment_is_used(tide_pinned_cache* pinned, const tide__pin_segment* segment) {
  for (uint32_t i = 0; i < segment->capacity; i++) {
    uint32_t index = 0;
    const uint64_t address = segment->memory.address + i * segment->block_bytes;
    if (!tide__map_find(&pinned->map, address, &index)) continue;
    if (tide__pin_is_live(tide__slots_at(&pinned->blocks, index))) return true;
  }
  return false;
}

static void pool_prepare(tide_pinned_cache* pinned, const tide__pin_pool* pool) {
  tide__mutex_lock(&pinned->chunks_lock);
  TIDE_LIST_EACH(it, &pool->segments) {
    const tide__pin_segment* const segment = TIDE_OWNER(it, tide__pin_segment, all);
    if (segment->memory.source != TIDE__PIN_FROM_PAGES) continue;
    tide__pages_share(pinned->machine, segment->memory.address,
                      tide__pin_whole_pages(pinned, segment->memory.bytes), segment_is_used(pinned, segment));
  }
  tide__mutex_unlock(&pinned->chunks_lock);
}

void tide__pin_prepare_fork(void* user) {
  tide_pinned_cache* const pinned = user;
  if (tide__pin_is_inherited(pinned)) return;
  tide__pool_cursor at = { 0 };
  const tide__pin_pool* pool = pinned->default_pool;
  for (; pool != NULL; pool = tide__pin_pool_at(tide__pools_next(&pinned->pools, &at))) {
    pool_prepare(pinned, pool);
  }
}
