// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Validating: a run that is served by the fallback is compared with the plan, by our rules and by those of
// the profiler that ours is modelled on.
#include "play.h"

#define STEPS "a100 b200 -a c300 -b -c"
#define CHAIN_OF_3 "a10 -a b20 -b c30 -c"
#define CHAIN_OF_5 CHAIN_OF_3 " d40 -d e50 -e"

// The report of a run, after another one was recorded. Nothing may be left.
static tide_profile_report validated(const char* recorded, const char* steps) {
  play p;
  play_open(&p, NULL);
  (void)play_run(&p, TIDE_PROFILE_RECORD, recorded);
  for (char letter = 'a'; letter <= 'z'; letter++) {
    if (play_address(&p, letter) != NULL) play_release(&p, letter);
  }
  const size_t arenas = p.arenas.allocs;

  const tide_profile_report report = play_run(&p, TIDE_PROFILE_VALIDATE, steps);

  T_EQ(report.mode, TIDE_PROFILE_VALIDATE);
  T_EQ(report.requests, report.hits + report.fallbacks);
  T_EQ(report.is_same, report.first == UINT64_MAX);
  T_EQ(p.arenas.allocs, arenas);
  T_EQ(play_stats(&p).validated, 1);
  for (char letter = 'a'; letter <= 'z'; letter++) {
    if (play_address(&p, letter) != NULL) play_release(&p, letter);
  }
  play_close(&p);
  return report;
}

T_TEST(test_profile_validate__the_same_run) {
  const tide_profile_report report = validated(STEPS, STEPS);

  T_CHECK(report.is_same);
  T_CHECK(report.passes_original);
  T_EQ(report.requests, 3);
  T_EQ(report.hits, 3);
  T_EQ(report.lower_bound, 500);
}

T_TEST(test_profile_validate__a_release_from_before_the_run) {
  play p;
  play_open(&p, NULL);
  (void)play_run(&p, TIDE_PROFILE_RECORD, STEPS);
  play_steps(&p, "x77");

  const tide_profile_report report = play_run(&p, TIDE_PROFILE_VALIDATE, "a100 b200 -a -x c300 -b -c");

  T_CHECK(report.is_same);
  T_CHECK(report.passes_original);
  T_EQ(play_stats(&p).unknown_releases, 1);
  play_close(&p);
}

T_TEST(test_profile_validate__what_is_never_released) {
  const tide_profile_report report = validated("a100 b200 -a", "a100 b200 -a");

  T_CHECK(report.is_same);
  T_CHECK(report.passes_original);
}

T_TEST(test_profile_validate__a_larger_request) {
  const tide_profile_report report = validated(STEPS, "a100 b201 -a c300 -b -c");

  T_CHECK(!report.is_same);
  T_CHECK(!report.passes_original);
  T_EQ(report.larger, 1);
  T_EQ(report.first, 1);
}

T_TEST(test_profile_validate__a_smaller_request_fails_only_by_the_original_rules) {
  const tide_profile_report report = validated(STEPS, "a100 b199 -a c300 -b -c");

  T_CHECK(!report.passes_original);
  T_CHECK(!report.is_same);
  T_EQ(report.smaller, 1);
  T_EQ(report.hits, 3);  // it would fit
  T_EQ(report.larger + report.surplus + report.missing, 0);
}

T_TEST(test_profile_validate__one_request_too_many) {
  const tide_profile_report report = validated(STEPS, STEPS " d10 -d");

  T_CHECK(!report.is_same);
  T_CHECK(!report.passes_original);
  T_EQ(report.requests, 4);
  T_EQ(report.surplus, 1);
  T_EQ(report.first, 3);
}

T_TEST(test_profile_validate__requests_that_are_missing_pass_only_by_the_original_rules) {
  const tide_profile_report report = validated(CHAIN_OF_5, CHAIN_OF_3);

  T_CHECK(report.passes_original);
  T_CHECK(!report.is_same);
  T_EQ(report.missing, 2);
  T_EQ(report.hits, 3);
}

T_TEST(test_profile_validate__released_too_early) {
  const tide_profile_report report = validated(STEPS, "a100 -a b200 c300 -b -c");

  T_CHECK(!report.is_same);
  T_CHECK(!report.passes_original);
  T_EQ(report.early, 1);
  T_EQ(report.first, 1);
}

T_TEST(test_profile_validate__released_too_late) {
  const tide_profile_report report = validated(STEPS, "a100 b200 c300 -a -b -c");

  T_CHECK(!report.is_same);
  T_CHECK(!report.passes_original);
  T_EQ(report.late, 1);
}

T_TEST(test_profile_validate__not_released_passes_only_by_the_original_rules) {
  const tide_profile_report report = validated(STEPS, "a100 b200 -a c300 -b");

  T_CHECK(report.passes_original);
  T_CHECK(!report.is_same);
  T_EQ(report.survivors, 1);
}

