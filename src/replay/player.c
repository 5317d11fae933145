// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The public functions, and the plain run. It runs the steps of the script in stretches, between the places
// where something else is due: emptying the cache, parking, a use of a tag, the end of a tenth, a report of
// progress, a look at what is reserved. A step costs a call of the cache and a few instructions more.
#include "tidemark/replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/sized.h"
#include "base/sys.h"
#include "replay/begin.h"
#include "replay/budgets.h"
#include "replay/limit.h"
#include "replay/meter.h"
#include "replay/parks.h"
#include "replay/recorded.h"
#include "replay/windows.h"

#define REPLAY_SCALE_MAX 1024.0
#define RUN_STRETCH ((size_t)1 << 14)  // steps between two calls of on_progress, or two looks at the cache

struct tide_replay {
  const tide_heap* heap;  // borrowed until freed
  tide__script script;
  tide__empties found;  // by the last run that checked; at first, those of the script
};

// ---------------------------------------------------------------------------------------------------
// The plain run

typedef struct plain_run {
  const tide_replay* replay;           // borrowed during the run
  const tide_replay_options* options;  // borrowed during the run
  tide__stage stage;
  tide__meter meter;
  size_t at;      // the next step
  size_t empty;   // the next in `found`
  size_t park;    // the next of the options' `parks`
  size_t use;     // and of `uses`
  bool is_above;  // more was reserved than the options allow
} plain_run;

static tide_status run_step(tide__stage* stage, const tide__step* step) {
  if (stage->budgets != NULL) return tide__budgets_step(stage, step);
  switch (step->kind) {
    case TIDE__STEP_ALLOC: return tide__stage_alloc(stage, step);
    case TIDE__STEP_OOM: return tide__stage_oom(stage, step);
    case TIDE__STEP_FREE: return tide__stage_free(stage, step);
    case TIDE__STEP_FREE_LATER: return tide__stage_free_later(stage, step);
    case TIDE__STEP_DONE: return tide__stage_done(stage, step);
    default: return TIDE_OK;
  }
}

// Runs up to step `end`; with stops_at_oom, only up to a refused request.
static tide_status run_stretch(plain_run* run, size_t end) {
  const tide__step* const steps = run->replay->script.steps;
  tide__stage* const stage = &run->stage;
  const uint64_t enough = run->options->stops_at_oom ? 1 : UINT64_MAX;
  size_t at = run->at;
  while (at < end && stage->ooms < enough) {
    const tide_status status = run_step(stage, &steps[at]);
    at++;
    if (status != TIDE_OK) return status;
  }
  run->at = at;
  return TIDE_OK;
}

static bool run_is_over(const plain_run* run) {
  return run->at == run->replay->script.step_count || run->is_above ||
         (run->options->stops_at_oom && run->stage.ooms > 0);
}

// Was more reserved than the options allow?
static tide_status run_look(plain_run* run) {
  if (run->options->stops_above == TIDE_NO_LIMIT) return TIDE_OK;
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  TIDE_TRY(tide_device_get_stats(run->stage.device, &stats));
  run->is_above = (uint64_t)stats.reserved_bytes[TIDE_STAT_ALL].peak > run->options->stops_above;
  return TIDE_OK;
}

static tide_status run_empty(plain_run* run) {
  const tide__empties* const found = &run->replay->found;
  while (run->empty < found->count && found->steps[run->empty] <= run->at) {
    run->empty++;
    if (run->options->empties) TIDE_TRY(tide__stage_empty(&run->stage, run->at));
  }
  return TIDE_OK;
}

static tide_status run_park(plain_run* run) {
  while (tide__parks_step(&run->stage, run->park) <= run->at) {
    TIDE_TRY(tide__parks_run(&run->stage, &run->options->parks[run->park]));
    run->park++;
  }
  return TIDE_OK;
}

static tide_status run_use(plain_run* run) {
  while (tide__budgets_use_step(&run->stage, run->use) <= run->at) {
    TIDE_TRY(tide__budgets_use(&run->stage, run->use));
    run->use++;
  }
  return TIDE_OK;
}

