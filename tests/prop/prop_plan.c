// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Plans of random problems of medium size: training steps, random lifetimes, perfect packings with and
// without a few buffers missing, copies of a few buffers, crowds that all live at once, ladders, combs, and
// hostile values; with alignments, gaps, shared storage, pools, fixed offsets and hints. Every plan is
// checked by comparing all pairs of buffers, and must take no more processor time than its nodes account for.
// A problem with a fault is reported, made smaller as long as the fault stays, and printed.
#define T_THREADS
#include "plan/yardstick.h"
#include "t.h"
#include "tidemark/plan.h"

enum { PROP_GAPS = 2, PROP_PIECES = 2 * PROP_GAPS + 1, PROP_POOLS = 3 };

static const char* const prop_shapes[] = { "train", "random", "perfect", "dropped", "copies",
                                           "crowd", "ladder", "comb",    "hostile", NULL };

typedef struct prop_problem {
  tide_plan_buffer* buffers;  // owned
  tide_plan_gap* gaps;        // owned; PROP_GAPS for each buffer
  size_t count;
  uint64_t capacities[PROP_POOLS];
  size_t pools;
  tide_plan_options options;
  bool is_feasible;  // it is known that there is a plan
} prop_problem;

static void prop_init(prop_problem* p, size_t room) {
  *p = (prop_problem){ .options = TIDE_PLAN_OPTIONS_INIT };
  p->buffers = calloc(room, sizeof *p->buffers);
  p->gaps = calloc(room * PROP_GAPS, sizeof *p->gaps);
  T_CHECK(p->buffers != NULL && p->gaps != NULL);
}

static void prop_free(prop_problem* p) {
  free(p->buffers);
  free(p->gaps);
}

static tide_plan_problem prop_given(const prop_problem* p) {
  return (tide_plan_problem){
    .buffers = p->buffers, .count = p->count, .capacities = p->capacities, .pools = p->pools
  };
}

static void prop_add(prop_problem* p, uint64_t lower, uint64_t upper, uint64_t bytes) {
  p->buffers[p->count++] =
      (tide_plan_buffer){ .lower = lower, .upper = upper, .bytes = bytes, TIDE_PLAN_FREELY };
}

// ---------------------------------------------------------------------------------------------------
// Shapes

static void shape_train(prop_problem* p, size_t count, t_rng* rng) {
  const uint64_t layers = count / 4 + 1;
  for (uint64_t i = 0; p->count + 4 <= count; i++) {
    const uint64_t back = 4 * layers - 2 * i;
    const uint64_t bytes = 64 * (1 + t_rng_below(rng, 200));
    prop_add(p, 2 * i, back + 2, bytes);
    prop_add(p, 2 * i, 2 * i + 3, 2 * bytes);
    prop_add(p, back, back + 3, 2 * bytes);
    prop_add(p, 2 * i + 1, 2 * i + 2 + t_rng_below(rng, 20), 64 * (1 + t_rng_below(rng, 100)));
  }
}

static void shape_random(prop_problem* p, size_t count, t_rng* rng) {
  while (p->count < count) {
    const uint64_t lower = t_rng_below(rng, count);
    const uint64_t width = t_rng_below(rng, (uint64_t)1 << t_rng_below(rng, 9));
    const uint64_t bytes = t_rng_below(rng, (uint64_t)16 << t_rng_below(rng, 12));
    prop_add(p, lower, lower + width, bytes);
  }
}

// The peak of the smallest plan is returned.
static uint64_t shape_perfect(prop_problem* p, size_t count, t_rng* rng) {
  const uint64_t peak = 64 * (uint64_t)count;
  prop_add(p, 0, 16 * (uint64_t)count, peak);
  while (p->count < count) {
    tide_plan_buffer* const piece = &p->buffers[t_rng_below(rng, p->count)];
    const uint64_t width = piece->upper - piece->lower;
    if (t_rng_below(rng, 2) == 0 && width > 1) {
      const uint64_t cut = piece->lower + 1 + t_rng_below(rng, width - 1);
      prop_add(p, cut, piece->upper, piece->bytes);
      piece->upper = cut;
    } else if (piece->bytes > 1) {
      const uint64_t cut = 1 + t_rng_below(rng, piece->bytes - 1);
      prop_add(p, piece->lower, piece->upper, piece->bytes - cut);
      piece->bytes = cut;
    }
  }
  return peak;
}

