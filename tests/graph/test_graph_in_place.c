// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// In-place outputs: only where the node permits it, the input dies there, and no other value shares its
// memory; and never worse than without.
#include "graph/packed.h"
#include "graph/random_graph.h"

static tide_graph_options over_inputs(tide_graph_algorithm algorithm) {
  tide_graph_options options = trial_with(algorithm, 1);
  options.in_place = true;
  return options;
}

static const tide_graph_algorithm in_place_algorithms[] = { TIDE_GRAPH_SOLVER, TIDE_GRAPH_SMALLEST };

typedef struct total_row {
  const char* rule;
  const char* graph;
  uint64_t bytes;     // of the arena, with values of 10 bytes each
  uint32_t covering;  // values over inputs
} total_row;

static const total_row rows[] = {
  { "a chain needs one buffer",
    "in x; a = write(x); b = write(a) a~b; c = write(b) b~c; d = write(c) c~d; o = write(d); out o;", 10, 3 },
  { "nodes that do not permit it keep their inputs", "in x; a = write(x); b = write(a); o = write(b); out o;",
    20, 0 },
  { "nodes that do not permit it keep their inputs",
    "in x; a = write(x); c = write(x); b = write(a c) a~b; o = write(b c); out o;", 20, 1 },
  { "nodes that do not permit it keep their inputs",
    "in x; a = write(x); c = write(x); b = write(a c) c~b; o = write(a b); out o;", 20, 1 },
  { "inputs that are read later are kept", "in x; a = write(x); b = write(a) a~b; o = write(a b); out o;", 20,
    0 },
  { "inputs with a view that lives are kept",
    "in x; a = write(x); v = plain(a) a>v; b = write(a) a~b; o = write(b v); out o;", 20, 0 },
  { "inputs with a view among the inputs are kept",
    "in x; a = write(x); v = plain(a) a>v; b = write(a v) a~b; o = write(b); out o;", 20, 0 },
  { "inputs in a container are kept",
    "in x; a = write(x); *l = write+all(a); b = write(a *l) a~b; o = write(b); out o;", 20, 0 },
  { "nothing lies over a view",
    "in x; a = write(x); v = plain(a) a>v; b = write(v) v~b; o = write(b); out o;", 20, 0 },
  { "inputs of the graph and constants are kept",
    "in x; const k; a = write(x k) x~a; b = write(k a) k~b; o = write(b); out o;", 20, 0 },
  { "outputs of the graph have no place to lie in", "in x; a = write(x); o = write(a) a~o; out o;", 10, 0 },
  { "one of two outputs lies over the input",
    "in x; a = write(x); b c = write(a) a~b a~c; o = write(b c); out o;", 20, 1 },
  { "an output lies over one of two inputs",
    "in x; a = write(x); b = write(x); c = write(a b) a~c b~c; o = write(c); out o;", 20, 1 },
  { "values of a block lie over one another",
    "in x; b = write(x) { in i; t = write(i); u = write(t) t~u; v = write(u) u~v; w = write(v); out w; "
    "};o = write(b); out o;",
    20, 2 },
  { "a value from around a loop is kept in it",
    "in x; a = write(x); b = write(x) { in i; t = write(a) a~t; u = write(t); out u; }; o = write(b); "
    "out o;",
    30, 0 },
};

T_TEST(test_graph_in_place__follows_the_table) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    static packed p;
    packed_open(&p, rows[i].graph);
    for (uint32_t k = 0; k < p.m.value_count; k++) p.bytes[k] = 10;
    for (size_t k = 0; k < 2; k++) {
      (void)packed_lay_out(&p, over_inputs(in_place_algorithms[k]));
      packed_check(&p);
      if (p.info.bytes != rows[i].bytes || p.info.over_inputs != rows[i].covering)
        T_FAIL("%s: %" PRIu64 " bytes, %u over inputs", rows[i].rule, p.info.bytes, p.info.over_inputs);
    }
    packed_close(&p);
  }
}

