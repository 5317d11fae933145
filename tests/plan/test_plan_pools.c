// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Several pools: each is planned as if it were alone, buffers that may lie in any go to the first that has
// room, and no verdict is wrong however they are spread.
#include "plan/outcome.h"

static tide_plan* solve(const tide_plan_problem* problem, tide_plan_goal goal) {
  tide_plan* plan = NULL;
  const tide_plan_options options = outcome_options(goal);
  T_OK(tide_plan_solve(problem, &options, &plan));
  return plan;
}

T_TEST(test_plan_pools__are_planned_apart) {
  const tide_plan_buffer buffers[] = { { .upper = 2, .bytes = 4, TIDE_PLAN_FREELY },
                                       { .upper = 2, .bytes = 5, .pool = 1, TIDE_PLAN_FREELY },
                                       { .upper = 2, .bytes = 6, .pool = 1, TIDE_PLAN_FREELY } };
  const uint64_t capacities[] = { 4, UINT64_MAX, 0 };
  const tide_plan_problem problem = { buffers, 3, capacities, 3 };

  tide_plan* const plan = solve(&problem, TIDE_PLAN_PEAK);

  T_EQ(tide_plan_result(plan).verdict, TIDE_PLAN_OPTIMAL);
  T_EQ(tide_plan_result(plan).peak, 15);
  T_EQ(tide_plan_result(plan).lower_bound, 15);
  T_EQ(tide_plan_pool_result(plan, 0).peak, 4);
  T_EQ(tide_plan_pool_result(plan, 1).peak, 11);
  T_EQ(tide_plan_pool_result(plan, 2).peak, 0);
  T_EQ(tide_plan_pool_result(plan, 3).verdict, TIDE_PLAN_UNKNOWN);
  size_t count = 0;
  const size_t* const live = tide_plan_live_set(plan, 1, &count);
  T_EQ(count, 2);
  T_EQ(live[0], 1);
  T_EQ(live[1], 2);
  tide_plan_free(plan);
}

T_TEST(test_plan_pools__have_the_verdict_of_the_worst) {
  const tide_plan_buffer buffers[] = { { .upper = 2, .bytes = 4, TIDE_PLAN_FREELY },
                                       { .upper = 2, .bytes = 5, .pool = 1, TIDE_PLAN_FREELY } };
  const uint64_t capacities[] = { 4, 4 };
  const tide_plan_problem problem = { buffers, 2, capacities, 2 };

  tide_plan* const plan = solve(&problem, TIDE_PLAN_PEAK);

  T_EQ(tide_plan_result(plan).verdict, TIDE_PLAN_INFEASIBLE);
  T_EQ(tide_plan_result(plan).proof.pool, 1);
  T_EQ(tide_plan_pool_result(plan, 0).verdict, TIDE_PLAN_OPTIMAL);
  T_EQ(tide_plan_pool_result(plan, 1).verdict, TIDE_PLAN_INFEASIBLE);
  T_PTR_EQ(tide_plan_offsets(plan), NULL);
  T_PTR_EQ(tide_plan_pools(plan), NULL);
  tide_plan_free(plan);
}

// Three that would fit into 8 bytes are piled up in the first pool, whose 12 bytes are the goal.
static void expect_gap(uint64_t bytes_in_second, double gap) {
  const tide_plan_buffer buffers[] = {
    { .lower = 0, .upper = 2, .bytes = 4, TIDE_PLAN_FREELY },
    { .lower = 1, .upper = 3, .bytes = 4, TIDE_PLAN_FREELY },
    { .lower = 2, .upper = 4, .bytes = 4, TIDE_PLAN_FREELY },
    { .upper = 2, .bytes = bytes_in_second, .pool = 1, TIDE_PLAN_FREELY },
  };
  const uint64_t capacities[] = { 12, 4 };
  const tide_plan_problem problem = { buffers, 4, capacities, 2 };

  tide_plan* const plan = solve(&problem, TIDE_PLAN_FIT);

  T_CHECK(tide_plan_pool_result(plan, 0).gap == 0.5);
  T_CHECK(tide_plan_result(plan).gap == gap);
  tide_plan_free(plan);
}

T_TEST(test_plan_pools__have_the_gap_of_their_sums) { expect_gap(4, (16.0 - 12.0) / 12.0); }
T_TEST(test_plan_pools__without_a_plan_for_one_have_no_gap) { expect_gap(5, 0); }

T_TEST(test_plan_pools__are_filled_in_the_order_of_preference) {
  tide_plan_buffer buffers[] = { { .upper = 2, .bytes = 4, TIDE_PLAN_FREELY },
                                 { .upper = 2, .bytes = 4, TIDE_PLAN_FREELY },
                                 { .upper = 2, .bytes = 4, TIDE_PLAN_FREELY } };
  const uint64_t capacities[] = { 8, UINT64_MAX };
  const tide_plan_problem problem = { buffers, 3, capacities, 2 };
  for (size_t i = 0; i < 3; i++) buffers[i].pool = TIDE_PLAN_ANY_POOL;

  tide_plan* const plan = solve(&problem, TIDE_PLAN_PEAK);

  T_EQ(tide_plan_pool_result(plan, 0).peak, 8);
  T_EQ(tide_plan_pool_result(plan, 1).peak, 4);
  tide_plan_free(plan);
}

