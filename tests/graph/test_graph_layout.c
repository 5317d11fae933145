// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Layouts: golden vectors of every algorithm, the weaknesses of storage groups, nested blocks, sizes,
// alignments, invalid options and arguments.
#include <math.h>

#include "graph/packed.h"
#include "graph/random_graph.h"
#include "machine/counting_heap.h"

static const tide_graph_algorithm all_algorithms[] = {
  TIDE_GRAPH_SMALLEST, TIDE_GRAPH_LIFO_GROUPS, TIDE_GRAPH_FITTING_GROUPS, TIDE_GRAPH_BY_SIZE,
  TIDE_GRAPH_BY_AREA,  TIDE_GRAPH_BY_DURATION, TIDE_GRAPH_SOLVER,         TIDE_GRAPH_APART,
};
#define ALGORITHMS (sizeof all_algorithms / sizeof *all_algorithms)

static void open_spans(packed* p, const model_span* spans, const uint64_t* bytes, uint32_t count) {
  model_spans(&p->m, spans, count);
  packed_open_model(p);
  for (uint32_t i = 0; i < count; i++) p->bytes[i + 1] = bytes[i];
}

static uint64_t total_of(packed* p, tide_graph_algorithm algorithm) {
  const uint64_t total = packed_lay_out(p, trial_with(algorithm, 1)).bytes;
  packed_check(p);
  return total;
}

// ---------------------------------------------------------------------------------------------------
// Golden vectors

// Groups ignore sizes: a large value lands in a small group, which must grow.
T_TEST(test_graph_layout__large_values_do_not_land_in_small_groups) {
  static packed p;
  const model_span spans[] = { { 0, 1 }, { 1, 2 }, { 2, 3 }, { 3, 4 } };
  const uint64_t bytes[] = { 100, 1, 1, 100 };
  open_spans(&p, spans, bytes, 4);

  T_EQ(total_of(&p, TIDE_GRAPH_LIFO_GROUPS), 200);
  T_EQ(p.info.groups, 2);
  T_EQ(p.info.reused, 2);
  T_EQ(total_of(&p, TIDE_GRAPH_BY_SIZE), 102);
  T_EQ(p.info.lower_bound, 101);
  T_EQ(total_of(&p, TIDE_GRAPH_SOLVER), 101);
  T_EQ(total_of(&p, TIDE_GRAPH_SMALLEST), 101);
  T_EQ(total_of(&p, TIDE_GRAPH_APART), 202);
  T_EQ(p.info.groups, 4);
  T_EQ(p.info.reused, 0);

  packed_close(&p);
}

// A group is one slot: two small values cannot share what a large one has left.
T_TEST(test_graph_layout__two_values_share_the_space_of_one) {
  static packed p;
  const model_span spans[] = { { 0, 1 }, { 2, 4 }, { 3, 4 } };
  const uint64_t bytes[] = { 100, 50, 50 };
  open_spans(&p, spans, bytes, 3);

  T_EQ(total_of(&p, TIDE_GRAPH_LIFO_GROUPS), 150);
  T_EQ(p.info.groups, 2);
  T_EQ(p.info.reused, 1);
  T_EQ(total_of(&p, TIDE_GRAPH_BY_SIZE), 100);
  T_EQ(p.info.lower_bound, 100);
  T_EQ(total_of(&p, TIDE_GRAPH_SOLVER), 100);
  T_EQ(total_of(&p, TIDE_GRAPH_SMALLEST), 100);

  packed_close(&p);
}

static void expect_groups(packed* p, const char* names, const uint32_t* groups) {
  char name[2] = "";
  (void)packed_lay_out(p, trial_with(TIDE_GRAPH_LIFO_GROUPS, 1));
  packed_check(p);
  for (size_t i = 0; names[i] != '\0'; i++) {
    name[0] = names[i];
    if (packed_place(p, name).group != groups[i])
      T_FAIL("%s has group %u, not %u", name, packed_place(p, name).group, groups[i]);
  }
}

PACKED_TEST(test_graph_layout__groups_without_aliases_are_those_of_the_original,
            "in a; b = write(a); c = write(b); d = write(c); e = write(b d); o = write(e); out o;") {
  expect_groups(p, "bcde", (const uint32_t[]){ 0, 1, 2, 1 });

  T_EQ(p->info.managed, 4);
  T_EQ(p->info.reused, 1);
}

