// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What ends the solver, and what may not change what it finds: threads, nodes, seconds, a caller who has seen
// enough, a heap that fails, and a problem or options that make no sense.
#define T_THREADS
#include <math.h>

#include "machine/counting_heap.h"
#include "plan/packing.h"
#include "plan/small.h"

static tide_plan_options options_of(uint64_t nodes, uint32_t threads, uint64_t seed) {
  tide_plan_options options = TIDE_PLAN_OPTIONS_INIT;
  options.seconds = 0;
  options.nodes = nodes;
  options.threads = threads;
  options.seed = seed;
  return options;
}

// ---------------------------------------------------------------------------------------------------
// Threads and seeds

static void expect_same(const tide_plan_problem* problem, const tide_plan* a, const tide_plan* b) {
  const tide_plan_outcome x = tide_plan_result(a);
  const tide_plan_outcome y = tide_plan_result(b);
  T_EQ(x.verdict, y.verdict);
  T_EQ(x.stage, y.stage);
  T_EQ(x.peak, y.peak);
  T_EQ(x.lower_bound, y.lower_bound);
  T_EQ(x.nodes, y.nodes);
  T_EQ(x.moved, y.moved);
  T_EQ(x.proof.reason, y.proof.reason);
  T_EQ(x.proof.instant, y.proof.instant);
  const uint64_t* const p = tide_plan_offsets(a);
  const uint64_t* const q = tide_plan_offsets(b);
  T_EQ(p == NULL, q == NULL);
  if (p != NULL) T_EQ(memcmp(p, q, problem->count * sizeof *p), 0);
}

static void expect_the_same_with_more_threads(const tide_plan_problem* problem, tide_plan_options options) {
  tide_plan* first = NULL;
  options.threads = 1;
  T_OK(tide_plan_solve(problem, &options, &first));
  for (uint32_t threads = 1; threads <= 4; threads *= 2) {
    tide_plan* plan = NULL;
    options.threads = threads;
    T_OK(tide_plan_solve(problem, &options, &plan));
    expect_same(problem, first, plan);
    tide_plan_free(plan);
  }
  tide_plan_free(first);
}

T_TEST(test_plan_limits__threads_change_nothing_with_a_limit_in_nodes) {
  t_rng rng = t_rng_new(0);

  for (size_t i = 0; i < t_scaled(T_HAS_SANITIZER ? 3 : 12); i++) {
    packing p;
    packing_new(&p, 40 + t_rng_below(&rng, 200), 40, 1000, &rng);
    if (i % 2 == 1) packing_drop(&p, 12, &rng);
    tide_plan_options options = options_of(1 + t_rng_below(&rng, 10000), 1, i);
    options.goal = i % 3 == 0 ? TIDE_PLAN_FIT : TIDE_PLAN_PEAK;
    if (options.goal == TIDE_PLAN_FIT) {
      p.problem.capacities = &p.capacity;
      p.problem.pools = 1;
    }
    expect_the_same_with_more_threads(&p.problem, options);
    packing_free(&p);
  }
}

T_TEST(test_plan_limits__threads_change_nothing_for_thousands) {
  packing p;
  t_rng rng = t_rng_new(0);
  packing_new(&p, T_HAS_SANITIZER ? 300 : 4000, T_HAS_SANITIZER ? 60 : 500, 1000000, &rng);
  packing_drop(&p, 12, &rng);

  expect_the_same_with_more_threads(&p.problem, options_of(T_HAS_SANITIZER ? 3000 : 30000, 1, 7));

  packing_free(&p);
}

// The same with so many nodes that plans are improved: by more passes that learn, and by searches in parts of
// a plan. The second has fixed buffers, and too many for a search of all of it.
T_TEST(test_plan_limits__threads_change_nothing_in_improvements) {
  static const size_t counts[] = { 700, 2800 };
  const uint64_t nodes[] = { T_HAS_SANITIZER ? 4000 : 40000, T_HAS_SANITIZER ? 8000 : 18000 };
  t_rng rng = t_rng_new(0);
  for (size_t i = 0; i < 2; i++) {
    packing p;
    packing_new(&p, counts[i], counts[i] / 4, 1000000, &rng);
    packing_drop(&p, 12, &rng);
    for (size_t k = 0; i == 1 && k < p.problem.count; k += 500) p.buffers[k].offset = p.offsets[k];
    expect_the_same_with_more_threads(&p.problem, options_of(nodes[i], 1, 7));
    packing_free(&p);
  }
}

