// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `park`: streams that wait for contents on their way back. A stream may be destroyed when no block of
// it is handed out. So only streams that must exist are called when an arrival begins; each other stream
// waits at its next request, when it exists. Until the arrival is over, a detour leads requests here.
#include "core/capture.h"
#include "device/park/carrier.h"
#include "device/park/park.h"

// ---------------------------------------------------------------------------------------------------
// Finding streams

static bool set_has(const tide__stream_set* set, tide_stream stream) {
  for (size_t i = 0; i < set->count; i++) {
    if (set->streams[i] == stream) return true;
  }
  return false;
}

// False if there is no room.
static bool set_add(tide__stream_set* set, tide_stream stream) {
  if (set_has(set, stream)) return true;
  if (set->count == set->capacity) return false;
  set->streams[set->count++] = stream;
  return true;
}

static tide_status set_grow(tide_device_cache* device, tide__stream_set* set) {
  void* streams = set->streams;
  const bool has_room =
      tide__heap_grow(device->heap, &streams, &set->capacity, set->count + 16, sizeof *set->streams);
  set->streams = streams;
  TIDE_REQUIRE(has_room, TIDE_ERR_NO_MEMORY, "no memory for a list of %zu streams", set->count + 16);
  return TIDE_OK;
}

static bool block_add_streams(const tide_device_cache* device, const tide__block* block, bool has_own,
                              tide__stream_set* set) {
  if (!tide__block_is_handed_out(block)) return true;
  if (has_own && !set_add(set, block->segment->lane->stream)) return false;
  for (const tide__use* use = block->uses; use != NULL; use = use->next) {
    if (use->device == device->index && !set_add(set, use->stream)) return false;
  }
  return true;
}

static bool lane_add_streams_locked(const tide_device_cache* device, const tide__lane* lane,
                                    tide__stream_set* set) {
  const bool has_own = !tide__load_relaxed(&lane->is_closed) && !tide__load_relaxed(&lane->is_external);
  TIDE_LIST_EACH(it, (tide__link*)(uintptr_t)&lane->segments) {
    const tide__block* block = TIDE_OWNER(it, tide__segment, link)->head;
    for (; block != NULL; block = block->next) {
      if (!block_add_streams(device, block, has_own, set)) return false;
    }
  }
  return true;
}

static tide_status lane_add_streams(tide_device_cache* device, tide__lane* lane, tide__stream_set* set) {
  for (;;) {
    tide__mutex_lock(&lane->lock);
    const bool has_room = lane_add_streams_locked(device, lane, set);
    tide__mutex_unlock(&lane->lock);
    if (has_room) return TIDE_OK;
    TIDE_TRY(set_grow(device, set));
  }
}

static tide_status pools_add_streams(tide_device_cache* device, tide__stream_set* set) {
  tide__pool_cursor at = { 0 };
  for (tide__pool* pool = &device->default_pool; pool != NULL; pool = tide__pool_next(device, &at)) {
    tide__lane* lane = tide__lane_next(device, pool, NULL);
    for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) {
      TIDE_TRY(lane_add_streams(device, lane, set));
    }
  }
  return TIDE_OK;
}

static tide_status set_fill(tide_device_cache* device, const tide_stream* more, size_t more_count,
                            tide__stream_set* set) {
  TIDE_TRY(set_grow(device, set));
  (void)set_add(set, NULL);
  for (size_t i = 0; i < more_count; i++) {
    if (set_add(set, more[i])) continue;
    TIDE_TRY(set_grow(device, set));
    (void)set_add(set, more[i]);
  }
  return pools_add_streams(device, set);
}

static tide_status set_check(tide_device_cache* device, const tide__stream_set* set) {
  for (size_t i = 0; i < set->count; i++) {
    bool is_captured = false;
    TIDE_TRY(tide__capture_ask(device->machine, device->index, set->streams[i], &is_captured));
    TIDE_REQUIRE(!is_captured, TIDE_ERR_CAPTURE, "a stream is being captured that uses memory");
  }
  return TIDE_OK;
}

tide_status tide__streams_find(tide_device_cache* device, const tide_stream* more, size_t more_count,
                               tide__stream_set* out) {
  *out = (tide__stream_set){ NULL, 0, 0 };
  tide_status status = set_fill(device, more, more_count, out);
  if (status == TIDE_OK) status = set_check(device, out);
  if (status != TIDE_OK) tide__streams_free(device, out);
  return status;
}

tide_status tide__streams_take(tide_device_cache* device, const tide_stream* streams, size_t count,
                               tide__stream_set* out) {
  tide_status status = TIDE_OK;
  *out = (tide__stream_set){ NULL, 0, 0 };
  for (size_t i = 0; i < count && status == TIDE_OK; i++) {
    if (!set_add(out, streams[i])) status = set_grow(device, out);
    if (status == TIDE_OK) (void)set_add(out, streams[i]);
  }
  if (status == TIDE_OK) status = set_check(device, out);
  if (status != TIDE_OK) tide__streams_free(device, out);
  return status;
}

void tide__streams_free(tide_device_cache* device, tide__stream_set* set) {
  tide__heap_release(device->heap, set->streams, set->capacity, sizeof *set->streams);
  *set = (tide__stream_set){ NULL, 0, 0 };
}

