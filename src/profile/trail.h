// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Where in its plan a run is. As long as requests have the planned sizes that is simply the next one; after a
// request that has not, the trail is found again by two requests in a row that stand so in the plan nearby.
// Time never goes back: a planned request that was passed is not used any more in this run.
#ifndef TIDEMARK_SRC_PROFILE_TRAIL_H
#define TIDEMARK_SRC_PROFILE_TRAIL_H

#include "profile/profile_plan.h"

typedef struct tide__trail {
  const tide_profile_plan* plan;  // borrowed until the run ends
  tide__atomic_u32 clock;         // planned requests that were used or passed; written by the run's thread
  uint32_t
      behind;    // how far before the clock the run is thought to be: it made requests that are not planned
  bool is_lost;  // the last request was not as planned
  uint64_t last_bytes;  // of it
  uint64_t missing;     // planned requests that were passed and not made
} tide__trail;

// What a request is in the plan.
typedef enum tide__match {
  TIDE__MATCH_PLANNED,
  TIDE__MATCH_SMALLER,  // it fits where another was planned
  TIDE__MATCH_LARGER,   // it takes the turn of another, and does not fit
  TIDE__MATCH_SURPLUS,  // it is not in the plan
} tide__match;

static inline void tide__trail_begin(tide__trail* trail, const tide_profile_plan* plan) {
  *trail = (tide__trail){ .plan = plan };
}

// Is everything as planned so far, and so is this request?
static inline bool tide__trail_is_next(const tide__trail* trail, uint64_t bytes, uint64_t alignment) {
  const tide__step* const step = &trail->plan->steps[tide__load_relaxed(&trail->clock)];
  return step->bytes == bytes && alignment <= step->alignment && !trail->is_lost && trail->behind == 0;
}

// Finds a request that is not next. `out` is the planned request whose turn it is, unless SURPLUS; it is not
// before the clock. Changes all but the clock: tide__trail_pass() follows for `out`.
tide__match tide__trail_find(tide__trail* trail, uint64_t bytes, uint64_t alignment, uint32_t* out);

// The turn of a planned request is over; those between the clock and it are missing.
static inline void tide__trail_pass(tide__trail* trail, uint32_t request) {
  trail->missing += request - tide__load_relaxed(&trail->clock);
  tide__store_relaxed(&trail->clock, request + 1);
}

#endif
