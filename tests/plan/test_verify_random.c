// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The verifier with many inputs: random small problems against a check of every instant and pair, hostile
// numbers, and a million buffers in several difficult shapes.
#include "plan/checked.h"
#include "plan/small.h"

// ---------------------------------------------------------------------------------------------------
// Against brute force

static uint64_t naive_limit(const small_problem* p, uint32_t pool) {
  if (p->problem.pools == 0 || p->capacities[pool] == UINT64_MAX) return TIDE_PLAN_MAX_BYTES;
  return p->capacities[pool];
}

static bool naive_is_well_placed(const small_problem* p, size_t i, const uint64_t* offsets,
                                 const uint32_t* pools) {
  const tide_plan_buffer* const b = &p->buffers[i];
  const size_t pool_count = p->problem.pools == 0 ? 1 : p->problem.pools;
  if (pools[i] >= pool_count || (b->pool != TIDE_PLAN_ANY_POOL && b->pool != pools[i])) return false;
  if (b->offset != TIDE_PLAN_ANYWHERE && b->offset != offsets[i]) return false;
  if (offsets[i] % small_alignment(b) != 0) return false;
  const size_t holder = small_holder(p, i);
  if (offsets[holder] != offsets[i] || pools[holder] != pools[i]) return false;
  return !small_holds(b) || offsets[i] + b->bytes <= naive_limit(p, pools[i]);
}

static bool naive_meet(const small_problem* p, size_t i, size_t k, uint64_t instant,
                       const uint64_t* offsets) {
  const uint64_t held_i = small_held(&p->buffers[i], instant) << offsets[i];
  const uint64_t held_k = small_held(&p->buffers[k], instant) << offsets[k];
  return small_holder(p, i) != small_holder(p, k) && (held_i & held_k) != 0;
}

static bool naive_is_plan(const small_problem* p, const uint64_t* offsets, const uint32_t* pools) {
  for (size_t i = 0; i < p->problem.count; i++) {
    if (!naive_is_well_placed(p, i, offsets, pools)) return false;
    for (size_t k = 0; k < i; k++) {
      for (uint64_t t = 0; t < SMALL_INSTANTS && pools[i] == pools[k]; t++) {
        if (naive_meet(p, i, k, t, offsets)) return false;
      }
    }
  }
  return true;
}

static uint64_t naive_peak(const small_problem* p, const uint64_t* offsets) {
  uint64_t peak = 0;
  for (size_t i = 0; i < p->problem.count; i++) {
    const uint64_t end = offsets[i] + p->buffers[i].bytes;
    if (small_holds(&p->buffers[i]) && end > peak) peak = end;
  }
  return peak;
}

// The fault that is named is really there.
static bool naive_has_fault(const small_problem* p, const uint64_t* offsets, const uint32_t* pools,
                            const tide_plan_check* check) {
  const tide_plan_buffer* const b = &p->buffers[check->buffer];
  const uint64_t offset = offsets[check->buffer];
  const uint32_t pool = pools[check->buffer];
  const size_t other = check->other;
  switch (check->fault) {
    case TIDE_PLAN_FAULT_OVERLAP:
      return pool == pools[other] && naive_meet(p, check->buffer, other, check->instant, offsets);
    case TIDE_PLAN_FAULT_CAPACITY:
      return pool >= (p->problem.pools == 0 ? 1 : p->problem.pools) ||
             (small_holds(b) && offset + b->bytes > naive_limit(p, pool));
    case TIDE_PLAN_FAULT_ALIGNMENT: return offset % small_alignment(b) != 0;
    case TIDE_PLAN_FAULT_FIXED:
      return (b->offset != TIDE_PLAN_ANYWHERE && b->offset != offset) ||
             (b->pool != TIDE_PLAN_ANY_POOL && b->pool != pool);
    case TIDE_PLAN_FAULT_ALIAS:
      return b->alias == p->buffers[other].alias && (offset != offsets[other] || pool != pools[other]);
    case TIDE_PLAN_NO_FAULT: break;
  }
  return false;
}

