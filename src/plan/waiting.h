// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The boxes of a part that a pass has not placed yet, and the choice of the next one for a valley.
#ifndef TIDEMARK_SRC_PLAN_WAITING_H
#define TIDEMARK_SRC_PLAN_WAITING_H

#include "plan/model.h"

#define TIDE__WAITING_NONE UINT32_MAX

// A flat piece of the skyline between two higher ones.
typedef struct tide__valley {
  uint32_t first;      // sections, counted from the part's first
  uint32_t last;       // not included
  int64_t left_wall;   // how much higher the skyline is to the left; INT64_MAX at the end
  int64_t right_wall;  // and to the right
} tide__valley;

// Extra priority for a box that touches a wall.
typedef struct tide__welcome {
  float wall;   // per wall that it touches
  float flush;  // per such wall that is exactly as high as the box
} tide__welcome;

typedef struct tide__waiting tide__waiting;

tide_status tide__waiting_new(const tide__model* model, const tide__part* part, const tide_heap* heap,
                              tide__waiting** out);
void tide__waiting_free(tide__waiting* waiting);

// Starts a pass: all boxes wait, with these priorities by number in the part.
void tide__waiting_begin(tide__waiting* waiting, const float* priorities, tide__welcome welcome);
void tide__waiting_remove(tide__waiting* waiting, uint32_t box);
bool tide__waiting_has(const tide__waiting* waiting, uint32_t box);

// Returns the waiting box with the highest priority that fits wholly into the valley, and lives in
// `section` unless that is TIDE__WAITING_NONE. TIDE__WAITING_NONE: there is none.
uint32_t tide__waiting_choose(tide__waiting* waiting, const tide__valley* valley, uint32_t section);

// The sections of a box.
uint32_t tide__waiting_first(const tide__waiting* waiting, uint32_t box);
uint32_t tide__waiting_last(const tide__waiting* waiting, uint32_t box);

#endif
