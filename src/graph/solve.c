// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Offsets from the solver, outputs over inputs where nodes permit it, and the check of all offsets.
//
// Values that lie one over the other form a chain: the first is the largest, each next begins at the node at
// which the one before dies. A chain is one buffer of the planning problem, as large as its first value;
// where a later one is smaller, a gap of the buffer says that it then holds fewer bytes.
#include "base/arith.h"
#include "base/error.h"
#include "graph/places.h"

typedef struct chain_link {
  uint32_t over;  // the lodger that it lies over; TIDE_GRAPH_NONE: none
  uint32_t next;  // the one that lies over it
} chain_link;

typedef struct solve_work {
  const tide__lodgers* lodgers;
  chain_link* chain;          // owned; by lodger
  tide_plan_buffer* buffers;  // owned; one for each chain
  tide_plan_gap* gaps;        // owned
  uint32_t* first;            // owned; of each buffer, the first lodger of its chain
  size_t buffer_count;
  uint32_t over_count;
} solve_work;

static bool solve_alloc(solve_work* work, bool in_place) {
  const tide__lodgers* const lodgers = work->lodgers;
  const tide_heap* const heap = lodgers->heap;
  work->chain = tide__heap_alloc(heap, lodgers->count, sizeof *work->chain);
  work->buffers = tide__heap_alloc(heap, lodgers->count, sizeof *work->buffers);
  work->first = tide__heap_alloc(heap, lodgers->count, sizeof *work->first);
  if (work->chain == NULL || work->buffers == NULL || work->first == NULL) return false;
  for (size_t i = 0; i < lodgers->count; i++)
    work->chain[i] = (chain_link){ TIDE_GRAPH_NONE, TIDE_GRAPH_NONE };
  if (!in_place) return true;
  work->gaps = tide__heap_alloc(heap, lodgers->count, sizeof *work->gaps);
  return work->gaps != NULL;
}

static void solve_free(solve_work* work) {
  const tide__lodgers* const lodgers = work->lodgers;
  const tide_heap* const heap = lodgers->heap;
  tide__heap_release(heap, work->gaps, lodgers->count, sizeof *work->gaps);
  tide__heap_release(heap, work->first, lodgers->count, sizeof *work->first);
  tide__heap_release(heap, work->buffers, lodgers->count, sizeof *work->buffers);
  tide__heap_release(heap, work->chain, lodgers->count, sizeof *work->chain);
}

// ---------------------------------------------------------------------------------------------------
// Chains

// May an output lie over an input of its node? Both are lodgers, plus one; 0: they are not.
static bool chain_is_permitted(const solve_work* work, const tide__node* node, uint32_t below,
                               uint32_t above) {
  const tide__lodger* const items = work->lodgers->items;
  if (below == 0 || above == 0 || node->last_block != TIDE_GRAPH_NONE) return false;
  const bool is_free = work->chain[below - 1].next == TIDE_GRAPH_NONE &&
                       work->chain[above - 1].over == TIDE_GRAPH_NONE;
  // The input must die here, and nothing else that the node reads may lie in its memory.
  const tide__lodger* const under = &items[below - 1];
  return is_free && under->end == node->end && under->begin < node->begin &&
         work->lodgers->graph->values[under->value].is_alone && items[above - 1].bytes <= under->bytes;
}

static void chain_node(solve_work* work, const tide__node* node) {
  const tide__lodgers* const lodgers = work->lodgers;
  for (uint32_t i = 0; i < node->in_place_count; i++) {
    const tide_graph_pair pair = lodgers->graph->pairs[node->in_place + i];
    const uint32_t below = lodgers->of_value[pair.input];
    const uint32_t above = lodgers->of_value[pair.output];
    if (!chain_is_permitted(work, node, below, above)) continue;
    work->chain[below - 1].next = above - 1;
    work->chain[above - 1].over = below - 1;
    work->over_count++;
  }
}

static uint32_t chain_maker(const tide__lodgers* lodgers, uint32_t lodger) {
  return lodgers->graph->values[lodgers->items[lodger].value].node;
}

// The lodgers of one node stand together: each node is met once.
static void chain_all(solve_work* work) {
  const tide__lodgers* const lodgers = work->lodgers;
  for (uint32_t i = 0; i < lodgers->count; i++) lodgers->of_value[lodgers->items[i].value] = i + 1;
  for (uint32_t i = 0; i < lodgers->count; i++) {
    const uint32_t maker = chain_maker(lodgers, i);
    if (i == 0 || chain_maker(lodgers, i - 1) != maker) chain_node(work, &lodgers->graph->nodes[maker]);
  }
  for (uint32_t i = 0; i < lodgers->count; i++) lodgers->of_value[lodgers->items[i].value] = 0;
}

// ---------------------------------------------------------------------------------------------------
// Buffers

