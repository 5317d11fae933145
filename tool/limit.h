// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The limit under which a recording is replayed: the one of --limit; or else the one that the recorded run
// had, as far as retries, collections and refusals show it. All verbs use it, so they cannot contradict each
// other.
#ifndef TIDEMARK_TOOL_LIMIT_H
#define TIDEMARK_TOOL_LIMIT_H

#include "recording.h"
#include "refusal.h"

typedef struct tool_limit {
  uint64_t bytes;      // for replays; TIDE_NO_LIMIT: none
  bool is_given;       // by --limit
  uint64_t at_least;   // the recorded run had this much; 0: nothing shows its limit
  uint64_t less_than;  // and less than this; TIDE_NO_LIMIT: nothing shows its limit
  bool is_certain;     // otherwise only if retries freed memory, and not calls to empty_cache
} tool_limit;

// Chooses the limit. The recording must have been compared. `refusals` are those of the recording, if they
// are known already, or NULL. On failure it prints why and returns TOOL_USAGE.
int tool_limit_choose(const tool_call* call, const tool_recording* recording, const tool_limits* refusals,
                      tool_limit* out);

// Does anything show the limit of the recorded run?
bool tool_limit_is_shown(const tool_limit* limit);
// Is a replay of the recorded setting under this limit the recorded run? The comparison must have repeated
// it, and any limit within the bounds decides alike.
bool tool_limit_is_recorded(const tool_limit* limit, const tool_recording* recording);

// The keys limit, is_limit_inferred, limit_at_least, limit_less_than and is_limit_certain. In text, the limit
// of the replays, and what is known about that of the recorded run, unless `is_said`.
void tool_limit_emit(tool_emit* emit, const tool_limit* limit, bool is_said);
// What is known about the limit of the recorded run, in a sentence; nothing if it does not show. In text
// only.
void tool_limit_emit_bounds(tool_emit* emit, const tool_limit* limit, const char* behind);

#endif
