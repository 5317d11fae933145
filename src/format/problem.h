// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A planning problem in memory: the buffers of the plan, their names, and the columns of its file. It is read
// from a CSV (minimalloc.c) or made from a trace (problem_of_trace.c), and written as a CSV
// (minimalloc_write.c) or converted to a trace (problem_to_trace.c).
#ifndef TIDEMARK_SRC_FORMAT_PROBLEM_H
#define TIDEMARK_SRC_FORMAT_PROBLEM_H

#include "format/input.h"
#include "format/minimalloc.h"
#include "format/output.h"
#include "tidemark/problem.h"

// What a buffer has in addition to the fields of the plan.
typedef struct tide__problem_row {
  int64_t hint;       // as in the file; below 0: none
  size_t name;        // where its name begins in `names`
  size_t name_bytes;  // without the zero byte after it
} tide__problem_row;

// [P1] buffers[i] and rows[i] are the same buffer
// [P2] after tide__problem_seal(), the gaps of all buffers lie in `gaps`, in the order of the buffers
struct tide_problem {
  const tide_heap* heap;      // caller keeps, until it is freed
  tide_plan_buffer* buffers;  // owned
  size_t count;
  size_t buffer_room;
  tide__problem_row* rows;  // owned
  size_t row_room;
  tide_plan_gap* gaps;  // owned
  size_t gap_count;
  size_t gap_room;
  size_t gaps_used;  // gaps of the buffers so far; those above belong to the next buffer
  char* names;       // owned; each name with a zero byte after it
  size_t names_bytes;
  size_t names_room;
  bool has_column[TIDE__MINI_COLUMNS];  // which optional columns are written
};

// Which requests of a trace are buffers.
typedef enum tide__problem_scope {
  TIDE__PROBLEM_RECORDED = 0,  // those with an allocation in the trace
  TIDE__PROBLEM_ALL = 1        // also those older than the first entry
} tide__problem_scope;

// ---------------------------------------------------------------------------------------------------
// problem.c: building a problem

// An empty problem. Errors: TIDE_ERR_NO_MEMORY, as all below.
tide_status tide__problem_begin(const tide_heap* heap, tide_problem** out);
// Adds a gap to the next buffer.
tide_status tide__problem_add_gap(tide_problem* problem, tide_plan_gap gap);
// Adds a buffer with the gaps that were added since the last one. `hint` becomes its hint in the plan.
tide_status tide__problem_add(tide_problem* problem, const tide_plan_buffer* buffer, int64_t hint,
                              const char* name, size_t name_bytes);
// Connects buffers and gaps. Nothing may be added afterwards.
void tide__problem_seal(tide_problem* problem);

// ---------------------------------------------------------------------------------------------------
// Conversions

// Reads a CSV into a problem on the input's heap. [minimalloc.c]
tide_status tide__problem_read(tide__input* input, tide_problem** out);
// As tide_problem_new(). [problem_of_trace.c]
tide_status tide__problem_of_trace(const tide_trace* trace, size_t device, tide__problem_scope scope,
                                   const tide_heap* heap, tide_problem** out);
// Fills an empty trace. Errors: also TIDE_ERR_LIMIT if the buffers need 2^63 bytes. [problem_to_trace.c]
tide_status tide__problem_to_trace(const tide_problem* problem, tide_trace* trace);

#endif
