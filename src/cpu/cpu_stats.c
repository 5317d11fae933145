// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Statistics. Calls that a magazine serves are not counted one by one: live objects are those that came from
// slabs, less those that lie in magazines. Each thread adds its tally to the totals now and then, and a
// reader of the statistics adds the rest.
#include "cpu/cache.h"

#include <stddef.h>
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/sized.h"

static int64_t tcache_idle_objects(const tide__cpu_tcache* tcache) {
  int64_t objects = 0;
  for (uint32_t i = 0; i < TIDE__SMALL_CLASSES; i++) objects += tide__cpu_magazine_count(tcache, i);
  return objects;
}

static void stat_flush(tide_stat* stat, int64_t now, int64_t peak, int64_t flushed) {
  stat->peak = tide__signed_max(stat->peak, stat->current + peak - flushed);
  stat->current += now - flushed;
}

static void flush_takes(tide_cpu_cache* cache, tide__cpu_tcache* tcache) TIDE_REQUIRES(&cache->totals_lock) {
  for (int i = 0; i < TIDE__SMALL_CLASSES; i++) {
    tide__cpu_magazine* const magazine = &tcache->magazines[i];
    const uint64_t takes = TIDE__TAKES_PER_FLUSH - magazine->takes_left;
    cache->active.allocated += (int64_t)takes;
    cache->active_bytes.allocated += (int64_t)(takes * magazine->object_bytes);
    magazine->takes_left = TIDE__TAKES_PER_FLUSH;
    tcache->tally.flushed_takes += takes;
  }
  cache->active.allocated += (int64_t)tcache->tally.large_takes;
  cache->active_bytes.allocated += (int64_t)tcache->tally.large_bytes;
  tcache->tally.large_takes = tcache->tally.large_bytes = 0;
}

// The peak of live bytes is the current value, or the peak of blocks of pages alone. It may be too low, since
// that leaves out small blocks, but never too high.
void tide__cpu_flush_tally(tide_cpu_cache* cache, tide__cpu_tcache* tcache) {
  tide__cpu_tally* const tally = &tcache->tally;
  const int64_t idle_bytes = (int64_t)tide__cpu_magazine_bytes(tcache);
  const int64_t bytes = tally->bytes - idle_bytes;
  const int64_t peak_bytes = tide__signed_max(tally->peak_bytes, bytes);
  const int64_t blocks = tally->blocks - tcache_idle_objects(tcache);
  tide__mutex_lock(&cache->totals_lock);
  stat_flush(&cache->active_bytes, bytes, peak_bytes, tally->flushed_bytes);
  stat_flush(&cache->active, blocks, blocks, tally->flushed_blocks);
  flush_takes(cache, tcache);
  tide__mutex_unlock(&cache->totals_lock);
  tally->flushed_bytes = bytes;
  tally->peak_bytes = tally->page_bytes;
  tally->flushed_blocks = blocks;
  tally->changes = tally->clock_at = 0;
  tally->flushes++;
}

void tide__cpu_count_release(tide_cpu_cache* cache, uint64_t bytes) {
  tide__mutex_lock(&cache->totals_lock);
  cache->active.current--;
  cache->active_bytes.current -= (int64_t)bytes;
  tide__mutex_unlock(&cache->totals_lock);
}

// Adds the tallies of all threads to the totals. Returns the number of threads.
static uint32_t stats_gather(tide_cpu_cache* cache, uint64_t* out_cached) {
  uint32_t threads = 0;
  uint64_t cached = 0;
  for (tide__zone* zone = NULL; (zone = tide__zones_next(cache, zone)) != NULL;) {
    tide__cpu_tcache* const tcache = zone->tcache;
    tide__zone_lock(zone);
    if (tcache != NULL) tide__cpu_flush_tally(cache, tcache);
    cached += tide__zone_cached(zone) + (tcache != NULL ? tide__cpu_magazine_bytes(tcache) : 0);
    tide__zone_unlock(zone);
    if (tcache != NULL && !tcache->base.is_common) threads++;
  }
  *out_cached = cached + tide__slabs_cached(cache);
  return threads;
}

// What was freed is what was there at the last reset or allocated since, less what is there now.
static tide_stat stat_with_freed(const tide_stat* stat, int64_t before) {
  tide_stat whole = *stat;
  whole.freed = before + stat->allocated - stat->current;
  return whole;
}

static void stats_read(tide_cpu_cache* cache, tide_cpu_stats* out) {
  out->threads = stats_gather(cache, &out->cached_bytes);
  tide__mutex_lock(&cache->totals_lock);
  out->active = stat_with_freed(&cache->active, cache->active_before);
  out->active_bytes = stat_with_freed(&cache->active_bytes, cache->active_bytes_before);
  out->reserved_bytes = cache->reserved_bytes;
  tide__mutex_unlock(&cache->totals_lock);
  out->address_bytes = tide__load_relaxed(&cache->address_bytes);
#define STATS_COUNTER(name) out->name = (int64_t)tide__load_relaxed(&cache->counters[TIDE__CPU_##name]);
  TIDE_CPU_COUNTER_MAP(STATS_COUNTER)
#undef STATS_COUNTER
  out->num_hits = tide__signed_max(out->active.allocated - out->num_misses - out->num_uncached, 0);
}

tide_status tide_cpu_get_stats(tide_cpu_cache* cache, tide_cpu_stats* out) {
  tide_cpu_stats all = TIDE_CPU_STATS_INIT;
  TIDE_REQUIRE(cache != NULL && out != NULL, TIDE_ERR_ARGUMENT, "get_stats: a NULL argument");
  stats_read(cache, &all);
  return tide__sized_write("cpu_get_stats", &all, out, sizeof all);
}

void tide_cpu_reset_accumulated(tide_cpu_cache* cache) {
  uint64_t cached = 0;
  if (cache == NULL) return;
  (void)stats_gather(cache, &cached);
  tide__mutex_lock(&cache->totals_lock);
  cache->active_before = cache->active.current;
  cache->active_bytes_before = cache->active_bytes.current;
  cache->active.allocated = cache->active_bytes.allocated = 0;
  cache->reserved_bytes.allocated = cache->reserved_bytes.freed = 0;
  tide__mutex_unlock(&cache->totals_lock);
  for (int i = 0; i < TIDE__CPU_COUNTERS; i++) tide__store_relaxed(&cache->counters[i], 0);
}

void tide_cpu_reset_peaks(tide_cpu_cache* cache) {
  uint64_t cached = 0;
  if (cache == NULL) return;
  (void)stats_gather(cache, &cached);
  tide__mutex_lock(&cache->totals_lock);
  cache->active.peak = cache->active.current;
  cache->active_bytes.peak = cache->active_bytes.current;
  cache->reserved_bytes.peak = cache->reserved_bytes.current;
  tide__mutex_unlock(&cache->totals_lock);
}
