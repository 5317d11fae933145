// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A graph as it is kept: values, nodes and blocks as records that refer to one another by number, and, once
// it is sealed, when each value lives and what its memory may be shared with.
//
// Time is one line through all blocks: a node takes one instant, or, if it holds blocks, one before them,
// all of theirs, and one behind. What is inside a node so lies between its two instants, and branches of a
// node lie apart, as they should: only one of them is at work at a time.
#ifndef TIDEMARK_SRC_GRAPH_GRAPH_PARTS_H
#define TIDEMARK_SRC_GRAPH_GRAPH_PARTS_H

#include "base/heap.h"
#include "tidemark/graph.h"

#define TIDE__NO_DEPTH UINT32_MAX
#define TIDE__HOME_OUTSIDE 0u  // the memory of an input, a constant, or of what escapes

typedef struct tide__value {
  tide_graph_kind kind;
  uint32_t block;  // that it is defined in; TIDE_GRAPH_NONE: nowhere
  uint32_t node;   // that makes it; TIDE_GRAPH_NONE: none
  uint32_t use;    // where it stands among the outputs of all nodes
  uint64_t mark;   // the last node that was checked and named it: twice its number, plus one for an output
  bool is_input;   // of its block
  bool is_constant;
  bool escapes;
  bool is_output;  // of its block
  // Found when the graph is sealed
  bool is_defined;
  bool is_alone;          // it may share memory with nothing
  uint32_t output_depth;  // the least depth of a block that has an output it may share memory with
  uint32_t home;          // the least depth, plus one, of a block that its memory may come from; 0: no block
  uint32_t begin;         // the first instant of its life
  uint32_t end;           // and the last
} tide__value;

typedef struct tide__node {
  uint32_t block;
  uint32_t position;  // in its block
  uint32_t flags;
  // Where its values and pairs begin in the arrays of all, and how many
  size_t inputs;
  size_t outputs;
  size_t aliases;
  size_t in_place;
  uint32_t input_count;
  uint32_t output_count;
  uint32_t alias_count;
  uint32_t in_place_count;
  uint32_t last_block;  // of those that it holds, chained by `previous`; TIDE_GRAPH_NONE: none
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
  // The depth of the innermost block, this one or around it, that may hand something to its next turn; 0:
  // none.
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

// Can a value change or hold what can, and so has a lifetime?
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

// May its memory be read after its block has ended: is it, or may it share memory with, an output of it?
static inline bool tide__value_is_output_alias(const tide_graph* graph, const tide__value* value) {
  return value->block != TIDE_GRAPH_NONE && value->output_depth <= graph->blocks[value->block].depth;
}

// May its memory come from outside of its block: does it share it with an input, a constant, what escapes,
// or a value around the block?
static inline bool tide__value_is_external_alias(const tide_graph* graph, const tide__value* value) {
  return value->block == TIDE_GRAPH_NONE || value->home <= graph->blocks[value->block].depth;
}

#endif
