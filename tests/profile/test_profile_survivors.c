// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Blocks that outlive their run: they stay intact however many runs follow, their arena stays until they
// are released, and escapes cost no call of the memory.
#define T_THREADS
#include "program.h"

#define STEPS "a100 b200 -a c300 -b -c"

static void recorded(play* p, const tide_profile_options* options, const char* steps) {
  play_open(p, options);
  (void)play_run(p, TIDE_PROFILE_RECORD, steps);
  play_release_all(p);
}

static void expect_same_runs(play* p, int runs, const char* steps, uint64_t requests) {
  for (int i = 0; i < runs; i++) {
    const tide_profile_report report = play_run(p, TIDE_PROFILE_REPLAY, steps);
    play_expect_same(&report, requests);
  }
}

// ---------------------------------------------------------------------------------------------------
// In the arena

PLAY_TEST(test_profile_survivors__stay_whole_while_other_runs_happen, recorded(p, NULL, STEPS)) {
  T_EQ(play_run(p, TIDE_PROFILE_REPLAY, "x100 y200 -x z300 -y").survivors, 1);

  expect_same_runs(p, 10, STEPS, 3);

  T_EQ(play_stats(p).survivors, 1);
  T_EQ(play_stats(p).arenas, 2);
  T_CHECK(tide_profile_owns(p->profile, play_address(p, 'z')));
  play_steps(p, "-z");  // which compares every byte
  T_EQ(play_stats(p).survivors, 0);
}

PLAY_TEST(test_profile_survivors__may_be_released_in_a_later_run, recorded(p, NULL, STEPS)) {
  (void)play_run(p, TIDE_PROFILE_REPLAY, "x100 y200 -x z300 -y");

  const tide_profile_report report = play_run(p, TIDE_PROFILE_REPLAY, "a100 b200 -z -a c300 -b -c");

  play_expect_same(&report, 3);
  T_EQ(play_stats(p).survivors, 0);
  expect_same_runs(p, 5, STEPS, 3);
}

PLAY_TEST(test_profile_survivors__may_be_released_on_another_thread, recorded(p, NULL, STEPS)) {
  (void)play_run(p, TIDE_PROFILE_REPLAY, "x100 y200 -x z300");

  play_steps(p, "~y");
  T_EQ(play_stats(p).survivors, 1);
  expect_same_runs(p, 2, STEPS, 3);
  play_steps(p, "~z");

  T_EQ(play_stats(p).survivors, 0);
  expect_same_runs(p, 2, STEPS, 3);
}

PLAY_TEST(test_profile_survivors__released_twice_is_an_error, recorded(p, NULL, STEPS)) {
  (void)play_run(p, TIDE_PROFILE_REPLAY, "x100 y200 -x z300");
  uint8_t* const z = play_address(p, 'z');
  play_steps(p, "-z");

  T_STATUS(tide_profile_release(p->profile, z), TIDE_ERR_HANDLE);

  play_steps(p, "-y");
}

// A larger plan takes a larger arena and leaves the one below the survivor where it is.
PLAY_TEST(test_profile_survivors__outlive_a_larger_plan, recorded(p, NULL, STEPS)) {
  (void)play_run(p, TIDE_PROFILE_REPLAY, "x100 y200 -x z300 -y");
  (void)play_run_shape(p, TIDE_PROFILE_RECORD, 1, "a100000 b200000 -a -b");

  for (int i = 0; i < 3; i++) {
    const tide_profile_report report = play_run_shape(p, TIDE_PROFILE_REPLAY, 1, "a100000 b200000 -a -b");
    play_expect_same(&report, 2);
  }

  play_steps(p, "-z");
}

