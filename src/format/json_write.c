// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Writes a snapshot as JSON, which PyTorch's viewers open as well. JSON has no tuples and no references:
// pairs become lists, and call stacks are written out each time.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "format/decode.h"
#include "format/json_text.h"
#include "format/snapshot_write.h"

#define JSON_DEPTH 80u

typedef struct json_writer {
  tide__encoder e;  // first, so that one leads to the other
  size_t counts[JSON_DEPTH];
  bool is_dict[JSON_DEPTH];
  size_t depth;
} json_writer;

// Writes the separator between an item and the one before it.
static void json_item(json_writer* w) {
  if (w->depth == 0) return;
  const size_t level = w->depth - 1;
  const size_t count = w->counts[level]++;
  if (w->is_dict[level] && count % 2 == 1) tide__output_text(w->e.output, ": ");
  else if (count > 0) tide__output_text(w->e.output, w->depth <= 3 ? ",\n" : ", ");
}

static void json_open(tide__encoder* e, tide_value_kind kind, size_t count) {
  json_writer* const w = (json_writer*)e;
  (void)count;
  json_item(w);
  tide__output_byte(e->output, kind == TIDE_VALUE_DICT ? '{' : '[');
  w->counts[w->depth] = 0;
  w->is_dict[w->depth++] = kind == TIDE_VALUE_DICT;
}

static void json_close(tide__encoder* e, tide_value_kind kind, size_t count) {
  json_writer* const w = (json_writer*)e;
  (void)count;
  w->depth--;
  tide__output_byte(e->output, kind == TIDE_VALUE_DICT ? '}' : ']');
}

static void json_word(tide__encoder* e, tide__word word) {
  const char* const text = tide__word_text(word);
  json_item((json_writer*)e);
  tide__output_json_text(e->output, text, strlen(text), TIDE__JSON_KEEP);
}

static void json_text_of(tide__encoder* e, uint32_t id) {
  size_t bytes = 0;
  const char* const text = tide_intern_text(e->names, id, &bytes);
  json_item((json_writer*)e);
  tide__output_json_text(e->output, text, bytes, TIDE__JSON_KEEP);
}

static void json_uint(tide__encoder* e, uint64_t number) {
  json_item((json_writer*)e);
  tide__output_uint(e->output, number);
}

// The fewest digits that read back as the same number. Values that are not finite are written as in Python.
static void json_float(tide__output* output, double number) {
  char text[40];
  if (!isfinite(number)) {
    tide__output_text(output, isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity");
    return;
  }
  for (int digits = 15; digits <= 17; digits++) {
    (void)snprintf(text, sizeof text, "%.*g", digits, number);
    if (strtod(text, NULL) == number) break;
  }
  tide__json_point(text);
  tide__output_text(output, text);
  if (strpbrk(text, ".e") == NULL) tide__output_text(output, ".0");
}

static void json_scalar(tide__encoder* e, const tide_value* value) {
  json_item((json_writer*)e);
  switch (value->kind) {
    case TIDE_VALUE_INT: tide__output_int(e->output, value->integer); break;
    case TIDE_VALUE_UINT: tide__output_uint(e->output, (uint64_t)value->integer); break;
    case TIDE_VALUE_BOOL: tide__output_text(e->output, value->integer ? "true" : "false"); break;
    case TIDE_VALUE_FLOAT: json_float(e->output, value->number); break;
    default: tide__output_text(e->output, "null"); break;
  }
}

static const tide__encoding json_encoding = { json_open, json_close,  json_word, json_text_of,
                                              json_uint, json_scalar, NULL,      NULL };

tide_status tide__json_write(const tide_trace* trace, tide__output* output) {
  json_writer w = { .e = { &json_encoding, trace, tide_trace_names(trace), output, 0 } };
  tide__snapshot_write(&w.e);
  tide__output_byte(output, '\n');
  return output->status;
}
