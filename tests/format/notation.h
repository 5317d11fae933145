// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Pickles for tests, written in a notation with one sign for an instruction, so that a test shows the program
// it means:
//
//   'text'   SHORT_BINUNICODE         #-12    BININT, or LONG1 of 8 bytes if that is not enough
//   ^        MEMOIZE                  q1 h1   BINPUT 1, BINGET 1
//   <86 00>  these bytes              other   the instruction of that letter; blanks are nothing
//
// and what was read is compared as JSON, on one line:
//
//   expect_json(pickle_of("}( 'segments' ] u ."), "{\"segments\": []}");
#ifndef TIDEMARK_TESTS_NOTATION_H
#define TIDEMARK_TESTS_NOTATION_H

#include "t.h"
#include "machine/counting_heap.h"
#include "traces.h"

static inline memory_file file_of(const void* data, size_t bytes) {
  memory_file file = { 0 };
  memory_file_add(&file, data, bytes);
  return file;
}

static inline memory_file file_of_text(const char* text) { return file_of(text, strlen(text)); }

static inline void file_add_text(memory_file* file, const char* text) {
  memory_file_add(file, text, strlen(text));
}

static inline void expect_same_bytes(const memory_file* a, const memory_file* b) {
  for (size_t i = 0; i < a->bytes && i < b->bytes; i++) {
    if (a->data[i] != b->data[i])
      T_FAIL("byte %zu of %zu and %zu: 0x%02x and 0x%02x", i, a->bytes, b->bytes, a->data[i], b->data[i]);
  }
  T_EQ(a->bytes, b->bytes);
}

// ---------------------------------------------------------------------------------------------------
// The notation of pickles

static inline void file_add_little(memory_file* file, uint64_t number, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) memory_file_add(file, &(uint8_t){ (uint8_t)(number >> 8 * i) }, 1);
}

static inline void notation_integer(memory_file* file, const char** at) {
  char* end = NULL;
  const long long number = strtoll(*at, &end, 10);
  const bool is_short = number >= INT32_MIN && number <= INT32_MAX;
  memory_file_add(file, is_short ? "J" : "\x8a\x08", is_short ? 1 : 2);
  file_add_little(file, (uint64_t)number, is_short ? 4 : 8);
  *at = end;
}

static inline void notation_text(memory_file* file, const char** at) {
  const size_t length = strcspn(*at, "'");
  T_LT(length, 256);
  memory_file_add(file, "\x8c", 1);
  file_add_little(file, length, 1);
  memory_file_add(file, *at, length);
  *at += length + 1;
}

static inline void notation_bytes(memory_file* file, const char** at) {
  while (**at != '>') {
    char* end = NULL;
    const unsigned long byte = strtoul(*at, &end, 16);
    T_CHECK(end != *at && byte <= UINT8_MAX);
    file_add_little(file, byte, 1);
    *at = end + strspn(end, " ");
  }
  ++*at;
}

// Adds the bytes of a notation.
static inline void file_add_pickle(memory_file* file, const char* at) {
  while (*at != '\0') {
    const char sign = *at++;
    char* end = NULL;
    switch (sign) {
      case ' ': break;
      case '\'': notation_text(file, &at); break;
      case '#': notation_integer(file, &at); break;
      case '<': notation_bytes(file, &at); break;
      case '^': memory_file_add(file, "\x94", 1); break;
      case 'q':
      case 'h':
        memory_file_add(file, &sign, 1);
        file_add_little(file, strtoul(at, &end, 10), 1);
        at = end;
        break;
      default: memory_file_add(file, &sign, 1); break;
    }
  }
}

static inline memory_file pickle_of(const char* notation) {
  memory_file file = file_of("\x80\x04", 2);
  file_add_pickle(&file, notation);
  return file;
}

// A notation, and its value as JSON.
typedef struct value_row {
  const char* notation;
  const char* json;
} value_row;

// A snapshot whose one device has these entries, and one with these segments.
static inline memory_file pickle_of_entries(const char* notation) {
  memory_file file = pickle_of("}( 'segments' ] 'device_traces' ](](");
  file_add_pickle(&file, notation);
  file_add_pickle(&file, "eeu.");
  return file;
}

static inline memory_file pickle_of_segments(const char* notation) {
  memory_file file = pickle_of("}( 'segments' ](");
  file_add_pickle(&file, notation);
  file_add_pickle(&file, "e 'device_traces' ] u.");
  return file;
}

// ---------------------------------------------------------------------------------------------------
// Reading and writing

// `options` may be NULL.
static inline tide_status file_read(memory_file* file, const tide_read_options* options, tide_trace** out) {
  const tide_source source = memory_file_source(file);
  return tide_trace_read(&source, options, out);
}

static inline tide_trace* trace_of(memory_file* file) {
  tide_trace* trace = NULL;
  T_OK(file_read(file, NULL, &trace));
  return trace;
}

static inline memory_file file_written(const tide_trace* trace, uint32_t format) {
  memory_file file = { 0 };
  const tide_sink sink = memory_file_sink(&file);
  T_OK(tide_trace_write(trace, format, &sink));
  return file;
}