PACKED_TEST(test_graph_layout__groups_with_an_alias_are_those_of_the_original,
            "in a; b = write(a); c = write(b); d = write(c); #s = plain(a); v = plain(c #s) c>v;"
            "e = write(b d); f = write(v); o = write(e f); out o;") {
  // After node 5 the groups of b and d are free; f takes that of d, which has the higher number.
  expect_groups(p, "bcdef", (const uint32_t[]){ 0, 1, 2, 3, 2 });

  T_EQ(p->info.reused, 1);
  T_EQ(packed_place(p, "v").group, TIDE_GRAPH_NONE);
}

PACKED_TEST(test_graph_layout__groups_of_unused_values_are_those_of_the_original,
            "in a; z = write(a); o = write(z); x y = write(a); w u = write(a); out o;") {
  expect_groups(p, "zxyuw", (const uint32_t[]){ 0, 0, 1, 0, 1 });

  T_EQ(p->info.reused, 3);
}

// The original takes the values that end at one node from a hash set, so its plans vary.
T_TEST(test_graph_layout__what_ends_at_one_node_is_free_in_the_order_of_its_numbers) {
  static packed p;
  for (int i = 0; i < 20; i++) {
    packed_open(&p, "in a; b = write(a); c = write(a); d = write(a); o = write(c d b); e = write(a);"
                    "f = write(a); g = write(e f); out o;");
    expect_groups(&p, "bcdefg", (const uint32_t[]){ 0, 1, 2, 2, 1, 0 });
    packed_close(&p);
  }
}

T_TEST(test_graph_layout__a_fitting_group_is_taken_before_a_larger_one) {
  static packed p;
  const model_span spans[] = { { 0, 1 }, { 0, 1 }, { 0, 1 }, { 2, 3 }, { 2, 3 }, { 4, 4 } };
  const uint64_t bytes[] = { 100, 10, 40, 8, 35, 120 };
  open_spans(&p, spans, bytes, 6);

  T_EQ(total_of(&p, TIDE_GRAPH_FITTING_GROUPS), 170);

  T_EQ(packed_place(&p, "v3").offset, packed_place(&p, "v1").offset);
  T_EQ(packed_place(&p, "v4").offset, packed_place(&p, "v2").offset);
  T_EQ(packed_place(&p, "v5").offset, packed_place(&p, "v0").offset);
  T_EQ(p.info.reused, 3);
  packed_close(&p);
}

// By size the long thin value comes last and lies on top; by duration it comes first.
T_TEST(test_graph_layout__offsets_by_size_by_area_and_by_duration_differ) {
  static packed p;
  const model_span spans[] = { { 0, 0 }, { 0, 9 }, { 9, 9 } };
  const uint64_t bytes[] = { 30, 10, 20 };
  open_spans(&p, spans, bytes, 3);

  T_EQ(total_of(&p, TIDE_GRAPH_BY_SIZE), 40);
  T_EQ(packed_place(&p, "v0").offset, 0);
  T_EQ(packed_place(&p, "v1").offset, 30);
  T_EQ(packed_place(&p, "v2").offset, 0);
  T_EQ(total_of(&p, TIDE_GRAPH_BY_AREA), 40);
  T_EQ(packed_place(&p, "v1").offset, 0);
  T_EQ(packed_place(&p, "v0").offset, 10);
  T_EQ(total_of(&p, TIDE_GRAPH_BY_DURATION), 40);
  T_EQ(packed_place(&p, "v1").offset, 0);
  T_EQ(packed_place(&p, "v2").offset, 10);

  packed_close(&p);
}

// At node 4 there are gaps of 60 and of 40 below the values that live then; a value of 25 lies in the second.
T_TEST(test_graph_layout__offsets_by_size_take_the_smallest_gap) {
  static packed p;
  const model_span spans[] = { { 0, 1 }, { 0, 4 }, { 0, 2 }, { 0, 4 }, { 4, 4 } };
  const uint64_t bytes[] = { 60, 50, 40, 30, 25 };
  open_spans(&p, spans, bytes, 5);

  T_EQ(total_of(&p, TIDE_GRAPH_BY_SIZE), 180);

  T_EQ(packed_place(&p, "v1").offset, 60);
  T_EQ(packed_place(&p, "v3").offset, 150);
  T_EQ(packed_place(&p, "v4").offset, 110);
  packed_close(&p);
}

// ---------------------------------------------------------------------------------------------------
// Properties of every layout, on the graphs of the static runtime's tests

