// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The register of pools, compared with a plain model: random calls, and after each one the state of every
// pool. Then requests on several threads call filters while scopes are opened and closed.
#define T_THREADS
#include "core/pools.h"

#include "machine/machines.h"

#define POOLS 24u   // that the model knows at once
#define STREAMS 3u  // handles 1 to 3, of
#define DEVICES 2   // devices 0 and 1; requests also come for device -1
#define GUESTS 16u  // requests under way

static const char* const orders[] = { "by number", "by place", NULL };

typedef struct record {
  tide__pool_base base;
  uint64_t made;  // set by record_init
} record;

// What the model knows of a scope; `accepts` is the answer of its filter.
typedef struct model_scope {
  tide__scope scope;
  bool accepts;
} model_scope;

typedef struct model_pool {
  tide_pool number;  // 0: the place is free
  tide__pool_base* base;
  uint64_t label[2];
  uint32_t users;
  uint32_t guests;
  uint64_t opened;  // 0: no scope; else which opening it was
  model_scope scope;
} model_pool;

typedef struct model {
  tide__mutex lock;
  counting_heap heap;
  tide__pools pools;
  record default_pool;
  tide__atomic_u32 flags;
  model_pool known[POOLS];
  tide_pool last_number;
  uint64_t openings;
  uint32_t scope_count;
  uint64_t records;  // that can have been made
  model_pool* guests[GUESTS];
} model;

static uint64_t records_made;

static void record_init(void* made) { ((record*)made)->made = ++records_made; }

// Reverses the order of pools, and makes some places equal.
static uint64_t record_place(const tide__pool_base* pool) { return 1000000 - pool->number / 2; }

static void model_open(model* m) {
  memset(m, 0, sizeof *m);
  tide__mutex_init(&m->lock, TIDE__RANK_POOLS);
  counting_heap_init(&m->heap, SIZE_MAX, false);
  tide__pools_init(&m->pools, &m->lock, &m->heap.heap, sizeof(record));
  m->pools.record_init = record_init;
  m->pools.flags = &m->flags;
  m->pools.has_scopes = 4;
  m->pools.has_captures = 8;
  if (strcmp(t_variant(), "by place") == 0) m->pools.place = record_place;
  tide__store_relaxed(&m->flags, 1);
  tide__pools_set_default(&m->pools, &m->default_pool.base);
}

static void model_close(model* m) {
  for (tide__pool_base* it = tide__pools_first_locked(&m->pools); it != NULL;
       it = tide__pools_first_locked(&m->pools)) {
    tide__pools_free(&m->pools, it);
  }
  tide__pools_fini(&m->pools);
  T_EQ(atomic_load(&m->heap.outstanding), 0);
  tide__mutex_fini(&m->lock);
}

static bool filter_answer(const tide__scope* scope, int device, tide_stream stream) {
  (void)device;
  (void)stream;
  return ((const model_scope*)scope->user)->accepts;
}

static void filter_unused(void) {}

// ---------------------------------------------------------------------------------------------------
// What the model expects

static bool model_takes(const model_pool* pool, int device, tide_stream stream) {
  const tide__scope* const scope = &pool->scope.scope;
  if (pool->opened == 0) return false;
  switch (scope->kind) {
    case TIDE_SCOPE_ALL:
    case TIDE_SCOPE_THREAD: return true;  // the model has one thread
    case TIDE_SCOPE_STREAM: return device == scope->device && stream == scope->stream;
    default: return pool->scope.accepts;
  }
}

static model_pool* model_choose(model* m, int device, tide_stream stream) {
  model_pool* newest = NULL;
  for (uint32_t i = 0; i < POOLS; i++) {
    model_pool* const pool = &m->known[i];
    if (pool->number == 0 || !model_takes(pool, device, stream)) continue;
    if (newest == NULL || pool->opened > newest->opened) newest = pool;
  }
  return newest;
}

static bool model_is_before(const model_pool* a, const model_pool* b) {
  if (strcmp(t_variant(), "by number") == 0) return a->number < b->number;
  const tide_pool x = a->number / 2;
  const tide_pool y = b->number / 2;
  return x > y || (x == y && a->number < b->number);
}

