// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: the trace, what an allocator did. One entry has 48 bytes; texts and call stacks are interned,
// so that an entry names them by number.
//
//   const tide_trace_entry* e = ...;                         // from tide_device_history_visit()
//   printf("%s %zu\n", tide_action_name(e->action), (size_t)e->bytes);
//   const char* words = tide_intern_text(names, tide_intern_note(names, e->note).metadata, NULL);
//   if (words != NULL) puts(words);
#ifndef TIDEMARK_TRACE_H
#define TIDEMARK_TRACE_H

#include "tidemark/base.h"

TIDE_BEGIN_DECLS

// Every action: constant, value, the name it has in files. Values are pinned.
#define TIDE_ACTION_MAP(X)               \
  X(ALLOC, 0, "alloc")                   \
  X(FREE_REQUESTED, 1, "free_requested") \
  X(FREE_COMPLETED, 2, "free_completed") \
  X(SEGMENT_ALLOC, 3, "segment_alloc")   \
  X(SEGMENT_FREE, 4, "segment_free")     \
  X(SEGMENT_MAP, 5, "segment_map")       \
  X(SEGMENT_UNMAP, 6, "segment_unmap")   \
  X(SNAPSHOT, 7, "snapshot")             \
  X(OOM, 8, "oom")                       \
  X(USER_DEFINED, 9, "user_defined")

typedef enum tide_action {
#define TIDE_ACTION_ENUM(name, value, text) TIDE_ACTION_##name = value,
  TIDE_ACTION_MAP(TIDE_ACTION_ENUM)
#undef TIDE_ACTION_ENUM
      TIDE_ACTION_COUNT
} tide_action;

// The name of an action; NULL for a number that is none. And the action of a name, or -1.
TIDE_API const char* tide_action_name(uint32_t action);
TIDE_API int tide_action_from_name(const char* name);

// One thing that happened.
typedef struct tide_trace_entry {
  uint64_t time_ns;  // of the machine's clock
  uint64_t address;  // of the block or segment; OOM: free bytes of the device
  uint64_t bytes;   // ALLOC and FREE_*: as requested; SEGMENT_*: of the range; OOM: rounded; SNAPSHOT: active
  uint64_t stream;  // the stream's handle as a number
  uint32_t stack;   // an interned call stack, 0: none
  uint32_t note;    // an interned note, 0: none; USER_DEFINED: its text
  uint32_t pool;    // the number of the pool, 0: the default pool
  uint8_t action;   // a tide_action
  uint8_t device;
  uint16_t reserved;
} tide_trace_entry;

// ---------------------------------------------------------------------------------------------------
// Interned texts, stacks and notes
//
// Each distinct value is kept once and named by a number above 0; 0 is "none". Texts, stacks and notes are
// numbered apart, each from 1 in the order they came. What was interned stays until the table is freed, so
// looking it up takes no lock and gives a pointer that stays good.

typedef struct tide_intern tide_intern;  // opaque; freed by tide_intern_free()

// A note: what a thread said about itself when the entry was made.
typedef struct tide_note {
  uint32_t metadata;         // a text, 0: none
  uint32_t compile_context;  // a text, 0: none
} tide_note;

// Makes an empty table. `heap` is borrowed until the table is freed; NULL: malloc and free.
// Errors:  TIDE_ERR_ARGUMENT for half a heap, TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_intern_new(const tide_heap* heap, tide_intern** out);
TIDE_API void tide_intern_free(tide_intern* names);

// The number of a text of `bytes` bytes (which may hold any byte), a stack of frames (innermost first; what a
// frame means is up to who gathers them), or a note.
// Nothing (0 bytes, 0 frames, an empty note) is 0.
// Errors:  TIDE_ERR_ARGUMENT for NULL, TIDE_ERR_NO_MEMORY, TIDE_ERR_LIMIT (almost 2^32 values of a kind).
// Threads: any. Takes a lock of the table.
// Cost:    O(length) hash, no memory when the value is there already.
TIDE_API TIDE_NODISCARD tide_status tide_intern_add_text(tide_intern* names, const char* text, size_t bytes,
                                                         uint32_t* out);
TIDE_API TIDE_NODISCARD tide_status tide_intern_add_stack(tide_intern* names, const uint64_t* frames,
                                                          size_t count, uint32_t* out);
TIDE_API TIDE_NODISCARD tide_status tide_intern_add_note(tide_intern* names, tide_note note, uint32_t* out);

// What a number stands for; nothing for 0 and for a number that was never given out. A text ends with a zero
// byte that its length does not count; `out_bytes` and `out_count` may be NULL.
// Owner:   the table, until it is freed.
// Threads: any. Takes no lock.
TIDE_API const char* tide_intern_text(const tide_intern* names, uint32_t id, size_t* out_bytes);
TIDE_API const uint64_t* tide_intern_stack(const tide_intern* names, uint32_t id, size_t* out_count);
TIDE_API tide_note tide_intern_note(const tide_intern* names, uint32_t id);

// How many values of all three kinds there are, and the bytes of memory the whole table takes.
TIDE_API size_t tide_intern_count(const tide_intern* names, size_t* out_bytes);

TIDE_END_DECLS
#endif
