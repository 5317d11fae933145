// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Checks whether offsets are a plan. Between two changes, a buffer is a span: a range of instants and a
// range of bytes. Spans may overlap if they have the same holder: the buffer itself, or the first of the
// buffers that share its storage. One sweep over time maintains a segment tree over the ends of all byte
// ranges. A node has the holder of the spans that cover it wholly, and the holders of all spans below it.
// Taking a range visits the nodes on the way down and those that the range consists of. So spans of one
// holder may overlap in any way without being split.
//
// Cost: O(s log s) for s spans, at most n + 2 g for n buffers with g gaps; 200 bytes per span. It shares no
// code with the solver and trusts none of its inputs.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/arith.h"
#include "base/check.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/scratch.h"
#include "base/sized.h"
#include "tidemark/plan.h"

#define VERIFY_LIMIT (UINT64_C(1) << 30)  // buffers and gaps, so that all ends of spans have 32-bit numbers
#define VERIFY_POOLS (UINT64_C(1) << 16)
#define VERIFY_DIGITS 8u  // of a key that is sorted by
#define VERIFY_DIGIT_VALUES 256u
#define VERIFY_NOBODY 0u
#define VERIFY_SEVERAL UINT32_MAX

typedef unsigned long long verify_number;  // as printf takes it

// An element to sort: a key, and the index of its owner.
typedef struct verify_item {
  uint64_t key;
  uint32_t index;
} verify_item;

typedef struct verify_gap {
  const tide_plan_gap* gap;  // borrowed during the call
  uint32_t buffer;
} verify_gap;

// [V1] lower < upper and first < last
typedef struct verify_span {
  uint64_t lower;  // instants
  uint64_t upper;
  uint64_t first;  // bytes of the pool
  uint64_t last;
  uint32_t buffer;
} verify_span;

// The leaves of the tree that a span takes, and its holder.
typedef struct verify_claim {
  uint32_t first;
  uint32_t last;
  uint32_t holder;  // plus 1
} verify_claim;

// [V2] holder != VERIFY_NOBODY if and only if spans > 0 [V3] below is the holder of all spans on this node
// or under it, VERIFY_NOBODY, or VERIFY_SEVERAL
typedef struct verify_node {
  uint32_t holder;
  uint32_t spans;
  uint32_t below;
} verify_node;

typedef struct verify_work {
  const tide_plan_problem* problem;  // borrowed during the call, like the next two
  const uint64_t* offsets;
  const uint32_t* pools;
  tide__scratch scratch;  // memory of all arrays below
  tide_plan_check* out;   // caller keeps
  size_t gap_count;       // that are not empty
  size_t span_count;
  size_t span_room;
  size_t leaves;  // a power of two
  verify_gap* gaps;
  verify_item* items;  // sorted; each step uses them for something else
  verify_item* spare;
  verify_span* spans;    // by buffer, then by time
  verify_claim* claims;  // of each span
  uint32_t* holders;     // of each buffer
  verify_node* nodes;    // [1] is the root, and [i] has the children [2 i] and [2 i + 1]
} verify_work;

// ---------------------------------------------------------------------------------------------------
// Validation

static tide_status verify_check_gap(const tide_plan_buffer* buffer, size_t index, const tide_plan_gap* gap) {
  TIDE_REQUIRE(gap->lower <= gap->upper && gap->lower >= buffer->lower && gap->upper <= buffer->upper,
               TIDE_ERR_ARGUMENT,
               "verify: buffer %zu lives from %llu to %llu and has a gap from %llu to %llu", index,
               (verify_number)buffer->lower, (verify_number)buffer->upper, (verify_number)gap->lower,
               (verify_number)gap->upper);
  TIDE_REQUIRE(gap->first <= gap->last && gap->last <= buffer->bytes, TIDE_ERR_ARGUMENT,
               "verify: buffer %zu has %llu bytes, and a gap with the window %llu to %llu", index,
               (verify_number)buffer->bytes, (verify_number)gap->first, (verify_number)gap->last);
  return TIDE_OK;
}

