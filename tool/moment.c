// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Ranges come from the snapshot's annotations, which mark where each begins and ends; they nest. One pass
// over them finds the innermost range that is open at a point. Otherwise an entry may have metadata of its
// own, or the graph that was being compiled.
#include "moment.h"

#include <stdio.h>
#include <string.h>

#define RANGES_OPEN 64u  // deeper ranges are ignored

static const char* value_text(const tide_intern* names, uint32_t dict, const char* key) {
  const tide_value value = tide_intern_value(names, tide_intern_value_find(names, dict, key));
  return value.kind == TIDE_VALUE_TEXT ? tide_intern_text(names, value.text, NULL) : NULL;
}

static bool value_int(const tide_intern* names, uint32_t dict, const char* key, int64_t* out) {
  const tide_value value = tide_intern_value(names, tide_intern_value_find(names, dict, key));
  *out = value.integer;
  return value.kind == TIDE_VALUE_INT;
}

// Names of ranges that are open, outermost first.
typedef struct open_ranges {
  const char* names[RANGES_OPEN];
  size_t count;
} open_ranges;

static void ranges_begin(open_ranges* open, const char* name) {
  if (open->count < RANGES_OPEN) open->names[open->count++] = name;
}

static void ranges_end(open_ranges* open, const char* name) {
  for (size_t i = open->count; i-- > 0;) {
    if (strcmp(open->names[i], name) != 0) continue;
    for (size_t k = i + 1; k < open->count; k++) open->names[k - 1] = open->names[k];
    open->count--;
    return;
  }
}

bool tool_annotation_next(const tide_trace* trace, size_t device, size_t* at, tool_annotation* out) {
  const tide_intern* const names = tide_trace_names(trace);
  const tide_value list = tide_intern_value(names, tide_trace_get_about(trace).annotations);
  if (list.kind != TIDE_VALUE_LIST) return false;
  while (*at < list.count) {
    const uint32_t item = (uint32_t)list.items[(*at)++];
    const char* const name = value_text(names, item, "name");
    const char* const stage = value_text(names, item, "stage");
    int64_t on = 0;
    int64_t time_us = 0;
    if (name == NULL || stage == NULL || !value_int(names, item, "time_us", &time_us)) continue;
    if (value_int(names, item, "device", &on) && on >= 0 && (uint64_t)on != device) continue;
    if (time_us < 0) continue;
    *out = (tool_annotation){ name, strcmp(stage, "START") == 0, (uint64_t)time_us };
    return true;
  }
  return false;
}

static const char* range_at(const tide_trace* trace, size_t device, uint64_t time_ns) {
  open_ranges open = { .count = 0 };
  tool_annotation next;
  for (size_t at = 0; tool_annotation_next(trace, device, &at, &next);) {
    if (next.time_us > time_ns / 1000) continue;
    if (next.is_start) ranges_begin(&open, next.name);
    else ranges_end(&open, next.name);
  }
  return open.count > 0 ? open.names[open.count - 1] : NULL;
}

// The metadata of an entry itself.
static const char* entry_words(const tide_intern* names, const tide_trace_entry* entry) {
  const tide_note note = tide_intern_note(names, entry->note);
  const char* const metadata = tide_intern_text(names, note.metadata, NULL);
  if (metadata != NULL && *metadata != '\0') return metadata;
  const char* const context = tide_intern_text(names, note.compile_context, NULL);
  return context != NULL && *context != '\0' && strcmp(context, "N/A") != 0 ? context : NULL;
}

bool tool_device_times(const tide_trace* trace, size_t device, uint64_t* out_first_ns,
                       uint64_t* out_span_ns) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, device, &count);
  size_t first = 0;
  while (first < count && (entries[first].absent & TIDE_ENTRY_TIME) != 0) first++;
  *out_first_ns = *out_span_ns = 0;
  if (first == count || tide_trace_get_about(trace).has_steps) return false;
  size_t last = count - 1;
  while ((entries[last].absent & TIDE_ENTRY_TIME) != 0) last--;
  *out_first_ns = entries[first].time_ns;
  if (entries[last].time_ns > *out_first_ns) *out_span_ns = entries[last].time_ns - *out_first_ns;
  return true;
}

tool_moment tool_moment_of(const tide_trace* trace, size_t device, uint64_t at) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, device, &count);
  tool_moment moment = { .at = at, .is_end = count == 0 };
  if (at >= count) return moment;
  if (tide_trace_get_about(trace).has_steps) return moment;  // their notes are names of buffers
  uint64_t start = 0;
  uint64_t span_ns = 0;
  const bool has_times = tool_device_times(trace, device, &start, &span_ns);
  const bool has_own = (entries[at].absent & TIDE_ENTRY_TIME) == 0;
  moment.has_time = has_times && has_own && entries[at].time_ns >= start;
  if (moment.has_time) moment.ms = (double)(entries[at].time_ns - start) / 1e6;
  if (has_own) moment.during = range_at(trace, device, entries[at].time_ns);
  if (moment.during == NULL) moment.during = entry_words(tide_trace_names(trace), &entries[at]);
  return moment;
}

const char* tool_moment_text(const tool_moment* moment, char out[TOOL_MOMENT_TEXT]) {
  if (moment->at == TIDE_LEDGER_BEFORE) {
    (void)snprintf(out, TOOL_MOMENT_TEXT, "%s", moment->is_end ? "the end" : "before the first entry");
    return out;
  }
  int length = snprintf(out, TOOL_MOMENT_TEXT, "entry %llu", (unsigned long long)moment->at);
  if (moment->has_time) {
    length += snprintf(out + length, TOOL_MOMENT_TEXT - (size_t)length, ", %.3f s into the recording",
                       moment->ms / 1e3);
  }
  if (moment->during != NULL)
    (void)snprintf(out + length, TOOL_MOMENT_TEXT - (size_t)length, ", during \"%s\"", moment->during);
  return out;
}
