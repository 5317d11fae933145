// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Numbers by chance, the same on every computer.
#ifndef TIDEMARK_SRC_PLAN_CHANCE_H
#define TIDEMARK_SRC_PLAN_CHANCE_H

#include <stdint.h>

// A number that depends on every bit of `n`.
static inline uint64_t tide__mix_bits(uint64_t n) {
  n ^= n >> 33;
  n *= UINT64_C(0xff51afd7ed558ccd);
  n ^= n >> 33;
  n *= UINT64_C(0xc4ceb9fe1a85ec53);
  return n ^ n >> 33;
}

// The next number of a row, whose state may begin anywhere.
static inline uint64_t tide__chance(uint64_t* state) {
  *state += UINT64_C(0x9e3779b97f4a7c15);
  return tide__mix_bits(*state);
}

// From 0 up to 1, which it never is.
static inline float tide__chance_share(uint64_t* state) {
  return (float)(tide__chance(state) >> 40) / (float)(1 << 24);
}

#endif
