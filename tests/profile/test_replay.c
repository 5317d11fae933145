// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Replaying: runs that repeat the recorded one, every way to deviate from it, resynchronisation, fills, and
// the strict replay of PyTorch's profiler.
#define T_THREADS
#include "program.h"

#define STEPS "a100 b200 -a c300 -b -c"

static void recorded(play* p, const tide_profile_options* options, const char* steps) {
  play_open(p, options);
  (void)play_run(p, TIDE_PROFILE_RECORD, steps);
}

static tide_profile_report replayed(play* p, const char* steps) {
  const tide_profile_report report = play_run(p, TIDE_PROFILE_REPLAY, steps);
  T_EQ(report.mode, TIDE_PROFILE_REPLAY);
  play_expect_consistent(&report);
  return report;
}

// ---------------------------------------------------------------------------------------------------
// The same run

PLAY_TEST(test_replay__the_same_run_comes_from_the_arena, recorded(p, NULL, STEPS)) {
  const size_t fallback_calls = table_calls(&p->fallback);

  for (int i = 0; i < 10; i++) {
    const tide_profile_report report = replayed(p, STEPS);
    play_expect_same(&report, 3);
    T_EQ(report.plan_bytes, play_info(p, 0).bytes);
    T_EQ(report.lower_bound, 500);
  }

  T_EQ(table_calls(&p->fallback), fallback_calls);
  T_EQ(p->arenas.allocs, 1);
  T_EQ(play_stats(p).replayed, 10);
  T_EQ(play_stats(p).differing, 0);
  T_EQ(play_stats(p).hits, 30);
  T_EQ(play_stats(p).fallbacks, 0);
  T_EQ(play_stats(p).arenas, 1);
  T_EQ(play_stats(p).arena_allocs, 1);
}

PLAY_TEST(test_replay__addresses_lie_where_the_plan_says, recorded(p, NULL, STEPS)) {
  tide_profile_plan* const plan = play_plan(p, 0);
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_REPLAY, 0));
  play_steps(p, "a100 b200");
  const uint64_t a = tide_profile_plan_request(plan, 0).offset;
  const uint64_t b = tide_profile_plan_request(plan, 1).offset;

  T_PTR_EQ(play_address(p, 'a') - a, play_address(p, 'b') - b);
  T_CHECK(tide_profile_owns(p->profile, play_address(p, 'a')));
  T_CHECK(tide_profile_owns(p->profile, play_address(p, 'b') + 199));

  play_steps(p, "-a c300 -b -c");
  (void)play_end(p);
  tide_profile_plan_free(plan);
}

PLAY_TEST(test_replay__outside_a_run_the_fallback_serves, recorded(p, NULL, STEPS)) {
  (void)replayed(p, STEPS);
  const size_t allocs = p->fallback.allocs;

  play_steps(p, "a100 b200 -a -b");

  T_EQ(p->fallback.allocs, allocs + 2);
}

// ---------------------------------------------------------------------------------------------------
// Other runs

typedef struct replay_row {
  const char* rule;
  bool is_best_fit;  // so that it is known what lies where
  const char* recorded;
  const char* replayed;
  const char* report;
} replay_row;