static const char* const assigned_graphs[] = {
  "in a; b = write(a); c = write(b); d = write(c); e = write(b d); o = write(e); out o;",
  ("in a; b = write(a); c = write(b); d = write(c); #s = plain(a); v = plain(c #s) c>v; e = write(b d);"
   "f = write(v); o = write(e f); out o;"),
  "in a; z = write(a); o = write(z); x y = write(a); out o;",
};

T_TEST(test_graph_layout__each_managed_value_has_one_place_and_some_is_reused) {
  static packed p;
  for (size_t i = 0; i < sizeof assigned_graphs / sizeof *assigned_graphs; i++) {
    for (size_t k = 0; k < ALGORITHMS; k++) {
      packed_open(&p, assigned_graphs[i]);
      const tide_graph_layout_info info = packed_lay_out(&p, trial_with(all_algorithms[k], 1));
      packed_check(&p);
      T_EQ(info.reused != 0 || info.bytes < info.managed, all_algorithms[k] != TIDE_GRAPH_APART);
      T_EQ(packed_place(&p, "a").role, TIDE_ROLE_EXTERNAL);
      T_EQ(packed_place(&p, "o").role, TIDE_ROLE_OUTPUT);
      T_EQ(packed_place(&p, "o").group, TIDE_GRAPH_NONE);
      packed_close(&p);
    }
  }
}

PACKED_TEST(test_graph_layout__without_sharing_each_value_lies_apart, assigned_graphs[0]) {
  tide_graph_options options = trial_with(TIDE_GRAPH_SMALLEST, 1);
  options.shares = false;

  const tide_graph_layout_info info = packed_lay_out(p, options);

  packed_check(p);
  T_EQ(info.bytes, 4);
  T_EQ(info.groups, 4);
  T_EQ(info.reused, 0);
}

// ---------------------------------------------------------------------------------------------------
// Blocks

static const char nested_graph[] =
    "in x; y = write(x); z = write(y); b = write(z) { t = write(z); u = write(t); w = write(u); out w; }"
    "{ s = write(z); r = write(s); q = write(r); out q; }; o = write(b); out o;";

static tide_graph_options nesting(tide_graph_algorithm algorithm, bool nests) {
  tide_graph_options options = trial_with(algorithm, 1);
  options.nests = nests;
  return options;
}

// What the blocks hand out takes no bytes here.
static void size_nested(packed* p) {
  packed_size(p, "w", 0);
  packed_size(p, "q", 0);
  packed_size(p, "y", 100);
  packed_size(p, "t", 60);
  packed_size(p, "u", 40);
  packed_size(p, "s", 50);
  packed_size(p, "r", 50);
  packed_size(p, "z", 10);
  packed_size(p, "b", 1);
}

// Both branches lie where y was, which is dead while they run.
PACKED_TEST(test_graph_layout__blocks_use_the_dead_space_around_them_and_one_another_s, nested_graph) {
  size_nested(p);

  const tide_graph_layout_info info = packed_lay_out(p, nesting(TIDE_GRAPH_SMALLEST, true));

  packed_check(p);
  T_EQ(info.lower_bound, 111);
  T_EQ(info.bytes, 111);
}

// As in the original: a plan for each block, and room for all of them.
PACKED_TEST(test_graph_layout__blocks_planned_apart_have_room_of_their_own, nested_graph) {
  size_nested(p);

  T_EQ(packed_lay_out(p, nesting(TIDE_GRAPH_SOLVER, false)).bytes, 110 + 100 + 100);
  packed_check(p);
  T_EQ(packed_lay_out(p, nesting(TIDE_GRAPH_LIFO_GROUPS, true)).bytes, 110 + 100 + 100);
  packed_check(p);
}

T_TEST(test_graph_layout__planning_blocks_together_is_never_worse) {
  for (size_t i = 0; i < t_scaled(T_HAS_SANITIZER ? 30 : 150); i++) {
    static packed p;
    t_rng rng = t_rng_new(100 + i);
    random_make(&p.m, 40, true, true, &rng);
    packed_open_model(&p);
    for (uint32_t k = 0; k < p.m.value_count; k++) p.bytes[k] = 1 + t_rng_below(&rng, 1000);
    const uint64_t apart = packed_lay_out(&p, nesting(TIDE_GRAPH_SMALLEST, false)).bytes;
    for (uint32_t k = 0; k < p.m.value_count; k++) {  // leave out what is not managed then
      if (p.placed[k] == 0) p.bytes[k] = 0;
    }

    T_LE(packed_lay_out(&p, nesting(TIDE_GRAPH_SMALLEST, true)).bytes, apart);
    packed_check(&p);

    packed_close(&p);
  }
}

