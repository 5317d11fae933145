// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The helper thread of the pinned-host cache: it polls streams and gives back old memory, sleeps when there
// is nothing to do, and ends with its cache. The tests read statistics only, which do not poll.
#define T_THREADS
#include "pinned/pinneds.h"

PINNED_TEST_WITH(test_pinned_poller__blocks_come_back_by_themselves, machine_real, with_helper) {
  const tide_stream stream = side_new(m);
  gate g;
  const tide_block block = take(p, SINGLE);
  hold_up(&g, m, stream);
  announce(p, block, stream);
  give(p, block);
  T_EQ(current(p, waiting), 1);

  let_go(&g);

  T_WAIT(current(p, waiting) == 0);
  const tide_block again = take(p, SINGLE);
  T_PTR_EQ(again.address, block.address);
}

PINNED_TEST_WITH(test_pinned_poller__many_blocks_of_many_streams_come_back, machine_real, with_helper) {
  tide_stream streams[4];
  for (size_t i = 0; i < 4; ++i) streams[i] = side_new(m);
  for (size_t i = 0; i < 200; ++i) {
    const tide_block block = take(p, i % 2 == 0 ? 512 : SINGLE);
    T_OK(tide_machine_call(m, 0, streams[i % 4], call_slow, NULL));
    announce(p, block, streams[i % 4]);
    give(p, block);
  }
  T_WAIT(current(p, waiting) == 0);
  T_EQ(current(p, active_requests), 0);
}

PINNED_TEST_WITH(test_pinned_poller__a_stuck_stream_does_not_stop_the_helper, machine_real, with_helper) {
  const tide_stream stuck = side_new(m);
  const tide_stream quick = side_new(m);
  gate g;
  const tide_block first = take(p, SINGLE);
  const tide_block second = take(p, SINGLE);
  hold_up(&g, m, stuck);
  announce(p, first, stuck);
  give(p, first);
  announce(p, second, quick);
  give(p, second);

  T_WAIT(current(p, waiting) == 1);

  let_go(&g);
  T_WAIT(current(p, waiting) == 0);
}

static void with_aging_helper(tide_pinned_options* options) {
  options->has_helper = true;
  options->idle_ns = 5000000;
}

PINNED_TEST_WITH(test_pinned_poller__old_memory_goes_by_itself, machine_real, with_aging_helper) {
  (void)m;
  give(p, take(p, SINGLE));
  give(p, take(p, 512));

  T_WAIT(current(p, reserved_bytes) == 0);

  T_EQ(counter(p, num_aged), 2);
}

PINNED_TEST_WITH(test_pinned_poller__a_failing_query_is_tried_again, machine_host, with_helper) {
  const tide_stream stream = side_new(m);
  const tide_block block = take(p, SINGLE);
  break_calls(m, TIDE_CALL_EVENT_QUERY, TIDE_ERR_MACHINE, 3);
  announce(p, block, stream);
  give(p, block);

  T_WAIT(current(p, waiting) == 0);

  tide_machine_fault_clear(m);
  T_LE(1, counter(p, num_query_failures));
}

PINNED_TEST_WITH(test_pinned_poller__a_failing_record_is_tried_again, machine_host, with_helper) {
  const tide_stream stream = side_new(m);
  const tide_block block = take(p, SINGLE);
  announce(p, block, stream);
  break_calls(m, TIDE_CALL_EVENT_RECORD, TIDE_ERR_MACHINE, 3);
  give(p, block);

  T_WAIT(current(p, waiting) == 0);

  tide_machine_fault_clear(m);
  T_LE(1, counter(p, num_record_failures));
}

HOST_TEST(test_pinned_poller__two_caches_have_two_helpers_that_end_with_them) {
  tide_pinned_options options = TIDE_PINNED_OPTIONS_INIT;
  tide_pinned_cache* caches[2];
  options.has_helper = true;
  const size_t before = t_count_threads();
  for (size_t i = 0; i < 2; ++i) caches[i] = pinned_open(m, &options);
  T_LE(before + 2, t_count_threads());

  for (size_t i = 0; i < 2; ++i) tide_pinned_free(caches[i], NULL);

  machine_expect_threads(before);
}

HOST_TEST(test_pinned_poller__a_cache_without_one_starts_no_thread) {
  const size_t before = t_count_threads();
  tide_pinned_cache* const p = pinned_open(m, NULL);
  give(p, take(p, SINGLE));
  T_EQ(t_count_threads(), before);
  tide_pinned_free(p, NULL);
}

// The helper may be anywhere when its cache is freed.
HOST_TEST(test_pinned_poller__a_cache_can_be_freed_at_any_moment) {
  tide_pinned_options options = TIDE_PINNED_OPTIONS_INIT;
  const tide_stream stream = side_new(m);
  options.has_helper = true;
  options.idle_ns = 1000;
  for (size_t i = 0; i < t_scaled(200); ++i) {
    tide_pinned_cache* const p = pinned_open(m, &options);
    tide_pinned_leaks leaks = TIDE_PINNED_LEAKS_INIT;
    for (size_t n = 0; n < i % 5; ++n) {
      const tide_block block = take(p, n % 2 == 0 ? SINGLE : 512);
      announce(p, block, stream);
      give(p, block);
    }
    if (i % 3 == 0) t_sleep_us(i % 100);
    tide_pinned_free(p, &leaks);
    T_EQ(leaks.blocks, 0);
    T_EQ(leaks.refused_pieces, 0);
  }
}

// The time of the dry machine stands still while nobody calls it; the helper must not advance it.
PINNED_TEST_WITH(test_pinned_poller__works_on_the_dry_machine_too, machine_dry, with_helper) {
  const tide_stream stream = side_new(m);
  for (int i = 0; i < 100; ++i) {
    const tide_block block = take(p, SINGLE);
    T_OK(tide_dry_work(m, 0, stream, 1000));
    announce(p, block, stream);
    give(p, block);
    T_OK(tide_dry_advance(m, 2000));
  }
  stream_finish(m, 0, stream);
  T_WAIT(current(p, waiting) == 0);
}
