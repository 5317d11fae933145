// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Random graphs with aliases, containers, nested blocks, loops, nodes that skip and outputs over inputs,
// run on planned memory with byte patterns (see play.h) under every algorithm and all combinations of
// options: no value may be damaged before its last reader. A graph that fails is made smaller, and printed
// as a line for the table of pasted cases below.
#include "graph/play.h"
#include "graph/random_graph.h"

// A case follows from its text, its seed and these bits.
enum {
  PROP_IN_PLACE = 1 << 4,  // the lower bits are the algorithm
  PROP_NESTS = 1 << 5,
  PROP_APART = 1 << 6,
  PROP_OUTPUTS = 1 << 7,
  PROP_DIRECT = 1 << 8,
  PROP_GENERATIONS = 1 << 9,
  PROP_AUDITS = 1 << 10,
  PROP_FORGETS = 1 << 11,
  PROP_ORIGINAL = 1 << 12,
  PROP_NOTHING = 1 << 13,
  PROP_OWN = 1 << 14,  // a layout of the test's own
  PROP_BITS = 1 << 15,
};

typedef struct prop_case {
  model m;
  uint64_t seed;
  uint32_t bits;
} prop_case;

static tide_graph_options prop_options(uint32_t bits) {
  tide_graph_options options = TIDE_GRAPH_OPTIONS_INIT;
  const tide_graph_options original = TIDE_GRAPH_OPTIONS_ORIGINAL;
  if ((bits & PROP_ORIGINAL) != 0) options = original;
  else options.algorithm = (tide_graph_algorithm)(bits % TIDE_GRAPH_ALGORITHM_COUNT);
  options.in_place = (bits & PROP_IN_PLACE) != 0;
  options.nests = (bits & PROP_NESTS) != 0;
  options.writes_out = (bits & PROP_NOTHING) == 0;
  options.shares = options.writes_out && (bits & PROP_APART) == 0;
  options.manages_outputs = options.writes_out && (bits & PROP_OUTPUTS) != 0;
  options.manages_direct_outputs = options.manages_outputs && (bits & PROP_DIRECT) != 0;
  options.output_generations = (bits & PROP_GENERATIONS) != 0 ? 0 : 1;
  options.has_audits = (bits & PROP_AUDITS) != 0;
  if ((bits & PROP_FORGETS) != 0) options.remembers_runs = 2;
  options.plan_nodes = 300;
  options.max_layouts = 2;
  options.alignment = (bits & PROP_FORGETS) != 0 ? 1 : 64;
  if ((bits & PROP_OWN) != 0) options.on_layout = model_first_fit;
  return options;
}

// ---------------------------------------------------------------------------------------------------
// Making a case smaller

typedef struct prop_removal {
  bool nodes[MODEL_NODES];
  bool blocks[MODEL_BLOCKS];
  bool values[MODEL_VALUES];
} prop_removal;

static void remove_ports(model_ports* ports, const bool* is_gone) {
  uint32_t left = 0;
  for (uint32_t i = 0; i < ports->count; i++) {
    if (!is_gone[ports->at[i]]) ports->at[left++] = ports->at[i];
  }
  ports->count = left;
}

static void remove_pairs(model_pairs* pairs, const bool* is_gone) {
  uint32_t left = 0;
  for (uint32_t i = 0; i < pairs->count; i++) {
    if (!is_gone[pairs->at[i].input] && !is_gone[pairs->at[i].output]) pairs->at[left++] = pairs->at[i];
  }
  pairs->count = left;
}

// What goes with a node: its blocks, their nodes, and the values of all these. Those inside have larger
// numbers.
static void removal_of(const model* m, uint32_t node, prop_removal* gone) {
  memset(gone, 0, sizeof *gone);
  gone->nodes[node] = true;
  for (uint32_t i = node; i < m->node_count; i++) {
    if (gone->blocks[m->nodes[i].block]) gone->nodes[i] = true;
    for (uint32_t k = 1; k < m->block_count; k++) {
      if (m->blocks[k].node == i && gone->nodes[i]) gone->blocks[k] = true;
    }
    for (uint32_t k = 0; k < m->nodes[i].outputs.count && gone->nodes[i]; k++)
      gone->values[m->nodes[i].outputs.at[k]] = true;
  }
  for (uint32_t i = 1; i < m->block_count; i++) {
    for (uint32_t k = 0; k < m->blocks[i].inputs.count && gone->blocks[i]; k++)
      gone->values[m->blocks[i].inputs.at[k]] = true;
  }
}

static void remove_from(model* m, const prop_removal* gone) {
  uint32_t nodes[MODEL_NODES];
  uint32_t blocks[MODEL_BLOCKS];
  uint32_t left = 0;
  for (uint32_t i = 0; i < m->block_count; i++) {
    blocks[i] = left;
    if (!gone->blocks[i]) m->blocks[left++] = m->blocks[i];
  }
  m->block_count = left;
  left = 0;
  for (uint32_t i = 0; i < m->node_count; i++) {
    nodes[i] = left;
    if (gone->nodes[i]) continue;
    m->nodes[left] = m->nodes[i];
    m->nodes[left].block = blocks[m->nodes[i].block];
    remove_ports(&m->nodes[left].inputs, gone->values);
    remove_pairs(&m->nodes[left].aliases, gone->values);
    remove_pairs(&m->nodes[left++].over, gone->values);
  }
  m->node_count = left;
  for (uint32_t i = 0; i < m->block_count; i++) {
    if (i > 0) m->blocks[i].node = nodes[m->blocks[i].node];
    remove_ports(&m->blocks[i].outputs, gone->values);
  }
  remove_ports(&m->escapes, gone->values);
}

