// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Text for a terminal: sanitised, measured, wrapped, truncated and laid out in columns.
#ifndef TIDEMARK_TOOL_DISPLAY_H
#define TIDEMARK_TOOL_DISPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

// Decodes one code point of a text of `bytes` bytes (not 0) and returns its length. Invalid UTF-8 is U+FFFD,
// one for each maximal subpart.
size_t tool_code_point(const char* text, size_t bytes, uint32_t* out);

// Could it control a terminal or mislead a reader? Controls, direction marks, invisible characters.
bool tool_code_point_steers(uint32_t point);

// A copy of a text that is safe to print: valid UTF-8, with \xNN or \u{NNNN} for what could control the
// terminal. Newlines are kept on request. Freed by free().
char* tool_display_text(const char* text, bool keeps_newlines);
// The number of code points of such a text, taken as the number of its columns.
size_t tool_display_columns(const char* text);

// The columns of the terminal behind a stream; 0 if it is not a terminal.
size_t tool_terminal_columns(FILE* to);
void tool_terminal_hide(void);  // from now on no stream is one
// The width at which text is wrapped: that of the terminal, at most 100.
size_t tool_text_columns(FILE* to);

// Prints text from column `at` on, wrapped before column `width`; further lines are indented to `indent`.
void tool_wrap(FILE* to, const char* text, size_t at, size_t indent, size_t width);

// ---------------------------------------------------------------------------------------------------
// Cells in columns (grid.c)

typedef struct tool_cell {
  char* text;  // owned
  bool is_number;
} tool_cell;

// Rows of `columns` cells each.
typedef struct tool_grid {
  size_t columns;
  tool_cell* cells;  // owned
  size_t count;
  size_t capacity;
} tool_grid;

// How a grid is printed.
typedef struct tool_grid_style {
  bool has_heading;  // the first row is one
  bool has_color;
  size_t width;    // of a line; texts are wrapped to fit; 0: no limit
  bool truncates;  // texts are truncated instead of wrapped, but for the first column
} tool_grid_style;

// Adds a cell with a sanitised copy of the text.
void tool_grid_add(tool_grid* grid, const char* text, bool is_number);
// Adds a size in its own unit. `sign` is that of a change, or 0.
void tool_grid_add_bytes(tool_grid* grid, uint64_t bytes, char sign);
// Prints all rows and removes them.
void tool_grid_print(tool_grid* grid, FILE* to, tool_grid_style style);
void tool_grid_clear(tool_grid* grid);

#define TOOL_STYLE_TITLE "\033[1m"
#define TOOL_STYLE_HEADING "\033[4m"
#define TOOL_STYLE_END "\033[0m"

#endif
