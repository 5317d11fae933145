// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A buffered sink. It keeps the first failure and ignores everything after it, so a writer checks once, at
// the end.
#ifndef TIDEMARK_SRC_FORMAT_OUTPUT_H
#define TIDEMARK_SRC_FORMAT_OUTPUT_H

#include <string.h>

#include "tidemark/format.h"

#define TIDE__OUTPUT_ROOM ((size_t)64 << 10)

typedef struct tide__output {
  tide_sink sink;
  const tide_heap* heap;  // borrowed until fini
  uint8_t* buffer;        // owned; TIDE__OUTPUT_ROOM bytes
  size_t used;
  uint64_t offset;     // of buffer[0] in what was written
  tide_status status;  // the first failure
} tide__output;

tide_status tide__output_init(tide__output* output, const tide_sink* sink, const tide_heap* heap);
void tide__output_fini(tide__output* output);

// Writes out the buffer; returns the first failure so far.
tide_status tide__output_flush(tide__output* output);

// The number of bytes written so far, buffered ones included.
static inline uint64_t tide__output_offset(const tide__output* output) {
  return output->offset + output->used;
}

// Keeps a failure, if it is the first.
void tide__output_fail(tide__output* output, tide_status status);

void tide__output_bytes_slow(tide__output* output, const void* data, size_t bytes);
static inline void tide__output_bytes(tide__output* output, const void* data, size_t bytes) {
  if (bytes > TIDE__OUTPUT_ROOM - output->used) {
    tide__output_bytes_slow(output, data, bytes);
  } else if (bytes > 0) {
    memcpy(output->buffer + output->used, data, bytes);
    output->used += bytes;
  }
}
static inline void tide__output_byte(tide__output* output, uint8_t byte) {
  tide__output_bytes(output, &byte, 1);
}
static inline void tide__output_text(tide__output* output, const char* text) {
  tide__output_bytes(output, text, strlen(text));
}

// A number in decimal digits.
void tide__output_uint(tide__output* output, uint64_t number);
void tide__output_int(tide__output* output, int64_t number);
// Like printf(), up to 255 bytes.
__attribute__((format(printf, 2, 3))) void tide__output_format(tide__output* output, const char* format, ...);

#endif
