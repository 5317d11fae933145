// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Private pools of the pinned-host cache: their users, which requests scopes send there, when their memory
// goes back, and what a captured graph can rely on.
#define T_THREADS
#include "pinned/pinneds.h"

#define BYTES (64 * KIB)

static uint64_t pool_reserved(tide_pinned_cache* p, tide_pool pool) { return pool_sum(p, pool).bytes; }

static tide_pinned_scope scope_of(tide_scope_kind kind) {
  tide_pinned_scope scope = TIDE_PINNED_SCOPE_INIT;
  scope.kind = kind;
  return scope;
}

static tide_block take_on(tide_pinned_cache* p, tide_stream stream, size_t bytes) {
  tide_block block = block_none;
  T_OK(tide_pinned_alloc_on(p, 0, stream, bytes, &block));
  return block;
}

// ---------------------------------------------------------------------------------------------------
// Users

PINNED_TEST(test_pinned_pools__a_pool_that_is_gone_is_no_pool) {
  (void)m;
  const tide_pool pool = pool_new(p);
  uint32_t users = 7;
  T_OK(tide_pinned_pool_drop(p, pool));
  empty(p);

  T_STATUS(tide_pinned_pool_users(p, pool, &users), TIDE_ERR_HANDLE);
  T_EQ(users, 0);
  T_STATUS(tide_pinned_pool_retain(p, pool), TIDE_ERR_HANDLE);
  T_STATUS(tide_pinned_pool_drop(p, pool), TIDE_ERR_HANDLE);
  T_STATUS(pool_begin_kept(p, pool, NULL), TIDE_ERR_HANDLE);
  T_STATUS(tide_pinned_pool_end(p, pool), TIDE_ERR_HANDLE);
  T_NE(pool_new(p), pool);  // numbers are not used again
}

// ---------------------------------------------------------------------------------------------------
// Which requests a scope takes

PINNED_TEST(test_pinned_pools__a_scope_takes_the_requests_of_its_thread) {
  (void)m;
  const tide_pool pool = pool_new(p);
  const tide_block outside = take(p, BYTES);

  const tide_block inside = take_in(p, pool, BYTES);

  T_EQ(pool_reserved(p, pool), BYTES);
  T_EQ(current(p, reserved_bytes), 2 * BYTES);
  give(p, inside);
  give(p, outside);
}

typedef struct stranger {
  tide_pinned_cache* p;
  tide_block block;
} stranger;

static void* take_elsewhere(void* user) {
  stranger* const s = user;
  s->block = take(s->p, BYTES);
  return NULL;
}

static tide_block take_on_another_thread(tide_pinned_cache* p) {
  stranger s = { p, { NULL, 0 } };
  pthread_t thread;
  t_thread_start(&thread, take_elsewhere, &s);
  t_thread_join(thread);
  return s.block;
}

PINNED_TEST(test_pinned_pools__a_scope_for_all_takes_those_of_others) {
  (void)m;
  const tide_pool pool = pool_new(p);
  const tide_pinned_scope scope = scope_of(TIDE_SCOPE_ALL);
  T_OK(pool_begin_kept(p, pool, &scope));

  (void)take_on_another_thread(p);
  (void)take(p, BYTES);

  T_EQ(pool_reserved(p, pool), 2 * BYTES);
  scope_close(p, pool);
}

PINNED_TEST(test_pinned_pools__a_scope_of_a_stream_takes_requests_for_it) {
  const tide_pool pool = pool_new(p);
  const tide_stream mine = side_new(m);
  tide_pinned_scope scope = scope_of(TIDE_SCOPE_STREAM);
  scope.stream = mine;
  T_OK(pool_begin_kept(p, pool, &scope));

  (void)take(p, BYTES);  // for no stream
  (void)take_on(p, side_new(m), BYTES);
  T_EQ(pool_reserved(p, pool), 0);
  (void)take_on(p, mine, BYTES);

  T_EQ(pool_reserved(p, pool), BYTES);
  scope_close(p, pool);
}

typedef struct filter_note {
  tide_stream wanted;
  int last_device;
  int calls;
} filter_note;

static bool filter_stream(void* user, int device, tide_stream stream) {
  filter_note* const n = user;
  n->last_device = device;
  n->calls++;
  return stream == n->wanted && device >= 0;
}

