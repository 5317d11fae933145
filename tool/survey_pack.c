// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Rows as bytes: numbers have eight bytes, the lowest first; a text is its length + 1, or 0 for NULL, and
// then its letters.
#include <stdlib.h>
#include <string.h>

#include "survey.h"

#define NUMBER_BYTES 8u

// ---------------------------------------------------------------------------------------------------
// Bytes

void tool_bytes_fini(tool_bytes* bytes) {
  free(bytes->data);
  *bytes = (tool_bytes){ .count = 0 };
}

unsigned char* tool_bytes_extend(tool_bytes* bytes, size_t count) {
  if (count > bytes->room - bytes->count) {
    bytes->room = 2 * bytes->room + count;
    bytes->data = tool_grow(bytes->data, bytes->room, 1);
  }
  unsigned char* const at = bytes->data + bytes->count;
  bytes->count += count;
  return at;
}

void tool_bytes_append(tool_bytes* bytes, const tool_bytes* more) {
  if (more->count > 0) memcpy(tool_bytes_extend(bytes, more->count), more->data, more->count);
}

void tool_bytes_put(tool_bytes* bytes, uint64_t number) {
  unsigned char* const at = tool_bytes_extend(bytes, NUMBER_BYTES);
  for (unsigned i = 0; i < NUMBER_BYTES; i++) at[i] = (unsigned char)(number >> 8 * i);
}

void tool_bytes_put_text(tool_bytes* bytes, const char* text) {
  tool_bytes_put(bytes, text == NULL ? 0 : strlen(text) + 1);
  if (text != NULL && *text != '\0') memcpy(tool_bytes_extend(bytes, strlen(text)), text, strlen(text));
}

bool tool_bytes_take(tool_bytes* bytes, uint64_t* out) {
  *out = 0;
  if (bytes->count - bytes->next < NUMBER_BYTES) return false;
  for (unsigned i = 0; i < NUMBER_BYTES; i++) *out |= (uint64_t)bytes->data[bytes->next + i] << 8 * i;
  bytes->next += NUMBER_BYTES;
  return true;
}

bool tool_bytes_take_text(tool_bytes* bytes, char** out) {
  uint64_t length = 0;
  *out = NULL;
  if (!tool_bytes_take(bytes, &length)) return false;
  if (length == 0) return true;
  if (--length > bytes->count - bytes->next) return false;
  *out = tool_alloc((size_t)length + 1, 1);
  if (length > 0) memcpy(*out, bytes->data + bytes->next, (size_t)length);
  bytes->next += (size_t)length;
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Rows

tool_survey_row* tool_survey_rows_add(tool_survey_rows* rows) {
  if (rows->count == rows->room) {
    rows->room = 2 * rows->room + 8;
    rows->items = tool_grow(rows->items, rows->room, sizeof *rows->items);
  }
  tool_survey_row* const row = &rows->items[rows->count++];
  *row = (tool_survey_row){ .outlier_of = -1 };
  return row;
}

static void row_fini(tool_survey_row* row) {
#define ROW_FREE(name) free(row->name);
  TOOL_SURVEY_TEXTS(ROW_FREE)
#undef ROW_FREE
  for (size_t i = 0; i < row->trial_count; i++) free(row->trials[i].settings);
  free(row->trials);
}

void tool_survey_rows_cut(tool_survey_rows* rows, size_t count) {
  while (rows->count > count) row_fini(&rows->items[--rows->count]);
}

void tool_survey_rows_fini(tool_survey_rows* rows) {
  tool_survey_rows_cut(rows, 0);
  free(rows->items);
  *rows = (tool_survey_rows){ .count = 0 };
}

static void row_put(const tool_survey_row* row, tool_bytes* out) {
#define ROW_PUT(name) tool_bytes_put(out, row->name);
#define ROW_PUT_TEXT(name) tool_bytes_put_text(out, row->name);
  TOOL_SURVEY_NUMBERS(ROW_PUT)
  TOOL_SURVEY_FLAGS(ROW_PUT)
  TOOL_SURVEY_TEXTS(ROW_PUT_TEXT)
#undef ROW_PUT
#undef ROW_PUT_TEXT
  tool_bytes_put(out, row->trial_count);
  for (size_t i = 0; i < row->trial_count; i++) {
    tool_bytes_put_text(out, row->trials[i].settings);
    tool_bytes_put(out, row->trials[i].reserved);
    tool_bytes_put(out, row->trials[i].driver_ns);
    tool_bytes_put(out, row->trials[i].fits);
  }
}

void tool_survey_rows_put(const tool_survey_rows* rows, tool_bytes* out) {
  tool_bytes_put(out, rows->count);
  for (size_t i = 0; i < rows->count; i++) row_put(&rows->items[i], out);
}

static bool flag_take(tool_bytes* bytes, bool* out) {
  uint64_t number = 0;
  const bool is_there = tool_bytes_take(bytes, &number);
  *out = number != 0;
  return is_there;
}

static bool trial_take(tool_bytes* bytes, tool_survey_trial* out) {
  return tool_bytes_take_text(bytes, &out->settings) && tool_bytes_take(bytes, &out->reserved) &&
         tool_bytes_take(bytes, &out->driver_ns) && flag_take(bytes, &out->fits) && out->settings != NULL;
}

static bool row_take(tool_bytes* bytes, tool_survey_row* row) {
  bool is_whole = true;
#define ROW_TAKE(name) is_whole = is_whole && tool_bytes_take(bytes, &row->name);
#define ROW_TAKE_FLAG(name) is_whole = is_whole && flag_take(bytes, &row->name);
#define ROW_TAKE_TEXT(name) is_whole = is_whole && tool_bytes_take_text(bytes, &row->name);
  TOOL_SURVEY_NUMBERS(ROW_TAKE)
  TOOL_SURVEY_FLAGS(ROW_TAKE_FLAG)
  TOOL_SURVEY_TEXTS(ROW_TAKE_TEXT)
#undef ROW_TAKE
#undef ROW_TAKE_FLAG
#undef ROW_TAKE_TEXT
  uint64_t count = 0;
  if (!is_whole || !tool_bytes_take(bytes, &count) || count > TOOL_TRIALS) return false;
  row->trials = tool_alloc((size_t)count, sizeof *row->trials);
  while (row->trial_count < count) {
    if (!trial_take(bytes, &row->trials[row->trial_count++])) return false;
  }
  return true;
}

bool tool_survey_rows_take(tool_bytes* bytes, tool_survey_rows* out) {
  uint64_t count = 0;
  if (!tool_bytes_take(bytes, &count)) return false;
  for (uint64_t i = 0; i < count; i++) {
    if (!row_take(bytes, tool_survey_rows_add(out))) return false;
  }
  return true;
}
