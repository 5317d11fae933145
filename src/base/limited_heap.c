// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// An allocation is counted before it is made, so that concurrent threads never exceed the limit together.
#include "base/limited_heap.h"

#include "base/arith.h"

static void* limited_alloc(void* user, size_t bytes, size_t alignment) {
  tide__limited_heap* const limited = user;
  const uint64_t before = tide__add_relaxed(&limited->taken, bytes);
  if (bytes > limited->limit || before > limited->limit - bytes) {
    (void)tide__add_relaxed(&limited->taken, -(uint64_t)bytes);
    tide__store_relaxed(&limited->has_refused, 1);
    return NULL;
  }
  void* const address = limited->outer->alloc(limited->outer->user, bytes, alignment);
  if (address == NULL) (void)tide__add_relaxed(&limited->taken, -(uint64_t)bytes);
  return address;
}

static void limited_release(void* user, void* address, size_t bytes) {
  tide__limited_heap* const limited = user;
  limited->outer->release(limited->outer->user, address, bytes);
  (void)tide__add_relaxed(&limited->taken, -(uint64_t)bytes);
}

void tide__limited_heap_init(tide__limited_heap* limited, const tide_heap* outer, uint64_t limit) {
  *limited = (tide__limited_heap){ .heap = { limited_alloc, limited_release, limited },
                                   .outer = outer,
                                   .limit = limit };
}

void tide__limited_heap_raise(tide__limited_heap* limited, uint64_t limit) {
  limited->limit = tide__max(limited->limit, limit);
}

bool tide__limited_heap_has_refused(const tide__limited_heap* limited) {
  return tide__load_relaxed(&limited->has_refused) != 0;
}
