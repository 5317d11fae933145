// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Questions about pools that are parked, or are to be: how large they are, and where their contents are.
#include "device/tide/freight.h"
#include "device/tide/parking.h"

tide_status tide__freight_of(tide_device_cache* device, tide__pool_list list, tide__freight* out) {
  *out = (tide__freight){ .device = device };
  for (size_t i = 0; i < list.count; i++) TIDE_TRY(tide__freight_add_pool(out, list.pools[i]));
  tide__freight_sort(out);
  return TIDE_OK;
}

uint64_t tide__parked_bytes(tide_device_cache* device, tide__pool* pool) {
  uint64_t bytes = 0;
  tide__lane* lane = pool->parked != NULL ? tide__lane_next(device, pool, NULL) : NULL;
  for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) {
    TIDE_LIST_EACH(it, &lane->segments) {
      const tide__home* const home = TIDE_OWNER(it, tide__segment, link)->home;
      for (size_t i = 0; home != NULL && i < home->count; i++) {
        if (home->handles[i]->physical == NULL) bytes += home->handles[i]->bytes;
      }
    }
  }
  return bytes;
}

uint64_t tide__parked_content_bytes(const tide__pool* pool, const tide__backup* backup) {
  uint64_t bytes = 0;
  if (pool->parked == NULL || pool->parked->backup != backup) return 0;
  for (size_t i = 0; i < pool->parked->content_count; i++) bytes += pool->parked->contents[i].bytes;
  return bytes;
}

tide_status tide__pools_measure(tide_device_cache* device, tide__pool_list list, uint64_t* out) {
  tide__freight freight;
  tide_status status = tide__freight_of(device, list, &freight);
  if (status == TIDE_OK) status = tide__freight_load(&freight, false);
  *out = tide__freight_content_bytes(&freight);
  tide__freight_free(&freight);
  return status;
}

// Does a range lie in a block that is handed out, and is all memory under it away?
static bool segment_has_locked(const tide__segment* segment, uint64_t address, uint64_t bytes) {
  const tide__block* block = segment->head;
  while (block != NULL && tide__block_end(block) <= address) block = block->next;
  if (block == NULL || block->state != TIDE__BLOCK_ALLOCATED) return false;
  const uint64_t room = block->address + tide__block_counted_bytes(block) - address;
  if (address - block->address >= tide__block_counted_bytes(block) || bytes > room) return false;
  TIDE__HANDLES_EACH(i, segment->home, address, address + bytes) {
    if (segment->home->handles[i]->physical != NULL) return false;
  }
  return true;
}

static bool pool_has(tide_device_cache* device, tide__pool* pool, uint64_t address, uint64_t bytes) {
  bool is_there = false;
  tide__lane* lane = tide__lane_next(device, pool, NULL);
  for (; lane != NULL && !is_there; lane = tide__lane_next(device, pool, lane)) {
    TIDE_LIST_EACH(it, &lane->segments) {
      const tide__segment* const segment = TIDE_OWNER(it, tide__segment, link);
      if (address - segment->address >= segment->bytes || segment->home == NULL) continue;
      tide__mutex_lock(&lane->lock);
      is_there = segment_has_locked(segment, address, bytes);
      tide__mutex_unlock(&lane->lock);
    }
  }
  return is_there;
}

static void parked_locate(const tide__parked* parked, uint64_t address, tide__parked_place* out) {
  size_t low = 0;
  size_t high = parked->content_count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (parked->contents[middle].address + parked->contents[middle].bytes <= address) low = middle + 1;
    else high = middle;
  }
  *out = (tide__parked_place){ NULL, 0 };
  if (low == parked->content_count || parked->contents[low].address > address) return;
  out->store = parked->backup->store;
  out->offset = parked->contents[low].offset + (address - parked->contents[low].address);
}

bool tide__parked_find(tide_device_cache* device, uint64_t address, uint64_t bytes, tide__parked_place* out) {
  tide__pool_cursor at = { 0 };
  tide__pool* pool = tide__pool_next(device, &at);
  for (; pool != NULL; pool = tide__pool_next(device, &at)) {
    if (pool->parked == NULL || pool->is_moving || !pool_has(device, pool, address, bytes)) continue;
    parked_locate(pool->parked, address, out);
    return true;
  }
  return false;
}
