// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The skyline over the sections is a list of runs of equal height. A run between two higher ones is a
// valley. Of the boxes that fit wholly into it, the one with the highest priority is placed on it. If there
// is none, the valley is raised to its lower neighbour. No box is ever compared with another.
//
// The order of valleys does not matter, because a box fits into one valley only. They are taken from a
// stack, the newest first, for locality.
//
// The space lost below a raised run adds to the final height of its sections. So a pass knows early which
// sections become critical, and that it will exceed its limit, and where. A pass is nearly O(n log n), with
// about 150 bytes per box.
#include "plan/greedy.h"

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/segment_tree.h"

#define GREEDY_POLL 1024u  // placements between two looks at the budget
#define GREEDY_NONE UINT32_MAX

typedef struct greedy_run {
  int64_t height;
  uint32_t first;
  uint32_t last;    // equal to first: unused
  uint32_t before;  // GREEDY_NONE at the left end
  uint32_t after;   // GREEDY_NONE at the right end; of an unused run, the next unused one
} greedy_run;

struct tide__greedy {
  tide__scratch scratch;
  const tide__box* boxes;  // borrowed; of the part
  uint32_t count;
  uint32_t sections;
  tide__waiting* waiting;  // owned
  int64_t* loads;          // of scratch; by section: the heights of all its boxes
  bool has_loads;          // they do not overflow
  // Of one pass
  greedy_run* runs;  // of scratch
  uint32_t free_run;
  uint32_t* stack;  // of scratch; runs that may be valleys
  size_t stack_count;
  // By section, a lower bound of its final height: all its boxes, and the space lost in it so far.
  tide__segment_tree bounds;  // its memory is of scratch
  bool has_bounds;            // they are kept in this pass
};

// ---------------------------------------------------------------------------------------------------
// Lifetime

// Sums up the heights, unless they might overflow together with the lost space.
static void greedy_fill_loads(tide__greedy* greedy) {
  uint64_t total = 0;
  for (uint32_t i = 0; i < greedy->count; i++) {
    if (!tide__add(total, (uint64_t)greedy->boxes[i].height, &total) || total > INT64_MAX / 4) return;
  }
  for (uint32_t i = 0; i < greedy->count; i++) {
    greedy->loads[tide__waiting_first(greedy->waiting, i)] += greedy->boxes[i].height;
    greedy->loads[tide__waiting_last(greedy->waiting, i)] -= greedy->boxes[i].height;
  }
  for (uint32_t i = 1; i <= greedy->sections; i++) greedy->loads[i] += greedy->loads[i - 1];
  greedy->has_loads = true;
}

static void greedy_alloc(tide__greedy* greedy) {
  tide__scratch* const scratch = &greedy->scratch;
  greedy->loads = tide__scratch_alloc(scratch, (size_t)greedy->sections + 1, sizeof *greedy->loads);
  const size_t words = tide__segment_tree_words(greedy->sections);
  int64_t* const tree = tide__scratch_alloc(scratch, words, sizeof *tree);
  tide__segment_tree_init(&greedy->bounds, tree, greedy->sections);
  // A placement makes three runs of one, and pushes at most these and the two beside them.
  greedy->runs = tide__scratch_alloc(scratch, 2 * (size_t)greedy->count + 2, sizeof *greedy->runs);
  greedy->stack = tide__scratch_alloc(scratch, 6 * (size_t)greedy->count + 6, sizeof *greedy->stack);
}

tide_status tide__greedy_new(const tide__model* model, const tide__part* part, const tide_heap* heap,
                             tide__greedy** out) {
  *out = NULL;
  tide__greedy* const greedy = tide__heap_alloc(heap, 1, sizeof *greedy);
  if (greedy == NULL) return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for a pass");
  greedy->boxes = &model->boxes[part->first_box];
  greedy->count = part->last_box - part->first_box;
  greedy->sections = part->last_section - part->first_section;
  tide__scratch_init(&greedy->scratch, heap);
  greedy_alloc(greedy);
  if (greedy->scratch.is_short || tide__waiting_new(model, part, heap, &greedy->waiting) != TIDE_OK) {
    const unsigned count = greedy->count;
    tide__greedy_free(greedy);
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for a pass over %u buffers", count);
  }
  greedy_fill_loads(greedy);
  *out = greedy;
  return TIDE_OK;
}

