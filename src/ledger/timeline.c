// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Buckets of memory over time. What a bucket begins with is what the one before ends with.
#include "tidemark/ledger.h"

#include "base/arith.h"

static void range_add(tide_timeline_range* range, uint64_t bytes, bool is_first) {
  if (is_first || bytes < range->least) range->least = bytes;
  if (is_first || bytes > range->most) range->most = bytes;
  range->last = bytes;
}

// With `is_first`, the bucket forgets the values with which it began.
static void bucket_add(tide_timeline_bucket* bucket, const tide_ledger_totals* totals, bool is_first) {
  range_add(&bucket->live, totals->live_bytes, is_first);
  range_add(&bucket->requested, totals->requested_bytes, is_first);
  range_add(&bucket->allocated, totals->allocated_bytes, is_first);
  range_add(&bucket->active, totals->active_bytes, is_first);
  range_add(&bucket->reserved, totals->reserved_bytes, is_first);
}

static tide_timeline_range range_after(const tide_timeline_range* range) {
  return (tide_timeline_range){ range->last, range->last, range->last };
}

// Begins the next bucket with the values at the end of this one.
static void timeline_advance(tide_timeline* line) {
  const tide_timeline_bucket* const last = &line->buckets[line->current];
  tide_timeline_bucket* const next = &line->buckets[++line->current];
  *next = (tide_timeline_bucket){ .begin = next->begin,
                                  .first = last->first + last->entry_count,
                                  .live = range_after(&last->live),
                                  .requested = range_after(&last->requested),
                                  .allocated = range_after(&last->allocated),
                                  .active = range_after(&last->active),
                                  .reserved = range_after(&last->reserved) };
}

void tide_timeline_start(tide_timeline* line, const tide_ledger_totals* before) {
  tide_timeline_bucket* const first = &line->buckets[0];
  *first = (tide_timeline_bucket){ .begin = first->begin };
  bucket_add(first, before, true);
  line->current = 0;
  line->latest = 0;
}

void tide_timeline_add(tide_timeline* line, uint64_t position, const tide_ledger_totals* totals) {
  line->latest = tide__max(line->latest, position);
  while (line->current + 1 < line->count && line->buckets[line->current + 1].begin <= line->latest)
    timeline_advance(line);
  tide_timeline_bucket* const bucket = &line->buckets[line->current];
  const bool is_at_begin = bucket->entry_count == 0 && bucket->begin == line->latest;
  bucket_add(bucket, totals, is_at_begin && !line->is_joined && line->current > 0);
  bucket->entry_count++;
}

void tide_timeline_finish(tide_timeline* line) {
  while (line->current + 1 < line->count) timeline_advance(line);
}
