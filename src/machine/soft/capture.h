// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The rules of captures: the calls that they refuse, and their effect on operations, events and streams.
// These functions use the capture fields of a stream and call no function of stream.c. The functions of the
// table (capture_begin and so on) are in capture_calls.c.
#ifndef TIDEMARK_SRC_MACHINE_SOFT_CAPTURE_H
#define TIDEMARK_SRC_MACHINE_SOFT_CAPTURE_H

#include "machine/soft/event.h"
#include "machine/soft/graph.h"
#include "machine/soft/stream.h"

struct tide__capture {
  uint64_t id;
  tide_capture_mode mode;
  bool is_invalid;
  uint64_t thread;       // that began it
  tide__stream* origin;  // borrowed: the slot of a captured stream is not reused
  tide__graph* graph;    // holds a reference
  tide__link members;    // streams
  tide__link link;       // in soft->captures
};

// Is any capture active on this machine? Costs one load.
static inline bool tide__capture_is_possible(tide__soft* soft) {
  return tide__load_acquire(&soft->capture_count) != 0;
}

// Refuses an unsafe call, and invalidates the captures that it would have broken.
tide_status tide__capture_guard(tide__soft* soft, const char* name);
// The status for a broken rule.
tide_status tide__capture_fail(const char* name, const char* rule);
// Takes a stream that is being freed out of its capture. A capture that began on it ends without a graph.
void tide__capture_abandon(tide__stream* stream);
// Ends all captures, when the machine is freed.
void tide__captures_fini(tide__soft* soft);

// The rest is called under the capture lock.

// Makes the stream the origin of a new capture.
tide_status tide__capture_start_locked(tide__stream* stream, tide__capture* capture);
// Removes all streams from a capture and frees it. The caller gets its reference to the graph.
tide__graph* tide__capture_finish_locked(tide__soft* soft, tide__capture* capture);
tide_status tide__capture_check_valid(const tide__capture* capture, const char* name);
// Checks the use of a stream that is not captured: the legacy stream is refused while a blocking stream is
// captured.
tide_status tide__capture_check_use_locked(tide__stream* stream, const char* name);
// Adds an operation to the stream's capture; joins the capture of an event; records an event in it.
tide_status tide__capture_note_locked(tide__stream* stream, const char* name, const tide__op* op);
tide_status tide__capture_wait_locked(tide__stream* stream, const char* name, tide__event* event,
                                      tide__point point, uint64_t capture_id);
tide_status tide__capture_record_locked(tide__stream* stream, const char* name, tide__event* event);
// Refuse a call on a captured stream, event or device, and invalidate the capture.
tide_status tide__capture_refuse_stream_locked(tide__stream* stream, const char* name);
tide_status tide__capture_refuse_event_locked(tide__soft* soft, const char* name, uint64_t capture_id);
tide_status tide__capture_refuse_device_locked(tide__soft* soft, const char* name, int device);
// Is a stream of the device being captured? Harms no capture.
bool tide__capture_has_device_locked(tide__soft* soft, int device);

#endif
