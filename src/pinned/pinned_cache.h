// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The inside of the cache of pinned memory: its structures, and every function that its files share,
// grouped by the file that has it.
//
//   tide_pinned_cache         one cache: pools, the map of addresses, waiting blocks, statistics, history
//     pool              the default one and private ones; memory never moves from one to another
//       depot           the idle blocks of a pool, by size class, each class with a lock of its own
//       segment         a pinned piece, cut into blocks of one size: one block, or a chunk of small ones
//     thread cache      of each thread: magazines of idle blocks of the default pool, and what it counted
//     waits             the blocks that wait for streams: see core/stream_waits.h
//
// A block is handed out, idle in a thread cache, idle in its segment, waiting in queues, deferred (it needs
// an event that could not be recorded yet), kept (its pool's graphs may use it), or moving in the hands of
// one thread.
//
// Locks are ranked in base/lock.h: thread cache, depot, chunks (segments, reserve), waits (queues, idle
// records),
// pools, map, totals, history. The machine is called with none of them held.
#ifndef TIDEMARK_SRC_PINNED_PINNED_CACHE_H
#define TIDEMARK_SRC_PINNED_PINNED_CACHE_H

#include "base/arith.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/list.h"
#include "base/range_allocator.h"
#include "base/slots.h"
#include "base/tree.h"
#include "core/capture.h"
#include "core/classes.h"
#include "core/thread_cache.h"
#include "core/history.h"
#include "core/magazine.h"
#include "core/map.h"
#include "core/pools.h"
#include "core/stats.h"
#include "core/stream_waits.h"
#include "tidemark/pinned.h"

#define TIDE__PIN_UNIT_SHIFT 9                        // blocks have multiples of 512 bytes
#define TIDE__PIN_CLASS_BYTES ((uint64_t)64 << 20)    // of the largest class
#define TIDE__PIN_HUGE_BYTES ((uint64_t)2 << 20)      // larger sizes are multiples of this
#define TIDE__PIN_SINGLE_BYTES ((uint64_t)32 << 10)   // classes from here on are pinned one by one
#define TIDE__PIN_MAGAZINE_BYTES ((uint64_t)2 << 20)  // larger blocks are in no thread cache
#define TIDE__PIN_MAX_REQUEST ((uint64_t)1 << 60)
#define TIDE__PIN_TALLY_CHANGES 2048  // changes a thread cache keeps to itself

enum {
  TIDE__PIN_CLASSES = 120,              // 512 bytes to 64 MiB
  TIDE__PIN_SIZED = TIDE__PIN_CLASSES,  // the class of sizes that have none
  TIDE__PIN_KINDS
};

typedef enum tide__pin_state {
  TIDE__PIN_SPARE,    // a record without memory
  TIDE__PIN_IDLE,     // in a thread cache or in its segment; also while handed out
  TIDE__PIN_WAITING,  // in queues, or deferred
  TIDE__PIN_KEPT,     // until its pool is gone
  TIDE__PIN_MOVING    // in the hands of one thread
} tide__pin_state;

struct tide__pin;
struct tide__pin_pool;

// A block. It is handed out exactly if it has a handle; until then it is its thread's who has it in hand.
typedef struct tide__pin {
  // The first cache line: all that requests, releases and announcements touch.
  _Alignas(64) tide__slot slot;
  tide__atomic_u64 address;  // may be read by who only has a number; whether it was right, the handle decides
  struct tide__pin* next;    // in whichever list it is
  _Atomic(tide__wait*) uses;         // owned; under use_word
  tide__atomic_u64 requested_bytes;  // of the last request that had it
  tide__atomic_u32 use_word;         // 0: no uses, and nobody looks at them; see pinned_use.c
  tide__atomic_u32 state;            // a tide__pin_state, while it has no handle
  tide__atomic_u32 stack;
  uint16_t class_index;
  bool is_plain;   // of the default pool
  bool is_scoped;  // handed out through a scope
  // The second.
  struct tide__pin_segment* segment;
  tide__atomic_u64 bytes;
  tide__waiter
      waiter;  // its waits while it is deferred or kept; `spare`, under use_word, while in a thread cache
  tide_stream stream;  // of the request
  int32_t device;      // of the request; -1: none
} tide__pin;

typedef enum tide__pin_source {
  TIDE__PIN_FROM_MACHINE,
  TIDE__PIN_FROM_PAGES,   // our own, registered
  TIDE__PIN_FROM_RESERVE  // a range of the reserve
} tide__pin_source;

