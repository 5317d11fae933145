// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The records of a memory snapshot: which keys the dict of a record has, and which field of the trace holds
// the value of each. The reader (record.c) and the writer (snapshot_write.c) both follow these tables.
#ifndef TIDEMARK_SRC_FORMAT_FIELDS_H
#define TIDEMARK_SRC_FORMAT_FIELDS_H

#include "format/schema.h"

// The type of a field in the trace, and the usual form of its value in a file.
typedef enum tide__field_kind {
  TIDE__FIELD_UINT,     // uint64_t; an integer
  TIDE__FIELD_SIZE,     // uint64_t; an integer, and nothing else is accepted
  TIDE__FIELD_ADDRESS,  // uint64_t; "addr" of an entry that is not an OOM
  TIDE__FIELD_FREE,     // the same field; "device_free" of an entry that is an OOM
  TIDE__FIELD_TIME,     // uint64_t in ns; an integer in µs
  TIDE__FIELD_INT,      // int64_t
  TIDE__FIELD_DEVICE,   // uint8_t; an integer
  TIDE__FIELD_BOOL,     // bool
  TIDE__FIELD_TYPE,     // bool; "large" or "small"
  TIDE__FIELD_STATE,    // uint8_t, a tide_block_state; its name
  TIDE__FIELD_ACTION,   // uint8_t, a tide_action; its name
  TIDE__FIELD_TEXT,     // uint32_t, an interned text
  TIDE__FIELD_STACK,    // uint32_t, an interned stack; a list of frames
  TIDE__FIELD_POOL,     // uint32_t, the number of a pool; a pair of integers
  TIDE__FIELD_BLOCKS,   // first_block and block_count of a segment; a list, and nothing else is accepted
} tide__field_kind;

typedef struct tide__field {
  uint8_t word;     // the key, a tide__word
  uint8_t kind;     // a tide__field_kind
  uint16_t bit;     // in the record's `absent`
  uint16_t offset;  // of the field in the record
} tide__field;

typedef struct tide__record_fields {
  const tide__field* items;  // in the order in which PyTorch writes them
  size_t count;
  uint32_t bits;  // all bits of `absent`
} tide__record_fields;

// An entry together with its note, which holds some of its keys.
typedef struct tide__entry_draft {
  tide_trace_entry entry;
  tide_note note;
} tide__entry_draft;

extern const tide__record_fields tide__entry_fields;    // of tide__entry_draft
extern const tide__record_fields tide__segment_fields;  // of tide_trace_segment
extern const tide__record_fields tide__block_fields;    // of tide_trace_block
extern const tide__record_fields tide__frame_fields;    // of tide_frame
extern const tide__record_fields tide__root_fields;     // the lists of a snapshot; they have no record

// Finds the field of a key, or NULL. `hint` is 0 at first and makes a search in the usual order O(1).
static inline const tide__field* tide__fields_find(const tide__record_fields* fields, uint32_t word,
                                                   size_t* hint) {
  for (size_t tried = 0; tried < fields->count; tried++) {
    const tide__field* const field = &fields->items[*hint];
    *hint = *hint + 1 < fields->count ? *hint + 1 : 0;
    if (field->word == word) return field;
  }
  return NULL;
}

// False for the one of "addr" and "device_free" that entries with this action do not have.
static inline bool tide__field_applies(const tide__record_fields* fields, const tide__field* field,
                                       const void* record) {
  if (fields != &tide__entry_fields) return true;
  if (field->kind != TIDE__FIELD_ADDRESS && field->kind != TIDE__FIELD_FREE) return true;
  const bool is_oom = ((const tide__entry_draft*)record)->entry.action == TIDE_ACTION_OOM;
  return is_oom == (field->kind == TIDE__FIELD_FREE);
}

#endif
