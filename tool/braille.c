// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Dots are numbered from the bottom. A value has ceil(value * dots / top) dots, so what is not 0 can be seen.
// In a column of dots, the area is filled up to the most of its buckets. The line goes from their least to
// their most, so that it has no gaps.
#include "braille.h"

#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "display.h"
#include "ticks.h"

#define CELL_COLUMNS 2u
#define CELL_ROWS 4u
#define TICK_COLUMNS 16.0  // between ticks, about
#define TICK_ROWS 1.7
#define COLOR_RESERVED "\033[33m"
#define COLOR_ALLOCATED "\033[36m"
#define COLOR_OOM "\033[31m"

enum { DOT_AREA = 1, DOT_LINE = 2 };

typedef struct braille_canvas {
  const tool_braille* drawing;
  const tool_timeline* timeline;
  const tool_axis* axis;
  FILE* out;       // owned
  size_t columns;  // of cells
  size_t rows;
  size_t wide;  // in dots
  size_t high;
  uint8_t* dots;  // owned; by row from the bottom, and column: DOT_* bits
  double top;
  double length;
  const char* color;  // that is set; "": none
} braille_canvas;

size_t tool_braille_buckets(size_t columns) { return CELL_COLUMNS * (columns - TOOL_BRAILLE_MARGIN); }

bool tool_terminal_has_utf8(void) {
  static const char* const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    const char* const value = getenv(names[i]);
    if (value == NULL || *value == '\0') continue;
    return strstr(value, "UTF-8") != NULL || strstr(value, "utf8") != NULL ||
           strstr(value, "utf-8") != NULL || strstr(value, "UTF8") != NULL;
  }
  return false;
}

// ---------------------------------------------------------------------------------------------------
// Dots

static size_t canvas_level(const braille_canvas* c, uint64_t bytes) {
  const double level = ceil((double)bytes * (double)c->high / c->top);
  return level > (double)c->high ? c->high : (size_t)level;
}

static void canvas_fill(braille_canvas* c, size_t column, size_t from, size_t to, uint8_t kind) {
  for (size_t row = from; row < to; row++) c->dots[row * c->wide + column] |= kind;
}

static void canvas_add(braille_canvas* c, size_t column, size_t bucket) {
  const tool_timeline* const t = c->timeline;
  canvas_fill(c, column, 0, canvas_level(c, tool_timeline_range(t, TOOL_CURVE_ALLOCATED, bucket)->most),
              DOT_AREA);
  if (!c->drawing->knows_reserved) return;
  const tide_timeline_range* const reserved = tool_timeline_range(t, TOOL_CURVE_RESERVED, bucket);
  const size_t low = canvas_level(c, reserved->least);
  const size_t high = canvas_level(c, reserved->most);
  canvas_fill(c, column, low > 0 ? low - 1 : 0, high, DOT_LINE);
}

// The axis of this timeline may be shorter than the picture.
static void canvas_draw(braille_canvas* c) {
  const double part = tool_axis_value(c->axis, c->axis->length) / c->length;
  const double wide = (double)c->wide * part / (double)c->timeline->count;
  for (size_t i = 0; i < c->timeline->count; i++) {
    const size_t first = (size_t)floor((double)i * wide + 1e-9);
    size_t end = (size_t)ceil((double)(i + 1) * wide - 1e-9);
    if (end > c->wide) end = c->wide;
    for (size_t column = first; column < end; column++) canvas_add(c, column, i);
  }
}

static size_t canvas_column(const braille_canvas* c, double value) {
  const double column = value / c->length * (double)c->columns;
  return column >= (double)c->columns ? c->columns - 1 : (size_t)column;
}

// ---------------------------------------------------------------------------------------------------
// Lines

static void put_color(braille_canvas* c, const char* color) {
  if (!c->drawing->has_color || strcmp(c->color, color) == 0) return;
  (void)fputs(*color == '\0' ? TOOL_STYLE_END : color, c->out);
  c->color = color;
}

// The dots of a cell as the bits of a braille character, and the kinds among them.
static unsigned cell_bits(const braille_canvas* c, size_t row, size_t column, unsigned* out_kinds) {
  static const unsigned bits[CELL_ROWS][CELL_COLUMNS] = {
    { 0x40, 0x80 }, { 0x04, 0x20 }, { 0x02, 0x10 }, { 0x01, 0x08 }
  };
  unsigned cell = 0;
  *out_kinds = 0;
  for (size_t y = 0; y < CELL_ROWS; y++) {
    for (size_t x = 0; x < CELL_COLUMNS; x++) {
      const uint8_t dot = c->dots[(row * CELL_ROWS + y) * c->wide + column * CELL_COLUMNS + x];
      if (dot != 0) cell |= bits[y][x];
      *out_kinds |= dot;
    }
  }
  return cell;
}

