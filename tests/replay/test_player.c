// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Runs of small recordings made by hand: statistics, limits, releases that wait, emptying the cache; and
// that no recording, however wrong, does harm.
#define T_THREADS
#include <math.h>

#include "machine/counting_heap.h"
#include "tidemark/replay.h"
#include "replay/by_hand.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

static tide_replay* replay_of(const tide_trace* trace) {
  tide_replay* replay = NULL;
  T_OK(tide_replay_new(trace, 0, NULL, &replay));
  return replay;
}

static tide_replay_result run_with(tide_replay* replay, const tide_replay_options* options) {
  tide_replay_result result = TIDE_REPLAY_RESULT_INIT;
  T_OK(tide_replay_run(replay, options, &result));
  return result;
}

// Runs a trace once under a limit; 0: none.
static tide_replay_result run_under(const tide_trace* trace, uint64_t limit) {
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  tide_replay* const replay = replay_of(trace);
  if (limit != 0) options.limit = limit;
  const tide_replay_result result = run_with(replay, &options);
  tide_replay_free(replay);
  return result;
}

// ---------------------------------------------------------------------------------------------------
// Recordings that begin in the middle

// A block of 3 MiB that is released, and one of 5 MiB that stays; both are older than the recording.
static tide_trace* trace_from_the_middle(void) {
  tide_trace* const trace = trace_new();
  const tide_trace_segment segment = { .address = 0x1000000, .bytes = 20 * MIB, .is_large = true };
  const tide_trace_block kept = { .address = 0x1000000 + 3 * MIB,
                                  .bytes = 5 * MIB,
                                  .requested_bytes = 5 * MIB,
                                  .state = TIDE_BLOCK_ALLOCATED };
  T_OK(tide_trace_add_segment(trace, &segment));
  T_OK(tide_trace_add_block(trace, &(tide_trace_block){ .address = 0x1000000, .bytes = 3 * MIB }));
  T_OK(tide_trace_add_block(trace, &kept));
  T_OK(tide_trace_add_block(trace, &(tide_trace_block){ .address = 0x1000000 + 8 * MIB, .bytes = 12 * MIB }));
  trace_add_from(trace, 0, "free 0x1000000:3M alloc 0x1000000:2M free 0x1000000:2M");
  return trace;
}

T_TEST(test_player__requests_first_what_was_there_before) {
  tide_trace* const trace = trace_from_the_middle();

  const tide_replay_result result = run_under(trace, 0);

  T_EQ(result.blocks_before, 2);
  T_EQ(result.bytes_before, 8 * MIB);
  T_EQ(result.peak_allocated, 8 * MIB);
  T_EQ(result.peak_reserved, 20 * MIB);
  T_EQ(result.skipped, 0);
  tide_trace_free(trace);
}

T_TEST(test_player__cannot_compare_what_begins_in_the_middle) {
  tide_trace* const trace = trace_from_the_middle();
  tide_replay* const replay = replay_of(trace);
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  options.checks = true;

  const tide_replay_result result = run_with(replay, &options);

  T_EQ(result.mismatched_segments, 1);
  T_STR_HAS(result.mismatch, "begins in the middle: 2 blocks");
  T_EQ(result.peak_allocated, 8 * MIB);
  tide_replay_free(replay);
  tide_trace_free(trace);
}

