// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Threads that park, unpark and use the same pools while observers hold one of them up. Each test brings the
// threads to the place where they meet by what they call, not by time.
#define T_THREADS
#include "device/budget.h"

#include <sched.h>

// A thread inside an observer lets the others run until they wait for it.
static void let_others_run(void) {
  for (int i = 0; i < 2000; ++i) sched_yield();
}

typedef struct meeting {
  tide_machine* m;
  tide_device_cache* d;
  tide_action held;  // the first entry of this kind is held up
  atomic_int is_inside;
  atomic_int arrived;  // threads that are about to make their call
  int awaited;         // how many of them are waited for
} meeting;

static void meeting_hold(void* user, const tide_trace_entry* entry) {
  meeting* const x = user;
  if (entry->action != x->held || atomic_exchange(&x->is_inside, 1) != 0) return;
  T_WAIT(atomic_load(&x->arrived) == x->awaited);
  let_others_run();
}

// ---------------------------------------------------------------------------------------------------
// A pool that moves

static void* unpark_a(void* user) {
  (void)unpark(((meeting*)user)->d, "a");
  return NULL;
}

// Unparking gives idle memory back first, and an observer of that is slow. Who wanted the pool meanwhile kept
// the gate while it waited, and nobody could go on.
DEVICE_TEST_OVER(test_park__a_pool_that_comes_back_is_waited_for_without_the_gate, device_tide_emulated) {
  meeting x = { .m = m, .d = d, .held = TIDE_ACTION_FREE_COMPLETED, .awaited = 1 };
  const tide_stream other = side_new(m);
  pthread_t thread;
  const tide_pool pool = tagged(d, "a");
  const known k = known_new(m, d, pool, NULL, 16 * MIB, 7);
  (void)park(d, "a", TIDE_BACKUP_PINNED);
  const tide_block idle = take(d, NULL, 30 * MIB);
  T_OK(tide_device_record(d, idle, other));
  give(d, idle);
  limit_to(d, 40 * MIB);  // below what both need
  observe_trace(d, meeting_hold, &x);

  t_thread_start(&thread, unpark_a, &x);
  T_WAIT(atomic_load(&x.is_inside));
  atomic_store(&x.arrived, 1);
  use(d, "a");
  T_CHECK(!is_parked(d, "a"));
  done(d, "a");
  t_thread_join(thread);

  known_expect(m, &k);
  give(d, k.block);
  T_OK(tide_device_pool_drop(d, pool));
}

// ---------------------------------------------------------------------------------------------------
// Two threads park

static void* trim_all(void* user) {
  trim(((meeting*)user)->d);
  return NULL;
}

static void* park_a(void* user) {
  meeting* const x = user;
  atomic_fetch_add(&x->arrived, 1);
  (void)park(x->d, "a", TIDE_BACKUP_PINNED);
  return NULL;
}

// Both wait for a third thread, whose trim is held up. The second to go on parked what the first had parked,
// and lost its backup.
DEVICE_TEST_OVER(test_park__two_threads_park_a_pool_once, device_tide_emulated) {
  meeting x = { .m = m, .d = d, .held = TIDE_ACTION_SEGMENT_UNMAP, .awaited = 2 };
  pthread_t trimmer;
  pthread_t parkers[2];
  const tide_pool pool = tagged(d, "a");
  const known k = known_new(m, d, pool, NULL, 16 * MIB, 7);
  give(d, take(d, NULL, 32 * MIB));
  observe_trace(d, meeting_hold, &x);

  t_thread_start(&trimmer, trim_all, &x);
  T_WAIT(atomic_load(&x.is_inside));
  for (size_t i = 0; i < 2; ++i) t_thread_start(&parkers[i], park_a, &x);
  for (size_t i = 0; i < 2; ++i) t_thread_join(parkers[i]);
  t_thread_join(trimmer);

  T_EQ(pool_reserved(d, pool), 0);
  T_EQ(stats_under(d, "a").parked_bytes, 16 * MIB);
  (void)unpark(d, "a");
  T_EQ(pool_reserved(d, pool), 16 * MIB);
  known_expect(m, &k);
  give(d, k.block);
  T_OK(tide_device_pool_drop(d, pool));
}

// A thread parks a pool while another one makes room by parking it.
static void* take_most(void* user) {
  meeting* const x = user;
  tide_block block = { NULL, 0 };
  atomic_fetch_add(&x->arrived, 1);
  const tide_status status = tide_device_alloc(x->d, NULL, 40 * MIB, &block);
  if (status == TIDE_OK) give(x->d, block);
  else T_EQ(status, TIDE_ERR_NO_MEMORY);
  return NULL;
}

