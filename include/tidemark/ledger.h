// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: the ledger, which follows the entries of a trace and knows at every moment which segments there
// are and which blocks lie in them. It takes addresses from the trace and decides nothing, so it works for
// every recording, whatever allocator made it, also for one that begins in the middle: what was there before
// is found from the end. A trace has the sizes of requests only; the blocks around them have the sizes that
// PyTorch gives them under the settings in the trace.
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

// No entry: before the first one, or something older than the recording.
#define TIDE_LEDGER_BEFORE UINT64_MAX

// What there is at a moment.
typedef struct tide_ledger_totals {
  uint64_t at;               // number of the entry that happened last; TIDE_LEDGER_BEFORE before the first
  uint64_t live_bytes;       // requests whose FREE_COMPLETED has not come, each rounded up to 512 bytes
  uint64_t requested_bytes;  // the same as they were asked for
  uint64_t allocated_bytes;  // of blocks that are handed out; PyTorch's allocated_bytes
  uint64_t active_bytes;     // of these and of those that wait; PyTorch's active_bytes
  uint64_t reserved_bytes;   // of segments
  uint64_t live_count;       // requests
  uint64_t segment_count;
} tide_ledger_totals;

typedef struct tide_ledger_peak {
  uint64_t bytes;
  uint64_t at;  // the first entry after which it was reached; TIDE_LEDGER_BEFORE: it was before
} tide_ledger_peak;

typedef struct tide_ledger_peaks {
  tide_ledger_peak live;
  tide_ledger_peak requested;
  tide_ledger_peak allocated;
  tide_ledger_peak active;
  tide_ledger_peak reserved;
} tide_ledger_peaks;

// How far the trace can be believed.
typedef struct tide_ledger_faults {
  uint64_t blocks_before;    // blocks that were there before the first entry
  uint64_t bytes_before;     // of these
  uint64_t segments_before;  // segments likewise, known from the end or from their release
  uint64_t unknown_frees;    // releases of blocks that nothing else tells of
  uint64_t homeless_allocs;  // allocations that no known segment holds whole; one is made up around them
  uint64_t overlaps;         // allocations over a block whose release was not completed; that one is dropped
  uint64_t odd_segments;     // made over another, given back and unknown, or given back with blocks in use
  uint64_t differences;      // segments and blocks that are not left as the trace's own list has them
  bool is_from_start;        // nothing was there before the first entry
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
} tide_ledger_segment;

typedef struct tide_ledger_block {
  uint64_t address;
  uint64_t bytes;
  uint64_t requested_bytes;  // of the last request that had it
  uint64_t made_at;          // number of the ALLOC entry, or TIDE_LEDGER_BEFORE
  uint32_t stack;            // of that entry
  uint32_t state;            // a tide_block_state
} tide_ledger_block;

// Follows the entries of one device once, to the end, for peaks and faults; then stands at the end. The
// trace is borrowed until the ledger is freed and may not change; records come from its heap. A device that
// has no entries has what the trace lists for it.
// Errors:  TIDE_ERR_ARGUMENT; TIDE_ERR_NO_MEMORY.
// Cost:    O(n log m) for n entries and m blocks at a time.
TIDE_API TIDE_NODISCARD tide_status tide_ledger_new(const tide_trace* trace, size_t device,
                                                    tide_ledger** out);
TIDE_API void tide_ledger_free(tide_ledger* ledger);

// Goes to the moment after an entry; TIDE_LEDGER_BEFORE is the one before the first. Backwards costs as much
// as from the beginning.
// Errors:  TIDE_ERR_ARGUMENT for an entry that does not exist; TIDE_ERR_NO_MEMORY, and then it stands
//          somewhere before.
TIDE_API TIDE_NODISCARD tide_status tide_ledger_seek(tide_ledger* ledger, uint64_t at);

TIDE_API tide_ledger_totals tide_ledger_get_totals(const tide_ledger* ledger);  // of where it stands
TIDE_API tide_ledger_peaks tide_ledger_get_peaks(const tide_ledger* ledger);    // of the whole trace
TIDE_API tide_ledger_faults tide_ledger_get_faults(const tide_ledger* ledger);  // of the whole trace

// Calls `on_segment` for each segment where the ledger stands, by address, and after each `on_block` for its
// blocks, by address and without gaps. Each may be NULL, and ends the visit by returning false.
TIDE_API void tide_ledger_visit(const tide_ledger* ledger,
                                bool (*on_segment)(void* user, const tide_ledger_segment* segment),
                                bool (*on_block)(void* user, const tide_ledger_block* block), void* user);

TIDE_END_DECLS
#endif
