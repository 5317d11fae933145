// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The state of a profile: open runs, their arenas, and the plans by shape. One lock guards the shared
// state. The thread of a run allocates and releases in its own arena without the lock.
#ifndef TIDEMARK_SRC_PROFILE_RUN_H
#define TIDEMARK_SRC_PROFILE_RUN_H

#include "base/arith.h"
#include "base/hash_map.h"
#include "base/list.h"
#include "base/lock.h"
#include "memory/arena.h"
#include "profile/overdue.h"
#include "profile/plan_cursor.h"
#include "profile/recorder.h"

// The holder of a place in an arena: the lifetime and the number, plus one, of a request; 0: none.
static inline uint64_t tide__holder(uint32_t request, uint32_t lifetime) {
  return (uint64_t)lifetime << 32 | (request + 1);
}
static inline uint32_t tide__holder_lifetime(uint64_t holder) { return (uint32_t)(holder >> 32); }
static inline uint32_t tide__holder_request(uint64_t holder) { return (uint32_t)holder - 1; }

// An arena: in use by an open run, kept by survivors of one, or idle. [A1] idle == (run == NULL &&
// survivors == 0); then all of `held` is 0 and plan == NULL.
typedef struct tide__profile_arena {
  tide__arena_memory memory;   // owned
  const tide__places* places;  // borrowed from `plan`
  // By place. The thread of the run writes it, others only under the profile's lock.
  tide__atomic_u64* held;  // owned
  size_t held_capacity;
  bool is_escape;           // for requests that are not released in their run
  tide_profile_plan* plan;  // a share, while in use
  // Shared under the profile's lock
  tide__link link;
  struct tide__run* run;  // borrowed while it is open
  uint64_t survivors;
  uint64_t last_run;  // the number of the last run that took it
} tide__profile_arena;

typedef struct tide__run {
  // Used by the run's thread only. First the fields that a planned request or release needs; it touches
  // nothing else.
  tide_profile* profile;
  struct tide__run* outer;      // borrowed: the run around it on its thread, of another profile
  const tide__step* steps;      // borrowed from `plan`
  const tide__ending* endings;  // the same; if not replaying, one that matches nothing
  tide__atomic_u64* held;       // borrowed from `arena`
  char* base;                   // the same
  tide__plan_cursor cursor;
  uint64_t taken;        // requests served from `arena`
  uint64_t released;     // of these, by this thread; each at its planned time unless is_irregular
  uint32_t next_ending;  // the next planned release
  bool is_plain;         // replaying, and all has gone as planned, so counting is enough
  bool is_irregular;     // a release came at another time than planned
  bool is_auto;
  bool is_blind;        // no memory to track late releases: the arena serves nothing more
  bool lacks_requests;  // no memory for a note
  tide_profile_mode mode;
  uint64_t shape;
  tide_profile_plan* plan;       // a share
  tide__profile_arena* arena;    // borrowed from the profile; NULL: nothing is planned
  tide__profile_arena* escapes;  // the same
  uint64_t taken_escaping;
  tide__overdue_set overdue;
  tide_profile_report report;
  // Shared under the recorder's lock
  tide__recorder recorder;
  // Shared under the profile's lock: actions of other threads
  tide__link link;
  uint64_t other_releases;
  uint64_t other_early;
  uint64_t other_late;
  uint64_t other_first;
} tide__run;

// The plan of a shape.
typedef struct tide__shape {
  uint64_t shape;
  tide_profile_plan* plan;  // a share
  uint64_t last_run;
  uint32_t deviations;  // replayed runs in a row that deviated
  uint32_t patience;    // how many of them lead to a new recording
} tide__shape;

#define TIDE__PROFILE_WINDOW_MAX 1024u

struct tide_profile {
  const tide_heap* heap;         // borrowed until the profile is freed
  tide_profile_options options;  // does not change
  tide__atomic_u32 noting;       // open runs that record or validate; changes under lock
  tide__mutex lock;
  // Shared under lock
  tide__link runs;       // open
  tide__link idle_runs;  // owned; for reuse
  tide__link arenas;     // owned
  tide__shape* shapes;   // owned; max_plans of them
  size_t shape_count;
  uint64_t run_number;        // of runs that began
  tide__recent_max needs[2];  // bytes of arenas, and of escape arenas; the numbers are owned
  // The live addresses from the fallback. A freed profile disappears with the last of them and of the
  // blocks in its arenas.
  tide__hash_map lent;
  tide_profile_stats stats;
  tide__atomic_u64 orphans;  // blocks that outlive the profile, when it is freed
  bool is_freed;  // does not change while calls are in progress; the profile disappears with the last orphan
};