static const replay_row replay_rows[] = {
  { "alignments are kept", false, "a1@1 b2@4096 c3@2 d4@65536 -a e5@8 -b -c -d f6@4096 -e -f",
    "a1@1 b2@4096 c3@2 d4@65536 -a e5@8 -b -c -d f6@4096 -e -f", "same requests=6 hits=6" },
  { "a smaller request fits", false, STEPS, "a100 b150 -a c300 -b -c", "hits=3 smaller=1 first=1" },
  { "a smaller alignment fits", false, "a100@256 b200@256 -a -b", "a100@256 b200@64 -a -b", "same hits=2" },
  { "a larger request", false, STEPS, "a100 b201 -a c300 -b -c", "hits=2 larger=1 first=1" },
  { "a larger alignment", false, STEPS, "a100 b200@8192 -a c300 -b -c", "other requests=3" },
  { "one request too many", false, STEPS, STEPS " d10 -d", "hits=3 surplus=1 first=3" },
  { "missing requests", false, "a10 -a b20 -b c30 -c d40 -d e50 -e", "a10 -a b20 -b c30 -c",
    "other hits=3 missing=2" },
  { "no requests", false, "a10 -a b20 -b c30 -c d40 -d e50 -e", "", "missing=5" },
  { "an early release", false, STEPS, "a100 -a b200 c300 -b -c", "hits=3 early=1 first=1" },
  { "a late release that blocks nothing", true, "a64 b64 -a c128 -b -c", "a64 b64 c128 -a -b -c",
    "hits=3 late=1 blocked=0" },
  { "a late release that blocks its successor", true, "a64 b64 -a c64 -b -c", "a64 b64 c64 -a -b -c",
    "hits=2 late=1 blocked=1" },
  { "a late release makes room again", true, "a64 b64 -a c64 -c d64 -b -d", "a64 b64 c64 -a -c d64 -b -d",
    "hits=3 blocked=1" },
  { "a large late block blocks several", true, "a192 -a b64 c64 d64 -b -c -d e192 -e",
    "a192 b64 c64 d64 -a -b -c -d e192 -e", "hits=2 blocked=3" },
  { "a small late block blocks a large one", true, "a192 -a b64 c64 d64 -b -c -d e192 -e",
    "a192 -a b64 c64 d64 -b -c e192 -d -e", "hits=4 blocked=1" },
  { "released although it never was", false, "a100 b200 -a", "a100 b200 -a -b", "hits=2" },
  { "never released", false, "a100 b200 -a", "a100 b200 -a", "same hits=2 survivors=0" },
  { "released on another thread", false, STEPS, "a100 b200 ~a c300 ~b ~c", "same hits=3" },
};

// Twice, because what a run leaves behind must not change the next one.
T_TEST(test_replay__other_runs_follow_the_table) {
  for (size_t i = 0; i < sizeof replay_rows / sizeof *replay_rows; i++) {
    const replay_row* const row = &replay_rows[i];
    tide_profile_options options = TIDE_PROFILE_OPTIONS_INIT;
    play p;
    if (row->is_best_fit) options.planner = TIDE_PROFILE_BEST_FIT;
    recorded(&p, &options, row->recorded);
    play_release_all(&p);
    for (int run = 0; run < 2; run++) {
      const tide_profile_report report = replayed(&p, row->replayed);
      play_expect_report(row->rule, &report, row->report);
      play_release_all(&p);
    }
    play_close(&p);
  }
}

PLAY_TEST(test_replay__a_release_from_before_the_run_goes_to_the_fallback, recorded(p, NULL, STEPS)) {
  play_steps(p, "x77");
  const size_t releases = p->fallback.releases;

  const tide_profile_report report = replayed(p, "a100 b200 -x -a c300 -b -c");

  play_expect_same(&report, 3);
  T_EQ(p->fallback.releases, releases + 1);
}

PLAY_TEST(test_replay__what_is_never_released_comes_from_an_arena_too, recorded(p, NULL, "a100 b200 -a")) {
  play_steps(p, "-b");

  const tide_profile_report report = replayed(p, "a100 b200 -a");

  play_expect_same(&report, 2);
  T_CHECK(tide_profile_owns(p->profile, play_address(p, 'b')));
  T_EQ(report.survivors, 0);
  play_steps(p, "-b");
}

T_TEST(test_replay__without_escape_arenas_it_comes_from_the_fallback) {
  tide_profile_options options = TIDE_PROFILE_OPTIONS_INIT;
  play p;
  options.escape_arenas = 0;
  recorded(&p, &options, "a100 b200 -a");
  play_steps(&p, "-b");

  const tide_profile_report report = play_run(&p, TIDE_PROFILE_REPLAY, "a100 b200 -a");

  T_EQ(report.hits, 1);
  T_EQ(report.escaped, 1);
  T_EQ(report.fallbacks, 1);
  T_CHECK(!tide_profile_owns(p.profile, play_address(&p, 'b')));
  play_steps(&p, "-b");
  play_close(&p);
}

