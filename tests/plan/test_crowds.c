// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Many buffers in shapes that tempt a solver to compare all pairs. It must end soon after its time or node
// limit, with a valid plan or a proof that there is none.
#include "plan/packing.h"
#include "plan/yardstick.h"

#define CROWD_SECONDS 0.5

typedef struct crowd {
  tide_plan_problem problem;
  tide_plan_buffer* buffers;
  tide_plan_gap* gaps;
  size_t count;
  t_rng rng;
  bool is_impossible;
  uint64_t optimum;  // 0: not known
} crowd;

static void crowd_alike(crowd* c, size_t i) {
  (void)i;
  c->optimum = c->count * 64;
}

static void crowd_nested(crowd* c, size_t i) {
  c->buffers[i].lower = i;
  c->buffers[i].upper = 2 * c->count - i;
  c->optimum = c->count * 64;
}

static void crowd_stairs(crowd* c, size_t i) {
  c->buffers[i].lower = i;
  c->buffers[i].upper = i + 100;
  c->buffers[i].bytes = 1 + t_rng_below(&c->rng, 1000);
}

static void crowd_scattered(crowd* c, size_t i) {
  c->buffers[i].lower = t_rng_below(&c->rng, c->count);
  c->buffers[i].upper = c->buffers[i].lower + 1 + t_rng_below(&c->rng, 1000);
  c->buffers[i].bytes = 1 + t_rng_below(&c->rng, 100000);
}

static void crowd_shared(crowd* c, size_t i) {
  c->buffers[i].alias = 1;
  c->buffers[i].lower = i;
  c->buffers[i].upper = i + 2;
  c->optimum = 64;
}

// One buffer with all the gaps, and the others each in one of them.
static void crowd_in_gaps(crowd* c, size_t i) {
  c->gaps[i] = (tide_plan_gap){ 2 * i, 2 * i + 1, 0, 0 };
  c->buffers[i].lower = i == 0 ? 0 : 2 * i;
  c->buffers[i].upper = i == 0 ? 2 * c->count : 2 * i + 1;
  c->buffers[i].gaps = i == 0 ? c->gaps : NULL;
  c->buffers[i].gap_count = i == 0 ? c->count : 0;
  c->optimum = 64;
}

static void crowd_windows(crowd* c, size_t i) {
  c->gaps[i] = (tide_plan_gap){ i + 10, i + 40, t_rng_below(&c->rng, 10), 20 + t_rng_below(&c->rng, 30) };
  c->buffers[i].lower = i;
  c->buffers[i].upper = i + 50;
  c->buffers[i].gaps = &c->gaps[i];
  c->buffers[i].gap_count = 1;
}

static void crowd_fixed(crowd* c, size_t i) {
  c->buffers[i].offset = i * 64;
  c->optimum = c->count * 64;
}

static void crowd_fixed_in_one_place(crowd* c, size_t i) {
  c->buffers[i].offset = 0;
  c->is_impossible = true;
}

static void crowd_some_fixed(crowd* c, size_t i) {
  crowd_scattered(c, i);
  if (i % 100 == 0) c->buffers[i].offset = i * 1000;
}

static void crowd_hinted(crowd* c, size_t i) {
  crowd_scattered(c, i);
  c->buffers[i].hint = t_rng_below(&c->rng, 100000);
}

static void crowd_huge(crowd* c, size_t i) {
  c->buffers[i].bytes = TIDE_PLAN_MAX_BYTES - i;
  c->is_impossible = true;
}

static const struct {
  const char* name;
  void (*make)(crowd* c, size_t i);
} shapes[] = {
  { "alike", crowd_alike },
  { "nested", crowd_nested },
  { "stairs", crowd_stairs },
  { "scattered", crowd_scattered },
  { "shared", crowd_shared },
  { "in gaps", crowd_in_gaps },
  { "windows", crowd_windows },
  { "fixed", crowd_fixed },
  { "fixed in one place", crowd_fixed_in_one_place },
  { "some fixed", crowd_some_fixed },
  { "hinted", crowd_hinted },
  { "huge", crowd_huge },
};

static const char* const shape_names[] = { "alike",   "nested",  "stairs", "scattered",          "shared",
                                           "in gaps", "windows", "fixed",  "fixed in one place", "some fixed",
                                           "hinted",  "huge",    NULL };

static void crowd_new(crowd* c, size_t count) {
  *c = (crowd){ .count = count, .rng = t_rng_new(0) };
  c->buffers = calloc(count, sizeof *c->buffers);
  c->gaps = calloc(count, sizeof *c->gaps);
  T_CHECK(c->buffers != NULL && c->gaps != NULL);
  for (size_t i = 0; i < count; i++) {
    c->buffers[i] = (tide_plan_buffer){ .upper = 1000, .bytes = 64, TIDE_PLAN_FREELY };
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
      if (strcmp(shapes[k].name, t_variant()) == 0) shapes[k].make(c, i);
    }
  }
  c->problem = (tide_plan_problem){ .buffers = c->buffers, .count = count };
}

// The optimum is found within the limit. On a busy computer the solver may have got too little of that time:
// then it must need no more processor time than the limit.
static void expect_optimum(const crowd* c, uint64_t peak) {
  tide_plan_options options = TIDE_PLAN_OPTIONS_INIT;
  tide_plan* plan = NULL;
  if (peak == c->optimum) return;
  options.seconds = 60 * CROWD_SECONDS;
  const uint64_t begin = yardstick_now_ns();

  T_OK(tide_plan_solve(&c->problem, &options, &plan));

  const double processor_seconds = (double)(yardstick_now_ns() - begin) * 1e-9;
  T_EQ(tide_plan_result(plan).peak, c->optimum);
  T_CHECK(processor_seconds < CROWD_SECONDS);
  tide_plan_free(plan);
}

