// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the overview shows along the run. Marks: refused requests, memory that was given back, snapshots.
// Bands: annotations of the program, and steps.
#include <stdlib.h>

#include "marks.h"
#include "view.h"

#define MARKS_SHOWN 1000u  // of a kind
#define BANDS_SHOWN 5000u

// ---------------------------------------------------------------------------------------------------
// Marks

static void mark_emit(tool_emit* emit, uint64_t at, const char* kind, uint64_t bytes, bool is_certain) {
  tool_emit_row(emit);
  tool_emit_uint(emit, NULL, NULL, at);
  tool_emit_text(emit, NULL, NULL, kind);
  tool_emit_uint(emit, NULL, NULL, bytes);
  tool_emit_bool(emit, NULL, NULL, is_certain);
}

static void snapshots_emit(tool_emit* emit, const tool_view_memory* m) {
  size_t count = 0;
  for (uint64_t i = 0; i < m->entry_count && count < MARKS_SHOWN; i++) {
    if (m->entries[i].action != TIDE_ACTION_SNAPSHOT) continue;
    mark_emit(emit, i, "snapshot", m->entries[i].bytes, true);
    count++;
  }
}

void tool_view_marks_emit(tool_emit* emit, const tool_view_device* device, const tool_axis* axis) {
  static const tool_column columns[] = {
    { "at", NULL }, { "kind", NULL }, { "bytes", NULL }, { "is_certain", NULL }
  };
  const tool_diagnosis* const r = &device->diagnosis;
  const tool_recording recording = { .trace = r->trace, .device = r->device };
  size_t counts[TOOL_MARK_COUNT] = { 0 };
  tool_marks marks;
  tool_marks_find(&marks, r->recording.replay != NULL ? &r->recording : &recording, &r->limit, axis);
  tool_emit_table(emit, "marks", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < marks.count; i++) {
    const tool_mark* const mark = &marks.items[i];
    if (counts[mark->kind]++ < MARKS_SHOWN)
      mark_emit(emit, mark->entry, tool_mark_key(mark->kind), mark->bytes, mark->is_certain);
  }
  snapshots_emit(emit, &device->memory);
  tool_emit_table_end(emit);
  tool_marks_fini(&marks);
}

// ---------------------------------------------------------------------------------------------------
// Bands

static int compare_numbers(uint64_t a, uint64_t b) { return a < b ? -1 : a > b; }

// The longest first.
static int band_order_length(const void* a, const void* b) {
  const tool_band* const left = *(tool_band* const*)a;
  const tool_band* const right = *(tool_band* const*)b;
  const int order = compare_numbers(right->end - right->first, left->end - left->first);
  return order != 0 ? order : compare_numbers(left->first, right->first);
}

// By their beginning, the outer ones first.
static int band_order(const void* a, const void* b) {
  const tool_band* const left = *(tool_band* const*)a;
  const tool_band* const right = *(tool_band* const*)b;
  int order = compare_numbers(left->first, right->first);
  if (order == 0) order = compare_numbers(right->end, left->end);
  if (order == 0) order = compare_numbers(left->name != NULL, right->name != NULL);
  return order != 0 ? order : (left > right) - (left < right);
}

static void band_emit(tool_emit* emit, const tool_band* band) {
  tool_emit_row(emit);
  tool_emit_uint(emit, NULL, NULL, band->first);
  tool_emit_uint(emit, NULL, NULL, band->end);
  if (band->name != NULL) tool_emit_text(emit, NULL, NULL, band->name);
  else tool_emit_format(emit, NULL, NULL, "step %llu", (unsigned long long)band->step);
  tool_emit_text(emit, NULL, NULL, band->name != NULL ? "annotation" : "step");
}

static void bands_emit(tool_emit* emit, tool_bands* bands) {
  static const tool_column columns[] = {
    { "from", NULL }, { "to", NULL }, { "name", NULL }, { "kind", NULL }
  };
  tool_band** const order = tool_alloc(bands->count + 1, sizeof *order);
  size_t count = 0;
  for (size_t i = 0; i < bands->count; i++) {
    if (bands->items[i].first < bands->items[i].end) order[count++] = &bands->items[i];
  }
  if (count > BANDS_SHOWN) {
    qsort(order, count, sizeof *order, band_order_length);
    count = BANDS_SHOWN;
  }
  if (count > 1) qsort(order, count, sizeof *order, band_order);
  tool_emit_table(emit, "bands", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < count; i++) band_emit(emit, order[i]);
  tool_emit_table_end(emit);
  free(order);
}

void tool_view_bands_emit(tool_emit* emit, const tool_view_device* device, const tool_axis* axis) {
  tool_bands bands;
  tool_bands_find(&bands, &device->steps, axis);
  bands_emit(emit, &bands);
  tool_bands_fini(&bands);
}
