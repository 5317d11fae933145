// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A timeline in the JSON format of Chrome's tracing, which Perfetto opens. A device is a process with two
// counters: the bytes of requests ("allocated") and of segments ("reserved"). Requests and segments are
// asynchronous slices, because these may overlap in any way. Running out of memory is an instant.
//
// Times are µs since "baseTimeNanoseconds", as in the traces of PyTorch's profiler. That base is the
// beginning of a period of CHROME_PERIOD_S since 1970, so files of the same weeks have the same base, and
// their events can be put into one list. A double holds ns since such a base.
//
// Slices and instants refer to their stacks in "stackFrames". The name of a request is the innermost line
// outside of PyTorch, because Perfetto shows no stacks; the argument "from" is the program's own line, if the
// name is a line of a package.
//
// A counter has one event for each µs in which it changed. Names are truncated to TIDE__CHROME_NAME bytes. An
// event has about 150 bytes, and an entry one or two events.
// Cost: one pass over the entries of each device; the memory of tide__lifetimes for one device at a time,
//       and that of tide__chrome_stacks.
#include <inttypes.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "format/chrome_stacks.h"
#include "format/json_text.h"
#include "format/lifetimes.h"
#include "format/others.h"

#define CHROME_PERIOD_S 7889238u  // a quarter of a year, as the profiler counts it
#define CHROME_PROCESS 5000000u   // of device 0; more than Linux gives to a process

typedef struct chrome {
  const tide_trace* trace;
  const tide_intern* names;  // borrowed from the trace
  tide__output* output;      // caller keeps
  tide__chrome_stacks stacks;
  uint64_t base_ns;   // the time that is written as 0
  uint64_t first_ns;  // the first time of all
  uint64_t last_ns;
  bool has_events;
} chrome;

// A value that changes with the entries of one device.
typedef struct chrome_counter {
  const char* name;
  uint64_t bytes;
  bool is_changed;  // since it was last written
} chrome_counter;

// One device on its way through its entries.
typedef struct chrome_device {
  chrome* c;
  uint64_t process;
  tide__lifetimes requests;
  tide__lifetimes segments;
  uint64_t first_id;  // slices are numbered apart from those of other devices
  chrome_counter allocated;
  chrome_counter reserved;
} chrome_device;

// ---------------------------------------------------------------------------------------------------
// Events

static void chrome_put_time(chrome* c, uint64_t time_ns) {
  const uint64_t ns = time_ns > c->base_ns ? time_ns - c->base_ns : 0;
  tide__output_format(c->output, ",\"ts\":%" PRIu64, ns / 1000);
  if (ns % 1000 != 0) tide__output_format(c->output, ".%03u", (unsigned)(ns % 1000));
}

// Begins an event and escapes its name. The caller ends it.
static void chrome_begin(chrome* c, char phase, const char* name, size_t name_bytes, uint64_t process) {
  tide__output_text(c->output, c->has_events ? ",\n" : "\n");
  c->has_events = true;
  tide__output_format(c->output, "{\"ph\":\"%c\",\"pid\":%" PRIu64 ",\"tid\":0,\"name\":", phase, process);
  tide__output_json_text(c->output, name, name_bytes, TIDE__JSON_SHOW);
}

static void chrome_put_counter(chrome_device* d, chrome_counter* counter, uint64_t time_ns) {
  if (!counter->is_changed) return;
  counter->is_changed = false;
  chrome_begin(d->c, 'C', counter->name, strlen(counter->name), d->process);
  chrome_put_time(d->c, time_ns);
  tide__output_format(d->c->output, ",\"args\":{\"bytes\":%" PRIu64 "}}", counter->bytes);
}

// The stack of an entry or a request. After a failure nothing is written any more.
static tide__chrome_stack chrome_find_stack(chrome* c, uint32_t number) {
  tide__chrome_stack stack;
  const tide_status status = tide__chrome_stacks_find(&c->stacks, number, &stack);
  if (status == TIDE_OK) return stack;
  tide__output_fail(c->output, status);
  return (tide__chrome_stack){ .node = 0 };
}

static void chrome_put_stack(chrome* c, const tide__chrome_stack* stack) {
  if (stack->node != 0) tide__output_format(c->output, ",\"sf\":%" PRIu32, stack->node);
}

