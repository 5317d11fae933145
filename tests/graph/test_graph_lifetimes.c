// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// When values live and which of them overlap: the graphs of the static runtime's own tests as tables, what
// aliases, containers and blocks do to lifetimes, and random graphs against an oracle.
#include "graph/oracle.h"
#include "graph/random_graph.h"
#include "graph/trial.h"

typedef struct lives {
  model m;
  tide_graph* graph;
} lives;

static void lives_open(lives* l, const char* text) { l->graph = model_graph(&l->m, text); }

static void expect_life(const lives* l, const char* name, uint32_t first, uint32_t last) {
  const tide_graph_lifetime life = tide_graph_get_lifetime(l->graph, model_id(&l->m, name));
  if (!life.is_tracked || life.first != first || life.last != last)
    T_FAIL("%s lives from %u to %u", name, life.first, life.last);
}

static void expect_untracked(const lives* l, const char* name) {
  T_CHECK(!tide_graph_get_lifetime(l->graph, model_id(&l->m, name)).is_tracked);
}

// Both ways round.
static void expect_overlap(const lives* l, const char* name, const char* other, bool is_expected) {
  const uint32_t a = model_id(&l->m, name);
  const uint32_t b = model_id(&l->m, other);
  if (tide_graph_overlap(l->graph, a, b) != is_expected || tide_graph_overlap(l->graph, b, a) != is_expected)
    T_FAIL("%s and %s %s", name, other, is_expected ? "do not overlap" : "overlap");
}

// ---------------------------------------------------------------------------------------------------
// The graphs of the static runtime's tests

T_TEST(test_graph_lifetimes__without_aliases_values_live_to_their_last_reader) {
  lives l;
  lives_open(&l, "in x; y = write(x x); z = write(y x); o = write(z z); out o;");

  expect_untracked(&l, "x");
  expect_life(&l, "y", 0, 1);
  expect_life(&l, "z", 1, 2);
  expect_life(&l, "o", 2, 3);

  tide_graph_free(l.graph);
}

T_TEST(test_graph_lifetimes__a_view_keeps_its_source_alive) {
  lives l;
  lives_open(&l, "in x; y = write(x); z1 = write(y); v = plain(y) y>v; z2 = write(x); w = write(v);"
                 "o = write(z1 z2 z1); out o;");

  expect_life(&l, "y", 0, 4);
  expect_life(&l, "v", 2, 4);
  expect_life(&l, "z1", 1, 5);
  expect_life(&l, "z2", 3, 5);
  expect_life(&l, "w", 4, 4);

  tide_graph_free(l.graph);
}

T_TEST(test_graph_lifetimes__overlap_is_inclusive_and_symmetric) {
  lives l;
  lives_open(&l, "in a; b = write(a); c = write(b); d = write(c); e = write(c); out e;");

  expect_overlap(&l, "b", "c", true);
  expect_overlap(&l, "c", "d", true);
  expect_overlap(&l, "c", "e", true);
  expect_overlap(&l, "b", "d", false);
  expect_overlap(&l, "b", "e", false);
  expect_overlap(&l, "a", "b", false);
  expect_overlap(&l, "c", "c", true);

  tide_graph_free(l.graph);
}

T_TEST(test_graph_lifetimes__elements_overlap_what_is_computed_from_the_unpacked_ones) {
  lives l;
  lives_open(&l, "in x; a = write(x); b = write(x); *l = write+all(a b); c d = plain+all(*l); y = write(c);"
                 "z = write(d); o = write(y z); out o;");

  expect_overlap(&l, "a", "y", true);
  expect_overlap(&l, "a", "z", true);
  expect_overlap(&l, "b", "y", true);
  expect_overlap(&l, "b", "z", true);
  expect_life(&l, "*l", 2, 5);
  expect_overlap(&l, "a", "o", false);

  tide_graph_free(l.graph);
}

T_TEST(test_graph_lifetimes__an_output_of_the_graph_overlaps_all_later_values) {
  lives l;
  lives_open(&l, "in x; y = write(x); z = write(x); w = write(z); out y w;");

  expect_life(&l, "y", 0, 3);
  expect_overlap(&l, "y", "z", true);
  expect_overlap(&l, "y", "w", true);

  tide_graph_free(l.graph);
}

