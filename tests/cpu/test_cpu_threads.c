// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Many threads in the CPU cache. Blocks go from thread to thread and are released, resized and forgotten on
// any of them, while others trim, poll, change limits, end, or free a cache with orphans. The allocating
// thread fills a block and the releasing one compares it, so that memory that is handed out twice is
// detected.
#define T_THREADS
#include <sched.h>

#include "blocks.h"

#define THREADS 4
#define SLOTS 64
#define ROUNDS (T_HAS_THREAD_SANITIZER ? 2000 : T_HAS_ADDRESS_SANITIZER ? 3000 : 8000)

// ---------------------------------------------------------------------------------------------------
// A market: threads exchange blocks through a table of slots

typedef struct market {
  tide_cpu_cache* caches[2];
  size_t cache_count;
  _Atomic(block*) tables[SLOTS];
  atomic_bool is_over;
  atomic_size_t refused;  // requests for which there was no memory
  bool is_short;          // there may be none
  unsigned powers;        // of sizes
} market;

typedef struct trader {
  market* market;
  uint64_t index;
} trader;

static void stall_clear(block* b, bool is_forgotten) {
  if (b == NULL) return;
  pattern_expect(b->address, b->seed, b->bytes);
  T_OK(is_forgotten ? tide_cpu_forget(b->address) : tide_cpu_release(b->address));
  free(b);
}

static block* stall_fill(market* m, t_rng* rng) {
  block* const b = malloc(sizeof *b);
  void* address = NULL;
  T_CHECK(b != NULL);
  tide_cpu_cache* const cache = m->caches[t_rng_below(rng, m->cache_count)];
  const size_t bytes = 1 + random_bytes(rng, m->powers);
  const size_t alignment = (size_t)64 << t_rng_below(rng, 8);
  const tide_status status = t_rng_below(rng, 8) > 0
                                 ? tide_cpu_alloc(cache, bytes, &address)
                                 : tide_cpu_alloc_aligned(cache, bytes, alignment, &address);
  if (status != TIDE_OK) {
    T_CHECK(m->is_short);
    T_STATUS(status, TIDE_ERR_NO_MEMORY);
    atomic_fetch_add(&m->refused, 1);
    free(b);
    return NULL;
  }
  *b = (block){ address, bytes, t_rng_next(rng) };
  pattern_write(b->address, b->seed, bytes);
  return b;
}

static block* stall_resize(market* m, block* b, t_rng* rng) {
  void* address = NULL;
  const size_t bytes = 1 + random_bytes(rng, m->powers);
  const size_t common = bytes < b->bytes ? bytes : b->bytes;
  pattern_range(b->address, b->seed, 0, b->bytes < 4096 ? b->bytes : 4096, false);
  const tide_status status = tide_cpu_resize(m->caches[0], b->address, bytes, &address);
  if (status != TIDE_OK) {
    T_CHECK(m->is_short);
    return b;
  }
  pattern_range(address, b->seed, 0, (common < 4096 ? common : 4096) / 8 * 8, false);
  *b = (block){ address, bytes, b->seed };
  pattern_write(b->address, b->seed, bytes);
  return b;
}

static void expect_found_here(const market* m, const block* b) {
  const tide_cpu_info info = tide_cpu_find(b->address + b->bytes / 2);
  T_CHECK(info.is_live && info.is_ours);
  T_PTR_EQ(info.address, b->address);
  T_LE(b->bytes, info.bytes);
  T_CHECK(info.cache == m->caches[0] || info.cache == m->caches[m->cache_count - 1]);
}

static void trade_once(market* m, t_rng* rng) {
  _Atomic(block*)* const table = &m->tables[t_rng_below(rng, SLOTS)];
  const uint64_t choice = t_rng_below(rng, 16);
  if (choice < 8) {
    stall_clear(atomic_exchange(table, stall_fill(m, rng)), false);
    return;
  }
  block* b = atomic_exchange(table, NULL);
  if (b == NULL) return;
  expect_found_here(m, b);
  if (choice < 10) stall_clear(atomic_exchange(table, stall_resize(m, b, rng)), false);
  else stall_clear(b, choice == 10);
}

