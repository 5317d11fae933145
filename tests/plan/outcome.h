// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Checks everything that the solver says about a small problem against the oracle: the plan, the verdict,
// the bound, and the proof of the bound.
#ifndef TIDEMARK_TESTS_PLAN_OUTCOME_H
#define TIDEMARK_TESTS_PLAN_OUTCOME_H

#include "plan/oracle.h"

#define OUTCOME_ANY_INSTANT UINT64_MAX

typedef struct outcome_case {
  const small_problem* p;
  const tide_plan* plan;
  tide_plan_goal goal;
  bool may_give_up;  // the solver need not find the best plan, nor a proof
  uint64_t optimum;  // the smallest sum of peaks, or ORACLE_NONE
  tide_plan_outcome result;
} outcome_case;

static inline void outcome_require(const outcome_case* c, bool is_right, const char* what) {
  if (is_right) return;
  const tide_plan_outcome* const r = &c->result;
  small_print(c->p);
  for (size_t i = 0; tide_plan_offsets(c->plan) != NULL && i < c->p->problem.count; i++) {
    (void)dprintf(STDERR_FILENO, "// %d of pool %d\n", (int)tide_plan_offsets(c->plan)[i],
                  (int)tide_plan_pools(c->plan)[i]);
  }
  T_FAIL("%s: goal %d, verdict %s, stage %s, peak %d, bound %d, gap %g, nodes %d, reason %d of pool %d at %d "
         "(%d, %d), "
         "optimum %d",
         what, (int)c->goal, tide_plan_verdict_name(r->verdict), tide_plan_stage_name(r->stage), (int)r->peak,
         (int)r->lower_bound, r->gap, (int)r->nodes, (int)r->proof.reason, (int)r->proof.pool,
         (int)r->proof.instant, (int)r->proof.buffer, (int)r->proof.other, (int)c->optimum);
}

// ---------------------------------------------------------------------------------------------------
// Plans

// The peaks of all pools together.
static inline uint64_t outcome_peak(const outcome_case* c, const uint64_t* offsets, const uint32_t* pools) {
  uint64_t peaks[SMALL_POOLS] = { 0 };
  uint64_t sum = 0;
  for (size_t i = 0; i < c->p->problem.count; i++) {
    const uint64_t end = offsets[i] + c->p->buffers[i].bytes;
    if (small_holds(&c->p->buffers[i]) && end > peaks[pools[i]]) peaks[pools[i]] = end;
  }
  for (size_t i = 0; i < SMALL_POOLS; i++) sum += peaks[i];
  return sum;
}

static inline void outcome_check_plan(const outcome_case* c) {
  const uint64_t* const offsets = tide_plan_offsets(c->plan);
  const uint32_t* const pools = tide_plan_pools(c->plan);
  const tide_plan_outcome* const r = &c->result;
  const bool has_plan = r->verdict == TIDE_PLAN_OPTIMAL || r->verdict == TIDE_PLAN_FEASIBLE;
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;
  outcome_require(c, has_plan == (offsets != NULL) && has_plan == (pools != NULL), "a plan and its verdict");
  if (offsets == NULL || pools == NULL) return;
  T_OK(tide_plan_verify(&c->p->problem, offsets, pools, NULL, &check));
  outcome_require(c, check.fault == TIDE_PLAN_NO_FAULT, check.text);
  outcome_require(c, r->peak == outcome_peak(c, offsets, pools), "the peak is that of the plan");
  outcome_require(c, c->optimum <= r->peak, "the oracle is wrong");
  const double gap = r->lower_bound == 0 ? 0 : (double)(r->peak - r->lower_bound) / (double)r->lower_bound;
  outcome_require(c, r->gap >= gap - 1e-9 && r->gap <= gap + 1e-9, "the gap");
}

// ---------------------------------------------------------------------------------------------------
// Proofs

