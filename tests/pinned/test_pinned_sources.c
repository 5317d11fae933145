// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Where the memory of the pinned-host cache comes from and when it goes back: the reserve, registered pages,
// the limit, age, trimming, and what happens before a request fails.
#define T_THREADS
#include "pinned/pinneds.h"

// ---------------------------------------------------------------------------------------------------
// The reserve

#define RESERVE (1 * MIB)

static void with_reserve(tide_pinned_options* options) { options->reserve_bytes = RESERVE; }

static void with_registered_reserve(tide_pinned_options* options) {
  with_register(options);
  with_reserve(options);
}

// The pinned range that a block lies in.
static tide_pointer_info piece_of(tide_machine* m, tide_block block) {
  return pointer_info(m, block.address);
}

PINNED_TEST_WITH(test_pinned_sources__the_reserve_is_made_by_the_first_request, machine_names, with_reserve) {
  const uint64_t before = pieces_made(m);
  T_EQ(counter(p, num_host_alloc), 0);

  const tide_block block = take(p, SINGLE);

  T_EQ(pieces_made(m), before + 1);
  T_EQ(piece_of(m, block).bytes, RESERVE);
  T_EQ(counter(p, num_host_alloc), 1);
  T_EQ(current(p, reserved_bytes), SINGLE);
}

PINNED_TEST_WITH(test_pinned_sources__smaller_requests_come_out_of_the_reserve, machine_names, with_reserve) {
  const tide_block first = take(p, SINGLE);
  const void* const base = piece_of(m, first).base;
  for (size_t i = 1; i < RESERVE / SINGLE; ++i) T_PTR_EQ(piece_of(m, take(p, SINGLE)).base, base);
  T_EQ(counter(p, num_host_alloc), 1);

  const tide_block outside = take(p, SINGLE);

  T_CHECK(piece_of(m, outside).base != base);
  T_EQ(counter(p, num_host_alloc), 2);
  T_EQ(current(p, reserved_bytes), RESERVE + SINGLE);
}

PINNED_TEST_WITH(test_pinned_sources__larger_requests_go_past_the_reserve, machine_names, with_reserve) {
  const tide_block large = take(p, 2 * RESERVE);

  T_EQ(piece_of(m, large).bytes, 2 * RESERVE);
  T_PTR_EQ(piece_of(m, large).base, large.address);
}

// Adjacent ranges join again, in whatever order they return.
PINNED_TEST_WITH(test_pinned_sources__ranges_return_and_join, machine_names, with_reserve) {
  enum { COUNT = 16 };
  tide_block blocks[COUNT];
  for (size_t round = 0; round < 4; ++round) {
    for (size_t i = 0; i < COUNT; ++i) blocks[i] = take(p, SINGLE);
    for (size_t i = 0; i < COUNT; ++i) give(p, blocks[(i * 7 + round) % COUNT]);
    empty(p);
    T_EQ(current(p, reserved_bytes), 0);

    const tide_block whole = take(p, RESERVE);

    T_EQ(piece_of(m, whole).bytes, RESERVE);
    give(p, whole);
    empty(p);
  }
  T_EQ(counter(p, num_host_alloc), 1);
  T_EQ(calls_done(m, TIDE_CALL_PINNED_RELEASE), 0);
}

PINNED_TEST_WITH(test_pinned_sources__a_reserve_can_be_registered_pages, machine_names,
                 with_registered_reserve) {
  const holdings before = holdings_of(m);

  const tide_block block = take(p, SINGLE);
  paint(m, block, 0x5a, SINGLE);
  give(p, block);
  empty(p);

  T_EQ(holdings_of(m).registered, before.registered + 1);
  T_EQ(holdings_of(m).pinned, before.pinned);
}

PINNED_TEST_WITH(test_pinned_sources__without_the_reserve_requests_are_served, machine_emulated,
                 with_reserve) {
  break_calls(m, TIDE_CALL_PINNED_ALLOC, TIDE_ERR_NO_MEMORY, 1);

  const tide_block block = take(p, SINGLE);

  tide_machine_fault_clear(m);
  T_LE(SINGLE, pinned_room(m, block.address));
}

// ---------------------------------------------------------------------------------------------------
// Registered pages

