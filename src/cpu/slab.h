// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Slabs: pages of the common zone cut into objects of one size class, and the magazines that are filled from
// them. An object is free in its slab, idle in a magazine, or live: see the marks in region.h.
#ifndef TIDEMARK_SRC_CPU_SLAB_H
#define TIDEMARK_SRC_CPU_SLAB_H

#include "base/lock.h"
#include "cpu/tcache.h"

#define TIDE__SLAB_MAX_OBJECTS 1024
#define TIDE__SLAB_SHIFT 40

// Records stay until the cache goes, and in their class: who asks about an address that is nobody's any more
// may read one that is just used again.
typedef struct tide__slab {
  tide__atomic_u64 address;
  _Atomic(tide__atomic_u8*) marks;  // borrowed; those of its region from here on
  struct tide_cpu_cache* cache;     // borrowed
  uint32_t class_number;
  uint32_t object_bytes;
  uint64_t reciprocal;  // 2^TIDE__SLAB_SHIFT / object_bytes, rounded up
  uint32_t capacity;
  uint32_t free_count;
  uint32_t stamp;           // when an object was last taken from it
  bool is_listed;           // among those of its class that have a free object
  struct tide__slab* next;  // in that list, or among records without pages
  struct tide__slab* previous;
  uint64_t free_words[TIDE__SLAB_MAX_OBJECTS / 64];  // bits of free objects
} tide__slab;

static inline tide__atomic_u8* tide__slab_mark(const tide__slab* slab, uint32_t index) {
  return &tide__load_relaxed(&slab->marks)[((uint64_t)index * slab->object_bytes) >> TIDE__MARK_SHIFT];
}
static inline uint8_t tide__mark_idle(uint32_t class_number) { return (uint8_t)(class_number + 1); }
static inline uint8_t tide__mark_live(uint32_t class_number) {
  return (uint8_t)(TIDE__MARK_LIVE | (class_number + 1));
}

// All slabs of one size class.
typedef struct tide__slab_class {
  _Alignas(64) tide__mutex lock;
  tide__slab* listed;  // those with a free object; full ones are reached by their addresses only
  tide__slab* spare;   // owned; records without pages
  uint32_t slab_pages;
  uint32_t capacity;
  uint32_t object_bytes;
  uint64_t slab_count;
} tide__slab_class;

void tide__slabs_init(tide_cpu_cache* cache);
void tide__slabs_fini(tide_cpu_cache* cache);
// Fills a magazine that is empty to the half; the thread cache is entered. False if there is nothing to fill
// it with.
bool tide__slabs_refill(tide_cpu_cache* cache, tide__cpu_tcache* tcache, uint32_t class_number);
// Empties a magazine down to `left` objects; the thread cache is entered.
void tide__slabs_flush(tide_cpu_cache* cache, tide__cpu_tcache* tcache, uint32_t class_number, uint32_t left);
// Finds memory for `bytes` elsewhere, one way after the other: `*step` says which is next, and is 0 at first.
// Returns false when no way is left.
typedef bool (*tide__recover_fn)(tide_cpu_cache* cache, uint64_t bytes, uint32_t* step);
// Adds a slab; unlocked. Calls `recover` as long as the common zone has no pages for it.
tide_status tide__slabs_grow(tide_cpu_cache* cache, uint32_t class_number, tide__recover_fn recover);
// Puts one object back without a magazine; unlocked, or inside a thread cache.
void tide__slabs_put(tide__slab* slab, uint32_t index);
// Lets the magazines of a thread cache be used, or not: then they are empty.
void tide__cpu_magazines_open(tide__cpu_tcache* tcache, bool is_open);
// Bytes of slabs of which nothing is used.
uint64_t tide__slabs_cached(tide_cpu_cache* cache);
// Gives slabs of which nothing is used back to the common zone; unlocked, or inside a thread cache.
void tide__slabs_trim(tide_cpu_cache* cache);

#endif