static void chrome_put_instant(chrome_device* d, const char* name, const tide_trace_entry* entry) {
  const tide__chrome_stack stack = chrome_find_stack(d->c, entry->stack);
  chrome_begin(d->c, 'i', name, strlen(name), d->process);
  chrome_put_time(d->c, entry->time_ns);
  chrome_put_stack(d->c, &stack);
  tide__output_format(d->c->output, ",\"s\":\"p\",\"args\":{\"bytes\":%" PRIu64 "}}", entry->bytes);
}

static void chrome_put_process(chrome_device* d, size_t device) {
  chrome_begin(d->c, 'M', "process_name", strlen("process_name"), d->process);
  tide__output_format(d->c->output, ",\"args\":{\"name\":\"memory of device %zu\"}}", device);
}

// ---------------------------------------------------------------------------------------------------
// Slices

static size_t chrome_note_text(const chrome* c, uint32_t note, char* out) {
  size_t bytes = 0;
  const char* const text = tide_intern_text(c->names, tide_intern_note(c->names, note).metadata, &bytes);
  return bytes > 0 ? tide__shown_copy(out, TIDE__CHROME_NAME, text, bytes) : 0;
}

// Begins the event of a request. Its name is that of its stack, or the metadata of the thread, or "alloc".
static void chrome_begin_request(chrome_device* d, char phase, const tide__chrome_stack* stack,
                                 uint32_t note) {
  char text[TIDE__CHROME_NAME];
  if (stack->name_bytes > 0) {
    chrome_begin(d->c, phase, tide__chrome_stacks_text(&d->c->stacks, stack->texts), stack->name_bytes,
                 d->process);
    return;
  }
  const size_t bytes = chrome_note_text(d->c, note, text);
  chrome_begin(d->c, phase, bytes > 0 ? text : "alloc", bytes > 0 ? bytes : strlen("alloc"), d->process);
}

static void chrome_put_arguments(chrome* c, uint64_t bytes, const tide__chrome_stack* stack) {
  tide__output_format(c->output, ",\"args\":{\"bytes\":%" PRIu64, bytes);
  if (stack->from_bytes > 0) {
    tide__output_text(c->output, ",\"from\":");
    tide__output_json_text(c->output, tide__chrome_stacks_text(&c->stacks, stack->texts + stack->name_bytes),
                           stack->from_bytes, TIDE__JSON_SHOW);
  }
  tide__output_byte(c->output, '}');
}

// The beginning ('b') or the end ('e') of a slice. Both need the same name and number.
static void chrome_put_slice(chrome_device* d, char phase, const tide__lifetimes* all,
                             const tide__lifetime* lifetime, uint64_t time_ns) {
  const bool is_request = all->kind == TIDE__LIFETIMES_OF_REQUESTS;
  const uint64_t id = d->first_id + (uint64_t)(lifetime - all->items) + (is_request ? 0 : d->requests.count);
  const tide__chrome_stack stack = chrome_find_stack(d->c, lifetime->stack);
  if (is_request) chrome_begin_request(d, phase, &stack, lifetime->note);
  else chrome_begin(d->c, phase, "segment", strlen("segment"), d->process);
  chrome_put_time(d->c, time_ns);
  tide__output_format(d->c->output, ",\"cat\":\"%s\",\"id\":%" PRIu64, is_request ? "alloc" : "segment", id);
  if (phase == 'b') {
    chrome_put_stack(d->c, &stack);
    chrome_put_arguments(d->c, lifetime->bytes, &stack);
  }
  tide__output_byte(d->c->output, '}');
}

// The slices that an entry begins and ends.
static void chrome_put_slices(chrome_device* d, const tide__lifetimes* all, size_t entry) {
  const tide__lifetime* const ended = tide__lifetimes_ended_by(all, entry);
  const tide__lifetime* const begun = tide__lifetimes_begun_by(all, entry);
  const uint64_t time_ns = all->entries[entry].time_ns;
  if (ended != NULL) chrome_put_slice(d, 'e', all, ended, time_ns);
  if (begun != NULL) chrome_put_slice(d, 'b', all, begun, time_ns);
}

// Lifetimes that began before the first entry begin with it; those that did not end, end with the last entry.
static void chrome_put_open_slices(chrome_device* d, const tide__lifetimes* all, char phase) {
  for (size_t i = 0; i < all->count; i++) {
    const tide__lifetime* const lifetime = &all->items[i];
    const bool is_open = phase == 'b' ? lifetime->begin == 0 : lifetime->end == TIDE__INSTANT_NEVER;
    if (is_open) chrome_put_slice(d, phase, all, lifetime, phase == 'b' ? d->c->first_ns : d->c->last_ns);
  }
}

