// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Writes a memory snapshot to a file in one call.
#include "base/error.h"
#include "tidemark/format.h"
#include "tidemark/report.h"

// Adds the pinned memory of a cache to a snapshot.
static tide_status pinned_add(tide_pinned_cache* pinned, const tide_snapshot_options* options,
                              tide_trace* trace) {
  tide_trace* host = NULL;
  TIDE_TRY(tide_trace_new(NULL, &host));
  tide_status status = tide_pinned_snapshot(pinned, options, 0, host);
  if (status == TIDE_OK) status = tide_trace_add_host(trace, host);
  tide_trace_free(host);
  return status;
}

// Of one pool, or with pinned memory, if they are given.
static tide_status snapshot_to(tide_device_cache* device, const tide_pool* pool, tide_pinned_cache* pinned,
                               const char* path) {
  TIDE_REQUIRE(device != NULL && path != NULL, TIDE_ERR_ARGUMENT,
               "device_snapshot_to: device or path is NULL");
  tide_snapshot_options options = TIDE_SNAPSHOT_OPTIONS_INIT;
  tide_trace* trace = NULL;
  options.describe = tide_stack_describe;
  options.pool = pool;
  TIDE_TRY(tide_trace_new(NULL, &trace));
  tide_status status = tide_device_snapshot(device, &options, trace);
  if (status == TIDE_OK && pinned != NULL) status = pinned_add(pinned, &options, trace);
  if (status == TIDE_OK) status = tide_trace_save(trace, path);
  tide_trace_free(trace);
  return status;
}

tide_status tide_device_snapshot_to(tide_device_cache* device, const char* path) {
  return snapshot_to(device, NULL, NULL, path);
}

tide_status tide_device_pool_snapshot_to(tide_device_cache* device, tide_pool pool, const char* path) {
  return snapshot_to(device, &pool, NULL, path);
}

tide_status tide_device_pinned_snapshot_to(tide_device_cache* device, tide_pinned_cache* pinned,
                                           const char* path) {
  TIDE_REQUIRE(pinned != NULL, TIDE_ERR_ARGUMENT, "device_pinned_snapshot_to: pinned is NULL");
  return snapshot_to(device, NULL, pinned, path);
}
