// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The script of a recording: which release waits and until when, which block a release is of, which pool a
// request went to, which mapping begins a reserve, and where the cache must have been emptied.
#include "replay/steps.h"

#include "replay/by_hand.h"

#define MIB ((uint64_t)1 << 20)

static tide__script script_of(const tide_trace* trace) {
  tide__script steps;
  T_OK(tide__script_init(&steps, trace, 0, &tide__system_heap));
  return steps;
}

// The steps of a script as text: a letter for each kind, and the slot.
static const char* script_text(const tide__script* steps, char out[256]) {
  size_t length = 0;
  out[0] = '\0';
  for (size_t i = 0; i < steps->step_count && length < 240; i++) {
    const tide__step* const step = &steps->steps[i];
    const bool has_slot = step->kind != TIDE__STEP_OOM && step->kind <= TIDE__STEP_DONE;
    length += (size_t)snprintf(out + length, 256 - length, has_slot ? "%c%u " : "%c ",
                               "aofwdsrnmu"[step->kind], step -> slot);
  }
  return out;
}

static void expect_script(const tide_trace* trace, const char* text) {
  char got[256];
  tide__script steps = script_of(trace);
  T_STR_EQ(script_text(&steps, got), text);
  tide__script_fini(&steps);
}

// ---------------------------------------------------------------------------------------------------
// Releases

static const struct {
  const char* entries;
  const char* steps;
} step_rows[] = {
  // Releases that complete at once: their slots are used again.
  { "alloc 0x1000:100 0x2000:100 free 0x1000:100 alloc 0x1000:50 free 0x2000:100 "
    "alloc 0x3000:60",
    "a0 a1 f0 a0 f1 a1 " },
  // A release before a segment may have waited for it: see docs/replay.md.
  { "alloc 0x1000:100 free 0x1000:100 give 0x1000:2M alloc 0x200000:100 "
    "free 0x200000:100",
    "a0 w0 d0 r a0 w0 d0 " },
  // Remarks make no steps.
  { "alloc 0x1000:100 request 0x1000:100 snapshot 0:0 done 0x1000:100 "
    "user_defined 0:0 other 0x1000:7 alloc 0x1000:100",
    "a0 f0 a0 " },
  // A block whose release is missing ends when its address is allocated again.
  { "alloc 0x1000:100 0x1000:200 request 0x1000:200 alloc 0x1000:300 done 0x1000:300",
    "a0 f0 a0 w0 d0 a0 f0 " },
  // Without completions a release is complete at once.
  { "alloc 0x1000:100 request 0x1000:100 give 0x1000:100", "a0 f0 r " },
  // An empty recording has no steps.
  { "", "" },
};

T_TEST(test_steps__follow_the_entries) {
  for (size_t i = 0; i < sizeof step_rows / sizeof *step_rows; i++) {
    tide_trace* const trace = trace_from(0, step_rows[i].entries);
    expect_script(trace, step_rows[i].steps);
    tide_trace_free(trace);
  }
}

T_TEST(test_steps__of_a_release_that_waits_know_until_when) {
  tide_trace* const trace =
      trace_from(0, "alloc 0x1000:100 request 0x1000:100 alloc 0x2000:100 request 0x2000:100 "
                    "done 0x1000:100 alloc 0x1000:100");

  expect_script(trace, "a0 w0 a1 w1 d0 a0 ");
  tide__script steps = script_of(trace);
  T_EQ(steps.steps[1].until, 4);
  T_EQ(steps.steps[3].until, steps.entry_count);  // never
  tide__script_fini(&steps);
  tide_trace_free(trace);
}

T_TEST(test_steps__skip_releases_of_unknown_blocks) {
  tide_trace* const trace =
      trace_from(0, "free 0x9000:100 alloc 0x1000:100 free 0x1000:100 0x1000:100 alloc 0x1000:100");

  expect_script(trace, "a0 f0 a0 ");
  tide__script steps = script_of(trace);
  T_EQ(steps.skipped, 2);
  tide__script_fini(&steps);
  tide_trace_free(trace);
}

static void add_waiting_block(tide_trace* trace, uint64_t address, uint16_t absent) {
  T_OK(tide_trace_add_block(
      trace, &(tide_trace_block){
                 .address = address, .bytes = 512, .absent = absent, .state = TIDE_BLOCK_PENDING }));
}

