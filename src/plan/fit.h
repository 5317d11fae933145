// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Places boxes one by one, each where it overlaps no placed box. It supports boxes of any shape, fixed
// offsets and hints.
#ifndef TIDEMARK_SRC_PLAN_FIT_H
#define TIDEMARK_SRC_PLAN_FIT_H

#include "plan/model.h"
#include "plan/radix.h"

// A range of offsets that a box may not have; both ends are allowed.
typedef struct tide__bar {
  int64_t above;
  int64_t below;
  uint32_t box;  // that causes it
} tide__bar;

typedef struct tide__fit {
  tide__scratch scratch;
  const tide__model* model;  // borrowed
  int64_t* offsets;          // of scratch; by box; -1: not placed
  uint32_t* order;           // of scratch; the spans of all boxes, by first section
  uint32_t* place;           // of scratch; by span: its position in `order`
  uint32_t* owner;           // of scratch; by span: its box
  uint32_t* latest;          // of scratch; a tree over `order`: the latest end of placed spans
  uint32_t leaves;
  tide__bar* bars;  // of the last query, by rising `above`; owned
  size_t bar_capacity;
  size_t bar_count;
  tide__keyed* keys;   // owned
  tide__keyed* spare;  // owned
  size_t key_capacity;
  tide__bar* unsorted;  // owned
  size_t unsorted_capacity;
  uint64_t work;  // so far: elements visited by queries
} tide__fit;

tide_status tide__fit_init(tide__fit* fit, const tide__model* model, const tide_heap* heap);
void tide__fit_fini(tide__fit* fit);

void tide__fit_put(tide__fit* fit, uint32_t box, int64_t offset);
void tide__fit_take(tide__fit* fit, uint32_t box);

// Finds the bars of a box that is not placed, and sorts them into `bars`. O(k log k) for k overlapping
// boxes.
tide_status tide__fit_ask(tide__fit* fit, uint32_t box);
// After tide__fit_ask(): is the offset free?
bool tide__fit_is_free(const tide__fit* fit, int64_t offset);
// After tide__fit_ask(): the lowest free offset; INT64_MAX: none.
int64_t tide__fit_lowest(const tide__fit* fit, uint32_t box);

#endif