PINNED_TEST(test_pinned_pools__a_filter_decides) {
  const tide_pool pool = pool_new(p);
  filter_note note = { side_new(m), 7, 0 };
  tide_pinned_scope scope = scope_of(TIDE_SCOPE_FILTER);
  scope.filter = filter_stream;
  scope.user = &note;
  T_OK(pool_begin_kept(p, pool, &scope));

  (void)take(p, BYTES);
  T_EQ(note.last_device, -1);
  T_EQ(pool_reserved(p, pool), 0);
  (void)take_on(p, note.wanted, BYTES);
  T_EQ(note.last_device, 0);

  T_EQ(note.calls, 2);
  T_EQ(pool_reserved(p, pool), BYTES);
  scope_close(p, pool);
  (void)take_on(p, note.wanted, BYTES);
  T_EQ(note.calls, 2);
}

// ---------------------------------------------------------------------------------------------------
// Memory of pools

PINNED_TEST(test_pinned_pools__pools_do_not_share_memory) {
  (void)m;
  const tide_pool first = pool_new(p);
  const tide_pool second = pool_new(p);
  const tide_block plain = take(p, BYTES);
  give(p, plain);

  const tide_block one = take_in(p, first, BYTES);
  give(p, one);
  const tide_block two = take_in(p, second, BYTES);

  T_CHECK(!is_same_memory(one, plain));
  T_CHECK(!is_same_memory(one, two));
  T_PTR_EQ(take(p, BYTES).address, plain.address);
  T_PTR_EQ(take_in(p, first, BYTES).address, one.address);
}

PINNED_TEST(test_pinned_pools__small_blocks_of_pools_do_not_share_chunks) {
  const tide_pool pool = pool_new(p);
  const tide_block plain = take(p, 512);
  const tide_block inside = take_in(p, pool, 512);

  T_CHECK(pointer_info(m, plain.address).base != pointer_info(m, inside.address).base);
}

PINNED_TEST(test_pinned_pools__blocks_without_use_are_reused_in_their_pool) {
  (void)m;
  const tide_pool pool = pool_new(p);
  scope_open(p, pool);
  const tide_block block = take(p, BYTES);
  give(p, block);
  const tide_block again = take(p, BYTES);
  scope_close(p, pool);

  T_PTR_EQ(again.address, block.address);
}

PINNED_TEST(test_pinned_pools__announced_blocks_of_a_scope_are_not_reused) {
  const tide_stream stream = side_new(m);
  const tide_pool pool = pool_new(p);
  scope_open(p, pool);
  const tide_block block = take(p, BYTES);
  announce(p, block, stream);
  give(p, block);
  stream_finish(m, 0, stream);
  poll_all(p);

  for (size_t i = 0; i < 4; ++i) T_CHECK(!is_same_memory(take(p, BYTES), block));
  scope_close(p, pool);
  for (size_t i = 0; i < 4; ++i) T_CHECK(!is_same_memory(take_in(p, pool, BYTES), block));

  T_STATUS(tide_pinned_release(p, block), TIDE_ERR_STATE);
}

PINNED_TEST(test_pinned_pools__kept_blocks_go_with_their_pool) {
  const tide_stream stream = side_new(m);
  const tide_pool pool = pool_new(p);
  scope_open(p, pool);
  const tide_block single = take(p, BYTES);
  const tide_block small = take(p, 512);
  announce(p, single, stream);
  announce(p, small, stream);
  give(p, single);
  give(p, small);
  T_OK(tide_pinned_pool_end(p, pool));
  stream_finish(m, 0, stream);
  empty(p);
  T_LE(BYTES + 512, current(p, reserved_bytes));

  T_OK(tide_pinned_pool_drop(p, pool));
  T_OK(tide_pinned_pool_drop(p, pool));
  empty(p);

  expect_nothing_left(p);
  T_STATUS(tide_pinned_pool_retain(p, pool), TIDE_ERR_HANDLE);
}

PINNED_TEST(test_pinned_pools__emptying_leaves_pools_with_users_alone) {
  (void)m;
  const tide_pool pool = pool_new(p);
  give(p, take_in(p, pool, BYTES));

  empty(p);
  trim(p, 0);
  T_EQ(pool_reserved(p, pool), BYTES);
  T_OK(tide_pinned_pool_drop(p, pool));
  trim(p, 0);  // of the default pool only
  T_EQ(current(p, reserved_bytes), BYTES);
  empty(p);

  expect_nothing_left(p);
}

