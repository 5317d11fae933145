// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Rows of a struct as columns of bytes. A table says which fields are columns, in their order. The first
// column is plain, a byte a row, so that no count of rows can be claimed without the bytes for it. Every
// other one is coded as its first value, a unit, and the differences of neighbours in that unit:
//
//   value[0] unit fold((value[1] - value[0]) / unit) fold((value[2] - value[1]) / unit) ...
//
// The unit divides all differences, so that times in whole µs and addresses on 512 bytes cost a byte or two.
// A unit of 0 says that all values are the first, and no difference follows. All arithmetic is modulo 2^64.
#ifndef TIDEMARK_SRC_FORMAT_COLUMNS_H
#define TIDEMARK_SRC_FORMAT_COLUMNS_H

#include "format/numbers.h"
#include "tidemark/trace.h"

// The values that a column may have.
typedef enum tide__column_rule {
  TIDE__COLUMN_ANY,     // what fits into the field
  TIDE__COLUMN_ACTION,  // a tide_action
  TIDE__COLUMN_BOOL,
  TIDE__COLUMN_STATE,  // a tide_block_state
  TIDE__COLUMN_STACK,  // the number of an interned stack, and so on; or 0
  TIDE__COLUMN_NOTE,
  TIDE__COLUMN_POOL,
  TIDE__COLUMN_DICT,
  TIDE__COLUMN_RULE_COUNT
} tide__column_rule;

typedef struct tide__column {
  const char* name;
  size_t offset;  // of the field in the struct
  size_t bytes;   // of the field: 1, 2, 4 or 8
  tide__column_rule rule;
} tide__column;

typedef struct tide__table {
  const char* name;  // of a row
  size_t row_bytes;
  const tide__column* columns;
  size_t column_count;
} tide__table;

extern const tide__table tide__table_entries;   // of tide_trace_entry
extern const tide__table tide__table_segments;  // of tide_trace_segment, without first_block
extern const tide__table tide__table_blocks;    // of tide_trace_block

// The numbers in use in a trace, and the largest value that each rule allows.
typedef struct tide__known {
  const tide_intern* names;  // borrowed from the trace
  tide_intern_counts counts;
  uint64_t limits[TIDE__COLUMN_RULE_COUNT];
} tide__known;

tide__known tide__known_of(const tide_trace* trace);

// Is it 0 or the number of a dict?
bool tide__known_is_extra(const tide__known* known, uint64_t number);

// The values of one column, between rows and bytes.
typedef struct tide__values {
  const tide_heap* heap;  // borrowed until fini
  uint64_t* items;        // owned
  size_t room;
} tide__values;

void tide__values_fini(tide__values* values);
// Makes room for `count` values. Errors: TIDE_ERR_NO_MEMORY.
tide_status tide__values_reserve(tide__values* values, size_t count);

// Appends `count` rows.
// Errors:  TIDE_ERR_ARGUMENT for a row with a reference that does not exist; TIDE_ERR_NO_MEMORY.
// Cost:    two passes over each column; the one over times divides.
tide_status tide__table_put(const tide__table* table, const tide__known* known, const void* rows,
                            size_t count, tide__values* values, tide__bytes* to);

// Takes `count` rows. The caller has room for them, and has checked that at least `count` bytes are left.
// Errors:  TIDE_ERR_FORMAT with the offset of the byte; TIDE_ERR_NO_MEMORY.
tide_status tide__table_take(const tide__table* table, const tide__known* known, tide__cursor* from,
                             size_t count, tide__values* values, void* rows);

#endif
