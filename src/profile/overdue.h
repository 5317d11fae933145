// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Overdue requests: those that are still live in an arena although the plan has ended them. Later requests
// must not be placed over them.
#ifndef TIDEMARK_SRC_PROFILE_OVERDUE_H
#define TIDEMARK_SRC_PROFILE_OVERDUE_H

#include "base/tree.h"
#include "tidemark/base.h"

typedef struct tide__overdue {
  tide__tree_node node;  // key: the offset
  uint64_t end;
  uint32_t request;
  bool is_in;
} tide__overdue;

typedef struct tide__overdue_set {
  tide__tree tree;
  tide__overdue* by_place;  // owned; allocated for the first one
  size_t places;
  size_t count;
} tide__overdue_set;

void tide__overdue_set_fini(tide__overdue_set* overdue, const tide_heap* heap);
// Adds the request at a place of `places`; false: no memory. O(log n), as all below.
bool tide__overdue_set_add(tide__overdue_set* overdue, const tide_heap* heap, size_t places, uint32_t place,
                           tide__overdue item);
void tide__overdue_set_remove(tide__overdue_set* overdue, uint32_t place);
// Returns the place of one that overlaps [offset, offset + bytes); UINT32_MAX: none.
uint32_t tide__overdue_set_find(const tide__overdue_set* overdue, uint64_t offset, uint64_t bytes);
void tide__overdue_set_clear(tide__overdue_set* overdue);

#endif
