// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Writes a trace as a native file. Texts, values, frames, stacks, notes and pools come first, in the order of
// their numbers, so that a reader assigns the same numbers. Then come the properties of the trace, the
// segments, the entries and the index. The items of a value have smaller numbers, because they were added
// first.
//
// The payload of a chunk is built in memory, because its head precedes it. Long lists are split into chunks,
// so that a truncated file loses little and writing takes little memory.
//
// Cost: one pass over the trace, two over each column; memory for one chunk.
#include "format/native.h"

#include <inttypes.h>

#include "base/arith.h"
#include "base/crc.h"
#include "base/error.h"
#include "format/columns.h"

#define WRITE_ENTRIES ((size_t)4096)             // in a chunk, about 22 KiB: what a truncated file may lose
#define WRITE_PAYLOAD_BYTES ((size_t)256 << 10)  // after which a list of names goes on in another chunk

typedef struct native_writer {
  const tide_trace* trace;  // borrowed
  tide__output* output;     // borrowed
  tide__known known;
  tide__bytes payload;
  tide__bytes index;
  tide__values values;
  tide__crc crc;
} native_writer;

// ---------------------------------------------------------------------------------------------------
// Chunks

// Writes the payload as a chunk, and empties it.
static tide_status native_write_chunk(native_writer* writer, tide__native_chunk chunk) {
  uint8_t head[TIDE__NATIVE_CHUNK_BYTES];
  chunk.bytes = writer->payload.used;
  chunk.crc = tide__crc_of(&writer->crc, writer->payload.data, chunk.bytes);
  TIDE_TRY(tide__native_put_index(&writer->index, tide__output_offset(writer->output), &chunk));
  tide__native_store_chunk(&writer->crc, &chunk, head);
  tide__output_bytes(writer->output, head, sizeof head);
  tide__output_bytes(writer->output, writer->payload.data, chunk.bytes);
  writer->payload.used = 0;
  return writer->output->status;
}

// Appends one item of a list to the payload.
typedef tide_status (*native_put_fn)(native_writer* writer, uint32_t number);