// The next pool of a walk behind one (NULL: the first); only those without users, or all.
static model_pool* model_after(model* m, const model_pool* behind, bool is_unused) {
  model_pool* next = NULL;
  for (uint32_t i = 0; i < POOLS; i++) {
    model_pool* const pool = &m->known[i];
    if (pool->number == 0 || (is_unused && pool->users > 0)) continue;
    if (behind != NULL && !model_is_before(behind, pool)) continue;
    if (next == NULL || model_is_before(pool, next)) next = pool;
  }
  return next;
}

// How many of the open scopes are regions.
static uint32_t model_regions(const model* m) {
  uint32_t count = 0;
  for (size_t i = 0; i < POOLS; ++i) {
    const model_pool* const pool = &m->known[i];
    count += pool->number != 0 && pool->opened != 0 && pool->scope.scope.is_region;
  }
  return count;
}

static void expect_same(model* m) {
  tide__pool_cursor at = { 0 };
  model_pool* wanted = model_after(m, NULL, false);
  tide__pool_base* got = tide__pools_next(&m->pools, &at);
  for (; wanted != NULL; wanted = model_after(m, wanted, false)) {
    T_PTR_EQ(got, wanted->base);
    T_EQ(got->number, wanted->number);
    T_EQ(got->users, wanted->users);
    T_EQ(got->guests, wanted->guests);
    T_EQ(got->has_scope, wanted->opened != 0);
    T_EQ(tide__pools_is_used(&m->pools, got), wanted->users > 0);
    T_PTR_EQ(tide__pools_find(&m->pools, wanted->number), wanted->base);
    got = tide__pools_next(&m->pools, &at);
  }
  T_PTR_EQ(got, NULL);
  const bool has_captures = m->scope_count > model_regions(m);
  T_EQ(tide__load_relaxed(&m->flags), (m->scope_count > 0 ? 5u : 1u) | (has_captures ? 8u : 0u));
  T_PTR_EQ(tide__pools_find(&m->pools, TIDE_POOL_DEFAULT), &m->default_pool.base);
}

// ---------------------------------------------------------------------------------------------------
// Calls

// A pool that the model knows or not: then with a number that was or will be another's.
static model_pool* any_pool(model* m, t_rng* rng, tide_pool* number) {
  model_pool* const pool = &m->known[t_rng_below(rng, POOLS)];
  *number = pool->number != 0 ? pool->number : (tide_pool)t_rng_below(rng, m->last_number + 3);
  for (uint32_t i = 0; i < POOLS; i++) {
    if (m->known[i].number == *number && *number != 0) return &m->known[i];
  }
  return NULL;
}

static tide_status model_refusal(const model_pool* pool, bool needs_users) {
  if (pool == NULL) return TIDE_ERR_HANDLE;
  return needs_users && pool->users == 0 ? TIDE_ERR_STATE : TIDE_OK;
}

static void do_new(model* m, t_rng* rng) {
  model_pool* const pool = &m->known[t_rng_below(rng, POOLS)];
  if (pool->number != 0) return;
  const uint64_t label[2] = { t_rng_below(rng, 2), t_rng_below(rng, 3) };
  tide__pool_base* const base = tide__pools_take_record(&m->pools);
  T_LE(1, ((record*)(void*)base)->made);
  T_LE(((record*)(void*)base)->made, POOLS);  // records are used again
  const bool has_label = t_rng_below(rng, 2) == 0;
  *pool = (model_pool){ .base = base, .users = 1 };
  pool->number = tide__pools_add(&m->pools, base, has_label ? label : NULL);
  T_EQ(pool->number, ++m->last_number);
  for (int i = 0; i < 2 && has_label; i++) pool->label[i] = label[i];
}

static void do_retain(model* m, t_rng* rng) {
  tide_pool number = 0;
  model_pool* const pool = any_pool(m, rng, &number);
  const tide_status wanted = model_refusal(pool, true);
  T_STATUS(tide__pools_retain(&m->pools, number, "retain"), wanted);
  if (wanted == TIDE_OK) pool->users++;
}

static void do_release(model* m, t_rng* rng) {
  tide_pool number = 0;
  model_pool* const pool = any_pool(m, rng, &number);
  tide_status wanted = model_refusal(pool, true);
  if (wanted == TIDE_OK && pool->users == 1 && pool->opened != 0) wanted = TIDE_ERR_STATE;
  T_STATUS(tide__pools_drop(&m->pools, number, "release"), wanted);
  if (wanted == TIDE_OK) pool->users--;
}

