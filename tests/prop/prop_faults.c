// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Faults at every machine call and every allocation of records in one long run of the device allocator. The
// run is first played without a fault, to learn which calls each operation makes and how it ends. Then it is
// played again for each call, which now fails, alone or with the next one. The operation that meets the fault
// may fail, but when it is repeated it must do what it did without the fault. The allocator must stay valid
// to the end, and then all memory must be back.
//
// The dry machine makes the same calls in every run, so every call is reached. On host the number of calls
// depends on time, and a sample is enough: there the point is that nothing is used that was given back.
#define T_THREADS
#include "prop/work.h"

#define OPS 2000u
#define SLOTS 48u
#define STREAMS 4u
#define POOLS 2u
#define CAPACITY (160 * MIB)
#define OPS_AFTER 100u  // operations that follow a fault before the run is ended

// Name, function, how often of 990.
// clang-format off
#define VERB_MAP(X)                                                                                      \
  X(ALLOC, do_alloc, 400) X(RELEASE, do_release, 330) X(RECORD, do_record, 100) X(POLL, do_poll, 20)     \
  X(TRIM, do_trim, 12) X(TRIM_POOL, do_trim_pool, 8) X(POOL_NEW, do_pool_new, 10)                        \
  X(POOL_BEGIN, do_pool_begin, 14) X(POOL_END, do_pool_end, 16) X(POOL_RELEASE, do_pool_release, 12)     \
  X(CHECKPOINT, do_checkpoint, 14) X(RESTORE, do_restore, 14) X(CONFIGURE, do_configure, 16)             \
  X(LIMIT, do_limit, 10) X(CACHING, do_caching, 8) X(HISTORY, do_history, 6)
// clang-format on
#define VERB_NUMBER(name, function, weight) VERB_##name,
typedef enum verb { VERB_MAP(VERB_NUMBER) VERB_COUNT } verb;

typedef struct item {
  bool is_used;
  bool is_cached;
  bool is_plain;   // of a plain pool
  bool is_new;     // nothing is written to it yet
  bool is_filled;  // its first bytes are `value`
  uint8_t value;
  uint8_t stream;
  tide_pool pool;
  size_t bytes;
  tide_block block;
} item;

// A run.
typedef struct run {
  tide_machine* m;
  tide_device_cache* d;
  counting_heap records;
  size_t free_before;
  bool is_expandable;
  tide_stream streams[STREAMS];
  item items[SLOTS];
  tide_pool pools[POOLS];  // 0: none
  uint32_t users[POOLS];
  int scope;  // the pool with an open scope, or -1
  tide_checkpoint* checkpoint;
  tide_pool checkpoint_pool;
} run;

// What the run without faults did in each operation.
typedef struct step {
  tide_status status;
  uint64_t calls;   // of the machine, before it, by the allocator
  uint64_t allocs;  // of records, before it
} step;

static op list[OPS];
static step clean[OPS + 1];
static const char* const modes[] = { "dry raw", "dry expandable", "dry tide", NULL };
static const char* const host_modes[] = { "host raw", "host expandable", "host tide", NULL };

// ---------------------------------------------------------------------------------------------------
// Operations: each makes one call of the allocator, which may fail, and changes the run only if it did not

static tide_status do_alloc(run* r, const op* o) {
  item* const it = &r->items[o->slot % SLOTS];
  const size_t power = (size_t)1 << (8 + o->number % 17);
  if (it->is_used) return TIDE_OK;
  it->bytes = power + (o->number >> 8) % power;
  it->is_cached = tide_device_is_caching(r->d);
  it->is_plain = r->scope == 1;
  it->pool = r->scope >= 0 ? r->pools[r->scope] : TIDE_POOL_DEFAULT;
  const tide_status status = tide_device_alloc(r->d, r->streams[o->other], it->bytes, &it->block);
  it->is_used = it->is_new = status == TIDE_OK;
  it->is_filled = false;
  it->stream = o->other;
  return status;
}

static tide_status do_release(run* r, const op* o) {
  item* const it = &r->items[o->slot % SLOTS];
  if (!it->is_used) return TIDE_OK;
  const tide_status status = o->value % 2 == 0 ? tide_device_release(r->d, it->block)
                                               : tide_device_release_address(r->d, it->block.address);
  it->is_used = status != TIDE_OK;
  return status;
}

