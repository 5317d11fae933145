// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A view is put together from left to right, and what was chosen stays:
//   start   the longest free end of a handle, then on through the hole that begins there;
//   middle  the other wholly free handles, largest first, each if it is not more than what is missing;
//   end     the shortest free beginning of a handle that holds the rest; where none does, new handles with
//           the longest free beginning behind them, or else the smallest wholly free handle, of which a part
//           is left over.
// So a view uses up two handles that are partly in use. One that is wholly free is broken only if the growth
// that is allowed does not suffice: it costs nothing now, but leaves one more handle in pieces.
//
// Memory that one's stream has to wait for comes after what needs no wait. Ties: one's own stream first, then
// the hole with more wholly free handles, then the older arena and the lower address. A loop settles because
// equal states lead to equal views, so nothing else may decide.
// Cost: O(r + w + n log w) of r runs, w wholly free handles, and n that are taken from their heap.
#include "device/tide/stitch.h"

#include "base/arith.h"
#include "base/check.h"
#include "base/error.h"
#include "base/heap.h"

// A wholly free handle outside the hole in which the view begins.
typedef struct stitch_whole {
  uint64_t bytes;
  uint32_t handle;
  uint32_t run_whole;  // how many such handles its hole has
  bool is_foreign;
  bool waits;
} stitch_whole;

typedef struct stitch_work {
  const tide__stitch_problem* problem;  // borrowed until the plan is made
  const tide_heap* heap;                // borrowed until the plan is made
  const tide__stitch_run* start;        // borrowed from the problem: the view begins in its `pre`; or NULL
  tide__stitch_plan plan;
  uint64_t missing;      // bytes of the block without a place
  stitch_whole* wholes;  // owned; a binary heap, the one to use first at its top
  size_t whole_count;    // left in the heap
  size_t whole_capacity;
  uint64_t least_whole;  // bytes of the smallest one
  stitch_whole spare;    // the smallest that was left out; of no bytes: none
} stitch_work;

// Appends a handle, of which the block gets `usable` bytes, or what is missing if that is less.
static tide_status stitch_append(stitch_work* work, uint32_t handle, uint64_t bytes, uint64_t usable) {
  tide__stitch_plan* const plan = &work->plan;
  void* parts = plan->parts;
  const bool has_room =
      tide__heap_grow(work->heap, &parts, &plan->capacity, plan->count + 1, sizeof *plan->parts);
  plan->parts = parts;
  TIDE_REQUIRE(has_room, TIDE_ERR_NO_MEMORY, "stitch: no memory for %zu parts of a view", plan->count + 1);
  plan->parts[plan->count++] = (tide__stitch_part){ handle, bytes };
  work->missing -= tide__min(work->missing, usable);
  return TIDE_OK;
}

static tide_status stitch_append_old(stitch_work* work, uint32_t handle, uint64_t usable) {
  return stitch_append(work, handle, work->problem->handles[handle], usable);
}

// ---------------------------------------------------------------------------------------------------
// Runs

static uint32_t stitch_first_whole(const tide__stitch_run* run) { return run->first + (run->pre != 0); }

// The handle in which a run ends, if it has a `suf`.
static uint32_t stitch_end_handle(const tide__stitch_run* run) {
  return stitch_first_whole(run) + run->whole;
}

// Is `run` used before `other`, which comes earlier in the list?
static bool stitch_run_overtakes(const tide__stitch_run* run, const tide__stitch_run* other) {
  if (run->waits != other->waits) return other->waits;
  if (run->is_foreign != other->is_foreign) return other->is_foreign;
  return run->whole > other->whole;
}

// ---------------------------------------------------------------------------------------------------
// Start

// Does a view begin better with `run` than with `other`, which comes earlier in the list?
static bool stitch_run_starts_better(const tide__stitch_run* run, const tide__stitch_run* other) {
  if (run->waits != other->waits) return other->waits;
  return run->pre > other->pre || (run->pre == other->pre && stitch_run_overtakes(run, other));
}

// The run with the longest `pre`, or NULL if there is none, or if it would hold the block alone, as one of
// another stream may: then the view begins with a handle that is wholly free or new.
static const tide__stitch_run* stitch_find_start(const tide__stitch_problem* problem) {
  const tide__stitch_run* best = NULL;
  for (size_t i = 0; i < problem->run_count; i++) {
    const tide__stitch_run* const run = &problem->runs[i];
    TIDE_ASSERT((size_t)stitch_end_handle(run) + (run->suf != 0) <= problem->handle_count);
    TIDE_ASSERT(run->pre < problem->handles[run->first]);
    TIDE_ASSERT(run->suf == 0 || run->suf < problem->handles[stitch_end_handle(run)]);
    if (run->pre == 0) continue;
    if (best == NULL || stitch_run_starts_better(run, best)) best = run;
  }
  return best != NULL && best->pre < problem->bytes ? best : NULL;
}

