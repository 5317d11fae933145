// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Scopes of a thread: nesting, which source serves a request, and memory that outlives its scope, its
// thread and its cache.
#define T_THREADS
#include "tensor/tensors.h"

#define EXTRA_BYTES (TIDE_TENSOR_FRONT_BYTES + TIDE_TENSOR_GUARD_BYTES)

// The cache that has the memory, or NULL.
static const tide_cpu_cache* cache_of(const void* address) { return tide_cpu_find(address).cache; }

static tide_profile* profile_open_on(const tide_memory* memory) {
  tide_profile_options options = TIDE_PROFILE_OPTIONS_INIT;
  options.memory = options.fallback = *memory;
  return profile_open(&options);
}

// ---------------------------------------------------------------------------------------------------
// Nesting

T_TEST(test_tensor__at_first_there_is_none) {
  T_PTR_EQ(tide_tensor_cache(), NULL);
  T_EQ(tide_tensor_depth(), 0);
  T_STATUS(tide_tensor_leave(NULL), TIDE_ERR_STATE);
  T_EQ(tide_tensor_depth(), 0);
}

T_TEST(test_tensor__the_innermost_counts) {
  tide_cpu_cache* const one = cache_open(NULL);
  tide_cpu_cache* const two = cache_open(NULL);

  T_OK(tide_tensor_enter(one));
  T_PTR_EQ(tide_tensor_cache(), one);
  T_OK(tide_tensor_enter(two));
  T_PTR_EQ(tide_tensor_cache(), two);
  uint8_t* const inner = tensor_take(100);
  T_PTR_EQ(cache_of(inner), two);
  T_OK(tide_tensor_enter(one));
  T_EQ(tide_tensor_depth(), 3);
  T_PTR_EQ(tide_tensor_cache(), one);
  T_OK(tide_tensor_leave(one));
  T_OK(tide_tensor_leave(two));
  T_PTR_EQ(tide_tensor_cache(), one);
  uint8_t* const outer = tensor_take(100);
  T_PTR_EQ(cache_of(outer), one);
  T_OK(tide_tensor_leave(one));
  T_PTR_EQ(tide_tensor_cache(), NULL);
  T_EQ(tide_tensor_depth(), 0);

  T_OK(tide_tensor_release(inner));
  T_OK(tide_tensor_release(outer));
  cache_close(one);
  cache_close(two);
}

CACHE_TEST(test_tensor__null_puts_the_cache_out_of_force) {
  T_OK(tide_tensor_enter(cache));

  T_OK(tide_tensor_enter(NULL));
  T_PTR_EQ(tide_tensor_cache(), NULL);
  T_EQ(tide_tensor_depth(), 2);
  uint8_t* const address = tensor_take(100);
  T_CHECK(!tide_cpu_find(address).is_ours);
  T_OK(tide_tensor_release(address));
  T_OK(tide_tensor_leave(NULL));

  T_PTR_EQ(tide_tensor_cache(), cache);
  T_EQ(cache_stats(cache).active.allocated, 0);
  T_OK(tide_tensor_leave(cache));
}

T_TEST(test_tensor__leaving_names_what_was_entered_last) {
  tide_cpu_cache* const one = cache_open(NULL);
  tide_cpu_cache* const two = cache_open(NULL);
  T_OK(tide_tensor_enter(one));
  T_OK(tide_tensor_enter(two));

  T_STATUS(tide_tensor_leave(one), TIDE_ERR_STATE);
  T_STATUS(tide_tensor_leave(NULL), TIDE_ERR_STATE);
  T_EQ(tide_tensor_depth(), 2);
  T_PTR_EQ(tide_tensor_cache(), two);

  T_OK(tide_tensor_leave(two));
  T_STATUS(tide_tensor_leave(two), TIDE_ERR_STATE);
  T_OK(tide_tensor_leave(one));
  T_STATUS(tide_tensor_leave(one), TIDE_ERR_STATE);
  cache_close(one);
  cache_close(two);
}

CACHE_TEST(test_tensor__the_depth_has_a_limit) {
  for (uint32_t i = 0; i < TIDE_TENSOR_DEPTH; i++) T_OK(tide_tensor_enter(i % 3 == 2 ? NULL : cache));

  T_STATUS(tide_tensor_enter(cache), TIDE_ERR_LIMIT);
  T_STATUS(tide_tensor_enter(NULL), TIDE_ERR_LIMIT);

  T_EQ(tide_tensor_depth(), TIDE_TENSOR_DEPTH);
  for (uint32_t i = TIDE_TENSOR_DEPTH; i-- > 0;) T_OK(tide_tensor_leave(i % 3 == 2 ? NULL : cache));
  T_EQ(tide_tensor_depth(), 0);
}

