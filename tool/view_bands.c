// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the overview shows along the run. Marks: refused requests, memory that was given back, snapshots.
// Bands: annotations of the program, and steps.
#include <stdlib.h>
#include <string.h>

#include "view.h"

#define MARKS_SHOWN 1000u  // of a kind
#define BANDS_SHOWN 5000u

// ---------------------------------------------------------------------------------------------------
// Marks

enum { MARK_OOM, MARK_RETRY, MARK_EMPTY_CACHE, MARK_FLUSH, MARK_SNAPSHOT, MARK_KINDS };

typedef struct mark_list {
  tool_emit* emit;
  const tool_view_device* device;
  size_t counts[MARK_KINDS];
} mark_list;

static void mark_emit(mark_list* list, size_t kind, uint64_t at, uint64_t bytes) {
  static const char* const names[MARK_KINDS] = { "oom", "retry", "empty_cache", "flush", "snapshot" };
  if (list->counts[kind]++ >= MARKS_SHOWN) return;
  tool_emit_row(list->emit);
  tool_emit_uint(list->emit, NULL, NULL, at);
  tool_emit_text(list->emit, NULL, NULL, names[kind]);
  tool_emit_uint(list->emit, NULL, NULL, bytes);
}

// Why memory was given back. If a replay repeated the recording, it knows.
static size_t flush_kind(const tool_view_device* device, uint64_t first, uint64_t last) {
  const tool_recording* const recording = &device->diagnosis.recording;
  if (tide_replay_is_emptied(recording->replay, first, last)) return MARK_EMPTY_CACHE;
  return recording->is_repeated ? MARK_RETRY : MARK_FLUSH;
}

static bool entry_gives_back(const tide_trace_entry* entry) {
  return entry->action == TIDE_ACTION_SEGMENT_FREE || entry->action == TIDE_ACTION_SEGMENT_UNMAP;
}

// The entries that give memory back from `at` on are one mark. Returns the first entry after them.
static uint64_t flush_emit(mark_list* list, uint64_t at) {
  const tool_view_memory* const m = &list->device->memory;
  uint64_t end = at;
  uint64_t bytes = 0;
  for (; end < m->entry_count && entry_gives_back(&m->entries[end]); end++) bytes += m->entries[end].bytes;
  mark_emit(list, flush_kind(list->device, at, end - 1), at, bytes);
  return end;
}

void tool_view_marks_emit(tool_emit* emit, const tool_view_device* device) {
  static const tool_column columns[] = { { "at", NULL }, { "kind", NULL }, { "bytes", NULL } };
  const tool_view_memory* const m = &device->memory;
  mark_list list = { .emit = emit, .device = device };
  tool_emit_table(emit, "marks", columns, 3);
  for (uint64_t i = 0; i < m->entry_count;) {
    const tide_trace_entry* const entry = &m->entries[i];
    if (entry->action == TIDE_ACTION_OOM) mark_emit(&list, MARK_OOM, i, entry->bytes);
    if (entry->action == TIDE_ACTION_SNAPSHOT) mark_emit(&list, MARK_SNAPSHOT, i, entry->bytes);
    i = entry_gives_back(entry) ? flush_emit(&list, i) : i + 1;
  }
  tool_emit_table_end(emit);
}

// ---------------------------------------------------------------------------------------------------
// Bands

typedef struct band {
  uint64_t from;
  uint64_t to;       // behind the last entry
  const char* name;  // borrowed from the trace; NULL: a step
  size_t number;     // of the step, or of the band
} band;

typedef struct band_list {
  band* items;  // owned
  size_t count;
  size_t room;
} band_list;

static void bands_add(band_list* list, band added) {
  if (added.from >= added.to) return;
  if (list->count == list->room) {
    list->room = 2 * list->room + 64;
    list->items = tool_grow(list->items, list->room, sizeof *list->items);
  }
  list->items[list->count++] = added;
}

