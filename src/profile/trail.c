// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Finding the way back into a plan. A request that has the size of the planned one after the next shows that
// one is missing. Any other that differs is taken for a planned one of another size: then the next fits
// again. If the next has the size of the one whose turn was taken, that one was surplus; if it differs
// altogether, the two are looked for nearby as they follow each other, the nearest first, before (the run has
// made requests that are not planned) and behind (it has left some out). So a surplus or missing request
// mostly costs one hit. Cost: O(TRAIL_REACH) for a request that differs, else O(1).
#include "profile/trail.h"

#define TRAIL_REACH 64u

// Do `before` and `bytes` stand at a position of the plan, one behind the other?
static bool trail_matches(const tide_profile_plan* plan, uint64_t position, uint64_t before, uint64_t bytes) {
  if (position == 0 || position >= plan->info.count) return false;
  return plan->steps[position].bytes == bytes && plan->steps[position - 1].bytes == before;
}

// The nearest such position, or the one given.
static uint64_t trail_search(const tide_profile_plan* plan, uint64_t position, uint64_t before,
                             uint64_t bytes) {
  for (uint64_t distance = 1; distance <= TRAIL_REACH; distance++) {
    if (distance < position && trail_matches(plan, position - distance, before, bytes)) {
      return position - distance;
    }
    if (trail_matches(plan, position + distance, before, bytes)) return position + distance;
  }
  return position;
}

// Where a request stands that does not have the size of the planned one at a position.
static uint64_t trail_look_around(const tide__trail* trail, uint64_t position, uint64_t bytes) {
  const tide_profile_plan* const plan = trail->plan;
  if (!trail->is_lost) {
    const bool is_one_missing = position + 1 < plan->info.count && plan->steps[position + 1].bytes == bytes;
    return is_one_missing ? position + 1 : position;
  }
  if (position > 0 && plan->steps[position - 1].bytes == bytes) return position - 1;
  return trail_search(plan, position, trail->last_bytes, bytes);
}

tide__match tide__trail_find(tide__trail* trail, uint64_t bytes, uint64_t alignment, uint32_t* out) {
  const tide_profile_plan* const plan = trail->plan;
  const uint64_t clock = tide__load_relaxed(&trail->clock);
  uint64_t position = clock - trail->behind;
  // Behind the last planned request stands one of 0 bytes.
  if (plan->steps[position].bytes != bytes) position = trail_look_around(trail, position, bytes);
  const tide__step* const step = &plan->steps[position];
  trail->is_lost = step->bytes != bytes;
  trail->last_bytes = bytes;
  trail->behind = 0;
  if (position >= plan->info.count) return TIDE__MATCH_SURPLUS;
  if (position < clock) {
    trail->behind = (uint32_t)(clock - position - 1);
    return TIDE__MATCH_SURPLUS;
  }
  *out = (uint32_t)position;
  if (bytes > step->bytes || alignment > step->alignment) return TIDE__MATCH_LARGER;
  return bytes == step->bytes ? TIDE__MATCH_PLANNED : TIDE__MATCH_SMALLER;
}
