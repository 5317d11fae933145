// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The options --park and --park-backup of tidemark replay, and the costs that the replay finds.
#ifndef TIDEMARK_TOOL_PARKING_H
#define TIDEMARK_TOOL_PARKING_H

#include "recording.h"

typedef struct tool_parking {
  tide_replay_park* parks;  // owned; by entry, each once
  size_t count;
  size_t room;
} tool_parking;

// Reads the options, before a file is read. On failure it prints why and returns TOOL_USAGE.
int tool_parking_parse(const tool_call* call, tide_replay_options* o);
// Finds the entries of all places in a recording, and sets them in the options of a replay. On failure it
// prints why and returns TOOL_USAGE. In both cases fini frees it.
int tool_parking_find(tool_parking* parking, const tool_call* call, const tool_recording* recording,
                      tide_replay_options* o);
void tool_parking_fini(tool_parking* parking);

// What parking costs; only null in JSON if nothing is parked.
void tool_parking_emit(tool_emit* emit, const tool_call* call, const tide_replay_options* o,
                       const tide_replay_result* r);

#define TOOL_PARK_OPTIONS                                                                                  \
  { "park", 0, "AT[,AT...]",                                                                               \
    "what it costs to park all memory at AT and to unpark it at once: before an entry (its number), at a " \
    "percentage of the recording (50%), or at the end of every step (steps); only with the policy tide" }, \
  {                                                                                                        \
    "park-backup", 0, "KIND",                                                                              \
        "with --park: where contents go: pinned (default), pageable, file, or none (they are discarded)"   \
  }

#endif
