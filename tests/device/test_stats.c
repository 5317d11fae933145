// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Statistics: what changes each of them, peaks and sums and their resets, and that small and large add up.
#define T_THREADS
#include "device/devices.h"

static void expect_stat(const char* what, tide_stat stat, int64_t now, int64_t peak, int64_t allocated,
                        int64_t freed) {
  if (stat.current != now || stat.peak != peak || stat.allocated != allocated || stat.freed != freed) {
    T_FAIL("%s is %jd, peak %jd, allocated %jd, freed %jd", what, (intmax_t)stat.current, (intmax_t)stat.peak,
           (intmax_t)stat.allocated, (intmax_t)stat.freed);
  }
}
#define EXPECT_STAT(d, name, kind, now, peak, allocated, freed)                                     \
  expect_stat(#name, stats_of(d).name[kind], (int64_t)(now), (int64_t)(peak), (int64_t)(allocated), \
              (int64_t)(freed))

// ---------------------------------------------------------------------------------------------------
// Each statistic

DEVICE_TEST(test_device__statistics_start_at_zero) {
  const tide_device_stats s = stats_of(d);

#define EXPECT_ZERO(name) \
  for (int kind = 0; kind < TIDE_STAT_KINDS; ++kind) expect_stat(#name, s.name[kind], 0, 0, 0, 0);
  TIDE_DEVICE_STAT_MAP(EXPECT_ZERO)
#undef EXPECT_ZERO
#define EXPECT_NONE(name) T_EQ(s.name, 0);
  TIDE_DEVICE_COUNTER_MAP(EXPECT_NONE)
#undef EXPECT_NONE
  T_EQ(s.max_split_bytes, TIDE_NO_LIMIT);
}

DEVICE_TEST(test_device__allocation_and_active_count_blocks) {
  const tide_block a = take(d, NULL, 1000);
  const tide_block b = take(d, NULL, 3 * MIB);
  give(d, a);

  EXPECT_STAT(d, allocation, TIDE_STAT_ALL, 1, 2, 2, 1);
  EXPECT_STAT(d, allocation, TIDE_STAT_SMALL, 0, 1, 1, 1);
  EXPECT_STAT(d, allocation, TIDE_STAT_LARGE, 1, 1, 1, 0);
  EXPECT_STAT(d, active, TIDE_STAT_ALL, 1, 2, 2, 1);
  EXPECT_STAT(d, allocated_bytes, TIDE_STAT_ALL, 3 * MIB, 3 * MIB + 1024, 3 * MIB + 1024, 1024);
  EXPECT_STAT(d, active_bytes, TIDE_STAT_LARGE, 3 * MIB, 3 * MIB, 3 * MIB, 0);
  EXPECT_STAT(d, requested_bytes, TIDE_STAT_SMALL, 0, 1000, 1000, 1000);
  give(d, b);
}

DEVICE_TEST(test_device__segment_and_reserved_bytes_follow_the_machine) {
  const int64_t each = is_tide() ? 0 : 1;  // what grows is not counted
  give(d, take(d, NULL, 512));
  give(d, take(d, NULL, 20 * MIB));
  EXPECT_STAT(d, segment, TIDE_STAT_ALL, 2 * each, 2 * each, 2 * each, 0);
  EXPECT_STAT(d, reserved_bytes, TIDE_STAT_ALL, 22 * MIB, 22 * MIB, 22 * MIB, 0);

  trim(d);

  EXPECT_STAT(d, segment, TIDE_STAT_SMALL, 0, each, each, each);
  EXPECT_STAT(d, reserved_bytes, TIDE_STAT_LARGE, 0, 20 * MIB, 20 * MIB, 20 * MIB);
  T_EQ(counter(d, num_device_alloc), 2);
  T_EQ(counter(d, num_device_free), 2);
}

TORCH_TEST(test_device__inactive_split_rises_when_a_segment_is_split) {
  const tide_block a = take(d, NULL, 5 * MIB);
  EXPECT_STAT(d, inactive_split, TIDE_STAT_LARGE, 1, 1, 1, 0);
  EXPECT_STAT(d, inactive_split_bytes, TIDE_STAT_LARGE, 15 * MIB, 15 * MIB, 15 * MIB, 0);

  const tide_block b = take(d, NULL, 5 * MIB);  // of the idle part: the count stays
  EXPECT_STAT(d, inactive_split, TIDE_STAT_LARGE, 1, 1, 1, 0);
  EXPECT_STAT(d, inactive_split_bytes, TIDE_STAT_LARGE, 10 * MIB, 15 * MIB, 15 * MIB, 5 * MIB);

  const tide_block c = take(d, NULL, 10 * MIB);  // all of it
  EXPECT_STAT(d, inactive_split, TIDE_STAT_LARGE, 0, 1, 1, 1);
  give(d, a);
  give(d, c);
  EXPECT_STAT(d, inactive_split, TIDE_STAT_LARGE, 2, 2, 3, 1);
  give(d, b);  // everything merges into a whole segment
  EXPECT_STAT(d, inactive_split, TIDE_STAT_LARGE, 0, 2, 3, 3);
  T_EQ(current(d, inactive_split_bytes), 0);
}

TORCH_TEST(test_device__oversize_counts_requests_and_segments_of_max_split_size) {
  configure(d, "max_split_size_mb:20");
  (void)take(d, NULL, 19 * MIB - 512);  // 20 MiB are reserved for it
  const tide_block block = take(d, NULL, 20 * MIB);
  expect_stat("oversize_allocations", stats_of(d).oversize_allocations, 1, 1, 1, 0);
  expect_stat("oversize_segments", stats_of(d).oversize_segments, 2, 2, 2, 0);

  give(d, block);
  trim(d);

  expect_stat("oversize_allocations", stats_of(d).oversize_allocations, 0, 1, 1, 1);
  expect_stat("oversize_segments", stats_of(d).oversize_segments, 1, 2, 2, 1);
}

DEVICE_TEST(test_device__counters_count_retries_ooms_and_waits) {
  const tide_pool pool = pool_new(d, NULL);
  limit_to(d, 30 * MIB);
  const tide_block block = take_in(d, pool, NULL, 20 * MIB);
  T_OK(tide_device_pool_drop(d, pool));
  give(d, block);
  (void)take(d, NULL, 24 * MIB);  // after giving the other back
  expect_oom(d, NULL, 24 * MIB);
  trim(d);

  T_EQ(counter(d, num_alloc_retries), 2);
  T_EQ(counter(d, num_ooms), 1);
  T_EQ(counter(d, num_sync_all_streams), 3);
  T_EQ(counter(d, num_device_alloc), 2);
  T_EQ(counter(d, num_device_free), 1);
}

TORCH_TEST(test_device__mappings_count_as_device_calls) {
  expand(m, d);
  const tide_block block = take(d, NULL, 50 * MIB);
  T_EQ(counter(d, num_device_alloc), 1);  // one mapping of three handles
  give(d, block);
  trim(d);

  T_EQ(counter(d, num_device_free), 1);
  EXPECT_STAT(d, reserved_bytes, TIDE_STAT_LARGE, 0, 60 * MIB, 60 * MIB, 60 * MIB);
  EXPECT_STAT(d, segment, TIDE_STAT_ALL, 0, 0, 0, 0);
}

MACHINE_TEST(test_device__max_split_size_in_the_statistics_is_that_of_the_beginning) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  tide_device_cache* d = NULL;
  options.max_split_bytes = 64 * MIB;
  T_OK(tide_device_new(m, 0, &options, &d));

  configure(d, "max_split_size_mb:128");

  T_EQ(stats_of(d).max_split_bytes, 64 * MIB);
  tide_device_free(d);
}

