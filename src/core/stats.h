// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Arithmetic of statistics. A count is what a thread or a lane counts for itself until it is added to the
// totals: the sum of its changes, how high that sum rose on the way, and all rises. Adding a count gives the
// same current value, sums and peak as if each of its changes had been made in the totals one by one.
#ifndef TIDEMARK_SRC_CORE_STATS_H
#define TIDEMARK_SRC_CORE_STATS_H

#include "tidemark/cache.h"

// ---------------------------------------------------------------------------------------------------
// Counts

// Compilers may load two adjacent fields as one wide word, which then stalls on the narrow stores just
// before. So no two adjacent fields change in one step, here and in core/tally.h.
typedef struct tide__count {
  int64_t sum;    // rises minus falls
  int64_t high;   // the highest the sum was; at least 0
  int64_t rises;  // all rises
} tide__count;

static inline void tide__count_rise(tide__count* count, int64_t n) {
  count->sum += n;
  count->rises += n;
  if (count->sum > count->high) count->high = count->sum;
}

static inline void tide__count_fall(tide__count* count, int64_t n) { count->sum -= n; }

// ---------------------------------------------------------------------------------------------------
// Statistics

static inline void tide__stat_add(tide_stat* stat, tide__count count) {
  if (stat->current + count.high > stat->peak) stat->peak = stat->current + count.high;
  stat->current += count.sum;
  stat->allocated += count.rises;
  stat->freed += count.rises - count.sum;
}

// One change, up or down.
static inline void tide__stat_move(tide_stat* stat, int64_t n) {
  const int64_t rise = n > 0 ? n : 0;
  tide__stat_add(stat, (tide__count){ .sum = n, .high = rise, .rises = rise });
}

static inline void tide__stat_forget_sums(tide_stat* stat) { stat->allocated = stat->freed = 0; }
static inline void tide__stat_forget_peak(tide_stat* stat) { stat->peak = stat->current; }

// ---------------------------------------------------------------------------------------------------
// Durations

// A call that took no time counts, but does not change the minimum.
static inline void tide__duration_add(tide_duration* duration, uint64_t ns) {
  duration->total_ns += ns;
  duration->count++;
  if (ns > duration->max_ns) duration->max_ns = ns;
  if (ns != 0 && (duration->min_ns == 0 || ns < duration->min_ns)) duration->min_ns = ns;
}

static inline void tide__duration_forget_sums(tide_duration* duration) {
  duration->total_ns = duration->count = 0;
}
static inline void tide__duration_forget_peak(tide_duration* duration) {
  duration->max_ns = duration->min_ns = 0;
}

#endif