// A piece of pinned memory.
typedef struct tide__pin_memory {
  uint64_t address;
  uint64_t bytes;
  tide__pin_source source;
} tide__pin_memory;

// A pinned piece, cut into `capacity` blocks of block_bytes each.
// [S1] idle_count blocks are in the list `idle`; it is linked in its depot exactly if that is not 0
typedef struct tide__pin_segment {
  tide__link link;           // in the depot; shared under the lock of its class, like the next four
  tide__tree_node by_bytes;  // in the depot's tree, of a size without a class
  tide__pin* idle;
  uint32_t idle_count;
  uint64_t seen_ns;  // when a look found it wholly idle, and it was not used since; 0: no look did
  tide__link all;    // of its pool; shared under the chunks lock
  struct tide__pin_pool* pool;
  tide__pin_memory memory;
  uint64_t block_bytes;
  uint32_t capacity;
  uint32_t class_index;
  uint64_t ordinal;  // segments are numbered as they are made
  uint32_t stack;
  bool is_cached;  // false: it goes back as soon as it is reusable
} tide__pin_segment;

// The idle blocks of one class, in their segments.
typedef struct tide__pin_depot_class {
  _Alignas(64) tide__mutex lock;
  tide__link parts;     // segments of which other blocks are in use
  tide__link wholes;    // those that are wholly idle; the newest first
  tide__tree by_bytes;  // these again, of sizes without a class
  // How often other threads may still be robbed of a block rather than one be pinned: once for each segment
  // that was. So what one thread has too much of is used, and threads that all need theirs get enough.
  _Atomic(int64_t) robberies;
} tide__pin_depot_class;

typedef struct tide__pin_depot {
  tide__pin_depot_class classes[TIDE__PIN_KINDS];
  // Bytes of wholly idle segments.
  tide__atomic_u64 idle_bytes;
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
  tide__pin_copy* copies;   // owned; shared under the pools lock
  tide__pin* kept;          // shared under the lock of the waits
  tide__link segments;      // shared under the chunks lock
  tide_pinned_stats stats;  // shared under the totals lock; what waits, under that lock
  tide__pin_depot depot;
} tide__pin_pool;

// What a thread cache counts until it is added to the totals: see core/stats.h.
enum { TIDE__PIN_ACTIVE, TIDE__PIN_ACTIVE_BYTES, TIDE__PIN_COUNTS };

typedef struct tide__pin_tally {
  tide__pin_pool* pool;  // whose blocks they are
  uint32_t changes;
  tide__count counts[TIDE__PIN_COUNTS];
} tide__pin_tally;

// Idle blocks of a class at hand.
typedef struct tide__pin_magazine {
  tide__magazine magazine;  // of blocks, by `next`
  int64_t active;           // handed out minus taken back by this thread
  int64_t handed_out;       // since the last reset
} tide__pin_magazine;

typedef struct tide__pin_tcache {
  tide__thread_cache base;
  tide__pin_tally tally;
  // Bytes of blocks pinned one by one that lie here, and how many of them may: part of max_cached_bytes.
  uint64_t idle_bytes;
  uint64_t room_bytes;
  tide__wait* uses;  // owned; idle ones
  uint32_t use_count;
  _Alignas(64) tide__pin_magazine magazines[TIDE__PIN_KINDS];
} tide__pin_tcache;

// Bits of `unusual`: requests are not for the short way.
enum {
  TIDE__PIN_HAS_SCOPES = 1,
  TIDE__PIN_RECORDS = 2,
  TIDE__PIN_HAS_POWERS = 4,
  TIDE__PIN_IS_INHERITED = 8  // this process is a child of the one that made the cache
};

typedef struct tide__pin_watcher {
  pthread_t thread;
  bool is_running;
  tide__atomic_u32 calls;  // rises when there is something to do
  tide__atomic_u32 is_asleep;
  tide__atomic_u32 is_ending;
  tide__atomic_u32 is_paused;  // it may not begin a look
  tide__atomic_u32 is_looking;
} tide__pin_watcher;

