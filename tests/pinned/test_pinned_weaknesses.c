// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The known weaknesses of PyTorch's caching host allocator, each by the case that shows it, and ours without
// it. Calls of the machine that are slow on purpose make visible who waits for whom.
#define T_THREADS
#include "pinned/pinneds.h"

#define SLOW_MS 300u

// ---------------------------------------------------------------------------------------------------
// A second thread

typedef struct second {
  tide_machine* m;
  tide_pinned_cache* p;
  tide_block block;
  atomic_int is_done;
  pthread_t thread;
} second;

static void second_start(second* s, void* (*function)(void*)) {
  atomic_store(&s->is_done, 0);
  t_thread_start(&s->thread, function, s);
}

static void* second_release(void* user) {
  second* const s = user;
  give(s->p, s->block);
  atomic_store(&s->is_done, 1);
  return NULL;
}

static void* second_empty(void* user) {
  second* const s = user;
  empty(s->p);
  atomic_store(&s->is_done, 1);
  return NULL;
}

static void* second_poll(void* user) {
  second* const s = user;
  poll_all(s->p);
  atomic_store(&s->is_done, 1);
  return NULL;
}

// Time for another thread to come to a call that takes SLOW_MS.
static void let_another_begin(void) { t_sleep_us(SLOW_MS * 1000 / 6); }

// Everything that needs no call of the machine.
static void use_cached(tide_pinned_cache* p, tide_stream stream) {
  for (int i = 0; i < 50; ++i) {
    const tide_block large = take(p, SINGLE);
    const tide_block small = take(p, 512);
    announce(p, small, stream);
    give(p, large);
    T_EQ(current(p, active_requests) > 0, true);
    give(p, small);
    poll_all(p);
  }
}

// ---------------------------------------------------------------------------------------------------
// C-W1 to C-W5

PINNED_TEST_OVER(test_pinned_weaknesses__c_w1_a_small_request_does_not_take_a_huge_block, machine_dry) {
  const tide_block huge = take(p, 4 * GIB);
  give(p, huge);
  const tide_block small = take(p, 10000);
  const uint64_t before = pieces_made(m);

  const tide_block again = take(p, 4 * GIB);

  T_PTR_EQ(again.address, huge.address);
  T_EQ(pieces_made(m), before);
  T_LT(current(p, reserved_bytes), 4 * GIB + 4 * MIB);
  give(p, small);
}

PINNED_TEST_OVER(test_pinned_weaknesses__c_w1_no_size_is_almost_doubled, machine_dry) {
  (void)m;
  (void)take(p, (size_t)(20.4 * (double)GIB));
  T_LE(current(p, reserved_bytes), (uint64_t)(20.41 * (double)GIB));

  (void)take(p, (size_t)(95.4 * (double)GIB));

  T_LE(current(p, reserved_bytes), (uint64_t)(115.82 * (double)GIB));
}

PINNED_TEST(test_pinned_weaknesses__c_w2_a_stuck_stream_holds_back_nothing_else) {
  enum { COUNT = 40 };
  const tide_stream stuck = side_new(m);
  const tide_stream quick = side_new(m);
  tide_block blocks[COUNT];
  gate g;
  for (size_t i = 0; i < COUNT; ++i) blocks[i] = take(p, 32 * KIB);
  hold_up(&g, m, stuck);
  for (size_t i = 0; i < COUNT; ++i) {
    announce(p, blocks[i], i % 10 == 0 ? stuck : quick);  // the oldest of all is stuck
    give(p, blocks[i]);
  }
  stream_finish(m, 0, quick);
  const uint64_t before = pieces_made(m);

  for (size_t i = 0; i < COUNT - COUNT / 10; ++i) (void)take(p, 32 * KIB);

  T_EQ(pieces_made(m), before);
  T_EQ(current(p, waiting), COUNT / 10);
  let_go(&g);
}

// One thread releases a block, and recording its events is slow. Is everything else done meanwhile?
static bool record_slowly(tide_machine* m, tide_pinned_cache* p, tide_stream stream) {
  second s = { .m = m, .p = p, .block = take(p, SINGLE) };
  announce(p, s.block, stream);
  slow_down(m, TIDE_CALL_EVENT_RECORD, TIDE_OK, 1, SLOW_MS);
  second_start(&s, second_release);
  let_another_begin();
  use_cached(p, stream);
  T_STATUS(tide_pinned_release(p, s.block), TIDE_ERR_STATE);  // the same block can be asked about
  const bool is_done_before = atomic_load(&s.is_done) == 0;
  t_thread_join(s.thread);
  tide_machine_fault_clear(m);
  return is_done_before;
}

