// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory that the policy `tide` makes before a request needs it (tide_ahead). On the dry machine the helper
// is modelled, and everything repeats; on the host machine it is a thread. What it may hold is computed from
// the requests, and what requests must get from an allocator without a helper.
#define T_THREADS
#include <sched.h>
#include <sys/resource.h>

#include "device/park.h"
#include "process.h"

// A quarter of the peak may be held ahead, in handles of 2 MiB.
#define AHEAD "policy:tide,tide_idle_handles:0,tide_stitch_share:1,tide_slack:0.25,tide_most_handle_mb:2"
#define ALONE AHEAD ",tide_ahead:False"
enum { HANDLE = 2 };

static uint64_t ahead_of(tide_device_cache* d) { return (uint64_t)stats_of(d).ahead_bytes.current; }

// ---------------------------------------------------------------------------------------------------
// What is held

MACHINE_TEST_OVER(test_ahead__holds_as_many_handles_as_the_slack_has, machine_dry) {
  tide_device_cache* const d = device_with(m, AHEAD);
  uint64_t live = 0;
  for (int i = 0; i < 30; i++) {
    (void)take(d, NULL, 6 * MIB);
    live += 6 * MIB;
    T_EQ(ahead_of(d), live / 4 / (HANDLE * MIB) * HANDLE * MIB);
    T_EQ(current(d, reserved_bytes), (int64_t)(live + ahead_of(d)));
    device_expect_valid(d);
  }
  T_LE((uint64_t)stats_of(d).ahead_bytes.peak, live / 4);
  T_CHECK(counter(d, num_ahead_handles) > 0);
  tide_device_free(d);
}

MACHINE_TEST_OVER(test_ahead__holds_nothing_where_it_is_off_or_the_slack_is_less_than_a_handle, machine_dry) {
  static const char* const texts[] = { ALONE, AHEAD ",tide_slack:0", AHEAD ",tide_slack:0.01",
                                       "policy:torch" };
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    tide_device_cache* const d = device_with(m, texts[i]);
    for (int k = 0; k < 15; k++) (void)take(d, NULL, 12 * MIB);  // a hundredth is below 2 MiB
    T_EQ(ahead_of(d), 0);
    T_EQ(counter(d, num_ahead_handles), 0);
    T_EQ(counter(d, ahead_ns), 0);
    tide_device_free(d);
  }
}

// A request that finds all its memory ready spends no time in the driver: all of it is the helper's.
MACHINE_TEST_OVER(test_ahead__a_request_that_takes_it_does_not_wait_for_the_driver, machine_dry) {
  tide_device_cache* const d = device_with(m, AHEAD);
  (void)take(d, NULL, 80 * MIB);
  for (int i = 0; i < 10; i++) {
    const uint64_t begin_ns = clock_of(m);
    const int64_t helped_ns = counter(d, ahead_ns);
    (void)take(d, NULL, 8 * MIB);
    T_EQ(clock_of(m) - begin_ns, (uint64_t)(counter(d, ahead_ns) - helped_ns));
    T_CHECK(counter(d, ahead_ns) > helped_ns);
  }
  tide_device_free(d);
}

// Makes a view whose last 10 MiB are new, and have their place at home behind `blocks[2]`.
static tide_block take_view(tide_device_cache* d, tide_block blocks[3]) {
  for (int i = 0; i < 3; i++) blocks[i] = take(d, NULL, 20 * MIB);
  give(d, blocks[0]);
  const tide_block view = take(d, NULL, 30 * MIB);
  T_EQ(current(d, reserved_bytes), 70 * MIB);
  return view;
}

// The new handles of a view are mapped at home by the helper, so that a request for them there does not wait.
MACHINE_TEST_OVER(test_ahead__new_handles_of_a_view_are_mapped_at_home, machine_dry) {
  tide_block blocks[3];
  tide_device_cache* const d = device_with(m, AHEAD ",tide_slack:0");
  const tide_block view = take_view(d, blocks);
  T_CHECK(counter(d, ahead_ns) > 0);
  T_EQ(counter(d, num_ahead_handles), 0);
  give(d, view);
  const tide_call_stats before = tide_machine_call_stats(m, TIDE_CALL_ANY);
  const tide_block last = take(d, NULL, 10 * MIB);
  T_PTR_EQ(last.address, bytes_of(blocks[2]) + 20 * MIB);
  T_EQ(tide_machine_call_stats(m, TIDE_CALL_ANY).calls, before.calls);
  device_expect_valid(d);
  tide_device_free(d);
}

