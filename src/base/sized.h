// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Public structs that begin with their size in bytes, a uint32_t, and only grow at their end. A caller that
// was built with an older header has a shorter one: what it lacks has its default, and nothing is written
// behind its end. A longer one, or one shorter than the first that ever was, is refused.
#ifndef TIDEMARK_SRC_BASE_SIZED_H
#define TIDEMARK_SRC_BASE_SIZED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// Where a field ends: the least size of a struct whose first version ended with it.
#define TIDE__END_OF(type, field) (offsetof(type, field) + sizeof(((type*)0)->field))

static inline bool tide__sized_is_known(uint32_t size, size_t bytes, size_t least) {
  return size >= least && size <= bytes;
}

// Copies the caller's struct into `own`, which has the defaults and the size of today's.
static inline bool tide__sized_in(void* own, size_t bytes, const void* theirs, size_t least) {
  uint32_t size = 0;
  memcpy(&size, theirs, sizeof size);
  if (!tide__sized_is_known(size, bytes, least)) return false;
  memcpy((char*)own + sizeof size, (const char*)theirs + sizeof size, size - sizeof size);
  return true;
}

// Copies `own` into the caller's struct, as far as that goes, whose size stays.
static inline bool tide__sized_out(const void* own, size_t bytes, void* theirs, size_t least) {
  uint32_t size = 0;
  memcpy(&size, theirs, sizeof size);
  if (!tide__sized_is_known(size, bytes, least)) return false;
  memcpy((char*)theirs + sizeof size, (const char*)own + sizeof size, size - sizeof size);
  return true;
}

#endif
