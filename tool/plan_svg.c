// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The picture of a plan: time goes to the right, offsets upwards. Each piece of memory that a buffer holds is
// a rectangle, so a gap is a hole. Buffers of one size share a colour. Pointing at a buffer shows its name.
//
// Coordinates are whole tenths of a point, which keeps them short. A piece narrower or lower than a point has
// no rectangle and no name: such pieces darken the cells of a grid, one point wide and high, and neighbouring
// dark cells of a row are one stroke. If too many pieces are left, only the larger ones get rectangles, so a
// picture has a few megabytes at most. Cost: O(n) for n pieces, some ten times; the grid has 648,000 bytes.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planning.h"
#include "svg.h"
#include "ticks.h"

// In tenths of a point.
#define SVG_WIDTH 12000
#define SVG_HEIGHT 7400
#define SVG_LEFT 950
#define SVG_TOP 700
#define SVG_PLOT_WIDTH 10800
#define SVG_PLOT_HEIGHT 6000
#define SVG_BOTTOM (SVG_TOP + SVG_PLOT_HEIGHT)
#define SVG_CELL 10

#define SVG_COLUMNS (SVG_PLOT_WIDTH / SVG_CELL)
#define SVG_ROWS (SVG_PLOT_HEIGHT / SVG_CELL)
#define SVG_RECTANGLES 30000u  // at most
#define SVG_COLORS 12u
#define SVG_TICKS 8.0  // about
#define SVG_NAME 60u   // letters shown of a name
#define SVG_FAR 1.5    // a capacity this many times the peak is not drawn

static const char* const svg_colors[SVG_COLORS] = { "#4c78a8", "#f58518", "#54a24b", "#e45756",
                                                    "#72b7b2", "#eeca3b", "#b279a2", "#ff9da6",
                                                    "#9d755d", "#7f9fc4", "#8cc57e", "#c8a15a" };

// What a buffer holds from one instant to another, in bytes of the arena.
typedef struct svg_piece {
  uint64_t lower;
  uint64_t upper;
  uint64_t first;
  uint64_t last;
} svg_piece;

typedef struct svg_picture {
  const tool_planning* planning;
  tool_svg svg;
  uint64_t first_time;
  double time_scale;    // tenths of a point for an instant
  double offset_scale;  // and for a byte
  uint64_t top;         // the highest offset that is drawn
  double least_side;    // of a rectangle
  uint64_t hidden;      // pieces without a rectangle
  uint8_t* grid;        // owned; by row from the bottom, and column
  // Of one buffer
  tide_plan_gap* gaps;  // owned; by time
  size_t gap_room;
  svg_piece* pieces;  // owned; twice as many have room
  size_t piece_count;
} svg_picture;

// ---------------------------------------------------------------------------------------------------
// Places

static long svg_x(const svg_picture* s, uint64_t time) {
  return SVG_LEFT + lround((double)(time - s->first_time) * s->time_scale);
}

static long svg_y(const svg_picture* s, uint64_t offset) {
  return SVG_BOTTOM - lround((double)offset * s->offset_scale);
}

static bool svg_is_held(const tide_plan_buffer* buffer) {
  return buffer->bytes > 0 && buffer->lower < buffer->upper;
}

// The scales: times from the first to the last live instant, and offsets up to the highest line.
static void svg_scale(svg_picture* s) {
  const tool_planning* const p = s->planning;
  uint64_t last_time = 0;
  s->first_time = UINT64_MAX;
  for (size_t i = 0; i < p->view.count; i++) {
    const tide_plan_buffer* const buffer = &p->view.buffers[i];
    if (!svg_is_held(buffer)) continue;
    if (buffer->lower < s->first_time) s->first_time = buffer->lower;
    if (buffer->upper > last_time) last_time = buffer->upper;
  }
  if (last_time == 0) s->first_time = 0;
  if (last_time <= s->first_time) last_time = s->first_time + 1;
  s->top = p->outcome.peak > 0 ? p->outcome.peak : 1;
  if (p->view.pools > 0 && p->capacity > s->top && (double)p->capacity < SVG_FAR * (double)s->top)
    s->top = p->capacity;
  s->time_scale = SVG_PLOT_WIDTH / (double)(last_time - s->first_time);
  s->offset_scale = SVG_PLOT_HEIGHT / (double)s->top;
}

// ---------------------------------------------------------------------------------------------------
// Pieces

static int svg_gap_compare(const void* a, const void* b) {
  const tide_plan_gap* const x = a;
  const tide_plan_gap* const y = b;
  return (x->lower > y->lower) - (x->lower < y->lower);
}

