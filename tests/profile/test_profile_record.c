// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Recording: the requests and lifetimes of a run, notes, incomplete runs, and nested runs.
#define T_THREADS
#include "play.h"

// The lifetimes in the plan of the shape 0, from the first on.
static void expect_lifetimes(play* p, const uint64_t* lifetimes, size_t count) {
  T_EQ(play_info(p, 0).count, count);
  for (size_t i = 0; i < count; i++) T_EQ(play_lifetime(p, i), lifetimes[i]);
}

// ---------------------------------------------------------------------------------------------------
// Lifetimes

PLAY_TEST(test_profile_record__time_is_the_number_of_requests, play_open(p, NULL)) {
  const tide_profile_report report = play_run(p, TIDE_PROFILE_RECORD, "a10 b20 -a c30 d40 -c -b -d");

  const uint64_t lifetimes[] = { 2, 4, 4, 4 };
  expect_lifetimes(p, lifetimes, 4);
  T_EQ(report.mode, TIDE_PROFILE_RECORD);
  T_EQ(report.requests, 4);
  T_EQ(report.hits, 0);
  T_EQ(report.fallbacks, 0);
  T_EQ(p->fallback.allocs, 4);
  T_EQ(p->fallback.releases, 4);
  T_EQ(play_stats(p).hits, 0);
  T_EQ(report.plan_bytes, play_info(p, 0).bytes);
  T_EQ(report.lower_bound, 90);
  T_EQ(play_stats(p).recorded, 1);
  T_EQ(play_stats(p).plans, 1);
}

PLAY_TEST(test_profile_record__what_is_not_released_in_the_run_is_never_released, play_open(p, NULL)) {
  (void)play_run(p, TIDE_PROFILE_RECORD, "a10 b20 -b c30 -c");
  play_steps(p, "-a");

  const uint64_t lifetimes[] = { TIDE_PROFILE_NEVER, 2, 3 };
  expect_lifetimes(p, lifetimes, 3);
  T_EQ(play_info(p, 0).managed, 2);
}

PLAY_TEST(test_profile_record__a_release_from_before_the_run_is_ignored, play_open(p, NULL)) {
  play_steps(p, "x100");

  (void)play_run(p, TIDE_PROFILE_RECORD, "a10 -x b20 -a -b");

  const uint64_t lifetimes[] = { 2, 2 };
  expect_lifetimes(p, lifetimes, 2);
  T_EQ(play_stats(p).unknown_releases, 1);
}

PLAY_TEST(test_profile_record__zero_bytes_are_not_planned, play_open(p, NULL)) {
  void* nothing = p;
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_RECORD, 0));
  play_steps(p, "a10");

  T_OK(tide_profile_alloc(p->profile, 0, 0, &nothing));
  T_OK(tide_profile_release(p->profile, nothing));

  T_PTR_EQ(nothing, NULL);
  play_steps(p, "b20 -a -b");
  T_EQ(play_end(p).requests, 2);
  const uint64_t lifetimes[] = { 2, 2 };
  expect_lifetimes(p, lifetimes, 2);
}

PLAY_TEST(test_profile_record__requests_keep_their_alignment, play_open(p, NULL)) {
  (void)play_run(p, TIDE_PROFILE_RECORD, "a10 b20@1 c30@4096 -a -b -c");

  tide_profile_plan* const plan = play_plan(p, 0);
  T_EQ(tide_profile_plan_request(plan, 0).alignment, 64);
  T_EQ(tide_profile_plan_request(plan, 1).alignment, 1);
  T_EQ(tide_profile_plan_request(plan, 2).alignment, 4096);
  T_EQ(tide_profile_plan_describe(plan).alignment, 4096);
  tide_profile_plan_free(plan);
}

PLAY_TEST(test_profile_record__released_twice_keeps_the_first_time, play_open(p, NULL)) {
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_RECORD, 0));
  play_steps(p, "a10");
  uint8_t* const a = play_address(p, 'a');
  play_steps(p, "-a b20 c30");

  if (a != play_address(p, 'b') && a != play_address(p, 'c'))  // it may have come again
    T_STATUS(tide_profile_release(p->profile, a), TABLE_FAILURE);

  play_steps(p, "-b -c");
  (void)play_end(p);
  T_EQ(play_lifetime(p, 0), 1);
}

// A release on another thread: the run is right, and what it leads to can be replayed.
PLAY_TEST(test_profile_record__a_release_on_another_thread, play_open(p, NULL)) {
  const char* const steps = "a64 b64 ~a c64 -b -c";

  (void)play_run(p, TIDE_PROFILE_RECORD, steps);

  T_CHECK(play_lifetime(p, 0) == TIDE_PROFILE_NEVER || play_lifetime(p, 0) == 2);
  T_EQ(play_lifetime(p, 1), 3);
  for (int i = 0; i < 3; i++) T_EQ(play_run(p, TIDE_PROFILE_REPLAY, steps).hits, 3);
}

