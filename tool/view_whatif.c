// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The settings whose reserved memory the page shows over time: the recorded one, the suggested one,
// Tidemark's own policy, PyTorch's expandable segments, its defaults, and the usual limit for splits. The
// report tried more, but stopped some of them early, depending on the order in which threads ran them; a page
// is always the same.
#include <stdlib.h>

#include "view.h"

static void settings_choose(tool_trials* trials, const tool_diagnosis* r) {
  const tide_device_options recorded = tide_replay_recorded_options(r->recording.replay);
  tide_device_options device = TIDE_DEVICE_OPTIONS_INIT;
  (void)tool_trials_add_recorded(trials, &recorded);
  if (r->advice.trial != NULL) (void)tool_trials_add(trials, &r->advice.trial->device);
  device.policy = TIDE_POLICY_TIDE;
  (void)tool_trials_add(trials, &device);
  static const char* const usual[] = { "expandable_segments:True", "", "max_split_size_mb:256" };
  for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++) {
    device = (tide_device_options)TIDE_DEVICE_OPTIONS_INIT;
    if (tide_device_options_parse(usual[i], &device) == TIDE_OK) (void)tool_trials_add(trials, &device);
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
  // The comparison repeated the recording, and so has the better figures; but no curve.
  if (tool_limit_is_recorded(&r->limit, &r->recording)) tool_trials_take(trials, &r->recording, true);
}

void tool_view_whatif_fini(tool_view_whatif* whatif) { free(whatif->curves); }
