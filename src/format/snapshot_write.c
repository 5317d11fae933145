// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The walk over a trace that makes a memory snapshot of it. Keys stand in the order PyTorch writes them; a
// key that the file did not have is left out, and what it had beside them comes last.
#include "format/snapshot_write.h"

#include "base/error.h"

static void put_word(tide__encoder* e, tide__word word) { e->encoding->word(e, word); }
static void put_uint(tide__encoder* e, uint64_t number) { e->encoding->uint(e, number); }
static void put_open(tide__encoder* e, tide_value_kind kind) { e->encoding->open(e, kind, 0); }
static void put_close(tide__encoder* e, tide_value_kind kind) { e->encoding->close(e, kind, 0); }

static bool put_shared(tide__encoder* e, int kind, uint32_t number) {
  return e->encoding->shared != NULL && e->encoding->shared(e, kind, number);
}

static void put_shared_end(tide__encoder* e, int kind, uint32_t number) {
  if (e->encoding->shared_end != NULL) e->encoding->shared_end(e, kind, number);
}

// After a failure there is no point in going on.
static bool is_well(const tide__encoder* e) { return e->output->status == TIDE_OK; }

static void put_uint_key(tide__encoder* e, uint32_t absent, uint32_t bit, tide__word key, uint64_t number) {
  if (absent & bit) return;
  put_word(e, key);
  put_uint(e, number);
}

static void put_text_key(tide__encoder* e, uint32_t absent, uint32_t bit, tide__word key, uint32_t text) {
  if (absent & bit) return;
  put_word(e, key);
  e->encoding->text(e, text);
}

// What is shared is written out each time by an encoding that cannot refer to it, and a small file can share
// so much that there would be no end.
#define PARTS_MAX ((uint64_t)1 << 30)

static bool parts_fit(tide__encoder* e, uint64_t parts) {
  if (e->encoding->shared != NULL) return true;
  e->written += parts;
  if (e->written <= PARTS_MAX) return true;
  tide__output_fail(e->output, TIDE_FAIL(TIDE_ERR_LIMIT,
                                         "trace_write: what the file shares is too much to be written out"));
  return false;
}

// ---------------------------------------------------------------------------------------------------
// Plain data. Its depth is bounded where it is interned.

static void put_value(tide__encoder* e, uint32_t id);

static void put_items(tide__encoder* e, const tide_value* value) {
  for (size_t i = 0; i < value->count && is_well(e); i++) {
    if (value->kind == TIDE_VALUE_DICT) e->encoding->text(e, (uint32_t)(value->items[i] >> 32));
    put_value(e, (uint32_t)value->items[i]);
  }
}

static void put_value(tide__encoder* e, uint32_t id) {
  const tide_value value = tide_intern_value(e->names, id);
  if (value.kind == TIDE_VALUE_TEXT) {
    e->encoding->text(e, value.text);
  } else if (value.kind < TIDE_VALUE_TEXT) {
    e->encoding->scalar(e, &value);
  } else if (!put_shared(e, TIDE__SHARED_VALUE, id)) {
    e->encoding->open(e, (tide_value_kind)value.kind, value.count);
    put_items(e, &value);
    e->encoding->close(e, (tide_value_kind)value.kind, value.count);
    put_shared_end(e, TIDE__SHARED_VALUE, id);
  }
}

static void put_value_key(tide__encoder* e, tide__word key, uint32_t value) {
  if (value == 0 || !parts_fit(e, tide_intern_value_weight(e->names, value))) return;
  put_word(e, key);
  put_value(e, value);
}

static void put_extra(tide__encoder* e, uint32_t id) {
  const tide_value value = tide_intern_value(e->names, id);
  if (id == 0 || value.kind != TIDE_VALUE_DICT) return;
  if (parts_fit(e, tide_intern_value_weight(e->names, id))) put_items(e, &value);
}

// ---------------------------------------------------------------------------------------------------
// What stands beside a record must not be taken for its own keys by a reader. A reader keeps there what has
// another form than is usual, and never a size or an action.

typedef struct own_key {
  tide__word word;
  uint32_t bit;    // that says that the record does not have it itself; 0: it always does
  bool is_number;  // that a reader takes for the field, whoever wrote it
} own_key;

