// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The solver against the oracle: all small allocation traces, random problems of each kind, and rings,
// small problems whose smallest peak exceeds the load of every instant. Also the oracle against itself.
#include "plan/outcome.h"

// The number of problems; in a long run `factor` times as many.
static size_t many(size_t everyday, size_t factor) {
  const bool is_long = t_scaled(100) >= 1000;
  if (T_HAS_SANITIZER) return t_scaled_least(everyday, 1000) / 10 + 1;
  return is_long ? factor * everyday : t_scaled(everyday);
}

// Ten million plain problems in a long run, in parts that each have their time.
#define PARTS_FACTOR 500
static const char* const parts[] = { "0", "1", "2", "3", "4", NULL };

// ---------------------------------------------------------------------------------------------------
// The oracle

static void expect_oracles_agree(const small_kind* kind, size_t count) {
  static oracle o;
  static small_problem p;
  t_rng rng = t_rng_new(0);
  size_t impossible = 0;
  for (size_t i = 0; i < count; i++) {
    small_random(&p, kind, &rng);
    oracle_init(&o, &p);
    T_CHECK(o.is_flat);
    const uint64_t by_orders = oracle_by_orders(&o, oracle_all(&o));
    const uint64_t by_offsets = oracle_by_offsets(&o, oracle_all(&o));
    impossible += by_offsets == ORACLE_NONE ? 1 : 0;
    if (by_orders == by_offsets) continue;
    small_print(&p);
    T_FAIL("%d by orders, %d by offsets", (int)by_orders, (int)by_offsets);
  }
  T_CHECK(kind->has_fixed == (impossible != 0));
}

T_TEST(test_optimum__oracles_agree) {
  const small_kind plain = { .buffers = 6, .instants = 8, .bytes = 4 };
  const small_kind rich = { .buffers = 4,
                            .instants = 6,
                            .bytes = 4,
                            .has_alignment = true,
                            .has_gaps = true,
                            .has_windows = true,
                            .has_aliases = true,
                            .has_empty = true };
  small_kind fixed = rich;
  fixed.has_fixed = true;

  expect_oracles_agree(&plain, t_scaled(10000));
  expect_oracles_agree(&rich, t_scaled(20000));
  expect_oracles_agree(&fixed, t_scaled(20000));
}

// ---------------------------------------------------------------------------------------------------
// Traces

// The next trace of `count` allocations: sizes from 1 to 3, and each lives until any later allocation, or the
// end. False after the last.
static bool trace_next(small_problem* p, size_t count) {
  for (size_t i = 0; i < count; i++) {
    tide_plan_buffer* const b = &p->buffers[i];
    if (++b->bytes <= 3) return true;
    b->bytes = 1;
    if (++b->upper <= count) return true;
    b->upper = i + 1;
  }
  return false;
}

static size_t expect_all_traces(size_t count) {
  static small_problem p;
  const tide_plan_options options = outcome_options(TIDE_PLAN_PEAK);
  size_t traces = 0;
  memset(&p, 0, sizeof p);
  small_link(&p, count, 0);
  for (size_t i = 0; i < count; i++) {
    p.buffers[i] = (tide_plan_buffer){ .lower = i, .upper = i + 1, .bytes = 1, TIDE_PLAN_FREELY };
  }
  do {
    const tide_plan_outcome outcome = outcome_of(&p, &options, false);
    T_EQ(outcome.verdict, TIDE_PLAN_OPTIMAL);
    traces++;
  } while (trace_next(&p, count));
  return traces;
}

T_TEST(test_optimum__of_all_short_traces) {
  T_EQ(expect_all_traces(1), 3);
  T_EQ(expect_all_traces(2), 18);
  T_EQ(expect_all_traces(3), 162);
  T_EQ(expect_all_traces(4), 1944);
}

T_TEST(test_optimum__of_all_traces_of_5) {
  if (T_HAS_SANITIZER && t_scaled(100) < 1000) t_skip("under a sanitizer only with --full");
  T_EQ(expect_all_traces(5), 29160);
}

T_TEST(test_optimum__of_all_traces_of_6) {
  if (t_scaled(100) < 1000) t_skip("only with --full");
  T_EQ(expect_all_traces(6), 524880);
}

// ---------------------------------------------------------------------------------------------------
// Plain problems

// A ring: two buffers make way for two pairs, and those for two buffers, so that a and c must lie side by
// side, b and d, a and b, c and d. On a line there is no such ring, so the smallest peak is above the load.
static void ring_make(small_problem* p, uint64_t largest, t_rng* rng) {
  const uint64_t a = 1 + t_rng_below(rng, largest);
  const uint64_t b = 1 + t_rng_below(rng, largest);
  const uint64_t c = 1 + t_rng_below(rng, largest);
  const uint64_t d = 1 + t_rng_below(rng, largest);
  const uint64_t shape[8][3] = { { 0, 1, a + c }, { 0, 2, b + d }, { 1, 3, a },     { 2, 3, b },
                                 { 1, 4, c },     { 2, 4, d },     { 3, 5, a + b }, { 4, 5, c + d } };
  memset(p, 0, sizeof *p);
  for (size_t i = 0; i < 8; i++) {
    p->buffers[i] = (tide_plan_buffer){
      .lower = shape[i][0], .upper = shape[i][1], .bytes = shape[i][2], TIDE_PLAN_FREELY
    };
  }
  small_link(p, 8, 0);
}

