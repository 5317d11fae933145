// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What plans cost, in nodes: an optimisation that has switched itself off changes no plan, only the work. All
// problems are fixed, and the solver has one thread and no clock. So the figures depend on neither the
// computer nor the seed of the tests. If a rule of the solver changes on purpose, write down the figures that
// the failing tests print.
#include "base/heap.h"
#include "plan/neighbourhood.h"
#include "plan/packing.h"
#include "plan/rehearsal.h"
#include "plan/search_state.h"

#define WORK_MOST 300000u  // nodes, so that a solver that has lost its way ends

static void expect_work(const char* name, uint64_t got, uint64_t recorded) {
  if (10 * got < 11 * recorded && 10 * got > 9 * recorded) return;
  T_FAIL("%s took %" PRIu64 " nodes; recorded: %" PRIu64, name, got, recorded);
}

// ---------------------------------------------------------------------------------------------------
// Problems

// Rings of test_optimum.c over one another: in each, two pairs must lie side by side in two ways at once,
// which no plan can do. So all plans of the height of the load must be tried.
static void rings_make(packing* p, t_rng* rng) {
  for (size_t i = 0; i < p->problem.count; i += 8) {
    const uint64_t a = 1 + t_rng_below(rng, 20);
    const uint64_t b = 1 + t_rng_below(rng, 20);
    const uint64_t c = 1 + t_rng_below(rng, 20);
    const uint64_t d = 1 + t_rng_below(rng, 20);
    const uint64_t ring[8][3] = { { 0, 1, a + c }, { 0, 2, b + d }, { 1, 3, a },     { 2, 3, b },
                                  { 1, 4, c },     { 2, 4, d },     { 3, 5, a + b }, { 4, 5, c + d } };
    for (size_t k = 0; k < 8; k++) {
      p->buffers[i + k] = (tide_plan_buffer){
        .lower = ring[k][0], .upper = ring[k][1], .bytes = ring[k][2], TIDE_PLAN_FREELY
      };
    }
  }
}

typedef struct work_row {
  const char* name;
  size_t count;       // of buffers
  uint64_t instants;  // 0: rings
  uint64_t bytes;
  size_t dropped;  // one in so many; 0: none
  size_t fixed;    // every so many; 0: none
  uint64_t seed;
  uint64_t nodes;  // recorded, of the whole solver or the part that it is for
} work_row;

enum { RINGS, OTHER_RINGS, PACKING, THOUSAND, FIXED, LOOSE, REHEARSED, REHEARSED_LONGER, ROWS };

static const work_row rows[ROWS] = {
  [RINGS] = { "rings", .count = 24, .seed = 4, .nodes = 24867 },
  [OTHER_RINGS] = { "other rings", .count = 24, .seed = 7, .nodes = 8885 },
  [PACKING] = { "packing", 100, 40, 1000, .seed = 3, .nodes = 58186 },
  [THOUSAND] = { "thousand", 1000, 250, 100000, .dropped = 6, .seed = 5, .nodes = 18989 },
  [FIXED] = { "fixed", 4000, 2000, 100000, .dropped = 3, .fixed = 400, .seed = 7, .nodes = 24274 },
  [LOOSE] = { "loose", 100, 40, 1000, .dropped = 20, .seed = 0 },
  [REHEARSED] = { "rehearsed", 5000, 2500, 100000, .dropped = 3, .seed = 3, .nodes = 3180 },
  [REHEARSED_LONGER] = { "rehearsed longer", 6000, 3000, 100000, .dropped = 4, .seed = 49, .nodes = 1590 },
};
static const char* const row_names[] = { "rings", "other rings", "packing", "thousand", "fixed", NULL };

static const work_row* row_of(const char* name) {
  size_t i = 0;
  while (strcmp(rows[i].name, name) != 0) i++;
  return &rows[i];
}

static void row_make(const work_row* row, packing* p) {
  t_rng rng = t_rng_of(row->seed, row->count);
  packing_new(p, row->count, row->instants != 0 ? row->instants : 8, row->bytes != 0 ? row->bytes : 8, &rng);
  if (row->instants == 0) rings_make(p, &rng);
  if (row->dropped != 0) packing_drop(p, row->dropped, &rng);
  for (size_t i = 0; row->fixed != 0 && i < p->problem.count; i += row->fixed) {
    p->buffers[i].offset = p->offsets[i];
  }
}

static tide_plan_outcome solve(const tide_plan_problem* problem) {
  tide_plan_options options = TIDE_PLAN_OPTIONS_INIT;
  tide_plan* plan = NULL;
  options.seconds = 0;
  options.nodes = WORK_MOST;
  T_OK(tide_plan_solve(problem, &options, &plan));
  const tide_plan_outcome result = tide_plan_result(plan);
  tide_plan_free(plan);
  return result;
}

