// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// For tests of formats and for fuzzing: are two traces equal, and files in memory.
//
//   char text[300];
//   if (!traces_are_equal(a, b, text, sizeof text)) T_FAIL("%s", text);   // the first difference
//
// Interned values are compared by what they are, not by their numbers. As a table has each value once, a
// number of one trace belongs to one number of the other for good; noting it makes every value be compared
// once, however often it is shared.
#ifndef TIDEMARK_TESTS_FORMAT_TRACES_H
#define TIDEMARK_TESTS_FORMAT_TRACES_H

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tidemark/format.h"

// ---------------------------------------------------------------------------------------------------
// Files in memory

// A sink appends to it, a source reads on from `at`. The call with the number `fail_at` fails, if any.
typedef struct memory_file {
  uint8_t* data;  // owned; released by memory_file_fini
  size_t bytes;
  size_t room;
  size_t at;
  size_t piece;  // the source gives no more at once; 0: all there is
  size_t calls;
  size_t fail_at;  // 0: none
} memory_file;

#define MEMORY_FILE_FAILURE TIDE_ERR_MACHINE  // what a call that fails returns

static inline void memory_file_fini(memory_file* file) {
  free(file->data);
  *file = (memory_file){ 0 };
}

static inline void memory_file_add(memory_file* file, const void* data, size_t bytes) {
  if (file->room - file->bytes < bytes) {
    file->room = 2 * file->room + bytes + 64;
    file->data = realloc(file->data, file->room);
    if (file->data == NULL) abort();
  }
  if (bytes > 0) memcpy(file->data + file->bytes, data, bytes);
  file->bytes += bytes;
}

static inline tide_status memory_file_write(void* user, const void* data, size_t bytes) {
  memory_file* const file = user;
  if (++file->calls == file->fail_at) return MEMORY_FILE_FAILURE;
  memory_file_add(file, data, bytes);
  return TIDE_OK;
}

static inline tide_status memory_file_read(void* user, void* out, size_t room, size_t* out_bytes) {
  memory_file* const file = user;
  size_t bytes = file->bytes - file->at;
  *out_bytes = 0;
  if (++file->calls == file->fail_at) return MEMORY_FILE_FAILURE;
  if (bytes > room) bytes = room;
  if (file->piece != 0 && bytes > file->piece) bytes = file->piece;
  if (bytes > 0) memcpy(out, file->data + file->at, bytes);
  file->at += bytes;
  *out_bytes = bytes;
  return TIDE_OK;
}

static inline tide_sink memory_file_sink(memory_file* file) { return (tide_sink){ memory_file_write, file }; }

// A source that begins at the first byte.
static inline tide_source memory_file_source(memory_file* file) {
  file->at = 0;
  file->calls = 0;
  return (tide_source){ memory_file_read, file };
}

// ---------------------------------------------------------------------------------------------------
// Two traces side by side

typedef enum traces_kind { TRACES_TEXT, TRACES_VALUE, TRACES_FRAME, TRACES_STACK, TRACES_NOTE } traces_kind;
#define TRACES_KINDS 5

typedef struct traces_pair {
  const tide_trace* trace[2];
  const tide_intern* names[2];
  uint32_t counts[2][TRACES_KINDS];
  uint32_t* twin[TRACES_KINDS];  // owned; of a number in the first trace that in the second, 0: not known yet
  char* text;                    // caller keeps; the first difference
  size_t room;
} traces_pair;

// Notes a difference; returns false.
__attribute__((format(printf, 2, 3))) static inline bool traces_differ(traces_pair* pair, const char* format,
                                                                       ...) {
  va_list list;
  va_start(list, format);
  (void)vsnprintf(pair->text, pair->room, format, list);
  va_end(list);
  return false;
}

// Puts where it is before a difference; returns false.
__attribute__((format(printf, 2, 3))) static inline bool traces_differ_in(traces_pair* pair,
                                                                          const char* format, ...) {
  char place[100];
  char rest[400];
  va_list list;
  va_start(list, format);
  (void)vsnprintf(place, sizeof place, format, list);
  va_end(list);
  (void)snprintf(rest, sizeof rest, "%s", pair->text);
  (void)snprintf(pair->text, pair->room, "%s: %s", place, rest);
  return false;
}