// Everything a solver may meet in small, and without any limit.
T_TEST(test_plan_limits__threads_change_nothing_without_limits) {
  const small_kind kind = { 8,
                            10,
                            5,
                            .has_alignment = true,
                            .has_fixed = true,
                            .has_gaps = true,
                            .has_aliases = true,
                            .has_empty = true };
  small_problem p;
  t_rng rng = t_rng_new(0);

  for (size_t i = 0; i < t_scaled(T_HAS_SANITIZER ? 30 : 300); i++) {
    small_random(&p, &kind, &rng);
    expect_the_same_with_more_threads(&p.problem, options_of(0, 1, i));
  }
}

T_TEST(test_plan_limits__seeds_change_the_way_and_not_the_peak) {
  t_rng rng = t_rng_new(0);
  packing p;
  packing_new(&p, 60, 30, 1000, &rng);

  for (uint64_t seed = 0; seed < 20; seed++) {
    const tide_plan_options options = options_of(0, 1, seed);
    tide_plan* plan = NULL;
    T_OK(tide_plan_solve(&p.problem, &options, &plan));
    packing_check(&p.problem, plan);
    T_EQ(tide_plan_result(plan).verdict, TIDE_PLAN_OPTIMAL);
    T_EQ(tide_plan_result(plan).peak, p.capacity);
    tide_plan_free(plan);
  }
  packing_free(&p);
}

// ---------------------------------------------------------------------------------------------------
// Limits

T_TEST(test_plan_limits__nodes_are_kept) {
  t_rng rng = t_rng_new(0);
  packing p;
  packing_new(&p, 400, 200, 1000, &rng);
  packing_drop(&p, 12, &rng);

  for (uint64_t nodes = 1; nodes <= (T_HAS_SANITIZER ? 1000 : 100000); nodes *= 10) {
    const tide_plan_options options = options_of(nodes, 1, 0);
    tide_plan* plan = NULL;
    T_OK(tide_plan_solve(&p.problem, &options, &plan));
    packing_check(&p.problem, plan);                                   // even one node has a plan
    T_LE(tide_plan_result(plan).nodes, nodes + 10 * p.problem.count);  // a pass under way may end
    tide_plan_free(plan);
  }
  packing_free(&p);
}

// Buffers that hold their bytes one after another, and live at once: the sum of their bytes exceeds 64 bits,
// which the address pass sees if it is ever made.
T_TEST(test_plan_limits__bytes_are_not_summed_up_beyond_64_bits) {
  enum { PIECES = 60, TALL = 8 };
  tide_plan_buffer buffers[PIECES + TALL];
  tide_plan_gap gaps[TALL];
  const tide_plan_problem problem = { .buffers = buffers, .count = PIECES + TALL };
  const tide_plan_options options = options_of(1000, 1, 0);
  t_rng rng = t_rng_new(0);
  packing p;
  tide_plan* plan = NULL;
  packing_new(&p, PIECES, 30, 1000, &rng);
  memcpy(buffers, p.buffers, PIECES * sizeof *buffers);
  for (size_t i = 0; i < TALL; i++) {
    gaps[i] = (tide_plan_gap){ .lower = i + 2, .upper = 29 - i };
    buffers[PIECES + i] = (tide_plan_buffer){
      .lower = i + 1, .upper = 30 - i, .bytes = TIDE_PLAN_MAX_BYTES / 2, TIDE_PLAN_FREELY
    };
    buffers[PIECES + i].gaps = &gaps[i];
    buffers[PIECES + i].gap_count = 1;
  }

  T_OK(tide_plan_solve(&problem, &options, &plan));

  packing_check(&problem, plan);
  T_LE(TIDE_PLAN_MAX_BYTES / 2 + p.capacity, tide_plan_result(plan).lower_bound);
  tide_plan_free(plan);
  packing_free(&p);
}