// The end of the hole is taken only if it is the end of the block too: a part behind it could not follow.
static tide_status stitch_begin(stitch_work* work) {
  const tide__stitch_problem* const problem = work->problem;
  const tide__stitch_run* const run = stitch_find_start(problem);
  if (run == NULL) return TIDE_OK;
  work->start = run;
  work->plan.start = problem->handles[run->first] - run->pre;
  TIDE_TRY(stitch_append_old(work, run->first, run->pre));
  const uint32_t whole = stitch_first_whole(run);
  for (uint32_t i = 0; i < run->whole && work->missing != 0; i++) {
    TIDE_TRY(stitch_append_old(work, whole + i, problem->handles[whole + i]));
  }
  if (work->missing == 0 || run->suf < work->missing) return TIDE_OK;
  return stitch_append_old(work, stitch_end_handle(run), run->suf);
}

// ---------------------------------------------------------------------------------------------------
// Middle

// Runs and their handles have the same order, so the index of a handle also stands for that of its run.
static bool stitch_whole_is_before(const stitch_whole* a, const stitch_whole* b) {
  if (a->waits != b->waits) return b->waits;
  if (a->is_foreign != b->is_foreign) return b->is_foreign;
  if (a->bytes != b->bytes) return a->bytes > b->bytes;
  if (a->run_whole != b->run_whole) return a->run_whole > b->run_whole;
  return a->handle < b->handle;
}

// Moves a whole of the heap down to where it belongs.
static void stitch_sift_down(stitch_work* work, size_t index) {
  stitch_whole* const heap = work->wholes;
  const stitch_whole moved = heap[index];
  for (size_t child = 2 * index + 1; child < work->whole_count; child = 2 * index + 1) {
    const bool has_other = child + 1 < work->whole_count;
    if (has_other && stitch_whole_is_before(&heap[child + 1], &heap[child])) child++;
    if (!stitch_whole_is_before(&heap[child], &moved)) break;
    heap[index] = heap[child];
    index = child;
  }
  heap[index] = moved;
}

static stitch_whole stitch_take_first(stitch_work* work) {
  const stitch_whole first = work->wholes[0];
  work->wholes[0] = work->wholes[--work->whole_count];
  if (work->whole_count > 1) stitch_sift_down(work, 0);
  return first;
}

// Makes a heap of the wholly free handles of all runs but the first of the view, which has used its own.
static tide_status stitch_list_wholes(stitch_work* work) {
  const tide__stitch_problem* const problem = work->problem;
  size_t count = 0;
  for (size_t i = 0; i < problem->run_count; i++) count += problem->runs[i].whole;
  if (work->start != NULL) count -= work->start->whole;
  if (count == 0) return TIDE_OK;
  work->wholes = tide__heap_alloc(work->heap, count, sizeof *work->wholes);
  TIDE_REQUIRE(work->wholes != NULL, TIDE_ERR_NO_MEMORY, "stitch: no memory for a list of %zu handles",
               count);
  work->whole_capacity = count;
  work->least_whole = UINT64_MAX;
  for (size_t i = 0; i < problem->run_count; i++) {
    const tide__stitch_run* const run = &problem->runs[i];
    for (uint32_t n = 0; run != work->start && n < run->whole; n++) {
      const uint32_t handle = stitch_first_whole(run) + n;
      work->wholes[work->whole_count++] =
          (stitch_whole){ problem->handles[handle], handle, run->whole, run->is_foreign, run->waits };
      work->least_whole = tide__min(work->least_whole, problem->handles[handle]);
    }
  }
  for (size_t i = count / 2; i > 0; i--) stitch_sift_down(work, i - 1);
  return TIDE_OK;
}

static void stitch_leave_out(stitch_work* work, const stitch_whole* whole) {
  const bool is_first = work->spare.bytes == 0 || whole->bytes < work->spare.bytes;
  const bool is_equal = whole->bytes == work->spare.bytes;
  if (is_first || (is_equal && stitch_whole_is_before(whole, &work->spare))) work->spare = *whole;
}

