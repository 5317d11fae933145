// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Sizes: how requests are rounded, how large segments are, and when blocks are split and joined.
#define T_THREADS
#include "device/devices.h"

static size_t rounded(tide_device_cache* d, size_t bytes) {
  const tide_block block = take(d, NULL, bytes);
  const int64_t size = current(d, allocated_bytes);
  give(d, block);
  return (size_t)size;
}

// ---------------------------------------------------------------------------------------------------
// Rounding

DEVICE_TEST(test_device__rounds_to_multiples_of_512) {
  T_EQ(rounded(d, 1), 512);
  T_EQ(rounded(d, 511), 512);
  T_EQ(rounded(d, 512), 512);
  T_EQ(rounded(d, 513), 1024);
  T_EQ(rounded(d, 3 * MIB + 1), 3 * MIB + 512);
}

TORCH_TEST(test_device__rounds_to_four_divisions_of_a_power_of_two) {
  configure(d, "roundup_power2_divisions:4");

  T_EQ(rounded(d, 2048), 2048);  // at 512 * 4 still in steps of 512
  T_EQ(rounded(d, 1025), 1536);
  T_EQ(rounded(d, 2049), 2560);
  T_EQ(rounded(d, 5 * KIB + 1), 6 * KIB);
  T_EQ(rounded(d, 4 * MIB), 4 * MIB);  // powers of two stay
  T_EQ(rounded(d, 4 * MIB + 1), 5 * MIB);
  T_EQ(rounded(d, 33 * MIB), 40 * MIB);
}

// With the policy tide small blocks come in classes instead.
DEVICE_TEST(test_device__rounds_large_requests_to_divisions_with_any_policy) {
  configure(d, "roundup_power2_divisions:[4:4,>:8]");

  T_EQ(rounded(d, 5 * KIB), 5 * KIB);
  T_EQ(rounded(d, 4 * MIB), 4 * MIB);
  T_EQ(rounded(d, 4 * MIB + 1), 5 * MIB);
  T_EQ(rounded(d, 33 * MIB), 36 * MIB);
}

TORCH_TEST(test_device__rounds_by_a_list_of_divisions) {
  configure(d, "roundup_power2_divisions:[2:2,4:8,8:1,>:4]");

  T_EQ(rounded(d, 1 * MIB + 512), MIB + MIB / 2);      // the first entry holds below as well
  T_EQ(rounded(d, 2 * MIB + 512), 3 * MIB);            // [2, 4) MiB in halves
  T_EQ(rounded(d, 4 * MIB + 512), 4 * MIB + MIB / 2);  // [4, 8) MiB in eighths
  T_EQ(rounded(d, 8 * MIB + 512), 8 * MIB + 512);      // [8, 16) MiB not at all
  T_EQ(rounded(d, 16 * MIB + 512), 20 * MIB);          // above in quarters
  T_EQ(rounded(d, 32 * MIB + 512), 40 * MIB);
}

TORCH_TEST(test_device__next_settings_reset_the_divisions) {
  configure(d, "roundup_power2_divisions:4");
  T_EQ(rounded(d, 5 * KIB + 1), 6 * KIB);

  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  tide_device_get_options(d, &options);
  T_OK(tide_device_options_parse("max_split_size_mb:40", &options));
  T_OK(tide_device_configure(d, &options));

  T_EQ(rounded(d, 5 * KIB + 1), 5 * KIB + 512);
}

// ---------------------------------------------------------------------------------------------------
// Segments: the examples of the specification

// Requests, what they are rounded to, and the segments that they share.
static const struct {
  const char* options;
  size_t bytes;
  size_t rounded;
  size_t segment;
  size_t per_segment;
} segment_cases[] = {
  { "", 1, 512, 2 * MIB, 4096 },
  { "", MIB, MIB, 2 * MIB, 2 },
  { "", MIB + 1, MIB + 512, 20 * MIB, 19 },
  { "", 10 * MIB - 512, 10 * MIB - 512, 20 * MIB, 2 },
  { "", 10 * MIB, 10 * MIB, 10 * MIB, 1 },
  { "", 10 * MIB + 512, 10 * MIB + 512, 12 * MIB, 1 },
  { "large_segment_size_mb:40", 2 * MIB, 2 * MIB, 40 * MIB, 20 },
};

