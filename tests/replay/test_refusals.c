// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Recordings of which most requests are refused: a refusal costs as much among many live blocks as among few.
// The processor's time of a recording is set against that of one eight times as long; where each refusal
// walked over all blocks it would be sixty-four times as much.
#include <time.h>

#include "replay/by_hand.h"
#include "tidemark/replay.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define BASE UINT64_C(0x7f0000000000)
#define LIMIT (4096 * GIB)

static const char* const settings[] = { "policy:torch", "policy:torch,expandable_segments:True",
                                        "policy:torch,max_split_size_mb:64,garbage_collection_threshold:0.6",
                                        NULL };

// Large blocks, each with a segment of its own, that stay.
static void add_segments(tide_trace* trace, size_t count) {
  for (size_t i = 0; i < count; i++)
    trace_add(trace, TIDE_ACTION_ALLOC, BASE + i * 32 * MIB, 24 * MIB + i % 7 * 512);
}

// Small blocks that stay.
static void add_blocks(tide_trace* trace, size_t count) {
  for (size_t i = 0; i < count; i++) trace_add(trace, TIDE_ACTION_ALLOC, BASE + i * 1024, 1024);
}

static void add_refusal(tide_trace* trace) { trace_add(trace, TIDE_ACTION_OOM, 0, 2 * LIMIT); }

static tide_trace* refused_in_a_row(size_t count) {
  tide_trace* const trace = trace_new();
  add_segments(trace, count);
  for (size_t i = 0; i < count; i++) add_refusal(trace);
  return trace;
}

static tide_trace* refused_between_releases(size_t count) {
  tide_trace* const trace = trace_new();
  add_blocks(trace, count);
  for (size_t i = 0; i < count; i++) {
    trace_add(trace, TIDE_ACTION_ALLOC, BASE - 1024, 600);
    trace_add_free(trace, BASE - 1024, 600);
    add_refusal(trace);
  }
  return trace;
}

static double seconds_of_run(const tide_trace* trace, size_t refusals) {
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  tide_replay_result result = TIDE_REPLAY_RESULT_INIT;
  tide_replay* replay = NULL;
  T_OK(tide_replay_new(trace, 0, NULL, &replay));
  tide_device_options device = TIDE_DEVICE_OPTIONS_INIT;
  T_OK(tide_device_options_parse(t_variant(), &device));
  options.device = &device;
  options.limit = LIMIT;
  const clock_t begin = clock();
  T_OK(tide_replay_run(replay, &options, &result));
  const clock_t end = clock();
  T_EQ(result.ooms, refusals);
  tide_replay_free(replay);
  return (double)(end - begin) / CLOCKS_PER_SEC;
}

// The least of two: what disturbs a run only makes it longer.
static double seconds_of(tide_trace* (*make)(size_t count), size_t count) {
  tide_trace* const trace = make(count);
  double least = 1e9;
  for (int i = 0; i < 2; i++) {
    const double seconds = seconds_of_run(trace, count);
    if (seconds < least) least = seconds;
  }
  tide_trace_free(trace);
  return least;
}

static void expect_linear(tide_trace* (*make)(size_t count)) {
  const size_t count = 2500;
  const double few = seconds_of(make, count);
  const double many = seconds_of(make, 8 * count);
  if (many > 24 * few)
    t_fail(__FILE__, __LINE__, "%.3f s for %zu, %.3f s for 8 times as many", few, count, many);
}

T_TEST_OVER(test_refusals__in_a_row_cost_no_walk_over_all_segments, settings) {
  t_one_variant(settings);
  expect_linear(refused_in_a_row);
}

T_TEST_OVER(test_refusals__between_releases_cost_no_walk_over_all_blocks, settings) {
  t_one_variant(settings);
  expect_linear(refused_between_releases);
}