// Writes the items with the numbers from 1 to `count`, in as many chunks as necessary.
static tide_status native_write_list(native_writer* writer, tide__native_kind kind, native_put_fn put,
                                     uint32_t count) {
  tide__native_chunk chunk = { .kind = kind };
  for (uint32_t number = 1; number <= count; number++) {
    TIDE_TRY(put(writer, number));
    chunk.items++;
    if (writer->payload.used < WRITE_PAYLOAD_BYTES && number < count) continue;
    TIDE_TRY(native_write_chunk(writer, chunk));
    chunk.items = 0;
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Items that others refer to

static tide_status native_put_text(native_writer* writer, uint32_t number) {
  size_t bytes = 0;
  const char* const text = tide_intern_text(writer->known.names, number, &bytes);
  uint64_t room = 0;
  if (!tide__add(bytes, TIDE__UINT_BYTES_MAX, &room)) room = SIZE_MAX;
  TIDE_TRY(tide__bytes_reserve(&writer->payload, room));
  tide__bytes_put_uint(&writer->payload, bytes);
  tide__bytes_put(&writer->payload, text, bytes);
  return TIDE_OK;
}

// Room for `count` numbers and two more.
static tide_status native_reserve_numbers(native_writer* writer, size_t count) {
  uint64_t room = 0;
  if (!tide__mul(count + 2, TIDE__UINT_BYTES_MAX, &room)) room = SIZE_MAX;
  return tide__bytes_reserve(&writer->payload, room);
}

static tide_status native_put_dict_items(native_writer* writer, const tide_value* value, uint32_t number) {
  for (size_t i = 0; i < value->count; i++) {
    const uint64_t key = value->items[i] >> 32;
    TIDE_REQUIRE(key <= writer->known.counts.texts, TIDE_ERR_ARGUMENT,
                 "trace_write: key %zu of value %" PRIu32 " is text %" PRIu64 ", which does not exist", i,
                 number, key);
    tide__bytes_put_uint(&writer->payload, key);
    tide__bytes_put_uint(&writer->payload, (uint32_t)value->items[i]);
  }
  return TIDE_OK;
}

static tide_status native_put_items(native_writer* writer, const tide_value* value, uint32_t number) {
  TIDE_TRY(native_reserve_numbers(writer, value->kind == TIDE_VALUE_DICT ? 2 * value->count : value->count));
  tide__bytes_put_uint(&writer->payload, value->count);
  if (value->kind == TIDE_VALUE_DICT) return native_put_dict_items(writer, value, number);
  for (size_t i = 0; i < value->count; i++) tide__bytes_put_uint(&writer->payload, value->items[i]);
  return TIDE_OK;
}

static tide_status native_put_value(native_writer* writer, uint32_t number) {
  const tide_value value = tide_intern_value(writer->known.names, number);
  TIDE_TRY(native_reserve_numbers(writer, 0));
  tide__bytes_put_byte(&writer->payload, (uint8_t)value.kind);
  switch (value.kind) {
    case TIDE_VALUE_NONE: return TIDE_OK;
    case TIDE_VALUE_BOOL: tide__bytes_put_byte(&writer->payload, value.integer != 0); return TIDE_OK;
    case TIDE_VALUE_INT: tide__bytes_put_uint(&writer->payload, tide__zigzag(value.integer)); return TIDE_OK;
    case TIDE_VALUE_UINT: tide__bytes_put_uint(&writer->payload, (uint64_t)value.integer); return TIDE_OK;
    case TIDE_VALUE_FLOAT: tide__bytes_put_double(&writer->payload, value.number); return TIDE_OK;
    case TIDE_VALUE_TEXT: break;
    default: return native_put_items(writer, &value, number);
  }
  TIDE_REQUIRE(value.text <= writer->known.counts.texts, TIDE_ERR_ARGUMENT,
               "trace_write: value %" PRIu32 " is text %" PRIu32 ", which does not exist", number,
               value.text);
  tide__bytes_put_uint(&writer->payload, value.text);
  return TIDE_OK;
}

static tide_status native_put_frame(native_writer* writer, uint32_t number) {
  const tide_frame frame = tide_intern_frame(writer->known.names, number);
  const uint32_t texts = writer->known.counts.texts;
  TIDE_REQUIRE(frame.name <= texts && frame.file <= texts &&
                   tide__known_is_extra(&writer->known, frame.extra),
               TIDE_ERR_ARGUMENT,
               "trace_write: frame %" PRIu32 " refers to a text or dict that does not exist", number);
  TIDE_TRY(native_reserve_numbers(writer, 3));
  tide__bytes_put_uint(&writer->payload, frame.name);
  tide__bytes_put_uint(&writer->payload, frame.file);
  tide__bytes_put_uint(&writer->payload, tide__zigzag(frame.line));
  tide__bytes_put_uint(&writer->payload, frame.extra);
  tide__bytes_put_uint(&writer->payload, frame.absent);
  return TIDE_OK;
}

static tide_status native_put_stack(native_writer* writer, uint32_t number) {
  size_t count = 0;
  const uint64_t* const frames = tide_intern_stack(writer->known.names, number, &count);
  TIDE_TRY(native_reserve_numbers(writer, count));
  tide__bytes_put_uint(&writer->payload, count);
  for (size_t i = 0; i < count; i++) tide__bytes_put_uint(&writer->payload, frames[i]);
  return TIDE_OK;
}

static tide_status native_put_note(native_writer* writer, uint32_t number) {
  const tide_note note = tide_intern_note(writer->known.names, number);
  const uint32_t texts = writer->known.counts.texts;
  TIDE_REQUIRE(note.metadata <= texts && note.compile_context <= texts &&
                   tide__known_is_extra(&writer->known, note.extra),
               TIDE_ERR_ARGUMENT,
               "trace_write: note %" PRIu32 " refers to a text or dict that does not exist", number);
  TIDE_TRY(native_reserve_numbers(writer, 1));
  tide__bytes_put_uint(&writer->payload, note.metadata);
  tide__bytes_put_uint(&writer->payload, note.compile_context);
  tide__bytes_put_uint(&writer->payload, note.extra);
  return TIDE_OK;
}

static tide_status native_put_pool(native_writer* writer, uint32_t number) {
  const tide_pool_label label = tide_trace_pool(writer->trace, number);
  TIDE_TRY(native_reserve_numbers(writer, 0));
  tide__bytes_put_uint(&writer->payload, label.first);
  tide__bytes_put_uint(&writer->payload, label.second);
  return TIDE_OK;
}

static tide_status native_write_names(native_writer* writer) {
  const tide_intern_counts counts = writer->known.counts;
  const uint32_t pools = (uint32_t)writer->known.limits[TIDE__COLUMN_POOL];
  TIDE_TRY(native_write_list(writer, TIDE__NATIVE_TEXTS, native_put_text, counts.texts));
  TIDE_TRY(native_write_list(writer, TIDE__NATIVE_VALUES, native_put_value, counts.values));
  TIDE_TRY(native_write_list(writer, TIDE__NATIVE_FRAMES, native_put_frame, counts.frames));
  TIDE_TRY(native_write_list(writer, TIDE__NATIVE_STACKS, native_put_stack, counts.stacks));
  TIDE_TRY(native_write_list(writer, TIDE__NATIVE_NOTES, native_put_note, counts.notes));
  return native_write_list(writer, TIDE__NATIVE_POOLS, native_put_pool, pools);
}

// ---------------------------------------------------------------------------------------------------
// Chunks that refer to items

static uint32_t native_about_flags(const tide_trace_about* about) {
  uint32_t flags = 0;
  if (about->has_segments) flags |= TIDE__NATIVE_HAS_SEGMENTS;
  if (about->has_entries) flags |= TIDE__NATIVE_HAS_ENTRIES;
  if (about->is_segments_only) flags |= TIDE__NATIVE_SEGMENTS_ONLY;
  if (about->is_cut) flags |= TIDE__NATIVE_IS_CUT;
  if (about->has_steps) flags |= TIDE__NATIVE_HAS_STEPS;
  return flags;
}

static tide_status native_write_about(native_writer* writer) {
  const tide_trace_about about = tide_trace_get_about(writer->trace);
  const uint32_t values = writer->known.counts.values;
  TIDE_REQUIRE(about.settings <= values && about.annotations <= values &&
                   tide__known_is_extra(&writer->known, about.extra),
               TIDE_ERR_ARGUMENT, "trace_write: tide_trace_about refers to a value that does not exist");
  TIDE_TRY(native_reserve_numbers(writer, 3));
  tide__bytes_put_uint(&writer->payload, native_about_flags(&about));
  tide__bytes_put_uint(&writer->payload, about.settings);
  tide__bytes_put_uint(&writer->payload, about.annotations);
  tide__bytes_put_uint(&writer->payload, about.extra);
  tide__bytes_put_uint(&writer->payload, tide_trace_device_count(writer->trace));
  return native_write_chunk(writer, (tide__native_chunk){ .kind = TIDE__NATIVE_ABOUT, .items = 1 });
}

static tide_status native_write_segments(native_writer* writer) {
  size_t segment_count = 0;
  size_t block_count = 0;
  const tide_trace_segment* const segments = tide_trace_segments(writer->trace, &segment_count);
  const tide_trace_block* const blocks = tide_trace_blocks(writer->trace, &block_count);
  if (segment_count == 0 && !tide_trace_get_about(writer->trace).has_segments) return TIDE_OK;
  TIDE_TRY(native_reserve_numbers(writer, 0));
  tide__bytes_put_uint(&writer->payload, block_count);
  TIDE_TRY(tide__table_put(&tide__table_segments, &writer->known, segments, segment_count, &writer->values,
                           &writer->payload));
  TIDE_TRY(tide__table_put(&tide__table_blocks, &writer->known, blocks, block_count, &writer->values,
                           &writer->payload));
  return native_write_chunk(writer,
                            (tide__native_chunk){ .kind = TIDE__NATIVE_SEGMENTS, .items = segment_count });
}

static tide_status native_write_entries(native_writer* writer, const tide_trace_entry* entries,
                                        size_t count) {
  tide__native_chunk chunk = { .kind = TIDE__NATIVE_ENTRIES, .items = count, .first_ns = UINT64_MAX };
  TIDE_TRY(tide__table_put(&tide__table_entries, &writer->known, entries, count, &writer->values,
                           &writer->payload));
  for (size_t i = 0; i < count; i++) {
    chunk.first_ns = tide__min(chunk.first_ns, entries[i].time_ns);
    chunk.last_ns = tide__max(chunk.last_ns, entries[i].time_ns);
  }
  return native_write_chunk(writer, chunk);
}

static tide_status native_write_devices(native_writer* writer) {
  const size_t devices = tide_trace_device_count(writer->trace);
  for (size_t device = 0; device < devices; device++) {
    size_t count = 0;
    const tide_trace_entry* const entries = tide_trace_entries(writer->trace, device, &count);
    for (size_t i = 0; i < count; i += WRITE_ENTRIES) {
      TIDE_TRY(native_write_entries(writer, entries + i, tide__min(WRITE_ENTRIES, count - i)));
    }
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The file

static void native_write_head(native_writer* writer) {
  uint8_t head[TIDE__NATIVE_HEAD_BYTES];
  tide__native_store_head(&writer->crc, head);
  tide__output_bytes(writer->output, head, sizeof head);
}

// The index does not list itself.
static tide_status native_write_index(native_writer* writer) {
  uint8_t foot[TIDE__NATIVE_FOOT_BYTES];
  const uint64_t offset = tide__output_offset(writer->output);
  const size_t bytes = writer->index.used;
  TIDE_TRY(tide__bytes_reserve(&writer->payload, bytes));
  tide__bytes_put(&writer->payload, writer->index.data, bytes);
  TIDE_TRY(native_write_chunk(
      writer, (tide__native_chunk){ .kind = TIDE__NATIVE_INDEX, .items = bytes / TIDE__NATIVE_INDEX_BYTES }));
  tide__native_store_foot(&writer->crc, offset, foot);
  tide__output_bytes(writer->output, foot, sizeof foot);
  return writer->output->status;
}

static tide_status native_write_file(native_writer* writer) {
  native_write_head(writer);
  TIDE_TRY(native_write_names(writer));
  TIDE_TRY(native_write_about(writer));
  TIDE_TRY(native_write_segments(writer));
  TIDE_TRY(native_write_devices(writer));
  return native_write_index(writer);
}

tide_status tide__native_write(const tide_trace* trace, tide__output* output) {
  native_writer writer = { .trace = trace, .output = output, .known = tide__known_of(trace) };
  writer.payload.heap = writer.index.heap = writer.values.heap = output->heap;
  tide__crc_init(&writer.crc);
  const tide_status status = native_write_file(&writer);
  tide__bytes_fini(&writer.payload);
  tide__bytes_fini(&writer.index);
  tide__values_fini(&writer.values);
  return status;
}
