// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Validating: a run that the fallback serves is compared with the plan, by our rules and by those of
// PyTorch's mobile profiler.
#define T_THREADS
#include "play.h"

#define STEPS "a100 b200 -a c300 -b -c"
#define CHAIN_OF_3 "a10 -a b20 -b c30 -c"
#define CHAIN_OF_5 CHAIN_OF_3 " d40 -d e50 -e"

typedef struct validate_row {
  const char* rule;
  const char* recorded;
  const char* validated;
  bool passes_original;  // by the rules of PyTorch's mobile profiler
  const char* report;
} validate_row;

static const validate_row rows[] = {
  { "the same run", STEPS, STEPS, true, "same requests=3 hits=3 lower_bound=500" },
  { "never released", "a100 b200 -a", "a100 b200 -a", true, "same" },
  { "a larger request", STEPS, "a100 b201 -a c300 -b -c", false, "other larger=1 first=1" },
  { "a smaller request", STEPS, "a100 b199 -a c300 -b -c", false,
    "other hits=3 smaller=1 larger=0 surplus=0 missing=0" },
  { "one request too many", STEPS, STEPS " d10 -d", false, "other requests=4 surplus=1 first=3" },
  { "missing requests", CHAIN_OF_5, CHAIN_OF_3, true, "other hits=3 missing=2" },
  { "an early release", STEPS, "a100 -a b200 c300 -b -c", false, "other early=1 first=1" },
  { "a late release", STEPS, "a100 b200 c300 -a -b -c", false, "other late=1" },
  { "not released", STEPS, "a100 b200 -a c300 -b", true, "other survivors=1" },
  { "released although it never was", "a100 b200 -a", "a100 b200 -a -b", false, "other early=1" },
  { "released on another thread", STEPS, "a100 b200 ~a c300 -b -c", true, "" },
  { "the run goes on after a deviation", CHAIN_OF_5, "a11 -a b20 -b c31 -c d40 -d e50 -e", false,
    "other requests=5 larger=2 hits=3 first=0" },
};

T_TEST(test_profile_validate__follows_the_table) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    play p;
    play_open(&p, NULL);
    (void)play_run(&p, TIDE_PROFILE_RECORD, rows[i].recorded);
    play_release_all(&p);
    const size_t arenas = p.arenas.allocs;

    const tide_profile_report report = play_run(&p, TIDE_PROFILE_VALIDATE, rows[i].validated);

    T_EQ(report.mode, TIDE_PROFILE_VALIDATE);
    T_EQ(report.requests, report.hits + report.fallbacks);
    T_EQ(report.is_same, report.first == UINT64_MAX);
    if (report.passes_original != rows[i].passes_original) T_FAIL("%s: by the original rules", rows[i].rule);
    play_expect_report(rows[i].rule, &report, rows[i].report);
    T_EQ(p.arenas.allocs, arenas);
    T_EQ(play_stats(&p).validated, 1);
    play_release_all(&p);
    play_close(&p);
  }
}

PLAY_TEST(test_profile_validate__a_release_from_before_the_run, play_open(p, NULL)) {
  (void)play_run(p, TIDE_PROFILE_RECORD, STEPS);
  play_steps(p, "x77");

  const tide_profile_report report = play_run(p, TIDE_PROFILE_VALIDATE, "a100 b200 -a -x c300 -b -c");

  T_CHECK(report.is_same);
  T_CHECK(report.passes_original);
  T_EQ(play_stats(p).unknown_releases, 1);
}

PLAY_TEST(test_profile_validate__released_twice, play_open(p, NULL)) {
  const char memory[2] = { 0 };
  (void)play_run(p, TIDE_PROFILE_RECORD, "a100 -a b200 -b");
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_VALIDATE, 0));
  T_OK(tide_profile_note_alloc(p->profile, &memory[0], 100, 0));
  T_OK(tide_profile_note_release(p->profile, &memory[0]));
  T_OK(tide_profile_note_alloc(p->profile, &memory[1], 200, 0));

  T_OK(tide_profile_note_release(p->profile, &memory[0]));

  T_OK(tide_profile_note_release(p->profile, &memory[1]));
  T_CHECK(play_end(p).is_same);
  T_EQ(play_stats(p).unknown_releases, 1);
}

PLAY_TEST(test_profile_validate__zero_bytes_are_not_compared, play_open(p, NULL)) {
  void* nothing = p;
  (void)play_run(p, TIDE_PROFILE_RECORD, STEPS);
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_VALIDATE, 0));
  play_steps(p, "a100 b200");
  T_OK(tide_profile_alloc(p->profile, 0, 64, &nothing));
  play_steps(p, "-a c300 -b -c");

  const tide_profile_report report = play_end(p);

  T_PTR_EQ(nothing, NULL);
  T_CHECK(report.is_same);
  T_EQ(report.requests, 3);
}

// A run far longer than the plan.
PLAY_TEST(test_profile_validate__many_requests_too_many, play_open(p, NULL)) {
  (void)play_run(p, TIDE_PROFILE_RECORD, "a10 -a");
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_VALIDATE, 0));
  for (int i = 0; i < 1000; i++) play_steps(p, "a10 -a");

  const tide_profile_report report = play_end(p);

  T_CHECK(!report.passes_original);
  T_EQ(report.requests, 1000);
  T_EQ(report.surplus, 999);
  T_EQ(report.first, 1);
}

PLAY_TEST(test_profile_validate__a_shape_without_a_plan_is_refused, play_open(p, NULL)) {
  (void)play_run_shape(p, TIDE_PROFILE_RECORD, 1, STEPS);

  T_STATUS(tide_profile_begin(p->profile, TIDE_PROFILE_VALIDATE, 2), TIDE_ERR_HANDLE);

  T_EQ(tide_profile_current(p->profile), TIDE_PROFILE_NONE);
  T_PTR_EQ(tide_profile_innermost(), NULL);
}

// Validation says which sizes differ first, not only where.
PLAY_TEST(test_profile_validate__tells_the_sizes_of_the_first_request_that_differs, play_open(p, NULL)) {
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
  (void)play_run(p, TIDE_PROFILE_RECORD, "a100 b200 -a c300 -b -c");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (int mode = TIDE_PROFILE_VALIDATE; mode <= TIDE_PROFILE_REPLAY; mode++) {
      const tide_profile_report report = play_run(p, (tide_profile_mode)mode, cases[i].steps);
      T_EQ(report.first_planned, cases[i].planned);
      T_EQ(report.first_actual, cases[i].actual);
    }
  }
}
