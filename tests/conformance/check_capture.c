// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Conformance: captures: begin, end, joining, nodes.
#include "conformance/check.h"

#include "conformance/captures.h"

CHECK_FILE(check_capture);

// The one node that the next work on a stream would depend on.
static tide_node last_node(tide_machine* m, tide_stream stream) {
  tide_node node = NULL;
  size_t count = 0;
  T_OK(tide_machine_capture_terminals(m, 0, stream, &node, 1, &count));
  T_EQ(count, 1);
  T_CHECK(node != NULL);
  return node;
}

CHECK(capture__is_seen_from_begin_to_end) {
  const tide_stream stream = stream_new(m, 0, 0);
  T_EQ(state_of(m, stream), TIDE_CAPTURE_NONE);

  begin(m, stream, TIDE_CAPTURE_GLOBAL);
  T_EQ(state_of(m, stream), TIDE_CAPTURE_ACTIVE);
  const tide_launch graph = end(m, stream);

  T_EQ(state_of(m, stream), TIDE_CAPTURE_NONE);
  T_OK(tide_machine_launch_free(m, graph));
}

CHECK(capture__runs_nothing_until_it_is_launched) {
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

CHECK(capture__of_nothing_can_be_launched) {
  const tide_stream stream = stream_new(m, 0, 0);
  begin(m, stream, TIDE_CAPTURE_GLOBAL);
  const tide_launch graph = end(m, stream);

  T_OK(tide_machine_launch(m, 0, graph, stream));

  stream_finish(m, 0, stream);
}

CHECK(capture__ids_differ) {
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

CHECK(capture_begin__refuses_the_legacy_stream) {
  need_captures(m);
  const tide_status by_null = tide_machine_capture_begin(m, 0, NULL, TIDE_CAPTURE_GLOBAL);
  const tide_status by_name = tide_machine_capture_begin(m, 0, TIDE_STREAM_LEGACY, TIDE_CAPTURE_RELAXED);

  T_CHECK(by_null == TIDE_ERR_CAPTURE || by_null == TIDE_ERR_ARGUMENT);
  T_EQ(by_null, by_name);
  T_EQ(state_of(m, NULL), TIDE_CAPTURE_NONE);
}

CHECK(capture_begin__takes_the_per_thread_stream) {
  atomic_int done = 0;
  begin(m, TIDE_STREAM_PER_THREAD, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_call(m, 0, TIDE_STREAM_PER_THREAD, call_count, &done));
  const tide_launch graph = end(m, TIDE_STREAM_PER_THREAD);

  T_OK(tide_machine_launch(m, 0, graph, TIDE_STREAM_PER_THREAD));
  stream_finish(m, 0, TIDE_STREAM_PER_THREAD);

  T_EQ(atomic_load(&done), 1);
}

CHECK(capture_begin__refuses_a_stream_that_is_captured) {
  const tide_stream stream = stream_new(m, 0, 0);
  begin(m, stream, TIDE_CAPTURE_GLOBAL);

  const tide_status again = tide_machine_capture_begin(m, 0, stream, TIDE_CAPTURE_GLOBAL);

  T_CHECK(again == TIDE_ERR_CAPTURE || again == TIDE_ERR_STATE);
  tide_launch graph = NULL;
  const tide_status ended = tide_machine_capture_end(m, 0, stream, &graph);
  T_CHECK(ended == TIDE_OK || ended == TIDE_ERR_CAPTURE);
  expect_usable(m, stream);
}

CHECK(capture_end__refuses_a_stream_that_is_not_captured) {
  need_captures(m);
  const tide_stream stream = stream_new(m, 0, 0);
  tide_launch graph = (tide_launch)(uintptr_t)1;

  const tide_status status = tide_machine_capture_end(m, 0, stream, &graph);

  T_CHECK(status == TIDE_ERR_CAPTURE || status == TIDE_ERR_STATE);
  T_PTR_EQ(graph, NULL);
  expect_usable(m, stream);
}

CHECK(capture_info__may_be_asked_of_the_legacy_stream) {
  const tide_stream stream = stream_new(m, 0, 0);
  begin(m, stream, TIDE_CAPTURE_GLOBAL);

  T_EQ(state_of(m, NULL), TIDE_CAPTURE_NONE);
  T_EQ(state_of(m, TIDE_STREAM_LEGACY), TIDE_CAPTURE_NONE);

  T_EQ(state_of(m, stream), TIDE_CAPTURE_ACTIVE);
  (void)end(m, stream);
}

CHECK(capture__a_stream_joins_by_waiting) {
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

CHECK(capture__keeps_the_order_between_its_streams) {
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

CHECK(capture__takes_a_stream_of_another_device) {
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

CHECK(capture_end__refuses_a_stream_that_did_not_join_back) {
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

CHECK(capture_end__refuses_another_stream_of_the_capture) {
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

CHECK(capture__refuses_to_merge_with_another) {
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

CHECK(capture__refuses_to_wait_for_work_outside) {
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

CHECK(capture_terminals__follow_the_work) {
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

CHECK(node_dependencies__lead_back_to_the_first) {
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

CHECK(capture_terminals__of_a_stream_that_joins_are_the_others) {
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

CHECK(capture_terminals__of_a_join_are_both) {
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

CHECK(capture_terminals__name_a_node_once) {
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

CHECK(capture_terminals__counts_more_than_it_writes) {
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