static tide_status verify_check_buffer(const tide_plan_buffer* buffer, size_t index, uint64_t pools) {
  TIDE_REQUIRE(buffer->lower <= buffer->upper, TIDE_ERR_ARGUMENT,
               "verify: buffer %zu lives from %llu to %llu", index, (verify_number)buffer->lower,
               (verify_number)buffer->upper);
  TIDE_REQUIRE(buffer->bytes <= TIDE_PLAN_MAX_BYTES, TIDE_ERR_ARGUMENT,
               "verify: buffer %zu has %llu bytes: too many", index, (verify_number)buffer->bytes);
  TIDE_REQUIRE(buffer->alignment <= TIDE_PLAN_MAX_BYTES, TIDE_ERR_ARGUMENT,
               "verify: buffer %zu has the alignment %llu: too large", index,
               (verify_number)buffer->alignment);
  TIDE_REQUIRE(buffer->offset == TIDE_PLAN_ANYWHERE || buffer->offset <= TIDE_PLAN_MAX_BYTES,
               TIDE_ERR_ARGUMENT, "verify: buffer %zu has the fixed offset %llu: too large", index,
               (verify_number)buffer->offset);
  TIDE_REQUIRE(buffer->pool == TIDE_PLAN_ANY_POOL || buffer->pool < pools, TIDE_ERR_ARGUMENT,
               "verify: buffer %zu is of pool %u, and there are %llu", index, (unsigned)buffer->pool,
               (verify_number)pools);
  TIDE_REQUIRE(buffer->gap_count == 0 || buffer->gaps != NULL, TIDE_ERR_ARGUMENT,
               "verify: buffer %zu has %zu gaps at NULL", index, buffer->gap_count);
  for (size_t i = 0; i < buffer->gap_count; ++i) {
    TIDE_TRY(verify_check_gap(buffer, index, &buffer->gaps[i]));
  }
  return TIDE_OK;
}

static uint64_t verify_pool_count(const tide_plan_problem* problem) { return tide__max(problem->pools, 1); }

static tide_status verify_check_pools(const tide_plan_problem* problem) {
  TIDE_REQUIRE(problem->pools == 0 || problem->capacities != NULL, TIDE_ERR_ARGUMENT,
               "verify: %zu pools with the capacities NULL", problem->pools);
  TIDE_REQUIRE(problem->pools <= VERIFY_POOLS, TIDE_ERR_LIMIT, "verify: %zu pools: too many", problem->pools);
  for (size_t i = 0; i < problem->pools; ++i) {
    const uint64_t bytes = problem->capacities[i];
    TIDE_REQUIRE(bytes <= TIDE_PLAN_MAX_BYTES || bytes == UINT64_MAX, TIDE_ERR_ARGUMENT,
                 "verify: pool %zu has %llu bytes: too many", i, (verify_number)bytes);
  }
  return TIDE_OK;
}

