// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The picture of tidemark plot: a panel for each recording, with shared axes. Below the curves are lanes: one
// for memory that was given back, one for steps, and up to two for ranges of the program. A curve has two
// points in each bucket, its least and its most. A bucket is about a point wide, so no peak is lost, and a
// picture has at most some 100 KB whatever the length of the recording.
//
// Colours are written out, because programs that convert SVG for papers know no CSS variables.
#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "chart.h"
#include "ticks.h"

// In points.
#define SVG_LEFT 74.0     // of the first column of panels
#define SVG_RIGHT 22.0    // of the last
#define SVG_BETWEEN 26.0  // two columns
#define SVG_HEAD 84.0     // title, summary and legend
#define SVG_FOOT 44.0     // labels of the x axis
#define SVG_PANEL_HEAD 24.0
#define SVG_ROOM 24.0     // for labels above the highest value
#define SVG_BUCKETS 1000  // at most
#define SVG_LANES_OF_RANGES 2
#define SVG_TICK_WIDTH 110.0  // between ticks, about
#define SVG_TICK_HEIGHT 42.0

// ---------------------------------------------------------------------------------------------------
// Layout

static size_t columns_of(size_t count) {
  size_t columns = count > 3 ? 2 : 1;
  while (columns * columns * 2 < count) columns++;
  return columns;
}

static double panel_width(size_t width, size_t columns) {
  return ((double)width - SVG_LEFT - SVG_RIGHT - SVG_BETWEEN * (double)(columns - 1)) / (double)columns;
}

size_t tool_plotting_svg_buckets(size_t width, size_t count) {
  const double wide = panel_width(width, columns_of(count));
  return wide < 1 ? 1 : wide > SVG_BUCKETS ? SVG_BUCKETS : (size_t)wide;
}

size_t tool_plotting_svg_height(size_t count) {
  const size_t columns = columns_of(count);
  const size_t rows = (count + columns - 1) / columns;
  return rows == 1 ? 460 : 130 + rows * (columns == 1 ? 250 : 210);
}

static double lanes_height(const tool_chart* s) {
  return TOOL_CHART_LANE * (double)(s->has_given_back + s->has_steps + s->range_lanes);
}

static void chart_look(tool_chart* s) {
  const tool_plotting* const p = s->plotting;
  s->columns = columns_of(p->count);
  s->rows = (p->count + s->columns - 1) / s->columns;
  s->length = tool_plotting_length(p);
  for (size_t i = 0; i < p->count; i++) {
    const tool_panel* const panel = &p->panels[i];
    s->has_given_back |= panel->marks.counts[TOOL_MARK_FLUSH] + panel->marks.counts[TOOL_MARK_EMPTY_CACHE] >
                         0;
    s->has_steps |= panel->bands.step_count > 0;
    if (p->count > 1) continue;  // small panels have no room for more lanes
    s->range_lanes = tide__max(s->range_lanes, tide__min(panel->bands.depth_count, SVG_LANES_OF_RANGES));
  }
}

static void panel_place(tool_chart* s, size_t number) {
  const tool_plotting* const p = s->plotting;
  const double head = p->count > 1 ? SVG_PANEL_HEAD : 0;
  const double each = ((double)p->height - SVG_HEAD - SVG_FOOT) / (double)s->rows;
  const size_t row = number / s->columns;
  s->panel = &p->panels[number];
  s->width = panel_width(p->width, s->columns);
  s->is_leftmost = number % s->columns == 0;
  s->left = SVG_LEFT + (double)(number % s->columns) * (s->width + SVG_BETWEEN);
  s->upper = SVG_HEAD + head + (double)row * each;
  s->height = each - head - lanes_height(s) - (s->rows > 1 ? 12 : 0);
}

// ---------------------------------------------------------------------------------------------------
// Text

double tool_chart_text_width(const char* text) { return TOOL_CHART_LETTER * (double)strlen(text); }

