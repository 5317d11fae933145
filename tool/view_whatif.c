// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The settings whose reserved memory the page shows over time: the recorded one, the suggested one,
// Tidemark's own policy, PyTorch's expandable segments and its defaults, and the best of the others that were
// tried.
#include <stdlib.h>
#include <string.h>

#include "view.h"

static void settings_add(tool_trials* trials, const tide_device_options* device) {
  if (trials->count < TOOL_VIEW_SETTINGS) (void)tool_trials_add(trials, device);
}

static bool trial_is_in(const tool_trials* trials, const tool_trial* other) {
  char texts[2][TOOL_POLICY_TEXT];
  (void)tool_policy_text(&other->device, texts[0]);
  for (size_t i = 0; i < trials->count; i++) {
    if (strcmp(tool_policy_text(&trials->rows[i].device, texts[1]), texts[0]) == 0) return true;
  }
  return false;
}

// The tried setting with the lowest peak that is not there yet; NULL: none.
static const tool_trial* trials_best(const tool_trials* tried, const tool_trials* trials) {
  const tool_trial* best = NULL;
  for (size_t i = 0; i < tried->count; i++) {
    const tool_trial* const row = &tried->rows[i];
    if (!tool_trial_fits(row) || trial_is_in(trials, row)) continue;
    if (best == NULL || row->result.peak_reserved < best->result.peak_reserved) best = row;
  }
  return best;
}

static void settings_choose(tool_trials* trials, const tool_diagnosis* r) {
  const tide_device_options recorded = tide_replay_recorded_options(r->recording.replay);
  tide_device_options device = TIDE_DEVICE_OPTIONS_INIT;
  tool_trials_add(trials, &recorded)->is_recorded = true;
  if (r->advice.trial != NULL) settings_add(trials, &r->advice.trial->device);
  device.policy = TIDE_POLICY_TIDE;
  settings_add(trials, &device);
  if (tide_device_options_parse("expandable_segments:True", &device) == TIDE_OK) {
    device.policy = TIDE_POLICY_TORCH;
    settings_add(trials, &device);
  }
  device = (tide_device_options)TIDE_DEVICE_OPTIONS_INIT;
  settings_add(trials, &device);
  while (trials->count < TOOL_VIEW_SETTINGS) {
    const tool_trial* const best = trials_best(&r->trials, trials);
    if (best == NULL) break;
    settings_add(trials, &best->device);
  }
}

// A replay begins without memory, so it proves something only about a run that was recorded from its start.
static bool replay_is_proof(const tool_diagnosis* r) {
  return r->recording.replay != NULL && r->faults.is_from_start && r->entry_count > 0 &&
         !tide_trace_get_about(r->trace).has_steps;
}

void tool_view_whatif_run(tool_view_whatif* whatif, const tool_diagnosis* r, size_t buckets) {
  tool_trials* const trials = &whatif->trials;
  *whatif = (tool_view_whatif){ .curves = NULL };
  if (!replay_is_proof(r)) return;
  trials->replay = r->recording.replay;
  trials->limit = r->limit.bytes;
  trials->is_quick = true;
  trials->curve_count = buckets;
  settings_choose(trials, r);
  whatif->curves = tool_alloc(trials->count * buckets, sizeof *whatif->curves);
  for (size_t i = 0; i < trials->count; i++) trials->rows[i].curve = whatif->curves + i * buckets;
  tool_trials_run(trials);
  if (tool_limit_is_recorded(&r->limit, &r->recording)) tool_trials_repeat(trials, &r->recording.result);
}

void tool_view_whatif_fini(tool_view_whatif* whatif) { free(whatif->curves); }
