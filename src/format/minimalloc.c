// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Reads planning problems as MiniMalloc has them: a CSV with a row for each buffer, its lifetime
// [lower, upper) and its size. Columns stand in any order under one of their names; the values of a column
// "end" are inclusive. An empty line ends the problem.
//
// A buffer is an ALLOC at lower, and a FREE_REQUESTED and FREE_COMPLETED at upper; a step is 1000 ns. At one
// time the releases come first, then buffers that live for no time at all, then allocations, each by row. The
// name of a buffer is the metadata of its entries; the other columns and the number of the row are in the
// note's extra, so that a problem that was read is written with the same rows. All lies in one segment: at
// the offsets of the problem where it has some, elsewhere above these, at offsets of our own making. So does
// a buffer without size or time, or one that would lie over another (which is no fault, where that one has a
// gap): in a trace two requests have two places.
// Cost: O(n log n) for n rows; 240 bytes a row while reading, beside the trace.
#include "format/minimalloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/range_allocator.h"
#include "format/others.h"

#define MINI_BASE ((uint64_t)1 << 40)  // where the segment lies
#define MINI_ROUND 512u                // of offsets of our own making

const char* const tide__mini_columns[TIDE__MINI_COLUMNS] = { "id",        "lower", "upper", "size",
                                                             "alignment", "hint",  "gaps",  "offset" };

static const struct {
  const char* name;
  tide__mini_column column;
} mini_aliases[] = { { "buffer", TIDE__MINI_ID },
                     { "buffer_id", TIDE__MINI_ID },
                     { "begin", TIDE__MINI_LOWER },
                     { "start", TIDE__MINI_LOWER },
                     { "end", TIDE__MINI_UPPER } };

// ---------------------------------------------------------------------------------------------------
// The header

typedef struct mini_header {
  size_t place[TIDE__MINI_COLUMNS];  // of a column in a row, from 1; 0: it is not there
  size_t count;
  bool is_inclusive;  // the last step of a lifetime is in the column, not the one after it
} mini_header;

static tide__mini_column mini_column_find(tide__csv_field name) {
  for (size_t i = 0; i < TIDE__MINI_COLUMNS; i++) {
    if (tide__csv_field_is(name, tide__mini_columns[i])) return (tide__mini_column)i;
  }
  for (size_t i = 0; i < sizeof mini_aliases / sizeof mini_aliases[0]; i++) {
    if (tide__csv_field_is(name, mini_aliases[i].name)) return mini_aliases[i].column;
  }
  return TIDE__MINI_COLUMNS;
}

// NULL, or what is wrong, and in which field.
static const char* mini_header_parse(const tide__csv_field* fields, size_t count, mini_header* out,
                                     size_t* out_field) {
  *out = (mini_header){ .count = count };
  for (*out_field = 0; *out_field < count; ++*out_field) {
    if (*out_field == TIDE__CSV_FIELDS) return "too many columns";
    const tide__mini_column column = mini_column_find(fields[*out_field]);
    if (column == TIDE__MINI_COLUMNS) return "not a column of MiniMalloc";
    if (out->place[column] != 0) return "the same column again";
    out->place[column] = *out_field + 1;
    out->is_inclusive |= tide__csv_field_is(fields[*out_field], "end");
  }
  for (size_t i = 0; i < TIDE__MINI_REQUIRED; i++) {
    *out_field = TIDE__CSV_NO_FIELD;
    if (out->place[i] == 0) return "a column for id, lower, upper or size is missing";
  }
  return NULL;
}

bool tide__minimalloc_is(const void* head, size_t bytes) {
  const char* const newline = bytes > 0 ? memchr(head, '\n', bytes) : NULL;
  tide__csv_field line = { head, newline != NULL ? (size_t)(newline - (const char*)head) : bytes };
  if (newline != NULL && line.bytes > 0 && line.text[line.bytes - 1] == '\r') line.bytes--;
  if (line.bytes == 0) return false;
  tide__csv_field fields[TIDE__CSV_FIELDS];
  mini_header header;
  size_t field = 0;
  return mini_header_parse(fields, tide__csv_split(line, fields), &header, &field) == NULL;
}

// ---------------------------------------------------------------------------------------------------
// Gaps

static bool mini_take_number(tide__csv_field* rest, uint64_t* out) {
  size_t digits = 0;
  while (digits < rest->bytes && rest->text[digits] >= '0' && rest->text[digits] <= '9') digits++;
  const bool is_good = tide__csv_decimal((tide__csv_field){ rest->text, digits }, out);
  if (is_good) *rest = (tide__csv_field){ rest->text + digits, rest->bytes - digits };
  return is_good;
}

