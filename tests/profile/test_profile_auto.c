// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// TIDE_PROFILE_AUTO: what is recorded and replayed, plans of several shapes, recording again, arenas that
// are too large, and plans that are set.
#include "planned.h"
#include "play.h"

#define STEPS "a100 b200 -a c300 -b -c"

// A run that grows from call to call, so that it never repeats.
static tide_profile_report growing_run(play* p, size_t bytes) {
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_AUTO, 0));
  for (size_t i = 0; i < 5; i++) {
    play_alloc(p, 'a', bytes, 0);
    play_release(p, 'a');
  }
  return play_end(p);
}

static tide_profile_options auto_options(uint32_t replan_after) {
  tide_profile_options options = TIDE_PROFILE_OPTIONS_INIT;
  options.replan_after = replan_after;
  return options;
}

static void open_auto(play* p, uint32_t replan_after) {
  const tide_profile_options options = auto_options(replan_after);
  play_open(p, &options);
}

// ---------------------------------------------------------------------------------------------------
// Shapes

PLAY_TEST(test_profile_auto__records_once_and_then_replays, play_open(p, NULL)) {
  T_EQ(play_run(p, TIDE_PROFILE_AUTO, STEPS).mode, TIDE_PROFILE_RECORD);
  for (int i = 0; i < 10; i++) {
    const tide_profile_report report = play_run(p, TIDE_PROFILE_AUTO, STEPS);
    play_expect_same(&report, 3);
  }

  T_EQ(play_stats(p).recorded, 1);
  T_EQ(play_stats(p).replayed, 10);
  T_EQ(play_stats(p).replanned, 0);
}

PLAY_TEST(test_profile_auto__tells_its_mode, play_open(p, NULL)) {
  for (int i = 0; i < 2; i++) {
    const tide_profile_mode mode = i == 0 ? TIDE_PROFILE_RECORD : TIDE_PROFILE_REPLAY;
    T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_AUTO, 0));
    T_EQ(tide_profile_current(p->profile), mode);
    play_steps(p, STEPS);
    (void)play_end(p);
    T_EQ(tide_profile_current(p->profile), TIDE_PROFILE_NONE);
  }
}

PLAY_TEST(test_profile_auto__every_shape_has_its_plan, play_open(p, NULL)) {
  const char* const steps[] = { "a10 b20 -a -b", "a1000 -a b2000 -b c3000 -c", "a5 b6 c7 d8 -a -b -c -d" };
  const uint64_t requests[] = { 2, 3, 4 };

  for (int i = 0; i < 5; i++) {
    for (uint64_t shape = 0; shape < 3; shape++) {
      const tide_profile_report report = play_run_shape(p, TIDE_PROFILE_AUTO, shape, steps[shape]);
      if (i == 0) T_EQ(report.mode, TIDE_PROFILE_RECORD);
      else play_expect_same(&report, requests[shape]);
    }
  }

  T_EQ(play_stats(p).recorded, 3);
  T_EQ(play_stats(p).plans, 3);
}

T_TEST(test_profile_auto__the_plan_that_was_not_used_for_longest_goes) {
  tide_profile_options options = TIDE_PROFILE_OPTIONS_INIT;
  tide_profile_plan* plan = NULL;
  play p;
  options.max_plans = 3;
  play_open(&p, &options);
  for (uint64_t shape = 0; shape < 3; shape++) (void)play_run_shape(&p, TIDE_PROFILE_AUTO, shape, STEPS);
  (void)play_run_shape(&p, TIDE_PROFILE_AUTO, 0, STEPS);

  (void)play_run_shape(&p, TIDE_PROFILE_AUTO, 3, STEPS);

  T_EQ(play_stats(&p).plans, 3);
  T_STATUS(tide_profile_get_plan(p.profile, 1, &plan), TIDE_ERR_HANDLE);
  T_EQ(play_run_shape(&p, TIDE_PROFILE_AUTO, 0, STEPS).mode, TIDE_PROFILE_REPLAY);
  T_EQ(play_run_shape(&p, TIDE_PROFILE_AUTO, 2, STEPS).mode, TIDE_PROFILE_REPLAY);
  T_EQ(play_run_shape(&p, TIDE_PROFILE_AUTO, 3, STEPS).mode, TIDE_PROFILE_REPLAY);
  T_EQ(play_run_shape(&p, TIDE_PROFILE_AUTO, 1, STEPS).mode, TIDE_PROFILE_RECORD);
  T_EQ(play_stats(&p).plans, 3);
  play_close(&p);
}

