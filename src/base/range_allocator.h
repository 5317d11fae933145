// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Hands out ranges of a line of bytes by best fit: the smallest free range that is large enough, and of equal
// ones the lowest. A range that is given back joins its free neighbours. The line is made of free ranges that
// the user adds, or it grows at its end, or both.
//
// The allocator knows the free ranges alone, and calls no heap. For each range that is added or taken the
// user hands over a record, and gets one back for each range that is given back; it may be another one. So
// giving back never needs memory, and a user with a lock can call the heap outside of it.
//
// Cost: O(log n) a call for n free ranges; one record for each range that is taken or was added.
#ifndef TIDEMARK_SRC_BASE_RANGE_ALLOCATOR_H
#define TIDEMARK_SRC_BASE_RANGE_ALLOCATOR_H

#include "base/tree.h"

typedef struct tide__free_range {
  tide__tree_node by_offset;      // key: offset
  tide__tree_node by_bytes;       // key: bytes, tie: offset
  struct tide__free_range* next;  // borrowed; in the list of spare records
} tide__free_range;

// [R1] free ranges are not empty, do not overlap, and do not touch
// [R2] both trees hold the same records, which agree about the offset
typedef struct tide__range_allocator {
  tide__tree by_offset;
  tide__tree by_bytes;
  tide__free_range* spare;  // borrowed; records that hold no range
  uint64_t end;             // of all that tide__range_take_end() has taken
} tide__range_allocator;

static inline uint64_t tide__free_range_offset(const tide__free_range* range) { return range->by_offset.key; }
static inline uint64_t tide__free_range_bytes(const tide__free_range* range) { return range->by_bytes.key; }

// Adds a free range, which overlaps none that is free or taken. The record is the allocator's from now on.
void tide__range_add(tide__range_allocator* ranges, tide__free_range* record, uint64_t offset,
                     uint64_t bytes);

// Takes `bytes` bytes, which are not 0, from the low end of a free range. True: the record is the allocator's
// from now on. False: no free range is large enough, and nothing changed.
bool tide__range_take(tide__range_allocator* ranges, tide__free_range* record, uint64_t bytes,
                      uint64_t* out_offset);
// Takes `bytes` bytes at the end of the line, which grows. With `joins_last` a free range at the end is part
// of what is taken. False: the line would be 2^63 bytes long or longer, and nothing changed.
bool tide__range_take_end(tide__range_allocator* ranges, tide__free_range* record, uint64_t bytes,
                          bool joins_last, uint64_t* out_offset);

// Gives back a range that was taken. Returns a record that is the user's again; NULL: the allocator needs all
// it has.
tide__free_range* tide__range_give(tide__range_allocator* ranges, uint64_t offset, uint64_t bytes);

// Takes any record out, until there is none (NULL): the end of an allocator whose records have an owner.
tide__free_range* tide__range_pop(tide__range_allocator* ranges);

// The free ranges by rising offsets; NULL at the end.
const tide__free_range* tide__free_range_first(const tide__range_allocator* ranges);
const tide__free_range* tide__free_range_next(const tide__free_range* range);

// The number of the first invariant that does not hold, or 0 if all hold. O(n).
int tide__range_check(const tide__range_allocator* ranges);

#endif
