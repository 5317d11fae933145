// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Inside a CPU cache. Blocks of up to 64 KiB are objects of slabs (slab.h): each thread has a magazine of
// idle ones for every size class, and behind the magazines stand the slabs, with a lock for each class.
// Larger blocks are whole pages of regions (region.h): each thread has regions of its own, its zone. Who
// releases a block of another thread's zone leaves it for that thread, which takes it back at its next call.
// One more zone, the common one, has a lock instead of a thread: slabs are cut from it, and blocks that are
// not to be kept.
//
// The thread cache of a thread (core/thread_cache.h) guards its zone and its magazines. Whoever gives memory
// back takes the blocks out under the guard, calls the system without, and then puts them back.
#ifndef TIDEMARK_SRC_CPU_CACHE_H
#define TIDEMARK_SRC_CPU_CACHE_H

#include <pthread.h>

#include "base/lock.h"
#include "core/thread_cache.h"
#include "cpu/region.h"
#include "tidemark/cpu.h"

#define TIDE__SMALL_UNIT_SHIFT 6
#define TIDE__SMALL_MAX_BYTES TIDE_CPU_SMALL_BYTES
#define TIDE__SMALL_CLASSES 64
#define TIDE__MAGAZINE_ITEMS 64
#define TIDE__CHANGES_PER_TELLING 256  // of the statistics, to the totals
#define TIDE__MANY_IN_A_TICK 16        // looks of a thread at the clock: from then on it looks
#define TIDE__CHANGES_PER_CLOCK 128    // once in so many changes
#define TIDE__TELLINGS_PER_LOOK 4      // for what has been idle for too long
#define TIDE__TAKES_PER_TELLING 1024u  // of small blocks of one class
#define TIDE__TICKS_PER_IDLE 8         // an idle time is this many ticks
#define TIDE__CPU_ALIGNMENT 64

// ---------------------------------------------------------------------------------------------------
// Zones

// [Z1] idle_pages is the sum over its regions of the pages that have memory and are not used; of a region
//      without has_purge only if none of it is used
typedef struct tide__zone {
  struct tide_cpu* cache;           // borrowed
  struct tide__cpu_tcache* tcache;  // whose it is; NULL: the common zone, with a lock
  tide__region* regions;            // owned; the first made first
  uint64_t idle_pages;
  uint64_t allowance;              // cached bytes that need not be asked for: see limits.c
  tide__atomic_u32 has_leaving;    // others have released blocks of it
  tide__atomic_u64 leaving_bytes;  // of these, if there is a limit for cached bytes
} tide__zone;

// ---------------------------------------------------------------------------------------------------
// Thread caches

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
  int64_t page_bytes;    // live bytes of blocks of pages,
  int64_t high_bytes;    // and the most they were since the totals were told
  int64_t told_bytes;    // live bytes that the totals know of,
  int64_t told_blocks;   // and blocks
  uint64_t told_takes;   // objects from magazines that the totals know of
  uint64_t large_takes;  // blocks of pages handed out since they were counted,
  uint64_t large_bytes;  // and their bytes
  uint32_t changes;      // since the totals were told
  uint32_t clock_at;     // changes at which a call for pages goes the slow way, and looks at the clock
  uint32_t same_ticks;   // looks since the tick was another one
  uint32_t tellings;
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

// ---------------------------------------------------------------------------------------------------
// Slabs

// Pages cut into objects of one size. An object is free in its slab, idle in a magazine, or live: see the
// marks in region.h.

#define TIDE__SLAB_MAX_OBJECTS 1024
#define TIDE__SLAB_SHIFT 40

