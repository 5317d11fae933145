// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Caches that are members of a ledger: what they hold is what they have reserved, requests get what others do
// not need, guarantees hold, and what is killed gives everything back. The truth about what is held is the
// machine's: its memory in use.
#define T_THREADS
#include "device/budget.h"
#include "quota/ledgers.h"

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

static const char* const tide_emulated[] = { "host tide", "dry tide", NULL };
static const char* const plain_emulated[] = { "host", "dry", NULL };
static const char* const tide_host[] = { "host tide", NULL };

#define SHORT_NS 20000000u             // where a request is to fail
#define LONG_NS UINT64_C(60000000000)  // where it is to succeed

static tide_status try_join(tide_device_cache* d, uint64_t total, uint64_t guarantee, uint64_t wait_ns) {
  tide_quota_options options = TIDE_QUOTA_OPTIONS_INIT;
  options.ledger = ledger_path();
  options.total_bytes = total;
  options.guarantee_bytes = guarantee;
  options.wait_ns = wait_ns;
  return tide_device_join(d, &options);
}

static void join(tide_device_cache* d, uint64_t total, uint64_t guarantee, uint64_t wait_ns) {
  T_OK(try_join(d, total, guarantee, wait_ns));
}

static uint64_t machine_in_use(tide_machine* m) { return MACHINE_CAPACITY - free_bytes(m, 0); }

static uint64_t held(void) { return ledger_look(ledger_path()).ledger.held_bytes; }

static void ledger_remove(void) {
  T_OK(tide_quota_remove(ledger_path()));
  T_EQ(rmdir(ledger_folder()), 0);
}

// A request that may fail.
static void maybe_take(tide_device_cache* d, size_t bytes, tide_block* out) {
  const tide_status status = tide_device_alloc(d, NULL, bytes, out);
  T_EQ(status == TIDE_OK, out->address != NULL);
}

// Another cache beside the test's own, in the same ledger.
static tide_device_cache* neighbour_new(tide_machine* m, uint64_t guarantee) {
  tide_device_cache* const d = device_new(m, 0, NULL);
  if (is_tide()) small_handles(d);
  join(d, 0, guarantee, SHORT_NS);
  return d;
}

// ---------------------------------------------------------------------------------------------------
// Counting

// Takes and gives at random, in a ledger that is too small.
static void expect_counted(tide_machine* m, tide_device_cache* d) {
  enum { ROUNDS = 400, BLOCKS = 24 };
  tide_block blocks[BLOCKS] = { 0 };
  t_rng rng = t_rng_new(0);
  const tide_pool pool = tagged(d, "a");
  (void)take(d, NULL, 3 * MIB);
  join(d, 120 * MIB, 0, 0);
  T_EQ(held(), machine_in_use(m));
  for (int i = 0; i < ROUNDS; ++i) {
    tide_block* const block = &blocks[t_rng_below(&rng, BLOCKS)];
    const size_t bytes = 1 + t_rng_below(&rng, t_rng_below(&rng, 3) == 0 ? 30 * MIB : 3 * MIB);
    if (block->address != NULL) {
      give(d, *block);
      *block = (tide_block){ NULL, 0 };
    } else if (t_rng_below(&rng, 2) == 0) {
      (void)try_tagged(d, pool, NULL, bytes, block);
    } else {
      maybe_take(d, bytes, block);
    }
    if (t_rng_below(&rng, 20) == 0) T_OK(tide_device_trim(d, t_rng_below(&rng, 60 * MIB)));
    T_EQ(held(), machine_in_use(m));
    T_LE(held(), 120 * MIB);
  }
  T_LE(1, counter(d, num_ooms));
  tide_device_leave(d);
  T_EQ(held(), 0);
  ledger_remove();
}

DEVICE_TEST_OVER(test_join__counts_what_is_reserved, device_emulated) { expect_counted(m, d); }

DEVICE_TEST_OVER(test_join__counts_expandable_segments, plain_emulated) {
  expand(m, d);
  expect_counted(m, d);
}

