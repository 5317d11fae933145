// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Events of the host and dry machines. An event keeps the point in a stream, or the capture, of its last
// record.
#include "machine/soft/event.h"

#include "base/arith.h"
#include "machine/soft/capture.h"

void tide__event_item_init(void* item) { tide__mutex_init(&((tide__event*)item)->lock, TIDE__RANK_EVENT); }
void tide__event_item_fini(void* item) { tide__mutex_fini(&((tide__event*)item)->lock); }

tide_status tide__event_find(tide__soft* soft, const char* name, tide_event handle, tide__event** out) {
  *out = tide__slots_find(&soft->events, tide__address(handle));
  TIDE_REQUIRE(*out != NULL, TIDE_ERR_HANDLE, "%s: %p is not an event of this machine", name, (void*)handle);
  return TIDE_OK;
}

static void event_set(tide__event* event, tide__point point) {
  tide__mutex_lock(&event->lock);
  event->point = point;
  event->capture_id = 0;
  tide__mutex_unlock(&event->lock);
}

tide_status tide__soft_event_new(void* self, int device, tide_event* out) {
  tide__soft* soft = self;
  tide__event* event = tide__slots_take(&soft->events);
  TIDE_REQUIRE(event != NULL, TIDE_ERR_NO_MEMORY, "event_new: no memory for its records");
  tide__store_relaxed(&event->device, device);
  event_set(event, (tide__point){ NULL, 0 });
  *out = (tide_event)tide__pointer(tide__slots_publish(&soft->events, event));
  return TIDE_OK;
}

tide_status tide__soft_event_free(void* self, tide_event handle) {
  tide__soft* soft = self;
  tide__event* const event = tide__slots_claim(&soft->events, tide__address(handle));
  TIDE_REQUIRE(event != NULL, TIDE_ERR_HANDLE, "event_free: %p is not an event of this machine",
               (void*)handle);
  tide__slots_give(&soft->events, event);
  return TIDE_OK;
}

// The last record of an event: a point, or a capture.
static tide__point event_get(tide__event* event, uint64_t* out_capture_id) {
  tide__mutex_lock(&event->lock);
  const tide__point point = event->point;
  *out_capture_id = event->capture_id;
  tide__mutex_unlock(&event->lock);
  return point;
}

tide_status tide__soft_event_record(void* self, int device, tide_event handle, tide_stream stream_handle) {
  tide__soft* soft = self;
  tide__event* event = NULL;
  tide__stream* stream = NULL;
  TIDE_TRY(tide__event_find(soft, "event_record", handle, &event));
  TIDE_TRY(tide__stream_find(soft, "event_record", device, stream_handle, &stream));
  const int owner = tide__load_relaxed(&event->device);
  TIDE_REQUIRE(owner == device, TIDE_ERR_DEVICE, "event_record: the event %p belongs to device %d, not %d",
               (void*)handle, owner, device);
  if (tide__capture_is_possible(soft)) {
    tide__mutex_lock(&soft->capture_lock);
    const bool is_capturing = stream->capture != NULL;
    const tide_status status = is_capturing ? tide__capture_record_locked(stream, "event_record", event)
                                            : tide__capture_check_use_locked(stream, "event_record");
    tide__mutex_unlock(&soft->capture_lock);
    if (is_capturing && status == TIDE_OK) tide__soft_charge(soft, TIDE_CALL_EVENT_RECORD, 0, 0);
    if (is_capturing || status != TIDE_OK) return status;
  }
  tide__point tail;
  TIDE_TRY(tide__stream_tail(stream, "event_record", &tail));
  event_set(event, tail);
  tide__soft_charge(soft, TIDE_CALL_EVENT_RECORD, 0, 0);
  return TIDE_OK;
}

static tide_status record_all_check(tide__soft* soft, int device) {
  if (!tide__capture_is_possible(soft)) return TIDE_OK;
  tide__mutex_lock(&soft->capture_lock);
  const bool is_capturing = tide__capture_has_device_locked(soft, device);
  tide__mutex_unlock(&soft->capture_lock);
  TIDE_REQUIRE(!is_capturing, TIDE_ERR_CAPTURE, "event_record_all: a stream of the device is being captured");
  return TIDE_OK;
}

