// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// How high each section will become at least, while a pass goes on: what it holds in all, and what has been
// left free in it so far. Ranges are raised, and the highest section is known at any time.
#ifndef TIDEMARK_SRC_PLAN_WASTE_H
#define TIDEMARK_SRC_PLAN_WASTE_H

#include <stdint.h>

// A node's value is the highest of its children and what was added to it as a whole.
typedef struct tide__waste {
  int64_t* highest;  // borrowed; 2 * leaves; node 1 is the root
  int64_t* added;    // borrowed; leaves
  uint32_t leaves;   // a power of two, at least the sections
} tide__waste;

// Begins with a height for each section.
void tide__waste_begin(tide__waste* waste, const int64_t* heights, uint32_t sections);
// Adds to the sections [first, last). O(log n).
void tide__waste_add(tide__waste* waste, uint32_t first, uint32_t last, int64_t bytes);
static inline int64_t tide__waste_highest(const tide__waste* waste) { return waste->highest[1]; }
// The highest of the sections [first, last). O(log n).
int64_t tide__waste_highest_of(const tide__waste* waste, uint32_t first, uint32_t last);
// The highest of the sections [first, last), if it is above `height`; UINT32_MAX: none is. O(log n).
uint32_t tide__waste_find(const tide__waste* waste, uint32_t first, uint32_t last, int64_t height);
// The first section that is highest.
uint32_t tide__waste_section(const tide__waste* waste);

#endif