struct tide_pinned_cache {
  tide_machine* machine;  // borrowed until the cache is freed; NULL at its end if it could not wait
  const tide_heap* heap;  // borrowed until the cache is freed
  tide_pinned_options options;
  uint64_t page_bytes;
  uint64_t class_limit;   // requests up to this have a class
  uint64_t first_single;  // the first class whose blocks are pinned one by one
  bool is_dry;
  int device_count;
  bool has_unique_streams;  // none has the name that another had, and one that is gone may be asked about
  int device_node;          // on which memory is wanted for TIDE_NUMA_DEVICE; -1: not known
  bool has_cap;
  tide__atomic_u32 unusual;  // bits: requests must not take the short way
  tide__fork_note fork_note;
  // Of max_cached_bytes: what neither a thread cache nor the default pool's depot has. Below 0 while there is
  // too much, until the call that brought it about has given some back.
  _Atomic(int64_t) room_left;
  tide__atomic_u64 looked_ns;  // when idle memory was looked at last
  tide__atomic_u64 next_ordinal;
  tide__slots blocks;
  tide__map map;
  tide__thread_caches tcaches;
  tide__stream_waits waits;
  tide__pin_watcher watcher;

  tide__mutex chunks_lock;  // guards the lists of segments and the reserve
  tide__link refused;       // segments that could not be made, whose memory the machine would not take back
  tide__pin_memory reserve;
  bool has_reserve;
  bool is_reserve_made;          // by some thread just now
  tide__range_allocator ranges;  // of the reserve; its records are owned

  tide__mutex pools_lock;  // guards pools and scopes
  tide__pin_pool* default_pool;
  tide__pools pools;

  tide__history history;

  tide__mutex totals_lock;  // guards the statistics, but those of what waits
  tide_pinned_stats totals;
  int64_t class_blocks[TIDE__PIN_KINDS];
  int64_t class_made[TIDE__PIN_KINDS];
};

// One request on its way.
typedef struct tide__pin_request {
  tide_pinned_cache* pinned;
  tide__pin_pool* pool;
  uint64_t bytes;    // as asked for
  uint64_t rounded;  // of its block
  uint32_t class_index;
  int device;  // -1: none
  tide_stream stream;
  bool is_scoped;
  tide__call_context moment;
} tide__pin_request;

static inline uint64_t tide__pin_class_bytes(uint32_t class_index) {
  return tide__class_units(class_index) << TIDE__PIN_UNIT_SHIFT;
}
static inline uint64_t tide__pin_address(const tide__pin* block) {
  return tide__load_relaxed(&block->address);
}
static inline uint64_t tide__pin_bytes(const tide__pin* block) { return tide__load_relaxed(&block->bytes); }
// Does the block go into a thread cache when it becomes reusable?
static inline bool tide__pin_is_magazined(const tide__pin* block) {
  return block->is_plain && tide__pin_bytes(block) <= TIDE__PIN_MAGAZINE_BYTES;
}
static inline bool tide__pin_is_live(const tide__pin* block) {
  return (tide__load_acquire(&block->slot.generation) & 1u) != 0;  // pairs with tide__slots_publish
}
// Do idle blocks of a class count against max_cached_bytes while they are in a thread cache?
static inline bool tide__pin_is_capped(const tide_pinned_cache* pinned, uint32_t class_index) {
  return pinned->has_cap && class_index >= pinned->first_single;
}
// In a child of a fork, where locks may be held for ever, off the short way.
static inline bool tide__pin_is_inherited(const tide_pinned_cache* pinned) {
  return (tide__load_relaxed(&pinned->unusual) & TIDE__PIN_IS_INHERITED) != 0;
}
#define TIDE__PIN_REQUIRE_OWN(pinned, call)                     \
  TIDE_REQUIRE(!tide__pin_is_inherited(pinned), TIDE_ERR_STATE, \
               "%s: the cache is that of the process which forked this one", (call))
static inline bool tide__pin_is_recording(const tide_pinned_cache* pinned) {
  return (tide__load_relaxed(&pinned->unusual) & TIDE__PIN_RECORDS) != 0;
}

static inline struct tide__pin_pool* tide__pin_pool_of(const tide_pinned_cache* pinned,
                                                       const tide__pin* block) {
  return block->is_plain ? pinned->default_pool : block->segment->pool;
}

// --- pinned_size.c -------------------------------------------------------------------------------------
// The bytes of the block for a request and its class; false for 2^60 bytes and more.
bool tide__pin_round(const tide_pinned_cache* pinned, uint64_t bytes, uint64_t* out_rounded,
                     uint32_t* out_class);