static bool mini_take_mark(tide__csv_field* rest, char mark) {
  if (rest->bytes == 0 || rest->text[0] != mark) return false;
  *rest = (tide__csv_field){ rest->text + 1, rest->bytes - 1 };
  return true;
}

bool tide__mini_gap_next(tide__csv_field* rest, tide__mini_gap* out) {
  *out = (tide__mini_gap){ 0 };
  while (mini_take_mark(rest, ' ')) {}
  tide__csv_field at = *rest;
  if (!mini_take_number(&at, &out->lower) || !mini_take_mark(&at, '-') ||
      !mini_take_number(&at, &out->upper)) {
    return false;
  }
  out->has_window = mini_take_mark(&at, '@');
  if (out->has_window && (!mini_take_number(&at, &out->first) || !mini_take_mark(&at, ':') ||
                          !mini_take_number(&at, &out->last))) {
    return false;
  }
  if (at.bytes > 0 && at.text[0] != ' ') return false;
  *rest = at;
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Rows

typedef struct mini_row {
  tide__free_range record;  // of the range that it takes, if that was our choice
  uint64_t lower;
  uint64_t upper;
  uint64_t bytes;
  uint64_t offset;
  uint32_t note;       // of its ALLOC
  uint32_t free_note;  // of its release: without the extra
  bool has_offset;     // the problem's own, and it is used
} mini_row;

typedef struct mini_event {
  uint64_t time;
  uint32_t row;
  uint8_t kind;  // a mini_event_kind
} mini_event;

typedef enum mini_event_kind { MINI_FREE, MINI_ALLOC_AND_FREE, MINI_ALLOC } mini_event_kind;

typedef struct mini_reader {
  tide__csv csv;
  const tide_heap* heap;
  tide_trace* trace;
  tide_intern* names;  // borrowed from the trace
  mini_header header;
  mini_row* rows;  // owned
  size_t row_count;
  size_t row_room;
  mini_event* events;  // owned; up to two a row
  size_t event_count;
  char* gaps;  // owned; those of one row as we write them
  size_t gaps_bytes;
  size_t gaps_room;
  uint64_t arena_bytes;
} mini_reader;

static tide__csv_field mini_field(const mini_reader* r, tide__mini_column column) {
  return r->csv.fields[r->header.place[column] - 1];
}

static tide_status mini_fail(const mini_reader* r, tide__mini_column column, const char* what) {
  return tide__csv_fail(&r->csv, r->header.place[column] - 1, what);
}

// Adds a gap to the text that is kept, with the first step after it as its upper end.
static tide_status mini_gap_add(mini_reader* r, const tide__mini_gap* gap) {
  char text[96];
  int length = snprintf(text, sizeof text, "%s%" PRIu64 "-%" PRIu64, r->gaps_bytes > 0 ? " " : "", gap->lower,
                        gap->upper + r->header.is_inclusive);
  if (gap->has_window) {
    length +=
        snprintf(text + length, sizeof text - (size_t)length, "@%" PRIu64 ":%" PRIu64, gap->first, gap->last);
  }
  const size_t need = r->gaps_bytes + (size_t)length;
  TIDE_REQUIRE(tide__heap_grow(r->heap, (void**)&r->gaps, &r->gaps_room, need, 1), TIDE_ERR_NO_MEMORY,
               "trace_read: no memory for %zu bytes of gaps", need);
  memcpy(r->gaps + r->gaps_bytes, text, (size_t)length);
  r->gaps_bytes = need;
  return TIDE_OK;
}

static tide_status mini_gaps_read(mini_reader* r) {
  tide__csv_field rest = mini_field(r, TIDE__MINI_GAPS);
  tide__mini_gap gap;
  r->gaps_bytes = 0;
  while (tide__mini_gap_next(&rest, &gap)) {
    if (gap.upper == INT64_MAX && r->header.is_inclusive)
      return mini_fail(r, TIDE__MINI_GAPS, "a number too large");
    TIDE_TRY(mini_gap_add(r, &gap));
  }
  return rest.bytes == 0 ? TIDE_OK : mini_fail(r, TIDE__MINI_GAPS, "not gaps as in 3-5 or 3-5@0:64");
}

// The value of an optional column as it is kept.
static tide_status mini_value_read(mini_reader* r, tide__mini_column column, tide_value* out) {
  tide__csv_field field = mini_field(r, column);
  uint64_t number = 0;
  *out = (tide_value){ .kind = TIDE_VALUE_INT };
  if (column == TIDE__MINI_GAPS) {
    out->kind = TIDE_VALUE_TEXT;
    TIDE_TRY(mini_gaps_read(r));
    return tide_intern_add_text(r->names, r->gaps_bytes > 0 ? r->gaps : "", r->gaps_bytes, &out->text);
  }
  const bool is_negative = column == TIDE__MINI_HINT && mini_take_mark(&field, '-');
  if (!tide__csv_decimal(field, &number)) return mini_fail(r, column, "not a number, or too large");
  if (column == TIDE__MINI_ALIGNMENT && number == 0) return mini_fail(r, column, "an alignment of 0");
  out->integer = is_negative ? -(int64_t)number : (int64_t)number;
  return TIDE_OK;
}

static tide_status mini_extra_add(mini_reader* r, const char* key, const tide_value* value, tide_value* dict,
                                  uint64_t* items) {
  uint32_t text = 0;
  uint32_t number = 0;
  TIDE_TRY(tide_intern_add_text(r->names, key, strlen(key), &text));
  TIDE_TRY(tide_intern_add_value(r->names, value, &number));
  items[dict->count++] = (uint64_t)text << 32 | number;
  return TIDE_OK;
}

// Reads the optional columns; the offset is also the row's.
static tide_status mini_extra_read(mini_reader* r, mini_row* row, uint32_t* out) {
  uint64_t items[1 + TIDE__MINI_COLUMNS];
  tide_value dict = { .kind = TIDE_VALUE_DICT, .items = items };
  const tide_value place = { .kind = TIDE_VALUE_INT, .integer = (int64_t)r->row_count };
  TIDE_TRY(mini_extra_add(r, TIDE__MINI_KEY_ROW, &place, &dict, items));
  for (tide__mini_column i = TIDE__MINI_REQUIRED; i < TIDE__MINI_COLUMNS; i++) {
    tide_value value;
    if (r->header.place[i] == 0) continue;
    TIDE_TRY(mini_value_read(r, i, &value));
    TIDE_TRY(mini_extra_add(r, tide__mini_columns[i], &value, &dict, items));
    if (i != TIDE__MINI_OFFSET) continue;
    row->offset = (uint64_t)value.integer;
    row->has_offset = row->bytes > 0 && row->lower < row->upper;
  }
  return tide_intern_add_value(r->names, &dict, out);
}

static tide_status mini_numbers_read(mini_reader* r, mini_row* row) {
  const uint64_t time_limit = INT64_MAX / TIDE__MINI_STEP_NS;
  if (!tide__csv_decimal(mini_field(r, TIDE__MINI_LOWER), &row->lower) || row->lower > time_limit) {
    return mini_fail(r, TIDE__MINI_LOWER, "not a time, or too large");
  }
  if (!tide__csv_decimal(mini_field(r, TIDE__MINI_UPPER), &row->upper) || row->upper >= time_limit) {
    return mini_fail(r, TIDE__MINI_UPPER, "not a time, or too large");
  }
  row->upper += r->header.is_inclusive;
  if (row->upper < row->lower) return mini_fail(r, TIDE__MINI_UPPER, "ends before it begins");
  if (!tide__csv_decimal(mini_field(r, TIDE__MINI_SIZE), &row->bytes)) {
    return mini_fail(r, TIDE__MINI_SIZE, "not a size, or too large");
  }
  return TIDE_OK;
}

static tide_status mini_row_read(mini_reader* r) {
  mini_row row = { 0 };
  tide_note note = { 0 };
  if (r->csv.field_count != r->header.count) {
    return tide__csv_fail(&r->csv, TIDE__CSV_NO_FIELD, "another number of fields than the header has");
  }
  TIDE_REQUIRE(r->row_count < UINT32_MAX / 2, TIDE_ERR_LIMIT, "trace_read: more than 2^31 buffers");
  TIDE_TRY(mini_numbers_read(r, &row));
  const tide__csv_field id = mini_field(r, TIDE__MINI_ID);
  TIDE_TRY(tide_intern_add_text(r->names, id.text, id.bytes, &note.metadata));
  TIDE_TRY(tide_intern_add_note(r->names, note, &row.free_note));
  TIDE_TRY(mini_extra_read(r, &row, &note.extra));
  TIDE_TRY(tide_intern_add_note(r->names, note, &row.note));
  if (row.has_offset && row.offset > INT64_MAX - row.bytes)
    return mini_fail(r, TIDE__MINI_OFFSET, "ends too high");
  if (row.has_offset) r->arena_bytes = tide__max(r->arena_bytes, row.offset + row.bytes);
  TIDE_REQUIRE(tide__heap_grow(r->heap, (void**)&r->rows, &r->row_room, r->row_count + 1, sizeof *r->rows),
               TIDE_ERR_NO_MEMORY, "trace_read: no memory for %zu buffers", r->row_count + 1);
  r->rows[r->row_count++] = row;
  return TIDE_OK;
}

// A problem of which the end is missing is another problem, so a last line that may be cut is refused.
static tide_status mini_line_read(mini_reader* r) {
  TIDE_TRY(tide__csv_next(&r->csv));
  if (r->csv.state != TIDE__CSV_LINE_CUT) return TIDE_OK;
  return tide__csv_fail(&r->csv, TIDE__CSV_NO_FIELD, "no newline at the end: the file may be cut off");
}

static tide_status mini_rows_read(mini_reader* r) {
  for (;;) {
    TIDE_TRY(mini_line_read(r));
    if (r->csv.state == TIDE__CSV_END) return TIDE_OK;
    if (r->csv.line.bytes == 0) return tide__input_drain(r->csv.input);
    TIDE_TRY(mini_row_read(r));
  }
}

// ---------------------------------------------------------------------------------------------------
// Events

static int mini_event_compare(const void* a, const void* b) {
  const mini_event* const x = a;
  const mini_event* const y = b;
  if (x->time != y->time) return x->time < y->time ? -1 : 1;
  if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
  return (x->row > y->row) - (x->row < y->row);
}

static tide_status mini_events_make(mini_reader* r) {
  r->events = tide__heap_alloc(r->heap, 2 * r->row_count, sizeof *r->events);
  TIDE_REQUIRE(r->events != NULL, TIDE_ERR_NO_MEMORY, "trace_read: no memory for %zu buffers", r->row_count);
  for (size_t i = 0; i < r->row_count; i++) {
    const mini_row* const row = &r->rows[i];
    const bool has_time = row->lower < row->upper;
    const mini_event_kind kind = has_time ? MINI_ALLOC : MINI_ALLOC_AND_FREE;
    r->events[r->event_count++] = (mini_event){ row->lower, (uint32_t)i, (uint8_t)kind };
    if (has_time) r->events[r->event_count++] = (mini_event){ row->upper, (uint32_t)i, MINI_FREE };
  }
  qsort(r->events, r->event_count, sizeof *r->events, mini_event_compare);
  return TIDE_OK;
}

// Is there nothing over the place that a buffer has in the problem? `placed` has what is there, by offset.
static bool mini_is_free(const tide__tree* placed, const mini_row* row) {
  const tide__tree_node* const below = tide__tree_floor(placed, row->offset);
  const tide__tree_node* const above = tide__tree_ceiling(placed, row->offset);
  if (above != NULL && above->key < row->offset + row->bytes) return false;
  if (below == NULL) return true;
  const mini_row* const other = TIDE_OWNER_CONST(below, mini_row, record.by_offset);
  return other->offset + other->bytes <= row->offset;
}

// Keeps the buffers that lie where the problem has them; one that cannot is from now on without an offset.
static void mini_place_given(tide__tree* placed, mini_row* row, mini_event_kind kind) {
  if (kind == MINI_FREE) {
    tide__tree_remove(placed, &row->record.by_offset);
    return;
  }
  row->has_offset = mini_is_free(placed, row);
  row->record.by_offset = (tide__tree_node){ .key = row->offset };
  if (row->has_offset) (void)tide__tree_insert(placed, &row->record.by_offset);
}

static uint64_t mini_rounded(const mini_row* row) {
  uint64_t bytes = 0;
  (void)tide__align_up(tide__max(row->bytes, 1), MINI_ROUND, &bytes);
  return bytes;
}

// Takes the smallest range that fits, or makes the line longer, by no more than up to `most`.
static bool mini_place_freely(tide__range_allocator* ranges, mini_row* row, uint64_t most) {
  const uint64_t bytes = mini_rounded(row);
  return tide__range_take(ranges, &row->record, bytes, &row->offset) ||
         (tide__range_take_end(ranges, &row->record, bytes, false, &row->offset) && ranges->end <= most);
}

// Finds offsets for the buffers that have none, above those that have.
static tide_status mini_place(mini_reader* r) {
  tide__range_allocator ranges = { 0 };
  tide__tree placed = { 0 };
  uint64_t first = 0;
  (void)tide__align_up(r->arena_bytes, MINI_ROUND, &first);
  for (size_t i = 0; i < r->event_count; i++) {
    mini_row* const row = &r->rows[r->events[i].row];
    if (row->has_offset) mini_place_given(&placed, row, (mini_event_kind)r->events[i].kind);
    if (row->has_offset) continue;
    if (r->events[i].kind != MINI_FREE) {
      TIDE_REQUIRE(mini_place_freely(&ranges, row, INT64_MAX - first), TIDE_ERR_LIMIT,
                   "trace_read: the buffers need more than 2^63 bytes");
      row->offset += first;
    }
    if (r->events[i].kind != MINI_ALLOC) {
      (void)tide__range_give(&ranges, row->offset - first, mini_rounded(row));
    }
  }
  if (ranges.end > 0) r->arena_bytes = first + ranges.end;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The trace

static tide_status mini_add_entry(mini_reader* r, tide_action action, const mini_event* event) {
  const mini_row* const row = &r->rows[event->row];
  const tide_trace_entry entry = {
    .time_ns = event->time * TIDE__MINI_STEP_NS,
    .address = MINI_BASE + row->offset,
    .bytes = row->bytes,
    .note = action == TIDE_ACTION_ALLOC ? row->note : row->free_note,
    .action = (uint8_t)action,
    .absent = TIDE_ENTRY_COMPILE_CONTEXT | TIDE_ENTRY_STACK | TIDE_ENTRY_POOL,
  };
  return tide_trace_add_entry(r->trace, &entry);
}

static tide_status mini_add_event(mini_reader* r, const mini_event* event) {
  if (event->kind != MINI_FREE) TIDE_TRY(mini_add_entry(r, TIDE_ACTION_ALLOC, event));
  if (event->kind == MINI_ALLOC) return TIDE_OK;
  TIDE_TRY(mini_add_entry(r, TIDE_ACTION_FREE_REQUESTED, event));
  return mini_add_entry(r, TIDE_ACTION_FREE_COMPLETED, event);
}

// The segment around all buffers, made before the first one, and empty in the end.
static tide_status mini_add_segment(mini_reader* r) {
  const tide_trace_entry entry = {
    .time_ns = r->events[0].time * TIDE__MINI_STEP_NS,
    .address = MINI_BASE,
    .bytes = r->arena_bytes,
    .action = TIDE_ACTION_SEGMENT_ALLOC,
    .absent = TIDE_ENTRY_COMPILE_CONTEXT | TIDE_ENTRY_METADATA | TIDE_ENTRY_STACK | TIDE_ENTRY_POOL,
  };
  const tide_trace_segment segment = { .address = MINI_BASE, .bytes = r->arena_bytes, .is_large = true };
  const tide_trace_block block = { .address = MINI_BASE,
                                   .bytes = r->arena_bytes,
                                   .state = TIDE_BLOCK_INACTIVE };
  TIDE_TRY(tide_trace_add_entry(r->trace, &entry));
  TIDE_TRY(tide_trace_add_segment(r->trace, &segment));
  return tide_trace_add_block(r->trace, &block);
}

static tide_status mini_trace_make(mini_reader* r) {
  if (r->row_count == 0) return TIDE_OK;
  TIDE_TRY(mini_events_make(r));
  TIDE_TRY(mini_place(r));
  TIDE_TRY(mini_add_segment(r));
  for (size_t i = 0; i < r->event_count; i++) TIDE_TRY(mini_add_event(r, &r->events[i]));
  return TIDE_OK;
}

static tide_status mini_read(mini_reader* r) {
  size_t field = 0;
  TIDE_TRY(tide_trace_add_device(r->trace, 0));
  TIDE_TRY(mini_line_read(r));
  const char* const fault = mini_header_parse(r->csv.fields, r->csv.field_count, &r->header, &field);
  if (fault != NULL) return tide__csv_fail(&r->csv, field, fault);
  TIDE_TRY(mini_rows_read(r));
  return mini_trace_make(r);
}

tide_status tide__minimalloc_read(tide__input* input, tide_trace* trace) {
  mini_reader r = { .csv = { .input = input }, .heap = input->heap, .trace = trace };
  r.names = tide_trace_names(trace);
  const tide_status status = mini_read(&r);
  const tide_trace_about about = { .has_segments = true, .has_entries = true, .has_steps = true };
  if (status == TIDE_OK) tide_trace_set_about(trace, &about);
  tide__heap_release(r.heap, r.rows, r.row_room, sizeof *r.rows);
  tide__heap_release(r.heap, r.events, 2 * r.row_count, sizeof *r.events);
  tide__heap_release(r.heap, r.gaps, r.gaps_room, 1);
  return status;
}