static inline bool traces_same_number(traces_pair* pair, const char* what, uint64_t a, uint64_t b) {
  return a == b || traces_differ(pair, "%s: %" PRIu64 " and %" PRIu64, what, a, b);
}

// Bit by bit: not every NaN is the same, and -0 is not 0.
static inline bool traces_same_double(traces_pair* pair, double a, double b) {
  uint64_t bits[2] = { 0 };
  memcpy(&bits[0], &a, sizeof a);
  memcpy(&bits[1], &b, sizeof b);
  return bits[0] == bits[1] || traces_differ(pair, "number: %.17g and %.17g", a, b);
}

typedef enum traces_verdict { TRACES_SAME, TRACES_OTHER, TRACES_UNKNOWN } traces_verdict;

// What is known of two numbers before looking at what they stand for.
static inline traces_verdict traces_look(traces_pair* pair, traces_kind kind, uint32_t a, uint32_t b) {
  static const char* const names[] = { "text", "value", "frame", "stack", "note" };
  if (a == 0 && b == 0) return TRACES_SAME;
  const bool is_known = a <= pair->counts[0][kind] && b <= pair->counts[1][kind];
  const uint32_t twin = is_known && a != 0 && b != 0 ? pair->twin[kind][a] : UINT32_MAX;
  if (twin == b) return TRACES_SAME;
  if (twin == 0) return TRACES_UNKNOWN;
  (void)traces_differ(pair, "%s %" PRIu32 " and %" PRIu32, names[kind], a, b);
  return TRACES_OTHER;
}

static inline bool traces_same_text(traces_pair* pair, uint32_t a, uint32_t b) {
  const traces_verdict verdict = traces_look(pair, TRACES_TEXT, a, b);
  size_t bytes[2] = { 0 };
  if (verdict != TRACES_UNKNOWN) return verdict == TRACES_SAME;
  const char* const x = tide_intern_text(pair->names[0], a, &bytes[0]);
  const char* const y = tide_intern_text(pair->names[1], b, &bytes[1]);
  if (bytes[0] != bytes[1] || memcmp(x, y, bytes[0]) != 0) {
    return traces_differ(pair, "text \"%.80s\" and \"%.80s\"", x, y);
  }
  pair->twin[TRACES_TEXT][a] = b;
  return true;
}

static inline bool traces_same_value(traces_pair* pair, uint32_t a, uint32_t b);

static inline bool traces_same_items(traces_pair* pair, const tide_value* x, const tide_value* y) {
  if (!traces_same_number(pair, "items of a value", x->count, y->count)) return false;
  for (size_t i = 0; i < x->count; i++) {
    const bool is_same =
        traces_same_text(pair, (uint32_t)(x->items[i] >> 32), (uint32_t)(y->items[i] >> 32)) &&
        traces_same_value(pair, (uint32_t)x->items[i], (uint32_t)y->items[i]);
    if (!is_same) return traces_differ_in(pair, "item %zu", i);
  }
  return true;
}

// Values nest no deeper than 64.
// NOLINTNEXTLINE(misc-no-recursion)
static inline bool traces_same_value(traces_pair* pair, uint32_t a, uint32_t b) {
  const traces_verdict verdict = traces_look(pair, TRACES_VALUE, a, b);
  if (verdict != TRACES_UNKNOWN) return verdict == TRACES_SAME;
  const tide_value x = tide_intern_value(pair->names[0], a);
  const tide_value y = tide_intern_value(pair->names[1], b);
  const bool is_same = traces_same_number(pair, "kind of a value", x.kind, y.kind) &&
                       traces_same_text(pair, x.text, y.text) &&
                       traces_same_number(pair, "integer", (uint64_t)x.integer, (uint64_t)y.integer) &&
                       traces_same_double(pair, x.number, y.number) && traces_same_items(pair, &x, &y);
  if (is_same) pair->twin[TRACES_VALUE][a] = b;
  return is_same;
}

