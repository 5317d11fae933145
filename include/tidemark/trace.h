// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: the trace, what an allocator did, and what it held in the end. One entry has 48 bytes; texts and
// call stacks are interned, so that an entry names them by number. An allocator writes entries, a reader of
// files (format.h) makes a whole trace of them, a ledger (ledger.h) follows it, a replay (replay.h) repeats
// it.
//
//   size_t count = 0;
//   const tide_trace_entry* e = tide_trace_entries(trace, 0, &count);   // device 0, oldest first
//   for (size_t i = 0; i < count; i++) printf("%s %zu\n", tide_action_name(e[i].action), (size_t)e[i].bytes);
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
  X(USER_DEFINED, 9, "user_defined")     \
  X(OTHER, 10, "other")

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
  uint32_t note;    // an interned note, 0: none; of USER_DEFINED the remark is its metadata
  uint32_t pool;    // the number of the pool, 0: the default pool
  uint8_t action;   // a tide_action
  uint8_t device;
  uint16_t absent;  // TIDE_ENTRY_* bits: keys that the entry lacks in its file, or has in another form
} tide_trace_entry;

// The keys of an entry in a file. What a file has beside them, and a key whose value is not of the usual
// kind, is kept in the note's `extra`.
#define TIDE_ENTRY_ACTION (1u << 0)
#define TIDE_ENTRY_ADDRESS (1u << 1)  // "addr"; of an OOM "device_free"
#define TIDE_ENTRY_BYTES (1u << 2)
#define TIDE_ENTRY_STREAM (1u << 3)
#define TIDE_ENTRY_TIME (1u << 4)
#define TIDE_ENTRY_COMPILE_CONTEXT (1u << 5)
#define TIDE_ENTRY_METADATA (1u << 6)
#define TIDE_ENTRY_STACK (1u << 7)
#define TIDE_ENTRY_POOL (1u << 8)

// ---------------------------------------------------------------------------------------------------
// Interned texts, stacks, notes, frames and values
//
// Each distinct value is kept once and named by a number above 0; 0 is "none". The kinds are numbered apart,
// each from 1 in the order they came. What was interned stays until the table is freed, so looking it up
// takes no lock and gives a pointer that stays good.

typedef struct tide_intern tide_intern;  // opaque; freed by tide_intern_free()

// A note: what a thread said about itself when the entry was made, and what else a file has of the entry.
typedef struct tide_note {
  uint32_t metadata;         // a text, 0: none
  uint32_t compile_context;  // a text, 0: none
  uint32_t extra;            // a value, a dict: what the entry does not hold itself; 0: nothing
} tide_note;

// A frame of a call stack in a file.
typedef struct tide_frame {
  uint32_t name;    // a text, the function
  uint32_t file;    // a text
  uint32_t extra;   // a value, a dict: other keys of the file; 0: nothing
  uint32_t absent;  // TIDE_FRAME_* bits: keys that the frame lacks in its file, or has in another form
  int64_t line;
} tide_frame;

#define TIDE_FRAME_NAME (1u << 0)
#define TIDE_FRAME_FILE (1u << 1)
#define TIDE_FRAME_LINE (1u << 2)

// What a frame of a call stack is called. The texts are borrowed until the call that asked returns; NULL is
// empty.
typedef struct tide_frame_words {
  const char* name;
  const char* file;
  int64_t line;
} tide_frame_words;

// Plain data, as in JSON: what files hold that the trace has no field for.
typedef enum tide_value_kind {
  TIDE_VALUE_NONE = 0,
  TIDE_VALUE_BOOL = 1,
  TIDE_VALUE_INT = 2,
  TIDE_VALUE_UINT = 3,  // an integer of 2^63 or more
  TIDE_VALUE_FLOAT = 4,
  TIDE_VALUE_TEXT = 5,
  TIDE_VALUE_LIST = 6,
  TIDE_VALUE_TUPLE = 7,
  TIDE_VALUE_DICT = 8,
  TIDE_VALUE_KIND_COUNT
} tide_value_kind;

