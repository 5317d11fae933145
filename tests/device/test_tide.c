// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The policy `tide`, which maps idle memory together. A page may have several addresses but counts once,
// blocks never share bytes, and views stay and serve again. Other files test what both policies promise, and
// prop_faults.c tests faults of the machine and of the heap.
//
// A comb is a row of equal blocks, every other one released. Only stitching can serve a large request from
// its holes.
#define T_THREADS
#include "device/devices.h"

// ---------------------------------------------------------------------------------------------------
// Tests

#define TIDE_TEST(function) DEVICE_TEST_OVER(function, device_tide)

// Another allocator on the same device, or one on a machine of its own.
static tide_device_cache* tide_new(tide_machine* m, const tide_heap* heap) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  tide_device_cache* d = NULL;
  options.policy = TIDE_POLICY_TIDE;
  options.tide_stitch_share = 1;  // how fast the computer is decides nothing
  options.heap = heap;
  T_OK(tide_device_new(m, 0, &options, &d));
  return d;
}

// ---------------------------------------------------------------------------------------------------
// What the tests share

// Calls of the machine that take or give memory or addresses.
static uint64_t memory_calls(const tide_machine* m) {
  static const tide_call kinds[] = { TIDE_CALL_RAW_ALLOC,
                                     TIDE_CALL_RAW_RELEASE,
                                     TIDE_CALL_ADDRESS_RESERVE,
                                     TIDE_CALL_ADDRESS_RELEASE,
                                     TIDE_CALL_PHYSICAL_NEW,
                                     TIDE_CALL_PHYSICAL_FREE,
                                     TIDE_CALL_MAP,
                                     TIDE_CALL_UNMAP,
                                     TIDE_CALL_SET_ACCESS };
  uint64_t sum = 0;
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; ++i) sum += calls(m, kinds[i]);
  return sum;
}

// A block and what is in it.
typedef struct painted {
  tide_block block;
  tide_stream stream;
  size_t bytes;
  uint8_t value;
} painted;

static painted painted_new(tide_machine* m, tide_device_cache* d, tide_stream stream, size_t bytes,
                           uint8_t value) {
  const painted p = { take(d, stream, bytes), stream, bytes, value };
  paint(m, stream, p.block, value, bytes);
  return p;
}

static void painted_expect(tide_machine* m, const painted* p) {
  stream_finish(m, 0, p->stream);
  expect_filled(m, 0, bytes_of(p->block), p->value, p->bytes);
}

#define COMB_HOLES 16

typedef struct comb {
  size_t holes;
  void* gaps[COMB_HOLES];  // where the released blocks were
  painted teeth[COMB_HOLES];
} comb;

// `holes` holes of `bytes` each, and a block behind each of them.
static comb comb_new(tide_machine* m, tide_device_cache* d, tide_stream stream, size_t holes, size_t bytes) {
  comb c = { .holes = holes };
  tide_block gaps[COMB_HOLES];
  T_LE(holes, COMB_HOLES);
  for (size_t i = 0; i < holes; ++i) {
    gaps[i] = take(d, stream, bytes);
    c.gaps[i] = gaps[i].address;
    c.teeth[i] = painted_new(m, d, stream, bytes, (uint8_t)(i + 1));
  }
  for (size_t i = 0; i < holes; ++i) give(d, gaps[i]);
  return c;
}

static void comb_expect(tide_machine* m, const comb* c) {
  for (size_t i = 0; i < c->holes; ++i) painted_expect(m, &c->teeth[i]);
}

static void comb_end(tide_device_cache* d, const comb* c) {
  for (size_t i = 0; i < c->holes; ++i) give(d, c->teeth[i].block);
}

// ---------------------------------------------------------------------------------------------------
// Stitching

TIDE_TEST(test_tide__a_block_is_stitched_of_idle_pieces_and_its_view_serves_again) {
  const tide_stream stream = side_new(m);
  const comb c = comb_new(m, d, stream, 4, 4 * MIB);
  const int64_t reserved = current(d, reserved_bytes);
  const uint64_t made = calls(m, TIDE_CALL_PHYSICAL_NEW);

  const painted p = painted_new(m, d, stream, 16 * MIB, 99);
  T_EQ(current(d, reserved_bytes), reserved);
  T_EQ(calls(m, TIDE_CALL_PHYSICAL_NEW), made);
  painted_expect(m, &p);
  comb_expect(m, &c);
  give(d, p.block);
  const uint64_t before = calls(m, TIDE_CALL_ANY);

  T_PTR_EQ(take(d, stream, 16 * MIB).address, p.block.address);
  T_EQ(calls(m, TIDE_CALL_ANY), before);
}

// How much memory is made for 20 MiB beside idle pieces of so many bytes in all?
static int64_t made_beside(tide_machine* m, size_t pieces, size_t bytes) {
  tide_device_cache* const d = device_with(m, "policy:tide,tide_idle_handles:0,tide_stitch_share:1");
  const comb c = comb_new(m, d, NULL, pieces, bytes);
  const int64_t before = current(d, reserved_bytes);
  (void)take(d, NULL, 20 * MIB);
  const int64_t made = current(d, reserved_bytes) - before;
  comb_expect(m, &c);
  tide_device_free(d);
  return made;
}

T_TEST(test_tide__a_view_that_saves_less_than_three_of_the_smallest_handles_is_not_made) {
  tide_machine* m = NULL;
  T_OK(tide_machine_new_host(NULL, &m));
  T_EQ(made_beside(m, 1, 2 * MIB), (int64_t)(20 * MIB));
  T_EQ(made_beside(m, 2, 2 * MIB), (int64_t)(20 * MIB));
  T_EQ(made_beside(m, 3, 2 * MIB), (int64_t)(14 * MIB));
  T_EQ(made_beside(m, 1, 8 * MIB), (int64_t)(12 * MIB));
  tide_machine_free(m);
}

// Idle are eight holes of 4 MiB except the fourth and the seventh, in this order in the view.
TIDE_TEST(test_tide__the_tightest_run_of_a_view_serves) {
  const tide_stream stream = side_new(m);
  tide_block fills[8];
  limit_to(d, 64 * MIB);
  const comb c = comb_new(m, d, stream, 8, 4 * MIB);
  const tide_block view = take(d, stream, 32 * MIB);
  give(d, view);
  for (size_t i = 0; i < 8; ++i) {
    fills[i] = take(d, stream, 4 * MIB);
    T_PTR_EQ(fills[i].address, c.gaps[i]);
  }
  for (size_t i = 0; i < 8; ++i) {
    if (i != 3 && i != 6) give(d, fills[i]);
  }
  const uint64_t before = memory_calls(m);

  const tide_block tight = take(d, stream, 7 * MIB);
  const tide_block loose = take(d, stream, 7 * MIB);
  T_PTR_EQ(tight.address, bytes_of(view) + 16 * MIB);
  T_PTR_EQ(loose.address, view.address);
  give(d, tight);
  give(d, loose);
  give(d, fills[3]);
  const tide_block middle = take(d, stream, 20 * MIB);
  T_PTR_EQ(middle.address, view.address);

  T_EQ(memory_calls(m), before);
  comb_expect(m, &c);
}