// The end of the next stretch.
static size_t run_next(const plain_run* run) {
  const tide__script* const script = &run->replay->script;
  const tide__empties* const found = &run->replay->found;
  size_t end = tide__min(run->meter.next, tide__min(script->step_count, run->at + RUN_STRETCH));
  if (run->empty < found->count) end = tide__min(end, found->steps[run->empty]);
  end = tide__min(end, tide__budgets_use_step(&run->stage, run->use));
  return tide__min(end, tide__parks_step(&run->stage, run->park));
}

static tide_status run_report(const plain_run* run) {
  const tide__script* const script = &run->replay->script;
  const tide_replay_options* const options = run->options;
  if (options->on_progress == NULL) return TIDE_OK;
  const size_t entry = run->at < script->step_count ? script->steps[run->at].entry : script->entry_count;
  TIDE_REQUIRE(options->on_progress(options->user, entry, script->entry_count), TIDE_ERR_STATE,
               "replay_run: cancelled by on_progress at entry %zu", entry);
  return TIDE_OK;
}

// What is due before the next step.
static tide_status run_due(plain_run* run) {
  TIDE_TRY(run_empty(run));
  TIDE_TRY(run_park(run));
  return run_use(run);
}

static tide_status run_play(plain_run* run, tide_replay_result* result) {
  while (!run_is_over(run)) {
    TIDE_TRY(run_due(run));
    TIDE_TRY(tide__meter_tick(&run->meter, run->at, result));
    TIDE_TRY(run_stretch(run, run_next(run)));
    TIDE_TRY(run_look(run));
    TIDE_TRY(run_report(run));
  }
  if (run->at == run->replay->script.step_count) TIDE_TRY(run_due(run));
  TIDE_TRY(tide__budgets_finish(&run->stage, result));
  result->parks = run->park;
  return tide__meter_finish(&run->meter, run->at, result);
}

// A limit may allow less.
static tide_status run_reserve(const plain_run* run, tide_replay_result* result) {
  const tide_machine* const machine = run->stage.machine;
  const uint64_t before_ns = tide_machine_call_stats(machine, TIDE_CALL_ANY).ns;
  const tide_status status = tide_device_reserve(run->stage.device, NULL, run->options->reserve_bytes);
  result->reserve_ns = tide_machine_call_stats(machine, TIDE_CALL_ANY).ns - before_ns;
  return status == TIDE_ERR_NO_MEMORY ? TIDE_OK : status;
}

