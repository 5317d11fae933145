// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Fuzzes the planning solver and its verifier with small problems of any sense and nonsense: lifetimes that
// are reversed, sizes near 2^63, gaps, shared storage, pools, fixed offsets and hints. A problem is refused
// by both or by neither. A plan passes the verifier and a check of this file's own; its verdict and its
// bound stand up to trying every arrangement, as far as that goes; the same seed gives the same plan with
// any number of threads; nothing leaks, also when memory ends in the middle. Offsets at random are judged
// alike by the verifier and the check.
//
// The bytes: count of buffers, switches, count of pools, seed, nodes, the pool's capacities, the buffers (see
// fuzz_take_buffer), and an offset for each. See fuzz_take_number for a number.
#define T_THREADS
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "tidemark/plan.h"

enum { FUZZ_BUFFERS = 24, FUZZ_GAPS = 3, FUZZ_POOLS = 3, FUZZ_TRIALS = 5000 };

// ---------------------------------------------------------------------------------------------------
// A problem out of bytes

typedef enum fuzz_switch {
  FUZZ_FITS = 1,       // the goal is to fit
  FUZZ_KEEPS = 2,      // hints are kept
  FUZZ_THREADS = 4,    // the second run has two threads
  FUZZ_STOPS = 8,      // on_progress ends the search
  FUZZ_LACKS = 16,     // memory ends in the middle
  FUZZ_ANY_POOLS = 32  // the verifier is told pools
} fuzz_switch;

typedef enum fuzz_field {
  FUZZ_HAS_ALIGNMENT = 1,
  FUZZ_HAS_OFFSET = 2,
  FUZZ_HAS_HINT = 4,
  FUZZ_HAS_GAPS = 8,
  FUZZ_HAS_ALIAS = 16,
  FUZZ_HAS_POOL = 32,
  FUZZ_HAS_UPPER = 64,  // the end of the lifetime is any number, not one after its beginning
  FUZZ_IS_COPY = 128    // the same as the buffer before, nothing else is taken
} fuzz_field;

typedef struct fuzz_case {
  tide_plan_buffer buffers[FUZZ_BUFFERS];
  tide_plan_gap gaps[FUZZ_BUFFERS][FUZZ_GAPS];
  uint64_t capacities[FUZZ_POOLS];
  tide_plan_problem problem;
  tide_plan_options options;
  unsigned switches;
  uint64_t offsets[FUZZ_BUFFERS];  // at random, for the verifier
  uint32_t pools[FUZZ_BUFFERS];
} fuzz_case;

// Most numbers are small, some have two bytes, some are where arithmetic ends.
static uint64_t fuzz_take_number(fuzz_bytes* b) {
  static const uint64_t far[] = { 1000000,
                                  UINT32_MAX,
                                  (uint64_t)UINT32_MAX + 1,
                                  INT32_MAX,
                                  (uint64_t)1 << 40,
                                  (uint64_t)1 << 61,
                                  (uint64_t)1 << 62,
                                  INT64_MAX / 2,
                                  TIDE_PLAN_MAX_BYTES - 8,
                                  TIDE_PLAN_MAX_BYTES - 1,
                                  TIDE_PLAN_MAX_BYTES,
                                  TIDE_PLAN_MAX_BYTES + 1,
                                  UINT64_MAX - 8,
                                  UINT64_MAX - 2,
                                  UINT64_MAX - 1,
                                  UINT64_MAX };
  const uint8_t first = fuzz_take(b);
  if (first < 0xc0) return first % 24;
  if (first < 0xe0) return (uint64_t)(first - 0xc0) << 8 | fuzz_take(b);
  return far[first % 16];
}

static void fuzz_take_gaps(fuzz_bytes* b, tide_plan_buffer* buffer, tide_plan_gap* gaps) {
  buffer->gaps = gaps;
  buffer->gap_count = fuzz_take(b) % (FUZZ_GAPS + 1);
  uint64_t lower = buffer->lower;
  for (size_t i = 0; i < buffer->gap_count; i++) {
    gaps[i].lower = lower + fuzz_take_number(b);
    gaps[i].upper = gaps[i].lower + fuzz_take_number(b);
    gaps[i].first = fuzz_take_number(b);
    gaps[i].last = gaps[i].first + fuzz_take_number(b);
    lower = gaps[i].upper;
  }
}