PINNED_TEST_WITH(test_pinned_sources__registered_memory_is_pinned_and_writable, machine_names,
                 with_register) {
  static const size_t sizes[] = { 1, 512, 5000, 32 * KIB, 33 * KIB, 2 * MIB - 1, 2 * MIB, 5 * MIB + 1 };
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    const tide_block block = take(p, sizes[i]);
    T_EQ(pointer_info(m, block.address).kind, TIDE_MEMORY_PINNED);
    T_LE(sizes[i], pinned_room(m, block.address));
    paint(m, block, (uint8_t)(i + 1), sizes[i]);
    expect_painted(m, block.address, (uint8_t)(i + 1), sizes[i]);
    if (!is_dry(m) && sizes[i] >= 2 * MIB) T_EQ((uintptr_t)block.address % (2 * MIB), 0);
  }
  T_EQ(calls_made(m, TIDE_CALL_PINNED_RELEASE), 0);
}

typedef struct registering {
  tide_machine* m;
  tide_pinned_cache* p;
  uint8_t number;
} registering;

static void* register_and_return(void* user) {
  const registering* const r = user;
  for (size_t i = 0; i < 6; ++i) {
    const size_t bytes = (size_t)(1 + i) * 300 * KIB;
    const tide_block block = take(r->p, bytes);
    T_EQ(pointer_info(r->m, block.address).kind, TIDE_MEMORY_PINNED);
    paint(r->m, block, r->number, bytes);
    expect_painted(r->m, block.address, r->number, bytes);
    give(r->p, block);
    if (i % 2 == 1) empty(r->p);
  }
  return NULL;
}

PINNED_TEST_WITH(test_pinned_sources__four_threads_register_at_once, machine_names, with_register) {
  pthread_t threads[4];
  registering users[4];
  for (size_t i = 0; i < 4; ++i) {
    users[i] = (registering){ m, p, (uint8_t)(i + 1) };
    t_thread_start(&threads[i], register_and_return, &users[i]);
  }
  for (size_t i = 0; i < 4; ++i) t_thread_join(threads[i]);

  T_EQ(tide_machine_call_stats(m, TIDE_CALL_PINNED_REGISTER).failures, 0);
  T_EQ(current(p, active_requests), 0);
}

// ---------------------------------------------------------------------------------------------------
// The node

static void with_caller_node(tide_pinned_options* options) { options->numa = TIDE_NUMA_CALLER; }

static void with_device_node(tide_pinned_options* options) {
  options->numa = TIDE_NUMA_DEVICE;
  options->numa_device = 0;
  options->uses_register = true;
}

static void expect_usable(tide_machine* m, tide_pinned_cache* p) {
  const tide_block block = take(p, 4 * MIB);
  paint(m, block, 0x11, 4 * MIB);
  expect_painted(m, block.address, 0x11, 4 * MIB);
  give(p, block);
}

PINNED_TEST_WITH(test_pinned_sources__memory_near_the_caller, machine_names, with_caller_node) {
  expect_usable(m, p);
}

PINNED_TEST_WITH(test_pinned_sources__memory_near_the_device, machine_names, with_device_node) {
  expect_usable(m, p);
}

// ---------------------------------------------------------------------------------------------------
// The cap

static void with_cap(tide_pinned_options* options) { options->max_cached_bytes = 3 * SINGLE; }

static void without_cache(tide_pinned_options* options) { options->max_cached_bytes = 0; }

static uint64_t cached_bytes(tide_pinned_cache* p) {
  const tide_pinned_stats stats = stats_of(p);
  return (uint64_t)(stats.allocated_bytes.current - stats.active_bytes.current);
}

PINNED_TEST_WITH(test_pinned_sources__nothing_is_cached_without_room, machine_names, without_cache) {
  (void)m;
  for (int i = 0; i < 5; ++i) {
    give(p, take(p, SINGLE));
    T_EQ(current(p, allocated_bytes), 0);
  }
  T_EQ(counter(p, num_host_free), 5);
  T_EQ(counter(p, num_capped), 5);
}

PINNED_TEST_WITH(test_pinned_sources__the_cap_holds_for_blocks_that_waited, machine_names, with_cap) {
  const tide_stream stream = side_new(m);
  tide_block blocks[8];
  gate g;
  hold_up(&g, m, stream);
  for (size_t i = 0; i < 8; ++i) {
    blocks[i] = take(p, SINGLE);
    announce(p, blocks[i], stream);
  }
  for (size_t i = 0; i < 8; ++i) give(p, blocks[i]);
  T_EQ(current(p, waiting), 8);

  let_go(&g);
  poll_all(p);

  T_LE(cached_bytes(p), 3 * SINGLE);
  T_EQ(counter(p, num_capped), 5);
}