// A value, taken apart. Which field counts is up to the kind. In a dict a key comes once, and keys are texts.
typedef struct tide_value {
  uint32_t kind;    // a tide_value_kind
  uint32_t text;    // TEXT: a text; 0 is the empty one
  int64_t integer;  // BOOL: 0 or 1; INT; UINT: the same 64 bits
  double number;    // FLOAT
  const uint64_t*
      items;     // LIST and TUPLE: values; DICT: (uint64_t)key << 32 | value; borrowed from the table
  size_t count;  // of the items
} tide_value;

// Makes an empty table. `heap` is borrowed until the table is freed; NULL: malloc and free.
// Errors:  TIDE_ERR_ARGUMENT for half a heap, TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_intern_new(const tide_heap* heap, tide_intern** out);
TIDE_API void tide_intern_free(tide_intern* names);

// The number of a text of `bytes` bytes (which may hold any byte), a stack of frames (innermost first; what a
// frame means is up to who gathers them: in the trace of a file it is the number of a tide_frame), a note, a
// frame, or a value, whose items must have been added before.
// Nothing (0 bytes, 0 frames, an empty note) is 0; the value "none" is not nothing, and has a number.
// Errors:  TIDE_ERR_ARGUMENT for NULL, and for a value of no kind, with a key twice or with unknown items;
//          TIDE_ERR_NO_MEMORY; TIDE_ERR_LIMIT (almost 2^32 values of a kind; a value nested deeper than 64).
// Threads: any. Takes a lock of the table.
// Cost:    O(length) hash, no memory when the value is there already. A dict: O(n log n).
TIDE_API TIDE_NODISCARD tide_status tide_intern_add_text(tide_intern* names, const char* text, size_t bytes,
                                                         uint32_t* out);
TIDE_API TIDE_NODISCARD tide_status tide_intern_add_stack(tide_intern* names, const uint64_t* frames,
                                                          size_t count, uint32_t* out);
TIDE_API TIDE_NODISCARD tide_status tide_intern_add_note(tide_intern* names, tide_note note, uint32_t* out);
TIDE_API TIDE_NODISCARD tide_status tide_intern_add_frame(tide_intern* names, const tide_frame* frame,
                                                          uint32_t* out);
TIDE_API TIDE_NODISCARD tide_status tide_intern_add_value(tide_intern* names, const tide_value* value,
                                                          uint32_t* out);

// What a number stands for; nothing for 0 and for a number that was never given out. A text ends with a zero
// byte that its length does not count; `out_bytes` and `out_count` may be NULL.
// Owner:   the table, until it is freed.
// Threads: any. Takes no lock.
TIDE_API const char* tide_intern_text(const tide_intern* names, uint32_t id, size_t* out_bytes);
TIDE_API const uint64_t* tide_intern_stack(const tide_intern* names, uint32_t id, size_t* out_count);
TIDE_API tide_note tide_intern_note(const tide_intern* names, uint32_t id);
TIDE_API tide_frame tide_intern_frame(const tide_intern* names, uint32_t id);
TIDE_API tide_value tide_intern_value(const tide_intern* names, uint32_t id);

// How many parts a value has when everything it shares is written out; 2^32 stands for that many and more.
// To be asked before it is written in a form that cannot share.
TIDE_API uint64_t tide_intern_value_weight(const tide_intern* names, uint32_t id);
// What a dict has under a key; 0 when it is no dict or has no such key.
TIDE_API uint32_t tide_intern_value_find(const tide_intern* names, uint32_t dict, const char* key);

// How many there are of each kind: the numbers from 1 to it are in use.
typedef struct tide_intern_counts {
  uint32_t texts;
  uint32_t stacks;
  uint32_t notes;
  uint32_t frames;
  uint32_t values;
} tide_intern_counts;
TIDE_API tide_intern_counts tide_intern_counts_of(const tide_intern* names);

