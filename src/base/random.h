// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Pseudorandom numbers that are the same on every computer. Plans depend on these sequences, so they must
// never change. For numbers that others must not guess, use tide__sys_random().
#ifndef TIDEMARK_SRC_BASE_RANDOM_H
#define TIDEMARK_SRC_BASE_RANDOM_H

#include <stdint.h>

// Mixes the bits of `n`: every bit of the result depends on every bit of `n`, and no two numbers give the
// same result. The constants are those of MurmurHash3's 64-bit finalizer (Appleby).
static inline uint64_t tide__random_mix(uint64_t n) {
  n ^= n >> 33;
  n *= UINT64_C(0xff51afd7ed558ccd);
  n ^= n >> 33;
  n *= UINT64_C(0xc4ceb9fe1a85ec53);
  return n ^ n >> 33;
}

// The next number of a sequence. Any state is a valid seed, and the period is 2^64.
static inline uint64_t tide__random_next(uint64_t* state) {
  *state += UINT64_C(0x9e3779b97f4a7c15);
  return tide__random_mix(*state);
}

// The next number as a fraction: at least 0 and below 1.
static inline float tide__random_fraction(uint64_t* state) {
  return (float)(tide__random_next(state) >> 40) / (float)(1 << 24);
}

#endif
