// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Sizes of the pinned-host cache: rounding, how much is really pinned, which requests share a chunk,
// and which are refused.
#define T_THREADS
#include "pinned/pinneds.h"

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static size_t up_to(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

// ---------------------------------------------------------------------------------------------------
// Classes

PINNED_TEST_OVER(test_pinned_sizes__up_to_4_kib_are_multiples_of_512, machine_dry) {
  (void)m;
  for (size_t bytes = 1; bytes <= 4 * KIB; ++bytes) T_EQ(tide_pinned_round(p, bytes), up_to(bytes, 512));
}

PINNED_TEST_OVER(test_pinned_sizes__slack_is_an_eighth_at_most, machine_dry) {
  (void)m;
  size_t before = 0;
  for (size_t bytes = 4 * KIB; bytes <= 64 * MIB; bytes += 127) {
    const size_t rounded = tide_pinned_round(p, bytes);
    T_LE(bytes, rounded);
    T_LE((rounded - bytes) * 8, bytes);
    T_EQ(rounded % 512, 0);
    T_LE(before, rounded);
    if (rounded != before) T_EQ(tide_pinned_round(p, rounded), rounded);
    before = rounded;
  }
}

PINNED_TEST_OVER(test_pinned_sizes__a_doubling_has_eight_classes, machine_dry) {
  (void)m;
  for (size_t low = 4 * KIB; low < 64 * MIB; low *= 2) {
    size_t at = low;
    for (int i = 0; i < 8; ++i) {
      T_EQ(tide_pinned_round(p, at), at);
      at = tide_pinned_round(p, at + 1);
    }
    T_EQ(at, 2 * low);
  }
}

PINNED_TEST_OVER(test_pinned_sizes__above_64_mib_are_whole_2_mib_pages, machine_dry) {
  (void)m;
  T_EQ(tide_pinned_round(p, 64 * MIB), 64 * MIB);
  T_EQ(tide_pinned_round(p, 64 * MIB + 1), 66 * MIB);
  for (size_t bytes = 64 * MIB + 1; bytes < 8 * GIB; bytes += bytes / 97 + 1) {
    T_EQ(tide_pinned_round(p, bytes), up_to(bytes, 2 * MIB));
  }
}

PINNED_TEST_OVER(test_pinned_sizes__nothing_and_too_much_round_to_nothing, machine_dry) {
  (void)m;
  T_EQ(tide_pinned_round(p, 0), 0);
  T_EQ(tide_pinned_round(p, (size_t)1 << 60), 0);
  T_EQ(tide_pinned_round(p, (size_t)1 << 63), 0);
  T_EQ(tide_pinned_round(p, SIZE_MAX), 0);
  T_EQ(tide_pinned_round(p, ((size_t)1 << 60) - 1), (size_t)1 << 60);
}

PINNED_TEST_WITH(test_pinned_sizes__powers_of_two, machine_dry, with_powers) {
  (void)m;
  for (size_t bytes = 512; bytes < (size_t)1 << 40; bytes *= 2) {
    T_EQ(tide_pinned_round(p, bytes), bytes);
    T_EQ(tide_pinned_round(p, bytes + 1), 2 * bytes);
    T_EQ(tide_pinned_round(p, bytes + bytes / 3), 2 * bytes);
  }
}

// ---------------------------------------------------------------------------------------------------
// What is really pinned

PINNED_TEST_OVER(test_pinned_sizes__single_blocks_pin_no_more_than_their_class, machine_dry) {
  for (size_t bytes = 32 * KIB; bytes < 256 * MIB; bytes += bytes / 7 + 1) {
    const tide_block block = take(p, bytes);
    const tide_pointer_info info = pointer_info(m, block.address);
    T_PTR_EQ(info.base, block.address);
    T_EQ(info.bytes, tide_pinned_round(p, bytes));
    give(p, block);
  }
}

// ---------------------------------------------------------------------------------------------------
// Small requests share chunks

PINNED_TEST_OVER(test_pinned_sizes__512_bytes_do_not_cost_a_page_lock_each, machine_emulated) {
  enum { REQUESTS = 1000 };
  const uint64_t before = calls_made(m, TIDE_CALL_PINNED_ALLOC);

  for (size_t i = 0; i < REQUESTS; ++i) (void)take(p, 512);

  T_LE((calls_made(m, TIDE_CALL_PINNED_ALLOC) - before) * 16, REQUESTS);
  T_LE(current(p, reserved_bytes), REQUESTS * 512 + 2 * MIB);
}

PINNED_TEST(test_pinned_sizes__blocks_below_32_kib_share_a_piece) {
  (void)m;
  (void)take(p, 1000);
  (void)take(p, 1000);

  T_EQ(current(p, segments), 1);
  T_EQ(counter(p, num_host_alloc), 1);
}

PINNED_TEST(test_pinned_sizes__blocks_from_32_kib_on_have_their_own) {
  (void)m;
  (void)take(p, 32 * KIB);
  (void)take(p, 32 * KIB);

  T_EQ(current(p, segments), 2);
  T_EQ(counter(p, num_host_alloc), 2);
  T_EQ(current(p, reserved_bytes), 64 * KIB);
}

PINNED_TEST_WITH(test_pinned_sizes__powers_of_two_are_pinned_one_by_one, machine_names, with_powers) {
  (void)m;
  (void)take(p, 1000);
  (void)take(p, 1000);

  T_EQ(current(p, segments), 2);
  T_EQ(counter(p, num_host_alloc), 2);
  T_EQ(current(p, allocations), 2);
}

// Blocks of all small classes, from several chunks each, do not overlap and keep their bytes.
PINNED_TEST_OVER(test_pinned_sizes__small_blocks_do_not_overlap, machine_host) {
  enum { COUNT = 4000 };
  static tide_block blocks[COUNT];
  static size_t sizes[COUNT];
  t_rng rng = t_rng_new(2);
  for (size_t i = 0; i < COUNT; ++i) {
    sizes[i] = 1 + t_rng_below(&rng, i % 4 == 0 ? 30 * KIB : 3 * KIB);
    blocks[i] = take(p, sizes[i]);
    paint(m, blocks[i], (uint8_t)(i % 251), tide_pinned_round(p, sizes[i]));
  }
  for (size_t i = 0; i < COUNT; ++i) {
    T_FILLED(blocks[i].address, (uint8_t)(i % 251), tide_pinned_round(p, sizes[i]));
    give(p, blocks[i]);
  }

  empty(p);

  expect_nothing_left(p);
}

// A released small block of one class does not serve another class before its chunk is idle.
PINNED_TEST(test_pinned_sizes__a_class_has_its_own_blocks) {
  (void)m;
  const tide_block small = take(p, 512);
  give(p, small);

  const tide_block larger = take(p, 2 * KIB);
  const tide_block again = take(p, 512);

  T_CHECK(!is_same_memory(small, larger));
  T_PTR_EQ(again.address, small.address);
}

// ---------------------------------------------------------------------------------------------------
// Thresholds

static void with_round_limit(tide_pinned_options* options) { options->max_round_bytes = 1 * MIB; }

PINNED_TEST_WITH(test_pinned_sizes__above_the_round_limit_whole_pages_suffice, machine_names,
                 with_round_limit) {
  (void)m;
  T_EQ(tide_pinned_round(p, 1 * MIB), 1 * MIB);
  T_EQ(tide_pinned_round(p, 1 * MIB - 1), 1 * MIB);
  T_EQ(tide_pinned_round(p, 1 * MIB + 1), 1 * MIB + page_bytes());
  T_EQ(tide_pinned_round(p, 3 * MIB + 77), up_to(3 * MIB + 77, page_bytes()));
  T_EQ(tide_pinned_round(p, 100 * MIB + 1), 100 * MIB + page_bytes());

  (void)take(p, 3 * MIB + 77);

  T_EQ(current(p, allocated_bytes), up_to(3 * MIB + 77, page_bytes()));
}

PINNED_TEST_WITH(test_pinned_sizes__blocks_above_the_round_limit_are_cached, machine_names,
                 with_round_limit) {
  (void)m;
  const tide_block block = take(p, 2 * MIB + 1);
  give(p, block);

  const tide_block again = take(p, 2 * MIB + 1);

  T_PTR_EQ(again.address, block.address);
  T_EQ(counter(p, num_host_alloc), 1);
}

static void with_block_limit(tide_pinned_options* options) { options->max_block_bytes = 1 * MIB; }

PINNED_TEST_WITH(test_pinned_sizes__blocks_above_the_block_limit_go_back_at_release, machine_names,
                 with_block_limit) {
  (void)m;
  T_EQ(tide_pinned_round(p, 1 * MIB + 1), 1 * MIB + page_bytes());
  const tide_block large = take(p, 1 * MIB + 1);
  const tide_block small = take(p, 1 * MIB);

  give(p, large);
  give(p, small);

  T_EQ(counter(p, num_host_free), 1);
  T_EQ(current(p, allocated_bytes), 1 * MIB);
  T_EQ(current(p, active_bytes), 0);
}

PINNED_TEST_WITH(test_pinned_sizes__blocks_above_the_block_limit_wait_first, machine_names,
                 with_block_limit) {
  const tide_stream stream = side_new(m);
  gate g;
  const tide_block block = take(p, 2 * MIB);
  announce(p, block, stream);
  hold_up(&g, m, stream);
  give(p, block);
  poll_all(p);
  T_EQ(counter(p, num_host_free), 0);
  T_EQ(current(p, waiting_bytes), 2 * MIB);

  let_go(&g);
  poll_all(p);

  T_EQ(counter(p, num_host_free), 1);
  expect_nothing_left(p);
}

// ---------------------------------------------------------------------------------------------------
// Refusals

PINNED_TEST(test_pinned_sizes__too_much_is_refused) {
  (void)m;
  static const size_t sizes[] = { (size_t)1 << 60,       ((size_t)1 << 60) + 1, (size_t)1 << 63,
                                  ((size_t)1 << 63) + 1, SIZE_MAX - 4095,       SIZE_MAX };
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    T_STATUS(try_take(p, sizes[i]), TIDE_ERR_ARGUMENT);
  }
  expect_nothing_left(p);
  T_EQ(counter(p, num_ooms), 0);
}

