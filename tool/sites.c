// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Which line is the program's own is decided in format/frames.c. Each stack is examined once.
#include "sites.h"

#include <stdlib.h>
#include <string.h>

#include "display.h"
#include "tool.h"

static const char* name_text(const tide_intern* names, uint32_t id) {
  const char* const text = tide_intern_text(names, id, NULL);
  return text != NULL ? text : "";
}

void tool_sites_init(tool_sites* sites, const tide_trace* trace) {
  *sites = (tool_sites){ .names = tide_trace_names(trace) };
  if (tide_frames_new(trace, NULL, &sites->frames) != TIDE_OK) tool_out_of_memory();
  sites->frame_count = (uint64_t)tide_intern_counts_of(sites->names).frames + 1;
  sites->count = tide_intern_counts_of(sites->names).stacks + 1;
  sites->of_stack = tool_alloc(sites->count, sizeof *sites->of_stack);
  sites->is_known = tool_alloc(sites->count, sizeof *sites->is_known);
}

void tool_sites_fini(tool_sites* sites) {
  tide_frames_free(sites->frames);
  free(sites->of_stack);
  free(sites->is_known);
}

static tool_site_frames stack_frames(const tool_sites* sites, uint32_t stack) {
  size_t count = 0;
  const uint64_t* const frames = tide_intern_stack(sites->names, stack, &count);
  const tide_frames_site site = tide_frames_find_site(sites->frames, frames, count);
  tool_site_frames found = { 0 };
  if (site.own < count && frames[site.own] < sites->frame_count) found.own = (uint32_t)frames[site.own];
  if (site.called < count && frames[site.called] < sites->frame_count)
    found.called = (uint32_t)frames[site.called];
  return found;
}

tool_site_frames tool_sites_lines(tool_sites* sites, uint32_t stack) {
  if (stack == 0 || stack >= sites->count) return (tool_site_frames){ 0 };
  if (!sites->is_known[stack]) {
    sites->of_stack[stack] = stack_frames(sites, stack);
    sites->is_known[stack] = true;
  }
  return sites->of_stack[stack];
}

tool_site tool_site_of_frame(const tool_sites* sites, uint64_t frame) {
  if (frame >= sites->frame_count) return (tool_site){ 0 };
  const tide_frame parts = tide_intern_frame(sites->names, (uint32_t)frame);
  return (tool_site){ parts.file, parts.name, parts.line };
}

tool_site tool_sites_find(tool_sites* sites, uint32_t stack) {
  return tool_site_of_frame(sites, tool_sites_lines(sites, stack).own);
}

tool_site tool_sites_find_called(tool_sites* sites, uint32_t stack) {
  return tool_site_of_frame(sites, tool_sites_lines(sites, stack).called);
}

bool tool_site_is_known(tool_site site) { return site.file != 0 || site.function != 0; }

// ---------------------------------------------------------------------------------------------------
// Texts

#define ELLIPSIS "\xe2\x80\xa6"
#define NAME_PIECE 32  // bytes that one step adds to a name at most

// The end of what begins with a bracket: behind the one that closes it, or the end of the text.
static const char* bracket_end(const char* at, char open, char close) {
  size_t depth = 0;
  for (; *at != '\0'; at++) {
    if (*at == open) depth++;
    if (*at == close && --depth == 0) return at + 1;
  }
  return at;
}

static bool text_is_before(const char* end, size_t bytes, const char* part) {
  const size_t length = strlen(part);
  return bytes >= length && memcmp(end - length, part, length) == 0;
}

// The number of bytes that are copied as they are; 0 if something in brackets begins. The brackets of
// <module> belong to the name.
static size_t name_plain_bytes(const char* at, const char* out, size_t used) {
  static const char unnamed[] = "(anonymous namespace)";
  if (strncmp(at, unnamed, strlen(unnamed)) == 0) return strlen(unnamed);
  const bool is_operator = text_is_before(out + used, used, "operator") ||
                           text_is_before(out + used, used, "operator<");
  return ((*at == '<' && used > 0) || *at == '(') && !is_operator ? 0 : 1;
}

// Copies a name of C++ without what is in its brackets.
static void name_simplify(const char* name, char out[TOOL_SITE_TEXT]) {
  size_t used = 0;
  while (*name != '\0' && used + NAME_PIECE < TOOL_SITE_TEXT) {
    const size_t plain = name_plain_bytes(name, out, used);
    if (plain > 0) {
      memcpy(out + used, name, plain);
      used += plain;
      name += plain;
      continue;
    }
    const char close = *name == '<' ? '>' : ')';
    const char* const end = bracket_end(name, *name, close);
    const char* const inside = end - name > 2 ? ELLIPSIS : "";
    used += (size_t)snprintf(out + used, TOOL_SITE_TEXT - used, "%c%s%c", *name, inside, close);
    name = end;
  }
  out[used] = '\0';
}

