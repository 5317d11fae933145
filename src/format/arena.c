// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Best fit over two trees of free ranges, one by size to find one, one by offset to join neighbours.
#include "format/arena.h"

#include "base/arith.h"
#include "base/list.h"

static void arena_insert(tide__arena* arena, tide__arena_range* range) {
  range->by_offset = (tide__tree_node){ .key = range->offset };
  range->by_size = (tide__tree_node){ .key = range->bytes, .tie = range->offset };
  (void)tide__tree_insert(&arena->by_offset, &range->by_offset);
  (void)tide__tree_insert(&arena->by_size, &range->by_size);
}

static void arena_remove(tide__arena* arena, tide__arena_range* range) {
  tide__tree_remove(&arena->by_offset, &range->by_offset);
  tide__tree_remove(&arena->by_size, &range->by_size);
}

bool tide__arena_take(tide__arena* arena, tide__arena_range* range) {
  tide__tree_node* const node = tide__tree_ceiling(&arena->by_size, range->bytes);
  if (node == NULL) {
    range->offset = arena->end;
    return tide__add(arena->end, range->bytes, &arena->end) && arena->end <= INT64_MAX;
  }
  tide__arena_range* const free = TIDE_OWNER(node, tide__arena_range, by_size);
  arena_remove(arena, free);
  range->offset = free->offset;
  free->offset += range->bytes;
  free->bytes -= range->bytes;
  if (free->bytes > 0) arena_insert(arena, free);
  return true;
}

void tide__arena_give(tide__arena* arena, tide__arena_range* range) {
  tide__tree_node* const below = tide__tree_floor(&arena->by_offset, range->offset);
  tide__tree_node* const above = tide__tree_ceiling(&arena->by_offset, range->offset);
  tide__arena_range* const before = below != NULL ? TIDE_OWNER(below, tide__arena_range, by_offset) : NULL;
  tide__arena_range* const after = above != NULL ? TIDE_OWNER(above, tide__arena_range, by_offset) : NULL;
  const uint64_t end = range->offset + range->bytes;
  if (before != NULL && before->offset + before->bytes == range->offset) {
    arena_remove(arena, before);
    range->offset = before->offset;
    range->bytes += before->bytes;
  }
  if (after != NULL && after->offset == end) {
    arena_remove(arena, after);
    range->bytes += after->bytes;
  }
  arena_insert(arena, range);
}
