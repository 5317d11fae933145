// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The arenas of a profile. A run takes an arena, survivors of the run keep it, then it is idle until
// another run takes it. memory/arena.h decides its size. The memory is never called with the lock held.
// There are few arenas at a time: one per open run, those with survivors, and some for escapes.
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "profile/run.h"

static bool arena_is_idle(const tide__profile_arena* arena) {
  return arena->run == NULL && arena->survivors == 0;
}

static tide__profile_arena* arena_of(tide__link* link) { return TIDE_OWNER(link, tide__profile_arena, link); }

static void arena_free(tide_profile* profile, tide__profile_arena* arena) {
  tide__arena_memory_release(&arena->memory, &profile->options.memory);
  tide_profile_plan_free(arena->plan);
  tide__heap_release(profile->heap, arena->held, arena->held_capacity, sizeof *arena->held);
  tide__heap_release(profile->heap, arena, 1, sizeof *arena);
}

static void arenas_free_list(tide_profile* profile, tide__link* list) {
  while (!tide__list_is_empty(list)) {
    tide__profile_arena* const arena = arena_of(list->next);
    tide__list_unlink(&arena->link);
    arena_free(profile, arena);
  }
}

// Moves an arena out of the profile, to be freed when the lock is given back.
static void arena_withdraw_locked(tide_profile* profile, tide__profile_arena* arena, tide__link* list)
    TIDE_REQUIRES(&profile->lock) {
  tide__list_unlink(&arena->link);
  tide__list_append(list, &arena->link);
  profile->stats.arenas--;
  profile->stats.arena_bytes -= arena->memory.bytes;
}

// ---------------------------------------------------------------------------------------------------
// Taking

// Records what a run needs, and sets the most that the last runs needed.
static void need_note_locked(tide_profile* profile, bool is_escape, tide__arena_need* need)
    TIDE_REQUIRES(&profile->lock) {
  need->most = need->bytes;
  if (profile->options.trim_after == 0) return;
  need->most = tide__recent_max_add(&profile->needs[is_escape], need->bytes);
}

// The smallest idle arena that fits a run, or NULL. Without trimming, no arena is too large.
static tide__profile_arena* arenas_find_idle_locked(tide_profile* profile, bool is_escape,
                                                    tide__arena_need need) TIDE_REQUIRES(&profile->lock) {
  if (profile->options.trim_after == 0) need.most = UINT64_MAX;
  tide__profile_arena* best = NULL;
  TIDE_LIST_EACH(it, &profile->arenas) {
    tide__profile_arena* const arena = arena_of(it);
    const bool will_do = arena_is_idle(arena) && arena->is_escape == is_escape &&
                         tide__arena_memory_fits(&arena->memory, &need);
    if (will_do && (best == NULL || arena->memory.bytes < best->memory.bytes)) best = arena;
  }
  return best;
}

// Withdraws the idle arenas of a kind, none of which fits; returns how many of that kind are left.
static uint32_t arenas_withdraw_idle_locked(tide_profile* profile, bool is_escape, tide__link* list)
    TIDE_REQUIRES(&profile->lock) {
  uint32_t left = 0;
  for (tide__link* it = profile->arenas.next; it != &profile->arenas;) {
    tide__profile_arena* const arena = arena_of(it);
    it = it->next;
    if (arena->is_escape != is_escape) continue;
    if (arena_is_idle(arena)) arena_withdraw_locked(profile, arena, list);
    else left++;
  }
  return left;
}

static tide_status arena_new(tide_profile* profile, bool is_escape, const tide__arena_need* need,
                             tide__profile_arena** out) {
  tide__profile_arena* const arena = tide__heap_alloc(profile->heap, 1, sizeof *arena);
  TIDE_REQUIRE(arena != NULL, TIDE_ERR_NO_MEMORY, "no memory for the record of an arena");
  tide__list_init(&arena->link);
  arena->is_escape = is_escape;
  const tide_status status = tide__arena_memory_alloc(&arena->memory, &profile->options.memory, need);
  if (status == TIDE_OK) *out = arena;
  else arena_free(profile, arena);
  return status;
}

static void arena_enter_locked(tide_profile* profile, tide__profile_arena* arena, tide__run* run)
    TIDE_REQUIRES(&profile->lock) {
  arena->run = run;
  arena->last_run = profile->run_number;
}

static void arena_add_locked(tide_profile* profile, tide__profile_arena* arena)
    TIDE_REQUIRES(&profile->lock) {
  tide_profile_stats* const stats = &profile->stats;
  tide__list_append(&profile->arenas, &arena->link);
  stats->arenas++;
  stats->arena_allocs++;
  stats->arena_bytes += arena->memory.bytes;
  stats->arena_bytes_peak = tide__max(stats->arena_bytes_peak, stats->arena_bytes);
}

