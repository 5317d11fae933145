// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What people who watch a device cache see of it: see monitor.h.
#include <stdio.h>

#include "device/policy/policy.h"

bool tide__device_row_fill(void* cache, tide_monitor_row* row) {
  tide_device_cache* const device = cache;
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  if (tide_device_get_stats(device, &stats) != TIDE_OK) return false;
  row->kind = TIDE_MONITOR_DEVICE;
  row->device = device->index;
  (void)snprintf(row->policy, sizeof row->policy, "%s", tide_device_name(device));
  (void)snprintf(row->machine, sizeof row->machine, "%s", tide_machine_name(device->machine));
  row->reserved_bytes = stats.reserved_bytes[TIDE_STAT_ALL];
  row->active_bytes = stats.active_bytes[TIDE_STAT_ALL];
  row->allocated_bytes = stats.allocated_bytes[TIDE_STAT_ALL];
  row->requested_bytes = stats.requested_bytes[TIDE_STAT_ALL];
  row->num_blocks = stats.allocation[TIDE_STAT_ALL].current;
  row->num_allocs = stats.allocation[TIDE_STAT_ALL].allocated;
  row->num_alloc_retries = stats.num_alloc_retries;
  row->num_ooms = stats.num_ooms;
  row->num_stream_waits = stats.num_stream_waits;
  row->limit_bytes = tide_device_limit(device);
  row->total_bytes = device->total_bytes;
  return true;
}
