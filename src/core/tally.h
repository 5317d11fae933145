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
  // Up to this the small sum may rise and raise neither its own highest nor that of both; or less than that.
  int64_t small_ceiling[TIDE__TALLY_COUNT];
  uint32_t changes;  // calls counted since it was empty
} tide__tally;

// Notes how high the sums are, and finds out how far the small one may rise unnoticed.
static inline void tide__tally_note(tide__tally* tally, bool is_small, int what) {
  tide__tally_side* const side = &tally->sides[is_small];
  const int64_t large = tally->sides[0].sum[what];
  const int64_t both = large + tally->sides[1].sum[what];
  if (side->sum[what] > side->high[what]) side->high[what] = side->sum[what];
  if (both > tally->both_high[what]) tally->both_high[what] = both;
  const int64_t most = tally->both_high[what] - large;
  tally->small_ceiling[what] = most < tally->sides[1].high[what] ? most : tally->sides[1].high[what];
}

// Small blocks are most: for them it is three numbers and a look.
static inline void tide__tally_rise(tide__tally* tally, bool is_small, int what, uint64_t n) {
  tide__tally_side* const side = &tally->sides[is_small];
  const int64_t sum = side->sum[what] + (int64_t)n;
  side->sum[what] = sum;
  side->rises[what] += (int64_t)n;
  if (!is_small || sum > tally->small_ceiling[what]) tide__tally_note(tally, is_small, what);
}

static inline void tide__tally_fall(tide__tally* tally, bool is_small, int what, uint64_t n) {
  tally->sides[is_small].sum[what] -= (int64_t)n;
}

static inline void tide__tally_move(tide__tally* tally, bool is_small, int what, int64_t n) {
  if (n > 0) tide__tally_rise(tally, is_small, what, (uint64_t)n);
  if (n < 0) tide__tally_fall(tally, is_small, what, (uint64_t)-n);
}

#endif
