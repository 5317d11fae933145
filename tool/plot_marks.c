// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The marks of a panel, and the lanes below its curves.
#include "chart.h"

#define MARK_GAP 9.0    // marks of a kind that are closer are one
#define MARKS_FEW 5u    // more refusals have faint lines
#define BAND_LEAST 2.0  // width of a band

void tool_chart_put_mark(tool_chart* s, tool_mark_kind kind, double x, double y) {
  if (kind == TOOL_MARK_FLUSH)
    tool_svg_put(&s->svg, "<path class=\"flush\" d=\"M%.1f %.1fh8l-4 7z\"/>", x - 4, y - 3.5);
  else if (kind == TOOL_MARK_EMPTY_CACHE)
    tool_svg_put(&s->svg, "<circle class=\"empty_cache\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\"/>", x, y);
  else tool_svg_put(&s->svg, "<path class=\"oom\" d=\"M%.1f %.1fl7 7m0-7l-7 7\"/>", x - 3.5, y - 3.5);
}

// ---------------------------------------------------------------------------------------------------
// Marks and bands

static void put_mark_title(tool_chart* s, const tool_mark* mark, size_t count) {
  char size[TOOL_SIZE_TEXT];
  tool_svg_put(&s->svg, "<title>%s at entry %llu: %s %s", tool_mark_label(mark->kind),
               (unsigned long long)mark->entry, tool_size_text(mark->bytes, size),
               mark->kind == TOOL_MARK_OOM ? "refused" : "given back");
  if (!mark->is_certain) tool_svg_put_text(&s->svg, "; it may have been the other kind");
  if (count > 1) tool_svg_put(&s->svg, "; and %zu more here", count - 1);
  tool_svg_put_text(&s->svg, "</title>");
}

// One sign for `count` marks of a kind, the first of which is given.
static void put_marks_at(tool_chart* s, const tool_mark* mark, size_t count, double lane) {
  const bool is_oom = mark->kind == TOOL_MARK_OOM;
  const bool is_crowded = s->panel->marks.counts[mark->kind] > MARKS_FEW;
  const double x = tool_chart_x(s, mark->place);
  tool_svg_put_text(&s->svg, "<g>");
  put_mark_title(s, mark, count);
  tool_svg_put(&s->svg, "<path class=\"%s\" d=\"M%.1f %.1fV%.1f\"/>",
               is_oom ? is_crowded ? "oom faint" : "oom" : "guide", x, s->upper,
               is_oom ? s->upper + s->height : lane);
  tool_chart_put_mark(s, mark->kind, x, is_oom ? s->upper : lane + 3);
  tool_svg_put_text(&s->svg, "</g>\n");
}

// The marks of one kind; those that are close together have one sign.
static void put_marks_of(tool_chart* s, tool_mark_kind kind, double lane) {
  const tool_marks* const marks = &s->panel->marks;
  const tool_mark* first = NULL;
  size_t count = 0;
  for (size_t i = 0; i < marks->count; i++) {
    const tool_mark* const mark = &marks->items[i];
    if (mark->kind != kind) continue;
    const bool is_near = first != NULL &&
                         tool_chart_x(s, mark->place) < tool_chart_x(s, first->place) + MARK_GAP;
    if (first != NULL && !is_near) put_marks_at(s, first, count, lane);
    count = is_near ? count + 1 : 1;
    if (!is_near) first = mark;
  }
  if (first != NULL) put_marks_at(s, first, count, lane);
}

// Names the first refusal, near the bottom, where no other labels are.
static void put_oom_label(tool_chart* s) {
  const tool_marks* const marks = &s->panel->marks;
  char size[TOOL_SIZE_TEXT];
  char text[128];
  size_t first = 0;
  if (marks->counts[TOOL_MARK_OOM] == 0) return;
  while (marks->items[first].kind != TOOL_MARK_OOM) first++;
  (void)snprintf(text, sizeof text, "out of memory: %s asked for",
                 tool_size_text(marks->items[first].bytes, size));
  const double x = tool_chart_x(s, marks->items[first].place);
  const bool is_right = x + 8 + tool_chart_text_width(text) < s->left + s->width;
  tool_chart_put_label(s, is_right ? "oom-text halo" : "oom-text halo end", is_right ? x + 8 : x - 8,
                       s->upper + s->height - 10, text);
}

