// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The reserve: one pinned piece from which segments are cut while it has room, by best fit and in whole
// pages.
//
// Cost: O(log n). Lock: chunks. The heap is called without it.
#include "pinned/pinned_cache.h"

uint64_t tide__pin_range_bytes(const tide_pinned_cache* pinned, uint64_t bytes) {
  uint64_t rounded = 0;
  return tide__align_up(bytes, pinned->page_bytes, &rounded) ? rounded : UINT64_MAX;
}

bool tide__pin_range_take(tide_pinned_cache* pinned, uint64_t bytes, tide__pin_memory* out) {
  tide__free_range* const record = tide__heap_alloc(pinned->heap, 1, sizeof *record);
  uint64_t address = 0;
  if (record == NULL) return false;
  tide__mutex_lock(&pinned->chunks_lock);
  const bool is_taken =
      tide__range_take(&pinned->ranges, record, tide__pin_range_bytes(pinned, bytes), &address);
  tide__mutex_unlock(&pinned->chunks_lock);
  if (is_taken) *out = (tide__pin_memory){ address, bytes, TIDE__PIN_FROM_RESERVE };
  else tide__heap_release(pinned->heap, record, 1, sizeof *record);
  return is_taken;
}

void tide__pin_range_give(tide_pinned_cache* pinned, const tide__pin_memory* memory) {
  tide__mutex_lock(&pinned->chunks_lock);
  tide__free_range* const record =
      tide__range_give(&pinned->ranges, memory->address, tide__pin_range_bytes(pinned, memory->bytes));
  tide__mutex_unlock(&pinned->chunks_lock);
  tide__heap_release(pinned->heap, record, 1, sizeof *record);
}

void tide__pin_range_add(tide_pinned_cache* pinned, tide__free_range* record,
                         const tide__pin_memory* memory) {
  tide__mutex_lock(&pinned->chunks_lock);
  tide__range_add(&pinned->ranges, record, memory->address, memory->bytes);
  tide__mutex_unlock(&pinned->chunks_lock);
}

void tide__pin_ranges_free(tide_pinned_cache* pinned) {
  tide__free_range* record = NULL;
  while ((record = tide__range_pop(&pinned->ranges)) != NULL) {
    tide__heap_release(pinned->heap, record, 1, sizeof *record);
  }
}