static void svg_piece_add(svg_picture* s, svg_piece piece) {
  if (piece.lower < piece.upper && piece.first < piece.last) s->pieces[s->piece_count++] = piece;
}

// Finds what a buffer holds, by time.
static void svg_pieces_find(svg_picture* s, size_t position) {
  const tide_plan_buffer* const buffer = &s->planning->view.buffers[position];
  const uint64_t offset = s->planning->offsets[position];
  uint64_t from = buffer->lower;
  s->piece_count = 0;
  if (buffer->gap_count >= s->gap_room) {
    s->gap_room = buffer->gap_count + 1;
    s->gaps = tool_grow(s->gaps, s->gap_room, sizeof *s->gaps);
    s->pieces = tool_grow(s->pieces, 2 * s->gap_room, sizeof *s->pieces);
  }
  if (buffer->gap_count > 0) memcpy(s->gaps, buffer->gaps, buffer->gap_count * sizeof *s->gaps);
  if (buffer->gap_count > 1) qsort(s->gaps, buffer->gap_count, sizeof *s->gaps, svg_gap_compare);
  for (size_t i = 0; i < buffer->gap_count; i++) {
    const tide_plan_gap* const gap = &s->gaps[i];
    svg_piece_add(s, (svg_piece){ from, gap->lower, offset, offset + buffer->bytes });
    svg_piece_add(s, (svg_piece){ gap->lower, gap->upper, offset + gap->first, offset + gap->last });
    from = gap->upper;
  }
  svg_piece_add(s, (svg_piece){ from, buffer->upper, offset, offset + buffer->bytes });
}

static bool svg_is_hidden(const svg_picture* s, const svg_piece* piece) {
  return (double)(piece->upper - piece->lower) * s->time_scale < s->least_side ||
         (double)(piece->last - piece->first) * s->offset_scale < s->least_side;
}

// Decides which pieces have a rectangle of their own.
static size_t svg_shown_count(svg_picture* s) {
  size_t count = 0;
  s->hidden = 0;
  for (size_t i = 0; i < s->planning->view.count; i++) {
    svg_pieces_find(s, i);
    for (size_t k = 0; k < s->piece_count; k++) {
      const bool is_hidden = svg_is_hidden(s, &s->pieces[k]);
      s->hidden += is_hidden;
      count += !is_hidden;
    }
  }
  return count;
}

// ---------------------------------------------------------------------------------------------------
// Buffers

static uint32_t svg_color_of(uint64_t bytes) {
  return (uint32_t)((bytes * 0x9e3779b97f4a7c15u) >> 32) % SVG_COLORS;
}

static void svg_put_rectangle(svg_picture* s, const svg_piece* piece) {
  const long x = svg_x(s, piece->lower);
  const long y = svg_y(s, piece->last);
  const long width = svg_x(s, piece->upper) - x;
  tool_svg_put(&s->svg, "M%ld %ldh%ldv%ldh-%ldz", x, y, width, svg_y(s, piece->first) - y, width);
}

static void svg_put_buffer(svg_picture* s, size_t position) {
  const tool_planning* const p = s->planning;
  const tide_plan_buffer* const buffer = &p->view.buffers[position];
  bool is_shown = false;
  svg_pieces_find(s, position);
  for (size_t i = 0; i < s->piece_count; i++) {
    if (svg_is_hidden(s, &s->pieces[i])) continue;
    if (!is_shown) tool_svg_put_text(&s->svg, "<path d=\"");
    is_shown = true;
    svg_put_rectangle(s, &s->pieces[i]);
  }
  if (!is_shown) return;
  tool_svg_put_text(&s->svg, "\"><title>");
  tool_svg_put_name(&s->svg, tide_problem_name(p->problem, position, NULL), SVG_NAME);
  tool_svg_put(&s->svg, ": %llu bytes at %llu, from %llu to %llu</title></path>\n",
               (unsigned long long)buffer->bytes, (unsigned long long)p->offsets[position],
               (unsigned long long)buffer->lower, (unsigned long long)buffer->upper);
}

static void svg_put_buffers(svg_picture* s) {
  const tool_planning* const p = s->planning;
  for (uint32_t color = 0; color < SVG_COLORS; color++) {
    tool_svg_put(&s->svg, "<g fill=\"%s\">\n", svg_colors[color]);
    for (size_t i = 0; i < p->view.count; i++) {
      if (svg_color_of(p->view.buffers[i].bytes) == color) svg_put_buffer(s, i);
    }
    tool_svg_put_text(&s->svg, "</g>\n");
  }
}

// ---------------------------------------------------------------------------------------------------
// The grid of small pieces

