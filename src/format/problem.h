// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The planning problem in a trace, which problem.c makes and minimalloc_write.c writes.
#ifndef TIDEMARK_SRC_FORMAT_PROBLEM_H
#define TIDEMARK_SRC_FORMAT_PROBLEM_H

#include "format/minimalloc.h"
#include "format/output.h"
#include "tidemark/problem.h"

#define TIDE__PROBLEM_NUMBER 12u  // room for a position in digits

// What a buffer has beside the fields of a plan: its name, and what must be written as it was read.
typedef struct tide__problem_row {
  int64_t hint;   // -1: none
  uint32_t name;  // a text of the trace, if `number` is empty
  uint32_t gaps;  // a text of the trace, as it is written; 0: none
  char number[TIDE__PROBLEM_NUMBER];
} tide__problem_row;

// [P1] buffers[i] and rows[i] are of the same request; buffers[i].gaps lies in `gaps`
struct tide_problem {
  const tide_heap* heap;      // caller keeps, until it is freed
  const tide_intern* names;   // borrowed from the trace
  tide_plan_buffer* buffers;  // owned
  tide__problem_row* rows;    // owned
  size_t count;
  tide_plan_gap* gaps;  // owned
  size_t gap_count;
  bool has_column[TIDE__MINI_COLUMNS];  // of the optional ones, those that are written
};

// Which requests are buffers.
typedef enum tide__problem_scope {
  TIDE__PROBLEM_RECORDED = 0,  // those that the trace has an allocation of
  TIDE__PROBLEM_ALL = 1        // also what was there before the first entry
} tide__problem_scope;

// As tide_problem_new().
tide_status tide__problem_new(const tide_trace* trace, size_t device, tide__problem_scope scope,
                              const tide_heap* heap, tide_problem** out);

#endif
