// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Faults at every call of the machine, and at every request for records, of one run of the pinned-host cache.
// The first run has no fault and shows which operation makes which calls, and with which result. Then the run
// is repeated once for each call, which fails. The operation that meets the fault may fail, but a second
// attempt must do what it did without the fault. A release never fails. The invariants must hold until the
// end, when the machine must have everything back.
//
// The dry machine makes the same calls in every run, so every call is reached.
#define T_THREADS
#include "pinned/pinneds.h"

#define OPS 240u
#define SLOTS 24u
#define STREAMS 3u
#define POOLS 2u
#define OPS_AFTER 24u  // operations that follow a fault before the run is ended

typedef struct op {
  uint8_t verb;
  uint8_t slot;
  uint8_t stream;
  uint8_t value;
  uint32_t number;
} op;

typedef struct item {
  bool is_used;
  tide_block block;
  size_t bytes;
} item;

typedef struct run {
  tide_machine* m;
  tide_pinned_cache* p;
  counting_heap records;
  holdings before;
  tide_stream streams[STREAMS];
  uint8_t* device;  // memory to copy to
  item items[SLOTS];
  tide_pool pools[POOLS];  // 0: none
  int scope;               // the pool with an open scope, or -1
} run;

// What the run without faults did in each operation.
typedef struct step {
  tide_status status;
  uint64_t calls;   // of the machine, before it, by the cache
  uint64_t allocs;  // of records, before it
} step;

static op list[OPS];
static step clean[OPS + 1];
static const char* const modes[] = { "plain", "registered", "reserve", "powers", "tight", NULL };

// ---------------------------------------------------------------------------------------------------
// Operations: each makes one call of the cache, and changes the run only if the call succeeds

static size_t bytes_wanted(const op* o) {
  static const size_t sizes[] = { 512, 700, 5000, 20000, 32 * KIB, SINGLE, 100 * KIB, 1 * MIB, 70 * MIB };
  return sizes[o->number % (sizeof sizes / sizeof *sizes)];
}

static tide_status do_alloc(run* r, const op* o) {
  item* const it = &r->items[o->slot % SLOTS];
  if (it->is_used) return TIDE_OK;
  it->bytes = bytes_wanted(o);
  const tide_status status = tide_pinned_alloc(r->p, it->bytes, &it->block);
  it->is_used = status == TIDE_OK;
  T_EQ(it->block.address != NULL, it->is_used);
  return status;
}

static tide_status do_release(run* r, const op* o) {
  item* const it = &r->items[o->slot % SLOTS];
  if (!it->is_used) return TIDE_OK;
  const tide_status status = o->value % 2 == 0 ? tide_pinned_release(r->p, it->block)
                                               : tide_pinned_release_address(r->p, it->block.address);
  T_OK(status);
  it->is_used = false;
  return status;
}

static tide_status do_record(run* r, const op* o) {
  const item* const it = &r->items[o->slot % SLOTS];
  return it->is_used ? tide_pinned_record(r->p, it->block, 0, r->streams[o->stream]) : TIDE_OK;
}

static tide_status do_record_now(run* r, const op* o) {
  const item* const it = &r->items[o->slot % SLOTS];
  return it->is_used ? tide_pinned_record_now(r->p, it->block, 0, r->streams[o->stream]) : TIDE_OK;
}

static tide_status do_copy(run* r, const op* o) {
  const item* const it = &r->items[o->slot % SLOTS];
  if (!it->is_used) return TIDE_OK;
  return tide_pinned_copy(r->p, it->block, 0, r->streams[o->stream], r->device, it->block.address, 512);
}

static tide_status do_poll(run* r, const op* o) {
  (void)o;
  return tide_pinned_poll(r->p);
}

static tide_status do_trim(run* r, const op* o) { return tide_pinned_trim(r->p, o->number % (4 * MIB)); }

static tide_status do_empty(run* r, const op* o) {
  (void)o;
  return tide_pinned_empty(r->p);
}

// Makes a pool if needed and opens a scope on it; or closes the open scope, and may drop the pool.
static tide_status do_scope(run* r, const op* o) {
  const size_t n = o->slot % POOLS;
  if (r->scope >= 0) {
    T_OK(tide_pinned_pool_end(r->p, r->pools[r->scope]));
    T_OK(tide_pinned_pool_drop(r->p, r->pools[r->scope]));
    if (o->value % 2 == 0) T_OK(tide_pinned_pool_drop(r->p, r->pools[r->scope]));
    if (o->value % 2 == 0) r->pools[r->scope] = 0;
    r->scope = -1;
    return TIDE_OK;
  }
  if (r->pools[n] == 0) {
    const tide_status status = tide_pinned_pool_new(r->p, &r->pools[n]);
    if (status != TIDE_OK) return status;
  }
  const tide_status status = pool_begin_kept(r->p, r->pools[n], NULL);
  if (status == TIDE_OK) r->scope = (int)n;
  return status;
}

