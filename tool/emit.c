// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The answer of a verb. Every fact has a key for JSON and a label for text output, and is written in the
// requested form. The whole answer is kept in memory and printed at the end. Text output consists of blocks
// separated by an empty line: a title, a paragraph, a list of facts, a table. Facts are collected until
// another block begins, so that their values can be aligned.
//
// Cost: O(length); a table is laid out once, when it ends.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "display.h"
#include "tool.h"

#define NUMBER_TEXT 400  // the longest double with its decimals

struct tool_emit {
  FILE* out;  // owned: writes to `text`
  char* text;
  size_t bytes;
  bool is_json;
  bool has_color;

  // JSON: whether the object or list at each depth has a member already
  int depth;
  bool* has_member;  // owned

  // Text output
  tool_grid facts;
  tool_grid table;
  bool has_block;
  bool is_after_title;

  // The current table
  const tool_column* columns;  // borrowed until its end; NULL: none
  size_t column_count;
  size_t next_column;
  bool is_hidden;  // it has no key, and the output is JSON
  bool is_in_row;
};

// ---------------------------------------------------------------------------------------------------
// JSON

void tool_json_put_text(FILE* to, const char* text, size_t bytes) {
  (void)fputc('"', to);
  for (size_t at = 0; at < bytes;) {
    uint32_t point = 0;
    const size_t length = tool_code_point(text + at, bytes - at, &point);
    if (point == '"' || point == '\\') (void)fprintf(to, "\\%c", (int)point);
    else if (point > 0xffff && tool_code_point_steers(point))
      (void)fprintf(to, "\\u%04x\\u%04x", 0xd7c0 + (unsigned)(point >> 10),
                    0xdc00 + (unsigned)(point & 0x3ff));
    else if (tool_code_point_steers(point)) (void)fprintf(to, "\\u%04x", (unsigned)point);
    else if (point == 0xfffd) (void)fputs("\xef\xbf\xbd", to);
    else (void)fwrite(text + at, 1, length, to);
    at += length;
  }
  (void)fputc('"', to);
}

// A row is one line; every other member has a line of its own.
static void json_member(tool_emit* emit, const char* key) {
  if (emit->has_member[emit->depth]) (void)fputc(',', emit->out);
  emit->has_member[emit->depth] = true;
  if (emit->is_in_row) (void)fputs(" ", emit->out);
  else (void)fprintf(emit->out, "\n%*s", 2 * emit->depth, "");
  if (key == NULL) return;
  tool_json_put_text(emit->out, key, strlen(key));
  (void)fputs(": ", emit->out);
}

static void json_open(tool_emit* emit, const char* key, char bracket) {
  if (emit->depth > 0) json_member(emit, key);
  (void)fputc(bracket, emit->out);
  emit->depth++;
  emit->has_member = tool_grow(emit->has_member, (size_t)emit->depth + 1, sizeof *emit->has_member);
  emit->has_member[emit->depth] = false;
}

static void json_close(tool_emit* emit, char bracket) {
  const bool has_member = emit->has_member[emit->depth--];
  if (emit->is_in_row) (void)fprintf(emit->out, " %c", bracket);
  else if (has_member) (void)fprintf(emit->out, "\n%*s%c", 2 * emit->depth, "", bracket);
  else (void)fputc(bracket, emit->out);
}

// ---------------------------------------------------------------------------------------------------
// Blocks of text output

// An empty line, unless this is the first block or a title is above.
static void gap_put(tool_emit* emit, bool is_title) {
  if (emit->has_block && !emit->is_after_title) (void)fputc('\n', emit->out);
  emit->has_block = true;
  emit->is_after_title = is_title;
}

static void facts_flush(tool_emit* emit) {
  if (emit->facts.count == 0) return;
  gap_put(emit, false);
  const tool_grid_style style = { .has_color = emit->has_color, .width = tool_text_columns(stdout) };
  tool_grid_print(&emit->facts, emit->out, style);
}

