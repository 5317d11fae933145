// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Every record, every arena and every piece of the fallback fails once, and all from one on: the failure is
// reported, no content is harmed, nothing leaks, no thread is left in a run that did not begin, and
// afterwards the profile works as if nothing had been.
#include "play.h"

#define STEPS "a100 b200 -a c300 o50 -b -c"
#define WIDE_STEPS "d10000 e20000 -d f30000 q5000 -e -f"

static tide_profile_options fault_options(void) {
  tide_profile_options options = TIDE_PROFILE_OPTIONS_INIT;
  options.plan_nodes = 1000;
  options.max_plans = 2;
  options.trim_after = 3;
  return options;
}

static void release_all(play* p) {
  for (char letter = 'a'; letter <= 'z'; letter++) {
    if (play_address(p, letter) != NULL) play_release(p, letter);
  }
}

static void expect_no_run(const play* p) {
  T_EQ(tide_profile_current(p->profile), TIDE_PROFILE_NONE);
  T_PTR_EQ(tide_profile_innermost(), NULL);
  T_STATUS(tide_profile_end(p->profile, NULL), TIDE_ERR_STATE);
}

static bool is_fault(tide_status status) { return status == TIDE_ERR_NO_MEMORY || status == TABLE_FAILURE; }

// A run in which anything may fail. If it does not begin, its steps go to the fallback all the same.
static void shaky_run(play* p, tide_profile_mode mode, uint64_t shape, const char* steps) {
  tide_profile_report report = TIDE_PROFILE_REPORT_INIT;
  const tide_status begun = tide_profile_begin(p->profile, mode, shape);
  T_CHECK(begun == TIDE_OK || is_fault(begun) || begun == TIDE_ERR_HANDLE);
  if (begun != TIDE_OK) expect_no_run(p);
  play_steps(p, steps);
  if (begun != TIDE_OK) return;
  const tide_status ended = tide_profile_end(p->profile, &report);
  T_CHECK(ended == TIDE_OK || is_fault(ended));
  expect_no_run(p);
}

static void shaky_plans(play* p) {
  tide_profile_plan* plan = NULL;
  const tide_status got = tide_profile_get_plan(p->profile, 0, &plan);
  T_CHECK(got == TIDE_OK || got == TIDE_ERR_HANDLE);
  if (got != TIDE_OK) return;
  const tide_status set = tide_profile_set_plan(p->profile, 2, plan);
  T_CHECK(set == TIDE_OK || is_fault(set));
  tide_profile_plan_free(plan);
}

// Something of everything: recording, replaying, late and early releases, larger, surplus and missing
// requests, survivors, what escapes, other shapes, plans that go, trimming.
static void shaky_life(play* p) {
  p->may_fail = true;
  shaky_run(p, TIDE_PROFILE_RECORD, 0, STEPS);
  play_steps(p, "-o");
  shaky_run(p, TIDE_PROFILE_VALIDATE, 0, STEPS " z10");
  play_steps(p, "-o -z");
  shaky_run(p, TIDE_PROFILE_REPLAY, 0, STEPS);
  shaky_run(p, TIDE_PROFILE_REPLAY, 0, "x100 y200 w300 -x v50 u90 -w");
  play_steps(p, "-o -v");
  shaky_run(p, TIDE_PROFILE_AUTO, 1, WIDE_STEPS);
  shaky_run(p, TIDE_PROFILE_AUTO, 1, "-q " WIDE_STEPS);
  play_steps(p, "-y -u -q");
  shaky_plans(p);
  shaky_run(p, TIDE_PROFILE_AUTO, 2, "a101 b200 c300 -b -c -a o50");
  play_steps(p, "-o");
  for (int i = 0; i < 4; i++) shaky_run(p, TIDE_PROFILE_AUTO, 0, STEPS " -o");
  const tide_status trimmed = tide_profile_trim(p->profile);
  T_CHECK(trimmed == TIDE_OK || is_fault(trimmed));
  shaky_run(p, TIDE_PROFILE_AUTO, 3, WIDE_STEPS " -q");
  p->may_fail = false;
}

// What every profile can do, also after failures.
static void expect_usable(play* p) {
  release_all(p);
  T_EQ(play_stats(p).survivors, 0);
  (void)play_run_shape(p, TIDE_PROFILE_RECORD, 9, STEPS);
  play_steps(p, "-o");
  for (int i = 0; i < 2; i++) {
    const tide_profile_report report = play_run_shape(p, TIDE_PROFILE_REPLAY, 9, STEPS);
    play_expect_same(&report, 4);
    play_steps(p, "-o");
  }
}

// ---------------------------------------------------------------------------------------------------
// Everything fails once

T_TEST(test_profile_faults__every_record) {
  const tide_profile_options options = fault_options();
  size_t faults = 0;
  bool has_failed = true;
  for (size_t n = t_sample_first(); has_failed; n += t_sample_step()) {
    play p;
    play_open(&p, &options);
    atomic_store(&p.heap.fail_at, atomic_load(&p.heap.allocs) + n / 2);
    p.heap.is_exhausted = n % 2 == 1;

    shaky_life(&p);

    has_failed = atomic_load(&p.heap.has_failed);
    faults += has_failed ? 1 : 0;
    atomic_store(&p.heap.fail_at, SIZE_MAX);
    p.heap.is_exhausted = false;
    expect_usable(&p);
    play_close(&p);
  }
  T_LT(20 / t_sample_step(), faults);
}