static inline bool traces_same_frame(traces_pair* pair, uint32_t a, uint32_t b) {
  const traces_verdict verdict = traces_look(pair, TRACES_FRAME, a, b);
  if (verdict != TRACES_UNKNOWN) return verdict == TRACES_SAME;
  const tide_frame x = tide_intern_frame(pair->names[0], a);
  const tide_frame y = tide_intern_frame(pair->names[1], b);
  const bool is_same = traces_same_text(pair, x.name, y.name) && traces_same_text(pair, x.file, y.file) &&
                       traces_same_value(pair, x.extra, y.extra) &&
                       traces_same_number(pair, "absent", x.absent, y.absent) &&
                       traces_same_number(pair, "line", (uint64_t)x.line, (uint64_t)y.line);
  if (is_same) pair->twin[TRACES_FRAME][a] = b;
  return is_same;
}

// Frames that are no tide_frame are compared as the numbers they are.
static inline bool traces_same_stack(traces_pair* pair, uint32_t a, uint32_t b) {
  const traces_verdict verdict = traces_look(pair, TRACES_STACK, a, b);
  size_t count[2] = { 0 };
  if (verdict != TRACES_UNKNOWN) return verdict == TRACES_SAME;
  const uint64_t* const x = tide_intern_stack(pair->names[0], a, &count[0]);
  const uint64_t* const y = tide_intern_stack(pair->names[1], b, &count[1]);
  if (!traces_same_number(pair, "frames of a stack", count[0], count[1])) return false;
  for (size_t i = 0; i < count[0]; i++) {
    const bool are_frames = x[i] <= pair->counts[0][TRACES_FRAME] && y[i] <= pair->counts[1][TRACES_FRAME];
    const bool is_same = are_frames ? traces_same_frame(pair, (uint32_t)x[i], (uint32_t)y[i])
                                    : traces_same_number(pair, "frame", x[i], y[i]);
    if (!is_same) return traces_differ_in(pair, "frame %zu", i);
  }
  pair->twin[TRACES_STACK][a] = b;
  return true;
}

static inline bool traces_same_note(traces_pair* pair, uint32_t a, uint32_t b) {
  const traces_verdict verdict = traces_look(pair, TRACES_NOTE, a, b);
  if (verdict != TRACES_UNKNOWN) return verdict == TRACES_SAME;
  const tide_note x = tide_intern_note(pair->names[0], a);
  const tide_note y = tide_intern_note(pair->names[1], b);
  const bool is_same = traces_same_text(pair, x.metadata, y.metadata) &&
                       traces_same_text(pair, x.compile_context, y.compile_context) &&
                       traces_same_value(pair, x.extra, y.extra);
  if (is_same) pair->twin[TRACES_NOTE][a] = b;
  return is_same;
}

static inline bool traces_same_pool(traces_pair* pair, uint32_t a, uint32_t b) {
  const tide_pool_label x = tide_trace_pool(pair->trace[0], a);
  const tide_pool_label y = tide_trace_pool(pair->trace[1], b);
  return traces_same_number(pair, "first of the pool", x.first, y.first) &&
         traces_same_number(pair, "second of the pool", x.second, y.second);
}

// ---------------------------------------------------------------------------------------------------
// What is in them

#define TRACES_SAME_FIELD(field) traces_same_number(pair, #field, (uint64_t)x->field, (uint64_t)y->field)

static inline bool traces_same_entry(traces_pair* pair, const tide_trace_entry* x,
                                     const tide_trace_entry* y) {
  return TRACES_SAME_FIELD(action) && TRACES_SAME_FIELD(device) && TRACES_SAME_FIELD(time_ns) &&
         TRACES_SAME_FIELD(address) && TRACES_SAME_FIELD(bytes) && TRACES_SAME_FIELD(stream) &&
         TRACES_SAME_FIELD(absent) && traces_same_stack(pair, x->stack, y->stack) &&
         traces_same_note(pair, x->note, y->note) && traces_same_pool(pair, x->pool, y->pool);
}

