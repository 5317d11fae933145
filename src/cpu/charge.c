// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Pages of the system, counted against max_bytes and in the statistics.
#include "cpu/charge.h"

#include "cpu/cache.h"

static void charge_count(tide_cpu_cache* cache, int64_t pages) {
  const int64_t bytes = pages * (int64_t)TIDE__PAGE_BYTES;
  tide_stat* const stat = &cache->reserved_bytes;
  tide__mutex_lock(&cache->totals_lock);
  stat->current += bytes;
  if (bytes > 0) stat->allocated += bytes;
  else stat->freed -= bytes;
  if (stat->current > stat->peak) stat->peak = stat->current;
  tide__mutex_unlock(&cache->totals_lock);
}

bool tide__cpu_charge(void* user, uint64_t pages) {
  tide_cpu_cache* const cache = user;
  const uint64_t most = tide__load_relaxed(&cache->max_bytes) >> TIDE__PAGE_SHIFT;
  uint64_t before = tide__load_relaxed(&cache->system_pages);
  do {
    if (pages > most || before > most - pages) return false;
  } while (!atomic_compare_exchange_weak_explicit(&cache->system_pages, &before, before + pages,
                                                  memory_order_acquire, memory_order_relaxed));
  charge_count(cache, (int64_t)pages);
  return true;
}

void tide__cpu_uncharge(tide_cpu_cache* cache, uint64_t pages) {
  if (pages == 0) return;
  charge_count(cache, -(int64_t)pages);  // first: the statistic never shows more than was allowed
  (void)atomic_fetch_sub_explicit(&cache->system_pages, pages, memory_order_release);
}
