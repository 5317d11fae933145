// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Each thread takes the next row until there is none. Rows do not depend on each other. A row is one replay
// for the figures, and then replays under limits that stop at the first refusal: the limit starts at the
// row's peak and is raised by an eighth until every request is served, then lowered by bisection, at most to
// the live peak.
#include "trial.h"

#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tool.h"

#define PRECISION 200u                  // a fraction of the live peak
#define RAISES 24u                      // by an eighth each: to 17 times the peak
#define MOST_BYTES ((uint64_t)1 << 50)  // no larger limit is tried
#define THREADS_MAX 64
#define ROW_REPLAYS 9u  // the approximate number for one row, for the progress bar
#define SHOW_NS 50000000

typedef struct trial_workers {
  tool_trials* trials;  // borrowed
  pthread_mutex_t lock;
  pthread_cond_t changed;
  size_t next;     // the next row; this and below under the lock
  size_t ended;    // rows that are done
  size_t replays;  // that are done
} trial_workers;

// ---------------------------------------------------------------------------------------------------
// One row

static bool trial_replay(trial_workers* workers, tool_trial* row, uint64_t limit, bool stops,
                         tide_replay_result* out) {
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  options.device = &row->device;
  options.limit = limit;
  options.stops_at_oom = stops;
  row->status = tide_replay_run(workers->trials->replay, &options, out);
  if (row->status != TIDE_OK) (void)snprintf(row->text, sizeof row->text, "%s", tool_error());
  (void)pthread_mutex_lock(&workers->lock);
  workers->replays++;
  (void)pthread_cond_signal(&workers->changed);
  (void)pthread_mutex_unlock(&workers->lock);
  return row->status == TIDE_OK;
}

// Does it serve every request under a limit? If so, this is the smallest memory so far.
static bool trial_fits(trial_workers* workers, tool_trial* row, uint64_t limit) {
  tide_replay_result result = TIDE_REPLAY_RESULT_INIT;
  if (!trial_replay(workers, row, limit, true, &result) || result.ooms > 0) return false;
  row->smallest_bytes = limit;
  row->smallest_ns = result.driver_ns;
  return true;
}

static void trial_bisect(trial_workers* workers, tool_trial* row) {
  const uint64_t step = row->result.peak_allocated / PRECISION + 1;
  // `low` is certainly too little. A setting that fails under the limit is assumed to fail below it, although
  // garbage collection depends on the limit in other ways, too.
  const bool is_short = row->result.ooms > 0;
  uint64_t low = is_short ? workers->trials->limit : row->result.peak_allocated;
  uint64_t high = is_short ? low + low / 8 : row->result.peak_reserved;
  if (low > MOST_BYTES) return;
  for (unsigned i = 0; !trial_fits(workers, row, high); i++) {
    if (row->status != TIDE_OK || i == RAISES) return;
    low = high;
    high += high / 8 + 1;
  }
  while (row->status == TIDE_OK && high > low && high - low > step) {
    const uint64_t middle = low + (high - low) / 2;
    if (trial_fits(workers, row, middle)) high = middle;
    else low = middle;
  }
}

static void trial_run(trial_workers* workers, tool_trial* row) {
  const tool_trials* const trials = workers->trials;
  row->result = (tide_replay_result)TIDE_REPLAY_RESULT_INIT;
  const bool is_run = trial_replay(workers, row, trials->limit, false, &row->result);
  if (is_run && !trials->is_quick) trial_bisect(workers, row);
}

// ---------------------------------------------------------------------------------------------------
// Threads

// The next row; NULL if there is none.
static tool_trial* workers_take(trial_workers* workers) {
  (void)pthread_mutex_lock(&workers->lock);
  tool_trial* const row = workers->next < workers->trials->count ? &workers->trials->rows[workers->next++]
                                                                 : NULL;
  (void)pthread_mutex_unlock(&workers->lock);
  return row;
}

static void* workers_run(void* user) {
  trial_workers* const workers = user;
  for (tool_trial* row = workers_take(workers); row != NULL; row = workers_take(workers)) {
    trial_run(workers, row);
    (void)pthread_mutex_lock(&workers->lock);
    workers->ended++;
    (void)pthread_cond_signal(&workers->changed);
    (void)pthread_mutex_unlock(&workers->lock);
  }
  return NULL;
}

static size_t workers_count(const tool_trials* trials) {
  const long processors = trials->threads != 0 ? (long)trials->threads : sysconf(_SC_NPROCESSORS_ONLN);
  const size_t most = processors < 1 ? 1 : processors > THREADS_MAX ? THREADS_MAX : (size_t)processors;
  return trials->count < most ? trials->count : most;
}

static void workers_watch(trial_workers* workers) {
  const size_t count = workers->trials->count;
  const size_t each = workers->trials->is_quick ? 1 : ROW_REPLAYS;
  tool_progress* const progress = tool_progress_begin("replaying");
  (void)pthread_mutex_lock(&workers->lock);
  while (workers->ended < count) {
    tool_progress_show(progress, (double)workers->replays / (double)(count * each));
    struct timespec until = { 0 };
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += SHOW_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&workers->changed, &workers->lock, &until);
  }
  (void)pthread_mutex_unlock(&workers->lock);
  tool_progress_end(progress);
}

void tool_trials_run(tool_trials* trials) {
  trial_workers workers = { .trials = trials };
  pthread_t threads[THREADS_MAX];
  const size_t wanted = trials->threads == 1 ? 0 : workers_count(trials);  // one: the caller's
  size_t started = 0;
  (void)pthread_mutex_init(&workers.lock, NULL);
  (void)pthread_cond_init(&workers.changed, NULL);
  while (started < wanted && pthread_create(&threads[started], NULL, workers_run, &workers) == 0) started++;
  if (started == 0) (void)workers_run(&workers);
  workers_watch(&workers);
  for (size_t i = 0; i < started; i++) (void)pthread_join(threads[i], NULL);
  (void)pthread_cond_destroy(&workers.changed);
  (void)pthread_mutex_destroy(&workers.lock);
}
