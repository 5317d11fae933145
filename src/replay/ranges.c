// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A tree of ranges by address; O(log n) per call. New memory of a reserve always touches memory that is or
// was mapped there, and two reserves are further apart than the device is large. So a mapping that touches no
// range begins a reserve.
#include "replay/ranges.h"

#include "base/arith.h"
#include "base/list.h"

void tide__ranges_init(tide__ranges* ranges, const tide_heap* heap) {
  *ranges = (tide__ranges){ .heap = heap, .spread_bytes = UINT64_MAX };
}

static void range_drop(tide__ranges* ranges, tide__range_node* range) {
  tide__tree_remove(&ranges->tree, &range->node);
  tide__heap_release(ranges->heap, range, 1, sizeof *range);
}

static tide__range_node* range_of(tide__tree_node* node) {
  return node != NULL ? TIDE_OWNER(node, tide__range_node, node) : NULL;
}

void tide__ranges_fini(tide__ranges* ranges) {
  for (tide__tree_node* node = tide__tree_first(&ranges->tree); node != NULL;
       node = tide__tree_first(&ranges->tree)) {
    range_drop(ranges, range_of(node));
  }
}

uint32_t tide__ranges_find(const tide__ranges* ranges, uint64_t address) {
  const tide__range_node* const range = range_of(tide__tree_floor(&ranges->tree, address));
  return range != NULL && address < range->end ? range->number : TIDE__NO_RANGE;
}

static uint64_t range_end(uint64_t address, uint64_t bytes) {
  uint64_t end = 0;
  return tide__add(address, bytes, &end) ? end : UINT64_MAX;
}

// Records the distance of a new reserve from its neighbours.
static void ranges_measure(tide__ranges* ranges, uint64_t address) {
  const tide__tree_node* const below = address > 0 ? tide__tree_floor(&ranges->tree, address - 1) : NULL;
  const tide__tree_node* const above = tide__tree_ceiling(&ranges->tree, address);
  if (below != NULL) ranges->spread_bytes = tide__min(ranges->spread_bytes, address - below->key);
  if (above != NULL) ranges->spread_bytes = tide__min(ranges->spread_bytes, above->key - address);
}

// Adds a range. If one begins there already, its end was not recorded.
bool tide__ranges_make(tide__ranges* ranges, uint64_t address, uint64_t bytes) {
  tide__range_node* range = range_of(tide__tree_floor(&ranges->tree, address));
  if (range == NULL || range->node.key != address) {
    range = tide__heap_alloc(ranges->heap, 1, sizeof *range);
    if (range == NULL) return false;
    range->node.key = address;
    (void)tide__tree_insert(&ranges->tree, &range->node);
  }
  range->end = range_end(address, bytes);
  range->mapped_bytes = bytes;
  range->number = ranges->count++;
  return true;
}

bool tide__ranges_map(tide__ranges* ranges, uint64_t address, uint64_t bytes, bool* out_new) {
  tide__range_node* const range = range_of(tide__tree_floor(&ranges->tree, address));
  *out_new = range == NULL || address > range->end;
  if (*out_new) {
    ranges_measure(ranges, address);
    ranges->reach_bytes = tide__max(ranges->reach_bytes, bytes);
    return tide__ranges_make(ranges, address, bytes);
  }
  range->end = tide__max(range->end, range_end(address, bytes));
  range->mapped_bytes = range_end(range->mapped_bytes, bytes);
  ranges->reach_bytes = tide__max(ranges->reach_bytes, range->end - range->node.key);
  return true;
}

void tide__ranges_give(tide__ranges* ranges, uint64_t address, uint64_t bytes) {
  tide__range_node* const range = range_of(tide__tree_floor(&ranges->tree, address));
  if (range == NULL || address >= range->end) return;
  range->mapped_bytes -= tide__min(range->mapped_bytes, bytes);
  if (range->mapped_bytes == 0) range_drop(ranges, range);
}