// ---------------------------------------------------------------------------------------------------
// What a thread says about itself

// What the calling thread's entries are noted with from now on, in the history of every allocator: a text
// until it is changed (NULL: none), and the innermost of a stack of texts.
// Errors: TIDE_ERR_NO_MEMORY; TIDE_ERR_LIMIT for a text above 4095 bytes or contexts above 64 deep;
//         TIDE_ERR_STATE for a pop without a push.
TIDE_API TIDE_NODISCARD tide_status tide_thread_set_metadata(const char* text);
TIDE_API const char* tide_thread_metadata(void);
TIDE_API TIDE_NODISCARD tide_status tide_thread_push_context(const char* text);
TIDE_API tide_status tide_thread_pop_context(void);

// ---------------------------------------------------------------------------------------------------
// Segments and blocks, as they are when the last entry has happened

typedef enum tide_block_state {
  TIDE_BLOCK_INACTIVE = 0,
  TIDE_BLOCK_ALLOCATED = 1,
  TIDE_BLOCK_PENDING = 2  // released, waiting for announced work
} tide_block_state;

typedef struct tide_trace_segment {
  uint64_t address;
  uint64_t bytes;            // of this range: of an expandable segment, mapped memory without a gap
  uint64_t stream;           // the stream's handle as a number
  uint64_t allocated_bytes;  // these three as the file or the allocator says
  uint64_t active_bytes;
  uint64_t requested_bytes;
  uint64_t first_block;  // of tide_trace_blocks()
  uint32_t block_count;
  uint32_t stack;   // of the request that made it
  uint32_t pool;    // the number of the pool, 0: the default pool
  uint32_t extra;   // a value, a dict: other keys of the file; 0: nothing
  uint16_t absent;  // TIDE_SEGMENT_* bits: keys that the segment lacks in its file, or has in another form
  uint8_t device;
  bool is_large;
  bool is_expandable;
} tide_trace_segment;

#define TIDE_SEGMENT_DEVICE (1u << 0)
#define TIDE_SEGMENT_ADDRESS (1u << 1)
#define TIDE_SEGMENT_BYTES (1u << 2)
#define TIDE_SEGMENT_ALLOCATED (1u << 3)
#define TIDE_SEGMENT_ACTIVE (1u << 4)
#define TIDE_SEGMENT_REQUESTED (1u << 5)
#define TIDE_SEGMENT_STREAM (1u << 6)
#define TIDE_SEGMENT_TYPE (1u << 7)
#define TIDE_SEGMENT_POOL (1u << 8)
#define TIDE_SEGMENT_EXPANDABLE (1u << 9)
#define TIDE_SEGMENT_STACK (1u << 10)
#define TIDE_SEGMENT_BLOCKS (1u << 11)

typedef struct tide_trace_block {
  uint64_t address;
  uint64_t bytes;
  uint64_t requested_bytes;  // of the last request that had it
  uint32_t stack;            // of the request
  uint32_t extra;            // a value, a dict: other keys of the file; 0: nothing
  uint16_t absent;           // TIDE_BLOCK_KEY_* bits
  uint8_t state;             // a tide_block_state
} tide_trace_block;

#define TIDE_BLOCK_KEY_ADDRESS (1u << 0)
#define TIDE_BLOCK_KEY_BYTES (1u << 1)
#define TIDE_BLOCK_KEY_REQUESTED (1u << 2)
#define TIDE_BLOCK_KEY_STATE (1u << 3)
#define TIDE_BLOCK_KEY_STACK (1u << 4)

// The name of a state in files ("active_allocated"); NULL for a number that is none. And the state, or -1.
TIDE_API const char* tide_block_state_name(uint32_t state);
TIDE_API int tide_block_state_from_name(const char* name);