// A computer that is busy may need more than one try.
PINNED_TEST_OVER(test_pinned_weaknesses__c_w3_no_lock_is_held_while_an_event_is_recorded, machine_host) {
  const tide_stream stream = side_new(m);
  bool is_free = false;
  use_cached(p, stream);

  for (int i = 0; i < 5 && !is_free; ++i) is_free = record_slowly(m, p, stream);

  T_CHECK(is_free);
}

PINNED_TEST(test_pinned_weaknesses__c_w4_a_second_release_makes_no_second_owner) {
  (void)m;
  for (size_t bytes = 512; bytes <= SINGLE; bytes *= 4) {
    const tide_block block = take(p, bytes);
    give(p, block);
    T_STATUS(tide_pinned_release(p, block), TIDE_ERR_STATE);
    T_STATUS(tide_pinned_release_address(p, block.address), TIDE_ERR_STATE);

    const tide_block first = take(p, bytes);
    const tide_block next = take(p, bytes);

    T_CHECK(!is_same_memory(first, next));
    T_STATUS(tide_pinned_release(p, block), TIDE_ERR_HANDLE);
    give(p, first);
    give(p, next);
    T_EQ(current(p, active_requests), 0);
  }
}

PINNED_TEST_OVER(test_pinned_weaknesses__c_w5_a_failing_record_loses_no_block, machine_emulated) {
  const tide_stream streams[2] = { side_new(m), side_new(m) };
  for (uint64_t skip = 0; skip < 2; ++skip) {
    const tide_block block = take(p, SINGLE);
    tide_fault fault = TIDE_FAULT_INIT;
    fault.call = TIDE_CALL_EVENT_RECORD;
    fault.status = TIDE_ERR_MACHINE;
    fault.skip = skip;
    T_OK(tide_machine_fault_add(m, &fault));
    for (size_t i = 0; i < 2; ++i) announce(p, block, streams[i]);

    give(p, block);
    tide_machine_fault_clear(m);

    T_EQ(counter(p, num_record_failures), skip + 1);
    T_EQ(current(p, allocations), 1);
    for (size_t i = 0; i < 2; ++i) stream_finish(m, 0, streams[i]);
    poll_all(p);
    for (size_t i = 0; i < 2; ++i) stream_finish(m, 0, streams[i]);
    poll_all(p);
    const tide_block again = take(p, SINGLE);
    T_PTR_EQ(again.address, block.address);
    give(p, again);
  }
}

PINNED_TEST_OVER(test_pinned_weaknesses__c_w5_a_failing_query_loses_no_block, machine_emulated) {
  const tide_stream stream = side_new(m);
  const tide_block block = take(p, SINGLE);
  announce(p, block, stream);
  give(p, block);
  stream_finish(m, 0, stream);
  break_calls(m, TIDE_CALL_EVENT_QUERY, TIDE_ERR_MACHINE, 1);

  T_STATUS(tide_pinned_poll(p), TIDE_ERR_MACHINE);
  tide_machine_fault_clear(m);
  T_EQ(counter(p, num_query_failures), 1);
  T_EQ(current(p, waiting), 1);
  poll_all(p);

  T_EQ(current(p, waiting), 0);
  T_PTR_EQ(take(p, SINGLE).address, block.address);
}

// ---------------------------------------------------------------------------------------------------
// C-W6 to C-W10

typedef struct mixer {
  tide_machine* m;
  tide_pinned_cache* p;
  tide_stream stream;
  pthread_mutex_t lock;  // guards the shown block
  tide_block shown;
  atomic_bool is_over;
} mixer;

static void* mixer_look(void* user) {
  mixer* const x = user;
  while (!atomic_load(&x->is_over)) {
    T_EQ(pthread_mutex_lock(&x->lock), 0);
    const tide_block block = x->shown;
    T_EQ(pthread_mutex_unlock(&x->lock), 0);
    T_ANY(tide_pinned_record(x->p, block, 0, x->stream));
    T_ANY(tide_pinned_record(x->p, (tide_block){ block.address, 0 }, 0, x->stream));
  }
  return NULL;
}