static void fuzz_take_buffer(fuzz_bytes* b, tide_plan_buffer* buffer, tide_plan_gap* gaps) {
  const unsigned fields = fuzz_take(b);
  if (fields & FUZZ_IS_COPY) return;
  *buffer = (tide_plan_buffer){ TIDE_PLAN_FREELY };
  buffer->lower = fuzz_take_number(b);
  buffer->upper = fuzz_take_number(b) + (fields & FUZZ_HAS_UPPER ? 0 : buffer->lower);
  buffer->bytes = fuzz_take_number(b);
  if (fields & FUZZ_HAS_ALIGNMENT) buffer->alignment = fuzz_take_number(b);
  if (fields & FUZZ_HAS_OFFSET) buffer->offset = fuzz_take_number(b);
  if (fields & FUZZ_HAS_HINT) buffer->hint = fuzz_take_number(b);
  if (fields & FUZZ_HAS_GAPS) fuzz_take_gaps(b, buffer, gaps);
  if (fields & FUZZ_HAS_ALIAS) buffer->alias = fuzz_take(b) % 4;
  if (fields & FUZZ_HAS_POOL) buffer->pool = (uint32_t)(fuzz_take(b) % 5) - 1;  // any, or 0 to 3
}

static void fuzz_take_case(fuzz_bytes* b, fuzz_case* c) {
  memset(c, 0, sizeof *c);
  c->problem = (tide_plan_problem){ .buffers = c->buffers, .count = fuzz_take(b) % (FUZZ_BUFFERS + 1) };
  c->switches = fuzz_take(b);
  c->problem.pools = fuzz_take(b) % (FUZZ_POOLS + 1);
  c->problem.capacities = c->capacities;
  c->options = (tide_plan_options)TIDE_PLAN_OPTIONS_INIT;
  c->options.goal = c->switches & FUZZ_FITS ? TIDE_PLAN_FIT : TIDE_PLAN_PEAK;
  c->options.keeps_hints = (c->switches & FUZZ_KEEPS) != 0;
  c->options.seconds = 0;
  c->options.seed = fuzz_take(b);
  c->options.nodes = 1 + 3 * (uint64_t)fuzz_take(b);
  for (size_t i = 0; i < c->problem.pools; i++) c->capacities[i] = fuzz_take_number(b);
  for (size_t i = 0; i < c->problem.count; i++) {
    if (i > 0) c->buffers[i] = c->buffers[i - 1];
    fuzz_take_buffer(b, &c->buffers[i], c->gaps[i]);
  }
  for (size_t i = 0; i < c->problem.count; i++) {
    c->pools[i] = fuzz_take(b) % 4;
    c->offsets[i] = fuzz_take_number(b);
  }
}

// ---------------------------------------------------------------------------------------------------
// The check

typedef struct fuzz_window {
  uint64_t first;
  uint64_t last;
} fuzz_window;

// The part of its bytes that a buffer holds at an instant.
static fuzz_window fuzz_window_at(const tide_plan_buffer* buffer, uint64_t instant) {
  if (instant < buffer->lower || instant >= buffer->upper) return (fuzz_window){ 0, 0 };
  for (size_t i = 0; i < buffer->gap_count; i++) {
    const tide_plan_gap* const gap = &buffer->gaps[i];
    if (gap->lower <= instant && instant < gap->upper) return (fuzz_window){ gap->first, gap->last };
  }
  return (fuzz_window){ 0, buffer->bytes };
}

static bool fuzz_holds_at(const tide_plan_buffer* buffer, uint64_t instant) {
  const fuzz_window window = fuzz_window_at(buffer, instant);
  return window.first < window.last;
}

// What a buffer holds changes only where its lifetime or a gap begins or ends.
static bool fuzz_holds(const tide_plan_buffer* buffer) {
  bool holds = fuzz_holds_at(buffer, buffer->lower);
  for (size_t i = 0; i < buffer->gap_count; i++) {
    holds = holds || fuzz_holds_at(buffer, buffer->gaps[i].lower);
    holds = holds || fuzz_holds_at(buffer, buffer->gaps[i].upper);
  }
  return holds;
}

static bool fuzz_meet_at(const tide_plan_buffer* a, uint64_t offset_a, const tide_plan_buffer* b,
                         uint64_t offset_b, uint64_t instant) {
  const fuzz_window x = fuzz_window_at(a, instant);
  const fuzz_window y = fuzz_window_at(b, instant);
  if (x.first >= x.last || y.first >= y.last) return false;
  return offset_a + x.first < offset_b + y.last && offset_b + y.first < offset_a + x.last;
}