static void* trader_run(void* user) {
  const trader* const t = user;
  t_rng rng = t_rng_new(100 + t->index);
  for (size_t i = 0; i < t_scaled(ROUNDS); i++) trade_once(t->market, &rng);
  return NULL;
}

static void market_open(market* m, const tide_cpu_options* options, size_t cache_count) {
  memset(m, 0, sizeof *m);
  m->cache_count = cache_count;
  m->powers = 17;
  for (size_t i = 0; i < cache_count; i++) m->caches[i] = cache_open(options);
}

// Two rounds of threads, so that the second takes over the thread caches of the first.
static void market_run(market* m) {
  for (size_t round = 0; round < 2; round++) {
    trader traders[THREADS];
    for (size_t i = 0; i < THREADS; i++) traders[i] = (trader){ m, round * THREADS + i };
    on_threads(THREADS, trader_run, traders, sizeof *traders);
  }
}

// A helper may be giving memory back at this moment, which still counts as cached.
static void market_empty(tide_cpu_cache* cache) {
  const uint64_t begin = t_processor_ns();
  do {
    T_OK(tide_cpu_trim(cache, 0));
    T_LT(t_processor_ns() - begin, (uint64_t)20000000000);
  } while (cache_stats(cache).cached_bytes > 0);
}

static void market_close(market* m) {
  for (size_t i = 0; i < m->cache_count; i++) cache_expect_sound(m->caches[i]);
  for (size_t i = 0; i < SLOTS; i++) stall_clear(atomic_exchange(&m->tables[i], NULL), false);
  for (size_t i = 0; i < m->cache_count; i++) {
    const tide_cpu_stats stats = cache_stats(m->caches[i]);
    T_EQ(stats.active.current, 0);
    T_EQ(stats.active_bytes.current, 0);
    T_EQ(stats.active.allocated, stats.active.freed);
    T_EQ(stats.num_double_releases, 0);
    market_empty(m->caches[i]);
    cache_close(m->caches[i]);
  }
}

static market shared;

static const char* const market_caches[] = { "1", "2", NULL };

T_TEST_OVER(test_cpu_threads__blocks_go_from_hand_to_hand, market_caches) {
  market_open(&shared, NULL, (size_t)atoi(t_variant()));
  market_run(&shared);
  market_close(&shared);
}

// The source runs out now and then, and the caches empty each other.
T_TEST(test_cpu_threads__memory_is_short) {
  static source s;
  source_init(&s);
  s.is_bare = true;
  source_set_budget(&s, 12 * MIB);
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.memory = s.memory;
  options.region_bytes = 2 * MIB;
  market_open(&shared, &options, 2);
  shared.is_short = true;
  market_run(&shared);
  T_LT(0, atomic_load(&shared.refused));
  market_close(&shared);
  source_fini(&s);
}

T_TEST(test_cpu_threads__limits_are_tight) {
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.max_bytes = 3 * MIB;
  options.max_cached_bytes = 500000;
  options.max_block_bytes = 100000;
  market_open(&shared, &options, 1);
  shared.is_short = true;
  market_run(&shared);
  T_LE(cache_stats(shared.caches[0]).reserved_bytes.peak, 3 * MIB);
  market_close(&shared);
}

T_TEST(test_cpu_threads__memory_ages_all_the_time) {
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.idle_ns = 100000;
  options.has_helper = true;
  market_open(&shared, &options, 2);
  market_run(&shared);
  market_close(&shared);
}

// ---------------------------------------------------------------------------------------------------
// Emptying against allocating