// ---------------------------------------------------------------------------------------------------
// Sizes

PACKED_TEST(test_graph_layout__values_without_bytes_get_no_place, assigned_graphs[0]) {
  packed_size(p, "c", 0);
  for (size_t i = 0; i < ALGORITHMS; i++) {
    const tide_graph_layout_info info = packed_lay_out(p, trial_with(all_algorithms[i], 64));
    packed_check(p);
    T_EQ(packed_place(p, "c").group, TIDE_GRAPH_NONE);
    T_EQ(packed_place(p, "c").role, TIDE_ROLE_MANAGED);
    T_EQ(info.managed, 3);
  }
}

T_TEST(test_graph_layout__a_graph_without_bytes_has_an_empty_arena) {
  static packed p;
  packed_open(&p, assigned_graphs[0]);
  memset(p.bytes, 0, sizeof p.bytes);
  for (size_t i = 0; i < ALGORITHMS; i++) {
    const tide_graph_layout_info info = packed_lay_out(&p, trial_with(all_algorithms[i], 64));
    T_EQ(info.bytes, 0);
    T_EQ(info.lower_bound, 0);
    T_EQ(info.groups, 0);
    T_EQ(info.managed, 0);
    T_EQ(info.reused, 0);
  }
  packed_close(&p);
}

PACKED_TEST(test_graph_layout__sizes_and_offsets_are_multiples_of_the_alignment, assigned_graphs[0]) {
  packed_size(p, "b", 65);
  packed_size(p, "c", 1);
  packed_size(p, "d", 64);
  for (uint64_t alignment = 1; alignment <= 4096; alignment *= 4) {
    for (size_t i = 0; i < ALGORITHMS; i++) {
      (void)packed_lay_out(p, trial_with(all_algorithms[i], alignment));
      packed_check(p);
      T_EQ(packed_place(p, "b").bytes % alignment, 0);
      T_EQ(p->info.bytes % alignment, 0);
    }
  }
}

PACKED_TEST(test_graph_layout__sums_beyond_the_limit_are_refused, assigned_graphs[0]) {
  tide_graph_layout* layout = NULL;
  const tide_graph_options options = trial_defaults();
  const uint64_t huge[] = { (uint64_t)1 << 61, (uint64_t)1 << 62, UINT64_MAX, UINT64_MAX - 62 };

  for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
    packed_size(p, "b", huge[i]);
    packed_size(p, "c", (uint64_t)1 << 61);
    T_STATUS(tide_graph_layout_new(p->graph, &options, p->bytes, p->m.value_count, &layout),
             TIDE_ERR_ARGUMENT);
    T_PTR_EQ(layout, NULL);
  }
  packed_size(p, "b", (uint64_t)1 << 60);
  packed_size(p, "c", (uint64_t)1 << 60);
  T_LE((uint64_t)1 << 61, packed_lay_out(p, options).bytes);
}

PACKED_TEST(test_graph_layout__places_of_numbers_that_are_no_values_are_none, assigned_graphs[0]) {
  (void)packed_lay_out(p, trial_defaults());

  T_EQ(tide_graph_layout_place(p->layout, p->m.value_count).group, TIDE_GRAPH_NONE);
  T_EQ(tide_graph_layout_place(p->layout, TIDE_GRAPH_NONE).group, TIDE_GRAPH_NONE);
  T_EQ(tide_graph_layout_place(NULL, 0).group, TIDE_GRAPH_NONE);
  T_EQ(tide_graph_layout_describe(NULL).bytes, 0);

  tide_graph_layout_free(NULL);
}

// ---------------------------------------------------------------------------------------------------
// Options

T_TEST(test_graph_layout__algorithms_have_names) {
  T_STR_EQ(tide_graph_algorithm_name(TIDE_GRAPH_SMALLEST), "smallest");
  T_STR_EQ(tide_graph_algorithm_name(TIDE_GRAPH_LIFO_GROUPS), "lifo");
  T_STR_EQ(tide_graph_algorithm_name(TIDE_GRAPH_APART), "apart");
  T_STR_EQ(tide_graph_algorithm_name(TIDE_GRAPH_ALGORITHM_COUNT), "unknown");
  T_STR_EQ(tide_graph_algorithm_name((tide_graph_algorithm)-1), "unknown");
}

