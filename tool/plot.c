// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tidemark plot: the memory of recordings over time, as a drawing in the terminal, as an SVG picture, or as
// data. Recordings are read one after another; of each only the buckets, marks and bands are kept.
#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "braille.h"
#include "devices.h"
#include "display.h"
#include "picture.h"
#include "plotting.h"

#define PLOT_WIDTH 960  // points
#define PLOT_ROWS 16
#define PLOT_FAR 1.5  // a limit this many times the peak is not drawn
#define PLOT_FILES 64

// ---------------------------------------------------------------------------------------------------
// What is drawn

static bool panel_has_limit(const tool_panel* panel) { return panel->limit.bytes != TIDE_NO_LIMIT; }

static uint64_t plotting_highest(const tool_plotting* p) {
  uint64_t top = 0;
  for (size_t i = 0; i < p->count; i++) top = tide__max(top, tool_timeline_top(&p->panels[i].timeline));
  return top;
}

bool tool_panel_shows_limit(const tool_plotting* p, const tool_panel* panel) {
  return panel_has_limit(panel) && (double)panel->limit.bytes < PLOT_FAR * (double)plotting_highest(p);
}

uint64_t tool_plotting_top(const tool_plotting* p) {
  uint64_t top = plotting_highest(p);
  for (size_t i = 0; i < p->count; i++) {
    if (tool_panel_shows_limit(p, &p->panels[i])) top = tide__max(top, p->panels[i].limit.bytes);
  }
  return top;
}

double tool_plotting_length(const tool_plotting* p) {
  double length = 0;
  for (size_t i = 0; i < p->count; i++)
    length = fmax(length, tool_axis_value(&p->panels[i].axis, p->panels[i].axis.length));
  return length;
}

// ---------------------------------------------------------------------------------------------------
// One recording

// The limit of the recorded run, and calls to empty_cache, come from a replay.
static int panel_compare(const tool_call* call, tool_panel* panel, tool_recording* r) {
  panel->limit = (tool_limit){ .bytes = TIDE_NO_LIMIT, .less_than = TIDE_NO_LIMIT };
  if (panel->entry_count > 0 && !tide_trace_get_about(r->trace).has_steps &&
      tide_replay_new(r->trace, r->device, NULL, &r->replay) == TIDE_OK)
    (void)tool_recording_compare(r);
  return tool_limit_choose(call, r, NULL, &panel->limit);
}

static int panel_axis(const tool_plotting* p, tool_panel* panel, const tide_trace* trace,
                      const tool_steps* steps) {
  char why[TOOL_STEPS_HOW];
  if (tool_axis_init(&panel->axis, p->kind, trace, panel->device, steps->steps)) return TOOL_DONE;
  if (p->kind == TOOL_AXIS_STEP)
    return tool_fail("%s: no steps were found: %s", panel->file, tool_steps_why_not(steps, why));
  if (tool_option_value(p->call, "x") == NULL && p->count == 1) {
    (void)tool_axis_init(&panel->axis, TOOL_AXIS_ENTRY, trace, panel->device, steps->steps);
    return TOOL_DONE;
  }
  return tool_fail("%s: it has no times; use --x entry", panel->file);
}

static int panel_draw(tool_plotting* p, tool_panel* panel, tool_recording* r, tide_ledger* ledger,
                      const tool_steps* steps) {
  int status = panel_axis(p, panel, r->trace, steps);
  if (status != TOOL_DONE) return status;
  p->kind = panel->axis.kind;
  status = panel_compare(p->call, panel, r);
  if (status != TOOL_DONE) return status;
  tool_marks_find(&panel->marks, r, &panel->limit, &panel->axis);
  tool_bands_find(&panel->bands, steps, &panel->axis);
  if (tool_timeline_init(&panel->timeline, ledger, &panel->axis, p->buckets) == TIDE_OK) return TOOL_DONE;
  return tool_fail("%s: %s", panel->file, tool_error());
}