static void expect_no_scope(void* user) {
  (void)user;
  T_PTR_EQ(tide_tensor_cache(), NULL);
  T_EQ(tide_tensor_depth(), 0);
  uint8_t* const address = tensor_take(100);
  T_CHECK(!tide_cpu_find(address).is_ours);
  T_OK(tide_tensor_release(address));
}

CACHE_TEST(test_tensor__a_scope_is_of_one_thread) {
  T_OK(tide_tensor_enter(cache));

  on_other_thread(expect_no_scope, NULL);

  T_OK(tide_tensor_leave(cache));
}

// ---------------------------------------------------------------------------------------------------
// Memory

// Every byte can be written, and the guard behind it can be read, whoever serves.
static void expect_usable(size_t bytes) {
  uint8_t* const address = tensor_take(bytes);
  uint64_t sum = 0;
  pattern_range(address, bytes, 0, bytes, true);
  for (size_t i = 0; i < TIDE_TENSOR_GUARD_BYTES; i++) sum += address[bytes + i];
  T_LE(sum, 255 * TIDE_TENSOR_GUARD_BYTES);
  pattern_range(address, bytes, 0, bytes, false);
  T_OK(tide_tensor_release(address));
}

static const char* const tensor_servers[] = { "cache", "record", "replay", "raw", NULL };

T_TEST_OVER(test_tensor__the_guard_can_be_read, tensor_servers) {
  static const size_t sizes[] = { 1, 15, 16, 48, 49, 64, 1000, 4016, 4017, 32688, 32689, 100000, 3 * MIB };
  const bool replays = strcmp(t_variant(), "replay") == 0;
  tide_cpu_cache* const cache = cache_open(NULL);
  tide_profile* const profile = profile_open(NULL);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    if (replays) profile_record_one(profile, sizes[i]);
    if (strcmp(t_variant(), "cache") == 0) T_OK(tide_tensor_enter(cache));
    if (strcmp(t_variant(), "record") == 0) T_OK(tide_profile_begin(profile, TIDE_PROFILE_RECORD, 0));
    if (replays) T_OK(tide_profile_begin(profile, TIDE_PROFILE_REPLAY, 0));
    expect_usable(sizes[i]);
    if (tide_tensor_depth() > 0) T_OK(tide_tensor_leave(cache));
    if (tide_profile_innermost() != NULL) T_OK(tide_profile_end(profile, NULL));
  }
  tide_profile_free(profile);
  cache_close(cache);
}

CACHE_TEST(test_tensor__nothing_is_null) {
  void* address = &address;

  T_OK(tide_tensor_alloc(0, &address));
  T_PTR_EQ(address, NULL);
  T_OK(tide_tensor_enter(cache));
  address = &address;
  T_OK(tide_tensor_alloc(0, &address));
  T_PTR_EQ(address, NULL);
  T_OK(tide_tensor_release(NULL));
  T_OK(tide_tensor_leave(cache));
  T_OK(tide_tensor_release(NULL));

  T_EQ(cache_stats(cache).active.allocated, 0);
}

CACHE_TEST(test_tensor__sizes_near_the_end_of_numbers) {
  static const size_t sizes[] = { SIZE_MAX,      SIZE_MAX - 1,  SIZE_MAX - 15, SIZE_MAX - 16, SIZE_MAX - 63,
                                  SIZE_MAX - 64, SIZE_MAX - 79, SIZE_MAX - 80, SIZE_MAX - 81 };
  for (size_t round = 0; round < 2; round++) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      void* address = &address;
      T_STATUS(tide_tensor_alloc(sizes[i], &address), TIDE_ERR_ARGUMENT);
      T_PTR_EQ(address, NULL);
    }
    if (round == 0) T_OK(tide_tensor_enter(cache));
  }
  T_STATUS(tide_tensor_alloc(100, NULL), TIDE_ERR_ARGUMENT);
  T_OK(tide_tensor_leave(cache));
}

T_TEST(test_tensor__want_of_memory_is_that_of_the_cache) {
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.max_bytes = 4 * MIB;
  tide_cpu_cache* const cache = cache_open(&options);
  void* address = &address;
  T_OK(tide_tensor_enter(cache));

  T_STATUS(tide_tensor_alloc(8 * MIB, &address), TIDE_ERR_NO_MEMORY);

  T_PTR_EQ(address, NULL);
  expect_usable(MIB);
  T_OK(tide_tensor_leave(cache));
  cache_close(cache);
}

