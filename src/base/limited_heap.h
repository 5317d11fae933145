// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A heap with a limit. It forwards every call to another heap, counts the bytes in use, and refuses an
// allocation that would exceed the limit. Allocations have no header, so the other heap may release them as
// well.
#ifndef TIDEMARK_SRC_BASE_LIMITED_HEAP_H
#define TIDEMARK_SRC_BASE_LIMITED_HEAP_H

#include "base/atomic.h"
#include "tidemark/base.h"

// It must not move while it is in use: `heap.user` points at it.
// [H1] taken == the bytes in use; taken <= limit
typedef struct tide__limited_heap {
  tide_heap heap;          // what users allocate from
  const tide_heap* outer;  // borrowed until the last release
  tide__atomic_u64 taken;
  uint64_t limit;
  tide__atomic_u32 has_refused;  // an allocation failed because of the limit
} tide__limited_heap;

void tide__limited_heap_init(tide__limited_heap* limited, const tide_heap* outer, uint64_t limit);

// Raises the limit; a lower one has no effect.
void tide__limited_heap_raise(tide__limited_heap* limited, uint64_t limit);

bool tide__limited_heap_has_refused(const tide__limited_heap* limited);

#endif
