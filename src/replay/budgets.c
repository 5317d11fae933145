// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Each tag has a pool. A tagged request is made in a region of its own, so that between two requests every
// pool can be parked. All uses are on the default stream: parking then waits for nothing but them.
//
// Peaks of reserved memory are read when memory was mapped or allocated since the last look. O(1) for a step
// that finds cached memory; O(t * (t + p)) for one that grows, with t tags and p pools.
#include "replay/budgets.h"

#include <inttypes.h>
#include <string.h>

#include "base/arith.h"
#include "base/error.h"

#define BUS_MIB ((uint64_t)1 << 20)

typedef struct budget_tag {
  tide_pool pool;
  uint64_t live_bytes;  // of the tag and those below it
  uint16_t above;       // 1 + the place of the nearest tag above it; 0: none
  bool yields;
} budget_tag;

struct tide__budgets {
  budget_tag* tags;     // owned; by their places in the options
  uint16_t* pool_tags;  // owned; by the trace's number of a pool: 1 + the place of its recorded tag; 0: none
  uint16_t* slot_tags;  // owned; by slots: 1 + the place of the block's tag; 0: none
  size_t last_step;     // after the last request
  uint64_t growths;     // calls that may have raised a peak, at the last look
  // What was in the way of the request or use that failed last.
  bool is_pressed;
  uint64_t wanted_bytes;
  uint64_t guaranteed_bytes;
  char limited[TIDE_TAG_MOST + 1];
  // The first refusal.
  bool is_first_known;
  bool is_first_return;
  uint16_t first_tag;  // 1 + its place; 0: none
  uint64_t first_guaranteed;
  char first_limited[TIDE_TAG_MOST + 1];
};

// ---------------------------------------------------------------------------------------------------
// Options

static tide_status uses_check(const tide_replay_options* options, size_t entry_count) {
  TIDE_REQUIRE(options->uses != NULL || options->use_count == 0, TIDE_ERR_ARGUMENT,
               "replay_run: uses is NULL");
  for (size_t i = 0; i < options->use_count; i++) {
    const tide_replay_use* const use = &options->uses[i];
    TIDE_REQUIRE(use->tag < options->tag_count, TIDE_ERR_ARGUMENT, "replay_run: there is no tag %" PRIu32,
                 use->tag);
    TIDE_REQUIRE(use->entry <= entry_count && (i == 0 || use->entry >= use[-1].entry), TIDE_ERR_ARGUMENT,
                 "replay_run: entry %" PRIu64 " of a use does not ascend, or is above %zu", use->entry,
                 entry_count);
  }
  return TIDE_OK;
}

static tide_status names_check(const tide_replay_options* options) {
  for (size_t i = 0; i < options->tag_count; i++) {
    const char* const name = options->tags[i].name;
    TIDE_REQUIRE(name != NULL && *name != '\0', TIDE_ERR_ARGUMENT, "replay_run: tag %zu has no name", i);
    for (size_t k = 0; k < i; k++) {
      TIDE_REQUIRE(strcmp(name, options->tags[k].name) != 0, TIDE_ERR_ARGUMENT,
                   "replay_run: the tag \"%s\" is there twice", name);
    }
  }
  return TIDE_OK;
}

tide_status tide__budgets_check(const tide_replay_options* options, size_t entry_count) {
  const size_t count = options->tag_count;
  if (count == 0) return TIDE_OK;
  TIDE_REQUIRE(options->tags != NULL, TIDE_ERR_ARGUMENT, "replay_run: tags is NULL");
  TIDE_REQUIRE(count <= TIDE_REPLAY_TAGS, TIDE_ERR_ARGUMENT, "replay_run: %zu tags are more than %d", count,
               TIDE_REPLAY_TAGS);
  TIDE_REQUIRE(!options->checks, TIDE_ERR_ARGUMENT,
               "replay_run: a run under budgets cannot be compared with the recording");
  TIDE_REQUIRE(options->park_count == 0, TIDE_ERR_ARGUMENT,
               "replay_run: a run under budgets cannot park all memory");
  TIDE_REQUIRE(options->stack_tags != NULL || options->stack_count == 0, TIDE_ERR_ARGUMENT,
               "replay_run: stack_tags is NULL");
  for (size_t i = 0; i < options->stack_count; i++) {
    TIDE_REQUIRE(options->stack_tags[i] <= count, TIDE_ERR_ARGUMENT,
                 "replay_run: stack %zu has the tag %u of %zu", i, (unsigned)options->stack_tags[i], count);
  }
  TIDE_TRY(names_check(options));
  return uses_check(options, entry_count);
}

