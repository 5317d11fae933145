// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Conformance of machines: capturing work on streams, and launching it.
#include "machine/machines.h"

#define BYTES 4096u

static void begin(tide_machine* m, tide_stream stream, tide_capture_mode mode) {
  T_OK(tide_machine_capture_begin(m, 0, stream, mode));
}

static tide_launch end(tide_machine* m, tide_stream stream) {
  tide_launch graph = NULL;
  T_OK(tide_machine_capture_end(m, 0, stream, &graph));
  T_CHECK(graph != NULL);
  return graph;
}

// Ends a capture that was broken; the stream is free again afterwards.
static void end_broken(tide_machine* m, tide_stream stream) {
  tide_launch graph = (tide_launch)(uintptr_t)1;
  T_STATUS(tide_machine_capture_end(m, 0, stream, &graph), TIDE_ERR_CAPTURE);
  T_PTR_EQ(graph, NULL);
  T_STR_HAS(tide_last_error()->text, "capture_end");
}

static tide_capture_state state_of(tide_machine* m, tide_stream stream) {
  tide_capture_state state = TIDE_CAPTURE_NONE;
  uint64_t id = 0;
  T_OK(tide_machine_capture_info(m, 0, stream, &state, &id));
  T_EQ(state == TIDE_CAPTURE_ACTIVE, id != 0);
  return state;
}

static uint64_t id_of(tide_machine* m, tide_stream stream) {
  tide_capture_state state = TIDE_CAPTURE_NONE;
  uint64_t id = 0;
  T_OK(tide_machine_capture_info(m, 0, stream, &state, &id));
  return id;
}

// The one node that the next work on a stream would depend on.
static tide_node last_node(tide_machine* m, tide_stream stream) {
  tide_node node = NULL;
  size_t count = 0;
  T_OK(tide_machine_capture_terminals(m, 0, stream, &node, 1, &count));
  T_EQ(count, 1);
  T_CHECK(node != NULL);
  return node;
}

static void expect_usable(tide_machine* m, tide_stream stream) {
  uint8_t* const raw = raw_new(m, 0, BYTES);
  T_EQ(state_of(m, stream), TIDE_CAPTURE_NONE);
  T_OK(tide_machine_fill(m, 0, stream, raw, 0x3d, BYTES));
  stream_finish(m, 0, stream);
  expect_filled(m, 0, raw, 0x3d, BYTES);
}

// ---------------------------------------------------------------------------------------------------
// Begin and end

MACHINE_TEST(test_capture__is_seen_from_begin_to_end) {
  const tide_stream stream = stream_new(m, 0, 0);
  T_EQ(state_of(m, stream), TIDE_CAPTURE_NONE);

  begin(m, stream, TIDE_CAPTURE_GLOBAL);
  T_EQ(state_of(m, stream), TIDE_CAPTURE_ACTIVE);
  const tide_launch graph = end(m, stream);

  T_EQ(state_of(m, stream), TIDE_CAPTURE_NONE);
  T_OK(tide_machine_launch_free(m, graph));
}

MACHINE_TEST(test_capture__runs_nothing_until_it_is_launched) {
  const tide_stream stream = stream_new(m, 0, 0);
  uint8_t* const raw = raw_new(m, 0, BYTES);
  atomic_int done = 0;
  device_fill(m, 0, raw, 1, BYTES);

  begin(m, stream, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_call(m, 0, stream, call_count, &done));
  T_OK(tide_machine_fill(m, 0, stream, raw, 2, BYTES));
  t_sleep_us(2000);
  T_EQ(atomic_load(&done), 0);
  const tide_launch graph = end(m, stream);
  stream_finish(m, 0, stream);
  T_EQ(atomic_load(&done), 0);
  expect_filled(m, 0, raw, 1, BYTES);

  T_OK(tide_machine_launch(m, 0, graph, stream));
  stream_finish(m, 0, stream);
  T_EQ(atomic_load(&done), 1);
  expect_filled(m, 0, raw, 2, BYTES);
}

MACHINE_TEST(test_capture__of_nothing_can_be_launched) {
  const tide_stream stream = stream_new(m, 0, 0);
  begin(m, stream, TIDE_CAPTURE_GLOBAL);
  const tide_launch graph = end(m, stream);

  T_OK(tide_machine_launch(m, 0, graph, stream));

  stream_finish(m, 0, stream);
}

MACHINE_TEST(test_capture__ids_differ) {
  const tide_stream a = stream_new(m, 0, 0);
  const tide_stream b = stream_new(m, 0, 0);
  uint64_t ids[4];

  for (size_t i = 0; i < 3; ++i) {
    begin(m, a, TIDE_CAPTURE_RELAXED);
    ids[i] = id_of(m, a);
    if (i < 2) (void)end(m, a);
  }
  begin(m, b, TIDE_CAPTURE_RELAXED);
  ids[3] = id_of(m, b);
  (void)end(m, b);
  (void)end(m, a);

  for (size_t i = 0; i < 4; ++i) {
    T_NE(ids[i], 0);
    for (size_t k = 0; k < i; ++k) T_NE(ids[i], ids[k]);
  }
}

MACHINE_TEST(test_capture_begin__refuses_the_legacy_stream) {
  const tide_status by_null = tide_machine_capture_begin(m, 0, NULL, TIDE_CAPTURE_GLOBAL);
  const tide_status by_name = tide_machine_capture_begin(m, 0, TIDE_STREAM_LEGACY, TIDE_CAPTURE_RELAXED);

  T_CHECK(by_null == TIDE_ERR_CAPTURE || by_null == TIDE_ERR_ARGUMENT);
  T_EQ(by_null, by_name);
  T_EQ(state_of(m, NULL), TIDE_CAPTURE_NONE);
}

