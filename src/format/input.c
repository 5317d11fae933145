// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The buffer doubles when a request does not fit, but only after it was filled. So a length field of a
// damaged file costs nothing before the bytes have been read.
#include "format/input.h"

#include <inttypes.h>
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"

#define INPUT_ROOM ((size_t)128 << 10)
#define INPUT_ALIGNMENT 64u
#define INPUT_PROGRESS ((uint64_t)1 << 20)  // bytes between two reports

tide_status tide__input_init(tide__input* input, const tide_source* source, const tide_heap* heap,
                             const tide_read_options* options) {
  *input = (tide__input){ .source = *source, .heap = heap, .room = INPUT_ROOM };
  input->on_progress = options->on_progress;
  input->user = options->user;
  input->buffer = heap->alloc(heap->user, input->room, INPUT_ALIGNMENT);
  TIDE_REQUIRE(input->buffer != NULL, TIDE_ERR_NO_MEMORY, "trace_read: no memory for a buffer");
  return TIDE_OK;
}

void tide__input_fini(tide__input* input) { tide__heap_release(input->heap, input->buffer, 1, input->room); }

// Moves the buffered bytes to the front, so that the rest of the buffer is free.
static void input_rewind(tide__input* input) {
  if (input->at == 0) return;
  memmove(input->buffer, input->buffer + input->at, tide__input_ready(input));
  input->offset += input->at;
  input->end -= input->at;
  input->at = 0;
}

static tide_status input_grow(tide__input* input) {
  uint8_t* const larger = input->heap->alloc(input->heap->user, 2 * input->room, INPUT_ALIGNMENT);
  TIDE_REQUIRE(larger != NULL, TIDE_ERR_NO_MEMORY, "trace_read: no memory for a piece of %zu bytes and more",
               input->room);
  memcpy(larger, input->buffer, input->end);
  tide__heap_release(input->heap, input->buffer, 1, input->room);
  input->buffer = larger;
  input->room *= 2;
  return TIDE_OK;
}

static tide_status input_report(tide__input* input) {
  const uint64_t bytes = input->offset + input->end;
  if (input->on_progress == NULL || bytes - input->told < INPUT_PROGRESS) return TIDE_OK;
  input->told = bytes;
  TIDE_REQUIRE(input->on_progress(input->user, bytes), TIDE_ERR_STATE,
               "trace_read: cancelled by on_progress after %" PRIu64 " bytes", bytes);
  return TIDE_OK;
}

static void input_raise_limit(const tide__input* input) {
  uint64_t limit = 0;
  if (input->limited == NULL) return;
  const bool is_sane = tide__mul(input->offset + input->end, input->memory_times, &limit) &&
                       tide__add(limit, TIDE__INPUT_MEMORY, &limit);
  tide__limited_heap_raise(input->limited, is_sane ? tide__min(limit, input->memory) : input->memory);
}

void tide__input_limit(tide__input* input, tide__limited_heap* limited, uint64_t memory, uint64_t times) {
  input->limited = limited;
  input->memory = memory;
  input->memory_times = times;
  input_raise_limit(input);
}

static tide_status input_read_once(tide__input* input) {
  size_t got = 0;
  TIDE_TRY(
      input->source.read(input->source.user, input->buffer + input->end, input->room - input->end, &got));
  TIDE_REQUIRE(got <= input->room - input->end, TIDE_ERR_ARGUMENT,
               "trace_read: the source returned more bytes than requested");
  input->is_ended = got == 0;
  input->end += got;
  input_raise_limit(input);
  return input_report(input);
}

tide_status tide__input_fill(tide__input* input, size_t bytes) {
  if (tide__input_ready(input) >= bytes) return TIDE_OK;
  input_rewind(input);
  while (input->end < bytes && !input->is_ended) {
    if (input->end == input->room) TIDE_TRY(input_grow(input));
    TIDE_TRY(input_read_once(input));
  }
  return TIDE_OK;
}

tide_status tide__input_take_slow(tide__input* input, size_t bytes, const uint8_t** out) {
  *out = NULL;
  TIDE_TRY(tide__input_fill(input, bytes));
  TIDE_REQUIRE(tide__input_ready(input) >= bytes, TIDE_ERR_FORMAT, "the file is truncated at byte %" PRIu64,
               input->offset + input->end);
  *out = input->buffer + input->at;
  input->at += bytes;
  return TIDE_OK;
}

tide_status tide__input_byte(tide__input* input, int* out) {
  *out = -1;
  TIDE_TRY(tide__input_fill(input, 1));
  if (tide__input_ready(input) > 0) *out = input->buffer[input->at++];
  return TIDE_OK;
}

tide_status tide__input_drain(tide__input* input) {
  while (!input->is_ended) {
    input->offset += input->end;
    input->at = input->end = 0;
    TIDE_TRY(input_read_once(input));
  }
  input->at = input->end;
  return TIDE_OK;
}
