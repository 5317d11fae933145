// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The memory of a device over a recording, as curves in buckets. A bucket is a part of the x axis. It has the
// least and the most of each curve in it, so no peak is lost in however few buckets.
//
//   tool_axis axis;
//   tool_timeline timeline;
//   tool_axis_init(&axis, TOOL_AXIS_ENTRY, trace, device, NULL);
//   tide_status status = tool_timeline_init(&timeline, ledger, &axis, 800);
#ifndef TIDEMARK_TOOL_TIMELINE_H
#define TIDEMARK_TOOL_TIMELINE_H

#include "tidemark/steps.h"
#include "tool.h"

typedef enum tool_axis_kind { TOOL_AXIS_TIME, TOOL_AXIS_ENTRY, TOOL_AXIS_STEP } tool_axis_kind;

// The name of a kind: "time", "entry", "step"; and the kind with a name, or -1.
const char* tool_axis_name(tool_axis_kind kind);
int tool_axis_from_name(const char* name);

#define TOOL_AXIS_STEP_PLACES (1u << 20)  // of a step
#define TOOL_AXIS_LENGTH (UINT64_C(1) << 52)

// Where entries lie on the x axis, as whole numbers. Invariants:
//   [X1] places[i] <= places[i + 1] < length <= TOOL_AXIS_LENGTH
//   [X2] a time that is missing, or earlier than one before it, counts as the latest time before it
typedef struct tool_axis {
  tool_axis_kind kind;
  uint64_t* places;  // owned; by the number of the entry; ENTRY: NULL, the place is that number
  size_t entry_count;
  uint64_t length;    // at least 1
  uint64_t first_ns;  // TIME: the time at place 0
  unsigned shift;     // TIME: a place is 2^shift ns; 0 unless a recording lasts over 50 days
  double before;      // STEP: 1 if something precedes the first step; it has the width of a step
} tool_axis;

// Makes the axis. Steps (may be NULL) are needed for TOOL_AXIS_STEP: each item of tide_steps_items() has the
// same width, and its entries are at equal distances. Returns false if the recording has no times, or no
// steps.
bool tool_axis_init(tool_axis* axis, tool_axis_kind kind, const tide_trace* trace, size_t device,
                    const tide_steps* steps);
void tool_axis_fini(tool_axis* axis);

// The place of an entry. What is before the first entry (TIDE_LEDGER_BEFORE) is at 0, and what is behind the
// last at the end.
uint64_t tool_axis_place(const tool_axis* axis, uint64_t entry);
// The place of a time: of the first entry that is not earlier, unless the axis has times itself.
uint64_t tool_axis_place_of_time(const tool_axis* axis, const tide_trace_entry* entries, uint64_t time_ns);
// The distance of a place from the beginning of the axis, in milliseconds, entries, or steps.
double tool_axis_value(const tool_axis* axis, uint64_t place);
// The same for people, where step N is from N - 1 to N.
static inline double tool_axis_number(const tool_axis* axis, uint64_t place) {
  return tool_axis_value(axis, place) - axis->before;
}

typedef enum tool_curve {
  TOOL_CURVE_RESERVED,
  TOOL_CURVE_ALLOCATED,  // live_bytes of the ledger
  TOOL_CURVE_REQUESTED,
  TOOL_CURVE_COUNT
} tool_curve;

typedef struct tool_timeline {
  size_t count;                              // of buckets
  tide_timeline_bucket* buckets;             // owned
  tide_ledger_peak peaks[TOOL_CURVE_COUNT];  // of the whole recording
  uint64_t places[TOOL_CURVE_COUNT];         // of the peaks on the axis
} tool_timeline;

// Fills `count` buckets (above 0, at most 4096) of equal width. The entry at place p
// is in bucket p * count / length. Moves the ledger, which must be of the axis's trace and device.
// Errors:  as tide_ledger_seek().
// Cost:    that of moving the ledger through all entries; O(count) memory.
tide_status tool_timeline_init(tool_timeline* timeline, tide_ledger* ledger, const tool_axis* axis,
                               size_t count);
void tool_timeline_fini(tool_timeline* timeline);

// A curve in a bucket.
const tide_timeline_range* tool_timeline_range(const tool_timeline* timeline, tool_curve curve,
                                               size_t bucket);
// The most of any curve.
uint64_t tool_timeline_top(const tool_timeline* timeline);

#endif
