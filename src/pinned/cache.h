// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The structures of the cache of pinned memory, and the small questions about them. All rooms may use them.
//
//   tide_pinned_cache   one cache: pools, the address map, waiting blocks, statistics, history
//     pool              the default pool and private ones; memory never moves from one to another
//       depot           the idle blocks of a pool by size class; each class has its own lock
//       segment         pinned memory cut into blocks of one size: a single block, or a chunk of small ones
//     thread cache      magazines of idle blocks of the default pool, and what the thread has counted
//     waits             blocks that wait for streams: see core/stream_waits.h
//
// A block is in exactly one of these places: handed out, idle in a thread cache, idle in its segment, waiting
// in the queues of streams, deferred because an event could not be recorded yet, or kept because graphs of
// its pool may use it. While it moves between them, exactly one thread has it.
//
// Locks, in the order of base/lock.h: thread cache, depot class, chunks (segments and reserve), waits, pools,
// map, totals, history. The machine is called with none of them held.
#ifndef TIDEMARK_SRC_PINNED_CACHE_H
#define TIDEMARK_SRC_PINNED_CACHE_H

#include "base/arith.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/list.h"
#include "base/range_allocator.h"
#include "base/slots.h"
#include "base/tree.h"
#include "core/capture.h"
#include "core/classes.h"
#include "core/history.h"
#include "core/magazine.h"
#include "core/map.h"
#include "core/pools.h"
#include "core/stats.h"
#include "core/stream_waits.h"
#include "core/thread_cache.h"
#include "monitor/monitored.h"
#include "tidemark/pinned.h"

#define TIDE__PIN_UNIT_SHIFT 9                        // block sizes are multiples of 512 bytes
#define TIDE__PIN_CLASS_BYTES ((uint64_t)64 << 20)    // of the largest class
#define TIDE__PIN_HUGE_BYTES ((uint64_t)2 << 20)      // larger sizes are multiples of this
#define TIDE__PIN_SINGLE_BYTES ((uint64_t)32 << 10)   // blocks of this size and above have their own segment
#define TIDE__PIN_MAGAZINE_BYTES ((uint64_t)2 << 20)  // larger blocks are in no thread cache
#define TIDE__PIN_MAX_REQUEST ((uint64_t)1 << 60)
#define TIDE__PIN_TALLY_CHANGES 2048  // changes that a thread cache counts before it adds them to the totals

enum {
  TIDE__PIN_CLASSES = 120,              // 512 bytes to 64 MiB
  TIDE__PIN_SIZED = TIDE__PIN_CLASSES,  // stands for all sizes that have no class
  TIDE__PIN_KINDS
};

// ---------------------------------------------------------------------------------------------------
// Blocks and segments

typedef enum tide__pin_state {
  TIDE__PIN_SPARE,    // a record without memory
  TIDE__PIN_IDLE,     // in a thread cache or in its segment; also while handed out
  TIDE__PIN_WAITING,  // in queues, or deferred
  TIDE__PIN_KEPT      // until its pool is gone
} tide__pin_state;

struct tide__pin_segment;
struct tide__pin_pool;

// A block. It is handed out exactly while it has a live handle.
typedef struct tide__pin {
  // The first cache line: everything that requests, releases and announcements touch.
  _Alignas(64) tide__slot slot;
  tide__atomic_u64 address;          // may be read through a stale handle; the generation decides afterwards
  struct tide__pin* next;            // in the list that it is in
  _Atomic(tide__wait*) uses;         // owned; under use_word
  tide__atomic_u64 requested_bytes;  // of the last request
  tide__atomic_u32 use_word;         // 0: it has no uses, and no thread looks at them; see stream/uses.c
  tide__atomic_u32 state;            // a tide__pin_state, while it has no handle
  tide__atomic_u32 stack;            // of the last request
  uint16_t class_index;
  bool is_plain;   // it belongs to the default pool
  bool is_scoped;  // it was handed out through a scope
  // The second cache line.
  struct tide__pin_segment* segment;
  tide__atomic_u64 bytes;
  tide__waiter waiter;  // `waits` while deferred or kept; `spare`, under use_word, while in a thread cache
  tide_stream stream;   // of the last request
  int32_t device;       // of the last request; -1: none
} tide__pin;

typedef enum tide__pin_source {
  TIDE__PIN_FROM_MACHINE,
  TIDE__PIN_FROM_PAGES,   // mapped by the cache and registered
  TIDE__PIN_FROM_RESERVE  // a range of the reserve
} tide__pin_source;

// Whether large segments are pages of our own by default.
typedef enum tide__pin_pages {
  TIDE__PIN_PAGES_UNUSED,    // the options or the machine exclude them
  TIDE__PIN_PAGES_TRIED,     // they are used, unless the machine refuses them
  TIDE__PIN_PAGES_REFUSED,   // the machine did, and a thread is writing down why
  TIDE__PIN_PAGES_EXPLAINED  // fallback_reason says why
} tide__pin_pages;

