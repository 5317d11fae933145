// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The values that get a place in an arena, as intervals of time with sizes, and the ways to place them.
#ifndef TIDEMARK_SRC_GRAPH_PLACES_H
#define TIDEMARK_SRC_GRAPH_PLACES_H

#include "graph/graph_parts.h"
#include "tidemark/plan.h"

// A value to be placed. The first and last instant are both part of its life.
typedef struct tide__lodger {
  uint32_t value;
  uint32_t block;
  uint32_t begin;
  uint32_t end;
  uint32_t use;    // orders the outputs of one node
  uint64_t bytes;  // a multiple of the alignment, not 0
  // Set by whoever places it
  uint64_t offset;
  uint64_t room;  // at least `bytes`
} tide__lodger;

// Lodgers in the order of the nodes that make them.
typedef struct tide__lodgers {
  const tide_graph* graph;  // borrowed
  const tide_heap* heap;    // borrowed
  tide__lodger* items;      // owned by whoever made them
  size_t count;
  uint32_t* of_value;  // owned by whoever made them; by value; all 0 between calls
  uint64_t nodes;      // placements that tide_plan_solve() may try
  uint64_t alignment;
} tide__lodgers;

// Each sets the offsets and rooms of `lodgers`, which are of one block, or of all.
// Errors: TIDE_ERR_NO_MEMORY.

// Groups, each a place for one value at a time: the group that became free last (LIFO), or the one that fits
// best. [groups.c]
tide_status tide__groups_place(tide__lodgers* lodgers, bool is_lifo);

// Offsets, one value after the other in an order, each in the smallest gap between those that live at the
// same time. O(n^2). [gaps.c]
typedef enum tide__gaps_order {
  TIDE__GAPS_BY_SIZE,
  TIDE__GAPS_BY_AREA,
  TIDE__GAPS_BY_DURATION
} tide__gaps_order;
tide_status tide__gaps_place(tide__lodgers* lodgers, tide__gaps_order order);

// Offsets from tide_plan_solve(); with `in_place`, outputs lie over inputs where that is permitted, and
// `out_over` says how many do. [solve.c]
tide_status tide__lodgers_solve(tide__lodgers* lodgers, bool in_place, uint32_t* out_over);

// One behind the other.
void tide__lodgers_line_up(tide__lodgers* lodgers);

// Where the highest ends, and the most bytes that live at once.
uint64_t tide__lodgers_bytes(const tide__lodgers* lodgers);
tide_status tide__lodgers_load(const tide__lodgers* lodgers, uint64_t* out);

// Errors: `wrong`, with the values in the text, if offsets are; TIDE_ERR_NO_MEMORY. With `in_place`, outputs
//         may lie over inputs.
tide_status tide__lodgers_verify(const tide__lodgers* lodgers, bool in_place, tide_status wrong);

#endif
