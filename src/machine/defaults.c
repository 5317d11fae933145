// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Defaults of absent functions, where they are not TIDE_ERR_UNSUPPORTED: see machine_ops.h. Out parameters
// are already cleared, so most functions are empty.
#include "base/sys.h"
#include "machine/machine.h"

static void default_delay(void* self, uint64_t ns) {
  (void)self;
  tide__sys_sleep_ns(ns);
}

static tide_status default_clock(void* self, uint64_t* out_ns) {
  (void)self;
  *out_ns = tide__sys_clock_ns();
  return TIDE_OK;
}

static tide_status default_stream_info(void* self, int device, tide_stream stream, bool* out_captured,
                                       uint64_t* out_number) {
  (void)self, (void)device, (void)stream, (void)out_captured, (void)out_number;
  return TIDE_OK;
}

static tide_status default_capture_exchange(void* self, tide_capture_mode mode,
                                            tide_capture_mode* out_before) {
  (void)self, (void)mode, (void)out_before;
  return TIDE_OK;
}

static tide_status default_capture_info(void* self, int device, tide_stream stream,
                                        tide_capture_state* out_state, uint64_t* out_id) {
  (void)self, (void)device, (void)stream, (void)out_state, (void)out_id;
  return TIDE_OK;
}

static tide_status default_peer_query(void* self, int device, int peer, bool* out) {
  (void)self, (void)device, (void)peer, (void)out;
  return TIDE_OK;
}

void tide__machine_defaults(tide_machine_ops* ops) {
  if (ops->delay == NULL) ops->delay = default_delay;
  if (ops->clock == NULL) ops->clock = default_clock;
  if (ops->stream_info == NULL) ops->stream_info = default_stream_info;
  if (ops->capture_exchange == NULL) ops->capture_exchange = default_capture_exchange;
  if (ops->capture_info == NULL) ops->capture_info = default_capture_info;
  if (ops->peer_query == NULL) ops->peer_query = default_peer_query;
}
