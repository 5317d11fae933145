// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Repeats a recording and compares every entry.
#ifndef TIDEMARK_SRC_REPLAY_WINDOWS_H
#define TIDEMARK_SRC_REPLAY_WINDOWS_H

#include "replay/steps.h"
#include "tidemark/replay.h"

// Numbers of steps, ascending, before which the cache is emptied.
typedef struct tide__empties {
  uint32_t* steps;  // owned
  size_t count;
  size_t capacity;
} tide__empties;

// Runs a script until it is repeated exactly, or no hypothesis is left. If *out_same, the result has all
// figures; otherwise only the mismatch. `empties` gets the calls of empty_cache that were found.
// Errors: TIDE_ERR_NO_MEMORY, TIDE_ERR_STATE from on_progress, and errors of the cache about its options.
tide_status tide__check_run(const tide__script* script, const tide_heap* heap,
                            const tide_replay_options* options, tide__empties* empties,
                            tide_replay_result* result, bool* out_same);

#endif
