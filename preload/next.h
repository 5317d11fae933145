// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The next allocator: the functions that the program would have called without this library, those of the C
// library or of another preloaded one. Small blocks and the cache's own records come from there.
#ifndef TIDEMARK_PRELOAD_NEXT_H
#define TIDEMARK_PRELOAD_NEXT_H

#include <stdbool.h>
#include <stddef.h>

// Every function that we call: name, result, parameters.
#define PRELOAD_NEXT_MAP(X)                                            \
  X(malloc, void*, (size_t bytes))                                     \
  X(free, void, (void* address))                                       \
  X(calloc, void*, (size_t count, size_t bytes))                       \
  X(realloc, void*, (void* address, size_t bytes))                     \
  X(posix_memalign, int, (void** out, size_t alignment, size_t bytes)) \
  X(aligned_alloc, void*, (size_t alignment, size_t bytes))            \
  X(memalign, void*, (size_t alignment, size_t bytes))                 \
  X(malloc_usable_size, size_t, (void* address))

typedef struct preload_functions {
#define PRELOAD_NEXT_FIELD(name, result, parameters) result(*name) parameters;
  PRELOAD_NEXT_MAP(PRELOAD_NEXT_FIELD)
#undef PRELOAD_NEXT_FIELD
} preload_functions;

// Always callable: until the functions are found, each entry finds them first.
extern preload_functions preload_next __attribute__((visibility("hidden")));

// The lookup itself may ask for memory. It gets one of a few static pages, which are never taken back. Each
// page is aligned to its size.
#define PRELOAD_PAGE_BYTES ((size_t)4096)
bool preload_page_owns(const void* address);

#endif