DEVICE_TEST_OVER(test_join__needs_room_for_what_is_there, device_emulated) {
  tide_quota_options wrong = TIDE_QUOTA_OPTIONS_INIT;
  (void)take(d, NULL, 60 * MIB);
  T_STATUS(try_join(d, 40 * MIB, 0, 0), TIDE_ERR_NO_MEMORY);
  T_EQ(held(), 0);
  T_OK(tide_quota_set_total(ledger_path(), 80 * MIB));
  join(d, 0, 0, 0);
  T_STATUS(try_join(d, 0, 0, 0), TIDE_ERR_STATE);
  T_EQ(held(), 60 * MIB);
  expect_oom(d, NULL, 40 * MIB);
  tide_device_leave(d);
  tide_device_leave(d);
  (void)take(d, NULL, 40 * MIB);  // a ledger that was left says nothing
  wrong.ledger = ledger_path();
  wrong.user = d;
  T_STATUS(tide_device_join(d, &wrong), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_join(d, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_join(NULL, &wrong), TIDE_ERR_ARGUMENT);
  tide_device_leave(NULL);
  ledger_remove();
}

DEVICE_TEST_OVER(test_join__parked_memory_is_not_held, tide_emulated) {
  const tide_pool pool = tagged(d, "a");
  small_handles(d);
  join(d, 100 * MIB, 0, 0);
  const known k = known_new(m, d, pool, NULL, 40 * MIB, 1);
  T_EQ(held(), 40 * MIB);
  (void)park(d, "a", TIDE_BACKUP_PINNED);
  T_EQ(held(), 0);
  (void)unpark(d, "a");
  T_EQ(held(), 40 * MIB);
  known_expect(m, &k);
  tide_device_leave(d);
  ledger_remove();
}

// A call that fails leaves no difference between what the ledger and the machine say.
DEVICE_TEST_OVER(test_join__counts_right_after_faults, device_host) {
  for (uint64_t skip = 0; skip < 60; ++skip) {
    tide_fault fault = TIDE_FAULT_INIT;
    tide_device_cache* const own = device_new(m, 0, NULL);
    tide_block blocks[3] = { 0 };
    join(own, 100 * MIB, 0, 0);
    fault.skip = skip;
    fault.status = (uint32_t)(skip % 2 == 0 ? TIDE_ERR_NO_MEMORY : TIDE_ERR_MACHINE);
    T_OK(tide_machine_fault_add(m, &fault));
    for (size_t i = 0; i < 3; ++i) maybe_take(own, (i + 1) * 7 * MIB, &blocks[i]);
    (void)tide_device_release(own, blocks[1]);
    (void)tide_device_trim(own, 0);
    tide_machine_fault_clear(m);
    (void)tide_device_trim(own, 0);
    T_EQ(held(), current(own, reserved_bytes));
    T_LE((blocks[0].address != NULL ? 7 * MIB : 0) + (blocks[2].address != NULL ? 21 * MIB : 0), held());
    tide_device_free(own);
    T_EQ(held(), 0);
  }
  ledger_remove();
}

// ---------------------------------------------------------------------------------------------------
// Asking others

DEVICE_TEST_OVER(test_join__idle_memory_of_others_comes, device_emulated) {
  if (is_tide()) small_handles(d);
  join(d, 100 * MIB, 0, LONG_NS);
  tide_device_cache* const other = neighbour_new(m, 0);
  give(other, take(other, NULL, 70 * MIB));
  T_EQ(held(), 70 * MIB);
  (void)take(d, NULL, 60 * MIB);
  T_LE(machine_in_use(m), 100 * MIB);
  T_EQ(held(), machine_in_use(m));
  tide_device_free(other);
  T_EQ(held(), 60 * MIB);
  tide_device_leave(d);
  ledger_remove();
}

DEVICE_TEST_OVER(test_join__what_yields_is_parked_for_others, tide_emulated) {
  small_handles(d);
  join(d, 100 * MIB, 0, LONG_NS);
  tide_device_cache* const other = neighbour_new(m, 0);
  const tide_pool pools[2] = { tagged(other, "stays"), tagged(other, "goes") };
  budget_to(other, "goes", yielding(0));
  const known kept = known_new(m, other, pools[0], NULL, 20 * MIB, 1);
  const known away = known_new(m, other, pools[1], NULL, 40 * MIB, 2);
  const tide_block block = take(d, NULL, 70 * MIB);
  T_CHECK(is_parked(other, "goes"));
  T_EQ(held(), 90 * MIB);
  T_EQ(machine_in_use(m), 90 * MIB);

  tide_block more = { NULL, 0 };
  T_STATUS(tide_device_use(other, "goes", NULL), TIDE_ERR_NO_MEMORY);
  give(d, block);  // idle from now on, and comes when it is asked for
  bool is_used = false;
  T_WAIT(is_used || (is_used = tide_device_use(other, "goes", NULL) == TIDE_OK));
  known_expect(m, &kept);
  known_expect(m, &away);
  T_STATUS(try_tagged(other, pools[1], NULL, 60 * MIB, &more), TIDE_ERR_NO_MEMORY);
  T_OK(tide_device_done(other, "goes", NULL));
  tide_device_free(other);
  tide_device_leave(d);
  ledger_remove();
}

DEVICE_TEST_OVER(test_join__parked_memory_comes_back_at_the_cost_of_others, tide_emulated) {
  const tide_pool pool = tagged(d, "a");
  small_handles(d);
  join(d, 100 * MIB, 0, LONG_NS);
  tide_device_cache* const other = neighbour_new(m, 0);
  const known k = known_new(m, d, pool, NULL, 50 * MIB, 1);
  (void)park(d, "a", TIDE_BACKUP_PINNED);
  give(other, take(other, NULL, 80 * MIB));
  (void)unpark(d, "a");
  known_expect(m, &k);
  T_EQ(held(), machine_in_use(m));
  tide_device_free(other);
  tide_device_leave(d);
  ledger_remove();
}

DEVICE_TEST_OVER(test_join__all_pools_of_a_tag_come_back_at_the_cost_of_others, tide_emulated) {
  static const char* const tags[] = { "model/a", "model/b", "model/c" };
  known parts[3];
  small_handles(d);
  join(d, 100 * MIB, 0, LONG_NS);
  tide_device_cache* const other = neighbour_new(m, 0);
  for (int i = 0; i < 3; ++i) parts[i] = known_new(m, d, tagged(d, tags[i]), NULL, 30 * MIB, (uint64_t)i + 1);
  (void)park(d, "model", TIDE_BACKUP_PINNED);
  give(other, take(other, NULL, 95 * MIB));
  T_OK(tide_device_use(d, "model", NULL));
  for (int i = 0; i < 3; ++i) known_expect(m, &parts[i]);
  T_OK(tide_device_done(d, "model", NULL));
  T_EQ(held(), machine_in_use(m));
  tide_device_free(other);
  tide_device_leave(d);
  ledger_remove();
}

DEVICE_TEST_OVER(test_join__guarantees_of_others_stay, device_emulated) {
  if (is_tide()) small_handles(d);
  join(d, 100 * MIB, 0, LONG_NS);
  tide_device_cache* const other = neighbour_new(m, 40 * MIB);
  give(other, take(other, NULL, 60 * MIB));
  expect_oom(d, NULL, 62 * MIB);  // at once, because it can never be
  const tide_oom* const oom = tide_device_last_oom();
  bool has_asked = false;
  for (uint32_t i = 0; i < oom->rung_count; ++i) {
    has_asked = has_asked || strcmp(oom->rungs[i].name, "other processes") == 0;
  }
  T_CHECK(has_asked);
  (void)take(d, NULL, 60 * MIB);
  (void)take(other, NULL, 40 * MIB);
  T_EQ(held(), 100 * MIB);
  tide_device_free(other);
  tide_device_leave(d);
  ledger_remove();
}

// A tag's limit is of this process: nobody else can help.
DEVICE_TEST_OVER(test_join__nobody_is_asked_if_a_limit_of_its_own_is_in_the_way, tide_emulated) {
  const tide_pool pool = tagged(d, "a");
  small_handles(d);
  budget_to(d, "a", limited(20 * MIB));
  join(d, 100 * MIB, 0, LONG_NS);
  tide_device_cache* const other = neighbour_new(m, 0);
  give(other, take(other, NULL, 70 * MIB));
  expect_refused(d, pool, 30 * MIB);
  limit_to(d, 50 * MIB);
  expect_oom(d, NULL, 60 * MIB);
  T_EQ(current(other, reserved_bytes), 70 * MIB);
  tide_device_free(other);
  tide_device_leave(d);
  ledger_remove();
}

// In a capture nothing is given to others: idle memory may be a graph's.
DEVICE_TEST_OVER(test_join__nothing_is_given_in_a_capture, device_host) {
  if (is_tide()) small_handles(d);
  join(d, 100 * MIB, 0, SHORT_NS);
  tide_device_cache* const other = neighbour_new(m, 0);
  const tide_stream stream = side_new(m);
  const tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  const tide_pool pool = pool_new(other, &options);
  give(other, take(other, NULL, 70 * MIB));
  capture_open(m, other, stream, pool);
  expect_oom(d, NULL, 60 * MIB);
  T_OK(tide_machine_launch_free(m, capture_close(m, other, stream, pool)));
  bool is_taken = false;
  T_WAIT(is_taken || (is_taken = try_take(d, NULL, 60 * MIB) == TIDE_OK));
  tide_device_free(other);
  tide_device_leave(d);
  ledger_remove();
}

// ---------------------------------------------------------------------------------------------------
// Threads and processes

enum { CACHES = 4, TURNS = 150 };

typedef struct crowd {
  tide_machine* machine;
  atomic_uint next;
  atomic_uint served;
} crowd;

// Takes and gives at random. Half of the memory is in a tag that yields.
static void* crowd_run(void* user) {
  crowd* const c = user;
  const unsigned number = atomic_fetch_add(&c->next, 1);
  tide_device_cache* const d = device_new(c->machine, 0, NULL);
  t_rng rng = t_rng_new(number);
  tide_block blocks[6] = { 0 };
  small_handles(d);
  join(d, 0, 0, SHORT_NS);
  const tide_pool pool = tagged(d, "a");
  budget_to(d, "a", yielding(0));
  for (int i = 0; i < TURNS; ++i) {
    const size_t at = t_rng_below(&rng, 6);
    const size_t bytes = (1 + t_rng_below(&rng, 12)) * MIB;
    tide_status status = TIDE_OK;
    if (blocks[at].address != NULL) {
      give(d, blocks[at]);
      blocks[at] = (tide_block){ NULL, 0 };
    } else if (at < 3) {
      status = try_tagged(d, pool, NULL, bytes, &blocks[at]);
    } else {
      status = tide_device_alloc(d, NULL, bytes, &blocks[at]);
    }
    T_CHECK(status == TIDE_OK || status == TIDE_ERR_NO_MEMORY);
    atomic_fetch_add(&c->served, status == TIDE_OK);
    T_LE(machine_in_use(c->machine), 64 * MIB);
  }
  device_expect_valid(d);
  tide_device_free(d);
  return NULL;
}

// The machine has more than the ledger, and says whether its total was exceeded.
DEVICE_TEST_OVER(test_join__caches_together_never_exceed_the_total, tide_host) {
  crowd c = { .machine = m };
  T_OK(tide_quota_make(ledger_path(), 64 * MIB));
  run_threads(CACHES, crowd_run, &c);
  T_EQ(held(), 0);
  T_LE(CACHES, atomic_load(&c.served));
  ledger_remove();
}

static void* use_run(void* user) {
  T_OK(tide_device_use(user, "model", NULL));
  return NULL;
}

// A use that waits does not hold what it has of its tag. The neighbour goes first, by its priority.
DEVICE_TEST_OVER(test_join__a_use_that_waits_gives_way_and_goes_on_later, tide_host) {
  static const char* const tags[] = { "model/a", "model/b" };
  tide_quota_options options = TIDE_QUOTA_OPTIONS_INIT;
  known parts[2];
  pthread_t user;
  small_handles(d);
  join(d, 100 * MIB, 0, LONG_NS);
  budget_to(d, "model", yielding(0));
  for (int i = 0; i < 2; ++i) parts[i] = known_new(m, d, tagged(d, tags[i]), NULL, 30 * MIB, (uint64_t)i + 1);
  (void)park(d, "model/b", TIDE_BACKUP_PINNED);
  tide_device_cache* const other = device_new(m, 0, NULL);
  options.ledger = ledger_path();
  options.priority = 1;
  options.wait_ns = LONG_NS;
  T_OK(tide_device_join(other, &options));
  small_handles(other);
  const tide_block block = take(other, NULL, 60 * MIB);

  T_EQ(pthread_create(&user, NULL, use_run, d), 0);
  while (ledger_look(ledger_path()).members[0].wanted_bytes == 0) (void)sched_yield();
  const tide_block more = take(other, NULL, 30 * MIB);
  T_CHECK(is_parked(d, "model/a"));
  give(other, block);
  give(other, more);
  T_EQ(pthread_join(user, NULL), 0);
  for (int i = 0; i < 2; ++i) known_expect(m, &parts[i]);
  T_OK(tide_device_done(d, "model", NULL));
  T_EQ(held(), machine_in_use(m));
  tide_device_free(other);
  tide_device_leave(d);
  ledger_remove();
}

// ---------------------------------------------------------------------------------------------------
// Leaving and joining while others work

typedef struct asker {
  tide_device_cache* d;
  tide_status status;
} asker;

static void* asker_run(void* user) {
  asker* const a = user;
  tide_block block;
  a->status = tide_device_alloc(a->d, NULL, 32 * MIB, &block);
  return NULL;
}

static uint64_t wanted(void) {
  const ledger_view view = ledger_look(ledger_path());
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < view.count; ++i) bytes += view.members[i].wanted_bytes;
  return bytes;
}

