// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Reads MiniMalloc's planning problems: a CSV with a row for each buffer, its lifetime [lower, upper) and its
// size. Columns may be in any order and have any of their names. The values of a column "end" are inclusive.
// An empty line ends the problem. To read a trace, the problem is read and then converted.
// Cost: O(n) for n rows.
#include "format/minimalloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "format/others.h"
#include "format/problem.h"

const char* const tide__mini_columns[TIDE__MINI_COLUMNS] = { "id",        "lower", "upper", "size",
                                                             "alignment", "hint",  "gaps",  "offset" };

static const struct {
  const char* name;
  tide__mini_column column;
} mini_aliases[] = { { "buffer", TIDE__MINI_ID },
                     { "buffer_id", TIDE__MINI_ID },
                     { "begin", TIDE__MINI_LOWER },
                     { "start", TIDE__MINI_LOWER },
                     { "end", TIDE__MINI_UPPER } };

// ---------------------------------------------------------------------------------------------------
// The header

typedef struct mini_header {
  size_t place[TIDE__MINI_COLUMNS];  // of a column in a row, from 1; 0: it is not there
  size_t count;
  bool is_inclusive;  // the last step of a lifetime is in the column, not the one after it
} mini_header;

static tide__mini_column mini_column_find(tide__csv_field name) {
  for (size_t i = 0; i < TIDE__MINI_COLUMNS; i++) {
    if (tide__csv_field_is(name, tide__mini_columns[i])) return (tide__mini_column)i;
  }
  for (size_t i = 0; i < sizeof mini_aliases / sizeof mini_aliases[0]; i++) {
    if (tide__csv_field_is(name, mini_aliases[i].name)) return mini_aliases[i].column;
  }
  return TIDE__MINI_COLUMNS;
}

// Returns NULL, or what is wrong and in which field.
static const char* mini_header_parse(const tide__csv_field* fields, size_t count, mini_header* out,
                                     size_t* out_field) {
  *out = (mini_header){ .count = count };
  for (*out_field = 0; *out_field < count; ++*out_field) {
    if (*out_field == TIDE__CSV_FIELDS) return "too many columns";
    const tide__mini_column column = mini_column_find(fields[*out_field]);
    if (column == TIDE__MINI_COLUMNS) return "not a column of MiniMalloc";
    if (out->place[column] != 0) return "a column that occurs twice";
    out->place[column] = *out_field + 1;
    out->is_inclusive |= tide__csv_field_is(fields[*out_field], "end");
  }
  for (size_t i = 0; i < TIDE__MINI_REQUIRED; i++) {
    *out_field = TIDE__CSV_NO_FIELD;
    if (out->place[i] == 0) return "a column for id, lower, upper or size is missing";
  }
  return NULL;
}

bool tide__minimalloc_is(const void* head, size_t bytes) {
  const char* const newline = bytes > 0 ? memchr(head, '\n', bytes) : NULL;
  tide__csv_field line = { head, newline != NULL ? (size_t)(newline - (const char*)head) : bytes };
  if (newline != NULL && line.bytes > 0 && line.text[line.bytes - 1] == '\r') line.bytes--;
  if (line.bytes == 0) return false;
  tide__csv_field fields[TIDE__CSV_FIELDS];
  mini_header header;
  size_t field = 0;
  return mini_header_parse(fields, tide__csv_split(line, fields), &header, &field) == NULL;
}

// ---------------------------------------------------------------------------------------------------
// Gaps

static bool mini_take_number(tide__csv_field* rest, uint64_t* out) {
  size_t digits = 0;
  while (digits < rest->bytes && rest->text[digits] >= '0' && rest->text[digits] <= '9') digits++;
  const bool is_good = tide__csv_decimal((tide__csv_field){ rest->text, digits }, out);
  if (is_good) *rest = (tide__csv_field){ rest->text + digits, rest->bytes - digits };
  return is_good;
}

static bool mini_take_mark(tide__csv_field* rest, char mark) {
  if (rest->bytes == 0 || rest->text[0] != mark) return false;
  *rest = (tide__csv_field){ rest->text + 1, rest->bytes - 1 };
  return true;
}

