// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Statistics: each front counts for itself and adds to the totals now and then; whoever asks adds the rest.
#include "base/arith.h"
#include "base/error.h"
#include "cpu/cache.h"

static void stat_add(tide_stat* stat, int64_t sum, int64_t high, int64_t rises) {
  if (stat->current + high > stat->peak) stat->peak = stat->current + high;
  stat->current += sum;
  stat->allocated += rises;
  stat->freed += rises - sum;
}

void tide__cpu_tally_flush(tide_cpu* cache, tide__cpu_tally* tally) {
  tide__mutex_lock(&cache->totals_lock);
  stat_add(&cache->live, tally->blocks, tally->high_blocks, tally->rise_blocks);
  stat_add(&cache->live_bytes, tally->bytes, tally->high_bytes, tally->rise_bytes);
  tide__mutex_unlock(&cache->totals_lock);
  *tally = (tide__cpu_tally){ .flushes = tally->flushes + 1 };
}

void tide__cpu_count_release(tide_cpu* cache, uint64_t bytes) {
  tide__mutex_lock(&cache->totals_lock);
  stat_add(&cache->live, -1, 0, 0);
  stat_add(&cache->live_bytes, -(int64_t)bytes, 0, 0);
  tide__mutex_unlock(&cache->totals_lock);
}

// Adds what all threads have counted to the totals. Returns how many there are, and their cached bytes.
static uint32_t stats_gather(tide_cpu* cache, uint64_t* out_cached) {
  uint32_t threads = 0;
  uint64_t cached = 0;
  for (tide__front* at = tide__fronts_first(&cache->fronts); at != NULL; at = at->next) {
    tide__cpu_front* const front = (tide__cpu_front*)at;
    tide__front_take(at);
    tide__cpu_tally_flush(cache, &front->tally);
    cached += tide__zone_cached(&front->zone);
    tide__front_give(at);
    if (!at->is_common) threads++;
  }
  tide__mutex_lock(&cache->zone_lock);
  cached += tide__zone_cached(&cache->zone);
  tide__mutex_unlock(&cache->zone_lock);
  *out_cached = cached;
  return threads;
}

tide_status tide_cpu_get_stats(tide_cpu* cache, tide_cpu_stats* out) {
  TIDE_REQUIRE(cache != NULL && out != NULL, TIDE_ERR_ARGUMENT, "get_stats: a NULL argument");
  TIDE_REQUIRE(out->size == sizeof *out, TIDE_ERR_ARGUMENT,
               "get_stats: the size of the struct is %u, not %zu", out->size, sizeof *out);
  out->threads = stats_gather(cache, &out->cached_bytes);
  tide__mutex_lock(&cache->totals_lock);
  out->live = cache->live;
  out->live_bytes = cache->live_bytes;
  out->system_bytes = cache->system_bytes;
  tide__mutex_unlock(&cache->totals_lock);
  out->address_bytes = tide__load_relaxed(&cache->address_bytes);
#define STATS_COUNTER(name) out->name = tide__load_relaxed(&cache->counters[TIDE__CPU_##name]);
  TIDE_CPU_COUNTER_MAP(STATS_COUNTER)
#undef STATS_COUNTER
  const uint64_t requests = (uint64_t)out->live.allocated;
  out->hits = requests - tide__min(requests, out->misses + out->uncached);
  return TIDE_OK;
}

static void stat_reset_accumulated(tide_stat* stat) { stat->allocated = stat->freed = 0; }

void tide_cpu_reset_accumulated(tide_cpu* cache) {
  uint64_t cached = 0;
  if (cache == NULL) return;
  (void)stats_gather(cache, &cached);
  tide__mutex_lock(&cache->totals_lock);
  stat_reset_accumulated(&cache->live);
  stat_reset_accumulated(&cache->live_bytes);
  stat_reset_accumulated(&cache->system_bytes);
  tide__mutex_unlock(&cache->totals_lock);
  for (int i = 0; i < TIDE__CPU_COUNTERS; i++) tide__store_relaxed(&cache->counters[i], 0);
}

void tide_cpu_reset_peaks(tide_cpu* cache) {
  uint64_t cached = 0;
  if (cache == NULL) return;
  (void)stats_gather(cache, &cached);
  tide__mutex_lock(&cache->totals_lock);
  cache->live.peak = cache->live.current;
  cache->live_bytes.peak = cache->live_bytes.current;
  cache->system_bytes.peak = cache->system_bytes.current;
  tide__mutex_unlock(&cache->totals_lock);
}
