// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A step is numbered from 1. What precedes the first step and follows the last one has no number.
#include "steps.h"

#include <stdlib.h>
#include <string.h>

#define STEPS_ENDS 5u     // rows at each end of a long table
#define STEPS_ALL 14u     // rows of a table that is not shortened
#define STACK_FRAMES 12u  // frames shown in text

// ---------------------------------------------------------------------------------------------------
// Finding

static uint64_t stack_site(void* user, uint32_t stack) {
  tool_steps* const s = user;
  if (stack >= s->sites->count) return 0;
  if (s->site_ids[stack] == 0) {
    const uint64_t hash = tool_site_hash(s->sites, tool_sites_find(s->sites, stack));
    s->site_ids[stack] = hash != 0 ? hash : UINT64_MAX;
  }
  return s->site_ids[stack] != UINT64_MAX ? s->site_ids[stack] : 0;
}

static int step_parse(tool_steps* s, const char* text) {
  if (text == NULL) return TOOL_DONE;
  if (*text == '\0') return tool_fail("--step must be a name or a number of entries, not ''");
  if (strspn(text, "0123456789") < strlen(text)) {
    s->named = text;
    return TOOL_DONE;
  }
  if (tool_number_parse(text, UINT32_MAX, &s->entries) && s->entries > 0) return TOOL_DONE;
  return tool_fail("--step must be a name, or a number of entries from 1 to %u, not '%s'", UINT32_MAX, text);
}

int tool_steps_init(tool_steps* s, const tool_call* call, const tide_trace* trace, size_t device,
                    tide_ledger* ledger, tool_sites* sites) {
  *s = (tool_steps){ .trace = trace, .sites = sites, .device = device };
  const int status = step_parse(s, tool_option_value(call, "step"));
  if (status != TOOL_DONE) return status;
  s->site_ids = tool_alloc(sites->count, sizeof *s->site_ids);
  tide_steps_options options = TIDE_STEPS_OPTIONS_INIT;
  options.name = s->named;
  options.entries = s->entries;
  options.site = stack_site;
  options.user = s;
  if (tide_steps_find(trace, device, ledger, &options, &s->steps) == TIDE_OK) return TOOL_DONE;
  free(s->site_ids);
  s->site_ids = NULL;
  return tool_fail("%s: %s", call->operands[0], tool_error());
}

void tool_steps_fini(tool_steps* s) {
  tide_steps_free(s->steps);
  free(s->site_ids);
}

const char* tool_steps_how(const tool_steps* s, char out[TOOL_STEPS_HOW]) {
  const char* const name = tide_steps_name(s->steps);
  const char* const named = name != NULL ? name : "";
  switch (tide_steps_get_source(s->steps)) {
    case TIDE_STEPS_ANNOTATION: (void)snprintf(out, TOOL_STEPS_HOW, "by the annotation \"%s\"", named); break;
    case TIDE_STEPS_METADATA: (void)snprintf(out, TOOL_STEPS_HOW, "by the metadata \"%s\"", named); break;
    case TIDE_STEPS_OPTIMIZER:
      (void)snprintf(out, TOOL_STEPS_HOW, "by the optimizer in stacks, %s", named);
      break;
    case TIDE_STEPS_FRAME: (void)snprintf(out, TOOL_STEPS_HOW, "by the frame %s", named); break;
    case TIDE_STEPS_SEQUENCE:
      (void)snprintf(out, TOOL_STEPS_HOW, "by a sequence of allocations and releases that repeats");
      break;
    case TIDE_STEPS_LEVEL:
      (void)snprintf(out, TOOL_STEPS_HOW, "by a level of live memory that repeats");
      break;
    case TIDE_STEPS_ENTRIES:
      (void)snprintf(out, TOOL_STEPS_HOW, "every %llu entries, as --step says",
                     (unsigned long long)s->entries);
      break;
    case TIDE_STEPS_NONE: (void)tool_steps_why_not(s, out); break;
  }
  return out;
}