// ---------------------------------------------------------------------------------------------------
// Counters

static bool chrome_grows(const tide_trace_entry* entry) {
  return entry->action == TIDE_ACTION_SEGMENT_ALLOC || entry->action == TIDE_ACTION_SEGMENT_MAP;
}

static bool chrome_shrinks(const tide_trace_entry* entry) {
  return entry->action == TIDE_ACTION_SEGMENT_FREE || entry->action == TIDE_ACTION_SEGMENT_UNMAP;
}

// The bytes reserved before the first entry: those at the end, minus all changes. 0 if the result is
// negative.
static uint64_t chrome_reserved_before(const chrome_device* d, size_t device) {
  size_t count = 0;
  uint64_t bytes = 0;
  const tide_trace_segment* const segments = tide_trace_segments(d->c->trace, &count);
  for (size_t i = 0; i < count; i++) bytes += segments[i].device == device ? segments[i].bytes : 0;
  for (size_t i = 0; i < d->requests.entry_count; i++) {
    const tide_trace_entry* const entry = &d->requests.entries[i];
    if (chrome_grows(entry)) bytes -= entry->bytes;
    if (chrome_shrinks(entry)) bytes += entry->bytes;
  }
  return bytes <= INT64_MAX ? bytes : 0;
}

static void chrome_count(chrome_device* d, size_t at) {
  const tide_trace_entry* const entry = &d->requests.entries[at];
  const tide__lifetime* const ended = tide__lifetimes_ended_by(&d->requests, at);
  const tide__lifetime* const begun = tide__lifetimes_begun_by(&d->requests, at);
  if (ended != NULL) d->allocated.bytes -= ended->bytes;
  if (begun != NULL) d->allocated.bytes += begun->bytes;
  d->allocated.is_changed |= ended != NULL || begun != NULL;
  const uint64_t before = d->reserved.bytes;
  if (chrome_grows(entry) && !tide__add(before, entry->bytes, &d->reserved.bytes)) d->reserved.bytes = before;
  if (chrome_shrinks(entry)) d->reserved.bytes = before - tide__min(before, entry->bytes);
  d->reserved.is_changed |= chrome_grows(entry) || chrome_shrinks(entry);
}

// ---------------------------------------------------------------------------------------------------
// Devices

static void chrome_put_entry(chrome_device* d, size_t at) {
  const tide_trace_entry* const entry = &d->requests.entries[at];
  chrome_put_slices(d, &d->requests, at);
  chrome_put_slices(d, &d->segments, at);
  if (entry->action == TIDE_ACTION_OOM) chrome_put_instant(d, "out of memory", entry);
  if (entry->action == TIDE_ACTION_SEGMENT_MAP) chrome_put_instant(d, "map", entry);
  if (entry->action == TIDE_ACTION_SEGMENT_UNMAP) chrome_put_instant(d, "unmap", entry);
  chrome_count(d, at);
  const bool is_last = at + 1 == d->requests.entry_count;
  if (!is_last && d->requests.entries[at + 1].time_ns / 1000 == entry->time_ns / 1000) return;
  chrome_put_counter(d, &d->allocated, entry->time_ns);
  chrome_put_counter(d, &d->reserved, entry->time_ns);
}

static void chrome_put_device(chrome_device* d, size_t device) {
  chrome* const c = d->c;
  if (d->requests.entry_count == 0 && d->requests.count == 0 && d->segments.count == 0) return;
  d->allocated = (chrome_counter){ "allocated", d->requests.first_bytes, d->requests.first_bytes > 0 };
  const uint64_t reserved = chrome_reserved_before(d, device);
  d->reserved = (chrome_counter){ "reserved", reserved, reserved > 0 };
  chrome_put_process(d, device);
  chrome_put_counter(d, &d->allocated, c->first_ns);
  chrome_put_counter(d, &d->reserved, c->first_ns);
  chrome_put_open_slices(d, &d->segments, 'b');
  chrome_put_open_slices(d, &d->requests, 'b');
  for (size_t i = 0; i < d->requests.entry_count; i++) chrome_put_entry(d, i);
  chrome_put_open_slices(d, &d->requests, 'e');
  chrome_put_open_slices(d, &d->segments, 'e');
}

