// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Numbers as bytes: a growing buffer to put them into, and a cursor that takes them and checks every step.
// Integers of variable length are LEB128: seven bits per byte, lowest first, the top bit set in all but the
// last. Signed ones are zigzag coded first: 0, -1, 1, -2 are 0, 1, 2, 3. Integers of fixed length are
// little-endian, whatever the host is.
#ifndef TIDEMARK_SRC_FORMAT_NUMBERS_H
#define TIDEMARK_SRC_FORMAT_NUMBERS_H

#include "tidemark/base.h"

#define TIDE__UINT_BYTES_MAX 10u  // bytes of the longest number

// ---------------------------------------------------------------------------------------------------
// Putting. The bytes for it must have been reserved.

// [K1] used <= room; data is NULL while room is 0
typedef struct tide__bytes {
  const tide_heap* heap;  // borrowed until fini
  uint8_t* data;          // owned
  size_t used;
  size_t room;
} tide__bytes;

void tide__bytes_fini(tide__bytes* to);

// Makes room for `bytes` more bytes. Putting that many cannot fail afterwards.
// Errors: TIDE_ERR_NO_MEMORY.
tide_status tide__bytes_reserve_slow(tide__bytes* to, size_t bytes);
static inline tide_status tide__bytes_reserve(tide__bytes* to, size_t bytes) {
  return to->room - to->used >= bytes ? TIDE_OK : tide__bytes_reserve_slow(to, bytes);
}

static inline void tide__bytes_put_byte(tide__bytes* to, uint8_t byte) { to->data[to->used++] = byte; }
void tide__bytes_put(tide__bytes* to, const void* data, size_t bytes);

// Reserves room for the bytes and puts them.
tide_status tide__bytes_add(tide__bytes* to, const void* data, size_t bytes);

// Stores to any memory; returns the address after the number.
static inline uint8_t* tide__store_uint(uint8_t* at, uint64_t number) {
  for (; number >= 0x80; number >>= 7) *at++ = (uint8_t)(number | 0x80);
  *at++ = (uint8_t)number;
  return at;
}
static inline void tide__bytes_put_uint(tide__bytes* to, uint64_t number) {
  to->used = (size_t)(tide__store_uint(to->data + to->used, number) - to->data);
}

static inline uint64_t tide__zigzag(int64_t number) {
  return (uint64_t)number << 1 ^ (number < 0 ? UINT64_MAX : 0);
}
static inline int64_t tide__unzigzag(uint64_t folded) { return (int64_t)(folded >> 1 ^ (0 - (folded & 1))); }

// The 64 bits of a number of IEEE 754.
void tide__bytes_put_double(tide__bytes* to, double number);

// An integer of `bytes` bytes: at the end of the buffer, to any memory, from any memory.
void tide__bytes_put_fixed(tide__bytes* to, uint64_t number, size_t bytes);
static inline void tide__store_fixed(uint8_t* out, uint64_t number, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) out[i] = (uint8_t)(number >> 8 * i);
}
static inline uint64_t tide__load_fixed(const uint8_t* at, size_t bytes) {
  uint64_t number = 0;
  for (size_t i = 0; i < bytes; i++) number |= (uint64_t)at[i] << 8 * i;
  return number;
}

// ---------------------------------------------------------------------------------------------------
// Taking. All errors are TIDE_ERR_FORMAT, with the offset of the byte.

typedef struct tide__cursor {
  const uint8_t* at;    // the next byte; borrowed, as the others
  const uint8_t* end;   // after the last byte
  uint64_t end_offset;  // of `end` in the file
} tide__cursor;

static inline size_t tide__cursor_left(const tide__cursor* from) { return (size_t)(from->end - from->at); }
static inline uint64_t tide__cursor_offset(const tide__cursor* from) {
  return from->end_offset - tide__cursor_left(from);
}

tide_status tide__cursor_uint_slow(tide__cursor* from, uint64_t* out);
static inline tide_status tide__cursor_uint(tide__cursor* from, uint64_t* out) {
  if (from->at == from->end || *from->at >= 0x80) return tide__cursor_uint_slow(from, out);
  *out = *from->at++;
  return TIDE_OK;
}

// A number of at most `limit`. `what` is its name for errors.
tide_status tide__cursor_number(tide__cursor* from, const char* what, uint32_t limit, uint32_t* out);

// A count of items that follow, each of which takes at least a byte.
tide_status tide__cursor_count(tide__cursor* from, size_t* out);

tide_status tide__cursor_double(tide__cursor* from, double* out);

// Takes the next `bytes` bytes.
tide_status tide__cursor_bytes(tide__cursor* from, size_t bytes, const uint8_t** out);

#endif