void tide__greedy_free(tide__greedy* greedy) {
  if (greedy == NULL) return;
  const tide_heap* const heap = greedy->scratch.heap;
  tide__waiting_free(greedy->waiting);
  tide__scratch_fini(&greedy->scratch);
  tide__heap_release(heap, greedy, 1, sizeof *greedy);
}

bool tide__greedy_is_left(const tide__greedy* greedy, uint32_t box) {
  return tide__waiting_has(greedy->waiting, box);
}

// ---------------------------------------------------------------------------------------------------
// The skyline

static uint32_t greedy_run_new(tide__greedy* greedy, greedy_run run) {
  const uint32_t index = greedy->free_run;
  greedy->free_run = greedy->runs[index].after;
  greedy->runs[index] = run;
  return index;
}

static void greedy_run_drop(tide__greedy* greedy, uint32_t index) {
  greedy->runs[index] = (greedy_run){ .after = greedy->free_run };
  greedy->free_run = index;
}

static void greedy_push(tide__greedy* greedy, uint32_t run) {
  if (run != GREEDY_NONE) greedy->stack[greedy->stack_count++] = run;
}

static void greedy_link(tide__greedy* greedy, uint32_t before, uint32_t after) {
  if (before != GREEDY_NONE) greedy->runs[before].after = after;
  if (after != GREEDY_NONE) greedy->runs[after].before = before;
}

// Merges neighbours of the same height into the run.
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

static int64_t greedy_wall(const tide__greedy* greedy, uint32_t beside, int64_t height) {
  return beside != GREEDY_NONE ? greedy->runs[beside].height - height : INT64_MAX;
}

// The valley of a run; false if a neighbour is lower. Then it comes again when that one has been raised.
static bool greedy_valley(const tide__greedy* greedy, uint32_t index, tide__valley* out) {
  const greedy_run* const run = &greedy->runs[index];
  *out = (tide__valley){ run->first, run->last, greedy_wall(greedy, run->before, run->height),
                         greedy_wall(greedy, run->after, run->height) };
  return out->left_wall > 0 && out->right_wall > 0;
}

static uint32_t greedy_choose(tide__greedy* greedy, const tide__valley* valley, int64_t critical) {
  if (greedy->has_bounds && critical < INT64_MAX) {
    const uint32_t section =
        tide__segment_tree_argmax_above(&greedy->bounds, valley->first, valley->last, critical);
    if (section != TIDE__SEGMENT_TREE_NONE) {
      const uint32_t box = tide__waiting_choose(greedy->waiting, valley, section);
      if (box != TIDE__WAITING_NONE) return box;
    }
  }
  return tide__waiting_choose(greedy->waiting, valley, TIDE__WAITING_NONE);
}

// Raises a valley on which nothing fits to its lower wall; false if it has none.
static bool greedy_raise(tide__greedy* greedy, uint32_t index, const tide__valley* valley) {
  const int64_t wall = valley->left_wall < valley->right_wall ? valley->left_wall : valley->right_wall;
  if (wall == INT64_MAX) return false;
  if (greedy->has_bounds) tide__segment_tree_add(&greedy->bounds, valley->first, valley->last, wall);
  greedy->runs[index].height += wall;
  greedy_push(greedy, index);
  return true;
}

// Splits the run at the box and raises the middle to `top`. The runs beside it may become valleys.
static void greedy_cover(tide__greedy* greedy, uint32_t index, uint32_t box, int64_t top) {
  greedy_run* const run = &greedy->runs[index];
  const greedy_run old = *run;
  run->height = top;
  run->first = tide__waiting_first(greedy->waiting, box);
  run->last = tide__waiting_last(greedy->waiting, box);
  uint32_t left = old.before;
  uint32_t right = old.after;
  if (run->first == old.first || run->last == old.last) {
    if (run->first == old.first) greedy_push(greedy, left);
    if (run->last == old.last) greedy_push(greedy, right);
    greedy_push(greedy, index);
  }
  if (run->last < old.last) {
    right =
        greedy_run_new(greedy, (greedy_run){ .height = old.height, .first = run->last, .last = old.last });
    greedy_link(greedy, right, old.after);
    greedy_push(greedy, right);
  }
  if (old.first < run->first) {
    left =
        greedy_run_new(greedy, (greedy_run){ .height = old.height, .first = old.first, .last = run->first });
    greedy_link(greedy, old.before, left);
    greedy_push(greedy, left);
  }
  if (right == GREEDY_NONE) run->after = GREEDY_NONE;
  if (left == GREEDY_NONE) run->before = GREEDY_NONE;
  greedy_link(greedy, left, index);
  greedy_link(greedy, index, right);
}

