// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Fuzzes the reader of native files: any bytes are read to a trace or refused, in bounded memory, and a trace
// that was read is written and read back to an equal one; in other formats it is refused, or written to be
// read. As a fuzzer finds no checksum by chance, each input is tried twice: as it is, and with all checksums
// and the index made right.
#include <stdlib.h>
#include <string.h>

#include "../tests/format/traces.h"
#include "base/heap.h"
#include "format/native.h"

#define FUZZ_MEMORY ((uint64_t)64 << 20)

#define FUZZ_REQUIRE(cond) \
  do {                     \
    if (!(cond)) abort();  \
  } while (0)

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);

static tide_status fuzz_read(memory_file* file, tide_trace** out) {
  const tide_source source = memory_file_source(file);
  tide_read_options options = TIDE_READ_OPTIONS_INIT;
  options.format = TIDE_FORMAT_NATIVE;
  options.memory = FUZZ_MEMORY;
  return tide_trace_read(&source, &options, out);
}

// A trace that was read within the memory limit may need a little more when it is read back.
static void check_written(const tide_trace* trace) {
  char text[400];
  tide_trace* again = NULL;
  memory_file file = { 0 };
  const tide_sink sink = memory_file_sink(&file);
  const tide_status written = tide_trace_write(trace, TIDE_FORMAT_NATIVE, &sink);
  FUZZ_REQUIRE(written == TIDE_OK || written == TIDE_ERR_NO_MEMORY);
  const tide_status status = written == TIDE_OK ? fuzz_read(&file, &again) : TIDE_ERR_LIMIT;
  FUZZ_REQUIRE(status == TIDE_OK || status == TIDE_ERR_LIMIT);
  FUZZ_REQUIRE(again == NULL || traces_are_equal(trace, again, text, sizeof text));
  FUZZ_REQUIRE(again == NULL || traces_have_same_numbers(trace, again, text, sizeof text));
  tide_trace_free(again);
  memory_file_fini(&file);
}

// In another format the trace is refused, or written and read back.
static void check_written_as(const tide_trace* trace, uint32_t format) {
  memory_file file = { 0 };
  tide_trace* again = NULL;
  const tide_sink sink = memory_file_sink(&file);
  const tide_status written = tide_trace_write(trace, format, &sink);
  FUZZ_REQUIRE(written == TIDE_OK || written == TIDE_ERR_LIMIT || written == TIDE_ERR_NO_MEMORY);
  if (written == TIDE_OK) {
    const tide_source source = memory_file_source(&file);
    tide_read_options options = TIDE_READ_OPTIONS_INIT;
    options.format = format;
    FUZZ_REQUIRE(tide_trace_read(&source, &options, &again) == TIDE_OK);
  }
  tide_trace_free(again);
  memory_file_fini(&file);
}

static void check_read(memory_file* file) {
  tide_trace* trace = NULL;
  const tide_status status = fuzz_read(file, &trace);
  FUZZ_REQUIRE(status == TIDE_OK || status == TIDE_ERR_FORMAT || status == TIDE_ERR_LIMIT);
  if (status == TIDE_OK) {
    check_written(trace);
    check_written_as(trace, TIDE_FORMAT_PICKLE);
    check_written_as(trace, TIDE_FORMAT_RMM);
  }
  tide_trace_free(trace);
}

// Makes the checksums of the chunk at `offset` right; an index becomes that of the chunks before it, if it
// has the length for it. Returns the offset behind the chunk.
static size_t mend_chunk(const tide__crc* crc, memory_file* file, size_t offset, tide__bytes* index) {
  uint8_t* const head = file->data + offset;
  uint8_t* const payload = head + TIDE__NATIVE_CHUNK_BYTES;
  tide__native_chunk chunk;
  (void)tide__native_load_chunk(crc, head, &chunk);
  const size_t left = file->bytes - offset - TIDE__NATIVE_CHUNK_BYTES;
  if (chunk.bytes > left) chunk.bytes = left;
  if (chunk.kind == TIDE__NATIVE_INDEX && chunk.bytes == index->used && index->used > 0) {
    memcpy(payload, index->data, index->used);
  }
  chunk.crc = tide__crc_of(crc, payload, chunk.bytes);
  tide__native_store_chunk(crc, &chunk, head);
  FUZZ_REQUIRE(tide__native_put_index(index, offset, &chunk) == TIDE_OK);
  return offset + TIDE__NATIVE_CHUNK_BYTES + chunk.bytes;
}

static void mend(memory_file* file) {
  tide__bytes index = { .heap = &tide__system_heap };
  tide__crc crc;
  size_t at = TIDE__NATIVE_HEAD_BYTES;
  size_t last = 0;
  tide__crc_init(&crc);
  if (file->bytes >= at) tide__native_store_head(&crc, file->data);
  while (file->bytes >= at && file->bytes - at >= TIDE__NATIVE_CHUNK_BYTES) {
    last = at;
    at = mend_chunk(&crc, file, at, &index);
  }
  if (file->bytes >= at && file->bytes - at == TIDE__NATIVE_FOOT_BYTES) {
    tide__native_store_foot(&crc, last, file->data + at);
  }
  tide__bytes_fini(&index);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  memory_file file = { 0 };
  memory_file_add(&file, data, bytes);
  check_read(&file);
  mend(&file);
  check_read(&file);
  memory_file_fini(&file);
  return 0;
}
