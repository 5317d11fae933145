// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What tests of native files share: writing and reading in memory, and putting files together chunk by chunk
// with right checksums, whatever the chunks say.
#ifndef TIDEMARK_TESTS_FORMAT_NATIVE_FILE_H
#define TIDEMARK_TESTS_FORMAT_NATIVE_FILE_H

#include "base/heap.h"
#include "format/native.h"
#include "random_trace.h"
#include "traces.h"

static inline tide_status native_write(const tide_trace* trace, memory_file* file) {
  const tide_sink sink = memory_file_sink(file);
  return tide_trace_write(trace, TIDE_FORMAT_NATIVE, &sink);
}

// `heap` may be NULL.
static inline tide_status native_read(memory_file* file, const tide_heap* heap, tide_trace** out) {
  const tide_source source = memory_file_source(file);
  tide_read_options options = TIDE_READ_OPTIONS_INIT;
  options.format = TIDE_FORMAT_NATIVE;
  options.heap = heap;
  return tide_trace_read(&source, &options, out);
}

// ---------------------------------------------------------------------------------------------------
// Files made by hand

typedef struct file_maker {
  memory_file file;
  memory_file index;
  tide__crc crc;
} file_maker;

static inline void file_begin(file_maker* maker) {
  uint8_t head[TIDE__NATIVE_HEAD_BYTES];
  maker->file = maker->index = (memory_file){ 0 };
  tide__crc_init(&maker->crc);
  tide__native_store_head(&maker->crc, head);
  memory_file_add(&maker->file, head, sizeof head);
}

// Adds a chunk; its length and its checksums are made right.
static inline void file_add_chunk(file_maker* maker, tide__native_chunk chunk, const void* payload,
                                  size_t bytes) {
  uint8_t head[TIDE__NATIVE_CHUNK_BYTES];
  tide__bytes place = { .heap = &tide__system_heap };
  chunk.bytes = bytes;
  chunk.crc = tide__crc_of(&maker->crc, payload, bytes);
  T_OK(tide__native_put_index(&place, maker->file.bytes, &chunk));
  memory_file_add(&maker->index, place.data, place.used);
  tide__bytes_fini(&place);
  tide__native_store_chunk(&maker->crc, &chunk, head);
  memory_file_add(&maker->file, head, sizeof head);
  memory_file_add(&maker->file, payload, bytes);
}

static inline void file_end(file_maker* maker) {
  uint8_t foot[TIDE__NATIVE_FOOT_BYTES];
  const uint64_t offset = maker->file.bytes;
  const size_t bytes = maker->index.bytes;
  const tide__native_chunk chunk = { .kind = TIDE__NATIVE_INDEX, .items = bytes / TIDE__NATIVE_INDEX_BYTES };
  uint8_t* const index = malloc(bytes + 1);
  T_CHECK(index != NULL);
  if (bytes > 0) memcpy(index, maker->index.data, bytes);
  file_add_chunk(maker, chunk, index, bytes);
  tide__native_store_foot(&maker->crc, offset, foot);
  memory_file_add(&maker->file, foot, sizeof foot);
  free(index);
}

static inline void file_fini(file_maker* maker) {
  memory_file_fini(&maker->file);
  memory_file_fini(&maker->index);
}

#endif
