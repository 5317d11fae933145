// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory runs out, because of a limit or because the source has no more. The cache tries every way to free
// memory, in order; each test has a request that only one of them can serve. When none is left, the request
// fails with its size, and the cache stays usable.
#define T_THREADS
#include <sys/resource.h>

#include "blocks.h"

// A source with a budget, for all caches of a test.
typedef struct shortage {
  source source;
  tide_cpu_options options;
} shortage;

static void shortage_init(shortage* s, size_t budget) {
  source_init(&s->source);
  source_set_budget(&s->source, budget);
  s->options = (tide_cpu_options)TIDE_CPU_OPTIONS_INIT;
  s->options.memory = s->source.memory;
  s->options.region_bytes = 2 * MIB;
}

static tide_cpu_cache* limited_open(uint64_t max_bytes, bool (*on_pressure)(void*, uint64_t), void* user) {
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.max_bytes = max_bytes;
  options.on_pressure = on_pressure;
  options.user = user;
  return cache_open(&options);
}

static void expect_no_memory(tide_cpu_cache* cache, size_t bytes) {
  char number[32];
  cache_expect_refused(cache, bytes, TIDE_ERR_NO_MEMORY);
  (void)snprintf(number, sizeof number, "%zu", bytes);
  T_STR_HAS(tide_last_error()->text, number);
  cache_expect_sound(cache);
}

// ---------------------------------------------------------------------------------------------------
// Idle memory of the cache, in any form, serves a request

static void leave_small_idle(void* cache) {
  enum { COUNT = 3000 };
  static void* blocks[COUNT];
  for (size_t i = 0; i < COUNT; i++) blocks[i] = cache_take(cache, 4000);
  for (size_t i = 0; i < COUNT; i++) T_OK(tide_cpu_release(blocks[i]));
}

static void leave_large_idle(void* cache) { cache_leave_idle(cache, MIB, 12); }
static void leave_larger_idle(void* cache) { cache_leave_idle(cache, 3 * MIB, 4); }
static void leave_idle_there(void* cache) { on_other_thread(leave_larger_idle, cache); }

static const struct {
  const char* name;
  void (*leave)(void* cache);
} idle_kinds[] = { { "of other sizes", leave_large_idle },
                   { "of small blocks", leave_small_idle },
                   { "of an ended thread", leave_idle_there } };
static const char* const idle_names[] = { "of other sizes", "of small blocks", "of an ended thread", NULL };

T_TEST_OVER(test_cpu_pressure__idle_memory_is_used, idle_names) {
  size_t kind = 0;
  while (strcmp(idle_kinds[kind].name, t_variant()) != 0) kind++;
  tide_cpu_cache* const cache = limited_open(16 * MIB, NULL, NULL);
  idle_kinds[kind].leave(cache);

  void* const address = cache_take(cache, 15 * MIB);

  memset(address, 1, 15 * MIB);
  T_LE(cache_stats(cache).reserved_bytes.peak, 16 * MIB);
  T_OK(tide_cpu_release(address));
  cache_close(cache);
}

// A large idle block makes room for small ones.
T_TEST(test_cpu_pressure__idle_memory_of_large_blocks_is_used) {
  enum { COUNT = 400 };
  static block blocks[COUNT];
  tide_cpu_cache* const cache = limited_open(8 * MIB, NULL, NULL);
  cache_leave_idle(cache, 8 * MIB, 1);

  for (size_t i = 0; i < COUNT; i++) blocks[i] = block_take(cache, 1000 + i * 20, i);
  for (size_t i = 0; i < COUNT; i++) block_give(&blocks[i]);

  T_LE(cache_stats(cache).reserved_bytes.peak, 8 * MIB);
  cache_close(cache);
}