MACHINE_TEST_OVER(test_ahead__ends_with_the_growth, machine_dry) {
  tide_device_cache* const d = device_with(m, AHEAD);
  tide_block blocks[16];
  for (int i = 0; i < 16; i++) blocks[i] = take(d, NULL, 8 * MIB);
  for (int i = 0; i < 16; i++) give(d, blocks[i]);
  const tide_call_stats before = tide_machine_call_stats(m, TIDE_CALL_ANY);
  for (int k = 0; k < 100; k++) {
    for (int i = 0; i < 16; i++) blocks[i] = take(d, NULL, 8 * MIB);
    for (int i = 0; i < 16; i++) give(d, blocks[i]);
  }
  T_EQ(tide_machine_call_stats(m, TIDE_CALL_ANY).calls, before.calls);
  tide_device_free(d);
}

// ---------------------------------------------------------------------------------------------------
// Who goes first

MACHINE_TEST_OVER(test_ahead__a_trim_gives_it_back, machine_dry) {
  tide_device_cache* const d = device_with(m, AHEAD);
  const tide_block block = take(d, NULL, 100 * MIB);
  T_CHECK(ahead_of(d) > 0);
  T_OK(tide_device_trim(d, 0));
  T_EQ(ahead_of(d), 0);
  T_EQ(current(d, reserved_bytes), 100 * MIB);
  (void)take(d, NULL, 100 * MIB);
  T_CHECK(ahead_of(d) > 0);  // and it goes on
  give(d, block);
  device_expect_valid(d);
  tide_device_free(d);
}

// Nobody asks for memory in a pool that has lost its last user.
MACHINE_TEST_OVER(test_ahead__a_pool_that_ends_gives_it_back, machine_dry) {
  tide_device_cache* const d = device_with(m, AHEAD);
  const tide_pool pool = pool_new(d, NULL);
  const tide_block block = take_tagged(d, pool, NULL, 80 * MIB);
  T_EQ(ahead_of(d), 20 * MIB);
  give(d, block);
  T_OK(tide_device_pool_drop(d, pool));
  T_EQ(ahead_of(d), 0);
  T_EQ(current(d, reserved_bytes), 0);
  device_expect_valid(d);
  tide_device_free(d);
}

// A closed stream asks for none. Then it is idle, and a view of another stream has it.
MACHINE_TEST_OVER(test_ahead__a_closed_stream_leaves_it_to_others, machine_dry) {
  tide_device_cache* const d = device_with(m, AHEAD);
  const tide_stream stream = side_new(m);
  const tide_block small = take(d, NULL, 512);  // with a second stream, releases leave marks
  give(d, take(d, stream, 80 * MIB));
  T_EQ(ahead_of(d), 20 * MIB);
  T_OK(tide_machine_device_synchronize(m, 0));
  T_OK(tide_device_close_stream(d, stream));
  T_EQ(ahead_of(d), 0);
  T_EQ(current(d, reserved_bytes), 102 * MIB);
  (void)take(d, NULL, 100 * MIB);
  T_EQ(current(d, reserved_bytes), 102 * MIB);
  give(d, small);
  device_expect_valid(d);
  tide_device_free(d);
}

// The hurry ends for the helper, too, when views are not bounded any more.
MACHINE_TEST_OVER(test_ahead__goes_on_when_views_are_not_bounded_any_more, machine_dry) {
  tide_block blocks[16];
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  tide_device_cache* const d =
      device_with(m, AHEAD ",tide_slack:0.02,tide_stitch_share:0,tide_most_slack:0.03");
  for (int i = 0; i < 16; i++) blocks[i] = take(d, NULL, 8 * MIB);
  for (int i = 0; i < 16; i += 2) give(d, blocks[i]);
  (void)take(d, NULL, 24 * MIB);  // in a view, for which there is no time
  T_OK(tide_device_trim(d, 0));
  (void)take(d, NULL, 40 * MIB);
  T_EQ(ahead_of(d), 0);
  T_OK(tide_device_options_parse(AHEAD, &options));
  T_OK(tide_device_configure(d, &options));
  (void)take(d, NULL, 40 * MIB);
  T_CHECK(ahead_of(d) > 0);
  tide_device_free(d);
}

