// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The log of RMM's logging adaptor: Thread,Time,Action,Pointer,Size,Stream, one row per call.
//
// An "allocate" row is an ALLOC, an "allocate failure" an OOM, and a "free" row a FREE_REQUESTED and a
// FREE_COMPLETED. The log has the time of day and no date: a step back by more than half a day is midnight, a
// smaller one (threads that overtook each other) counts as no time. The note's extra keeps the thread.
// Versions of RMM spell pointers and streams differently: a row that we would write differently is kept in
// the extra as well, so that a log is written back with the same rows.
//
// All devices of a trace are written to one log, by time, because the format has no column for them.
// Cost: one pass each, no memory beside the trace.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "format/csv.h"
#include "format/others.h"

#define RMM_HEADER "Thread,Time,Action,Pointer,Size,Stream"
#define RMM_ROW_BYTES 256u  // of a row as we write it, the thread left out
#define RMM_DEVICES 256u
#define RMM_MINUTE_NS ((uint64_t)60 * 1000000000u)
#define RMM_DAY_NS (1440 * RMM_MINUTE_NS)
#define RMM_KEY_THREAD "thread"
#define RMM_KEY_ROW "rmm_row"

enum { RMM_THREAD, RMM_TIME, RMM_ACTION, RMM_POINTER, RMM_SIZE, RMM_STREAM, RMM_COLUMNS };

typedef struct rmm_row {
  tide__csv_field thread;  // borrowed from the line or the trace
  uint64_t time_ns;        // since midnight
  uint64_t address;
  uint64_t bytes;
  uint64_t stream;
  tide_action action;  // ALLOC, OOM or FREE_COMPLETED
} rmm_row;

static const struct {
  const char* text;
  tide_action action;
} rmm_actions[] = { { "allocate", TIDE_ACTION_ALLOC },
                    { "allocate failure", TIDE_ACTION_OOM },
                    { "free", TIDE_ACTION_FREE_COMPLETED } };
#define RMM_ACTIONS (sizeof rmm_actions / sizeof rmm_actions[0])

bool tide__rmm_is(const void* head, size_t bytes) {
  return bytes >= strlen(RMM_HEADER) && memcmp(head, RMM_HEADER, strlen(RMM_HEADER)) == 0;
}

// ---------------------------------------------------------------------------------------------------
// A row as we write it

// Prints everything after the thread, without a newline. Returns the length.
static size_t rmm_row_print(const rmm_row* row, char out[RMM_ROW_BYTES]) {
  const char* action = "";
  for (size_t i = 0; i < RMM_ACTIONS; i++) {
    if (rmm_actions[i].action == row->action) action = rmm_actions[i].text;
  }
  char pointer[24] = "(nil)";
  if (row->address != 0) (void)snprintf(pointer, sizeof pointer, "0x%" PRIx64, row->address);
  const uint64_t us = row->time_ns / 1000;
  const uint64_t seconds = us / 1000000;
  const int length = snprintf(out, RMM_ROW_BYTES, ",%02u:%02u:%02u.%06u,%s,%s,%" PRIu64 ",%s%" PRIx64,
                              (unsigned)(seconds / 3600), (unsigned)(seconds / 60 % 60),
                              (unsigned)(seconds % 60), (unsigned)(us % 1000000), action, pointer, row->bytes,
                              row->stream != 0 ? "0x" : "", row->stream);
  return (size_t)length;
}

// ---------------------------------------------------------------------------------------------------
// Taking a row apart

// Two digits, followed by `behind` unless that is '\0'.
static bool rmm_time_part(const char* text, uint64_t limit, char behind, uint64_t* time, uint64_t scale) {
  uint64_t number = 0;
  const bool is_good = tide__csv_decimal((tide__csv_field){ text, 2 }, &number) && number < limit &&
                       (behind == '\0' || text[2] == behind);
  *time = *time * scale + number;
  return is_good;
}

// HH:MM:SS and up to nine digits of a second.
static bool rmm_time_parse(tide__csv_field field, uint64_t* out_ns) {
  uint64_t seconds = 0;
  uint64_t fraction = 0;
  if (field.bytes < 8) return false;
  const bool is_good = rmm_time_part(field.text, 24, ':', &seconds, 1) &&
                       rmm_time_part(field.text + 3, 60, ':', &seconds, 60) &&
                       rmm_time_part(field.text + 6, 60, '\0', &seconds, 60);
  if (is_good && field.bytes > 8) {
    const tide__csv_field rest = { field.text + 9, field.bytes - 9 };
    if (field.text[8] != '.' || rest.bytes > 9 || !tide__csv_decimal(rest, &fraction)) return false;
    for (size_t i = rest.bytes; i < 9; i++) fraction *= 10;
  }
  *out_ns = seconds * 1000000000u + fraction;
  return is_good;
}

