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

static uint64_t segment_content_bytes(const tide__segment* segment, const tide__backup* backup) {
  const uint64_t end = segment->address + segment->bytes;
  size_t i = tide__backup_content_at(backup, segment->address);
  uint64_t bytes = 0;
  for (; i < backup->content_count && backup->contents[i].address < end; i++) {
    bytes += backup->contents[i].bytes;
  }
  return bytes;
}

uint64_t tide__parked_content_bytes(tide_device_cache* device, tide__pool* pool, const tide__backup* backup) {
  uint64_t bytes = 0;
  if (pool->parked == NULL || pool->parked->backup != backup) return 0;
  tide__lane* lane = tide__lane_next(device, pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) {
    TIDE_LIST_EACH(it, &lane->segments) {
      bytes += segment_content_bytes(TIDE_OWNER(it, tide__segment, link), backup);
    }
  }
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

// Does a range lie in a block that is handed out, and is all memory under it away, if `is_away`?
static bool segment_has_locked(const tide__segment* segment, uint64_t address, uint64_t bytes, bool is_away) {
  const tide__block* block = segment->head;
  while (block != NULL && tide__block_end(block) <= address) block = block->next;
  if (block == NULL || block->state != TIDE__BLOCK_ALLOCATED) return false;
  const uint64_t room = block->address + tide__block_counted_bytes(block) - address;
  if (address - block->address >= tide__block_counted_bytes(block) || bytes > room) return false;
  if (!is_away) return true;
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
      is_there = segment_has_locked(segment, address, bytes, pool->parked != NULL);
      tide__mutex_unlock(&lane->lock);
    }
  }
  return is_there;
}

static bool backup_locate(const tide__backup* backup, uint64_t address, tide__parked_place* out) {
  const size_t i = tide__backup_content_at(backup, address);
  if (i == backup->content_count || backup->contents[i].address > address) return false;
  out->store = backup->store;
  out->offset = backup->contents[i].offset + (address - backup->contents[i].address);
  return true;
}

static bool kept_locate(const tide_device_cache* device, uint64_t address, tide__parked_place* out) {
  for (const tide__backup* backup = device->backups; backup != NULL; backup = backup->next) {
    if (backup->is_kept && backup_locate(backup, address, out)) return true;
  }
  return false;
}

bool tide__parked_find(tide_device_cache* device, uint64_t address, uint64_t bytes, tide__parked_place* out) {
  *out = (tide__parked_place){ NULL, 0 };
  tide__pool_cursor at = { 0 };
  tide__pool* pool = tide__pool_next(device, &at);
  while (pool != NULL && (pool->is_moving || !pool_has(device, pool, address, bytes))) {
    pool = tide__pool_next(device, &at);
  }
  if (pool == NULL) return false;
  if (pool->parked == NULL) return kept_locate(device, address, out);
  if (pool->parked->backup != NULL) (void)backup_locate(pool->parked->backup, address, out);
  return true;
}