static void do_users(model* m, t_rng* rng) {
  tide_pool number = 0;
  uint32_t users = 99;
  const model_pool* const pool = any_pool(m, rng, &number);
  T_STATUS(tide__pools_users(&m->pools, number, "users", &users), model_refusal(pool, false));
  T_EQ(users, pool != NULL ? pool->users : 0);
}

static void do_begin(model* m, t_rng* rng) {
  tide_pool number = 0;
  model_pool* const pool = any_pool(m, rng, &number);
  const uint32_t kinds[] = { TIDE_SCOPE_ALL, TIDE_SCOPE_THREAD, TIDE_SCOPE_STREAM, TIDE_SCOPE_FILTER };
  model_scope made = { .accepts = t_rng_below(rng, 2) == 0 };
  made.scope = (tide__scope){ .kind = kinds[t_rng_below(rng, 4)],
                              .flags = (uint32_t)t_rng_below(rng, 7),
                              .is_region = t_rng_below(rng, 2) == 0,
                              .device = (int)t_rng_below(rng, DEVICES),
                              .stream = (tide_stream)(uintptr_t)(1 + t_rng_below(rng, STREAMS)),
                              .ask = filter_answer,
                              .filter = filter_unused,
                              .user = pool != NULL ? &pool->scope : NULL };
  tide_status wanted = model_refusal(pool, true);
  if (wanted == TIDE_OK && pool->opened != 0) wanted = TIDE_ERR_STATE;
  T_STATUS(tide__pools_begin(&m->pools, number, &made.scope, "begin"), wanted);
  if (wanted != TIDE_OK) return;
  pool->scope = made;
  pool->opened = ++m->openings;
  m->scope_count++;
}

static void do_end(model* m, t_rng* rng) {
  tide_pool number = 0;
  model_pool* const pool = any_pool(m, rng, &number);
  tide_status wanted = model_refusal(pool, false);
  if (wanted == TIDE_OK && pool->opened == 0) wanted = TIDE_ERR_STATE;
  if (wanted == TIDE_OK) {
    T_EQ(tide__pools_scope_locked(&m->pools, pool->base)->flags, pool->scope.scope.flags);
  }
  T_STATUS(tide__pools_end(&m->pools, number, "end"), wanted);
  if (wanted != TIDE_OK) return;
  T_CHECK(tide__pools_scope_locked(&m->pools, pool->base) == NULL);
  pool->opened = 0;
  m->scope_count--;
}

static void do_request(model* m, t_rng* rng) {
  model_pool** const guest = &m->guests[t_rng_below(rng, GUESTS)];
  if (*guest != NULL) {
    tide__pools_leave(&m->pools, (*guest)->base);
    (*guest)->guests--;
    *guest = NULL;
    return;
  }
  const int device = (int)t_rng_below(rng, DEVICES + 1) - 1;
  const tide_stream stream = (tide_stream)(uintptr_t)(1 + t_rng_below(rng, STREAMS));
  *guest = model_choose(m, device, stream);
  T_PTR_EQ(tide__pools_choose(&m->pools, NULL, device, stream), *guest != NULL ? (*guest)->base : NULL);
  if (*guest != NULL) (*guest)->guests++;
}

// Visits every pool without users; drops some of those that nobody else is in.
static void do_sweep(model* m, t_rng* rng) {
  tide__pool_cursor at = { 0 };
  const model_pool* behind = NULL;
  model_pool kept;  // where the walk is, though its pool may be dropped
  for (;;) {
    model_pool* const wanted = model_after(m, behind, true);
    tide__pool_base* const got = tide__pools_next_unused(&m->pools, &at);
    T_PTR_EQ(got, wanted != NULL ? wanted->base : NULL);
    if (wanted == NULL) return;
    T_EQ(got->guests, wanted->guests + 1);
    kept = *wanted;
    behind = &kept;
    if (t_rng_below(rng, 2) == 0) {
      tide__pools_leave(&m->pools, got);
      continue;
    }
    T_EQ(tide__pools_remove(&m->pools, got), wanted->guests == 0);
    if (wanted->guests != 0) continue;
    T_PTR_EQ(tide__pools_find(&m->pools, wanted->number), NULL);
    tide__pools_recycle(&m->pools, got);
    wanted->number = 0;
  }
}

