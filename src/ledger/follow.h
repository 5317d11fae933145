// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Applies the entries of a trace to a layout, forward and backward.
#ifndef TIDEMARK_SRC_LEDGER_FOLLOW_H
#define TIDEMARK_SRC_LEDGER_FOLLOW_H

#include "ledger/finals.h"

// Applies an entry to a layout that was prepared.
tide__oddity tide__follow_entry(tide__layout* layout, const tide__finals* finals,
                                const tide_trace_entry* entry, uint64_t number);

// The range that a SEGMENT_ALLOC or SEGMENT_MAP adds.
tide__span tide__follow_span(const tide__finals* finals, const tide_trace_entry* entry, uint64_t number);

// The state before the first entry, found from the end.
typedef struct tide__before {
  tide__span* spans;  // owned; by address
  size_t span_count;
  size_t span_room;
  tide__placing* blocks;  // owned; by address; those that were not inactive
  size_t block_count;
  size_t block_room;
  uint64_t bytes;  // of the blocks
} tide__before;

// Undoes all entries, beginning with the final segments of the trace. The layout must be empty.
// Errors: TIDE_ERR_NO_MEMORY.
tide_status tide__before_find(tide__before* before, tide__layout* layout, const tide__finals* finals,
                              const tide_trace_entry* entries, uint64_t count);
// Adds it to an empty layout.
tide_status tide__before_load(const tide__before* before, tide__layout* layout);
void tide__before_fini(tide__before* before, const tide_heap* heap);

#endif