// Shades every second step.
void tool_chart_put_steps(tool_chart* s) {
  const tool_bands* const bands = &s->panel->bands;
  const double wide = tool_chart_x(s, s->panel->axis.length) - s->left;
  if (bands->step_count == 0 || wide / (double)bands->step_count < 2 * BAND_LEAST) return;
  tool_svg_put_text(&s->svg, "<path class=\"step\" d=\"");
  for (size_t i = 1; i < bands->step_count; i += 2) {
    const double x = tool_chart_x(s, bands->items[i].first);
    tool_svg_put(&s->svg, "M%.1f %.1fH%.1fV%.1fH%.1fz", x, s->upper, tool_chart_x(s, bands->items[i].end),
                 s->upper + s->height, x);
  }
  tool_svg_put_text(&s->svg, "\"/>\n");
}

// The numbers of steps, as many as have room.
static void put_step_numbers(tool_chart* s, double lane) {
  const tool_bands* const bands = &s->panel->bands;
  double free_from = s->left - 1;
  char text[32];
  if (s->is_leftmost) tool_chart_put_label(s, "soft small end", s->left - 8, lane + 6, "step");
  for (size_t i = 0; i < bands->step_count; i++) {
    const tool_band* const band = &bands->items[i];
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)band->step);
    const double x = (tool_chart_x(s, band->first) + tool_chart_x(s, band->end)) / 2;
    const double wide = tool_chart_text_width(text);
    if (x - wide / 2 < free_from || x + wide / 2 > s->left + s->width + 8) continue;
    tool_chart_put_label(s, "soft small mid", x, lane + 6, text);
    free_from = x + wide / 2 + 10;
  }
}

static void put_range(tool_chart* s, const tool_band* band, double from, double to, double lane) {
  const size_t letters = (size_t)((to - from - 6) / TOOL_CHART_LETTER);
  tool_svg_put(&s->svg, "<g><title>");
  tool_svg_put_name(&s->svg, band->name, TOOL_CHART_NAME);
  tool_svg_put(&s->svg,
               "</title><rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"12\" rx=\"2\"/>",
               band->depth % 2 == 0 ? "range" : "range2", from, lane - 4, to - from);
  if (to - from > 40) {
    tool_svg_put(&s->svg, "<text class=\"small\" x=\"%.1f\" y=\"%.1f\">", from + 4, lane + 5.5);
    tool_svg_put_name(&s->svg, band->name, letters > 1 ? letters - 1 : 1);
    tool_svg_put_text(&s->svg, "</text>");
  }
  tool_svg_put_text(&s->svg, "</g>\n");
}

// Ranges of one depth. One that would be too narrow to see is as wide as a band must be, or left out if it
// would cover the one before.
static void put_ranges(tool_chart* s, size_t depth, double lane) {
  const tool_bands* const bands = &s->panel->bands;
  double free_from = s->left;
  if (depth == 0 && s->is_leftmost) tool_chart_put_label(s, "soft small end", s->left - 8, lane + 6, "range");
  for (size_t i = bands->step_count; i < bands->count; i++) {
    const tool_band* const band = &bands->items[i];
    if (band->depth != depth) continue;
    const double from = tool_chart_x(s, band->first);
    const double to = fmax(tool_chart_x(s, band->end), from + BAND_LEAST);
    if (from < free_from || to > s->left + s->width + BAND_LEAST) continue;
    put_range(s, band, from, to, lane);
    free_from = to + 1;
  }
}

void tool_chart_put_lanes(tool_chart* s) {
  double lane = s->upper + s->height + TOOL_CHART_LANE / 2 + 1;
  if (s->has_given_back) {
    put_marks_of(s, TOOL_MARK_FLUSH, lane);
    put_marks_of(s, TOOL_MARK_EMPTY_CACHE, lane);
    if (s->is_leftmost) tool_chart_put_label(s, "soft small end", s->left - 8, lane + 6, "given back");
    lane += TOOL_CHART_LANE;
  }
  if (s->has_steps) {
    put_step_numbers(s, lane);
    lane += TOOL_CHART_LANE;
  }
  for (size_t i = 0; i < s->range_lanes; i++) put_ranges(s, i, lane + (double)i * TOOL_CHART_LANE);
}

void tool_chart_put_refusals(tool_chart* s) {
  put_marks_of(s, TOOL_MARK_OOM, 0);
  if (s->plotting->count == 1) put_oom_label(s);
}