static tide_status do_record(run* r, const op* o) {
  const item* const it = &r->items[o->slot % SLOTS];
  return it->is_used ? tide_device_record(r->d, it->block, r->streams[o->other]) : TIDE_OK;
}

static tide_status do_poll(run* r, const op* o) {
  (void)o;
  return tide_device_poll(r->d);
}

static tide_status do_trim(run* r, const op* o) {
  (void)o;
  return tide_device_trim(r->d, 0);
}

// A pool without users may be gone at any time.
static bool pool_is_there(run* r, size_t n) {
  uint32_t users = 0;
  if (r->pools[n] == 0) return false;
  if (r->users[n] == 0 && tide_device_pool_users(r->d, r->pools[n], &users) != TIDE_OK) r->pools[n] = 0;
  return r->pools[n] != 0;
}

static tide_status do_trim_pool(run* r, const op* o) {
  const size_t n = o->slot % POOLS;
  return pool_is_there(r, n) ? tide_device_trim_pool(r->d, r->pools[n]) : TIDE_OK;
}

static tide_status do_pool_new(run* r, const op* o) {
  const size_t n = o->slot % POOLS;
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.is_plain = n == 1;
  if (pool_is_there(r, n)) return TIDE_OK;
  const tide_status status = tide_device_pool_new(r->d, &options, &r->pools[n]);
  r->users[n] = status == TIDE_OK;
  return status;
}

static tide_status do_pool_begin(run* r, const op* o) {
  const size_t n = o->slot % POOLS;
  if (r->scope >= 0 || r->pools[n] == 0 || r->users[n] == 0) return TIDE_OK;
  const tide_status status = tide_device_pool_begin(r->d, r->pools[n], NULL);
  if (status != TIDE_OK) return status;
  r->scope = (int)n;
  return TIDE_OK;
}

static tide_status do_pool_end(run* r, const op* o) {
  (void)o;
  if (r->scope < 0) return TIDE_OK;
  const tide_status status = tide_device_pool_end(r->d, r->pools[r->scope]);
  if (status != TIDE_OK) return status;
  r->scope = -1;
  return TIDE_OK;
}

static tide_status do_pool_release(run* r, const op* o) {
  const size_t n = o->slot % POOLS;
  if (r->pools[n] == 0 || r->users[n] == 0 || r->scope == (int)n) return TIDE_OK;
  const tide_status status = tide_device_pool_drop(r->d, r->pools[n]);
  if (status == TIDE_OK) r->users[n]--;
  return status;
}

static tide_status do_checkpoint(run* r, const op* o) {
  const size_t n = o->slot % POOLS;
  tide_checkpoint* made = NULL;
  if (r->pools[n] == 0 || r->users[n] == 0) return TIDE_OK;
  const tide_status status = tide_device_checkpoint(r->d, r->pools[n], &made);
  if (status != TIDE_OK) return status;
  tide_checkpoint_free(r->checkpoint);
  r->checkpoint = made;
  r->checkpoint_pool = r->pools[n];
  return TIDE_OK;
}

static void adopt_delta(run* r, const tide_restore_delta* delta) {
  size_t slot = 0;
  for (size_t i = 0; i < SLOTS; i++) {
    if (r->items[i].is_cached && r->items[i].pool == r->checkpoint_pool) r->items[i].is_used = false;
  }
  for (size_t i = 0; i < delta->created_count; i++) {
    while (slot < SLOTS && r->items[slot].is_used) slot++;
    const item made = {
      .is_used = true, .is_cached = true, .pool = r->checkpoint_pool, .block = delta->created[i]
    };
    if (slot < SLOTS) r->items[slot] = made;
    else T_OK(tide_device_release(r->d, made.block));
  }
}

static tide_status do_restore(run* r, const op* o) {
  tide_restore_delta delta = TIDE_RESTORE_DELTA_INIT;
  (void)o;
  if (r->checkpoint == NULL) return TIDE_OK;
  const tide_status status = tide_device_restore(r->d, r->checkpoint, &delta);
  if (status == TIDE_OK) adopt_delta(r, &delta);
  if (status == TIDE_OK) tide_restore_delta_clear(&delta);
  return status;
}

