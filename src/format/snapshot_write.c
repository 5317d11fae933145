// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The walk over a trace that writes a memory snapshot. Keys are in PyTorch's order; absent keys are omitted,
// and the keys of the extra come last.
#include "format/snapshot_write.h"

#include "base/error.h"
#include "format/fields.h"

static void put_word(tide__encoder* e, tide__word word) { e->encoding->word(e, word); }
static void put_uint(tide__encoder* e, uint64_t number) { e->encoding->uint(e, number); }
static void put_open(tide__encoder* e, tide_value_kind kind) { e->encoding->open(e, kind, 0); }
static void put_close(tide__encoder* e, tide_value_kind kind) { e->encoding->close(e, kind, 0); }

static void put_scalar(tide__encoder* e, tide_value_kind kind, int64_t integer) {
  const tide_value value = { .kind = kind, .integer = integer };
  e->encoding->scalar(e, &value);
}

static bool put_shared(tide__encoder* e, int kind, uint32_t number) {
  return e->encoding->shared != NULL && e->encoding->shared(e, kind, number);
}

static void put_shared_end(tide__encoder* e, int kind, uint32_t number) {
  if (e->encoding->shared_end != NULL) e->encoding->shared_end(e, kind, number);
}

// After a failure, loops end early.
static bool is_well(const tide__encoder* e) { return e->output->status == TIDE_OK; }

// An encoding without references writes shared items each time. A small file can share so much that this
// would never end.
#define PARTS_MAX ((uint64_t)1 << 30)

static bool parts_fit(tide__encoder* e, uint64_t parts) {
  if (e->encoding->shared != NULL) return true;
  e->written += parts;
  if (e->written <= PARTS_MAX) return true;
  tide__output_fail(
      e->output,
      TIDE_FAIL(TIDE_ERR_LIMIT, "trace_write: the trace is too large when its shared parts are written out"));
  return false;
}

// ---------------------------------------------------------------------------------------------------
// Plain data. Interning bounds its depth.

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
// Records

// Could a reader take the extra of a record for the record's own key? It accepts a key there only in an
// unusual form, and never a size.
static bool extra_fits(const tide__encoder* e, uint32_t extra, uint32_t absent, const tide__field* field) {
  const uint32_t id = tide_intern_value_find(e->names, extra, tide__word_text((tide__word)field->word));
  const tide_value value = tide_intern_value(e->names, id);
  if (id == 0) return true;
  if (field->kind == TIDE__FIELD_SIZE || field->kind == TIDE__FIELD_BLOCKS) return false;
  const bool takes_number = field->kind == TIDE__FIELD_UINT || field->kind == TIDE__FIELD_ADDRESS ||
                            field->kind == TIDE__FIELD_FREE;
  const bool is_number = value.kind == TIDE_VALUE_UINT ||
                         (value.kind == TIDE_VALUE_INT && value.integer >= 0);
  return (absent & field->bit) != 0 && !(takes_number && is_number);
}

static void extra_check(tide__encoder* e, const tide__record_fields* fields, const void* record,
                        uint32_t absent, uint32_t extra) {
  for (size_t i = 0; extra != 0 && i < fields->count; i++) {
    const tide__field* const field = &fields->items[i];
    if (!tide__field_applies(fields, field, record) || extra_fits(e, extra, absent, field)) continue;
    tide__output_fail(e->output, TIDE_FAIL(TIDE_ERR_LIMIT,
                                           "trace_write: the extra of a record has the record's own key "
                                           "\"%s\"",
                                           tide__word_text((tide__word)field->word)));
    return;
  }
}

static void put_field(tide__encoder* e, const tide__field* field, const void* record);

static void put_record(tide__encoder* e, const tide__record_fields* fields, const void* record,
                       uint32_t absent, uint32_t extra) {
  put_open(e, TIDE_VALUE_DICT);
  for (size_t i = 0; i < fields->count; i++) {
    const tide__field* const field = &fields->items[i];
    if ((absent & field->bit) == 0 && tide__field_applies(fields, field, record)) put_field(e, field, record);
  }
  put_extra(e, extra);
  put_close(e, TIDE_VALUE_DICT);
}

