// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Streams and the pinned-host cache: what is announced, when a block is handed out again, which block a call
// names, and how many events it takes.
#define T_THREADS
#include "pinned/pinneds.h"

// Does the next request of its size get the memory of a released block? Releases what it gets.
static bool is_reused(tide_pinned_cache* p, tide_block released, size_t bytes) {
  const tide_block block = take(p, bytes);
  const bool is_same = is_same_memory(block, released);
  give(p, block);
  return is_same;
}

// ---------------------------------------------------------------------------------------------------
// Reuse

PINNED_TEST(test_pinned_streams__a_block_without_use_is_reusable_at_once) {
  (void)m;
  const tide_block block = take(p, SINGLE);
  T_EQ(state_of(p, block), TIDE_BLOCK_ALLOCATED);

  give(p, block);

  T_EQ(state_of(p, block), TIDE_BLOCK_INACTIVE);
  const tide_block again = take(p, SINGLE);
  T_PTR_EQ(again.address, block.address);
  T_NE(again.handle, block.handle);
}

// What happens before the release of a block, a letter each: its stream is held up, is announced, is
// announced now, or finishes. Does the block wait then?
typedef struct prelude {
  const char* steps;
  bool waits;
} prelude;

PINNED_TEST(test_pinned_streams__a_block_waits_for_announced_work) {
  static const prelude rows[] = {
    { "ha", true },    // queued work, then announced
    { "ah", true },    // an announced stream counts until the release
    { "hn", true },    // recorded now: queued work counts
    { "nfh", false },  // but later work does not
    { "nah", true },   // unless it is announced as well
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    const tide_stream stream = side_new(m);
    const tide_block block = take(p, SINGLE);
    gate g;
    for (const char* step = rows[i].steps; *step != '\0'; ++step) {
      if (*step == 'h') hold_up(&g, m, stream);
      if (*step == 'a') announce(p, block, stream);
      if (*step == 'n') announce_now(p, block, stream);
      if (*step == 'f') stream_finish(m, 0, stream);
    }

    give(p, block);
    poll_all(p);

    T_EQ(state_of(p, block), rows[i].waits ? TIDE_BLOCK_PENDING : TIDE_BLOCK_INACTIVE);
    T_EQ(current(p, waiting), rows[i].waits);
    T_EQ(is_reused(p, block, SINGLE), !rows[i].waits);
    let_go(&g);
    poll_all(p);
    T_EQ(current(p, waiting), 0);
    empty(p);
  }
}

PINNED_TEST(test_pinned_streams__a_request_looks_by_itself) {
  const tide_stream stream = side_new(m);
  const tide_block block = take(p, SINGLE);
  announce(p, block, stream);
  give(p, block);
  stream_finish(m, 0, stream);

  const tide_block again = take(p, SINGLE);

  T_PTR_EQ(again.address, block.address);
}

PINNED_TEST_OVER(test_pinned_streams__streams_of_two_devices_count, machine_emulated) {
  const tide_stream other = stream_new(m, 1, TIDE_STREAM_NON_BLOCKING);
  gate g;
  const tide_block block = take(p, SINGLE);
  gate_close(&g, m, 1, other);
  if (is_dry(m)) T_OK(tide_dry_work(m, 1, other, 1));
  T_OK(tide_pinned_record(p, block, 1, other));
  announce(p, block, side_new(m));
  give(p, block);

  poll_all(p);
  T_EQ(current(p, waiting), 1);

  let_go(&g);
  poll_all(p);
  T_EQ(current(p, waiting), 0);
}

// ---------------------------------------------------------------------------------------------------
// Recording at once

PINNED_TEST(test_pinned_streams__a_stream_recorded_at_once_may_go) {
  const tide_stream stream = side_new(m);
  const tide_block block = take(p, SINGLE);
  announce_now(p, block, stream);
  stream_finish(m, 0, stream);
  T_OK(tide_machine_stream_free(m, 0, stream));

  give(p, block);
  poll_all(p);

  T_EQ(current(p, waiting), 0);
  T_EQ(counter(p, num_record_failures), 0);
}

// The event of the first block is older than that of the second, although it is released later.
PINNED_TEST(test_pinned_streams__recorded_at_once_does_not_wait_behind_a_later_release) {
  const tide_stream stream = side_new(m);
  gate g;
  const tide_block early = take(p, SINGLE);
  const tide_block late = take(p, SINGLE);
  announce_now(p, early, stream);
  stream_finish(m, 0, stream);
  hold_up(&g, m, stream);
  announce(p, late, stream);
  give(p, late);

  give(p, early);
  poll_all(p);

  T_EQ(state_of(p, early), TIDE_BLOCK_INACTIVE);
  T_EQ(state_of(p, late), TIDE_BLOCK_PENDING);
  let_go(&g);
}

