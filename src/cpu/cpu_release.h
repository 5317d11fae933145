// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Claims: of several threads that release a block, one succeeds. Also refused and slow releases.
#ifndef TIDEMARK_SRC_CPU_CPU_RELEASE_H
#define TIDEMARK_SRC_CPU_CPU_RELEASE_H

#include "cpu/cache.h"

// The index of the object that begins at an address; false: none does. The lower bits of the product are
// below the reciprocal iff the offset is a multiple of the object size.
static inline bool tide__slab_index(const tide__slab* slab, uint64_t address, uint32_t* out) {
  const uint64_t product = (address - tide__load_relaxed(&slab->address)) * slab->reciprocal;
  const uint64_t index = product >> TIDE__SLAB_SHIFT;
  *out = (uint32_t)index;
  return index < slab->capacity && (product & (((uint64_t)1 << TIDE__SLAB_SHIFT) - 1)) < slab->reciprocal;
}

// Changes the mark of an object from live to idle. Returns false if it is not live.
static inline bool tide__slab_claim(tide__slab* slab, uint32_t index) {
  uint8_t live = tide__mark_live(slab->class_number);
  return atomic_compare_exchange_strong_explicit(tide__slab_mark(slab, index), &live,
                                                 tide__mark_idle(slab->class_number), memory_order_acq_rel,
                                                 memory_order_relaxed);
}

// Changes the tag of a block from LIVE to RELEASED. Returns false if it is not live.
static inline bool tide__pages_claim(tide__region* region, uint64_t page, uint64_t* out_pages) {
  uint64_t tag = tide__load_relaxed(&region->pages[page].tag);
  *out_pages = tide__tag_pages(tag);
  return tide__tag_kind(tag) == TIDE__PAGE_LIVE &&
         atomic_compare_exchange_strong_explicit(&region->pages[page].tag, &tag,
                                                 tide__tag(TIDE__PAGE_RELEASED, *out_pages, 0),
                                                 memory_order_acq_rel, memory_order_relaxed);
}

// Report a release of a block that was released already, or of an address at which no block begins. The third
// finds out which it is, for pages that could not be claimed.
tide_status tide__release_twice(tide_cpu_cache* cache, uint64_t address);
tide_status tide__release_foreign(uint64_t address);
tide_status tide__pages_refuse(const tide__region* region, uint64_t address);

typedef enum tide__release_how {
  TIDE__RELEASE_FORGET,  // give its memory back to the system
  TIDE__RELEASE_ORPHAN   // its cache is ending, and its statistics are no longer kept
} tide__release_how;
// Releases a block without the calling thread's thread cache.
tide_status tide__cpu_release_slowly(tide__region* region, uint64_t address, tide__release_how how);

#endif
