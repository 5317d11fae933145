// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Plans of runs: the arenas that are known, the faults of the profiler that ours is modelled on, alignments,
// what is never released, requests that make no sense.
#include "golden.h"
#include "machine/counting_heap.h"
#include "planned.h"

static const tide_profile_planner planners[] = { TIDE_PROFILE_SMALLEST, TIDE_PROFILE_BEST_FIT,
                                                 TIDE_PROFILE_TOP_FIT };
#define PLANNERS (sizeof planners / sizeof *planners)

// ---------------------------------------------------------------------------------------------------
// Known arenas

static void expect_golden(tide_profile_planner planner, uint64_t alignment, uint64_t bytes) {
  const golden* const row = golden_of_variant();
  tide_profile_request requests[GOLDEN_MOST];
  golden_requests(row, alignment, requests);

  const tide_profile_plan_info info = planned_with(requests, row->count, planner);

  T_EQ(info.bytes, bytes);
  T_EQ(info.lower_bound, row->lower_bound);
  T_EQ(info.managed, row->count);
  T_EQ(info.escape_bytes, 0);
  T_EQ(info.alignment, alignment);
}

T_TEST_OVER(test_profile_plan__golden_best_fit, golden_names) {
  expect_golden(TIDE_PROFILE_BEST_FIT, 1, golden_of_variant()->best_fit);
}

T_TEST_OVER(test_profile_plan__golden_top_fit, golden_names) {
  expect_golden(TIDE_PROFILE_TOP_FIT, 1, golden_of_variant()->top_fit);
}

T_TEST_OVER(test_profile_plan__golden_smallest, golden_names) {
  expect_golden(TIDE_PROFILE_SMALLEST, 1, golden_of_variant()->smallest);
}

T_TEST_OVER(test_profile_plan__golden_smallest_at_64, golden_names) {
  expect_golden(TIDE_PROFILE_SMALLEST, 64, golden_of_variant()->smallest_at_64);
}

// The renditions that other tests compare with know these numbers too.
T_TEST_OVER(test_profile_plan__golden_oracle, golden_names) {
  const golden* const row = golden_of_variant();
  tide_profile_request requests[GOLDEN_MOST];
  golden_requests(row, 1, requests);

  T_EQ(oracle_best_fit(requests, row->count, 1, false), row->best_fit);
  oracle_expect_sound(requests, row->count, row->best_fit);
  T_EQ(oracle_best_fit(requests, row->count, 1, true), row->top_fit);
  oracle_expect_sound(requests, row->count, row->top_fit);
  T_EQ(oracle_lower_bound(requests, row->count), row->lower_bound);
  if (row->count > SMALLEST_MOST) return;
  T_EQ(oracle_smallest(requests, row->count, 1), row->smallest);
  T_EQ(oracle_smallest(requests, row->count, 64), row->smallest_at_64);
}

// ---------------------------------------------------------------------------------------------------
// Faults of the original

static void expect_every_planner(const uint64_t (*rows)[2], size_t count, uint64_t bytes) {
  tide_profile_request requests[32];
  for (size_t k = 0; k < PLANNERS; k++) {
    for (size_t i = 0; i < count; i++) requests[i] = (tide_profile_request){ rows[i][0], 1, rows[i][1], 0 };
    T_EQ(planned_bytes(requests, count, planners[k]), bytes);
  }
}

// Two holes of one size at once: both stay known, and both are used again.
T_TEST(test_profile_plan__equal_sizes_do_not_corrupt_the_holes) {
  const uint64_t merged[][2] = { { 64, 3 }, { 128, 2 }, { 64, 3 } };
  const uint64_t crossed[][2] = { { 64, 3 }, { 64, 4 }, { 64, 3 }, { 64, 4 } };
  const uint64_t both_taken[][2] = { { 64, 3 }, { 1, 5 }, { 64, 3 }, { 64, 5 }, { 64, 5 } };

  expect_every_planner(merged, 3, 192);
  expect_every_planner(crossed, 4, 192);
  expect_every_planner(both_taken, 5, 129);
}