PINNED_TEST_WITH(test_pinned_sources__the_cap_is_for_the_default_pool, machine_names, with_cap) {
  (void)m;
  const tide_pool pool = pool_new(p);
  tide_block blocks[8];
  scope_open(p, pool);
  for (size_t i = 0; i < 8; ++i) blocks[i] = take(p, SINGLE);
  for (size_t i = 0; i < 8; ++i) give(p, blocks[i]);
  scope_close(p, pool);

  T_EQ(current(p, allocated_bytes), 8 * SINGLE);
  T_EQ(counter(p, num_capped), 0);
}

typedef struct capped {
  tide_pinned_cache* p;
  uint64_t number;
} capped;

static void* churn(void* user) {
  const capped* const c = user;
  t_rng rng = t_rng_new(10 + c->number);
  tide_block blocks[16] = { { NULL, 0 } };
  for (size_t i = 0; i < t_scaled(2000); ++i) {
    tide_block* const block = &blocks[t_rng_below(&rng, 16)];
    give(c->p, *block);
    *block = take(c->p, 32 * KIB << t_rng_below(&rng, 3));
  }
  for (size_t i = 0; i < 16; ++i) give(c->p, blocks[i]);
  return NULL;
}

PINNED_TEST_WITH(test_pinned_sources__the_cap_holds_for_several_threads, machine_emulated, with_cap) {
  pthread_t threads[4];
  capped users[4];
  (void)m;
  for (size_t i = 0; i < 4; ++i) {
    users[i] = (capped){ p, i };
    t_thread_start(&threads[i], churn, &users[i]);
  }
  for (size_t i = 0; i < 4; ++i) t_thread_join(threads[i]);

  T_LE(cached_bytes(p), 3 * SINGLE);
  T_EQ(current(p, active_requests), 0);
}

// ---------------------------------------------------------------------------------------------------
// Ageing

#define IDLE_NS 1000000u

static void with_age(tide_pinned_options* options) { options->idle_ns = IDLE_NS; }

static void pass_time(tide_machine* m, tide_pinned_cache* p, uint64_t ns) {
  T_OK(tide_dry_advance(m, ns));
  poll_all(p);
}

PINNED_TEST_WITH(test_pinned_sources__memory_that_two_looks_find_unused_goes, machine_dry, with_age) {
  give(p, take(p, SINGLE));
  give(p, take(p, 512));
  pass_time(m, p, IDLE_NS);
  T_LT(0, current(p, reserved_bytes));  // found once

  pass_time(m, p, IDLE_NS / 2);
  T_LT(0, current(p, reserved_bytes));  // too soon
  pass_time(m, p, IDLE_NS);

  T_EQ(current(p, reserved_bytes), 0);
  T_EQ(counter(p, num_aged), 2);
}

PINNED_TEST_WITH(test_pinned_sources__memory_that_is_used_stays, machine_dry, with_age) {
  for (int i = 0; i < 20; ++i) {
    give(p, take(p, SINGLE));
    give(p, take(p, 512));
    pass_time(m, p, IDLE_NS);
  }
  T_EQ(counter(p, num_aged), 0);
  T_EQ(counter(p, num_host_alloc), 2);
}

// Many blocks are needed once; later only one at a time.
PINNED_TEST_WITH(test_pinned_sources__only_what_is_not_needed_goes, machine_dry, with_age) {
  tide_block blocks[20];
  for (size_t i = 0; i < 20; ++i) blocks[i] = take(p, SINGLE);
  for (size_t i = 0; i < 20; ++i) give(p, blocks[i]);

  for (int i = 0; i < 40; ++i) {
    give(p, take(p, SINGLE));
    pass_time(m, p, IDLE_NS / 2);
  }

  T_LE(current(p, allocations), 4);
  T_LE(1, current(p, allocations));
}

PINNED_TEST_WITH(test_pinned_sources__handed_out_and_waiting_memory_does_not_age, machine_dry, with_age) {
  const tide_stream stream = side_new(m);
  const tide_block used = take(p, SINGLE);
  const tide_block waiting = take(p, SINGLE);
  gate g;
  hold_up(&g, m, stream);
  announce(p, waiting, stream);
  give(p, waiting);

  for (int i = 0; i < 10; ++i) pass_time(m, p, IDLE_NS);

  T_EQ(current(p, allocations), 2);
  let_go(&g);
  give(p, used);
}