// Changes something small.
static void ring_change(small_problem* p, t_rng* rng) {
  const size_t count = p->problem.count;
  tide_plan_buffer* const b = &p->buffers[t_rng_below(rng, count)];
  switch (t_rng_below(rng, 6)) {
    case 0: b->bytes += 1; break;
    case 1: b->bytes -= b->bytes > 1 ? 1 : 0; break;
    case 2: b->lower -= b->lower > 0 ? 1 : 0; break;
    case 3: b->upper += b->upper < 7 ? 1 : 0; break;
    case 4: b->lower += b->lower + 1 < b->upper ? 1 : 0; break;
    default:
      if (count == SMALL_BUFFERS) break;
      p->buffers[count] = (tide_plan_buffer){ .lower = t_rng_below(rng, 5), TIDE_PLAN_FREELY };
      p->buffers[count].upper = p->buffers[count].lower + 1 + t_rng_below(rng, 3);
      p->buffers[count].bytes = 1 + t_rng_below(rng, 3);
      small_link(p, count + 1, 0);
  }
}

static void ring_shuffle(small_problem* p, t_rng* rng) {
  for (size_t i = p->problem.count - 1; i > 0; i--) {
    const size_t k = t_rng_below(rng, i + 1);
    const tide_plan_buffer b = p->buffers[i];
    p->buffers[i] = p->buffers[k];
    p->buffers[k] = b;
  }
  small_link(p, p->problem.count, 0);
}

static void ring_random(small_problem* p, t_rng* rng) {
  ring_make(p, 3, rng);
  for (uint64_t changes = t_rng_below(rng, 4); changes > 0; changes--) ring_change(p, rng);
  ring_shuffle(p, rng);
}

T_TEST_OVER(test_optimum__of_random_problems, parts) {
  static small_problem p;
  const small_kind kind = { .buffers = 6, .instants = 10, .bytes = 4 };
  const tide_plan_options options = outcome_options(TIDE_PLAN_PEAK);
  t_rng rng = t_rng_new(strtoull(t_variant(), NULL, 10));

  for (size_t i = 0; i < many(2000, PARTS_FACTOR); i++) {
    small_random(&p, &kind, &rng);
    T_EQ(outcome_of(&p, &options, false).verdict, TIDE_PLAN_OPTIMAL);
  }
}

T_TEST_OVER(test_optimum__of_rings_is_above_their_load, parts) {
  static small_problem p;
  const tide_plan_options options = outcome_options(TIDE_PLAN_PEAK);
  const size_t count = many(2000, PARTS_FACTOR);
  size_t above = 0;
  t_rng rng = t_rng_new(strtoull(t_variant(), NULL, 10));

  for (size_t i = 0; i < count; i++) {
    ring_random(&p, &rng);
    const tide_plan_outcome outcome = outcome_of(&p, &options, false);
    T_EQ(outcome.verdict, TIDE_PLAN_OPTIMAL);
    above += outcome.proof.reason == TIDE_PLAN_SEARCH ? 1 : 0;
  }

  T_LT(count / (t_is_thorough() ? 4 : 6), above);  // about 35 of 100
}

// At the smallest peak and just below it, with the goal to fit.
T_TEST(test_optimum__of_rings_fits_and_no_less) {
  static small_problem p;
  static oracle o;
  tide_plan_options options = outcome_options(TIDE_PLAN_FIT);
  t_rng rng = t_rng_new(0);

  for (size_t i = 0; i < many(2000, 50); i++) {
    ring_random(&p, &rng);
    const uint64_t smallest = oracle_solve(&o, &p);
    small_link(&p, p.problem.count, 1);
    options.seed = i;
    p.capacities[0] = smallest;
    T_LE(outcome_of(&p, &options, false).verdict, TIDE_PLAN_FEASIBLE);
    p.capacities[0] = smallest - 1;
    T_EQ(outcome_of(&p, &options, false).verdict, TIDE_PLAN_INFEASIBLE);
  }
}

// ---------------------------------------------------------------------------------------------------
// Other kinds

typedef struct named_kind {
  const char* name;
  small_kind kind;
  bool may_give_up;
} named_kind;

