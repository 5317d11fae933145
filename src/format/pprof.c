// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A profile for pprof: the message `Profile` of profile.proto, uncompressed (pprof reads both). A sample is a
// stack on a stream of a device: what it requested over the recording, and what it held at the peak of its
// device. Locations are the shown frames, with the same numbers; a function is a name in a file. Requests
// without a stack have a location of their own.
//
// pprof merges functions with the same name, and takes the angle brackets of `<module>` for those of a
// template and removes them. So the name of a function contains its file, and differs from the system name:
// pprof leaves such names alone. Names of C++ are the same as the system name, and pprof shortens them.
//
// The length of a nested message precedes it, so each sample, location or function is built in memory first.
// Strings are numbered at their first use; their table comes last.
// Cost: O(n log n) for n entries and frames; 16 bytes per frame and 4 per text beside the holders.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "format/frames.h"
#include "format/holders.h"
#include "format/json_text.h"
#include "format/lifetimes.h"
#include "format/numbers.h"
#include "format/others.h"

// Fields of profile.proto.
enum { PROFILE_SAMPLE_TYPE = 1, PROFILE_SAMPLE = 2, PROFILE_LOCATION = 4, PROFILE_FUNCTION = 5 };
enum { PROFILE_STRING = 6, PROFILE_TIME_NS = 9, PROFILE_DURATION_NS = 10, PROFILE_DEFAULT_TYPE = 14 };
enum { VALUE_TYPE_TYPE = 1, VALUE_TYPE_UNIT = 2 };
enum { SAMPLE_LOCATIONS = 1, SAMPLE_VALUES = 2, SAMPLE_LABEL = 3, LABEL_KEY = 1, LABEL_TEXT = 2 };
enum { LOCATION_ID = 1, LOCATION_LINE = 4, LINE_FUNCTION = 1, LINE_NUMBER = 2 };
enum { FUNCTION_ID = 1, FUNCTION_NAME = 2, FUNCTION_SYSTEM_NAME = 3, FUNCTION_FILE = 4 };
enum { WIRE_VARINT = 0, WIRE_BYTES = 2 };

// Strings that every profile has; the first of the table is always the empty one.
enum { STRING_EMPTY, STRING_ALLOC_OBJECTS, STRING_ALLOC_SPACE, STRING_INUSE_OBJECTS, STRING_INUSE_SPACE };
enum { STRING_COUNT = 5, STRING_BYTES, STRING_DEVICE, STRING_STREAM, STRING_NO_STACK, STRING_FIXED };
static const char* const fixed_strings[STRING_FIXED] = {
  "",      "alloc_objects", "alloc_space", "inuse_objects", "inuse_space",
  "count", "bytes",         "device",      "stream",        "<no-context>",
};

// A message that is being built. After a failure nothing is added, and the writer reports it at the end.
typedef struct proto {
  tide__bytes bytes;
  bool is_failed;
} proto;

typedef enum string_kind {
  STRING_OF_TEXT,
  STRING_OF_FUNCTION,
  STRING_OF_DEVICE,
  STRING_OF_STREAM
} string_kind;

typedef struct pprof_string {
  uint64_t value;  // the text, a frame of the function, the device or stream
  string_kind kind;
} pprof_string;

typedef struct pprof_frame {
  uint32_t number;
  uint32_t name;
  uint32_t file;
} pprof_frame;

typedef struct pprof {
  const tide_heap* heap;
  const tide_intern* names;
  tide__output* output;  // caller keeps
  tide_frames frames;
  proto message;             // being built
  proto part;                // to be nested in it
  uint32_t* string_of_text;  // owned; by text, 0: not used yet
  size_t text_count;
  pprof_string* strings;  // owned; after the fixed ones
  size_t string_count;
  size_t string_room;
} pprof;

// ---------------------------------------------------------------------------------------------------
// Messages

static void proto_bytes(proto* p, const void* bytes, size_t count) {
  if (!p->is_failed) p->is_failed = tide__bytes_add(&p->bytes, bytes, count) != TIDE_OK;
}

static void proto_varint(proto* p, uint64_t number) {
  uint8_t bytes[TIDE__UINT_BYTES_MAX];
  proto_bytes(p, bytes, (size_t)(tide__store_uint(bytes, number) - bytes));
}

