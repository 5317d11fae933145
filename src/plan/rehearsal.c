// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The choice of a box for a valley depends only on its surroundings. So a pass over the boxes around a
// section makes nearly the same choices as a pass over all boxes, at a thousandth of the cost in a large
// part. The boxes are clipped to the sections; those that live through all of them form the ground. A
// separate squeaky wheel runs over these boxes, with the properties of the whole ones. When it succeeds,
// the wheel of the part gets its priorities, and the boxes of the ground go first there.
#include "plan/rehearsal.h"

#include "base/error.h"

#define REHEARSAL_BOXES 2000u
#define REHEARSAL_FIRST 1e5f  // above any priority of a mix

typedef struct rehearsal_work {
  tide__scratch scratch;
  tide__squeaky_wheel* whole;  // borrowed
  tide__model model;           // of the boxes around the section; its arrays are of scratch
  tide__part part;
  uint32_t* numbers;  // of scratch; of these boxes in the whole part
  uint32_t first;     // sections of the whole model
  uint32_t last;      // not included
  int64_t ground;     // the heights of the boxes that live through all of them
} rehearsal_work;

static const tide__box* rehearsal_box(const rehearsal_work* work, uint32_t number) {
  return &work->whole->model->boxes[work->whole->part->first_box + number];
}

typedef enum rehearsal_role { REHEARSAL_AWAY, REHEARSAL_GROUND, REHEARSAL_PLAYER } rehearsal_role;

static rehearsal_role rehearsal_role_of(const rehearsal_work* work, const tide__box* box) {
  if (box->first >= work->last || box->last <= work->first) return REHEARSAL_AWAY;
  return box->first <= work->first && box->last >= work->last ? REHEARSAL_GROUND : REHEARSAL_PLAYER;
}

static uint32_t rehearsal_count(const rehearsal_work* work) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < work->whole->count && rehearsal_box(work, i)->first < work->last; i++) {
    count += rehearsal_role_of(work, rehearsal_box(work, i)) == REHEARSAL_PLAYER;
  }
  return count;
}

// Widens the range up to the limit of boxes, and returns their number.
static uint32_t rehearsal_widen(rehearsal_work* work, uint32_t section) {
  const tide__part* const part = work->whole->part;
  uint32_t count = 0;
  for (uint32_t by = 8;; by *= 2) {
    const uint32_t first = work->first;
    const uint32_t last = work->last;
    work->first = section - part->first_section > by ? section - by : part->first_section;
    work->last = part->last_section - section > by ? section + by : part->last_section;
    const uint32_t wider = rehearsal_count(work);
    if (wider > REHEARSAL_BOXES) {
      work->first = first;
      work->last = last;
      return count;
    }
    count = wider;
    if (work->first == part->first_section && work->last == part->last_section) return count;
  }
}

static tide_status rehearsal_alloc(rehearsal_work* work, uint32_t count) {
  const uint32_t sections = work->last - work->first;
  work->model.boxes = tide__scratch_alloc(&work->scratch, count, sizeof *work->model.boxes);
  work->model.loads = tide__scratch_alloc(&work->scratch, (size_t)sections + 1, sizeof *work->model.loads);
  work->numbers = tide__scratch_alloc(&work->scratch, count, sizeof *work->numbers);
  if (!work->scratch.is_short) return TIDE_OK;
  return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for %u buffers", (unsigned)count);
}