// Blocks are handed out and taken back while another thread asks about them; the thread sanitizer sees
// whether the flag that says so is read and written without order.
PINNED_TEST_OVER(test_pinned_weaknesses__c_w6_whether_a_block_is_handed_out_is_no_race, machine_host) {
  mixer x = { .m = m, .p = p, .stream = side_new(m), .shown = take(p, 512) };
  pthread_t thread;
  T_EQ(pthread_mutex_init(&x.lock, NULL), 0);
  t_thread_start(&thread, mixer_look, &x);

  for (size_t i = 0; i < t_scaled(T_HAS_SANITIZER ? 2000 : 10000); ++i) {
    const tide_block block = take(p, i % 2 == 0 ? 512 : SINGLE);
    T_EQ(pthread_mutex_lock(&x.lock), 0);
    x.shown = block;
    T_EQ(pthread_mutex_unlock(&x.lock), 0);
    give(p, block);
  }

  atomic_store(&x.is_over, true);
  t_thread_join(thread);
  T_EQ(pthread_mutex_destroy(&x.lock), 0);
}

// The record of a block that is gone serves another block: the old handle must not mean that one.
PINNED_TEST(test_pinned_weaknesses__c_w7_a_stale_handle_means_no_later_block) {
  const tide_stream stream = side_new(m);
  gate g;
  const tide_block old = take(p, SINGLE);
  give(p, old);
  empty(p);
  hold_up(&g, m, stream);
  for (size_t i = 0; i < 64; ++i) {
    const tide_block block = take(p, 3 * SINGLE);  // another class, so elsewhere unless addresses repeat
    T_NE(block.handle, old.handle);
    if (!is_same_memory(block, old)) T_STATUS(tide_pinned_record(p, old, 0, stream), TIDE_ERR_HANDLE);
    T_STATUS(tide_pinned_release(p, old), TIDE_ERR_HANDLE);
    give(p, block);
    T_EQ(current(p, waiting), 0);
    empty(p);
  }
  let_go(&g);
}

// The same while another thread empties the cache, and unpinning is slow.
static bool empty_slowly(tide_machine* m, tide_pinned_cache* p, tide_stream stream) {
  second s = { .m = m, .p = p };
  give(p, take(p, 1 * MIB));
  const tide_block keeps[] = { take(p, SINGLE), take(p, 512) };
  slow_down(m, TIDE_CALL_PINNED_RELEASE, TIDE_OK, 1, SLOW_MS);
  second_start(&s, second_empty);
  let_another_begin();
  for (size_t i = 0; i < 2; ++i) give(p, keeps[i]);
  use_cached(p, stream);
  const bool is_done_before = atomic_load(&s.is_done) == 0;
  t_thread_join(s.thread);
  tide_machine_fault_clear(m);
  return is_done_before;
}

PINNED_TEST_OVER(test_pinned_weaknesses__c_w9_nobody_waits_while_memory_goes_back, machine_host) {
  const tide_stream stream = side_new(m);
  bool is_free = false;

  for (int i = 0; i < 5 && !is_free; ++i) is_free = empty_slowly(m, p, stream);

  T_CHECK(is_free);
}

static void with_cap(tide_pinned_options* options) { options->max_cached_bytes = 4 * SINGLE; }

PINNED_TEST_WITH(test_pinned_weaknesses__c_w10_cached_bytes_have_a_cap, machine_names, with_cap) {
  tide_block blocks[10];
  (void)m;
  for (size_t i = 0; i < 10; ++i) blocks[i] = take(p, SINGLE);

  for (size_t i = 0; i < 10; ++i) {
    give(p, blocks[i]);
    const tide_pinned_stats stats = stats_of(p);
    T_LE(stats.allocated_bytes.current - stats.active_bytes.current, 4 * SINGLE);
  }

  T_EQ(current(p, allocated_bytes), 4 * SINGLE);
  T_EQ(counter(p, num_capped), 6);
}