// Finds or makes an arena for the run; NULL if the limit of escape arenas is reached.
static tide_status arenas_acquire(tide_profile* profile, tide__run* run, bool is_escape,
                                  tide__arena_need need, tide__profile_arena** out) {
  tide__link unfit;
  tide__list_init(&unfit);
  tide__mutex_lock(&profile->lock);
  need_note_locked(profile, is_escape, &need);
  tide__profile_arena* arena = arenas_find_idle_locked(profile, is_escape, need);
  uint32_t others = 0;
  if (arena != NULL) arena_enter_locked(profile, arena, run);
  else others = arenas_withdraw_idle_locked(profile, is_escape, &unfit);
  tide__mutex_unlock(&profile->lock);
  arenas_free_list(profile, &unfit);
  const bool is_enough = is_escape && others >= profile->options.escape_arenas;
  if (arena == NULL && !is_enough) {
    TIDE_TRY(arena_new(profile, is_escape, &need, &arena));
    tide__mutex_lock(&profile->lock);
    arena_add_locked(profile, arena);
    arena_enter_locked(profile, arena, run);
    tide__mutex_unlock(&profile->lock);
  }
  *out = arena;
  return TIDE_OK;
}

// Makes room for all places in `held`, which is empty when an arena is taken.
static tide_status arena_make_room(tide_profile* profile, tide__profile_arena* arena, size_t places) {
  if (places <= arena->held_capacity) return TIDE_OK;
  tide__atomic_u64* const held = tide__heap_alloc(profile->heap, places, sizeof *held);
  TIDE_REQUIRE(held != NULL, TIDE_ERR_NO_MEMORY, "no memory for %zu places of an arena", places);
  tide__heap_release(profile->heap, arena->held, arena->held_capacity, sizeof *arena->held);
  arena->held = held;
  arena->held_capacity = places;
  return TIDE_OK;
}

tide_status tide__profile_arenas_take(tide_profile* profile, tide__run* run, bool is_escape,
                                      tide__profile_arena** out) {
  tide_profile_plan* const plan = run->plan;
  const tide__arena_need need = { .bytes = is_escape ? plan->info.escape_bytes : plan->info.bytes,
                                  .alignment = tide__max(plan->info.alignment, profile->options.alignment) };
  *out = NULL;
  if (need.bytes == 0 || (is_escape && profile->options.escape_arenas == 0)) return TIDE_OK;
  tide__profile_arena* arena = NULL;
  TIDE_TRY(arenas_acquire(profile, run, is_escape, need, &arena));
  if (arena == NULL) return TIDE_OK;
  const tide__places* const places = is_escape ? &plan->escaping : &plan->managed;
  const tide_status status = arena_make_room(profile, arena, tide__places_count(places));
  if (status != TIDE_OK) {
    tide__profile_arena_leave(profile, arena, true);
    return status;
  }
  // Other threads read these under the lock, and only when an address lies in the arena.
  tide__mutex_lock(&profile->lock);
  arena->places = places;
  arena->plan = tide__profile_plan_share(plan);
  tide__mutex_unlock(&profile->lock);
  *out = arena;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Leaving

static uint64_t arena_count_held(const tide__profile_arena* arena) {
  uint64_t count = 0;
  for (size_t i = 0; arena->places != NULL && i < tide__places_count(arena->places); i++) {
    count += tide__load_relaxed(&arena->held[i]) != 0;
  }
  return count;
}

// The arena is empty. The lock is held.
static tide_profile_plan* arena_rest(tide__profile_arena* arena) {
  tide_profile_plan* const plan = arena->plan;
  arena->plan = NULL;
  arena->places = NULL;
  return plan;
}

uint64_t tide__profile_arena_leave(tide_profile* profile, tide__profile_arena* arena, bool is_clean) {
  tide_profile_plan* plan = NULL;
  tide__mutex_lock(&profile->lock);
  arena->run = NULL;
  const uint64_t survivors = is_clean ? 0 : arena_count_held(arena);
  arena->survivors = survivors;
  profile->stats.survivors += survivors;
  if (survivors == 0) plan = arena_rest(arena);
  tide__mutex_unlock(&profile->lock);
  tide_profile_plan_free(plan);
  return survivors;
}

tide_profile_plan* tide__profile_arena_end_survivor_locked(tide_profile* profile,
                                                           tide__profile_arena* arena) {
  profile->stats.survivors--;
  return --arena->survivors == 0 ? arena_rest(arena) : NULL;
}

tide__profile_arena* tide__profile_arenas_find_locked(tide_profile* profile, const void* address) {
  TIDE_LIST_EACH(it, &profile->arenas) {
    tide__profile_arena* const arena = arena_of(it);
    if (tide__arena_memory_has(&arena->memory, address)) return arena;
  }
  return NULL;
}

void tide__profile_arenas_trim(tide_profile* profile, bool is_all) {
  const uint32_t window = profile->options.trim_after;
  tide__link unused;
  tide__list_init(&unused);
  tide__mutex_lock(&profile->lock);
  for (tide__link* it = profile->arenas.next; it != &profile->arenas;) {
    tide__profile_arena* const arena = arena_of(it);
    it = it->next;
    const bool is_old = window != 0 && profile->run_number - arena->last_run > window;
    if (arena_is_idle(arena) && (is_all || is_old)) arena_withdraw_locked(profile, arena, &unused);
  }
  tide__mutex_unlock(&profile->lock);
  arenas_free_list(profile, &unused);
}