static const own_key entry_keys[] = {
  { TIDE__WORD_ACTION, TIDE_ENTRY_ACTION, false },
  { TIDE__WORD_SIZE, 0, false },
  { TIDE__WORD_STREAM, TIDE_ENTRY_STREAM, true },
  { TIDE__WORD_TIME_US, TIDE_ENTRY_TIME, false },
  { TIDE__WORD_COMPILE_CONTEXT, TIDE_ENTRY_COMPILE_CONTEXT, false },
  { TIDE__WORD_USER_METADATA, TIDE_ENTRY_METADATA, false },
  { TIDE__WORD_POOL_ID, TIDE_ENTRY_POOL, false },
  { TIDE__WORD_FRAMES, TIDE_ENTRY_STACK, false },
  { TIDE__WORD_NONE, 0, false },
};

static const own_key segment_keys[] = {
  { TIDE__WORD_ADDRESS, 0, false },
  { TIDE__WORD_TOTAL_SIZE, 0, false },
  { TIDE__WORD_BLOCKS, 0, false },
  { TIDE__WORD_DEVICE, TIDE_SEGMENT_DEVICE, false },
  { TIDE__WORD_ALLOCATED_SIZE, TIDE_SEGMENT_ALLOCATED, true },
  { TIDE__WORD_ACTIVE_SIZE, TIDE_SEGMENT_ACTIVE, true },
  { TIDE__WORD_REQUESTED_SIZE, TIDE_SEGMENT_REQUESTED, true },
  { TIDE__WORD_STREAM, TIDE_SEGMENT_STREAM, true },
  { TIDE__WORD_SEGMENT_TYPE, TIDE_SEGMENT_TYPE, false },
  { TIDE__WORD_IS_EXPANDABLE, TIDE_SEGMENT_EXPANDABLE, false },
  { TIDE__WORD_SEGMENT_POOL_ID, TIDE_SEGMENT_POOL, false },
  { TIDE__WORD_FRAMES, TIDE_SEGMENT_STACK, false },
  { TIDE__WORD_NONE, 0, false },
};

static const own_key block_keys[] = {
  { TIDE__WORD_SIZE, 0, false },
  { TIDE__WORD_ADDRESS, TIDE_BLOCK_KEY_ADDRESS, true },
  { TIDE__WORD_REQUESTED_SIZE, TIDE_BLOCK_KEY_REQUESTED, true },
  { TIDE__WORD_STATE, TIDE_BLOCK_KEY_STATE, false },
  { TIDE__WORD_FRAMES, TIDE_BLOCK_KEY_STACK, false },
  { TIDE__WORD_NONE, 0, false },
};

static const own_key root_keys[] = {
  { TIDE__WORD_SEGMENTS, 0, false },
  { TIDE__WORD_DEVICE_TRACES, 0, false },
  { TIDE__WORD_NONE, 0, false },
};

static bool extra_fits(const tide__encoder* e, uint32_t extra, uint32_t absent, const own_key* key) {
  const uint32_t id = tide_intern_value_find(e->names, extra, tide__word_text(key->word));
  const tide_value value = tide_intern_value(e->names, id);
  if (id == 0) return true;
  const bool is_size = value.kind == TIDE_VALUE_UINT || (value.kind == TIDE_VALUE_INT && value.integer >= 0);
  return (absent & key->bit) != 0 && !(key->is_number && is_size);
}

static void extra_check(tide__encoder* e, uint32_t extra, uint32_t absent, const own_key* keys) {
  for (; extra != 0 && keys->word != TIDE__WORD_NONE; keys++) {
    if (extra_fits(e, extra, absent, keys)) continue;
    tide__output_fail(e->output,
                      TIDE_FAIL(TIDE_ERR_LIMIT, "trace_write: what stands beside a record has its key \"%s\"",
                                tide__word_text(keys->word)));
    return;
  }
}

static void put_extra_of(tide__encoder* e, uint32_t extra, uint32_t absent, const own_key* keys) {
  extra_check(e, extra, absent, keys);
  put_extra(e, extra);
}

// ---------------------------------------------------------------------------------------------------
// Frames and stacks

static void put_frame(tide__encoder* e, uint32_t id) {
  if (put_shared(e, TIDE__SHARED_FRAME, id)) return;
  const tide_frame frame = tide_intern_frame(e->names, id);
  const tide_value line = { .kind = TIDE_VALUE_INT, .integer = frame.line };
  put_open(e, TIDE_VALUE_DICT);
  put_text_key(e, frame.absent, TIDE_FRAME_NAME, TIDE__WORD_NAME, frame.name);
  put_text_key(e, frame.absent, TIDE_FRAME_FILE, TIDE__WORD_FILENAME, frame.file);
  if (!(frame.absent & TIDE_FRAME_LINE)) {
    put_word(e, TIDE__WORD_LINE);
    e->encoding->scalar(e, &line);
  }
  put_extra(e, frame.extra);
  put_close(e, TIDE_VALUE_DICT);
  put_shared_end(e, TIDE__SHARED_FRAME, id);
}