static void do_label(model* m, t_rng* rng) {
  const uint64_t label[2] = { t_rng_below(rng, 2), 1 + t_rng_below(rng, 2) };
  tide_pool newest = 0;
  for (uint32_t i = 0; i < POOLS; i++) {
    const model_pool* const pool = &m->known[i];
    const bool is_it = pool->number != 0 && pool->label[0] == label[0] && pool->label[1] == label[1];
    if (is_it && pool->number > newest) newest = pool->number;
  }
  T_EQ(tide__pools_find_label(&m->pools, label), newest);
}

T_TEST_OVER(test_core_pools__says_what_a_model_says, orders) {
  static void (*const calls[])(model*, t_rng*) = { do_new,     do_new,     do_retain, do_release,
                                                   do_release, do_users,   do_begin,  do_end,
                                                   do_request, do_request, do_sweep,  do_label };
  static model m;
  t_rng rng = t_rng_new(1);
  model_open(&m);
  for (size_t i = 0; i < t_scaled_alone(20000); i++) {
    calls[t_rng_below(&rng, sizeof calls / sizeof *calls)](&m, &rng);
    expect_same(&m);
  }
  model_close(&m);
}

// ---------------------------------------------------------------------------------------------------
// Refusals

static tide_pool pool_new(model* m) {
  tide__pool_base* const base = tide__pools_take_record(&m->pools);
  T_CHECK(base != NULL);
  return tide__pools_add(&m->pools, base, NULL);
}

T_TEST(test_core_pools__an_error_names_the_call_and_the_pool) {
  static model m;
  const tide__scope all = { .kind = TIDE_SCOPE_ALL };
  const tide__scope no_kind = { .kind = TIDE_SCOPE_FILTER + 1 };
  const tide__scope no_filter = { .kind = TIDE_SCOPE_FILTER };
  model_open(&m);
  T_STATUS(tide__pools_retain(&m.pools, 7, "some_call"), TIDE_ERR_HANDLE);
  T_STR_EQ(tide_last_error()->text, "some_call: there is no private pool 7");
  T_STATUS(tide__pools_retain(&m.pools, TIDE_POOL_DEFAULT, "some_call"), TIDE_ERR_HANDLE);
  const tide_pool pool = pool_new(&m);
  T_STATUS(tide__pools_begin(&m.pools, pool, &no_kind, "some_call"), TIDE_ERR_ARGUMENT);
  T_STATUS(tide__pools_begin(&m.pools, pool, &no_filter, "some_call"), TIDE_ERR_ARGUMENT);
  T_STATUS(tide__pools_end(&m.pools, pool, "some_call"), TIDE_ERR_STATE);
  T_STR_EQ(tide_last_error()->text, "some_call: pool 1 has no open scope");
  T_OK(tide__pools_drop(&m.pools, pool, "some_call"));
  T_STATUS(tide__pools_begin(&m.pools, pool, &all, "some_call"), TIDE_ERR_STATE);
  T_STR_EQ(tide_last_error()->text, "some_call: pool 1 has no users any more");
  T_EQ(m.pools.scope_count, 0);
  model_close(&m);
}

T_TEST(test_core_pools__of_65_scopes_the_last_is_refused_and_leaves_no_user) {
  static model m;
  const tide__scope all = { .kind = TIDE_SCOPE_ALL };
  uint32_t users = 0;
  model_open(&m);
  for (int i = 0; i < TIDE__MAX_SCOPES; i++) T_OK(tide__pools_begin(&m.pools, pool_new(&m), &all, "begin"));
  const tide_pool last = pool_new(&m);
  T_STATUS(tide__pools_begin(&m.pools, last, &all, "begin"), TIDE_ERR_LIMIT);
  T_OK(tide__pools_users(&m.pools, last, "users", &users));
  T_EQ(users, 1);
  T_OK(tide__pools_end(&m.pools, 1, "end"));
  T_OK(tide__pools_begin(&m.pools, last, &all, "begin"));
  model_close(&m);
}

T_TEST(test_core_pools__without_memory_there_is_no_record) {
  static model m;
  model_open(&m);
  atomic_store(&m.heap.fail_at, atomic_load(&m.heap.allocs));
  T_PTR_EQ(tide__pools_take_record(&m.pools), NULL);
  T_EQ(pool_new(&m), 1);
  model_close(&m);
}

