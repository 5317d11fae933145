// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Why memory is reserved at the peak. The recording is followed entry by entry, without a replay, so the
// answer holds for every recorded setting. For each segment of the peak (in an expandable segment: for each
// range that was mapped at once), tide_ledger_explain() finds the request that it was made for, what was free
// at that moment, and what stood in the way of using it. ledger.h defines the causes.
#ifndef TIDEMARK_TOOL_WHY_H
#define TIDEMARK_TOOL_WHY_H

#include "tidemark/ledger.h"

// Free memory at the moment of one growth.
typedef struct tool_why_place {
  size_t growth;  // index
  tide_ledger_place place;
} tool_why_place;

// The growths of one cause.
typedef struct tool_why_sum {
  uint64_t bytes;
  uint64_t count;
  size_t largest;  // index of the growth with the most bytes
} tool_why_sum;

// [Y1] reserved == the sum of all causes
typedef struct tool_why {
  uint64_t at;  // number of the entry
  uint64_t reserved;
  tide_growth* growths;  // owned; the oldest first; their `places` are NULL
  size_t count;
  size_t room;
  tool_why_place* places;  // owned; by growths
  size_t place_count;
  size_t place_room;
  tool_why_sum sums[TIDE_GROWTH_COUNT];
} tool_why;

// Explains what is reserved after an entry. On failure it prints why and returns TOOL_USAGE.
int tool_why_find(tide_ledger* ledger, uint64_t at, tool_why* out);
void tool_why_fini(tool_why* why);

// Was enough free, but not usable?
bool tool_why_is_avoidable(uint32_t cause);
// The bytes that were reserved although enough was free.
uint64_t tool_why_avoidable(const tool_why* why);
// All causes, those with the most bytes first.
void tool_why_order(const tool_why* why, uint32_t out[TIDE_GROWTH_COUNT]);

// The words for a cause: a label, and a clause that follows an amount, "because ...".
const char* tool_why_label(uint32_t cause);
const char* tool_why_reason(uint32_t cause);

#endif
