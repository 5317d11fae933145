// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The entry of the planning solver: validates the problem, assigns pools, solves each, and returns a
// verified plan.
#include "tidemark/plan.h"

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/sized.h"
#include "base/sys.h"
#include "plan/assign.h"
#include "plan/solver.h"

#define PLAN_THREADS 4u  // there are never more concurrent tasks
#define PLAN_ROUND 512u  // work per item before a round of pools places anything
#define PLAN_MOVES 8u    // times that pools which do not fit hand something on

typedef struct plan_pool {
  tide_plan_outcome outcome;
  size_t* live;  // of scratch; (optional) the live set of its proof
  size_t live_count;
} plan_pool;

struct tide_plan {
  tide__scratch scratch;
  plan_pool* pools;  // of scratch
  uint32_t pool_count;
  uint64_t* offsets;  // of scratch; by buffer
  uint32_t* pool_of;  // of scratch; by buffer
  bool has_plan;
  plan_pool all;  // pools together
};

// One call of tide_plan_solve.
typedef struct plan_work {
  const tide_plan_problem* problem;  // borrowed
  tide_plan_options options;
  const tide_heap* heap;  // borrowed
  tide__items items;
  tide__assign assign;
  tide__budget budget;
  tide__thread_pool threads;
  tide_plan* plan;  // owned until the end
  int64_t* found;   // of the plan's scratch; by item: its offset
} plan_work;

// ---------------------------------------------------------------------------------------------------
// Names

static const char* const plan_verdict_names[] = { "optimal", "feasible", "infeasible", "unknown" };
static const char* const plan_stage_names[] = {
  "none", "hints", "greedy", "wheel", "search", "neighbourhood"
};

const char* tide_plan_verdict_name(tide_plan_verdict verdict) {
  const bool is_known = (unsigned)verdict < sizeof plan_verdict_names / sizeof plan_verdict_names[0];
  return is_known ? plan_verdict_names[verdict] : "not a verdict";
}

const char* tide_plan_stage_name(tide_plan_stage stage) {
  const bool is_known = (unsigned)stage < sizeof plan_stage_names / sizeof plan_stage_names[0];
  return is_known ? plan_stage_names[stage] : "not a stage";
}

// ---------------------------------------------------------------------------------------------------
// One pool

// Sends boxes that may lie elsewhere and end above the capacity to another pool. If there is no plan to tell
// which, the largest goes.
static bool plan_hand_on(plan_work* work, const tide__solver* solver) {
  bool is_changed = false;
  const tide__model* const model = &solver->model;
  uint32_t largest = UINT32_MAX;
  for (uint32_t i = 0; i < model->count; i++) {
    const tide__box* const box = &model->boxes[i];
    if (work->items.items[box->item].pool != TIDE_PLAN_ANY_POOL) continue;
    if (largest == UINT32_MAX || box->height > model->boxes[largest].height) largest = i;
    if (solver->height == INT64_MAX || solver->offsets[i] + box->height <= solver->capacity) continue;
    if (tide__assign_move(&work->assign, box->item)) is_changed = true;
  }
  if (!is_changed && largest != UINT32_MAX) {
    is_changed = tide__assign_move(&work->assign, model->boxes[largest].item);
  }
  return is_changed;
}

// Writes what the solver found.
static void plan_take(plan_work* work, uint32_t pool, const tide__solver* solver) {
  tide_plan_outcome* const outcome = &work->plan->pools[pool].outcome;
  const bool has_plan = solver->verdict == TIDE_PLAN_OPTIMAL || solver->verdict == TIDE_PLAN_FEASIBLE;
  *outcome = (tide_plan_outcome){ .verdict = solver->verdict,
                                  .stage = has_plan ? solver->stage : TIDE_PLAN_STAGE_NONE,
                                  .peak = solver->height < INT64_MAX ? (uint64_t)solver->height : 0,
                                  .lower_bound = (uint64_t)solver->bound,
                                  .proof = solver->proof };
  outcome->proof.pool = pool;
  if (has_plan && outcome->lower_bound > 0) {
    outcome->gap = (double)(outcome->peak - outcome->lower_bound) / (double)outcome->lower_bound;
  }
  for (uint32_t i = 0; has_plan && i < solver->model.count; i++) {
    work->found[solver->model.boxes[i].item] = solver->offsets[i];
  }
}

