// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Expandable segments: how they grow, what a trim unmaps, and how they work beside raw segments.
#define T_THREADS
#include "device/devices.h"

// ---------------------------------------------------------------------------------------------------
// Growing

TORCH_TEST(test_device__an_expandable_segment_grows_at_its_end_and_keeps_contents) {
  expand(m, d);
  const tide_block a = take(d, NULL, 20 * MIB);
  device_fill(m, 0, bytes_of(a), 1, 20 * MIB);
  const tide_block b = take(d, NULL, 40 * MIB);
  device_fill(m, 0, bytes_of(b), 2, 40 * MIB);

  T_PTR_EQ(b.address, bytes_of(a) + 20 * MIB);
  T_EQ(count_segments(d), 1);
  T_EQ(segment_bytes_around(d, a), 60 * MIB);
  T_EQ(calls(m, TIDE_CALL_ADDRESS_RESERVE), 1);
  expect_filled(m, 0, bytes_of(a), 1, 20 * MIB);
  expect_filled(m, 0, bytes_of(b), 2, 40 * MIB);
}

TORCH_TEST(test_device__memory_is_mapped_in_handles_of_2_and_20_mib) {
  expand(m, d);

  (void)take(d, NULL, 512);
  T_EQ(stats_of(d).reserved_bytes[TIDE_STAT_SMALL].current, 2 * MIB);
  (void)take(d, NULL, 20 * MIB - 512);  // the rest is split off
  T_EQ(stats_of(d).allocated_bytes[TIDE_STAT_LARGE].current, 20 * MIB - 512);
  (void)take(d, NULL, 22 * MIB);

  T_EQ(stats_of(d).reserved_bytes[TIDE_STAT_LARGE].current, 60 * MIB);
  T_EQ(calls(m, TIDE_CALL_PHYSICAL_NEW), 4);
  T_EQ(counter(d, num_device_alloc), 3);
  T_EQ(current(d, segment), 0);  // not counted
  T_EQ(current(d, inactive_split), 0);
  T_EQ(current(d, inactive_split_bytes), 0);
}

TORCH_TEST(test_device__an_idle_end_grows_by_what_is_missing) {
  expand(m, d);
  const tide_block first = take(d, NULL, 20 * MIB);
  give(d, first);

  const tide_block second = take(d, NULL, 30 * MIB);

  T_PTR_EQ(second.address, first.address);
  T_EQ(current(d, reserved_bytes), 40 * MIB);
}

TORCH_TEST(test_device__holes_are_preferred_to_the_growing_end) {
  expand(m, d);
  const tide_block hole = take(d, NULL, 40 * MIB);
  (void)take(d, NULL, 20 * MIB);
  const tide_block end = take(d, NULL, 20 * MIB);
  give(d, hole);
  give(d, end);

  const tide_block block = take(d, NULL, 15 * MIB);  // the end is the smaller one, but can grow

  T_PTR_EQ(block.address, hole.address);
}

TORCH_TEST(test_device__each_stream_has_its_expandable_segments) {
  const tide_stream side = side_new(m);
  expand(m, d);

  const tide_block a = take(d, NULL, 5 * MIB);
  const tide_block b = take(d, side, 5 * MIB);
  const tide_block c = take(d, NULL, 5 * MIB);

  T_PTR_EQ(c.address, bytes_of(a) + 5 * MIB);
  T_EQ(count_segments(d), 2);
  T_EQ(segment_bytes_around(d, b), 20 * MIB);
}

TORCH_TEST(test_device__a_machine_without_memory_undoes_what_was_mapped) {
  tide_fault fault = TIDE_FAULT_INIT;
  expand(m, d);
  fault.call = TIDE_CALL_PHYSICAL_NEW;
  fault.skip = 1;
  fault.count = 2;
  T_OK(tide_machine_fault_add(m, &fault));

  expect_oom(d, NULL, 44 * MIB);  // of three handles the second fails, twice
  T_EQ(current(d, reserved_bytes), 0);

  (void)take(d, NULL, 44 * MIB);
  T_EQ(current(d, reserved_bytes), 60 * MIB);
}

// ---------------------------------------------------------------------------------------------------
// Unmapping

TORCH_TEST(test_device__trim_unmaps_holes_which_are_filled_again) {
  expand(m, d);
  tide_block blocks[3];
  for (uint8_t i = 0; i < 3; ++i) {
    blocks[i] = take(d, NULL, 20 * MIB);
    device_fill(m, 0, bytes_of(blocks[i]), i, 20 * MIB);
  }

  give(d, blocks[1]);
  expect_trimmed(d, 40 * MIB);
  T_EQ(count_segments(d), 2);  // two runs with a gap
  T_EQ(counter(d, num_device_free), 1);
  T_PTR_EQ(take(d, NULL, 20 * MIB).address, blocks[1].address);
  T_EQ(count_segments(d), 1);
  device_fill(m, 0, bytes_of(blocks[1]), 1, 20 * MIB);

  for (uint8_t i = 0; i < 3; ++i) expect_filled(m, 0, bytes_of(blocks[i]), i, 20 * MIB);
}

