// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `park`: the stream on which contents are copied, and its events.
#include "device/park/carrier.h"

tide_status tide__carrier_open(tide_device_cache* device) {
  if (device->carrier == NULL) {
    device->carrier = tide__heap_alloc(device->heap, 1, sizeof *device->carrier);
    TIDE_REQUIRE(device->carrier != NULL, TIDE_ERR_NO_MEMORY, "park: no memory for its records");
  }
  if (device->carrier->is_unsettled) return tide__carrier_drain(device);
  if (device->carrier->stream != NULL) return TIDE_OK;
  return tide_machine_stream_new(device->machine, device->index, TIDE_STREAM_NON_BLOCKING, 0,
                                 &device->carrier->stream);
}

static tide_status event_make(tide_device_cache* device, tide_event* event) {
  return *event != NULL ? TIDE_OK : tide_machine_event_new(device->machine, device->index, event);
}

tide_status tide__carrier_mark(tide_device_cache* device, tide_event* event) {
  TIDE_TRY(event_make(device, event));
  return tide_machine_event_record(device->machine, device->index, *event, device->carrier->stream);
}

// An event of all work lets work pass that is queued later.
static tide_status device_wait(tide_device_cache* device) {
  tide__carrier* const carrier = device->carrier;
  if (!device->lacks_record_all) {
    TIDE_TRY(event_make(device, &carrier->all));
    const tide_status status = tide_machine_event_record_all(device->machine, device->index, carrier->all);
    if (status == TIDE_OK) return tide_machine_event_synchronize(device->machine, carrier->all);
    if (status != TIDE_ERR_UNSUPPORTED) return status;
    device->lacks_record_all = true;
  }
  return tide_machine_device_synchronize(device->machine, device->index);
}

tide_status tide__carrier_quiesce(tide_device_cache* device) {
  for (uint32_t i = 0; i < device->peer_count; i++) {
    TIDE_TRY(tide_machine_device_synchronize(device->machine, (int)device->peers[i]));
  }
  return device_wait(device);
}

// A call that waits may report other work that failed before. It may then not have waited.
tide_status tide__carrier_drain(tide_device_cache* device) {
  tide_status status = TIDE_OK;
  for (int i = 0; i < 3; i++) {
    status = tide_machine_stream_synchronize(device->machine, device->index, device->carrier->stream);
    if (status == TIDE_OK) break;
  }
  device->carrier->is_unsettled = status != TIDE_OK;
  return status;
}

tide_status tide__carrier_close_ring(tide_device_cache* device) {
  tide__carrier* const carrier = device->carrier;
  if (carrier->ring == NULL) return TIDE_OK;
  TIDE_TRY(tide__carrier_drain(device));
  tide__store_free(carrier->ring);
  carrier->ring = NULL;
  return TIDE_OK;
}

static void events_free(tide_device_cache* device, const tide_event* events, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (events[i] != NULL) tide__ignore(tide_machine_event_free(device->machine, events[i]));
  }
}

static void carrier_close(tide_device_cache* device, const tide__carrier* carrier) {
  events_free(device, &carrier->all, 1);
  events_free(device, carrier->done, TIDE__CARRIER_ARRIVALS);
  events_free(device, carrier->groups, TIDE__CARRIER_EVENTS);
  events_free(device, carrier->slots, TIDE__CARRIER_SLOTS);
  if (carrier->stream == NULL) return;
  tide__ignore(tide_machine_stream_free(device->machine, device->index, carrier->stream));
}

void tide__cargo_fini(tide_device_cache* device) {
  tide__carrier* const carrier = device->carrier;
  if (carrier != NULL) {
    tide__store_free(carrier->ring);
    if (device->machine != NULL) carrier_close(device, carrier);
    tide__heap_release(device->heap, carrier, 1, sizeof *carrier);
    device->carrier = NULL;
  }
  tide__stores_end(device);
}