// All of them end with a proof, so that the nodes say how soon.
T_TEST_OVER(test_plan_work__is_as_recorded, row_names) {
  const work_row* const row = row_of(t_variant());
  packing p;
  row_make(row, &p);
  const tide_plan_outcome outcome = solve(&p.problem);
  expect_work(row->name, outcome.nodes, row->nodes);
  T_EQ(outcome.verdict, TIDE_PLAN_OPTIMAL);
  packing_free(&p);
}

// A limit of one to four nodes for each buffer pays for as many passes. Above the limit there is only the
// first pass of each part.
T_TEST(test_plan_work__first_passes_stay_within_the_limit) {
  tide_plan_options options = TIDE_PLAN_OPTIONS_INIT;
  uint64_t peak = UINT64_MAX;
  packing p;
  row_make(&rows[THOUSAND], &p);
  options.seconds = 0;
  for (uint64_t passes = 0; passes <= 4; passes++) {
    tide_plan* plan = NULL;
    options.nodes = passes * p.problem.count + 1;
    T_OK(tide_plan_solve(&p.problem, &options, &plan));
    const tide_plan_outcome outcome = tide_plan_result(plan);
    T_LE(outcome.nodes, (passes + 1) * p.problem.count);
    T_LE(outcome.peak, peak);
    peak = outcome.peak;
    tide_plan_free(plan);
  }
  packing_free(&p);
}

// Pools that hold all buffers by their sums, but not by their sizes: these are multiples of 6, and each pool
// has one byte more or less than that. Each distribution costs 512 visits for each buffer, so 32 of them cost
// a node for each.
T_TEST(test_plan_work__32_distributions_are_tried_at_random) {
  enum { BUFFERS = 64 };
  tide_plan_buffer buffers[BUFFERS];
  uint64_t capacities[2] = { 1, UINT64_MAX };  // the second is 1 less than a multiple of 6
  for (size_t i = 0; i < BUFFERS; i++) {
    buffers[i] = (tide_plan_buffer){ .upper = 1, .bytes = 6 + 6 * (i % 20), TIDE_PLAN_FREELY };
    buffers[i].pool = TIDE_PLAN_ANY_POOL;
    capacities[i % 2] += buffers[i].bytes;
  }
  const tide_plan_problem problem = { buffers, BUFFERS, capacities, 2 };
  const tide_plan_outcome outcome = solve(&problem);
  T_EQ(outcome.verdict, TIDE_PLAN_UNKNOWN);
  T_EQ(outcome.nodes, BUFFERS);
}

// ---------------------------------------------------------------------------------------------------
// One part of the solver

typedef struct workshop {
  packing packing;
  const tide_heap* heap;
  tide_plan_options options;
  tide__items items;
  tide__model model;
  tide__thread_pool threads;
  tide__budget budget;
} workshop;

static void workshop_open(workshop* w, const tide_plan_problem* problem) {
  uint32_t* const list = calloc(problem->count, sizeof *list);
  T_CHECK(list != NULL);
  for (uint32_t i = 0; i < problem->count; i++) list[i] = i;
  w->heap = tide__heap_or_system(NULL);
  w->options = (tide_plan_options)TIDE_PLAN_OPTIONS_INIT;
  w->options.seconds = 0;
  w->options.nodes = WORK_MOST;
  T_OK(tide__items_init(&w->items, problem, w->heap));
  T_OK(tide__model_init(&w->model, &w->items, list, problem->count, w->heap));
  tide__thread_pool_init(&w->threads, 1, w->heap);
  tide__budget_init(&w->budget, &w->options, problem->count);
  free(list);
}

static void workshop_open_row(workshop* w, const work_row* row) {
  row_make(row, &w->packing);
  workshop_open(w, &w->packing.problem);
}

static void workshop_close(workshop* w) {
  tide__thread_pool_fini(&w->threads);
  tide__model_fini(&w->model);
  tide__items_fini(&w->items);
  packing_free(&w->packing);
}

static void* refuse(void* user, size_t bytes, size_t alignment) {
  (void)user, (void)bytes, (void)alignment;
  return NULL;
}

// The nodes that show whether a problem fits below its load. A table without memory keeps nothing.
static uint64_t nodes_to_decide(const work_row* row, tide__search_rule rule, bool keeps_no_goods) {
  static const tide_heap none = { .alloc = refuse };
  const tide__search_order order = { 1.01f, 0, 0.01f, 0 };
  const tide__search_limit limit = { { WORK_MOST, UINT64_MAX / 2 }, UINT64_MAX };
  workshop w = { .heap = NULL };
  uint32_t boxes[100];
  tide__puzzle puzzle;
  tide__search* search = NULL;
  tide__effort spent = { 0, 0 };
  workshop_open_row(&w, row);
  for (uint32_t i = 0; i < w.model.count; i++) boxes[i] = i;
  const tide__puzzle_choice choice = {
    .boxes = boxes, .ceiling = INT64_MAX, .count = w.model.count, .last = w.model.sections
  };
  T_OK(tide__puzzle_init(&puzzle, &w.model, &choice, w.heap));
  T_OK(tide__search_new(&puzzle, 1, w.heap, &search));
  if (!keeps_no_goods) tide__nogoods_init(&search->nogoods, &none);
  const tide__watch watch = { &w.budget, NULL, 0 };
  const tide__search_answer answer =
      tide__search_run(search, w.model.lower_bound, rule, &order, &limit, &watch, &spent);
  if (keeps_no_goods) T_NE(answer, TIDE__SEARCH_STOPPED);
  tide__search_free(search);
  tide__puzzle_fini(&puzzle);
  workshop_close(&w);
  return spent.nodes;
}

