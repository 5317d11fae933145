// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Text for a terminal. Names in a file can be any bytes. Invalid UTF-8 is replaced by U+FFFD, one for each
// maximal subpart (Unicode 15, section 3.9). Characters that would control a terminal, change the direction
// of text or be invisible are escaped. One code point counts as one column.
#include "display.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tool.h"

#define REPLACEMENT 0xfffdu
#define WIDEST 100

// The first byte of a multi-byte character; some first bytes narrow the bounds of the second.
typedef struct lead_byte {
  uint32_t bits;
  size_t bytes;
  unsigned char low;
  unsigned char high;
} lead_byte;

static lead_byte lead_byte_of(unsigned char first) {
  if (first >= 0xc2 && first <= 0xdf) return (lead_byte){ first & 0x1fu, 2, 0x80, 0xbf };
  if (first == 0xe0) return (lead_byte){ 0, 3, 0xa0, 0xbf };
  if (first == 0xed) return (lead_byte){ 0xd, 3, 0x80, 0x9f };
  if (first >= 0xe1 && first <= 0xef) return (lead_byte){ first & 0xfu, 3, 0x80, 0xbf };
  if (first == 0xf0) return (lead_byte){ 0, 4, 0x90, 0xbf };
  if (first >= 0xf1 && first <= 0xf3) return (lead_byte){ first & 0x7u, 4, 0x80, 0xbf };
  if (first == 0xf4) return (lead_byte){ 4, 4, 0x80, 0x8f };
  return (lead_byte){ 0, 0, 0, 0 };
}

size_t tool_code_point(const char* text, size_t bytes, uint32_t* out) {
  const unsigned char* at = (const unsigned char*)text;
  *out = at[0];
  if (at[0] < 0x80) return 1;
  lead_byte lead = lead_byte_of(at[0]);
  *out = REPLACEMENT;
  if (lead.bytes == 0) return 1;
  uint32_t point = lead.bits;
  for (size_t i = 1; i < lead.bytes; i++) {
    if (i >= bytes || at[i] < lead.low || at[i] > lead.high) return i;
    point = point << 6 | (at[i] & 0x3fu);
    lead.low = 0x80;
    lead.high = 0xbf;
  }
  *out = point;
  return lead.bytes;
}

bool tool_code_point_steers(uint32_t point) {
  static const struct {
    uint32_t first;
    uint32_t last;
  } ranges[] = {
    { 0x00, 0x1f },        // C0 controls, including escape
    { 0x7f, 0x9f },        // delete and C1 controls, including CSI
    { 0xad, 0xad },        // soft hyphen
    { 0x61c, 0x61c },      // direction marks
    { 0x180e, 0x180e },    // zero width
    { 0x200b, 0x200f },    // zero width, and direction marks
    { 0x2028, 0x202e },    // line and paragraph separators, direction embeddings and overrides
    { 0x2060, 0x206f },    // zero width, direction isolates
    { 0xfeff, 0xfeff },    // zero width
    { 0xfff9, 0xfffb },    // annotations
    { 0xe0000, 0xe007f },  // invisible tags
  };
  for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
    if (point >= ranges[i].first && point <= ranges[i].last) return true;
  }
  return false;
}

// Writes a code point, escaped if necessary: at most 4 bytes for each byte of its own.
static size_t shown_put(uint32_t point, const char* source, size_t bytes, bool keeps_newlines, char* out) {
  static const char digits[] = "0123456789abcdef";
  static const char replacement[3] = { '\xef', '\xbf', '\xbd' };
  if (point == REPLACEMENT) {
    memcpy(out, replacement, sizeof replacement);
    return sizeof replacement;
  }
  if (!tool_code_point_steers(point) || (point == '\n' && keeps_newlines)) {
    memcpy(out, source, bytes);
    return bytes;
  }
  if (point > 0xff) return (size_t)snprintf(out, 4 * bytes, "\\u{%x}", (unsigned)point);
  out[0] = '\\';
  out[1] = 'x';
  out[2] = digits[point >> 4];
  out[3] = digits[point & 15];
  return 4;
}

char* tool_display_text(const char* text, bool keeps_newlines) {
  const size_t bytes = strlen(text);
  char* shown = tool_alloc(bytes + 1, 4);
  size_t used = 0;
  for (size_t at = 0; at < bytes;) {
    uint32_t point = 0;
    const size_t length = tool_code_point(text + at, bytes - at, &point);
    used += shown_put(point, text + at, length, keeps_newlines, shown + used);
    at += length;
  }
  shown[used] = '\0';
  return shown;
}

size_t tool_display_columns(const char* text) {
  size_t columns = 0;
  for (; *text != '\0'; text++) {
    if (((unsigned char)*text & 0xc0) != 0x80) columns++;
  }
  return columns;
}

static bool is_terminal_hidden;

void tool_terminal_hide(void) { is_terminal_hidden = true; }

size_t tool_terminal_columns(FILE* to) {
  struct winsize size = { 0 };
  const int descriptor = fileno(to);
  if (is_terminal_hidden || !isatty(descriptor)) return 0;
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

size_t tool_text_columns(FILE* to) {
  const size_t columns = tool_terminal_columns(to);
  return columns == 0 || columns > WIDEST ? WIDEST : columns;
}

static void line_break(FILE* to, size_t indent) { (void)fprintf(to, "\n%*s", (int)indent, ""); }

static bool is_unit(const char* word) {
  static const char* const units[] = { "%", "B", "KiB", "MiB", "GiB", "TiB", "bytes", "s", "ms" };
  const size_t bytes = strcspn(word, " \n.,;:)");
  for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
    if (strlen(units[i]) == bytes && strncmp(word, units[i], bytes) == 0) return true;
  }
  return false;
}

// The length of the first word of `text`. A number and its unit are one word, so that they stay on one line.
static size_t word_bytes(const char* text) {
  const size_t bytes = strcspn(text, " \n");
  const bool is_number = bytes > 0 && text[bytes - 1] >= '0' && text[bytes - 1] <= '9';
  if (!is_number || text[bytes] != ' ' || !is_unit(text + bytes + 1)) return bytes;
  return bytes + 1 + strcspn(text + bytes + 1, " \n");
}

void tool_wrap(FILE* to, const char* text, size_t at, size_t indent, size_t width) {
  size_t column = at;
  bool is_first = true;
  while (*text != '\0') {
    if (*text == '\n') line_break(to, column = indent);
    if (*text == '\n' || *text == ' ') {
      is_first = is_first || *text == '\n';
      text++;
      continue;
    }
    const size_t bytes = word_bytes(text);
    char* const word = tool_alloc(bytes + 1, 1);
    memcpy(word, text, bytes);
    const size_t columns = tool_display_columns(word);
    if (!is_first && column + 1 + columns > width) {
      line_break(to, column = indent);
      is_first = true;
    }
    (void)fprintf(to, "%s%s", is_first ? "" : " ", word);
    column += columns + (is_first ? 0 : 1);
    is_first = false;
    text += bytes;
    free(word);
  }
  (void)fputc('\n', to);
}
