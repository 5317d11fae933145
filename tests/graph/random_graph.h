// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Random graphs as models: nodes that compute, views, nodes that may copy or not, containers that are packed
// and unpacked, objects, nodes that may skip with those that choose for them, borrowed references, guarded
// nodes, loops and branches, constants, escapes, and outputs of every kind.
#ifndef TIDEMARK_TESTS_RANDOM_GRAPH_H
#define TIDEMARK_TESTS_RANDOM_GRAPH_H

#include "graph/model.h"

typedef struct random_graph {
  model* m;
  t_rng* rng;
  uint32_t nodes_left;
  bool has_blocks;
  bool has_in_place;
  uint64_t alias_rarity;           // one node in so many may share memory; 0: none
  uint32_t visible[MODEL_VALUES];  // the values that the next node can see
  uint32_t visible_count;
} random_graph;

static inline bool random_one_in(random_graph* g, uint64_t n) { return t_rng_below(g->rng, n) == 0; }

static inline uint32_t random_new_value(random_graph* g, tide_graph_kind kind) {
  static const char sigils[] = { 'v', '*', '@', '$', '#' };
  char name[MODEL_NAME];
  (void)snprintf(name, sizeof name, "%c%u", sigils[kind], g->m->value_count);
  return model_add_value(g->m, kind, name);
}

static inline void random_show(random_graph* g, uint32_t value) { g->visible[g->visible_count++] = value; }

// A visible value of a kind, mostly one of the newest; TIDE_GRAPH_NONE if there is none.
static inline uint32_t random_pick(random_graph* g, tide_graph_kind kind) {
  uint32_t found[MODEL_VALUES];
  uint32_t count = 0;
  for (uint32_t i = 0; i < g->visible_count; i++) {
    if (g->m->kinds[g->visible[i]] == kind) found[count++] = g->visible[i];
  }
  if (count == 0) return TIDE_GRAPH_NONE;
  const uint32_t window = random_one_in(g, 3) || count < 4 ? count : 4;
  return found[count - 1 - t_rng_below(g->rng, window)];
}

static inline model_node* random_add_node(random_graph* g, uint32_t block, uint32_t flags) {
  return &g->m->nodes[model_add_node(g->m, block, flags)];
}

static inline void random_add_inputs(random_graph* g, model_node* node, uint64_t most) {
  const uint64_t count = 1 + t_rng_below(g->rng, most);
  for (uint64_t i = 0; i < count; i++) model_push(&node->inputs, random_pick(g, TIDE_KIND_TENSOR));
}

static inline uint32_t random_add_output(random_graph* g, model_node* node, tide_graph_kind kind) {
  const uint32_t value = random_new_value(g, kind);
  model_push(&node->outputs, value);
  return value;
}

static inline void random_show_outputs(random_graph* g, const model_node* node) {
  for (uint32_t i = 0; i < node->outputs.count; i++) random_show(g, node->outputs.at[i]);
}

static inline void random_permit(random_graph* g, model_node* node) {
  for (uint32_t i = 0; i < node->inputs.count && g->has_in_place; i++) {
    for (uint32_t k = 0; k < node->outputs.count; k++) {
      const bool is_new = !model_is_pair(&node->over, node->inputs.at[i], node->outputs.at[k]);
      if (is_new && !random_one_in(g, 4)) model_pair(&node->over, node->inputs.at[i], node->outputs.at[k]);
    }
  }
}

// ---------------------------------------------------------------------------------------------------
// Kinds of nodes

static inline void random_compute(random_graph* g, uint32_t block) {
  static const uint32_t flags[] = { TIDE_NODE_WRITES_OUT, TIDE_NODE_WRITES_OUT, TIDE_NODE_WRITES_OUT, 0,
                                    TIDE_NODE_WRITES_OUT | TIDE_NODE_GUARDED };
  model_node* const node = random_add_node(g, block, flags[t_rng_below(g->rng, 5)]);
  random_add_inputs(g, node, 3);
  const uint64_t outputs = random_one_in(g, 4) ? 3 : 1;
  for (uint64_t i = 0; i < outputs; i++) (void)random_add_output(g, node, TIDE_KIND_TENSOR);
  random_permit(g, node);
  random_show_outputs(g, node);
}