T_TEST(test_profile_plan__a_hole_that_is_taken_whole_is_gone) {
  const uint64_t reused[][2] = { { 64, 1 }, { 64, 2 } };
  const uint64_t full[][2] = { { 64, 1 }, { 64, 3 }, { 64, 3 } };

  expect_every_planner(reused, 2, 64);
  expect_every_planner(full, 3, 128);
}

// What is released at the time of a request makes way for it, however many there are.
T_TEST(test_profile_plan__releases_come_before_the_request_of_their_time) {
  tide_profile_request requests[200];
  for (size_t depth = 1; depth <= 2; depth++) {
    for (size_t count = 1; count <= 200; count++) {
      for (size_t i = 0; i < count; i++) {
        const uint64_t until = i + depth < count ? i + depth : count;
        requests[i] = (tide_profile_request){ 100, 1, until, 0 };
      }
      const uint64_t bytes = 100 * (count < depth ? count : depth);
      T_EQ(planned_bytes(requests, count, TIDE_PROFILE_BEST_FIT), bytes);
      T_EQ(planned_bytes(requests, count, TIDE_PROFILE_TOP_FIT), bytes);
      if (count % 20 == 0) T_EQ(planned_bytes(requests, count, TIDE_PROFILE_SMALLEST), bytes);
    }
  }
}

T_TEST(test_profile_plan__offsets_are_aligned) {
  for (size_t k = 0; k < PLANNERS; k++) {
    tide_profile_request small_first[] = { { 10, 64, 2, 0 }, { 64, 64, 2, 0 } };
    tide_profile_request odd[] = { { 2148, 64, 3, 0 }, { 2148, 64, 3, 0 }, { 100, 64, 3, 0 } };

    (void)planned_with(small_first, 2, planners[k]);  // which looks at the offsets
    (void)planned_with(odd, 3, planners[k]);
  }
}

T_TEST(test_profile_plan__the_top_hole_is_extended) {
  tide_profile_request two[] = { { 10, 1, 1, 0 }, { 11, 1, 2, 0 } };
  tide_profile_request doubling[10];
  for (uint64_t i = 0; i < 10; i++) doubling[i] = (tide_profile_request){ 1u << i, 1, i + 1, 0 };

  T_EQ(planned_bytes(two, 2, TIDE_PROFILE_BEST_FIT), 21);
  T_EQ(planned_bytes(two, 2, TIDE_PROFILE_TOP_FIT), 11);
  T_EQ(planned_bytes(two, 2, TIDE_PROFILE_SMALLEST), 11);
  T_EQ(planned_bytes(doubling, 10, TIDE_PROFILE_BEST_FIT), 1023);
  T_EQ(planned_bytes(doubling, 10, TIDE_PROFILE_TOP_FIT), 512);
  T_EQ(planned_bytes(doubling, 10, TIDE_PROFILE_SMALLEST), 512);
}

T_TEST(test_profile_plan__the_smallest_looks_ahead) {
  tide_profile_request three[] = { { 4, 1, 2, 0 }, { 1, 1, 3, 0 }, { 5, 1, 3, 0 } };
  tide_profile_request four[] = { { 1, 1, 2, 0 }, { 1, 1, 4, 0 }, { 2, 1, 3, 0 }, { 3, 1, 4, 0 } };

  T_EQ(planned_bytes(three, 3, TIDE_PROFILE_SMALLEST), 6);
  T_EQ(planned_bytes(four, 4, TIDE_PROFILE_SMALLEST), 4);
}

