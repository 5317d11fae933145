// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// States of a search that are known to lead nowhere, by keys of 128 bits: a proof rests on them, and two
// states with one key must not happen.
#ifndef TIDEMARK_SRC_PLAN_FAILED_H
#define TIDEMARK_SRC_PLAN_FAILED_H

#include "tidemark/base.h"

typedef struct tide__key {
  uint64_t low;
  uint64_t high;
} tide__key;

typedef struct tide__failed {
  const tide_heap* heap;  // borrowed until fini
  tide__key* keys;        // owned; (0, 0) is an empty place
  size_t places;          // a power of two, or 0
  size_t count;
} tide__failed;

void tide__failed_init(tide__failed* failed, const tide_heap* heap);
void tide__failed_fini(tide__failed* failed);
void tide__failed_clear(tide__failed* failed);
bool tide__failed_has(const tide__failed* failed, tide__key key);
// Remembers a key; without memory for it, or with too many, some are forgotten.
void tide__failed_add(tide__failed* failed, tide__key key);

#endif
