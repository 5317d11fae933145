// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Statistics without a meeting point. Each lane of an allocator counts for itself, under its own lock, what
// changed since its tally was last added to the totals: the sum, how high the sum rose on the way, and all
// rises. Adding a tally to the totals gives the same current values, sums and peaks as if each change had
// been made there, one after the other.
//
// Blocks that wait for work between their release and their end are rare: such a step is made in the totals
// directly, after the tally was added. So one count serves both what is handed out and what is active.
#ifndef TIDEMARK_SRC_CORE_TALLY_H
#define TIDEMARK_SRC_CORE_TALLY_H

#include <stdbool.h>
#include <stdint.h>

enum {
  TIDE__TALLY_BLOCKS,  // handed out
  TIDE__TALLY_BYTES,   // their bytes,
  TIDE__TALLY_REQUESTED_BYTES,
  TIDE__TALLY_SPLITS,  // idle parts of segments in use
  TIDE__TALLY_SPLIT_BYTES,
  TIDE__TALLY_COUNT
};

// What changed for small or for large blocks.
typedef struct tide__tally_side {
  int64_t sum[TIDE__TALLY_COUNT];    // rises minus falls
  int64_t high[TIDE__TALLY_COUNT];   // the highest the sum was; at least 0
  int64_t rises[TIDE__TALLY_COUNT];  // all rises
} tide__tally_side;

typedef struct tide__tally {
  tide__tally_side sides[2];             // large, small
  int64_t both_high[TIDE__TALLY_COUNT];  // the highest the sum of both sides was
  uint32_t changes;                      // calls counted since it was empty
} tide__tally;

static inline void tide__tally_rise(tide__tally* tally, bool is_small, int what, uint64_t n) {
  tide__tally_side* const side = &tally->sides[is_small];
  const int64_t sum = side->sum[what] + (int64_t)n;
  const int64_t both = sum + tally->sides[!is_small].sum[what];
  side->sum[what] = sum;
  side->rises[what] += (int64_t)n;
  if (sum > side->high[what]) side->high[what] = sum;
  if (both > tally->both_high[what]) tally->both_high[what] = both;
}

static inline void tide__tally_fall(tide__tally* tally, bool is_small, int what, uint64_t n) {
  tally->sides[is_small].sum[what] -= (int64_t)n;
}

static inline void tide__tally_move(tide__tally* tally, bool is_small, int what, int64_t n) {
  if (n > 0) tide__tally_rise(tally, is_small, what, (uint64_t)n);
  if (n < 0) tide__tally_fall(tally, is_small, what, (uint64_t)-n);
}

#endif