// Every run leaves something behind: each survivor keeps an arena until it goes.
PLAY_TEST(test_profile_survivors__of_many_runs, recorded(p, NULL, STEPS)) {
  for (char letter = 'm'; letter <= 'v'; letter++) {
    T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_REPLAY, 0));
    play_alloc(p, letter, 100, 0);
    play_steps(p, "b200 c300 -b -c");
    const tide_profile_report report = play_end(p);
    T_EQ(report.survivors, 1);
  }
  T_EQ(play_stats(p).survivors, 10);
  T_EQ(play_stats(p).arenas, 10);

  play_steps(p, "-m -o -q -s -u -n -p -r -t -v");

  T_EQ(play_stats(p).survivors, 0);
  expect_same_runs(p, 3, STEPS, 3);
  T_OK(tide_profile_trim(p->profile));
  T_EQ(play_stats(p).arenas, 0);
  T_EQ(play_stats(p).arena_bytes, 0);
  T_EQ(p->arenas.count, 0);
}

// ---------------------------------------------------------------------------------------------------
// After the profile

static void play_fini(play* p) {
  table_fini(&p->arenas);
  table_fini(&p->fallback);
  T_EQ(atomic_load(&p->heap.outstanding), 0);
}

// Releasing a block after its profile used to access a freed profile.
T_TEST(test_profile_survivors__outlive_the_profile) {
  play p;
  recorded(&p, NULL, STEPS);
  (void)play_run(&p, TIDE_PROFILE_REPLAY, "x100 y200 -x z300");
  (void)play_run(&p, TIDE_PROFILE_REPLAY, "a100 b200 -a c300 -b");

  tide_profile_free(p.profile);

  T_EQ(p.arenas.count, 2);
  play_steps(&p, "-y");  // which compares every byte
  T_EQ(p.arenas.count, 2);
  play_steps(&p, "~z");
  T_EQ(p.arenas.count, 1);  // an arena goes with the last that lies in it
  play_steps(&p, "-c");
  play_fini(&p);
}

// The fallback served it: while recording, outside of runs, and where a run deviated.
T_TEST(test_profile_survivors__of_the_fallback_outlive_the_profile) {
  play p;
  recorded(&p, NULL, STEPS);
  play_steps(&p, "m77");
  (void)play_run_shape(&p, TIDE_PROFILE_RECORD, 1, "n88 o99 -n");
  (void)play_run(&p, TIDE_PROFILE_REPLAY, "a100 q5000 b200 -a c300 -b -c");
  T_EQ(p.fallback.count, 3);

  tide_profile_free(p.profile);

  T_EQ(p.arenas.count, 0);
  play_steps(&p, "-o ~q -m");
  play_fini(&p);
}

// Memory that others got from the fallback does not count as handed out.
T_TEST(test_profile_survivors__outlive_a_profile_that_took_back_memory_of_others) {
  play p;
  void* others[3] = { NULL };
  recorded(&p, NULL, STEPS);
  play_steps(&p, "m77 n88 o99");
  for (size_t i = 0; i < 3; i++) {
    T_OK(p.fallback.memory.alloc(&p.fallback.memory, 64, 64, &others[i]));
    T_OK(tide_profile_release(p.profile, others[i]));
  }

  tide_profile_free(p.profile);

  play_steps(&p, "-m -n -o");
  play_fini(&p);
}

T_TEST(test_profile_survivors__outputs_outlive_the_profile) {
  play p;
  recorded(&p, NULL, "a100 o1000 b200 -a p50 -b");
  (void)play_run(&p, TIDE_PROFILE_REPLAY, "a100 o1000 b200 -a p50 -b");

  tide_profile_free(p.profile);

  T_EQ(p.arenas.count, 1);
  play_steps(&p, "-p -o");
  play_fini(&p);
}

// A run that is open is cancelled, and what it has handed out stays.
T_TEST(test_profile_survivors__outlive_a_profile_that_is_freed_in_a_run) {
  play p;
  recorded(&p, NULL, STEPS);
  T_OK(tide_profile_begin(p.profile, TIDE_PROFILE_REPLAY, 0));
  play_steps(&p, "a100 b200");

  tide_profile_free(p.profile);

  T_PTR_EQ(tide_profile_innermost(), NULL);
  play_steps(&p, "-b -a");
  play_fini(&p);
}