static void put_stack(tide__encoder* e, uint32_t id) {
  size_t count = 0;
  const uint64_t* const frames = tide_intern_stack(e->names, id, &count);
  if (count > 0 && put_shared(e, TIDE__SHARED_STACK, id)) return;
  if (!parts_fit(e, count)) return;
  put_open(e, TIDE_VALUE_LIST);
  for (size_t i = 0; i < count && is_well(e); i++) put_frame(e, (uint32_t)frames[i]);
  put_close(e, TIDE_VALUE_LIST);
  if (count > 0) put_shared_end(e, TIDE__SHARED_STACK, id);
}

static void put_stack_key(tide__encoder* e, uint32_t absent, uint32_t bit, uint32_t stack) {
  if (absent & bit) return;
  put_word(e, TIDE__WORD_FRAMES);
  put_stack(e, stack);
}

static void put_pool_key(tide__encoder* e, uint32_t absent, uint32_t bit, tide__word key, uint32_t pool) {
  if (absent & bit) return;
  const tide_pool_label label = tide_trace_pool(e->trace, pool);
  put_word(e, key);
  e->encoding->open(e, TIDE_VALUE_TUPLE, 2);
  put_uint(e, label.first);
  put_uint(e, label.second);
  e->encoding->close(e, TIDE_VALUE_TUPLE, 2);
}

// ---------------------------------------------------------------------------------------------------
// Segments and blocks

static void put_block(tide__encoder* e, const tide_trace_block* block) {
  put_open(e, TIDE_VALUE_DICT);
  put_uint_key(e, block->absent, TIDE_BLOCK_KEY_ADDRESS, TIDE__WORD_ADDRESS, block->address);
  put_uint_key(e, block->absent, TIDE_BLOCK_KEY_BYTES, TIDE__WORD_SIZE, block->bytes);
  put_uint_key(e, block->absent, TIDE_BLOCK_KEY_REQUESTED, TIDE__WORD_REQUESTED_SIZE, block->requested_bytes);
  if (!(block->absent & TIDE_BLOCK_KEY_STATE)) {
    put_word(e, TIDE__WORD_STATE);
    put_word(e, tide__word_of_state(block->state));
  }
  put_stack_key(e, block->absent, TIDE_BLOCK_KEY_STACK, block->stack);
  put_extra_of(e, block->extra, block->absent, block_keys);
  put_close(e, TIDE_VALUE_DICT);
}

static void put_blocks(tide__encoder* e, const tide_trace_segment* segment) {
  const tide_trace_block* const blocks = tide_trace_blocks(e->trace, NULL);
  put_word(e, TIDE__WORD_BLOCKS);
  put_open(e, TIDE_VALUE_LIST);
  for (size_t i = 0; i < segment->block_count && is_well(e); i++)
    put_block(e, &blocks[segment->first_block + i]);
  put_close(e, TIDE_VALUE_LIST);
}

static void put_segment(tide__encoder* e, const tide_trace_segment* s) {
  put_open(e, TIDE_VALUE_DICT);
  put_uint_key(e, s->absent, TIDE_SEGMENT_DEVICE, TIDE__WORD_DEVICE, s->device);
  put_uint_key(e, s->absent, TIDE_SEGMENT_ADDRESS, TIDE__WORD_ADDRESS, s->address);
  put_uint_key(e, s->absent, TIDE_SEGMENT_BYTES, TIDE__WORD_TOTAL_SIZE, s->bytes);
  put_uint_key(e, s->absent, TIDE_SEGMENT_ALLOCATED, TIDE__WORD_ALLOCATED_SIZE, s->allocated_bytes);
  put_uint_key(e, s->absent, TIDE_SEGMENT_ACTIVE, TIDE__WORD_ACTIVE_SIZE, s->active_bytes);
  put_uint_key(e, s->absent, TIDE_SEGMENT_REQUESTED, TIDE__WORD_REQUESTED_SIZE, s->requested_bytes);
  put_uint_key(e, s->absent, TIDE_SEGMENT_STREAM, TIDE__WORD_STREAM, s->stream);
  if (!(s->absent & TIDE_SEGMENT_TYPE)) {
    put_word(e, TIDE__WORD_SEGMENT_TYPE);
    put_word(e, s->is_large ? TIDE__WORD_LARGE : TIDE__WORD_SMALL);
  }
  put_pool_key(e, s->absent, TIDE_SEGMENT_POOL, TIDE__WORD_SEGMENT_POOL_ID, s->pool);
  if (!(s->absent & TIDE_SEGMENT_EXPANDABLE)) {
    const tide_value value = { .kind = TIDE_VALUE_BOOL, .integer = s->is_expandable };
    put_word(e, TIDE__WORD_IS_EXPANDABLE);
    e->encoding->scalar(e, &value);
  }
  put_stack_key(e, s->absent, TIDE_SEGMENT_STACK, s->stack);
  if (!(s->absent & TIDE_SEGMENT_BLOCKS)) put_blocks(e, s);
  put_extra_of(e, s->extra, s->absent, segment_keys);
  put_close(e, TIDE_VALUE_DICT);
}

