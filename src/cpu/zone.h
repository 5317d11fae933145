// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A zone: the regions of one thread, or the common ones. A request tries the regions in the order they were
// made. Uses regions, and charges the pages it gets memory for (charge.h).
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
  uint64_t allowance;                 // cached bytes that need not be asked for: see limits.c
  tide__atomic_u32 has_remote_frees;  // others have released blocks of it
  tide__atomic_u64 remote_bytes;      // of these, if there is a limit for cached bytes
} tide__zone;

void tide__zone_init(tide__zone* zone, tide_cpu_cache* cache, struct tide__cpu_tcache* tcache);
// Locks a zone whosoever it is, for a thread that is inside no thread cache; and unlocks it.
void tide__zone_lock(tide__zone* zone);
void tide__zone_unlock(tide__zone* zone);

// A block of pages of a zone.
typedef struct tide__page_block {
  uint64_t address;
  bool is_fresh;    // it holds zeros
  bool is_refused;  // there is room, but max_bytes does not allow memory for it
} tide__page_block;

// These are called with the zone locked. Take returns false if no region has room.
bool tide__zone_take(tide__zone* zone, uint64_t pages, uint64_t alignment, tide__page_block* out);
void tide__zone_put(tide__zone* zone, tide__region* region, uint64_t page);
// The same for a block that has been idle since a tick.
void tide__zone_put_since(tide__zone* zone, tide__region* region, uint64_t page, uint32_t stamp);
bool tide__zone_resize(tide__zone* zone, tide__region* region, uint64_t page, uint64_t pages);
// Takes back what other threads have released.
void tide__zone_take_remote(tide__zone* zone);
static inline void tide__zone_drain(tide__zone* zone) {
  if (tide__load_relaxed(&zone->has_remote_frees) != 0) tide__zone_take_remote(zone);
}
// Leaves a block for its zone, from any thread that is not inside that zone. The block is LEAVING.
void tide__zone_free_remote(tide__zone* zone, tide__region* region, uint64_t page);

// These are called unlocked.
// Makes room for `pages` in a zone: opens more of a region, or makes a new one.
tide_status tide__zone_grow(tide__zone* zone, uint64_t pages);
// Opens the first `pages` of a region of which `from` are open. The caller has counted one more busy block of
// it, which ends here, so that it stayed.
tide_status tide__zone_open(tide__zone* zone, tide__region* region, uint64_t from, uint64_t pages);
// A block with a region of its own, in the common zone, which goes when it is put back.
tide_status tide__zone_take_single(tide__zone* zone, uint64_t pages, uint64_t alignment,
                                   tide__page_block* out);
// Takes back a block of any zone.
void tide__zone_put_back(tide__zone* zone, tide__region* region, uint64_t page);
// The same, and its memory goes back to the system.
void tide__zone_forget(tide__zone* zone, tide__region* region, uint64_t page);
// Gives idle memory back, what is longest idle first, until at most `bytes` of the zone are cached; never
// what became idle less than `age` ticks ago.
void tide__zone_trim(tide__zone* zone, uint64_t bytes, uint32_t age);
// Gives all regions back, used or not.
void tide__zone_fini(tide__zone* zone);

static inline uint64_t tide__zone_cached(const tide__zone* zone) {
  return zone->idle_pages << TIDE__PAGE_SHIFT;
}

#endif
