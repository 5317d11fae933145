// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Makes the planning problem of a trace: a buffer for each request of one device.
//
// If the trace has steps, or all requests came from a planning problem, times are steps and sizes are as
// requested. For other traces times are numbers of entries, and sizes are rounded up to 512 bytes, as
// allocators of device memory do. Requests from a planning problem keep its order, names and columns. Others
// are in the order of their entries. Their name is their metadata, if it is unique, not a number, and fits
// into a field; otherwise it is their position.
//
// The first pass examines all requests, the second makes the buffers in order.
// Cost: O(n log n) for n entries; temporarily the memory of tide__lifetimes, 16 bytes per request, 1 per
// text.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "format/lifetimes.h"
#include "format/problem.h"

#define PROBLEM_ROUND 512u

typedef struct problem_order {
  uint64_t row;     // its position in the problem that it came from, or among the requests
  size_t lifetime;  // its position in lifetimes.items
} problem_order;

typedef struct problem_maker {
  tide_problem* problem;
  const tide_heap* heap;     // borrowed
  const tide_intern* names;  // borrowed from the trace
  tide__lifetimes lifetimes;
  problem_order* order;  // owned
  size_t count;          // of requests in it
  uint8_t* uses;         // owned; by text: how many requests have it as their metadata, 2 for more
  size_t text_count;
  size_t column_uses[TIDE__MINI_COLUMNS];  // how many requests have a value for it
  uint64_t first_instant;                  // what time 0 is, unless times are steps
  bool has_steps;                          // times are steps
  bool has_rows;                           // all requests came from a planning problem
} problem_maker;

// ---------------------------------------------------------------------------------------------------
// Columns in the extra of a note

// The number under a key, if there is one of at least `least`.
static bool extra_number(const tide_intern* names, uint32_t extra, const char* key, int64_t least,
                         int64_t* out) {
  const tide_value value = tide_intern_value(names, tide_intern_value_find(names, extra, key));
  *out = value.integer;
  return value.kind == TIDE_VALUE_INT && value.integer >= least;
}

// The number of an optional column, or its default.
static bool extra_column(const tide_intern* names, uint32_t extra, tide__mini_column column, int64_t* out) {
  static const int64_t least[TIDE__MINI_COLUMNS] = {
    [TIDE__MINI_ALIGNMENT] = 1, [TIDE__MINI_HINT] = INT64_MIN
  };
  static const int64_t otherwise[TIDE__MINI_COLUMNS] = {
    [TIDE__MINI_ALIGNMENT] = 1, [TIDE__MINI_HINT] = -1, [TIDE__MINI_OFFSET] = -1
  };
  const bool is_there = extra_number(names, extra, tide__mini_columns[column], least[column], out);
  if (!is_there) *out = otherwise[column];
  return is_there;
}

// The text of the gaps; false if there is none, or something else in it.
static bool extra_gaps(const tide_intern* names, uint32_t extra, tide__csv_field* out) {
  const char* const key = tide__mini_columns[TIDE__MINI_GAPS];
  const tide_value value = tide_intern_value(names, tide_intern_value_find(names, extra, key));
  if (value.kind != TIDE_VALUE_TEXT) return false;
  *out = (tide__csv_field){ "", 0 };
  const char* const text = tide_intern_text(names, value.text, &out->bytes);
  if (out->bytes > 0) out->text = text;
  tide__csv_field rest = *out;
  tide_plan_gap gap;
  while (tide__mini_gap_next(&rest, &gap)) {}
  return rest.bytes == 0;
}

// ---------------------------------------------------------------------------------------------------
// Examining the requests

static int problem_order_compare(const void* a, const void* b) {
  const problem_order* const x = a;
  const problem_order* const y = b;
  if (x->row != y->row) return x->row < y->row ? -1 : 1;
  return (x->lifetime > y->lifetime) - (x->lifetime < y->lifetime);
}

static tide_note problem_note(const problem_maker* m, size_t lifetime) {
  return tide_intern_note(m->names, m->lifetimes.items[lifetime].note);
}

static void problem_look_at(problem_maker* m, size_t index) {
  const tide_note note = problem_note(m, index);
  int64_t number = 0;
  tide__csv_field gaps;
  m->has_rows &= extra_number(m->names, note.extra, TIDE__MINI_KEY_ROW, 0, &number);
  m->order[m->count++] = (problem_order){ (uint64_t)number, index };
  if (note.metadata < m->text_count && m->uses[note.metadata] < 2) m->uses[note.metadata]++;
  for (tide__mini_column i = TIDE__MINI_REQUIRED; i < TIDE__MINI_COLUMNS; i++) {
    m->column_uses[i] += i == TIDE__MINI_GAPS ? extra_gaps(m->names, note.extra, &gaps)
                                              : extra_column(m->names, note.extra, i, &number);
  }
}

// Offsets are a solution, so they are written for all buffers or for none.
static void problem_choose_columns(problem_maker* m) {
  for (tide__mini_column i = TIDE__MINI_REQUIRED; i < TIDE__MINI_COLUMNS; i++) {
    m->problem->has_column[i] = m->count > 0 && m->column_uses[i] >= (i == TIDE__MINI_OFFSET ? m->count : 1);
  }
}

