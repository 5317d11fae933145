// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// From the dicts of a snapshot to the records of a trace, by the tables of fields.c. An unknown key, or a
// value of an unusual form (a list where a tuple is usual, None for an address), is kept as plain data in the
// record's `extra`, and the record notes that the usual key is absent. So a writer reproduces what was read.
// If the unusual value can be understood, the field is set as well.
//
// Some keys are required: the action of an entry as a text, sizes and the addresses of segments as integers.
// Errors name the path of the record.
#include "format/record.h"

#include <stdio.h>
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "format/faults.h"
#include "format/fields.h"

// ---------------------------------------------------------------------------------------------------
// Roles

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
// Fields. Each function returns whether the value has its usual form, so that the field alone gives it back.

static bool take_uint(const tide__item* item, uint64_t* out) {
  const bool is_right = item->kind == TIDE__ITEM_UINT ||
                        (item->kind == TIDE__ITEM_INT && item->as.integer >= 0);
  if (is_right) *out = (uint64_t)item->as.integer;
  return is_right;
}

static bool take_int(const tide__item* item, int64_t* out) {
  if (item->kind == TIDE__ITEM_INT) *out = item->as.integer;
  return item->kind == TIDE__ITEM_INT;
}

static bool take_device(const tide__item* item, uint8_t* out) {
  uint64_t device = 0;
  if (!take_uint(item, &device) || device > UINT8_MAX) return false;
  *out = (uint8_t)device;
  return true;
}

static bool take_bool(const tide__item* item, bool* out) {
  *out = item->kind == TIDE__ITEM_BOOL && item->as.integer != 0;
  return item->kind == TIDE__ITEM_BOOL;
}

static bool take_text(const tide__item* item, uint32_t* out) {
  if (item->kind == TIDE__ITEM_TEXT) *out = item->id;
  return item->kind == TIDE__ITEM_TEXT;
}

// One of the words from `first` to `last`, as its number among them.
static bool take_word(const tide__item* item, tide__word first, tide__word last, uint8_t* out) {
  const bool is_right = item->kind == TIDE__ITEM_TEXT && item->id >= first && item->id <= last;
  if (is_right) *out = (uint8_t)(item->id - first);
  return is_right;
}

static bool take_type(const tide__item* item, bool* out_is_large) {
  uint8_t type = 0;
  const bool is_right = take_word(item, TIDE__WORD_SMALL, TIDE__WORD_LARGE, &type);
  *out_is_large = type == 1;
  return is_right;
}

// An older name of a state is understood, but is kept as it is.
static bool take_state(const tide__assembler* a, const tide__item* item, uint8_t* out) {
  if (take_word(item, TIDE__WORD_INACTIVE, TIDE__WORD_ACTIVE_PENDING_FREE, out)) return true;
  const char* const text = item->kind == TIDE__ITEM_TEXT ? tide_intern_text(a->names, item->id, NULL) : NULL;
  if (tide_block_state_from_name(text) == TIDE_BLOCK_PENDING) *out = TIDE_BLOCK_PENDING;
  return false;
}

// A time with a fraction is understood, but is kept as it is.
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