T_TEST(test_plan_work__no_goods_save_nodes) {
  static const uint64_t recorded[][2] = { { 7583, 82633 }, { 2142, 67491 } };
  for (size_t i = RINGS; i <= OTHER_RINGS; i++) {
    const uint64_t with = nodes_to_decide(&rows[i], TIDE__SEARCH_WEIGHED, true);
    const uint64_t without = nodes_to_decide(&rows[i], TIDE__SEARCH_WEIGHED, false);
    expect_work(rows[i].name, with, recorded[i][0]);
    expect_work(rows[i].name, without, recorded[i][1]);
    T_LT(4 * with, without);
  }
}

// Branching on another valley gives the same answer, sooner or later.
T_TEST(test_plan_work__each_rule_of_the_search_is_as_recorded) {
  static const uint64_t recorded[] = {
    [TIDE__SEARCH_WEIGHED] = 13816,
    [TIDE__SEARCH_FEWEST] = 14185,
    [TIDE__SEARCH_TIGHTEST] = 1185,
    [TIDE__SEARCH_LOWEST] = 1181,
  };
  for (int rule = TIDE__SEARCH_WEIGHED; rule <= TIDE__SEARCH_LOWEST; rule++) {
    char name[20];
    (void)snprintf(name, sizeof name, "rule %d", rule);
    expect_work(name, nodes_to_decide(&rows[LOOSE], (tide__search_rule)rule, true), recorded[rule]);
  }
}

// The passes of a rehearsal until one reaches a height a little above the bound.
static void expect_rehearsal(const work_row* row, int64_t fraction) {
  workshop w = { .heap = NULL };
  workshop_open_row(&w, row);
  const tide__part* const part = &w.model.parts[0];
  tide__squeaky_wheel wheel;
  uint32_t section = 0;
  bool is_found = false;
  for (uint32_t i = 0; i < part->last_section; i++) {
    if (w.model.loads[i] > w.model.loads[section]) section = i;
  }
  T_OK(tide__squeaky_wheel_init(&wheel, &w.model, part, 0, w.heap));
  T_OK(tide__rehearse(&wheel, section, part->lower_bound + part->lower_bound / fraction, &w.threads,
                      &w.budget, &is_found));
  expect_work(row->name, w.budget.nodes, row->nodes);
  T_CHECK(is_found);
  tide__squeaky_wheel_fini(&wheel);
  workshop_close(&w);
}

// Loads of the part decide little in most problems. In these two, passes fail without them.
T_TEST(test_plan_work__rehearsals_know_the_loads_of_the_part) {
  expect_rehearsal(&rows[REHEARSED], 64);
  expect_rehearsal(&rows[REHEARSED_LONGER], 64);
}

// A tower of buffers that live at once. None can be lower, so what a step costs is looking at all of them and
// sorting them, four times.
T_TEST(test_plan_work__neighbourhoods_charge_for_what_they_look_at) {
  enum { BUFFERS = 100000 };
  workshop w = { .heap = NULL };
  tide__neighbourhood near;
  int64_t* const offsets = calloc(BUFFERS, sizeof *offsets);
  w.packing.buffers = calloc(BUFFERS, sizeof *w.packing.buffers);
  T_CHECK(offsets != NULL && w.packing.buffers != NULL);
  for (size_t i = 0; i < BUFFERS; i++) {
    w.packing.buffers[i] = (tide_plan_buffer){ .upper = 1, .bytes = 1 + i % 1000, TIDE_PLAN_FREELY };
  }
  const tide_plan_problem problem = { .buffers = w.packing.buffers, .count = BUFFERS };
  workshop_open(&w, &problem);
  int64_t height = 0;
  for (size_t i = 0; i < BUFFERS; height += w.model.boxes[i++].height) offsets[i] = height;
  T_OK(tide__neighbourhood_init(&near, &w.model, &w.model.parts[0], 0, w.heap));

  T_OK(tide__neighbourhood_step(&near, height - 1, offsets, &height, &w.threads, &w.budget));

  expect_work("a tower", w.budget.nodes, 474);
  tide__neighbourhood_fini(&near);
  workshop_close(&w);
  free(offsets);
}