static tide_status problem_look(problem_maker* m, tide__problem_scope scope) {
  m->text_count = (size_t)tide_intern_counts_of(m->names).texts + 1;
  m->uses = tide__heap_alloc(m->heap, m->text_count, sizeof *m->uses);
  m->order = tide__heap_alloc(m->heap, m->lifetimes.count + 1, sizeof *m->order);
  TIDE_REQUIRE(m->uses != NULL && m->order != NULL, TIDE_ERR_NO_MEMORY,
               "problem_new: no memory for %zu requests", m->lifetimes.count);
  m->has_rows = true;
  m->first_instant = 1;
  for (size_t i = 0; i < m->lifetimes.count; i++) {
    const bool is_before = m->lifetimes.items[i].begin == 0;
    if (is_before && scope == TIDE__PROBLEM_RECORDED) continue;
    if (is_before) m->first_instant = 0;
    problem_look_at(m, i);
  }
  m->has_steps |= m->has_rows;
  for (size_t i = 0; i < m->count && !m->has_rows; i++) m->order[i].row = i;
  qsort(m->order, m->count, sizeof *m->order, problem_order_compare);
  problem_choose_columns(m);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Buffers

// An instant of the lifetimes as a time of the problem.
static uint64_t problem_time(const problem_maker* m, uint64_t instant) {
  const size_t count = m->lifetimes.entry_count;
  const bool is_never = instant == TIDE__INSTANT_NEVER;
  if (!m->has_steps || count == 0) return tide__min(instant, (uint64_t)count + 1) - m->first_instant;
  const uint64_t entry = is_never ? count - 1 : instant - (instant > 0);
  return m->lifetimes.entries[entry].time_ns / TIDE__MINI_STEP_NS + is_never;
}

// The name of a buffer, printed into `digits` if it is the position.
static tide__csv_field problem_name(const problem_maker* m, uint32_t metadata, size_t position,
                                    char digits[24]) {
  uint64_t number = 0;
  tide__csv_field name = { "", 0 };
  const char* const text = tide_intern_text(m->names, metadata, &name.bytes);
  if (name.bytes > 0) name.text = text;
  const bool is_own = metadata != 0 && metadata < m->text_count && m->uses[metadata] == 1 &&
                      !tide__csv_decimal(name, &number);
  if ((m->has_rows || is_own) && tide__csv_fits(name)) return name;
  return (tide__csv_field){ digits, (size_t)snprintf(digits, 24, "%zu", position) };
}

static tide_status problem_add_gaps(const problem_maker* m, uint32_t extra) {
  tide__csv_field rest;
  tide_plan_gap gap;
  if (!extra_gaps(m->names, extra, &rest)) return TIDE_OK;
  while (tide__mini_gap_next(&rest, &gap)) TIDE_TRY(tide__problem_add_gap(m->problem, gap));
  return TIDE_OK;
}

static tide_status problem_add_buffer(const problem_maker* m, size_t position) {
  const tide__lifetime* const lifetime = &m->lifetimes.items[m->order[position].lifetime];
  const tide_note note = problem_note(m, m->order[position].lifetime);
  char digits[24];
  int64_t alignment = 0;
  int64_t offset = 0;
  int64_t hint = 0;
  (void)extra_column(m->names, note.extra, TIDE__MINI_ALIGNMENT, &alignment);
  (void)extra_column(m->names, note.extra, TIDE__MINI_HINT, &hint);
  (void)extra_column(m->names, note.extra, TIDE__MINI_OFFSET, &offset);
  tide_plan_buffer buffer = {
    .lower = problem_time(m, lifetime->begin),
    .upper = problem_time(m, lifetime->end),
    .bytes = lifetime->bytes,
    .alignment = (uint64_t)alignment,
    .offset = offset >= 0 ? (uint64_t)offset : TIDE_PLAN_ANYWHERE,
  };
  if (!m->has_steps) (void)tide__align_up(buffer.bytes, PROBLEM_ROUND, &buffer.bytes);
  TIDE_TRY(problem_add_gaps(m, note.extra));
  const tide__csv_field name = problem_name(m, note.metadata, position, digits);
  return tide__problem_add(m->problem, &buffer, hint, name.text, name.bytes);
}

static tide_status problem_make(problem_maker* m, tide__problem_scope scope) {
  TIDE_TRY(problem_look(m, scope));
  for (size_t i = 0; i < m->count; i++) TIDE_TRY(problem_add_buffer(m, i));
  tide__problem_seal(m->problem);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------

static tide_status problem_follow(tide_problem* problem, const tide_trace* trace, size_t device,
                                  tide__problem_scope scope) {
  problem_maker m = { .problem = problem, .heap = problem->heap, .names = tide_trace_names(trace) };
  m.has_steps = tide_trace_get_about(trace).has_steps;
  TIDE_TRY(tide__lifetimes_init(&m.lifetimes, trace, device, TIDE__LIFETIMES_OF_REQUESTS, m.heap));
  const tide_status status = problem_make(&m, scope);
  tide__heap_release(m.heap, m.uses, m.text_count, sizeof *m.uses);
  tide__heap_release(m.heap, m.order, m.lifetimes.count + 1, sizeof *m.order);
  tide__lifetimes_fini(&m.lifetimes);
  return status;
}

tide_status tide__problem_of_trace(const tide_trace* trace, size_t device, tide__problem_scope scope,
                                   const tide_heap* heap, tide_problem** out) {
  tide_problem* problem = NULL;
  TIDE_TRY(tide__problem_begin(heap, &problem));
  const tide_status status = problem_follow(problem, trace, device, scope);
  if (status == TIDE_OK) *out = problem;
  else tide_problem_free(problem);
  return status;
}

tide_status tide_problem_new(const tide_trace* trace, size_t device, const tide_heap* heap,
                             tide_problem** out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "problem_new: out is NULL");
  *out = NULL;
  TIDE_REQUIRE(trace != NULL, TIDE_ERR_ARGUMENT, "problem_new: trace is NULL");
  TIDE_REQUIRE(tide__heap_is_valid(heap), TIDE_ERR_ARGUMENT, "problem_new: the heap lacks a function");
  return tide__problem_of_trace(trace, device, TIDE__PROBLEM_ALL, tide__heap_or_system(heap), out);
}
