// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Each thread takes the next row until there is none; nothing a row finds depends on another. A row is one
// replay for its figures and then some that stop at the first refusal: first under its own peak, which is
// raised by an eighth until the recording runs, then by bisection down to what is live at once.
#include "trial.h"

#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tool.h"

#define PRECISION 200u                  // a share of what is live at the peak
#define RAISES 24u                      // by an eighth each: to 17 times the peak
#define MOST_BYTES ((uint64_t)1 << 50)  // what runs in no less, runs nowhere
#define THREADS_MAX 64
#define ROW_REPLAYS 9u  // about what a row takes, to show progress
#define SHOW_NS 50000000

typedef struct trial_crew {
  tool_trials* trials;  // borrowed
  pthread_mutex_t lock;
  pthread_cond_t changed;
  size_t next;     // the next row; this and below under the lock
  size_t ended;    // rows that are done
  size_t replays;  // that are done
} trial_crew;

// ---------------------------------------------------------------------------------------------------
// One row

static bool trial_replay(trial_crew* crew, tool_trial* row, uint64_t limit, bool stops,
                         tide_replay_result* out) {
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  options.device = &row->device;
  options.limit = limit;
  options.stops_at_oom = stops;
  row->status = tide_replay_run(crew->trials->replay, &options, out);
  if (row->status != TIDE_OK) (void)snprintf(row->text, sizeof row->text, "%s", tool_error());
  (void)pthread_mutex_lock(&crew->lock);
  crew->replays++;
  (void)pthread_cond_signal(&crew->changed);
  (void)pthread_mutex_unlock(&crew->lock);
  return row->status == TIDE_OK;
}

// Does it run under a limit? If so, this is the smallest memory so far.
static bool trial_fits(trial_crew* crew, tool_trial* row, uint64_t limit) {
  tide_replay_result result = TIDE_REPLAY_RESULT_INIT;
  if (!trial_replay(crew, row, limit, true, &result) || result.ooms > 0) return false;
  row->smallest_bytes = limit;
  row->smallest_ns = result.driver_ns;
  return true;
}

static void trial_bisect(trial_crew* crew, tool_trial* row) {
  const uint64_t step = row->result.peak_allocated / PRECISION + 1;
  // Less will surely not do. What failed under the limit is taken to fail below it too, though collection by
  // age depends on the limit in other ways as well.
  const bool is_short = row->result.ooms > 0;
  uint64_t low = is_short ? crew->trials->limit : row->result.peak_allocated;
  uint64_t high = is_short ? low + low / 8 : row->result.peak_reserved;
  if (low > MOST_BYTES) return;
  for (unsigned i = 0; !trial_fits(crew, row, high); i++) {
    if (row->status != TIDE_OK || i == RAISES) return;
    low = high;
    high += high / 8 + 1;
  }
  while (row->status == TIDE_OK && high > low && high - low > step) {
    const uint64_t middle = low + (high - low) / 2;
    if (trial_fits(crew, row, middle)) high = middle;
    else low = middle;
  }
}

static void trial_run(trial_crew* crew, tool_trial* row) {
  const tool_trials* const trials = crew->trials;
  row->result = (tide_replay_result)TIDE_REPLAY_RESULT_INIT;
  const bool is_run = trial_replay(crew, row, trials->limit, false, &row->result);
  if (is_run && !trials->is_quick) trial_bisect(crew, row);
}

// ---------------------------------------------------------------------------------------------------
// Threads

// The next row; NULL when there is none.
static tool_trial* crew_take(trial_crew* crew) {
  (void)pthread_mutex_lock(&crew->lock);
  tool_trial* const row = crew->next < crew->trials->count ? &crew->trials->rows[crew->next++] : NULL;
  (void)pthread_mutex_unlock(&crew->lock);
  return row;
}

static void* crew_work(void* user) {
  trial_crew* const crew = user;
  for (tool_trial* row = crew_take(crew); row != NULL; row = crew_take(crew)) {
    trial_run(crew, row);
    (void)pthread_mutex_lock(&crew->lock);
    crew->ended++;
    (void)pthread_cond_signal(&crew->changed);
    (void)pthread_mutex_unlock(&crew->lock);
  }
  return NULL;
}

static size_t crew_size(size_t rows) {
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  const size_t most = processors < 1 ? 1 : processors > THREADS_MAX ? THREADS_MAX : (size_t)processors;
  return rows < most ? rows : most;
}

static void crew_watch(trial_crew* crew) {
  const size_t count = crew->trials->count;
  const size_t each = crew->trials->is_quick ? 1 : ROW_REPLAYS;
  tool_progress* const progress = tool_progress_begin("replaying");
  (void)pthread_mutex_lock(&crew->lock);
  while (crew->ended < count) {
    tool_progress_show(progress, (double)crew->replays / (double)(count * each));
    struct timespec until = { 0 };
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += SHOW_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&crew->changed, &crew->lock, &until);
  }
  (void)pthread_mutex_unlock(&crew->lock);
  tool_progress_end(progress);
}

void tool_trials_run(tool_trials* trials) {
  trial_crew crew = { .trials = trials };
  pthread_t threads[THREADS_MAX];
  const size_t wanted = crew_size(trials->count);
  size_t started = 0;
  (void)pthread_mutex_init(&crew.lock, NULL);
  (void)pthread_cond_init(&crew.changed, NULL);
  while (started < wanted && pthread_create(&threads[started], NULL, crew_work, &crew) == 0) started++;
  if (started == 0) (void)crew_work(&crew);  // no thread can be had: then without
  crew_watch(&crew);
  for (size_t i = 0; i < started; i++) (void)pthread_join(threads[i], NULL);
  (void)pthread_cond_destroy(&crew.changed);
  (void)pthread_mutex_destroy(&crew.lock);
}