// ---------------------------------------------------------------------------------------------------
// A whole trace

typedef struct tide_trace tide_trace;  // opaque; freed by tide_trace_free()

// What is said of a trace as a whole.
typedef struct tide_trace_about {
  uint32_t settings;      // a value, 0: none: "allocator_settings" of the file
  uint32_t annotations;   // a value, 0: none: "external_annotations" of the file
  uint32_t extra;         // a value, a dict: other keys of the file; 0: nothing
  bool has_segments;      // the file is a snapshot with a list of segments
  bool has_entries;       // likewise with lists of entries; neither: it is no snapshot
  bool is_segments_only;  // the file is the list of segments itself
  bool is_cut;            // the end of the file is missing or damaged; what was read is what came before
  bool has_steps;         // times are counts of steps, one µs each, not moments
} tide_trace_about;

// Makes an empty trace with an empty table of interned values. `heap` is borrowed until the trace is freed;
// NULL: malloc and free.
// Errors:  TIDE_ERR_ARGUMENT for half a heap, TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_trace_new(const tide_heap* heap, tide_trace** out);
TIDE_API void tide_trace_free(tide_trace* trace);

// The interned values that everything in the trace refers to.
// Owner:   the trace.
TIDE_API tide_intern* tide_trace_names(const tide_trace* trace);
TIDE_API tide_trace_about tide_trace_get_about(const tide_trace* trace);
TIDE_API void tide_trace_set_about(tide_trace* trace, const tide_trace_about* about);

// How many devices have a list of entries, which may be empty, and the entries of one, oldest first; NULL and
// 0 for a device that has none.
// Owner:   the trace, until something is added.
TIDE_API size_t tide_trace_device_count(const tide_trace* trace);
TIDE_API const tide_trace_entry* tide_trace_entries(const tide_trace* trace, size_t device,
                                                    size_t* out_count);
// All segments in the order they were added, and all blocks; those of a segment lie together.
// Owner:   the trace, until something is added.
TIDE_API const tide_trace_segment* tide_trace_segments(const tide_trace* trace, size_t* out_count);
TIDE_API const tide_trace_block* tide_trace_blocks(const tide_trace* trace, size_t* out_count);

// A pool in a file is a pair of numbers. In a trace pools are numbered from 0, which is (0, 0), the default
// pool; there can be 16,384 others. Fails like tide_intern_add_note(). The pair of a number that is none is
// (0, 0).
typedef struct tide_pool_label {
  uint64_t first;
  uint64_t second;
} tide_pool_label;
TIDE_API TIDE_NODISCARD tide_status tide_trace_add_pool(tide_trace* trace, tide_pool_label label,
                                                        uint32_t* out);
TIDE_API tide_pool_label tide_trace_pool(const tide_trace* trace, uint32_t number);
TIDE_API size_t tide_trace_pool_count(const tide_trace* trace);

// Adds an entry at the end of its device's list, a segment, or a block to the segment that was added last
// (whose first_block and block_count are the trace's own matter). tide_trace_add_device() makes sure that
// there is a list of entries for a device and for all below. What they refer to must be in the trace's names,
// but is not looked at.
// Errors:  TIDE_ERR_ARGUMENT for NULL, for no action or state, for a block before the first segment;
//          TIDE_ERR_NO_MEMORY.
// Cost:    O(1) amortised.
TIDE_API TIDE_NODISCARD tide_status tide_trace_add_device(tide_trace* trace, size_t device);
TIDE_API TIDE_NODISCARD tide_status tide_trace_add_entry(tide_trace* trace, const tide_trace_entry* entry);
TIDE_API TIDE_NODISCARD tide_status tide_trace_add_segment(tide_trace* trace,
                                                           const tide_trace_segment* segment);
TIDE_API TIDE_NODISCARD tide_status tide_trace_add_block(tide_trace* trace, const tide_trace_block* block);

TIDE_END_DECLS
#endif
