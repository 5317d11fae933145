// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A plan as replay uses it: one record per request, in order.
#ifndef TIDEMARK_SRC_PROFILE_PROFILE_PLAN_H
#define TIDEMARK_SRC_PROFILE_PROFILE_PLAN_H

#include "base/atomic.h"
#include "base/hash_map.h"
#include "tidemark/profile.h"

#define TIDE__STEP_NEVER UINT32_MAX
#define TIDE__NO_PLACE UINT32_MAX

// One request. The last is followed by one of 0 bytes, which matches no request and is never released, and
// by one whose `ending` is the end of all.
typedef struct tide__step {
  uint64_t bytes;
  uint64_t offset;
  uint32_t lifetime;  // TIDE__STEP_NEVER: it lies in the escape arena
  uint32_t place;     // among the offsets of its arena
  uint32_t ending;    // the first in `endings` that ends just before this request
  uint32_t alignment;
} tide__step;

// A request that ends, and its offset. The last is followed by one with an invalid offset.
typedef struct tide__ending {
  uint64_t offset;
  uint32_t request;
  uint32_t place;
} tide__ending;

// The distinct offsets of an arena, each with a number: its place.
typedef struct tide__places {
  tide__hash_map map;  // from an offset to its place + 1
} tide__places;

struct tide_profile_plan {
  const tide_heap* heap;    // borrowed until the plan is freed
  tide__atomic_u32 shares;  // references
  tide__step* steps;        // owned; count + 2
  tide__ending* endings;    // owned; managed + 1, in the order in which they were released
  tide__places managed;
  tide__places escaping;
  tide_profile_plan_info info;
};

// Takes another reference to a plan.
tide_profile_plan* tide__profile_plan_share(tide_profile_plan* plan);

// As tide_profile_plan_new(). `releases` are the managed requests in the order of their releases, which
// replay then expects; NULL: requests of one lifetime in numerical order.
tide_status tide__profile_plan_new_ordered(const tide_profile_request* requests, const uint32_t* releases,
                                           size_t count, const tide_profile_plan_options* options,
                                           tide_profile_plan** out);

// Makes a plan from requests with verified offsets.
tide_status tide__profile_plan_make(const tide_profile_request* requests, const uint32_t* releases,
                                    size_t count, tide_profile_planner planner, const tide_heap* heap,
                                    tide_profile_plan** out);

static inline size_t tide__places_count(const tide__places* places) { return places->map.count; }

// The place at an offset, or TIDE__NO_PLACE.
static inline uint32_t tide__places_find(const tide__places* places, uint64_t offset) {
  return (uint32_t)tide__hash_map_find(&places->map, offset) - 1;
}

#endif
