// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the fuzz targets of memory snapshots share. Any bytes are refused, or read within the memory that is
// allowed, and all of it is given back. What was read is written in every format that holds a whole trace:
//
//   as pickle and as native file, which are read back to an equal trace
//   as JSON, which makes lists of tuples, and which is read back to a trace that is written alike once more
//
// JSON cannot share, so a small file may need more of it than there is time for: the sink ends such a text.
#ifndef TIDEMARK_FUZZ_SNAPSHOTS_H
#define TIDEMARK_FUZZ_SNAPSHOTS_H

#include "../tests/format/traces.h"

#define FUZZ_MEMORY ((uint64_t)64 << 20)
#define FUZZ_RECORD ((uint64_t)4 << 10)   // the trace's own record is not counted
#define FUZZ_WRITTEN ((size_t)256 << 10)  // no more is read back, so that a run is short
#define FUZZ_REQUIRE(cond) \
  do {                     \
    if (!(cond)) abort();  \
  } while (0)

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);

// ---------------------------------------------------------------------------------------------------
// A heap that counts

typedef struct fuzz_heap {
  tide_heap heap;
  uint64_t taken;
  uint64_t most;
} fuzz_heap;

static inline void* fuzz_heap_alloc(void* user, size_t bytes, size_t alignment) {
  fuzz_heap* const h = user;
  void* address = NULL;
  FUZZ_REQUIRE(bytes > 0);
  if (posix_memalign(&address, alignment < sizeof(void*) ? sizeof(void*) : alignment, bytes) != 0)
    return NULL;
  h->taken += bytes;
  if (h->taken > h->most) h->most = h->taken;
  return address;
}

static inline void fuzz_heap_release(void* user, void* address, size_t bytes) {
  fuzz_heap* const h = user;
  FUZZ_REQUIRE(address != NULL && bytes <= h->taken);
  h->taken -= bytes;
  free(address);
}

// ---------------------------------------------------------------------------------------------------
// Reading and writing

// Reads within the limit; NULL when that is refused.
static inline tide_trace* fuzz_read(fuzz_heap* h, memory_file* file, uint32_t format) {
  tide_trace* trace = NULL;
  const tide_source source = memory_file_source(file);
  tide_read_options options = TIDE_READ_OPTIONS_INIT;
  *h = (fuzz_heap){ .heap = { fuzz_heap_alloc, fuzz_heap_release, h } };
  options.format = format;
  options.memory = FUZZ_MEMORY;
  options.heap = &h->heap;
  const tide_status status = tide_trace_read(&source, &options, &trace);
  FUZZ_REQUIRE(h->most <= FUZZ_MEMORY + FUZZ_RECORD);
  FUZZ_REQUIRE(status == TIDE_OK || status == TIDE_ERR_FORMAT || status == TIDE_ERR_LIMIT);
  FUZZ_REQUIRE((status == TIDE_OK) == (trace != NULL));
  FUZZ_REQUIRE(trace != NULL || h->taken == 0);
  return trace;
}

static inline void fuzz_trace_free(fuzz_heap* h, tide_trace* trace) {
  tide_trace_free(trace);
  FUZZ_REQUIRE(h->taken == 0);
}

// Limits the input to what there is time for.
static inline tide_status fuzz_sink_write(void* user, const void* data, size_t bytes) {
  memory_file* const file = user;
  if (bytes > FUZZ_WRITTEN - file->bytes) return MEMORY_FILE_FAILURE;
  memory_file_add(file, data, bytes);
  return TIDE_OK;
}

// Writes a trace; false when there is too much of it.
static inline bool fuzz_write(const tide_trace* trace, uint32_t format, memory_file* out) {
  const tide_sink sink = { fuzz_sink_write, out };
  *out = (memory_file){ 0 };
  const tide_status status = tide_trace_write(trace, format, &sink);
  const bool is_too_much = status == MEMORY_FILE_FAILURE ||
                           (status == TIDE_ERR_LIMIT && format == TIDE_FORMAT_JSON);
  FUZZ_REQUIRE(status == TIDE_OK || is_too_much);
  return status == TIDE_OK;
}

// Writes and reads back to an equal trace.
static inline void fuzz_check_equal(const tide_trace* trace, uint32_t format) {
  memory_file file;
  char text[400];
  fuzz_heap h;
  if (fuzz_write(trace, format, &file)) {
    tide_trace* const again = fuzz_read(&h, &file, format);
    FUZZ_REQUIRE(again != NULL && traces_are_equal(trace, again, text, sizeof text));
    fuzz_trace_free(&h, again);
  }
  memory_file_fini(&file);
}

// Writes, reads, and writes again; false when there is too much of it.
static inline bool fuzz_rewrite_json(memory_file* from, memory_file* out) {
  fuzz_heap h;
  tide_trace* const trace = fuzz_read(&h, from, TIDE_FORMAT_JSON);
  FUZZ_REQUIRE(trace != NULL);
  const bool is_written = fuzz_write(trace, TIDE_FORMAT_JSON, out);
  fuzz_trace_free(&h, trace);
  return is_written;
}

// The first text may have keys in another order than the second: a list in the place of a tuple is usual in
// JSON only.
static inline void fuzz_check_json(const tide_trace* trace) {
  memory_file first = { 0 };
  memory_file second = { 0 };
  memory_file third = { 0 };
  const bool is_written = fuzz_write(trace, TIDE_FORMAT_JSON, &first) && fuzz_rewrite_json(&first, &second) &&
                          fuzz_rewrite_json(&second, &third);
  FUZZ_REQUIRE(!is_written || first.bytes == second.bytes);
  FUZZ_REQUIRE(!is_written ||
               (second.bytes == third.bytes && memcmp(second.data, third.data, second.bytes) == 0));
  memory_file_fini(&first);
  memory_file_fini(&second);
  memory_file_fini(&third);
}

// Runs all checks on an input. It is read in pieces whose sizes it decides itself.
static inline void fuzz_snapshot(uint32_t format, const uint8_t* data, size_t bytes) {
  memory_file file = { 0 };
  fuzz_heap h;
  memory_file_add(&file, data, bytes);
  file.piece = bytes > 0 && data[bytes - 1] % 4 == 0 ? 1 + bytes % 61 : 0;
  tide_trace* const trace = fuzz_read(&h, &file, format);
  if (trace != NULL) {
    fuzz_check_equal(trace, TIDE_FORMAT_PICKLE);
    fuzz_check_equal(trace, TIDE_FORMAT_NATIVE);
    fuzz_check_json(trace);
    fuzz_trace_free(&h, trace);
  }
  memory_file_fini(&file);
}

#endif
