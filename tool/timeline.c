// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
#include "timeline.h"

#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "moment.h"

static const char* const axis_names[] = { "time", "entry", "step" };

const char* tool_axis_name(tool_axis_kind kind) { return axis_names[kind]; }

int tool_axis_from_name(const char* name) {
  for (int i = 0; i < (int)(sizeof axis_names / sizeof axis_names[0]); i++) {
    if (strcmp(axis_names[i], name) == 0) return i;
  }
  return -1;
}

// ---------------------------------------------------------------------------------------------------
// The x axis

static void axis_take_times(tool_axis* axis, const tide_trace_entry* entries) {
  uint64_t latest = 0;
  for (size_t i = 0; i < axis->entry_count; i++) {
    const bool has_time = (entries[i].absent & TIDE_ENTRY_TIME) == 0 && entries[i].time_ns > axis->first_ns;
    if (has_time) latest = tide__max(latest, entries[i].time_ns - axis->first_ns);
    axis->places[i] = latest;
  }
  while (latest >> axis->shift >= TOOL_AXIS_LENGTH) axis->shift++;
  for (size_t i = 0; i < axis->entry_count && axis->shift > 0; i++) axis->places[i] >>= axis->shift;
  axis->length = (latest >> axis->shift) + 1;
}

static void axis_take_steps(tool_axis* axis, const tide_step* items, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const uint64_t entries = items[i].end - items[i].first;
    for (uint64_t k = items[i].first; k < items[i].end && k < axis->entry_count; k++)
      axis->places[k] = i * TOOL_AXIS_STEP_PLACES + (k - items[i].first) * TOOL_AXIS_STEP_PLACES / entries;
  }
  axis->length = (uint64_t)count * TOOL_AXIS_STEP_PLACES;
  axis->before = items[0].is_whole ? 0 : 1;
}

bool tool_axis_init(tool_axis* axis, tool_axis_kind kind, const tide_trace* trace, size_t device,
                    const tide_steps* steps) {
  *axis = (tool_axis){ .kind = kind };
  const tide_trace_entry* const entries = tide_trace_entries(trace, device, &axis->entry_count);
  uint64_t span_ns = 0;
  size_t step_count = 0;
  const tide_step* const items = steps != NULL ? tide_steps_items(steps, &step_count) : NULL;
  if (kind == TOOL_AXIS_TIME && !tool_device_times(trace, device, &axis->first_ns, &span_ns)) return false;
  if (kind == TOOL_AXIS_STEP && step_count == 0) return false;
  axis->length = axis->entry_count > 0 ? axis->entry_count : 1;
  if (kind != TOOL_AXIS_ENTRY) axis->places = tool_alloc(axis->entry_count, sizeof *axis->places);
  if (kind == TOOL_AXIS_TIME) axis_take_times(axis, entries);
  if (kind == TOOL_AXIS_STEP) axis_take_steps(axis, items, step_count);
  return true;
}

void tool_axis_fini(tool_axis* axis) { free(axis->places); }

uint64_t tool_axis_place(const tool_axis* axis, uint64_t entry) {
  if (entry == TIDE_LEDGER_BEFORE || axis->entry_count == 0) return 0;
  if (entry >= axis->entry_count) return axis->length - 1;
  return axis->places != NULL ? axis->places[entry] : entry;
}

uint64_t tool_axis_place_of_time(const tool_axis* axis, const tide_trace_entry* entries, uint64_t time_ns) {
  if (axis->kind == TOOL_AXIS_TIME) {
    const uint64_t since = time_ns > axis->first_ns ? (time_ns - axis->first_ns) >> axis->shift : 0;
    return tide__min(since, axis->length - 1);
  }
  size_t low = 0;
  size_t high = axis->entry_count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (entries[middle].time_ns < time_ns) low = middle + 1;
    else high = middle;
  }
  return tool_axis_place(axis, low);
}

double tool_axis_value(const tool_axis* axis, uint64_t place) {
  switch (axis->kind) {
    case TOOL_AXIS_TIME: return (double)place * (double)(UINT64_C(1) << axis->shift) / 1e6;
    case TOOL_AXIS_STEP: return (double)place / TOOL_AXIS_STEP_PLACES;
    default: return (double)place;
  }
}

// ---------------------------------------------------------------------------------------------------
// The curves

const tide_timeline_range* tool_timeline_range(const tool_timeline* t, tool_curve curve, size_t bucket) {
  const tide_timeline_bucket* const at = &t->buckets[bucket];
  switch (curve) {
    case TOOL_CURVE_RESERVED: return &at->reserved;
    case TOOL_CURVE_ALLOCATED: return &at->live;
    default: return &at->requested;
  }
}

// The first place of a bucket: place p is in bucket p * count / length.
static uint64_t bucket_begin(const tool_axis* axis, size_t bucket, size_t count) {
  const uint64_t place = axis->length / count * bucket;
  const uint64_t rest = axis->length % count * bucket;
  return place + (rest + count - 1) / count;
}

// A bucket also has the value with which it begins: the picture has no gaps between them.
static tide_status timeline_follow(tool_timeline* t, tide_ledger* ledger, const tool_axis* axis) {
  tide_timeline line = { .buckets = t->buckets, .count = t->count, .is_joined = true };
  tide_status status = tide_ledger_seek(ledger, TIDE_LEDGER_BEFORE);
  tide_ledger_totals totals = tide_ledger_get_totals(ledger);
  tide_timeline_start(&line, &totals);
  for (size_t i = 0; i < axis->entry_count && status == TIDE_OK; i++) {
    status = tide_ledger_seek(ledger, i);
    totals = tide_ledger_get_totals(ledger);
    tide_timeline_add(&line, tool_axis_place(axis, i), &totals);
  }
  tide_timeline_finish(&line);
  return status;
}

tide_status tool_timeline_init(tool_timeline* t, tide_ledger* ledger, const tool_axis* axis, size_t count) {
  const tide_ledger_peaks peaks = tide_ledger_get_peaks(ledger);
  *t = (tool_timeline){ .count = count, .peaks = { peaks.reserved, peaks.live, peaks.requested } };
  t->buckets = tool_alloc(count, sizeof *t->buckets);
  for (size_t i = 0; i < count; i++) t->buckets[i].begin = bucket_begin(axis, i, count);
  for (size_t c = 0; c < TOOL_CURVE_COUNT; c++) t->places[c] = tool_axis_place(axis, t->peaks[c].at);
  const tide_status status = timeline_follow(t, ledger, axis);
  if (status != TIDE_OK) tool_timeline_fini(t);
  return status;
}

void tool_timeline_fini(tool_timeline* t) {
  free(t->buckets);
  *t = (tool_timeline){ .count = 0 };
}

uint64_t tool_timeline_top(const tool_timeline* t) {
  uint64_t top = 0;
  for (tool_curve c = 0; c < TOOL_CURVE_COUNT; c++) {
    for (size_t i = 0; i < t->count; i++) top = tide__max(top, tool_timeline_range(t, c, i)->most);
  }
  return top;
}
