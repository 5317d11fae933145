// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Converts a planning problem to a trace.
//
// A buffer is an ALLOC at lower, and a FREE_REQUESTED and FREE_COMPLETED at upper; a step is 1000 ns. At
// equal times, releases come first, then buffers with an empty lifetime, then allocations, each by row. The
// name of a buffer is the metadata of its entries. The other columns and the row number are in the note's
// extra, so that the trace can be converted back.
//
// All buffers are in one segment. A buffer with an offset is there. All others are above these, at offsets
// that are invented here: buffers without an offset, without size or time, and those whose offset would
// overlap another buffer. Such an overlap is valid if the other buffer has a gap, but not in a trace.
// Cost: O(n log n) for n buffers; temporarily 168 bytes per buffer beside the trace.
#include <stdlib.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/range_allocator.h"
#include "format/numbers.h"
#include "format/problem.h"
#include "trace/limit.h"

#define TRACE_BASE ((uint64_t)1 << 40)  // address of the segment
#define TRACE_ROUND 512u                // alignment of invented offsets

// The offset of a buffer, and the notes of its entries.
typedef struct trace_row {
  tide__free_range record;  // of its range, if its offset is made up; by_offset: among the given ones
  uint64_t offset;
  uint32_t note;       // of its ALLOC
  uint32_t free_note;  // of its release: without the extra
  bool is_given;       // the offset is that of the problem
} trace_row;

typedef enum trace_event_kind { TRACE_FREE, TRACE_ALLOC_AND_FREE, TRACE_ALLOC } trace_event_kind;

typedef struct trace_event {
  uint64_t time;
  uint32_t row;
  uint8_t kind;  // a trace_event_kind
} trace_event;

typedef struct trace_maker {
  const tide_problem* problem;  // borrowed
  tide_trace* trace;            // borrowed
  tide_intern* names;           // borrowed from the trace
  const tide_heap* heap;        // borrowed from the trace
  trace_row* rows;              // owned
  trace_event* events;          // owned; up to two a row
  size_t event_count;
  tide__bytes text;  // the gaps of one row
  uint64_t segment_bytes;
} trace_maker;

// ---------------------------------------------------------------------------------------------------
// Notes

static tide_status extra_gaps(trace_maker* m, const tide_plan_buffer* buffer, tide_value* out) {
  m->text.used = 0;
  for (size_t i = 0; i < buffer->gap_count; i++) {
    TIDE_TRY(tide__bytes_reserve(&m->text, TIDE__MINI_GAP_TEXT + 1));
    if (i > 0) tide__bytes_put_byte(&m->text, ' ');
    m->text.used += tide__mini_gap_print(&buffer->gaps[i], (char*)m->text.data + m->text.used);
  }
  *out = (tide_value){ .kind = TIDE_VALUE_TEXT };
  return tide_intern_add_text(m->names, (const char*)m->text.data, m->text.used, &out->text);
}

static tide_status extra_value(trace_maker* m, size_t row, tide__mini_column column, tide_value* out) {
  const tide_plan_buffer* const buffer = &m->problem->buffers[row];
  *out = (tide_value){ .kind = TIDE_VALUE_INT };
  switch (column) {
    case TIDE__MINI_ALIGNMENT: out->integer = (int64_t)buffer->alignment; return TIDE_OK;
    case TIDE__MINI_HINT: out->integer = m->problem->rows[row].hint; return TIDE_OK;
    case TIDE__MINI_GAPS: return extra_gaps(m, buffer, out);
    default: out->integer = (int64_t)buffer->offset; return TIDE_OK;
  }
}

static tide_status extra_make(trace_maker* m, size_t row, uint32_t* out) {
  uint64_t items[1 + TIDE__MINI_COLUMNS];
  tide_value dict = { .kind = TIDE_VALUE_DICT, .items = items };
  const tide_value place = { .kind = TIDE_VALUE_INT, .integer = (int64_t)row };
  TIDE_TRY(tide__extra_item(m->names, TIDE__MINI_KEY_ROW, &place, &items[dict.count++]));
  for (tide__mini_column i = TIDE__MINI_REQUIRED; i < TIDE__MINI_COLUMNS; i++) {
    tide_value value;
    if (!m->problem->has_column[i]) continue;
    TIDE_TRY(extra_value(m, row, i, &value));
    TIDE_TRY(tide__extra_item(m->names, tide__mini_columns[i], &value, &items[dict.count++]));
  }
  return tide_intern_add_value(m->names, &dict, out);
}