// ---------------------------------------------------------------------------------------------------
// Peaks and resets

DEVICE_TEST(test_device__peak_is_the_highest_at_any_moment) {
  for (size_t i = 1; i <= 3; ++i) {
    const tide_block a = take(d, NULL, i * 64 * KIB);
    const tide_block b = take(d, NULL, i * 64 * KIB);
    give(d, a);
    give(d, b);
  }
  (void)take(d, NULL, 64 * KIB);

  EXPECT_STAT(d, allocated_bytes, TIDE_STAT_ALL, 64 * KIB, 6 * 64 * KIB, 13 * 64 * KIB, 12 * 64 * KIB);
}

DEVICE_TEST(test_device__peak_across_streams_is_that_of_all_together) {
  const tide_stream side = side_new(m);
  const tide_block a = take(d, NULL, MIB / 2);
  const tide_block b = take(d, side, MIB / 2);
  give(d, a);
  give(d, b);
  give(d, take(d, NULL, MIB / 2));

  T_EQ(stats_of(d).allocated_bytes[TIDE_STAT_ALL].peak, MIB);
  T_EQ(stats_of(d).allocation[TIDE_STAT_SMALL].peak, 2);
}

DEVICE_TEST(test_device__reset_peaks_sets_them_to_the_present) {
  const tide_block a = take(d, NULL, 3 * MIB);
  give(d, take(d, NULL, 5 * MIB));

  tide_device_reset_peaks(d);

  EXPECT_STAT(d, allocated_bytes, TIDE_STAT_ALL, 3 * MIB, 3 * MIB, 8 * MIB, 5 * MIB);
  EXPECT_STAT(d, active, TIDE_STAT_LARGE, 1, 1, 2, 1);
  give(d, a);
  tide_device_reset_peaks(d);
  T_EQ(stats_of(d).active_bytes[TIDE_STAT_ALL].peak, 0);
  T_EQ(stats_of(d).reserved_bytes[TIDE_STAT_ALL].peak, current(d, reserved_bytes));
}