static tide_status do_configure(run* r, const op* o) {
  tide_device_options options = device_defaults();
  options.expandable_segments = r->is_expandable != (o->value % 8 == 0);
  options.fixes = (o->value & 1u) != 0;
  if (o->value & 2u) options.max_split_bytes = 20 * MIB;
  if (o->value & 4u) options.collect_threshold = 0.3;
  if (o->value & 8u) options.memory_fraction = 0.6;
  return tide_device_configure(r->d, &options);
}

static tide_status do_limit(run* r, const op* o) {
  return tide_device_set_limit(r->d, o->value % 2 == 0 ? TIDE_NO_LIMIT : (24 + o->number % 80) * MIB);
}

static tide_status do_caching(run* r, const op* o) {
  tide_device_set_caching(r->d, o->value % 4 != 0);
  return TIDE_OK;
}

static size_t gather_frames(void* user, uint64_t* frames, size_t capacity) {
  (void)user;
  (void)capacity;
  frames[0] = 1;
  return 1;
}

static tide_status do_history(run* r, const op* o) {
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  options.is_on = o->value % 2 == 0;
  options.level = TIDE_HISTORY_ALL;
  options.max_entries = 1 + o->number % 200;
  options.gather = gather_frames;
  return tide_device_history(r->d, &options);
}

#define VERB_ROW(name, function, weight) { #name, function, weight },
static const struct {
  const char* name;
  tide_status (*function)(run*, const op*);
  uint32_t weight;
} verbs[VERB_COUNT] = { VERB_MAP(VERB_ROW) };

// ---------------------------------------------------------------------------------------------------
// Runs

static void list_make(void) {
  t_rng rng = t_rng_new(7);
  for (size_t i = 0; i < OPS; i++) {
    const uint64_t bits = t_rng_next(&rng);
    uint32_t at = (uint32_t)t_rng_below(&rng, 990);
    uint8_t verb_at = 0;
    while (verb_at + 1u < VERB_COUNT && at >= verbs[verb_at].weight) at -= verbs[verb_at++].weight;
    list[i] = (op){ verb_at, (uint8_t)bits, (uint8_t)((bits >> 8) % STREAMS), (uint8_t)(bits >> 16),
                    (uint32_t)(bits >> 32) };
  }
}

static void run_open(run* r) {
  memset(r, 0, sizeof *r);
  r->m = prop_machine_new(CAPACITY);
  r->scope = -1;
  for (size_t i = 1; i < STREAMS; i++) r->streams[i] = stream_new(r->m, 0, TIDE_STREAM_NON_BLOCKING);
  r->free_before = free_bytes(r->m, 0);
  r->is_expandable = strstr(t_variant(), "expandable") != NULL;
  counting_heap_init(&r->records, SIZE_MAX, false);
  tide_device_options options = device_defaults();
  options.heap = &r->records.heap;
  options.expandable_segments = r->is_expandable;
  T_OK(tide_device_new(r->m, 0, &options, &r->d));
}

// The work that operations are about: blocks are filled on their streams, and other streams are slow. It is
// queued before the operation that announces it.
static void work_before(run* r, const op* o) {
  if (o->verb != VERB_RECORD) return;
  T_OK(work_delay(r->m, r->streams[o->other], o->number % (is_dry(r->m) ? 200 : 20)));
  // What is announced in a scope is joined before the scope ends, as the caller of a capture must.
  if (r->scope >= 0) T_OK(tide_machine_stream_synchronize(r->m, 0, r->streams[o->other]));
}

static size_t head_bytes(const item* it) { return it->bytes < 16 * KIB ? it->bytes : 16 * KIB; }

static void work_after(run* r, const op* o) {
  item* const it = &r->items[o->slot % SLOTS];
  if (!it->is_used || !it->is_new) return;
  T_OK(tide_machine_fill(r->m, 0, r->streams[it->stream], it->block.address, o->value, head_bytes(it)));
  it->is_new = false;
  it->is_filled = true;
  it->value = o->value;
}

static void expect_data(run* r) {
  T_OK(tide_machine_device_synchronize(r->m, 0));
  for (size_t i = 0; i < SLOTS && !is_dry(r->m); i++) {
    const item* const it = &r->items[i];
    if (it->is_used && it->is_filled) T_FILLED(it->block.address, it->value, head_bytes(it));
  }
}

