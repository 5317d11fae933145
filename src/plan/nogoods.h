// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// States of a search that are known to lead nowhere, by keys of 128 bits: a proof rests on them, and two
// states with one key must not happen.
#ifndef TIDEMARK_SRC_PLAN_NOGOODS_H
#define TIDEMARK_SRC_PLAN_NOGOODS_H

#include "tidemark/base.h"

typedef struct tide__key {
  uint64_t low;
  uint64_t high;
} tide__key;

typedef struct tide__nogoods {
  const tide_heap* heap;  // borrowed until fini
  tide__key* keys;        // owned; (0, 0) is an empty place
  size_t places;          // a power of two, or 0
  size_t count;
} tide__nogoods;

void tide__nogoods_init(tide__nogoods* nogoods, const tide_heap* heap);
void tide__nogoods_fini(tide__nogoods* nogoods);
void tide__nogoods_clear(tide__nogoods* nogoods);
bool tide__nogoods_has(const tide__nogoods* nogoods, tide__key key);
// Remembers a key; without memory for it, or with too many, some are forgotten.
void tide__nogoods_add(tide__nogoods* nogoods, tide__key key);

#endif
