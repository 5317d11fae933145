// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The nogood table of a search: states that have no solution. A state is known by a key of 128 bits. Proofs
// rest on the table, so the keys must be long enough that two states never share one.
#ifndef TIDEMARK_SRC_PLAN_NOGOODS_H
#define TIDEMARK_SRC_PLAN_NOGOODS_H

#include "tidemark/base.h"

typedef struct tide__key {
  uint64_t low;
  uint64_t high;
} tide__key;

typedef struct tide__nogoods {
  const tide_heap* heap;  // borrowed until fini
  tide__key* keys;        // owned; (0, 0) marks an empty slot
  size_t places;          // a power of two, or 0
  size_t count;
} tide__nogoods;

void tide__nogoods_init(tide__nogoods* nogoods, const tide_heap* heap);
void tide__nogoods_fini(tide__nogoods* nogoods);
void tide__nogoods_clear(tide__nogoods* nogoods);
bool tide__nogoods_has(const tide__nogoods* nogoods, tide__key key);
// Adds a key. If the table is full or there is no memory, it forgets other keys.
void tide__nogoods_add(tide__nogoods* nogoods, tide__key key);

#endif
