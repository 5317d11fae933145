// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Plans that leave boxes where their hints are.
#ifndef TIDEMARK_SRC_PLAN_KEEP_H
#define TIDEMARK_SRC_PLAN_KEEP_H

#include "plan/solver.h"

// Puts as many boxes as fit at their hints and the others beside them, as first plans of all parts. If hints
// are to be kept, and everything finds a place below the height that may be used by moving some boxes,
// solver->is_kept says that this is the plan.
tide_status tide__keep_run(tide__solver* solver);

#endif
