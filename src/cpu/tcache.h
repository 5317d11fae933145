// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The thread cache: the magazines of idle objects, the zone and the tally of one thread.
#ifndef TIDEMARK_SRC_CPU_TCACHE_H
#define TIDEMARK_SRC_CPU_TCACHE_H

#include "core/thread_cache.h"
#include "cpu/zone.h"

#define TIDE__SMALL_UNIT_SHIFT 6
#define TIDE__SMALL_MAX_BYTES TIDE_CPU_SMALL_BYTES
#define TIDE__SMALL_CLASSES 64
#define TIDE__MAGAZINE_ITEMS 64

typedef struct tide__idle_object {
  uint64_t address;
  tide__atomic_u8* mark;
} tide__idle_object;

// A stack of idle objects. Its lowest entry is a sentinel whose mark is never idle, so that an empty magazine
// needs no check of its own.
typedef struct tide__cpu_magazine {
  tide__idle_object* top;  // above the newest object
  tide__idle_object* end;  // `top` of a full magazine; above the sentinel if the cache has max_cached_bytes
  uint32_t object_bytes;
  uint32_t takes_left;  // objects that may be taken before the tally is flushed
} tide__cpu_magazine;

// What a thread has taken from zones and slabs, less what it has returned. A part of it has been added to the
// totals. Objects in the magazines count here, but are not live.
typedef struct tide__cpu_tally {
  int64_t bytes;
  int64_t blocks;
  int64_t page_bytes;      // of `bytes`, those of blocks of pages
  int64_t peak_bytes;      // of `page_bytes`, since the last flush
  int64_t flushed_bytes;   // live bytes in the totals
  int64_t flushed_blocks;  // live blocks in the totals
  uint64_t flushed_takes;  // takes from magazines in the totals
  uint64_t large_takes;    // blocks of pages handed out since the last flush
  uint64_t large_bytes;    // their bytes
  uint32_t changes;        // since the last flush
  uint32_t clock_at;       // changes at which a call for pages takes the slow path and reads the clock
  uint32_t same_ticks;     // reads of the clock since the tick changed
  uint32_t flushes;
} tide__cpu_tally;

typedef struct tide__cpu_tcache {
  tide__thread_cache base;
  tide__cpu_magazine magazines[TIDE__SMALL_CLASSES];
  tide__cpu_tally tally;
  tide__zone zone;
  uint64_t takes_seen;      // by the last sweep
  tide__atomic_u8 no_mark;  // of the sentinels
  tide__idle_object objects[TIDE__SMALL_CLASSES][1 + TIDE__MAGAZINE_ITEMS];
} tide__cpu_tcache;

static inline uint32_t tide__cpu_magazine_count(const tide__cpu_tcache* tcache, uint32_t class_number) {
  return (uint32_t)(tcache->magazines[class_number].top - tcache->objects[class_number]) - 1;
}

// Bytes of the idle objects in all magazines of a thread cache, which the caller has entered.
static inline uint64_t tide__cpu_magazine_bytes(const tide__cpu_tcache* tcache) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < TIDE__SMALL_CLASSES; i++) {
    bytes += (uint64_t)tide__cpu_magazine_count(tcache, i) * tcache->magazines[i].object_bytes;
  }
  return bytes;
}

// Notes that blocks of pages were handed out (`blocks` 1), taken back (-1), or changed (0).
static inline void tide__cpu_note_pages(tide__cpu_tcache* tcache, int64_t blocks, int64_t bytes) {
  tide__cpu_tally* const tally = &tcache->tally;
  tally->blocks += blocks;
  tally->bytes += bytes;
  tally->changes++;
  tally->page_bytes += bytes;
  if (bytes <= 0) return;
  tally->large_takes += (uint64_t)blocks;
  tally->large_bytes += (uint64_t)bytes;
  if (tally->page_bytes > tally->peak_bytes) tally->peak_bytes = tally->page_bytes;
}

#endif
