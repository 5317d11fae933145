// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Captured graphs: memory that is allocated inside a capture belongs to the pool of its graph, and stays
// valid for the launches.
#define T_THREADS
#define DEVICE_HAS_PLAIN
#include "device/devices.h"

#define BYTES (64 * KIB)

// ---------------------------------------------------------------------------------------------------
// Captures that allocate

static void launch(tide_machine* m, tide_launch graph, tide_stream stream) {
  T_OK(tide_machine_launch(m, 0, graph, stream));
  stream_finish(m, 0, stream);
}

static void copy_on(tide_machine* m, tide_stream stream, tide_block to, tide_block from) {
  T_OK(tide_machine_copy(m, 0, stream, to.address, from.address, BYTES));
}

// A graph that writes `value` into memory it requests and gives back, of `bytes` bytes.
static tide_launch capture_scratch(tide_machine* m, tide_device_cache* d, tide_stream stream, tide_pool pool,
                                   uint8_t value, size_t bytes, void** out_address) {
  capture_open(m, d, stream, pool);
  const tide_block block = take(d, stream, bytes);
  paint(m, stream, block, value, bytes);
  give(d, block);
  if (out_address != NULL) *out_address = block.address;
  return capture_close(m, d, stream, pool);
}

// ---------------------------------------------------------------------------------------------------
// Launching

DEVICE_TEST(test_device__memory_of_a_graph_stays_valid_through_launches) {
  const tide_stream stream = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  const tide_block input = take(d, stream, BYTES);
  capture_open(m, d, stream, pool);
  const tide_block middle = take(d, stream, BYTES);
  copy_on(m, stream, middle, input);
  const tide_block output = take(d, stream, BYTES);
  copy_on(m, stream, output, middle);
  give(d, middle);
  const tide_launch graph = capture_close(m, d, stream, pool);

  for (uint8_t value = 1; value <= 20; ++value) {
    const tide_block noise = take(d, stream, BYTES);  // not what was given back in the capture
    T_CHECK(noise.address != middle.address);
    device_fill(m, 0, bytes_of(noise), 0xee, BYTES);
    device_fill(m, 0, bytes_of(input), value, BYTES);
    launch(m, graph, stream);
    expect_filled(m, 0, bytes_of(output), value, BYTES);
    expect_filled(m, 0, bytes_of(noise), 0xee, BYTES);
    if (value % 2 == 0) give(d, noise);
  }

  T_OK(tide_machine_launch_free(m, graph));
}

DEVICE_TEST(test_device__temporary_memory_is_used_again_inside_a_capture) {
  const tide_stream stream = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  const tide_block results[2] = { take(d, stream, BYTES), take(d, stream, BYTES) };
  void* addresses[2];

  capture_open(m, d, stream, pool);
  for (size_t i = 0; i < 2; ++i) {
    const tide_block scratch = take(d, stream, BYTES);
    addresses[i] = scratch.address;
    paint(m, stream, scratch, (uint8_t)(i + 1), BYTES);
    copy_on(m, stream, results[i], scratch);
    give(d, scratch);
  }
  const tide_launch graph = capture_close(m, d, stream, pool);
  launch(m, graph, stream);

  T_PTR_EQ(addresses[1], addresses[0]);
  expect_filled(m, 0, bytes_of(results[0]), 1, BYTES);
  expect_filled(m, 0, bytes_of(results[1]), 2, BYTES);
}

DEVICE_TEST(test_device__only_streams_of_the_capture_are_routed) {
  const tide_stream stream = side_new(m);
  const tide_stream forked = side_new(m);
  const tide_stream outside = side_new(m);
  const tide_event event = event_new(m, 0);
  const tide_pool pool = pool_new(d, NULL);

  capture_open(m, d, stream, pool);
  (void)take(d, outside, 12 * MIB);
  (void)take(d, forked, 12 * MIB);  // not yet
  T_EQ(pool_reserved(d, pool), 0);
  stream_follow(m, forked, stream, event);
  (void)take(d, forked, 12 * MIB);
  T_EQ(pool_reserved(d, pool), 12 * MIB);
  (void)take(d, stream, 12 * MIB);
  T_EQ(pool_reserved(d, pool), 24 * MIB);
  stream_follow(m, stream, forked, event);
  (void)capture_close(m, d, stream, pool);

  (void)take(d, stream, 12 * MIB);
  T_EQ(pool_reserved(d, pool), 24 * MIB);
}

// ---------------------------------------------------------------------------------------------------
// Shared pools

