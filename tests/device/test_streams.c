// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Streams: memory is reused at once on its own stream, and elsewhere only after the announced work is done.
#define T_THREADS
#include "device/devices.h"

#define BYTES (4 * KIB)

// ---------------------------------------------------------------------------------------------------
// Its own stream

DEVICE_TEST(test_device__own_stream_reuses_at_once_while_work_is_queued) {
  const tide_stream stream = side_new(m);
  gate g;
  const tide_block first = take(d, stream, BYTES);
  hold_up(&g, m, stream);
  paint(m, stream, first, 1, BYTES);
  give(d, first);

  const tide_block second = take(d, stream, BYTES);
  paint(m, stream, second, 2, BYTES);
  let_go(&g);

  T_PTR_EQ(second.address, first.address);
  expect_filled(m, 0, bytes_of(second), 2, BYTES);
}

DEVICE_TEST(test_device__another_stream_does_not_get_the_block) {
  const tide_stream a = side_new(m);
  const tide_stream b = side_new(m);
  const tide_block first = take(d, a, BYTES);
  give(d, first);

  const tide_block second = take(d, b, BYTES);

  T_CHECK(second.address != first.address);
  T_PTR_EQ(take(d, a, BYTES).address, first.address);
}

DEVICE_TEST(test_device__announcing_its_own_stream_is_nothing) {
  const tide_stream stream = side_new(m);
  gate g;
  const tide_block first = take(d, stream, BYTES);
  hold_up(&g, m, stream);

  give_announced(d, first, stream);

  T_EQ(current(d, active), 0);
  T_PTR_EQ(take(d, stream, BYTES).address, first.address);
  let_go(&g);
}

// ---------------------------------------------------------------------------------------------------
// Announced work

static void expect_no_early_reuse(tide_machine* m, tide_device_cache* d, bool is_queued_later) {
  const tide_stream side = side_new(m);
  gate g;
  const tide_block first = take(d, NULL, BYTES);
  if (is_queued_later) announce(d, first, side);
  hold_up(&g, m, side);
  paint(m, side, first, 7, BYTES);
  if (!is_queued_later) announce(d, first, side);
  give(d, first);

  const tide_block second = take(d, NULL, BYTES);
  T_CHECK(second.address != first.address);
  let_go(&g);
  const tide_block third = take(d, NULL, BYTES);

  T_PTR_EQ(third.address, first.address);
  expect_filled(m, 0, bytes_of(third), 7, BYTES);
}

DEVICE_TEST(test_device__no_reuse_before_the_side_stream_has_finished) { expect_no_early_reuse(m, d, false); }

DEVICE_TEST(test_device__work_queued_after_the_announcement_counts_too) { expect_no_early_reuse(m, d, true); }

DEVICE_TEST(test_device__waiting_blocks_are_active_but_not_allocated) {
  const tide_stream side = side_new(m);
  gate g;
  const tide_block block = take(d, NULL, 1000);
  hold_up(&g, m, side);

  give_announced(d, block, side);
  T_EQ(current(d, allocation), 0);
  T_EQ(current(d, allocated_bytes), 0);
  T_EQ(current(d, active), 1);
  T_EQ(current(d, active_bytes), 1024);
  T_EQ(current(d, requested_bytes), 1000);

  let_go(&g);
  expect_polled(d, 0);
  T_EQ(current(d, requested_bytes), 0);
}

DEVICE_TEST(test_device__all_announced_streams_must_finish) {
  const tide_stream a = side_new(m);
  const tide_stream b = side_new(m);
  gate ga;
  gate gb;
  const tide_block block = take(d, NULL, BYTES);
  hold_up(&ga, m, a);
  hold_up(&gb, m, b);
  announce(d, block, a);
  announce(d, block, b);
  announce(d, block, a);  // a second time is nothing new
  give(d, block);

  let_go(&ga);
  expect_polled(d, 1);
  let_go(&gb);

  expect_polled(d, 0);
}

DEVICE_TEST(test_device__one_stream_does_not_hold_up_the_blocks_of_another) {
  const tide_stream slow = side_new(m);
  const tide_stream fast = side_new(m);
  gate g;
  const tide_block held = take(d, NULL, BYTES);
  const tide_block quick = take(d, NULL, BYTES);
  hold_up(&g, m, slow);
  announce(d, held, slow);
  announce(d, quick, fast);
  give(d, held);
  give(d, quick);

  stream_finish(m, 0, fast);
  T_OK(tide_device_poll(d));

  T_EQ(current(d, active), 1);
  if (!is_tide()) T_PTR_EQ(take(d, NULL, BYTES).address, quick.address);  // tide has others at hand
  let_go(&g);
}

DEVICE_TEST(test_device__waiting_neighbours_do_not_merge) {
  const tide_stream side = side_new(m);
  gate g;
  const tide_block a = take(d, NULL, MIB / 2);
  const tide_block b = take(d, NULL, MIB / 2);
  hold_up(&g, m, side);

  give_announced(d, a, side);
  give(d, b);
  T_EQ(count_all_blocks(d), 2);
  let_go(&g);
  T_OK(tide_device_poll(d));

  T_EQ(count_all_blocks(d), 1);
}