// A count is checked before the elements that it counts are read.
static tide_status verify_check_problem(const tide_plan_problem* problem) {
  uint64_t total = problem->count;
  TIDE_REQUIRE(total == 0 || problem->buffers != NULL, TIDE_ERR_ARGUMENT, "verify: %zu buffers at NULL",
               problem->count);
  TIDE_REQUIRE(total < VERIFY_LIMIT, TIDE_ERR_LIMIT, "verify: %zu buffers: too many", problem->count);
  TIDE_TRY(verify_check_pools(problem));
  for (size_t i = 0; i < problem->count; ++i) {
    TIDE_REQUIRE(tide__add(total, problem->buffers[i].gap_count, &total) && total < VERIFY_LIMIT,
                 TIDE_ERR_LIMIT, "verify: 2^30 buffers and gaps, or more, at buffer %zu", i);
    TIDE_TRY(verify_check_buffer(&problem->buffers[i], i, verify_pool_count(problem)));
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Memory, and sorting

static tide_status verify_open(verify_work* w) {
  const size_t count = w->problem->count;
  size_t gaps = 0;
  for (size_t i = 0; i < count; ++i) gaps += w->problem->buffers[i].gap_count;
  w->span_room = count + 2 * gaps;
  w->gaps = tide__scratch_alloc(&w->scratch, gaps, sizeof *w->gaps);
  w->items = tide__scratch_alloc(&w->scratch, 2 * w->span_room, sizeof *w->items);
  w->spare = tide__scratch_alloc(&w->scratch, 2 * w->span_room, sizeof *w->spare);
  w->spans = tide__scratch_alloc(&w->scratch, w->span_room, sizeof *w->spans);
  w->claims = tide__scratch_alloc(&w->scratch, w->span_room, sizeof *w->claims);
  w->holders = tide__scratch_alloc(&w->scratch, count, sizeof *w->holders);
  TIDE_REQUIRE(!w->scratch.is_short, TIDE_ERR_NO_MEMORY, "verify: no memory for %zu buffers with %zu gaps",
               count, gaps);
  return TIDE_OK;
}

// Moves the items to the spare array, in the order of one digit; `places` has the number of each value.
static void verify_sort_digit(verify_work* w, size_t count, uint32_t shift, uint32_t* places) {
  uint32_t place = 0;
  for (size_t value = 0; value < VERIFY_DIGIT_VALUES; ++value) {
    const uint32_t here = places[value];
    places[value] = place;
    place += here;
  }
  for (size_t i = 0; i < count; ++i) {
    const verify_item item = w->items[i];
    w->spare[places[(item.key >> shift) % VERIFY_DIGIT_VALUES]++] = item;
  }
  verify_item* const sorted = w->spare;
  w->spare = w->items;
  w->items = sorted;
}

// Sorts the first items by their keys; those with equal keys stay in their order. A digit that all keys
// share is skipped.
static void verify_sort(verify_work* w, size_t count) {
  uint32_t places[VERIFY_DIGITS][VERIFY_DIGIT_VALUES] = { { 0 } };
  for (size_t i = 0; i < count; ++i) {
    uint64_t key = w->items[i].key;
    for (size_t d = 0; d < VERIFY_DIGITS; ++d, key /= VERIFY_DIGIT_VALUES) {
      places[d][key % VERIFY_DIGIT_VALUES]++;
    }
  }
  for (uint32_t d = 0; d < VERIFY_DIGITS && count != 0; ++d) {
    const uint64_t value = (w->items[0].key >> (8 * d)) % VERIFY_DIGIT_VALUES;
    if (places[d][value] != count) verify_sort_digit(w, count, 8 * d, places[d]);
  }
}

// ---------------------------------------------------------------------------------------------------
// Spans

// Puts the gaps into the order of their buffers, and of time within a buffer.
static void verify_order_gaps(verify_work* w) {
  for (size_t i = 0; i < w->problem->count; ++i) {
    const tide_plan_buffer* const buffer = &w->problem->buffers[i];
    for (size_t k = 0; k < buffer->gap_count; ++k) {
      const tide_plan_gap* const gap = &buffer->gaps[k];
      if (gap->lower == gap->upper) continue;
      w->gaps[w->gap_count] = (verify_gap){ gap, (uint32_t)i };
      w->items[w->gap_count] = (verify_item){ gap->lower, (uint32_t)w->gap_count };
      w->gap_count++;
    }
  }
  verify_sort(w, w->gap_count);
  for (size_t i = 0; i < w->gap_count; ++i) w->items[i].key = w->gaps[w->items[i].index].buffer;
  verify_sort(w, w->gap_count);
}

// The bytes of a span are counted from the buffer's beginning until verify_place_spans().
static void verify_add_span(verify_work* w, uint32_t buffer, uint64_t lower, uint64_t upper, uint64_t first,
                            uint64_t last) {
  if (lower == upper || first == last) return;
  TIDE_ASSERT(w->span_count < w->span_room);
  w->spans[w->span_count++] = (verify_span){ lower, upper, first, last, buffer };
}

static tide_status verify_make_spans(verify_work* w) {
  size_t next = 0;
  verify_order_gaps(w);
  for (uint32_t i = 0; i < w->problem->count; ++i) {
    const tide_plan_buffer* const buffer = &w->problem->buffers[i];
    uint64_t instant = buffer->lower;
    for (; next < w->gap_count && w->items[next].key == i; ++next) {
      const tide_plan_gap* const gap = w->gaps[w->items[next].index].gap;
      TIDE_REQUIRE(gap->lower >= instant, TIDE_ERR_ARGUMENT, "verify: buffer %u has two gaps at instant %llu",
                   (unsigned)i, (verify_number)gap->lower);
      verify_add_span(w, i, instant, gap->lower, 0, buffer->bytes);
      verify_add_span(w, i, gap->lower, gap->upper, gap->first, gap->last);
      instant = gap->upper;
    }
    verify_add_span(w, i, instant, buffer->upper, 0, buffer->bytes);
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Single buffers, and buffers that share storage

__attribute__((format(printf, 5, 6))) static void verify_fault(verify_work* w, tide_plan_fault fault,
                                                               size_t buffer, size_t other,
                                                               const char* format, ...) {
  w->out->fault = fault;
  w->out->buffer = buffer;
  w->out->other = other;
  va_list list;
  va_start(list, format);
  (void)vsnprintf(w->out->text, sizeof w->out->text, format, list);
  va_end(list);
}

static uint32_t verify_pool(const verify_work* w, size_t index) {
  if (w->pools != NULL) return w->pools[index];
  const uint32_t pool = w->problem->buffers[index].pool;
  return pool != TIDE_PLAN_ANY_POOL ? pool : 0;
}

static void verify_fixed(verify_work* w, size_t index) {
  const tide_plan_buffer* const buffer = &w->problem->buffers[index];
  const uint64_t offset = w->offsets[index];
  const uint32_t pool = verify_pool(w, index);
  if (buffer->offset != TIDE_PLAN_ANYWHERE && buffer->offset != offset) {
    verify_fault(w, TIDE_PLAN_FAULT_FIXED, index, index, "buffer %zu is fixed at %llu but lies at %llu",
                 index, (verify_number)buffer->offset, (verify_number)offset);
  } else if (buffer->pool != TIDE_PLAN_ANY_POOL && buffer->pool != pool) {
    verify_fault(w, TIDE_PLAN_FAULT_FIXED, index, index, "buffer %zu belongs to pool %u but lies in pool %u",
                 index, (unsigned)buffer->pool, (unsigned)pool);
  } else if (buffer->alignment != 0 && offset % buffer->alignment != 0) {
    verify_fault(w, TIDE_PLAN_FAULT_ALIGNMENT, index, index,
                 "buffer %zu lies at %llu, which is not a multiple of %llu", index, (verify_number)offset,
                 (verify_number)buffer->alignment);
  }
}

// A buffer that never uses any bytes needs no room, but has an offset and a pool.
static void verify_room(verify_work* w, size_t index, bool holds) {
  const uint64_t bytes = holds ? w->problem->buffers[index].bytes : 0;
  const uint64_t offset = w->offsets[index];
  const uint32_t pool = verify_pool(w, index);
  if (pool >= verify_pool_count(w->problem)) {
    verify_fault(w, TIDE_PLAN_FAULT_CAPACITY, index, index, "buffer %zu lies in pool %u, and there are %llu",
                 index, (unsigned)pool, (verify_number)verify_pool_count(w->problem));
    return;
  }
  const bool has_limit = holds && w->problem->pools != 0;
  const uint64_t capacity = has_limit ? w->problem->capacities[pool] : UINT64_MAX;
  const uint64_t limit = tide__min(capacity, TIDE_PLAN_MAX_BYTES);
  if (offset > limit || bytes > limit - offset) {
    verify_fault(w, TIDE_PLAN_FAULT_CAPACITY, index, index,
                 "buffer %zu lies at %llu with %llu bytes, and pool %u ends at %llu", index,
                 (verify_number)offset, (verify_number)bytes, (unsigned)pool, (verify_number)limit);
  } else if (holds) {
    w->out->peak = tide__max(w->out->peak, offset + bytes);
  }
}

static void verify_each(verify_work* w) {
  size_t next = 0;
  for (size_t i = 0; i < w->problem->count && w->out->fault == TIDE_PLAN_NO_FAULT; ++i) {
    const bool holds = next < w->span_count && w->spans[next].buffer == i;
    while (next < w->span_count && w->spans[next].buffer == i) ++next;
    verify_fixed(w, i);
    if (w->out->fault == TIDE_PLAN_NO_FAULT) verify_room(w, i, holds);
  }
}

// Finds the holder of each buffer. Sorting is stable, so the first buffer of an alias number is the holder.
static void verify_aliases(verify_work* w) {
  size_t count = 0;
  for (uint32_t i = 0; i < w->problem->count; ++i) {
    w->holders[i] = i;
    if (w->problem->buffers[i].alias == 0) continue;
    w->items[count++] = (verify_item){ w->problem->buffers[i].alias, i };
  }
  verify_sort(w, count);
  for (size_t i = 1; i < count; ++i) {
    if (w->items[i].key != w->items[i - 1].key) continue;
    const uint32_t index = w->items[i].index;
    const uint32_t holder = w->holders[w->items[i - 1].index];
    w->holders[index] = holder;
    if (w->offsets[index] == w->offsets[holder] && verify_pool(w, index) == verify_pool(w, holder)) continue;
    verify_fault(w, TIDE_PLAN_FAULT_ALIAS, holder, index,
                 "buffers %u and %u share storage but lie at %llu of pool %u and at %llu of pool %u",
                 (unsigned)holder, (unsigned)index, (verify_number)w->offsets[holder],
                 (unsigned)verify_pool(w, holder), (verify_number)w->offsets[index],
                 (unsigned)verify_pool(w, index));
    return;
  }
}

// ---------------------------------------------------------------------------------------------------
// The tree of holders

static uint32_t verify_either(uint32_t a, uint32_t b) {
  if (a == VERIFY_NOBODY || a == b) return b;
  return b == VERIFY_NOBODY ? a : VERIFY_SEVERAL;
}

static void verify_node_update(const verify_work* w, size_t index) {
  verify_node* const node = &w->nodes[index];
  node->below = node->holder;
  if (index >= w->leaves) return;
  node->below = verify_either(node->below, w->nodes[2 * index].below);
  node->below = verify_either(node->below, w->nodes[2 * index + 1].below);
}

// Takes the part of a claim below the node with the leaves [lower, upper); false if another holder has some
// of it.
static bool verify_node_take(verify_work* w, size_t index, size_t lower, size_t upper,
                             const verify_claim* claim) {
  verify_node* const node = &w->nodes[index];
  if (verify_either(node->holder, claim->holder) != claim->holder) return false;
  if (claim->first <= lower && upper <= claim->last) {
    if (verify_either(node->below, claim->holder) != claim->holder) return false;
    node->holder = claim->holder;
    node->spans++;
  } else {
    const size_t middle = lower + (upper - lower) / 2;
    if (claim->first < middle && !verify_node_take(w, 2 * index, lower, middle, claim)) return false;
    if (claim->last > middle && !verify_node_take(w, 2 * index + 1, middle, upper, claim)) return false;
  }
  node->below = verify_either(node->below, claim->holder);
  return true;
}

static void verify_node_give(verify_work* w, size_t index, size_t lower, size_t upper,
                             const verify_claim* claim) {
  verify_node* const node = &w->nodes[index];
  if (claim->first <= lower && upper <= claim->last) {
    TIDE_ASSERT(node->holder == claim->holder && node->spans > 0);
    if (--node->spans == 0) node->holder = VERIFY_NOBODY;
  } else {
    const size_t middle = lower + (upper - lower) / 2;
    if (claim->first < middle) verify_node_give(w, 2 * index, lower, middle, claim);
    if (claim->last > middle) verify_node_give(w, 2 * index + 1, middle, upper, claim);
  }
  verify_node_update(w, index);
}

// ---------------------------------------------------------------------------------------------------
// The sweep

static void verify_place_spans(verify_work* w) {
  for (size_t i = 0; i < w->span_count; ++i) {
    w->spans[i].first += w->offsets[w->spans[i].buffer];
    w->spans[i].last += w->offsets[w->spans[i].buffer];
  }
}

// The span of an item. Indices below span_count are upper ends of spans, the others lower ends.
static size_t verify_span_of(const verify_work* w, const verify_item* item) {
  return item->index < w->span_count ? item->index : item->index - w->span_count;
}

// Numbers the ends of all ranges of bytes by their address, equal ones alike. Returns how many there are.
static size_t verify_make_claims(verify_work* w) {
  for (size_t i = 0; i < w->span_count; ++i) {
    w->claims[i].holder = w->holders[w->spans[i].buffer] + 1;
    w->items[i] = (verify_item){ w->spans[i].last, (uint32_t)i };
    w->items[i + w->span_count] = (verify_item){ w->spans[i].first, (uint32_t)(i + w->span_count) };
  }
  verify_sort(w, 2 * w->span_count);
  uint32_t rank = 0;
  for (size_t i = 0; i < 2 * w->span_count; ++i) {
    if (i > 0 && w->items[i].key != w->items[i - 1].key) ++rank;
    verify_claim* const claim = &w->claims[verify_span_of(w, &w->items[i])];
    *(w->items[i].index < w->span_count ? &claim->last : &claim->first) = rank;
  }
  return (size_t)rank + 1;
}

// Finds the span that a new span overlaps. There is one, because its claim was refused.
static void verify_overlap(verify_work* w, const verify_span* span) {
  const uint32_t pool = verify_pool(w, span->buffer);
  for (size_t i = 0; i < w->span_count; ++i) {
    const verify_span* const other = &w->spans[i];
    if (other->lower > span->lower || other->upper <= span->lower) continue;
    if (other->first >= span->last || other->last <= span->first) continue;
    if (w->holders[other->buffer] == w->holders[span->buffer] || verify_pool(w, other->buffer) != pool)
      continue;
    w->out->instant = span->lower;
    verify_fault(w, TIDE_PLAN_FAULT_OVERLAP, span->buffer, other->buffer,
                 "buffers %u and %u both use byte %llu of pool %u at instant %llu", (unsigned)span->buffer,
                 (unsigned)other->buffer, (verify_number)tide__max(span->first, other->first), (unsigned)pool,
                 (verify_number)span->lower);
    return;
  }
  TIDE_ASSERT(false);
}

// Orders the ends of all lifetimes by pool, then by time. At one instant, ends come before beginnings.
static void verify_order_events(verify_work* w) {
  for (size_t i = 0; i < w->span_count; ++i) {
    w->items[i] = (verify_item){ w->spans[i].upper, (uint32_t)i };
    w->items[i + w->span_count] = (verify_item){ w->spans[i].lower, (uint32_t)(i + w->span_count) };
  }
  verify_sort(w, 2 * w->span_count);
  if (w->problem->pools <= 1) return;
  for (size_t i = 0; i < 2 * w->span_count; ++i) {
    w->items[i].key = verify_pool(w, w->spans[verify_span_of(w, &w->items[i])].buffer);
  }
  verify_sort(w, 2 * w->span_count);
}

// The pools follow one another: at the end of each, the tree is empty again.
static void verify_sweep(verify_work* w) {
  verify_order_events(w);
  for (size_t i = 0; i < 2 * w->span_count; ++i) {
    const size_t span = verify_span_of(w, &w->items[i]);
    if (w->items[i].index < w->span_count) {
      verify_node_give(w, 1, 0, w->leaves, &w->claims[span]);
    } else if (!verify_node_take(w, 1, 0, w->leaves, &w->claims[span])) {
      verify_overlap(w, &w->spans[span]);
      return;
    }
  }
}

static tide_status verify_overlaps(verify_work* w) {
  verify_place_spans(w);
  const size_t ranks = verify_make_claims(w);
  w->leaves = 1;
  while (w->leaves < ranks) w->leaves *= 2;
  w->nodes = tide__scratch_alloc(&w->scratch, 2 * w->leaves, sizeof *w->nodes);
  TIDE_REQUIRE(w->nodes != NULL, TIDE_ERR_NO_MEMORY, "verify: no memory for %zu nodes", 2 * w->leaves);
  verify_sweep(w);
  return TIDE_OK;
}

static tide_status verify_run(verify_work* w) {
  TIDE_TRY(verify_open(w));
  TIDE_TRY(verify_make_spans(w));
  verify_each(w);
  if (w->out->fault == TIDE_PLAN_NO_FAULT) verify_aliases(w);
  if (w->out->fault == TIDE_PLAN_NO_FAULT && w->span_count != 0) TIDE_TRY(verify_overlaps(w));
  if (w->out->fault != TIDE_PLAN_NO_FAULT) w->out->peak = 0;
  return TIDE_OK;
}

tide_status tide_plan_verify(const tide_plan_problem* problem, const uint64_t* offsets, const uint32_t* pools,
                             const tide_heap* heap, tide_plan_check* out) {
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;
  TIDE_TRY(tide__sized_check("plan_verify", out, sizeof *out));
  tide__sized_clear(out);
  TIDE_REQUIRE(problem != NULL, TIDE_ERR_ARGUMENT, "verify: the problem is NULL");
  TIDE_REQUIRE(tide__heap_is_valid(heap), TIDE_ERR_ARGUMENT, "verify: the heap lacks a function");
  TIDE_TRY(verify_check_problem(problem));
  if (problem->count == 0) return TIDE_OK;
  TIDE_REQUIRE(offsets != NULL, TIDE_ERR_ARGUMENT, "verify: the offsets are NULL");
  verify_work work = { .problem = problem, .offsets = offsets, .pools = pools, .out = &check };
  tide__scratch_init(&work.scratch, tide__heap_or_system(heap));
  const tide_status status = verify_run(&work);
  tide__scratch_fini(&work.scratch);
  return status == TIDE_OK ? tide__sized_write("plan_verify", &check, out, sizeof check) : status;
}
