// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Boxes put down one by one, each where it meets none that lies there already: the way for boxes of any
// shape, and for those that must or should lie where they are told.
#ifndef TIDEMARK_SRC_PLAN_FIT_H
#define TIDEMARK_SRC_PLAN_FIT_H

#include "plan/model.h"
#include "plan/radix.h"

// Offsets a box may not have: those strictly between.
typedef struct tide__bar {
  int64_t above;
  int64_t below;
  uint32_t box;  // that bars them
} tide__bar;

typedef struct tide__fit {
  tide__scratch scratch;
  const tide__model* model;  // borrowed
  int64_t* offsets;          // of scratch; by box; -1: it does not lie there
  uint32_t* order;           // of scratch; the spans of all boxes by their first section
  uint32_t* place;           // of scratch; by span: where it stands there
  uint32_t* owner;           // of scratch; by span: its box
  uint32_t* latest;          // of scratch; a tree over that order: the latest end of spans that lie there
  uint32_t leaves;
  tide__bar* bars;  // of the last question, by rising `above`; owned
  size_t bar_capacity;
  size_t bar_count;
  tide__keyed* keys;   // owned
  tide__keyed* spare;  // owned
  size_t key_capacity;
  tide__bar* unsorted;  // owned
  size_t unsorted_capacity;
  uint64_t work;  // so far: what questions looked at
} tide__fit;

tide_status tide__fit_init(tide__fit* fit, const tide__model* model, const tide_heap* heap);
void tide__fit_fini(tide__fit* fit);

void tide__fit_put(tide__fit* fit, uint32_t box, int64_t offset);
void tide__fit_take(tide__fit* fit, uint32_t box);

// Finds what bars a box, which must not lie there, and sorts it into `bars`. O(k log k) for k boxes that it
// meets.
tide_status tide__fit_ask(tide__fit* fit, uint32_t box);
// After that: does the offset meet none?
bool tide__fit_is_free(const tide__fit* fit, int64_t offset);
// After that: the lowest offset that meets none; INT64_MAX: none.
int64_t tide__fit_lowest(const tide__fit* fit, uint32_t box);

#endif