static inline void outcome_clip(small_problem* p, size_t index, uint64_t instant) {
  tide_plan_buffer* const b = &p->buffers[index];
  const uint64_t held = small_held(b, instant);
  b->gap_count = 1;
  p->gaps[index][0] = (tide_plan_gap){ instant, instant + 1, 0, 0 };
  if (held != 0) p->gaps[index][0].first = (uint64_t)__builtin_ctzll(held);
  if (held != 0) p->gaps[index][0].last = oracle_top_bit(held);
  b->lower = instant;
  b->upper = instant + 1;
}

// The smallest peak of the buffers of a set in a pool of their own, with what they hold at an instant alone.
// This is what a proof rests on.
static inline uint64_t outcome_needed(const small_problem* p, uint32_t set, uint64_t instant) {
  static oracle o;
  static small_problem part;
  size_t count = 0;
  memset(&part, 0, sizeof part);
  for (size_t i = 0; i < p->problem.count; i++) {
    if ((set >> i & 1) == 0) continue;
    part.buffers[count] = p->buffers[i];
    memcpy(part.gaps[count], p->gaps[i], sizeof part.gaps[count]);
    part.buffers[count].gaps = part.gaps[count];
    if (instant != OUTCOME_ANY_INSTANT) outcome_clip(&part, count, instant);
    count++;
  }
  small_link(&part, count, 0);
  oracle_init(&o, &part);
  return o.is_impossible ? ORACLE_NONE : oracle_smallest(&o, oracle_all(&o));
}

// A buffer with all that share its storage, as they have one place.
static inline uint32_t outcome_storage(const small_problem* p, size_t index) {
  uint32_t set = 0;
  for (size_t i = 0; i < p->problem.count; i++) {
    if (small_holder(p, i) == small_holder(p, index)) set |= 1u << i;
  }
  return set;
}

// The live set is what holds memory in the pool at the instant, all of it, in order. Its storages are
// returned.
static inline uint32_t outcome_live_set(const outcome_case* c, uint32_t pool, uint64_t instant) {
  size_t count = 0;
  const size_t* const live = tide_plan_live_set(c->plan, pool, &count);
  uint32_t set = 0;
  for (size_t i = 0; i < count; i++) {
    outcome_require(c, live[i] < c->p->problem.count && (i == 0 || live[i - 1] < live[i]),
                    "the live set rises");
    outcome_require(c, small_held(&c->p->buffers[live[i]], instant) != 0, "the live set holds memory");
    set |= outcome_storage(c->p, live[i]);
  }
  for (size_t i = 0; i < c->p->problem.count && tide_plan_pools(c->plan) != NULL; i++) {
    if (tide_plan_pools(c->plan)[i] != pool || small_held(&c->p->buffers[i], instant) == 0) continue;
    outcome_require(c, (set >> i & 1) != 0, "the live set is complete");
  }
  return set;
}

// What the reason of a proof has room in: a pool, all of them together, or for a buffer the largest.
static inline uint64_t outcome_room(const small_problem* p, const tide_plan_proof* proof) {
  if (p->problem.pools == 0) return UINT64_MAX;
  if (proof->pool != TIDE_PLAN_ANY_POOL) return p->capacities[proof->pool];
  uint64_t sum = 0;
  uint64_t largest = 0;
  for (uint32_t i = 0; i < p->problem.pools; i++) {
    if (p->capacities[i] == UINT64_MAX) return UINT64_MAX;
    if (p->capacities[i] > largest) largest = p->capacities[i];
    sum += p->capacities[i];
  }
  return proof->reason == TIDE_PLAN_LOAD ? sum : largest;
}

// What a proof names needs at least the bound by itself, or, if there is no plan, more than there is room
// for.
static inline void outcome_check_proof(const outcome_case* c, const tide_plan_outcome* r) {
  const tide_plan_proof* const proof = &r->proof;
  uint32_t set = 0;
  if (proof->reason == TIDE_PLAN_NO_REASON || proof->reason == TIDE_PLAN_SEARCH) return;
  if (proof->reason == TIDE_PLAN_LOAD) {
    set = outcome_live_set(c, proof->pool, proof->instant);
  } else {
    set = outcome_storage(c->p, proof->buffer);
    if (proof->reason == TIDE_PLAN_PAIR) set |= outcome_storage(c->p, proof->other);
  }
  const uint64_t instant = proof->reason == TIDE_PLAN_LOAD ? proof->instant : OUTCOME_ANY_INSTANT;
  const uint64_t needed = outcome_needed(c->p, set, instant);
  if (r->verdict == TIDE_PLAN_INFEASIBLE) {
    const bool is_too_much = needed == ORACLE_NONE || needed > outcome_room(c->p, proof);
    outcome_require(c, is_too_much, "the proof says why there is no plan");
  } else {
    outcome_require(c, needed >= r->lower_bound, "the proof holds");
  }
}

