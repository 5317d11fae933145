// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Writes the text of SVG pictures. Text from files never becomes markup.
#ifndef TIDEMARK_TOOL_SVG_H
#define TIDEMARK_TOOL_SVG_H

#include "tool.h"

typedef struct tool_svg {
  const tide_sink* sink;  // borrowed
  tide_status status;     // the first failure of the sink; nothing is written after it
} tool_svg;

// Markup: as it is, and formatted, at most 511 bytes.
void tool_svg_put_text(tool_svg* svg, const char* text);
void tool_svg_put(tool_svg* svg, const char* format, ...) __attribute__((format(printf, 2, 3)));
// Text from a file: what would be markup is escaped, invalid UTF-8 and characters that XML does not allow are
// replaced. Longer text is truncated after `letters` code points.
void tool_svg_put_name(tool_svg* svg, const char* name, size_t letters);

// The name of a file without its folder; "standard input" for "-".
const char* tool_svg_file_name(const char* path);

#endif
