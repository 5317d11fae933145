// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// External streams belong to other libraries, which destroy them without notice, even while blocks are handed
// out. No call is made on such a stream except by a request on it. In the default pool its lane is found in a
// map, by the handle of the stream and the number that the machine gives to streams: a new stream often gets
// the handle of one that is gone.
//
// Nobody says when a lane is needed no more. So a stream that is new here takes over a lane that has settled:
// nothing of it is handed out, and a mark of all work of the device, taken behind its last use, has passed.
// Then no work uses its idle memory, whoever used it. If the stream that had the lane exists, it gets another
// one at its next request. So there are as many lanes as streams that hold memory or whose work is under way.
#include <string.h>

#include "device/stream/stream.h"

// If the machine has no marks of all work, the device is waited for when there are so many lanes.
enum { LANES_MOST = 64 };

static tide__lane* external_next(tide_device_cache* device, tide__lane* lane) {
  do lane = tide__lane_next(device, &device->default_pool, lane);
  while (lane != NULL && !lane->is_unlisted);
  return lane;
}

// The lane of a stream, with one more guest. NULL if there is none, or if it is that of an older stream.
static tide__lane* external_find(tide_device_cache* device, tide_stream stream, uint64_t number) {
  tide__mutex_lock(&device->pools_lock);
  tide__lane* lane = tide__pointer(tide__hash_map_find(&device->externals, tide__address(stream)));
  if (lane != NULL && number != 0 && lane->stream_number != number) lane = NULL;
  if (lane != NULL) lane->guests++;
  tide__mutex_unlock(&device->pools_lock);
  return lane;
}

void tide__external_leave(tide_device_cache* device, tide__lane* lane) {
  tide__mutex_lock(&device->pools_lock);
  lane->guests--;
  tide__mutex_unlock(&device->pools_lock);
}

// ---------------------------------------------------------------------------------------------------
// Lanes that have settled

// Memory that is lent belongs to a block of another lane, and is noted when it returns.
static bool block_is_idle(const tide__block* block) {
  return block->state == TIDE__BLOCK_FREE || block->state == TIDE__BLOCK_UNMAPPED ||
         block->state == TIDE__BLOCK_VACANT || block->state == TIDE__BLOCK_LENT;
}

static bool lane_is_idle_locked(const tide__lane* lane) {
  TIDE_LIST_EACH(it, &lane->segments) {
    const tide__block* block = TIDE_OWNER(it, tide__segment, link)->head;
    for (; block != NULL; block = block->next) {
      if (!block_is_idle(block)) return false;
    }
  }
  return true;
}

static bool lane_has_settled_locked(const tide__lane* lane) {
  return lane_is_idle_locked(lane) && tide__stamp_has_passed(lane, lane->unmarked) &&
         tide__stamp_has_passed(lane, tide__load_relaxed(&lane->crowd_stamp));
}

static bool lane_is_idle(tide__lane* lane) {
  tide__mutex_lock(&lane->lock);
  const bool is_idle = lane_is_idle_locked(lane);
  tide__mutex_unlock(&lane->lock);
  return is_idle;
}

// Gives a lane to a stream: what the lane's stream had waited for before, this one has not.
static void lane_name_locked(tide_device_cache* device, tide__lane* lane, tide_stream stream,
                             uint64_t number) {
  const uint64_t before = tide__address(lane->stream);
  if (tide__hash_map_find(&device->externals, before) == tide__address(lane)) {
    (void)tide__hash_map_take(&device->externals, before);
  }
  lane->stream = stream;
  lane->stream_number = number;
  lane->guests = 1;
  if (lane->waited_count > 0) memset(lane->waited, 0, lane->waited_count * sizeof *lane->waited);
  (void)tide__hash_map_put(&device->externals, tide__address(stream), tide__address(lane));
}

// Gives a lane to a stream if it has settled.
static bool lane_take_over(tide_device_cache* device, tide__lane* lane, tide_stream stream, uint64_t number) {
  tide__mutex_lock(&device->pools_lock);
  tide__mutex_lock(&lane->lock);
  const bool is_free = lane->guests == 0 && lane_has_settled_locked(lane);
  if (is_free) lane_name_locked(device, lane, stream, number);
  tide__mutex_unlock(&lane->lock);
  tide__mutex_unlock(&device->pools_lock);
  return is_free;
}

