// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: cache. The types that the device cache and the pinned cache share: what a visitor sees, the
// options of a history and of a snapshot, and what observers receive. The calls are in device.h and pinned.h.
//
//   tide_history_options history = TIDE_HISTORY_OPTIONS_INIT;
//   history.max_entries = 1 << 20;
//   if (tide_device_history(device, &history) != TIDE_OK) puts(tide_last_error()->text);
#ifndef TIDEMARK_CACHE_H
#define TIDEMARK_CACHE_H

#include "tidemark/base.h"
#include "tidemark/machine.h"
#include "tidemark/memory.h"
#include "tidemark/trace.h"

TIDE_BEGIN_DECLS

// ---------------------------------------------------------------------------------------------------
// Looking inside

typedef struct tide_segment_info {
  uint64_t address;
  uint64_t bytes;            // of this range; for an expandable segment, a mapped range without a gap
  uint64_t allocated_bytes;  // of blocks that are handed out
  uint64_t active_bytes;     // of these and of waiting blocks
  uint64_t requested_bytes;  // as requested, of the active blocks
  uint64_t pool_label[2];    // { 0, 0 } for a pool without one, and for the default pool
  tide_stream stream;        // NULL for pinned memory
  tide_pool pool;
  uint32_t stack;  // of the request that made it
  int32_t device;  // -1 for pinned memory
  bool is_large;
  bool is_expandable;
  uint64_t ordinal;  // segments are numbered from 0 in the order in which they are made
  const char* tag;   // of its pool; "" if it has none; valid as long as the cache
  bool is_parked;    // its addresses have no memory now, and its bytes are not reserved
} tide_segment_info;

typedef struct tide_block_info {
  uint64_t address;
  uint64_t bytes;
  uint64_t requested_bytes;  // of its last request
  uint32_t stack;            // of its request; 0 while it is inactive
  uint32_t state;            // a tide_block_state
} tide_block_info;

// Called for each segment, and then for each of its blocks, both by rising address. A function that returns
// false ends the visit. A visitor may call the allocator.
typedef struct tide_device_visitor {
  bool (*segment)(void* user, const tide_segment_info* segment);
  bool (*block)(void* user, const tide_block_info* block);  // (optional)
  void* user;
} tide_device_visitor;

// ---------------------------------------------------------------------------------------------------
// History

typedef enum tide_history_level {
  TIDE_HISTORY_NEVER = 0,  // no stacks
  TIDE_HISTORY_STATE = 1,  // requests gather a stack, which the block and the segment keep
  TIDE_HISTORY_ALLOC = 2,  // entries show these stacks as well
  TIDE_HISTORY_ALL = 3     // releasing and trimming gather stacks of their own
} tide_history_level;

typedef struct tide_history_options {
  uint32_t size;  // set by TIDE_HISTORY_OPTIONS_INIT
  bool is_on;
  bool clears;     // drops the entries so far; switching off does so, too
  uint8_t level;   // a tide_history_level
  uint32_t skips;  // actions not to keep, as bits: 1u << TIDE_ACTION_...
  // How many of the newest entries are kept; 0 means 1. The memory is allocated at once: 64 bytes times this
  // number, rounded up to a power of two.
  uint64_t max_entries;
  // Gathers the calling thread's stack: writes up to `capacity` frames, innermost first, and returns how
  // many. Exactly one of this and `number` is needed unless the level is NEVER. It is called with no lock
  // held, and must not call the allocator.
  size_t (*gather)(void* user, uint64_t* frames, size_t capacity);
  void* user;  // borrowed until other options are set
  // Instead of `gather`, for callers that keep stacks as their own objects: returns a number for the calling
  // thread's stack, or 0. Entries, blocks and segments keep it as their `stack`, which then does not refer to
  // tide_device_names(). tide_device_visit_stacks() shows which numbers are still in use. Do not switch an
  // allocator from `gather` to `number` or back. It is called like `gather`, but may visit the allocator.
  uint32_t (*number)(void* user);
} tide_history_options;
// clang-format off
#define TIDE_HISTORY_OPTIONS_INIT                                                                       \
  { TIDE_FIELD(size, sizeof(tide_history_options)), TIDE_FIELD(is_on, true), TIDE_FIELD(clears, false), \
    TIDE_FIELD(level, TIDE_HISTORY_NEVER), TIDE_FIELD(skips, 0), TIDE_FIELD(max_entries, 100000),       \
    TIDE_FIELD(gather, NULL), TIDE_FIELD(user, NULL), TIDE_FIELD(number, NULL) }
