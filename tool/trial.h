// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Trials: one recording replayed under many settings, with a thread per processor.
#ifndef TIDEMARK_TOOL_TRIAL_H
#define TIDEMARK_TOOL_TRIAL_H

#include "budgeting.h"

typedef struct tool_trial {
  tide_device_options device;
  bool is_recorded;           // the setting of the recording itself
  bool is_repeated;           // its result is that of the comparison, which repeated the recording
  bool is_torch;              // a setting that PyTorch has
  bool is_asked;              // the user named it
  bool is_known;              // its result was known before; the figures below may still be searched
  bool is_done;               // all figures are there
  bool is_stopped;            // its replay ended early: see `most` below
  tide_replay_result result;  // under the limit, if there is one
  uint64_t smallest_bytes;    // the smallest memory in which it runs; 0: not found, or not searched
  uint64_t smallest_ns;       // cost of the driver calls in that memory
  tide_status status;         // of the replay; `text` says more
  // (optional) Budgets of the row, and where their results go: those of the replay under the limit.
  const tool_budgeting* budgeting;
  tide_replay_tag* tags;
  uint64_t smallest_bus_ns;  // time on the bus in the smallest memory
  uint64_t* curve;           // (optional) of tide_replay_options, under the limit; owned by the user
  char text[256];
} tool_trial;

#define TOOL_TRIALS 64

typedef struct tool_trials tool_trials;
struct tool_trials {
  tide_replay* replay;  // borrowed
  uint64_t limit;       // TIDE_NO_LIMIT: none
  bool is_quick;        // skip the search for the smallest memory
  size_t threads;       // to use at most; 0: one for each processor
  size_t curve_count;   // parts of the curves
  // (optional) The most that a row may reserve to be of use, by the rows that are done. Its replay stops
  // above that, or at a refused request. TIDE_NO_LIMIT: any amount.
  uint64_t (*most)(const tool_trials* trials, const tool_trial* row);
  uint64_t recorded_bytes;  // what the recorded setting needs; for `most`
  size_t count;
  tool_trial rows[TOOL_TRIALS];
};

// The smallest memory is a multiple of this, which divides the size of every segment and handle. A row runs
// in its smallest memory, and not in one grain less.
#define TOOL_TRIAL_GRAIN ((uint64_t)2 << 20)

// Runs the trials that are not done, and fills in their results. The smallest memory is found by bisection.
void tool_trials_run(tool_trials* trials);

#endif
