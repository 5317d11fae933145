// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Contradictions between fixed boxes.
#ifndef TIDEMARK_SRC_PLAN_FIXED_H
#define TIDEMARK_SRC_PLAN_FIXED_H

#include "plan/model.h"

// Finds two boxes that overlap at their fixed offsets; sets both to `count` of the model if there are none.
tide_status tide__fixed_find_pair(const tide__model* model, const tide_heap* heap, uint32_t* out_box,
                                  uint32_t* out_other);

#endif
