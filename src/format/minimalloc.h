// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The columns of MiniMalloc's planning problems, and how gaps are written. A trace that came from a problem
// keeps the columns it has no field for in the extra of its notes; their names are the keys.
#ifndef TIDEMARK_SRC_FORMAT_MINIMALLOC_H
#define TIDEMARK_SRC_FORMAT_MINIMALLOC_H

#include "format/csv.h"
#include "tidemark/problem.h"

#define TIDE__MINI_STEP_NS 1000u                  // a step of a problem in the time of a trace
#define TIDE__MINI_KEY_ROW "minimalloc_row"       // the key of a buffer's position in its file, from 0
#define TIDE__MINI_REQUIRED TIDE__MINI_ALIGNMENT  // the columns before this one are required
#define TIDE__MINI_ROWS_MAX (UINT32_MAX / 2)

// In the order in which they are written.
typedef enum tide__mini_column {
  TIDE__MINI_ID,
  TIDE__MINI_LOWER,
  TIDE__MINI_UPPER,
  TIDE__MINI_SIZE,
  TIDE__MINI_ALIGNMENT,
  TIDE__MINI_HINT,
  TIDE__MINI_GAPS,
  TIDE__MINI_OFFSET,
  TIDE__MINI_COLUMNS
} tide__mini_column;

extern const char* const tide__mini_columns[TIDE__MINI_COLUMNS];  // their names

// Takes the next gap from the front of a field: "lower-upper" or "lower-upper@first:last", separated by
// spaces. Returns false if there is none; then `rest` is empty unless it holds something else.
bool tide__mini_gap_next(tide__csv_field* rest, tide_plan_gap* out);

// Prints a gap in that form and returns its length. An empty window at 0 is the same as none and is left out.
#define TIDE__MINI_GAP_TEXT 96
size_t tide__mini_gap_print(const tide_plan_gap* gap, char out[TIDE__MINI_GAP_TEXT]);

#endif
