// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A recording that a verb replays: what is known of it beforehand.
#ifndef TIDEMARK_TOOL_RECORDING_H
#define TIDEMARK_TOOL_RECORDING_H

#include "tidemark/replay.h"
#include "tool.h"

typedef struct tool_recording {
  const char* file;         // borrowed from the call
  tide_trace* trace;        // owned
  tide_replay* replay;      // owned
  size_t device;            // that is replayed
  uint64_t live_bytes;      // most that was live, each request rounded up to 512 bytes
  uint64_t reserved_bytes;  // most that was reserved; 0: the recording has no segments
  bool is_from_start;       // nothing was there before its first entry
  uint64_t odd_entries;     // that contradict others or lack them
  bool has_settings;        // it tells the settings of its allocator
  // Of the replay under the recorded setting that looks for calls of empty_cache.
  bool is_compared;           // there was one: nothing was given back otherwise
  bool is_repeated;           // it did the same as the recording
  tide_replay_result result;  // what it found
} tool_recording;

// Reads the file, chooses the device (--device, or the first that has entries) and prepares the replay. On
// failure it says why and returns TOOL_USAGE.
int tool_recording_open(const tool_call* call, tool_recording* out);
void tool_recording_close(tool_recording* recording);
// Says that it contradicts itself, if it does; for people only.
void tool_recording_emit_odd(tool_emit* emit, const tool_recording* recording);

// Finds the program's own calls of empty_cache, so that later runs make them too. The limit of the recorded
// run is not known: it may be the given one, or none.
tide_status tool_recording_find_empties(tool_recording* recording, uint64_t limit);

// For tide_replay_options: shows the bar that `user` is.
bool tool_recording_on_progress(void* user, uint64_t done, uint64_t count);

#endif
