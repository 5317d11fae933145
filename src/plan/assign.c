// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The load of each pool is kept by section in a segment tree, so checking for room is O(log n). A load only
// rules assignments out. If a pool cannot hold its items, the caller moves some of them on.
#include "plan/assign.h"

#include "base/error.h"
#include "base/random.h"
#include "plan/radix.h"

#define ASSIGN_WAYS 4096u                 // that are tried one by one
#define ASSIGN_SHUFFLES 32u               // random ones, if there are more
#define ASSIGN_WORDS ((uint64_t)3 << 22)  // of all segment trees together

static tide_status assign_no_memory(const tide__assign* assign) {
  return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory to assign %zu buffers", assign->items->count);
}

uint64_t tide__assign_capacity(const tide__assign* assign, uint32_t pool) {
  return assign->problem->pools > 0 ? assign->problem->capacities[pool] : UINT64_MAX;
}

void tide__assign_list(tide__assign* assign) {
  for (uint32_t i = 0; i <= assign->pool_count; i++) assign->first[i] = 0;
  for (size_t i = 0; i < assign->items->count; i++) assign->first[assign->pools[i] + 1]++;
  for (uint32_t i = 0; i < assign->pool_count; i++) assign->first[i + 1] += assign->first[i];
  for (uint32_t i = 0; i < assign->items->count; i++) assign->list[assign->first[assign->pools[i]]++] = i;
  // Each `first` has moved to where the next pool begins.
  for (uint32_t i = assign->pool_count; i > 0; i--) assign->first[i] = assign->first[i - 1];
  assign->first[0] = 0;
}

// ---------------------------------------------------------------------------------------------------
// Loads

static void assign_add(tide__assign* assign, uint32_t item, uint32_t pool, bool is_added) {
  assign->pools[item] = pool;
  if (!assign->has_loads || assign->boxes[item] == UINT32_MAX) return;
  const tide__box* const box = &assign->all.boxes[assign->boxes[item]];
  for (uint32_t i = 0; i < box->span_count; i++) {
    const tide__span* const span = &assign->all.spans[box->span + i];
    const int64_t bytes = span->held;
    tide__segment_tree_add(&assign->loads[pool], span->first, span->last, is_added ? bytes : -bytes);
  }
}

static bool assign_has_room(const tide__assign* assign, uint32_t item, uint32_t pool) {
  const uint64_t capacity = tide__assign_capacity(assign, pool);
  if (capacity == UINT64_MAX || assign->boxes[item] == UINT32_MAX) return true;
  const tide__box* const box = &assign->all.boxes[assign->boxes[item]];
  if ((uint64_t)box->height > capacity) return false;
  if (box->fixed >= 0 && (uint64_t)box->fixed + (uint64_t)box->height > capacity) return false;
  for (uint32_t i = 0; assign->has_loads && i < box->span_count; i++) {
    const tide__span* const span = &assign->all.spans[box->span + i];
    const int64_t load = tide__segment_tree_max_of(&assign->loads[pool], span->first, span->last);
    if (load > (int64_t)capacity - span->held) return false;
  }
  return true;
}

// The first pool from `pool` on that has room; pool_count if there is none.
static uint32_t assign_find(const tide__assign* assign, uint32_t item, uint32_t pool) {
  while (pool < assign->pool_count && !assign_has_room(assign, item, pool)) pool++;
  return pool;
}

bool tide__assign_move(tide__assign* assign, uint32_t item) {
  if (assign->items->items[item].pool != TIDE_PLAN_ANY_POOL) return false;
  const uint32_t pool = assign_find(assign, item, assign->pools[item] + 1);
  if (pool == assign->pool_count) return false;
  assign_add(assign, item, assign->pools[item], false);
  assign_add(assign, item, pool, true);
  return true;
}

// ---------------------------------------------------------------------------------------------------

// Can loads be kept without too much memory and without overflow?
static bool assign_can_sum_up(const tide__assign* assign, uint64_t words) {
  if (words * assign->pool_count > ASSIGN_WORDS) return false;
  uint64_t total = 0;
  for (uint32_t i = 0; i < assign->all.count; i++) {
    if (__builtin_add_overflow(total, (uint64_t)assign->all.boxes[i].height, &total)) return false;
  }
  return total <= TIDE_PLAN_MAX_BYTES;
}

