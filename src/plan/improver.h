// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Improves the plan of one part step by step.
#ifndef TIDEMARK_SRC_PLAN_IMPROVER_H
#define TIDEMARK_SRC_PLAN_IMPROVER_H

#include "plan/solver.h"

tide_status tide__improver_new(tide__solver* solver, uint32_t part, tide__improver** out);
void tide__improver_free(tide__improver* improver);

// Tries for a while to bring the part's plan to `goal` or below. Records a better plan, a better bound, or
// that nothing is left to try.
tide_status tide__improver_step(tide__improver* improver, int64_t goal);

// Records a plan of the part, with offsets by number in the part, if it is better than the current one.
void tide__solver_note(tide__solver* solver, uint32_t part, int64_t height, const int64_t* offsets,
                       tide_plan_stage stage);

#endif
