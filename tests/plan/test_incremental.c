// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Planning again: the hints are an earlier plan, something small has changed, and few buffers move. The
// tests count the moved buffers themselves, and the verifier checks the plans.
#include "plan/outcome.h"
#include "plan/packing.h"

static tide_plan_options keeping(tide_plan_goal goal, uint64_t nodes) {
  tide_plan_options options = outcome_options(goal);
  options.nodes = nodes;
  options.keeps_hints = true;
  return options;
}

static size_t count_moved(const tide_plan_problem* problem, const tide_plan* plan) {
  size_t moved = 0;
  for (size_t i = 0; i < problem->count; i++) {
    const uint64_t hint = problem->buffers[i].hint;
    moved += hint != TIDE_PLAN_ANYWHERE && hint != tide_plan_offsets(plan)[i] ? 1 : 0;
  }
  return moved;
}

static tide_plan_outcome plan_again(const tide_plan_problem* problem, const tide_plan_options* options) {
  tide_plan* plan = NULL;
  T_OK(tide_plan_solve(problem, options, &plan));
  packing_check(problem, plan);
  const tide_plan_outcome result = tide_plan_result(plan);
  T_EQ(result.moved, count_moved(problem, plan));
  tide_plan_free(plan);
  return result;
}

// A packing whose buffers lie, by their hints, as they were cut. One in `drop` is left out, so that there are
// holes in the plan.
static void hinted_new(packing* p, size_t count, size_t drop, t_rng* rng) {
  packing_new(p, count, count / 4 + 4, 100000, rng);
  if (drop != 0) packing_drop(p, drop, rng);
  for (size_t i = 0; i < p->problem.count; i++) p->buffers[i].hint = p->offsets[i];
}

T_TEST(test_incremental__of_the_same_moves_nothing) {
  t_rng rng = t_rng_new(0);

  for (size_t i = 0; i < t_scaled(20); i++) {
    packing p;
    hinted_new(&p, 20 + t_rng_below(&rng, 400), i % 3 * 8, &rng);
    p.problem.pools = i % 2;
    p.problem.capacities = &p.capacity;
    const tide_plan_options options = keeping(i % 2 == 0 ? TIDE_PLAN_PEAK : TIDE_PLAN_FIT, 20000);

    const tide_plan_outcome result = plan_again(&p.problem, &options);

    T_EQ(result.moved, 0);
    T_EQ(result.stage, TIDE_PLAN_STAGE_HINTS);
    T_LE(result.peak, p.capacity);
    packing_free(&p);
  }
}

// One buffer is gone and another comes that needs no more, at another time: the others can all stay.
T_TEST(test_incremental__with_room_above_moves_nothing) {
  t_rng rng = t_rng_new(0);

  for (size_t i = 0; i < t_scaled(20); i++) {
    packing p;
    hinted_new(&p, 20 + t_rng_below(&rng, 400), 0, &rng);
    tide_plan_buffer* const added = &p.buffers[t_rng_below(&rng, p.problem.count)];
    added->hint = TIDE_PLAN_ANYWHERE;
    added->lower = t_rng_below(&rng, 4);
    added->upper = added->lower + 1 + t_rng_below(&rng, 4);
    added->bytes = 1 + t_rng_below(&rng, 50000);
    const uint64_t capacity = p.capacity + added->bytes;
    p.problem.pools = 1;
    p.problem.capacities = &capacity;
    const tide_plan_options options = keeping(TIDE_PLAN_FIT, 20000);

    const tide_plan_outcome result = plan_again(&p.problem, &options);

    T_EQ(result.moved, 0);
    packing_free(&p);
  }
}

// A buffer that grows, one that is new, one that lives longer: how it went, over all tries.
typedef struct change_count {
  size_t buffers;
  size_t moved;
  size_t plans;
  size_t still;  // plans of which at most 5 of 100 moved
} change_count;

static void change_one(tide_plan_buffer* b, t_rng* rng) {
  switch (t_rng_below(rng, 3)) {
    case 0: b->bytes += 1 + b->bytes / 4; break;
    case 1: b->hint = TIDE_PLAN_ANYWHERE; break;
    default: b->upper += 2; break;
  }
}

static void change_and_plan(change_count* all, packing* p, tide_plan_goal goal, uint64_t capacity,
                            t_rng* rng) {
  change_one(&p->buffers[t_rng_below(rng, p->problem.count)], rng);
  p->problem.pools = goal == TIDE_PLAN_FIT ? 1 : 0;
  p->problem.capacities = &capacity;
  const tide_plan_options options = keeping(goal, 50000);
  tide_plan* plan = NULL;
  T_OK(tide_plan_solve(&p->problem, &options, &plan));
  const tide_plan_outcome result = tide_plan_result(plan);
  if (result.verdict == TIDE_PLAN_INFEASIBLE) {  // it has become too large
    T_LT(capacity, result.lower_bound);
  } else {
    packing_check(&p->problem, plan);
    T_EQ(result.moved, count_moved(&p->problem, plan));
    all->plans++;
    all->still += 20 * result.moved <= p->problem.count ? 1 : 0;
    all->buffers += p->problem.count;
    all->moved += result.moved;
  }
  tide_plan_free(plan);
}

