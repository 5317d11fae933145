// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Which segments and reserves of addresses there are at a moment of a recording. A range belongs to one pool
// for life, and has a number for ever, so that what is known of it at the end can be told of its beginning.
#ifndef TIDEMARK_SRC_REPLAY_RANGES_H
#define TIDEMARK_SRC_REPLAY_RANGES_H

#include "base/heap.h"
#include "base/tree.h"

#define TIDE__NO_RANGE UINT32_MAX

// A segment; or of a reserve the part in which memory was ever mapped: it grows from its beginning without a
// gap that never was mapped, so its size need not be known.
typedef struct tide__range_node {
  tide__tree_node node;  // by its address
  uint64_t end;
  uint64_t mapped_bytes;
  uint32_t number;
} tide__range_node;

typedef struct tide__ranges {
  const tide_heap* heap;  // borrowed until fini
  tide__tree tree;        // of tide__range_node, owned
  uint32_t count;         // numbers given so far
  uint64_t reach_bytes;   // the largest reserve
  uint64_t spread_bytes;  // the smallest distance of a new reserve from its neighbours
} tide__ranges;

void tide__ranges_init(tide__ranges* ranges, const tide_heap* heap);
void tide__ranges_fini(tide__ranges* ranges);

// The number of the range around an address; TIDE__NO_RANGE if there is none.
uint32_t tide__ranges_find(const tide__ranges* ranges, uint64_t address);

// A segment is made. Memory is mapped: *out_new, it is the first of a reserve. False: no memory.
bool tide__ranges_make(tide__ranges* ranges, uint64_t address, uint64_t bytes);
bool tide__ranges_map(tide__ranges* ranges, uint64_t address, uint64_t bytes, bool* out_new);

// A segment is given back, or memory unmapped; with its last byte the range is gone.
void tide__ranges_give(tide__ranges* ranges, uint64_t address, uint64_t bytes);

#endif
