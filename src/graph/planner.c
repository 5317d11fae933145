// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Creating and querying planners. The runs are in planner_run.c.
#include "graph/planner.h"

#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/sized.h"

static bool planner_alloc_tables(tide_planner* planner) {
  const tide_graph* const graph = planner->graph;
  const size_t values = graph->value_count + 1;
  tide__scratch* const tables = &planner->tables;
  tide__scratch_init(tables, planner->heap);
  planner->roles = tide__scratch_alloc(tables, values, sizeof *planner->roles);
  planner->storages = tide__scratch_alloc(tables, values, sizeof *planner->storages);
  planner->holdings = tide__scratch_alloc(tables, values, sizeof *planner->holdings);
  planner->is_marked = tide__scratch_alloc(tables, graph->node_count + 1, sizeof *planner->is_marked);
  planner->learnt = tide__scratch_alloc(tables, planner->options.max_layouts, sizeof *planner->learnt);
  return !tables->is_short;
}

void tide_planner_free(tide_planner* planner) {
  if (planner == NULL) return;
  if (planner->is_open) tide__ignore(tide_planner_cancel(planner));
  if (planner->learnt != NULL) tide__planner_forget_all(planner);
  tide__planner_free_memory(planner);
  tide__scratch_fini(&planner->tables);
  tide__heap_release(planner->heap, planner, 1, sizeof *planner);
}

tide_status tide_planner_trim(tide_planner* planner) {
  TIDE_REQUIRE(planner != NULL, TIDE_ERR_ARGUMENT, "planner_trim: the planner is NULL");
  TIDE_REQUIRE(!planner->is_open, TIDE_ERR_STATE, "planner_trim: a run is open");
  tide__planner_free_idle(planner);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Roles

static void planner_count_role(tide_planner_stats* stats, tide_value_role role) {
  stats->managed += role == TIDE_ROLE_MANAGED;
  stats->managed_outputs += role == TIDE_ROLE_MANAGED_OUTPUT;
  stats->leaked += role == TIDE_ROLE_LEAKED;
  stats->borrowed += role == TIDE_ROLE_BORROWED;
  stats->unmanaged += role == TIDE_ROLE_UNMANAGED || role == TIDE_ROLE_BORROWED;
  stats->borrowed_outputs += role == TIDE_ROLE_BORROWED_OUTPUT;
  stats->scalars += role == TIDE_ROLE_SCALAR;
}

static void planner_assign_roles(tide_planner* planner) {
  tide_planner_stats* const stats = &planner->stats;
  stats->managed = stats->managed_outputs = stats->leaked = stats->unmanaged = 0;
  stats->borrowed = stats->borrowed_outputs = stats->scalars = 0;
  for (uint32_t i = 0; i < planner->graph->value_count; i++) {
    planner->roles[i] = tide__graph_role(planner->graph, &planner->options, i);
    planner_count_role(stats, planner->roles[i]);
  }
  stats->total_unmanaged = stats->unmanaged + stats->scalars;
}

// ---------------------------------------------------------------------------------------------------
// Making

static void planner_clear_storages(tide_planner* planner) {
  for (uint32_t i = 0; i < planner->graph->value_count; i++) {
    tide__planner_store(planner, i, (tide_storage){ .group = TIDE_GRAPH_NONE });
  }
}

static void planner_init_windows(tide_planner* planner) {
  const uint64_t window = tide__min(planner->options.remembers_runs, TIDE__PLANNER_WINDOW);
  tide__recent_max* const all[] = { &planner->needs, &planner->output_needs, &planner->output_counts };
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    *all[i] = (tide__recent_max){ .numbers = planner->window[i], .window = (uint32_t)window };
  }
}

tide_status tide_planner_new(const tide_graph* graph, const tide_graph_options* options, tide_planner** out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "planner: out is NULL");
  *out = NULL;
  TIDE_REQUIRE(graph != NULL, TIDE_ERR_ARGUMENT, "planner: the graph is NULL");
  TIDE_REQUIRE(graph->is_sealed, TIDE_ERR_STATE, "planner: the graph is not sealed");
  tide_graph_options chosen = TIDE_GRAPH_OPTIONS_INIT;
  if (options != NULL) TIDE_TRY(tide__sized_read("planner_new", options, &chosen, sizeof chosen));
  TIDE_TRY(tide__graph_options_check(&chosen));
  chosen.heap = tide__heap_or_system(chosen.heap);
  if (chosen.memory.alloc == NULL) chosen.memory = tide_memory_cpu();
  tide_planner* const planner = tide__heap_alloc(chosen.heap, 1, sizeof *planner);
  TIDE_REQUIRE(planner != NULL, TIDE_ERR_NO_MEMORY, "no memory for a planner");
  planner->graph = graph;
  planner->options = chosen;
  planner->heap = chosen.heap;
  tide__list_init(&planner->generations);
  tide__list_init(&planner->idle_generations);
  planner_init_windows(planner);
  if (!planner_alloc_tables(planner)) {
    tide_planner_free(planner);
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for a planner of %zu values", graph->value_count);
  }
  planner_assign_roles(planner);
  planner_clear_storages(planner);
  *out = planner;
  return TIDE_OK;
}

