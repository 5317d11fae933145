// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the parts of tidemark report share: all facts about a run.
#ifndef TIDEMARK_TOOL_REPORT_H
#define TIDEMARK_TOOL_REPORT_H

#include "advice.h"
#include "cost.h"
#include "devices.h"
#include "limit.h"
#include "moment.h"
#include "needed.h"
#include "picture.h"
#include "refusal.h"
#include "room.h"
#include "sites.h"
#include "stacks.h"
#include "steps.h"
#include "tags.h"
#include "where.h"
#include "why.h"

#define TOOL_REFUSALS 3        // explained in detail
#define TOOL_DIAGNOSIS_TOP 10  // rows of a table

typedef struct tool_diagnosis {
  const tool_call* call;
  tide_trace* trace;
  size_t device;
  size_t entry_count;
  uint64_t actions[TIDE_ACTION_COUNT];
  bool has_segments;
  bool knows_reserved;
  size_t top;
  bool has_timeline;  // it is drawn
  tide_ledger* ledger;
  tool_sites sites;
  tool_pool_tags tags;
  tool_stacks_options stacks;
  tide_ledger_peaks peaks;
  tide_ledger_faults faults;
  tool_needed needed;
  tool_moment peak_allocated;
  tool_moment peak_reserved;
  tool_where where;
  tool_why why;
  tool_picture peak;  // at the peak of allocated memory
  tool_refusal refusals[TOOL_REFUSALS];
  tool_room rooms[TOOL_REFUSALS];  // for each refusal
  size_t refusal_count;
  tool_limits limits;
  // PyTorch settings that were replayed, in the memory of `limits` if a request was refused. There are none
  // if no setting can save anything, or if a replay proves nothing.
  tool_recording recording;
  tool_trials trials;
  tool_advice advice;
  tool_limit limit;  // in which they were replayed
  tool_costs costs;
} tool_diagnosis;

// The text of a paragraph; what does not fit is dropped.
typedef struct tool_words {
  char text[2048];
  size_t length;
} tool_words;

void tool_words_add(tool_words* w, const char* format, ...) __attribute__((format(printf, 2, 3)));
// Adds a size between two texts.
void tool_words_add_size(tool_words* w, const char* before, uint64_t bytes, const char* behind);
// Adds a share between two texts, as tables have it.
void tool_words_add_share(tool_words* w, const char* before, double share, const char* behind);

// Reads --timeline; draws reserved and allocated memory over time, or over the entries of a recording without
// times (report_timeline.c). On failure they print why and return TOOL_USAGE.
int tool_timeline_parse(const tool_call* call, bool* out);
int tool_diagnosis_emit_timeline(tool_emit* emit, const tool_diagnosis* r);

// Finds everything about a device of a trace; call, trace, device, top and stacks must be set, and all else
// zero. On failure it prints why and returns TOOL_USAGE. In both cases fini frees it, but not the trace.
int tool_diagnosis_find(tool_diagnosis* r);
void tool_diagnosis_fini(tool_diagnosis* r);
// The finding and the advice, which may be empty.
void tool_diagnosis_conclude(tool_diagnosis* r, tool_words* finding, tool_words* advice);
// Everything but steps, leaks and other devices. On failure it prints why and returns TOOL_USAGE.
int tool_diagnosis_emit(tool_emit* emit, tool_diagnosis* r, const tool_steps* steps);

// Why memory is reserved at the peak: a paragraph, and everything (report_why.c). Prints nothing if segments
// were not recorded.
void tool_words_add_why(const tool_why* why, tool_words* w);
void tool_diagnosis_emit_why(tool_emit* emit, tool_diagnosis* r);

// What each tag holds at the end, and what of it is parked; nothing if there are no tags (report_tags.c).
void tool_diagnosis_emit_tags(tool_emit* emit, const tool_diagnosis* r);

// What recorded settings and choices of the program cost, if anything: sentences, and tables (report_cost.c).
void tool_words_add_costs(const tool_costs* costs, tool_words* w);
void tool_diagnosis_emit_costs(tool_emit* emit, const tool_diagnosis* r);

// Who holds memory at the peak of allocated memory: the largest blocks, and sums by call site
// (report_peak.c).
void tool_diagnosis_emit_peak(tool_emit* emit, tool_diagnosis* r);
// The heading of the column of call sites; NULL (only in JSON) if none is known.
const char* tool_diagnosis_site_label(const tool_diagnosis* r);
// The call site of a block, as a cell of a table.
void tool_diagnosis_emit_site(tool_emit* emit, tool_diagnosis* r, uint32_t stack, uint64_t made_at);

// By how much a refused request missed, and what would have made room for it: sentences, and tables
// (report_room.c).
void tool_words_add_missed(const tool_diagnosis* r, size_t refusal, tool_words* w);
void tool_words_add_room(tool_diagnosis* r, size_t refusal, tool_words* w);
void tool_diagnosis_emit_rooms(tool_emit* emit, tool_diagnosis* r);

// Why requests were refused; prints nothing if none was, or if reserved memory is unknown (report_ooms.c).
void tool_diagnosis_emit_ooms(tool_emit* emit, tool_diagnosis* r);
// A row for each refused request, only in JSON.
void tool_diagnosis_emit_refusals(tool_emit* emit, const char* key, const tool_diagnosis* r);

#endif
