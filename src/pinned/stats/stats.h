// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The room `stats`, the lowest of the pinned cache: statistics and history. It calls no other room.
#ifndef TIDEMARK_SRC_PINNED_STATS_STATS_H
#define TIDEMARK_SRC_PINNED_STATS_STATS_H

#include "pinned/cache.h"

// ---------------------------------------------------------------------------------------------------
// totals.c

// Adds what a thread cache, or all of them, have counted to the totals.
void tide__pin_settle_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache);
void tide__pin_totals_settle(tide_pinned_cache* pinned);
// Counts a block as handed out, or as no longer active.
static inline void tide__pin_count_out_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache,
                                              uint64_t bytes) {
  tide__count_rise(&tcache->tally.counts[TIDE__PIN_ACTIVE], 1);
  tide__count_rise(&tcache->tally.counts[TIDE__PIN_ACTIVE_BYTES], (int64_t)bytes);
  if (++tcache->tally.changes >= TIDE__PIN_TALLY_CHANGES) tide__pin_settle_locked(pinned, tcache);
}
static inline void tide__pin_count_back_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache,
                                               uint64_t bytes) {
  tide__count_fall(&tcache->tally.counts[TIDE__PIN_ACTIVE], 1);
  tide__count_fall(&tcache->tally.counts[TIDE__PIN_ACTIVE_BYTES], (int64_t)bytes);
  if (++tcache->tally.changes >= TIDE__PIN_TALLY_CHANGES) tide__pin_settle_locked(pinned, tcache);
}
// Counts a segment that was made or given back, and the time of a call of the machine.
void tide__pin_totals_segment(tide_pinned_cache* pinned, const tide__pin_segment* segment, bool is_made);
void tide__pin_totals_call(tide_pinned_cache* pinned, bool is_alloc, uint64_t ns);
// Adds to a plain counter.
void tide__pin_totals_count(tide_pinned_cache* pinned, size_t field_offset, int64_t n);
#define TIDE__PIN_COUNT(pinned, field) tide__pin_totals_count((pinned), offsetof(tide_pinned_stats, field), 1)

// ---------------------------------------------------------------------------------------------------
// history.c

// The context of a call: see tide__history_context(). All 0 if nothing is recorded. With no lock held.
tide__call_context tide__pin_context_now(tide_pinned_cache* pinned, uint32_t level);
// Adds an entry about a block, or about memory of a pool.
void tide__pin_history_block(tide_pinned_cache* pinned, tide_action action, const tide__call_context* context,
                             const tide__pin* block);
void tide__pin_history_add(tide_pinned_cache* pinned, tide_action action, const tide__call_context* context,
                           uint64_t address, uint64_t bytes, tide_pool pool);

#endif