static void put_frame(tide__encoder* e, uint32_t id) {
  if (put_shared(e, TIDE__SHARED_FRAME, id)) return;
  const tide_frame frame = tide_intern_frame(e->names, id);
  put_record(e, &tide__frame_fields, &frame, frame.absent, frame.extra);
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

static void put_pool(tide__encoder* e, uint32_t pool) {
  const tide_pool_label label = tide_trace_pool(e->trace, pool);
  e->encoding->open(e, TIDE_VALUE_TUPLE, 2);
  put_uint(e, label.first);
  put_uint(e, label.second);
  e->encoding->close(e, TIDE_VALUE_TUPLE, 2);
}

static void put_blocks(tide__encoder* e, const tide_trace_segment* segment) {
  const tide_trace_block* const blocks = tide_trace_blocks(e->trace, NULL);
  put_open(e, TIDE_VALUE_LIST);
  for (size_t i = 0; i < segment->block_count && is_well(e); i++) {
    const tide_trace_block* const block = &blocks[segment->first_block + i];
    extra_check(e, &tide__block_fields, block, block->absent, block->extra);
    put_record(e, &tide__block_fields, block, block->absent, block->extra);
  }
  put_close(e, TIDE_VALUE_LIST);
}

static void put_field(tide__encoder* e, const tide__field* field, const void* record) {
  const void* const from = (const char*)record + field->offset;
  put_word(e, (tide__word)field->word);
  switch ((tide__field_kind)field->kind) {
    case TIDE__FIELD_UINT:
    case TIDE__FIELD_SIZE:
    case TIDE__FIELD_ADDRESS:
    case TIDE__FIELD_FREE: put_uint(e, *(const uint64_t*)from); break;
    case TIDE__FIELD_TIME: put_uint(e, *(const uint64_t*)from / 1000); break;
    case TIDE__FIELD_INT: put_scalar(e, TIDE_VALUE_INT, *(const int64_t*)from); break;
    case TIDE__FIELD_DEVICE: put_uint(e, *(const uint8_t*)from); break;
    case TIDE__FIELD_BOOL: put_scalar(e, TIDE_VALUE_BOOL, *(const bool*)from); break;
    case TIDE__FIELD_TYPE: put_word(e, *(const bool*)from ? TIDE__WORD_LARGE : TIDE__WORD_SMALL); break;
    case TIDE__FIELD_STATE: put_word(e, tide__word_of_state(*(const uint8_t*)from)); break;
    case TIDE__FIELD_ACTION: put_word(e, tide__word_of_action(*(const uint8_t*)from)); break;
    case TIDE__FIELD_TEXT: e->encoding->text(e, *(const uint32_t*)from); break;
    case TIDE__FIELD_STACK: put_stack(e, *(const uint32_t*)from); break;
    case TIDE__FIELD_POOL: put_pool(e, *(const uint32_t*)from); break;
    case TIDE__FIELD_BLOCKS: put_blocks(e, record); break;
  }
}

void tide__segments_write(tide__encoder* e) {
  size_t count = 0;
  const tide_trace_segment* const segments = tide_trace_segments(e->trace, &count);
  put_open(e, TIDE_VALUE_LIST);
  for (size_t i = 0; i < count && is_well(e); i++) {
    extra_check(e, &tide__segment_fields, &segments[i], segments[i].absent, segments[i].extra);
    put_record(e, &tide__segment_fields, &segments[i], segments[i].absent, segments[i].extra);
  }
  put_close(e, TIDE_VALUE_LIST);
}

static void put_entry(tide__encoder* e, const tide_trace_entry* entry) {
  const tide__entry_draft draft = { *entry, tide_intern_note(e->names, entry->note) };
  extra_check(e, &tide__entry_fields, &draft, entry->absent, draft.note.extra);
  put_record(e, &tide__entry_fields, &draft, entry->absent, draft.note.extra);
}

void tide__entries_write(tide__encoder* e, size_t device) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(e->trace, device, &count);
  for (size_t i = 0; i < count && is_well(e); i++) put_entry(e, &entries[i]);
}

static void put_traces(tide__encoder* e) {
  put_open(e, TIDE_VALUE_LIST);
  for (size_t device = 0; device < tide_trace_device_count(e->trace); device++) {
    put_open(e, TIDE_VALUE_LIST);
    tide__entries_write(e, device);
    put_close(e, TIDE_VALUE_LIST);
  }
  put_close(e, TIDE_VALUE_LIST);
}

void tide__snapshot_write(tide__encoder* e) {
  const tide_trace_about about = tide_trace_get_about(e->trace);
  if (about.is_segments_only) {
    tide__segments_write(e);
    return;
  }
  // A viewer needs both lists. But a snapshot that was read without one of them is written without it.
  const bool is_foreign = !about.has_segments && !about.has_entries;
  put_open(e, TIDE_VALUE_DICT);
  if (about.has_segments || is_foreign) {
    put_word(e, TIDE__WORD_SEGMENTS);
    tide__segments_write(e);
  }
  if (about.has_entries || is_foreign) {
    put_word(e, TIDE__WORD_DEVICE_TRACES);
    put_traces(e);
  }
  put_value_key(e, TIDE__WORD_ALLOCATOR_SETTINGS, about.settings);
  put_value_key(e, TIDE__WORD_EXTERNAL_ANNOTATIONS, about.annotations);
  extra_check(e, &tide__root_fields, NULL, 0, about.extra);
  put_extra(e, about.extra);
  put_close(e, TIDE_VALUE_DICT);
}