PACKED_TEST(test_graph_in_place__without_the_option_a_chain_needs_two_buffers,
            "in x; a = write(x); b = write(a) a~b; c = write(b) b~c; o = write(c); out o;") {
  for (uint32_t i = 0; i < p->m.value_count; i++) p->bytes[i] = 10;

  for (size_t i = 0; i < TIDE_GRAPH_ALGORITHM_COUNT; i++) {
    (void)packed_lay_out(p, trial_with((tide_graph_algorithm)i, 1));
    packed_check(p);
    T_EQ(p->info.bytes, i == TIDE_GRAPH_APART ? 30 : 20);
    T_EQ(p->info.over_inputs, 0);
  }
}

// Groups and offsets by size do not change.
PACKED_TEST(test_graph_in_place__only_the_solver_lays_values_over_inputs,
            "in x; a = write(x); b = write(a) a~b; c = write(b) b~c; o = write(c); out o;") {
  for (uint32_t i = 0; i < p->m.value_count; i++) p->bytes[i] = 10;

  for (int i = TIDE_GRAPH_LIFO_GROUPS; i <= TIDE_GRAPH_BY_DURATION; i++) {
    (void)packed_lay_out(p, over_inputs((tide_graph_algorithm)i));
    T_EQ(p->info.bytes, 20);
    T_EQ(p->info.over_inputs, 0);
  }
}

PACKED_TEST(test_graph_in_place__an_output_lies_over_an_input_that_is_no_smaller,
            "in x; a = write(x); b = write(a) a~b; c = write(b) b~c; o = write(c); out o;") {
  packed_size(p, "a", 30);
  packed_size(p, "b", 50);
  packed_size(p, "c", 20);

  const tide_graph_layout_info info = packed_lay_out(p, over_inputs(TIDE_GRAPH_SMALLEST));

  packed_check(p);
  T_EQ(info.bytes, 80);
  T_EQ(info.lower_bound, 80);
  T_LE(info.over_inputs, 1);
}

PACKED_TEST(test_graph_in_place__a_smaller_output_begins_where_its_input_does,
            "in x; a = write(x); b = write(a) a~b; c = write(b) b~c; o = write(c); out o;") {
  packed_size(p, "a", 50);
  packed_size(p, "b", 30);
  packed_size(p, "c", 20);

  const tide_graph_layout_info info = packed_lay_out(p, over_inputs(TIDE_GRAPH_SMALLEST));

  packed_check(p);
  T_EQ(info.bytes, 50);
  T_EQ(info.over_inputs, 2);
  T_EQ(packed_place(p, "c").offset, packed_place(p, "a").offset);
}

T_TEST(test_graph_in_place__random_graphs_are_sound_and_never_worse) {
  uint64_t covering = 0;
  uint64_t saved = 0;
  for (size_t i = 0; i < t_scaled(T_HAS_SANITIZER ? 40 : 250); i++) {
    static packed p;
    t_rng rng = t_rng_new(i);
    random_make(&p.m, 4 + (uint32_t)t_rng_below(&rng, 50), i % 4 != 0, i % 3 != 0, &rng);
    packed_open_model(&p);
    for (uint32_t k = 0; k < p.m.value_count; k++) p.bytes[k] = 1 + t_rng_below(&rng, i % 2 == 0 ? 3 : 1000);
    tide_graph_options options = trial_with(TIDE_GRAPH_SMALLEST, 1);
    options.plan_nodes = 2000;
    const uint64_t without = packed_lay_out(&p, options).bytes;

    options.in_place = true;
    (void)packed_lay_out(&p, options);

    packed_check(&p);
    T_LE(p.info.bytes, without);
    covering += p.info.over_inputs;
    saved += without - p.info.bytes;
    packed_close(&p);
  }
  T_CHECK(covering > 0);
  T_CHECK(saved > 0);
}
