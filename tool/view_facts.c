// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The facts of a device: what the page shows first, and every number of the report.
#include <stdlib.h>

#include "view.h"

// ---------------------------------------------------------------------------------------------------
// Peaks and the limit

static void peak_emit(tool_emit* emit, const char* key, const tide_ledger_peak* peak) {
  tool_emit_open(emit, key, NULL);
  tool_emit_uint(emit, "bytes", NULL, peak->bytes);
  tool_emit_uint_if(emit, peak->at != TIDE_LEDGER_BEFORE, "at", NULL, peak->at);
  tool_emit_close(emit);
}

static void peaks_emit(tool_emit* emit, const tool_diagnosis* r) {
  tool_emit_open(emit, "peaks", NULL);
  if (r->knows_reserved) peak_emit(emit, "reserved", &r->peaks.reserved);
  else tool_emit_text(emit, "reserved", NULL, NULL);
  peak_emit(emit, "allocated", &r->peaks.allocated);
  peak_emit(emit, "requested", &r->peaks.requested);
  peak_emit(emit, "active", &r->peaks.active);
  peak_emit(emit, "live", &r->peaks.live);
  tool_emit_close(emit);
}

static void limit_emit(tool_emit* emit, const tool_limit* limit) {
  if (!tool_limit_is_shown(limit)) {
    tool_emit_text(emit, "limit", NULL, NULL);
    return;
  }
  tool_emit_open(emit, "limit", NULL);
  tool_emit_uint(emit, "least", NULL, limit->at_least);
  tool_emit_uint(emit, "most", NULL, limit->less_than);
  tool_emit_close(emit);
}

// ---------------------------------------------------------------------------------------------------
// The overview

// The time of an entry in ms since the first; that of the one before, if it has none.
static double entry_ms(const tool_view_memory* m, uint64_t at, uint64_t first_ns) {
  if (m->entry_count == 0) return 0;
  if (at >= m->entry_count) at = m->entry_count - 1;
  while (at > 0 && (m->entries[at].absent & TIDE_ENTRY_TIME) != 0) at--;
  const uint64_t time_ns = m->entries[at].time_ns;
  return time_ns > first_ns ? (double)(time_ns - first_ns) / 1e6 : 0;
}

static void curve_emit(tool_emit* emit, const tool_view_curves* curves, size_t curve, double* values) {
  const size_t count = curves->count;
  tool_emit_open(emit, tool_view_curve_names[curve], NULL);
  for (size_t i = 0; i < count; i++) values[i] = (double)tool_view_range_of(curves, curve, i)->least;
  tool_emit_list(emit, "least", values, count, 0);
  for (size_t i = 0; i < count; i++) values[i] = (double)tool_view_range_of(curves, curve, i)->most;
  tool_emit_list(emit, "most", values, count, 0);
  for (size_t i = 0; i < count; i++) values[i] = (double)tool_view_range_of(curves, curve, i)->last;
  tool_emit_list(emit, "last", values, count, 0);
  tool_emit_close(emit);
}

static void overview_emit(tool_emit* emit, const tool_view_memory* m, bool has_times, uint64_t first_ns) {
  const size_t count = m->overview.count;
  double* const values = tool_alloc(count + 1, sizeof *values);
  tool_emit_open(emit, "overview", NULL);
  tool_emit_uint(emit, "buckets", NULL, count);
  for (size_t i = 0; i <= count; i++) values[i] = (double)tool_view_bucket_begin(m, i);
  tool_emit_list(emit, "entry", values, count + 1, 0);
  for (size_t i = 0; i <= count; i++) values[i] = entry_ms(m, tool_view_bucket_begin(m, i), first_ns);
  if (has_times) tool_emit_list(emit, "ms", values, count + 1, 3);
  else tool_emit_text(emit, "ms", NULL, NULL);
  for (size_t i = 0; i < TOOL_VIEW_CURVE_COUNT; i++) curve_emit(emit, &m->overview, i, values);
  tool_emit_close(emit);
  free(values);
}

// ---------------------------------------------------------------------------------------------------
// Lists

