// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Size classes: multiples of a unit up to 16 units, and above that eight classes for each doubling. So
// rounding up to a class adds at most an eighth from eight units on. Classes are numbered from 0 without a
// gap, in the order of their sizes.
#ifndef TIDEMARK_SRC_CORE_CLASSES_H
#define TIDEMARK_SRC_CORE_CLASSES_H

#include <stdint.h>

enum { TIDE__CLASS_EXACT = 16 };  // classes of one unit more each

// The class of a size whose last unit has the number `last`, below 2^60. It has no branch, because sizes are
// hard to predict.
static inline uint32_t tide__class_to(uint64_t last) {
  const uint32_t shift = 60u - (uint32_t)__builtin_clzll(last | 8);
  return shift * 8 + (uint32_t)(last >> shift);
}

// The class of `units` units, at least 1.
static inline uint32_t tide__class_of(uint64_t units) { return tide__class_to(units - 1); }

// How many units a class has.
static inline uint64_t tide__class_units(uint32_t number) {
  if (number < TIDE__CLASS_EXACT) return number + 1;
  return (uint64_t)(9 + number % 8) << (number / 8 - 1);
}

#endif