static int panel_look(tool_plotting* p, tool_panel* panel, tool_recording* r) {
  tide_ledger* ledger = NULL;
  tool_sites sites;
  tool_steps steps;
  (void)tide_trace_entries(r->trace, r->device, &panel->entry_count);
  if (tide_ledger_new(r->trace, r->device, &ledger) != TIDE_OK)
    return tool_fail("%s: %s", panel->file, tool_error());
  panel->device = r->device;
  panel->device_count = tool_device_count(r->trace);
  panel->knows_reserved = tool_device_knows_reserved(r->trace, r->device);
  panel->is_from_start = r->is_from_start = tide_ledger_get_faults(ledger).is_from_start;
  panel->is_cut = tide_trace_get_about(r->trace).is_cut;
  if (tool_device_has_segments(r->trace, r->device))
    r->reserved_bytes = tide_ledger_get_peaks(ledger).reserved.bytes;
  tool_sites_init(&sites, r->trace);
  int status = tool_steps_init(&steps, p->call, r->trace, r->device, ledger, &sites);
  if (status == TOOL_DONE) {
    status = panel_draw(p, panel, r, ledger, &steps);
    tool_steps_fini(&steps);
  }
  tool_sites_fini(&sites);
  tide_ledger_free(ledger);
  return status;
}

static int panel_init(tool_plotting* p, size_t number) {
  tool_panel* const panel = &p->panels[number];
  tool_recording r = { .file = p->call->operands[number] };
  panel->file = r.file;
  int status = tool_trace_read(r.file, &r.trace);
  if (status == TOOL_DONE) status = tool_device_choose(p->call, r.trace, &r.device);
  if (status == TOOL_DONE) status = panel_look(p, panel, &r);
  tool_recording_close(&r);
  return status;
}

static void plotting_fini(tool_plotting* p) {
  for (size_t i = 0; i < p->count; i++) {
    tool_axis_fini(&p->panels[i].axis);
    tool_timeline_fini(&p->panels[i].timeline);
    tool_marks_fini(&p->panels[i].marks);
    tool_bands_fini(&p->panels[i].bands);
  }
  free(p->panels);
}

// ---------------------------------------------------------------------------------------------------
// As data

static void peak_emit(tool_emit* emit, const tide_ledger_peak* peak, bool is_known) {
  tool_emit_bytes_if(emit, is_known, NULL, NULL, peak->bytes);
  tool_emit_uint_if(emit, is_known && peak->at != TIDE_LEDGER_BEFORE, NULL, NULL, peak->at);
}

static void limit_emit(tool_emit* emit, const tool_limit* limit) {
  const bool has_limit = limit->bytes != TIDE_NO_LIMIT;
  const bool is_shown = tool_limit_is_shown(limit);
  tool_emit_bytes_if(emit, has_limit, NULL, NULL, limit->bytes);
  tool_emit_bool(emit, NULL, NULL, has_limit && !limit->is_given);
  tool_emit_bytes_if(emit, is_shown, NULL, NULL, limit->at_least);
  tool_emit_bytes_if(emit, is_shown, NULL, NULL, limit->less_than);
  tool_emit_bool(emit, NULL, NULL, is_shown && limit->is_certain);
}

static void file_emit(tool_emit* emit, const tool_panel* panel) {
  tool_emit_row(emit);
  tool_emit_text(emit, NULL, NULL, panel->file);
  tool_emit_uint(emit, NULL, NULL, panel->device);
  tool_emit_uint(emit, NULL, NULL, panel->entry_count);
  tool_emit_real(emit, NULL, NULL, tool_axis_value(&panel->axis, panel->axis.length), 6);
  tool_emit_bool(emit, NULL, NULL, panel->is_from_start);
  tool_emit_bool(emit, NULL, NULL, panel->is_cut);
  peak_emit(emit, &panel->timeline.peaks[TOOL_CURVE_RESERVED], panel->knows_reserved);
  peak_emit(emit, &panel->timeline.peaks[TOOL_CURVE_ALLOCATED], true);
  limit_emit(emit, &panel->limit);
}