bool tide__mini_gap_next(tide__csv_field* rest, tide_plan_gap* out) {
  *out = (tide_plan_gap){ 0 };
  while (mini_take_mark(rest, ' ')) {}
  tide__csv_field at = *rest;
  if (!mini_take_number(&at, &out->lower) || !mini_take_mark(&at, '-') ||
      !mini_take_number(&at, &out->upper)) {
    return false;
  }
  if (mini_take_mark(&at, '@') && (!mini_take_number(&at, &out->first) || !mini_take_mark(&at, ':') ||
                                   !mini_take_number(&at, &out->last))) {
    return false;
  }
  if (at.bytes > 0 && at.text[0] != ' ') return false;
  *rest = at;
  return true;
}

size_t tide__mini_gap_print(const tide_plan_gap* gap, char out[TIDE__MINI_GAP_TEXT]) {
  int length = snprintf(out, TIDE__MINI_GAP_TEXT, "%" PRIu64 "-%" PRIu64, gap->lower, gap->upper);
  if (gap->first != 0 || gap->last != 0) {
    length += snprintf(out + length, TIDE__MINI_GAP_TEXT - (size_t)length, "@%" PRIu64 ":%" PRIu64,
                       gap->first, gap->last);
  }
  return (size_t)length;
}

// ---------------------------------------------------------------------------------------------------
// Rows

typedef struct mini_reader {
  tide__csv csv;
  mini_header header;
  tide_problem* problem;
} mini_reader;

static tide__csv_field mini_field(const mini_reader* r, tide__mini_column column) {
  return r->csv.fields[r->header.place[column] - 1];
}

static tide_status mini_fail(const mini_reader* r, tide__mini_column column, const char* what) {
  return tide__csv_fail(&r->csv, r->header.place[column] - 1, what);
}

static tide_status mini_lifetime_read(mini_reader* r, tide_plan_buffer* out) {
  const uint64_t limit = INT64_MAX / TIDE__MINI_STEP_NS;
  if (!tide__csv_decimal(mini_field(r, TIDE__MINI_LOWER), &out->lower) || out->lower > limit) {
    return mini_fail(r, TIDE__MINI_LOWER, "not a time, or too large");
  }
  if (!tide__csv_decimal(mini_field(r, TIDE__MINI_UPPER), &out->upper) ||
      out->upper >= limit - r->header.is_inclusive) {
    return mini_fail(r, TIDE__MINI_UPPER, "not a time, or too large");
  }
  out->upper += r->header.is_inclusive;
  if (out->upper < out->lower) return mini_fail(r, TIDE__MINI_UPPER, "ends before it begins");
  if (!tide__csv_decimal(mini_field(r, TIDE__MINI_SIZE), &out->bytes)) {
    return mini_fail(r, TIDE__MINI_SIZE, "not a size, or too large");
  }
  return TIDE_OK;
}

// Reads an optional column if the file has it. `out` stays as it is otherwise.
static tide_status mini_number_read(mini_reader* r, tide__mini_column column, uint64_t* out) {
  if (r->header.place[column] == 0) return TIDE_OK;
  if (tide__csv_decimal(mini_field(r, column), out)) return TIDE_OK;
  return mini_fail(r, column, "not a number, or too large");
}

// A negative hint means that there is none.
static tide_status mini_hint_read(mini_reader* r, int64_t* out) {
  if (r->header.place[TIDE__MINI_HINT] == 0) return TIDE_OK;
  tide__csv_field field = mini_field(r, TIDE__MINI_HINT);
  uint64_t number = 0;
  const bool is_negative = mini_take_mark(&field, '-');
  if (!tide__csv_decimal(field, &number)) return mini_fail(r, TIDE__MINI_HINT, "not a number, or too large");
  *out = is_negative ? -(int64_t)number : (int64_t)number;
  return TIDE_OK;
}

