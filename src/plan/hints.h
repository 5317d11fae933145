// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Plans that leave boxes at their hints.
#ifndef TIDEMARK_SRC_PLAN_HINTS_H
#define TIDEMARK_SRC_PLAN_HINTS_H

#include "plan/solver.h"

// Places as many boxes as possible at their hints and the others around them. This is the first plan of every
// part. With `keeps_hints` it also tries to fit everything below the allowed height by moving a few boxes. If
// that succeeds, it sets solver->is_kept, and this plan is the answer.
tide_status tide__hints_run(tide__solver* solver);

#endif