static tide_status assign_open(tide__assign* assign, const tide_heap* heap) {
  const size_t items = assign->items->count;
  TIDE_TRY(tide__model_init(&assign->all, assign->items, assign->list, items, heap));
  const uint32_t sections = assign->all.sections;
  const size_t words = tide__segment_tree_words(sections);
  assign->boxes = tide__scratch_alloc(&assign->scratch, items, sizeof *assign->boxes);
  assign->loads = tide__scratch_alloc(&assign->scratch, assign->pool_count, sizeof *assign->loads);
  assign->free = tide__scratch_alloc(&assign->scratch, items, sizeof *assign->free);
  int64_t* const none = tide__scratch_alloc(&assign->scratch, sections, sizeof *none);
  assign->has_loads = assign_can_sum_up(assign, words);
  for (uint32_t i = 0; i < assign->pool_count && assign->has_loads && !assign->scratch.is_short; i++) {
    int64_t* const tree = tide__scratch_alloc(&assign->scratch, words, sizeof *tree);
    tide__segment_tree_init(&assign->loads[i], tree, sections);
    if (tree != NULL) tide__segment_tree_fill(&assign->loads[i], none, sections);
  }
  if (assign->scratch.is_short) return assign_no_memory(assign);
  for (size_t i = 0; i < items; i++) assign->boxes[i] = UINT32_MAX;
  for (uint32_t i = 0; i < assign->all.count; i++) assign->boxes[assign->all.boxes[i].item] = i;
  return TIDE_OK;
}

void tide__assign_all(tide__assign* assign, uint32_t pool) {
  for (uint32_t i = 0; i < assign->free_count; i++) assign->pools[assign->free[i]] = pool;
}

// The number of ways to distribute the free items; 0: too many.
static uint32_t assign_count_ways(const tide__assign* assign) {
  uint64_t ways = 1;
  for (uint32_t i = 0; i < assign->free_count; i++) {
    ways *= assign->pool_count;
    if (ways > ASSIGN_WAYS) return 0;
  }
  return (uint32_t)ways;
}

// Assigns the free items to the pools given by the digits of `way`; false if one has no room there.
static bool assign_by_digits(tide__assign* assign, uint32_t way) {
  for (uint32_t i = 0; i < assign->free_count; i++) {
    const uint32_t pool = way % assign->pool_count;
    way /= assign->pool_count;
    if (!assign_has_room(assign, assign->free[i], pool)) {
      while (i-- > 0) assign_add(assign, assign->free[i], assign->pools[assign->free[i]], false);
      return false;
    }
    assign_add(assign, assign->free[i], pool, true);
  }
  return true;
}

// Takes the items in order of size with random changes. Each goes to the first pool with room, starting at
// a random one.
static void assign_by_chance(tide__assign* assign, uint64_t state) {
  for (uint32_t i = 0; i < assign->free_count; i++) {
    const uint64_t random = tide__random_next(&state);
    const uint32_t swapped = i + (uint32_t)((random >> 40) % 8);
    if (swapped < assign->free_count) {
      const uint32_t item = assign->free[i];
      assign->free[i] = assign->free[swapped];
      assign->free[swapped] = item;
    }
    const uint32_t item = assign->free[i];
    const uint32_t from = random >> 60 < 8 ? 0 : (uint32_t)((random >> 20) % assign->pool_count);
    uint32_t pool = assign_find(assign, item, from);
    if (pool == assign->pool_count) pool = assign_find(assign, item, 0);
    assign_add(assign, item, pool < assign->pool_count ? pool : assign->pool_count - 1, true);
  }
}

bool tide__assign_again(tide__assign* assign, uint32_t way, bool* out_all) {
  *out_all = false;
  for (uint32_t i = 0; i < assign->free_count; i++) {
    assign_add(assign, assign->free[i], assign->pools[assign->free[i]], false);
  }
  if (assign->ways == 0) {
    assign_by_chance(assign, way);
    return way < ASSIGN_SHUFFLES;
  }
  while (assign->next_way < assign->ways) {
    if (assign_by_digits(assign, assign->next_way++)) return true;
  }
  *out_all = true;
  return false;
}