static tide_status mini_gaps_read(mini_reader* r) {
  if (r->header.place[TIDE__MINI_GAPS] == 0) return TIDE_OK;
  tide__csv_field rest = mini_field(r, TIDE__MINI_GAPS);
  tide_plan_gap gap;
  while (tide__mini_gap_next(&rest, &gap)) {
    if (gap.upper == INT64_MAX && r->header.is_inclusive) {
      return mini_fail(r, TIDE__MINI_GAPS, "a number too large");
    }
    gap.upper += r->header.is_inclusive;
    TIDE_TRY(tide__problem_add_gap(r->problem, gap));
  }
  return rest.bytes == 0 ? TIDE_OK : mini_fail(r, TIDE__MINI_GAPS, "not gaps as in 3-5 or 3-5@0:64");
}

static tide_status mini_row_read(mini_reader* r) {
  tide_plan_buffer buffer = { .alignment = 1, .offset = TIDE_PLAN_ANYWHERE };
  int64_t hint = -1;
  if (r->csv.field_count != r->header.count) {
    return tide__csv_fail(&r->csv, TIDE__CSV_NO_FIELD, "not as many fields as in the header");
  }
  TIDE_REQUIRE(r->problem->count < TIDE__MINI_ROWS_MAX, TIDE_ERR_LIMIT,
               "problem_read: more than 2^31 buffers");
  TIDE_TRY(mini_lifetime_read(r, &buffer));
  TIDE_TRY(mini_number_read(r, TIDE__MINI_ALIGNMENT, &buffer.alignment));
  if (buffer.alignment == 0) return mini_fail(r, TIDE__MINI_ALIGNMENT, "an alignment of 0");
  TIDE_TRY(mini_hint_read(r, &hint));
  TIDE_TRY(mini_gaps_read(r));
  TIDE_TRY(mini_number_read(r, TIDE__MINI_OFFSET, &buffer.offset));
  const bool holds_bytes = buffer.offset != TIDE_PLAN_ANYWHERE && buffer.lower < buffer.upper;
  if (holds_bytes && buffer.bytes > 0 && buffer.offset > INT64_MAX - buffer.bytes) {
    return mini_fail(r, TIDE__MINI_OFFSET, "the range ends above 2^63");
  }
  const tide__csv_field id = mini_field(r, TIDE__MINI_ID);
  return tide__problem_add(r->problem, &buffer, hint, id.text, id.bytes);
}

// The last line needs no newline: published problems have none.
static tide_status mini_rows_read(mini_reader* r) {
  for (;;) {
    TIDE_TRY(tide__csv_next(&r->csv));
    if (r->csv.state == TIDE__CSV_END) return TIDE_OK;
    if (r->csv.line.bytes == 0) return tide__input_drain(r->csv.input);
    TIDE_TRY(mini_row_read(r));
  }
}

static tide_status mini_read(mini_reader* r) {
  size_t field = 0;
  TIDE_TRY(tide__csv_next(&r->csv));
  const char* const fault = mini_header_parse(r->csv.fields, r->csv.field_count, &r->header, &field);
  if (fault != NULL) return tide__csv_fail(&r->csv, field, fault);
  return mini_rows_read(r);
}

// ---------------------------------------------------------------------------------------------------
// Problems and traces

tide_status tide__problem_read(tide__input* input, tide_problem** out) {
  mini_reader r = { .csv = { .input = input } };
  *out = NULL;
  TIDE_TRY(tide__problem_begin(input->heap, &r.problem));
  const tide_status status = mini_read(&r);
  if (status != TIDE_OK) {
    tide_problem_free(r.problem);
    return status;
  }
  for (tide__mini_column i = TIDE__MINI_REQUIRED; i < TIDE__MINI_COLUMNS; i++) {
    r.problem->has_column[i] = r.header.place[i] != 0 && r.problem->count > 0;
  }
  tide__problem_seal(r.problem);
  *out = r.problem;
  return TIDE_OK;
}

tide_status tide__minimalloc_read(tide__input* input, tide_trace* trace) {
  tide_problem* problem = NULL;
  TIDE_TRY(tide__problem_read(input, &problem));
  const tide_status status = tide__problem_to_trace(problem, trace);
  tide_problem_free(problem);
  return status;
}