static void shape_copies(prop_problem* p, size_t count, t_rng* rng) {
  const size_t kinds = 1 + t_rng_below(rng, 5);
  shape_random(p, kinds, rng);
  for (; p->count < count; p->count++) p->buffers[p->count] = p->buffers[t_rng_below(rng, kinds)];
}

// All live at one instant, and few begin or end together.
static void shape_crowd(prop_problem* p, size_t count, t_rng* rng) {
  const uint64_t half = 1 + t_rng_below(rng, count);
  while (p->count < count) {
    const uint64_t lower = t_rng_below(rng, half);
    prop_add(p, lower, half + 1 + t_rng_below(rng, half), 1 + t_rng_below(rng, 100000));
  }
}

// Each begins after the one before, and lives as long.
static void shape_ladder(prop_problem* p, size_t count, t_rng* rng) {
  const uint64_t length = 1 + t_rng_below(rng, count);
  while (p->count < count) prop_add(p, p->count, p->count + length, 1 + t_rng_below(rng, 100000));
}

// Every other lives all the time, and the rest one after the other.
static void shape_comb(prop_problem* p, size_t count, t_rng* rng) {
  while (p->count < count) {
    const uint64_t lower = 10 * p->count;
    if (p->count % 2 == 0) prop_add(p, 0, 10 * count, 1 + t_rng_below(rng, 1000));
    else prop_add(p, lower, lower + 9 + t_rng_below(rng, 5), 1 + t_rng_below(rng, 1000));
  }
}

static uint64_t hostile_number(t_rng* rng) {
  static const uint64_t far[] = { TIDE_PLAN_MAX_BYTES,
                                  TIDE_PLAN_MAX_BYTES - 1,
                                  TIDE_PLAN_MAX_BYTES / 2,
                                  (uint64_t)1 << 62,
                                  UINT32_MAX,
                                  (uint64_t)1 << 40,
                                  0,
                                  1 };
  return far[t_rng_below(rng, sizeof far / sizeof *far)] - t_rng_below(rng, 2);
}

// Now and then a number at which arithmetic ends; these problems are refused, or have no plan, or have one.
static void shape_hostile(prop_problem* p, size_t count, t_rng* rng) {
  shape_random(p, count, rng);
  for (size_t k = 1 + t_rng_below(rng, 4); k > 0; k--) {
    tide_plan_buffer* const b = &p->buffers[t_rng_below(rng, count)];
    uint64_t* const fields[] = { &b->lower, &b->upper, &b->bytes, &b->alignment, &b->offset, &b->hint };
    *fields[t_rng_below(rng, 6)] = hostile_number(rng);
  }
}

static void shape_make(prop_problem* p, const char* shape, size_t count, t_rng* rng) {
  if (strcmp(shape, "train") == 0) shape_train(p, count, rng);
  else if (strcmp(shape, "random") == 0) shape_random(p, count, rng);
  else if (strcmp(shape, "copies") == 0) shape_copies(p, count, rng);
  else if (strcmp(shape, "crowd") == 0) shape_crowd(p, count, rng);
  else if (strcmp(shape, "ladder") == 0) shape_ladder(p, count, rng);
  else if (strcmp(shape, "comb") == 0) shape_comb(p, count, rng);
  else if (strcmp(shape, "hostile") == 0) shape_hostile(p, count, rng);
  else (void)shape_perfect(p, count, rng);
  if (strcmp(shape, "dropped") == 0) p->count -= p->count / 12;
}

// ---------------------------------------------------------------------------------------------------
// What problems have besides

static void add_alignments(prop_problem* p, t_rng* rng) {
  static const uint64_t alignments[] = { 1, 2, 3, 8, 64, 100, 256 };
  for (size_t i = 0; i < p->count; i++)
    if (t_rng_below(rng, 4) == 0) p->buffers[i].alignment = alignments[t_rng_below(rng, 7)];
}

