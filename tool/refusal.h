// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Why a request was refused: what was free, and where. room.h finds which blocks were in the way.
#ifndef TIDEMARK_TOOL_REFUSAL_H
#define TIDEMARK_TOOL_REFUSAL_H

#include "sums.h"
#include "picture.h"
#include "tag_limits.h"

// A refused request. "Its place" is memory that it could use: of its pool and stream, in segments for
// requests of its size.
typedef struct tool_refusal {
  uint64_t at;             // number of the entry
  uint64_t bytes;          // requested, rounded
  uint64_t segment_bytes;  // of the segment that the allocator then requested from the device
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
  // Free memory by (pool, large) and stream; tool_range_pool() and tool_range_is_large() decode the key.
  tool_sums ranges;
} tool_refusal;

uint32_t tool_range_pool(const tool_sum* range);
bool tool_range_is_large(const tool_sum* range);

// Bounds on the memory that the run had, from all refusals of a device. Refusals by limits of tags are apart.
typedef struct tool_limits {
  uint64_t count;           // number of refusals
  uint64_t tag_count;       // of refusals by the limits of tags
  tool_tag_refusal by_tag;  // the first of them
  uint64_t at_least;        // peak of reserved bytes; less by a handle if memory is mapped
  uint64_t less_than;       // bytes that were refused once; 0: none were
  bool is_device_full;      // at the first refusal, the device itself had less left than needed
  uint64_t likely;          // bytes for a replay: `at_least`, or the memory of the full device
} tool_limits;

// Finds the first `room` refusals that are not those of tags, and the bounds from all of them. On failure it
// prints why and returns TOOL_USAGE.
int tool_refusals_find(const tide_trace* trace, size_t device, tide_ledger* ledger, tool_refusal* out,
                       size_t room, size_t* out_count, tool_limits* out_limits);
void tool_refusal_fini(tool_refusal* refusal);

// Only the bounds; `count` is 0 if nothing was refused or reserved memory is unknown. On failure it prints
// why and returns TOOL_USAGE.
int tool_limits_find(const tide_trace* trace, size_t device, tool_limits* out);

#endif
