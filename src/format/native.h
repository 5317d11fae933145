// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark's own files: columns in chunks with checksums. docs/native-format.md specifies every byte.
//
//   head | chunk chunk chunk ... index | foot
//
// A chunk refers only to chunks before it, so a truncated file is good up to that place.
#ifndef TIDEMARK_SRC_FORMAT_NATIVE_H
#define TIDEMARK_SRC_FORMAT_NATIVE_H

#include "base/crc.h"
#include "format/input.h"
#include "format/output.h"
#include "format/numbers.h"

// Are these the first bytes of such a file?
bool tide__native_is(const void* head, size_t bytes);

// Fills an empty trace. If a file is truncated or damaged, the chunks before that place are read.
// Errors:  TIDE_ERR_FORMAT with the offset for a wrong head, and for invalid content with a correct checksum;
//          TIDE_ERR_NO_MEMORY; any error of the source. After an error the trace must be freed.
tide_status tide__native_read(tide__input* input, tide_trace* trace);

// Errors:  TIDE_ERR_ARGUMENT for a trace with a reference that does not exist; TIDE_ERR_NO_MEMORY; any error
//          of the sink.
tide_status tide__native_write(const tide_trace* trace, tide__output* output);

// ---------------------------------------------------------------------------------------------------
// Shared by the reader and the writer

#define TIDE__NATIVE_MAJOR 1u
#define TIDE__NATIVE_MINOR 0u
#define TIDE__NATIVE_HEAD_BYTES 16u
#define TIDE__NATIVE_CHUNK_BYTES 48u  // of a chunk without its payload
#define TIDE__NATIVE_INDEX_BYTES 40u  // of a chunk in the index
#define TIDE__NATIVE_FOOT_BYTES 16u
#define TIDE__NATIVE_ENTRIES_MAX 65536u  // in a chunk

// The kinds of chunks.
typedef enum tide__native_kind {
  TIDE__NATIVE_TEXTS = 1,
  TIDE__NATIVE_VALUES = 2,
  TIDE__NATIVE_FRAMES = 3,
  TIDE__NATIVE_STACKS = 4,
  TIDE__NATIVE_NOTES = 5,
  TIDE__NATIVE_POOLS = 6,
  TIDE__NATIVE_ABOUT = 7,
  TIDE__NATIVE_SEGMENTS = 8,
  TIDE__NATIVE_ENTRIES = 9,
  TIDE__NATIVE_INDEX = 10,
  TIDE__NATIVE_KIND_COUNT
} tide__native_kind;

#define TIDE__NATIVE_CAN_SKIP 1u  // a flag of a chunk: a reader that does not know its kind may skip it

// The flags of the chunk `about`.
#define TIDE__NATIVE_HAS_SEGMENTS (1u << 0)
#define TIDE__NATIVE_HAS_ENTRIES (1u << 1)
#define TIDE__NATIVE_SEGMENTS_ONLY (1u << 2)
#define TIDE__NATIVE_IS_CUT (1u << 3)
#define TIDE__NATIVE_HAS_STEPS (1u << 4)
#define TIDE__NATIVE_ABOUT_FLAGS 31u

// The head of a chunk, before its payload.
typedef struct tide__native_chunk {
  uint32_t kind;
  uint32_t flags;
  uint64_t bytes;  // of the payload
  uint64_t items;
  uint64_t first_ns;  // of entries: the earliest and the latest time; otherwise 0
  uint64_t last_ns;
  uint32_t crc;  // of the payload
} tide__native_chunk;

// The bytes of the head of a file, of a chunk, of its place in the index, and of the foot.
void tide__native_store_head(const tide__crc* crc, uint8_t out[TIDE__NATIVE_HEAD_BYTES]);
void tide__native_store_chunk(const tide__crc* crc, const tide__native_chunk* chunk,
                              uint8_t out[TIDE__NATIVE_CHUNK_BYTES]);
tide_status tide__native_put_index(tide__bytes* index, uint64_t offset, const tide__native_chunk* chunk);
void tide__native_store_foot(const tide__crc* crc, uint64_t index_offset,
                             uint8_t out[TIDE__NATIVE_FOOT_BYTES]);

// Reads the head of a chunk; false if its checksum is wrong.
bool tide__native_load_chunk(const tide__crc* crc, const uint8_t at[TIDE__NATIVE_CHUNK_BYTES],
                             tide__native_chunk* out);

#endif