tide_status tide__soft_event_record_all(void* self, int device, tide_event handle) {
  tide__soft* soft = self;
  tide__event* event = NULL;
  tide__point tail;
  TIDE_TRY(tide__event_find(soft, "event_record_all", handle, &event));
  const int owner = tide__load_relaxed(&event->device);
  TIDE_REQUIRE(owner == device, TIDE_ERR_DEVICE,
               "event_record_all: the event %p belongs to device %d, not %d", (void*)handle, owner, device);
  TIDE_TRY(record_all_check(soft, device));
  TIDE_TRY(tide__stream_tail_of_all(soft, "event_record_all", device, &tail));
  event_set(event, tail);
  tide__soft_charge(soft, TIDE_CALL_EVENT_RECORD_ALL, 0, 0);
  return TIDE_OK;
}

// The point of an event, unless it was recorded in a capture, which is refused.
static tide_status event_point(tide__soft* soft, const char* name, tide_event handle, tide__event** out_event,
                               tide__point* out) {
  TIDE_TRY(tide__event_find(soft, name, handle, out_event));
  uint64_t capture_id = 0;
  *out = event_get(*out_event, &capture_id);
  if (capture_id != 0) {
    tide__mutex_lock(&soft->capture_lock);
    const tide_status status = tide__capture_refuse_event_locked(soft, name, capture_id);
    tide__mutex_unlock(&soft->capture_lock);
    TIDE_TRY(status);
  }
  return tide__capture_guard(soft, name);
}

tide_status tide__soft_event_query(void* self, tide_event handle, bool* out_done) {
  tide__soft* soft = self;
  tide__event* event = NULL;
  tide__point point;
  TIDE_TRY(event_point(soft, "event_query", handle, &event, &point));
  tide__soft_settle(soft);
  *out_done = tide__point_is_reached(point);
  tide__soft_charge(soft, TIDE_CALL_EVENT_QUERY, 0, 0);
  return TIDE_OK;
}

tide_status tide__soft_event_synchronize(void* self, tide_event handle) {
  tide__soft* soft = self;
  tide__event* event = NULL;
  tide__point point;
  TIDE_TRY(event_point(soft, "event_synchronize", handle, &event, &point));
  TIDE_TRY(soft->backend->await(soft, "event_synchronize", point));
  return tide__soft_report_error(soft, tide__load_relaxed(&event->device));
}

// Waits in a stream for an event, if either belongs to a capture; *out_is_done is set in that case. The point
// is read under the capture lock, so a concurrent record happens entirely before or after.
static tide_status wait_captured(tide__stream* stream, tide__event* event, tide__point* out,
                                 bool* out_is_done) {
  tide__soft* soft = stream->soft;
  uint64_t capture_id = 0;
  tide__mutex_lock(&soft->capture_lock);
  *out = event_get(event, &capture_id);
  *out_is_done = stream->capture != NULL || capture_id != 0;
  const tide_status status = *out_is_done
                                 ? tide__capture_wait_locked(stream, "stream_wait", event, *out, capture_id)
                                 : tide__capture_check_use_locked(stream, "stream_wait");
  tide__mutex_unlock(&soft->capture_lock);
  return status;
}

tide_status tide__soft_stream_wait(void* self, int device, tide_stream stream_handle, tide_event handle) {
  tide__soft* soft = self;
  tide__event* event = NULL;
  tide__stream* stream = NULL;
  TIDE_TRY(tide__event_find(soft, "stream_wait", handle, &event));
  TIDE_TRY(tide__stream_find(soft, "stream_wait", device, stream_handle, &stream));
  uint64_t capture_id = 0;
  tide__point point = event_get(event, &capture_id);
  if (capture_id != 0 || tide__capture_is_possible(soft)) {
    bool is_done = false;
    TIDE_TRY(wait_captured(stream, event, &point, &is_done));
    if (is_done) return TIDE_OK;
  }
  if (tide__point_is_reached(point)) return TIDE_OK;
  const tide__op op = { .kind = TIDE__OP_WAIT, .u.wait = point };
  return tide__stream_push(stream, "stream_wait", NULL, &op, NULL);
}
