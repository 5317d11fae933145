// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Resynchronises with a plan after a request of another size than planned.
//
// If it has the size of the planned request after the next, one is missing. Otherwise it counts as the
// planned request with another size, and the next request decides. If that has the size of the one just
// passed, the request before was surplus. If it also differs, the two are searched nearby in the plan, the
// nearest first: before the clock (the run made unplanned requests) and after it (the run skipped some). So
// a surplus or missing request mostly costs one hit. Cost: O(CURSOR_REACH) for a request that differs, else
// O(1).
#include "profile/plan_cursor.h"

#define CURSOR_REACH 64u

// Do `before` and `bytes` follow each other at a position of the plan?
static bool cursor_matches(const tide_profile_plan* plan, uint64_t position, uint64_t before,
                           uint64_t bytes) {
  if (position == 0 || position >= plan->info.count) return false;
  return plan->steps[position].bytes == bytes && plan->steps[position - 1].bytes == before;
}

// The nearest such position, or the one given.
static uint64_t cursor_search(const tide_profile_plan* plan, uint64_t position, uint64_t before,
                              uint64_t bytes) {
  for (uint64_t distance = 1; distance <= CURSOR_REACH; distance++) {
    if (distance < position && cursor_matches(plan, position - distance, before, bytes)) {
      return position - distance;
    }
    if (cursor_matches(plan, position + distance, before, bytes)) return position + distance;
  }
  return position;
}

// The position of a request whose size differs from the planned one.
static uint64_t cursor_look_around(const tide__plan_cursor* cursor, uint64_t position, uint64_t bytes) {
  const tide_profile_plan* const plan = cursor->plan;
  if (!cursor->is_lost) {
    const bool is_one_missing = position + 1 < plan->info.count && plan->steps[position + 1].bytes == bytes;
    return is_one_missing ? position + 1 : position;
  }
  if (position > 0 && plan->steps[position - 1].bytes == bytes) return position - 1;
  return cursor_search(plan, position, cursor->last_bytes, bytes);
}

tide__match tide__plan_cursor_find(tide__plan_cursor* cursor, uint64_t bytes, uint64_t alignment,
                                   uint32_t* out) {
  const tide_profile_plan* const plan = cursor->plan;
  const uint64_t clock = tide__load_relaxed(&cursor->clock);
  uint64_t position = clock - cursor->behind;
  // The last planned request is followed by one of 0 bytes.
  if (plan->steps[position].bytes != bytes) position = cursor_look_around(cursor, position, bytes);
  const tide__step* const step = &plan->steps[position];
  cursor->is_lost = step->bytes != bytes;
  cursor->last_bytes = bytes;
  cursor->behind = 0;
  if (position >= plan->info.count) return TIDE__MATCH_SURPLUS;
  if (position < clock) {
    cursor->behind = (uint32_t)(clock - position - 1);
    return TIDE__MATCH_SURPLUS;
  }
  *out = (uint32_t)position;
  if (bytes > step->bytes || alignment > step->alignment) return TIDE__MATCH_LARGER;
  return bytes == step->bytes ? TIDE__MATCH_PLANNED : TIDE__MATCH_SMALLER;
}