static uint64_t calls_of(const run* r) { return tide_machine_call_stats(r->m, TIDE_CALL_ANY).calls; }

static void expect_order(run* r, size_t at) {
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  int64_t live = 0;
  for (size_t i = 0; i < SLOTS; i++) live += r->items[i].is_used && r->items[i].is_cached;
  if (tide_device_check(r->d) != 0) {
    T_FAIL("seed %" PRIu64 ", operation %zu (%s): check: %s", t_seed(), at, verbs[list[at].verb].name,
           tide_last_error()->text);
  }
  T_OK(tide_device_get_stats(r->d, &stats));
  if (stats.allocation[0].current != live) {
    T_FAIL("seed %" PRIu64 ", operation %zu (%s): %lld blocks are counted, %lld are handed out", t_seed(), at,
           verbs[list[at].verb].name, (long long)stats.allocation[0].current, (long long)live);
  }
}

// Plays the run without a fault and notes what each operation does.
static void play_clean(run* r) {
  uint64_t calls = 0;
  run_open(r);
  for (size_t i = 0; i < OPS; i++) {
    work_before(r, &list[i]);
    clean[i].calls = calls;
    clean[i].allocs = atomic_load(&r->records.allocs);
    const uint64_t before = calls_of(r);
    clean[i].status = verbs[list[i].verb].function(r, &list[i]);
    calls += calls_of(r) - before;
    work_after(r, &list[i]);
    if (i % 16 == 0) expect_order(r, i);
  }
  clean[OPS].calls = calls;
  clean[OPS].allocs = atomic_load(&r->records.allocs);
}

static void run_close(run* r, const char* what) {
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  const op none = { 0 };
  expect_data(r);
  T_OK(do_pool_end(r, &none));
  for (uint8_t i = 0; i < SLOTS; i++) T_OK(do_release(r, &(op){ .slot = i }));
  for (uint8_t i = 0; i < POOLS; i++) {
    while (r->pools[i] != 0 && r->users[i] > 0) T_OK(do_pool_release(r, &(op){ .slot = i }));
  }
  tide_checkpoint_free(r->checkpoint);
  T_OK(tide_device_trim(r->d, 0));
  expect_order(r, OPS - 1);
  T_OK(tide_device_get_stats(r->d, &stats));
  if (stats.reserved_bytes[0].current != 0) {
    T_FAIL("seed %" PRIu64 ", %s: %lld bytes are reserved at the end", t_seed(), what,
           (long long)stats.reserved_bytes[0].current);
  }
  if (free_bytes(r->m, 0) != r->free_before) {
    T_FAIL("seed %" PRIu64 ", %s: %zu bytes of the machine are lost", t_seed(), what,
           r->free_before - free_bytes(r->m, 0));
  }
  tide_device_free(r->d);
  T_OK(tide_machine_device_synchronize(r->m, 0));
  if (atomic_load(&r->records.outstanding) != 0) {
    T_FAIL("seed %" PRIu64 ", %s: %zu bytes of records are left", t_seed(), what,
           atomic_load(&r->records.outstanding));
  }
  T_EQ(free_bytes(r->m, 0), r->free_before);
  tide_machine_free(r->m);
}

// What a request takes from the machine if nothing cached serves it: a segment, or whole handles of one that
// expands.
static size_t segment_bytes(const item* it) {
  if (it->bytes <= MIB) return 2 * MIB;
  return it->bytes < 10 * MIB && (it->is_plain || !is_tide())
             ? 20 * MIB
             : (it->bytes + 2 * MIB - 1) / (2 * MIB) * 2 * MIB;
}

static size_t taken_bytes(run* r, const item* it) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  tide_device_get_options(r->d, &options);
  if (!it->is_cached) return it->bytes;
  if (is_tide() || it->is_plain || !options.expandable_segments || it->bytes <= MIB) return segment_bytes(it);
  return (it->bytes + 20 * MIB - 1) / (20 * MIB) * 20 * MIB;
}

// Is there less left than a request needs, of the device or below the limit?
static bool is_without_room(run* r, const item* it) {
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  const uint64_t limit = tide_device_limit(r->d);
  T_OK(tide_device_get_stats(r->d, &stats));
  const uint64_t reserved = (uint64_t)stats.reserved_bytes[0].current;
  const bool passes_limit = it->is_cached && limit != TIDE_NO_LIMIT && reserved + segment_bytes(it) > limit;
  return passes_limit || free_bytes(r->m, 0) < taken_bytes(r, it);
}

