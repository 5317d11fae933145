// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Growths: ranges of reserved memory by the entry that added them, and why the cache had to grow then. The
// causes are defined in tidemark/ledger.h. The ledger merges ranges of expandable segments, so they are
// followed here once more, each for itself.
#ifndef TIDEMARK_SRC_LEDGER_GROWTHS_H
#define TIDEMARK_SRC_LEDGER_GROWTHS_H

#include "ledger/follow.h"

typedef struct tide__growths {
  const tide_heap* heap;  // borrowed until fini
  tide__tree ranges;      // by address; without overlaps
  tide__stock range_stock;
  tide_growth* items;  // owned; of the ranges at the end, the oldest first
  size_t count;
  size_t room;
  tide_ledger_place* places;  // owned; of the last growth that was judged
  size_t place_count;
  size_t place_room;
} tide__growths;

void tide__growths_init(tide__growths* growths, const tide_heap* heap);
void tide__growths_fini(tide__growths* growths);

// Finds what is left after the first `count` entries, whose layout must be given: each byte of its spans
// belongs to one growth. The cause is not known yet.
// Errors: TIDE_ERR_NO_MEMORY.
tide_status tide__growths_find(tide__growths* growths, const tide__before* before,
                               const tide_trace_entry* entries, uint64_t count, const tide__layout* layout);

// Finds the request of a growth among all `count` entries.
void tide__growth_find_request(tide_growth* growth, const tide__rules* rules, const tide_trace_entry* entries,
                               uint64_t count);
// The number of the first entry that made memory grow for the same request.
uint64_t tide__growth_first(const tide_growth* growth, const tide_trace_entry* entries);
// Finds the cause in the layout before that entry, if the request is known. It adds up the tiles only of
// spans that changed since the last call: between the calls, tide__growths_touch() must follow every entry,
// or the layout must have a new generation.
// Errors: TIDE_ERR_NO_MEMORY.
tide_status tide__growth_judge(tide__growths* growths, tide__layout* layout, tide_growth* growth);
// Is a part of the range of a growth parked in this layout? Then it is TIDE_GROWTH_UNPARKED, and has no
// request.
bool tide__growth_is_unparked(const tide__layout* layout, const tide_growth* growth);
// Notes which spans an entry changed, after it.
void tide__growths_touch(tide__layout* layout, const tide_trace_entry* entry);

#endif
