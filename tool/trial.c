// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Each thread takes the next row until there is none. Rows do not depend on each other. A row is one replay
// for the figures, and then replays under limits that stop at the first refusal. They start at the peak of a
// replay without a limit, so the smallest memory does not depend on the limit of the trials. The limit is
// raised by an eighth until every request is served, then lowered by bisection to whole grains, at most to
// the live peak.
#include "trial.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"

#define RAISES 24u                      // by an eighth each: to 17 times the peak
#define MOST_BYTES ((uint64_t)1 << 50)  // no larger limit is tried
#define THREADS_MAX 64
#define ROW_REPLAYS 14u  // the approximate number for one row, until more is known about it

typedef struct trial_workers {
  tool_trials* trials;  // borrowed
  pthread_mutex_t lock;
  pthread_cond_t changed;
  size_t rows;     // to run
  size_t next;     // the next row; this and below under the lock
  size_t ended;    // rows that are done
  size_t replays;  // that are done
  size_t wanted;   // an estimate of all, for the progress bar
} trial_workers;

// ---------------------------------------------------------------------------------------------------
// One row

static bool trial_replay(trial_workers* workers, tool_trial* row, const tide_replay_options* options,
                         tide_replay_result* out) {
  row->status = tide_replay_run(workers->trials->replay, options, out);
  if (row->status != TIDE_OK) (void)snprintf(row->text, sizeof row->text, "%s", tool_error());
  (void)pthread_mutex_lock(&workers->lock);
  workers->replays++;
  (void)pthread_cond_signal(&workers->changed);
  (void)pthread_mutex_unlock(&workers->lock);
  return row->status == TIDE_OK;
}

static tide_replay_options trial_options(const tool_trial* row, uint64_t limit) {
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  options.device = &row->device;
  options.limit = limit;
  if (row->budgeting != NULL) tool_budgeting_set(row->budgeting, row->tags, &options);
  return options;
}

// Does it serve every request under a limit? If so, this is the smallest memory so far.
static bool trial_fits(trial_workers* workers, tool_trial* row, uint64_t limit) {
  tide_replay_result result = TIDE_REPLAY_RESULT_INIT;
  tide_replay_options options = trial_options(row, limit);
  options.stops_at_oom = true;
  if (!trial_replay(workers, row, &options, &result) || result.ooms > 0) return false;
  row->smallest_bytes = limit;
  row->smallest_ns = result.driver_ns;
  row->smallest_bus_ns = result.bus_ns;
  return true;
}

// Bisects between too little and enough memory, in grains.
static void trial_bisect(trial_workers* workers, tool_trial* row, uint64_t low, uint64_t high) {
  while (row->status == TIDE_OK && high > low + 1) {
    const uint64_t middle = low + (high - low) / 2;
    if (trial_fits(workers, row, middle * TOOL_TRIAL_GRAIN)) high = middle;
    else low = middle;
  }
}

// Corrects the estimate for the progress bar: bisection of a range takes as many replays as it has bits.
static void workers_expect(trial_workers* workers, uint64_t range) {
  size_t replays = 2;
  for (; range > 1; range /= 2) replays++;
  (void)pthread_mutex_lock(&workers->lock);
  workers->wanted += replays;
  workers->wanted -= ROW_REPLAYS;
  (void)pthread_mutex_unlock(&workers->lock);
}

// What is certainly too little, in grains: less than what was live at once, unless a part of it can be away.
static uint64_t trial_too_little(const tool_trial* row, uint64_t live_bytes) {
  return row->budgeting == NULL ? (live_bytes - 1) / TOOL_TRIAL_GRAIN : 0;
}

// Finds the smallest memory, given the figures of a replay without a limit.
static void trial_search(trial_workers* workers, tool_trial* row, const tide_replay_result* free) {
  uint64_t low = trial_too_little(row, free->peak_allocated);
  uint64_t high = (free->peak_reserved + TOOL_TRIAL_GRAIN - 1) / TOOL_TRIAL_GRAIN;
  if (high <= low) high = low + 1;
  workers_expect(workers, high - low);
  for (unsigned i = 0; !trial_fits(workers, row, high * TOOL_TRIAL_GRAIN); i++) {
    if (row->status != TIDE_OK || i == RAISES) return;
    low = high;
    high += high / 8 + 1;
  }
  trial_bisect(workers, row, low, high);
}

// A setting may run in the given limit and in less, but not in something between: collecting garbage depends
// on the limit. Then the search goes on below the given limit.
static void trial_search_below(trial_workers* workers, tool_trial* row, uint64_t live_bytes) {
  const uint64_t limit = workers->trials->limit;
  if (row->result.ooms > 0 || row->smallest_bytes <= limit) return;
  const uint64_t high = limit / TOOL_TRIAL_GRAIN;
  if (!trial_fits(workers, row, high * TOOL_TRIAL_GRAIN)) row->smallest_bytes = limit;
  else trial_bisect(workers, row, trial_too_little(row, live_bytes), high);
}

