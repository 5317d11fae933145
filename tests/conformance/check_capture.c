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
  T_EQ(state_of(m, NULL), TIDE_CAPTURE_NONE);
  T_EQ(state_of(m, TIDE_STREAM_LEGACY), TIDE_CAPTURE_NONE);
  T_EQ(state_of(m, stream), TIDE_CAPTURE_ACTIVE);
  const tide_launch graph = end(m, stream);

  T_EQ(state_of(m, stream), TIDE_CAPTURE_NONE);
  T_OK(tide_machine_launch_free(m, graph));
}

CHECK(capture__runs_nothing_until_it_is_launched) {
  const pair p = pair_new(m, 0);
  atomic_int done = 0;
  device_fill(m, 0, p.raw, 1, BYTES);

  begin(m, p.a, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_call(m, 0, p.a, call_count, &done));
  fill(m, p.a, p.raw, 2);
  t_sleep_us(2000);
  T_EQ(atomic_load(&done), 0);
  const tide_launch graph = end(m, p.a);
  finish_filled(m, p.a, p.raw, 1);
  T_EQ(atomic_load(&done), 0);

  launch(m, graph, p.a);
  finish_filled(m, p.a, p.raw, 2);
  T_EQ(atomic_load(&done), 1);
}

CHECK(capture__of_nothing_can_be_launched) {
  const tide_stream stream = stream_new(m, 0, 0);
  begin(m, stream, TIDE_CAPTURE_GLOBAL);
  launch(m, end(m, stream), stream);
  stream_finish(m, 0, stream);
}

CHECK(capture__ids_differ) {
  const pair p = pair_new(m, 0);
  uint64_t ids[4];

  for (size_t i = 0; i < 3; ++i) {
    begin(m, p.a, TIDE_CAPTURE_RELAXED);
    ids[i] = id_of(m, p.a);
    if (i < 2) (void)end(m, p.a);
  }
  begin(m, p.b, TIDE_CAPTURE_RELAXED);
  ids[3] = id_of(m, p.b);
  (void)end(m, p.b);
  (void)end(m, p.a);

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
  launch(m, end(m, TIDE_STREAM_PER_THREAD), TIDE_STREAM_PER_THREAD);
  stream_finish(m, 0, TIDE_STREAM_PER_THREAD);

  T_EQ(atomic_load(&done), 1);
}