PLAY_TEST(test_replay__a_thousand_requests_too_many, recorded(p, NULL, STEPS)) {
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_REPLAY, 0));
  play_steps(p, STEPS);
  for (int i = 0; i < 1000; i++) play_steps(p, "a100 -a");

  const tide_profile_report report = play_end(p);

  play_expect_consistent(&report);
  T_EQ(report.requests, 1003);
  T_LE(3, report.hits);
}

PLAY_TEST(test_replay__a_plan_of_nothing_serves_nothing, play_open(p, NULL)) {
  tide_profile_plan* empty = NULL;
  T_OK(tide_profile_plan_new(NULL, 0, NULL, &empty));

  T_OK(tide_profile_set_plan(p->profile, 0, empty));
  tide_profile_plan_free(empty);

  T_CHECK(replayed(p, "").is_same);
  T_EQ(replayed(p, "a100 b200 -a -b").surplus, 2);
  T_EQ(p->arenas.allocs, 0);
}

PLAY_TEST(test_replay__not_released_survives, recorded(p, NULL, STEPS)) {
  const tide_profile_report report = replayed(p, "a100 b200 -a c300 -b");

  T_EQ(report.hits, 3);
  T_EQ(report.survivors, 1);
  T_EQ(play_stats(p).survivors, 1);
  play_steps(p, "-c");
  T_EQ(play_stats(p).survivors, 0);
}

PLAY_TEST(test_replay__released_twice_is_an_error, recorded(p, NULL, STEPS)) {
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_REPLAY, 0));
  play_steps(p, "a100 b200");
  uint8_t* const a = play_address(p, 'a');
  play_steps(p, "-a");

  T_STATUS(tide_profile_release(p->profile, a), TIDE_ERR_HANDLE);
  T_STATUS(play_release_elsewhere(p->profile, a), TIDE_ERR_HANDLE);

  play_steps(p, "c300 -b -c");
  const tide_profile_report report = play_end(p);
  play_expect_same(&report, 3);
  T_EQ(play_stats(p).bad_releases, 2);
  T_STATUS(tide_profile_release(p->profile, a), TIDE_ERR_HANDLE);  // also when the run is over
}

PLAY_TEST(test_replay__an_address_where_nothing_begins_is_an_error, recorded(p, NULL, STEPS)) {
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_REPLAY, 0));
  play_steps(p, "a100 b200");

  T_STATUS(tide_profile_release(p->profile, play_address(p, 'a') + 1), TIDE_ERR_HANDLE);
  T_STATUS(tide_profile_release(p->profile, play_address(p, 'b') + 64), TIDE_ERR_HANDLE);

  play_steps(p, "-a c300 -b -c");
  const tide_profile_report report = play_end(p);
  play_expect_same(&report, 3);
  T_EQ(play_stats(p).bad_releases, 2);
}

PLAY_TEST(test_replay__an_address_of_nobody_is_what_the_fallback_says, recorded(p, NULL, STEPS)) {
  uint8_t foreign = 0;

  T_STATUS(tide_profile_release(p->profile, &foreign), TABLE_FAILURE);
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_REPLAY, 0));
  T_STATUS(tide_profile_release(p->profile, &foreign), TABLE_FAILURE);
  T_OK(tide_profile_cancel(p->profile));

  T_CHECK(!tide_profile_owns(p->profile, &foreign));
}

PLAY_TEST(test_replay__zero_bytes_are_nothing, recorded(p, NULL, STEPS)) {
  void* nothing = p;
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_REPLAY, 0));
  T_OK(tide_profile_alloc(p->profile, 0, 0, &nothing));
  T_PTR_EQ(nothing, NULL);
  T_OK(tide_profile_release(p->profile, NULL));
  play_steps(p, STEPS);

  const tide_profile_report report = play_end(p);

  play_expect_same(&report, 3);
}