TORCH_TEST(test_device__segments_are_as_large_as_those_of_torch) {
  for (size_t i = 0; i < sizeof segment_cases / sizeof segment_cases[0]; ++i) {
    const size_t bytes = segment_cases[i].bytes;
    const int kind = bytes <= MIB ? TIDE_STAT_SMALL : TIDE_STAT_LARGE;
    tide_device_cache* const own = device_with(m, segment_cases[i].options);
    const tide_block block = take(own, NULL, bytes);
    T_EQ(stats_of(own).allocated_bytes[kind].current, segment_cases[i].rounded);
    T_EQ(segment_bytes_around(own, block), segment_cases[i].segment);
    for (size_t k = 1; k < segment_cases[i].per_segment; ++k) (void)take(own, NULL, bytes);
    T_EQ(stats_of(own).segment[kind].current, 1);
    (void)take(own, NULL, bytes);
    T_EQ(stats_of(own).reserved_bytes[kind].current, 2 * segment_cases[i].segment);
    tide_device_free(own);
  }
}

// ---------------------------------------------------------------------------------------------------
// Splitting and merging

TORCH_TEST(test_device__large_blocks_split_only_above_1_mib_of_rest) {
  const tide_block whole = take(d, NULL, 19 * MIB);  // of 20 MiB: the rest of 1 MiB stays in the block
  T_EQ(current(d, allocated_bytes), 20 * MIB);
  T_EQ(current(d, inactive_split), 0);
  give(d, whole);

  (void)take(d, NULL, 19 * MIB - 512);

  T_EQ(current(d, allocated_bytes), 19 * MIB - 512);
  T_EQ(current(d, inactive_split_bytes), MIB + 512);
}

DEVICE_TEST(test_device__small_blocks_split_down_to_512) {
  tide_block blocks[4];
  for (size_t i = 0; i < 4; ++i) blocks[i] = take(d, NULL, MIB / 2);
  give(d, blocks[3]);

  if (is_tide()) T_OK(tide_device_set_limit(d, 2 * MIB));  // a little too much is given back only then

  (void)take(d, NULL, MIB / 2 - 512);
  const tide_block rest = take(d, NULL, 512);

  T_PTR_EQ(rest.address, bytes_of(blocks[3]) + MIB / 2 - 512);
  T_EQ(current(d, reserved_bytes), 2 * MIB);
}

DEVICE_TEST(test_device__neighbours_merge_when_they_are_released) {
  tide_block blocks[4];
  give(d, take(d, NULL, 20 * MIB));  // so that the four lie in a row
  for (size_t i = 0; i < 4; ++i) blocks[i] = take(d, NULL, 5 * MIB);

  give(d, blocks[0]);
  give(d, blocks[2]);
  T_EQ(count_idle_blocks(d), 2);
  give(d, blocks[1]);  // between two idle ones
  T_EQ(count_idle_blocks(d), 1);
  give(d, blocks[3]);

  T_EQ(count_idle_blocks(d), 1);
  const tide_block whole = take(d, NULL, 20 * MIB);
  T_PTR_EQ(whole.address, blocks[0].address);
  T_EQ(current(d, reserved_bytes), 20 * MIB);
}

DEVICE_TEST(test_device__takes_the_smallest_block_that_fits) {
  const tide_block large = take(d, NULL, 30 * MIB);
  (void)take(d, NULL, 12 * MIB);  // keeps the others apart
  const tide_block medium = take(d, NULL, 14 * MIB);
  (void)take(d, NULL, 12 * MIB);
  const tide_block small = take(d, NULL, 12 * MIB);
  (void)take(d, NULL, 12 * MIB);
  give(d, large);
  give(d, medium);
  give(d, small);

  const tide_block block = take(d, NULL, 13 * MIB);

  T_PTR_EQ(block.address, medium.address);
  T_EQ(current(d, reserved_bytes), (30 + 14 + 4 * 12) * MIB);
}

