// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The rule by which growth is a leak, as a function of plain numbers; docs/leaks.md explains it.
#ifndef TIDEMARK_SRC_STEPS_LEAKS_H
#define TIDEMARK_SRC_STEPS_LEAKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Blocks of one place. Steps are counted from 0.
typedef struct tide__survival {
  uint32_t steps;          // whole steps of the recording
  uint32_t longest;        // the most steps that a block of the place lived that was freed
  const uint32_t* births;  // steps in which the blocks were allocated that are alive at the end; sorted
  size_t count;
} tide__survival;

typedef struct tide__verdict {
  bool is_leak;
  uint32_t first;  // the first birth of all
  uint32_t from;   // births from here to `to` were judged
  uint32_t to;
  uint32_t growing;  // steps with a birth among these
  uint32_t last;     // the last birth among these
  double certainty;
} tide__verdict;

tide__verdict tide__survival_judge(const tide__survival* growth);

#endif