// There is room to spare: a twelfth of the buffers was left out, and a tenth is added to the capacity. A plan
// made anew moves nearly everything, so that the average takes many plans.
T_TEST(test_incremental__moves_few_to_fit) {
  change_count all = { 0 };
  t_rng rng = t_rng_new(0);

  for (size_t i = 0; i < t_scaled_least(1000, 500); i++) {
    packing p;
    hinted_new(&p, 50 + t_rng_below(&rng, 300), 12, &rng);
    change_and_plan(&all, &p, TIDE_PLAN_FIT, p.capacity + p.capacity / 10, &rng);
    packing_free(&p);
  }

  (void)printf("     %zu of %zu moved, few in %zu of %zu\n", all.moved, all.buffers, all.still, all.plans);
  T_LT(all.plans * 9, all.still * 10);
  T_LT(all.moved * 25, all.buffers);
}

// The peak is not to rise if it need not: sometimes only another plan altogether is as low.
T_TEST(test_incremental__moves_few_to_stay_low) {
  change_count all = { 0 };
  t_rng rng = t_rng_new(0);

  for (size_t i = 0; i < t_scaled_least(100, 60); i++) {
    packing p;
    hinted_new(&p, 50 + t_rng_below(&rng, 300), 6, &rng);
    change_and_plan(&all, &p, TIDE_PLAN_PEAK, UINT64_MAX, &rng);
    packing_free(&p);
  }

  (void)printf("     %zu of %zu moved, few in %zu of %zu\n", all.moved, all.buffers, all.still, all.plans);
  T_LT(all.plans, all.still * 2);
}

// One change after another, each from the plan before: the plan stays right and never grows without need.
T_TEST(test_incremental__goes_on_from_plan_to_plan) {
  t_rng rng = t_rng_new(0);
  packing p;
  hinted_new(&p, 200, 6, &rng);
  const size_t count = p.problem.count;
  const tide_plan_options options = keeping(TIDE_PLAN_PEAK, 20000);

  for (size_t i = 0; i < t_scaled(40); i++) {
    tide_plan_buffer* const b = &p.buffers[t_rng_below(&rng, count)];
    const tide_plan_buffer before = *b;
    tide_plan* plan = NULL;
    change_one(b, &rng);
    T_OK(tide_plan_solve(&p.problem, &options, &plan));
    packing_check(&p.problem, plan);
    for (size_t k = 0; k < count; k++) p.buffers[k].hint = tide_plan_offsets(plan)[k];
    tide_plan_free(plan);
    if (i % 2 == 1) {  // it goes back to what it was, or is removed
      b->bytes = small_one_in(&rng, 4) ? 0 : before.bytes;
      b->upper = before.upper;
    }
  }
  packing_free(&p);
}

// ---------------------------------------------------------------------------------------------------
// At random, in small

// Hints of any kind, also senseless ones, change neither the smallest peak nor a verdict.
T_TEST(test_incremental__hints_change_no_optimum) {
  const small_kind kind = { 6,
                            8,
                            4,
                            .has_alignment = true,
                            .has_fixed = true,
                            .has_gaps = true,
                            .has_aliases = true,
                            .has_empty = true,
                            .pools = 1,
                            .capacity = 14 };
  small_kind narrow = kind;
  small_problem p;
  t_rng rng = t_rng_new(0);
  narrow.buffers = 4;

  for (size_t i = 0; i < t_scaled(5000); i++) {
    tide_plan_options options = outcome_options(i % 2 == 0 ? TIDE_PLAN_PEAK : TIDE_PLAN_FIT);
    small_random(&p, &narrow, &rng);
    for (size_t k = 0; k < p.problem.count; k++) {
      p.buffers[k].hint = small_one_in(&rng, 4) ? TIDE_PLAN_ANYWHERE : t_rng_below(&rng, 16);
      if (small_one_in(&rng, 50)) p.buffers[k].hint = UINT64_MAX - 1 - t_rng_below(&rng, 3);
    }
    (void)outcome_of(&p, &options, false);
    options.keeps_hints = true;  // then a plan that moves few may be larger than need be
    (void)outcome_of(&p, &options, true);
  }
}

// Where the hints are a plan within the capacity, they stay.
T_TEST(test_incremental__a_small_plan_stays) {
  const small_kind kind = { 4,
                            8,
                            4,
                            .has_alignment = true,
                            .has_gaps = true,
                            .has_windows = true,
                            .has_high_windows = true,
                            .has_aliases = true };
  small_problem p;
  t_rng rng = t_rng_new(0);

  for (size_t i = 0; i < t_scaled(3000); i++) {
    const tide_plan_options first = keeping(TIDE_PLAN_PEAK, 1000);
    const tide_plan_options again = keeping(TIDE_PLAN_FIT, 1000);
    tide_plan* plan = NULL;
    small_random(&p, &kind, &rng);
    T_OK(tide_plan_solve(&p.problem, &first, &plan));
    for (size_t k = 0; k < p.problem.count; k++) p.buffers[k].hint = tide_plan_offsets(plan)[k];
    small_link(&p, p.problem.count, 1);
    p.capacities[0] = tide_plan_result(plan).peak;
    tide_plan_free(plan);

    T_EQ(plan_again(&p.problem, &again).moved, 0);
  }
}
