// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Records are zeroed and aligned to cache lines, so that two objects never share one.
#include "base/heap.h"

#include <stdlib.h>
#include <string.h>

#include "base/arith.h"

#define HEAP_ALIGNMENT 64u

static void* system_alloc(void* user, size_t bytes, size_t alignment) {
  (void)user;
  void* address = NULL;
  return posix_memalign(&address, alignment, bytes) == 0 ? address : NULL;
}

static void system_release(void* user, void* address, size_t bytes) {
  (void)user, (void)bytes;
  free(address);
}

const tide_heap tide__system_heap = { system_alloc, system_release, NULL };

const tide_heap* tide__heap_or_system(const tide_heap* heap) {
  return heap != NULL ? heap : &tide__system_heap;
}

bool tide__heap_is_valid(const tide_heap* heap) {
  return heap == NULL || (heap->alloc != NULL && heap->release != NULL);
}

void* tide__heap_alloc(const tide_heap* heap, size_t count, size_t bytes) {
  uint64_t total = 0;
  if (!tide__mul(count, bytes, &total) || total == 0) return NULL;
  void* address = heap->alloc(heap->user, total, HEAP_ALIGNMENT);
  if (address != NULL) memset(address, 0, total);
  return address;
}

void tide__heap_release(const tide_heap* heap, void* address, size_t count, size_t bytes) {
  if (address != NULL) heap->release(heap->user, address, count * bytes);
}

bool tide__heap_grow(const tide_heap* heap, void** array, size_t* capacity, size_t need, size_t bytes) {
  if (need <= *capacity) return true;
  const size_t wanted = need < 16 ? 16 : need + need / 2;
  void* grown = tide__heap_alloc(heap, wanted, bytes);
  if (grown == NULL) return false;
  if (*array != NULL) memcpy(grown, *array, *capacity * bytes);
  tide__heap_release(heap, *array, *capacity, bytes);
  *array = grown;
  *capacity = wanted;
  return true;
}
