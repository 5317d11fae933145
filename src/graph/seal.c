// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Sealing a graph. One walk along time gives every node its instants, checks that every value is defined
// before it is used and visible where it is used, and finds the last use of each. A backward walk then
// carries lifetimes, outputs and escapes from values to those that they may share memory with, and a
// forward walk carries inputs the other way. A value is always made before anything that is made from it,
// so one walk each is enough.
//
// Memory may be shared by the pairs that nodes list, by the inputs of a node and of its blocks, and by the
// outputs of a node and of its blocks. The walks use an explicit stack, so that no graph is too deep. Cost:
// O(values + uses + pairs).
#include "base/arith.h"
#include "base/error.h"
#include "base/scratch.h"
#include "graph/graph_parts.h"

// The steps of time. A node without blocks is entered and left at one instant.
typedef enum seal_step { SEAL_ENTER_NODE, SEAL_LEAVE_NODE, SEAL_ENTER_BLOCK, SEAL_LEAVE_BLOCK } seal_step;

typedef struct seal_event {
  seal_step step;
  uint32_t number;  // of the node or block
} seal_event;

typedef struct seal_work {
  tide_graph* graph;
  tide__scratch scratch;
  seal_event* events;  // of scratch; all steps in the order of time
  seal_event* stack;   // of scratch; pending steps while the order is found
  size_t event_count;
  size_t stack_count;
  uint32_t*
      at_work;  // of scratch; by block: the node that runs in it; TIDE_GRAPH_NONE: the block is not open
  uint32_t now;
  seal_event user;  // the current step
} seal_work;

// ---------------------------------------------------------------------------------------------------
// The order of time

static void seal_push(seal_work* work, seal_step step, uint32_t number) {
  work->stack[work->stack_count++] = (seal_event){ step, number };
}

// Pushes the steps that follow a step, in reverse order.
static void seal_unfold(seal_work* work, seal_event event) {
  const tide_graph* const graph = work->graph;
  if (event.step == SEAL_ENTER_NODE) {
    seal_push(work, SEAL_LEAVE_NODE, event.number);
    uint32_t block = graph->nodes[event.number].last_block;
    for (; block != TIDE_GRAPH_NONE; block = graph->blocks[block].previous) {
      seal_push(work, SEAL_ENTER_BLOCK, block);
    }
  }
  if (event.step == SEAL_ENTER_BLOCK) {
    seal_push(work, SEAL_LEAVE_BLOCK, event.number);
    const tide__numbers* const nodes = &graph->blocks[event.number].nodes;
    for (size_t i = nodes->count; i-- > 0;) seal_push(work, SEAL_ENTER_NODE, nodes->items[i]);
  }
}

static void seal_order(seal_work* work) {
  seal_push(work, SEAL_ENTER_BLOCK, TIDE_GRAPH_ROOT);
  while (work->stack_count != 0) {
    const seal_event event = work->stack[--work->stack_count];
    work->events[work->event_count++] = event;
    seal_unfold(work, event);
  }
}

// ---------------------------------------------------------------------------------------------------
// Definitions and uses

static void seal_define(seal_work* work, uint32_t number) {
  tide__value* const value = &work->graph->values[number];
  value->is_defined = true;
  value->begin = work->now;
  value->end = work->now;
}

// A value is used by a node, or by the end of a block. It must be defined, and lives until the node that
// runs in its own block has ended.
static tide_status seal_use(seal_work* work, uint32_t number) {
  tide_graph* const graph = work->graph;
  tide__value* const value = &graph->values[number];
  TIDE_REQUIRE(value->is_defined, TIDE_ERR_ARGUMENT, "value %u is used by %s %u before it is defined", number,
               work->user.step == SEAL_ENTER_NODE ? "node" : "the end of block", work->user.number);
  if (value->is_constant) return TIDE_OK;
  const uint32_t node = work->at_work[value->block];
  TIDE_REQUIRE(node != TIDE_GRAPH_NONE, TIDE_ERR_ARGUMENT, "value %u is used by %s %u, outside its block %u",
               number, work->user.step == SEAL_ENTER_NODE ? "node" : "the end of block", work->user.number,
               value->block);
  // The end of a node is not known yet; use its number until then.
  value->end = node;
  return TIDE_OK;
}