T_TEST(test_plan_limits__seconds_are_kept) {
  t_rng rng = t_rng_new(0);
  packing p;
  packing_new(&p, 3000, 300, 100000, &rng);
  packing_drop(&p, 12, &rng);

  for (uint32_t threads = 1; threads <= 2; threads++) {
    tide_plan_options options = options_of(0, threads, 0);
    options.seconds = 0.3;
    tide_plan* plan = NULL;
    const uint64_t begin = t_now_ns();
    const uint64_t used = t_processor_ns();
    T_OK(tide_plan_solve(&p.problem, &options, &plan));
    const double seconds = (double)(t_now_ns() - begin) * 1e-9;
    const double processor_seconds = (double)(t_processor_ns() - used) * 1e-9;
    packing_check(&p.problem, plan);
    T_CHECK(processor_seconds < (T_HAS_SANITIZER ? 20 : 2));
    T_CHECK(tide_plan_result(plan).seconds <= seconds);
    tide_plan_free(plan);
  }
  packing_free(&p);
}

// ---------------------------------------------------------------------------------------------------
// Progress

typedef struct watcher {
  pthread_t caller;
  size_t calls;
  size_t stop_at;
  tide_plan_progress last;
} watcher;

static bool watch(void* user, const tide_plan_progress* progress) {
  watcher* const w = user;
  T_CHECK(pthread_equal(w->caller, pthread_self()) != 0);
  T_LT(w->calls, w->stop_at + 1);  // who has said no is not asked again
  if (w->calls > 0) {
    T_LE(w->last.lower_bound, progress->lower_bound);
    T_LE(progress->peak, w->last.peak);
    T_LE(w->last.nodes, progress->nodes);
    T_CHECK(w->last.seconds <= progress->seconds);
  }
  T_CHECK(progress->peak == UINT64_MAX || (progress->lower_bound <= progress->peak && progress->peak > 0));
  w->last = *progress;
  return w->calls++ < w->stop_at;
}

static size_t solve_watched(const tide_plan_problem* problem, tide_plan_options options, size_t stop_at) {
  watcher w = { .caller = pthread_self(), .stop_at = stop_at };
  tide_plan* plan = NULL;
  options.on_progress = watch;
  options.user = &w;
  T_OK(tide_plan_solve(problem, &options, &plan));
  const tide_plan_outcome result = tide_plan_result(plan);
  if (tide_plan_offsets(plan) != NULL) packing_check(problem, plan);
  else T_CHECK(result.verdict == TIDE_PLAN_UNKNOWN || result.verdict == TIDE_PLAN_INFEASIBLE);
  tide_plan_free(plan);
  return w.calls;
}

T_TEST(test_plan_limits__a_caller_stops_it_at_any_call) {
  t_rng rng = t_rng_new(0);
  size_t total = 0;

  for (size_t i = 0; i < 6; i++) {
    packing p;
    packing_new(&p, 30 + 60 * i, 60, 1000, &rng);
    packing_drop(&p, 12, &rng);
    const tide_plan_options options = options_of(20000, i % 2 == 0 ? 1 : 2, i);
    const size_t calls = solve_watched(&p.problem, options, SIZE_MAX - 1);
    for (size_t stop = 0; stop < calls && stop < (T_HAS_SANITIZER ? 8 : 40); stop++) {
      T_LE(solve_watched(&p.problem, options, stop), stop + 1);  // how often it asks depends on the time
    }
    total += calls;
    packing_free(&p);
  }

  T_LT(0, total);
}

// ---------------------------------------------------------------------------------------------------
// Memory

// Memory that only saves work, as that of what has failed before, may be done without.
static size_t fail_everywhere(const tide_plan_problem* problem, tide_plan_options options, size_t step) {
  counting_heap h;
  size_t failed = 0;
  options.heap = &h.heap;
  for (size_t i = 0;; i += step) {
    tide_plan* plan = NULL;
    counting_heap_init(&h, i, i % 2 == 1);
    const tide_status status = tide_plan_solve(problem, &options, &plan);
    T_CHECK(status == TIDE_OK || (status == TIDE_ERR_NO_MEMORY && atomic_load(&h.has_failed)));
    T_CHECK((plan != NULL) == (status == TIDE_OK));
    if (tide_plan_offsets(plan) != NULL) packing_check(problem, plan);
    tide_plan_free(plan);
    T_EQ(atomic_load(&h.outstanding), 0);
    if (!atomic_load(&h.has_failed)) return failed;
    failed += status == TIDE_OK ? 0 : 1;
  }
}

T_TEST(test_plan_limits__memory_may_fail_anywhere) {
  t_rng rng = t_rng_new(0);
  packing p;
  packing_new(&p, 50, 20, 300, &rng);
  packing_drop(&p, 12, &rng);

  T_LT(10, fail_everywhere(&p.problem, options_of(2000, 1, 0), 1));
  T_LT(10, fail_everywhere(&p.problem, options_of(2000, 3, 0), 1));

  packing_free(&p);
}