// On host it depends on time which blocks still wait for other streams. Checkpoints refuse these, and
// requests take others instead, so that this run may have come to have less room than the run without a fault
// had. With the policy tide a request that a fault hit gave back what is idle, and under a limit below that
// it cannot be had again. Then the refusal must be true: with all work done and what is idle given back, the
// request is served, or there is less than it needs.
static bool is_true_refusal(run* r, size_t at, tide_status status) {
  const op* const o = &list[at];
  if (is_dry(r->m) && !is_tide()) return false;
  if (o->verb == VERB_CHECKPOINT || o->verb == VERB_RESTORE) return !is_dry(r->m) && status == TIDE_ERR_STATE;
  if (o->verb != VERB_ALLOC || status != TIDE_ERR_NO_MEMORY) return false;
  T_OK(tide_machine_device_synchronize(r->m, 0));
  T_OK(tide_device_trim(r->d, 0));
  return do_alloc(r, o) == TIDE_OK || is_without_room(r, &r->items[o->slot % SLOTS]);
}

// The operation that met a fault: it may have failed, but then works when made again.
static void expect_again(run* r, size_t at, tide_status got, const char* what) {
  tide_error first = *tide_last_error();
  expect_order(r, at);
  if (got == TIDE_OK || got == clean[at].status) return;
  const tide_status again = verbs[list[at].verb].function(r, &list[at]);
  tide_error second = *tide_last_error();
  if (again != clean[at].status && clean[at].status == TIDE_OK && !is_true_refusal(r, at, again)) {
    T_FAIL("seed %" PRIu64 ", %s: operation %zu (%s) was %s (%.150s), and made again %s (%.150s)", t_seed(),
           what, at, verbs[list[at].verb].name, tide_status_name(got), first.text, tide_status_name(again),
           second.text);
  }
  expect_order(r, at);
}

// Plays on for a while after a fault; whatever happens now, everything stays in order.
static void play_on(run* r, size_t from, const char* what) {
  const size_t end = from + OPS_AFTER < OPS ? from + OPS_AFTER : OPS;
  for (size_t i = from; i < end; i++) {
    work_before(r, &list[i]);
    T_ANY(verbs[list[i].verb].function(r, &list[i]));
    work_after(r, &list[i]);
    if (i % 32 == 0) expect_order(r, i);
  }
  run_close(r, what);
}

static void play_to(run* r, size_t end) {
  run_open(r);
  for (size_t i = 0; i < end; i++) {
    work_before(r, &list[i]);
    const tide_status status = verbs[list[i].verb].function(r, &list[i]);
    if (is_dry(r->m)) T_EQ(status, clean[i].status);
    work_after(r, &list[i]);
  }
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
  fault.count = call % 2 + 1;  // the call that undoes what was done so far may fail as well
  (void)snprintf(what, sizeof what, "call %" PRIu64 " of the machine is %s", call, tide_status_name(status));
  play_to(&r, at);
  work_before(&r, &list[at]);

  T_OK(tide_machine_fault_add(r.m, &fault));
  const tide_status got = verbs[list[at].verb].function(&r, &list[at]);
  tide_machine_fault_clear(r.m);

  expect_again(&r, at, got, what);
  work_after(&r, &list[at]);
  play_on(&r, at + 1, what);
}

static void play_heap_fault(uint64_t alloc, bool is_exhausted) {
  static run r;
  char what[80];
  const size_t at = find_alloc(alloc);
  (void)snprintf(what, sizeof what, "request %" PRIu64 " for records%s fails", alloc,
                 is_exhausted ? " and each behind it" : "");
  play_to(&r, at);
  work_before(&r, &list[at]);

  r.records.is_exhausted = is_exhausted;
  atomic_store(&r.records.fail_at, alloc);
  const tide_status got = verbs[list[at].verb].function(&r, &list[at]);
  r.records.is_exhausted = false;
  atomic_store(&r.records.fail_at, SIZE_MAX);

  expect_again(&r, at, got, what);
  work_after(&r, &list[at]);
  play_on(&r, at + 1, what);
}