static tide_status planner_presize(tide_planner* planner, tide__learnt* learnt, const uint64_t* bytes) {
  const size_t count = planner->graph->value_count;
  uint64_t* const sizes = tide__heap_alloc(planner->heap, count + 1, sizeof *sizes);
  TIDE_REQUIRE(sizes != NULL, TIDE_ERR_NO_MEMORY, "no memory for the sizes of %zu values", count);
  for (size_t i = 0; i < count; i++) sizes[i] = tide__max(bytes[i], learnt->largest[i]);
  const tide_status status = tide__planner_lay_out(planner, learnt, sizes);
  if (status == TIDE_OK) tide__planner_note_sizes(planner, learnt, bytes);
  tide__heap_release(planner->heap, sizes, count + 1, sizeof *sizes);
  return status;
}

tide_status tide_planner_presize(tide_planner* planner, uint64_t shape, const uint64_t* bytes, size_t count) {
  TIDE_REQUIRE(planner != NULL, TIDE_ERR_ARGUMENT, "presize: the planner is NULL");
  TIDE_REQUIRE(!planner->is_open, TIDE_ERR_STATE, "presize: a run is open");
  TIDE_REQUIRE(count == planner->graph->value_count && (bytes != NULL || count == 0), TIDE_ERR_ARGUMENT,
               "presize: %zu sizes for %zu values", count, planner->graph->value_count);
  tide__learnt* learnt = tide__planner_find(planner, shape);
  tide__learnt fresh = { 0 };
  if (learnt == NULL) TIDE_TRY(tide__planner_prepare(planner, shape, &fresh));
  const tide_status status = planner_presize(planner, learnt != NULL ? learnt : &fresh, bytes);
  if (learnt == NULL && status != TIDE_OK) tide__planner_unprepare(planner, &fresh);
  if (learnt == NULL && status == TIDE_OK)
    tide__planner_keep(planner, &fresh)->last_run = planner->run_number;
  return status;
}

tide_status tide_planner_disable_outputs(tide_planner* planner) {
  TIDE_REQUIRE(planner != NULL, TIDE_ERR_ARGUMENT, "disable_outputs: the planner is NULL");
  TIDE_REQUIRE(!planner->is_open, TIDE_ERR_STATE, "disable_outputs: a run is open");
  planner->options.manages_outputs = false;
  planner->options.manages_direct_outputs = false;
  planner->is_decided = false;
  planner_assign_roles(planner);
  tide__planner_forget_all(planner);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Queries

tide_storage* tide_planner_storage(const tide_planner* planner, uint32_t value) {
  if (planner == NULL || value >= planner->graph->value_count) return NULL;
  return &planner->storages[value];
}

size_t tide_planner_storage_count(const tide_planner* planner) {
  return planner != NULL ? planner->graph->value_count : 0;
}

bool tide_planner_is_storage(const tide_planner* planner, const void* pointer) {
  const uint64_t bytes = tide_planner_storage_count(planner) * sizeof(tide_storage);
  return planner != NULL && tide__address(pointer) - tide__address(planner->storages) < bytes;
}

bool tide_planner_is_inside(const tide_planner* planner, const void* address) {
  return planner != NULL && planner->is_open && tide__arena_memory_has(&planner->arena, address);
}

bool tide_planner_is_managed_output(const tide_planner* planner, const void* address) {
  if (planner == NULL) return false;
  for (const tide__link* it = planner->generations.next; it != &planner->generations; it = it->next) {
    if (tide__arena_memory_has(&TIDE_OWNER_CONST(it, tide__generation, link)->memory, address)) return true;
  }
  return false;
}

uint32_t tide_planner_leak(const tide_planner* planner) {
  if (planner == NULL || planner->is_open) return TIDE_GRAPH_NONE;
  for (uint32_t i = 0; i < planner->graph->value_count; i++) {
    const bool holds = planner->storages[i].address != NULL || planner->holdings[i].own != NULL;
    if (holds && !tide__value_outlives_run(&planner->graph->values[i])) return i;
  }
  return TIDE_GRAPH_NONE;
}

tide_value_role tide_planner_role(const tide_planner* planner, uint32_t value) {
  if (planner == NULL || value >= planner->graph->value_count) return TIDE_ROLE_EXTERNAL;
  return planner->roles[value];
}

const tide_graph_layout* tide_planner_layout(const tide_planner* planner) {
  return planner != NULL && planner->current != NULL ? planner->current->layout : NULL;
}

tide_status tide_planner_get_stats(const tide_planner* planner, tide_planner_stats* out) {
  TIDE_REQUIRE(planner != NULL, TIDE_ERR_ARGUMENT, "planner_get_stats: the planner is NULL");
  tide_planner_stats stats = planner->stats;
  const tide_graph_layout_info info = tide_graph_layout_describe(tide_planner_layout(planner));
  stats.reused = info.reused;
  stats.managed_bytes = info.bytes;
  stats.output_bytes = info.output_bytes;
  return tide__sized_write("planner_get_stats", &stats, out, sizeof stats);
}