static tide_status run_plain(const tide_replay* replay, const tide_replay_options* options,
                             tide_replay_result* result) {
  plain_run run = { .replay = replay, .options = options };
  if (tide__begins_in_place(&replay->script, options)) run.at = replay->script.first_step;
  TIDE_TRY(tide__stage_init(&run.stage, &replay->script, replay->heap, options));
  tide_status status = run_reserve(&run, result);
  tide__meter_init(&run.meter, &run.stage);
  if (status == TIDE_OK) status = run_play(&run, result);
  tide__stage_fini(&run.stage);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// The run that checks

// Compares under one limit after the other until the recording is repeated.
static tide_status run_infer(tide_replay* replay, tide_replay_options* options, tide_replay_result* result,
                             bool* out_same) {
  const tide__script* const script = &replay->script;
  const tide__limit_guesses guesses = tide__limit_guess(script, options->device);
  uint64_t high = UINT64_MAX;
  *out_same = false;
  for (size_t i = 0; i < guesses.count && !*out_same; i++) {
    options->limit = guesses.limits[i];
    TIDE_TRY(tide__check_run(script, replay->heap, options, &replay->found, result, out_same));
    high = result->limit_high;
  }
  const bool is_shown = *out_same && options->limit != TIDE_NO_LIMIT && high != UINT64_MAX;
  if (!is_shown) options->limit = TIDE_NO_LIMIT;
  result->limit_low = is_shown ? guesses.low : 0;
  result->limit_high = is_shown ? high : TIDE_NO_LIMIT;
  result->is_limit_certain &= is_shown;
  return TIDE_OK;
}

static tide_status run_compare(tide_replay* replay, tide_replay_options* options, tide_replay_result* result,
                               bool* out_same) {
  if (options->infers_limit) return run_infer(replay, options, result, out_same);
  TIDE_TRY(tide__check_run(&replay->script, replay->heap, options, &replay->found, result, out_same));
  result->limit_low = 0;
  result->limit_high = TIDE_NO_LIMIT;
  result->is_limit_certain = false;
  return TIDE_OK;
}

// After a mismatch, the other figures are those of a plain run from the beginning.
static tide_status run_checked(tide_replay* replay, tide_replay_options* options,
                               tide_replay_result* result) {
  bool is_same = false;
  const tide__script* const script = &replay->script;
  if (!tide__script_is_cut(script) || tide__begins_in_place(script, options)) {
    TIDE_TRY(run_compare(replay, options, result, &is_same));
  } else {
    result->mismatched_segments = 1;
    (void)snprintf(result->mismatch, sizeof result->mismatch,
                   "the recording begins in the middle: %" PRIu64 " blocks existed before, at unknown places",
                   script->before_count);
  }
  result->limit = options->limit;
  if (is_same) return TIDE_OK;
  const tide_replay_result checked = *result;
  tide_replay_options plain = *options;
  plain.checks = false;
  plain.empties = true;
  *result = (tide_replay_result){ 0 };
  TIDE_TRY(run_plain(replay, &plain, result));
  result->mismatched_addresses = checked.mismatched_addresses;
  result->mismatched_segments = checked.mismatched_segments;
  result->limit = checked.limit;
  result->limit_low = checked.limit_low;
  result->limit_high = checked.limit_high;
  result->is_limit_certain = checked.is_limit_certain;
  memcpy(result->mismatch, checked.mismatch, sizeof result->mismatch);
  return TIDE_OK;
}

static tide_status options_check(const tide_replay_options* options) {
  TIDE_REQUIRE(options->scale > 0 && options->scale <= REPLAY_SCALE_MAX, TIDE_ERR_ARGUMENT,
               "replay_run: scale is %g; it must be above 0 and at most %g", options->scale,
               REPLAY_SCALE_MAX);
  TIDE_REQUIRE(!options->checks || options->scale == 1, TIDE_ERR_ARGUMENT,
               "replay_run: a run with scale %g cannot be compared with the recording", options->scale);
  const bool is_other = options->has_one_stream || options->has_one_pool || options->never_waits;
  TIDE_REQUIRE(
      !options->checks || !is_other, TIDE_ERR_ARGUMENT,
      "replay_run: a run with one stream, one pool or no waits cannot be compared with the recording");
  TIDE_REQUIRE(!options->checks || options->stops_above == TIDE_NO_LIMIT, TIDE_ERR_ARGUMENT,
               "replay_run: a run that stops above %" PRIu64 " bytes cannot be compared with the recording",
               options->stops_above);
  TIDE_REQUIRE(!options->checks || options->reserve_bytes == 0, TIDE_ERR_ARGUMENT,
               "replay_run: a run that begins with reserved memory cannot be compared with the recording");
  TIDE_REQUIRE(!options->checks || options->curve == NULL, TIDE_ERR_ARGUMENT,
               "replay_run: a run that is compared with the recording has no curve");
  return TIDE_OK;
}

tide_status tide_replay_run(tide_replay* replay, const tide_replay_options* options,
                            tide_replay_result* out) {
  TIDE_REQUIRE(replay != NULL && out != NULL, TIDE_ERR_ARGUMENT, "replay_run: %s is NULL",
               replay == NULL ? "replay" : "out");
  TIDE_TRY(tide__sized_check("replay_run", out, sizeof *out));
  tide__sized_clear(out);
  tide_replay_options whole = TIDE_REPLAY_OPTIONS_INIT;
  tide_device_options device = TIDE_DEVICE_OPTIONS_INIT;
  if (options != NULL) TIDE_TRY(tide__sized_read("replay_run", options, &whole, sizeof whole));
  if (whole.device != NULL) TIDE_TRY(tide__sized_read("replay_run", whole.device, &device, sizeof device));
  whole.device = &device;
  TIDE_TRY(options_check(&whole));
  TIDE_TRY(tide__parks_check(&whole, replay->script.entry_count));
  TIDE_TRY(tide__budgets_check(&whole, replay->script.entry_count));
  const uint64_t begin_ns = tide__sys_clock_ns();
  tide_replay_result result = TIDE_REPLAY_RESULT_INIT;
  TIDE_TRY(whole.checks ? run_checked(replay, &whole, &result) : run_plain(replay, &whole, &result));
  result.run_ns = tide__sys_clock_ns() - begin_ns;
  return tide__sized_write("replay_run", &result, out, sizeof result);
}

// ---------------------------------------------------------------------------------------------------
// Making and freeing

static tide_status replay_take_empties(tide_replay* replay) {
  const tide__script* const script = &replay->script;
  if (script->empty_count == 0) return TIDE_OK;
  if (!tide__heap_grow(replay->heap, (void**)&replay->found.steps, &replay->found.capacity,
                       script->empty_count, sizeof *replay->found.steps)) {
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "replay_new: no memory for %zu calls of empty_cache",
                     script->empty_count);
  }
  memcpy(replay->found.steps, script->empties, script->empty_count * sizeof *script->empties);
  replay->found.count = script->empty_count;
  return TIDE_OK;
}