static void block_begin(tool_emit* emit, bool is_title) {
  facts_flush(emit);
  gap_put(emit, is_title);
}

__attribute__((format(printf, 1, 0))) static char* words_format(const char* format, va_list arguments) {
  va_list again;
  va_copy(again, arguments);
  const int length = vsnprintf(NULL, 0, format, again);
  va_end(again);
  char* const text = tool_alloc((size_t)(length < 0 ? 0 : length) + 1, 1);
  if (length > 0) (void)vsnprintf(text, (size_t)length + 1, format, arguments);
  return text;
}

static void title_put(tool_emit* emit, const char* text) {
  char* const shown = tool_display_text(text, false);
  block_begin(emit, true);
  (void)fprintf(emit->out, "%s%s%s\n", emit->has_color ? TOOL_STYLE_TITLE : "", shown,
                emit->has_color ? TOOL_STYLE_END : "");
  free(shown);
}

void tool_emit_title(tool_emit* emit, const char* format, ...) {
  if (emit->is_json) return;
  va_list arguments;
  va_start(arguments, format);
  char* const text = words_format(format, arguments);
  va_end(arguments);
  title_put(emit, text);
  free(text);
}

void tool_emit_words(tool_emit* emit, const char* format, ...) {
  if (emit->is_json) return;
  va_list arguments;
  va_start(arguments, format);
  char* const text = words_format(format, arguments);
  va_end(arguments);
  char* const shown = tool_display_text(text, true);
  block_begin(emit, false);
  tool_wrap(emit->out, shown, 0, 0, tool_text_columns(stdout));
  free(shown);
  free(text);
}

void tool_emit_drawing(tool_emit* emit, const char* lines) {
  if (emit->is_json) return;
  block_begin(emit, false);
  (void)fputs(lines, emit->out);
}

bool tool_emit_has_color(const tool_emit* emit) { return emit->has_color; }

// ---------------------------------------------------------------------------------------------------
// Values

// Takes the column of the next value in a row. Returns false if the value is not printed.
static bool value_place(tool_emit* emit, const char** key, const char** label) {
  if (emit->columns != NULL) {
    if (emit->next_column >= emit->column_count || emit->is_hidden) return false;
    const tool_column* column = &emit->columns[emit->next_column++];
    *key = column->key;
    *label = column->label;
  }
  return (emit->is_json ? *key : *label) != NULL;
}

static void cell_put(tool_emit* emit, const char* label, const char* text, bool is_number) {
  if (emit->columns != NULL) {
    tool_grid_add(&emit->table, text, is_number);
  } else {
    tool_grid_add(&emit->facts, label, false);
    tool_grid_add(&emit->facts, text, false);
  }
}

// A value that is a bare word in JSON, and possibly another word in text output.
static void word_put(tool_emit* emit, const char* key, const char* label, const char* json, const char* shown,
                     bool is_number) {
  if (!value_place(emit, &key, &label)) return;
  if (!emit->is_json) {
    cell_put(emit, label, shown, is_number);
    return;
  }
  json_member(emit, key);
  (void)fputs(json, emit->out);
}

void tool_emit_uint(tool_emit* emit, const char* key, const char* label, uint64_t value) {
  char text[32];
  (void)snprintf(text, sizeof text, "%llu", (unsigned long long)value);
  word_put(emit, key, label, text, text, true);
}

static void size_put(tool_emit* emit, const char* key, const char* label, uint64_t bytes, char sign) {
  if (!value_place(emit, &key, &label)) return;
  if (emit->is_json) {
    json_member(emit, key);
    (void)fprintf(emit->out, "%s%llu", sign == '-' ? "-" : "", (unsigned long long)bytes);
    return;
  }
  const bool is_fact = emit->columns == NULL;
  if (is_fact) tool_grid_add(&emit->facts, label, false);
  tool_grid_add_bytes(is_fact ? &emit->facts : &emit->table, bytes, sign);
}

