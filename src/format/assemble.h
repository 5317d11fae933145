// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Builds a trace from the items of a snapshot, in the order of a pickle or a JSON text. A decoder reports the
// items: a text, a number, the begin of a list, its end. The assembler keeps them on a stack, like a pickle
// machine. It knows from the position of an item what it is (an entry of a trace, a frame), and stores it in
// the trace as soon as it is complete. Items without a place in the trace are kept as plain data.
//
//   tide__assembler a;
//   TIDE_TRY(tide__assembler_init(&a, trace));
//   ... tide__assemble_...() ...
//   TIDE_TRY(tide__assemble_end(&a));
//   tide__assembler_fini(&a);
#ifndef TIDEMARK_SRC_FORMAT_ASSEMBLE_H
#define TIDEMARK_SRC_FORMAT_ASSEMBLE_H

#include "tidemark/trace.h"

typedef enum tide__item_kind {
  TIDE__ITEM_NONE,
  TIDE__ITEM_BOOL,
  TIDE__ITEM_INT,
  TIDE__ITEM_UINT,  // 2^63 and more
  TIDE__ITEM_FLOAT,
  TIDE__ITEM_TEXT,    // id: a text
  TIDE__ITEM_VALUE,   // id: plain data
  TIDE__ITEM_OPEN,    // id: a list or dict that is being filled
  TIDE__ITEM_PACKED,  // stored in the trace as its role says
} tide__item_kind;

// What an item of a snapshot is, by its position.
typedef enum tide__role {
  TIDE__ROLE_PLAIN,
  TIDE__ROLE_ROOT,
  TIDE__ROLE_TRACES,    // list of ...
  TIDE__ROLE_TRACK,     //   list of ...
  TIDE__ROLE_ENTRY,     //     dict
  TIDE__ROLE_SEGMENTS,  // list of ...
  TIDE__ROLE_SEGMENT,   //   dict
  TIDE__ROLE_BLOCKS,    // list of ...
  TIDE__ROLE_BLOCK,     //   dict
  TIDE__ROLE_STACK,     // list of ...
  TIDE__ROLE_FRAME,     //   dict
} tide__role;

typedef struct tide__item {
  uint8_t kind;
  uint8_t role;
  uint16_t reserved;
  uint32_t id;  // TEXT, VALUE, OPEN; PACKED: STACK and FRAME their numbers, ENTRY its index, BLOCKS the first
  union {
    int64_t integer;  // BOOL, INT, UINT; PACKED: ENTRY the device, BLOCKS how many
    double number;    // FLOAT
  } as;
} tide__item;

// A list or dict that is being filled.
typedef struct tide__open {
  tide__item* items;  // owned; of a dict keys and values in turn
  size_t count;
  size_t room;
  uint32_t memo;       // its memo number + 1; 0: none
  uint32_t next_free;  // while unused: index + 1 of the next unused one
  uint32_t device;     // TRACK: the device of the entries
  size_t place;        // on the stack
  uint8_t role;
  bool is_dict;
  bool is_tuple;
} tide__open;

typedef struct tide__assembler {
  tide_trace* trace;      // borrowed
  tide_intern* names;     // borrowed from the trace
  const tide_heap* heap;  // borrowed from the trace
  const char* format;     // its name, for errors
  uint64_t offset;        // of the item in the file, for errors; set by the decoder
  tide__item* stack;      // owned
  size_t depth;
  size_t stack_room;
  size_t* marks;  // owned; depths of the stack
  size_t mark_count;
  size_t mark_room;
  uint64_t* memo;  // owned; packed items
  size_t memo_count;
  size_t memo_room;
  tide__open* opens;  // owned
  size_t open_count;
  size_t open_room;
  uint32_t free_open;        // index + 1 of the first unused one; 0: none
  tide_trace_block* blocks;  // owned; of incomplete segments
  size_t block_count;
  size_t block_room;
  uint64_t* words;  // owned; a second stack, on which plain data and call stacks are built
  size_t word_count;
  size_t word_room;
  bool has_no_tuples;    // the format has none; set by the decoder
  uint64_t unfolded;     // items that were converted between plain data and records
  size_t track_count;    // lists of entries begun so far
  size_t segment_count;  // segments stored so far
} tide__assembler;

tide_status tide__assembler_init(tide__assembler* a, tide_trace* trace, const char* format);
void tide__assembler_fini(tide__assembler* a);

// Push an item.
tide_status tide__assemble_item(tide__assembler* a, tide__item item);
tide_status tide__assemble_text(tide__assembler* a, const void* text, size_t bytes);
tide_status tide__assemble_open(tide__assembler* a, bool is_dict);

static inline tide_status tide__assemble_int(tide__assembler* a, int64_t integer) {
  return tide__assemble_item(a, (tide__item){ .kind = TIDE__ITEM_INT, .as.integer = integer });
}
static inline tide_status tide__assemble_uint(tide__assembler* a, uint64_t integer) {
  const uint8_t kind = integer > INT64_MAX ? TIDE__ITEM_UINT : TIDE__ITEM_INT;
  return tide__assemble_item(a, (tide__item){ .kind = kind, .as.integer = (int64_t)integer });
}
static inline tide_status tide__assemble_float(tide__assembler* a, double number) {
  return tide__assemble_item(a, (tide__item){ .kind = TIDE__ITEM_FLOAT, .as.number = number });
}
static inline tide_status tide__assemble_bool(tide__assembler* a, bool is_true) {
  return tide__assemble_item(a, (tide__item){ .kind = TIDE__ITEM_BOOL, .as.integer = is_true });
}
static inline tide_status tide__assemble_none(tide__assembler* a) {
  return tide__assemble_item(a, (tide__item){ .kind = TIDE__ITEM_NONE });
}

// Pushes a mark, from which later calls may count items.
tide_status tide__assemble_mark(tide__assembler* a);

// Append the top `count` items to the list below them, or pairs of keys and values to the dict. With
// `to_mark`, all items above the last mark, which is popped.
tide_status tide__assemble_append(tide__assembler* a, size_t count, bool to_mark);
tide_status tide__assemble_set(tide__assembler* a, size_t count, bool to_mark);

// Replaces the top items by a tuple, list or dict of them, as plain data.
tide_status tide__assemble_gather(tide__assembler* a, tide_value_kind kind, size_t count, bool to_mark);

// Pop the top item, or everything above the last mark.
tide_status tide__assemble_pop(tide__assembler* a);
tide_status tide__assemble_pop_mark(tide__assembler* a);

// Store the top item in the memo, and push an item from the memo. A number may be at most one higher than all
// before it; SIZE_MAX is the next one.
tide_status tide__assemble_remember(tide__assembler* a, size_t number);
tide_status tide__assemble_recall(tide__assembler* a, size_t number);

// Ends the file: the one remaining item is the snapshot.
tide_status tide__assemble_end(tide__assembler* a);

#endif