PLAY_TEST(test_replay__a_cancelled_run_leaves_everything_usable, recorded(p, NULL, STEPS)) {
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_REPLAY, 0));
  play_steps(p, "a100 b200 -a c300");

  T_OK(tide_profile_cancel(p->profile));

  T_EQ(tide_profile_current(p->profile), TIDE_PROFILE_NONE);
  T_EQ(play_stats(p).differing, 0);
  play_steps(p, "x50");
  T_CHECK(!tide_profile_owns(p->profile, play_address(p, 'x')));
  const tide_profile_report report = replayed(p, "d100 e200 -d f300 -e -f");
  play_expect_same(&report, 3);
  play_steps(p, "-b -c -x");
}

PLAY_TEST(test_replay__requests_that_make_no_sense_are_refused, recorded(p, NULL, STEPS)) {
  void* address = p;
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_REPLAY, 0));

  T_STATUS(tide_profile_alloc(p->profile, 100, 48, &address), TIDE_ERR_ARGUMENT);
  T_PTR_EQ(address, NULL);
  T_STATUS(tide_profile_alloc(p->profile, 100, 64, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_profile_alloc(NULL, 100, 64, &address), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_profile_release(NULL, p), TIDE_ERR_ARGUMENT);

  play_steps(p, STEPS);
  const tide_profile_report report = play_end(p);
  play_expect_same(&report, 3);
}

T_TEST(test_replay__a_request_of_all_memory_fails_and_the_run_goes_on) {
  tide_profile_options options = TIDE_PROFILE_OPTIONS_INIT;
  tide_profile* profile = NULL;
  void* address = NULL;
  void* other = &options;
  T_OK(tide_profile_new(&options, &profile));
  T_OK(tide_profile_begin(profile, TIDE_PROFILE_RECORD, 0));
  T_OK(tide_profile_alloc(profile, 100, 0, &address));

  T_STATUS(tide_profile_alloc(profile, SIZE_MAX, 0, &other), TIDE_ERR_ARGUMENT);

  T_PTR_EQ(other, NULL);
  T_OK(tide_profile_release(profile, address));
  T_OK(tide_profile_end(profile, NULL));
  tide_profile_free(profile);
}

// ---------------------------------------------------------------------------------------------------
// Resynchronisation

#define LOST_MOST 8  // hits that one request too many or too few may cost beside its own

static void expect_found_back(play* p, performer* a, const program* run, size_t own_loss) {
  const tide_profile_report report = performer_run(a, TIDE_PROFILE_REPLAY, 0, run);
  play_expect_consistent(&report);
  T_EQ(report.requests, run->count);
  T_EQ(report.hits, a->hits);
  T_LE(report.requests, report.hits + own_loss + LOST_MOST);
  T_EQ(play_stats(p).survivors, 0);
}

static void performed(play* p, performer* a, program* run, uint64_t longest) {
  t_rng rng = t_rng_new(longest);
  play_open(p, NULL);
  performer_init(a, p->profile);
  program_random(run, 200, longest, &rng);
  (void)performer_run(a, TIDE_PROFILE_RECORD, 0, run);
}

static const char* const deviations[] = { "surplus", "missing", "other size", "other branch", NULL };

// Changes the program at a request. Returns how many requests are not planned then.
static size_t deviate(program* run, size_t at) {
  const size_t sizes[] = { 1, 700, 2000, 100000 };
  if (strcmp(t_variant(), "surplus") == 0) {
    program_insert(run, at, (program_request){ sizes[at % 4] + at, 0, at + 1 + at % 5, false });
    if (run->requests[at].due > run->count) run->requests[at].due = run->count;
    return 1;
  }
  if (strcmp(t_variant(), "missing") == 0) {
    program_remove(run, at);
    return 0;
  }
  if (strcmp(t_variant(), "other size") == 0) {
    run->requests[at].bytes = at % 2 == 0 ? 1 + at : 10000 + at;
    return 1;
  }
  for (size_t i = 0; i < 6 && at + 20 < 200; i++) program_remove(run, at + 5);
  for (size_t i = 0; i < 3 && at + 20 < 200; i++) {
    program_insert(run, at + 5 + i, (program_request){ 9000 + i, 0, at + 6 + i, false });
  }
  return 3;
}