static tide_status chrome_add_device(chrome* c, size_t device, uint64_t* first_id) {
  const tide_heap* const heap = c->output->heap;
  chrome_device d = { .c = c, .process = CHROME_PROCESS + device, .first_id = *first_id };
  TIDE_TRY(tide__lifetimes_init(&d.requests, c->trace, device, TIDE__LIFETIMES_OF_REQUESTS, heap));
  const tide_status status =
      tide__lifetimes_init(&d.segments, c->trace, device, TIDE__LIFETIMES_OF_SEGMENTS, heap);
  if (status == TIDE_OK) chrome_put_device(&d, device);
  *first_id += d.requests.count + d.segments.count;
  tide__lifetimes_fini(&d.segments);
  tide__lifetimes_fini(&d.requests);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Annotations

// A text or a number of an annotation; 0 if it is of another kind.
static uint32_t annotation_text(const tide_intern* names, uint32_t dict, const char* key) {
  const tide_value value = tide_intern_value(names, tide_intern_value_find(names, dict, key));
  return value.kind == TIDE_VALUE_TEXT ? value.text : 0;
}

static uint64_t annotation_number(const tide_intern* names, uint32_t dict, const char* key) {
  const tide_value value = tide_intern_value(names, tide_intern_value_find(names, dict, key));
  return value.kind == TIDE_VALUE_INT && value.integer > 0 ? (uint64_t)value.integer : 0;
}

// Annotations with the same name on a device nest, as slices with the same number do.
static void chrome_put_annotation(chrome* c, uint32_t dict) {
  const uint32_t name = annotation_text(c->names, dict, "name");
  const char* const stage = tide_intern_text(c->names, annotation_text(c->names, dict, "stage"), NULL);
  if (name == 0 || stage == NULL) return;
  const bool is_start = strcmp(stage, "START") == 0;
  if (!is_start && strcmp(stage, "END") != 0) return;
  uint64_t time_ns = 0;
  if (!tide__mul(annotation_number(c->names, dict, "time_us"), 1000, &time_ns)) return;
  char text[TIDE__CHROME_NAME];
  size_t bytes = 0;
  const char* const whole = tide_intern_text(c->names, name, &bytes);
  const uint64_t process = CHROME_PROCESS + tide__min(annotation_number(c->names, dict, "device"), UINT8_MAX);
  chrome_begin(c, is_start ? 'b' : 'e', text, tide__shown_copy(text, sizeof text, whole, bytes), process);
  chrome_put_time(c, time_ns);
  tide__output_format(c->output, ",\"cat\":\"annotation\",\"id\":%" PRIu32 "}", name);
}

static void chrome_put_annotations(chrome* c) {
  const tide_value list = tide_intern_value(c->names, tide_trace_get_about(c->trace).annotations);
  if (list.kind != TIDE_VALUE_LIST) return;
  for (size_t i = 0; i < list.count; i++) chrome_put_annotation(c, (uint32_t)list.items[i]);
}

// ---------------------------------------------------------------------------------------------------
// The timeline

// The time of the first entry decides about the base, which is 0 if times are steps or those of a day.
static void chrome_put_head(chrome* c) {
  const uint64_t period_ns = (uint64_t)CHROME_PERIOD_S * 1000000000;
  tide__lifetimes_times(c->trace, &c->first_ns, &c->last_ns);
  c->first_ns = tide__min(c->first_ns, c->last_ns);
  c->base_ns = c->first_ns / period_ns * period_ns;
  tide__output_text(c->output, "{\"displayTimeUnit\":\"ms\",");
  if (c->base_ns > 0) tide__output_format(c->output, "\"baseTimeNanoseconds\":%" PRIu64 ",", c->base_ns);
  tide__output_text(c->output, "\"traceEvents\":[");
}

static tide_status chrome_put_all(chrome* c) {
  uint64_t first_id = 1;
  const size_t devices = tide__lifetimes_device_count(c->trace);
  chrome_put_head(c);
  for (size_t i = 0; i < devices; i++) TIDE_TRY(chrome_add_device(c, i, &first_id));
  chrome_put_annotations(c);
  tide__output_text(c->output, "\n]");
  tide__chrome_stacks_write(&c->stacks, c->output);
  tide__output_text(c->output, "}\n");
  return TIDE_OK;
}

tide_status tide__chrome_write(const tide_trace* trace, tide__output* output) {
  chrome c = { .trace = trace, .names = tide_trace_names(trace), .output = output };
  tide_status status = tide__chrome_stacks_init(&c.stacks, c.names, output->heap);
  if (status == TIDE_OK) status = chrome_put_all(&c);
  tide__chrome_stacks_fini(&c.stacks);
  TIDE_TRY(status);
  return output->status;
}
