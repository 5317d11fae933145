// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the tests of budgets share. Handles have 2 MiB, and so do most blocks: what is reserved for a tag is
// then what is handed out in it, and idle memory.
#ifndef TIDEMARK_TESTS_DEVICE_BUDGET_H
#define TIDEMARK_TESTS_DEVICE_BUDGET_H

#include "device/park.h"
#include "tidemark/budget.h"

#define UNIT (2 * MIB)

static inline void small_handles(tide_device_cache* d) { configure(d, "tide_most_handle_mb:2"); }

static inline void budget_to(tide_device_cache* d, const char* tag, tide_budget budget) {
  T_OK(tide_device_budget_set(d, tag, &budget));
}

static inline tide_budget budget_none(void) {
  const tide_budget budget = TIDE_BUDGET_INIT;
  return budget;
}

static inline tide_budget limited(uint64_t bytes) {
  tide_budget budget = budget_none();
  budget.limit = bytes;
  return budget;
}

static inline tide_budget softly(uint64_t bytes) {
  tide_budget budget = budget_none();
  budget.soft_limit = bytes;
  return budget;
}

static inline tide_budget guaranteed(uint64_t bytes) {
  tide_budget budget = budget_none();
  budget.guarantee = bytes;
  return budget;
}

static inline tide_budget yielding(int32_t priority) {
  tide_budget budget = budget_none();
  budget.yields = true;
  budget.priority = priority;
  return budget;
}

static inline tide_budget_stats budget_stats(tide_device_cache* d, const char* tag) {
  tide_budget_stats stats = TIDE_BUDGET_STATS_INIT;
  T_OK(tide_device_budget_stats(d, tag, &stats));
  return stats;
}

static inline uint64_t reserved_under(tide_device_cache* d, const char* tag) {
  return budget_stats(d, tag).reserved_bytes;
}

static inline bool is_parked(tide_device_cache* d, const char* tag) {
  return stats_under(d, tag).parked_pool_count != 0;
}

// A request in a pool, which may fail.
static inline tide_status try_tagged(tide_device_cache* d, tide_pool pool, tide_stream stream, size_t bytes,
                                     tide_block* out) {
  region_open(d, pool);
  const tide_status status = tide_device_alloc(d, stream, bytes, out);
  region_close(d, pool);
  return status;
}

static inline void expect_refused(tide_device_cache* d, tide_pool pool, size_t bytes) {
  tide_block block = { NULL, 0 };
  T_STATUS(try_tagged(d, pool, NULL, bytes, &block), TIDE_ERR_NO_MEMORY);
}

// Idle memory in a pool: blocks that were released.
static inline void leave_idle(tide_device_cache* d, tide_pool pool, size_t bytes) {
  give(d, take_tagged(d, pool, NULL, bytes));
}

static inline void use(tide_device_cache* d, const char* tag) { T_OK(tide_device_use(d, tag, NULL)); }
static inline void done(tide_device_cache* d, const char* tag) { T_OK(tide_device_done(d, tag, NULL)); }

#endif
