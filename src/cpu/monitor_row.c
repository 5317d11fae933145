// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What people who watch a CPU cache see of it: see monitor.h.
#include "cpu/cache.h"

bool tide__cpu_row_fill(void* cache, tide_monitor_row* row) {
  tide_cpu_cache* const cpu = cache;
  tide_cpu_stats stats = TIDE_CPU_STATS_INIT;
  if (tide_cpu_get_stats(cpu, &stats) != TIDE_OK) return false;
  row->kind = TIDE_MONITOR_CPU;
  row->device = -1;
  row->reserved_bytes = stats.reserved_bytes;
  row->active_bytes = stats.active_bytes;
  row->allocated_bytes = stats.active_bytes;
  row->num_blocks = stats.active.current;
  row->num_allocs = stats.active.allocated;
  row->num_alloc_retries = stats.num_alloc_retries;
  row->num_ooms = stats.num_ooms;
  row->limit_bytes = tide__load_relaxed(&cpu->max_bytes);
  return true;
}
