// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Arithmetic on sizes and addresses that reports overflow.
#ifndef TIDEMARK_SRC_BASE_ARITH_H
#define TIDEMARK_SRC_BASE_ARITH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Each writes its result and returns true, or returns false on overflow.
static inline bool tide__add(uint64_t a, uint64_t b, uint64_t* out) {
  return !__builtin_add_overflow(a, b, out);
}
static inline bool tide__mul(uint64_t a, uint64_t b, uint64_t* out) {
  return !__builtin_mul_overflow(a, b, out);
}

static inline bool tide__is_power_of_two(uint64_t n) { return n != 0 && (n & (n - 1)) == 0; }

// `unit` is a power of two.
static inline bool tide__is_aligned(uint64_t n, uint64_t unit) { return (n & (unit - 1)) == 0; }

// Rounds up to a multiple of `unit`, a power of two. Returns false on overflow.
static inline bool tide__align_up(uint64_t n, uint64_t unit, uint64_t* out) {
  if (!tide__add(n, unit - 1, out)) return false;
  *out &= ~(unit - 1);
  return true;
}

// Rounds up to a multiple of any step. Wraps around on overflow.
static inline uint64_t tide__round_up(uint64_t n, uint64_t step) { return (n + step - 1) / step * step; }

static inline uint64_t tide__min(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t tide__max(uint64_t a, uint64_t b) { return a > b ? a : b; }
// How much there is above `now`; 0: nothing.
static inline uint64_t tide__difference(uint64_t most, uint64_t now) { return most > now ? most - now : 0; }
static inline int64_t tide__signed_max(int64_t a, int64_t b) { return a > b ? a : b; }

// The largest number whose square is at most `n`.
static inline uint64_t tide__square_root(uint64_t n) {
  uint64_t root = 0;
  for (uint64_t bit = (uint64_t)1 << 31; bit != 0; bit >>= 1) {
    if ((root + bit) * (root + bit) <= n) root += bit;
  }
  return root;
}

// The greatest common divisor; gcd(0, n) is n.
static inline uint64_t tide__gcd(uint64_t a, uint64_t b) {
  while (b != 0) {
    const uint64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

// Addresses are stored as numbers.
static inline uint64_t tide__address(const void* p) { return (uint64_t)(uintptr_t)p; }
static inline void* tide__pointer(uint64_t address) { return (void*)(uintptr_t)address; }

#endif
