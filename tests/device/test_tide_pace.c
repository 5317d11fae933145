// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The policy `tide` while the peak grows steadily, layer by layer: memory that is idle for a moment is needed
// by the next layers, so it is not stitched. On a dry machine; the counts of its calls show what was mapped.
#include "device/devices.h"
#include "device/tide/pace.h"

#define OPTIONS "policy:tide"
enum { LAYERS = 60, KEPT = 3 };

typedef struct rig {
  tide_machine* m;
  tide_device_cache* d;
  tide_block kept[LAYERS][KEPT];
} rig;

static rig rig_new(void) {
  rig r = { NULL, NULL, { { { NULL, 0 } } } };
  T_OK(tide_machine_new_dry(NULL, &r.m));
  r.d = device_with(r.m, OPTIONS);
  return r;
}

static void rig_free(const rig* r) {
  device_expect_valid(r->d);
  tide_device_free(r->d);
  tide_machine_free(r->m);
}

// A layer keeps 92 MiB for the backward pass. What it holds for a moment leaves holes that fit no request of
// the same layer.
static void layer_run(rig* r, size_t number) {
  const tide_block heads = take(r->d, NULL, 16 * MIB);
  const tide_block scores = take(r->d, NULL, 32 * MIB);
  r->kept[number][0] = take(r->d, NULL, 16 * MIB);
  give(r->d, heads);
  r->kept[number][1] = take(r->d, NULL, 44 * MIB);
  give(r->d, scores);
  const tide_block wide = take(r->d, NULL, 44 * MIB);
  r->kept[number][2] = take(r->d, NULL, 32 * MIB);
  give(r->d, wide);
}

static void layers_run(rig* r, size_t from, size_t to) {
  for (size_t i = from; i < to; ++i) layer_run(r, i);
}

static void layers_give(rig* r) {
  for (size_t i = LAYERS; i-- > 0;) {
    for (size_t k = 0; k < KEPT; ++k) give(r->d, r->kept[i][k]);
  }
}

// Each handle that is made is mapped once. What is mapped beyond that is mapped in views.
static uint64_t mapped_again(const rig* r) {
  return calls(r->m, TIDE_CALL_MAP) - calls(r->m, TIDE_CALL_PHYSICAL_NEW);
}

T_TEST(test_tide_pace__steady_growth_makes_no_views) {
  rig r = rig_new();
  layers_run(&r, 0, LAYERS / 3);
  const uint64_t before = mapped_again(&r);

  layers_run(&r, LAYERS / 3, LAYERS);

  T_EQ(mapped_again(&r), before);
  const tide_device_stats stats = stats_of(r.d);
  T_LE(stats.reserved_bytes[TIDE_STAT_ALL].peak, stats.allocated_bytes[TIDE_STAT_ALL].peak / 100 * 101);
  layers_give(&r);
  rig_free(&r);
}

// A limit may be near: then every layer stitches what it can.
T_TEST(test_tide_pace__a_limit_leaves_no_memory_idle) {
  rig r = rig_new();
  T_OK(tide_device_set_limit(r.d, (size_t)8 << 30));
  layers_run(&r, 0, LAYERS / 3);
  const uint64_t before = mapped_again(&r);

  layers_run(&r, LAYERS / 3, LAYERS);

  T_LT(before, mapped_again(&r));
  layers_give(&r);
  rig_free(&r);
}

// Then nothing says that idle memory is needed soon. Here it is in holes of 16 MiB.
T_TEST(test_tide_pace__when_growth_has_ended_idle_memory_is_stitched) {
  rig r = rig_new();
  layers_run(&r, 0, LAYERS);
  for (size_t i = 0; i < LAYERS; i += 4) give(r.d, r.kept[i][0]);
  for (size_t i = 0; i < 96; ++i) give(r.d, take(r.d, NULL, 16 * MIB));
  const int64_t reserved = current(r.d, reserved_bytes);
  const uint64_t before = mapped_again(&r);

  give(r.d, take(r.d, NULL, 80 * MIB));

  T_LT(before, mapped_again(&r));
  T_LE(current(r.d, reserved_bytes), reserved + (int64_t)(28 * MIB));
  rig_free(&r);
}

// ---------------------------------------------------------------------------------------------------
// The measure itself, where the slack is half a percent of the peak. A window has 48 requests.

// Notes the peak after some more windows. Returns what may be reserved above it.
static uint64_t slack_after(tide__pace* pace, uint64_t windows, uint64_t peak) {
  tide__pace_note(pace, pace->served + 48 * windows, peak);
  return tide__pace_slack(pace, peak, 0.005);
}

T_TEST(test_tide_pace__steady_growth_is_that_of_two_windows) {
  tide__pace pace = { .peak = 100000 };
  T_EQ(slack_after(&pace, 1, 101000), 0);
  T_EQ(slack_after(&pace, 1, 103000), 150);
  T_EQ(slack_after(&pace, 1, 105000), 300);
  T_EQ(tide__pace_slack(&pace, 105000, 0), 0);
  T_EQ(tide__pace_peak(&pace, 105000), 106000);
}

T_TEST(test_tide_pace__growth_that_slows_down_counts_less) {
  tide__pace pace = { .peak = 100000, .last = 2000 };
  T_EQ(slack_after(&pace, 1, 101000), 75);
  T_EQ(slack_after(&pace, 1, 102000), 150);
  T_EQ(slack_after(&pace, 1, 102000), 0);
}

T_TEST(test_tide_pace__growth_over_a_long_time_counts_in_proportion) {
  tide__pace pace = { .peak = 100000, .last = 1000 };
  T_EQ(slack_after(&pace, 4, 104000), 150);
  T_EQ(slack_after(&pace, 1000, 105000), 0);
}

T_TEST(test_tide_pace__it_is_at_most_ten_times_the_slack) {
  tide__pace pace = { .last = 1000 };
  T_EQ(slack_after(&pace, 1, 1000), 50);
}

// A trim lowers the peak. Within a window nothing changes.
T_TEST(test_tide_pace__a_lower_peak_is_no_growth) {
  tide__pace pace = { .peak = 100000, .last = 1000, .steady = 1000 };
  tide__pace_note(&pace, 47, 101000);
  T_EQ(tide__pace_slack(&pace, 101000, 0.005), 150);
  T_EQ(slack_after(&pace, 1, 50000), 0);
  T_EQ(tide__pace_peak(&pace, 50000), 50000);
}
