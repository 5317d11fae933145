// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The description of the networks of network.c, and the two networks. A network is a list of steps, each an
// operation with its inputs and its output. `apply` adds a step both to the list and to a tide_graph, so that
// the plan fits the execution. Weights are constants from a seeded generator.
#ifndef NETWORK_MODELS_H
#define NETWORK_MODELS_H

#include <stdio.h>
#include <stdlib.h>

#include "network_operators.h"
#include "tidemark/graph.h"

#define MAX_VALUES 96
#define MAX_STEPS 64
#define MAX_BLOCKS 4
#define RUNS 6
#define MAX_INPUT ((size_t)1 << 14)  // floats

typedef struct net_step {
  const net_operation* operation;
  size_t parameter;
  uint32_t inputs[MAX_INPUTS];
  size_t input_count;
  uint32_t output;
  uint32_t block;      // the block that contains it
  uint32_t blocks[2];  // for `choose`: if true, and otherwise
  uint32_t last;       // the last step that belongs to it: itself, or one inside its blocks
} net_step;

typedef struct network {
  const char* name;
  const char* unit;  // of the length of an input
  size_t lengths[RUNS];
  void (*make_input)(net_value* input, size_t length, uint64_t seed);  // sets its size and fills it

  tide_graph* graph;
  net_step steps[MAX_STEPS];
  uint32_t step_count;
  net_value values[MAX_VALUES];   // before a run: weights
  uint32_t makers[MAX_VALUES];    // the step that computes a value; TIDE_GRAPH_NONE for the input and weights
  uint32_t last_use[MAX_VALUES];  // the last step that reads it, for runs without a planner
  uint32_t value_count;
  uint32_t block_outputs[MAX_BLOCKS];
  uint32_t block;  // where steps are added
  uint32_t input;
  uint32_t output;
  uint32_t question;  // the condition of the branch, or TIDE_GRAPH_NONE
  uint64_t seed;      // of the next weight
} network;

// Ends the program with the reason if a call fails.
static void must(tide_status status) {
  if (status == TIDE_OK) return;
  (void)fprintf(stderr, "network: %s: %s\n", tide_status_name(status), tide_last_error()->text);
  exit(1);
}

static void require(bool is_true, const char* otherwise) {
  if (is_true) return;
  (void)fprintf(stderr, "network: %s\n", otherwise);
  exit(1);
}

// Numbers from -1 to 1.
static float chance(uint64_t* seed) {
  uint64_t z = (*seed += 0x9e3779b97f4a7c15U);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return (float)((z ^ (z >> 31)) >> 40) / (float)(1 << 23) - 1;
}

// ---------------------------------------------------------------------------------------------------
// Steps

static uint32_t new_value(network* net, tide_graph_kind kind) {
  uint32_t id = 0;
  must(tide_graph_add_value(net->graph, kind, &id));
  require(id < MAX_VALUES, "too many values");
  net->makers[id] = TIDE_GRAPH_NONE;
  net->value_count = id + 1;
  return id;
}

// A constant, with numbers from center - spread to center + spread.
static uint32_t weights(network* net, const size_t dims[4], float center, float spread) {
  const uint32_t id = new_value(net, TIDE_KIND_TENSOR);
  must(tide_graph_add_constant(net->graph, id));
  net_value* const constant = &net->values[id];
  shape_set(constant, dims[0], dims[1], dims[2], dims[3]);
  constant->data = malloc(value_count(constant) * sizeof(float));
  require(constant->data != NULL, "no memory for weights");
  for (size_t i = 0; i < value_count(constant); ++i) constant->data[i] = center + spread * chance(&net->seed);
  return id;
}

// All that a planner knows about an operator: its inputs and outputs, and which share memory or may share it.
static uint32_t add_to_graph(network* net, const net_step* step) {
  const net_form form = step->operation->form;
  tide_graph_pair pairs[MAX_INPUTS];
  for (size_t i = 0; i < step->input_count; ++i)
    pairs[i] = (tide_graph_pair){ .input = step->inputs[i], .output = step->output };
  tide_graph_node node = { .size = sizeof(tide_graph_node),
                           .inputs = step->inputs,
                           .input_count = step->input_count };
  node.outputs = &step->output;
  node.output_count = 1;
  node.aliases = pairs;
  node.alias_count = form == FORM_VIEWS || form == FORM_LISTS ? step->input_count : 0;
  node.in_place = pairs;
  node.in_place_count = step->operation->over;
  node.flags = form == FORM_COMPUTES || form == FORM_LISTS ? TIDE_NODE_WRITES_OUT : 0;
  uint32_t id = 0;
  must(tide_graph_add_node(net->graph, step->block, &node, &id));
  return id;
}

