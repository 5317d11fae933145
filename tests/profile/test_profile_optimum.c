// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Every run of up to five requests (six in a long test) with sizes from 1 to 3: there the smallest arena is
// as large as what lives at once, and the planners that go by time give what the renditions of the oracle
// give. Random runs: no plan is larger than best fit makes it, at any alignment.
#include "planned.h"

static bool is_long(void) { return t_scaled(100) >= 1000; }

// ---------------------------------------------------------------------------------------------------
// Every small run

// The next run of `count` requests, of which those below `from` stay as they are; false after the last.
static bool run_next(tide_profile_request* requests, size_t from, size_t count) {
  for (size_t i = from; i < count; i++) {
    if (++requests[i].bytes <= 3) return true;
    requests[i].bytes = 1;
    if (++requests[i].lifetime <= count) return true;
    requests[i].lifetime = i + 1;
  }
  return false;
}

static void expect_smallest(const tide_profile_request* run, size_t count) {
  tide_profile_request requests[6];
  memcpy(requests, run, count * sizeof *requests);
  const uint64_t lower_bound = oracle_lower_bound(requests, count);

  const tide_profile_plan_info info = planned_with(requests, count, TIDE_PROFILE_SMALLEST);

  T_EQ(info.lower_bound, lower_bound);
  T_EQ(info.bytes, lower_bound);
}

static void expect_by_time(const tide_profile_request* run, size_t count, bool extends_top) {
  const tide_profile_planner planner = extends_top ? TIDE_PROFILE_TOP_FIT : TIDE_PROFILE_BEST_FIT;
  tide_profile_request requests[6];
  memcpy(requests, run, count * sizeof *requests);
  const uint64_t bytes = oracle_best_fit(requests, count, 1, extends_top);

  T_EQ(planned_bytes(requests, count, planner), bytes);
}

static void expect_not_above_best_fit(const tide_profile_request* run, size_t count, uint64_t alignment) {
  tide_profile_request requests[6];
  memcpy(requests, run, count * sizeof *requests);
  oracle_align(requests, count, alignment);
  const uint64_t best_fit = oracle_best_fit(requests, count, alignment, false);

  T_EQ(planned_bytes(requests, count, TIDE_PROFILE_BEST_FIT), best_fit);
  T_LE(planned_bytes(requests, count, TIDE_PROFILE_SMALLEST), best_fit);
}

static void expect_run(const tide_profile_request* run, size_t count) {
  expect_smallest(run, count);
  expect_by_time(run, count, false);
  expect_by_time(run, count, true);
  expect_not_above_best_fit(run, count, 2);
  expect_not_above_best_fit(run, count, 64);
}

// All runs that go on from a first request; returns how many.
static size_t expect_runs_after(tide_profile_request first, size_t count) {
  tide_profile_request run[6] = { first };
  size_t runs = 0;
  for (size_t i = 1; i < count; i++) run[i] = (tide_profile_request){ 1, 1, i + 1, 0 };
  do {
    expect_run(run, count);
    runs++;
  } while (run_next(run, 1, count));
  return runs;
}

static size_t expect_all_runs(size_t count) {
  size_t runs = 0;
  for (uint64_t bytes = 1; bytes <= 3; bytes++) {
    for (uint64_t lifetime = 1; lifetime <= count; lifetime++)
      runs += expect_runs_after((tide_profile_request){ bytes, 1, lifetime, 0 }, count);
  }
  return runs;
}

T_TEST(test_profile_optimum__of_all_short_runs) {
  T_EQ(expect_all_runs(1), 3);
  T_EQ(expect_all_runs(2), 18);
  T_EQ(expect_all_runs(3), 162);
  T_EQ(expect_all_runs(4), 1944);
}

T_TEST(test_profile_optimum__of_all_runs_of_5) {
  t_only_thorough();
  if (T_HAS_SANITIZER && !is_long()) t_skip("under a sanitizer only with --full");
  T_EQ(expect_all_runs(5), 29160);
}

