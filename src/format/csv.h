// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Lines of comma-separated fields without quoting, for logs and planning problems. Lines and fields stay in
// the input's buffer, so reading takes no memory of its own.
//
//   tide__csv csv = { .input = input };
//   for (;;) {
//     TIDE_TRY(tide__csv_next(&csv));
//     if (csv.state == TIDE__CSV_END) break;
//     ... csv.fields[0].text, csv.fields[0].bytes ...
//   }
#ifndef TIDEMARK_SRC_FORMAT_CSV_H
#define TIDEMARK_SRC_FORMAT_CSV_H

#include "format/input.h"
#include "format/output.h"

#define TIDE__CSV_FIELDS 16u
#define TIDE__CSV_LINE ((size_t)1 << 20)  // no line is longer than this

typedef struct tide__csv_field {
  const char* text;  // borrowed until the next line is read; not ended by a zero byte
  size_t bytes;
} tide__csv_field;

typedef enum tide__csv_state {
  TIDE__CSV_LINE_WHOLE = 0,
  TIDE__CSV_LINE_CUT = 1,  // the last line, without a newline: in a log, some of it may be missing
  TIDE__CSV_END = 2
} tide__csv_state;

// [C1] line == the fields with commas between them
typedef struct tide__csv {
  tide__input* input;  // caller keeps
  tide__csv_field line;
  tide__csv_field fields[TIDE__CSV_FIELDS];
  size_t field_count;    // an empty line has one field, an empty one
  uint64_t line_number;  // from 1
  uint64_t line_offset;  // of its first byte in the file
  tide__csv_state state;
} tide__csv;

// Reads a line and splits it. A carriage return at its end belongs to no field.
// Errors: TIDE_ERR_FORMAT for a line that is too long or has too many fields; any error of the input.
tide_status tide__csv_next(tide__csv* csv);

// Returns TIDE_ERR_FORMAT with a text that names the line and the offset of a field in the file; of the line
// for TIDE__CSV_NO_FIELD, or if there is no such field.
#define TIDE__CSV_NO_FIELD SIZE_MAX
tide_status tide__csv_fail(const tide__csv* csv, size_t field, const char* what);

// Splits a line at its commas. Returns the number of fields, which may be more than TIDE__CSV_FIELDS.
size_t tide__csv_split(tide__csv_field line, tide__csv_field fields[TIDE__CSV_FIELDS]);

// Called after a row that begins at offset `begin` was written. A row that is too long fails the output.
void tide__csv_check_row(tide__output* output, uint64_t begin);

bool tide__csv_field_is(tide__csv_field field, const char* text);

// Can a field hold these bytes? There is no quoting, so commas and line ends cannot be in it.
bool tide__csv_fits(tide__csv_field field);

// Interns a key and a value and makes them an item of a dict, for columns that the trace has no field for.
tide_status tide__extra_item(tide_intern* names, const char* key, const tide_value* value, uint64_t* out);

// The number in a field that consists of digits; false otherwise, or above INT64_MAX. A hexadecimal number
// has up to 16 digits.
bool tide__csv_decimal(tide__csv_field field, uint64_t* out);
bool tide__csv_hexadecimal(tide__csv_field field, uint64_t* out);

#endif
