// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Storage groups. Values come in the order of time. A value that begins takes a free group or a new one, and
// a value that has ended frees its group. The group is freed after the last instant of the value, so that a
// node never writes over what it reads. A group is as large as the largest value that was ever in it.
//
// LIFO takes the group that was freed last, whatever the sizes. PyTorch's static runtime does so, and frees
// the groups of one node in the order of their values. Best fit takes the smallest free group that is large
// enough, or else the largest, which then grows. Cost: O(n log n).
#include <stdlib.h>

#include "base/error.h"
#include "base/scratch.h"
#include "base/tree.h"
#include "graph/placements.h"

typedef struct group {
  tide__tree_node by_size;  // while it is free; key: bytes, tie: its number
  uint64_t bytes;
  uint64_t offset;
} group;

typedef struct groups_work {
  tide__scratch scratch;
  tide__placements* placements;
  group* groups;      // of scratch
  uint32_t* of;       // of scratch; the group of each placement
  uint32_t* free;     // of scratch; LIFO: free groups, the one freed last at the end
  uint32_t* leaving;  // of scratch; placements in the order in which they leave
  tide__tree sizes;   // otherwise: free groups by size
  size_t group_count;
  size_t free_count;
  bool is_lifo;
} groups_work;

// The order of leaving: by the last instant, then by value.
static int leaving_compare(const void* left, const void* right) {
  const tide__placement* const a = *(const tide__placement* const*)left;
  const tide__placement* const b = *(const tide__placement* const*)right;
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
  tide__placements* const placements = work->placements;
  size_t gone = 0;
  for (size_t i = 0; i < placements->count; i++) {
    const tide__placement* const placement = &placements->items[i];
    while (placements->items[work->leaving[gone]].end < placement->begin) {
      groups_give(work, work->of[work->leaving[gone++]]);
    }
    const uint32_t taken = groups_take(work, placement->bytes);
    work->of[i] = taken;
    if (work->groups[taken].bytes < placement->bytes) work->groups[taken].bytes = placement->bytes;
  }
}

static void groups_settle(groups_work* work) {
  uint64_t offset = 0;
  for (size_t i = 0; i < work->group_count; i++) {
    work->groups[i].offset = offset;
    offset += work->groups[i].bytes;
  }
  for (size_t i = 0; i < work->placements->count; i++) {
    work->placements->items[i].offset = work->groups[work->of[i]].offset;
    work->placements->items[i].room = work->groups[work->of[i]].bytes;
  }
}

static void groups_sort_leaving(groups_work* work, const tide__placement** order) {
  tide__placements* const placements = work->placements;
  for (size_t i = 0; i < placements->count; i++) order[i] = &placements->items[i];
  qsort(order, placements->count, sizeof *order, leaving_compare);
  for (size_t i = 0; i < placements->count; i++) work->leaving[i] = (uint32_t)(order[i] - placements->items);
}

tide_status tide__groups_place(tide__placements* placements, bool is_lifo) {
  if (placements->count == 0) return TIDE_OK;
  const size_t count = placements->count;
  groups_work work = { .placements = placements, .is_lifo = is_lifo };
  tide__scratch_init(&work.scratch, placements->heap);
  work.groups = tide__scratch_alloc(&work.scratch, count, sizeof *work.groups);
  work.of = tide__scratch_alloc(&work.scratch, count, sizeof *work.of);
  work.free = tide__scratch_alloc(&work.scratch, count, sizeof *work.free);
  work.leaving = tide__scratch_alloc(&work.scratch, count, sizeof *work.leaving);
  const tide__placement** const order = tide__scratch_alloc(&work.scratch, count, sizeof *order);
  const bool has_room = !work.scratch.is_short;
  if (has_room) {
    groups_sort_leaving(&work, order);
    groups_play(&work);
    groups_settle(&work);
  }
  tide__scratch_fini(&work.scratch);
  TIDE_REQUIRE(has_room, TIDE_ERR_NO_MEMORY, "no memory to group %zu values", placements->count);
  return TIDE_OK;
}
