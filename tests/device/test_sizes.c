// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Sizes: how requests are rounded, which segments are made for them, and when a block is split.
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
  (void)m;
  T_EQ(rounded(d, 1), 512);
  T_EQ(rounded(d, 511), 512);
  T_EQ(rounded(d, 512), 512);
  T_EQ(rounded(d, 513), 1024);
  T_EQ(rounded(d, 3 * MIB + 1), 3 * MIB + 512);
}

TORCH_TEST(test_device__rounds_to_four_divisions_of_a_power_of_two) {
  (void)m;
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
  (void)m;
  configure(d, "roundup_power2_divisions:[4:4,>:8]");

  T_EQ(rounded(d, 5 * KIB), 5 * KIB);
  T_EQ(rounded(d, 4 * MIB), 4 * MIB);
  T_EQ(rounded(d, 4 * MIB + 1), 5 * MIB);
  T_EQ(rounded(d, 33 * MIB), 36 * MIB);
}

TORCH_TEST(test_device__rounds_by_a_list_of_divisions) {
  (void)m;
  configure(d, "roundup_power2_divisions:[2:2,4:8,8:1,>:4]");

  T_EQ(rounded(d, 1 * MIB + 512), MIB + MIB / 2);      // the first entry holds below as well
  T_EQ(rounded(d, 2 * MIB + 512), 3 * MIB);            // [2, 4) MiB in halves
  T_EQ(rounded(d, 4 * MIB + 512), 4 * MIB + MIB / 2);  // [4, 8) MiB in eighths
  T_EQ(rounded(d, 8 * MIB + 512), 8 * MIB + 512);      // [8, 16) MiB not at all
  T_EQ(rounded(d, 16 * MIB + 512), 20 * MIB);          // above in quarters
  T_EQ(rounded(d, 32 * MIB + 512), 40 * MIB);
}

TORCH_TEST(test_device__next_settings_reset_the_divisions) {
  (void)m;
  configure(d, "roundup_power2_divisions:4");
  T_EQ(rounded(d, 5 * KIB + 1), 6 * KIB);

  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  tide_device_get_options(d, &options);
  T_OK(tide_device_options_parse("max_split_size_mb:40", &options));
  T_OK(tide_device_configure(d, &options));

  T_EQ(rounded(d, 5 * KIB + 1), 5 * KIB + 512);
}

DEVICE_TEST(test_device__requested_bytes_are_not_rounded) {
  (void)m;
  const tide_block block = take(d, NULL, 1000);

  T_EQ(current(d, requested_bytes), 1000);
  T_EQ(current(d, active_bytes), 1024);

  give(d, block);
}

// ---------------------------------------------------------------------------------------------------
// Segments: the examples of the specification

TORCH_TEST(test_device__one_byte_is_512_in_a_segment_of_2_mib) {
  (void)m;
  const tide_block block = take(d, NULL, 1);

  T_EQ(current(d, allocated_bytes), 512);
  T_EQ(current(d, reserved_bytes), 2 * MIB);
  T_EQ(stats_of(d).segment[TIDE_STAT_SMALL].current, 1);
  T_EQ(segment_bytes_around(d, block), 2 * MIB);
}

TORCH_TEST(test_device__two_of_1_mib_fill_a_small_segment) {
  (void)m;
  (void)take(d, NULL, MIB);
  (void)take(d, NULL, MIB);
  T_EQ(current(d, segment), 1);

  (void)take(d, NULL, MIB);

  T_EQ(current(d, segment), 2);
  T_EQ(stats_of(d).reserved_bytes[TIDE_STAT_SMALL].current, 4 * MIB);
}

TORCH_TEST(test_device__a_little_above_1_mib_is_large_in_20_mib) {
  (void)m;
  (void)take(d, NULL, MIB + 1);

  T_EQ(stats_of(d).allocated_bytes[TIDE_STAT_LARGE].current, MIB + 512);
  T_EQ(stats_of(d).reserved_bytes[TIDE_STAT_LARGE].current, 20 * MIB);
}

