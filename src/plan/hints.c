// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A box without a usable hint goes to the lowest free place below the allowed height. If there is none, it
// goes where it evicts the fewest boxes, and those are placed again in turn. Every eviction makes a box more
// expensive to evict, so two boxes do not evict each other forever.
// Cost: a step is O(k log k + c k) for k overlapping boxes and c candidate places.
#include "plan/hints.h"

#include "base/error.h"
#include "plan/fit.h"
#include "plan/improver.h"

#define HINTS_PLACES 64u       // candidates per box
#define HINTS_STEPS_A_BOX 50u  // for each box without a place at first
#define HINTS_STEPS_LEAST 200u
#define HINTS_POLL 64u    // steps between two looks at the budget
#define HINTS_MANY 1024u  // overlapping boxes, from which on the budget is checked at each step

typedef struct hints_work {
  tide__scratch scratch;
  tide__solver* solver;  // borrowed
  tide__fit fit;
  tide__keyed* keys;    // of scratch
  tide__keyed* spare;   // of scratch
  uint32_t* queue;      // of scratch; boxes without a place, as a stack
  uint32_t* evictions;  // of scratch; how often each was evicted
  uint32_t waiting;     // in the queue
  uint32_t steps;       // queries of `fit`
  bool is_over;
  uint64_t paid;  // work of `fit` that the budget was charged for
  int64_t target;
} hints_work;

static const tide__box* hints_box(const hints_work* work, uint32_t box) {
  return &work->solver->model.boxes[box];
}

// Is the time over? Called before each query of `fit`.
static bool hints_is_over(hints_work* work) {
  if (work->steps++ % HINTS_POLL == 0 || work->fit.bar_count > HINTS_MANY) {
    work->is_over = tide__budget_is_over(work->solver->budget);
  }
  return work->is_over;
}

static uint64_t hints_take_unpaid(hints_work* work) {
  const uint64_t unpaid = work->fit.work - work->paid;
  work->paid = work->fit.work;
  return unpaid;
}

// The same for the pass over all boxes, which has free work.
static bool hints_may_ask(hints_work* work) {
  return tide__budget_keep(work->solver->budget, hints_take_unpaid(work)) && !hints_is_over(work);
}

static bool hints_has_hint(const hints_work* work, uint32_t index) {
  const tide__box* const box = hints_box(work, index);
  return box->hint >= 0 && box->fixed < 0 && (uint64_t)box->hint % box->alignment == 0 &&
         box->hint <= work->target - box->height;
}

// ---------------------------------------------------------------------------------------------------
// At the hints

static void hints_put_fixed(hints_work* work) {
  for (uint32_t i = 0; i < work->solver->model.count; i++) {
    if (hints_box(work, i)->fixed >= 0) tide__fit_put(&work->fit, i, hints_box(work, i)->fixed);
  }
}