// The request used the quota after it was freed.
DEVICE_TEST_OVER(test_join__a_request_that_waits_goes_on_when_the_cache_leaves, device_host) {
  asker a = { .d = d };
  pthread_t thread;
  tide_quota* const other = member_join(ledger_path(), 0, TIDE_NO_LIMIT);
  T_OK(tide_quota_take(other, 80 * MIB));  // of 100, and it gives nothing
  join(d, 0, 0, LONG_NS);
  t_thread_start(&thread, asker_run, &a);
  T_WAIT(wanted() > 0);
  tide_device_leave(d);
  t_thread_join(thread);
  T_OK(a.status);
  T_EQ(held(), 80 * MIB);
  tide_quota_leave(other);
  ledger_remove();
}

enum { COMERS = 4 };

typedef struct coming {
  tide_device_cache* d;
  atomic_int joined;
  atomic_int failed;
} coming;

static void* coming_run(void* user) {
  coming* const c = user;
  const tide_status status = try_join(c->d, 0, 0, 0);
  atomic_fetch_add(status == TIDE_OK ? &c->joined : &c->failed, 1);
  if (status != TIDE_OK) T_EQ(status, TIDE_ERR_STATE);
  return NULL;
}

// Two of them joined, and one place in the ledger stayed taken.
DEVICE_TEST_OVER(test_join__of_threads_that_join_at_once_one_does, device_host) {
  T_OK(tide_quota_make(ledger_path(), 100 * MIB));
  for (int i = 0; i < 50; ++i) {
    coming c = { .d = d };
    run_threads(COMERS, coming_run, &c);
    T_EQ(atomic_load(&c.joined), 1);
    T_EQ(atomic_load(&c.failed), COMERS - 1);
    T_EQ(ledger_look(ledger_path()).count, 1);
    tide_device_leave(d);
    T_EQ(ledger_look(ledger_path()).count, 0);
  }
  ledger_remove();
}

