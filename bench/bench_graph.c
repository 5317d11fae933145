// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the graph planner costs, and how good its layouts are.
//   runs      a planned run of a chain of 100 to 10,000 nodes: each request, and begin and end
//   chains    100 random chains of 120 nodes: the arena over the lower bound under every algorithm, the mean
//             and the worst
//   training  10,000 nodes of layers that run forward and backward again, some with blocks inside: the same,
//             and how long the layout takes; with outputs over their inputs, and blocks planned together
// Nodes permit an output over an input where both have the same size.
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tidemark/graph.h"

enum { NET_CHAINS = 100, NET_CHAIN_NODES = 120, NET_LAYERS = 2000, NET_UNIT = 64, NET_LAYOUTS = 3 };

// ---------------------------------------------------------------------------------------------------
// Graphs

typedef struct net {
  tide_graph* graph;  // owned
  uint64_t* bytes;    // owned; of each value
  uint32_t* made;     // owned; the values that nodes make, in the order in which they run
  size_t values;
  size_t made_count;
  size_t room;
  uint64_t state;  // of the random numbers
} net;

// From 64 bytes to 64 KiB; every power of two is equally likely.
static uint64_t net_size(net* n) {
  const uint64_t power = (uint64_t)1 << bench_random(&n->state) % 10;
  return NET_UNIT * (power + bench_random(&n->state) % power);
}

static net net_new(size_t room, uint64_t seed) {
  net n = { .bytes = bench_alloc(room, sizeof(uint64_t)),
            .made = bench_alloc(room, sizeof(uint32_t)),
            .room = room,
            .state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1 };
  bench_require(tide_graph_new(NULL, &n.graph), "graph_new");
  return n;
}

static void net_free(net* n) {
  tide_graph_free(n->graph);
  free(n->bytes);
  free(n->made);
}

static uint32_t net_add_value(net* n, uint64_t bytes) {
  uint32_t value = 0;
  bench_require(tide_graph_add_value(n->graph, TIDE_KIND_TENSOR, &value), "graph_add_value");
  bench_verify(value == n->values && n->values < n->room, "values");
  n->bytes[n->values++] = bytes;
  return value;
}

typedef struct net_node {
  uint32_t value;  // that it makes
  uint32_t node;
} net_node;

// A node with one or two inputs (the second may be TIDE_GRAPH_NONE). 0 bytes: as many as the first has, and
// the output may lie over it.
static net_node net_add_node(net* n, uint32_t block, uint32_t first, uint32_t second, uint64_t bytes) {
  const uint32_t inputs[] = { first, second };
  net_node made = { net_add_value(n, bytes > 0 ? bytes : n->bytes[first]), 0 };
  const tide_graph_pair over = { first, made.value };
  const tide_graph_node node = { .size = sizeof(tide_graph_node),
                                 .inputs = inputs,
                                 .input_count = second == TIDE_GRAPH_NONE ? 1 : 2,
                                 .outputs = &made.value,
                                 .output_count = 1,
                                 .in_place = &over,
                                 .in_place_count = bytes == 0,
                                 .flags = TIDE_NODE_WRITES_OUT };
  bench_require(tide_graph_add_node(n->graph, block, &node, &made.node), "graph_add_node");
  n->made[n->made_count++] = made.value;
  return made;
}

static uint32_t net_add_input(net* n, uint64_t bytes) {
  const uint32_t value = net_add_value(n, bytes);
  bench_require(tide_graph_add_input(n->graph, TIDE_GRAPH_ROOT, value), "graph_add_input");
  return value;
}

static void net_seal(net* n, uint32_t output) {
  bench_require(tide_graph_add_output(n->graph, TIDE_GRAPH_ROOT, output), "graph_add_output");
  bench_require(tide_graph_seal(n->graph), "graph_seal");
}

// Each node reads the value before, and each fourth another of the last eight; a third of them keep the size.
static net net_chain(size_t nodes, uint64_t seed) {
  net n = net_new(nodes + 1, seed);
  uint32_t last = net_add_input(&n, NET_UNIT);
  for (size_t i = 0; i < nodes; i++) {
    const uint64_t back = 1 + bench_random(&n.state) % 8;
    const bool reads_two = bench_random(&n.state) % 4 == 0 && back < last;
    const bool keeps_size = bench_random(&n.state) % 3 == 0 && i > 0;
    const uint32_t second = reads_two ? last - (uint32_t)back : TIDE_GRAPH_NONE;
    last = net_add_node(&n, TIDE_GRAPH_ROOT, last, second, keeps_size ? 0 : net_size(&n)).value;
  }
  net_seal(&n, last);
  return n;
}

