// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Makes the plan of one part better, step by step.
#ifndef TIDEMARK_SRC_PLAN_IMPROVER_H
#define TIDEMARK_SRC_PLAN_IMPROVER_H

#include "plan/solver.h"

tide_status tide__improver_new(tide__solver* solver, uint32_t part, tide__improver** out);
void tide__improver_free(tide__improver* improver);

// Works for a while on getting the part's plan to `goal` or below, and notes a better plan, a better bound,
// or that nothing is left to try.
tide_status tide__improver_step(tide__improver* improver, int64_t goal);

// Writes the offsets of a plan of the part, by number in the part, if it is better than the one there is.
void tide__solver_note(tide__solver* solver, uint32_t part, int64_t height, const int64_t* offsets,
                       tide_plan_stage stage);

#endif