void tool_chart_put_label(tool_chart* s, const char* style, double x, double y, const char* text) {
  tool_svg_put(&s->svg, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", style, x, y, text);
}

static const char* const picture_styles[] = {
  "text{font:12px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1b2027}",
  ".title{font-size:16px;font-weight:600}.panel{font-weight:600}",
  ".soft{fill:#5b6571}.end{text-anchor:end}.mid{text-anchor:middle}.small{font-size:10.5px}",
  ".halo{paint-order:stroke;stroke:#fff;stroke-opacity:.85;stroke-width:4px;stroke-linejoin:round}",
  "path{fill:none;stroke-linejoin:round}.page{fill:#fff}",
  ".grid{stroke:#1b2027;stroke-opacity:.1}.axis{stroke:#97a3af}",
  ".step{fill:#1b2027;fill-opacity:.045}.range{fill:#d3dde7}.range2{fill:#e8ddc9}",
  ".reserved{stroke:#6b7683;stroke-width:1.5}.reserved-area{fill:#e3e6ea}",
  ".allocated{stroke:#2f7dd1;stroke-width:1.4}.allocated-area{fill:#cbdff5}",
  ".requested{stroke:#1f9d7c;stroke-dasharray:2 3}",
  ".limit{stroke:#c2342b;stroke-width:1.3;stroke-dasharray:7 4}.limit-area{fill:#c2342b;fill-opacity:.09}",
  ".limit-text,.oom-text{fill:#b02c24}.oom{stroke:#c2342b;stroke-width:1.6}",
  ".faint{stroke-width:1;stroke-opacity:.3}",
  ".guide{stroke:#5b6571;stroke-dasharray:1 3}.flush{fill:#92590a}",
  ".empty_cache{fill:none;stroke:#92590a;stroke-width:1.6}.peak-r{fill:#6b7683}.peak-a{fill:#2f7dd1}",
  "@media(prefers-color-scheme:dark){text{fill:#e3e8ee}.soft{fill:#93a0ae}.halo{stroke:#171b21}",
  ".page{fill:#171b21}.grid{stroke:#e3e8ee;stroke-opacity:.1}.axis{stroke:#5d6a77}",
  ".step{fill:#e3e8ee;fill-opacity:.05}.range{fill:#33414f}.range2{fill:#4a4233}",
  ".reserved{stroke:#93a0ae}.reserved-area{fill:#2b323b}.allocated{stroke:#4c9be8}",
  ".allocated-area{fill:#23415f}.requested{stroke:#3dbe9a}.limit,.oom{stroke:#ff7a6e}",
  ".limit-area{fill:#ff7a6e;fill-opacity:.12}.limit-text,.oom-text{fill:#ff958b}.guide{stroke:#8b98a5}",
  ".flush{fill:#f0b655}.empty_cache{stroke:#f0b655}.peak-r{fill:#93a0ae}.peak-a{fill:#4c9be8}}",
};

// ---------------------------------------------------------------------------------------------------
// The head

static void put_summary(tool_chart* s) {
  const tool_panel* const panel = &s->plotting->panels[0];
  char size[TOOL_SIZE_TEXT];
  tool_svg_put(&s->svg, "<text class=\"soft\" x=\"%.0f\" y=\"46\">device %zu", SVG_LEFT, panel->device);
  if (panel->device_count > 1) tool_svg_put(&s->svg, " of %zu", panel->device_count);
  tool_svg_put(&s->svg, ", %zu entries, peak ", panel->entry_count);
  if (panel->knows_reserved)
    tool_svg_put(&s->svg, "reserved %s, ",
                 tool_size_text(panel->timeline.peaks[TOOL_CURVE_RESERVED].bytes, size));
  tool_svg_put(&s->svg, "allocated %s",
               tool_size_text(panel->timeline.peaks[TOOL_CURVE_ALLOCATED].bytes, size));
  if (!panel->is_from_start && panel->entry_count > 0)
    tool_svg_put_text(&s->svg, "; the recording begins in the middle of the run");
  if (panel->is_cut) tool_svg_put_text(&s->svg, "; its end is missing");
  tool_svg_put_text(&s->svg, "</text>\n");
}

static void put_head(tool_chart* s) {
  const tool_plotting* const p = s->plotting;
  const size_t letters = (size_t)((double)p->width / 9);
  tool_svg_put(&s->svg,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%zu\" height=\"%zu\" "
               "viewBox=\"0 0 %zu %zu\" role=\"img\">\n<title>Memory of ",
               p->width, p->height, p->width, p->height);
  tool_svg_put_name(&s->svg, tool_svg_file_name(p->panels[0].file), TOOL_CHART_NAME);
  if (p->count > 1) tool_svg_put(&s->svg, " and %zu more", p->count - 1);
  tool_svg_put_text(&s->svg, "</title>\n<style>\n");
  for (size_t i = 0; i < sizeof picture_styles / sizeof picture_styles[0]; i++) {
    tool_svg_put_text(&s->svg, picture_styles[i]);
    tool_svg_put_text(&s->svg, "\n");
  }
  tool_svg_put(&s->svg, "</style>\n<rect class=\"page\" width=\"%zu\" height=\"%zu\"/>\n", p->width,
               p->height);
  tool_svg_put(&s->svg, "<text class=\"title\" x=\"%.0f\" y=\"27\">", SVG_LEFT);
  if (p->count == 1) tool_svg_put_name(&s->svg, tool_svg_file_name(p->panels[0].file), letters);
  else tool_svg_put(&s->svg, "Memory of %zu recordings", p->count);
  tool_svg_put_text(&s->svg, "</text>\n");
  if (p->count == 1) put_summary(s);
}

// ---------------------------------------------------------------------------------------------------
// The legend

static double put_legend_line(tool_chart* s, double x, const char* style, const char* label) {
  const double y = SVG_HEAD - 18;
  tool_svg_put(&s->svg, "<path class=\"%s\" d=\"M%.1f %.1fh20\"/>", style, x, y - 4);
  tool_chart_put_label(s, "soft", x + 25, y, label);
  return x + 25 + tool_chart_text_width(label) + 18;
}

static bool plotting_has_mark(const tool_plotting* p, tool_mark_kind kind) {
  for (size_t i = 0; i < p->count; i++) {
    if (p->panels[i].marks.counts[kind] > 0) return true;
  }
  return false;
}

static void put_legend(tool_chart* s) {
  const tool_plotting* const p = s->plotting;
  bool knows_reserved = false;
  bool has_limit = false;
  double x = SVG_LEFT;
  for (size_t i = 0; i < p->count; i++) {
    knows_reserved |= p->panels[i].knows_reserved;
    has_limit |= tool_panel_shows_limit(p, &p->panels[i]);
  }
  if (knows_reserved) x = put_legend_line(s, x, "reserved", "reserved");
  x = put_legend_line(s, x, "allocated", "allocated");
  x = put_legend_line(s, x, "requested", "asked for");
  if (has_limit) x = put_legend_line(s, x, "limit", "limit");
  for (tool_mark_kind kind = 0; kind < TOOL_MARK_COUNT; kind++) {
    if (!plotting_has_mark(p, kind)) continue;
    tool_chart_put_mark(s, kind, x + 4, SVG_HEAD - 22);
    tool_chart_put_label(s, "soft", x + 13, SVG_HEAD - 18, tool_mark_label(kind));
    x += 13 + tool_chart_text_width(tool_mark_label(kind)) + 18;
  }
}

// ---------------------------------------------------------------------------------------------------
// Axes

static void put_grid(tool_chart* s) {
  const tool_ticks ticks = tool_ticks_of_bytes((uint64_t)s->top, s->height / SVG_TICK_HEIGHT);
  char text[TOOL_TICK_TEXT];
  for (int i = 0; i <= ticks.count; i++) {
    const double y = s->upper + s->height * (1 - i * ticks.step / s->top);
    tool_svg_put(&s->svg, "<path class=\"%s\" d=\"M%.1f %.1fh%.1f\"/>", i == 0 ? "axis" : "grid", s->left, y,
                 s->width);
    if (s->is_leftmost)
      tool_chart_put_label(s, "soft end", s->left - 8, y + 4, tool_tick_text(&ticks, i, i > 0, text));
  }
}

static void put_axis_name(tool_chart* s, const tool_ticks* ticks) {
  const tool_axis_kind kind = s->plotting->kind;
  const char* const name = kind == TOOL_AXIS_TIME    ? "time since the first entry"
                           : kind == TOOL_AXIS_ENTRY ? "entry of the recording"
                                                     : "step";
  tool_svg_put(&s->svg, "<text class=\"soft mid\" x=\"%.1f\" y=\"%.1f\">%s%s%s</text>\n",
               SVG_LEFT + ((double)s->plotting->width - SVG_LEFT - SVG_RIGHT) / 2,
               (double)s->plotting->height - 10, name, *ticks->name != '\0' ? ", in " : "", ticks->name);
}

// Steps have a lane with their numbers instead of ticks.
static void put_x_axis(tool_chart* s) {
  const tool_ticks ticks = tool_ticks_of_axis(s->plotting->kind, s->length, s->width / SVG_TICK_WIDTH);
  const double y = s->upper + s->height + lanes_height(s);
  char text[TOOL_TICK_TEXT];
  for (int i = 0; i <= ticks.count && s->plotting->kind != TOOL_AXIS_STEP; i++) {
    const double x = s->left + i * ticks.step / s->length * s->width;
    tool_svg_put(&s->svg, "<path class=\"axis\" d=\"M%.1f %.1fv4\"/>", x, s->upper + s->height);
    tool_chart_put_label(s, "soft mid", x, y + 17, tool_tick_text(&ticks, i, false, text));
  }
  if (s->panel == &s->plotting->panels[s->plotting->count - 1]) put_axis_name(s, &ticks);
}

// ---------------------------------------------------------------------------------------------------
// The picture

static void put_panel_title(tool_chart* s) {
  const size_t letters = (size_t)(s->width / 8);
  tool_svg_put(&s->svg, "<text class=\"panel\" x=\"%.1f\" y=\"%.1f\">", s->left, s->upper - 9);
  tool_svg_put_name(&s->svg, tool_svg_file_name(s->panel->file), letters > 12 ? letters - 11 : 1);
  tool_svg_put(&s->svg, "<tspan class=\"soft\" font-weight=\"400\"> device %zu</tspan></text>\n",
               s->panel->device);
}

static void put_panel(tool_chart* s, size_t number) {
  panel_place(s, number);
  tool_svg_put_text(&s->svg, "<g>\n");
  if (s->plotting->count > 1) put_panel_title(s);
  tool_chart_put_areas(s);
  tool_chart_put_steps(s);
  put_grid(s);
  tool_chart_put_lanes(s);
  tool_chart_put_lines(s);
  tool_chart_put_refusals(s);
  tool_chart_put_labels(s);
  if (s->panel->entry_count == 0)
    tool_chart_put_label(s, "soft mid halo", s->left + s->width / 2, s->upper + s->height / 2,
                         "no entries: only the state at the end is known");
  // Only the lowest panel of a column has labels below it.
  if (number + s->columns >= s->plotting->count) put_x_axis(s);
  tool_svg_put_text(&s->svg, "</g>\n");
}

tide_status tool_plotting_draw(const void* plotting, const tide_sink* sink) {
  tool_chart s = { .svg = { .sink = sink }, .plotting = plotting };
  chart_look(&s);
  panel_place(&s, 0);
  s.top = fmax(1, (double)tool_plotting_top(s.plotting)) / fmax(0.5, 1 - SVG_ROOM / s.height);
  put_head(&s);
  put_legend(&s);
  for (size_t i = 0; i < s.plotting->count; i++) put_panel(&s, i);
  tool_svg_put_text(&s.svg, "</svg>\n");
  return s.svg.status;
}