void tool_emit_bytes(tool_emit* emit, const char* key, const char* label, uint64_t bytes) {
  size_put(emit, key, label, bytes, 0);
}

void tool_emit_change(tool_emit* emit, const char* key, const char* label, uint64_t a, uint64_t b) {
  size_put(emit, key, label, a > b ? a - b : b - a, a > b ? '-' : '+');
}

static const char* number_text(double value, int decimals, char out[NUMBER_TEXT]) {
  (void)snprintf(out, NUMBER_TEXT, "%.*f", decimals < 0 ? 0 : decimals, value);
  return out;
}

void tool_emit_real(tool_emit* emit, const char* key, const char* label, double value, int decimals) {
  char text[NUMBER_TEXT];
  if (!isfinite(value)) word_put(emit, key, label, "null", "-", true);
  else word_put(emit, key, label, number_text(value, decimals, text), text, true);
}

void tool_emit_share(tool_emit* emit, const char* key, const char* label, double share) {
  char json[NUMBER_TEXT];
  char text[TOOL_SHARE_TEXT];
  if (!isfinite(share)) word_put(emit, key, label, "null", "-", true);
  else word_put(emit, key, label, number_text(share, 4, json), tool_share_text(share, text), true);
}

void tool_emit_bool(tool_emit* emit, const char* key, const char* label, bool value) {
  word_put(emit, key, label, value ? "true" : "false", value ? "yes" : "no", false);
}

void tool_emit_text(tool_emit* emit, const char* key, const char* label, const char* text) {
  if (text == NULL) {
    word_put(emit, key, label, "null", "-", false);
    return;
  }
  if (!value_place(emit, &key, &label)) return;
  if (!emit->is_json) {
    cell_put(emit, label, text, false);
    return;
  }
  json_member(emit, key);
  tool_json_put_text(emit->out, text, strlen(text));
}

void tool_emit_format(tool_emit* emit, const char* key, const char* label, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char* const text = words_format(format, arguments);
  va_end(arguments);
  tool_emit_text(emit, key, label, text);
  free(text);
}

void tool_emit_list(tool_emit* emit, const char* key, const double* values, size_t count, int decimals) {
  const char* label = NULL;
  if (!value_place(emit, &key, &label)) return;
  if (!emit->is_json) {
    cell_put(emit, label, "", false);
    return;
  }
  char text[NUMBER_TEXT];
  json_member(emit, key);
  (void)fputc('[', emit->out);
  for (size_t i = 0; i < count; i++) {
    const char* number = isfinite(values[i]) ? number_text(values[i], decimals, text) : "null";
    (void)fprintf(emit->out, "%s%s", i == 0 ? "" : ", ", number);
  }
  (void)fputc(']', emit->out);
}

// ---------------------------------------------------------------------------------------------------
// Objects and tables

void tool_emit_open(tool_emit* emit, const char* key, const char* label) {
  if (emit->is_json) json_open(emit, key, '{');
  else if (label != NULL) title_put(emit, label);
}

void tool_emit_close(tool_emit* emit) {
  if (emit->is_json) json_close(emit, '}');
  else facts_flush(emit);
}

void tool_emit_open_list(tool_emit* emit, const char* key) {
  if (emit->is_json) json_open(emit, key, '[');
}

void tool_emit_close_list(tool_emit* emit) {
  if (emit->is_json) json_close(emit, ']');
}

void tool_emit_list_text(tool_emit* emit, const char* format, ...) {
  if (!emit->is_json) return;
  va_list arguments;
  va_start(arguments, format);
  char* const text = words_format(format, arguments);
  va_end(arguments);
  json_member(emit, NULL);
  tool_json_put_text(emit->out, text, strlen(text));
  free(text);
}