static void files_emit(tool_emit* emit, const tool_plotting* p) {
  static const tool_column columns[] = {
    { "file", NULL },
    { "device", NULL },
    { "entries", NULL },
    { "length", NULL },
    { "is_from_start", NULL },
    { "is_cut", NULL },
    { "peak_reserved", NULL },
    { "peak_reserved_entry", NULL },
    { "peak_allocated", NULL },
    { "peak_allocated_entry", NULL },
    { "limit", NULL },
    { "is_limit_inferred", NULL },
    { "limit_at_least", NULL },
    { "limit_less_than", NULL },
    { "is_limit_certain", NULL },
  };
  tool_emit_table(emit, "files", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < p->count; i++) file_emit(emit, &p->panels[i]);
  tool_emit_table_end(emit);
}

static void point_emit(tool_emit* emit, const tool_panel* panel, size_t file, size_t bucket) {
  const tool_timeline* const t = &panel->timeline;
  const double length = tool_axis_value(&panel->axis, panel->axis.length);
  tool_emit_row(emit);
  tool_emit_uint(emit, NULL, NULL, file);
  tool_emit_real(emit, NULL, NULL, length * (double)bucket / (double)t->count - panel->axis.before, 6);
  tool_emit_uint(emit, NULL, NULL, t->buckets[bucket].entry_count);
  for (tool_curve curve = 0; curve < TOOL_CURVE_COUNT; curve++) {
    const tide_timeline_range* const range = tool_timeline_range(t, curve, bucket);
    const bool is_known = curve != TOOL_CURVE_RESERVED || panel->knows_reserved;
    tool_emit_uint_if(emit, is_known, NULL, NULL, range->least);
    tool_emit_uint_if(emit, is_known, NULL, NULL, range->most);
    tool_emit_uint_if(emit, is_known, NULL, NULL, range->last);
  }
}

static void points_emit(tool_emit* emit, const tool_plotting* p) {
  static const tool_column columns[] = {
    { "file", NULL },
    { "x", NULL },
    { "entries", NULL },
    { "reserved_least", NULL },
    { "reserved_most", NULL },
    { "reserved_last", NULL },
    { "allocated_least", NULL },
    { "allocated_most", NULL },
    { "allocated_last", NULL },
    { "requested_least", NULL },
    { "requested_most", NULL },
    { "requested_last", NULL },
  };
  tool_emit_table(emit, "points", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < p->count; i++) {
    for (size_t k = 0; k < p->panels[i].timeline.count; k++) point_emit(emit, &p->panels[i], i, k);
  }
  tool_emit_table_end(emit);
}

static void marks_emit(tool_emit* emit, const tool_plotting* p) {
  static const tool_column columns[] = { { "file", NULL }, { "kind", NULL },  { "entry", NULL },
                                         { "x", NULL },    { "bytes", NULL }, { "is_certain", NULL } };
  tool_emit_table(emit, "marks", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < p->count; i++) {
    const tool_panel* const panel = &p->panels[i];
    for (size_t k = 0; k < panel->marks.count; k++) {
      const tool_mark* const mark = &panel->marks.items[k];
      tool_emit_row(emit);
      tool_emit_uint(emit, NULL, NULL, i);
      tool_emit_text(emit, NULL, NULL, tool_mark_key(mark->kind));
      tool_emit_uint(emit, NULL, NULL, mark->entry);
      tool_emit_real(emit, NULL, NULL, tool_axis_number(&panel->axis, mark->place), 6);
      tool_emit_uint(emit, NULL, NULL, mark->bytes);
      tool_emit_bool(emit, NULL, NULL, mark->is_certain);
    }
  }
  tool_emit_table_end(emit);
}

static void bands_emit(tool_emit* emit, const tool_plotting* p) {
  static const tool_column columns[] = { { "file", NULL },  { "step", NULL }, { "range", NULL },
                                         { "depth", NULL }, { "from", NULL }, { "to", NULL } };
  tool_emit_table(emit, "bands", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < p->count; i++) {
    const tool_panel* const panel = &p->panels[i];
    for (size_t k = 0; k < panel->bands.count; k++) {
      const tool_band* const band = &panel->bands.items[k];
      tool_emit_row(emit);
      tool_emit_uint(emit, NULL, NULL, i);
      tool_emit_uint_if(emit, band->step > 0, NULL, NULL, band->step);
      tool_emit_text(emit, NULL, NULL, band->name);
      tool_emit_uint(emit, NULL, NULL, band->depth);
      tool_emit_real(emit, NULL, NULL, tool_axis_number(&panel->axis, band->first), 6);
      tool_emit_real(emit, NULL, NULL, tool_axis_number(&panel->axis, band->end), 6);
    }
  }
  tool_emit_table_end(emit);
}

