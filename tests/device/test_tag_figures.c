// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What is counted for a tag: its peak, idle memory that gave way, and what was refused. A test knows each
// figure from what it did itself.
#define T_THREADS
#include "device/budget.h"

static const char* const tide_emulated[] = { "host tide", "dry tide", NULL };

static uint64_t peak_under(tide_device_cache* d, const char* tag) {
  return budget_stats(d, tag).peak_reserved_bytes;
}

// ---------------------------------------------------------------------------------------------------
// Peaks

DEVICE_TEST_OVER(test_tag_figures__the_peak_is_that_of_the_sum, tide_emulated) {
  const tide_pool a = tagged(d, "model/a");
  const tide_pool b = tagged(d, "model/b");
  small_handles(d);
  const tide_block first = take_tagged(d, a, NULL, 3 * UNIT);
  give(d, first);
  T_OK(tide_device_trim(d, 0));
  const tide_block second = take_tagged(d, b, NULL, 2 * UNIT);

  T_EQ(peak_under(d, "model/a"), 3 * UNIT);
  T_EQ(peak_under(d, "model/b"), 2 * UNIT);
  T_EQ(peak_under(d, "model"), 3 * UNIT);  // never both at once
  T_EQ(peak_under(d, "other"), 0);
  const tide_block third = take_tagged(d, a, NULL, 2 * UNIT);
  T_EQ(peak_under(d, "model"), 4 * UNIT);
  give(d, second);
  give(d, third);
}

DEVICE_TEST_OVER(test_tag_figures__parked_memory_is_not_in_the_peak, tide_emulated) {
  const tide_pool a = tagged(d, "a");
  const tide_pool b = tagged(d, "b");
  small_handles(d);
  const tide_block of_a = take_tagged(d, a, NULL, 2 * UNIT);
  const tide_block of_b = take_tagged(d, b, NULL, UNIT);
  (void)park(d, "a", TIDE_BACKUP_PINNED);
  tide_device_reset_peaks(d);

  T_EQ(peak_under(d, "a"), 0);
  T_EQ(peak_under(d, "b"), UNIT);
  (void)unpark(d, "a");
  T_EQ(peak_under(d, "a"), 2 * UNIT);
  give(d, of_a);
  give(d, of_b);
}

DEVICE_TEST_OVER(test_tag_figures__a_new_tag_takes_over_what_the_pool_has, device_emulated) {
  const tide_pool pool = tagged(d, "old");
  const tide_block block = take_tagged(d, pool, NULL, 2 * UNIT);
  const uint64_t reserved = reserved_under(d, "old");

  T_OK(tide_device_pool_set_tag(d, pool, "new/part"));
  tide_device_reset_peaks(d);
  T_EQ(peak_under(d, "old"), 0);
  T_EQ(peak_under(d, "new"), reserved);
  T_OK(tide_device_pool_set_tag(d, pool, NULL));
  give(d, block);
  T_OK(tide_device_trim(d, 0));
  T_EQ(peak_under(d, "new"), reserved);
}

// The peak of each tag, and of their sum, is the most that was seen after any call: none of these calls
// takes more than it leaves.
DEVICE_TEST_OVER(test_tag_figures__random_rounds_have_the_peaks_that_were_seen, tide_emulated) {
  enum { POOLS = 3, BLOCKS = 24, ROUNDS = 2000 };
  static const char* const tags[POOLS + 1] = { "all/a", "all/b", "all/c/d", "all" };
  tide_pool pools[POOLS];
  tide_block blocks[POOLS][BLOCKS] = { { { NULL, 0 } } };
  uint64_t most[POOLS + 1] = { 0 };
  t_rng rng = t_rng_new(1);
  small_handles(d);
  for (size_t i = 0; i < POOLS; ++i) pools[i] = tagged(d, tags[i]);
  for (size_t round = 0; round < t_scaled_alone(ROUNDS); ++round) {
    const size_t pool = t_rng_below(&rng, POOLS);
    tide_block* const block = &blocks[pool][t_rng_below(&rng, BLOCKS)];
    if (block->address != NULL) give(d, *block);
    *block = (tide_block){ NULL, 0 };
    if (t_rng_below(&rng, 2) == 0) {
      *block = take_tagged(d, pools[pool], NULL, UNIT * (1 + t_rng_below(&rng, 3)));
    }
    for (size_t i = 0; i <= POOLS; ++i) {
      const uint64_t reserved = stats_under(d, tags[i]).reserved_bytes;
      if (reserved > most[i]) most[i] = reserved;
    }
    if (t_rng_below(&rng, 50) == 0) T_OK(tide_device_trim(d, 0));
  }
  for (size_t i = 0; i <= POOLS; ++i) T_EQ(peak_under(d, tags[i]), most[i]);
  for (size_t i = 0; i < POOLS * BLOCKS; ++i) {
    const tide_block block = blocks[i / BLOCKS][i % BLOCKS];
    if (block.address != NULL) give(d, block);
  }
}

// ---------------------------------------------------------------------------------------------------
// Giving way

DEVICE_TEST_OVER(test_tag_figures__idle_memory_that_gave_way_is_counted, tide_emulated) {
  const tide_pool soft = tagged(d, "soft/x");
  const tide_pool asker = tagged(d, "asker");
  small_handles(d);
  limit_to(d, 8 * UNIT);
  budget_to(d, "soft", softly(2 * UNIT));
  leave_idle(d, soft, 6 * UNIT);

  const tide_block block = take_tagged(d, asker, NULL, 5 * UNIT);

  T_EQ(budget_stats(d, "soft").idle_bytes, 3 * UNIT);
  T_EQ(budget_stats(d, "soft/x").idle_bytes, 3 * UNIT);
  T_EQ(budget_stats(d, "asker").idle_bytes, 0);
  T_OK(tide_device_trim(d, 0));  // nobody asked for it
  T_EQ(budget_stats(d, "soft").idle_bytes, 3 * UNIT);
  give(d, block);
}

DEVICE_TEST_OVER(test_tag_figures__refused_requests_are_counted, device_emulated) {
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.tag = "tenant/a";
  options.is_plain = true;
  const tide_pool pool = pool_new(d, &options);
  budget_to(d, "tenant", limited(24 * MIB));
  T_EQ(budget_stats(d, "tenant").refused_count, 0);

  for (int i = 0; i < 3; ++i) expect_refused(d, pool, 32 * MIB);

  T_EQ(budget_stats(d, "tenant").refused_count, 3);
  T_EQ(budget_stats(d, "tenant/a").refused_count, 3);
  T_EQ(budget_stats(d, "tenants").refused_count, 0);
}

DEVICE_TEST_OVER(test_tag_figures__refused_uses_are_counted, tide_emulated) {
  const tide_pool away = tagged(d, "model/away");
  const tide_pool held = tagged(d, "model/held");
  small_handles(d);
  const tide_block first = take_tagged(d, away, NULL, 2 * UNIT);
  (void)park(d, "model/away", TIDE_BACKUP_PINNED);
  const tide_block second = take_tagged(d, held, NULL, 2 * UNIT);
  budget_to(d, "model", limited(3 * UNIT));

  T_STATUS(tide_device_use(d, "model/away", NULL), TIDE_ERR_NO_MEMORY);

  T_EQ(budget_stats(d, "model").refused_count, 1);
  give(d, second);
  (void)unpark(d, "model/away");
  give(d, first);
}