// Two branches of which one runs, each of three nodes that work on what the node around them reads.
static void net_add_branches(net* n, uint32_t node, uint32_t value) {
  for (size_t i = 0; i < 2; i++) {
    uint32_t block = 0;
    bench_require(tide_graph_add_block(n->graph, node, &block), "graph_add_block");
    const net_node first = net_add_node(n, block, value, TIDE_GRAPH_NONE, 2 * net_size(n));
    const net_node second = net_add_node(n, block, first.value, TIDE_GRAPH_NONE, 0);
    const net_node third = net_add_node(n, block, second.value, value, n->bytes[value]);
    bench_require(tide_graph_add_output(n->graph, block, third.value), "graph_add_output");
  }
}

// A layer makes an activation, which its backward step reads, a temporary and its result.
static net net_training(size_t layers, bool has_blocks) {
  net n = net_new(5 * layers + layers + 2, 1);
  uint32_t* const activations = bench_alloc(layers, sizeof *activations);
  uint32_t last = net_add_input(&n, NET_UNIT);
  for (size_t i = 0; i < layers; i++) {
    const net_node activation = net_add_node(&n, TIDE_GRAPH_ROOT, last, TIDE_GRAPH_NONE, net_size(&n));
    const net_node temporary =
        net_add_node(&n, TIDE_GRAPH_ROOT, activation.value, TIDE_GRAPH_NONE, 2 * n.bytes[activation.value]);
    const net_node result = net_add_node(&n, TIDE_GRAPH_ROOT, temporary.value, TIDE_GRAPH_NONE, 0);
    if (has_blocks && i % 8 == 0) net_add_branches(&n, result.node, temporary.value);
    activations[i] = activation.value;
    last = result.value;
  }
  for (size_t i = layers; i > 0; i--) {
    const uint32_t activation = activations[i - 1];
    last = net_add_node(&n, TIDE_GRAPH_ROOT, last, activation, n.bytes[activation]).value;
    last = net_add_node(&n, TIDE_GRAPH_ROOT, last, TIDE_GRAPH_NONE, 0).value;
  }
  free(activations);
  net_seal(&n, last);
  return n;
}

// ---------------------------------------------------------------------------------------------------
// Runs

typedef struct net_times {
  double alloc_ns;  // of a request
  double turn_ns;   // of begin and end
} net_times;

static net_times net_run(const net* n, tide_planner* planner) {
  const uint64_t start = bench_now();
  bench_require(tide_planner_begin(planner, 0), "planner_begin");
  const uint64_t begun = bench_now();
  for (size_t i = 0; i < n->made_count; i++) {
    void* address = NULL;
    const uint32_t value = n->made[i];
    if (tide_planner_alloc(planner, value, n->bytes[value], &address) != TIDE_OK) abort();
  }
  const uint64_t done = bench_now();
  bench_require(tide_planner_end(planner), "planner_end");
  return (net_times){ (double)(done - begun) / (double)n->made_count,
                      (double)(bench_now() - done + (begun - start)) };
}

static void graph_row(bench* run, const char* what, const char* of, double value, const char* unit) {
  char label[96];
  (void)snprintf(label, sizeof label, "%s, %s", what, of);
  bench_row(run, "graph", label, value, unit);
}

// Medians of many runs, so that other work on the computer disturbs little.
static void measure_runs(bench* run, const char* name, size_t nodes) {
  net n = net_chain(nodes, 1);
  tide_planner* planner = NULL;
  const size_t runs = 1000000 / nodes;
  double* const alloc_ns = bench_alloc(runs, sizeof *alloc_ns);
  double* const turn_ns = bench_alloc(runs, sizeof *turn_ns);
  bench_require(tide_planner_new(n.graph, NULL, &planner), "planner_new");
  for (int i = 0; i < 2; i++) (void)net_run(&n, planner);  // the first has no layout, the second an arena
  tide_planner_stats before = TIDE_PLANNER_STATS_INIT;
  tide_planner_stats after = TIDE_PLANNER_STATS_INIT;
  bench_require(tide_planner_get_stats(planner, &before), "planner_get_stats");
  for (size_t i = 0; i < runs; i++) {
    const net_times times = net_run(&n, planner);
    alloc_ns[i] = times.alloc_ns;
    turn_ns[i] = times.turn_ns;
  }
  bench_require(tide_planner_get_stats(planner, &after), "planner_get_stats");
  bench_verify(after.unplanned == before.unplanned, "requests are not served from their places");
  graph_row(run, "planned run, a request", name, bench_median(alloc_ns, runs), "ns");
  graph_row(run, "planned run, begin and end", name, bench_median(turn_ns, runs) * 1e-3, "us");
  free(alloc_ns);
  free(turn_ns);
  tide_planner_free(planner);
  net_free(&n);
}

// ---------------------------------------------------------------------------------------------------
// Layouts