static tide_status assign_choose(tide__assign* assign) {
  const size_t count = assign->items->count;
  tide__keyed* const keys = tide__scratch_alloc(&assign->scratch, count, sizeof *keys);
  tide__keyed* const spare = tide__scratch_alloc(&assign->scratch, count, sizeof *spare);
  if (assign->scratch.is_short) return assign_no_memory(assign);
  size_t free = 0;
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t pool = assign->items->items[i].pool;
    if (pool != TIDE_PLAN_ANY_POOL) {
      assign_add(assign, i, pool, true);
      continue;
    }
    uint64_t area = 0;
    const uint32_t box = assign->boxes[i];
    if (box != UINT32_MAX && __builtin_mul_overflow((uint64_t)assign->all.boxes[box].height,
                                                    assign->all.boxes[box].duration, &area)) {
      area = UINT64_MAX;
    }
    keys[free++] = (tide__keyed){ ~area, i };
  }
  tide__radix_sort(keys, spare, free);
  for (size_t i = 0; i < free; i++) {
    const uint32_t item = keys[i].value;
    assign->free[assign->free_count++] = item;
    const uint32_t pool = assign_find(assign, item, 0);
    // An item without room goes to the last pool, whose solver reports it.
    assign_add(assign, item, pool < assign->pool_count ? pool : assign->pool_count - 1, true);
  }
  assign->ways = assign_count_ways(assign);
  return TIDE_OK;
}

// Reasons that hold for every assignment: a buffer larger than any pool, or a load larger than all pools
// together.
static void assign_prove(tide__assign* assign) {
  uint64_t total = 0;
  uint64_t largest = 0;
  for (uint32_t i = 0; i < assign->pool_count; i++) {
    const uint64_t capacity = tide__assign_capacity(assign, i);
    if (capacity > largest) largest = capacity;
    if (__builtin_add_overflow(total, capacity, &total)) total = UINT64_MAX;
  }
  for (uint32_t i = 0; i < assign->all.count; i++) {
    const tide__box* const box = &assign->all.boxes[i];
    if ((uint64_t)box->height <= largest) continue;
    assign->proof =
        (tide_plan_proof){ .reason = TIDE_PLAN_BUFFER, .buffer = assign->items->items[box->item].buffer };
    return;
  }
  if ((uint64_t)assign->all.held > total) {
    assign->proof = (tide_plan_proof){ .reason = TIDE_PLAN_LOAD, .instant = assign->all.held_at };
  }
}

tide_status tide__assign_init(tide__assign* assign, const tide__items* items,
                              const tide_plan_problem* problem, const tide_heap* heap) {
  *assign = (tide__assign){ .items = items, .problem = problem };
  tide__scratch_init(&assign->scratch, heap);
  assign->pool_count = problem->pools > 0 ? (uint32_t)problem->pools : 1;
  assign->pools = tide__scratch_alloc(&assign->scratch, items->count, sizeof *assign->pools);
  assign->list = tide__scratch_alloc(&assign->scratch, items->count, sizeof *assign->list);
  assign->first =
      tide__scratch_alloc(&assign->scratch, (size_t)assign->pool_count + 1, sizeof *assign->first);
  if (assign->scratch.is_short) return assign_no_memory(assign);
  for (size_t i = 0; i < items->count; i++) {
    assign->list[i] = (uint32_t)i;
    assign->is_open |= items->items[i].pool == TIDE_PLAN_ANY_POOL && assign->pool_count > 1;
  }
  if (!assign->is_open) {
    for (uint32_t i = 0; i < items->count; i++) {
      const uint32_t pool = items->items[i].pool;
      assign->pools[i] = pool == TIDE_PLAN_ANY_POOL ? 0 : pool;
    }
    return TIDE_OK;
  }
  TIDE_TRY(assign_open(assign, heap));
  assign_prove(assign);
  return assign_choose(assign);
}

void tide__assign_fini(tide__assign* assign) {
  if (assign->is_open) tide__model_fini(&assign->all);
  tide__scratch_fini(&assign->scratch);
}