// The first entry at a time, or the first after it.
static uint64_t entry_at(const tool_view_memory* m, uint64_t time_us, bool is_after) {
  uint64_t low = 0;
  uint64_t high = m->entry_count;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    const uint64_t time = m->entries[middle].time_ns / 1000;
    if (time < time_us || (is_after && time == time_us)) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Ends the innermost open range of a name.
static void band_close(band_list* list, band* open, size_t* count, const char* name, uint64_t to) {
  for (size_t i = *count; i-- > 0;) {
    if (strcmp(open[i].name, name) != 0) continue;
    open[i].to = to;
    bands_add(list, open[i]);
    memmove(&open[i], &open[i + 1], (*count - i - 1) * sizeof *open);
    --*count;
    return;
  }
}

static void bands_of_annotations(band_list* list, const tool_view_device* device) {
  const tool_view_memory* const m = &device->memory;
  const tide_value marks = tool_annotations(m->trace);
  band open[TOOL_ANNOTATIONS_OPEN];
  size_t count = 0;
  if (marks.kind != TIDE_VALUE_LIST || tide_trace_get_about(m->trace).has_steps) return;
  for (size_t i = 0; i < marks.count; i++) {
    tool_annotation mark;
    if (!tool_annotation_read(m->trace, device->diagnosis.device, (uint32_t)marks.items[i], &mark)) continue;
    const uint64_t at = entry_at(m, mark.time_us, !mark.is_start);
    if (!mark.is_start) band_close(list, open, &count, mark.name, at);
    else if (count < TOOL_ANNOTATIONS_OPEN)
      open[count++] = (band){ .from = at, .name = mark.name, .number = i };
  }
  while (count > 0) band_close(list, open, &count, open[count - 1].name, m->entry_count);
}

static void bands_of_steps(band_list* list, const tool_view_device* device) {
  size_t count = 0;
  size_t number = 0;
  const tide_step* const items = tide_steps_items(device->steps.steps, &count);
  for (size_t i = 0; i < count; i++) {
    if (!items[i].is_whole) continue;
    bands_add(list, (band){ .from = items[i].first, .to = items[i].end, .number = ++number });
  }
}

static int compare_numbers(uint64_t a, uint64_t b) { return a < b ? -1 : a > b; }

// The longest first.
static int band_order_length(const void* a, const void* b) {
  const band* const left = a;
  const band* const right = b;
  const int order = compare_numbers(right->to - right->from, left->to - left->from);
  return order != 0 ? order : compare_numbers(left->from, right->from);
}

// By their beginning, the outer ones first.
static int band_order(const void* a, const void* b) {
  const band* const left = a;
  const band* const right = b;
  int order = compare_numbers(left->from, right->from);
  if (order == 0) order = compare_numbers(right->to, left->to);
  if (order == 0) order = compare_numbers(left->name != NULL, right->name != NULL);
  return order != 0 ? order : compare_numbers(left->number, right->number);
}

static void band_emit(tool_emit* emit, const band* item) {
  tool_emit_row(emit);
  tool_emit_uint(emit, NULL, NULL, item->from);
  tool_emit_uint(emit, NULL, NULL, item->to);
  if (item->name != NULL) tool_emit_text(emit, NULL, NULL, item->name);
  else tool_emit_format(emit, NULL, NULL, "step %zu", item->number);
  tool_emit_text(emit, NULL, NULL, item->name != NULL ? "annotation" : "step");
}

void tool_view_bands_emit(tool_emit* emit, const tool_view_device* device) {
  static const tool_column columns[] = {
    { "from", NULL }, { "to", NULL }, { "name", NULL }, { "kind", NULL }
  };
  band_list list = { .items = NULL };
  bands_of_annotations(&list, device);
  bands_of_steps(&list, device);
  if (list.count > BANDS_SHOWN) {
    qsort(list.items, list.count, sizeof *list.items, band_order_length);
    list.count = BANDS_SHOWN;
  }
  if (list.count > 1) qsort(list.items, list.count, sizeof *list.items, band_order);
  tool_emit_table(emit, "bands", columns, 4);
  for (size_t i = 0; i < list.count; i++) band_emit(emit, &list.items[i]);
  tool_emit_table_end(emit);
  free(list.items);
}