static void expect_in_time(const crowd* c, bool keeps_hints) {
  tide_plan_options options = TIDE_PLAN_OPTIONS_INIT;
  tide_plan* plan = NULL;
  options.seconds = CROWD_SECONDS;
  options.keeps_hints = keeps_hints;
  const uint64_t begin = t_processor_ns();

  T_OK(tide_plan_solve(&c->problem, &options, &plan));

  const uint64_t ms = (t_processor_ns() - begin) / 1000000u;
  const tide_plan_outcome result = tide_plan_result(plan);
  T_LT(ms, 500 + (T_HAS_SANITIZER ? 20 : 4) * (500 + c->count / 20));  // one pass may have to be ended
  if (c->is_impossible) T_EQ(result.verdict, TIDE_PLAN_INFEASIBLE);
  else packing_check(&c->problem, plan);
  if (c->optimum != 0 && !keeps_hints) expect_optimum(c, result.peak);
  (void)printf("     %zu: %s, %" PRIu64 " for %" PRIu64 " in %" PRIu64 " ms\n", c->count,
               tide_plan_verdict_name(result.verdict), result.peak, result.lower_bound, ms);
  tide_plan_free(plan);
}

T_TEST_OVER(test_crowds__end_soon, shape_names) {
  crowd c;
  crowd_new(&c, t_scaled(T_HAS_SANITIZER ? 2000 : 20000));

  expect_in_time(&c, false);
  if (strcmp(t_variant(), "hinted") == 0) expect_in_time(&c, true);

  free(c.buffers);
  free(c.gaps);
}

// ---------------------------------------------------------------------------------------------------
// Nodes

// Copies of few lifetimes, of which some are fixed one above the other: at each instant hundreds of free
// buffers could lie lowest.
static void crowd_of_copies(crowd* c) {
  uint64_t top = 0;
  for (size_t i = 0; i < c->count; i++) {
    const uint64_t kind = t_rng_below(&c->rng, 5);
    tide_plan_buffer* const b = &c->buffers[i];
    b->lower = 90 * kind;
    b->upper = b->lower + 100 + 70 * (kind % 3);
    b->bytes = 1000 + 777 * kind;
    if (t_rng_below(&c->rng, 4) > 0) continue;
    b->offset = top;
    top += b->bytes;
  }
}

// Half of the buffers live all the time, half for a moment; some are fixed.
static void crowd_of_teeth(crowd* c) {
  uint64_t top = 0;
  for (size_t i = 0; i < c->count; i++) {
    tide_plan_buffer* const b = &c->buffers[i];
    const bool is_tooth = i % 2 == 1;
    b->lower = is_tooth ? 5 * i : 0;
    b->upper = is_tooth ? 5 * i + 9 : 10 * c->count;
    b->bytes = 1 + t_rng_below(&c->rng, 1000);
    if (t_rng_below(&c->rng, 4) > 0) continue;
    b->offset = top;
    top += b->bytes;
  }
}

// Hints at which nothing can lie, since all of it lives together.
static void crowd_of_hints(crowd* c) {
  for (size_t i = 0; i < c->count; i++) {
    c->buffers[i].bytes = 1 + t_rng_below(&c->rng, 1000);
    c->buffers[i].hint = t_rng_below(&c->rng, 1000);
  }
}

static const struct {
  const char* name;
  void (*make)(crowd* c);
} long_shapes[] = { { "copies", crowd_of_copies }, { "teeth", crowd_of_teeth }, { "hints", crowd_of_hints } };

static const char* const long_names[] = { "copies", "teeth", "hints", NULL };

// Nodes among many buffers are expensive, so a node limit counts the elements that they visit. Before, one
// of these nodes took milliseconds, and four times as long with twice the buffers.
T_TEST_OVER(test_crowds__a_limit_of_nodes_bounds_the_work, long_names) {
  t_one_variant(long_names);
  for (size_t count = 500; count <= (T_HAS_SANITIZER ? 1000 : 2000); count *= 2) {
    for (uint64_t nodes = 1; nodes <= 4 * count; nodes += 4 * count - 1) {
      crowd c;
      crowd_new(&c, count);
      for (size_t k = 0; k < sizeof long_shapes / sizeof *long_shapes; k++)
        if (strcmp(long_shapes[k].name, t_variant()) == 0) long_shapes[k].make(&c);
      tide_plan_options options = TIDE_PLAN_OPTIONS_INIT;
      tide_plan* plan = NULL;
      options.seconds = 0;
      options.nodes = nodes;
      options.keeps_hints = true;
      const uint64_t begin = yardstick_now_ns();

      T_OK(tide_plan_solve(&c.problem, &options, &plan));

      const uint64_t ns = yardstick_now_ns() - begin;
      const uint64_t allowance = yardstick_allowance_ns(count, nodes);
      (void)printf("     %zu buffers, %" PRIu64 " nodes: %" PRIu64 " ms of %" PRIu64 "\n", count, nodes,
                   ns / 1000000u, allowance / 1000000u);
      T_LT(ns, allowance);
      packing_check(&c.problem, plan);
      tide_plan_free(plan);
      free(c.buffers);
      free(c.gaps);
    }
  }
}
