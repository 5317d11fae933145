// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Pinned memory in a snapshot of devices. The walk that writes a snapshot runs over a trace of pinned memory,
// and this encoding makes plain data of what it says, in the table of another trace. So the keys are those of
// segments and entries, whoever writes the file. Stacks and frames are made once.
#include <string.h>

#include "base/error.h"
#include "base/heap.h"
#include "format/snapshot_write.h"
#include "tidemark/format.h"
#include "trace/carry.h"
#include "trace/limit.h"

enum { MAX_DEPTH = 96 };  // plain data is nested at most 64 deep, and records 8

typedef struct host_writer {
  tide__encoder e;  // first
  const tide_heap* heap;
  tide_intern* to;
  uint64_t* stack;  // owned; values, and in a dict texts and values in turn
  size_t count;
  size_t room;
  size_t opens[MAX_DEPTH];  // where the items of open containers begin
  bool is_dict[MAX_DEPTH];
  size_t depth;
  bool is_device;                            // the next number is that of a device
  tide__carried shared[TIDE__SHARED_KINDS];  // values
} host_writer;

static void host_fail(host_writer* w, tide_status status) {
  if (status != TIDE_OK) tide__output_fail(w->e.output, status);
}

static void host_push(host_writer* w, uint64_t item) {
  const bool has_room = tide__heap_grow(w->heap, (void**)&w->stack, &w->room, w->count + 1, sizeof *w->stack);
  if (has_room) w->stack[w->count++] = item;
  else host_fail(w, TIDE_FAIL(TIDE_ERR_NO_MEMORY, "trace_add_host: no memory for %zu parts", w->count + 1));
}

static void host_push_value(host_writer* w, const tide_value* value) {
  uint32_t id = 0;
  if (w->e.output->status != TIDE_OK) return;
  host_fail(w, tide_intern_add_value(w->to, value, &id));
  host_push(w, id);
}

// Is a key of a dict next?
static bool host_wants_key(const host_writer* w) {
  const size_t level = w->depth - 1;
  return w->depth > 0 && w->is_dict[level] && (w->count - w->opens[level]) % 2 == 0;
}

static void host_push_text(host_writer* w, const char* text, size_t bytes) {
  tide_value value = { .kind = TIDE_VALUE_TEXT };
  if (w->e.output->status != TIDE_OK) return;
  host_fail(w, tide_intern_add_text(w->to, text, bytes, &value.text));
  if (host_wants_key(w)) host_push(w, value.text);
  else host_push_value(w, &value);
}

// ---------------------------------------------------------------------------------------------------
// The encoding

static void host_open(tide__encoder* e, tide_value_kind kind, size_t count) {
  host_writer* const w = (host_writer*)e;
  (void)count;
  w->opens[w->depth] = w->count;
  w->is_dict[w->depth++] = kind == TIDE_VALUE_DICT;
}

static void host_close(tide__encoder* e, tide_value_kind kind, size_t count) {
  host_writer* const w = (host_writer*)e;
  const size_t begin = w->opens[--w->depth];
  if (e->output->status != TIDE_OK) return;
  uint64_t* const items = w->stack + begin;
  tide_value value = { .kind = (uint32_t)kind, .items = items, .count = w->count - begin };
  if (kind == TIDE_VALUE_DICT) {
    value.count /= 2;
    for (size_t i = 0; i < value.count; i++) items[i] = items[2 * i] << 32 | items[2 * i + 1];
  }
  (void)count;
  uint32_t id = 0;
  host_fail(w, tide_intern_add_value(w->to, &value, &id));
  w->count = begin;
  host_push(w, id);
}

static void host_word(tide__encoder* e, tide__word word) {
  const char* const text = tide__word_text(word);
  ((host_writer*)e)->is_device = word == TIDE__WORD_DEVICE;
  host_push_text((host_writer*)e, text, strlen(text));
}

static void host_text(tide__encoder* e, uint32_t id) {
  size_t bytes = 0;
  const char* const text = tide_intern_text(e->names, id, &bytes);
  host_push_text((host_writer*)e, text, bytes);
}

