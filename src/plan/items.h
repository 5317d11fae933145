// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Items to place: a buffer, or all buffers that share one storage, with the bytes it uses over time.
#ifndef TIDEMARK_SRC_PLAN_ITEMS_H
#define TIDEMARK_SRC_PLAN_ITEMS_H

#include "base/scratch.h"
#include "tidemark/plan.h"

// A part of a lifetime in which an item uses its bytes [first, last), or at least `held` of them.
typedef struct tide__piece {
  uint64_t lower;
  uint64_t upper;
  uint64_t first;
  uint64_t last;
  uint64_t held;
} tide__piece;

typedef struct tide__item {
  uint64_t alignment;    // at least 1
  uint64_t offset;       // fixed, or TIDE_PLAN_ANYWHERE
  uint64_t hint;         // or TIDE_PLAN_ANYWHERE
  uint64_t bytes;        // of the largest of its buffers that ever use any
  uint32_t pool;         // or TIDE_PLAN_ANY_POOL
  uint32_t buffer;       // one of its buffers, for reports
  uint32_t offset_by;    // the buffer that must lie at `offset`
  uint32_t pool_by;      // the buffer that must lie in `pool`
  uint32_t piece;        // its first piece; pieces are sorted by time and do not overlap
  uint32_t piece_count;  // 0: it never uses any bytes
} tide__item;

typedef struct tide__items {
  tide__scratch scratch;
  tide__item* items;    // of scratch
  tide__piece* pieces;  // of scratch
  uint32_t* of_buffer;  // of scratch; the item of each buffer
  size_t count;
  tide_plan_proof proof;  // why there is no plan
} tide__items;

// Refuses an invalid problem, and converts any other to items. The caller calls fini, also after a failure.
tide_status tide__items_init(tide__items* items, const tide_plan_problem* problem, const tide_heap* heap);
void tide__items_fini(tide__items* items);

#endif