// The buffer of a chain; gaps are taken from `gaps` on, and their number is returned.
static size_t chain_buffer(const solve_work* work, uint32_t first, tide_plan_buffer* buffer,
                           tide_plan_gap* gaps) {
  const tide__lodger* const items = work->lodgers->items;
  *buffer = (tide_plan_buffer){ .lower = items[first].begin,
                                .upper = (uint64_t)items[first].end + 1,
                                .bytes = items[first].bytes,
                                .alignment = work->lodgers->alignment,
                                .gaps = gaps,
                                TIDE_PLAN_FREELY };
  size_t count = 0;
  for (uint32_t i = work->chain[first].next; i != TIDE_GRAPH_NONE; i = work->chain[i].next) {
    const tide__lodger* const over = &items[i];
    // The node that writes it reads the one below at the same instant.
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
  for (size_t i = 0; i < work->lodgers->count; i++) {
    if (work->chain[i].over != TIDE_GRAPH_NONE) continue;
    tide_plan_gap* const gaps = work->gaps != NULL ? &work->gaps[gap_count] : NULL;
    gap_count += chain_buffer(work, (uint32_t)i, &work->buffers[work->buffer_count], gaps);
    work->first[work->buffer_count++] = (uint32_t)i;
  }
}

static tide_status solve_run(solve_work* work, tide__lodger* items) {
  const tide__lodgers* const lodgers = work->lodgers;
  const tide_plan_problem problem = { .buffers = work->buffers, .count = work->buffer_count };
  tide_plan_options options = TIDE_PLAN_OPTIONS_INIT;
  options.seconds = 0;  // a limit in time would make the layout depend on the computer
  options.nodes = lodgers->nodes;
  options.heap = lodgers->heap;
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
               work->lodgers->count);
  if (in_place) chain_all(work);
  solve_make_buffers(work);
  return TIDE_OK;
}

tide_status tide__lodgers_solve(tide__lodgers* lodgers, bool in_place, uint32_t* out_over) {
  *out_over = 0;
  if (lodgers->count == 0) return TIDE_OK;
  solve_work work = { .lodgers = lodgers };
  tide_status status = solve_prepare(&work, in_place);
  if (status == TIDE_OK) status = solve_run(&work, lodgers->items);
  if (status == TIDE_OK) *out_over = work.over_count;
  solve_free(&work);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// The check

static uint32_t solve_value(const solve_work* work, size_t buffer) {
  return work->lodgers->items[work->first[buffer]].value;
}

static tide_status solve_tell(const solve_work* work, const tide_plan_check* check, tide_status wrong) {
  const uint32_t value = solve_value(work, check->buffer);
  const unsigned long long offset = work->lodgers->items[work->first[check->buffer]].offset;
  if (check->fault == TIDE_PLAN_FAULT_OVERLAP) {
    return TIDE_FAIL(wrong, "layout: the values %u at %llu and %u overlap at instant %llu", value, offset,
                     solve_value(work, check->other), (unsigned long long)check->instant);
  }
  if (check->fault == TIDE_PLAN_FAULT_ALIGNMENT) {
    return TIDE_FAIL(wrong, "layout: the offset %llu of value %u is no multiple of the alignment", offset,
                     value);
  }
  return TIDE_FAIL(wrong, "layout: the place of value %u at %llu is wrong: %.120s", value, offset,
                   check->text);
}

static tide_status solve_verify(solve_work* work, tide_status wrong) {
  const tide__lodgers* const lodgers = work->lodgers;
  uint64_t* const offsets = tide__heap_alloc(lodgers->heap, work->buffer_count, sizeof *offsets);
  TIDE_REQUIRE(offsets != NULL, TIDE_ERR_NO_MEMORY, "no memory to verify %zu values", lodgers->count);
  for (size_t i = 0; i < work->buffer_count; i++) offsets[i] = lodgers->items[work->first[i]].offset;
  const tide_plan_problem problem = { .buffers = work->buffers, .count = work->buffer_count };
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;
  const tide_status status = tide_plan_verify(&problem, offsets, NULL, lodgers->heap, &check);
  tide__heap_release(lodgers->heap, offsets, work->buffer_count, sizeof *offsets);
  if (status != TIDE_OK) return status;
  return check.fault == TIDE_PLAN_NO_FAULT ? TIDE_OK : solve_tell(work, &check, wrong);
}

tide_status tide__lodgers_verify(const tide__lodgers* lodgers, bool in_place, tide_status wrong) {
  if (lodgers->count == 0) return TIDE_OK;
  solve_work work = { .lodgers = lodgers };
  tide_status status = solve_prepare(&work, in_place);
  if (status == TIDE_OK) status = solve_verify(&work, wrong);
  solve_free(&work);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Sums

void tide__lodgers_line_up(tide__lodgers* lodgers) {
  uint64_t end = 0;
  for (size_t i = 0; i < lodgers->count; i++) {
    lodgers->items[i].offset = end;
    lodgers->items[i].room = lodgers->items[i].bytes;
    end += lodgers->items[i].bytes;
  }
}

uint64_t tide__lodgers_bytes(const tide__lodgers* lodgers) {
  uint64_t end = 0;
  for (size_t i = 0; i < lodgers->count; i++) {
    end = tide__max(end, lodgers->items[i].offset + lodgers->items[i].room);
  }
  return end;
}

tide_status tide__lodgers_load(const tide__lodgers* lodgers, uint64_t* out) {
  const size_t instants = (size_t)lodgers->graph->instants + 2;
  uint64_t* const change = tide__heap_alloc(lodgers->heap, instants, sizeof *change);
  TIDE_REQUIRE(change != NULL, TIDE_ERR_NO_MEMORY, "no memory to add up %zu values", lodgers->count);
  // Sums modulo 2^64: what is taken away was added before.
  for (size_t i = 0; i < lodgers->count; i++) {
    change[lodgers->items[i].begin] += lodgers->items[i].bytes;
    change[lodgers->items[i].end + 1] -= lodgers->items[i].bytes;
  }
  uint64_t live = 0;
  *out = 0;
  for (size_t i = 0; i < instants; i++) {
    live += change[i];
    *out = tide__max(*out, live);
  }
  tide__heap_release(lodgers->heap, change, instants, sizeof *change);
  return TIDE_OK;
}
