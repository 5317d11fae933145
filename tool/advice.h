// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Which settings are tried on a recording, and which of them is suggested. All verbs use these functions, so
// they cannot contradict each other.
#ifndef TIDEMARK_TOOL_ADVICE_H
#define TIDEMARK_TOOL_ADVICE_H

#include "policy.h"
#include "recording.h"
#include "trial.h"

// Returns the row of a setting, adding it if necessary; NULL if there is no room.
tool_trial* tool_trials_add(tool_trials* trials, const tide_device_options* device);
tool_trial* tool_trials_add_recorded(tool_trials* trials, const tide_device_options* recorded);
// Adds the recorded setting and the PyTorch settings that are worth trying under the limit of the trials;
// with `all`, also settings that PyTorch does not have.
void tool_trials_add_usual(tool_trials* trials, const tide_device_options* recorded, bool all);

// Takes the figures of the recorded setting from the comparison, if that ran under the limit of the trials,
// so that the setting is not replayed again. With `is_same`, the comparison repeated the recording under a
// limit that decides alike. The setting must have been added, and not run.
void tool_trials_take(tool_trials* trials, const tool_recording* recording, bool is_same);

// From now on, replays end when it is certain that their settings are not suggested. The recorded setting
// must have been run; it and the advice remain exact. This also adds the setting that often needs the least:
// run first, it shows which others need more.
void tool_trials_end_early(tool_trials* trials, const tool_recording* recording);

// Did it serve every request?
bool tool_trial_fits(const tool_trial* trial);

typedef enum tool_verdict {
  TOOL_VERDICT_KEEP,     // the recorded setting runs, and no PyTorch setting needs clearly less
  TOOL_VERDICT_SET,      // a PyTorch setting needs clearly less, or runs where the recorded one does not
  TOOL_VERDICT_SHORT,    // no PyTorch setting runs in the available memory
  TOOL_VERDICT_UNKNOWN,  // the replay does not start as the recorded run did, and so proves nothing
} tool_verdict;

// A setting needs the peak of reserved memory of its replay, if that serves every request. A suggested
// setting needs over TOOL_ADVICE_PERCENT less than the recorded run reserved, and than its replay reserves.
#define TOOL_ADVICE_PERCENT 2
bool tool_is_clearly_less(uint64_t bytes, uint64_t than);

typedef struct tool_advice {
  tool_verdict verdict;
  const tool_trial* trial;  // the suggested one, borrowed from the trials; NULL: none
  // What the recorded setting needs; 0: it does not serve every request in this memory.
  uint64_t recorded_bytes;
  bool is_recorded;  // these bytes come from the recording; otherwise from its replay
} tool_advice;

tool_advice tool_trials_advise(const tool_trials* trials, const tool_recording* recording);

// What the suggested setting saves, in bytes and as a share; 0 if the recorded setting does not run.
uint64_t tool_advice_saved(const tool_advice* advice);
double tool_advice_share(const tool_advice* advice);

// What the savings are compared with, if not with the recording: "with the defaults".
const char* tool_advice_than(const tool_recording* recording);

// The line to paste into a shell; NULL if there is none.
#define TOOL_ADVICE_LINE (TOOL_POLICY_TEXT + 64)
const char* tool_advice_line(const tool_advice* advice, char out[TOOL_ADVICE_LINE]);
// The keys of JSON: environment, advised, saved_bytes.
void tool_advice_emit(tool_emit* emit, const tool_advice* advice);

#endif
