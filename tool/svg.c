// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
#include "svg.h"

#include <stdlib.h>
#include <string.h>

#include "display.h"

static void svg_put_bytes(tool_svg* svg, const char* text, size_t bytes) {
  if (svg->status == TIDE_OK && bytes > 0) svg->status = svg->sink->write(svg->sink->user, text, bytes);
}

void tool_svg_put_text(tool_svg* svg, const char* text) { svg_put_bytes(svg, text, strlen(text)); }

void tool_svg_put(tool_svg* svg, const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (length > 0) svg_put_bytes(svg, text, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1);
}

void tool_svg_put_name(tool_svg* svg, const char* name, size_t letters) {
  char* const shown = tool_display_text(name, false);
  const size_t bytes = strlen(shown);
  size_t count = 0;
  for (size_t at = 0; at < bytes; count++) {
    uint32_t point = 0;
    const size_t length = tool_code_point(shown + at, bytes - at, &point);
    if (count == letters) tool_svg_put_text(svg, "\xe2\x80\xa6");
    if (count == letters) break;
    if (point == '&') tool_svg_put_text(svg, "&amp;");
    else if (point == '<') tool_svg_put_text(svg, "&lt;");
    else if (point == '>') tool_svg_put_text(svg, "&gt;");
    else if ((point & 0xfffe) == 0xfffe) tool_svg_put_text(svg, "\xef\xbf\xbd");
    else svg_put_bytes(svg, shown + at, length);
    at += length;
  }
  free(shown);
}

const char* tool_svg_file_name(const char* path) {
  const char* const slash = strrchr(path, '/');
  if (strcmp(path, "-") == 0) return "standard input";
  return slash != NULL ? slash + 1 : path;
}