// --- pinned_tcache.c ------------------------------------------------------------------------------------
void tide__pin_tcache_init(void* tcache, void* pinned);
static inline tide__pin_tcache* tide__pin_enter(tide_pinned_cache* pinned) {
  return tide__thread_caches_enter(&pinned->tcaches);
}
static inline void tide__pin_leave(tide__pin_tcache* tcache) { tide__thread_caches_leave(tcache); }
void tide__pin_settle_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache);
// Says whose blocks the thread cache counts now.
static inline void tide__pin_turn_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache,
                                         tide__pin_pool* pool) {
  if (tcache->tally.pool == pool) return;
  tide__pin_settle_locked(pinned, tcache);
  tcache->tally.pool = pool;
}
static inline void tide__pin_counted_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache) {
  if (++tcache->tally.changes >= TIDE__PIN_TALLY_CHANGES) tide__pin_settle_locked(pinned, tcache);
}
// Counts a block as handed out, or as not active any more. It is of the pool that the thread cache counts
// for.
static inline void tide__pin_count_out_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache,
                                              uint32_t class_index, uint64_t bytes) {
  tide__pin_magazine* const magazine = &tcache->magazines[class_index];
  magazine->active++;
  magazine->handed_out++;
  tide__count_rise(&tcache->tally.counts[TIDE__PIN_ACTIVE], 1);
  tide__count_rise(&tcache->tally.counts[TIDE__PIN_ACTIVE_BYTES], (int64_t)bytes);
  tide__pin_counted_locked(pinned, tcache);
}
static inline void tide__pin_count_back_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache,
                                               uint32_t class_index, uint64_t bytes) {
  tcache->magazines[class_index].active--;
  tide__count_fall(&tcache->tally.counts[TIDE__PIN_ACTIVE], 1);
  tide__count_fall(&tcache->tally.counts[TIDE__PIN_ACTIVE_BYTES], (int64_t)bytes);
  tide__pin_counted_locked(pinned, tcache);
}
// Takes a block of a class out of the thread cache, or fills the thread cache from the depot first; NULL if
// both have none.
tide__pin* tide__pin_tcache_take_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache,
                                        uint32_t class_index);
// Puts an idle block of the default pool into the thread cache, or from there into the depot.
void tide__pin_tcache_put_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache, tide__pin* block);
// Moves blocks of a class to the depot until `keep` are left.
void tide__pin_tcache_flush_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache, uint32_t class_index,
                                   uint32_t keep);
// Moves what all thread caches have to the depot. No thread cache is held.
void tide__pin_tcaches_flush(tide_pinned_cache* pinned);
// Moves what one thread cache has of a class to the depot; false if none has any, or if that was done often
// enough. `is_needed`: the machine has no more. No thread cache is held.
bool tide__pin_tcaches_rob(tide_pinned_cache* pinned, uint32_t class_index, bool is_needed);

// --- pinned_depot.c ------------------------------------------------------------------------------------
void tide__pin_depot_init(tide__pin_depot* depot);
// Takes up to `count` idle blocks of a class, as a list; returns how many.
uint32_t tide__pin_depot_take(tide_pinned_cache* pinned, tide__pin_pool* pool, uint32_t class_index,
                              uint32_t count, tide__pin** out);
// Takes an idle block of a size without a class: the smallest that fits and is at most an eighth larger.
tide__pin* tide__pin_depot_take_sized(tide_pinned_cache* pinned, tide__pin_pool* pool, uint64_t bytes);
// Puts a list of idle blocks of one class back into their segments.
void tide__pin_depot_put(tide_pinned_cache* pinned, tide__pin_pool* pool, uint32_t class_index,
                         tide__pin* list);
// Which wholly idle segments are taken out of a depot.
typedef struct tide__pin_pick {
  uint64_t least_bytes;  // of a block
  uint64_t keep_bytes;   // until at most these are left in the depot
  // Not 0: only those that a look found at seen_before or earlier; others are marked as seen now.
  uint64_t now_ns;
  uint64_t seen_before;
} tide__pin_pick;
// Takes wholly idle segments out, as a list by `link`; the largest classes first. Returns how many.
uint32_t tide__pin_depot_pick(tide_pinned_cache* pinned, tide__pin_pool* pool, const tide__pin_pick* pick,
                              tide__link* out);
// Puts a wholly idle segment back that was taken out.
void tide__pin_depot_restore(tide_pinned_cache* pinned, tide__pin_segment* segment);

// --- pinned_source.c: where pinned memory comes from -------------------------------------------------------
// For a pool, whose statistics count the calls of the machine.
tide_status tide__pin_memory_take(tide_pinned_cache* pinned, tide__pin_pool* pool, uint64_t bytes,
                                  tide__pin_memory* out);
tide_status tide__pin_memory_give(tide_pinned_cache* pinned, tide__pin_pool* pool,
                                  const tide__pin_memory* memory);
