// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Invalid arguments to every function of the CPU cache: an error, and nothing changes.
#include "blocks.h"

static void options_expect_refused(const tide_cpu_options* options) {
  tide_cpu_cache* cache = (tide_cpu_cache*)&cache;
  T_STATUS(tide_cpu_new(options, &cache), TIDE_ERR_ARGUMENT);
  T_PTR_EQ(cache, NULL);
  T_CHECK(strlen(tide_last_error()->text) > 0);
}

// Invalid numbers among the options.
static const struct {
  size_t offset;
  size_t bytes;
  uint64_t value;
} bad_options[] = {
#define BAD(field, value) \
  { offsetof(tide_cpu_options, field), sizeof((tide_cpu_options*)0)->field, value }
  BAD(size, 0),
  BAD(size, 3),
  BAD(fill, 3),
  BAD(fill, UINT32_MAX),
  BAD(max_block_bytes, 0),
  BAD(max_block_bytes, 64 * KIB - 1),
  BAD(region_bytes, 1),
  BAD(region_bytes, 2 * MIB + 4096),
  BAD(region_bytes, UINT64_MAX),
  BAD(region_bytes, UINT64_MAX - 2 * MIB + 1),
#undef BAD
};

T_TEST(test_cpu_badinput__options_out_of_range) {
  for (size_t i = 0; i < sizeof bad_options / sizeof *bad_options; i++) {
    tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
    memcpy((uint8_t*)&options + bad_options[i].offset, &bad_options[i].value, bad_options[i].bytes);
    options_expect_refused(&options);
  }
}

// A source has both functions, and memory that the processor can write.
T_TEST(test_cpu_badinput__half_a_source) {
  source s;
  source_init(&s);
  for (size_t i = 0; i < 3; i++) {
    tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
    options.memory = s.memory;
    if (i == 0) options.memory.alloc = NULL;
    if (i == 1) options.memory.release = NULL;
    if (i == 2) options.memory.is_host = false;
    options_expect_refused(&options);
  }
  source_fini(&s);
}

