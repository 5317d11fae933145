// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The fill of memory that is handed out: on first use and on reuse, to the last byte, from the system and
// from a source whose memory is not zero.
#include "blocks.h"

static const char* const sources[] = { "system", "source", NULL };
static const size_t fill_sizes[] = { 1,      2,      3,       4,       5,       7,       8,      9,
                                     63,     64,     65,      100,     127,     1000,    1023,   1025,
                                     4095,   4096,   4097,    20001,   32767,   32768,   32769,  65535,
                                     100003, 262145, 1048583, 2097151, 2097152, 2097153, 3333333 };
#define FILL_SIZES (sizeof fill_sizes / sizeof *fill_sizes)

static source fill_source;

static tide_cpu_cache* fill_open(tide_fill fill) {
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  source_init(&fill_source);
  if (strcmp(t_variant(), "source") == 0) options.memory = fill_source.memory;
  options.fill = fill;
  return cache_open(&options);
}

static void fill_close(tide_cpu_cache* cache) {
  cache_close(cache);
  source_fini(&fill_source);
}

static void expect_fill(tide_fill fill, const void* address, size_t bytes) {
  if (fill == TIDE_FILL_ZEROS) expect_zeros(address, bytes);
  else expect_junk(address, bytes);
}

// Uses every size three times: new memory first, then memory that was written to the last byte.
static void expect_filled_always(tide_fill fill) {
  tide_cpu_cache* const cache = fill_open(fill);
  for (size_t life = 0; life < 3; life++) {
    for (size_t i = 0; i < FILL_SIZES; i++) {
      uint8_t* const address = cache_take(cache, fill_sizes[i]);
      expect_fill(fill, address, fill_sizes[i]);
      memset(address, 0x5a, tide_cpu_find(address).bytes);
      T_OK(tide_cpu_release(address));
    }
  }
  fill_close(cache);
}

T_TEST_OVER(test_cpu_fill__zeros_on_first_use_and_on_every_reuse, sources) {
  expect_filled_always(TIDE_FILL_ZEROS);
}

T_TEST_OVER(test_cpu_fill__junk_on_first_use_and_on_every_reuse, sources) {
  expect_filled_always(TIDE_FILL_JUNK);
}

// ---------------------------------------------------------------------------------------------------
// Zeros by request

T_TEST_OVER(test_cpu_fill__alloc_zeros_on_used_memory, sources) {
  tide_cpu_cache* const cache = fill_open(TIDE_FILL_NOTHING);

  for (size_t i = 0; i < FILL_SIZES; i++) {
    uint8_t* const used = cache_take(cache, fill_sizes[i]);
    memset(used, 0x5a, tide_cpu_find(used).bytes);
    T_OK(tide_cpu_release(used));
    uint8_t* const zeros = cache_take_zeros(cache, fill_sizes[i]);
    T_PTR_EQ(zeros, used);
    memset(zeros, 0x5a, fill_sizes[i]);
    T_OK(tide_cpu_release(zeros));
  }

  fill_close(cache);
}

// New pages of the system are zero without being written, so they are not resident yet.
T_TEST(test_cpu_fill__new_zeros_of_the_system_are_not_written) {
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.huge_pages = false;
  tide_cpu_cache* const cache = cache_open(&options);
  void* address = NULL;

  T_OK(tide_cpu_alloc_zeros(cache, 32 * MIB, &address));

  T_EQ(resident_bytes(address, 32 * MIB), 0);
  expect_zeros(address, 32 * MIB);
  T_OK(tide_cpu_release(address));
  cache_close(cache);
}

// ---------------------------------------------------------------------------------------------------
// The new part of a resized block

static void expect_resized(tide_fill fill) {
  tide_cpu_cache* const cache = fill_open(fill);
  t_rng rng = t_rng_new(4);
  for (size_t i = 0; i < 150; i++) {
    const size_t before = 1 + random_bytes(&rng, 17);
    const size_t after = 1 + random_bytes(&rng, 18);
    void* address = cache_take(cache, before);
    const size_t usable = tide_cpu_find(address).bytes;
    memset(address, 0x11, usable);
    T_OK(tide_cpu_resize(cache, address, after, &address));
    T_FILLED(address, 0x11, before < after ? before : after);
    for (size_t at = (usable + 3) / 4 * 4; at < after; at += 4) {
      expect_fill(fill, (uint8_t*)address + at, after - at < 4 ? after - at : 4);
    }
    T_OK(tide_cpu_release(address));
  }
  fill_close(cache);
}

T_TEST_OVER(test_cpu_fill__the_new_part_is_zeros, sources) { expect_resized(TIDE_FILL_ZEROS); }
T_TEST_OVER(test_cpu_fill__the_new_part_is_junk, sources) { expect_resized(TIDE_FILL_JUNK); }