T_TEST(test_tide__a_view_serves_with_more_than_a_tib) {
  enum { COUNT = 8 };
  const size_t bytes = (size_t)160 << 30;
  tide_machine* m = dry_of((uint64_t)4 << 40);
  tide_device_cache* d = device_with(m, "policy:tide,tide_stitch_share:1,tide_slack:0,tide_idle_handles:0");
  tide_block blocks[COUNT];
  for (int i = 0; i < COUNT; ++i) blocks[i] = take(d, NULL, bytes);
  for (int i = 0; i < COUNT; ++i)
    if (i != COUNT / 2) give(d, blocks[i]);
  const int64_t reserved = current(d, reserved_bytes);

  const tide_block block = take(d, NULL, (COUNT - 1) * bytes);
  T_EQ(tide_device_check(d), 0);
  give(d, block);
  T_EQ(tide_device_check(d), 0);
  T_PTR_EQ(take(d, NULL, (COUNT - 1) * bytes).address, block.address);
  T_EQ(current(d, reserved_bytes), reserved);
  tide_device_free(d);
  tide_machine_free(m);
}

// The second of three blocks in the first handle of a view, whose memory is at home on another stream, is
// released. The hole touches no end of the handle.
TIDE_TEST(test_tide__a_hole_inside_a_handle_of_a_view_serves) {
  const tide_stream there = side_new(m);
  const tide_stream here = side_new(m);
  const tide_block idle = take(d, there, 16 * MIB);
  (void)take(d, here, 2 * MIB);
  give(d, idle);
  T_OK(tide_machine_device_synchronize(m, 0));
  limit_to(d, 18 * MIB);
  const tide_block view = take(d, here, 16 * MIB);
  give(d, view);
  const uint64_t before = memory_calls(m);

  const painted first = painted_new(m, d, here, 640 * KIB, 1);
  const tide_block second = take(d, here, 640 * KIB);
  const painted third = painted_new(m, d, here, 640 * KIB, 3);
  T_PTR_EQ(second.address, bytes_of(view) + 640 * KIB);
  give(d, second);
  const painted again = painted_new(m, d, here, 600 * KIB, 2);
  T_PTR_EQ(again.block.address, second.address);
  painted_expect(m, &first);
  painted_expect(m, &again);
  painted_expect(m, &third);
  T_EQ(memory_calls(m), before);
}

TIDE_TEST(test_tide__without_need_nothing_is_stitched) {
  const tide_stream stream = side_new(m);
  const uint64_t before = reservations(m);

  (void)take(d, stream, 8 * MIB);
  (void)take(d, stream, 24 * MIB);
  give(d, take(d, stream, 2 * MIB));
  (void)take(d, stream, 2 * MIB);

  T_EQ(reservations(m), before + 1);  // the home
  T_EQ(current(d, reserved_bytes), 34 * MIB);
}

// Sizes that are no multiples of a handle, so that stitched blocks begin and end inside of some.
static const size_t odd_sizes[] = { 3 * MIB,       5 * MIB,       MIB + 512 * KIB, 7 * MIB,
                                    3 * MIB + 512, 2 * MIB - 512, 9 * MIB,         MIB,
                                    6 * MIB,       5 * MIB + 4096 };
#define ODD_SIZES (sizeof odd_sizes / sizeof odd_sizes[0])

static void crowd_expect(tide_machine* m, const painted* crowd, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (crowd[i].block.address != NULL) painted_expect(m, &crowd[i]);
  }
}

TIDE_TEST(test_tide__blocks_that_share_a_handle_share_no_bytes) {
  const tide_stream stream = side_new(m);
  painted crowd[3 * ODD_SIZES] = { { .bytes = 0 } };
  uint8_t value = 0;

  for (size_t i = 0; i < 2 * ODD_SIZES; ++i) {
    crowd[i] = painted_new(m, d, stream, odd_sizes[i % ODD_SIZES], ++value);
  }
  for (size_t round = 0; round < 2; ++round) {
    size_t idle = 0;
    for (size_t i = round; i < 2 * ODD_SIZES; i += 3) {
      idle += crowd[i].bytes;
      give(d, crowd[i].block);
      crowd[i].block = block_none;
    }
    crowd[2 * ODD_SIZES] = painted_new(m, d, stream, idle / 2, ++value);
    crowd[2 * ODD_SIZES + 1] = painted_new(m, d, stream, idle / 3, ++value);
    crowd_expect(m, crowd, 3 * ODD_SIZES);
    for (size_t i = 0; i < 2; ++i) {
      give(d, crowd[2 * ODD_SIZES + i].block);
      crowd[2 * ODD_SIZES + i].block = block_none;
    }
    for (size_t i = round; i < 2 * ODD_SIZES; i += 3) {
      crowd[i] = painted_new(m, d, stream, odd_sizes[(i + 1) % ODD_SIZES], ++value);
    }
    crowd_expect(m, crowd, 3 * ODD_SIZES);
  }

  T_LT(1, reservations(m));
}

// ---------------------------------------------------------------------------------------------------
// A page counts once

TIDE_TEST(test_tide__a_page_counts_once_however_many_views_map_it) {
  const tide_stream streams[3] = { side_new(m), side_new(m), side_new(m) };
  for (size_t i = 0; i < 3; ++i) give(d, take(d, streams[i], 512));  // with two streams, releases leave marks
  const int64_t small = current(d, reserved_bytes);
  const size_t free_before = free_bytes(m, 0);
  (void)comb_new(m, d, streams[0], 4, 4 * MIB);
  const uint64_t views = reservations(m);

  for (size_t i = 0; i < 3; ++i) give(d, take(d, streams[i], 16 * MIB));

  T_LE(views + 3, reservations(m));
  T_EQ(current(d, reserved_bytes), small + (int64_t)(32 * MIB));
  T_EQ(pool_reserved(d, TIDE_POOL_DEFAULT), (uint64_t)small + 32 * MIB);
  if (!is_cuda(m)) T_EQ(free_before - free_bytes(m, 0), 32 * MIB);
}

