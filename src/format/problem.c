// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Makes the planning problem of a trace: a buffer for each request of one device.
//
// Times are steps if the trace has those, or if all requests came from a planning problem, by whatever
// formats in between; then sizes are as requested. For other traces times are numbers of entries, and sizes
// are rounded up to 512 bytes, which is what allocators of device memory do. Requests that came from a
// planning problem stand in its order under their names, with the columns it had; others in the order of
// their entries, named by their metadata if no other has it, it is no number, and fits into a field.
//
// First all requests are looked at, then buffers are made in their order. Gaps are counted in the first
// pass, so that all have one array and buffers can point into it.
// Cost: O(n log n) for n entries; the memory of tide__lifetimes, 16 bytes a request and one a text while it
// works.
#include "format/problem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "format/lifetimes.h"

#define PROBLEM_ROUND 512u

typedef struct problem_order {
  uint64_t row;     // in the problem that it came from, or its place among the requests
  size_t lifetime;  // its place in lifetimes.items
} problem_order;

typedef struct problem_maker {
  tide_problem* problem;
  tide__lifetimes lifetimes;
  problem_order* order;  // owned
  uint8_t* uses;         // owned; by text: of how many requests it is the metadata, 2 for more
  size_t text_count;
  size_t column_uses[TIDE__MINI_COLUMNS];  // how many requests have a value for it
  uint64_t first_moment;                   // what time 0 is, unless times are steps
  bool has_steps;                          // times are
  bool has_rows;                           // all requests came from a planning problem
} problem_maker;

// ---------------------------------------------------------------------------------------------------
// What is kept of the columns

// The number under a key, if there is one of at least `least`.
static bool problem_kept_number(const tide_intern* names, uint32_t extra, const char* key, int64_t least,
                                int64_t* out) {
  const tide_value value = tide_intern_value(names, tide_intern_value_find(names, extra, key));
  *out = value.integer;
  return value.kind == TIDE_VALUE_INT && value.integer >= least;
}

// How many gaps a text has, which are put to `out` unless that is NULL; false if something else stands there.
static bool problem_gaps_parse(const tide_intern* names, uint32_t text, tide_plan_gap* out,
                               size_t* out_count) {
  tide__csv_field rest = { "", 0 };
  const char* const bytes = tide_intern_text(names, text, &rest.bytes);
  tide__mini_gap gap;
  if (rest.bytes > 0) rest.text = bytes;
  for (*out_count = 0; tide__mini_gap_next(&rest, &gap); ++*out_count) {
    if (out != NULL) out[*out_count] = (tide_plan_gap){ gap.lower, gap.upper, gap.first, gap.last };
  }
  return rest.bytes == 0;
}

// The text of the gaps, and how many they are.
static bool problem_kept_gaps(const tide_intern* names, uint32_t extra, uint32_t* out_text,
                              size_t* out_count) {
  const char* const key = tide__mini_columns[TIDE__MINI_GAPS];
  const tide_value value = tide_intern_value(names, tide_intern_value_find(names, extra, key));
  *out_text = value.text;
  *out_count = 0;
  return value.kind == TIDE_VALUE_TEXT && problem_gaps_parse(names, value.text, NULL, out_count);
}

// The number of an optional column, or what stands for none.
static bool problem_kept_column(const tide_intern* names, uint32_t extra, tide__mini_column column,
                                int64_t* out) {
  static const int64_t least[TIDE__MINI_COLUMNS] = {
    [TIDE__MINI_ALIGNMENT] = 1, [TIDE__MINI_HINT] = INT64_MIN
  };
  static const int64_t otherwise[TIDE__MINI_COLUMNS] = {
    [TIDE__MINI_ALIGNMENT] = 1, [TIDE__MINI_HINT] = -1, [TIDE__MINI_OFFSET] = -1
  };
  const bool is_kept = problem_kept_number(names, extra, tide__mini_columns[column], least[column], out);
  if (!is_kept) *out = otherwise[column];
  return is_kept;
}

// ---------------------------------------------------------------------------------------------------
// Looking through the requests

static int problem_order_compare(const void* a, const void* b) {
  const problem_order* const x = a;
  const problem_order* const y = b;
  if (x->row != y->row) return x->row < y->row ? -1 : 1;
  return (x->lifetime > y->lifetime) - (x->lifetime < y->lifetime);
}

static tide_note problem_note(const problem_maker* m, size_t lifetime) {
  return tide_intern_note(m->problem->names, m->lifetimes.items[lifetime].note);
}