static bool fuzz_meet(const tide_plan_buffer* a, uint64_t offset_a, const tide_plan_buffer* b,
                      uint64_t offset_b) {
  const tide_plan_buffer* const both[] = { a, b };
  for (size_t k = 0; k < 2; k++) {
    if (fuzz_meet_at(a, offset_a, b, offset_b, both[k]->lower)) return true;
    for (size_t i = 0; i < both[k]->gap_count; i++) {
      if (fuzz_meet_at(a, offset_a, b, offset_b, both[k]->gaps[i].lower)) return true;
      if (fuzz_meet_at(a, offset_a, b, offset_b, both[k]->gaps[i].upper)) return true;
    }
  }
  return false;
}

// Whether a buffer may lie there, next to no other.
static bool fuzz_may_lie(const tide_plan_problem* problem, size_t i, uint64_t offset, uint32_t pool) {
  const tide_plan_buffer* const buffer = &problem->buffers[i];
  const uint64_t alignment = buffer->alignment > 0 ? buffer->alignment : 1;
  const bool holds = fuzz_holds(buffer);
  const uint64_t bytes = holds ? buffer->bytes : 0;
  const bool is_limited = holds && problem->pools > 0 && problem->capacities[pool] < TIDE_PLAN_MAX_BYTES;
  const uint64_t limit = is_limited ? problem->capacities[pool] : TIDE_PLAN_MAX_BYTES;
  if (buffer->offset != TIDE_PLAN_ANYWHERE && offset != buffer->offset) return false;
  if (buffer->pool != TIDE_PLAN_ANY_POOL && pool != buffer->pool) return false;
  if (offset % alignment != 0) return false;
  return bytes <= limit && offset <= limit - bytes;
}

static bool fuzz_may_share(const tide_plan_problem* problem, const uint64_t* offsets, const uint32_t* pools,
                           size_t i, size_t j) {
  const tide_plan_buffer* const a = &problem->buffers[i];
  const tide_plan_buffer* const b = &problem->buffers[j];
  if (a->alias != 0 && a->alias == b->alias) return offsets[i] == offsets[j] && pools[i] == pools[j];
  return pools[i] != pools[j] || !fuzz_meet(a, offsets[i], b, offsets[j]);
}

