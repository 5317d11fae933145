// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Random runs of several kinds, and plans that are checked.
#ifndef TIDEMARK_TESTS_PROFILE_PLANNED_H
#define TIDEMARK_TESTS_PROFILE_PLANNED_H

#include "oracle.h"

// ---------------------------------------------------------------------------------------------------
// Random runs

static const char* const planned_kinds[] = { "short lived", "any lifetime", "stacked",
                                             "few sizes",   "wide",         NULL };

static inline uint64_t planned_size(const char* kind, t_rng* rng) {
  if (strcmp(kind, "few sizes") == 0) return 100 * (1 + t_rng_below(rng, 6));
  if (strcmp(kind, "wide") == 0) return 1 + t_rng_next(rng) % ((uint64_t)1 << t_rng_below(rng, 32));
  return 1 + t_rng_below(rng, 1000);
}

static inline uint64_t planned_lifetime(const char* kind, size_t at, size_t count, t_rng* rng) {
  const uint64_t left = count - at;
  if (strcmp(kind, "short lived") == 0) return at + 1 + t_rng_below(rng, left < 8 ? left : 8);
  if (strcmp(kind, "stacked") == 0) return at < count / 2 ? count - at : at + 1;
  return at + 1 + t_rng_below(rng, left);
}

// One of the kinds; everything is released in its run.
static inline void planned_random(tide_profile_request* out, size_t count, const char* kind, t_rng* rng) {
  for (size_t i = 0; i < count; i++) {
    out[i].bytes = planned_size(kind, rng);
    out[i].alignment = 1;
    out[i].lifetime = planned_lifetime(kind, i, count, rng);
    out[i].offset = t_rng_next(rng);  // which planners ignore
  }
}

// ---------------------------------------------------------------------------------------------------
// Plans

#define PLANNED_NODES 5000  // enough for small runs

static inline tide_profile_plan* planned_new(const tide_profile_request* requests, size_t count,
                                             tide_profile_planner planner) {
  tide_profile_plan_options options = TIDE_PROFILE_PLAN_OPTIONS_INIT;
  tide_profile_plan* plan = NULL;
  options.planner = planner;
  options.nodes = PLANNED_NODES;
  T_OK(tide_profile_plan_new(requests, count, &options, &plan));
  T_CHECK(plan != NULL);
  return plan;
}

// Puts the offsets of a plan into the requests.
static inline void planned_copy(const tide_profile_plan* plan, tide_profile_request* requests, size_t count) {
  T_EQ(tide_profile_plan_describe(plan).count, count);
  for (size_t i = 0; i < count; i++) {
    const tide_profile_request planned = tide_profile_plan_request(plan, i);
    T_EQ(planned.bytes, requests[i].bytes);
    T_EQ(planned.lifetime, requests[i].lifetime);
    requests[i].offset = planned.offset;
  }
}

// Plans, puts the offsets into the requests, looks at them, and returns what the plan says of itself.
static inline tide_profile_plan_info planned_with(tide_profile_request* requests, size_t count,
                                                  tide_profile_planner planner) {
  tide_profile_plan* const plan = planned_new(requests, count, planner);
  const tide_profile_plan_info info = tide_profile_plan_describe(plan);
  planned_copy(plan, requests, count);
  tide_profile_plan_free(plan);
  oracle_expect_sound(requests, count, info.bytes);
  return info;
}

static inline uint64_t planned_bytes(tide_profile_request* requests, size_t count,
                                     tide_profile_planner planner) {
  return planned_with(requests, count, planner).bytes;
}

// That planning is refused as an argument, with a text that has a part.
static inline void planned_expect_refused(const tide_profile_request* requests, size_t count,
                                          const char* part) {
  tide_profile_plan* plan = (tide_profile_plan*)(uintptr_t)1;
  T_STATUS(tide_profile_plan_new(requests, count, NULL, &plan), TIDE_ERR_ARGUMENT);
  T_PTR_EQ(plan, NULL);
  T_STR_HAS(tide_last_error()->text, part);
}

#endif