typedef struct inner {
  tide_device_cache* d;
  tide_status joined;
} inner;

static void join_or_leave(void* user, const tide_trace_entry* entry) {
  inner* const i = user;
  (void)entry;
  i->joined = try_join(i->d, 0, 0, 0);
  tide_device_leave(i->d);
}

// Both would wait for threads that may wait for the observer.
DEVICE_TEST_OVER(test_join__an_observer_neither_joins_nor_leaves, device_host) {
  inner i = { .d = d };
  join(d, 100 * MIB, 0, 0);
  const tide_observer observer = observe_trace(d, join_or_leave, &i);
  (void)take(d, NULL, 20 * MIB);
  T_OK(tide_device_detach(d, observer));
  T_EQ(i.joined, TIDE_ERR_STATE);
  T_EQ(held(), machine_in_use(m));
  T_EQ(ledger_look(ledger_path()).count, 1);
  tide_device_leave(d);
  ledger_remove();
}

// A request has its memory in the ledger, and waits for the machine to have it. What it was promised in one
// membership was counted off in the next one.
DEVICE_TEST_OVER(test_join__a_pledge_ends_with_its_membership, device_host) {
  asker a = { .d = d };
  pthread_t thread;
  void* all = NULL;
  T_OK(tide_quota_make(ledger_path(), 100 * MIB));
  T_OK(tide_machine_raw_alloc(m, 0, MACHINE_CAPACITY, &all));
  join(d, 0, 0, LONG_NS);
  t_thread_start(&thread, asker_run, &a);
  T_WAIT(held() > 0);
  tide_device_leave(d);
  join(d, 0, 0, 0);
  T_OK(tide_machine_raw_release(m, 0, all));
  t_thread_join(thread);
  if (a.status != TIDE_OK) T_EQ(a.status, TIDE_ERR_NO_MEMORY);
  (void)take(d, NULL, 20 * MIB);
  T_EQ(held(), machine_in_use(m));
  tide_device_leave(d);
  T_EQ(held(), 0);
  ledger_remove();
}