PINNED_TEST_OVER(test_pinned_sizes__almost_too_much_is_out_of_memory, machine_emulated) {
  (void)m;
  T_STATUS(try_take(p, ((size_t)1 << 60) - 1), TIDE_ERR_NO_MEMORY);
  T_EQ(counter(p, num_ooms), 1);
  expect_nothing_left(p);
}

PINNED_TEST_WITH(test_pinned_sizes__almost_too_much_is_no_overflow_in_any_mode, machine_dry, with_powers) {
  (void)m;
  for (unsigned power = 48; power <= 64; ++power) {
    const size_t bytes = power == 64 ? SIZE_MAX : ((size_t)1 << power) - 1;
    const size_t rounded = tide_pinned_round(p, bytes);
    T_CHECK(power > 60 ? rounded == 0 : rounded == (size_t)1 << power);
    const tide_status status = try_take(p, bytes);
    if (power > 60) T_STATUS(status, TIDE_ERR_ARGUMENT);
  }
}

PINNED_TEST(test_pinned_sizes__no_bytes_are_nothing) {
  (void)m;
  tide_block block = { (void*)1, 1 };

  T_OK(tide_pinned_alloc(p, 0, &block));

  T_PTR_EQ(block.address, NULL);
  give(p, block);
  give(p, block);
  expect_nothing_left(p);
}