static void proto_number(proto* p, uint32_t field, uint64_t number) {
  if (number == 0) return;
  proto_varint(p, field << 3 | WIRE_VARINT);
  proto_varint(p, number);
}

// Puts a message into another, and empties it.
static void proto_nest(proto* p, uint32_t field, proto* part) {
  p->is_failed = p->is_failed || part->is_failed;
  proto_varint(p, field << 3 | WIRE_BYTES);
  proto_varint(p, part->bytes.used);
  proto_bytes(p, part->bytes.data, part->bytes.used);
  part->bytes.used = 0;
}

// Writes the message as it is, and empties it.
static void pprof_put_bytes(pprof* p) {
  tide__output_bytes(p->output, p->message.bytes.data, p->message.bytes.used);
  p->message.bytes.used = 0;
}

// Writes the message as a field of the profile.
static void pprof_put(pprof* p, uint32_t field) {
  uint8_t head[2 * TIDE__UINT_BYTES_MAX];
  const uint8_t* const end =
      tide__store_uint(tide__store_uint(head, field << 3 | WIRE_BYTES), p->message.bytes.used);
  tide__output_bytes(p->output, head, (size_t)(end - head));
  pprof_put_bytes(p);
}

static void pprof_put_number(pprof* p, uint32_t field, uint64_t number) {
  proto_number(&p->message, field, number);
  pprof_put_bytes(p);
}

// ---------------------------------------------------------------------------------------------------
// Strings

// Adds a string and returns its number.
static tide_status string_add(pprof* p, string_kind kind, uint64_t value, uint64_t* out) {
  TIDE_REQUIRE(
      tide__heap_grow(p->heap, (void**)&p->strings, &p->string_room, p->string_count + 1, sizeof *p->strings),
      TIDE_ERR_NO_MEMORY, "trace_write: no memory for %zu strings", p->string_count + 1);
  p->strings[p->string_count] = (pprof_string){ value, kind };
  *out = STRING_FIXED + p->string_count++;
  return TIDE_OK;
}

static tide_status string_of_text(pprof* p, uint32_t text, uint64_t* out) {
  *out = STRING_EMPTY;
  if (text == 0 || text >= p->text_count) return TIDE_OK;
  *out = p->string_of_text[text];
  if (*out != 0) return TIDE_OK;
  TIDE_TRY(string_add(p, STRING_OF_TEXT, text, out));
  p->string_of_text[text] = (uint32_t)*out;
  return TIDE_OK;
}

// Appends a text to the message, with invalid UTF-8 repaired.
static void string_append(pprof* p, uint32_t text) {
  size_t bytes = 0;
  const char* const from = tide_intern_text(p->names, text, &bytes);
  for (size_t at = 0; at < bytes;) {
    const size_t length = tide__utf8_length(from + at, bytes - at);
    proto_bytes(&p->message, length == 0 ? TIDE__SHOWN_REPAIR : from + at,
                length == 0 ? strlen(TIDE__SHOWN_REPAIR) : length);
    at += length == 0 ? 1 : length;
  }
}

static void string_put(pprof* p, const pprof_string* string) {
  char text[TIDE__FRAME_TEXT];
  int length = 0;
  if (string->kind == STRING_OF_TEXT) string_append(p, (uint32_t)string->value);
  if (string->kind == STRING_OF_FUNCTION)
    length = (int)tide__frames_function(&p->frames, string->value, text);
  if (string->kind == STRING_OF_DEVICE) length = snprintf(text, sizeof text, "%" PRIu64, string->value);
  if (string->kind == STRING_OF_STREAM) length = snprintf(text, sizeof text, "0x%" PRIx64, string->value);
  proto_bytes(&p->message, text, (size_t)length);
  pprof_put(p, PROFILE_STRING);
}

static void pprof_put_strings(pprof* p) {
  for (size_t i = 0; i < STRING_FIXED; i++) {
    proto_bytes(&p->message, fixed_strings[i], strlen(fixed_strings[i]));
    pprof_put(p, PROFILE_STRING);
  }
  for (size_t i = 0; i < p->string_count; i++) string_put(p, &p->strings[i]);
}

// ---------------------------------------------------------------------------------------------------
// Locations and functions

static int pprof_frame_compare(const void* a, const void* b) {
  const pprof_frame* const x = a;
  const pprof_frame* const y = b;
  if (x->name != y->name) return x->name < y->name ? -1 : 1;
  if (x->file != y->file) return x->file < y->file ? -1 : 1;
  return (x->number > y->number) - (x->number < y->number);
}

