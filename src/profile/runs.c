// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Beginning and ending runs, and the calls that serve memory in them. A thread knows its innermost run,
// which links to the runs of other profiles around it. Everything that can fail at the beginning of a run
// happens before the thread knows it, so after a failure there is no run.

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/sized.h"
#include "memory/fill.h"
#include "profile/run.h"
#include "profile/shapes.h"

#define LENT 1u  // the value of an address that is handed out

static _Thread_local tide__run* thread_run;  // borrowed; the innermost open run

// The run of a profile on this thread, or NULL.
static inline tide__run* run_here(const tide_profile* profile) {
  tide__run* run = thread_run;
  while (run != NULL && run->profile != profile) run = run->outer;
  return run;
}

tide_profile_mode tide_profile_current(const tide_profile* profile) {
  const tide__run* const run = run_here(profile);
  return run != NULL ? run->mode : TIDE_PROFILE_NONE;
}

tide_profile* tide_profile_innermost(void) { return thread_run != NULL ? thread_run->profile : NULL; }

static bool run_is_noting(const tide__run* run) {
  return run->mode == TIDE_PROFILE_RECORD || run->mode == TIDE_PROFILE_VALIDATE;
}

// Is this thread recording? A run inside would take its requests away.
static bool thread_is_recording(void) {
  const tide__run* run = thread_run;
  while (run != NULL && run->mode != TIDE_PROFILE_RECORD) run = run->outer;
  return run != NULL;
}

// ---------------------------------------------------------------------------------------------------
// Begin

static tide__run* run_take_idle(tide_profile* profile) {
  tide__run* run = NULL;
  tide__mutex_lock(&profile->lock);
  profile->run_number++;
  if (!tide__list_is_empty(&profile->idle_runs)) {
    run = TIDE_OWNER(profile->idle_runs.next, tide__run, link);
    tide__list_unlink(&run->link);
  }
  tide__mutex_unlock(&profile->lock);
  return run;
}

// Makes a run that is not visible yet.
static tide_status run_take(tide_profile* profile, tide__run** out) {
  tide__run* run = run_take_idle(profile);
  if (run == NULL) {
    run = tide__heap_alloc(profile->heap, 1, sizeof *run);
    TIDE_REQUIRE(run != NULL, TIDE_ERR_NO_MEMORY, "no memory for a run");
    tide__recorder_init(&run->recorder, profile->heap);
    tide__list_init(&run->link);
    run->profile = profile;
  }
  *out = run;
  return TIDE_OK;
}

static void run_reset(tide__run* run, uint64_t shape) {
  // No release matches this offset.
  static const tide__ending nowhere = { .offset = UINT64_MAX };
  run->steps = NULL;
  run->endings = &nowhere;
  run->held = NULL;
  run->base = NULL;
  run->is_plain = false;
  run->arena = NULL;
  run->escapes = NULL;
  run->taken = run->taken_escaping = run->released = 0;
  run->next_ending = 0;
  run->other_releases = run->other_early = run->other_late = 0;
  run->other_first = UINT64_MAX;
  run->shape = shape;
  run->plan = NULL;
  run->is_auto = run->is_blind = run->lacks_requests = run->is_irregular = false;
  run->report = (tide_profile_report){ .first = UINT64_MAX };
  tide__overdue_set_clear(&run->overdue);
  tide__recorder_clear(&run->recorder);
}

// Recycles the record of a run that is over or has not begun.
static void run_give(tide__run* run) {
  tide_profile* const profile = run->profile;
  tide_profile_plan_free(run->plan);
  run->plan = NULL;
  tide__mutex_lock(&profile->lock);
  tide__list_unlink(&run->link);
  tide__list_append(&profile->idle_runs, &run->link);
  tide__mutex_unlock(&profile->lock);
}

static tide_status run_prepare_replay(tide__run* run) {
  tide_profile* const profile = run->profile;
  TIDE_TRY(tide__profile_arenas_take(profile, run, false, &run->arena));
  const tide_status status = tide__profile_arenas_take(profile, run, true, &run->escapes);
  if (status == TIDE_OK) tide__replay_begin(run);
  else if (run->arena != NULL) tide__profile_arena_leave(profile, run->arena, true);
  return status;
}

static tide_status run_prepare(tide__run* run, tide_profile_mode mode) {
  TIDE_TRY(tide__shapes_choose(run->profile, run->shape, mode, &run->mode, &run->plan));
  run->is_auto = mode == TIDE_PROFILE_AUTO;
  run->report.mode = run->mode;
  if (run->plan != NULL) tide__plan_cursor_begin(&run->cursor, run->plan);
  return run->mode == TIDE_PROFILE_REPLAY ? run_prepare_replay(run) : TIDE_OK;
}