// In some thirds of a lifetime a buffer holds nothing, or a part.
static void add_gaps(prop_problem* p, t_rng* rng) {
  for (size_t i = 0; i < p->count; i++) {
    tide_plan_buffer* const b = &p->buffers[i];
    const uint64_t third = b->upper > b->lower ? (b->upper - b->lower) / 3 : 0;
    if (third == 0 || t_rng_below(rng, 3) > 0) continue;
    b->gaps = &p->gaps[i * PROP_GAPS];
    const uint64_t count = 1 + t_rng_below(rng, PROP_GAPS);
    for (uint64_t k = 0; k < count; k++) {
      tide_plan_gap* const gap = &p->gaps[i * PROP_GAPS + b->gap_count++];
      gap->lower = b->lower + k * third;
      gap->upper = gap->lower + 1 + t_rng_below(rng, third);
      gap->last = t_rng_below(rng, 2) * t_rng_below(rng, b->bytes / 2 + 1);
      gap->first = gap->last == 0 ? 0 : t_rng_below(rng, gap->last);
    }
  }
}

static void add_aliases(prop_problem* p, t_rng* rng) {
  const uint64_t groups = 1 + p->count / 10;
  for (size_t i = 0; i < p->count; i++)
    if (t_rng_below(rng, 6) == 0) p->buffers[i].alias = (uint32_t)(1 + t_rng_below(rng, groups));
}

// Two or three pools, the last without a limit. A group that shares storage stays in one.
static void add_pools(prop_problem* p, t_rng* rng) {
  p->pools = 2 + t_rng_below(rng, 2);
  for (size_t i = 0; i < p->pools; i++) p->capacities[i] = 1000 + t_rng_below(rng, 200000);
  p->capacities[p->pools - 1] = TIDE_PLAN_MAX_BYTES;
  for (size_t i = 0; i < p->count; i++) {
    tide_plan_buffer* const b = &p->buffers[i];
    if (b->alias != 0) b->pool = (uint32_t)(b->alias % p->pools);
    else b->pool = t_rng_below(rng, 2) == 0 ? TIDE_PLAN_ANY_POOL : (uint32_t)t_rng_below(rng, p->pools);
  }
}

static void add_hints(prop_problem* p, t_rng* rng) {
  p->options.keeps_hints = t_rng_below(rng, 2) == 0;
  for (size_t i = 0; i < p->count; i++)
    if (t_rng_below(rng, 2) == 0) p->buffers[i].hint = t_rng_below(rng, 100000);
}

static void (*const features[])(prop_problem*, t_rng*) = { add_alignments, add_gaps, add_aliases, add_pools,
                                                           add_hints };

static void add_any(prop_problem* p, t_rng* rng) {
  for (size_t i = 0; i < sizeof features / sizeof *features; i++)
    if (t_rng_below(rng, 3) == 0) features[i](p, rng);
}

// ---------------------------------------------------------------------------------------------------
// The check: what all buffers hold, as rectangles, each compared with each

typedef struct prop_piece {
  uint64_t lower;
  uint64_t upper;
  uint64_t first;  // in the pool
  uint64_t last;
  uint32_t pool;
  uint32_t alias;
  size_t buffer;
} prop_piece;

static size_t piece_add(prop_piece* pieces, size_t count, prop_piece piece) {
  if (piece.lower >= piece.upper || piece.first >= piece.last) return count;
  pieces[count] = piece;
  return count + 1;
}

// Adds what a buffer holds to `count` pieces, and returns how many there are then. The gaps rise.
static size_t pieces_of(const tide_plan_buffer* b, size_t index, uint64_t offset, uint32_t pool,
                        prop_piece* pieces, size_t count) {
  prop_piece whole = { b->lower, b->upper, offset, offset + b->bytes, pool, b->alias, index };
  for (size_t i = 0; i < b->gap_count; i++) {
    const tide_plan_gap* const gap = &b->gaps[i];
    prop_piece before = whole;
    before.upper = gap->lower;
    count = piece_add(pieces, count, before);
    const prop_piece in = { gap->lower, gap->upper, offset + gap->first, offset + gap->last, pool,
                            b->alias,   index };
    count = piece_add(pieces, count, in);
    whole.lower = gap->upper;
  }
  return piece_add(pieces, count, whole);
}

