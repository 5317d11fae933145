// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Round numbers for the axes of pictures.
#ifndef TIDEMARK_TOOL_TICKS_H
#define TIDEMARK_TOOL_TICKS_H

#include "timeline.h"

// 1, 2 or 5 times a power of ten, so that about `count` of them make the whole (above 0).
double tool_ticks_step(double whole, double count);

// The ticks of an axis from 0 to `whole`, in a unit that suits it. Tick i is at i * step.
typedef struct tool_ticks {
  double step;
  int count;         // the last tick
  double unit;       // what `name` stands for
  const char* name;  // "GiB", "s"; "" if there is none
} tool_ticks;

tool_ticks tool_ticks_of_bytes(uint64_t whole, double count);
// For a value of tool_axis_value().
tool_ticks tool_ticks_of_axis(tool_axis_kind kind, double whole, double count);

// The label of tick i: "1.5 GiB", without the unit on request.
#define TOOL_TICK_TEXT 48
const char* tool_tick_text(const tool_ticks* ticks, int i, bool has_unit, char out[TOOL_TICK_TEXT]);

#endif
