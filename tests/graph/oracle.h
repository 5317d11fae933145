// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A naive oracle for graphs: which values may share memory (all pairs, until nothing changes), lifetimes
// (every use of everything that may share memory), overlaps, the most bytes that live at once (every
// instant), and two of the layouts: LIFO groups and offsets by size.
#ifndef TIDEMARK_TESTS_GRAPH_ORACLE_H
#define TIDEMARK_TESTS_GRAPH_ORACLE_H

#include "graph/model.h"
#include "plan/smallest.h"

typedef struct oracle {
  const model* m;
  uint32_t positions[MODEL_NODES];              // of each node in its block
  uint32_t counts[MODEL_BLOCKS];                // of nodes of each block
  model_span nodes[MODEL_NODES];                // the instants from the beginning of each node to its end
  uint32_t instants;                            // all of them
  model_span spans[MODEL_VALUES];               // the instants that each value lives at
  bool reaches[MODEL_VALUES][MODEL_VALUES];     // [other] may hold memory of [value]
  tide_graph_lifetime lifetimes[MODEL_VALUES];  // of each value
} oracle;

// ---------------------------------------------------------------------------------------------------
// Aliases

static inline bool oracle_can_share(const model* m, uint32_t value) {
  return m->kinds[value] == TIDE_KIND_TENSOR || m->kinds[value] == TIDE_KIND_CONTAINER ||
         m->kinds[value] == TIDE_KIND_OBJECT;
}

static inline void oracle_share(oracle* o, uint32_t value, uint32_t other) {
  if (oracle_can_share(o->m, value) && oracle_can_share(o->m, other)) o->reaches[value][other] = true;
}

static inline void oracle_share_all(oracle* o, const model_ports* values, const model_ports* others) {
  for (uint32_t i = 0; i < values->count; i++) {
    for (uint32_t k = 0; k < others->count; k++) oracle_share(o, values->at[i], others->at[k]);
  }
}

static inline void oracle_find_shares(oracle* o) {
  const model* const m = o->m;
  for (uint32_t i = 0; i < m->node_count; i++) {
    const model_node* const node = &m->nodes[i];
    if ((node->flags & TIDE_NODE_ALIASES_ALL) != 0) oracle_share_all(o, &node->inputs, &node->outputs);
    for (uint32_t k = 0; k < node->aliases.count; k++)
      oracle_share(o, node->aliases.at[k].input, node->aliases.at[k].output);
  }
  for (uint32_t i = 1; i < m->block_count; i++) {
    const model_node* const node = &m->nodes[m->blocks[i].node];
    oracle_share_all(o, &node->inputs, &m->blocks[i].inputs);
    oracle_share_all(o, &m->blocks[i].outputs, &node->outputs);
  }
}

static inline bool oracle_spread(oracle* o, uint32_t from, uint32_t over) {
  bool is_changed = false;
  for (uint32_t to = 0; to < o->m->value_count; to++) {
    if (!o->reaches[over][to] || o->reaches[from][to]) continue;
    o->reaches[from][to] = true;
    is_changed = true;
  }
  return is_changed;
}

static inline void oracle_close_shares(oracle* o) {
  for (bool is_changed = true; is_changed;) {
    is_changed = false;
    for (uint32_t from = 0; from < o->m->value_count; from++) {
      for (uint32_t over = 0; over < o->m->value_count; over++) {
        if (o->reaches[from][over] && oracle_spread(o, from, over)) is_changed = true;
      }
    }
  }
}

// ---------------------------------------------------------------------------------------------------
// Lifetimes

// Time goes through the nodes of a block in their order, and through the blocks of a node one after the
// other.
static inline void oracle_walk(oracle* o, uint32_t block) {
  for (uint32_t i = 0; i < o->m->node_count; i++) {
    if (o->m->nodes[i].block != block) continue;
    o->positions[i] = o->counts[block]++;
    o->nodes[i].first = o->instants++;
    for (uint32_t k = 1; k < o->m->block_count; k++) {
      if (o->m->blocks[k].node == i) oracle_walk(o, k);
    }
    o->nodes[i].last = o->instants++;
  }
}

