// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Shows the segments of an allocator to a visitor, which may call the allocator. First the allocator notes
// its segments, under its locks. They are sorted by address. Then the allocator copies them one by one and
// shows each copy with no lock held. A segment that is gone by then is omitted.
#ifndef TIDEMARK_SRC_CORE_VISIT_H
#define TIDEMARK_SRC_CORE_VISIT_H

#include "tidemark/cache.h"

typedef struct tide__visit {
  const tide_heap* heap;               // borrowed until fini
  const tide_device_visitor* visitor;  // borrowed until fini
  const char* call;                    // names the call in errors
  size_t note_bytes;  // of what the allocator notes of a segment; the first 8 are its address
  void* notes;        // owned
  size_t count;
  size_t capacity;
  uint64_t active_bytes;  // of the segments shown so far
} tide__visit;

// Makes room for `more` notes. Errors: TIDE_ERR_NO_MEMORY.
tide_status tide__visit_reserve(tide__visit* visit, size_t more);
// A place for the next note; there must be room.
static inline void* tide__visit_next_note(tide__visit* visit) {
  return (char*)visit->notes + visit->count++ * visit->note_bytes;
}
void tide__visit_fini(tide__visit* visit);

// Calls `show` for each note, by rising address, until it returns false.
void tide__visit_show(tide__visit* visit, bool (*show)(tide__visit* visit, void* note));
// Shows a segment, or some of its blocks. Returns false if the visitor ended the visit.
bool tide__visit_segment(tide__visit* visit, const tide_segment_info* segment);
bool tide__visit_blocks(const tide__visit* visit, const tide_block_info* blocks, size_t count);

#endif
