// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The memory of a planner: one arena that is kept from run to run, an arena for the outputs of each run that
// are in use, and memory of single values. Except for the arena between runs, new memory is allocated before
// old memory is released, so that a failure changes nothing.
#include "base/arith.h"
#include "base/error.h"
#include "graph/planner.h"

static void memory_count_peak(tide_planner* planner) {
  tide_planner_stats* const stats = &planner->stats;
  stats->peak_bytes = tide__max(stats->peak_bytes, stats->arena_bytes + stats->own_bytes);
}

static tide_status arena_alloc(tide_planner* planner, tide__arena_need need, tide__arena_memory* out) {
  TIDE_TRY(tide__arena_memory_alloc(out, &planner->options.memory, &need));
  planner->stats.arena_allocs += out->base != NULL;
  planner->stats.arena_bytes += out->bytes;
  memory_count_peak(planner);
  return TIDE_OK;
}

static void arena_release(tide_planner* planner, tide__arena_memory* arena) {
  planner->stats.arena_bytes -= arena->bytes;
  tide__arena_memory_release(arena, &planner->options.memory);
}

static tide__arena_need arena_need(const tide_planner* planner, uint64_t bytes, tide__recent_max* recent) {
  return (tide__arena_need){ bytes, tide__recent_max_add(recent, bytes), planner->options.alignment };
}

// ---------------------------------------------------------------------------------------------------
// The arena

tide_status tide__planner_fit_arena(tide_planner* planner, uint64_t bytes) {
  const tide__arena_need need = arena_need(planner, bytes, &planner->needs);
  if (tide__arena_memory_fits(&planner->arena, &need)) return TIDE_OK;
  // Nothing in it is needed between runs, so the old arena goes before the new one comes.
  arena_release(planner, &planner->arena);
  return arena_alloc(planner, need, &planner->arena);
}

// ---------------------------------------------------------------------------------------------------
// Generations of outputs

static tide__generation* generation_of(tide__link* link) { return TIDE_OWNER(link, tide__generation, link); }

static void generation_free(tide_planner* planner, tide__generation* generation) {
  tide__list_unlink(&generation->link);
  arena_release(planner, &generation->memory);
  tide__heap_release(planner->heap, generation, 1, sizeof *generation);
}

static tide_status generation_new(tide_planner* planner, tide__arena_need need, tide__generation** out) {
  tide__generation* const generation = tide__heap_alloc(planner->heap, 1, sizeof *generation);
  TIDE_REQUIRE(generation != NULL, TIDE_ERR_NO_MEMORY, "no memory for the record of outputs");
  const tide_status status = arena_alloc(planner, need, &generation->memory);
  if (status != TIDE_OK) {
    tide__heap_release(planner->heap, generation, 1, sizeof *generation);
    return status;
  }
  tide__list_init(&generation->link);
  *out = generation;
  return TIDE_OK;
}

// Finds an idle generation that is large enough, and no larger than the last runs needed. Releases the
// others, and those beyond the number that the last runs used.
static tide__generation* generations_sift(tide_planner* planner, const tide__arena_need* need) {
  const uint64_t most_in_use = tide__recent_max_add(&planner->output_counts, planner->stats.generations + 1);
  uint64_t kept = planner->stats.generations;
  tide__generation* fitting = NULL;
  for (tide__link* it = planner->idle_generations.next; it != &planner->idle_generations;) {
    tide__generation* const idle = generation_of(it);
    it = it->next;
    const bool will_do = tide__arena_memory_fits(&idle->memory, need) && kept < most_in_use;
    kept += will_do;
    if (!will_do) generation_free(planner, idle);
    else if (fitting == NULL) fitting = idle;
  }
  return fitting;
}

tide_status tide__planner_begin_generation(tide_planner* planner, uint64_t bytes) {
  const tide__arena_need need = arena_need(planner, bytes, &planner->output_needs);
  tide__generation* fitting = generations_sift(planner, &need);
  if (fitting == NULL) TIDE_TRY(generation_new(planner, need, &fitting));
  tide__list_unlink(&fitting->link);
  tide__list_append(&planner->generations, &fitting->link);
  fitting->references = 1;
  fitting->number = ++planner->generation_count;
  planner->generation = fitting;
  planner->stats.generations++;
  return TIDE_OK;
}

void tide__planner_drop_generation(tide_planner* planner, tide__generation* generation) {
  if (--generation->references != 0) return;
  if (planner->generation == generation) planner->generation = NULL;
  generation->number = 0;
  planner->stats.generations--;
  tide__list_unlink(&generation->link);
  tide__list_append(&planner->idle_generations, &generation->link);
}

tide__generation* tide__planner_find_generation(const tide_planner* planner, uint64_t number) {
  for (tide__link* it = planner->generations.next; it != &planner->generations; it = it->next) {
    if (generation_of(it)->number == number) return generation_of(it);
  }
  return NULL;
}