PINNED_TEST_OVER(test_pinned_weaknesses__c_w10_a_refusal_gives_cached_memory_back_and_tries_again,
                 machine_emulated) {
  give(p, take(p, SINGLE));
  give(p, take(p, 2 * SINGLE));
  break_calls(m, TIDE_CALL_PINNED_ALLOC, TIDE_ERR_NO_MEMORY, 1);

  const tide_block block = take(p, 1 * MIB);

  tide_machine_fault_clear(m);
  T_CHECK(block.address != NULL);
  T_LE(1, counter(p, num_alloc_retries));
  T_LE(1, counter(p, num_host_free));
  T_EQ(counter(p, num_ooms), 0);
}

// ---------------------------------------------------------------------------------------------------
// C-W11 to C-W15

MACHINE_TEST(test_pinned_weaknesses__c_w11_the_end_of_a_cache_leaves_nothing) {
  const holdings before = holdings_of(m);
  tide_pinned_cache* const p = pinned_open(m, NULL);
  const tide_stream stream = side_new(m);
  tide_pinned_leaks leaks = TIDE_PINNED_LEAKS_INIT;
  const tide_block waiting = take(p, SINGLE);
  announce(p, waiting, stream);
  give(p, waiting);
  give(p, take(p, 512));
  (void)take(p, SINGLE);
  (void)take(p, 1000);
  T_EQ(current(p, active_requests) >= 2, true);

  tide_pinned_free(p, &leaks);

  const holdings after = holdings_of(m);
  T_EQ(after.pinned, before.pinned);
  T_EQ(after.events, before.events);
  T_EQ(leaks.blocks, 2);
  T_EQ(leaks.bytes, SINGLE + 1024);
}

PINNED_TEST(test_pinned_weaknesses__c_w12_a_release_lowers_what_is_active) {
  const tide_stream stream = side_new(m);
  for (int i = 0; i < 2; ++i) {
    const tide_block direct = take(p, SINGLE);
    const tide_block used = take(p, 2 * SINGLE);
    announce(p, used, stream);
    T_EQ(current(p, active_bytes), 3 * SINGLE);
    T_EQ(current(p, active_requests), 2);

    give(p, direct);
    T_EQ(current(p, active_bytes), 2 * SINGLE);
    give(p, used);
    stream_finish(m, 0, stream);
    poll_all(p);

    T_EQ(current(p, active_bytes), 0);
    T_EQ(current(p, active_requests), 0);
    T_EQ(stats_of(p).active_bytes.freed, (i + 1) * 3 * (int64_t)SINGLE);
  }
}

typedef struct pool_user {
  tide_pinned_cache* p;
  tide_pool pool;
} pool_user;

static void* use_pool(void* user) {
  const pool_user* const u = user;
  scope_open(u->p, u->pool);
  for (size_t i = 0; i < t_scaled(2000); ++i) give(u->p, take(u->p, i % 2 == 0 ? 512 : SINGLE));
  T_OK(tide_pinned_pool_end(u->p, u->pool));
  return NULL;
}

// Two threads, each in its own pool, count in the same totals.
PINNED_TEST_OVER(test_pinned_weaknesses__c_w12_pools_of_two_threads_count_exactly, machine_emulated) {
  (void)m;
  pool_user users[2] = { { p, pool_new(p) }, { p, pool_new(p) } };
  pthread_t threads[2];
  for (size_t i = 0; i < 2; ++i) t_thread_start(&threads[i], use_pool, &users[i]);
  for (size_t i = 0; i < 2; ++i) t_thread_join(threads[i]);

  const tide_pinned_stats stats = stats_of(p);

  T_EQ(stats.active_requests.current, 0);
  T_EQ(stats.active_requests.allocated, 2 * t_scaled(2000));
  T_EQ(stats.active_requests.freed, 2 * t_scaled(2000));
  T_EQ(stats.active_bytes.current, 0);
}

static void with_exact_sizes(tide_pinned_options* options) { options->max_round_bytes = 1 * MIB; }

// With rounding off, a cached block is handed out only to requests that fit.
PINNED_TEST_WITH(test_pinned_weaknesses__c_w13_a_cached_block_is_large_enough, machine_names,
                 with_exact_sizes) {
  const size_t small = 15 * MIB;
  const size_t large = 20 * MIB;
  give(p, take(p, large));
  give(p, take(p, small));

  const tide_block block = take(p, large);

  T_LE(large, pinned_room(m, block.address));
  paint(m, block, 0x77, large);
  expect_painted(m, block.address, 0x77, large);
  T_EQ(counter(p, num_host_alloc), 2);
}