T_TEST(test_plan_limits__memory_may_fail_in_problems_of_every_kind) {
  const small_kind kind = { 8, 10, 5, true, true, true, true, true, true, true, 2, 20 };
  small_problem p;
  t_rng rng = t_rng_new(0);

  for (size_t i = 0; i < t_scaled(T_HAS_SANITIZER ? 20 : 100); i++) {
    small_random(&p, &kind, &rng);
    for (size_t k = 0; k < p.problem.count; k++) p.buffers[k].hint = t_rng_below(&rng, 20);
    tide_plan_options options = options_of(300, 1 + (uint32_t)i % 2, i);
    options.keeps_hints = i % 3 == 0;
    options.goal = i % 5 == 0 ? TIDE_PLAN_FIT : TIDE_PLAN_PEAK;
    (void)fail_everywhere(&p.problem, options, 1);
  }
}

// ---------------------------------------------------------------------------------------------------
// Refusals

T_TEST(test_plan_limits__refuses_what_is_not_there) {
  const tide_plan_problem nothing = { .count = 0 };
  const tide_plan_problem without = { .count = 1 };
  tide_plan_options options = TIDE_PLAN_OPTIONS_INIT;
  const tide_heap broken = { NULL, NULL, NULL };
  tide_plan* plan = NULL;

  T_STATUS(tide_plan_solve(NULL, NULL, &plan), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_plan_solve(&nothing, NULL, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_plan_solve(&without, NULL, &plan), TIDE_ERR_ARGUMENT);
  options.heap = &broken;
  T_STATUS(tide_plan_solve(&nothing, &options, &plan), TIDE_ERR_ARGUMENT);
  options = (tide_plan_options)TIDE_PLAN_OPTIONS_INIT;
  options.size = 0;
  T_STATUS(tide_plan_solve(&nothing, &options, &plan), TIDE_ERR_ARGUMENT);
  options = (tide_plan_options)TIDE_PLAN_OPTIONS_INIT;
  options.seconds = -1;
  T_STATUS(tide_plan_solve(&nothing, &options, &plan), TIDE_ERR_ARGUMENT);
  options.seconds = (double)NAN;
  T_STATUS(tide_plan_solve(&nothing, &options, &plan), TIDE_ERR_ARGUMENT);
  options = (tide_plan_options)TIDE_PLAN_OPTIONS_INIT;
  options.goal = (tide_plan_goal)2;
  T_STATUS(tide_plan_solve(&nothing, &options, &plan), TIDE_ERR_ARGUMENT);
  T_PTR_EQ(plan, NULL);
}

T_TEST(test_plan_limits__nothing_has_a_plan_of_nothing) {
  const tide_plan_problem nothing = { .count = 0 };
  tide_plan* plan = NULL;

  T_OK(tide_plan_solve(&nothing, NULL, &plan));

  const tide_plan_outcome result = tide_plan_result(plan);
  T_EQ(result.verdict, TIDE_PLAN_OPTIMAL);
  T_EQ(result.peak, 0);
  T_EQ(result.stage, TIDE_PLAN_STAGE_NONE);
  tide_plan_free(plan);
}

T_TEST(test_plan_limits__without_a_plan_nothing_is_said) {
  size_t count = 7;

  tide_plan_free(NULL);
  T_EQ(tide_plan_result(NULL).verdict, TIDE_PLAN_UNKNOWN);
  T_EQ(tide_plan_pool_result(NULL, 0).verdict, TIDE_PLAN_UNKNOWN);
  T_PTR_EQ(tide_plan_offsets(NULL), NULL);
  T_PTR_EQ(tide_plan_pools(NULL), NULL);
  T_PTR_EQ(tide_plan_live_set(NULL, 0, &count), NULL);
  T_EQ(count, 0);
  T_STR_EQ(tide_plan_verdict_name(TIDE_PLAN_INFEASIBLE), "infeasible");
  T_STR_EQ(tide_plan_stage_name(TIDE_PLAN_STAGE_NEIGHBOURHOOD), "neighbourhood");
  T_CHECK(tide_plan_verdict_name((tide_plan_verdict)9) != NULL);
  T_CHECK(tide_plan_stage_name((tide_plan_stage)9) != NULL);
}
