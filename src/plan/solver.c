// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Every part gets a first plan. Then the highest part is improved until it is at the goal: the capacity, or
// the lower bound of the pool. A part that is lower than another costs nothing.
#include "plan/solver.h"

#include "base/arith.h"
#include "base/error.h"
#include "plan/fit.h"
#include "plan/fixed.h"
#include "plan/improver.h"
#include "plan/hints.h"

#define SOLVER_SMALL 64u  // boxes

// ---------------------------------------------------------------------------------------------------
// Lifetime

tide_status tide__solver_init(tide__solver* solver, const tide__solver_task* task, const tide_heap* heap) {
  *solver = (tide__solver){ .items = task->items,
                            .options = task->options,
                            .budget = task->budget,
                            .threads = task->threads,
                            .capacity = (int64_t)tide__min(task->capacity, TIDE_PLAN_MAX_BYTES),
                            .height = INT64_MAX,
                            .verdict = TIDE_PLAN_UNKNOWN };
  tide__scratch_init(&solver->scratch, heap);
  TIDE_TRY(tide__model_init(&solver->model, task->items, task->list, task->count, heap));
  solver->offsets = tide__scratch_alloc(&solver->scratch, solver->model.count, sizeof *solver->offsets);
  solver->parts = tide__scratch_alloc(&solver->scratch, solver->model.part_count, sizeof *solver->parts);
  if (solver->scratch.is_short) {
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for %u buffers", (unsigned)solver->model.count);
  }
  for (uint32_t i = 0; i < solver->model.part_count; i++) {
    solver->parts[i] = (tide__part_state){ .height = INT64_MAX, .bound = solver->model.parts[i].lower_bound };
  }
  solver->bound = solver->model.lower_bound;
  solver->proof = solver->model.proof;
  return TIDE_OK;
}

void tide__solver_fini(tide__solver* solver) {
  for (uint32_t i = 0; i < solver->model.part_count && solver->parts != NULL; i++) {
    tide__improver_free(solver->parts[i].improver);
  }
  tide__model_fini(&solver->model);
  tide__scratch_fini(&solver->scratch);
}

void tide__solver_note(tide__solver* solver, uint32_t part, int64_t height, const int64_t* offsets,
                       tide_plan_stage stage) {
  tide__part_state* const state = &solver->parts[part];
  if (height > state->height) return;
  if (height < state->height) state->stage = stage;
  state->height = height;
  const tide__part* const range = &solver->model.parts[part];
  for (uint32_t i = range->first_box; i < range->last_box; i++) {
    solver->offsets[i] = offsets[i - range->first_box];
  }
}

// ---------------------------------------------------------------------------------------------------
// Fixed offsets

// Two fixed boxes that overlap prove that there is no plan.
static tide_status solver_check_fixed(tide__solver* solver) {
  uint32_t box = 0;
  uint32_t other = 0;
  TIDE_TRY(tide__fixed_find_pair(&solver->model, solver->scratch.heap, &box, &other));
  if (box == solver->model.count) return TIDE_OK;
  solver->verdict = TIDE_PLAN_INFEASIBLE;
  solver->proof = (tide_plan_proof){ .reason = TIDE_PLAN_PAIR,
                                     .buffer = solver->items->items[solver->model.boxes[box].item].buffer,
                                     .other = solver->items->items[solver->model.boxes[other].item].buffer };
  return TIDE_OK;
}

static bool solver_is_impossible(tide__solver* solver) {
  if (solver->bound > solver->capacity) solver->verdict = TIDE_PLAN_INFEASIBLE;
  return solver->verdict == TIDE_PLAN_INFEASIBLE;
}

// ---------------------------------------------------------------------------------------------------
// First plans

