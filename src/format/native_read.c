// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Reads a native file, chunk by chunk. There are two kinds of wrong files. If the file ends, or a checksum is
// wrong, it was truncated or damaged: reading stops, and the chunks before that place are the result. If the
// checksums are correct but the content is not valid, the file is refused with the offset.
//
// No memory is allocated by a length field alone: a payload is in the input's buffer, which grows with the
// bytes read, and every item of a list takes at least a byte of it.
//
// Cost: one pass; memory for one chunk beside the trace, and 40 bytes per chunk to compare with the index.
#include "format/native.h"

#include <inttypes.h>
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "format/columns.h"
#include "format/faults.h"

typedef struct native_reader {
  tide__input* input;  // borrowed
  tide_trace* trace;   // borrowed
  tide_intern* names;  // borrowed from the trace
  tide__known known;   // as the chunk began
  tide__native_chunk chunk;
  uint64_t chunk_offset;
  tide__cursor payload;  // borrowed from the input until the next chunk
  tide__bytes index;     // as it must be
  tide__values values;
  tide_trace_about about;
  bool has_about;
  bool has_segments;
  bool is_cut;
  bool is_ended;
  tide__crc crc;
} native_reader;

// ---------------------------------------------------------------------------------------------------
// Items that others refer to. Each function reads one, adds it, and returns its number.

static tide_status native_read_text(native_reader* reader, uint32_t* out) {
  const uint8_t* text = NULL;
  size_t bytes = 0;
  TIDE_TRY(tide__cursor_count(&reader->payload, &bytes));
  TIDE_TRY(tide__cursor_bytes(&reader->payload, bytes, &text));
  return tide_intern_add_text(reader->names, (const char*)text, bytes, out);
}

static tide_status native_read_text_number(native_reader* reader, uint32_t* out) {
  return tide__cursor_number(&reader->payload, "text", reader->known.counts.texts, out);
}

// The number of a value before the one that is being read.
static tide_status native_read_value_number(native_reader* reader, uint32_t* out) {
  const uint32_t count = tide_intern_counts_of(reader->names).values;
  return tide__cursor_number(&reader->payload, "value", count, out);
}

static tide_status native_read_extra(native_reader* reader, uint32_t* out) {
  const uint64_t offset = tide__cursor_offset(&reader->payload);
  TIDE_TRY(native_read_value_number(reader, out));
  TIDE_REQUIRE(tide__known_is_extra(&reader->known, *out), TIDE_ERR_FORMAT,
               "native: byte %" PRIu64 ": value %" PRIu32 " is not a dict", offset, *out);
  return TIDE_OK;
}

static tide_status native_read_items(native_reader* reader, tide_value* value) {
  TIDE_TRY(tide__cursor_count(&reader->payload, &value->count));
  TIDE_TRY(tide__values_reserve(&reader->values, value->count));
  for (size_t i = 0; i < value->count; i++) {
    uint32_t key = 0;
    uint32_t item = 0;
    if (value->kind == TIDE_VALUE_DICT) TIDE_TRY(native_read_text_number(reader, &key));
    TIDE_TRY(native_read_value_number(reader, &item));
    reader->values.items[i] = (uint64_t)key << 32 | item;
  }
  value->items = reader->values.items;
  return TIDE_OK;
}

static tide_status native_read_integer(native_reader* reader, tide_value* value) {
  const uint64_t offset = tide__cursor_offset(&reader->payload);
  uint64_t number = 0;
  TIDE_TRY(tide__cursor_uint(&reader->payload, &number));
  TIDE_REQUIRE(value->kind != TIDE_VALUE_BOOL || number <= 1, TIDE_ERR_FORMAT,
               "native: byte %" PRIu64 ": %" PRIu64 " is neither true nor false", offset, number);
  value->integer = value->kind == TIDE_VALUE_INT ? tide__unzigzag(number) : (int64_t)number;
  return TIDE_OK;
}

static tide_status native_read_value(native_reader* reader, uint32_t* out) {
  tide_value value = { 0 };
  TIDE_TRY(tide__cursor_number(&reader->payload, "kind", TIDE_VALUE_KIND_COUNT - 1, &value.kind));
  switch (value.kind) {
    case TIDE_VALUE_NONE: break;
    case TIDE_VALUE_BOOL:
    case TIDE_VALUE_INT:
    case TIDE_VALUE_UINT: TIDE_TRY(native_read_integer(reader, &value)); break;
    case TIDE_VALUE_FLOAT: TIDE_TRY(tide__cursor_double(&reader->payload, &value.number)); break;
    case TIDE_VALUE_TEXT: TIDE_TRY(native_read_text_number(reader, &value.text)); break;
    default: TIDE_TRY(native_read_items(reader, &value)); break;
  }
  return tide_intern_add_value(reader->names, &value, out);
}

