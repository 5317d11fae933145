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

  for (int i = 0; i < 100; ++i) launch(m, graph, stream);
  stream_finish(m, 0, stream);

  T_EQ(atomic_load(&done), 300);
}

CHECK(launch__stands_in_the_order_of_its_stream) {
  const pair p = pair_new(m, 0);
  uint8_t* const result = pinned_new(m, BYTES);
  begin(m, p.a, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_call(m, 0, p.a, call_slow, NULL));
  T_OK(tide_machine_copy(m, 0, p.a, p.raw + BYTES, p.raw, BYTES));
  const tide_launch graph = end(m, p.a);

  for (size_t i = 0; i < t_scaled(500); ++i) {
    T_OK(tide_machine_call(m, 0, p.a, call_slow, NULL));
    fill(m, p.a, p.raw, (uint8_t)i);
    launch(m, graph, p.a);
    T_OK(tide_machine_copy(m, 0, p.a, result, p.raw + BYTES, BYTES));
    stream_finish(m, 0, p.a);
    if (machine_has_memory(m)) T_FILLED(result, (uint8_t)i, BYTES);
  }
}

CHECK(launch__goes_to_any_stream) {
  const pair p = pair_new(m, TIDE_STREAM_NON_BLOCKING);
  atomic_int done = 0;
  begin(m, p.a, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_call(m, 0, p.a, call_count, &done));
  const tide_launch graph = end(m, p.a);

  T_OK(tide_machine_stream_free(m, 0, p.a));
  launch(m, graph, p.b);
  launch(m, graph, NULL);
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
  const pair p = pair_new(m, TIDE_STREAM_NON_BLOCKING);
  alone state = { 0, 0, 0 };
  begin(m, p.a, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_call(m, 0, p.a, call_enter, &state));
  T_OK(tide_machine_call(m, 0, p.a, call_leave, &state));
  const tide_launch graph = end(m, p.a);

  for (int i = 0; i < 50; ++i) {
    launch(m, graph, p.a);
    launch(m, graph, p.b);
  }
  T_OK(tide_machine_device_synchronize(m, 0));

  T_EQ(atomic_load(&state.most), 1);
  T_EQ(atomic_load(&state.runs), 100);
}

CHECK(launch_free__lets_queued_launches_run) {
  const pair p = pair_new(m, 0);
  begin(m, p.a, TIDE_CAPTURE_GLOBAL);
  fill(m, p.a, p.raw, 7);
  const tide_launch graph = end(m, p.a);
  gate held;
  hold_up(&held, m, p.b);
  fill(m, p.b, p.raw, 1);
  stream_follow(m, p.a, p.b, p.event);

  launch(m, graph, p.a);
  T_OK(tide_machine_launch_free(m, graph));
  gate_open(&held);

  finish_filled(m, p.a, p.raw, 7);
}

CHECK(launch__cannot_be_captured) {
  const pair p = pair_new(m, 0);
  begin(m, p.a, TIDE_CAPTURE_GLOBAL);
  fill(m, p.a, p.raw, 4);
  const tide_launch graph = end(m, p.a);

  begin(m, p.a, TIDE_CAPTURE_GLOBAL);
  T_STATUS(tide_machine_launch(m, 0, graph, p.a), TIDE_ERR_CAPTURE);
  T_EQ(state_of(m, p.a), TIDE_CAPTURE_INVALIDATED);
  end_broken(m, p.a);

  launch(m, graph, p.a);
  finish_filled(m, p.a, p.raw, 4);
}
