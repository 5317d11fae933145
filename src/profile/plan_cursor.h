// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The position of a run in its plan. While requests have the planned sizes, it is the next one. After
// another size, two consecutive requests that occur nearby in the plan restore the position. It never goes
// back: a planned request that was skipped is not used again in this run.
#ifndef TIDEMARK_SRC_PROFILE_PLAN_CURSOR_H
#define TIDEMARK_SRC_PROFILE_PLAN_CURSOR_H

#include "profile/profile_plan.h"

typedef struct tide__plan_cursor {
  const tide_profile_plan* plan;  // borrowed until the run ends
  tide__atomic_u32 clock;         // planned requests used or skipped; written by the run's thread
  uint32_t behind;                // how far the run seems to lag the clock, after unplanned requests
  bool is_lost;                   // the last request was not as planned
  uint64_t last_bytes;            // of it
  uint64_t missing;               // planned requests that were skipped
} tide__plan_cursor;

// How a request matches the plan.
typedef enum tide__match {
  TIDE__MATCH_PLANNED,
  TIDE__MATCH_SMALLER,  // it fits in the place of the planned one
  TIDE__MATCH_LARGER,   // it does not fit in the place of the planned one
  TIDE__MATCH_SURPLUS,  // it is not in the plan
} tide__match;

static inline void tide__plan_cursor_begin(tide__plan_cursor* cursor, const tide_profile_plan* plan) {
  *cursor = (tide__plan_cursor){ .plan = plan };
}

// Has everything gone as planned, including this request?
static inline bool tide__plan_cursor_is_next(const tide__plan_cursor* cursor, uint64_t bytes,
                                             uint64_t alignment) {
  const tide__step* const step = &cursor->plan->steps[tide__load_relaxed(&cursor->clock)];
  return step->bytes == bytes && alignment <= step->alignment && !cursor->is_lost && cursor->behind == 0;
}

// Matches a request that is not the next planned one. `out` is the planned request that it stands for, at
// or after the clock, unless SURPLUS. Changes everything but the clock; call tide__plan_cursor_pass() for
// `out` afterwards.
tide__match tide__plan_cursor_find(tide__plan_cursor* cursor, uint64_t bytes, uint64_t alignment,
                                   uint32_t* out);

// Moves the clock past a planned request; those in between are missing.
static inline void tide__plan_cursor_pass(tide__plan_cursor* cursor, uint32_t request) {
  cursor->missing += request - tide__load_relaxed(&cursor->clock);
  tide__store_relaxed(&cursor->clock, request + 1);
}

#endif
