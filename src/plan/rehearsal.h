// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Short passes around one section, to find priorities with which a whole pass succeeds.
#ifndef TIDEMARK_SRC_PLAN_REHEARSAL_H
#define TIDEMARK_SRC_PLAN_REHEARSAL_H

#include "plan/squeaky_wheel.h"

// Looks for priorities with which the boxes around `section`, counted from the part's first, end at `goal` or
// below, and gives them to the first chain of the wheel for its next pass.
tide_status tide__rehearse(tide__squeaky_wheel* wheel, uint32_t section, int64_t goal,
                           tide__thread_pool* threads, tide__budget* budget, bool* out_found);

#endif