// By the lifetime of the first request, so that each part has its time.
static const char* const parts_of_6[] = { "1", "2", "3", "4", "5", "6", NULL };

T_TEST_OVER(test_profile_optimum__of_all_runs_of_6, parts_of_6) {
  if (!is_long()) t_skip("only with --full");
  size_t runs = 0;
  for (uint64_t bytes = 1; bytes <= 3; bytes++) {
    const uint64_t lifetime = strtoull(t_variant(), NULL, 10);
    runs += expect_runs_after((tide_profile_request){ bytes, 1, lifetime, 0 }, 6);
  }
  T_EQ(runs, 524880 / 6);
}

// The renditions of the oracle agree with one another.
T_TEST(test_profile_optimum__oracle_finds_the_smallest) {
  tide_profile_request requests[6];
  for (uint64_t round = 0; round < t_scaled(2000); round++) {
    t_rng rng = t_rng_new(round);
    const size_t count = 3 + t_rng_below(&rng, 4);
    for (size_t i = 0; i < count; i++) {
      const uint64_t lifetime = i + 1 + t_rng_below(&rng, count - i);
      requests[i] = (tide_profile_request){ 1 + t_rng_below(&rng, 3), 1, lifetime, 0 };
    }

    T_EQ(oracle_smallest(requests, count, 1), oracle_lower_bound(requests, count));
    const uint64_t best_fit = oracle_best_fit(requests, count, 1, false);
    oracle_expect_sound(requests, count, best_fit);
    T_LE(oracle_smallest(requests, count, 1), best_fit);
  }
}

// With larger sizes and an alignment the smallest arena may be above what lives at once.
T_TEST(test_profile_optimum__of_tiny_runs_with_an_alignment) {
  tide_profile_request requests[6];
  for (uint64_t round = 0; round < t_scaled(500); round++) {
    t_rng rng = t_rng_new(round);
    const size_t count = 1 + t_rng_below(&rng, 6);
    const uint64_t alignment = 1u << t_rng_below(&rng, 6);
    planned_random(requests, count, planned_kinds[round % 4], &rng);  // wide sizes can take very long
    oracle_align(requests, count, alignment);

    T_EQ(planned_bytes(requests, count, TIDE_PROFILE_SMALLEST), oracle_smallest(requests, count, alignment));
  }
}

// ---------------------------------------------------------------------------------------------------
// Random runs

#define RUN_MOST 120

static void expect_random_run(uint64_t round, const char* kind) {
  tide_profile_request requests[RUN_MOST];
  t_rng rng = t_rng_new(round);
  const size_t count = 1 + t_rng_below(&rng, 1 + t_rng_below(&rng, RUN_MOST));
  const uint64_t alignment = 1u << t_rng_below(&rng, 10);
  planned_random(requests, count, kind, &rng);
  oracle_align(requests, count, alignment);
  const uint64_t lower_bound = oracle_lower_bound(requests, count);
  const uint64_t best_fit = oracle_best_fit(requests, count, alignment, false);
  const uint64_t top_fit = oracle_best_fit(requests, count, alignment, true);

  const tide_profile_plan_info info = planned_with(requests, count, TIDE_PROFILE_SMALLEST);

  T_EQ(info.lower_bound, lower_bound);
  T_LE(lower_bound, info.bytes);
  T_LE(info.bytes, best_fit);
  T_LE(info.bytes, top_fit);
  T_EQ(planned_bytes(requests, count, TIDE_PROFILE_BEST_FIT), best_fit);
  T_EQ(planned_bytes(requests, count, TIDE_PROFILE_TOP_FIT), top_fit);
}

T_TEST_OVER(test_profile_optimum__never_above_best_fit, planned_kinds) {
  const size_t rounds = t_scaled(T_HAS_SANITIZER ? 100 : 600);
  for (uint64_t round = 0; round < rounds; round++) expect_random_run(round, t_variant());
}
