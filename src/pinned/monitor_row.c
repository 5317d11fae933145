// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What people who watch a pinned cache see of it: see monitor.h.
#include <stdio.h>

#include "pinned/calls.h"

bool tide__pinned_row_fill(void* cache, tide_monitor_row* row) {
  tide_pinned_cache* const pinned = cache;
  tide_pinned_stats stats = TIDE_PINNED_STATS_INIT;
  if (tide_pinned_get_stats(pinned, &stats) != TIDE_OK) return false;
  row->kind = TIDE_MONITOR_PINNED;
  row->device = -1;
  (void)snprintf(row->machine, sizeof row->machine, "%s", tide_machine_name(pinned->machine));
  row->reserved_bytes = stats.reserved_bytes;
  row->active_bytes = stats.active_bytes;
  row->allocated_bytes = stats.active_bytes;
  row->num_blocks = stats.active_requests.current;
  row->num_allocs = stats.active_requests.allocated;
  row->num_alloc_retries = stats.num_alloc_retries;
  row->num_ooms = stats.num_ooms;
  row->limit_bytes = TIDE_NO_LIMIT;
  return true;
}
