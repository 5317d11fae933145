// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Repairs a plan where it is highest: the exact search places some boxes there again, and all others stay.
#ifndef TIDEMARK_SRC_PLAN_NEIGHBOURHOOD_H
#define TIDEMARK_SRC_PLAN_NEIGHBOURHOOD_H

#include "plan/budget.h"
#include "plan/thread_pool.h"
#include "plan/model.h"
#include "plan/radix.h"

typedef struct tide__neighbourhood {
  tide__scratch scratch;
  const tide__model* model;  // borrowed
  const tide__part* part;    // borrowed
  uint32_t count;
  uint64_t random;
  uint64_t work;       // not charged yet
  uint32_t* reach;     // of scratch; by box: the latest end of all boxes up to it
  tide__keyed* keys;   // of scratch; boxes that live in the chosen sections
  tide__keyed* spare;  // of scratch
  int64_t* grounds;    // of scratch; by section of these
  uint32_t* boxes;     // of scratch; those of the neighbourhood, by their number in the model
  int64_t* fixed;      // of scratch; the offset of each, -1 for free ones
} tide__neighbourhood;

tide_status tide__neighbourhood_init(tide__neighbourhood* near, const tide__model* model,
                                     const tide__part* part, uint64_t seed, const tide_heap* heap);
void tide__neighbourhood_fini(tide__neighbourhood* near);

// Tries some neighbourhoods of boxes that end above a height between `goal` and `*height`. The offsets, by
// number in the part, stay a plan whose height is `*height`.
tide_status tide__neighbourhood_step(tide__neighbourhood* near, int64_t goal, int64_t* offsets,
                                     int64_t* height, tide__thread_pool* threads, tide__budget* budget);

#endif
