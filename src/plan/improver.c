// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A small part is searched exactly: first at the lower bound, then halfway between the highest undecided
// height and the best plan, with more nodes in each round. A large part uses the squeaky wheel, with
// rehearsals if the plan is close to the goal, and from time to time neighbourhoods. A part in between
// alternates.
#include "plan/improver.h"

#include "base/error.h"
#include "base/heap.h"
#include "plan/exact.h"
#include "plan/neighbourhood.h"
#include "plan/rehearsal.h"
#include "plan/squeaky_wheel.h"

#define IMPROVER_EXACT_ALONE 600u   // boxes up to which the wheel runs its first round only
#define IMPROVER_EXACT_MOST 2500u   // boxes up to which the exact search is tried
#define IMPROVER_NODES_A_BOX 64u    // of the first search
#define IMPROVER_NODES_SHARED 8u    // of the first search, if it alternates with the wheel
#define IMPROVER_ROUNDS 12u         // of the wheel in a step
#define IMPROVER_REHEARSED 100000u  // boxes from which on rehearsals pay off
#define IMPROVER_LITTLE 1024        // a plan is rehearsed if it exceeds the goal by at most this fraction

struct tide__improver {
  tide__solver* solver;  // borrowed
  uint32_t part;
  uint32_t count;
  tide__squeaky_wheel wheel;
  tide__puzzle puzzle;
  tide__exact exact;
  tide__neighbourhood neighbourhood;
  bool has_wheel;
  bool has_exact;
  bool has_neighbourhood;
  uint64_t nodes;     // of the next search
  int64_t undecided;  // the greatest height that this round could not decide
  bool is_exhausted;  // the exact search has tried everything, which proves nothing here
  bool has_fixed;     // the wheel cannot be used
  uint32_t steps;
  int64_t* offsets;  // owned; by number in the part
};

static const tide__part* improver_part(const tide__improver* improver) {
  return &improver->solver->model.parts[improver->part];
}

static tide__part_state* improver_state(const tide__improver* improver) {
  return &improver->solver->parts[improver->part];
}

static const tide_heap* improver_heap(const tide__improver* improver) {
  return improver->solver->scratch.heap;
}

// ---------------------------------------------------------------------------------------------------
// Lifetime

tide_status tide__improver_new(tide__solver* solver, uint32_t part, tide__improver** out) {
  *out = NULL;
  tide__improver* const improver = tide__heap_alloc(solver->scratch.heap, 1, sizeof *improver);
  if (improver == NULL) return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory to improve a plan");
  improver->solver = solver;
  improver->part = part;
  improver->count = improver_part(improver)->last_box - improver_part(improver)->first_box;
  const bool is_alone = improver->count <= IMPROVER_EXACT_ALONE;
  improver->nodes = (uint64_t)improver->count * (is_alone ? IMPROVER_NODES_A_BOX : IMPROVER_NODES_SHARED);
  improver->undecided = -1;
  for (uint32_t i = improver_part(improver)->first_box; i < improver_part(improver)->last_box; i++) {
    improver->has_fixed |= solver->model.boxes[i].fixed >= 0;
  }
  improver->offsets = tide__heap_alloc(solver->scratch.heap, improver->count, sizeof *improver->offsets);
  if (improver->offsets == NULL) {
    tide__improver_free(improver);
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory to improve a plan");
  }
  *out = improver;
  return TIDE_OK;
}

void tide__improver_free(tide__improver* improver) {
  if (improver == NULL) return;
  const tide_heap* const heap = improver_heap(improver);
  if (improver->has_wheel) tide__squeaky_wheel_fini(&improver->wheel);
  if (improver->has_exact) {
    tide__exact_fini(&improver->exact);
    tide__puzzle_fini(&improver->puzzle);
  }
  if (improver->has_neighbourhood) tide__neighbourhood_fini(&improver->neighbourhood);
  tide__heap_release(heap, improver->offsets, improver->count, sizeof *improver->offsets);
  tide__heap_release(heap, improver, 1, sizeof *improver);
}

// ---------------------------------------------------------------------------------------------------
// The wheel

static tide_status improver_run_wheel(tide__improver* improver, int64_t goal) {
  tide__solver* const solver = improver->solver;
  const bool is_first = !improver->has_wheel;
  if (is_first) {
    improver->has_wheel = true;
    TIDE_TRY(tide__squeaky_wheel_init(&improver->wheel, &solver->model, improver_part(improver),
                                      solver->options->seed, improver_heap(improver)));
  }
  const bool is_fixed = improver->wheel.rounds < tide__squeaky_wheel_fixed_rounds(&improver->wheel);
  const tide_plan_stage stage = is_fixed ? TIDE_PLAN_STAGE_GREEDY : TIDE_PLAN_STAGE_WHEEL;
  uint32_t rounds = IMPROVER_ROUNDS;
  if (is_fixed) rounds = tide__squeaky_wheel_fixed_rounds(&improver->wheel) - improver->wheel.rounds;
  if (improver->count > IMPROVER_EXACT_MOST || improver->count <= IMPROVER_EXACT_ALONE) rounds = 1;
  // The wheel must beat the best plan of all solvers.
  if (improver_state(improver)->height < improver->wheel.height) {
    improver->wheel.height = improver_state(improver)->height;
  }
  if (tide__squeaky_wheel_run(&improver->wheel, goal, rounds, solver->threads, solver->budget)) {
    tide__solver_note(solver, improver->part, improver->wheel.height, improver->wheel.offsets, stage);
  }
  return TIDE_OK;
}