DEVICE_TEST(test_device__graphs_that_share_a_pool_use_the_same_memory) {
  const tide_stream stream = side_new(m);
  const tide_pool shared = pool_new(d, NULL);
  void* first = NULL;
  void* second = NULL;
  const tide_launch a = capture_scratch(m, d, stream, shared, 1, BYTES, &first);
  const int64_t once = current(d, reserved_bytes);
  const tide_launch b = capture_scratch(m, d, stream, shared, 2, BYTES, &second);
  T_PTR_EQ(first, second);
  T_EQ(current(d, reserved_bytes), once);
  (void)capture_scratch(m, d, stream, pool_new(d, NULL), 4, BYTES, NULL);
  T_EQ(current(d, reserved_bytes), 2 * once);

  launch(m, a, stream);
  launch(m, b, stream);
  expect_filled(m, 0, first, 2, BYTES);
  launch(m, a, stream);  // out of order: what b left is lost

  expect_filled(m, 0, first, 1, BYTES);
}

DEVICE_TEST(test_device__a_result_that_is_kept_is_not_used_by_the_next_capture) {
  const tide_stream stream = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  capture_open(m, d, stream, pool);
  const tide_block kept = take(d, stream, BYTES);
  paint(m, stream, kept, 1, BYTES);
  const tide_launch a = capture_close(m, d, stream, pool);
  const tide_launch b = capture_scratch(m, d, stream, pool, 2, BYTES, NULL);

  for (int i = 0; i < 3; ++i) {
    launch(m, a, stream);
    launch(m, b, stream);
    expect_filled(m, 0, bytes_of(kept), 1, BYTES);
  }
}

// ---------------------------------------------------------------------------------------------------
// Statistics by size, trimming, and the end of a graph

typedef struct size_case {
  size_t bytes;
  size_t reserved;          // with torch
  size_t reserved_by_tide;  // whole units of 2 MiB
} size_case;

static const size_case size_cases[] = {
  { 512, 2 * MIB, 2 * MIB },       { MIB, 2 * MIB, 2 * MIB },        { MIB + 512, 20 * MIB, 2 * MIB },
  { 9 * MIB, 20 * MIB, 10 * MIB }, { 11 * MIB, 12 * MIB, 12 * MIB },
};

static void expect_graph_memory(tide_machine* m, tide_device_cache* d, tide_stream stream,
                                const size_case* c) {
  const size_t reserved = is_tide() && !has_plain_pools() ? c->reserved_by_tide : c->reserved;
  const tide_pool pool = pool_new(d, NULL);
  capture_open(m, d, stream, pool);
  const tide_block result = take(d, stream, c->bytes);
  paint(m, stream, result, 6, c->bytes);
  const tide_launch graph = capture_close(m, d, stream, pool);
  T_EQ(current(d, reserved_bytes), reserved);

  expect_trimmed(d, reserved);
  launch(m, graph, stream);
  T_OK(tide_machine_launch_free(m, graph));
  T_OK(tide_device_pool_drop(d, pool));
  trim(d);
  T_EQ(current(d, reserved_bytes), reserved);  // the result is still there
  expect_filled(m, 0, bytes_of(result), 6, c->bytes);
  give(d, result);

  expect_trimmed(d, 0);
  T_EQ(current(d, active), 0);
}

DEVICE_TEST(test_device__memory_of_a_graph_lives_until_graph_and_result_are_gone) {
  const tide_stream stream = side_new(m);

  for (size_t i = 0; i < sizeof size_cases / sizeof size_cases[0]; ++i) {
    expect_graph_memory(m, d, stream, &size_cases[i]);
  }

  T_EQ(count_segments(d), 0);
}

DEVICE_TEST(test_device__graphs_one_after_the_other_leave_nothing) {
  const tide_stream stream = side_new(m);
  give(d, take(d, stream, BYTES));
  const int64_t before = current(d, reserved_bytes);

  for (int i = 0; i < 10; ++i) {
    const tide_pool pool = pool_new(d, NULL);
    const tide_launch graph = capture_scratch(m, d, stream, pool, 1, 3 * MIB, NULL);
    launch(m, graph, stream);
    T_OK(tide_machine_launch_free(m, graph));
    T_OK(tide_device_pool_drop(d, pool));
    T_OK(tide_device_trim_pool(d, pool));
  }

  T_EQ(current(d, reserved_bytes), before);
  T_EQ(current(d, allocation), 0);
}

