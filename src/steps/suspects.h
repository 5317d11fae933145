// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Applies the rule of leaks.h to the blocks that a measurement found alive at the end.
#ifndef TIDEMARK_SRC_STEPS_SUSPECTS_H
#define TIDEMARK_SRC_STEPS_SUSPECTS_H

#include "steps/measure.h"

typedef struct tide__suspects {
  const tide_heap* heap;  // borrowed until fini
  tide_leak* items;       // owned; most bytes per step first
  size_t count;
  size_t room;
} tide__suspects;

// Sorts the survivors of the measurement. A block counts for one leak: first for its call site, or its size;
// those that are left for wider spots.
// Errors: TIDE_ERR_NO_MEMORY.
tide_status tide__suspects_find(tide__suspects* suspects, tide__measure* measure, uint32_t steps);

#endif