PINNED_TEST_WITH(test_pinned_sources__requests_look_too, machine_dry, with_age) {
  give(p, take(p, SINGLE));
  for (size_t i = 0; i < 4; ++i) {
    T_OK(tide_dry_advance(m, 2 * IDLE_NS));
    (void)take(p, (100 + 50 * i) * KIB);  // nothing of that size is cached
  }
  T_EQ(counter(p, num_aged), 1);
  T_EQ(current(p, allocations), 4);
}

#define HOUR_CAP (64 * MIB)
#define HOUR_IDLE_NS 10000000000u

static void with_cap_and_age(tide_pinned_options* options) {
  options->max_cached_bytes = HOUR_CAP;
  options->idle_ns = HOUR_IDLE_NS;
}

// Replaces a block by one of a random size; returns its rounded size.
static uint64_t replace_one(tide_pinned_cache* p, t_rng* rng, tide_block* block, size_t* bytes) {
  give(p, *block);
  *bytes = 1 + t_rng_below(rng, (size_t)1 << (9 + t_rng_below(rng, 16)));
  *block = take(p, *bytes);
  return tide_pinned_round(p, *bytes);
}

// An hour of random sizes: memory stays bounded, and goes back when it is not needed any more.
PINNED_TEST_WITH(test_pinned_sources__an_hour_of_random_sizes_stays_under_the_cap, machine_dry,
                 with_cap_and_age) {
  enum { LIVE = 64, STEPS = 20000 };
  t_rng rng = t_rng_new(12);
  tide_block blocks[LIVE] = { { NULL, 0 } };
  size_t sizes[LIVE] = { 0 };
  uint64_t live[LIVE] = { 0 };
  for (size_t i = 0; i < STEPS; ++i) {
    const size_t n = t_rng_below(&rng, LIVE);
    live[n] = replace_one(p, &rng, &blocks[n], &sizes[n]);
    T_OK(tide_dry_advance(m, 3600 * (uint64_t)1000000000 / STEPS));
    if (i % 16 != 0) continue;
    uint64_t sum = 0;
    for (size_t k = 0; k < LIVE; ++k) sum += live[k];
    // Chunks that are partly in use cannot go back.
    T_LE(current(p, reserved_bytes), sum + HOUR_CAP + 16 * MIB);
  }

  for (size_t i = 0; i < LIVE; ++i) give(p, blocks[i]);
  for (size_t i = 0; i < 4; ++i) pass_time(m, p, HOUR_IDLE_NS);

  expect_nothing_left(p);
}

PINNED_TEST_OVER(test_pinned_sources__nothing_ages_unless_asked_for, machine_dry) {
  give(p, take(p, SINGLE));
  for (int i = 0; i < 10; ++i) pass_time(m, p, 1000000000);
  T_EQ(current(p, allocations), 1);
  T_EQ(counter(p, num_aged), 0);
}

// ---------------------------------------------------------------------------------------------------
// Trimming

PINNED_TEST(test_pinned_sources__trimming_keeps_what_it_is_told_to) {
  (void)m;
  tide_block blocks[10];
  for (size_t i = 0; i < 10; ++i) blocks[i] = take(p, SINGLE);
  for (size_t i = 0; i < 10; ++i) give(p, blocks[i]);

  trim(p, 20 * SINGLE);
  T_EQ(cached_bytes(p), 10 * SINGLE);
  trim(p, 4 * SINGLE);
  T_EQ(cached_bytes(p), 4 * SINGLE);
  trim(p, 4 * SINGLE - 1);
  T_EQ(cached_bytes(p), 3 * SINGLE);
  trim(p, 0);
  T_EQ(cached_bytes(p), 0);
}

PINNED_TEST(test_pinned_sources__large_pieces_go_first) {
  (void)m;
  const tide_block small = take(p, SINGLE);
  const tide_block large = take(p, 4 * SINGLE);
  give(p, large);
  give(p, small);

  trim(p, 4 * SINGLE);

  T_EQ(cached_bytes(p), SINGLE);
  T_PTR_EQ(take(p, SINGLE).address, small.address);
}

PINNED_TEST(test_pinned_sources__of_a_class_the_longest_idle_goes) {
  (void)m;
  const tide_block first = take(p, 4 * MIB);
  const tide_block second = take(p, 4 * MIB);
  give(p, first);
  give(p, second);

  trim(p, 4 * MIB);

  T_PTR_EQ(take(p, 4 * MIB).address, second.address);
}