static void* sweeper_run(void* user) {
  market* const m = user;
  t_rng rng = t_rng_new(55);
  while (!atomic_load(&m->is_over)) {
    tide_cpu_cache* const cache = m->caches[t_rng_below(&rng, m->cache_count)];
    switch (t_rng_below(&rng, 5)) {
      case 0: T_OK(tide_cpu_trim(cache, 0)); break;
      case 1: T_OK(tide_cpu_trim(cache, t_rng_below(&rng, 4 * MIB))); break;
      case 2: T_OK(tide_cpu_poll(cache)); break;
      case 3: T_OK(tide_cpu_set_limits(cache, t_rng_below(&rng, 8 * MIB), TIDE_NO_LIMIT)); break;
      default: (void)cache_stats(cache); break;
    }
  }
  return NULL;
}

T_TEST(test_cpu_threads__emptying_against_allocating) {
  pthread_t sweepers[2];
  market_open(&shared, NULL, 2);
  for (size_t i = 0; i < 2; i++) t_thread_start(&sweepers[i], sweeper_run, &shared);

  market_run(&shared);

  atomic_store(&shared.is_over, true);
  for (size_t i = 0; i < 2; i++) t_thread_join(sweepers[i]);
  market_close(&shared);
}

// Statistics, queries and resets do not disturb threads that work meanwhile.
static void* watcher_run(void* user) {
  market* const m = user;
  t_rng rng = t_rng_new(56);
  while (!atomic_load(&m->is_over)) {
    (void)cache_stats(m->caches[0]);
    (void)tide_cpu_find((const void*)(uintptr_t)(t_rng_next(&rng) >> 16));
    tide_cpu_reset_peaks(m->caches[0]);
    t_sleep_us(100);
  }
  return NULL;
}

T_TEST(test_cpu_threads__looking_disturbs_nobody) {
  pthread_t watcher;
  market_open(&shared, NULL, 1);
  t_thread_start(&watcher, watcher_run, &shared);

  market_run(&shared);

  atomic_store(&shared.is_over, true);
  t_thread_join(watcher);
  market_close(&shared);
}

// Any address may be looked up, even while another thread gives its memory back.
typedef struct horizon {
  _Atomic(uint8_t*) last;  // where a block was, or is
  atomic_bool is_over;
} horizon;

static void* horizon_look(void* user) {
  horizon* const h = user;
  while (!atomic_load(&h->is_over)) {
    const uint8_t* const at = atomic_load_explicit(&h->last, memory_order_relaxed);
    const tide_cpu_info info = tide_cpu_find(at);
    T_CHECK(!info.is_live || info.is_ours);
    T_CHECK(tide_cpu_find(at + 1).address != at + 1);
    T_STATUS(tide_cpu_release((uint8_t*)(uintptr_t)at + 1), TIDE_ERR_ARGUMENT);
  }
  return NULL;
}

T_TEST(test_cpu_threads__looking_at_what_goes_away) {
  static source s;
  horizon h = { NULL, false };
  pthread_t threads[2];
  source_init(&s);
  s.is_bare = true;
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.memory = s.memory;
  options.region_bytes = 2 * MIB;
  options.max_block_bytes = 3 * MIB;
  tide_cpu_cache* const cache = cache_open(&options);
  for (size_t i = 0; i < 2; i++) t_thread_start(&threads[i], horizon_look, &h);

  for (size_t i = 0; i < t_scaled(T_HAS_SANITIZER ? 200 : 600); i++) {
    uint8_t* const address = cache_take(cache, i % 2 == 0 ? MIB : 4 * MIB);
    atomic_store_explicit(&h.last, address, memory_order_relaxed);
    T_OK(tide_cpu_release(address));
    T_OK(tide_cpu_trim(cache, 0));
  }

  atomic_store(&h.is_over, true);
  for (size_t i = 0; i < 2; i++) t_thread_join(threads[i]);
  cache_close(cache);
  source_fini(&s);
}

static const char* const onlooker_caches[] = { "one", "many", NULL };

