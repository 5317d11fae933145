// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Draws a timeline for a terminal, in braille characters: each has two columns of four dots. Allocated memory
// is an area, reserved memory a line above it. Both peaks are labelled, and both axes have round ticks.
#ifndef TIDEMARK_TOOL_BRAILLE_H
#define TIDEMARK_TOOL_BRAILLE_H

#include "marks.h"

#define TOOL_BRAILLE_MARGIN 12  // columns to the left of the curves

typedef struct tool_braille {
  size_t columns;  // of the whole drawing; above TOOL_BRAILLE_MARGIN
  size_t rows;     // of the curves
  bool is_ascii;   // ' . : instead of braille, for a terminal that is not known to show UTF-8
  bool has_color;
  bool knows_reserved;
  uint64_t top;             // the highest value; 0: that of the timeline
  double length;            // of the x axis, in units of tool_axis_value(); 0: that of the axis
  const tool_marks* marks;  // borrowed; NULL: none
} tool_braille;

// The number of buckets that a drawing of this width needs: one for each column of dots.
size_t tool_braille_buckets(size_t columns);
// The drawing, as lines. Freed by free().
char* tool_braille_draw(const tool_braille* drawing, const tool_timeline* timeline, const tool_axis* axis);

// Does the environment name a locale with UTF-8?
bool tool_terminal_has_utf8(void);

#endif
