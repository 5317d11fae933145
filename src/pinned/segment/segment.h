// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The room `segment`: where pinned memory comes from, segments, and the depots in which idle segments lie. It
// calls the room `stats`.
//
// Inside the room: segment.c calls depot.c and reserve.c, which calls source.c.
#ifndef TIDEMARK_SRC_PINNED_SEGMENT_SEGMENT_H
#define TIDEMARK_SRC_PINNED_SEGMENT_SEGMENT_H

#include "pinned/cache.h"

static inline uint64_t tide__pin_whole_pages(const tide_pinned_cache* pinned, uint64_t bytes) {
  return (bytes + pinned->page_bytes - 1) & ~(pinned->page_bytes - 1);
}

// ---------------------------------------------------------------------------------------------------
// source.c: memory of the machine, or pages that are mapped and registered; which, depends on the size

void tide__pin_source_init(tide_pinned_cache* pinned);
tide_status tide__pin_source_take(tide_pinned_cache* pinned, uint64_t bytes, tide__pin_memory* out);
tide_status tide__pin_source_give(tide_pinned_cache* pinned, const tide__pin_memory* memory);

// ---------------------------------------------------------------------------------------------------
// reserve.c: the same, from the reserve while it has room

tide_status tide__pin_memory_take(tide_pinned_cache* pinned, uint64_t bytes, tide__pin_memory* out);
tide_status tide__pin_memory_give(tide_pinned_cache* pinned, const tide__pin_memory* memory);
// At the end of the cache: frees the records of free ranges, and gives the reserve back.
void tide__pin_ranges_free(tide_pinned_cache* pinned);
tide_status tide__pin_reserve_end(tide_pinned_cache* pinned);

// ---------------------------------------------------------------------------------------------------
// depot.c

void tide__pin_depot_init(tide__pin_depot* depot);
// Takes up to `count` idle blocks of a class, as a list; returns how many.
uint32_t tide__pin_depot_take(tide_pinned_cache* pinned, tide__pin_pool* pool, uint32_t class_index,
                              uint32_t count, tide__pin** out);
// Takes an idle block of a size without a class: the smallest that fits and is at most an eighth larger.
tide__pin* tide__pin_depot_take_sized(tide_pinned_cache* pinned, tide__pin_pool* pool, uint64_t bytes);
// Puts a list of idle blocks of one class back into their segments.
void tide__pin_depot_put(tide_pinned_cache* pinned, tide__pin_pool* pool, uint32_t class_index,
                         tide__pin* list);
// Which wholly idle segments to take out of a depot.
typedef struct tide__pin_pick {
  uint64_t least_bytes;  // only blocks of at least this size
  uint64_t keep_bytes;   // stop when at most this much is left in the depot
  // If not 0: take only segments that a sweep saw at seen_before or earlier, and mark the others as seen now.
  uint64_t now_ns;
  uint64_t seen_before;
} tide__pin_pick;
// Takes wholly idle segments out, as a list by `link`, the largest classes first. Returns how many.
uint32_t tide__pin_depot_pick(tide_pinned_cache* pinned, tide__pin_pool* pool, const tide__pin_pick* pick,
                              tide__link* out);
// Puts back a wholly idle segment that was taken out.
void tide__pin_depot_restore(tide_pinned_cache* pinned, tide__pin_segment* segment);

// ---------------------------------------------------------------------------------------------------
// segment.c

// Pins a segment for a request. The caller gets one of its blocks, the others go into the depot.
// `is_least`: a chunk is made as small as possible.
tide_status tide__pin_segment_make(const tide__pin_request* request, bool is_least, tide__pin** out);
// Gives back a list, by `link`, of wholly idle segments that are in no depot. Segments that the machine
// refuses return to the depot. *out_count (may be NULL) is how many went; returns the first failure.
tide_status tide__pin_segments_give(tide_pinned_cache* pinned, tide__link* list, uint32_t* out_count);
// Tries again to give back the memory of segments that could not be made; adds to *count those that went.
tide_status tide__pin_refused_give(tide_pinned_cache* pinned, uint32_t* count);
// At the end of the cache: frees the record of a segment, whatever the state of its blocks. The caller gets
// its memory.
void tide__pin_segment_drop(tide_pinned_cache* pinned, tide__pin_segment* segment);

#endif
