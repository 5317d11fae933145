// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Recordings that begin in the middle of a run: older entries were overwritten, or recording was switched on
// late. What was reserved at the first entry is known for the recorded setting only. Under any other setting
// it depends on the part that is missing, so nothing but a lower bound can be said about it.
#ifndef TIDEMARK_TOOL_CUT_H
#define TIDEMARK_TOOL_CUT_H

#include "advice.h"
#include "limit.h"

// The answer of tidemark whatif, for the settings of the trials, which are not run. Returns the exit status.
int tool_cut_answer(const tool_call* call, const tool_recording* recording, const tool_limit* limit,
                    const tool_trials* trials);

// Says, in text, with which memory a replay of such a recording began.
void tool_cut_emit_begin(tool_emit* emit, const tool_recording* recording, const tide_replay_result* result);

#endif