static bool rmm_has_mark(tide__csv_field field) {
  return field.bytes > 2 && field.text[0] == '0' && (field.text[1] == 'x' || field.text[1] == 'X');
}

// "0x7f00", "7f00" as one version wrote it, or "(nil)".
static bool rmm_pointer_parse(tide__csv_field field, uint64_t* out) {
  *out = 0;
  if (tide__csv_field_is(field, "(nil)")) return true;
  if (rmm_has_mark(field)) field = (tide__csv_field){ field.text + 2, field.bytes - 2 };
  return tide__csv_hexadecimal(field, out);
}

// Like a pointer; but digits without "0x" are decimal.
static bool rmm_stream_parse(tide__csv_field field, uint64_t* out) {
  if (!rmm_has_mark(field) && tide__csv_decimal(field, out)) return true;
  return rmm_pointer_parse(field, out);
}

static bool rmm_action_parse(tide__csv_field field, tide_action* out) {
  for (size_t i = 0; i < RMM_ACTIONS; i++) {
    *out = rmm_actions[i].action;
    if (tide__csv_field_is(field, rmm_actions[i].text)) return true;
  }
  return false;
}

// Returns NULL, or what is wrong and in which field.
static const char* rmm_row_parse(const tide__csv_field* fields, size_t count, rmm_row* out,
                                 size_t* out_field) {
  *out_field = TIDE__CSV_NO_FIELD;
  if (count != RMM_COLUMNS) return "not six fields";
  out->thread = fields[RMM_THREAD];
  *out_field = RMM_TIME;
  if (!rmm_time_parse(fields[RMM_TIME], &out->time_ns)) return "not a time HH:MM:SS.uuuuuu";
  *out_field = RMM_ACTION;
  if (!rmm_action_parse(fields[RMM_ACTION], &out->action)) return "not an action of RMM";
  *out_field = RMM_POINTER;
  if (!rmm_pointer_parse(fields[RMM_POINTER], &out->address)) return "not a pointer";
  *out_field = RMM_SIZE;
  if (!tide__csv_decimal(fields[RMM_SIZE], &out->bytes)) return "not a size";
  if (out->bytes >= (out->action == TIDE_ACTION_OOM ? TIDE_FORMAT_REQUEST : TIDE_FORMAT_BYTES))
    return "a size that is too large";
  if (out->address > UINT64_MAX - out->bytes) return "the range ends above 2^64";
  *out_field = RMM_STREAM;
  if (!rmm_stream_parse(fields[RMM_STREAM], &out->stream)) return "not a stream";
  return NULL;
}

// ---------------------------------------------------------------------------------------------------
// Reading

typedef struct rmm_reader {
  tide__csv csv;
  tide_trace* trace;
  tide_intern* names;  // borrowed from the trace
  uint64_t midnight_ns;
  uint64_t last_ns;
} rmm_reader;

// The time of a row in the trace, which never decreases. A row from just before midnight may follow one from
// just after it.
static uint64_t rmm_reader_time(rmm_reader* reader, uint64_t since_midnight_ns) {
  uint64_t time = reader->midnight_ns + since_midnight_ns;
  if (time + RMM_DAY_NS / 2 < reader->last_ns) {
    reader->midnight_ns += RMM_DAY_NS;
    time += RMM_DAY_NS;
  } else if (reader->midnight_ns > 0 && time > reader->last_ns + RMM_DAY_NS - RMM_MINUTE_NS) {
    time = reader->last_ns;
  }
  reader->last_ns = tide__max(time, reader->last_ns);
  return reader->last_ns;
}

static tide_status rmm_extra_add_text(tide_intern* names, const char* key, tide__csv_field field,
                                      uint64_t* out_item) {
  tide_value value = { .kind = TIDE_VALUE_TEXT };
  TIDE_TRY(tide_intern_add_text(names, field.text, field.bytes, &value.text));
  return tide__extra_item(names, key, &value, out_item);
}

