// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Helpers for checks and tests of captures. Include it after check.h or t.h.
#ifndef TIDEMARK_CONFORMANCE_CAPTURES_H
#define TIDEMARK_CONFORMANCE_CAPTURES_H

#include "conformance/streams.h"

static inline void begin(tide_machine* m, tide_stream stream, tide_capture_mode mode) {
  T_OK(tide_machine_capture_begin(m, 0, stream, mode));
}

static inline tide_launch end(tide_machine* m, tide_stream stream) {
  tide_launch graph = NULL;
  T_OK(tide_machine_capture_end(m, 0, stream, &graph));
  T_CHECK(graph != NULL);
  return graph;
}

static inline void launch(tide_machine* m, tide_launch graph, tide_stream stream) {
  T_OK(tide_machine_launch(m, 0, graph, stream));
}

// Ends a capture that was invalidated.
static inline void end_broken(tide_machine* m, tide_stream stream) {
  tide_launch graph = (tide_launch)(uintptr_t)1;
  T_STATUS(tide_machine_capture_end(m, 0, stream, &graph), TIDE_ERR_CAPTURE);
  T_PTR_EQ(graph, NULL);
  T_STR_HAS(tide_last_error()->text, "capture_end");
}

static inline tide_capture_state state_of(tide_machine* m, tide_stream stream) {
  tide_capture_state state = TIDE_CAPTURE_NONE;
  uint64_t id = 0;
  T_OK(tide_machine_capture_info(m, 0, stream, &state, &id));
  T_EQ(state == TIDE_CAPTURE_ACTIVE, id != 0);
  return state;
}

static inline uint64_t id_of(tide_machine* m, tide_stream stream) {
  tide_capture_state state = TIDE_CAPTURE_NONE;
  uint64_t id = 0;
  T_OK(tide_machine_capture_info(m, 0, stream, &state, &id));
  return id;
}

static inline void expect_usable(tide_machine* m, tide_stream stream) {
  uint8_t* const raw = raw_new(m, 0, BYTES);
  T_EQ(state_of(m, stream), TIDE_CAPTURE_NONE);
  fill(m, stream, raw, 0x3d);
  finish_filled(m, stream, raw, 0x3d);
}

// Ends a capture after a refused call. A machine may have invalidated it or not; the stream is usable again.
static inline tide_status end_any(tide_machine* m, tide_stream stream) {
  tide_launch graph = NULL;
  const tide_status ended = tide_machine_capture_end(m, 0, stream, &graph);
  T_CHECK(ended == TIDE_OK || ended == TIDE_ERR_CAPTURE);
  expect_usable(m, stream);
  return ended;
}

// Begins a capture on p.a, fills the first buffer in it, and lets p.b join.
static inline pair joined_new(tide_machine* m) {
  const pair p = pair_new(m, 0);
  begin(m, p.a, TIDE_CAPTURE_GLOBAL);
  fill(m, p.a, p.raw, 1);
  stream_follow(m, p.b, p.a, p.event);
  return p;
}

// A capture in mode RELAXED of one fill on p.a, with p.event recorded in it.
static inline pair recorded_new(tide_machine* m) {
  const pair p = pair_new(m, 0);
  begin(m, p.a, TIDE_CAPTURE_RELAXED);
  fill(m, p.a, p.raw, 1);
  T_OK(tide_machine_event_record(m, 0, p.event, p.a));
  return p;
}

// Skips a check on a machine without captures.
static inline void need_captures(tide_machine* m) {
  const tide_stream stream = stream_new(m, 0, 0);
  begin(m, stream, TIDE_CAPTURE_RELAXED);
  T_OK(tide_machine_launch_free(m, end(m, stream)));
  T_OK(tide_machine_stream_free(m, 0, stream));
}

#endif
