// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Around a box that ends too high, the sections it lives in are widened at both sides until enough boxes
// lie wholly inside. Of the boxes there, the highest are looked at; all below them are the ground on which
// these lie. Those wholly inside are free, or a random choice if there are too many; the others keep their
// places. The search looks for an arrangement below the target height; if it finds one, the boxes move. The
// plan is better when the last box that ends too high has moved.
#include "plan/neighbourhood.h"

#include "base/error.h"
#include "base/random.h"
#include "plan/exact.h"

#define NEAR_TRIES 24u                 // of a step
#define NEAR_FAILURES 4u               // in a row, after which it ends
#define NEAR_FREE 96u                  // boxes placed again
#define NEAR_MOST 400u                 // boxes above the ground
#define NEAR_SECTIONS 4096u            // at most
#define NEAR_WORK ((uint64_t)1 << 26)  // boxes times sections of the ground
#define NEAR_BEGIN 64u                 // work per box and section before a search begins
#define NEAR_CLOSE 1024  // a plan above the goal by less than this fraction aims at the goal itself
#define NEAR_NODES 12u   // for each free box

tide_status tide__neighbourhood_init(tide__neighbourhood* near, const tide__model* model,
                                     const tide__part* part, uint64_t seed, const tide_heap* heap) {
  *near = (tide__neighbourhood){
    .model = model, .part = part, .count = part->last_box - part->first_box, .random = seed
  };
  tide__scratch_init(&near->scratch, heap);
  near->reach = tide__scratch_alloc(&near->scratch, near->count, sizeof *near->reach);
  near->keys = tide__scratch_alloc(&near->scratch, near->count, sizeof *near->keys);
  near->spare = tide__scratch_alloc(&near->scratch, near->count, sizeof *near->spare);
  near->grounds = tide__scratch_alloc(&near->scratch, NEAR_SECTIONS, sizeof *near->grounds);
  near->boxes = tide__scratch_alloc(&near->scratch, NEAR_MOST, sizeof *near->boxes);
  near->fixed = tide__scratch_alloc(&near->scratch, NEAR_MOST, sizeof *near->fixed);
  if (near->scratch.is_short) return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for a neighbourhood");
  uint32_t latest = 0;
  for (uint32_t i = 0; i < near->count; i++) {
    const uint32_t last = model->boxes[part->first_box + i].last;
    latest = last > latest ? last : latest;
    near->reach[i] = latest;
  }
  return TIDE_OK;
}

void tide__neighbourhood_fini(tide__neighbourhood* near) { tide__scratch_fini(&near->scratch); }

static uint32_t near_chance(tide__neighbourhood* near, uint32_t below) {
  return (uint32_t)(tide__random_next(&near->random) % below);
}

static const tide__box* near_box(const tide__neighbourhood* near, uint32_t number) {
  return &near->model->boxes[near->part->first_box + number];
}

// ---------------------------------------------------------------------------------------------------
// Selection

// One of the boxes that end above `target`; `count` if there is none.
static uint32_t near_pick(tide__neighbourhood* near, const int64_t* offsets, int64_t target) {
  uint32_t picked = near->count;
  near->work += near->count;
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

typedef struct near_range {
  uint32_t first;
  uint32_t last;
} near_range;

// Do enough boxes lie wholly in the range?
static bool near_is_enough(tide__neighbourhood* near, near_range range) {
  uint32_t count = 0;
  for (uint32_t i = near_first(near, range.first); i < near->count; i++) {
    const tide__box* const box = near_box(near, i);
    if (box->first >= range.last || count >= NEAR_FREE) break;
    near->work++;
    count += box->first >= range.first && box->last <= range.last;
  }
  return count >= NEAR_FREE;
}

static near_range near_widen(tide__neighbourhood* near, uint32_t number) {
  const tide__part* const part = near->part;
  near_range range = { near_box(near, number)->first, near_box(near, number)->last };
  for (uint32_t by = 1; !near_is_enough(near, range); by *= 2) {
    near_range wider = range;
    wider.first = wider.first - part->first_section > by ? wider.first - by : part->first_section;
    wider.last = part->last_section - wider.last > by ? wider.last + by : part->last_section;
    if (wider.last - wider.first > NEAR_SECTIONS) break;
    if (wider.first == range.first && wider.last == range.last) break;
    range = wider;
  }
  return range;
}

// Sorts the boxes that meet the range by falling offset, and returns how many there are.
static uint32_t near_sort(tide__neighbourhood* near, near_range range, const int64_t* offsets) {
  uint32_t count = 0;
  for (uint32_t i = near_first(near, range.first); i < near->count; i++) {
    const tide__box* const box = near_box(near, i);
    if (box->first >= range.last) break;
    near->work++;
    if (box->last > range.first) near->keys[count++] = (tide__keyed){ ~(uint64_t)offsets[i], i };
  }
  tide__radix_sort(near->keys, near->spare, count);
  near->work += tide__radix_work(count);
  return count;
}

// The ends of all boxes but the highest, by section.
static void near_lay_ground(tide__neighbourhood* near, uint32_t from, uint32_t count, near_range range,
                            const int64_t* offsets) {
  for (uint32_t i = range.first; i < range.last; i++) near->grounds[i - range.first] = 0;
  for (uint32_t i = from; i < count; i++) {
    const tide__box* const box = near_box(near, near->keys[i].value);
    const int64_t end = offsets[near->keys[i].value] + box->height;
    const uint32_t first = box->first > range.first ? box->first : range.first;
    const uint32_t last = box->last < range.last ? box->last : range.last;
    for (uint32_t j = first; j < last; j++) {
      int64_t* const ground = &near->grounds[j - range.first];
      *ground = end > *ground ? end : *ground;
    }
  }
}

// Lists the boxes above the ground and marks the free ones. Returns their number, or 0 if the ground would
// take more than `most` work.
static uint32_t near_gather(tide__neighbourhood* near, near_range range, const int64_t* offsets,
                            int64_t target, uint64_t most) {
  const uint32_t meeting = near_sort(near, range, offsets);
  const uint32_t count = meeting < NEAR_MOST ? meeting : NEAR_MOST;
  const uint64_t ground = (uint64_t)(meeting - count) * (range.last - range.first);
  if (ground > most) return 0;
  near->work += ground + NEAR_BEGIN * (uint64_t)(count + range.last - range.first);
  near_lay_ground(near, count, meeting, range, offsets);
  uint32_t inside = 1;
  for (uint32_t i = 0; i < count; i++) {
    const tide__box* const box = near_box(near, near->keys[i].value);
    inside += box->first >= range.first && box->last <= range.last;
  }
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t index = near->keys[i].value;
    const tide__box* const box = near_box(near, index);
    const bool is_inside = box->first >= range.first && box->last <= range.last && box->fixed < 0;
    const bool is_high = offsets[index] + box->height > target;
    const bool is_free = is_inside && (is_high || near_chance(near, inside) < NEAR_FREE);
    near->boxes[i] = near->part->first_box + index;
    near->fixed[i] = is_free ? -1 : offsets[index];
  }
  return count;
}

