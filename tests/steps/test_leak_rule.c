// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The rule by which growth is a leak, on plain numbers: cases by hand, and random programs of known truth.
#include "steps/leaks.h"
#include "t.h"

#define STEPS_MOST 2000u

// Births, gathered in order.
typedef struct births {
  uint32_t items[STEPS_MOST];
  size_t count;
} births;

static void birth_add(births* b, uint32_t step) { b->items[b->count++] = step; }

static tide__verdict judge(const births* b, uint32_t steps, uint32_t longest) {
  const tide__survival survival = { steps, longest, b->items, b->count };
  return tide__survival_judge(&survival);
}

static births births_every(uint32_t first, uint32_t end, uint32_t period) {
  births b = { .count = 0 };
  for (uint32_t i = first; i < end; i += period) birth_add(&b, i);
  return b;
}

// ---------------------------------------------------------------------------------------------------
// By hand

T_TEST(test_leak_rule__finds_one_in_every_step) {
  const births b = births_every(0, 16, 1);
  const tide__verdict v = judge(&b, 16, 0);
  T_CHECK(v.is_leak);
  T_EQ(v.first, 0);
  T_EQ(v.from, 2);  // after two steps of growth
  T_EQ(v.to, 14);   // the last step is too young
  T_EQ(v.growing, 13);
  T_EQ(v.last, 14);
  T_CHECK(v.certainty > 0.93 && v.certainty < 0.94);
}

T_TEST(test_leak_rule__finds_rare_ones) {
  const births third = births_every(0, 24, 3);
  const births hundredth = births_every(17, 800, 100);
  T_CHECK(judge(&third, 24, 0).is_leak);
  T_CHECK(judge(&hundredth, 800, 0).is_leak);
}

T_TEST(test_leak_rule__needs_four_growing_steps) {
  const births four = births_every(20, 96, 25);
  const births three = births_every(20, 96, 33);
  T_EQ(judge(&four, 100, 0).growing, 4);
  T_CHECK(judge(&four, 100, 0).is_leak);
  T_CHECK(!judge(&three, 100, 0).is_leak);
  T_CHECK(!judge(&four, 98, 1).is_leak);  // the last may still be freed
}

T_TEST(test_leak_rule__counts_a_step_once) {
  births b = { .count = 0 };
  for (int i = 0; i < 3; i++) {
    for (int k = 0; k < 9; k++) birth_add(&b, (uint32_t)(3 + 4 * i));
  }
  T_EQ(judge(&b, 16, 0).growing, 2);
  T_CHECK(!judge(&b, 16, 0).is_leak);
}

T_TEST(test_leak_rule__does_not_mind_the_beginning) {
  const births first = births_every(0, 1, 1);
  const births few = births_every(0, 5, 1);
  T_CHECK(!judge(&first, 100, 0).is_leak);
  T_CHECK(!judge(&few, 16, 0).is_leak);
}

T_TEST(test_leak_rule__does_not_mind_growth_that_ends) {
  for (uint32_t end = 1; end <= 60; end++) {
    const births b = births_every(0, end, 1);
    T_CHECK(!judge(&b, 100, 0).is_leak);
  }
  const births whole = births_every(0, 100, 1);
  T_CHECK(judge(&whole, 100, 0).is_leak);
  const births late = births_every(0, 60, 1);  // those after 58 may still be freed, but others would follow
  const births later = births_every(0, 80, 1);
  T_CHECK(!judge(&late, 100, 20).is_leak);
  T_CHECK(judge(&later, 100, 20).is_leak);
}

T_TEST(test_leak_rule__does_not_mind_phases) {
  for (uint32_t first = 10; first < 90; first += 10) {
    births b = births_every(first, first + 4, 1);
    T_CHECK(!judge(&b, 100, 0).is_leak);
    for (uint32_t i = first + 40; i < first + 43; i++) birth_add(&b, i);
    T_CHECK(!judge(&b, 100, 0).is_leak);
    births again = births_every(0, 2, 1);  // after the beginning
    for (uint32_t i = first; i < first + 3; i++) birth_add(&again, i);
    T_CHECK(!judge(&again, 100, 0).is_leak);
  }
}

T_TEST(test_leak_rule__does_not_mind_growth_that_slows_down) {
  births squares = { .count = 0 };
  births powers = { .count = 0 };
  for (uint32_t i = 0; i < 20; i++) birth_add(&squares, i * i);
  for (uint32_t i = 0; i < 9; i++) birth_add(&powers, 1u << i);
  T_CHECK(!judge(&squares, 400, 0).is_leak);
  T_CHECK(!judge(&powers, 300, 0).is_leak);
}

T_TEST(test_leak_rule__does_not_mind_blocks_that_may_be_freed_yet) {
  const births b = births_every(10, 50, 1);  // none is older than others were
  T_CHECK(!judge(&b, 50, 40).is_leak);
  T_CHECK(!judge(&b, 50, 20).is_leak);
  T_CHECK(judge(&b, 50, 1).is_leak);
}

