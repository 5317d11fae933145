// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A zone: the regions of one thread, or the common ones. A request tries the regions in the order they were
// made. Pages that get memory are counted against max_bytes.
#ifndef TIDEMARK_SRC_CPU_ZONE_H
#define TIDEMARK_SRC_CPU_ZONE_H

#include "cpu/region.h"
#include "tidemark/cpu.h"

// [Z1] idle_pages is the sum over its regions of the pages that have memory and are not used; of a region
//      without has_purge only if none of it is used
typedef struct tide__zone {
  struct tide_cpu_cache* cache;     // borrowed
  struct tide__cpu_tcache* tcache;  // whose it is; NULL: the common zone, with a lock
  tide__region* regions;            // owned; the first made first
  uint64_t idle_pages;
  uint64_t allowance;                 // cached bytes that it may have: see limits.c
  tide__atomic_u32 has_remote_frees;  // other threads have released blocks of it
  tide__atomic_u64 remote_bytes;      // of these blocks, if max_cached_bytes is set
} tide__zone;

void tide__zone_init(tide__zone* zone, tide_cpu_cache* cache, struct tide__cpu_tcache* tcache);
// The caller is inside no thread cache.
void tide__zone_lock(tide__zone* zone);
void tide__zone_unlock(tide__zone* zone);

// A block of pages of a zone.
typedef struct tide__page_block {
  uint64_t address;
  bool is_fresh;    // it holds zeros
  bool is_refused;  // there is room, but max_bytes does not allow memory for it
} tide__page_block;

// The following are called with the zone locked. Take returns false if no region has room.
bool tide__zone_take(tide__zone* zone, uint64_t pages, uint64_t alignment, tide__page_block* out);
// Puts back a block that has been idle since the tick `stamp`.
void tide__zone_put(tide__zone* zone, tide__region* region, uint64_t page, uint32_t stamp);
bool tide__zone_resize(tide__zone* zone, tide__region* region, uint64_t page, uint64_t pages);
// Takes in the blocks that other threads have released.
void tide__zone_take_remote(tide__zone* zone);
static inline void tide__zone_drain(tide__zone* zone) {
  if (tide__load_relaxed(&zone->has_remote_frees) != 0) tide__zone_take_remote(zone);
}

// The following are called without the lock of the zone.
// Puts a RELEASED block on the list of remote frees.
void tide__zone_free_remote(tide__zone* zone, tide__region* region, uint64_t page);
// Makes room for `pages`: opens more of a region, or makes a new one.
tide_status tide__zone_grow(tide__zone* zone, uint64_t pages);
// Opens the first `pages` of a region of which `from` are open. The caller has incremented busy_blocks to
// keep the region; this decrements it.
tide_status tide__zone_open(tide__zone* zone, tide__region* region, uint64_t from, uint64_t pages);
// Takes a block with a region of its own, in the common zone. The region is freed when the block is put back.
tide_status tide__zone_take_single(tide__zone* zone, uint64_t pages, uint64_t alignment,
                                   tide__page_block* out);
// Puts back a block of any zone.
void tide__zone_put_back(tide__zone* zone, tide__region* region, uint64_t page);
// The same, and gives its memory back to the system.
void tide__zone_forget(tide__zone* zone, tide__region* region, uint64_t page);
// Gives idle memory back until at most `bytes` of the zone are cached, what was idle longest first. Keeps
// what became idle less than `age` ticks ago.
void tide__zone_trim(tide__zone* zone, uint64_t bytes, uint32_t age);
// Gives all regions back, used or not.
void tide__zone_fini(tide__zone* zone);

static inline uint64_t tide__zone_cached(const tide__zone* zone) {
  return zone->idle_pages << TIDE__PAGE_SHIFT;
}

#endif
