// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Releases of addresses that are not live tensors, for every source: they are refused and change nothing. And
// releases that the source refuses: the tensor stays.
#define T_THREADS
#include "base/sys.h"
#include "tensor/tensors.h"

// ---------------------------------------------------------------------------------------------------
// Memory that was released

CACHE_TEST(test_tensor_release__a_double_release_is_refused) {
  T_OK(tide_tensor_enter(cache));
  uint8_t* const small = tensor_take(500);
  uint8_t* const large = tensor_take(500000);
  T_OK(tide_tensor_leave(cache));
  T_OK(tide_tensor_release(small));
  T_OK(tide_tensor_release(large));

  T_STATUS(tide_tensor_release(small), TIDE_ERR_STATE);
  T_STATUS(tide_tensor_release(large), TIDE_ERR_STATE);
  T_OK(tide_tensor_enter(cache));
  T_STATUS(tide_tensor_release(small), TIDE_ERR_STATE);
  T_OK(tide_tensor_leave(cache));

  cache_expect_live(cache, 0);
}

// Also when the memory is with the system again, where nothing can be read of it.
CACHE_TEST(test_tensor_release__a_double_release_of_trimmed_memory_is_refused) {
  T_OK(tide_tensor_enter(cache));
  uint8_t* const address = tensor_take(500000);
  T_OK(tide_tensor_leave(cache));
  T_OK(tide_tensor_release(address));
  T_OK(tide_cpu_trim(cache, 0));

  T_CHECK(tide_tensor_release(address) != TIDE_OK);

  cache_expect_live(cache, 0);
}

T_TEST(test_tensor_release__a_double_release_in_a_replay_is_refused) {
  tide_profile* const profile = profile_open(NULL);
  profile_record_one(profile, 1000);
  T_OK(tide_profile_begin(profile, TIDE_PROFILE_REPLAY, 0));
  uint8_t* const address = tensor_take(1000);
  T_OK(tide_tensor_release(address));

  T_CHECK(tide_tensor_release(address) != TIDE_OK);

  T_OK(tide_profile_end(profile, NULL));
  tide_profile_free(profile);
}

// Large memory of the C library has gone back to the system, where nothing can be read of it; small memory
// may hold anything.
T_TEST(test_tensor_release__a_double_release_of_uncached_memory_is_refused) {
  static const size_t sizes[] = { 1, 500, 100000, 64 * MIB };
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    uint8_t* const address = tensor_take(sizes[i]);
    T_OK(tide_tensor_release(address));

    T_STATUS(tide_tensor_release(address), TIDE_ERR_ARGUMENT);
    T_STATUS(tide_tensor_release(address), TIDE_ERR_ARGUMENT);
  }
}

// Blocks above max_block_bytes go back to the system when they are released.
T_TEST(test_tensor_release__a_double_release_of_what_a_cache_does_not_keep_is_refused) {
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.max_block_bytes = MIB;
  tide_cpu_cache* const cache = cache_open(&options);
  T_OK(tide_tensor_enter(cache));
  uint8_t* const address = tensor_take(64 * MIB);
  T_OK(tide_tensor_leave(cache));
  T_OK(tide_tensor_release(address));

  T_CHECK(tide_tensor_release(address) != TIDE_OK);

  cache_expect_live(cache, 0);
  cache_close(cache);
}

T_TEST(test_tensor_release__a_double_release_after_the_cache_is_refused) {
  tide_cpu_cache* const cache = cache_open(NULL);
  T_OK(tide_tensor_enter(cache));
  uint8_t* const small = tensor_take(500);
  uint8_t* const large = tensor_take(64 * MIB);
  T_OK(tide_tensor_leave(cache));
  cache_close_with(cache, 2);
  T_OK(tide_tensor_release(small));
  T_OK(tide_tensor_release(large));

  T_CHECK(tide_tensor_release(small) != TIDE_OK);
  T_CHECK(tide_tensor_release(large) != TIDE_OK);
}

