// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A heap for tests: it counts its allocations, checks each release, and can be told to fail.
#ifndef TIDEMARK_TESTS_COUNTING_HEAP_H
#define TIDEMARK_TESTS_COUNTING_HEAP_H

#include <stdatomic.h>

#include "t.h"

typedef struct counting_heap {
  tide_heap heap;
  atomic_size_t outstanding;  // bytes that are not released
  atomic_size_t allocs;       // made so far
  atomic_size_t fail_at;      // the index of the alloc that fails
  bool is_exhausted;          // all after it fail too
  atomic_bool has_failed;
} counting_heap;

static inline void* counting_alloc(void* user, size_t bytes, size_t alignment) {
  counting_heap* const h = user;
  const size_t at = atomic_fetch_add(&h->allocs, 1);
  T_CHECK(bytes != 0);
  T_CHECK(alignment != 0 && (alignment & (alignment - 1)) == 0);
  const size_t fail_at = atomic_load(&h->fail_at);
  if (at == fail_at || (h->is_exhausted && at > fail_at)) {
    atomic_store(&h->has_failed, true);
    return NULL;
  }
  const size_t head = alignment < 32 ? 32 : alignment;
  void* block = NULL;
  T_EQ(posix_memalign(&block, head, head + bytes), 0);
  uint8_t* const address = (uint8_t*)block + head;
  memcpy(address - sizeof block, &block, sizeof block);
  memcpy(address - 2 * sizeof block, &bytes, sizeof bytes);
  memset(address, 0xcd, bytes);
  atomic_fetch_add(&h->outstanding, bytes);
  return address;
}

static inline void counting_release(void* user, void* address, size_t bytes) {
  counting_heap* const h = user;
  T_CHECK(address != NULL);
  void* block = NULL;
  size_t made = 0;
  memcpy(&block, (uint8_t*)address - sizeof block, sizeof block);
  memcpy(&made, (uint8_t*)address - 2 * sizeof block, sizeof made);
  T_EQ(bytes, made);
  atomic_fetch_sub(&h->outstanding, bytes);
  free(block);
}

static inline void counting_heap_init(counting_heap* h, size_t fail_at, bool is_exhausted) {
  memset(h, 0, sizeof *h);
  h->heap = (tide_heap){ counting_alloc, counting_release, h };
  atomic_store(&h->fail_at, fail_at);
  h->is_exhausted = is_exhausted;
}

#endif
