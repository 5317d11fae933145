// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: the ledger, which reconstructs the segments and blocks of a device at every point of a trace. It
// follows the recorded addresses and makes no placement decisions, so it works for the recording of any
// allocator. For a recording that begins in the middle, it infers what existed before from the state at the
// end. A trace records only requested sizes. The ledger gives each block the size that PyTorch would give it
// with the settings in the trace.
//
//   tide_ledger* ledger = NULL;
//   tide_status status = tide_ledger_new(trace, 0, &ledger);
//   if (status == TIDE_OK) status = tide_ledger_seek(ledger, tide_ledger_get_peaks(ledger).reserved.at);
//   if (status == TIDE_OK) tide_ledger_visit(ledger, on_segment, NULL, NULL);   // at the peak
//   tide_ledger_free(ledger);
#ifndef TIDEMARK_LEDGER_H
#define TIDEMARK_LEDGER_H

#include "tidemark/trace.h"

TIDE_BEGIN_DECLS

typedef struct tide_ledger tide_ledger;  // opaque; freed by tide_ledger_free()

// In place of an entry's number: before the first entry, or older than the recording.
#define TIDE_LEDGER_BEFORE UINT64_MAX

// The state at one point of a trace.
typedef struct tide_ledger_totals {
  uint64_t at;               // number of the last entry that happened; TIDE_LEDGER_BEFORE before the first
  uint64_t live_bytes;       // of requests before their FREE_COMPLETED, each rounded up to 512 bytes
  uint64_t requested_bytes;  // the same without rounding
  uint64_t allocated_bytes;  // of blocks that are handed out; PyTorch's allocated_bytes
  uint64_t active_bytes;     // of these and of released blocks that still wait; PyTorch's active_bytes
  uint64_t reserved_bytes;   // of segments, without parked ones
  uint64_t live_count;       // number of live requests
  uint64_t segment_count;    // likewise
} tide_ledger_totals;

typedef struct tide_ledger_peak {
  uint64_t bytes;
  uint64_t at;  // the first entry after which it was reached; TIDE_LEDGER_BEFORE: before the first entry
} tide_ledger_peak;

typedef struct tide_ledger_peaks {
  tide_ledger_peak live;
  tide_ledger_peak requested;
  tide_ledger_peak allocated;
  tide_ledger_peak active;
  tide_ledger_peak reserved;
  // Of live requests before their FREE_REQUESTED. Every allocator reserves at least this much.
  tide_ledger_peak held;
} tide_ledger_peaks;

// Where the trace is incomplete or contradicts itself.
typedef struct tide_ledger_faults {
  uint64_t blocks_before;    // blocks that existed before the first entry
  uint64_t bytes_before;     // their bytes
  uint64_t segments_before;  // segments that existed before, known from the end or from their release
  uint64_t unknown_frees;    // releases of blocks that appear nowhere else
  uint64_t homeless_allocs;  // allocations outside of every known segment; the ledger invents one for each
  uint64_t overlaps;      // allocations over a block that was not completely released; that block is dropped
  uint64_t odd_segments;  // created over another one, freed while unknown, or freed with blocks in use
  uint64_t differences;   // segments and blocks that differ from the trace's own list at the end
  bool is_from_start;     // nothing existed before the first entry
} tide_ledger_faults;

typedef struct tide_ledger_segment {
  uint64_t address;
  uint64_t bytes;
  uint64_t stream;
  uint64_t made_at;  // number of the entry, or TIDE_LEDGER_BEFORE
  uint64_t active_bytes;
  uint64_t block_count;
  uint32_t pool;
  uint32_t stack;
  bool is_large;
  bool is_expandable;
  bool is_parked;  // unmapped with blocks in use: its bytes are not reserved
} tide_ledger_segment;

typedef struct tide_ledger_block {
  uint64_t address;
  uint64_t bytes;
  uint64_t requested_bytes;  // of the last request that had it
  uint64_t made_at;          // number of the ALLOC entry, or TIDE_LEDGER_BEFORE
  uint32_t stack;            // of that entry
  uint32_t state;            // a tide_block_state
} tide_ledger_block;

