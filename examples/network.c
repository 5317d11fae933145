// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Two real networks, a transformer and a convolution net, on planned memory. What an executor has to do for
// it is in `place`, `adopt` and `run_once`:
//
//   tide_planner_begin   before a run, with a number for the shape of its input
//   tide_planner_alloc   for each output that is written: gives its size, and gets its place
//   tide_planner_adopt   for each value in memory of something else: an input, a view
//   tide_planner_end     after the run: learns the sizes, and plans the next run
//
// network_models.h describes the networks to a tide_graph; network_operators.h has their operators.
//
// Each network runs six times, with inputs of changing length, on plain malloc and then under planners with
// more and more options. A line of its table has the peak of memory in each run, and the number of
// allocations and releases in the last; a meter below everything counts them. Every result is compared with
// that on malloc, bit for bit, and the program exits with 1 if one differs.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "network_models.h"
#include "network_operators.h"
#include "tidemark/graph.h"

#define ALIGNMENT 64
#define MAX_PIECES 256

// ---------------------------------------------------------------------------------------------------
// The meter: counts the memory of the computer

typedef struct net_piece {
  void* address;
  size_t bytes;
} net_piece;

typedef struct net_meter {
  tide_memory below;
  net_piece pieces[MAX_PIECES];
  size_t piece_count;
  size_t bytes;  // in use
  size_t peak;   // of `bytes`, since meter_start()
  size_t calls;  // likewise
} net_meter;

// New memory is filled with NaN, so reading it before writing shows in the result.
static tide_status meter_alloc(const tide_memory* memory, size_t bytes, size_t alignment, void** out) {
  net_meter* const meter = memory->user;
  require(meter->piece_count < MAX_PIECES, "too many pieces of memory");
  must(meter->below.alloc(&meter->below, bytes, alignment, out));
  memset(*out, 0xff, bytes);
  meter->pieces[meter->piece_count++] = (net_piece){ .address = *out, .bytes = bytes };
  meter->bytes += bytes;
  meter->peak = meter->bytes > meter->peak ? meter->bytes : meter->peak;
  meter->calls++;
  return TIDE_OK;
}

static tide_status meter_release(const tide_memory* memory, void* address) {
  net_meter* const meter = memory->user;
  size_t i = 0;
  while (i < meter->piece_count && meter->pieces[i].address != address) ++i;
  require(i < meter->piece_count, "memory that is not in use is released");
  meter->bytes -= meter->pieces[i].bytes;
  meter->pieces[i] = meter->pieces[--meter->piece_count];
  meter->calls++;
  return meter->below.release(&meter->below, address);
}

static void meter_start(net_meter* meter) {
  meter->peak = meter->bytes;
  meter->calls = 0;
}

// ---------------------------------------------------------------------------------------------------
// The executor

typedef struct net_runner {
  const network* net;
  tide_memory memory;
  tide_planner* planner;     // NULL: each value has memory of its own,
  void* pieces[MAX_VALUES];  // which is here,
  bool keeps;                // until the end of the run, or else until its last reader is done
  uint64_t* sizes;           // not NULL: compute only the size of each value
  net_value values[MAX_VALUES];
} net_runner;

// Finds memory for a value.
static float* place(net_runner* runner, uint32_t id, size_t bytes) {
  void* address = NULL;
  if (runner->sizes != NULL) {
    runner->sizes[id] = bytes;
  } else if (runner->planner != NULL) {
    must(tide_planner_alloc(runner->planner, id, bytes, &address));
  } else {
    must(runner->memory.alloc(&runner->memory, bytes, ALIGNMENT, &address));
    runner->pieces[id] = address;
  }
  return address;
}

// A value shares the memory of another, or has memory of the caller.
static void adopt(net_runner* runner, uint32_t id) {
  const net_value* const value = &runner->values[id];
  if (runner->planner == NULL || runner->sizes != NULL) return;
  must(tide_planner_adopt(runner->planner, id, value->data, value_span(value) * sizeof(float)));
}

// Without a planner: frees what no later step reads.
static void release_after(net_runner* runner, uint32_t step) {
  for (uint32_t id = 0; id < runner->net->value_count; ++id) {
    if (runner->pieces[id] == NULL || runner->net->last_use[id] > step) continue;
    must(runner->memory.release(&runner->memory, runner->pieces[id]));
    runner->pieces[id] = NULL;
  }
}

static void run_block(net_runner* runner, uint32_t block);

// If only sizes are wanted, both branches are visited.
static void run_choice(net_runner* runner, const net_step* step, bool answer) {
  const uint32_t chosen = step->blocks[answer ? 0 : 1];
  if (runner->sizes != NULL) run_block(runner, step->blocks[answer ? 1 : 0]);
  run_block(runner, chosen);
  runner->values[step->output] = runner->values[runner->net->block_outputs[chosen]];
}