// Places the boxes of a part, the highest first, each as low as it fits. When the budget is spent, the rest
// goes on top. One node per box is always available.
static tide_status solver_fit_part(tide__solver* solver, uint32_t part, tide__fit* fit, tide__keyed* keys,
                                   tide__keyed* spare) {
  const tide__part* const range = &solver->model.parts[part];
  const tide__box* const boxes = solver->model.boxes;
  const uint32_t count = range->last_box - range->first_box;
  const uint64_t begin = fit->work;
  const uint64_t left = tide__budget_left(solver->budget);
  const uint64_t most = tide__budget_worth(left < count ? count : left);
  int64_t top = 0;
  bool is_over = false;
  for (uint32_t i = 0; i < count; i++) {
    const tide__box* const box = &boxes[range->first_box + i];
    keys[i] = (tide__keyed){ ~(uint64_t)box->height, range->first_box + i };
    if (box->fixed < 0) continue;
    tide__fit_put(fit, range->first_box + i, box->fixed);
    if (box->fixed + box->height > top) top = box->fixed + box->height;
  }
  tide__radix_sort(keys, spare, count);
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t box = keys[i].value;
    if (boxes[box].fixed >= 0) continue;
    int64_t offset = tide__align_height(top, boxes[box].alignment);
    if (!is_over && (i % 64 == 0 || fit->bar_count > 1024)) is_over = tide__budget_is_over(solver->budget);
    if (fit->work - begin >= most) is_over = true;
    if (!is_over) {
      TIDE_TRY(tide__fit_ask(fit, box));
      offset = tide__fit_lowest(fit, box);
    }
    if (offset > (int64_t)TIDE_PLAN_MAX_BYTES - boxes[box].height) return TIDE_OK;  // no plan yet
    tide__fit_put(fit, box, offset);
    if (offset + boxes[box].height > top) top = offset + boxes[box].height;
  }
  tide__budget_spend(solver->budget, (tide__effort){ count, fit->work - begin });
  tide__solver_note(solver, part, top, &fit->offsets[range->first_box], TIDE_PLAN_STAGE_GREEDY);
  return TIDE_OK;
}

// Does a part have gaps or fixed offsets, which the valley heuristic does not support?
static bool solver_is_odd(const tide__solver* solver, const tide__part* part) {
  const tide__model* const model = &solver->model;
  if (!model->has_fixed && !model->has_gaps) return false;
  for (uint32_t i = part->first_box; i < part->last_box; i++) {
    if (model->boxes[i].fixed >= 0 || model->boxes[i].span_count > 1) return true;
  }
  return false;
}

