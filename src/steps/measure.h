// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// One pass over the entries: the figures of each step, and the blocks that are alive at the end by spot: what
// a block has in common with those that belong together.
#ifndef TIDEMARK_SRC_STEPS_MEASURE_H
#define TIDEMARK_SRC_STEPS_MEASURE_H

#include "base/hash_map.h"
#include "steps/steps.h"

// What the blocks of a spot have in common: the call site; or, without one, stream and size, stream and
// power of two of the size, or only the stream.
enum { TIDE__SPOT_SITE, TIDE__SPOT_SIZE, TIDE__SPOT_POWER, TIDE__SPOT_STREAM, TIDE__SPOT_LEVELS };

typedef struct tide__spot {
  uint64_t site;     // TIDE__SPOT_SITE: the call site; otherwise 0
  uint32_t longest;  // the most steps that a block lived that was freed
  uint32_t level;    // TIDE__SPOT_*
} tide__spot;

// A block that is alive after the last whole step.
typedef struct tide__survivor {
  uint64_t bytes;  // as requested
  uint64_t stream;
  uint32_t stack;
  uint32_t born;                      // number of the whole step, from 0
  uint32_t spots[TIDE__SPOT_LEVELS];  // indices + 1 by level; 0: not in one of this level
} tide__survivor;

typedef struct tide__measure {
  const tide__recorded* run;  // borrowed
  const tide__cuts* cuts;
  const tide_steps_options* options;
  tide_step* steps;  // room for all, filled in order
  size_t step_count;
  tide__spot* spots;  // owned
  size_t spot_count;
  size_t spot_room;
  tide__survivor* survivors;  // owned
  size_t survivor_count;
  size_t survivor_room;
  tide__hash_map numbers;  // from the key of a spot to its index + 1
} tide__measure;

// `steps` has room for all steps: the number of cuts + 1.
// Errors: TIDE_ERR_NO_MEMORY.
tide_status tide__measure_run(tide__measure* measure, tide_ledger* ledger);
void tide__measure_fini(tide__measure* measure);

#endif
