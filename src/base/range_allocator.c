// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Two trees over the same records: by size to find the best fit, by offset to find the neighbours.
#include "base/range_allocator.h"

#include "base/arith.h"
#include "base/check.h"
#include "base/list.h"

static tide__free_range* range_of_offset(tide__tree_node* node) {
  return node != NULL ? TIDE_OWNER(node, tide__free_range, by_offset) : NULL;
}

static uint64_t range_end(const tide__free_range* range) {
  return tide__free_range_offset(range) + tide__free_range_bytes(range);
}

// ---------------------------------------------------------------------------------------------------
// Records

static void spare_push(tide__range_allocator* ranges, tide__free_range* record) {
  record->next = ranges->spare;
  ranges->spare = record;
}

static tide__free_range* spare_pop(tide__range_allocator* ranges) {
  tide__free_range* const record = ranges->spare;
  if (record != NULL) ranges->spare = record->next;
  return record;
}

static void range_insert(tide__range_allocator* ranges, uint64_t offset, uint64_t bytes) {
  tide__free_range* const range = spare_pop(ranges);
  TIDE_ASSERT(range != NULL);
  range->by_offset = (tide__tree_node){ .key = offset };
  range->by_bytes = (tide__tree_node){ .key = bytes, .tie = offset };
  (void)tide__tree_insert(&ranges->by_offset, &range->by_offset);
  (void)tide__tree_insert(&ranges->by_bytes, &range->by_bytes);
}

static void range_remove(tide__range_allocator* ranges, tide__free_range* range) {
  tide__tree_remove(&ranges->by_offset, &range->by_offset);
  tide__tree_remove(&ranges->by_bytes, &range->by_bytes);
  spare_push(ranges, range);
}

// ---------------------------------------------------------------------------------------------------
// Taking

bool tide__range_take(tide__range_allocator* ranges, tide__free_range* record, uint64_t bytes,
                      uint64_t* out_offset) {
  tide__tree_node* const node = tide__tree_ceiling(&ranges->by_bytes, bytes);
  if (node == NULL) return false;
  tide__free_range* const range = TIDE_OWNER(node, tide__free_range, by_bytes);
  const uint64_t offset = tide__free_range_offset(range);
  const uint64_t rest = tide__free_range_bytes(range) - bytes;
  spare_push(ranges, record);
  range_remove(ranges, range);
  if (rest != 0) range_insert(ranges, offset + bytes, rest);
  *out_offset = offset;
  return true;
}

bool tide__range_take_end(tide__range_allocator* ranges, tide__free_range* record, uint64_t bytes,
                          bool joins_last, uint64_t* out_offset) {
  tide__free_range* const last = range_of_offset(tide__tree_floor(&ranges->by_offset, UINT64_MAX));
  const bool is_joined = joins_last && last != NULL && range_end(last) == ranges->end;
  const uint64_t offset = is_joined ? tide__free_range_offset(last) : ranges->end;
  uint64_t end = 0;
  if (!tide__add(offset, bytes, &end) || end > INT64_MAX) return false;
  spare_push(ranges, record);
  if (is_joined) range_remove(ranges, last);
  ranges->end = end;
  *out_offset = offset;
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Freeing

// Adds a range to the free ones. A record is available, because each taken range has left one.
static void range_free(tide__range_allocator* ranges, uint64_t offset, uint64_t bytes) {
  tide__free_range* const below = range_of_offset(tide__tree_floor(&ranges->by_offset, offset));
  tide__free_range* const above = range_of_offset(tide__tree_ceiling(&ranges->by_offset, offset));
  uint64_t end = offset + bytes;
  TIDE_ASSERT(below == NULL || range_end(below) <= offset);
  TIDE_ASSERT(above == NULL || tide__free_range_offset(above) >= end);
  if (below != NULL && range_end(below) == offset) {
    offset = tide__free_range_offset(below);
    range_remove(ranges, below);
  }
  if (above != NULL && tide__free_range_offset(above) == end) {
    end = range_end(above);
    range_remove(ranges, above);
  }
  range_insert(ranges, offset, end - offset);
}

void tide__range_add(tide__range_allocator* ranges, tide__free_range* record, uint64_t offset,
                     uint64_t bytes) {
  spare_push(ranges, record);
  range_free(ranges, offset, bytes);
}

tide__free_range* tide__range_give(tide__range_allocator* ranges, uint64_t offset, uint64_t bytes) {
  range_free(ranges, offset, bytes);
  return spare_pop(ranges);
}

tide__free_range* tide__range_pop(tide__range_allocator* ranges) {
  tide__free_range* const first = range_of_offset(tide__tree_first(&ranges->by_offset));
  if (first != NULL) range_remove(ranges, first);
  return spare_pop(ranges);
}

// ---------------------------------------------------------------------------------------------------
// Iteration

const tide__free_range* tide__free_range_first(const tide__range_allocator* ranges) {
  return range_of_offset(tide__tree_first(&ranges->by_offset));
}

const tide__free_range* tide__free_range_next(const tide__free_range* range) {
  return range_of_offset(tide__tree_next(&range->by_offset));
}

int tide__range_check(const tide__range_allocator* ranges) {
  size_t count = 0;
  const tide__free_range* before = NULL;
  const tide__free_range* range = tide__free_range_first(ranges);
  for (; range != NULL; before = range, range = tide__free_range_next(range)) {
    const uint64_t offset = tide__free_range_offset(range);
    if (tide__free_range_bytes(range) == 0 || range_end(range) < offset) return 1;
    if (before != NULL && range_end(before) >= offset) return 1;
    if (range->by_bytes.tie != offset) return 2;
    count++;
  }
  for (const tide__tree_node* node = tide__tree_first(&ranges->by_bytes); node != NULL;
       node = tide__tree_next(node)) {
    count--;
  }
  return count == 0 ? 0 : 2;
}
