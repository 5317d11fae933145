// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Parts of the page: columns of numbers, compressed by zlib if the program has it, in the letters of base64.
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "view.h"

#ifdef TIDEMARK_HAVE_ZLIB
#include <zlib.h>
#endif

#define LINE_BYTES 3072u  // that are written at a time; a multiple of 3

// ---------------------------------------------------------------------------------------------------
// Bytes

static unsigned char* bytes_room(tool_view_bytes* bytes, size_t count) {
  if (bytes->count + count > bytes->room) {
    bytes->room = 2 * bytes->room + count + 64;
    bytes->data = tool_grow(bytes->data, bytes->room, 1);
  }
  return bytes->data + bytes->count;
}

void tool_view_put(tool_view_bytes* bytes, uint64_t value) {
  unsigned char* at = bytes_room(bytes, 10);
  const unsigned char* const begin = at;
  for (; value > 0x7f; value >>= 7) *at++ = (unsigned char)(value | 0x80);
  *at++ = (unsigned char)value;
  bytes->count += (size_t)(at - begin);
}

void tool_view_put_change(tool_view_bytes* bytes, uint64_t from, uint64_t to) {
  const uint64_t change = to - from;
  tool_view_put(bytes, change << 1 ^ (change >> 63 != 0 ? UINT64_MAX : 0));
}

// ---------------------------------------------------------------------------------------------------
// Parts

#ifdef TIDEMARK_HAVE_ZLIB
static void part_compress(tool_view_part* part) {
  uLongf count = compressBound(part->count);
  unsigned char* const data = tool_alloc(count, 1);
  if (compress2(data, &count, part->data, part->count, Z_DEFAULT_COMPRESSION) != Z_OK) tool_out_of_memory();
  free(part->data);
  part->data = tool_grow(data, count, 1);
  part->count = count;
  part->is_deflated = true;
}
#else
static void part_compress(tool_view_part* part) { part->is_deflated = false; }
#endif

tool_view_part* tool_view_parts_add(tool_view_parts* parts, const char* name, uint32_t rank,
                                    tool_view_bytes* bytes) {
  if (parts->count == parts->room) {
    parts->room = 2 * parts->room + 16;
    parts->items = tool_grow(parts->items, parts->room, sizeof *parts->items);
  }
  tool_view_part* const part = &parts->items[parts->count++];
  *part = (tool_view_part){ .data = bytes->data, .count = bytes->count, .rank = rank };
  part->whole_bytes = bytes->count;
  *bytes = (tool_view_bytes){ .data = NULL };
  (void)snprintf(part->name, sizeof part->name, "%s", name);
  part_compress(part);
  return part;
}

void tool_view_parts_fini(tool_view_parts* parts) {
  for (size_t i = 0; i < parts->count; i++) free(parts->items[i].data);
  free(parts->items);
}

// ---------------------------------------------------------------------------------------------------
// In the page

#define PART_TAG 160

static size_t part_tag(const tool_view_part* part, char out[PART_TAG]) {
  return (size_t)snprintf(out, PART_TAG,
                          "<script type=\"text/plain\" data-part=\"%s\" data-bytes=\"%zu\" "
                          "data-codec=\"%s\">",
                          part->name, part->whole_bytes, part->is_deflated ? "deflate" : "none");
}

static const char part_end[] = "</script>\n";

size_t tool_view_part_length(const tool_view_part* part) {
  char tag[PART_TAG];
  return part_tag(part, tag) + (part->count + 2) / 3 * 4 + sizeof part_end - 1;
}

// Writes at most LINE_BYTES in base64.
static tide_status letters_write(const unsigned char* at, size_t count, const tide_sink* sink) {
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
  char text[LINE_BYTES / 3 * 4];
  size_t length = 0;
  for (size_t i = 0; i < count; i += 3) {
    const uint32_t second = i + 1 < count ? at[i + 1] : 0;
    const uint32_t third = i + 2 < count ? at[i + 2] : 0;
    const uint32_t bits = (uint32_t)at[i] << 16 | second << 8 | third;
    text[length++] = letters[bits >> 18];
    text[length++] = letters[bits >> 12 & 63];
    text[length++] = letters[i + 1 < count ? bits >> 6 & 63 : 64];
    text[length++] = letters[i + 2 < count ? bits & 63 : 64];
  }
  return sink->write(sink->user, text, length);
}

tide_status tool_view_part_write(const tool_view_part* part, const tide_sink* sink) {
  char tag[PART_TAG];
  TIDE_TRY(sink->write(sink->user, tag, part_tag(part, tag)));
  for (size_t at = 0; at < part->count; at += LINE_BYTES) {
    const size_t rest = part->count - at;
    TIDE_TRY(letters_write(part->data + at, rest < LINE_BYTES ? rest : LINE_BYTES, sink));
  }
  return sink->write(sink->user, part_end, sizeof part_end - 1);
}