static tide_status native_read_frame(native_reader* reader, uint32_t* out) {
  tide_frame frame = { 0 };
  uint64_t line = 0;
  TIDE_TRY(native_read_text_number(reader, &frame.name));
  TIDE_TRY(native_read_text_number(reader, &frame.file));
  TIDE_TRY(tide__cursor_uint(&reader->payload, &line));
  TIDE_TRY(native_read_extra(reader, &frame.extra));
  TIDE_TRY(tide__cursor_number(&reader->payload, "set of keys", UINT32_MAX, &frame.absent));
  frame.line = tide__unzigzag(line);
  return tide_intern_add_frame(reader->names, &frame, out);
}

static tide_status native_read_stack(native_reader* reader, uint32_t* out) {
  size_t count = 0;
  TIDE_TRY(tide__cursor_count(&reader->payload, &count));
  TIDE_TRY(tide__values_reserve(&reader->values, count));
  for (size_t i = 0; i < count; i++) TIDE_TRY(tide__cursor_uint(&reader->payload, &reader->values.items[i]));
  return tide_intern_add_stack(reader->names, reader->values.items, count, out);
}

static tide_status native_read_note(native_reader* reader, uint32_t* out) {
  tide_note note = { 0 };
  TIDE_TRY(native_read_text_number(reader, &note.metadata));
  TIDE_TRY(native_read_text_number(reader, &note.compile_context));
  TIDE_TRY(native_read_extra(reader, &note.extra));
  return tide_intern_add_note(reader->names, note, out);
}

static tide_status native_read_pool(native_reader* reader, uint32_t* out) {
  tide_pool_label label = { 0, 0 };
  TIDE_TRY(tide__cursor_uint(&reader->payload, &label.first));
  TIDE_TRY(tide__cursor_uint(&reader->payload, &label.second));
  return tide_trace_add_pool(reader->trace, label, out);
}

// ---------------------------------------------------------------------------------------------------
// Lists of items

typedef tide_status (*native_read_fn)(native_reader* reader, uint32_t* out);

// Numbers are assigned in the order of the file. An item that gets another number is a duplicate, or empty.
static tide_status native_read_list(native_reader* reader, native_read_fn read_one, uint32_t before) {
  for (uint64_t i = 0; i < reader->chunk.items; i++) {
    const uint64_t offset = tide__cursor_offset(&reader->payload);
    uint32_t number = 0;
    const tide_status status = read_one(reader, &number);
    const bool is_refused = status == TIDE_ERR_ARGUMENT || status == TIDE_ERR_LIMIT;
    if (status != TIDE_OK && !is_refused) return status;
    TIDE_REQUIRE(!is_refused && number == before + i + 1, TIDE_ERR_FORMAT,
                 "native: byte %" PRIu64 ": item %" PRIu64 " of the list is not valid, or occurs twice",
                 offset, i);
  }
  return TIDE_OK;
}

static tide_status native_read_texts(native_reader* reader) {
  return native_read_list(reader, native_read_text, reader->known.counts.texts);
}
static tide_status native_read_values(native_reader* reader) {
  return native_read_list(reader, native_read_value, reader->known.counts.values);
}
static tide_status native_read_frames(native_reader* reader) {
  return native_read_list(reader, native_read_frame, reader->known.counts.frames);
}
static tide_status native_read_stacks(native_reader* reader) {
  return native_read_list(reader, native_read_stack, reader->known.counts.stacks);
}
static tide_status native_read_notes(native_reader* reader) {
  return native_read_list(reader, native_read_note, reader->known.counts.notes);
}
static tide_status native_read_pools(native_reader* reader) {
  return native_read_list(reader, native_read_pool, (uint32_t)reader->known.limits[TIDE__COLUMN_POOL]);
}

// ---------------------------------------------------------------------------------------------------
// Chunks that refer to items

static void native_about_set(tide_trace_about* about, uint32_t flags) {
  about->has_segments = (flags & TIDE__NATIVE_HAS_SEGMENTS) != 0;
  about->has_entries = (flags & TIDE__NATIVE_HAS_ENTRIES) != 0;
  about->is_segments_only = (flags & TIDE__NATIVE_SEGMENTS_ONLY) != 0;
  about->is_cut = (flags & TIDE__NATIVE_IS_CUT) != 0;
  about->has_steps = (flags & TIDE__NATIVE_HAS_STEPS) != 0;
}