// ---------------------------------------------------------------------------------------------------
// Notes of programs with an allocator of their own

static void note_alloc(play* p, const void* address, size_t bytes) {
  T_OK(tide_profile_note_alloc(p->profile, address, bytes, 0));
}

static void note_release(play* p, const void* address) {
  T_OK(tide_profile_note_release(p->profile, address));
}

PLAY_TEST(test_profile_record__a_release_of_an_address_that_is_out_of_date_is_ignored, play_open(p, NULL)) {
  const char memory[8] = { 0 };
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_RECORD, 0));
  note_alloc(p, &memory[0], 100);
  note_release(p, &memory[0]);
  for (size_t i = 1; i < 5; i++) note_alloc(p, &memory[i], 100);

  note_release(p, &memory[0]);  // somebody else got the address meanwhile

  for (size_t i = 1; i < 5; i++) note_release(p, &memory[i]);
  T_EQ(play_end(p).requests, 5);
  T_EQ(play_lifetime(p, 0), 1);
  T_EQ(play_stats(p).unknown_releases, 1);
}

PLAY_TEST(test_profile_record__an_address_that_comes_again_is_another_request, play_open(p, NULL)) {
  const char memory = 0;
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_RECORD, 0));
  for (size_t i = 0; i < 4; i++) {
    note_alloc(p, &memory, 100 + i);
    note_release(p, &memory);
  }
  T_EQ(play_end(p).requests, 4);

  const uint64_t lifetimes[] = { 1, 2, 3, 4 };
  expect_lifetimes(p, lifetimes, 4);
}

// An address that comes again must have been released.
PLAY_TEST(test_profile_record__an_address_whose_release_was_not_seen, play_open(p, NULL)) {
  const char memory = 0;
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_RECORD, 0));
  note_alloc(p, &memory, 100);
  note_alloc(p, &memory, 200);
  note_release(p, &memory);
  T_EQ(play_end(p).requests, 2);

  const uint64_t lifetimes[] = { 1, 2 };
  expect_lifetimes(p, lifetimes, 2);
}

PLAY_TEST(test_profile_record__notes_outside_a_run_do_nothing, play_open(p, NULL)) {
  const char memory = 0;

  note_alloc(p, &memory, 100);
  note_release(p, &memory);
  (void)play_run(p, TIDE_PROFILE_RECORD, "a10 -a");
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_REPLAY, 0));
  note_alloc(p, &memory, 100);
  note_release(p, &memory);
  play_steps(p, "a10 -a");

  const tide_profile_report report = play_end(p);
  play_expect_same(&report, 1);
  T_EQ(play_info(p, 0).count, 1);
  T_EQ(play_stats(p).unknown_releases, 0);
}

PLAY_TEST(test_profile_record__notes_that_make_no_sense_are_refused, play_open(p, NULL)) {
  const char memory = 0;
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_RECORD, 0));

  T_STATUS(tide_profile_note_alloc(p->profile, &memory, 100, 48), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_profile_note_alloc(NULL, &memory, 100, 64), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_profile_note_release(NULL, &memory), TIDE_ERR_ARGUMENT);
  note_alloc(p, &memory, 100);
  note_release(p, &memory);

  T_EQ(play_end(p).requests, 1);
}

// ---------------------------------------------------------------------------------------------------
// One run after another

PLAY_TEST(test_profile_record__a_second_recording_begins_anew, play_open(p, NULL)) {
  (void)play_run(p, TIDE_PROFILE_RECORD, "a1000 b2000 c3000 -a -b -c");

  (void)play_run(p, TIDE_PROFILE_RECORD, "a10 b20 -a -b");

  const uint64_t lifetimes[] = { 2, 2 };
  expect_lifetimes(p, lifetimes, 2);
  T_LT(play_info(p, 0).bytes, 200);
  const tide_profile_report report = play_run(p, TIDE_PROFILE_REPLAY, "a10 b20 -a -b");
  play_expect_same(&report, 2);
  T_EQ(play_stats(p).plans, 1);
}

PLAY_TEST(test_profile_record__a_run_without_requests_is_no_trouble, play_open(p, NULL)) {
  T_EQ(play_run(p, TIDE_PROFILE_RECORD, "").requests, 0);
  const tide_profile_report report = play_run(p, TIDE_PROFILE_AUTO, "a10 b20 -a -b");

  T_EQ(report.requests, 2);
}