static inline bool oracle_is_within(const oracle* o, uint32_t block, uint32_t at) {
  while (at != block) {
    const uint32_t node = o->m->blocks[at].node;
    if (node == TIDE_GRAPH_NONE) return false;
    at = o->m->nodes[node].block;
  }
  return true;
}

// A value is used: by the node `node`, or by the end of the block `at` for TIDE_GRAPH_NONE. It then lives
// until the node has ended that holds the user in the innermost block around both; or until that block has
// ended.
static inline void oracle_use(const oracle* o, tide_graph_lifetime* life, model_span* span, uint32_t at,
                              uint32_t node) {
  uint32_t around = life->block;
  while (!oracle_is_within(o, around, at)) around = o->m->nodes[o->m->blocks[around].node].block;
  while (at != around) {
    node = o->m->blocks[at].node;
    at = o->m->nodes[node].block;
  }
  const uint32_t holder = o->m->blocks[around].node;
  const uint32_t end = holder == TIDE_GRAPH_NONE ? o->instants : o->nodes[holder].last;
  const uint32_t instant = node == TIDE_GRAPH_NONE ? end : o->nodes[node].last;
  const uint32_t position = node == TIDE_GRAPH_NONE || around != life->block ? o->counts[life->block]
                                                                             : o->positions[node];
  if (instant > span->last) span->last = instant;
  if (position > life->last) life->last = position;
}

// Every use of `value` is one of what has the lifetime.
static inline void oracle_use_all(const oracle* o, tide_graph_lifetime* life, model_span* span,
                                  uint32_t value) {
  const model* const m = o->m;
  for (uint32_t i = 0; i < m->node_count; i++) {
    if (model_has(&m->nodes[i].inputs, value)) oracle_use(o, life, span, m->nodes[i].block, i);
  }
  for (uint32_t i = 0; i < m->block_count; i++) {
    if (model_has(&m->blocks[i].outputs, value)) oracle_use(o, life, span, i, TIDE_GRAPH_NONE);
  }
}

static inline void oracle_live(oracle* o, uint32_t value) {
  const uint32_t node = model_maker(o->m, value);
  tide_graph_lifetime* const life = &o->lifetimes[value];
  model_span* const span = &o->spans[value];
  if (node == TIDE_GRAPH_NONE || !oracle_can_share(o->m, value)) return;
  life->is_tracked = true;
  life->block = o->m->nodes[node].block;
  life->first = life->last = o->positions[node];
  *span = o->nodes[node];
  oracle_use_all(o, life, span, value);
  for (uint32_t other = 0; other < o->m->value_count; other++) {
    if (o->reaches[value][other]) oracle_use_all(o, life, span, other);
  }
}

static inline void oracle_init(oracle* o, const model* m) {
  memset(o, 0, sizeof *o);
  o->m = m;
  oracle_walk(o, TIDE_GRAPH_ROOT);
  oracle_find_shares(o);
  oracle_close_shares(o);
  for (uint32_t i = 0; i < m->value_count; i++) oracle_live(o, i);
}

static inline bool oracle_overlaps(const oracle* o, uint32_t value, uint32_t other) {
  const model_span* const a = &o->spans[value];
  const model_span* const b = &o->spans[other];
  return o->lifetimes[value].is_tracked && o->lifetimes[other].is_tracked && a->first <= b->last &&
         b->first <= a->last;
}

// ---------------------------------------------------------------------------------------------------
// Layouts; `bytes` has 0 for all that is not placed

// The most bytes that live at one instant.
static inline uint64_t oracle_lower_bound(const oracle* o, const uint64_t* bytes) {
  uint64_t most = 0;
  for (uint32_t instant = 0; instant <= o->instants; instant++) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < o->m->value_count; i++) {
      if (o->spans[i].first <= instant && instant <= o->spans[i].last) sum += bytes[i];
    }
    if (sum > most) most = sum;
  }
  return most;
}

typedef struct oracle_groups {
  uint32_t of[MODEL_VALUES];
  uint64_t bytes[MODEL_VALUES];
  uint32_t count;
} oracle_groups;

static inline uint64_t oracle_total(const oracle_groups* groups) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < groups->count; i++) sum += groups->bytes[i];
  return sum;
}

