// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A magazine: idle blocks of one size class that a thread has for itself, the newest first. It is refilled
// from a depot when it is empty and flushed to it when it is full. The first refill takes one block, and each
// later one twice as many, up to half of the limit. So a thread that needs few blocks holds few.
//
// Items are linked through a field of their own; `next` is its offset. Only the thread that has the
// magazine's thread cache calls these functions; others may look whether `head` is NULL.
#ifndef TIDEMARK_SRC_CORE_MAGAZINE_H
#define TIDEMARK_SRC_CORE_MAGAZINE_H

#include <string.h>

#include "base/arith.h"
#include "base/atomic.h"

// [M1] the list from `head` has `count` items [M2] count <= limit, except for one item on its way to the
// depot
typedef struct tide__magazine {
  _Atomic(void*) head;
  uint8_t count;
  uint8_t limit;
  uint8_t fill;    // items that the last refill asked for
  uint32_t units;  // of its class, as the allocator counts sizes
} tide__magazine;

static inline void* tide__magazine_next(const void* item, size_t next) {
  void* found = NULL;
  memcpy(&found, (const char*)item + next, sizeof found);
  return found;
}

// The number of items that have most_bytes together, but at least `least`, and at most `most` and 255.
static inline void tide__magazine_init(tide__magazine* magazine, uint32_t units, uint64_t item_bytes,
                                       uint64_t most_bytes, uint32_t least, uint32_t most) {
  *magazine = (tide__magazine){ .units = units };
  magazine->limit = (uint8_t)tide__max(least, tide__min(most, most_bytes / item_bytes));
}

// Keeps the address in a register on fast paths: compilers compute it again for the atomic accesses
// otherwise.
#define TIDE__MAGAZINE_IN_REGISTER(magazine) __asm__("" : "+r"(magazine))

static inline bool tide__magazine_has_room(const tide__magazine* magazine) {
  return magazine->count < magazine->limit;
}

static inline void tide__magazine_put(tide__magazine* magazine, void* item, size_t next) {
  void* const head = tide__load_relaxed(&magazine->head);
  memcpy((char*)item + next, &head, sizeof head);
  tide__store_relaxed(&magazine->head, item);
  magazine->count++;
}

// The newest item of a magazine that is not empty.
static inline void* tide__magazine_take(tide__magazine* magazine, size_t next) {
  void* const item = tide__load_relaxed(&magazine->head);
  tide__store_relaxed(&magazine->head, tide__magazine_next(item, next));
  magazine->count--;
  return item;
}

// How many items the next refill asks for; the caller notes them in `fill`.
static inline uint32_t tide__magazine_wanted(const tide__magazine* magazine) {
  return (uint32_t)tide__max(1, tide__min((uint64_t)magazine->fill * 2, magazine->limit / 2u));
}

// Refills an empty magazine with a list of items.
static inline void tide__magazine_refill(tide__magazine* magazine, void* list, uint32_t count) {
  tide__store_relaxed(&magazine->head, list);
  magazine->count = (uint8_t)count;
}

// Removes all but the newest `keep` items and returns them as a list. There must be at least `keep` items.
static inline void* tide__magazine_cut(tide__magazine* magazine, uint32_t keep, size_t next) {
  void* list = tide__load_relaxed(&magazine->head);
  void* last = NULL;
  void* const end = NULL;
  for (uint32_t i = 0; i < keep; i++) {
    last = list;
    list = tide__magazine_next(list, next);
  }
  if (last != NULL) memcpy((char*)last + next, &end, sizeof end);
  else tide__store_relaxed(&magazine->head, end);
  magazine->count = (uint8_t)keep;
  return list;
}

#endif