PLAY_TEST(test_profile_record__a_cancelled_run_makes_no_plan, play_open(p, NULL)) {
  tide_profile_plan* plan = NULL;
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_RECORD, 0));
  play_steps(p, "a10 b20");

  T_OK(tide_profile_cancel(p->profile));

  T_EQ(tide_profile_current(p->profile), TIDE_PROFILE_NONE);
  T_PTR_EQ(tide_profile_innermost(), NULL);
  T_STATUS(tide_profile_get_plan(p->profile, 0, &plan), TIDE_ERR_HANDLE);
  T_PTR_EQ(plan, NULL);
  T_EQ(play_stats(p).recorded, 0);
  T_STATUS(tide_profile_cancel(p->profile), TIDE_ERR_STATE);
  play_steps(p, "-a -b");
}

PLAY_TEST(test_profile_record__a_cancelled_run_leaves_the_plan_before_it, play_open(p, NULL)) {
  (void)play_run(p, TIDE_PROFILE_RECORD, "a10 b20 -a -b");
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_RECORD, 0));
  play_steps(p, "c30");
  T_OK(tide_profile_cancel(p->profile));
  play_steps(p, "-c");

  const tide_profile_report report = play_run(p, TIDE_PROFILE_REPLAY, "a10 b20 -a -b");

  play_expect_same(&report, 2);
}

// Only notes can have sizes that exceed all memory.
PLAY_TEST(test_profile_record__a_run_that_cannot_be_planned_leaves_the_plan_before_it, play_open(p, NULL)) {
  const char memory[2] = { 0 };
  (void)play_run(p, TIDE_PROFILE_RECORD, "a10 b20 -a -b");
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_RECORD, 0));
  note_alloc(p, &memory[0], (size_t)1 << 63);
  note_alloc(p, &memory[1], (size_t)1 << 63);

  T_STATUS(tide_profile_end(p->profile, NULL), TIDE_ERR_ARGUMENT);

  T_EQ(tide_profile_current(p->profile), TIDE_PROFILE_NONE);
  const tide_profile_report report = play_run(p, TIDE_PROFILE_REPLAY, "a10 b20 -a -b");
  play_expect_same(&report, 2);
}

// A report without its _INIT macro has the size 0.
static void end_with(play* p, tide_profile_mode mode, const char* steps) {
  tide_profile_report report = { .requests = 77 };
  T_OK(tide_profile_begin(p->profile, mode, 0));
  play_steps(p, steps);
  T_STATUS(tide_profile_end(p->profile, &report), TIDE_ERR_ARGUMENT);
  T_EQ(report.requests, 77);
  T_EQ(tide_profile_current(p->profile), TIDE_PROFILE_NONE);
}

PLAY_TEST(test_profile_record__a_run_ends_although_its_report_has_a_wrong_size, play_open(p, NULL)) {
  end_with(p, TIDE_PROFILE_RECORD, "a10 b20 -a -b");
  end_with(p, TIDE_PROFILE_VALIDATE, "a10 b20 -a -b");
  end_with(p, TIDE_PROFILE_REPLAY, "a10 b20 -a -b");
  const tide_profile_report report = play_run(p, TIDE_PROFILE_REPLAY, "a10 b20 -a -b");
  play_expect_same(&report, 2);
  T_EQ(play_stats(p).recorded, 1);
  T_EQ(play_stats(p).replayed, 2);
}

// ---------------------------------------------------------------------------------------------------
// Nesting

PLAY_TEST(test_profile_record__a_run_within_a_run_of_the_same_profile_is_refused, play_open(p, NULL)) {
  const tide_profile_mode modes[] = { TIDE_PROFILE_RECORD, TIDE_PROFILE_VALIDATE, TIDE_PROFILE_REPLAY };
  (void)play_run(p, TIDE_PROFILE_RECORD, "a10 -a");
  for (size_t outer = 0; outer < 3; outer++) {
    for (size_t inner = 0; inner < 3; inner++) {
      T_OK(tide_profile_begin(p->profile, modes[outer], 0));
      T_STATUS(tide_profile_begin(p->profile, modes[inner], 0), TIDE_ERR_STATE);
      T_EQ(tide_profile_current(p->profile), modes[outer]);
      T_PTR_EQ(tide_profile_innermost(), p->profile);
      play_steps(p, "a10 -a");
      T_CHECK(play_end(p).is_same || modes[outer] == TIDE_PROFILE_RECORD);
    }
  }
}