static void expect_options_refused(tide_graph_options options, int line) {
  static packed p;
  tide_graph_layout* layout = NULL;
  tide_planner* planner = NULL;
  packed_open(&p, assigned_graphs[0]);
  const tide_status status = tide_graph_layout_new(p.graph, &options, p.bytes, p.m.value_count, &layout);
  if (status != TIDE_ERR_ARGUMENT) t_fail(__FILE__, line, "a layout: %s", tide_status_name(status));
  const tide_status other = tide_planner_new(p.graph, &options, &planner);
  if (other != TIDE_ERR_ARGUMENT) t_fail(__FILE__, line, "a planner: %s", tide_status_name(other));
  T_PTR_EQ(layout, NULL);
  T_PTR_EQ(planner, NULL);
  packed_close(&p);
}

#define REFUSED(field, wrong)                       \
  do {                                              \
    tide_graph_options options_ = trial_defaults(); \
    options_.field = wrong;                         \
    expect_options_refused(options_, __LINE__);     \
  } while (0)

T_TEST(test_graph_layout__options_that_make_no_sense_are_refused) {
  REFUSED(size, 0);
  REFUSED(size, sizeof(tide_graph_options) + 64);
  REFUSED(algorithm, TIDE_GRAPH_ALGORITHM_COUNT);
  REFUSED(algorithm, (tide_graph_algorithm)-1);
  REFUSED(alignment, 0);
  REFUSED(alignment, 48);
  REFUSED(waste, -0.5);
  REFUSED(waste, NAN);
  REFUSED(memory.alloc, table_alloc);
  REFUSED(memory.release, table_release);
}

T_TEST(test_graph_layout__without_nodes_that_write_out_nothing_else_can_be_asked_for) {
  tide_graph_options options = trial_defaults();
  options.writes_out = false;
  expect_options_refused(options, __LINE__);
  options.shares = false;
  options.manages_outputs = true;
  expect_options_refused(options, __LINE__);
  options = trial_defaults();
  options.manages_direct_outputs = true;
  expect_options_refused(options, __LINE__);
}

T_TEST(test_graph_layout__without_nodes_that_write_out_nothing_is_managed) {
  static packed p;
  tide_graph_options options = trial_defaults();
  options.writes_out = false;
  options.shares = false;
  packed_open(&p, assigned_graphs[0]);

  const tide_graph_layout_info info = packed_lay_out(&p, options);

  T_EQ(info.managed, 0);
  T_EQ(info.bytes, 0);
  T_EQ(packed_place(&p, "b").role, TIDE_ROLE_UNMANAGED);
  packed_close(&p);
}

PACKED_TEST(test_graph_layout__arguments_that_make_no_sense_are_refused, assigned_graphs[0]) {
  tide_graph_layout* layout = NULL;
  const uint32_t count = p->m.value_count;

  T_STATUS(tide_graph_layout_new(NULL, NULL, p->bytes, count, &layout), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_layout_new(p->graph, NULL, NULL, count, &layout), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_layout_new(p->graph, NULL, p->bytes, count - 1, &layout), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_layout_new(p->graph, NULL, p->bytes, count + 1, &layout), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_layout_new(p->graph, NULL, p->bytes, count, NULL), TIDE_ERR_ARGUMENT);
}

T_TEST(test_graph_layout__a_graph_that_is_not_sealed_has_no_layout) {
  tide_graph* graph = NULL;
  tide_graph_layout* layout = NULL;
  tide_planner* planner = NULL;
  const uint64_t bytes = 0;
  T_OK(tide_graph_new(NULL, &graph));

  T_STATUS(tide_graph_layout_new(graph, NULL, &bytes, 0, &layout), TIDE_ERR_STATE);
  T_STATUS(tide_planner_new(graph, NULL, &planner), TIDE_ERR_STATE);

  tide_graph_free(graph);
}

// ---------------------------------------------------------------------------------------------------
// Random graphs

static void size_at_random(packed* p, uint64_t most, t_rng* rng) {
  for (uint32_t i = 0; i < p->m.value_count; i++) p->bytes[i] = 1 + t_rng_below(rng, most);
}