// Notes that a step reads a value. Reading a view or a list also reads what it refers to.
static void use(network* net, uint32_t id, uint32_t reader) {
  net->last_use[id] = reader;
  if (net->makers[id] == TIDE_GRAPH_NONE) return;
  const net_step* const maker = &net->steps[net->makers[id]];
  const net_form form = maker->operation->form;
  for (size_t i = 0; (form == FORM_VIEWS || form == FORM_LISTS) && i < maker->input_count; ++i)
    use(net, maker->inputs[i], reader);
  for (size_t i = 0; form == FORM_CHOOSES && i < 2; ++i)
    use(net, net->block_outputs[maker->blocks[i]], reader);
}

static uint32_t apply(network* net, const net_operation* operation, size_t parameter, size_t input_count,
                      const uint32_t* inputs) {
  static const tide_graph_kind kinds[] = {
    [FORM_COMPUTES] = TIDE_KIND_TENSOR, [FORM_VIEWS] = TIDE_KIND_TENSOR,   [FORM_LISTS] = TIDE_KIND_CONTAINER,
    [FORM_ASKS] = TIDE_KIND_SCALAR,     [FORM_CHOOSES] = TIDE_KIND_TENSOR,
  };
  const uint32_t index = net->step_count++;
  require(index < MAX_STEPS, "too many steps");
  net_step* const step = &net->steps[index];
  const uint32_t output = new_value(net, kinds[operation->form]);
  *step = (net_step){ .operation = operation, .parameter = parameter, .input_count = input_count };
  memcpy(step->inputs, inputs, input_count * sizeof *inputs);
  step->output = output;
  step->block = net->block;
  step->last = index;
  require(add_to_graph(net, step) == index, "steps and nodes are numbered alike");
  for (size_t i = 0; i < input_count; ++i) use(net, inputs[i], index);
  net->last_use[output] = index;
  net->makers[output] = index;
  return output;
}

static uint32_t apply1(network* net, const net_operation* operation, uint32_t x) {
  return apply(net, operation, 0, 1, &x);
}

static uint32_t apply2(network* net, const net_operation* operation, uint32_t x, uint32_t y) {
  return apply(net, operation, 0, 2, (const uint32_t[]){ x, y });
}

// A branch: one of two blocks, which two functions build.
static uint32_t apply_either(network* net, uint32_t question, uint32_t x,
                             uint32_t (*const make[2])(network* net, uint32_t x)) {
  const uint32_t index = net->step_count;
  const uint32_t parent = net->block;
  const uint32_t output = apply1(net, &choose, question);
  for (size_t i = 0; i < 2; ++i) {
    must(tide_graph_add_block(net->graph, index, &net->block));
    require(net->block < MAX_BLOCKS, "too many blocks");
    const uint32_t made = make[i](net, x);
    must(tide_graph_add_output(net->graph, net->block, made));
    net->steps[index].blocks[i] = net->block;
    net->block_outputs[net->block] = made;
  }
  net->block = parent;
  net->question = question;
  net->steps[index].last = net->step_count - 1;
  return output;
}

static void network_open(network* net) {
  must(tide_graph_new(NULL, &net->graph));
  net->question = TIDE_GRAPH_NONE;
  net->input = new_value(net, TIDE_KIND_TENSOR);
  must(tide_graph_add_input(net->graph, TIDE_GRAPH_ROOT, net->input));
}

static void network_seal(network* net, uint32_t output) {
  use(net, output, net->step_count);
  net->output = output;
  must(tide_graph_add_output(net->graph, TIDE_GRAPH_ROOT, output));
  must(tide_graph_seal(net->graph));
}

static void network_close(network* net) {
  tide_graph_free(net->graph);
  for (uint32_t id = 0; id < net->value_count; ++id) free(net->values[id].data);
}

// ---------------------------------------------------------------------------------------------------
// A transformer: two blocks of attention and perceptron, over tokens

#define WIDTH ((size_t)64)
#define WORDS ((size_t)100)
#define POSITIONS ((size_t)64)

static uint32_t linear(network* net, uint32_t x, size_t from, size_t to) {
  const float spread = 1 / sqrtf((float)from);
  const uint32_t factors = weights(net, (const size_t[]){ 1, 1, from, to }, 0, spread);
  const uint32_t summands = weights(net, (const size_t[]){ 1, 1, 1, to }, 0, spread);
  return apply2(net, &bias, apply2(net, &matmul, x, factors), summands);
}

static uint32_t normalise(network* net, uint32_t x) {
  const uint32_t factors = weights(net, (const size_t[]){ 1, 1, 1, WIDTH }, 1, 0.1F);
  const uint32_t summands = weights(net, (const size_t[]){ 1, 1, 1, WIDTH }, 0, 0.1F);
  return apply(net, &layer_norm, 0, 3, (const uint32_t[]){ x, factors, summands });
}

