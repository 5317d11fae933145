// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: the trace, a record of what an allocator did and what it held at the end. An entry takes 48 bytes
// and refers to texts and call stacks by number, because those are interned. A cache takes a snapshot as a
// trace (cache.h), format.h reads and writes traces, ledger.h reconstructs the memory at any point of one,
// and replay.h runs one again.
//
//   size_t count = 0;
//   const tide_trace_entry* e = tide_trace_entries(trace, 0, &count);   // device 0, oldest first
//   for (size_t i = 0; i < count; i++) printf("%s %zu\n", tide_action_name(e[i].action), (size_t)e[i].bytes);
#ifndef TIDEMARK_TRACE_H
#define TIDEMARK_TRACE_H

#include "tidemark/base.h"

TIDE_BEGIN_DECLS

// Every action: constant, value, name in files. The values never change.
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

// The name of an action, or NULL if it is not a tide_action; and the action with a name, or -1.
TIDE_API const char* tide_action_name(uint32_t action);
TIDE_API int tide_action_from_name(const char* name);

// One event.
typedef struct tide_trace_entry {
  uint64_t time_ns;  // time of the machine's clock at the begin of the call, or of the entry before if later
  uint64_t address;  // of the block or segment; OOM: free bytes of the device
  uint64_t bytes;    // ALLOC and FREE_*: requested; SEGMENT_*: of the range; OOM: rounded; SNAPSHOT: active
  uint64_t stream;   // the stream's handle as a number
  uint32_t stack;    // number of an interned call stack; 0: none
  uint32_t note;     // number of an interned note; 0: none. The remark of USER_DEFINED is its metadata
  uint32_t pool;     // number of the pool; 0: the default pool
  uint8_t action;    // a tide_action
  uint8_t device;
  uint16_t absent;  // TIDE_ENTRY_* bits: keys that are missing in the file, or have an unusual form there
} tide_trace_entry;

// The keys of an entry in a file. Other keys, and values of an unusual form, are kept in the note's `extra`.
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
// Each distinct value is stored once and has a number above 0; 0 means "none". Each kind has its own numbers,
// from 1 in the order of insertion. Values stay until the table is freed, so a lookup takes no lock and
// returns a pointer that stays valid.

typedef struct tide_intern tide_intern;  // opaque; freed by tide_intern_free()

// A note: the metadata and context of the thread that made an entry, and further keys of the entry.
typedef struct tide_note {
  uint32_t metadata;         // a text; 0: none
  uint32_t compile_context;  // a text; 0: none
  uint32_t extra;            // a value, a dict: keys that the entry has no field for; 0: none
} tide_note;

// A frame of a call stack in a file.
typedef struct tide_frame {
  uint32_t name;    // a text, the function
  uint32_t file;    // a text
  uint32_t extra;   // a value, a dict: other keys of the file; 0: none
  uint32_t absent;  // TIDE_FRAME_* bits: keys that are missing in the file, or have an unusual form there
  int64_t line;
} tide_frame;

#define TIDE_FRAME_NAME (1u << 0)
#define TIDE_FRAME_FILE (1u << 1)
#define TIDE_FRAME_LINE (1u << 2)

// The description of a frame. The texts must stay valid until the call that asked for them returns. NULL is
// the empty text.
typedef struct tide_frame_words {
  const char* name;
  const char* file;
  int64_t line;
} tide_frame_words;

// Plain data as in JSON, for whatever a file holds and the trace has no field for.
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

// A value. The kind decides which fields are used. The keys of a dict are texts, and each occurs once.
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
// Errors:  TIDE_ERR_ARGUMENT for a heap that lacks a function; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_intern_new(const tide_heap* heap, tide_intern** out);
TIDE_API void tide_intern_free(tide_intern* names);