static tide_status native_read_about(native_reader* reader) {
  uint32_t flags = 0;
  uint32_t devices = 0;
  TIDE_REQUIRE(!reader->has_about && reader->chunk.items == 1, TIDE_ERR_FORMAT,
               "native: byte %" PRIu64 ": a second chunk \"about\", or one with several items",
               reader->chunk_offset);
  TIDE_TRY(tide__cursor_number(&reader->payload, "set of flags", TIDE__NATIVE_ABOUT_FLAGS, &flags));
  TIDE_TRY(native_read_value_number(reader, &reader->about.settings));
  TIDE_TRY(native_read_value_number(reader, &reader->about.annotations));
  TIDE_TRY(native_read_extra(reader, &reader->about.extra));
  TIDE_TRY(tide__cursor_number(&reader->payload, "count of devices", UINT8_MAX + 1, &devices));
  native_about_set(&reader->about, flags);
  reader->has_about = true;
  return devices != 0 ? tide_trace_add_device(reader->trace, devices - 1) : TIDE_OK;
}

// Takes rows of a table into new memory, which the caller releases. Each row needs at least one byte.
static tide_status native_take_rows(native_reader* reader, const tide__table* table, uint64_t count,
                                    void** out) {
  *out = NULL;
  if (count == 0) return TIDE_OK;
  TIDE_REQUIRE(count <= tide__cursor_left(&reader->payload), TIDE_ERR_FORMAT,
               "native: byte %" PRIu64 ": %" PRIu64 " rows do not fit into %zu bytes",
               tide__cursor_offset(&reader->payload), count, tide__cursor_left(&reader->payload));
  const tide_heap* const heap = reader->input->heap;
  void* const rows = tide__heap_alloc(heap, count, table->row_bytes);
  TIDE_REQUIRE(rows != NULL, TIDE_ERR_NO_MEMORY, "native: no memory for %" PRIu64 " rows", count);
  const tide_status status =
      tide__table_take(table, &reader->known, &reader->payload, count, &reader->values, rows);
  if (status != TIDE_OK) tide__heap_release(heap, rows, count, table->row_bytes);
  else *out = rows;
  return status;
}

static tide_status native_fault(const native_reader* reader, const char* row, uint64_t number,
                                const char* fault) {
  TIDE_REQUIRE(fault == NULL, TIDE_ERR_FORMAT,
               "native: byte %" PRIu64 ": %s %" PRIu64 " of this chunk is not valid: %s",
               reader->chunk_offset, row, number, fault);
  return TIDE_OK;
}

// Adds segments, each with its own blocks. The counts of all segments must add up to `block_count`.
static tide_status native_add_segments(native_reader* reader, const tide_trace_segment* segments,
                                       uint64_t count, const tide_trace_block* blocks, size_t block_count) {
  size_t next = 0;
  for (uint64_t i = 0; i < count; i++) {
    TIDE_REQUIRE(segments[i].block_count <= block_count - next, TIDE_ERR_FORMAT,
                 "native: byte %" PRIu64 ": segment %" PRIu64 " has more blocks than the chunk has left",
                 reader->chunk_offset, i);
    TIDE_TRY(native_fault(reader, "segment", i, tide__segment_fault(&segments[i])));
    TIDE_TRY(tide_trace_add_segment(reader->trace, &segments[i]));
    for (uint32_t k = 0; k < segments[i].block_count; k++) {
      TIDE_TRY(native_fault(reader, "block", next, tide__block_fault(&blocks[next])));
      TIDE_TRY(tide_trace_add_block(reader->trace, &blocks[next++]));
    }
  }
  TIDE_REQUIRE(next == block_count, TIDE_ERR_FORMAT,
               "native: byte %" PRIu64 ": %zu blocks belong to no segment", reader->chunk_offset,
               block_count - next);
  return TIDE_OK;
}

static tide_status native_read_segments(native_reader* reader) {
  const tide_heap* const heap = reader->input->heap;
  const uint64_t count = reader->chunk.items;
  size_t block_count = 0;
  void* segments = NULL;
  void* blocks = NULL;
  TIDE_REQUIRE(!reader->has_segments, TIDE_ERR_FORMAT, "native: byte %" PRIu64 ": a second chunk of segments",
               reader->chunk_offset);
  TIDE_TRY(tide__cursor_count(&reader->payload, &block_count));
  TIDE_TRY(native_take_rows(reader, &tide__table_segments, count, &segments));
  tide_status status = native_take_rows(reader, &tide__table_blocks, block_count, &blocks);
  if (status == TIDE_OK) status = native_add_segments(reader, segments, count, blocks, block_count);
  tide__heap_release(heap, segments, count, sizeof(tide_trace_segment));
  tide__heap_release(heap, blocks, block_count, sizeof(tide_trace_block));
  reader->has_segments = true;
  return status;
}

