// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The curve of a replay. Under its own setting, a recording of PyTorch is repeated, so the truth is what the
// ledger says about the recorded segments.
#include "t.h"
#include "tidemark/ledger.h"
#include "tidemark/replay.h"
#include "traces.h"

#define PARTS_MOST 5000u

static uint64_t curve[PARTS_MOST];
static uint64_t expected[PARTS_MOST];

// A replay makes memory grow at the entry of the request, which follows that of the segment.
static void expect_curve(const tide_trace* trace, size_t parts) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, 0, &count);
  tide_ledger* ledger = NULL;
  uint64_t reserved = 0;
  uint64_t before = 0;
  T_OK(tide_ledger_new(trace, 0, &ledger));
  for (size_t k = 0, i = 0; k < parts; k++) {
    expected[k] = before;
    for (; i < count * (k + 1) / parts; i++) {
      if (entries[i].action != TIDE_ACTION_ALLOC) continue;
      T_OK(tide_ledger_seek(ledger, i));
      reserved = tide_ledger_get_totals(ledger).reserved_bytes;
      if (reserved > expected[k]) expected[k] = reserved;
      before = reserved;
    }
  }
  tide_ledger_free(ledger);
}

static const char* const part_counts[] = { "1", "7", "100", "2000", "5000", NULL };

T_TEST_OVER(test_curve__is_that_of_the_recording, part_counts) {
  const size_t parts = (size_t)strtoul(t_variant(), NULL, 10);
  tide_trace* const trace = trace_of_test("resnet_stacks");
  tide_replay* replay = NULL;
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  tide_replay_result plain = TIDE_REPLAY_RESULT_INIT;
  tide_replay_result result = TIDE_REPLAY_RESULT_INIT;
  T_OK(tide_replay_new(trace, 0, NULL, &replay));
  const tide_device_options device = tide_replay_recorded_options(replay);
  options.device = &device;
  T_OK(tide_replay_run(replay, &options, &plain));
  options.curve = curve;
  options.curve_count = parts;

  T_OK(tide_replay_run(replay, &options, &result));

  expect_curve(trace, parts);
  for (size_t i = 0; i < parts; i++) T_EQ(curve[i], expected[i]);
  T_EQ(result.peak_reserved, plain.peak_reserved);
  T_EQ(result.peak_blocks, plain.peak_blocks);
  T_EQ(result.driver_calls, plain.driver_calls);
  tide_replay_free(replay);
  tide_trace_free(trace);
}

// Memory that is given back shows: the cache is emptied, and the last part has less than the peak.
T_TEST(test_curve__falls_when_memory_is_given_back) {
  tide_trace* const trace = trace_of_test("gnn_retry");
  tide_replay* replay = NULL;
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  tide_replay_result result = TIDE_REPLAY_RESULT_INIT;
  uint64_t most = 0;
  size_t falls = 0;
  T_OK(tide_replay_new(trace, 0, NULL, &replay));
  options.limit = (uint64_t)14 << 30;
  options.curve = curve;
  options.curve_count = 500;
  T_OK(tide_replay_run(replay, &options, &result));
  for (size_t i = 0; i < 500; i++) {
    if (curve[i] > most) most = curve[i];
    falls += i > 0 && curve[i] < curve[i - 1];
  }
  T_EQ(most, result.peak_reserved);
  T_LT(0, falls);
  tide_replay_free(replay);
  tide_trace_free(trace);
}

T_TEST(test_curve__is_not_possible_with_checks) {
  tide_trace* const trace = trace_of_test("gnn_retry");
  tide_replay* replay = NULL;
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  tide_replay_result result = TIDE_REPLAY_RESULT_INIT;
  T_OK(tide_replay_new(trace, 0, NULL, &replay));
  options.checks = true;
  options.curve = curve;
  options.curve_count = 10;
  T_EQ(tide_replay_run(replay, &options, &result), TIDE_ERR_ARGUMENT);
  tide_replay_free(replay);
  tide_trace_free(trace);
}