// Places boxes at their hints, the highest first. A box without a hint, or that does not fit there, goes
// into the queue, the highest last.
static tide_status hints_put_hinted(hints_work* work) {
  const uint32_t count = work->solver->model.count;
  for (uint32_t i = 0; i < count; i++)
    work->keys[i] = (tide__keyed){ (uint64_t)hints_box(work, i)->height, i };
  tide__radix_sort(work->keys, work->spare, count);
  for (uint32_t i = count; i-- > 0;) {
    const uint32_t box = work->keys[i].value;
    if (!hints_has_hint(work, box)) continue;
    if (!hints_may_ask(work)) break;
    TIDE_TRY(tide__fit_ask(&work->fit, box));
    if (tide__fit_is_free(&work->fit, hints_box(work, box)->hint)) {
      tide__fit_put(&work->fit, box, hints_box(work, box)->hint);
    }
  }
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t box = work->keys[i].value;
    if (work->fit.offsets[box] < 0) work->queue[work->waiting++] = box;
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Eviction

// The cost of placing the box at `offset`; UINT64_MAX: impossible.
static uint64_t hints_cost(hints_work* work, int64_t offset) {
  uint64_t cost = 0;
  for (size_t i = 0; i < work->fit.bar_count && work->fit.bars[i].above < offset; i++) {
    work->fit.work++;
    const tide__bar* const bar = &work->fit.bars[i];
    if (offset >= bar->below) continue;
    if (hints_box(work, bar->box)->fixed >= 0) return UINT64_MAX;
    cost += 1 + 2 * (uint64_t)work->evictions[bar->box];
  }
  return cost;
}

typedef struct hints_place {
  uint64_t cost;
  int64_t offset;
} hints_place;

static void hints_compare(hints_work* work, uint32_t box, int64_t offset, hints_place* best) {
  if (offset < 0 || offset > work->target - hints_box(work, box)->height) return;
  const uint64_t cost = hints_cost(work, offset);
  if (cost >= best->cost) return;
  *best = (hints_place){ cost, offset };
}

// The cheapest place that touches another box, or the ground.
static hints_place hints_find(hints_work* work, uint32_t box) {
  const uint64_t alignment = hints_box(work, box)->alignment;
  hints_place best = { UINT64_MAX, 0 };
  hints_compare(work, box, 0, &best);
  if (hints_has_hint(work, box)) hints_compare(work, box, hints_box(work, box)->hint, &best);
  const size_t stride = work->fit.bar_count / HINTS_PLACES + 1;
  for (size_t i = work->steps % stride; i < work->fit.bar_count; i += stride) {
    const tide__bar* const bar = &work->fit.bars[i];
    hints_compare(work, box, tide__align_height(bar->below, alignment), &best);
    if (bar->above >= 0)
      hints_compare(work, box, bar->above - (int64_t)((uint64_t)bar->above % alignment), &best);
  }
  return best;
}

static void hints_evict(hints_work* work, int64_t offset) {
  for (size_t i = 0; i < work->fit.bar_count && work->fit.bars[i].above < offset; i++) {
    const tide__bar* const bar = &work->fit.bars[i];
    if (offset >= bar->below || work->fit.offsets[bar->box] < 0) continue;
    tide__fit_take(&work->fit, bar->box);
    work->evictions[bar->box]++;
    work->queue[work->waiting++] = bar->box;
  }
}

// Places the last box of the queue; false if it has no place.
static tide_status hints_step(hints_work* work, bool* out_found) {
  const uint32_t box = work->queue[work->waiting - 1];
  TIDE_TRY(tide__fit_ask(&work->fit, box));
  const int64_t lowest = tide__fit_lowest(&work->fit, box);
  hints_place place = { 0, lowest };
  if (lowest > work->target - hints_box(work, box)->height) place = hints_find(work, box);
  *out_found = place.cost < UINT64_MAX;
  if (!*out_found) return TIDE_OK;
  work->waiting--;
  if (place.cost > 0) hints_evict(work, place.offset);
  tide__fit_put(&work->fit, box, place.offset);
  return TIDE_OK;
}

static tide_status hints_repair(hints_work* work) {
  uint64_t steps = HINTS_STEPS_LEAST + (uint64_t)HINTS_STEPS_A_BOX * work->waiting;
  tide__budget* const budget = work->solver->budget;
  for (bool found = true; found && work->waiting > 0 && steps > 0; steps--) {
    if (hints_is_over(work)) break;
    if (tide__budget_left(budget) == 0) break;
    TIDE_TRY(hints_step(work, &found));
    tide__budget_spend(budget, (tide__effort){ 1, hints_take_unpaid(work) });
  }
  return TIDE_OK;
}

// The hint of an evicted box may be free again.
static tide_status hints_return(hints_work* work) {
  for (uint32_t i = 0; i < work->solver->model.count; i++) {
    const int64_t offset = work->fit.offsets[i];
    if (!hints_has_hint(work, i) || offset == hints_box(work, i)->hint) continue;
    if (!hints_may_ask(work)) break;
    tide__fit_take(&work->fit, i);
    TIDE_TRY(tide__fit_ask(&work->fit, i));
    const bool is_free = tide__fit_is_free(&work->fit, hints_box(work, i)->hint);
    tide__fit_put(&work->fit, i, is_free ? hints_box(work, i)->hint : offset);
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------

// Places the queued boxes, each as low as possible, or on top of all when the time is over; false if that
// is too high.
static tide_status hints_put_rest(hints_work* work, bool* out_fits) {
  int64_t top = 0;
  const uint32_t count = work->solver->model.count;
  for (uint32_t i = 0; i < count; i++) {
    const int64_t offset = work->fit.offsets[i];
    if (offset >= 0 && offset + hints_box(work, i)->height > top) top = offset + hints_box(work, i)->height;
  }
  *out_fits = false;
  while (work->waiting > 0) {
    const uint32_t box = work->queue[--work->waiting];
    int64_t offset = tide__align_height(top, hints_box(work, box)->alignment);
    if (hints_may_ask(work)) {
      TIDE_TRY(tide__fit_ask(&work->fit, box));
      offset = tide__fit_lowest(&work->fit, box);
    }
    if (offset > (int64_t)TIDE_PLAN_MAX_BYTES - hints_box(work, box)->height) return TIDE_OK;
    tide__fit_put(&work->fit, box, offset);
    if (offset + hints_box(work, box)->height > top) top = offset + hints_box(work, box)->height;
  }
  *out_fits = true;
  return TIDE_OK;
}

static void hints_note(hints_work* work) {
  tide__solver* const solver = work->solver;
  for (uint32_t i = 0; i < solver->model.part_count; i++) {
    const tide__part* const part = &solver->model.parts[i];
    int64_t height = 0;
    for (uint32_t j = part->first_box; j < part->last_box; j++) {
      const int64_t end = work->fit.offsets[j] + hints_box(work, j)->height;
      height = end > height ? end : height;
    }
    // With keeps_hints, this plan is the answer even if another one is lower.
    if (solver->is_kept) solver->parts[i].height = INT64_MAX;
    tide__solver_note(solver, i, height, &work->fit.offsets[part->first_box], TIDE_PLAN_STAGE_HINTS);
  }
}

// The allowed height: the capacity, or the height of the hinted plan.
static int64_t hints_target(const tide__solver* solver) {
  if (solver->options->goal == TIDE_PLAN_FIT) return solver->capacity;
  int64_t highest = solver->bound;
  for (uint32_t i = 0; i < solver->model.count; i++) {
    const tide__box* const box = &solver->model.boxes[i];
    if (box->hint >= 0 && box->hint + box->height > highest) highest = box->hint + box->height;
  }
  return highest < solver->capacity ? highest : solver->capacity;
}

static tide_status hints_find_plan(hints_work* work) {
  tide__solver* const solver = work->solver;
  hints_put_fixed(work);
  TIDE_TRY(hints_put_hinted(work));
  if (solver->options->keeps_hints) {
    TIDE_TRY(hints_repair(work));
    solver->is_kept = work->waiting == 0;
    if (solver->is_kept) TIDE_TRY(hints_return(work));
  }
  bool fits = false;
  TIDE_TRY(hints_put_rest(work, &fits));
  if (fits) hints_note(work);
  return TIDE_OK;
}

tide_status tide__hints_run(tide__solver* solver) {
  hints_work work = { .solver = solver, .target = hints_target(solver) };
  const uint32_t count = solver->model.count;
  tide__scratch_init(&work.scratch, solver->scratch.heap);
  work.keys = tide__scratch_alloc(&work.scratch, count, sizeof *work.keys);
  work.spare = tide__scratch_alloc(&work.scratch, count, sizeof *work.spare);
  work.queue = tide__scratch_alloc(&work.scratch, count, sizeof *work.queue);
  work.evictions = tide__scratch_alloc(&work.scratch, count, sizeof *work.evictions);
  tide_status status = tide__fit_init(&work.fit, &solver->model, solver->scratch.heap);
  if (status == TIDE_OK && work.scratch.is_short) {
    status = TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for %u buffers", (unsigned)count);
  }
  if (status == TIDE_OK) status = hints_find_plan(&work);
  tide__fit_fini(&work.fit);
  tide__scratch_fini(&work.scratch);
  return status;
}
