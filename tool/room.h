// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The cheapest way to make room for a refused request: the live blocks with the fewest bytes whose release
// would have let it be served, as PyTorch decides. There are two ways.
//
//   hole      A range of neighbouring blocks in one segment of its place, or in one mapped range of an
//             expandable segment, becomes one free block that is large enough. With a split limit it must
//             not be too large either.
//   segments  Segments of the default pool become empty, or handles of expandable ones. PyTorch gives those
//             back before it refuses, so that a new segment fits below the limit.
#ifndef TIDEMARK_TOOL_ROOM_H
#define TIDEMARK_TOOL_ROOM_H

#include "refusal.h"

typedef enum tool_room_way { TOOL_ROOM_NONE, TOOL_ROOM_HOLE, TOOL_ROOM_SEGMENTS } tool_room_way;

typedef struct tool_room {
  uint64_t missing_bytes;    // by which the limit was exceeded; at most, if the limit is not exactly known
  bool is_exact;             // `missing_bytes` is known
  uint64_t largest_segment;  // in its place
  bool is_least;             // no other live blocks with fewer bytes make room
  bool has_hole;
  uint64_t hole_bytes;  // that are live in the cheapest hole; 0: it was free, but PyTorch did not use it
  bool has_segments;
  uint64_t segments_bytes;    // that are live in them
  uint64_t given_bytes;       // that can be given back then
  tool_room_way way;          // the cheaper one
  tide_ledger_block* blocks;  // owned; its live blocks, by address
  size_t block_count;
} tool_room;

// On failure it prints why and returns TOOL_USAGE.
int tool_room_find(const tide_trace* trace, tide_ledger* ledger, const tool_refusal* refusal,
                   const tool_limits* limits, tool_room* out);
void tool_room_fini(tool_room* room);

// The live bytes of the cheaper way.
uint64_t tool_room_bytes(const tool_room* room);

#endif
