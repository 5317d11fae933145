// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A leak continues at the same rate, and its blocks live longer than any that was freed at the same place.
// What grows only at the beginning, fills up and stops, or is replaced from time to time, is not a leak.
//
// A cache of what was seen, such as shapes, grows at a rate like 1 / t: the longer it runs, the less is new.
// So the births are compared with both rates. The score of a step t is 1 + 1/2 + ... + 1/t, because the mean
// score of the births is what tells the two rates apart best (Neyman and Pearson).
#include "steps/leaks.h"

#define LEAK_WARM_STEPS 2u     // at least so many steps of growth are taken for the beginning,
#define LEAK_WARM_PART 10u     // or one in so many of all
#define LEAK_GROWING 4u        // steps with a birth that make a leak
#define LEAK_DEVIATIONS 1.645  // a normal variable is so far below its mean with a chance of 5 %
#define LEAK_SILENCE 0.01      // growth has ended if a silence so long has a smaller chance

// The births of the steps `from` to `to`. The growth began at `origin`.
typedef struct period {
  uint32_t origin;
  uint32_t from;
  uint32_t to;
  uint32_t apart;    // births count that are more steps after the previous one
  uint32_t growing;  // steps with a birth that counts
  uint32_t last;     // birth
  double score;      // mean of the steps with a birth
} period;

// Mean and variance of the score of a step, if births have a rate.
typedef struct rate {
  double weight;
  double mean;
  double square;
} rate;

static void rate_add(rate* r, double weight, double score) {
  r->weight += weight;
  r->mean += weight * score;
  r->square += weight * score * score;
}

// -1: clearly fewer late births than at this rate, 1: clearly more, 0: neither.
typedef struct comparison {
  int even;
  int slowing;
} comparison;

static int rate_compare(const rate* r, const period* p) {
  const double mean = r->mean / r->weight;
  const double variance = r->square / r->weight - mean * mean;
  const double apart = p->score - mean;
  if (apart * apart * p->growing <= LEAK_DEVIATIONS * LEAK_DEVIATIONS * variance) return 0;
  return apart < 0 ? -1 : 1;
}

static bool birth_counts(const tide__survival* g, size_t i, const period* p) {
  return i == 0 || g->births[i] - g->births[i - 1] > p->apart;
}

// False if there is no such step.
static bool period_count(const tide__survival* g, period* p) {
  if (p->from > p->to) return false;
  for (size_t i = 0; i < g->count; i++) {
    const uint32_t birth = g->births[i];
    if (birth < p->from || birth > p->to || !birth_counts(g, i, p)) continue;
    p->growing++;
    p->last = birth;
  }
  return p->growing > 0;
}

// Is there a birth in the last third, and is the silence since the last one to be expected? A silence after
// the period counts as well, but for the steps in which blocks were born that live for a while.
static bool period_goes_on(const tide__survival* g, const period* p) {
  const uint32_t end = g->steps - 2 - g->longest;
  uint32_t last = p->last;
  for (size_t i = 0; i < g->count && g->births[i] <= end; i++) last = g->births[i];
  const double share = (last - p->from + 1.0) / (end - p->from + 1.0);
  double chance = 1;
  for (uint32_t i = 0; i < p->growing && chance >= LEAK_SILENCE; i++) chance *= share;
  return 3 * share > 2 && chance >= LEAK_SILENCE;
}

static void period_score(const tide__survival* g, period* p, rate* out_even, rate* out_slowing) {
  double score = 0;
  size_t next = 0;
  for (uint32_t step = p->origin; step <= p->to; step++) {
    const double weight = 1.0 / (step - p->origin + 1.0);
    score += weight;
    if (step < p->from) continue;
    rate_add(out_even, 1, score);
    rate_add(out_slowing, weight, score);
    while (next < g->count && g->births[next] < step) next++;
    if (next < g->count && g->births[next] == step) p->score += score / p->growing;
  }
}

// How the births compare with either rate.
static comparison period_compare(const tide__survival* g, period* p) {
  rate even = { 0 };
  rate slowing = { 0 };
  period_score(g, p, &even, &slowing);
  return (comparison){ rate_compare(&even, p), rate_compare(&slowing, p) };
}

// The births after the beginning. If most steps grow, the rate 1 / t says nothing.
static bool survival_is_leak(const tide__survival* g, period* later) {
  if (later->growing < LEAK_GROWING || !period_goes_on(g, later)) return false;
  const bool is_dense = 2 * (uint64_t)later->growing > later->to - later->from + UINT64_C(1);
  const comparison c = period_compare(g, later);
  return c.even >= 0 && (is_dense || c.slowing > 0);
}

static void verdict_set(tide__verdict* v, const period* p, bool is_leak) {
  v->is_leak = is_leak;
  v->from = p->from;
  v->growing = p->growing;
  v->last = p->last;
  v->certainty = (p->growing + 1.0) / (p->growing + 2.0);
}

// Rare births: all since the beginning of the recording are compared, because its first part tells the two
// rates apart best. What a phase of the program needs comes at once, so it is one event, and the time since
// the first birth must be even, too.
static bool survival_is_rare_leak(const tide__survival* g, const tide__verdict* v, period* out) {
  period events = { .to = v->to, .apart = LEAK_WARM_STEPS };
  period all = { .to = v->to };
  period since = { .origin = v->first, .from = v->first + 1, .to = v->to };
  if (!period_count(g, &events) || events.growing < LEAK_GROWING) return false;
  if (!period_count(g, &all) || !period_count(g, &since) || !period_goes_on(g, &since)) return false;
  *out = all;
  out->from = v->first;
  const comparison c = period_compare(g, &all);
  return c.even >= 0 && c.slowing > 0 && period_compare(g, &since).even >= 0;
}

// The births of the beginning are left out, and those so late that the blocks may still be freed.
tide__verdict tide__survival_judge(const tide__survival* g) {
  tide__verdict v = { 0 };
  if (g->count == 0) return v;
  const uint32_t part = (g->steps + LEAK_WARM_PART - 1) / LEAK_WARM_PART;
  const uint64_t young = 2 + 2 * (uint64_t)g->longest;
  v.first = g->births[0];
  v.from = v.first + (part > LEAK_WARM_STEPS ? part : LEAK_WARM_STEPS);
  if (g->steps < young + v.from) return v;
  v.to = (uint32_t)(g->steps - young);
  period later = { .origin = v.first, .from = v.from, .to = v.to };
  period rare;
  if (!period_count(g, &later)) return v;
  verdict_set(&v, &later, false);
  if (survival_is_leak(g, &later)) v.is_leak = true;
  else if (survival_is_rare_leak(g, &v, &rare)) verdict_set(&v, &rare, true);
  return v;
}
