// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the parts of tidemark report share: all that was found out about a run.
#ifndef TIDEMARK_TOOL_REPORT_H
#define TIDEMARK_TOOL_REPORT_H

#include "advice.h"
#include "moment.h"
#include "picture.h"
#include "refusal.h"
#include "sites.h"
#include "where.h"

#define TOOL_REFUSALS 3  // that are explained

typedef struct tool_diagnosis {
  const tool_call* call;
  tide_trace* trace;
  size_t device;
  size_t entry_count;
  uint64_t actions[TIDE_ACTION_COUNT];
  bool has_segments;
  bool knows_reserved;
  size_t top;
  tide_ledger* ledger;
  tool_sites sites;
  tide_ledger_peaks peaks;
  tide_ledger_faults faults;
  tool_moment peak_allocated;
  tool_moment peak_reserved;
  tool_where where;
  tool_picture peak;  // when most is allocated
  tool_refusal refusals[TOOL_REFUSALS];
  size_t refusal_count;
  tool_limits limits;
  // Settings of PyTorch, replayed in the memory of the limits if something was refused; none, where no
  // setting can save anything, or where a replay proves nothing.
  tool_recording recording;
  tool_trials trials;
  tool_advice advice;
} tool_diagnosis;

// Words for a paragraph; what does not fit is left out.
typedef struct tool_words {
  char text[2048];
  size_t length;
} tool_words;

void tool_words_add(tool_words* w, const char* format, ...) __attribute__((format(printf, 2, 3)));
// A size between two texts.
void tool_words_add_size(tool_words* w, const char* before, uint64_t bytes, const char* behind);

// Who holds memory at the peak of what is allocated: the largest blocks, and sums by call site
// (report_peak.c).
void tool_diagnosis_emit_peak(tool_emit* emit, tool_diagnosis* r);
// The heading of call sites; NULL, for JSON only, where there is nothing to tell about any.
const char* tool_diagnosis_site_label(const tool_diagnosis* r);
// Where a block was asked for, as a cell of a table.
void tool_diagnosis_emit_site(tool_emit* emit, tool_diagnosis* r, uint32_t stack, uint64_t made_at);

// Why requests were refused; nothing if none was, or if it is not known what was reserved (report_ooms.c).
void tool_diagnosis_emit_ooms(tool_emit* emit, tool_diagnosis* r);

#endif
