// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Placements: values as intervals of time with a size, and the algorithms that give them offsets in an arena.
#ifndef TIDEMARK_SRC_GRAPH_PLACEMENTS_H
#define TIDEMARK_SRC_GRAPH_PLACEMENTS_H

#include "graph/graph_parts.h"
#include "tidemark/plan.h"

// A value and its place. It lives from `begin` to `end`, both included.
typedef struct tide__placement {
  uint32_t value;
  uint32_t block;
  uint32_t begin;
  uint32_t end;
  uint32_t use;    // orders the outputs of one node
  uint64_t bytes;  // a multiple of the alignment, not 0
  // Set by an algorithm
  uint64_t offset;
  uint64_t room;  // at least `bytes`
} tide__placement;

// Placements in the order of the nodes that define their values.
typedef struct tide__placements {
  const tide_graph* graph;  // borrowed
  const tide_heap* heap;    // borrowed
  tide__placement* items;   // owned by the caller
  size_t count;
  uint32_t* of_value;  // owned by the caller; by value; all 0 between calls
  uint64_t nodes;      // the node limit of tide_plan_solve()
  uint64_t alignment;
} tide__placements;

// Each algorithm sets offsets and rooms. The placements are those of one block, or of all blocks.
// Errors: TIDE_ERR_NO_MEMORY.

// Storage groups: a group holds one value at a time. A value takes the group that was freed last (LIFO), or
// the one that fits best. [groups.c]
tide_status tide__groups_place(tide__placements* placements, bool is_lifo);

// Greedy: values in an order, each in the smallest gap between those that live at the same time. O(n^2).
// [gaps.c]
typedef enum tide__gaps_order {
  TIDE__GAPS_BY_SIZE,
  TIDE__GAPS_BY_AREA,
  TIDE__GAPS_BY_DURATION
} tide__gaps_order;
tide_status tide__gaps_place(tide__placements* placements, tide__gaps_order order);

// Offsets from tide_plan_solve(). With `in_place`, outputs lie over inputs where nodes permit it; `out_over`
// counts them. [solve.c]
tide_status tide__placements_solve(tide__placements* placements, bool in_place, uint32_t* out_over);

// Places the values end to end.
void tide__placements_line_up(tide__placements* placements);

// The end of the highest placement; and the most bytes that live at once.
uint64_t tide__placements_bytes(const tide__placements* placements);
tide_status tide__placements_load(const tide__placements* placements, uint64_t* out);

// Errors: `wrong`, with the values in the text, if offsets are; TIDE_ERR_NO_MEMORY. With `in_place`, outputs
//         may lie over inputs.
tide_status tide__placements_verify(const tide__placements* placements, bool in_place, tide_status wrong);

#endif
