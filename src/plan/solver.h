// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Plans one pool: decides which solver works on which part, in which order and for how long.
#ifndef TIDEMARK_SRC_PLAN_SOLVER_H
#define TIDEMARK_SRC_PLAN_SOLVER_H

#include "plan/budget.h"
#include "plan/thread_pool.h"
#include "plan/model.h"

typedef struct tide__improver tide__improver;

typedef struct tide__part_state {
  int64_t height;  // of its plan; INT64_MAX: none
  int64_t bound;   // a lower bound of its height
  tide_plan_stage stage;
  bool is_stuck;             // no solver can improve it
  tide__improver* improver;  // owned, (optional)
} tide__part_state;

typedef struct tide__solver {
  tide__scratch scratch;
  const tide__items* items;          // borrowed
  const tide_plan_options* options;  // borrowed
  tide__budget* budget;              // borrowed
  tide__thread_pool* threads;        // borrowed
  tide__model model;
  int64_t capacity;         // TIDE_PLAN_MAX_BYTES: none
  int64_t* offsets;         // of scratch; by box; the best plan
  tide__part_state* parts;  // of scratch
  int64_t height;           // of the plan; INT64_MAX: none
  int64_t bound;
  bool is_kept;  // the plan keeps the hints, and is final
  tide_plan_verdict verdict;
  tide_plan_stage stage;
  tide_plan_proof proof;
} tide__solver;

// The input of a solver.
typedef struct tide__solver_task {
  const tide__items* items;  // borrowed, like all of this
  const uint32_t* list;      // of items, by their numbers
  size_t count;
  uint64_t capacity;
  const tide_plan_options* options;
  tide__budget* budget;
  tide__thread_pool* threads;
} tide__solver_task;

// Call fini also after a failure.
tide_status tide__solver_init(tide__solver* solver, const tide__solver_task* task, const tide_heap* heap);
tide_status tide__solver_run(tide__solver* solver);
void tide__solver_fini(tide__solver* solver);

#endif