// The fill of a cache holds for what is handed out of it.
T_TEST(test_tensor__the_fill_of_the_cache_holds) {
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.fill = TIDE_FILL_ZEROS;
  tide_cpu_cache* const cache = cache_open(&options);
  T_OK(tide_tensor_enter(cache));

  for (size_t life = 0; life < 3; life++) {
    uint8_t* const address = tensor_take(10001);
    expect_zeros(address, 10001);
    memset(address, 0x77, 10001);
    T_OK(tide_tensor_release(address));
  }

  T_OK(tide_tensor_leave(cache));
  cache_close(cache);
}

T_TEST(test_tensor__raw_memory_is_filled_as_asked) {
  T_OK(tide_tensor_set_raw(TIDE_RAW_ZEROS));
  for (size_t life = 0; life < 3; life++) {
    uint8_t* const address = tensor_take(10001);
    expect_zeros(address, 10001);
    memset(address, 0x77, 10001);
    T_OK(tide_tensor_release(address));
  }
  T_OK(tide_tensor_set_raw(TIDE_RAW_JUNK | TIDE_RAW_HUGE_PAGES));
  for (size_t life = 0; life < 3; life++) {
    uint8_t* const address = tensor_take(2 * MIB + 3);
    expect_junk(address, 2 * MIB + 3);
    memset(address, 0x77, 2 * MIB + 3);
    T_OK(tide_tensor_release(address));
  }
  T_OK(tide_tensor_set_raw(0));
  expect_usable(1000);
}

T_TEST(test_tensor__raw_flags_without_sense) {
  T_STATUS(tide_tensor_set_raw(TIDE_RAW_ZEROS | TIDE_RAW_JUNK), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_tensor_set_raw(8), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_tensor_set_raw(UINT32_MAX), TIDE_ERR_ARGUMENT);
  expect_usable(1000);
}

// ---------------------------------------------------------------------------------------------------
// Who is asked: cache, replay, recording, raw

CACHE_TEST(test_tensor__a_cache_comes_before_a_replay) {
  tide_profile* const profile = profile_open(NULL);
  tide_profile_report report = TIDE_PROFILE_REPORT_INIT;
  profile_record_one(profile, 1000);

  T_OK(tide_profile_begin(profile, TIDE_PROFILE_REPLAY, 0));
  T_OK(tide_tensor_enter(cache));
  uint8_t* const cached = tensor_take(1000);
  T_PTR_EQ(cache_of(cached), cache);
  T_CHECK(!tide_profile_owns(profile, cached));
  T_OK(tide_tensor_leave(cache));
  uint8_t* const replayed = tensor_take(1000);
  T_CHECK(tide_profile_owns(profile, replayed));
  T_OK(tide_tensor_release(replayed));
  T_OK(tide_tensor_release(cached));
  T_OK(tide_profile_end(profile, &report));

  T_EQ(report.requests, 1);
  T_EQ(report.hits, 1);
  T_CHECK(report.is_same);
  tide_profile_free(profile);
}

CACHE_TEST(test_tensor__without_a_cache_a_replay_serves) {
  tide_profile* const profile = profile_open(NULL);
  profile_record_one(profile, 1000);
  T_OK(tide_tensor_enter(cache));
  T_OK(tide_profile_begin(profile, TIDE_PROFILE_REPLAY, 0));

  T_OK(tide_tensor_enter(NULL));
  uint8_t* const address = tensor_take(1000);
  T_CHECK(tide_profile_owns(profile, address));
  T_OK(tide_tensor_release(address));
  T_OK(tide_tensor_leave(NULL));

  T_OK(tide_profile_end(profile, NULL));
  T_OK(tide_tensor_leave(cache));
  tide_profile_free(profile);
}

T_TEST(test_tensor__the_innermost_run_serves) {
  table outer_memory;
  table inner_memory;
  table_init(&outer_memory);
  table_init(&inner_memory);
  tide_profile* const outer = profile_open_on(&outer_memory.memory);
  tide_profile* const inner = profile_open_on(&inner_memory.memory);
  profile_record_one(outer, 1000);
  T_OK(tide_profile_begin(outer, TIDE_PROFILE_VALIDATE, 0));
  T_OK(tide_profile_begin(inner, TIDE_PROFILE_RECORD, 0));

  uint8_t* const first = tensor_take(1000);
  T_EQ(inner_memory.count, 1);
  T_EQ(outer_memory.count, 0);
  T_OK(tide_profile_end(inner, NULL));
  uint8_t* const second = tensor_take(1000);
  T_EQ(outer_memory.count, 1);
  T_OK(tide_tensor_release(first));
  T_OK(tide_tensor_release(second));
  T_OK(tide_profile_end(outer, NULL));

  tide_profile_free(inner);
  tide_profile_free(outer);
  table_fini(&outer_memory);
  table_fini(&inner_memory);
}