static inline bool traces_same_segment(traces_pair* pair, const tide_trace_segment* x,
                                       const tide_trace_segment* y) {
  return TRACES_SAME_FIELD(address) && TRACES_SAME_FIELD(bytes) && TRACES_SAME_FIELD(stream) &&
         TRACES_SAME_FIELD(allocated_bytes) && TRACES_SAME_FIELD(active_bytes) &&
         TRACES_SAME_FIELD(requested_bytes) && TRACES_SAME_FIELD(first_block) &&
         TRACES_SAME_FIELD(block_count) && TRACES_SAME_FIELD(absent) && TRACES_SAME_FIELD(device) &&
         TRACES_SAME_FIELD(is_large) && TRACES_SAME_FIELD(is_expandable) &&
         traces_same_stack(pair, x->stack, y->stack) && traces_same_pool(pair, x->pool, y->pool) &&
         traces_same_value(pair, x->extra, y->extra);
}

static inline bool traces_same_block(traces_pair* pair, const tide_trace_block* x,
                                     const tide_trace_block* y) {
  return TRACES_SAME_FIELD(address) && TRACES_SAME_FIELD(bytes) && TRACES_SAME_FIELD(requested_bytes) &&
         TRACES_SAME_FIELD(absent) && TRACES_SAME_FIELD(state) &&
         traces_same_stack(pair, x->stack, y->stack) && traces_same_value(pair, x->extra, y->extra);
}

static inline bool traces_same_about(traces_pair* pair) {
  const tide_trace_about a = tide_trace_get_about(pair->trace[0]);
  const tide_trace_about b = tide_trace_get_about(pair->trace[1]);
  const tide_trace_about* const x = &a;
  const tide_trace_about* const y = &b;
  const bool is_same = traces_same_value(pair, x->settings, y->settings) &&
                       traces_same_value(pair, x->annotations, y->annotations) &&
                       traces_same_value(pair, x->extra, y->extra) && TRACES_SAME_FIELD(has_segments) &&
                       TRACES_SAME_FIELD(has_entries) && TRACES_SAME_FIELD(is_segments_only) &&
                       TRACES_SAME_FIELD(is_cut) && TRACES_SAME_FIELD(has_steps);
  return is_same || traces_differ_in(pair, "about");
}

// The entries of one device, as many as the first trace has; `is_prefix`: the second may have more.
static inline bool traces_same_entries(traces_pair* pair, size_t device, bool is_prefix) {
  size_t count[2] = { 0 };
  const tide_trace_entry* const x = tide_trace_entries(pair->trace[0], device, &count[0]);
  const tide_trace_entry* const y = tide_trace_entries(pair->trace[1], device, &count[1]);
  if (count[0] > count[1] || (!is_prefix && count[0] != count[1])) {
    return traces_differ(pair, "device %zu: %zu entries and %zu", device, count[0], count[1]);
  }
  for (size_t i = 0; i < count[0]; i++) {
    if (!traces_same_entry(pair, &x[i], &y[i])) {
      return traces_differ_in(pair, "device %zu, entry %zu", device, i);
    }
  }
  return true;
}

static inline bool traces_same_devices(traces_pair* pair, bool is_prefix) {
  const size_t x = tide_trace_device_count(pair->trace[0]);
  const size_t y = tide_trace_device_count(pair->trace[1]);
  if (x > y || (!is_prefix && x != y)) return traces_differ(pair, "%zu devices and %zu", x, y);
  for (size_t device = 0; device < x; device++) {
    if (!traces_same_entries(pair, device, is_prefix)) return false;
  }
  return true;
}

