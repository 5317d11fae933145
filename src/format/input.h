// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A buffered source. It knows its offset, so that errors can name the place.
//
//   const uint8_t* bytes = NULL;
//   TIDE_TRY(tide__input_take(input, 4, &bytes)); // exactly 4, or TIDE_ERR_FORMAT: the file ends too early
#ifndef TIDEMARK_SRC_FORMAT_INPUT_H
#define TIDEMARK_SRC_FORMAT_INPUT_H

#include "base/limited_heap.h"
#include "tidemark/format.h"

// [N1] at <= end <= room
// [N2] offset is that of buffer[0] in the source
typedef struct tide__input {
  tide_source source;
  const tide_heap* heap;  // borrowed until fini
  uint8_t* buffer;        // owned
  size_t room;
  size_t at;   // the next byte
  size_t end;  // after the last byte read
  uint64_t offset;
  uint64_t told;  // bytes at the last call of on_progress
  bool is_ended;  // the source is exhausted
  bool (*on_progress)(void* user, uint64_t bytes);
  void* user;
  tide__limited_heap* limited;  // borrowed; its limit rises with the bytes read; NULL: none
  uint64_t memory;              // upper bound of the limit
  uint64_t memory_times;        // by which the limit rises for each byte read
} tide__input;

// The limit before anything was read: enough for small files, and all that a tiny hostile file can take.
#define TIDE__INPUT_MEMORY ((uint64_t)64 << 20)
void tide__input_limit(tide__input* input, tide__limited_heap* limited, uint64_t memory, uint64_t times);

tide_status tide__input_init(tide__input* input, const tide_source* source, const tide_heap* heap,
                             const tide_read_options* options);
void tide__input_fini(tide__input* input);

// The offset of the next byte.
static inline uint64_t tide__input_offset(const tide__input* input) { return input->offset + input->at; }

// The number of buffered bytes, from input->buffer + input->at on.
static inline size_t tide__input_ready(const tide__input* input) { return input->end - input->at; }

// Reads until `bytes` bytes are buffered or the source ends. The buffer grows only with bytes that were read.
tide_status tide__input_fill(tide__input* input, size_t bytes);

// Takes the next `bytes` bytes as one range, which stays valid until the next call.
// Errors: TIDE_ERR_FORMAT if the source ends before.
tide_status tide__input_take_slow(tide__input* input, size_t bytes, const uint8_t** out);
static inline tide_status tide__input_take(tide__input* input, size_t bytes, const uint8_t** out) {
  if (tide__input_ready(input) < bytes) return tide__input_take_slow(input, bytes, out);
  *out = input->buffer + input->at;
  input->at += bytes;
  return TIDE_OK;
}

// Takes the next byte; -1 at the end.
tide_status tide__input_byte(tide__input* input, int* out);

// Reads to the end of the source and discards the bytes.
tide_status tide__input_drain(tide__input* input);

#endif