// ---------------------------------------------------------------------------------------------------
// The answer

static void panel_emit_drawing(tool_emit* emit, const tool_plotting* p, const tool_panel* panel) {
  const tool_braille drawing = { .columns = p->width,
                                 .rows = p->height,
                                 .is_ascii = tool_terminal_columns(stdout) > 0 && !tool_terminal_has_utf8(),
                                 .has_color = tool_emit_has_color(emit),
                                 .knows_reserved = panel->knows_reserved,
                                 .top = plotting_highest(p),
                                 .length = tool_plotting_length(p),
                                 .marks = &panel->marks };
  tool_emit_title(emit, "%s, device %zu", panel->file, panel->device);
  char* const text = tool_braille_draw(&drawing, &panel->timeline, &panel->axis);
  tool_emit_drawing(emit, text);
  free(text);
}

// The peaks and the limit of the first recording.
static void panel_emit_facts(tool_emit* emit, const tool_panel* panel) {
  const tool_limit* const limit = &panel->limit;
  char sizes[2][TOOL_SIZE_TEXT];
  if (panel->knows_reserved)
    tool_emit_bytes(emit, NULL, "peak reserved", panel->timeline.peaks[TOOL_CURVE_RESERVED].bytes);
  tool_emit_bytes(emit, NULL, "peak allocated", panel->timeline.peaks[TOOL_CURVE_ALLOCATED].bytes);
  if (limit->is_given) {
    tool_emit_bytes(emit, NULL, "limit", limit->bytes);
  } else if (tool_limit_is_shown(limit)) {
    tool_size_pair(limit->at_least, limit->less_than, sizes[0], sizes[1]);
    tool_emit_format(emit, NULL, "limit (inferred)", "at least %s, less than %s%s", sizes[0], sizes[1],
                     limit->is_certain ? "" : "; none if empty_cache was called");
  }
}

static int plotting_emit(const tool_plotting* p, const char* output, uint64_t bytes) {
  tool_emit* const emit = tool_emit_begin(p->call);
  tool_emit_text(emit, "x", NULL, tool_axis_name(p->kind));
  tool_emit_uint(emit, "buckets", NULL, p->buckets);
  if (output == NULL) {
    for (size_t i = 0; i < p->count && !p->call->is_json; i++) panel_emit_drawing(emit, p, &p->panels[i]);
  }
  if (p->count == 1) panel_emit_facts(emit, &p->panels[0]);
  tool_emit_text(emit, "output", output != NULL ? "picture" : NULL, output);
  tool_emit_uint_if(emit, output != NULL, "bytes", "bytes written", bytes);
  if (p->call->is_json) {
    files_emit(emit, p);
    points_emit(emit, p);
    marks_emit(emit, p);
    bands_emit(emit, p);
  }
  return tool_emit_end(emit);
}

// ---------------------------------------------------------------------------------------------------
// The verb

static int number_parse(const tool_call* call, const char* name, size_t least, size_t most, size_t* out) {
  const char* const text = tool_option_value(call, name);
  uint64_t number = 0;
  if (text == NULL) return TOOL_DONE;
  if (!tool_number_parse(text, most, &number) || number < least)
    return tool_fail("--%s must be a whole number from %zu to %zu, not '%s'", name, least, most, text);
  *out = (size_t)number;
  return TOOL_DONE;
}

static int axis_parse(const tool_call* call, tool_axis_kind* out) {
  const char* const text = tool_option_value(call, "x");
  if (text == NULL) return TOOL_DONE;
  const int kind = tool_axis_from_name(text);
  if (kind < 0) return tool_fail("--x must be time, entry or step, not '%s'", text);
  *out = (tool_axis_kind)kind;
  return TOOL_DONE;
}