static inline bool traces_same_segments(traces_pair* pair) {
  size_t count[2] = { 0 };
  const tide_trace_segment* const x = tide_trace_segments(pair->trace[0], &count[0]);
  const tide_trace_segment* const y = tide_trace_segments(pair->trace[1], &count[1]);
  if (!traces_same_number(pair, "segments", count[0], count[1])) return false;
  for (size_t i = 0; i < count[0]; i++) {
    if (!traces_same_segment(pair, &x[i], &y[i])) return traces_differ_in(pair, "segment %zu", i);
  }
  const tide_trace_block* const v = tide_trace_blocks(pair->trace[0], &count[0]);
  const tide_trace_block* const w = tide_trace_blocks(pair->trace[1], &count[1]);
  if (!traces_same_number(pair, "blocks", count[0], count[1])) return false;
  for (size_t i = 0; i < count[0]; i++) {
    if (!traces_same_block(pair, &v[i], &w[i])) return traces_differ_in(pair, "block %zu", i);
  }
  return true;
}

// ---------------------------------------------------------------------------------------------------
// The questions

static inline void traces_pair_count(traces_pair* pair, int side, const tide_trace* trace) {
  pair->trace[side] = trace;
  pair->names[side] = tide_trace_names(trace);
  const tide_intern_counts counts = tide_intern_counts_of(pair->names[side]);
  pair->counts[side][TRACES_TEXT] = counts.texts;
  pair->counts[side][TRACES_VALUE] = counts.values;
  pair->counts[side][TRACES_FRAME] = counts.frames;
  pair->counts[side][TRACES_STACK] = counts.stacks;
  pair->counts[side][TRACES_NOTE] = counts.notes;
}

static inline traces_pair traces_pair_init(const tide_trace* a, const tide_trace* b, char* text,
                                           size_t room) {
  traces_pair pair = { .text = text, .room = room };
  traces_pair_count(&pair, 0, a);
  traces_pair_count(&pair, 1, b);
  for (int kind = 0; kind < TRACES_KINDS; kind++) {
    pair.twin[kind] = calloc((size_t)pair.counts[0][kind] + 1, sizeof *pair.twin[kind]);
    if (pair.twin[kind] == NULL) abort();
  }
  if (room > 0) text[0] = '\0';
  return pair;
}

static inline void traces_pair_fini(traces_pair* pair) {
  for (int kind = 0; kind < TRACES_KINDS; kind++) free(pair->twin[kind]);
}

// Are they equal? If not, `text` gets the first difference.
static inline bool traces_are_equal(const tide_trace* a, const tide_trace* b, char* text, size_t room) {
  traces_pair pair = traces_pair_init(a, b, text, room);
  const bool is_same = traces_same_about(&pair) && traces_same_segments(&pair) &&
                       traces_same_devices(&pair, false);
  traces_pair_fini(&pair);
  return is_same;
}

// Is `part` the beginning of `whole`: of each device the first entries, and all segments, if it has any?
static inline bool trace_is_prefix(const tide_trace* part, const tide_trace* whole, char* text, size_t room) {
  traces_pair pair = traces_pair_init(part, whole, text, room);
  const bool is_same = (!tide_trace_get_about(part).has_segments || traces_same_segments(&pair)) &&
                       traces_same_devices(&pair, true);
  traces_pair_fini(&pair);
  return is_same;
}

// Do the same numbers stand for the same in both, as far as the first has them?
static inline bool traces_have_same_numbers(const tide_trace* a, const tide_trace* b, char* text,
                                            size_t room) {
  static bool (*const same[])(traces_pair*, uint32_t, uint32_t) = { traces_same_text, traces_same_value,
                                                                    traces_same_frame, traces_same_stack,
                                                                    traces_same_note };
  traces_pair pair = traces_pair_init(a, b, text, room);
  bool is_same = true;
  for (int kind = 0; kind < TRACES_KINDS && is_same; kind++) {
    for (uint32_t number = 1; number <= pair.counts[0][kind] && is_same; number++) {
      is_same = same[kind](&pair, number, number);
    }
  }
  const size_t pools = tide_trace_pool_count(a);
  for (uint32_t number = 1; number < pools && is_same; number++)
    is_same = traces_same_pool(&pair, number, number);
  traces_pair_fini(&pair);
  return is_same;
}

#endif
