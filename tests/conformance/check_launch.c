// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Conformance: launching captured work.
#include "conformance/check.h"

#include "conformance/captures.h"

CHECK_FILE(check_launch);

CHECK(launch__repeats) {
  const tide_stream stream = stream_new(m, 0, 0);
  atomic_int done = 0;
  begin(m, stream, TIDE_CAPTURE_GLOBAL);
  for (int i = 0; i < 3; ++i) T_OK(tide_machine_call(m, 0, stream, call_count, &done));
  const tide_launch graph = end(m, stream);

  for (int i = 0; i < 100; ++i) T_OK(tide_machine_launch(m, 0, graph, stream));
  stream_finish(m, 0, stream);

  T_EQ(atomic_load(&done), 300);
}

CHECK(launch__copies_what_is_there_then) {
  const tide_stream stream = stream_new(m, 0, 0);
  uint8_t* const a = raw_new(m, 0, BYTES);
  uint8_t* const b = raw_new(m, 0, BYTES);
  begin(m, stream, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_copy(m, 0, stream, b, a, BYTES));
  const tide_launch graph = end(m, stream);

  for (uint8_t value = 1; value < 20; ++value) {
    device_fill(m, 0, a, value, BYTES);
    T_OK(tide_machine_launch(m, 0, graph, stream));
    stream_finish(m, 0, stream);
    expect_filled(m, 0, b, value, BYTES);
  }
}

CHECK(launch__stands_in_the_order_of_its_stream) {
  const tide_stream stream = stream_new(m, 0, 0);
  uint8_t* const a = raw_new(m, 0, BYTES);
  uint8_t* const b = raw_new(m, 0, BYTES);
  uint8_t* const result = pinned_new(m, BYTES);
  begin(m, stream, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_call(m, 0, stream, call_slow, NULL));
  T_OK(tide_machine_copy(m, 0, stream, b, a, BYTES));
  const tide_launch graph = end(m, stream);

  for (size_t i = 0; i < t_scaled(500); ++i) {
    T_OK(tide_machine_call(m, 0, stream, call_slow, NULL));
    T_OK(tide_machine_fill(m, 0, stream, a, (uint8_t)i, BYTES));
    T_OK(tide_machine_launch(m, 0, graph, stream));
    T_OK(tide_machine_copy(m, 0, stream, result, b, BYTES));
    stream_finish(m, 0, stream);
    if (machine_has_memory(m)) T_FILLED(result, (uint8_t)i, BYTES);
  }
}

CHECK(launch__goes_to_any_stream) {
  const tide_stream captured = stream_new(m, 0, 0);
  const tide_stream other = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  atomic_int done = 0;
  begin(m, captured, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_call(m, 0, captured, call_count, &done));
  const tide_launch graph = end(m, captured);

  T_OK(tide_machine_stream_free(m, 0, captured));
  T_OK(tide_machine_launch(m, 0, graph, other));
  T_OK(tide_machine_launch(m, 0, graph, NULL));
  T_OK(tide_machine_device_synchronize(m, 0));

  T_EQ(atomic_load(&done), 2);
}

typedef struct alone {
  atomic_int now;
  atomic_int most;
  atomic_int runs;
} alone;

static void call_enter(void* user) {
  alone* const a = user;
  const int now = atomic_fetch_add(&a->now, 1) + 1;
  if (now > atomic_load(&a->most)) atomic_store(&a->most, now);
  t_sleep_us(200);
}

static void call_leave(void* user) {
  alone* const a = user;
  atomic_fetch_sub(&a->now, 1);
  atomic_fetch_add(&a->runs, 1);
}

CHECK(launch__of_the_same_graph_run_one_after_the_other) {
  const tide_stream a = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  const tide_stream b = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  alone state = { 0, 0, 0 };
  begin(m, a, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_call(m, 0, a, call_enter, &state));
  T_OK(tide_machine_call(m, 0, a, call_leave, &state));
  const tide_launch graph = end(m, a);

  for (int i = 0; i < 50; ++i) {
    T_OK(tide_machine_launch(m, 0, graph, a));
    T_OK(tide_machine_launch(m, 0, graph, b));
  }
  T_OK(tide_machine_device_synchronize(m, 0));

  T_EQ(atomic_load(&state.most), 1);
  T_EQ(atomic_load(&state.runs), 100);
}

CHECK(launch_free__lets_queued_launches_run) {
  const tide_stream stream = stream_new(m, 0, 0);
  const tide_stream slow = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  uint8_t* const raw = raw_new(m, 0, BYTES);
  begin(m, stream, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_fill(m, 0, stream, raw, 7, BYTES));
  const tide_launch graph = end(m, stream);
  gate held;
  gate_close(&held, m, 0, slow);
  T_OK(tide_machine_fill(m, 0, slow, raw, 1, BYTES));
  stream_follow(m, stream, slow, event);

  T_OK(tide_machine_launch(m, 0, graph, stream));
  T_OK(tide_machine_launch_free(m, graph));
  gate_open(&held);
  stream_finish(m, 0, stream);

  expect_filled(m, 0, raw, 7, BYTES);
}

CHECK(launch__cannot_be_captured) {
  const tide_stream stream = stream_new(m, 0, 0);
  uint8_t* const raw = raw_new(m, 0, BYTES);
  begin(m, stream, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_fill(m, 0, stream, raw, 4, BYTES));
  const tide_launch graph = end(m, stream);

  begin(m, stream, TIDE_CAPTURE_GLOBAL);
  T_STATUS(tide_machine_launch(m, 0, graph, stream), TIDE_ERR_CAPTURE);
  T_EQ(state_of(m, stream), TIDE_CAPTURE_INVALIDATED);
  end_broken(m, stream);

  T_OK(tide_machine_launch(m, 0, graph, stream));
  stream_finish(m, 0, stream);
  expect_filled(m, 0, raw, 4, BYTES);
}