DEVICE_TEST(test_device__reset_accumulated_clears_sums_and_counters) {
  const tide_block a = take(d, NULL, 3 * MIB);
  give(d, take(d, NULL, 5 * MIB));
  limit_to(d, 20 * MIB);
  expect_oom(d, NULL, 30 * MIB);

  tide_device_reset_accumulated(d);

  EXPECT_STAT(d, allocated_bytes, TIDE_STAT_ALL, 3 * MIB, 8 * MIB, 0, 0);
#define EXPECT_NONE(name) T_EQ(counter(d, name), 0);
  TIDE_DEVICE_COUNTER_MAP(EXPECT_NONE)
#undef EXPECT_NONE
  give(d, a);
  EXPECT_STAT(d, allocated_bytes, TIDE_STAT_ALL, 0, 8 * MIB, 0, 3 * MIB);
}

// ---------------------------------------------------------------------------------------------------
// What always holds

static void expect_sums(const char* what, const tide_stat kinds[TIDE_STAT_KINDS]) {
  const tide_stat a = kinds[TIDE_STAT_ALL];
  const tide_stat s = kinds[TIDE_STAT_SMALL];
  const tide_stat l = kinds[TIDE_STAT_LARGE];
  const bool is_sum = a.current == s.current + l.current && a.allocated == s.allocated + l.allocated &&
                      a.freed == s.freed + l.freed;
  const bool is_between = a.peak >= s.peak && a.peak >= l.peak && a.peak <= s.peak + l.peak;
  if (!is_sum || !is_between) T_FAIL("%s of small and large do not add up", what);
  for (int i = 0; i < TIDE_STAT_KINDS; ++i) {
    T_EQ(kinds[i].current, kinds[i].allocated - kinds[i].freed);
    T_LE(kinds[i].current, kinds[i].peak);
  }
}

