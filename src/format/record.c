// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// From the dicts of a snapshot to the records of a trace. Each key that is known goes to its field. A key
// that is not known, or whose value is not of the usual kind (a list where a tuple is usual, None for an
// address), is kept as plain data in the record's `extra`, and the record notes that the usual key is absent:
// so a writer gives back what was read. Where a value of another kind can be understood, the field has it all
// the same.
//
// What cannot be done without is an error that names its path: the action of an entry as a text, sizes and
// addresses of segments and blocks as integers.
#include "format/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "format/faults.h"
#include "format/schema.h"

// ---------------------------------------------------------------------------------------------------
// What stands where

tide__role tide__role_within(tide__role role, uint32_t key, bool is_dict) {
  if (is_dict) {
    switch (role) {
      case TIDE__ROLE_TRACK: return TIDE__ROLE_ENTRY;
      case TIDE__ROLE_SEGMENTS: return TIDE__ROLE_SEGMENT;
      case TIDE__ROLE_BLOCKS: return TIDE__ROLE_BLOCK;
      case TIDE__ROLE_STACK: return TIDE__ROLE_FRAME;
      default: return TIDE__ROLE_PLAIN;
    }
  }
  const bool has_stack = role == TIDE__ROLE_ENTRY || role == TIDE__ROLE_SEGMENT || role == TIDE__ROLE_BLOCK;
  if (role == TIDE__ROLE_TRACES) return TIDE__ROLE_TRACK;
  if (has_stack && key == TIDE__WORD_FRAMES) return TIDE__ROLE_STACK;
  if (role == TIDE__ROLE_SEGMENT && key == TIDE__WORD_BLOCKS) return TIDE__ROLE_BLOCKS;
  if (role == TIDE__ROLE_ROOT && key == TIDE__WORD_SEGMENTS) return TIDE__ROLE_SEGMENTS;
  if (role == TIDE__ROLE_ROOT && key == TIDE__WORD_DEVICE_TRACES) return TIDE__ROLE_TRACES;
  return TIDE__ROLE_PLAIN;
}

const char* tide__item_name(const tide__item* item) {
  static const char* const kinds[] = { "None",     "a bool", "an integer", "an integer",
                                       "a number", "a text", "plain data", "an open part" };
  static const char* const roles[] = { "plain data",        "a snapshot",       "the list of traces",
                                       "a list of entries", "an entry",         "a list of segments",
                                       "a segment",         "a list of blocks", "a block",
                                       "a call stack",      "a frame" };
  return item->kind == TIDE__ITEM_PACKED ? roles[item->role] : kinds[item->kind];
}

// ---------------------------------------------------------------------------------------------------
// Fields. Each returns whether the value was of the usual kind, so that the field alone gives it back.

static bool take_uint(const tide__item* item, uint64_t* out) {
  const bool is_right = item->kind == TIDE__ITEM_UINT ||
                        (item->kind == TIDE__ITEM_INT && item->as.integer >= 0);
  if (is_right) *out = (uint64_t)item->as.integer;
  return is_right;
}

static bool take_text(const tide__item* item, uint32_t* out) {
  if (item->kind == TIDE__ITEM_TEXT) *out = item->id;
  return item->kind == TIDE__ITEM_TEXT;
}

static bool take_time(const tide__item* item, uint64_t* out) {
  uint64_t us = 0;
  uint64_t ns = 0;
  if (item->kind == TIDE__ITEM_FLOAT && item->as.number >= 0 && item->as.number < 9e15) {
    *out = (uint64_t)(item->as.number * 1000);
    return false;
  }
  if (!take_uint(item, &us) || !tide__mul(us, 1000, &ns)) return false;
  *out = ns;
  return true;
}

static tide_status take_stack(tide__assembler* a, const tide__item* item, uint32_t* out, bool* out_is_usual) {
  tide__item packed = *item;
  if (item->kind == TIDE__ITEM_VALUE) TIDE_TRY(tide__pack_value(a, item->id, TIDE__ROLE_STACK, 0, &packed));
  *out_is_usual = packed.kind == TIDE__ITEM_PACKED && packed.role == TIDE__ROLE_STACK;
  if (*out_is_usual) *out = packed.id;
  return TIDE_OK;
}

