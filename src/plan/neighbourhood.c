// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Around a box that ends too high, the sections it lives in are widened at both sides until enough boxes lie
// wholly inside. These, or by chance as many of them as can be searched, are free, and the box itself; what
// lies there besides keeps its place. The search is asked for an arrangement below the height that is aimed
// at; where it finds one, the boxes move. When the last of the boxes that end too high has moved, the plan is
// better.
#include "plan/neighbourhood.h"

#include "base/error.h"
#include "plan/exact.h"

#define NEAR_TRIES 12u   // of a step
#define NEAR_FREE 96u    // boxes that are placed anew
#define NEAR_MOST 3000u  // boxes in a neighbourhood
#define NEAR_NODES 40u   // for each free box

tide_status tide__neighbourhood_init(tide__neighbourhood* near, const tide__model* model,
                                     const tide__part* part, uint64_t seed, const tide_heap* heap) {
  *near = (tide__neighbourhood){
    .model = model, .part = part, .count = part->last_box - part->first_box, .random = seed
  };
  tide__pile_init(&near->pile, heap);
  near->reach = tide__pile_alloc(&near->pile, near->count, sizeof *near->reach);
  near->boxes = tide__pile_alloc(&near->pile, NEAR_MOST, sizeof *near->boxes);
  near->fixed = tide__pile_alloc(&near->pile, NEAR_MOST, sizeof *near->fixed);
  if (near->pile.is_short) return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for a neighbourhood");
  uint32_t latest = 0;
  for (uint32_t i = 0; i < near->count; i++) {
    const uint32_t last = model->boxes[part->first_box + i].last;
    latest = last > latest ? last : latest;
    near->reach[i] = latest;
  }
  return TIDE_OK;
}

void tide__neighbourhood_fini(tide__neighbourhood* near) { tide__pile_fini(&near->pile); }