static void function_put(pprof* p, uint64_t function, uint64_t name, uint64_t system_name, uint64_t file) {
  proto_number(&p->message, FUNCTION_ID, function);
  proto_number(&p->message, FUNCTION_NAME, name);
  proto_number(&p->message, FUNCTION_SYSTEM_NAME, system_name);
  proto_number(&p->message, FUNCTION_FILE, file);
  pprof_put(p, PROFILE_FUNCTION);
}

static void location_put(pprof* p, uint64_t location, uint64_t function, int64_t line) {
  proto_number(&p->part, LINE_FUNCTION, function);
  proto_number(&p->part, LINE_NUMBER, (uint64_t)line);
  proto_number(&p->message, LOCATION_ID, location);
  proto_nest(&p->message, LOCATION_LINE, &p->part);
  pprof_put(p, PROFILE_LOCATION);
}

// Lists the shown frames, sorted by function.
static size_t frames_list(const pprof* p, pprof_frame* list) {
  size_t count = 0;
  for (size_t i = 1; i < p->frames.count; i++) {
    const tide_frame frame = tide_intern_frame(p->names, (uint32_t)i);
    if (!tide__frames_is_shown(&p->frames, i)) continue;
    list[count++] = (pprof_frame){ (uint32_t)i, frame.name, frame.file };
  }
  if (count > 0) qsort(list, count, sizeof *list, pprof_frame_compare);
  return count;
}

// Adds the function of a frame.
static tide_status function_add(pprof* p, const pprof_frame* frame, uint64_t function) {
  uint64_t name = 0;
  uint64_t system_name = 0;
  uint64_t file = 0;
  TIDE_TRY(string_of_text(p, frame->name, &system_name));
  TIDE_TRY(string_of_text(p, frame->file, &file));
  if (tide__frames_is_qualified(&p->frames, frame->number)) name = system_name;
  else TIDE_TRY(string_add(p, STRING_OF_FUNCTION, frame->number, &name));
  function_put(p, function, name, system_name, file);
  return TIDE_OK;
}

static tide_status frames_put(pprof* p, const pprof_frame* list, size_t count) {
  uint64_t function = 0;
  for (size_t i = 0; i < count; i++) {
    if (i == 0 || list[i].name != list[i - 1].name || list[i].file != list[i - 1].file)
      TIDE_TRY(function_add(p, &list[i], ++function));
    location_put(p, list[i].number, function, tide_intern_frame(p->names, list[i].number).line);
  }
  function_put(p, function + 1, STRING_NO_STACK, STRING_EMPTY, STRING_EMPTY);
  location_put(p, p->frames.count, function + 1, 0);
  return TIDE_OK;
}