TIDE_TEST(test_tide__a_trim_gives_all_memory_back_and_all_works_on) {
  const tide_stream stream = side_new(m);
  const tide_stream other = side_new(m);
  const size_t free_before = free_bytes(m, 0);
  const uint64_t ranges = reservations(m);

  for (int i = 0; i < 3; ++i) {
    const comb c = comb_new(m, d, stream, 5, 3 * MIB);
    give(d, take(d, stream, 12 * MIB));
    give(d, take(d, other, 9 * MIB));
    const painted p = painted_new(m, d, stream, 14 * MIB, 50);
    painted_expect(m, &p);
    comb_expect(m, &c);
    comb_end(d, &c);
    give(d, p.block);
    trim(d);
    const tide_device_stats stats = stats_of(d);
    for (int kind = 0; kind < TIDE_STAT_KINDS; ++kind) {
      T_EQ(stats.reserved_bytes[kind].current, 0);
      T_EQ(stats.active_bytes[kind].current, 0);
      T_EQ(stats.allocated_bytes[kind].current, 0);
      T_EQ(stats.reserved_bytes[kind].allocated, stats.reserved_bytes[kind].freed);
    }
    T_EQ(reservations(m), ranges);
    if (!is_cuda(m)) T_EQ(free_bytes(m, 0), free_before);
  }
}

// ---------------------------------------------------------------------------------------------------
// Addresses

static void expect_no_block_at(tide_device_cache* d, void* address) {
  tide_block found = block_none;
  T_STATUS(tide_device_find(d, address, &found), TIDE_ERR_HANDLE);
  T_STATUS(tide_device_release_address(d, address), TIDE_ERR_HANDLE);
}

TIDE_TEST(test_tide__a_stitched_block_is_found_by_its_address) {
  const tide_stream stream = side_new(m);
  const comb c = comb_new(m, d, stream, 4, 4 * MIB);
  const painted p = painted_new(m, d, stream, 16 * MIB, 77);
  tide_block found = block_none;

  T_OK(tide_device_find(d, p.block.address, &found));
  T_PTR_EQ(found.address, p.block.address);
  T_EQ(found.handle, p.block.handle);
  for (size_t i = 512; i < 16 * MIB; i += MIB + 512) expect_no_block_at(d, bytes_of(p.block) + i);
  const tide_block other = take(d, stream, 4 * MIB);
  for (size_t i = 0; i < c.holes; ++i) {  // the memory is lent, and not handed out at its home
    expect_no_block_at(d, c.gaps[i]);
    T_CHECK(other.address != c.gaps[i]);
  }
  give(d, other);
  painted_expect(m, &p);
  T_EQ(current(d, allocated_bytes), 32 * MIB);
  T_OK(tide_device_release_address(d, p.block.address));
  T_EQ(current(d, allocated_bytes), 16 * MIB);
  expect_no_block_at(d, p.block.address);
  T_STATUS(tide_device_release(d, p.block), TIDE_ERR_HANDLE);
  (void)take(d, stream, 16 * MIB);

  T_STATUS(tide_device_release(d, p.block), TIDE_ERR_HANDLE);  // its handle is of the earlier allocation
}

TIDE_TEST(test_tide__memory_is_mapped_at_home_when_it_is_used_there) {
  const tide_stream stream = side_new(m);
  const tide_block first = take(d, stream, 3 * MIB);  // in a view: one MiB more would be wasted at home
  const tide_block tail = take(d, stream, MIB);
  give(d, first);
  give(d, tail);
  uint8_t* const home = (uint8_t*)tail.address - 3 * MIB;

  const tide_block block = take(d, stream, 4 * MIB);

  T_PTR_EQ(block.address, home);
  paint(m, stream, block, 5, 4 * MIB);
  stream_finish(m, 0, stream);
  expect_filled(m, 0, bytes_of(block), 5, 4 * MIB);
}

// ---------------------------------------------------------------------------------------------------
// Trimming

TIDE_TEST(test_tide__a_trim_keeps_the_contents_of_stitched_blocks) {
  const tide_stream stream = side_new(m);
  const comb c = comb_new(m, d, stream, 6, 3 * MIB);
  const painted p = painted_new(m, d, stream, 13 * MIB, 60);
  const painted q = painted_new(m, d, stream, 30 * MIB, 61);
  give(d, q.block);

  trim(d);

  T_CHECK(current(d, reserved_bytes) <= (int64_t)(36 * MIB));
  painted_expect(m, &p);
  comb_expect(m, &c);
  device_expect_valid(d);
  const painted r = painted_new(m, d, stream, 30 * MIB, 62);
  painted_expect(m, &p);
  painted_expect(m, &r);
  comb_expect(m, &c);
}

TIDE_TEST(test_tide__a_trim_takes_memory_from_a_view_that_holds_a_block) {
  const tide_stream stream = side_new(m);
  const comb c = comb_new(m, d, stream, 4, 4 * MIB);
  give(d, take(d, stream, 16 * MIB));
  const painted p = painted_new(m, d, stream, 5 * MIB, 70);  // in the same view
  const int64_t reserved = current(d, reserved_bytes);

  expect_trimmed(d, reserved - (int64_t)(10 * MIB));
  painted_expect(m, &p);
  device_expect_valid(d);
  give(d, p.block);
  const painted q = painted_new(m, d, stream, 16 * MIB, 71);
  painted_expect(m, &q);
  comb_expect(m, &c);
}

TIDE_TEST(test_tide__memory_that_a_view_lent_comes_home_after_a_trim) {
  const tide_stream stream = side_new(m);
  const comb c = comb_new(m, d, stream, 4, 4 * MIB);
  const tide_block stitched = take(d, stream, 16 * MIB);
  trim(d);
  give(d, stitched);
  const uint64_t before = calls(m, TIDE_CALL_ANY);

  for (size_t i = 0; i < c.holes; ++i) T_PTR_EQ(take(d, stream, 4 * MIB).address, c.gaps[i]);

  T_EQ(calls(m, TIDE_CALL_ANY), before);
}

TIDE_TEST(test_tide__growing_and_trimming_without_end) {
  const tide_stream stream = side_new(m);
  tide_block kept[40];
  const size_t count = sizeof kept / sizeof kept[0];

  for (size_t i = 0; i < count; ++i) {  // each keeps a page that lies behind what the trim gives back
    const tide_block passing = take(d, stream, 60 * MIB);
    kept[i] = take(d, stream, 2 * MIB);
    give(d, passing);
    trim(d);
    T_LE(current(d, reserved_bytes), (int64_t)((2 * i + 2) * MIB));
    device_expect_valid(d);
  }

  for (size_t i = 0; i < count; ++i) give(d, kept[i]);
  expect_trimmed(d, 0);
}

// ---------------------------------------------------------------------------------------------------
// The peak of live bytes

static uint64_t calls_of_a_tide(tide_machine* m, tide_device_cache* d, bool resets) {
  const tide_stream stream = side_new(m);
  const uint64_t before = memory_calls(m);
  const comb c = comb_new(m, d, stream, 8, 4 * MIB);
  comb_end(d, &c);
  if (resets) tide_device_reset_peaks(d);
  if (resets) tide_device_reset_accumulated(d);
  const comb e = comb_new(m, d, stream, 5, 6 * MIB);
  give(d, take(d, stream, 29 * MIB));
  comb_end(d, &e);
  T_LE(current(d, reserved_bytes), (int64_t)(65 * MIB));
  return memory_calls(m) - before;
}