T_TEST(test_profile_plan__sums_that_overflow_are_refused) {
  const uint64_t half = (uint64_t)1 << 63;
  const tide_profile_request wrapping[] = { { half, 1, 3, 0 }, { half, 1, 3, 0 }, { 1, 1, 3, 0 } };
  const tide_profile_request largest[] = { { UINT64_MAX, 1, 2, 0 }, { 1, 1, 2, 0 } };
  const tide_profile_request rounded[] = { { UINT64_MAX - 8, 64, 1, 0 } };
  const tide_profile_request escaping[] = { { half, 1, TIDE_PROFILE_NEVER, 0 },
                                            { half, 1, TIDE_PROFILE_NEVER, 0 } };
  const tide_profile_request limit[] = { { TIDE_PLAN_MAX_BYTES, 1, 1, 0 } };

  planned_expect_refused(wrapping, 3, "");
  planned_expect_refused(largest, 2, "");
  planned_expect_refused(rounded, 1, "");
  planned_expect_refused(escaping, 2, "");
  planned_expect_refused(limit, 1, "");
}

T_TEST(test_profile_plan__sums_of_half_the_limit_are_planned) {
  for (size_t k = 0; k < PLANNERS; k++) {
    const uint64_t quarter = TIDE_PLAN_MAX_BYTES / 4;
    tide_profile_request two[] = { { quarter, 1, 2, 0 }, { quarter, 64, 2, 0 } };
    T_EQ(planned_bytes(two, 2, planners[k]), 2 * quarter);
  }
}

// ---------------------------------------------------------------------------------------------------
// Alignment

T_TEST(test_profile_plan__alignments_from_1_to_4096) {
  tide_profile_request requests[40];
  for (uint64_t alignment = 1; alignment <= 4096; alignment *= 2) {
    t_rng rng = t_rng_new(alignment);
    planned_random(requests, 40, "any lifetime", &rng);
    oracle_align(requests, 40, alignment);
    const uint64_t best_fit = oracle_best_fit(requests, 40, alignment, false);

    T_EQ(planned_bytes(requests, 40, TIDE_PROFILE_BEST_FIT), best_fit);
    T_LE(planned_bytes(requests, 40, TIDE_PROFILE_SMALLEST), best_fit);
  }
}

T_TEST(test_profile_plan__each_request_has_its_own_alignment) {
  tide_profile_request requests[40];
  for (uint64_t round = 0; round < 20; round++) {
    t_rng rng = t_rng_new(round);
    planned_random(requests, 40, "any lifetime", &rng);
    for (size_t i = 0; i < 40; i++) requests[i].alignment = 1u << t_rng_below(&rng, 13);

    for (size_t k = 0; k < PLANNERS; k++) (void)planned_with(requests, 40, planners[k]);
  }
}

T_TEST(test_profile_plan__no_alignment_is_1) {
  tide_profile_request requests[] = { { 3, 0, 2, 0 }, { 5, 0, 2, 0 } };
  for (size_t k = 0; k < PLANNERS; k++) {
    const tide_profile_plan_info info = planned_with(requests, 2, planners[k]);
    T_EQ(info.bytes, 8);
    T_EQ(info.alignment, 1);
  }
}

T_TEST(test_profile_plan__the_largest_alignment) {
  tide_profile_request requests[] = { { 1, TIDE_PROFILE_MAX_ALIGNMENT, 2, 0 },
                                      { 1, TIDE_PROFILE_MAX_ALIGNMENT, 2, 0 } };

  T_EQ(planned_bytes(requests, 2, TIDE_PROFILE_SMALLEST), TIDE_PROFILE_MAX_ALIGNMENT + 1);
  requests[1].alignment *= 2;
  planned_expect_refused(requests, 2, "1");
}

// ---------------------------------------------------------------------------------------------------
// What is never released

