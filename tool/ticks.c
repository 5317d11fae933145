// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Steps are round in the unit that is printed, which for sizes is a power of 1024.
#include "ticks.h"

#define TICKS_MOST 1000

double tool_ticks_step(double whole, double count) {
  const double rough = whole / count;
  const double power = pow(10, floor(log10(rough)));
  const double digit = rough / power;
  return power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
}

static tool_ticks ticks_in(double whole, double count, double unit, const char* name, bool is_whole) {
  double step = tool_ticks_step(whole / unit, count < 1 ? 1 : count);
  if (is_whole) step = fmax(step, 1);
  const double last = floor(whole / unit / step + 0.001);
  return (tool_ticks){ step * unit, last < TICKS_MOST ? (int)last : TICKS_MOST, unit, name };
}

tool_ticks tool_ticks_of_bytes(uint64_t whole, double count) {
  static const char* const names[] = { "B", "KiB", "MiB", "GiB", "TiB" };
  const tool_unit unit = tool_size_unit(whole);
  return ticks_in(whole > 0 ? (double)whole : 1, count, (double)(UINT64_C(1) << 10 * unit), names[unit],
                  unit == TOOL_UNIT_B);
}

static tool_ticks ticks_of_time(double ms, double count) {
  static const struct {
    double ms;
    const char* name;
  } units[] = { { 3600e3, "h" }, { 60e3, "min" }, { 1e3, "s" }, { 1, "ms" }, { 1e-3, "\xc2\xb5s" } };
  for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
    const double least = units[i].ms > 1e3 ? 2 * units[i].ms : units[i].ms;
    if (ms >= least) return ticks_in(ms, count, units[i].ms, units[i].name, false);
  }
  return ticks_in(ms, count, 1e-6, "ns", true);
}

tool_ticks tool_ticks_of_axis(tool_axis_kind kind, double whole, double count) {
  if (kind == TOOL_AXIS_TIME) return ticks_of_time(whole, count);
  return ticks_in(whole, count, 1, "", true);
}

const char* tool_tick_text(const tool_ticks* ticks, int i, bool has_unit, char out[TOOL_TICK_TEXT]) {
  const bool is_named = has_unit && *ticks->name != '\0';
  (void)snprintf(out, TOOL_TICK_TEXT, "%.12g%s%s", i * ticks->step / ticks->unit, is_named ? " " : "",
                 is_named ? ticks->name : "");
  return out;
}
