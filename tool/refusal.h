// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Why a request was refused: what was free then and where, and what stood in the way.
#ifndef TIDEMARK_TOOL_REFUSAL_H
#define TIDEMARK_TOOL_REFUSAL_H

#include "sums.h"
#include "picture.h"

// One that was refused. "Its place" is free memory that it could have been given: of its pool and stream, and
// of segments for requests of its size.
typedef struct tool_refusal {
  uint64_t at;             // number of the entry
  uint64_t bytes;          // asked for, rounded
  uint64_t segment_bytes;  // what the allocator would then have asked the device for
  uint64_t stream;
  uint32_t pool;
  uint32_t stack;
  bool is_large;
  bool has_device_free;
  uint64_t device_free;
  uint64_t reserved;
  uint64_t allocated;
  uint64_t free_bytes;  // everywhere
  uint64_t place_free;  // in its place
  uint64_t place_pieces;
  uint64_t place_largest;
  // The cheapest blocks of one segment in its place without which there would have been room.
  bool has_blockers;  // false: no segment is large enough
  uint64_t blocker_bytes;
  uint64_t largest_segment;     // in its place
  tide_ledger_block* blockers;  // owned; by address
  size_t blocker_count;
  // Free memory by (pool, large) and stream; tool_range_pool() and tool_range_is_large() take the key apart.
  tool_sums ranges;
} tool_refusal;

uint32_t tool_range_pool(const tool_sum* range);
bool tool_range_is_large(const tool_sum* range);

// What all refusals of a device tell about the memory it could have.
typedef struct tool_limits {
  uint64_t count;       // of refusals
  uint64_t at_least;    // bytes that were reserved at some time
  uint64_t less_than;   // bytes that were refused once; 0: nothing was
  bool is_device_full;  // the device itself had less left than was needed, at the first refusal
  uint64_t likely;      // bytes for a replay: what is certain, or what the full device had
} tool_limits;

// Finds the first `room` refusals, and what all of them tell. On failure it says why and returns TOOL_USAGE.
int tool_refusals_find(const tide_trace* trace, size_t device, tide_ledger* ledger, tool_refusal* out,
                       size_t room, size_t* out_count, tool_limits* out_limits);
void tool_refusal_fini(tool_refusal* refusal);

// The memory that a run had which ran out of it, as far as its refusals tell; TIDE_NO_LIMIT: nothing was
// refused, or it is not known what was reserved. On failure it says why and returns TOOL_USAGE.
int tool_limit_infer(const tide_trace* trace, size_t device, uint64_t* out);

#endif
