// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Which settings are tried on a recording, and which of them is advised. Every verb that advises a setting
// asks here, so that no two of them can say different things about one recording.
#ifndef TIDEMARK_TOOL_ADVICE_H
#define TIDEMARK_TOOL_ADVICE_H

#include "policy.h"
#include "recording.h"
#include "trial.h"

// The row of a setting, which is added unless it is there; NULL: there is no room.
tool_trial* tool_trials_add(tool_trials* trials, const tide_device_options* device);
// Adds the recorded setting and those of PyTorch that are worth trying under the limit of the trials; and
// with `all` also what PyTorch does not have.
void tool_trials_add_usual(tool_trials* trials, const tide_device_options* recorded, bool all);

// Did it serve every request?
bool tool_trial_fits(const tool_trial* trial);

typedef enum tool_verdict {
  TOOL_VERDICT_KEEP,     // the recorded setting runs, and none of PyTorch's needs clearly less
  TOOL_VERDICT_SET,      // one does, or one runs where the recorded setting does not
  TOOL_VERDICT_SHORT,    // none of PyTorch's settings runs in the memory there is
  TOOL_VERDICT_UNKNOWN,  // the replay does not begin as the recording did, and so proves nothing
} tool_verdict;

// What a setting needs is the peak of what it reserves in the replay, if it serves every request. An advice
// needs less by more than TOOL_ADVICE_PERCENT than the recorded setting: than what was reserved when it was
// recorded, and than what its replay reserves.
#define TOOL_ADVICE_PERCENT 2
bool tool_is_clearly_less(uint64_t bytes, uint64_t than);

typedef struct tool_advice {
  tool_verdict verdict;
  const tool_trial* trial;  // that is advised; borrowed from the trials; NULL: none
  // What the recorded setting needs; 0: it does not run to the end in this memory.
  uint64_t recorded_bytes;
  bool is_recorded;  // these bytes stand in the recording; otherwise its replay reserves them
} tool_advice;

tool_advice tool_trials_advise(const tool_trials* trials, const tool_recording* recording);

// By how much less the advised setting needs, in bytes and as a share; 0 if the recorded one does not run.
uint64_t tool_advice_saved(const tool_advice* advice);
double tool_advice_share(const tool_advice* advice);

// What the advised setting is compared with where that does not stand in the recording: "with the defaults".
const char* tool_advice_than(const tool_recording* recording);

// The line to paste into a shell; NULL: there is none.
#define TOOL_ADVICE_LINE (TOOL_POLICY_TEXT + 64)
const char* tool_advice_line(const tool_advice* advice, char out[TOOL_ADVICE_LINE]);
// The keys of JSON: environment, advised, saved_bytes.
void tool_advice_emit(tool_emit* emit, const tool_advice* advice);

#endif
