// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The skyline over the sections is a list of runs of equal height, and a heap gives the lowest. Of all boxes
// that lie wholly in that run the one with the highest priority is placed on it; where there is none, the run
// is raised to its lower neighbour. No box is ever compared with another.
//
// The boxes that fit into a run are found by classes of their width, by powers of two. In a class boxes
// stand by their first section under a tree that knows the highest priority and the lowest end below each
// node. A box of a class that begins early enough fits whatever its width; only for those that begin near
// the right wall the tree is asked for ends. A run with few beginnings is looked through without the trees.
// What is left free below a raised run makes its sections higher in the end, so a pass knows early that it
// will exceed its limit, and where. A pass is O(n log n), nearly; about 150 bytes a box.
#include "plan/greedy.h"

#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "plan/radix.h"
#include "plan/waste.h"

#define GREEDY_CLASSES 32u
#define GREEDY_FEW 160u    // beginnings that are looked through
#define GREEDY_WALL 64u    // boxes at a wall that are looked at for the bonus
#define GREEDY_POLL 1024u  // placements between two questions for the budget
#define GREEDY_NONE UINT32_MAX

#define GREEDY_GONE (-1e30f)  // the priority of a box that has been placed

typedef struct greedy_class {
  uint32_t first;     // its boxes in `members`
  uint32_t count;     // of them
  uint32_t leaves;    // a power of two, or 0 if there are no boxes
  float* highest;     // of pile; by node, the root is 1
  uint32_t* soonest;  // of pile; the lowest end below a node
} greedy_class;

typedef struct greedy_run {
  int64_t height;
  uint32_t first;
  uint32_t last;
  uint32_t before;  // GREEDY_NONE at the left end
  uint32_t after;   // GREEDY_NONE at the right end; of a run not in use, the next such
  bool is_used;
} greedy_run;

typedef struct greedy_entry {
  int64_t height;
  uint32_t first;
  uint32_t run;
} greedy_entry;

struct tide__greedy {
  tide__pile pile;
  const tide__model* model;  // borrowed
  const tide__part* part;    // borrowed
  uint32_t count;
  uint32_t sections;
  // Boxes by their number in the part; they are sorted by first, then last. Sections count from the part's.
  uint32_t* first;
  uint32_t* last;
  uint32_t* starts;      // by section, and one more: the first box that begins there or later
  uint32_t* by_last;     // boxes by last, then by falling first
  uint32_t* ends;        // by section, and one more: the first of by_last that ends there or later
  uint32_t* end_place;   // by box: where it stands in by_last
  uint32_t* next_start;  // of boxes, and
  uint32_t* next_end;    // of by_last: the next that has not been placed, or a step to it
  uint8_t* class_of;
  uint32_t* leaf_of;  // by box: where it stands in its class
  uint32_t* members;  // boxes by class
  greedy_class classes[GREEDY_CLASSES];
  int64_t* loads;  // by section: the heights of all its boxes
  bool has_loads;  // they do not overflow
  // Of one pass
  float* priority;
  float bonus;
  greedy_run* runs;
  uint32_t free_run;
  greedy_entry* heap;
  size_t heap_count;
  tide__waste waste;
  bool has_waste;  // it is known in this pass
};

// ---------------------------------------------------------------------------------------------------
// What stays the same in every pass

static unsigned greedy_log2(uint32_t n) { return 31u - (unsigned)__builtin_clz(n); }

static uint32_t greedy_leaves(uint32_t count) {
  uint32_t leaves = 1;
  while (leaves < count) leaves *= 2;
  return leaves;
}

static void greedy_fill_starts(tide__greedy* greedy) {
  uint32_t box = 0;
  for (uint32_t section = 0; section <= greedy->sections; section++) {
    while (box < greedy->count && greedy->first[box] < section) box++;
    greedy->starts[section] = box;
  }
}