// A thread that unparks a pool in the middle of something else, as far as it gets.
typedef struct unparker {
  tide_device_cache* d;
  pthread_t thread;
  bool is_started;
  atomic_bool has_begun;
  atomic_bool is_done;
} unparker;

static void* unparker_run(void* user) {
  unparker* const u = user;
  atomic_store(&u->has_begun, true);
  T_OK(tide_device_unpark(u->d, "w", NULL, NULL));
  atomic_store(&u->is_done, true);
  return NULL;
}

static void unparker_hear(void* user, const tide_trace_entry* entry) {
  unparker* const u = user;
  if (entry->action != TIDE_ACTION_SEGMENT_UNMAP || u->is_started) return;
  u->is_started = true;
  t_thread_start(&u->thread, unparker_run, u);
  T_WAIT(atomic_load(&u->has_begun));
  for (int i = 0; i < 20000 && !atomic_load(&u->is_done); i++) (void)sched_yield();
}

// Unparking gives back what is ahead, and observers hear of that.
MACHINE_TEST_OVER(test_ahead__two_threads_unpark_while_it_goes_back, machine_dry) {
  tide_device_cache* const d = device_with(m, AHEAD);
  const tide_pool pool = tagged(d, "w");
  const tide_block block = take_tagged(d, pool, NULL, 40 * MIB);
  (void)park(d, "w", TIDE_BACKUP_NONE);
  T_OK(tide_device_trim(d, 0));
  (void)take(d, NULL, 100 * MIB);
  T_CHECK(ahead_of(d) > 0);
  unparker u = { .d = d };
  const tide_observer observer = observe_trace(d, unparker_hear, &u);
  T_OK(tide_device_unpark(d, "w", NULL, NULL));
  T_CHECK(u.is_started);
  t_thread_join(u.thread);
  T_OK(tide_device_detach(d, observer));
  T_EQ(current(d, reserved_bytes), 140 * MIB);
  give(d, block);
  device_expect_valid(d);
  tide_device_free(d);
}

// Requests of two streams and two pools at random under a limit, or on a device of that size. Each is served
// if, and only if, an allocator without a helper serves it. No size is such that a handle is shared.
typedef struct run {
  tide_machine* m;
  tide_device_cache* d;
  tide_pool pool;
  tide_stream side;
  tide_block blocks[64];
} run;

static run run_new(const char* text, uint64_t capacity, uint64_t limit) {
  run r = { .m = dry_of(capacity) };
  r.d = device_with(r.m, text);
  T_OK(tide_device_set_limit(r.d, limit));
  T_OK(tide_device_pool_new(r.d, NULL, &r.pool));
  T_OK(tide_machine_stream_new(r.m, 0, TIDE_STREAM_NON_BLOCKING, 0, &r.side));
  return r;
}

static tide_status run_take(run* r, size_t at, int where, size_t bytes) {
  tide_scope scope = TIDE_SCOPE_INIT;
  scope.is_region = true;
  if (where == 2) T_OK(tide_device_pool_begin(r->d, r->pool, &scope));
  const tide_status status = tide_device_alloc(r->d, where == 1 ? r->side : NULL, bytes, &r->blocks[at]);
  if (where == 2) T_OK(tide_device_pool_end(r->d, r->pool));
  return status;
}

static void run_free(run* r) {
  device_expect_valid(r->d);
  tide_device_free(r->d);
  tide_machine_free(r->m);
}

static void expect_same(uint64_t capacity, uint64_t limit, uint64_t seed) {
  run with = run_new(AHEAD, capacity, limit);
  run without = run_new(ALONE, capacity, limit);
  t_rng rng = t_rng_new(seed);
  uint64_t refused = 0;
  for (size_t i = 0; i < t_scaled_least(600, 300); i++) {
    const size_t at = (size_t)t_rng_below(&rng, 64);
    const int where = (int)t_rng_below(&rng, 3);
    const size_t bytes = (size_t)(1 + t_rng_below(&rng, 12)) * HANDLE * MIB;
    if (with.blocks[at].handle != 0) {
      give(with.d, with.blocks[at]);
      give(without.d, without.blocks[at]);
      with.blocks[at] = without.blocks[at] = block_none;
      continue;
    }
    const tide_status expected = run_take(&without, at, where, bytes);
    const tide_status got = run_take(&with, at, where, bytes);
    if (got != expected)
      T_FAIL("seed %llu, request %zu: %d instead of %d", (unsigned long long)seed, i, got, expected);
    refused += got == TIDE_ERR_NO_MEMORY;
    const tide_device_stats stats = stats_of(with.d);
    if (got != TIDE_OK) T_EQ(stats.ahead_bytes.current, 0);  // nothing was held that the request needs
    T_LE(stats.ahead_bytes.current * 4, stats.active_bytes[TIDE_STAT_ALL].peak);
    T_LE((uint64_t)stats.reserved_bytes[TIDE_STAT_ALL].current, limit);
  }
  T_CHECK(refused > 0);
  T_CHECK(counter(with.d, num_ahead_handles) > 0);
  run_free(&with);
  run_free(&without);
}