const char* tool_steps_why_not(const tool_steps* s, char out[TOOL_STEPS_HOW]) {
  if (s->named != NULL)
    (void)snprintf(out, TOOL_STEPS_HOW,
                   "no annotation, metadata or frame that contains '%s' occurs in two steps", s->named);
  else if (s->entries > 0)
    (void)snprintf(out, TOOL_STEPS_HOW, "the recording has fewer entries than one step");
  else
    (void)snprintf(out, TOOL_STEPS_HOW, "no annotation or stack marks them, and nothing repeats regularly");
  return out;
}

// ---------------------------------------------------------------------------------------------------
// Steps

// The numbers of a row are those of tide_steps_items().
static void step_emit(tool_emit* emit, const tide_step* items, size_t i, size_t number) {
  const tide_step* const step = &items[i];
  tool_emit_row(emit);
  if (step->is_whole) tool_emit_uint(emit, NULL, NULL, number);
  else tool_emit_text(emit, NULL, NULL, NULL);
  tool_emit_bool(emit, NULL, NULL, step->is_whole);
  tool_emit_uint(emit, NULL, NULL, step->first);
  tool_emit_uint(emit, NULL, NULL, step->end - step->first);
  tool_emit_bytes(emit, NULL, NULL, step->peak_bytes);
  tool_emit_uint(emit, NULL, NULL, step->peak_at);
  const double share = tool_share(step->peak_at - step->first, step->end - step->first);
  tool_emit_share(emit, NULL, NULL, share);
  tool_emit_change(emit, NULL, NULL, step->live_before, step->live_bytes);
  tool_emit_bytes(emit, NULL, NULL, step->live_bytes);
  tool_emit_bytes(emit, NULL, NULL, step->reserved_bytes);
}

static size_t steps_highest(const tide_step* items, size_t count) {
  size_t highest = 0;
  for (size_t i = 1; i < count; i++) highest = items[i].peak_bytes > items[highest].peak_bytes ? i : highest;
  return highest;
}

void tool_steps_emit_rows(tool_emit* emit, const char* key, const tool_call* call, const tool_steps* s) {
  static const tool_column columns[] = {
    { "step", "step" },
    { "is_whole", NULL },
    { "first_entry", "first entry" },
    { "entries", "entries" },
    { "peak_allocated", "peak allocated" },
    { "peak_entry", NULL },
    { "peak_share", "at" },
    { "growth", "growth" },
    { "live", "live at the end" },
    { "peak_reserved", "reserved" },
  };
  size_t count = 0;
  const tide_step* const items = tide_steps_items(s->steps, &count);
  const size_t highest = steps_highest(items, count);
  const bool is_long = count > STEPS_ALL && !call->is_json;
  size_t number = 0;
  tool_emit_table(emit, key, columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < count; i++) {
    number += items[i].is_whole;
    const bool is_middle = i >= STEPS_ENDS && i + STEPS_ENDS < count && i != highest;
    if (!is_long || !is_middle) step_emit(emit, items, i, number);
  }
  tool_emit_table_end(emit);
  if (is_long)
    tool_emit_words(emit,
                    "Only the first %u rows, the last %u and the step with the highest peak are shown; "
                    "--json has all %zu.",
                    STEPS_ENDS, STEPS_ENDS, count);
}

void tool_steps_emit(tool_emit* emit, const tool_call* call, const tool_steps* s, bool is_shown) {
  size_t count = 0;
  (void)tide_steps_items(s->steps, &count);
  char how[TOOL_STEPS_HOW];
  if (!call->is_json && !is_shown) return;
  tool_emit_open(emit, "steps", "Steps");
  tool_emit_text(emit, "found_by", NULL, tide_steps_source_name(tide_steps_get_source(s->steps)));
  tool_emit_text(emit, "name", NULL, tide_steps_name(s->steps));
  tool_emit_uint(emit, "count", NULL, tide_steps_whole(s->steps));
  (void)tool_steps_how(s, how);
  if (count == 0) tool_emit_words(emit, "No steps were found: %s.", how);
  else
    tool_emit_words(
        emit,
        "%zu steps, found %s. \"at\" is how far into the step its peak is. A row without a number is "
        "what precedes the first step or follows the last.",
        tide_steps_whole(s->steps), how);
  if (count > 0 || call->is_json) tool_steps_emit_rows(emit, "rows", call, s);
  tool_emit_close(emit);
}