T_TEST(test_profile_faults__every_record_of_a_new_profile) {
  bool has_failed = true;
  for (size_t n = 0; has_failed; n++) {
    tide_profile_options options = fault_options();
    tide_profile* profile = NULL;
    counting_heap heap;
    counting_heap_init(&heap, n, n % 2 == 0);
    options.heap = &heap.heap;

    const tide_status status = tide_profile_new(&options, &profile);

    has_failed = atomic_load(&heap.has_failed);
    T_STATUS(status, has_failed ? TIDE_ERR_NO_MEMORY : TIDE_OK);
    T_EQ(profile == NULL, has_failed);
    tide_profile_free(profile);
    T_EQ(atomic_load(&heap.outstanding), 0);
  }
}

// `of_arenas`: the memory of the arenas fails, else the fallback.
static void expect_faults_of_memory(bool of_arenas) {
  const tide_profile_options options = fault_options();
  size_t faults = 0;
  bool has_failed = true;
  for (size_t n = 0; has_failed; n++) {
    play p;
    play_open(&p, &options);
    table* const failing = of_arenas ? &p.arenas : &p.fallback;
    table_fail(failing, n / 2, n % 2 == 1);

    shaky_life(&p);

    has_failed = failing->has_failed;
    faults += has_failed ? 1 : 0;
    table_mend(failing);
    expect_usable(&p);
    play_close(&p);
  }
  T_LT(4, faults);
}

T_TEST(test_profile_faults__every_arena) { expect_faults_of_memory(true); }

T_TEST(test_profile_faults__every_piece_of_the_fallback) { expect_faults_of_memory(false); }

// ---------------------------------------------------------------------------------------------------
// What a failure leaves behind

PLAY_TEST(test_profile_faults__a_run_that_does_not_begin_is_no_run, play_open(p, NULL)) {
  (void)play_run(p, TIDE_PROFILE_RECORD, STEPS);
  play_steps(p, "-o");
  for (size_t more = 0; more < 2; more++) {  // the arena, and that of what escapes
    table_fail(&p->arenas, more, false);
    T_STATUS(tide_profile_begin(p->profile, TIDE_PROFILE_REPLAY, 0), TABLE_FAILURE);
    expect_no_run(p);
    const size_t allocs = p->fallback.allocs;
    play_steps(p, "a100 -a");
    T_EQ(p->fallback.allocs, allocs + 1);
    T_OK(tide_profile_trim(p->profile));
    T_EQ(p->arenas.count, 0);
  }
  table_mend(&p->arenas);

  const tide_profile_report report = play_run(p, TIDE_PROFILE_REPLAY, STEPS);

  play_expect_same(&report, 4);
  play_steps(p, "-o");
}

// The next plan needs a larger arena, which there is not: what lies in the old one is not harmed.
PLAY_TEST(test_profile_faults__a_larger_arena_that_fails_harms_nothing, play_open(p, NULL)) {
  (void)play_run_shape(p, TIDE_PROFILE_RECORD, 0, "a100 b200 -a -b");
  (void)play_run_shape(p, TIDE_PROFILE_RECORD, 1, "d10000 e20000 -d -e");
  (void)play_run_shape(p, TIDE_PROFILE_REPLAY, 0, "a100 b200 -a");
  table_fail(&p->arenas, 0, true);

  for (int i = 0; i < 3; i++) T_STATUS(tide_profile_begin(p->profile, TIDE_PROFILE_REPLAY, 1), TABLE_FAILURE);

  expect_no_run(p);
  play_steps(p, "-b");
  table_mend(&p->arenas);
  const tide_profile_report small = play_run_shape(p, TIDE_PROFILE_REPLAY, 0, "a100 b200 -a -b");
  const tide_profile_report large = play_run_shape(p, TIDE_PROFILE_REPLAY, 1, "d10000 e20000 -d -e");
  play_expect_same(&small, 2);
  play_expect_same(&large, 2);
}

PLAY_TEST(test_profile_faults__a_plan_that_fails_leaves_the_one_before_it, play_open(p, NULL)) {
  (void)play_run(p, TIDE_PROFILE_RECORD, "a100 b200 -a -b");
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_RECORD, 0));
  play_steps(p, "c300 d400 e500 -c -d -e");

  atomic_store(&p->heap.fail_at, atomic_load(&p->heap.allocs));
  const tide_status status = tide_profile_end(p->profile, NULL);
  atomic_store(&p->heap.fail_at, SIZE_MAX);

  T_CHECK(atomic_load(&p->heap.has_failed));
  T_STATUS(status, TIDE_ERR_NO_MEMORY);
  expect_no_run(p);
  const tide_profile_report same = play_run(p, TIDE_PROFILE_REPLAY, "a100 b200 -a -b");
  play_expect_same(&same, 2);
}

PLAY_TEST(test_profile_faults__the_fallback_fails_in_a_replay, play_open(p, NULL)) {
  void* address = &address;
  (void)play_run(p, TIDE_PROFILE_RECORD, "a100 b200 -a -b");
  table_fail(&p->fallback, 0, false);
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_REPLAY, 0));
  play_steps(p, "a100 b200");

  T_STATUS(tide_profile_alloc(p->profile, 300, 0, &address), TABLE_FAILURE);

  T_PTR_EQ(address, NULL);
  play_steps(p, "c300 -a -b -c");  // asked again, it is there
  const tide_profile_report report = play_end(p);
  play_expect_consistent(&report);
  T_EQ(report.hits, 2);
  T_EQ(report.surplus, 2);  // what was refused is counted too
  T_EQ(report.requests, 4);
}