static tide_status solver_fit_odd_parts(tide__solver* solver) {
  if (!solver->model.has_fixed && !solver->model.has_gaps) return TIDE_OK;
  tide__fit fit;
  tide__scratch work;
  tide__scratch_init(&work, solver->scratch.heap);
  tide__keyed* const keys = tide__scratch_alloc(&work, solver->model.count, sizeof *keys);
  tide__keyed* const spare = tide__scratch_alloc(&work, solver->model.count, sizeof *spare);
  tide_status status = tide__fit_init(&fit, &solver->model, solver->scratch.heap);
  if (status == TIDE_OK && work.is_short) {
    status = TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for %u buffers", (unsigned)solver->model.count);
  }
  for (uint32_t i = 0; i < solver->model.part_count && status == TIDE_OK; i++) {
    if (!solver_is_odd(solver, &solver->model.parts[i])) continue;
    status = solver_fit_part(solver, i, &fit, keys, spare);
  }
  tide__fit_fini(&fit);
  tide__scratch_fini(&work);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// The loop

static int64_t solver_goal(const tide__solver* solver) {
  return solver->options->goal == TIDE_PLAN_PEAK ? solver->bound : solver->capacity;
}

static void solver_tell(tide__solver* solver, tide_plan_stage stage) {
  tide__budget_tell(solver->budget, stage, solver->height < INT64_MAX ? (uint64_t)solver->height : UINT64_MAX,
                    (uint64_t)solver->bound);
}

static tide_status solver_step(tide__solver* solver, uint32_t part) {
  tide__part_state* const state = &solver->parts[part];
  solver_tell(solver, state->height < INT64_MAX ? state->stage : TIDE_PLAN_STAGE_GREEDY);
  if (state->improver == NULL) TIDE_TRY(tide__improver_new(solver, part, &state->improver));
  TIDE_TRY(tide__improver_step(state->improver, solver_goal(solver)));
  if (state->bound > solver->bound) {
    solver->bound = state->bound;
    solver->proof = (tide_plan_proof){ .reason = TIDE_PLAN_SEARCH };
  }
  if (state->height <= solver_goal(solver) || state->height <= state->bound) {
    tide__improver_free(state->improver);
    state->improver = NULL;
  }
  return TIDE_OK;
}

static bool solver_is_spent(tide__solver* solver) {
  return tide__budget_is_over(solver->budget) || tide__budget_left(solver->budget) == 0;
}

// The highest part.
static uint32_t solver_worst(const tide__solver* solver) {
  uint32_t worst = 0;
  tide__budget_spend(solver->budget, (tide__effort){ 0, solver->model.part_count });
  for (uint32_t i = 1; i < solver->model.part_count; i++) {
    if (solver->parts[i].height > solver->parts[worst].height) worst = i;
  }
  return worst;
}

// If stacking all boxes is good enough, that is the plan. Used for parts without one.
static bool solver_pile_up(tide__solver* solver, uint32_t part) {
  const tide__part* const range = &solver->model.parts[part];
  const int64_t goal = solver_goal(solver);
  int64_t top = 0;
  for (uint32_t i = range->first_box; i < range->last_box; i++) {
    const tide__box* const box = &solver->model.boxes[i];
    const int64_t offset = tide__align_height(top, box->alignment);
    if (box->fixed >= 0 || offset > goal || box->height > goal - offset) return false;
    solver->offsets[i] = offset;
    top = offset + box->height;
  }
  solver->parts[part].height = top;
  solver->parts[part].stage = TIDE_PLAN_STAGE_GREEDY;
  return true;
}

// Many small parts would hold much memory for state that is quickly rebuilt.
static void solver_drop_small(tide__solver* solver, uint32_t part) {
  const tide__part* const range = &solver->model.parts[part];
  if (range->last_box - range->first_box > SOLVER_SMALL) return;
  tide__improver_free(solver->parts[part].improver);
  solver->parts[part].improver = NULL;
}

static tide_status solver_first_plans(tide__solver* solver) {
  for (uint32_t i = 0; i < solver->model.part_count; i++) {
    tide__part_state* const state = &solver->parts[i];
    const bool is_bare = state->height == INT64_MAX;
    if (state->height <= solver_goal(solver) || (is_bare && solver_pile_up(solver, i))) continue;
    if (is_bare || !solver_is_spent(solver)) TIDE_TRY(solver_step(solver, i));
    if (state->height == INT64_MAX) return TIDE_OK;  // it does not fit below TIDE_PLAN_MAX_BYTES
    solver_drop_small(solver, i);
  }
  return TIDE_OK;
}

static tide_status solver_work(tide__solver* solver) {
  while (!solver_is_impossible(solver)) {
    const uint32_t worst = solver_worst(solver);
    const tide__part_state* const state = &solver->parts[worst];
    solver->height = state->height;
    solver->stage = state->stage;
    if (state->height <= solver_goal(solver) || state->is_stuck || state->height <= state->bound) break;
    if (solver->is_kept || solver_is_spent(solver)) break;
    TIDE_TRY(solver_step(solver, worst));
  }
  return TIDE_OK;
}

static void solver_judge(tide__solver* solver) {
  if (solver->verdict == TIDE_PLAN_INFEASIBLE) return;
  if (solver->height > solver->capacity) {
    solver->verdict = TIDE_PLAN_UNKNOWN;
    return;
  }
  solver->verdict = solver->height <= solver->bound ? TIDE_PLAN_OPTIMAL : TIDE_PLAN_FEASIBLE;
}

tide_status tide__solver_run(tide__solver* solver) {
  if (solver->model.count == 0) {
    solver->height = 0;
    solver->verdict = TIDE_PLAN_OPTIMAL;
    return TIDE_OK;
  }
  if (solver_is_impossible(solver)) return TIDE_OK;
  TIDE_TRY(solver_check_fixed(solver));
  if (solver->verdict == TIDE_PLAN_INFEASIBLE) return TIDE_OK;
  TIDE_TRY(solver_fit_odd_parts(solver));
  if (solver->model.has_hints) {
    const uint64_t end_ns = tide__budget_narrow(solver->budget, solver->options->keeps_hints ? 2 : 8);
    TIDE_TRY(tide__hints_run(solver));
    tide__budget_widen(solver->budget, end_ns);
  }
  if (!solver->is_kept) TIDE_TRY(solver_first_plans(solver));
  TIDE_TRY(solver_work(solver));
  solver_judge(solver);
  return TIDE_OK;
}