static bool fuzz_is_plan(const tide_plan_problem* problem, const uint64_t* offsets, const uint32_t* pools) {
  for (size_t i = 0; i < problem->count; i++) {
    if (pools[i] >= (problem->pools > 0 ? problem->pools : 1)) return false;
    if (!fuzz_may_lie(problem, i, offsets[i], pools[i])) return false;
    for (size_t j = 0; j < i; j++) {
      if (!fuzz_may_share(problem, offsets, pools, i, j)) return false;
    }
  }
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Trying every arrangement

typedef struct fuzz_trial {
  tide_plan_problem problem;  // with buffers and capacities to be tried
  tide_plan_buffer buffers[FUZZ_BUFFERS];
  uint64_t capacities[FUZZ_POOLS];
  uint64_t total;  // the sum of all peaks may not be higher
  uint64_t offsets[FUZZ_BUFFERS];
  uint32_t pools[FUZZ_BUFFERS];
  size_t left;  // placements that may still be tried
} fuzz_trial;

static bool fuzz_trial_place(fuzz_trial* t, size_t i);

// The sum of the peaks of the first buffers.
static uint64_t fuzz_trial_total(const fuzz_trial* t, size_t count) {
  uint64_t peaks[FUZZ_POOLS] = { 0 };
  for (size_t i = 0; i < count; i++) {
    const uint64_t end = t->offsets[i] + t->buffers[i].bytes;
    if (fuzz_holds(&t->buffers[i]) && end > peaks[t->pools[i]]) peaks[t->pools[i]] = end;
  }
  return peaks[0] + peaks[1] + peaks[2];
}

static bool fuzz_trial_fits(const fuzz_trial* t, size_t i) {
  if (!fuzz_may_lie(&t->problem, i, t->offsets[i], t->pools[i])) return false;
  for (size_t j = 0; j < i; j++) {
    if (!fuzz_may_share(&t->problem, t->offsets, t->pools, i, j)) return false;
  }
  return fuzz_trial_total(t, i + 1) <= t->total;
}

static bool fuzz_trial_place_in(fuzz_trial* t, size_t i, uint32_t pool) {
  const tide_plan_buffer* const buffer = &t->problem.buffers[i];
  const uint64_t step = buffer->alignment > 0 ? buffer->alignment : 1;
  const uint64_t limit = t->capacities[pool];
  const uint64_t first = buffer->offset != TIDE_PLAN_ANYWHERE ? buffer->offset : 0;
  t->pools[i] = pool;
  for (uint64_t offset = first; t->left > 0; offset += step) {
    t->left--;
    t->offsets[i] = offset;
    if (fuzz_trial_fits(t, i) && fuzz_trial_place(t, i + 1)) return true;
    if (buffer->offset != TIDE_PLAN_ANYWHERE || step > limit || offset > limit - step) break;
  }
  return false;
}

// Whether the buffers from `i` on can be placed; false also when there was too much to try.
static bool fuzz_trial_place(fuzz_trial* t, size_t i) {
  if (i == t->problem.count) return true;
  for (uint32_t pool = 0; pool < t->problem.pools; pool++) {
    if (fuzz_trial_place_in(t, i, pool)) return true;
  }
  return false;
}

static void fuzz_trial_init(fuzz_trial* t, const tide_plan_problem* problem) {
  *t = (fuzz_trial){ .problem = *problem, .total = UINT64_MAX, .left = FUZZ_TRIALS };
  memcpy(t->buffers, problem->buffers, problem->count * sizeof *t->buffers);
  for (size_t i = 0; i < FUZZ_POOLS; i++)
    t->capacities[i] = i < problem->pools ? problem->capacities[i] : TIDE_PLAN_MAX_BYTES;
  t->problem.buffers = t->buffers;
  t->problem.capacities = t->capacities;
  if (t->problem.pools == 0) t->problem.pools = 1;
}

// The bound of a pool is one for the buffers that it was given.
static void fuzz_check_pool_bound(const fuzz_case* c, const tide_plan* plan, uint32_t pool) {
  fuzz_trial t;
  const uint64_t bound = tide_plan_pool_result(plan, pool).lower_bound;
  fuzz_trial_init(&t, &c->problem);
  FUZZ_REQUIRE(bound <= t.capacities[pool]);
  for (size_t i = 0; i < c->problem.count; i++) t.buffers[i].pool = tide_plan_pools(plan)[i];
  if (bound == 0) return;
  t.capacities[pool] = bound - 1;
  FUZZ_REQUIRE(!fuzz_trial_place(&t, 0));
}

// No plan is found where it is said that there is none: at all, or below a bound.
static void fuzz_check_claims(const fuzz_case* c, const tide_plan* plan) {
  fuzz_trial t;
  fuzz_trial_init(&t, &c->problem);
  const tide_plan_outcome outcome = tide_plan_result(plan);
  if (outcome.verdict != TIDE_PLAN_INFEASIBLE) t.total = outcome.lower_bound - 1;
  if (outcome.verdict == TIDE_PLAN_INFEASIBLE || outcome.lower_bound > 0)
    FUZZ_REQUIRE(!fuzz_trial_place(&t, 0));
  if (outcome.verdict > TIDE_PLAN_FEASIBLE || c->problem.count == 0) return;
  for (uint32_t pool = 0; pool < t.problem.pools; pool++) fuzz_check_pool_bound(c, plan, pool);
}

// ---------------------------------------------------------------------------------------------------
// Solving

static bool fuzz_on_progress(void* user, const tide_plan_progress* progress) {
  FUZZ_REQUIRE(progress->peak >= progress->lower_bound);
  return (*(const unsigned*)user & FUZZ_STOPS) == 0;
}

static size_t fuzz_count_moved(const tide_plan_problem* problem, const tide_plan* plan) {
  size_t moved = 0;
  for (size_t i = 0; i < problem->count; i++) {
    const uint64_t hint = problem->buffers[i].hint;
    moved += hint != TIDE_PLAN_ANYWHERE && hint != tide_plan_offsets(plan)[i];
  }
  return moved;
}

static void fuzz_check_outcome(const tide_plan_outcome* outcome) {
  const bool is_plan = outcome->verdict <= TIDE_PLAN_FEASIBLE;
  FUZZ_REQUIRE(outcome->gap >= 0);
  if (is_plan) FUZZ_REQUIRE(outcome->lower_bound <= outcome->peak);
  if (is_plan)
    FUZZ_REQUIRE((outcome->verdict == TIDE_PLAN_OPTIMAL) == (outcome->peak == outcome->lower_bound));
  if (outcome->verdict == TIDE_PLAN_INFEASIBLE) FUZZ_REQUIRE(outcome->proof.reason != TIDE_PLAN_NO_REASON);
}

// What lives needs exactly as much as it has, if nothing is shared, aligned or fixed.
static bool fuzz_is_plain(const tide_plan_problem* problem) {
  for (size_t i = 0; i < problem->count; i++) {
    const tide_plan_buffer* const b = &problem->buffers[i];
    if (b->alias != 0 || b->alignment > 1 || b->offset != TIDE_PLAN_ANYWHERE || b->gap_count > 0)
      return false;
  }
  return true;
}

// `pool` may be all of them together.
static void fuzz_check_live_set(const fuzz_case* c, const tide_plan* plan, uint32_t pool) {
  size_t count = 0;
  uint64_t sum = 0;
  const bool is_all = pool == TIDE_PLAN_ANY_POOL;
  const tide_plan_outcome outcome = is_all ? tide_plan_result(plan) : tide_plan_pool_result(plan, pool);
  const size_t* const live = tide_plan_live_set(plan, pool, &count);
  const bool is_load = outcome.proof.reason == TIDE_PLAN_LOAD;
  FUZZ_REQUIRE(is_load ? count == 0 || live != NULL : count == 0 && live == NULL);
  for (size_t i = 0; i < count; i++) {
    FUZZ_REQUIRE(live[i] < c->problem.count && (i == 0 || live[i - 1] < live[i]));
    FUZZ_REQUIRE(fuzz_holds_at(&c->buffers[live[i]], outcome.proof.instant));
    sum += c->buffers[live[i]].bytes;
  }
  const bool is_of_bound = is_load && outcome.proof.pool == pool && outcome.verdict <= TIDE_PLAN_FEASIBLE;
  if (is_of_bound && fuzz_is_plain(&c->problem)) FUZZ_REQUIRE(sum == outcome.lower_bound);
}

static void fuzz_check_plan(const fuzz_case* c, const tide_plan* plan) {
  const tide_plan_outcome outcome = tide_plan_result(plan);
  const uint64_t* const offsets = tide_plan_offsets(plan);
  const uint32_t* const pools = tide_plan_pools(plan);
  const size_t pool_count = c->problem.pools > 0 ? c->problem.pools : 1;
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;
  fuzz_check_outcome(&outcome);
  fuzz_check_live_set(c, plan, TIDE_PLAN_ANY_POOL);
  for (uint32_t pool = 0; pool < pool_count; pool++) {
    const tide_plan_outcome of_pool = tide_plan_pool_result(plan, pool);
    fuzz_check_outcome(&of_pool);
    fuzz_check_live_set(c, plan, pool);
    FUZZ_REQUIRE(of_pool.verdict <= outcome.verdict || outcome.verdict == TIDE_PLAN_INFEASIBLE);
  }
  if (outcome.verdict > TIDE_PLAN_FEASIBLE) {
    FUZZ_REQUIRE(offsets == NULL && pools == NULL);
  } else if (c->problem.count > 0) {
    FUZZ_REQUIRE(tide_plan_verify(&c->problem, offsets, pools, NULL, &check) == TIDE_OK);
    FUZZ_REQUIRE(check.fault == TIDE_PLAN_NO_FAULT && check.text[0] == '\0');
    FUZZ_REQUIRE(fuzz_is_plan(&c->problem, offsets, pools));
    FUZZ_REQUIRE(outcome.moved == fuzz_count_moved(&c->problem, plan));
  }
}

static void fuzz_check_same(const fuzz_case* c, const tide_plan* a, const tide_plan* b) {
  const tide_plan_outcome x = tide_plan_result(a);
  const tide_plan_outcome y = tide_plan_result(b);
  FUZZ_REQUIRE(x.verdict == y.verdict && x.stage == y.stage && x.peak == y.peak);
  FUZZ_REQUIRE(x.lower_bound == y.lower_bound && x.moved == y.moved);
  if (x.verdict > TIDE_PLAN_FEASIBLE || c->problem.count == 0) return;
  FUZZ_REQUIRE(memcmp(tide_plan_offsets(a), tide_plan_offsets(b), c->problem.count * sizeof(uint64_t)) == 0);
  FUZZ_REQUIRE(memcmp(tide_plan_pools(a), tide_plan_pools(b), c->problem.count * sizeof(uint32_t)) == 0);
}

// Solves again, with less memory than it took; it is enough, or the call fails and nothing is left.
static void fuzz_solve_with_less(const fuzz_case* c, size_t calls, uint64_t choice) {
  fuzz_heap taken = { .last = 1 + choice % (calls > 0 ? calls : 1) };
  const tide_heap heap = { fuzz_heap_alloc, fuzz_heap_release, &taken };
  tide_plan_options options = c->options;
  tide_plan* plan = NULL;
  options.heap = &heap;
  const tide_status status = tide_plan_solve(&c->problem, &options, &plan);
  FUZZ_REQUIRE(status == TIDE_OK || (status == TIDE_ERR_NO_MEMORY && plan == NULL));
  if (status == TIDE_OK) fuzz_check_plan(c, plan);
  tide_plan_free(plan);
  FUZZ_REQUIRE(atomic_load(&taken.blocks) == 0);
}

static tide_status fuzz_solve(fuzz_case* c) {
  fuzz_heap taken = { .last = 0 };
  const tide_heap heap = { fuzz_heap_alloc, fuzz_heap_release, &taken };
  tide_plan_options options = c->options;
  tide_plan* plan = NULL;
  tide_plan* again = NULL;
  options.heap = &heap;
  options.on_progress = fuzz_on_progress;
  options.user = &c->switches;
  const tide_status status = tide_plan_solve(&c->problem, &options, &plan);
  FUZZ_REQUIRE(status == TIDE_OK || (status == TIDE_ERR_ARGUMENT && plan == NULL));
  if (status == TIDE_OK) {
    fuzz_check_plan(c, plan);
    fuzz_check_claims(c, plan);
    const size_t calls = atomic_load(&taken.calls);
    options.threads = c->switches & FUZZ_THREADS ? 2 : 1;
    options.on_progress = NULL;
    FUZZ_REQUIRE(tide_plan_solve(&c->problem, &options, &again) == TIDE_OK);
    if (!(c->switches & FUZZ_STOPS)) fuzz_check_same(c, plan, again);
    if (c->switches & FUZZ_LACKS) fuzz_solve_with_less(c, calls, c->offsets[0]);
  }
  tide_plan_free(plan);
  tide_plan_free(again);
  FUZZ_REQUIRE(atomic_load(&taken.blocks) == 0);
  return status;
}

// Offsets at random: the verifier says what the check says, and refuses what the solver refuses.
static void fuzz_verify(const fuzz_case* c, tide_status solved) {
  const uint32_t* const given = c->switches & FUZZ_ANY_POOLS ? c->pools : NULL;
  uint32_t pools[FUZZ_BUFFERS] = { 0 };
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;
  for (size_t i = 0; i < c->problem.count; i++) {
    const uint32_t own = c->problem.buffers[i].pool;
    pools[i] = given != NULL ? given[i] : own != TIDE_PLAN_ANY_POOL ? own : 0;
  }
  const tide_status status = tide_plan_verify(&c->problem, c->offsets, given, NULL, &check);
  FUZZ_REQUIRE(status == solved);
  if (status != TIDE_OK) return;
  const bool is_plan = fuzz_is_plan(&c->problem, c->offsets, pools);
  FUZZ_REQUIRE((check.fault == TIDE_PLAN_NO_FAULT) == is_plan);
  FUZZ_REQUIRE(memchr(check.text, '\0', sizeof check.text) != NULL && (check.text[0] == '\0') == is_plan);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static fuzz_case c;
  fuzz_bytes b = { data, bytes };
  fuzz_take_case(&b, &c);
  // A copy that ends where the problem ends, so that a sanitizer sees reads beyond it.
  tide_plan_buffer* const buffers = malloc(c.problem.count * sizeof *buffers + 1);
  FUZZ_REQUIRE(buffers != NULL);
  memcpy(buffers, c.buffers, c.problem.count * sizeof *buffers);
  c.problem.buffers = buffers;
  fuzz_verify(&c, fuzz_solve(&c));
  free(buffers);
  return 0;
}
