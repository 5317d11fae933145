// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Sorting by a 64-bit key.
#ifndef TIDEMARK_SRC_PLAN_RADIX_H
#define TIDEMARK_SRC_PLAN_RADIX_H

#include <stddef.h>
#include <stdint.h>

typedef struct tide__keyed {
  uint64_t key;
  uint32_t value;
} tide__keyed;

// Sorts `items` by rising key; equal keys keep their order. `spare` has room for as many.
void tide__radix_sort(tide__keyed* items, tide__keyed* spare, size_t count);
// The approximate work of sorting `count` elements.
uint64_t tide__radix_work(size_t count);

#endif