// ---------------------------------------------------------------------------------------------------
// Memory of values

static void own_release(tide_planner* planner, void** address, uint64_t* bytes) {
  const tide_memory* const memory = &planner->options.memory;
  if (*address == NULL) return;
  tide__ignore(memory->release(memory, *address));
  planner->stats.own_bytes -= *bytes;
  *address = NULL;
  *bytes = 0;
}

// May the next iteration of a block still read what a value holds in this one?
static bool own_is_kept_for_a_turn(const tide_planner* planner, uint32_t value) {
  const tide__value* const record = &planner->graph->values[value];
  return record->block != TIDE_GRAPH_ROOT && tide__value_is_output_alias(planner->graph, record);
}

// May the memory of a value be released as soon as its last reader has run? Not if it has no lifetime,
// outlives the run, may be held elsewhere, or may be read in the next iteration of a block.
static bool own_is_droppable(const tide_planner* planner, uint32_t value) {
  const tide__value* const record = &planner->graph->values[value];
  return tide__value_is_tracked(record) && !tide__value_outlives_run(record) &&
         !tide__value_is_external_alias(planner->graph, record) && !own_is_kept_for_a_turn(planner, value);
}

static void droppable_add(tide_planner* planner, uint32_t value) {
  tide__holding* const holding = &planner->holdings[value];
  if (holding->is_droppable || !own_is_droppable(planner, value)) return;
  holding->by_end = (tide__tree_node){ .key = planner->graph->values[value].end, .tie = value };
  holding->is_droppable = tide__tree_insert(&planner->droppable, &holding->by_end);
}

static void droppable_remove(tide_planner* planner, uint32_t value) {
  tide__holding* const holding = &planner->holdings[value];
  if (holding->is_droppable) tide__tree_remove(&planner->droppable, &holding->by_end);
  holding->is_droppable = false;
}

// Releases the memory of values whose last reader comes before this value is made.
static void own_drop_dead(tide_planner* planner, uint32_t value) {
  const uint32_t begin = planner->graph->values[value].begin;
  if (planner->options.has_audits)
    return;  // tide_planner_check() reports a missing alias; the memory must still be there
  for (const tide__tree_node* node; (node = tide__tree_first(&planner->droppable)) != NULL;) {
    if (node->key >= begin) return;
    const uint32_t dead = (uint32_t)node->tie;
    tide__planner_disown(planner, dead);
    tide__planner_store(planner, dead, (tide_storage){ .group = TIDE_GRAPH_NONE });
  }
}

// Retires the memory of a value that gets new memory; what the next iteration may read stays.
static void own_retire(tide_planner* planner, uint32_t value, bool is_kept) {
  tide__holding* const holding = &planner->holdings[value];
  if (!is_kept) {
    tide__planner_disown(planner, value);
    return;
  }
  own_release(planner, &holding->previous, &holding->previous_bytes);
  holding->previous = holding->own;
  holding->previous_bytes = holding->own_bytes;
}

tide_status tide__planner_own(tide_planner* planner, uint32_t value, uint64_t bytes, void** out) {
  tide__holding* const holding = &planner->holdings[value];
  const tide_memory* const memory = &planner->options.memory;
  const bool is_kept = own_is_kept_for_a_turn(planner, value);
  if (holding->own != NULL && holding->own_bytes >= bytes && !is_kept) {
    *out = holding->own;
    return TIDE_OK;
  }
  own_drop_dead(planner, value);
  TIDE_TRY(memory->alloc(memory, bytes, planner->options.alignment, out));
  own_retire(planner, value, is_kept);
  droppable_add(planner, value);
  holding->own = *out;
  holding->own_bytes = bytes;
  planner->stats.own_bytes += bytes;
  memory_count_peak(planner);
  return TIDE_OK;
}

void tide__planner_let_go(tide_planner* planner, uint32_t value) {
  if (!own_is_kept_for_a_turn(planner, value)) tide__planner_disown(planner, value);
}

void tide__planner_disown(tide_planner* planner, uint32_t value) {
  tide__holding* const holding = &planner->holdings[value];
  own_release(planner, &holding->own, &holding->own_bytes);
  own_release(planner, &holding->previous, &holding->previous_bytes);
  droppable_remove(planner, value);
}

static void generations_free(tide_planner* planner, tide__link* list) {
  while (!tide__list_is_empty(list)) generation_free(planner, generation_of(list->next));
}

void tide__planner_free_idle(tide_planner* planner) {
  generations_free(planner, &planner->idle_generations);
  arena_release(planner, &planner->arena);
}

void tide__planner_free_memory(tide_planner* planner) {
  for (uint32_t i = 0; planner->holdings != NULL && i < planner->graph->value_count; i++) {
    tide__planner_disown(planner, i);
  }
  generations_free(planner, &planner->generations);
  tide__planner_free_idle(planner);
}
