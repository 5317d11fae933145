// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Limits, age, recovery when memory runs out, and the helper thread.
//
// Each zone has an allowance, a part of max_cached_bytes. A release within it needs no shared counter. A zone
// that exceeds its allowance takes more from what no zone has. If nothing is left, the unused allowances of
// all zones are collected, at most once a millisecond. If that does not help, the zone gives memory back.
//
// Time is counted in ticks, eight to idle_ns. Calls for pages and the helper read the clock. Idle blocks are
// stamped with the tick in which they became idle. A thread gives old memory back about once in a thousand
// calls.
#include "base/arith.h"
#include "base/error.h"
#include "base/sys.h"
#include "cpu/cache.h"

#define LIMITS_REBALANCE_NS ((uint64_t)1000000)

// ---------------------------------------------------------------------------------------------------
// All zones of a cache

// Empties the magazines of a zone's thread; the zone is locked.
static void zone_flush_magazines(tide__zone* zone) {
  if (zone->tcache == NULL) return;
  for (uint32_t i = 0; i < TIDE__SMALL_CLASSES; i++) tide__slabs_flush(zone->cache, zone->tcache, i, 0);
}

static uint64_t zone_read_cached(tide__zone* zone) {
  tide__zone_lock(zone);
  tide__zone_drain(zone);
  const uint64_t magazines = zone->tcache != NULL ? tide__cpu_magazine_bytes(zone->tcache) : 0;
  const uint64_t cached = tide__zone_cached(zone) + magazines;
  tide__zone_unlock(zone);
  return cached;
}

// ---------------------------------------------------------------------------------------------------
// Allowances

static uint64_t limits_grant(tide_cpu_cache* cache, uint64_t wanted) {
  const uint64_t some = tide__max(wanted, tide__load_relaxed(&cache->max_cached_bytes) / 16);
  uint64_t left = tide__load_relaxed(&cache->allowance_left);
  uint64_t granted = 0;
  do {
    granted = tide__min(left, some);
  } while (granted > 0 &&
           !atomic_compare_exchange_weak_explicit(&cache->allowance_left, &left, left - granted,
                                                  memory_order_relaxed, memory_order_relaxed));
  return granted;
}

// Takes back the unused allowances of all zones.
static void limits_rebalance(tide_cpu_cache* cache) {
  const uint64_t now = tide__sys_clock_ns();
  uint64_t last = tide__load_relaxed(&cache->last_rebalance_ns);
  if (now - last < LIMITS_REBALANCE_NS) return;
  if (!atomic_compare_exchange_strong(&cache->last_rebalance_ns, &last, now)) return;
  for (tide__zone* zone = NULL; (zone = tide__zones_next(cache, zone)) != NULL;) {
    tide__zone_lock(zone);
    const uint64_t unused = zone->allowance - tide__min(zone->allowance, tide__zone_cached(zone));
    zone->allowance -= unused;
    tide__zone_unlock(zone);
    (void)tide__add_relaxed(&cache->allowance_left, unused);
  }
}

// Raises the allowance of a zone if it needs that. Returns whether the zone is within it.
static bool limits_allow(tide_cpu_cache* cache, tide__zone* zone, uint64_t* out_allowance) {
  tide__zone_lock(zone);
  tide__zone_drain(zone);
  const uint64_t cached = tide__zone_cached(zone);
  if (cached > zone->allowance) zone->allowance += limits_grant(cache, cached - zone->allowance);
  *out_allowance = zone->allowance;
  tide__zone_unlock(zone);
  return cached <= *out_allowance;
}

static void limits_enforce(tide_cpu_cache* cache, tide__zone* zone) {
  uint64_t allowance = 0;
  if (limits_allow(cache, zone, &allowance)) return;
  limits_rebalance(cache);
  if (limits_allow(cache, zone, &allowance)) return;
  tide__zone_trim(zone, allowance - allowance / 8, 0);  // with some room for the next releases
}

// The release of a small block may end its slab, whose pages then go to the common zone.
void tide__cpu_enforce(tide_cpu_cache* cache, tide__zone* zone) {
  if (tide__load_relaxed(&cache->max_cached_bytes) == TIDE_NO_LIMIT) return;
  limits_enforce(cache, zone);
  if (zone != &cache->zone) limits_enforce(cache, &cache->zone);
}

