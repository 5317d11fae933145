// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The exact search with restarts. Several searches with different rules take turns; each learns from its
// own failures. Short runs come before long ones.
#ifndef TIDEMARK_SRC_PLAN_EXACT_H
#define TIDEMARK_SRC_PLAN_EXACT_H

#include "plan/thread_pool.h"
#include "plan/search.h"

#define TIDE__EXACT_LANES 4u

typedef struct tide__exact {
  const tide__puzzle* puzzle;              // borrowed
  tide__search* lanes[TIDE__EXACT_LANES];  // owned
  uint64_t seed;
  uint32_t round;   // of restarts, so far
  uint32_t winner;  // the lane of the last arrangement
} tide__exact;

tide_status tide__exact_init(tide__exact* exact, const tide__puzzle* puzzle, uint64_t seed,
                             const tide_heap* heap);
void tide__exact_fini(tide__exact* exact);

// Looks for an arrangement of at most `height` bytes with about `nodes` nodes, within the budget, and
// charges the budget. The answer does not depend on the number of threads.
tide__search_answer tide__exact_run(tide__exact* exact, int64_t height, uint64_t nodes,
                                    tide__thread_pool* threads, tide__budget* budget);

// After FITS: the offset of each tile in bytes.
int64_t tide__exact_offset(const tide__exact* exact, uint32_t tile);

#endif