static bool pieces_meet(const prop_piece* a, const prop_piece* b) {
  return a->lower < b->upper && b->lower < a->upper && a->first < b->last && b->first < a->last &&
         a->pool == b->pool && a->buffer != b->buffer && (a->alias == 0 || a->alias != b->alias);
}

static const char* pairs_fault(const prop_problem* p, const uint64_t* offsets, const uint32_t* pools) {
  prop_piece* const pieces = malloc((p->count + 1) * PROP_PIECES * sizeof *pieces);
  const char* fault = NULL;
  size_t count = 0;
  T_CHECK(pieces != NULL);
  for (size_t i = 0; i < p->count; i++)
    count = pieces_of(&p->buffers[i], i, offsets[i], pools[i], pieces, count);
  for (size_t i = 0; i < count; i++)
    for (size_t j = 0; j < i; j++)
      if (pieces_meet(&pieces[i], &pieces[j])) fault = "two buffers overlap";
  free(pieces);
  return fault;
}

static const char* place_fault(const prop_problem* p, size_t i, uint64_t offset, uint32_t pool) {
  const tide_plan_buffer* const b = &p->buffers[i];
  const size_t pools = p->pools > 0 ? p->pools : 1;
  if (pool >= pools || (b->pool != TIDE_PLAN_ANY_POOL && b->pool != pool))
    return "a buffer is in a wrong pool";
  const uint64_t capacity = p->pools > 0 ? p->capacities[pool] : TIDE_PLAN_MAX_BYTES;
  const bool holds = b->lower < b->upper && b->bytes > 0;
  if (b->offset != TIDE_PLAN_ANYWHERE && b->offset != offset) return "a buffer is not where it must be";
  if (b->alignment > 0 && offset % b->alignment != 0) return "a buffer is not aligned";
  if (holds && (b->bytes > capacity || offset > capacity - b->bytes)) return "a buffer ends beyond its pool";
  return NULL;
}

static const char* aliases_fault(const prop_problem* p, const uint64_t* offsets, const uint32_t* pools) {
  for (size_t i = 0; i < p->count; i++) {
    for (size_t j = 0; j < i && p->buffers[i].alias != 0; j++) {
      if (p->buffers[j].alias != p->buffers[i].alias) continue;
      if (offsets[j] != offsets[i] || pools[j] != pools[i]) return "shared storage lies in two places";
    }
  }
  return NULL;
}

static uint64_t pool_peak(const prop_problem* p, const tide_plan* plan, uint32_t pool) {
  uint64_t peak = 0;
  for (size_t i = 0; i < p->count; i++) {
    const tide_plan_buffer* const b = &p->buffers[i];
    const uint64_t end = tide_plan_offsets(plan)[i] + b->bytes;
    if (tide_plan_pools(plan)[i] == pool && b->lower < b->upper && b->bytes > 0 && end > peak) peak = end;
  }
  return peak;
}

static const char* outcome_fault(const prop_problem* p, const tide_plan* plan) {
  uint64_t peaks = 0;
  const tide_plan_outcome all = tide_plan_result(plan);
  for (uint32_t pool = 0; pool < (p->pools > 0 ? p->pools : 1); pool++) {
    const tide_plan_outcome of_pool = tide_plan_pool_result(plan, pool);
    if (of_pool.peak != pool_peak(p, plan, pool)) return "the peak of a pool is another";
    if (of_pool.peak < of_pool.lower_bound) return "a peak is below the lower bound";
    peaks += of_pool.peak;
  }
  if (all.peak != peaks || all.peak < all.lower_bound) return "the peak is another";
  if ((all.verdict == TIDE_PLAN_OPTIMAL) != (all.peak == all.lower_bound)) return "it is not optimal";
  return NULL;
}

