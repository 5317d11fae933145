// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Lifetimes of values and which of them overlap: graphs as tables, among them those of the static runtime's
// own tests, and random graphs compared with an oracle.
#include "graph/graph_parts.h"
#include "graph/oracle.h"
#include "graph/random_graph.h"

// Do two values share an instant on the timeline through all blocks?
static bool overlap(const tide_graph* graph, uint32_t value, uint32_t other) {
  const tide__value* const a = &graph->values[value];
  const tide__value* const b = &graph->values[other];
  return tide__value_is_tracked(a) && tide__value_is_tracked(b) && a->begin <= b->end && b->begin <= a->end;
}

// ---------------------------------------------------------------------------------------------------
// Graphs as tables

typedef struct lives_row {
  const char* rule;
  const char* graph;
  const char* lives;  // "y0-1" lives from the first node of its block to the second; "x" has no lifetime
  const char* pairs;  // "b+c" overlap, "b/d" do not
} lives_row;

static const lives_row rows[] = {
  // The graphs of the static runtime's tests
  { "a value lives to its last reader", "in x; y = write(x x); z = write(y x); o = write(z z); out o;",
    "x y0-1 z1-2 o2-3", "" },
  { "a view keeps its source alive",
    "in x; y = write(x); z1 = write(y); v = plain(y) y>v; z2 = write(x); w = write(v);"
    "o = write(z1 z2 z1); out o;",
    "y0-4 v2-4 z1:1-5 z2:3-5 w4-4", "" },
  { "both ends are included", "in a; b = write(a); c = write(b); d = write(c); e = write(c); out e;", "",
    "b+c c+d c+e c+c b/d b/e a/b" },
  { "elements of a container live as long as what is unpacked",
    "in x; a = write(x); b = write(x); *l = write+all(a b); c d = plain+all(*l); y = write(c);"
    "z = write(d); o = write(y z); out o;",
    "*l2-5", "a+y a+z b+y b+z a/o" },
  { "an output of the graph lives to its end", "in x; y = write(x); z = write(x); w = write(z); out y w;",
    "y0-3", "y+z y+w" },
  // A value that was last read inside a branch used to be released too early (PyTorch's 75379 and 146855).
  { "a use inside a block is a use of its node",
    "in x; y = write(x); z = write(x); b = write(x) { t = write(z); u = write(t); out u; }"
    "{ w = write(x) { v = write(y); out v; }; out w; }; o = write(b); out o;",
    "y0-2 z1-2 t0-1 u1-2 v0-1", "" },
  { "without aliases", "in a; b = write(a); c = write(b); d = write(c); e = write(b d); o = write(e); out o;",
    "b0-3 c1-2 d2-3 e3-4", "" },
  { "with an alias",
    "in a; b = write(a); c = write(b); d = write(c); #s = plain(a); c1 = plain(c #s) c>c1;"
    "e = write(b d); f = write(c1); o = write(e f); out o;",
    "b0-5 c1-6 d2-5 e5-7 f6-7", "" },
  { "an unused value lives for its node", "in a; z = write(a); o = write(z); x y = write(a); out o;",
    "z0-1 x2-2 y2-2", "x+y z/x" },
  // Kinds and aliases
  { "only mutable values that a node makes have a lifetime",
    "in x *p; const k; y = write(x); *l = plain(y); @o = plain(y); $t = plain(y); #n = plain(y);"
    "z = write(y) { in i; t = write(i); out t; };",
    "x *p k $t #n i *l1-1 @o2-2 t0-1", "" },
  { "an unused view does not prolong a life", "in x; y = write(x); v = plain(y) y>v; z = write(x); out z;",
    "y0-1", "" },
  { "a chain of views reaches its first source",
    "in x; y = write(x); v = plain(y) y>v; w = plain(v) v>w; *l = write+all(w); u = plain+all(*l);"
    "z = write(x); o = write(u z); out o;",
    "y0-6 v1-6 w2-6 *l3-6", "" },
  { "a view of one input keeps no other alive",
    "in x; y = write(x); z = write(x); v = plain(y z) y>v; o = write(v); out o;", "y0-3 z1-2", "" },
  { "a scalar holds no memory", "in x; y = write(x); #n $t = plain+all(y); z = write(#n $t); out z;", "y0-1",
    "" },
  { "the source of an output lives to the end",
    "in x; y = write(x); z = write(x); *l = write+all(y); w = write(z); out *l;", "y0-4 z1-3", "" },
  // Aliases through blocks
  { "a view made in a block keeps its source alive behind it",
    "in x; y = write(x); b = plain(x) { v = plain(y) y>v; out v; }; z = write(x); o = write(b z); out o;",
    "y0-3 v0-1", "" },
  { "an output of a block lives as long as that of its node",
    "in x; y = write(x); b = plain(x) { out y; } { t = write(x); out t; }; z = write(x); o = write(b z); out "
    "o;",
    "y0-3", "" },
  { "a value passed through a block lives as long as the output of its node",
    "in x; y = write(x); b = plain(y) { in i; v = plain(i) i>v; out v; }; z = write(x); o = write(b z); out "
    "o;",
    "y0-3", "" },
  { "a value that stays in a block ends with its node",
    "in x; y = write(x); b = write(x) { v = plain(y) y>v; t = write(v); out t; }; z = write(x);"
    "o = write(b z); out o;",
    "y0-1 v0-1", "" },
  { "aliases pass through nested blocks",
    "in x; y = write(x); b = plain(x) { c = plain(x) { v = plain(y) y>v; out v; }; d = plain(c) c>d; out d; "
    "};"
    "z = write(x); o = write(b z); out o;",
    "y0-3", "" },
  // Values of different blocks
  { "values in a block overlap those that live while its node runs",
    "in x; y = write(x); z = write(y); b = write(z) { t = write(x); u = write(t); out u; };"
    "c = write(x) { w = write(b); out w; }; o = write(c); out o;",
    "", "t/y t+z t+b t/c t/o w+b w/t" },
  { "values in different blocks of a node do not overlap",
    "in x; b = write(x) { t = write(x); n = write(t) { d = write(t); e = write(d); out e; };"
    "r = write(n); out r; } { u = write(x); s = write(u); out s; }; out b;",
    "", "t/u d/u t+d n+d" },
};

