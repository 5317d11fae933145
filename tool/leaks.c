// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tidemark leaks: what grows from step to step and is never freed. The exit status tells a script: 1 if
// memory leaks, 0 if not, 2 if that cannot be judged.
#include <stdlib.h>

#include "picture.h"
#include "steps.h"

typedef struct leak_search {
  const tool_call* call;
  tide_trace* trace;
  tool_sites sites;
  uint64_t least;     // bytes per step
  tool_steps* steps;  // owned; of each device that was looked at
  size_t count;
  size_t judged;  // of them
} leak_search;

static bool steps_are_enough(const tool_steps* s) { return tide_steps_whole(s->steps) >= TIDE_LEAK_STEPS; }

static int search_device(leak_search* search, size_t device) {
  tide_ledger* ledger = NULL;
  if (tide_ledger_new(search->trace, device, &ledger) != TIDE_OK)
    return tool_fail("%s: %s", search->call->operands[0], tool_error());
  tool_steps* const steps = &search->steps[search->count++];
  const int status = tool_steps_init(steps, search->call, search->trace, device, ledger, &search->sites);
  tide_ledger_free(ledger);
  if (status == TOOL_DONE) search->judged += steps_are_enough(steps);
  return status;
}

// The device of --device, or all that have entries.
static int search_devices(leak_search* search) {
  size_t device = 0;
  const size_t count = tide_trace_device_count(search->trace);
  search->steps = tool_alloc(count + 1, sizeof *search->steps);
  if (tool_option_value(search->call, "device") != NULL) {
    const int status = tool_device_choose(search->call, search->trace, &device);
    return status == TOOL_DONE ? search_device(search, device) : status;
  }
  int status = TOOL_DONE;
  for (; device < count && status == TOOL_DONE; device++) {
    if (tool_device_entries(search->trace, device) > 0) status = search_device(search, device);
  }
  return status;
}

// Nothing can be judged: says why, for the device with the most steps.
static int search_fail(const leak_search* search) {
  const char* const file = search->call->operands[0];
  const tool_steps* best = search->count > 0 ? &search->steps[0] : NULL;
  char how[TOOL_STEPS_HOW];
  for (size_t i = 1; i < search->count; i++) {
    if (tide_steps_whole(search->steps[i].steps) > tide_steps_whole(best->steps)) best = &search->steps[i];
  }
  if (best == NULL)
    return tool_fail("%s: cannot judge: the file has no entries; record with "
                     "torch.cuda.memory._record_memory_history()",
                     file);
  const size_t whole = tide_steps_whole(best->steps);
  if (whole == 0)
    return tool_fail("%s: cannot judge: no steps were found: %s; say with --step what marks a step", file,
                     tool_steps_why_not(best, how));
  return tool_fail("%s: cannot judge: %zu steps are too few, at least %d are needed; steps were found %s",
                   file, whole, TIDE_LEAK_STEPS, tool_steps_how(best, how));
}

static void devices_emit(tool_emit* emit, const leak_search* search) {
  static const tool_column columns[] = { { "device", "device" }, { "steps", "steps" },
                                         { "found_by", NULL },   { "name", NULL },
                                         { NULL, "found" },      { "is_judged", "judged" } };
  char how[TOOL_STEPS_HOW];
  tool_emit_title(emit, "Steps");
  tool_emit_table(emit, "devices", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < search->count; i++) {
    const tool_steps* const s = &search->steps[i];
    tool_emit_row(emit);
    tool_emit_uint(emit, NULL, NULL, s->device);
    tool_emit_uint(emit, NULL, NULL, tide_steps_whole(s->steps));
    tool_emit_text(emit, NULL, NULL, tide_steps_source_name(tide_steps_get_source(s->steps)));
    tool_emit_text(emit, NULL, NULL, tide_steps_name(s->steps));
    tool_emit_text(emit, NULL, NULL, tool_steps_how(s, how));
    tool_emit_bool(emit, NULL, NULL, steps_are_enough(s));
  }
  tool_emit_table_end(emit);
}

static int search_answer(const leak_search* search) {
  const size_t found = tool_leaks_count(search->steps, search->count, search->least);
  size_t steps = 0;
  for (size_t i = 0; i < search->count; i++) {
    const size_t whole = tide_steps_whole(search->steps[i].steps);
    steps = whole > steps ? whole : steps;
  }
  tool_emit* const emit = tool_emit_begin(search->call);
  tool_emit_text(emit, "file", NULL, search->call->operands[0]);
  if (found == 0) tool_emit_words(emit, "No leak was found in %zu steps.", steps);
  else
    tool_emit_words(
        emit, "%zu %s probably %s: in many of %zu steps, memory was allocated there and never released.",
        found, found == 1 ? "call site" : "call sites", found == 1 ? "leaks" : "leak", steps);
  devices_emit(emit, search);
  tool_leaks_emit(emit, search->call, search->steps, search->count, search->least);
  const int status = tool_emit_end(emit);
  return status != TOOL_DONE ? status : found > 0 ? TOOL_NO : TOOL_DONE;
}

static int search_run(leak_search* search) {
  const char* const least = tool_option_value(search->call, "min");
  if (least != NULL && !tool_size_parse(least, &search->least))
    return tool_fail("--min must be a size such as 64KiB, not '%s'", least);
  int status = tool_trace_read(search->call->operands[0], &search->trace);
  if (status != TOOL_DONE) return status;
  tool_sites_init(&search->sites, search->trace);
  status = search_devices(search);
  if (status != TOOL_DONE) return status;
  return search->judged > 0 ? search_answer(search) : search_fail(search);
}

static int leaks_run(const tool_call* call) {
  leak_search search = { .call = call };
  const int status = search_run(&search);
  for (size_t i = 0; i < search.count; i++) tool_steps_fini(&search.steps[i]);
  free(search.steps);
  tool_sites_fini(&search.sites);
  tide_trace_free(search.trace);
  return status;
}

static const tool_option leaks_options[] = {
  { "device", 'd', "N", "the device to look at (default: all)" },
  TOOL_STEP_OPTION,
  { "min", 0, "SIZE", "ignore leaks of less than SIZE in each step (default: 0)" },
  { NULL, 0, NULL, NULL },
};

const tool_verb tool_leaks = {
  .name = "leaks",
  .summary = "find call sites whose memory grows from step to step",
  .operands = "FILE",
  .text =
      "Divides the run into steps and looks for memory that is allocated in step after step and never "
      "released. "
      "Without stacks, blocks of one size and stream take the place of a call site. Growth in the first "
      "steps, "
      "growth that ends, and caches that replace their blocks are no leaks.\n\n"
      "exit status: 0 nothing leaks, 1 something probably leaks, 2 it cannot be judged: no steps were found, "
      "or "
      "fewer than 8. tidemark(1) explains the rule and lists the keys of --json.",
  .options = leaks_options,
  .operands_min = 1,
  .operands_max = 1,
  .run = leaks_run,
};
