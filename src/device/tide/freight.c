// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Homes as cargo. A private pool is never stitched, so all of its memory lies in homes, and each handle is
// mapped once. While a pool is parked, its handles have no memory and count as not mapped: the idle blocks on
// them stay in the free index, and a request that finds one goes to the gate.
#include "device/tide/freight.h"

#include <stdlib.h>

// A copy costs as much as so many bytes of the bus, so smaller gaps between blocks are copied.
#define GAP_BYTES ((uint64_t)64 << 10)

void tide__freight_free(tide__freight* freight) {
  const tide_heap* const heap = freight->device->heap;
  tide__heap_release(heap, freight->homes, freight->home_capacity, sizeof *freight->homes);
  tide__heap_release(heap, freight->parcels, freight->parcel_capacity, sizeof *freight->parcels);
  tide__heap_release(heap, freight->contents, freight->content_capacity, sizeof *freight->contents);
  *freight = (tide__freight){ .device = freight->device };
}

static tide_status grow(tide__freight* freight, void** array, size_t* capacity, size_t need, size_t bytes) {
  TIDE_REQUIRE(tide__heap_grow(freight->device->heap, array, capacity, need, bytes), TIDE_ERR_NO_MEMORY,
               "no memory for the records of %zu parts of parked memory", need);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Homes

static tide_status lane_add(tide__freight* freight, tide__lane* lane) {
  TIDE_LIST_EACH(it, &lane->segments) {  // it changes with the gate only
    tide__segment* const segment = TIDE_OWNER(it, tide__segment, link);
    if (segment->home == NULL) continue;
    void* homes = freight->homes;
    const tide_status status =
        grow(freight, &homes, &freight->home_capacity, freight->home_count + 1, sizeof *freight->homes);
    freight->homes = homes;
    TIDE_TRY(status);
    freight->homes[freight->home_count++] = (tide__freight_home){ .segment = segment };
  }
  return TIDE_OK;
}

tide_status tide__freight_add_pool(tide__freight* freight, tide__pool* pool) {
  tide__lane* lane = tide__lane_next(freight->device, pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(freight->device, pool, lane)) TIDE_TRY(lane_add(freight, lane));
  return TIDE_OK;
}

static int home_compare(const void* a, const void* b) {
  const uint64_t x = ((const tide__freight_home*)a)->segment->address;
  const uint64_t y = ((const tide__freight_home*)b)->segment->address;
  return (x > y) - (x < y);
}

void tide__freight_sort(tide__freight* freight) {
  if (freight->home_count > 0) {
    qsort(freight->homes, freight->home_count, sizeof *freight->homes, home_compare);
  }
}

// ---------------------------------------------------------------------------------------------------
// Contents

static size_t home_count_blocks_locked(const tide__segment* segment) {
  size_t count = 0;
  for (const tide__block* block = segment->head; block != NULL; block = block->next) {
    count += block->state == TIDE__BLOCK_ALLOCATED;
  }
  return count;
}

// Makes room for a home, and returns with its lane locked.
TIDE_UNCHECKED_LOCKING static tide_status home_lock_with_room(tide__freight* freight,
                                                              const tide__segment* segment) {
  for (;;) {
    tide__mutex_lock(&segment->lane->lock);
    const size_t parcels = freight->parcel_count + segment->home->count;
    const size_t contents = freight->content_count + home_count_blocks_locked(segment);
    if (parcels <= freight->parcel_capacity && contents <= freight->content_capacity) return TIDE_OK;
    tide__mutex_unlock(&segment->lane->lock);
    void* array = freight->parcels;
    TIDE_TRY(grow(freight, &array, &freight->parcel_capacity, parcels, sizeof *freight->parcels));
    freight->parcels = array;
    array = freight->contents;
    TIDE_TRY(grow(freight, &array, &freight->content_capacity, contents, sizeof *freight->contents));
    freight->contents = array;
  }
}

static void home_add_parcels_locked(tide__freight* freight, tide__freight_home* home) {
  const tide__home* const own = home->segment->home;
  home->parcel = freight->parcel_count;
  home->parcel_count = own->count;
  for (size_t i = 0; i < own->count; i++) {
    const tide__handle* const handle = own->handles[i];
    freight->parcels[freight->parcel_count++] =
        (tide__parcel){ handle->address, handle->bytes, handle->physical, i == 0 };
  }
}

// Adds a block, or joins it with the content before it, which must then be of the same range `from` to `to`.
static void block_add_locked(tide__freight* freight, const tide__freight_home* home, const tide__block* block,
                             uint64_t from, uint64_t offset) {
  const uint64_t bytes = tide__block_counted_bytes(block);
  tide__content* const last =
      freight->content_count > home->content ? &freight->contents[freight->content_count - 1] : NULL;
  freight->block_bytes += bytes;
  if (last != NULL && last->address >= from && block->address - (last->address + last->bytes) < GAP_BYTES) {
    last->bytes = block->address + bytes - last->address;
    return;
  }
  freight->contents[freight->content_count++] =
      (tide__content){ .address = block->address, .bytes = bytes, .offset = offset };
}

static uint64_t print_mix(uint64_t print, uint64_t value) {
  const uint64_t mixed = (print ^ value) * UINT64_C(0x9e3779b97f4a7c15);
  return mixed ^ mixed >> 32;
}

// Each time a block is handed out, it gets another handle.
static void print_add_locked(tide__freight* freight, const tide__block* block) {
  const uint64_t handle = (uint64_t)tide__load_relaxed(&block->slot.generation) << 32 | block->slot.index;
  freight->print = print_mix(print_mix(freight->print, block->address), handle);
}

// Blocks are joined over gaps of idle memory, but not over addresses without memory.
static void home_add_contents_locked(tide__freight* freight, tide__freight_home* home) {
  uint64_t from = 0;
  home->content = freight->content_count;
  for (const tide__block* block = home->segment->head; block != NULL; block = block->next) {
    if (block->state == TIDE__BLOCK_UNMAPPED) from = tide__block_end(block);
    if (block->state != TIDE__BLOCK_ALLOCATED) continue;
    print_add_locked(freight, block);
    block_add_locked(freight, home, block, from, 0);
  }
  home->content_count = freight->content_count - home->content;
}

static void home_hide_locked(tide_device_cache* device, tide__segment* segment) {
  for (size_t i = 0; i < segment->home->count; i++) {
    segment->home->handles[i]->is_mapped = false;
    tide__handle_note_locked(device, segment->home->handles[i]);
  }
}

TIDE_UNCHECKED_LOCKING tide_status tide__freight_load(tide__freight* freight, bool hides) {
  uint64_t offset = 0;
  for (size_t i = 0; i < freight->home_count; i++) {
    tide__freight_home* const home = &freight->homes[i];
    TIDE_TRY(home_lock_with_room(freight, home->segment));
    home_add_parcels_locked(freight, home);
    home_add_contents_locked(freight, home);
    if (hides) home_hide_locked(freight->device, home->segment);
    tide__mutex_unlock(&home->segment->lane->lock);
  }
  for (size_t i = 0; i < freight->content_count; i++) {
    freight->contents[i].offset = offset;
    offset += freight->contents[i].bytes;
  }
  return TIDE_OK;
}

uint64_t tide__freight_content_bytes(const tide__freight* freight) {
  if (freight->content_count == 0) return 0;
  const tide__content* const last = &freight->contents[freight->content_count - 1];
  return last->offset + last->bytes;
}

// What is handed out now was handed out when the pool was parked: each block lies in one of the contents of
// the backup, if there is one.
static void home_restore_contents_locked(tide__freight* freight, tide__freight_home* home,
                                         const tide__backup* backup) {
  size_t i = backup != NULL ? tide__backup_content_at(backup, home->segment->address) : 0;
  home->content = freight->content_count;
  for (const tide__block* block = home->segment->head; block != NULL; block = block->next) {
    if (block->state != TIDE__BLOCK_ALLOCATED) continue;
    if (backup == NULL) {
      freight->block_bytes += tide__block_counted_bytes(block);
      continue;
    }
    const tide__content* const saved = backup->contents;
    while (i < backup->content_count && saved[i].address + saved[i].bytes <= block->address) i++;
    if (i == backup->content_count || saved[i].address > block->address) continue;
    block_add_locked(freight, home, block, saved[i].address,
                     saved[i].offset + (block->address - saved[i].address));
  }
  home->content_count = freight->content_count - home->content;
}

TIDE_UNCHECKED_LOCKING tide_status tide__freight_reload(tide__freight* freight) {
  for (size_t i = 0; i < freight->home_count; i++) {
    tide__freight_home* const home = &freight->homes[i];
    TIDE_TRY(home_lock_with_room(freight, home->segment));
    home_add_parcels_locked(freight, home);
    home_restore_contents_locked(freight, home, home->segment->lane->pool->parked->backup);
    tide__mutex_unlock(&home->segment->lane->lock);
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Afterwards

uint64_t tide__freight_away_bytes(const tide__freight* freight) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < freight->parcel_count; i++) {
    if (freight->parcels[i].physical == NULL) bytes += freight->parcels[i].bytes;
  }
  return bytes;
}

// Has the parcel become a part of those before it?
static bool is_joined(const tide__parcel* parcel) { return parcel->bytes == 0 && parcel->physical == NULL; }

// Takes over which handles have memory. Those that became a part of others are moved behind the end. Returns
// how many.
static size_t home_settle_locked(tide__freight* freight, const tide__freight_home* home, bool stays_parked) {
  tide__home* const own = home->segment->home;
  size_t kept = 0;
  if (home->parcel_count == 0) return 0;  // it was not listed
  for (size_t k = 0; k < home->parcel_count; k++) {
    const tide__parcel* const parcel = &freight->parcels[home->parcel + k];
    tide__handle* const handle = own->handles[k];
    if (is_joined(parcel)) {
      if (handle->is_odd) own->odd_count--;
      continue;
    }
    if (parcel->bytes != 0) {
      handle->address = parcel->address;
      handle->bytes = parcel->bytes;
    }
    handle->physical = parcel->physical;
    handle->is_mapped = handle->physical != NULL && !stays_parked;
    tide__handle_note_locked(freight->device, handle);
    own->handles[k] = own->handles[kept];
    tide__home_put_handle_locked(own, kept++, handle);
  }
  own->count = kept;
  return home->parcel_count - kept;
}

void tide__freight_settle(tide__freight* freight, bool stays_parked) {
  const tide_heap* const heap = freight->device->heap;
  for (size_t i = 0; i < freight->home_count; i++) {
    const tide__freight_home* const home = &freight->homes[i];
    const tide__home* const own = home->segment->home;
    tide__mutex_lock(&home->segment->lane->lock);
    const size_t joined = home_settle_locked(freight, home, stays_parked);
    tide__mutex_unlock(&home->segment->lane->lock);
    for (size_t k = 0; k < joined; k++) {
      tide__heap_release(heap, own->handles[own->count + k], 1, sizeof(tide__handle));
    }
  }
}

static void home_each_range(const tide__freight* freight, const tide__freight_home* home, bool is_away,
                            tide__range_fn function, const tide__call_context* context) {
  uint64_t from = 0;
  uint64_t to = 0;
  for (size_t i = home->parcel; i < home->parcel + home->parcel_count; i++) {
    const tide__parcel* const parcel = &freight->parcels[i];
    if (is_joined(parcel) || (parcel->physical == NULL) != is_away) continue;
    if (parcel->address != to) {
      if (from < to) function(freight->device, home->segment, from, to, context);
      from = parcel->address;
    }
    to = parcel->address + parcel->bytes;
  }
  if (from < to) function(freight->device, home->segment, from, to, context);
}

void tide__freight_each_range(const tide__freight* freight, bool is_away, tide__range_fn function,
                              const tide__call_context* context) {
  for (size_t i = 0; i < freight->home_count; i++) {
    home_each_range(freight, &freight->homes[i], is_away, function, context);
  }
}

// ---------------------------------------------------------------------------------------------------
// Idle handles of a parked pool

// The first idle block that has handles without memory, and the first range of them: [*first, *end).
static tide__block* home_find_idle_locked(const tide__segment* segment, size_t* first, size_t* end) {
  const tide__home* const home = segment->home;
  for (tide__block* block = segment->head; block != NULL; block = block->next) {
    if (block->state != TIDE__BLOCK_FREE) continue;
    size_t i = tide__handle_index_at(home, block->address);
    const uint64_t block_end = tide__block_end(block);
    for (; i < home->count && tide__handle_end(home->handles[i]) <= block_end; i++) {
      if (home->handles[i]->address >= block->address && home->handles[i]->physical == NULL) break;
    }
    for (*first = *end = i; *end < home->count && tide__handle_end(home->handles[*end]) <= block_end;
         ++*end) {
      if (home->handles[*end]->physical != NULL) break;
    }
    if (*first < *end) return block;
  }
  return NULL;
}

// Drops one such range; false if there is none, or no memory for records.
static bool home_drop_range(tide_device_cache* device, tide__segment* segment, bool* out_failed) {
  tide__lane* const lane = segment->lane;
  tide__block* held[2];
  size_t first = 0;
  size_t end = 0;
  if (tide__lane_hold_spares(device, lane, held) != TIDE_OK) {
    *out_failed = true;
    return false;
  }
  tide__mutex_lock(&lane->lock);
  tide__block* const block = home_find_idle_locked(segment, &first, &end);
  if (block != NULL) tide__free_index_take_locked(block);
  tide__mutex_unlock(&lane->lock);
  const uint64_t from = block != NULL ? segment->home->handles[first]->address : 0;
  const uint64_t to = block != NULL ? tide__handle_end(segment->home->handles[end - 1]) : 0;
  while (end > first) tide__home_remove_handle(device, segment, --end);
  tide__mutex_lock(&lane->lock);
  tide__lane_unhold_spares_locked(lane, held);
  if (block != NULL) tide__home_hollow_locked(block, from, to);
  tide__mutex_unlock(&lane->lock);
  tide__totals_park(device, segment->is_small ? TIDE_STAT_SMALL : TIDE_STAT_LARGE, -(int64_t)(to - from));
  return block != NULL;
}

bool tide__parked_drop_idle(tide_device_cache* device, tide__pool* pool) {
  const tide_error before = *tide_last_error();
  bool has_failed = false;
  tide__lane* lane = tide__lane_next(device, pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) {
    TIDE_LIST_EACH(it, &lane->segments) {
      tide__segment* const segment = TIDE_OWNER(it, tide__segment, link);
      while (segment->home != NULL && home_drop_range(device, segment, &has_failed)) continue;
    }
  }
  if (has_failed) tide__error_restore(&before);
  return !has_failed;
}

static bool home_has_away(const tide__home* home) {
  for (size_t i = 0; i < home->count; i++) {
    if (home->handles[i]->physical == NULL) return true;
  }
  return false;
}

bool tide__parked_has_any(tide_device_cache* device, tide__pool* pool) {
  tide__lane* lane = tide__lane_next(device, pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) {
    TIDE_LIST_EACH(it, &lane->segments) {
      const tide__segment* const segment = TIDE_OWNER(it, tide__segment, link);
      if (segment->home != NULL && home_has_away(segment->home)) return true;
    }
  }
  return false;
}