// ---------------------------------------------------------------------------------------------------
// Beginning and end

// 1 + the place of a tag; 0: it is not among them.
static uint16_t tag_find(const tide_replay_options* options, const char* name, size_t bytes) {
  for (size_t i = 0; i < options->tag_count; i++) {
    const char* const other = options->tags[i].name;
    if (strncmp(other, name, bytes) == 0 && other[bytes] == '\0') return (uint16_t)(i + 1);
  }
  return 0;
}

static uint16_t tag_above(const tide_replay_options* options, const char* name) {
  uint16_t above = 0;
  for (size_t bytes = strlen(name); bytes > 0 && above == 0; bytes--) {
    if (name[bytes] == '/') above = tag_find(options, name, bytes);
  }
  return above;
}

// A tag without a budget yields if the nearest one above it with a budget does.
static bool tag_yields(const tide__stage* stage, size_t place) {
  const tide_replay_tag* const tags = stage->options->tags;
  size_t at = place + 1;
  while (at != 0 && tags[at - 1].budget == NULL) at = stage->budgets->tags[at - 1].above;
  return at != 0 && tags[at - 1].budget->yields;
}

static tide_status tag_make(tide__stage* stage, size_t place) {
  tide_replay_tag* const tag = &stage->options->tags[place];
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  *tag = (tide_replay_tag){ .name = tag->name, .budget = tag->budget };
  options.tag = tag->name;
  TIDE_TRY(tide_device_pool_new(stage->device, &options, &stage->budgets->tags[place].pool));
  return tag->budget != NULL ? tide_device_budget_set(stage->device, tag->name, tag->budget) : TIDE_OK;
}

static void pool_tags_find(const tide__stage* stage) {
  const tide_trace* const trace = stage->script->trace;
  size_t count = 0;
  const tide_trace_segment* const segments = tide_trace_segments(trace, &count);
  for (size_t i = 0; i < count; i++) {
    const tide_trace_segment* const segment = &segments[i];
    const char* const name = tide_trace_segment_tag(trace, segment);
    const bool is_ours = segment->device == stage->script->device && segment->pool < stage->pool_count;
    if (is_ours && segment->pool != 0 && *name != '\0')
      stage->budgets->pool_tags[segment->pool] = tag_find(stage->options, name, strlen(name));
  }
}

static void on_oom(void* user, const tide_oom* oom) {
  tide__budgets* const budgets = user;
  memcpy(budgets->limited, oom->tag, sizeof budgets->limited);
  budgets->guaranteed_bytes = oom->guaranteed_bytes;
}

static void on_pressure(void* user, tide_device_cache* device, const tide_pressure* pressure) {
  tide__budgets* const budgets = user;
  const size_t bytes = strnlen(pressure->limited_tag, TIDE_TAG_MOST);
  (void)device;
  memcpy(budgets->limited, pressure->limited_tag, bytes);
  budgets->limited[bytes] = '\0';
  budgets->wanted_bytes = pressure->wanted_bytes;
  budgets->guaranteed_bytes = 0;
  budgets->is_pressed = true;
}

static bool budgets_make(tide__stage* stage) {
  const tide_heap* const heap = stage->heap;
  tide__budgets* const budgets = tide__heap_alloc(heap, 1, sizeof *budgets);
  stage->budgets = budgets;
  if (budgets == NULL) return false;
  budgets->tags = tide__heap_alloc(heap, stage->options->tag_count, sizeof *budgets->tags);
  budgets->pool_tags = tide__heap_alloc(heap, stage->pool_count, sizeof *budgets->pool_tags);
  budgets->slot_tags =
      tide__heap_alloc(heap, (size_t)stage->script->slot_count + 1, sizeof *budgets->slot_tags);
  return budgets->tags != NULL && budgets->pool_tags != NULL && budgets->slot_tags != NULL;
}

