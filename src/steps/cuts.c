// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Steps by what the program says: annotations and metadata.
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/heap.h"
#include "steps/steps.h"

tide_status tide__cuts_add(tide__cuts* cuts, uint64_t at) {
  if (cuts->count > 0 && cuts->items[cuts->count - 1] >= at) return TIDE_OK;
  void* items = cuts->items;
  const bool has_room =
      tide__heap_grow(cuts->heap, &items, &cuts->room, cuts->count + 1, sizeof *cuts->items);
  cuts->items = items;
  TIDE_REQUIRE(has_room, TIDE_ERR_NO_MEMORY, "steps_find: no memory for %zu steps", cuts->count + 1);
  cuts->items[cuts->count++] = at;
  return TIDE_OK;
}

void tide__cuts_set_name(tide__cuts* cuts, const char* name) {
  const size_t length = strnlen(name, sizeof cuts->name - 1);
  memcpy(cuts->name, name, length);
  cuts->name[length] = '\0';
}

// The length of a name without a number at its end and what joins it: "ProfilerStep#12", "step 3".
static size_t name_length(const char* name) {
  size_t length = strlen(name);
  while (length > 0 && isdigit((unsigned char)name[length - 1])) length--;
  while (length > 0 && strchr("#: _-=/.", name[length - 1]) != NULL) length--;
  return length;
}

bool tide__name_is_step(const char* name) {
  static const char* const words[] = { "step", "iteration", "iter", "batch" };
  const size_t length = name_length(name);
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
    const size_t word = strlen(words[i]);
    if (length >= word && strncasecmp(name + length - word, words[i], word) == 0) return true;
  }
  return false;
}

// ---------------------------------------------------------------------------------------------------
// Annotations: ranges with a name, a beginning and an end

typedef struct steps_mark {
  const char* name;
  uint64_t time_us;
  bool is_start;
} steps_mark;

static const char* mark_text(const tide_intern* names, uint32_t dict, const char* key) {
  const tide_value value = tide_intern_value(names, tide_intern_value_find(names, dict, key));
  return value.kind == TIDE_VALUE_TEXT ? tide_intern_text(names, value.text, NULL) : NULL;
}

static bool mark_int(const tide_intern* names, uint32_t dict, const char* key, int64_t* out) {
  const tide_value value = tide_intern_value(names, tide_intern_value_find(names, dict, key));
  *out = value.integer;
  return value.kind == TIDE_VALUE_INT;
}

static bool mark_read(const tide__recorded* run, uint32_t item, steps_mark* out) {
  const char* const stage = mark_text(run->names, item, "stage");
  int64_t on = 0;
  int64_t time_us = 0;
  out->name = mark_text(run->names, item, "name");
  if (out->name == NULL || stage == NULL || !mark_int(run->names, item, "time_us", &time_us) || time_us < 0)
    return false;
  if (mark_int(run->names, item, "device", &on) && on >= 0 && (uint64_t)on != run->device) return false;
  out->time_us = (uint64_t)time_us;
  out->is_start = strcmp(stage, "START") == 0;
  return true;
}

static bool name_is_optimizer(const char* name) { return strncmp(name, "Optimizer.", 10) == 0; }

// How well an annotation marks steps; 0: not at all.
static int mark_worth(const char* mark, const char* name) {
  if (name != NULL) return strstr(mark, name) != NULL;
  if (!tide__name_is_step(mark)) return 0;
  if (strncmp(mark, "ProfilerStep", 12) == 0) return 3;
  return name_is_optimizer(mark) ? 1 : 2;
}

// The first of the best marks: of ranges that nest, the outermost begins first.
static const char* marks_choose(const tide__recorded* run, const tide_value* list, const char* name) {
  const char* best = NULL;
  int best_worth = 0;
  for (size_t i = 0; i < list->count; i++) {
    steps_mark mark;
    if (!mark_read(run, (uint32_t)list->items[i], &mark) || !mark.is_start) continue;
    const int worth = mark_worth(mark.name, name);
    if (worth <= best_worth) continue;
    best_worth = worth;
    best = mark.name;
  }
  return best;
}

static bool mark_is_same(const char* mark, const char* chosen) {
  const size_t length = name_length(chosen);
  return name_length(mark) == length && strncmp(mark, chosen, length) == 0;
}

// Moves on to the first entry after a time, or at it.
static size_t entry_seek(const tide__recorded* run, size_t at, uint64_t time_us, bool is_after) {
  while (at < run->count && (run->entries[at].time_ns / 1000 < time_us ||
                             (is_after && run->entries[at].time_ns / 1000 == time_us)))
    at++;
  return at;
}

// The step of an optimizer ends a step. Any other range is a step, which lasts until the next one begins.
tide_status tide__steps_by_annotation(const tide__recorded* run, const char* name, tide__cuts* cuts) {
  const tide_value list = tide_intern_value(run->names, tide_trace_get_about(run->trace).annotations);
  if (list.kind != TIDE_VALUE_LIST || run->count == 0) return TIDE_OK;
  if ((run->entries[0].absent & TIDE_ENTRY_TIME) != 0) return TIDE_OK;
  const char* const chosen = marks_choose(run, &list, name);
  if (chosen == NULL) return TIDE_OK;
  const bool ends = name_is_optimizer(chosen);
  size_t at = 0;
  size_t last_end = 0;
  if (ends) TIDE_TRY(tide__cuts_add(cuts, 0));
  for (size_t i = 0; i < list.count; i++) {
    steps_mark mark;
    if (!mark_read(run, (uint32_t)list.items[i], &mark) || !mark_is_same(mark.name, chosen)) continue;
    const size_t found = entry_seek(run, at, mark.time_us, !mark.is_start);
    if (!mark.is_start) last_end = found;
    if (mark.is_start == ends) continue;
    at = found;
    TIDE_TRY(tide__cuts_add(cuts, at));
  }
  if (!ends) TIDE_TRY(tide__cuts_add(cuts, last_end));
  tide__cuts_set_name(cuts, chosen);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Metadata: a text with each entry

static const char* entry_metadata(const tide__recorded* run, const tide_trace_entry* entry, uint32_t* out) {
  if (entry->note == 0) return NULL;
  *out = tide_intern_note(run->names, entry->note).metadata;
  return *out != 0 ? tide_intern_text(run->names, *out, NULL) : NULL;
}

static bool metadata_is_mark(const char* text, const char* name) {
  return name != NULL ? strstr(text, name) != NULL : tide__name_is_step(text);
}

// A step begins where the text changes, and at each remark of the program.
tide_status tide__steps_by_metadata(const tide__recorded* run, const char* name, tide__cuts* cuts) {
  if (tide_intern_counts_of(run->names).notes == 0 || tide_trace_get_about(run->trace).has_steps)
    return TIDE_OK;
  uint32_t last = 0;   // text of the last mark
  uint32_t other = 0;  // a text that is none
  for (size_t i = 0; i < run->count; i++) {
    uint32_t text = 0;
    const char* const words = entry_metadata(run, &run->entries[i], &text);
    const bool is_remark = run->entries[i].action == TIDE_ACTION_USER_DEFINED;
    if (words == NULL || text == other || (text == last && !is_remark)) continue;
    if (!metadata_is_mark(words, name)) {
      other = text;
      continue;
    }
    if (cuts->count == 0) tide__cuts_set_name(cuts, words);
    last = text;
    TIDE_TRY(tide__cuts_add(cuts, i));
  }
  return TIDE_OK;
}