// What a run records or replays: fallback and arena have gone back to the C library.
T_TEST(test_tensor_release__a_double_release_of_a_run_is_refused) {
  static const tide_profile_mode modes[] = { TIDE_PROFILE_RECORD, TIDE_PROFILE_REPLAY };
  for (size_t i = 0; i < 2; i++) {
    tide_profile* const profile = profile_open(NULL);
    profile_record_one(profile, 64 * MIB);
    T_OK(tide_profile_begin(profile, modes[i], 0));
    uint8_t* const address = tensor_take(64 * MIB);
    T_OK(tide_tensor_release(address));
    T_STATUS(tide_tensor_release(address), TIDE_ERR_ARGUMENT);
    T_OK(tide_profile_end(profile, NULL));
    T_OK(tide_profile_trim(profile));

    T_STATUS(tide_tensor_release(address), TIDE_ERR_ARGUMENT);

    T_EQ(profile_stats(profile).bad_releases, 0);
    tide_profile_free(profile);
    T_STATUS(tide_tensor_release(address), TIDE_ERR_ARGUMENT);
  }
}

typedef struct racer {
  uint8_t* address;
  atomic_int done;
  atomic_int refused;
} racer;

static void* racer_run(void* user) {
  racer* const r = user;
  const tide_status status = tide_tensor_release(r->address);
  if (status == TIDE_OK) atomic_fetch_add(&r->done, 1);
  if (status == TIDE_ERR_ARGUMENT) atomic_fetch_add(&r->refused, 1);
  return NULL;
}

// Also by several threads at once: one of them does it.
T_TEST(test_tensor_release__one_of_several_threads_releases_uncached_memory) {
  for (size_t round = 0; round < t_scaled(100); round++) {
    racer r = { .address = tensor_take(1 + round % 3 * 100000) };
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++) t_thread_start(&threads[i], racer_run, &r);
    for (size_t i = 0; i < 4; i++) t_thread_join(threads[i]);
    T_EQ(atomic_load(&r.done), 1);
    T_EQ(atomic_load(&r.refused), 3);
  }
}

// ---------------------------------------------------------------------------------------------------
// Addresses of others

CACHE_TEST(test_tensor_release__foreign_memory_is_refused) {
  static _Alignas(64) uint8_t zeros[512];
  static _Alignas(64) uint8_t other[512];
  const block plain = block_take(cache, 1000, 1);
  uint8_t* const mine = tensor_take(1000);
  pattern_write(mine, 2, 1000);
  pattern_write(other, 3, sizeof other);

  T_STATUS(tide_tensor_release(zeros + 64), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_tensor_release(other + 128), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_tensor_release(other + 129), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_tensor_release(mine + 64), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_tensor_release(plain.address), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_tensor_release(plain.address + 64), TIDE_ERR_ARGUMENT);

  pattern_expect(other, 3, sizeof other);
  pattern_expect(mine, 2, 1000);
  T_OK(tide_tensor_release(mine));
  block_give(&plain);
}

// Memory of a scope is no block of the cache: its address is inside one.
CACHE_TEST(test_tensor_release__the_cache_does_not_take_it_directly) {
  T_OK(tide_tensor_enter(cache));
  uint8_t* const address = tensor_take(1000);
  T_OK(tide_tensor_leave(cache));

  T_STATUS(tide_cpu_release(address), TIDE_ERR_ARGUMENT);

  cache_expect_live(cache, 1);
  T_OK(tide_tensor_release(address));
}