static void problem_look_at(problem_maker* m, size_t index) {
  tide_problem* const p = m->problem;
  const tide_note note = problem_note(m, index);
  int64_t number = 0;
  uint32_t text = 0;
  size_t gaps = 0;
  m->has_rows &= problem_kept_number(p->names, note.extra, TIDE__MINI_KEY_ROW, 0, &number);
  m->order[p->count++] = (problem_order){ (uint64_t)number, index };
  if (note.metadata < m->text_count && m->uses[note.metadata] < 2) m->uses[note.metadata]++;
  for (tide__mini_column i = TIDE__MINI_REQUIRED; i < TIDE__MINI_COLUMNS; i++) {
    if (i != TIDE__MINI_GAPS) m->column_uses[i] += problem_kept_column(p->names, note.extra, i, &number);
  }
  if (!problem_kept_gaps(p->names, note.extra, &text, &gaps)) return;
  m->column_uses[TIDE__MINI_GAPS]++;
  p->gap_count += gaps;
}

// An offset stands in a solution, so it is written for all buffers or for none.
static void problem_choose_columns(problem_maker* m) {
  tide_problem* const p = m->problem;
  for (tide__mini_column i = TIDE__MINI_REQUIRED; i < TIDE__MINI_COLUMNS; i++) {
    p->has_column[i] = p->count > 0 && m->column_uses[i] >= (i == TIDE__MINI_OFFSET ? p->count : 1);
  }
}