// Gives the reserve back, at the end.
tide_status tide__pin_reserve_end(tide_pinned_cache* pinned);

// --- pinned_reserve.c --------------------------------------------------------------------------------------
// A range of the reserve, or false.
bool tide__pin_range_take(tide_pinned_cache* pinned, uint64_t bytes, tide__pin_memory* out);
void tide__pin_range_give(tide_pinned_cache* pinned, const tide__pin_memory* memory);
// The whole of a new reserve, with a record that belongs to it from now on.
void tide__pin_range_add(tide_pinned_cache* pinned, tide__free_range* record, const tide__pin_memory* memory);
// What a piece of so many bytes takes of the reserve: whole pages.
uint64_t tide__pin_range_bytes(const tide_pinned_cache* pinned, uint64_t bytes);
void tide__pin_ranges_free(tide_pinned_cache* pinned);

// --- pinned_segment.c --------------------------------------------------------------------------------------
// Pins a segment for a request; one of its blocks is the caller's, the others are in the depot.
// `is_least`: a chunk as small as can be.
tide_status tide__pin_segment_make(const tide__pin_request* request, bool is_least, tide__pin** out);
// Gives wholly idle segments back that are in no depot, a list by `link`. What the machine refuses is in
// the depot again. Counts those that went in *out_count, and returns the first failure.
tide_status tide__pin_segments_give(tide_pinned_cache* pinned, tide__link* list, uint32_t* out_count);
tide_status tide__pin_segment_give(tide_pinned_cache* pinned, tide__pin_segment* segment);
// Tries again to give back the memory of segments that could not be made; adds to *count those that went.
tide_status tide__pin_refused_give(tide_pinned_cache* pinned, uint32_t* count);
// Forgets a segment, whatever its blocks are; at the end of a cache. Its memory is the caller's.
void tide__pin_segment_drop(tide_pinned_cache* pinned, tide__pin_segment* segment);
tide__pin* tide__pin_segment_block(tide_pinned_cache* pinned, const tide__pin_segment* segment,
                                   uint32_t index);

// --- pinned_use.c ------------------------------------------------------------------------------------------
// Gives records back that are not used any more.
void tide__pin_uses_give(tide_pinned_cache* pinned, tide__wait* list);
// Takes the spare records off blocks that leave a thread cache, a list.
void tide__pin_spares_take_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache, tide__pin* list);
// The uses of a block that was taken back; NULL: none.
tide__wait* tide__pin_uses_take(tide__pin* block);

// --- pinned_pending.c --------------------------------------------------------------------------------------
void tide__pin_pending_init(tide_pinned_cache* pinned);
// Lets a block that was taken back wait for the uses in its waiter. Never fails: what gets no event now gets
// it later.
void tide__pin_wait(tide_pinned_cache* pinned, tide__pin* block);
// Makes the blocks reusable whose work is done; or waits for all that wait now.
tide_status tide__pin_poll(tide_pinned_cache* pinned);
tide_status tide__pin_drain(tide_pinned_cache* pinned);
static inline bool tide__pin_is_waiting(tide_pinned_cache* pinned) {
  return !tide__waits_is_empty(&pinned->waits);
}

// --- pinned_release.c --------------------------------------------------------------------------------------
// Blocks that were counted as active, a list, become idle and go into the thread cache or the depot. Segments
// that are not to be cached are added to `going` instead, wholly idle and in no depot.
void tide__pin_retire(tide_pinned_cache* pinned, tide__pin* list, tide__link* going);
// The block of exactly this handle and address, or NULL. It may be over by now: the caller asks again in the
// atomic step that it does. That also orders what is read later, so nothing is ordered here.
static inline tide__pin* tide__pin_named(tide_pinned_cache* pinned, tide_block block) {
  tide__pin* const found = tide__slots_named(&pinned->blocks, block.handle);
  const bool is_it = found != NULL &&
                     tide__load_relaxed(&found->slot.generation) == (uint32_t)(block.handle >> 32) &&
                     tide__pin_address(found) == tide__address(block.address);
  return is_it ? found : NULL;
}
// The block that a caller names, with the generation of its handle; else why not.
tide_status tide__pin_name(tide_pinned_cache* pinned, const char* call, tide_block block, tide__pin** out,
                           uint32_t* out_generation);