tide_status tide_profile_begin(tide_profile* profile, tide_profile_mode mode, uint64_t shape) {
  TIDE_REQUIRE(profile != NULL, TIDE_ERR_ARGUMENT, "begin: the profile is NULL");
  TIDE_REQUIRE(mode >= TIDE_PROFILE_AUTO && mode <= TIDE_PROFILE_REPLAY, TIDE_ERR_ARGUMENT,
               "begin: there is no mode %d", (int)mode);
  TIDE_REQUIRE(run_here(profile) == NULL, TIDE_ERR_STATE, "begin: this thread has a run of the profile open");
  TIDE_REQUIRE(!thread_is_recording(), TIDE_ERR_STATE,
               "begin: a run of another profile is being recorded on this thread");
  tide__run* run = NULL;
  TIDE_TRY(run_take(profile, &run));
  run_reset(run, shape);
  const tide_status status = run_prepare(run, mode);
  if (status != TIDE_OK) {
    run_give(run);
    return status;
  }
  tide__mutex_lock(&profile->lock);
  tide__list_append(&profile->runs, &run->link);
  if (run_is_noting(run)) tide__add_seq(&profile->noting, 1);
  tide__mutex_unlock(&profile->lock);
  run->outer = thread_run;
  thread_run = run;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// End

static void run_close(tide__run* run) {
  tide_profile* const profile = run->profile;
  tide__run** inner = &thread_run;
  while (*inner != run) inner = &(*inner)->outer;
  *inner = run->outer;
  tide__mutex_lock(&profile->lock);
  tide__list_unlink(&run->link);
  if (run_is_noting(run)) tide__sub_seq(&profile->noting, 1);
  tide__mutex_unlock(&profile->lock);
}

// Leaves the arenas, and counts blocks that should have been released in the run.
static void run_leave_arenas(tide__run* run) {
  tide_profile* const profile = run->profile;
  if (run->arena != NULL) {
    // Releases by other threads are counted elsewhere; then the places must be checked.
    run->report.survivors = tide__profile_arena_leave(profile, run->arena, run->taken == run->released);
  }
  if (run->escapes != NULL) tide__profile_arena_leave(profile, run->escapes, false);
}

// Validating: blocks that should have been released in the run.
static uint64_t run_count_unreleased(const tide__run* run) {
  uint64_t count = 0;
  const tide__hash_slot* slot = NULL;
  while ((slot = tide__hash_map_next(&run->recorder.live, slot)) != NULL) {
    const uint32_t request = tide__recorder_request(slot->value);
    if (request == TIDE__NO_REQUEST) continue;
    count += run->plan->steps[request].lifetime != TIDE__STEP_NEVER;
  }
  return count;
}

static void report_finish(tide__run* run) {
  tide_profile_report* const report = &run->report;
  report->hits += run->taken + run->taken_escaping;
  report->requests = report->hits + report->fallbacks + run->recorder.count;  // served, or recorded
  report->early += run->other_early;
  report->late += run->other_late;
  report->first = tide__min(report->first, run->other_first);
  if (run->plan == NULL) return;
  const uint32_t clock = tide__load_relaxed(&run->cursor.clock);
  report->missing = run->cursor.missing + (run->plan->info.count - clock);
  if (run->mode == TIDE_PROFILE_VALIDATE) report->survivors = run_count_unreleased(run);
  if (report->missing + report->survivors != 0) report->first = tide__min(report->first, clock);
  const uint64_t differing = report->smaller + report->larger + report->surplus + report->early +
                             report->late;
  report->passes_original = differing == 0;
  report->is_same = differing + report->missing + report->survivors + report->blocked + report->refused == 0;
  report->plan_bytes = run->plan->info.bytes;
  report->lower_bound = run->plan->info.lower_bound;
}

static tide_status run_plan(tide__run* run) {
  tide_profile* const profile = run->profile;
  tide_profile_plan_options options = TIDE_PROFILE_PLAN_OPTIONS_INIT;
  options.planner = profile->options.planner;
  options.nodes = profile->options.plan_nodes;
  options.heap = profile->heap;
  tide_profile_plan* plan = NULL;
  const tide__recorder* const recorder = &run->recorder;
  TIDE_TRY(tide__profile_plan_new_ordered(recorder->requests, recorder->releases, recorder->count, &options,
                                          &plan));
  tide__shapes_set(profile, run->shape, plan);
  run->report.plan_bytes = plan->info.bytes;
  run->report.lower_bound = plan->info.lower_bound;
  tide_profile_plan_free(plan);
  return TIDE_OK;
}

static void run_count_in(tide__run* run) {
  tide_profile* const profile = run->profile;
  tide_profile_stats* const stats = &profile->stats;
  tide__mutex_lock(&profile->lock);
  stats->recorded += run->mode == TIDE_PROFILE_RECORD;
  stats->validated += run->mode == TIDE_PROFILE_VALIDATE;
  if (run->mode == TIDE_PROFILE_REPLAY) {
    stats->replayed++;
    stats->differing += !run->report.is_same;
    stats->hits += run->report.hits;
    stats->fallbacks += run->report.fallbacks;
  }
  tide__mutex_unlock(&profile->lock);
}

// Does a run deviate enough to make its plan useless? A single survivor does, because it keeps a whole
// arena.
static bool report_is_off(const tide_profile* profile, const tide_profile_report* report, size_t planned) {
  const uint64_t unplanned = report->fallbacks - report->escaped;
  return report->survivors != 0 ||
         (double)unplanned > profile->options.tolerance * (double)report->requests ||
         (double)report->missing > profile->options.tolerance * (double)planned;
}

static tide_status run_conclude(tide__run* run) {
  run_leave_arenas(run);
  report_finish(run);
  run_count_in(run);
  TIDE_REQUIRE(!run->lacks_requests, TIDE_ERR_NO_MEMORY,
               "the run could not be recorded completely: no memory for a note");
  if (run->mode == TIDE_PROFILE_RECORD) return run_plan(run);
  if (run->mode == TIDE_PROFILE_REPLAY) {
    const bool is_off = report_is_off(run->profile, &run->report, run->plan->info.count);
    tide__shapes_note(run->profile, run->shape, run->plan, is_off);
  }
  return TIDE_OK;
}

static tide_status report_clear(tide_profile_report* out) {
  TIDE_TRY(tide__sized_check("profile_end", out, sizeof *out));
  tide__sized_clear(out);
  return TIDE_OK;
}

tide_status tide_profile_end(tide_profile* profile, tide_profile_report* out) {
  TIDE_REQUIRE(profile != NULL, TIDE_ERR_ARGUMENT, "end: the profile is NULL");
  tide__run* const run = run_here(profile);
  TIDE_REQUIRE(run != NULL, TIDE_ERR_STATE, "end: this thread has no run of the profile");
  tide__first_failure failure;
  tide__first_failure_begin(&failure);
  if (out != NULL) tide__first_failure_note(&failure, report_clear(out));
  run_close(run);
  tide__first_failure_note(&failure, run_conclude(run));
  if (out != NULL && failure.status == TIDE_OK) {
    tide__ignore(tide__sized_write("profile_end", &run->report, out, sizeof run->report));
  }
  run_give(run);
  tide__profile_arenas_trim(profile, false);
  return tide__first_failure_end(&failure);
}

tide_status tide_profile_cancel(tide_profile* profile) {
  TIDE_REQUIRE(profile != NULL, TIDE_ERR_ARGUMENT, "cancel: the profile is NULL");
  tide__run* const run = run_here(profile);
  TIDE_REQUIRE(run != NULL, TIDE_ERR_STATE, "cancel: this thread has no run of the profile");
  run_close(run);
  run_leave_arenas(run);
  run_give(run);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Notes

static tide_status run_note_alloc(tide__run* run, const void* address, uint64_t bytes, uint64_t alignment) {
  if (!tide__recorder_reserve(&run->recorder)) {
    run->lacks_requests = true;
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory to note a request");
  }
  if (run->mode == TIDE_PROFILE_VALIDATE) {
    tide__recorder_put(&run->recorder, tide__address(address), tide__replay_compare(run, bytes, alignment));
    return TIDE_OK;
  }
  if (run->recorder.count == TIDE_PROFILE_MAX_REQUESTS) {
    run->lacks_requests = true;
    return TIDE_FAIL(TIDE_ERR_LIMIT, "a run has more than 2^30 requests");
  }
  tide__recorder_add(&run->recorder, tide__address(address), bytes, alignment);
  return TIDE_OK;
}

static bool run_note_release(tide__run* run, uint64_t address, bool is_own) {
  if (run->mode == TIDE_PROFILE_RECORD) return tide__recorder_end(&run->recorder, address);
  bool is_found = false;
  const uint32_t request = tide__recorder_take(&run->recorder, address, &is_found);
  if (request != TIDE__NO_REQUEST) {
    tide__replay_count_release(run, run->plan->steps[request].lifetime, is_own);
  }
  return is_found;
}

// A release that this thread's run does not know may belong to a run of another thread.
static bool profile_note_elsewhere_locked(tide_profile* profile, const tide__run* own, uint64_t address)
    TIDE_REQUIRES(&profile->lock) {
  TIDE_LIST_EACH(it, &profile->runs) {
    tide__run* const run = TIDE_OWNER(it, tide__run, link);
    const bool is_other = own == NULL || run != own;
    if (is_other && run_is_noting(run) && run_note_release(run, address, false)) return true;
  }
  return false;
}

static void profile_note_release(tide_profile* profile, tide__run* own, uint64_t address) {
  if (own != NULL && run_is_noting(own) && run_note_release(own, address, true)) return;
  tide__mutex_lock(&profile->lock);
  const bool is_found = profile_note_elsewhere_locked(profile, own, address);
  profile->stats.unknown_releases += !is_found;
  tide__mutex_unlock(&profile->lock);
}

static tide_status alloc_check_alignment(size_t alignment) {
  TIDE_REQUIRE(tide__is_power_of_two(alignment) && alignment <= TIDE_PROFILE_MAX_ALIGNMENT, TIDE_ERR_ARGUMENT,
               "the alignment %zu is not a power of two up to 2^20", alignment);
  return TIDE_OK;
}

tide_status tide_profile_note_alloc(tide_profile* profile, const void* address, size_t bytes,
                                    size_t alignment) {
  TIDE_REQUIRE(profile != NULL && (address != NULL || bytes == 0), TIDE_ERR_ARGUMENT,
               "note_alloc: the profile or the address is NULL");
  if (alignment != 0) TIDE_TRY(alloc_check_alignment(alignment));
  else alignment = profile->options.alignment;
  tide__run* const run = run_here(profile);
  if (run == NULL || !run_is_noting(run) || bytes == 0) return TIDE_OK;
  return run_note_alloc(run, address, bytes, alignment);
}

tide_status tide_profile_note_release(tide_profile* profile, const void* address) {
  TIDE_REQUIRE(profile != NULL, TIDE_ERR_ARGUMENT, "note_release: the profile is NULL");
  if (address == NULL || tide__load_seq(&profile->noting) == 0) return TIDE_OK;
  profile_note_release(profile, run_here(profile), tide__address(address));
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Memory

static void alloc_fill(const tide_profile* profile, const tide_memory* memory, void* address, size_t bytes) {
  if (memory->is_host) tide__memory_fill(profile->options.fill, address, bytes);
}

// Records an address from the fallback. If it is known already, its release was not seen.
static tide_status alloc_remember(tide_profile* profile, const void* address) {
  for (;;) {
    tide__hash_map larger;
    tide__hash_map_init(&larger, profile->heap);
    tide__mutex_lock(&profile->lock);
    const size_t count = profile->lent.count + 1;
    const bool has_room = tide__hash_map_has_room(&profile->lent);
    if (has_room) (void)tide__hash_map_put(&profile->lent, tide__address(address), LENT);
    tide__mutex_unlock(&profile->lock);
    if (has_room) return TIDE_OK;
    TIDE_REQUIRE(tide__hash_map_reserve(&larger, count), TIDE_ERR_NO_MEMORY,
                 "no memory to track allocations");
    tide__mutex_lock(&profile->lock);
    tide__hash_map_grow_into(&profile->lent, &larger);
    tide__mutex_unlock(&profile->lock);
    tide__hash_map_fini(&larger);
  }
}

// Allocates from the fallback, and notes it in a run that records or validates.
static tide_status alloc_outside(tide_profile* profile, tide__run* run, size_t bytes, size_t alignment,
                                 void** out) {
  const tide_memory* const fallback = &profile->options.fallback;
  if (run != NULL && run->mode == TIDE_PROFILE_REPLAY) run->report.fallbacks++;
  TIDE_TRY(fallback->alloc(fallback, bytes, alignment, out));
  const tide_status status = alloc_remember(profile, *out);
  if (status != TIDE_OK) {
    tide__ignore(fallback->release(fallback, *out));
    *out = NULL;
    return status;
  }
  alloc_fill(profile, fallback, *out, bytes);
  if (run == NULL || !run_is_noting(run)) return TIDE_OK;
  // The program gets its memory; the end of the run reports that it could not be noted.
  tide__ignore(run_note_alloc(run, *out, bytes, alignment));
  return TIDE_OK;
}

// Any request except the next one of a run that goes as planned.
static __attribute__((noinline)) tide_status alloc_otherwise(tide_profile* profile, size_t bytes,
                                                             size_t alignment, void** out) {
  TIDE_REQUIRE(profile != NULL && out != NULL, TIDE_ERR_ARGUMENT, "alloc: the profile or out is NULL");
  *out = NULL;
  if (alignment != 0) TIDE_TRY(alloc_check_alignment(alignment));
  else alignment = profile->options.alignment;
  if (bytes == 0) return TIDE_OK;
  tide__run* const run = run_here(profile);
  if (run != NULL && run->mode == TIDE_PROFILE_REPLAY)
    TIDE_TRY(tide__replay_alloc(run, bytes, alignment, out));
  if (*out == NULL) return alloc_outside(profile, run, bytes, alignment, out);
  alloc_fill(profile, &profile->options.memory, *out, bytes);
  return TIDE_OK;
}

tide_status tide_profile_alloc(tide_profile* profile, size_t bytes, size_t alignment, void** out) {
  tide__run* const run = thread_run;
  bool is_plain = run != NULL && run->profile == profile && run->is_plain && out != NULL;
  if (is_plain) {
    // An invalid alignment is refused further below.
    const size_t wanted = alignment != 0 ? alignment : profile->options.alignment;
    is_plain = tide__is_power_of_two(wanted) && tide__replay_alloc_plain(run, bytes, wanted, out);
  }
  if (!is_plain) return alloc_otherwise(profile, bytes, alignment, out);
  if (profile->options.fill != TIDE_FILL_NOTHING) {
    alloc_fill(profile, &profile->options.memory, *out, bytes);
  }
  return TIDE_OK;
}

static tide_status release_count_bad(tide_profile* profile, tide_status status) {
  if (status != TIDE_ERR_HANDLE) return status;
  tide__mutex_lock(&profile->lock);
  profile->stats.bad_releases++;
  tide__mutex_unlock(&profile->lock);
  return status;
}

// Releases memory of an arena that this thread's run does not use, or of none. `out_gone`: the block was
// live and is now released.
static tide_status release_elsewhere(tide_profile* profile, tide__run* run, void* address, bool* out_gone) {
  tide_profile_plan* plan = NULL;
  tide_status status = TIDE_OK;
  tide__mutex_lock(&profile->lock);
  tide__profile_arena* const arena = tide__profile_arenas_find_locked(profile, address);
  if (arena != NULL) status = tide__replay_release_locked(profile, arena, address, &plan);
  *out_gone = arena != NULL ? status == TIDE_OK
                            : tide__hash_map_take(&profile->lent, tide__address(address)) == LENT;
  tide__mutex_unlock(&profile->lock);
  tide_profile_plan_free(plan);
  if (arena != NULL) return status;
  // Note it before it is released: afterwards another thread may get the same address.
  if (tide__load_seq(&profile->noting) != 0) profile_note_release(profile, run, tide__address(address));
  const tide_memory* const fallback = &profile->options.fallback;
  return fallback->release(fallback, address);
}

// Releases memory of a freed profile: the last block of an arena frees it, and the last of all frees the
// profile.
static tide_status release_orphan(tide_profile* profile, void* address) {
  bool is_gone = false;
  const tide_status status = release_elsewhere(profile, NULL, address, &is_gone);
  tide__profile_arenas_trim(profile, true);
  if (is_gone) tide__profile_drop(profile);
  return status;
}

// Any release except the next one of a run that goes as planned.
static __attribute__((noinline)) tide_status release_otherwise(tide_profile* profile, void* address) {
  TIDE_REQUIRE(profile != NULL, TIDE_ERR_ARGUMENT, "release: the profile is NULL");
  if (address == NULL) return TIDE_OK;
  if (profile->is_freed) return release_orphan(profile, address);
  tide__run* const run = run_here(profile);
  tide_status status = TIDE_OK;
  bool is_gone = false;
  const bool is_replaying = run != NULL && run->mode == TIDE_PROFILE_REPLAY;
  if (!is_replaying || !tide__replay_release(run, address, &status)) {
    status = release_elsewhere(profile, run, address, &is_gone);
  }
  return status == TIDE_OK ? TIDE_OK : release_count_bad(profile, status);
}

tide_status tide_profile_release(tide_profile* profile, void* address) {
  tide__run* const run = thread_run;
  const bool is_plain = run != NULL && run->profile == profile && tide__replay_release_plain(run, address);
  return is_plain ? TIDE_OK : release_otherwise(profile, address);
}
