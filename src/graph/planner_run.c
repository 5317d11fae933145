// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Runs of a graph: where each value is written, what happens to values at the end, and the checks for
// undeclared aliases.
#include "base/arith.h"
#include "base/error.h"
#include "graph/planner.h"

static tide_status run_require(const tide_planner* planner, bool is_open, const char* call) {
  TIDE_REQUIRE(planner != NULL, TIDE_ERR_ARGUMENT, "%s: the planner is NULL", call);
  TIDE_REQUIRE(planner->is_open == is_open, TIDE_ERR_STATE, "%s: %s", call,
               is_open ? "no run is open" : "a run is open");
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Begin

// Releases the outputs of the last run that were not taken.
static void run_drop_untaken(tide_planner* planner) {
  for (uint32_t i = 0; i < planner->graph->value_count; i++) {
    tide__planner_disown(planner, i);
    tide__planner_store(planner, i, (tide_storage){ .group = TIDE_GRAPH_NONE });
    planner->holdings[i].largest = 0;
    planner->holdings[i].stamp = 0;
  }
}

static tide_status run_prepare_memory(tide_planner* planner, const tide_graph_layout* layout) {
  const tide_graph_layout_info info = tide_graph_layout_describe(layout);
  const uint32_t most = planner->options.output_generations;
  TIDE_REQUIRE(info.output_bytes == 0 || most == 0 || planner->stats.generations < most, TIDE_ERR_STATE,
               "begin: the outputs of %llu runs are in use, and that is as many as there may be",
               (unsigned long long)planner->stats.generations);
  TIDE_TRY(tide__planner_fit_arena(planner, info.bytes));
  if (info.output_bytes != 0) return tide__planner_begin_generation(planner, info.output_bytes);
  planner->generation = NULL;
  return TIDE_OK;
}

tide_status tide_planner_begin(tide_planner* planner, uint64_t shape) {
  TIDE_TRY(run_require(planner, false, "begin"));
  planner->run_number++;
  tide__learnt* learnt = tide__planner_find(planner, shape);
  tide__learnt fresh = { 0 };
  if (learnt == NULL) TIDE_TRY(tide__planner_prepare(planner, shape, &fresh));
  const tide_status status = run_prepare_memory(planner, learnt != NULL ? learnt->layout : NULL);
  if (status != TIDE_OK) {
    if (learnt == NULL) tide__planner_unprepare(planner, &fresh);
    return status;
  }
  if (learnt == NULL) learnt = tide__planner_keep(planner, &fresh);
  run_drop_untaken(planner);
  planner->stats.peak_bytes = planner->stats.arena_bytes + planner->stats.own_bytes;
  learnt->last_run = planner->run_number;
  planner->current = learnt;
  planner->is_open = true;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Values

static tide_status run_require_value(const tide_planner* planner, uint32_t value, const char* call) {
  TIDE_REQUIRE(value < planner->graph->value_count, TIDE_ERR_ARGUMENT,
               "%s: there is no value %u: there are %zu", call, value, planner->graph->value_count);
  return TIDE_OK;
}

static void run_store(tide_planner* planner, uint32_t value, tide_storage storage, bool was_allocated) {
  tide__planner_store(planner, value, storage);
  planner->holdings[value].stamp = ++planner->stamp;
  planner->holdings[value].was_allocated = was_allocated;
}

// The place of a value, if it has one that is large enough.
static bool run_find_place(const tide_planner* planner, uint32_t value, uint64_t bytes, tide_storage* out) {
  const tide_graph_layout* const layout = planner->current->layout;
  if (layout == NULL) return false;
  const tide_graph_place* const place = &layout->places[value];
  const bool is_output = place->role == TIDE_ROLE_MANAGED_OUTPUT;
  if (place->group == TIDE_GRAPH_NONE || bytes > place->bytes) return false;
  char* const base = is_output ? planner->generation->memory.base : planner->arena.base;
  *out = (tide_storage){ base + place->offset, bytes, place->group, true };
  return true;
}

tide_status tide_planner_alloc(tide_planner* planner, uint32_t value, size_t bytes, void** out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "alloc: out is NULL");
  *out = NULL;
  TIDE_TRY(run_require(planner, true, "alloc"));
  TIDE_TRY(run_require_value(planner, value, "alloc"));
  TIDE_REQUIRE(planner->graph->values[value].node != TIDE_GRAPH_NONE, TIDE_ERR_ARGUMENT,
               "alloc: no node makes value %u", value);
  tide__holding* const holding = &planner->holdings[value];
  tide_storage storage = { .group = TIDE_GRAPH_NONE };
  if (bytes == 0) {
    tide__planner_let_go(planner, value);
    run_store(planner, value, storage, false);
    return TIDE_OK;
  }
  if (run_find_place(planner, value, bytes, &storage)) {
    planner->stats.planned++;
    if (holding->own != NULL) tide__planner_disown(planner, value);
  } else {
    void* own = NULL;
    TIDE_TRY(tide__planner_own(planner, value, bytes, &own));
    storage = (tide_storage){ own, bytes, TIDE_GRAPH_NONE, false };
    if (tide__role_has_place(planner->roles[value])) planner->stats.unplanned++;
  }
  holding->largest = tide__max(holding->largest, bytes);
  run_store(planner, value, storage, true);
  *out = storage.address;
  return TIDE_OK;
}

// Records where the program has put a value.
static void run_adopt(tide_planner* planner, uint32_t value, void* address, uint64_t bytes) {
  const tide__holding* const holding = &planner->holdings[value];
  const bool is_in_own = tide__address(address) - tide__address(holding->own) < holding->own_bytes;
  if (!is_in_own) tide__planner_let_go(planner, value);
  const tide_storage storage = { address, bytes, TIDE_GRAPH_NONE, false };
  run_store(planner, value, storage, false);
}

tide_status tide_planner_adopt(tide_planner* planner, uint32_t value, void* address, size_t bytes) {
  TIDE_TRY(run_require(planner, true, "adopt"));
  TIDE_TRY(run_require_value(planner, value, "adopt"));
  TIDE_REQUIRE(address != NULL || bytes == 0, TIDE_ERR_ARGUMENT, "adopt: %zu bytes at NULL", bytes);
  run_adopt(planner, value, address, bytes);
  return TIDE_OK;
}

// Adopts a storage that the program has swapped. The next layout will have a place that is large enough.
static void run_notice(tide_planner* planner, uint32_t value) {
  tide__holding* const holding = &planner->holdings[value];
  const tide_storage* const storage = &planner->storages[value];
  if (storage->address == holding->stored && storage->bytes == holding->stored_bytes) return;
  planner->stats.swapped++;
  if (storage->address != NULL) holding->largest = tide__max(holding->largest, storage->bytes);
  run_adopt(planner, value, storage->address, storage->bytes);
}

static void run_notice_all(tide_planner* planner) {
  for (uint32_t i = 0; i < planner->graph->value_count; i++) run_notice(planner, i);
}

static void run_notice_node(tide_planner* planner, const tide__node* node) {
  const uint32_t* const inputs = tide__node_inputs(planner->graph, node);
  const uint32_t* const outputs = tide__node_outputs(planner->graph, node);
  for (uint32_t i = 0; i < node->input_count; i++) run_notice(planner, inputs[i]);
  for (uint32_t i = 0; i < node->output_count; i++) run_notice(planner, outputs[i]);
}

tide_status tide_planner_take(tide_planner* planner, uint32_t value, void** out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "take: out is NULL");
  *out = NULL;
  TIDE_TRY(run_require(planner, false, "take"));
  TIDE_TRY(run_require_value(planner, value, "take"));
  tide__holding* const holding = &planner->holdings[value];
  TIDE_REQUIRE(holding->own != NULL, TIDE_ERR_HANDLE, "take: value %u has no memory of its own", value);
  *out = holding->own;
  planner->stats.own_bytes -= holding->own_bytes;
  holding->own = NULL;
  holding->own_bytes = 0;
  tide__planner_disown(planner, value);
  tide__planner_store(planner, value, (tide_storage){ .group = TIDE_GRAPH_NONE });
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// End

// The action for a value of a role; false: none.
static bool reset_of_role(tide_value_role role, tide_graph_reset* out) {
  switch (role) {
    case TIDE_ROLE_BORROWED_OUTPUT: *out = TIDE_RESET_OWN; return true;
    case TIDE_ROLE_UNMANAGED: *out = TIDE_RESET_CLEAR; return true;
    case TIDE_ROLE_BORROWED: *out = TIDE_RESET_UNBORROW; return true;
    case TIDE_ROLE_MANAGED: *out = TIDE_RESET_DETACH; return true;
    default: return false;
  }
}

static void run_reset_values(tide_planner* planner) {
  if (planner->options.on_reset == NULL) return;
  static const tide_graph_reset order[] = { TIDE_RESET_OWN, TIDE_RESET_CLEAR, TIDE_RESET_UNBORROW,
                                            TIDE_RESET_DETACH };
  for (size_t step = 0; step < sizeof order / sizeof *order; step++) {
    for (uint32_t i = 0; i < planner->graph->value_count; i++) {
      tide_graph_reset reset = TIDE_RESET_OWN;
      if (!reset_of_role(planner->roles[i], &reset) || reset != order[step]) continue;
      planner->options.on_reset(planner->options.user, i, reset);
    }
  }
}

// Releases the values of the run, except outputs and values that may share memory with them.
static void run_let_go(tide_planner* planner, bool keeps_outputs) {
  for (uint32_t i = 0; i < planner->graph->value_count; i++) {
    const tide__value* const value = &planner->graph->values[i];
    const bool is_made = value->node != TIDE_GRAPH_NONE;
    if (keeps_outputs && is_made && tide__value_outlives_run(value)) continue;
    tide__planner_disown(planner, i);
    tide__planner_store(planner, i, (tide_storage){ .group = TIDE_GRAPH_NONE });
  }
}

tide_status tide_planner_end(tide_planner* planner) {
  TIDE_TRY(run_require(planner, true, "end"));
  run_notice_all(planner);
  planner->is_open = false;
  planner->stats.runs++;
  run_reset_values(planner);
  run_let_go(planner, true);
  return tide__planner_learn(planner, planner->current);
}

static void run_reset_node(tide_planner* planner, const tide__node* node) {
  const uint32_t* const outputs = tide__node_outputs(planner->graph, node);
  for (uint32_t i = node->output_count; i-- > 0;) {
    tide_graph_reset reset = TIDE_RESET_CLEAR;
    const tide_value_role role = planner->roles[outputs[i]];
    // Nobody owns an output of a failed run.
    if (role == TIDE_ROLE_BORROWED_OUTPUT) reset = TIDE_RESET_UNBORROW;
    else if (role != TIDE_ROLE_OUTPUT && role != TIDE_ROLE_MANAGED_OUTPUT && !reset_of_role(role, &reset))
      continue;
    planner->options.on_reset(planner->options.user, outputs[i], reset);
  }
}

static void run_reset_backwards(tide_planner* planner) {
  const tide_graph* const graph = planner->graph;
  if (planner->options.on_reset == NULL) return;
  for (size_t i = graph->node_count; i-- > 0;) run_reset_node(planner, &graph->nodes[i]);
  const tide__numbers* const inputs = &graph->blocks[TIDE_GRAPH_ROOT].inputs;
  for (size_t i = 0; i < inputs->count; i++) {
    planner->options.on_reset(planner->options.user, inputs->items[i], TIDE_RESET_CLEAR);
  }
}

tide_status tide_planner_cancel(tide_planner* planner) {
  TIDE_TRY(run_require(planner, true, "cancel"));
  planner->is_open = false;
  run_reset_backwards(planner);
  run_let_go(planner, false);
  if (planner->generation != NULL) tide__planner_drop_generation(planner, planner->generation);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Outputs

uint64_t tide_planner_generation(const tide_planner* planner) {
  return planner != NULL && planner->generation != NULL ? planner->generation->number : 0;
}

static tide_status run_find_generation(const tide_planner* planner, uint64_t number, tide__generation** out) {
  TIDE_REQUIRE(planner != NULL, TIDE_ERR_ARGUMENT, "outputs: the planner is NULL");
  *out = tide__planner_find_generation(planner, number);
  TIDE_REQUIRE(*out != NULL, TIDE_ERR_HANDLE, "outputs: generation %llu is not in use",
               (unsigned long long)number);
  return TIDE_OK;
}

tide_status tide_planner_retain_outputs(tide_planner* planner, uint64_t generation) {
  tide__generation* found = NULL;
  TIDE_TRY(run_find_generation(planner, generation, &found));
  found->references++;
  return TIDE_OK;
}

tide_status tide_planner_drop_outputs(tide_planner* planner, uint64_t generation) {
  tide__generation* found = NULL;
  TIDE_TRY(run_find_generation(planner, generation, &found));
  TIDE_REQUIRE(!planner->is_open || found != planner->generation || found->references > 1, TIDE_ERR_STATE,
               "outputs: generation %llu is being written", (unsigned long long)generation);
  tide__planner_drop_generation(planner, found);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Checks for aliases

static bool storages_meet(const tide_storage* a, const tide_storage* b) {
  if (a->address == NULL || b->address == NULL || a->bytes == 0 || b->bytes == 0) return false;
  const uint64_t first = tide__address(a->address);
  const uint64_t second = tide__address(b->address);
  return first < second + b->bytes && second < first + a->bytes;
}

static bool guard_meets_inputs(const tide_planner* planner, const tide__node* node, uint32_t output) {
  const uint32_t* const inputs = tide__node_inputs(planner->graph, node);
  for (uint32_t i = 0; i < node->input_count; i++) {
    if (storages_meet(&planner->storages[inputs[i]], &planner->storages[output])) return true;
  }
  return false;
}

static bool guard_is_permitted(const tide_graph* graph, const tide__node* node, uint32_t output) {
  for (uint32_t i = 0; i < node->in_place_count; i++) {
    if (graph->pairs[node->in_place + i].output == output) return true;
  }
  return false;
}

// Must the program copy this output elsewhere?
static bool guard_finds(const tide_planner* planner, uint32_t number, uint32_t output) {
  const tide__node* const node = &planner->graph->nodes[number];
  const tide_storage* const storage = &planner->storages[output];
  if (storage->address == NULL || (storage->is_planned && guard_is_permitted(planner->graph, node, output))) {
    return false;
  }
  if (!storage->is_planned && tide_planner_is_inside(planner, storage->address)) return true;
  const bool looks_closely = planner->current->layout == NULL || planner->is_marked[number];
  return looks_closely && guard_meets_inputs(planner, node, output);
}

tide_status tide_planner_guard(tide_planner* planner, uint32_t node, uint32_t* values, size_t capacity,
                               size_t* out_count) {
  TIDE_REQUIRE(out_count != NULL, TIDE_ERR_ARGUMENT, "guard: out_count is NULL");
  *out_count = 0;
  TIDE_TRY(run_require(planner, true, "guard"));
  TIDE_REQUIRE(node < planner->graph->node_count && (values != NULL || capacity == 0), TIDE_ERR_ARGUMENT,
               "guard: there is no node %u, or the values are NULL", node);
  const tide__node* const record = &planner->graph->nodes[node];
  if ((record->flags & TIDE_NODE_GUARDED) == 0) return TIDE_OK;
  run_notice_node(planner, record);
  const uint32_t* const outputs = tide__node_outputs(planner->graph, record);
  for (uint32_t i = 0; i < record->output_count; i++) {
    if (!guard_finds(planner, node, outputs[i])) continue;
    if (*out_count < capacity) values[*out_count] = outputs[i];
    ++*out_count;
  }
  if (*out_count != 0) planner->is_marked[node] = true;
  return TIDE_OK;
}

// The value that was given memory of another one after that one was last allocated or adopted;
// TIDE_GRAPH_NONE: none.
static uint32_t audit_find_thief(const tide_planner* planner, uint32_t value) {
  const tide__holding* const holdings = planner->holdings;
  for (uint32_t i = 0; i < planner->graph->value_count; i++) {
    if (i == value || !holdings[i].was_allocated || holdings[i].stamp <= holdings[value].stamp) continue;
    if (storages_meet(&planner->storages[i], &planner->storages[value])) return i;
  }
  return TIDE_GRAPH_NONE;
}

tide_status tide_planner_check(tide_planner* planner, uint32_t node) {
  TIDE_TRY(run_require(planner, true, "check"));
  TIDE_REQUIRE(node < planner->graph->node_count, TIDE_ERR_ARGUMENT, "check: there is no node %u", node);
  if (!planner->options.has_audits) return TIDE_OK;
  const tide__node* const record = &planner->graph->nodes[node];
  run_notice_all(planner);  // the audit compares all of them
  const uint32_t* const inputs = tide__node_inputs(planner->graph, record);
  for (uint32_t i = 0; i < record->input_count; i++) {
    const uint32_t thief = audit_find_thief(planner, inputs[i]);
    TIDE_REQUIRE(thief == TIDE_GRAPH_NONE, TIDE_ERR_STATE,
                 "node %u reads value %u, whose memory was given to value %u: the graph lacks an alias", node,
                 inputs[i], thief);
  }
  return TIDE_OK;
}