// clang-format on

// Receives entries of a history in several parts, oldest first. `entries` is valid during the call only.
// Returning false ends the visit. Entries that are added during the visit are not shown, and neither are
// those that they displace. Times do not go back.
typedef bool (*tide_history_fn)(void* user, const tide_trace_entry* entries, size_t count);

typedef struct tide_snapshot_options {
  uint32_t size;      // set by TIDE_SNAPSHOT_OPTIONS_INIT
  bool has_entries;   // includes the history; true in _INIT
  uint64_t epoch_ns;  // added to the times of entries: the time of another clock when the machine's was 0
  // (optional) Describes a frame from tide_history_options.gather(), or a number from number(). If it
  // returns false, the name is the number in hexadecimal. Called with no lock held.
  bool (*describe)(void* user, uint64_t frame, tide_frame_words* out);
  void* user;  // caller keeps
  // (optional) The segments of this pool alone, with the entries about its memory, and those about no memory
  // (SNAPSHOT, USER_DEFINED); caller keeps.
  const tide_pool* pool;
} tide_snapshot_options;
// clang-format off
#define TIDE_SNAPSHOT_OPTIONS_INIT                                                  \
  { TIDE_FIELD(size, sizeof(tide_snapshot_options)), TIDE_FIELD(has_entries, true), \
    TIDE_FIELD(epoch_ns, 0), TIDE_FIELD(describe, NULL), TIDE_FIELD(user, NULL),    \
    TIDE_FIELD(pool, NULL) }
// clang-format on

// ---------------------------------------------------------------------------------------------------
// Observers

typedef uint64_t tide_observer;  // identifies an attached observer; 0: none

// Called for every entry, whether or not a history is kept. It runs on the thread that made the entry, before
// the call that caused it returns. A thread reports its own entries in order. Entries about segments
// (SEGMENT_...) are reported one at a time, in order over all threads: a thread waits for its turn. So an
// observer must not wait for another thread that is inside a call of this allocator. An observer may call the
// allocator. The entries of that call are reported before it returns, and the turn may end during it. Other
// entries of different threads come in no fixed order.
//
// New memory is reported when it exists. The end of memory (SEGMENT_FREE, SEGMENT_UNMAP) is reported before
// the machine takes it. So an observer can still use it, and may register memory elsewhere and end that
// registration in time: no thread is handed the address before all observers have returned. Work that was
// queued on streams may not be done yet. Calls that need memory which another thread is giving back wait for
// that thread, but not inside an observer.
//
// If the machine then refuses to take the memory, observers hear of it again as of new memory (SEGMENT_ALLOC,
// SEGMENT_MAP); a history has entries only for what went. Freeing the allocator reports the end of all memory
// that it gives back; an observer must not call the allocator then.
//
// With the policy `tide`, memory that moves between a view and its home is reported as unmapped in one place
// and mapped in the other, and goes nowhere. Idle memory may be reported as mapped at home before it is: it
// is mapped there at the latest when a block there is handed out.
typedef void (*tide_trace_fn)(void* user, const tide_trace_entry* entry);
// The same, with the number of the entry. Numbers follow the order in which things happened, whichever thread
// reports first. They have no gaps while an observer of entries is attached. Sorted by number, the entries
// show for each address that it was handed out, released, and handed out again, and their times do not go
// back.
typedef void (*tide_entry_fn)(void* user, const tide_trace_entry* entry, uint64_t number);

// ---------------------------------------------------------------------------------------------------
// Statistics

// Indices of statistics by size: all requests, small ones, large ones.
enum { TIDE_STAT_ALL = 0, TIDE_STAT_SMALL = 1, TIDE_STAT_LARGE = 2, TIDE_STAT_KINDS = 3 };

// How long calls of the machine took, by its clock.
typedef struct tide_duration {
  uint64_t total_ns;
  uint64_t max_ns;
  uint64_t min_ns;  // calls that took no time are left out; 0: no call yet
  uint64_t count;
} tide_duration;

TIDE_END_DECLS
#endif
