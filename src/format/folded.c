// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Folded stacks: `device_0;outer;...;inner BYTES`, one line for each distinct stack that holds memory at the
// peak of its device, the largest first. Flame graph programs read this.
//
// A semicolon in a name would end the frame, so it is written as a colon. Stacks that differ only in hidden
// frames have the same text: lines are sorted by text, equal ones are merged, and the rest sorted by bytes.
// Cost: O(n log n) for n entries and lines; the texts of all lines are in memory at once.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "format/frames.h"
#include "format/holders.h"
#include "format/lifetimes.h"
#include "format/numbers.h"
#include "format/others.h"

typedef struct folded_line {
  uint64_t bytes;    // that the stack holds
  const char* text;  // borrowed from folded.text, once that is complete
  size_t offset;     // in folded.text
  size_t length;
} folded_line;

typedef struct folded {
  const tide_heap* heap;
  tide_frames frames;
  tide__bytes text;
  folded_line* lines;  // owned
  size_t line_count;
  size_t line_room;
} folded;

// ---------------------------------------------------------------------------------------------------
// Gathering

static tide_status folded_append_frame(folded* f, uint64_t frame) {
  char text[TIDE__FRAME_TEXT];
  const size_t bytes = tide__frames_text(&f->frames, frame, text);
  for (size_t i = 0; i < bytes; i++) {
    if (text[i] == ';') text[i] = ':';
  }
  TIDE_TRY(tide__bytes_add(&f->text, ";", 1));
  return tide__bytes_add(&f->text, text, bytes);
}

// The frames of a stack, outermost first; the trace has the innermost first.
static tide_status folded_append_stack(folded* f, uint32_t stack) {
  size_t count = 0;
  bool is_empty = true;
  const uint64_t* const frames = tide_intern_stack(f->frames.names, stack, &count);
  for (size_t i = count; i > 0; i--) {
    if (!tide__frames_is_shown(&f->frames, frames[i - 1])) continue;
    TIDE_TRY(folded_append_frame(f, frames[i - 1]));
    is_empty = false;
  }
  return is_empty ? tide__bytes_add(&f->text, ";<no-context>", strlen(";<no-context>")) : TIDE_OK;
}

static tide_status folded_add(folded* f, size_t device, const tide__holder* holder) {
  char root[32];
  const size_t offset = f->text.used;
  const int root_bytes = snprintf(root, sizeof root, "device_%zu", device);
  TIDE_TRY(tide__bytes_add(&f->text, root, (size_t)root_bytes));
  TIDE_TRY(folded_append_stack(f, holder->stack));
  TIDE_REQUIRE(
      tide__heap_grow(f->heap, (void**)&f->lines, &f->line_room, f->line_count + 1, sizeof *f->lines),
      TIDE_ERR_NO_MEMORY, "trace_write: no memory for %zu stacks", f->line_count + 1);
  f->lines[f->line_count++] =
      (folded_line){ .bytes = holder->held_bytes, .offset = offset, .length = f->text.used - offset };
  return TIDE_OK;
}

static tide_status folded_add_device(folded* f, const tide_trace* trace, size_t device) {
  tide__holders holders;
  TIDE_TRY(tide__holders_init(&holders, trace, device, f->heap));
  tide_status status = TIDE_OK;
  for (size_t i = 0; i < holders.count && status == TIDE_OK; i++) {
    if (holders.items[i].held_bytes > 0) status = folded_add(f, device, &holders.items[i]);
  }
  tide__holders_fini(&holders);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Sorting

static int folded_compare_text(const void* a, const void* b) {
  const folded_line* const x = a;
  const folded_line* const y = b;
  const int order = memcmp(x->text, y->text, tide__min(x->length, y->length));
  return order != 0 ? order : (x->length > y->length) - (x->length < y->length);
}

static int folded_compare_bytes(const void* a, const void* b) {
  const folded_line* const x = a;
  const folded_line* const y = b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return folded_compare_text(a, b);
}

// Sorts by text and merges equal lines. Sums do not overflow: the peak of a device is below 2^63 bytes.
static void folded_join(folded* f) {
  size_t kept = 0;
  for (size_t i = 0; i < f->line_count; i++)
    f->lines[i].text = (const char*)f->text.data + f->lines[i].offset;
  if (f->line_count > 0) qsort(f->lines, f->line_count, sizeof *f->lines, folded_compare_text);
  for (size_t i = 0; i < f->line_count; i++) {
    if (kept > 0 && folded_compare_text(&f->lines[kept - 1], &f->lines[i]) == 0) {
      f->lines[kept - 1].bytes += f->lines[i].bytes;
    } else {
      f->lines[kept++] = f->lines[i];
    }
  }
  f->line_count = kept;
}

// ---------------------------------------------------------------------------------------------------
// Writing

static tide_status folded_gather(folded* f, const tide_trace* trace) {
  TIDE_TRY(tide__frames_init(&f->frames, tide_trace_names(trace), f->heap));
  const size_t devices = tide__lifetimes_device_count(trace);
  for (size_t i = 0; i < devices; i++) TIDE_TRY(folded_add_device(f, trace, i));
  return TIDE_OK;
}

tide_status tide__folded_write(const tide_trace* trace, tide__output* output) {
  folded f = { .heap = output->heap, .text = { .heap = output->heap } };
  const tide_status status = folded_gather(&f, trace);
  if (status == TIDE_OK) {
    folded_join(&f);
    if (f.line_count > 0) qsort(f.lines, f.line_count, sizeof *f.lines, folded_compare_bytes);
    for (size_t i = 0; i < f.line_count; i++) {
      tide__output_bytes(output, f.lines[i].text, f.lines[i].length);
      tide__output_format(output, " %" PRIu64 "\n", f.lines[i].bytes);
    }
  }
  tide__frames_fini(&f.frames);
  tide__bytes_fini(&f.text);
  tide__heap_release(f.heap, f.lines, f.line_room, sizeof *f.lines);
  TIDE_TRY(status);
  return output->status;
}
