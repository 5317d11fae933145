// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Arenas: taken by a run, kept by what survives it, then idle and taken again. An arena has the size that the
// largest of the last runs needed, so that shapes that take turns share one, and one large run is forgotten
// after a while. The memory is never called with the lock held. Few arenas exist at a time: one for each open
// run, those of survivors, and the ring of those for what escapes.
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "profile/run.h"

static bool arena_is_idle(const tide__arena* arena) { return arena->run == NULL && arena->survivors == 0; }

static tide__arena* arena_of(tide__link* link) { return TIDE_OWNER(link, tide__arena, link); }

static void arena_free(tide_profile* profile, tide__arena* arena) {
  const tide_memory* const memory = &profile->options.memory;
  if (arena->base != NULL) tide__ignore(memory->release(memory, arena->base));
  tide_profile_plan_free(arena->plan);
  tide__heap_release(profile->heap, arena->held, arena->held_capacity, sizeof *arena->held);
  tide__heap_release(profile->heap, arena, 1, sizeof *arena);
}

static void arenas_free_list(tide_profile* profile, tide__link* list) {
  while (!tide__list_is_empty(list)) {
    tide__arena* const arena = arena_of(list->next);
    tide__list_unlink(&arena->link);
    arena_free(profile, arena);
  }
}

// Moves an arena out of the profile, to be freed when the lock is given back.
static void arena_withdraw_locked(tide_profile* profile, tide__arena* arena, tide__link* list)
    TIDE_REQUIRES(&profile->lock) {
  tide__list_unlink(&arena->link);
  tide__list_append(list, &arena->link);
  profile->stats.arenas--;
  profile->stats.arena_bytes -= arena->bytes;
}

// ---------------------------------------------------------------------------------------------------
// Taking

// Notes what a run needs and returns the most that one of the last runs did.
static uint64_t needs_note_locked(tide_profile* profile, bool is_escape, uint64_t bytes)
    TIDE_REQUIRES(&profile->lock) {
  const uint32_t window = profile->options.trim_after;
  if (window == 0) return bytes;
  tide__needs* const needs = &profile->needs[is_escape];
  uint64_t* const ring = needs->bytes;
  ring[needs->count++ % window] = bytes;
  uint64_t most = 0;
  for (uint32_t i = 0; i < window; i++) most = tide__max(most, ring[i]);
  return most;
}

typedef struct arena_need {
  uint64_t bytes;
  uint64_t most;  // that the last runs needed
  uint64_t alignment;
  bool is_escape;
} arena_need;

// The smallest idle arena that will do and is not larger than the last runs needed, or NULL.
static tide__arena* arenas_find_idle_locked(tide_profile* profile, const arena_need* need)
    TIDE_REQUIRES(&profile->lock) {
  const uint64_t most = profile->options.trim_after != 0 ? need->most : UINT64_MAX;
  tide__arena* best = NULL;
  TIDE_LIST_EACH(it, &profile->arenas) {
    tide__arena* const arena = arena_of(it);
    const bool will_do = arena_is_idle(arena) && arena->is_escape == need->is_escape &&
                         arena->bytes >= need->bytes && arena->bytes <= most &&
                         tide__is_aligned(tide__address(arena->base), need->alignment);
    if (will_do && (best == NULL || arena->bytes < best->bytes)) best = arena;
  }
  return best;
}

// Idle arenas of a kind that will not do make room for a new one; returns how many of that kind are left.
static uint32_t arenas_withdraw_idle_locked(tide_profile* profile, bool is_escape, tide__link* list)
    TIDE_REQUIRES(&profile->lock) {
  uint32_t left = 0;
  for (tide__link* it = profile->arenas.next; it != &profile->arenas;) {
    tide__arena* const arena = arena_of(it);
    it = it->next;
    if (arena->is_escape != is_escape) continue;
    if (arena_is_idle(arena)) arena_withdraw_locked(profile, arena, list);
    else left++;
  }
  return left;
}

static tide_status arena_new(tide_profile* profile, const arena_need* need, tide__arena** out) {
  const tide_memory* const memory = &profile->options.memory;
  tide__arena* const arena = tide__heap_alloc(profile->heap, 1, sizeof *arena);
  TIDE_REQUIRE(arena != NULL, TIDE_ERR_NO_MEMORY, "no memory for the record of an arena");
  tide__list_init(&arena->link);
  arena->is_escape = need->is_escape;
  arena->bytes = need->most;
  void* base = NULL;
  tide_status status = memory->alloc(memory, arena->bytes, need->alignment, &base);
  if (status != TIDE_OK && need->most != need->bytes) {
    arena->bytes = need->bytes;
    status = memory->alloc(memory, arena->bytes, need->alignment, &base);
  }
  arena->base = status == TIDE_OK ? base : NULL;
  if (status != TIDE_OK) {
    arena_free(profile, arena);
    return status;
  }
  *out = arena;
  return TIDE_OK;
}

static void arena_enter_locked(tide_profile* profile, tide__arena* arena, tide__run* run)
    TIDE_REQUIRES(&profile->lock) {
  arena->run = run;
  arena->last_run = profile->run_number;
}