static tide_status do_history(run* r, const op* o) {
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  options.is_on = o->value % 2 == 0;
  options.max_entries = 1 + o->number % 100;
  return tide_pinned_history(r->p, &options);
}

// Name, function, how often of 1000.
// clang-format off
#define VERB_MAP(X)                                                                                  \
  X(ALLOC, do_alloc, 420) X(RELEASE, do_release, 300) X(RECORD, do_record, 80)                       \
  X(RECORD_NOW, do_record_now, 50) X(COPY, do_copy, 40) X(POLL, do_poll, 30) X(TRIM, do_trim, 20)    \
  X(EMPTY, do_empty, 20) X(SCOPE, do_scope, 25) X(HISTORY, do_history, 15)
// clang-format on

typedef struct verb_row {
  const char* name;
  tide_status (*run)(run* r, const op* o);
  uint32_t weight;
} verb_row;

static const verb_row verbs[] = {
#define VERB_ROW(name, function, weight) { #name, function, weight },
  VERB_MAP(VERB_ROW)
#undef VERB_ROW
};
#define VERB_COUNT (sizeof verbs / sizeof verbs[0])

// ---------------------------------------------------------------------------------------------------
// Runs

static void list_make(void) {
  t_rng rng = t_rng_new(7);
  for (size_t i = 0; i < OPS; ++i) {
    const uint64_t bits = t_rng_next(&rng);
    uint32_t at = (uint32_t)t_rng_below(&rng, 1000);
    uint8_t verb = 0;
    while (verb + 1u < VERB_COUNT && at >= verbs[verb].weight) at -= verbs[verb++].weight;
    list[i] = (op){ verb, (uint8_t)bits, (uint8_t)((bits >> 8) % STREAMS), (uint8_t)(bits >> 16),
                    (uint32_t)(bits >> 32) };
  }
}

static void mode_set(tide_pinned_options* options) {
  const bool is_tight = strcmp(t_variant(), "tight") == 0;
  options->uses_register = strcmp(t_variant(), "registered") == 0 || is_tight;
  options->powers_of_two = strcmp(t_variant(), "powers") == 0;
  if (strcmp(t_variant(), "reserve") == 0 || is_tight) options->reserve_bytes = 512 * KIB;
  if (!is_tight) return;
  options->max_cached_bytes = 256 * KIB;
  options->max_block_bytes = 512 * KIB;
  options->max_round_bytes = 64 * KIB;
  options->idle_ns = 100000;
}

static tide_machine* dry_machine_new(void) {
  tide_machine* m = NULL;
  T_OK(tide_machine_new_dry(NULL, &m));
  return m;
}

static void run_open(run* r) {
  tide_pinned_options options = TIDE_PINNED_OPTIONS_INIT;
  memset(r, 0, sizeof *r);
  r->m = dry_machine_new();
  r->scope = -1;
  for (size_t i = 0; i < STREAMS; ++i) r->streams[i] = side_new(r->m);
  r->device = raw_new(r->m, 0, 4096);
  r->before = holdings_of(r->m);
  counting_heap_init(&r->records, SIZE_MAX, false);
  options.heap = &r->records.heap;
  mode_set(&options);
  T_OK(tide_pinned_new(r->m, &options, &r->p));
}

// Work is queued before the operation that announces it, and time goes on.
static void work_before(run* r, const op* o) {
  T_OK(tide_dry_work(r->m, 0, r->streams[o->stream], o->number % 100000));
  T_OK(tide_dry_advance(r->m, o->number % 50000));
}

static uint64_t calls_of(const run* r) { return calls_made(r->m, TIDE_CALL_ANY); }

static void expect_order(run* r, size_t at, const char* what) {
  int64_t live = 0;
  for (size_t i = 0; i < SLOTS; ++i) live += r->items[i].is_used;
  if (tide_pinned_check(r->p) != 0) {
    T_FAIL("seed %" PRIu64 ", %s, operation %zu (%s): check: %s", t_seed(), what, at,
           verbs[list[at].verb].name, tide_last_error()->text);
  }
  if (current(r->p, active_requests) < live) {
    T_FAIL("seed %" PRIu64 ", %s, operation %zu (%s): %" PRId64 " blocks are active, %" PRId64
           " are handed out",
           t_seed(), what, at, verbs[list[at].verb].name, current(r->p, active_requests), live);
  }
}

