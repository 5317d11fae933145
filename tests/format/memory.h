// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Files in memory for the tests of formats: a source and a sink that fail on command, and small traces that
// are made by hand.
#ifndef TIDEMARK_TESTS_FORMAT_MEMORY_H
#define TIDEMARK_TESTS_FORMAT_MEMORY_H

#include "format/input.h"
#include "format/output.h"
#include "machine/counting_heap.h"

typedef tide_status (*memory_reader)(tide__input* input, tide_trace* trace);
typedef tide_status (*memory_writer)(const tide_trace* trace, tide__output* output);

// ---------------------------------------------------------------------------------------------------
// Reading

typedef struct memory_source {
  const char* data;
  size_t bytes;
  size_t at;
  size_t piece;       // bytes given at a time
  size_t fail_after;  // bytes after which it fails with TIDE_ERR_MACHINE
} memory_source;

static inline memory_source memory_source_of(const char* data, size_t bytes) {
  return (memory_source){ data, bytes, 0, SIZE_MAX, SIZE_MAX };
}

static inline tide_status memory_source_read(void* user, void* out, size_t room, size_t* out_bytes) {
  memory_source* const s = user;
  T_CHECK(room > 0);
  *out_bytes = 0;
  if (s->at >= s->fail_after) return TIDE_ERR_MACHINE;
  size_t bytes = s->bytes - s->at;
  if (bytes > room) bytes = room;
  if (bytes > s->piece) bytes = s->piece;
  if (bytes > 0) memcpy(out, s->data + s->at, bytes);
  s->at += bytes;
  *out_bytes = bytes;
  return TIDE_OK;
}

// Reads into a new trace; NULL when that fails.
static inline tide_status memory_read(memory_reader read, memory_source* from, const tide_heap* heap,
                                      tide_trace** out) {
  const tide_source source = { memory_source_read, from };
  const tide_read_options options = TIDE_READ_OPTIONS_INIT;
  tide__input input;
  *out = NULL;
  tide_status status = tide_trace_new(heap, out);
  if (status != TIDE_OK) return status;
  status = tide__input_init(&input, &source, heap, &options);
  if (status == TIDE_OK) status = read(&input, *out);
  if (input.buffer != NULL) tide__input_fini(&input);
  if (status == TIDE_OK) return TIDE_OK;
  tide_trace_free(*out);
  *out = NULL;
  return status;
}

static inline tide_trace* memory_trace_of(memory_reader read, const char* text) {
  tide_trace* trace = NULL;
  memory_source source = memory_source_of(text, strlen(text));
  T_OK(memory_read(read, &source, &tide__system_heap, &trace));
  return trace;
}

// A text that is refused with TIDE_ERR_FORMAT, and a part of the error.
typedef struct memory_case {
  const char* text;
  const char* error;
} memory_case;

static inline void memory_expect_refused(memory_reader read, const memory_case* cases, size_t count) {
  for (size_t i = 0; i < count; i++) {
    tide_trace* trace = NULL;
    memory_source source = memory_source_of(cases[i].text, strlen(cases[i].text));
    T_STATUS(memory_read(read, &source, &tide__system_heap, &trace), TIDE_ERR_FORMAT);
    T_STR_HAS(tide_last_error()->text, cases[i].error);
  }
}

// ---------------------------------------------------------------------------------------------------
// Writing

typedef struct memory_sink {
  char* data;  // owned; a zero byte follows what was written
  size_t bytes;
  size_t limit;  // bytes after which it fails with TIDE_ERR_MACHINE
} memory_sink;

static inline tide_status memory_sink_write(void* user, const void* data, size_t bytes) {
  memory_sink* const s = user;
  T_CHECK(bytes > 0);
  if (bytes > s->limit - s->bytes) return TIDE_ERR_MACHINE;
  s->data = realloc(s->data, s->bytes + bytes + 1);
  T_CHECK(s->data != NULL);
  memcpy(s->data + s->bytes, data, bytes);
  s->bytes += bytes;
  s->data[s->bytes] = '\0';
  return TIDE_OK;
}

static inline tide_status memory_write(memory_writer write, const tide_trace* trace, const tide_heap* heap,
                                       memory_sink* to) {
  const tide_sink sink = { memory_sink_write, to };
  tide__output output;
  tide_status status = tide__output_init(&output, &sink, heap);
  if (status != TIDE_OK) return status;
  status = write(trace, &output);
  if (status == TIDE_OK) status = tide__output_flush(&output);
  tide__output_fini(&output);
  return status;
}

// What a trace is written as, a text to be freed.
static inline char* memory_text_of(memory_writer write, const tide_trace* trace) {
  memory_sink sink = { NULL, 0, SIZE_MAX };
  T_OK(memory_write(write, trace, &tide__system_heap, &sink));
  T_CHECK(sink.data != NULL);
  return sink.data;
}

static inline void memory_expect_text(memory_writer write, const tide_trace* trace, const char* want) {
  char* const text = memory_text_of(write, trace);
  T_STR_EQ(text, want);
  free(text);
}

