// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Streams: blocks that wait for other streams, captures, and marks of a stream's work. Uses lanes.
#ifndef TIDEMARK_SRC_DEVICE_STREAM_STREAM_H
#define TIDEMARK_SRC_DEVICE_STREAM_STREAM_H

#include "device/lane/lane.h"

// ---------------------------------------------------------------------------------------------------
// marks.c: memory that goes from one stream to another

// A stamp says when a lane used memory last. 2n + 1: at its mark n, which was taken at the release itself, so
// other streams may wait for it. 2n: not later than its mark n, which may not have been taken yet; no stream
// waits for that. 0: never.
static inline bool tide__stamp_has_passed(const tide__lane* lane, uint64_t stamp) {
  return stamp / 2 <= tide__load_acquire(&lane->marks.passed);  // pairs with marks_poll_in_turn
}
// The stamp of memory that has no mark of its own.
static inline uint64_t tide__lane_next_stamp(tide__lane* lane) {
  return (tide__load_seq(&lane->marks.made) + 1) * 2;  // pairs with mark_make_in_turn
}
// The stamp of a release of large memory that has no mark of its own. True: the handles under the memory are
// to note it. False: it counts for all handles of the lane.
static inline bool tide__lane_stamp_locked(tide__lane* lane, uint64_t* out) {
  *out = lane->unmarked = tide__lane_next_stamp(lane);
  if (lane->notes_left == 0) {
    lane->unnoted = lane->unmarked;
    return false;
  }
  lane->notes_left--;
  return true;
}
// Takes a mark on a lane's stream, which must exist. Returns its stamp, or 0 on failure. With no lock held.
uint64_t tide__mark_make(tide_device_cache* device, tide__lane* lane);
// Checks which marks of the lanes of a pool have passed, and takes late ones where they are missing: on the
// caller's own stream, on streams that are never destroyed, and of all work of the device for external
// streams. The caller has the gate. False if all marks except those of the caller's lane have passed.
bool tide__marks_poll(tide_device_cache* device, tide__lane* own);
// The same for a request that may take memory of other lanes, and need not know at once what of its own lane
// has passed: the marks of its lane are mostly left out while they are few.
bool tide__marks_poll_others(tide_device_cache* device, tide__lane* own);
// Waits until no mark is being taken on a stream that was closed.
void tide__marks_drain_closed(tide_device_cache* device);
// Takes a late mark if memory of the lane has none; its stream must exist. False if none was taken.
bool tide__marks_mark_late(tide_device_cache* device, tide__lane* lane);
// The same for an external lane, of all work of the device, and looks which have passed. May such marks be
// taken, by a request on a stream? Not in a capture, as far as the allocator can know.
void tide__marks_mark_external(tide_device_cache* device, tide__lane* lane);
bool tide__marks_can_be_of_all(tide_device_cache* device, tide_stream own);
// May work still use idle memory of an external lane?
bool tide__lane_is_unmarked(tide__lane* lane);
// Between the two, the caller waits for all work of the device, which stands for a mark that has passed.
void tide__marks_begin_pass(tide__lane* lane);
void tide__marks_end_pass(tide__lane* lane, bool is_done);
void tide__handle_note_use_locked(tide_device_cache* device, tide__handle* handle, const tide__user* use);
// May a lane use a range of a handle now, after its stream waits for marks, or only when they have passed?
// The lane and the lane of the home are locked.
typedef enum tide__readiness { TIDE__READY, TIDE__READY_AFTER_WAIT, TIDE__READY_LATER } tide__readiness;
tide__readiness tide__handle_readiness(tide_device_cache* device, const tide__handle* handle, uint64_t from,
                                       uint64_t to, const tide__lane* lane);
// Has all work passed that used a handle? A survey found it wholly idle.
bool tide__handle_is_over(tide_device_cache* device, const tide__handle* handle);
// Requests the waits that a lane needs for that; makes its stream wait for all that were requested, to use so
// many bytes; or drops them. The caller has the gate.
void tide__handle_want_locked(const tide__handle* handle, uint64_t from, uint64_t to, const tide__lane* lane);
tide_status tide__marks_wait(tide_device_cache* device, tide__lane* lane, uint64_t bytes);
void tide__marks_forget_wanted(tide_device_cache* device, const tide__lane* lane);
// May the lane's own stream wait? Not in a capture.
bool tide__marks_can_wait(tide_device_cache* device, const tide__lane* lane);

// ---------------------------------------------------------------------------------------------------
// external.c: streams that may be gone

// The lane of an external stream, which exists: one that was its own, one that another stream has left, or a
// new one. It stays the stream's until the caller leaves.
tide_status tide__external_enter(tide_device_cache* device, tide__pool* pool, tide_stream stream,
                                 tide__lane** out);
void tide__external_leave(tide_device_cache* device, tide__lane* lane);
// Waits for the device if work may still use idle memory of external streams. The gate is the caller's.
tide_status tide__external_synchronize(tide_device_cache* device);

// ---------------------------------------------------------------------------------------------------
// timeline.c: blocks that wait

void tide__timeline_init(tide_device_cache* device);
// Makes a released block wait for its uses. Never fails: an event that cannot be recorded now is recorded
// later.
void tide__timeline_add(tide_device_cache* device, tide__block* block, const tide__call_context* context);
// Frees the blocks whose work is done, unless another thread is polling; or waits for the work of all blocks,
// or of those of one pool.
tide_status tide__timeline_poll(tide_device_cache* device, const tide__call_context* context);
tide_status tide__timeline_wait(tide_device_cache* device, const tide__pool* pool,
                                const tide__call_context* context);
// Waits for the oldest event of a lane's blocks; false when there is none.
tide_status tide__timeline_wait_one(tide_device_cache* device, const tide__lane* lane,
                                    const tide__call_context* context, bool* out_waited);
// Around a wait of the host: returns the machine's time, or 0; and counts the time since.
uint64_t tide__host_wait_begin(tide_device_cache* device);
void tide__host_wait_end(tide_device_cache* device, uint64_t begin_ns);
static inline bool tide__timeline_is_empty(tide_device_cache* device) {
  return tide__waits_is_empty(&device->waits);
}

// ---------------------------------------------------------------------------------------------------
// capture.c

// The id of the capture that a stream of the device is in; 0: none.
static inline uint64_t tide__stream_capture(tide_device_cache* device, tide_stream stream) {
  return tide__capture_of(device->machine, device->index, stream);
}
// Does the allocator behave as in a capture: while a scope is open that is not a region, or by option while
// the stream is captured?
static inline bool tide__is_capturing(tide_device_cache* device, tide_stream stream) {
  if (!tide__has_captures(device)) return false;
  return !tide__device_options(device)->captures_by_stream || tide__stream_capture(device, stream) != 0;
}
// Notes how far the streams of a block that is released in a capture have come; and frees these notes.
void tide__markers_make(tide_device_cache* device, tide__block* block);
void tide__markers_free(tide_device_cache* device, tide__block* block);
// Frees those waiting blocks of the request's stream that the captured graph proves to be free.
tide_status tide__capture_reuse(tide__request* request);

#endif
