// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Replays one run. Each planned request is unused, live or done. Before a request is served, the requests
// that should have ended by then are checked, unless counting releases is enough. One that is still held is
// late, and no request is placed over it. So two live blocks never overlap: those that are not late were
// planned apart, and late ones are looked up.
//
// The planned case is inline in run.h. O(1) there; O(log n) for n late blocks here.
#include "base/arith.h"
#include "base/error.h"
#include "profile/run.h"

// Records the first deviation.
static void run_note_first(tide__run* run, uint32_t clock) {
  if (run->report.first == UINT64_MAX) run->report.first = clock;
}

static void run_count_refused(tide__run* run, uint32_t clock) {
  run_note_first(run, clock);
  run->report.refused++;
}

// ---------------------------------------------------------------------------------------------------
// Requests

static void replay_note_late(tide__run* run, tide__ending ending) {
  const tide__step* const step = &run->plan->steps[ending.request];
  const tide__overdue late = { .node = { .key = step->offset },
                               .end = step->offset + step->bytes,
                               .request = ending.request };
  const size_t places = tide__places_count(&run->plan->managed);
  // Without memory to track it, the arena serves nothing more.
  if (!tide__overdue_set_add(&run->overdue, run->profile->heap, places, ending.place, late))
    run->is_blind = true;
}

// Marks requests as late that should have ended between two positions of the plan and are still held.
static void replay_look(tide__run* run, uint32_t first, uint32_t end) {
  for (uint32_t i = first; i < end; i++) {
    const tide__ending ending = run->plan->endings[i];
    // pairs with the store in tide__replay_release_locked, so that the next owner sees earlier writes
    const uint64_t holder = tide__load_acquire(&run->arena->held[ending.place]);
    if ((uint32_t)holder == ending.request + 1) replay_note_late(run, ending);
  }
}

// Moves time up to `request`; see tide__replay_alloc_plain() for why counting may be enough.
static void replay_advance(tide__run* run, uint32_t request) {
  const tide__step* const steps = run->plan->steps;
  const uint32_t end = steps[request + 1].ending;
  if (run->released != end || run->is_irregular) {
    replay_look(run, steps[tide__load_relaxed(&run->cursor.clock)].ending, end);
  }
  run->next_ending = end;
}

// Does a late block overlap the memory of a step? Blocks that other threads have released meanwhile do not
// count.
static bool replay_is_blocked(tide__run* run, const tide__step* step) {
  for (;;) {
    const uint32_t place = tide__overdue_set_find(&run->overdue, step->offset, step->bytes);
    if (place == UINT32_MAX) return false;
    const uint64_t holder = tide__load_acquire(&run->arena->held[place]);  // pairs as above
    if ((uint32_t)holder == run->overdue.by_place[place].request + 1) return true;
    tide__overdue_set_remove(&run->overdue, place);
  }
}

// Serves a request that escapes, or that comes while another is late.
static bool replay_take_rare(tide__run* run, uint32_t request) {
  const tide__step* const step = &run->plan->steps[request];
  if (step->lifetime == TIDE__STEP_NEVER) {
    run->report.escaped += run->escapes == NULL;
    return run->escapes != NULL;
  }
  if (!run->is_blind && !replay_is_blocked(run, step)) return true;
  run_note_first(run, request);
  run->report.blocked++;
  return false;
}

// Serves a planned request from the arena; false: the fallback must.
static bool replay_take(tide__run* run, uint32_t request, void** out) {
  replay_advance(run, request);
  const tide__step* const step = &run->plan->steps[request];
  const bool escapes = step->lifetime == TIDE__STEP_NEVER;
  const bool is_rare = escapes || run->overdue.count != 0 || run->is_blind;
  tide__plan_cursor_pass(&run->cursor, request);
  if (is_rare && !replay_take_rare(run, request)) return false;
  const tide__profile_arena* const arena = escapes ? run->escapes : run->arena;
  tide__store_relaxed(&arena->held[step->place], tide__holder(request, step->lifetime));
  run->taken_escaping += escapes;
  run->taken += !escapes;
  *out = arena->memory.base + step->offset;
  return true;
}