CHECK(capture_begin__refuses_a_stream_that_is_captured) {
  const tide_stream stream = stream_new(m, 0, 0);
  begin(m, stream, TIDE_CAPTURE_GLOBAL);

  const tide_status again = tide_machine_capture_begin(m, 0, stream, TIDE_CAPTURE_GLOBAL);

  T_CHECK(again == TIDE_ERR_CAPTURE || again == TIDE_ERR_STATE);
  (void)end_any(m, stream);
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

CHECK(capture__a_stream_joins_by_waiting) {
  const pair p = pair_new(m, 0);
  begin(m, p.a, TIDE_CAPTURE_GLOBAL);
  fill(m, p.a, p.raw, 1);
  T_EQ(state_of(m, p.b), TIDE_CAPTURE_NONE);

  stream_follow(m, p.b, p.a, p.event);

  T_EQ(state_of(m, p.b), TIDE_CAPTURE_ACTIVE);
  T_EQ(id_of(m, p.b), id_of(m, p.a));
  fill(m, p.b, p.raw, 2);
  stream_follow(m, p.a, p.b, p.event);
  (void)end(m, p.a);
  T_EQ(state_of(m, p.b), TIDE_CAPTURE_NONE);
}

CHECK(capture__keeps_the_order_between_its_streams) {
  const pair p = pair_new(m, TIDE_STREAM_NON_BLOCKING);
  uint8_t* const result = pinned_new(m, BYTES);
  begin(m, p.a, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_call(m, 0, p.a, call_slow, NULL));
  T_OK(tide_machine_copy(m, 0, p.a, p.raw + BYTES, p.raw, BYTES));
  stream_follow(m, p.b, p.a, p.event);
  T_OK(tide_machine_call(m, 0, p.b, call_slow, NULL));
  T_OK(tide_machine_copy(m, 0, p.b, p.raw + 2 * BYTES, p.raw + BYTES, BYTES));
  stream_follow(m, p.a, p.b, p.event);
  T_OK(tide_machine_copy(m, 0, p.a, result, p.raw + 2 * BYTES, BYTES));
  const tide_launch graph = end(m, p.a);

  for (size_t i = 0; i < t_scaled(300); ++i) {
    fill(m, p.a, p.raw, (uint8_t)i);
    launch(m, graph, p.a);
    stream_finish(m, 0, p.a);
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

  launch(m, end(m, a), a);
  stream_finish(m, 0, a);

  expect_filled(m, 1, raw, 6, BYTES);
}

CHECK(capture_end__refuses_a_stream_that_did_not_join_back) {
  const pair p = joined_new(m);
  fill(m, p.b, p.raw, 2);

  end_broken(m, p.a);

  expect_usable(m, p.a);
  expect_usable(m, p.b);
}

CHECK(capture_end__refuses_another_stream_of_the_capture) {
  const pair p = joined_new(m);

  tide_launch graph = NULL;
  T_STATUS(tide_machine_capture_end(m, 0, p.b, &graph), TIDE_ERR_CAPTURE);

  (void)end_any(m, p.a);
  expect_usable(m, p.b);
}

CHECK(capture__refuses_to_merge_with_another) {
  const pair p = recorded_new(m);
  begin(m, p.b, TIDE_CAPTURE_RELAXED);

  T_STATUS(tide_machine_stream_wait(m, 0, p.b, p.event), TIDE_ERR_CAPTURE);

  tide_launch graph = NULL;
  const tide_status ended[2] = { tide_machine_capture_end(m, 0, p.a, &graph),
                                 tide_machine_capture_end(m, 0, p.b, &graph) };
  T_CHECK(ended[0] == TIDE_ERR_CAPTURE || ended[1] == TIDE_ERR_CAPTURE);
  expect_usable(m, p.a);
  expect_usable(m, p.b);
}

CHECK(capture__refuses_to_wait_for_work_outside) {
  const pair p = pair_new(m, 0);
  fill(m, p.b, p.raw, 1);
  T_OK(tide_machine_event_record(m, 0, p.event, p.b));
  begin(m, p.a, TIDE_CAPTURE_GLOBAL);

  T_STATUS(tide_machine_stream_wait(m, 0, p.a, p.event), TIDE_ERR_CAPTURE);

  (void)end_any(m, p.a);
}

// ---------------------------------------------------------------------------------------------------
// Nodes

CHECK(node_dependencies__lead_back_to_the_first) {
  const pair p = pair_new(m, 0);
  tide_node nodes[4];
  size_t count = 9;
  begin(m, p.a, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_capture_terminals(m, 0, p.a, NULL, 0, &count));
  T_EQ(count, 0);
  for (size_t i = 0; i < 4; ++i) {
    fill(m, p.a, p.raw, 1);
    nodes[i] = last_node(m, p.a);
  }

  for (size_t i = 4; i-- > 0;) {
    tide_node before[2] = { NULL, NULL };
    T_OK(tide_machine_node_dependencies(m, nodes[i], before, 2, &count));
    T_EQ(count, i > 0);
    T_PTR_EQ(before[0], i > 0 ? nodes[i - 1] : NULL);
    T_CHECK(before[0] != nodes[i]);
  }

  (void)end(m, p.a);
}

CHECK(capture_terminals__of_a_stream_that_joins_are_the_others_once) {
  const pair p = joined_new(m);
  T_CHECK(last_node(m, p.b) == last_node(m, p.a));

  T_OK(tide_machine_stream_wait(m, 0, p.b, p.event));
  T_OK(tide_machine_stream_wait(m, 0, p.a, p.event));

  T_CHECK(last_node(m, p.b) == last_node(m, p.a));
  (void)end(m, p.a);
}

CHECK(capture_terminals__of_a_join_are_both) {
  const tide_node untouched = (tide_node)(uintptr_t)77;
  const pair p = joined_new(m);
  tide_node nodes[4] = { untouched, untouched };
  size_t count = 0;
  fill(m, p.a, p.raw, 2);
  fill(m, p.b, p.raw + BYTES, 3);
  const tide_node of_a = last_node(m, p.a);
  const tide_node of_b = last_node(m, p.b);
  stream_follow(m, p.a, p.b, p.event);

  T_OK(tide_machine_capture_terminals(m, 0, p.a, nodes, 1, &count));
  T_EQ(count, 2);
  T_CHECK(nodes[0] != untouched && nodes[1] == untouched);
  T_OK(tide_machine_capture_terminals(m, 0, p.a, nodes, 4, &count));
  T_EQ(count, 2);
  T_CHECK((nodes[0] == of_a && nodes[1] == of_b) || (nodes[0] == of_b && nodes[1] == of_a));

  fill(m, p.a, p.raw, 4);
  T_OK(tide_machine_node_dependencies(m, last_node(m, p.a), nodes, 4, &count));
  T_EQ(count, 2);
  T_CHECK((nodes[0] == of_a && nodes[1] == of_b) || (nodes[0] == of_b && nodes[1] == of_a));
  (void)end(m, p.a);
}