T_TEST_OVER(test_cpu_threads__looking_against_slabs_that_end, onlooker_caches) {
  enum { COUNT = 40 };
  const bool is_many = strcmp(t_variant(), "many") == 0;
  horizon h = { NULL, false };
  pthread_t thread;
  t_thread_start(&thread, horizon_look, &h);
  tide_cpu_cache* cache = cache_open(NULL);

  for (size_t round = 0; round < t_scaled(is_many ? 100 : 500); round++) {
    uint8_t* blocks[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
      blocks[i] = cache_take(cache, 60000);
      atomic_store_explicit(&h.last, blocks[i], memory_order_relaxed);
    }
    for (size_t i = 0; i < COUNT; i++) T_OK(tide_cpu_release(blocks[i]));
    T_OK(tide_cpu_trim(cache, 0));
    if (is_many) cache_close(cache);
    if (is_many) cache = cache_open(NULL);
  }

  atomic_store(&h.is_over, true);
  t_thread_join(thread);
  cache_close(cache);
}

// ---------------------------------------------------------------------------------------------------
// Releasing against reuse: one thread allocates, another releases, all of one size

typedef struct belt {
  tide_cpu_cache* cache;
  size_t bytes;
  size_t rounds;
  _Atomic(uint8_t*) places[16];
} belt;

static void* belt_give(void* user) {
  belt* const l = user;
  for (size_t i = 0; i < l->rounds; i++) {
    uint8_t* address = NULL;
    while ((address = atomic_exchange(&l->places[i % 16], NULL)) == NULL) (void)sched_yield();
    pattern_range(address, i, 0, l->bytes, false);
    T_OK(tide_cpu_release(address));
  }
  return NULL;
}

static void belt_take(belt* l) {
  for (size_t i = 0; i < l->rounds; i++) {
    uint8_t* const address = cache_take(l->cache, l->bytes);
    pattern_range(address, i, 0, l->bytes, true);
    while (atomic_load(&l->places[i % 16]) != NULL) (void)sched_yield();
    atomic_store(&l->places[i % 16], address);
  }
}

static const char* const belt_sizes[] = { "64", "1000", "30000", "70000", NULL };

T_TEST_OVER(test_cpu_threads__releasing_against_reuse, belt_sizes) {
  belt l = { .cache = cache_open(NULL), .bytes = (size_t)atoi(t_variant()), .rounds = t_scaled(ROUNDS) };
  pthread_t thread;
  if (l.bytes > KIB) l.rounds /= 10;
  t_thread_start(&thread, belt_give, &l);

  belt_take(&l);

  t_thread_join(thread);
  cache_expect_live(l.cache, 0);
  T_LE(cache_stats(l.cache).reserved_bytes.peak, 16 * MIB);  // what the other gave back was used again
  cache_close(l.cache);
}

// ---------------------------------------------------------------------------------------------------
// Two threads release the same block: one release is refused

typedef struct quarrel {
  _Atomic(void*) address;  // NULL: it is over
  atomic_size_t round;
  atomic_size_t done;
  atomic_size_t taken;
  atomic_size_t refused;
} quarrel;

static void quarrel_release(quarrel* q) {
  const tide_status status = tide_cpu_release(atomic_load(&q->address));
  T_CHECK(status == TIDE_OK || status == TIDE_ERR_STATE);
  atomic_fetch_add(status == TIDE_OK ? &q->taken : &q->refused, 1);
}

// Spins before it yields, so that both threads arrive at the same moment.
static void await_count(const atomic_size_t* count, size_t wanted) {
  for (size_t i = 1; atomic_load(count) < wanted; i++) {
    if (i % 4096 == 0) (void)sched_yield();
  }
}

static void* quarrel_run(void* user) {
  quarrel* const q = user;
  for (size_t round = 1;; round++) {
    await_count(&q->round, round);
    if (atomic_load(&q->address) == NULL) return NULL;
    quarrel_release(q);
    atomic_store(&q->done, round);
  }
}

