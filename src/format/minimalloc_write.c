// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Writes a trace as a planning problem for MiniMalloc: a row for each request of its one device.
//
// Times are steps if the trace has those, or if all requests came from a planning problem, by whatever
// formats in between; then sizes are as requested. For other traces times are numbers of entries, and sizes
// are rounded up to 512 bytes, which is what allocators of device memory do. What is never released ends
// after the last entry; what was there before the first has no row. Requests that came from a planning
// problem stand in its order under their names, with the columns it had; others in the order of their
// entries, named by their metadata if no other has it, it is no number, and fits into a field.
// Cost: O(n log n) for n entries; the memory of tide__lifetimes, 24 bytes a row and one a text.
#include "format/minimalloc.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "format/lifetimes.h"
#include "format/others.h"

#define MINI_WRITE_ROUND 512u

typedef struct mini_order {
  uint64_t row;     // in the problem that it came from, or its place among the requests
  size_t lifetime;  // its place in lifetimes.items
} mini_order;

typedef struct mini_writer {
  const tide_intern* names;  // borrowed from the trace
  tide__output* output;      // caller keeps
  tide__lifetimes lifetimes;
  mini_order* order;  // owned
  size_t count;
  uint8_t* uses;  // owned; by text: of how many requests it is the metadata, 2 for more
  size_t text_count;
  size_t column_uses[TIDE__MINI_COLUMNS];  // how many requests have a value for it
  bool has_steps;                          // times are
  bool has_rows;                           // all requests came from a planning problem
} mini_writer;

// ---------------------------------------------------------------------------------------------------
// What is kept of the columns

static tide_note mini_note(const mini_writer* w, const tide__lifetime* lifetime) {
  return tide_intern_note(w->names, lifetime->note);
}

// The number under a key, if there is one of at least `least`.
static bool mini_kept_number(const mini_writer* w, uint32_t extra, const char* key, int64_t least,
                             int64_t* out) {
  const tide_value value = tide_intern_value(w->names, tide_intern_value_find(w->names, extra, key));
  *out = value.integer;
  return value.kind == TIDE_VALUE_INT && value.integer >= least;
}

static bool mini_kept_gaps(const mini_writer* w, uint32_t extra, tide__csv_field* out) {
  const char* const key = tide__mini_columns[TIDE__MINI_GAPS];
  const tide_value value = tide_intern_value(w->names, tide_intern_value_find(w->names, extra, key));
  if (value.kind != TIDE_VALUE_TEXT) return false;
  const char* const text = tide_intern_text(w->names, value.text, &out->bytes);
  out->text = out->bytes > 0 ? text : "";
  tide__csv_field rest = *out;
  tide__mini_gap gap;
  while (tide__mini_gap_next(&rest, &gap)) {}
  return rest.bytes == 0;
}

// Has a request a value for an optional column?
static bool mini_has_kept(const mini_writer* w, uint32_t extra, tide__mini_column column) {
  static const int64_t least[TIDE__MINI_COLUMNS] = {
    [TIDE__MINI_ALIGNMENT] = 1, [TIDE__MINI_HINT] = INT64_MIN
  };
  int64_t number = 0;
  tide__csv_field gaps;
  if (column == TIDE__MINI_GAPS) return mini_kept_gaps(w, extra, &gaps);
  return mini_kept_number(w, extra, tide__mini_columns[column], least[column], &number);
}

// ---------------------------------------------------------------------------------------------------
// Looking through the requests

static int mini_order_compare(const void* a, const void* b) {
  const mini_order* const x = a;
  const mini_order* const y = b;
  if (x->row != y->row) return x->row < y->row ? -1 : 1;
  return (x->lifetime > y->lifetime) - (x->lifetime < y->lifetime);
}

static void mini_look_at(mini_writer* w, size_t index) {
  const tide_note note = mini_note(w, &w->lifetimes.items[index]);
  int64_t row = 0;
  w->has_rows &= mini_kept_number(w, note.extra, TIDE__MINI_KEY_ROW, 0, &row);
  w->order[w->count++] = (mini_order){ (uint64_t)row, index };
  if (note.metadata < w->text_count && w->uses[note.metadata] < 2) w->uses[note.metadata]++;
  for (tide__mini_column i = TIDE__MINI_REQUIRED; i < TIDE__MINI_COLUMNS; i++) {
    w->column_uses[i] += mini_has_kept(w, note.extra, i);
  }
}

static tide_status mini_look(mini_writer* w) {
  w->text_count = (size_t)tide_intern_counts_of(w->names).texts + 1;
  w->uses = tide__heap_alloc(w->output->heap, w->text_count, sizeof *w->uses);
  w->order = tide__heap_alloc(w->output->heap, w->lifetimes.count + 1, sizeof *w->order);
  TIDE_REQUIRE(w->uses != NULL && w->order != NULL, TIDE_ERR_NO_MEMORY, "trace_write: no memory for %zu rows",
               w->lifetimes.count);
  w->has_rows = true;
  for (size_t i = 0; i < w->lifetimes.count; i++) {
    if (w->lifetimes.items[i].begin != 0) mini_look_at(w, i);
  }
  w->has_steps |= w->has_rows;
  for (size_t i = 0; i < w->count && !w->has_rows; i++) w->order[i].row = i;
  qsort(w->order, w->count, sizeof *w->order, mini_order_compare);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Rows

static bool mini_is_safe(const char* text, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) {
    if (text[i] == ',' || text[i] == '\n' || text[i] == '\r') return false;
  }
  return true;
}