// ---------------------------------------------------------------------------------------------------
// A pass

static void greedy_begin(tide__greedy* greedy, const tide__pass_rules* rules) {
  tide__waiting_begin(greedy->waiting, rules->priorities, rules->welcome);
  const uint32_t runs = 2 * greedy->count + 2;
  for (uint32_t i = 0; i < runs; i++) greedy->runs[i] = (greedy_run){ .after = i + 1 };
  greedy->free_run = 0;
  greedy->stack_count = 0;
  greedy->has_bounds = greedy->has_loads && (rules->limit < INT64_MAX || rules->critical < INT64_MAX);
  if (greedy->has_bounds) tide__segment_tree_fill(&greedy->bounds, greedy->loads, greedy->sections);
  const greedy_run all = { .last = greedy->sections, .before = GREEDY_NONE, .after = GREEDY_NONE };
  greedy_push(greedy, greedy_run_new(greedy, all));
}

// Places the box on the run and returns its end; INT64_MAX if that is above the limit, and then nothing has
// changed.
static int64_t greedy_place(tide__greedy* greedy, uint32_t index, uint32_t number, int64_t limit,
                            int64_t* offsets) {
  const tide__box* const box = &greedy->boxes[number];
  const int64_t floor = greedy->runs[index].height;
  const int64_t offset = tide__align_height(floor, box->alignment);
  if (offset > limit || box->height > limit - offset) return INT64_MAX;
  if (offset > floor && greedy->has_bounds) {
    tide__segment_tree_add(&greedy->bounds, tide__waiting_first(greedy->waiting, number),
                           tide__waiting_last(greedy->waiting, number), offset - floor);
  }
  offsets[number] = offset;
  tide__waiting_remove(greedy->waiting, number);
  greedy_cover(greedy, index, number, offset + box->height);
  return offset + box->height;
}

tide__pass tide__greedy_run(tide__greedy* greedy, const tide__pass_rules* rules, const tide__watch* watch,
                            int64_t* offsets) {
  const tide__pass given_up = { INT64_MAX, UINT32_MAX };
  const int64_t limit = rules->limit < (int64_t)TIDE_PLAN_MAX_BYTES ? rules->limit
                                                                    : (int64_t)TIDE_PLAN_MAX_BYTES;
  int64_t peak = 0;
  greedy_begin(greedy, rules);
  for (uint32_t left = greedy->count; left > 0;) {
    if (greedy->stack_count == 0) return given_up;
    const uint32_t index = greedy->stack[--greedy->stack_count];
    tide__valley valley;
    if (greedy->runs[index].first == greedy->runs[index].last) continue;
    greedy_merge(greedy, index);
    if (!greedy_valley(greedy, index, &valley)) continue;
    const uint32_t box = greedy_choose(greedy, &valley, rules->critical);
    if (box == TIDE__WAITING_NONE) {
      if (!greedy_raise(greedy, index, &valley)) return given_up;
    } else {
      const int64_t end = greedy_place(greedy, index, box, limit, offsets);
      if (end == INT64_MAX) return given_up;
      peak = end > peak ? end : peak;
      left--;
      if (left % GREEDY_POLL == 0 && watch != NULL && tide__watch_is_over(watch)) return given_up;
    }
    if (greedy->has_bounds && tide__segment_tree_max(&greedy->bounds) > limit) {
      return (tide__pass){ INT64_MAX, tide__segment_tree_argmax(&greedy->bounds) };
    }
  }
  return (tide__pass){ peak, UINT32_MAX };
}