static const named_kind kinds[] = {
  { "empty", { .buffers = 6, .instants = 8, .bytes = 4, .has_empty = true }, false },
  { "alignment", { .buffers = 6, .instants = 8, .bytes = 4, .has_alignment = true }, false },
  { "fixed", { .buffers = 6, .instants = 8, .bytes = 4, .has_fixed = true }, false },
  { "gaps", { .buffers = 6, .instants = 8, .bytes = 4, .has_gaps = true }, false },
  { "aliases", { .buffers = 6, .instants = 8, .bytes = 4, .has_aliases = true }, false },
  { "windows", { .buffers = 6, .instants = 8, .bytes = 4, .has_gaps = true, .has_windows = true }, true },
  { "high windows",
    { .buffers = 5,
      .instants = 8,
      .bytes = 4,
      .has_gaps = true,
      .has_windows = true,
      .has_high_windows = true },
    true },
  { "alignment and fixed",
    { .buffers = 5, .instants = 6, .bytes = 4, .has_alignment = true, .has_fixed = true },
    false },
  { "gaps and aliases",
    { .buffers = 5, .instants = 8, .bytes = 4, .has_gaps = true, .has_aliases = true },
    false },
  { "all but windows",
    { 4, 8, 4, .has_alignment = true, .has_fixed = true, .has_gaps = true, .has_aliases = true,
      .has_empty = true },
    false },
  { "all", { 4, 8, 4, true, true, true, true, true, .has_aliases = true, .has_empty = true }, true },
};

static const char* const kind_names[] = { "empty",
                                          "alignment",
                                          "fixed",
                                          "gaps",
                                          "aliases",
                                          "windows",
                                          "high windows",
                                          "alignment and fixed",
                                          "gaps and aliases",
                                          "all but windows",
                                          "all",
                                          NULL };

static named_kind kind_of_variant(void) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (strcmp(kinds[i].name, t_variant()) == 0) return kinds[i];
  }
  T_FAIL("no kind %s", t_variant());
}

// What a kind that may give up may spend.
#define KIND_NODES 20000

static void expect_kind(const named_kind* kind, tide_plan_goal goal, size_t count) {
  static small_problem p;
  size_t verdicts[4] = { 0 };
  tide_plan_options options = outcome_options(goal);
  t_rng rng = t_rng_new((uint64_t)goal + kind->kind.pools * 2);
  if (kind->may_give_up) options.nodes = KIND_NODES;
  for (size_t i = 0; i < count; i++) {
    small_random(&p, &kind->kind, &rng);
    options.seed = i;
    verdicts[outcome_of(&p, &options, kind->may_give_up).verdict]++;
  }
  (void)printf("     %s, goal %d, %d pools: %zu optimal, %zu feasible, %zu infeasible, %zu unknown\n",
               kind->name, (int)goal, (int)kind->kind.pools, verdicts[0], verdicts[1], verdicts[2],
               verdicts[3]);
}

// Gives each buffer of a ring something of the kind.
static void ring_decorate(small_problem* p, const small_kind* kind, t_rng* rng) {
  for (size_t i = 0; i < p->problem.count; i++) {
    tide_plan_buffer* const b = &p->buffers[i];
    if (kind->has_alignment && small_one_in(rng, 4)) b->alignment = 2;
    if (kind->has_fixed && small_one_in(rng, 8)) b->offset = t_rng_below(rng, 6);
    if (kind->has_aliases && small_one_in(rng, 6)) b->alias = 1 + (uint32_t)t_rng_below(rng, 2);
    if (kind->has_gaps && small_one_in(rng, 4)) small_random_gaps(p, i, kind, rng);
  }
}

T_TEST_OVER(test_optimum__of_rings_of_each_kind, kind_names) {
  static small_problem p;
  const named_kind kind = kind_of_variant();
  const bool is_high = kind.kind.has_high_windows;
  t_rng rng = t_rng_new(0);
  size_t searched = 0;

  for (size_t i = 0; i < many(is_high ? 200 : 1000, 50); i++) {
    tide_plan_options options = outcome_options(TIDE_PLAN_PEAK);
    if (kind.may_give_up) options.nodes = KIND_NODES;
    options.seed = i;
    ring_make(&p, 2, &rng);
    if (small_one_in(&rng, 2)) ring_change(&p, &rng);
    ring_decorate(&p, &kind.kind, &rng);
    searched += outcome_of(&p, &options, kind.may_give_up).proof.reason == TIDE_PLAN_SEARCH ? 1 : 0;
  }
  (void)printf("     %zu needed a search\n", searched);
}

T_TEST_OVER(test_optimum__of_each_kind, kind_names) {
  named_kind kind = kind_of_variant();
  expect_kind(&kind, TIDE_PLAN_PEAK, many(2000, 50));
}

T_TEST_OVER(test_optimum__of_each_kind_within_a_capacity, kind_names) {
  named_kind kind = kind_of_variant();
  kind.kind.pools = 1;
  kind.kind.capacity = 12;
  expect_kind(&kind, TIDE_PLAN_PEAK, many(1000, 50));
  expect_kind(&kind, TIDE_PLAN_FIT, many(1000, 50));
}