CACHE_TEST(test_tensor__with_neither_the_computer_serves) {
  tide_profile* const profile = profile_open(NULL);

  uint8_t* const address = tensor_take(1000);

  T_CHECK(!tide_cpu_find(address).is_ours);
  T_CHECK(!tide_profile_owns(profile, address));
  T_EQ(cache_stats(cache).active.allocated, 0);
  T_OK(tide_tensor_release(address));
  tide_profile_free(profile);
}

// ---------------------------------------------------------------------------------------------------
// What follows from that order

// (a) A profile sees sizes with the bytes in front and behind.
T_TEST(test_tensor__a_recorded_size_has_the_guards) {
  tide_profile* const profile = profile_open(NULL);
  tide_profile_plan* plan = NULL;
  profile_record_one(profile, 23 * 23 * 4);

  T_OK(tide_profile_get_plan(profile, 0, &plan));

  T_EQ(tide_profile_plan_describe(plan).count, 1);
  T_EQ(tide_profile_plan_request(plan, 0).bytes, 23 * 23 * 4 + EXTRA_BYTES);
  tide_profile_plan_free(plan);
  tide_profile_free(profile);
}

// (b) Nothing is recorded while a cache is in force; the plan is empty, and an empty plan does no harm.
CACHE_TEST(test_tensor__nothing_is_recorded_under_a_cache) {
  tide_profile* const profile = profile_open(NULL);
  tide_profile_report report = TIDE_PROFILE_REPORT_INIT;
  T_OK(tide_tensor_enter(cache));
  T_OK(tide_profile_begin(profile, TIDE_PROFILE_RECORD, 0));
  uint8_t* const first = tensor_take(1000);
  T_OK(tide_tensor_release(first));
  T_OK(tide_profile_end(profile, &report));
  T_OK(tide_tensor_leave(cache));
  T_EQ(report.requests, 0);

  T_OK(tide_profile_begin(profile, TIDE_PROFILE_REPLAY, 0));
  expect_usable(1000);
  T_OK(tide_profile_end(profile, &report));

  T_EQ(report.surplus, 1);
  tide_profile_free(profile);
}

// (c) A release is done when it is done: nothing is noted about the address afterwards, when it may be
// another's already.
typedef struct mover {
  tide_cpu_cache* cache;  // NULL: raw memory
  size_t rounds;
} mover;

static void* mover_run(void* user) {
  const mover* const m = user;
  for (size_t i = 0; i < m->rounds; i++) {
    T_OK(tide_tensor_enter(m->cache));
    uint8_t* const one = tensor_take(4096);
    uint8_t* const two = tensor_take(100 + i % 50 * 1000);
    memset(one, 1, 4096);
    memset(two, 2, 100);
    T_OK(tide_tensor_leave(m->cache));
    T_PTR_EQ(cache_of(one), m->cache);
    T_OK(tide_tensor_release(one));
    T_OK(tide_tensor_release(two));
  }
  return NULL;
}

CACHE_TEST(test_tensor__releases_outside_disturb_nobody) {
  pthread_t threads[3];
  mover movers[3];
  for (size_t i = 0; i < 3; i++) {
    movers[i] = (mover){ i == 0 ? NULL : cache, t_scaled(T_HAS_SANITIZER ? 300 : 2000) };
    t_thread_start(&threads[i], mover_run, &movers[i]);
  }
  for (size_t i = 0; i < 3; i++) t_thread_join(threads[i]);
  cache_expect_live(cache, 0);
  T_EQ(cache_stats(cache).num_double_releases, 0);
}