// A program that empties its cache in each step needs no guesses: there was room for what it asked for next.
T_TEST(test_player__follows_a_cache_that_is_emptied_again_and_again) {
  tide_trace* const trace = trace_new();
  for (uint64_t i = 0; i < 2000; i++) {
    const uint64_t bytes = (100 + 2 * (i % 50)) * MIB;
    trace_add(trace, TIDE_ACTION_SEGMENT_ALLOC, 0x1000000, bytes);
    trace_add(trace, TIDE_ACTION_ALLOC, 0x1000000, bytes);
    trace_add_free(trace, 0x1000000, bytes);
    trace_add(trace, TIDE_ACTION_SEGMENT_FREE, 0x1000000, bytes);
  }
  tide_replay* const replay = replay_of(trace);
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  options.checks = true;
  options.limit = 300 * MIB;

  const tide_replay_result result = run_with(replay, &options);

  T_STR_EQ(result.mismatch, "");
  T_EQ(result.retries + result.inferred_empty_cache, 2000);
  T_LT(0, result.retries);
  T_LT(0, result.inferred_empty_cache);
  tide_replay_free(replay);
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// Figures

T_TEST(test_player__counts_live_requests_whatever_the_policy_does) {
  tide_trace* const trace = trace_from(0, "alloc 0x1000:1 0x2000:512 0x3000:513");
  trace_add(trace, TIDE_ACTION_FREE_REQUESTED, 0x3000, 513);  // still live
  trace_add_from(trace, 0, "alloc 0x4000:3M+1 done 0x3000:513 alloc 0x5000:512");
  tide_replay* const replay = replay_of(trace);

  static const char* const settings[] = { "", "roundup_power2_divisions:2", "expandable_segments:True" };
  for (size_t i = 0; i < 3; i++) {
    tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
    tide_device_options device = TIDE_DEVICE_OPTIONS_INIT;
    T_OK(tide_device_options_parse(settings[i], &device));
    options.device = &device;
    const tide_replay_result result = run_with(replay, &options);
    T_EQ(result.peak_allocated, 512 + 512 + 1024 + 3 * MIB + 512);
    T_EQ(result.allocations, 5);
    T_EQ(result.entries, 7);
    T_EQ(result.ooms, 0);
    T_EQ(result.first_oom, UINT64_MAX);
    T_EQ(result.span_ns, 6000);
  }

  tide_replay_free(replay);
  tide_trace_free(trace);
}

T_TEST(test_player__tells_driver_calls_by_tenths) {
  tide_trace* const trace = trace_new();
  for (uint64_t i = 0; i < 20; i++)
    trace_add(trace, TIDE_ACTION_ALLOC, (i + 1) * GIB, i == 0 || i == 19 ? 20 * MIB : 512);

  const tide_replay_result result = run_under(trace, 0);

  T_EQ(result.driver_calls, 3);  // two large segments, one small
  T_EQ(result.driver_allocs, 3);
  T_EQ(result.driver_calls_by_tenth[0], 2);
  T_EQ(result.driver_calls_by_tenth[9], 1);
  T_EQ(result.driver_ns, 3 * 40000);
  T_EQ(result.driver_ns_by_tenth[0], 2 * 40000);
  T_EQ(result.peak_reserved, 42 * MIB);
  for (size_t i = 0; i < TIDE_REPLAY_TENTHS; i++) T_EQ(result.remap_ns_by_tenth[i], 0);
  tide_trace_free(trace);
}

T_TEST(test_player__takes_no_growth_for_remapping) {
  tide_trace* const trace = trace_new();
  for (uint64_t i = 0; i < 30; i++) {
    trace_add(trace, TIDE_ACTION_ALLOC, (i + 1) * GIB, 50 * MIB);
    if (i % 10 == 9) {
      for (uint64_t k = i - 9; k <= i; k++) trace_add_free(trace, (k + 1) * GIB, 50 * MIB);
    }
  }
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  tide_device_options device = TIDE_DEVICE_OPTIONS_INIT;
  T_OK(tide_device_options_parse("expandable_segments:True", &device));
  options.device = &device;
  options.limit = 520 * MIB;
  tide_replay* const replay = replay_of(trace);

  const tide_replay_result result = run_with(replay, &options);

  T_LT(50, result.driver_calls);
  for (size_t i = 0; i < TIDE_REPLAY_TENTHS; i++) T_EQ(result.remap_ns_by_tenth[i], 0);
  tide_replay_free(replay);
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// Running out of memory

static tide_trace* trace_of_three(void) {
  tide_trace* const trace = trace_from(0, "alloc 1G:100M 2G:200M 3G:50M free 2G:200M 1G:100M alloc 4G:100M");
  return trace;
}

T_TEST(test_player__skips_the_release_of_what_was_refused) {
  tide_trace* const trace = trace_of_three();

  const tide_replay_result result = run_under(trace, 160 * MIB);

  T_EQ(result.ooms, 1);
  T_EQ(result.first_oom, 1);
  T_EQ(result.oom_bytes, 200 * MIB);
  T_EQ(result.allocations, 3);
  T_EQ(result.peak_allocated, 150 * MIB);
  T_EQ(result.entries, 8);
  tide_trace_free(trace);
}

T_TEST(test_player__stops_at_a_refusal_if_asked) {
  tide_trace* const trace = trace_of_three();
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  options.limit = 160 * MIB;
  options.stops_at_oom = true;
  tide_replay* const replay = replay_of(trace);

  const tide_replay_result result = run_with(replay, &options);

  T_EQ(result.ooms, 1);
  T_EQ(result.first_oom, 1);
  T_EQ(result.entries, 2);
  T_EQ(result.allocations, 1);
  options.limit = 350 * MIB;
  T_EQ(run_with(replay, &options).ooms, 0);
  tide_replay_free(replay);
  tide_trace_free(trace);
}

// The steps of the test below: each holds a block at first, and then another one of the same size, which
// needs no new memory. Step `at` holds two at once.
#define STEPS 50000
static tide_trace* trace_with_a_peak(uint64_t at) {
  tide_trace* const trace = trace_new();
  const uint64_t bytes = 100 * MIB;
  for (uint64_t i = 0; i < STEPS; i++) {
    trace_add(trace, TIDE_ACTION_ALLOC, 0x10000000, bytes);
    if (i == at) trace_add(trace, TIDE_ACTION_ALLOC, 0x20000000, bytes);
    trace_add_free(trace, 0x10000000, bytes);
    if (i == at) trace_add_free(trace, 0x20000000, bytes);
  }
  return trace;
}

T_TEST(test_player__stops_soon_after_it_reserved_more_than_asked) {
  tide_trace* const trace = trace_with_a_peak(10);
  tide_replay* const replay = replay_of(trace);
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  options.stops_above = 200 * MIB - 1;

  const tide_replay_result stopped = run_with(replay, &options);
  options.stops_above = 200 * MIB;
  const tide_replay_result whole = run_with(replay, &options);

  T_EQ(stopped.peak_reserved, 200 * MIB);
  T_LT(stopped.entries, 3 * STEPS / 2);
  T_EQ(whole.peak_reserved, 200 * MIB);
  T_EQ(whole.entries, 3 * STEPS + 3);
  tide_replay_free(replay);
  tide_trace_free(trace);
}

T_TEST(test_player__sees_at_the_end_that_it_reserved_more_than_asked) {
  tide_trace* const trace = trace_with_a_peak(STEPS - 1);
  tide_replay* const replay = replay_of(trace);
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  options.stops_above = 100 * MIB;

  T_EQ(run_with(replay, &options).peak_reserved, 200 * MIB);
  tide_replay_free(replay);
  tide_trace_free(trace);
}

// The driver is called before the first request, or as far as the limit allows it.
T_TEST(test_player__begins_with_reserved_memory) {
  static const uint32_t policies[] = { TIDE_POLICY_TORCH, TIDE_POLICY_TIDE };
  tide_trace* const trace = trace_with_a_peak(10);
  tide_replay* const replay = replay_of(trace);
  for (int i = 0; i < 2; i++) {
    tide_device_options device = TIDE_DEVICE_OPTIONS_INIT;
    tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
    device.policy = policies[i];
    options.device = &device;
    T_EQ(run_with(replay, &options).reserve_ns, 0);
    options.reserve_bytes = 200 * MIB;
    const tide_replay_result whole = run_with(replay, &options);
    T_EQ(whole.peak_reserved, 200 * MIB);
    T_EQ(whole.driver_calls, 0);
    T_EQ(whole.driver_ns, 0);
    T_CHECK(whole.reserve_ns > 0);
    options.reserve_bytes = 300 * MIB;
    options.limit = 250 * MIB;
    T_EQ(run_with(replay, &options).ooms, 0);
  }
  tide_replay_free(replay);
  tide_trace_free(trace);
}

T_TEST(test_player__gives_back_what_was_refused_when_recorded) {
  tide_trace* const trace = trace_from(0, "oom 0:500M alloc 1G:500M");

  const tide_replay_result result = run_under(trace, 0);

  T_EQ(result.ooms, 0);
  T_EQ(result.allocations, 1);
  T_EQ(result.peak_allocated, 500 * MIB);
  T_EQ(result.peak_reserved, 500 * MIB);
  T_EQ(run_under(trace, 400 * MIB).ooms, 2);
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// Waiting

// Two blocks are released but in use by other work until entry `until`.
static tide_trace* trace_of_waiting(bool is_reversed) {
  tide_trace* const trace = trace_from(0, "alloc 1G:100M 2G:100M request 1G:100M 2G:100M alloc 3G:100M");
  trace_add(trace, TIDE_ACTION_FREE_COMPLETED, is_reversed ? 2 * GIB : 1 * GIB, 100 * MIB);
  trace_add(trace, TIDE_ACTION_ALLOC, 4 * GIB, 100 * MIB);
  trace_add(trace, TIDE_ACTION_FREE_COMPLETED, is_reversed ? 1 * GIB : 2 * GIB, 100 * MIB);
  trace_add(trace, TIDE_ACTION_ALLOC, 5 * GIB, 100 * MIB);
  return trace;
}

T_TEST(test_player__uses_no_block_again_before_its_completion) {
  for (int i = 0; i < 2; i++) {
    tide_trace* const trace = trace_of_waiting(i == 1);
    const tide_replay_result result = run_under(trace, 0);
    T_EQ(result.peak_reserved, 300 * MIB);
    T_EQ(result.peak_allocated, 300 * MIB);
    tide_trace_free(trace);
  }
}

T_TEST(test_player__waits_for_work_when_memory_is_short) {
  tide_trace* const trace = trace_of_waiting(false);

  const tide_replay_result result = run_under(trace, 200 * MIB);

  T_EQ(result.ooms, 1);  // entry 8: two are live then, and nothing waits
  T_EQ(result.first_oom, 8);
  T_EQ(result.retries, 2);
  tide_trace_free(trace);
}

// More completions that overtake each other than there are side streams.
T_TEST(test_player__survives_many_completions_in_reverse) {
  tide_trace* const trace = trace_new();
  const uint64_t count = 700;
  for (uint64_t i = 0; i < count; i++) trace_add(trace, TIDE_ACTION_ALLOC, (i + 1) * GIB, 512);
  for (uint64_t i = 0; i < count; i++) trace_add(trace, TIDE_ACTION_FREE_REQUESTED, (i + 1) * GIB, 512);
  for (uint64_t i = count; i > 0; i--) trace_add(trace, TIDE_ACTION_FREE_COMPLETED, i * GIB, 512);
  trace_add(trace, TIDE_ACTION_ALLOC, GIB, 512);

  const tide_replay_result result = run_under(trace, 0);

  T_EQ(result.allocations, count + 1);
  T_EQ(result.peak_allocated, count * 512);
  T_EQ(result.peak_reserved, 2 * MIB);
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// Emptying the cache

static tide_trace* trace_of_emptying(bool is_sure) {
  tide_trace* const trace =
      trace_from(0, "segment 1G:100M alloc 1G:100M segment 2G:2M alloc 2G:512 free 1G:100M "
                    "give 1G:100M");
  if (is_sure) trace_add_free(trace, 2 * GIB, 512);
  trace_add_from(trace, 0, "segment 3G:200M alloc 3G:200M");
  return trace;
}

T_TEST(test_player__empties_the_cache_where_nothing_else_can_have_been) {
  tide_trace* const trace = trace_of_emptying(true);
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  tide_replay* const replay = replay_of(trace);

  const tide_replay_result result = run_with(replay, &options);
  options.empties = false;
  const tide_replay_result full = run_with(replay, &options);

  T_EQ(result.inferred_empty_cache, 1);
  T_EQ(result.driver_frees, 1);
  T_EQ(result.peak_reserved, 202 * MIB);
  T_EQ(full.inferred_empty_cache, 0);
  T_EQ(full.peak_reserved, 302 * MIB);
  tide_replay_free(replay);
  tide_trace_free(trace);
}

// The release has two entries, so the memory is given back by the seventh.
T_TEST(test_player__says_where_the_cache_was_emptied) {
  tide_trace* const sure = trace_of_emptying(true);
  tide_trace* const guessed = trace_of_emptying(false);
  tide_replay* const replay = replay_of(guessed);
  tide_replay* const replay_of_sure = replay_of(sure);
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  uint64_t at = 0;

  T_EQ(tide_replay_empties(replay_of_sure, &at, 1), 1);
  T_EQ(at, 6);
  T_EQ(tide_replay_empties(replay, &at, 1), 0);
  options.checks = true;
  T_EQ(run_with(replay, &options).inferred_empty_cache, 1);
  T_EQ(tide_replay_empties(replay, NULL, 0), 1);
  at = 0;
  T_EQ(tide_replay_empties(replay, &at, 1), 1);
  T_EQ(at, 6);
  T_EQ(tide_replay_empties(NULL, &at, 1), 0);
  tide_replay_free(replay);
  tide_replay_free(replay_of_sure);
  tide_trace_free(guessed);
  tide_trace_free(sure);
}

T_TEST(test_player__empties_where_a_run_that_compared_found_so) {
  tide_trace* const trace = trace_of_emptying(false);
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  tide_replay* const replay = replay_of(trace);
  T_EQ(run_with(replay, &options).inferred_empty_cache, 0);

  options.checks = true;
  const tide_replay_result checked = run_with(replay, &options);
  options.checks = false;
  tide_device_options device = TIDE_DEVICE_OPTIONS_INIT;
  T_OK(tide_device_options_parse("roundup_power2_divisions:2", &device));
  options.device = &device;
  const tide_replay_result result = run_with(replay, &options);

  T_STR_EQ(checked.mismatch, "");
  T_EQ(checked.inferred_empty_cache, 1);
  T_EQ(result.inferred_empty_cache, 1);
  T_EQ(result.peak_reserved, 258 * MIB);
  tide_replay_free(replay);
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// Calls

T_TEST(test_player__refuses_bad_arguments) {
  tide_trace* const trace = trace_of_three();
  tide_replay* replay = NULL;
  tide_replay_result result = TIDE_REPLAY_RESULT_INIT;
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  const tide_heap half = { counting_alloc, NULL, NULL };

  T_STATUS(tide_replay_new(trace, 0, NULL, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_replay_new(NULL, 0, NULL, &replay), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_replay_new(trace, 0, &half, &replay), TIDE_ERR_ARGUMENT);
  T_CHECK(replay == NULL);
  tide_replay_free(NULL);
  T_OK(tide_replay_new(trace, 0, NULL, &replay));
  T_STATUS(tide_replay_run(NULL, &options, &result), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_replay_run(replay, &options, NULL), TIDE_ERR_ARGUMENT);
  options.size = 8;
  T_STATUS(tide_replay_run(replay, &options, &result), TIDE_ERR_ARGUMENT);
  options.size = sizeof options;
  tide_device_options device = TIDE_DEVICE_OPTIONS_INIT;
  device.collect_threshold = 7;
  options.device = &device;
  T_STATUS(tide_replay_run(replay, &options, &result), TIDE_ERR_ARGUMENT);
  T_OK(tide_replay_run(replay, NULL, &result));
  T_EQ(tide_replay_recorded_options(NULL).policy, TIDE_POLICY_TORCH);
  tide_replay_free(replay);
  tide_trace_free(trace);
}

T_TEST(test_player__refuses_a_scale_that_is_none) {
  static const double wrong[] = { 0, -1, 1025, NAN, INFINITY };
  tide_trace* const trace = trace_of_three();
  tide_replay* replay = NULL;
  tide_replay_result result = TIDE_REPLAY_RESULT_INIT;
  T_OK(tide_replay_new(trace, 0, NULL, &replay));
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    options.scale = wrong[i];
    T_STATUS(tide_replay_run(replay, &options, &result), TIDE_ERR_ARGUMENT);
  }
  options.scale = 2;
  T_OK(tide_replay_run(replay, &options, &result));
  options.checks = true;
  T_STATUS(tide_replay_run(replay, &options, &result), TIDE_ERR_ARGUMENT);
  tide_replay_free(replay);
  tide_trace_free(trace);
}

T_TEST(test_player__scales_every_size) {
  tide_trace* const trace = trace_of_three();
  tide_replay* replay = NULL;
  T_OK(tide_replay_new(trace, 0, NULL, &replay));
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  const tide_replay_result once = run_with(replay, &options);
  options.scales_all = true;
  options.scale = 1024;
  T_EQ(run_with(replay, &options).peak_allocated, 1024 * once.peak_allocated);
  options.scale = 1e-9;  // a byte each, of which a block of 512 is made
  const tide_replay_result least = run_with(replay, &options);
  T_EQ(least.peak_allocated % 512, 0);
  T_LE(least.peak_allocated, 512 * once.allocations);
  T_LE(512, least.peak_allocated);
  tide_replay_free(replay);
  tide_trace_free(trace);
}

// Weights of 100 MiB, which are released at the end, states of 10 MiB from the first of three steps on, which
// are not, and activations of 200 MiB in each step.
T_TEST(test_player__scales_no_block_that_lives_for_more_than_half_of_the_recording) {
  tide_trace* const trace = trace_from(0,
                                       "alloc 1G:100M alloc 2G:200M free 2G:200M alloc 3G:10M "
                                       "alloc 2G:200M free 2G:200M alloc 2G:200M free 2G:200M free 1G:100M");
  tide_replay* const replay = replay_of(trace);
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;

  T_EQ(run_with(replay, &options).unscaled_blocks, 0);
  options.scale = 3;
  const tide_replay_result result = run_with(replay, &options);

  T_EQ(result.peak_allocated, (100 + 10 + 3 * 200) * MIB);
  T_EQ(result.unscaled_blocks, 2);
  T_EQ(result.unscaled_bytes, 110 * MIB);
  options.scales_all = true;
  T_EQ(run_with(replay, &options).peak_allocated, 3 * 310 * MIB);
  T_EQ(run_with(replay, &options).unscaled_blocks, 0);
  tide_replay_free(replay);
  tide_trace_free(trace);
}

// A refused request that is served now counts for the peak of live requests.
T_TEST(test_player__counts_a_refused_request_that_is_served) {
  tide_trace* const trace = trace_from(0, "alloc 1G:100M oom 0:500M alloc 2G:200M");
  T_EQ(run_under(trace, 0).peak_allocated, 600 * MIB);
  T_EQ(run_under(trace, 400 * MIB).peak_allocated, 300 * MIB);
  tide_trace_free(trace);
}

T_TEST(test_player__of_a_device_without_entries_does_nothing) {
  tide_trace* const trace = trace_of_three();
  tide_replay* replay = NULL;
  T_OK(tide_replay_new(trace, 5, NULL, &replay));
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;

  for (int i = 0; i < 2; i++) {
    options.checks = i == 1;
    const tide_replay_result result = run_with(replay, &options);
    T_EQ(result.entries, 0);
    T_EQ(result.peak_reserved, 0);
    T_STR_EQ(result.mismatch, "");
  }

  tide_replay_free(replay);
  tide_trace_free(trace);
}

static bool stop_at_once(void* user, uint64_t done, uint64_t count) {
  T_LE(done, count);
  ++*(size_t*)user;
  return false;
}

T_TEST(test_player__ends_when_progress_says_so) {
  tide_trace* const trace = trace_of_three();
  tide_replay* const replay = replay_of(trace);
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  tide_replay_result result = TIDE_REPLAY_RESULT_INIT;
  size_t calls = 0;
  options.on_progress = stop_at_once;
  options.user = &calls;

  T_STATUS(tide_replay_run(replay, &options, &result), TIDE_ERR_STATE);
  options.checks = true;
  T_STATUS(tide_replay_run(replay, &options, &result), TIDE_ERR_STATE);

  T_EQ(calls, 2);
  T_EQ(result.entries, 0);
  tide_replay_free(replay);
  tide_trace_free(trace);
}

typedef struct thread_run {
  tide_replay* replay;
  const char* settings;
  tide_replay_result result;
} thread_run;

static void* thread_replays(void* user) {
  thread_run* const run = user;
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  tide_device_options device = TIDE_DEVICE_OPTIONS_INIT;
  T_OK(tide_device_options_parse(run->settings, &device));
  options.device = &device;
  T_OK(tide_replay_run(run->replay, &options, &run->result));
  return NULL;
}

static tide_trace* trace_of_chance(uint64_t count);

T_TEST(test_player__finds_the_same_in_several_threads) {
  static const char* const settings[] = { "", "expandable_segments:True", "max_split_size_mb:64", "" };
  tide_trace* const trace = trace_of_chance(4000);
  tide_replay* const replay = replay_of(trace);
  thread_run alone[4];
  thread_run together[4];
  pthread_t threads[4];

  for (size_t i = 0; i < 4; i++) {
    alone[i] = together[i] = (thread_run){ replay, settings[i], TIDE_REPLAY_RESULT_INIT };
    (void)thread_replays(&alone[i]);
  }
  for (size_t i = 0; i < 4; i++) t_thread_start(&threads[i], thread_replays, &together[i]);
  for (size_t i = 0; i < 4; i++) t_thread_join(threads[i]);

  for (size_t i = 0; i < 4; i++) {
    alone[i].result.run_ns = together[i].result.run_ns = 0;
    const size_t first = offsetof(tide_replay_result, entries);  // the padding before it may differ
    T_EQ(memcmp((const char*)&alone[i].result + first, (const char*)&together[i].result + first,
                sizeof alone[i].result - first),
         0);
  }
  tide_replay_free(replay);
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// Wrong recordings

static uint64_t chance_bytes(t_rng* rng) {
  static const uint64_t edges[] = {
    0, 1, 511, 2 * MIB, 20 * MIB, 1 * GIB, (uint64_t)1 << 41, (uint64_t)1 << 59, (uint64_t)1 << 60, UINT64_MAX
  };
  const uint64_t kind = t_rng_below(rng, 40);
  if (kind < 10) return edges[kind];
  return t_rng_below(rng, kind < 25 ? MIB : 40 * MIB);
}

// Random actions at few addresses, on few streams, in known and unknown pools.
static tide_trace* trace_of_chance(uint64_t count) {
  tide_trace* const trace = trace_new();
  t_rng rng = t_rng_new(count);
  uint32_t pool = 0;
  T_OK(tide_trace_add_pool(trace, (tide_pool_label){ 0, 1 }, &pool));
  for (uint64_t i = 0; i < count; i++) {
    const bool is_usual = t_rng_below(&rng, 4) != 0;
    tide_trace_entry entry = { .time_ns = t_rng_below(&rng, 1000),
                               .bytes = chance_bytes(&rng),
                               .stream = t_rng_below(&rng, 3) * 1000,
                               .pool = (uint32_t)t_rng_below(&rng, 3),
                               .action = (uint8_t)t_rng_below(&rng, is_usual ? 3 : TIDE_ACTION_COUNT) };
    entry.address = t_rng_below(&rng, 50) * (t_rng_below(&rng, 50) == 0 ? GIB * GIB / 7 : 2 * MIB);
    entry.absent = t_rng_below(&rng, 2) == 0 ? TIDE_ENTRY_POOL : 0;
    T_OK(tide_trace_add_entry(trace, &entry));
  }
  const tide_trace_segment segment = { .address = 2 * MIB, .bytes = 20 * MIB, .pool = pool };
  const tide_trace_about about = { .has_segments = true, .has_entries = true };
  T_OK(tide_trace_add_segment(trace, &segment));
  tide_trace_set_about(trace, &about);
  return trace;
}

T_TEST(test_player__survives_any_recording) {
  static const char* const settings[] = { "", "expandable_segments:True", "max_split_size_mb:64,fixes:on",
                                          "garbage_collection_threshold:0.5" };
  for (uint64_t i = 0; i < t_scaled_alone(20); i++) {
    tide_trace* const trace = trace_of_chance(20 + 10 * i);
    tide_replay* const replay = replay_of(trace);
    for (uint64_t k = 0; k < 8; k++) {
      tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
      tide_device_options device = TIDE_DEVICE_OPTIONS_INIT;
      T_OK(tide_device_options_parse(settings[k / 2], &device));
      options.device = &device;
      device.has_audits = true;
      options.checks = k % 2 == 1;
      options.limit = i % 2 == 0 ? TIDE_NO_LIMIT : 300 * MIB;
      const tide_replay_result result = run_with(replay, &options);
      T_LE(result.peak_blocks, result.peak_reserved);
      T_EQ(options.checks, result.mismatch[0] != '\0');
    }
    tide_replay_free(replay);
    tide_trace_free(trace);
  }
}

// ---------------------------------------------------------------------------------------------------
// No memory for records

// True when the heap did not fail.
static bool run_with_heap(const tide_trace* trace, size_t fail_at, bool checks) {
  counting_heap h;
  counting_heap_init(&h, fail_at, false);
  tide_replay* replay = NULL;
  tide_replay_result result = TIDE_REPLAY_RESULT_INIT;
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  options.checks = checks;
  tide_status status = tide_replay_new(trace, 0, &h.heap, &replay);
  if (status == TIDE_OK) status = tide_replay_run(replay, &options, &result);
  // A segment without a record is refused like one without memory, so that the run may go on.
  T_CHECK(status == TIDE_OK || status == TIDE_ERR_NO_MEMORY);
  tide_replay_free(replay);
  T_EQ(atomic_load(&h.outstanding), 0);
  return !atomic_load(&h.has_failed);
}

static const char* const ways[] = { "plain", "checks", NULL };

T_TEST_OVER(test_player__leaves_nothing_behind_without_memory, ways) {
  const bool checks = strcmp(t_variant(), "checks") == 0;
  tide_trace* const trace = trace_of_emptying(false);

  size_t fail_at = 0;
  while (!run_with_heap(trace, fail_at, checks)) fail_at++;

  T_LT(10, fail_at);
  tide_trace_free(trace);
}
