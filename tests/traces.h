// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Traces for tests: from files beside the tests, from the optional data, and edited copies of them.
//
//   tide_trace* trace = trace_of_test("gnn_retry");    // tests/data/gnn_retry.tide
//   tide_trace* large = trace_of_data("traces/llama_generate.pickle.xz");
//   ...
//   tide_trace_free(trace);
#ifndef TIDEMARK_TESTS_TRACES_H
#define TIDEMARK_TESTS_TRACES_H

#include "device/script.h"
#include "tidemark/format.h"

// ---------------------------------------------------------------------------------------------------
// Files

static inline tide_status trace_source_read(void* user, void* out, size_t room, size_t* out_bytes) {
  *out_bytes = fread(out, 1, room, user);
  return TIDE_OK;
}

static inline tide_trace* trace_of_file(FILE* file) {
  const tide_source source = { trace_source_read, file };
  tide_trace* trace = NULL;
  T_OK(tide_trace_read(&source, NULL, &trace));
  return trace;
}

// A recording that lies beside the tests.
static inline tide_trace* trace_of_test(const char* name) {
  char file[128];
  char path[SCRIPT_PATH];
  (void)snprintf(file, sizeof file, "tests/data/%s.tide", name);
  script_path(path, SCRIPT_SOURCE, file);
  FILE* const bytes = fopen(path, "rb");
  T_CHECK(bytes != NULL);
  tide_trace* const trace = trace_of_file(bytes);
  (void)fclose(bytes);
  return trace;
}

// A compressed file of the optional data; without it the test is skipped.
static inline tide_trace* trace_of_data(const char* file) {
  char path[SCRIPT_PATH];
  char python[] = "python3";
  char option[] = "-c";
  char program[] = "import lzma,shutil,sys; shutil.copyfileobj(lzma.open(sys.argv[1]), sys.stdout.buffer)";
  script_path(path, "TIDEMARK_DATA", file);
  script s = { 0, NULL };
  s.output = fdopen(script_spawn((char*[]){ python, option, program, path, NULL }, &s.pid), "rb");
  T_CHECK(s.output != NULL);
  tide_trace* const trace = trace_of_file(s.output);
  script_close(&s);
  return trace;
}

// ---------------------------------------------------------------------------------------------------
// Copies

// A copy of a trace's first device whose entries, or blocks, are edited on the way. An edit that returns
// false leaves its entry out. Texts and stacks of entries are not copied; settings are.
typedef struct trace_edit {
  bool (*entry)(void* user, size_t index, tide_trace_entry* entry);  // (optional)
  bool (*block)(void* user, size_t index, tide_trace_block* block);  // (optional)
  void* user;
  const tide_heap* heap;  // of the copy; NULL: malloc
} trace_edit;

#define TRACE_ITEMS 64

static inline uint32_t trace_copy_text(tide_intern* to, const tide_intern* from, uint32_t id) {
  size_t bytes = 0;
  uint32_t copy = 0;
  const char* const text = tide_intern_text(from, id, &bytes);
  if (bytes > 0) T_OK(tide_intern_add_text(to, text, bytes, &copy));
  return copy;
}

static inline uint32_t trace_copy_value(tide_intern* to, const tide_intern* from, uint32_t id) {
  if (id == 0) return 0;
  tide_value value = tide_intern_value(from, id);
  uint64_t items[TRACE_ITEMS];
  uint32_t copy = 0;
  T_LE(value.count, TRACE_ITEMS);
  for (size_t i = 0; i < value.count; i++) {
    items[i] = trace_copy_value(to, from, (uint32_t)value.items[i]);
    if (value.kind == TIDE_VALUE_DICT)
      items[i] |= (uint64_t)trace_copy_text(to, from, (uint32_t)(value.items[i] >> 32)) << 32;
  }
  if (value.kind == TIDE_VALUE_TEXT) value.text = trace_copy_text(to, from, value.text);
  value.items = items;
  T_OK(tide_intern_add_value(to, &value, &copy));
  return copy;
}

static inline void trace_copy_entries(tide_trace* copy, const tide_trace* trace, const trace_edit* edit) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, 0, &count);
  for (size_t i = 0; i < count; i++) {
    tide_trace_entry entry = entries[i];
    entry.stack = entry.note = 0;
    if (edit->entry == NULL || edit->entry(edit->user, i, &entry)) T_OK(tide_trace_add_entry(copy, &entry));
  }
}

static inline void trace_copy_segments(tide_trace* copy, const tide_trace* trace, const trace_edit* edit) {
  size_t count = 0;
  const tide_trace_segment* const segments = tide_trace_segments(trace, &count);
  const tide_trace_block* const blocks = tide_trace_blocks(trace, NULL);
  for (size_t i = 0; i < count; i++) {
    tide_trace_segment segment = segments[i];
    segment.stack = segment.extra = 0;
    T_OK(tide_trace_add_segment(copy, &segment));
    for (size_t b = segment.first_block; b < segment.first_block + segment.block_count; b++) {
      tide_trace_block block = blocks[b];
      block.stack = block.extra = 0;
      if (edit->block == NULL || edit->block(edit->user, b, &block)) T_OK(tide_trace_add_block(copy, &block));
    }
  }
}

static inline tide_trace* trace_copy(const tide_trace* trace, const trace_edit* edit) {
  tide_trace* copy = NULL;
  tide_trace_about about = tide_trace_get_about(trace);
  T_OK(tide_trace_new(edit->heap, &copy));
  T_OK(tide_trace_add_device(copy, 0));
  about.settings = trace_copy_value(tide_trace_names(copy), tide_trace_names(trace), about.settings);
  about.annotations = about.extra = 0;
  tide_trace_set_about(copy, &about);
  for (uint32_t pool = 1; pool < tide_trace_pool_count(trace); pool++) {
    uint32_t number = 0;
    T_OK(tide_trace_add_pool(copy, tide_trace_pool(trace, pool), &number));
    T_EQ(number, pool);
  }
  trace_copy_entries(copy, trace, edit);
  trace_copy_segments(copy, trace, edit);
  return copy;
}

#endif
