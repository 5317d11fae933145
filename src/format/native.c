// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The parts of a native file with a fixed length.
#include "format/native.h"

#include <string.h>

#include "base/error.h"

// As in PNG files: the first byte is not text, and the end reveals converted line ends.
static const uint8_t native_magic[8] = { 0x89, 'T', 'I', 'D', 'E', '\r', '\n', 0x1a };
static const uint8_t native_end[4] = { 'E', 'D', 'I', 'T' };

bool tide__native_is(const void* head, size_t bytes) {
  return head != NULL && bytes >= sizeof native_magic && memcmp(head, native_magic, sizeof native_magic) == 0;
}

// Appends the checksum of all bytes before it.
static void native_seal(const tide__crc* crc, uint8_t* out, size_t bytes) {
  tide__store_fixed(out + bytes, tide__crc_of(crc, out, bytes), 4);
}

void tide__native_store_head(const tide__crc* crc, uint8_t out[TIDE__NATIVE_HEAD_BYTES]) {
  memcpy(out, native_magic, sizeof native_magic);
  tide__store_fixed(out + 8, TIDE__NATIVE_MAJOR, 2);
  tide__store_fixed(out + 10, TIDE__NATIVE_MINOR, 2);
  native_seal(crc, out, 12);
}

void tide__native_store_chunk(const tide__crc* crc, const tide__native_chunk* chunk,
                              uint8_t out[TIDE__NATIVE_CHUNK_BYTES]) {
  tide__store_fixed(out, chunk->kind, 4);
  tide__store_fixed(out + 4, chunk->flags, 4);
  tide__store_fixed(out + 8, chunk->bytes, 8);
  tide__store_fixed(out + 16, chunk->items, 8);
  tide__store_fixed(out + 24, chunk->first_ns, 8);
  tide__store_fixed(out + 32, chunk->last_ns, 8);
  tide__store_fixed(out + 40, chunk->crc, 4);
  native_seal(crc, out, 44);
}

bool tide__native_load_chunk(const tide__crc* crc, const uint8_t at[TIDE__NATIVE_CHUNK_BYTES],
                             tide__native_chunk* out) {
  out->kind = (uint32_t)tide__load_fixed(at, 4);
  out->flags = (uint32_t)tide__load_fixed(at + 4, 4);
  out->bytes = tide__load_fixed(at + 8, 8);
  out->items = tide__load_fixed(at + 16, 8);
  out->first_ns = tide__load_fixed(at + 24, 8);
  out->last_ns = tide__load_fixed(at + 32, 8);
  out->crc = (uint32_t)tide__load_fixed(at + 40, 4);
  return tide__load_fixed(at + 44, 4) == tide__crc_of(crc, at, 44);
}

tide_status tide__native_put_index(tide__bytes* index, uint64_t offset, const tide__native_chunk* chunk) {
  TIDE_TRY(tide__bytes_reserve(index, TIDE__NATIVE_INDEX_BYTES));
  tide__bytes_put_fixed(index, offset, 8);
  tide__bytes_put_fixed(index, chunk->kind, 4);
  tide__bytes_put_fixed(index, chunk->flags, 4);
  tide__bytes_put_fixed(index, chunk->items, 8);
  tide__bytes_put_fixed(index, chunk->first_ns, 8);
  tide__bytes_put_fixed(index, chunk->last_ns, 8);
  return TIDE_OK;
}

void tide__native_store_foot(const tide__crc* crc, uint64_t index_offset,
                             uint8_t out[TIDE__NATIVE_FOOT_BYTES]) {
  tide__store_fixed(out, index_offset, 8);
  memcpy(out + 8, native_end, sizeof native_end);
  native_seal(crc, out, 12);
}