PINNED_TEST(test_pinned_pools__a_pool_stays_while_something_of_it_is_handed_out) {
  (void)m;
  const tide_pool pool = pool_new(p);
  const tide_block kept = take_in(p, pool, BYTES);
  const tide_block other = take_in(p, pool, BYTES);
  give(p, other);
  T_OK(tide_pinned_pool_drop(p, pool));

  empty(p);
  T_EQ(pool_users(p, pool), 0);
  T_EQ(current(p, reserved_bytes), BYTES);
  give(p, kept);
  empty(p);

  expect_nothing_left(p);
}

PINNED_TEST(test_pinned_pools__blocks_are_released_from_outside_of_their_scope) {
  (void)m;
  const tide_pool pool = pool_new(p);
  const tide_block block = take_in(p, pool, BYTES);

  give(p, block);

  T_EQ(pool_sum(p, pool).active_bytes, 0);
  T_PTR_EQ(take_in(p, pool, BYTES).address, block.address);
}

// ---------------------------------------------------------------------------------------------------
// Captures

static void capture_open(tide_machine* m, tide_pinned_cache* p, tide_stream stream, tide_pool pool,
                         bool checks) {
  tide_pinned_scope scope = scope_of(TIDE_SCOPE_CAPTURE);
  scope.stream = stream;
  scope.checks_copies = checks;
  T_OK(tide_machine_capture_begin(m, 0, stream, TIDE_CAPTURE_THREAD_LOCAL));
  T_OK(pool_begin_kept(p, pool, &scope));
}

static tide_launch capture_close(tide_machine* m, tide_stream stream) {
  tide_launch graph = NULL;
  T_OK(tide_machine_capture_end(m, 0, stream, &graph));
  return graph;
}

// A graph reads pinned memory that was released after its capture: at every launch the memory is unchanged.
PINNED_TEST(test_pinned_pools__a_graph_reads_the_memory_of_its_capture) {
  const tide_stream stream = side_new(m);
  const tide_pool pool = pool_new(p);
  uint8_t* const device = raw_new(m, 0, BYTES);
  capture_open(m, p, stream, pool, false);
  const tide_block block = take_on(p, stream, BYTES);
  paint(m, block, 0x71, BYTES);
  T_OK(tide_pinned_copy(p, block, 0, stream, device, block.address, BYTES));
  give(p, block);
  const tide_launch graph = capture_close(m, stream);
  scope_close(p, pool);

  for (int i = 0; i < 3; ++i) {
    const tide_block noise[] = { take(p, BYTES), take_in(p, pool, BYTES) };
    for (size_t n = 0; n < 2; ++n) paint(m, noise[n], 0xee, BYTES);
    device_fill(m, 0, device, 0, BYTES);
    T_OK(tide_machine_launch(m, 0, graph, stream));
    stream_finish(m, 0, stream);
    expect_filled(m, 0, device, 0x71, BYTES);
    for (size_t n = 0; n < 2; ++n) give(p, noise[n]);
  }
  T_OK(tide_machine_launch_free(m, graph));
}

// Memory can be pinned, released and polled while the thread captures.
PINNED_TEST(test_pinned_pools__a_capture_is_not_disturbed) {
  const tide_stream stream = side_new(m);
  const tide_stream other = side_new(m);
  const tide_pool pool = pool_new(p);
  const tide_block before = take(p, BYTES);
  announce(p, before, other);
  give(p, before);
  stream_finish(m, 0, other);
  capture_open(m, p, stream, pool, false);

  (void)take_on(p, stream, 1 * MIB);
  (void)take(p, 2 * MIB);
  poll_all(p);
  T_EQ(current(p, waiting), 0);
  const tide_block used = take(p, BYTES);
  announce(p, used, stream);
  give(p, used);
  poll_all(p);
  const tide_block again = take(p, BYTES);

  T_CHECK(!is_same_memory(again, used));  // the capture is not over
  const tide_launch graph = capture_close(m, stream);
  scope_close(p, pool);
  T_OK(tide_machine_launch_free(m, graph));
  give(p, again);
}