static void arena_add_locked(tide_profile* profile, tide__arena* arena) TIDE_REQUIRES(&profile->lock) {
  tide_profile_stats* const stats = &profile->stats;
  tide__list_append(&profile->arenas, &arena->link);
  stats->arenas++;
  stats->arena_allocs++;
  stats->arena_bytes += arena->bytes;
  stats->arena_bytes_peak = tide__max(stats->arena_bytes_peak, stats->arena_bytes);
}

// Finds or makes an arena, which is then in use by the run; NULL if there are enough.
static tide_status arenas_acquire(tide_profile* profile, tide__run* run, arena_need need, tide__arena** out) {
  tide__link unfit;
  tide__list_init(&unfit);
  tide__mutex_lock(&profile->lock);
  need.most = needs_note_locked(profile, need.is_escape, need.bytes);
  tide__arena* arena = arenas_find_idle_locked(profile, &need);
  uint32_t others = 0;
  if (arena != NULL) arena_enter_locked(profile, arena, run);
  else others = arenas_withdraw_idle_locked(profile, need.is_escape, &unfit);
  tide__mutex_unlock(&profile->lock);
  arenas_free_list(profile, &unfit);
  const bool is_enough = need.is_escape && others >= profile->options.escape_arenas;
  if (arena == NULL && !is_enough) {
    TIDE_TRY(arena_new(profile, &need, &arena));
    tide__mutex_lock(&profile->lock);
    arena_add_locked(profile, arena);
    arena_enter_locked(profile, arena, run);
    tide__mutex_unlock(&profile->lock);
  }
  *out = arena;
  return TIDE_OK;
}

// The table of what is held must have room for all places; it is empty when an arena is taken.
static tide_status arena_make_room(tide_profile* profile, tide__arena* arena, size_t places) {
  if (places <= arena->held_capacity) return TIDE_OK;
  tide__atomic_u64* const held = tide__heap_alloc(profile->heap, places, sizeof *held);
  TIDE_REQUIRE(held != NULL, TIDE_ERR_NO_MEMORY, "no memory for %zu places of an arena", places);
  tide__heap_release(profile->heap, arena->held, arena->held_capacity, sizeof *arena->held);
  arena->held = held;
  arena->held_capacity = places;
  return TIDE_OK;
}

tide_status tide__arenas_take(tide_profile* profile, tide__run* run, bool is_escape, tide__arena** out) {
  tide_profile_plan* const plan = run->plan;
  const arena_need need = { .bytes = is_escape ? plan->info.escape_bytes : plan->info.bytes,
                            .alignment = tide__max(plan->info.alignment, profile->options.alignment),
                            .is_escape = is_escape };
  *out = NULL;
  if (need.bytes == 0 || (is_escape && profile->options.escape_arenas == 0)) return TIDE_OK;
  tide__arena* arena = NULL;
  TIDE_TRY(arenas_acquire(profile, run, need, &arena));
  if (arena == NULL) return TIDE_OK;
  const tide__places* const places = is_escape ? &plan->escaping : &plan->managed;
  const tide_status status = arena_make_room(profile, arena, tide__places_count(places));
  if (status != TIDE_OK) {
    tide__arena_leave(profile, arena, true);
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

static uint64_t arena_count_held(const tide__arena* arena) {
  uint64_t count = 0;
  for (size_t i = 0; arena->places != NULL && i < tide__places_count(arena->places); i++) {
    count += tide__load_relaxed(&arena->held[i]) != 0;
  }
  return count;
}

// Nothing lies in it any more; the lock is held.
static tide_profile_plan* arena_rest(tide__arena* arena) {
  tide_profile_plan* const plan = arena->plan;
  arena->plan = NULL;
  arena->places = NULL;
  return plan;
}

uint64_t tide__arena_leave(tide_profile* profile, tide__arena* arena, bool is_clean) {
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

tide_profile_plan* tide__arena_end_survivor_locked(tide_profile* profile, tide__arena* arena) {
  profile->stats.survivors--;
  return --arena->survivors == 0 ? arena_rest(arena) : NULL;
}

tide__arena* tide__arenas_find_locked(tide_profile* profile, const void* address) {
  TIDE_LIST_EACH(it, &profile->arenas) {
    tide__arena* const arena = arena_of(it);
    if (tide__address(address) - tide__address(arena->base) < arena->bytes) return arena;
  }
  return NULL;
}

void tide__arenas_trim(tide_profile* profile, bool is_all) {
  const uint32_t window = profile->options.trim_after;
  tide__link unused;
  tide__list_init(&unused);
  tide__mutex_lock(&profile->lock);
  for (tide__link* it = profile->arenas.next; it != &profile->arenas;) {
    tide__arena* const arena = arena_of(it);
    it = it->next;
    const bool is_old = window != 0 && profile->run_number - arena->last_run > window;
    if (arena_is_idle(arena) && (is_all || is_old)) arena_withdraw_locked(profile, arena, &unused);
  }
  tide__mutex_unlock(&profile->lock);
  arenas_free_list(profile, &unused);
}
