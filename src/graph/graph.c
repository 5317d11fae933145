// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Building a graph: values, nodes and blocks in growing arrays. A part is added as a whole or not at all.
#include "tidemark/graph.h"

#include <string.h>

#include "base/error.h"
#include "base/sized.h"
#include "graph/graph_parts.h"

static tide_status graph_no_memory(const char* what) {
  return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for %s of a graph", what);
}

static tide_status graph_require_open(const tide_graph* graph) {
  TIDE_REQUIRE(graph != NULL, TIDE_ERR_ARGUMENT, "the graph is NULL");
  TIDE_REQUIRE(!graph->is_sealed, TIDE_ERR_STATE, "the graph is sealed");
  return TIDE_OK;
}

static tide_status graph_require_value(const tide_graph* graph, uint32_t value) {
  TIDE_REQUIRE(value < graph->value_count, TIDE_ERR_ARGUMENT, "there is no value %u: there are %zu", value,
               graph->value_count);
  return TIDE_OK;
}

static tide_status graph_require_block(const tide_graph* graph, uint32_t block) {
  TIDE_REQUIRE(block < graph->block_count, TIDE_ERR_ARGUMENT, "there is no block %u: there are %zu", block,
               graph->block_count);
  return TIDE_OK;
}

static tide_status graph_require_room(size_t count, size_t more) {
  TIDE_REQUIRE(more <= TIDE_GRAPH_MAX_PARTS && count <= TIDE_GRAPH_MAX_PARTS - more, TIDE_ERR_LIMIT,
               "a graph has at most 2^28 parts of a kind");
  return TIDE_OK;
}

static bool numbers_reserve(tide__numbers* numbers, const tide_heap* heap, size_t more) {
  return tide__heap_grow(heap, (void**)&numbers->items, &numbers->capacity, numbers->count + more,
                         sizeof *numbers->items);
}

static void numbers_fini(tide__numbers* numbers, const tide_heap* heap) {
  tide__heap_release(heap, numbers->items, numbers->capacity, sizeof *numbers->items);
}

// ---------------------------------------------------------------------------------------------------
// Graphs

static bool graph_append_block(tide_graph* graph, uint32_t node, uint32_t depth) {
  const bool has_room = tide__heap_grow(graph->heap, (void**)&graph->blocks, &graph->block_capacity,
                                        graph->block_count + 1, sizeof *graph->blocks);
  if (!has_room) return false;
  graph->blocks[graph->block_count++] =
      (tide__graph_block){ .node = node, .depth = depth, .previous = TIDE_GRAPH_NONE };
  return true;
}

tide_status tide_graph_new(const tide_heap* heap, tide_graph** out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "graph: out is NULL");
  *out = NULL;
  TIDE_REQUIRE(tide__heap_is_valid(heap), TIDE_ERR_ARGUMENT, "graph: the heap lacks a function");
  heap = tide__heap_or_system(heap);
  tide_graph* const graph = tide__heap_alloc(heap, 1, sizeof *graph);
  if (graph == NULL) return graph_no_memory("the record");
  graph->heap = heap;
  if (!graph_append_block(graph, TIDE_GRAPH_NONE, 0)) {
    tide_graph_free(graph);
    return graph_no_memory("the root");
  }
  *out = graph;
  return TIDE_OK;
}

void tide_graph_free(tide_graph* graph) {
  if (graph == NULL) return;
  const tide_heap* const heap = graph->heap;
  for (size_t i = 0; i < graph->block_count; i++) {
    numbers_fini(&graph->blocks[i].nodes, heap);
    numbers_fini(&graph->blocks[i].inputs, heap);
    numbers_fini(&graph->blocks[i].outputs, heap);
  }
  tide__heap_release(heap, graph->blocks, graph->block_capacity, sizeof *graph->blocks);
  tide__heap_release(heap, graph->values, graph->value_capacity, sizeof *graph->values);
  tide__heap_release(heap, graph->nodes, graph->node_capacity, sizeof *graph->nodes);
  tide__heap_release(heap, graph->pairs, graph->pair_capacity, sizeof *graph->pairs);
  numbers_fini(&graph->uses, heap);
  tide__heap_release(heap, graph, 1, sizeof *graph);
}

// ---------------------------------------------------------------------------------------------------
// Values

tide_status tide_graph_add_value(tide_graph* graph, tide_graph_kind kind, uint32_t* out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "add_value: out is NULL");
  *out = TIDE_GRAPH_NONE;
  TIDE_TRY(graph_require_open(graph));
  TIDE_REQUIRE((unsigned)kind <= TIDE_KIND_SCALAR, TIDE_ERR_ARGUMENT, "there is no kind %d", (int)kind);
  TIDE_TRY(graph_require_room(graph->value_count, 1));
  const bool has_room = tide__heap_grow(graph->heap, (void**)&graph->values, &graph->value_capacity,
                                        graph->value_count + 1, sizeof *graph->values);
  if (!has_room) return graph_no_memory("a value");
  graph->values[graph->value_count] = (tide__value){ .kind = kind,
                                                     .block = TIDE_GRAPH_NONE,
                                                     .node = TIDE_GRAPH_NONE,
                                                     .is_alone = true,
                                                     .output_depth = TIDE__NO_DEPTH };
  *out = (uint32_t)graph->value_count++;
  return TIDE_OK;
}