// Adds a value, or finds it, and returns its number:
//   - a text of `bytes` bytes, which may contain any byte
//   - a stack of frames, innermost first. In a trace from a file a frame is the number of a tide_frame; in
//     the history of a cache it is whatever the stack gatherer returned
//   - a note or a frame
//   - a value, whose items must have been added before
// An empty text, stack or note has the number 0. The value "none" has a number above 0.
// Errors:  TIDE_ERR_ARGUMENT for NULL, and for a value with an unknown kind, a repeated key or unknown items;
//          TIDE_ERR_NO_MEMORY; TIDE_ERR_LIMIT for almost 2^32 values of a kind, or nesting deeper than 64.
// Threads: any. Takes a lock of the table.
// Cost:    O(length), and no memory if the value exists. A dict: O(n log n).
TIDE_API TIDE_NODISCARD tide_status tide_intern_add_text(tide_intern* names, const char* text, size_t bytes,
                                                         uint32_t* out);
TIDE_API TIDE_NODISCARD tide_status tide_intern_add_stack(tide_intern* names, const uint64_t* frames,
                                                          size_t count, uint32_t* out);
TIDE_API TIDE_NODISCARD tide_status tide_intern_add_note(tide_intern* names, tide_note note, uint32_t* out);
TIDE_API TIDE_NODISCARD tide_status tide_intern_add_frame(tide_intern* names, const tide_frame* frame,
                                                          uint32_t* out);
TIDE_API TIDE_NODISCARD tide_status tide_intern_add_value(tide_intern* names, const tide_value* value,
                                                          uint32_t* out);

// The value with a number; NULL or an empty struct for 0 and for unknown numbers. A text is followed by a
// zero byte, which its length does not include. `out_bytes` and `out_count` may be NULL.
// Owner:   the table, until it is freed.
// Threads: any. Takes no lock.
TIDE_API const char* tide_intern_text(const tide_intern* names, uint32_t id, size_t* out_bytes);
TIDE_API const uint64_t* tide_intern_stack(const tide_intern* names, uint32_t id, size_t* out_count);
TIDE_API tide_note tide_intern_note(const tide_intern* names, uint32_t id);
TIDE_API tide_frame tide_intern_frame(const tide_intern* names, uint32_t id);
TIDE_API tide_value tide_intern_value(const tide_intern* names, uint32_t id);

// The number of parts that a value has when everything it shares is written out; at most 2^32, which also
// stands for more. Check it before writing a value in a form that cannot share.
TIDE_API uint64_t tide_intern_value_weight(const tide_intern* names, uint32_t id);
// The value under a key of a dict; 0 if `dict` is not a dict or has no such key.
TIDE_API uint32_t tide_intern_value_find(const tide_intern* names, uint32_t dict, const char* key);

// The number of values of each kind. The numbers from 1 to it are in use.
typedef struct tide_intern_counts {
  uint32_t texts;
  uint32_t stacks;
  uint32_t notes;
  uint32_t frames;
  uint32_t values;
} tide_intern_counts;
TIDE_API tide_intern_counts tide_intern_counts_of(const tide_intern* names);

// ---------------------------------------------------------------------------------------------------
// Metadata and context of a thread

// Set the note of all entries that the calling thread makes from now on, in the history of every cache. The
// metadata is a text (NULL: none). The context is the innermost of a stack of texts.
// Errors: TIDE_ERR_NO_MEMORY; TIDE_ERR_LIMIT for a text above 4095 bytes or more than 64 contexts;
//         TIDE_ERR_STATE for a pop without a push.
TIDE_API TIDE_NODISCARD tide_status tide_thread_set_metadata(const char* text);
TIDE_API const char* tide_thread_metadata(void);
TIDE_API TIDE_NODISCARD tide_status tide_thread_push_context(const char* text);
TIDE_API tide_status tide_thread_pop_context(void);

// ---------------------------------------------------------------------------------------------------
// Segments and blocks after the last entry

typedef enum tide_block_state {
  TIDE_BLOCK_INACTIVE = 0,
  TIDE_BLOCK_ALLOCATED = 1,
  TIDE_BLOCK_PENDING = 2  // released, waiting for work on other streams
} tide_block_state;

