// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Reserving memory before a request needs it: turn by turn, so that requests get the gate between.
#include "device/policy/policy.h"

// Reserves some of what is left. The lane is found each time, because others may close the stream meanwhile.
static tide_status reserve_at_gate(tide__request* request, uint64_t* out_bytes) {
  tide_device_cache* const device = request->device;
  TIDE_TRY(tide__lane_find(device, request->pool, request->stream, &request->lane));
  request->policy = tide__policy_of(device, request->pool);
  const tide_status status = request->policy->reserve(request, out_bytes);
  if (!tide__request_falls_back(request, status)) return status;
  request->kind = TIDE__LARGE;
  return request->policy->reserve(request, out_bytes);
}

static tide_status reserve_turn(tide_device_cache* device, tide_stream stream, uint64_t bytes,
                                uint64_t* inout_done) {
  uint64_t done = 0;
  tide__request request = { .device = device,
                            .options = tide__device_options(device),
                            .pool = &device->default_pool,
                            .stream = stream,
                            .bytes = bytes,
                            .rounded = bytes - *inout_done,
                            .kind = TIDE__LARGE };
  if (tide__is_recording(device)) request.context = tide__context_now(device, TIDE_HISTORY_ALL);
  tide__gate_enter_last(device);
  const tide_status status = reserve_at_gate(&request, &done);
  tide__gate_leave(device);
  tide__history_tell(&device->history);
  *inout_done += done;
  return status;
}

static tide_status reserve_refuse(tide_status status, uint64_t bytes, uint64_t done) {
  const tide_error why = *tide_last_error();
  return TIDE_FAIL_NATIVE(status, why.native, "device_reserve: %llu of %llu bytes were reserved: %s",
                          (unsigned long long)done, (unsigned long long)bytes, why.text);
}

tide_status tide_device_reserve(tide_device_cache* device, tide_stream stream, uint64_t bytes) {
  tide_status status = TIDE_OK;
  uint64_t done = 0;
  TIDE_REQUIRE(device != NULL, TIDE_ERR_ARGUMENT, "device_reserve: no device");
  TIDE_REQUIRE(bytes < TIDE__MAX_REQUEST, TIDE_ERR_ARGUMENT, "device_reserve: %llu bytes",
               (unsigned long long)bytes);
  TIDE__REQUIRE_OWN(device, "device_reserve");
  const tide__relaxed relaxed = tide__relax_or_not(device->machine);
  while (done < bytes && status == TIDE_OK) status = reserve_turn(device, stream, bytes, &done);
  tide__relax_end(&relaxed);
  return status == TIDE_OK ? TIDE_OK : reserve_refuse(status, bytes, done);
}
