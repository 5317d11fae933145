// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Lines and fields. The end of a line is searched in the buffered bytes, and more is read only if it is
// missing.
// Cost: O(bytes), each byte once; no memory beside the input's buffer, which holds one line.
#include "format/csv.h"

#include <inttypes.h>
#include <string.h>

#include "base/arith.h"
#include "base/error.h"

#define CSV_SHOWN 40u  // bytes of a wrong field that an error shows

// ---------------------------------------------------------------------------------------------------
// Fields

bool tide__csv_field_is(tide__csv_field field, const char* text) {
  return field.bytes == strlen(text) && memcmp(field.text, text, field.bytes) == 0;
}

bool tide__csv_fits(tide__csv_field field) {
  for (size_t i = 0; i < field.bytes; i++) {
    if (field.text[i] == ',' || field.text[i] == '\n' || field.text[i] == '\r') return false;
  }
  return true;
}

tide_status tide__extra_item(tide_intern* names, const char* key, const tide_value* value, uint64_t* out) {
  uint32_t text = 0;
  uint32_t number = 0;
  TIDE_TRY(tide_intern_add_text(names, key, strlen(key), &text));
  TIDE_TRY(tide_intern_add_value(names, value, &number));
  *out = (uint64_t)text << 32 | number;
  return TIDE_OK;
}

size_t tide__csv_split(tide__csv_field line, tide__csv_field fields[TIDE__CSV_FIELDS]) {
  const char* at = line.text;
  const char* const end = line.text + line.bytes;
  size_t count = 0;
  for (;;) {
    const char* const comma = memchr(at, ',', (size_t)(end - at));
    const char* const stop = comma != NULL ? comma : end;
    if (count < TIDE__CSV_FIELDS) fields[count] = (tide__csv_field){ at, (size_t)(stop - at) };
    count++;
    if (comma == NULL) return count;
    at = comma + 1;
  }
}

bool tide__csv_decimal(tide__csv_field field, uint64_t* out) {
  uint64_t number = 0;
  for (size_t i = 0; i < field.bytes; i++) {
    const char digit = field.text[i];
    if (digit < '0' || digit > '9') return false;
    if (!tide__mul(number, 10, &number) || !tide__add(number, (uint64_t)(digit - '0'), &number)) return false;
  }
  *out = number;
  return field.bytes > 0 && number <= INT64_MAX;
}

static int csv_hexadecimal_digit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

bool tide__csv_hexadecimal(tide__csv_field field, uint64_t* out) {
  uint64_t number = 0;
  for (size_t i = 0; i < field.bytes; i++) {
    const int digit = csv_hexadecimal_digit(field.text[i]);
    if (digit < 0) return false;
    number = number << 4 | (uint64_t)digit;
  }
  *out = number;
  return field.bytes > 0 && field.bytes <= 16;
}

// ---------------------------------------------------------------------------------------------------
// Lines

tide_status tide__csv_fail(const tide__csv* csv, size_t field, const char* what) {
  const bool is_there = field < csv->field_count && field < TIDE__CSV_FIELDS;
  const tide__csv_field at = is_there ? csv->fields[field] : csv->line;
  const uint64_t offset = csv->line_offset + (uint64_t)(at.text - csv->line.text);
  char shown[CSV_SHOWN + 1] = "";
  for (size_t i = 0; i < at.bytes && i < CSV_SHOWN; i++) {
    shown[i] = '?';
    if (at.text[i] >= ' ' && at.text[i] <= '~') shown[i] = at.text[i];
  }
  return TIDE_FAIL(TIDE_ERR_FORMAT, "line %" PRIu64 ", byte %" PRIu64 ": %s: \"%s\"", csv->line_number,
                   offset, what, shown);
}

// Buffers a whole line and returns its length without the newline.
static tide_status csv_line_find(tide__csv* csv, size_t* out_bytes) {
  tide__input* const input = csv->input;
  for (size_t looked = 0;;) {
    const uint8_t* const start = input->buffer + input->at;
    const size_t ready = tide__input_ready(input);
    const uint8_t* const newline = ready > looked ? memchr(start + looked, '\n', ready - looked) : NULL;
    *out_bytes = newline != NULL ? (size_t)(newline - start) : ready;
    csv->state = newline != NULL ? TIDE__CSV_LINE_WHOLE : TIDE__CSV_LINE_CUT;
    TIDE_REQUIRE(*out_bytes <= TIDE__CSV_LINE, TIDE_ERR_FORMAT,
                 "line %" PRIu64 ", byte %" PRIu64 ": longer than %zu bytes", csv->line_number,
                 csv->line_offset, TIDE__CSV_LINE);
    if (newline != NULL || input->is_ended) return TIDE_OK;
    looked = ready;
    TIDE_TRY(tide__input_fill(input, ready + 1));
  }
}

void tide__csv_check_row(tide__output* output, uint64_t begin) {
  if (tide__output_offset(output) - begin <= TIDE__CSV_LINE + 1) return;  // with its newline
  tide__output_fail(output,
                    TIDE_FAIL(TIDE_ERR_LIMIT, "trace_write: a row has more than %zu bytes", TIDE__CSV_LINE));
}

tide_status tide__csv_next(tide__csv* csv) {
  size_t length = 0;
  csv->line_number++;
  csv->line_offset = tide__input_offset(csv->input);
  csv->field_count = 0;
  TIDE_TRY(csv_line_find(csv, &length));
  const bool is_whole = csv->state == TIDE__CSV_LINE_WHOLE;
  const uint8_t* bytes = NULL;
  TIDE_TRY(tide__input_take(csv->input, length + is_whole, &bytes));
  const bool is_empty = length == 0;
  if (!is_empty && bytes[length - 1] == '\r') length--;
  csv->line = (tide__csv_field){ (const char*)bytes, length };
  if (!is_whole && is_empty) csv->state = TIDE__CSV_END;
  if (csv->state == TIDE__CSV_END) return TIDE_OK;
  csv->field_count = tide__csv_split(csv->line, csv->fields);
  if (csv->field_count <= TIDE__CSV_FIELDS) return TIDE_OK;
  return tide__csv_fail(csv, TIDE__CSV_NO_FIELD, "too many fields");
}