// --- pinned_trim.c -----------------------------------------------------------------------------------------
// Looks after waiting blocks and idle memory.
tide_status tide__pin_look(tide_pinned_cache* pinned);
// Gives memory back until no more than max_cached_bytes are cached.
void tide__pin_enforce_cap(tide_pinned_cache* pinned);
static inline void tide__pin_keep_cap(tide_pinned_cache* pinned) {
  if (pinned->has_cap && tide__load_relaxed(&pinned->room_left) < 0) tide__pin_enforce_cap(pinned);
}
// Gives memory of the default pool back: wholly idle segments with blocks of at least `least_bytes`, until
// `keep_bytes` are left.
tide_status tide__pin_trim(tide_pinned_cache* pinned, uint64_t least_bytes, uint64_t keep_bytes,
                           uint32_t* out_count);

// --- pinned_pool.c -----------------------------------------------------------------------------------------
static inline tide__pin_pool* tide__pin_pool_at(tide__pool_base* base) {
  return base != NULL ? TIDE_OWNER(base, tide__pin_pool, base) : NULL;
}
// Makes the default pool; false without memory.
bool tide__pin_pools_start(tide_pinned_cache* pinned);
// What calls that name a pool ask first: is there a cache, and does it belong to this process?
static inline tide_status tide__pin_cache_check(const tide_pinned_cache* pinned, const char* call) {
  TIDE_REQUIRE(pinned != NULL, TIDE_ERR_ARGUMENT, "%s: no cache", call);
  TIDE__PIN_REQUIRE_OWN(pinned, call);
  return TIDE_OK;
}
void tide__pin_pools_fini(tide_pinned_cache* pinned);
static inline tide__pin_pool* tide__pin_pool_find(tide_pinned_cache* pinned, tide_pool number) {
  return tide__pin_pool_at(tide__pools_find(&pinned->pools, number));
}
// Sets the pool of a request if an open scope takes it. The request is then a guest there.
void tide__pin_pool_choose(tide__pin_request* request);
static inline void tide__pin_pool_leave(tide_pinned_cache* pinned, tide__pin_pool* pool) {
  tide__pools_leave(&pinned->pools, &pool->base);
}
// Gives back what pools without users have, and drops those that have nothing any more.
tide_status tide__pin_pools_empty(tide_pinned_cache* pinned);
// Notes what a captured copy reads, if a scope of the block's pool asks for it.
void tide__pin_copy_note(tide_pinned_cache* pinned, const tide__pin* block, int device, tide_stream stream,
                         const void* source, uint64_t bytes);

// --- pinned_stats.c ----------------------------------------------------------------------------------------
// Adds what all thread caches counted to the totals.
void tide__pin_totals_settle(tide_pinned_cache* pinned);
void tide__pin_totals_add(tide_pinned_cache* pinned, tide__pin_tally* tally);
void tide__pin_totals_segment(tide_pinned_cache* pinned, const tide__pin_segment* segment, bool is_made);
void tide__pin_totals_call(tide_pinned_cache* pinned, tide__pin_pool* pool, bool is_alloc, uint64_t ns);
void tide__pin_totals_count(tide_pinned_cache* pinned, tide__pin_pool* pool, size_t field_offset, int64_t n);
#define TIDE__PIN_COUNT(pinned, pool, field, n) \
  tide__pin_totals_count((pinned), (pool), offsetof(tide_pinned_stats, field), (n))

// --- pinned_history.c --------------------------------------------------------------------------------------
// The context of a call: see tide__history_context(). All 0 if nothing is recorded. With no lock held.
tide__call_context tide__pin_context_now(tide_pinned_cache* pinned, uint32_t level);
// The machine's clock; 0 if it does not tell.
uint64_t tide__pin_now(tide_pinned_cache* pinned);
// Adds an entry about a block, or about a piece of memory of a pool.
void tide__pin_history_block(tide_pinned_cache* pinned, tide_action action, const tide__call_context* context,
                             const tide__pin* block);
void tide__pin_history_add(tide_pinned_cache* pinned, tide_action action, const tide__call_context* context,
                           uint64_t address, uint64_t bytes, tide_pool pool);

// --- watcher.c: the thread that looks after the streams ----------------------------------------------------
tide_status tide__pin_watcher_start(tide_pinned_cache* pinned);
void tide__pin_watcher_stop(tide_pinned_cache* pinned);
void tide__pin_watcher_call(tide_pinned_cache* pinned);
// Keeps it from looking, and waits for the end of a look that is under way; and lets it go on.
void tide__pin_watcher_pause(tide_pinned_cache* pinned);
void tide__pin_watcher_resume(tide_pinned_cache* pinned);

#endif