static bool plan_has_failed(tide_plan_verdict verdict) {
  return verdict == TIDE_PLAN_INFEASIBLE || verdict == TIDE_PLAN_UNKNOWN;
}

static tide_status plan_solve_pool(plan_work* work, uint32_t pool, bool may_move, bool* out_moved) {
  tide__solver solver;
  const uint64_t nodes = work->budget.nodes;
  const double seconds = tide__budget_seconds(&work->budget);
  tide__budget_share(&work->budget, pool, work->plan->pool_count - pool);
  const size_t first = work->assign.first[pool];
  const tide__solver_task task = { .items = &work->items,
                                   .list = &work->assign.list[first],
                                   .count = work->assign.first[pool + 1] - first,
                                   .capacity = tide__assign_capacity(&work->assign, pool),
                                   .options = &work->options,
                                   .budget = &work->budget,
                                   .threads = &work->threads };
  tide_status status = tide__solver_init(&solver, &task, work->heap);
  if (status == TIDE_OK) status = tide__solver_run(&solver);
  if (status == TIDE_OK) {
    plan_take(work, pool, &solver);
    if (may_move && plan_has_failed(solver.verdict) && plan_hand_on(work, &solver)) {
      *out_moved = true;
    }
    work->plan->pools[pool].outcome.nodes = work->budget.nodes - nodes;
    work->plan->pools[pool].outcome.seconds = tide__budget_seconds(&work->budget) - seconds;
  }
  tide__solver_fini(&solver);
  return status;
}

// Solves the pools in turn. Items that one hands on count in the next round.
static tide_status plan_solve_each(plan_work* work, bool may_move, bool* out_fits, bool* out_moved) {
  *out_fits = true;
  *out_moved = false;
  tide__assign_list(&work->assign);
  for (uint32_t pool = 0; pool < work->plan->pool_count; pool++) {
    TIDE_TRY(plan_solve_pool(work, pool, may_move, out_moved));
    if (plan_has_failed(work->plan->pools[pool].outcome.verdict)) *out_fits = false;
  }
  return TIDE_OK;
}

// A pool's outcome holds for its items only. If the solver chose these, it says nothing about other
// assignments.
static void plan_doubt(plan_work* work, bool is_proved) {
  for (uint32_t i = 0; i < work->plan->pool_count; i++) {
    tide_plan_outcome* const outcome = &work->plan->pools[i].outcome;
    outcome->verdict = is_proved ? TIDE_PLAN_INFEASIBLE : TIDE_PLAN_UNKNOWN;
    outcome->lower_bound = 0;
    outcome->proof = (tide_plan_proof){ .reason = is_proved ? TIDE_PLAN_SEARCH : TIDE_PLAN_NO_REASON,
                                        .pool = TIDE_PLAN_ANY_POOL };
  }
}

static bool plan_is_impossible(const tide_plan* plan) {
  for (uint32_t i = 0; i < plan->pool_count; i++) {
    if (plan->pools[i].outcome.verdict == TIDE_PLAN_INFEASIBLE) return true;
  }
  return false;
}

// The last resort: all free items go to the largest pool.
static tide_status plan_use_largest(plan_work* work, bool* out_fits) {
  uint32_t largest = 0;
  for (uint32_t pool = 1; pool < work->plan->pool_count; pool++) {
    const uint64_t capacity = tide__assign_capacity(&work->assign, pool);
    if (capacity > tide__assign_capacity(&work->assign, largest)) largest = pool;
  }
  bool has_moved = false;
  tide__assign_all(&work->assign, largest);
  return plan_solve_each(work, false, out_fits, &has_moved);
}

// Charges for the next round, which visits all items again.
static bool plan_may_try_again(plan_work* work) {
  if (tide__budget_is_over(&work->budget) || tide__budget_left(&work->budget) == 0) return false;
  tide__budget_spend(&work->budget, (tide__effort){ 0, PLAN_ROUND * (uint64_t)work->items.count });
  return true;
}

