// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The curves of a panel, their peaks, and the limit.
#include "chart.h"

// ---------------------------------------------------------------------------------------------------
// Curves

// Writes the points of a line, without those inside a horizontal stretch.
typedef struct plot_pen {
  tool_svg* svg;
  double x;  // of the last point
  double y;
  bool is_level;  // it has the height of the one before, and is not written yet
  bool has_point;
} plot_pen;

static void pen_put(plot_pen* pen, double x, double y) {
  tool_svg_put(pen->svg, "%s%.1f %.1f", pen->has_point ? " " : "M", x, y);
}

static void pen_to(plot_pen* pen, double x, double y) {
  const bool is_level = pen->has_point && fabs(y - pen->y) < 0.01;
  if (pen->is_level && !is_level) pen_put(pen, pen->x, pen->y);
  if (!is_level) pen_put(pen, x, y);
  pen->is_level = is_level;
  pen->x = x;
  pen->y = y;
  pen->has_point = true;
}

static void pen_end(plot_pen* pen) {
  if (pen->is_level) pen_put(pen, pen->x, pen->y);
}

static double bucket_x(const tool_chart* s, double bucket) {
  const double part = bucket / (double)s->panel->timeline.count;
  return s->left + part * tool_axis_value(&s->panel->axis, s->panel->axis.length) / s->length * s->width;
}

static double rounded(double value) { return round(10 * value) / 10; }

// The line passes the least and the most of each bucket at its middle, the nearer one first.
static void put_line(tool_chart* s, tool_curve curve, const char* style) {
  const tool_timeline* const t = &s->panel->timeline;
  plot_pen pen = { .svg = &s->svg };
  tool_svg_put(&s->svg, "<path class=\"%s\" d=\"", style);
  for (size_t i = 0; i < t->count; i++) {
    const double x = bucket_x(s, (double)i + 0.5);
    const tide_timeline_range* const range = tool_timeline_range(t, curve, i);
    const uint64_t before = i > 0 ? tool_timeline_range(t, curve, i - 1)->last : range->least;
    const bool rises = before - range->least <= range->most - before;
    if (i == 0) pen_to(&pen, s->left, rounded(tool_chart_y(s, before)));
    pen_to(&pen, x, rounded(tool_chart_y(s, rises ? range->least : range->most)));
    pen_to(&pen, x, rounded(tool_chart_y(s, rises ? range->most : range->least)));
  }
  const double last = tool_chart_y(s, tool_timeline_range(t, curve, t->count - 1)->last);
  pen_to(&pen, bucket_x(s, (double)t->count), rounded(last));
  pen_end(&pen);
  tool_svg_put_text(&s->svg, "\"/>\n");
}

static void put_area(tool_chart* s, tool_curve curve, const char* style) {
  const tool_timeline* const t = &s->panel->timeline;
  const double bottom = s->upper + s->height;
  plot_pen pen = { .svg = &s->svg };
  tool_svg_put(&s->svg, "<path class=\"%s\" d=\"", style);
  pen_to(&pen, s->left, bottom);
  for (size_t i = 0; i < t->count; i++)
    pen_to(&pen, bucket_x(s, (double)i + 0.5),
           rounded(tool_chart_y(s, tool_timeline_range(t, curve, i)->most)));
  const double right = bucket_x(s, (double)t->count);
  pen_to(&pen, right, rounded(tool_chart_y(s, tool_timeline_range(t, curve, t->count - 1)->last)));
  pen_end(&pen);
  tool_svg_put(&s->svg, "V%.1fz\"/>\n", bottom);
}

void tool_chart_put_areas(tool_chart* s) {
  if (s->panel->knows_reserved) put_area(s, TOOL_CURVE_RESERVED, "reserved-area");
  put_area(s, TOOL_CURVE_ALLOCATED, "allocated-area");
}

void tool_chart_put_lines(tool_chart* s) {
  if (s->panel->knows_reserved) put_line(s, TOOL_CURVE_RESERVED, "reserved");
  put_line(s, TOOL_CURVE_ALLOCATED, "allocated");
  put_line(s, TOOL_CURVE_REQUESTED, "requested");
}

