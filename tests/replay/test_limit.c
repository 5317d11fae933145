// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The limit of a recorded run is inferred. The limits of these recordings are known: they were set when the
// runs were made. Retries and refusals are those that PyTorch counted.
#include "replay/by_hand.h"
#include "tidemark/replay.h"
#include "traces.h"

#define MIB ((uint64_t)1 << 20)

typedef struct known_limit {
  const char* name;
  uint64_t limit_mib;  // 0: none
  uint64_t retries;
  uint64_t ooms;
  uint64_t empty_caches;
} known_limit;

static const known_limit known[] = {
  { "release_available", 1024, 9, 5, 0 },
  { "limit_edge", 256, 6, 4, 0 },
  { "research", 400, 3, 2, 0 },
  { "expand_limit", 600, 29, 21, 0 },
  { "after_oom", 700, 51, 50, 0 },
  { "gc_mix", 2048, 0, 0, 0 },
  { "gnn_gc_split", 20480, 0, 0, 0 },
  { "gnn_retry", 14336, 2, 0, 0 },
  { "expand", 0, 0, 0, 10 },
  { "expand_split", 0, 0, 0, 10 },
  { "graphs", 0, 0, 0, 5 },
  { "pools", 0, 0, 0, 4 },
  { "events", 0, 0, 0, 0 },
  { "resnet_stacks", 0, 0, 0, 0 },
};
#define KNOWN_COUNT (sizeof known / sizeof known[0])

static const char* names[KNOWN_COUNT + 1];

__attribute__((constructor)) static void names_fill(void) {
  for (size_t i = 0; i < KNOWN_COUNT; ++i) names[i] = known[i].name;
}

static tide_replay_result infer(tide_replay* replay) {
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  tide_replay_result result = TIDE_REPLAY_RESULT_INIT;
  const tide_device_options device = tide_replay_recorded_options(replay);
  options.device = &device;
  options.checks = options.infers_limit = true;
  T_OK(tide_replay_run(replay, &options, &result));
  return result;
}

static void expect_limit(const tide_trace* trace, const known_limit* want) {
  tide_replay* replay = NULL;
  T_OK(tide_replay_new(trace, 0, NULL, &replay));

  const tide_replay_result result = infer(replay);

  T_STR_EQ(result.mismatch, "");
  T_EQ(result.retries, want->retries);
  T_EQ(result.ooms, want->ooms);
  T_EQ(result.inferred_empty_cache, want->empty_caches);
  const uint64_t limit = want->limit_mib != 0 ? want->limit_mib * MIB : TIDE_NO_LIMIT;
  T_LE(result.limit_low, limit);
  if (want->limit_mib != 0) T_LT(limit, result.limit_high);
  T_EQ(result.limit == TIDE_NO_LIMIT, want->limit_mib == 0);
  T_EQ(result.limit_high == TIDE_NO_LIMIT, want->limit_mib == 0);
  T_EQ(result.limit_low == 0, want->limit_mib == 0);
  tide_replay_free(replay);
}

T_TEST_OVER(test_limit__lies_within_its_bounds, names) {
  tide_trace* const trace = trace_of_test(t_variant());
  for (size_t i = 0; i < KNOWN_COUNT; ++i) {
    if (strcmp(known[i].name, t_variant()) == 0) expect_limit(trace, &known[i]);
  }
  tide_trace_free(trace);
}

T_TEST(test_limit__of_real_calls_to_empty_cache_does_not_show) {
  static const known_limit want = { "gnn_empty", 0, 0, 0, 4 };
  tide_trace* const trace = trace_of_data("traces/gnn_empty.pickle.xz");
  expect_limit(trace, &want);
  tide_trace_free(trace);
}

T_TEST(test_limit__of_a_large_run_that_ran_out_of_memory) {
  static const known_limit want = { "varlen_oom", 16896, 3, 1, 0 };
  tide_trace* const trace = trace_of_data("traces/varlen_oom.pickle.xz");
  expect_limit(trace, &want);
  tide_trace_free(trace);
}

// The same program ran without a limit, too, and PyTorch counted what it reserved.
T_TEST(test_limit__lifted_gives_what_the_run_without_one_reserved) {
  tide_trace* const trace = trace_of_test("gnn_retry");
  tide_replay* replay = NULL;
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  tide_replay_result result = TIDE_REPLAY_RESULT_INIT;
  T_OK(tide_replay_new(trace, 0, NULL, &replay));
  T_EQ(infer(replay).peak_reserved, 14115930112);

  T_OK(tide_replay_run(replay, &options, &result));

  T_EQ(result.peak_reserved, 27097300992);
  T_EQ(result.retries, 0);
  T_EQ(result.inferred_empty_cache, 0);
  tide_replay_free(replay);
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// Runs made by hand

static tide_replay_result infer_from(tide_trace* trace) {
  tide_replay* replay = NULL;
  T_OK(tide_replay_new(trace, 0, NULL, &replay));
  const tide_replay_result result = infer(replay);
  T_STR_EQ(result.mismatch, "");
  tide_replay_free(replay);
  tide_trace_free(trace);
  return result;
}

// 100 MiB are cached, and 120 MiB are asked for: any limit from 120 to below 220 MiB explains the release.
T_TEST(test_limit__is_what_a_retry_needs) {
  const tide_replay_result result =
      infer_from(trace_from(0, "segment 1G:100M alloc 1G:100M free 1G:100M give 1G:100M segment 2G:120M "
                               "alloc 2G:120M"));

  T_EQ(result.retries, 1);
  T_EQ(result.inferred_empty_cache, 0);
  T_EQ(result.limit, 120 * MIB);
  T_EQ(result.limit_low, 120 * MIB);
  T_EQ(result.limit_high, 220 * MIB);
}

// The same, but later 230 MiB are reserved: no limit explains the release.
T_TEST(test_limit__does_not_explain_what_it_cannot) {
  const tide_replay_result result =
      infer_from(trace_from(0, "segment 1G:100M alloc 1G:100M free 1G:100M give 1G:100M segment 2G:120M "
                               "alloc 2G:120M segment 3G:110M alloc 3G:110M"));

  T_EQ(result.retries, 0);
  T_EQ(result.inferred_empty_cache, 1);
  T_EQ(result.limit, TIDE_NO_LIMIT);
  T_EQ(result.limit_low, 0);
  T_EQ(result.limit_high, TIDE_NO_LIMIT);
}

// The cache would have served these requests. So it was emptied before each, which is found in one attempt.
T_TEST(test_limit__is_not_inferred_from_a_cache_that_is_emptied_at_the_peak) {
  tide_trace* const trace = trace_from(0, "segment 1G:100M alloc 1G:100M free 1G:100M");
  for (size_t i = 0; i < 5000; i++)
    trace_add_from(trace, 0, "give 1G:100M segment 1G:100M alloc 1G:100M free 1G:100M");

  const tide_replay_result result = infer_from(trace);

  T_EQ(result.retries, 0);
  T_EQ(result.inferred_empty_cache, 5000);
  T_EQ(result.limit, TIDE_NO_LIMIT);
}