// Moves free items out of pools that do not fit, then tries other distributions.
static tide_status plan_solve_pools(plan_work* work) {
  bool fits = false;
  bool has_moved = true;
  for (uint32_t i = 0; i < PLAN_MOVES && has_moved && !fits; i++) {
    if (i > 0 && !plan_may_try_again(work)) break;
    TIDE_TRY(plan_solve_each(work, work->assign.is_open, &fits, &has_moved));
  }
  if (fits || !work->assign.is_open) return TIDE_OK;
  bool is_all = false;
  bool is_proved = true;
  for (uint32_t way = 0; !fits && tide__assign_again(&work->assign, way, &is_all); way++) {
    if (!plan_may_try_again(work)) break;
    TIDE_TRY(plan_solve_each(work, false, &fits, &has_moved));
    is_proved &= plan_is_impossible(work->plan);
  }
  if (!fits) TIDE_TRY(plan_use_largest(work, &fits));
  if (!fits) plan_doubt(work, is_all && is_proved);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Results

static bool plan_holds_at(const tide_plan_buffer* buffer, uint64_t instant) {
  if (instant < buffer->lower || instant >= buffer->upper) return false;
  for (size_t i = 0; i < buffer->gap_count; i++) {
    const tide_plan_gap* const gap = &buffer->gaps[i];
    if (instant >= gap->lower && instant < gap->upper) return gap->first < gap->last;
  }
  return buffer->bytes > 0;
}

// Lists the buffers that are live at the instant of a proof, in one pool or in all.
static tide_status plan_list_live(plan_work* work, plan_pool* out, uint32_t pool) {
  if (out->outcome.proof.reason != TIDE_PLAN_LOAD) return TIDE_OK;
  for (int pass = 0; pass < 2; pass++) {  // the first only counts
    size_t count = 0;
    for (size_t i = 0; i < work->problem->count; i++) {
      if (pool != TIDE_PLAN_ANY_POOL && work->assign.pools[work->items.of_buffer[i]] != pool) continue;
      if (!plan_holds_at(&work->problem->buffers[i], out->outcome.proof.instant)) continue;
      if (pass == 1) out->live[count] = i;
      count++;
    }
    if (pass == 1) break;
    out->live_count = count;
    out->live = tide__scratch_alloc(&work->plan->scratch, count, sizeof *out->live);
    if (out->live == NULL) return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for %zu live buffers", count);
  }
  return TIDE_OK;
}

static void plan_count_moved(plan_work* work) {
  for (size_t i = 0; i < work->problem->count; i++) {
    const uint64_t hint = work->problem->buffers[i].hint;
    if (hint == TIDE_PLAN_ANYWHERE || hint == work->plan->offsets[i]) continue;
    work->plan->pools[work->plan->pool_of[i]].outcome.moved++;
    work->plan->all.outcome.moved++;
  }
}

static int plan_badness(tide_plan_verdict verdict) {
  switch (verdict) {
    case TIDE_PLAN_OPTIMAL: return 0;
    case TIDE_PLAN_FEASIBLE: return 1;
    case TIDE_PLAN_UNKNOWN: return 2;
    case TIDE_PLAN_INFEASIBLE: break;
  }
  return 3;
}

// A bound for all pools together: whatever the distribution, the sum of the peaks is at least the load of
// an instant.
static void plan_bound_all(plan_work* work, tide_plan_outcome* all) {
  const tide__model* const model = &work->assign.all;
  all->lower_bound = (uint64_t)model->held;
  if (plan_has_failed(all->verdict)) return;
  all->verdict = all->peak == all->lower_bound ? TIDE_PLAN_OPTIMAL : TIDE_PLAN_FEASIBLE;
  all->proof =
      (tide_plan_proof){ .reason = TIDE_PLAN_LOAD, .pool = TIDE_PLAN_ANY_POOL, .instant = model->held_at };
}

static uint64_t plan_add(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return tide__add(a, b, &sum) ? sum : UINT64_MAX;
}

static void plan_sum_up(plan_work* work) {
  tide_plan* const plan = work->plan;
  tide_plan_outcome* const all = &plan->all.outcome;
  *all = plan->pools[0].outcome;
  for (uint32_t i = 1; i < plan->pool_count; i++) {
    const tide_plan_outcome* const one = &plan->pools[i].outcome;
    if (plan_badness(one->verdict) > plan_badness(all->verdict)) {
      all->verdict = one->verdict;
      all->stage = one->stage;
      all->proof = one->proof;
    }
    all->peak = plan_add(all->peak, one->peak);
    all->lower_bound = plan_add(all->lower_bound, one->lower_bound);
  }
  if (work->assign.is_open) plan_bound_all(work, all);
  plan->has_plan = !plan_has_failed(all->verdict);
  all->nodes = work->budget.nodes;
  all->gap = 0;
  if (plan->has_plan && all->lower_bound > 0) {
    all->gap = (double)(all->peak - all->lower_bound) / (double)all->lower_bound;
  }
}

// The offset of an item that never uses any bytes.
static uint64_t plan_any_offset(const tide__item* item) {
  if (item->offset != TIDE_PLAN_ANYWHERE) return item->offset;
  const bool is_good = item->hint <= TIDE_PLAN_MAX_BYTES && item->hint % item->alignment == 0;
  return is_good ? item->hint : 0;
}

// Writes the offsets by buffer, and verifies them.
static tide_status plan_hand_out(plan_work* work) {
  tide_plan* const plan = work->plan;
  for (size_t i = 0; i < work->problem->count; i++) {
    const uint32_t item = work->items.of_buffer[i];
    const int64_t found = work->found[item];
    plan->offsets[i] = found >= 0 ? (uint64_t)found : plan_any_offset(&work->items.items[item]);
    plan->pool_of[i] = work->assign.pools[item];
  }
  plan_sum_up(work);
  TIDE_TRY(plan_list_live(work, &plan->all, plan->all.outcome.proof.pool));
  if (!plan->has_plan) return TIDE_OK;
  plan_count_moved(work);
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;
  TIDE_TRY(tide_plan_verify(work->problem, plan->offsets, plan->pool_of, work->heap, &check));
  if (check.fault == TIDE_PLAN_NO_FAULT) return TIDE_OK;
  return TIDE_FAIL(TIDE_ERR_STATE, "a plan did not pass the verifier: %.180s", check.text);
}

// ---------------------------------------------------------------------------------------------------
// The call

static tide_status plan_check_options(const tide_plan_options* options) {
  TIDE_REQUIRE(options->goal == TIDE_PLAN_PEAK || options->goal == TIDE_PLAN_FIT, TIDE_ERR_ARGUMENT,
               "plan_solve: there is no goal %d", (int)options->goal);
  TIDE_REQUIRE(options->seconds >= 0, TIDE_ERR_ARGUMENT, "plan_solve: invalid limit of %g seconds",
               options->seconds);
  TIDE_REQUIRE(options->threads <= 1024, TIDE_ERR_ARGUMENT, "plan_solve: %u threads: too many",
               (unsigned)options->threads);
  TIDE_REQUIRE(tide__heap_is_valid(options->heap), TIDE_ERR_ARGUMENT,
               "plan_solve: the heap lacks a function");
  return TIDE_OK;
}

static tide_status plan_alloc(plan_work* work) {
  tide_plan* const plan = tide__heap_alloc(work->heap, 1, sizeof *plan);
  if (plan == NULL) return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for a plan");
  work->plan = plan;
  tide__scratch_init(&plan->scratch, work->heap);
  const size_t count = work->problem->count;
  plan->pool_count = work->problem->pools > 0 ? (uint32_t)work->problem->pools : 1;
  plan->pools = tide__scratch_alloc(&plan->scratch, plan->pool_count, sizeof *plan->pools);
  plan->offsets = tide__scratch_alloc(&plan->scratch, count, sizeof *plan->offsets);
  plan->pool_of = tide__scratch_alloc(&plan->scratch, count, sizeof *plan->pool_of);
  work->found = tide__scratch_alloc(&plan->scratch, work->items.count, sizeof *work->found);
  if (plan->scratch.is_short) return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for %zu offsets", count);
  for (size_t i = 0; i < work->items.count; i++) work->found[i] = -1;
  return TIDE_OK;
}

// Marks every pool as infeasible.
static void plan_refuse(plan_work* work, tide_plan_proof proof) {
  proof.pool = TIDE_PLAN_ANY_POOL;
  for (uint32_t i = 0; i < work->plan->pool_count; i++) {
    work->plan->pools[i].outcome = (tide_plan_outcome){ .verdict = TIDE_PLAN_INFEASIBLE, .proof = proof };
  }
}

static tide_status plan_make(plan_work* work) {
  TIDE_TRY(tide__items_init(&work->items, work->problem, work->heap));
  TIDE_TRY(plan_alloc(work));
  TIDE_TRY(tide__assign_init(&work->assign, &work->items, work->problem, work->heap));
  if (work->items.proof.reason != TIDE_PLAN_NO_REASON) {
    plan_refuse(work, work->items.proof);
  } else if (work->assign.proof.reason != TIDE_PLAN_NO_REASON) {
    plan_refuse(work, work->assign.proof);
  } else {
    TIDE_TRY(plan_solve_pools(work));
  }
  for (uint32_t i = 0; i < work->plan->pool_count; i++) {
    if (work->plan->pools[i].outcome.proof.pool != i) continue;  // it is the proof for all pools
    TIDE_TRY(plan_list_live(work, &work->plan->pools[i], i));
  }
  TIDE_TRY(plan_hand_out(work));
  work->plan->all.outcome.seconds = tide__budget_seconds(&work->budget);
  return TIDE_OK;
}

tide_status tide_plan_solve(const tide_plan_problem* problem, const tide_plan_options* options,
                            tide_plan** out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "plan_solve: out is NULL");
  *out = NULL;
  TIDE_REQUIRE(problem != NULL, TIDE_ERR_ARGUMENT, "plan_solve: the problem is NULL");
  plan_work work = { .problem = problem, .options = TIDE_PLAN_OPTIONS_INIT };
  if (options != NULL) TIDE_TRY(tide__sized_read("plan_solve", options, &work.options, sizeof work.options));
  TIDE_TRY(plan_check_options(&work.options));
  work.heap = tide__heap_or_system(work.options.heap);
  tide__budget_init(&work.budget, &work.options, problem->count);
  const uint32_t threads = work.options.threads > 0 ? work.options.threads : tide__sys_processors();
  tide__thread_pool_init(&work.threads, threads < PLAN_THREADS ? threads : PLAN_THREADS, work.heap);
  const tide_status status = plan_make(&work);
  tide__thread_pool_fini(&work.threads);
  tide__assign_fini(&work.assign);
  tide__items_fini(&work.items);
  if (status == TIDE_OK) {
    *out = work.plan;
  } else {
    tide_plan_free(work.plan);
  }
  return status;
}