T_TEST(test_profile_plan__what_escapes_has_an_arena_of_its_own) {
  const tide_profile_request requests[] = {
    { 10, 1, 2, 0 }, { 20, 1, TIDE_PROFILE_NEVER, 0 }, { 30, 1, 4, 0 }, { 40, 1, TIDE_PROFILE_NEVER, 0 }
  };
  for (size_t k = 0; k < PLANNERS; k++) {
    tide_profile_plan* const plan = planned_new(requests, 4, planners[k]);
    const tide_profile_plan_info info = tide_profile_plan_describe(plan);
    const uint64_t first = tide_profile_plan_request(plan, 1).offset;
    const uint64_t second = tide_profile_plan_request(plan, 3).offset;

    T_EQ(info.count, 4);
    T_EQ(info.managed, 2);
    T_LE(info.bytes, 40);
    T_EQ(info.lower_bound, 30);
    T_EQ(info.escape_bytes, 60);
    T_CHECK(first + 20 <= second || second + 40 <= first);
    T_LE(first + 20, 60);
    T_LE(second + 40, 60);
    tide_profile_plan_free(plan);
  }
}

T_TEST(test_profile_plan__what_escapes_is_aligned) {
  tide_profile_request requests[30];
  t_rng rng = t_rng_new(0);
  planned_random(requests, 30, "few sizes", &rng);
  for (size_t i = 0; i < 30; i++) {
    requests[i].bytes += i;
    requests[i].alignment = 1u << t_rng_below(&rng, 10);
    requests[i].lifetime = TIDE_PROFILE_NEVER;
  }

  tide_profile_plan* const plan = planned_new(requests, 30, TIDE_PROFILE_SMALLEST);

  planned_copy(plan, requests, 30);
  for (size_t i = 0; i < 30; i++) requests[i].lifetime = 30;  // all live at the end
  oracle_expect_sound(requests, 30, tide_profile_plan_describe(plan).escape_bytes);
  T_EQ(tide_profile_plan_describe(plan).bytes, 0);
  T_EQ(tide_profile_plan_describe(plan).managed, 0);
  tide_profile_plan_free(plan);
}

T_TEST(test_profile_plan__of_nothing) {
  tide_profile_plan* plan = NULL;

  T_OK(tide_profile_plan_new(NULL, 0, NULL, &plan));

  T_EQ(tide_profile_plan_describe(plan).count, 0);
  T_EQ(tide_profile_plan_describe(plan).bytes, 0);
  T_EQ(tide_profile_plan_request(plan, 0).bytes, 0);
  tide_profile_plan_free(plan);
}

// ---------------------------------------------------------------------------------------------------
// The same again

T_TEST_OVER(test_profile_plan__is_the_same_every_time, planned_kinds) {
  tide_profile_request requests[60];
  tide_profile_request again[60];
  t_rng rng = t_rng_new(0);
  planned_random(requests, 60, t_variant(), &rng);
  for (size_t k = 0; k < PLANNERS; k++) {
    memcpy(again, requests, sizeof again);
    for (size_t i = 0; i < 60; i++) again[i].offset = i;

    const tide_profile_plan_info one = planned_with(requests, 60, planners[k]);
    const tide_profile_plan_info two = planned_with(again, 60, planners[k]);

    T_EQ(one.bytes, two.bytes);
    T_EQ(one.hash, two.hash);
    T_EQ(one.planner, two.planner);
    T_EQ(memcmp(requests, again, sizeof again), 0);
  }
}

// The hash tells runs apart, and not planners.
T_TEST(test_profile_plan__hash_is_of_the_run) {
  tide_profile_request requests[] = { { 10, 1, 2, 0 }, { 20, 1, TIDE_PROFILE_NEVER, 0 }, { 30, 1, 3, 0 } };
  const uint64_t hash = planned_with(requests, 3, TIDE_PROFILE_SMALLEST).hash;
  const uint64_t with_best_fit = planned_with(requests, 3, TIDE_PROFILE_BEST_FIT).hash;
  const uint64_t shorter = planned_with(requests, 2, TIDE_PROFILE_SMALLEST).hash;
  requests[2].bytes = 31;
  const uint64_t larger = planned_with(requests, 3, TIDE_PROFILE_SMALLEST).hash;
  requests[2].bytes = 30;
  requests[0].alignment = 2;
  const uint64_t aligned = planned_with(requests, 3, TIDE_PROFILE_SMALLEST).hash;
  requests[0].alignment = 1;
  requests[0].lifetime = 1;
  const uint64_t sooner = planned_with(requests, 3, TIDE_PROFILE_SMALLEST).hash;

  T_EQ(with_best_fit, hash);
  T_NE(shorter, hash);
  T_NE(larger, hash);
  T_NE(aligned, hash);
  T_NE(sooner, hash);
}

