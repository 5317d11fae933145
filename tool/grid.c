// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Cells in columns. A column is as wide as its widest cell. It is aligned to the right if every cell below
// the heading is a number or "-", and to the left otherwise. Lines have no trailing blanks. Every size has
// its own unit. If a line is too wide, the widest text columns become narrower. The text of a narrow column
// is wrapped, or on request truncated, but never the first, which identifies the line.
#include <stdlib.h>
#include <string.h>

#include "display.h"
#include "tool.h"

#define GAP 2
#define NARROWEST 8
#define NARROWEST_FIRST 24
#define CONTINUED 2  // the indent of a wrapped text

void tool_grid_add(tool_grid* grid, const char* text, bool is_number) {
  if (grid->count == grid->capacity) {
    grid->capacity = grid->capacity == 0 ? 64 : 2 * grid->capacity;
    grid->cells = tool_grow(grid->cells, grid->capacity, sizeof *grid->cells);
  }
  grid->cells[grid->count++] = (tool_cell){ tool_display_text(text, false), is_number };
}

void tool_grid_add_bytes(tool_grid* grid, uint64_t bytes, char sign) {
  char size[TOOL_SIZE_TEXT];
  char text[TOOL_SIZE_TEXT + 1];
  const char marks[] = { sign, '\0' };
  (void)snprintf(text, sizeof text, "%s%s", bytes != 0 ? marks : "", tool_size_text(bytes, size));
  tool_grid_add(grid, text, true);
}

void tool_grid_clear(tool_grid* grid) {
  for (size_t i = 0; i < grid->count; i++) free(grid->cells[i].text);
  free(grid->cells);
  *grid = (tool_grid){ .columns = grid->columns };
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

// The widest text column that may become narrower, the last of several; NULL if there is none.
static column_shape* shapes_widest(column_shape* shapes, size_t count) {
  column_shape* widest = NULL;
  for (size_t i = 0; i < count; i++) {
    if (shapes[i].is_number || shapes[i].width <= (i == 0 ? NARROWEST_FIRST : NARROWEST)) continue;
    if (widest == NULL || shapes[i].width >= widest->width) widest = &shapes[i];
  }
  return widest;
}

// Narrows text columns so that a line has at most `width` columns, if possible.
static void shapes_fit(column_shape* shapes, size_t count, size_t width) {
  size_t total = GAP * (count - 1);
  for (size_t i = 0; i < count; i++) total += shapes[i].width;
  while (total > width) {
    column_shape* const widest = shapes_widest(shapes, count);
    if (widest == NULL) return;
    widest->width--;
    total--;
  }
}

// The bytes of the first `columns` code points of a text.
static size_t text_bytes(const char* text, size_t columns) {
  size_t bytes = 0;
  for (; text[bytes] != '\0'; bytes++) {
    if (((unsigned char)text[bytes] & 0xc0) != 0x80 && columns-- == 0) break;
  }
  return bytes;
}

// The bytes of a text for a line of `room` columns: up to the last blank, comma or slash behind its first
// quarter, or as many as fit.
static size_t text_bytes_to_break(const char* text, size_t room) {
  const size_t most = text_bytes(text, room);
  if (text[most] == '\0') return most;
  for (size_t bytes = most; bytes > most / 4; bytes--) {
    if (strchr(" ,/", text[bytes - 1]) != NULL) return bytes;
  }
  return most;
}

// The part of a cell for one line of a row: takes it from `*rest`. Returns its columns.
static size_t part_put(FILE* to, const char** rest, const char* text, size_t room, bool is_truncated) {
  const size_t columns = tool_display_columns(*rest);
  const size_t indent = *rest != text ? CONTINUED : 0;
  if (columns + indent <= room) {
    (void)fprintf(to, "%*s%s", (int)indent, "", *rest);
    *rest += strlen(*rest);
    return columns + indent;
  }
  if (is_truncated) {
    (void)fprintf(to, "%.*s\xe2\x80\xa6", (int)text_bytes(text, room - 1), text);
    *rest += strlen(*rest);
    return room;
  }
  size_t bytes = text_bytes_to_break(*rest, room - indent);
  const char* const part = *rest;
  *rest += bytes;
  while (bytes > 0 && part[bytes - 1] == ' ') bytes--;
  (void)fprintf(to, "%*s%.*s", (int)indent, "", (int)bytes, part);
  size_t shown = indent;
  for (size_t i = 0; i < bytes; i++) shown += ((unsigned char)part[i] & 0xc0) != 0x80;
  return shown;
}

// Prints one line of a row without trailing blanks. `rests` has what is still to be printed of each cell.
static void line_put(FILE* to, const tool_cell* cells, const char** rests, const column_shape* shapes,
                     size_t count, bool truncates) {
  size_t blanks = 0;
  for (size_t i = 0; i < count; i++) {
    const size_t columns = tool_display_columns(rests[i]);
    const size_t before = shapes[i].is_number && columns < shapes[i].width ? shapes[i].width - columns : 0;
    if (columns > 0) {
      (void)fprintf(to, "%*s", (int)(blanks + before), "");
      const size_t used = part_put(to, &rests[i], cells[i].text, shapes[i].width, truncates && i > 0);
      blanks = shapes[i].width - before - used + GAP;
    } else {
      blanks += shapes[i].width + GAP;
    }
  }
}

static bool rests_have_any(const char* const* rests, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (*rests[i] != '\0') return true;
  }
  return false;
}

static void row_put(FILE* to, const tool_cell* cells, const column_shape* shapes, size_t count,
                    bool truncates) {
  const char** const rests = tool_alloc(count, sizeof *rests);
  for (size_t i = 0; i < count; i++) rests[i] = cells[i].text;
  line_put(to, cells, rests, shapes, count, truncates);
  while (rests_have_any(rests, count)) {
    (void)fputc('\n', to);
    line_put(to, cells, rests, shapes, count, truncates);
  }
  free(rests);
}

void tool_grid_print(tool_grid* grid, FILE* to, tool_grid_style style) {
  if (grid->count >= grid->columns && grid->columns > 0) {
    column_shape* const shapes = tool_alloc(grid->columns, sizeof *shapes);
    for (size_t i = 0; i < grid->columns; i++) {
      shapes[i] = (column_shape){ column_width(grid, i), column_is_number(grid, i, style.has_heading) };
    }
    if (style.width > 0) shapes_fit(shapes, grid->columns, style.width);
    for (size_t i = 0; i + grid->columns <= grid->count; i += grid->columns) {
      const bool is_marked = i == 0 && style.has_heading && style.has_color;
      if (is_marked) (void)fputs(TOOL_STYLE_HEADING, to);
      row_put(to, &grid->cells[i], shapes, grid->columns, style.truncates);
      (void)fputs(is_marked ? TOOL_STYLE_END "\n" : "\n", to);
    }
    free(shapes);
  }
  tool_grid_clear(grid);
}
