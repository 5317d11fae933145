// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A program that locks all its memory (mlockall): reserved addresses get no memory, memory can go back, and
// new memory holds zeros.
#define T_THREADS
#include <sys/mman.h>
#include <sys/resource.h>

#include "cpu/blocks.h"

#define LOCKED_MAX_BYTES (128 * MIB)
#define LOCKED_DATA_BYTES (2048 * MIB)

// Keeps a faulty cache from taking all memory of the computer. A sanitizer needs more, and locks nothing.
static void limit_data(void) {
  const struct rlimit limit = { LOCKED_DATA_BYTES, LOCKED_DATA_BYTES };
  if (!T_HAS_SANITIZER) T_EQ(setrlimit(RLIMIT_DATA, &limit), 0);
}

// A user without privileges may lock a few MiB. mlockall() succeeds there, and mapping more fails afterwards.
static bool can_have_locked(void) {
  void* volatile const probe = malloc(LOCKED_MAX_BYTES);
  free(probe);
  return probe != NULL;
}

static void lock_memory(int flags) {
  limit_data();
  if (mlockall(flags) != 0 || !can_have_locked()) {
    t_skip("the system does not let this process lock memory");
  }
}

static void expect_little_resident(void) { T_LT(process_bytes(true), LOCKED_MAX_BYTES); }

static void use_both_kinds(void* user) {
  tide_cpu_cache* const cache = user;
  const block small = block_take(cache, 1000, 1);
  const block large = block_take(cache, 5 * MIB, 2);
  expect_little_resident();
  block_give(&small);
  block_give(&large);
}

T_TEST(test_cpu_locked__locking_what_comes_takes_no_memory) {
  lock_memory(MCL_FUTURE);
  tide_cpu_cache* const cache = cache_open(NULL);

  use_both_kinds(cache);
  on_other_thread(use_both_kinds, cache);

  cache_close(cache);
}

T_TEST(test_cpu_locked__locking_what_is_there_takes_no_memory) {
  limit_data();
  tide_cpu_cache* const cache = cache_open(NULL);
  use_both_kinds(cache);

  lock_memory(MCL_CURRENT);

  expect_little_resident();
  use_both_kinds(cache);
  cache_close(cache);
}

T_TEST(test_cpu_locked__locked_memory_goes_back) {
  lock_memory(MCL_FUTURE);
  tide_cpu_cache* const cache = cache_open(NULL);
  uint8_t* const large = cache_take(cache, 32 * MIB);
  memset(large, 0x77, 32 * MIB);
  T_OK(tide_cpu_release(large));
  const tide_status status = tide_cpu_trim(cache, 0);
  T_OK(status);
  if (cache_stats(cache).cached_bytes > 0) t_skip("the system does not take locked memory back");

  T_EQ(resident_bytes(large, 32 * MIB), 0);
  T_EQ(cache_stats(cache).reserved_bytes.current, 0);
  uint8_t* const again = cache_take_zeros(cache, 32 * MIB);
  expect_zeros(again, 32 * MIB);

  T_OK(tide_cpu_release(again));
  cache_close(cache);
}

// A new cache reuses the memory of a freed one.
T_TEST(test_cpu_locked__the_next_cache_finds_zeros) {
  lock_memory(MCL_FUTURE);
  for (size_t round = 0; round < 4; round++) {
    tide_cpu_cache* const cache = cache_open(NULL);
    uint8_t* blocks[64];
    for (size_t i = 0; i < 64; i++) {
      blocks[i] = cache_take_zeros(cache, i % 2 == 0 ? 4096 : 200000);
      expect_zeros(blocks[i], i % 2 == 0 ? 4096 : 200000);
      memset(blocks[i], 0x77, i % 2 == 0 ? 4096 : 200000);
    }
    for (size_t i = 0; i < 64; i++) T_OK(tide_cpu_release(blocks[i]));
    cache_close(cache);
  }
  expect_little_resident();
}

// Addresses are opened while a block grows in place.
T_TEST(test_cpu_locked__a_block_grows_into_reserved_addresses) {
  tide_cpu_cache* const cache = cache_open(NULL);
  uint8_t* const first = cache_take(cache, MIB);
  void* now = first;
  for (size_t bytes = MIB; bytes < 96 * MIB; bytes += 3 * MIB) {
    T_OK(tide_cpu_resize(cache, now, bytes, &now));
    T_PTR_EQ(now, first);
    first[bytes - 1] = 1;
    cache_expect_sound(cache);
  }
  T_OK(tide_cpu_release(now));
  cache_close(cache);
}