// The planner that is named found the offsets.
T_TEST(test_profile_plan__says_which_planner_it_was) {
  tide_profile_request ahead[] = { { 4, 1, 2, 0 }, { 1, 1, 3, 0 }, { 5, 1, 3, 0 } };

  T_EQ(planned_with(ahead, 3, TIDE_PROFILE_BEST_FIT).planner, TIDE_PROFILE_BEST_FIT);
  T_EQ(planned_with(ahead, 3, TIDE_PROFILE_TOP_FIT).planner, TIDE_PROFILE_TOP_FIT);
  T_EQ(planned_with(ahead, 3, TIDE_PROFILE_SMALLEST).planner, TIDE_PROFILE_SMALLEST);
}

// ---------------------------------------------------------------------------------------------------
// Refusals

T_TEST(test_profile_plan__lifetimes_that_make_no_sense_are_refused) {
  tide_profile_request requests[8];
  for (uint64_t wrong = 0; wrong < 8; wrong++) {
    char name[8];
    (void)snprintf(name, sizeof name, "%d", (int)wrong);
    for (size_t i = 0; i < 8; i++) requests[i] = (tide_profile_request){ 100, 64, 8, 0 };
    const uint64_t lifetimes[] = { 0, wrong, wrong > 0 ? wrong - 1 : 0, 9, UINT64_MAX - 1 };
    for (size_t k = 0; k < sizeof lifetimes / sizeof *lifetimes; k++) {
      requests[wrong].lifetime = lifetimes[k];
      planned_expect_refused(requests, 8, name);
    }
  }
}

T_TEST(test_profile_plan__zero_bytes_are_refused) {
  const tide_profile_request requests[] = { { 8, 1, 3, 0 }, { 8, 1, 3, 0 }, { 0, 1, 3, 0 } };
  const tide_profile_request escaping[] = { { 0, 1, TIDE_PROFILE_NEVER, 0 } };

  planned_expect_refused(requests, 3, "2");
  planned_expect_refused(escaping, 1, "0");
}

T_TEST(test_profile_plan__alignments_that_are_no_power_of_two_are_refused) {
  const uint64_t alignments[] = { 3, 6, 63, 65, 96, 4095, UINT64_MAX, (uint64_t)1 << 63 };
  for (size_t k = 0; k < sizeof alignments / sizeof *alignments; k++) {
    const tide_profile_request requests[] = { { 8, 1, 2, 0 }, { 8, alignments[k], 2, 0 } };
    planned_expect_refused(requests, 2, "1");
  }
}