// Kept as a number, unless that would change its spelling.
static tide_status rmm_extra_add_thread(tide_intern* names, tide__csv_field thread, uint64_t* out_item) {
  uint64_t number = 0;
  const bool is_number = tide__csv_decimal(thread, &number) && (thread.bytes == 1 || thread.text[0] != '0');
  if (!is_number) return rmm_extra_add_text(names, RMM_KEY_THREAD, thread, out_item);
  const tide_value value = { .kind = TIDE_VALUE_INT, .integer = (int64_t)number };
  return tide__extra_item(names, RMM_KEY_THREAD, &value, out_item);
}

// Would we write the row exactly as it is in the line?
static bool rmm_row_is_plain(const rmm_row* row, uint64_t time_ns, tide__csv_field line) {
  char text[RMM_ROW_BYTES];
  rmm_row plain = *row;
  plain.time_ns = time_ns % RMM_DAY_NS;
  if (row->action == TIDE_ACTION_OOM) plain.address = 0;
  const size_t bytes = rmm_row_print(&plain, text);
  return line.bytes == row->thread.bytes + bytes && memcmp(line.text + row->thread.bytes, text, bytes) == 0;
}

static tide_status rmm_reader_note(rmm_reader* reader, const rmm_row* row, uint64_t time_ns, uint32_t* out) {
  uint64_t items[2];
  tide_value extra = { .kind = TIDE_VALUE_DICT, .items = items, .count = 1 };
  TIDE_TRY(rmm_extra_add_thread(reader->names, row->thread, &items[0]));
  if (!rmm_row_is_plain(row, time_ns, reader->csv.line)) {
    TIDE_TRY(rmm_extra_add_text(reader->names, RMM_KEY_ROW, reader->csv.line, &items[1]));
    extra.count = 2;
  }
  tide_note note = { 0 };
  TIDE_TRY(tide_intern_add_value(reader->names, &extra, &note.extra));
  return tide_intern_add_note(reader->names, note, out);
}

static tide_status rmm_reader_add(rmm_reader* reader, const rmm_row* row) {
  tide_trace_entry entry = { .bytes = row->bytes, .stream = row->stream, .action = (uint8_t)row->action };
  entry.time_ns = rmm_reader_time(reader, row->time_ns);
  entry.absent = TIDE_ENTRY_COMPILE_CONTEXT | TIDE_ENTRY_METADATA | TIDE_ENTRY_STACK | TIDE_ENTRY_POOL;
  if (row->action == TIDE_ACTION_OOM) entry.absent |= TIDE_ENTRY_ADDRESS;
  else entry.address = row->address;
  TIDE_TRY(rmm_reader_note(reader, row, entry.time_ns, &entry.note));
  if (row->action == TIDE_ACTION_FREE_COMPLETED) {
    entry.action = TIDE_ACTION_FREE_REQUESTED;
    TIDE_TRY(tide_trace_add_entry(reader->trace, &entry));
    entry.action = TIDE_ACTION_FREE_COMPLETED;
  }
  return tide_trace_add_entry(reader->trace, &entry);
}

static tide_status rmm_reader_rows(rmm_reader* reader) {
  tide__csv* const csv = &reader->csv;
  for (;;) {
    rmm_row row = { 0 };
    size_t field = 0;
    TIDE_TRY(tide__csv_next(csv));
    if (csv->state != TIDE__CSV_LINE_WHOLE) return TIDE_OK;
    if (csv->line.bytes == 0) continue;
    const char* const fault = rmm_row_parse(csv->fields, csv->field_count, &row, &field);
    if (fault != NULL) return tide__csv_fail(csv, field, fault);
    TIDE_TRY(rmm_reader_add(reader, &row));
  }
}