// Makes a ledger of one device. It follows all entries once, to find peaks and faults, and is positioned at
// the end. The trace is borrowed until the ledger is freed and must not change; the ledger uses the trace's
// heap. For a device without entries, the ledger holds the segments that the trace lists.
// Errors:  TIDE_ERR_ARGUMENT; TIDE_ERR_NO_MEMORY.
// Cost:    O(n log m) for n entries and m blocks at a time.
TIDE_API TIDE_NODISCARD tide_status tide_ledger_new(const tide_trace* trace, size_t device,
                                                    tide_ledger** out);
TIDE_API void tide_ledger_free(tide_ledger* ledger);

// Moves to the point after an entry, or to the one before the first entry (TIDE_LEDGER_BEFORE). Moving back
// starts again from the beginning.
// Errors:  TIDE_ERR_ARGUMENT for an entry that does not exist; TIDE_ERR_NO_MEMORY, which leaves the ledger at
//          some earlier point.
TIDE_API TIDE_NODISCARD tide_status tide_ledger_seek(tide_ledger* ledger, uint64_t at);

TIDE_API tide_ledger_totals tide_ledger_get_totals(const tide_ledger* ledger);  // at this point
TIDE_API tide_ledger_peaks tide_ledger_get_peaks(const tide_ledger* ledger);    // of the whole trace
TIDE_API tide_ledger_faults tide_ledger_get_faults(const tide_ledger* ledger);  // of the whole trace

// Visits the segments at the current point in the order of their addresses. Calls `on_segment` for each, and
// then `on_block` for each of its blocks, in the order of their addresses and without gaps. Either function
// may be NULL, and may return false to end the visit.
TIDE_API void tide_ledger_visit(const tide_ledger* ledger,
                                bool (*on_segment)(void* user, const tide_ledger_segment* segment),
                                bool (*on_block)(void* user, const tide_ledger_block* block), void* user);

// ---------------------------------------------------------------------------------------------------
// Memory over time, for pictures
//
// The axis is divided into buckets of equal width. In each, a quantity has a least, a most and a last value.
// A picture of them hides no peak, however many entries a bucket has.

typedef enum tide_timeline_axis {
  TIDE_TIMELINE_ENTRIES = 0,  // numbers of entries, from 0 to their count
  TIDE_TIMELINE_TIME = 1      // time_ns, from the first entry to the latest
} tide_timeline_axis;

typedef struct tide_timeline_range {
  uint64_t least;
  uint64_t most;
  uint64_t last;
} tide_timeline_range;

typedef struct tide_timeline_bucket {
  uint64_t begin;            // on the axis; the bucket ends where the next one begins
  uint64_t first;            // number of its first entry; if it has none, of the next entry
  uint64_t entry_count;      // entries in it
  tide_timeline_range live;  // these five as in tide_ledger_totals
  tide_timeline_range requested;
  tide_timeline_range allocated;
  tide_timeline_range active;
  tide_timeline_range reserved;
} tide_timeline_bucket;

// Divides a trace into `count` buckets, and moves to its end. A bucket has the values after each of its
// entries. It also has the value with which it begins, if its first entry comes later on the axis; the first
// bucket has the values before the first entry. So the largest `most` is the peak. A time that is earlier
// than that of an entry before counts as that one.
// Errors:  TIDE_ERR_ARGUMENT for NULL, an unknown axis, and a count of 0 or above 2^32 - 1;
//          TIDE_ERR_NO_MEMORY, as tide_ledger_seek().
// Cost:    O(n log m + count) for n entries and m blocks at a time.
TIDE_API TIDE_NODISCARD tide_status tide_ledger_timeline(tide_ledger* ledger, uint32_t axis, size_t count,
                                                         tide_timeline_bucket* out);

// The same on any axis, such as steps, and with buckets of any width: totals are added entry by entry, after
// tide_ledger_seek() or in a tide_ledger_watcher. The caller sets `begin` of every bucket, in rising order.
// Entries before the first begin are in the first bucket.
//
//   tide_timeline line = { .buckets = buckets, .count = 100 };
typedef struct tide_timeline {
  tide_timeline_bucket* buckets;  // borrowed from the caller
  size_t count;                   // at least 1
  size_t current;                 // the bucket of the last entry, like `latest` set by the functions
  uint64_t latest;                // its position
  // A bucket always has the value with which it begins, so that the curves of neighbours touch. Otherwise it
  // has not, if its first entry is where it begins.
  bool is_joined;
} tide_timeline;

