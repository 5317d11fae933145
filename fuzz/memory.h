// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory for fuzz targets: a heap that runs out, and a source that is counted and fails.
#ifndef TIDEMARK_FUZZ_MEMORY_H
#define TIDEMARK_FUZZ_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "tidemark/memory.h"

static inline void* fuzz_posix_memalign(size_t bytes, size_t alignment) {
  void* address = NULL;
  const size_t least = sizeof(void*);
  FUZZ_REQUIRE(posix_memalign(&address, alignment < least ? least : alignment, bytes) == 0);
  return address;
}

// ---------------------------------------------------------------------------------------------------
// A heap that runs out

typedef struct fuzz_heap {
  atomic_size_t blocks;
  atomic_size_t calls;
  size_t last;  // the last call that gets memory; 0: every one does
} fuzz_heap;

static inline bool fuzz_heap_has_failed(const fuzz_heap* h) { return h->last > 0 && h->calls > h->last; }

static inline void* fuzz_heap_alloc(void* user, size_t bytes, size_t alignment) {
  fuzz_heap* const h = user;
  const size_t call = atomic_fetch_add(&h->calls, 1) + 1;
  if (h->last > 0 && call > h->last) return NULL;
  (void)atomic_fetch_add(&h->blocks, 1);
  return fuzz_posix_memalign(bytes, alignment);
}

static inline void fuzz_heap_release(void* user, void* address, size_t bytes) {
  (void)bytes;
  (void)atomic_fetch_sub(&((fuzz_heap*)user)->blocks, 1);
  free(address);
}

// ---------------------------------------------------------------------------------------------------
// A source that is counted and fails

enum { FUZZ_STORE_PIECES = 256, FUZZ_DIRTY_BYTES = 1 << 17 };

typedef struct fuzz_store {
  uint8_t* pieces[FUZZ_STORE_PIECES];  // owned
  size_t sizes[FUZZ_STORE_PIECES];
  size_t count;
  size_t largest;  // that it gives
  size_t calls;
  size_t failing;  // the call that fails; 0: none
  bool has_failed;
  bool is_strict;  // memory that it did not give is never released
} fuzz_store;

static inline tide_status fuzz_store_alloc(const tide_memory* memory, size_t bytes, size_t alignment,
                                           void** out) {
  fuzz_store* const s = memory->user;
  FUZZ_REQUIRE(bytes > 0 && alignment > 0 && (alignment & (alignment - 1)) == 0);
  *out = NULL;
  s->calls++;
  if (s->calls == s->failing || bytes > s->largest || s->count == FUZZ_STORE_PIECES) {
    s->has_failed = true;
    return TIDE_ERR_NO_MEMORY;
  }
  *out = fuzz_posix_memalign(bytes, alignment);
  memset(*out, 0x5a, bytes < FUZZ_DIRTY_BYTES ? bytes : FUZZ_DIRTY_BYTES);
  s->sizes[s->count] = bytes;
  s->pieces[s->count++] = *out;
  return TIDE_OK;
}

// Refuses memory that it did not give.
static inline tide_status fuzz_store_release(const tide_memory* memory, void* address) {
  fuzz_store* const s = memory->user;
  size_t at = 0;
  FUZZ_REQUIRE(address != NULL);
  while (at < s->count && s->pieces[at] != address) at++;
  if (at == s->count) {
    FUZZ_REQUIRE(!s->is_strict);
    return TIDE_ERR_HANDLE;
  }
  free(address);
  s->pieces[at] = s->pieces[--s->count];
  s->sizes[at] = s->sizes[s->count];
  return TIDE_OK;
}

static inline bool fuzz_store_has(const fuzz_store* s, const uint8_t* address, size_t bytes) {
  for (size_t i = 0; i < s->count; i++) {
    const uintptr_t offset = (uintptr_t)address - (uintptr_t)s->pieces[i];
    if (offset < s->sizes[i] && bytes <= s->sizes[i] - offset) return true;
  }
  return false;
}

#endif
