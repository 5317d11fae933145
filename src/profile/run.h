// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What a profile consists of while it works: runs that are open, the arenas they use, and the shapes whose
// plans are kept. One lock guards all that threads share; the thread of a run serves and takes back memory of
// its own arena without it.
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

// What lies in a place of an arena: the lifetime and the number, plus one, of a request; 0: nothing.
static inline uint64_t tide__holder(uint32_t request, uint32_t lifetime) {
  return (uint64_t)lifetime << 32 | (request + 1);
}
static inline uint32_t tide__holder_lifetime(uint64_t holder) { return (uint32_t)(holder >> 32); }
static inline uint32_t tide__holder_request(uint64_t holder) { return (uint32_t)holder - 1; }

// An arena: used by a run that is open, or by what survived one, or idle.
// [A1] idle == (run == NULL && survivors == 0); then all of `held` is 0 and plan == NULL.
typedef struct tide__profile_arena {
  tide__arena_memory memory;   // owned
  const tide__places* places;  // borrowed from `plan`
  // By place. The thread of the run writes it, others only under the profile's lock.
  tide__atomic_u64* held;  // owned
  size_t held_capacity;
  bool is_escape;           // for what is not released in its run
  tide_profile_plan* plan;  // a share, while in use
  // Shared under the profile's lock
  tide__link link;
  struct tide__run* run;  // borrowed while it is open
  uint64_t survivors;
  uint64_t last_run;  // the number of the last run that took it
} tide__profile_arena;

typedef struct tide__run {
  // The thread's own. First what a request or release needs that is as planned: it touches nothing else.
  tide_profile* profile;
  struct tide__run* outer;      // borrowed: the run around it on its thread, of another profile
  const tide__step* steps;      // borrowed from `plan`
  const tide__ending* endings;  // the same; without a plan that is replayed, one that is nowhere
  tide__atomic_u64* held;       // borrowed from `arena`
  char* base;                   // the same
  tide__plan_cursor cursor;
  uint64_t taken;        // requests served from `arena`
  uint64_t released;     // of these, by this thread; as long as the run is regular each at its planned time
  uint32_t next_ending;  // the planned release that comes next, if all goes as planned
  bool is_plain;         // replayed, and all has gone as planned, so that counting is enough
  bool is_irregular;     // a release came at another time than planned
  bool is_auto;
  bool is_blind;        // there was no memory to follow late releases: nothing more is served from the arena
  bool lacks_requests;  // there was no memory for a note
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
  // Shared under the profile's lock: what other threads did
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
  uint32_t patience;    // how many of them are borne
} tide__shape;

#define TIDE__PROFILE_WINDOW_MAX 1024u

struct tide_profile {
  const tide_heap* heap;         // borrowed until the profile is freed
  tide_profile_options options;  // does not change
  tide__atomic_u32 noting;       // open runs that record or validate; changes under lock
  tide__mutex lock;
  // Shared under lock
  tide__link runs;       // open
  tide__link idle_runs;  // owned, to be used again
  tide__link arenas;     // owned
  tide__shape* shapes;   // owned; max_plans of them
  size_t shape_count;
  uint64_t run_number;        // of runs that began
  tide__recent_max needs[2];  // bytes of arenas, and of arenas for what escapes; the numbers are owned
  // The addresses that the fallback gave and that were not released. With the last of them, and of what lies
  // in the arenas, a profile that was freed is gone.
  tide__hash_map lent;
  tide_profile_stats stats;
  tide__atomic_u64 orphans;  // blocks that outlive the profile, when it is freed
  bool is_freed;  // does not change while calls are under way: there are orphans, and it goes with the last
};

// ---------------------------------------------------------------------------------------------------
// profile.c

// Of a profile that was freed, an orphan less, and not to be touched any more: with the last one it goes.
void tide__profile_drop(tide_profile* profile);

// ---------------------------------------------------------------------------------------------------
// arenas.c

// Gives a run of a plan an arena of one kind; NULL if it needs none, or if there are enough that are in use.
// Errors: TIDE_ERR_NO_MEMORY, what the memory returned.
tide_status tide__profile_arenas_take(tide_profile* profile, tide__run* run, bool is_escape,
                                      tide__profile_arena** out);
// The run does not use it any more. Returns how many survive in it; none: the arena is idle. `is_clean`: all
// is known to be released.
uint64_t tide__profile_arena_leave(tide_profile* profile, tide__profile_arena* arena, bool is_clean);
// The arena around an address, or NULL.
tide__profile_arena* tide__profile_arenas_find_locked(tide_profile* profile, const void* address)
    TIDE_REQUIRES(&profile->lock);
// Takes back what survived a run in an arena. The plan, if not NULL, is to be freed without the lock.
tide_profile_plan* tide__profile_arena_end_survivor_locked(tide_profile* profile, tide__profile_arena* arena)
    TIDE_REQUIRES(&profile->lock);
// Gives idle arenas back to the memory: those that the last runs did not use, or all.
void tide__profile_arenas_trim(tide_profile* profile, bool is_all);

// ---------------------------------------------------------------------------------------------------
// replayer.c

// A replayed run begins: it has its arenas.
void tide__replay_begin(tide__run* run);

// Serves a request that is the next of the plan when all before went as planned; false: ask
// tide__replay_alloc(). If this thread has released so many as should have ended by then, each at its time,
// then these are they, and nothing lies where it should not.
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

// Takes back what the plan expects to be released next; false: ask tide__replay_release(). The table of all
// offsets of a large plan is far from every cache, so that it is not asked.
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

// Serves a request from the arenas of a run, or says that the fallback must. Only the thread of the run.
// Errors: TIDE_ERR_STATE in a strict run.
tide_status tide__replay_alloc(tide__run* run, uint64_t bytes, uint64_t alignment, void** out);
// Compares a request with the plan; returns the planned request it stands for, or TIDE__NO_REQUEST.
uint32_t tide__replay_compare(tide__run* run, uint64_t bytes, uint64_t alignment);
// Is this address in one of the arenas of the run? Then it is taken back, or refused.
bool tide__replay_release(tide__run* run, void* address, tide_status* out_status);
// The same on any thread, for any arena, with the profile's lock.
tide_status tide__replay_release_locked(tide_profile* profile, tide__profile_arena* arena, void* address,
                                        tide_profile_plan** out_plan) TIDE_REQUIRES(&profile->lock);
// Counts a release, planned for `lifetime`, on the thread of its run or another one with
// the profile's lock.
void tide__replay_count_release(tide__run* run, uint32_t lifetime, bool is_own);

#endif