PINNED_TEST(test_pinned_sources__a_chunk_goes_when_all_of_it_is_idle) {
  (void)m;
  tide_block blocks[8];
  for (size_t i = 0; i < 8; ++i) blocks[i] = take(p, 1024);
  for (size_t i = 1; i < 8; ++i) give(p, blocks[i]);
  empty(p);
  T_EQ(current(p, segments), 1);
  T_EQ(counter(p, num_host_free), 0);

  give(p, blocks[0]);
  empty(p);

  expect_nothing_left(p);
}

PINNED_TEST(test_pinned_sources__emptying_looks_but_does_not_wait) {
  const tide_stream stream = side_new(m);
  const tide_block done = take(p, SINGLE);
  const tide_block waits = take(p, SINGLE);
  gate g;
  announce(p, done, stream);
  give(p, done);
  stream_finish(m, 0, stream);
  hold_up(&g, m, stream);
  announce(p, waits, stream);
  give(p, waits);

  empty(p);

  T_EQ(current(p, allocations), 1);
  T_EQ(state_of(p, waits), TIDE_BLOCK_PENDING);
  let_go(&g);
  empty(p);
  expect_nothing_left(p);
}

PINNED_TEST_OVER(test_pinned_sources__what_the_machine_refuses_stays_cached, machine_emulated) {
  const tide_block block = take(p, SINGLE);
  give(p, block);
  break_calls(m, TIDE_CALL_PINNED_RELEASE, TIDE_ERR_MACHINE, UINT64_MAX);

  T_STATUS(tide_pinned_empty(p), TIDE_ERR_MACHINE);
  T_STATUS(tide_pinned_trim(p, 0), TIDE_ERR_MACHINE);

  tide_machine_fault_clear(m);
  T_EQ(cached_bytes(p), SINGLE);
  T_EQ(counter(p, num_host_free), 0);
  const tide_block again = take(p, SINGLE);
  T_PTR_EQ(again.address, block.address);
  give(p, again);
  empty(p);
  expect_nothing_left(p);
}

// ---------------------------------------------------------------------------------------------------
// When the machine has no memory

PINNED_TEST_OVER(test_pinned_sources__a_request_fails_when_nothing_helps, machine_emulated) {
  give(p, take(p, SINGLE));
  break_calls(m, TIDE_CALL_PINNED_ALLOC, TIDE_ERR_NO_MEMORY, UINT64_MAX);

  expect_oom(p, 1 * MIB);
  expect_oom(p, 512);

  tide_machine_fault_clear(m);
  T_EQ(counter(p, num_ooms), 2);
  T_EQ(current(p, active_requests), 0);
  T_STR_HAS(tide_last_error()->text, "512");
  (void)take(p, 1 * MIB);
}

PINNED_TEST_OVER(test_pinned_sources__a_request_waits_for_streams_before_it_fails, machine_emulated) {
  const tide_stream stream = side_new(m);
  const tide_block block = take(p, SINGLE);
  if (is_dry(m)) T_OK(tide_dry_work(m, 0, stream, 1000000000));
  else T_OK(tide_machine_call(m, 0, stream, call_slow, NULL));
  announce(p, block, stream);
  give(p, block);
  break_calls(m, TIDE_CALL_PINNED_ALLOC, TIDE_ERR_NO_MEMORY, UINT64_MAX);

  const tide_block again = take(p, SINGLE);

  tide_machine_fault_clear(m);
  T_PTR_EQ(again.address, block.address);
  T_EQ(counter(p, num_ooms), 0);
}

PINNED_TEST_OVER(test_pinned_sources__a_stream_that_is_stuck_does_not_stop_a_request_from_failing,
                 machine_dry) {
  const tide_stream stream = side_new(m);
  const tide_block block = take(p, SINGLE);
  gate g;
  hold_up(&g, m, stream);
  announce(p, block, stream);
  give(p, block);
  break_calls(m, TIDE_CALL_PINNED_ALLOC, TIDE_ERR_NO_MEMORY, UINT64_MAX);

  expect_oom(p, SINGLE);

  tide_machine_fault_clear(m);
  let_go(&g);
  T_PTR_EQ(take(p, SINGLE).address, block.address);
}

PINNED_TEST_OVER(test_pinned_sources__an_error_of_the_machine_is_handed_on, machine_emulated) {
  break_calls(m, TIDE_CALL_PINNED_ALLOC, TIDE_ERR_MACHINE, UINT64_MAX);

  T_STATUS(try_take(p, SINGLE), TIDE_ERR_MACHINE);

  tide_machine_fault_clear(m);
  (void)take(p, SINGLE);
  T_EQ(current(p, allocations), 1);
}