// ---------------------------------------------------------------------------------------------------
// What is expected

// A trace as JSON on one line.
static inline memory_file json_line(const tide_trace* trace) {
  memory_file json = file_written(trace, TIDE_FORMAT_JSON);
  for (size_t i = 0; i < json.bytes; i++) {
    if (json.data[i] == '\n') json.data[i] = ' ';
  }
  T_LT(0, json.bytes);
  json.data[json.bytes - 1] = '\0';
  return json;
}

static inline void expect_trace_json(const char* where, int line, const tide_trace* trace,
                                     const char* wanted) {
  memory_file json = json_line(trace);
  t_check_text(where, line, "the snapshot", (const char*)json.data, wanted);
  memory_file_fini(&json);
}

static inline void expect_same_traces(const tide_trace* a, const tide_trace* b) {
  char text[400];
  if (!traces_are_equal(a, b, text, sizeof text)) T_FAIL("%s", text);
}

// What was written in a format is read to an equal trace, except that JSON makes lists of tuples, and is
// written alike.
static inline void expect_round_trip(const tide_trace* trace, uint32_t format) {
  memory_file file = file_written(trace, format);
  tide_trace* const again = trace_of(&file);
  memory_file second = file_written(again, format);
  if (format != TIDE_FORMAT_JSON) expect_same_traces(trace, again);
  expect_same_bytes(&file, &second);
  tide_trace_free(again);
  memory_file_fini(&file);
  memory_file_fini(&second);
}

// The file is read, is the JSON, and comes through both formats. The file is freed.
static inline void expect_json_at(const char* where, int line, memory_file file, const char* wanted) {
  tide_trace* trace = NULL;
  t_check_status(where, line, wanted, file_read(&file, NULL, &trace), TIDE_OK);
  expect_trace_json(where, line, trace, wanted);
  expect_round_trip(trace, TIDE_FORMAT_PICKLE);
  expect_round_trip(trace, TIDE_FORMAT_JSON);
  tide_trace_free(trace);
  memory_file_fini(&file);
}
#define expect_json(file, wanted) expect_json_at(__FILE__, __LINE__, file, wanted)

// The file is refused with words that contain these. The file is freed.
static inline void expect_refused_at(const char* where, int line, memory_file file, const char* words) {
  tide_trace* trace = NULL;
  t_check_status(where, line, words, file_read(&file, NULL, &trace), TIDE_ERR_FORMAT);
  T_PTR_EQ(trace, NULL);
  t_check_contains(where, line, tide_last_error()->text, words);
  memory_file_fini(&file);
}
#define expect_refused(file, words) expect_refused_at(__FILE__, __LINE__, file, words)

// Reads a file that may be damaged in any way: it gives a trace that comes through both encodings, or an
// error without a leak.
static inline void read_anything(memory_file* file, tide_format format) {
  counting_heap h;
  tide_read_options options = TIDE_READ_OPTIONS_INIT;
  tide_trace* trace = NULL;
  counting_heap_init(&h, SIZE_MAX, false);
  options.heap = &h.heap;
  options.format = format;
  options.memory = 4 << 20;
  const tide_status status = file_read(file, &options, &trace);
  if (status == TIDE_OK) {
    expect_round_trip(trace, TIDE_FORMAT_PICKLE);
    expect_round_trip(trace, TIDE_FORMAT_JSON);
  } else {
    T_PTR_EQ(trace, NULL);
    if (format != TIDE_FORMAT_PICKLE || status != TIDE_ERR_LIMIT) T_STATUS(status, TIDE_ERR_FORMAT);
  }
  tide_trace_free(trace);
  T_EQ(atomic_load(&h.outstanding), 0);
}

// Every part of the file before `whole` bytes is an error.
static inline void expect_cuts_refused(const memory_file* file, size_t whole) {
  for (size_t count = 0; count < whole; count++) {
    memory_file cut = file_of(file->data, count);
    tide_trace* trace = NULL;
    T_STATUS(file_read(&cut, NULL, &trace), TIDE_ERR_FORMAT);
    T_PTR_EQ(trace, NULL);
    memory_file_fini(&cut);
  }
}

// Reads copies in which some bytes are replaced and some ranges moved.
static inline void read_damaged(const memory_file* file, tide_format format, size_t times) {
  t_rng rng = t_rng_new(1);
  for (size_t i = 0; i < times; i++) {
    memory_file bad = file_of(file->data, file->bytes);
    T_LT(0, bad.bytes);
    for (uint64_t k = 1 + t_rng_below(&rng, 5); k > 0; k--) {
      const size_t to = t_rng_below(&rng, bad.bytes);
      const size_t from = t_rng_below(&rng, bad.bytes);
      const size_t most = bad.bytes - (to > from ? to : from);
      const uint64_t choice = t_rng_below(&rng, 4);
      if (choice == 0) bad.data[to] = file->data[from];
      else if (choice == 1) bad.data[to] = (uint8_t)t_rng_next(&rng);
      else memmove(bad.data + to, bad.data + from, 1 + t_rng_below(&rng, most));
    }
    read_anything(&bad, format);
    memory_file_fini(&bad);
  }
}

#endif
