// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A natural logarithm for priorities, exact to 0.006, without the math library.
#ifndef TIDEMARK_SRC_PLAN_LOGARITHM_H
#define TIDEMARK_SRC_PLAN_LOGARITHM_H

#include <stdint.h>

// The result for 0 is that for 1. Between two powers of two it is a parabola through both ends.
static inline float tide__log(uint64_t n) {
  if (n == 0) return 0;
  const int exponent = 63 - __builtin_clzll(n);
  const uint64_t mantissa = n << (63 - exponent) << 1;
  const float part = (float)(mantissa >> 40) / (float)(1 << 24);
  return 0.69314718f * ((float)exponent + part + 0.344f * part * (1 - part));
}

#endif