static tide_status greedy_fill_ends(tide__greedy* greedy) {
  tide__pile work;
  tide__pile_init(&work, greedy->pile.heap);
  tide__keyed* const keys = tide__pile_alloc(&work, greedy->count, sizeof *keys);
  tide__keyed* const spare = tide__pile_alloc(&work, greedy->count, sizeof *spare);
  if (work.is_short) {
    tide__pile_fini(&work);
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory to sort %u buffers", (unsigned)greedy->count);
  }
  for (uint32_t i = 0; i < greedy->count; i++) {
    keys[i] = (tide__keyed){ (uint64_t)greedy->last[i] << 32 | (UINT32_MAX - greedy->first[i]), i };
  }
  tide__radix_sort(keys, spare, greedy->count);
  for (uint32_t i = 0; i < greedy->count; i++) {
    greedy->by_last[i] = keys[i].value;
    greedy->end_place[keys[i].value] = i;
  }
  uint32_t place = 0;
  for (uint32_t section = 0; section <= greedy->sections; section++) {
    while (place < greedy->count && greedy->last[greedy->by_last[place]] < section) place++;
    greedy->ends[section] = place;
  }
  tide__pile_fini(&work);
  return TIDE_OK;
}

static void greedy_fill_classes(tide__greedy* greedy) {
  for (uint32_t i = 0; i < greedy->count; i++) {
    greedy->class_of[i] = (uint8_t)greedy_log2(greedy->last[i] - greedy->first[i]);
    greedy->classes[greedy->class_of[i]].count++;
  }
  uint32_t first = 0;
  for (unsigned i = 0; i < GREEDY_CLASSES; i++) {
    greedy_class* const class = &greedy->classes[i];
    class->first = first;
    first += class->count;
    if (class->count == 0) continue;
    class->leaves = greedy_leaves(class->count);
    class->highest = tide__pile_alloc(&greedy->pile, (size_t) class->leaves * 2, sizeof *class->highest);
    class->soonest = tide__pile_alloc(&greedy->pile, (size_t) class->leaves * 2, sizeof *class->soonest);
    class->count = 0;
  }
  for (uint32_t i = 0; i < greedy->count; i++) {
    greedy_class* const class = &greedy->classes[greedy->class_of[i]];
    greedy->leaf_of[i] = class->count;
    greedy->members[class->first + class->count++] = i;
  }
}

// Sums up the heights, unless they might overflow with what a pass leaves free.
static void greedy_fill_loads(tide__greedy* greedy) {
  const tide__box* const boxes = &greedy->model->boxes[greedy->part->first_box];
  uint64_t total = 0;
  for (uint32_t i = 0; i < greedy->count; i++) {
    if (!tide__add(total, (uint64_t)boxes[i].height, &total) || total > INT64_MAX / 4) return;
  }
  for (uint32_t i = 0; i < greedy->count; i++) {
    greedy->loads[greedy->first[i]] += boxes[i].height;
    greedy->loads[greedy->last[i]] -= boxes[i].height;
  }
  for (uint32_t i = 1; i <= greedy->sections; i++) greedy->loads[i] += greedy->loads[i - 1];
  greedy->has_loads = true;
}

static void greedy_alloc(tide__greedy* greedy) {
  const size_t count = greedy->count;
  const size_t sections = (size_t)greedy->sections + 2;
  tide__pile* const pile = &greedy->pile;
  greedy->first = tide__pile_alloc(pile, count, sizeof *greedy->first);
  greedy->last = tide__pile_alloc(pile, count, sizeof *greedy->last);
  greedy->starts = tide__pile_alloc(pile, sections, sizeof *greedy->starts);
  greedy->by_last = tide__pile_alloc(pile, count, sizeof *greedy->by_last);
  greedy->ends = tide__pile_alloc(pile, sections, sizeof *greedy->ends);
  greedy->end_place = tide__pile_alloc(pile, count, sizeof *greedy->end_place);
  greedy->next_start = tide__pile_alloc(pile, count + 1, sizeof *greedy->next_start);
  greedy->next_end = tide__pile_alloc(pile, count + 1, sizeof *greedy->next_end);
  greedy->class_of = tide__pile_alloc(pile, count, sizeof *greedy->class_of);
  greedy->leaf_of = tide__pile_alloc(pile, count, sizeof *greedy->leaf_of);
  greedy->members = tide__pile_alloc(pile, count, sizeof *greedy->members);
  greedy->priority = tide__pile_alloc(pile, count, sizeof *greedy->priority);
  // A placement makes three runs of one, and a run that is raised stays one.
  greedy->runs = tide__pile_alloc(pile, 2 * count + 2, sizeof *greedy->runs);
  greedy->heap = tide__pile_alloc(pile, 6 * count + 6, sizeof *greedy->heap);
  const uint32_t leaves = greedy_leaves(greedy->sections);
  greedy->loads = tide__pile_alloc(pile, sections, sizeof *greedy->loads);
  greedy->waste = (tide__waste){ .highest = tide__pile_alloc(pile, (size_t)leaves * 2, sizeof(int64_t)),
                                 .added = tide__pile_alloc(pile, leaves, sizeof(int64_t)),
                                 .leaves = leaves };
}

