// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Squeaky-wheel optimisation over passes of the valley heuristic. The first passes use fixed priorities,
// later ones random priorities. Boxes that a pass left waiting where it became too high get a higher priority
// in the next pass.
#ifndef TIDEMARK_SRC_PLAN_SQUEAKY_WHEEL_H
#define TIDEMARK_SRC_PLAN_SQUEAKY_WHEEL_H

#include "plan/thread_pool.h"
#include "plan/greedy.h"

#define TIDE__SQUEAKY_WHEEL_CHAINS 4u

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

// A chain of passes. Each pass learns from the one before it.
typedef struct tide__pass_chain {
  tide__greedy* greedy;  // owned
  float* priorities;     // of scratch
  int64_t* offsets;      // of scratch; from its last pass
  tide__pass pass;       // how that ended
  uint64_t random;
  tide__mix mix;  // of its first priorities
  uint32_t idle;  // passes since its priorities were new or it found something
  uint32_t passes;
  bool is_rehearsed;  // its priorities come from a rehearsal
} tide__pass_chain;

typedef struct tide__squeaky_wheel {
  tide__scratch scratch;
  const tide__model* model;  // borrowed
  const tide__part* part;    // borrowed
  uint32_t count;
  float*
      loads;  // of scratch; by box: the highest load that it lives through, as a share of the highest of all
  float* durations;  // of scratch; by box: logarithms of its duration,
  float* heights;    // of its height,
  float* sections;   // and of its sections
  tide__pass_chain chains[TIDE__SQUEAKY_WHEEL_CHAINS];
  uint32_t chain_count;
  uint32_t rounds;   // so far
  uint32_t best;     // the chain that found the best plan
  int64_t scale;     // what caution is a share of
  int64_t height;    // of the best plan; INT64_MAX: none yet
  int64_t* offsets;  // of scratch; that plan, by number in the part
} tide__squeaky_wheel;

tide_status tide__squeaky_wheel_init(tide__squeaky_wheel* wheel, const tide__model* model,
                                     const tide__part* part, uint64_t seed, const tide_heap* heap);
void tide__squeaky_wheel_fini(tide__squeaky_wheel* wheel);

// Runs until there is a plan of at most `goal`, or for `rounds` rounds, or to the end of the budget. The very
// first pass always completes, so that there is a plan. Returns whether the plan became better.
bool tide__squeaky_wheel_run(tide__squeaky_wheel* wheel, int64_t goal, uint32_t rounds,
                             tide__thread_pool* threads, tide__budget* budget);

// Gives a chain the priorities of a mix.
void tide__squeaky_wheel_mix(const tide__squeaky_wheel* wheel, tide__pass_chain* chain, const tide__mix* mix);

// The number of rounds with fixed priorities.
uint32_t tide__squeaky_wheel_fixed_rounds(const tide__squeaky_wheel* wheel);

#endif
