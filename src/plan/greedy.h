// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The valley heuristic: one pass places every box of a part.
#ifndef TIDEMARK_SRC_PLAN_GREEDY_H
#define TIDEMARK_SRC_PLAN_GREEDY_H

#include "plan/budget.h"
#include "plan/waiting.h"

typedef struct tide__greedy tide__greedy;  // opaque; the records of one thread for one part

// A pass treats a box as if it lived from its first section to its last at its full height, and ignores its
// fixed offset.
tide_status tide__greedy_new(const tide__model* model, const tide__part* part, const tide_heap* heap,
                             tide__greedy** out);
void tide__greedy_free(tide__greedy* greedy);

typedef struct tide__pass_rules {
  const float* priorities;  // by number in the part; the highest goes first
  tide__welcome welcome;
  // A section that will become higher than this is critical: of the boxes that fit into a valley, those
  // that live in it go first. INT64_MAX: none is.
  int64_t critical;
  int64_t limit;  // the pass stops as soon as it must exceed it; INT64_MAX: never
} tide__pass_rules;

// How a pass ended.
typedef struct tide__pass {
  int64_t height;  // INT64_MAX: it stopped early
  uint32_t
      blamed;  // then the section, counted from the part's first, that would become too high; UINT32_MAX:
               // it was given up for another reason
} tide__pass;

// Runs a pass and writes `offsets` by number in the part. It stops early when the watch, which may be NULL,
// says so.
tide__pass tide__greedy_run(tide__greedy* greedy, const tide__pass_rules* rules, const tide__watch* watch,
                            int64_t* offsets);

// After a pass that stopped early: is the box, by its number in the part, not placed?
bool tide__greedy_is_left(const tide__greedy* greedy, uint32_t box);

#endif