static const char* plan_fault(const prop_problem* p, const tide_plan* plan) {
  const uint64_t* const offsets = tide_plan_offsets(plan);
  const uint32_t* const pools = tide_plan_pools(plan);
  const tide_plan_verdict verdict = tide_plan_result(plan).verdict;
  const char* fault = NULL;
  if (verdict == TIDE_PLAN_INFEASIBLE && p->is_feasible) return "there is a plan";
  if (verdict > TIDE_PLAN_FEASIBLE) return NULL;
  for (size_t i = 0; i < p->count && fault == NULL; i++) fault = place_fault(p, i, offsets[i], pools[i]);
  if (fault == NULL) fault = aliases_fault(p, offsets, pools);
  if (fault == NULL) fault = pairs_fault(p, offsets, pools);
  return fault == NULL ? outcome_fault(p, plan) : fault;
}

// ---------------------------------------------------------------------------------------------------
// Solving, and making a problem smaller that is not solved well

#define PROP_SHRINK_SECONDS 5u  // of processor time, after which a problem is small enough

// Ends a search that takes more processor time than it may.
static bool prop_watch(void* user, const tide_plan_progress* progress) {
  (void)progress;
  return yardstick_now_ns() < *(const uint64_t*)user;
}

// What is wrong with the answer to a problem; NULL: nothing. A refusal is an answer to hostile values only.
static const char* prop_fault(const prop_problem* p) {
  const tide_plan_problem problem = prop_given(p);
  tide_plan_options options = p->options;
  tide_plan* plan = NULL;
  const uint64_t allowance = yardstick_allowance_ns(p->count, p->options.nodes);
  uint64_t deadline = yardstick_now_ns() + allowance;
  options.on_progress = prop_watch;
  options.user = &deadline;
  const tide_status status = tide_plan_solve(&problem, &options, &plan);
  if (status == TIDE_ERR_ARGUMENT)
    return strcmp(t_variant(), "hostile") == 0 ? NULL : tide_last_error()->text;
  if (status != TIDE_OK) return tide_last_error()->text;
  const bool is_late = yardstick_now_ns() > deadline;
  const char* const fault = is_late ? "it takes longer than its nodes" : plan_fault(p, plan);
  tide_plan_free(plan);
  return fault;
}

// Leaves `gone` buffers out from `at` on, if the fault stays.
static bool prop_shrink_at(prop_problem* p, size_t at, size_t gone) {
  prop_problem less = *p;
  less.count = p->count - gone;
  less.buffers = malloc(p->count * sizeof *less.buffers);
  T_CHECK(less.buffers != NULL);
  memcpy(less.buffers, p->buffers, at * sizeof *less.buffers);
  memcpy(less.buffers + at, p->buffers + at + gone, (p->count - at - gone) * sizeof *less.buffers);
  const bool is_faulty = prop_fault(&less) != NULL;
  free(is_faulty ? p->buffers : less.buffers);
  if (is_faulty) *p = less;
  return is_faulty;
}

static void prop_shrink(prop_problem* p) {
  const uint64_t deadline = yardstick_now_ns() + (uint64_t)PROP_SHRINK_SECONDS * 1000000000u;
  for (size_t gone = p->count / 2; gone > 0; gone /= 2) {
    for (size_t at = 0; at + gone <= p->count && yardstick_now_ns() < deadline;)
      if (!prop_shrink_at(p, at, gone)) at += gone;
  }
}

static void prop_print(const prop_problem* p) {
  (void)fprintf(
      stderr, "%zu pools: %" PRIu64 " %" PRIu64 " %" PRIu64 "; seed %" PRIu64 ", %" PRIu64 " nodes\n",
      p->pools, p->capacities[0], p->capacities[1], p->capacities[2], p->options.seed, p->options.nodes);
  for (size_t i = 0; i < p->count && i < 100; i++) {
    const tide_plan_buffer* const b = &p->buffers[i];
    (void)fprintf(stderr,
                  "{ .lower = %" PRIu64 ", .upper = %" PRIu64 ", .bytes = %" PRIu64 ", .alignment = %" PRIu64
                  ", .offset = %" PRIu64 ", .hint = %" PRIu64 ", .alias = %u, .pool = %u",
                  b->lower, b->upper, b->bytes, b->alignment, b->offset, b->hint, b->alias, b->pool);
    for (size_t k = 0; k < b->gap_count; k++)
      (void)fprintf(stderr, ", gap { %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 " }", b->gaps[k].lower,
                    b->gaps[k].upper, b->gaps[k].first, b->gaps[k].last);
    (void)fprintf(stderr, " },\n");
  }
}

