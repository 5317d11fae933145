// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The stacks of a page: those that blocks, segments and other entries use, with their frames and texts.
#include <stdlib.h>

#include "view.h"

// ---------------------------------------------------------------------------------------------------
// Numbers

static void list_init(tool_view_list* list, uint32_t known) {
  *list = (tool_view_list){ .count = 1, .room = 64, .known = known };
  list->numbers = tool_alloc(list->room, sizeof *list->numbers);
  list->places = tool_alloc(known, sizeof *list->places);
}

static void list_fini(tool_view_list* list) {
  free(list->numbers);
  free(list->places);
}

static uint32_t list_use(tool_view_list* list, uint32_t number) {
  if (number == 0 || number >= list->known) return 0;
  if (list->places[number] != 0) return list->places[number];
  if (list->count == list->room) {
    list->room *= 2;
    list->numbers = tool_grow(list->numbers, list->room, sizeof *list->numbers);
  }
  list->numbers[list->count] = number;
  return list->places[number] = list->count++;
}

void tool_view_stacks_init(tool_view_stacks* stacks, const tide_trace* trace) {
  *stacks = (tool_view_stacks){ .names = tide_trace_names(trace) };
  const tide_intern_counts counts = tide_intern_counts_of(stacks->names);
  list_init(&stacks->stacks, counts.stacks + 1);
  list_init(&stacks->frames, counts.frames + 1);
  list_init(&stacks->texts, counts.texts + 1);
}

void tool_view_stacks_fini(tool_view_stacks* stacks) {
  list_fini(&stacks->stacks);
  list_fini(&stacks->frames);
  list_fini(&stacks->texts);
}

uint32_t tool_view_stack(tool_view_stacks* stacks, uint32_t stack) {
  return list_use(&stacks->stacks, stack);
}

uint32_t tool_view_text(tool_view_stacks* stacks, uint32_t text) { return list_use(&stacks->texts, text); }

// ---------------------------------------------------------------------------------------------------
// JSON

// Frames that are addresses have no names, and are omitted.
static void stacks_put(tool_view_stacks* s, FILE* to) {
  (void)fputs("\"stacks\":[[]", to);
  for (uint32_t i = 1; i < s->stacks.count; i++) {
    size_t count = 0;
    const uint64_t* const frames = tide_intern_stack(s->names, s->stacks.numbers[i], &count);
    const char* comma = "";
    (void)fputs(",[", to);
    for (size_t k = 0; k < count; k++) {
      const uint32_t frame = frames[k] < s->frames.known ? list_use(&s->frames, (uint32_t)frames[k]) : 0;
      if (frame != 0) (void)fprintf(to, "%s%u", comma, frame);
      if (frame != 0) comma = ",";
    }
    (void)fputc(']', to);
  }
  (void)fputc(']', to);
}

static void own_put(tool_view_stacks* s, tool_sites* sites, FILE* to) {
  (void)fputs(",\"own\":[-1", to);
  for (uint32_t i = 1; i < s->stacks.count; i++) {
    const uint32_t own = list_use(&s->frames, tool_sites_lines(sites, s->stacks.numbers[i]).own);
    if (own == 0) (void)fputs(",-1", to);
    else (void)fprintf(to, ",%u", own);
  }
  (void)fputc(']', to);
}

static void frames_put(tool_view_stacks* s, const tool_sites* sites, FILE* to) {
  (void)fputs(",\"frames\":[[0,0,0]", to);
  for (uint32_t i = 1; i < s->frames.count; i++) {
    const tide_frame frame = tide_intern_frame(s->names, s->frames.numbers[i]);
    const uint32_t name = tool_view_text(s, frame.name);
    const uint32_t file = tool_view_text(s, frame.file);
    (void)fprintf(to, ",[%u,%u,%lld]", name, file, (long long)frame.line);
  }
  (void)fputs("],\"folded\":[1", to);
  for (uint32_t i = 1; i < s->frames.count; i++) {
    const tide_frame_kind kind = tide_frames_kind(sites->frames, s->frames.numbers[i]);
    (void)fputs(kind < TIDE_FRAME_KIND_PACKAGE ? ",1" : ",0", to);
  }
  (void)fputc(']', to);
}

static void texts_put(const tool_view_stacks* s, FILE* to) {
  (void)fputs(",\"texts\":[\"\"", to);
  for (uint32_t i = 1; i < s->texts.count; i++) {
    size_t bytes = 0;
    const char* const text = tide_intern_text(s->names, s->texts.numbers[i], &bytes);
    (void)fputc(',', to);
    tool_json_put_text(to, text, bytes);
  }
  (void)fputc(']', to);
}

// Each list uses entries of the next ones, so the texts come last.
void tool_view_stacks_write(tool_view_stacks* stacks, tool_sites* sites, tool_view_bytes* out) {
  char* text = NULL;
  size_t bytes = 0;
  FILE* const to = tool_text_open(&text, &bytes);
  (void)fputc('{', to);
  stacks_put(stacks, to);
  own_put(stacks, sites, to);
  frames_put(stacks, sites, to);
  texts_put(stacks, to);
  (void)fputc('}', to);
  if (ferror(to) || fclose(to) != 0) tool_out_of_memory();
  *out = (tool_view_bytes){ .data = (unsigned char*)text, .count = bytes, .room = bytes };
}
