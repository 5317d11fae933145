// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Learning from runs. The size of a value is the largest of the last runs of a shape. A new layout is made
// when a value did not fit into its place, or when the places together are far larger than needed.
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "graph/planner.h"

// ---------------------------------------------------------------------------------------------------
// Records

static size_t learnt_rows(const tide_planner* planner) { return planner->options.remembers_runs; }

static void learnt_fini(tide_planner* planner, tide__learnt* learnt) {
  const size_t values = planner->graph->value_count + 1;
  tide_graph_layout_free(learnt->layout);
  tide__heap_release(planner->heap, learnt->largest, values, sizeof *learnt->largest);
  tide__heap_release(planner->heap, learnt->recent, values * learnt_rows(planner), sizeof *learnt->recent);
  *learnt = (tide__learnt){ 0 };
}

static bool learnt_init(tide_planner* planner, tide__learnt* learnt, uint64_t shape) {
  const size_t values = planner->graph->value_count + 1;
  const size_t rows = learnt_rows(planner);
  learnt->shape = shape;
  learnt->largest = tide__heap_alloc(planner->heap, values, sizeof *learnt->largest);
  if (rows != 0) learnt->recent = tide__heap_alloc(planner->heap, values * rows, sizeof *learnt->recent);
  return learnt->largest != NULL && (rows == 0 || learnt->recent != NULL);
}

// The slot for a new record: an unused one, or that of the least recently used shape.
static tide__learnt* learnt_place(tide_planner* planner) {
  if (planner->learnt_count < planner->options.max_layouts) return &planner->learnt[planner->learnt_count];
  tide__learnt* oldest = &planner->learnt[0];
  for (size_t i = 1; i < planner->learnt_count; i++) {
    if (planner->learnt[i].last_run < oldest->last_run) oldest = &planner->learnt[i];
  }
  return oldest;
}

tide__learnt* tide__planner_find(tide_planner* planner, uint64_t shape) {
  for (size_t i = 0; i < planner->learnt_count; i++) {
    if (planner->learnt[i].shape == shape) return &planner->learnt[i];
  }
  return NULL;
}

tide_status tide__planner_prepare(tide_planner* planner, uint64_t shape, tide__learnt* out) {
  if (learnt_init(planner, out, shape)) return TIDE_OK;
  learnt_fini(planner, out);
  return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for the sizes of a shape");
}

void tide__planner_unprepare(tide_planner* planner, tide__learnt* learnt) { learnt_fini(planner, learnt); }

tide__learnt* tide__planner_keep(tide_planner* planner, const tide__learnt* learnt) {
  tide__learnt* const place = learnt_place(planner);
  if (place == &planner->learnt[planner->learnt_count]) planner->learnt_count++;
  else learnt_fini(planner, place);
  if (planner->current == place) planner->current = NULL;
  *place = *learnt;
  return place;
}

void tide__planner_forget_all(tide_planner* planner) {
  for (size_t i = 0; i < planner->learnt_count; i++) learnt_fini(planner, &planner->learnt[i]);
  planner->learnt_count = 0;
  planner->current = NULL;
}

// ---------------------------------------------------------------------------------------------------
// Sizes

static uint64_t learnt_most_recent(const tide_planner* planner, const tide__learnt* learnt, uint32_t value) {
  const size_t values = planner->graph->value_count + 1;
  uint64_t most = 0;
  for (size_t row = 0; row < learnt_rows(planner); row++) {
    most = tide__max(most, learnt->recent[row * values + value]);
  }
  return most;
}

static void learnt_note_size(tide_planner* planner, tide__learnt* learnt, uint32_t value, uint64_t bytes) {
  const size_t rows = learnt_rows(planner);
  uint64_t* const largest = &learnt->largest[value];
  if (rows == 0) {
    *largest = tide__max(*largest, bytes);
    return;
  }
  const size_t values = planner->graph->value_count + 1;
  uint64_t* const cell = &learnt->recent[learnt->runs % rows * values + value];
  const uint64_t forgotten = *cell;
  *cell = bytes;
  if (bytes >= *largest) *largest = bytes;
  else if (forgotten == *largest) *largest = learnt_most_recent(planner, learnt, value);
}