// The ledger has room, but the limit has not, so the use tries again and again. Then the pool ends, and it is
// no error that nobody has the tag any more.
static void expect_use_ends_with_pool(tide_device_cache* d) {
  const tide_pool pool = tagged(d, "model");
  pthread_t user;
  bool is_waiting = false;
  limit_to(d, TIDE_NO_LIMIT);
  const tide_block block = take_tagged(d, pool, NULL, 8 * MIB);
  (void)park(d, "model", TIDE_BACKUP_PINNED);
  limit_to(d, 4 * MIB);
  t_thread_start(&user, use_run, d);
  T_WAIT(is_waiting || (is_waiting = held() > 0));
  give(d, block);
  T_OK(tide_device_pool_drop(d, pool));
  trim(d);
  t_thread_join(user);
  T_OK(tide_device_done(d, "model", NULL));
}

DEVICE_TEST_OVER(test_join__a_pool_ends_while_a_use_waits, tide_host) {
  join(d, 100 * MIB, 0, LONG_NS);
  for (int i = 0; i < 20; ++i) expect_use_ends_with_pool(d);
  tide_device_leave(d);
  ledger_remove();
}

typedef struct visit {
  atomic_int is_inside;
  atomic_int is_expected;
} visit;

// Keeps the thread that answers others inside, until the test is about to look.
static void visit_hold(void* user, const tide_trace_entry* entry) {
  visit* const v = user;
  if (entry->action != shrink_action() || atomic_exchange(&v->is_inside, 1) != 0) return;
  T_WAIT(atomic_load(&v->is_expected));
  for (int i = 0; i < 2000; ++i) (void)sched_yield();
}

