// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The segments and address reserves at one point of a recording. A range belongs to one pool for life and has
// a unique number, so that what is known at the end applies to its beginning as well.
#ifndef TIDEMARK_SRC_REPLAY_RANGES_H
#define TIDEMARK_SRC_REPLAY_RANGES_H

#include "base/heap.h"
#include "base/tree.h"

#define TIDE__NO_RANGE UINT32_MAX

// A segment; or the part of a reserve in which memory was ever mapped. That part grows from its beginning
// without gaps, so the size of the reserve need not be known.
typedef struct tide__range_node {
  tide__tree_node node;  // by its address
  uint64_t end;
  uint64_t mapped_bytes;
  uint32_t number;
} tide__range_node;

typedef struct tide__ranges {
  const tide_heap* heap;  // borrowed until fini
  tide__tree tree;        // of tide__range_node, owned
  uint32_t count;         // numbers assigned so far
  uint64_t reach_bytes;   // the largest reserve
  uint64_t spread_bytes;  // the smallest distance of a new reserve from its neighbours
} tide__ranges;

void tide__ranges_init(tide__ranges* ranges, const tide_heap* heap);
void tide__ranges_fini(tide__ranges* ranges);

// The number of the range that contains an address, or TIDE__NO_RANGE.
uint32_t tide__ranges_find(const tide__ranges* ranges, uint64_t address);

// A segment is created, or memory is mapped. *out_new: it is the first of a reserve. False: no memory.
bool tide__ranges_make(tide__ranges* ranges, uint64_t address, uint64_t bytes);
bool tide__ranges_map(tide__ranges* ranges, uint64_t address, uint64_t bytes, bool* out_new);

// A segment is freed, or memory is unmapped. The range ends with its last byte.
void tide__ranges_give(tide__ranges* ranges, uint64_t address, uint64_t bytes);

#endif