// The least shift that keeps every alignment of the part, at or above `height`; INT64_MAX: none.
static int64_t improver_shift(const tide__improver* improver, int64_t height) {
  const tide__part* const part = improver_part(improver);
  const tide__box* const boxes = improver->solver->model.boxes;
  uint64_t most = 1;
  for (uint32_t i = part->first_box; i < part->last_box; i++) {
    if (boxes[i].alignment > most) most = boxes[i].alignment;
  }
  for (uint32_t i = part->first_box; i < part->last_box; i++) {
    if (most % boxes[i].alignment != 0) return INT64_MAX;
  }
  return tide__align_height(height, most);
}

// A simple plan for a part with fixed boxes: all others above them.
static tide_status improver_put_above(tide__improver* improver) {
  tide__solver* const solver = improver->solver;
  const tide__box* const boxes = &solver->model.boxes[improver_part(improver)->first_box];
  int64_t top = 0;
  for (uint32_t i = 0; i < improver->count; i++) {
    const int64_t end = boxes[i].fixed + boxes[i].height;
    if (boxes[i].fixed >= 0 && end > top) top = end;
  }
  const int64_t shift = improver_shift(improver, top);
  improver->has_wheel = true;
  TIDE_TRY(tide__squeaky_wheel_init(&improver->wheel, &solver->model, improver_part(improver),
                                    solver->options->seed, improver_heap(improver)));
  tide__squeaky_wheel_run(&improver->wheel, 0, 1, solver->threads, solver->budget);
  if (shift > solver->capacity || improver->wheel.height > solver->capacity - shift) return TIDE_OK;
  for (uint32_t i = 0; i < improver->count; i++) {
    improver->offsets[i] = boxes[i].fixed >= 0 ? boxes[i].fixed : improver->wheel.offsets[i] + shift;
  }
  tide__solver_note(solver, improver->part, improver->wheel.height + shift, improver->offsets,
                    TIDE_PLAN_STAGE_GREEDY);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The exact search

static tide_status improver_begin_exact(tide__improver* improver) {
  const tide__solver* const solver = improver->solver;
  const tide__part* const part = improver_part(improver);
  const tide_heap* const heap = improver_heap(improver);
  improver->has_exact = true;
  uint32_t* const boxes = tide__heap_alloc(heap, improver->count, sizeof *boxes);
  if (boxes == NULL)
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for %u buffers", (unsigned)improver->count);
  for (uint32_t i = 0; i < improver->count; i++) boxes[i] = part->first_box + i;
  const tide__puzzle_choice choice = {
    .boxes = boxes,
    .ceiling = INT64_MAX,
    .count = improver->count,
    .first = part->first_section,
    .last = part->last_section,
  };
  tide_status status = tide__puzzle_init(&improver->puzzle, &solver->model, &choice, heap);
  if (status == TIDE_OK) {
    status = tide__exact_init(&improver->exact, &improver->puzzle, solver->options->seed, heap);
  }
  tide__heap_release(heap, boxes, improver->count, sizeof *boxes);
  return status;
}

// Takes over an arrangement.
static void improver_take_exact(tide__improver* improver) {
  const tide__part* const part = improver_part(improver);
  int64_t height = 0;
  for (uint32_t i = 0; i < improver->puzzle.count; i++) {
    const tide__tile* const tile = &improver->puzzle.tiles[i];
    const int64_t offset = tide__exact_offset(&improver->exact, i);
    improver->offsets[tile->box - part->first_box] = offset;
    height = offset + tile->bytes > height ? offset + tile->bytes : height;
  }
  tide__solver_note(improver->solver, improver->part, height, improver->offsets, TIDE_PLAN_STAGE_SEARCH);
}

// The height to search next: the goal, or the middle of the undecided range.
static int64_t improver_next_height(tide__improver* improver, int64_t goal) {
  const tide__part_state* const state = improver_state(improver);
  const int64_t least = state->bound > goal ? state->bound : goal;
  if (improver->undecided >= state->height - 1) improver->undecided = -1;  // a better plan is below it
  if (improver->undecided < least) return least;
  return improver->undecided + (state->height - improver->undecided) / 2;
}

// The greatest height that is equivalent to `height` for the search.
static int64_t improver_same_height(const tide__improver* improver, int64_t height) {
  const int64_t unit = improver->puzzle.unit;
  return improver->puzzle.unused > 0 ? height : height - height % unit + (unit - 1);
}

static tide_status improver_search(tide__improver* improver, int64_t goal) {
  tide__solver* const solver = improver->solver;
  tide__part_state* const state = improver_state(improver);
  if (!improver->has_exact) TIDE_TRY(improver_begin_exact(improver));
  const int64_t height = improver_next_height(improver, goal);
  const uint64_t before = solver->budget->nodes;
  const tide__search_answer answer =
      tide__exact_run(&improver->exact, height, improver->nodes, solver->threads, solver->budget);
  // If it spent no node and has no answer, heights exceed its range.
  if (answer == TIDE__SEARCH_STOPPED && solver->budget->nodes == before) state->is_stuck = true;
  if (answer == TIDE__SEARCH_FITS) {
    improver_take_exact(improver);
    return TIDE_OK;
  }
  if (answer == TIDE__SEARCH_FITS_NOT && improver->puzzle.is_exact) {
    state->bound = improver_same_height(improver, height) + 1;
  } else {
    improver->is_exhausted = answer == TIDE__SEARCH_FITS_NOT;
    improver->undecided = improver_same_height(improver, height);
  }
  const bool is_last = improver->undecided >= state->height - 1 || solver->options->goal == TIDE_PLAN_FIT;
  if (!is_last) return TIDE_OK;
  if (improver->is_exhausted) state->is_stuck = true;
  improver->undecided = -1;
  improver->nodes *= 2;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Neighbourhoods

static tide_status improver_search_near(tide__improver* improver, int64_t goal) {
  tide__solver* const solver = improver->solver;
  const tide__part* const part = improver_part(improver);
  if (!improver->has_neighbourhood) {
    improver->has_neighbourhood = true;
    TIDE_TRY(tide__neighbourhood_init(&improver->neighbourhood, &solver->model, part, solver->options->seed,
                                      improver_heap(improver)));
  }
  int64_t height = improver_state(improver)->height;
  if (height == INT64_MAX) {  // no plan to start from
    improver_state(improver)->is_stuck = true;
    return TIDE_OK;
  }
  for (uint32_t i = 0; i < improver->count; i++) {
    improver->offsets[i] = solver->offsets[part->first_box + i];
  }
  TIDE_TRY(tide__neighbourhood_step(&improver->neighbourhood, goal, improver->offsets, &height,
                                    solver->threads, solver->budget));
  tide__solver_note(solver, improver->part, height, improver->offsets, TIDE_PLAN_STAGE_NEIGHBOURHOOD);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------

// The section to rehearse: the blamed one, or the one with the highest load.
static uint32_t improver_hardest(const tide__improver* improver) {
  const tide__part* const part = improver_part(improver);
  const uint32_t blamed = improver->wheel.chains[0].pass.blamed;
  if (blamed != UINT32_MAX) return blamed;
  uint32_t hardest = part->first_section;
  for (uint32_t i = part->first_section; i < part->last_section; i++) {
    if (improver->solver->model.loads[i] > improver->solver->model.loads[hardest]) hardest = i;
  }
  return hardest - part->first_section;
}

// For a part too large for the exact search. A round of the wheel is expensive, so it is rehearsed when the
// plan is close to the goal.
static tide_status improver_step_large(tide__improver* improver, int64_t goal, uint32_t step) {
  tide__solver* const solver = improver->solver;
  if (improver->has_fixed || (step > 0 && step % 8 == 0)) return improver_search_near(improver, goal);
  const bool is_close = improver_state(improver)->height - goal <= goal / IMPROVER_LITTLE;
  if (step > 0 && is_close && improver->count >= IMPROVER_REHEARSED) {
    bool is_found = false;
    TIDE_TRY(tide__rehearse(&improver->wheel, improver_hardest(improver), goal, solver->threads,
                            solver->budget, &is_found));
  }
  return improver_run_wheel(improver, goal);
}

tide_status tide__improver_step(tide__improver* improver, int64_t goal) {
  const uint32_t step = improver->steps++;
  const tide__part_state* const state = improver_state(improver);
  const bool is_poor = state->height / 2 > state->bound;
  if (improver->has_fixed && step == 0 && is_poor) return improver_put_above(improver);
  if (improver->count > IMPROVER_EXACT_MOST) return improver_step_large(improver, goal, step);
  if (improver->has_fixed) return improver_search(improver, goal);
  if (step == 0) return improver_run_wheel(improver, goal);
  if (improver->count <= IMPROVER_EXACT_ALONE || step % 2 == 1) return improver_search(improver, goal);
  return step % 8 == 0 ? improver_search_near(improver, goal) : improver_run_wheel(improver, goal);
}