typedef struct net_layout {
  tide_graph_layout_info info;
  double seconds;
} net_layout;

static net_layout net_lay_out(const net* n, const tide_graph_options* options) {
  tide_graph_layout* layout = NULL;
  const uint64_t start = bench_now();
  bench_require(tide_graph_layout_new(n->graph, options, n->bytes, n->values, &layout), "graph_layout_new");
  const net_layout made = { tide_graph_layout_describe(layout), (double)(bench_now() - start) * 1e-9 };
  tide_graph_layout_free(layout);
  return made;
}

static double net_ratio(const net_layout* layout) {
  return (double)layout->info.bytes / (double)layout->info.lower_bound;
}

static tide_graph_options net_options(tide_graph_algorithm algorithm, bool in_place, bool nests) {
  tide_graph_options options = TIDE_GRAPH_OPTIONS_INIT;
  options.algorithm = algorithm;
  options.in_place = in_place;
  options.nests = nests;
  return options;
}

// Only these two know of outputs over inputs.
static bool net_has_in_place(tide_graph_algorithm algorithm) {
  return algorithm == TIDE_GRAPH_SOLVER || algorithm == TIDE_GRAPH_SMALLEST;
}

static void measure_chains(bench* run, tide_graph_algorithm algorithm, bool in_place) {
  const tide_graph_options options = net_options(algorithm, in_place, true);
  double sum = 0;
  double worst = 0;
  double ms[NET_CHAINS];
  char name[64];
  for (uint64_t seed = 1; seed <= NET_CHAINS; seed++) {
    net n = net_chain(NET_CHAIN_NODES, seed);
    const net_layout layout = net_lay_out(&n, &options);
    const double ratio = net_ratio(&layout);
    sum += ratio;
    if (ratio > worst) worst = ratio;
    ms[seed - 1] = layout.seconds * 1e3;
    net_free(&n);
  }
  (void)snprintf(name, sizeof name, "%s%s", tide_graph_algorithm_name(algorithm),
                 in_place ? ", in place" : "");
  graph_row(run, "chains, over the bound, mean", name, sum / NET_CHAINS, "x");
  graph_row(run, "chains, over the bound, worst", name, worst, "x");
  graph_row(run, "chains, a layout", name, bench_median(ms, NET_CHAINS), "ms");
}

static void measure_layout(bench* run, const net* n, const char* name, const tide_graph_options* options) {
  double seconds[NET_LAYOUTS];
  char label[64];
  net_layout layout = { 0 };
  for (size_t i = 0; i < NET_LAYOUTS; i++) {
    layout = net_lay_out(n, options);
    seconds[i] = layout.seconds;
  }
  (void)snprintf(label, sizeof label, "%s%s%s", tide_graph_algorithm_name(options->algorithm),
                 options->in_place ? ", in place" : "", options->nests ? ", nests" : "");
  graph_row(run, name, label, net_ratio(&layout), "x the bound");
  graph_row(run, name, label, bench_median(seconds, NET_LAYOUTS) * 1e3, "ms");
}

static void measure_training_plain(bench* run) {
  net n = net_training(NET_LAYERS, false);
  for (int i = 0; i < TIDE_GRAPH_ALGORITHM_COUNT; i++) {
    for (int in_place = 0; in_place <= (int)net_has_in_place((tide_graph_algorithm)i); in_place++) {
      const tide_graph_options options = net_options((tide_graph_algorithm)i, in_place > 0, false);
      measure_layout(run, &n, "training", &options);
    }
  }
  net_free(&n);
}

static void measure_training_blocks(bench* run) {
  net n = net_training(NET_LAYERS, true);
  static const tide_graph_algorithm algorithms[] = { TIDE_GRAPH_LIFO_GROUPS, TIDE_GRAPH_BY_SIZE,
                                                     TIDE_GRAPH_SOLVER };
  for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms; i++) {
    for (int nests = 0; nests <= 1; nests++) {
      for (int in_place = 0; in_place <= (int)net_has_in_place(algorithms[i]); in_place++) {
        const tide_graph_options options = net_options(algorithms[i], in_place > 0, nests > 0);
        measure_layout(run, &n, "training with blocks", &options);
      }
    }
  }
  net_free(&n);
}

void bench_graph(bench* run) {
  measure_runs(run, "100 nodes", 100);
  measure_runs(run, "1,000 nodes", 1000);
  measure_runs(run, "10,000 nodes", 10000);
  for (int i = 0; i < TIDE_GRAPH_ALGORITHM_COUNT; i++) {
    measure_chains(run, (tide_graph_algorithm)i, false);
    if (net_has_in_place((tide_graph_algorithm)i)) measure_chains(run, (tide_graph_algorithm)i, true);
  }
  measure_training_plain(run);
  measure_training_blocks(run);
}