enum { TIDE__PIN_REASON_BYTES = 256 };

// A range of pinned memory.
typedef struct tide__pin_memory {
  uint64_t address;
  uint64_t bytes;
  tide__pin_source source;
} tide__pin_memory;

// Pinned memory cut into `capacity` blocks of block_bytes each.
// [S1] the list `idle` has idle_count blocks; the segment is linked in its depot exactly if that is not 0
typedef struct tide__pin_segment {
  tide__link link;           // in the depot; shared under the lock of its class, like the next four
  tide__tree_node by_bytes;  // in the tree of the depot, for sizes without a class
  tide__pin* idle;
  uint32_t idle_count;
  uint64_t seen_ns;  // when a sweep found it wholly idle, if it was not used since; 0: no sweep did
  tide__link all;    // in the list of its pool; shared under the chunks lock
  struct tide__pin_pool* pool;
  tide__pin_memory memory;
  uint64_t block_bytes;
  uint32_t capacity;
  uint32_t class_index;
  uint64_t ordinal;  // segments are numbered in the order in which they are made
  uint32_t stack;    // of the request that made it
  bool is_cached;    // false: it goes back to the machine as soon as it is reusable
} tide__pin_segment;

// ---------------------------------------------------------------------------------------------------
// Pools

// The idle blocks of one class, in their segments.
typedef struct tide__pin_depot_class {
  _Alignas(64) tide__mutex lock;
  tide__link parts;     // segments of which other blocks are in use
  tide__link wholes;    // wholly idle segments, the newest first
  tide__tree by_bytes;  // the same segments, for sizes without a class
  // How often blocks may still be stolen from other threads before a segment is pinned: once for each segment
  // pinned so far. So a surplus of one thread is used, but threads that need all their blocks keep them.
  _Atomic(int64_t) steals_left;
} tide__pin_depot_class;

typedef struct tide__pin_depot {
  tide__pin_depot_class classes[TIDE__PIN_KINDS];
  tide__atomic_u64 idle_bytes;  // of wholly idle segments
} tide__pin_depot;

// The bytes that a captured copy reads.
typedef struct tide__pin_copy {
  struct tide__pin_copy* next;
  const void* address;
  uint64_t bytes;
  uint64_t hash;
} tide__pin_copy;

typedef struct tide__pin_pool {
  tide__pool_base base;
  tide__pin_copy* copies;  // owned; shared under the pools lock
  tide__pin* kept;         // shared under the lock of the waits
  tide__link segments;     // shared under the chunks lock
  tide__pin_depot depot;
} tide__pin_pool;

// ---------------------------------------------------------------------------------------------------
// Thread caches

// What a thread cache counts until it is added to the totals: see core/stats.h.
enum { TIDE__PIN_ACTIVE, TIDE__PIN_ACTIVE_BYTES, TIDE__PIN_COUNTS };

typedef struct tide__pin_tally {
  uint32_t changes;
  tide__count counts[TIDE__PIN_COUNTS];
} tide__pin_tally;

// [T1] idle_bytes is the size of the blocks here that have their own segment; it never exceeds room_bytes
typedef struct tide__pin_tcache {
  tide__thread_cache base;
  tide__pin_tally tally;
  uint64_t idle_bytes;
  uint64_t room_bytes;  // its share of max_cached_bytes
  tide__wait* records;  // owned; idle wait records
  uint32_t record_count;
  _Alignas(64) tide__magazine magazines[TIDE__PIN_KINDS];  // of blocks, by `next`
} tide__pin_tcache;

// ---------------------------------------------------------------------------------------------------
// The cache

// Bits of `unusual`. While one is set, requests and releases leave the fast path.
enum {
  TIDE__PIN_HAS_SCOPES = 1,
  TIDE__PIN_RECORDS = 2,
  TIDE__PIN_HAS_POWERS = 4,
  TIDE__PIN_IS_INHERITED = 8  // this process is a child of the one that made the cache
};

typedef struct tide__pin_helper {
  pthread_t thread;
  bool is_running;
  tide__atomic_u32 calls;  // rises when there is something to do
  tide__atomic_u32 is_asleep;
  tide__atomic_u32 is_ending;
  tide__atomic_u32 is_paused;  // it must not begin a sweep
  tide__atomic_u32 is_sweeping;
} tide__pin_helper;