// ---------------------------------------------------------------------------------------------------
// Leaks

// Rounded; a damaged recording may have sizes beyond all bounds.
static uint64_t bytes_of_real(double bytes) {
  return bytes < 1e18 ? (uint64_t)(bytes + 0.5) : (uint64_t)1e18;
}

// A leak without a call site is described by the sizes of its blocks.
static void leak_place(const tool_steps* s, const tide_leak* leak, char out[TOOL_SITE_TEXT]) {
  char small[TOOL_SIZE_TEXT];
  char large[TOOL_SIZE_TEXT];
  if (leak->site != 0) {
    (void)tool_site_text(s->sites, tool_sites_find(s->sites, leak->stack), out);
    return;
  }
  tool_size_text(leak->smallest, small);
  tool_size_text(leak->largest, large);
  const bool is_one = leak->smallest == leak->largest;
  (void)snprintf(out, TOOL_SITE_TEXT, "(no stack) blocks of %s%s%s on stream %llu", small,
                 is_one ? "" : " to ", is_one ? "" : large, (unsigned long long)leak->stream);
}

// All frames in one text, outermost first, with ";" in between; freed by free(). NULL if there is no stack.
static char* stack_fold(const tool_steps* s, uint32_t stack) {
  char text[TOOL_SITE_TEXT];
  char* folded = NULL;
  size_t bytes = 0;
  size_t count = 0;
  const uint64_t* const frames = tide_intern_stack(s->sites->names, stack, &count);
  if (count == 0) return NULL;
  FILE* const out = tool_text_open(&folded, &bytes);
  for (size_t i = count; i-- > 0;)
    (void)fprintf(out, "%s%s", tool_site_text(s->sites, tool_site_of_frame(s->sites, frames[i]), text),
                  i > 0 ? ";" : "");
  if (fclose(out) != 0) tool_out_of_memory();
  return folded;
}

static void leak_emit_row(tool_emit* emit, const tool_steps* s, const tide_leak* leak) {
  char place[TOOL_SITE_TEXT];
  char* const stack = stack_fold(s, leak->stack);
  leak_place(s, leak, place);
  tool_emit_row(emit);
  tool_emit_uint(emit, NULL, NULL, s->device);
  tool_emit_bytes(emit, NULL, NULL, bytes_of_real(leak->bytes_per_step));
  tool_emit_real(emit, NULL, NULL, leak->blocks_per_step, 3);
  tool_emit_uint(emit, NULL, NULL, leak->growing_steps);
  tool_emit_uint(emit, NULL, NULL, leak->first_step);
  tool_emit_uint(emit, NULL, NULL, leak->last_step);
  tool_emit_share(emit, NULL, NULL, leak->certainty);
  tool_emit_uint(emit, NULL, NULL, leak->blocks);
  tool_emit_bytes(emit, NULL, NULL, leak->bytes);
  tool_emit_uint(emit, NULL, NULL, leak->smallest);
  tool_emit_uint(emit, NULL, NULL, leak->largest);
  tool_emit_uint(emit, NULL, NULL, leak->stream);
  tool_emit_text(emit, NULL, NULL, stack);
  tool_emit_text(emit, NULL, NULL, place);
  free(stack);
}

static void leak_emit_stack(tool_emit* emit, const tool_steps* s, const tide_leak* leak) {
  char text[TOOL_SITE_TEXT];
  size_t count = 0;
  const uint64_t* const frames = tide_intern_stack(s->sites->names, leak->stack, &count);
  if (count == 0) return;
  leak_place(s, leak, text);
  tool_emit_title(emit, "Stack of %s", text);
  for (size_t i = 0; i < count && i < STACK_FRAMES; i++) {
    const tool_site site = tool_site_of_frame(s->sites, frames[i]);
    tool_emit_text(emit, NULL, tool_site_text(s->sites, site, text), "");
  }
  if (count > STACK_FRAMES) tool_emit_format(emit, NULL, "...", "%zu more", count - STACK_FRAMES);
}

