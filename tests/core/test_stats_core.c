// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Statistics: adding tallies and counts to the totals now and then gives the same values as making each
// change in the totals.
#include "core/stats.h"
#include "core/tally.h"
#include "t.h"

// ---------------------------------------------------------------------------------------------------
// The model: a list of values, and what can be said of them

typedef struct model_stat {
  int64_t value;
  int64_t peak;
  int64_t rises;
  int64_t falls;
} model_stat;

static void model_change(model_stat* m, int64_t n) {
  m->value += n;
  if (n > 0) m->rises += n;
  else m->falls -= n;
  if (m->value > m->peak) m->peak = m->value;
}

static void expect_stat(const tide_stat* got, const model_stat* want) {
  T_EQ(got->current, want->value);
  T_EQ(got->peak, want->peak);
  T_EQ(got->allocated, want->rises);
  T_EQ(got->freed, want->falls);
}

// ---------------------------------------------------------------------------------------------------
// Counts

T_TEST(test_stats__counts_added_in_groups_are_exact) {
  t_rng rng = t_rng_new(1);
  tide_stat stat = { 0, 0, 0, 0 };
  model_stat model = { 0, 0, 0, 0 };
  tide__count count = { 0, 0, 0 };
  for (size_t i = 0; i < t_scaled_alone(20000); ++i) {
    const int64_t n = (int64_t)t_rng_below(&rng, 1000);
    const bool is_rise = model.value < n || t_rng_below(&rng, 2) == 0;
    model_change(&model, is_rise ? n : -n);
    if (is_rise) tide__count_rise(&count, n);
    else tide__count_fall(&count, n);
    if (t_rng_below(&rng, 20) != 0) continue;
    tide__stat_add(&stat, count);
    count = (tide__count){ 0, 0, 0 };
    expect_stat(&stat, &model);
  }
}

T_TEST(test_stats__single_changes_and_resets) {
  t_rng rng = t_rng_new(2);
  tide_stat stat = { 0, 0, 0, 0 };
  model_stat model = { 0, 0, 0, 0 };
  for (size_t i = 0; i < t_scaled_alone(20000); ++i) {
    const int64_t n = (int64_t)t_rng_below(&rng, 100);
    const int64_t change = model.value < n || t_rng_below(&rng, 2) == 0 ? n : -n;
    switch (t_rng_below(&rng, 50)) {
      case 0:
        tide__stat_forget_sums(&stat);
        model.rises = model.falls = 0;
        break;
      case 1:
        tide__stat_forget_peak(&stat);
        model.peak = model.value;
        break;
      default: tide__stat_move(&stat, change); model_change(&model, change);
    }
    expect_stat(&stat, &model);
  }
}

// ---------------------------------------------------------------------------------------------------
// Tallies: five numbers, each of all, small and large blocks

enum { KINDS = TIDE_STAT_KINDS };

typedef struct tally_fixture {
  tide__tally tally;
  tide_stat stats[TIDE__TALLY_COUNT][KINDS];
  model_stat models[TIDE__TALLY_COUNT][KINDS];
} tally_fixture;

static void fixture_change(tally_fixture* f, bool is_small, int what, int64_t n) {
  model_change(&f->models[what][TIDE_STAT_ALL], n);
  model_change(&f->models[what][is_small ? TIDE_STAT_SMALL : TIDE_STAT_LARGE], n);
}

static void fixture_settle(tally_fixture* f) {
  for (int what = 0; what < TIDE__TALLY_COUNT; ++what) {
    tide__tally_add(f->stats[what], &f->tally, what);
    for (int kind = 0; kind < KINDS; ++kind) expect_stat(&f->stats[what][kind], &f->models[what][kind]);
  }
  f->tally = (tide__tally){ .changes = 0 };
}

static void hand_out(tally_fixture* f, bool is_small, uint64_t bytes) {
  tide__tally_hand_out(&f->tally, is_small, bytes + 100, bytes);
  fixture_change(f, is_small, TIDE__TALLY_BLOCKS, 1);
  fixture_change(f, is_small, TIDE__TALLY_BYTES, (int64_t)bytes + 100);
  fixture_change(f, is_small, TIDE__TALLY_REQUESTED_BYTES, (int64_t)bytes);
}

static void take_back(tally_fixture* f, bool is_small, uint64_t bytes) {
  tide__tally_take_back(&f->tally, is_small, bytes + 100, bytes);
  fixture_change(f, is_small, TIDE__TALLY_BLOCKS, -1);
  fixture_change(f, is_small, TIDE__TALLY_BYTES, -(int64_t)bytes - 100);
  fixture_change(f, is_small, TIDE__TALLY_REQUESTED_BYTES, -(int64_t)bytes);
}

static void split(tally_fixture* f, bool is_small, int64_t n) {
  tide__tally_move(&f->tally, is_small, TIDE__TALLY_SPLITS, n);
  fixture_change(f, is_small, TIDE__TALLY_SPLITS, n);
  tide__tally_move(&f->tally, is_small, TIDE__TALLY_SPLIT_BYTES, n * 1000);
  fixture_change(f, is_small, TIDE__TALLY_SPLIT_BYTES, n * 1000);
}

// Blocks come and go, small and large, and may go in another tally than they came in.
T_TEST(test_stats__tallies_added_now_and_then_are_exact) {
  enum { HELD = 64 };
  t_rng rng = t_rng_new(3);
  static tally_fixture f;
  uint64_t held[HELD] = { 0 };
  for (size_t i = 0; i < t_scaled_alone(50000); ++i) {
    const size_t at = t_rng_below(&rng, HELD);
    const bool is_small = at % 2 == 0;
    if (held[at] != 0) {
      take_back(&f, is_small, held[at]);
      held[at] = 0;
    } else {
      held[at] = 1 + t_rng_below(&rng, 100000);
      hand_out(&f, is_small, held[at]);
    }
    const int64_t parts = (int64_t)t_rng_below(&rng, 5) - 2;
    if (f.models[TIDE__TALLY_SPLITS][is_small ? TIDE_STAT_SMALL : TIDE_STAT_LARGE].value + parts >= 0) {
      split(&f, is_small, parts);
    }
    if (t_rng_below(&rng, 30) == 0) fixture_settle(&f);
  }
  fixture_settle(&f);
}

// ---------------------------------------------------------------------------------------------------
// Durations

T_TEST(test_stats__durations_know_the_shortest_and_the_longest) {
  const struct {
    uint64_t ns;
    tide_duration want;  // total, max, min, count
  } steps[] = {
    { 0, { 0, 0, 0, 1 } },  // a call that took no time is no minimum
    { 70, { 70, 70, 70, 2 } },  { 30, { 100, 70, 30, 3 } }, { 0, { 100, 70, 30, 4 } },
    { 90, { 190, 90, 30, 5 } }, { 40, { 230, 90, 30, 6 } },
  };
  tide_duration duration = { 0, 0, 0, 0 };
  for (size_t i = 0; i < sizeof steps / sizeof *steps; ++i) {
    tide__duration_add(&duration, steps[i].ns);
    T_EQ(duration.total_ns, steps[i].want.total_ns);
    T_EQ(duration.max_ns, steps[i].want.max_ns);
    T_EQ(duration.min_ns, steps[i].want.min_ns);
    T_EQ(duration.count, steps[i].want.count);
  }
  tide__duration_forget_peak(&duration);
  T_EQ(duration.max_ns + duration.min_ns, 0);
  T_EQ(duration.total_ns, 230);
  tide__duration_forget_sums(&duration);
  T_EQ(duration.total_ns + duration.count, 0);
}
