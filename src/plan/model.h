// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// One pool as the solvers see it. Time is compressed into sections: the maximal sets of items that live
// together, in order. Two items meet if and only if they share a section.
#ifndef TIDEMARK_SRC_PLAN_MODEL_H
#define TIDEMARK_SRC_PLAN_MODEL_H

#include "plan/items.h"

// The sections [first, last) in which a box uses the bytes [bottom, top) above its offset, or at least
// `held` of them.
typedef struct tide__span {
  uint32_t first;
  uint32_t last;
  int64_t bottom;
  int64_t top;
  int64_t held;
} tide__span;

// An item of the pool that uses some bytes.
typedef struct tide__box {
  uint32_t first;       // its sections, including those between its spans
  uint32_t last;        // not included
  uint32_t span;        // its first span; they are sorted by section
  uint32_t span_count;  // at least 1
  int64_t height;       // from its offset to its end, even if all its spans are lower
  int64_t fixed;        // the fixed offset; -1: any
  int64_t hint;         // -1: none
  uint64_t alignment;   // at least 1
  uint64_t duration;    // instants from the first of its life to the last
  uint32_t item;
} tide__box;

// Boxes that share no section with other parts, and can be planned separately.
typedef struct tide__part {
  uint32_t first_box;
  uint32_t last_box;  // not included
  uint32_t first_section;
  uint32_t last_section;  // not included
  int64_t lower_bound;
} tide__part;

// Invariants: [M1] boxes are sorted by first, then last, then item. [M2] each section has a box. [M3] the
// parts cover boxes and sections in their order.
typedef struct tide__model {
  tide__scratch scratch;
  tide__box* boxes;    // of scratch
  tide__span* spans;   // of scratch
  uint64_t* instants;  // of scratch; an instant of each section
  int64_t* loads;      // of scratch; bytes that its boxes need; INT64_MAX: at least that
  tide__part* parts;   // of scratch
  uint32_t count;      // of boxes
  uint32_t span_count;
  uint32_t sections;
  uint32_t part_count;
  uint64_t grain;  // every alignment is a multiple of it
  bool has_fixed;
  bool has_hints;
  bool has_gaps;   // a box has more than one span
  bool has_holes;  // a span uses less than its top
  int64_t lower_bound;
  tide_plan_proof proof;  // of the bound
  int64_t held;           // the most bytes in use at an instant, which bounds any number of pools
  uint64_t held_at;       // that instant
} tide__model;

// Builds the model of the items in `list`.
tide_status tide__model_init(tide__model* model, const tide__items* items, const uint32_t* list, size_t count,
                             const tide_heap* heap);
void tide__model_fini(tide__model* model);

// The lowest multiple of `alignment` at or above `height`; INT64_MAX: none.
static inline int64_t tide__align_height(int64_t height, uint64_t alignment) {
  if (alignment == 1) return height;
  const uint64_t rest = (uint64_t)height % alignment;
  if (rest == 0) return height;
  const uint64_t aligned = (uint64_t)height + (alignment - rest);
  return aligned < (uint64_t)INT64_MAX ? (int64_t)aligned : INT64_MAX;
}

#endif
