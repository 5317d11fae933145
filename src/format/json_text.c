// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Texts as JSON strings. Characters without an escape are copied in runs.
#include "format/json_text.h"

#include <stdio.h>
#include <stdlib.h>

size_t tide__utf8_length(const char* text, size_t bytes) {
  const uint8_t* const at = (const uint8_t*)text;
  if (bytes == 0) return 0;
  if (at[0] < 0x80) return 1;
  const size_t length = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
  if (at[0] < 0xc2 || at[0] > 0xf4 || length > bytes) return 0;
  for (size_t i = 1; i < length; i++) {
    if ((at[i] & 0xc0) != 0x80) return 0;
  }
  const bool is_short = (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xf0 && at[1] < 0x90);
  const bool is_surrogate = at[0] == 0xed && at[1] >= 0xa0;
  const bool is_beyond = at[0] == 0xf4 && at[1] >= 0x90;
  return is_short || is_surrogate || is_beyond ? 0 : length;
}

size_t tide__utf8_encode(uint32_t code, char out[4]) {
  const size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  static const uint8_t heads[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
  for (size_t i = length; i > 1; i--) {
    out[i - 1] = (char)(0x80 | (code & 0x3f));
    code >>= 6;
  }
  out[0] = (char)(heads[length] | code);
  return length;
}

// ---------------------------------------------------------------------------------------------------
// Numbers. The decimal point of the locale is found by printing 0.5.

#define POINT_BYTES 16u
#define NUMBER_BYTES 512u

static size_t point_find(char out[POINT_BYTES]) {
  char text[POINT_BYTES + 2];
  const int length = snprintf(text, sizeof text, "%.1f", 0.5);
  const size_t bytes = length > 2 && (size_t)length < sizeof text ? (size_t)length - 2 : 0;
  memcpy(out, text + 1, bytes);
  return bytes;
}

double tide__json_number(const char* text) {
  char point[POINT_BYTES];
  char local[NUMBER_BYTES];
  const size_t point_bytes = point_find(point);
  const char* const at = strchr(text, '.');
  if (at == NULL || strlen(text) + point_bytes >= sizeof local) return strtod(text, NULL);
  const size_t whole = (size_t)(at - text);
  memcpy(local, text, whole);
  memcpy(local + whole, point, point_bytes);
  memcpy(local + whole + point_bytes, at + 1, strlen(at + 1) + 1);
  return strtod(local, NULL);
}

void tide__json_point(char* text) {
  char point[POINT_BYTES + 1] = "";
  const size_t point_bytes = point_find(point);
  char* const at = point_bytes > 0 ? strstr(text, point) : NULL;
  if (at == NULL) return;
  *at = '.';
  memmove(at + 1, at + point_bytes, strlen(at + point_bytes) + 1);
}

// ---------------------------------------------------------------------------------------------------
// Texts

static bool needs_no_escape(uint8_t byte) {
  return byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\';
}

static void put_escape(tide__output* output, uint8_t byte) {
  static const char shorts[] = "b\bf\fn\nr\rt\t";
  if (byte == '"' || byte == '\\') {
    tide__output_format(output, "\\%c", byte);
    return;
  }
  for (size_t i = 0; i + 1 < sizeof shorts - 1; i += 2) {
    if ((uint8_t)shorts[i + 1] != byte) continue;
    tide__output_format(output, "\\%c", shorts[i]);
    return;
  }
  tide__output_format(output, "\\u%04x", byte);
}

// The surrogate that three bytes encode, which UTF-8 does not allow; 0 if they do not. Python writes some
// file names in this way.
static uint32_t surrogate_of(const char* text, size_t bytes) {
  const uint8_t* const at = (const uint8_t*)text;
  const bool is_one = bytes >= 3 && at[0] == 0xed && at[1] >= 0xa0 && at[1] <= 0xbf && (at[2] & 0xc0) == 0x80;
  return is_one ? 0xd000u | (uint32_t)(at[1] & 0x3f) << 6 | (at[2] & 0x3fu) : 0;
}

// Writes a byte that is not UTF-8, or a surrogate, and returns its length. A surrogate is written as itself,
// unless a reader would take it for a byte, or for a pair together with what follows.
static size_t put_odd(tide__output* output, const char* text, size_t bytes) {
  const uint32_t code = surrogate_of(text, bytes);
  const bool is_byte = code >= 0xdc80 && code <= 0xdcff;
  const bool is_alone = code >= 0xdc00 || bytes == 3 ||
                        (bytes > 3 && tide__utf8_length(text + 3, bytes - 3) > 0);
  if (code != 0 && !is_byte && is_alone) {
    tide__output_format(output, "\\u%04x", (unsigned)code);
    return 3;
  }
  tide__output_format(output, "\\udc%02x", (unsigned)(uint8_t)text[0]);
  return 1;
}

void tide__output_json_text(tide__output* output, const char* text, size_t bytes, tide__json_repair repair) {
  tide__output_byte(output, '"');
  for (size_t i = 0; i < bytes;) {
    size_t run = i;
    while (run < bytes && needs_no_escape((uint8_t)text[run])) run++;
    tide__output_bytes(output, text + i, run - i);
    i = run;
    if (i == bytes) break;
    const size_t length = tide__utf8_length(text + i, bytes - i);
    if (length > 1) tide__output_bytes(output, text + i, length);
    else if (length == 1) put_escape(output, (uint8_t)text[i]);
    else if (repair == TIDE__JSON_SHOW) tide__output_text(output, "\\ufffd");
    i += length > 0 ? length : repair == TIDE__JSON_SHOW ? 1 : put_odd(output, text + i, bytes - i);
  }
  tide__output_byte(output, '"');
}
