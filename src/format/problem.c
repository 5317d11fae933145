// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A planning problem: building, reading and freeing it. While it grows, a buffer has only a count of gaps,
// because the array of gaps may still move; tide__problem_seal() then sets the pointers.
#include "format/problem.h"

#include <string.h>

#include "base/error.h"
#include "base/heap.h"

// ---------------------------------------------------------------------------------------------------
// Building

tide_status tide__problem_begin(const tide_heap* heap, tide_problem** out) {
  *out = tide__heap_alloc(heap, 1, sizeof **out);
  TIDE_REQUIRE(*out != NULL, TIDE_ERR_NO_MEMORY, "no memory for a planning problem");
  (*out)->heap = heap;
  return TIDE_OK;
}

tide_status tide__problem_add_gap(tide_problem* p, tide_plan_gap gap) {
  const size_t need = p->gap_count + 1;
  TIDE_REQUIRE(tide__heap_grow(p->heap, (void**)&p->gaps, &p->gap_room, need, sizeof *p->gaps),
               TIDE_ERR_NO_MEMORY, "no memory for %zu gaps", need);
  p->gaps[p->gap_count++] = gap;
  return TIDE_OK;
}

static bool problem_make_room(tide_problem* p, size_t name_bytes) {
  const size_t need = p->count + 1;
  return tide__heap_grow(p->heap, (void**)&p->buffers, &p->buffer_room, need, sizeof *p->buffers) &&
         tide__heap_grow(p->heap, (void**)&p->rows, &p->row_room, need, sizeof *p->rows) &&
         tide__heap_grow(p->heap, (void**)&p->names, &p->names_room, p->names_bytes + name_bytes + 1, 1);
}

tide_status tide__problem_add(tide_problem* p, const tide_plan_buffer* buffer, int64_t hint, const char* name,
                              size_t name_bytes) {
  TIDE_REQUIRE(problem_make_room(p, name_bytes), TIDE_ERR_NO_MEMORY, "no memory for %zu buffers",
               p->count + 1);
  tide_plan_buffer* const added = &p->buffers[p->count];
  *added = *buffer;
  added->hint = hint >= 0 ? (uint64_t)hint : TIDE_PLAN_ANYWHERE;
  added->gap_count = p->gap_count - p->gaps_used;
  p->gaps_used = p->gap_count;
  p->rows[p->count++] = (tide__problem_row){ hint, p->names_bytes, name_bytes };
  if (name_bytes > 0) memcpy(p->names + p->names_bytes, name, name_bytes);
  p->names_bytes += name_bytes;
  p->names[p->names_bytes++] = '\0';
  return TIDE_OK;
}

void tide__problem_seal(tide_problem* p) {
  size_t first = 0;
  for (size_t i = 0; i < p->count; i++) {
    if (p->buffers[i].gap_count == 0) continue;
    p->buffers[i].gaps = p->gaps + first;
    first += p->buffers[i].gap_count;
  }
}

// ---------------------------------------------------------------------------------------------------
// Use

void tide_problem_free(tide_problem* problem) {
  if (problem == NULL) return;
  const tide_heap* const heap = problem->heap;
  tide__heap_release(heap, problem->buffers, problem->buffer_room, sizeof *problem->buffers);
  tide__heap_release(heap, problem->rows, problem->row_room, sizeof *problem->rows);
  tide__heap_release(heap, problem->gaps, problem->gap_room, sizeof *problem->gaps);
  tide__heap_release(heap, problem->names, problem->names_room, 1);
  tide__heap_release(heap, problem, 1, sizeof *problem);
}

tide_plan_problem tide_problem_plan(const tide_problem* problem) {
  if (problem == NULL) return (tide_plan_problem){ .count = 0 };
  return (tide_plan_problem){ .buffers = problem->buffers, .count = problem->count };
}

const char* tide_problem_name(const tide_problem* problem, size_t position, size_t* out_bytes) {
  const bool is_there = problem != NULL && position < problem->count;
  if (out_bytes != NULL) *out_bytes = is_there ? problem->rows[position].name_bytes : 0;
  return is_there ? problem->names + problem->rows[position].name : NULL;
}
