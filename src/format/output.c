// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A buffered sink.
#include "format/output.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/check.h"
#include "base/error.h"
#include "base/heap.h"

#define OUTPUT_ALIGNMENT 64u

tide_status tide__output_init(tide__output* output, const tide_sink* sink, const tide_heap* heap) {
  *output = (tide__output){ .sink = *sink, .heap = heap };
  output->buffer = heap->alloc(heap->user, TIDE__OUTPUT_ROOM, OUTPUT_ALIGNMENT);
  TIDE_REQUIRE(output->buffer != NULL, TIDE_ERR_NO_MEMORY, "trace_write: no memory for a buffer");
  return TIDE_OK;
}

void tide__output_fini(tide__output* output) {
  tide__heap_release(output->heap, output->buffer, 1, TIDE__OUTPUT_ROOM);
}

void tide__output_fail(tide__output* output, tide_status status) {
  if (output->status == TIDE_OK) output->status = status;
}

static void output_send(tide__output* output, const void* data, size_t bytes) {
  if (output->status == TIDE_OK && bytes > 0) {
    output->status = output->sink.write(output->sink.user, data, bytes);
  }
}

tide_status tide__output_flush(tide__output* output) {
  output_send(output, output->buffer, output->used);
  output->offset += output->used;
  output->used = 0;
  return output->status;
}

void tide__output_bytes_slow(tide__output* output, const void* data, size_t bytes) {
  (void)tide__output_flush(output);
  if (bytes > TIDE__OUTPUT_ROOM) {
    output_send(output, data, bytes);
    output->offset += bytes;
  } else {
    memcpy(output->buffer, data, bytes);
    output->used = bytes;
  }
}

void tide__output_uint(tide__output* output, uint64_t number) {
  char digits[20];
  size_t at = sizeof digits;
  do digits[--at] = (char)('0' + number % 10);
  while ((number /= 10) > 0);
  tide__output_bytes(output, digits + at, sizeof digits - at);
}

void tide__output_int(tide__output* output, int64_t number) {
  if (number < 0) tide__output_byte(output, '-');
  tide__output_uint(output, number < 0 ? -(uint64_t)number : (uint64_t)number);
}

void tide__output_format(tide__output* output, const char* format, ...) {
  char text[256];
  va_list list;
  va_start(list, format);
  const int length = vsnprintf(text, sizeof text, format, list);
  va_end(list);
  TIDE_ASSERT(length >= 0 && (size_t)length < sizeof text);
  tide__output_bytes(output, text, (size_t)length);
}
