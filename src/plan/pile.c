// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Each array has a header in front of it, and these make a list.
#include "plan/pile.h"

#include "base/arith.h"
#include "base/heap.h"

struct tide__pile_array {
  tide__pile_array* next;  // owned
  uint64_t bytes;          // with this header
  char padding[48];        // so that the records begin on a cache line
};

void tide__pile_init(tide__pile* pile, const tide_heap* heap) { *pile = (tide__pile){ .heap = heap }; }

void tide__pile_fini(tide__pile* pile) {
  while (pile->arrays != NULL) {
    tide__pile_array* const array = pile->arrays;
    pile->arrays = array->next;
    tide__heap_release(pile->heap, array, 1, array->bytes);
  }
  pile->is_short = false;
}

void* tide__pile_alloc(tide__pile* pile, size_t count, size_t bytes) {
  uint64_t total = 0;
  tide__pile_array* array = NULL;
  if (!pile->is_short && tide__mul(count, bytes, &total) && tide__add(total, sizeof *array, &total)) {
    array = tide__heap_alloc(pile->heap, 1, total);
  }
  if (array == NULL) {
    pile->is_short = true;
    return NULL;
  }
  *array = (tide__pile_array){ .next = pile->arrays, .bytes = total };
  pile->arrays = array;
  return array + 1;
}