PINNED_TEST_OVER(test_pinned_streams__a_stream_recorded_at_once_again_and_again_takes_few_events,
                 machine_emulated) {
  const tide_stream streams[] = { side_new(m), TIDE_STREAM_PER_THREAD };
  const tide_block block = take(p, SINGLE);
  const uint64_t before = calls_made(m, TIDE_CALL_EVENT_NEW);

  for (int i = 0; i < 1000; ++i) {
    for (size_t k = 0; k < 2; ++k) announce_now(p, block, streams[k]);
    for (size_t k = 0; k < 2; ++k) stream_finish(m, 0, streams[k]);
  }

  T_LE(calls_made(m, TIDE_CALL_EVENT_NEW) - before, 100);
}

PINNED_TEST(test_pinned_streams__the_default_streams_can_be_announced) {
  const tide_stream streams[] = { NULL, TIDE_STREAM_LEGACY, TIDE_STREAM_PER_THREAD };
  for (size_t i = 0; i < 3; ++i) {
    const tide_block block = take(p, SINGLE);
    T_OK(tide_machine_fill(m, 0, streams[i], raw_new(m, 0, 4096), 1, 4096));
    announce(p, block, streams[i]);
    give(p, block);
    stream_finish(m, 0, streams[i]);
    poll_all(p);
    T_EQ(current(p, waiting), 0);
  }
}

// The legacy stream and NULL are one.
PINNED_TEST(test_pinned_streams__the_legacy_stream_has_two_names) {
  gate g;
  const tide_block block = take(p, SINGLE);
  hold_up(&g, m, NULL);
  announce(p, block, TIDE_STREAM_LEGACY);
  give(p, block);

  T_CHECK(!is_reused(p, block, SINGLE));

  let_go(&g);
  poll_all(p);
  T_EQ(current(p, waiting), 0);
}

typedef struct elsewhere {
  tide_pinned_cache* p;
  tide_block block;
} elsewhere;

static void* release_elsewhere(void* user) {
  const elsewhere* const e = user;
  give(e->p, e->block);
  return NULL;
}

// The stream is that of the thread that announces, whoever releases.
PINNED_TEST_OVER(test_pinned_streams__a_threads_own_stream_is_that_of_the_announcing_thread, machine_real) {
  elsewhere e = { p, take(p, SINGLE) };
  pthread_t thread;
  gate g;
  hold_up(&g, m, TIDE_STREAM_PER_THREAD);
  announce(p, e.block, TIDE_STREAM_PER_THREAD);

  t_thread_start(&thread, release_elsewhere, &e);
  t_thread_join(thread);

  T_CHECK(!is_reused(p, e.block, SINGLE));
  let_go(&g);
  poll_all(p);
  T_EQ(current(p, waiting), 0);
}

// ---------------------------------------------------------------------------------------------------
// Which block is meant

PINNED_TEST(test_pinned_streams__views_are_known_by_their_handle) {
  const tide_stream stream = side_new(m);
  const tide_block block = take(p, SINGLE);
  const tide_block view = { bytes_of(block) + 4096, block.handle };
  const tide_block last = { bytes_of(block) + SINGLE - 1, block.handle };
  const tide_block behind = { bytes_of(block) + SINGLE, block.handle };
  const tide_block before = { bytes_of(block) - 1, block.handle };
  gate g;
  hold_up(&g, m, stream);

  announce(p, view, stream);
  announce(p, last, stream);
  T_STATUS(tide_pinned_record(p, behind, 0, stream), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_record(p, before, 0, stream), TIDE_ERR_ARGUMENT);

  give(p, block);
  T_CHECK(!is_reused(p, block, SINGLE));
  let_go(&g);
}

PINNED_TEST(test_pinned_streams__base_addresses_are_known_with_any_handle) {
  const tide_stream stream = side_new(m);
  const tide_block block = take(p, SINGLE);
  gate g;
  hold_up(&g, m, stream);

  announce(p, (tide_block){ block.address, 0 }, stream);
  announce_now(p, (tide_block){ block.address, 12345 }, stream);

  give(p, block);
  T_CHECK(!is_reused(p, block, SINGLE));
  let_go(&g);
}