T_TEST(test_cpu_pressure__a_source_that_has_no_more_is_asked_again) {
  shortage s;
  shortage_init(&s, 24 * MIB);
  tide_cpu_cache* const cache = cache_open(&s.options);
  cache_leave_idle(cache, 6 * MIB, 3);

  void* const address = cache_take(cache, 20 * MIB);

  T_LE(1, cache_stats(cache).num_alloc_retries);
  T_EQ(cache_stats(cache).num_ooms, 0);
  T_OK(tide_cpu_release(address));
  cache_close(cache);
  source_fini(&s.source);
}

typedef struct neighbour {
  tide_cpu_cache* cache;
  atomic_bool has_left;
  atomic_bool is_over;
} neighbour;

static void* neighbour_run(void* user) {
  neighbour* const n = user;
  leave_larger_idle(n->cache);
  atomic_store(&n->has_left, true);
  while (!atomic_load(&n->is_over)) t_sleep_us(1000);
  const block again = block_take(n->cache, MIB, 5);  // the thread can go on
  block_give(&again);
  return NULL;
}

T_TEST(test_cpu_pressure__idle_memory_of_a_living_thread_is_used) {
  neighbour n = { .cache = limited_open(14 * MIB, NULL, NULL) };
  pthread_t thread;
  t_thread_start(&thread, neighbour_run, &n);
  while (!atomic_load(&n.has_left)) t_sleep_us(1000);

  void* const address = cache_take(n.cache, 12 * MIB);

  T_LE(cache_stats(n.cache).reserved_bytes.peak, 14 * MIB);
  T_OK(tide_cpu_release(address));
  atomic_store(&n.is_over, true);
  t_thread_join(thread);
  cache_close(n.cache);
}

// ---------------------------------------------------------------------------------------------------
// The program itself

typedef struct hoard {
  block blocks[2];
  size_t count;
  size_t calls;
  uint64_t wanted;
  tide_cpu_cache* other;  // what the callback looks at while it runs
} hoard;

static bool hoard_relieve(void* user, uint64_t bytes) {
  hoard* const h = user;
  h->calls++;
  h->wanted = bytes;
  if (h->other != NULL) T_LE(1, cache_stats(h->other).cached_bytes);
  if (h->count == 0) return false;
  block_give(&h->blocks[--h->count]);
  return true;
}

T_TEST(test_cpu_pressure__the_program_gives_something_up) {
  hoard h = { .count = 2 };
  tide_cpu_cache* const cache = limited_open(16 * MIB, hoard_relieve, &h);
  for (size_t i = 0; i < 2; i++) h.blocks[i] = block_take(cache, 6 * MIB, i);

  void* const address = cache_take(cache, 8 * MIB);

  T_LE(1, h.calls);
  T_LE(8 * MIB, h.wanted);
  T_LE(h.count, 1);
  T_LE(1, cache_stats(cache).num_alloc_retries);
  T_OK(tide_cpu_release(address));
  while (h.count > 0) block_give(&h.blocks[--h.count]);
  cache_close(cache);
}

T_TEST(test_cpu_pressure__the_program_is_not_asked_while_idle_memory_does) {
  hoard h = { .count = 1 };
  tide_cpu_cache* const cache = limited_open(16 * MIB, hoard_relieve, &h);
  h.blocks[0] = block_take(cache, 2 * MIB, 0);
  leave_idle_there(cache);
  cache_leave_idle(cache, 100000, 5);

  void* const address = cache_take(cache, 13 * MIB);

  T_EQ(h.calls, 0);
  T_OK(tide_cpu_release(address));
  block_give(&h.blocks[0]);
  cache_close(cache);
}

// A program that has nothing to give up is not asked again and again.
T_TEST(test_cpu_pressure__a_program_that_gives_nothing_up) {
  hoard h = { .count = 0 };
  tide_cpu_cache* const cache = limited_open(4 * MIB, hoard_relieve, &h);

  expect_no_memory(cache, 5 * MIB);

  T_LE(1, h.calls);
  T_LE(h.calls, 3);
  cache_close(cache);
}

