// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The page: its shell, the facts, and the parts in the order of their ranks. If it would be too large, the
// blocks with the shortest lives are left out, and the exact curves are added instead.
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "view.h"

// ---------------------------------------------------------------------------------------------------
// Facts

// The members of a JSON object, without its brackets. Letters that could begin or end markup only occur in
// texts, where they can be escaped.
static char* members_of(char* object) {
  size_t more = 0;
  for (const char* at = object; *at != '\0'; at++) more += *at == '<' || *at == '>' || *at == '&' ? 5 : 0;
  const char* const begin = strchr(object, '{') + 1;
  const char* const end = strrchr(object, '}');
  char* const members = tool_alloc((size_t)(end - begin) + more + 1, 1);
  size_t length = 0;
  for (const char* at = begin; at < end; at++) {
    const char* const escape = *at == '<'   ? "\\u003c"
                               : *at == '>' ? "\\u003e"
                               : *at == '&' ? "\\u0026"
                                            : NULL;
    if (escape == NULL) members[length++] = *at;
    else memcpy(members + length, escape, 6);
    if (escape != NULL) length += 6;
  }
  free(object);
  return members;
}

void tool_view_page_add_file(tool_view_page* page) {
  page->files = tool_grow(page->files, page->file_count + 1, sizeof *page->files);
  page->files[page->file_count++] = (tool_view_file){ .facts = NULL };
}

void tool_view_page_set_file(tool_view_page* page, char* facts) {
  page->files[page->file_count - 1].facts = members_of(facts);
}

void tool_view_page_add_device(tool_view_page* page, char* facts) {
  page->devices = tool_grow(page->devices, page->device_count + 1, sizeof *page->devices);
  page->devices[page->device_count++] = members_of(facts);
  page->files[page->file_count - 1].device_count++;
}

void tool_view_page_fini(tool_view_page* page) {
  for (size_t i = 0; i < page->file_count; i++) free(page->files[i].facts);
  for (size_t i = 0; i < page->device_count; i++) free(page->devices[i]);
  free(page->files);
  free(page->devices);
  for (size_t i = 0; page->details != NULL && i < page->device_count; i++)
    tool_view_memory_fini(&page->details[i]);
  free(page->details);
  tool_view_parts_fini(&page->parts);
}

static uint64_t device_left_out(const tool_view_page* page, size_t device) {
  uint64_t count = 0;
  for (size_t i = 0; i < page->parts.count; i++) {
    const tool_view_part* const part = &page->parts.items[i];
    if (part->device == device && part->is_left_out) count += part->block_count;
  }
  return count;
}

static void blocks_put(const tool_view_page* page, size_t device, FILE* to) {
  const char* comma = "";
  (void)fputs(",\n\"parts\": { \"blocks\": [", to);
  for (size_t i = 0; i < page->parts.count; i++) {
    const tool_view_part* const part = &page->parts.items[i];
    if (part->device != device || part->block_count == 0 || part->is_left_out) continue;
    (void)fprintf(to, "%s\"%s\"", comma, part->name);
    comma = ", ";
  }
  (void)fputc(']', to);
}

// The names of the other parts, each under the end of its name: "d0-segments" is "segments".
static void names_put(const tool_view_page* page, size_t device, size_t file, FILE* to) {
  static const char* const keys[] = { "segments", "times", "others", "curves" };
  for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
    char name[TOOL_VIEW_NAME];
    (void)tool_view_name('d', device, keys[k], name);
    for (size_t i = 0; i < page->parts.count; i++) {
      const tool_view_part* const part = &page->parts.items[i];
      if (strcmp(part->name, name) == 0 && !part->is_left_out)
        (void)fprintf(to, ", \"%s\": \"%s\"", keys[k], name);
    }
  }
  (void)fprintf(to, ", \"stacks\": \"f%zu-stacks\" }", file);
}

static void left_out_put(const tool_view_page* page, size_t device, FILE* to) {
  const uint64_t blocks = device_left_out(page, device);
  if (blocks == 0) (void)fputs(",\n\"left_out\": null\n}", to);
  else
    (void)fprintf(to, ",\n\"left_out\": { \"blocks\": %llu, \"below_entries\": %llu }\n}",
                  (unsigned long long)blocks, 1ULL << page->level);
}