static tide_status problem_look(problem_maker* m, tide__problem_scope scope) {
  tide_problem* const p = m->problem;
  m->text_count = (size_t)tide_intern_counts_of(p->names).texts + 1;
  m->uses = tide__heap_alloc(p->heap, m->text_count, sizeof *m->uses);
  m->order = tide__heap_alloc(p->heap, m->lifetimes.count + 1, sizeof *m->order);
  TIDE_REQUIRE(m->uses != NULL && m->order != NULL, TIDE_ERR_NO_MEMORY,
               "problem_new: no memory for %zu requests", m->lifetimes.count);
  m->has_rows = true;
  m->first_moment = 1;
  for (size_t i = 0; i < m->lifetimes.count; i++) {
    const bool is_before = m->lifetimes.items[i].begin == 0;
    if (is_before && scope == TIDE__PROBLEM_RECORDED) continue;
    if (is_before) m->first_moment = 0;
    problem_look_at(m, i);
  }
  m->has_steps |= m->has_rows;
  for (size_t i = 0; i < p->count && !m->has_rows; i++) m->order[i].row = i;
  qsort(m->order, p->count, sizeof *m->order, problem_order_compare);
  problem_choose_columns(m);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Buffers

// A moment of the lifetimes as a time of the problem.
static uint64_t problem_time(const problem_maker* m, uint64_t moment) {
  const size_t count = m->lifetimes.entry_count;
  const bool is_never = moment == TIDE__MOMENT_NEVER;
  if (!m->has_steps || count == 0) return tide__min(moment, (uint64_t)count + 1) - m->first_moment;
  const uint64_t entry = is_never ? count - 1 : moment - (moment > 0);
  return m->lifetimes.entries[entry].time_ns / TIDE__MINI_STEP_NS + is_never;
}

static bool problem_is_safe(tide__csv_field name) {
  for (size_t i = 0; i < name.bytes; i++) {
    if (name.text[i] == ',' || name.text[i] == '\n' || name.text[i] == '\r') return false;
  }
  return true;
}

static void problem_make_name(const problem_maker* m, uint32_t metadata, size_t position) {
  tide__problem_row* const row = &m->problem->rows[position];
  uint64_t number = 0;
  tide__csv_field name = { "", 0 };
  const char* const text = tide_intern_text(m->problem->names, metadata, &name.bytes);
  if (name.bytes > 0) name.text = text;
  const bool is_own = metadata != 0 && metadata < m->text_count && m->uses[metadata] == 1 &&
                      !tide__csv_decimal(name, &number);
  row->name = metadata;
  if ((m->has_rows || is_own) && problem_is_safe(name)) return;
  (void)snprintf(row->number, sizeof row->number, "%" PRIu32, (uint32_t)position);
}

// Takes the gaps of a buffer to where the last ones ended.
static void problem_make_gaps(const problem_maker* m, uint32_t extra, size_t position, size_t* first) {
  tide_problem* const p = m->problem;
  uint32_t text = 0;
  size_t count = 0;
  if (!problem_kept_gaps(p->names, extra, &text, &count)) return;
  p->rows[position].gaps = text;
  if (count == 0) return;
  p->buffers[position].gaps = p->gaps + *first;
  p->buffers[position].gap_count = count;
  (void)problem_gaps_parse(p->names, text, p->gaps + *first, &count);
  *first += count;
}

static void problem_make_buffer(const problem_maker* m, size_t position) {
  const tide__lifetime* const lifetime = &m->lifetimes.items[m->order[position].lifetime];
  const tide_note note = problem_note(m, m->order[position].lifetime);
  tide_plan_buffer* const buffer = &m->problem->buffers[position];
  tide__problem_row* const row = &m->problem->rows[position];
  int64_t alignment = 0;
  int64_t offset = 0;
  (void)problem_kept_column(m->problem->names, note.extra, TIDE__MINI_ALIGNMENT, &alignment);
  (void)problem_kept_column(m->problem->names, note.extra, TIDE__MINI_HINT, &row->hint);
  (void)problem_kept_column(m->problem->names, note.extra, TIDE__MINI_OFFSET, &offset);
  *buffer = (tide_plan_buffer){
    .lower = problem_time(m, lifetime->begin),
    .upper = problem_time(m, lifetime->end),
    .bytes = lifetime->bytes,
    .alignment = (uint64_t)alignment,
    .offset = offset >= 0 ? (uint64_t)offset : TIDE_PLAN_ANYWHERE,
    .hint = row->hint >= 0 ? (uint64_t)row->hint : TIDE_PLAN_ANYWHERE,
  };
  if (!m->has_steps) (void)tide__align_up(buffer->bytes, PROBLEM_ROUND, &buffer->bytes);
  problem_make_name(m, note.metadata, position);
}

static tide_status problem_make(problem_maker* m) {
  tide_problem* const p = m->problem;
  size_t gaps = 0;
  p->buffers = tide__heap_alloc(p->heap, p->count + 1, sizeof *p->buffers);
  p->rows = tide__heap_alloc(p->heap, p->count + 1, sizeof *p->rows);
  p->gaps = tide__heap_alloc(p->heap, p->gap_count + 1, sizeof *p->gaps);
  TIDE_REQUIRE(p->buffers != NULL && p->rows != NULL && p->gaps != NULL, TIDE_ERR_NO_MEMORY,
               "problem_new: no memory for %zu buffers with %zu gaps", p->count, p->gap_count);
  for (size_t i = 0; i < p->count; i++) {
    problem_make_buffer(m, i);
    problem_make_gaps(m, problem_note(m, m->order[i].lifetime).extra, i, &gaps);
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Life

static tide_status problem_follow(tide_problem* problem, const tide_trace* trace, size_t device,
                                  tide__problem_scope scope) {
  problem_maker m = { .problem = problem, .has_steps = tide_trace_get_about(trace).has_steps };
  TIDE_TRY(tide__lifetimes_init(&m.lifetimes, trace, device, TIDE__LIFETIMES_OF_REQUESTS, problem->heap));
  tide_status status = problem_look(&m, scope);
  if (status == TIDE_OK) status = problem_make(&m);
  tide__heap_release(problem->heap, m.uses, m.text_count, sizeof *m.uses);
  tide__heap_release(problem->heap, m.order, m.lifetimes.count + 1, sizeof *m.order);
  tide__lifetimes_fini(&m.lifetimes);
  return status;
}

tide_status tide__problem_new(const tide_trace* trace, size_t device, tide__problem_scope scope,
                              const tide_heap* heap, tide_problem** out) {
  tide_problem* const problem = tide__heap_alloc(heap, 1, sizeof *problem);
  TIDE_REQUIRE(problem != NULL, TIDE_ERR_NO_MEMORY, "problem_new: no memory");
  problem->heap = heap;
  problem->names = tide_trace_names(trace);
  const tide_status status = problem_follow(problem, trace, device, scope);
  if (status == TIDE_OK) *out = problem;
  else tide_problem_free(problem);
  return status;
}

tide_status tide_problem_new(const tide_trace* trace, size_t device, const tide_heap* heap,
                             tide_problem** out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "problem_new: out is NULL");
  *out = NULL;
  TIDE_REQUIRE(trace != NULL, TIDE_ERR_ARGUMENT, "problem_new: there is no trace");
  TIDE_REQUIRE(tide__heap_is_valid(heap), TIDE_ERR_ARGUMENT, "problem_new: the heap lacks a function");
  return tide__problem_new(trace, device, TIDE__PROBLEM_ALL, tide__heap_or_system(heap), out);
}

void tide_problem_free(tide_problem* problem) {
  if (problem == NULL) return;
  const tide_heap* const heap = problem->heap;
  tide__heap_release(heap, problem->buffers, problem->count + 1, sizeof *problem->buffers);
  tide__heap_release(heap, problem->rows, problem->count + 1, sizeof *problem->rows);
  tide__heap_release(heap, problem->gaps, problem->gap_count + 1, sizeof *problem->gaps);
  tide__heap_release(heap, problem, 1, sizeof *problem);
}

tide_plan_problem tide_problem_plan(const tide_problem* problem) {
  if (problem == NULL) return (tide_plan_problem){ .count = 0 };
  return (tide_plan_problem){ .buffers = problem->buffers, .count = problem->count };
}

const char* tide_problem_name(const tide_problem* problem, size_t position, size_t* out_bytes) {
  size_t bytes = 0;
  const char* name = NULL;
  if (problem != NULL && position < problem->count) {
    const tide__problem_row* const row = &problem->rows[position];
    const char* const text = tide_intern_text(problem->names, row->name, &bytes);
    name = text != NULL ? text : "";
    if (row->number[0] != '\0') {
      name = row->number;
      bytes = strlen(name);
    }
  }
  if (out_bytes != NULL) *out_bytes = bytes;
  return name;
}
