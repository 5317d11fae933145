// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// graph.h: the values of a static graph share one arena. Here x -> a -> b -> c, of which two live at a time.
#include "example.h"

enum { VALUES = 4 };

static tide_graph* chain_new(uint32_t* values) {
  tide_graph* graph = NULL;
  must(tide_graph_new(NULL, &graph));
  for (int i = 0; i < VALUES; i++) must(tide_graph_add_value(graph, TIDE_KIND_TENSOR, &values[i]));
  must(tide_graph_add_input(graph, TIDE_GRAPH_ROOT, values[0]));
  for (int i = 1; i < VALUES; i++) {
    tide_graph_node node = TIDE_GRAPH_NODE_INIT;
    uint32_t number = 0;
    node.inputs = &values[i - 1];
    node.outputs = &values[i];
    node.input_count = node.output_count = 1;
    node.flags = TIDE_NODE_WRITES_OUT;
    must(tide_graph_add_node(graph, TIDE_GRAPH_ROOT, &node, &number));
  }
  must(tide_graph_add_output(graph, TIDE_GRAPH_ROOT, values[VALUES - 1]));
  must(tide_graph_seal(graph));
  return graph;
}

int main(void) {
  uint32_t values[VALUES];
  tide_planner_stats stats = TIDE_PLANNER_STATS_INIT;
  tide_graph* const graph = chain_new(values);
  tide_planner* planner = NULL;
  must(tide_planner_new(graph, NULL, &planner));
  for (int run = 0; run < 5; run++) {
    void* address = NULL;
    must(tide_planner_begin(planner, 0));
    for (int i = 1; i < VALUES; i++) must(tide_planner_alloc(planner, values[i], MIB, &address));
    must(tide_planner_end(planner));
  }
  must(tide_planner_get_stats(planner, &stats));
  (void)printf("%llu runs: %llu requests from the arena of %llu MiB\n", (unsigned long long)stats.runs,
               (unsigned long long)stats.planned, (unsigned long long)(stats.managed_bytes / MIB));
  tide_planner_free(planner);
  tide_graph_free(graph);
  return stats.planned > 0 ? 0 : 1;
}
