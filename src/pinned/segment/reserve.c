// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `segment`: the reserve, one pinned range from which segments are cut while it has room, by best fit
// and in whole pages. Memory remembers where it came from, so that it goes back the same way.
//
// Cost: O(log n). Lock: chunks. Neither the heap nor the machine is called with it held.
#include "pinned/segment/segment.h"

// Should the calling thread make the reserve? Only one does; others go on without it meanwhile.
static bool reserve_claim(tide_pinned_cache* pinned) {
  tide__mutex_lock(&pinned->chunks_lock);
  const bool is_claimed = !pinned->has_reserve && !pinned->is_reserve_made;
  if (is_claimed) pinned->is_reserve_made = true;
  tide__mutex_unlock(&pinned->chunks_lock);
  return is_claimed;
}

// If the reserve cannot be made, the next segment tries again. Its record is made first, so that nothing can
// fail once the memory is pinned.
static void reserve_make(tide_pinned_cache* pinned) {
  tide__pin_memory memory;
  if (!reserve_claim(pinned)) return;
  tide_error before;
  tide__error_keep(&before);
  const uint64_t bytes = tide__pin_whole_pages(pinned, pinned->options.reserve_bytes);
  tide__free_range* const range = tide__heap_alloc(pinned->heap, 1, sizeof *range);
  const bool is_made = range != NULL && tide__pin_source_take(pinned, bytes, &memory) == TIDE_OK;
  tide__mutex_lock(&pinned->chunks_lock);
  pinned->is_reserve_made = false;
  pinned->has_reserve = is_made;
  if (is_made) {
    pinned->reserve = memory;
    tide__range_add(&pinned->ranges, range, memory.address, memory.bytes);
  }
  tide__mutex_unlock(&pinned->chunks_lock);
  if (is_made) return;
  tide__heap_release(pinned->heap, range, 1, sizeof *range);
  tide__error_restore(&before);
}

static bool range_take(tide_pinned_cache* pinned, uint64_t bytes, tide__pin_memory* out) {
  tide__free_range* const record = tide__heap_alloc(pinned->heap, 1, sizeof *record);
  uint64_t address = 0;
  if (record == NULL) return false;
  tide__mutex_lock(&pinned->chunks_lock);
  const bool is_taken =
      tide__range_take(&pinned->ranges, record, tide__pin_whole_pages(pinned, bytes), &address);
  tide__mutex_unlock(&pinned->chunks_lock);
  if (is_taken) *out = (tide__pin_memory){ address, bytes, TIDE__PIN_FROM_RESERVE };
  else tide__heap_release(pinned->heap, record, 1, sizeof *record);
  return is_taken;
}

tide_status tide__pin_memory_take(tide_pinned_cache* pinned, uint64_t bytes, tide__pin_memory* out) {
  if (bytes <= pinned->options.reserve_bytes) {
    reserve_make(pinned);
    if (range_take(pinned, bytes, out)) return TIDE_OK;
  }
  return tide__pin_source_take(pinned, bytes, out);
}

tide_status tide__pin_memory_give(tide_pinned_cache* pinned, const tide__pin_memory* memory) {
  if (memory->source != TIDE__PIN_FROM_RESERVE) return tide__pin_source_give(pinned, memory);
  tide__mutex_lock(&pinned->chunks_lock);
  tide__free_range* const record =
      tide__range_give(&pinned->ranges, memory->address, tide__pin_whole_pages(pinned, memory->bytes));
  tide__mutex_unlock(&pinned->chunks_lock);
  tide__heap_release(pinned->heap, record, 1, sizeof *record);
  return TIDE_OK;
}

void tide__pin_ranges_free(tide_pinned_cache* pinned) {
  tide__free_range* record = NULL;
  while ((record = tide__range_pop(&pinned->ranges)) != NULL) {
    tide__heap_release(pinned->heap, record, 1, sizeof *record);
  }
}

tide_status tide__pin_reserve_end(tide_pinned_cache* pinned) {
  if (pinned->has_reserve) TIDE_TRY(tide__pin_source_give(pinned, &pinned->reserve));
  pinned->has_reserve = false;
  return TIDE_OK;
}
