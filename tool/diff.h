// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the parts of tidemark diff share: the facts about one of the two runs.
#ifndef TIDEMARK_TOOL_DIFF_H
#define TIDEMARK_TOOL_DIFF_H

#include "picture.h"
#include "sites.h"
#include "sums.h"

// One of the two runs.
typedef struct tool_diff_side {
  tide_trace* trace;
  size_t device;
  tool_sites sites;
  tide_ledger_peaks peaks;
  size_t entry_count;
  uint64_t actions[TIDE_ACTION_COUNT];
  bool has_stacks;
  bool knows_reserved;
  tool_sums streams;   // by handle, in the order of their first request
  tool_sums by_site;   // by the hash of the call site
  tool_sums by_stack;  // by the hash of the stack, and size
  tool_sums by_size;   // by size, and the number of the stream
} tool_diff_side;

// The requests of two runs, in their order, by size. Refused ones are included.
typedef struct tool_diff_requests {
  uint64_t a_count;
  uint64_t b_count;
  uint64_t same;  // how many are the same from the first on
} tool_diff_requests;

tool_diff_requests tool_diff_compare_requests(const tool_diff_side* a, const tool_diff_side* b);
// Are all the same? Also if one of the files has no entries, so that its requests are unknown.
bool tool_diff_has_same_requests(const tool_diff_side* a, const tool_diff_side* b);

// The number of recorded settings that differ. A setting that only one of the files has is not compared.
size_t tool_diff_count_settings(const tool_diff_side* a, const tool_diff_side* b);

// Which run needs more and why, in a few sentences; and the keys verdict, needs_more, requests_a, requests_b
// and requests_same. `is_same` says that nothing differs.
void tool_diff_emit_verdict(tool_emit* emit, const tool_diff_side* a, const tool_diff_side* b, bool is_same);
// The table of settings that differ; in text only if there are any.
void tool_diff_emit_settings(tool_emit* emit, const tool_call* call, const tool_diff_side* a,
                             const tool_diff_side* b);

#endif