// Returns how many releases were refused. Each round has two. On a busy computer a round may take long, so
// the test ends after some seconds.
static size_t quarrel_over(tide_cpu_cache* cache, size_t bytes, size_t* out_rounds) {
  quarrel q = { .address = NULL };
  const size_t most = t_scaled(T_HAS_SANITIZER ? 2000 : 20000);
  const uint64_t end = t_now_ns() + 10000000000U;
  size_t rounds = 0;
  pthread_t thread;
  t_thread_start(&thread, quarrel_run, &q);
  while (rounds < most && t_now_ns() < end) {
    rounds++;
    atomic_store(&q.address, cache_take(cache, bytes));
    atomic_store(&q.round, rounds);
    for (size_t i = 0; i < rounds % 64; i++) (void)atomic_load(&q.done);
    quarrel_release(&q);
    await_count(&q.done, rounds);
  }
  atomic_store(&q.address, NULL);
  atomic_store(&q.round, rounds + 1);
  t_thread_join(thread);
  T_LT(0, rounds);
  T_EQ(atomic_load(&q.taken) + atomic_load(&q.refused), 2 * rounds);
  T_LE(rounds, atomic_load(&q.taken));
  *out_rounds = rounds;
  return atomic_load(&q.refused);
}

T_TEST(test_cpu_threads__of_two_releases_one_is_refused) {
  tide_cpu_cache* const cache = cache_open(NULL);
  size_t rounds = 0;

  const size_t refused = quarrel_over(cache, 100000, &rounds);

  T_EQ(refused, rounds);
  T_EQ(cache_stats(cache).num_double_releases, refused);
  cache_expect_live(cache, 0);
  cache_close(cache);
}

// Small blocks are released without an atomic exchange, so two releases at the very same moment may both
// succeed. No memory is shared afterwards, and the double count is corrected when the magazines are flushed.
T_TEST(test_cpu_threads__after_two_releases_nobody_shares_a_small_block) {
  enum { COUNT = 3000 };
  static block blocks[COUNT];
  tide_cpu_cache* const cache = cache_open(NULL);
  size_t rounds = 0;
  T_LT(0, quarrel_over(cache, 100, &rounds));
  T_OK(tide_cpu_trim(cache, 0));

  for (size_t i = 0; i < COUNT; i++) blocks[i] = block_take(cache, 100, i);
  cache_expect_live(cache, COUNT);
  for (size_t i = 0; i < COUNT; i++) block_give(&blocks[i]);

  cache_expect_live(cache, 0);
  cache_close(cache);
}

// ---------------------------------------------------------------------------------------------------
// A cache is freed while other threads release its blocks

#define ORPHANS 60

typedef struct heirs {
  block blocks[ORPHANS];
  atomic_size_t next;
  atomic_bool has_begun;
} heirs;

static void* heir_run(void* user) {
  heirs* const h = user;
  while (!atomic_load(&h->has_begun)) (void)sched_yield();
  for (size_t i = 0; (i = atomic_fetch_add(&h->next, 1)) < ORPHANS;) block_give(&h->blocks[i]);
  return NULL;
}

static void heirs_round(const tide_cpu_options* options, t_rng* rng) {
  static heirs h;
  pthread_t threads[2];
  uint64_t orphans = UINT64_MAX;
  tide_cpu_cache* const cache = cache_open(options);
  atomic_store(&h.next, 0);
  atomic_store(&h.has_begun, false);
  for (size_t i = 0; i < ORPHANS; i++) h.blocks[i] = block_take(cache, 1 + random_bytes(rng, 17), i);
  for (size_t i = 0; i < 2; i++) t_thread_start(&threads[i], heir_run, &h);
  cache_leave_idle(cache, 5000, 4);

  atomic_store(&h.has_begun, true);
  if (t_rng_below(rng, 2) == 0) t_sleep_us(t_rng_below(rng, 100));
  tide_cpu_free(cache, &orphans);

  T_LE(orphans, ORPHANS);
  for (size_t i = 0; i < 2; i++) t_thread_join(threads[i]);
}

static const char* const heir_sources[] = { "system", "source", "helper", NULL };

T_TEST_OVER(test_cpu_threads__freeing_a_cache_against_its_orphans, heir_sources) {
  static source s;
  t_rng rng = t_rng_new(9);
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  source_init(&s);
  s.is_bare = true;
  if (strcmp(t_variant(), "source") == 0) options.memory = s.memory;
  options.region_bytes = 2 * MIB;
  if (strcmp(t_variant(), "helper") == 0) {
    options.has_helper = true;
    options.idle_ns = 10000;
  }

  for (size_t i = 0; i < t_scaled(T_HAS_SANITIZER ? 40 : 150); i++) heirs_round(&options, &rng);

  source_fini(&s);
}