// Both pools are needed in full, and only one way to share them out is right.
T_TEST(test_plan_pools__hold_what_fits_only_together) {
  const uint64_t bytes[] = { 5, 4, 3, 3, 3 };
  tide_plan_buffer buffers[5];
  const uint64_t capacities[] = { 9, 9 };
  const tide_plan_problem problem = { buffers, 5, capacities, 2 };
  for (size_t i = 0; i < 5; i++) {
    buffers[i] =
        (tide_plan_buffer){ .upper = 2, .bytes = bytes[i], .pool = TIDE_PLAN_ANY_POOL, TIDE_PLAN_FREELY };
  }

  tide_plan* const plan = solve(&problem, TIDE_PLAN_FIT);

  T_EQ(tide_plan_result(plan).verdict, TIDE_PLAN_OPTIMAL);
  T_EQ(tide_plan_result(plan).peak, 18);
  tide_plan_free(plan);
}

// ---------------------------------------------------------------------------------------------------
// At random

static void expect_pools(small_kind kind, bool has_choice, bool may_give_up, size_t count) {
  static small_problem p;
  t_rng rng = t_rng_new(kind.pools * 2 + (has_choice ? 1 : 0));
  size_t verdicts[4] = { 0 };
  for (size_t i = 0; i < count; i++) {
    tide_plan_options options = outcome_options(i % 2 == 0 ? TIDE_PLAN_PEAK : TIDE_PLAN_FIT);
    if (may_give_up) options.nodes = 20000;
    small_random(&p, &kind, &rng);
    for (size_t k = 0; k < p.problem.count && !has_choice; k++) {
      if (p.buffers[k].pool == TIDE_PLAN_ANY_POOL) p.buffers[k].pool = 0;
    }
    verdicts[outcome_of(&p, &options, may_give_up).verdict]++;
  }
  (void)printf("     %d pools: %zu optimal, %zu feasible, %zu infeasible, %zu unknown\n", (int)kind.pools,
               verdicts[0], verdicts[1], verdicts[2], verdicts[3]);
}

static const small_kind plain = { .buffers = 6, .instants = 8, .bytes = 4, .capacity = 9 };
static const small_kind rich = { .buffers = 4,
                                 .instants = 8,
                                 .bytes = 4,
                                 .has_alignment = true,
                                 .has_fixed = true,
                                 .has_gaps = true,
                                 .has_aliases = true,
                                 .has_empty = true,
                                 .capacity = 9 };

T_TEST(test_plan_pools__of_fixed_buffers_are_right) {
  for (size_t pools = 2; pools <= SMALL_POOLS; pools++) {
    small_kind kind = plain;
    kind.pools = pools;
    expect_pools(kind, false, false, t_scaled(2000));
    kind = rich;
    kind.pools = pools;
    expect_pools(kind, false, false, t_scaled(2000));
  }
}

// Sizes whose sums are all different, and pools that hold the buffers in one way only, which is seldom that
// of the first room for each: any way must be found.
T_TEST(test_plan_pools__of_choice_are_tried_in_every_way) {
  enum { BUFFERS = 6 };
  tide_plan_buffer buffers[BUFFERS];
  for (size_t way = 0; way < (size_t)1 << BUFFERS; way++) {
    uint64_t capacities[2] = { 0 };
    for (size_t i = 0; i < BUFFERS; i++) {
      buffers[i] = (tide_plan_buffer){ .upper = 1, .bytes = 64 + ((uint64_t)1 << i), TIDE_PLAN_FREELY };
      buffers[i].pool = TIDE_PLAN_ANY_POOL;
      capacities[way >> i & 1] += buffers[i].bytes;
    }
    const tide_plan_problem problem = { buffers, BUFFERS, capacities, 2 };

    tide_plan* const plan = solve(&problem, TIDE_PLAN_FIT);

    const uint32_t* const pools = tide_plan_pools(plan);
    T_CHECK(pools != NULL);
    for (size_t i = 0; i < BUFFERS; i++) T_EQ(pools[i], way >> i & 1);
    tide_plan_free(plan);
  }
}

// Too many ways to try each, and the first room for each in order of size is wrong. The first buffer may not
// move, however the others are shuffled.
T_TEST(test_plan_pools__of_choice_leave_the_others_where_they_are) {
  enum { BUFFERS = 24 };
  tide_plan_buffer buffers[BUFFERS];
  size_t found = 0;
  for (size_t extra = 0; extra < 20; extra++) {
    uint64_t capacities[2] = { 0 };
    for (size_t i = 0; i < BUFFERS; i++) {
      buffers[i] = (tide_plan_buffer){ .upper = 1, .bytes = 40 + i * (7 + extra) % 31, TIDE_PLAN_FREELY };
      buffers[i].pool = i > 0 ? TIDE_PLAN_ANY_POOL : 1;
      capacities[i % 2] += buffers[i].bytes;
    }
    const tide_plan_problem problem = { buffers, BUFFERS, capacities, 2 };

    tide_plan* const plan = solve(&problem, TIDE_PLAN_FIT);

    const uint32_t* const pools = tide_plan_pools(plan);
    found += pools != NULL;
    T_CHECK(pools == NULL || pools[0] == 1);
    tide_plan_free(plan);
  }
  T_LE(10, found);
}

T_TEST(test_plan_pools__of_choice_are_never_wrong) {
  for (size_t pools = 2; pools <= SMALL_POOLS; pools++) {
    small_kind kind = plain;
    kind.pools = pools;
    expect_pools(kind, true, true, t_scaled(2000));
    kind = rich;
    kind.pools = pools;
    expect_pools(kind, true, true, t_scaled(2000));
  }
}