DEVICE_TEST(test_device__trim_waits_for_announced_work) {
  const tide_stream side = side_new(m);
  const tide_block block = take(d, NULL, BYTES);
  work_slowly(m, side);
  give_announced(d, block, side);

  trim(d);

  T_EQ(counter(d, num_sync_all_streams), 1);
  T_EQ(current(d, active), 0);
  T_EQ(current(d, reserved_bytes), 0);
}

DEVICE_TEST(test_device__a_release_without_an_event_waits_for_a_later_one) {
  const tide_stream side = side_new(m);
  const tide_block block = take(d, NULL, BYTES);
  announce(d, block, side);
  break_calls(m, TIDE_CALL_EVENT_RECORD, TIDE_ERR_MACHINE, 1);

  give(d, block);
  T_EQ(current(d, active), 1);
  T_OK(tide_device_poll(d));
  stream_finish(m, 0, side);

  expect_polled(d, 0);
}

DEVICE_TEST(test_device__a_failed_query_is_an_error_of_poll_and_not_of_requests) {
  const tide_stream side = side_new(m);
  const tide_block block = take(d, NULL, BYTES);
  give_announced(d, block, side);
  stream_finish(m, 0, side);
  break_calls(m, TIDE_CALL_EVENT_QUERY, TIDE_ERR_MACHINE, 2);

  (void)take(d, NULL, BYTES);
  T_STATUS(tide_device_poll(d), TIDE_ERR_MACHINE);
  T_EQ(current(d, active), 2);

  expect_polled(d, 1);
}

DEVICE_TEST(test_device__announced_memory_taken_100_times_does_not_run_out) {
  const tide_stream side = side_new(m);
  limit_to(d, 100 * MIB);

  for (int i = 0; i < 100; ++i) {
    const tide_block block = take(d, NULL, 40 * MIB);
    work_slowly(m, side);
    announce(d, block, side);
    give(d, block);
  }

  T_EQ(counter(d, num_ooms), 0);
  T_LE(current(d, reserved_bytes), 100 * MIB);
}

DEVICE_TEST(test_device__side_stream_reads_what_was_there_at_release) {
  enum { ROUNDS = 50 };
  const tide_stream main_stream = side_new(m);
  const tide_stream side = side_new(m);
  const tide_event ready = event_new(m, 0);
  uint8_t* const results = pinned_new(m, ROUNDS * KIB);

  for (size_t i = 0; i < ROUNDS; ++i) {
    const tide_block block = take(d, main_stream, KIB);
    paint(m, main_stream, block, (uint8_t)(i + 1), KIB);
    stream_follow(m, side, main_stream, ready);
    T_OK(tide_machine_call(m, 0, side, call_slow, NULL));
    T_OK(tide_machine_copy(m, 0, side, results + i * KIB, block.address, KIB));
    announce(d, block, side);
    give(d, block);
  }
  stream_finish(m, 0, side);

  for (size_t i = 0; i < ROUNDS && machine_has_memory(m); ++i) {
    T_FILLED(results + i * KIB, (uint8_t)(i + 1), KIB);
  }
}

// ---------------------------------------------------------------------------------------------------
// Inside scopes

// A block is announced before a scope or in it, and released in the scope. It waits for the end of the scope,
// and for the announced work.
static void expect_wait_beside_a_scope(tide_machine* m, tide_device_cache* d, bool is_announced_inside) {
  const tide_stream side = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  gate g;
  const tide_block block = take(d, NULL, BYTES);
  if (!is_announced_inside) announce(d, block, side);

  scope_open(d, pool);
  if (is_announced_inside) announce(d, block, side);
  give(d, block);
  stream_finish(m, 0, side);
  expect_polled(d, 1);
  hold_up(&g, m, side);
  scope_close(d, pool);
  expect_polled(d, 1);
  let_go(&g);

  expect_polled(d, 0);
}

DEVICE_TEST(test_device__releases_inside_a_scope_wait_for_its_end_and_for_announced_work) {
  expect_wait_beside_a_scope(m, d, false);
  expect_wait_beside_a_scope(m, d, true);
}

DEVICE_TEST(test_device__a_scope_polls_nothing) {
  const tide_stream side = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  const tide_block block = take(d, NULL, BYTES);
  give_announced(d, block, side);
  stream_finish(m, 0, side);
  const uint64_t queries = tide_machine_call_stats(m, TIDE_CALL_EVENT_QUERY).calls;

  scope_open(d, pool);
  (void)take(d, NULL, BYTES);
  T_OK(tide_device_poll(d));
  const uint64_t during = tide_machine_call_stats(m, TIDE_CALL_EVENT_QUERY).calls;
  scope_close(d, pool);

  T_EQ(during, queries);
  T_EQ(current(d, active), 2);
}