static tide_status seal_enter_node(seal_work* work, uint32_t number) {
  tide_graph* const graph = work->graph;
  tide__node* const node = &graph->nodes[number];
  node->begin = ++work->now;
  work->at_work[node->block] = number;
  const uint32_t* const inputs = tide__node_inputs(graph, node);
  for (uint32_t i = 0; i < node->input_count; i++) TIDE_TRY(seal_use(work, inputs[i]));
  return TIDE_OK;
}

static void seal_leave_node(seal_work* work, uint32_t number) {
  tide_graph* const graph = work->graph;
  tide__node* const node = &graph->nodes[number];
  if (node->last_block != TIDE_GRAPH_NONE) work->now++;
  node->end = work->now;
  const uint32_t* const outputs = tide__node_outputs(graph, node);
  for (uint32_t i = 0; i < node->output_count; i++) {
    seal_define(work, outputs[i]);
    graph->values[outputs[i]].end = number;
  }
}

static void seal_enter_block(seal_work* work, uint32_t number) {
  const tide__numbers* const inputs = &work->graph->blocks[number].inputs;
  work->at_work[number] = TIDE_GRAPH_MAX_PARTS;  // open, and no node of it has begun
  for (size_t i = 0; i < inputs->count; i++) seal_define(work, inputs->items[i]);
}

static tide_status seal_leave_block(seal_work* work, uint32_t number) {
  tide_graph* const graph = work->graph;
  const tide__numbers* const outputs = &graph->blocks[number].outputs;
  for (size_t i = 0; i < outputs->count; i++) {
    tide__value* const value = &graph->values[outputs->items[i]];
    TIDE_TRY(seal_use(work, outputs->items[i]));
    if (value->block == number) value->is_output = true;
    value->output_depth = (uint32_t)tide__min(value->output_depth, graph->blocks[number].depth);
  }
  work->at_work[number] = TIDE_GRAPH_NONE;
  return TIDE_OK;
}

static tide_status seal_walk(seal_work* work) {
  tide_graph* const graph = work->graph;
  for (size_t i = 0; i < graph->value_count; i++) {
    if (graph->values[i].is_constant) graph->values[i].is_defined = true;
  }
  for (size_t i = 0; i < graph->block_count; i++) work->at_work[i] = TIDE_GRAPH_NONE;
  for (size_t i = 0; i < work->event_count; i++) {
    const seal_event event = work->events[i];
    work->user = event;
    if (event.step == SEAL_ENTER_NODE) TIDE_TRY(seal_enter_node(work, event.number));
    if (event.step == SEAL_LEAVE_NODE) seal_leave_node(work, event.number);
    if (event.step == SEAL_ENTER_BLOCK) seal_enter_block(work, event.number);
    if (event.step == SEAL_LEAVE_BLOCK) TIDE_TRY(seal_leave_block(work, event.number));
  }
  graph->instants = work->now + 1;
  return TIDE_OK;
}

// The instant at which a block has ended.
static uint32_t seal_block_end(const tide_graph* graph, uint32_t block) {
  const uint32_t node = graph->blocks[block].node;
  return node != TIDE_GRAPH_NONE ? graph->nodes[node].end : graph->instants;
}

// Converts lifetimes from nodes to instants: outputs of a node live from its beginning, inputs until its
// end.
static void seal_set_lifetimes(tide_graph* graph) {
  for (size_t i = 0; i < graph->value_count; i++) {
    tide__value* const value = &graph->values[i];
    if (value->node == TIDE_GRAPH_NONE || !value->is_defined) {
      value->begin = value->end = 0;
      continue;
    }
    value->begin = graph->nodes[value->node].begin;
    value->end = value->is_output ? seal_block_end(graph, value->block) : graph->nodes[value->end].end;
  }
}

// ---------------------------------------------------------------------------------------------------
// Aliases

// Properties that aliases share. Backward, to the earlier value: how long it is used and by whom. Forward,
// to the later value: where its memory comes from.
typedef struct seal_load {
  uint32_t end;
  uint32_t output_depth;
  uint32_t home;
  bool escapes;
} seal_load;

static const seal_load seal_nothing = { .output_depth = TIDE__NO_DEPTH, .home = TIDE__NO_DEPTH };

static bool seal_is_mutable(const tide__value* value) { return value->kind <= TIDE_KIND_OBJECT; }

static void seal_collect(const tide_graph* graph, const uint32_t* values, size_t count, seal_load* load) {
  for (size_t i = 0; i < count; i++) {
    const tide__value* const value = &graph->values[values[i]];
    if (!seal_is_mutable(value)) continue;
    load->end = (uint32_t)tide__max(load->end, value->end);
    load->output_depth = (uint32_t)tide__min(load->output_depth, value->output_depth);
    load->home = (uint32_t)tide__min(load->home, value->home);
    load->escapes |= value->escapes;
  }
}