// How many of `count` faults are tried: one in ten, and at full scale all.
static uint64_t sample_step(uint64_t count, uint64_t wanted) { return wanted >= count ? 1 : count / wanted; }

static void prepare(void) {
  static run r;
  list_make();
  play_clean(&r);
  run_close(&r, "no fault");
}

T_TEST_OVER(prop_faults__no_call_of_the_machine_is_fatal, modes) {
  prepare();
  const uint64_t count = 2 * clean[OPS].calls;
  const uint64_t step_by = sample_step(count, t_scaled_alone(count / 10));

  for (uint64_t i = t_seed() % step_by; i < count; i += step_by) {
    play_machine_fault(i / 2, i % 2 == 0 ? TIDE_ERR_NO_MEMORY : TIDE_ERR_MACHINE);
  }
}

T_TEST_OVER(prop_faults__no_call_of_the_machine_is_fatal_to_data, host_modes) {
  prepare();
  const uint64_t count = 2 * clean[OPS].calls;
  const uint64_t step_by = sample_step(count, t_scaled_alone(10));

  for (uint64_t i = t_seed() % step_by; i < count; i += step_by) {
    play_machine_fault(i / 2, i % 2 == 0 ? TIDE_ERR_NO_MEMORY : TIDE_ERR_MACHINE);
  }
}

T_TEST_OVER(prop_faults__no_record_is_needed_to_go_on, modes) {
  prepare();
  const uint64_t first = clean[0].allocs;
  const uint64_t count = 2 * (clean[OPS].allocs - first);
  const uint64_t step_by = sample_step(count, t_scaled_alone(count / 10));

  for (uint64_t i = t_seed() % step_by; i < count; i += step_by) {
    play_heap_fault(first + i / 2, i % 2 == 0);
  }
}

// ---------------------------------------------------------------------------------------------------
// The beginning and the end of an allocator

T_TEST_OVER(prop_faults__an_allocator_is_made_whole_or_not_at_all, modes) {
  tide_device_options options = device_defaults();
  counting_heap records;
  bool has_failed = true;
  tide_machine* const m = prop_machine_new(CAPACITY);
  for (size_t at = 0; has_failed; at++) {
    tide_device_cache* d = NULL;
    counting_heap_init(&records, at, at % 2 == 0);
    options.heap = &records.heap;
    options.expandable_segments = strstr(t_variant(), "expandable") != NULL;

    const tide_status status = tide_device_new(m, 0, &options, &d);
    has_failed = atomic_load(&records.has_failed);

    T_EQ(status, has_failed ? TIDE_ERR_NO_MEMORY : TIDE_OK);
    T_EQ(d == NULL, has_failed);
    atomic_store(&records.fail_at, SIZE_MAX);
    tide_device_free(d);
    T_EQ(atomic_load(&records.outstanding), 0);
  }
  tide_fault fault = TIDE_FAULT_INIT;
  tide_device_cache* d = NULL;
  fault.status = TIDE_ERR_MACHINE;
  T_OK(tide_machine_fault_add(m, &fault));
  T_STATUS(tide_device_new(m, 0, &options, &d), TIDE_ERR_MACHINE);
  T_PTR_EQ(d, NULL);
  T_EQ(atomic_load(&records.outstanding), 0);
  tide_machine_free(m);
}

// Whatever the machine refuses at the end, no record is left, and what it did not refuse is back.
T_TEST_OVER(prop_faults__an_allocator_ends_whatever_the_machine_says, modes) {
  static run r;
  list_make();
  for (uint64_t call = 0; call < t_scaled(60); call++) {
    tide_fault fault = TIDE_FAULT_INIT;
    fault.skip = call;
    fault.count = call % 4 == 3 ? UINT64_MAX : 1;
    fault.status = TIDE_ERR_MACHINE;
    run_open(&r);
    for (size_t i = 0; i < OPS / 8; i++) {
      work_before(&r, &list[i]);
      T_ANY(verbs[list[i].verb].function(&r, &list[i]));
      work_after(&r, &list[i]);
    }
    tide_checkpoint_free(r.checkpoint);

    T_OK(tide_machine_fault_add(r.m, &fault));
    tide_device_free(r.d);
    tide_machine_fault_clear(r.m);

    T_EQ(atomic_load(&r.records.outstanding), 0);
    tide_machine_free(r.m);
  }
}