T_TEST(test_leak_rule__finds_growth_that_begins_late) {
  const births b = births_every(60, 100, 1);
  const tide__verdict v = judge(&b, 100, 0);
  T_CHECK(v.is_leak);
  T_EQ(v.first, 60);
  T_EQ(v.from, 70);
}

T_TEST(test_leak_rule__knows_nothing_of_nothing) {
  const births none = { .count = 0 };
  const births one = births_every(3, 4, 1);
  T_CHECK(!judge(&none, 0, 0).is_leak);
  T_CHECK(!judge(&none, 100, 0).is_leak);
  T_CHECK(!judge(&one, 4, UINT32_MAX).is_leak);
}

// ---------------------------------------------------------------------------------------------------
// Random programs: a block is born with a chance in each step, and freed by some rule

typedef struct program {
  uint32_t steps;
  uint32_t chance;   // of 1000
  uint32_t slowing;  // a chance of this / (this + step) instead; 0: `chance`
  uint32_t end;      // no births from here on; 0: no end
  size_t bound;      // of blocks that are kept; 0: no bound
  bool replaces;     // at the bound: replaces one, or stops growing
  bool is_random;    // replaces any, or the oldest
} program;

static tide__verdict program_judge(const program* p, t_rng* rng) {
  births kept = { .count = 0 };
  uint32_t longest = 0;
  for (uint32_t step = 0; step < p->steps; step++) {
    if (p->end > 0 && step >= p->end) continue;
    if (p->slowing == 0 ? t_rng_below(rng, 1000) >= p->chance
                        : t_rng_below(rng, p->slowing + step) >= p->slowing)
      continue;
    if (p->bound > 0 && kept.count == p->bound) {
      if (!p->replaces) continue;
      const size_t out = p->is_random ? t_rng_below(rng, kept.count) : 0;
      const uint32_t age = step - kept.items[out];
      longest = age > longest ? age : longest;
      kept.count--;
      for (size_t i = out; i < kept.count; i++) kept.items[i] = kept.items[i + 1];
    }
    birth_add(&kept, step);
  }
  return judge(&kept, p->steps, longest);
}

static double share_of_leaks(const program* p, uint64_t index) {
  const size_t runs = t_scaled_least(400, 400);  // shares are judged
  t_rng rng = t_rng_new(index);
  size_t leaks = 0;
  for (size_t i = 0; i < runs; i++) leaks += program_judge(p, &rng).is_leak;
  return (double)leaks / (double)runs;
}

T_TEST(test_leak_rule__misses_few_random_leaks) {
  T_CHECK(share_of_leaks(&(program){ .steps = 100, .chance = 300 }, 1) > 0.85);
  T_CHECK(share_of_leaks(&(program){ .steps = 300, .chance = 200 }, 2) > 0.85);
  T_CHECK(share_of_leaks(&(program){ .steps = 2000, .chance = 10 }, 3) > 0.85);
  T_CHECK(share_of_leaks(&(program){ .steps = 1000, .chance = 10 }, 5) > 0.8);
  T_CHECK(share_of_leaks(&(program){ .steps = 500, .chance = 10 }, 6) > 0.5);
  T_CHECK(share_of_leaks(&(program){ .steps = 16, .chance = 900 }, 4) > 0.85);
}

T_TEST(test_leak_rule__never_takes_a_queue_for_a_leak) {
  for (size_t bound = 1; bound < 30; bound++) {
    const program queue = { .steps = 60, .chance = 1000, .bound = bound, .replaces = true };
    T_CHECK(share_of_leaks(&queue, bound) <= 0);
  }
}

T_TEST(test_leak_rule__rarely_takes_a_cache_for_a_leak) {
  const program replaced = { .steps = 200, .chance = 700, .bound = 8, .replaces = true, .is_random = true };
  const program full = { .steps = 200, .chance = 300, .bound = 20 };
  const program slow = { .steps = 400, .chance = 100, .bound = 12 };
  T_CHECK(share_of_leaks(&replaced, 11) < 0.01);
  T_CHECK(share_of_leaks(&full, 12) < 0.01);
  T_CHECK(share_of_leaks(&slow, 13) < 0.03);
}

// Blocks of what is new, which comes less and less often; and caches that are full late.
T_TEST(test_leak_rule__rarely_takes_growth_that_fades_for_a_leak) {
  T_CHECK(share_of_leaks(&(program){ .steps = 1000, .slowing = 1 }, 21) < 0.1);
  T_CHECK(share_of_leaks(&(program){ .steps = 1000, .slowing = 4 }, 22) < 0.1);
  T_CHECK(share_of_leaks(&(program){ .steps = 1000, .slowing = 10 }, 23) < 0.1);
  T_CHECK(share_of_leaks(&(program){ .steps = 1000, .chance = 200, .end = 850 }, 24) < 0.01);
  T_CHECK(share_of_leaks(&(program){ .steps = 500, .chance = 200, .end = 400 }, 25) < 0.01);
}