TORCH_TEST(test_device__only_whole_handles_are_unmapped) {
  expand(m, d);
  const tide_block a = take(d, NULL, 5 * MIB);
  const tide_block b = take(d, NULL, 35 * MIB);  // from 5 to 40 MiB: one whole handle
  give(d, b);

  expect_trimmed(d, 20 * MIB);
  T_EQ(segment_bytes_around(d, a), 20 * MIB);
  T_PTR_EQ(take(d, NULL, 15 * MIB).address, b.address);
}

TORCH_TEST(test_device__a_segment_without_memory_gives_its_addresses_back) {
  expand(m, d);
  const tide_block a = take(d, NULL, 30 * MIB);
  give(d, a);

  expect_trimmed(d, 0);
  T_EQ(count_segments(d), 0);
  T_EQ(calls(m, TIDE_CALL_ADDRESS_RELEASE), 1);
}

static void release_and_trim_behind_work(tide_machine* m, tide_device_cache* d, size_t bytes) {
  const tide_stream side = side_new(m);
  const tide_block block = take(d, side, bytes);
  work_slowly(m, side);
  paint(m, side, block, 4, bytes);
  give(d, block);

  trim(d);

  stream_finish(m, 0, side);  // would report work that came too late
  T_OK(tide_machine_device_synchronize(m, 0));
  T_EQ(current(d, reserved_bytes), 0);
}

TORCH_TEST(test_device__giving_memory_back_waits_for_the_work_of_the_stream) {
  release_and_trim_behind_work(m, d, 20 * MIB);
  expand(m, d);
  release_and_trim_behind_work(m, d, 20 * MIB);
}

TORCH_TEST(test_device__pressure_unmaps_what_other_streams_left_idle) {
  const tide_stream side = side_new(m);
  expand(m, d);
  limit_to(d, 60 * MIB);
  give(d, take(d, side, 40 * MIB));

  (void)take(d, NULL, 40 * MIB);

  T_EQ(current(d, reserved_bytes), 40 * MIB);
  T_EQ(counter(d, num_ooms), 0);
}

// ---------------------------------------------------------------------------------------------------
// Beside other options

TORCH_TEST(test_device__expandable_segments_can_be_switched_on_and_off) {
  expand(m, d);
  const tide_block growing = take(d, NULL, 20 * MIB);
  give(d, growing);

  configure(d, "expandable_segments:False");  // then expandable blocks are left alone
  const tide_block plain = take(d, NULL, 20 * MIB);
  T_CHECK(plain.address != growing.address);
  T_EQ(current(d, segment), 1);
  configure(d, "expandable_segments:True");
  T_PTR_EQ(take(d, NULL, 20 * MIB).address, growing.address);
  give(d, plain);
  const tide_block again = take(d, NULL, 20 * MIB);
  T_PTR_EQ(again.address, plain.address);  // ordinary ones are still used
  configure(d, "expandable_segments:False");
  T_OK(tide_device_release_address(d, growing.address));
  give(d, again);

  expect_trimmed(d, 0);
}

TORCH_TEST(test_device__max_split_size_with_expandable_segments_under_a_limit) {
  tide_block blocks[3];
  need_virtual(m);
  configure(d, "expandable_segments:True,max_split_size_mb:40");
  limit_to(d, 120 * MIB);
  for (size_t i = 0; i < 3; ++i) blocks[i] = take(d, NULL, 40 * MIB);

  expect_oom(d, NULL, 40 * MIB);
  for (size_t i = 0; i < 3; ++i) give(d, blocks[i]);

  (void)take(d, NULL, 120 * MIB);
  T_EQ(counter(d, num_ooms), 1);
}

TORCH_TEST(test_device__collection_leaves_expandable_blocks_alone) {
  need_virtual(m);
  limit_to(d, 120 * MIB);
  const tide_block plain = take(d, NULL, 30 * MIB);
  configure(d, "expandable_segments:True,garbage_collection_threshold:0.1");
  const tide_block growing = take(d, NULL, 20 * MIB);
  (void)take(d, NULL, 20 * MIB);  // so that it cannot grow
  give(d, growing);
  give(d, plain);

  (void)take(d, NULL, 36 * MIB);

  T_EQ(current(d, segment), 0);
  T_EQ(counter(d, num_device_free), 1);
  T_EQ(current(d, reserved_bytes), 80 * MIB);
}

TORCH_TEST(test_device__large_segment_size_is_the_size_of_handles) {
  need_virtual(m);
  configure(d, "expandable_segments:True,large_segment_size_mb:40");

  (void)take(d, NULL, 5 * MIB);

  T_EQ(current(d, reserved_bytes), 40 * MIB);
}

TORCH_TEST(test_device__hands_out_expandable_memory_at_an_address) {
  expand(m, d);
  const tide_block whole = take(d, NULL, 10 * MIB);
  tide_block block = { NULL, 0 };
  give(d, whole);

  T_OK(tide_device_alloc_at(d, NULL, 3 * MIB, bytes_of(whole) + 5 * MIB, &block));

  T_PTR_EQ(block.address, bytes_of(whole) + 5 * MIB);
  device_fill(m, 0, bytes_of(block), 1, 3 * MIB);
  T_PTR_EQ(take(d, NULL, 5 * MIB).address, whole.address);
}