// ---------------------------------------------------------------------------------------------------
// Labels

// A label near a place of the panel, which does not leave it. Returns its left end.
static double put_label_inside(tool_chart* s, const char* style, double x, double y, const char* text) {
  const double wide = tool_chart_text_width(text);
  const double right = s->left + s->width;
  double from = x - wide / 2;
  if (from + wide > right - 4) from = right - 4 - wide;
  if (from < s->left + 4) from = s->left + 4;
  tool_chart_put_label(s, style, from, y, text);
  return from;
}

typedef struct chart_box {
  double left;
  double right;
  double y;
} chart_box;

static bool boxes_meet(const chart_box* a, const chart_box* b) {
  return a->left < b->right + 8 && b->left < a->right + 8 && fabs(a->y - b->y) < 15;
}

static chart_box put_peak(tool_chart* s, tool_curve curve, const char* word, const char* dot,
                          const chart_box* other) {
  const tool_timeline* const t = &s->panel->timeline;
  const double x = tool_chart_x(s, t->places[curve]);
  const double y = tool_chart_y(s, t->peaks[curve].bytes);
  char size[TOOL_SIZE_TEXT];
  char text[2 * TOOL_SIZE_TEXT];
  (void)snprintf(text, sizeof text, "%s%s", tool_size_text(t->peaks[curve].bytes, size),
                 s->plotting->count == 1 ? word : "");
  chart_box box = { x - tool_chart_text_width(text) / 2, x + tool_chart_text_width(text) / 2, y - 8 };
  if (box.y < s->upper + 10) box.y = s->upper + 10;
  if (other != NULL && boxes_meet(&box, other)) box.y = y + 17;
  tool_svg_put(&s->svg, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>", dot, x, y);
  box.left = put_label_inside(s, "halo", x, box.y, text);
  box.right = box.left + tool_chart_text_width(text);
  return box;
}

static const char* limit_text(const tool_chart* s, char* out, size_t room) {
  const tool_limit* const limit = &s->panel->limit;
  char sizes[2][TOOL_SIZE_TEXT];
  if (limit->is_given) {
    (void)snprintf(out, room, "limit %s", tool_size_text(limit->bytes, sizes[0]));
  } else {
    tool_size_pair(limit->at_least, limit->less_than, sizes[0], sizes[1]);
    (void)snprintf(out, room, "limit%s: at least %s, less than %s",
                   limit->is_certain ? "" : ", if there is one", sizes[0], sizes[1]);
  }
  return out;
}

// A line at the limit; if it is inferred, also an area between its bounds.
static void put_limit(tool_chart* s, const chart_box* peak) {
  const tool_limit* const limit = &s->panel->limit;
  char text[160];
  if (!tool_panel_shows_limit(s->plotting, s->panel)) return;
  const double y = tool_chart_y(s, limit->bytes);
  if (!limit->is_given) {
    const double low = tool_chart_y(s, limit->at_least);
    const double high = fmax(s->upper, tool_chart_y(s, limit->less_than));
    tool_svg_put(&s->svg, "<rect class=\"limit-area\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>",
                 s->left, high, s->width, fmax(0, low - high));
  }
  tool_svg_put(&s->svg, "<path class=\"limit\" d=\"M%.1f %.1fh%.1f\"><title>%s</title></path>\n", s->left, y,
               s->width, limit_text(s, text, sizeof text));
  if (s->plotting->count > 1) return;
  const double wide = tool_chart_text_width(text);
  chart_box box = { s->left + s->width - 6 - wide, s->left + s->width - 6, y - 6 };
  const bool is_left = boxes_meet(&box, peak);
  tool_chart_put_label(s, "limit-text halo", is_left ? s->left + 6 : box.left, y - 6, text);
}

void tool_chart_put_labels(tool_chart* s) {
  chart_box peak = { 0, 0, 0 };
  if (s->panel->knows_reserved) peak = put_peak(s, TOOL_CURVE_RESERVED, " reserved", "peak-r", NULL);
  put_limit(s, &peak);
  (void)put_peak(s, TOOL_CURVE_ALLOCATED, " allocated", "peak-a", &peak);
}