static uint64_t workers_most(trial_workers* workers, const tool_trial* row) {
  const tool_trials* const trials = workers->trials;
  (void)pthread_mutex_lock(&workers->lock);
  const uint64_t most = trials->most(trials, row);
  (void)pthread_mutex_unlock(&workers->lock);
  return most;
}

// The replay for the figures.
static bool trial_measure(trial_workers* workers, tool_trial* row) {
  tide_replay_options options = trial_options(row, workers->trials->limit);
  options.curve = row->curve;
  options.curve_count = workers->trials->curve_count;
  options.stops_at_oom = workers->trials->most != NULL;
  if (options.stops_at_oom) options.stops_above = workers_most(workers, row);
  row->result = (tide_replay_result)TIDE_REPLAY_RESULT_INIT;
  if (!trial_replay(workers, row, &options, &row->result)) return false;
  row->is_stopped = row->result.peak_reserved > options.stops_above ||
                    (options.stops_at_oom && row->result.ooms > 0);
  return true;
}

static void trial_find_smallest(trial_workers* workers, tool_trial* row) {
  const uint64_t limit = workers->trials->limit;
  tide_replay_result free = row->result;
  bool is_run = true;
  const tide_replay_options unlimited = trial_options(row, TIDE_NO_LIMIT);
  if (limit != TIDE_NO_LIMIT) is_run = trial_replay(workers, row, &unlimited, &free);
  if (!is_run || free.ooms > 0 || free.peak_allocated == 0 || free.peak_reserved > MOST_BYTES) return;
  trial_search(workers, row, &free);
  if (limit != TIDE_NO_LIMIT) trial_search_below(workers, row, free.peak_allocated);
}

// The search has results of its own about tags, which are dropped.
static void trial_run(trial_workers* workers, tool_trial* row) {
  const size_t tag_count = row->budgeting != NULL ? row->budgeting->tag_count : 0;
  const bool is_run = row->is_known || trial_measure(workers, row);
  if (!is_run || workers->trials->is_quick) return;
  tide_replay_tag* const tags = row->tags;
  row->tags = tool_alloc(tag_count, sizeof *tags);
  if (tag_count > 0) memcpy(row->tags, tags, tag_count * sizeof *tags);
  trial_find_smallest(workers, row);
  free(row->tags);
  row->tags = tags;
}

// ---------------------------------------------------------------------------------------------------
// Threads

// The next row; NULL if there is none.
static tool_trial* workers_take(trial_workers* workers) {
  (void)pthread_mutex_lock(&workers->lock);
  tool_trials* const trials = workers->trials;
  while (workers->next < trials->count && trials->rows[workers->next].is_done) workers->next++;
  tool_trial* const row = workers->next < trials->count ? &trials->rows[workers->next++] : NULL;
  (void)pthread_mutex_unlock(&workers->lock);
  return row;
}

static void* workers_run(void* user) {
  trial_workers* const workers = user;
  for (tool_trial* row = workers_take(workers); row != NULL; row = workers_take(workers)) {
    trial_run(workers, row);
    (void)pthread_mutex_lock(&workers->lock);
    row->is_done = true;
    workers->ended++;
    (void)pthread_cond_signal(&workers->changed);
    (void)pthread_mutex_unlock(&workers->lock);
  }
  return NULL;
}

static size_t rows_left(const tool_trials* trials) {
  size_t count = 0;
  for (size_t i = 0; i < trials->count; i++) count += !trials->rows[i].is_done;
  return count;
}

static size_t workers_count(const tool_trials* trials, size_t rows) {
  const long processors = trials->threads != 0 ? (long)trials->threads : sysconf(_SC_NPROCESSORS_ONLN);
  const size_t most = processors < 1 ? 1 : processors > THREADS_MAX ? THREADS_MAX : (size_t)processors;
  return rows < most ? rows : most;
}

static void workers_watch(trial_workers* workers) {
  tool_progress* const progress = tool_progress_begin("replaying");
  (void)pthread_mutex_lock(&workers->lock);
  while (workers->ended < workers->rows) {
    tool_progress_show(progress, (double)workers->replays / (double)workers->wanted);
    tool_progress_wait(&workers->changed, &workers->lock);
  }
  (void)pthread_mutex_unlock(&workers->lock);
  tool_progress_end(progress);
}

void tool_trials_run(tool_trials* trials) {
  trial_workers workers = { .trials = trials, .rows = rows_left(trials) };
  workers.wanted = workers.rows * (trials->is_quick ? 1 : ROW_REPLAYS);
  pthread_t threads[THREADS_MAX];
  const size_t wanted = trials->threads == 1 ? 0 : workers_count(trials, workers.rows);  // one: the caller's
  size_t started = 0;
  if (workers.rows == 0) return;
  (void)pthread_mutex_init(&workers.lock, NULL);
  (void)pthread_cond_init(&workers.changed, NULL);
  while (started < wanted && pthread_create(&threads[started], NULL, workers_run, &workers) == 0) started++;
  if (started == 0) (void)workers_run(&workers);
  workers_watch(&workers);
  for (size_t i = 0; i < started; i++) (void)pthread_join(threads[i], NULL);
  (void)pthread_cond_destroy(&workers.changed);
  (void)pthread_mutex_destroy(&workers.lock);
}
