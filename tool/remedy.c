// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Each setting is tried alone, as if the program had been started with just that in its environment. Calls of
// empty_cache are the program's and no setting's: a first replay under the recorded settings finds them. A
// replay costs O(entries).
#include "remedy.h"

static const char* const remedies[TOOL_REMEDIES] = {
  "",
  "expandable_segments:True",
  "garbage_collection_threshold:0.8",
  "max_split_size_mb:256",
  "roundup_power2_divisions:8",
};

static tool_remedy remedy_run(tide_replay* replay, uint64_t limit, const char* settings) {
  tool_remedy remedy = { .settings = settings };
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  options.limit = limit;
  options.stops_at_oom = true;
  remedy.is_done = tide_device_options_parse(settings, &options.device) == TIDE_OK &&
                   tide_replay_run(replay, &options, &remedy.result) == TIDE_OK;
  return remedy;
}

// What it finds is kept for the replays that follow; that it may find nothing is no harm.
static void remedies_find_empties(tide_replay* replay, uint64_t limit) {
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  tide_replay_result result;
  options.device = tide_replay_recorded_options(replay);
  options.checks = true;
  options.limit = limit;
  if (tide_replay_run(replay, &options, &result) != TIDE_OK) return;
}

size_t tool_remedies_try(const tide_trace* trace, size_t device, uint64_t limit, const char* settings,
                         tool_remedy out[TOOL_REMEDIES]) {
  tide_replay* replay = NULL;
  if (tide_replay_new(trace, device, NULL, &replay) != TIDE_OK) return 0;
  remedies_find_empties(replay, limit);
  size_t count = 0;
  if (settings != NULL) out[count++] = remedy_run(replay, limit, settings);
  else
    for (; count < TOOL_REMEDIES; count++) out[count] = remedy_run(replay, limit, remedies[count]);
  tide_replay_free(replay);
  return count;
}

bool tool_remedy_serves(const tool_remedy* remedy, uint64_t at) {
  return remedy->is_done && (remedy->result.ooms == 0 || remedy->result.first_oom > at);
}

bool tool_trace_is_expandable(const tide_trace* trace) {
  const tide_intern* const names = tide_trace_names(trace);
  const uint32_t settings = tide_trace_get_about(trace).settings;
  return tide_intern_value(names, tide_intern_value_find(names, settings, "expandable_segments")).integer !=
         0;
}

const char* tool_trace_settings(const tide_trace* trace) {
  const tide_intern* const names = tide_trace_names(trace);
  const uint32_t settings = tide_trace_get_about(trace).settings;
  const tide_value value =
      tide_intern_value(names, tide_intern_value_find(names, settings, "PYTORCH_CUDA_ALLOC_CONF"));
  const char* const text = value.kind == TIDE_VALUE_TEXT ? tide_intern_text(names, value.text, NULL) : NULL;
  return text != NULL ? text : "";
}
