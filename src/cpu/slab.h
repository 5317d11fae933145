// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Slabs: pages of the common zone that are cut into objects of one size class. Magazines are refilled from
// them. An object is free in its slab, idle in a magazine, or live: see the marks in region.h.
#ifndef TIDEMARK_SRC_CPU_SLAB_H
#define TIDEMARK_SRC_CPU_SLAB_H

#include "base/lock.h"
#include "cpu/tcache.h"

#define TIDE__SLAB_MAX_OBJECTS 1024
#define TIDE__SLAB_SHIFT 40

// A record stays in its class until the cache is destroyed, because tide_cpu_find() may read the record of a
// slab that has just ended.
typedef struct tide__slab {
  tide__atomic_u64 address;
  _Atomic(tide__atomic_u8*) marks;  // borrowed; the marks of its region, from its address on
  struct tide_cpu_cache* cache;     // borrowed
  uint32_t class_number;
  uint32_t object_bytes;
  uint64_t reciprocal;  // 2^TIDE__SLAB_SHIFT / object_bytes, rounded up
  uint32_t capacity;
  uint32_t free_count;
  uint32_t stamp;           // when an object was last taken from it
  bool is_listed;           // in the list of its class
  struct tide__slab* next;  // in that list, or among spare records
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
  tide__slab* listed;  // slabs with a free object; full ones are found by address only
  tide__slab* spare;   // owned; records without pages
  uint32_t slab_pages;
  uint32_t capacity;
  uint32_t object_bytes;
  uint64_t slab_count;
} tide__slab_class;

void tide__slabs_init(tide_cpu_cache* cache);
void tide__slabs_fini(tide_cpu_cache* cache);
// Fills an empty magazine to its half. The caller has entered the thread cache. False if no slab has a free
// object.
bool tide__slabs_refill(tide_cpu_cache* cache, tide__cpu_tcache* tcache, uint32_t class_number);
// Flushes a magazine down to `left` objects. The caller has entered the thread cache.
void tide__slabs_flush(tide_cpu_cache* cache, tide__cpu_tcache* tcache, uint32_t class_number, uint32_t left);
// Tries the next way to free memory for `bytes`. `*step` is 0 at first, and counts the ways. Returns false
// when none is left.
typedef bool (*tide__recover_fn)(tide_cpu_cache* cache, uint64_t bytes, uint32_t* step);
// Adds a slab. Calls `recover` while the common zone has no pages for it. No lock is held.
tide_status tide__slabs_grow(tide_cpu_cache* cache, uint32_t class_number, tide__recover_fn recover);
// Returns one object to its slab. Callable inside a thread cache.
void tide__slabs_put(tide__slab* slab, uint32_t index);
// Turns the magazines of a thread cache on, or empties them and turns them off.
void tide__cpu_magazines_open(tide__cpu_tcache* tcache, bool is_open);
// Bytes of slabs without a used object.
uint64_t tide__slabs_cached(tide_cpu_cache* cache);
// Gives slabs without a used object back to the common zone. Callable inside a thread cache.
void tide__slabs_trim(tide_cpu_cache* cache);

#endif