static void leaks_emit_rows(tool_emit* emit, const tool_steps* s, uint64_t least) {
  size_t count = 0;
  const tide_leak* const leaks = tide_steps_leaks(s->steps, &count);
  for (size_t i = 0; i < count; i++) {
    if (leaks[i].bytes_per_step >= (double)least) leak_emit_row(emit, s, &leaks[i]);
  }
}

static void leaks_emit_stacks(tool_emit* emit, const tool_steps* s, uint64_t least) {
  size_t count = 0;
  const tide_leak* const leaks = tide_steps_leaks(s->steps, &count);
  for (size_t i = 0; i < count; i++) {
    if (leaks[i].bytes_per_step >= (double)least) leak_emit_stack(emit, s, &leaks[i]);
  }
}

size_t tool_leaks_count(const tool_steps* s, size_t count, uint64_t least) {
  size_t found = 0;
  for (size_t d = 0; d < count; d++) {
    size_t all = 0;
    const tide_leak* const leaks = tide_steps_leaks(s[d].steps, &all);
    for (size_t i = 0; i < all; i++) found += leaks[i].bytes_per_step >= (double)least;
  }
  return found;
}

void tool_leaks_emit(tool_emit* emit, const tool_call* call, const tool_steps* s, size_t count,
                     uint64_t least) {
  static const tool_column columns[] = {
    { "device", NULL },
    { "bytes_per_step", "growth/step" },
    { "blocks_per_step", "blocks/step" },
    { "growing_steps", "growing steps" },
    { "first_step", "first" },
    { "last_step", "last" },
    { "certainty", "certainty" },
    { "blocks", NULL },
    { "bytes", NULL },
    { "smallest", NULL },
    { "largest", NULL },
    { "stream", NULL },
    { "stack", NULL },
    { "site", "call site" },
  };
  if (tool_leaks_count(s, count, least) == 0 && !call->is_json) return;
  tool_emit_title(emit, "Suspected leaks");
  tool_emit_table(emit, "leaks", columns, sizeof columns / sizeof columns[0]);
  for (size_t d = 0; d < count; d++) leaks_emit_rows(emit, &s[d], least);
  tool_emit_table_end(emit);
  for (size_t d = 0; d < count && !call->is_json; d++) leaks_emit_stacks(emit, &s[d], least);
}

// ---------------------------------------------------------------------------------------------------
// In the report

const char* tool_steps_warning(const tool_steps* s, char out[TOOL_STEPS_WARNING]) {
  size_t count = 0;
  const tide_leak* const leaks = tide_steps_leaks(s->steps, &count);
  char size[TOOL_SIZE_TEXT];
  char place[TOOL_SITE_TEXT];
  char how[TOOL_STEPS_HOW];
  if (count == 0) return NULL;
  double bytes = 0;
  for (size_t i = 0; i < count; i++) bytes += leaks[i].bytes_per_step;
  leak_place(s, &leaks[0], place);
  (void)snprintf(
      out, TOOL_STEPS_WARNING,
      "Memory probably leaks: each step adds %s that are never released, most of it from %s. There are %zu "
      "steps, found %s. tidemark leaks shows more.",
      tool_size_text(bytes_of_real(bytes), size), place, tide_steps_whole(s->steps), tool_steps_how(s, how));
  return out;
}

void tool_steps_emit_warning(tool_emit* emit, const tool_steps* s) {
  char text[TOOL_STEPS_WARNING];
  if (tool_steps_warning(s, text) != NULL) tool_emit_words(emit, "%s", text);
}

void tool_steps_emit_report(tool_emit* emit, const tool_call* call, const tool_steps* s) {
  const bool is_shown = tool_option_value(call, "steps") != NULL || tool_option_value(call, "step") != NULL;
  tool_steps_emit(emit, call, s, is_shown);
  if (call->is_json) tool_leaks_emit(emit, call, s, 1, 0);
}
