// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What happened besides requests and releases, for pictures of a recording: marks at one place of the x axis,
// and bands over a part of it.
#ifndef TIDEMARK_TOOL_MARKS_H
#define TIDEMARK_TOOL_MARKS_H

#include "limit.h"
#include "steps.h"
#include "timeline.h"

typedef enum tool_mark_kind {
  TOOL_MARK_OOM,          // a request was refused
  TOOL_MARK_FLUSH,        // cached memory was given back for a request: a retry, or garbage collection
  TOOL_MARK_EMPTY_CACHE,  // the program called empty_cache
  TOOL_MARK_COUNT
} tool_mark_kind;

// "oom", "flush", "empty_cache"; and for people.
const char* tool_mark_key(tool_mark_kind kind);
const char* tool_mark_label(tool_mark_kind kind);

typedef struct tool_mark {
  tool_mark_kind kind;
  bool is_certain;  // otherwise a flush may have been a call to empty_cache, or the other way round
  uint64_t entry;   // the first of it
  uint64_t place;
  uint64_t bytes;  // refused, or given back
} tool_mark;

typedef struct tool_marks {
  tool_mark* items;  // owned; by entry
  size_t count;
  size_t room;
  size_t counts[TOOL_MARK_COUNT];
} tool_marks;

// Finds all marks of a device. If the recording was compared (its `replay` is not NULL), the comparison tells
// flushes from calls to empty_cache.
void tool_marks_find(tool_marks* marks, const tool_recording* recording, const tool_limit* limit,
                     const tool_axis* axis);
void tool_marks_fini(tool_marks* marks);

// A whole step, or a range of the program: from place `first` to below `end`.
typedef struct tool_band {
  uint64_t first;
  uint64_t end;
  uint64_t step;  // its number; 0: a range
  char* name;     // owned; of the range; NULL: a step
  size_t depth;   // of the range, from 0
} tool_band;

typedef struct tool_bands {
  tool_band* items;  // owned; steps first, then ranges in the order of their ends
  size_t count;
  size_t room;
  size_t step_count;
  size_t depth_count;
} tool_bands;

// Finds the whole steps, and the ranges of the program. A range without an end ends with the recording.
void tool_bands_find(tool_bands* bands, const tool_steps* steps, const tool_axis* axis);
void tool_bands_fini(tool_bands* bands);

#endif