// Nor is one that claims to have released something, but did not.
static bool claim_relief(void* user, uint64_t bytes) {
  (void)bytes;
  atomic_fetch_add((atomic_size_t*)user, 1);
  return true;
}

T_TEST(test_cpu_pressure__a_program_that_only_claims) {
  atomic_size_t calls = 0;
  tide_cpu_cache* const cache = limited_open(4 * MIB, claim_relief, &calls);

  expect_no_memory(cache, 5 * MIB);

  T_LE(1, atomic_load(&calls));
  cache_close(cache);
}

// No lock is held meanwhile: the callback may use the same cache, also on another thread.
static void use_cache(void* cache) { cache_leave_idle(cache, 1000, 3); }

static bool use_everything(void* user, uint64_t bytes) {
  tide_cpu_cache* const cache = *(tide_cpu_cache**)user;
  (void)bytes;
  cache_leave_idle(cache, 2000, 3);
  on_other_thread(use_cache, cache);
  T_OK(tide_cpu_trim(cache, 0));
  T_OK(tide_cpu_poll(cache));
  tide_cpu_cache* const fresh = cache_open(NULL);
  cache_leave_idle(fresh, 5000, 3);
  cache_close(fresh);
  return false;
}

T_TEST(test_cpu_pressure__the_callback_may_call_everything) {
  tide_cpu_cache* cache = NULL;
  cache = limited_open(8 * MIB, use_everything, &cache);

  expect_no_memory(cache, 9 * MIB);

  cache_leave_idle(cache, 3 * MIB, 2);
  cache_close(cache);
}

// ---------------------------------------------------------------------------------------------------
// Other caches

// The program is asked before other caches are emptied.
T_TEST(test_cpu_pressure__the_program_comes_before_other_caches) {
  shortage s;
  hoard h = { .count = 1 };
  shortage_init(&s, 40 * MIB);
  tide_cpu_cache* const other = cache_open(&s.options);
  s.options.on_pressure = hoard_relieve;
  s.options.user = &h;
  tide_cpu_cache* const cache = cache_open(&s.options);
  cache_leave_idle(other, 8 * MIB, 2);
  h.blocks[0] = block_take(cache, 14 * MIB, 0);
  h.other = other;
  const uint64_t cached = cache_stats(other).cached_bytes;

  void* const address = cache_take(cache, 14 * MIB);

  T_LE(1, h.calls);
  T_EQ(h.count, 0);
  T_EQ(cache_stats(other).cached_bytes, cached);
  T_OK(tide_cpu_release(address));
  cache_close(cache);
  cache_close(other);
  source_fini(&s.source);
}

// Younger caches give too, and one that has nothing idle loses nothing.
T_TEST(test_cpu_pressure__the_oldest_cache_gives_first) {
  shortage s;
  shortage_init(&s, 52 * MIB);
  tide_cpu_cache* const oldest = cache_open(&s.options);
  tide_cpu_cache* const cache = cache_open(&s.options);
  tide_cpu_cache* const busy = cache_open(&s.options);
  tide_cpu_cache* const youngest = cache_open(&s.options);
  const block live = block_take(busy, MIB, 3);
  cache_leave_idle(youngest, 16 * MIB, 1);
  cache_leave_idle(oldest, 16 * MIB, 1);
  const uint64_t kept = cache_stats(youngest).cached_bytes;

  void* const first = cache_take(cache, 22 * MIB);

  T_EQ(cache_stats(oldest).cached_bytes, 0);
  T_EQ(cache_stats(youngest).cached_bytes, kept);
  void* const second = cache_take(cache, 22 * MIB);
  T_EQ(cache_stats(youngest).cached_bytes, 0);
  expect_no_memory(cache, 22 * MIB);
  T_OK(tide_cpu_release(first));
  T_OK(tide_cpu_release(second));
  cache_close(cache);
  block_give(&live);
  cache_close(busy);
  cache_close(youngest);
  cache_close(oldest);
  source_fini(&s.source);
}