void tide__planner_note_sizes(tide_planner* planner, tide__learnt* learnt, const uint64_t* bytes) {
  for (uint32_t i = 0; i < planner->graph->value_count; i++) {
    learnt_note_size(planner, learnt, i, bytes[i] != 0 ? bytes[i] : learnt->largest[i]);
  }
  learnt->runs++;
}

// Stops managing values that a MAY_SKIP node did not make in the first run.
static void planner_decide(tide_planner* planner) {
  const tide_graph* const graph = planner->graph;
  planner->is_decided = true;
  for (uint32_t i = 0; i < graph->value_count; i++) {
    const uint32_t node = graph->values[i].node;
    if (planner->roles[i] != TIDE_ROLE_MANAGED || planner->holdings[i].largest != 0) continue;
    if ((graph->nodes[node].flags & TIDE_NODE_MAY_SKIP) == 0) continue;
    planner->roles[i] = TIDE_ROLE_UNMANAGED;
    planner->stats.managed--;
    planner->stats.unmanaged++;
    planner->stats.total_unmanaged++;
  }
}

// ---------------------------------------------------------------------------------------------------
// Layouts

// Does the layout fit the learned sizes?
static bool learnt_is_laid_out(const tide_planner* planner, const tide__learnt* learnt) {
  if (learnt->layout == NULL) return false;
  double needed = 0;
  for (uint32_t i = 0; i < planner->graph->value_count; i++) {
    if (!tide__role_has_place(planner->roles[i])) continue;
    const uint64_t place = learnt->layout->places[i].bytes;
    uint64_t rounded = UINT64_MAX;
    if (!tide__graph_round(&planner->options, learnt->largest[i], &rounded) || rounded > place) return false;
    needed += (double)rounded;
  }
  return learnt_rows(planner) == 0 || learnt->laid_out <= needed * (1 + planner->options.waste);
}

tide_status tide__planner_lay_out(tide_planner* planner, tide__learnt* learnt, const uint64_t* sizes) {
  const size_t count = planner->graph->value_count;
  uint64_t* const bytes = tide__heap_alloc(planner->heap, count + 1, sizeof *bytes);
  TIDE_REQUIRE(bytes != NULL, TIDE_ERR_NO_MEMORY, "no memory to lay out %zu values", count);
  double sum = 0;
  for (size_t i = 0; i < count; i++) {
    uint64_t rounded = 0;
    if (!tide__role_has_place(planner->roles[i])) continue;
    bytes[i] = sizes[i];
    if (tide__graph_round(&planner->options, bytes[i], &rounded)) sum += (double)rounded;
  }
  tide_graph_layout* layout = NULL;
  const tide_status status = tide__graph_layout_make(planner->graph, &planner->options, bytes, &layout);
  tide__heap_release(planner->heap, bytes, count + 1, sizeof *bytes);
  if (status != TIDE_OK) return status;
  tide_graph_layout_free(learnt->layout);
  learnt->layout = layout;
  learnt->laid_out = sum;
  planner->stats.layouts++;
  return TIDE_OK;
}

tide_status tide__planner_learn(tide_planner* planner, tide__learnt* learnt) {
  if (planner->options.decides_once && !planner->is_decided) planner_decide(planner);
  for (uint32_t i = 0; i < planner->graph->value_count; i++) {
    learnt_note_size(planner, learnt, i, planner->holdings[i].largest);
  }
  learnt->runs++;
  return learnt_is_laid_out(planner, learnt) ? TIDE_OK
                                             : tide__planner_lay_out(planner, learnt, learnt->largest);
}
