// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The script of a replay: a recording as a list of steps in which blocks, streams and pools have small
// numbers, so that a run searches nothing. A block has a slot from its request until it is free. The last
// freed slot is used first, so that a run touches little memory.
//
// The recording is followed once, in order. Blocks that are older than it come first, as requests. What it
// does not record is inferred: which release waits and until when, the pool of a request, which mapping is
// the first of an address reserve, and where the cache must have been emptied.
#ifndef TIDEMARK_SRC_REPLAY_STEPS_H
#define TIDEMARK_SRC_REPLAY_STEPS_H

#include "base/error.h"
#include "base/heap.h"
#include "ledger/rules.h"
#include "tidemark/trace.h"

typedef enum tide__step_kind {
  TIDE__STEP_ALLOC,         // a request that was served
  TIDE__STEP_OOM,           // a request that was refused
  TIDE__STEP_FREE,          // a release, complete at once
  TIDE__STEP_FREE_LATER,    // a release that waits
  TIDE__STEP_DONE,          // the wait ends
  TIDE__STEP_SEGMENT,       // a segment was created
  TIDE__STEP_SEGMENT_FREE,  // and freed
  TIDE__STEP_RESERVE,       // memory was mapped, as the first of a reserve
  TIDE__STEP_MAP,           // memory was mapped
  TIDE__STEP_UNMAP          // and unmapped
} tide__step_kind;

typedef struct tide__step {
  union {
    uint64_t bytes;  // of a request or a segment
    uint64_t until;  // FREE_LATER: the number of the entry that ends the wait; entry_count: never
  };
  uint32_t entry;   // its number
  uint32_t slot;    // of ALLOC, FREE, FREE_LATER and DONE
  uint16_t stream;  // of requests and segments: its place in `streams`
  uint16_t pool;    // of requests and of freed memory: the trace's number
  uint8_t kind;     // a tide__step_kind
  bool is_long;     // of ALLOC: its block lives for more than half of the entries
} tide__step;

// A segment that is older than the recording, or a part of an address reserve with memory in it. Its live
// blocks belong to the first steps, in the same order.
typedef struct tide__old_segment {
  uint64_t address;
  uint64_t bytes;
  uint64_t base;         // the beginning of the reserve; otherwise the address
  uint32_t first_block;  // in `old_blocks`
  uint32_t block_count;
  uint16_t stream;  // its place in `streams`
  uint16_t pool;
  bool is_small;
  bool is_expandable;
} tide__old_segment;

typedef struct tide__old_block {
  uint64_t address;
  uint64_t bytes;
} tide__old_block;

// The number of an entry has 27 bits, so that each can have a minute of virtual time.
#define TIDE__SCRIPT_ENTRIES ((size_t)1 << 27)
#define TIDE__SCRIPT_STREAMS 1024u

typedef struct tide__script {
  const tide_heap* heap;            // borrowed until the script is freed
  const tide_trace* trace;          // borrowed until the script is freed
  const tide_trace_entry* entries;  // borrowed from the trace
  size_t entry_count;
  size_t device;
  tide__step* steps;  // owned
  size_t step_count;
  size_t step_capacity;
  uint32_t* empties;  // owned: numbers of steps, ascending, before which the cache was certainly emptied
  size_t empty_count;
  size_t empty_capacity;
  uint32_t* pool_ends;  // owned: for each pool of the trace the step after its last request
  size_t pool_count;
  uint64_t streams[TIDE__SCRIPT_STREAMS];  // their handles, ascending; the first is 0
  uint32_t stream_count;
  uint32_t slot_count;
  uint64_t lane_count;      // pairs of pool and stream that requests go to, at most
  uint64_t skipped;         // releases of unknown blocks
  uint64_t before_count;    // blocks that are older than the recording: the first steps are their requests
  uint64_t before_bytes;    // their requested bytes
  uint32_t* before_stacks;  // owned; the stacks of these requests, as far as they are known; else 0
  size_t before_capacity;
  size_t first_entry;  // that is replayed: those before belong to a request that may be older
  size_t first_step;   // of the recording: after those requests, and the releases of those that waited
  // Where these blocks lay. No segments: nothing is older, or the recording contradicts itself.
  tide__old_segment* old_segments;  // owned; by address
  size_t old_count;
  size_t old_capacity;
  tide__old_block* old_blocks;  // owned; by address: of step i at i
  size_t old_block_count;
  size_t old_block_capacity;
  uint64_t peak_bytes;    // of live requests, each rounded
  uint64_t reach_bytes;   // how far from its beginning memory was mapped in a reserve
  uint64_t spread_bytes;  // the smallest distance of a new reserve from its neighbours
} tide__script;

// Is it a recording that begins in the middle of a run?
static inline bool tide__script_is_cut(const tide__script* script) {
  return script->before_count > 0 || script->old_count > 0;
}

// Writes the script of a device. Requests of 0 bytes and of at least 2^60 are omitted, with their releases.
// Errors: TIDE_ERR_LIMIT for too many entries or streams; TIDE_ERR_NO_MEMORY.
tide_status tide__script_init(tide__script* script, const tide_trace* trace, size_t device,
                              const tide_heap* heap);
void tide__script_fini(tide__script* script);

// Adds a stream to `streams`. Errors: TIDE_ERR_LIMIT for more than TIDE__SCRIPT_STREAMS.
tide_status tide__script_add_stream(tide__script* script, uint64_t handle);
// The place of the first stream whose handle is not below this one.
uint32_t tide__script_stream_place(const tide__script* script, uint64_t handle);
// Finds what follows from the steps: empties, pool_ends and lane_count. Errors: TIDE_ERR_NO_MEMORY.
tide_status tide__script_derive(tide__script* script);
// Returns TIDE_ERR_NO_MEMORY with a text.
static inline tide_status tide__script_no_memory(const tide__script* script) {
  return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "replay: no memory for the steps of %zu entries", script->entry_count);
}

// The place of a stream in `streams`; stream_count if it is not among them.
uint32_t tide__script_stream(const tide__script* script, uint64_t handle);

// The number of the first step at or after an entry.
size_t tide__script_find(const tide__script* script, size_t entry);

// The steps between two calls of the program: from `first` to below `end` there are no requests and no
// releases.
typedef struct tide__window {
  size_t first;
  size_t end;
  size_t lead;       // steps DONE that it begins with
  bool has_request;  // the step at `end` is a request; otherwise a release, or the end of the script
  bool gives_back;   // segments are freed or memory unmapped
} tide__window;

tide__window tide__window_at(const tide__step* steps, size_t count, size_t first);

#endif
