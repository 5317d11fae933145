// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What a thread has of a cache: its magazines of idle objects, its zone, and what it has counted.
#ifndef TIDEMARK_SRC_CPU_FRONT_H
#define TIDEMARK_SRC_CPU_FRONT_H

#include "core/thread_cache.h"
#include "cpu/zone.h"

#define TIDE__SMALL_UNIT_SHIFT 6
#define TIDE__SMALL_MAX_BYTES TIDE_CPU_SMALL_BYTES
#define TIDE__SMALL_CLASSES 64
#define TIDE__MAGAZINE_ITEMS 64

// An idle object, and its mark.
typedef struct tide__idle_object {
  uint64_t address;
  tide__atomic_u8* mark;
} tide__idle_object;

// A stack of idle objects. Its lowest place is never filled: it refers to a state that is not idle, so that
// who finds an object there finds none.
typedef struct tide__cpu_magazine {
  tide__idle_object* top;  // above the newest object
  tide__idle_object* end;  // nothing is put there; the lowest place, if the cache has a limit for idle memory
  uint32_t object_bytes;
  uint32_t takes_left;  // objects that may be handed out before the totals are told
} tide__cpu_magazine;

// What a thread has handed out, less what it has taken back, of which the totals know a part. What is in the
// magazines is not handed out.
typedef struct tide__cpu_tally {
  int64_t bytes;  // of blocks of pages, and of objects that came from slabs
  int64_t blocks;
  int64_t page_bytes;      // live bytes of blocks of pages,
  int64_t peak_bytes;      // and the most they were since the totals were told
  int64_t flushed_bytes;   // live bytes that the totals know of,
  int64_t flushed_blocks;  // and blocks
  uint64_t flushed_takes;  // objects from magazines that the totals know of
  uint64_t large_takes;    // blocks of pages handed out since they were counted,
  uint64_t large_bytes;    // and their bytes
  uint32_t changes;        // since the totals were told
  uint32_t clock_at;       // changes at which a call for pages goes the slow way, and looks at the clock
  uint32_t same_ticks;     // looks since the tick was another one
  uint32_t flushes;
} tide__cpu_tally;

typedef struct tide__cpu_tcache {
  tide__thread_cache base;
  tide__cpu_magazine magazines[TIDE__SMALL_CLASSES];
  tide__cpu_tally tally;
  tide__zone zone;
  uint64_t small_calls_seen;  // by the last sweep
  tide__atomic_u8 no_mark;    // that the lowest places refer to
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