DEVICE_TEST_OVER(test_park__what_gives_way_is_parked_once, device_tide_emulated) {
  meeting x = { .m = m, .d = d, .held = TIDE_ACTION_SEGMENT_UNMAP, .awaited = 2 };
  pthread_t trimmer;
  pthread_t others[2];
  const tide_pool pool = tagged(d, "a");
  budget_to(d, "a", yielding(0));
  const known k = known_new(m, d, pool, NULL, 16 * MIB, 7);
  give(d, take(d, NULL, 32 * MIB));
  limit_to(d, 50 * MIB);
  observe_trace(d, meeting_hold, &x);

  t_thread_start(&trimmer, trim_all, &x);
  T_WAIT(atomic_load(&x.is_inside));
  t_thread_start(&others[0], take_most, &x);
  t_thread_start(&others[1], park_a, &x);
  for (size_t i = 0; i < 2; ++i) t_thread_join(others[i]);
  t_thread_join(trimmer);

  T_EQ(pool_reserved(d, pool), 0);
  (void)unpark(d, "a");
  T_EQ(pool_reserved(d, pool), 16 * MIB);
  known_expect(m, &k);
  give(d, k.block);
  T_OK(tide_device_pool_drop(d, pool));
}

// ---------------------------------------------------------------------------------------------------
// Inside an observer

typedef struct inner {
  tide_device_cache* d;
  tide_pool pool;
  atomic_int is_inside;
  atomic_int is_done;
  tide_status status;
} inner;

// One thread is held up while it gives memory of the pool back; another one, inside an observer, parks it.
static void inner_hear(void* user, const tide_trace_entry* entry) {
  inner* const i = user;
  if (entry->action == TIDE_ACTION_SEGMENT_UNMAP && atomic_exchange(&i->is_inside, 1) == 0)
    T_WAIT(atomic_load(&i->is_done));
  if (entry->action != TIDE_ACTION_ALLOC || atomic_load(&i->is_done)) return;
  i->status = tide_device_park(i->d, "a", NULL, NULL);
  atomic_store(&i->is_done, 1);
}

static void* trim_pool(void* user) {
  const inner* const i = user;
  T_OK(tide_device_trim_pool(i->d, i->pool));
  return NULL;
}

// It cannot wait there. It parked memory that the other thread then gave back.
DEVICE_TEST_OVER(test_park__memory_that_is_being_given_back_is_not_parked, device_tide_emulated) {
  inner i = { .d = d, .pool = tagged(d, "a") };
  pthread_t thread;
  small_handles(d);
  const known k = known_new(m, d, i.pool, NULL, 4 * MIB, 7);
  leave_idle(d, i.pool, 16 * MIB);
  give(d, take(d, NULL, 4 * MIB));  // so that the next request does not wait for the gate
  observe_trace(d, inner_hear, &i);

  t_thread_start(&thread, trim_pool, &i);
  T_WAIT(atomic_load(&i.is_inside));
  give(d, take(d, NULL, 4 * MIB));
  t_thread_join(thread);

  T_STATUS(i.status, TIDE_ERR_STATE);
  device_expect_valid(d);
  T_EQ(pool_reserved(d, i.pool), 4 * MIB);
  known_expect(m, &k);
  give(d, k.block);
  T_OK(tide_device_pool_drop(d, i.pool));
}

// ---------------------------------------------------------------------------------------------------
// A pool that ends

typedef struct ending {
  tide_device_cache* d;
  tide_pool pool;
  bool has_ended;
} ending;

// In the middle of a trim, which parks nothing itself.
static void ending_hear(void* user, const tide_trace_entry* entry) {
  ending* const e = user;
  if (entry->action != TIDE_ACTION_SEGMENT_UNMAP || e->has_ended) return;
  e->has_ended = true;
  (void)park(e->d, "a", TIDE_BACKUP_PINNED);
  T_OK(tide_device_pool_drop(e->d, e->pool));
}

// A pool without memory was parked during a trim, which ended it with the record of that.
DEVICE_TEST_OVER(test_park__an_empty_pool_is_parked_and_ends_during_a_trim, device_tide_emulated) {
  ending e = { .d = d, .pool = tagged(d, "a") };
  give(d, take(d, NULL, 8 * MIB));
  observe_trace(d, ending_hear, &e);
  trim(d);
  T_CHECK(e.has_ended);
  trim(d);
  tide_tag_stats stats = TIDE_TAG_STATS_INIT;
  T_STATUS(tide_device_tag_stats(d, "a", &stats), TIDE_ERR_HANDLE);  // the next one ends it
}