// All zones begin with an allowance of 0.
static void limits_set_cached(tide_cpu_cache* cache, uint64_t max_cached_bytes) {
  const bool has_limit = max_cached_bytes != TIDE_NO_LIMIT;
  tide__store_relaxed(&cache->allowance_left, 0);
  tide__store_relaxed(&cache->max_cached_bytes, max_cached_bytes);
  for (tide__zone* zone = NULL; (zone = tide__zones_next(cache, zone)) != NULL;) {
    tide__zone_lock(zone);
    zone->allowance = has_limit ? 0 : UINT64_MAX;
    if (zone->tcache != NULL) tide__cpu_magazines_open(zone->tcache, !has_limit);
    tide__zone_unlock(zone);
  }
  tide__store_relaxed(&cache->allowance_left, has_limit ? max_cached_bytes : 0);
  for (tide__zone* zone = NULL; (zone = tide__zones_next(cache, zone)) != NULL;)
    tide__cpu_enforce(cache, zone);
}

tide_status tide_cpu_set_limits(tide_cpu_cache* cache, uint64_t max_cached_bytes, uint64_t max_bytes) {
  TIDE_REQUIRE(cache != NULL, TIDE_ERR_ARGUMENT, "set_limits: the cache is NULL");
  tide__store_relaxed(&cache->max_bytes, max_bytes);
  limits_set_cached(cache, max_cached_bytes);
  const uint64_t system_bytes = tide__load_relaxed(&cache->system_pages) << TIDE__PAGE_SHIFT;
  if (system_bytes > max_bytes) tide__cpu_trim(cache, 0);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Giving back

// Objects that a thread has taken from its magazines so far.
static uint64_t sweep_takes(const tide__cpu_tcache* tcache) {
  uint64_t takes = tcache->tally.flushed_takes;
  for (uint32_t i = 0; i < TIDE__SMALL_CLASSES; i++) {
    takes += TIDE__TAKES_PER_FLUSH - tcache->magazines[i].takes_left;
  }
  return takes;
}

// Empties the magazines of a thread that took nothing from them since the last sweep.
static void sweep_magazines(tide__zone* zone) {
  tide__cpu_tcache* const tcache = zone->tcache;
  if (tcache == NULL) return;
  tide__zone_lock(zone);
  if (sweep_takes(tcache) == tcache->takes_seen) zone_flush_magazines(zone);
  tcache->takes_seen = sweep_takes(tcache);
  tide__zone_unlock(zone);
}

void tide__cpu_sweep(tide_cpu_cache* cache) {
  for (tide__zone* zone = NULL; (zone = tide__zones_next(cache, zone)) != NULL;) {
    sweep_magazines(zone);
    if (zone == &cache->zone) tide__slabs_trim(cache);
    tide__zone_trim(zone, 0, TIDE__TICKS_PER_IDLE);
    tide__cpu_enforce(cache, zone);
  }
}

static void limits_flush_all(tide_cpu_cache* cache) {
  for (tide__zone* zone = NULL; (zone = tide__zones_next(cache, zone)) != NULL;) {
    tide__zone_lock(zone);
    zone_flush_magazines(zone);
    tide__zone_unlock(zone);
  }
  tide__slabs_trim(cache);
}

static uint64_t limits_cached(tide_cpu_cache* cache) {
  uint64_t cached = 0;
  for (tide__zone* zone = NULL; (zone = tide__zones_next(cache, zone)) != NULL;)
    cached += zone_read_cached(zone);
  return cached;
}

// The oldest memory goes first, from all zones; magazines are emptied last.
void tide__cpu_trim(tide_cpu_cache* cache, uint64_t keep_bytes) {
  tide__slabs_trim(cache);
  for (uint32_t age = keep_bytes > 0 ? TIDE__TICKS_PER_IDLE : 0;; age--) {
    if (age == 0 && limits_cached(cache) > keep_bytes) limits_flush_all(cache);
    uint64_t total = limits_cached(cache);
    for (tide__zone* zone = NULL; total > keep_bytes && (zone = tide__zones_next(cache, zone)) != NULL;) {
      const uint64_t cached = zone_read_cached(zone);
      const uint64_t excess = total - keep_bytes;
      tide__zone_trim(zone, cached > excess ? cached - excess : 0, age);
      total -= cached - tide__min(cached, zone_read_cached(zone));
    }
    if (age == 0 || total <= keep_bytes) return;
  }
}

// Returns the current tick; its lower bits become the stamp of the cache.
static uint64_t limits_tick(tide_cpu_cache* cache) {
  const uint64_t tick = tide__sys_coarse_clock_ns() / cache->tick_ns;
  tide__store_relaxed(&cache->stamp, (uint32_t)tick & TIDE__STAMP_MASK);
  return tick;
}

uint32_t tide__cpu_read_clock(tide_cpu_cache* cache) {
  return cache->tick_ns != 0 ? (uint32_t)limits_tick(cache) & TIDE__STAMP_MASK : 0;
}

void tide__cpu_sweep_if_due(tide_cpu_cache* cache) {
  if (cache->tick_ns == 0) return;
  const uint64_t tick = limits_tick(cache);
  uint64_t last = tide__load_relaxed(&cache->last_sweep);
  if (tick - last < TIDE__TICKS_PER_IDLE / 2) return;
  if (atomic_compare_exchange_strong(&cache->last_sweep, &last, tick)) tide__cpu_sweep(cache);
}

// ---------------------------------------------------------------------------------------------------
// Recovery when memory runs out

// on_pressure is called while it returns true, but at most 64 times.
enum { RECOVER_THREAD, RECOVER_CACHE, RECOVER_PRESSURE, RECOVER_OTHERS = RECOVER_PRESSURE + 64 };

// Empties the other cache with this number, counted from the oldest; false if there is none.
static bool recover_other(const tide_cpu_cache* cache, uint32_t number) {
  tide_cpu_cache* other = tide__caches_hold_next(NULL);
  while (other != NULL && (other == cache || number-- > 0)) other = tide__caches_hold_next(other);
  if (other == NULL) return false;
  tide__cpu_trim(other, 0);
  tide__cpu_drop(other);
  return true;
}

static void recover_thread(tide_cpu_cache* cache) {
  tide__cpu_tcache* const tcache = tide__thread_caches_enter(&cache->tcaches);
  tide__thread_caches_leave(tcache);
  tide__zone_trim(&tcache->zone, 0, 0);
}

bool tide__cpu_recover(tide_cpu_cache* cache, uint64_t bytes, uint32_t* step) {
  const uint32_t now = (*step)++;
  const tide_cpu_options* const options = &cache->options;
  tide__cpu_count(cache, TIDE__CPU_num_alloc_retries, now == 0 ? 1 : 0);
  if (now == RECOVER_THREAD) recover_thread(cache);
  if (now == RECOVER_CACHE) tide__cpu_trim(cache, 0);
  if (now < RECOVER_PRESSURE) return true;
  if (now < RECOVER_OTHERS) {
    if (options->on_pressure != NULL && options->on_pressure(options->user, bytes)) return true;
    *step = RECOVER_OTHERS + 1;
  }
  return recover_other(cache, *step - 1 - RECOVER_OTHERS);
}

// ---------------------------------------------------------------------------------------------------
// The helper thread

#define HELPER_MAX_NS ((uint64_t)1000000000)

static void* helper_run(void* argument) {
  tide_cpu_cache* const cache = argument;
  const uint64_t tick_ns = tide__max(cache->options.idle_ns / TIDE__TICKS_PER_IDLE, 1000000);
  while (tide__load_acquire(&cache->helper_stop) == 0) {  // pairs with tide__cpu_stop_helper
    tide__sys_futex_wait_for(&cache->helper_stop, 0, tide__min(tick_ns, HELPER_MAX_NS));
    tide__cpu_sweep_if_due(cache);
  }
  return NULL;
}

void tide__cpu_stop_helper(tide_cpu_cache* cache) {
  if (!cache->has_helper) return;
  tide__store_release(&cache->helper_stop, 1);  // pairs with helper_run
  tide__sys_futex_wake(&cache->helper_stop);
  (void)pthread_join(cache->helper, NULL);
  cache->has_helper = false;
}

tide_status tide__cpu_start_helper(tide_cpu_cache* cache) {
  if (!cache->options.has_helper || cache->options.idle_ns == 0) return TIDE_OK;
  tide__store_relaxed(&cache->helper_stop, 0);
  const int error = tide__sys_thread_start(&cache->helper, helper_run, cache);
  if (error != 0) return TIDE_FAIL_NATIVE(TIDE_ERR_NO_MEMORY, error, "cpu_new: no thread for the helper");
  cache->has_helper = true;
  return TIDE_OK;
}
