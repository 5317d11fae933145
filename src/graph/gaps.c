// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Offsets one value after the other: largest first, or by size times duration, or by duration; ties in the
// order of the nodes. Each goes into the smallest gap that it fits into, between those placed before that
// live at the same time, or behind the last of them. The placed ones are kept sorted by offset. Cost:
// O(n^2).
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/places.h"

typedef struct gaps_item {
  tide__lodger* lodger;  // borrowed
  double weight;
  size_t index;
} gaps_item;

static double gaps_weight(const tide__lodger* lodger, tide__gaps_order order) {
  const double duration = (double)(lodger->end - lodger->begin) + 1;
  if (order == TIDE__GAPS_BY_DURATION) return duration;
  return order == TIDE__GAPS_BY_AREA ? duration * (double)lodger->bytes : (double)lodger->bytes;
}

static int gaps_compare(const void* left, const void* right) {
  const gaps_item* const a = left;
  const gaps_item* const b = right;
  if (a->weight != b->weight) return a->weight > b->weight ? -1 : 1;
  return a->index < b->index ? -1 : a->index > b->index;
}

static bool gaps_meet(const tide__lodger* a, const tide__lodger* b) {
  return a->begin <= b->end && b->begin <= a->end;
}

// Where a value goes among those placed, which are sorted by offset.
static uint64_t gaps_find(tide__lodger* const* placed, size_t count, const tide__lodger* lodger) {
  uint64_t best = UINT64_MAX;
  uint64_t best_gap = UINT64_MAX;
  uint64_t end = 0;  // of all that meet it so far
  for (size_t i = 0; i < count; i++) {
    if (!gaps_meet(placed[i], lodger)) continue;
    const uint64_t offset = placed[i]->offset;
    if (offset > end && offset - end >= lodger->bytes && offset - end < best_gap) {
      best = end;
      best_gap = offset - end;
    }
    if (offset + placed[i]->bytes > end) end = offset + placed[i]->bytes;
  }
  return best != UINT64_MAX ? best : end;
}

static void gaps_insert(tide__lodger** placed, size_t count, tide__lodger* lodger) {
  size_t at = count;
  while (at > 0 && placed[at - 1]->offset > lodger->offset) at--;
  memmove(&placed[at + 1], &placed[at], (count - at) * sizeof(tide__lodger*));
  placed[at] = lodger;
}

tide_status tide__gaps_place(tide__lodgers* lodgers, tide__gaps_order order) {
  if (lodgers->count == 0) return TIDE_OK;
  gaps_item* const items = tide__heap_alloc(lodgers->heap, lodgers->count, sizeof *items);
  tide__lodger** const placed = tide__heap_alloc(lodgers->heap, lodgers->count, sizeof(tide__lodger*));
  const bool has_room = items != NULL && placed != NULL;
  for (size_t i = 0; has_room && i < lodgers->count; i++) {
    items[i] = (gaps_item){ &lodgers->items[i], gaps_weight(&lodgers->items[i], order), i };
  }
  if (has_room) qsort(items, lodgers->count, sizeof *items, gaps_compare);
  for (size_t i = 0; has_room && i < lodgers->count; i++) {
    tide__lodger* const lodger = items[i].lodger;
    lodger->offset = gaps_find(placed, i, lodger);
    lodger->room = lodger->bytes;
    gaps_insert(placed, i, lodger);
  }
  tide__heap_release(lodgers->heap, placed, lodgers->count, sizeof(tide__lodger*));
  tide__heap_release(lodgers->heap, items, lodgers->count, sizeof *items);
  TIDE_REQUIRE(has_room, TIDE_ERR_NO_MEMORY, "no memory to place %zu values", lodgers->count);
  return TIDE_OK;
}