// Offsets that are often right: mostly those of the rules, so that overlaps decide.
static void random_offsets(const small_problem* p, t_rng* rng, uint64_t* offsets, uint32_t* pools) {
  const uint64_t pool_count = p->problem.pools == 0 ? 1 : p->problem.pools;
  const bool is_wild = small_one_in(rng, 8);
  for (size_t i = 0; i < p->problem.count; i++) {
    const tide_plan_buffer* const b = &p->buffers[i];
    offsets[i] = t_rng_below(rng, 20);
    pools[i] = (uint32_t)t_rng_below(rng, pool_count + (is_wild ? 1 : 0));
    if (is_wild) continue;
    offsets[i] -= offsets[i] % small_alignment(b);
    if (b->offset != TIDE_PLAN_ANYWHERE) offsets[i] = b->offset;
    if (b->pool != TIDE_PLAN_ANY_POOL) pools[i] = b->pool;
    if (small_holder(p, i) != i) {
      offsets[i] = offsets[small_holder(p, i)];
      pools[i] = pools[small_holder(p, i)];
    }
  }
}

static small_kind random_kind(t_rng* rng) {
  const small_kind kind = {
    .buffers = 6,
    .instants = 1 + t_rng_below(rng, SMALL_INSTANTS),
    .bytes = 6,
    .has_alignment = small_one_in(rng, 2),
    .has_fixed = small_one_in(rng, 4),
    .has_gaps = small_one_in(rng, 2),
    .has_windows = small_one_in(rng, 2),
    .has_high_windows = small_one_in(rng, 2),
    .has_aliases = small_one_in(rng, 2),
    .has_empty = true,
    .pools = small_one_in(rng, 2) ? 0 : t_rng_below(rng, SMALL_POOLS + 1),
    .capacity = 30,
  };
  return kind;
}

T_TEST(test_verify_random__agrees_with_a_look_at_every_instant) {
  small_problem p;
  uint64_t offsets[SMALL_BUFFERS];
  uint32_t pools[SMALL_BUFFERS];
  size_t faults[TIDE_PLAN_FAULT_ALIAS + 1] = { 0 };
  t_rng rng = t_rng_new(0);

  for (size_t i = 0; i < t_scaled_alone(300000); i++) {
    const small_kind kind = random_kind(&rng);
    small_random(&p, &kind, &rng);
    random_offsets(&p, &rng, offsets, pools);
    const tide_plan_check check = check_of(&p.problem, offsets, pools);
    const bool is_plan = naive_is_plan(&p, offsets, pools);
    faults[check.fault]++;
    const bool is_right = is_plan ? check.fault == TIDE_PLAN_NO_FAULT && check.peak == naive_peak(&p, offsets)
                                  : naive_has_fault(&p, offsets, pools, &check);
    if (is_right) continue;
    small_print(&p);
    T_FAIL("plan %d, fault %d of %zu and %zu at %d: %s", is_plan, (int)check.fault, check.buffer, check.other,
           (int)check.instant, check.text);
  }

  for (size_t i = 0; i < COUNT_OF(faults); i++)
    T_LE(t_scaled_alone(300000) / 10000, faults[i]);  // all kinds are met
}

// ---------------------------------------------------------------------------------------------------
// Hostile numbers, and many buffers

// A number near an edge.
static uint64_t hostile_number(t_rng* rng) {
  static const uint64_t edges[] = {
    0, 1, 2, 1u << 31, UINT64_C(1) << 32, UINT64_C(1) << 62, UINT64_C(1) << 63, UINT64_MAX
  };
  return edges[t_rng_below(rng, COUNT_OF(edges))] + t_rng_below(rng, 5) - 2;
}

static void hostile_buffer(tide_plan_buffer* b, tide_plan_gap* gaps, t_rng* rng) {
  for (size_t i = 0; i < 2; i++) {
    const uint64_t lower = hostile_number(rng);
    gaps[i] = (tide_plan_gap){ lower, lower + t_rng_below(rng, 3), t_rng_below(rng, 3), hostile_number(rng) };
  }
  b->lower = small_one_in(rng, 2) ? 0 : hostile_number(rng);
  b->upper = small_one_in(rng, 2) ? UINT64_MAX : hostile_number(rng);
  b->bytes = hostile_number(rng) >> t_rng_below(rng, 3);
  b->alignment = hostile_number(rng);
  b->offset = small_one_in(rng, 4) ? hostile_number(rng) : TIDE_PLAN_ANYWHERE;
  b->hint = hostile_number(rng);
  b->gaps = gaps;
  b->gap_count = small_one_in(rng, 6) ? 1 + t_rng_below(rng, 2) : 0;
  b->alias = small_one_in(rng, 3) ? (uint32_t)hostile_number(rng) : 0;
  b->pool = small_one_in(rng, 20) ? (uint32_t)hostile_number(rng) : 0;
}

