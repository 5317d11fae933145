// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Allocates ranges of an address space by best fit: the smallest free range that is large enough, and the
// lowest of equal ones. A freed range is merged with its free neighbours. The user adds free ranges, or the
// space grows at its end, or both.
//
// The allocator stores only the free ranges and calls no heap. The user passes a record for each range that
// is added or taken, and gets a record (perhaps another one) for each range that is freed. So freeing never
// needs memory, and the heap can be called without the user's lock.
//
// Cost: O(log n) for n free ranges; one record for each range that is taken or was added.
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
  tide__free_range* spare;  // borrowed; unused records
  uint64_t end;             // of the space: tide__range_take_end() extends it
} tide__range_allocator;

static inline uint64_t tide__free_range_offset(const tide__free_range* range) { return range->by_offset.key; }
static inline uint64_t tide__free_range_bytes(const tide__free_range* range) { return range->by_bytes.key; }

// Adds a free range, which must not overlap any other range. The allocator keeps the record.
void tide__range_add(tide__range_allocator* ranges, tide__free_range* record, uint64_t offset,
                     uint64_t bytes);

// Takes `bytes` bytes (not 0) from the low end of a free range, and keeps the record. Returns false, with
// nothing changed, if no free range is large enough.
bool tide__range_take(tide__range_allocator* ranges, tide__free_range* record, uint64_t bytes,
                      uint64_t* out_offset);
// Extends the space and takes `bytes` bytes at its end. With `joins_last` they include a free range at the
// end. Returns false, with nothing changed, if the space would reach 2^63 bytes.
bool tide__range_take_end(tide__range_allocator* ranges, tide__free_range* record, uint64_t bytes,
                          bool joins_last, uint64_t* out_offset);

// Frees a range that was taken. Returns a record to the user, or NULL if the allocator needs all of them.
tide__free_range* tide__range_give(tide__range_allocator* ranges, uint64_t offset, uint64_t bytes);

// Returns the records one by one, then NULL. For freeing them when the allocator is no longer used.
tide__free_range* tide__range_pop(tide__range_allocator* ranges);

// Iterates over the free ranges in order of their offsets; NULL is the end.
const tide__free_range* tide__free_range_first(const tide__range_allocator* ranges);
const tide__free_range* tide__free_range_next(const tide__free_range* range);

// The number of the first invariant that does not hold, or 0 if all hold. O(n).
int tide__range_check(const tide__range_allocator* ranges);

#endif