static void run_count_match(tide__run* run, tide__match match, uint32_t clock) {
  if (match == TIDE__MATCH_PLANNED) return;
  run_note_first(run, clock);
  if (match == TIDE__MATCH_SMALLER) run->report.smaller++;
  if (match == TIDE__MATCH_LARGER) run->report.larger++;
  if (match == TIDE__MATCH_SURPLUS) run->report.surplus++;
}

// Records the first request that differs from the planned one.
static void run_note_sizes(tide__run* run, uint32_t clock, uint64_t bytes) {
  if (run->report.first_actual != 0) return;
  run->report.first_planned = run->plan->steps[clock].bytes;
  run->report.first_actual = bytes;
}

// Handles a request that is not the next planned one.
static tide_status replay_find(tide__run* run, uint64_t bytes, uint64_t alignment, void** out) {
  const uint32_t clock = tide__load_relaxed(&run->cursor.clock);
  if (run->profile->options.is_strict) {
    run_count_refused(run, clock);
    run_note_sizes(run, clock, bytes);
  }
  TIDE_REQUIRE(!run->profile->options.is_strict, TIDE_ERR_STATE,
               "request %u has %llu bytes at %llu where the plan of %zu has %llu at %u", clock,
               (unsigned long long)bytes, (unsigned long long)alignment, run->plan->info.count,
               (unsigned long long)run->plan->steps[clock].bytes, run->plan->steps[clock].alignment);
  uint32_t request = 0;
  const tide__match match = tide__plan_cursor_find(&run->cursor, bytes, alignment, &request);
  if (match != TIDE__MATCH_SURPLUS && request != clock) run_note_first(run, clock);
  if (match != TIDE__MATCH_PLANNED || request != clock) run_note_sizes(run, clock, bytes);
  const bool may_fit = match == TIDE__MATCH_PLANNED || match == TIDE__MATCH_SMALLER;
  run_count_match(run, match, clock);
  if (may_fit) replay_take(run, request, out);
  if (match == TIDE__MATCH_LARGER) {
    replay_advance(run, request);
    tide__plan_cursor_pass(&run->cursor, request);
  }
  return TIDE_OK;
}

// Checks whether counting releases is enough from now on.
static void run_judge(tide__run* run) {
  run->is_plain = run->arena != NULL && !run->is_irregular && !run->is_blind && run->overdue.count == 0 &&
                  !run->cursor.is_lost && run->cursor.behind == 0;
}

void tide__replay_begin(tide__run* run) {
  run->steps = run->plan->steps;
  run->endings = run->plan->endings;
  run->held = run->arena != NULL ? run->arena->held : NULL;
  run->base = run->arena != NULL ? run->arena->memory.base : NULL;
  run_judge(run);
}

tide_status tide__replay_alloc(tide__run* run, uint64_t bytes, uint64_t alignment, void** out) {
  tide_status status = TIDE_OK;
  if (tide__plan_cursor_is_next(&run->cursor, bytes, alignment)) {
    replay_take(run, tide__load_relaxed(&run->cursor.clock), out);
  } else {
    status = replay_find(run, bytes, alignment, out);
  }
  run_judge(run);
  return status;
}

uint32_t tide__replay_compare(tide__run* run, uint64_t bytes, uint64_t alignment) {
  const uint32_t clock = tide__load_relaxed(&run->cursor.clock);
  uint32_t request = clock;
  tide__match match = TIDE__MATCH_PLANNED;
  if (!tide__plan_cursor_is_next(&run->cursor, bytes, alignment)) {
    match = tide__plan_cursor_find(&run->cursor, bytes, alignment, &request);
    if (match != TIDE__MATCH_SURPLUS && request != clock) run_note_first(run, clock);
    if (match != TIDE__MATCH_PLANNED || request != clock) run_note_sizes(run, clock, bytes);
  }
  run_count_match(run, match, clock);
  if (match == TIDE__MATCH_PLANNED || match == TIDE__MATCH_SMALLER) {
    run->report.hits++;
  } else {
    run->report.fallbacks++;
  }
  if (match == TIDE__MATCH_SURPLUS) return TIDE__NO_REQUEST;
  tide__plan_cursor_pass(&run->cursor, request);
  return request;
}

