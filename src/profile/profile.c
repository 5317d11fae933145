// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Creating, freeing and querying profiles.
#include "tidemark/profile.h"

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/sized.h"
#include "profile/run.h"

static bool memory_is_absent(const tide_memory* memory) {
  return memory->alloc == NULL && memory->release == NULL;
}

static bool memory_is_valid(const tide_memory* memory) {
  return memory->alloc != NULL && memory->release != NULL;
}

static tide_status options_check(const tide_profile_options* options) {
  TIDE_REQUIRE((unsigned)options->planner <= TIDE_PROFILE_TOP_FIT, TIDE_ERR_ARGUMENT,
               "profile: there is no planner %d", (int)options->planner);
  TIDE_REQUIRE((unsigned)options->fill <= TIDE_FILL_JUNK, TIDE_ERR_ARGUMENT, "profile: there is no fill %d",
               (int)options->fill);
  TIDE_REQUIRE(tide__is_power_of_two(options->alignment) && options->alignment <= TIDE_PROFILE_MAX_ALIGNMENT,
               TIDE_ERR_ARGUMENT, "profile: the alignment %llu is not a power of two up to 2^20",
               (unsigned long long)options->alignment);
  TIDE_REQUIRE(options->max_plans >= 1 && options->max_plans <= 65536, TIDE_ERR_ARGUMENT,
               "profile: %u plans; there can be 1 to 65536", options->max_plans);
  TIDE_REQUIRE(options->replan_after <= 65536 && options->trim_after <= TIDE__PROFILE_WINDOW_MAX,
               TIDE_ERR_ARGUMENT, "profile: replan_after is %u, up to 65536, and trim_after %u, up to %u",
               options->replan_after, options->trim_after, TIDE__PROFILE_WINDOW_MAX);
  TIDE_REQUIRE(options->tolerance >= 0 && options->tolerance <= 1, TIDE_ERR_ARGUMENT,
               "profile: the tolerance %g is not between 0 and 1", options->tolerance);
  TIDE_REQUIRE(options->plan_nodes != 0, TIDE_ERR_ARGUMENT, "profile: plan_nodes is 0");
  TIDE_REQUIRE(tide__heap_is_valid(options->heap), TIDE_ERR_ARGUMENT, "profile: the heap lacks a function");
  return TIDE_OK;
}

// The memory defaults to that of the C library, and the fallback to the memory.
static tide_status options_complete(tide_profile_options* options) {
  if (memory_is_absent(&options->memory)) options->memory = tide_memory_cpu();
  if (memory_is_absent(&options->fallback)) options->fallback = options->memory;
  TIDE_REQUIRE(memory_is_valid(&options->memory) && memory_is_valid(&options->fallback), TIDE_ERR_ARGUMENT,
               "profile: the memory or the fallback lacks a function");
  TIDE_REQUIRE(options->fill == TIDE_FILL_NOTHING || options->memory.is_host, TIDE_ERR_UNSUPPORTED,
               "profile: memory that the processor cannot write cannot be filled");
  return TIDE_OK;
}

static bool profile_alloc_tables(tide_profile* profile) {
  const tide_profile_options* const options = &profile->options;
  profile->shapes = tide__heap_alloc(profile->heap, options->max_plans, sizeof *profile->shapes);
  bool is_done = profile->shapes != NULL;
  for (int i = 0; i < 2 && options->trim_after != 0; i++) {
    profile->needs[i].numbers = tide__heap_alloc(profile->heap, options->trim_after, sizeof(uint64_t));
    profile->needs[i].window = options->trim_after;
    is_done = is_done && profile->needs[i].numbers != NULL;
  }
  return is_done;
}