T_TEST(test_ahead__requests_under_a_limit_are_served_as_without_it) {
  for (uint64_t seed = 1; seed <= 8; seed++) expect_same((uint64_t)4 << 30, 300 * MIB, seed);
}

T_TEST(test_ahead__requests_on_a_full_device_are_served_as_without_it) {
  for (uint64_t seed = 11; seed <= 18; seed++) expect_same(300 * MIB, TIDE_NO_LIMIT, seed);
}

// ---------------------------------------------------------------------------------------------------
// Faults

// The request takes what is ready; every call that follows is the helper's. What fails there is no error of
// the request, loses no memory, and the next growth goes on.
MACHINE_TEST_OVER(test_ahead__faults_of_its_calls_are_nobodys_errors, machine_dry) {
  static const tide_call made[] = { TIDE_CALL_PHYSICAL_NEW, TIDE_CALL_MAP, TIDE_CALL_SET_ACCESS };
  static const tide_status statuses[] = { TIDE_ERR_NO_MEMORY, TIDE_ERR_MACHINE };
  for (size_t i = 0; i < 6; i++) {
    for (uint64_t skip = 0; skip < 4; skip++) {
      tide_device_cache* const d = device_with(m, AHEAD);
      (void)take(d, NULL, 100 * MIB);
      fault_after(m, made[i / 2], statuses[i % 2], skip);
      const uint64_t before = ahead_of(d);
      (void)take(d, NULL, 10 * MIB);
      T_EQ(ahead_of(d), before - 10 * MIB + skip * HANDLE * MIB);
      device_expect_valid(d);
      tide_machine_fault_clear(m);
      T_OK(tide_device_trim(d, 0));  // forgets that memory was short
      (void)take(d, NULL, 10 * MIB);
      T_CHECK(ahead_of(d) > 0);
      device_expect_valid(d);
      tide_device_free(d);
    }
  }
}

// A handle of a view that the helper could not map at home is mapped by the request that needs it.
MACHINE_TEST_OVER(test_ahead__what_the_helper_does_not_map_a_request_maps, machine_dry) {
  static const tide_call made[] = { TIDE_CALL_MAP, TIDE_CALL_SET_ACCESS };
  const size_t before = free_bytes(m, 0);
  for (size_t i = 0; i < 2; i++) {
    tide_block blocks[3];
    const uint64_t calls_of_view = i == 0 ? 15 : 1;  // of its 15 handles
    for (uint64_t skip = 0; skip < 5; skip++) {
      tide_device_cache* const d = device_with(m, AHEAD ",tide_slack:0");
      for (int k = 0; k < 3; k++) blocks[k] = take(d, NULL, 20 * MIB);
      give(d, blocks[0]);
      fault_after(m, made[i], TIDE_ERR_MACHINE, calls_of_view + skip);
      const tide_block view = take(d, NULL, 30 * MIB);
      tide_machine_fault_clear(m);
      give(d, view);
      device_expect_valid(d);
      const uint64_t maps = calls(m, TIDE_CALL_MAP);
      (void)take(d, NULL, 10 * MIB);
      T_EQ(calls(m, TIDE_CALL_MAP) - maps, 5 - skip);
      device_expect_valid(d);
      tide_device_free(d);
      T_EQ(free_bytes(m, 0), before);
    }
  }
}