typedef struct tide_trace_segment {
  uint64_t address;
  uint64_t bytes;            // of this range; of an expandable segment, one range of mapped memory
  uint64_t stream;           // the stream's handle as a number
  uint64_t allocated_bytes;  // these three as the file or the cache states them
  uint64_t active_bytes;
  uint64_t requested_bytes;
  uint64_t first_block;  // index in tide_trace_blocks()
  uint32_t block_count;
  uint32_t stack;   // of the request that created it
  uint32_t pool;    // number of the pool; 0: the default pool
  uint32_t extra;   // a value, a dict: other keys of the file; 0: none
  uint16_t absent;  // TIDE_SEGMENT_* bits: keys that are missing in the file, or have an unusual form there
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

// Keys in `extra` that snapshots of Tidemark have where they are needed: the tag of the segment's pool, and
// true for a segment whose memory is parked.
#define TIDE_SEGMENT_KEY_TAG "tag"
#define TIDE_SEGMENT_KEY_PARKED "is_parked"

typedef struct tide_trace_block {
  uint64_t address;
  uint64_t bytes;
  uint64_t requested_bytes;  // of the last request that used it
  uint32_t stack;            // of that request
  uint32_t extra;            // a value, a dict: other keys of the file; 0: none
  uint16_t absent;           // TIDE_BLOCK_KEY_* bits
  uint8_t state;             // a tide_block_state
} tide_trace_block;

#define TIDE_BLOCK_KEY_ADDRESS (1u << 0)
#define TIDE_BLOCK_KEY_BYTES (1u << 1)
#define TIDE_BLOCK_KEY_REQUESTED (1u << 2)
#define TIDE_BLOCK_KEY_STATE (1u << 3)
#define TIDE_BLOCK_KEY_STACK (1u << 4)

// The name of a state in files, such as "active_allocated", or NULL if it is not a tide_block_state; and the
// state with a name, or -1.
TIDE_API const char* tide_block_state_name(uint32_t state);
TIDE_API int tide_block_state_from_name(const char* name);

// ---------------------------------------------------------------------------------------------------
// A whole trace

typedef struct tide_trace tide_trace;  // opaque; freed by tide_trace_free()

// Properties of a trace as a whole.
typedef struct tide_trace_about {
  uint32_t settings;      // a value: "allocator_settings" of the file; 0: none
  uint32_t annotations;   // a value: "external_annotations" of the file; 0: none
  uint32_t extra;         // a value, a dict: other keys of the file; 0: none
  bool has_segments;      // the file is a snapshot with a list of segments
  bool has_entries;       // the file is a snapshot with lists of entries; without either it is no snapshot
  bool is_segments_only;  // the file consists of the list of segments alone
  bool is_cut;            // the end of the file is missing or damaged; the trace holds what precedes it
  bool has_steps;         // times are numbers of steps, 1 µs each, not times of a clock
} tide_trace_about;

// Makes an empty trace with an empty table of interned values. `heap` is borrowed until the trace is freed;
// NULL: malloc and free.
// Errors:  TIDE_ERR_ARGUMENT for a heap that lacks a function; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_trace_new(const tide_heap* heap, tide_trace** out);
TIDE_API void tide_trace_free(tide_trace* trace);

// The table of interned values that the trace refers to.
// Owner:   the trace.
TIDE_API tide_intern* tide_trace_names(const tide_trace* trace);
TIDE_API tide_trace_about tide_trace_get_about(const tide_trace* trace);
TIDE_API void tide_trace_set_about(tide_trace* trace, const tide_trace_about* about);

// The number of devices with a list of entries, which may be empty; and the entries of a device, oldest
// first, or NULL and 0 if it has none.
// Owner:   the trace, until something is added.
TIDE_API size_t tide_trace_device_count(const tide_trace* trace);
TIDE_API const tide_trace_entry* tide_trace_entries(const tide_trace* trace, size_t device,
                                                    size_t* out_count);
// All segments in the order they were added, and all blocks. The blocks of a segment are adjacent.
// Owner:   the trace, until something is added.
TIDE_API const tide_trace_segment* tide_trace_segments(const tide_trace* trace, size_t* out_count);
TIDE_API const tide_trace_block* tide_trace_blocks(const tide_trace* trace, size_t* out_count);

// The tag of a segment's pool, "" if it has none, and whether its memory is parked.
// Owner:   the trace.
TIDE_API const char* tide_trace_segment_tag(const tide_trace* trace, const tide_trace_segment* segment);
TIDE_API bool tide_trace_segment_is_parked(const tide_trace* trace, const tide_trace_segment* segment);

// What a snapshot of Tidemark says about one tag of a device: the budget of the tag, and figures of the tag
// with those below it. budget.h explains them. It lists the tags of all pools, those with a budget, and those
// above them. In files this is a list of dicts under the key TIDE_TRACE_KEY_TAGS of the whole snapshot. Each
// has the names of these fields as its keys; what has its default is left out.
typedef struct tide_trace_tag {
  uint32_t size;    // set by TIDE_TRACE_TAG_INIT
  uint32_t device;  // its number in the trace
  const char* tag;  // owned by the trace
  bool has_budget;
  bool yields;
  bool is_constant;
  int32_t priority;
  uint64_t limit;       // UINT64_MAX: none
  uint64_t soft_limit;  // UINT64_MAX: none
  uint64_t guarantee;
  uint64_t reserved_bytes;
  uint64_t claimed_bytes;
  uint64_t peak_reserved_bytes;
  uint64_t parked_count;
  uint64_t fetched_count;
  uint64_t ahead_count;
  uint64_t sent_bytes;
  uint64_t fetched_bytes;
  uint64_t idle_bytes;
  uint64_t refused_count;
} tide_trace_tag;
#define TIDE_TRACE_TAG_INIT TIDE_SIZED(tide_trace_tag)
#define TIDE_TRACE_KEY_TAGS "tags"

// The number of tags of all devices, and the tag with a number, from 0 on. Snapshots of other allocators have
// none. What a file has under another kind than that of the field is ignored, and so are dicts with more than
// 64 keys.
// Errors:  TIDE_ERR_ARGUMENT, also for a number that is not below the count.
TIDE_API size_t tide_trace_tag_count(const tide_trace* trace);
TIDE_API TIDE_NODISCARD tide_status tide_trace_get_tag(const tide_trace* trace, size_t number,
                                                       tide_trace_tag* out);

// A pool is a pair of numbers in a file, and one number in a trace. Number 0 is (0, 0), the default pool;
// there can be 16,384 others. tide_trace_pool() returns (0, 0) for unknown numbers.
// Errors:  TIDE_ERR_ARGUMENT; TIDE_ERR_NO_MEMORY; TIDE_ERR_LIMIT for too many pools.
typedef struct tide_pool_label {
  uint64_t first;
  uint64_t second;
} tide_pool_label;
TIDE_API TIDE_NODISCARD tide_status tide_trace_add_pool(tide_trace* trace, tide_pool_label label,
                                                        uint32_t* out);
TIDE_API tide_pool_label tide_trace_pool(const tide_trace* trace, uint32_t number);
TIDE_API size_t tide_trace_pool_count(const tide_trace* trace);

// Add an entry at the end of its device's list, a segment, or a block to the last segment. The trace sets
// first_block and block_count itself. tide_trace_add_device() creates the lists of entries of a device and of
// all below it. Numbers of interned values must be in the trace's table; this is not checked.
// Errors:  TIDE_ERR_ARGUMENT for NULL, for an unknown action or state, and for a block before the first
//          segment; TIDE_ERR_NO_MEMORY.
// Cost:    O(1) amortised.
TIDE_API TIDE_NODISCARD tide_status tide_trace_add_device(tide_trace* trace, size_t device);
TIDE_API TIDE_NODISCARD tide_status tide_trace_add_entry(tide_trace* trace, const tide_trace_entry* entry);
TIDE_API TIDE_NODISCARD tide_status tide_trace_add_segment(tide_trace* trace,
                                                           const tide_trace_segment* segment);
TIDE_API TIDE_NODISCARD tide_status tide_trace_add_block(tide_trace* trace, const tide_trace_block* block);

TIDE_END_DECLS
#endif