// ---------------------------------------------------------------------------------------------------
// Captures

MACHINE_TEST(test_core_pools__a_capture_scope_takes_what_joins_the_capture) {
  static model r;
  tide_stream streams[3];
  tide_launch launch = NULL;
  model_open(&r);
  for (int i = 0; i < 3; i++) streams[i] = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  const tide_pool pool = pool_new(&r);
  const tide__scope scope = { .kind = TIDE_SCOPE_CAPTURE, .stream = streams[0] };
  T_OK(tide__pools_begin(&r.pools, pool, &scope, "begin"));
  T_PTR_EQ(tide__pools_choose(&r.pools, m, 0, streams[0]), NULL);
  T_OK(tide_machine_capture_begin(m, 0, streams[0], TIDE_CAPTURE_RELAXED));
  T_OK(tide_machine_capture_begin(m, 0, streams[1], TIDE_CAPTURE_RELAXED));
  tide__pool_base* const taken = tide__pools_choose(&r.pools, m, 0, streams[0]);
  T_EQ(taken->number, pool);
  tide__pools_leave(&r.pools, taken);
  T_PTR_EQ(tide__pools_choose(&r.pools, m, 0, streams[1]), NULL);
  T_PTR_EQ(tide__pools_choose(&r.pools, m, 0, streams[2]), NULL);
  T_PTR_EQ(tide__pools_choose(&r.pools, m, -1, NULL), NULL);
  for (int i = 0; i < 2; i++) {
    T_OK(tide_machine_capture_end(m, 0, streams[i], &launch));
    T_OK(tide_machine_launch_free(m, launch));
  }
  T_PTR_EQ(tide__pools_choose(&r.pools, m, 0, streams[0]), NULL);
  model_close(&r);
}

// ---------------------------------------------------------------------------------------------------
// Threads

typedef struct filter_gate {
  model m;
  tide_pool pool;
  tide__atomic_u32 is_inside;
  tide__atomic_u32 may_leave;
  tide__atomic_u32 has_left;
} filter_gate;

static bool filter_wait(const tide__scope* scope, int device, tide_stream stream) {
  filter_gate* const g = scope->user;
  (void)device;
  (void)stream;
  tide__store_release(&g->is_inside, 1);
  T_WAIT(tide__load_acquire(&g->may_leave) != 0);
  tide__store_release(&g->has_left, 1);
  return true;
}

static void* gate_ask(void* user) {
  filter_gate* const g = user;
  T_PTR_EQ(tide__pools_choose(&g->m.pools, NULL, 0, NULL), NULL);  // the scope is closed by then
  return NULL;
}

static void* gate_end(void* user) {
  filter_gate* const g = user;
  T_OK(tide__pools_end(&g->m.pools, g->pool, "end"));
  T_EQ(tide__load_acquire(&g->has_left), 1);
  return NULL;
}

T_TEST(test_core_pools__closing_waits_for_those_who_ask) {
  static filter_gate g;
  pthread_t asker;
  pthread_t closer;
  model_open(&g.m);
  g.pool = pool_new(&g.m);
  const tide__scope scope = {
    .kind = TIDE_SCOPE_FILTER, .ask = filter_wait, .filter = filter_unused, .user = &g
  };
  T_OK(tide__pools_begin(&g.m.pools, g.pool, &scope, "begin"));
  T_EQ(pthread_create(&asker, NULL, gate_ask, &g), 0);
  T_WAIT(tide__load_acquire(&g.is_inside) != 0);
  T_EQ(pthread_create(&closer, NULL, gate_end, &g), 0);
  T_WAIT((tide__load_relaxed(&g.m.flags) & 4u) == 0);  // the scope is closed, and its filter still asked
  T_EQ(tide__load_acquire(&g.has_left), 0);
  tide__store_release(&g.may_leave, 1);
  T_EQ(pthread_join(asker, NULL), 0);
  T_EQ(pthread_join(closer, NULL), 0);
  model_close(&g.m);
}

static bool filter_close(const tide__scope* scope, int device, tide_stream stream) {
  filter_gate* const g = scope->user;
  (void)device;
  (void)stream;
  T_OK(tide__pools_end(&g->m.pools, g->pool, "end"));
  return true;
}

