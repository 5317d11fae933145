// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The segments that a trace itself lists for one device: what is there when the last entry has happened. They
// tell what no entry tells (pools, small or large), where the past can be looked for from, and whether the
// entries were followed well.
#ifndef TIDEMARK_SRC_LEDGER_FINALS_H
#define TIDEMARK_SRC_LEDGER_FINALS_H

#include "ledger/layout.h"

typedef struct tide__final {
  const tide_trace_segment* segment;  // borrowed from the trace
  uint64_t made_at;  // number of the last SEGMENT_ALLOC at its address, or TIDE_LEDGER_BEFORE
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

// The one that the range of a SEGMENT_ALLOC or SEGMENT_MAP ends up in; NULL if it does not last, or is
// unknown.
const tide_trace_segment* tide__finals_of_entry(const tide__finals* finals, const tide_trace_entry* entry,
                                                uint64_t number);

// Puts all of them, and their blocks that are not inactive, into an empty layout.
// Errors: TIDE_ERR_NO_MEMORY.
tide_status tide__finals_load(const tide__finals* finals, tide__layout* layout);

// How many segments and blocks are in one and not in the other.
uint64_t tide__finals_compare(const tide__finals* finals, const tide__layout* layout);

#endif
