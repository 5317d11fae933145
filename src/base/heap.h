// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory for records: from the caller's heap, or from malloc.
#ifndef TIDEMARK_SRC_BASE_HEAP_H
#define TIDEMARK_SRC_BASE_HEAP_H

#include "tidemark/base.h"

extern const tide_heap tide__system_heap;

// `heap`, or malloc and free when it is NULL.
const tide_heap* tide__heap_or_system(const tide_heap* heap);

// True if the heap is NULL or has both functions.
bool tide__heap_is_valid(const tide_heap* heap);

// Returns `count` zeroed records of `bytes` bytes, aligned to a cache line, or NULL.
void* tide__heap_alloc(const tide_heap* heap, size_t count, size_t bytes);
// Releases them. NULL is a no-op.
void tide__heap_release(const tide_heap* heap, void* address, size_t count, size_t bytes);

// Makes room for at least `need` elements in a growing array, and keeps its contents. Returns false, with the
// array unchanged, if there is no memory.
bool tide__heap_grow(const tide_heap* heap, void** array, size_t* capacity, size_t need, size_t bytes);

#endif