TIDE_TEST(test_tide__resetting_the_peak_statistic_changes_no_decision) {
  const uint64_t plain = calls_of_a_tide(m, d, false);
  trim(d);
  tide_device_cache* const other = tide_new(m, NULL);

  const uint64_t reset = calls_of_a_tide(m, other, true);

  T_EQ(reset, plain);
  T_CHECK(stats_of(other).active_bytes[0].peak < stats_of(d).active_bytes[0].peak);
  tide_device_free(other);
}

TIDE_TEST(test_tide__the_peak_is_that_of_all_streams) {
  const tide_stream a = side_new(m);
  const tide_stream b = side_new(m);
  const tide_block first = take(d, a, 40 * MIB);
  (void)take(d, b, 20 * MIB);
  give(d, first);

  (void)take(d, b, 20 * MIB);
  (void)take(d, a, 20 * MIB);

  T_LE(current(d, reserved_bytes), (int64_t)(62 * MIB));
}

// ---------------------------------------------------------------------------------------------------
// Limits, and memory that is there in pieces

// How many handles a request is made of, when nothing is idle.
static uint64_t handles_of(tide_machine* m, tide_device_cache* d, uint64_t bytes) {
  const uint64_t before = calls(m, TIDE_CALL_PHYSICAL_NEW);
  (void)take(d, NULL, bytes);
  return calls(m, TIDE_CALL_PHYSICAL_NEW) - before;
}

T_TEST(test_tide__handles_grow_with_the_request_and_with_the_peak) {
  tide_machine* const m = dry_of(1024 * 64 * MIB);
  tide_device_cache* const d = device_with(m, "policy:tide");
  // 126 of 8 MiB, 1/120 of the peak, then 0.3 of what is left, rounded up: 6 of 16, and 4 of 10. At least
  // 1/240 of the peak: 4 of 6, and 2.
  T_EQ(handles_of(m, d, 1024 * MIB), 130);
  T_EQ(handles_of(m, d, 16 * MIB), 4);  // 6, 4, 4, 2: the square root of 1040 MiB * 8 KiB is 2.9 MiB
  (void)take(d, NULL, 4096 * MIB);
  T_EQ(handles_of(m, d, 16 * MIB), 2);  // of 8 MiB: the square root of 5152 MiB * 8 KiB is 6.3 MiB
  // 17 of 40 MiB, then 28, 20, 20 and 20. 0.28 * 768 * 768 / 5920 is 28 MiB, but 1/240 of what does not last,
  // without the 1024 MiB from the beginning, is 20.4 MiB.
  T_EQ(handles_of(m, d, 768 * MIB), 21);
  limit_to(d, 1024 * 32 * MIB);
  T_EQ(handles_of(m, d, 16 * MIB), 4);  // of 4 MiB, 1/1024 of 5936 MiB: with a limit, memory counts more
  tide_device_free(d);

  tide_device_cache* const small = device_with(m, "policy:tide,tide_most_handle_mb:4");
  T_EQ(handles_of(m, small, 4096 * MIB), 1024);
  T_EQ(handles_of(m, small, 16 * MIB), 4);
  tide_device_free(small);
  tide_machine_free(m);
}

// Weights of 6 MiB, of which none is ever released, are most of the memory. How many handles does a request
// get then?
static uint64_t handles_beside_weights(uint64_t bytes) {
  tide_machine* const m = dry_of(1024 * 64 * MIB);
  tide_device_cache* const d = device_with(m, "policy:tide");
  for (size_t i = 0; i < 200; i++) (void)take(d, NULL, 6 * MIB);
  const uint64_t handles = handles_of(m, d, bytes);
  tide_device_free(d);
  tide_machine_free(m);
  return handles;
}

T_TEST(test_tide__what_lasts_is_in_one_piece_and_other_handles_are_small_beside_it) {
  T_EQ(handles_beside_weights(6 * MIB), 1);
  T_EQ(handles_beside_weights(8 * MIB), 3);  // 4, 2, 2
}

// Blocks of 3 MiB that are there from the beginning, and holes of 4 and of 20 MiB. Is another block of 3 MiB
// put into the larger one? `is_released`: one of the first was released, and requested again. `others`: so
// many bytes were handed out at the peak, and are not now.
static bool is_put_into_larger(bool is_released, uint64_t others) {
  tide_machine* const m = dry_of(1024 * MIB);
  tide_device_cache* const d = tide_new(m, NULL);
  for (size_t i = 0; i < 9; i++) (void)take(d, NULL, 3 * MIB);
  const tide_block last = take(d, NULL, 3 * MIB);
  if (is_released) {
    give(d, last);
    (void)take(d, NULL, 3 * MIB);
  }
  const tide_block tight = take(d, NULL, 4 * MIB);
  (void)take(d, NULL, 1 * MIB);
  const tide_block large = take(d, NULL, 20 * MIB);
  (void)take(d, NULL, 1 * MIB);
  if (others > 0) give(d, take(d, NULL, others));
  give(d, tight);
  give(d, large);

  const tide_block block = take(d, NULL, 3 * MIB);
  const bool is_larger = block.address != tight.address;
  T_CHECK(!is_larger || block.address == large.address);
  tide_device_free(d);
  tide_machine_free(m);
  return is_larger;
}

T_TEST(test_tide__blocks_that_last_lie_side_by_side_if_they_are_most_of_the_memory) {
  T_CHECK(is_put_into_larger(false, 0));
  T_CHECK(!is_put_into_larger(true, 0));
  T_CHECK(!is_put_into_larger(false, 200 * MIB));
}

// The same with one hole of 4 MiB, and one block of 3 MiB that was released and requested again. Where in the
// hole is another block of 3 MiB put, if there is a block of `behind` bytes behind the hole? `all`: all of
// 3 MiB were released, and some requested again.
static uint64_t place_in_hole(uint64_t behind, uint64_t others, bool all) {
  tide_machine* const m = dry_of(1024 * MIB);
  tide_device_cache* const d = tide_new(m, NULL);
  tide_block first[10];
  for (size_t i = 0; i < 10; i++) first[i] = take(d, NULL, 3 * MIB);
  for (size_t i = all ? 0 : 9; i < 10; i++) give(d, first[i]);
  for (size_t i = all ? 5 : 9; i < 10; i++) (void)take(d, NULL, 3 * MIB);
  const tide_block hole = take(d, NULL, 4 * MIB);
  (void)take(d, NULL, behind);
  if (others > 0) give(d, take(d, NULL, others));
  give(d, hole);

  const uint64_t place = (uint64_t)((char*)take(d, NULL, 3 * MIB).address - (char*)hole.address);
  T_EQ(tide_device_check(d), 0);
  tide_device_free(d);
  tide_machine_free(m);
  return place;
}