// The blocks wait in the assembler until their segment is complete.
static tide_status take_blocks(tide__assembler* a, const tide__item* item, tide_trace_segment* segment) {
  tide__item packed = *item;
  if (item->kind == TIDE__ITEM_VALUE) TIDE_TRY(tide__pack_value(a, item->id, TIDE__ROLE_BLOCKS, 0, &packed));
  if (packed.kind != TIDE__ITEM_PACKED || packed.role != TIDE__ROLE_BLOCKS)
    return TIDE__FILE_FAIL(a, "segments[%zu].blocks is %s, not a list", a->segment_count,
                           tide__item_name(item));
  const size_t first = packed.id;
  const size_t count = (size_t)packed.as.integer;
  if (count > UINT32_MAX || count > a->block_count || first > a->block_count - count)
    return TIDE__FILE_FAIL(a, "segments[%zu].blocks is the list of another segment", a->segment_count);
  segment->first_block = first;
  segment->block_count = (uint32_t)count;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Records

// Where a record is, for errors.
typedef struct record_path {
  char text[64];
} record_path;

static record_path path_of(const tide__assembler* a, const tide__record_fields* fields, const void* record) {
  record_path path;
  size_t count = 0;
  if (fields == &tide__entry_fields) {
    const unsigned device = ((const tide__entry_draft*)record)->entry.device;
    (void)tide_trace_entries(a->trace, device, &count);
    (void)snprintf(path.text, sizeof path.text, "device_traces[%u][%zu]", device, count);
  } else if (fields == &tide__block_fields) {
    (void)snprintf(path.text, sizeof path.text, "segments[%zu].blocks[%zu]", a->segment_count,
                   a->block_count);
  } else {
    (void)snprintf(path.text, sizeof path.text, "segments[%zu]", a->segment_count);
  }
  return path;
}

static tide_status field_take(tide__assembler* a, const tide__record_fields* fields, const tide__field* field,
                              const tide__item* item, void* record, bool* out_is_usual) {
  void* const to = (char*)record + field->offset;
  switch ((tide__field_kind)field->kind) {
    case TIDE__FIELD_UINT: *out_is_usual = take_uint(item, to); break;
    case TIDE__FIELD_ADDRESS:
    case TIDE__FIELD_FREE:
      *out_is_usual = tide__field_applies(fields, field, record) && take_uint(item, to);
      break;
    case TIDE__FIELD_SIZE:
      *out_is_usual = take_uint(item, to);
      if (!*out_is_usual)
        return TIDE__FILE_FAIL(a, "%s.%s is %s, not an unsigned integer", path_of(a, fields, record).text,
                               tide__word_text((tide__word)field->word), tide__item_name(item));
      break;
    case TIDE__FIELD_TIME: *out_is_usual = take_time(item, to); break;
    case TIDE__FIELD_INT: *out_is_usual = take_int(item, to); break;
    case TIDE__FIELD_DEVICE: *out_is_usual = take_device(item, to); break;
    case TIDE__FIELD_BOOL: *out_is_usual = take_bool(item, to); break;
    case TIDE__FIELD_TYPE: *out_is_usual = take_type(item, to); break;
    case TIDE__FIELD_STATE: *out_is_usual = take_state(a, item, to); break;
    case TIDE__FIELD_ACTION: *out_is_usual = take_word(item, TIDE__WORD_ALLOC, TIDE__WORD_OTHER, to); break;
    case TIDE__FIELD_TEXT: *out_is_usual = take_text(item, to); break;
    case TIDE__FIELD_STACK: return take_stack(a, item, to, out_is_usual);
    case TIDE__FIELD_POOL: return take_pool(a, item, to, out_is_usual);
    case TIDE__FIELD_BLOCKS: *out_is_usual = true; return take_blocks(a, item, record);
  }
  return TIDE_OK;
}

// Takes all keys of a dict: into the fields of the record, or else into its extra.
static tide_status record_take(tide__assembler* a, const tide__open* open, const tide__record_fields* fields,
                               void* record, uint32_t* out_absent, uint32_t* out_extra) {
  const size_t begin = a->word_count;
  size_t hint = 0;
  uint32_t absent = fields->bits;
  for (size_t i = 0; i + 2 <= open->count; i += 2) {
    const uint32_t key = open->items[i].id;
    const tide__item* const item = &open->items[i + 1];
    const tide__field* const field = tide__fields_find(fields, key, &hint);
    bool is_usual = false;
    if (field != NULL) TIDE_TRY(field_take(a, fields, field, item, record, &is_usual));
    if (is_usual) absent &= ~(uint32_t)field->bit;
    else TIDE_TRY(tide__words_add_pair(a, key, item));
  }
  *out_absent = absent;
  return tide__words_extra(a, begin, out_extra);
}

static tide_status record_check(tide__assembler* a, const tide__record_fields* fields, const void* record,
                                const char* fault) {
  if (fault == NULL) return TIDE_OK;
  return TIDE__FILE_FAIL(a, "%s is not valid: %s", path_of(a, fields, record).text, fault);
}

static tide_status pack_frame(tide__assembler* a, const tide__open* open, tide__item* out) {
  tide_frame frame = { 0 };
  TIDE_TRY(record_take(a, open, &tide__frame_fields, &frame, &frame.absent, &frame.extra));
  *out = (tide__item){ .kind = TIDE__ITEM_PACKED, .role = TIDE__ROLE_FRAME };
  return tide_intern_add_frame(a->names, &frame, &out->id);
}

static tide_status pack_stack(tide__assembler* a, const tide__open* open, tide__item* out) {
  const size_t begin = a->word_count;
  for (size_t i = 0; i < open->count; i++) TIDE_TRY(tide__assembler_word(a, open->items[i].id));
  *out = (tide__item){ .kind = TIDE__ITEM_PACKED, .role = TIDE__ROLE_STACK };
  a->word_count = begin;
  return tide_intern_add_stack(a->names, a->words + begin, open->count, &out->id);
}

// The action comes first, because it decides what the other keys mean. Usually it is the first key.
static tide_status entry_take_action(tide__assembler* a, const tide__open* open, tide__entry_draft* draft) {
  size_t i = 0;
  while (i + 2 <= open->count && open->items[i].id != TIDE__WORD_ACTION) i += 2;
  if (i + 2 > open->count)
    return TIDE__FILE_FAIL(a, "%s has no action", path_of(a, &tide__entry_fields, draft).text);
  const tide__item* const item = &open->items[i + 1];
  if (item->kind != TIDE__ITEM_TEXT)
    return TIDE__FILE_FAIL(a, "%s.action is %s, not a text", path_of(a, &tide__entry_fields, draft).text,
                           tide__item_name(item));
  (void)take_word(item, TIDE__WORD_ALLOC, TIDE__WORD_OTHER, &draft->entry.action);
  return TIDE_OK;
}

static tide_status pack_entry(tide__assembler* a, const tide__open* open, tide__item* out) {
  tide__entry_draft draft = { .entry = { .device = (uint8_t)open->device, .action = TIDE_ACTION_OTHER } };
  tide_trace_entry* const entry = &draft.entry;
  uint32_t absent = 0;
  size_t count = 0;
  TIDE_TRY(entry_take_action(a, open, &draft));
  TIDE_TRY(record_take(a, open, &tide__entry_fields, &draft, &absent, &draft.note.extra));
  entry->absent = (uint16_t)absent;
  TIDE_TRY(tide_intern_add_note(a->names, draft.note, &entry->note));
  TIDE_TRY(record_check(a, &tide__entry_fields, &draft, tide__entry_fault(a->trace, entry)));
  TIDE_TRY(tide_trace_add_entry(a->trace, entry));
  (void)tide_trace_entries(a->trace, entry->device, &count);
  *out = (tide__item){ .kind = TIDE__ITEM_PACKED, .role = TIDE__ROLE_ENTRY, .id = (uint32_t)(count - 1) };
  out->as.integer = entry->device;
  return TIDE_OK;
}

static tide_status pack_block(tide__assembler* a, const tide__open* open, tide__item* out) {
  tide_trace_block block = { 0 };
  uint32_t absent = 0;
  TIDE_TRY(record_take(a, open, &tide__block_fields, &block, &absent, &block.extra));
  block.absent = (uint16_t)absent;
  TIDE_TRY(record_check(a, &tide__block_fields, &block, tide__block_fault(&block)));
  void* blocks = a->blocks;
  TIDE_REQUIRE(tide__heap_grow(a->heap, &blocks, &a->block_room, a->block_count + 1, sizeof block),
               TIDE_ERR_NO_MEMORY, "%s: no memory for %zu blocks", a->format, a->block_count + 1);
  a->blocks = blocks;
  a->blocks[a->block_count++] = block;
  *out = (tide__item){ .kind = TIDE__ITEM_PACKED, .role = TIDE__ROLE_BLOCK };
  return TIDE_OK;
}

// Adds the segment with its blocks.
static tide_status pack_segment(tide__assembler* a, const tide__open* open, tide__item* out) {
  tide_trace_segment segment = { 0 };
  uint32_t absent = 0;
  TIDE_TRY(record_take(a, open, &tide__segment_fields, &segment, &absent, &segment.extra));
  segment.absent = (uint16_t)absent;
  TIDE_TRY(record_check(a, &tide__segment_fields, &segment, tide__segment_fault(&segment)));
  TIDE_TRY(tide_trace_add_segment(a->trace, &segment));
  for (uint32_t i = 0; i < segment.block_count; i++) {
    TIDE_TRY(tide_trace_add_block(a->trace, &a->blocks[segment.first_block + i]));
  }
  a->block_count = 0;
  a->segment_count++;
  *out = (tide__item){ .kind = TIDE__ITEM_PACKED, .role = TIDE__ROLE_SEGMENT };
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The snapshot

// Takes the list of segments or of traces.
static tide_status root_list(tide__assembler* a, const tide__item* item, tide__role role, const char* key,
                             bool* is_there) {
  tide__item packed = *item;
  if (*is_there) return TIDE__FILE_FAIL(a, "%s occurs twice", key);
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
                           "the file is the timeline of a profiler, not a memory snapshot; "
                           "torch.cuda.memory._dump_snapshot() writes one");
  if (!about.has_segments && !about.has_entries)
    return TIDE__FILE_FAIL(a, "%s", "neither segments nor device_traces: this is not a memory snapshot");
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

// If a known key occurs several times, the last one counts. plain.c does the same for other keys.
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
  // A list of records, which are in the trace or wait for their segment.
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

// Packs the items of a value for their positions. `out_is_right` is false if one does not belong there.
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
  TIDE_TRY(tide__unshare(a, value.count));
  if (role == TIDE__ROLE_TRACK) TIDE_TRY(tide__pack_device(a, &open.device));
  open.items = tide__heap_alloc(a->heap, open.room, sizeof *open.items);
  TIDE_REQUIRE(open.items != NULL, TIDE_ERR_NO_MEMORY, "%s: no memory for %zu parts", a->format, value.count);
  bool is_right = false;
  tide_status status = value_parts(a, &value, &open, &is_right);
  if (status == TIDE_OK && is_right) status = tide__pack(a, &open, out);
  tide__heap_release(a->heap, open.items, open.room, sizeof *open.items);
  return status;
}