// Reads the name of a value: letters, with ':' behind a name that ends in a digit.
static uint32_t read_value(const model* m, const char** at) {
  char name[MODEL_NAME] = "";
  size_t length = 0;
  while (**at != '\0' && strchr(" +/:", **at) == NULL) {
    if (length > 0 && isdigit((unsigned char)**at) && model_find(m, name) != TIDE_GRAPH_NONE) break;
    name[length++] = *(*at)++;
    name[length] = '\0';
  }
  if (**at == ':') ++*at;
  return model_id(m, name);
}

static void expect_lives(const lives_row* row, const model* m, const tide_graph* graph) {
  for (const char* at = row->lives; *at != '\0'; at += *at == ' ') {
    const uint32_t value = read_value(m, &at);
    const tide_graph_lifetime life = tide_graph_get_lifetime(graph, value);
    char* end = NULL;
    bool is_right = !life.is_tracked;
    if (isdigit((unsigned char)*at)) {
      const uint64_t first = strtoull(at, &end, 10);
      const uint64_t last = strtoull(end + 1, &end, 10);
      is_right = life.is_tracked && life.first == first && life.last == last;
      at = end;
    }
    if (!is_right) T_FAIL("%s: %s lives from %u to %u", row->rule, m->names[value], life.first, life.last);
  }
}

static void expect_pairs(const lives_row* row, const model* m, const tide_graph* graph) {
  for (const char* at = row->pairs; *at != '\0'; at += *at == ' ') {
    const uint32_t a = read_value(m, &at);
    const bool is_expected = *at++ == '+';
    const uint32_t b = read_value(m, &at);
    if (overlap(graph, a, b) != is_expected || overlap(graph, b, a) != is_expected)
      T_FAIL("%s: %s and %s %s", row->rule, m->names[a], m->names[b],
             is_expected ? "do not overlap" : "overlap");
  }
}

T_TEST(test_graph_lifetimes__follow_the_table) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    static model m;
    tide_graph* const graph = model_graph(&m, rows[i].graph);
    expect_lives(&rows[i], &m, graph);
    expect_pairs(&rows[i], &m, graph);
    tide_graph_free(graph);
  }
}

T_TEST(test_graph_lifetimes__belong_to_the_block_that_defines_the_value) {
  static model m;
  tide_graph* const graph = model_graph(
      &m, "in x; b = write(x) { t = write(x); out t; } { w = write(x) { v = write(x); out v; }; out w; };");

  T_EQ(tide_graph_get_lifetime(graph, model_id(&m, "b")).block, TIDE_GRAPH_ROOT);
  T_EQ(tide_graph_get_lifetime(graph, model_id(&m, "t")).block, 1);
  T_EQ(tide_graph_get_lifetime(graph, model_id(&m, "v")).block, 3);

  tide_graph_free(graph);
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
      if (overlap(graph, i, k) == oracle_overlaps(&o, i, k)) continue;
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