T_TEST_OVER(test_replay__resynchronises_after_a_deviation, deviations) {
  static const uint64_t longest_lives[] = { 1, 5, 40 };
  const size_t step = strcmp(t_variant(), "other branch") == 0 ? 10 : 1;
  for (size_t i = 0; i < 3; i++) {
    play p;
    performer a;
    program run;
    performed(&p, &a, &run, longest_lives[i]);
    for (size_t at = 0; at < 200; at += step) {
      program other = run;
      const size_t unplanned = deviate(&other, at);
      expect_found_back(&p, &a, &other, unplanned);
    }
    performer_fini(&a);
    play_close(&p);
  }
}

// ---------------------------------------------------------------------------------------------------
// What memory holds

static void expect_word(const uint8_t* address, size_t bytes, const uint8_t word[4]) {
  for (size_t i = 0; i < bytes; i++) {
    if (address[i] != word[i % 4]) T_FAIL("byte %zu is 0x%02x, not 0x%02x", i, address[i], word[i % 4]);
  }
}

// Requests of odd sizes, one of them too large for the arena, in two runs that leave something behind.
static void expect_fill(tide_fill fill, const uint8_t word[4]) {
  const size_t sizes[] = { 1, 2, 3, 5, 64, 1001, 7, 4099 };
  tide_profile_options options = TIDE_PROFILE_OPTIONS_INIT;
  play p;
  options.fill = fill;
  play_open(&p, &options);
  (void)play_run(&p, TIDE_PROFILE_RECORD, "a1 b2 c3 d5 e64 f1001 g7 h9 -a -b -c -d -e -f -g -h");
  for (int run = 0; run < 3; run++) {
    T_OK(tide_profile_begin(p.profile, TIDE_PROFILE_REPLAY, 0));
    for (size_t i = 0; i < 8; i++) {
      void* address = NULL;
      T_OK(tide_profile_alloc(p.profile, sizes[i], 0, &address));
      expect_word(address, sizes[i], word);
      memset(address, 0x5a, sizes[i]);
      p.blocks[i] = (play_block){ address, sizes[i], 0x5a };
    }
    play_steps(&p, "-a -b -c -d -e -f -g -h");
    T_EQ(play_end(&p).larger, 1);
  }
  play_close(&p);
}

T_TEST(test_replay__fills_with_zeros) {
  const uint8_t word[4] = { 0, 0, 0, 0 };
  expect_fill(TIDE_FILL_ZEROS, word);
}

T_TEST(test_replay__fills_with_junk) {
  const uint8_t word[4] = { 0xef, 0xbe, 0xed, 0x7f };
  expect_fill(TIDE_FILL_JUNK, word);
}

T_TEST(test_replay__fills_what_is_never_released) {
  const uint8_t word[4] = { 0xef, 0xbe, 0xed, 0x7f };
  tide_profile_options options = TIDE_PROFILE_OPTIONS_INIT;
  play p;
  options.fill = TIDE_FILL_JUNK;
  recorded(&p, &options, "a100");
  play_steps(&p, "-a");
  for (int run = 0; run < 6; run++) {
    void* address = NULL;
    T_OK(tide_profile_begin(p.profile, TIDE_PROFILE_REPLAY, 0));
    T_OK(tide_profile_alloc(p.profile, 100, 0, &address));
    T_OK(tide_profile_end(p.profile, NULL));
    expect_word(address, 100, word);
    memset(address, 0, 100);
    T_OK(tide_profile_release(p.profile, address));
  }
  play_close(&p);
}