PINNED_TEST_WITH(test_pinned_weaknesses__c_w13_150_and_200_mb_are_not_mixed_up, machine_dry,
                 with_exact_sizes) {
  give(p, take(p, 150 * MIB + 5));

  const tide_block block = take(p, 200 * MIB + 5);

  T_LE(200 * MIB + 5, pinned_room(m, block.address));
  give(p, block);
  const tide_block again = take(p, 150 * MIB + 5);
  T_LE(pinned_room(m, again.address), 151 * MIB);
}

static void with_reserve(tide_pinned_options* options) { options->reserve_bytes = 1 * MIB; }

PINNED_TEST_WITH(test_pinned_weaknesses__c_w14_a_reserve_is_no_way_around_the_largest_size, machine_emulated,
                 with_reserve) {
  (void)m;
  (void)take(p, 512);

  for (size_t below = 0; below < 8192; below += 511) {
    T_STATUS(try_take(p, SIZE_MAX - below), TIDE_ERR_ARGUMENT);
  }

  (void)take(p, 512);
}

PINNED_TEST_WITH(test_pinned_weaknesses__c_w15_registered_ranges_are_whole_pages, machine_names,
                 with_register) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  t_rng rng = t_rng_new(3);
  for (size_t i = 0; i < 60; ++i) {
    const size_t bytes = 1 + t_rng_below(&rng, i % 2 == 0 ? 8 * KIB : 200 * KIB);
    const tide_block block = take(p, bytes);
    const tide_pointer_info info = pointer_info(m, block.address);
    T_EQ(info.kind, TIDE_MEMORY_PINNED);
    if (!is_dry(m)) T_EQ((uintptr_t)info.base % page, 0);
    paint(m, block, (uint8_t)i, bytes);
  }
  T_EQ(tide_machine_call_stats(m, TIDE_CALL_PINNED_REGISTER).failures, 0);
}

PINNED_TEST_WITH(test_pinned_weaknesses__c_w15_a_refused_registration_leaves_no_mapping, machine_host,
                 with_register) {
  if (T_HAS_THREAD_SANITIZER) t_skip("the thread sanitizer has mappings of its own");
  give(p, take(p, 4 * MIB));  // threads and tables are there
  empty(p);
  const size_t before = t_count_mappings();
  break_calls(m, TIDE_CALL_PINNED_REGISTER, TIDE_ERR_MACHINE, UINT64_MAX);

  for (int i = 0; i < 50; ++i) T_STATUS(try_take(p, 4 * MIB), TIDE_ERR_MACHINE);

  tide_machine_fault_clear(m);
  T_LE(t_count_mappings(), before + 4);
  give(p, take(p, 4 * MIB));
}

static void with_many_threads(tide_pinned_options* options) {
  options->uses_register = true;
  options->register_threads = 128;
}

// Threads are for pages that there are, and none is left behind.
PINNED_TEST_WITH(test_pinned_weaknesses__c_w15_a_request_of_two_pages_leaves_no_threads, machine_host,
                 with_many_threads) {
  (void)m;
  const size_t before = t_count_threads();

  (void)take(p, 32 * KIB);
  (void)take(p, 16 * MIB);

  machine_expect_threads(before);
}

// ---------------------------------------------------------------------------------------------------
// C-W16 to C-W20

PINNED_TEST(test_pinned_weaknesses__c_w16_a_pool_without_users_is_an_error_to_revive) {
  (void)m;
  const tide_pool pool = pool_new(p);
  const tide_block block = take_in(p, pool, SINGLE);
  T_OK(tide_pinned_pool_drop(p, pool));

  T_STATUS(tide_pinned_pool_retain(p, pool), TIDE_ERR_STATE);
  T_STATUS(pool_begin_kept(p, pool, NULL), TIDE_ERR_STATE);
  T_STATUS(tide_pinned_pool_drop(p, pool), TIDE_ERR_STATE);

  give(p, block);
  empty(p);
  T_STATUS(tide_pinned_pool_retain(p, pool), TIDE_ERR_HANDLE);
  expect_nothing_left(p);
}

