// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The smallest arena for a few items, by brute force. In a smallest plan, read by rising offset, each item
// lies at the lowest place above those before it that it meets, or can be moved there without growing. So
// trying all orders finds the optimum.
#ifndef TIDEMARK_TESTS_PLAN_SMALLEST_H
#define TIDEMARK_TESTS_PLAN_SMALLEST_H

#include "t.h"

#define SMALLEST_MOST 8  // items with bytes

typedef struct smallest_problem {
  size_t count;                                               // up to 64, of which some may have no bytes
  const uint64_t* bytes;                                      // items without bytes are left out
  uint64_t alignment;                                         // of all offsets
  bool (*meet)(const void* user, size_t item, size_t other);  // must they not overlap?
  const void* user;
  uint64_t ends[64];
} smallest_problem;

static inline uint64_t smallest_after(smallest_problem* s, uint64_t placed, uint64_t peak, uint64_t best) {
  bool is_complete = true;
  if (peak >= best) return best;
  for (size_t i = 0; i < s->count; i++) {
    if (s->bytes[i] == 0 || (placed >> i & 1) != 0) continue;
    uint64_t offset = 0;
    for (size_t k = 0; k < s->count; k++) {
      if ((placed >> k & 1) != 0 && s->ends[k] > offset && s->meet(s->user, i, k)) offset = s->ends[k];
    }
    offset = (offset + s->alignment - 1) / s->alignment * s->alignment;
    s->ends[i] = offset + s->bytes[i];
    best = smallest_after(s, placed | UINT64_C(1) << i, s->ends[i] > peak ? s->ends[i] : peak, best);
    is_complete = false;
  }
  return is_complete ? peak : best;
}

static inline uint64_t smallest_arena(smallest_problem* s) {
  size_t items = 0;
  for (size_t i = 0; i < s->count; i++) items += s->bytes[i] != 0;
  T_LE(s->count, 64);
  T_LE(items, SMALLEST_MOST);
  return smallest_after(s, 0, 0, UINT64_MAX);
}

#endif