T_TEST(test_graph_layout__random_layouts_are_sound) {
  for (size_t i = 0; i < t_scaled(T_HAS_SANITIZER ? 40 : 200); i++) {
    static packed p;
    uint64_t least = UINT64_MAX;
    t_rng rng = t_rng_new(i);
    random_make(&p.m, 4 + (uint32_t)t_rng_below(&rng, 50), i % 4 != 0, i % 3 != 0, &rng);
    packed_open_model(&p);
    size_at_random(&p, i % 2 == 0 ? 4 : 1000, &rng);
    for (size_t k = ALGORITHMS; k-- > 0;) {
      tide_graph_options options = trial_with(all_algorithms[k], 1);
      options.plan_nodes = 2000;
      (void)packed_lay_out(&p, options);
      packed_check(&p);
      if (all_algorithms[k] == TIDE_GRAPH_SMALLEST) T_LE(p.info.bytes, least);
      if (p.info.bytes < least) least = p.info.bytes;
    }
    packed_close(&p);
  }
}

static void expect_lifo_as_oracle(packed* p, const oracle* o) {
  oracle_groups groups;
  (void)packed_lay_out(p, trial_with(TIDE_GRAPH_LIFO_GROUPS, 1));
  oracle_lifo(o, p->placed, &groups);
  T_EQ(p->info.bytes, oracle_total(&groups));
  T_EQ(p->info.groups, groups.count);
  for (uint32_t i = 0; i < p->m.value_count; i++) {
    for (uint32_t k = 0; k < i; k++) {
      if (p->placed[i] == 0 || p->placed[k] == 0) continue;
      const bool is_one = tide_graph_layout_place(p->layout, i).group ==
                          tide_graph_layout_place(p->layout, k).group;
      T_EQ(is_one, groups.of[i] == groups.of[k]);
    }
  }
}

T_TEST(test_graph_layout__groups_and_offsets_agree_with_the_oracle) {
  for (size_t i = 0; i < t_scaled(T_HAS_SANITIZER ? 60 : 400); i++) {
    static packed p;
    static oracle o;
    uint64_t offsets[MODEL_VALUES] = { 0 };
    t_rng rng = t_rng_new(1000 + i);
    random_make(&p.m, 4 + (uint32_t)t_rng_below(&rng, 50), i % 4 != 0, i % 3 != 0, &rng);
    packed_open_model(&p);
    size_at_random(&p, i % 2 == 0 ? 4 : 1000, &rng);
    oracle_init(&o, &p.m);

    expect_lifo_as_oracle(&p, &o);
    (void)packed_lay_out(&p, trial_with(TIDE_GRAPH_BY_SIZE, 1));
    T_EQ(p.info.bytes, oracle_by_size(&o, p.placed, offsets));
    for (uint32_t k = 0; k < p.m.value_count; k++) {
      if (p.placed[k] != 0) T_EQ(tide_graph_layout_place(p.layout, k).offset, offsets[k]);
    }

    packed_close(&p);
  }
}

// On chains of 120 nodes with sizes of all magnitudes, groups need twice what is needed.
T_TEST(test_graph_layout__chains_need_hardly_more_than_lives_at_once) {
  double lifo = 0;
  double smallest = 0;
  const size_t rounds = T_HAS_SANITIZER ? 5 : 30;
  for (size_t i = 0; i < rounds; i++) {
    static packed p;
    t_rng rng = t_rng_new(i);
    random_chain(&p.m, 120, &rng);
    packed_open_model(&p);
    for (uint32_t k = 0; k < p.m.value_count; k++)
      p.bytes[k] = 1 + t_rng_below(&rng, 1 << t_rng_below(&rng, 16));
    tide_graph_options options = trial_with(TIDE_GRAPH_SMALLEST, 1);
    options.plan_nodes = 20000;
    (void)packed_lay_out(&p, options);
    packed_check(&p);
    smallest += (double)p.info.bytes / (double)p.info.lower_bound;
    lifo += (double)packed_lay_out(&p, trial_with(TIDE_GRAPH_LIFO_GROUPS, 1)).bytes /
            (double)p.info.lower_bound;
    packed_close(&p);
  }
  T_CHECK(lifo / (double)rounds > 1.5);
  T_CHECK(smallest / (double)rounds < 1.02);
}

