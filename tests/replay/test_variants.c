// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Replays of what another program would do: requests on one stream, in one private pool, and releases that
// never wait. Each recording is so small that its figures follow from PyTorch's rules.
#include "replay/by_hand.h"
#include "tidemark/replay.h"

#define MIB ((uint64_t)1 << 20)

static uint64_t peak_of(const tide_trace* trace, const tide_replay_options* options) {
  tide_replay* replay = NULL;
  tide_replay_result result = TIDE_REPLAY_RESULT_INIT;
  T_OK(tide_replay_new(trace, 0, NULL, &replay));
  T_OK(tide_replay_run(replay, options, &result));
  tide_replay_free(replay);
  return result.peak_reserved;
}

static void add(tide_trace* trace, tide_action action, uint64_t address, uint64_t stream, uint32_t pool) {
  const tide_trace_entry entry = {
    .address = address, .bytes = 40 * MIB, .stream = stream, .pool = pool, .action = (uint8_t)action
  };
  T_OK(tide_trace_add_entry(trace, &entry));
}

static void add_pair(tide_trace* trace, uint64_t address, uint64_t stream, uint32_t pool) {
  add(trace, TIDE_ACTION_ALLOC, address, stream, pool);
  add(trace, TIDE_ACTION_FREE_REQUESTED, address, stream, pool);
  add(trace, TIDE_ACTION_FREE_COMPLETED, address, stream, pool);
}

T_TEST(test_variants__one_stream_uses_what_another_released) {
  tide_trace* const trace = trace_new();
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  add_pair(trace, 64 * MIB, 0, 0);
  add_pair(trace, 128 * MIB, 7, 0);

  T_EQ(peak_of(trace, &options), 80 * MIB);
  options.has_one_stream = true;
  T_EQ(peak_of(trace, &options), 40 * MIB);

  tide_trace_free(trace);
}

T_TEST(test_variants__one_private_pool_uses_what_another_released) {
  tide_trace* const trace = trace_new();
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  uint32_t pools[2] = { 0 };
  T_OK(tide_trace_add_pool(trace, (tide_pool_label){ 0, 1 }, &pools[0]));
  T_OK(tide_trace_add_pool(trace, (tide_pool_label){ 0, 2 }, &pools[1]));
  add_pair(trace, 64 * MIB, 0, 0);
  add_pair(trace, 128 * MIB, 0, pools[0]);
  add_pair(trace, 192 * MIB, 0, pools[1]);

  T_EQ(peak_of(trace, &options), 120 * MIB);
  options.has_one_pool = true;
  T_EQ(peak_of(trace, &options), 80 * MIB);  // the default pool stays apart

  tide_trace_free(trace);
}

T_TEST(test_variants__a_release_that_never_waits_serves_the_next_request) {
  tide_trace* const trace = trace_new();
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  add(trace, TIDE_ACTION_ALLOC, 64 * MIB, 0, 0);
  add(trace, TIDE_ACTION_FREE_REQUESTED, 64 * MIB, 0, 0);
  add_pair(trace, 128 * MIB, 0, 0);
  add(trace, TIDE_ACTION_FREE_COMPLETED, 64 * MIB, 0, 0);

  T_EQ(peak_of(trace, &options), 80 * MIB);
  options.never_waits = true;
  T_EQ(peak_of(trace, &options), 40 * MIB);

  tide_trace_free(trace);
}

T_TEST(test_variants__cannot_be_compared_with_the_recording) {
  tide_trace* const trace = trace_new();
  tide_replay* replay = NULL;
  tide_replay_result result = TIDE_REPLAY_RESULT_INIT;
  add_pair(trace, 64 * MIB, 0, 0);
  T_OK(tide_replay_new(trace, 0, NULL, &replay));
  for (int i = 0; i < 5; i++) {
    tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
    options.checks = true;
    options.has_one_stream = i == 0;
    options.has_one_pool = i == 1;
    options.never_waits = i == 2;
    if (i == 3) options.stops_above = 64 * MIB;
    if (i == 4) options.reserve_bytes = 64 * MIB;
    T_EQ(tide_replay_run(replay, &options, &result), TIDE_ERR_ARGUMENT);
  }
  tide_replay_free(replay);
  tide_trace_free(trace);
}