// ---------------------------------------------------------------------------------------------------
// Threads end while their blocks live on

typedef struct parent {
  tide_cpu_cache* cache;
  uint64_t index;
  block blocks[20];
} parent;

static void* parent_run(void* user) {
  parent* const p = user;
  t_rng rng = t_rng_new(200 + p->index);
  for (size_t i = 0; i < 20; i++)
    p->blocks[i] = block_take(p->cache, 1 + random_bytes(&rng, 17), i + p->index);
  cache_leave_idle(p->cache, 1000, 10);
  return NULL;
}

static void* guardian_run(void* user) {
  parent* const p = user;
  for (size_t i = 0; i < 10; i++) block_give(&p->blocks[i]);
  return NULL;
}

T_TEST(test_cpu_threads__threads_end_while_their_blocks_live_on) {
  enum { GENERATIONS = 12 };
  static parent parents[GENERATIONS][THREADS];
  tide_cpu_cache* const cache = cache_open(NULL);

  for (size_t g = 0; g < GENERATIONS; g++) {
    for (size_t i = 0; i < THREADS; i++) {
      parents[g][i] = (parent){ .cache = cache, .index = g * THREADS + i };
    }
    on_threads(THREADS, parent_run, parents[g], sizeof parents[g][0]);
    on_threads(THREADS, guardian_run, parents[g], sizeof parents[g][0]);
  }

  cache_expect_live(cache, 10 * GENERATIONS * THREADS);
  T_LE(cache_stats(cache).threads, 2 * THREADS + 1);
  for (size_t g = 0; g < GENERATIONS; g++) {
    for (size_t i = 0; i < THREADS; i++) {
      for (size_t k = 10; k < 20; k++) block_give(&parents[g][i].blocks[k]);
    }
  }
  cache_expect_live(cache, 0);
  T_OK(tide_cpu_trim(cache, 0));
  T_EQ(cache_stats(cache).reserved_bytes.current, 0);
  cache_close(cache);
}

// Threads that live only for a few calls, several at a time, while a cache comes and goes.
static void* brief_run(void* user) {
  tide_cpu_cache* const cache = user;
  const block b = block_take(cache, 3000, 1);
  const block c = block_take(cache, 70000, 2);
  block_give(&b);
  block_give(&c);
  return NULL;
}

T_TEST(test_cpu_threads__threads_and_caches_come_and_go) {
  for (size_t round = 0; round < t_scaled(T_HAS_SANITIZER ? 20 : 60); round++) {
    tide_cpu_cache* const cache = cache_open(NULL);
    on_threads(THREADS, brief_run, cache, 0);
    cache_expect_live(cache, 0);
    cache_close(cache);
  }
}

// A thread outlives the caches it has used, and goes on with others.
typedef struct nomad {
  _Atomic(tide_cpu_cache*) cache;
  atomic_size_t visits;
} nomad;

static void* nomad_run(void* user) {
  nomad* const n = user;
  for (size_t i = 0; i < 40; i++) {
    tide_cpu_cache* cache = NULL;
    while ((cache = atomic_exchange(&n->cache, NULL)) == NULL) (void)sched_yield();
    cache_leave_idle(cache, 2000 + i * 3000, 5);
    atomic_fetch_add(&n->visits, 1);
  }
  return NULL;
}

T_TEST(test_cpu_threads__a_thread_outlives_its_caches) {
  nomad n = { NULL, 0 };
  pthread_t thread;
  t_thread_start(&thread, nomad_run, &n);

  for (size_t i = 0; i < 40; i++) {
    tide_cpu_cache* const cache = cache_open(NULL);
    atomic_store(&n.cache, cache);
    while (atomic_load(&n.visits) <= i) (void)sched_yield();
    cache_close(cache);
  }

  t_thread_join(thread);
}