T_TEST(test_graph_layout__the_same_graph_has_the_same_layout) {
  static packed p;
  static packed q;
  t_rng rng = t_rng_new(0);
  random_make(&p.m, 60, true, true, &rng);
  packed_open_model(&p);
  size_at_random(&p, 1000, &rng);
  q = p;
  packed_open_model(&q);
  memcpy(q.bytes, p.bytes, sizeof p.bytes);

  for (size_t k = 0; k < ALGORITHMS; k++) {
    (void)packed_lay_out(&p, trial_with(all_algorithms[k], 64));
    (void)packed_lay_out(&q, trial_with(all_algorithms[k], 64));
    for (uint32_t i = 0; i < p.m.value_count; i++) {
      T_EQ(tide_graph_layout_place(p.layout, i).offset, tide_graph_layout_place(q.layout, i).offset);
      T_EQ(tide_graph_layout_place(p.layout, i).group, tide_graph_layout_place(q.layout, i).group);
    }
  }
  packed_close(&p);
  packed_close(&q);
}

// ---------------------------------------------------------------------------------------------------
// Every set of up to four values in four nodes, with sizes of 1 to 3, against all orders

#define SPANS 10  // from each of four nodes to each that does not come before it

typedef struct small_value {
  model_span span;
  uint64_t bytes;
} small_value;

static small_value small_value_of(uint32_t number) {
  static const model_span spans[SPANS] = { { 0, 0 }, { 0, 1 }, { 0, 2 }, { 0, 3 }, { 1, 1 },
                                           { 1, 2 }, { 1, 3 }, { 2, 2 }, { 2, 3 }, { 3, 3 } };
  return (small_value){ spans[number % SPANS], 1 + number / SPANS };
}

static void expect_optimum(const uint32_t* numbers, uint32_t count) {
  static packed p;
  static oracle o;
  model_span spans[4];
  uint64_t bytes[4];
  for (uint32_t i = 0; i < count; i++) {
    spans[i] = small_value_of(numbers[i]).span;
    bytes[i] = small_value_of(numbers[i]).bytes;
  }
  open_spans(&p, spans, bytes, count);
  p.layout = NULL;
  oracle_init(&o, &p.m);
  (void)packed_lay_out(&p, trial_with(TIDE_GRAPH_SMALLEST, 1));
  const char* const fault = packed_fault(&p, &o);
  if (fault != NULL || p.info.bytes != oracle_optimum(&o, p.placed)) {
    model_print(stderr, &p.m);
    T_FAIL("%" PRIu64 " bytes, %s", p.info.bytes, fault == NULL ? "and not the optimum" : fault);
  }
  packed_close(&p);
}

// The numbers never fall, so that each set is met once.
static void try_all(uint32_t* numbers, uint32_t count, uint32_t at, size_t* turn, size_t stride) {
  if (at == count) {
    if ((*turn)++ % stride == 0) expect_optimum(numbers, count);
    return;
  }
  for (uint32_t i = at == 0 ? 0 : numbers[at - 1]; i < 3 * SPANS; i++) {
    numbers[at] = i;
    try_all(numbers, count, at + 1, turn, stride);
  }
}

T_TEST(test_graph_layout__small_graphs_get_the_smallest_arena_there_is) {
  uint32_t numbers[4] = { 0 };
  for (uint32_t count = 1; count <= 4; count++) {
    size_t turn = t_seed() % 16;
    try_all(numbers, count, 0, &turn, count == 4 && T_HAS_SANITIZER ? 16 : 1);
  }
}

// ---------------------------------------------------------------------------------------------------
// A heap that fails

PACKED_TEST(test_graph_layout__a_heap_that_fails_at_any_call_leaves_nothing, nested_graph) {
  bool has_failed = true;
  size_nested(p);

  for (size_t k = 0; k < ALGORITHMS; k++) {
    has_failed = true;
    for (size_t fail_at = 0; has_failed; fail_at++) {
      counting_heap heap;
      tide_graph_layout* layout = NULL;
      tide_graph_options options = trial_defaults();
      counting_heap_init(&heap, fail_at, false);
      options.algorithm = all_algorithms[k];
      options.heap = &heap.heap;
      const tide_status status =
          tide_graph_layout_new(p->graph, &options, p->bytes, p->m.value_count, &layout);
      has_failed = heap.has_failed;
      T_EQ(status, has_failed ? TIDE_ERR_NO_MEMORY : TIDE_OK);
      tide_graph_layout_free(layout);
      T_EQ(heap.outstanding, 0);
    }
  }
}

// ---------------------------------------------------------------------------------------------------
// Custom layouts

