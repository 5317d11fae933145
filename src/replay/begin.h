// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The beginning of a run whose recording begins in the middle: the memory that existed then.
#ifndef TIDEMARK_SRC_REPLAY_BEGIN_H
#define TIDEMARK_SRC_REPLAY_BEGIN_H

#include "replay/stage.h"

// Can a run with these options begin with the old segments, at their places? Otherwise old blocks are
// requested first. Only the policy `torch` keeps its blocks where PyTorch does.
bool tide__begins_in_place(const tide__script* script, const tide_replay_options* options);

// Makes the old segments with their blocks, and lets those wait that were released. Statistics begin after
// it; the next step is the script's first_step.
tide_status tide__stage_begin(tide__stage* stage);

#endif