TORCH_TEST(test_device__a_graph_in_expandable_segments) {
  const tide_stream stream = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  expand(m, d);
  capture_open(m, d, stream, pool);
  const tide_block result = take(d, stream, 22 * MIB);
  paint(m, stream, result, 9, 22 * MIB);
  const tide_launch graph = capture_close(m, d, stream, pool);
  trim(d);

  launch(m, graph, stream);

  expect_filled(m, 0, bytes_of(result), 9, 22 * MIB);
  T_EQ(pool_reserved(d, pool), 40 * MIB);
}

// ---------------------------------------------------------------------------------------------------
// What a capture must not do

DEVICE_TEST(test_device__announcing_streams_in_a_capture_queries_no_event) {
  const tide_stream stream = side_new(m);
  const tide_stream side = side_new(m);
  const tide_event event = event_new(m, 0);
  const tide_pool pool = pool_new(d, NULL);
  const uint64_t queries = tide_machine_call_stats(m, TIDE_CALL_EVENT_QUERY).calls;

  capture_open(m, d, stream, pool);
  const tide_block block = take(d, stream, BYTES);
  stream_follow(m, side, stream, event);
  paint(m, side, block, 1, BYTES);
  give_announced(d, block, side);
  T_CHECK(take(d, stream, BYTES).address != block.address);
  T_OK(tide_device_poll(d));
  T_EQ(tide_machine_call_stats(m, TIDE_CALL_EVENT_QUERY).calls, queries);
  stream_follow(m, stream, side, event);
  const tide_launch graph = capture_close(m, d, stream, pool);

  expect_polled(d, 1);
  launch(m, graph, stream);
}

DEVICE_TEST(test_device__out_of_memory_in_a_capture_does_not_break_it) {
  const tide_stream stream = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  limit_to(d, 40 * MIB);
  give(d, take(d, NULL, 30 * MIB));

  capture_open(m, d, stream, pool);
  expect_oom(d, stream, 20 * MIB);
  const tide_block block = take(d, stream, 10 * MIB);
  paint(m, stream, block, 5, 10 * MIB);
  const tide_launch graph = capture_close(m, d, stream, pool);
  launch(m, graph, stream);

  T_EQ(current(d, reserved_bytes), 40 * MIB);
  expect_filled(m, 0, bytes_of(block), 5, 10 * MIB);
}

TORCH_TEST(test_device__targeted_release_in_a_capture_breaks_it_as_in_torch) {
  const tide_stream stream = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  tide_launch graph = NULL;
  configure(d, "max_split_size_mb:20");
  limit_to(d, 60 * MIB);

  capture_open(m, d, stream, pool);
  give(d, take(d, stream, 24 * MIB));
  T_STATUS(try_take(d, stream, 50 * MIB), TIDE_ERR_CAPTURE);
  T_STATUS(tide_machine_capture_end(m, 0, stream, &graph), TIDE_ERR_CAPTURE);
  scope_close(d, pool);

  T_EQ(pool_reserved(d, pool), 24 * MIB);
}

static bool is_captured(tide_machine* m, tide_stream stream) {
  tide_capture_state state = TIDE_CAPTURE_NONE;
  uint64_t id = 0;
  T_OK(tide_machine_capture_info(m, 0, stream, &state, &id));
  return state != TIDE_CAPTURE_NONE;
}

static void expect_other_stays_outside(tide_machine* m, tide_device_cache* d, bool is_used_by_both) {
  const tide_stream captured = side_new(m);
  const tide_stream other = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  configure(d, "captures_by_stream:True");
  if (is_used_by_both) give(d, take(d, other, 4 * MIB));
  give(d, take(d, captured, 4 * MIB));  // tide: the same memory, if both use it

  capture_open(m, d, captured, pool);
  (void)take(d, other, 4 * MIB);

  T_CHECK(!is_captured(m, other));
  (void)capture_close(m, d, captured, pool);
}

DEVICE_TEST(test_device__idle_memory_of_a_captured_stream_pulls_no_other_into_the_capture) {
  expect_other_stays_outside(m, d, false);
  expect_other_stays_outside(m, d, true);
}

DEVICE_TEST(test_device__trim_in_a_capture_does_not_break_it) {
  const tide_stream stream = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  give(d, take(d, stream, 12 * MIB));

  capture_open(m, d, stream, pool);
  give(d, take(d, stream, 12 * MIB));
  trim(d);
  const tide_launch graph = capture_close(m, d, stream, pool);
  launch(m, graph, stream);

  T_EQ(current(d, reserved_bytes), 24 * MIB);
}

