// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Statistics without a meeting point. Each lane of an allocator counts for itself, under its own lock, what
// changed since its tally was last added to the totals: the sum, how high the sum rose on the way, and all
// rises. Adding a tally to the totals gives the same current values, sums and peaks as if each change had
// been made there, one after the other.
#ifndef TIDEMARK_SRC_CORE_TALLY_H
#define TIDEMARK_SRC_CORE_TALLY_H

#include <stdbool.h>
#include <stdint.h>

// What a lane counts, in the order of TIDE_DEVICE_STAT_MAP.
enum {
  TIDE__TALLY_ALLOCATION,
  TIDE__TALLY_ALLOCATED_BYTES,
  TIDE__TALLY_ACTIVE,
  TIDE__TALLY_ACTIVE_BYTES,
  TIDE__TALLY_REQUESTED_BYTES,
  TIDE__TALLY_INACTIVE_SPLIT,
  TIDE__TALLY_INACTIVE_SPLIT_BYTES,
  TIDE__TALLY_COUNT
};

typedef struct tide__tally_entry {
  int64_t sum;   // rises minus falls
  int64_t high;  // the highest the sum was; at least 0
  int64_t rises;
} tide__tally_entry;

// [Y1] all.sum == small.sum + large.sum, and the same for rises
typedef struct tide__tally {
  tide__tally_entry entries[3][TIDE__TALLY_COUNT];  // all, small, large
  uint32_t changes;                                 // calls counted since it was empty
} tide__tally;

static inline void tide__tally_entry_add(tide__tally_entry* entry, int64_t n) {
  entry->sum += n;
  entry->rises += n;
  if (entry->sum > entry->high) entry->high = entry->sum;
}

// `kind` is 1 for small, 2 for large.
static inline void tide__tally_rise(tide__tally* tally, int kind, int what, uint64_t n) {
  tide__tally_entry_add(&tally->entries[0][what], (int64_t)n);
  tide__tally_entry_add(&tally->entries[kind][what], (int64_t)n);
}

static inline void tide__tally_fall(tide__tally* tally, int kind, int what, uint64_t n) {
  tally->entries[0][what].sum -= (int64_t)n;
  tally->entries[kind][what].sum -= (int64_t)n;
}

#endif
