// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A pass aims below the best plan and ends where it is bound to miss that. The boxes that live in the blamed
// section and still wait there get a higher priority; the next pass places them earlier, somewhere else is
// blamed, and after some turns nowhere is. A chain that finds nothing for a while begins anew from chance.
// Several chains turn side by side. They share the best plan between rounds only, so the number of threads
// does not show.
#include "plan/wheel.h"

#include <string.h>

#include "base/error.h"
#include "base/heap.h"
#include "base/random.h"
#include "base/segment_tree.h"
#include "plan/logarithm.h"

#define WHEEL_IDLE 10u       // passes without success after which a chain begins anew,
#define WHEEL_RESTLESS 3u    // and after which half of them do
#define WHEEL_FEW 64u        // boxes below which one chain is enough
#define WHEEL_ALONE 200000u  // boxes above which one chain must do, for its memory

// The first ones are the best for training steps and for random lifetimes; chains go on from the last ones.
static const tide__mix wheel_fixed[] = {
  { .height = 0.2f, .sections = 0.3f, .load = 100, .caution = 0.01f },
  { .duration = 0.1f, .height = 0.05f, .sections = 0.1f, .load = 100, .caution = 0.01f },
  { .height = 0.05f, .sections = 0.3f, .load = 100, .caution = 0.01f },
  { .duration = 1, .height = 0.01f, .caution = 0.03f },
  { .height = 0.5f, .sections = 1, .flush = 0.3f, .caution = 0.01f },
  { .duration = 0.1f, .load = 100, .caution = 0.01f },
  { .sections = 1, .height = 0.001f, .wall = 0.7f },
  { .duration = 1, .height = 1 },
  { .duration = 1, .height = 0.3f, .wall = 0.7f, .flush = 1, .caution = 0.01f },
  { .sections = 1, .height = 0.01f, .wall = 0.7f, .flush = 1, .caution = 0.01f },
  { .duration = 0.01f, .height = 1, .wall = 0.7f, .flush = 1, .caution = 0.01f },
  { .duration = 1, .height = 1, .caution = 0.01f },
};
#define WHEEL_FIXED (sizeof wheel_fixed / sizeof wheel_fixed[0])

// ---------------------------------------------------------------------------------------------------
// What priorities are made of

