// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// From the table of a cache to that of a trace. Cost: O(1) for a stack or note that was copied before,
// otherwise O(its length). No lock is held while a frame is described.
#include "trace/carry.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"

#define CARRY_FRAMES 64u  // a gathered stack has no more

tide_status tide__carried_init(tide__carried* list, const tide_heap* heap, uint32_t last) {
  const size_t count = (size_t)last + 1;
  list->numbers = tide__heap_alloc(heap, count, sizeof *list->numbers);
  TIDE_REQUIRE(list->numbers != NULL, TIDE_ERR_NO_MEMORY, "snapshot: no memory for %zu names", count);
  list->count = count;
  return TIDE_OK;
}

void tide__carried_fini(tide__carried* list, const tide_heap* heap) {
  tide__heap_release(heap, list->numbers, list->count, sizeof *list->numbers);
}

tide_status tide__carry_init(tide__carry* carry) {
  const tide_intern_counts counts = tide_intern_counts_of(carry->from);
  TIDE_TRY(tide__carried_init(&carry->stacks, carry->heap, counts.stacks));
  TIDE_TRY(tide__carried_init(&carry->notes, carry->heap, counts.notes));
  return tide_intern_add_text(carry->to, "N/A", 3, &carry->no_context);
}

void tide__carry_fini(tide__carry* carry) {
  tide__carried_fini(&carry->stacks, carry->heap);
  tide__carried_fini(&carry->notes, carry->heap);
}

// ---------------------------------------------------------------------------------------------------
// Frames and stacks

static tide_status carry_words(tide__carry* carry, const char* text, uint32_t* out) {
  return tide_intern_add_text(carry->to, text, text != NULL ? strlen(text) : 0, out);
}

static tide_status carry_frame(tide__carry* carry, uint64_t number, uint64_t* out) {
  char hex[20];
  tide_frame frame = { 0 };
  tide_frame_words words = { NULL, NULL, 0 };
  uint32_t id = 0;
  if (carry->describe == NULL || !carry->describe(carry->user, number, &words)) {
    (void)snprintf(hex, sizeof hex, "0x%" PRIx64, number);
    words = (tide_frame_words){ hex, NULL, 0 };
  }
  TIDE_TRY(carry_words(carry, words.name, &frame.name));
  TIDE_TRY(carry_words(carry, words.file, &frame.file));
  frame.line = words.line;
  TIDE_TRY(tide_intern_add_frame(carry->to, &frame, &id));
  *out = id;
  return TIDE_OK;
}

tide_status tide__carry_stack(tide__carry* carry, uint32_t stack, uint32_t* out) {
  uint64_t frames[CARRY_FRAMES];
  uint32_t spare = 0;
  uint32_t* const known = tide__carried_at(&carry->stacks, stack, &spare);
  *out = 0;
  if (stack == 0) return TIDE_OK;
  if (carry->has_numbers) {
    TIDE_TRY(carry_frame(carry, stack, &frames[0]));
    return tide_intern_add_stack(carry->to, frames, 1, out);
  }
  if (*known == 0) {
    size_t count = 0;
    const uint64_t* const from = tide_intern_stack(carry->from, stack, &count);
    count = tide__min(count, CARRY_FRAMES);
    for (size_t i = 0; i < count; i++) TIDE_TRY(carry_frame(carry, from[i], &frames[i]));
    TIDE_TRY(tide_intern_add_stack(carry->to, frames, count, out));
    *known = *out + 1;
  }
  *out = *known - 1;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Notes and entries

static tide_status carry_text(tide__carry* carry, uint32_t text, uint32_t* out) {
  size_t bytes = 0;
  const char* const words = tide_intern_text(carry->from, text, &bytes);
  return tide_intern_add_text(carry->to, words, bytes, out);
}

static tide_status carry_note(tide__carry* carry, uint32_t note, uint32_t* out) {
  uint32_t spare = 0;
  uint32_t* const known = tide__carried_at(&carry->notes, note, &spare);
  if (*known == 0) {
    const tide_note from = tide_intern_note(carry->from, note);
    tide_note to = { 0, carry->no_context, 0 };
    TIDE_TRY(carry_text(carry, from.metadata, &to.metadata));
    if (from.compile_context != 0) TIDE_TRY(carry_text(carry, from.compile_context, &to.compile_context));
    TIDE_TRY(tide_intern_add_note(carry->to, to, out));
    *known = *out + 1;
  }
  *out = *known - 1;
  return TIDE_OK;
}

tide_status tide__carry_entry(tide__carry* carry, tide_trace_entry* entry) {
  entry->time_ns += carry->epoch_ns;
  if (entry->stack == 0) entry->absent |= TIDE_ENTRY_STACK;
  TIDE_TRY(tide__carry_stack(carry, entry->stack, &entry->stack));
  return carry_note(carry, entry->note, &entry->note);
}