tide_status tide__budgets_begin(tide__stage* stage) {
  const tide_replay_options* const options = stage->options;
  tide_observer observer = 0;
  if (options->tag_count == 0) return TIDE_OK;
  TIDE_REQUIRE(budgets_make(stage), TIDE_ERR_NO_MEMORY, "replay: no memory for %zu tags", options->tag_count);
  tide__budgets* const budgets = stage->budgets;
  for (size_t i = 0; i < options->tag_count; i++) {
    TIDE_TRY(tag_make(stage, i));
    budgets->tags[i].above = tag_above(options, options->tags[i].name);
  }
  for (size_t i = 0; i < options->tag_count; i++) budgets->tags[i].yields = tag_yields(stage, i);
  for (size_t i = 0; i < stage->script->pool_count; i++)
    budgets->last_step = tide__max(budgets->last_step, stage->script->pool_ends[i]);
  pool_tags_find(stage);
  TIDE_TRY(tide_device_observe_oom(stage->device, on_oom, budgets, &observer));
  return tide_device_observe_pressure(stage->device, on_pressure, budgets, &observer);
}

void tide__budgets_end(tide__stage* stage) {
  tide__budgets* const budgets = stage->budgets;
  if (budgets == NULL) return;
  tide__heap_release(stage->heap, budgets->tags, stage->options->tag_count, sizeof *budgets->tags);
  tide__heap_release(stage->heap, budgets->pool_tags, stage->pool_count, sizeof *budgets->pool_tags);
  tide__heap_release(stage->heap, budgets->slot_tags, (size_t)stage->script->slot_count + 1,
                     sizeof *budgets->slot_tags);
  tide__heap_release(stage->heap, budgets, 1, sizeof *budgets);
  stage->budgets = NULL;
}

// ---------------------------------------------------------------------------------------------------
// Peaks and refusals

static void live_add(const tide__stage* stage, uint16_t tag, uint64_t bytes) {
  for (; tag != 0; tag = stage->budgets->tags[tag - 1].above) {
    budget_tag* const state = &stage->budgets->tags[tag - 1];
    tide_replay_tag* const shown = &stage->options->tags[tag - 1];
    state->live_bytes += bytes;
    shown->peak_allocated = tide__max(shown->peak_allocated, state->live_bytes);
  }
}

static void live_take(const tide__stage* stage, uint16_t tag, uint64_t bytes) {
  for (; tag != 0; tag = stage->budgets->tags[tag - 1].above)
    stage->budgets->tags[tag - 1].live_bytes -= bytes;
}

// Memory of a tag grows only by these calls.
static tide_status growth_look(tide__stage* stage) {
  const uint64_t growths = tide_machine_call_stats(stage->machine, TIDE_CALL_MAP).calls +
                           tide_machine_call_stats(stage->machine, TIDE_CALL_RAW_ALLOC).calls;
  if (growths == stage->budgets->growths) return TIDE_OK;
  stage->budgets->growths = growths;
  for (size_t i = 0; i < stage->options->tag_count; i++) {
    tide_replay_tag* const tag = &stage->options->tags[i];
    tide_budget_stats stats = TIDE_BUDGET_STATS_INIT;
    TIDE_TRY(tide_device_budget_stats(stage->device, tag->name, &stats));
    tag->peak_reserved = tide__max(tag->peak_reserved, stats.reserved_bytes);
  }
  return TIDE_OK;
}

// A request or a use of a tag was refused just now.
static void refusal_note(const tide__stage* stage, uint16_t tag, bool is_return) {
  tide__budgets* const budgets = stage->budgets;
  const uint16_t limited = tag_find(stage->options, budgets->limited, strlen(budgets->limited));
  if (limited != 0) stage->options->tags[limited - 1].refused++;
  if (budgets->is_first_known) return;
  budgets->is_first_known = true;
  budgets->is_first_return = is_return;
  budgets->first_tag = tag;
  budgets->first_guaranteed = budgets->guaranteed_bytes;
  memcpy(budgets->first_limited, budgets->limited, sizeof budgets->first_limited);
}