void tool_emit_table(tool_emit* emit, const char* key, const tool_column* columns, size_t count) {
  emit->columns = columns;
  emit->column_count = count;
  emit->is_hidden = emit->is_json && key == NULL;
  if (emit->is_json) {
    if (key != NULL) json_open(emit, key, '[');
    return;
  }
  facts_flush(emit);
  emit->table.columns = 0;
  for (size_t i = 0; i < count; i++) {
    if (columns[i].label == NULL) continue;
    emit->table.columns++;
    tool_grid_add(&emit->table, columns[i].label, false);
  }
}

// In text output, a row with fewer values than columns is filled up.
static void row_close(tool_emit* emit) {
  if (!emit->is_in_row) return;
  if (emit->is_json && !emit->is_hidden) json_close(emit, '}');
  while (!emit->is_json && emit->table.columns > 0 && emit->table.count % emit->table.columns != 0)
    tool_grid_add(&emit->table, "", false);
  emit->is_in_row = false;
}

void tool_emit_row(tool_emit* emit) {
  row_close(emit);
  if (emit->is_json && !emit->is_hidden) json_open(emit, NULL, '{');
  emit->is_in_row = true;
  emit->next_column = 0;
}

void tool_emit_table_end(tool_emit* emit) {
  row_close(emit);
  if (emit->is_json && !emit->is_hidden) json_close(emit, ']');
  emit->columns = NULL;
  if (emit->is_json) return;
  block_begin(emit, false);
  const size_t terminal = tool_terminal_columns(stdout);
  const tool_grid_style style = { .has_heading = true,
                                  .has_color = emit->has_color,
                                  .width = terminal > 0 ? terminal : tool_text_columns(stdout),
                                  .truncates = terminal > 0 };
  tool_grid_print(&emit->table, emit->out, style);
}

// ---------------------------------------------------------------------------------------------------
// Begin and end

bool tool_color_is_wanted(const tool_call* call) {
  const char* no_color = getenv("NO_COLOR");
  const char* terminal = getenv("TERM");
  if (call->color != TOOL_COLOR_AUTO) return call->color == TOOL_COLOR_ALWAYS;
  if (no_color != NULL && *no_color != '\0') return false;
  return tool_terminal_columns(stdout) > 0 && terminal != NULL && strcmp(terminal, "dumb") != 0;
}

tool_emit* tool_emit_begin(const tool_call* call) {
  tool_emit* const emit = tool_alloc(1, sizeof *emit);
  emit->is_json = call->is_json;
  emit->has_color = !call->is_json && tool_color_is_wanted(call);
  emit->facts.columns = 2;
  emit->out = open_memstream(&emit->text, &emit->bytes);
  if (emit->out == NULL) {
    (void)tool_fail("out of memory");
    exit(TOOL_USAGE);
  }
  if (emit->is_json) json_open(emit, NULL, '{');
  return emit;
}

void tool_emit_drop(tool_emit* emit) {
  if (emit == NULL) return;
  (void)fclose(emit->out);
  tool_grid_clear(&emit->facts);
  tool_grid_clear(&emit->table);
  free(emit->has_member);
  free(emit->text);
  free(emit);
}

// Completes the text; false without memory.
static bool emit_finish(tool_emit* emit) {
  if (emit->is_json) {
    json_close(emit, '}');
    (void)fputc('\n', emit->out);
  } else {
    facts_flush(emit);
  }
  return fflush(emit->out) == 0 && !ferror(emit->out);
}

char* tool_emit_take(tool_emit* emit) {
  if (!emit_finish(emit)) tool_out_of_memory();
  char* const text = strdup(emit->text);
  if (text == NULL) tool_out_of_memory();
  tool_emit_drop(emit);
  return text;
}

int tool_emit_end(tool_emit* emit) {
  const bool is_whole = emit_finish(emit);
  tool_progress_clear();
  const bool is_written = is_whole && fwrite(emit->text, 1, emit->bytes, stdout) == emit->bytes &&
                          fflush(stdout) == 0;
  const int error = errno;
  tool_emit_drop(emit);
  errno = error;
  return is_written ? TOOL_DONE : tool_output_failed();
}