void tide_plan_free(tide_plan* plan) {
  if (plan == NULL) return;
  const tide_heap* const heap = plan->scratch.heap;
  tide__scratch_fini(&plan->scratch);
  tide__heap_release(heap, plan, 1, sizeof *plan);
}

// ---------------------------------------------------------------------------------------------------
// Queries

tide_plan_outcome tide_plan_result(const tide_plan* plan) {
  return plan != NULL ? plan->all.outcome : (tide_plan_outcome){ .verdict = TIDE_PLAN_UNKNOWN };
}

tide_plan_outcome tide_plan_pool_result(const tide_plan* plan, uint32_t pool) {
  if (plan == NULL || pool >= plan->pool_count) return (tide_plan_outcome){ .verdict = TIDE_PLAN_UNKNOWN };
  return plan->pools[pool].outcome;
}

const uint64_t* tide_plan_offsets(const tide_plan* plan) {
  return plan != NULL && plan->has_plan ? plan->offsets : NULL;
}

const uint32_t* tide_plan_pools(const tide_plan* plan) {
  return plan != NULL && plan->has_plan ? plan->pool_of : NULL;
}

const size_t* tide_plan_live_set(const tide_plan* plan, uint32_t pool, size_t* out_count) {
  if (out_count != NULL) *out_count = 0;
  if (plan == NULL || (pool >= plan->pool_count && pool != TIDE_PLAN_ANY_POOL)) return NULL;
  const bool is_all = pool == TIDE_PLAN_ANY_POOL || plan->pools[pool].outcome.proof.pool != pool;
  const plan_pool* const one = is_all ? &plan->all : &plan->pools[pool];
  if (out_count != NULL) *out_count = one->live_count;
  return one->live;
}