// Begins, with the totals before the first entry; adds those after an entry at a position; ends. A position
// that is lower than one before counts as that one.
// Cost: O(1) for each entry and bucket.
TIDE_API void tide_timeline_start(tide_timeline* line, const tide_ledger_totals* before);
TIDE_API void tide_timeline_add(tide_timeline* line, uint64_t position, const tide_ledger_totals* totals);
TIDE_API void tide_timeline_finish(tide_timeline* line);

// ---------------------------------------------------------------------------------------------------
// Why memory was reserved
//
// A growth is a range that one SEGMENT_ALLOC or SEGMENT_MAP added. A request made the cache grow because it
// could use no free memory. Its *place* is what PyTorch searches for it: the blocks of its pool and stream,
// in segments for small or for large requests. The cause is what kept it from free memory elsewhere:
//
//   1. The place has a block that is large enough. The split limit forbids its use (TIDE_GROWTH_SPLIT), or
//      PyTorch did not search again after it had given memory back (TIDE_GROWTH_PASSED).
//   2. There would be one if no released block waited for other streams: TIDE_GROWTH_EVENT.
//   3. Otherwise free bytes are added up, in this order, until they would suffice. The last that was added
//      is the cause: free blocks of the place (TIDE_GROWTH_HOLE: they are apart), blocks there that wait
//      (TIDE_GROWTH_EVENT), other streams of the pool (TIDE_GROWTH_STREAM), other pools (TIDE_GROWTH_POOL),
//      and segments for the other class of sizes (TIDE_GROWTH_CLASS).
//   4. If all of it is too little, memory had to grow: TIDE_GROWTH_NEEDED.
//
// Parked memory that came back is a growth too, without a request: TIDE_GROWTH_UNPARKED.
//
// Every cause: constant, value, name.
#define TIDE_GROWTH_MAP(X) \
  X(NEEDED, 0, "needed")   \
  X(HOLE, 1, "hole")       \
  X(SPLIT, 2, "split")     \
  X(EVENT, 3, "event")     \
  X(STREAM, 4, "stream")   \
  X(POOL, 5, "pool")       \
  X(CLASS, 6, "class")     \
  X(PASSED, 7, "passed")   \
  X(UNKNOWN, 8, "unknown") \
  X(BEFORE, 9, "before")   \
  X(UNPARKED, 10, "unparked")

// TIDE_GROWTH_UNKNOWN: no request for it was recorded. TIDE_GROWTH_BEFORE: it is older than the recording.
typedef enum tide_growth_cause {
#define TIDE_GROWTH_ENUM(name, value, text) TIDE_GROWTH_##name = value,
  TIDE_GROWTH_MAP(TIDE_GROWTH_ENUM)
#undef TIDE_GROWTH_ENUM
      TIDE_GROWTH_COUNT
} tide_growth_cause;

// The name of a cause, or NULL if it is not a tide_growth_cause.
TIDE_API const char* tide_growth_cause_name(uint32_t cause);

// The memory of one pool, stream and class of sizes.
typedef struct tide_ledger_place {
  uint64_t stream;
  uint64_t free_bytes;
  uint64_t free_count;     // number of free blocks
  uint64_t largest_bytes;  // the largest of them
  uint64_t waiting_bytes;  // of released blocks that wait for other streams
  uint32_t pool;
  bool is_large;
} tide_ledger_place;