// Reads a text, writes it, and expects another one.
static inline void memory_expect_rewritten(memory_reader read, memory_writer write, const char* text,
                                           const char* want) {
  tide_trace* const trace = memory_trace_of(read, text);
  memory_expect_text(write, trace, want);
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// Faults

// Reads with the n-th allocation failing, for all n, and expects no other failure and no leak.
static inline void memory_fail_reads(memory_reader read, const char* text) {
  for (size_t n = 0;; n++) {
    counting_heap h;
    tide_trace* trace = NULL;
    memory_source source = memory_source_of(text, strlen(text));
    counting_heap_init(&h, n, n % 2 == 0);
    const tide_status status = memory_read(read, &source, &h.heap, &trace);
    T_STATUS(status, atomic_load(&h.has_failed) ? TIDE_ERR_NO_MEMORY : TIDE_OK);
    tide_trace_free(trace);
    T_EQ(atomic_load(&h.outstanding), 0);
    if (status == TIDE_OK) return;
  }
}

// Reads from a source that fails after n bytes, for all n, and expects its status.
static inline void memory_fail_sources(memory_reader read, const char* text) {
  for (size_t n = 0; n <= strlen(text); n++) {
    tide_trace* trace = NULL;
    memory_source source = memory_source_of(text, strlen(text));
    source.piece = 1;
    source.fail_after = n;
    T_STATUS(memory_read(read, &source, &tide__system_heap, &trace), TIDE_ERR_MACHINE);
  }
}

// Writes with the n-th allocation failing, for all n.
static inline void memory_fail_writes(memory_writer write, const tide_trace* trace) {
  for (size_t n = 0;; n++) {
    counting_heap h;
    memory_sink sink = { NULL, 0, SIZE_MAX };
    counting_heap_init(&h, n, n % 2 == 0);
    const tide_status status = memory_write(write, trace, &h.heap, &sink);
    T_STATUS(status, atomic_load(&h.has_failed) ? TIDE_ERR_NO_MEMORY : TIDE_OK);
    T_EQ(atomic_load(&h.outstanding), 0);
    free(sink.data);
    if (status == TIDE_OK) return;
  }
}

// Writes to a sink that takes no bytes.
static inline void memory_fail_sinks(memory_writer write, const tide_trace* trace) {
  memory_sink sink = { NULL, 0, 0 };
  T_STATUS(memory_write(write, trace, &tide__system_heap, &sink), TIDE_ERR_MACHINE);
  T_PTR_EQ(sink.data, NULL);
}

// ---------------------------------------------------------------------------------------------------
// Traces made by hand

static inline tide_trace* memory_trace_new(void) {
  tide_trace* trace = NULL;
  const tide_trace_about about = { .has_segments = true, .has_entries = true };
  T_OK(tide_trace_new(NULL, &trace));
  tide_trace_set_about(trace, &about);
  return trace;
}

static inline uint32_t memory_add_text(tide_trace* trace, const char* text) {
  uint32_t number = 0;
  T_OK(tide_intern_add_text(tide_trace_names(trace), text, strlen(text), &number));
  return number;
}

static inline uint64_t memory_add_frame(tide_trace* trace, const char* file, int64_t line, const char* name) {
  uint32_t number = 0;
  const tide_frame frame = { .name = memory_add_text(trace, name),
                             .file = memory_add_text(trace, file),
                             .line = line };
  T_OK(tide_intern_add_frame(tide_trace_names(trace), &frame, &number));
  return number;
}

static inline uint32_t memory_add_stack(tide_trace* trace, const uint64_t* frames, size_t count) {
  uint32_t number = 0;
  T_OK(tide_intern_add_stack(tide_trace_names(trace), frames, count, &number));
  return number;
}

// A dict of one pair.
static inline uint32_t memory_add_dict(tide_trace* trace, const char* key, const tide_value* value) {
  uint32_t number = 0;
  T_OK(tide_intern_add_value(tide_trace_names(trace), value, &number));
  const uint64_t item = (uint64_t)memory_add_text(trace, key) << 32 | number;
  const tide_value dict = { .kind = TIDE_VALUE_DICT, .items = &item, .count = 1 };
  T_OK(tide_intern_add_value(tide_trace_names(trace), &dict, &number));
  return number;
}

static inline uint32_t memory_add_note(tide_trace* trace, const char* metadata, uint32_t extra) {
  uint32_t number = 0;
  const tide_note note = { .metadata = memory_add_text(trace, metadata), .extra = extra };
  T_OK(tide_intern_add_note(tide_trace_names(trace), note, &number));
  return number;
}

static inline void memory_add(tide_trace* trace, const tide_trace_entry* entry) {
  T_OK(tide_trace_add_entry(trace, entry));
}

// An entry 1 µs after the one before it.
static inline void memory_add_plain(tide_trace* trace, tide_action action, uint64_t address, uint64_t bytes) {
  size_t count = 0;
  (void)tide_trace_entries(trace, 0, &count);
  const tide_trace_entry entry = {
    .time_ns = count * 1000, .address = address, .bytes = bytes, .action = (uint8_t)action
  };
  memory_add(trace, &entry);
}

// A segment with one active block as large as it.
static inline void memory_add_segment(tide_trace* trace, uint8_t device, uint64_t address, uint64_t bytes,
                                      uint32_t stack) {
  const tide_trace_segment segment = { .address = address, .bytes = bytes, .device = device };
  const tide_trace_block block = { .address = address,
                                   .bytes = bytes,
                                   .requested_bytes = bytes - 1,
                                   .stack = stack,
                                   .state = TIDE_BLOCK_ALLOCATED };
  T_OK(tide_trace_add_segment(trace, &segment));
  T_OK(tide_trace_add_block(trace, &block));
}

#endif