// Only the last release of an address can be the one that a block waits for.
T_TEST(test_steps__without_completions_keep_waiting_what_waits_at_the_end) {
  tide_trace* const trace = trace_from(0, "alloc 0x1000:100 request 0x1000:100 alloc 0x1000:100 0x2000:100 "
                                          "request 0x1000:100 0x2000:100 alloc 0x3000:100");
  T_OK(tide_trace_add_segment(trace, &(tide_trace_segment){ .address = 0x1000, .bytes = 2 * MIB }));
  add_waiting_block(trace, 0x1000, 0);
  add_waiting_block(trace, 0x1000, 0);                       // listed twice
  add_waiting_block(trace, 0x2000, TIDE_BLOCK_KEY_ADDRESS);  // without an address
  T_OK(tide_trace_add_segment(trace, &(tide_trace_segment){ .address = 0x2000, .bytes = 512, .device = 1 }));
  add_waiting_block(trace, 0x2000, 0);

  expect_script(trace, "a0 f0 a0 a1 w0 f1 a1 ");
  tide__script steps = script_of(trace);
  T_EQ(steps.steps[4].until, steps.entry_count);  // never
  tide__script_fini(&steps);
  tide_trace_free(trace);
}

T_TEST(test_steps__leave_absurd_requests_out) {
  tide_trace* const trace = trace_from(0, "alloc 0x1000:0 free 0x1000:0");
  trace_add(trace, TIDE_ACTION_ALLOC, 0x2000, (uint64_t)1 << 60);
  trace_add(trace, TIDE_ACTION_OOM, 0, UINT64_MAX);
  trace_add(trace, TIDE_ACTION_ALLOC, 0x3000, ((uint64_t)1 << 60) - 1);
  trace_add(trace, TIDE_ACTION_OOM, 0, 100);

  expect_script(trace, "a0 o ");
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// Streams, pools and reserves

T_TEST(test_steps__number_streams_in_their_order) {
  tide_trace* const trace = trace_new();
  const uint64_t handles[] = { 900, 0, 17, UINT64_MAX, 900 };
  for (size_t i = 0; i < 5; i++) trace_add_on(trace, TIDE_ACTION_ALLOC, 0x1000 * (i + 1), 100, handles[i]);

  tide__script steps = script_of(trace);

  T_EQ(steps.stream_count, 4);
  const uint16_t want[] = { 2, 0, 1, 3, 2 };
  for (size_t i = 0; i < 5; i++) T_EQ(steps.steps[i].stream, want[i]);
  T_EQ(tide__script_stream(&steps, 17), 1);
  T_EQ(tide__script_stream(&steps, 18), 4);
  tide__script_fini(&steps);
  tide_trace_free(trace);
}

T_TEST(test_steps__refuse_more_streams_than_anybody_has) {
  tide_trace* const trace = trace_new();
  for (uint64_t i = 0; i < 2 * TIDE__SCRIPT_STREAMS; i++)
    trace_add_on(trace, TIDE_ACTION_ALLOC, 0x1000 * (i + 1), 100, i * 7);

  tide__script steps;
  T_STATUS(tide__script_init(&steps, trace, 0, &tide__system_heap), TIDE_ERR_LIMIT);
  tide_trace_free(trace);
}

static void add_segment(tide_trace* trace, uint64_t address, uint64_t bytes, uint32_t pool) {
  T_OK(tide_trace_add_segment(trace,
                              &(tide_trace_segment){ .address = address, .bytes = bytes, .pool = pool }));
}

// The address of the second was the first's before, which was of the default pool.
T_TEST(test_steps__take_pools_from_the_segments_that_are_left) {
  tide_trace* const trace = trace_new();
  uint32_t pool = 0;
  T_OK(tide_trace_add_pool(trace, (tide_pool_label){ 0, 3 }, &pool));
  trace_add_from(trace, 0,
                 "segment 2M:2M alloc 2M:100 free 2M:100 give 2M:2M segment 2M:2M "
                 "alloc 2M+512:100");
  trace_add(trace, TIDE_ACTION_ALLOC, 4 * MIB, 100);  // outside
  add_segment(trace, 2 * MIB, 2 * MIB, pool);

  tide__script steps = script_of(trace);

  T_EQ(steps.steps[1].pool, 0);
  T_EQ(steps.steps[6].kind, TIDE__STEP_ALLOC);
  T_EQ(steps.steps[6].pool, pool);
  T_EQ(steps.steps[7].pool, 0);
  tide__script_fini(&steps);
  tide_trace_free(trace);
}

T_TEST(test_steps__take_pools_from_entries_that_tell) {
  tide_trace* const trace = trace_new();
  uint32_t pool = 0;
  T_OK(tide_trace_add_pool(trace, (tide_pool_label){ 0, 3 }, &pool));
  tide_trace_entry entry = { .address = 0x1000, .bytes = 100, .pool = pool, .action = TIDE_ACTION_ALLOC };
  T_OK(tide_trace_add_entry(trace, &entry));
  entry.action = TIDE_ACTION_OOM;
  T_OK(tide_trace_add_entry(trace, &entry));
  entry.pool = 77;  // unknown
  T_OK(tide_trace_add_entry(trace, &entry));

  tide__script steps = script_of(trace);

  T_EQ(steps.steps[0].pool, pool);
  T_EQ(steps.steps[1].pool, pool);
  T_EQ(steps.steps[2].pool, 0);
  tide__script_fini(&steps);
  tide_trace_free(trace);
}

// A reserve has holes that are filled again. After its last byte is unmapped, the next mapping begins a new
// one.
T_TEST(test_steps__know_which_mapping_begins_a_reserve) {
  tide_trace* const trace =
      trace_from(0, "map 100M:40M 140M:20M 900M:2M unmap 100M:20M 140M:20M map 100M:20M 160M:20M "
                    "unmap 100M:40M 160M:20M map 120M:20M");

  expect_script(trace, "n m n u u m m u u n ");
  tide__script steps = script_of(trace);
  T_EQ(steps.reach_bytes, 80 * MIB);
  T_EQ(steps.spread_bytes, 780 * MIB);
  tide__script_fini(&steps);
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// Emptying the cache

T_TEST(test_steps__know_where_the_cache_was_surely_emptied) {
  tide_trace* const trace = trace_from(0, "alloc 0x1000:100 request 0x1000:100 done 0x1000:100");
  trace_add(trace, TIDE_ACTION_SEGMENT_FREE, 0x1000, 2 * MIB);  // before a release: surely
  trace_add_from(trace, 0, "free 0x9000:100 alloc 0x1000:100 0x2000:100 free 0x1000:100");
  trace_add(trace, TIDE_ACTION_SEGMENT_FREE, 0x1000, 2 * MIB);  // before a request: perhaps by that
  trace_add(trace, TIDE_ACTION_ALLOC, 0x3000, 100);
  trace_add(trace, TIDE_ACTION_SEGMENT_FREE, 0x1000, 2 * MIB);  // before the end: surely
  expect_script(trace, "a0 w0 d0 r a0 a1 w0 d0 r a0 r ");

  tide__script steps = script_of(trace);

  // The release of 0x9000 is of an unknown block: it makes no step, so only the end is certain.
  T_EQ(steps.empty_count, 1);
  T_EQ(steps.empties[0], 10);
  tide__script_fini(&steps);
  tide_trace_free(trace);
}

T_TEST(test_steps__have_windows_up_to_a_request_or_release) {
  tide_trace* const trace = trace_new();
  for (uint64_t i = 1; i <= 3; i++) trace_add(trace, TIDE_ACTION_ALLOC, i * 0x1000, 100);
  trace_add_from(trace, 0,
                 "request 0x1000:100 0x2000:100 done 0x1000:100 0x2000:100 give 0x1000:2M "
                 "free 0x3000:100");
  expect_script(trace, "a0 a1 a2 w0 w1 d0 d1 r w2 d2 ");

  tide__script steps = script_of(trace);
  const tide__window w = tide__window_at(steps.steps, steps.step_count, 5);

  T_EQ(w.end, 8);
  T_EQ(w.lead, 2);
  T_CHECK(w.gives_back && !w.has_request);
  T_EQ(steps.empty_count, 1);
  T_EQ(steps.empties[0], 7);
  T_EQ(tide__script_find(&steps, 0), 0);
  T_EQ(tide__script_find(&steps, 8), 8);
  T_EQ(tide__script_find(&steps, 99), steps.step_count);
  tide__script_fini(&steps);
  tide_trace_free(trace);
}