// Memory that the processor cannot reach cannot be filled.
T_TEST(test_replay__memory_of_a_device_is_not_filled) {
  tide_profile_options options = TIDE_PROFILE_OPTIONS_INIT;
  tide_profile* profile = NULL;
  table memory;
  table_init(&memory);
  memory.memory.is_host = false;
  options.memory = options.fallback = memory.memory;
  options.fill = TIDE_FILL_ZEROS;

  T_STATUS(tide_profile_new(&options, &profile), TIDE_ERR_UNSUPPORTED);

  T_PTR_EQ(profile, NULL);
  table_fini(&memory);
}

// ---------------------------------------------------------------------------------------------------
// Exact replay

static void recorded_strictly(play* p, const char* steps) {
  const tide_profile_options options = TIDE_PROFILE_OPTIONS_ORIGINAL;
  recorded(p, &options, steps);
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_REPLAY, 0));
}

static void expect_request_refused(play* p, size_t bytes) {
  void* address = p;
  T_STATUS(tide_profile_alloc(p->profile, bytes, 0, &address), TIDE_ERR_STATE);
  T_PTR_EQ(address, NULL);
}

T_TEST(test_replay__strict_the_same_run) {
  const tide_profile_options options = TIDE_PROFILE_OPTIONS_ORIGINAL;
  play p;
  recorded(&p, &options, STEPS);

  for (int i = 0; i < 10; i++) {
    const tide_profile_report report = replayed(&p, STEPS);
    play_expect_same(&report, 3);
  }

  play_close(&p);
}

PLAY_TEST(test_replay__strict_refuses_another_size, recorded_strictly(p, STEPS)) {
  play_steps(p, "a100");

  expect_request_refused(p, 201);
  expect_request_refused(p, 199);

  play_steps(p, "b200 -a c300 -b -c");  // what was recorded is still served
  (void)play_end(p);
}

PLAY_TEST(test_replay__strict_refuses_a_request_too_many, recorded_strictly(p, STEPS)) {
  play_steps(p, STEPS);

  expect_request_refused(p, 100);
  expect_request_refused(p, 300);

  (void)play_end(p);
}

PLAY_TEST(test_replay__strict_refuses_an_early_release, recorded_strictly(p, STEPS)) {
  play_steps(p, "a100");

  T_STATUS(tide_profile_release(p->profile, play_address(p, 'a')), TIDE_ERR_STATE);

  play_steps(p, "b200 -a c300 -b -c");
  (void)play_end(p);
}

PLAY_TEST(test_replay__strict_refuses_a_late_release_until_the_run_is_over, recorded_strictly(p, STEPS)) {
  play_steps(p, "a100 b200");
  uint8_t* const a = play_address(p, 'a');
  void* c = NULL;

  const tide_status status = tide_profile_alloc(p->profile, 300, 0, &c);  // c may be due where a still is
  T_CHECK(status == TIDE_OK || status == TIDE_ERR_STATE);
  T_STATUS(tide_profile_release(p->profile, a), TIDE_ERR_STATE);

  if (status == TIDE_OK) T_OK(tide_profile_release(p->profile, c));
  T_ANY(tide_profile_end(p->profile, NULL));
  play_steps(p, "-a -b");
  T_EQ(play_stats(p).survivors, 0);
}

PLAY_TEST(test_replay__strict_does_not_mind_what_is_missing, recorded_strictly(p, "a10 -a b20 -b c30 -c")) {
  play_steps(p, "a10 -a");

  const tide_profile_report report = play_end(p);

  T_EQ(report.missing, 2);
}

T_TEST(test_replay__strict_releases_what_is_not_planned_at_any_time) {
  play p;
  const tide_profile_options options = TIDE_PROFILE_OPTIONS_ORIGINAL;
  recorded(&p, &options, "a100 b200 -a");
  play_steps(&p, "-b x50");

  (void)play_run(&p, TIDE_PROFILE_REPLAY, "a100 b200 -x -a -b");

  play_close(&p);
}