static void run_step(net_runner* runner, const net_step* step) {
  const net_form form = step->operation->form;
  const net_value* in[MAX_INPUTS] = { NULL };
  for (size_t i = 0; i < step->input_count; ++i) in[i] = &runner->values[step->inputs[i]];
  net_value* const out = &runner->values[step->output];
  out->parameter = step->parameter;
  step->operation->shape(in, out);
  if (form == FORM_COMPUTES) out->data = place(runner, step->output, value_count(out) * sizeof(float));
  if (form == FORM_CHOOSES) run_choice(runner, step, in[0]->answer);
  if (runner->sizes == NULL) step->operation->run(in, out);
  if (form == FORM_VIEWS || form == FORM_CHOOSES) adopt(runner, step->output);
  if (runner->planner == NULL && !runner->keeps) release_after(runner, step->last);
}

static void run_block(net_runner* runner, uint32_t block) {
  for (uint32_t i = 0; i < runner->net->step_count; ++i)
    if (runner->net->steps[i].block == block) run_step(runner, &runner->net->steps[i]);
}

// Tells the planner the size of every value, so that even the first run with such an input is planned.
static void presize(net_runner* runner, size_t length) {
  uint64_t sizes[MAX_VALUES] = { 0 };
  runner->net->make_input(&runner->values[runner->net->input], length, 0);
  runner->sizes = sizes;
  run_block(runner, TIDE_GRAPH_ROOT);
  runner->sizes = NULL;
  must(tide_planner_presize(runner->planner, length, sizes, runner->net->value_count));
}

// After a run: frees the results, with the arena of outputs if they are in one.
static void release_result(net_runner* runner) {
  void* result = NULL;
  if (runner->planner == NULL) {
    release_after(runner, UINT32_MAX);
  } else if (tide_planner_generation(runner->planner) != 0) {
    must(tide_planner_drop_outputs(runner->planner, tide_planner_generation(runner->planner)));
  } else {
    must(tide_planner_take(runner->planner, runner->net->output, &result));
    must(runner->memory.release(&runner->memory, result));
  }
}

// ---------------------------------------------------------------------------------------------------
// The ways to get memory that are compared

// Each after SMALLEST adds one option to the one before. IN_PLACE has the default options.
#define NET_WAYS(X)                                   \
  X(KEPT, "malloc, all kept until the end")           \
  X(FREED, "malloc, freed after the last reader")     \
  X(GROUPS, "storage groups, as PyTorch has them")    \
  X(LARGEST_FIRST, "places, the largest value first") \
  X(SMALLEST, "places, the smallest arena found")     \
  X(NESTED, "+ branches use what is free around")     \
  X(IN_PLACE, "+ outputs over dying inputs")          \
  X(RESULTS, "+ results in an arena as well")         \
  X(PRESIZED, "+ sizes told before the first run")

#define NET_WAY_ENUM(name, text) name,
#define NET_WAY_TEXT(name, text) text,
typedef enum net_way { NET_WAYS(NET_WAY_ENUM) WAYS } net_way;
static const char* const way_names[] = { NET_WAYS(NET_WAY_TEXT) };

static tide_graph_options options_of(net_way way, tide_memory memory) {
  const tide_graph_options original = TIDE_GRAPH_OPTIONS_ORIGINAL;
  const tide_graph_options defaults = TIDE_GRAPH_OPTIONS_INIT;
  tide_graph_options options = way == GROUPS ? original : defaults;
  options.memory = memory;
  if (way == LARGEST_FIRST) options.algorithm = TIDE_GRAPH_BY_SIZE;
  options.nests = way >= NESTED;
  options.in_place = way >= IN_PLACE;
  options.manages_outputs = way >= RESULTS;
  options.manages_direct_outputs = way >= RESULTS;
  return options;
}

// What all ways to run a network share.
typedef struct net_outcome {
  net_value results[RUNS];
  bool answers[RUNS];     // of the branch in each run
  uint64_t bounds[RUNS];  // lower bound of the arena without in-place outputs; 0: there is no layout yet
  size_t compared;
} net_outcome;