static inline void random_view(random_graph* g, uint32_t block) {
  model_node* const node = random_add_node(g, block, random_one_in(g, 3) ? TIDE_NODE_WRITES_OUT : 0);
  random_add_inputs(g, node, 2);
  const uint32_t output = random_add_output(g, node, TIDE_KIND_TENSOR);
  model_pair(&node->aliases, node->inputs.at[0], output);
  random_show_outputs(g, node);
}

static inline void random_pack(random_graph* g, uint32_t block) {
  const uint32_t flags = TIDE_NODE_ALIASES_ALL | (random_one_in(g, 2) ? TIDE_NODE_WRITES_OUT : 0);
  model_node* const node = random_add_node(g, block, flags);
  random_add_inputs(g, node, 3);
  (void)random_add_output(g, node, random_one_in(g, 4) ? TIDE_KIND_OBJECT : TIDE_KIND_CONTAINER);
  random_show_outputs(g, node);
}

static inline void random_unpack(random_graph* g, uint32_t block) {
  const tide_graph_kind kind = random_one_in(g, 4) ? TIDE_KIND_OBJECT : TIDE_KIND_CONTAINER;
  const uint32_t container = random_pick(g, kind);
  if (container == TIDE_GRAPH_NONE) return;
  const uint32_t flags = TIDE_NODE_ALIASES_ALL | (random_one_in(g, 3) ? TIDE_NODE_BORROWS : 0);
  model_node* const node = random_add_node(g, block, flags);
  model_push(&node->inputs, container);
  const uint64_t outputs = 1 + t_rng_below(g->rng, 2);
  for (uint64_t i = 0; i < outputs; i++) (void)random_add_output(g, node, TIDE_KIND_TENSOR);
  random_show_outputs(g, node);
}

// A MAY_SKIP node, and one that takes its output or else its input.
static inline void random_skip(random_graph* g, uint32_t block) {
  model_node* const maybe = random_add_node(g, block, TIDE_NODE_WRITES_OUT | TIDE_NODE_MAY_SKIP);
  random_add_inputs(g, maybe, 1);
  const uint32_t copy = random_add_output(g, maybe, TIDE_KIND_TENSOR);
  model_node* const choice = random_add_node(g, block, TIDE_NODE_ALIASES_ALL | TIDE_NODE_BORROWS);
  model_push(&choice->inputs, maybe->inputs.at[0]);
  model_push(&choice->inputs, copy);
  random_show(g, random_add_output(g, choice, TIDE_KIND_TENSOR));
}

static inline void random_number(random_graph* g, uint32_t block) {
  model_node* const node = random_add_node(g, block, 0);
  random_add_inputs(g, node, 2);
  random_show(g, random_add_output(g, node, random_one_in(g, 2) ? TIDE_KIND_SCALAR : TIDE_KIND_IMMUTABLE));
}

static inline void random_fill_block(random_graph* g, uint32_t block, uint32_t depth, uint64_t nodes);

// A loop (one block) or a branch (two); what is inside is not seen behind it.
static inline void random_nest(random_graph* g, uint32_t block, uint32_t depth) {
  const uint32_t flags = random_one_in(g, 3) ? 0 : TIDE_NODE_WRITES_OUT;
  model_node* const node = random_add_node(g, block, flags);
  const uint32_t number = (uint32_t)(node - g->m->nodes);
  random_add_inputs(g, node, 2);
  const uint32_t output = random_add_output(g, node, TIDE_KIND_TENSOR);
  if (random_one_in(g, 3)) model_pair(&node->aliases, node->inputs.at[0], output);
  else random_permit(g, node);
  const uint64_t blocks = 1 + t_rng_below(g->rng, 2);
  const uint32_t visible = g->visible_count;
  for (uint64_t i = 0; i < blocks; i++) {
    const uint32_t inside = model_add_block(g->m, number);
    if (random_one_in(g, 2)) {
      const uint32_t input = random_new_value(g, TIDE_KIND_TENSOR);
      model_push(&g->m->blocks[inside].inputs, input);
      random_show(g, input);
    }
    random_fill_block(g, inside, depth + 1, 1 + t_rng_below(g->rng, 4));
    model_push(&g->m->blocks[inside].outputs, random_pick(g, TIDE_KIND_TENSOR));
    g->visible_count = visible;
  }
  random_show(g, output);
}