T_TEST(test_tide__blocks_that_may_last_lie_beside_others_if_they_are_most_of_the_memory) {
  T_EQ(place_in_hole(3 * MIB, 0, false), 1 * MIB);
  T_EQ(place_in_hole(5 * MIB, 0, false), 0);          // no other block has this size
  T_EQ(place_in_hole(3 * MIB, 200 * MIB, false), 0);  // less than half is in use
  T_EQ(place_in_hole(3 * MIB, 0, true), 0);           // not all the time was a block of 3 MiB handed out
}

T_TEST(test_tide__the_largest_handles_are_a_part_of_what_does_not_last) {
  tide_machine* const m = dry_of(1024 * 64 * MIB);
  tide_device_cache* const d = device_with(m, "policy:tide");
  for (size_t i = 0; i < 8; i++) (void)take(d, NULL, 256 * MIB);
  // 126 of 16 MiB, 1/120 of the 2048 MiB that do not last, then 10, 8, 8 and 6.
  T_EQ(handles_of(m, d, 2048 * MIB), 130);
  for (size_t i = 0; i < 24; i++) (void)take(d, NULL, 256 * MIB);
  // 67 of 44 MiB, 1/300 of the peak, although all else lasts, then 38, 26, 22, 22 and 16.
  T_EQ(handles_of(m, d, 3072 * MIB), 72);
  give(d, take(d, NULL, 256 * MIB));
  give(d, take(d, NULL, 2048 * MIB));
  // A size that was released may be idle: five of 128 MiB, for 1024 MiB more, then 116, 82, 68, 68 and 50.
  T_EQ(handles_of(m, d, 3072 * MIB), 10);
  tide_device_free(d);
  tide_machine_free(m);
}

// The handles of a block of 64 MiB after so many weights of 32 MiB, if nothing else was requested.
static uint64_t handles_after_weights(size_t count, uint64_t limit) {
  tide_machine* const m = dry_of(1024 * 64 * MIB);
  tide_device_cache* const d = device_with(m, "policy:tide");
  if (limit > 0) limit_to(d, limit);
  for (size_t i = 0; i < count; i++) (void)take(d, NULL, 32 * MIB);
  const uint64_t handles = handles_of(m, d, 64 * MIB);
  tide_device_free(d);
  tide_machine_free(m);
  return handles;
}

T_TEST(test_tide__the_first_blocks_after_the_weights_have_few_handles) {
  T_EQ(handles_after_weights(31, 0), 17);  // 15 of 4 MiB, then 2: it is not known yet that these are weights
  T_EQ(handles_after_weights(32, 0), 7);   // 16, 16, 10, 8, 6, 4, 4: at least a sixteenth
  T_EQ(handles_after_weights(32, 8192 * MIB), 32);
}

// Views that are made for a large block within the slack, although some memory is idle, behind so many small
// ones that are idle too.
static uint64_t views_behind_small_blocks(size_t count) {
  tide_machine* const m = dry_of(1024 * 64 * MIB);
  tide_device_cache* const d = tide_new(m, NULL);
  tide_block small[256];
  T_LE(count, sizeof small / sizeof small[0]);
  for (size_t i = 0; i < count; i++) small[i] = take(d, NULL, 384 * KIB);
  for (size_t i = 0; i < count; i++) T_OK(tide_device_release(d, small[i]));
  (void)take(d, NULL, 4096 * MIB);
  const tide_block hole = take(d, NULL, 8 * MIB);
  (void)take(d, NULL, 256 * MIB);
  T_OK(tide_device_release(d, hole));
  const uint64_t before = calls(m, TIDE_CALL_ADDRESS_RESERVE);
  (void)take(d, NULL, 12 * MIB);
  const uint64_t after = calls(m, TIDE_CALL_ADDRESS_RESERVE);
  tide_device_free(d);
  tide_machine_free(m);
  return after - before;
}

T_TEST(test_tide__small_blocks_decide_nothing_for_large_ones) {
  T_EQ(views_behind_small_blocks(0), 0);
  T_EQ(views_behind_small_blocks(256), 0);
}

TIDE_TEST(test_tide__at_the_limit_memory_is_stitched_before_the_error) {
  const tide_stream stream = side_new(m);
  limit_to(d, 32 * MIB);
  const comb c = comb_new(m, d, stream, 4, 4 * MIB);

  expect_oom(d, stream, 16 * MIB + 512);
  const painted p = painted_new(m, d, stream, 16 * MIB, 33);
  expect_oom(d, stream, MIB);

  painted_expect(m, &p);
  comb_expect(m, &c);
  T_EQ(current(d, reserved_bytes), 32 * MIB);
}

TIDE_TEST(test_tide__at_the_limit_a_whole_handle_is_broken_before_anything_is_given_back) {
  const tide_stream stream = side_new(m);
  give(d, take(d, stream, 64 * MIB));  // the peak allows more than the limit
  trim(d);
  limit_to(d, 16 * MIB);
  (void)comb_new(m, d, stream, 4, 2 * MIB);
  const uint64_t unmaps = calls(m, TIDE_CALL_UNMAP);

  (void)take(d, stream, 7 * MIB + 512 * KIB);

  T_EQ(calls(m, TIDE_CALL_UNMAP), unmaps);
  T_EQ(counter(d, num_alloc_retries), 0);
}

TIDE_TEST(test_tide__an_error_leaves_everything_usable) {
  const tide_stream stream = side_new(m);
  limit_to(d, 40 * MIB);
  const comb c = comb_new(m, d, stream, 4, 4 * MIB);
  const painted p = painted_new(m, d, stream, 13 * MIB, 44);

  for (int i = 0; i < 5; ++i) {
    expect_oom(d, stream, 40 * MIB);
    expect_oom(d, side_new(m), GIB);
    device_expect_valid(d);
  }

  painted_expect(m, &p);
  comb_expect(m, &c);
  T_EQ(counter(d, num_ooms), 10);
  T_EQ(tide_device_last_oom()->requested_bytes, GIB);
  give(d, p.block);
  const painted q = painted_new(m, d, stream, 14 * MIB, 45);
  painted_expect(m, &q);
}

// Fills the limit with blocks of 4 MiB, the device or a part of it, and makes every other one idle.
#define PIECES 16

TIDE_TEST(test_tide__idle_memory_of_all_streams_is_found) {
  const tide_stream streams[2] = { side_new(m), side_new(m) };
  tide_block passing[PIECES];
  limit_to(d, 2 * PIECES * 4 * MIB);
  for (size_t i = 0; i < PIECES; ++i) {
    passing[i] = take(d, streams[i % 2], 4 * MIB);
    (void)take(d, streams[i % 2], 4 * MIB);
  }
  for (size_t i = 0; i < PIECES; ++i) give(d, passing[i]);

  for (int i = 0; i < 3; ++i) give(d, take(d, streams[i % 2], 60 * MIB));
  const painted p = painted_new(m, d, side_new(m), PIECES * 4 * MIB, 55);

  painted_expect(m, &p);
  T_EQ(counter(d, num_alloc_retries), 0);
  T_EQ(counter(d, num_ooms), 0);
}