// ---------------------------------------------------------------------------------------------------
// Uses

static void use_refuse(tide__stage* stage, uint16_t tag, uint64_t entry) {
  stage->ooms++;
  refusal_note(stage, tag, true);
  if (stage->first_oom != UINT64_MAX) return;
  stage->first_oom = entry;
  stage->oom_bytes = stage->budgets->wanted_bytes;
}

// Begins a use of a tag that yields. *out_is_there: the tag is in its place, so the use must end.
static tide_status use_begin(tide__stage* stage, uint16_t tag, uint64_t entry, bool* out_is_there) {
  tide__budgets* const budgets = stage->budgets;
  *out_is_there = true;
  if (tag == 0 || !budgets->tags[tag - 1].yields) return TIDE_OK;
  budgets->is_pressed = false;
  const tide_status status =
      tide_device_use(stage->device, stage->options->tags[tag - 1].name, stage->streams[0]);
  if (status == TIDE_OK) return growth_look(stage);
  *out_is_there = false;
  if (status != TIDE_ERR_NO_MEMORY || !budgets->is_pressed) return status;
  use_refuse(stage, tag, entry);
  return TIDE_OK;
}

static tide_status use_end(tide__stage* stage, uint16_t tag) {
  if (tag == 0 || !stage->budgets->tags[tag - 1].yields) return TIDE_OK;
  return tide_device_done(stage->device, stage->options->tags[tag - 1].name, stage->streams[0]);
}

size_t tide__budgets_use_step(const tide__stage* stage, size_t index) {
  if (index >= stage->options->use_count || stage->options->tag_count == 0) return SIZE_MAX;
  const size_t step = tide__script_find(stage->script, (size_t)stage->options->uses[index].entry);
  return tide__max(step, stage->script->first_step);
}