// How often the threads of this process beside the calling one were put to sleep so far.
static uint64_t count_sleeps(void) {
  uint64_t sum = 0;
  DIR* const dir = opendir("/proc/self/task");
  T_CHECK(dir != NULL);
  for (const struct dirent* entry = NULL; (entry = readdir(dir)) != NULL;) {
    char path[300];
    char line[200];
    if (entry->d_name[0] == '.' || strtol(entry->d_name, NULL, 10) == (long)getpid()) continue;
    (void)snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
    FILE* const file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
      if (strncmp(line, "voluntary_ctxt_switches:", 24) == 0) sum += strtoull(line + 24, NULL, 10);
    }
    if (file != NULL) (void)fclose(file);
  }
  (void)closedir(dir);
  return sum;
}

// A helper that looks again and again does so many times in any tenth of a second. One that has come to rest
// may have needed longer for that on a busy computer.
static bool is_quiet_for_a_while(const tide_machine* m) {
  const uint64_t sleeps = count_sleeps();
  const uint64_t calls = calls_made(m, TIDE_CALL_ANY);
  t_sleep_us(100000);
  return count_sleeps() == sleeps && calls_made(m, TIDE_CALL_ANY) == calls;
}

PINNED_TEST_WITH(test_pinned_weaknesses__c_w17_a_helper_sleeps_while_nothing_waits, machine_host,
                 with_helper) {
  if (T_HAS_THREAD_SANITIZER) t_skip("the thread sanitizer has a thread that wakes up by itself");
  const tide_stream stream = side_new(m);
  const tide_block block = take(p, SINGLE);
  announce(p, block, stream);
  give(p, block);
  bool is_quiet = false;
  T_WAIT(current(p, waiting) == 0);

  for (int i = 0; i < 20 && !is_quiet; ++i) is_quiet = is_quiet_for_a_while(m);

  T_CHECK(is_quiet);
}

EMULATED_TEST(test_pinned_weaknesses__c_w19_a_hit_makes_no_records) {
  tide_pinned_options options = TIDE_PINNED_OPTIONS_INIT;
  counting_heap records;
  counting_heap_init(&records, SIZE_MAX, false);
  options.heap = &records.heap;
  tide_pinned_cache* const p = pinned_open(m, &options);
  const tide_stream stream = side_new(m);
  for (int i = 0; i < 10; ++i) use_cached(p, stream);
  stream_finish(m, 0, stream);
  const size_t before = atomic_load(&records.allocs);
  const uint64_t pieces = pieces_made(m);

  for (int i = 0; i < 1000; ++i) {
    give(p, take(p, SINGLE));
    give(p, take(p, 512));
  }

  T_EQ(atomic_load(&records.allocs), before);
  T_EQ(pieces_made(m), pieces);
  tide_pinned_free(p, NULL);
  T_EQ(atomic_load(&records.outstanding), 0);
}

PINNED_TEST_WITH(test_pinned_weaknesses__c_w19_registered_memory_goes_back_the_way_it_came, machine_names,
                 with_register) {
  const holdings before = holdings_of(m);
  (void)take(p, 512);
  give(p, take(p, SINGLE));
  give(p, take(p, 4 * MIB));
  T_LE(before.registered + 3, holdings_of(m).registered);

  empty(p);

  T_EQ(holdings_of(m).registered, before.registered + 1);
  T_EQ(holdings_of(m).pinned, before.pinned);
}

// One thread is in the middle of asking about the only block; another needs it and finds it all the same.
PINNED_TEST_OVER(test_pinned_weaknesses__c_w20_a_block_that_is_looked_after_is_not_invisible, machine_host) {
  const tide_stream stream = side_new(m);
  second s = { .m = m, .p = p };
  const tide_block block = take(p, SINGLE);
  announce(p, block, stream);
  give(p, block);
  stream_finish(m, 0, stream);
  slow_down(m, TIDE_CALL_EVENT_QUERY, TIDE_OK, 1, SLOW_MS);
  second_start(&s, second_poll);
  let_another_begin();

  const tide_block again = take(p, SINGLE);

  T_PTR_EQ(again.address, block.address);
  T_EQ(counter(p, num_host_alloc), 1);
  t_thread_join(s.thread);
  tide_machine_fault_clear(m);
}