// Keeps the first result of a run, which is on malloc; every other must be the same.
static void compare(const net_value* result, net_value* expected, const char* way_name) {
  const size_t bytes = value_count(result) * sizeof(float);
  if (expected->data == NULL) {
    *expected = *result;
    expected->data = malloc(bytes);
    require(expected->data != NULL, "no memory for a result");
    memcpy(expected->data, result->data, bytes);
    for (size_t i = 0; i < value_count(result); ++i)
      require(isfinite(result->data[i]), "a result is no number");
  }
  if (value_count(result) == value_count(expected) && memcmp(result->data, expected->data, bytes) == 0)
    return;
  (void)fprintf(stderr, "\nnetwork: the result is not that on malloc: %s\n", way_name);
  exit(1);
}

// PyTorch's planner knows no shapes: for it, all runs have the same.
static void run_once(net_runner* runner, net_way way, size_t run, net_outcome* outcome) {
  const network* const net = runner->net;
  const uint64_t shape = way == GROUPS ? 0 : net->lengths[run];
  net->make_input(&runner->values[net->input], net->lengths[run], run);
  meter_start(runner->memory.user);
  if (runner->planner != NULL) must(tide_planner_begin(runner->planner, shape));
  adopt(runner, net->input);
  run_block(runner, TIDE_GRAPH_ROOT);
  if (runner->planner != NULL) must(tide_planner_end(runner->planner));
  compare(&runner->values[net->output], &outcome->results[run], way_names[way]);
  if (way != KEPT) outcome->compared++;
  if (net->question != TIDE_GRAPH_NONE) outcome->answers[run] = runner->values[net->question].answer;
  release_result(runner);
}

// Makes all runs of a network in one way, and prints a line of the table.
static void show_way(const network* net, net_way way, net_outcome* outcome) {
  static float input[MAX_INPUT];
  net_meter meter = { .below = tide_memory_cpu() };
  net_runner runner = { .net = net, .keeps = way == KEPT };
  runner.memory = (tide_memory){ meter_alloc, meter_release, &meter, 0, true };
  memcpy(runner.values, net->values, sizeof net->values);
  runner.values[net->input].data = input;
  const tide_graph_options options = options_of(way, runner.memory);
  if (way >= GROUPS) must(tide_planner_new(net->graph, &options, &runner.planner));
  for (size_t run = 0; way == PRESIZED && run < RUNS; ++run) presize(&runner, net->lengths[run]);
  (void)printf("  %-39s", way_names[way]);
  for (size_t run = 0; run < RUNS; ++run) {
    run_once(&runner, way, run, outcome);
    (void)printf("%8.1f", (double)meter.peak / 1024);
    outcome->bounds[run] = tide_graph_layout_describe(tide_planner_layout(runner.planner)).lower_bound;
  }
  (void)printf("%8zu\n", meter.calls);
  tide_planner_free(runner.planner);
  require(meter.bytes == 0, "memory is left over");
}

static size_t show_network(network* net, void (*build)(network* net)) {
  net_outcome outcome = { .compared = 0 };
  build(net);
  (void)printf("\n%s of %u steps and %u values\n\n  %-39s", net->name, net->step_count, net->value_count,
               net->unit);
  for (size_t run = 0; run < RUNS; ++run) (void)printf("%8zu", net->lengths[run]);
  (void)printf("   calls\n");
  for (net_way way = KEPT; way < WAYS; ++way) show_way(net, way, &outcome);
  (void)printf("  %-39s", "lower bound of the arena, not in place");
  for (size_t run = 0; run < RUNS; ++run) (void)printf("%8.1f", (double)outcome.bounds[run] / 1024);
  if (net->question != TIDE_GRAPH_NONE) (void)printf("\n  %-39s", "the branch that was taken");
  for (size_t run = 0; net->question != TIDE_GRAPH_NONE && run < RUNS; ++run)
    (void)printf("%8s", outcome.answers[run] ? "deep" : "flat");
  (void)printf("\n");
  for (size_t run = 0; run < RUNS; ++run) free(outcome.results[run].data);
  network_close(net);
  return outcome.compared;
}

int main(void) {
  static network transformer = { .name = "A transformer",
                                 .unit = "tokens",
                                 .lengths = { 16, 16, 48, 16, 48, 16 },
                                 .make_input = make_tokens };
  static network convolution = { .name = "A convolution net",
                                 .unit = "images",
                                 .lengths = { 8, 8, 24, 8, 24, 8 },
                                 .make_input = make_images };
  (void)printf("Two networks, run again and again. A line is a way to get memory, a column is a run.\n"
               "Figures are the most memory in use at once in that run, in KiB, and the calls for memory\n"
               "in the last run. A planner learns sizes in the first run of a length, or of a branch,\n"
               "and has places for its values from the next one on.\n");
  size_t compared = show_network(&transformer, build_transformer);
  compared += show_network(&convolution, build_convolution);
  (void)printf("\n%zu results, each the same as on malloc, bit for bit.\n", compared);
  return 0;
}
