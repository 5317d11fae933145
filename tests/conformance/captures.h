// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What checks and tests of captures share. Behind check.h or t.h.
#ifndef TIDEMARK_CONFORMANCE_CAPTURES_H
#define TIDEMARK_CONFORMANCE_CAPTURES_H

#include "conformance/tools.h"

#define BYTES 4096u

static inline void begin(tide_machine* m, tide_stream stream, tide_capture_mode mode) {
  T_OK(tide_machine_capture_begin(m, 0, stream, mode));
}

static inline tide_launch end(tide_machine* m, tide_stream stream) {
  tide_launch graph = NULL;
  T_OK(tide_machine_capture_end(m, 0, stream, &graph));
  T_CHECK(graph != NULL);
  return graph;
}

// Ends a capture that was broken; the stream is free again afterwards.
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
  T_OK(tide_machine_fill(m, 0, stream, raw, 0x3d, BYTES));
  stream_finish(m, 0, stream);
  expect_filled(m, 0, raw, 0x3d, BYTES);
}

// A capture of one fill on a stream, with an event recorded in it.
typedef struct broken {
  tide_stream stream;
  tide_event event;
} broken;

static inline broken broken_new(tide_machine* m) {
  const broken b = { stream_new(m, 0, 0), event_new(m, 0) };
  uint8_t* const raw = raw_new(m, 0, BYTES);
  begin(m, b.stream, TIDE_CAPTURE_RELAXED);
  T_OK(tide_machine_fill(m, 0, b.stream, raw, 1, BYTES));
  T_OK(tide_machine_event_record(m, 0, b.event, b.stream));
  return b;
}

// Skips a check on a machine without captures.
static inline void need_captures(tide_machine* m) {
  const tide_stream stream = stream_new(m, 0, 0);
  begin(m, stream, TIDE_CAPTURE_RELAXED);
  T_OK(tide_machine_launch_free(m, end(m, stream)));
  T_OK(tide_machine_stream_free(m, 0, stream));
}

#endif