// A plan that a run uses may go meanwhile.
T_TEST(test_profile_auto__a_plan_may_go_while_it_is_replayed) {
  tide_profile_options options = TIDE_PROFILE_OPTIONS_INIT;
  play p;
  options.max_plans = 1;
  play_open(&p, &options);
  (void)play_run_shape(&p, TIDE_PROFILE_AUTO, 0, STEPS);
  tide_profile_plan* const plan = play_plan(&p, 0);
  T_OK(tide_profile_begin(p.profile, TIDE_PROFILE_AUTO, 0));
  play_steps(&p, "a100 b200");

  T_OK(tide_profile_set_plan(p.profile, 1, plan));

  tide_profile_plan_free(plan);
  play_steps(&p, "-a c300 -b -c");
  const tide_profile_report report = play_end(&p);
  play_expect_same(&report, 3);
  T_EQ(play_stats(&p).plans, 1);
  play_close(&p);
}

T_TEST(test_profile_auto__a_shape_is_a_number_of_several) {
  const uint64_t numbers[] = { 1, 2, 3, 4 };
  const uint64_t swapped[] = { 2, 1, 3, 4 };

  T_EQ(tide_profile_shape(numbers, 4), tide_profile_shape(numbers, 4));
  T_NE(tide_profile_shape(numbers, 4), tide_profile_shape(swapped, 4));
  T_NE(tide_profile_shape(numbers, 4), tide_profile_shape(numbers, 3));
  T_NE(tide_profile_shape(numbers, 1), tide_profile_shape(numbers + 1, 1));
  T_EQ(tide_profile_shape(NULL, 0), tide_profile_shape(numbers, 0));
}

// Many shapes that differ in one extent have many numbers.
T_TEST(test_profile_auto__shapes_do_not_collide) {
  uint64_t seen[1000];
  for (uint64_t i = 0; i < 1000; i++) {
    const uint64_t extents[] = { 8, 3, i, 224 };
    seen[i] = tide_profile_shape(extents, 4);
    for (uint64_t k = 0; k < i; k++) T_NE(seen[i], seen[k]);
  }
}

// ---------------------------------------------------------------------------------------------------
// Recording again

PLAY_TEST(test_profile_auto__a_plan_that_deviates_again_and_again_is_made_anew, open_auto(p, 3)) {
  T_EQ(play_run(p, TIDE_PROFILE_AUTO, STEPS).mode, TIDE_PROFILE_RECORD);
  const char* const other = "a1000 b2000 -a c3000 -b -c";
  for (int i = 0; i < 3; i++) T_EQ(play_run(p, TIDE_PROFILE_AUTO, other).larger, 3);

  T_EQ(play_run(p, TIDE_PROFILE_AUTO, other).mode, TIDE_PROFILE_RECORD);

  const tide_profile_report report = play_run(p, TIDE_PROFILE_AUTO, other);
  play_expect_same(&report, 3);
  T_EQ(play_stats(p).differing, 3);
  T_EQ(play_stats(p).replanned, 1);
  T_EQ(play_stats(p).plans, 1);
}

PLAY_TEST(test_profile_auto__only_deviations_in_a_row_count, open_auto(p, 2)) {
  (void)play_run(p, TIDE_PROFILE_AUTO, STEPS);

  for (int i = 0; i < 10; i++) {
    T_EQ(play_run(p, TIDE_PROFILE_AUTO, "a1000 b2000 -a c3000 -b -c").mode, TIDE_PROFILE_REPLAY);
    T_EQ(play_run(p, TIDE_PROFILE_AUTO, STEPS).mode, TIDE_PROFILE_REPLAY);
  }

  T_EQ(play_stats(p).recorded, 1);
  T_EQ(play_stats(p).differing, 10);
}

// Recorded, then replanned after 1, 2, 4 ... and at most 64 runs that deviate.
PLAY_TEST(test_profile_auto__waits_twice_as_long_each_time, open_auto(p, 1)) {
  const uint64_t waits[] = { 1, 2, 4, 8, 16, 32, 64, 64, 64 };
  size_t bytes = 100;
  for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
    T_EQ(growing_run(p, bytes += 100).mode, TIDE_PROFILE_RECORD);
    for (uint64_t k = 0; k < waits[i]; k++) T_EQ(growing_run(p, bytes += 100).mode, TIDE_PROFILE_REPLAY);
  }

  T_EQ(growing_run(p, bytes += 100).mode, TIDE_PROFILE_RECORD);
  T_EQ(play_stats(p).replanned, 9);
}

PLAY_TEST(test_profile_auto__never_plans_again_if_told_so, open_auto(p, 0)) {
  (void)play_run(p, TIDE_PROFILE_AUTO, STEPS);

  for (int i = 0; i < 50; i++)
    T_EQ(play_run(p, TIDE_PROFILE_AUTO, "a1000 b2000 -a c3000 -b -c").mode, TIDE_PROFILE_REPLAY);

  T_EQ(play_stats(p).differing, 50);
}