typedef struct outsider {
  tide_device_cache* device;
  tide_block block;
} outsider;

static void* take_outside(void* user) {
  outsider* const o = user;
  o->block = take(o->device, NULL, 12 * MIB);
  return NULL;
}

static void expect_outsider_served(tide_machine* m, tide_device_cache* d, tide_capture_mode mode) {
  const tide_stream stream = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  outsider o = { d, { NULL, 0 } };

  capture_open_as(m, d, stream, pool, mode);
  run_threads(1, take_outside, &o);
  (void)capture_close(m, d, stream, pool);

  T_EQ(pool_reserved(d, pool), 0);
  device_fill(m, 0, bytes_of(o.block), 1, 12 * MIB);
}

DEVICE_TEST(test_device__another_thread_allocates_during_a_capture) {
  expect_outsider_served(m, d, TIDE_CAPTURE_THREAD_LOCAL);
  expect_outsider_served(m, d, TIDE_CAPTURE_RELAXED);
}

// ---------------------------------------------------------------------------------------------------
// Reuse inside a capture

#define SIDES_MAX 3

typedef struct fork_case {
  tide_machine* m;
  tide_device_cache* d;
  tide_stream stream;
  tide_stream sides[SIDES_MAX];
  tide_event event;
  tide_pool pool;
  size_t side_count;
  tide_block block;
} fork_case;

// Opens a capture with side streams, each of which writes a block that is then released.
static void fork_open(fork_case* f, tide_machine* m, tide_device_cache* d, size_t side_count,
                      const char* options) {
  *f = (fork_case){ .m = m, .d = d, .side_count = side_count };
  configure(d, options);
  f->stream = side_new(m);
  f->event = event_new(m, 0);
  f->pool = pool_new(d, NULL);
  for (size_t i = 0; i < side_count; ++i) f->sides[i] = side_new(m);
  capture_open(m, d, f->stream, f->pool);
  f->block = take(d, f->stream, BYTES);
  paint(m, f->stream, f->block, 1, BYTES);
  for (size_t i = 0; i < side_count; ++i) {
    stream_follow(m, f->sides[i], f->stream, f->event);
    paint(m, f->sides[i], f->block, (uint8_t)(i + 2), BYTES);
    announce(d, f->block, f->sides[i]);
  }
  give(d, f->block);
}

// Does the main stream get the block again?
static bool fork_reuses(fork_case* f) {
  const tide_block block = take(f->d, f->stream, BYTES);
  paint(f->m, f->stream, block, 9, BYTES);
  return block.address == f->block.address;
}

static void fork_join(fork_case* f, size_t side) { stream_follow(f->m, f->stream, f->sides[side], f->event); }

static void fork_close(fork_case* f) {
  const tide_launch graph = capture_close(f->m, f->d, f->stream, f->pool);
  launch(f->m, graph, f->stream);
}

static void expect_reuse_after_the_full_join(tide_machine* m, tide_device_cache* d, size_t side_count) {
  fork_case f;
  fork_open(&f, m, d, side_count, "graph_capture_record_stream_reuse:True");

  for (size_t i = 0; i < side_count; ++i) {
    T_CHECK(!fork_reuses(&f));
    fork_join(&f, i);
  }
  T_CHECK(fork_reuses(&f));

  fork_close(&f);
  expect_filled(m, 0, bytes_of(f.block), 9, BYTES);
}

DEVICE_TEST(test_device__capture_reuse_comes_after_the_full_join) {
  expect_reuse_after_the_full_join(m, d, 1);
  expect_reuse_after_the_full_join(m, d, 3);
}

DEVICE_TEST(test_device__without_capture_reuse_the_capture_must_end_first) {
  fork_case f;
  fork_open(&f, m, d, 1, "");

  fork_join(&f, 0);
  T_CHECK(!fork_reuses(&f));
  fork_close(&f);

  expect_polled(d, 1);
  T_PTR_EQ(take_in(d, f.pool, f.stream, BYTES).address, f.block.address);
}

DEVICE_TEST(test_device__capture_reuse_needs_all_streams_in_the_capture) {
  const tide_stream stream = side_new(m);
  const tide_stream outside = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  configure(d, "graph_capture_record_stream_reuse:True");

  capture_open(m, d, stream, pool);
  const tide_block block = take(d, stream, BYTES);
  give_announced(d, block, outside);
  const tide_block next = take(d, stream, BYTES);
  (void)capture_close(m, d, stream, pool);

  T_CHECK(next.address != block.address);
}