tide_status tide__greedy_new(const tide__model* model, const tide__part* part, const tide_heap* heap,
                             tide__greedy** out) {
  *out = NULL;
  tide__greedy* const greedy = tide__heap_alloc(heap, 1, sizeof *greedy);
  if (greedy == NULL) return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for a pass");
  *greedy = (tide__greedy){ .model = model,
                            .part = part,
                            .count = part->last_box - part->first_box,
                            .sections = part->last_section - part->first_section };
  tide__pile_init(&greedy->pile, heap);
  greedy_alloc(greedy);
  if (!greedy->pile.is_short) {
    for (uint32_t i = 0; i < greedy->count; i++) {
      greedy->first[i] = model->boxes[part->first_box + i].first - part->first_section;
      greedy->last[i] = model->boxes[part->first_box + i].last - part->first_section;
    }
    greedy_fill_starts(greedy);
    greedy_fill_classes(greedy);
    greedy_fill_loads(greedy);
  }
  if (greedy->pile.is_short || greedy_fill_ends(greedy) != TIDE_OK) {
    const unsigned count = greedy->count;
    tide__greedy_free(greedy);
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for a pass over %u buffers", count);
  }
  *out = greedy;
  return TIDE_OK;
}

void tide__greedy_free(tide__greedy* greedy) {
  if (greedy == NULL) return;
  const tide_heap* const heap = greedy->pile.heap;
  tide__pile_fini(&greedy->pile);
  tide__heap_release(heap, greedy, 1, sizeof *greedy);
}

// ---------------------------------------------------------------------------------------------------
// Boxes that wait

static void greedy_pull(greedy_class* class, uint32_t node) {
  const float left = class->highest[2 * node];
  const float right = class->highest[2 * node + 1];
  class->highest[node] = left > right ? left : right;
  const uint32_t early = class->soonest[2 * node];
  const uint32_t late = class->soonest[2 * node + 1];
  class->soonest[node] = early < late ? early : late;
}

static void greedy_plant(tide__greedy* greedy, greedy_class* class) {
  for (uint32_t i = 0; i < class->leaves; i++) {
    const bool is_box = i < class->count;
    const uint32_t box = is_box ? greedy->members[class->first + i] : 0;
    class->highest[class->leaves + i] = is_box ? greedy->priority[box] : GREEDY_GONE;
    class->soonest[class->leaves + i] = is_box ? greedy->last[box] : UINT32_MAX;
  }
  for (uint32_t node = class->leaves; node-- > 1;) greedy_pull(class, node);
}

static void greedy_remove(tide__greedy* greedy, uint32_t box) {
  greedy_class* const class = &greedy->classes[greedy->class_of[box]];
  uint32_t node = class->leaves + greedy->leaf_of[box];
  class->highest[node] = GREEDY_GONE;
  class->soonest[node] = UINT32_MAX;
  for (node /= 2; node > 0; node /= 2) greedy_pull(class, node);
  greedy->priority[box] = GREEDY_GONE;
  greedy->next_start[box] = box + 1;
  greedy->next_end[greedy->end_place[box]] = greedy->end_place[box] + 1;
}

static uint32_t greedy_skip(uint32_t* next, uint32_t at) {
  while (next[at] != at) {
    next[at] = next[next[at]];
    at = next[at];
  }
  return at;
}

typedef struct greedy_choice {
  float priority;
  uint32_t box;  // GREEDY_NONE
} greedy_choice;

static void greedy_consider(greedy_choice* best, float priority, uint32_t box) {
  if (priority <= best->priority) return;
  *best = (greedy_choice){ priority, box };
}

