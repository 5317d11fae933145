// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What other code does to the machine beside the allocator: streams that it captures at any moment, without a
// scope, and waits that the machine then refuses.
#include "device/devices.h"

#define BYTES (6 * MIB)

static void others_begin(tide_machine* m, tide_stream stream, tide_capture_mode mode) {
  T_OK(tide_machine_capture_begin(m, 0, stream, mode));
}

// The capture is whole: nothing that the allocator did has broken it.
static void others_end(tide_machine* m, tide_stream stream) {
  tide_launch graph = NULL;
  T_OK(tide_machine_capture_end(m, 0, stream, &graph));
  T_OK(tide_machine_launch_free(m, graph));
}

// ---------------------------------------------------------------------------------------------------
// Blocks that are released while other code captures a stream they were announced to

// A block of the legacy stream that `side` uses, released while other code captures that.
static tide_block release_in_capture(tide_machine* m, tide_device* d, tide_stream own, tide_stream side) {
  const tide_block block = take(d, own, BYTES);
  announce(d, block, side);
  others_begin(m, side, TIDE_CAPTURE_RELAXED);
  give(d, block);
  const int64_t before = current(d, active);
  T_OK(tide_device_poll(d));
  T_EQ(current(d, active), before);  // the work before the capture may still run
  return block;
}

DEVICE_TEST(test_device__a_block_released_in_a_capture_of_others_is_free_when_that_is_over) {
  const tide_stream own = side_new(m);
  const tide_stream side = side_new(m);
  const tide_block block = release_in_capture(m, d, own, side);

  others_end(m, side);
  stream_finish(m, 0, side);
  T_OK(tide_device_poll(d));

  T_EQ(current(d, active), 0);
  T_PTR_EQ(take(d, own, BYTES).address, block.address);
}

DEVICE_TEST(test_device__a_block_released_in_a_capture_of_others_waits_for_the_work_before_it) {
  const tide_stream own = side_new(m);
  const tide_stream side = side_new(m);
  gate g;
  const tide_block block = take(d, own, BYTES);
  hold_up(&g, m, side);
  announce(d, block, side);
  others_begin(m, side, TIDE_CAPTURE_RELAXED);
  give(d, block);
  others_end(m, side);

  T_OK(tide_device_poll(d));
  T_EQ(current(d, active), 1);
  let_go(&g);
  T_OK(tide_device_poll(d));

  T_EQ(current(d, active), 0);
}

DEVICE_TEST(test_device__memory_of_a_capture_of_others_comes_back_under_pressure) {
  const tide_stream own = side_new(m);
  const tide_stream side = side_new(m);
  limit_to(d, 24 * MIB);
  (void)release_in_capture(m, d, own, side);
  others_end(m, side);

  give(d, take(d, own, 24 * MIB));

  trim(d);
  T_EQ(current(d, reserved_bytes), 0);
}

DEVICE_TEST(test_device__trim_gives_back_what_no_capture_of_others_has) {
  const tide_stream own = side_new(m);
  const tide_stream side = side_new(m);
  const tide_stream third = side_new(m);
  const tide_block other = take(d, own, 30 * MIB);
  announce(d, other, third);
  (void)release_in_capture(m, d, own, side);
  work_slowly(m, third);
  give(d, other);

  trim(d);

  T_EQ(current(d, active), 1);
  T_LE(current(d, reserved_bytes), 20 * MIB);  // the segment of the block that waits
  others_end(m, side);
  trim(d);
  T_EQ(current(d, reserved_bytes), 0);
}

DEVICE_TEST(test_device__an_invalid_capture_of_others_holds_a_block_until_it_is_ended) {
  const tide_stream own = side_new(m);
  const tide_stream side = side_new(m);
  bool is_idle = false;
  tide_launch graph = NULL;
  const tide_block block = take(d, own, BYTES);
  announce(d, block, side);
  others_begin(m, side, TIDE_CAPTURE_RELAXED);
  T_STATUS(tide_machine_stream_query(m, 0, side, &is_idle), TIDE_ERR_CAPTURE);  // which breaks it
  give(d, block);

  T_OK(tide_device_poll(d));
  T_EQ(current(d, active), 1);
  T_STATUS(tide_machine_capture_end(m, 0, side, &graph), TIDE_ERR_CAPTURE);
  stream_finish(m, 0, side);
  T_OK(tide_device_poll(d));

  T_EQ(current(d, active), 0);
}

DEVICE_TEST(test_device__looking_for_work_that_is_done_breaks_no_capture_of_others) {
  const tide_stream own = side_new(m);
  const tide_stream side = side_new(m);
  const tide_stream captured = side_new(m);
  const tide_block block = take(d, own, BYTES);
  const tide_block idle = take(d, own, BYTES);
  announce(d, block, side);
  give(d, block);
  give(d, idle);
  stream_finish(m, 0, side);

  others_begin(m, captured, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_device_poll(d));
  T_EQ(current(d, active), 0);
  (void)take(d, own, BYTES);

  others_end(m, captured);
}
