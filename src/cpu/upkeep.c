// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The thread that looks at the clock for a cache, so that idle memory goes back while the program rests.
#include "cpu/upkeep.h"

#include "base/arith.h"
#include "base/error.h"
#include "base/sys.h"
#include "cpu/limits.h"

#define HELPER_MAX_NS ((uint64_t)1000000000)

static void* helper_run(void* argument) {
  tide_cpu_cache* const cache = argument;
  const uint64_t tick_ns = tide__max(cache->options.idle_ns / TIDE__TICKS_PER_IDLE, 1000000);
  while (tide__load_acquire(&cache->helper_stop) == 0) {  // pairs with tide__cpu_stop_helper
    tide__sys_futex_wait_for(&cache->helper_stop, 0, tide__min(tick_ns, HELPER_MAX_NS));
    tide__cpu_look(cache);
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