PINNED_TEST(test_pinned_streams__addresses_inside_need_the_handle) {
  const tide_stream stream = side_new(m);
  const tide_block block = take(p, SINGLE);
  const tide_block other = take(p, SINGLE);
  const tide_block foreign[] = { { bytes_of(block) + 512, 0 }, { bytes_of(block) + 512, other.handle } };

  for (size_t i = 0; i < 2; ++i) {
    T_STATUS(tide_pinned_record(p, foreign[i], 0, stream), TIDE_ERR_ARGUMENT);
    T_STATUS(tide_pinned_record_now(p, foreign[i], 0, stream), TIDE_ERR_ARGUMENT);
  }

  give(p, block);
  T_EQ(current(p, waiting), 0);
}

PINNED_TEST(test_pinned_streams__unknown_memory_is_not_announced) {
  const tide_stream stream = side_new(m);
  static uint8_t pageable[4096];
  uint8_t* const pinned = pinned_new(m, 4096);
  const tide_block unknown[] = { { pageable, 0 }, { pinned, 0 }, { (void*)4096, 77 }, { pageable, 77 } };

  for (size_t i = 0; i < 4; ++i) {
    T_STATUS(tide_pinned_record(p, unknown[i], 0, stream), TIDE_ERR_ARGUMENT);
    T_STATUS(tide_pinned_record_now(p, unknown[i], 0, stream), TIDE_ERR_ARGUMENT);
    T_STATUS(tide_pinned_release(p, unknown[i]), TIDE_ERR_ARGUMENT);
    T_STATUS(tide_pinned_release_address(p, unknown[i].address), TIDE_ERR_ARGUMENT);
  }
  T_OK(tide_machine_pinned_release(m, pinned));
}

PINNED_TEST(test_pinned_streams__small_blocks_are_known_apart) {
  const tide_stream stream = side_new(m);
  const tide_block first = take(p, 700);
  const tide_block second = take(p, 700);
  gate g;
  hold_up(&g, m, stream);
  announce(p, (tide_block){ second.address, 0 }, stream);

  give(p, first);
  give(p, second);

  T_EQ(current(p, waiting), 1);
  T_EQ(state_of(p, second), TIDE_BLOCK_PENDING);
  let_go(&g);
}

// ---------------------------------------------------------------------------------------------------
// Memory that is not handed out

PINNED_TEST(test_pinned_streams__released_memory_is_told_apart) {
  const tide_stream stream = side_new(m);
  const tide_block block = take(p, SINGLE);
  give(p, block);

  T_STATUS(tide_pinned_release(p, block), TIDE_ERR_STATE);
  T_STATUS(tide_pinned_release_address(p, block.address), TIDE_ERR_STATE);
  T_STATUS(tide_pinned_record(p, block, 0, stream), TIDE_ERR_STATE);
  T_STATUS(tide_pinned_record_now(p, block, 0, stream), TIDE_ERR_STATE);
  T_STATUS(tide_pinned_copy(p, block, 0, stream, raw_new(m, 0, 4096), block.address, 64), TIDE_ERR_STATE);

  T_EQ(current(p, active_requests), 0);
}

PINNED_TEST(test_pinned_streams__waiting_memory_is_told_apart) {
  const tide_stream stream = side_new(m);
  gate g;
  const tide_block block = take(p, SINGLE);
  hold_up(&g, m, stream);
  announce(p, block, stream);
  give(p, block);

  T_STATUS(tide_pinned_release(p, block), TIDE_ERR_STATE);
  T_STATUS(tide_pinned_release_address(p, block.address), TIDE_ERR_STATE);
  T_STATUS(tide_pinned_record(p, block, 0, stream), TIDE_ERR_STATE);

  let_go(&g);
  poll_all(p);
  T_EQ(current(p, waiting), 0);
  T_EQ(current(p, allocations), 1);
}

PINNED_TEST(test_pinned_streams__a_handle_goes_with_its_address) {
  (void)m;
  const tide_block block = take(p, SINGLE);
  const tide_block other = take(p, SINGLE);

  T_STATUS(tide_pinned_release(p, (tide_block){ other.address, block.handle }), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_release(p, (tide_block){ bytes_of(block) + 512, block.handle }), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_release_address(p, bytes_of(block) + 512), TIDE_ERR_ARGUMENT);

  T_EQ(current(p, active_requests), 2);
}

PINNED_TEST(test_pinned_streams__errors_say_what_was_named) {
  (void)m;
  static uint8_t pageable[64];
  const tide_block block = take(p, SINGLE);
  give(p, block);

  T_STATUS(tide_pinned_release(p, block), TIDE_ERR_STATE);
  T_STR_HAS(tide_last_error()->text, "released");
  empty(p);
  T_STATUS(tide_pinned_release(p, block), TIDE_ERR_HANDLE);
  T_NE(strlen(tide_last_error()->text), 0);
  T_STATUS(tide_pinned_release(p, (tide_block){ pageable, 0 }), TIDE_ERR_ARGUMENT);
  T_NE(strlen(tide_last_error()->text), 0);
}

