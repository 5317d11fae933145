// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Passes of the valley heuristic that learn: first under some fixed priorities, then under chance, and boxes
// that were still waiting where a pass became too high go earlier in the next.
#ifndef TIDEMARK_SRC_PLAN_WHEEL_H
#define TIDEMARK_SRC_PLAN_WHEEL_H

#include "plan/crew.h"
#include "plan/greedy.h"

#define TIDE__WHEEL_SPOKES 4u

// Weights of the logarithms of duration, height and sections, and of the load; and the other rules of a pass.
typedef struct tide__mix {
  float duration;
  float height;
  float sections;
  float load;
  float wall;
  float flush;
  float caution;  // how far below the bound a section is critical, as a share of it
} tide__mix;

// A chain of passes, of which each learns from the one before.
typedef struct tide__spoke {
  tide__greedy* greedy;  // owned
  float* priorities;     // of pile
  int64_t* offsets;      // of pile; of its last pass
  tide__pass pass;       // how that ended
  uint64_t random;
  tide__mix mix;  // that its priorities began with
  uint32_t idle;  // passes since its priorities were new or it found something
  uint32_t passes;
  bool is_rehearsed;  // its priorities are those for the next pass
} tide__spoke;

typedef struct tide__wheel {
  tide__pile pile;
  const tide__model* model;  // borrowed
  const tide__part* part;    // borrowed
  uint32_t count;
  float* loads;  // of pile; by box: the highest load that it lives through, as a share of the highest of all
  float* durations;  // of pile; by box: logarithms of its duration,
  float* heights;    // of its height,
  float* sections;   // and of its sections
  tide__spoke spokes[TIDE__WHEEL_SPOKES];
  uint32_t spoke_count;
  uint32_t rounds;   // so far
  uint32_t best;     // the spoke that found the best plan
  int64_t scale;     // what caution is a share of
  int64_t height;    // of the best plan; INT64_MAX: none yet
  int64_t* offsets;  // of pile; that plan, by number in the part
} tide__wheel;

tide_status tide__wheel_init(tide__wheel* wheel, const tide__model* model, const tide__part* part,
                             uint64_t seed, const tide_heap* heap);
void tide__wheel_fini(tide__wheel* wheel);

// Turns until there is a plan of at most `goal`, or `rounds` rounds are over, or the budget is. The first
// pass of all goes on when time is over, so that there is a plan. Returns whether the plan became better.
bool tide__wheel_turn(tide__wheel* wheel, int64_t goal, uint32_t rounds, tide__crew* crew,
                      tide__budget* budget);

// Gives a spoke the priorities of a mix.
void tide__wheel_mix(const tide__wheel* wheel, tide__spoke* spoke, const tide__mix* mix);

// Rounds that the fixed priorities take.
uint32_t tide__wheel_fixed_rounds(const tide__wheel* wheel);

#endif
