// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A scratch arena: arrays with one lifetime, released together. A caller allocates all of its arrays and
// checks `is_short` once.
#ifndef TIDEMARK_SRC_BASE_SCRATCH_H
#define TIDEMARK_SRC_BASE_SCRATCH_H

#include "tidemark/base.h"

typedef struct tide__scratch_array tide__scratch_array;

typedef struct tide__scratch {
  const tide_heap* heap;        // borrowed until fini
  tide__scratch_array* arrays;  // owned
  bool is_short;                // an allocation failed, and every later one returns NULL
} tide__scratch;

void tide__scratch_init(tide__scratch* scratch, const tide_heap* heap);
// Releases all arrays. The arena may be used again.
void tide__scratch_fini(tide__scratch* scratch);
// Returns `count` zeroed elements of `bytes` each, or NULL. The address of 0 elements must not be read.
void* tide__scratch_alloc(tide__scratch* scratch, size_t count, size_t bytes);

#endif
