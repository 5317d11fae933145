// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Each thread takes the largest file that fits into the memory that is left, reads it, and keeps only its
// rows. The largest file always fits, because at first all memory is left and nothing overtakes it. A
// recording that takes a share of the memory may use the same share of the threads for its replays, so all
// processors are busy whether the recordings are large or small.
#include <pthread.h>
#include <stdlib.h>

#include "base/arith.h"
#include "base/sys.h"
#include "survey.h"

#define MEMORY_LEAST ((uint64_t)256 << 20)
#define THREADS_MAX 256u

typedef struct survey_job {
  const tool_survey_file* file;
  uint64_t memory;
  bool is_taken;
} survey_job;

typedef struct survey_workers {
  survey_job* jobs;  // the largest first
  size_t count;
  const tool_call* call;
  uint64_t memory;  // for all that are read side by side
  size_t threads;
  pthread_mutex_t lock;  // guards what follows
  pthread_cond_t changed;
  uint64_t memory_left;
  size_t taken;
  size_t ended;
  tool_survey_rows rows;
} survey_workers;

// ---------------------------------------------------------------------------------------------------
// The threads

// The next file, with the lock held; waits for memory. NULL: all are taken.
static survey_job* workers_take(survey_workers* workers) {
  while (workers->taken < workers->count) {
    for (size_t i = 0; i < workers->count; i++) {
      survey_job* const job = &workers->jobs[i];
      if (job->is_taken || job->memory > workers->memory_left) continue;
      job->is_taken = true;
      workers->taken++;
      workers->memory_left -= job->memory;
      return job;
    }
    (void)pthread_cond_wait(&workers->changed, &workers->lock);
  }
  return NULL;
}

static void rows_append(tool_survey_rows* to, tool_survey_rows* from) {
  for (size_t i = 0; i < from->count; i++) *tool_survey_rows_add(to) = from->items[i];
  free(from->items);
}

// A part of all threads, at least one.
static size_t job_threads(const survey_workers* workers, const survey_job* job) {
  const double share = (double)job->memory / (double)workers->memory;
  const size_t threads = (size_t)(share * (double)workers->threads);
  return threads < 1 ? 1 : threads;
}

static void* workers_run(void* user) {
  survey_workers* const workers = user;
  tool_progress_quiet();
  (void)pthread_mutex_lock(&workers->lock);
  for (survey_job* job; (job = workers_take(workers)) != NULL;) {
    tool_survey_rows rows = { .count = 0 };
    (void)pthread_mutex_unlock(&workers->lock);
    tool_survey_read(workers->call, job->file, job_threads(workers, job), &rows);
    (void)pthread_mutex_lock(&workers->lock);
    rows_append(&workers->rows, &rows);
    workers->memory_left += job->memory;
    workers->ended++;
    (void)pthread_cond_broadcast(&workers->changed);
  }
  (void)pthread_mutex_unlock(&workers->lock);
  return NULL;
}

static void workers_watch(survey_workers* workers) {
  tool_progress* const progress = tool_progress_begin("reading the recordings");
  (void)pthread_mutex_lock(&workers->lock);
  while (workers->ended < workers->count) {
    tool_progress_show(progress, (double)workers->ended / (double)workers->count);
    tool_progress_wait(&workers->changed, &workers->lock);
  }
  (void)pthread_mutex_unlock(&workers->lock);
  tool_progress_end(progress);
}

static void workers_start(survey_workers* workers, bool is_shown) {
  pthread_t threads[THREADS_MAX];
  const size_t wanted = workers->threads < workers->count ? workers->threads : workers->count;
  size_t started = 0;
  while (started < wanted && pthread_create(&threads[started], NULL, workers_run, workers) == 0) started++;
  if (started == 0) (void)workers_run(workers);  // without a thread of its own
  else if (is_shown) workers_watch(workers);
  for (size_t i = 0; i < started; i++) (void)pthread_join(threads[i], NULL);
}

// ---------------------------------------------------------------------------------------------------
// All files

static int compare_jobs(const void* a, const void* b) {
  const survey_job* const one = a;
  const survey_job* const other = b;
  if (one->memory != other->memory) return one->memory > other->memory ? -1 : 1;
  return one->file->place < other->file->place ? -1 : one->file->place > other->file->place;
}

static size_t threads_of(const tool_survey_plan* plan) {
  const size_t count = tide__sys_processors() / (plan->processes > 0 ? plan->processes : 1);
  return count < 1 ? 1 : count > THREADS_MAX ? THREADS_MAX : count;
}

void tool_survey_work(const tool_survey_files* files, const tool_survey_plan* plan, tool_survey_rows* out) {
  survey_workers workers = { .call = plan->call, .count = files->count, .threads = threads_of(plan) };
  workers.jobs = tool_alloc(files->count, sizeof *workers.jobs);
  workers.memory = plan->memory != 0 ? plan->memory : MEMORY_LEAST;
  for (size_t i = 0; i < files->count; i++) {
    const uint64_t memory = tool_survey_file_memory(&files->items[i]);
    workers.jobs[i] = (survey_job){ .file = &files->items[i], .memory = memory };
    workers.memory = tide__max(workers.memory, memory);
  }
  if (files->count > 1) qsort(workers.jobs, files->count, sizeof *workers.jobs, compare_jobs);
  workers.memory_left = workers.memory;
  (void)pthread_mutex_init(&workers.lock, NULL);
  (void)pthread_cond_init(&workers.changed, NULL);
  workers_start(&workers, plan->is_shown);
  (void)pthread_cond_destroy(&workers.changed);
  (void)pthread_mutex_destroy(&workers.lock);
  free(workers.jobs);
  *out = workers.rows;
}