// ---------------------------------------------------------------------------------------------------
// Search

static void near_move(const tide__neighbourhood* near, const tide__puzzle* puzzle, const tide__exact* exact,
                      int64_t* offsets) {
  for (uint32_t i = 0; i < puzzle->count; i++) {
    if (puzzle->tiles[i].fixed >= 0) continue;
    offsets[puzzle->tiles[i].box - near->part->first_box] = tide__exact_offset(exact, i);
  }
}

static tide_status near_try(tide__neighbourhood* near, uint32_t number, int64_t target, int64_t* offsets,
                            tide__thread_pool* threads, tide__budget* budget, bool* out_moved) {
  *out_moved = false;
  const near_range range = near_widen(near, number);
  const uint64_t worth = tide__budget_worth(tide__budget_left(budget));
  uint32_t count = 0;
  if (range.last - range.first <= NEAR_SECTIONS) {
    count = near_gather(near, range, offsets, target, worth < NEAR_WORK ? worth : NEAR_WORK);
  }
  tide__budget_spend(budget, (tide__effort){ 1, near->work });
  near->work = 0;
  if (count == 0) return TIDE_OK;
  const tide_heap* const heap = near->scratch.heap;
  tide__puzzle puzzle;
  tide__exact exact = { .round = 0 };
  const tide__puzzle_choice choice = { .boxes = near->boxes,
                                       .fixed = near->fixed,
                                       .grounds = near->grounds,
                                       .ceiling = target,
                                       .count = count,
                                       .first = range.first,
                                       .last = range.last };
  tide_status status = tide__puzzle_init(&puzzle, near->model, &choice, heap);
  if (status == TIDE_OK) status = tide__exact_init(&exact, &puzzle, near->random, heap);
  if (status == TIDE_OK) {
    const uint64_t nodes = (uint64_t)NEAR_NODES * NEAR_FREE + near->count / 128;
    const tide__search_answer answer = tide__exact_run(&exact, target, nodes, threads, budget);
    *out_moved = answer == TIDE__SEARCH_FITS;
    if (*out_moved) near_move(near, &puzzle, &exact, offsets);
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
                                     int64_t* height, tide__thread_pool* threads, tide__budget* budget) {
  const bool is_close = *height - goal <= goal / NEAR_CLOSE;
  const int64_t target = is_close ? goal : goal + (int64_t)((double)(*height - goal - 1) * (15.0 / 16));
  uint32_t failures = 0;
  for (uint32_t i = 0; i < NEAR_TRIES && failures < NEAR_FAILURES; i++) {
    if (tide__budget_is_over(budget) || tide__budget_left(budget) == 0) break;
    const uint32_t number = near_pick(near, offsets, target);
    if (number == near->count) break;
    bool has_moved = false;
    TIDE_TRY(near_try(near, number, target, offsets, threads, budget, &has_moved));
    failures = has_moved ? 0 : failures + 1;
  }
  *height = near_peak(near, offsets);
  return TIDE_OK;
}
