// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The plans of a profile by shape; they are few, so a linear search is enough. A shape is recorded again
// after several deviating runs in a row. A program that never repeats itself is recorded ever more rarely,
// so that recording does not dominate.
#include "profile/shapes.h"

#include "base/arith.h"
#include "base/error.h"
#include "profile/run.h"

#define SHAPES_PATIENCE_MAX 64u  // times replan_after

static tide__shape* shapes_find_locked(tide_profile* profile, uint64_t shape) TIDE_REQUIRES(&profile->lock) {
  for (size_t i = 0; i < profile->shape_count; i++) {
    if (profile->shapes[i].shape == shape) return &profile->shapes[i];
  }
  return NULL;
}

// The record of a shape; a new one replaces the least recently used. The caller frees the replaced plan, if
// any, without the lock.
static tide__shape* shapes_make_locked(tide_profile* profile, uint64_t shape, tide_profile_plan** out_gone)
    TIDE_REQUIRES(&profile->lock) {
  tide__shape* entry = shapes_find_locked(profile, shape);
  if (entry != NULL) return entry;
  if (profile->shape_count < profile->options.max_plans) {
    entry = &profile->shapes[profile->shape_count++];
  } else {
    entry = &profile->shapes[0];
    for (size_t i = 1; i < profile->shape_count; i++) {
      if (profile->shapes[i].last_run < entry->last_run) entry = &profile->shapes[i];
    }
  }
  *out_gone = entry->plan;
  *entry = (tide__shape){ .shape = shape, .patience = profile->options.replan_after };
  return entry;
}

// Did enough runs in a row deviate from the plan?
static bool shape_is_worn_out(const tide__shape* entry) {
  return entry->patience != 0 && entry->deviations >= entry->patience;
}

tide_status tide__shapes_choose(tide_profile* profile, uint64_t shape, tide_profile_mode mode,
                                tide_profile_mode* out_mode, tide_profile_plan** out_plan) {
  *out_mode = mode;
  *out_plan = NULL;
  if (mode == TIDE_PROFILE_RECORD) return TIDE_OK;
  const bool is_auto = mode == TIDE_PROFILE_AUTO;
  tide__mutex_lock(&profile->lock);
  tide__shape* const entry = shapes_find_locked(profile, shape);
  if (entry != NULL) {
    entry->last_run = profile->run_number;
    if (!is_auto || !shape_is_worn_out(entry)) *out_plan = tide__profile_plan_share(entry->plan);
    else profile->stats.replanned++;
  }
  tide__mutex_unlock(&profile->lock);
  if (is_auto) *out_mode = *out_plan != NULL ? TIDE_PROFILE_REPLAY : TIDE_PROFILE_RECORD;
  TIDE_REQUIRE(is_auto || *out_plan != NULL, TIDE_ERR_HANDLE, "there is no plan for the shape %llu",
               (unsigned long long)shape);
  return TIDE_OK;
}

void tide__shapes_set(tide_profile* profile, uint64_t shape, tide_profile_plan* plan) {
  tide_profile_plan* gone = NULL;
  tide__mutex_lock(&profile->lock);
  tide__shape* const entry = shapes_make_locked(profile, shape, &gone);
  if (entry->plan != NULL) {
    gone = entry->plan;
    const uint64_t most = (uint64_t)profile->options.replan_after * SHAPES_PATIENCE_MAX;
    if (shape_is_worn_out(entry)) entry->patience = (uint32_t)tide__min(2 * (uint64_t)entry->patience, most);
  }
  entry->plan = tide__profile_plan_share(plan);
  entry->deviations = 0;
  entry->last_run = profile->run_number;
  tide__mutex_unlock(&profile->lock);
  tide_profile_plan_free(gone);
}

void tide__shapes_note(tide_profile* profile, uint64_t shape, const tide_profile_plan* plan, bool is_off) {
  tide__mutex_lock(&profile->lock);
  tide__shape* const entry = shapes_find_locked(profile, shape);
  if (entry != NULL && entry->plan == plan) entry->deviations = is_off ? entry->deviations + 1 : 0;
  tide__mutex_unlock(&profile->lock);
}

tide_status tide_profile_set_plan(tide_profile* profile, uint64_t shape, tide_profile_plan* plan) {
  TIDE_REQUIRE(profile != NULL && plan != NULL, TIDE_ERR_ARGUMENT,
               "set_plan: the profile or the plan is NULL");
  tide__shapes_set(profile, shape, plan);
  return TIDE_OK;
}

tide_status tide_profile_get_plan(tide_profile* profile, uint64_t shape, tide_profile_plan** out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "get_plan: out is NULL");
  *out = NULL;
  TIDE_REQUIRE(profile != NULL, TIDE_ERR_ARGUMENT, "get_plan: the profile is NULL");
  tide__mutex_lock(&profile->lock);
  const tide__shape* const entry = shapes_find_locked(profile, shape);
  if (entry != NULL) *out = tide__profile_plan_share(entry->plan);
  tide__mutex_unlock(&profile->lock);
  TIDE_REQUIRE(*out != NULL, TIDE_ERR_HANDLE, "there is no plan for the shape %llu",
               (unsigned long long)shape);
  return TIDE_OK;
}

tide_status tide_profile_clear_plan(tide_profile* profile, uint64_t shape) {
  TIDE_REQUIRE(profile != NULL, TIDE_ERR_ARGUMENT, "clear_plan: the profile is NULL");
  tide_profile_plan* gone = NULL;
  tide__mutex_lock(&profile->lock);
  tide__shape* const entry = shapes_find_locked(profile, shape);
  if (entry != NULL) {
    gone = entry->plan;
    *entry = profile->shapes[--profile->shape_count];
    profile->shapes[profile->shape_count] = (tide__shape){ 0 };
  }
  tide__mutex_unlock(&profile->lock);
  TIDE_REQUIRE(gone != NULL, TIDE_ERR_HANDLE, "there is no plan for the shape %llu",
               (unsigned long long)shape);
  tide_profile_plan_free(gone);
  return TIDE_OK;
}

uint64_t tide_profile_shape(const uint64_t* numbers, size_t count) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325) + count;
  for (size_t i = 0; numbers != NULL && i < count; i++) {
    hash = (hash ^ numbers[i]) * UINT64_C(0xff51afd7ed558ccd);
    hash ^= hash >> 32;
  }
  return hash;
}
