// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Layouts. Managed values with a size become placements. Each algorithm places them, and the smallest
// result is taken. Blocks that are planned separately get parts of the arena, end to end. Outputs lie end
// to end in an arena of their own.
#include "graph/graph_layout.h"

#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/scratch.h"
#include "base/sized.h"
#include "graph/placements.h"

#define LAYOUT_GAPS_MAX 4096u  // values; above that, SMALLEST skips quadratic algorithms

const char* tide_graph_algorithm_name(tide_graph_algorithm algorithm) {
  static const char* const names[] = {
#define LAYOUT_NAME(name, text) text,
    TIDE_GRAPH_ALGORITHM_MAP(LAYOUT_NAME)
#undef LAYOUT_NAME
  };
  return (unsigned)algorithm < TIDE_GRAPH_ALGORITHM_COUNT ? names[algorithm] : "unknown";
}

bool tide__graph_round(const tide_graph_options* options, uint64_t bytes, uint64_t* out) {
  return tide__align_up(bytes, options->alignment, out) && *out < TIDE_PLAN_MAX_BYTES;
}

// ---------------------------------------------------------------------------------------------------
// Placements

typedef struct layout_work {
  const tide_graph* graph;
  const tide_graph_options* options;
  tide_graph_layout* layout;
  tide__scratch scratch;
  tide__placements all;  // in the order of time
  tide__placements outputs;
  tide__placement* best;  // of scratch; the smallest so far
  uint64_t best_bytes;
  bool is_best_in_place;
} layout_work;

static int placement_compare(const void* left, const void* right) {
  const tide__placement* const a = left;
  const tide__placement* const b = right;
  if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
  return a->use < b->use ? -1 : a->use > b->use;
}

static int placement_compare_blocks(const void* left, const void* right) {
  const tide__placement* const a = left;
  const tide__placement* const b = right;
  if (a->block != b->block) return a->block < b->block ? -1 : 1;
  return placement_compare(left, right);
}

static tide_status layout_add_placement(layout_work* work, tide__placements* placements, uint32_t value,
                                        uint64_t bytes, uint64_t* sum) {
  uint64_t rounded = 0;
  const bool is_small = tide__graph_round(work->options, bytes, &rounded) && tide__add(*sum, rounded, sum) &&
                        *sum < TIDE_PLAN_MAX_BYTES;
  TIDE_REQUIRE(is_small, TIDE_ERR_ARGUMENT, "the values up to number %u have 2^62 bytes or more", value);
  const tide__value* const record = &work->graph->values[value];
  placements->items[placements->count++] = (tide__placement){ .value = value,
                                                              .block = record->block,
                                                              .begin = record->begin,
                                                              .end = record->end,
                                                              .use = record->use,
                                                              .bytes = rounded };
  return TIDE_OK;
}