static void mini_put_id(const mini_writer* w, const tide__lifetime* lifetime, size_t place) {
  const uint32_t metadata = mini_note(w, lifetime).metadata;
  uint64_t number = 0;
  tide__csv_field id = { "", 0 };
  const char* const text = tide_intern_text(w->names, metadata, &id.bytes);
  if (id.bytes > 0) id.text = text;
  const bool is_own = metadata != 0 && metadata < w->text_count && w->uses[metadata] == 1 &&
                      !tide__csv_decimal(id, &number);
  if ((w->has_rows || is_own) && mini_is_safe(id.text, id.bytes)) {
    tide__output_bytes(w->output, id.text, id.bytes);
  } else {
    tide__output_uint(w->output, place);
  }
}

// A moment of the lifetimes as a time of the problem.
static uint64_t mini_time(const mini_writer* w, uint64_t moment) {
  const size_t count = w->lifetimes.entry_count;
  const bool is_never = moment == TIDE__MOMENT_NEVER;
  if (!w->has_steps) return is_never ? count : moment - 1;
  const uint64_t step = w->lifetimes.entries[is_never ? count - 1 : moment - 1].time_ns / TIDE__MINI_STEP_NS;
  return step + is_never;
}

static void mini_put_optional(const mini_writer* w, uint32_t extra, tide__mini_column column) {
  static const int64_t otherwise[TIDE__MINI_COLUMNS] = { [TIDE__MINI_ALIGNMENT] = 1, [TIDE__MINI_HINT] = -1 };
  tide__csv_field gaps;
  int64_t number = 0;
  const bool is_kept = mini_has_kept(w, extra, column);
  tide__output_byte(w->output, ',');
  if (column != TIDE__MINI_GAPS) {
    (void)mini_kept_number(w, extra, tide__mini_columns[column], 0, &number);
    tide__output_int(w->output, is_kept ? number : otherwise[column]);
  } else if (is_kept && mini_kept_gaps(w, extra, &gaps)) {
    tide__output_bytes(w->output, gaps.text, gaps.bytes);
  }
}

// An offset stands in a solution, so there is one for all buffers or for none.
static bool mini_has_column(const mini_writer* w, tide__mini_column column) {
  if (column < TIDE__MINI_REQUIRED) return true;
  return w->count > 0 && w->column_uses[column] >= (column == TIDE__MINI_OFFSET ? w->count : 1);
}

static void mini_put_row(const mini_writer* w, size_t place) {
  const tide__lifetime* const lifetime = &w->lifetimes.items[w->order[place].lifetime];
  uint64_t bytes = lifetime->bytes;
  if (!w->has_steps) (void)tide__align_up(bytes, MINI_WRITE_ROUND, &bytes);
  mini_put_id(w, lifetime, place);
  tide__output_format(w->output, ",%" PRIu64 ",%" PRIu64 ",%" PRIu64, mini_time(w, lifetime->begin),
                      mini_time(w, lifetime->end), bytes);
  for (tide__mini_column i = TIDE__MINI_REQUIRED; i < TIDE__MINI_COLUMNS; i++) {
    if (mini_has_column(w, i)) mini_put_optional(w, mini_note(w, lifetime).extra, i);
  }
  tide__output_byte(w->output, '\n');
}

static void mini_put_all(const mini_writer* w) {
  for (tide__mini_column i = 0; i < TIDE__MINI_COLUMNS; i++) {
    if (!mini_has_column(w, i)) continue;
    tide__output_text(w->output, i > 0 ? "," : "");
    tide__output_text(w->output, tide__mini_columns[i]);
  }
  tide__output_byte(w->output, '\n');
  for (size_t i = 0; i < w->count; i++) mini_put_row(w, i);
}

// ---------------------------------------------------------------------------------------------------
// The problem

static bool mini_has_requests(const tide_trace* trace, size_t device) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, device, &count);
  for (size_t i = 0; i < count; i++) {
    if (entries[i].action == TIDE_ACTION_ALLOC) return true;
  }
  return false;
}

// A problem is about one arena, so about one device.
static tide_status mini_find_device(const tide_trace* trace, size_t* out) {
  bool is_found = false;
  *out = 0;
  for (size_t i = 0; i < tide_trace_device_count(trace); i++) {
    if (!mini_has_requests(trace, i)) continue;
    TIDE_REQUIRE(!is_found, TIDE_ERR_LIMIT,
                 "trace_write: a planning problem has one device, the trace has requests on %zu and %zu",
                 *out, i);
    is_found = true;
    *out = i;
  }
  return TIDE_OK;
}

tide_status tide__minimalloc_write(const tide_trace* trace, tide__output* output) {
  size_t device = 0;
  mini_writer w = { .names = tide_trace_names(trace), .output = output };
  w.has_steps = tide_trace_get_about(trace).has_steps;
  TIDE_TRY(mini_find_device(trace, &device));
  TIDE_TRY(tide__lifetimes_init(&w.lifetimes, trace, device, TIDE__LIFETIMES_OF_REQUESTS, output->heap));
  const tide_status status = mini_look(&w);
  if (status == TIDE_OK) mini_put_all(&w);
  tide__heap_release(output->heap, w.uses, w.text_count, sizeof *w.uses);
  tide__heap_release(output->heap, w.order, w.lifetimes.count + 1, sizeof *w.order);
  tide__lifetimes_fini(&w.lifetimes);
  TIDE_TRY(status);
  return output->status;
}