static int size_parse(tool_plotting* p, bool is_svg) {
  const size_t count = p->count;
  p->width = is_svg ? PLOT_WIDTH : tool_terminal_columns(stdout);
  if (p->width == 0) p->width = tool_text_columns(stdout);
  if (!is_svg && p->width < 40) p->width = 40;
  p->height = is_svg ? tool_plotting_svg_height(count) : PLOT_ROWS;
  int status = number_parse(p->call, "width", is_svg ? 320 : 40, is_svg ? 4000 : 1000, &p->width);
  if (status == TOOL_DONE)
    status = number_parse(p->call, "height", is_svg ? 240 : 2, is_svg ? 20000 : 200, &p->height);
  p->buckets = is_svg ? tool_plotting_svg_buckets(p->width, count) : tool_braille_buckets(p->width);
  return status;
}

static int output_check(const tool_call* call, const char* output) {
  if (output == NULL) return TOOL_DONE;
  if (call->is_json && strcmp(output, "-") == 0)
    return tool_fail("--json and the picture cannot both go to standard output; name a file with -o");
  for (int i = 0; i < call->operand_count; i++) {
    if (tool_file_is_input(output, call->operands[i]))
      return tool_fail("-o %s: the picture would overwrite the input", output);
  }
  return TOOL_DONE;
}

static int plotting_work(tool_plotting* p, const char* output) {
  uint64_t bytes = 0;
  int status = axis_parse(p->call, &p->kind);
  if (status == TOOL_DONE) status = size_parse(p, output != NULL || p->call->is_json);
  if (status == TOOL_DONE) status = output_check(p->call, output);
  for (size_t i = 0; i < p->count && status == TOOL_DONE; i++) status = panel_init(p, i);
  if (status == TOOL_DONE && output != NULL) status = tool_file_write(output, tool_plotting_draw, p, &bytes);
  if (status != TOOL_DONE || (output != NULL && strcmp(output, "-") == 0)) return status;
  return plotting_emit(p, output, bytes);
}

static int plot_run(const tool_call* call) {
  const char* const file = tool_option_value(call, "output");
  const char* const output = file == NULL && tool_option_value(call, "svg") != NULL ? "-" : file;
  tool_plotting p = { .call = call, .count = (size_t)call->operand_count };
  p.panels = tool_alloc(p.count, sizeof *p.panels);
  const int status = plotting_work(&p, output);
  plotting_fini(&p);
  return status;
}

static const tool_option plot_options[] = {
  { "svg", 0, NULL, "write an SVG picture to standard output, or to the file of -o" },
  { "output", 'o', "FILE", "write an SVG picture to FILE; '-' is standard output" },
  { "x", 'x', "AXIS",
    "what the x axis shows: time (the default, if the recording has times), entry or step" },
  { "device", 'd', "N",
    "the device to draw (default: the one that ran out of memory first, or the first with entries)" },
  { "limit", 'l', "SIZE", "draw this limit (default: the limit of the recorded run, as far as it shows)" },
  TOOL_STEP_OPTION,
  { "width", 'w', "N",
    "width of the picture in points (default: 960), or of the drawing in columns (default: the terminal)" },
  { "height", 0, "N", "height of the picture in points, or of the curves in rows (default: 16)" },
  { NULL, 0, NULL, NULL },
};

const tool_verb tool_plot = {
  .name = "plot",
  .summary = "draw the memory of a run over time",
  .operands = "FILE ...",
  .text =
      "Without --svg and -o it draws in the terminal: reserved memory as a line, allocated memory as an "
      "area. "
      "The SVG picture also has what was asked for, the limit, out of memory, flushes, calls to empty_cache, "
      "steps and ranges of the program. It needs no other file and adapts to light and dark pages. Several "
      "files are drawn with shared axes.\n\n"
      "Every column shows the least and the most in its part of the run, so no peak is lost. --json prints "
      "the "
      "same points as data.",
  .options = plot_options,
  .operands_min = 1,
  .operands_max = PLOT_FILES,
  .run = plot_run,
};