static size_t svg_cell(double place, size_t count) {
  const double cell = place / SVG_CELL;
  return cell >= (double)count ? count - 1 : (size_t)cell;
}

// Darkens all cells that a piece touches. An end on the edge of a cell does not touch that cell.
static void svg_grid_add(svg_picture* s, const svg_piece* piece) {
  const size_t left = svg_cell((double)(piece->lower - s->first_time) * s->time_scale, SVG_COLUMNS);
  const size_t low = svg_cell((double)piece->first * s->offset_scale, SVG_ROWS);
  size_t right = svg_cell((double)(piece->upper - s->first_time) * s->time_scale - 0.5, SVG_COLUMNS);
  size_t high = svg_cell((double)piece->last * s->offset_scale - 0.5, SVG_ROWS);
  if (right < left) right = left;
  if (high < low) high = low;
  for (size_t row = low; row <= high; row++) memset(s->grid + row * SVG_COLUMNS + left, 1, right - left + 1);
}

static void svg_grid_fill(svg_picture* s) {
  for (size_t i = 0; i < s->planning->view.count; i++) {
    svg_pieces_find(s, i);
    for (size_t k = 0; k < s->piece_count; k++) {
      if (svg_is_hidden(s, &s->pieces[k])) svg_grid_add(s, &s->pieces[k]);
    }
  }
}

static void svg_put_grid_row(svg_picture* s, size_t row) {
  const uint8_t* const cells = s->grid + row * SVG_COLUMNS;
  const size_t y = SVG_BOTTOM - row * SVG_CELL - SVG_CELL / 2;
  for (size_t at = 0; at < SVG_COLUMNS; at++) {
    if (cells[at] == 0) continue;
    const size_t first = at;
    while (at < SVG_COLUMNS && cells[at] != 0) at++;
    tool_svg_put(&s->svg, "M%zu %zuh%zu", SVG_LEFT + first * SVG_CELL, y, (at - first) * SVG_CELL);
  }
}

static void svg_put_grid(svg_picture* s) {
  if (s->hidden == 0) return;
  s->grid = tool_alloc(SVG_ROWS, SVG_COLUMNS);
  svg_grid_fill(s);
  tool_svg_put(&s->svg, "<path class=\"grid\" d=\"");
  for (size_t row = 0; row < SVG_ROWS; row++) svg_put_grid_row(s, row);
  tool_svg_put(&s->svg, "\"><title>%llu pieces too small to draw one by one</title></path>\n",
               (unsigned long long)s->hidden);
}

// ---------------------------------------------------------------------------------------------------
// Axes and lines

// The number of steps in the whole, with tolerance for rounding.
static int svg_step_count(double whole, double step) { return (int)floor(whole / step + 0.001); }

static void svg_put_times(svg_picture* s) {
  const double whole = SVG_PLOT_WIDTH / s->time_scale;
  const double step = fmax(1, tool_ticks_step(whole, SVG_TICKS));
  const double first = ceil((double)s->first_time / step) * step - (double)s->first_time;
  for (int i = 0; i <= svg_step_count(whole - first, step); i++) {
    const double time = first + i * step;
    const long x = SVG_LEFT + lround(time * s->time_scale);
    tool_svg_put(
        &s->svg,
        "<path class=\"tick\" d=\"M%ld %dv60\"/><text x=\"%ld\" y=\"%d\" class=\"middle\">%.0f</text>\n", x,
        SVG_BOTTOM, x, SVG_BOTTOM + 190, (double)s->first_time + time);
  }
  tool_svg_put(&s->svg, "<text x=\"%d\" y=\"%d\" class=\"middle\">%s</text>\n", SVG_LEFT + SVG_PLOT_WIDTH / 2,
               SVG_BOTTOM + 400, s->planning->is_recording ? "time, in entries of the recording" : "time");
}