// Can a cache begin with the old segments? A damaged recording may have them where no cache can have any.
static void replay_try_begin(tide_replay* replay) {
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  const tide_device_options device = tide__recorded_options(replay->script.trace);
  tide__stage stage;
  options.device = &device;
  if (!tide__begins_in_place(&replay->script, &options)) return;
  const tide_error before = *tide_last_error();
  const tide_status status = tide__stage_init(&stage, &replay->script, replay->heap, &options);
  if (status == TIDE_OK) tide__stage_fini(&stage);
  else replay->script.old_count = 0;
  tide__error_restore(&before);
}

tide_status tide_replay_new(const tide_trace* trace, size_t device, const tide_heap* heap,
                            tide_replay** out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "replay_new: out is NULL");
  *out = NULL;
  TIDE_REQUIRE(trace != NULL, TIDE_ERR_ARGUMENT, "replay_new: trace is NULL");
  TIDE_REQUIRE(tide__heap_is_valid(heap), TIDE_ERR_ARGUMENT, "replay_new: the heap lacks a function");
  heap = tide__heap_or_system(heap);
  tide_replay* const replay = tide__heap_alloc(heap, 1, sizeof *replay);
  TIDE_REQUIRE(replay != NULL, TIDE_ERR_NO_MEMORY, "replay_new: no memory for its record");
  replay->heap = heap;
  tide_status status = tide__script_init(&replay->script, trace, device, heap);
  if (status == TIDE_OK) status = replay_take_empties(replay);
  if (status == TIDE_OK) replay_try_begin(replay);
  if (status != TIDE_OK) {
    tide_replay_free(replay);
    return status;
  }
  *out = replay;
  return TIDE_OK;
}

void tide_replay_free(tide_replay* replay) {
  if (replay == NULL) return;
  tide__script_fini(&replay->script);
  tide__heap_release(replay->heap, replay->found.steps, replay->found.capacity, sizeof *replay->found.steps);
  tide__heap_release(replay->heap, replay, 1, sizeof *replay);
}

tide_device_options tide_replay_recorded_options(const tide_replay* replay) {
  const tide_device_options defaults = TIDE_DEVICE_OPTIONS_INIT;
  return replay != NULL ? tide__recorded_options(replay->script.trace) : defaults;
}

size_t tide_replay_empties(const tide_replay* replay, uint64_t* out, size_t capacity) {
  if (replay == NULL) return 0;
  const tide__script* const script = &replay->script;
  const tide__empties* const found = &replay->found;
  for (size_t i = 0; i < found->count && i < capacity && out != NULL; i++) {
    const size_t step = found->steps[i];
    out[i] = step < script->step_count ? script->steps[step].entry : script->entry_count;
  }
  return found->count;
}
