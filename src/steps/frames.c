// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Steps by a frame in the stacks of allocations: the step of an optimizer, or a frame that the user names.
// Allocations with the frame come in runs. A few others in between, from another thread, do not end a run.
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/heap.h"
#include "steps/steps.h"

#define FRAME_OTHERS 4u  // allocations without the frame that end a run
#define FRAME_TEXT 1024u

typedef struct frame_search {
  const tide__recorded* run;
  const char* name;  // NULL: the step of an optimizer
  uint8_t* known;    // owned; by the number of the stack: 0 unknown, 1 without the frame, 2 with it
  size_t room;
} frame_search;

static const char* frame_word(const tide_intern* names, uint32_t id) {
  const char* const text = tide_intern_text(names, id, NULL);
  return text != NULL ? text : "";
}

static bool text_ends(const char* text, const char* end) {
  const size_t length = strlen(text);
  return length >= strlen(end) && strcmp(text + length - strlen(end), end) == 0;
}

static bool frame_is_optimizer(const char* function, const char* file) {
  if (strstr(function, "Optimizer.step") != NULL) return true;
  const bool is_step = strcmp(function, "step") == 0 || text_ends(function, ".step");
  return is_step && strstr(file, "optim") != NULL && strstr(file, "lr_scheduler") == NULL;
}

// The frames of a live trace are addresses.
static bool frame_is_mark(const frame_search* search, uint64_t number, char text[FRAME_TEXT]) {
  if (number > tide_intern_counts_of(search->run->names).frames) return false;
  const tide_frame frame = tide_intern_frame(search->run->names, (uint32_t)number);
  const char* const function = frame_word(search->run->names, frame.name);
  const char* const file = frame_word(search->run->names, frame.file);
  (void)snprintf(text, FRAME_TEXT, "%s:%lld %s", file, (long long)frame.line, function);
  return search->name != NULL ? strstr(text, search->name) != NULL : frame_is_optimizer(function, file);
}

static bool stack_is_mark(frame_search* search, uint32_t stack, char text[FRAME_TEXT]) {
  size_t count = 0;
  const uint64_t* const frames = tide_intern_stack(search->run->names, stack, &count);
  for (size_t i = 0; i < count; i++) {
    if (frame_is_mark(search, frames[i], text)) return true;
  }
  return false;
}

static bool stack_find(frame_search* search, uint32_t stack, tide__cuts* cuts) {
  char text[FRAME_TEXT];
  if (stack >= search->room) return false;
  if (search->known[stack] == 0) {
    search->known[stack] = stack_is_mark(search, stack, text) ? 2 : 1;
    if (search->known[stack] == 2 && cuts->name[0] == '\0') tide__cuts_set_name(cuts, text);
  }
  return search->known[stack] == 2;
}

// The step of an optimizer ends a step; a frame that was named begins one.
static tide_status search_follow(frame_search* search, tide__cuts* cuts) {
  const bool ends = search->name == NULL;
  size_t others = FRAME_OTHERS;  // since the last allocation with the frame
  size_t last = 0;               // entry after that
  for (size_t i = 0; i < search->run->count; i++) {
    const tide_trace_entry* const entry = &search->run->entries[i];
    if (entry->action != TIDE_ACTION_ALLOC) continue;
    if (!stack_find(search, entry->stack, cuts)) {
      others++;
      if (ends && others == FRAME_OTHERS && last > 0) TIDE_TRY(tide__cuts_add(cuts, last));
      continue;
    }
    if (cuts->count == 0 && ends) TIDE_TRY(tide__cuts_add(cuts, 0));
    if (others >= FRAME_OTHERS && !ends) TIDE_TRY(tide__cuts_add(cuts, i));
    others = 0;
    last = i + 1;
  }
  return ends && others < FRAME_OTHERS && last > 0 ? tide__cuts_add(cuts, last) : TIDE_OK;
}

tide_status tide__steps_by_frame(const tide__recorded* run, const char* name, tide__cuts* cuts) {
  const uint32_t stacks = tide_intern_counts_of(run->names).stacks;
  if (stacks == 0) return TIDE_OK;
  frame_search search = { .run = run, .name = name, .room = (size_t)stacks + 1 };
  search.known = tide__heap_alloc(run->heap, search.room, 1);
  TIDE_REQUIRE(search.known != NULL, TIDE_ERR_NO_MEMORY, "steps_find: no memory for %u stacks", stacks);
  search.known[0] = 1;
  const tide_status status = search_follow(&search, cuts);
  tide__heap_release(run->heap, search.known, search.room, 1);
  return status;
}