// ---------------------------------------------------------------------------------------------------
// Releases

void tide__replay_count_release(tide__run* run, uint32_t lifetime, bool is_own) {
  const uint32_t clock = tide__load_relaxed(&run->cursor.clock);
  if (lifetime == clock) return;
  if (is_own) {
    run_note_first(run, clock);
    run->report.early += lifetime > clock;
    run->report.late += lifetime < clock;
    return;
  }
  run->other_first = tide__min(run->other_first, clock);
  run->other_early += lifetime > clock;
  run->other_late += lifetime < clock;
}

// Strict runs accept a release at the recorded time only.
static tide_status replay_require_time(const tide__run* run, uint32_t lifetime) {
  const uint32_t clock = tide__load_relaxed(&run->cursor.clock);
  TIDE_REQUIRE(!run->profile->options.is_strict || lifetime == clock, TIDE_ERR_STATE,
               "memory is released before request %u; recorded was %u", clock, lifetime);
  return TIDE_OK;
}

static tide_status replay_refuse(const void* address) {
  return TIDE_FAIL(TIDE_ERR_HANDLE, "no live block begins at %p", address);
}

// The holder of a place; 0: none.
static inline uint64_t arena_holder(const tide__profile_arena* arena, uint32_t place) {
  return place != TIDE__NO_PLACE ? tide__load_relaxed(&arena->held[place]) : 0;
}

// Handles a release at another time than planned.
static tide_status replay_take_back_rare(tide__run* run, const tide__profile_arena* arena, uint32_t place,
                                         uint32_t lifetime) {
  if (run->profile->options.is_strict) run_count_refused(run, tide__load_relaxed(&run->cursor.clock));
  TIDE_TRY(replay_require_time(run, lifetime));
  tide__replay_count_release(run, lifetime, true);
  run->is_irregular = true;
  run->is_plain = false;
  if (!arena->is_escape) tide__overdue_set_remove(&run->overdue, place);
  return TIDE_OK;
}

static tide_status replay_take_back(tide__run* run, tide__profile_arena* arena, uint64_t offset) {
  const uint32_t place = tide__places_find(arena->places, offset);
  const uint64_t holder = arena_holder(arena, place);
  if (holder == 0) return replay_refuse(arena->memory.base + offset);
  const uint32_t lifetime = tide__holder_lifetime(holder);
  if (lifetime != tide__load_relaxed(&run->cursor.clock))
    TIDE_TRY(replay_take_back_rare(run, arena, place, lifetime));
  tide__store_relaxed(&arena->held[place], 0);
  run->released += !arena->is_escape;
  return TIDE_OK;
}

bool tide__replay_release(tide__run* run, void* address, tide_status* out_status) {
  tide__profile_arena* arena = run->arena;
  if (arena == NULL || !tide__arena_memory_has(&arena->memory, address)) arena = run->escapes;
  if (arena == NULL) return false;
  const uint64_t offset = tide__address(address) - tide__address(arena->memory.base);
  if (offset >= arena->memory.bytes) return false;
  *out_status = replay_take_back(run, arena, offset);
  return true;
}

tide_status tide__replay_release_locked(tide_profile* profile, tide__profile_arena* arena, void* address,
                                        tide_profile_plan** out_plan) {
  const uint64_t offset = tide__address(address) - tide__address(arena->memory.base);
  const uint32_t place = arena->plan != NULL ? tide__places_find(arena->places, offset) : TIDE__NO_PLACE;
  const uint64_t holder = arena_holder(arena, place);
  if (holder == 0) return replay_refuse(address);
  tide__run* const run = arena->run;
  const uint32_t lifetime = tide__holder_lifetime(holder);
  if (run != NULL) {
    TIDE_TRY(replay_require_time(run, lifetime));
    tide__replay_count_release(run, lifetime, false);
    run->other_releases += !arena->is_escape;
  }
  tide__store_release(&arena->held[place], 0);  // pairs with replay_advance and replay_is_blocked
  if (run == NULL) *out_plan = tide__profile_arena_end_survivor_locked(profile, arena);
  return TIDE_OK;
}