// Addresses where nothing is, or nothing can be read.
CACHE_TEST(test_tensor_release__addresses_of_nobody_are_refused) {
  uint64_t reserved = 0;
  T_EQ(tide__sys_reserve(8192, 1, 0, &reserved), 0);
  uint8_t* const shut = (uint8_t*)(uintptr_t)reserved;
  T_OK(tide_tensor_enter(cache));
  uint8_t* const live = tensor_take(100000);
  T_OK(tide_tensor_leave(cache));
  for (unsigned shift = 0; shift < 64; shift++) {
    T_STATUS(tide_tensor_release((void*)((uintptr_t)1 << shift)), TIDE_ERR_ARGUMENT);  // NOLINT
  }
  T_STATUS(tide_tensor_release((void*)UINTPTR_MAX), TIDE_ERR_ARGUMENT);  // NOLINT
  T_STATUS(tide_tensor_release(shut + 64), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_tensor_release(shut + 4096), TIDE_ERR_ARGUMENT);

  // Far behind the last block, where the cache has addresses and no memory yet.
  T_CHECK(tide_tensor_release(live + 1024 * MIB) != TIDE_OK);
  T_CHECK(tide_tensor_release(live + 100 * MIB) != TIDE_OK);

  cache_expect_live(cache, 1);
  T_OK(tide_tensor_release(live));
  T_EQ(tide__sys_release(reserved, 8192), 0);
}

// ---------------------------------------------------------------------------------------------------
// Sources that refuse

// A strict run refuses a release at another time than recorded. The tensor stays, and can be released later.
T_TEST(test_tensor_release__a_tensor_whose_release_is_refused_stays) {
  tide_profile_options options = TIDE_PROFILE_OPTIONS_INIT;
  options.is_strict = true;
  tide_profile* const profile = profile_open(&options);
  T_OK(tide_profile_begin(profile, TIDE_PROFILE_RECORD, 0));
  uint8_t* first = tensor_take(1000);
  uint8_t* second = tensor_take(2000);
  T_OK(tide_tensor_release(first));
  T_OK(tide_tensor_release(second));
  T_OK(tide_profile_end(profile, NULL));
  T_OK(tide_profile_begin(profile, TIDE_PROFILE_REPLAY, 0));
  first = tensor_take(1000);
  pattern_write(first, 1, 1000);

  T_STATUS(tide_tensor_release(first), TIDE_ERR_STATE);

  pattern_expect(first, 1, 1000);
  second = tensor_take(2000);
  T_OK(tide_tensor_release(first));
  T_OK(tide_tensor_release(second));
  T_OK(tide_profile_end(profile, NULL));
  T_EQ(profile_stats(profile).survivors, 0);
  tide_profile_free(profile);
}

// ---------------------------------------------------------------------------------------------------
// Forks

static atomic_bool churn_is_over;

static void* churn_run(void* user) {
  while (!atomic_load(&churn_is_over)) {
    uint8_t* const address = tensor_take(1 + (uintptr_t)user);
    T_OK(tide_tensor_release(address));
  }
  return NULL;
}

// A child of a process whose other threads are busy with tensors knows all of them, and can go on.
T_TEST(test_tensor_release__a_child_of_many_threads_goes_on) {
  if (T_HAS_SANITIZER) t_skip("a fork of several threads may leave the malloc of a sanitizer locked");
  pthread_t threads[2];
  uint8_t* const mine = tensor_take(5000);
  for (size_t i = 0; i < 2; i++) t_thread_start(&threads[i], churn_run, (void*)(i * 100000));  // NOLINT
  for (size_t round = 0; round < t_scaled(20); round++) {
    int status = 0;
    const pid_t child = fork();
    T_LE(0, child);
    if (child == 0) {
      for (size_t i = 0; i < 1000; i++) T_OK(tide_tensor_release(tensor_take(1 + 64 * i)));
      T_OK(tide_tensor_release(mine));
      T_STATUS(tide_tensor_release(mine), TIDE_ERR_ARGUMENT);
      _exit(0);
    }
    T_EQ(waitpid(child, &status, 0), child);
    T_EQ(status, 0);
  }
  atomic_store(&churn_is_over, true);
  for (size_t i = 0; i < 2; i++) t_thread_join(threads[i]);
  T_OK(tide_tensor_release(mine));
}