T_TEST(test_profile_survivors__released_twice_after_the_profile_is_an_error) {
  play p;
  recorded(&p, NULL, STEPS);
  (void)play_run(&p, TIDE_PROFILE_REPLAY, "x100 y200 -x z300");
  tide_profile_free(p.profile);
  uint8_t* const z = play_address(&p, 'z');
  play_steps(&p, "-z");

  T_STATUS(tide_profile_release(p.profile, z), TIDE_ERR_HANDLE);  // y is there still

  play_steps(&p, "-y");
  play_fini(&p);
}

typedef struct orphan_helper {
  tide_profile* profile;
  void* blocks[50];
} orphan_helper;

static void* orphan_helper_run(void* user) {
  orphan_helper* const helper = user;
  for (size_t i = 0; i < 50; i++) T_OK(tide_profile_release(helper->profile, helper->blocks[i]));
  return NULL;
}

// Threads release the last blocks side by side; the last of all takes the profile with it.
T_TEST(test_profile_survivors__of_a_profile_that_is_gone_are_released_on_many_threads) {
  for (size_t round = 0; round < t_scaled(20); round++) {
    orphan_helper helpers[4];
    pthread_t threads[4];
    play p;
    play_open(&p, NULL);
    for (int run = 0; run < 2; run++) {
      T_OK(tide_profile_begin(p.profile, TIDE_PROFILE_AUTO, 0));
      for (size_t i = 0; i < 200; i++) {
        const size_t bytes = run == 1 && i % 3 == 0 ? 5000 : 8 + i % 9;  // more than planned, now and then
        T_OK(tide_profile_alloc(p.profile, bytes, 0, &helpers[i % 4].blocks[i / 4]));
        if (run == 0) T_OK(tide_profile_release(p.profile, helpers[i % 4].blocks[i / 4]));
      }
      (void)play_end(&p);
    }
    tide_profile_free(p.profile);

    for (size_t i = 0; i < 4; i++) {
      helpers[i].profile = p.profile;
      t_thread_start(&threads[i], orphan_helper_run, &helpers[i]);
    }
    for (size_t i = 0; i < 4; i++) t_thread_join(threads[i]);

    play_fini(&p);
  }
}

// ---------------------------------------------------------------------------------------------------
// Trimming

PLAY_TEST(test_profile_survivors__trimming_leaves_what_is_used, recorded(p, NULL, STEPS)) {
  (void)play_run(p, TIDE_PROFILE_REPLAY, "x100 y200 -x z300 -y");
  expect_same_runs(p, 1, STEPS, 3);

  T_OK(tide_profile_trim(p->profile));
  T_EQ(play_stats(p).arenas, 1);
  play_steps(p, "-z");
  T_OK(tide_profile_trim(p->profile));

  T_EQ(play_stats(p).arenas, 0);
  expect_same_runs(p, 2, STEPS, 3);
}

PLAY_TEST(test_profile_survivors__trimming_during_a_run_leaves_its_arena, recorded(p, NULL, STEPS)) {
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_REPLAY, 0));
  play_steps(p, "a100 b200");

  T_OK(tide_profile_trim(p->profile));

  play_steps(p, "-a c300 -b -c");
  const tide_profile_report report = play_end(p);
  play_expect_same(&report, 3);
}

// ---------------------------------------------------------------------------------------------------
// What is never released in its run

#define OUTPUT_STEPS "a100 o1000 b200 -a p50 -b"

PLAY_TEST(test_profile_survivors__outputs_cost_no_call_of_the_memory, recorded(p, NULL, OUTPUT_STEPS)) {
  size_t calls = 0;
  for (int i = 0; i < 20; i++) {
    const tide_profile_report report = play_run(p, TIDE_PROFILE_REPLAY, OUTPUT_STEPS);
    play_expect_same(&report, 4);
    play_steps(p, "-o -p");
    if (i == 0) calls = table_calls(&p->arenas) + table_calls(&p->fallback);
  }

  T_EQ(table_calls(&p->arenas) + table_calls(&p->fallback), calls);
  T_EQ(play_stats(p).survivors, 0);
}

