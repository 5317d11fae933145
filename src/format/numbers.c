// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Numbers as bytes: the functions that are not inline.
#include "format/numbers.h"

#include <inttypes.h>
#include <string.h>

#include "base/arith.h"
#include "base/check.h"
#include "base/error.h"
#include "base/heap.h"

void tide__bytes_fini(tide__bytes* to) { tide__heap_release(to->heap, to->data, to->room, 1); }

tide_status tide__bytes_reserve_slow(tide__bytes* to, size_t bytes) {
  uint64_t need = 0;
  void* data = to->data;
  const bool is_grown = tide__add(to->used, bytes, &need) && need <= SIZE_MAX / 4 &&
                        tide__heap_grow(to->heap, &data, &to->room, need, 1);
  TIDE_REQUIRE(is_grown, TIDE_ERR_NO_MEMORY, "no memory for %zu more bytes", bytes);
  to->data = data;
  return TIDE_OK;
}

void tide__bytes_put(tide__bytes* to, const void* data, size_t bytes) {
  TIDE_ASSERT(bytes <= to->room - to->used);
  if (bytes > 0) memcpy(to->data + to->used, data, bytes);
  to->used += bytes;
}

tide_status tide__bytes_add(tide__bytes* to, const void* data, size_t bytes) {
  TIDE_TRY(tide__bytes_reserve(to, bytes));
  tide__bytes_put(to, data, bytes);
  return TIDE_OK;
}

void tide__bytes_put_fixed(tide__bytes* to, uint64_t number, size_t bytes) {
  TIDE_ASSERT(bytes <= to->room - to->used);
  tide__store_fixed(to->data + to->used, number, bytes);
  to->used += bytes;
}

void tide__bytes_put_double(tide__bytes* to, double number) {
  uint64_t bits = 0;
  memcpy(&bits, &number, sizeof bits);
  tide__bytes_put_fixed(to, bits, sizeof bits);
}

tide_status tide__cursor_uint_slow(tide__cursor* from, uint64_t* out) {
  const uint64_t offset = tide__cursor_offset(from);
  uint64_t number = 0;
  *out = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    TIDE_REQUIRE(from->at < from->end, TIDE_ERR_FORMAT, "native: byte %" PRIu64 ": a number is truncated",
                 offset);
    const uint8_t byte = *from->at++;
    const uint64_t bits = byte & 0x7fu;
    TIDE_REQUIRE(shift < 63 || byte <= 1, TIDE_ERR_FORMAT,
                 "native: byte %" PRIu64 ": a number has more than 64 bits", offset);
    number |= bits << shift;
    if (byte < 0x80) break;
  }
  *out = number;
  return TIDE_OK;
}

tide_status tide__cursor_number(tide__cursor* from, const char* what, uint32_t limit, uint32_t* out) {
  const uint64_t offset = tide__cursor_offset(from);
  uint64_t number = 0;
  *out = 0;
  TIDE_TRY(tide__cursor_uint(from, &number));
  TIDE_REQUIRE(number <= limit, TIDE_ERR_FORMAT,
               "native: byte %" PRIu64 ": %s %" PRIu64 " does not exist; the last is %" PRIu32, offset, what,
               number, limit);
  *out = (uint32_t)number;
  return TIDE_OK;
}

tide_status tide__cursor_count(tide__cursor* from, size_t* out) {
  const uint64_t offset = tide__cursor_offset(from);
  uint64_t count = 0;
  *out = 0;
  TIDE_TRY(tide__cursor_uint(from, &count));
  TIDE_REQUIRE(count <= tide__cursor_left(from), TIDE_ERR_FORMAT,
               "native: byte %" PRIu64 ": %" PRIu64 " items do not fit into %zu bytes", offset, count,
               tide__cursor_left(from));
  *out = count;
  return TIDE_OK;
}

tide_status tide__cursor_bytes(tide__cursor* from, size_t bytes, const uint8_t** out) {
  *out = NULL;
  TIDE_REQUIRE(bytes <= tide__cursor_left(from), TIDE_ERR_FORMAT,
               "native: byte %" PRIu64 ": %zu bytes are needed, %zu are left", tide__cursor_offset(from),
               bytes, tide__cursor_left(from));
  *out = from->at;
  from->at += bytes;
  return TIDE_OK;
}

tide_status tide__cursor_double(tide__cursor* from, double* out) {
  const uint8_t* at = NULL;
  *out = 0;
  TIDE_TRY(tide__cursor_bytes(from, sizeof(uint64_t), &at));
  const uint64_t bits = tide__load_fixed(at, sizeof bits);
  memcpy(out, &bits, sizeof bits);
  return TIDE_OK;
}