static void seal_carry_back(tide_graph* graph, const uint32_t* values, size_t count, const seal_load* load) {
  for (size_t i = 0; i < count; i++) {
    tide__value* const value = &graph->values[values[i]];
    if (!seal_is_mutable(value)) continue;
    value->end = (uint32_t)tide__max(value->end, load->end);
    value->output_depth = (uint32_t)tide__min(value->output_depth, load->output_depth);
    value->escapes |= load->escapes;
    value->is_alone = false;
  }
}

static void seal_carry_forth(tide_graph* graph, const uint32_t* values, size_t count, const seal_load* load) {
  for (size_t i = 0; i < count; i++) {
    tide__value* const value = &graph->values[values[i]];
    if (!seal_is_mutable(value)) continue;
    value->home = (uint32_t)tide__min(value->home, load->home);
    value->is_alone = false;
  }
}

// Carries properties between two lists whose values may all share memory, in one direction.
static void seal_share(tide_graph* graph, const uint32_t* earlier, size_t earlier_count,
                       const uint32_t* later, size_t later_count, bool is_back) {
  seal_load load = seal_nothing;
  if (earlier_count == 0 || later_count == 0) return;
  if (is_back) {
    seal_collect(graph, later, later_count, &load);
    seal_carry_back(graph, earlier, earlier_count, &load);
  } else {
    seal_collect(graph, earlier, earlier_count, &load);
    seal_carry_forth(graph, later, later_count, &load);
  }
}

static void seal_share_pairs(tide_graph* graph, const tide__node* node, bool is_back) {
  for (uint32_t i = 0; i < node->alias_count; i++) {
    const tide_graph_pair* const pair = &graph->pairs[node->aliases + i];
    seal_share(graph, &pair->input, 1, &pair->output, 1, is_back);
  }
  if ((node->flags & TIDE_NODE_ALIASES_ALL) == 0) return;
  seal_share(graph, tide__node_inputs(graph, node), node->input_count, tide__node_outputs(graph, node),
             node->output_count, is_back);
}

// The inputs of a node and those of all its blocks.
static void seal_share_block_inputs(tide_graph* graph, const tide__node* node, bool is_back) {
  const uint32_t* const inputs = tide__node_inputs(graph, node);
  seal_load load = seal_nothing;
  bool has_inputs = false;
  if (!is_back) seal_collect(graph, inputs, node->input_count, &load);
  for (uint32_t i = node->last_block; i != TIDE_GRAPH_NONE; i = graph->blocks[i].previous) {
    const tide__numbers* const inner = &graph->blocks[i].inputs;
    has_inputs = has_inputs || inner->count != 0;
    if (is_back) seal_collect(graph, inner->items, inner->count, &load);
    else seal_carry_forth(graph, inner->items, inner->count, &load);
  }
  if (is_back && has_inputs) seal_carry_back(graph, inputs, node->input_count, &load);
}

// The outputs of all blocks of a node and its own.
static void seal_share_block_outputs(tide_graph* graph, const tide__node* node, bool is_back) {
  const uint32_t* const outputs = tide__node_outputs(graph, node);
  seal_load load = seal_nothing;
  bool has_outputs = false;
  if (is_back) seal_collect(graph, outputs, node->output_count, &load);
  for (uint32_t i = node->last_block; i != TIDE_GRAPH_NONE; i = graph->blocks[i].previous) {
    const tide__numbers* const inner = &graph->blocks[i].outputs;
    has_outputs = has_outputs || inner->count != 0;
    if (is_back) seal_carry_back(graph, inner->items, inner->count, &load);
    else seal_collect(graph, inner->items, inner->count, &load);
  }
  if (!is_back && has_outputs) seal_carry_forth(graph, outputs, node->output_count, &load);
}

static void seal_share_step(tide_graph* graph, seal_event event, bool is_back) {
  if (event.step != SEAL_ENTER_NODE && event.step != SEAL_LEAVE_NODE) return;
  const tide__node* const node = &graph->nodes[event.number];
  const bool has_blocks = node->last_block != TIDE_GRAPH_NONE;
  if (event.step == SEAL_ENTER_NODE && has_blocks) seal_share_block_inputs(graph, node, is_back);
  if (event.step != SEAL_LEAVE_NODE) return;
  if (has_blocks) seal_share_block_outputs(graph, node, is_back);
  seal_share_pairs(graph, node, is_back);
}