// Outputs are used while the next run is under way, and released in it.
PLAY_TEST(test_profile_survivors__outputs_may_be_used_during_the_next_run, recorded(p, NULL, OUTPUT_STEPS)) {
  size_t calls = 0;
  (void)play_run(p, TIDE_PROFILE_REPLAY, OUTPUT_STEPS);
  for (int i = 0; i < 20; i++) {
    const char* const steps = i % 2 == 0 ? "c100 q1000 d200 -o -p -c r50 -d"
                                         : "a100 o1000 b200 -q -r -a p50 -b";
    const tide_profile_report report = play_run(p, TIDE_PROFILE_REPLAY, steps);
    play_expect_same(&report, 4);
    if (i == 1) calls = table_calls(&p->arenas) + table_calls(&p->fallback);
  }

  T_EQ(table_calls(&p->arenas) + table_calls(&p->fallback), calls);
  play_steps(p, "-o -p");
}

// One run more than there are arenas for outputs that are all still used.
T_TEST(test_profile_survivors__outputs_of_more_runs_than_arenas) {
  tide_profile_options options = TIDE_PROFILE_OPTIONS_INIT;
  play p;
  options.escape_arenas = 3;
  recorded(&p, &options, "a100 o1000 -a");
  for (char letter = 'm'; letter < 'm' + 5; letter++) {
    T_OK(tide_profile_begin(p.profile, TIDE_PROFILE_REPLAY, 0));
    play_steps(&p, "a100");
    play_alloc(&p, letter, 1000, 0);
    play_steps(&p, "-a");
    const tide_profile_report report = play_end(&p);
    T_EQ(report.escaped, letter < 'm' + 3 ? 0 : 1);
    T_EQ(tide_profile_owns(p.profile, play_address(&p, letter)), letter < 'm' + 3);
    T_EQ(report.survivors, 0);
  }

  play_steps(&p, "-n");
  const tide_profile_report report = play_run(&p, TIDE_PROFILE_REPLAY, "a100 z1000 -a");
  T_EQ(report.escaped, 0);  // the arena of n is free again
  play_steps(&p, "-m -o -p -q -z");
  play_close(&p);
}

T_TEST(test_profile_survivors__outputs_of_one_run_are_released_one_by_one) {
  tide_profile_options options = TIDE_PROFILE_OPTIONS_INIT;
  play p;
  options.escape_arenas = 1;
  recorded(&p, &options, "o100 p100 q100");
  (void)play_run(&p, TIDE_PROFILE_REPLAY, "o100 p100 q100");
  play_steps(&p, "-o -p");

  T_EQ(play_run(&p, TIDE_PROFILE_REPLAY, "a100 b100 c100").escaped, 3);
  play_steps(&p, "-a -b -c -q");
  T_EQ(play_run(&p, TIDE_PROFILE_REPLAY, "a100 b100 c100").escaped, 0);

  play_steps(&p, "-a -b -c");
  play_close(&p);
}

// ---------------------------------------------------------------------------------------------------
// Larger programs

T_TEST(test_profile_survivors__random_programs_leave_random_blocks_behind) {
  for (uint64_t round = 0; round < t_scaled(20); round++) {
    t_rng rng = t_rng_new(round);
    play p;
    performer a;
    program run;
    play_open(&p, NULL);
    performer_init(&a, p.profile);
    program_random(&run, 60, 12, &rng);
    (void)performer_run(&a, TIDE_PROFILE_RECORD, 0, &run);
    for (int i = 0; i < 10; i++) {
      program other = run;
      for (size_t k = 0; k < other.count; k++)
        if (t_rng_below(&rng, 10) == 0) other.requests[k].due = PROGRAM_NEVER;
      const tide_profile_report report = performer_run(&a, TIDE_PROFILE_REPLAY, 0, &other);
      play_expect_consistent(&report);
      T_EQ(report.hits, a.hits);
      for (size_t k = 0; k < a.count; k++)
        if (t_rng_below(&rng, 3) == 0) a.live[k].due = 0;
    }
    performer_release_all(&a);
    T_EQ(play_stats(&p).survivors, 0);
    performer_fini(&a);
    play_close(&p);
  }
}