static void svg_put_offsets(svg_picture* s) {
  static const char* const names[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
  double whole = (double)s->top;
  size_t name = 0;
  for (; whole >= 2048 && name < 6; name++) whole /= 1024;
  const double step = fmax(name == 0 ? 1 : 0, exp2(ceil(log2(whole / SVG_TICKS))));
  for (int i = 0; i <= svg_step_count(whole, step); i++) {
    const long y = SVG_BOTTOM - lround(i * step / whole * SVG_PLOT_HEIGHT);
    tool_svg_put(
        &s->svg,
        "<path class=\"tick\" d=\"M%d %ldh-60\"/><text x=\"%d\" y=\"%ld\" class=\"end\">%g %s</text>\n",
        SVG_LEFT, y, SVG_LEFT - 100, y + 40, i * step, names[name]);
  }
}

// A line across the picture at an offset, with a word above it on one of its ends.
static void svg_put_level(svg_picture* s, const char* name, uint64_t offset, bool is_left) {
  char size[TOOL_SIZE_TEXT];
  const long y = svg_y(s, offset);
  tool_svg_put(&s->svg, "<path class=\"%s\" d=\"M%d %ldh%d\"/>", is_left ? "bound" : "capacity", SVG_LEFT, y,
               SVG_PLOT_WIDTH);
  tool_svg_put(&s->svg, "<text x=\"%d\" y=\"%ld\" class=\"%s\">%s %s</text>\n",
               is_left ? SVG_LEFT + 60 : SVG_LEFT + SVG_PLOT_WIDTH - 60, y - 45, is_left ? "begin" : "end",
               name, tool_size_text(offset, size));
}

static void svg_put_lines(svg_picture* s) {
  const tool_planning* const p = s->planning;
  tool_svg_put(&s->svg, "<path class=\"axis\" d=\"M%d %dV%dH%d\"/>\n", SVG_LEFT, SVG_TOP, SVG_BOTTOM,
               SVG_LEFT + SVG_PLOT_WIDTH);
  if (p->outcome.lower_bound > 0 && p->outcome.lower_bound <= s->top)
    svg_put_level(s, "lower bound", p->outcome.lower_bound, true);
  if (p->view.pools > 0 && p->capacity <= s->top) svg_put_level(s, "capacity", p->capacity, false);
}

// ---------------------------------------------------------------------------------------------------
// The picture

static void svg_put_head(svg_picture* s) {
  const tool_planning* const p = s->planning;
  char size[TOOL_SIZE_TEXT];
  tool_svg_put(&s->svg,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
               "role=\"img\">\n<title>",
               SVG_WIDTH / 10, SVG_HEIGHT / 10, SVG_WIDTH, SVG_HEIGHT);
  tool_svg_put_name(&s->svg, tool_svg_file_name(p->call->operands[0]), SVG_NAME);
  tool_svg_put_text(&s->svg,
                    "</title>\n<style>text{font:130px sans-serif;fill:#333;stroke:#fff;stroke-width:25;"
                    "paint-order:stroke}.head{font-size:170px}"
                    ".middle{text-anchor:middle}.end{text-anchor:end}"
                    "g path{stroke:#fff;stroke-width:2}g path:hover{stroke:#000;stroke-width:15}"
                    ".axis,.tick{fill:none;stroke:#333;stroke-width:10}"
                    ".bound{stroke:#000;stroke-width:12;stroke-dasharray:60 40}"
                    ".capacity{stroke:#c00;stroke-width:16}"
                    ".grid{fill:none;stroke:#999;stroke-width:10}</style>\n"
                    "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
  tool_svg_put(&s->svg, "<text x=\"%d\" y=\"350\" class=\"head\">", SVG_LEFT);
  tool_svg_put_name(&s->svg, tool_svg_file_name(p->call->operands[0]), SVG_NAME);
  tool_svg_put(&s->svg, ": %zu buffers in %s, %s</text>\n", p->view.count,
               tool_size_text(p->outcome.peak, size), tide_plan_verdict_name(p->outcome.verdict));
}

// What the colours mean, and what is missing.
static void svg_put_notes(svg_picture* s) {
  const tool_planning* const p = s->planning;
  char size[TOOL_SIZE_TEXT];
  tool_svg_put(&s->svg, "<text x=\"%d\" y=\"%d\" class=\"end\">buffers of one size share a colour",
               SVG_LEFT + SVG_PLOT_WIDTH, SVG_BOTTOM + 400);
  if (s->hidden > 0)
    tool_svg_put(&s->svg, "; %llu pieces too small to see are grey", (unsigned long long)s->hidden);
  if (p->view.pools > 0 && p->capacity > s->top)
    tool_svg_put(&s->svg, "; the capacity, %s, is above the picture", tool_size_text(p->capacity, size));
  tool_svg_put_text(&s->svg, "</text>\n");
}

tide_status tool_planning_draw(const void* planning, const tide_sink* sink) {
  svg_picture s = { .planning = planning, .svg = { .sink = sink }, .least_side = SVG_CELL };
  svg_scale(&s);
  while (svg_shown_count(&s) > SVG_RECTANGLES) s.least_side *= 1.25;
  svg_put_head(&s);
  svg_put_grid(&s);
  svg_put_buffers(&s);
  svg_put_lines(&s);
  svg_put_times(&s);
  svg_put_offsets(&s);
  svg_put_notes(&s);
  tool_svg_put_text(&s.svg, "</svg>\n");
  free(s.grid);
  free(s.gaps);
  free(s.pieces);
  return s.svg.status;
}