T_TEST(test_core_pools__a_filter_may_close_its_own_scope) {
  static filter_gate g;
  model_open(&g.m);
  g.pool = pool_new(&g.m);
  const tide__scope scope = {
    .kind = TIDE_SCOPE_FILTER, .ask = filter_close, .filter = filter_unused, .user = &g
  };
  T_OK(tide__pools_begin(&g.m.pools, g.pool, &scope, "begin"));
  T_PTR_EQ(tide__pools_choose(&g.m.pools, NULL, 0, NULL), NULL);
  model_close(&g.m);
}

static void* choose_nothing(void* user) {
  T_PTR_EQ(tide__pools_choose(user, NULL, 0, NULL), NULL);
  return NULL;
}

T_TEST(test_core_pools__a_thread_scope_takes_requests_of_its_thread_alone) {
  static model m;
  pthread_t other;
  const tide__scope scope = { .kind = TIDE_SCOPE_THREAD };
  model_open(&m);
  const tide_pool pool = pool_new(&m);
  T_OK(tide__pools_begin(&m.pools, pool, &scope, "begin"));
  T_EQ(pthread_create(&other, NULL, choose_nothing, &m.pools), 0);
  T_EQ(pthread_join(other, NULL), 0);
  tide__pool_base* const chosen = tide__pools_choose(&m.pools, NULL, 0, NULL);
  T_EQ(chosen->number, pool);
  tide__pools_leave(&m.pools, chosen);
  model_close(&m);
}

// Filters whose data goes as soon as their scope is closed, asked by several threads all the time.
typedef struct storm {
  model m;
  tide__atomic_u32 is_over;
  tide__atomic_u64 answers;
} storm;

typedef struct storm_filter {
  storm* s;
  uint32_t magic;
} storm_filter;

#define STORM_MAGIC 0x5c09e5u
enum { STORM_THREADS = 3 };

static bool filter_storm(const tide__scope* scope, int device, tide_stream stream) {
  const storm_filter* const data = scope->user;
  (void)device;
  (void)stream;
  T_EQ(data->magic, STORM_MAGIC);
  return tide__add_relaxed(&data->s->answers, 1) % 2 == 0;
}

static void* storm_ask(void* user) {
  storm* const s = user;
  while (tide__load_acquire(&s->is_over) == 0) {
    tide__pool_base* const pool = tide__pools_choose(&s->m.pools, NULL, 0, NULL);
    if (pool != NULL) tide__pools_leave(&s->m.pools, pool);
  }
  return NULL;
}

T_TEST(test_core_pools__the_data_of_a_filter_may_go_when_its_scope_is_closed) {
  static storm s;
  pthread_t threads[STORM_THREADS];
  model_open(&s.m);
  for (int i = 0; i < STORM_THREADS; i++) T_EQ(pthread_create(&threads[i], NULL, storm_ask, &s), 0);
  for (size_t i = 0; i < t_scaled(500); i++) {
    storm_filter* const data = malloc(sizeof *data);
    T_CHECK(data != NULL);
    *data = (storm_filter){ &s, STORM_MAGIC };
    const tide__scope scope = {
      .kind = TIDE_SCOPE_FILTER, .ask = filter_storm, .filter = filter_unused, .user = data
    };
    const tide_pool pool = pool_new(&s.m);
    const uint64_t before = tide__load_relaxed(&s.answers);
    T_OK(tide__pools_begin(&s.m.pools, pool, &scope, "begin"));
    if (i % 16 == 0) T_WAIT(tide__load_relaxed(&s.answers) != before);
    T_OK(tide__pools_end(&s.m.pools, pool, "end"));
    data->magic = 0;
    free(data);
    T_OK(tide__pools_drop(&s.m.pools, pool, "release"));
    tide__pool_cursor at = { 0 };
    tide__pool_base* unused = tide__pools_next_unused(&s.m.pools, &at);
    for (; unused != NULL; unused = tide__pools_next_unused(&s.m.pools, &at)) {
      if (tide__pools_remove(&s.m.pools, unused)) tide__pools_recycle(&s.m.pools, unused);
    }
  }
  tide__store_release(&s.is_over, 1);
  for (int i = 0; i < STORM_THREADS; i++) T_EQ(pthread_join(threads[i], NULL), 0);
  model_close(&s.m);
}
