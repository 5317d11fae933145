// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the recorded settings and the program's own choices cost, by replay. A setting costs what is saved
// without it, if the others stay. A choice of the program (streams, pools, waits) costs what is saved if all
// requests are made on one stream, if all private pools are one, or if no release waits.
#ifndef TIDEMARK_TOOL_COST_H
#define TIDEMARK_TOOL_COST_H

#include "advice.h"
#include "why.h"

#define TOOL_COSTS 16
#define TOOL_SETTING_TEXT 256

typedef struct tool_setting_cost {
  char setting[TOOL_SETTING_TEXT];  // "max_split_size_mb:100"
  tide_replay_result without;
} tool_setting_cost;

typedef enum tool_change { TOOL_ONE_STREAM, TOOL_ONE_POOL, TOOL_NO_WAITS, TOOL_CHANGE_COUNT } tool_change;

typedef struct tool_change_cost {
  bool is_tried;          // the replay was run
  uint64_t reason_bytes;  // reserved at the peak for this reason
  tide_replay_result changed;
} tool_change_cost;

typedef struct tool_costs {
  bool is_known;                // the recorded settings were replayed, and reserve what was recorded
  tide_replay_result recorded;  // with them
  tool_setting_cost settings[TOOL_COSTS];
  size_t setting_count;
  tool_change_cost changes[TOOL_CHANGE_COUNT];
} tool_costs;

// Is a choice of the program the cause of a noticeable part of the peak?
bool tool_costs_are_possible(const tool_why* why);

// Replays what is not among the trials, under their limit. The trials must have run. Nothing is known if the
// replay of the recorded settings reserves anything else than the recording did.
void tool_costs_find(const tool_trials* trials, const tool_recording* recording, const tool_why* why,
                     tool_costs* out);

// The bytes saved at the peak if every request is served in both replays; 0 if nothing is saved.
uint64_t tool_cost_saved(const tool_costs* costs, const tide_replay_result* other);
// Does it save clearly, or serve every request where the recorded settings do not?
bool tool_cost_is_better(const tool_costs* costs, const tide_replay_result* other);

#endif
