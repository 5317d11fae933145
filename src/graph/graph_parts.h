// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The records of a graph: values, nodes and blocks, which refer to one another by number. After sealing,
// also lifetimes and what memory may be shared.
//
// There is one timeline through all blocks. A node takes one instant; a node with blocks takes one before
// them, all of theirs, and one after. So the contents of a node lie between its two instants, and its
// branches do not overlap: only one of them runs at a time.
#ifndef TIDEMARK_SRC_GRAPH_GRAPH_PARTS_H
#define TIDEMARK_SRC_GRAPH_GRAPH_PARTS_H

#include "base/heap.h"
#include "tidemark/graph.h"

#define TIDE__NO_DEPTH UINT32_MAX
#define TIDE__HOME_OUTSIDE 0u  // the memory of an input, a constant, or of what escapes

typedef struct tide__value {
  tide_graph_kind kind;
  uint32_t block;  // that defines it; TIDE_GRAPH_NONE: none
  uint32_t node;   // that makes it; TIDE_GRAPH_NONE: none
  uint32_t use;    // its position among the outputs of all nodes
  uint64_t mark;   // 2 n or, as an output, 2 n + 1 if the n-th checked node was the last to name it
  bool is_input;   // of its block
  bool is_constant;
  bool escapes;
  bool is_output;  // of its block
  // Found when the graph is sealed
  bool is_defined;
  bool is_alone;          // it shares memory with no other value
  uint32_t output_depth;  // the least depth of a block with an output that may share its memory
  uint32_t home;          // 1 + the least depth of a block that its memory may come from; 0: from outside
  uint32_t begin;         // the first instant of its life
  uint32_t end;           // and the last
} tide__value;

typedef struct tide__node {
  uint32_t block;
  uint32_t position;  // in its block
  uint32_t flags;
  // Positions and counts of its values and pairs in the graph's arrays
  size_t inputs;
  size_t outputs;
  size_t aliases;
  size_t in_place;
  uint32_t input_count;
  uint32_t output_count;
  uint32_t alias_count;
  uint32_t in_place_count;
  uint32_t last_block;  // of its blocks, chained by `previous`; TIDE_GRAPH_NONE: none
  uint32_t begin;       // its instants
  uint32_t end;
} tide__node;

// A list of numbers that only grows.
typedef struct tide__numbers {
  uint32_t* items;  // owned
  size_t count;
  size_t capacity;
} tide__numbers;

typedef struct tide__graph_block {
  uint32_t node;   // that holds it; TIDE_GRAPH_NONE: the root
  uint32_t depth;  // 0: the root
  // The depth of the innermost block, this one or around it, that may pass a value to its next iteration;
  // 0: none.
  uint32_t turn_depth;
  uint32_t previous;  // block of the same node; TIDE_GRAPH_NONE: none
  tide__numbers nodes;
  tide__numbers inputs;
  tide__numbers outputs;
} tide__graph_block;

struct tide_graph {
  const tide_heap* heap;  // borrowed until the graph is freed
  bool is_sealed;
  uint64_t checks;      // nodes that were checked so far
  tide__value* values;  // owned, as all below
  size_t value_count, value_capacity;
  tide__node* nodes;
  size_t node_count, node_capacity;
  tide__graph_block* blocks;
  size_t block_count, block_capacity;
  tide__numbers uses;  // inputs and outputs of nodes
  tide_graph_pair* pairs;
  size_t pair_count, pair_capacity;
  uint32_t instants;  // of all time; the outputs of the root live until this one
};

// Is the value mutable and made by a node, so that it has a lifetime?
static inline bool tide__value_is_tracked(const tide__value* value) {
  const bool is_mutable = value->kind <= TIDE_KIND_OBJECT;
  return is_mutable && value->node != TIDE_GRAPH_NONE;
}

static inline const uint32_t* tide__node_inputs(const tide_graph* graph, const tide__node* node) {
  return node->input_count != 0 ? &graph->uses.items[node->inputs] : NULL;
}
static inline const uint32_t* tide__node_outputs(const tide_graph* graph, const tide__node* node) {
  return node->output_count != 0 ? &graph->uses.items[node->outputs] : NULL;
}

// May its memory be read after its block has ended, because it may share memory with an output?
static inline bool tide__value_is_output_alias(const tide_graph* graph, const tide__value* value) {
  return value->block != TIDE_GRAPH_NONE && value->output_depth <= graph->blocks[value->block].depth;
}

// May its memory come from outside its block: from an input, a constant, an escape, or a value around the
// block?
static inline bool tide__value_is_external_alias(const tide_graph* graph, const tide__value* value) {
  return value->block == TIDE_GRAPH_NONE || value->home <= graph->blocks[value->block].depth;
}

#endif