typedef struct hostile_problem {
  tide_plan_problem problem;
  tide_plan_buffer buffers[5];
  tide_plan_gap gaps[5][2];
  uint64_t capacities[2];
  uint64_t offsets[5];
  uint32_t pools[5];
} hostile_problem;

static void hostile_make(hostile_problem* h, t_rng* rng) {
  for (size_t i = 0; i < 5; i++) {
    hostile_buffer(&h->buffers[i], h->gaps[i], rng);
    h->offsets[i] = hostile_number(rng);
    h->pools[i] = (uint32_t)hostile_number(rng);
  }
  for (size_t i = 0; i < 2; i++) h->capacities[i] = small_one_in(rng, 2) ? UINT64_MAX : hostile_number(rng);
  const size_t count = 1 + t_rng_below(rng, 5);
  h->problem = (tide_plan_problem){ h->buffers, count, h->capacities, t_rng_below(rng, 3) };
}

T_TEST(test_verify_random__survives_any_numbers) {
  hostile_problem h;
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;
  size_t accepted = 0;
  t_rng rng = t_rng_new(0);

  for (size_t i = 0; i < t_scaled_alone(200000); i++) {
    hostile_make(&h, &rng);
    const uint32_t* const pools = small_one_in(&rng, 2) ? h.pools : NULL;
    const tide_status status = tide_plan_verify(&h.problem, h.offsets, pools, NULL, &check);
    T_CHECK(status == TIDE_OK || status == TIDE_ERR_ARGUMENT);
    accepted += status == TIDE_OK ? 1 : 0;
  }

  T_LT(t_scaled_alone(200000) / 50, accepted);
}

// The solver and the verifier each have a definition of what makes no sense, and it is the same.
T_TEST(test_verify_random__refuses_what_the_solver_refuses) {
  tide_plan_options options = TIDE_PLAN_OPTIONS_INIT;
  hostile_problem h;
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;
  size_t planned = 0;
  t_rng rng = t_rng_new(0);
  options.seconds = 0;
  options.nodes = 200;

  for (size_t i = 0; i < t_scaled_alone(20000); i++) {
    tide_plan* plan = NULL;
    hostile_make(&h, &rng);
    options.goal = small_one_in(&rng, 2) ? TIDE_PLAN_PEAK : TIDE_PLAN_FIT;
    options.keeps_hints = small_one_in(&rng, 2);
    const tide_status wanted = tide_plan_verify(&h.problem, h.offsets, NULL, NULL, &check);
    T_STATUS(tide_plan_solve(&h.problem, &options, &plan), wanted);
    if (tide_plan_offsets(plan) != NULL) {
      T_OK(tide_plan_verify(&h.problem, tide_plan_offsets(plan), tide_plan_pools(plan), NULL, &check));
      T_STR_EQ(check.text, "");
      planned++;
    }
    tide_plan_free(plan);
  }

  T_LT(t_scaled_alone(20000) / 200, planned);
}

// A million buffers or members, and what is expected of them.
typedef struct crowd {
  tide_plan_buffer* buffers;
  tide_plan_gap* gaps;
  uint64_t* offsets;
  size_t count;
} crowd;

static void crowd_new(crowd* c) {
  c->count = t_scaled_alone(T_HAS_SANITIZER ? 100000 : 1000000);
  if (c->count > 1000000) c->count = 1000000;
  c->buffers = calloc(c->count, sizeof *c->buffers);
  c->gaps = calloc(c->count, sizeof *c->gaps);
  c->offsets = calloc(c->count, sizeof *c->offsets);
  T_CHECK(c->buffers != NULL && c->gaps != NULL && c->offsets != NULL);
  for (size_t i = 0; i < c->count; i++) {
    c->buffers[i] = (tide_plan_buffer){ .upper = 1000, .bytes = 64, TIDE_PLAN_FREELY };
  }
}

