// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Recordings that begin in the middle. A recording is cut at its beginning, as PyTorch's ring cuts it: the
// final list of segments stays. The rest is repeated exactly, because the replay begins with the memory that
// existed then. The truth is the whole recording, which is repeated from its first entry.
#include "replay/by_hand.h"
#include "tidemark/ledger.h"
#include "tidemark/replay.h"
#include "traces.h"

#define PLACES 12
#define AUDITED_ENTRIES 4000

static bool edit_cut(void* user, size_t index, tide_trace_entry* entry) {
  (void)entry;
  return index >= *(const size_t*)user;
}

static tide_trace* trace_cut(const tide_trace* trace, size_t first) {
  const trace_edit edit = { .entry = edit_cut, .user = &first };
  return trace_copy(trace, &edit);
}

static tide_replay_result replay_recorded(const tide_trace* trace) {
  tide_replay* replay = NULL;
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  tide_replay_result result = TIDE_REPLAY_RESULT_INIT;
  T_OK(tide_replay_new(trace, 0, NULL, &replay));
  tide_device_options device = tide_replay_recorded_options(replay);
  size_t count = 0;
  (void)tide_trace_entries(trace, 0, &count);
  device.has_audits = count <= AUDITED_ENTRIES;
  options.device = &device;
  options.checks = options.infers_limit = true;
  T_OK(tide_replay_run(replay, &options, &result));
  tide_replay_free(replay);
  return result;
}

// What the whole recording had reserved from an entry on.
static uint64_t reserved_from(tide_ledger* ledger, size_t first, size_t count) {
  uint64_t peak = 0;
  for (size_t i = first; i <= count; ++i) {
    T_OK(tide_ledger_seek(ledger, i == 0 ? TIDE_LEDGER_BEFORE : i - 1));
    const uint64_t reserved = tide_ledger_get_totals(ledger).reserved_bytes;
    if (reserved > peak) peak = reserved;
  }
  return peak;
}

static const char* const names[] = {
  "after_oom",     "events",   "expand",   "expand_limit", "expand_split",
  "gnn_retry",     "graphs",   "oversize", "pools",        "release_available",
  "resnet_stacks", "research", "roundup",  "limit_edge",   NULL
};

T_TEST_OVER(test_cut__recordings_are_repeated_from_any_entry, names) {
  tide_trace* const trace = trace_of_test(t_variant());
  tide_ledger* ledger = NULL;
  size_t count = 0;
  (void)tide_trace_entries(trace, 0, &count);
  T_OK(tide_ledger_new(trace, 0, &ledger));
  for (size_t i = 1 + t_sample_first(); i <= PLACES; i += t_sample_step()) {
    const size_t first = count * i / (PLACES + 1) + i % 3;
    tide_trace* const rest = trace_cut(trace, first);

    const tide_replay_result result = replay_recorded(rest);

    T_STR_EQ(result.mismatch, "");
    T_EQ(result.entries, count - first);
    T_EQ(result.peak_reserved, reserved_from(ledger, first, count));
    T_CHECK(result.is_in_place || result.blocks_before == 0);
    tide_trace_free(rest);
  }
  tide_ledger_free(ledger);
  tide_trace_free(trace);
}

T_TEST(test_cut__a_large_recording_with_waiting_blocks_is_repeated) {
  tide_trace* const trace = trace_of_data("traces/multistream_prefetch.pickle.xz");
  size_t count = 0;
  (void)tide_trace_entries(trace, 0, &count);
  for (size_t i = 1; i <= 3; ++i) {
    tide_trace* const rest = trace_cut(trace, count * i / 4);
    const tide_replay_result result = replay_recorded(rest);
    T_STR_EQ(result.mismatch, "");
    T_EQ(result.peak_reserved, 6278873088);
    tide_trace_free(rest);
  }
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// Made by hand: a segment of 40 MiB with two blocks, of which the recording sees only the releases.

static tide_trace* trace_of_two_blocks(void) {
  tide_trace* const trace = trace_from(0, "free 1G:8M free 1G+8M:16M segment 2G:60M alloc 2G:60M");
  const tide_trace_block blocks[] = {
    { .address = 1 << 30, .bytes = 40 << 20, .state = TIDE_BLOCK_INACTIVE },
    { .address = (uint64_t)2 << 30, .bytes = 60 << 20, .requested_bytes = 60 << 20 },
  };
  tide_trace_about about = tide_trace_get_about(trace);
  about.has_segments = true;
  tide_trace_set_about(trace, &about);
  for (size_t i = 0; i < 2; ++i) {
    const tide_trace_segment segment = { .address = blocks[i].address,
                                         .bytes = blocks[i].bytes,
                                         .is_large = true };
    T_OK(tide_trace_add_segment(trace, &segment));
    tide_trace_block block = blocks[i];
    if (i == 1) block.state = TIDE_BLOCK_ALLOCATED;
    T_OK(tide_trace_add_block(trace, &block));
  }
  return trace;
}

T_TEST(test_cut__a_run_begins_with_the_memory_that_existed) {
  tide_trace* const trace = trace_of_two_blocks();

  const tide_replay_result result = replay_recorded(trace);

  T_STR_EQ(result.mismatch, "");
  T_CHECK(result.is_in_place);
  T_EQ(result.blocks_before, 2);
  T_EQ(result.bytes_before, 24 << 20);
  T_EQ(result.peak_allocated, 60 << 20);
  T_EQ(result.peak_reserved, 100 << 20);
  T_EQ(result.driver_allocs, 1);
  tide_trace_free(trace);
}

// Another setting takes over the old segments: the freed ones are used.
T_TEST(test_cut__another_setting_begins_with_the_same_memory) {
  tide_trace* const trace = trace_of_two_blocks();
  tide_replay* replay = NULL;
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  tide_device_options device = TIDE_DEVICE_OPTIONS_INIT;
  tide_replay_result result = TIDE_REPLAY_RESULT_INIT;
  T_OK(tide_replay_new(trace, 0, NULL, &replay));
  T_OK(tide_device_options_parse("expandable_segments:True", &device));
  options.device = &device;

  T_OK(tide_replay_run(replay, &options, &result));
  T_CHECK(result.is_in_place);
  T_EQ(result.peak_reserved, 100 << 20);

  device.policy = TIDE_POLICY_TIDE;
  T_OK(tide_replay_run(replay, &options, &result));
  T_CHECK(!result.is_in_place);
  T_EQ(result.allocations, 3);
  tide_replay_free(replay);
  tide_trace_free(trace);
}
