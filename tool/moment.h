// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A point of a trace: the number of the entry, the time, and what the program was doing.
#ifndef TIDEMARK_TOOL_MOMENT_H
#define TIDEMARK_TOOL_MOMENT_H

#include "tidemark/ledger.h"

typedef struct tool_moment {
  uint64_t at;         // number of the entry; TIDE_LEDGER_BEFORE: before the first
  bool is_end;         // there are no entries, so only the final state is known
  bool has_time;       // false if times are steps
  double ms;           // since the first entry
  const char* during;  // the open range, or the entry's metadata; borrowed from the trace; may be NULL
} tool_moment;

tool_moment tool_moment_of(const tide_trace* trace, size_t device, uint64_t at);

// entry 1203, 12.300 s into the recording, during "forward"
#define TOOL_MOMENT_TEXT 512
const char* tool_moment_text(const tool_moment* moment, char out[TOOL_MOMENT_TEXT]);

// Where a range of the program begins or ends, from the snapshot's annotations.
typedef struct tool_annotation {
  const char* name;  // borrowed from the trace
  bool is_start;
  uint64_t time_us;
} tool_annotation;

// The next annotation of a device, or of every device (those without a device, or with a negative one), from
// item *at on; moves *at behind it. Returns false at the end.
bool tool_annotation_next(const tide_trace* trace, size_t device, size_t* at, tool_annotation* out);

// The time of the first entry that has one, and the time to the last. Returns false if no entry has a time.
bool tool_device_times(const tide_trace* trace, size_t device, uint64_t* out_first_ns, uint64_t* out_span_ns);

#endif