// A value that was last read inside a branch used to be released too early (PyTorch's 75379 and 146855).
T_TEST(test_graph_lifetimes__uses_inside_blocks_are_uses_of_their_node) {
  lives l;
  lives_open(&l, "in x; y = write(x); z = write(x); b = write(x) { t = write(z); u = write(t); out u; }"
                 "{ w = write(x) { v = write(y); out v; }; out w; }; o = write(b); out o;");

  expect_life(&l, "y", 0, 2);
  expect_life(&l, "z", 1, 2);
  expect_life(&l, "t", 0, 1);
  expect_life(&l, "u", 1, 2);
  expect_life(&l, "v", 0, 1);
  T_EQ(tide_graph_get_lifetime(l.graph, model_id(&l.m, "t")).block, 1);
  T_EQ(tide_graph_get_lifetime(l.graph, model_id(&l.m, "v")).block, 3);

  tide_graph_free(l.graph);
}

T_TEST(test_graph_lifetimes__table_without_aliases) {
  lives l;
  lives_open(&l, "in a; b = write(a); c = write(b); d = write(c); e = write(b d); o = write(e); out o;");

  expect_life(&l, "b", 0, 3);
  expect_life(&l, "c", 1, 2);
  expect_life(&l, "d", 2, 3);
  expect_life(&l, "e", 3, 4);

  tide_graph_free(l.graph);
}

T_TEST(test_graph_lifetimes__table_with_an_alias) {
  lives l;
  lives_open(&l, "in a; b = write(a); c = write(b); d = write(c); #s = plain(a); c1 = plain(c #s) c>c1;"
                 "e = write(b d); f = write(c1); o = write(e f); out o;");

  expect_life(&l, "b", 0, 5);
  expect_life(&l, "c", 1, 6);
  expect_life(&l, "d", 2, 5);
  expect_life(&l, "e", 5, 7);
  expect_life(&l, "f", 6, 7);

  tide_graph_free(l.graph);
}

T_TEST(test_graph_lifetimes__unused_values_live_for_their_node) {
  lives l;
  lives_open(&l, "in a; z = write(a); o = write(z); x y = write(a); out o;");

  expect_life(&l, "z", 0, 1);
  expect_life(&l, "x", 2, 2);
  expect_life(&l, "y", 2, 2);
  expect_overlap(&l, "x", "y", true);
  expect_overlap(&l, "z", "x", false);

  tide_graph_free(l.graph);
}

// ---------------------------------------------------------------------------------------------------
// Kinds and aliases

T_TEST(test_graph_lifetimes__only_what_nodes_make_and_can_change_has_one) {
  lives l;
  lives_open(&l, "in x *p; const k; y = write(x); *l = plain(y); @o = plain(y); $t = plain(y); #n = plain(y);"
                 "z = write(y) { in i; t = write(i); out t; };");

  expect_untracked(&l, "x");
  expect_untracked(&l, "*p");
  expect_untracked(&l, "k");
  expect_untracked(&l, "$t");
  expect_untracked(&l, "#n");
  expect_untracked(&l, "i");
  expect_life(&l, "*l", 1, 1);
  expect_life(&l, "@o", 2, 2);
  expect_life(&l, "t", 0, 1);

  tide_graph_free(l.graph);
}

T_TEST(test_graph_lifetimes__an_unused_view_keeps_nothing_alive_longer) {
  lives l;
  lives_open(&l, "in x; y = write(x); v = plain(y) y>v; z = write(x); out z;");

  expect_life(&l, "y", 0, 1);

  tide_graph_free(l.graph);
}

T_TEST(test_graph_lifetimes__chains_of_views_reach_their_first_source) {
  lives l;
  lives_open(&l,
             "in x; y = write(x); v = plain(y) y>v; w = plain(v) v>w; *l = write+all(w); u = plain+all(*l);"
             "z = write(x); o = write(u z); out o;");

  expect_life(&l, "y", 0, 6);
  expect_life(&l, "v", 1, 6);
  expect_life(&l, "w", 2, 6);
  expect_life(&l, "*l", 3, 6);

  tide_graph_free(l.graph);
}

T_TEST(test_graph_lifetimes__a_view_of_one_input_keeps_no_other_alive) {
  lives l;
  lives_open(&l, "in x; y = write(x); z = write(x); v = plain(y z) y>v; o = write(v); out o;");

  expect_life(&l, "y", 0, 3);
  expect_life(&l, "z", 1, 2);

  tide_graph_free(l.graph);
}