// ---------------------------------------------------------------------------------------------------
// Nothing helps

T_TEST(test_cpu_pressure__a_refused_request_changes_nothing) {
  tide_cpu_cache* const cache = limited_open(16 * MIB, NULL, NULL);
  block blocks[20];
  for (size_t i = 0; i < 20; i++) blocks[i] = block_take(cache, 100 + i * i * 1000, i);

  for (size_t i = 0; i < 10; i++) expect_no_memory(cache, 16 * MIB + i * MIB);

  const tide_cpu_stats stats = cache_stats(cache);
  T_EQ(stats.num_ooms, 10);
  T_EQ(stats.active.current, 20);
  T_EQ(stats.active.allocated, 20);
  for (size_t i = 0; i < 20; i++) block_give(&blocks[i]);
  void* const address = cache_take(cache, 16 * MIB);
  T_OK(tide_cpu_release(address));
  cache_close(cache);
}

T_TEST(test_cpu_pressure__requests_of_every_kind_are_refused) {
  tide_cpu_cache* const cache = limited_open(4 * MIB, NULL, NULL);
  const tide_memory memory = tide_cpu_memory(cache);
  const block b = block_take(cache, MIB, 1);
  void* address = &address;

  EXPECT_REFUSED(tide_cpu_alloc_zeros(cache, 8 * MIB, &address), address, TIDE_ERR_NO_MEMORY);
  EXPECT_REFUSED(tide_cpu_alloc_aligned(cache, 8 * MIB, 4096, &address), address, TIDE_ERR_NO_MEMORY);
  EXPECT_REFUSED(tide_cpu_resize(cache, b.address, 8 * MIB, &address), address, TIDE_ERR_NO_MEMORY);
  EXPECT_REFUSED(memory.alloc(&memory, 8 * MIB, 64, &address), address, TIDE_ERR_NO_MEMORY);

  block_give(&b);
  cache_close(cache);
}

// The largest allowed size is refused for lack of memory, not for its size.
T_TEST(test_cpu_pressure__the_largest_size_there_is) {
  tide_cpu_cache* const cache = limited_open(64 * MIB, NULL, NULL);

  expect_no_memory(cache, TIDE_CPU_MAX_BYTES);
  cache_expect_refused(cache, TIDE_CPU_MAX_BYTES + 1, TIDE_ERR_ARGUMENT);

  cache_close(cache);
}

// At least three quarters of max_bytes can be used in blocks of one size.
T_TEST(test_cpu_pressure__the_limit_can_be_used_up) {
  static const size_t sizes[] = { 64, 1000, 5000, 32768, 100000, 1000000 };
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    tide_cpu_cache* const cache = limited_open(8 * MIB, NULL, NULL);
    void** const blocks = calloc(8 * MIB / sizes[k] + 1, sizeof *blocks);
    T_CHECK(blocks != NULL);
    size_t count = 0;
    while (tide_cpu_alloc(cache, sizes[k], &blocks[count]) == TIDE_OK) count++;
    T_LE(6 * MIB, count * sizes[k]);
    while (count > 0) T_OK(tide_cpu_release(blocks[--count]));
    free(blocks);
    cache_close(cache);
  }
}

// ---------------------------------------------------------------------------------------------------
// Few addresses

T_TEST(test_cpu_pressure__few_addresses_are_enough) {
  if (T_HAS_SANITIZER) t_skip("a sanitizer needs more addresses than there are then");
  const size_t most = process_bytes(false) + 200 * MIB;
  const struct rlimit limit = { most, most };
  T_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  tide_cpu_cache* const cache = cache_open(NULL);

  const block small = block_take(cache, 1000, 1);
  const block large = block_take(cache, 20 * MIB, 2);
  expect_no_memory(cache, 300 * MIB);
  const block more = block_take(cache, 20 * MIB, 3);

  block_give(&small);
  block_give(&large);
  block_give(&more);
  cache_close(cache);
}