// Queries, keys and values are computed at once and split by three views.
static uint32_t attend(network* net, uint32_t x) {
  const uint32_t all = linear(net, x, WIDTH, 3 * WIDTH);
  const uint32_t queries = apply(net, &heads, 0, 1, &all);
  const uint32_t keys = apply(net, &heads, 1, 1, &all);
  const uint32_t contents = apply(net, &heads, 2, 1, &all);
  const uint32_t scores = apply2(net, &matmul, queries, apply1(net, &transpose, keys));
  const uint32_t scaled = apply(net, &scale, WIDTH / HEADS, 1, &scores);
  const uint32_t mixed = apply2(net, &matmul, apply1(net, &softmax, scaled), contents);
  return linear(net, apply1(net, &join, mixed), WIDTH, WIDTH);
}

static uint32_t think(network* net, uint32_t x) {
  const uint32_t wide = apply1(net, &gelu, linear(net, x, WIDTH, 4 * WIDTH));
  return linear(net, wide, 4 * WIDTH, WIDTH);
}

static void build_transformer(network* net) {
  network_open(net);
  const uint32_t words = weights(net, (const size_t[]){ 1, 1, WORDS, WIDTH }, 0, 1);
  const uint32_t positions = weights(net, (const size_t[]){ 1, 1, POSITIONS, WIDTH }, 0, 1);
  uint32_t x = apply(net, &embed, 0, 3, (const uint32_t[]){ net->input, words, positions });
  for (int i = 0; i < 2; ++i) {
    x = apply2(net, &add, x, attend(net, normalise(net, x)));
    x = apply2(net, &add, x, think(net, normalise(net, x)));
  }
  network_seal(net, normalise(net, x));
}

static void make_tokens(net_value* input, size_t length, uint64_t seed) {
  shape_set(input, 1, 1, 1, length);
  for (size_t i = 0; i < length; ++i) input->data[i] = floorf((chance(&seed) + 1) / 2 * (float)WORDS);
}

// ---------------------------------------------------------------------------------------------------
// A convolution net: a residual connection, a branch that depends on the images, filters side by side

#define EDGE ((size_t)12)

static uint32_t filter(network* net, uint32_t x, size_t from, size_t to, size_t edge) {
  const float spread = 1 / sqrtf((float)(from * edge * edge));
  const uint32_t factors = weights(net, (const size_t[]){ to, from, edge, edge }, 0, spread);
  const uint32_t summands = weights(net, (const size_t[]){ 1, to, 1, 1 }, 0, spread);
  return apply2(net, &bias, apply2(net, &convolve, x, factors), summands);
}

static uint32_t filter_relu(network* net, uint32_t x, size_t from, size_t to, size_t edge) {
  return apply1(net, &relu, filter(net, x, from, to, edge));
}

static uint32_t filter_deep(network* net, uint32_t x) {
  return filter_relu(net, filter_relu(net, x, 16, 24, 3), 24, 16, 3);
}

static uint32_t filter_flat(network* net, uint32_t x) { return filter_relu(net, x, 16, 16, 1); }

static void build_convolution(network* net) {
  uint32_t (*const branches[2])(network*, uint32_t) = { filter_deep, filter_flat };
  network_open(net);
  const uint32_t stem = apply1(net, &max_pool, filter_relu(net, net->input, 3, 16, 3));
  const uint32_t inner = filter(net, filter_relu(net, stem, 16, 16, 3), 16, 16, 3);
  const uint32_t sum = apply1(net, &relu, apply2(net, &add, stem, inner));
  const uint32_t x = apply_either(net, apply1(net, &is_bright, sum), sum, branches);
  const uint32_t small = filter_relu(net, x, 16, 8, 1);
  const uint32_t medium = filter_relu(net, x, 16, 16, 3);
  const uint32_t large = filter_relu(net, x, 16, 8, 5);
  const uint32_t beside = apply(net, &list, 3, 3, (const uint32_t[]){ small, medium, large });
  const uint32_t all = apply1(net, &concat, beside);
  const uint32_t means = apply1(net, &mean_pool, apply1(net, &max_pool, all));
  network_seal(net, apply1(net, &softmax, linear(net, means, 32, 10)));
}

// Dark images in two runs, bright ones in the next two.
static void make_images(net_value* input, size_t length, uint64_t seed) {
  const float brightness = seed / 2 % 2 == 0 ? 0.2F : 2.0F;
  shape_set(input, length, 3, EDGE, EDGE);
  for (size_t i = 0; i < value_count(input); ++i) input->data[i] = brightness * (chance(&seed) + 1);
}

#endif
