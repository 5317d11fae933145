// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A leak continues at the same rate, and its blocks live longer than any that was freed at the same place.
// What grows only at the beginning, fills up and stops, or is replaced from time to time, is not a leak.
#include "steps/leaks.h"

#define LEAK_WARM_STEPS 2u  // at least so many steps of growth are taken for the beginning,
#define LEAK_WARM_PART 10u  // or one in so many of all
#define LEAK_GROWING 4u     // steps with a birth that make a leak
#define LEAK_CHANCE 0.05    // a slower second half that is less likely than this by accident is slowing down
#define COIN_EXACT 1000u

// Exact up to COIN_EXACT tosses, by the normal distribution above: 1.645 deviations are a chance of 5 %.
bool tide__coin_is_fair(uint32_t hits, uint32_t count) {
  if (2 * (uint64_t)hits >= count) return true;
  if (count > COIN_EXACT) {
    const double below = count / 2.0 - hits - 0.5;
    return below * below <= 1.645 * 1.645 * count / 4.0;
  }
  double term = 1;  // the chance of i heads
  double sum = 0;
  for (uint32_t i = 0; i < count; i++) term /= 2;
  for (uint32_t i = 0; i <= hits; i++) {
    sum += term;
    term = term * (count - i) / (i + 1);
  }
  return sum >= LEAK_CHANCE;
}

// The steps whose births are judged: not the beginning of the growth, and not so late that the blocks may
// still be freed. False if there are none.
static bool verdict_set_range(const tide__survival* g, tide__verdict* v) {
  const uint32_t part = (g->steps + LEAK_WARM_PART - 1) / LEAK_WARM_PART;
  const uint64_t young = 2 + 2 * (uint64_t)g->longest;
  v->first = g->births[0];
  v->from = v->first + (part > LEAK_WARM_STEPS ? part : LEAK_WARM_STEPS);
  if (g->steps < young + v->from) return false;
  v->to = (uint32_t)(g->steps - young);
  return true;
}

tide__verdict tide__survival_judge(const tide__survival* g) {
  tide__verdict v = { 0 };
  if (g->count == 0 || !verdict_set_range(g, &v)) return v;
  const uint32_t length = v.to - v.from + 1;
  uint32_t late = 0;  // growing steps in the second half
  for (size_t i = 0; i < g->count; i++) {
    const uint32_t birth = g->births[i];
    if (birth < v.from || birth > v.to || (i > 0 && birth == g->births[i - 1])) continue;
    v.growing++;
    late += birth - v.from >= length / 2;
    v.last = birth;
  }
  if (v.growing < LEAK_GROWING) return v;
  const bool goes_on = 3 * (uint64_t)(v.last - v.from + 1) > 2 * (uint64_t)length;
  v.is_leak = goes_on && tide__coin_is_fair(late, v.growing);
  v.certainty = (v.growing + 1.0) / (v.growing + 2.0);
  return v;
}
