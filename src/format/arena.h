// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Offsets for buffers that come without: a line of bytes that ranges are taken from and given back to, such
// that no two of them overlap. It makes no effort to be small: that is the matter of a planner.
#ifndef TIDEMARK_SRC_FORMAT_ARENA_H
#define TIDEMARK_SRC_FORMAT_ARENA_H

#include "base/tree.h"
#include "tidemark/base.h"

// A range, kept by its user. Once it is given back the arena uses the record, as long as there is an arena.
typedef struct tide__arena_range {
  tide__tree_node by_offset;
  tide__tree_node by_size;
  uint64_t offset;
  uint64_t bytes;
} tide__arena_range;

// [A1] the free ranges lie below `end`, do not touch each other, and are in both trees
typedef struct tide__arena {
  tide__tree by_offset;
  tide__tree by_size;  // ties by offset
  uint64_t end;        // nothing above was ever taken
} tide__arena;

// Takes the smallest range of at least range->bytes bytes, the lowest of those, or makes the line longer, and
// sets range->offset. False when the line would be 2^63 bytes long. O(log n), as giving back.
bool tide__arena_take(tide__arena* arena, tide__arena_range* range);
void tide__arena_give(tide__arena* arena, tide__arena_range* range);

#endif