T_TEST(test_profile_record__two_profiles_nest_on_one_thread) {
  play outer;
  play inner;
  play_open(&outer, NULL);
  play_open(&inner, NULL);
  (void)play_run(&outer, TIDE_PROFILE_RECORD, "a10 b20 -a c30 -b -c");
  for (int run = 0; run < 4; run++) {
    const tide_profile_mode mode = TIDE_PROFILE_REPLAY;
    T_OK(tide_profile_begin(outer.profile, mode, 0));
    play_steps(&outer, "a10 b20");
    T_OK(tide_profile_begin(inner.profile, run == 0 ? TIDE_PROFILE_RECORD : mode, 0));
    T_PTR_EQ(tide_profile_innermost(), inner.profile);
    play_steps(&inner, "a100 b200");
    play_steps(&outer, "-a c30");
    play_steps(&inner, "-a c300 -b -c");
    const tide_profile_report second = play_end(&inner);
    T_PTR_EQ(tide_profile_innermost(), outer.profile);
    T_EQ(tide_profile_current(inner.profile), TIDE_PROFILE_NONE);
    T_EQ(tide_profile_current(outer.profile), mode);
    play_steps(&outer, "-b -c");
    const tide_profile_report first = play_end(&outer);
    T_PTR_EQ(tide_profile_innermost(), NULL);
    play_expect_same(&first, 3);
    if (run > 0) play_expect_same(&second, 3);
  }
  T_EQ(play_lifetime(&outer, 0), 2);
  T_EQ(play_lifetime(&inner, 0), 2);
  play_close(&inner);
  play_close(&outer);
}

// The outer run may end first.
T_TEST(test_profile_record__runs_of_two_profiles_end_in_any_order) {
  play first;
  play second;
  play_open(&first, NULL);
  play_open(&second, NULL);
  (void)play_run(&first, TIDE_PROFILE_RECORD, "a10 -a");
  T_OK(tide_profile_begin(first.profile, TIDE_PROFILE_REPLAY, 0));
  T_OK(tide_profile_begin(second.profile, TIDE_PROFILE_RECORD, 0));
  play_steps(&first, "a10 -a");
  play_steps(&second, "a20 -a");

  T_EQ(play_end(&first).requests, 1);
  T_EQ(tide_profile_current(second.profile), TIDE_PROFILE_RECORD);
  play_steps(&second, "b20 -b");
  T_EQ(play_end(&second).requests, 2);

  T_PTR_EQ(tide_profile_innermost(), NULL);
  play_close(&first);
  play_close(&second);
}

// The outer recording would lack the requests that the inner run serves.
T_TEST(test_profile_record__no_run_begins_inside_one_that_records) {
  static const tide_profile_mode modes[] = { TIDE_PROFILE_AUTO, TIDE_PROFILE_RECORD, TIDE_PROFILE_REPLAY };
  play outer;
  play inner;
  play_open(&outer, NULL);
  play_open(&inner, NULL);
  (void)play_run(&inner, TIDE_PROFILE_RECORD, "a100 -a");
  T_OK(tide_profile_begin(outer.profile, TIDE_PROFILE_RECORD, 0));

  for (size_t i = 0; i < 3; i++) {
    T_STATUS(tide_profile_begin(inner.profile, modes[i], 0), TIDE_ERR_STATE);
    T_CHECK(strstr(tide_last_error()->text, "recorded") != NULL);
  }

  T_PTR_EQ(tide_profile_innermost(), outer.profile);
  play_steps(&outer, "a10 -a");
  T_EQ(play_end(&outer).requests, 1);
  play_close(&inner);
  play_close(&outer);
}

PLAY_TEST(test_profile_record__a_plan_that_is_cleared_is_recorded_again, play_open(p, NULL)) {
  (void)play_run_shape(p, TIDE_PROFILE_RECORD, 1, "a100 -a");
  (void)play_run_shape(p, TIDE_PROFILE_RECORD, 2, "a200 -a");
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_REPLAY, 1));

  T_OK(tide_profile_clear_plan(p->profile, 1));  // the open run keeps it

  play_steps(p, "a100 -a");
  T_EQ(play_end(p).hits, 1);
  T_EQ(play_stats(p).plans, 1);
  T_STATUS(tide_profile_clear_plan(p->profile, 1), TIDE_ERR_HANDLE);
  T_STATUS(tide_profile_clear_plan(NULL, 1), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_profile_begin(p->profile, TIDE_PROFILE_REPLAY, 1), TIDE_ERR_HANDLE);
  T_EQ(play_run_shape(p, TIDE_PROFILE_AUTO, 1, "a150 -a").mode, TIDE_PROFILE_RECORD);
  T_EQ(play_run_shape(p, TIDE_PROFILE_AUTO, 1, "a150 -a").hits, 1);
  T_EQ(play_run_shape(p, TIDE_PROFILE_AUTO, 2, "a200 -a").hits, 1);
}