DEVICE_TEST_OVER(test_tide__a_full_device_in_pieces_serves_one_large_block, device_tide_emulated) {
  const tide_stream stream = side_new(m);
  tide_block blocks[MACHINE_CAPACITY / (4 * MIB)];
  const size_t count = sizeof blocks / sizeof blocks[0];
  for (size_t i = 0; i < count; ++i) blocks[i] = take(d, stream, 4 * MIB);
  T_EQ(free_bytes(m, 0), 0);
  for (size_t i = 0; i < count; i += 2) give(d, blocks[i]);

  const tide_block block = take(d, stream, MACHINE_CAPACITY / 2);
  for (size_t i = 0; i < MACHINE_CAPACITY / 2; i += 4 * MIB) {
    device_fill(m, 0, bytes_of(block) + i, 66, 64 * KIB);
    expect_filled(m, 0, bytes_of(block) + i, 66, 64 * KIB);
  }
  expect_oom(d, stream, 4 * MIB);
}

TIDE_TEST(test_tide__idle_memory_of_small_blocks_serves_large_ones_and_the_other_way_round) {
  const tide_stream stream = side_new(m);
  tide_block small[32];
  limit_to(d, 32 * MIB);
  for (size_t i = 0; i < 32; ++i) small[i] = take(d, stream, 512 * KIB);
  for (size_t i = 0; i < 32; ++i) give(d, small[i]);

  const painted p = painted_new(m, d, stream, 32 * MIB, 67);
  painted_expect(m, &p);
  give(d, p.block);
  const painted q = painted_new(m, d, side_new(m), 1000, 68);

  painted_expect(m, &q);
}

// ---------------------------------------------------------------------------------------------------
// Coming to rest

#define LOOP_BLOCKS 20

// One round of a program: takes and releases blocks of sizes that its layout gives, and keeps none.
static void loop_round(tide_device_cache* d, tide_stream stream, uint64_t layout, size_t scale) {
  t_rng rng = { layout };
  tide_block blocks[LOOP_BLOCKS] = { { NULL, 0 } };
  for (int i = 0; i < 120; ++i) {
    tide_block* const block = &blocks[t_rng_below(&rng, LOOP_BLOCKS)];
    const size_t bytes = scale * (MIB + t_rng_below(&rng, 9 * MIB));
    if (block->address != NULL) give(d, *block);
    *block = t_rng_below(&rng, 4) != 0 ? take(d, stream, bytes) : block_none;
  }
  for (size_t i = 0; i < LOOP_BLOCKS; ++i) give(d, blocks[i]);
}

// Rounds of a loop in which layouts and streams take turns. The second half makes no call of the machine.
static void expect_rest(tide_machine* m, tide_device_cache* d, uint64_t rounds, uint64_t layouts,
                        uint64_t stream_count) {
  const tide_stream streams[2] = { side_new(m), side_new(m) };
  uint64_t before = 0;
  for (uint64_t i = 0; i < 2 * rounds; ++i) {
    if (i == rounds) before = stream_count == 1 ? calls(m, TIDE_CALL_ANY) : memory_calls(m);
    loop_round(d, streams[i % stream_count], 1 + i % layouts, 1);
  }
  T_LT(2, reservations(m));  // it has been stitching
  T_EQ(stream_count == 1 ? calls(m, TIDE_CALL_ANY) : memory_calls(m), before);
}

TIDE_TEST(test_tide__a_loop_comes_to_rest) { expect_rest(m, d, 6, 1, 1); }

TIDE_TEST(test_tide__a_loop_of_two_layouts_comes_to_rest) { expect_rest(m, d, 12, 2, 1); }

TIDE_TEST(test_tide__a_loop_on_two_streams_comes_to_rest) { expect_rest(m, d, 12, 1, 2); }

// What a step leaves lives into the next one, so the layouts of steps differ although their sizes are equal.
TIDE_TEST(test_tide__a_loop_whose_results_live_on_comes_to_rest) {
  const tide_stream stream = side_new(m);
  tide_block last = block_none;
  uint64_t before = 0;

  for (int i = 0; i < 24; ++i) {
    if (i == 16) before = memory_calls(m);
    const tide_block result = take(d, stream, 11 * MIB);
    loop_round(d, stream, 3, 1);
    if (last.address != NULL) give(d, last);
    last = result;
  }

  T_EQ(memory_calls(m), before);
}

T_TEST(test_tide__little_more_is_reserved_than_was_handed_out_at_once) {
  tide_machine* m = NULL;
  T_OK(tide_machine_new_dry(NULL, &m));
  tide_device_cache* const d = tide_new(m, NULL);
  const tide_stream stream = side_new(m);

  for (uint64_t i = 0; i < 40; ++i) loop_round(d, stream, 100 + i, 64);

  const tide_device_stats stats = stats_of(d);
  T_CHECK((double)stats.reserved_bytes[0].peak * 0.98 <= (double)stats.active_bytes[0].peak);
  tide_device_free(d);
  tide_machine_free(m);
}

typedef struct giver {
  tide_device_cache* d;
  tide_block block;
  pthread_barrier_t turn;
} giver;

// Takes a block, and exists until the other thread is done: then nobody adds what this one has counted.
static void* giver_work(void* user) {
  giver* const g = user;
  g->block = take(g->d, NULL, 3 * MIB);
  (void)pthread_barrier_wait(&g->turn);
  (void)pthread_barrier_wait(&g->turn);
  return NULL;
}

// The sum of what was counted is below 0 here, because the thread that took the block has not told yet.
T_TEST(test_tide__what_another_thread_took_and_this_one_releases_is_no_peak) {
  tide_machine* m = NULL;
  T_OK(tide_machine_new_dry(NULL, &m));
  giver g = { .d = device_with(m, "policy:tide,tide_stitch_share:1,tide_idle_handles:0") };
  const tide_stream side = side_new(m);
  pthread_t thread;
  T_EQ(pthread_barrier_init(&g.turn, NULL, 2), 0);
  T_EQ(pthread_create(&thread, NULL, giver_work, &g), 0);
  (void)pthread_barrier_wait(&g.turn);
  give(g.d, g.block);
  give(g.d, take(g.d, side, MIB));

  (void)comb_new(m, g.d, side, COMB_HOLES, 4 * MIB);
  (void)take(g.d, side, 50 * MIB);

  T_LE(current(g.d, reserved_bytes), (int64_t)((2 * COMB_HOLES * 4 + 8) * MIB));
  (void)pthread_barrier_wait(&g.turn);
  T_EQ(pthread_join(thread, NULL), 0);
  T_EQ(pthread_barrier_destroy(&g.turn), 0);
  tide_device_free(g.d);
  tide_machine_free(m);
}