DEVICE_TEST(test_device__of_equal_blocks_takes_the_lowest_address) {
  tide_block blocks[3];
  void* lowest = NULL;
  for (size_t i = 0; i < 3; ++i) {
    blocks[i] = take(d, NULL, 12 * MIB);
    if (lowest == NULL || blocks[i].address < lowest) lowest = blocks[i].address;
  }
  for (size_t i = 0; i < 3; ++i) give(d, blocks[i]);

  T_PTR_EQ(take(d, NULL, 12 * MIB).address, lowest);
}

// ---------------------------------------------------------------------------------------------------
// max_split_size

// A request beside an idle block: does it take that one, whole?
static const struct {
  const char* options;
  size_t idle;
  size_t bytes;
  bool is_taken;
} split_cases[] = {
  { "max_split_size_mb:20", 30 * MIB, 24 * MIB, true },
  { "max_split_size_mb:20", 20 * MIB, 18 * MIB, false },  // below the size that is not split
  { "max_split_size_mb:20", 44 * MIB, 24 * MIB, false },  // 20 MiB too large
  { "max_split_size_mb:20", 44 * MIB, 24 * MIB + 512, true },
  { "max_split_size_mb:20,max_non_split_rounding_mb:40", 60 * MIB, 20 * MIB + 512, true },
};

TORCH_TEST(test_device__blocks_of_max_split_size_are_taken_whole_or_not_at_all) {
  for (size_t i = 0; i < sizeof split_cases / sizeof split_cases[0]; ++i) {
    configure(d, split_cases[i].options);
    const tide_block idle = take(d, NULL, split_cases[i].idle);
    give(d, idle);
    const tide_block block = take(d, NULL, split_cases[i].bytes);
    T_EQ(block.address == idle.address, split_cases[i].is_taken);
    T_EQ(current(d, inactive_split), 0);
    T_EQ(current(d, segment), split_cases[i].is_taken ? 1 : 2);
    if (split_cases[i].is_taken) T_EQ(current(d, allocated_bytes), split_cases[i].idle);
    give(d, block);
    trim(d);
  }
}

DEVICE_TEST(test_device__without_max_split_size_large_blocks_are_split) {
  const tide_block large = take(d, NULL, 60 * MIB);
  give(d, large);

  T_PTR_EQ(take(d, NULL, 2 * MIB).address, large.address);

  T_EQ(current(d, reserved_bytes), 60 * MIB);
}

// ---------------------------------------------------------------------------------------------------
// Pools that do not split, and sizes as text

DEVICE_TEST(test_device__no_split_pools_have_one_block_in_each_segment) {
  const tide_pool pool = pool_new(d, NULL);
  T_OK(tide_device_pool_set_no_split(d, pool));

  const tide_block a = take_in(d, pool, NULL, 2 * MIB);
  const tide_block b = take_in(d, pool, NULL, 3 * MIB);
  (void)take_in(d, pool, NULL, 512);

  T_EQ(segment_bytes_around(d, a), 20 * MIB);
  T_EQ(segment_bytes_around(d, b), 20 * MIB);
  T_EQ(current(d, allocated_bytes), 42 * MIB);
  T_EQ(current(d, inactive_split), 0);
}

T_TEST(test_device__size_text_is_that_of_torch) {
  char text[TIDE_SIZE_TEXT];

  T_STR_EQ(tide_size_text(0, text), "0 bytes");
  T_STR_EQ(tide_size_text(1024, text), "1024 bytes");
  T_STR_EQ(tide_size_text(1025, text), "1.00 KiB");
  T_STR_EQ(tide_size_text(MIB, text), "1024.00 KiB");
  T_STR_EQ(tide_size_text(MIB + MIB / 2, text), "1.50 MiB");
  T_STR_EQ(tide_size_text(GIB, text), "1024.00 MiB");
  T_STR_EQ(tide_size_text(800000000 * GIB, text), "800000000.00 GiB");
}
