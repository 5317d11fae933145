// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Statistics as they are asked for: gathers what lanes and threads have counted, and tells or resets the
// totals.
#include "base/sized.h"
#include "device/policy/policy.h"

static void pool_settle(tide_device_cache* device, tide__pool* pool) {
  tide__lane* lane = tide__lane_next(device, pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) {
    tide__mutex_lock(&lane->lock);
    tide__tally_settle(device, &lane->tally);
    tide__mutex_unlock(&lane->lock);
  }
}

void tide__totals_forget_peak(tide_device_cache* device) {
  tide__totals_settle(device);
  tide__mutex_lock(&device->totals_lock);
  const tide_device_stats* const totals = &device->totals;
  device->peak_large =
      tide__max(tide__totals_large(device, 0), (uint64_t)(totals->reserved_bytes[TIDE_STAT_LARGE].current +
                                                          totals->parked_bytes[TIDE_STAT_LARGE].current));
  tide__mutex_unlock(&device->totals_lock);
}

void tide__totals_settle(tide_device_cache* device) {
  if (device->policy->settle != NULL) device->policy->settle(device);
  pool_settle(device, &device->default_pool);
  tide__pool_cursor at = { 0 };
  tide__pool* pool = tide__pool_next(device, &at);
  for (; pool != NULL; pool = tide__pool_next(device, &at)) pool_settle(device, pool);
}

tide_status tide_device_get_stats(tide_device_cache* device, tide_device_stats* out) {
  TIDE_REQUIRE(device != NULL && out != NULL, TIDE_ERR_ARGUMENT, "device_get_stats: no device or out");
  TIDE__REQUIRE_OWN(device, "device_get_stats");
  tide__totals_settle(device);
  tide__mutex_lock(&device->totals_lock);
  const tide_status status = tide__sized_write("device_get_stats", &device->totals, out, sizeof *out);
  tide__mutex_unlock(&device->totals_lock);
  return status;
}

// Calls `change` for every statistic.
static void totals_each(tide_device_stats* totals, void (*change)(tide_stat* stat)) {
#define CHANGE(name) \
  for (int kind = 0; kind < TIDE_STAT_KINDS; kind++) change(&totals->name[kind]);
  TIDE_DEVICE_STAT_MAP(CHANGE)
  CHANGE(parked_bytes)
#undef CHANGE
  change(&totals->oversize_allocations);
  change(&totals->oversize_segments);
}

void tide_device_reset_accumulated(tide_device_cache* device) {
  if (device == NULL) return;
  tide__totals_settle(device);
  tide__mutex_lock(&device->totals_lock);
  totals_each(&device->totals, tide__stat_forget_sums);
  device->totals_at_reset = device->totals;
#define FORGET(name) device->totals.name = 0;
  TIDE_DEVICE_COUNTER_MAP(FORGET)
#undef FORGET
  device->totals.stitch_ns = device->totals.num_hurries = 0;
  tide__mutex_unlock(&device->totals_lock);
}

void tide_device_reset_peaks(tide_device_cache* device) {
  if (device == NULL) return;
  tide__totals_settle(device);
  tide__mutex_lock(&device->totals_lock);
  totals_each(&device->totals, tide__stat_forget_peak);
  for (tide__tag* tag = tide__tags_first(device); tag != NULL; tag = tag->next) tag->held_most = tag->held;
  tide__mutex_unlock(&device->totals_lock);
}