static tide_status layout_collect(layout_work* work, const uint64_t* bytes) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < work->graph->value_count; i++) {
    const tide_value_role role = tide__graph_role(work->graph, work->options, i);
    work->layout->places[i] = (tide_graph_place){ .role = role, .group = TIDE_GRAPH_NONE };
    if (bytes[i] == 0) continue;
    if (role == TIDE_ROLE_MANAGED) TIDE_TRY(layout_add_placement(work, &work->all, i, bytes[i], &sum));
    if (role == TIDE_ROLE_MANAGED_OUTPUT)
      TIDE_TRY(layout_add_placement(work, &work->outputs, i, bytes[i], &sum));
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Algorithms

static tide_status layout_place(tide__placements* placements, tide_graph_algorithm algorithm, bool in_place,
                                uint32_t* out_over) {
  *out_over = 0;
  switch (algorithm) {
    case TIDE_GRAPH_LIFO_GROUPS: return tide__groups_place(placements, true);
    case TIDE_GRAPH_FITTING_GROUPS: return tide__groups_place(placements, false);
    case TIDE_GRAPH_BY_SIZE: return tide__gaps_place(placements, TIDE__GAPS_BY_SIZE);
    case TIDE_GRAPH_BY_AREA: return tide__gaps_place(placements, TIDE__GAPS_BY_AREA);
    case TIDE_GRAPH_BY_DURATION: return tide__gaps_place(placements, TIDE__GAPS_BY_DURATION);
    case TIDE_GRAPH_SOLVER: return tide__placements_solve(placements, in_place, out_over);
    default: tide__placements_line_up(placements); return TIDE_OK;
  }
}

// Places each block separately, end to end.
static tide_status layout_place_apart(tide__placements* all, tide_graph_algorithm algorithm, bool in_place,
                                      uint32_t* out_over) {
  uint64_t base = 0;
  *out_over = 0;
  for (size_t first = 0; first < all->count;) {
    tide__placements part = *all;
    part.items = &all->items[first];
    part.count = 1;
    while (first + part.count < all->count && part.items[part.count].block == part.items[0].block)
      part.count++;
    uint32_t over = 0;
    TIDE_TRY(layout_place(&part, algorithm, in_place, &over));
    const uint64_t end = tide__placements_bytes(&part);
    for (size_t i = 0; i < part.count; i++) part.items[i].offset += base;
    base += end;
    *out_over += over;
    first += part.count;
  }
  return TIDE_OK;
}

static bool algorithm_is_groups(tide_graph_algorithm algorithm) {
  return algorithm == TIDE_GRAPH_LIFO_GROUPS || algorithm == TIDE_GRAPH_FITTING_GROUPS;
}

// Groups do not support nesting.
static tide_status layout_try(layout_work* work, tide_graph_algorithm algorithm, bool in_place) {
  tide__placements* const all = &work->all;
  uint32_t over = 0;
  const bool is_apart = !work->options->nests || algorithm_is_groups(algorithm);
  if (all->count != 0) {
    qsort(all->items, all->count, sizeof(tide__placement),
          is_apart ? placement_compare_blocks : placement_compare);
  }
  if (is_apart) TIDE_TRY(layout_place_apart(all, algorithm, in_place, &over));
  else TIDE_TRY(layout_place(all, algorithm, in_place, &over));
  const uint64_t bytes = tide__placements_bytes(all);
  if (bytes >= work->best_bytes) return TIDE_OK;
  work->best_bytes = bytes;
  work->is_best_in_place = in_place;
  work->layout->info.algorithm = algorithm;
  work->layout->info.over_inputs = over;
  if (all->count != 0) memcpy(work->best, all->items, all->count * sizeof *work->best);
  return TIDE_OK;
}

// Tries all algorithms, the fast ones first. Without in-place outputs, the lower bound ends the search.
static tide_status layout_try_all(layout_work* work) {
  static const tide_graph_algorithm order[] = { TIDE_GRAPH_LIFO_GROUPS, TIDE_GRAPH_FITTING_GROUPS,
                                                TIDE_GRAPH_BY_SIZE,     TIDE_GRAPH_BY_AREA,
                                                TIDE_GRAPH_BY_DURATION, TIDE_GRAPH_SOLVER };
  const uint64_t bound = work->layout->info.lower_bound;
  for (size_t i = 0; i < sizeof order / sizeof *order && work->best_bytes > bound; i++) {
    const bool is_square = order[i] >= TIDE_GRAPH_BY_SIZE && order[i] <= TIDE_GRAPH_BY_DURATION;
    if (is_square && work->all.count > LAYOUT_GAPS_MAX) continue;
    TIDE_TRY(layout_try(work, order[i], false));
  }
  return work->options->in_place ? layout_try(work, TIDE_GRAPH_SOLVER, true) : TIDE_OK;
}

// Calls on_layout, and checks its answer.
static tide_status layout_ask_lodgings(layout_work* work, tide_graph_lodging* lodgings, uint64_t* offsets) {
  tide__placement* const items = work->all.items;
  const size_t count = work->all.count;
  for (size_t i = 0; i < count; i++) {
    lodgings[i] = (tide_graph_lodging){ items[i].value, items[i].begin, items[i].end, items[i].bytes };
  }
  TIDE_TRY(work->options->on_layout(work->options->user, lodgings, count, offsets));
  for (size_t i = 0; i < count; i++) {
    items[i].offset = offsets[i];
    items[i].room = items[i].bytes;
  }
  memcpy(work->best, items, count * sizeof *work->best);
  return tide__placements_verify(&work->all, false, TIDE_ERR_ARGUMENT);
}

static tide_status layout_ask(layout_work* work) {
  const size_t count = work->all.count;
  work->layout->info.is_own = true;
  work->best_bytes = 0;
  if (count == 0) return TIDE_OK;
  qsort(work->all.items, count, sizeof(tide__placement), placement_compare);
  tide_graph_lodging* const lodgings = tide__scratch_alloc(&work->scratch, count, sizeof *lodgings);
  uint64_t* const offsets = tide__scratch_alloc(&work->scratch, count, sizeof *offsets);
  TIDE_REQUIRE(!work->scratch.is_short, TIDE_ERR_NO_MEMORY, "no memory to call on_layout for %zu values",
               count);
  TIDE_TRY(layout_ask_lodgings(work, lodgings, offsets));
  work->best_bytes = tide__placements_bytes(&work->all);
  return TIDE_OK;
}

static tide_status layout_choose(layout_work* work) {
  const tide_graph_options* const options = work->options;
  if (!options->shares) return layout_try(work, TIDE_GRAPH_APART, false);
  if (options->on_layout != NULL) return layout_ask(work);
  if (options->algorithm == TIDE_GRAPH_SMALLEST) return layout_try_all(work);
  TIDE_TRY(layout_try(work, options->algorithm, false));
  const bool may_lie_over = options->in_place && options->algorithm == TIDE_GRAPH_SOLVER;
  return may_lie_over ? layout_try(work, TIDE_GRAPH_SOLVER, true) : TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The result

static int offset_compare(const void* left, const void* right) {
  const tide__placement* const a = left;
  const tide__placement* const b = right;
  if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
  return a->value < b->value ? -1 : a->value > b->value;
}

// Writes the places; values with the same offset form a group. Sorts the placements by offset.
static uint32_t layout_write_places(tide_graph_layout* layout, tide__placement* items, size_t count) {
  uint32_t groups = 0;
  if (count != 0) qsort(items, count, sizeof *items, offset_compare);
  for (size_t i = 0; i < count; i++) {
    if (i != 0 && items[i].offset != items[i - 1].offset) groups++;
    tide_graph_place* const place = &layout->places[items[i].value];
    place->group = groups;
    place->offset = items[i].offset;
    place->bytes = items[i].room;
  }
  return count != 0 ? groups + 1 : 0;
}

static void layout_finish(layout_work* work) {
  tide_graph_layout_info* const info = &work->layout->info;
  info->managed = (uint32_t)work->all.count;
  info->bytes = work->all.count != 0 ? work->best_bytes : 0;
  info->groups = layout_write_places(work->layout, work->best, work->all.count);
  info->reused = info->managed - info->groups;
  tide__placements_line_up(&work->outputs);
  info->outputs = (uint32_t)work->outputs.count;
  info->output_bytes = tide__placements_bytes(&work->outputs);
  layout_write_places(work->layout, work->outputs.items, work->outputs.count);
}

static tide_status layout_build(layout_work* work, const uint64_t* bytes) {
  TIDE_TRY(layout_collect(work, bytes));
  TIDE_TRY(tide__placements_load(&work->all, &work->layout->info.lower_bound));
  work->best_bytes = UINT64_MAX;
  TIDE_TRY(layout_choose(work));
  tide__placements best = work->all;
  best.items = work->best;
  TIDE_TRY(tide__placements_verify(&best, work->is_best_in_place, TIDE_ERR_STATE));
  layout_finish(work);
  return TIDE_OK;
}

static tide_status layout_alloc(layout_work* work, const tide_heap* heap) {
  const size_t count = work->graph->value_count + 1;
  tide__scratch* const scratch = &work->scratch;
  tide__scratch_init(scratch, heap);
  const tide__placements placements = { .graph = work->graph,
                                        .heap = heap,
                                        .of_value = tide__scratch_alloc(scratch, count, sizeof(uint32_t)),
                                        .nodes = work->options->plan_nodes,
                                        .alignment = work->options->alignment };
  work->all = work->outputs = placements;
  work->all.items = tide__scratch_alloc(scratch, count, sizeof(tide__placement));
  work->outputs.items = tide__scratch_alloc(scratch, count, sizeof(tide__placement));
  work->best = tide__scratch_alloc(scratch, count, sizeof(tide__placement));
  work->layout = tide__heap_alloc(heap, 1, sizeof *work->layout);
  bool has_room = !scratch->is_short && work->layout != NULL;
  if (work->layout != NULL) {
    work->layout->heap = heap;
    work->layout->count = work->graph->value_count;
    work->layout->places = tide__heap_alloc(heap, count, sizeof *work->layout->places);
    has_room = has_room && work->layout->places != NULL;
  }
  TIDE_REQUIRE(has_room, TIDE_ERR_NO_MEMORY, "no memory for a layout of %zu values",
               work->graph->value_count);
  return TIDE_OK;
}

tide_status tide__graph_layout_make(const tide_graph* graph, const tide_graph_options* options,
                                    const uint64_t* bytes, tide_graph_layout** out) {
  layout_work work = { .graph = graph, .options = options };
  tide_status status = layout_alloc(&work, options->heap);
  if (status == TIDE_OK) status = layout_build(&work, bytes);
  tide__scratch_fini(&work.scratch);
  if (status != TIDE_OK) {
    tide_graph_layout_free(work.layout);
    return status;
  }
  *out = work.layout;
  return TIDE_OK;
}

tide_status tide_graph_layout_new(const tide_graph* graph, const tide_graph_options* options,
                                  const uint64_t* bytes, size_t count, tide_graph_layout** out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "layout: out is NULL");
  *out = NULL;
  TIDE_REQUIRE(graph != NULL, TIDE_ERR_ARGUMENT, "layout: the graph is NULL");
  TIDE_REQUIRE(graph->is_sealed, TIDE_ERR_STATE, "layout: the graph is not sealed");
  TIDE_REQUIRE(count == graph->value_count && (bytes != NULL || count == 0), TIDE_ERR_ARGUMENT,
               "layout: %zu sizes for %zu values", count, graph->value_count);
  tide_graph_options chosen = TIDE_GRAPH_OPTIONS_INIT;
  if (options != NULL) TIDE_TRY(tide__sized_read("layout_new", options, &chosen, sizeof chosen));
  TIDE_TRY(tide__graph_options_check(&chosen));
  chosen.heap = tide__heap_or_system(chosen.heap);
  return tide__graph_layout_make(graph, &chosen, bytes, out);
}

void tide_graph_layout_free(tide_graph_layout* layout) {
  if (layout == NULL) return;
  const tide_heap* const heap = layout->heap;
  tide__heap_release(heap, layout->places, layout->count + 1, sizeof *layout->places);
  tide__heap_release(heap, layout, 1, sizeof *layout);
}

tide_graph_place tide_graph_layout_place(const tide_graph_layout* layout, uint32_t value) {
  if (layout == NULL || value >= layout->count) return (tide_graph_place){ .group = TIDE_GRAPH_NONE };
  return layout->places[value];
}

tide_graph_layout_info tide_graph_layout_describe(const tide_graph_layout* layout) {
  return layout != NULL ? layout->info : (tide_graph_layout_info){ 0 };
}
