// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A setting is suggested only for what its replay needs. Of settings that need hardly more than the best one,
// the one with the fewest options is suggested. O(settings).
#include "advice.h"

#include <string.h>

#include "base/arith.h"

// The settings to try. Garbage collection has no effect without a limit.
static const struct {
  const char* settings;
  bool needs_limit;
} usual[] = {
  { "", false },
  { "roundup_power2_divisions:4", false },
  { "roundup_power2_divisions:8", false },
  { "roundup_power2_divisions:16", false },
  { "max_split_size_mb:64", false },
  { "max_split_size_mb:128", false },
  { "max_split_size_mb:256", false },
  { "max_split_size_mb:512", false },
  { "max_split_size_mb:256,roundup_power2_divisions:8", false },
  { "garbage_collection_threshold:0.6", true },
  { "garbage_collection_threshold:0.8", true },
  { "garbage_collection_threshold:0.8,max_split_size_mb:256", true },
  { "expandable_segments:True", false },
  { "expandable_segments:True,roundup_power2_divisions:8", false },
  { "expandable_segments:True,max_split_size_mb:256", false },
  { "fixes:on", false },
  { "expandable_segments:True,fixes:on", false },
};

// ---------------------------------------------------------------------------------------------------
// Which settings

static bool options_are_same(const tide_device_options* a, const tide_device_options* b) {
  char one[TOOL_POLICY_TEXT];
  char other[TOOL_POLICY_TEXT];
  return strcmp(tool_policy_text(a, one), tool_policy_text(b, other)) == 0;
}

// PyTorch has neither our policies nor our options.
static bool is_of_torch(const tide_device_options* o) {
  return o->policy == TIDE_POLICY_TORCH && !o->fixes && !o->has_audits && !o->ties_by_age &&
         !o->captures_by_stream;
}

tool_trial* tool_trials_add(tool_trials* trials, const tide_device_options* device) {
  for (size_t i = 0; i < trials->count; i++) {
    if (options_are_same(&trials->rows[i].device, device)) return &trials->rows[i];
  }
  if (trials->count == TOOL_TRIALS) return NULL;
  tool_trial* const row = &trials->rows[trials->count++];
  *row = (tool_trial){ .device = *device, .is_torch = is_of_torch(device) };
  return row;
}

tool_trial* tool_trials_add_recorded(tool_trials* trials, const tide_device_options* recorded) {
  tool_trial* const row = tool_trials_add(trials, recorded);
  row->is_recorded = true;
  return row;
}

void tool_trials_add_usual(tool_trials* trials, const tide_device_options* recorded, bool all) {
  (void)tool_trials_add_recorded(trials, recorded);
  for (uint32_t policy = 0; all && tool_policy_names[policy] != NULL; policy++) {
    tide_device_options device = TIDE_DEVICE_OPTIONS_INIT;
    device.policy = policy;
    (void)tool_trials_add(trials, &device);
  }
  for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++) {
    tide_device_options device = TIDE_DEVICE_OPTIONS_INIT;
    if (usual[i].needs_limit && trials->limit == TIDE_NO_LIMIT) continue;
    if (tide_device_options_parse(usual[i].settings, &device) != TIDE_OK) continue;
    if (all || is_of_torch(&device)) (void)tool_trials_add(trials, &device);
  }
}

void tool_trials_take(tool_trials* trials, const tool_recording* recording, bool is_same) {
  const bool is_run = recording->is_compared && recording->result.limit == trials->limit;
  for (size_t i = 0; i < trials->count; i++) {
    tool_trial* const row = &trials->rows[i];
    if (!row->is_recorded || (!is_same && !is_run)) continue;
    row->result = recording->result;
    row->is_repeated = is_same;
    row->is_known = true;
    row->is_done = trials->is_quick;
  }
}

// ---------------------------------------------------------------------------------------------------
// Which setting is suggested

bool tool_trial_fits(const tool_trial* trial) { return trial->status == TIDE_OK && trial->result.ooms == 0; }

static uint64_t trial_needs(const tool_trial* trial) { return trial->result.peak_reserved; }

bool tool_is_clearly_less(uint64_t bytes, uint64_t than) {
  return bytes < than && than - bytes > than / (100 / TOOL_ADVICE_PERCENT);
}

static const tool_trial* trials_recorded(const tool_trials* trials) {
  for (size_t i = 0; i < trials->count; i++) {
    if (trials->rows[i].is_recorded) return &trials->rows[i];
  }
  return NULL;
}

// Can it be suggested? It serves every request and, if the recorded setting does too, needs clearly less.
static bool trial_is_better(const tool_trial* trial, uint64_t recorded_bytes) {
  return trial->is_torch && !trial->is_recorded && !trial->is_stopped && tool_trial_fits(trial) &&
         (recorded_bytes == 0 || tool_is_clearly_less(trial_needs(trial), recorded_bytes));
}

static size_t settings_count(const tool_trial* trial) {
  char text[TOOL_POLICY_TEXT];
  size_t count = 0;
  for (const char* at = tool_policy_settings(&trial->device, text); *at != '\0'; at++) {
    if (at == text || at[-1] == ',') count++;
  }
  return count;
}

// Fewer options first, then less memory, then cheaper driver calls, then by name.
static bool trial_is_preferred(const tool_trial* trial, const tool_trial* other) {
  char texts[2][TOOL_POLICY_TEXT];
  const size_t counts[] = { settings_count(trial), settings_count(other) };
  if (counts[0] != counts[1]) return counts[0] < counts[1];
  if (trial_needs(trial) != trial_needs(other)) return trial_needs(trial) < trial_needs(other);
  if (trial->result.driver_ns != other->result.driver_ns)
    return trial->result.driver_ns < other->result.driver_ns;
  return strcmp(tool_policy_settings(&trial->device, texts[0]),
                tool_policy_settings(&other->device, texts[1])) < 0;
}