static void prop_expect(prop_problem* p, size_t round) {
  char fault[300];
  const char* const found = prop_fault(p);
  if (found == NULL) return;
  (void)snprintf(fault, sizeof fault, "%s", found);  // an error's text is gone with the next error
  (void)fprintf(stderr, "seed %" PRIu64 ", round %zu, %zu buffers: %s\n", t_seed(), round, p->count, fault);
  prop_shrink(p);
  prop_print(p);
  T_FAIL("round %zu: %s", round, fault);
}

// ---------------------------------------------------------------------------------------------------
// The tests

static size_t prop_count(t_rng* rng) {
  const size_t most = T_HAS_SANITIZER ? 1000 : 2000;
  return 20 + t_rng_below(rng, 1 + t_rng_below(rng, most - 20));
}

static void prop_make(prop_problem* p, size_t count, t_rng* rng) {
  prop_init(p, count);
  shape_make(p, t_variant(), count, rng);
  p->options.seconds = 0;
  p->options.nodes = 1 + t_rng_below(rng, 5 * count);
  p->options.seed = t_rng_below(rng, 100);
}

T_TEST_OVER(prop_plan__plans_hold, prop_shapes) {
  for (size_t round = 0; round < t_scaled(10); round++) {
    t_rng rng = t_rng_new(round);
    prop_problem p;
    prop_make(&p, prop_count(&rng), &rng);
    if (t_rng_below(&rng, 4) == 0) p.options.goal = TIDE_PLAN_FIT;
    add_any(&p, &rng);

    prop_expect(&p, round);

    prop_free(&p);
  }
}

static tide_plan* prop_solve(const prop_problem* p) {
  const tide_plan_problem problem = prop_given(p);
  tide_plan* plan = NULL;
  T_OK(tide_plan_solve(&problem, &p->options, &plan));
  return plan;
}

// The capacities become what a plan needs.
static void prop_tighten(prop_problem* p, const tide_plan* plan) {
  if (p->pools == 0) p->pools = 1;
  for (uint32_t pool = 0; pool < p->pools; pool++) p->capacities[pool] = pool_peak(p, plan, pool);
}

static const char* const sound_shapes[] = { "train", "random", "perfect", "dropped", "copies",
                                            "crowd", "ladder", "comb",    NULL };

T_TEST_OVER(prop_plan__some_buffers_of_a_plan_can_be_fixed, sound_shapes) {
  for (size_t round = 0; round < t_scaled(5); round++) {
    t_rng rng = t_rng_new(1000 + round);
    prop_problem p;
    prop_make(&p, prop_count(&rng), &rng);
    add_any(&p, &rng);
    tide_plan* const plan = prop_solve(&p);
    if (tide_plan_offsets(plan) != NULL) {
      for (size_t i = 0; i < p.count; i++) {
        if (t_rng_below(&rng, 4) > 0) continue;
        p.buffers[i].offset = tide_plan_offsets(plan)[i];
        p.buffers[i].pool = tide_plan_pools(plan)[i];
      }
      prop_tighten(&p, plan);
      p.is_feasible = true;

      prop_expect(&p, round);
    }

    tide_plan_free(plan);
    prop_free(&p);
  }
}

T_TEST_OVER(prop_plan__a_plan_that_is_kept_moves_nothing, sound_shapes) {
  for (size_t round = 0; round < t_scaled(5); round++) {
    t_rng rng = t_rng_new(2000 + round);
    prop_problem p;
    prop_make(&p, prop_count(&rng), &rng);
    add_any(&p, &rng);
    tide_plan* const plan = prop_solve(&p);
    if (tide_plan_offsets(plan) != NULL) {
      for (size_t i = 0; i < p.count; i++) {
        p.buffers[i].hint = tide_plan_offsets(plan)[i];
        p.buffers[i].pool = tide_plan_pools(plan)[i];
      }
      prop_tighten(&p, plan);
      p.options.goal = TIDE_PLAN_FIT;
      p.options.keeps_hints = true;
      p.is_feasible = true;

      tide_plan* const again = prop_solve(&p);

      T_EQ(tide_plan_result(again).moved, 0);
      prop_expect(&p, round);
      tide_plan_free(again);
    }

    tide_plan_free(plan);
    prop_free(&p);
  }
}

