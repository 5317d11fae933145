// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Networks that compute: under every algorithm and every combination of options, on planned memory and in
// runs of different shapes, the results equal those of the same network with a malloc for each value.
#include "graph/trial.h"

#define NET_WORDS 300  // of a tensor at most

typedef struct net_value {
  uint32_t* words;
  uint32_t count;
  model_ports elements;  // of a container
} net_value;

typedef struct net {
  const model* m;
  tide_planner* planner;  // NULL: all memory is malloc
  uint32_t count;         // words of the inputs of this run
  net_value values[MODEL_VALUES];
  void* owned[MODEL_VALUES];  // without a planner
} net;

static void net_alloc(net* n, uint32_t value, uint32_t count) {
  void* address = NULL;
  if (n->planner == NULL) {
    free(n->owned[value]);
    address = n->owned[value] = malloc(NET_WORDS * sizeof(uint32_t));
    T_CHECK(address != NULL);
  } else {
    T_OK(tide_planner_alloc(n->planner, value, count * sizeof(uint32_t), &address));
  }
  n->values[value] = (net_value){ .words = address, .count = count };
}

static void net_adopt(net* n, uint32_t value, uint32_t* words, uint32_t count) {
  n->values[value] = (net_value){ .words = words, .count = count };
  if (n->planner != NULL) T_OK(tide_planner_adopt(n->planner, value, words, count * sizeof *words));
}

// Each word is made of the words at its position, so that an output may lie over an input.
static void net_compute(net* n, const model_node* node) {
  for (uint32_t k = 0; k < node->outputs.count; k++) net_alloc(n, node->outputs.at[k], n->count);
  for (uint32_t i = 0; i < n->count; i++) {
    uint32_t sum = node->inputs.count + i;
    for (uint32_t k = 0; k < node->inputs.count; k++) {
      const net_value* const input = &n->values[node->inputs.at[k]];
      sum = sum * 31 + (i < input->count ? input->words[i] : 7);
    }
    for (uint32_t k = 0; k < node->outputs.count; k++) n->values[node->outputs.at[k]].words[i] = sum + k;
  }
}

// The second half of the first input.
static void net_view(net* n, const model_node* node) {
  const net_value source = n->values[node->inputs.at[0]];
  net_adopt(n, node->outputs.at[0], source.words + source.count / 2, source.count - source.count / 2);
}

static void net_unpack(net* n, const model_node* node) {
  const model_ports elements = n->values[node->inputs.at[0]].elements;
  for (uint32_t k = 0; k < node->outputs.count; k++) {
    const net_value element = n->values[elements.at[k % elements.count]];
    net_adopt(n, node->outputs.at[k], element.words, element.count);
  }
}

static void net_run_block(net* n, uint32_t block);

// One of the blocks of a node, by the shape; the node copies what it hands out.
static void net_branch(net* n, const model_node* node, uint32_t number) {
  uint32_t blocks[MODEL_BLOCKS] = { 0 };
  uint32_t count = 0;
  for (uint32_t i = 1; i < n->m->block_count; i++) {
    if (n->m->blocks[i].node == number) blocks[count++] = i;
  }
  T_LT(0, count);
  const model_block* const chosen = &n->m->blocks[blocks[n->count % count]];
  for (uint32_t i = 0; i < chosen->inputs.count; i++) {
    const net_value input = n->values[node->inputs.at[i % node->inputs.count]];
    net_adopt(n, chosen->inputs.at[i], input.words, input.count);
  }
  net_run_block(n, blocks[n->count % count]);
  const net_value result = n->values[chosen->outputs.at[0]];
  net_alloc(n, node->outputs.at[0], result.count);
  memmove(n->values[node->outputs.at[0]].words, result.words, result.count * sizeof(uint32_t));
}

static bool net_has_block(const net* n, uint32_t node) {
  for (uint32_t i = 1; i < n->m->block_count; i++) {
    if (n->m->blocks[i].node == node) return true;
  }
  return false;
}

static void net_run_block(net* n, uint32_t block) {
  for (uint32_t i = 0; i < n->m->node_count; i++) {
    const model_node* const node = &n->m->nodes[i];
    if (node->block != block) continue;
    if (net_has_block(n, i)) net_branch(n, node, i);
    else if (n->m->kinds[node->outputs.at[0]] == TIDE_KIND_CONTAINER)
      n->values[node->outputs.at[0]].elements = node->inputs;
    else if (n->m->kinds[node->inputs.at[0]] == TIDE_KIND_CONTAINER) net_unpack(n, node);
    else if (node->aliases.count > 0) net_view(n, node);
    else net_compute(n, node);
  }
}

// ---------------------------------------------------------------------------------------------------
// Comparing

typedef struct net_pair {
  net planned;
  net plain;
  uint32_t input[NET_WORDS];
} net_pair;

static uint64_t net_hash(const net* n, uint32_t value) {
  uint64_t hash = 14695981039346656037u;
  const net_value* const held = &n->values[value];
  if (n->m->kinds[value] == TIDE_KIND_CONTAINER) {
    for (uint32_t i = 0; i < held->elements.count; i++) {
      const net_value* const element = &n->values[held->elements.at[i]];
      for (uint32_t k = 0; k < element->count; k++) hash = (hash ^ element->words[k]) * 1099511628211u;
    }
  }
  for (uint32_t k = 0; k < held->count; k++) hash = (hash ^ held->words[k]) * 1099511628211u;
  return hash;
}

