// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The roles of values, by the rules of PyTorch's static runtime. A value that a node can write into given
// memory is managed, unless its memory may come from outside or be read after its block has ended.
#include "graph/roles.h"

#include "base/arith.h"
#include "base/error.h"

static tide_status options_check_switches(const tide_graph_options* options) {
  TIDE_REQUIRE(options->writes_out || !options->shares, TIDE_ERR_ARGUMENT,
               "graph: values share memory only where nodes write into what they are given (writes_out)");
  TIDE_REQUIRE(options->writes_out || !options->manages_outputs, TIDE_ERR_ARGUMENT,
               "graph: outputs are managed only where nodes write into what they are given (writes_out)");
  TIDE_REQUIRE(options->manages_outputs || !options->manages_direct_outputs, TIDE_ERR_ARGUMENT,
               "graph: direct outputs are managed only together with the others (manages_outputs)");
  return TIDE_OK;
}

tide_status tide__graph_options_check(const tide_graph_options* options) {
  TIDE_REQUIRE((unsigned)options->algorithm < TIDE_GRAPH_ALGORITHM_COUNT, TIDE_ERR_ARGUMENT,
               "graph: there is no algorithm %d", (int)options->algorithm);
  TIDE_TRY(options_check_switches(options));
  TIDE_REQUIRE(tide__is_power_of_two(options->alignment) && options->alignment <= 1u << 20, TIDE_ERR_ARGUMENT,
               "graph: the alignment %llu is not a power of two up to 2^20",
               (unsigned long long)options->alignment);
  TIDE_REQUIRE(options->remembers_runs <= 1024 && options->waste >= 0 && options->waste <= 1e9,
               TIDE_ERR_ARGUMENT, "graph: remembers_runs is %u, up to 1024, and waste %g, from 0",
               options->remembers_runs, options->waste);
  TIDE_REQUIRE(options->max_layouts >= 1 && options->max_layouts <= 65536, TIDE_ERR_ARGUMENT,
               "graph: %u layouts; there can be 1 to 65536", options->max_layouts);
  TIDE_REQUIRE(options->plan_nodes != 0, TIDE_ERR_ARGUMENT, "graph: plan_nodes is 0");
  const bool has_both = (options->memory.alloc != NULL) == (options->memory.release != NULL);
  TIDE_REQUIRE(has_both && tide__heap_is_valid(options->heap), TIDE_ERR_ARGUMENT,
               "graph: the memory or the heap lacks a function");
  return TIDE_OK;
}

// Is it a container that can be kept from run to run, because all its elements are written in place?
static bool role_is_leaked(const tide_graph* graph, const tide__value* value, const tide__node* node) {
  if (value->kind != TIDE_KIND_CONTAINER || node->output_count != 1) return false;
  const uint32_t* const inputs = tide__node_inputs(graph, node);
  for (uint32_t i = 0; i < node->input_count; i++) {
    const uint32_t producer = graph->values[inputs[i]].node;
    if (producer == TIDE_GRAPH_NONE || (graph->nodes[producer].flags & TIDE_NODE_WRITES_OUT) == 0)
      return false;
  }
  return true;
}

// Is it a managed output, of the graph and not of a block?
static bool role_is_managed_output(const tide_graph* graph, const tide_graph_options* options,
                                   const tide__value* value) {
  return options->manages_outputs && value->kind == TIDE_KIND_TENSOR && value->block == TIDE_GRAPH_ROOT &&
         (!value->is_output || options->manages_direct_outputs) &&
         tide__value_is_output_alias(graph, value) && !tide__value_is_external_alias(graph, value);
}

static tide_value_role role_unmanaged(const tide__value* value, const tide__node* node) {
  const bool is_graph_output = value->is_output && value->block == TIDE_GRAPH_ROOT;
  if (value->kind == TIDE_KIND_SCALAR && !is_graph_output) return TIDE_ROLE_SCALAR;
  if ((node->flags & TIDE_NODE_BORROWS) != 0) {
    return is_graph_output ? TIDE_ROLE_BORROWED_OUTPUT : TIDE_ROLE_BORROWED;
  }
  return is_graph_output ? TIDE_ROLE_OUTPUT : TIDE_ROLE_UNMANAGED;
}

// May the memory of a value be needed after its lifetime? Not if it only lives on in outputs of nodes whose
// blocks are planned with it: these are part of its lifetime, unless a block passes it to its next
// iteration.
static bool role_is_always_alive(const tide_graph* graph, const tide_graph_options* options,
                                 const tide__value* value) {
  if (tide__value_is_external_alias(graph, value)) return true;
  if (!tide__value_is_output_alias(graph, value)) return false;
  return !options->nests || value->output_depth <= graph->blocks[value->block].turn_depth;
}

tide_value_role tide__graph_role(const tide_graph* graph, const tide_graph_options* options, uint32_t value) {
  const tide__value* const record = &graph->values[value];
  if (record->node == TIDE_GRAPH_NONE) return TIDE_ROLE_EXTERNAL;
  const tide__node* const node = &graph->nodes[record->node];
  if (options->writes_out && (node->flags & TIDE_NODE_WRITES_OUT) != 0) {
    if (role_is_managed_output(graph, options, record)) return TIDE_ROLE_MANAGED_OUTPUT;
    const bool is_always_alive = role_is_always_alive(graph, options, record);
    if (!is_always_alive && record->kind == TIDE_KIND_TENSOR) return TIDE_ROLE_MANAGED;
    if (!is_always_alive && role_is_leaked(graph, record, node)) return TIDE_ROLE_LEAKED;
  }
  return role_unmanaged(record, node);
}