// With some room, a few buffers that change their size make a few others give way.
T_TEST_OVER(prop_plan__a_small_change_moves_few, sound_shapes) {
  for (size_t round = 0; round < t_scaled(5); round++) {
    t_rng rng = t_rng_new(8000 + round);
    prop_problem p;
    prop_make(&p, 50 + prop_count(&rng), &rng);
    tide_plan* const plan = prop_solve(&p);
    prop_tighten(&p, plan);
    p.capacities[0] += p.capacities[0] / 4 + p.count;
    for (size_t i = 0; i < p.count; i++) p.buffers[i].hint = tide_plan_offsets(plan)[i];
    for (size_t i = 0; i < p.count; i++) {
      tide_plan_buffer* const b = &p.buffers[i];
      if (t_rng_below(&rng, 100) == 0) b->bytes = 1 + b->bytes / 2 + t_rng_below(&rng, b->bytes / 2 + 1);
    }
    p.options.goal = TIDE_PLAN_FIT;
    p.options.keeps_hints = true;

    tide_plan* const again = prop_solve(&p);

    T_LE(tide_plan_result(again).verdict, TIDE_PLAN_FEASIBLE);
    T_LE(tide_plan_result(again).moved, p.count / 10);
    tide_plan_free(again);
    tide_plan_free(plan);
    prop_free(&p);
  }
}

T_TEST(prop_plan__perfect_packings_reach_the_bound) {
  for (size_t round = 0; round < t_scaled(T_HAS_SANITIZER ? 15 : 60); round++) {
    t_rng rng = t_rng_new(3000 + round);
    prop_problem p;
    const size_t count = 2 + t_rng_below(&rng, 59);
    prop_init(&p, count);
    const uint64_t peak = shape_perfect(&p, count, &rng);
    p.options.seconds = 600;
    p.options.seed = round;

    tide_plan* const plan = prop_solve(&p);

    const tide_plan_outcome outcome = tide_plan_result(plan);
    if (outcome.peak != peak) prop_print(&p);
    T_EQ(outcome.peak, peak);
    T_EQ(outcome.lower_bound, peak);
    T_EQ(outcome.verdict, TIDE_PLAN_OPTIMAL);
    T_CHECK(plan_fault(&p, plan) == NULL);
    tide_plan_free(plan);
    prop_free(&p);
  }
}

T_TEST_OVER(prop_plan__threads_change_nothing, sound_shapes) {
  for (size_t round = 0; round < t_scaled(3); round++) {
    t_rng rng = t_rng_new(4000 + round);
    prop_problem p;
    prop_make(&p, prop_count(&rng), &rng);
    add_any(&p, &rng);
    tide_plan* const one = prop_solve(&p);
    const tide_plan_outcome expected = tide_plan_result(one);

    for (p.options.threads = 2; p.options.threads <= 4; p.options.threads++) {
      tide_plan* const more = prop_solve(&p);
      const tide_plan_outcome outcome = tide_plan_result(more);
      T_EQ(outcome.verdict, expected.verdict);
      T_EQ(outcome.peak, expected.peak);
      T_EQ(outcome.lower_bound, expected.lower_bound);
      if (expected.verdict <= TIDE_PLAN_FEASIBLE) {
        T_EQ(memcmp(tide_plan_offsets(more), tide_plan_offsets(one), p.count * sizeof(uint64_t)), 0);
        T_EQ(memcmp(tide_plan_pools(more), tide_plan_pools(one), p.count * sizeof(uint32_t)), 0);
      }
      tide_plan_free(more);
    }

    tide_plan_free(one);
    prop_free(&p);
  }
}

// ---------------------------------------------------------------------------------------------------
// Limits