// Boxes that touch the left wall, then those that touch the right one.
static void greedy_search_walls(tide__greedy* greedy, uint32_t left, uint32_t right, greedy_choice* best) {
  uint32_t at = greedy_skip(greedy->next_start, greedy->starts[left]);
  for (unsigned i = 0; i < GREEDY_WALL && at < greedy->starts[left + 1]; i++) {
    if (greedy->last[at] > right) break;
    const float both = greedy->last[at] == right ? greedy->bonus : 0;
    greedy_consider(best, greedy->priority[at] + greedy->bonus + both, at);
    at = greedy_skip(greedy->next_start, at + 1);
  }
  at = greedy_skip(greedy->next_end, greedy->ends[right]);
  const uint32_t behind = right < greedy->sections ? greedy->ends[right + 1] : greedy->count;
  for (unsigned i = 0; i < GREEDY_WALL && at < behind; i++) {
    const uint32_t box = greedy->by_last[at];
    if (greedy->first[box] < left) break;
    const float both = greedy->first[box] == left ? greedy->bonus : 0;
    greedy_consider(best, greedy->priority[box] + greedy->bonus + both, box);
    at = greedy_skip(greedy->next_end, at + 1);
  }
}

typedef struct greedy_query {
  const greedy_class* class;
  uint32_t from;   // leaves
  uint32_t to;     // not included
  uint32_t right;  // no box may end later
  float priority;  // to be exceeded
  uint32_t leaf;   // of the best so far
} greedy_query;

// Looks below `node`, whose leaves are [low, high), at the more promising side first.
static void greedy_descend(greedy_query* query, uint32_t node, uint32_t low, uint32_t high) {
  const greedy_class* const class = query->class;
  if (low >= query->to || high <= query->from) return;
  if (class->soonest[node] > query->right || class->highest[node] <= query->priority) return;
  if (node >= class->leaves) {
    query->priority = class->highest[node];
    query->leaf = low;
    return;
  }
  const uint32_t middle = low + (high - low) / 2;
  const bool left_first = class->highest[2 * node] >= class->highest[2 * node + 1];
  if (left_first) greedy_descend(query, 2 * node, low, middle);
  greedy_descend(query, 2 * node + 1, middle, high);
  if (!left_first) greedy_descend(query, 2 * node, low, middle);
}

