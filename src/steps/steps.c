// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the program says about steps is believed first: annotations, metadata, the optimizer in stacks. Only
// then patterns are looked for. The finders of a name come in the same order.
#include "steps/steps.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/sized.h"
#include "steps/measure.h"
#include "steps/suspects.h"
#include "trace/limit.h"

struct tide_steps {
  const tide_heap* heap;  // of the trace; borrowed until the steps are freed
  tide_steps_source source;
  tide__cuts cuts;
  tide_step* items;  // owned
  size_t count;
  size_t room;
  size_t whole;
  tide__suspects leaks;
};

const char* tide_steps_source_name(uint32_t source) {
  switch (source) {
#define SOURCE_CASE(name, value, text) \
  case value: return text;
    TIDE_STEPS_SOURCE_MAP(SOURCE_CASE)
#undef SOURCE_CASE
    default: return NULL;
  }
}

// ---------------------------------------------------------------------------------------------------
// Which steps

// Two cuts make a step. Fewer are forgotten, and the next finder is asked.
static bool steps_have(tide_steps* steps, tide_steps_source source) {
  if (steps->cuts.count >= 2) {
    steps->source = source;
    return true;
  }
  steps->cuts.count = 0;
  steps->cuts.name[0] = '\0';
  return false;
}

static tide_status steps_by_count(const tide__recorded* run, uint64_t length, tide_steps* steps) {
  for (uint64_t at = 0; at + length <= run->count; at += length) TIDE_TRY(tide__cuts_add(&steps->cuts, at));
  if (steps->cuts.count > 0)
    TIDE_TRY(tide__cuts_add(&steps->cuts, steps->cuts.items[steps->cuts.count - 1] + length));
  (void)steps_have(steps, TIDE_STEPS_ENTRIES);
  return TIDE_OK;
}

static tide_status steps_look(const tide__recorded* run, const tide_steps_options* options,
                              tide_steps* steps) {
  if (options->entries > 0) return steps_by_count(run, options->entries, steps);
  TIDE_TRY(tide__steps_by_annotation(run, options->name, &steps->cuts));
  if (steps_have(steps, TIDE_STEPS_ANNOTATION)) return TIDE_OK;
  TIDE_TRY(tide__steps_by_metadata(run, options->name, &steps->cuts));
  if (steps_have(steps, TIDE_STEPS_METADATA)) return TIDE_OK;
  TIDE_TRY(tide__steps_by_frame(run, options->name, &steps->cuts));
  if (steps_have(steps, options->name != NULL ? TIDE_STEPS_FRAME : TIDE_STEPS_OPTIMIZER)) return TIDE_OK;
  if (options->name != NULL || tide_trace_get_about(run->trace).has_steps) return TIDE_OK;
  tide_steps_source source = TIDE_STEPS_NONE;
  TIDE_TRY(tide__steps_by_pattern(run, &steps->cuts, &source));
  (void)steps_have(steps, source);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Measuring them

static tide_status steps_measure(const tide__recorded* run, tide_ledger* ledger,
                                 const tide_steps_options* options, tide_steps* steps) {
  steps->room = steps->cuts.count + 1;
  steps->items = tide__heap_alloc(steps->heap, steps->room, sizeof *steps->items);
  TIDE_REQUIRE(steps->items != NULL, TIDE_ERR_NO_MEMORY, "steps_find: no memory for %zu steps", steps->room);
  tide__measure measure = { .run = run, .cuts = &steps->cuts, .options = options, .steps = steps->items };
  tide_status status = tide__measure_run(&measure, ledger);
  steps->count = measure.step_count;
  steps->whole = steps->cuts.count - 1;
  if (status == TIDE_OK) status = tide__suspects_find(&steps->leaks, &measure, (uint32_t)steps->whole);
  tide__measure_fini(&measure);
  return status;
}

static tide_status steps_build(const tide__recorded* run, tide_ledger* ledger,
                               const tide_steps_options* options, tide_steps* steps) {
  TIDE_TRY(steps_look(run, options, steps));
  return steps->cuts.count >= 2 ? steps_measure(run, ledger, options, steps) : TIDE_OK;
}

tide_status tide_steps_find(const tide_trace* trace, size_t device, tide_ledger* ledger,
                            const tide_steps_options* options, tide_steps** out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "steps_find: out is NULL");
  *out = NULL;
  TIDE_REQUIRE(trace != NULL && ledger != NULL, TIDE_ERR_ARGUMENT, "steps_find: trace or ledger is NULL");
  tide_steps_options own = TIDE_STEPS_OPTIONS_INIT;
  if (options != NULL) TIDE_TRY(tide__sized_read("steps_find", options, &own, sizeof own));
  tide__recorded run = { .trace = trace, .names = tide_trace_names(trace), .device = device };
  run.heap = tide__trace_heap(trace);
  run.entries = tide_trace_entries(trace, device, &run.count);
  TIDE_REQUIRE(run.count < (size_t)1 << 31, TIDE_ERR_LIMIT, "steps_find: %zu entries are too many",
               run.count);
  tide_steps* const steps = tide__heap_alloc(run.heap, 1, sizeof *steps);
  TIDE_REQUIRE(steps != NULL, TIDE_ERR_NO_MEMORY, "steps_find: no memory for the steps");
  steps->heap = steps->cuts.heap = steps->leaks.heap = run.heap;
  const tide_status status = steps_build(&run, ledger, &own, steps);
  if (status != TIDE_OK) tide_steps_free(steps);
  else *out = steps;
  return status;
}

void tide_steps_free(tide_steps* steps) {
  if (steps == NULL) return;
  const tide_heap* const heap = steps->heap;
  tide__heap_release(heap, steps->cuts.items, steps->cuts.room, sizeof *steps->cuts.items);
  tide__heap_release(heap, steps->items, steps->room, sizeof *steps->items);
  tide__heap_release(heap, steps->leaks.items, steps->leaks.room, sizeof *steps->leaks.items);
  tide__heap_release(heap, steps, 1, sizeof *steps);
}

// ---------------------------------------------------------------------------------------------------
// Looking

tide_steps_source tide_steps_get_source(const tide_steps* steps) {
  return steps != NULL ? steps->source : TIDE_STEPS_NONE;
}

const char* tide_steps_name(const tide_steps* steps) {
  return steps != NULL && steps->cuts.name[0] != '\0' ? steps->cuts.name : NULL;
}

const tide_step* tide_steps_items(const tide_steps* steps, size_t* out_count) {
  if (out_count != NULL) *out_count = steps != NULL ? steps->count : 0;
  return steps != NULL ? steps->items : NULL;
}

size_t tide_steps_whole(const tide_steps* steps) { return steps != NULL ? steps->whole : 0; }

const tide_leak* tide_steps_leaks(const tide_steps* steps, size_t* out_count) {
  if (out_count != NULL) *out_count = steps != NULL ? steps->leaks.count : 0;
  return steps != NULL ? steps->leaks.items : NULL;
}