#define PROP_SLACK_NS ((uint64_t)(T_HAS_SANITIZER ? 20 : 2) * 1000000000)

T_TEST_OVER(prop_plan__keeps_the_time_limit, sound_shapes) {
  t_one_variant(sound_shapes);
  const size_t counts[] = { 60, 1000, T_HAS_SANITIZER ? 4000 : 40000 };
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    t_rng rng = t_rng_new(5000 + i);
    prop_problem p;
    prop_init(&p, counts[i]);
    shape_make(&p, t_variant(), counts[i], &rng);
    p.options.seconds = 0.2;
    const uint64_t start = t_processor_ns();

    tide_plan* const plan = prop_solve(&p);

    T_LT(t_processor_ns() - start, 200000000 + PROP_SLACK_NS);
    T_CHECK(tide_plan_offsets(plan) != NULL);
    tide_plan_free(plan);
    prop_free(&p);
  }
}

static const char* const feature_names[] = { "alignments", "gaps", "aliases", "pools", "hints", NULL };

T_TEST_OVER(prop_plan__keeps_the_time_limit_whatever_is_asked, feature_names) {
  t_one_variant(feature_names);
  const size_t count = T_HAS_SANITIZER ? 2000 : 20000;
  t_rng rng = t_rng_new(7000);
  prop_problem p;
  prop_init(&p, count);
  shape_random(&p, count, &rng);
  for (size_t i = 0; feature_names[i] != NULL; i++)
    if (strcmp(feature_names[i], t_variant()) == 0) features[i](&p, &rng);
  p.options.seconds = 0.2;
  const uint64_t start = t_processor_ns();

  tide_plan* const plan = prop_solve(&p);

  T_LT(t_processor_ns() - start, 200000000 + PROP_SLACK_NS);
  tide_plan_free(plan);
  prop_free(&p);
}

static bool prop_stop(void* user, const tide_plan_progress* progress) {
  (void)progress;
  return --*(int*)user > 0;
}

T_TEST_OVER(prop_plan__stops_when_told, sound_shapes) {
  for (int calls = 1; calls <= 3; calls++) {
    int left = calls;
    t_rng rng = t_rng_new(6000 + (uint64_t)calls);
    prop_problem p;
    prop_make(&p, prop_count(&rng), &rng);
    p.options.nodes = 0;
    p.options.on_progress = prop_stop;
    p.options.user = &left;
    const uint64_t start = t_processor_ns();

    tide_plan* const plan = prop_solve(&p);

    T_LT(t_processor_ns() - start, 10 * PROP_SLACK_NS);
    T_CHECK(plan_fault(&p, plan) == NULL);
    tide_plan_free(plan);
    prop_free(&p);
  }
}

T_TEST(prop_plan__stacks_a_million_identical_buffers) {
  const size_t count = T_HAS_SANITIZER || !t_is_thorough() ? 100000 : 1000000;
  prop_problem p;
  prop_init(&p, count);
  while (p.count < count) prop_add(&p, 3, 5, 24);
  p.options.seconds = 600;

  tide_plan* const plan = prop_solve(&p);

  const tide_plan_outcome outcome = tide_plan_result(plan);
  T_EQ(outcome.verdict, TIDE_PLAN_OPTIMAL);
  T_EQ(outcome.peak, 24 * (uint64_t)count);
  T_EQ(outcome.lower_bound, outcome.peak);
  tide_plan_free(plan);
  prop_free(&p);
}

T_TEST(prop_plan__a_million_identical_buffers_that_cannot_be) {
  const size_t count = T_HAS_SANITIZER || !t_is_thorough() ? 100000 : 1000000;
  prop_problem p;
  prop_init(&p, count);
  while (p.count < count) prop_add(&p, 3, 5, TIDE_PLAN_MAX_BYTES / 4 - 1);
  p.options.seconds = 600;

  tide_plan* const plan = prop_solve(&p);

  T_EQ(tide_plan_result(plan).verdict, TIDE_PLAN_INFEASIBLE);
  T_CHECK(tide_plan_offsets(plan) == NULL);
  tide_plan_free(plan);
  prop_free(&p);
}