static uint32_t near_chance(tide__neighbourhood* near, uint32_t below) {
  near->random += UINT64_C(0x9e3779b97f4a7c15);
  uint64_t n = near->random;
  n = (n ^ n >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  n = (n ^ n >> 27) * UINT64_C(0x94d049bb133111eb);
  return (uint32_t)((n ^ n >> 31) % below);
}

static const tide__box* near_box(const tide__neighbourhood* near, uint32_t number) {
  return &near->model->boxes[near->part->first_box + number];
}

// ---------------------------------------------------------------------------------------------------
// Choosing

// One of the boxes that end above `target`; `count` if there is none.
static uint32_t near_pick(tide__neighbourhood* near, const int64_t* offsets, int64_t target) {
  uint32_t picked = near->count;
  uint32_t seen = 0;
  for (uint32_t i = 0; i < near->count; i++) {
    if (offsets[i] + near_box(near, i)->height <= target || near_box(near, i)->fixed >= 0) continue;
    if (near_chance(near, ++seen) == 0) picked = i;
  }
  return picked;
}

// The first box that may reach into sections from `first` on.
static uint32_t near_first(const tide__neighbourhood* near, uint32_t first) {
  uint32_t low = 0;
  uint32_t high = near->count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (near->reach[middle] <= first) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Counts the boxes that lie wholly in the sections [first, last), or, for `all`, that meet them.
static uint32_t near_count(const tide__neighbourhood* near, uint32_t first, uint32_t last, bool all) {
  uint32_t count = 0;
  for (uint32_t i = near_first(near, first); i < near->count && near_box(near, i)->first < last; i++) {
    const tide__box* const box = near_box(near, i);
    count += all ? box->last > first : box->first >= first && box->last <= last;
    if (count > NEAR_MOST) break;
  }
  return count;
}

typedef struct near_range {
  uint32_t first;
  uint32_t last;
} near_range;

static near_range near_widen(const tide__neighbourhood* near, uint32_t number) {
  const tide__part* const part = near->part;
  near_range range = { near_box(near, number)->first, near_box(near, number)->last };
  for (uint32_t by = 1;; by *= 2) {
    if (near_count(near, range.first, range.last, false) >= NEAR_FREE) break;
    near_range wider = range;
    wider.first = wider.first - part->first_section > by ? wider.first - by : part->first_section;
    wider.last = part->last_section - wider.last > by ? wider.last + by : part->last_section;
    if (near_count(near, wider.first, wider.last, true) > NEAR_MOST) break;
    if (wider.first == range.first && wider.last == range.last) break;
    range = wider;
  }
  return range;
}

// Lists the boxes that meet the range, and says which of them are free; returns how many there are, or 0 if
// they are too many.
static uint32_t near_gather(tide__neighbourhood* near, uint32_t number, near_range range,
                            const int64_t* offsets, int64_t target) {
  const uint32_t inside = near_count(near, range.first, range.last, false);
  uint32_t count = 0;
  for (uint32_t i = near_first(near, range.first); i < near->count; i++) {
    const tide__box* const box = near_box(near, i);
    if (box->first >= range.last) break;
    if (box->last <= range.first) continue;
    if (count == NEAR_MOST) return 0;
    const bool is_inside = box->first >= range.first && box->last <= range.last && box->fixed < 0;
    const bool is_high = offsets[i] + box->height > target;
    const bool is_free = is_inside && (i == number || is_high || near_chance(near, inside) < NEAR_FREE);
    near->boxes[count] = near->part->first_box + i;
    near->fixed[count++] = is_free ? -1 : offsets[i];
  }
  return count;
}

// ---------------------------------------------------------------------------------------------------
// Trying

static void near_move(const tide__neighbourhood* near, const tide__puzzle* puzzle, const tide__exact* exact,
                      int64_t* offsets) {
  for (uint32_t i = 0; i < puzzle->count; i++) {
    offsets[puzzle->tiles[i].box - near->part->first_box] = tide__exact_offset(exact, i);
  }
}

// What stays may end above the target as well, outside the range, or because it must.
static int64_t near_height(const tide__neighbourhood* near, uint32_t count, const int64_t* offsets,
                           int64_t target) {
  int64_t height = target;
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t number = near->boxes[i] - near->part->first_box;
    if (near->fixed[i] < 0) continue;
    const int64_t end = offsets[number] + near_box(near, number)->height;
    height = end > height ? end : height;
  }
  return height;
}

static tide_status near_try(tide__neighbourhood* near, uint32_t number, int64_t target, int64_t* offsets,
                            tide__crew* crew, tide__budget* budget) {
  const near_range range = near_widen(near, number);
  const uint32_t count = near_gather(near, number, range, offsets, target);
  if (count == 0 || near_height(near, count, offsets, target) > target) {
    tide__budget_spend(budget, 1);
    return TIDE_OK;
  }
  const tide_heap* const heap = near->pile.heap;
  tide__puzzle puzzle;
  tide__exact exact = { .round = 0 };
  tide_status status =
      tide__puzzle_init(&puzzle, near->model, near->boxes, near->fixed, count, range.first, range.last, heap);
  if (status == TIDE_OK) status = tide__exact_init(&exact, &puzzle, near->random, heap);
  if (status == TIDE_OK) {
    const uint64_t nodes = (uint64_t)NEAR_NODES * NEAR_FREE;
    const tide__search_answer answer = tide__exact_run(&exact, target, nodes, crew, budget);
    if (answer == TIDE__SEARCH_FITS) near_move(near, &puzzle, &exact, offsets);
  }
  tide__exact_fini(&exact);
  tide__puzzle_fini(&puzzle);
  return status;
}

static int64_t near_peak(const tide__neighbourhood* near, const int64_t* offsets) {
  int64_t peak = 0;
  for (uint32_t i = 0; i < near->count; i++) {
    const int64_t end = offsets[i] + near_box(near, i)->height;
    peak = end > peak ? end : peak;
  }
  return peak;
}

tide_status tide__neighbourhood_step(tide__neighbourhood* near, int64_t goal, int64_t* offsets,
                                     int64_t* height, tide__crew* crew, tide__budget* budget) {
  const int64_t target = goal + (*height - goal) * 15 / 16;
  for (uint32_t i = 0; i < NEAR_TRIES && !tide__budget_is_over(budget); i++) {
    if (tide__budget_left(budget) == 0) break;
    const uint32_t number = near_pick(near, offsets, target < *height ? target : *height - 1);
    if (number == near->count) break;
    TIDE_TRY(near_try(near, number, target < *height ? target : *height - 1, offsets, crew, budget));
  }
  *height = near_peak(near, offsets);
  return TIDE_OK;
}