// (d) What came from a cache goes back to it, also in a replayed run; and the other way round.
CACHE_TEST(test_tensor__a_replay_gives_back_to_the_cache) {
  tide_profile* const profile = profile_open(NULL);
  tide_profile_report report = TIDE_PROFILE_REPORT_INIT;
  profile_record_one(profile, 1000);
  T_OK(tide_tensor_enter(cache));
  uint8_t* const cached = tensor_take(4096);
  T_OK(tide_tensor_leave(cache));

  T_OK(tide_profile_begin(profile, TIDE_PROFILE_REPLAY, 0));
  T_OK(tide_tensor_release(cached));
  cache_expect_live(cache, 0);
  uint8_t* const planned = tensor_take(1000);
  T_OK(tide_tensor_enter(cache));
  T_OK(tide_tensor_release(planned));
  uint8_t* const again = tensor_take(4096);
  T_PTR_EQ(again, cached);
  T_OK(tide_tensor_leave(cache));
  T_OK(tide_profile_end(profile, &report));

  T_EQ(report.hits, 1);
  T_EQ(report.survivors, 0);
  T_EQ(profile_stats(profile).bad_releases, 0);
  T_OK(tide_tensor_release(again));
  cache_expect_live(cache, 0);
  tide_profile_free(profile);
}

// Memory of a recorded run that is released while a cache is in force is released in that run.
CACHE_TEST(test_tensor__a_recording_sees_releases_under_a_cache) {
  tide_profile* const profile = profile_open(NULL);
  tide_profile_plan* plan = NULL;
  T_OK(tide_profile_begin(profile, TIDE_PROFILE_RECORD, 0));
  uint8_t* const address = tensor_take(1000);
  T_OK(tide_tensor_enter(cache));
  T_OK(tide_tensor_release(address));
  T_OK(tide_tensor_leave(cache));
  T_OK(tide_profile_end(profile, NULL));

  T_OK(tide_profile_get_plan(profile, 0, &plan));

  T_EQ(tide_profile_plan_request(plan, 0).lifetime, 1);
  T_EQ(cache_stats(cache).active.freed, 0);
  tide_profile_plan_free(plan);
  tide_profile_free(profile);
}

// ---------------------------------------------------------------------------------------------------
// Memory that outlives

static void release_it(void* address) { T_OK(tide_tensor_release(address)); }

T_TEST(test_tensor__memory_outlives_its_scope) {
  tide_cpu_cache* const cache = cache_open(NULL);
  tide_cpu_cache* const other = cache_open(NULL);
  uint8_t* blocks[4];
  T_OK(tide_tensor_enter(cache));
  for (size_t i = 0; i < 4; i++) {
    blocks[i] = tensor_take(5000);
    pattern_write(blocks[i], i, 5000);
  }
  T_OK(tide_tensor_leave(cache));
  for (size_t i = 0; i < 4; i++) pattern_expect(blocks[i], i, 5000);

  T_OK(tide_tensor_release(blocks[0]));
  on_other_thread(release_it, blocks[1]);
  T_OK(tide_tensor_enter(other));
  T_OK(tide_tensor_release(blocks[2]));
  T_OK(tide_tensor_enter(NULL));
  T_OK(tide_tensor_release(blocks[3]));
  T_OK(tide_tensor_leave(NULL));
  T_OK(tide_tensor_leave(other));

  cache_expect_live(cache, 0);
  T_EQ(cache_stats(other).cached_bytes, 0);
  cache_close(cache);
  cache_close(other);
}

T_TEST(test_tensor__memory_outlives_its_cache) {
  tide_cpu_cache* const cache = cache_open(NULL);
  T_OK(tide_tensor_enter(cache));
  uint8_t* const small = tensor_take(500);
  uint8_t* const large = tensor_take(500000);
  T_OK(tide_tensor_leave(cache));
  pattern_write(small, 1, 500);
  pattern_write(large, 2, 500000);
  cache_close_with(cache, 2);

  pattern_expect(small, 1, 500);
  pattern_expect(large, 2, 500000);
  T_OK(tide_tensor_release(small));
  on_other_thread(release_it, large);

  T_CHECK(!tide_cpu_find(large).is_live);
}

T_TEST(test_tensor__memory_outlives_its_run) {
  table memory;
  table_init(&memory);
  tide_profile* const profile = profile_open_on(&memory.memory);
  T_OK(tide_profile_begin(profile, TIDE_PROFILE_RECORD, 0));
  uint8_t* const recorded = tensor_take(5000);
  T_OK(tide_profile_end(profile, NULL));
  T_OK(tide_profile_begin(profile, TIDE_PROFILE_REPLAY, 0));
  uint8_t* const replayed = tensor_take(5000);
  T_OK(tide_profile_end(profile, NULL));
  pattern_write(recorded, 1, 5000);
  pattern_write(replayed, 2, 5000);

  pattern_expect(recorded, 1, 5000);
  pattern_expect(replayed, 2, 5000);
  T_OK(tide_tensor_release(recorded));
  on_other_thread(release_it, replayed);

  T_EQ(profile_stats(profile).survivors, 0);
  tide_profile_free(profile);
  table_fini(&memory);
}