tide_status tide__budgets_use(tide__stage* stage, size_t index) {
  const tide_replay_use* const use = &stage->options->uses[index];
  const uint16_t tag = (uint16_t)(use->tag + 1);
  bool is_there = false;
  if (stage->budgets->tags[use->tag].live_bytes == 0) return TIDE_OK;
  TIDE_TRY(use_begin(stage, tag, use->entry, &is_there));
  return is_there ? use_end(stage, tag) : TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Steps

static uint16_t request_tag(const tide__stage* stage, const tide__step* step) {
  const tide__script* const script = stage->script;
  const tide_replay_options* const options = stage->options;
  const size_t index = (size_t)(step - script->steps);
  const bool is_old = index < script->before_count;
  const uint32_t stack = is_old ? script->before_stacks[index] : script->entries[step->entry].stack;
  const uint16_t tag = stack < options->stack_count ? options->stack_tags[stack] : 0;
  return tag != 0 ? tag : stage->budgets->pool_tags[step->pool];
}

static tide_status request_make(tide__stage* stage, const tide__step* step) {
  return step->kind == TIDE__STEP_ALLOC ? tide__stage_alloc(stage, step) : tide__stage_oom(stage, step);
}

static tide_status request_in_pool(tide__stage* stage, const tide__step* step, tide_pool pool) {
  tide_scope scope = TIDE_SCOPE_INIT;
  scope.kind = TIDE_SCOPE_ALL;
  scope.is_region = true;
  TIDE_TRY(tide_device_pool_begin(stage->device, pool, &scope));
  stage->has_region = true;
  const tide_status status = request_make(stage, step);
  stage->has_region = false;
  TIDE_TRY(tide_device_pool_end(stage->device, pool));
  return status;
}

static tide_status request_serve(tide__stage* stage, const tide__step* step, uint16_t tag) {
  const uint64_t ooms = stage->ooms;
  const bool is_kept = step->kind == TIDE__STEP_ALLOC;
  stage->budgets->limited[0] = '\0';
  TIDE_TRY(tag != 0 ? request_in_pool(stage, step, stage->budgets->tags[tag - 1].pool)
                    : request_make(stage, step));
  if (stage->ooms > ooms) {
    refusal_note(stage, tag, false);
    return TIDE_OK;
  }
  const uint64_t bytes = tide__request_bytes(tide__stage_bytes(stage, step));
  live_add(stage, tag, bytes);
  if (!is_kept) live_take(stage, tag, bytes);
  return growth_look(stage);
}

static tide_status run_request(tide__stage* stage, const tide__step* step) {
  const uint16_t tag = request_tag(stage, step);
  bool is_there = false;
  if (step->kind == TIDE__STEP_ALLOC) stage->budgets->slot_tags[step->slot] = tag;
  TIDE_TRY(use_begin(stage, tag, step->entry, &is_there));
  if (!is_there) return TIDE_OK;
  TIDE_TRY(request_serve(stage, step, tag));
  return use_end(stage, tag);
}

// The blocks of a refused request have no bytes.
static void life_end(const tide__stage* stage, const tide__step* step) {
  live_take(stage, stage->budgets->slot_tags[step->slot], stage->held[step->slot].bytes);
}

static tide_status run_release(tide__stage* stage, const tide__step* step) {
  const size_t index = (size_t)(step - stage->script->steps);
  const bool is_known = stage->held[step->slot].block.address != NULL;
  const bool is_use = is_known && index < stage->budgets->last_step;
  const uint16_t tag = is_use ? stage->budgets->slot_tags[step->slot] : 0;
  bool is_there = false;
  TIDE_TRY(use_begin(stage, tag, step->entry, &is_there));
  if (step->kind == TIDE__STEP_FREE) {
    life_end(stage, step);
    TIDE_TRY(tide__stage_free(stage, step));
  } else {
    TIDE_TRY(tide__stage_free_later(stage, step));
  }
  return is_there ? use_end(stage, tag) : TIDE_OK;
}

tide_status tide__budgets_step(tide__stage* stage, const tide__step* step) {
  switch (step->kind) {
    case TIDE__STEP_ALLOC:
    case TIDE__STEP_OOM: return run_request(stage, step);
    case TIDE__STEP_FREE:
    case TIDE__STEP_FREE_LATER: return run_release(stage, step);
    case TIDE__STEP_DONE: life_end(stage, step); return tide__stage_done(stage, step);
    default: return TIDE_OK;
  }
}

// ---------------------------------------------------------------------------------------------------
// Results

static uint64_t bus_ns(uint64_t bytes) {
  const tide_dry_costs costs = TIDE_DRY_COSTS_INIT;
  return (uint64_t)((double)bytes / (double)BUS_MIB * (double)costs.copy_per_mib);
}

static tide_status tag_finish(tide__stage* stage, size_t place, tide_replay_result* result) {
  tide_replay_tag* const tag = &stage->options->tags[place];
  tide_budget_stats stats = TIDE_BUDGET_STATS_INIT;
  TIDE_TRY(tide_device_budget_stats(stage->device, tag->name, &stats));
  tag->parked_count = stats.parked_count;
  tag->fetched_count = stats.fetched_count;
  tag->sent_bytes = stats.sent_bytes;
  tag->fetched_bytes = stats.fetched_bytes;
  tag->bus_ns = bus_ns(stats.sent_bytes + stats.fetched_bytes);
  if (stage->budgets->tags[place].above != 0) return TIDE_OK;
  result->sent_bytes += stats.sent_bytes;
  result->fetched_bytes += stats.fetched_bytes;
  return TIDE_OK;
}

tide_status tide__budgets_finish(tide__stage* stage, tide_replay_result* result) {
  const tide__budgets* const budgets = stage->budgets;
  if (budgets == NULL) return TIDE_OK;
  for (size_t i = 0; i < stage->options->tag_count; i++) TIDE_TRY(tag_finish(stage, i, result));
  result->bus_ns = bus_ns(result->sent_bytes + result->fetched_bytes);
  const char* const name = budgets->first_tag != 0 ? stage->options->tags[budgets->first_tag - 1].name : "";
  memcpy(result->oom_tag, name, strlen(name) + 1);  // the cache has taken it as a tag, so it is short enough
  memcpy(result->oom_limited_tag, budgets->first_limited, sizeof result->oom_limited_tag);
  result->oom_guaranteed_bytes = budgets->first_guaranteed;
  result->is_oom_return = budgets->is_first_return;
  return TIDE_OK;
}