// ---------------------------------------------------------------------------------------------------
// Arrivals

static void arrival_end(tide_device_cache* device) {
  device->arrival = NULL;
  device->arrival_over = device->arrival_number;
  tide__detour(device, TIDE__HAS_ARRIVAL, false);
}

bool tide__arrival_is_over(tide_device_cache* device) {
  bool is_over = false;
  if (device->arrival == NULL) return true;
  const tide_error before = *tide_last_error();
  const tide__relaxed relaxed = tide__relax_or_not(device->machine);
  if (tide_machine_event_query(device->machine, device->arrival, &is_over) != TIDE_OK) is_over = false;
  tide__relax_end(&relaxed);
  tide__error_restore(&before);
  if (is_over) arrival_end(device);
  return is_over;
}

tide_status tide__arrival_wait(tide_device_cache* device) {
  if (device->arrival == NULL) return TIDE_OK;
  const tide__relaxed relaxed = tide__relax_or_not(device->machine);
  const tide_status status = tide_machine_event_synchronize(device->machine, device->arrival);
  tide__relax_end(&relaxed);
  if (status == TIDE_OK) arrival_end(device);
  return status;
}

tide_status tide__arrival_wait_for(tide_device_cache* device, uint64_t number) {
  if (device->arrival == NULL || number <= device->arrival_over) return TIDE_OK;
  if (number >= device->arrival_number) return tide__arrival_wait(device);
  const tide__relaxed relaxed = tide__relax_or_not(device->machine);
  const tide_status status =
      tide_machine_event_synchronize(device->machine, *tide__arrival_place(device, number));
  tide__relax_end(&relaxed);
  if (status == TIDE_OK) device->arrival_over = number;
  return status;
}

// The lanes whose streams wait now need not do so at their next request.
static void pool_note_arrival(tide_device_cache* device, tide__pool* pool, const tide__stream_set* set) {
  tide__lane* lane = tide__lane_next(device, pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) {
    const bool is_open = !tide__load_relaxed(&lane->is_closed) && !tide__load_relaxed(&lane->is_external);
    if (is_open && set_has(set, lane->stream)) lane->arrival_number = device->arrival_number;
  }
}

void tide__arrival_note(tide_device_cache* device, tide_event event) {
  if (event == NULL) return;
  device->arrival = event;
  device->arrival_number++;
}

tide_status tide__arrival_begin_for(tide_device_cache* device, const tide__stream_set* set) {
  if (device->arrival == NULL) return TIDE_OK;
  const tide_error before = *tide_last_error();
  tide_status status = TIDE_OK;
  for (size_t i = 0; i < set->count && status == TIDE_OK; i++) {
    status = tide_machine_stream_wait(device->machine, device->index, set->streams[i], device->arrival);
  }
  if (status != TIDE_OK) {
    tide__error_restore(&before);
    return tide__arrival_wait(device);
  }
  tide__pool_cursor at = { 0 };
  for (tide__pool* pool = &device->default_pool; pool != NULL; pool = tide__pool_next(device, &at)) {
    pool_note_arrival(device, pool, set);
  }
  return TIDE_OK;
}

tide_status tide__arrival_begin(tide_device_cache* device, const tide__stream_set* set) {
  TIDE_TRY(tide__arrival_begin_for(device, set));
  if (device->arrival == NULL) return TIDE_OK;
  device->arrival_all = device->arrival_number;
  tide__detour(device, TIDE__HAS_ARRIVAL, true);
  return TIDE_OK;
}

// A captured stream cannot wait for work outside of its capture, so the host waits.
static tide_status stream_await(tide_device_cache* device, tide_stream stream, uint64_t number) {
  const tide_error before = *tide_last_error();
  const bool can_wait = tide__capture_is_outside(device->machine, device->index, stream);
  if (can_wait && tide_machine_stream_wait(device->machine, device->index, stream,
                                           *tide__arrival_place(device, number)) == TIDE_OK)
    return TIDE_OK;
  tide__error_restore(&before);
  return tide__arrival_wait(device);
}

// An external stream may be another one than that which waits, under the same handle. In the default pool it
// gets no memory of parked pools.
tide_status tide__arrival_await(tide_device_cache* device, tide__pool* pool, tide_stream stream,
                                bool is_external) {
  tide__lane* lane = NULL;
  tide_status status = TIDE_OK;
  if (is_external && pool == &device->default_pool) return TIDE_OK;
  TIDE_TRY(tide__lane_find(device, pool, stream, &lane));
  (void)tide__gate_enter(device);
  const uint64_t number = tide__max(device->arrival_all, pool->arrival_number);
  const bool has_waited = !is_external && lane->arrival_number >= number;
  if (tide__arrival_is_over(device)) tide__store_relaxed(&pool->is_arriving, 0);
  else if (!has_waited) {
    status = tide__arrival_join(device, stream, number);
    if (status == TIDE_OK) lane->arrival_number = number;
  }
  tide__gate_leave(device);
  return status;
}

tide_status tide__arrival_join(tide_device_cache* device, tide_stream stream, uint64_t number) {
  return number > device->arrival_over ? stream_await(device, stream, number) : TIDE_OK;
}