// A few deviating requests among many are tolerated.
static tide_profile_report crowd_run(play* p, size_t extra, size_t missing) {
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_AUTO, 0));
  for (size_t i = missing; i < 200; i++) {
    play_alloc(p, 'a', 100, 0);
    play_release(p, 'a');
  }
  for (size_t i = 0; i < extra; i++) {
    play_alloc(p, 'a', 5000, 0);
    play_release(p, 'a');
  }
  return play_end(p);
}

T_TEST(test_profile_auto__tolerates_a_few) {
  tide_profile_options options = auto_options(1);
  play p;
  options.tolerance = 0.02;
  play_open(&p, &options);
  (void)crowd_run(&p, 0, 0);

  for (int i = 0; i < 5; i++) {
    T_EQ(crowd_run(&p, 3, 0).mode, TIDE_PROFILE_REPLAY);
    T_EQ(crowd_run(&p, 0, 3).mode, TIDE_PROFILE_REPLAY);
  }
  T_EQ(play_stats(&p).recorded, 1);
  T_EQ(crowd_run(&p, 6, 0).mode, TIDE_PROFILE_REPLAY);
  T_EQ(crowd_run(&p, 0, 0).mode, TIDE_PROFILE_RECORD);
  for (int i = 0; i < 2; i++) T_EQ(crowd_run(&p, 0, 6).mode, TIDE_PROFILE_REPLAY);  // patience has doubled

  T_EQ(crowd_run(&p, 0, 0).mode, TIDE_PROFILE_RECORD);
  play_close(&p);
}

T_TEST(test_profile_auto__cancelled_runs_do_not_count) {
  const tide_profile_options options = auto_options(1);
  play p;
  play_open(&p, &options);
  (void)play_run(&p, TIDE_PROFILE_AUTO, STEPS);
  for (int i = 0; i < 5; i++) {
    T_OK(tide_profile_begin(p.profile, TIDE_PROFILE_AUTO, 0));
    play_steps(&p, "a9999 -a");
    T_OK(tide_profile_cancel(p.profile));
  }

  T_EQ(play_run(&p, TIDE_PROFILE_AUTO, STEPS).mode, TIDE_PROFILE_REPLAY);

  T_EQ(play_stats(&p).differing, 0);
  play_close(&p);
}

// ---------------------------------------------------------------------------------------------------
// Arenas that are too large

static uint64_t arena_after(uint32_t trim_after, int small_runs) {
  tide_profile_options options = TIDE_PROFILE_OPTIONS_INIT;
  play p;
  options.trim_after = trim_after;
  play_open(&p, &options);
  (void)play_run_shape(&p, TIDE_PROFILE_RECORD, 0, "a1000000 -a");
  (void)play_run_shape(&p, TIDE_PROFILE_RECORD, 1, STEPS);
  (void)play_run_shape(&p, TIDE_PROFILE_REPLAY, 0, "a1000000 -a");
  T_LE(1000000, play_stats(&p).arena_bytes);
  for (int i = 0; i < small_runs; i++) {
    const tide_profile_report report = play_run_shape(&p, TIDE_PROFILE_REPLAY, 1, STEPS);
    play_expect_same(&report, 3);
  }
  const uint64_t bytes = play_stats(&p).arena_bytes;
  T_LE(bytes, p.arenas.bytes + 4096 * p.arenas.count);
  T_LE(1000000, play_stats(&p).arena_bytes_peak);
  const tide_profile_report report = play_run_shape(&p, TIDE_PROFILE_REPLAY, 0, "a1000000 -a");
  play_expect_same(&report, 1);
  play_close(&p);
  return bytes;
}

T_TEST(test_profile_auto__a_large_arena_is_replaced_when_nobody_needs_it) {
  T_LT(arena_after(4, 10), 100000);
}

T_TEST(test_profile_auto__a_large_arena_stays_for_a_while) { T_LE(1000000, arena_after(10, 4)); }

T_TEST(test_profile_auto__a_large_arena_stays_for_ever_if_told_so) { T_LE(1000000, arena_after(0, 100)); }

// ---------------------------------------------------------------------------------------------------
// Plans that are set

PLAY_TEST(test_profile_auto__a_plan_that_was_set_is_replayed, play_open(p, NULL)) {
  const tide_profile_request requests[] = { { 100, 64, 2, 0 }, { 200, 64, 3, 0 }, { 300, 64, 3, 0 } };
  tide_profile_plan* const plan = planned_new(requests, 3, TIDE_PROFILE_SMALLEST);

  T_OK(tide_profile_set_plan(p->profile, 7, plan));
  tide_profile_plan_free(plan);

  const tide_profile_report report = play_run_shape(p, TIDE_PROFILE_AUTO, 7, STEPS);
  play_expect_same(&report, 3);
  T_EQ(play_stats(p).recorded, 0);
}