// The boxes are sorted by first section, and clipped ones begin in the first.
static void rehearsal_gather(rehearsal_work* work) {
  tide__model* const model = &work->model;
  for (uint32_t i = 0; i < work->whole->count && rehearsal_box(work, i)->first < work->last; i++) {
    tide__box box = *rehearsal_box(work, i);
    const rehearsal_role role = rehearsal_role_of(work, &box);
    if (role == REHEARSAL_GROUND) work->ground += box.height;
    if (role != REHEARSAL_PLAYER) continue;
    box.first = box.first > work->first ? box.first - work->first : 0;
    box.last = (box.last < work->last ? box.last : work->last) - work->first;
    uint32_t at = model->count++;
    for (; at > 0 && box.first == model->boxes[at - 1].first && box.last < model->boxes[at - 1].last; at--) {
      model->boxes[at] = model->boxes[at - 1];
      work->numbers[at] = work->numbers[at - 1];
    }
    model->boxes[at] = box;
    work->numbers[at] = i;
    model->loads[box.first] += box.height;
    model->loads[box.last] -= box.height;
  }
  model->sections = work->last - work->first;
  model->grain = work->whole->model->grain;
  for (uint32_t i = 1; i < model->sections; i++) model->loads[i] += model->loads[i - 1];
  for (uint32_t i = 0; i < model->sections; i++) {
    if (model->loads[i] > work->part.lower_bound) work->part.lower_bound = model->loads[i];
  }
  work->part.last_box = model->count;
  work->part.last_section = model->sections;
}

// The wheel of these boxes, with the properties of the whole ones.
static void rehearsal_prepare(const rehearsal_work* work, tide__squeaky_wheel* wheel) {
  const tide__squeaky_wheel* const whole = work->whole;
  wheel->scale = whole->scale;
  for (uint32_t i = 0; i < wheel->count; i++) {
    const uint32_t number = work->numbers[i];
    wheel->loads[i] = whole->loads[number];
    wheel->sections[i] = whole->sections[number];
  }
}

static void rehearsal_hand_over(const rehearsal_work* work, const tide__squeaky_wheel* wheel) {
  const tide__pass_chain* const found = &wheel->chains[wheel->best];
  tide__pass_chain* const chain = &work->whole->chains[0];
  tide__squeaky_wheel_mix(work->whole, chain, &found->mix);
  for (uint32_t i = 0; i < work->whole->count && rehearsal_box(work, i)->first < work->last; i++) {
    if (rehearsal_role_of(work, rehearsal_box(work, i)) == REHEARSAL_GROUND) {
      chain->priorities[i] += REHEARSAL_FIRST;
    }
  }
  for (uint32_t i = 0; i < wheel->count; i++) chain->priorities[work->numbers[i]] = found->priorities[i];
  chain->is_rehearsed = true;
}

static tide_status rehearsal_play(rehearsal_work* work, int64_t goal, tide__thread_pool* threads,
                                  tide__budget* budget, bool* out_found) {
  tide__squeaky_wheel wheel;
  const tide_heap* const heap = work->scratch.heap;
  tide_status status =
      tide__squeaky_wheel_init(&wheel, &work->model, &work->part, work->whole->chains[0].random, heap);
  if (status == TIDE_OK) {
    rehearsal_prepare(work, &wheel);
    const uint32_t rounds = work->whole->count / wheel.count / 2 + 1;  // no more work than a few whole passes
    tide__squeaky_wheel_run(&wheel, goal - work->ground, rounds, threads, budget);
    *out_found = wheel.height <= goal - work->ground;
    if (*out_found) rehearsal_hand_over(work, &wheel);
  }
  tide__squeaky_wheel_fini(&wheel);
  return status;
}

tide_status tide__rehearse(tide__squeaky_wheel* wheel, uint32_t section, int64_t goal,
                           tide__thread_pool* threads, tide__budget* budget, bool* out_found) {
  *out_found = false;
  rehearsal_work work = { .whole = wheel };
  tide__scratch_init(&work.scratch, wheel->scratch.heap);
  const uint32_t count = rehearsal_widen(&work, wheel->part->first_section + section);
  tide_status status = TIDE_OK;
  if (count > 0) status = rehearsal_alloc(&work, count);
  if (status == TIDE_OK && count > 0) {
    rehearsal_gather(&work);
    status = rehearsal_play(&work, goal, threads, budget, out_found);
  }
  tide__scratch_fini(&work.scratch);
  return status;
}