// What is reserved for blocks that fit between others, perhaps after a request that fails.
static int64_t reserved_after(bool fails) {
  tide_block blocks[16];
  const uint64_t capacity = (uint64_t)32 << 30;
  tide_machine* const m = dry_of(capacity);
  tide_device_cache* const d =
      device_with(m, "policy:tide,tide_stitch_share:1,tide_idle_handles:0,tide_slack:0");
  (void)take(d, NULL, 2 * MIB);
  if (fails) expect_oom(d, NULL, capacity - MIB);
  for (int i = 0; i < 16; i++) blocks[i] = take(d, NULL, 20 * MIB);
  for (int i = 0; i < 16; i += 2) give(d, blocks[i]);
  for (int i = 0; i < 4; i++) (void)take(d, NULL, 40 * MIB);
  const int64_t reserved = current(d, reserved_bytes);
  tide_device_free(d);
  tide_machine_free(m);
  return reserved;
}

// How many handles a program gets that grows steadily, perhaps after a request that fails.
static uint64_t handles_after(bool fails) {
  tide_block blocks[3];
  const uint64_t capacity = (uint64_t)32 << 30;
  tide_machine* const m = dry_of(capacity);
  tide_device_cache* const d = device_with(m, "policy:tide,tide_stitch_share:1");
  for (int i = 0; i < 96; i++) (void)take(d, NULL, 2 * MIB);
  if (fails) expect_oom(d, NULL, capacity - MIB);
  const uint64_t before = calls(m, TIDE_CALL_PHYSICAL_NEW);
  for (size_t i = 0; i < 150; i++) {
    for (size_t k = 0; k < 3; k++) blocks[k] = take(d, NULL, (20 + 7 * k) * MIB);
    give(d, blocks[i % 3]);
  }
  const uint64_t made = calls(m, TIDE_CALL_PHYSICAL_NEW) - before;
  tide_device_free(d);
  tide_machine_free(m);
  return made;
}

T_TEST(test_tide__a_request_that_fails_is_no_growth) { T_EQ(handles_after(true), handles_after(false)); }

// A request needs more addresses than are left. What is known about sizes is known for the new ones, too.
T_TEST(test_tide__what_lasts_has_one_handle_after_a_request_that_fails) {
  const uint64_t capacity = (uint64_t)32 << 30;
  tide_machine* const m = dry_of(capacity);
  tide_device_cache* const d = device_with(m, "policy:tide");
  for (int i = 0; i < 96; i++) (void)take(d, NULL, 64 * MIB);
  const uint64_t reserved = calls(m, TIDE_CALL_ADDRESS_RESERVE);
  expect_oom(d, NULL, capacity - MIB);
  T_CHECK(calls(m, TIDE_CALL_ADDRESS_RESERVE) > reserved);
  const uint64_t before = calls(m, TIDE_CALL_PHYSICAL_NEW);
  (void)take(d, NULL, 64 * MIB);
  T_EQ(calls(m, TIDE_CALL_PHYSICAL_NEW) - before, 1);
  tide_device_free(d);
  tide_machine_free(m);
}

T_TEST(test_tide__a_request_that_fails_is_no_peak) {
  T_EQ(reserved_after(false), 322 * MIB);
  T_EQ(reserved_after(true), 322 * MIB);
}

// The addresses of views are at most eight times the memory.
static void expect_views_given_back(tide_machine* m, tide_device_cache* d, size_t count, bool frees_streams) {
  give(d, take(d, side_new(m), 512));  // with a second stream, releases leave marks
  const comb c = comb_new(m, d, side_new(m), 4, 4 * MIB);
  const uint64_t before = reservations(m);

  for (size_t i = 0; i < count; ++i) {
    const tide_stream passing = side_new(m);
    const tide_block block = take(d, passing, 16 * MIB);
    paint(m, passing, block, 100, MIB);
    stream_finish(m, 0, passing);  // a view stays while its work runs
    give(d, block);
    if (frees_streams) T_OK(tide_machine_stream_free(m, 0, passing));
  }

  T_LE(reservations(m), before + count + 8 * 2 + 2);  // with a home for each stream
  comb_expect(m, &c);
}

TIDE_TEST(test_tide__views_that_are_not_used_any_more_are_given_back) {
  expect_views_given_back(m, d, 40, false);
}

TIDE_TEST(test_tide__views_of_streams_that_are_gone_are_given_back) {
  expect_views_given_back(m, d, 60, true);
}

// ---------------------------------------------------------------------------------------------------
// Determinism

typedef struct footprint {
  tide_device_stats stats;
  uint64_t calls[TIDE_CALL_COUNT];
} footprint;

static footprint footprint_make(const char* machine, size_t shift) {
  footprint f;
  memset(&f, 0, sizeof f);
  tide_machine* const m = machine_open(machine, NULL);
  if (shift > 0) (void)reserve(m, 0, shift * 2 * MIB);  // then all addresses are others
  tide_device_cache* const d = tide_new(m, NULL);
  const tide_stream streams[2] = { side_new(m), side_new(m) };
  for (uint64_t i = 0; i < 8; ++i) {
    if (i % 3 == 0 && shift > 0) T_OK(tide_machine_address_release(m, reserve(m, 0, 2 * MIB), 2 * MIB));
    loop_round(d, streams[i % 2], i, 1);
    if (i == 5) trim(d);
  }
  f.stats = stats_of(d);
  for (tide_call call = 0; call < TIDE_CALL_COUNT; ++call) f.calls[call] = calls(m, call);
  f.calls[TIDE_CALL_ADDRESS_RESERVE] = f.calls[TIDE_CALL_ADDRESS_RELEASE] = 0;  // our own are among these
  tide_device_free(d);
  tide_machine_free(m);
  return f;
}

T_TEST_OVER(test_tide__the_same_requests_are_decided_in_the_same_way, machine_emulated) {
  const footprint first = footprint_make(t_variant(), 0);

  const footprint second = footprint_make(t_variant(), 3);

  const size_t counted = offsetof(tide_device_stats, allocation);  // the padding before it may differ
  T_EQ(memcmp((const char*)&first.stats + counted, (const char*)&second.stats + counted,
              sizeof first.stats - counted),
       0);
  for (tide_call call = 0; call < TIDE_CALL_COUNT; ++call) {
    if (first.calls[call] != second.calls[call]) T_FAIL("%s is called differently", tide_call_name(call));
  }
}

// ---------------------------------------------------------------------------------------------------
// Private pools and captures

