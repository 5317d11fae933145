// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The valley heuristic: one pass places every box of a part.
#ifndef TIDEMARK_SRC_PLAN_GREEDY_H
#define TIDEMARK_SRC_PLAN_GREEDY_H

#include "plan/budget.h"
#include "plan/waiting.h"

typedef struct tide__greedy tide__greedy;  // opaque; the records of one thread for one part

// A box is taken as if it lived from its first section to its last and were as high as it ever is, and its
// fixed offset is not looked at.
tide_status tide__greedy_new(const tide__model* model, const tide__part* part, const tide_heap* heap,
                             tide__greedy** out);
void tide__greedy_free(tide__greedy* greedy);

typedef struct tide__pass_rules {
  const float* priorities;  // by number in the part; the highest goes first
  tide__welcome welcome;
  // A section that will become higher than this is served first: of the boxes that fit into a valley, one
  // that lives in it is taken before any other. INT64_MAX: none is.
  int64_t critical;
  int64_t limit;  // the pass is given up as soon as it is bound to exceed it; INT64_MAX: never
} tide__pass_rules;

// How a pass ended.
typedef struct tide__pass {
  int64_t height;  // INT64_MAX: it was given up
  uint32_t
      blamed;  // then the section, counted from the part's first, that would become too high; UINT32_MAX:
               // it was given up for another reason
} tide__pass;

// Makes a pass, and writes `offsets` by number in the part. It is given up when the watch says so (it may be
// NULL).
tide__pass tide__greedy_run(tide__greedy* greedy, const tide__pass_rules* rules, const tide__watch* watch,
                            int64_t* offsets);

// After a pass that was given up: has the box, by its number in the part, not been placed?
bool tide__greedy_is_left(const tide__greedy* greedy, uint32_t box);

#endif