static inline void oracle_join(oracle_groups* groups, uint32_t group, uint32_t value, uint64_t bytes) {
  groups->of[value] = group;
  if (bytes > groups->bytes[group]) groups->bytes[group] = bytes;
}

// One block: each value takes the group that became free last; what ends with a node is free after it.
static inline void oracle_lifo_block(const oracle* o, const uint64_t* bytes, uint32_t block,
                                     oracle_groups* groups) {
  uint32_t stack[MODEL_VALUES];
  uint32_t depth = 0;
  for (uint32_t i = 0; i < o->m->node_count; i++) {
    const model_node* const node = &o->m->nodes[i];
    if (node->block != block) continue;
    for (uint32_t k = 0; k < node->outputs.count; k++) {
      const uint32_t value = node->outputs.at[k];
      if (bytes[value] == 0) continue;
      const uint32_t group = depth > 0 ? stack[--depth] : groups->count++;
      oracle_join(groups, group, value, bytes[value]);
    }
    for (uint32_t value = 0; value < o->m->value_count; value++) {
      const tide_graph_lifetime* const life = &o->lifetimes[value];
      if (life->is_tracked && life->block == block && life->last == o->positions[i] && bytes[value] != 0)
        stack[depth++] = groups->of[value];
    }
  }
}

// Groups of all blocks, each for itself.
static inline void oracle_lifo(const oracle* o, const uint64_t* bytes, oracle_groups* groups) {
  memset(groups, 0, sizeof *groups);
  for (uint32_t block = 0; block < o->m->block_count; block++) oracle_lifo_block(o, bytes, block, groups);
}

// The smallest gap below, between or above the placed values that conflict; the lowest of equal ones.
static inline uint64_t oracle_gap(const oracle* o, const uint64_t* bytes, const uint64_t* offsets,
                                  const uint32_t* order, uint32_t placed, uint32_t value) {
  uint64_t best = UINT64_MAX;
  uint64_t best_bytes = UINT64_MAX;
  uint64_t low = 0;
  for (bool is_top = false; !is_top;) {
    uint64_t high = UINT64_MAX;  // the lowest conflicting value that ends above `low`
    uint64_t end = 0;
    for (uint32_t i = 0; i < placed; i++) {
      const uint32_t other = order[i];
      const bool is_above = offsets[other] + bytes[other] > low && offsets[other] < high;
      if (!is_above || !oracle_overlaps(o, value, other)) continue;
      high = offsets[other];
      end = offsets[other] + bytes[other];
    }
    is_top = high == UINT64_MAX;
    if (is_top && best == UINT64_MAX) best = low;
    if (!is_top && high > low && high - low >= bytes[value] && high - low < best_bytes) {
      best = low;
      best_bytes = high - low;
    }
    if (end > low) low = end;
  }
  return best;
}

// Offsets by size, largest first, and of equal ones the lowest number.
static inline uint64_t oracle_by_size(const oracle* o, const uint64_t* bytes, uint64_t* offsets) {
  uint32_t order[MODEL_VALUES];
  uint32_t count = 0;
  uint64_t total = 0;
  for (uint32_t i = 0; i < o->m->value_count; i++) {
    uint32_t at = count;
    if (bytes[i] == 0) continue;
    for (; at > 0 && bytes[order[at - 1]] < bytes[i]; at--) order[at] = order[at - 1];
    order[at] = i;
    count++;
  }
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t value = order[i];
    offsets[value] = oracle_gap(o, bytes, offsets, order, i, value);
    if (offsets[value] + bytes[value] > total) total = offsets[value] + bytes[value];
  }
  return total;
}

static inline bool oracle_meet(const void* o, size_t value, size_t other) {
  return oracle_overlaps(o, (uint32_t)value, (uint32_t)other);
}

// The smallest arena for a few values.
static inline uint64_t oracle_optimum(const oracle* o, const uint64_t* bytes) {
  smallest_problem s = {
    .count = o->m->value_count, .bytes = bytes, .alignment = 1, .meet = oracle_meet, .user = o
  };
  return smallest_arena(&s);
}

#endif