// The largest number that is clearly less than a number of bytes, and the largest (or a little more) that
// bytes are not clearly less than.
static uint64_t bytes_clearly_less(uint64_t than) { return than - than / (100 / TOOL_ADVICE_PERCENT) - 1; }
static uint64_t bytes_not_clearly_more(uint64_t than) {
  return than + than / (100 / TOOL_ADVICE_PERCENT - 1);
}

// A row that needs clearly more than another, or not clearly less than the recorded setting, is not
// suggested.
static uint64_t trials_most(const tool_trials* trials, const tool_trial* row) {
  const uint64_t recorded = trials->recorded_bytes;
  uint64_t most = recorded != 0 ? bytes_clearly_less(recorded) : TIDE_NO_LIMIT;
  if (row->is_recorded) return TIDE_NO_LIMIT;
  for (size_t i = 0; i < trials->count; i++) {
    const tool_trial* const other = &trials->rows[i];
    if (!other->is_done || !trial_is_better(other, recorded)) continue;
    most = tide__min(most, bytes_not_clearly_more(trial_needs(other)));
  }
  return most;
}

static const tool_trial* trials_best(const tool_trials* trials, uint64_t recorded_bytes) {
  uint64_t least = UINT64_MAX;
  const tool_trial* best = NULL;
  for (size_t i = 0; i < trials->count; i++) {
    const tool_trial* const row = &trials->rows[i];
    if (trial_is_better(row, recorded_bytes) && trial_needs(row) < least) least = trial_needs(row);
  }
  for (size_t i = 0; i < trials->count; i++) {
    const tool_trial* const row = &trials->rows[i];
    if (!trial_is_better(row, recorded_bytes) || tool_is_clearly_less(least, trial_needs(row))) continue;
    if (best == NULL || trial_is_preferred(row, best)) best = row;
  }
  return best;
}

// A replay starts without any memory, so it proves something only about a recording that does, too. Lifetimes
// in steps do not come from a PyTorch run.
static bool recording_is_proof(const tool_trial* recorded, const tool_recording* r) {
  return recorded != NULL && recorded->status == TIDE_OK && r->is_from_start &&
         !tide_trace_get_about(r->trace).has_steps;
}

// What the recorded setting needs; 0: it does not serve every request.
static uint64_t recorded_needs(const tool_trial* recorded, const tool_recording* recording,
                               bool* out_recorded) {
  const uint64_t then = recording->reserved_bytes;
  *out_recorded = false;
  if (recorded == NULL || !tool_trial_fits(recorded)) return 0;
  *out_recorded = then != 0 && then <= trial_needs(recorded);
  return *out_recorded ? then : trial_needs(recorded);
}

void tool_trials_end_early(tool_trials* trials, const tool_recording* recording) {
  bool is_recorded = false;
  trials->recorded_bytes = recorded_needs(trials_recorded(trials), recording, &is_recorded);
  trials->most = trials_most;
  tide_device_options first = TIDE_DEVICE_OPTIONS_INIT;
  first.expandable_segments = true;
  (void)tool_trials_add(trials, &first);
}

tool_advice tool_trials_advise(const tool_trials* trials, const tool_recording* recording) {
  const tool_trial* const recorded = trials_recorded(trials);
  tool_advice advice = { .verdict = TOOL_VERDICT_UNKNOWN };
  if (!recording_is_proof(recorded, recording)) return advice;
  advice.recorded_bytes = recorded_needs(recorded, recording, &advice.is_recorded);
  advice.trial = trials_best(trials, advice.recorded_bytes);
  if (advice.trial != NULL) advice.verdict = TOOL_VERDICT_SET;
  else advice.verdict = advice.recorded_bytes != 0 ? TOOL_VERDICT_KEEP : TOOL_VERDICT_SHORT;
  return advice;
}

uint64_t tool_advice_saved(const tool_advice* advice) {
  if (advice->trial == NULL || advice->recorded_bytes == 0) return 0;
  return advice->recorded_bytes - trial_needs(advice->trial);
}

double tool_advice_share(const tool_advice* advice) {
  return tool_share(tool_advice_saved(advice), advice->recorded_bytes);
}

// ---------------------------------------------------------------------------------------------------
// Output

const char* tool_advice_than(const tool_recording* recording) {
  return recording->has_settings ? "with the recorded setting" : "with the defaults";
}

const char* tool_advice_line(const tool_advice* advice, char out[TOOL_ADVICE_LINE]) {
  char text[TOOL_POLICY_TEXT];
  if (advice->trial == NULL) return NULL;
  (void)tool_policy_settings(&advice->trial->device, text);
  if (text[0] == '\0') (void)snprintf(out, TOOL_ADVICE_LINE, "unset PYTORCH_CUDA_ALLOC_CONF");
  else (void)snprintf(out, TOOL_ADVICE_LINE, "PYTORCH_CUDA_ALLOC_CONF=%s", text);
  return out;
}

void tool_advice_emit(tool_emit* emit, const tool_advice* advice) {
  char line[TOOL_ADVICE_LINE];
  char policy[TOOL_POLICY_TEXT];
  const tool_trial* const trial = advice->trial;
  tool_emit_text(emit, "environment", NULL, tool_advice_line(advice, line));
  tool_emit_text(emit, "advised", NULL, trial != NULL ? tool_policy_text(&trial->device, policy) : NULL);
  tool_emit_uint_if(emit, trial != NULL, "saved_bytes", NULL, tool_advice_saved(advice));
}
