// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// When the tags of a recording are used. A recording of Tidemark shows when parked memory came back, and that
// was for a use. Otherwise each tag is assumed to be used once in every step.
#include <stdlib.h>

#include "budgeting.h"
#include "tags.h"

// ---------------------------------------------------------------------------------------------------
// Steps

// A tag that has requests of its own, and the entry of the first one.
typedef struct tag_first {
  uint64_t entry;
  uint32_t tag;
} tag_first;

static int first_order(const void* a, const void* b) {
  const tag_first* const left = a;
  const tag_first* const right = b;
  const int order = tool_compare(left->entry, right->entry);
  return order != 0 ? order : tool_compare(left->tag, right->tag);
}

// All of them, in the order of their first requests; those of recorded pools come last.
static tag_first* tags_by_first(const tool_budgeting* b, const tool_recording* recording, size_t* out_count) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(recording->trace, recording->device, &count);
  tag_first* const firsts = tool_alloc(b->tag_count, sizeof *firsts);
  for (size_t i = 0; i < b->tag_count; i++) firsts[i] = (tag_first){ UINT64_MAX, (uint32_t)i };
  tool_pool_tags recorded;
  tool_pool_tags_find(recording->trace, &recorded);
  for (size_t i = 0; i < recorded.count; i++) {
    const size_t place = recorded.tags[i] != NULL ? tool_budgeting_place(b, recorded.tags[i]) : b->tag_count;
    if (place < b->tag_count) firsts[place].entry = count;
  }
  tool_pool_tags_fini(&recorded);
  for (size_t i = count; i-- > 0;) {
    const uint32_t stack = entries[i].stack;
    const uint16_t tag = stack < b->stack_count ? b->stack_tags[stack] : 0;
    if (tag != 0 && entries[i].action == TIDE_ACTION_ALLOC) firsts[tag - 1].entry = i;
  }
  qsort(firsts, b->tag_count, sizeof *firsts, first_order);
  *out_count = 0;
  while (*out_count < b->tag_count && firsts[*out_count].entry != UINT64_MAX) ++*out_count;
  return firsts;
}

static void step_add(tool_budgeting* b, uint64_t entry, const tag_first* firsts, size_t count) {
  b->uses = tool_grow(b->uses, b->use_count + count + 1, sizeof *b->uses);
  for (size_t i = 0; i < count; i++)
    b->uses[b->use_count++] = (tide_replay_use){ .entry = entry, .tag = firsts[i].tag };
}

static void steps_add(tool_budgeting* b, const tool_recording* recording, const tide_steps* steps) {
  size_t count = 0;
  size_t tag_count = 0;
  const tide_step* const items = tide_steps_items(steps, &count);
  tag_first* const firsts = tags_by_first(b, recording, &tag_count);
  for (size_t i = 0; i < count; i++) {
    if (items[i].is_whole) step_add(b, items[i].first, firsts, tag_count);
  }
  free(firsts);
}

// ---------------------------------------------------------------------------------------------------
// Recorded returns

typedef struct return_search {
  tool_budgeting* b;     // borrowed
  tool_pool_tags pools;  // owned
  size_t steps_count;    // uses that belong to steps
} return_search;

// Memory of a pool comes back range by range, at entries that follow each other.
static void on_parked(void* user, tide_ledger_event event, uint64_t at, const tide_ledger_range* range) {
  return_search* const search = user;
  tool_budgeting* const b = search->b;
  const char* const name = tool_pool_tag(&search->pools, range->pool);
  const size_t place = name != NULL ? tool_budgeting_place(b, name) : b->tag_count;
  if (event != TIDE_LEDGER_ENDS || at == TIDE_LEDGER_BEFORE || place == b->tag_count) return;
  if (b->use_count > search->steps_count && b->uses[b->use_count - 1].tag == place &&
      at - b->uses[b->use_count - 1].entry <= 1) {
    b->uses[b->use_count - 1].entry = at;
    return;
  }
  b->uses = tool_grow(b->uses, b->use_count + 1, sizeof *b->uses);
  b->uses[b->use_count++] = (tide_replay_use){ .entry = at, .tag = (uint32_t)place };
}

// Merges the uses of steps and the returns behind them; both ascend.
static void uses_merge(tool_budgeting* b, size_t steps_count) {
  tide_replay_use* const merged = tool_alloc(b->use_count, sizeof *merged);
  size_t step = 0;
  size_t back = steps_count;
  for (size_t i = 0; i < b->use_count; i++) {
    const bool is_step = step < steps_count &&
                         (back == b->use_count || b->uses[step].entry <= b->uses[back].entry);
    merged[i] = b->uses[is_step ? step++ : back++];
  }
  free(b->uses);
  b->uses = merged;
}

static int returns_find(tool_budgeting* b, const tool_recording* recording) {
  return_search search = { .b = b, .steps_count = b->use_count };
  tide_ledger_watcher watcher = TIDE_LEDGER_WATCHER_INIT;
  tide_ledger* ledger = NULL;
  tide_status status = TIDE_OK;
  tool_pool_tags_find(recording->trace, &search.pools);
  watcher.on_parked = on_parked;
  watcher.user = &search;
  if (search.pools.has_any) {
    status = tide_ledger_new(recording->trace, recording->device, &ledger);
    if (status == TIDE_OK) status = tide_ledger_watch(ledger, &watcher);
  }
  tide_ledger_free(ledger);
  tool_pool_tags_fini(&search.pools);
  b->has_returns = b->use_count > search.steps_count;
  if (b->has_returns) uses_merge(b, search.steps_count);
  return status == TIDE_OK ? TOOL_DONE : tool_fail("%s: %s", recording->file, tool_error());
}

// ---------------------------------------------------------------------------------------------------
// Both

static int steps_find(tool_budgeting* b, const tool_call* call, const tool_recording* recording,
                      tool_sites* sites) {
  tool_steps steps;
  int status = tool_recording_steps(call, recording, sites, &steps);
  if (status != TOOL_DONE) return status;
  b->has_steps = tide_steps_whole(steps.steps) > 0;
  steps_add(b, recording, steps.steps);
  if (b->wants_steps && !b->has_steps) {
    char why[TOOL_STEPS_HOW];
    status = tool_fail("%s shows no steps: %s", recording->file, tool_steps_why_not(&steps, why));
  }
  tool_steps_fini(&steps);
  return status;
}

int tool_budgeting_find_uses(tool_budgeting* b, const tool_call* call, const tool_recording* recording,
                             tool_sites* sites) {
  int status = TOOL_DONE;
  if (!b->yields && !b->wants_steps) return TOOL_DONE;
  if (!b->wants_none) status = steps_find(b, call, recording, sites);
  return status == TOOL_DONE ? returns_find(b, recording) : status;
}
