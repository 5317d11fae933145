// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Arrays that are given back together.
#ifndef TIDEMARK_SRC_PLAN_PILE_H
#define TIDEMARK_SRC_PLAN_PILE_H

#include "tidemark/base.h"

typedef struct tide__pile_array tide__pile_array;

typedef struct tide__pile {
  const tide_heap* heap;     // borrowed until fini
  tide__pile_array* arrays;  // owned
  bool is_short;             // an allocation failed: what came after it is NULL
} tide__pile;

void tide__pile_init(tide__pile* pile, const tide_heap* heap);
// Gives everything back; the pile may be used again.
void tide__pile_fini(tide__pile* pile);
// Zeroed records, or NULL; of none, an address that may not be used. So a caller may ask for many arrays and
// look at is_short once.
void* tide__pile_alloc(tide__pile* pile, size_t count, size_t bytes);

#endif