// A value is defined once: as an input, a constant, or by a node.
static tide_status graph_require_undefined(const tide_graph* graph, uint32_t value) {
  TIDE_TRY(graph_require_value(graph, value));
  TIDE_REQUIRE(graph->values[value].block == TIDE_GRAPH_NONE, TIDE_ERR_ARGUMENT, "value %u is defined twice",
               value);
  return TIDE_OK;
}

static tide_status numbers_append(tide__numbers* numbers, const tide_heap* heap, uint32_t value) {
  TIDE_TRY(graph_require_room(numbers->count, 1));
  if (!numbers_reserve(numbers, heap, 1)) return graph_no_memory("an input or output");
  numbers->items[numbers->count++] = value;
  return TIDE_OK;
}

tide_status tide_graph_add_input(tide_graph* graph, uint32_t block, uint32_t value) {
  TIDE_TRY(graph_require_open(graph));
  TIDE_TRY(graph_require_block(graph, block));
  TIDE_TRY(graph_require_undefined(graph, value));
  TIDE_TRY(numbers_append(&graph->blocks[block].inputs, graph->heap, value));
  graph->values[value].block = block;
  graph->values[value].is_input = true;
  return TIDE_OK;
}

tide_status tide_graph_add_output(tide_graph* graph, uint32_t block, uint32_t value) {
  TIDE_TRY(graph_require_open(graph));
  TIDE_TRY(graph_require_block(graph, block));
  TIDE_TRY(graph_require_value(graph, value));
  return numbers_append(&graph->blocks[block].outputs, graph->heap, value);
}

tide_status tide_graph_add_constant(tide_graph* graph, uint32_t value) {
  TIDE_TRY(graph_require_open(graph));
  TIDE_TRY(graph_require_undefined(graph, value));
  graph->values[value].block = TIDE_GRAPH_ROOT;
  graph->values[value].is_constant = true;
  return TIDE_OK;
}

