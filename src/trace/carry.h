// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Copies the texts, stacks and notes of entries from the table of a cache to that of a trace, each distinct
// stack and note once. In the table of the cache a frame is what was gathered; in that of the trace it is the
// number of a tide_frame.
#ifndef TIDEMARK_SRC_TRACE_CARRY_H
#define TIDEMARK_SRC_TRACE_CARRY_H

#include "tidemark/trace.h"

// Numbers in the trace + 1, by the numbers in the cache; 0: not copied yet.
typedef struct tide__carried {
  uint32_t* numbers;  // owned
  size_t count;
} tide__carried;

typedef struct tide__carry {
  const tide_heap* heap;    // borrowed until fini
  const tide_intern* from;  // borrowed until fini
  tide_intern* to;          // likewise
  // (optional) Names a frame: see tide_snapshot_options.
  bool (*describe)(void* user, uint64_t frame, tide_frame_words* out);
  void* user;
  uint64_t epoch_ns;  // added to times
  bool has_numbers;   // stacks are numbers of the caller, each for one frame
  tide__carried stacks;
  tide__carried notes;
  uint32_t no_context;  // the text for "no compile context"
} tide__carry;

// Sets the last three fields; the caller sets the others.
// Errors: TIDE_ERR_NO_MEMORY; tide__carry_fini() must still be called.
tide_status tide__carry_init(tide__carry* carry);
void tide__carry_fini(tide__carry* carry);

tide_status tide__carry_stack(tide__carry* carry, uint32_t stack, uint32_t* out);
// Converts the time, the stack and the note of an entry to those of the trace.
tide_status tide__carry_entry(tide__carry* carry, tide_trace_entry* entry);

// Room for the numbers from 0 to `last`.
tide_status tide__carried_init(tide__carried* list, const tide_heap* heap, uint32_t last);
void tide__carried_fini(tide__carried* list, const tide_heap* heap);
// The place of the number in the trace. A number that was added later has no place; it is copied each time,
// and `spare` is used.
static inline uint32_t* tide__carried_at(const tide__carried* list, uint32_t number, uint32_t* spare) {
  *spare = 0;
  return number < list->count ? &list->numbers[number] : spare;
}

#endif
