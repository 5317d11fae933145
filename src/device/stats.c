// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Statistics: the totals of an allocator, to which the lanes add what they counted (core/tally.h).
#include "device/allocator.h"

// The statistics that lanes count, in the order of their tallies.
#define TALLY_MAP(X) \
  X(allocation)      \
  X(allocated_bytes) X(active) X(active_bytes) X(requested_bytes) X(inactive_split) X(inactive_split_bytes)

static void stat_add(tide_stat* stat, const tide__tally_entry* entry) {
  if (stat->current + entry->high > stat->peak) stat->peak = stat->current + entry->high;
  stat->current += entry->sum;
  stat->allocated += entry->rises;
  stat->freed += entry->rises - entry->sum;
}

void tide__totals_add(tide_device* device, tide__tally* tally) {
  tide__mutex_lock(&device->totals_lock);
  for (int kind = 0; kind < TIDE_STAT_KINDS; kind++) {
    const tide__tally_entry* entry = tally->entries[kind];
#define ADD(name) stat_add(&device->totals.name[kind], entry++);
    TALLY_MAP(ADD)
#undef ADD
  }
  tide__mutex_unlock(&device->totals_lock);
  *tally = (tide__tally){ .changes = 0 };
}

static void pool_settle(tide_device* device, tide__pool* pool) {
  tide__lane* lane = tide__lane_next(device, pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) {
    tide__mutex_lock(&lane->lock);
    tide__lane_settle_locked(device, lane);
    tide__mutex_unlock(&lane->lock);
  }
}

void tide__totals_settle(tide_device* device) {
  pool_settle(device, &device->default_pool);
  tide__pool* pool = tide__pool_next(device, 0);
  for (; pool != NULL; pool = tide__pool_next(device, pool->number)) pool_settle(device, pool);
}

void tide__totals_count(tide_device* device, size_t field_offset) {
  tide__mutex_lock(&device->totals_lock);
  (*(int64_t*)(void*)((char*)&device->totals + field_offset))++;
  tide__mutex_unlock(&device->totals_lock);
}

void tide__totals_oversize(tide_device* device, bool is_rise) {
  tide__mutex_lock(&device->totals_lock);
  tide_stat* const stat = &device->totals.oversize_allocations;
  stat->current += is_rise ? 1 : -1;
  stat->allocated += is_rise;
  stat->freed += !is_rise;
  if (stat->current > stat->peak) stat->peak = stat->current;
  tide__mutex_unlock(&device->totals_lock);
}

tide_status tide_device_get_stats(tide_device* device, tide_device_stats* out) {
  TIDE_REQUIRE(device != NULL && out != NULL, TIDE_ERR_ARGUMENT, "device_get_stats: no device or out");
  TIDE_REQUIRE(out->size == sizeof *out, TIDE_ERR_ARGUMENT, "device_get_stats: a struct of %u bytes",
               out->size);
  tide__totals_settle(device);
  tide__mutex_lock(&device->totals_lock);
  *out = device->totals;
  tide__mutex_unlock(&device->totals_lock);
  return TIDE_OK;
}

// Calls `change` for every statistic.
static void totals_each(tide_device_stats* totals, void (*change)(tide_stat* stat)) {
#define CHANGE(name) \
  for (int kind = 0; kind < TIDE_STAT_KINDS; kind++) change(&totals->name[kind]);
  TIDE_DEVICE_STAT_MAP(CHANGE)
#undef CHANGE
  change(&totals->oversize_allocations);
  change(&totals->oversize_segments);
}

static void stat_forget_sums(tide_stat* stat) { stat->allocated = stat->freed = 0; }
static void stat_forget_peak(tide_stat* stat) { stat->peak = stat->current; }

void tide_device_reset_accumulated(tide_device* device) {
  if (device == NULL) return;
  tide__totals_settle(device);
  tide__mutex_lock(&device->totals_lock);
  totals_each(&device->totals, stat_forget_sums);
#define FORGET(name) device->totals.name = 0;
  TIDE_DEVICE_COUNTER_MAP(FORGET)
#undef FORGET
  tide__mutex_unlock(&device->totals_lock);
}

void tide_device_reset_peaks(tide_device* device) {
  if (device == NULL) return;
  tide__totals_settle(device);
  tide__mutex_lock(&device->totals_lock);
  totals_each(&device->totals, stat_forget_peak);
  tide__mutex_unlock(&device->totals_lock);
}
