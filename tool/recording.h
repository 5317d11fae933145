// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A recording that a verb replays, and what is known about it before the replay.
#ifndef TIDEMARK_TOOL_RECORDING_H
#define TIDEMARK_TOOL_RECORDING_H

#include "tidemark/ledger.h"
#include "tidemark/replay.h"
#include "steps.h"

typedef struct tool_recording {
  const char* file;           // borrowed from the call
  tide_trace* trace;          // owned
  tide_replay* replay;        // owned
  size_t device;              // the one that is replayed
  uint64_t live_bytes;        // peak of live requests, each rounded up to 512 bytes
  uint64_t held_bytes;        // the most that is held at once, with a refused request: any allocator needs it
  uint64_t reserved_bytes;    // peak of reserved memory; 0: the recording has no segments
  bool is_from_start;         // nothing existed before its first entry
  uint64_t odd_entries;       // entries that contradict others or refer to missing ones
  bool has_settings;          // it contains the settings of its allocator
  bool is_compared;           // the recorded setting was compared; false: no segments were recorded
  bool is_repeated;           // the comparison repeated every entry
  tide_replay_result result;  // of that comparison
} tool_recording;

// Reads the file, chooses the device (--device, or tool_device_default()) and prepares the replay. On
// failure it prints why and returns TOOL_USAGE.
int tool_recording_open(const tool_call* call, tool_recording* out);
// Prepares the replay of a trace, which the caller keeps, with the facts that its ledger shows. False: it
// cannot be replayed. Only the replay is to be freed.
bool tool_recording_begin(tide_trace* trace, size_t device, const tide_ledger* ledger, tool_recording* out);
void tool_recording_close(tool_recording* recording);
// Warns about `count` entries that contradict others, unless it is 0; in text only.
void tool_recording_emit_odd(tool_emit* emit, uint64_t count);

// Replays the recorded setting and compares it with the recording. This finds the limit of the recorded run,
// and the program's calls to empty_cache, so that later replays make them too.
tide_status tool_recording_compare(tool_recording* recording);

// Finds the steps of a recording, as --step says. On failure it prints why and returns TOOL_USAGE; otherwise
// tool_steps_fini() frees them.
int tool_recording_steps(const tool_call* call, const tool_recording* recording, tool_sites* sites,
                         tool_steps* out);

// The on_progress of tide_replay_options; `user` is a tool_progress.
bool tool_recording_on_progress(void* user, uint64_t done, uint64_t count);

#endif
