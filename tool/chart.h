// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the parts of the SVG picture of tidemark plot share: the panel that is being drawn, and its scales.
// All lengths are points.
#ifndef TIDEMARK_TOOL_CHART_H
#define TIDEMARK_TOOL_CHART_H

#include "plotting.h"
#include "svg.h"

#define TOOL_CHART_LANE 17.0   // height of a lane
#define TOOL_CHART_LETTER 6.8  // width of a letter, about
#define TOOL_CHART_NAME 80u    // letters shown of a name

typedef struct tool_chart {
  tool_svg svg;
  const tool_plotting* plotting;  // borrowed
  size_t columns;                 // of panels
  size_t rows;
  double top;           // the highest value
  double length;        // of the x axis
  bool has_given_back;  // some panel has such a lane, and so on
  bool has_steps;
  size_t range_lanes;
  // The panel that is being drawn
  const tool_panel* panel;
  bool is_leftmost;  // and has the labels of all in its row
  double left;
  double upper;
  double width;
  double height;
} tool_chart;

static inline double tool_chart_x(const tool_chart* s, uint64_t place) {
  return s->left + tool_axis_value(&s->panel->axis, place) / s->length * s->width;
}

static inline double tool_chart_y(const tool_chart* s, uint64_t bytes) {
  return s->upper + s->height * (1 - (double)bytes / s->top);
}

// The width of a text of ASCII letters, about.
double tool_chart_text_width(const char* text);
// Text that is no markup and comes from no file.
void tool_chart_put_label(tool_chart* chart, const char* style, double x, double y, const char* text);

// Areas below the curves, the curves, and then the limit and the peaks with their labels (plot_curves.c).
void tool_chart_put_areas(tool_chart* chart);
void tool_chart_put_lines(tool_chart* chart);
void tool_chart_put_labels(tool_chart* chart);

// The sign of a mark around a place; shades for steps; refusals, and the lanes below the curves
// (plot_marks.c).
void tool_chart_put_mark(tool_chart* chart, tool_mark_kind kind, double x, double y);
void tool_chart_put_steps(tool_chart* chart);
void tool_chart_put_refusals(tool_chart* chart);
void tool_chart_put_lanes(tool_chart* chart);

#endif
