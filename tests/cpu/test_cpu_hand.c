// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory of other allocators that is released through a cache.
#include "cpu/blocks.h"
#include "cpu/source.h"

static const size_t hand_sizes[] = { 1, 64, 1000, 65536, 65537, 3 * MIB };
enum { HAND_SIZES = sizeof hand_sizes / sizeof *hand_sizes };

static tide_cpu_cache* open_generous(const tide_memory* memory) {
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.frees_foreign = true;
  if (memory != NULL) options.memory = *memory;
  return cache_open(&options);
}

T_TEST(test_cpu_hand__foreign_memory_is_freed_if_asked) {
  tide_cpu_cache* const cache = open_generous(NULL);
  const tide_memory as_source = tide_cpu_memory(cache);
  for (size_t i = 0; i < HAND_SIZES; i++) {
    void* const first = malloc(hand_sizes[i]);
    void* const second = malloc(hand_sizes[i]);
    T_CHECK(first != NULL && second != NULL);

    T_OK(tide_cpu_release_any(cache, first));
    T_OK(as_source.release(&as_source, second));
  }
  T_EQ(cache_stats(cache).num_foreign, 2 * HAND_SIZES);
  T_OK(tide_cpu_release_any(cache, NULL));
  cache_close(cache);
}

T_TEST(test_cpu_hand__foreign_memory_goes_to_the_source_of_the_cache) {
  source s;
  source_init(&s);
  tide_cpu_cache* const cache = open_generous(&s.memory);
  const block own = block_take(cache, 1000, 1);
  const size_t before = s.count;
  void* theirs = NULL;
  T_OK(s.memory.alloc(&s.memory, 5000, 64, &theirs));

  T_OK(tide_cpu_release_any(cache, theirs));

  T_EQ(s.count, before);
  T_OK(tide_cpu_release_any(cache, own.address));
  T_EQ(cache_stats(cache).num_foreign, 1);
  cache_close(cache);
  source_fini(&s);
}

T_TEST(test_cpu_hand__foreign_memory_is_refused_unless_asked) {
  tide_cpu_cache* const cache = cache_open(NULL);
  void* const theirs = malloc(1000);
  T_CHECK(theirs != NULL);

  T_STATUS(tide_cpu_release_any(cache, theirs), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_cpu_release_any(NULL, theirs), TIDE_ERR_ARGUMENT);

  T_EQ(cache_stats(cache).num_foreign, 0);
  free(theirs);
  cache_close(cache);
}

// Blocks of any cache go back to that cache, and wrong addresses in them are refused.
T_TEST(test_cpu_hand__blocks_of_caches_are_no_foreign_memory) {
  tide_cpu_cache* const cache = open_generous(NULL);
  tide_cpu_cache* const other = cache_open(NULL);
  const block mine = block_take(cache, 1000, 1);
  const block theirs = block_take(other, 100000, 2);

  T_STATUS(tide_cpu_release_any(cache, mine.address + 64), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_cpu_release_any(cache, theirs.address + 4096), TIDE_ERR_ARGUMENT);
  T_OK(tide_cpu_release_any(cache, mine.address));
  T_OK(tide_cpu_release_any(cache, theirs.address));
  T_STATUS(tide_cpu_release_any(cache, mine.address), TIDE_ERR_STATE);
  T_STATUS(tide_cpu_release_any(cache, theirs.address), TIDE_ERR_STATE);

  cache_expect_live(cache, 0);
  cache_expect_live(other, 0);
  T_EQ(cache_stats(cache).num_foreign, 0);
  cache_close(cache);
  cache_close(other);
}
