// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory between a cache and code that knows none: blocks whose content is handed over to be freed elsewhere,
// and memory from elsewhere that is released through a cache.
#include "cpu/blocks.h"
#include "cpu/source.h"

// ---------------------------------------------------------------------------------------------------
// Handing over

static const size_t hand_sizes[] = { 1, 64, 1000, 65536, 65537, 3 * MIB };
enum { HAND_SIZES = sizeof hand_sizes / sizeof *hand_sizes };

static void* detach(void* address) {
  void* out = NULL;
  T_OK(tide_cpu_detach(address, &out));
  T_CHECK(out != NULL);
  T_EQ((uintptr_t)out % 64, 0);
  T_CHECK(!tide_cpu_find(out).is_ours);
  return out;
}

T_TEST(test_cpu_hand__what_was_detached_is_freed_elsewhere) {
  tide_cpu_cache* const cache = cache_open(NULL);
  for (size_t i = 0; i < HAND_SIZES; i++) {
    const block b = block_take(cache, hand_sizes[i], i);
    const int64_t live_bytes = cache_stats(cache).live_bytes.current;
    T_LT(0, live_bytes);

    void* const mine = detach(b.address);

    pattern_expect(mine, b.seed, b.bytes);
    T_STATUS(tide_cpu_release(b.address), TIDE_ERR_STATE);
    cache_expect_live(cache, 0);
    T_EQ(cache_stats(cache).live_bytes.current, 0);
    T_EQ(cache_stats(cache).detached, i + 1);
    free(mine);
  }
  cache_close(cache);
}

T_TEST(test_cpu_hand__what_was_detached_outlives_the_cache) {
  tide_cpu_cache* const cache = cache_open(NULL);
  const block b = block_take(cache, 100000, 1);
  void* const mine = detach(b.address);
  cache_close(cache);

  pattern_expect(mine, b.seed, b.bytes);

  free(mine);
}

T_TEST(test_cpu_hand__an_orphan_can_be_detached) {
  tide_cpu_cache* const cache = cache_open(NULL);
  const block small = block_take(cache, 1000, 1);
  const block large = block_take(cache, MIB, 2);
  cache_close_with(cache, 2);

  void* const one = detach(small.address);
  void* const two = detach(large.address);

  pattern_expect(one, small.seed, small.bytes);
  pattern_expect(two, large.seed, large.bytes);
  T_CHECK(tide_cpu_release(large.address) != TIDE_OK);
  free(one);
  free(two);
}

static void detach_there(void* user) {
  const block* const b = user;
  void* const mine = detach(b->address);
  pattern_expect(mine, b->seed, b->bytes);
  free(mine);
}

T_TEST(test_cpu_hand__any_thread_can_detach) {
  tide_cpu_cache* const cache = cache_open(NULL);
  for (size_t i = 0; i < HAND_SIZES; i++) {
    block b = block_take(cache, hand_sizes[i], i);
    on_other_thread(detach_there, &b);
  }
  cache_expect_live(cache, 0);
  T_EQ(cache_stats(cache).detached, HAND_SIZES);
  cache_close(cache);
}

T_TEST(test_cpu_hand__what_is_no_block_is_not_detached) {
  tide_cpu_cache* const cache = cache_open(NULL);
  const block b = block_take(cache, 100000, 1);
  uint64_t own = 5;
  void* out = &out;

  T_OK(tide_cpu_detach(NULL, &out));
  T_PTR_EQ(out, NULL);
  T_STATUS(tide_cpu_detach(&own, &out), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_cpu_detach(b.address + 4096, &out), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_cpu_detach(b.address + 64, &out), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_cpu_detach(b.address, NULL), TIDE_ERR_ARGUMENT);
  T_PTR_EQ(out, NULL);
  cache_expect_live(cache, 1);
  block_give(&b);
  out = &out;
  T_STATUS(tide_cpu_detach(b.address, &out), TIDE_ERR_STATE);
  T_PTR_EQ(out, NULL);

  T_EQ(cache_stats(cache).detached, 0);
  cache_close(cache);
}

// ---------------------------------------------------------------------------------------------------
// Memory from elsewhere

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
  T_EQ(cache_stats(cache).foreign, 2 * HAND_SIZES);
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
  T_EQ(cache_stats(cache).foreign, 1);
  cache_close(cache);
  source_fini(&s);
}

T_TEST(test_cpu_hand__foreign_memory_is_refused_unless_asked) {
  tide_cpu_cache* const cache = cache_open(NULL);
  void* const theirs = malloc(1000);
  T_CHECK(theirs != NULL);

  T_STATUS(tide_cpu_release_any(cache, theirs), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_cpu_release_any(NULL, theirs), TIDE_ERR_ARGUMENT);

  T_EQ(cache_stats(cache).foreign, 0);
  free(theirs);
  cache_close(cache);
}

// Blocks of any cache go back to that cache, and wrong addresses in one are refused as ever.
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
  T_EQ(cache_stats(cache).foreign, 0);
  cache_close(cache);
  cache_close(other);
}