static void host_scalar(tide__encoder* e, const tide_value* value) {
  host_push_value((host_writer*)e, value);
}

// Pinned memory belongs to no device.
static void host_uint(tide__encoder* e, uint64_t number) {
  host_writer* const w = (host_writer*)e;
  const int64_t integer = w->is_device ? -1 : (int64_t)number;
  const bool is_large = !w->is_device && number > INT64_MAX;
  w->is_device = false;
  host_push_value(w,
                  &(tide_value){ .kind = is_large ? TIDE_VALUE_UINT : TIDE_VALUE_INT, .integer = integer });
}

static bool host_shared(tide__encoder* e, int kind, uint32_t number) {
  host_writer* const w = (host_writer*)e;
  uint32_t spare = 0;
  const uint32_t known = *tide__carried_at(&w->shared[kind], number, &spare);
  if (known != 0) host_push(w, known);
  return known != 0;
}

static void host_shared_end(tide__encoder* e, int kind, uint32_t number) {
  host_writer* const w = (host_writer*)e;
  uint32_t spare = 0;
  if (e->output->status == TIDE_OK)
    *tide__carried_at(&w->shared[kind], number, &spare) = (uint32_t)w->stack[w->count - 1];
}

static const tide__encoding host_encoding = { host_open, host_close,  host_word,   host_text,
                                              host_uint, host_scalar, host_shared, host_shared_end };

// ---------------------------------------------------------------------------------------------------
// The keys of the snapshot

static void host_write(host_writer* w) {
  const size_t devices = tide_trace_device_count(w->e.trace);
  host_open(&w->e, TIDE_VALUE_DICT, 0);
  host_push_text(w, "host_segments", strlen("host_segments"));
  tide__segments_write(&w->e);
  host_push_text(w, "host_traces", strlen("host_traces"));
  host_open(&w->e, TIDE_VALUE_LIST, 0);
  for (size_t device = 0; device < devices; device++) tide__entries_write(&w->e, device);
  host_close(&w->e, TIDE_VALUE_LIST, 0);
}

// Closes the dict, with the keys that the trace had already behind those of pinned memory.
static void host_finish(host_writer* w, tide_trace_about* about) {
  const tide_value before = tide_intern_value(w->to, about->extra);
  for (size_t i = 0; about->extra != 0 && i < before.count; i++) {
    host_push(w, before.items[i] >> 32);
    host_push(w, (uint32_t)before.items[i]);
  }
  host_close(&w->e, TIDE_VALUE_DICT, 0);
  if (w->e.output->status == TIDE_OK) about->extra = (uint32_t)w->stack[0];
}

static tide_status host_start(host_writer* w) {
  const tide_intern_counts counts = tide_intern_counts_of(w->e.names);
  TIDE_TRY(tide__carried_init(&w->shared[TIDE__SHARED_STACK], w->heap, counts.stacks));
  TIDE_TRY(tide__carried_init(&w->shared[TIDE__SHARED_FRAME], w->heap, counts.frames));
  return tide__carried_init(&w->shared[TIDE__SHARED_VALUE], w->heap, counts.values);
}

tide_status tide_trace_add_host(tide_trace* trace, const tide_trace* host) {
  TIDE_REQUIRE(trace != NULL && host != NULL && trace != host, TIDE_ERR_ARGUMENT,
               "trace_add_host: needs two traces");
  tide__output output = { .status = TIDE_OK };
  host_writer w = { .e = { &host_encoding, host, tide_trace_names(host), &output, 0 } };
  w.heap = tide__trace_heap(trace);
  w.to = tide_trace_names(trace);
  tide_trace_about about = tide_trace_get_about(trace);
  output.status = host_start(&w);
  if (output.status == TIDE_OK) host_write(&w);
  if (output.status == TIDE_OK) host_finish(&w, &about);
  if (output.status == TIDE_OK) tide_trace_set_about(trace, &about);
  for (size_t i = 0; i < TIDE__SHARED_KINDS; i++) tide__carried_fini(&w.shared[i], w.heap);
  tide__heap_release(w.heap, w.stack, w.room, sizeof *w.stack);
  return output.status;
}
