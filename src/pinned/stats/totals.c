// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `stats`: the totals of a cache. Thread caches count requests and releases for themselves and add them
// from time to time. Calls of the machine are counted at once. Blocks that wait are counted in
// stream/waits.c.
// Locks: totals, waits.
#include "base/sized.h"
#include "pinned/stats/stats.h"

void tide__pin_settle_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache) {
  tide__pin_tally* const tally = &tcache->tally;
  if (tally->changes == 0) return;
  tide__mutex_lock(&pinned->totals_lock);
  tide__stat_add(&pinned->totals.active_requests, tally->counts[TIDE__PIN_ACTIVE]);
  tide__stat_add(&pinned->totals.active_bytes, tally->counts[TIDE__PIN_ACTIVE_BYTES]);
  tide__mutex_unlock(&pinned->totals_lock);
  *tally = (tide__pin_tally){ .changes = 0 };
}

void tide__pin_totals_settle(tide_pinned_cache* pinned) {
  tide__pin_tcache* tcache = tide__pin_tcache_first(pinned);
  for (; tcache != NULL; tcache = tide__pin_tcache_next(tcache)) {
    tide__thread_cache_take(&tcache->base);
    tide__pin_settle_locked(pinned, tcache);
    tide__thread_cache_give(&tcache->base);
  }
}

void tide__pin_totals_segment(tide_pinned_cache* pinned, const tide__pin_segment* segment, bool is_made) {
  tide_pinned_stats* const totals = &pinned->totals;
  const int64_t sign = is_made ? 1 : -1;
  const int64_t blocks = sign * (int64_t)segment->capacity;
  const int64_t bytes = (int64_t)segment->memory.bytes;
  tide__mutex_lock(&pinned->totals_lock);
  tide__stat_move(&totals->allocations, blocks);
  tide__stat_move(&totals->allocated_bytes, blocks * (int64_t)segment->block_bytes);
  tide__stat_move(&totals->segments, sign);
  tide__stat_move(&totals->reserved_bytes, is_made ? bytes : -bytes);
  pinned->class_blocks[segment->class_index] += blocks;
  tide__mutex_unlock(&pinned->totals_lock);
}

void tide__pin_totals_call(tide_pinned_cache* pinned, bool is_alloc, uint64_t ns) {
  tide_pinned_stats* const totals = &pinned->totals;
  tide__mutex_lock(&pinned->totals_lock);
  tide__duration_add(is_alloc ? &totals->host_alloc_time : &totals->host_free_time, ns);
  if (is_alloc) totals->num_host_alloc++;
  else totals->num_host_free++;
  tide__mutex_unlock(&pinned->totals_lock);
}

void tide__pin_totals_count(tide_pinned_cache* pinned, size_t field_offset, int64_t n) {
  tide__mutex_lock(&pinned->totals_lock);
  *(int64_t*)(void*)((char*)&pinned->totals + field_offset) += n;
  tide__mutex_unlock(&pinned->totals_lock);
}

// ---------------------------------------------------------------------------------------------------
// Calls

static void totals_lock(tide_pinned_cache* pinned) TIDE_UNCHECKED_LOCKING {
  tide__pin_totals_settle(pinned);
  tide__mutex_lock(&pinned->waits.lock);
  tide__mutex_lock(&pinned->totals_lock);
}

static void totals_unlock(tide_pinned_cache* pinned) TIDE_UNCHECKED_LOCKING {
  tide__mutex_unlock(&pinned->totals_lock);
  tide__mutex_unlock(&pinned->waits.lock);
}

tide_status tide_pinned_get_stats(tide_pinned_cache* pinned, tide_pinned_stats* out) {
  TIDE_REQUIRE(pinned != NULL && out != NULL, TIDE_ERR_ARGUMENT, "pinned_get_stats: no cache or out");
  TIDE__PIN_REQUIRE_OWN(pinned, "pinned_get_stats");
  totals_lock(pinned);
  const tide_status status = tide__sized_write("pinned_get_stats", &pinned->totals, out, sizeof *out);
  totals_unlock(pinned);
  return status;
}

void tide_pinned_reset_accumulated(tide_pinned_cache* pinned) {
  if (pinned == NULL) return;
  tide_pinned_stats* const totals = &pinned->totals;
  totals_lock(pinned);
#define FORGET_SUMS(name) tide__stat_forget_sums(&totals->name);
  TIDE_PINNED_STAT_MAP(FORGET_SUMS)
#undef FORGET_SUMS
#define FORGET_COUNT(name) totals->name = 0;
  TIDE_PINNED_COUNTER_MAP(FORGET_COUNT)
#undef FORGET_COUNT
  tide__duration_forget_sums(&totals->host_alloc_time);
  tide__duration_forget_sums(&totals->host_free_time);
  totals_unlock(pinned);
}

void tide_pinned_reset_peaks(tide_pinned_cache* pinned) {
  if (pinned == NULL) return;
  tide_pinned_stats* const totals = &pinned->totals;
  totals_lock(pinned);
#define FORGET_PEAK(name) tide__stat_forget_peak(&totals->name);
  TIDE_PINNED_STAT_MAP(FORGET_PEAK)
#undef FORGET_PEAK
  tide__duration_forget_peak(&totals->host_alloc_time);
  tide__duration_forget_peak(&totals->host_free_time);
  totals_unlock(pinned);
}
