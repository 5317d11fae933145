// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Cells in columns. A column is as wide as its widest cell. It is aligned to the right if every cell below
// the heading is a number or "-", and to the left otherwise. Lines have no trailing blanks. Sizes have the
// unit of the largest in their column. If a line is wider than the screen, the last text column is truncated,
// but never the first column, which identifies the line.
#include <stdlib.h>
#include <string.h>

#include "display.h"
#include "tool.h"

#define GAP 2
#define NARROWEST 8

static void cell_add(tool_grid* grid, tool_cell cell) {
  if (grid->count == grid->capacity) {
    grid->capacity = grid->capacity == 0 ? 64 : 2 * grid->capacity;
    grid->cells = tool_grow(grid->cells, grid->capacity, sizeof *grid->cells);
  }
  grid->cells[grid->count++] = cell;
}

void tool_grid_add(tool_grid* grid, const char* text, bool is_number) {
  cell_add(grid, (tool_cell){ .text = tool_display_text(text, false), .is_number = is_number });
}

void tool_grid_add_bytes(tool_grid* grid, uint64_t bytes, char sign) {
  cell_add(grid, (tool_cell){ .is_number = true, .sign = sign, .bytes = bytes });
}

void tool_grid_clear(tool_grid* grid) {
  for (size_t i = 0; i < grid->count; i++) free(grid->cells[i].text);
  free(grid->cells);
  *grid = (tool_grid){ .columns = grid->columns };
}

// Zero is "0 B" in every unit, and a size that is too small for two decimals is marked with "<". Changes have
// their own unit, so that small ones are visible.
static char* size_text_new(const tool_cell* cell, tool_unit unit) {
  char size[TOOL_SIZE_TEXT];
  char text[TOOL_SIZE_TEXT + 1];
  const bool is_own = cell->bytes == 0 || cell->sign != 0;
  (void)tool_size_in(cell->bytes, is_own ? tool_size_unit(cell->bytes) : unit, size);
  const bool is_little = cell->bytes != 0 && strncmp(size, "0.00 ", 5) == 0;
  if (is_little) size[3] = '1';
  const char marks[] = { (char)(is_little ? '<' : cell->sign), '\0' };
  (void)snprintf(text, sizeof text, "%s%s", cell->bytes != 0 ? marks : "", size);
  return tool_display_text(text, false);
}

// Formats the sizes of a column.
static void column_settle(tool_grid* grid, size_t column) {
  uint64_t largest = 0;
  for (size_t i = column; i < grid->count; i += grid->columns) {
    if (grid->cells[i].text == NULL && grid->cells[i].bytes > largest) largest = grid->cells[i].bytes;
  }
  for (size_t i = column; i < grid->count; i += grid->columns) {
    if (grid->cells[i].text == NULL)
      grid->cells[i].text = size_text_new(&grid->cells[i], tool_size_unit(largest));
  }
}

static bool column_is_number(const tool_grid* grid, size_t column, bool has_heading) {
  bool has_number = false;
  for (size_t i = column + (has_heading ? grid->columns : 0); i < grid->count; i += grid->columns) {
    const tool_cell* cell = &grid->cells[i];
    if (cell->is_number) has_number = true;
    else if (strcmp(cell->text, "-") != 0 && *cell->text != '\0') return false;
  }
  return has_number;
}

static size_t column_width(const tool_grid* grid, size_t column) {
  size_t widest = 0;
  for (size_t i = column; i < grid->count; i += grid->columns) {
    const size_t width = tool_display_columns(grid->cells[i].text);
    if (width > widest) widest = width;
  }
  return widest;
}

// How a column is printed.
typedef struct column_shape {
  size_t width;
  bool is_number;
} column_shape;

// Narrows the last text column so that a line has at most `width` columns, if possible.
static void shapes_fit(column_shape* shapes, size_t count, size_t width) {
  size_t total = GAP * (count - 1);
  for (size_t i = 0; i < count; i++) total += shapes[i].width;
  for (size_t i = count; i-- > 1 && total > width;) {
    if (shapes[i].is_number) continue;
    const size_t others = total - shapes[i].width;
    const size_t wanted = others + NARROWEST < width ? width - others : NARROWEST;
    if (wanted < shapes[i].width) shapes[i].width = wanted;
    return;
  }
}

// Prints a cell's text, truncated with an ellipsis if it is too long. Returns the number of columns used.
static size_t text_put(FILE* to, const char* text, size_t room) {
  const size_t columns = tool_display_columns(text);
  if (columns <= room) {
    (void)fputs(text, to);
    return columns;
  }
  size_t bytes = 0;
  for (size_t left = room - 1;; bytes++) {
    if (((unsigned char)text[bytes] & 0xc0) != 0x80 && left-- == 0) break;
  }
  (void)fprintf(to, "%.*s\xe2\x80\xa6", (int)bytes, text);
  return room;
}

// Prints a row without trailing blanks.
static void row_put(FILE* to, const tool_cell* cells, const column_shape* shapes, size_t count) {
  size_t blanks = 0;
  for (size_t i = 0; i < count; i++) {
    const size_t columns = tool_display_columns(cells[i].text);
    const size_t before = shapes[i].is_number && columns < shapes[i].width ? shapes[i].width - columns : 0;
    if (columns > 0) {
      (void)fprintf(to, "%*s", (int)(blanks + before), "");
      blanks = shapes[i].width - before - text_put(to, cells[i].text, shapes[i].width) + GAP;
    } else {
      blanks += shapes[i].width + GAP;
    }
  }
}

void tool_grid_print(tool_grid* grid, FILE* to, tool_grid_style style) {
  if (grid->count >= grid->columns && grid->columns > 0) {
    column_shape* const shapes = tool_alloc(grid->columns, sizeof *shapes);
    for (size_t i = 0; i < grid->columns; i++) {
      column_settle(grid, i);
      shapes[i] = (column_shape){ column_width(grid, i), column_is_number(grid, i, style.has_heading) };
    }
    if (style.width > 0) shapes_fit(shapes, grid->columns, style.width);
    for (size_t i = 0; i + grid->columns <= grid->count; i += grid->columns) {
      const bool is_marked = i == 0 && style.has_heading && style.has_color;
      if (is_marked) (void)fputs(TOOL_STYLE_HEADING, to);
      row_put(to, &grid->cells[i], shapes, grid->columns);
      (void)fputs(is_marked ? TOOL_STYLE_END "\n" : "\n", to);
    }
    free(shapes);
  }
  tool_grid_clear(grid);
}
