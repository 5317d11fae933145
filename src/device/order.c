// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory that goes from one stream to another while work that uses it is still queued. Each handle knows the
// lanes whose work may touch it, as bits by the number of the lane: a lane is added when a block of its
// stream over the handle is released, and taken off when another lane has waited for it. Who takes bytes of
// a handle lets its stream wait, on the device, for all other lanes with these bits, for what is queued on
// them by now. With more than 64 lanes several have one bit, and then more is waited for than need be. The
// host never waits.
#include "device/allocator.h"

// A stream that is gone cannot be waited for in another; its work may still run.
static tide_status lane_wait_for(tide_device* device, const tide__lane* lane, const tide__lane* other) {
  if (device->order_event == NULL) {
    TIDE_TRY(tide_machine_event_new(device->machine, device->index, &device->order_event));
  }
  const tide_error before = *tide_last_error();
  const tide_status status =
      tide_machine_event_record(device->machine, device->index, device->order_event, other->stream);
  if (status == TIDE_ERR_HANDLE) {
    tide__error_restore(&before);
    return tide_machine_device_synchronize(device->machine, device->index);
  }
  TIDE_TRY(status);
  return tide_machine_stream_wait(device->machine, device->index, lane->stream, device->order_event);
}

tide_status tide__order_wait(tide_device* device, const tide__lane* lane, uint64_t users) {
  tide__lane* other = tide__lane_next(device, lane->pool, NULL);
  for (; other != NULL; other = tide__lane_next(device, lane->pool, other)) {
    if (other != lane && (users & tide__lane_bit(other)) != 0) TIDE_TRY(lane_wait_for(device, lane, other));
  }
  return TIDE_OK;
}

// An invalidated capture cannot be waited for either.
static bool stream_is_captured(tide_device* device, tide_stream stream) {
  tide_capture_state state = TIDE_CAPTURE_NONE;
  uint64_t id = 0;
  const tide_error before = *tide_last_error();
  if (tide_machine_capture_info(device->machine, device->index, stream, &state, &id) != TIDE_OK) {
    tide__error_restore(&before);
  }
  return state != TIDE_CAPTURE_NONE;
}

uint64_t tide__order_captured(tide_device* device, const tide__lane* lane) {
  uint64_t captured = 0;
  tide__lane* other = tide__lane_next(device, lane->pool, NULL);
  for (; other != NULL; other = tide__lane_next(device, lane->pool, other)) {
    if (other != lane && stream_is_captured(device, other->stream)) captured |= tide__lane_bit(other);
  }
  return captured;
}