MACHINE_TEST(test_capture_begin__takes_the_per_thread_stream) {
  atomic_int done = 0;
  begin(m, TIDE_STREAM_PER_THREAD, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_call(m, 0, TIDE_STREAM_PER_THREAD, call_count, &done));
  const tide_launch graph = end(m, TIDE_STREAM_PER_THREAD);

  T_OK(tide_machine_launch(m, 0, graph, TIDE_STREAM_PER_THREAD));
  stream_finish(m, 0, TIDE_STREAM_PER_THREAD);

  T_EQ(atomic_load(&done), 1);
}

MACHINE_TEST(test_capture_begin__refuses_a_stream_that_is_captured) {
  const tide_stream stream = stream_new(m, 0, 0);
  begin(m, stream, TIDE_CAPTURE_GLOBAL);

  const tide_status again = tide_machine_capture_begin(m, 0, stream, TIDE_CAPTURE_GLOBAL);

  T_CHECK(again == TIDE_ERR_CAPTURE || again == TIDE_ERR_STATE);
  tide_launch graph = NULL;
  const tide_status ended = tide_machine_capture_end(m, 0, stream, &graph);
  T_CHECK(ended == TIDE_OK || ended == TIDE_ERR_CAPTURE);
  expect_usable(m, stream);
}

MACHINE_TEST(test_capture_end__refuses_a_stream_that_is_not_captured) {
  const tide_stream stream = stream_new(m, 0, 0);
  tide_launch graph = (tide_launch)(uintptr_t)1;

  const tide_status status = tide_machine_capture_end(m, 0, stream, &graph);

  T_CHECK(status == TIDE_ERR_CAPTURE || status == TIDE_ERR_STATE);
  T_PTR_EQ(graph, NULL);
  expect_usable(m, stream);
}

MACHINE_TEST(test_capture_info__may_be_asked_of_the_legacy_stream) {
  const tide_stream stream = stream_new(m, 0, 0);
  begin(m, stream, TIDE_CAPTURE_GLOBAL);

  T_EQ(state_of(m, NULL), TIDE_CAPTURE_NONE);
  T_EQ(state_of(m, TIDE_STREAM_LEGACY), TIDE_CAPTURE_NONE);

  T_EQ(state_of(m, stream), TIDE_CAPTURE_ACTIVE);
  (void)end(m, stream);
}

EMULATED_TEST(test_machine_free__while_a_capture_is_open) {
  const tide_stream a = stream_new(m, 0, 0);
  const tide_stream b = stream_new(m, 0, 0);
  uint8_t* const raw = raw_new(m, 0, BYTES);

  begin(m, a, TIDE_CAPTURE_RELAXED);
  T_OK(tide_machine_fill(m, 0, a, raw, 2, BYTES));
  stream_follow(m, b, a, event_new(m, 0));
  T_OK(tide_machine_fill(m, 0, b, raw, 3, BYTES));

  T_EQ(state_of(m, b), TIDE_CAPTURE_ACTIVE);
}

// ---------------------------------------------------------------------------------------------------
// Launching

MACHINE_TEST(test_launch__repeats) {
  const tide_stream stream = stream_new(m, 0, 0);
  atomic_int done = 0;
  begin(m, stream, TIDE_CAPTURE_GLOBAL);
  for (int i = 0; i < 3; ++i) T_OK(tide_machine_call(m, 0, stream, call_count, &done));
  const tide_launch graph = end(m, stream);

  for (int i = 0; i < 100; ++i) T_OK(tide_machine_launch(m, 0, graph, stream));
  stream_finish(m, 0, stream);

  T_EQ(atomic_load(&done), 300);
}

