// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Interned texts, stacks, notes and frames: a table (intern_table.c) for each kind. Values are in value.c.
#include "trace/intern.h"

#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "trace/intern_table.h"

struct tide_intern {
  const tide_heap* heap;  // borrowed until the table is freed
  uint64_t uid;
  tide__intern_table tables[TIDE__INTERN_KINDS];
};

tide_status tide_intern_new(const tide_heap* heap, tide_intern** out) {
  static tide__atomic_u64 last_uid;
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "intern_new: out is NULL");
  *out = NULL;
  TIDE_REQUIRE(tide__heap_is_valid(heap), TIDE_ERR_ARGUMENT, "intern_new: the heap lacks a function");
  heap = tide__heap_or_system(heap);
  tide_intern* const names = tide__heap_alloc(heap, 1, sizeof *names);
  TIDE_REQUIRE(names != NULL, TIDE_ERR_NO_MEMORY, "intern_new: no memory for the table");
  names->heap = heap;
  names->uid = tide__add_relaxed(&last_uid, 1) + 1;
  for (size_t i = 0; i < TIDE__INTERN_KINDS; i++) tide__intern_table_init(&names->tables[i]);
  *out = names;
  return TIDE_OK;
}

void tide_intern_free(tide_intern* names) {
  if (names == NULL) return;
  for (size_t i = 0; i < TIDE__INTERN_KINDS; i++) tide__intern_table_fini(&names->tables[i], names->heap);
  tide__heap_release(names->heap, names, 1, sizeof *names);
}

tide_status tide__intern_add(tide_intern* names, tide__intern_kind kind, const void* data, size_t bytes,
                             size_t zeros, uint32_t* out) {
  return tide__intern_table_add(&names->tables[kind], names->heap, data, bytes, zeros, out);
}

tide_status tide_intern_add_text(tide_intern* names, const char* text, size_t bytes, uint32_t* out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "intern_add_text: out is NULL");
  *out = 0;
  TIDE_REQUIRE(names != NULL, TIDE_ERR_ARGUMENT, "intern_add_text: names is NULL");
  if (bytes == 0) return TIDE_OK;
  TIDE_REQUIRE(text != NULL, TIDE_ERR_ARGUMENT, "intern_add_text: text is NULL");
  return tide__intern_add(names, TIDE__INTERN_TEXT, text, bytes, 1, out);
}

tide_status tide_intern_add_stack(tide_intern* names, const uint64_t* frames, size_t count, uint32_t* out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "intern_add_stack: out is NULL");
  *out = 0;
  TIDE_REQUIRE(names != NULL, TIDE_ERR_ARGUMENT, "intern_add_stack: names is NULL");
  if (count == 0) return TIDE_OK;
  TIDE_REQUIRE(frames != NULL, TIDE_ERR_ARGUMENT, "intern_add_stack: frames is NULL");
  uint64_t bytes = 0;
  TIDE_REQUIRE(tide__mul(count, sizeof *frames, &bytes), TIDE_ERR_NO_MEMORY,
               "intern_add_stack: no memory for %zu frames", count);
  return tide__intern_add(names, TIDE__INTERN_STACK, frames, bytes, 0, out);
}

tide_status tide_intern_add_note(tide_intern* names, tide_note note, uint32_t* out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "intern_add_note: out is NULL");
  *out = 0;
  TIDE_REQUIRE(names != NULL, TIDE_ERR_ARGUMENT, "intern_add_note: names is NULL");
  if (note.metadata == 0 && note.compile_context == 0 && note.extra == 0) return TIDE_OK;
  return tide__intern_add(names, TIDE__INTERN_NOTE, &note, sizeof note, 0, out);
}

tide_status tide_intern_add_frame(tide_intern* names, const tide_frame* frame, uint32_t* out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "intern_add_frame: out is NULL");
  *out = 0;
  TIDE_REQUIRE(names != NULL && frame != NULL, TIDE_ERR_ARGUMENT, "intern_add_frame: an argument is NULL");
  return tide__intern_add(names, TIDE__INTERN_FRAME, frame, sizeof *frame, 0, out);
}

static const tide__intern_value* intern_find(const tide_intern* names, tide__intern_kind kind, uint32_t id) {
  return names != NULL ? tide__intern_at(&names->tables[kind], id) : NULL;
}

const uint64_t* tide__intern_find(const tide_intern* names, tide__intern_kind kind, uint32_t id,
                                  size_t* out_bytes) {
  const tide__intern_value* const value = intern_find(names, kind, id);
  *out_bytes = value != NULL ? value->bytes : 0;
  return value != NULL ? value->data : NULL;
}

const tide_heap* tide__intern_heap(const tide_intern* names) { return names->heap; }

uint64_t tide__intern_uid(const tide_intern* names) { return names->uid; }

const char* tide_intern_text(const tide_intern* names, uint32_t id, size_t* out_bytes) {
  const tide__intern_value* const value = intern_find(names, TIDE__INTERN_TEXT, id);
  if (out_bytes != NULL) *out_bytes = value != NULL ? value->bytes : 0;
  return value != NULL ? (const char*)value->data : NULL;
}

const uint64_t* tide_intern_stack(const tide_intern* names, uint32_t id, size_t* out_count) {
  const tide__intern_value* const value = intern_find(names, TIDE__INTERN_STACK, id);
  if (out_count != NULL) *out_count = value != NULL ? value->bytes / sizeof *value->data : 0;
  return value != NULL ? value->data : NULL;
}

tide_note tide_intern_note(const tide_intern* names, uint32_t id) {
  tide_note note = { 0 };
  const tide__intern_value* const value = intern_find(names, TIDE__INTERN_NOTE, id);
  if (value != NULL) memcpy(&note, value->data, sizeof note);
  return note;
}

tide_frame tide_intern_frame(const tide_intern* names, uint32_t id) {
  tide_frame frame = { 0 };
  const tide__intern_value* const value = intern_find(names, TIDE__INTERN_FRAME, id);
  if (value != NULL) memcpy(&frame, value->data, sizeof frame);
  return frame;
}

static uint32_t intern_kind_count(const tide_intern* names, tide__intern_kind kind) {
  return tide__load_relaxed(&names->tables[kind].count);
}

tide_intern_counts tide_intern_counts_of(const tide_intern* names) {
  tide_intern_counts counts = { 0 };
  if (names == NULL) return counts;
  counts.texts = intern_kind_count(names, TIDE__INTERN_TEXT);
  counts.stacks = intern_kind_count(names, TIDE__INTERN_STACK);
  counts.notes = intern_kind_count(names, TIDE__INTERN_NOTE);
  counts.frames = intern_kind_count(names, TIDE__INTERN_FRAME);
  counts.values = intern_kind_count(names, TIDE__INTERN_VALUE);
  return counts;
}

int tide__intern_check(tide_intern* names) {
  int broken = 0;
  for (size_t i = 0; i < TIDE__INTERN_KINDS && broken == 0; i++) {
    broken = tide__intern_table_check(&names->tables[i]);
  }
  return broken;
}
