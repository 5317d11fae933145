// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Texts as JSON strings: what needs no escape goes through in runs.
#include "format/json_text.h"

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
    else tide__output_format(output, "\\udc%02x", (uint8_t)text[i]);
    i += length > 0 ? length : 1;
  }
  tide__output_byte(output, '"');
}
