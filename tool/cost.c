// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// One replay for each recorded setting, unless the trials have it already. A choice of the program is
// replayed only if it is the cause of a noticeable part of the peak.
#include "cost.h"

#include <stdlib.h>
#include <string.h>

#define CHANGE_SHARE 0.02  // of the reserved memory

// ---------------------------------------------------------------------------------------------------
// Settings

// The end of the setting that begins at `text`: a comma outside of brackets, or the end.
static const char* setting_end(const char* text) {
  int depth = 0;
  for (; *text != '\0' && (*text != ',' || depth > 0); text++) depth += (*text == '[') - (*text == ']');
  return text;
}

// The options without the setting from `from` to `to`.
static bool settings_without(const char* text, const char* from, const char* to, tide_device_options* out) {
  char rest[TOOL_POLICY_TEXT];
  const bool is_last = *to == '\0';
  const size_t head = (size_t)(from - text) - (is_last && from > text);  // without the comma before it
  (void)snprintf(rest, sizeof rest, "%.*s%s", (int)head, text, is_last ? "" : to + 1);
  *out = (tide_device_options)TIDE_DEVICE_OPTIONS_INIT;
  return tide_device_options_parse(rest, out) == TIDE_OK;
}

// The row of a setting that was replayed to its end; NULL: none.
static const tool_trial* trials_find(const tool_trials* trials, const tide_device_options* device) {
  char wanted[TOOL_POLICY_TEXT];
  char text[TOOL_POLICY_TEXT];
  (void)tool_policy_text(device, wanted);
  for (size_t i = 0; i < trials->count; i++) {
    const tool_trial* const row = &trials->rows[i];
    if (!row->is_stopped && strcmp(tool_policy_text(&row->device, text), wanted) == 0) return row;
  }
  return NULL;
}

// Adds a row for each setting to `more`, unless the trials have it.
static void costs_add_settings(const tool_trials* trials, const char* text, tool_costs* costs,
                               tide_device_options* devices, tool_trials* more) {
  for (const char* from = text; *from != '\0' && costs->setting_count < TOOL_COSTS;) {
    const char* const to = setting_end(from);
    tide_device_options* const device = &devices[costs->setting_count];
    if (to - from < TOOL_SETTING_TEXT && settings_without(text, from, to, device)) {
      tool_setting_cost* const cost = &costs->settings[costs->setting_count++];
      memcpy(cost->setting, from, (size_t)(to - from));
      if (trials_find(trials, device) == NULL) (void)tool_trials_add(more, device);
    }
    from = *to == '\0' ? to : to + 1;
  }
}

static void costs_find_settings(const tool_trials* trials, const tool_trial* recorded, tool_costs* costs) {
  char text[TOOL_POLICY_TEXT];
  tide_device_options devices[TOOL_COSTS];
  tool_trials* const more = tool_alloc(1, sizeof *more);
  more->replay = trials->replay;
  more->limit = trials->limit;
  more->is_quick = true;
  costs_add_settings(trials, tool_policy_settings(&recorded->device, text), costs, devices, more);
  if (more->count > 0) tool_trials_run(more);
  size_t kept = 0;
  for (size_t i = 0; i < costs->setting_count; i++) {
    const tool_trial* row = trials_find(trials, &devices[i]);
    if (row == NULL) row = trials_find(more, &devices[i]);
    if (row == NULL || row->status != TIDE_OK) continue;
    costs->settings[kept] = costs->settings[i];
    costs->settings[kept++].without = row->result;
  }
  costs->setting_count = kept;
  free(more);
}

// ---------------------------------------------------------------------------------------------------
// Choices of the program

static const tide_growth_cause change_causes[] = { [TOOL_ONE_STREAM] = TIDE_GROWTH_STREAM,
                                                   [TOOL_ONE_POOL] = TIDE_GROWTH_POOL,
                                                   [TOOL_NO_WAITS] = TIDE_GROWTH_EVENT };

static bool change_is_possible(const tool_why* why, tool_change change) {
  return tool_share(why->sums[change_causes[change]].bytes, why->reserved) > CHANGE_SHARE;
}

bool tool_costs_are_possible(const tool_why* why) {
  for (tool_change change = 0; change < TOOL_CHANGE_COUNT; change++) {
    if (change_is_possible(why, change)) return true;
  }
  return false;
}

static void change_try(const tool_trials* trials, const tool_trial* recorded, tool_change change,
                       tool_change_cost* out) {
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  options.device = &recorded->device;
  options.limit = trials->limit;
  options.has_one_stream = change == TOOL_ONE_STREAM;
  options.has_one_pool = change == TOOL_ONE_POOL;
  options.never_waits = change == TOOL_NO_WAITS;
  out->changed = (tide_replay_result)TIDE_REPLAY_RESULT_INIT;
  out->is_tried = tide_replay_run(trials->replay, &options, &out->changed) == TIDE_OK;
}

static bool trial_repeats(const tool_trial* trial, const tool_recording* recording) {
  const uint64_t then = recording->reserved_bytes;
  return trial->status == TIDE_OK && (then == 0 || then == trial->result.peak_reserved);
}

void tool_costs_find(const tool_trials* trials, const tool_recording* recording, const tool_why* why,
                     tool_costs* out) {
  *out = (tool_costs){ .is_known = false };
  const tool_trial* recorded = NULL;
  for (size_t i = 0; i < trials->count && recorded == NULL; i++) {
    if (trials->rows[i].is_recorded) recorded = &trials->rows[i];
  }
  if (recorded == NULL || !trial_repeats(recorded, recording)) return;
  out->is_known = true;
  out->recorded = recorded->result;
  costs_find_settings(trials, recorded, out);
  for (tool_change change = 0; change < TOOL_CHANGE_COUNT; change++) {
    tool_change_cost* const cost = &out->changes[change];
    cost->reason_bytes = why->sums[change_causes[change]].bytes;
    if (change_is_possible(why, change)) change_try(trials, recorded, change, cost);
  }
}

// ---------------------------------------------------------------------------------------------------
// What is saved

uint64_t tool_cost_saved(const tool_costs* costs, const tide_replay_result* other) {
  const bool runs = costs->recorded.ooms == 0 && other->ooms == 0;
  const uint64_t with = costs->recorded.peak_reserved;
  return runs && with > other->peak_reserved ? with - other->peak_reserved : 0;
}

bool tool_cost_is_better(const tool_costs* costs, const tide_replay_result* other) {
  if (other->ooms > 0) return false;
  return costs->recorded.ooms > 0 ||
         tool_is_clearly_less(other->peak_reserved, costs->recorded.peak_reserved);
}