T_TEST(test_profile_auto__a_plan_outlives_its_profile) {
  play first;
  play second;
  play_open(&first, NULL);
  play_open(&second, NULL);
  (void)play_run(&first, TIDE_PROFILE_RECORD, STEPS);
  tide_profile_plan* const plan = play_plan(&first, 0);
  const uint64_t bytes = tide_profile_plan_describe(plan).bytes;

  T_OK(tide_profile_set_plan(second.profile, 0, plan));
  tide_profile_free(first.profile);

  T_EQ(tide_profile_plan_describe(plan).bytes, bytes);
  tide_profile_plan_free(plan);
  const tide_profile_report report = play_run(&second, TIDE_PROFILE_REPLAY, STEPS);
  play_expect_same(&report, 3);
  play_close(&second);
  first.profile = NULL;
  play_close(&first);
}

PLAY_TEST(test_profile_auto__bad_plans_and_shapes_are_refused, play_open(p, NULL)) {
  tide_profile_plan* plan = NULL;

  T_STATUS(tide_profile_set_plan(p->profile, 0, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_profile_get_plan(p->profile, 0, &plan), TIDE_ERR_HANDLE);
  T_STATUS(tide_profile_get_plan(p->profile, 0, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_profile_get_plan(NULL, 0, &plan), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_profile_begin(p->profile, TIDE_PROFILE_REPLAY, 0), TIDE_ERR_HANDLE);
  T_STATUS(tide_profile_begin(p->profile, TIDE_PROFILE_NONE, 0), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_profile_begin(p->profile, (tide_profile_mode)99, 0), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_profile_begin(NULL, TIDE_PROFILE_AUTO, 0), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_profile_end(p->profile, NULL), TIDE_ERR_STATE);
  T_STATUS(tide_profile_end(NULL, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_profile_trim(NULL), TIDE_ERR_ARGUMENT);

  T_PTR_EQ(tide_profile_innermost(), NULL);
  T_PTR_EQ(plan, NULL);
}

// ---------------------------------------------------------------------------------------------------
// Options

static void expect_refused(const tide_profile_options* options) {
  tide_profile* profile = (tide_profile*)(uintptr_t)1;
  T_STATUS(tide_profile_new(options, &profile), TIDE_ERR_ARGUMENT);
  T_PTR_EQ(profile, NULL);
}

static tide_status half_alloc(const tide_memory* memory, size_t bytes, size_t alignment, void** out) {
  (void)memory;
  (void)bytes;
  (void)alignment;
  *out = NULL;
  return TIDE_ERR_NO_MEMORY;
}

T_TEST(test_profile_auto__options_out_of_range_are_refused) {
  const tide_profile_options defaults = TIDE_PROFILE_OPTIONS_INIT;
  tide_profile_options options = defaults;
  options.alignment = 48;
  expect_refused(&options);
  options.alignment = 2 * (uint64_t)TIDE_PROFILE_MAX_ALIGNMENT;
  expect_refused(&options);
  options = defaults;
  options.planner = (tide_profile_planner)9;
  expect_refused(&options);
  options = defaults;
  options.fill = (tide_fill)9;
  expect_refused(&options);
  options = defaults;
  options.tolerance = -1;
  expect_refused(&options);
  options = defaults;
  options.memory.alloc = half_alloc;
  expect_refused(&options);
  options = defaults;
  options.fallback.alloc = half_alloc;
  expect_refused(&options);
  T_STATUS(tide_profile_new(&defaults, NULL), TIDE_ERR_ARGUMENT);
}

T_TEST(test_profile_auto__nothing_is_asked_of_no_profile) {
  tide_profile_free(NULL);
  tide_profile_stats stats = TIDE_PROFILE_STATS_INIT;
  T_STATUS(tide_profile_get_stats(NULL, &stats), TIDE_ERR_ARGUMENT);
  T_CHECK(!tide_profile_owns(NULL, &errno));
  T_EQ(tide_profile_current(NULL), TIDE_PROFILE_NONE);
}

// Without options all memory comes from the computer.
T_TEST(test_profile_auto__defaults_work) {
  tide_profile* profile = NULL;
  tide_profile_report report = TIDE_PROFILE_REPORT_INIT;
  T_OK(tide_profile_new(NULL, &profile));
  for (int i = 0; i < 3; i++) {
    void* address = NULL;
    T_OK(tide_profile_begin(profile, TIDE_PROFILE_AUTO, 0));
    T_OK(tide_profile_alloc(profile, 1000, 0, &address));
    memset(address, i, 1000);
    T_EQ((uintptr_t)address % 64, 0);
    T_OK(tide_profile_release(profile, address));
    T_OK(tide_profile_end(profile, &report));
  }
  T_CHECK(report.is_same);
  tide_profile_free(profile);
}