static void put_segments(tide__encoder* e) {
  size_t count = 0;
  const tide_trace_segment* const segments = tide_trace_segments(e->trace, &count);
  put_open(e, TIDE_VALUE_LIST);
  for (size_t i = 0; i < count && is_well(e); i++) put_segment(e, &segments[i]);
  put_close(e, TIDE_VALUE_LIST);
}

// ---------------------------------------------------------------------------------------------------
// Entries

static void put_entry(tide__encoder* e, const tide_trace_entry* entry) {
  const tide_note note = tide_intern_note(e->names, entry->note);
  const uint32_t absent = entry->absent;
  const tide__word address = entry->action == TIDE_ACTION_OOM ? TIDE__WORD_DEVICE_FREE : TIDE__WORD_ADDR;
  put_open(e, TIDE_VALUE_DICT);
  if (!(absent & TIDE_ENTRY_ACTION)) {
    put_word(e, TIDE__WORD_ACTION);
    put_word(e, tide__word_of_action(entry->action));
  }
  put_uint_key(e, absent, TIDE_ENTRY_ADDRESS, address, entry->address);
  put_uint_key(e, absent, TIDE_ENTRY_BYTES, TIDE__WORD_SIZE, entry->bytes);
  put_uint_key(e, absent, TIDE_ENTRY_STREAM, TIDE__WORD_STREAM, entry->stream);
  put_uint_key(e, absent, TIDE_ENTRY_TIME, TIDE__WORD_TIME_US, entry->time_ns / 1000);
  put_text_key(e, absent, TIDE_ENTRY_COMPILE_CONTEXT, TIDE__WORD_COMPILE_CONTEXT, note.compile_context);
  put_text_key(e, absent, TIDE_ENTRY_METADATA, TIDE__WORD_USER_METADATA, note.metadata);
  put_pool_key(e, absent, TIDE_ENTRY_POOL, TIDE__WORD_POOL_ID, entry->pool);
  put_stack_key(e, absent, TIDE_ENTRY_STACK, entry->stack);
  const own_key address_keys[] = { { address, TIDE_ENTRY_ADDRESS, true }, { TIDE__WORD_NONE, 0, false } };
  extra_check(e, note.extra, absent, address_keys);
  put_extra_of(e, note.extra, absent, entry_keys);
  put_close(e, TIDE_VALUE_DICT);
}

static void put_traces(tide__encoder* e) {
  put_open(e, TIDE_VALUE_LIST);
  for (size_t device = 0; device < tide_trace_device_count(e->trace); device++) {
    size_t count = 0;
    const tide_trace_entry* const entries = tide_trace_entries(e->trace, device, &count);
    put_open(e, TIDE_VALUE_LIST);
    for (size_t i = 0; i < count && is_well(e); i++) put_entry(e, &entries[i]);
    put_close(e, TIDE_VALUE_LIST);
  }
  put_close(e, TIDE_VALUE_LIST);
}

void tide__snapshot_write(tide__encoder* e) {
  const tide_trace_about about = tide_trace_get_about(e->trace);
  if (about.is_segments_only) {
    put_segments(e);
    return;
  }
  // A viewer needs both lists. A snapshot that came without one of them does not get it.
  const bool is_foreign = !about.has_segments && !about.has_entries;
  put_open(e, TIDE_VALUE_DICT);
  if (about.has_segments || is_foreign) {
    put_word(e, TIDE__WORD_SEGMENTS);
    put_segments(e);
  }
  if (about.has_entries || is_foreign) {
    put_word(e, TIDE__WORD_DEVICE_TRACES);
    put_traces(e);
  }
  put_value_key(e, TIDE__WORD_ALLOCATOR_SETTINGS, about.settings);
  put_value_key(e, TIDE__WORD_EXTERNAL_ANNOTATIONS, about.annotations);
  put_extra_of(e, about.extra, 0, root_keys);
  put_close(e, TIDE_VALUE_DICT);
}
