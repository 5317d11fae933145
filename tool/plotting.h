// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the parts of tidemark plot share: the recordings, and what is drawn of them.
#ifndef TIDEMARK_TOOL_PLOTTING_H
#define TIDEMARK_TOOL_PLOTTING_H

#include "marks.h"

// One recording.
typedef struct tool_panel {
  const char* file;  // borrowed from the call
  size_t device;
  size_t device_count;  // of the recording
  size_t entry_count;
  bool knows_reserved;
  bool is_from_start;
  bool is_cut;
  tool_axis axis;
  tool_timeline timeline;
  tool_limit limit;
  tool_marks marks;
  tool_bands bands;
} tool_panel;

typedef struct tool_plotting {
  const tool_call* call;
  tool_axis_kind kind;
  size_t width;   // of the whole picture: points, or columns of the terminal
  size_t height;  // or rows
  size_t buckets;
  tool_panel* panels;  // owned
  size_t count;
} tool_plotting;

// The highest value that the picture shows: of the curves, and of a limit that is not far above them.
uint64_t tool_plotting_top(const tool_plotting* p);
// The length of the longest x axis, in units of tool_axis_value().
double tool_plotting_length(const tool_plotting* p);
// Is the limit of a panel known, and low enough to be in the picture?
bool tool_panel_shows_limit(const tool_plotting* p, const tool_panel* panel);

// Draws the SVG picture (plot_svg.c): a tool_file_writer of a tool_plotting. The number of buckets that it
// needs for a picture of this width, with this many panels.
tide_status tool_plotting_draw(const void* plotting, const tide_sink* sink);
size_t tool_plotting_svg_buckets(size_t width, size_t count);
size_t tool_plotting_svg_height(size_t count);  // unless --height is given

#endif