// The first leaf of a class, from `leaf` on, whose box begins at `section` or later.
static uint32_t greedy_leaf_from(const tide__greedy* greedy, const greedy_class* class, uint32_t leaf,
                                 uint32_t section) {
  const uint32_t box = section > greedy->sections ? greedy->count : greedy->starts[section];
  uint32_t low = leaf;
  uint32_t high = class->count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (greedy->members[class->first + middle] < box) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static void greedy_search_class(const tide__greedy* greedy, unsigned index, uint32_t left, uint32_t right,
                                greedy_choice* best) {
  const greedy_class* const class = &greedy->classes[index];
  if (class->count == 0 || class->highest[1] <= best->priority) return;
  const uint32_t narrowest = (uint32_t)1 << index;
  // Boxes that begin before `sure` fit with any width of the class.
  const uint32_t sure = right - left >= 2 * narrowest ? right - 2 * narrowest + 1 : left;
  const uint32_t from = greedy_leaf_from(greedy, class, 0, left);
  const uint32_t middle = greedy_leaf_from(greedy, class, from, sure);
  const uint32_t to = greedy_leaf_from(greedy, class, middle, right - narrowest + 1);
  greedy_query query = { class, from, middle, UINT32_MAX - 1, best->priority, GREEDY_NONE };
  if (from < middle) greedy_descend(&query, 1, 0, class->leaves);
  query.from = middle;
  query.to = to;
  query.right = right;
  if (middle < to) greedy_descend(&query, 1, 0, class->leaves);
  if (query.leaf != GREEDY_NONE) {
    greedy_consider(best, query.priority, greedy->members[class->first + query.leaf]);
  }
}

// The best box that lies within the sections [left, right), or GREEDY_NONE.
static uint32_t greedy_choose(tide__greedy* greedy, uint32_t left, uint32_t right) {
  greedy_choice best = { GREEDY_GONE / 2, GREEDY_NONE };
  if (greedy->bonus > 0) greedy_search_walls(greedy, left, right, &best);
  const uint32_t from = greedy->starts[left];
  const uint32_t to = greedy->starts[right];
  if (to - from > GREEDY_FEW) {
    for (unsigned index = greedy_log2(right - left) + 1; index-- > 0;) {
      greedy_search_class(greedy, index, left, right, &best);
    }
    return best.box;
  }
  for (uint32_t box = from; box < to; box++) {
    if (greedy->last[box] <= right) greedy_consider(&best, greedy->priority[box], box);
  }
  return best.box;
}

// ---------------------------------------------------------------------------------------------------
// The skyline

static bool greedy_is_lower(const greedy_entry* a, const greedy_entry* b) {
  return a->height != b->height ? a->height < b->height : a->first < b->first;
}

static void greedy_push(tide__greedy* greedy, uint32_t run) {
  const greedy_entry entry = { greedy->runs[run].height, greedy->runs[run].first, run };
  size_t at = greedy->heap_count++;
  while (at > 0 && greedy_is_lower(&entry, &greedy->heap[(at - 1) / 2])) {
    greedy->heap[at] = greedy->heap[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  greedy->heap[at] = entry;
}

static greedy_entry greedy_pop(tide__greedy* greedy) {
  const greedy_entry lowest = greedy->heap[0];
  const greedy_entry moved = greedy->heap[--greedy->heap_count];
  size_t at = 0;
  for (;;) {
    size_t child = 2 * at + 1;
    if (child >= greedy->heap_count) break;
    if (child + 1 < greedy->heap_count && greedy_is_lower(&greedy->heap[child + 1], &greedy->heap[child])) {
      child++;
    }
    if (!greedy_is_lower(&greedy->heap[child], &moved)) break;
    greedy->heap[at] = greedy->heap[child];
    at = child;
  }
  greedy->heap[at] = moved;
  return lowest;
}

static uint32_t greedy_run_new(tide__greedy* greedy, greedy_run run) {
  const uint32_t index = greedy->free_run;
  greedy->free_run = greedy->runs[index].after;
  greedy->runs[index] = run;
  return index;
}

static void greedy_run_drop(tide__greedy* greedy, uint32_t index) {
  greedy->runs[index].is_used = false;
  greedy->runs[index].after = greedy->free_run;
  greedy->free_run = index;
}

static void greedy_link(tide__greedy* greedy, uint32_t before, uint32_t after) {
  if (before != GREEDY_NONE) greedy->runs[before].after = after;
  if (after != GREEDY_NONE) greedy->runs[after].before = before;
}

// Takes neighbours of the same height into the run.
static void greedy_merge(tide__greedy* greedy, uint32_t index) {
  greedy_run* const run = &greedy->runs[index];
  while (run->after != GREEDY_NONE && greedy->runs[run->after].height == run->height) {
    const uint32_t taken = run->after;
    run->last = greedy->runs[taken].last;
    greedy_link(greedy, index, greedy->runs[taken].after);
    greedy_run_drop(greedy, taken);
  }
  while (run->before != GREEDY_NONE && greedy->runs[run->before].height == run->height) {
    const uint32_t taken = run->before;
    run->first = greedy->runs[taken].first;
    greedy_link(greedy, greedy->runs[taken].before, index);
    greedy_run_drop(greedy, taken);
  }
}

// Raises a run on which nothing fits to its lower neighbour; false if it has none.
static bool greedy_raise(tide__greedy* greedy, uint32_t index) {
  greedy_run* const run = &greedy->runs[index];
  int64_t height = INT64_MAX;
  if (run->before != GREEDY_NONE) height = greedy->runs[run->before].height;
  if (run->after != GREEDY_NONE && greedy->runs[run->after].height < height) {
    height = greedy->runs[run->after].height;
  }
  if (height == INT64_MAX) return false;
  if (greedy->has_waste) tide__waste_add(&greedy->waste, run->first, run->last, height - run->height);
  run->height = height;
  greedy_merge(greedy, index);
  greedy_push(greedy, index);
  return true;
}

// Cuts the run at the box and puts the middle at `top`.
static void greedy_cover(tide__greedy* greedy, uint32_t index, uint32_t first, uint32_t last, int64_t top) {
  const greedy_run run = greedy->runs[index];
  greedy_run_drop(greedy, index);
  uint32_t before = run.before;
  const greedy_run cuts[3] = { { run.height, run.first, first, GREEDY_NONE, GREEDY_NONE, true },
                               { top, first, last, GREEDY_NONE, GREEDY_NONE, true },
                               { run.height, last, run.last, GREEDY_NONE, GREEDY_NONE, true } };
  for (unsigned i = 0; i < 3; i++) {
    if (cuts[i].first == cuts[i].last) continue;
    const uint32_t made = greedy_run_new(greedy, cuts[i]);
    greedy_link(greedy, before, made);
    greedy_push(greedy, made);
    before = made;
  }
  greedy_link(greedy, before, run.after);
}

// ---------------------------------------------------------------------------------------------------

static void greedy_begin(tide__greedy* greedy, const float* priorities, float bonus, int64_t limit) {
  memcpy(greedy->priority, priorities, greedy->count * sizeof *greedy->priority);
  greedy->bonus = bonus;
  for (unsigned i = 0; i < GREEDY_CLASSES; i++) {
    if (greedy->classes[i].count > 0) greedy_plant(greedy, &greedy->classes[i]);
  }
  for (uint32_t i = 0; i <= greedy->count; i++) greedy->next_start[i] = greedy->next_end[i] = i;
  const uint32_t runs = 2 * greedy->count + 2;
  for (uint32_t i = 0; i < runs; i++) greedy->runs[i] = (greedy_run){ .after = i + 1 };
  greedy->free_run = 0;
  greedy->heap_count = 0;
  greedy->has_waste = greedy->has_loads && limit < INT64_MAX / 2;
  if (greedy->has_waste) tide__waste_begin(&greedy->waste, greedy->loads, greedy->sections);
  greedy_push(greedy,
              greedy_run_new(greedy, (greedy_run){ 0, 0, greedy->sections, GREEDY_NONE, GREEDY_NONE, true }));
}

// Puts the box on the run; false if it ends above the limit.
static bool greedy_place(tide__greedy* greedy, uint32_t index, uint32_t number, int64_t limit,
                         int64_t* offsets) {
  const tide__box* const box = &greedy->model->boxes[greedy->part->first_box + number];
  const int64_t floor = greedy->runs[index].height;
  const int64_t offset = tide__align_height(floor, box->alignment);
  if (offset > limit || box->height > limit - offset) return false;
  if (offset > floor && greedy->has_waste) {
    tide__waste_add(&greedy->waste, greedy->first[number], greedy->last[number], offset - floor);
  }
  offsets[number] = offset;
  greedy_remove(greedy, number);
  greedy_cover(greedy, index, greedy->first[number], greedy->last[number], offset + box->height);
  return true;
}

bool tide__greedy_is_left(const tide__greedy* greedy, uint32_t box) {
  return greedy->priority[box] != GREEDY_GONE;
}

tide__pass tide__greedy_run(tide__greedy* greedy, const float* priorities, float bonus, int64_t limit,
                            const tide__watch* watch, int64_t* offsets) {
  tide__pass pass = { INT64_MAX, UINT32_MAX };
  greedy_begin(greedy, priorities, bonus, limit);
  const tide__box* const boxes = &greedy->model->boxes[greedy->part->first_box];
  int64_t peak = 0;
  for (uint32_t left = greedy->count; left > 0;) {
    const greedy_entry lowest = greedy_pop(greedy);
    greedy_run* const run = &greedy->runs[lowest.run];
    if (!run->is_used || run->height != lowest.height) continue;
    greedy_merge(greedy, lowest.run);
    const uint32_t box = greedy_choose(greedy, run->first, run->last);
    if (box == GREEDY_NONE ? !greedy_raise(greedy, lowest.run)
                           : !greedy_place(greedy, lowest.run, box, limit, offsets)) {
      return pass;
    }
    if (greedy->has_waste && tide__waste_highest(&greedy->waste) > limit) {
      pass.blamed = tide__waste_section(&greedy->waste);
      return pass;
    }
    if (box == GREEDY_NONE) continue;
    const int64_t end = offsets[box] + boxes[box].height;
    peak = end > peak ? end : peak;
    left--;
    if (left % GREEDY_POLL == 0 && watch != NULL && tide__watch_is_over(watch)) return pass;
  }
  pass.height = peak;
  return pass;
}