static tide_status pprof_put_frames(pprof* p) {
  pprof_frame* const list = tide__heap_alloc(p->heap, p->frames.count, sizeof *list);
  TIDE_REQUIRE(list != NULL, TIDE_ERR_NO_MEMORY, "trace_write: no memory for %zu frames", p->frames.count);
  const tide_status status = frames_put(p, list, frames_list(p, list));
  tide__heap_release(p->heap, list, p->frames.count, sizeof *list);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Samples

static void sample_add_locations(pprof* p, uint32_t stack) {
  size_t count = 0;
  const uint64_t* const frames = tide_intern_stack(p->names, stack, &count);
  for (size_t i = 0; i < count; i++) {
    if (!tide__frames_has(&p->frames, frames[i]) || !tide__frames_is_shown(&p->frames, frames[i])) continue;
    proto_varint(&p->part, frames[i]);
  }
  if (p->part.bytes.used == 0) proto_varint(&p->part, p->frames.count);
  proto_nest(&p->message, SAMPLE_LOCATIONS, &p->part);
}

static void sample_add_label(pprof* p, uint64_t key, uint64_t text) {
  proto_number(&p->part, LABEL_KEY, key);
  proto_number(&p->part, LABEL_TEXT, text);
  proto_nest(&p->message, SAMPLE_LABEL, &p->part);
}

static void sample_put(pprof* p, const tide__holder* holder, uint64_t device, uint64_t stream) {
  sample_add_locations(p, holder->stack);
  proto_varint(&p->part, holder->made_count);
  proto_varint(&p->part, holder->made_bytes);
  proto_varint(&p->part, holder->held_count);
  proto_varint(&p->part, holder->held_bytes);
  proto_nest(&p->message, SAMPLE_VALUES, &p->part);
  sample_add_label(p, STRING_DEVICE, device);
  sample_add_label(p, STRING_STREAM, stream);
  pprof_put(p, PROFILE_SAMPLE);
}

static tide_status samples_put(pprof* p, size_t device, const tide__holders* holders) {
  uint64_t device_text = 0;
  uint64_t stream_text = 0;
  TIDE_TRY(string_add(p, STRING_OF_DEVICE, device, &device_text));
  for (size_t i = 0; i < holders->count; i++) {
    const tide__holder* const holder = &holders->items[i];
    if (i == 0 || holder->stream != holders->items[i - 1].stream) {
      TIDE_TRY(string_add(p, STRING_OF_STREAM, holder->stream, &stream_text));
    }
    sample_put(p, holder, device_text, stream_text);
  }
  return TIDE_OK;
}

static tide_status pprof_put_samples(pprof* p, const tide_trace* trace) {
  const size_t devices = tide__lifetimes_device_count(trace);
  for (size_t i = 0; i < devices; i++) {
    tide__holders holders;
    TIDE_TRY(tide__holders_init(&holders, trace, i, p->heap));
    const tide_status status = samples_put(p, i, &holders);
    tide__holders_fini(&holders);
    TIDE_TRY(status);
  }
  return TIDE_OK;
}

static void pprof_put_types(pprof* p) {
  for (uint64_t type = STRING_ALLOC_OBJECTS; type <= STRING_INUSE_SPACE; type++) {
    const bool is_bytes = type == STRING_ALLOC_SPACE || type == STRING_INUSE_SPACE;
    proto_number(&p->message, VALUE_TYPE_TYPE, type);
    proto_number(&p->message, VALUE_TYPE_UNIT, is_bytes ? STRING_BYTES : STRING_COUNT);
    pprof_put(p, PROFILE_SAMPLE_TYPE);
  }
  pprof_put_number(p, PROFILE_DEFAULT_TYPE, STRING_INUSE_SPACE);
}

// ---------------------------------------------------------------------------------------------------
// The profile

// When the recording began and how long it took, unless its times are steps.
static void pprof_put_times(pprof* p, const tide_trace* trace) {
  uint64_t first = 0;
  uint64_t last = 0;
  tide__lifetimes_times(trace, &first, &last);
  if (first > last || last > INT64_MAX || tide_trace_get_about(trace).has_steps) return;
  pprof_put_number(p, PROFILE_TIME_NS, first);
  pprof_put_number(p, PROFILE_DURATION_NS, last - first);
}

static tide_status pprof_put_all(pprof* p, const tide_trace* trace) {
  p->text_count = (size_t)tide_intern_counts_of(p->names).texts + 1;
  p->string_of_text = tide__heap_alloc(p->heap, p->text_count, sizeof *p->string_of_text);
  TIDE_REQUIRE(p->string_of_text != NULL, TIDE_ERR_NO_MEMORY, "trace_write: no memory for %zu texts",
               p->text_count);
  TIDE_TRY(tide__frames_init(&p->frames, p->names, p->heap));
  pprof_put_types(p);
  TIDE_TRY(pprof_put_samples(p, trace));
  TIDE_TRY(pprof_put_frames(p));
  pprof_put_times(p, trace);
  pprof_put_strings(p);
  TIDE_REQUIRE(!p->message.is_failed, TIDE_ERR_NO_MEMORY, "trace_write: no memory for a part of the profile");
  return TIDE_OK;
}

tide_status tide__pprof_write(const tide_trace* trace, tide__output* output) {
  const tide_heap* const heap = output->heap;
  pprof p = { .heap = heap, .names = tide_trace_names(trace), .output = output };
  p.frames.heap = p.message.bytes.heap = p.part.bytes.heap = heap;
  const tide_status status = pprof_put_all(&p, trace);
  tide__frames_fini(&p.frames);
  tide__bytes_fini(&p.message.bytes);
  tide__bytes_fini(&p.part.bytes);
  tide__heap_release(heap, p.string_of_text, p.text_count, sizeof *p.string_of_text);
  tide__heap_release(heap, p.strings, p.string_room, sizeof *p.strings);
  TIDE_TRY(status);
  return output->status;
}