static tide_status native_add_entries(native_reader* reader, const tide_trace_entry* entries,
                                      uint64_t count) {
  uint64_t first_ns = UINT64_MAX;
  uint64_t last_ns = 0;
  for (uint64_t i = 0; i < count; i++) {
    first_ns = tide__min(first_ns, entries[i].time_ns);
    last_ns = tide__max(last_ns, entries[i].time_ns);
    TIDE_TRY(native_fault(reader, "entry", i, tide__entry_fault(reader->trace, &entries[i])));
    TIDE_TRY(tide_trace_add_entry(reader->trace, &entries[i]));
  }
  TIDE_REQUIRE(first_ns == reader->chunk.first_ns && last_ns == reader->chunk.last_ns, TIDE_ERR_FORMAT,
               "native: byte %" PRIu64 ": the times of the chunk do not match its entries",
               reader->chunk_offset);
  return TIDE_OK;
}

static tide_status native_read_entries(native_reader* reader) {
  const uint64_t count = reader->chunk.items;
  void* entries = NULL;
  TIDE_REQUIRE(count != 0 && count <= TIDE__NATIVE_ENTRIES_MAX, TIDE_ERR_FORMAT,
               "native: byte %" PRIu64 ": a chunk has %" PRIu64 " entries", reader->chunk_offset, count);
  TIDE_TRY(native_take_rows(reader, &tide__table_entries, count, &entries));
  const tide_status status = native_add_entries(reader, entries, count);
  tide__heap_release(reader->input->heap, entries, count, sizeof(tide_trace_entry));
  return status;
}

// ---------------------------------------------------------------------------------------------------
// The file

// Takes the next `bytes` bytes; NULL if the file is truncated here.
static tide_status native_next(native_reader* reader, uint64_t bytes, const uint8_t** out) {
  *out = NULL;
  TIDE_TRY(tide__input_fill(reader->input, bytes));
  if (tide__input_ready(reader->input) < bytes) return TIDE_OK;
  return tide__input_take(reader->input, bytes, out);
}

static tide_status native_read_head(native_reader* reader) {
  const uint8_t* head = NULL;
  TIDE_TRY(tide__input_take(reader->input, TIDE__NATIVE_HEAD_BYTES, &head));
  const uint64_t major = tide__load_fixed(head + 8, 2);
  TIDE_REQUIRE(tide__native_is(head, TIDE__NATIVE_HEAD_BYTES) &&
                   tide__load_fixed(head + 12, 4) == tide__crc_of(&reader->crc, head, 12),
               TIDE_ERR_FORMAT, "native: byte 0: the head of the file is damaged");
  TIDE_REQUIRE(major == TIDE__NATIVE_MAJOR, TIDE_ERR_FORMAT,
               "native: byte 8: version %" PRIu64 " of the format is not supported", major);
  return TIDE_OK;
}

static tide_status native_read_index(native_reader* reader) {
  const size_t bytes = tide__cursor_left(&reader->payload);
  const uint8_t* index = NULL;
  TIDE_TRY(tide__cursor_bytes(&reader->payload, bytes, &index));
  TIDE_REQUIRE(reader->chunk.items == reader->index.used / TIDE__NATIVE_INDEX_BYTES &&
                   bytes == reader->index.used &&
                   (bytes == 0 || memcmp(index, reader->index.data, bytes) == 0),
               TIDE_ERR_FORMAT, "native: byte %" PRIu64 ": the index does not match the chunks before it",
               reader->chunk_offset);
  TIDE_REQUIRE(reader->has_about, TIDE_ERR_FORMAT, "native: byte %" PRIu64 ": there is no chunk \"about\"",
               reader->chunk_offset);
  return TIDE_OK;
}

typedef struct native_kind {
  tide_status (*read)(native_reader* reader);
  bool needs_about;
} native_kind;