#define OWN_TEXT "in x; a = write(x); b = write(a); c = write(b); d = write(c a); out d;"

typedef struct own_answer {
  uint64_t offsets[8];  // in the order of time
  tide_status status;
  size_t count;
  tide_graph_lodging values[8];  // as they were asked for
} own_answer;

static tide_status own_lay_out(void* user, const tide_graph_lodging* values, size_t count,
                               uint64_t* offsets) {
  own_answer* const answer = user;
  T_LE(count, 8);
  answer->count = count;
  memcpy(answer->values, values, count * sizeof *values);
  memcpy(offsets, answer->offsets, count * sizeof *offsets);
  return answer->status;
}

static tide_graph_options own_options(own_answer* answer, uint64_t alignment) {
  tide_graph_options options = trial_with(TIDE_GRAPH_SMALLEST, alignment);
  options.on_layout = own_lay_out;
  options.user = answer;
  return options;
}

PACKED_TEST(test_graph_layout__of_one_s_own_is_taken, OWN_TEXT) {
  own_answer answer = { .offsets = { 128, 0, 64 } };  // a lives until d, b until c
  for (size_t i = 0; i < MODEL_VALUES; i++) p->bytes[i] = 50;

  (void)packed_lay_out(p, own_options(&answer, 64));

  packed_check(p);
  T_CHECK(p->info.is_own);
  T_EQ(p->info.bytes, 192);
  T_EQ(answer.count, 3);
  T_EQ(packed_place(p, "a").offset, 128);
  T_EQ(packed_place(p, "b").offset, 0);
  T_EQ(packed_place(p, "c").offset, 64);
  for (size_t i = 0; i < 3; i++) T_EQ(answer.values[i].bytes, 64);
  T_EQ(answer.values[0].value, model_id(&p->m, "a"));
  T_LT(answer.values[0].first, answer.values[1].first);
  T_LT(answer.values[1].last, answer.values[0].last);
}

static void expect_refused(packed* p, own_answer* answer, tide_status status, const char* text) {
  tide_graph_layout* layout = NULL;
  const tide_graph_options options = own_options(answer, 64);
  T_STATUS(tide_graph_layout_new(p->graph, &options, p->bytes, p->m.value_count, &layout), status);
  T_PTR_EQ(layout, NULL);
  if (strstr(tide_last_error()->text, text) == NULL)
    T_FAIL("'%s' does not tell of '%s'", tide_last_error()->text, text);
}

PACKED_TEST(test_graph_layout__of_one_s_own_that_is_wrong_names_the_values, OWN_TEXT) {
  char text[100];
  const uint32_t a = model_id(&p->m, "a");
  const uint32_t b = model_id(&p->m, "b");

  own_answer answer = { .offsets = { 64, 64, 0 } };
  (void)snprintf(text, sizeof text, "the values %u at 64 and %u overlap", b, a);
  expect_refused(p, &answer, TIDE_ERR_ARGUMENT, text);

  answer = (own_answer){ .offsets = { 0, 72, 256 } };
  (void)snprintf(text, sizeof text, "the offset 72 of value %u is not a multiple", b);
  expect_refused(p, &answer, TIDE_ERR_ARGUMENT, text);

  answer = (own_answer){ .offsets = { UINT64_MAX - 63, 64, 0 } };
  (void)snprintf(text, sizeof text, "value %u", a);
  expect_refused(p, &answer, TIDE_ERR_ARGUMENT, text);

  answer = (own_answer){ .offsets = { 0, 64, 128 }, .status = TIDE_ERR_LIMIT };
  expect_refused(p, &answer, TIDE_ERR_LIMIT, "");
}

T_TEST(test_graph_layout__of_one_s_own_places_random_graphs) {
  for (size_t round = 0; round < t_scaled(100); round++) {
    static packed p;
    t_rng rng = t_rng_new(9000 + round);
    random_make(&p.m, 2 + (uint32_t)t_rng_below(&rng, 40), true, t_rng_below(&rng, 2) == 0, &rng);
    packed_open_model(&p);
    for (uint32_t i = 0; i < p.m.value_count; i++) p.bytes[i] = t_rng_below(&rng, 500);
    tide_graph_options options = trial_with(TIDE_GRAPH_SMALLEST, 16);
    options.on_layout = model_first_fit;

    (void)packed_lay_out(&p, options);

    packed_check(&p);
    T_LE(p.info.lower_bound, p.info.bytes);
    packed_close(&p);
  }
}