static const char* prop_fault(const prop_case* c, play* p) {
  play_graph(p, &c->m, c->seed, prop_options(c->bits), 8);
  return p->fault[0] == '\0' ? NULL : p->fault;
}

// Leaves out whatever node can be left out while something is still wrong.
static void prop_shrink(prop_case* c, play* p) {
  for (uint32_t i = c->m.node_count; i-- > 0;) {
    static prop_case less;
    static prop_removal gone;
    if (i >= c->m.node_count) continue;
    less = *c;
    removal_of(&c->m, i, &gone);
    remove_from(&less.m, &gone);
    if (prop_fault(&less, p) != NULL) *c = less;
  }
  for (uint32_t bit = PROP_IN_PLACE; bit < PROP_BITS; bit *= 2) {
    const uint32_t bits = c->bits;
    c->bits &= ~bit;
    if (prop_fault(c, p) == NULL) c->bits = bits;
  }
}

static void prop_report(prop_case* c, play* p) {
  prop_shrink(c, p);
  (void)prop_fault(c, p);
  (void)fprintf(stderr, "  { 0x%xu, %" PRIu64 "u,\n    \"", c->bits, c->seed);
  model_print_block(stderr, &c->m, TIDE_GRAPH_ROOT);
  (void)fprintf(stderr, "\" },\n");
  T_FAIL("%s: %s", tide_graph_algorithm_name(prop_options(c->bits).algorithm), p->fault);
}

// ---------------------------------------------------------------------------------------------------
// The tests

static void play_random(uint32_t bits, uint64_t index, play* p) {
  static prop_case c;
  t_rng rng = t_rng_new(index);
  const uint32_t nodes = 4 + (uint32_t)t_rng_below(&rng, 60);
  const bool has_aliases = t_rng_below(&rng, 5) > 0;
  random_make(&c.m, nodes, has_aliases, t_rng_below(&rng, 3) > 0, &rng);
  c.seed = t_rng_next(&rng);
  c.bits = bits | ((uint32_t)t_rng_next(&rng) & (PROP_ORIGINAL - PROP_IN_PLACE));
  if (prop_fault(&c, p) != NULL) prop_report(&c, p);
}

#define NAME(name, text) text,
static const char* const kinds[] = { TIDE_GRAPH_ALGORITHM_MAP(NAME) "own", "original", "nothing", NULL };

static uint32_t bits_of(const char* kind) {
  uint32_t bits = 0;
  if (strcmp(kind, "own") == 0) return PROP_OWN;
  if (strcmp(kind, "original") == 0) return PROP_ORIGINAL;
  if (strcmp(kind, "nothing") == 0) return PROP_NOTHING;
  while (strcmp(tide_graph_algorithm_name((tide_graph_algorithm)bits), kind) != 0) bits++;
  return bits;
}

T_TEST_OVER(prop_graph__no_value_is_damaged_before_its_last_reader, kinds) {
  static play p;
  uint64_t covers = 0;
  uint64_t planned = 0;
  uint64_t swapped = 0;
  const uint32_t bits = bits_of(t_variant());
  for (size_t i = 0; i < t_scaled(T_HAS_SANITIZER ? 100 : 800); i++) {
    play_random(bits, i, &p);
    covers += p.covers;
    planned += p.planned;
    swapped += p.swapped;
  }
  const bool lays_over = bits == TIDE_GRAPH_SMALLEST || bits == TIDE_GRAPH_SOLVER;
  if (!lays_over || !T_HAS_SANITIZER) T_EQ(covers > 0, lays_over);
  T_EQ(planned > 0, bits != PROP_NOTHING);
  T_EQ(swapped > 0, bits != PROP_NOTHING);
}

// Cases that have failed once, or that show how to paste one: bits, seed, graph.
static const struct pasted {
  uint32_t bits;
  uint64_t seed;
  const char* text;
} pasted[] = {
  { PROP_IN_PLACE | PROP_NESTS | PROP_AUDITS, 1,
    "in x; a = write(x); v = plain(a) a>v; o = write(v) { in i; t = write(i); u = write(t) t~u; w = write(u "
    "a); out w; };"
    "b = write(o) o~b; out b;" },
  // What a turn had written was given back when the next turn put the value elsewhere.
  { 0, 12063696117915675432u,
    "in v0 v1; const v2; v18 = plain() { in v19; v20 = plain(); v22 = write(v20 v19) v20>v22 { out v20; }; "
    "out v22; };" },
  // The instants of inputs of blocks were numbers of nodes.
  { PROP_IN_PLACE | PROP_NESTS, 3,
    "in x; y = write(x); b = write(y) { in i; out i; }; z = write(x); w = write(z y); out w;" },
};

T_TEST(prop_graph__pasted_cases_hold) {
  static play p;
  static prop_case c;
  for (size_t i = 0; i < sizeof pasted / sizeof *pasted; i++) {
    model_read(&c.m, pasted[i].text);
    c.seed = pasted[i].seed;
    c.bits = pasted[i].bits;
    if (prop_fault(&c, &p) != NULL) T_FAIL("case %zu: %s", i, p.fault);
  }
}