T_TEST(test_graph_lifetimes__a_scalar_holds_no_memory) {
  lives l;
  lives_open(&l, "in x; y = write(x); #n $t = plain+all(y); z = write(#n $t); out z;");

  expect_life(&l, "y", 0, 1);

  tide_graph_free(l.graph);
}

T_TEST(test_graph_lifetimes__the_source_of_an_output_lives_to_the_end) {
  lives l;
  lives_open(&l, "in x; y = write(x); z = write(x); *l = write+all(y); w = write(z); out *l;");

  expect_life(&l, "y", 0, 4);
  expect_life(&l, "z", 1, 3);

  tide_graph_free(l.graph);
}

// ---------------------------------------------------------------------------------------------------
// Aliases through blocks

T_TEST(test_graph_lifetimes__a_view_made_in_a_block_keeps_its_source_alive_behind_it) {
  lives l;
  lives_open(&l,
             "in x; y = write(x); b = plain(x) { v = plain(y) y>v; out v; }; z = write(x); o = write(b z);"
             "out o;");

  expect_life(&l, "y", 0, 3);
  expect_life(&l, "v", 0, 1);

  tide_graph_free(l.graph);
}

T_TEST(test_graph_lifetimes__a_value_handed_out_by_a_block_lives_as_long_as_what_its_node_makes) {
  lives l;
  lives_open(&l, "in x; y = write(x); b = plain(x) { out y; } { t = write(x); out t; }; z = write(x);"
                 "o = write(b z); out o;");

  expect_life(&l, "y", 0, 3);

  tide_graph_free(l.graph);
}

T_TEST(test_graph_lifetimes__a_value_passed_through_a_block_lives_as_long_as_what_its_node_makes) {
  lives l;
  lives_open(&l, "in x; y = write(x); b = plain(y) { in i; v = plain(i) i>v; out v; }; z = write(x);"
                 "o = write(b z); out o;");

  expect_life(&l, "y", 0, 3);

  tide_graph_free(l.graph);
}

T_TEST(test_graph_lifetimes__what_stays_in_a_block_ends_with_its_node) {
  lives l;
  lives_open(&l, "in x; y = write(x); b = write(x) { v = plain(y) y>v; t = write(v); out t; }; z = write(x);"
                 "o = write(b z); out o;");

  expect_life(&l, "y", 0, 1);
  expect_life(&l, "v", 0, 1);

  tide_graph_free(l.graph);
}

T_TEST(test_graph_lifetimes__aliases_pass_through_blocks_inside_blocks) {
  lives l;
  lives_open(&l,
             "in x; y = write(x); b = plain(x) { c = plain(x) { v = plain(y) y>v; out v; }; d = plain(c) c>d;"
             "out d; }; z = write(x); o = write(b z); out o;");

  expect_life(&l, "y", 0, 3);

  tide_graph_free(l.graph);
}

// ---------------------------------------------------------------------------------------------------
// Values of different blocks

T_TEST(test_graph_lifetimes__values_in_a_block_overlap_what_lives_while_its_node_runs) {
  lives l;
  lives_open(&l, "in x; y = write(x); z = write(y); b = write(z) { t = write(x); u = write(t); out u; };"
                 "c = write(x) { w = write(b); out w; }; o = write(c); out o;");

  expect_overlap(&l, "t", "y", false);
  expect_overlap(&l, "t", "z", true);
  expect_overlap(&l, "t", "b", true);
  expect_overlap(&l, "t", "c", false);
  expect_overlap(&l, "t", "o", false);
  expect_overlap(&l, "w", "b", true);
  expect_overlap(&l, "w", "t", false);

  tide_graph_free(l.graph);
}

T_TEST(test_graph_lifetimes__the_blocks_of_a_node_are_never_there_together) {
  lives l;
  lives_open(&l, "in x; b = write(x) { t = write(x); n = write(t) { d = write(t); e = write(d); out e; };"
                 "r = write(n); out r; } { u = write(x); s = write(u); out s; }; out b;");

  expect_overlap(&l, "t", "u", false);
  expect_overlap(&l, "d", "u", false);
  expect_overlap(&l, "t", "d", true);
  expect_overlap(&l, "n", "d", true);

  tide_graph_free(l.graph);
}