static void put_cell(const braille_canvas* c, unsigned cell) {
  const bool is_low = (cell & 0xe4) != 0;
  const bool is_high = (cell & 0x1b) != 0;
  if (cell == 0) (void)fputc(' ', c->out);
  else if (c->drawing->is_ascii) (void)fputc(is_low && is_high ? ':' : is_low ? '.' : '\'', c->out);
  else (void)fprintf(c->out, "\xe2%c%c", (int)(0xa0 | cell >> 6), (int)(0x80 | (cell & 0x3f)));
}

static void put_cells(braille_canvas* c, size_t row) {
  unsigned kinds = 0;
  size_t end = c->columns;
  while (end > 0 && cell_bits(c, row, end - 1, &kinds) == 0) end--;
  for (size_t column = 0; column < end; column++) {
    const unsigned cell = cell_bits(c, row, column, &kinds);
    if (cell != 0) put_color(c, (kinds & DOT_LINE) != 0 ? COLOR_RESERVED : COLOR_ALLOCATED);
    put_cell(c, cell);
  }
  put_color(c, "");
  (void)fputc('\n', c->out);
}

static void put_rows(braille_canvas* c) {
  const tool_ticks ticks = tool_ticks_of_bytes((uint64_t)c->top, (double)c->rows / TICK_ROWS);
  char text[TOOL_TICK_TEXT];
  for (size_t row = c->rows; row-- > 0;) {
    int tick = -1;
    for (int i = 1; i <= ticks.count; i++) {
      const double dot = ceil(i * ticks.step / c->top * (double)c->high) - 1;
      if ((size_t)dot / CELL_ROWS == row) tick = i;
    }
    const char* const label = tick < 0 ? "" : tool_tick_text(&ticks, tick, true, text);
    const char* const edge = c->drawing->is_ascii ? "|" : tick < 0 ? "\xe2\x94\x82" : "\xe2\x94\xa4";
    (void)fprintf(c->out, "%*s %s", TOOL_BRAILLE_MARGIN - 2, label, edge);
    put_cells(c, row);
  }
}

// ---------------------------------------------------------------------------------------------------
// Axes and labels

static size_t tick_column(const braille_canvas* c, const tool_ticks* ticks, int i) {
  return canvas_column(c, i * ticks->step + c->axis->before);
}

static const char* mark_sign(const braille_canvas* c, tool_mark_kind kind) {
  static const char* const signs[] = { "\xc3\x97", "\xe2\x96\xbe", "\xe2\x97\x8b" };
  static const char* const plain[] = { "x", "v", "o" };
  return c->drawing->is_ascii ? plain[kind] : signs[kind];
}

// Finds the mark of each column, or -1; a refusal hides others.
static void marks_spread(const braille_canvas* c, int* out) {
  const tool_marks* const marks = c->drawing->marks;
  for (size_t i = 0; i < c->columns; i++) out[i] = -1;
  for (size_t i = 0; marks != NULL && i < marks->count; i++) {
    const int kind = (int)marks->items[i].kind;
    int* const found = &out[canvas_column(c, tool_axis_value(c->axis, marks->items[i].place))];
    if (*found < 0 || kind < *found) *found = kind;
  }
}

static void put_axis(braille_canvas* c, const tool_ticks* ticks) {
  const bool is_ascii = c->drawing->is_ascii;
  int* const marks = tool_alloc(c->columns, sizeof *marks);
  int tick = 0;
  marks_spread(c, marks);
  (void)fprintf(c->out, "%*s %s", TOOL_BRAILLE_MARGIN - 2, "0", is_ascii ? "+" : "\xe2\x94\x94");
  for (size_t column = 0; column < c->columns; column++) {
    while (tick <= ticks->count && tick_column(c, ticks, tick) < column) tick++;
    const bool is_tick = tick <= ticks->count && tick_column(c, ticks, tick) == column;
    const int mark = marks[column];
    if (mark == TOOL_MARK_OOM) put_color(c, COLOR_OOM);
    if (mark >= 0) (void)fputs(mark_sign(c, (tool_mark_kind)mark), c->out);
    else if (is_ascii) (void)fputc(is_tick ? '+' : '-', c->out);
    else (void)fputs(is_tick ? "\xe2\x94\xac" : "\xe2\x94\x80", c->out);
    put_color(c, "");
  }
  (void)fputc('\n', c->out);
  free(marks);
}

// Labels of the x axis, centred below their ticks where they have room.
static void put_axis_labels(braille_canvas* c, const tool_ticks* ticks) {
  size_t used = 0;
  char text[TOOL_TICK_TEXT];
  for (int i = 0; i <= ticks->count; i++) {
    const size_t middle = TOOL_BRAILLE_MARGIN + tick_column(c, ticks, i);
    (void)tool_tick_text(ticks, i, i > 0, text);
    const size_t wide = tool_display_columns(text);
    size_t from = middle > wide / 2 ? middle - wide / 2 : 0;
    if (from + wide > c->drawing->columns) from = c->drawing->columns - wide;
    if (i > 0 && from < used + 2) continue;
    (void)fprintf(c->out, "%*s%s", (int)(from - used), "", text);
    used = from + wide;
  }
  if (c->axis->kind != TOOL_AXIS_TIME && used + 8 < c->drawing->columns)
    (void)fprintf(c->out, "  %s", tool_axis_name(c->axis->kind));
  (void)fputc('\n', c->out);
}