// A pair of integers. JSON has no tuples, so there a list is usual.
static tide_status take_pool(tide__assembler* a, const tide__item* item, uint32_t* out, bool* out_is_usual) {
  const tide_value value = item->kind == TIDE__ITEM_VALUE ? tide_intern_value(a->names, item->id)
                                                          : (tide_value){ 0 };
  const bool is_list = value.kind == TIDE_VALUE_LIST;
  tide_pool_label label = { 0, 0 };
  *out_is_usual = false;
  if ((value.kind != TIDE_VALUE_TUPLE && !is_list) || value.count != 2) return TIDE_OK;
  const tide__item first = tide__value_item(a->names, (uint32_t)value.items[0]);
  const tide__item second = tide__value_item(a->names, (uint32_t)value.items[1]);
  if (!take_uint(&first, &label.first) || !take_uint(&second, &label.second)) return TIDE_OK;
  const tide_status status = tide_trace_add_pool(a->trace, label, out);
  if (status == TIDE_ERR_LIMIT) return TIDE__FILE_FAIL(a, "%s", tide_last_error()->text);
  *out_is_usual = !is_list || a->has_no_tuples;
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Frames and stacks

static tide_status pack_frame(tide__assembler* a, const tide__open* open, tide__item* out) {
  tide_frame frame = { .absent = TIDE_FRAME_NAME | TIDE_FRAME_FILE | TIDE_FRAME_LINE };
  const size_t begin = a->word_count;
  for (size_t i = 0; i + 2 <= open->count; i += 2) {
    const uint32_t key = open->items[i].id;
    const tide__item* const item = &open->items[i + 1];
    uint32_t bit = 0;
    if (key == TIDE__WORD_NAME && take_text(item, &frame.name)) bit = TIDE_FRAME_NAME;
    if (key == TIDE__WORD_FILENAME && take_text(item, &frame.file)) bit = TIDE_FRAME_FILE;
    if (key == TIDE__WORD_LINE && item->kind == TIDE__ITEM_INT) {
      frame.line = item->as.integer;
      bit = TIDE_FRAME_LINE;
    }
    frame.absent &= ~bit;
    if (bit == 0) TIDE_TRY(tide__words_add_pair(a, key, item));
  }
  *out = (tide__item){ .kind = TIDE__ITEM_PACKED, .role = TIDE__ROLE_FRAME };
  TIDE_TRY(tide__words_extra(a, begin, &frame.extra));
  return tide_intern_add_frame(a->names, &frame, &out->id);
}

static tide_status pack_stack(tide__assembler* a, const tide__open* open, tide__item* out) {
  const size_t begin = a->word_count;
  for (size_t i = 0; i < open->count; i++) TIDE_TRY(tide__assembler_word(a, open->items[i].id));
  *out = (tide__item){ .kind = TIDE__ITEM_PACKED, .role = TIDE__ROLE_STACK };
  a->word_count = begin;
  return tide_intern_add_stack(a->names, a->words + begin, open->count, &out->id);
}

// ---------------------------------------------------------------------------------------------------
// Entries

// Where the record is, for errors.
typedef struct record_path {
  char text[48];
} record_path;

static record_path entry_path(const tide__assembler* a, uint32_t device) {
  record_path path;
  size_t count = 0;
  (void)tide_trace_entries(a->trace, device, &count);
  (void)snprintf(path.text, sizeof path.text, "device_traces[%u][%zu]", device, count);
  return path;
}

static tide_status entry_action(tide__assembler* a, const tide__item* item, tide_trace_entry* entry,
                                bool* out_is_usual) {
  if (item->kind != TIDE__ITEM_TEXT)
    return TIDE__FILE_FAIL(a, "%s.action is %s, not a text", entry_path(a, entry->device).text,
                           tide__item_name(item));
  *out_is_usual = item->id >= TIDE__WORD_ALLOC && item->id <= TIDE__WORD_OTHER;
  entry->action = *out_is_usual ? (uint8_t)(item->id - TIDE__WORD_ALLOC) : TIDE_ACTION_OTHER;
  return TIDE_OK;
}

// Takes one key of an entry; the bit of the field if that says it all, or 0.
static tide_status entry_take(tide__assembler* a, uint32_t key, const tide__item* item,
                              tide_trace_entry* entry, tide_note* note, uint32_t* out_bit) {
  bool is_usual = false;
  uint32_t bit = 0;
  switch (key) {
    case TIDE__WORD_ACTION:
      bit = TIDE_ENTRY_ACTION;
      TIDE_TRY(entry_action(a, item, entry, &is_usual));
      break;
    case TIDE__WORD_SIZE:
      bit = TIDE_ENTRY_BYTES;
      is_usual = take_uint(item, &entry->bytes);
      if (!is_usual)
        return TIDE__FILE_FAIL(a, "%s.size is %s, not a size", entry_path(a, entry->device).text,
                               tide__item_name(item));
      break;
    case TIDE__WORD_STREAM:
      bit = TIDE_ENTRY_STREAM;
      is_usual = take_uint(item, &entry->stream);
      break;
    case TIDE__WORD_TIME_US:
      bit = TIDE_ENTRY_TIME;
      is_usual = take_time(item, &entry->time_ns);
      break;
    case TIDE__WORD_COMPILE_CONTEXT:
      bit = TIDE_ENTRY_COMPILE_CONTEXT;
      is_usual = take_text(item, &note->compile_context);
      break;
    case TIDE__WORD_USER_METADATA:
      bit = TIDE_ENTRY_METADATA;
      is_usual = take_text(item, &note->metadata);
      break;
    case TIDE__WORD_FRAMES:
      bit = TIDE_ENTRY_STACK;
      TIDE_TRY(take_stack(a, item, &entry->stack, &is_usual));
      break;
    case TIDE__WORD_POOL_ID:
      bit = TIDE_ENTRY_POOL;
      TIDE_TRY(take_pool(a, item, &entry->pool, &is_usual));
      break;
    default: break;
  }
  *out_bit = is_usual ? bit : 0;
  return TIDE_OK;
}

#define ENTRY_KEYS ((TIDE_ENTRY_POOL << 1) - 1)

// An entry has `addr`, or if its action is oom `device_free`. Another key of these is kept as it is.
static tide_status entry_take_address(tide__assembler* a, const tide__item* addr,
                                      const tide__item* device_free, tide_trace_entry* entry) {
  const bool is_oom = entry->action == TIDE_ACTION_OOM;
  const tide__item* const usual = is_oom ? device_free : addr;
  const tide__item* const other = is_oom ? addr : device_free;
  const uint32_t usual_key = is_oom ? TIDE__WORD_DEVICE_FREE : TIDE__WORD_ADDR;
  const uint32_t other_key = is_oom ? TIDE__WORD_ADDR : TIDE__WORD_DEVICE_FREE;
  if (usual != NULL && take_uint(usual, &entry->address)) entry->absent &= (uint16_t)~TIDE_ENTRY_ADDRESS;
  else if (usual != NULL) TIDE_TRY(tide__words_add_pair(a, usual_key, usual));
  return other != NULL ? tide__words_add_pair(a, other_key, other) : TIDE_OK;
}

static tide_status entry_add(tide__assembler* a, const tide_trace_entry* entry, tide__item* out) {
  size_t count = 0;
  const char* const fault = tide__entry_fault(a->trace, entry);
  if (fault != NULL) return TIDE__FILE_FAIL(a, "%s cannot be: %s", entry_path(a, entry->device).text, fault);
  TIDE_TRY(tide_trace_add_entry(a->trace, entry));
  (void)tide_trace_entries(a->trace, entry->device, &count);
  *out = (tide__item){ .kind = TIDE__ITEM_PACKED, .role = TIDE__ROLE_ENTRY, .id = (uint32_t)(count - 1) };
  out->as.integer = entry->device;
  return TIDE_OK;
}

static tide_status pack_entry(tide__assembler* a, const tide__open* open, tide__item* out) {
  tide_trace_entry entry = { .device = (uint8_t)open->device,
                             .action = TIDE_ACTION_OTHER,
                             .absent = ENTRY_KEYS };
  tide_note note = { 0 };
  const size_t begin = a->word_count;
  bool has_action = false;
  const tide__item* addr = NULL;
  const tide__item* device_free = NULL;
  for (size_t i = 0; i + 2 <= open->count; i += 2) {
    const uint32_t key = open->items[i].id;
    const tide__item* const item = &open->items[i + 1];
    uint32_t bit = 0;
    has_action |= key == TIDE__WORD_ACTION;
    if (key == TIDE__WORD_ADDR) addr = item;
    if (key == TIDE__WORD_DEVICE_FREE) device_free = item;
    if (key == TIDE__WORD_ADDR || key == TIDE__WORD_DEVICE_FREE) continue;
    TIDE_TRY(entry_take(a, key, item, &entry, &note, &bit));
    entry.absent &= (uint16_t)~bit;
    if (bit == 0) TIDE_TRY(tide__words_add_pair(a, key, item));
  }
  if (!has_action) return TIDE__FILE_FAIL(a, "%s has no action", entry_path(a, open->device).text);
  TIDE_TRY(entry_take_address(a, addr, device_free, &entry));
  TIDE_TRY(tide__words_extra(a, begin, &note.extra));
  TIDE_TRY(tide_intern_add_note(a->names, note, &entry.note));
  return entry_add(a, &entry, out);
}

// ---------------------------------------------------------------------------------------------------
// Blocks

static tide_status block_take(tide__assembler* a, uint32_t key, const tide__item* item,
                              tide_trace_block* block, uint32_t* out_bit) {
  bool is_usual = false;
  uint32_t bit = 0;
  switch (key) {
    case TIDE__WORD_ADDRESS:
      bit = TIDE_BLOCK_KEY_ADDRESS;
      is_usual = take_uint(item, &block->address);
      break;
    case TIDE__WORD_SIZE:
      bit = TIDE_BLOCK_KEY_BYTES;
      is_usual = take_uint(item, &block->bytes);
      if (!is_usual)
        return TIDE__FILE_FAIL(a, "segments[%zu].blocks[%zu].size is %s, not a size", a->segment_count,
                               a->block_count, tide__item_name(item));
      break;
    case TIDE__WORD_REQUESTED_SIZE:
      bit = TIDE_BLOCK_KEY_REQUESTED;
      is_usual = take_uint(item, &block->requested_bytes);
      break;
    case TIDE__WORD_STATE:
      bit = TIDE_BLOCK_KEY_STATE;
      is_usual = item->kind == TIDE__ITEM_TEXT && item->id >= TIDE__WORD_INACTIVE &&
                 item->id <= TIDE__WORD_ACTIVE_PENDING_FREE;
      if (is_usual) block->state = (uint8_t)(item->id - TIDE__WORD_INACTIVE);
      else if (item->kind == TIDE__ITEM_TEXT)  // an older name
        block->state = tide_block_state_from_name(tide_intern_text(a->names, item->id, NULL)) ==
                               TIDE_BLOCK_PENDING
                           ? TIDE_BLOCK_PENDING
                           : TIDE_BLOCK_INACTIVE;
      break;
    case TIDE__WORD_FRAMES:
      bit = TIDE_BLOCK_KEY_STACK;
      TIDE_TRY(take_stack(a, item, &block->stack, &is_usual));
      break;
    default: break;
  }
  *out_bit = is_usual ? bit : 0;
  return TIDE_OK;
}

#define BLOCK_KEYS ((TIDE_BLOCK_KEY_STACK << 1) - 1)

static tide_status pack_block(tide__assembler* a, const tide__open* open, tide__item* out) {
  tide_trace_block block = { .absent = BLOCK_KEYS };
  const size_t begin = a->word_count;
  for (size_t i = 0; i + 2 <= open->count; i += 2) {
    uint32_t bit = 0;
    TIDE_TRY(block_take(a, open->items[i].id, &open->items[i + 1], &block, &bit));
    block.absent &= (uint16_t)~bit;
    if (bit == 0) TIDE_TRY(tide__words_add_pair(a, open->items[i].id, &open->items[i + 1]));
  }
  TIDE_TRY(tide__words_extra(a, begin, &block.extra));
  const char* const fault = tide__block_fault(&block);
  if (fault != NULL)
    return TIDE__FILE_FAIL(a, "segments[%zu].blocks[%zu] cannot be: %s", a->segment_count, a->block_count,
                           fault);
  void* blocks = a->blocks;
  TIDE_REQUIRE(tide__heap_grow(a->heap, &blocks, &a->block_room, a->block_count + 1, sizeof block),
               TIDE_ERR_NO_MEMORY, "%s: no memory for %zu blocks", a->format, a->block_count + 1);
  a->blocks = blocks;
  a->blocks[a->block_count++] = block;
  *out = (tide__item){ .kind = TIDE__ITEM_PACKED, .role = TIDE__ROLE_BLOCK };
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Segments

typedef struct segment_draft {
  tide_trace_segment segment;
  tide__item blocks;
} segment_draft;

static tide_status segment_size(tide__assembler* a, const tide__item* item, const char* key, uint64_t* out) {
  if (!take_uint(item, out))
    return TIDE__FILE_FAIL(a, "segments[%zu].%s is %s, not a size", a->segment_count, key,
                           tide__item_name(item));
  return TIDE_OK;
}

static tide_status segment_blocks(tide__assembler* a, const tide__item* item, tide__item* out) {
  *out = *item;
  if (item->kind == TIDE__ITEM_VALUE) TIDE_TRY(tide__pack_value(a, item->id, TIDE__ROLE_BLOCKS, 0, out));
  if (out->kind != TIDE__ITEM_PACKED || out->role != TIDE__ROLE_BLOCKS)
    return TIDE__FILE_FAIL(a, "segments[%zu].blocks is %s, not a list", a->segment_count,
                           tide__item_name(item));
  return TIDE_OK;
}

static bool segment_type(const tide__item* item, bool* out_is_large) {
  if (item->kind != TIDE__ITEM_TEXT) return false;
  *out_is_large = item->id == TIDE__WORD_LARGE;
  return item->id == TIDE__WORD_LARGE || item->id == TIDE__WORD_SMALL;
}

static bool segment_device(const tide__item* item, uint8_t* out) {
  uint64_t device = 0;
  if (!take_uint(item, &device) || device > UINT8_MAX) return false;
  *out = (uint8_t)device;
  return true;
}

// The keys of a segment whose values may be anything.
static tide_status segment_take_more(tide__assembler* a, uint32_t key, const tide__item* item,
                                     tide_trace_segment* segment, uint32_t* out_bit) {
  bool is_usual = false;
  uint32_t bit = 0;
  switch (key) {
    case TIDE__WORD_DEVICE:
      bit = TIDE_SEGMENT_DEVICE;
      is_usual = segment_device(item, &segment->device);
      break;
    case TIDE__WORD_ALLOCATED_SIZE:
      bit = TIDE_SEGMENT_ALLOCATED;
      is_usual = take_uint(item, &segment->allocated_bytes);
      break;
    case TIDE__WORD_ACTIVE_SIZE:
      bit = TIDE_SEGMENT_ACTIVE;
      is_usual = take_uint(item, &segment->active_bytes);
      break;
    case TIDE__WORD_REQUESTED_SIZE:
      bit = TIDE_SEGMENT_REQUESTED;
      is_usual = take_uint(item, &segment->requested_bytes);
      break;
    case TIDE__WORD_STREAM:
      bit = TIDE_SEGMENT_STREAM;
      is_usual = take_uint(item, &segment->stream);
      break;
    case TIDE__WORD_SEGMENT_TYPE:
      bit = TIDE_SEGMENT_TYPE;
      is_usual = segment_type(item, &segment->is_large);
      break;
    case TIDE__WORD_IS_EXPANDABLE:
      bit = TIDE_SEGMENT_EXPANDABLE;
      is_usual = item->kind == TIDE__ITEM_BOOL;
      segment->is_expandable = is_usual && item->as.integer != 0;
      break;
    case TIDE__WORD_SEGMENT_POOL_ID:
      bit = TIDE_SEGMENT_POOL;
      TIDE_TRY(take_pool(a, item, &segment->pool, &is_usual));
      break;
    case TIDE__WORD_FRAMES:
      bit = TIDE_SEGMENT_STACK;
      TIDE_TRY(take_stack(a, item, &segment->stack, &is_usual));
      break;
    default: break;
  }
  *out_bit = is_usual ? bit : 0;
  return TIDE_OK;
}

static tide_status segment_take(tide__assembler* a, uint32_t key, const tide__item* item,
                                segment_draft* draft, uint32_t* out_bit) {
  switch (key) {
    case TIDE__WORD_ADDRESS:
      *out_bit = TIDE_SEGMENT_ADDRESS;
      return segment_size(a, item, "address", &draft->segment.address);
    case TIDE__WORD_TOTAL_SIZE:
      *out_bit = TIDE_SEGMENT_BYTES;
      return segment_size(a, item, "total_size", &draft->segment.bytes);
    case TIDE__WORD_BLOCKS: *out_bit = TIDE_SEGMENT_BLOCKS; return segment_blocks(a, item, &draft->blocks);
    default: return segment_take_more(a, key, item, &draft->segment, out_bit);
  }
}

// Adds the segment with its blocks, which are then gone from where they waited.
static tide_status segment_add(tide__assembler* a, const segment_draft* draft) {
  const size_t first = draft->blocks.id;
  const size_t count = (size_t)draft->blocks.as.integer;
  if (count > a->block_count || first > a->block_count - count)
    return TIDE__FILE_FAIL(a, "segments[%zu].blocks is the list of another segment", a->segment_count);
  TIDE_TRY(tide_trace_add_segment(a->trace, &draft->segment));
  for (size_t i = 0; i < count; i++) TIDE_TRY(tide_trace_add_block(a->trace, &a->blocks[first + i]));
  a->block_count = 0;
  a->segment_count++;
  return TIDE_OK;
}

#define SEGMENT_KEYS ((TIDE_SEGMENT_BLOCKS << 1) - 1)

static tide_status pack_segment(tide__assembler* a, const tide__open* open, tide__item* out) {
  segment_draft draft = { .segment = { .absent = SEGMENT_KEYS } };
  const size_t begin = a->word_count;
  for (size_t i = 0; i + 2 <= open->count; i += 2) {
    uint32_t bit = 0;
    TIDE_TRY(segment_take(a, open->items[i].id, &open->items[i + 1], &draft, &bit));
    draft.segment.absent &= (uint16_t)~bit;
    if (bit == 0) TIDE_TRY(tide__words_add_pair(a, open->items[i].id, &open->items[i + 1]));
  }
  const char* const fault = tide__segment_fault(&draft.segment);
  if (fault != NULL) return TIDE__FILE_FAIL(a, "segments[%zu] cannot be: %s", a->segment_count, fault);
  TIDE_TRY(tide__words_extra(a, begin, &draft.segment.extra));
  *out = (tide__item){ .kind = TIDE__ITEM_PACKED, .role = TIDE__ROLE_SEGMENT };
  return segment_add(a, &draft);
}

// ---------------------------------------------------------------------------------------------------
// The snapshot

// A list of the snapshot's own parts under a key.
static tide_status root_list(tide__assembler* a, const tide__item* item, tide__role role, const char* key,
                             bool* is_there) {
  tide__item packed = *item;
  if (*is_there) return TIDE__FILE_FAIL(a, "%s comes twice", key);
  if (item->kind == TIDE__ITEM_VALUE) TIDE_TRY(tide__pack_value(a, item->id, role, 0, &packed));
  *is_there = packed.kind == TIDE__ITEM_PACKED && packed.role == role;
  if (!*is_there) return TIDE__FILE_FAIL(a, "%s is %s, not a list", key, tide__item_name(item));
  return TIDE_OK;
}

static tide_status root_take(tide__assembler* a, uint32_t key, const tide__item* item,
                             tide_trace_about* about) {
  switch (key) {
    case TIDE__WORD_SEGMENTS:
      return root_list(a, item, TIDE__ROLE_SEGMENTS, "segments", &about->has_segments);
    case TIDE__WORD_DEVICE_TRACES:
      return root_list(a, item, TIDE__ROLE_TRACES, "device_traces", &about->has_entries);
    case TIDE__WORD_ALLOCATOR_SETTINGS: return tide__item_value(a, item, &about->settings);
    case TIDE__WORD_EXTERNAL_ANNOTATIONS: return tide__item_value(a, item, &about->annotations);
    default: return tide__words_add_pair(a, key, item);
  }
}

static bool root_has_key(const tide__assembler* a, const tide__open* open, const char* key) {
  for (size_t i = 0; i + 2 <= open->count; i += 2) {
    const char* const text = tide_intern_text(a->names, open->items[i].id, NULL);
    if (text != NULL && strcmp(text, key) == 0) return true;
  }
  return false;
}

static tide_status pack_root(tide__assembler* a, const tide__open* open, tide__item* out) {
  tide_trace_about about = { 0 };
  const size_t begin = a->word_count;
  for (size_t i = 0; i + 2 <= open->count; i += 2) {
    TIDE_TRY(root_take(a, open->items[i].id, &open->items[i + 1], &about));
  }
  if (root_has_key(a, open, "traceEvents"))
    return TIDE__FILE_FAIL(a, "%s",
                           "it is a timeline of a profiler, not a memory snapshot; one is what "
                           "torch.cuda.memory._dump_snapshot() writes");
  if (!about.has_segments && !about.has_entries)
    return TIDE__FILE_FAIL(a, "%s", "it has neither segments nor device_traces: it is no memory snapshot");
  TIDE_TRY(tide__words_extra(a, begin, &about.extra));
  tide_trace_set_about(a->trace, &about);
  *out = (tide__item){ .kind = TIDE__ITEM_PACKED, .role = TIDE__ROLE_ROOT };
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Any part

tide_status tide__pack_device(tide__assembler* a, uint32_t* out) {
  *out = (uint32_t)a->track_count;
  const tide_status status = tide_trace_add_device(a->trace, a->track_count);
  if (status == TIDE_ERR_ARGUMENT) return TIDE__FILE_FAIL(a, "more than %zu devices", a->track_count);
  a->track_count++;
  return status;
}

_Static_assert(TIDE__WORD_COUNT <= 64, "a word is a bit");

// Of a key of the snapshot's own that comes several times, the last counts. Others are seen to as plain data.
static void open_keep_last(tide__open* open) {
  uint64_t seen = 0;
  size_t first = open->count;
  for (size_t i = open->count; i >= 2; i -= 2) {
    const uint32_t key = open->items[i - 2].id;
    const uint64_t bit = key < TIDE__WORD_COUNT ? (uint64_t)1 << key : 0;
    if (seen & bit) continue;
    seen |= bit;
    first -= 2;
    open->items[first] = open->items[i - 2];
    open->items[first + 1] = open->items[i - 1];
  }
  open->count -= first;
  if (first > 0) memmove(open->items, open->items + first, open->count * sizeof *open->items);
}

tide_status tide__pack(tide__assembler* a, tide__open* open, tide__item* out) {
  const bool is_record = open->is_dict && open->role != TIDE__ROLE_PLAIN && open->role != TIDE__ROLE_ROOT;
  if (is_record) open_keep_last(open);
  switch ((tide__role)open->role) {
    case TIDE__ROLE_PLAIN: return tide__pack_plain(a, open, out);
    case TIDE__ROLE_ROOT: return pack_root(a, open, out);
    case TIDE__ROLE_ENTRY: return pack_entry(a, open, out);
    case TIDE__ROLE_SEGMENT: return pack_segment(a, open, out);
    case TIDE__ROLE_BLOCK: return pack_block(a, open, out);
    case TIDE__ROLE_FRAME: return pack_frame(a, open, out);
    case TIDE__ROLE_STACK: return pack_stack(a, open, out);
    default: break;
  }
  // A list whose parts are in the trace, or wait for their segment: the last ones.
  *out = (tide__item){ .kind = TIDE__ITEM_PACKED, .role = open->role };
  if (open->role == TIDE__ROLE_TRACK) out->id = open->device;
  if (open->role == TIDE__ROLE_BLOCKS) {
    out->id = (uint32_t)(a->block_count - tide__min(open->count, a->block_count));
    out->as.integer = (int64_t)open->count;
  }
  return TIDE_OK;
}

static bool role_is_dict(tide__role role) {
  return role == TIDE__ROLE_ROOT || role == TIDE__ROLE_ENTRY || role == TIDE__ROLE_SEGMENT ||
         role == TIDE__ROLE_BLOCK || role == TIDE__ROLE_FRAME;
}

// The parts of a value, each packed for its place; false in `out_is_right` if one does not belong there.
static tide_status value_parts(tide__assembler* a, const tide_value* value, tide__open* open,
                               bool* out_is_right) {
  const tide__role role = (tide__role)open->role;
  const tide__role within = tide__role_within(role, TIDE__WORD_NONE, role != TIDE__ROLE_TRACES);
  *out_is_right = true;
  for (size_t i = 0; i < value->count; i++) {
    tide__item item = tide__value_item(a->names, (uint32_t)value->items[i]);
    if (open->is_dict) {
      const uint32_t key = (uint32_t)(value->items[i] >> 32);
      open->items[open->count++] = (tide__item){ .kind = TIDE__ITEM_TEXT, .id = key };
    } else {
      if (item.kind == TIDE__ITEM_VALUE) TIDE_TRY(tide__pack_value(a, item.id, within, open->device, &item));
      *out_is_right &= item.kind == TIDE__ITEM_PACKED && item.role == within;
    }
    open->items[open->count++] = item;
  }
  return TIDE_OK;
}

tide_status tide__pack_value(tide__assembler* a, uint32_t id, tide__role role, uint32_t device,
                             tide__item* out) {
  const tide_value value = tide_intern_value(a->names, id);
  *out = (tide__item){ .kind = TIDE__ITEM_VALUE, .id = id };
  const bool is_dict = role_is_dict(role);
  if (value.kind != (is_dict ? TIDE_VALUE_DICT : TIDE_VALUE_LIST)) return TIDE_OK;
  tide__open open = {
    .role = (uint8_t)role, .is_dict = is_dict, .device = device, .room = 2 * value.count + 1
  };
  TIDE_TRY(tide__unfold(a, value.count));
  if (role == TIDE__ROLE_TRACK) TIDE_TRY(tide__pack_device(a, &open.device));
  open.items = tide__heap_alloc(a->heap, open.room, sizeof *open.items);
  TIDE_REQUIRE(open.items != NULL, TIDE_ERR_NO_MEMORY, "%s: no memory for %zu parts", a->format, value.count);
  bool is_right = false;
  tide_status status = value_parts(a, &value, &open, &is_right);
  if (status == TIDE_OK && is_right) status = tide__pack(a, &open, out);
  tide__heap_release(a->heap, open.items, open.room, sizeof *open.items);
  return status;
}