PINNED_TEST(test_pinned_streams__two_caches_do_not_know_each_others_memory) {
  tide_pinned_cache* const other = pinned_open(m, NULL);
  const tide_block block = take(p, SINGLE);
  const tide_block small = take(p, 512);

  T_STATUS(tide_pinned_release_address(other, block.address), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_release_address(other, small.address), TIDE_ERR_ARGUMENT);
  T_NE(tide_pinned_release(other, block), TIDE_OK);
  T_NE(tide_pinned_record(other, block, 0, NULL), TIDE_OK);

  tide_pinned_leaks leaks = TIDE_PINNED_LEAKS_INIT;
  tide_pinned_free(other, &leaks);
  T_EQ(leaks.blocks, 0);
  give(p, block);
  give(p, small);
}

// ---------------------------------------------------------------------------------------------------
// Copies

PINNED_TEST(test_pinned_streams__a_copy_of_a_view_needs_only_the_handle) {
  const tide_stream stream = side_new(m);
  uint8_t* const device = raw_new(m, 0, SINGLE);
  const tide_block block = take(p, SINGLE);
  paint(m, block, 0x52, SINGLE);

  T_OK(tide_pinned_copy(p, block, 0, stream, device, bytes_of(block) + 512, 1024));
  stream_finish(m, 0, stream);

  expect_filled(m, 0, device, 0x52, 1024);
}

PINNED_TEST(test_pinned_streams__a_copy_must_touch_its_block) {
  const tide_stream stream = side_new(m);
  uint8_t* const device = raw_new(m, 0, 2 * SINGLE);
  const tide_block block = take(p, SINGLE);
  const tide_block other = take(p, SINGLE);

  T_STATUS(tide_pinned_copy(p, block, 0, stream, device, other.address, 512), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_copy(p, block, 0, stream, device, bytes_of(block) + SINGLE - 8, 16),
           TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_copy(p, block, 0, stream, device, block.address, SINGLE + 1), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_copy(p, block, 0, stream, device, block.address, SIZE_MAX), TIDE_ERR_ARGUMENT);

  give(p, other);
  T_EQ(current(p, waiting), 0);
}

PINNED_TEST(test_pinned_streams__a_copy_between_two_blocks_wants_both_announced) {
  const tide_stream stream = side_new(m);
  gate g;
  const tide_block from = take(p, SINGLE);
  const tide_block to = take(p, SINGLE);
  paint(m, from, 0x66, SINGLE);
  hold_up(&g, m, stream);
  T_OK(tide_pinned_copy(p, from, 0, stream, to.address, from.address, SINGLE));
  announce(p, to, stream);

  give(p, from);
  give(p, to);

  T_EQ(current(p, waiting), 2);
  let_go(&g);
  expect_painted(m, to.address, 0x66, SINGLE);
}

// ---------------------------------------------------------------------------------------------------
// Events

PINNED_TEST_OVER(test_pinned_streams__a_stream_announced_often_takes_one_event, machine_emulated) {
  const tide_stream stream = side_new(m);
  const tide_block block = take(p, SINGLE);
  const uint64_t before = calls_made(m, TIDE_CALL_EVENT_RECORD);
  for (int i = 0; i < 100; ++i) announce(p, block, stream);

  give(p, block);

  T_EQ(calls_made(m, TIDE_CALL_EVENT_RECORD) - before, 1);
}

PINNED_TEST_OVER(test_pinned_streams__events_are_used_again, machine_emulated) {
  const tide_stream stream = side_new(m);
  const uint64_t before = calls_made(m, TIDE_CALL_EVENT_NEW);

  for (int i = 0; i < 2000; ++i) {
    const tide_block block = take(p, SINGLE);
    announce(p, block, stream);
    give(p, block);
    stream_finish(m, 0, stream);
  }

  T_LE(calls_made(m, TIDE_CALL_EVENT_NEW) - before, 8);
}

// A stream that is gone when the block is released: nothing is lost, and nothing is handed out too early.
PINNED_TEST_OVER(test_pinned_streams__a_stream_that_went_before_the_release_loses_nothing, machine_emulated) {
  const tide_stream stream = side_new(m);
  const tide_block block = take(p, SINGLE);
  announce(p, block, stream);
  T_OK(tide_machine_stream_free(m, 0, stream));

  T_ANY(tide_pinned_release(p, block));
  T_ANY(tide_pinned_poll(p));

  T_LE(1, counter(p, num_record_failures));
  T_EQ(current(p, allocations), 1);
}