static void net_start(net* n, uint32_t count, uint32_t* input) {
  n->count = count;
  net_adopt(n, n->m->blocks[0].inputs.at[0], input, count);
  net_run_block(n, TIDE_GRAPH_ROOT);
}

static void expect_same_results(const net_pair* p) {
  const model_ports* const outputs = &p->plain.m->blocks[0].outputs;
  for (uint32_t i = 0; i < outputs->count; i++)
    T_EQ(net_hash(&p->planned, outputs->at[i]), net_hash(&p->plain, outputs->at[i]));
}

// One run of both networks; the input is not modified, and the results are right at the end and after it.
static void run_and_compare(net_pair* p, uint32_t count) {
  tide_planner* const planner = p->planned.planner;
  T_OK(tide_planner_begin(planner, 0));
  for (uint32_t i = 0; i < count; i++) p->input[i] = i * i;
  net_start(&p->planned, count, p->input);
  for (uint32_t i = 0; i < count; i++) T_EQ(p->input[i], i * i);
  net_start(&p->plain, count, p->input);
  expect_same_results(p);
  T_OK(tide_planner_end(planner));
  expect_same_results(p);
  T_EQ(tide_planner_leak(planner), TIDE_GRAPH_NONE);
  if (tide_planner_generation(planner) != 0)
    T_OK(tide_planner_drop_outputs(planner, tide_planner_generation(planner)));
}

static const char* const networks[] = {
  // A chain with values that live on, and two results.
  "in x; a = write(x); b = write(a x) a~b; c = write(b) b~c; d = write(c a); e = write(d b); f g = write(e "
  "c) e~f;"
  "h = write(g d); out f h;",
  // Views of views, and a result that shows what was computed early.
  "in x; a = write(x); v = plain(a) a>v; b = write(v x); w = plain(v) v>w; c = write(b) b~c; d = write(w c);"
  "r = plain(c) c>r; out d r;",
  // Lists that are packed, unpacked and handed out.
  "in x; a = write(x); b = write(a); *l = write+all(a b); c d = plain+all(*l); e = write(c); f = write(d e) "
  "e~f;"
  "g = write(f a); *o = write+all(g f); h = write(g); out *o h;",
  // Branches that read what is around them, one in another.
  "in x; a = write(x); b = write(a); c = write(b) { t = write(a); u = write(t b) t~u; s = write(u); out s; }"
  "{ in i; t2 = write(i); n = write(t2) { q = write(t2 a); r = write(q) q~r; out r; }; out n; }; d = write(c "
  "a);"
  "e = write(d) d~e; out e;",
};

// Runs of a network: the first shape, another, and the first again.
static void expect_right(const char* text, tide_graph_options options) {
  static trial t;
  static net_pair p;
  trial_open(&t, text, options);
  memset(&p, 0, sizeof p);
  p.planned.m = p.plain.m = &t.m;
  p.planned.planner = t.planner;

  run_and_compare(&p, 100);
  run_and_compare(&p, 250);
  const uint64_t bytes = trial_stats(&t).managed_bytes;
  run_and_compare(&p, 100);
  if (options.remembers_runs == 0) T_LE(bytes, trial_stats(&t).managed_bytes);
  run_and_compare(&p, 251);
  run_and_compare(&p, 101);

  for (uint32_t i = 0; i < MODEL_VALUES; i++) free(p.plain.owned[i]);
  trial_close(&t);
}

// All options of a number, bit by bit; false if they do not go together.
static bool options_of(uint32_t bits, tide_graph_algorithm algorithm, tide_graph_options* out) {
  tide_graph_options options = (bits & 1) != 0 ? trial_original() : trial_defaults();
  options.algorithm = algorithm;
  options.in_place = (bits & 2) != 0;
  options.nests = (bits & 4) != 0;
  options.shares = (bits & 8) == 0;
  options.manages_outputs = (bits & 16) != 0;
  options.manages_direct_outputs = (bits & 32) != 0;
  options.plan_nodes = 1000;
  *out = options;
  return options.manages_outputs || !options.manages_direct_outputs;
}

#define NAME(name, text) text,
static const char* const algorithms[] = { TIDE_GRAPH_ALGORITHM_MAP(NAME) NULL };

static tide_graph_algorithm algorithm_of(const char* name) {
  int algorithm = 0;
  while (strcmp(tide_graph_algorithm_name((tide_graph_algorithm)algorithm), name) != 0) algorithm++;
  return (tide_graph_algorithm)algorithm;
}

T_TEST_OVER(test_planner_results__equal_those_on_malloc_with_all_options, algorithms) {
  for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) {
    for (uint32_t bits = 0; bits < 64; bits++) {
      tide_graph_options options;
      if (options_of(bits, algorithm_of(t_variant()), &options)) expect_right(networks[i], options);
    }
  }
}

T_TEST(test_planner_results__equal_those_on_malloc_when_nothing_is_managed) {
  tide_graph_options options = trial_defaults();
  options.writes_out = false;
  options.shares = false;
  for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) expect_right(networks[i], options);
}