T_TEST(test_cpu_badinput__no_place_for_the_result) {
  tide_cpu_cache* const cache = cache_open(NULL);
  void* const address = cache_take(cache, 100);

  T_STATUS(tide_cpu_new(NULL, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_cpu_alloc(cache, 100, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_cpu_alloc_zeros(cache, 100, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_cpu_alloc_aligned(cache, 100, 64, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_cpu_resize(cache, address, 200, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_cpu_resize(cache, address, 0, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_cpu_get_stats(cache, NULL), TIDE_ERR_ARGUMENT);

  cache_expect_live(cache, 1);
  T_OK(tide_cpu_release(address));
  cache_close(cache);
}

T_TEST(test_cpu_badinput__no_cache) {
  tide_cpu_stats stats = TIDE_CPU_STATS_INIT;
  void* address = &address;
  uint64_t orphans = 7;

  EXPECT_REFUSED(tide_cpu_alloc(NULL, 100, &address), address, TIDE_ERR_ARGUMENT);
  EXPECT_REFUSED(tide_cpu_alloc_zeros(NULL, 100, &address), address, TIDE_ERR_ARGUMENT);
  EXPECT_REFUSED(tide_cpu_alloc_aligned(NULL, 100, 64, &address), address, TIDE_ERR_ARGUMENT);
  EXPECT_REFUSED(tide_cpu_resize(NULL, NULL, 100, &address), address, TIDE_ERR_ARGUMENT);
  T_STATUS(tide_cpu_trim(NULL, 0), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_cpu_poll(NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_cpu_set_limits(NULL, 0, 0), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_cpu_get_stats(NULL, &stats), TIDE_ERR_ARGUMENT);
  (void)tide_cpu_check(NULL);
  tide_cpu_reset_accumulated(NULL);
  tide_cpu_reset_peaks(NULL);
  tide_cpu_free(NULL, &orphans);
  T_EQ(orphans, 0);
  tide_cpu_free(NULL, NULL);
}

T_TEST(test_cpu_badinput__the_table_of_no_cache) {
  const tide_memory memory = tide_cpu_memory(NULL);
  void* address = &address;
  if (memory.alloc == NULL) return;

  EXPECT_REFUSED(memory.alloc(&memory, 100, 64, &address), address, TIDE_ERR_ARGUMENT);
}

T_TEST(test_cpu_badinput__sizes_beyond_the_largest) {
  static const size_t sizes[] = { TIDE_CPU_MAX_BYTES + 1,
                                  (size_t)PTRDIFF_MAX,
                                  (size_t)PTRDIFF_MAX + 1,
                                  SIZE_MAX - 4096,
                                  SIZE_MAX - 64,
                                  SIZE_MAX - 63,
                                  SIZE_MAX - 1,
                                  SIZE_MAX };
  tide_cpu_cache* const cache = cache_open(NULL);
  const tide_memory memory = tide_cpu_memory(cache);
  const block b = block_take(cache, 1000, 1);

  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    void* address = &address;
    cache_expect_refused(cache, sizes[i], TIDE_ERR_ARGUMENT);
    EXPECT_REFUSED(tide_cpu_alloc_zeros(cache, sizes[i], &address), address, TIDE_ERR_ARGUMENT);
    EXPECT_REFUSED(tide_cpu_alloc_aligned(cache, sizes[i], 4096, &address), address, TIDE_ERR_ARGUMENT);
    EXPECT_REFUSED(tide_cpu_resize(cache, b.address, sizes[i], &address), address, TIDE_ERR_ARGUMENT);
    EXPECT_REFUSED(memory.alloc(&memory, sizes[i], 64, &address), address, TIDE_ERR_ARGUMENT);
  }

  T_EQ(cache_stats(cache).active.allocated, 1);
  T_EQ(cache_stats(cache).num_ooms, 0);
  block_give(&b);
  cache_close(cache);
}

T_TEST(test_cpu_badinput__alignments_without_sense) {
  static const size_t alignments[] = {
    0, 3, 65, 96, 4095, TIDE_CPU_MAX_ALIGNMENT + 64, 2 * TIDE_CPU_MAX_ALIGNMENT, (size_t)1 << 63, SIZE_MAX
  };
  tide_cpu_cache* const cache = cache_open(NULL);

  for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
    void* address = NULL;
    EXPECT_REFUSED(tide_cpu_alloc_aligned(cache, 100, alignments[i], &address), address, TIDE_ERR_ARGUMENT);
  }

  T_EQ(cache_stats(cache).active.allocated, 0);
  cache_close(cache);
}

// The largest size at the largest alignment overflows nothing; it is refused for lack of memory.
T_TEST(test_cpu_badinput__the_largest_of_both) {
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.max_bytes = 64 * MIB;
  tide_cpu_cache* const cache = cache_open(&options);
  void* address = &address;

  EXPECT_REFUSED(tide_cpu_alloc_aligned(cache, TIDE_CPU_MAX_BYTES, TIDE_CPU_MAX_ALIGNMENT, &address), address,
                 TIDE_ERR_NO_MEMORY);

  cache_close(cache);
}

// Random addresses, for every function that takes one.
T_TEST(test_cpu_badinput__addresses_at_random) {
  tide_cpu_cache* const cache = cache_open(NULL);
  t_rng rng = t_rng_new(1);
  block blocks[16];
  for (size_t i = 0; i < 16; i++) blocks[i] = block_take(cache, 100 + i * i * 5000, i);

  for (size_t i = 0; i < t_scaled(3000); i++) {
    const block* const near = &blocks[i % 16];
    const uintptr_t offset = t_rng_next(&rng) >> t_rng_below(&rng, 64);
    uintptr_t at = i % 3 == 0 ? offset : (uintptr_t)near->address + (i % 3 == 1 ? offset : -offset);
    const tide_cpu_info info = tide_cpu_find((void*)at);
    if (info.is_live && info.address == (void*)at) continue;
    void* moved = &moved;
    if (at == 0) continue;
    T_CHECK(tide_cpu_release((void*)at) != TIDE_OK);
    T_CHECK(tide_cpu_forget((void*)at) != TIDE_OK);
    T_CHECK(tide_cpu_resize(cache, (void*)at, 5000, &moved) != TIDE_OK);
    T_PTR_EQ(moved, NULL);
  }

  cache_expect_live(cache, 16);
  for (size_t i = 0; i < 16; i++) block_give(&blocks[i]);
  cache_close(cache);
}

// Limits below the live memory apply to later requests.
T_TEST(test_cpu_badinput__limits_below_what_is_live) {
  tide_cpu_cache* const cache = cache_open(NULL);
  const block b = block_take(cache, 8 * MIB, 1);

  T_OK(tide_cpu_set_limits(cache, 0, 0));

  cache_expect_refused(cache, MIB, TIDE_ERR_NO_MEMORY);
  block_give(&b);
  T_OK(tide_cpu_set_limits(cache, TIDE_NO_LIMIT, TIDE_NO_LIMIT));
  const block again = block_take(cache, MIB, 2);
  block_give(&again);
  cache_close(cache);
}

// A program that was built with an older header has a shorter struct.
T_TEST(test_cpu_badinput__older_statistics_are_filled_and_nothing_behind_them) {
  tide_cpu_cache* const cache = cache_open(NULL);
  const block b = block_take(cache, 1000, 1);
  tide_cpu_stats stats;
  memset(&stats, 0xaa, sizeof stats);
  stats.size = offsetof(tide_cpu_stats, num_foreign);

  T_OK(tide_cpu_get_stats(cache, &stats));

  T_EQ(stats.size, offsetof(tide_cpu_stats, num_foreign));
  T_EQ(stats.active.current, 1);
  T_EQ(stats.num_double_releases, 0);
  T_FILLED((uint8_t*)&stats + stats.size, 0xaa, sizeof stats - stats.size);
  const uint32_t wrong[] = { 0, 5, stats.size - 1, sizeof stats + 1 };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    stats.size = wrong[i];
    T_STATUS(tide_cpu_get_stats(cache, &stats), TIDE_ERR_ARGUMENT);
  }
  block_give(&b);
  cache_close(cache);
}