static inline void random_any_node(random_graph* g, uint32_t block, uint32_t depth) {
  const uint64_t dice = t_rng_below(g->rng, 16);
  const bool has_aliases = g->alias_rarity != 0 && random_one_in(g, g->alias_rarity);
  if (g->has_blocks && dice < 2 && depth < 4 && g->m->block_count + 2 < MODEL_BLOCKS)
    random_nest(g, block, depth);
  else if (has_aliases && dice < 5) random_view(g, block);
  else if (has_aliases && dice < 9) random_pack(g, block);
  else if (has_aliases && dice < 13) random_unpack(g, block);
  else if (has_aliases && dice < 14) random_skip(g, block);
  else if (dice < 3) random_number(g, block);
  else random_compute(g, block);
}

static inline void random_fill_block(random_graph* g, uint32_t block, uint32_t depth, uint64_t nodes) {
  for (uint64_t i = 0; i < nodes && g->nodes_left > 1; i++) {
    g->nodes_left -= 2;  // a node that skips is two
    random_any_node(g, block, depth);
  }
}

// ---------------------------------------------------------------------------------------------------
// Graphs

static inline bool random_is_output(const model* m, uint32_t value) {
  return model_has(&m->blocks[0].outputs, value);
}

static inline void random_add_outputs(random_graph* g) {
  const uint64_t count = 1 + t_rng_below(g->rng, 3);
  for (uint64_t i = 0; i < count; i++) {
    const tide_graph_kind kind = random_one_in(g, 3) ? TIDE_KIND_CONTAINER : TIDE_KIND_TENSOR;
    const uint32_t value = random_pick(g, kind);
    const bool is_made = value != TIDE_GRAPH_NONE && model_maker(g->m, value) != TIDE_GRAPH_NONE;
    if (is_made && !random_is_output(g->m, value)) model_push(&g->m->blocks[0].outputs, value);
  }
}

// Makes a graph of up to `nodes` nodes. Without aliases it has tensors and scalars only.
static inline void random_make(model* m, uint32_t nodes, bool has_aliases, bool has_blocks, t_rng* rng) {
  random_graph g = { .m = m, .rng = rng, .has_blocks = has_blocks };
  model_init(m);
  g.nodes_left = nodes;
  g.has_in_place = !random_one_in(&g, 4);
  g.alias_rarity = has_aliases ? 1 + t_rng_below(rng, 4) : 0;
  for (uint32_t i = 0; i < 2; i++) {
    const uint32_t input = random_new_value(&g, TIDE_KIND_TENSOR);
    model_push(&m->blocks[0].inputs, input);
    random_show(&g, input);
  }
  const uint32_t constant = random_new_value(&g, TIDE_KIND_TENSOR);
  model_push(&m->constants, constant);
  random_show(&g, constant);
  random_fill_block(&g, TIDE_GRAPH_ROOT, 0, nodes);
  if (has_aliases && random_one_in(&g, 4)) {
    const uint32_t escape = random_pick(&g, TIDE_KIND_TENSOR);
    if (model_maker(m, escape) != TIDE_GRAPH_NONE) model_push(&m->escapes, escape);
  }
  random_add_outputs(&g);
}

// A chain of nodes whose values are read by some of the next few nodes: what a network without aliases is
// like.
static inline void random_chain(model* m, uint32_t nodes, t_rng* rng) {
  model_span spans[MODEL_VALUES];
  for (uint32_t i = 0; i < nodes; i++) {
    const uint32_t last = i + 1 + (uint32_t)t_rng_below(rng, 1 + t_rng_below(rng, 10));
    spans[i] = (model_span){ i, last < nodes ? last : nodes - 1 };
  }
  model_spans(m, spans, nodes);
}

#endif
