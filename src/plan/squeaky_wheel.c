// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A pass aims below the best plan and stops as soon as it must miss that. It blames the section that would
// become too high: boxes of that section that still wait get a higher priority. The next pass places them
// earlier and blames another section, until a pass gets through. A chain that finds nothing for a while
// restarts from random priorities. Several chains run side by side. They share the best plan between rounds
// only, so the result does not depend on the number of threads.
#include "plan/squeaky_wheel.h"

#include <string.h>

#include "base/error.h"
#include "base/heap.h"
#include "base/random.h"
#include "base/segment_tree.h"
#include "plan/logarithm.h"

#define WHEEL_IDLE 10u       // passes without success after which a chain restarts,
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
// Ingredients of priorities

static tide_status wheel_measure(tide__squeaky_wheel* wheel) {
  const tide__part* const part = wheel->part;
  const uint32_t sections = part->last_section - part->first_section;
  const size_t words = tide__segment_tree_words(sections);
  int64_t* const memory = tide__heap_alloc(wheel->scratch.heap, words, sizeof *memory);
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
  tide__heap_release(wheel->scratch.heap, memory, words, sizeof *memory);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Lifetime

static tide_status wheel_chain_init(tide__squeaky_wheel* wheel, tide__pass_chain* chain, uint64_t seed) {
  chain->random = seed;
  chain->pass = (tide__pass){ INT64_MAX, UINT32_MAX };
  chain->priorities = tide__scratch_alloc(&wheel->scratch, wheel->count, sizeof *chain->priorities);
  chain->offsets = tide__scratch_alloc(&wheel->scratch, wheel->count, sizeof *chain->offsets);
  if (wheel->scratch.is_short) {
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for a pass over %u buffers", (unsigned)wheel->count);
  }
  return tide__greedy_new(wheel->model, wheel->part, wheel->scratch.heap, &chain->greedy);
}

tide_status tide__squeaky_wheel_init(tide__squeaky_wheel* wheel, const tide__model* model,
                                     const tide__part* part, uint64_t seed, const tide_heap* heap) {
  *wheel = (tide__squeaky_wheel){
    .model = model, .part = part, .count = part->last_box - part->first_box, .height = INT64_MAX
  };
  tide__scratch_init(&wheel->scratch, heap);
  const bool is_alone = wheel->count > WHEEL_ALONE || wheel->count < WHEEL_FEW;
  wheel->chain_count = is_alone ? 1 : TIDE__SQUEAKY_WHEEL_CHAINS;
  wheel->loads = tide__scratch_alloc(&wheel->scratch, wheel->count, sizeof *wheel->loads);
  wheel->durations = tide__scratch_alloc(&wheel->scratch, wheel->count, sizeof *wheel->durations);
  wheel->heights = tide__scratch_alloc(&wheel->scratch, wheel->count, sizeof *wheel->heights);
  wheel->sections = tide__scratch_alloc(&wheel->scratch, wheel->count, sizeof *wheel->sections);
  wheel->offsets = tide__scratch_alloc(&wheel->scratch, wheel->count, sizeof *wheel->offsets);
  if (wheel->scratch.is_short) {
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for %u buffers", (unsigned)wheel->count);
  }
  for (uint32_t i = 0; i < wheel->chain_count; i++) {
    TIDE_TRY(wheel_chain_init(wheel, &wheel->chains[i], tide__random_mix(seed) + i));
  }
  return wheel_measure(wheel);
}

void tide__squeaky_wheel_fini(tide__squeaky_wheel* wheel) {
  for (uint32_t i = 0; i < wheel->chain_count; i++) tide__greedy_free(wheel->chains[i].greedy);
  tide__scratch_fini(&wheel->scratch);
}

uint32_t tide__squeaky_wheel_fixed_rounds(const tide__squeaky_wheel* wheel) {
  return (uint32_t)((WHEEL_FIXED + wheel->chain_count - 1) / wheel->chain_count);
}

// ---------------------------------------------------------------------------------------------------
// Priorities

static float wheel_chance(tide__pass_chain* chain) { return tide__random_fraction(&chain->random); }

static void wheel_apply(const tide__squeaky_wheel* wheel, tide__pass_chain* chain, const tide__mix* mix,
                        float noise) {
  chain->mix = *mix;
  chain->idle = 0;
  for (uint32_t i = 0; i < wheel->count; i++) {
    chain->priorities[i] = mix->duration * wheel->durations[i] + mix->height * wheel->heights[i] +
                           mix->sections * wheel->sections[i] + mix->load * wheel->loads[i];
    if (noise > 0) chain->priorities[i] += noise * wheel_chance(chain);
  }
}

void tide__squeaky_wheel_mix(const tide__squeaky_wheel* wheel, tide__pass_chain* chain,
                             const tide__mix* mix) {
  wheel_apply(wheel, chain, mix, 0);
}

static void wheel_begin_anew(const tide__squeaky_wheel* wheel, tide__pass_chain* chain) {
  const float width = 1.5f * wheel_chance(chain);
  tide__mix mix = { .height = wheel_chance(chain), .caution = 0.01f };
  if (wheel_chance(chain) < 0.5f) {
    mix.sections = width;
  } else {
    mix.duration = width;
  }
  if (wheel_chance(chain) < 0.5f) mix.load = 20 * wheel_chance(chain);
  if (wheel_chance(chain) < 0.6f) mix.wall = 1.5f * wheel_chance(chain);
  if (wheel_chance(chain) < 0.7f) mix.flush = 3 * wheel_chance(chain);
  const float noise = 0.7f * wheel_chance(chain);
  wheel_apply(wheel, chain, &mix, noise);
}

// After a complete pass: raises the boxes that ended high.
static void wheel_raise_high(const tide__squeaky_wheel* wheel, tide__pass_chain* chain, int64_t bound) {
  const int64_t over = chain->pass.height - bound;
  const int64_t target = bound + (int64_t)((float)over * (0.2f + 0.6f * wheel_chance(chain)));
  for (uint32_t i = 0; i < wheel->count; i++) {
    const tide__box* const box = &wheel->model->boxes[wheel->part->first_box + i];
    if (chain->offsets[i] + box->height > target) chain->priorities[i] += 0.2f + 0.8f * wheel_chance(chain);
  }
}

// Raises the boxes of the blamed section that still wait.
static void wheel_blame(const tide__squeaky_wheel* wheel, tide__pass_chain* chain) {
  const uint32_t blamed = wheel->part->first_section + chain->pass.blamed;
  const float most = 0.2f + 0.8f * wheel_chance(chain);
  for (uint32_t i = 0; i < wheel->count; i++) {
    const tide__box* const box = &wheel->model->boxes[wheel->part->first_box + i];
    if (box->first > blamed) break;
    if (box->last <= blamed || !tide__greedy_is_left(chain->greedy, i)) continue;
    chain->priorities[i] += most * (0.5f + 0.5f * wheel_chance(chain));
  }
}

static void wheel_choose(const tide__squeaky_wheel* wheel, tide__pass_chain* chain, uint32_t index) {
  const size_t pass = (size_t)chain->passes * wheel->chain_count + index;
  const bool is_idle = chain->idle >= (index < TIDE__SQUEAKY_WHEEL_CHAINS / 2 ? WHEEL_IDLE : WHEEL_RESTLESS);
  if (chain->is_rehearsed) {
    chain->is_rehearsed = false;
  } else if (pass < WHEEL_FIXED) {
    wheel_apply(wheel, chain, &wheel_fixed[pass], 0);
  } else if (!is_idle && chain->pass.blamed != UINT32_MAX) {
    wheel_blame(wheel, chain);
  } else if (!is_idle && chain->pass.height < INT64_MAX) {
    wheel_raise_high(wheel, chain, wheel->part->lower_bound);
  } else {
    wheel_begin_anew(wheel, chain);
  }
}

// ---------------------------------------------------------------------------------------------------
// Rounds

typedef struct wheel_round {
  tide__squeaky_wheel* wheel;
  tide__budget* budget;
  int64_t goal;
  int64_t limit;
  uint32_t chains;  // that have a pass in it
  tide__atomic_u32 winner;
} wheel_round;

static int64_t wheel_critical(const tide__squeaky_wheel* wheel, const tide__pass_chain* chain) {
  if (chain->mix.caution <= 0) return INT64_MAX;
  return wheel->part->lower_bound - (int64_t)(chain->mix.caution * (float)wheel->scale) - 1;
}

static void wheel_run_chain(void* user, uint32_t index) {
  wheel_round* const round = user;
  tide__squeaky_wheel* const wheel = round->wheel;
  tide__pass_chain* const chain = &wheel->chains[index];
  const tide__watch watch = { round->budget, &round->winner, index };
  // If there is no plan at all, the first pass is made to its end whatever the time is.
  const bool is_first = wheel->height == INT64_MAX && index == 0;
  if (!is_first && tide__watch_is_over(&watch)) {
    chain->pass = (tide__pass){ INT64_MAX, UINT32_MAX };
    return;
  }
  wheel_choose(wheel, chain, index);
  chain->passes++;
  const tide__pass_rules rules = {
    chain->priorities, { chain->mix.wall, chain->mix.flush }, wheel_critical(wheel, chain), round->limit
  };
  chain->pass = tide__greedy_run(chain->greedy, &rules, is_first ? NULL : &watch, chain->offsets);
  if (chain->pass.height <= round->goal) tide__watch_win(&round->winner, index);
}

// The chains whose passes the budget pays for, at least one.
static uint32_t wheel_affordable(const tide__squeaky_wheel* wheel, const tide__budget* budget) {
  const uint64_t passes = tide__budget_left(budget) / wheel->count;
  if (passes >= wheel->chain_count) return wheel->chain_count;
  return passes > 0 ? (uint32_t)passes : 1;
}

// Takes over the results of a round, up to the first pass that reached the goal.
static bool wheel_collect(tide__squeaky_wheel* wheel, const wheel_round* round) {
  const uint32_t winner = tide__load_relaxed(&round->winner);
  bool is_better = false;
  for (uint32_t i = 0; i < round->chains && i <= winner; i++) {
    tide__pass_chain* const chain = &wheel->chains[i];
    chain->idle++;
    tide__budget_spend(round->budget, (tide__effort){ wheel->count, 0 });
    if (chain->pass.height >= wheel->height) continue;
    wheel->height = chain->pass.height;
    wheel->best = i;
    memcpy(wheel->offsets, chain->offsets, wheel->count * sizeof *wheel->offsets);
    chain->idle = 0;
    is_better = true;
  }
  return is_better;
}

bool tide__squeaky_wheel_run(tide__squeaky_wheel* wheel, int64_t goal, uint32_t rounds,
                             tide__thread_pool* threads, tide__budget* budget) {
  bool is_better = false;
  for (uint32_t i = 0; i < rounds && wheel->height > goal; i++) {
    if (wheel->rounds > 0 && (tide__budget_is_over(budget) || tide__budget_left(budget) == 0)) break;
    wheel_round round = { .wheel = wheel, .budget = budget, .goal = goal, .winner = UINT32_MAX };
    round.limit = wheel->height < INT64_MAX ? wheel->height - 1 : INT64_MAX;
    round.chains = wheel_affordable(wheel, budget);
    tide__thread_pool_run(threads, round.chains, wheel_run_chain, &round);
    wheel->rounds++;
    if (wheel_collect(wheel, &round)) is_better = true;
    if (wheel->height == INT64_MAX) break;  // not even the first pass found a place for everything
  }
  return is_better;
}