static const native_kind native_kinds[TIDE__NATIVE_KIND_COUNT] = {
  [TIDE__NATIVE_TEXTS] = { native_read_texts, false },
  [TIDE__NATIVE_VALUES] = { native_read_values, false },
  [TIDE__NATIVE_FRAMES] = { native_read_frames, false },
  [TIDE__NATIVE_STACKS] = { native_read_stacks, false },
  [TIDE__NATIVE_NOTES] = { native_read_notes, false },
  [TIDE__NATIVE_POOLS] = { native_read_pools, false },
  [TIDE__NATIVE_ABOUT] = { native_read_about, false },
  [TIDE__NATIVE_SEGMENTS] = { native_read_segments, true },
  [TIDE__NATIVE_ENTRIES] = { native_read_entries, true },
  [TIDE__NATIVE_INDEX] = { native_read_index, false },
};

static tide_status native_read_payload(native_reader* reader) {
  const tide__native_chunk* const chunk = &reader->chunk;
  const native_kind* const kind = chunk->kind < TIDE__NATIVE_KIND_COUNT ? &native_kinds[chunk->kind] : NULL;
  const bool is_known = kind != NULL && kind->read != NULL;
  if (!is_known && chunk->flags == TIDE__NATIVE_CAN_SKIP) return TIDE_OK;
  TIDE_REQUIRE(is_known && chunk->flags == 0, TIDE_ERR_FORMAT,
               "native: byte %" PRIu64 ": a chunk of kind %" PRIu32 " with flags %" PRIu32
               " is not supported",
               reader->chunk_offset, chunk->kind, chunk->flags);
  TIDE_REQUIRE(reader->has_about || !kind->needs_about, TIDE_ERR_FORMAT,
               "native: byte %" PRIu64 ": a chunk \"about\" must come first", reader->chunk_offset);
  reader->known = tide__known_of(reader->trace);
  TIDE_TRY(kind->read(reader));
  TIDE_REQUIRE(tide__cursor_left(&reader->payload) == 0, TIDE_ERR_FORMAT,
               "native: byte %" PRIu64 ": %zu bytes are left over in the chunk",
               tide__cursor_offset(&reader->payload), tide__cursor_left(&reader->payload));
  return TIDE_OK;
}

// The foot follows the index, and nothing follows the foot.
static tide_status native_read_foot(native_reader* reader) {
  uint8_t wanted[TIDE__NATIVE_FOOT_BYTES];
  const uint8_t* foot = NULL;
  int more = -1;
  tide__native_store_foot(&reader->crc, reader->chunk_offset, wanted);
  TIDE_TRY(native_next(reader, sizeof wanted, &foot));
  const bool is_right = foot != NULL && memcmp(foot, wanted, sizeof wanted) == 0;
  TIDE_TRY(tide__input_byte(reader->input, &more));
  reader->is_cut = !is_right || more != -1;
  reader->is_ended = true;
  return TIDE_OK;
}

static tide_status native_read_chunk(native_reader* reader) {
  const uint8_t* bytes = NULL;
  reader->is_cut = reader->is_ended = true;
  reader->chunk_offset = tide__input_offset(reader->input);
  TIDE_TRY(native_next(reader, TIDE__NATIVE_CHUNK_BYTES, &bytes));
  if (bytes == NULL || !tide__native_load_chunk(&reader->crc, bytes, &reader->chunk)) return TIDE_OK;
  TIDE_TRY(native_next(reader, reader->chunk.bytes, &bytes));
  if (bytes == NULL || tide__crc_of(&reader->crc, bytes, reader->chunk.bytes) != reader->chunk.crc)
    return TIDE_OK;
  reader->is_cut = reader->is_ended = false;
  reader->payload = (tide__cursor){ bytes, bytes + reader->chunk.bytes, tide__input_offset(reader->input) };
  TIDE_TRY(native_read_payload(reader));
  if (reader->chunk.kind == TIDE__NATIVE_INDEX) return native_read_foot(reader);
  return tide__native_put_index(&reader->index, reader->chunk_offset, &reader->chunk);
}

static tide_status native_read_file(native_reader* reader) {
  TIDE_TRY(native_read_head(reader));
  while (!reader->is_ended) TIDE_TRY(native_read_chunk(reader));
  reader->about.has_segments = reader->about.has_segments && reader->has_segments;
  reader->about.is_cut = reader->about.is_cut || reader->is_cut;
  tide_trace_set_about(reader->trace, &reader->about);
  return TIDE_OK;
}

tide_status tide__native_read(tide__input* input, tide_trace* trace) {
  native_reader reader = { .input = input, .trace = trace, .names = tide_trace_names(trace) };
  reader.index.heap = reader.values.heap = input->heap;
  tide__crc_init(&reader.crc);
  const tide_status status = native_read_file(&reader);
  tide__bytes_fini(&reader.index);
  tide__values_fini(&reader.values);
  return status;
}