// The initial home of a value's memory: outside the graph, outside its block, or its block.
static uint32_t seal_first_home(const tide_graph* graph, const tide__value* value) {
  if (value->is_constant || value->escapes || value->block == TIDE_GRAPH_NONE) return TIDE__HOME_OUTSIDE;
  const uint32_t depth = graph->blocks[value->block].depth;
  return value->is_input ? depth : depth + 1;
}

static void seal_find_shared(seal_work* work) {
  tide_graph* const graph = work->graph;
  for (size_t i = work->event_count; i-- > 0;) seal_share_step(graph, work->events[i], true);
  for (size_t i = 0; i < graph->value_count; i++) {
    graph->values[i].home = seal_first_home(graph, &graph->values[i]);
  }
  for (size_t i = 0; i < work->event_count; i++) seal_share_step(graph, work->events[i], false);
}

// Blocks with inputs may pass their outputs to their next iteration. A block comes after those around it.
static void seal_find_turns(tide_graph* graph) {
  for (size_t i = 1; i < graph->block_count; i++) {
    tide__graph_block* const block = &graph->blocks[i];
    const uint32_t around = graph->nodes[block->node].block;
    block->turn_depth = block->inputs.count != 0 ? block->depth : graph->blocks[around].turn_depth;
  }
}

// ---------------------------------------------------------------------------------------------------
// The call

static bool seal_alloc(seal_work* work) {
  const tide_graph* const graph = work->graph;
  const size_t steps = 2 * (graph->node_count + graph->block_count);
  tide__scratch_init(&work->scratch, graph->heap);
  work->events = tide__scratch_alloc(&work->scratch, steps, sizeof *work->events);
  work->stack = tide__scratch_alloc(&work->scratch, steps, sizeof *work->stack);
  work->at_work = tide__scratch_alloc(&work->scratch, graph->block_count, sizeof *work->at_work);
  return !work->scratch.is_short;
}

// Clears the results of a failed walk.
static void seal_forget(tide_graph* graph) {
  for (size_t i = 0; i < graph->value_count; i++) {
    tide__value* const value = &graph->values[i];
    value->is_defined = value->is_output = false;
    value->output_depth = TIDE__NO_DEPTH;
  }
}

tide_status tide_graph_seal(tide_graph* graph) {
  TIDE_REQUIRE(graph != NULL, TIDE_ERR_ARGUMENT, "seal: the graph is NULL");
  TIDE_REQUIRE(!graph->is_sealed, TIDE_ERR_STATE, "the graph is sealed already");
  seal_work work = { .graph = graph };
  tide_status status = TIDE_OK;
  if (!seal_alloc(&work)) {
    status = TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory to seal a graph of %zu nodes", graph->node_count);
  } else {
    seal_order(&work);
    status = seal_walk(&work);
    if (status != TIDE_OK) seal_forget(graph);
  }
  if (status == TIDE_OK) {
    seal_set_lifetimes(graph);
    seal_find_shared(&work);
    seal_find_turns(graph);
    graph->is_sealed = true;
  }
  tide__scratch_fini(&work.scratch);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Lifetimes

// The position in a block of the node that runs at an instant; the number of its nodes after the last.
static uint32_t lifetime_position(const tide_graph* graph, uint32_t block, uint32_t instant) {
  const tide__numbers* const nodes = &graph->blocks[block].nodes;
  size_t low = 0;
  size_t high = nodes->count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (graph->nodes[nodes->items[middle]].end < instant) low = middle + 1;
    else high = middle;
  }
  return (uint32_t)low;
}

tide_graph_lifetime tide_graph_get_lifetime(const tide_graph* graph, uint32_t value) {
  tide_graph_lifetime lifetime = { .block = TIDE_GRAPH_NONE };
  if (graph == NULL || !graph->is_sealed || value >= graph->value_count) return lifetime;
  const tide__value* const record = &graph->values[value];
  lifetime.block = record->block;
  if (!tide__value_is_tracked(record)) return lifetime;
  lifetime.is_tracked = true;
  lifetime.first = graph->nodes[record->node].position;
  const bool is_last = record->is_output || record->end >= seal_block_end(graph, record->block);
  lifetime.last = is_last ? (uint32_t)graph->blocks[record->block].nodes.count
                          : lifetime_position(graph, record->block, record->end);
  return lifetime;
}
