// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Texts on a screen: made fit to be shown, measured, wrapped, cut and laid out in columns.
#ifndef TIDEMARK_TOOL_DISPLAY_H
#define TIDEMARK_TOOL_DISPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

// One code point of a text of `bytes` bytes (not 0): how many of them it takes. What is no UTF-8 comes out as
// U+FFFD, a run of bytes that began well as one.
size_t tool_code_point(const char* text, size_t bytes, uint32_t* out);

// Would it steer a terminal, or deceive who reads it: controls, marks of direction, what is not seen?
bool tool_code_point_steers(uint32_t point);

// A copy of a text that is fit for a screen: UTF-8, and what steers as \xNN or \u{NNNN}, the newline kept
// where it may be. Freed by free().
char* tool_display_text(const char* text, bool keeps_newlines);
// The code points of such a text, which stand for the columns it takes.
size_t tool_display_columns(const char* text);

// The columns of the terminal that a stream goes to; 0: it is none.
size_t tool_terminal_columns(FILE* to);
// To how many columns text is wrapped: those of the terminal, at most 100.
size_t tool_text_columns(FILE* to);

// Prints words that begin at column `at`, wrapped before column `width`; further lines begin at `indent`.
void tool_wrap(FILE* to, const char* text, size_t at, size_t indent, size_t width);

// ---------------------------------------------------------------------------------------------------
// Cells in columns (grid.c)

typedef struct tool_cell {
  char* text;  // owned; NULL: a size, whose unit is chosen when the grid is printed
  bool is_number;
  char sign;  // of a size: it is a change; 0: it is none
  uint64_t bytes;
} tool_cell;

// Rows of `columns` cells each.
typedef struct tool_grid {
  size_t columns;
  tool_cell* cells;  // owned
  size_t count;
  size_t capacity;
} tool_grid;

// How it is printed.
typedef struct tool_grid_style {
  bool has_heading;  // the first row is one
  bool has_color;
  size_t width;  // the last column of texts is cut so that a line fits; 0: nothing is cut
} tool_grid_style;

// Adds a cell; the text is copied and made fit for a screen.
void tool_grid_add(tool_grid* grid, const char* text, bool is_number);
// Adds a size. It is printed in the unit that fits the largest of its column.
void tool_grid_add_bytes(tool_grid* grid, uint64_t bytes, char sign);
// Prints all rows and forgets them.
void tool_grid_print(tool_grid* grid, FILE* to, tool_grid_style style);
void tool_grid_clear(tool_grid* grid);

#define TOOL_STYLE_TITLE "\033[1m"
#define TOOL_STYLE_HEADING "\033[4m"
#define TOOL_STYLE_END "\033[0m"

#endif