// Freed by free().
static char* facts_text(const tool_view_page* page, size_t* out_bytes) {
  char* text = NULL;
  FILE* const to = tool_text_open(&text, out_bytes);
  (void)fprintf(to, "{ \"version\": 1, \"tool\": \"%s\", ", tide_version());
  if (page->is_served) (void)fprintf(to, "\"details\": { \"most\": %u }, ", TOOL_VIEW_DETAILS);
  (void)fputs("\"files\": [", to);
  size_t device = 0;
  for (size_t f = 0; f < page->file_count; f++) {
    (void)fprintf(to, "%s\n{%s,\n\"devices\": [", f > 0 ? "," : "", page->files[f].facts);
    for (size_t i = 0; i < page->files[f].device_count; i++, device++) {
      (void)fprintf(to, "%s\n{%s", i > 0 ? "," : "", page->devices[device]);
      blocks_put(page, device, to);
      names_put(page, device, f, to);
      left_out_put(page, device, to);
    }
    (void)fputs("] }", to);
  }
  (void)fputs("] }\n", to);
  if (ferror(to) || fclose(to) != 0) tool_out_of_memory();
  return text;
}

// ---------------------------------------------------------------------------------------------------
// Size

// What the policy of a page allows in addition if the tool serves it.
static const char connect_rule[] = "; connect-src 'self'";

static uint64_t page_bytes(const tool_view_page* page) {
  size_t bytes = 0;
  free(facts_text(page, &bytes));
  uint64_t sum = bytes;
  for (size_t i = 0; i < TOOL_VIEW_PIECES; i++) sum += tool_view_shell[i].bytes;
  if (page->is_served) sum += sizeof connect_rule - 1;
  for (size_t i = 0; i < page->parts.count; i++) {
    if (!page->parts.items[i].is_left_out) sum += tool_view_part_length(&page->parts.items[i]);
  }
  return sum;
}

// Leaves out the blocks of one more level, and adds the exact curves of devices that lack blocks now.
static void page_shrink(tool_view_page* page) {
  for (size_t i = 0; i < page->parts.count; i++) {
    tool_view_part* const part = &page->parts.items[i];
    if (part->block_count > 0 && part->level == page->level) part->is_left_out = true;
  }
  page->level++;
  for (size_t i = 0; i < page->parts.count; i++) {
    tool_view_part* const part = &page->parts.items[i];
    if (part->rank == TOOL_VIEW_CURVES) part->is_left_out = device_left_out(page, part->device) == 0;
  }
}

uint64_t tool_view_page_fit(tool_view_page* page, uint64_t most) {
  uint64_t bytes = page_bytes(page);
  while (bytes > most && page->level < TOOL_VIEW_LEVELS) {
    page_shrink(page);
    bytes = page_bytes(page);
  }
  return bytes;
}

uint64_t tool_view_page_left_out(const tool_view_page* page) {
  uint64_t count = 0;
  for (size_t i = 0; i < page->device_count; i++) count += device_left_out(page, i);
  return count;
}

// ---------------------------------------------------------------------------------------------------
// Writing

static tide_status shell_write(size_t piece, const tide_sink* sink) {
  return sink->write(sink->user, tool_view_shell[piece].data, tool_view_shell[piece].bytes);
}

static tide_status facts_write(const tool_view_page* page, const tide_sink* sink) {
  size_t bytes = 0;
  char* const text = facts_text(page, &bytes);
  const tide_status status = sink->write(sink->user, text, bytes);
  free(text);
  return status;
}

tide_status tool_view_page_write(const void* what, const tide_sink* sink) {
  const tool_view_page* const page = what;
  TIDE_TRY(shell_write(0, sink));
  if (page->is_served) TIDE_TRY(sink->write(sink->user, connect_rule, sizeof connect_rule - 1));
  TIDE_TRY(shell_write(1, sink));
  TIDE_TRY(facts_write(page, sink));
  TIDE_TRY(shell_write(2, sink));
  for (uint32_t rank = 0; rank <= TOOL_VIEW_TIMES; rank++) {
    for (size_t i = 0; i < page->parts.count; i++) {
      const tool_view_part* const part = &page->parts.items[i];
      if (part->rank == rank && !part->is_left_out) TIDE_TRY(tool_view_part_write(part, sink));
    }
  }
  return shell_write(3, sink);
}
