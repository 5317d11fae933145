// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The tables of keys and fields.
#include "format/fields.h"

#define FIELD(word, kind, bit, type, field) \
  { TIDE__WORD_##word, TIDE__FIELD_##kind, bit, offsetof(type, field) }
#define FIELDS(items, last_bit) \
  { items, sizeof(items) / sizeof((items)[0]), ((last_bit) << 1) - 1 }

#define ENTRY(word, kind, bit, field) FIELD(word, kind, TIDE_ENTRY_##bit, tide__entry_draft, field)
#define SEGMENT(word, kind, bit, field) FIELD(word, kind, TIDE_SEGMENT_##bit, tide_trace_segment, field)
#define BLOCK(word, kind, bit, field) FIELD(word, kind, TIDE_BLOCK_KEY_##bit, tide_trace_block, field)
#define FRAME(word, kind, bit, field) FIELD(word, kind, TIDE_FRAME_##bit, tide_frame, field)

// clang-format off
static const tide__field entry_fields[] = {
  ENTRY(ACTION, ACTION, ACTION, entry.action),
  ENTRY(ADDR, ADDRESS, ADDRESS, entry.address),
  ENTRY(DEVICE_FREE, FREE, ADDRESS, entry.address),
  ENTRY(SIZE, SIZE, BYTES, entry.bytes),
  ENTRY(STREAM, UINT, STREAM, entry.stream),
  ENTRY(TIME_US, TIME, TIME, entry.time_ns),
  ENTRY(COMPILE_CONTEXT, TEXT, COMPILE_CONTEXT, note.compile_context),
  ENTRY(USER_METADATA, TEXT, METADATA, note.metadata),
  ENTRY(POOL_ID, POOL, POOL, entry.pool),
  ENTRY(FRAMES, STACK, STACK, entry.stack),
};

static const tide__field segment_fields[] = {
  SEGMENT(DEVICE, DEVICE, DEVICE, device),
  SEGMENT(ADDRESS, SIZE, ADDRESS, address),
  SEGMENT(TOTAL_SIZE, SIZE, BYTES, bytes),
  SEGMENT(ALLOCATED_SIZE, UINT, ALLOCATED, allocated_bytes),
  SEGMENT(ACTIVE_SIZE, UINT, ACTIVE, active_bytes),
  SEGMENT(REQUESTED_SIZE, UINT, REQUESTED, requested_bytes),
  SEGMENT(STREAM, UINT, STREAM, stream),
  SEGMENT(SEGMENT_TYPE, TYPE, TYPE, is_large),
  SEGMENT(SEGMENT_POOL_ID, POOL, POOL, pool),
  SEGMENT(IS_EXPANDABLE, BOOL, EXPANDABLE, is_expandable),
  SEGMENT(FRAMES, STACK, STACK, stack),
  SEGMENT(BLOCKS, BLOCKS, BLOCKS, address),  // the offset is not used
};

static const tide__field block_fields[] = {
  BLOCK(ADDRESS, UINT, ADDRESS, address),
  BLOCK(SIZE, SIZE, BYTES, bytes),
  BLOCK(REQUESTED_SIZE, UINT, REQUESTED, requested_bytes),
  BLOCK(STATE, STATE, STATE, state),
  BLOCK(FRAMES, STACK, STACK, stack),
};

static const tide__field frame_fields[] = {
  FRAME(NAME, TEXT, NAME, name),
  FRAME(FILENAME, TEXT, FILE, file),
  FRAME(LINE, INT, LINE, line),
};

static const tide__field root_fields[] = {
  { TIDE__WORD_SEGMENTS, TIDE__FIELD_BLOCKS, 0, 0 },
  { TIDE__WORD_DEVICE_TRACES, TIDE__FIELD_BLOCKS, 0, 0 },
};
// clang-format on

const tide__record_fields tide__entry_fields = FIELDS(entry_fields, TIDE_ENTRY_POOL);
const tide__record_fields tide__segment_fields = FIELDS(segment_fields, TIDE_SEGMENT_BLOCKS);
const tide__record_fields tide__block_fields = FIELDS(block_fields, TIDE_BLOCK_KEY_STACK);
const tide__record_fields tide__frame_fields = FIELDS(frame_fields, TIDE_FRAME_LINE);
const tide__record_fields tide__root_fields = FIELDS(root_fields, 0u);