// A text that is too long for the buffer loses its end.
static void site_print(const char* mark, const char* path, tool_site site, const char* function,
                       char out[TOOL_SITE_TEXT]) {
  const int length = *path == '\0' ? snprintf(out, TOOL_SITE_TEXT, "%s", function)
                                   : snprintf(out, TOOL_SITE_TEXT, "%s%s:%lld %s", mark, path,
                                              (long long)site.line, function);
  if (length < 0) *out = '\0';
}

// Cuts a text that is longer than a number of columns.
static void text_cut(char* text, size_t columns) {
  size_t bytes = 0;
  for (size_t left = columns; text[bytes] != '\0'; bytes++) {
    if (((unsigned char)text[bytes] & 0xc0) != 0x80 && left-- == 1) break;
  }
  if (text[bytes] != '\0' && tool_display_columns(text) > columns && bytes + 4 <= TOOL_SITE_TEXT)
    memcpy(text + bytes, ELLIPSIS, 4);
}

const char* tool_site_short(const tool_sites* sites, tool_site site, size_t columns,
                            char out[TOOL_SITE_TEXT]) {
  char function[TOOL_SITE_TEXT];
  size_t bytes = 0;
  if (!tool_site_is_known(site)) {
    (void)snprintf(out, TOOL_SITE_TEXT, "(no stack)");
    return out;
  }
  name_simplify(name_text(sites->names, site.function), function);
  const char* path = tide_frames_path(sites->frames, site.file, &bytes);
  site_print("", path, site, function, out);
  while (tool_display_columns(out) > columns) {
    const char* const slash = strchr(path, '/');
    if (slash == NULL) break;
    path = slash + 1;
    site_print(ELLIPSIS "/", path, site, function, out);
  }
  text_cut(out, columns);
  return out;
}

const char* tool_site_text(const tool_sites* sites, tool_site site, char out[TOOL_SITE_TEXT]) {
  return tool_site_short(sites, site, SIZE_MAX, out);
}

// ---------------------------------------------------------------------------------------------------
// Stacks of two traces

#define HASH_BEGIN UINT64_C(0xcbf29ce484222325)

// FNV-1a.
static uint64_t hash_add(uint64_t hash, const void* data, size_t bytes) {
  const unsigned char* const at = data;
  for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
  return hash;
}

static uint64_t hash_add_text(uint64_t hash, const tide_intern* names, uint32_t id) {
  size_t bytes = 0;
  const char* const text = tide_intern_text(names, id, &bytes);
  hash = hash_add(hash, &bytes, sizeof bytes);
  return text != NULL ? hash_add(hash, text, bytes) : hash;
}

static uint64_t hash_add_frame(uint64_t hash, const tool_sites* sites, uint64_t number) {
  if (number >= sites->frame_count) return hash_add(hash, &number, sizeof number);  // an address
  const tide_frame frame = tide_intern_frame(sites->names, (uint32_t)number);
  hash = hash_add_text(hash, sites->names, frame.name);
  hash = hash_add_text(hash, sites->names, frame.file);
  return hash_add(hash, &frame.line, sizeof frame.line);
}

uint64_t tool_stack_hash(const tool_sites* sites, uint32_t stack) {
  size_t count = 0;
  const uint64_t* const frames = tide_intern_stack(sites->names, stack, &count);
  if (count == 0) return 0;
  uint64_t hash = HASH_BEGIN;
  for (size_t i = 0; i < count; i++) hash = hash_add_frame(hash, sites, frames[i]);
  return hash != 0 ? hash : 1;
}

// The name of a file inside the folder of packages, because that may be elsewhere in another run.
static const char* file_in_package(const char* file) {
  static const char* const folders[] = { "/site-packages/", "/dist-packages/" };
  for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
    const char* const at = strstr(file, folders[i]);
    if (at != NULL) return at + strlen(folders[i]);
  }
  return file;
}

uint64_t tool_site_hash(const tool_sites* sites, tool_site site) {
  if (!tool_site_is_known(site)) return 0;
  const char* const file = file_in_package(name_text(sites->names, site.file));
  uint64_t hash = hash_add(HASH_BEGIN, file, strlen(file));
  hash = hash_add(hash, &site.line, sizeof site.line);
  hash = hash_add_text(hash, sites->names, site.function);
  return hash != 0 ? hash : 1;
}
