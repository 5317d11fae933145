// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Shared by fuzz targets of formats: any bytes are refused, or read within the allowed memory. What was read
// is written as bytes that read back to the same bytes.
#ifndef TIDEMARK_FUZZ_REWRITE_H
#define TIDEMARK_FUZZ_REWRITE_H

#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "tidemark/format.h"

#define FUZZ_MEMORY ((uint64_t)64 << 20)
typedef struct fuzz_text {
  uint8_t* data;  // owned
  size_t bytes;
  size_t at;  // of what is read next
} fuzz_text;

static inline tide_status fuzz_text_read(void* user, void* out, size_t room, size_t* out_bytes) {
  fuzz_text* const text = user;
  const size_t left = text->bytes - text->at;
  *out_bytes = left < room ? left : room;
  if (*out_bytes > 0) memcpy(out, text->data + text->at, *out_bytes);
  text->at += *out_bytes;
  return TIDE_OK;
}

static inline tide_status fuzz_text_write(void* user, const void* data, size_t bytes) {
  fuzz_text* const text = user;
  text->data = realloc(text->data, text->bytes + bytes);
  FUZZ_REQUIRE(text->data != NULL);
  memcpy(text->data + text->bytes, data, bytes);
  text->bytes += bytes;
  return TIDE_OK;
}

// Reads a text and writes it again; false when it is refused.
static inline bool fuzz_text_rewrite(uint32_t format, fuzz_text* from, fuzz_text* to) {
  tide_trace* trace = NULL;
  tide_read_options options = TIDE_READ_OPTIONS_INIT;
  options.format = format;
  options.memory = FUZZ_MEMORY;
  const tide_source source = { fuzz_text_read, from };
  const tide_sink sink = { fuzz_text_write, to };
  const tide_status status = tide_trace_read(&source, &options, &trace);
  FUZZ_REQUIRE(status == TIDE_OK || status == TIDE_ERR_FORMAT || status == TIDE_ERR_LIMIT);
  if (status != TIDE_OK) return false;
  FUZZ_REQUIRE(tide_trace_write(trace, format, &sink) == TIDE_OK);
  tide_trace_free(trace);
  return true;
}

static inline void fuzz_rewrite(uint32_t format, const uint8_t* data, size_t bytes) {
  fuzz_text given = { NULL, 0, 0 };
  fuzz_text first = { NULL, 0, 0 };
  fuzz_text second = { NULL, 0, 0 };
  if (bytes > 0) (void)fuzz_text_write(&given, data, bytes);
  if (fuzz_text_rewrite(format, &given, &first)) {
    FUZZ_REQUIRE(fuzz_text_rewrite(format, &first, &second));
    FUZZ_REQUIRE(first.bytes == second.bytes && memcmp(first.data, second.data, first.bytes) == 0);
  }
  free(given.data);
  free(first.data);
  free(second.data);
}

#endif