// ---------------------------------------------------------------------------------------------------
// Verdicts

static inline void outcome_check_verdict(const outcome_case* c) {
  const tide_plan_outcome* const r = &c->result;
  const bool is_possible = c->optimum != ORACLE_NONE;
  outcome_require(c, !is_possible || r->lower_bound <= c->optimum, "no plan is below the bound");
  switch (r->verdict) {
    case TIDE_PLAN_OPTIMAL:
      outcome_require(c, r->peak == c->optimum && r->lower_bound == r->peak, "optimal");
      break;
    case TIDE_PLAN_FEASIBLE:
      outcome_require(c, r->lower_bound < r->peak, "feasible, and not optimal");
      outcome_require(c, c->may_give_up || c->goal == TIDE_PLAN_FIT, "not the smallest");
      break;
    case TIDE_PLAN_INFEASIBLE:
      outcome_require(c, !is_possible && r->proof.reason != TIDE_PLAN_NO_REASON, "infeasible, with a reason");
      break;
    case TIDE_PLAN_UNKNOWN: outcome_require(c, c->may_give_up, "unknown"); break;
    default: outcome_require(c, false, "a verdict"); break;
  }
}

// Checks what is said of one pool. If it has a plan, its bound is about the buffers that lie in it.
static inline void outcome_check_pool(outcome_case* c, uint32_t pool) {
  static small_problem alone;
  static oracle o;
  const uint32_t* const pools = tide_plan_pools(c->plan);
  c->result = tide_plan_pool_result(c->plan, pool);
  if (pools != NULL) {
    size_t count = 0;
    small_copy(&alone, c->p);
    for (size_t i = 0; i < c->p->problem.count; i++) {
      if (pools[i] != pool) continue;
      memcpy(alone.gaps[count], c->p->gaps[i], sizeof alone.gaps[count]);
      alone.buffers[count] = c->p->buffers[i];
      alone.buffers[count++].pool = 0;
    }
    small_link(&alone, count, 0);
    c->optimum = oracle_solve(&o, &alone);
    outcome_check_verdict(c);
  }
  outcome_check_proof(c, &c->result);
}

// Solves a problem and checks whatever the solver says about it. Returns what it said.
static inline tide_plan_outcome outcome_of(const small_problem* p, const tide_plan_options* options,
                                           bool may_give_up) {
  static oracle o;
  tide_plan* plan = NULL;
  const tide_status status = tide_plan_solve(&p->problem, options, &plan);
  if (status != TIDE_OK) small_print(p);
  T_OK(status);
  outcome_case c = { .p = p, .plan = plan, .goal = options->goal, .may_give_up = may_give_up };
  c.result = tide_plan_result(plan);
  c.optimum = oracle_solve(&o, p);
  outcome_check_verdict(&c);
  outcome_check_plan(&c);
  if (c.result.proof.pool == TIDE_PLAN_ANY_POOL) outcome_check_proof(&c, &c.result);  // others by their pools
  const tide_plan_outcome result = c.result;
  const size_t pools = p->problem.pools == 0 ? 1 : p->problem.pools;
  for (uint32_t i = 0; i < pools; i++) outcome_check_pool(&c, i);
  tide_plan_free(plan);
  return result;
}

// Without limits: the solver goes on until it has a proof.
static inline tide_plan_options outcome_options(tide_plan_goal goal) {
  tide_plan_options options = TIDE_PLAN_OPTIONS_INIT;
  options.goal = goal;
  options.seconds = 0;
  return options;
}

#endif
