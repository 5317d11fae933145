// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Each array is preceded by a header; the headers form a list.
#include "base/scratch.h"

#include "base/arith.h"
#include "base/heap.h"

struct tide__scratch_array {
  tide__scratch_array* next;  // owned
  uint64_t bytes;             // with this header
  char padding[48];           // so that the array begins on a cache line
};

void tide__scratch_init(tide__scratch* scratch, const tide_heap* heap) {
  *scratch = (tide__scratch){ .heap = heap };
}

void tide__scratch_fini(tide__scratch* scratch) {
  while (scratch->arrays != NULL) {
    tide__scratch_array* const array = scratch->arrays;
    scratch->arrays = array->next;
    tide__heap_release(scratch->heap, array, 1, array->bytes);
  }
  scratch->is_short = false;
}

void* tide__scratch_alloc(tide__scratch* scratch, size_t count, size_t bytes) {
  uint64_t total = 0;
  tide__scratch_array* array = NULL;
  if (!scratch->is_short && tide__mul(count, bytes, &total) && tide__add(total, sizeof *array, &total)) {
    array = tide__heap_alloc(scratch->heap, 1, total);
  }
  if (array == NULL) {
    scratch->is_short = true;
    return NULL;
  }
  *array = (tide__scratch_array){ .next = scratch->arrays, .bytes = total };
  scratch->arrays = array;
  return array + 1;
}