static void expect_consistent(tide_device_cache* d) {
  const tide_device_stats s = stats_of(d);
#define EXPECT_SUMS(name) expect_sums(#name, s.name);
  TIDE_DEVICE_STAT_MAP(EXPECT_SUMS)
#undef EXPECT_SUMS
  T_LE(s.allocated_bytes[0].current, s.active_bytes[0].current);
  T_LE(s.active_bytes[0].current, s.reserved_bytes[0].current);
  T_LE(s.requested_bytes[0].current, s.active_bytes[0].current);
  T_LE(s.allocation[0].current, s.active[0].current);
}

DEVICE_TEST(test_device__small_and_large_add_up_after_every_call) {
  enum { LIVE = 30 };
  const tide_stream streams[2] = { NULL, side_new(m) };
  tide_block blocks[LIVE] = { 0 };
  t_rng rng = t_rng_new(0);

  for (size_t i = 0; i < t_scaled(1000); ++i) {
    tide_block* const block = &blocks[t_rng_below(&rng, LIVE)];
    if (block->address == NULL) {
      *block =
          take(d, streams[t_rng_below(&rng, 2)], 1 + t_rng_below(&rng, (uint64_t)1 << t_rng_below(&rng, 23)));
    } else {
      if (t_rng_below(&rng, 4) == 0) announce(d, *block, streams[t_rng_below(&rng, 2)]);
      give(d, *block);
      block->address = NULL;
    }
    expect_consistent(d);
  }
}

DEVICE_TEST(test_device__everything_released_and_trimmed_leaves_nothing_reserved) {
  const tide_stream side = side_new(m);
  for (size_t i = 0; i < 20; ++i) {
    const tide_block block = take(d, i % 2 == 0 ? NULL : side, (i + 1) * 300 * KIB);
    announce(d, block, i % 2 == 0 ? side : NULL);
    give(d, block);
  }

  trim(d);

  const tide_device_stats s = stats_of(d);
#define EXPECT_EMPTY(name) T_EQ(s.name[TIDE_STAT_ALL].current, 0);
  TIDE_DEVICE_STAT_MAP(EXPECT_EMPTY)
#undef EXPECT_EMPTY
}

// ---------------------------------------------------------------------------------------------------
// Reading them

// Where a block lies depends on whether at least half of the peak is in use, and it is about half all the
// time. Without reads in between, a thread has counted the last changes only for itself.
static void expect_same_places(uint64_t seed) {
  enum { LIVE = 64 };
  tide_machine* m[2];
  tide_device_cache* d[2];
  tide_block blocks[LIVE][2] = { { { NULL, 0 } } };
  t_rng rng = t_rng_new(seed);
  for (int k = 0; k < 2; ++k) {
    T_OK(tide_machine_new_dry(NULL, &m[k]));
    d[k] = device_with(m[k], "policy:tide,tide_stitch_share:1");
    give(d[k], take(d[k], NULL, LIVE * 5 / 2 * MIB));
  }
  for (size_t i = 0; i < t_scaled(1000); ++i) {
    const size_t at = (size_t)t_rng_below(&rng, LIVE);
    const size_t bytes = (size_t)(1 + t_rng_below(&rng, 4)) * MIB;
    const bool is_taken = blocks[at][0].address != NULL;
    for (int k = 0; k < 2; ++k) {
      if (is_taken) give(d[k], blocks[at][k]);
      blocks[at][k] = is_taken ? block_none : take(d[k], NULL, bytes);
    }
    (void)stats_of(d[1]);
    if (blocks[at][0].address != blocks[at][1].address)
      T_FAIL("seed %llu, call %zu: a block lies elsewhere", (unsigned long long)seed, i);
  }
  for (int k = 0; k < 2; ++k) {
    tide_device_free(d[k]);
    tide_machine_free(m[k]);
  }
}

T_TEST(test_device__reading_statistics_moves_no_block) {
  for (uint64_t seed = 1; seed <= 8; ++seed) expect_same_places(seed);
}