static void crowd_expect(crowd* c, tide_plan_fault fault, uint64_t peak) {
  const tide_plan_problem problem = { .buffers = c->buffers, .count = c->count };
  const uint64_t begin = t_processor_ns();
  const tide_plan_check check = check_of(&problem, c->offsets, NULL);
  T_LT((t_processor_ns() - begin) / 1000000u, 20000);
  T_EQ(check.fault, fault);
  T_EQ(check.peak, peak);
  free(c->buffers);
  free(c->gaps);
  free(c->offsets);
}

T_TEST(test_verify_random__of_a_million_alike_in_one_place_ends_soon) {
  crowd c;
  crowd_new(&c);

  crowd_expect(&c, TIDE_PLAN_FAULT_OVERLAP, 0);
}

T_TEST(test_verify_random__of_a_million_over_one_another_ends_soon) {
  crowd c;
  crowd_new(&c);
  for (size_t i = 0; i < c.count; i++) c.offsets[i] = i * 64;

  crowd_expect(&c, TIDE_PLAN_NO_FAULT, c.count * 64);
}

T_TEST(test_verify_random__of_a_million_scattered_ends_soon) {
  crowd c;
  t_rng rng = t_rng_new(0);
  crowd_new(&c);
  for (size_t i = 0; i < c.count; i++) {
    c.buffers[i].lower = t_rng_below(&rng, c.count);
    c.buffers[i].upper = c.buffers[i].lower + 1 + t_rng_below(&rng, 1000);
    c.buffers[i].bytes = 1 + t_rng_below(&rng, 4096);
    c.offsets[i] = i * 4096;
  }
  const size_t last = c.count - 1;

  crowd_expect(&c, TIDE_PLAN_NO_FAULT, c.offsets[last] + c.buffers[last].bytes);
}

T_TEST(test_verify_random__of_a_million_that_share_storage_ends_soon) {
  crowd c;
  crowd_new(&c);
  for (size_t i = 0; i < c.count; i++) c.buffers[i].alias = 1;
  c.buffers[c.count / 2].alias = 0;
  c.offsets[c.count / 2] = 64;

  crowd_expect(&c, TIDE_PLAN_NO_FAULT, 128);
}

// Half of the members hold one byte for all of the time, half hold all bytes for an instant: what they hold
// together has holes without number, which nothing may be cut along.
T_TEST(test_verify_random__of_shared_storage_with_a_trillion_holes_ends_soon) {
  crowd c;
  crowd_new(&c);
  for (size_t i = 0; i < c.count; i++) {
    tide_plan_buffer* const b = &c.buffers[i];
    *b = (tide_plan_buffer){ .upper = 2 * c.count, .bytes = 2 * c.count, .alias = 1, TIDE_PLAN_FREELY };
    if (i % 2 == 0) {
      c.gaps[i] = (tide_plan_gap){ 0, 2 * c.count, 2 * i, 2 * i + 1 };
      b->gaps = &c.gaps[i];
      b->gap_count = 1;
    } else {
      b->lower = 2 * i;
      b->upper = 2 * i + 1;
    }
  }
  c.buffers[0] = (tide_plan_buffer){ .lower = 3, .upper = 6, .bytes = 3, TIDE_PLAN_FREELY };
  c.offsets[0] = 1;

  crowd_expect(&c, TIDE_PLAN_NO_FAULT, 2 * c.count);
}

T_TEST(test_verify_random__of_a_buffer_with_a_million_gaps_ends_soon) {
  crowd c;
  crowd_new(&c);
  for (size_t i = 0; i < c.count; i++)
    c.gaps[i] = (tide_plan_gap){ 2 * (c.count - i), 2 * (c.count - i) + 1, 0, 0 };
  for (size_t i = 1; i < c.count; i++) {
    c.buffers[i].lower = c.gaps[i].lower;
    c.buffers[i].upper = c.gaps[i].upper;
  }
  c.buffers[0] = (tide_plan_buffer){ .upper = 3 * c.count, .bytes = 64, TIDE_PLAN_FREELY };
  c.buffers[0].gaps = c.gaps;
  c.buffers[0].gap_count = c.count;

  crowd_expect(&c, TIDE_PLAN_NO_FAULT, 64);
}
