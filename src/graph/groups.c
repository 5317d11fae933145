// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Storage groups. Values are met in the order of time; one whose life is over gives its group back, and one
// that begins takes a free group or a new one. A value is given back after its last instant, so that a node
// never writes over what it reads. A group is as large as the largest value that was ever in it.
//
// LIFO takes the group that was given back last, whatever the sizes: as PyTorch's static runtime does, with
// groups given back at one node in the order of their values. Otherwise the smallest free group that is
// large enough is taken, or the largest, which then grows. Cost: O(n log n), of the second O(n) times the
// free groups.
#include <stdlib.h>

#include "base/error.h"
#include "base/tree.h"
#include "graph/places.h"

typedef struct group {
  tide__tree_node by_size;  // while it is free; key: bytes, tie: its number
  uint64_t bytes;
  uint64_t offset;
} group;

typedef struct groups_work {
  tide__lodgers* lodgers;
  group* groups;      // owned
  uint32_t* of;       // owned; the group of each lodger
  uint32_t* free;     // owned; LIFO: free groups, the one given back last at the end
  uint32_t* leaving;  // owned; lodgers in the order in which they leave
  tide__tree sizes;   // otherwise: free groups by size
  size_t group_count;
  size_t free_count;
  bool is_lifo;
} groups_work;

// The order of leaving: by the last instant, then by value.
static int leaving_compare(const void* left, const void* right) {
  const tide__lodger* const a = *(const tide__lodger* const*)left;
  const tide__lodger* const b = *(const tide__lodger* const*)right;
  if (a->end != b->end) return a->end < b->end ? -1 : 1;
  return a->value < b->value ? -1 : a->value > b->value;
}

static void groups_give(groups_work* work, uint32_t number) {
  if (work->is_lifo) {
    work->free[work->free_count++] = number;
    return;
  }
  work->groups[number].by_size = (tide__tree_node){ .key = work->groups[number].bytes, .tie = number };
  tide__tree_insert(&work->sizes, &work->groups[number].by_size);
}

static uint32_t groups_take_fitting(groups_work* work, uint64_t bytes) {
  tide__tree_node* node = tide__tree_ceiling(&work->sizes, bytes);
  if (node == NULL) node = tide__tree_floor(&work->sizes, UINT64_MAX);
  if (node == NULL) return (uint32_t)work->group_count++;
  tide__tree_remove(&work->sizes, node);
  return (uint32_t)node->tie;
}

static uint32_t groups_take(groups_work* work, uint64_t bytes) {
  if (!work->is_lifo) return groups_take_fitting(work, bytes);
  return work->free_count != 0 ? work->free[--work->free_count] : (uint32_t)work->group_count++;
}

static void groups_play(groups_work* work) {
  tide__lodgers* const lodgers = work->lodgers;
  size_t gone = 0;
  for (size_t i = 0; i < lodgers->count; i++) {
    const tide__lodger* const lodger = &lodgers->items[i];
    while (lodgers->items[work->leaving[gone]].end < lodger->begin) {
      groups_give(work, work->of[work->leaving[gone++]]);
    }
    const uint32_t taken = groups_take(work, lodger->bytes);
    work->of[i] = taken;
    if (work->groups[taken].bytes < lodger->bytes) work->groups[taken].bytes = lodger->bytes;
  }
}

static void groups_settle(groups_work* work) {
  uint64_t offset = 0;
  for (size_t i = 0; i < work->group_count; i++) {
    work->groups[i].offset = offset;
    offset += work->groups[i].bytes;
  }
  for (size_t i = 0; i < work->lodgers->count; i++) {
    work->lodgers->items[i].offset = work->groups[work->of[i]].offset;
    work->lodgers->items[i].room = work->groups[work->of[i]].bytes;
  }
}

static bool groups_sort_leaving(groups_work* work) {
  tide__lodgers* const lodgers = work->lodgers;
  const tide__lodger** const order = tide__heap_alloc(lodgers->heap, lodgers->count, sizeof *order);
  if (order == NULL) return false;
  for (size_t i = 0; i < lodgers->count; i++) order[i] = &lodgers->items[i];
  qsort(order, lodgers->count, sizeof *order, leaving_compare);
  for (size_t i = 0; i < lodgers->count; i++) work->leaving[i] = (uint32_t)(order[i] - lodgers->items);
  tide__heap_release(lodgers->heap, order, lodgers->count, sizeof *order);
  return true;
}

static uint32_t* groups_table(const tide__lodgers* lodgers) {
  return tide__heap_alloc(lodgers->heap, lodgers->count, sizeof(uint32_t));
}

tide_status tide__groups_place(tide__lodgers* lodgers, bool is_lifo) {
  if (lodgers->count == 0) return TIDE_OK;
  groups_work work = { .lodgers = lodgers,
                       .is_lifo = is_lifo,
                       .groups = tide__heap_alloc(lodgers->heap, lodgers->count, sizeof(group)),
                       .of = groups_table(lodgers),
                       .free = groups_table(lodgers),
                       .leaving = groups_table(lodgers) };
  const bool has_room = work.groups != NULL && work.of != NULL && work.free != NULL && work.leaving != NULL &&
                        groups_sort_leaving(&work);
  if (has_room) {
    groups_play(&work);
    groups_settle(&work);
  }
  tide__heap_release(lodgers->heap, work.leaving, lodgers->count, sizeof *work.leaving);
  tide__heap_release(lodgers->heap, work.free, lodgers->count, sizeof *work.free);
  tide__heap_release(lodgers->heap, work.of, lodgers->count, sizeof *work.of);
  tide__heap_release(lodgers->heap, work.groups, lodgers->count, sizeof *work.groups);
  TIDE_REQUIRE(has_room, TIDE_ERR_NO_MEMORY, "no memory to group %zu values", lodgers->count);
  return TIDE_OK;
}
