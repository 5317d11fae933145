// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What reading and writing MiniMalloc's planning problems have in common: columns, gaps, and under which keys
// the columns that a trace has no field for are kept in a note's extra.
#ifndef TIDEMARK_SRC_FORMAT_MINIMALLOC_H
#define TIDEMARK_SRC_FORMAT_MINIMALLOC_H

#include "format/csv.h"

#define TIDE__MINI_STEP_NS 1000u                  // a step of a problem in the time of a trace
#define TIDE__MINI_KEY_ROW "minimalloc_row"       // the place of a buffer in its file, from 0
#define TIDE__MINI_REQUIRED TIDE__MINI_ALIGNMENT  // the columns before it must be there

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

// The names of columns; those from TIDE__MINI_ALIGNMENT on are the keys of what is kept.
extern const char* const tide__mini_columns[TIDE__MINI_COLUMNS];

// While a buffer has a gap it needs no memory, or only that of a window.
typedef struct tide__mini_gap {
  uint64_t lower;
  uint64_t upper;
  uint64_t first;  // of the window
  uint64_t last;
  bool has_window;
} tide__mini_gap;

// Takes the next gap from the front of a field: "lower-upper" or "lower-upper@first:last", with spaces
// between them. False when there is none, and then `rest` is empty unless something else stands there.
bool tide__mini_gap_next(tide__csv_field* rest, tide__mini_gap* out);

#endif