tide_status tide_profile_new(const tide_profile_options* options, tide_profile** out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "profile: out is NULL");
  *out = NULL;
  tide_profile_options chosen = TIDE_PROFILE_OPTIONS_INIT;
  if (options != NULL) TIDE_TRY(tide__sized_read("profile_new", options, &chosen, sizeof chosen));
  TIDE_TRY(options_check(&chosen));
  TIDE_TRY(options_complete(&chosen));
  const tide_heap* const heap = tide__heap_or_system(chosen.heap);
  tide_profile* const profile = tide__heap_alloc(heap, 1, sizeof *profile);
  TIDE_REQUIRE(profile != NULL, TIDE_ERR_NO_MEMORY, "no memory for a profile");
  profile->heap = heap;
  profile->options = chosen;
  tide__hash_map_init(&profile->lent, heap);
  tide__mutex_init(&profile->lock, TIDE__RANK_PROFILE);
  tide__list_init(&profile->runs);
  tide__list_init(&profile->idle_runs);
  tide__list_init(&profile->arenas);
  if (!profile_alloc_tables(profile)) {
    tide_profile_free(profile);
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for the tables of a profile");
  }
  *out = profile;
  return TIDE_OK;
}

static void profile_free_runs(tide_profile* profile, tide__link* list) {
  while (!tide__list_is_empty(list)) {
    tide__run* const run = TIDE_OWNER(list->next, tide__run, link);
    const bool is_open = list == &profile->runs;
    tide__list_unlink(&run->link);
    if (is_open && run->arena != NULL) tide__profile_arena_leave(profile, run->arena, false);
    if (is_open && run->escapes != NULL) tide__profile_arena_leave(profile, run->escapes, false);
    tide_profile_plan_free(run->plan);
    tide__overdue_set_fini(&run->overdue, profile->heap);
    tide__recorder_fini(&run->recorder);
    tide__heap_release(profile->heap, run, 1, sizeof *run);
  }
}

static void profile_free_tables(tide_profile* profile) {
  const tide_heap* const heap = profile->heap;
  for (size_t i = 0; i < profile->shape_count; i++) tide_profile_plan_free(profile->shapes[i].plan);
  tide__heap_release(heap, profile->shapes, profile->options.max_plans, sizeof *profile->shapes);
  for (int i = 0; i < 2; i++) {
    tide__heap_release(heap, profile->needs[i].numbers, profile->options.trim_after, sizeof(uint64_t));
  }
}

void tide__profile_drop(tide_profile* profile) {
  if (atomic_fetch_sub_explicit(&profile->orphans, 1, memory_order_acq_rel) != 1)
    return;  // pairs with itself
  tide__hash_map_fini(&profile->lent);
  tide__mutex_fini(&profile->lock);
  tide__heap_release(profile->heap, profile, 1, sizeof *profile);
}

void tide_profile_free(tide_profile* profile) {
  if (profile == NULL) return;
  if (tide_profile_current(profile) != TIDE_PROFILE_NONE) tide__ignore(tide_profile_cancel(profile));
  // A run that a thread left open when it ended.
  profile_free_runs(profile, &profile->runs);
  profile_free_runs(profile, &profile->idle_runs);
  profile_free_tables(profile);
  tide__profile_arenas_trim(profile, true);
  profile->is_freed = true;
  // The profile stays until this is done.
  tide__store_relaxed(&profile->orphans, profile->stats.survivors + profile->lent.count + 1);
  tide__profile_drop(profile);
}

tide_status tide_profile_get_stats(tide_profile* profile, tide_profile_stats* out) {
  TIDE_REQUIRE(profile != NULL, TIDE_ERR_ARGUMENT, "profile_get_stats: the profile is NULL");
  tide__mutex_lock(&profile->lock);
  tide_profile_stats stats = profile->stats;
  stats.plans = profile->shape_count;
  tide__mutex_unlock(&profile->lock);
  return tide__sized_write("profile_get_stats", &stats, out, sizeof stats);
}

bool tide_profile_owns(tide_profile* profile, const void* address) {
  if (profile == NULL) return false;
  tide__mutex_lock(&profile->lock);
  const bool is_ours = tide__profile_arenas_find_locked(profile, address) != NULL;
  tide__mutex_unlock(&profile->lock);
  return is_ours;
}

tide_status tide_profile_trim(tide_profile* profile) {
  TIDE_REQUIRE(profile != NULL, TIDE_ERR_ARGUMENT, "trim: the profile is NULL");
  tide__profile_arenas_trim(profile, true);
  return TIDE_OK;
}