T_TEST(test_profile_validate__released_although_it_never_was) {
  const tide_profile_report report = validated("a100 b200 -a", "a100 b200 -a -b");

  T_CHECK(!report.is_same);
  T_CHECK(!report.passes_original);
  T_EQ(report.early, 1);
}

T_TEST(test_profile_validate__released_twice) {
  const char memory[2] = { 0 };
  play p;
  play_open(&p, NULL);
  (void)play_run(&p, TIDE_PROFILE_RECORD, "a100 -a b200 -b");
  T_OK(tide_profile_begin(p.profile, TIDE_PROFILE_VALIDATE, 0));
  T_OK(tide_profile_note_alloc(p.profile, &memory[0], 100, 0));
  T_OK(tide_profile_note_release(p.profile, &memory[0]));
  T_OK(tide_profile_note_alloc(p.profile, &memory[1], 200, 0));

  T_OK(tide_profile_note_release(p.profile, &memory[0]));

  T_OK(tide_profile_note_release(p.profile, &memory[1]));
  T_CHECK(play_end(&p).is_same);
  T_EQ(play_stats(&p).unknown_releases, 1);
  play_close(&p);
}

T_TEST(test_profile_validate__released_on_another_thread) {
  const tide_profile_report report = validated(STEPS, "a100 b200 ~a c300 -b -c");

  T_CHECK(report.passes_original);
}

T_TEST(test_profile_validate__zero_bytes_are_not_compared) {
  play p;
  void* nothing = &p;
  play_open(&p, NULL);
  (void)play_run(&p, TIDE_PROFILE_RECORD, STEPS);
  T_OK(tide_profile_begin(p.profile, TIDE_PROFILE_VALIDATE, 0));
  play_steps(&p, "a100 b200");
  T_OK(tide_profile_alloc(p.profile, 0, 64, &nothing));
  play_steps(&p, "-a c300 -b -c");

  const tide_profile_report report = play_end(&p);

  T_PTR_EQ(nothing, NULL);
  T_CHECK(report.is_same);
  T_EQ(report.requests, 3);
  play_close(&p);
}

// The run goes on after the first deviation, and all of it is counted.
T_TEST(test_profile_validate__goes_on_after_a_deviation) {
  const tide_profile_report report = validated(CHAIN_OF_5, "a11 -a b20 -b c31 -c d40 -d e50 -e");

  T_EQ(report.requests, 5);
  T_EQ(report.larger, 2);
  T_EQ(report.hits, 3);
  T_EQ(report.first, 0);
}

// A run far longer than the plan.
T_TEST(test_profile_validate__many_requests_too_many) {
  play p;
  play_open(&p, NULL);
  (void)play_run(&p, TIDE_PROFILE_RECORD, "a10 -a");
  T_OK(tide_profile_begin(p.profile, TIDE_PROFILE_VALIDATE, 0));
  for (int i = 0; i < 1000; i++) play_steps(&p, "a10 -a");

  const tide_profile_report report = play_end(&p);

  T_CHECK(!report.passes_original);
  T_EQ(report.requests, 1000);
  T_EQ(report.surplus, 999);
  T_EQ(report.first, 1);
  play_close(&p);
}

T_TEST(test_profile_validate__a_shape_without_a_plan_is_refused) {
  play p;
  play_open(&p, NULL);
  (void)play_run_shape(&p, TIDE_PROFILE_RECORD, 1, STEPS);

  T_STATUS(tide_profile_begin(p.profile, TIDE_PROFILE_VALIDATE, 2), TIDE_ERR_HANDLE);

  T_EQ(tide_profile_current(p.profile), TIDE_PROFILE_NONE);
  T_PTR_EQ(tide_profile_innermost(), NULL);
  play_close(&p);
}

// Validation says which sizes differ first, not only where.
T_TEST(test_profile_validate__tells_the_sizes_of_the_first_request_that_differs) {
  static const struct {
    const char* steps;
    uint64_t planned;
    uint64_t actual;
  } cases[] = {
    { "a100 b200 -a c300 -b -c", 0, 0 },
    { "a100 b250 -a c300 -b -c", 200, 250 },      // larger
    { "a100 b200 -a c30 -b -c", 300, 30 },        // smaller
    { "a100 c300 -a -c", 200, 300 },              // one is missing
    { "a100 b200 -a c300 -b -c d77 -d", 0, 77 },  // one too many
    { "a100 b201 -a c301 -b -c", 200, 201 },      // the first of two
    { "a100 b200 c300 -a -b -c", 0, 0 },          // released at another time
  };
  play p;
  play_open(&p, NULL);
  (void)play_run(&p, TIDE_PROFILE_RECORD, "a100 b200 -a c300 -b -c");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (int mode = TIDE_PROFILE_VALIDATE; mode <= TIDE_PROFILE_REPLAY; mode++) {
      const tide_profile_report report = play_run(&p, (tide_profile_mode)mode, cases[i].steps);
      T_EQ(report.first_planned, cases[i].planned);
      T_EQ(report.first_actual, cases[i].actual);
    }
  }
  play_close(&p);
}