// A crashed program may leave half a row at the end, which is ignored.
tide_status tide__rmm_read(tide__input* input, tide_trace* trace) {
  rmm_reader reader = { .csv = { .input = input }, .trace = trace, .names = tide_trace_names(trace) };
  TIDE_TRY(tide_trace_add_device(trace, 0));
  TIDE_TRY(tide__csv_next(&reader.csv));
  if (reader.csv.state == TIDE__CSV_END || !tide__csv_field_is(reader.csv.line, RMM_HEADER)) {
    return tide__csv_fail(&reader.csv, 0, "not the header of an RMM log");
  }
  if (reader.csv.state == TIDE__CSV_LINE_WHOLE) TIDE_TRY(rmm_reader_rows(&reader));
  const tide_trace_about about = { .is_cut = reader.csv.state == TIDE__CSV_LINE_CUT };
  tide_trace_set_about(trace, &about);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Writing

// Writes the original row of an entry, if it has one that is valid.
static bool rmm_write_kept(const tide_intern* names, uint32_t extra, tide__output* output) {
  const tide_value value = tide_intern_value(names, tide_intern_value_find(names, extra, RMM_KEY_ROW));
  if (value.kind != TIDE_VALUE_TEXT) return false;
  tide__csv_field line = { NULL, 0 };
  tide__csv_field fields[TIDE__CSV_FIELDS];
  rmm_row row;
  size_t field = 0;
  line.text = tide_intern_text(names, value.text, &line.bytes);
  if (line.text == NULL || memchr(line.text, '\n', line.bytes) != NULL) return false;
  if (rmm_row_parse(fields, tide__csv_split(line, fields), &row, &field) != NULL) return false;
  tide__output_bytes(output, line.text, line.bytes);
  return true;
}

static void rmm_write_thread(const tide_intern* names, uint32_t extra, tide__output* output) {
  const tide_value value = tide_intern_value(names, tide_intern_value_find(names, extra, RMM_KEY_THREAD));
  size_t bytes = 0;
  const char* const text = tide_intern_text(names, value.text, &bytes);
  const bool is_text = value.kind == TIDE_VALUE_TEXT && tide__csv_fits((tide__csv_field){ text, bytes });
  if (is_text) tide__output_bytes(output, text, bytes);
  else if (value.kind == TIDE_VALUE_INT) tide__output_int(output, value.integer);
  else if (value.kind == TIDE_VALUE_UINT) tide__output_uint(output, (uint64_t)value.integer);
  else tide__output_byte(output, '0');
}

static void rmm_write_row(const tide_intern* names, const tide_trace_entry* entry, tide__output* output) {
  const uint32_t extra = tide_intern_note(names, entry->note).extra;
  const uint64_t begin = tide__output_offset(output);
  if (extra == 0 || !rmm_write_kept(names, extra, output)) {
    char text[RMM_ROW_BYTES];
    const rmm_row row = { .time_ns = entry->time_ns % RMM_DAY_NS,
                          .address = entry->action == TIDE_ACTION_OOM ? 0 : entry->address,
                          .bytes = entry->bytes,
                          .stream = entry->stream,
                          .action = (tide_action)entry->action };
    rmm_write_thread(names, extra, output);
    tide__output_bytes(output, text, rmm_row_print(&row, text));
  }
  tide__output_byte(output, '\n');
  tide__csv_check_row(output, begin);
}

static bool rmm_entry_has_row(const tide_trace_entry* entry) {
  return entry->action == TIDE_ACTION_ALLOC || entry->action == TIDE_ACTION_OOM ||
         entry->action == TIDE_ACTION_FREE_COMPLETED;
}

// The entries of one device that are still to be written.
typedef struct rmm_queue {
  const tide_trace_entry* next;
  const tide_trace_entry* end;
} rmm_queue;

// The first queue with the smallest time; NULL if all are empty.
static rmm_queue* rmm_queue_first(rmm_queue* queues, size_t count) {
  rmm_queue* first = NULL;
  for (size_t i = 0; i < count; i++) {
    if (queues[i].next == queues[i].end) continue;
    if (first == NULL || queues[i].next->time_ns < first->next->time_ns) first = &queues[i];
  }
  return first;
}

tide_status tide__rmm_write(const tide_trace* trace, tide__output* output) {
  rmm_queue queues[RMM_DEVICES];
  const tide_intern* const names = tide_trace_names(trace);
  const size_t devices = tide__min(tide_trace_device_count(trace), RMM_DEVICES);
  for (size_t i = 0; i < devices; i++) {
    size_t count = 0;
    queues[i].next = tide_trace_entries(trace, i, &count);
    queues[i].end = count > 0 ? queues[i].next + count : queues[i].next;
  }
  tide__output_text(output, RMM_HEADER "\n");
  for (rmm_queue* queue = NULL; (queue = rmm_queue_first(queues, devices)) != NULL; queue->next++) {
    if (rmm_entry_has_row(queue->next)) rmm_write_row(names, queue->next, output);
  }
  return output->status;
}
