// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What a lane or a thread of the device allocator counts for itself until it is added to the totals: five
// numbers, each for small blocks, large blocks and both together (core/stats.h explains how).
//
// Few blocks wait for work after their release. These are counted in the totals directly, after the tally was
// added. So one count serves both the blocks that are handed out and the active ones.
#ifndef TIDEMARK_SRC_CORE_TALLY_H
#define TIDEMARK_SRC_CORE_TALLY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/stats.h"

enum {
  TIDE__TALLY_BLOCKS,  // handed out
  TIDE__TALLY_BYTES,   // their bytes,
  TIDE__TALLY_REQUESTED_BYTES,
  TIDE__TALLY_SPLITS,  // idle parts of segments in use
  TIDE__TALLY_SPLIT_BYTES,
  TIDE__TALLY_COUNT
};

// One number: a cache line.
typedef struct tide__tally_item {
  _Alignas(64) tide__count sides[2];  // large, small
  int64_t both_high;                  // the highest the sum of both sides was
  // While the small sum is at most this, neither its own maximum nor that of both rises.
  int64_t small_ceiling;
} tide__tally_item;

typedef struct tide__tally {
  uint32_t changes;  // calls counted since it was empty
  bool has_splits;   // or else the last two numbers are 0
  tide__tally_item items[TIDE__TALLY_COUNT];
} tide__tally;

// Updates the maxima, and how far the small sum may rise without changing them.
static inline void tide__tally_note(tide__tally* tally, bool is_small, int what) {
  tide__tally_item* const item = &tally->items[what];
  tide__count* const side = &item->sides[is_small];
  const int64_t large = item->sides[0].sum;
  const int64_t both = large + item->sides[1].sum;
  side->high = side->sum > side->high ? side->sum : side->high;
  item->both_high = both > item->both_high ? both : item->both_high;
  const int64_t most = item->both_high - large;
  item->small_ceiling = most < item->sides[1].high ? most : item->sides[1].high;
}

// Not 0 if the maxima may have changed.
static inline int tide__tally_raise(tide__tally* tally, bool is_small, int what, uint64_t n) {
  tide__tally_item* const item = &tally->items[what];
  tide__count* const side = &item->sides[is_small];
  const int64_t sum = side->sum + (int64_t)n;
  side->sum = sum;
  side->rises += (int64_t)n;
  return !is_small || sum > item->small_ceiling;
}

static inline void tide__tally_rise(tide__tally* tally, bool is_small, int what, uint64_t n) {
  if (tide__tally_raise(tally, is_small, what, n) != 0) tide__tally_note(tally, is_small, what);
}

// A block is handed out. New maxima are hard to predict, so one branch serves all three sums.
static inline void tide__tally_hand_out(tide__tally* tally, bool is_small, uint64_t bytes,
                                        uint64_t requested) {
  const int is_noted = tide__tally_raise(tally, is_small, TIDE__TALLY_BLOCKS, 1) |
                       tide__tally_raise(tally, is_small, TIDE__TALLY_BYTES, bytes) |
                       tide__tally_raise(tally, is_small, TIDE__TALLY_REQUESTED_BYTES, requested);
  if (is_noted == 0) return;
  tide__tally_note(tally, is_small, TIDE__TALLY_BLOCKS);
  tide__tally_note(tally, is_small, TIDE__TALLY_BYTES);
  tide__tally_note(tally, is_small, TIDE__TALLY_REQUESTED_BYTES);
}

static inline void tide__tally_fall(tide__tally* tally, bool is_small, int what, uint64_t n) {
  tally->items[what].sides[is_small].sum -= (int64_t)n;
}

// A block is taken back.
static inline void tide__tally_take_back(tide__tally* tally, bool is_small, uint64_t bytes,
                                         uint64_t requested) {
  tide__tally_fall(tally, is_small, TIDE__TALLY_BLOCKS, 1);
  tide__tally_fall(tally, is_small, TIDE__TALLY_BYTES, bytes);
  tide__tally_fall(tally, is_small, TIDE__TALLY_REQUESTED_BYTES, requested);
}

static inline void tide__tally_move(tide__tally* tally, bool is_small, int what, int64_t n) {
  if (n > 0) tide__tally_rise(tally, is_small, what, (uint64_t)n);
  if (n < 0) tide__tally_fall(tally, is_small, what, (uint64_t)-n);
}

// The idle parts of segments in use change by `count` parts and `bytes` bytes, as one change.
static inline void tide__tally_split(tide__tally* tally, bool is_small, int64_t count, int64_t bytes) {
  tide__tally_move(tally, is_small, TIDE__TALLY_SPLITS, count);
  tide__tally_move(tally, is_small, TIDE__TALLY_SPLIT_BYTES, bytes);
  tally->changes++;
  tally->has_splits = true;
}

static inline void tide__tally_clear(tide__tally* tally) {
  const int count = tally->has_splits ? TIDE__TALLY_COUNT : TIDE__TALLY_SPLITS;
  for (int i = 0; i < count; i++) tally->items[i] = (tide__tally_item){ .both_high = 0 };
  tally->changes = 0;
  tally->has_splits = false;
}

// Adds one number of a tally to its statistics: those of all, of the small and of the large blocks.
static inline void tide__tally_add(tide_stat stats[TIDE_STAT_KINDS], const tide__tally* tally, int what) {
  const tide__tally_item* const item = &tally->items[what];
  const tide__count* const large = &item->sides[0];
  const tide__count* const small = &item->sides[1];
  const tide__count both = { .sum = large->sum + small->sum,
                             .high = item->both_high,
                             .rises = large->rises + small->rises };
  tide__stat_add(&stats[TIDE_STAT_ALL], both);
  tide__stat_add(&stats[TIDE_STAT_SMALL], *small);
  tide__stat_add(&stats[TIDE_STAT_LARGE], *large);
}

#endif
