// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The segments that a trace lists for one device: the state after the last entry. They tell what entries do
// not (pools, small or large). The search for the state before the first entry begins with them, and they
// show whether the entries were followed correctly.
#ifndef TIDEMARK_SRC_LEDGER_FINALS_H
#define TIDEMARK_SRC_LEDGER_FINALS_H

#include "ledger/layout.h"

typedef struct tide__final {
  const tide_trace_segment* segment;  // borrowed from the trace
  uint64_t made_at;  // number of the last SEGMENT_ALLOC at its address, or TIDE_LEDGER_BEFORE
  bool is_parked;
} tide__final;

typedef struct tide__finals {
  const tide_trace_block* blocks;  // of the trace; borrowed from it
  tide__final* items;              // owned; by address
  size_t count;
  size_t room;  // of items
} tide__finals;

// Errors: TIDE_ERR_NO_MEMORY.
tide_status tide__finals_init(tide__finals* finals, const tide_trace* trace, size_t device);
void tide__finals_fini(tide__finals* finals, const tide_heap* heap);

// The final segment that contains the range of a SEGMENT_ALLOC or SEGMENT_MAP; NULL if it does not last, or
// is unknown.
const tide_trace_segment* tide__finals_of_entry(const tide__finals* finals, const tide_trace_entry* entry,
                                                uint64_t number);

// Adds all of them, with their active blocks, to an empty layout.
// Errors: TIDE_ERR_NO_MEMORY.
tide_status tide__finals_load(const tide__finals* finals, tide__layout* layout);

// The number of segments and blocks that differ.
uint64_t tide__finals_compare(const tide__finals* finals, const tide__layout* layout);

#endif