T_TEST(test_profile_plan__bad_arguments_are_refused) {
  const tide_profile_request one = { 8, 1, 1, 0 };
  tide_profile_plan_options options = TIDE_PROFILE_PLAN_OPTIONS_INIT;
  tide_profile_plan* plan = NULL;

  T_STATUS(tide_profile_plan_new(NULL, 1, NULL, &plan), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_profile_plan_new(&one, 1, NULL, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_profile_plan_new(&one, (size_t)TIDE_PROFILE_MAX_REQUESTS + 1, NULL, &plan), TIDE_ERR_LIMIT);
  T_STATUS(tide_profile_plan_new(&one, SIZE_MAX, NULL, &plan), TIDE_ERR_LIMIT);
  options.planner = (tide_profile_planner)7;
  T_STATUS(tide_profile_plan_new(&one, 1, &options, &plan), TIDE_ERR_ARGUMENT);
  T_PTR_EQ(plan, NULL);
}

T_TEST(test_profile_plan__nothing_is_asked_of_no_plan) {
  tide_profile_plan_free(NULL);
  T_EQ(tide_profile_plan_describe(NULL).count, 0);
  T_EQ(tide_profile_plan_request(NULL, 0).bytes, 0);
}

T_TEST(test_profile_plan__an_index_that_is_none_is_all_0) {
  const tide_profile_request one = { 8, 1, 1, 0 };
  const tide_profile_request nothing = { 0 };
  tide_profile_plan* const plan = planned_new(&one, 1, TIDE_PROFILE_SMALLEST);
  const size_t none[] = { 1, 2, SIZE_MAX };

  for (size_t i = 0; i < 3; i++) {
    const tide_profile_request request = tide_profile_plan_request(plan, none[i]);
    T_EQ(memcmp(&request, &nothing, sizeof nothing), 0);
  }
  tide_profile_plan_free(plan);
}

// ---------------------------------------------------------------------------------------------------
// Time

enum { TIMED = 3000 };

// Plans several times; returns the bytes of the arena.
static uint64_t plan_often(const tide_profile_request* requests, tide_profile_planner planner, int times) {
  tide_profile_plan_options options = TIDE_PROFILE_PLAN_OPTIONS_INIT;
  uint64_t bytes = 0;
  options.planner = planner;
  for (int i = 0; i < times; i++) {
    tide_profile_plan* plan = NULL;
    T_OK(tide_profile_plan_new(requests, TIMED, &options, &plan));
    bytes = tide_profile_plan_describe(plan).bytes;
    tide_profile_plan_free(plan);
  }
  return bytes;
}

// The default looks for more than best fit finds, in a time of the same order: a program waits for its plan.
T_TEST_OVER(test_profile_plan__the_default_takes_little_longer_than_best_fit, planned_kinds) {
  static tide_profile_request requests[TIMED];
  t_rng rng = t_rng_new(0);
  planned_random(requests, TIMED, t_variant(), &rng);
  const uint64_t begin = t_processor_ns();
  const uint64_t best_fit_bytes = plan_often(requests, TIDE_PROFILE_BEST_FIT, 40);
  const uint64_t middle = t_processor_ns();
  const uint64_t bytes = plan_often(requests, TIDE_PROFILE_SMALLEST, 2);
  const uint64_t end = t_processor_ns();
  T_LE(bytes, best_fit_bytes);
  T_LT(end - middle, middle - begin);
}

// ---------------------------------------------------------------------------------------------------
// Memory that fails

// A search may do with less memory; then there is a plan.
T_TEST(test_profile_plan__every_failing_record_is_reported_and_nothing_leaks) {
  tide_profile_request requests[30];
  t_rng rng = t_rng_new(0);
  planned_random(requests, 30, "any lifetime", &rng);
  tide_profile_plan_options options = TIDE_PROFILE_PLAN_OPTIONS_INIT;
  options.nodes = PLANNED_NODES;
  for (size_t k = 0; k < PLANNERS; k++) {
    bool has_failed = true;
    for (size_t n = 0; has_failed; n++) {
      counting_heap heap;
      tide_profile_plan* plan = NULL;
      counting_heap_init(&heap, n, n % 2 == 0);
      options.heap = &heap.heap;
      options.planner = planners[k];

      const tide_status status = tide_profile_plan_new(requests, 30, &options, &plan);

      has_failed = atomic_load(&heap.has_failed);
      if (status != TIDE_OK || planners[k] != TIDE_PROFILE_SMALLEST)
        T_STATUS(status, has_failed ? TIDE_ERR_NO_MEMORY : TIDE_OK);
      T_EQ(plan == NULL, status != TIDE_OK);
      tide_profile_plan_free(plan);
      T_EQ(atomic_load(&heap.outstanding), 0);
    }
  }
}
