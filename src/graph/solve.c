// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Offsets from the solver, in-place outputs, and the check of all offsets.
//
// Values that overwrite one another form a chain. The first is the largest; each next one begins at the
// node at which the one before dies. A chain is one buffer of the planning problem, as large as its first
// value. Where a later value is smaller, the buffer has a gap.
#include "base/arith.h"
#include "base/error.h"
#include "base/scratch.h"
#include "graph/placements.h"

typedef struct chain_link {
  uint32_t over;  // the placement that it overwrites; TIDE_GRAPH_NONE: none
  uint32_t next;  // the one that overwrites it
} chain_link;

typedef struct solve_work {
  const tide__placements* placements;
  tide__scratch scratch;
  chain_link* chain;          // of scratch; by placement
  tide_plan_buffer* buffers;  // of scratch; one for each chain
  tide_plan_gap* gaps;        // of scratch, (optional)
  uint32_t* first;            // of scratch; of each buffer, the first placement of its chain
  size_t buffer_count;
  uint32_t over_count;
} solve_work;

static bool solve_alloc(solve_work* work, bool in_place) {
  const size_t count = work->placements->count;
  tide__scratch_init(&work->scratch, work->placements->heap);
  work->chain = tide__scratch_alloc(&work->scratch, count, sizeof *work->chain);
  work->buffers = tide__scratch_alloc(&work->scratch, count, sizeof *work->buffers);
  work->first = tide__scratch_alloc(&work->scratch, count, sizeof *work->first);
  if (in_place) work->gaps = tide__scratch_alloc(&work->scratch, count, sizeof *work->gaps);
  if (work->scratch.is_short) return false;
  for (size_t i = 0; i < count; i++) work->chain[i] = (chain_link){ TIDE_GRAPH_NONE, TIDE_GRAPH_NONE };
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Chains

// May an output overwrite an input of its node? Both are placements plus one; 0: none.
static bool chain_is_permitted(const solve_work* work, const tide__node* node, uint32_t below,
                               uint32_t above) {
  const tide__placement* const items = work->placements->items;
  if (below == 0 || above == 0 || node->last_block != TIDE_GRAPH_NONE) return false;
  const bool is_free = work->chain[below - 1].next == TIDE_GRAPH_NONE &&
                       work->chain[above - 1].over == TIDE_GRAPH_NONE;
  // The input must die here, and no other input of the node may share its memory.
  const tide__placement* const under = &items[below - 1];
  return is_free && under->end == node->end && under->begin < node->begin &&
         work->placements->graph->values[under->value].is_alone && items[above - 1].bytes <= under->bytes;
}

static void chain_node(solve_work* work, const tide__node* node) {
  const tide__placements* const placements = work->placements;
  for (uint32_t i = 0; i < node->in_place_count; i++) {
    const tide_graph_pair pair = placements->graph->pairs[node->in_place + i];
    const uint32_t below = placements->of_value[pair.input];
    const uint32_t above = placements->of_value[pair.output];
    if (!chain_is_permitted(work, node, below, above)) continue;
    work->chain[below - 1].next = above - 1;
    work->chain[above - 1].over = below - 1;
    work->over_count++;
  }
}

static uint32_t chain_maker(const tide__placements* placements, uint32_t placement) {
  return placements->graph->values[placements->items[placement].value].node;
}

// The placements of a node are adjacent, so each node is visited once.
static void chain_all(solve_work* work) {
  const tide__placements* const placements = work->placements;
  for (uint32_t i = 0; i < placements->count; i++) placements->of_value[placements->items[i].value] = i + 1;
  for (uint32_t i = 0; i < placements->count; i++) {
    const uint32_t maker = chain_maker(placements, i);
    if (i == 0 || chain_maker(placements, i - 1) != maker) chain_node(work, &placements->graph->nodes[maker]);
  }
  for (uint32_t i = 0; i < placements->count; i++) placements->of_value[placements->items[i].value] = 0;
}

// ---------------------------------------------------------------------------------------------------
// Buffers

// Makes the buffer of a chain. Writes its gaps from `gaps` on, and returns their number.
static size_t chain_buffer(const solve_work* work, uint32_t first, tide_plan_buffer* buffer,
                           tide_plan_gap* gaps) {
  const tide__placement* const items = work->placements->items;
  *buffer = (tide_plan_buffer){ .lower = items[first].begin,
                                .upper = (uint64_t)items[first].end + 1,
                                .bytes = items[first].bytes,
                                .alignment = work->placements->alignment,
                                .gaps = gaps,
                                TIDE_PLAN_FREELY };
  size_t count = 0;
  for (uint32_t i = work->chain[first].next; i != TIDE_GRAPH_NONE; i = work->chain[i].next) {
    const tide__placement* const over = &items[i];
    // At this instant, the node still reads the value below.
    const uint64_t lower = (uint64_t)over->begin + 1;
    buffer->upper = (uint64_t)over->end + 1;
    if (gaps == NULL || over->bytes == buffer->bytes || lower >= buffer->upper) continue;
    gaps[count++] = (tide_plan_gap){ .lower = lower, .upper = buffer->upper, .last = over->bytes };
  }
  buffer->gap_count = count;
  if (count == 0) buffer->gaps = NULL;
  return count;
}

static void solve_make_buffers(solve_work* work) {
  size_t gap_count = 0;
  for (size_t i = 0; i < work->placements->count; i++) {
    if (work->chain[i].over != TIDE_GRAPH_NONE) continue;
    tide_plan_gap* const gaps = work->gaps != NULL ? &work->gaps[gap_count] : NULL;
    gap_count += chain_buffer(work, (uint32_t)i, &work->buffers[work->buffer_count], gaps);
    work->first[work->buffer_count++] = (uint32_t)i;
  }
}

static tide_status solve_run(solve_work* work, tide__placement* items) {
  const tide__placements* const placements = work->placements;
  const tide_plan_problem problem = { .buffers = work->buffers, .count = work->buffer_count };
  tide_plan_options options = TIDE_PLAN_OPTIONS_INIT;
  options.seconds = 0;  // a time limit would make the layout depend on the computer
  options.nodes = placements->nodes;
  options.heap = placements->heap;
  tide_plan* plan = NULL;
  TIDE_TRY(tide_plan_solve(&problem, &options, &plan));
  const uint64_t* const offsets = tide_plan_offsets(plan);
  for (size_t i = 0; i < work->buffer_count; i++) {
    for (uint32_t j = work->first[i]; j != TIDE_GRAPH_NONE; j = work->chain[j].next) {
      items[j].offset = offsets[i];
      items[j].room = items[j].bytes;
    }
  }
  tide_plan_free(plan);
  return TIDE_OK;
}

static tide_status solve_prepare(solve_work* work, bool in_place) {
  TIDE_REQUIRE(solve_alloc(work, in_place), TIDE_ERR_NO_MEMORY, "no memory to plan %zu values",
               work->placements->count);
  if (in_place) chain_all(work);
  solve_make_buffers(work);
  return TIDE_OK;
}

tide_status tide__placements_solve(tide__placements* placements, bool in_place, uint32_t* out_over) {
  *out_over = 0;
  if (placements->count == 0) return TIDE_OK;
  solve_work work = { .placements = placements };
  tide_status status = solve_prepare(&work, in_place);
  if (status == TIDE_OK) status = solve_run(&work, placements->items);
  if (status == TIDE_OK) *out_over = work.over_count;
  tide__scratch_fini(&work.scratch);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// The check

static uint32_t solve_value(const solve_work* work, size_t buffer) {
  return work->placements->items[work->first[buffer]].value;
}

static tide_status solve_tell(const solve_work* work, const tide_plan_check* check, tide_status wrong) {
  const uint32_t value = solve_value(work, check->buffer);
  const unsigned long long offset = work->placements->items[work->first[check->buffer]].offset;
  if (check->fault == TIDE_PLAN_FAULT_OVERLAP) {
    return TIDE_FAIL(wrong, "layout: the values %u at %llu and %u overlap at instant %llu", value, offset,
                     solve_value(work, check->other), (unsigned long long)check->instant);
  }
  if (check->fault == TIDE_PLAN_FAULT_ALIGNMENT) {
    return TIDE_FAIL(wrong, "layout: the offset %llu of value %u is not a multiple of the alignment", offset,
                     value);
  }
  return TIDE_FAIL(wrong, "layout: the place of value %u at %llu is wrong: %.120s", value, offset,
                   check->text);
}

static tide_status solve_verify(solve_work* work, tide_status wrong) {
  const tide__placements* const placements = work->placements;
  uint64_t* const offsets = tide__scratch_alloc(&work->scratch, work->buffer_count, sizeof *offsets);
  TIDE_REQUIRE(offsets != NULL, TIDE_ERR_NO_MEMORY, "no memory to verify %zu values", placements->count);
  for (size_t i = 0; i < work->buffer_count; i++) offsets[i] = placements->items[work->first[i]].offset;
  const tide_plan_problem problem = { .buffers = work->buffers, .count = work->buffer_count };
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;
  TIDE_TRY(tide_plan_verify(&problem, offsets, NULL, placements->heap, &check));
  return check.fault == TIDE_PLAN_NO_FAULT ? TIDE_OK : solve_tell(work, &check, wrong);
}

tide_status tide__placements_verify(const tide__placements* placements, bool in_place, tide_status wrong) {
  if (placements->count == 0) return TIDE_OK;
  solve_work work = { .placements = placements };
  tide_status status = solve_prepare(&work, in_place);
  if (status == TIDE_OK) status = solve_verify(&work, wrong);
  tide__scratch_fini(&work.scratch);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Sums

void tide__placements_line_up(tide__placements* placements) {
  uint64_t end = 0;
  for (size_t i = 0; i < placements->count; i++) {
    placements->items[i].offset = end;
    placements->items[i].room = placements->items[i].bytes;
    end += placements->items[i].bytes;
  }
}

uint64_t tide__placements_bytes(const tide__placements* placements) {
  uint64_t end = 0;
  for (size_t i = 0; i < placements->count; i++) {
    end = tide__max(end, placements->items[i].offset + placements->items[i].room);
  }
  return end;
}

tide_status tide__placements_load(const tide__placements* placements, uint64_t* out) {
  const size_t instants = (size_t)placements->graph->instants + 2;
  uint64_t* const change = tide__heap_alloc(placements->heap, instants, sizeof *change);
  TIDE_REQUIRE(change != NULL, TIDE_ERR_NO_MEMORY, "no memory to add up %zu values", placements->count);
  // Modulo 2^64: everything subtracted was added before.
  for (size_t i = 0; i < placements->count; i++) {
    change[placements->items[i].begin] += placements->items[i].bytes;
    change[placements->items[i].end + 1] -= placements->items[i].bytes;
  }
  uint64_t live = 0;
  *out = 0;
  for (size_t i = 0; i < instants; i++) {
    live += change[i];
    *out = tide__max(*out, live);
  }
  tide__heap_release(placements->heap, change, instants, sizeof *change);
  return TIDE_OK;
}