TORCH_TEST(test_device__two_a_little_below_10_mib_share_20_mib) {
  (void)m;
  (void)take(d, NULL, 10 * MIB - 512);
  T_EQ(current(d, inactive_split_bytes), 10 * MIB + 512);
  (void)take(d, NULL, 10 * MIB - 512);

  T_EQ(current(d, segment), 1);
  T_EQ(current(d, reserved_bytes), 20 * MIB);
}

TORCH_TEST(test_device__from_10_mib_a_request_has_its_own_segment) {
  (void)m;
  const tide_block exact = take(d, NULL, 10 * MIB);
  const tide_block above = take(d, NULL, 10 * MIB + 512);

  T_EQ(segment_bytes_around(d, exact), 10 * MIB);
  T_EQ(segment_bytes_around(d, above), 12 * MIB);
}

TORCH_TEST(test_device__large_segment_size_can_be_chosen) {
  (void)m;
  configure(d, "large_segment_size_mb:40");

  const tide_block block = take(d, NULL, 2 * MIB);

  T_EQ(segment_bytes_around(d, block), 40 * MIB);
}

// ---------------------------------------------------------------------------------------------------
// Splitting and merging

TORCH_TEST(test_device__large_blocks_split_only_above_1_mib_of_rest) {
  (void)m;
  const tide_block whole = take(d, NULL, 19 * MIB);  // of 20 MiB: the rest of 1 MiB stays in the block
  T_EQ(current(d, allocated_bytes), 20 * MIB);
  T_EQ(current(d, inactive_split), 0);
  give(d, whole);

  (void)take(d, NULL, 19 * MIB - 512);

  T_EQ(current(d, allocated_bytes), 19 * MIB - 512);
  T_EQ(current(d, inactive_split_bytes), MIB + 512);
}

DEVICE_TEST(test_device__small_blocks_split_down_to_512) {
  (void)m;
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
  (void)m;
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
  (void)m;
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
  (void)m;
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

TORCH_TEST(test_device__blocks_of_max_split_size_are_not_split) {
  (void)m;
  configure(d, "max_split_size_mb:20");
  give(d, take(d, NULL, 30 * MIB));

  (void)take(d, NULL, 24 * MIB);

  T_EQ(current(d, allocated_bytes), 30 * MIB);
  T_EQ(current(d, inactive_split), 0);
  T_EQ(current(d, segment), 1);
}

TORCH_TEST(test_device__smaller_requests_leave_blocks_of_max_split_size_alone) {
  (void)m;
  configure(d, "max_split_size_mb:20");
  const tide_block large = take(d, NULL, 20 * MIB);
  give(d, large);

  const tide_block block = take(d, NULL, 18 * MIB);

  T_CHECK(block.address != large.address);
  T_EQ(current(d, segment), 2);
  T_EQ(segment_bytes_around(d, block), 18 * MIB);
}

TORCH_TEST(test_device__oversize_requests_leave_blocks_20_mib_larger_alone) {
  (void)m;
  configure(d, "max_split_size_mb:20");
  const tide_block large = take(d, NULL, 44 * MIB);
  give(d, large);

  T_CHECK(take(d, NULL, 24 * MIB).address != large.address);  // 20 MiB too large
  T_PTR_EQ(take(d, NULL, 24 * MIB + 512).address, large.address);
}

DEVICE_TEST(test_device__excess_of_oversize_requests_can_be_chosen) {
  (void)m;
  configure(d, "max_split_size_mb:20,max_non_split_rounding_mb:40");
  const tide_block large = take(d, NULL, 60 * MIB);
  give(d, large);

  const tide_block block = take(d, NULL, 20 * MIB + 512);

  T_PTR_EQ(block.address, large.address);
}

DEVICE_TEST(test_device__without_max_split_size_large_blocks_are_split) {
  (void)m;
  const tide_block large = take(d, NULL, 60 * MIB);
  give(d, large);

  T_PTR_EQ(take(d, NULL, 2 * MIB).address, large.address);

  T_EQ(current(d, reserved_bytes), 60 * MIB);
}

// ---------------------------------------------------------------------------------------------------
// Pools that do not split, and sizes as text

DEVICE_TEST(test_device__no_split_pools_have_one_block_in_each_segment) {
  (void)m;
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