static tide_status wheel_measure(tide__wheel* wheel) {
  const tide__part* const part = wheel->part;
  const uint32_t sections = part->last_section - part->first_section;
  const size_t words = tide__segment_tree_words(sections);
  int64_t* const memory = tide__heap_alloc(wheel->pile.heap, words, sizeof *memory);
  if (memory == NULL) return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for %u sections", (unsigned)sections);
  tide__segment_tree loads;
  tide__segment_tree_init(&loads, memory, sections);
  tide__segment_tree_fill(&loads, &wheel->model->loads[part->first_section], sections);
  const float highest = (float)tide__segment_tree_max(&loads);
  for (uint32_t i = 0; i < wheel->count; i++) {
    const tide__box* const box = &wheel->model->boxes[part->first_box + i];
    const int64_t load =
        tide__segment_tree_max_of(&loads, box->first - part->first_section, box->last - part->first_section);
    wheel->loads[i] = highest > 0 ? (float)load / highest : 0;
    wheel->durations[i] = tide__log(box->duration);
    wheel->heights[i] = tide__log((uint64_t)box->height);
    wheel->sections[i] = tide__log(box->last - box->first);
  }
  tide__heap_release(wheel->pile.heap, memory, words, sizeof *memory);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Lifetime

static tide_status wheel_spoke_init(tide__wheel* wheel, tide__spoke* spoke, uint64_t seed) {
  spoke->random = seed;
  spoke->pass = (tide__pass){ INT64_MAX, UINT32_MAX };
  spoke->priorities = tide__pile_alloc(&wheel->pile, wheel->count, sizeof *spoke->priorities);
  spoke->offsets = tide__pile_alloc(&wheel->pile, wheel->count, sizeof *spoke->offsets);
  if (wheel->pile.is_short) {
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for a pass over %u buffers", (unsigned)wheel->count);
  }
  return tide__greedy_new(wheel->model, wheel->part, wheel->pile.heap, &spoke->greedy);
}

tide_status tide__wheel_init(tide__wheel* wheel, const tide__model* model, const tide__part* part,
                             uint64_t seed, const tide_heap* heap) {
  *wheel = (tide__wheel){
    .model = model, .part = part, .count = part->last_box - part->first_box, .height = INT64_MAX
  };
  tide__pile_init(&wheel->pile, heap);
  const bool is_alone = wheel->count > WHEEL_ALONE || wheel->count < WHEEL_FEW;
  wheel->spoke_count = is_alone ? 1 : TIDE__WHEEL_SPOKES;
  wheel->loads = tide__pile_alloc(&wheel->pile, wheel->count, sizeof *wheel->loads);
  wheel->durations = tide__pile_alloc(&wheel->pile, wheel->count, sizeof *wheel->durations);
  wheel->heights = tide__pile_alloc(&wheel->pile, wheel->count, sizeof *wheel->heights);
  wheel->sections = tide__pile_alloc(&wheel->pile, wheel->count, sizeof *wheel->sections);
  wheel->offsets = tide__pile_alloc(&wheel->pile, wheel->count, sizeof *wheel->offsets);
  if (wheel->pile.is_short) {
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for %u buffers", (unsigned)wheel->count);
  }
  for (uint32_t i = 0; i < wheel->spoke_count; i++) {
    TIDE_TRY(wheel_spoke_init(wheel, &wheel->spokes[i], tide__random_mix(seed) + i));
  }
  return wheel_measure(wheel);
}

void tide__wheel_fini(tide__wheel* wheel) {
  for (uint32_t i = 0; i < wheel->spoke_count; i++) tide__greedy_free(wheel->spokes[i].greedy);
  tide__pile_fini(&wheel->pile);
}

uint32_t tide__wheel_fixed_rounds(const tide__wheel* wheel) {
  return (uint32_t)((WHEEL_FIXED + wheel->spoke_count - 1) / wheel->spoke_count);
}

// ---------------------------------------------------------------------------------------------------
// Priorities

static float wheel_chance(tide__spoke* spoke) { return tide__random_fraction(&spoke->random); }

static void wheel_apply(const tide__wheel* wheel, tide__spoke* spoke, const tide__mix* mix, float noise) {
  spoke->mix = *mix;
  spoke->idle = 0;
  for (uint32_t i = 0; i < wheel->count; i++) {
    spoke->priorities[i] = mix->duration * wheel->durations[i] + mix->height * wheel->heights[i] +
                           mix->sections * wheel->sections[i] + mix->load * wheel->loads[i];
    if (noise > 0) spoke->priorities[i] += noise * wheel_chance(spoke);
  }
}

void tide__wheel_mix(const tide__wheel* wheel, tide__spoke* spoke, const tide__mix* mix) {
  wheel_apply(wheel, spoke, mix, 0);
}

static void wheel_begin_anew(const tide__wheel* wheel, tide__spoke* spoke) {
  const float width = 1.5f * wheel_chance(spoke);
  tide__mix mix = { .height = wheel_chance(spoke), .caution = 0.01f };
  if (wheel_chance(spoke) < 0.5f) {
    mix.sections = width;
  } else {
    mix.duration = width;
  }
  if (wheel_chance(spoke) < 0.5f) mix.load = 20 * wheel_chance(spoke);
  if (wheel_chance(spoke) < 0.6f) mix.wall = 1.5f * wheel_chance(spoke);
  if (wheel_chance(spoke) < 0.7f) mix.flush = 3 * wheel_chance(spoke);
  const float noise = 0.7f * wheel_chance(spoke);
  wheel_apply(wheel, spoke, &mix, noise);
}

// A pass that was not given up: raises the boxes that ended high.
static void wheel_raise_high(const tide__wheel* wheel, tide__spoke* spoke, int64_t bound) {
  const int64_t over = spoke->pass.height - bound;
  const int64_t target = bound + (int64_t)((float)over * (0.2f + 0.6f * wheel_chance(spoke)));
  for (uint32_t i = 0; i < wheel->count; i++) {
    const tide__box* const box = &wheel->model->boxes[wheel->part->first_box + i];
    if (spoke->offsets[i] + box->height > target) spoke->priorities[i] += 0.2f + 0.8f * wheel_chance(spoke);
  }
}

// Raises the boxes of the blamed section that still wait.
static void wheel_blame(const tide__wheel* wheel, tide__spoke* spoke) {
  const uint32_t blamed = wheel->part->first_section + spoke->pass.blamed;
  const float most = 0.2f + 0.8f * wheel_chance(spoke);
  for (uint32_t i = 0; i < wheel->count; i++) {
    const tide__box* const box = &wheel->model->boxes[wheel->part->first_box + i];
    if (box->first > blamed) break;
    if (box->last <= blamed || !tide__greedy_is_left(spoke->greedy, i)) continue;
    spoke->priorities[i] += most * (0.5f + 0.5f * wheel_chance(spoke));
  }
}

static void wheel_choose(const tide__wheel* wheel, tide__spoke* spoke, uint32_t index) {
  const size_t pass = (size_t)spoke->passes * wheel->spoke_count + index;
  const bool is_idle = spoke->idle >= (index < TIDE__WHEEL_SPOKES / 2 ? WHEEL_IDLE : WHEEL_RESTLESS);
  if (spoke->is_rehearsed) {
    spoke->is_rehearsed = false;
  } else if (pass < WHEEL_FIXED) {
    wheel_apply(wheel, spoke, &wheel_fixed[pass], 0);
  } else if (!is_idle && spoke->pass.blamed != UINT32_MAX) {
    wheel_blame(wheel, spoke);
  } else if (!is_idle && spoke->pass.height < INT64_MAX) {
    wheel_raise_high(wheel, spoke, wheel->part->lower_bound);
  } else {
    wheel_begin_anew(wheel, spoke);
  }
}

// ---------------------------------------------------------------------------------------------------
// Rounds

typedef struct wheel_turn {
  tide__wheel* wheel;
  tide__budget* budget;
  int64_t goal;
  int64_t limit;
  tide__atomic_u32 winner;
} wheel_turn;

static int64_t wheel_critical(const tide__wheel* wheel, const tide__spoke* spoke) {
  if (spoke->mix.caution <= 0) return INT64_MAX;
  return wheel->part->lower_bound - (int64_t)(spoke->mix.caution * (float)wheel->scale) - 1;
}

static void wheel_run_spoke(void* user, uint32_t index) {
  wheel_turn* const turn = user;
  tide__wheel* const wheel = turn->wheel;
  tide__spoke* const spoke = &wheel->spokes[index];
  const tide__watch watch = { turn->budget, &turn->winner, index };
  // If there is no plan at all, the first pass is made to its end whatever the time is.
  const bool is_first = wheel->height == INT64_MAX && index == 0;
  if (!is_first && tide__watch_is_over(&watch)) {
    spoke->pass = (tide__pass){ INT64_MAX, UINT32_MAX };
    return;
  }
  wheel_choose(wheel, spoke, index);
  spoke->passes++;
  const tide__pass_rules rules = {
    spoke->priorities, { spoke->mix.wall, spoke->mix.flush }, wheel_critical(wheel, spoke), turn->limit
  };
  spoke->pass = tide__greedy_run(spoke->greedy, &rules, is_first ? NULL : &watch, spoke->offsets);
  if (spoke->pass.height <= turn->goal) tide__watch_win(&turn->winner, index);
}

// Takes over what a round found, up to the first pass that reached the goal.
static bool wheel_collect(tide__wheel* wheel, const wheel_turn* turn) {
  const uint32_t winner = tide__load_relaxed(&turn->winner);
  bool is_better = false;
  for (uint32_t i = 0; i < wheel->spoke_count && i <= winner; i++) {
    tide__spoke* const spoke = &wheel->spokes[i];
    spoke->idle++;
    tide__budget_spend(turn->budget, (tide__effort){ wheel->count, 0 });
    if (spoke->pass.height >= wheel->height) continue;
    wheel->height = spoke->pass.height;
    wheel->best = i;
    memcpy(wheel->offsets, spoke->offsets, wheel->count * sizeof *wheel->offsets);
    spoke->idle = 0;
    is_better = true;
  }
  return is_better;
}

bool tide__wheel_turn(tide__wheel* wheel, int64_t goal, uint32_t rounds, tide__crew* crew,
                      tide__budget* budget) {
  bool is_better = false;
  for (uint32_t i = 0; i < rounds && wheel->height > goal; i++) {
    if (wheel->rounds > 0 && (tide__budget_is_over(budget) || tide__budget_left(budget) == 0)) break;
    wheel_turn turn = { .wheel = wheel, .budget = budget, .goal = goal, .winner = UINT32_MAX };
    turn.limit = wheel->height < INT64_MAX ? wheel->height - 1 : INT64_MAX;
    tide__crew_run(crew, wheel->spoke_count, wheel_run_spoke, &turn);
    wheel->rounds++;
    if (wheel_collect(wheel, &turn)) is_better = true;
    if (wheel->height == INT64_MAX) break;  // not even the first pass found a place for everything
  }
  return is_better;
}
