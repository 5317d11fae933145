// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Remedies: settings of PyTorch's allocator that are tried on a recording by replaying it.
#ifndef TIDEMARK_TOOL_REMEDY_H
#define TIDEMARK_TOOL_REMEDY_H

#include "tidemark/replay.h"
#include "tool.h"

typedef struct tool_remedy {
  const char* settings;       // what PYTORCH_CUDA_ALLOC_CONF is set to
  bool is_done;               // false: the replay failed
  tide_replay_result result;  // up to the first refusal
} tool_remedy;

#define TOOL_REMEDIES 5

// Tries the usual settings, PyTorch's defaults first, with the memory that is given; or one setting alone,
// if it is not NULL. Returns how many were tried.
size_t tool_remedies_try(const tide_trace* trace, size_t device, uint64_t limit, const char* settings,
                         tool_remedy out[TOOL_REMEDIES]);

// Is the request at an entry, which was refused, served?
bool tool_remedy_serves(const tool_remedy* remedy, uint64_t at);

// Was the recording made with expandable segments? And the settings it was made with, in PyTorch's words; ""
// for none.
bool tool_trace_is_expandable(const tide_trace* trace);
const char* tool_trace_settings(const tide_trace* trace);

#endif