typedef struct tide_growth {
  uint64_t at;       // number of the entry, or TIDE_LEDGER_BEFORE
  uint64_t address;  // of the range, or of what is left of it at the point in question
  uint64_t bytes;
  uint64_t stream;
  uint64_t request_at;       // number of the ALLOC or OOM; TIDE_LEDGER_BEFORE: unknown
  uint64_t requested_bytes;  // 0: unknown
  uint64_t rounded_bytes;    // of the block for it
  uint32_t stack;            // of the request
  uint32_t pool;
  uint32_t cause;  // a tide_growth_cause
  bool is_large;
  bool is_expandable;
  bool is_pool_known;  // otherwise `pool` is assumed to be the default one
  // Just before the cache grew for this request: free bytes of its place, and what was free elsewhere.
  uint64_t place_bytes;
  uint64_t place_largest;  // the largest free block of its place
  uint64_t place_fitting;  // the smallest one that is large enough; 0: none is
  uint64_t place_waiting;  // bytes that wait there
  uint64_t other_streams;
  uint64_t other_pools;
  uint64_t other_class;
  // The same by places, in the order of their addresses; borrowed during the visit.
  const tide_ledger_place* places;
  size_t place_count;
} tide_growth;

// Explains the memory that is reserved after an entry. Calls `on_growth` for each growth of which anything is
// left then, the oldest first; it may return false to end the visit. The bytes of all growths add up to the
// reserved bytes. Afterwards the ledger is at that entry.
// Errors:  as tide_ledger_seek(); on failure, on_growth may have been called for some.
// Cost:    O(n log m + g s) for n entries, m blocks, g growths and s segments.
TIDE_API TIDE_NODISCARD tide_status tide_ledger_explain(
    tide_ledger* ledger, uint64_t at, bool (*on_growth)(void* user, const tide_growth* growth), void* user);

// ---------------------------------------------------------------------------------------------------
// Everything that happened to segments and blocks, in one pass

typedef enum tide_ledger_event {
  TIDE_LEDGER_BEGINS = 0,   // it exists from now on
  TIDE_LEDGER_WAITS = 1,    // a block was released, and waits for other streams
  TIDE_LEDGER_CHANGES = 2,  // a block has other bytes: an entry showed that its size had been a wrong guess
  TIDE_LEDGER_ENDS = 3      // it does not exist any more
} tide_ledger_event;

// A range of reserved memory: what one entry added; or of one or several such ranges, what was removed.
typedef struct tide_ledger_range {
  uint64_t address;
  uint64_t bytes;
  uint64_t stream;
  uint32_t pool;
  uint32_t stack;
  uint32_t cause;  // a tide_growth_cause; of a range that ends, always TIDE_GROWTH_UNKNOWN
  bool is_large;
  bool is_expandable;
  bool is_invented;  // for an allocation outside of all segments
} tide_ledger_range;

// Called with the number of the entry, or TIDE_LEDGER_BEFORE for what existed before the first. Any function
// may be NULL. The ledger must not be used in them.
typedef struct tide_ledger_watcher {
  uint32_t size;  // set by TIDE_LEDGER_WATCHER_INIT
  void (*on_range)(void* user, tide_ledger_event event, uint64_t at, const tide_ledger_range* range);
  // A block that begins is in the state ALLOCATED; or PENDING, if it waited before the first entry.
  void (*on_block)(void* user, tide_ledger_event event, uint64_t at, const tide_ledger_block* block);
  void (*on_entry)(void* user, const tide_ledger_totals* totals);  // after an entry, and before the first
  void* user;                                                      // passed to all of them
  // A range that is parked: its memory was unmapped while blocks were in use there, so it is not reserved. It
  // ends when its memory is there again, or its addresses are used otherwise.
  void (*on_parked)(void* user, tide_ledger_event event, uint64_t at, const tide_ledger_range* range);
} tide_ledger_watcher;
#define TIDE_LEDGER_WATCHER_INIT TIDE_SIZED(tide_ledger_watcher)

// Follows all entries from the beginning and reports every change in order. The bytes of ranges and of blocks
// that exist after an entry add up to the totals there. Afterwards the ledger is at the end. A cause is
// TIDE_GROWTH_UNKNOWN also for growths after many others, because each costs O(segments).
// Errors:  TIDE_ERR_ARGUMENT; TIDE_ERR_NO_MEMORY, after some changes were reported.
// Cost:    O(n log m) for n entries and m blocks, and O(1) for each change.
TIDE_API TIDE_NODISCARD tide_status tide_ledger_watch(tide_ledger* ledger,
                                                      const tide_ledger_watcher* watcher);

TIDE_END_DECLS
#endif
