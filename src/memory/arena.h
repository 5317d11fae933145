// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Arenas that are kept from run to run. An arena is one allocation of a tide_memory. It is as large as the
// largest of the last runs needed, so that runs of changing sizes can share it, while a single large run is
// forgotten after a while.
#ifndef TIDEMARK_SRC_MEMORY_ARENA_H
#define TIDEMARK_SRC_MEMORY_ARENA_H

#include "tidemark/memory.h"

// The largest of the last `window` numbers.
typedef struct tide__recent_max {
  uint64_t* numbers;  // borrowed; a ring of `window` numbers
  uint32_t window;    // 0: no number is ever forgotten
  uint64_t count;     // of the numbers so far
  uint64_t largest;   // of all numbers so far
} tide__recent_max;

// Adds a number and returns the largest. O(window).
uint64_t tide__recent_max_add(tide__recent_max* recent, uint64_t number);

// [A1] (base == NULL) == (bytes == 0)
typedef struct tide__arena_memory {
  char* base;  // owned; NULL: none
  uint64_t bytes;
} tide__arena_memory;

// What a run needs of an arena.
typedef struct tide__arena_need {
  uint64_t bytes;      // of this run
  uint64_t most;       // of the last runs; at least `bytes`
  uint64_t alignment;  // of the base; a power of two
} tide__arena_need;

// Allocates `most` bytes, or `bytes` if there is no memory for more. 0 bytes need no memory.
// Errors: what the memory returned for `bytes`.
tide_status tide__arena_memory_alloc(tide__arena_memory* arena, const tide_memory* memory,
                                     const tide__arena_need* need);
void tide__arena_memory_release(tide__arena_memory* arena, const tide_memory* memory);

// Is it large enough for the run, and not larger than the last runs needed?
bool tide__arena_memory_fits(const tide__arena_memory* arena, const tide__arena_need* need);

// Does it contain an address?
bool tide__arena_memory_has(const tide__arena_memory* arena, const void* address);

#endif