// The thread that gives memory to others works at any time. A check met memory that it had in hand.
DEVICE_TEST_OVER(test_join__a_check_waits_for_what_is_given, device_host) {
  visit v = { 0 };
  join(d, 100 * MIB, 0, 0);
  give(d, take(d, NULL, 30 * MIB));
  give(d, take(d, NULL, 60 * MIB));
  const tide_observer observer = observe_trace(d, visit_hold, &v);
  T_OK(tide_quota_set_total(ledger_path(), 20 * MIB));
  T_WAIT(atomic_load(&v.is_inside));
  atomic_store(&v.is_expected, 1);
  device_expect_valid(d);
  T_OK(tide_device_detach(d, observer));
  tide_device_leave(d);
  ledger_remove();
}

// A process that holds 60 MiB, until it is killed.
static void child_run(int ready) {
  tide_machine* m = NULL;
  tide_device_cache* d = NULL;
  tide_block block = { NULL, 0 };
  T_OK(tide_machine_new_host(NULL, &m));
  d = device_new(m, 0, NULL);
  join(d, 0, 0, 0);
  T_OK(tide_device_alloc(d, NULL, 60 * MIB, &block));
  T_EQ(write(ready, "x", 1), 1);
  for (;;) (void)pause();
}

// The child is made before this process has threads.
T_TEST(test_join__a_killed_process_gives_everything_back) {
  int ready[2];
  char byte = 0;
  tide_machine* m = NULL;
  T_OK(tide_quota_make(ledger_path(), 100 * MIB));
  T_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) child_run(ready[1]);
  T_EQ(read(ready[0], &byte, 1), 1);
  T_OK(tide_machine_new_host(NULL, &m));
  tide_device_cache* const d = device_new(m, 0, NULL);
  join(d, 0, 0, SHORT_NS);
  T_EQ(held(), 60 * MIB);
  expect_oom(d, NULL, 80 * MIB);
  T_EQ(kill(child, SIGKILL), 0);
  T_EQ(waitpid(child, NULL, 0), child);
  (void)take(d, NULL, 80 * MIB);
  T_EQ(close(ready[0]) + close(ready[1]), 0);
  tide_device_free(d);
  tide_machine_free(m);
  ledger_remove();
}

// A child of a member is none: its copy of the cache says so, and the parent's share stays.
DEVICE_TEST_OVER(test_join__a_child_is_no_member, device_host) {
  int status = 0;
  join(d, 100 * MIB, 0, 0);
  (void)take(d, NULL, 20 * MIB);
  const pid_t child = fork();
  if (child == 0) {
    tide_device_leave(d);
    tide_device_free(d);
    _exit(try_join(d, 0, 0, 0) == TIDE_ERR_STATE ? 0 : 1);
  }
  T_EQ(waitpid(child, &status, 0), child);
  T_EQ(status, 0);
  T_EQ(held(), 20 * MIB);
  tide_device_leave(d);
  ledger_remove();
}