tide_status tide_graph_add_escape(tide_graph* graph, uint32_t value) {
  TIDE_TRY(graph_require_open(graph));
  TIDE_TRY(graph_require_value(graph, value));
  graph->values[value].escapes = true;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Nodes

// Inputs and outputs are marked with the number of the check, so that pairs need no search.
static uint64_t mark_of_input(const tide_graph* graph) { return 2 * graph->checks; }

static uint64_t mark_of_output(const tide_graph* graph) { return 2 * graph->checks + 1; }

static tide_status node_check_pairs(const tide_graph* graph, const tide_graph_pair* pairs, size_t count) {
  TIDE_REQUIRE(pairs != NULL || count == 0, TIDE_ERR_ARGUMENT, "the pairs of a node are NULL");
  for (size_t i = 0; i < count; i++) {
    TIDE_TRY(graph_require_value(graph, pairs[i].input));
    TIDE_TRY(graph_require_value(graph, pairs[i].output));
    const bool is_pair = graph->values[pairs[i].input].mark == mark_of_input(graph) &&
                         graph->values[pairs[i].output].mark == mark_of_output(graph);
    TIDE_REQUIRE(is_pair, TIDE_ERR_ARGUMENT, "values %u and %u are not an input and an output of one node",
                 pairs[i].input, pairs[i].output);
  }
  return TIDE_OK;
}

static tide_status node_check_values(tide_graph* graph, const tide_graph_node* node) {
  TIDE_REQUIRE((node->inputs != NULL || node->input_count == 0) &&
                   (node->outputs != NULL || node->output_count == 0),
               TIDE_ERR_ARGUMENT, "the inputs or outputs of a node are NULL");
  TIDE_TRY(graph_require_room(graph->uses.count, node->input_count));
  TIDE_TRY(graph_require_room(graph->uses.count + node->input_count, node->output_count));
  for (size_t i = 0; i < node->input_count; i++) {
    TIDE_TRY(graph_require_value(graph, node->inputs[i]));
    graph->values[node->inputs[i]].mark = mark_of_input(graph);
  }
  for (size_t i = 0; i < node->output_count; i++) {
    TIDE_TRY(graph_require_undefined(graph, node->outputs[i]));
    tide__value* const value = &graph->values[node->outputs[i]];
    TIDE_REQUIRE(value->mark < mark_of_input(graph), TIDE_ERR_ARGUMENT,
                 "value %u occurs twice among the values of a node", node->outputs[i]);
    value->mark = mark_of_output(graph);
  }
  return TIDE_OK;
}

static tide_status node_check(tide_graph* graph, const tide_graph_node* node) {
  TIDE_REQUIRE(node->flags < 2 * TIDE_NODE_GUARDED, TIDE_ERR_ARGUMENT, "a node has the flags %x",
               node->flags);
  TIDE_TRY(graph_require_room(graph->node_count, 1));
  graph->checks++;
  TIDE_TRY(node_check_values(graph, node));
  TIDE_TRY(graph_require_room(graph->pair_count, node->alias_count));
  TIDE_TRY(graph_require_room(graph->pair_count + node->alias_count, node->in_place_count));
  TIDE_TRY(node_check_pairs(graph, node->aliases, node->alias_count));
  return node_check_pairs(graph, node->in_place, node->in_place_count);
}

static bool graph_reserve_node(tide_graph* graph, uint32_t block, const tide_graph_node* node) {
  const size_t pairs = graph->pair_count + node->alias_count + node->in_place_count;
  return tide__heap_grow(graph->heap, (void**)&graph->nodes, &graph->node_capacity, graph->node_count + 1,
                         sizeof *graph->nodes) &&
         tide__heap_grow(graph->heap, (void**)&graph->pairs, &graph->pair_capacity, pairs,
                         sizeof *graph->pairs) &&
         numbers_reserve(&graph->uses, graph->heap, node->input_count + node->output_count) &&
         numbers_reserve(&graph->blocks[block].nodes, graph->heap, 1);
}

static size_t graph_append_uses(tide_graph* graph, const uint32_t* values, size_t count) {
  const size_t first = graph->uses.count;
  if (count != 0) memcpy(&graph->uses.items[first], values, count * sizeof *values);
  graph->uses.count += count;
  return first;
}

static size_t graph_append_pairs(tide_graph* graph, const tide_graph_pair* pairs, size_t count) {
  const size_t first = graph->pair_count;
  if (count != 0) memcpy(&graph->pairs[first], pairs, count * sizeof *pairs);
  graph->pair_count += count;
  return first;
}

tide_status tide_graph_add_node(tide_graph* graph, uint32_t block, const tide_graph_node* theirs,
                                uint32_t* out) {
  tide_graph_node whole = TIDE_GRAPH_NODE_INIT;
  const tide_graph_node* const node = &whole;
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "add_node: out is NULL");
  *out = TIDE_GRAPH_NONE;
  TIDE_TRY(graph_require_open(graph));
  TIDE_TRY(graph_require_block(graph, block));
  TIDE_TRY(tide__sized_read("add_node", theirs, &whole, sizeof whole));
  TIDE_TRY(node_check(graph, node));
  if (!graph_reserve_node(graph, block, node)) return graph_no_memory("a node");
  const uint32_t number = (uint32_t)graph->node_count++;
  tide__numbers* const nodes = &graph->blocks[block].nodes;
  graph->nodes[number] =
      (tide__node){ .block = block,
                    .position = (uint32_t)nodes->count,
                    .flags = node->flags,
                    .inputs = graph_append_uses(graph, node->inputs, node->input_count),
                    .outputs = graph_append_uses(graph, node->outputs, node->output_count),
                    .aliases = graph_append_pairs(graph, node->aliases, node->alias_count),
                    .in_place = graph_append_pairs(graph, node->in_place, node->in_place_count),
                    .input_count = (uint32_t)node->input_count,
                    .output_count = (uint32_t)node->output_count,
                    .alias_count = (uint32_t)node->alias_count,
                    .in_place_count = (uint32_t)node->in_place_count,
                    .last_block = TIDE_GRAPH_NONE };
  nodes->items[nodes->count++] = number;
  for (size_t i = 0; i < node->output_count; i++) {
    graph->values[node->outputs[i]].block = block;
    graph->values[node->outputs[i]].node = number;
    graph->values[node->outputs[i]].use = (uint32_t)(graph->nodes[number].outputs + i);
  }
  *out = number;
  return TIDE_OK;
}

tide_status tide_graph_add_block(tide_graph* graph, uint32_t node, uint32_t* out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "add_block: out is NULL");
  *out = TIDE_GRAPH_NONE;
  TIDE_TRY(graph_require_open(graph));
  TIDE_REQUIRE(node < graph->node_count, TIDE_ERR_ARGUMENT, "there is no node %u: there are %zu", node,
               graph->node_count);
  TIDE_TRY(graph_require_room(graph->block_count, 1));
  tide__node* const holder = &graph->nodes[node];
  if (!graph_append_block(graph, node, graph->blocks[holder->block].depth + 1))
    return graph_no_memory("a block");
  const uint32_t number = (uint32_t)graph->block_count - 1;
  graph->blocks[number].previous = holder->last_block;
  holder->last_block = number;
  *out = number;
  return TIDE_OK;
}
