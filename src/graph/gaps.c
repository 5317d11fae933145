// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Greedy placement by size, by size times duration, or by duration, the largest first; ties in the order of
// the nodes. A value goes into the smallest gap that fits, between placements that live at the same time,
// or after the last of them. The placements so far are sorted by offset. Cost: O(n^2).
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/scratch.h"
#include "graph/placements.h"

typedef struct gaps_item {
  tide__placement* placement;  // borrowed
  double weight;
  size_t index;
} gaps_item;

static double gaps_weight(const tide__placement* placement, tide__gaps_order order) {
  const double duration = (double)(placement->end - placement->begin) + 1;
  if (order == TIDE__GAPS_BY_DURATION) return duration;
  return order == TIDE__GAPS_BY_AREA ? duration * (double)placement->bytes : (double)placement->bytes;
}

static int gaps_compare(const void* left, const void* right) {
  const gaps_item* const a = left;
  const gaps_item* const b = right;
  if (a->weight != b->weight) return a->weight > b->weight ? -1 : 1;
  return a->index < b->index ? -1 : a->index > b->index;
}

static bool gaps_meet(const tide__placement* a, const tide__placement* b) {
  return a->begin <= b->end && b->begin <= a->end;
}

// The offset of a value among the placements so far, which are sorted by offset.
static uint64_t gaps_find(tide__placement* const* placed, size_t count, const tide__placement* placement) {
  uint64_t best = UINT64_MAX;
  uint64_t best_gap = UINT64_MAX;
  uint64_t end = 0;  // of all that meet it so far
  for (size_t i = 0; i < count; i++) {
    if (!gaps_meet(placed[i], placement)) continue;
    const uint64_t offset = placed[i]->offset;
    if (offset > end && offset - end >= placement->bytes && offset - end < best_gap) {
      best = end;
      best_gap = offset - end;
    }
    if (offset + placed[i]->bytes > end) end = offset + placed[i]->bytes;
  }
  return best != UINT64_MAX ? best : end;
}

static void gaps_insert(tide__placement** placed, size_t count, tide__placement* placement) {
  size_t at = count;
  while (at > 0 && placed[at - 1]->offset > placement->offset) at--;
  memmove(&placed[at + 1], &placed[at], (count - at) * sizeof(tide__placement*));
  placed[at] = placement;
}

tide_status tide__gaps_place(tide__placements* placements, tide__gaps_order order) {
  if (placements->count == 0) return TIDE_OK;
  tide__scratch scratch;
  tide__scratch_init(&scratch, placements->heap);
  gaps_item* const items = tide__scratch_alloc(&scratch, placements->count, sizeof *items);
  tide__placement** const placed = tide__scratch_alloc(&scratch, placements->count, sizeof(tide__placement*));
  const bool has_room = !scratch.is_short;
  for (size_t i = 0; has_room && i < placements->count; i++) {
    items[i] = (gaps_item){ &placements->items[i], gaps_weight(&placements->items[i], order), i };
  }
  if (has_room) qsort(items, placements->count, sizeof *items, gaps_compare);
  for (size_t i = 0; has_room && i < placements->count; i++) {
    tide__placement* const placement = items[i].placement;
    placement->offset = gaps_find(placed, i, placement);
    placement->room = placement->bytes;
    gaps_insert(placed, i, placement);
  }
  tide__scratch_fini(&scratch);
  TIDE_REQUIRE(has_room, TIDE_ERR_NO_MEMORY, "no memory to place %zu values", placements->count);
  return TIDE_OK;
}
