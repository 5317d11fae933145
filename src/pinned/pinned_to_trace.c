// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory snapshots of the cache of pinned memory (core/snapshot.h), under a device number of the caller's.
#include "core/snapshot.h"
#include "pinned/pinned_cache.h"

enum { TRACE_DEVICES = 256 };

static tide_status visit_all(void* owner, const tide_device_visitor* visitor) {
  return tide_pinned_visit(owner, visitor);
}

tide_status tide_pinned_snapshot(tide_pinned_cache* pinned, const tide_snapshot_options* options, int device,
                                 tide_trace* trace) {
  TIDE_REQUIRE(pinned != NULL && trace != NULL, TIDE_ERR_ARGUMENT, "pinned_snapshot: no cache or trace");
  TIDE_REQUIRE(device >= 0 && device < TRACE_DEVICES, TIDE_ERR_ARGUMENT,
               "pinned_snapshot: no device %d is told", device);
  tide__snapshot_source source = { .call = "pinned_snapshot",
                                   .history = &pinned->history,
                                   .heap = pinned->heap,
                                   .device = (uint8_t)device,
                                   .owner = pinned,
                                   .visit = visit_all };
  tide__mutex_lock(&pinned->pools_lock);
  source.last_pool = pinned->pools.last_number;
  tide__mutex_unlock(&pinned->pools_lock);
  return tide__snapshot_take(&source, options, trace);
}