MACHINE_TEST(test_launch__copies_what_is_there_then) {
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

MACHINE_TEST(test_launch__stands_in_the_order_of_its_stream) {
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

MACHINE_TEST(test_launch__goes_to_any_stream) {
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

MACHINE_TEST(test_launch__of_the_same_graph_run_one_after_the_other) {
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

MACHINE_TEST(test_launch_free__lets_queued_launches_run) {
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

EMULATED_TEST(test_launch_free__makes_the_handle_stale) {
  const tide_stream stream = stream_new(m, 0, 0);
  begin(m, stream, TIDE_CAPTURE_GLOBAL);
  const tide_launch graph = end(m, stream);
  T_OK(tide_machine_launch_free(m, graph));

  T_STATUS(tide_machine_launch(m, 0, graph, stream), TIDE_ERR_HANDLE);
  T_STATUS(tide_machine_launch_free(m, graph), TIDE_ERR_HANDLE);
}

MACHINE_TEST(test_launch__cannot_be_captured) {
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

HOST_TEST(test_launch__after_its_memory_was_given_back_does_no_harm) {
  const tide_stream stream = stream_new(m, 0, 0);
  uint8_t* const raw = raw_new(m, 0, MIB);
  begin(m, stream, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_fill(m, 0, stream, raw, 7, MIB));
  const tide_launch graph = end(m, stream);
  T_OK(tide_machine_raw_release(m, 0, raw));

  const tide_status launched = tide_machine_launch(m, 0, graph, stream);
  const tide_status finished = tide_machine_stream_synchronize(m, 0, stream);

  T_CHECK(launched != TIDE_OK || finished == TIDE_ERR_MACHINE);
  expect_usable(m, stream);
}

// ---------------------------------------------------------------------------------------------------
// Several streams in one capture

MACHINE_TEST(test_capture__a_stream_joins_by_waiting) {
  const tide_stream a = stream_new(m, 0, 0);
  const tide_stream b = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  uint8_t* const raw = raw_new(m, 0, BYTES);
  begin(m, a, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_fill(m, 0, a, raw, 1, BYTES));
  T_EQ(state_of(m, b), TIDE_CAPTURE_NONE);

  stream_follow(m, b, a, event);

  T_EQ(state_of(m, b), TIDE_CAPTURE_ACTIVE);
  T_EQ(id_of(m, b), id_of(m, a));
  T_OK(tide_machine_fill(m, 0, b, raw, 2, BYTES));
  stream_follow(m, a, b, event);
  (void)end(m, a);
  T_EQ(state_of(m, b), TIDE_CAPTURE_NONE);
}

MACHINE_TEST(test_capture__keeps_the_order_between_its_streams) {
  const tide_stream a = stream_new(m, 0, 0);
  const tide_stream b = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  const tide_event event = event_new(m, 0);
  uint8_t* const memory = raw_new(m, 0, 3 * BYTES);
  uint8_t* const result = pinned_new(m, BYTES);
  begin(m, a, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_call(m, 0, a, call_slow, NULL));
  T_OK(tide_machine_copy(m, 0, a, memory + BYTES, memory, BYTES));
  stream_follow(m, b, a, event);
  T_OK(tide_machine_call(m, 0, b, call_slow, NULL));
  T_OK(tide_machine_copy(m, 0, b, memory + 2 * BYTES, memory + BYTES, BYTES));
  stream_follow(m, a, b, event);
  T_OK(tide_machine_copy(m, 0, a, result, memory + 2 * BYTES, BYTES));
  const tide_launch graph = end(m, a);

  for (size_t i = 0; i < t_scaled(300); ++i) {
    T_OK(tide_machine_fill(m, 0, a, memory, (uint8_t)i, BYTES));
    T_OK(tide_machine_launch(m, 0, graph, a));
    stream_finish(m, 0, a);
    if (machine_has_memory(m)) T_FILLED(result, (uint8_t)i, BYTES);
  }
}

MACHINE_TEST(test_capture__takes_a_stream_of_another_device) {
  need_two_devices(m);
  const tide_stream a = stream_new(m, 0, 0);
  const tide_stream b = stream_new(m, 1, 0);
  const tide_event there = event_new(m, 0);
  const tide_event back = event_new(m, 1);
  uint8_t* const raw = raw_new(m, 1, BYTES);
  begin(m, a, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_event_record(m, 0, there, a));
  T_OK(tide_machine_stream_wait(m, 1, b, there));
  T_OK(tide_machine_fill(m, 1, b, raw, 6, BYTES));
  T_OK(tide_machine_event_record(m, 1, back, b));
  T_OK(tide_machine_stream_wait(m, 0, a, back));
  const tide_launch graph = end(m, a);

  T_OK(tide_machine_launch(m, 0, graph, a));
  stream_finish(m, 0, a);

  expect_filled(m, 1, raw, 6, BYTES);
}

MACHINE_TEST(test_capture_end__refuses_a_stream_that_did_not_join_back) {
  const tide_stream a = stream_new(m, 0, 0);
  const tide_stream b = stream_new(m, 0, 0);
  uint8_t* const raw = raw_new(m, 0, BYTES);
  begin(m, a, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_fill(m, 0, a, raw, 1, BYTES));
  stream_follow(m, b, a, event_new(m, 0));
  T_OK(tide_machine_fill(m, 0, b, raw, 2, BYTES));

  end_broken(m, a);

  expect_usable(m, a);
  expect_usable(m, b);
}

MACHINE_TEST(test_capture_end__refuses_another_stream_of_the_capture) {
  const tide_stream a = stream_new(m, 0, 0);
  const tide_stream b = stream_new(m, 0, 0);
  uint8_t* const raw = raw_new(m, 0, BYTES);
  begin(m, a, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_fill(m, 0, a, raw, 1, BYTES));
  stream_follow(m, b, a, event_new(m, 0));

  tide_launch graph = NULL;
  T_STATUS(tide_machine_capture_end(m, 0, b, &graph), TIDE_ERR_CAPTURE);

  const tide_status ended = tide_machine_capture_end(m, 0, a, &graph);
  T_CHECK(ended == TIDE_OK || ended == TIDE_ERR_CAPTURE);
  expect_usable(m, a);
  expect_usable(m, b);
}

MACHINE_TEST(test_capture__refuses_to_merge_with_another) {
  const tide_stream a = stream_new(m, 0, 0);
  const tide_stream b = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  uint8_t* const raw = raw_new(m, 0, BYTES);
  begin(m, a, TIDE_CAPTURE_RELAXED);
  begin(m, b, TIDE_CAPTURE_RELAXED);
  T_OK(tide_machine_fill(m, 0, a, raw, 1, BYTES));
  T_OK(tide_machine_event_record(m, 0, event, a));

  T_STATUS(tide_machine_stream_wait(m, 0, b, event), TIDE_ERR_CAPTURE);

  tide_launch graph = NULL;
  const tide_status ended[2] = { tide_machine_capture_end(m, 0, a, &graph),
                                 tide_machine_capture_end(m, 0, b, &graph) };
  T_CHECK(ended[0] == TIDE_ERR_CAPTURE || ended[1] == TIDE_ERR_CAPTURE);
  expect_usable(m, a);
  expect_usable(m, b);
}

MACHINE_TEST(test_capture__refuses_to_wait_for_work_outside) {
  const tide_stream a = stream_new(m, 0, 0);
  const tide_stream outside = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  uint8_t* const raw = raw_new(m, 0, BYTES);
  T_OK(tide_machine_fill(m, 0, outside, raw, 1, BYTES));
  T_OK(tide_machine_event_record(m, 0, event, outside));
  begin(m, a, TIDE_CAPTURE_GLOBAL);

  T_STATUS(tide_machine_stream_wait(m, 0, a, event), TIDE_ERR_CAPTURE);

  tide_launch graph = NULL;
  const tide_status ended = tide_machine_capture_end(m, 0, a, &graph);
  T_CHECK(ended == TIDE_OK || ended == TIDE_ERR_CAPTURE);
  expect_usable(m, a);
}

// ---------------------------------------------------------------------------------------------------
// Nodes

MACHINE_TEST(test_capture_terminals__follow_the_work) {
  const tide_stream stream = stream_new(m, 0, 0);
  uint8_t* const raw = raw_new(m, 0, BYTES);
  size_t count = 9;
  begin(m, stream, TIDE_CAPTURE_GLOBAL);

  T_OK(tide_machine_capture_terminals(m, 0, stream, NULL, 0, &count));
  T_EQ(count, 0);
  T_OK(tide_machine_fill(m, 0, stream, raw, 1, BYTES));
  const tide_node first = last_node(m, stream);
  T_OK(tide_machine_fill(m, 0, stream, raw, 2, BYTES));
  const tide_node second = last_node(m, stream);

  T_CHECK(first != second);
  (void)end(m, stream);
}

MACHINE_TEST(test_node_dependencies__lead_back_to_the_first) {
  const tide_stream stream = stream_new(m, 0, 0);
  uint8_t* const raw = raw_new(m, 0, BYTES);
  tide_node nodes[4];
  begin(m, stream, TIDE_CAPTURE_GLOBAL);
  for (size_t i = 0; i < 4; ++i) {
    T_OK(tide_machine_fill(m, 0, stream, raw, 1, BYTES));
    nodes[i] = last_node(m, stream);
  }

  for (size_t i = 4; i-- > 0;) {
    tide_node before[2] = { NULL, NULL };
    size_t count = 9;
    T_OK(tide_machine_node_dependencies(m, nodes[i], before, 2, &count));
    T_EQ(count, i > 0);
    T_PTR_EQ(before[0], i > 0 ? nodes[i - 1] : NULL);
  }

  (void)end(m, stream);
}

MACHINE_TEST(test_capture_terminals__of_a_stream_that_joins_are_the_others) {
  const tide_stream a = stream_new(m, 0, 0);
  const tide_stream b = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  uint8_t* const raw = raw_new(m, 0, BYTES);
  begin(m, a, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_fill(m, 0, a, raw, 1, BYTES));

  stream_follow(m, b, a, event);

  T_CHECK(last_node(m, b) == last_node(m, a));
  (void)end(m, a);
}

MACHINE_TEST(test_capture_terminals__of_a_join_are_both) {
  const tide_stream a = stream_new(m, 0, 0);
  const tide_stream b = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  uint8_t* const raw = raw_new(m, 0, 2 * BYTES);
  tide_node nodes[4];
  size_t count = 0;
  begin(m, a, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_fill(m, 0, a, raw, 1, BYTES));
  stream_follow(m, b, a, event);
  T_OK(tide_machine_fill(m, 0, a, raw, 2, BYTES));
  T_OK(tide_machine_fill(m, 0, b, raw + BYTES, 3, BYTES));
  const tide_node of_a = last_node(m, a);
  const tide_node of_b = last_node(m, b);

  stream_follow(m, a, b, event);
  T_OK(tide_machine_capture_terminals(m, 0, a, nodes, 4, &count));

  T_EQ(count, 2);
  T_CHECK((nodes[0] == of_a && nodes[1] == of_b) || (nodes[0] == of_b && nodes[1] == of_a));
  T_OK(tide_machine_fill(m, 0, a, raw, 4, BYTES));
  T_OK(tide_machine_node_dependencies(m, last_node(m, a), nodes, 4, &count));
  T_EQ(count, 2);
  T_CHECK((nodes[0] == of_a && nodes[1] == of_b) || (nodes[0] == of_b && nodes[1] == of_a));
  (void)end(m, a);
}

MACHINE_TEST(test_capture_terminals__name_a_node_once) {
  const tide_stream a = stream_new(m, 0, 0);
  const tide_stream b = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  uint8_t* const raw = raw_new(m, 0, BYTES);
  begin(m, a, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_fill(m, 0, a, raw, 1, BYTES));

  stream_follow(m, b, a, event);
  T_OK(tide_machine_stream_wait(m, 0, b, event));
  T_OK(tide_machine_stream_wait(m, 0, a, event));

  T_CHECK(last_node(m, a) == last_node(m, b));
  (void)end(m, a);
}

MACHINE_TEST(test_capture_terminals__counts_more_than_it_writes) {
  const tide_stream a = stream_new(m, 0, 0);
  const tide_stream b = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  uint8_t* const raw = raw_new(m, 0, 2 * BYTES);
  const tide_node untouched = (tide_node)(uintptr_t)77;
  tide_node nodes[2] = { untouched, untouched };
  size_t count = 0;
  begin(m, a, TIDE_CAPTURE_GLOBAL);
  stream_follow(m, b, a, event);
  T_OK(tide_machine_fill(m, 0, a, raw, 1, BYTES));
  T_OK(tide_machine_fill(m, 0, b, raw + BYTES, 1, BYTES));
  stream_follow(m, a, b, event);

  T_OK(tide_machine_capture_terminals(m, 0, a, nodes, 1, &count));

  T_EQ(count, 2);
  T_CHECK(nodes[0] != untouched);
  T_CHECK(nodes[1] == untouched);
  (void)end(m, a);
}

// ---------------------------------------------------------------------------------------------------
// What breaks a capture

// A capture of one fill on a stream, with an event recorded in it.
typedef struct broken {
  tide_stream stream;
  tide_event event;
} broken;

static broken broken_new(tide_machine* m) {
  const broken b = { stream_new(m, 0, 0), event_new(m, 0) };
  uint8_t* const raw = raw_new(m, 0, BYTES);
  begin(m, b.stream, TIDE_CAPTURE_RELAXED);
  T_OK(tide_machine_fill(m, 0, b.stream, raw, 1, BYTES));
  T_OK(tide_machine_event_record(m, 0, b.event, b.stream));
  return b;
}

static void expect_broken(tide_machine* m, const broken* b) {
  T_EQ(state_of(m, b->stream), TIDE_CAPTURE_INVALIDATED);
  end_broken(m, b->stream);
  expect_usable(m, b->stream);
}

MACHINE_TEST(test_capture__is_broken_by_a_query_of_its_stream) {
  const broken b = broken_new(m);
  bool is_idle = true;

  T_STATUS(tide_machine_stream_query(m, 0, b.stream, &is_idle), TIDE_ERR_CAPTURE);

  T_CHECK(!is_idle);
  expect_broken(m, &b);
}

MACHINE_TEST(test_capture__is_broken_by_synchronizing_its_stream) {
  const broken b = broken_new(m);

  T_STATUS(tide_machine_stream_synchronize(m, 0, b.stream), TIDE_ERR_CAPTURE);

  expect_broken(m, &b);
}

MACHINE_TEST(test_capture__is_broken_by_a_query_of_its_event) {
  const broken b = broken_new(m);
  bool is_done = true;

  T_STATUS(tide_machine_event_query(m, b.event, &is_done), TIDE_ERR_CAPTURE);

  T_CHECK(!is_done);
  expect_broken(m, &b);
}

MACHINE_TEST(test_capture__is_broken_by_synchronizing_its_event) {
  const broken b = broken_new(m);

  T_STATUS(tide_machine_event_synchronize(m, b.event), TIDE_ERR_CAPTURE);

  expect_broken(m, &b);
}

MACHINE_TEST(test_capture__is_broken_by_synchronizing_its_device) {
  const broken b = broken_new(m);

  T_STATUS(tide_machine_device_synchronize(m, 0), TIDE_ERR_CAPTURE);

  expect_broken(m, &b);
}

MACHINE_TEST(test_capture__is_broken_by_the_legacy_stream) {
  uint8_t* const raw = raw_new(m, 0, BYTES);
  const broken b = broken_new(m);

  T_STATUS(tide_machine_fill(m, 0, NULL, raw, 1, BYTES), TIDE_ERR_CAPTURE);

  expect_broken(m, &b);
}

MACHINE_TEST(test_capture__of_a_non_blocking_stream_does_not_mind_the_legacy_one) {
  uint8_t* const raw = raw_new(m, 0, BYTES);
  const tide_stream stream = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  begin(m, stream, TIDE_CAPTURE_GLOBAL);

  T_OK(tide_machine_fill(m, 0, NULL, raw, 5, BYTES));

  T_EQ(state_of(m, stream), TIDE_CAPTURE_ACTIVE);
  (void)end(m, stream);
  stream_finish(m, 0, NULL);
  expect_filled(m, 0, raw, 5, BYTES);
}

MACHINE_TEST(test_capture__does_not_mind_work_on_another_stream) {
  uint8_t* const raw = raw_new(m, 0, BYTES);
  const tide_stream captured = stream_new(m, 0, 0);
  const tide_stream other = stream_new(m, 0, 0);
  begin(m, captured, TIDE_CAPTURE_GLOBAL);

  T_OK(tide_machine_fill(m, 0, other, raw, 5, BYTES));

  T_EQ(state_of(m, captured), TIDE_CAPTURE_ACTIVE);
  T_EQ(state_of(m, other), TIDE_CAPTURE_NONE);
  (void)end(m, captured);
  stream_finish(m, 0, other);
  expect_filled(m, 0, raw, 5, BYTES);
}

MACHINE_TEST(test_capture__when_broken_refuses_work_until_its_end) {
  uint8_t* const raw = raw_new(m, 0, BYTES);
  const tide_event event = event_new(m, 0);
  const broken b = broken_new(m);
  T_STATUS(tide_machine_stream_synchronize(m, 0, b.stream), TIDE_ERR_CAPTURE);

  T_STATUS(tide_machine_fill(m, 0, b.stream, raw, 1, BYTES), TIDE_ERR_CAPTURE);
  T_STATUS(tide_machine_copy(m, 0, b.stream, raw, raw + 1, 1), TIDE_ERR_CAPTURE);
  T_STATUS(tide_machine_call(m, 0, b.stream, call_slow, NULL), TIDE_ERR_CAPTURE);
  T_STATUS(tide_machine_event_record(m, 0, event, b.stream), TIDE_ERR_CAPTURE);

  expect_broken(m, &b);
}

MACHINE_TEST(test_capture__when_broken_frees_every_stream_of_it) {
  const tide_stream second = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  const broken b = broken_new(m);
  stream_follow(m, second, b.stream, event);
  T_EQ(state_of(m, second), TIDE_CAPTURE_ACTIVE);

  T_STATUS(tide_machine_stream_synchronize(m, 0, second), TIDE_ERR_CAPTURE);
  T_EQ(state_of(m, second), TIDE_CAPTURE_INVALIDATED);

  expect_broken(m, &b);
  expect_usable(m, second);
}

MACHINE_TEST(test_event__recorded_in_a_capture_can_be_recorded_again_outside) {
  const tide_stream stream = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  begin(m, stream, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_event_record(m, 0, event, stream));
  (void)end(m, stream);

  T_OK(tide_machine_event_record(m, 0, event, stream));
  T_OK(tide_machine_event_synchronize(m, event));

  T_CHECK(event_is_done(m, event));
}

// ---------------------------------------------------------------------------------------------------
// Modes

MACHINE_TEST(test_capture_exchange__hands_out_the_mode_before) {
  tide_capture_mode before = TIDE_CAPTURE_RELAXED;

  T_OK(tide_machine_capture_exchange(m, TIDE_CAPTURE_RELAXED, &before));
  T_EQ(before, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_capture_exchange(m, TIDE_CAPTURE_THREAD_LOCAL, &before));
  T_EQ(before, TIDE_CAPTURE_RELAXED);
  T_OK(tide_machine_capture_exchange(m, TIDE_CAPTURE_GLOBAL, &before));

  T_EQ(before, TIDE_CAPTURE_THREAD_LOCAL);
}

static void* thread_expects_global(void* user) {
  tide_machine* const m = user;
  tide_capture_mode before = TIDE_CAPTURE_RELAXED;
  T_OK(tide_machine_capture_exchange(m, TIDE_CAPTURE_THREAD_LOCAL, &before));
  T_EQ(before, TIDE_CAPTURE_GLOBAL);
  return NULL;
}

MACHINE_TEST(test_capture_exchange__is_for_the_calling_thread) {
  tide_capture_mode before = TIDE_CAPTURE_GLOBAL;
  pthread_t thread;
  T_OK(tide_machine_capture_exchange(m, TIDE_CAPTURE_RELAXED, &before));

  t_thread_start(&thread, thread_expects_global, m);
  t_thread_join(thread);

  T_OK(tide_machine_capture_exchange(m, TIDE_CAPTURE_GLOBAL, &before));
  T_EQ(before, TIDE_CAPTURE_RELAXED);
}

// An unsafe call on a thread in a mode.
typedef struct intruder {
  tide_machine* m;
  tide_capture_mode mode;
  tide_status status;
} intruder;

static void* thread_intrudes(void* user) {
  intruder* const i = user;
  tide_capture_mode before = TIDE_CAPTURE_GLOBAL;
  void* memory = NULL;
  T_OK(tide_machine_capture_exchange(i->m, i->mode, &before));
  i->status = tide_machine_raw_alloc(i->m, 0, BYTES, &memory);
  T_EQ(memory == NULL, i->status != TIDE_OK);
  T_OK(tide_machine_capture_exchange(i->m, before, &before));
  return NULL;
}

// The rule of the contract, as it stands there.
static bool is_refused(tide_capture_mode thread, tide_capture_mode capture, bool is_own) {
  if (thread == TIDE_CAPTURE_RELAXED) return false;
  if (is_own && capture != TIDE_CAPTURE_RELAXED) return true;
  return thread == TIDE_CAPTURE_GLOBAL && capture == TIDE_CAPTURE_GLOBAL;
}

static void expect_mode(tide_machine* m, tide_capture_mode thread_mode, tide_capture_mode capture,
                        bool is_own) {
  const tide_stream stream = stream_new(m, 0, 0);
  intruder i = { m, thread_mode, TIDE_OK };
  pthread_t thread;
  begin(m, stream, capture);

  if (is_own) {
    (void)thread_intrudes(&i);
  } else {
    t_thread_start(&thread, thread_intrudes, &i);
    t_thread_join(thread);
  }

  const bool refused = is_refused(thread_mode, capture, is_own);
  T_EQ(i.status, refused ? TIDE_ERR_CAPTURE : TIDE_OK);
  T_EQ(state_of(m, stream), refused ? TIDE_CAPTURE_INVALIDATED : TIDE_CAPTURE_ACTIVE);
  if (refused) end_broken(m, stream);
  else (void)end(m, stream);
  expect_usable(m, stream);
}

static void expect_modes(tide_machine* m, tide_capture_mode capture, bool is_own) {
  expect_mode(m, TIDE_CAPTURE_GLOBAL, capture, is_own);
  expect_mode(m, TIDE_CAPTURE_THREAD_LOCAL, capture, is_own);
  expect_mode(m, TIDE_CAPTURE_RELAXED, capture, is_own);
}

MACHINE_TEST(test_capture__global_and_unsafe_calls_of_the_same_thread) {
  expect_modes(m, TIDE_CAPTURE_GLOBAL, true);
}

MACHINE_TEST(test_capture__global_and_unsafe_calls_of_another_thread) {
  expect_modes(m, TIDE_CAPTURE_GLOBAL, false);
}

MACHINE_TEST(test_capture__thread_local_and_unsafe_calls_of_the_same_thread) {
  expect_modes(m, TIDE_CAPTURE_THREAD_LOCAL, true);
}

MACHINE_TEST(test_capture__thread_local_and_unsafe_calls_of_another_thread) {
  expect_modes(m, TIDE_CAPTURE_THREAD_LOCAL, false);
}

MACHINE_TEST(test_capture__relaxed_and_unsafe_calls_of_the_same_thread) {
  expect_modes(m, TIDE_CAPTURE_RELAXED, true);
}

MACHINE_TEST(test_capture__relaxed_and_unsafe_calls_of_another_thread) {
  expect_modes(m, TIDE_CAPTURE_RELAXED, false);
}

static tide_launch graph_of_nothing(tide_machine* m, tide_stream stream) {
  begin(m, stream, TIDE_CAPTURE_RELAXED);
  return end(m, stream);
}

// Everything that an unsafe call needs, made before the capture.
typedef struct kit {
  tide_machine* m;
  tide_stream stream;
  tide_event event;
  tide_physical physical;
  size_t unit;
  uint8_t* raw;
  uint8_t* pinned;
  uint8_t* buffer;      // not registered
  uint8_t* registered;  // the second half of `buffer`
  uint8_t* range;       // reserved; mapped in its first unit
} kit;

static kit kit_new(tide_machine* m) {
  kit k = { .m = m, .unit = granularity(m) };
  void* buffer = NULL;
  T_EQ(posix_memalign(&buffer, 65536, 131072), 0);
  k.stream = stream_new(m, 0, 0);
  k.event = event_new(m, 0);
  k.physical = physical_new(m, 0, k.unit);
  k.raw = raw_new(m, 0, BYTES);
  k.pinned = pinned_new(m, BYTES);
  k.buffer = buffer;
  k.registered = k.buffer + 65536;
  k.range = reserve(m, 0, 2 * k.unit);
  map_new(m, 0, k.range, k.unit);
  T_OK(tide_machine_pinned_register(m, k.registered, 65536));
  return k;
}

static tide_status do_raw_alloc(kit* k) {
  void* out = NULL;
  return tide_machine_raw_alloc(k->m, 0, BYTES, &out);
}
static tide_status do_raw_release(kit* k) { return tide_machine_raw_release(k->m, 0, k->raw); }
static tide_status do_pinned_alloc(kit* k) {
  void* out = NULL;
  return tide_machine_pinned_alloc(k->m, BYTES, &out);
}
static tide_status do_pinned_release(kit* k) { return tide_machine_pinned_release(k->m, k->pinned); }
static tide_status do_pinned_register(kit* k) { return tide_machine_pinned_register(k->m, k->buffer, 4096); }
static tide_status do_pinned_unregister(kit* k) {
  return tide_machine_pinned_unregister(k->m, k->registered);
}
static tide_status do_physical_new(kit* k) {
  tide_physical out = NULL;
  return tide_machine_physical_new(k->m, 0, k->unit, 0, &out);
}
static tide_status do_physical_free(kit* k) { return tide_machine_physical_free(k->m, k->physical); }
static tide_status do_map(kit* k) { return tide_machine_map(k->m, k->range + k->unit, k->physical); }
static tide_status do_unmap(kit* k) { return tide_machine_unmap(k->m, k->range, k->unit); }
static tide_status do_set_access(kit* k) {
  return tide_machine_set_access(k->m, k->range, k->unit, 0, TIDE_ACCESS_READ);
}
static tide_status do_event_query(kit* k) {
  bool out = false;
  return tide_machine_event_query(k->m, k->event, &out);
}
static tide_status do_event_synchronize(kit* k) { return tide_machine_event_synchronize(k->m, k->event); }
static tide_status do_stream_query(kit* k) {
  bool out = false;
  return tide_machine_stream_query(k->m, 0, k->stream, &out);
}
static tide_status do_stream_synchronize(kit* k) {
  return tide_machine_stream_synchronize(k->m, 0, k->stream);
}
static tide_status do_device_synchronize(kit* k) {
  return tide_machine_device_synchronize(k->m, tide_machine_device_count(k->m) - 1);
}

MACHINE_TEST(test_capture__is_broken_by_every_unsafe_call) {
  static tide_status (*const calls[])(kit*) = {
    do_raw_alloc,       do_raw_release,        do_pinned_alloc,       do_pinned_release,
    do_pinned_register, do_pinned_unregister,  do_event_query,        do_event_synchronize,
    do_stream_query,    do_stream_synchronize, do_device_synchronize,
  };
  for (size_t i = 0; i < sizeof calls / sizeof *calls; ++i) {
    kit k = kit_new(m);
    const tide_stream stream = stream_new(m, 0, 0);
    const size_t before = free_bytes(m, 0);
    begin(m, stream, TIDE_CAPTURE_GLOBAL);

    const tide_status refused = calls[i](&k);
    if (refused != TIDE_ERR_CAPTURE) T_FAIL("call %zu of the table is %s", i, tide_status_name(refused));

    T_EQ(state_of(m, stream), TIDE_CAPTURE_INVALIDATED);
    end_broken(m, stream);
    T_EQ(free_bytes(m, 0), before);
    T_OK(calls[i](&k));
    if (calls[i] != do_pinned_unregister) T_OK(do_pinned_unregister(&k));
    if (calls[i] == do_pinned_register) T_OK(tide_machine_pinned_unregister(m, k.buffer));
    free(k.buffer);
  }
}

MACHINE_TEST(test_capture__does_not_mind_safe_calls) {
  kit k = kit_new(m);
  const tide_stream stream = stream_new(m, 0, 0);
  const tide_launch graph = graph_of_nothing(m, stream);
  begin(m, stream, TIDE_CAPTURE_GLOBAL);

  (void)device_info(m, 0);
  (void)clock_ns(m);
  (void)pointer_info(m, k.raw);
  (void)free_bytes(m, 0);
  T_OK(do_map(&k));
  T_OK(do_set_access(&k));
  T_OK(do_unmap(&k));
  T_OK(do_physical_free(&k));
  T_OK(do_physical_new(&k));
  T_OK(tide_machine_launch_free(m, graph));
  T_OK(tide_machine_event_record(m, 0, k.event, k.stream));
  T_OK(tide_machine_event_free(m, event_new(m, 0)));
  T_OK(tide_machine_stream_free(m, 0, stream_new(m, 0, 0)));

  T_EQ(state_of(m, stream), TIDE_CAPTURE_ACTIVE);
  (void)end(m, stream);
  T_OK(tide_machine_pinned_unregister(m, k.registered));
  free(k.buffer);
}

MACHINE_TEST(test_capture__is_over_when_its_stream_is_freed) {
  const tide_stream gone = stream_new(m, 0, 0);
  const tide_stream stream = stream_new(m, 0, 0);
  begin(m, gone, TIDE_CAPTURE_GLOBAL);

  T_OK(tide_machine_stream_free(m, 0, gone));

  expect_usable(m, stream);
}

MACHINE_TEST(test_capture__goes_on_when_a_stream_that_joined_is_freed) {
  const tide_stream stream = stream_new(m, 0, 0);
  const tide_stream joined = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  begin(m, stream, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_event_record(m, 0, event, stream));
  T_OK(tide_machine_stream_wait(m, 0, joined, event));

  T_OK(tide_machine_stream_free(m, 0, joined));

  T_EQ(state_of(m, stream), TIDE_CAPTURE_ACTIVE);
  (void)end(m, stream);
}

MACHINE_TEST(test_capture__is_broken_by_ending_it_on_a_stream_that_joined) {
  const tide_stream stream = stream_new(m, 0, 0);
  const tide_stream joined = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  begin(m, stream, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_event_record(m, 0, event, stream));
  T_OK(tide_machine_stream_wait(m, 0, joined, event));

  end_broken(m, joined);

  T_EQ(state_of(m, stream), TIDE_CAPTURE_INVALIDATED);
  end_broken(m, stream);
}

MACHINE_TEST(test_capture__two_at_once_on_one_thread) {
  const tide_stream first = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  const tide_stream second = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  begin(m, first, TIDE_CAPTURE_GLOBAL);
  begin(m, second, TIDE_CAPTURE_GLOBAL);
  T_NE(id_of(m, first), id_of(m, second));

  T_OK(tide_machine_launch_free(m, end(m, first)));

  T_EQ(state_of(m, second), TIDE_CAPTURE_ACTIVE);
  T_OK(tide_machine_launch_free(m, end(m, second)));
}

MACHINE_TEST(test_event__of_a_capture_that_has_ended_must_be_recorded_again) {
  const tide_stream stream = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  bool is_done = false;
  begin(m, stream, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_event_record(m, 0, event, stream));
  (void)end(m, stream);

  T_STATUS(tide_machine_event_query(m, event, &is_done), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_event_synchronize(m, event), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_stream_wait(m, 0, stream, event), TIDE_ERR_ARGUMENT);

  T_OK(tide_machine_event_record(m, 0, event, stream));
  T_OK(tide_machine_event_synchronize(m, event));
}

// ---------------------------------------------------------------------------------------------------
// Threads

typedef struct ender {
  tide_machine* m;
  tide_stream stream;
  tide_status status;
  tide_launch graph;
} ender;

static void* thread_ends_capture(void* user) {
  ender* const e = user;
  e->status = tide_machine_capture_end(e->m, 0, e->stream, &e->graph);
  return NULL;
}

static ender end_on_a_thread(tide_machine* m, tide_stream stream) {
  ender e = { m, stream, TIDE_OK, NULL };
  pthread_t thread;
  t_thread_start(&thread, thread_ends_capture, &e);
  t_thread_join(thread);
  return e;
}

MACHINE_TEST(test_capture_end__belongs_to_the_thread_that_began) {
  static const tide_capture_mode modes[] = { TIDE_CAPTURE_GLOBAL, TIDE_CAPTURE_THREAD_LOCAL };
  for (size_t i = 0; i < 2; ++i) {
    const tide_stream stream = stream_new(m, 0, 0);
    begin(m, stream, modes[i]);

    const ender e = end_on_a_thread(m, stream);

    T_EQ(e.status, TIDE_ERR_CAPTURE);
    T_PTR_EQ(e.graph, NULL);
    tide_launch graph = NULL;
    const tide_status ended = tide_machine_capture_end(m, 0, stream, &graph);
    T_CHECK(ended == TIDE_OK || ended == TIDE_ERR_CAPTURE);
    expect_usable(m, stream);
  }
}

MACHINE_TEST(test_capture_end__of_a_relaxed_capture_may_come_from_any_thread) {
  const tide_stream stream = stream_new(m, 0, 0);
  atomic_int done = 0;
  begin(m, stream, TIDE_CAPTURE_RELAXED);
  T_OK(tide_machine_call(m, 0, stream, call_count, &done));

  const ender e = end_on_a_thread(m, stream);

  T_EQ(e.status, TIDE_OK);
  T_OK(tide_machine_launch(m, 0, e.graph, stream));
  stream_finish(m, 0, stream);
  T_EQ(atomic_load(&done), 1);
}

static void capture_round(tide_machine* m, tide_stream a, tide_stream b, tide_event event, uint8_t* raw) {
  begin(m, a, TIDE_CAPTURE_THREAD_LOCAL);
  T_OK(tide_machine_fill(m, 0, a, raw, 1, BYTES));
  stream_follow(m, b, a, event);
  T_OK(tide_machine_fill(m, 0, b, raw, 2, BYTES));
  stream_follow(m, a, b, event);
  const tide_launch graph = end(m, a);
  T_OK(tide_machine_launch(m, 0, graph, a));
  T_OK(tide_machine_launch_free(m, graph));
  stream_finish(m, 0, a);
}

static void* thread_captures(void* user) {
  tide_machine* const m = user;
  const tide_stream a = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  const tide_stream b = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  const tide_event event = event_new(m, 0);
  uint8_t* const raw = raw_new(m, 0, BYTES);
  for (size_t i = 0; i < t_scaled(50); ++i) capture_round(m, a, b, event, raw);
  return NULL;
}

MACHINE_TEST(test_capture__on_four_threads_at_once) {
  pthread_t threads[4];

  for (size_t i = 0; i < 4; ++i) t_thread_start(&threads[i], thread_captures, m);
  for (size_t i = 0; i < 4; ++i) t_thread_join(threads[i]);

  T_OK(tide_machine_device_synchronize(m, 0));
}

// The stream of a thread goes with the thread, in the middle of a capture.
static void* thread_leaves_a_capture(void* user) {
  tide_machine* const m = user;
  uint8_t* const raw = raw_new(m, 0, BYTES);
  T_OK(tide_machine_capture_begin(m, 0, TIDE_STREAM_PER_THREAD, TIDE_CAPTURE_RELAXED));
  T_OK(tide_machine_fill(m, 0, TIDE_STREAM_PER_THREAD, raw, 1, BYTES));
  return NULL;
}

EMULATED_TEST(test_capture__of_a_thread_that_ended_does_no_harm) {
  for (int i = 0; i < 5; ++i) {
    pthread_t thread;
    t_thread_start(&thread, thread_leaves_a_capture, m);
    t_thread_join(thread);
    const tide_stream next = stream_new(m, 0, 0);
    begin(m, next, TIDE_CAPTURE_RELAXED);
    T_EQ(state_of(m, next), TIDE_CAPTURE_ACTIVE);
    (void)end(m, next);
    expect_usable(m, next);
  }
}

typedef struct recorder {
  tide_machine* m;
  tide_event event;
  atomic_bool is_over;
} recorder;

static void* thread_records(void* user) {
  recorder* const r = user;
  const tide_stream stream = stream_new(r->m, 0, TIDE_STREAM_NON_BLOCKING);
  uint8_t* const raw = raw_new(r->m, 0, BYTES);
  while (!atomic_load(&r->is_over)) {
    T_OK(tide_machine_fill(r->m, 0, stream, raw, 1, BYTES));
    T_OK(tide_machine_event_record(r->m, 0, r->event, stream));
  }
  return NULL;
}

EMULATED_TEST(test_capture__waits_for_an_event_that_another_thread_records) {
  recorder r = { m, event_new(m, 0), false };
  pthread_t thread;
  t_thread_start(&thread, thread_records, &r);

  for (size_t i = 0; i < t_scaled(200); ++i) {
    const tide_stream stream = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
    tide_launch graph = NULL;
    begin(m, stream, TIDE_CAPTURE_RELAXED);
    T_ANY(tide_machine_stream_wait(m, 0, stream, r.event));
    T_ANY(tide_machine_capture_end(m, 0, stream, &graph));
    T_OK(tide_machine_stream_free(m, 0, stream));
  }

  atomic_store(&r.is_over, true);
  t_thread_join(thread);
}