// What is left out is more than what is missing, at that moment and so at the end. When less is missing than
// any handle has, all that are left are left out.
static tide_status stitch_go_on(stitch_work* work) {
  TIDE_TRY(stitch_list_wholes(work));
  while (work->whole_count > 0 && work->missing >= work->least_whole) {
    const stitch_whole whole = stitch_take_first(work);
    if (whole.bytes <= work->missing) TIDE_TRY(stitch_append_old(work, whole.handle, whole.bytes));
    else stitch_leave_out(work, &whole);
  }
  for (size_t i = 0; i < work->whole_count; i++) stitch_leave_out(work, &work->wholes[i]);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// End

// Does `run` end the view better than `other`, which comes earlier in the list? The shortest of those that
// hold what is missing is best, then the longest of those that do not.
static bool stitch_run_ends_better(const tide__stitch_run* run, const tide__stitch_run* other,
                                   uint64_t missing) {
  const bool holds = run->suf >= missing;
  if (holds != (other->suf >= missing)) return holds;
  if (run->waits != other->waits) return other->waits;
  if (run->suf == other->suf) return stitch_run_overtakes(run, other);
  return holds ? run->suf < other->suf : run->suf > other->suf;
}

// NULL if no run has a `suf`. The handle in which the view begins cannot end it as well; its other handles
// were wholly free and end no run.
static const tide__stitch_run* stitch_find_end(const stitch_work* work) {
  const tide__stitch_problem* const problem = work->problem;
  const tide__stitch_run* best = NULL;
  for (size_t i = 0; i < problem->run_count; i++) {
    const tide__stitch_run* const run = &problem->runs[i];
    if (run->suf == 0) continue;
    if (work->start != NULL && stitch_end_handle(run) == work->start->first) continue;
    if (best == NULL || stitch_run_ends_better(run, best, work->missing)) best = run;
  }
  return best;
}

// May new handles for so many bytes be created although a wholly free one is left?
static bool stitch_may_create(const tide__stitch_problem* problem, uint64_t bytes) {
  return bytes <= problem->growth_left / problem->granularity * problem->granularity;
}

static uint64_t stitch_new_bytes(const tide__stitch_problem* problem, uint64_t missing) {
  if (missing >= problem->handle_bytes) return problem->handle_bytes;
  return (missing / problem->granularity + (missing % problem->granularity != 0)) * problem->granularity;
}

// Creates what `end` does not hold, and puts that behind it if rounding up has not covered it. NULL: no end.
static tide_status stitch_create(stitch_work* work, const tide__stitch_run* end) {
  const uint64_t end_bytes = end != NULL ? end->suf : 0;
  while (work->missing > end_bytes) {
    const uint64_t bytes = stitch_new_bytes(work->problem, work->missing - end_bytes);
    TIDE_TRY(stitch_append(work, TIDE__STITCH_NEW, bytes, bytes));
    work->plan.created += bytes;
  }
  if (end == NULL || work->missing == 0) return TIDE_OK;
  return stitch_append_old(work, stitch_end_handle(end), end_bytes);
}

static tide_status stitch_finish(stitch_work* work) {
  const tide__stitch_problem* const problem = work->problem;
  const tide__stitch_run* end = stitch_find_end(work);
  if (end != NULL && end->suf >= work->missing) {
    return stitch_append_old(work, stitch_end_handle(end), end->suf);
  }
  if (end != NULL && end->suf < problem->end_least) end = NULL;
  const uint64_t to_create = work->missing - (end != NULL ? end->suf : 0);
  if (work->spare.bytes != 0 && !stitch_may_create(problem, to_create)) {
    return stitch_append_old(work, work->spare.handle, work->spare.bytes);
  }
  return stitch_create(work, end);
}

// ---------------------------------------------------------------------------------------------------
// Plan

static tide_status stitch_compose(stitch_work* work) {
  TIDE_TRY(stitch_begin(work));
  if (work->missing != 0) TIDE_TRY(stitch_go_on(work));
  return work->missing != 0 ? stitch_finish(work) : TIDE_OK;
}

tide_status tide__stitch_plan_make(const tide__stitch_problem* problem, const tide_heap* heap,
                                   tide__stitch_plan* out) {
  TIDE_ASSERT(problem->bytes != 0 && problem->handle_count < TIDE__STITCH_NEW);
  TIDE_ASSERT(problem->handle_bytes != 0 && problem->handle_bytes % problem->granularity == 0);
  stitch_work work = { .problem = problem, .heap = heap, .missing = problem->bytes };
  const tide_status status = stitch_compose(&work);
  tide__heap_release(heap, work.wholes, work.whole_capacity, sizeof *work.wholes);
  if (status != TIDE_OK) tide__stitch_plan_free(&work.plan, heap);
  *out = work.plan;
  return status;
}

void tide__stitch_plan_free(tide__stitch_plan* plan, const tide_heap* heap) {
  tide__heap_release(heap, plan->parts, plan->capacity, sizeof *plan->parts);
  *plan = (tide__stitch_plan){ 0 };
}