// ---------------------------------------------------------------------------------------------------
// profile.c

// Drops an orphan of a freed profile. The last one frees the profile; do not touch it afterwards.
void tide__profile_drop(tide_profile* profile);

// ---------------------------------------------------------------------------------------------------
// arenas.c

// Gives a run an arena of one kind; NULL if it needs none, or if too many escape arenas are in use.
// Errors: TIDE_ERR_NO_MEMORY; an error from the memory.
tide_status tide__profile_arenas_take(tide_profile* profile, tide__run* run, bool is_escape,
                                      tide__profile_arena** out);
// The run stops using the arena. Returns the number of survivors; without any, the arena is idle.
// `is_clean`: everything is known to be released.
uint64_t tide__profile_arena_leave(tide_profile* profile, tide__profile_arena* arena, bool is_clean);
// The arena around an address, or NULL.
tide__profile_arena* tide__profile_arenas_find_locked(tide_profile* profile, const void* address)
    TIDE_REQUIRES(&profile->lock);
// Releases a survivor in an arena. The caller frees the returned plan, if not NULL, without the lock.
tide_profile_plan* tide__profile_arena_end_survivor_locked(tide_profile* profile, tide__profile_arena* arena)
    TIDE_REQUIRES(&profile->lock);
// Releases idle arenas: those that the last runs did not use, or all.
void tide__profile_arenas_trim(tide_profile* profile, bool is_all);

// ---------------------------------------------------------------------------------------------------
// replayer.c

// Begins a replayed run, which has its arenas.
void tide__replay_begin(tide__run* run);

// Serves the next planned request if everything before it went as planned; false: call tide__replay_alloc().
// If this thread has made as many releases as planned so far, each at its time, they are exactly the planned
// ones, and no block is late.
static inline bool tide__replay_alloc_plain(tide__run* run, uint64_t bytes, uint64_t alignment, void** out) {
  const uint32_t clock = tide__load_relaxed(&run->cursor.clock);
  const tide__step* const step = &run->steps[clock];
  const uint32_t end = step[1].ending;
  if (step->bytes != bytes || step->alignment < alignment) return false;
  if (run->released != end || step->lifetime == TIDE__STEP_NEVER) return false;
  tide__store_relaxed(&run->held[step->place], tide__holder(clock, step->lifetime));
  tide__store_relaxed(&run->cursor.clock, clock + 1);
  run->next_ending = end;
  run->taken++;
  *out = run->base + step->offset;
  return true;
}

// Handles the release that the plan expects next; false: call tide__replay_release(). It avoids the table
// of all offsets, which in a large plan is not in the cache.
static inline bool tide__replay_release_plain(tide__run* run, const void* address) {
  const tide__ending* const next = &run->endings[run->next_ending];
  if (tide__address(address) - tide__address(run->base) != next->offset) return false;
  const uint64_t holder = tide__load_relaxed(&run->held[next->place]);
  if (holder == 0 || tide__holder_lifetime(holder) != tide__load_relaxed(&run->cursor.clock)) return false;
  tide__store_relaxed(&run->held[next->place], 0);
  run->next_ending++;
  run->released++;
  return true;
}

// Serves a request from the arenas of a run, or says that the fallback must. Called by the thread of the
// run only. Errors: TIDE_ERR_STATE in a strict run.
tide_status tide__replay_alloc(tide__run* run, uint64_t bytes, uint64_t alignment, void** out);
// Compares a request with the plan; returns the planned request it stands for, or TIDE__NO_REQUEST.
uint32_t tide__replay_compare(tide__run* run, uint64_t bytes, uint64_t alignment);
// If the address is in an arena of the run, releases or refuses it.
bool tide__replay_release(tide__run* run, void* address, tide_status* out_status);
// The same on any thread and for any arena, with the profile's lock held.
tide_status tide__replay_release_locked(tide_profile* profile, tide__profile_arena* arena, void* address,
                                        tide_profile_plan** out_plan) TIDE_REQUIRES(&profile->lock);
// Counts a release planned for `lifetime`, on the thread of the run, or on another one with the profile's
// lock held.
void tide__replay_count_release(tide__run* run, uint32_t lifetime, bool is_own);

#endif