struct tide_pinned_cache {
  tide_machine* machine;  // borrowed until the cache is freed; NULL at its end if it could not wait
  const tide_heap* heap;  // borrowed until the cache is freed
  tide_pinned_options options;
  uint64_t page_bytes;
  uint64_t class_limit;   // requests up to this size have a class
  uint64_t first_single;  // the first class whose blocks have their own segments
  bool is_dry;
  int device_count;
  int device_node;  // the NUMA node for TIDE_NUMA_DEVICE; -1: not known
  bool has_cap;
  tide__atomic_u32 unusual;  // bits: see above
  tide__fork_note fork_note;
  // The part of max_cached_bytes that neither thread caches nor the default pool's depot use. It is below 0
  // until the call that exceeded the limit has given memory back.
  _Atomic(int64_t) room_left;
  tide__atomic_u64 swept_ns;  // when the age of idle memory was last checked
  tide__atomic_u64 next_ordinal;
  tide__slots blocks;
  tide__map map;
  tide__thread_caches tcaches;
  tide__stream_waits waits;
  tide__pin_helper helper;

  tide__mutex chunks_lock;  // guards the lists of segments and the reserve
  tide__link refused;       // segments that could not be made, and whose memory the machine did not take back
  tide__pin_memory reserve;
  bool has_reserve;
  bool is_reserve_made;                          // a thread is making it
  tide__range_allocator ranges;                  // of the reserve; its records are owned
  tide__atomic_u32 pages_state;                  // a tide__pin_pages; not under the lock
  char fallback_reason[TIDE__PIN_REASON_BYTES];  // written once, before pages_state is EXPLAINED

  tide__mutex pools_lock;  // guards pools and scopes
  tide__pin_pool* default_pool;
  tide__pools pools;

  tide__history history;

  tide__mutex totals_lock;                // guards all below, except the two statistics of waiting blocks
  tide_pinned_stats totals;               // `waiting` and `waiting_bytes` are under the lock of the waits
  int64_t class_blocks[TIDE__PIN_KINDS];  // over all pools

  tide__monitored monitored;
};

// One request.
typedef struct tide__pin_request {
  tide_pinned_cache* pinned;
  tide__pin_pool* pool;
  uint64_t bytes;    // as requested
  uint64_t rounded;  // the size of its block
  uint32_t class_index;
  int device;  // -1: none
  tide_stream stream;
  bool is_scoped;
  tide__call_context context;
} tide__pin_request;

// ---------------------------------------------------------------------------------------------------
// Questions

static inline uint64_t tide__pin_class_bytes(uint32_t class_index) {
  return tide__class_units(class_index) << TIDE__PIN_UNIT_SHIFT;
}
static inline uint64_t tide__pin_address(const tide__pin* block) {
  return tide__load_relaxed(&block->address);
}
static inline uint64_t tide__pin_bytes(const tide__pin* block) { return tide__load_relaxed(&block->bytes); }
static inline bool tide__pin_is_live(const tide__pin* block) {
  return (tide__load_acquire(&block->slot.generation) & 1u) != 0;  // pairs with tide__slots_publish
}
// Do idle blocks of a class count against max_cached_bytes while they are in a thread cache? Blocks of chunks
// do not, because their chunk cannot be given back meanwhile.
static inline bool tide__pin_is_capped(const tide_pinned_cache* pinned, uint32_t class_index) {
  return pinned->has_cap && class_index >= pinned->first_single;
}
static inline bool tide__pin_is_recording(const tide_pinned_cache* pinned) {
  return (tide__load_relaxed(&pinned->unusual) & TIDE__PIN_RECORDS) != 0;
}
// In a child of fork() a lock may never be released, so slow paths check this first.
static inline bool tide__pin_is_inherited(const tide_pinned_cache* pinned) {
  return (tide__load_relaxed(&pinned->unusual) & TIDE__PIN_IS_INHERITED) != 0;
}
#define TIDE__PIN_REQUIRE_OWN(pinned, call)                     \
  TIDE_REQUIRE(!tide__pin_is_inherited(pinned), TIDE_ERR_STATE, \
               "%s: the cache belongs to the parent process", (call))
static inline tide__pin_pool* tide__pin_pool_at(tide__pool_base* base) {
  return base != NULL ? TIDE_OWNER(base, tide__pin_pool, base) : NULL;
}
static inline tide__pin_tcache* tide__pin_enter(tide_pinned_cache* pinned) {
  return tide__thread_caches_enter(&pinned->tcaches);
}
static inline void tide__pin_leave(tide__pin_tcache* tcache) { tide__thread_caches_leave(tcache); }
// Walks over all thread caches.
static inline tide__pin_tcache* tide__pin_tcache_first(tide_pinned_cache* pinned) {
  return (tide__pin_tcache*)(void*)tide__thread_caches_first(&pinned->tcaches);
}
static inline tide__pin_tcache* tide__pin_tcache_next(const tide__pin_tcache* tcache) {
  return (tide__pin_tcache*)(void*)tcache->base.next;
}

#endif