// What cannot be given back is idle, and serves requests.
MACHINE_TEST_OVER(test_ahead__what_the_machine_does_not_take_back_is_idle, machine_dry) {
  tide_device_cache* const d = device_with(m, AHEAD);
  (void)take(d, NULL, 200 * MIB);
  const int64_t reserved = current(d, reserved_bytes);
  fault_after(m, TIDE_CALL_UNMAP, TIDE_ERR_MACHINE, 0);
  T_ANY(tide_device_trim(d, 0));
  tide_machine_fault_clear(m);
  T_EQ(ahead_of(d), 0);
  device_expect_valid(d);
  T_LE(current(d, reserved_bytes), reserved);
  T_OK(tide_device_trim(d, 0));
  T_EQ(current(d, reserved_bytes), 200 * MIB);
  device_expect_valid(d);
  tide_device_free(d);
}

// ---------------------------------------------------------------------------------------------------
// What is recorded

typedef struct balance {
  int64_t mapped;
} balance;

static bool balance_add(void* user, const tide_trace_entry* entries, size_t count) {
  balance* const b = user;
  for (size_t i = 0; i < count; i++) {
    if (entries[i].action == TIDE_ACTION_SEGMENT_MAP) b->mapped += (int64_t)entries[i].bytes;
    if (entries[i].action == TIDE_ACTION_SEGMENT_UNMAP) b->mapped -= (int64_t)entries[i].bytes;
  }
  return true;
}

static bool segment_add(void* user, const tide_segment_info* info) {
  *(int64_t*)user += (int64_t)info->bytes;
  return true;
}

static void expect_recorded(tide_device_cache* d) {
  balance b = { 0 };
  int64_t shown = 0;
  const tide_device_visitor visitor = { segment_add, NULL, &shown };
  T_OK(tide_device_history_visit(d, balance_add, &b));
  T_OK(tide_device_visit(d, &visitor));
  T_EQ(b.mapped, current(d, reserved_bytes));
  T_EQ(shown, current(d, reserved_bytes));
}

MACHINE_TEST_OVER(test_ahead__history_and_snapshots_have_all_that_is_reserved, machine_dry) {
  tide_device_cache* const d = device_with(m, AHEAD);
  tide_history_options history = TIDE_HISTORY_OPTIONS_INIT;
  history.is_on = true;
  T_OK(tide_device_history(d, &history));
  for (int i = 0; i < 10; i++) {
    (void)take(d, NULL, 16 * MIB);
    expect_recorded(d);
  }
  T_CHECK(ahead_of(d) > 0);
  T_OK(tide_device_trim(d, 0));
  expect_recorded(d);
  tide_device_free(d);
}

// ---------------------------------------------------------------------------------------------------
// The thread

// Grows, and waits until the helper has made something. It does so only in a pause of growth.
static void grow_until_helped(tide_device_cache* d) {
  T_OK(tide_device_trim(d, 0));
  give(d, take(d, NULL, 60 * MIB));
  while (counter(d, num_ahead_handles) == 0) (void)sched_yield();
}

HOST_TEST(test_ahead__a_thread_makes_it) {
  tide_device_cache* const d = device_with(m, AHEAD);
  (void)take(d, NULL, 100 * MIB);
  while (ahead_of(d) < 24 * MIB) (void)sched_yield();
  const tide_block block = take(d, NULL, 20 * MIB);
  paint(m, NULL, block, 7, 20 * MIB);
  stream_finish(m, 0, NULL);
  expect_filled(m, 0, bytes_of(block), 7, 20 * MIB);
  T_OK(tide_device_trim(d, 0));
  tide_device_free(d);
}

HOST_TEST(test_ahead__the_allocator_ends_while_the_thread_works) {
  slow_calls(m);
  for (size_t i = 0; i < t_scaled(10); i++) {
    tide_device_cache* const d = device_with(m, AHEAD);
    (void)take(d, NULL, 40 * MIB);
    if (i % 2 == 1) grow_until_helped(d);
    tide_device_free(d);
  }
}

// Threads that grow, shrink and look at the allocator beside the helper.
static void* crowd_run(void* user) {
  tide_device_cache* const d = user;
  static atomic_uint numbers;
  const unsigned number = atomic_fetch_add(&numbers, 1);
  t_rng rng = t_rng_new(100 + number);
  for (size_t i = 0; i < t_scaled(150); i++) {
    const tide_block block = take(d, NULL, (size_t)(1 + t_rng_below(&rng, 30)) * MIB);
    const tide_block other = take(d, NULL, (size_t)(1 + t_rng_below(&rng, 3)) * MIB);
    give(d, block);
    if (number % 2 == 0 && i % 8 == 0) T_OK(tide_device_trim(d, 0));
    T_LE(stats_of(d).ahead_bytes.current, stats_of(d).reserved_bytes[TIDE_STAT_ALL].peak);
    give(d, other);
  }
  return NULL;
}