static tide_status row_make(trace_maker* m, size_t index) {
  const tide_plan_buffer* const buffer = &m->problem->buffers[index];
  trace_row* const row = &m->rows[index];
  tide_note note = { 0 };
  size_t bytes = 0;
  const char* const name = tide_problem_name(m->problem, index, &bytes);
  TIDE_TRY(tide_intern_add_text(m->names, name, bytes, &note.metadata));
  TIDE_TRY(tide_intern_add_note(m->names, note, &row->free_note));
  TIDE_TRY(extra_make(m, index, &note.extra));
  TIDE_TRY(tide_intern_add_note(m->names, note, &row->note));
  row->is_given = buffer->offset != TIDE_PLAN_ANYWHERE && buffer->bytes > 0 && buffer->lower < buffer->upper;
  row->offset = buffer->offset;
  if (row->is_given) m->segment_bytes = tide__max(m->segment_bytes, buffer->offset + buffer->bytes);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Events

static int event_compare(const void* a, const void* b) {
  const trace_event* const x = a;
  const trace_event* const y = b;
  if (x->time != y->time) return x->time < y->time ? -1 : 1;
  if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
  return (x->row > y->row) - (x->row < y->row);
}

static void events_make(trace_maker* m) {
  for (size_t i = 0; i < m->problem->count; i++) {
    const tide_plan_buffer* const buffer = &m->problem->buffers[i];
    const bool has_time = buffer->lower < buffer->upper;
    const trace_event_kind kind = has_time ? TRACE_ALLOC : TRACE_ALLOC_AND_FREE;
    m->events[m->event_count++] = (trace_event){ buffer->lower, (uint32_t)i, (uint8_t)kind };
    if (has_time) m->events[m->event_count++] = (trace_event){ buffer->upper, (uint32_t)i, TRACE_FREE };
  }
  qsort(m->events, m->event_count, sizeof *m->events, event_compare);
}

// Is the range of a buffer free? `placed` has the ranges in use, by offset.
static bool range_is_free(const tide__tree* placed, uint64_t offset, uint64_t bytes) {
  const tide__tree_node* const below = tide__tree_floor(placed, offset);
  const tide__tree_node* const above = tide__tree_ceiling(placed, offset);
  if (above != NULL && above->key < offset + bytes) return false;
  return below == NULL ||
         TIDE_OWNER_CONST(below, tide__free_range, by_offset)->by_bytes.key <= offset - below->key;
}

// A buffer with an offset of the problem. If the range is in use, the buffer gets an invented offset.
static void event_place_given(trace_maker* m, tide__tree* placed, const trace_event* event) {
  trace_row* const row = &m->rows[event->row];
  if (event->kind == TRACE_FREE) {
    tide__tree_remove(placed, &row->record.by_offset);
    return;
  }
  const uint64_t bytes = m->problem->buffers[event->row].bytes;
  row->record.by_bytes.key = bytes;
  row->record.by_offset = (tide__tree_node){ .key = row->offset };
  row->is_given = range_is_free(placed, row->offset, bytes);
  if (row->is_given) (void)tide__tree_insert(placed, &row->record.by_offset);
}

static uint64_t row_bytes(const trace_maker* m, uint32_t row) {
  uint64_t bytes = 0;
  (void)tide__align_up(tide__max(m->problem->buffers[row].bytes, 1), TRACE_ROUND, &bytes);
  return bytes;
}

// Takes the smallest free range that fits, or extends the arena to at most `most` bytes.
static bool row_take(tide__range_allocator* arena, trace_row* row, uint64_t bytes, uint64_t most) {
  return tide__range_take(arena, &row->record, bytes, &row->offset) ||
         (tide__range_take_end(arena, &row->record, bytes, false, &row->offset) && arena->end <= most);
}

static tide_status rows_place(trace_maker* m) {
  tide__range_allocator arena = { 0 };
  tide__tree placed = { 0 };
  uint64_t first = 0;
  (void)tide__align_up(m->segment_bytes, TRACE_ROUND, &first);
  for (size_t i = 0; i < m->event_count; i++) {
    trace_row* const row = &m->rows[m->events[i].row];
    if (row->is_given) event_place_given(m, &placed, &m->events[i]);
    if (row->is_given) continue;
    const uint64_t bytes = row_bytes(m, m->events[i].row);
    if (m->events[i].kind != TRACE_FREE) {
      TIDE_REQUIRE(row_take(&arena, row, bytes, INT64_MAX - first), TIDE_ERR_LIMIT,
                   "trace_read: the buffers need more than 2^63 bytes");
      row->offset += first;
    }
    if (m->events[i].kind != TRACE_ALLOC) (void)tide__range_give(&arena, row->offset - first, bytes);
  }
  if (arena.end > 0) m->segment_bytes = first + arena.end;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The trace

static tide_status entry_add(trace_maker* m, tide_action action, const trace_event* event) {
  const trace_row* const row = &m->rows[event->row];
  const tide_trace_entry entry = {
    .time_ns = event->time * TIDE__MINI_STEP_NS,
    .address = TRACE_BASE + row->offset,
    .bytes = m->problem->buffers[event->row].bytes,
    .note = action == TIDE_ACTION_ALLOC ? row->note : row->free_note,
    .action = (uint8_t)action,
    .absent = TIDE_ENTRY_COMPILE_CONTEXT | TIDE_ENTRY_STACK | TIDE_ENTRY_POOL,
  };
  return tide_trace_add_entry(m->trace, &entry);
}

static tide_status event_add(trace_maker* m, const trace_event* event) {
  if (event->kind != TRACE_FREE) TIDE_TRY(entry_add(m, TIDE_ACTION_ALLOC, event));
  if (event->kind == TRACE_ALLOC) return TIDE_OK;
  TIDE_TRY(entry_add(m, TIDE_ACTION_FREE_REQUESTED, event));
  return entry_add(m, TIDE_ACTION_FREE_COMPLETED, event);
}

// The segment around all buffers. It is created before the first one and is empty at the end.
static tide_status segment_add(trace_maker* m) {
  const tide_trace_entry entry = {
    .time_ns = m->events[0].time * TIDE__MINI_STEP_NS,
    .address = TRACE_BASE,
    .bytes = m->segment_bytes,
    .action = TIDE_ACTION_SEGMENT_ALLOC,
    .absent = TIDE_ENTRY_COMPILE_CONTEXT | TIDE_ENTRY_METADATA | TIDE_ENTRY_STACK | TIDE_ENTRY_POOL,
  };
  const tide_trace_segment segment = { .address = TRACE_BASE, .bytes = m->segment_bytes, .is_large = true };
  const tide_trace_block block = { .address = TRACE_BASE,
                                   .bytes = m->segment_bytes,
                                   .state = TIDE_BLOCK_INACTIVE };
  TIDE_TRY(tide_trace_add_entry(m->trace, &entry));
  TIDE_TRY(tide_trace_add_segment(m->trace, &segment));
  return tide_trace_add_block(m->trace, &block);
}

static tide_status trace_make(trace_maker* m) {
  const size_t count = m->problem->count;
  m->rows = tide__heap_alloc(m->heap, count, sizeof *m->rows);
  m->events = tide__heap_alloc(m->heap, 2 * count, sizeof *m->events);
  TIDE_REQUIRE(m->rows != NULL && m->events != NULL, TIDE_ERR_NO_MEMORY,
               "trace_read: no memory for %zu buffers", count);
  for (size_t i = 0; i < count; i++) TIDE_TRY(row_make(m, i));
  events_make(m);
  TIDE_TRY(rows_place(m));
  TIDE_TRY(segment_add(m));
  for (size_t i = 0; i < m->event_count; i++) TIDE_TRY(event_add(m, &m->events[i]));
  return TIDE_OK;
}

tide_status tide__problem_to_trace(const tide_problem* problem, tide_trace* trace) {
  const tide_trace_about about = { .has_segments = true, .has_entries = true, .has_steps = true };
  trace_maker m = { .problem = problem, .trace = trace };
  m.heap = m.text.heap = tide__trace_heap(trace);
  m.names = tide_trace_names(trace);
  TIDE_TRY(tide_trace_add_device(trace, 0));
  const tide_status status = problem->count > 0 ? trace_make(&m) : TIDE_OK;
  if (status == TIDE_OK) tide_trace_set_about(trace, &about);
  tide__heap_release(m.heap, m.rows, problem->count, sizeof *m.rows);
  tide__heap_release(m.heap, m.events, 2 * problem->count, sizeof *m.events);
  tide__bytes_fini(&m.text);
  return status;
}