// A line with the peak of a curve, and a sign above its column.
static void put_peak(braille_canvas* c, tool_curve curve, const char* word, const char* color) {
  const tool_timeline* const t = c->timeline;
  char size[TOOL_SIZE_TEXT];
  char text[2 * TOOL_SIZE_TEXT];
  if (t->peaks[curve].bytes == 0) return;
  const size_t column = canvas_column(c, tool_axis_value(c->axis, t->places[curve]));
  const int wide = snprintf(text, sizeof text, "%s %s", tool_size_text(t->peaks[curve].bytes, size), word);
  const size_t at = TOOL_BRAILLE_MARGIN + column;
  const char* const sign = c->drawing->is_ascii ? "v" : "\xe2\x96\xbc";
  const bool is_right = at + 2 + (size_t)wide <= c->drawing->columns;
  const size_t indent = is_right ? at : at > (size_t)wide + 1 ? at - (size_t)wide - 1 : 0;
  (void)fprintf(c->out, "%*s", (int)indent, "");
  put_color(c, color);
  if (is_right) (void)fprintf(c->out, "%s %s", sign, text);
  else (void)fprintf(c->out, "%s %s", text, sign);
  put_color(c, "");
  (void)fputc('\n', c->out);
}

// An item of the legend, in a new line if this one has no room.
static void put_legend_item(braille_canvas* c, size_t* used, const char* color, const char* sign,
                            const char* label) {
  const size_t wide = tool_display_columns(sign) + 1 + tool_display_columns(label);
  const bool fits = *used + 3 + wide <= c->drawing->columns;
  if (*used == 0 || !fits) {
    (void)fprintf(c->out, "%s%*s", *used > 0 ? "\n" : "", TOOL_BRAILLE_MARGIN, "");
    *used = TOOL_BRAILLE_MARGIN;
  } else {
    (void)fputs("   ", c->out);
    *used += 3;
  }
  put_color(c, color);
  (void)fprintf(c->out, "%s %s", sign, label);
  put_color(c, "");
  *used += wide;
}

static void put_legend(braille_canvas* c) {
  const tool_marks* const marks = c->drawing->marks;
  const bool is_ascii = c->drawing->is_ascii;
  size_t used = 0;
  if (c->drawing->knows_reserved)
    put_legend_item(c, &used, COLOR_RESERVED, is_ascii ? "''" : "\xe2\xa0\x89\xe2\xa0\x89", "reserved");
  put_legend_item(c, &used, COLOR_ALLOCATED, is_ascii ? "::" : "\xe2\xa3\xbf\xe2\xa3\xbf", "allocated");
  for (tool_mark_kind kind = 0; marks != NULL && kind < TOOL_MARK_COUNT; kind++) {
    if (marks->counts[kind] > 0)
      put_legend_item(c, &used, kind == TOOL_MARK_OOM ? COLOR_OOM : "", mark_sign(c, kind),
                      tool_mark_label(kind));
  }
  (void)fputc('\n', c->out);
}

// ---------------------------------------------------------------------------------------------------
// The drawing

static void canvas_print(braille_canvas* c) {
  const tool_ticks ticks =
      tool_ticks_of_axis(c->axis->kind, c->length - c->axis->before, (double)c->columns / TICK_COLUMNS);
  if (c->drawing->knows_reserved) put_peak(c, TOOL_CURVE_RESERVED, "reserved", COLOR_RESERVED);
  put_peak(c, TOOL_CURVE_ALLOCATED, "allocated", COLOR_ALLOCATED);
  put_rows(c);
  put_axis(c, &ticks);
  put_axis_labels(c, &ticks);
  put_legend(c);
}

char* tool_braille_draw(const tool_braille* drawing, const tool_timeline* timeline, const tool_axis* axis) {
  char* text = NULL;
  size_t bytes = 0;
  const uint64_t top = drawing->top > 0 ? drawing->top : tool_timeline_top(timeline);
  braille_canvas c = { .drawing = drawing, .timeline = timeline, .axis = axis, .color = "" };
  c.columns = drawing->columns - TOOL_BRAILLE_MARGIN;
  c.rows = drawing->rows;
  c.wide = c.columns * CELL_COLUMNS;
  c.high = c.rows * CELL_ROWS;
  c.dots = tool_alloc(c.wide, c.high);
  c.top = top > 0 ? (double)top : 1;
  c.length = drawing->length > 0 ? drawing->length : tool_axis_value(axis, axis->length);
  c.out = tool_text_open(&text, &bytes);
  canvas_draw(&c);
  canvas_print(&c);
  const bool is_whole = fclose(c.out) == 0;
  free(c.dots);
  if (!is_whole) tool_out_of_memory();
  return text;
}
