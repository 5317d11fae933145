// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Bytes of a source, through a buffer. A reader asks for the bytes it needs next and knows where it stands,
// so that an error can name the place.
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
  size_t end;  // behind the last byte that was read
  uint64_t offset;
  uint64_t told;  // bytes at the last report of progress
  bool is_ended;  // the source has no more
  bool (*on_progress)(void* user, uint64_t bytes);
  void* user;
  tide__limited_heap* limited;  // borrowed; its limit rises as more is read; NULL: none
  uint64_t memory;              // but never more than this,
  uint64_t memory_times;        // and so many bytes for each that was read beyond what is allowed at first
} tide__input;

// What a reader and its trace may take whatever a file is: small files are read, and a hostile one of a few
// bytes takes no more.
#define TIDE__INPUT_MEMORY ((uint64_t)64 << 20)
void tide__input_limit(tide__input* input, tide__limited_heap* limited, uint64_t memory, uint64_t times);

tide_status tide__input_init(tide__input* input, const tide_source* source, const tide_heap* heap,
                             const tide_read_options* options);
void tide__input_fini(tide__input* input);

// Where the next byte lies in the source.
static inline uint64_t tide__input_offset(const tide__input* input) { return input->offset + input->at; }

// How many bytes can be had at once, from input->buffer + input->at on.
static inline size_t tide__input_ready(const tide__input* input) { return input->end - input->at; }

// Reads until at least `bytes` bytes are ready, or all there are. The buffer grows only with what came.
tide_status tide__input_fill(tide__input* input, size_t bytes);

// The next `bytes` bytes, in one piece, and steps over them. They stay until the next call.
// Errors: TIDE_ERR_FORMAT when the source ends before.
tide_status tide__input_take_slow(tide__input* input, size_t bytes, const uint8_t** out);
static inline tide_status tide__input_take(tide__input* input, size_t bytes, const uint8_t** out) {
  if (tide__input_ready(input) < bytes) return tide__input_take_slow(input, bytes, out);
  *out = input->buffer + input->at;
  input->at += bytes;
  return TIDE_OK;
}

// The next byte, or -1 at the end.
tide_status tide__input_byte(tide__input* input, int* out);

// Reads to the end of the source and forgets what comes.
tide_status tide__input_drain(tide__input* input);

#endif