TIDE_TEST(test_tide__memory_of_a_graph_is_never_lent) {
  const tide_stream stream = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  capture_open(m, d, stream, pool);
  tide_block blocks[6];
  for (size_t i = 0; i < 6; ++i) {
    blocks[i] = take(d, stream, 3 * MIB);
    paint(m, stream, blocks[i], 200, 3 * MIB);
  }
  for (size_t i = 0; i < 6; i += 2) give(d, blocks[i]);
  const tide_launch graph = capture_close(m, d, stream, pool);
  for (size_t i = 1; i < 6; i += 2) give(d, blocks[i]);

  limit_to(d, 18 * MIB + 32 * MIB);  // pressure
  const comb c = comb_new(m, d, stream, 4, 4 * MIB);
  const painted p = painted_new(m, d, stream, 16 * MIB, 34);
  expect_oom(d, stream, MIB);
  expect_oom(d, side_new(m), 2 * MIB);
  for (int i = 0; i < 3; ++i) {
    T_OK(tide_machine_launch(m, 0, graph, stream));
    painted_expect(m, &p);
    comb_expect(m, &c);
  }
  T_EQ(pool_reserved(d, pool), 18 * MIB);
  for (size_t i = 0; i < 6; ++i) expect_filled(m, 0, bytes_of(blocks[i]), 200, 3 * MIB);
  T_OK(tide_machine_launch_free(m, graph));
}

TIDE_TEST(test_tide__a_private_pool_stays_apart_and_what_is_idle_makes_way_for_it) {
  const tide_stream stream = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  const comb c = comb_new(m, d, stream, 4, 4 * MIB);

  const tide_block apart = take_in(d, pool, stream, 16 * MIB);

  T_EQ(pool_reserved(d, pool), 16 * MIB);
  T_EQ(pool_reserved(d, TIDE_POOL_DEFAULT), 16 * MIB);
  give(d, apart);
  const painted p = painted_new(m, d, stream, 16 * MIB, 35);
  T_EQ(pool_reserved(d, pool), 16 * MIB);
  T_EQ(pool_reserved(d, TIDE_POOL_DEFAULT), 32 * MIB);
  painted_expect(m, &p);
  comb_expect(m, &c);
}

TIDE_TEST(test_tide__in_a_capture_no_stream_is_waited_for) {
  const tide_stream stream = side_new(m);
  const tide_stream other = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  (void)comb_new(m, d, stream, 4, 4 * MIB);
  give(d, take(d, other, 16 * MIB));  // memory of `stream` that `other` has used
  tide_scope scope = TIDE_SCOPE_INIT;
  tide_launch graph = NULL;
  scope.kind = TIDE_SCOPE_CAPTURE;
  scope.stream = stream;
  T_OK(tide_machine_capture_begin(m, 0, stream, TIDE_CAPTURE_THREAD_LOCAL));
  T_OK(pool_begin_kept(d, pool, &scope));

  T_OK(tide_device_pool_end(d, pool));  // so that requests go to the default pool inside the capture
  const tide_block inside = take(d, other, 4 * MIB);
  T_OK(tide_device_pool_drop(d, pool));
  T_OK(pool_begin_kept(d, pool, &scope));
  const tide_block captured = take(d, stream, 4 * MIB);
  paint(m, stream, captured, 3, 4 * MIB);
  T_OK(tide_machine_capture_end(m, 0, stream, &graph));
  T_OK(tide_device_pool_end(d, pool));

  T_OK(tide_machine_launch(m, 0, graph, stream));
  stream_finish(m, 0, stream);
  expect_filled(m, 0, bytes_of(captured), 3, 4 * MIB);
  give(d, inside);
}

// ---------------------------------------------------------------------------------------------------
// Peers, observers, caching

// Counts entries, and how many bytes are mapped after all of them.
typedef struct ledger {
  size_t entries;
  int64_t mapped;
} ledger;

static void ledger_add(void* user, const tide_trace_entry* entry) {
  ledger* const l = user;
  l->entries++;
  if (entry->action == TIDE_ACTION_SEGMENT_MAP) l->mapped += (int64_t)entry->bytes;
  if (entry->action == TIDE_ACTION_SEGMENT_UNMAP) l->mapped -= (int64_t)entry->bytes;
}

static bool ledger_add_all(void* user, const tide_trace_entry* entries, size_t count) {
  for (size_t i = 0; i < count; ++i) ledger_add(user, &entries[i]);
  return true;
}

TIDE_TEST(test_tide__observers_hear_of_every_piece) {
  const tide_stream stream = side_new(m);
  ledger heard = { 0, 0 };
  ledger kept = { 0, 0 };
  history_on(d);
  const tide_observer observer = observe_trace(d, ledger_add, &heard);
  tide_block teeth[96];
  for (size_t i = 0; i < 96; ++i) teeth[i] = take(d, stream, MIB);
  for (size_t i = 0; i < 96; i += 4) {
    give(d, teeth[i]);
    give(d, teeth[i + 1]);
  }

  give(d, take(d, stream, 46 * MIB));  // of more than 20 pieces

  T_OK(tide_device_history_visit(d, ledger_add_all, &kept));
  T_EQ(kept.mapped, current(d, reserved_bytes));
  T_EQ(heard.mapped, kept.mapped);
  T_EQ(heard.entries, kept.entries);
  T_OK(tide_device_detach(d, observer));
}

TIDE_TEST(test_tide__stitched_blocks_outlive_caching) {
  const tide_stream stream = side_new(m);
  const comb c = comb_new(m, d, stream, 4, 4 * MIB);
  const painted p = painted_new(m, d, stream, 16 * MIB, 81);

  tide_device_set_caching(d, false);
  const painted q = painted_new(m, d, stream, 16 * MIB, 82);
  painted_expect(m, &p);
  give(d, p.block);
  tide_device_set_caching(d, true);

  painted_expect(m, &q);
  give(d, q.block);
  comb_expect(m, &c);
  const painted r = painted_new(m, d, stream, 16 * MIB, 83);
  painted_expect(m, &r);
}

DEVICE_TEST_OVER(test_tide__a_home_without_addresses_is_followed_by_another, device_tide_emulated) {
  need_virtual(m);
  tide_device_cache* const small = device_with(m, "policy:tide,expandable_segments_reserve:0.05");
  const tide_stream stream = side_new(m);

  const comb c = comb_new(m, small, stream, 5, 6 * MIB);
  const painted p = painted_new(m, small, stream, 30 * MIB, 84);

  T_EQ(current(small, reserved_bytes), 60 * MIB);
  painted_expect(m, &p);
  comb_expect(m, &c);
  device_expect_valid(small);
  comb_end(small, &c);
  give(small, p.block);
  trim(small);
  T_EQ(current(small, reserved_bytes), 0);
  tide_device_free(small);
  T_EQ(current(d, reserved_bytes), 0);
}