// ---------------------------------------------------------------------------------------------------
// What ends where, as a planner tells it

static void expect_freed(const trial* t, uint32_t block, uint32_t position, const char* names) {
  char found[100] = "";
  size_t count = 0;
  const uint32_t* const values = tide_planner_freed_after(t->planner, block, position, &count);
  for (size_t i = 0; i < count; i++) {
    (void)snprintf(found + strlen(found), sizeof found - strlen(found), "%s%s", i == 0 ? "" : " ",
                   t->m.names[values[i]]);
  }
  T_STR_EQ(found, names);
}

T_TEST(test_graph_lifetimes__managed_values_are_free_after_their_last_node) {
  trial t;
  trial_open(&t,
             "in x; y = write(x); z1 = write(y); v = plain(y) y>v; z2 = write(x); w = write(v);"
             "o = write(z1 z2 z1); out o;",
             trial_defaults());

  expect_freed(&t, 0, 0, "");
  expect_freed(&t, 0, 1, "");
  expect_freed(&t, 0, 4, "y w");
  expect_freed(&t, 0, 5, "z1 z2");
  expect_freed(&t, 0, 6, "");
  expect_freed(&t, 0, 7, "");
  expect_freed(&t, 9, 0, "");
  expect_freed(&t, 0, TIDE_GRAPH_NONE, "");

  trial_close(&t);
}

T_TEST(test_graph_lifetimes__managed_values_of_a_block_are_free_in_it) {
  trial t;
  trial_open(&t,
             "in x; y = write(x); b = write(y) { t = write(x); s = write(t); u = write(s); out u; }; out b;",
             trial_defaults());

  expect_freed(&t, 0, 1, "y");
  expect_freed(&t, 1, 1, "t");
  expect_freed(&t, 1, 2, "s");

  trial_close(&t);
}

// ---------------------------------------------------------------------------------------------------
// Random graphs

static void expect_as_oracle(const model* m) {
  static oracle o;
  tide_graph* const graph = model_build(m);
  oracle_init(&o, m);
  for (uint32_t i = 0; i < m->value_count; i++) {
    const tide_graph_lifetime life = tide_graph_get_lifetime(graph, i);
    const tide_graph_lifetime want = o.lifetimes[i];
    const bool is_same = life.is_tracked == want.is_tracked &&
                         (!life.is_tracked ||
                          (life.block == want.block && life.first == want.first && life.last == want.last));
    if (!is_same) {
      model_print(stderr, m);
      T_FAIL("%s lives from %u to %u and not to %u", m->names[i], life.first, life.last, want.last);
    }
    for (uint32_t k = 0; k < m->value_count; k++) {
      if (tide_graph_overlap(graph, i, k) == oracle_overlaps(&o, i, k)) continue;
      model_print(stderr, m);
      T_FAIL("overlap of %s and %s", m->names[i], m->names[k]);
    }
  }
  tide_graph_free(graph);
}

T_TEST(test_graph_lifetimes__random_graphs_agree_with_the_oracle) {
  for (size_t i = 0; i < t_scaled(T_HAS_SANITIZER ? 200 : 1500); i++) {
    static model m;
    t_rng rng = t_rng_new(i);
    random_make(&m, 4 + (uint32_t)t_rng_below(&rng, 50), i % 4 != 0, i % 3 != 0, &rng);
    expect_as_oracle(&m);
  }
}

// What is printed when a test fails is the same graph again.
T_TEST(test_graph_lifetimes__a_printed_graph_is_the_same_graph) {
  for (size_t i = 0; i < 50; i++) {
    static model m;
    static model again;
    char text[20000] = "";
    char second[20000] = "";
    t_rng rng = t_rng_new(i);
    random_make(&m, 40, true, true, &rng);
    FILE* file = fmemopen(text, sizeof text, "w");
    model_print(file, &m);
    (void)fclose(file);

    model_read(&again, text);

    file = fmemopen(second, sizeof second, "w");
    model_print(file, &again);
    (void)fclose(file);
    T_STR_EQ(text, second);
    T_EQ(again.node_count, m.node_count);
    T_EQ(again.block_count, m.block_count);
  }
}