// Plays the run without a fault and notes what each operation does.
static void play_clean(run* r) {
  uint64_t calls = 0;
  run_open(r);
  for (size_t i = 0; i < OPS; ++i) {
    work_before(r, &list[i]);
    clean[i].calls = calls;
    clean[i].allocs = atomic_load(&r->records.allocs);
    const uint64_t before = calls_of(r);
    clean[i].status = verbs[list[i].verb].run(r, &list[i]);
    calls += calls_of(r) - before;
    expect_order(r, i, "no fault");
  }
  clean[OPS].calls = calls;
  clean[OPS].allocs = atomic_load(&r->records.allocs);
}

// Gives everything back; no statistic may be left above 0.
static void run_empty(run* r, const char* what) {
  if (r->scope >= 0) T_OK(do_scope(r, &(op){ .value = 1 }));
  for (uint8_t i = 0; i < SLOTS; ++i) T_OK(do_release(r, &(op){ .slot = i }));
  for (size_t i = 0; i < POOLS; ++i) {
    if (r->pools[i] != 0) T_OK(tide_pinned_pool_drop(r->p, r->pools[i]));
  }
  T_OK(tide_machine_device_synchronize(r->m, 0));
  T_OK(tide_pinned_poll(r->p));
  T_OK(tide_machine_device_synchronize(r->m, 0));
  T_OK(tide_pinned_empty(r->p));
  expect_order(r, OPS - 1, what);
  const tide_pinned_stats stats = stats_of(r->p);
#define NOTHING_LEFT(name)                                                                                   \
  if (stats.name.current != 0) {                                                                             \
    T_FAIL("seed %" PRIu64 ", %s: %s is %" PRId64 " at the end", t_seed(), what, #name, stats.name.current); \
  }
  TIDE_PINNED_STAT_MAP(NOTHING_LEFT)
#undef NOTHING_LEFT
}

static void run_close(run* r, const char* what) {
  tide_pinned_leaks leaks = TIDE_PINNED_LEAKS_INIT;
  run_empty(r, what);
  tide_pinned_free(r->p, &leaks);
  const holdings after = holdings_of(r->m);
  if (memcmp(&after, &r->before, sizeof after) != 0 || leaks.blocks != 0 || leaks.refused_pieces != 0) {
    T_FAIL("seed %" PRIu64 ", %s: the machine misses %" PRIu64 " pieces, %" PRIu64 " registrations, %" PRIu64
           " events",
           t_seed(), what, after.pinned - r->before.pinned, after.registered - r->before.registered,
           after.events - r->before.events);
  }
  if (atomic_load(&r->records.outstanding) != 0) {
    T_FAIL("seed %" PRIu64 ", %s: %zu bytes of records are left", t_seed(), what,
           atomic_load(&r->records.outstanding));
  }
  tide_machine_free(r->m);
}

// The operation that met a fault may have failed, but a second attempt must work.
static void expect_again(run* r, size_t at, tide_status got, const char* what) {
  const tide_error first = *tide_last_error();
  expect_order(r, at, what);
  if (got == TIDE_OK || got == clean[at].status) return;
  const tide_status again = verbs[list[at].verb].run(r, &list[at]);
  if (again != clean[at].status) {
    T_FAIL("seed %" PRIu64 ", %s: operation %zu (%s) was %s (%.150s), and made again %s (%.150s)", t_seed(),
           what, at, verbs[list[at].verb].name, tide_status_name(got), first.text, tide_status_name(again),
           tide_last_error()->text);
  }
  expect_order(r, at, what);
}

// Goes on for a while after a fault. Whatever happens, the invariants must hold.
static void play_on(run* r, size_t from, const char* what) {
  const size_t end = from + OPS_AFTER < OPS ? from + OPS_AFTER : OPS;
  for (size_t i = from; i < end; ++i) {
    work_before(r, &list[i]);
    T_ANY(verbs[list[i].verb].run(r, &list[i]));
    if (i % 8 == 0) expect_order(r, i, what);
  }
  run_close(r, what);
}

static void play_to(run* r, size_t end) {
  run_open(r);
  for (size_t i = 0; i < end; ++i) {
    work_before(r, &list[i]);
    T_EQ(verbs[list[i].verb].run(r, &list[i]), clean[i].status);
  }
  work_before(r, &list[end]);
}

// The operation that makes a call, or a request for records.
static size_t find_call(uint64_t call) {
  size_t i = 0;
  while (clean[i + 1].calls <= call) i++;
  return i;
}

static size_t find_alloc(uint64_t alloc) {
  size_t i = 0;
  while (clean[i + 1].allocs <= alloc) i++;
  return i;
}

static void play_machine_fault(uint64_t call, tide_status status) {
  static run r;
  char what[80];
  const size_t at = find_call(call);
  tide_fault fault = TIDE_FAULT_INIT;
  fault.skip = call - clean[at].calls;
  fault.status = (uint32_t)status;
  (void)snprintf(what, sizeof what, "call %" PRIu64 " of the machine is %s", call, tide_status_name(status));
  play_to(&r, at);

  T_OK(tide_machine_fault_add(r.m, &fault));
  const tide_status got = verbs[list[at].verb].run(&r, &list[at]);
  tide_machine_fault_clear(r.m);

  expect_again(&r, at, got, what);
  play_on(&r, at + 1, what);
}

static void play_heap_fault(uint64_t alloc, bool is_exhausted) {
  static run r;
  char what[80];
  const size_t at = find_alloc(alloc);
  (void)snprintf(what, sizeof what, "request %" PRIu64 " for records%s fails", alloc,
                 is_exhausted ? " and each behind it" : "");
  play_to(&r, at);

  r.records.is_exhausted = is_exhausted;
  atomic_store(&r.records.fail_at, alloc);
  const tide_status got = verbs[list[at].verb].run(&r, &list[at]);
  r.records.is_exhausted = false;
  atomic_store(&r.records.fail_at, SIZE_MAX);

  expect_again(&r, at, got, what);
  play_on(&r, at + 1, what);
}

static void prepare(void) {
  static run r;
  list_make();
  play_clean(&r);
  run_close(&r, "no fault");
}

// The distance between two faults: all are tried, under a sanitizer only some.
static uint64_t stride(uint64_t count) {
  const uint64_t wanted = t_scaled(T_HAS_SANITIZER ? 60 : 1000);
  return wanted >= count ? 1 : count / wanted;
}

T_TEST_OVER(test_pinned_faults__no_call_of_the_machine_is_fatal, modes) {
  prepare();
  const uint64_t count = 2 * clean[OPS].calls;
  T_LT(100, count);
  for (uint64_t i = t_seed() % stride(count); i < count; i += stride(count)) {
    play_machine_fault(i / 2, i % 2 == 0 ? TIDE_ERR_NO_MEMORY : TIDE_ERR_MACHINE);
  }
}

T_TEST_OVER(test_pinned_faults__no_record_is_needed_to_go_on, modes) {
  prepare();
  const uint64_t first = clean[0].allocs;
  const uint64_t count = 2 * (clean[OPS].allocs - first);
  T_LT(10, count);
  for (uint64_t i = t_seed() % stride(count); i < count; i += stride(count)) {
    play_heap_fault(first + i / 2, i % 2 == 0);
  }
}

// ---------------------------------------------------------------------------------------------------
// Faults that last

// All calls of one kind fail from the n-th on, through the whole run.
static void play_lasting_fault(tide_call call, uint64_t skip) {
  static run r;
  char what[80];
  tide_fault fault = TIDE_FAULT_INIT;
  fault.call = call;
  fault.status = skip % 2 == 0 ? TIDE_ERR_MACHINE : TIDE_ERR_NO_MEMORY;
  fault.skip = skip;
  fault.count = UINT64_MAX;
  (void)snprintf(what, sizeof what, "%s fails after %" PRIu64 " calls", tide_call_name(call), skip);
  run_open(&r);
  for (size_t i = 0; i < OPS / 2; ++i) {
    if (i == 0) T_OK(tide_machine_fault_add(r.m, &fault));
    T_ANY(verbs[list[i].verb].run(&r, &list[i]));
    if (i % 16 == 0) expect_order(&r, i, what);
  }
  tide_machine_fault_clear(r.m);
  T_OK(tide_machine_device_synchronize(r.m, 0));
  T_OK(tide_pinned_poll(r.p));
  run_close(&r, what);
}

T_TEST_OVER(test_pinned_faults__no_kind_of_call_is_fatal_that_fails_for_ever, modes) {
  list_make();
  for (int call = 0; call <= TIDE_CALL_ANY; ++call) {
    for (uint64_t skip = 0; skip < (T_HAS_SANITIZER ? 8 : 64); skip = 2 * skip + 1) {
      play_lasting_fault((tide_call)call, skip);
    }
  }
}

// ---------------------------------------------------------------------------------------------------
// The beginning and the end of a cache

// Makes a cache while the request for records number `at` fails; true if there was one. The helper needs
// records, too, and can do without.
static bool make_without_record(tide_machine* m, size_t at, bool has_helper) {
  tide_pinned_options options = TIDE_PINNED_OPTIONS_INIT;
  counting_heap records;
  tide_pinned_cache* p = NULL;
  counting_heap_init(&records, at, at % 2 == 0);
  mode_set(&options);
  options.heap = &records.heap;
  options.has_helper = has_helper;

  const tide_status status = tide_pinned_new(m, &options, &p);
  const bool has_failed = atomic_load(&records.has_failed);

  if (status != TIDE_OK) T_STATUS(status, TIDE_ERR_NO_MEMORY);
  if (!has_helper) T_EQ(status != TIDE_OK, has_failed);
  T_EQ(p == NULL, status != TIDE_OK);
  atomic_store(&records.fail_at, SIZE_MAX);
  tide_pinned_free(p, NULL);
  T_EQ(atomic_load(&records.outstanding), 0);
  return has_failed;
}

T_TEST_OVER(test_pinned_faults__a_cache_is_made_whole_or_not_at_all, modes) {
  tide_machine* const m = dry_machine_new();
  size_t at = 0;
  while (make_without_record(m, at, false)) ++at;
  for (at = 0; at < 30; ++at) (void)make_without_record(m, at, true);
  tide_machine_free(m);
}

// How many pieces the machine misses.
static uint64_t run_missing(const run* r) {
  const holdings now = holdings_of(r->m);
  return now.pinned - r->before.pinned + (now.registered - r->before.registered);
}

// Whatever the machine refuses at the end, no record is left, and the leaks are reported.
T_TEST_OVER(test_pinned_faults__a_cache_ends_whatever_the_machine_says, modes) {
  static run r;
  list_make();
  for (uint64_t call = 0; call < (T_HAS_SANITIZER ? 40 : 150); ++call) {
    tide_fault fault = TIDE_FAULT_INIT;
    tide_pinned_leaks leaks = TIDE_PINNED_LEAKS_INIT;
    run_open(&r);
    for (size_t i = 0; i < OPS / 4; ++i) {
      work_before(&r, &list[i]);
      T_ANY(verbs[list[i].verb].run(&r, &list[i]));
    }
    uint64_t live = 0;
    for (size_t i = 0; i < SLOTS; ++i) live += r.items[i].is_used;
    fault.skip = call / 2;
    fault.count = call % 4 == 3 ? UINT64_MAX : 1;
    fault.status = TIDE_ERR_MACHINE;
    T_OK(tide_machine_fault_add(r.m, &fault));

    tide_pinned_free(r.p, &leaks);

    tide_machine_fault_clear(r.m);
    T_EQ(leaks.blocks, live);
    T_EQ(leaks.refused_pieces, run_missing(&r));
    T_EQ(leaks.refused_bytes != 0, leaks.refused_pieces != 0);
    T_EQ(atomic_load(&r.records.outstanding), 0);
    tide_machine_free(r.m);
  }
}

// ---------------------------------------------------------------------------------------------------
// A range that has no memory for its records, and that the machine does not take back

// Asks for one block while the n-th request for records fails, and the machine takes nothing back; false if
// there was no n-th request.
static bool run_refuse(run* r, const op* o, size_t n, bool is_exhausted) {
  run_open(r);
  break_calls(r->m, TIDE_CALL_PINNED_RELEASE, TIDE_ERR_MACHINE, UINT64_MAX);
  break_calls(r->m, TIDE_CALL_PINNED_UNREGISTER, TIDE_ERR_MACHINE, UINT64_MAX);
  r->records.is_exhausted = is_exhausted;
  atomic_store(&r->records.fail_at, atomic_load(&r->records.allocs) + n);
  T_ANY(do_alloc(r, o));
  r->records.is_exhausted = false;
  atomic_store(&r->records.fail_at, SIZE_MAX);
  return atomic_load(&r->records.has_failed);
}

// A trim that keeps all cached memory reports that other memory could not go back. A later trim gives it
// back.
T_TEST_OVER(test_pinned_faults__a_refused_piece_without_records_goes_later, modes) {
  static run r;
  uint64_t refused = 0;
  for (uint32_t i = 0; i < 18; ++i) {
    const op o = { .number = i / 2 };
    for (size_t n = 0; run_refuse(&r, &o, n, i % 2 == 0); ++n) {
      const uint64_t before = run_missing(&r);
      const bool is_told = tide_pinned_trim(r.p, UINT64_MAX) == TIDE_ERR_MACHINE;
      T_EQ(run_missing(&r), before);

      tide_machine_fault_clear(r.m);
      trim(r.p, UINT64_MAX);

      T_EQ(run_missing(&r) < before, is_told);
      refused += is_told;
      run_close(&r, "records and the machine fail at once");
    }
    tide_machine_fault_clear(r.m);
    run_close(&r, "only the machine fails");
  }
  T_LT(0, refused);
}

T_TEST_OVER(test_pinned_faults__a_refused_piece_without_records_is_told_at_the_end, modes) {
  static run r;
  for (uint32_t i = 0; i < 18; ++i) {
    const op o = { .number = i / 2 };
    bool has_failed = true;
    for (size_t n = 0; has_failed; ++n) {
      tide_pinned_leaks leaks = TIDE_PINNED_LEAKS_INIT;
      has_failed = run_refuse(&r, &o, n, i % 2 == 0);

      tide_pinned_free(r.p, &leaks);

      T_EQ(leaks.refused_pieces, run_missing(&r));
      T_EQ(leaks.refused_bytes != 0, leaks.refused_pieces != 0);
      T_EQ(atomic_load(&r.records.outstanding), 0);
      tide_machine_free(r.m);
    }
  }
}

// ---------------------------------------------------------------------------------------------------
// Faults in the middle of real work

HOST_TEST(test_pinned_faults__data_survives_faults_at_random) {
  tide_pinned_cache* const p = pinned_open(m, NULL);
  const tide_stream stream = side_new(m);
  uint8_t* const device = raw_new(m, 0, 8 * SINGLE);
  t_rng rng = t_rng_new(11);
  for (size_t round = 0; round < t_scaled(T_HAS_SANITIZER ? 60 : 300); ++round) {
    bool is_sent[8] = { false };
    tide_fault fault = TIDE_FAULT_INIT;
    fault.status = TIDE_ERR_MACHINE;
    fault.skip = t_rng_below(&rng, 30);
    fault.count = 1 + t_rng_below(&rng, 4);
    T_OK(tide_machine_fault_add(m, &fault));
    for (size_t i = 0; i < 8; ++i) {
      tide_block block = block_none;
      if (tide_pinned_alloc(p, SINGLE, &block) != TIDE_OK) continue;
      memset(block.address, (int)(round % 100 + i), SINGLE);
      is_sent[i] = tide_pinned_copy(p, block, 0, stream, device + i * SINGLE, block.address, SINGLE) ==
                   TIDE_OK;
      give(p, block);
    }
    tide_machine_fault_clear(m);
    stream_finish(m, 0, stream);
    for (size_t i = 0; i < 8; ++i) {
      if (is_sent[i]) T_FILLED(device + i * SINGLE, (uint8_t)(round % 100 + i), SINGLE);
    }
  }
  pinned_expect_valid(p);
  tide_pinned_free(p, NULL);
}

// ---------------------------------------------------------------------------------------------------
// What the error record of the thread says after a poll

// Releases a block that waits for work on a stream.
static void leave_waiting(tide_machine* m, tide_pinned_cache* p, size_t bytes) {
  const tide_block block = take(p, bytes);
  announce(p, block, side_new(m));
  give(p, block);
}

static void expect_record(const tide_error* wanted) {
  const tide_error* const got = tide_last_error();
  T_EQ(got->status, wanted->status);
  T_STR_EQ(got->text, wanted->text);
  T_STR_EQ(got->file, wanted->file);
  T_EQ(got->line, wanted->line);
}

static tide_error fail_before(tide_pinned_cache* p) {
  T_STATUS(try_take(p, SIZE_MAX), TIDE_ERR_ARGUMENT);
  return *tide_last_error();
}

PINNED_TEST_OVER(test_pinned_faults__a_failed_poll_says_what_failed, machine_emulated) {
  leave_waiting(m, p, SINGLE);
  for (size_t i = 0; i < 2; ++i) {  // without an earlier failure, and with one
    if (i == 1) (void)fail_before(p);
    break_calls(m, TIDE_CALL_EVENT_QUERY, TIDE_ERR_MACHINE, 1);
    T_EQ(tide_pinned_poll(p), TIDE_ERR_MACHINE);
    T_EQ(tide_last_error()->status, TIDE_ERR_MACHINE);
    T_STR_HAS(tide_last_error()->text, tide_call_name(TIDE_CALL_EVENT_QUERY));
  }
}

PINNED_TEST_OVER(test_pinned_faults__a_poll_names_the_first_of_two_failures, machine_emulated) {
  const tide_block blocks[2] = { take(p, SINGLE), take(p, SINGLE) };  // a later request would poll
  for (size_t i = 0; i < 2; ++i) announce(p, blocks[i], side_new(m));
  for (size_t i = 0; i < 2; ++i) give(p, blocks[i]);
  break_calls(m, TIDE_CALL_EVENT_QUERY, TIDE_ERR_MACHINE, 1);
  break_calls(m, TIDE_CALL_EVENT_QUERY, TIDE_ERR_LIMIT, 2);

  T_EQ(tide_pinned_poll(p), TIDE_ERR_MACHINE);

  T_EQ(tide_last_error()->status, TIDE_ERR_MACHINE);
  tide_machine_fault_clear(m);
}

static void with_tight_blocks(tide_pinned_options* options) { options->max_block_bytes = SINGLE; }

// The memory of a block above the limit goes back as soon as its work is done.
PINNED_TEST_WITH(test_pinned_faults__a_poll_that_cannot_give_back_says_so, machine_emulated,
                 with_tight_blocks) {
  leave_waiting(m, p, 4 * SINGLE);
  (void)fail_before(p);
  break_calls(m, TIDE_CALL_PINNED_RELEASE, TIDE_ERR_MACHINE, 1);

  T_EQ(tide_pinned_poll(p), TIDE_ERR_MACHINE);

  T_EQ(tide_last_error()->status, TIDE_ERR_MACHINE);
  T_STR_HAS(tide_last_error()->text, tide_call_name(TIDE_CALL_PINNED_RELEASE));
}

// The work of one block cannot be asked for; the memory of another cannot go back.
PINNED_TEST_WITH(test_pinned_faults__a_poll_that_can_neither_ask_nor_give_back_names_the_question,
                 machine_emulated, with_tight_blocks) {
  const tide_block blocks[2] = { take(p, 4 * SINGLE), take(p, 4 * SINGLE) };
  for (size_t i = 0; i < 2; ++i) announce(p, blocks[i], side_new(m));
  for (size_t i = 0; i < 2; ++i) give(p, blocks[i]);
  break_calls(m, TIDE_CALL_EVENT_QUERY, TIDE_ERR_MACHINE, 1);
  break_calls(m, TIDE_CALL_PINNED_RELEASE, TIDE_ERR_LIMIT, 1);

  T_EQ(tide_pinned_poll(p), TIDE_ERR_MACHINE);

  T_STR_HAS(tide_last_error()->text, tide_call_name(TIDE_CALL_EVENT_QUERY));
  T_EQ(current(p, waiting), 1);
}

static void with_tight_cache(tide_pinned_options* options) { options->max_cached_bytes = 0; }

// The poll succeeds, although the machine refuses the memory above the limit of the cache.
PINNED_TEST_WITH(test_pinned_faults__a_poll_that_succeeds_records_nothing, machine_emulated,
                 with_tight_cache) {
  T_EQ(tide_last_error()->status, TIDE_OK);
  break_calls(m, TIDE_CALL_PINNED_RELEASE, TIDE_ERR_MACHINE, UINT64_MAX);
  leave_waiting(m, p, SINGLE);
  T_OK(tide_pinned_poll(p));
  T_EQ(tide_last_error()->status, TIDE_OK);
  T_EQ(current(p, waiting), 0);

  leave_waiting(m, p, SINGLE);
  const tide_error before = fail_before(p);
  T_OK(tide_pinned_poll(p));
  expect_record(&before);
  T_OK(tide_pinned_poll(p));  // nothing waits
  expect_record(&before);
  tide_machine_fault_clear(m);
}

// ---------------------------------------------------------------------------------------------------
// A call that fails twice

static void refuse_twice(tide_machine* m) {
  break_calls(m, TIDE_CALL_PINNED_RELEASE, TIDE_ERR_MACHINE, 1);
  break_calls(m, TIDE_CALL_PINNED_RELEASE, TIDE_ERR_LIMIT, 2);
}

// The status that a call returned belongs to the text.
static void expect_first_refusal(tide_machine* m, tide_status status) {
  T_EQ(status, TIDE_ERR_MACHINE);
  T_EQ(tide_last_error()->status, TIDE_ERR_MACHINE);
  tide_machine_fault_clear(m);
}

PINNED_TEST_OVER(test_pinned_faults__a_trim_names_the_first_of_two_refusals, machine_emulated) {
  const tide_block blocks[2] = { take(p, SINGLE), take(p, SINGLE) };
  for (size_t i = 0; i < 2; ++i) give(p, blocks[i]);
  refuse_twice(m);
  expect_first_refusal(m, tide_pinned_trim(p, 0));
  T_EQ(current(p, segments), 2);
}

// One refusal is in the default pool, the other in a pool without users.
PINNED_TEST_OVER(test_pinned_faults__emptying_names_the_first_of_two_refusals, machine_emulated) {
  tide_pool pool = TIDE_POOL_DEFAULT;
  const tide_block block = take(p, SINGLE);
  T_OK(tide_pinned_pool_new(p, &pool));
  T_OK(tide_pinned_pool_begin(p, pool, NULL));
  give(p, take(p, SINGLE));
  T_OK(tide_pinned_pool_end(p, pool));
  T_OK(tide_pinned_pool_drop(p, pool));
  give(p, block);
  T_EQ(current(p, segments), 2);
  refuse_twice(m);
  expect_first_refusal(m, tide_pinned_empty(p));
  T_EQ(current(p, segments), 2);
}

// Two ranges that had no memory for their records.
T_TEST(test_pinned_faults__a_trim_names_the_first_of_two_refused_pieces) {
  static run r;
  const op o = { .number = 5 };
  uint64_t pairs = 0;
  for (size_t n = 0; run_refuse(&r, &o, n, false); ++n) {
    atomic_store(&r.records.fail_at, atomic_load(&r.records.allocs) + n);
    T_ANY(do_alloc(&r, &o));
    atomic_store(&r.records.fail_at, SIZE_MAX);
    tide_machine_fault_clear(r.m);
    refuse_twice(r.m);
    const tide_status status = tide_pinned_trim(r.p, UINT64_MAX);
    T_EQ(status, status == TIDE_OK ? TIDE_OK : tide_last_error()->status);
    pairs += status == TIDE_ERR_MACHINE && run_missing(&r) == 2;
    tide_machine_fault_clear(r.m);
    run_close(&r, "records and the machine fail at once");
  }
  tide_machine_fault_clear(r.m);
  run_close(&r, "only the machine fails");
  T_LT(0, pairs);
}

// ---------------------------------------------------------------------------------------------------
// Captures of other code, and the end of a cache while work runs

PINNED_TEST(test_pinned_faults__a_block_released_in_a_capture_of_others_is_reusable_when_that_is_over) {
  const tide_stream side = side_new(m);
  tide_launch graph = NULL;
  const tide_block block = take(p, SINGLE);
  T_OK(tide_pinned_record(p, block, 0, side));
  T_OK(tide_machine_capture_begin(m, 0, side, TIDE_CAPTURE_RELAXED));
  give(p, block);
  T_CHECK(take(p, SINGLE).address != block.address);

  T_OK(tide_machine_capture_end(m, 0, side, &graph));
  stream_finish(m, 0, side);
  T_OK(tide_pinned_poll(p));  // records the event again

  T_PTR_EQ(take(p, SINGLE).address, block.address);
}

// Work that writes all of a block when it is let go.
typedef struct late_job {
  atomic_bool is_let_go;
  atomic_bool is_done;
  uint8_t* address;
} late_job;

static void late_write(void* user) {
  late_job* const job = user;
  for (int i = 0; i < 300000 && !atomic_load(&job->is_let_go); ++i) t_sleep_us(100);
  for (size_t i = 0; i < SINGLE; ++i) job->address[i] = 7;
  atomic_store(&job->is_done, true);
}

// The stream of the block is captured itself, or the machine refuses to wait for any.
static void expect_left_to_work(tide_machine* m, bool is_captured, bool is_released) {
  counting_heap records;
  tide_pinned_options options = TIDE_PINNED_OPTIONS_INIT;
  tide_fault fault = TIDE_FAULT_INIT;
  late_job job = { .is_let_go = false };
  tide_pinned_leaks leaks = TIDE_PINNED_LEAKS_INIT;
  tide_launch graph = NULL;
  const tide_stream side = side_new(m);
  counting_heap_init(&records, SIZE_MAX, false);
  options.heap = &records.heap;
  tide_pinned_cache* const p = pinned_open(m, &options);
  const tide_block block = take(p, SINGLE);
  job.address = block.address;
  T_OK(tide_machine_call(m, 0, side, late_write, &job));
  T_OK(tide_pinned_record(p, block, 0, side));
  if (is_captured) T_OK(tide_machine_capture_begin(m, 0, side, TIDE_CAPTURE_RELAXED));
  if (is_released) give(p, block);
  fault.status = TIDE_ERR_MACHINE;
  fault.count = is_captured ? 0 : UINT64_MAX;
  fault.call = TIDE_CALL_DEVICE_SYNCHRONIZE;
  T_OK(tide_machine_fault_add(m, &fault));
  fault.call = TIDE_CALL_EVENT_SYNCHRONIZE;
  T_OK(tide_machine_fault_add(m, &fault));

  tide_pinned_free(p, &leaks);

  tide_machine_fault_clear(m);
  T_EQ(leaks.refused_pieces, 1);
  T_EQ(leaks.refused_bytes, SINGLE);
  T_EQ(atomic_load(&records.outstanding), 0);
  atomic_store(&job.is_let_go, true);
  if (is_captured) T_ANY(tide_machine_capture_end(m, 0, side, &graph));
  stream_finish(m, 0, side);
  T_CHECK(atomic_load(&job.is_done));
}

HOST_TEST(test_pinned_faults__freed_in_a_capture_takes_nothing_from_work_that_runs) {
  expect_left_to_work(m, true, true);
  expect_left_to_work(m, true, false);
}

HOST_TEST(test_pinned_faults__freed_where_the_machine_does_not_wait_leaves_the_memory) {
  expect_left_to_work(m, false, true);
  expect_left_to_work(m, false, false);
}
