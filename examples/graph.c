// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// graph.h: the values of a static graph share one arena. Here x -> a -> b -> c -> y, of which two live at a
// time, and a log value that code outside the graph keeps.
#include "example.h"

enum { X, A, B, C, Y, LOG, VALUES };

static uint32_t add_node(tide_graph* graph, uint32_t input, uint32_t output, uint32_t flags) {
  tide_graph_node node = TIDE_GRAPH_NODE_INIT;
  uint32_t number = 0;
  node.inputs = &input;
  node.outputs = &output;
  node.input_count = node.output_count = 1;
  node.flags = TIDE_NODE_WRITES_OUT | flags;
  must(tide_graph_add_node(graph, TIDE_GRAPH_ROOT, &node, &number));
  return number;
}

// Values get the numbers 0, 1, 2 ... in the order of their adding.
static tide_graph* chain_new(void) {
  tide_graph* graph = NULL;
  must(tide_graph_new(NULL, &graph));
  for (uint32_t i = 0, value = 0; i < VALUES; i++)
    must(tide_graph_add_value(graph, TIDE_KIND_TENSOR, &value));
  must(tide_graph_add_input(graph, TIDE_GRAPH_ROOT, X));
  for (uint32_t i = A; i <= Y; i++) add_node(graph, i - 1, i, i == B ? TIDE_NODE_GUARDED : 0);
  add_node(graph, C, LOG, 0);
  must(tide_graph_add_escape(graph, LOG));
  must(tide_graph_add_output(graph, TIDE_GRAPH_ROOT, Y));
  must(tide_graph_seal(graph));
  return graph;
}

// Places can be asked for without a planner, from sizes that are known.
static void print_layout(const tide_graph* graph) {
  const uint64_t bytes[VALUES] = { MIB, MIB, 2 * MIB, MIB, MIB, MIB };
  tide_graph_layout* layout = NULL;
  must(tide_graph_layout_new(graph, NULL, bytes, VALUES, &layout));
  for (uint32_t i = 0; i < VALUES; i++) {
    const tide_graph_place place = tide_graph_layout_place(layout, i);
    if (place.group == TIDE_GRAPH_NONE) continue;
    (void)printf("value %u: group %u at %llu MiB\n", i, place.group,
                 (unsigned long long)(place.offset / MIB));
  }
  tide_graph_layout_free(layout);
}

// One run. The audit and the guard find aliases that the graph does not list.
static void run(tide_planner* planner) {
  uint32_t sharing[1];
  size_t count = 0;
  void* address = NULL;
  must(tide_planner_begin(planner, 0));
  for (uint32_t i = A; i < VALUES; i++) {
    must(tide_planner_check(planner, i - 1));
    must(tide_planner_alloc(planner, i, MIB, &address));
    must(tide_planner_guard(planner, i - 1, sharing, 1, &count));
    if (count > 0) (void)printf("value %u shares memory with an input\n", sharing[0]);
  }
  must(tide_planner_end(planner));
  if (tide_planner_leak(planner) != TIDE_GRAPH_NONE)
    (void)printf("value %u leaks\n", tide_planner_leak(planner));
}

// A reader of the outputs holds their generation while further runs write others.
static bool keep_outputs(tide_planner* planner) {
  const uint64_t kept = tide_planner_generation(planner);
  const void* const output = tide_planner_storage(planner, Y)->address;
  must(tide_planner_retain_outputs(planner, kept));
  must(tide_planner_drop_outputs(planner, kept));  // the reference of the run
  run(planner);
  const bool is_kept = tide_planner_is_managed_output(planner, output);
  must(tide_planner_drop_outputs(planner, kept));
  must(tide_planner_drop_outputs(planner, tide_planner_generation(planner)));
  return is_kept && !tide_planner_is_managed_output(planner, output);
}

int main(void) {
  tide_graph* const graph = chain_new();
  tide_graph_options options = TIDE_GRAPH_OPTIONS_INIT;
  tide_planner_stats stats = TIDE_PLANNER_STATS_INIT;
  tide_planner* planner = NULL;
  print_layout(graph);
  options.has_audits = true;
  options.manages_outputs = options.manages_direct_outputs = true;
  must(tide_planner_new(graph, &options, &planner));
  bool is_right = tide_planner_role(planner, LOG) == TIDE_ROLE_UNMANAGED;
  run(planner);  // learns the sizes
  run(planner);
  is_right &= keep_outputs(planner);
  must(tide_planner_disable_outputs(planner));  // from now on each output has memory of its own
  for (int i = 0; i < 3; i++) run(planner);
  must(tide_planner_get_stats(planner, &stats));
  (void)printf("%llu runs: %llu requests from the arena of %llu MiB\n", (unsigned long long)stats.runs,
               (unsigned long long)stats.planned, (unsigned long long)(stats.managed_bytes / MIB));
  tide_planner_free(planner);
  tide_graph_free(graph);
  return is_right && stats.planned > 0 ? 0 : 1;
}