static void whatif_emit(tool_emit* emit, const tool_view_device* device) {
  static const tool_column columns[] = { { "name", NULL },          { "line", NULL },
                                         { "is_recorded", NULL },   { "is_pytorch", NULL },
                                         { "reserved_peak", NULL }, { "fits", NULL },
                                         { "part", NULL } };
  const tool_trials* const trials = &device->whatif.trials;
  tool_emit_table(emit, "whatif", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < trials->count; i++) {
    const tool_trial* const row = &trials->rows[i];
    char text[TOOL_POLICY_TEXT];
    char line[TOOL_ADVICE_LINE];
    char name[TOOL_VIEW_NAME];
    const tool_advice advice = { .trial = row };
    const bool is_tide = row->device.policy == TIDE_POLICY_TIDE;
    tool_emit_row(emit);
    tool_emit_text(emit, NULL, NULL, tool_policy_setting(&row->device, text));
    tool_emit_text(emit, NULL, NULL, is_tide ? TOOL_TIDE_COMMAND : tool_advice_line(&advice, line));
    tool_emit_bool(emit, NULL, NULL, row->is_recorded);
    tool_emit_bool(emit, NULL, NULL, row->is_torch);
    tool_emit_uint_if(emit, row->status == TIDE_OK, NULL, NULL, row->result.peak_reserved);
    tool_emit_bool(emit, NULL, NULL, tool_trial_fits(row));
    tool_emit_format(emit, NULL, NULL, "%s%zu", tool_view_name('d', device->number, "whatif-", name), i);
  }
  tool_emit_table_end(emit);
}

// Handles of streams are texts: they may be pointers, which a number of JavaScript cannot hold.
static void streams_emit(tool_emit* emit, const tool_view_memory* m, const tool_pool_tags* tags) {
  tool_emit_open_list(emit, "streams");
  for (size_t i = 0; i < m->stream_count; i++)
    tool_emit_list_text(emit, "%llu", (unsigned long long)m->streams[i]);
  tool_emit_close_list(emit);
  tool_emit_open_list(emit, "pools");
  for (size_t i = 0; i < m->pool_count; i++) {
    const tide_pool_label label = tide_trace_pool(m->trace, m->pools[i]);
    const char* const tag = tool_pool_tag(tags, m->pools[i]);
    if (tag != NULL) tool_emit_list_text(emit, "%s", tag);
    else
      tool_emit_list_text(emit, "(%llu, %llu)", (unsigned long long)label.first,
                          (unsigned long long)label.second);
  }
  tool_emit_close_list(emit);
}

// ---------------------------------------------------------------------------------------------------
// All

static void figures_emit(tool_emit* emit, const tool_view_device* device, bool has_times, uint64_t first_ns,
                         uint64_t span_ns) {
  const tool_diagnosis* const r = &device->diagnosis;
  tool_emit_uint(emit, "device", NULL, r->device);
  tool_emit_uint(emit, "entries", NULL, r->entry_count);
  tool_emit_bool(emit, "is_from_start", NULL, r->faults.is_from_start);
  tool_emit_bool(emit, "is_cut", NULL, tide_trace_get_about(r->trace).is_cut);
  tool_emit_bool(emit, "has_steps", NULL, tide_trace_get_about(r->trace).has_steps);
  tool_emit_bool(emit, "has_segments", NULL, r->knows_reserved);
  tool_emit_uint(emit, "unit", NULL, device->memory.unit);
  tool_emit_uint(emit, "lanes", NULL, device->memory.lane_count);
  tool_emit_bool(emit, "has_times", NULL, has_times);
  if (has_times) tool_emit_format(emit, "first_ns", NULL, "%llu", (unsigned long long)first_ns);
  else tool_emit_text(emit, "first_ns", NULL, NULL);
  tool_emit_uint_if(emit, has_times, "span_ns", NULL, span_ns);
}

// What happened along the entries.
static void along_emit(tool_emit* emit, const tool_view_device* device) {
  tool_axis axis;
  (void)tool_axis_init(&axis, TOOL_AXIS_ENTRY, device->diagnosis.trace, device->diagnosis.device, NULL);
  tool_view_marks_emit(emit, device, &axis);
  tool_view_bands_emit(emit, device, &axis);
  tool_axis_fini(&axis);
}

char* tool_view_facts_of(const tool_call* call, tool_view_device* device) {
  tool_diagnosis* const r = &device->diagnosis;
  uint64_t first_ns = 0;
  uint64_t span_ns = 0;
  const bool has_times = tool_device_times(r->trace, r->device, &first_ns, &span_ns);
  tool_emit* const emit = tool_emit_begin(call);
  figures_emit(emit, device, has_times, first_ns, span_ns);
  peaks_emit(emit, r);
  limit_emit(emit, &r->limit);
  streams_emit(emit, &device->memory, &r->tags);
  along_emit(emit, device);
  tool_steps_emit_rows(emit, "steps", call, &device->steps);
  tool_diagnosis_emit_refusals(emit, "ooms", r);
  tool_leaks_emit(emit, call, &device->steps, 1, 0);
  whatif_emit(emit, device);
  tool_emit_open(emit, "report", NULL);
  (void)tool_diagnosis_emit(emit, r, &device->steps);  // fails only with a timeline, which is for text
  tool_emit_close(emit);
  overview_emit(emit, &device->memory, has_times, first_ns);
  return tool_emit_take(emit);
}