HOST_TEST(test_ahead__threads_grow_and_trim_beside_it) {
  tide_device_cache* const d = device_with(m, AHEAD);
  run_threads(4, crowd_run, d);
  grow_until_helped(d);
  T_OK(tide_device_trim(d, 0));
  tide_device_free(d);
}

// Any call of the helper or of a request may fail; nothing is lost, and the allocator goes on.
HOST_TEST(test_ahead__calls_of_the_thread_fail) {
  static const tide_call every[] = { TIDE_CALL_PHYSICAL_NEW, TIDE_CALL_MAP, TIDE_CALL_SET_ACCESS,
                                     TIDE_CALL_UNMAP, TIDE_CALL_PHYSICAL_FREE };
  const size_t before = free_bytes(m, 0);
  for (size_t i = 0; i < sizeof every / sizeof every[0]; i++) {
    for (uint64_t skip = 0; skip < 12; skip++) {
      tide_device_cache* const d = device_with(m, AHEAD);
      (void)take(d, NULL, 40 * MIB);
      fault_after(m, every[i], TIDE_ERR_MACHINE, skip);
      for (int k = 0; k < 6; k++) T_ANY(try_take(d, NULL, 8 * MIB));
      T_ANY(tide_device_trim(d, 0));
      tide_machine_fault_clear(m);
      T_OK(tide_device_trim(d, 0));
      (void)take(d, NULL, 80 * MIB);
      tide_device_free(d);
      T_EQ(free_bytes(m, 0), before);
    }
  }
}

// A child has no helper and may not use the allocator; the parent goes on.
HOST_TEST(test_ahead__the_process_forks_while_the_thread_works) {
  slow_calls(m);
  tide_device_cache* const d = device_with(m, AHEAD);
  for (int i = 0; i < 10; i++) {
    (void)take(d, NULL, 16 * MIB);
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
      tide_block block;
      (void)alarm(20);
      if (tide_device_alloc(d, NULL, 40 * MIB, &block) != TIDE_ERR_STATE) _exit(1);
      tide_device_free(d);
      _exit(0);
    }
    T_EQ(waitpid(child, &status, 0), child);
    T_EQ(status, 0);
  }
  grow_until_helped(d);
  tide_device_free(d);
}

// A process of its own, which ends by exit() while the helper is in a call of the machine.
T_ROLE(ends_while_the_thread_works) {
  (void)argument;
  tide_machine* m = NULL;
  T_OK(machine_new("host", NULL, &m));
  slow_calls(m);
  tide_device_cache* const d = device_with(m, AHEAD);
  (void)take(d, NULL, 100 * MIB);
  exit(0);
}

// A thread that is not joined would be a leak for the thread sanitizer.
T_TEST(test_ahead__the_process_ends_while_the_thread_works) {
  if (T_HAS_THREAD_SANITIZER) t_skip("threads are not joined at exit");
  for (size_t i = 0; i < t_scaled(5); i++) {
    t_process p = t_process_new("ends_while_the_thread_works");
    t_process_end(&p);
  }
}

// A thread cannot be started: no addresses are left for its stack. Everything works as without it.
HOST_TEST(test_ahead__without_threads_nothing_is_made) {
  struct rlimit before;
  char text[64] = "";
  if (T_HAS_SANITIZER) t_skip("the sanitizer needs addresses");
  tide_device_cache* const d = device_with(m, AHEAD);
  give(d, take(d, NULL, 6 * MIB));
  FILE* const file = fopen("/proc/self/statm", "r");
  T_CHECK(file != NULL && fgets(text, sizeof text, file) != NULL);
  (void)fclose(file);
  T_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const rlim_t now = (rlim_t)strtoull(text, NULL, 10) * (rlim_t)sysconf(_SC_PAGESIZE);
  T_EQ(setrlimit(RLIMIT_AS, &(struct rlimit){ now + 4 * MIB, before.rlim_max }), 0);
  for (int i = 0; i < 10; i++) (void)take(d, NULL, 10 * MIB);
  T_EQ(setrlimit(RLIMIT_AS, &before), 0);
  for (int i = 0; i < 10; i++) (void)take(d, NULL, 10 * MIB);
  T_EQ(ahead_of(d), 0);
  device_expect_valid(d);
  tide_device_free(d);
}
