// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The reserve: one pinned piece from which segments are cut while it has room. Ranges are kept in two
// trees, all of them by address and the free ones by size; the smallest that fits is taken, and a range
// that comes back joins its free neighbours.
//
// Cost: O(log n). Lock: chunks. A taken range keeps its record, so that giving it back takes no memory.
#include "pinned/pinned_cache.h"

static tide__pin_range* range_of_address(tide__tree_node* node) {
  return node != NULL ? TIDE_OWNER(node, tide__pin_range, by_address) : NULL;
}
static uint64_t range_begin(const tide__pin_range* range) { return range->by_address.key; }
static uint64_t range_bytes(const tide__pin_range* range) { return range->by_bytes.key; }

static void range_free_locked(tide_pinned* pinned, tide__pin_range* range) {
  range->is_free = true;
  range->by_bytes.tie = range_begin(range);
  (void)tide__tree_insert(&pinned->free_ranges, &range->by_bytes);
}

// Takes the smallest free range that fits; what is left of it becomes `rest`. NULL if there is none.
static tide__pin_range* range_fit_locked(tide_pinned* pinned, uint64_t bytes, tide__pin_range** rest) {
  tide__tree_node* const node = tide__tree_ceiling(&pinned->free_ranges, bytes);
  if (node == NULL) return NULL;
  tide__pin_range* const range = TIDE_OWNER(node, tide__pin_range, by_bytes);
  const uint64_t left = range_bytes(range) - bytes;
  tide__tree_remove(&pinned->free_ranges, &range->by_bytes);
  range->is_free = false;
  range->by_bytes.key = bytes;
  if (left != 0) {
    (*rest)->by_address = (tide__tree_node){ .key = range_begin(range) + bytes };
    (*rest)->by_bytes = (tide__tree_node){ .key = left };
    (void)tide__tree_insert(&pinned->ranges, &(*rest)->by_address);
    range_free_locked(pinned, *rest);
    *rest = NULL;
  }
  return range;
}

bool tide__pin_range_take(tide_pinned* pinned, uint64_t bytes, tide__pin_memory* out) {
  tide__pin_range* rest = tide__heap_alloc(pinned->heap, 1, sizeof *rest);
  uint64_t rounded = 0;
  if (rest == NULL) return false;
  if (!tide__align_up(bytes, pinned->page_bytes, &rounded)) rounded = UINT64_MAX;
  tide__mutex_lock(&pinned->chunks_lock);
  tide__pin_range* const range = range_fit_locked(pinned, rounded, &rest);
  tide__mutex_unlock(&pinned->chunks_lock);
  tide__heap_release(pinned->heap, rest, 1, sizeof *rest);
  if (range == NULL) return false;
  *out = (tide__pin_memory){ range_begin(range), bytes, TIDE__PIN_FROM_RESERVE, range };
  return true;
}

// Joins a range with the one behind it, whose record is returned.
static tide__pin_range* range_join_locked(tide_pinned* pinned, tide__pin_range* range,
                                          tide__pin_range* behind) {
  tide__tree_remove(&pinned->free_ranges, &behind->by_bytes);
  tide__tree_remove(&pinned->ranges, &behind->by_address);
  range->by_bytes.key += range_bytes(behind);
  return behind;
}

void tide__pin_range_give(tide_pinned* pinned, tide__pin_range* range) {
  tide__pin_range* spares[2] = { NULL, NULL };
  tide__mutex_lock(&pinned->chunks_lock);
  tide__pin_range* const behind =
      range_of_address(tide__tree_ceiling(&pinned->ranges, range_begin(range) + 1));
  if (behind != NULL && behind->is_free) spares[0] = range_join_locked(pinned, range, behind);
  tide__pin_range* const before = range_of_address(tide__tree_floor(&pinned->ranges, range_begin(range) - 1));
  if (before != NULL && before->is_free) {
    tide__tree_remove(&pinned->free_ranges, &before->by_bytes);
    tide__tree_remove(&pinned->ranges, &range->by_address);
    before->by_bytes.key += range_bytes(range);
    spares[1] = range;
    range = before;
  }
  range_free_locked(pinned, range);
  tide__mutex_unlock(&pinned->chunks_lock);
  for (int i = 0; i < 2; i++) tide__heap_release(pinned->heap, spares[i], 1, sizeof *spares[i]);
}

void tide__pin_range_add(tide_pinned* pinned, tide__pin_range* range, const tide__pin_memory* memory) {
  range->by_address.key = memory->address;
  range->by_bytes.key = memory->bytes;
  tide__mutex_lock(&pinned->chunks_lock);
  (void)tide__tree_insert(&pinned->ranges, &range->by_address);
  range_free_locked(pinned, range);
  tide__mutex_unlock(&pinned->chunks_lock);
}

void tide__pin_ranges_free(tide_pinned* pinned) {
  for (;;) {
    tide__pin_range* const range = range_of_address(tide__tree_first(&pinned->ranges));
    if (range == NULL) return;
    tide__tree_remove(&pinned->ranges, &range->by_address);
    tide__heap_release(pinned->heap, range, 1, sizeof *range);
  }
}
