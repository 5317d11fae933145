// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What still lies in an arena although its time is over: later requests must not be put over it.
#ifndef TIDEMARK_SRC_PROFILE_LATES_H
#define TIDEMARK_SRC_PROFILE_LATES_H

#include "base/tree.h"
#include "tidemark/base.h"

typedef struct tide__late {
  tide__tree_node node;  // key: the offset
  uint64_t end;
  uint32_t request;
  bool is_in;
} tide__late;

typedef struct tide__lates {
  tide__tree tree;
  tide__late* by_place;  // owned; made when the first is late
  size_t places;
  size_t count;
} tide__lates;

void tide__lates_fini(tide__lates* lates, const tide_heap* heap);
// Adds what lies at a place of `places`; false: no memory. O(log n), as all below.
bool tide__lates_add(tide__lates* lates, const tide_heap* heap, size_t places, uint32_t place,
                     tide__late late);
void tide__lates_remove(tide__lates* lates, uint32_t place);
// One that reaches into [offset, offset + bytes), by its place; UINT32_MAX: none.
uint32_t tide__lates_find(const tide__lates* lates, uint64_t offset, uint64_t bytes);
void tide__lates_clear(tide__lates* lates);

#endif