// The first lane that can be taken over; NULL if there is none.
static tide__lane* lanes_take_over(tide_device_cache* device, tide_stream stream, uint64_t number,
                                   size_t* out_count) {
  const bool can_mark = tide__marks_can_be_of_all(device, stream);
  tide__lane* lane = external_next(device, NULL);
  for (*out_count = 0; lane != NULL; lane = external_next(device, lane)) {
    ++*out_count;
    if (!lane_is_idle(lane)) continue;
    if (can_mark) tide__marks_mark_external(device, lane);
    if (lane_take_over(device, lane, stream, number)) return lane;
  }
  return NULL;
}

// ---------------------------------------------------------------------------------------------------
// Finding and making

// Makes room in the map for one more stream. The map changes with the gate only.
static tide_status externals_get_room(tide_device_cache* device) {
  tide__hash_map larger;
  if (tide__hash_map_has_room(&device->externals)) return TIDE_OK;
  tide__hash_map_init(&larger, device->heap);
  TIDE_REQUIRE(tide__hash_map_reserve(&larger, 2 * device->externals.count + 4), TIDE_ERR_NO_MEMORY,
               "no memory for the records of a stream");
  tide__mutex_lock(&device->pools_lock);
  device->externals.heap = device->heap;
  tide__hash_map_grow_into(&device->externals, &larger);
  tide__mutex_unlock(&device->pools_lock);
  tide__hash_map_fini(&larger);
  return TIDE_OK;
}

static tide_status external_make(tide_device_cache* device, tide_stream stream, uint64_t number,
                                 tide__lane** out) {
  size_t count = 0;
  TIDE_TRY(externals_get_room(device));
  *out = lanes_take_over(device, stream, number, &count);
  if (*out == NULL && device->lacks_record_all && count >= LANES_MOST) {
    tide__ignore(tide__external_synchronize(device));
    *out = lanes_take_over(device, stream, number, &count);
  }
  if (*out != NULL) return TIDE_OK;
  tide__lane* const lane = tide__lane_new_external(device, stream);
  TIDE_REQUIRE(lane != NULL, TIDE_ERR_NO_MEMORY, "no memory for the records of a stream");
  tide__mutex_lock(&device->pools_lock);
  lane_name_locked(device, lane, stream, number);
  tide__mutex_unlock(&device->pools_lock);
  *out = lane;
  return TIDE_OK;
}

// With the policy `torch`, and in private pools, no memory goes from one stream to another. There a stream is
// known by its handle, as in PyTorch.
static tide_status plain_enter(tide_device_cache* device, tide__pool* pool, tide_stream stream,
                               tide__lane** out) {
  TIDE_TRY(tide__lane_enter(device, pool, stream, out));
  tide__store_relaxed(&(*out)->is_external, 1);
  return TIDE_OK;
}

tide_status tide__external_enter(tide_device_cache* device, tide__pool* pool, tide_stream stream,
                                 tide__lane** out) {
  bool is_captured = false;
  uint64_t number = 0;
  if (!device->has_tcaches || pool != &device->default_pool) return plain_enter(device, pool, stream, out);
  TIDE_TRY(tide_machine_stream_info(device->machine, device->index, stream, &is_captured, &number));
  *out = external_find(device, stream, number);
  if (*out == NULL) {
    (void)tide__gate_enter(device);
    *out = external_find(device, stream, number);  // another thread may have been faster
    const tide_status status = *out == NULL ? external_make(device, stream, number, out) : TIDE_OK;
    tide__gate_leave(device);
    TIDE_TRY(status);
  }
  tide__lane_turn(device, *out);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Waiting

tide_status tide__external_synchronize(tide_device_cache* device) {
  bool is_needed = false;
  tide__lane* lane = external_next(device, NULL);
  for (; lane != NULL && !is_needed; lane = external_next(device, lane)) {
    is_needed = tide__lane_is_unmarked(lane);
  }
  if (!is_needed) return TIDE_OK;
  for (lane = external_next(device, NULL); lane != NULL; lane = external_next(device, lane)) {
    tide__marks_begin_pass(lane);
  }
  const uint64_t begin_ns = tide__host_wait_begin(device);
  const tide_status status = tide_machine_device_synchronize(device->machine, device->index);
  tide__host_wait_end(device, begin_ns);
  for (lane = external_next(device, NULL); lane != NULL; lane = external_next(device, lane)) {
    tide__marks_end_pass(lane, status == TIDE_OK);
  }
  return status;
}