// Records stay until the cache goes, and in their class: who asks about an address that is nobody's any more
// may read one that is just used again.
typedef struct tide__slab {
  tide__atomic_u64 address;
  _Atomic(tide__atomic_u8*) marks;  // borrowed; those of its region from here on
  struct tide_cpu* cache;           // borrowed
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

// ---------------------------------------------------------------------------------------------------
// The cache

typedef enum tide__cpu_counter {
#define TIDE__CPU_COUNTER_ENUM(name) TIDE__CPU_##name,
  TIDE_CPU_COUNTER_MAP(TIDE__CPU_COUNTER_ENUM)
#undef TIDE__CPU_COUNTER_ENUM
      TIDE__CPU_COUNTERS
} tide__cpu_counter;

struct tide_cpu {
  tide__thread_caches tcaches;  // first: every call reads it
  uint64_t fast_bytes;          // requests up to this size are small and not filled
  uint64_t tick_ns;             // an eighth of idle_ns; 0: time does not pass
  uint64_t fast_pages_bytes;    // and up to this size are pages that are kept and not filled
  uint64_t most_pages;          // that the computer has; no block is larger
  tide__atomic_u32 is_ending;   // its owner has freed it; blocks of it live on
  tide__atomic_u32 holds;       // threads that still use it
  tide__atomic_u32 stamp;       // ticks of the clock, as far as somebody looked
  tide_cpu_options options;
  const tide_heap* heap;
  tide__atomic_u64 max_bytes;
  tide__atomic_u64 max_cached_bytes;
  tide__atomic_u64 system_pages;
  tide__atomic_u64 address_bytes;
  tide__atomic_u64 allowance_left;  // of max_cached_bytes, what no zone has
  tide__atomic_u64 last_rebalance_ns;
  tide__atomic_u64 last_sweep;  // stamp
  tide__mutex zone_lock;        // of the common zone
  tide__zone zone;
  tide__slab_class classes[TIDE__SMALL_CLASSES];
  tide__mutex totals_lock;
  tide_stat live;  // without `freed`, which is what was allocated and is live no longer
  tide_stat live_bytes;
  int64_t live_before;  // blocks and bytes that were live at the last reset
  int64_t live_bytes_before;
  tide_stat system_bytes;
  tide__atomic_u64 counters[TIDE__CPU_COUNTERS];
  tide__atomic_u64 orphans;     // blocks that outlive the cache, when it is ending
  tide__atomic_u32 is_counted;  // how many they are is known
  pthread_t helper;
  tide__atomic_u32 helper_stop;
  bool has_helper;
  struct tide_cpu* next;  // in the list of all caches, the oldest first; shared under its lock
};

static inline void tide__cpu_count(tide_cpu* cache, tide__cpu_counter counter, uint64_t n) {
  (void)tide__add_relaxed(&cache->counters[counter], n);
}

// ---------------------------------------------------------------------------------------------------
// zone.c

void tide__zone_init(tide__zone* zone, tide_cpu* cache, tide__cpu_tcache* tcache);
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
void tide__zone_take_leaving(tide__zone* zone);
static inline void tide__zone_drain(tide__zone* zone) {
  if (tide__load_relaxed(&zone->has_leaving) != 0) tide__zone_take_leaving(zone);
}
// Leaves a block for its zone, from any thread that is not inside that zone. The block is LEAVING.
void tide__zone_leave(tide__zone* zone, tide__region* region, uint64_t page);

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

// ---------------------------------------------------------------------------------------------------
// slab.c

void tide__slabs_init(tide_cpu* cache);
void tide__slabs_fini(tide_cpu* cache);
// Fills a magazine that is empty to the half; the thread cache is entered. False if there is nothing to fill
// it with.
bool tide__slabs_refill(tide_cpu* cache, tide__cpu_tcache* tcache, uint32_t class_number);
// Empties a magazine down to `left` objects; the thread cache is entered.
void tide__slabs_flush(tide_cpu* cache, tide__cpu_tcache* tcache, uint32_t class_number, uint32_t left);
// Adds a slab; unlocked.
tide_status tide__slabs_grow(tide_cpu* cache, uint32_t class_number);
// Puts one object back without a magazine; unlocked, or inside a tcache.
void tide__slabs_put(tide__slab* slab, uint32_t index);
// Lets the magazines of a thread cache be used, or not: then they are empty.
void tide__cpu_magazines_open(tide__cpu_tcache* tcache, bool is_open);
// Bytes of slabs of which nothing is used.
uint64_t tide__slabs_cached(tide_cpu* cache);
// Gives slabs of which nothing is used back to the common zone; unlocked, or inside a tcache.
void tide__slabs_trim(tide_cpu* cache);

// ---------------------------------------------------------------------------------------------------
// limits.c: limits, age, and want of memory. All are called unlocked.

// After a call that released: is the zone within its allowance?
void tide__cpu_enforce(tide_cpu* cache, tide__zone* zone);
// Now and then: looks at the clock, and gives back what has been idle for too long.
void tide__cpu_look(tide_cpu* cache);
void tide__cpu_sweep(tide_cpu* cache, uint32_t age);
// The stamp of now, which is the cache's from now on.
uint32_t tide__cpu_now(tide_cpu* cache);
void tide__cpu_trim(tide_cpu* cache, uint64_t bytes);
uint64_t tide__cpu_cached(tide_cpu* cache);
// Finds memory for `bytes` elsewhere, one way after the other: `*step` says which is next, and is 0 at first.
// False when there is none left.
bool tide__cpu_recover(tide_cpu* cache, uint64_t bytes, uint32_t* step);
// Counts pages that get memory, or refuses them; and pages that lose it.
bool tide__cpu_charge(void* cache, uint64_t pages);
void tide__cpu_uncharge(tide_cpu* cache, uint64_t pages);

// ---------------------------------------------------------------------------------------------------
// caches.c: all caches, forks, the end of a cache

void tide__caches_add(tide_cpu* cache);
void tide__caches_remove(tide_cpu* cache);
// The oldest cache (NULL), or the next younger than one, which is held no longer; NULL: there is none. It is
// held: it does not go before it is held no longer.
tide_cpu* tide__caches_hold_next(tide_cpu* cache);

// Takes a block back whose cache has ended.
tide_status tide__orphan_release(tide__region* region, uint64_t address);

// Keeps a cache from going, for a thread that is inside a thread cache of it, or holds it already.
static inline void tide__cpu_hold(tide_cpu* cache) { (void)tide__add_seq(&cache->holds, 1); }
static inline void tide__cpu_drop(tide_cpu* cache) { (void)tide__sub_seq(&cache->holds, 1); }

// cpu.c
// Fills memory that is handed out; what is fresh holds zeros already.
void tide__cpu_fill(tide_fill fill, void* address, uint64_t bytes, bool is_fresh);
// Takes a block back without the calling thread's thread cache: slower.
typedef enum tide__release_how {
  TIDE__RELEASE_FORGET,  // its memory goes back to the system
  TIDE__RELEASE_ORPHAN   // its cache is ending: the statistics, which nobody asks for now, stay as they are
} tide__release_how;
tide_status tide__cpu_release_slowly(tide__region* region, uint64_t address, tide__release_how how);
void tide__cpu_stop_helper(tide_cpu* cache);
tide_status tide__cpu_start_helper(tide_cpu* cache);

// cpu_stats.c: all but the first with the thread cache entered
// Counts the end of a block for no tcache.
void tide__cpu_count_release(tide_cpu* cache, uint64_t bytes);
// Tells the totals.
void tide__cpu_tell(tide_cpu* cache, tide__cpu_tcache* tcache);
uint64_t tide__cpu_magazine_bytes(const tide__cpu_tcache* tcache);

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
  if (tally->page_bytes > tally->high_bytes) tally->high_bytes = tally->page_bytes;
}

#endif