PINNED_TEST(test_pinned_pools__recorded_at_once_in_a_capture_is_only_noted) {
  const tide_stream stream = side_new(m);
  const tide_pool pool = pool_new(p);
  const tide_block block = take(p, BYTES);
  capture_open(m, p, stream, pool, false);

  announce_now(p, block, stream);

  const tide_launch graph = capture_close(m, stream);
  scope_close(p, pool);
  T_OK(tide_machine_launch_free(m, graph));
  give(p, block);
  stream_finish(m, 0, stream);
  poll_all(p);
  T_EQ(current(p, waiting), 0);
}

PINNED_TEST_OVER(test_pinned_pools__bytes_that_a_captured_copy_reads_may_not_change, machine_real) {
  const tide_stream stream = side_new(m);
  const tide_pool pool = pool_new(p);
  uint8_t* const device = raw_new(m, 0, BYTES);
  for (int changes = 0; changes < 3; ++changes) {
    capture_open(m, p, stream, pool, true);
    const tide_block block = take_on(p, stream, BYTES);
    paint(m, block, 0x0f, BYTES);
    T_OK(tide_pinned_copy(p, block, 0, stream, device, block.address, BYTES));
    if (changes == 1) bytes_of(block)[BYTES - 1] = 0x10;
    const tide_launch graph = capture_close(m, stream);
    T_OK(tide_machine_launch_free(m, graph));
    if (changes == 2) break;  // the cache is freed with the scope open, and the hashes with it

    const tide_status status = tide_pinned_pool_end(p, pool);

    T_STATUS(status, changes == 1 ? TIDE_ERR_STATE : TIDE_OK);
    T_STATUS(tide_pinned_pool_end(p, pool), TIDE_ERR_STATE);  // it is closed all the same
    T_OK(tide_pinned_pool_drop(p, pool));
    give(p, block);
  }
}

PINNED_TEST_OVER(test_pinned_pools__unchecked_bytes_may_change, machine_real) {
  const tide_stream stream = side_new(m);
  const tide_pool pool = pool_new(p);
  uint8_t* const device = raw_new(m, 0, BYTES);
  capture_open(m, p, stream, pool, false);
  const tide_block block = take_on(p, stream, BYTES);
  T_OK(tide_pinned_copy(p, block, 0, stream, device, block.address, BYTES));
  paint(m, block, 0x10, BYTES);
  const tide_launch graph = capture_close(m, stream);

  T_OK(tide_pinned_pool_end(p, pool));

  T_OK(tide_machine_launch_free(m, graph));
}

// ---------------------------------------------------------------------------------------------------
// Threads

static void* scopes_in_turn(void* user) {
  tide_pinned_cache* const p = user;
  for (size_t i = 0; i < t_scaled(200); ++i) {
    const tide_pool pool = pool_new(p);
    scope_open(p, pool);
    const tide_block block = take(p, i % 2 == 0 ? BYTES : 512);
    scope_close(p, pool);
    give(p, block);
    T_OK(tide_pinned_pool_drop(p, pool));
    if (i % 8 == 0) empty(p);
  }
  return NULL;
}

PINNED_TEST_OVER(test_pinned_pools__threads_have_pools_at_once, machine_emulated) {
  pthread_t threads[3];
  (void)m;
  for (size_t i = 0; i < 3; ++i) t_thread_start(&threads[i], scopes_in_turn, p);
  for (size_t i = 0; i < 3; ++i) t_thread_join(threads[i]);

  empty(p);

  expect_nothing_left(p);
}

// Closing a scope once left a user behind, so that the pool stayed for ever.
PINNED_TEST(test_pinned__new_begin_end_release_and_empty_leave_nothing_of_a_pool) {
  (void)m;
  tide_pool pool = 0;
  uint32_t users = 7;
  T_OK(tide_pinned_pool_new(p, &pool));
  T_OK(tide_pinned_pool_begin(p, pool, NULL));
  T_EQ(pool_users(p, pool), 1);
  give(p, take(p, SINGLE));
  T_OK(tide_pinned_pool_end(p, pool));

  T_OK(tide_pinned_pool_drop(p, pool));
  T_OK(tide_pinned_empty(p));

  T_STATUS(tide_pinned_pool_users(p, pool, &users), TIDE_ERR_HANDLE);
}
